"""Functions with sizes left open in exports; test_every_operator.py has batches of any size."""

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_recurrence import GATES
from helpers import assert_nearly_same_trees, few_of, refuses

import dmljax
from dmljax.directml import InterpolationMode, PaddingMode, ReduceFunction, Unsupported

RNG = np.random.default_rng(0)
X = RNG.integers(1, 9, (5, 6)).astype(np.float32)
INDICES = RNG.integers(-9, 9, (5, 3)).astype(np.int8)
UPDATES = -RNG.integers(1, 9, (5, 3)).astype(np.float32)
ROWS = RNG.standard_normal((2, 3, 8)).astype(np.float32)
IMAGE = RNG.random((2, 3, 7, 6), np.float32)
ROI = np.array([[0.3, 1.1, 4.9, 6.2], [-4.2, 2.4, 2.7, 9.6], [5.1, 6.3, 0.7, 0.2]], np.float32)
ONE, OFF_ON = np.ones((1, 1, 1), np.float32), np.array([0, 1], np.float32)
LINEAR, EDGE = InterpolationMode.LINEAR, PaddingMode.EDGE
WINDOWS: dict[str, Any] = {"window_sizes": 2, "start_padding": 1}
PADS: dict[str, Any] = {"start_padding": (2, 0), "end_padding": (1, 3)}
REPEATING = [mode for mode in PaddingMode if mode is not PaddingMode.CONSTANT]
SEED = np.array([2**32 - 1, 5, 3, 7, 11, 13], np.uint32)


def padded_rows(x: Any, mode: PaddingMode) -> Any:
    return dmljax.padding1(x, padding_mode=mode, start_padding=(0, 9), end_padding=(0, 3))


def network(name: str) -> tuple[Callable[..., Any], str, tuple[Any, ...]]:
    gates, function = GATES[name], getattr(dmljax, name.lower())
    hidden = f"{gates}*hidden" if gates > 1 else "hidden"
    shapes = [(5, 3, 2), (1, 4 * gates, 2), (1, 4 * gates, 4)]
    return (
        lambda *arrays: tuple(function(*arrays)),
        f"steps, batch, features; 1, {hidden}, features; 1, {hidden}, hidden",
        tuple((RNG.integers(-8, 9, shape) / 8).astype(np.float32) for shape in shapes),
    )


def attended(query: Any, key: Any, value: Any, relative: Any) -> Any:
    return dmljax.multihead_attention(query, key, value, relative_position_bias=relative, head_count=2)


