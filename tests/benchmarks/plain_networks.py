"""Networks from ONNX models, and the same networks as a JAX user writes them, with PyTorch's weights.

`python tests/benchmarks/plain_networks.py` prints the milliseconds of each network's forward pass, and how many times
as long plain JAX, PyTorch and ONNX Runtime take.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import torch
from jax import lax
from onnx_networks import Make, exported, gpt, recurrent, resnet, unet
from recurrence import PLAIN, reordered
from timing import Effort, medians
from workloads import Work

import dmljax.onnx

State = Mapping[str, Any]

_EFFORT = Effort(rounds=11, block_seconds=0.25)


def linear(state: State, name: str, x: Any) -> Any:
    bias = state.get(f"{name}.bias")
    product = x @ state[f"{name}.weight"].T
    return product if bias is None else product + bias


def layer_norm(state: State, name: str, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * state[f"{name}.weight"] + state[f"{name}.bias"]


def convolution(state: State, name: str, x: Any, padding: int, stride: int = 1) -> Any:
    y = lax.conv_general_dilated(x, state[f"{name}.weight"], (stride, stride), [(padding, padding)] * 2)
    return y + state[f"{name}.bias"][:, None, None]


def max_pooling(x: Any, size: int, stride: int, padding: int = 0) -> Any:
    edges = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride), edges)


def plain_gpt(state: State, tokens: Any) -> Any:
    """The logits, and each layer's keys and values."""
    heads, presents = 8, []
    x = state["tokens.weight"][tokens] + state["places.weight"][: tokens.shape[1]]
    for i in range(4):
        stacked = linear(state, f"layers.{i}.stacked", layer_norm(state, f"layers.{i}.norm", x))
        query, key, value = stacked.reshape(*x.shape[:2], 3, heads, -1).transpose(2, 0, 3, 1, 4)
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(x.shape[-1] // heads)
        scores = jnp.where(jnp.tri(x.shape[1], dtype=bool), scores, -jnp.inf)
        mixed = (jax.nn.softmax(scores) @ value).swapaxes(1, 2).reshape(x.shape)
        x = x + linear(state, f"layers.{i}.out", mixed)
        wide = linear(state, f"layers.{i}.wide", layer_norm(state, f"layers.{i}.other_norm", x))
        x = x + linear(state, f"layers.{i}.narrow", jax.nn.gelu(wide, approximate=False))
        presents.append(jnp.stack([key, value]))
    return linear(state, "head", layer_norm(state, "norm", x)), *presents


def plain_unet(state: State, x: Any) -> Any:
    kept = []
    for i in range(3):
        if i > 0:
            x = max_pooling(x, 2, 2)
        x = jax.nn.relu(convolution(state, f"down.{i}", x, 1))
        kept.append(x)
    for i, other in enumerate(kept[-2::-1]):
        x = jax.image.resize(x, (*x.shape[:2], *other.shape[2:]), "linear")
        x = jax.nn.relu(convolution(state, f"up.{i}", jnp.concatenate([x, other], 1), 1))
    return convolution(state, "last", x, 0)


def folded(state: State) -> State:
    """The weights of convolutions, with the following batch normalization folded in as PyTorch's exporter does."""
    norms = {"0": "1"} | {
        f"{block}.{a}": f"{block}.{b}"
        for block in range(4, 12)
        for a, b in (("first", "norm"), ("second", "other_norm"), ("short.0", "short.1"))
    }
    found = {name: array for name, array in state.items() if name.startswith("14.")}
    for name, norm in norms.items():
        if f"{name}.weight" in state:
            scale = state[f"{norm}.weight"] / np.sqrt(state[f"{norm}.running_var"] + 1e-5)
            found[f"{name}.weight"] = state[f"{name}.weight"] * scale[:, None, None, None]
            found[f"{name}.bias"] = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
    return found


def plain_resnet(state: State, x: Any) -> Any:
    x = max_pooling(jax.nn.relu(convolution(state, "0", x, 3, 2)), 3, 2, 1)
    for block in range(4, 12):
        stride = 2 if block in (6, 8, 10) else 1
        y = jax.nn.relu(convolution(state, f"{block}.first", x, 1, stride))
        y = convolution(state, f"{block}.second", y, 1)
        x = jax.nn.relu(y + (x if stride == 1 else convolution(state, f"{block}.short.0", x, 0, stride)))
    return linear(state, "14", x.mean((2, 3)))


def stacked(name: str, state: State) -> State:
    """The weights with gates in DirectML's order, and the two biases of a layer added up."""
    found = {key: array for key, array in state.items() if key.startswith("head.")}
    for layer in ("l0", "l0_reverse", "l1", "l1_reverse"):
        for kind in ("weight_ih", "weight_hh"):
            found[f"{kind}_{layer}"] = reordered(name, state[f"inner.{kind}_{layer}"])[None]
        biases = [reordered(name, state[f"inner.{kind}_{layer}"]) for kind in ("bias_ih", "bias_hh")]
        found[f"bias_{layer}"] = np.concatenate(biases)[None]
    return found


def plain_recurrent(name: str, state: State, x: Any) -> Any:
    """Two bidirectional layers and a linear layer, with the products of the input outside the loops."""
    x = x.swapaxes(0, 1)
    for layer in ("l0", "l1"):
        both = []
        for end in ("", "_reverse"):
            parameters = (state[f"{kind}_{layer}{end}"] for kind in ("weight_ih", "weight_hh", "bias"))
            both.append(PLAIN[name](x, *parameters, reverse=end != "")[:, 0])
        x = jnp.concatenate(both, -1)
    return linear(state, "head", x.swapaxes(0, 1))


def network(make: Make, plain: Callable[..., Any], weights: Callable[[Any], Any]) -> Work:
    """A network as an ONNX model and in plain JAX; each uses its own weights."""
    module, file, inputs = exported(make)
    model = dmljax.onnx.load(file)
    state = weights({key: value.numpy() for key, value in module.state_dict().items()})
    on = cache(module.to)  # a device
    return Work(
        (dict(model.weights), state, *(value.numpy() for value in inputs.values())),
        lambda weights, _, *arrays: model.apply(weights, *arrays),
        jax=lambda _, state, *arrays: plain(state, *arrays),
        torch=lambda _, __, *tensors: on(tensors[0].device)(*tensors),
    )


def gradient(work: Work) -> Work:
    """The gradients of the mean square of the first result with respect to all weights."""

    def of(function: Any, place: int) -> Any:
        def loss(*arguments: Any) -> Any:
            results = function(*arguments)
            return jnp.mean((results[0] if isinstance(results, tuple) else results) ** 2)

        return jax.grad(loss, argnums=place)

    return Work(work.inputs, of(work.dmljax, 0), jax=of(work.jax, 1))


MADE: dict[str, tuple[Make, Callable[..., Any], Callable[[Any], Any]]] = {
    "ResNet-18": (resnet, plain_resnet, folded),
    "U-Net": (unet, plain_unet, dict),
    "GPT of 4 layers": (gpt, plain_gpt, dict),
    "LSTM of 2 layers": (recurrent("LSTM"), partial(plain_recurrent, "LSTM"), partial(stacked, "LSTM")),
    "GRU of 2 layers": (recurrent("GRU"), partial(plain_recurrent, "GRU"), partial(stacked, "GRU")),
}
FORWARD: dict[str, Callable[[], Work]] = {name: partial(network, *made) for name, made in MADE.items()}
NETWORKS = FORWARD | {f"{name}, gradient": lambda make=make: gradient(make()) for name, make in FORWARD.items()}


def _times(name: str) -> dict[str, float]:
    work = FORWARD[name]()
    module, file, inputs = exported(MADE[name][0])
    arguments, feeds = jax.device_put(work.inputs), {key: value.numpy() for key, value in inputs.items()}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    compiled = {"dmljax": jax.jit(work.dmljax), "plain JAX": jax.jit(work.jax)}  # type: ignore[arg-type]
    rivals = {
        rival: lambda function=function: jax.block_until_ready(function(*arguments))
        for rival, function in compiled.items()
    }
    others = {"PyTorch": lambda: module(*inputs.values()), "ONNX Runtime": lambda: session.run(None, feeds)}
    with torch.inference_mode():
        return medians(rivals | others, _EFFORT)


def main() -> dict[str, dict[str, float]]:
    """Prints and returns the milliseconds of each network for dmljax and its rivals."""
    torch.set_num_threads(2)
    milliseconds = {}
    for name in FORWARD:
        times = milliseconds[name] = {rival: round(1000 * seconds, 3) for rival, seconds in _times(name).items()}
        told = (f"{rival} {of_rival / times['dmljax']:.2f}" for rival, of_rival in times.items() if rival != "dmljax")
        print(f"{name}  {times['dmljax']:.2f} ms", *told, sep="  ", flush=True)
    return milliseconds


if __name__ == "__main__":
    main()
