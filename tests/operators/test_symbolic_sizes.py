"""Functions with sizes left open in exports; test_every_operator.py has batches of any size.

A function works for open sizes, or refuses them with a constraint to write, with which it works.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import plain
from cases_recurrence import GATES
from families import ELEMENTWISE
from helpers import SAMPLED, assert_nearly_same_trees, refuses
from numpy.typing import NDArray

import dmljax
from dmljax.directml import OPERATORS, InterpolationMode, PaddingMode, ReduceFunction, Unsupported
from dmljax.errors import DmlError

Row = tuple[Callable[..., Any], str, tuple[Any, ...]]  # a function, the symbolic sizes of its arrays, and the arrays

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


def floats(*shape: int) -> NDArray[np.float32]:
    return RNG.random(shape, np.float32) + np.float32(0.5)


def whole(*shape: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 9, shape, np.uint8)


def padded_rows(x: Any, mode: PaddingMode) -> Any:
    return dmljax.padding1(x, padding_mode=mode, start_padding=(0, 9), end_padding=(0, 3))


def network(name: str) -> Row:
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


def with_past(*arrays: Any) -> Any:
    query, key, value, past_key, past_value, lengths = arrays
    past = {"past_key": past_key, "past_value": past_value, "past_sequence_lengths": lengths}
    heads: Any = {"query_head_count": 4, "key_value_head_count": 2}
    return tuple(dmljax.multihead_attention1(query, key, value, **past, **heads, has_present=True))


def convolution(dimensions: int, filters: str = "m, c", **options: Any) -> Row:
    space, sizes = ", ".join("hwd"[:dimensions]), (7, 6, 5)[:dimensions]
    channels = (4, 3) if filters == "m, c" else (3, 4)
    return (
        lambda x, w: dmljax.convolution(x, w, **options),
        f"n, c, {space}; {filters}{', 3' * dimensions}",
        (floats(2, 3, *sizes), floats(*channels, *(3 for _ in sizes))),
    )


def transposed(dimensions: int, **options: Any) -> Row:
    return convolution(dimensions, "c, m", direction="backward", **options)


def of_image(name: str, **options: Any) -> Row:
    function = getattr(dmljax, name)
    return lambda x: jax.tree.leaves(function(x, **options)), "n, c, h, w", (floats(2, 3, 7, 6),)


def doubled(name: str, **options: Any) -> Row:
    function = getattr(dmljax, name)
    sizes = lambda x: (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])  # noqa: E731
    return lambda x: function(x, output_sizes=sizes(x), **options), "n, c, h, w", (floats(2, 3, 4, 3),)


def normalized(name: str, images: int, channels: int, **options: Any) -> Row:
    function = getattr(dmljax, name)
    return (
        lambda *arrays: jax.tree.leaves(function(*arrays, **options)),
        "; ".join(["n, c, h, w"] * images + ["1, c, 1, 1"] * channels),
        (*(floats(2, 3, 4, 5) for _ in range(images)), *(floats(1, 3, 1, 1) for _ in range(channels))),
    )


def elementwise(name: str) -> Row:
    function, case = getattr(dmljax, name.lower()), ELEMENTWISE[name]
    arguments = inspect.signature(function).parameters.keys() - {"fused_activation", "scale_bias"}
    options = {key: plain(value) for key, value in case.attributes.items() if key in arguments}
    is_logical = re.fullmatch("ELEMENT_WISE_LOGICAL_(AND|OR|XOR|NOT)", name)
    dtype = np.uint32 if "_BIT_" in name else np.bool_ if is_logical else np.float32
    arrays = [floats(2, 3) / 2] * (2 if name == "ELEMENT_WISE_POW" else len(case.tensors))
    if "axes" in arguments:
        options["axes"] = (0, 1)
    return lambda *x: function(*x, **options), "; ".join(["a, b"] * len(arrays)), tuple(x.astype(dtype) for x in arrays)


WRAPPED: dict[str, Any] = {"start_padding": 1, "end_padding": 1}
STRIDED: dict[str, Any] = {"strides": 2, "start_padding": 1}

# Each function with the symbolic sizes of its arrays, and arrays to call it with
FUNCTIONS: dict[str, Row] = {
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
    "activation_hardmax": (dmljax.activation_hardmax, "a, b", (X,)),
    "activation_hardmax, wide": (
        dmljax.activation_hardmax,
        "3, 2*half",
        (RNG.integers(-9, 9, (3, 300)).astype(np.float32),),
    ),
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
    **{name.lower(): elementwise(name) for name in ELEMENTWISE},
    **{f"convolution {i}d": convolution(i, **WRAPPED) for i in (1, 2, 3)},
    **{f"convolution {i}d, strided": convolution(i, **STRIDED) for i in (1, 2, 3)},
    **{f"convolution {i}d, backward": transposed(i, **STRIDED) for i in (1, 2, 3)},
    "convolution, groups": (
        lambda x, w, b: dmljax.convolution(x, w, b, group_count=2),
        "n, 2*c, h, w; 2*m, c, 3, 3; 2*m",
        (floats(2, 4, 9, 8), floats(6, 2, 3, 3), floats(6)),
    ),
    "convolution, filters": (dmljax.convolution, "n, c, h, w; m, c, k, l", (floats(2, 4, 9, 8), floats(5, 4, 3, 2))),
    "convolution, patches": convolution(2, strides=3),
    "convolution_integer": (
        lambda x, z, w, v: dmljax.convolution_integer(x, z, w, v, **WRAPPED),
        "n, c, h, w; 1; m, c, 3, 3; m",
        (whole(2, 3, 9, 8), whole(1), whole(4, 3, 3, 3), whole(4)),
    ),
    "quantized_linear_convolution": (
        lambda x, z, w, s, v, b: dmljax.quantized_linear_convolution(x, 0.5, z, w, s, v, b, 2.0, z, **WRAPPED),
        "n, c, h, w; 1; m, c, 3, 3; m; m; m",
        (whole(2, 3, 9, 8), whole(1), whole(4, 3, 3, 3), floats(4), whole(4), whole(4).astype(np.int32)),
    ),
    "multihead_attention1": (
        with_past,
        "b, s, 4*d; b, s, 2*d; b, s, 2*d; b, 2, t, d; b, 2, t, d; b",
        (
            *(floats(2, 3, size) for size in (16, 8, 8)),
            *(floats(2, 2, 7, 4) for _ in range(2)),
            np.array([2, 3], np.int32),
        ),
    ),
    "element_wise_quantize_linear": (
        dmljax.element_wise_quantize_linear,
        "a, b; a, b; a, b",
        (floats(2, 3), floats(2, 3), whole(2, 3)),
    ),
    "element_wise_dequantize_linear": (
        dmljax.element_wise_dequantize_linear,
        "a, b; a, b; a, b",
        (whole(2, 3), floats(2, 3), whole(2, 3)),
    ),
    "element_wise_quantized_linear_add": (
        lambda a, s, z, b: dmljax.element_wise_quantized_linear_add(a, s, z, b, s, z, s, z),
        "a, b; a, b; a, b; a, b",
        (whole(2, 3), floats(2, 3), whole(2, 3), whole(2, 3)),
    ),
    "quantize": (dmljax.quantize, "2*a, 3*b; a, b; a, b", (floats(4, 9), floats(2, 3), whole(2, 3))),
    "dequantize, into blocks": (dmljax.dequantize, "a, b; 2, 3; 2, 3", (whole(4, 9), floats(2, 3), whole(2, 3))),
    "dynamic_quantize_linear": (lambda x: tuple(dmljax.dynamic_quantize_linear(x)), "a, b", (floats(2, 3),)),
    "matrix_multiply_integer_to_float": (
        dmljax.matrix_multiply_integer_to_float,
        "m, k; k, n; 1; n; 1; n; n",
        (whole(3, 4), whole(4, 5), floats(1), floats(5), whole(1), whole(5), floats(5)),
    ),
    "quantized_linear_matrix_multiply": (
        lambda a, b, s, z: dmljax.quantized_linear_matrix_multiply(a, s[:1], z[:1], b, s, z, s[:1], z[:1]),
        "m, k; k, n; n; n",
        (whole(3, 4), whole(4, 5), floats(5), whole(5)),
    ),
    "gemm": (dmljax.gemm, "m, k; k, n; m, n", (floats(3, 4), floats(4, 5), floats(3, 5))),
    "value_scale_2d": (
        lambda x, b: dmljax.value_scale_2d(x, 0.5, b),
        "n, c, h, w; c",
        (floats(2, 3, 4, 5), floats(3)),
    ),
    "cast": (lambda x: dmljax.cast(x, dtype="float16"), "a, b", (X,)),
    "element_wise_if": (dmljax.element_wise_if, "a, b; a, b; a, b", (X > 4, X, X)),
    "adam_optimizer": (
        lambda x, m, v, g: tuple(dmljax.adam_optimizer(x, m, v, g, np.float32(3))),
        "a, b; a, b; a, b; a, b",
        (X, X, X, X),
    ),
    "gather_nd1": (
        lambda x, i: dmljax.gather_nd1(x, i, batch_dimension_count=1),
        "a, b; a, c, 1",
        (X, INDICES[:, :, None]),
    ),
    "diagonal_matrix": (lambda x: dmljax.diagonal_matrix(x[0, 0], output_sizes=x.shape), "a, b", (X,)),
    "fill_value_constant": (lambda x: dmljax.fill_value_constant(x[0, 0], output_sizes=x.shape), "a, b", (X,)),
    "argmin": (lambda x: dmljax.argmin(x, axes=1), "a, b", (X,)),
    **{
        f"reduce, {function.name}": (
            lambda x, function=function: dmljax.reduce(x, function, axes=(0, 1)),
            "a, b, c",
            (ROWS**2,),
        )
        for function in ReduceFunction
    },
    "activation_hardmax1": (lambda x: dmljax.activation_hardmax1(x, axes=(0, 2)), "a, b, c", (ROWS,)),
    "top_k1": (lambda x: tuple(dmljax.top_k1(x, axis=1, k=2)), "a, b", (X,)),
    "cumulative_product, backward": (
        lambda x: dmljax.cumulative_product(x, axis=0, axis_direction="decreasing", has_exclusive_product=True),
        "a, b",
        (X,),
    ),
    "slice, all but one": (lambda x: dmljax.slice(x, starts=(1, 0), sizes=(x.shape[0] - 1, 3)), "a, b", (X,)),
    "slice1, of a part": (lambda x: dmljax.slice1(x, starts=(1, 1), sizes=(3, 2)), "a, b", (X,)),
    "slice_grad, in a whole": (
        lambda x: dmljax.slice_grad(x, starts=(0, 1), sizes=x.shape, output_sizes=(8, 9)),
        "a, b",
        (X,),
    ),
    "split, the rest": (lambda x: dmljax.split(x, sizes=(2, x.shape[1] - 2), axis=1), "a, b", (X,)),
    "split, of sizes": (lambda x: dmljax.split(x, sizes=(2, 4), axis=1), "a, b", (X,)),
    "tile": (lambda x: dmljax.tile(x, repeats=(2, 3)), "a, b", (X,)),
    "join": (lambda x, y: dmljax.join([x, y], axis=1), "a, b; a, c", (X, UPDATES)),
    "space_to_depth": (lambda x: dmljax.space_to_depth(x, block_size=2), "n, c, h, w", (floats(2, 3, 4, 6),)),
    "space_to_depth1": (lambda x: dmljax.space_to_depth1(x, block_size=2), "n, c, 2*h, 2*w", (floats(2, 3, 4, 6),)),
    "depth_to_space": (lambda x: dmljax.depth_to_space(x, block_size=2), "n, c, h, w", (floats(2, 8, 2, 3),)),
    "depth_to_space1": (lambda x: dmljax.depth_to_space1(x, block_size=2), "n, 4*c, h, w", (floats(2, 8, 2, 3),)),
    "padding": (lambda x: dmljax.padding(x, 7, **PADS), "a, b", (X,)),
    "padding1, to a multiple": (
        lambda x: dmljax.padding1(x, padding_mode=EDGE, start_padding=(0, 0), end_padding=(0, -x.shape[1] % 8)),
        "a, b",
        (X,),
    ),
    "unfold, strided": (
        lambda x: dmljax.unfold(x, window_sizes=(3, 2), dilations=2, **STRIDED),
        "n, c, h, w",
        (IMAGE,),
    ),
    "fold, of images": (
        lambda x, y: dmljax.fold(
            x,
            output_sizes=(x.shape[0], x.shape[1] // 9, 2 * y.shape[0], 2 * y.shape[1]),
            window_sizes=(3, 3),
            end_padding=1,
            **STRIDED,
        ),
        "n, 9*c, h*w; h, w",
        (floats(2, 18, 20), floats(4, 5)),
    ),
    **{
        f"{name}, strided": of_image(name, window_sizes=(3, 2), **STRIDED)
        for name in ("average_pooling", "average_pooling1", "lp_pooling", "lp_pooling1", "max_pooling")
    },
    "max_pooling1": of_image("max_pooling1", window_sizes=2),
    "max_pooling2, up": of_image("max_pooling2", window_sizes=(3, 2), ceil_mode=True, strides=2),
    "average_pooling_grad": doubled("average_pooling_grad", window_sizes=2, strides=2),
    "max_pooling_grad, strided": (
        lambda x, g: dmljax.max_pooling_grad(x, g, window_sizes=2, strides=2),
        "n, c, 2*h, 2*w; n, c, h, w",
        (floats(2, 3, 8, 6), floats(2, 3, 4, 3)),
    ),
    "max_unpooling": (
        lambda x, i: dmljax.max_unpooling(x, i, output_sizes=(*x.shape[:2], 2 * x.shape[2], x.shape[3])),
        "n, c, h, w; n, c, h, w",
        (floats(2, 3, 4, 3), whole(2, 3, 4, 3)),
    ),
    "quantized_linear_average_pooling": (
        lambda x: dmljax.quantized_linear_average_pooling(x, 0.5, None, 2.0, **WINDOWS),
        "n, c, h, w",
        (whole(2, 3, 7, 6),),
    ),
    "batch_normalization_grad": normalized("batch_normalization_grad", 2, 3),
    "mean_variance_normalization": normalized("mean_variance_normalization", 1, 2),
    "mean_variance_normalization1": normalized("mean_variance_normalization1", 3, 0, axes=(1, 2, 3)),
    "local_response_normalization_grad": normalized("local_response_normalization_grad", 2, 0, local_size=3),
    "roi_align1": (
        lambda x, roi, i: dmljax.roi_align1(x, roi, i, output_size=2, maximum_samples_per_output=2),
        "n, c, h, w; r, 4; r",
        (IMAGE, ROI, np.array([1, 0, 1])),
    ),
    "roi_align_grad": (
        lambda x, g, roi, i: tuple(dmljax.roi_align_grad(x, g, roi, i, of_roi=True)),
        "n, c, h, w; r, c, 2, 2; r, 4; r",
        (IMAGE, floats(3, 3, 2, 2), ROI, np.array([1, 0, 1])),
    ),
    "resample": of_image("resample", scales=(1, 1, 2, 0.5)),
    "resample2": of_image("resample2", scales=(1, 1, 2, 2), interpolation_mode=LINEAR),
    "resample3": of_image("resample3", scales=(1, 1, 2, 0.5), interpolation_mode=LINEAR),
    "resample_grad1": doubled("resample_grad1", interpolation_mode=LINEAR),
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
# Those whose derivatives have formulas of their own where sizes are open
DIFFERENTIATED = (
    "convolution 1d, strided",
    "cumulative_product",
    "cumulative_product, backward",
    "reduce, MULTIPLY",
    "split, the rest",
)


def test_every_function_has_a_row() -> None:
    names = {operator.removeprefix("DML_OPERATOR_").lower() for operator in OPERATORS}
    assert {name.partition(",")[0].partition(" ")[0] for name in FUNCTIONS} == names


def values_of(sizes: str, arrays: Sequence[Any]) -> dict[str, int]:
    """The values of the symbols that an array has as a size, or a multiple of it."""
    given = (
        pair
        for shape, x in zip(sizes.split("; "), arrays, strict=True)
        for pair in zip(shape.split(", "), x.shape, strict=True)
    )
    matches = ((re.fullmatch(r"(?:(\d+)\*)?([a-z]+)", symbolic), size) for symbolic, size in given)
    return {match[2]: size // int(match[1] or 1) for match, size in matches if match}


def exported(function: Callable[..., Any], sizes: str, dtypes: Sequence[Any]) -> tuple[Any, list[str]]:
    """The function exported for every platform, and the constraints on its open sizes that its refusals advise."""
    constraints: list[str] = []
    while True:
        scope = jax.export.SymbolicScope(constraints)
        shapes = [
            jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, scope=scope), dtype)
            for shape, dtype in zip(sizes.split("; "), dtypes, strict=True)
        ]
        try:
            return jax.export.export(jax.jit(function), platforms=["cpu", "cuda", "tpu"])(*shapes), constraints
        except DmlError as error:
            advised = re.search(r"symbolic_shape\(\.\.\., constraints=(\[.*?\])\)", str(error))
            new = json.loads(advised[1]) if advised else []
            if not {*new} - {*constraints}:
                raise
            constraints += new


@SAMPLED
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_may_be_symbolic(name: str) -> None:
    function, sizes, arrays = FUNCTIONS[name]
    actual, _ = exported(function, sizes, [array.dtype for array in arrays])
    again = jax.export.deserialize(actual.serialize())
    assert_nearly_same_trees(again.call(*arrays), jax.jit(function)(*arrays), absolute=1e-6)


def gradient_of(function: Callable[..., Any], arrays: Sequence[Any]) -> Callable[..., Any] | None:
    """The gradient of a sum of the function's squared floats by its floats, if it has any."""

    def of_floats(tree: Any) -> list[Any]:
        return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]

    places = tuple(i for i, array in enumerate(arrays) if array.dtype == np.float32)
    if not places or not of_floats(jax.eval_shape(function, *arrays)):
        return None
    return jax.grad(lambda *x: sum(jnp.sum(output * output) for output in of_floats(function(*x))), argnums=places)


