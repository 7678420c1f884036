"""Recurrent networks of one layer: the same work for every rival."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from workloads import SEED, OnnxNode, Work

import dmljax

GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}  # PyTorch's index of each of DirectML's gates


def reordered(name: str, parameter: Any) -> Any:
    """Puts the gates of a parameter of PyTorch's network into DirectML's order."""
    order = GATES[name]
    return parameter.reshape(len(order), -1, *parameter.shape[1:])[list(order)].reshape(parameter.shape)


def network(name: str, steps: int, batch: int, size: int) -> Work:
    """All states of a network with as many features in as out."""
    import torch

    input = np.random.default_rng(SEED).standard_normal((steps, batch, size)).astype(np.float32)
    rival = getattr(torch.nn, name)(size, size).requires_grad_(False)
    weight, recurrence, *biases = (reordered(name, x.numpy())[None] for x in rival.parameters())
    bias = np.concatenate(biases, 1)
    function: Any = {"LSTM": dmljax.lstm, "GRU": partial(dmljax.gru, linear_before_reset=True)}[name]
    attributes = {"hidden_size": size} | ({"linear_before_reset": 1} if name == "GRU" else {})
    return Work(
        (input, weight, recurrence, bias),
        dmljax=lambda x, w, r, b: function(x, w, r, b).sequence,
        jax=PLAIN[name],
        torch=lambda x, *_: rival(x)[0][:, None],
        onnx=OnnxNode(name, lambda x, w, r, b: {"x": x, "w": w, "r": r, "b": b}, attributes),
        tolerance=1e-4,
    )


def products(x: Any, w: Any, b: Any) -> Any:
    """The products of rows with the transposed weights, and their bias."""
    return jnp.matmul(x, w.T) + b


def plain_lstm(x: Any, w: Any, r: Any, b: Any, *, reverse: bool = False) -> Any:
    """An LSTM written straight from its equations."""
    size = r.shape[-1]

    def step(state: Any, x: Any) -> Any:
        hidden, cell = state
        i, o, f, c = jnp.split(x + products(hidden, r[0], b[0, 4 * size :]), 4, axis=1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(c)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = (jnp.zeros((x.shape[1], size), x.dtype),) * 2
    return lax.scan(step, start, products(x, w[0], b[0, : 4 * size]), reverse=reverse)[1][:, None]


def plain_gru(x: Any, w: Any, r: Any, b: Any, *, reverse: bool = False) -> Any:
    """A GRU written straight from its equations."""
    size = r.shape[-1]

    def step(hidden: Any, x: Any) -> Any:
        (xz, xr, xh), of_state = jnp.split(x, 3, axis=1), products(hidden, r[0], b[0, 3 * size :])
        hz, hr, hh = jnp.split(of_state, 3, axis=1)
        update = jax.nn.sigmoid(xz + hz)
        new = jnp.tanh(xh + jax.nn.sigmoid(xr + hr) * hh)
        hidden = (1 - update) * new + update * hidden
        return hidden, hidden

    start = jnp.zeros((x.shape[1], size), x.dtype)
    return lax.scan(step, start, products(x, w[0], b[0, : 3 * size]), reverse=reverse)[1][:, None]


PLAIN = {"LSTM": plain_lstm, "GRU": plain_gru}