# Each function with the symbolic sizes of its arrays, and arrays to call it with
FUNCTIONS: dict[str, tuple[Callable[..., Any], str, tuple[Any, ...]]] = {
    "gather": (lambda x, i: dmljax.gather(x, i, axis=1), "a, b; a, 3", (X, INDICES)),
    "gather_elements": (lambda x, i: dmljax.gather_elements(x, i, axis=1), "a, b; a, 3", (X, INDICES)),
    "gather_nd": (lambda x, i: dmljax.gather_nd(x, i[:, :2]), "a, b; a, 3", (X, INDICES)),
    "gather_nd, rows": (lambda x, i: dmljax.gather_nd(x, i), "a, b; a, 1", (X, INDICES[:, :1])),
    "scatter": (lambda x, i, u: dmljax.scatter(x, i, u, axis=1), "a, b; a, 3; a, 3", (X, INDICES, UPDATES)),
    "scatter, down": (lambda i, u: dmljax.scatter(u, i, u, axis=0), "a, 3; a, 3", (INDICES, UPDATES)),
    "scatter_nd": (lambda x, i, u: dmljax.scatter_nd(x, i, u), "a, b; a, 2; a", (X, INDICES[:, :2], UPDATES[:, 0])),
    "scatter_nd, rows": (lambda x, i: dmljax.scatter_nd(x, i, x), "a, b; a, 1", (X, INDICES[:, :1])),
    "reverse_subsequences": (lambda x, i: dmljax.reverse_subsequences(x, i, axis=1), "a, b; a, 1", (X, INDICES[:, :1])),
    "one_hot": (lambda x, i: dmljax.one_hot(i, OFF_ON, axis=1, depth=x.shape[1]), "a, b; a, 1", (X, INDICES[:, :1])),
    "nonzero_coordinates": (dmljax.nonzero_coordinates, "a, b", (X // 4,)),
    "nonzero_coordinates, of a size": (
        lambda x: dmljax.nonzero_coordinates(x, size=2 * x.shape[0] + 1),
        "a, 6",
        (X // 4,),
    ),
    "diagonal_matrix1": (lambda x: dmljax.diagonal_matrix1(x, 2.0, diagonal_fill_begin=-1), "a, b", (X,)),
    "diagonal_matrix1, of sizes": (
        lambda x: dmljax.diagonal_matrix1(None, 2.0, output_sizes=(*x.shape, 3)),
        "a, b",
        (X,),
    ),
    "argmax": (lambda x: dmljax.argmax(x, axes=(0, 1)), "a, b", (X,)),
    "reduce": (lambda x: dmljax.reduce(x, function=ReduceFunction.MULTIPLY, axes=1), "a, b", (X,)),
    "top_k": (lambda x: dmljax.top_k(x, axis=1, k=2), "a, 6", (X,)),
    "top_k, of open columns": (lambda x: dmljax.top_k(x, axis=0, k=2), "5, b", (X,)),
    "hardmax": (dmljax.activation_hardmax, "a, b", (X,)),
    "hardmax, wide": (dmljax.activation_hardmax, "3, 2*half", (RNG.integers(-9, 9, (3, 300)).astype(np.float32),)),
    "cumulative_summation": (lambda x: dmljax.cumulative_summation(x, axis=0), "a, b", (X,)),
    "cumulative_product": (lambda x: dmljax.cumulative_product(x / 4, axis=1), "a, b", (X,)),
    "fill_value_sequence": (
        lambda x: dmljax.fill_value_sequence(x[0, 0], 3, output_sizes=(*x.shape, 2)),
        "a, b",
        (np.zeros((40, 100), np.float32),),
    ),
    "random_generator": (
        lambda state, like: tuple(dmljax.random_generator(state, output_sizes=(*like.shape, 3))),
        "6; a, b",
        (SEED, np.zeros((40, 100), np.float32)),
    ),
    "slice": (lambda x: dmljax.slice(x, starts=(0, 1), sizes=(x.shape[0], 3)), "a, 6", (X,)),
    "slice1": (lambda x: dmljax.slice1(x, starts=(0, 0), sizes=x.shape, strides=(-1, 2)), "a, 6", (X,)),
    "slice_grad": (
        lambda x: dmljax.slice_grad(x, starts=(0, 1), sizes=x.shape, output_sizes=(x.shape[0], 8)),
        "a, 6",
        (X,),
    ),
    "join, tile": (lambda x: dmljax.tile(dmljax.join([x, x], axis=1), repeats=(1, 2)), "a, 6", (X,)),
    "split": (lambda x: dmljax.split(x, sizes=(2, 4), axis=1), "a, 6", (X,)),
    "padding1": (lambda x: dmljax.padding1(x, 7, **PADS), "a, b", (X,)),
    "padding1, edge": (lambda x: dmljax.padding1(x, padding_mode=EDGE, **PADS), "a, b", (X,)),
    **{f"padding1, {mode.name}": (lambda x, mode=mode: padded_rows(x, mode), "a, b", (X,)) for mode in REPEATING},
    "unfold": (lambda x: dmljax.unfold(x.reshape(-1, 2, 3), window_sizes=(2,)), "a, 6", (X,)),
    "unfold, of any length": (
        lambda x: dmljax.unfold(x[None], window_sizes=(3,), start_padding=(1,), end_padding=(1,)),
        "5, b",
        (X,),
    ),
    "fold": (
        lambda x: dmljax.fold(x.reshape(-1, 2, 3), output_sizes=(x.shape[0], 1, 4), window_sizes=(2,)),
        "a, 6",
        (X,),
    ),
    "average_pooling1": (lambda x: dmljax.average_pooling1(x, dilations=2, **WINDOWS), "a, b, h, 6", (IMAGE,)),
    "lp_pooling": (lambda x: dmljax.lp_pooling(x, **WINDOWS), "a, b, h, 6", (IMAGE,)),
    "max_pooling2": (lambda x: dmljax.max_pooling2(x, **WINDOWS), "a, b, 7, 6", (IMAGE,)),
    "max_pooling_grad": (
        lambda x: dmljax.max_pooling_grad(x, dmljax.max_pooling(x, **WINDOWS), **WINDOWS),
        "2, 3, h, 6",
        (IMAGE,),
    ),
    "mean_variance_normalization2": (lambda x: dmljax.mean_variance_normalization2(x, axes=(0, 2)), "n, c, h", (ROWS,)),
    "batch_normalization": (lambda x: dmljax.batch_normalization(x, ONE, ONE, ONE, ONE), "n, c, h", (ROWS,)),
    "batch_normalization_training": (
        lambda x: dmljax.batch_normalization_training(x, ONE, ONE).variance,
        "n, c, h",
        (ROWS,),
    ),
    "batch_normalization_training_grad": (
        lambda x: dmljax.batch_normalization_training_grad(x, x, ONE, ONE, ONE).input,
        "n, c, h",
        (ROWS,),
    ),
    "lp_normalization": (lambda x: dmljax.lp_normalization(x, axis=1), "n, c, h", (ROWS,)),
    "local_response_normalization": (
        lambda x: dmljax.local_response_normalization(x, local_size=3),
        "n, c, h",
        (ROWS,),
    ),
    "matrix_multiply_integer": (
        dmljax.matrix_multiply_integer,
        "a, b; b, c; a; c",
        (INDICES, INDICES.T, INDICES[:, 0], INDICES[:, 1]),
    ),
    "dequantize": (
        dmljax.dequantize,
        "rows, 32*blocks; rows, blocks",
        (RNG.integers(0, 99, (2, 96), np.uint8), RNG.random((2, 3), np.float32)),
    ),
    "multihead_attention": (
        attended,
        "b, s, 8; b, k, 8; b, k, 6; b, 2, s, k",
        tuple(RNG.random(shape, np.float32) for shape in ((2, 3, 8), (2, 5, 8), (2, 5, 6), (2, 2, 3, 5))),
    ),
    **{name.lower(): network(name) for name in GATES},
    "roi_align": (
        lambda x, roi, i: dmljax.roi_align(x, roi, i, output_size=2),
        "n, c, h, w; r, 4; r",
        (IMAGE, ROI, np.array([1, 0, 1])),
    ),
    "roi_pooling": (
        lambda x, roi: dmljax.roi_pooling(x, jnp.pad(roi, [(0, 0), (1, 0)]), pooled_size=2),
        "n, c, h, w; r, 4",
        (IMAGE, ROI),
    ),
    "upsample_2d": (lambda x: dmljax.upsample_2d(x, scale_size=2), "n, c, 7, 6", (IMAGE,)),
    "resample1": (
        lambda x: dmljax.resample1(x, output_sizes=(*x.shape[:2], 2, 8), interpolation_mode=LINEAR),
        "n, c, 7, 6",
        (IMAGE,),
    ),
    "resample_grad": (
        lambda x: dmljax.resample_grad(x, output_sizes=(*x.shape[:2], 2, 8), interpolation_mode=LINEAR),
        "n, c, 7, 6",
        (IMAGE,),
    ),
}
FEW = ("gather_nd, rows", "one_hot", "random_generator", "padding1, edge", "lstm")


@pytest.mark.parametrize("name", few_of(FUNCTIONS, *FEW))
def test_sizes_may_be_symbolic(name: str) -> None:
    function, sizes, arrays = FUNCTIONS[name]
    constraints = ["h >= 4"] if " h," in sizes else []
    scope = jax.export.SymbolicScope(constraints)
    shapes = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(one, scope=scope), array.dtype)
        for one, array in zip(sizes.split("; "), arrays, strict=True)
    ]
    exported = jax.export.export(jax.jit(function), platforms=["cpu", "cuda", "tpu"])(*shapes)
    again = jax.export.deserialize(exported.serialize())
    assert_nearly_same_trees(again.call(*arrays), jax.jit(function)(*arrays), absolute=1e-6)


def test_sizes_that_must_be_static_are_named_in_the_error() -> None:
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("a, b"), np.float32)
    with refuses("have a size along axis 0 that is known...or pass scales", Unsupported):
        jax.export.export(jax.jit(lambda x: dmljax.resample(x, output_sizes=(1, 2))))(shape)
