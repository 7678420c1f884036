"""The workloads of operators that move, reduce, tally and select: the same work for every rival."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from workloads import SEED, OnnxNode, Work, Workload, as_numpy, numbers

import dmljax
from dmljax.directml import PaddingMode, ReduceFunction

Shape = tuple[int, ...]
Build = Callable[[str, int], Work]


def few(dtype: str, shape: Shape, rare: int = 0) -> Any:
    """Numbers whose sums are exact in float16: 0, and here and there a 1; for products 1, and here and there a 2."""
    rng = np.random.default_rng(SEED)
    longest = max(shape)
    return (rare + (rng.random(shape) < min(0.5, (8 if rare else 500) / longest))).astype(dtype)


def along(elements: int) -> dict[str, tuple[Shape, int]]:
    """Shapes of that many elements, with the axis that is reduced or tallied."""
    return {
        "one row": ((elements,), 0),
        "rows of 256": ((elements // 256, 256), 1),
        "middle axis": ((max(1, elements // 8192), 64, 128), 1) if elements >= 8192 else ((1, 32, elements // 32), 1),
        "first axis": ((elements // 256, 256), 0),
    }


# Reductions

SUMS: dict[ReduceFunction, tuple[Any, Any, Any]] = {
    ReduceFunction.SUM: (jnp.sum, torch.sum, np.sum),
    ReduceFunction.MAX: (jnp.max, torch.amax, np.max),
    ReduceFunction.L1: (
        lambda x, **k: jnp.sum(jnp.abs(x), **k),
        lambda x, d, **k: x.abs().sum(d, **k),
        lambda x, **k: np.sum(np.abs(x), **k),
    ),
    ReduceFunction.L2: (
        lambda x, **k: jnp.sqrt(jnp.sum(x * x, **k)),
        lambda x, d, **k: torch.sqrt((x * x).sum(d, **k)),
        lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    ),
    ReduceFunction.LOG_SUM_EXP: (jax.nn.logsumexp, torch.logsumexp, lambda x, **k: np.log(np.sum(np.exp(x), **k))),
}


def reduction(function: ReduceFunction, shape: Shape, axis: int, dtype: str, elements: int) -> Work:
    of_jax, of_torch, of_numpy = SUMS[function]
    is_exact = function not in (ReduceFunction.L2, ReduceFunction.LOG_SUM_EXP)
    return Work(
        (few(dtype, shape) if is_exact else np.full(shape, 0.25, dtype),),
        dmljax=lambda x: dmljax.reduce(x, function=function, axes=axis),
        jax=lambda x: of_jax(x, axis=axis, keepdims=True).astype(x.dtype),
        torch=lambda x: of_torch(x, axis, keepdim=True).to(x.dtype),
        numpy=lambda x: of_numpy(x, axis=axis, keepdims=True).astype(x.dtype),
        comparable=as_numpy if is_exact else lambda result: as_numpy(result).astype(np.float64).round(0),
    )


# Tallies


def summation(shape: Shape, axis: int, dtype: str, elements: int) -> Work:
    return Work(
        (few(dtype, shape),),
        dmljax=lambda x: dmljax.cumulative_summation(x, axis=axis),
        jax=lambda x: jnp.cumsum(x, axis=axis),
        torch=lambda x: torch.cumsum(x, axis, dtype=x.dtype),
        numpy=lambda x: np.cumsum(x, axis=axis, dtype=x.dtype),
    )


def product(shape: Shape, axis: int, dtype: str, elements: int) -> Work:
    return Work(
        (few(dtype, shape, rare=1),),
        dmljax=lambda x: dmljax.cumulative_product(x, axis=axis),
        jax=lambda x: jnp.cumprod(x, axis=axis),
        torch=lambda x: torch.cumprod(x, axis, dtype=x.dtype),
        numpy=lambda x: np.cumprod(x, axis=axis, dtype=x.dtype),
    )


# Selections


def top_k(width: int, k: int, dtype: str, elements: int) -> Work:
    shape = (max(1, elements // width), width)
    values = lambda result: np.asarray(result[0])  # noqa: E731
    return Work(
        (np.random.default_rng(SEED).permutation(elements).reshape(shape).astype(dtype),),
        dmljax=lambda x: dmljax.top_k(x, axis=1, k=k),
        jax=lambda x: lax.top_k(x, k),
        torch=lambda x: torch.topk(x, k, dim=1),
        numpy=lambda x: (-np.partition(-x.astype(np.float64), range(k), axis=1)[:, :k],),
        comparable=lambda result: values(result).astype(np.float64),
    )


# Indices


def taken(shape: Shape, axis: int, count: int, dtype: str) -> Work:
    """Whole slices by the indices of one axis."""
    indices = np.random.default_rng(SEED).integers(0, shape[axis], count).astype(np.int32)
    return Work(
        (numbers(dtype, shape), indices),
        dmljax=lambda x, i: dmljax.gather(x, i, axis=axis),
        jax=lambda x, i: jnp.take(x, i, axis=axis),
        torch=lambda x, i: torch.index_select(x, axis, i),
        onnx=OnnxNode("Gather", lambda x, i: {"x": x, "i": i.astype(np.int64)}, {"axis": axis}),
        numpy=lambda x, i: np.take(x, i, axis=axis),
    )


def elements_of(axis: int, dtype: str, elements: int) -> Work:
    """An index for each element."""
    shape = (elements // 256, 256)
    indices = np.random.default_rng(SEED).integers(0, shape[axis], shape).astype(np.int32)
    return Work(
        (numbers(dtype, shape), indices),
        dmljax=lambda x, i: dmljax.gather_elements(x, i, axis=axis),
        jax=lambda x, i: jnp.take_along_axis(x, i, axis=axis),
        torch=lambda x, i: torch.gather(x, axis, i),
        onnx=OnnxNode("GatherElements", lambda x, i: {"x": x, "i": i.astype(np.int64)}, {"axis": axis}),
        numpy=lambda x, i: np.take_along_axis(x, i, axis=axis),
    )


def scattered(axis: int, dtype: str, elements: int) -> Work:
    """An update for each element of half of the rows or columns, each to a place of its own."""
    shape = (elements // 256, 256)
    size = shape[axis]
    order = np.argsort(np.random.default_rng(SEED).random(shape), axis=axis).astype(np.int32)
    indices = np.take(order, range(max(1, size // 2)), axis=axis)

    def in_numpy(x: Any, i: Any, updates: Any) -> Any:
        result = x.copy()
        np.put_along_axis(result, i, updates, axis=axis)
        return result

    return Work(
        (numbers(dtype, shape), indices, numbers(dtype, indices.shape)),
        dmljax=lambda x, i, u: dmljax.scatter(x, i, u, axis=axis),
        jax=lambda x, i, u: jnp.put_along_axis(x, i, u, axis=axis, inplace=False),
        torch=lambda x, i, u: torch.scatter(x, axis, i.long(), u.to(x.dtype)),
        onnx=OnnxNode("ScatterElements", lambda x, i, u: {"x": x, "i": i.astype(np.int64), "u": u}, {"axis": axis}),
        numpy=in_numpy,
    )


# Copies


def copy(
    of_dmljax: Any, of_jax: Any, of_torch: Any, of_numpy: Any, shape: Callable[[int], Shape], dtype: str, elements: int
) -> Work:
    return Work((numbers(dtype, shape(elements)),), dmljax=of_dmljax, jax=of_jax, torch=of_torch, numpy=of_numpy)


def _matrix(elements: int) -> Shape:
    return elements // 256, 256


def _image(elements: int) -> Shape:
    return 1, max(1, elements // 1024), 32, 32


_PADS: dict[str, Any] = {"start_padding": (1, 3), "end_padding": (2, 4)}
_WINDOWS: dict[str, Any] = {"window_sizes": (3, 3), "start_padding": (1, 1), "end_padding": (1, 1)}
COPIES: dict[str, tuple[Any, ...]] = {
    "slice1": (
        lambda x: dmljax.slice1(x, starts=(0, 1), sizes=(x.shape[0], 250), strides=(1, -2)),
        lambda x: x[:, 250:0:-2],
        lambda x: torch.flip(x, (1,))[:, 5:255:2].contiguous(),
        lambda x: np.ascontiguousarray(x[:, 250:0:-2]),
        _matrix,
    ),
    "join": (
        lambda x: dmljax.join([x, x], axis=1),
        lambda x: jnp.concatenate([x, x], axis=1),
        lambda x: torch.cat([x, x], 1),
        lambda x: np.concatenate([x, x], axis=1),
        _matrix,
    ),
    "tile": (
        lambda x: dmljax.tile(x, repeats=(1, 2)),
        lambda x: jnp.tile(x, (1, 2)),
        lambda x: x.repeat(1, 2),
        lambda x: np.tile(x, (1, 2)),
        _matrix,
    ),
    "space_to_depth1": (
        lambda x: dmljax.space_to_depth1(x, block_size=4),
        lambda x: x.reshape(1, -1, 8, 4, 8, 4).transpose(0, 3, 5, 1, 2, 4).reshape(1, -1, 8, 8),
        lambda x: x.reshape(1, -1, 8, 4, 8, 4).permute(0, 3, 5, 1, 2, 4).reshape(1, -1, 8, 8),
        lambda x: x.reshape(1, -1, 8, 4, 8, 4).transpose(0, 3, 5, 1, 2, 4).reshape(1, -1, 8, 8),
        _image,
    ),
    "padding, constant": (
        lambda x: dmljax.padding1(x, 0, **_PADS),
        lambda x: jnp.pad(x, ((1, 2), (3, 4))),
        lambda x: torch.nn.functional.pad(x, (3, 4, 1, 2)),
        lambda x: np.pad(x, ((1, 2), (3, 4))),
        _matrix,
    ),
    "padding, reflection": (
        lambda x: dmljax.padding1(x, 0, padding_mode=PaddingMode.REFLECTION, **_PADS),
        lambda x: jnp.pad(x, ((1, 2), (3, 4)), mode="reflect"),
        lambda x: torch.nn.functional.pad(x[None], (3, 4, 1, 2), mode="reflect")[0],
        lambda x: np.pad(x, ((1, 2), (3, 4)), mode="reflect"),
        _matrix,
    ),
    "cast, to int8": (
        lambda x: dmljax.cast(x / 16, dtype="int8"),
        lambda x: (x / 16).astype("int8"),
        lambda x: (x / 16).to(torch.int8),
        lambda x: (x / 16).astype("int8"),
        _matrix,
    ),
}


def unfolded(dtype: str, elements: int) -> Work:
    shape = _image(elements // 8)

    def in_jax(x: Any) -> Any:
        patches = lax.conv_general_dilated_patches(x, (3, 3), (1, 1), ((1, 1), (1, 1)))
        return patches.reshape(*patches.shape[:2], -1)

    of_torch = partial(torch.nn.functional.unfold, kernel_size=3, padding=1)
    return Work(
        (numbers(dtype, shape),),
        dmljax=lambda x: dmljax.unfold(x, **_WINDOWS),
        jax=in_jax,
        torch=of_torch,
        numpy=lambda x: of_torch(torch.from_numpy(x)).numpy(),
    )


# What is run


def more_workloads(dtypes: tuple[str, ...], sizes: tuple[int, ...]) -> Iterator[Workload]:
    """The workloads of these operators."""
    for dtype in dtypes:
        for elements in sizes:
            for operator, detail, build in _builds(dtype, elements):
                yield Workload(operator, dtype, elements, detail, partial(build, dtype, elements))


def _builds(dtype: str, elements: int) -> Iterator[tuple[str, str, Build]]:
    is_float = dtype != "int32"
    for detail, (shape, axis) in along(elements).items():
        for function in SUMS:
            if is_float or function in (ReduceFunction.SUM, ReduceFunction.MAX, ReduceFunction.L1):
                yield "reduce", f"{function.name}, {detail}", partial(reduction, function, shape, axis)
        yield "cumulative_summation", detail, partial(summation, shape, axis)
        yield "cumulative_product", detail, partial(product, shape, axis)
    if dtype != "float16":  # which has not as many different numbers
        for width in (256, 2**16):
            for k in (1, 10, 1000):
                if k < width <= elements:
                    yield "top_k", f"{k} of {width}", partial(top_k, width, k)
    yield "gather", "rows of 256", lambda dtype, elements: taken((4096, 256), 0, elements // 256, dtype)
    yield "gather", "single elements", lambda dtype, elements: taken((2**16,), 0, elements, dtype)
    for axis in (0, 1):
        yield "gather_elements", f"axis {axis}", partial(elements_of, axis)
        yield "scatter", f"axis {axis}", partial(scattered, axis)
    for name, functions in COPIES.items():
        operator, _, detail = name.partition(", ")
        if is_float or operator != "cast":
            yield operator, detail, partial(copy, *functions)
    if is_float:
        yield "unfold", "3 x 3", unfolded