@SAMPLED
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_of_open_sizes_are_exported(name: str) -> None:
    function, sizes, arrays = FUNCTIONS[name]
    gradient = gradient_of(function, arrays)
    assert gradient
    exported(gradient, sizes, [array.dtype for array in arrays])


def combinations() -> Iterator[tuple[str, str]]:
    """Every function with each of its symbols, and with all at once."""
    for name, (_, sizes, _) in FUNCTIONS.items():
        symbols = dict.fromkeys(re.findall("[a-z]+", sizes))
        yield from ((name, opened) for opened in (*symbols, *([" ".join(symbols)] if len(symbols) > 1 else [])))


@pytest.mark.full
@pytest.mark.parametrize("is_gradient", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize(("name", "opened"), [*combinations()])
def test_each_open_size_serves_several(name: str, opened: str, *, is_gradient: bool) -> None:
    function, sizes, arrays = FUNCTIONS[name]
    program = gradient_of(function, arrays) if is_gradient else function
    if program is None:
        pytest.skip("has no floats to differentiate")
    values = values_of(sizes, arrays)

    def with_values(**known: int) -> str:
        return re.sub("[a-z]+", lambda symbol: str(known.get(symbol[0], symbol[0])), sizes)

    if is_gradient and name == "convolution, filters" and {*opened} & {*"kl"}:
        pytest.skip("refused, as another test shows")
    fixed = {symbol: value for symbol, value in values.items() if symbol not in opened.split()}
    actual, _ = exported(program, with_values(**fixed), [array.dtype for array in arrays])
    for change in (lambda size: size, lambda size: 2 * size, lambda _: 1):
        values_of_size = values | {symbol: change(values[symbol]) for symbol in opened.split()}
        shapes = [tuple(map(eval, one.split(", "))) for one in with_values(**values_of_size).split("; ")]
        resized_arrays = [np.resize(array, shape) for array, shape in zip(arrays, shapes, strict=True)]
        try:
            expected = jax.jit(program)(*resized_arrays)
        except DmlError:  # these sizes are refused
            continue
        result = actual.call(*resized_arrays)
        assert jax.tree.map(jnp.shape, result) == jax.tree.map(jnp.shape, expected)
        for one, other in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=1e-4, atol=1e-4)


