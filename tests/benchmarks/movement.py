"""The workloads of operators that index, move, reduce, tally and select: the same work for every rival."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import torch
from jax import lax
from workloads import SEED, OnnxNode, Work, as_numpy, numbers

import dmljax
from dmljax.directml import ReduceFunction

ROWS = (4096, 256)
F = torch.nn.functional


def few(rare: int) -> Any:
    """Numbers whose sums or products are exact: 0 and a few 1, or for products 1 and a few 2."""
    share = min(0.5, (8 if rare else 500) / max(ROWS))
    return (rare + (np.random.default_rng(SEED).random(ROWS) < share)).astype(np.float32)


# Indices


def nonzero_coordinates() -> Work:
    """A tenth of the elements are nonzero; the rows are the least power of two that holds the count."""
    x = numbers((16384, 64))
    present = np.random.default_rng(SEED).random(x.shape) < 0.1
    count = int(present.sum())
    size = 1 << (count - 1).bit_length()

    def comparable(result: Any) -> Any:
        if isinstance(result, dmljax.NonzeroCoordinates):
            assert int(result.count) == count
            return np.asarray(result.coordinates)[:count]
        rows = as_numpy(result)
        return rows.T if isinstance(result, onnxruntime.OrtValue) else rows[:count]

    return Work(
        (np.where(present, x, np.float32(0)),),
        dmljax=lambda x: dmljax.nonzero_coordinates(x, size=size),
        jax=lambda x: jnp.argwhere(x, size=size, fill_value=0),
        torch=torch.nonzero,
        onnx=OnnxNode("NonZero", lambda x: {"x": x}, {}),
        comparable=comparable,
    )


def one_hot() -> Work:
    rows, depth = 8192, 128
    indices = np.random.default_rng(SEED).integers(0, depth, (rows, 1)).astype(np.int32)

    def feeds(values: Any, indices: Any) -> dict[str, Any]:
        return {"indices": indices[:, 0].astype(np.int64), "depth": np.array(depth, np.int64), "values": values}

    return Work(
        (np.array([0, 1], np.float32), indices),
        dmljax=lambda values, indices: dmljax.one_hot(indices, values, axis=1, depth=depth),
        jax=lambda values, indices: jnp.where(jax.nn.one_hot(indices[:, 0], depth, dtype=bool), values[1], values[0]),
        torch=lambda values, indices: torch.zeros(rows, depth).scatter_(1, indices, 1),
        onnx=OnnxNode("OneHot", feeds, {"axis": -1}),
    )


def diagonal_triangle() -> Work:
    """Everything right of the main diagonal set to zero."""
    return Work(
        (numbers((1024, 1024)), np.array(0, np.float32)),
        dmljax=lambda x, value: dmljax.diagonal_matrix1(x, value, diagonal_fill_begin=1),
        jax=lambda x, value: jnp.tril(x),
        torch=lambda x, value: torch.tril(x),
        onnx=OnnxNode("Trilu", lambda x, value: {"x": x}, {"upper": 0}),
    )


def gathered_rows(function: Callable[..., Any]) -> Work:
    """Rows of 64 by random numbers."""
    x = numbers((16384, 64))
    return Work(
        (x, np.random.default_rng(SEED).integers(0, len(x), (len(x), 1)).astype(np.int32)),
        dmljax=function,
        jax=lambda x, i: x[i[:, 0]],
        torch=lambda x, i: x[i[:, 0]],
        onnx=OnnxNode("GatherND", lambda x, i: {"x": x, "indices": i.astype(np.int64)}, {}),
    )


def taken() -> Work:
    """Whole rows by the indices of one axis."""
    indices = np.random.default_rng(SEED).integers(0, ROWS[0], ROWS[0]).astype(np.int32)
    return Work(
        (numbers(ROWS), indices),
        dmljax=lambda x, i: dmljax.gather(x, i, axis=0),
        jax=lambda x, i: jnp.take(x, i, axis=0),
        torch=lambda x, i: torch.index_select(x, 0, i),
        onnx=OnnxNode("Gather", lambda x, i: {"x": x, "i": i.astype(np.int64)}, {"axis": 0}),
    )


def elements_of() -> Work:
    """An index for each element."""
    indices = np.random.default_rng(SEED).integers(0, ROWS[1], ROWS).astype(np.int32)
    return Work(
        (numbers(ROWS), indices),
        dmljax=lambda x, i: dmljax.gather_elements(x, i, axis=1),
        jax=lambda x, i: jnp.take_along_axis(x, i, axis=1),
        torch=lambda x, i: torch.gather(x, 1, i),
        onnx=OnnxNode("GatherElements", lambda x, i: {"x": x, "i": i.astype(np.int64)}, {"axis": 1}),
    )


def scattered() -> Work:
    """An update for each element of half of the columns, each to a different element."""
    order = np.argsort(np.random.default_rng(SEED).random(ROWS), axis=1).astype(np.int32)
    indices = order[:, : ROWS[1] // 2]
    return Work(
        (numbers(ROWS), indices, numbers(indices.shape)),
        dmljax=lambda x, i, u: dmljax.scatter(x, i, u, axis=1),
        jax=lambda x, i, u: jnp.put_along_axis(x, i, u, axis=1, inplace=False),
        torch=lambda x, i, u: torch.scatter(x, 1, i.long(), u),
        onnx=OnnxNode("ScatterElements", lambda x, i, u: {"x": x, "i": i.astype(np.int64), "u": u}, {"axis": 1}),
    )


# Reductions, tallies, selections


def largest(function: Any, of_jax: Any, of_torch: Any, node: str) -> Work:
    """The index of the largest or the smallest element of each row."""
    return Work(
        (numbers((8192, 128)),),
        dmljax=lambda x: function(x, axes=-1),
        jax=lambda x: of_jax(x, axis=-1, keepdims=True),
        torch=lambda x: of_torch(x, dim=-1, keepdim=True),
        onnx=OnnxNode(node, lambda x: {"x": x}, {"axis": -1, "keepdims": 1}),
    )


def hardmax(function: Callable[..., Any]) -> Work:
    return Work(
        (numbers((8192, 128)),),
        dmljax=function,
        jax=lambda x: jax.nn.one_hot(jnp.argmax(x, axis=-1), x.shape[-1], dtype=x.dtype),
        torch=lambda x: torch.zeros_like(x).scatter_(-1, x.argmax(-1, keepdim=True), 1),
        onnx=OnnxNode("Hardmax", lambda x: {"x": x}, {"axis": -1}),
    )


def summed() -> Work:
    return Work(
        (few(0),),
        dmljax=lambda x: dmljax.reduce(x, function=ReduceFunction.SUM, axes=1),
        jax=lambda x: jnp.sum(x, axis=1, keepdims=True),
        torch=lambda x: torch.sum(x, 1, keepdim=True),
    )


def running_sum() -> Work:
    return Work(
        (few(0),),
        dmljax=lambda x: dmljax.cumulative_summation(x, axis=1),
        jax=lambda x: jnp.cumsum(x, axis=1),
        torch=lambda x: torch.cumsum(x, 1),
    )


def running_product() -> Work:
    return Work(
        (few(1),),
        dmljax=lambda x: dmljax.cumulative_product(x, axis=1),
        jax=lambda x: jnp.cumprod(x, axis=1),
        torch=lambda x: torch.cumprod(x, 1),
    )


def top_k(function: Callable[..., Any]) -> Work:
    return Work(
        (np.random.default_rng(SEED).permutation(2**20).reshape(ROWS).astype(np.float32),),
        dmljax=partial(function, axis=1, k=10),
        jax=lambda x: lax.top_k(x, 10),
        torch=lambda x: torch.topk(x, 10, dim=1),
        comparable=lambda result: as_numpy(result[0]),
    )


def unfolded() -> Work:
    windows: dict[str, Any] = {"window_sizes": (3, 3), "start_padding": (1, 1), "end_padding": (1, 1)}

    def in_jax(x: Any) -> Any:
        patches = lax.conv_general_dilated_patches(x, (3, 3), (1, 1), ((1, 1), (1, 1)))
        return patches.reshape(*patches.shape[:2], -1)

    return Work(
        (numbers((1, 128, 32, 32)),),
        dmljax=lambda x: dmljax.unfold(x, **windows),
        jax=in_jax,
        torch=lambda x: F.unfold(x, 3, padding=1),
    )
