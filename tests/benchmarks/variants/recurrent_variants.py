"""LSTM and GRU on a GPU: cuDNN's, unrolled loops, command buffers, and all steps in one kernel."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from real_sizes import array
from recurrence import GATES, PLAIN
from recurrent_kernels import LARGEST, run_all_steps
from variant import CUDA, Race, Variant, patched
from workloads import Function, Work

import dmljax
from dmljax.lowerings.rows import recurrence

UNROLLED = (4, 8, 16)
# What XLA joins into command buffers, with its loops, and from which number of kernels on
COMMANDS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_gpu_graph_min_graph_size": 1,
}


def in_torch(kind: str) -> Function:
    """PyTorch's network with weights in DirectML's order, which its first call takes over."""
    modules: list[Any] = []

    def run(x: Any, w: Any, r: Any, b: Any) -> Any:
        import torch

        if not modules:
            order = np.argsort(GATES[kind]).tolist()
            size = r.shape[-1]
            module = getattr(torch.nn, kind)(x.shape[-1], size).to(x.device, x.dtype).requires_grad_(False)
            for own, given in zip(module.parameters(), (w[0], r[0], *b[0].chunk(2)), strict=True):
                own.copy_(given.reshape(len(order), size, *given.shape[1:])[order].reshape(given.shape))
            modules.append(module)
        return modules[0](x)[0][:, None]

    return run


def network(kind: str, steps: int, batch: int, size: int, dtype: str) -> Work:
    """All states of a network with as many features in as out."""
    gates = len(GATES[kind])
    weights = array(dtype, 1, gates * size, size)
    function: Any = {"LSTM": dmljax.lstm, "GRU": partial(dmljax.gru, linear_before_reset=True)}[kind]
    return Work(
        (array(dtype, steps, batch, size), weights, weights, array(dtype, 1, 2 * gates * size)),
        lambda *arrays: function(*arrays).sequence,
        jax=PLAIN[kind],
        torch=in_torch(kind),
    )


def pack_for_cudnn(x: Any, w: Any, r: Any, b: Any) -> tuple[Any, Any]:
    """The input, and all weights in one array: both matrices, then both biases, with gates in PyTorch's order."""
    order, (size,) = np.argsort(GATES["LSTM"]), r.shape[-1:]
    parts = (part.reshape(4, size, -1)[order].reshape(-1) for part in (w[0], r[0], *jnp.split(b[0], 2)))
    return x, jnp.concatenate([*parts])


def in_cudnn(x: Any, weights: Any) -> Any:
    from jax.experimental import rnn

    steps, batch, size = x.shape
    zero, lengths = jnp.zeros((1, batch, size), x.dtype), jnp.full((batch,), steps, np.int32)
    sizes = {"input_size": size, "hidden_size": size, "num_layers": 1, "dropout": 0.0, "bidirectional": False}
    return rnn.lstm(x.swapaxes(0, 1), zero, zero, weights, lengths, *sizes.values())[0].swapaxes(0, 1)[:, None]


def scan_in_groups(count: int, step: Any, start: Any, steps: Any, *, reverse: bool) -> Any:
    return lax.scan(step, start, steps, reverse=reverse, unroll=count)


def variants(kind: str, work: Work) -> Mapping[str, Variant]:
    x = work.inputs[0]
    unrolled = {count: patched(recurrence, _scan=partial(scan_in_groups, count)) for count in UNROLLED}
    ways: dict[str, Variant] = {}
    if kind == "LSTM" and x.dtype == np.float32:  # the only type that JAX passes on
        ways["cuDNN"] = Variant(in_cudnn, arrange=pack_for_cudnn, needs=CUDA)
    if x.shape[-1] <= LARGEST:
        ways["one kernel"] = Variant(partial(run_all_steps, kind))
    ways |= {f"unrolled by {count}": Variant(work.dmljax, context=context) for count, context in unrolled.items()}
    ways["command buffers"] = Variant(work.dmljax, options=COMMANDS)
    ways["unrolled by 8, command buffers"] = Variant(work.dmljax, options=COMMANDS, context=unrolled[8])
    return ways


def race(kind: str, steps: int, batch: int, size: int, dtype: str) -> Race:
    spread = 1, *[size**-0.5] * 3
    return Race(partial(network, kind, steps, batch, size, dtype), partial(variants, kind), PLAIN[kind], spread)


RACES = {
    **{f"{kind} of 50 steps, 1x128, float32": race(kind, 50, 1, 128, "float32") for kind in GATES},
    **{
        f"{kind} of 256 steps, 32x1024, {dtype}": race(kind, 256, 32, 1024, dtype)
        for dtype in ("float32", "bfloat16")
        for kind in GATES
    },
}
SMALL_RACES = {f"{kind} of 20 steps, 18x16, float32": race(kind, 20, 18, 16, "float32") for kind in GATES}
