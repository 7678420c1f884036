"""Recurrent networks of one layer: the same work for every rival. `layers.py` times them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from workloads import SEED, OnnxNode, Work, Workload

import dmljax

STEPS, SIZES = (1, 32, 256), (64, 512)
# How many gates each has, and which one of PyTorch's rows is each of DirectML's.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}


def network(name: str, steps: int, batch: int, size: int) -> Work:
    """All states of a network with as many features in as out."""
    rng, order = np.random.default_rng(SEED), GATES[name]
    input = rng.standard_normal((steps, batch, size)).astype(np.float32)
    rival = getattr(torch.nn, name)(size, size).requires_grad_(False)
    parameters = [x.numpy().reshape(len(order), size, -1) for x in rival.parameters()]
    weight, recurrence, *biases = (x[list(order)].reshape(1, len(order) * size, -1) for x in parameters)
    bias = np.concatenate([x[..., 0] for x in biases], 1)
    function: Any = {"LSTM": dmljax.lstm, "GRU": partial(dmljax.gru, linear_before_reset=True)}[name]
    attributes = {"hidden_size": size} | ({"linear_before_reset": 1} if name == "GRU" else {})
    return Work(
        (input, weight, recurrence, bias),
        dmljax=lambda x, w, r, b: function(x, w, r, b).sequence,
        jax=partial(plain_lstm if name == "LSTM" else plain_gru, size),
        torch=lambda x, *_: rival(x)[0][:, None],
        onnx=OnnxNode(name, lambda x, w, r, b: {"x": x, "w": w, "r": r, "b": b}, attributes),
        numpy=lambda x, *_: rival(torch.from_numpy(x))[0][:, None].numpy(),
        tolerance=1e-4,
    )


def products(x: Any, w: Any, b: Any) -> Any:
    """The products of rows with the transposed weights, and their bias."""
    return jnp.matmul(x, w.T, precision="highest") + b


def plain_lstm(size: int, x: Any, w: Any, r: Any, b: Any) -> Any:
    """An LSTM as it is written down."""

    def step(state: Any, x: Any) -> Any:
        hidden, cell = state
        i, o, f, c = jnp.split(x + products(hidden, r[0], b[0, 4 * size :]), 4, axis=1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(c)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = (jnp.zeros((x.shape[1], size)),) * 2
    return lax.scan(step, start, products(x, w[0], b[0, : 4 * size]))[1][:, None]


def plain_gru(size: int, x: Any, w: Any, r: Any, b: Any) -> Any:
    """A GRU as it is written down."""

    def step(hidden: Any, x: Any) -> Any:
        (xz, xr, xh), of_state = jnp.split(x, 3, axis=1), products(hidden, r[0], b[0, 3 * size :])
        hz, hr, hh = jnp.split(of_state, 3, axis=1)
        update = jax.nn.sigmoid(xz + hz)
        new = jnp.tanh(xh + jax.nn.sigmoid(xr + hr) * hh)
        hidden = (1 - update) * new + update * hidden
        return hidden, hidden

    return lax.scan(step, jnp.zeros((x.shape[1], size)), products(x, w[0], b[0, : 3 * size]))[1][:, None]


def recurrence_workloads(batch: int) -> Iterator[Workload]:
    """Networks of both kinds, of several lengths and sizes."""
    for name in GATES:
        for steps in STEPS:
            for size in SIZES:
                detail = f"{batch} x {steps} steps of {size}"
                work = partial(network, name, steps, batch, size)
                yield Workload(name.lower(), "float32", steps * batch * size, detail, work)
