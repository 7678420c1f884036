"""Networks of ONNX models, and the same ones as a JAX user writes them, of the weights that PyTorch has."""

import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from onnx_networks import MODELS, gpt, unet
from workloads import Work

import dmljax.onnx

State = Mapping[str, Any]


def linear(state: State, name: str, x: Any) -> Any:
    bias = state.get(f"{name}.bias")
    product = x @ state[f"{name}.weight"].T
    return product if bias is None else product + bias


def layer_norm(state: State, name: str, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * state[f"{name}.weight"] + state[f"{name}.bias"]


def convolution(state: State, name: str, x: Any, padding: int) -> Any:
    y = lax.conv_general_dilated(x, state[f"{name}.weight"], (1, 1), [(padding, padding)] * 2)
    return y + state[f"{name}.bias"][:, None, None]


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
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        x = jax.nn.relu(convolution(state, f"down.{i}", x, 1))
        kept.append(x)
    for i, other in enumerate(kept[-2::-1]):
        x = jax.image.resize(x, (*x.shape[:2], *other.shape[2:]), "linear")
        x = jax.nn.relu(convolution(state, f"up.{i}", jnp.concatenate([x, other], 1), 1))
    return convolution(state, "last", x, 0)


def network(name: str, make: Callable[[Any], Any], plain: Callable[..., Any]) -> Work:
    """Both of a network; each takes its own weights of the two."""
    with tempfile.TemporaryDirectory() as folder:
        made = MODELS[name](Path(folder) / f"{name}.onnx")
        assert made is not None
        model, inputs = dmljax.onnx.load(made[0]), made[1]
    torch.manual_seed(2021)
    state: Any = {key: value.numpy() for key, value in make(torch)[0].state_dict().items()}
    return Work(
        (dict(model.weights), state, *inputs.values()),  # type: ignore[arg-type]
        lambda weights, _, *arrays: model.apply(weights, *arrays),
        jax=lambda _, state, *arrays: plain(state, *arrays),
    )


NETWORKS: dict[str, Callable[[], Work]] = {
    "GPT of 4 layers": lambda: network("gpt", gpt(False), plain_gpt),
    "U-Net": lambda: network("unet", unet, plain_unet),
}