# Functions that need a constraint, the symbolic sizes, and the refusal that names it
REFUSED = {
    "a window larger than an image": (
        FUNCTIONS["convolution 1d, strided"],
        'convolution: input.shape[2]: open sizes do not decide whether h >= 2 (...constraints=["h >= 2"])',
    ),
    "a window of an open size": (
        FUNCTIONS["convolution, filters"],
        'convolution: input.shape[2]: ...constraints=["k - h <= 0"])',
    ),
    "sums that may exceed int32": (
        FUNCTIONS["quantized_linear_convolution"],
        'quantized_linear_convolution: ...constraints=["9*c <= 33025"])',
    ),
    "products that may exceed int32": (
        FUNCTIONS["quantized_linear_matrix_multiply"],
        'quantized_linear_matrix_multiply: a.shape[1]: ...constraints=["k <= 32768"])',
    ),
    "a part of a negative size": (FUNCTIONS["split, the rest"], 'split: input.shape[1]: ...constraints=["b >= 2"])'),
    "parts of another sum": (
        FUNCTIONS["split, of sizes"],
        'split: sizes must add up to b, the size of input along axis 1; got (2, 4) (...constraints=["b == 6"])',
    ),
    "a whole that is too small": (
        FUNCTIONS["slice_grad, in a whole"],
        'slice_grad: input_gradient.shape[0]: ...constraints=["a <= 8"])',
    ),
    "a size that is no multiple": (
        FUNCTIONS["space_to_depth"],
        'space_to_depth: input.shape[2] must be a multiple of 2; got h (...constraints=["mod(h, 2) == 0"])',
    ),
    "blocks of unequal sizes": (
        FUNCTIONS["dequantize, into blocks"],
        'must have sizes that divide those of input, (a, b)...constraints=["mod(a, 2) == 0","mod(b, 3) == 0"])',
    ),
    "sizes that differ": (
        (dmljax.element_wise_add, "a, b; c, b", (X, X)),
        'element_wise_add: a and b must have shapes that broadcast; got (a, b) and (c, b) (...constraints=["a == c"])',
    ),
    "rows that differ": (
        (lambda x, i: dmljax.gather_elements(x, i, axis=1), "a, b; c, 3", (X, INDICES)),
        'gather_elements: ...constraints=["c == a"])',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.gate(but=4)
def test_undecidable_sizes_are_refused_with_a_constraint_that_helps(name: str) -> None:
    (function, sizes, arrays), message = REFUSED[name]
    dtypes = [array.dtype for array in arrays]
    scope = jax.export.SymbolicScope()
    shapes = [jax.export.symbolic_shape(shape, scope=scope) for shape in sizes.split("; ")]
    with refuses(message):
        jax.eval_shape(function, *map(jax.ShapeDtypeStruct, shapes, dtypes))
    _, constraints = exported(function, sizes, dtypes)
    assert constraints


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_transposed_convolutions_need_filters_of_known_space(direction: Any) -> None:
    def convolution(image: Any, filter: Any) -> Any:
        return jnp.sum(dmljax.convolution(image, filter, direction=direction))

    scope = jax.export.SymbolicScope(["h >= 9", "k <= 9"])
    image, filter = (
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, scope=scope), np.float32)
        for shape in ("1, 2, h", "2, 2, k")
    )
    with refuses("convolution: filter must have spatial sizes that are known while tracing; got shape (2, 2, k)"):
        jax.eval_shape(jax.grad(convolution), image, filter)


def test_sizes_that_must_be_static_are_named_in_the_error() -> None:
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("a, b"), np.float32)
    with refuses("have a size along axis 0 that is known...or pass scales", Unsupported):
        jax.export.export(jax.jit(lambda x: dmljax.resample(x, output_sizes=(1, 2))))(shape)
