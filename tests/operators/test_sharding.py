"""Arrays on a mesh of eight devices: data is exchanged only as expected, and results are right under every sharding."""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_softmax import log_softmax
from helpers import (
    FULL,
    GATE,
    SAMPLED,
    UNITS,
    assert_nearly_same_trees,
    assert_same_trees,
    at_once,
    check_shared_and_divided,
    collectives,
    few_of,
    mesh_of,
    units_off,
)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import dmljax
from dmljax import directml
from dmljax.directml import InterpolationMode, ReduceFunction

AXIS_TYPES = pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
EXPLICIT_FIRST = pytest.mark.parametrize(
    "axis_type", few_of([AxisType.Explicit, AxisType.Auto], AxisType.Explicit), ids=lambda kind: kind.name
)
RNG = np.random.default_rng(0)
CUBE = RNG.random((8, 16, 8), np.float32)
VALUES = np.arange(8, dtype=np.float32)
STATE = np.array([2**32 - 5, 2**32 - 1, 3, 4, 5, 6], np.uint32)


# Numbers of one magnitude whose means along any axes have few digits, so that sums are the same in any order.
SIGNS = np.where(np.indices((8, 16, 8)).sum(0) % 2 == 0, 2, -2).astype(np.float32)
NEAREST, LINEAR = InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR
REFLECTION = directml.PaddingMode.REFLECTION
WINDOWS: dict[str, Any] = {"window_sizes": (4,), "strides": (2,), "start_padding": (1,), "end_padding": (3,)}
FOLDED = RNG.random((8, 32, 9), np.float32)


FILTERS, OF_CHANNELS = np.round(RNG.random((8, 16, 3), np.float32) * 8), np.ones((16, 1, 4), np.float32)
BACKWARD = directml.ConvolutionDirection.BACKWARD
IN_BOTH: dict[str, Any] = {"direction": directml.RecurrentNetworkDirection.BIDIRECTIONAL}
RELUS = [directml.ActivationReluDesc()] * 3
OF_LSTM: dict[str, Any] = {
    "activations": RELUS,
    "weight": np.ones((2, 16, 6), np.float32),
    "recurrence": np.zeros((2, 16, 4), np.float32),
}


def of_rows(network: Any, output: str, **arguments: Any) -> Callable[..., Any]:
    """A network with the batch first in its inputs and outputs."""

    def run(x: Any, lengths: Any = None) -> Any:
        result = network(jnp.moveaxis(x, 2, 0), sequence_lengths=lengths, **arguments)
        return jnp.moveaxis(getattr(result, output), -2, 0)

    return run


def small(*shape: int) -> Any:
    return RNG.integers(-8, 8, shape).astype(np.int32)


# Regions with half-integer corners, whose sums are exact.
IMAGES, BOXES = small(8, 8, 8, 8).astype(np.float32), small(8, 4).astype(np.float32) / 2
TWICE: dict[str, Any] = {"minimum_samples_per_output": 2}
# Queries and keys of two heads whose scores are so far apart that at most two weights are not 0.
SHARP = 100 * np.eye(8, dtype=np.float32)[RNG.integers(0, 8, (8, 16, 2))].reshape(8, 16, 16)
OPPOSITE = 100 * np.eye(8, dtype=np.float32)[np.arange(256).reshape(8, 16, 2) // 2 % 8].reshape(8, 16, 16)


# Functions of natural ranks, with the arrays to call them with.
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "one_hot": (lambda i, v: dmljax.one_hot(i, v, axis=1, depth=8), (small(8, 1, 8), VALUES)),
    "activation_hardmax": (dmljax.activation_hardmax, (CUBE,)),
    "activation_hardmax1": (lambda x: dmljax.activation_hardmax1(x, axes=(0, 2)), (CUBE,)),
    "nonzero_coordinates": (dmljax.nonzero_coordinates, (CUBE > 0.5,)),
    "nonzero_coordinates, fewer rows": (lambda x: dmljax.nonzero_coordinates(x, size=11), (CUBE > 0.5,)),
    "diagonal_matrix1": (lambda x, v: dmljax.diagonal_matrix1(x, v, diagonal_fill_end=2), (CUBE, np.float32(3))),
    "diagonal_matrix1, bfloat16": (lambda x: dmljax.diagonal_matrix1(x, 3.0), (CUBE.astype(jnp.bfloat16),)),
    "random_generator": (lambda s: dmljax.random_generator(s, output_sizes=(8, 16)), (STATE,)),
    "adam_optimizer": (
        lambda x, g: dmljax.adam_optimizer(x, x, x, g, 1, 0.5, 0.5, 0.5, 0.0),
        (np.abs(SIGNS), np.abs(SIGNS)),
    ),
    "gather_nd": (dmljax.gather_nd, (CUBE, small(8, 8, 2))),
    "gather_nd1": (lambda x, i: dmljax.gather_nd1(x, i, batch_dimension_count=1), (CUBE, small(8, 8, 1))),
    "gather_nd1, bfloat16": (
        lambda x, i: dmljax.gather_nd1(x, i, batch_dimension_count=1),
        (CUBE.astype(jnp.bfloat16), small(8, 8, 1)),
    ),
    "gather": (lambda x, i: dmljax.gather(x, i, axis=1), (CUBE, small(4, 2))),
    "gather_elements": (lambda x, i: dmljax.gather_elements(x, i, axis=1), (CUBE, small(8, 4, 8))),
    "scatter": (
        lambda x, i, u: dmljax.scatter(x, i, u, axis=1),
        (CUBE, small(8, 64, 8), -RNG.random((8, 64, 8), np.float32)),
    ),
    "scatter, bfloat16": (
        lambda x, i: dmljax.scatter(x, i, -x, axis=2),
        (CUBE.astype(jnp.bfloat16), small(8, 16, 8)),
    ),
    "scatter_nd": (dmljax.scatter_nd, (CUBE, small(16, 8, 2), -RNG.random((16, 8, 8), np.float32))),
    "reverse_subsequences": (lambda x, n: dmljax.reverse_subsequences(x, n, axis=1), (CUBE, small(8, 1, 8) + 8)),
    "argmax": (lambda x: dmljax.argmax(x, axes=(0, 2)), (CUBE,)),
    "element_wise_divide": (dmljax.element_wise_divide, (CUBE, CUBE[::-1] + 1)),
    "element_wise_divide, a number": (lambda x: dmljax.element_wise_divide(x, 3.0), (CUBE,)),
    "element_wise_max, a row": (dmljax.element_wise_max, (CUBE, VALUES / 8)),
    "element_wise_modulus_floor, a matrix": (dmljax.element_wise_modulus_floor, (CUBE[0] - 0.5, CUBE)),
    "element_wise_if": (dmljax.element_wise_if, (CUBE > 0.5, CUBE, VALUES)),
    "element_wise_pow": (dmljax.element_wise_pow, (small(8, 16, 8), small(8))),
    "element_wise_clip": (lambda x: dmljax.element_wise_clip(x, 0.2, 0.7), (CUBE,)),
    "element_wise_quantize_linear": (dmljax.element_wise_quantize_linear, (CUBE, (VALUES + 1) / 8)),
    "quantize": (
        lambda x, s, z: dmljax.quantize(x * 90, s, z),
        (CUBE, RNG.random((4, 16, 2), np.float32) + 0.5, small(8, 8, 1).astype(np.int8)),
    ),
    "dequantize": (
        dmljax.dequantize,
        (small(8, 16, 8).astype(jnp.int4), RNG.random((8, 4, 8), np.float32), small(8, 8).astype(jnp.int4)),
    ),
    "dynamic_quantize_linear": (dmljax.dynamic_quantize_linear, (CUBE - 0.25,)),
    "activation_softmax1": (
        lambda x: dmljax.activation_softmax1(x, axes=(0, 2)),
        (np.where(small(8, 16, 8) > 0, 0, -np.inf).astype(np.float32),),
    ),
    "argmin": (lambda x: dmljax.argmin(x, axes=1), (CUBE,)),
    "cumulative_summation": (lambda x: dmljax.cumulative_summation(x, axis=1), (small(8, 16, 8),)),
    "cumulative_product": (lambda x: dmljax.cumulative_product(x, axis=1), (small(8, 16, 8),)),
    "top_k": (lambda x: dmljax.top_k(x, axis=1, k=5), (CUBE,)),
    **{
        f"reduce, {function.name}": (
            lambda x, function=function: dmljax.reduce(x, function=function, axes=(0, 2)),
            (x,),
        )
        for function, x in (
            (ReduceFunction.SUM, small(8, 16, 8).astype(np.float32)),
            (ReduceFunction.MULTIPLY, np.exp2(small(8, 16, 8) // 4).astype(np.float32)),
            (ReduceFunction.L2, np.where(small(8, 16, 8) > 0, 0, 2.0**100).astype(np.float32)),
            (ReduceFunction.MAX, CUBE),
        )
    },
    "mean_variance_normalization": (dmljax.mean_variance_normalization, (SIGNS,)),
    "mean_variance_normalization1": (
        lambda x, s: dmljax.mean_variance_normalization1(x, s, -s, 0.0, axes=(0, 2)),
        (SIGNS, np.exp2(small(1, 16, 1) / 4).astype(np.float32).round()),
    ),
    "batch_normalization": (
        lambda x, m: dmljax.batch_normalization(x, m, 4.0, 2.0, m, 0.0),
        (SIGNS, small(16, 1).astype(np.float32)),
    ),
    "batch_normalization_training": (
        lambda x, s: dmljax.batch_normalization_training(x, s, s, x, 0.0),
        (SIGNS, small(1, 16, 1).astype(np.float32)),
    ),
    "batch_normalization_training_grad": (
        lambda x, s: dmljax.batch_normalization_training_grad(x, x[::-1], 0 * s, 0 * s + 4, s, 0.0),
        (SIGNS, small(1, 16, 1).astype(np.float32)),
    ),
    "local_response_normalization": (
        lambda x: dmljax.local_response_normalization(x, 3.0, 1.0, 4.0, local_size=3),
        (SIGNS,),
    ),
    "local_response_normalization_grad": (
        lambda x: dmljax.local_response_normalization_grad(x, x, 4.0, 1.0, 4.0, local_size=4, cross_channel=False),
        (np.abs(SIGNS),),
    ),
    "lp_normalization": (lambda x: dmljax.lp_normalization(x, axis=1), (SIGNS,)),
    "cast": (lambda x: dmljax.cast(x * 300, dtype="uint8"), (CUBE,)),
    "cast, bfloat16": (lambda x: dmljax.cast(x, dtype="bfloat16"), (small(8, 16, 8),)),
    "slice": (lambda x: dmljax.slice(x, starts=(0, 3, 1), sizes=(8, 8, 3), strides=(1, 1, 2)), (CUBE,)),
    "slice1": (lambda x: dmljax.slice1(x, starts=(0, 2, 0), sizes=(8, 12, 8), strides=(-1, 3, 1)), (CUBE,)),
    "slice_grad": (
        lambda x: dmljax.slice_grad(x, starts=(0, 1, 0), sizes=(8, 31, 8), strides=(-1, 2, 1), output_sizes=(8, 32, 8)),
        (CUBE,),
    ),
    "split": (lambda x: dmljax.split(x, sizes=(4, 12), axis=1), (CUBE,)),
    "join": (lambda *x: dmljax.join(x, axis=1), (CUBE, CUBE[:, :8])),
    "join, bfloat16": (lambda *x: dmljax.join(x, axis=2), (CUBE.astype(jnp.bfloat16), CUBE.astype(jnp.bfloat16))),
    "tile": (lambda x: dmljax.tile(x, repeats=(2, 1, 3)), (CUBE,)),
    "space_to_depth": (lambda x: dmljax.space_to_depth(x, block_size=4), (CUBE,)),
    "depth_to_space": (lambda x: dmljax.depth_to_space(x, block_size=2), (CUBE,)),
    "padding": (lambda x, v: dmljax.padding(x, v, start_padding=(0, 3, -4), end_padding=(8, 5, 0)), (CUBE, VALUES[3])),
    "padding1, reflected": (
        lambda x: dmljax.padding1(x, padding_mode=REFLECTION, start_padding=(0, 3, 20), end_padding=(0, 5, 4)),
        (CUBE.astype(jnp.bfloat16),),
    ),
    "gemm": (
        lambda a, b, c: dmljax.gemm(a, b, c, 0.5, 2.0, transpose_a=True),
        tuple(small(*shape).astype(np.float32) for shape in ((8, 16, 8), (8, 16, 8), (8, 8))),
    ),
    "gemm, a matrix": (dmljax.gemm, tuple(small(*shape).astype(np.float32) for shape in ((16, 8), (8, 8, 16)))),
    "matrix_multiply_integer": (
        lambda a, b, z: dmljax.matrix_multiply_integer(a, b, z),
        (small(8, 16, 8).astype(np.uint8), small(8, 8, 8).astype(np.int8), small(16).astype(np.uint8)),
    ),
    "matrix_multiply_integer_to_float": (
        lambda a, b, s: dmljax.matrix_multiply_integer_to_float(a, b, s, 0.5),
        (small(8, 16, 8).astype(np.int16), small(8, 8).astype(np.int16), np.exp2(VALUES[:1])),
    ),
    "quantized_linear_matrix_multiply": (
        lambda a, b, s: dmljax.quantized_linear_matrix_multiply(a, 0.5, None, b, s, None, 2.0),
        (small(8, 16, 8).astype(np.int8), small(8, 8).astype(np.int8), np.exp2(VALUES)),
    ),
    "multihead_attention": (
        lambda q, k, v: dmljax.multihead_attention(q, k, v, head_count=2, scale=1.0, has_present=True),
        (SHARP, OPPOSITE, CUBE),
    ),
    "value_scale_2d": (lambda x, b: dmljax.value_scale_2d(x, 2.0, b), (CUBE[:, :8], VALUES)),
    "unfold": (lambda x: dmljax.unfold(x, **WINDOWS), (CUBE,)),
    "unfold, bfloat16": (lambda x: dmljax.unfold(x, **WINDOWS), (CUBE.astype(jnp.bfloat16),)),
    "fold": (lambda x: dmljax.fold(x, output_sizes=(8, 8, 16), **WINDOWS), (FOLDED,)),
    # Integers, so that sums are the same in any order.
    "convolution": (
        lambda x, w, b: dmljax.convolution(x, w, b, start_padding=1, end_padding=1),
        (np.round(CUBE * 8), FILTERS, VALUES),
    ),
    "convolution, backward": (
        lambda x, w: dmljax.convolution(x, w, direction=BACKWARD, strides=2, output_padding=1),
        (np.round(CUBE * 8), FILTERS.swapaxes(0, 1)),
    ),
    "convolution, of each channel": (
        lambda x, w: dmljax.convolution(x, w, group_count=16, start_padding=2, end_padding=1),
        (np.round(CUBE * 8), OF_CHANNELS),
    ),
    "quantized_linear_convolution": (
        lambda x, w, s, b: dmljax.quantized_linear_convolution(
            x, 0.5, None, w, s, None, b, 16.0, start_padding=1, end_padding=1
        ),
        (small(8, 16, 8).astype(np.int8), small(8, 16, 3).astype(np.int8), VALUES + 1, small(8)),
    ),
    # Integers and linear gates.
    "lstm": (
        lambda x, w, r, b, h, n: dmljax.lstm(x, w, r, b, h, h, n, activations=RELUS, **IN_BOTH),
        (
            *(small(2, 8, 4).astype(np.float32), small(2, 16, 4).astype(np.float32)),
            *(np.sign(small(2, 16, 4)).astype(np.float32), small(2, 32).astype(np.float32)),
            *(small(2, 8, 4).astype(np.float32), small(8)),
        ),
    ),
    "gru, the last states": (
        lambda x, w, h: dmljax.gru(x, w, 0 * w, hidden_init=h, activations=RELUS[:2], has_sequence=False),
        (small(4, 8, 8).astype(np.float32), np.zeros((1, 24, 8), np.float32), small(1, 8, 8).astype(np.float32)),
    ),
    "average_pooling": (lambda x: dmljax.average_pooling(x, **WINDOWS), (small(8, 16, 8).astype(np.float32),)),
    "lp_pooling": (lambda x: dmljax.lp_pooling(x, **WINDOWS), (CUBE,)),
    "max_pooling1": (lambda x: dmljax.max_pooling1(x, **WINDOWS), (small(8, 16, 8),)),
    "max_pooling_grad": (
        lambda x, g: dmljax.max_pooling_grad(x, g, **WINDOWS),
        (CUBE.astype(jnp.bfloat16), small(8, 16, 5).astype(jnp.bfloat16)),
    ),
    "max_unpooling": (
        lambda x, i: dmljax.max_unpooling(x, i, output_sizes=(8, 8, 4)),
        (CUBE, small(8, 16, 8) * 40),
    ),
    "upsample_2d": (lambda x: dmljax.upsample_2d(x, scale_size=2, interpolation_mode=LINEAR), (np.round(CUBE),)),
    "resample, bfloat16": (lambda x: dmljax.resample(x, scales=(1, 0.5, 1.5)), (CUBE.astype(jnp.bfloat16),)),
    "resample3": (
        lambda x: dmljax.resample3(x, scales=(1, 0.5, 2), interpolation_mode=LINEAR, antialiased=True),
        (np.round(CUBE),),
    ),
    "resample_grad": (
        lambda x: dmljax.resample_grad(x, output_sizes=(8, 8, 16), interpolation_mode=LINEAR),
        (np.round(CUBE),),
    ),
    **{
        f"roi_align, {function.name}": (
            lambda x, r, i, function=function: dmljax.roi_align(
                x, r, i, output_size=2, reduction_function=function, maximum_samples_per_output=1
            ),
            (IMAGES, BOXES, small(8)),
        )
        for function in (ReduceFunction.AVERAGE, ReduceFunction.MAX)
    },
    "roi_align_grad": (
        lambda x, g, r: dmljax.roi_align_grad(
            x, g, r, VALUES.astype(np.int32), of_roi=True, maximum_samples_per_output=2, **TWICE
        ),
        (IMAGES, small(8, 8, 2, 2).astype(np.float32), BOXES),
    ),
    "roi_pooling": (
        lambda x, r: dmljax.roi_pooling(x, jnp.concatenate([r[:, :1], r], axis=1), pooled_size=2),
        (IMAGES, BOXES),
    ),
}

NUMBERS = RNG.choice(np.array([-0.0, 0.0, 1e-45, -1e-45, -1e-40, 1e-39, 1.0, -1.0], np.float32), (8, 16, 8))
PADDED: dict[str, Any] = {"start_padding": (1, 3, 2), "end_padding": (2, 5, 4)}
# Copies of numbers that XLA turns into +0 when it adds up the parts of several devices.
COPIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "one_hot": (lambda i, v: dmljax.one_hot(i, v, axis=1, depth=8), (small(8, 1, 8), NUMBERS[0, 0])),
    "gather": (lambda x, i: dmljax.gather(x, i, axis=1), (NUMBERS, small(4, 2))),
    "gather_elements": (lambda x, i: dmljax.gather_elements(x, i, axis=1), (NUMBERS, small(8, 4, 8))),
    "gather_nd": (dmljax.gather_nd, (NUMBERS, small(8, 8, 2))),
    "gather_nd1": (lambda x, i: dmljax.gather_nd1(x, i, batch_dimension_count=1), (NUMBERS, small(8, 8, 1))),
    "scatter": (lambda x, i, u: dmljax.scatter(x, i, u, axis=1), (NUMBERS, small(8, 16, 8), -NUMBERS)),
    "reverse_subsequences": (
        lambda x, n: dmljax.reverse_subsequences(x, n, axis=1),
        (NUMBERS, np.full((8, 1, 8), 16, np.int32)),
    ),
    "slice1": (lambda x: dmljax.slice1(x, starts=(0, 2, 0), sizes=(8, 12, 8), strides=(-1, 3, 1)), (NUMBERS,)),
    "split": (lambda x: dmljax.split(x, sizes=(4, 12), axis=1), (NUMBERS,)),
    "join": (lambda *x: dmljax.join(x, axis=1), (NUMBERS, NUMBERS[:, :8])),
    "padding, reflected": (lambda x: dmljax.padding(x, padding_mode=REFLECTION, **PADDED), (NUMBERS,)),
    "padding, repeated": (lambda x: dmljax.padding(x, padding_mode=directml.PaddingMode.EDGE, **PADDED), (NUMBERS,)),
    "resample": (lambda x: dmljax.resample(x, scales=(1, 0.5, 1.5)), (NUMBERS,)),
    "top_k1": (lambda x: dmljax.top_k1(x, axis=1, k=5).values, (NUMBERS,)),
    "max_pooling": (lambda x: dmljax.max_pooling(x, **WINDOWS), (NUMBERS,)),
    "reduce": (lambda x: dmljax.reduce(x, function=ReduceFunction.MAX, axes=(0, 2)), (NUMBERS,)),
    "roi_align": (
        lambda x, r, i: dmljax.roi_align(
            x, r, i, output_size=2, interpolation_mode=NEAREST, reduction_function=ReduceFunction.MAX, **TWICE
        ),
        (NUMBERS.reshape(8, 2, 8, 8), BOXES, small(8)),
    ),
}


# A gather, a scatter, a sum along rows, an exchange, a product, windows, and a loop.
FEW_CALLS = (
    "gather_nd1",
    "scatter",
    "mean_variance_normalization",
    "nonzero_coordinates",
    "gemm",
    "convolution",
    "lstm",
)
EXCHANGING = (
    "lstm",
    "convolution",
    "nonzero_coordinates",
    "gather_nd1",
    "scatter",
    "cumulative_product",
    "top_k",
    "activation_softmax1",
    "roi_align_grad",
)

# Batches large enough for lowerings that the small ones of test_every_operator.py do not reach


ROWS = RNG.random((8, 6, 300), np.float32)
BATCHES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "random_generator, mapped": (
        jax.vmap(lambda s: dmljax.random_generator(s, output_sizes=(3, 5)).output),
        (np.tile(STATE, (8, 1)),),
    ),
    "gather_nd1": (lambda x, i: dmljax.gather_nd1(x, i, batch_dimension_count=1), (ROWS, small(8, 5, 2))),
    "scatter": (lambda x, i: dmljax.scatter(x, i, -x[:, :5], axis=1), (ROWS, small(8, 5, 300))),
    "argmax": (lambda x: dmljax.argmax(x, axes=-1), (ROWS,)),
    "cumulative_summation": (lambda x: dmljax.cumulative_summation(x, axis=2), (ROWS,)),
    "cumulative_product": (lambda x: dmljax.cumulative_product(x, axis=1), (ROWS,)),
    "reduce": (lambda x: dmljax.reduce(x, function=ReduceFunction.SUM, axes=2), (np.round(ROWS),)),
    "top_k": (lambda x: dmljax.top_k(x, axis=2, k=4).values, (ROWS,)),
    "mean_variance_normalization": (dmljax.mean_variance_normalization, (np.round(ROWS),)),
    "gemm": (
        lambda a: dmljax.gemm(a, np.ones((5, 300), np.float32), transpose_b=True),
        (small(8, 6, 300).astype(np.float32),),
    ),
    "multihead_attention": (
        lambda q, k, n: dmljax.multihead_attention1(q, k, k, past_sequence_lengths=n, scale=1.0, query_head_count=2),
        (SHARP, OPPOSITE, small(8) % 4),
    ),
    "convolution": (
        lambda x: dmljax.convolution(x, np.ones((4, 6, 5), np.float32), np.ones(4, np.float32), strides=2),
        (np.round(ROWS),),
    ),
    "convolution, of each channel": (
        lambda x: dmljax.convolution(x, np.ones((6, 1, 5), np.float32), group_count=6),
        (np.round(ROWS),),
    ),
    "lstm": (of_rows(dmljax.lstm, "sequence", **OF_LSTM, **IN_BOTH), (np.round(ROWS[:, :, :7]), small(8))),
    "average_pooling": (lambda x: dmljax.average_pooling(x, **WINDOWS), (np.round(ROWS),)),
    "roi_align": (
        lambda r, i: dmljax.roi_align(IMAGES, r, i, output_size=2, maximum_samples_per_output=2, **TWICE),
        (BOXES, small(8)),
    ),
}


@FULL
@EXPLICIT_FIRST
@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_of_any_operator_needs_no_exchange(name: str, axis_type: AxisType) -> None:
    function, arrays = BATCHES[name]
    mesh = mesh_of(axis_type, batch=8)
    sharded = [jax.device_put(array, NamedSharding(mesh, P("batch"))) for array in arrays]
    compiled = jax.jit(function).lower(*sharded).compile()
    assert collectives(compiled) == []
    result = compiled(*sharded)
    assert_alike = assert_nearly_same_trees if name == "mean_variance_normalization" else assert_same_trees
    assert_alike(result, function(*arrays))
    assert result.sharding.spec[0] == "batch"


@GATE
def test_divided_regions_of_a_constant_image_are_those_of_the_image() -> None:
    align = lambda boxes, numbers: dmljax.roi_align(IMAGES, boxes, numbers, output_size=2)  # noqa: E731
    arrays = BOXES, np.arange(8, dtype=np.int32)
    mesh = mesh_of(AxisType.Explicit, batch=8)
    sharded = [jax.device_put(array, NamedSharding(mesh, P("batch"))) for array in arrays]
    assert_same_trees(jax.jit(align)(*sharded), align(*arrays))


@FULL
def test_a_sharded_convolution_exchanges_results_across_channels_and_halos_across_heights() -> None:
    mesh = mesh_of(AxisType.Auto, devices=8)

    def exchanged(image: P, filters: P) -> list[tuple[str, int]]:
        shapes = ((16, 64, 64, 64), image), ((64, 64, 3, 3), filters)
        arrays = [jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec)) for shape, spec in shapes]
        convolution = functools.partial(dmljax.convolution, start_padding=1, end_padding=1)
        return collectives(jax.jit(convolution).lower(*arrays).compile())

    assert exchanged(P("devices"), P()) == []
    assert exchanged(P(None, "devices"), P(None, "devices")) == [("all-reduce", 4 * 16 * 64 * 64 * 64)]
    rows = ("collective-permute", 4 * 16 * 64 * 64)
    assert exchanged(P(None, None, "devices"), P()) == [rows, rows]


# Any sharding


def shardings(shape: tuple[int, ...]) -> Iterator[P]:
    """Every way to shard one or two dimensions of `shape` over a mesh of 4 x 2 devices that divides them."""
    count: dict[Any, int] = {None: 1, "rows": 4, "columns": 2, ("rows", "columns"): 8}
    for axes in itertools.product(count, repeat=len(shape)):
        names = [name for axis in axes if axis for name in ((axis,) if isinstance(axis, str) else axis)]
        if len(set(names)) == len(names) and all(
            size % count[axis] == 0 for size, axis in zip(shape, axes, strict=True)
        ):
            yield P(*axes)


def chosen_shardings(arrays: tuple[Any, ...], count: int) -> list[tuple[P, ...]]:
    """A fixed choice from all combinations."""
    every = list(itertools.product(*(shardings(np.shape(array)) for array in arrays)))
    rng = np.random.default_rng(1)
    return [every[i] for i in sorted(rng.choice(len(every), min(count, len(every)), replace=False))]


def placed(name: str, mesh: jax.sharding.Mesh, specs: tuple[P, ...], calls: Any = CALLS) -> list[Any]:
    """The arguments of a function, sharded by `specs`."""
    return [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(calls[name][1], specs, strict=True)]


def comes_through(name: str, mesh: jax.sharding.Mesh, specs: tuple[P, ...]) -> bool:
    """Whether XLA partitions `specs`: for batches on different axes it may fail even on JAX's own idiom.

    On an explicit mesh, dmljax first aligns the batches of both operands.
    """
    batches = {spec[0] for spec in specs if spec and spec[0]}
    if len(batches) > 1 and name.startswith("gather_nd1") and mesh.axis_types[0] is AxisType.Auto:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda x, i: jnp.take_along_axis(x, i, axis=1)).lower(*placed(name, mesh, specs)).compile()
            return True
        return False
    return True


@SAMPLED
@pytest.mark.parametrize(
    ("name", "axis_type"),
    [
        *((name, AxisType.Explicit) for name in CALLS),
        # XLA shards these itself: a few, and those that exchange data.
        *((name, AxisType.Auto) for name in sorted({*FEW_CALLS, *EXCHANGING})),
    ],
    ids=str,
)
def test_is_right_under_any_sharding(name: str, axis_type: AxisType) -> None:
    function, arrays = CALLS[name]
    mesh = mesh_of(axis_type, rows=4, columns=2)
    shardings = [specs for specs in chosen_shardings(arrays, 3) if comes_through(name, mesh, specs)]
    expected = function(*arrays)
    for result in at_once(lambda operands: function(*operands), [placed(name, mesh, specs) for specs in shardings]):
        assert_same_trees(result, expected)


@FULL
@AXIS_TYPES
@pytest.mark.parametrize("name", COPIES)
def test_copies_keep_every_bit_under_any_sharding(name: str, axis_type: AxisType) -> None:
    function, arrays = COPIES[name]
    mesh = mesh_of(axis_type, rows=4, columns=2)
    shardings = [specs for specs in chosen_shardings(arrays, 5) if comes_through(name, mesh, specs)]
    expected = function(*arrays)
    for result in at_once(
        lambda operands: function(*operands), [placed(name, mesh, specs, COPIES) for specs in shardings]
    ):
        assert_same_trees(result, expected)


def test_set_mesh_keeps_bits_even_without_array_shardings() -> None:
    mesh = mesh_of(AxisType.Auto, rows=8)
    sharded = jax.jit(lambda x: dmljax.gather(x, np.arange(16)[::-1], axis=1), in_shardings=P(None, "rows"))
    with jax.set_mesh(mesh):
        assert_same_trees(sharded(NUMBERS), NUMBERS[:, ::-1])


@SAMPLED
@pytest.mark.parametrize(
    ("name", "axis_type"),
    [
        # Eager calls differ from jitted ones in one place.
        *((name, AxisType.Explicit) for name in FEW_CALLS),
        *((name, AxisType.Auto) for name in ("nonzero_coordinates", "gather_nd1", "activation_softmax1")),
    ],
    ids=str,
)
def test_eager_calls_under_set_mesh_are_right(name: str, axis_type: AxisType) -> None:
    function, arrays = CALLS[name]
    expected = function(*arrays)
    mesh = mesh_of(axis_type, rows=4, columns=2)
    specs = next(specs for specs in chosen_shardings(arrays, 8) if comes_through(name, mesh, specs))
    with jax.set_mesh(mesh):
        assert_same_trees(function(*placed(name, mesh, specs)), expected)


@pytest.mark.parametrize("name", ["gather_nd1", "gather_nd1, bfloat16"])
@pytest.mark.gate(but=1)
def test_batches_on_different_axes_are_resharded_to_match(name: str) -> None:
    specs = P("rows", None, "columns"), P("columns", "rows", None)
    function, arrays = CALLS[name]
    for axis_type in (AxisType.Explicit, AxisType.Auto):
        mesh = mesh_of(axis_type, rows=4, columns=2)
        if comes_through(name, mesh, specs):
            assert_same_trees(jax.jit(function)(*placed(name, mesh, specs)), function(*arrays))


@SAMPLED
@AXIS_TYPES
@pytest.mark.parametrize("axes", [(None, 0), (0, None)], ids=str)
def test_a_sharded_batch_may_share_the_other_operand(axes: Any, axis_type: AxisType) -> None:
    table, indices = CUBE[0], small(8, 5, 1)
    arrays = [CUBE if axes[0] == 0 else table, indices if axes[1] == 0 else indices[0]]
    mesh = mesh_of(axis_type, batch=8)
    sharded = [
        jax.device_put(array, NamedSharding(mesh, P("batch"))) if axis == 0 else array
        for array, axis in zip(arrays, axes, strict=True)
    ]
    function = jax.vmap(dmljax.gather_nd, in_axes=axes)
    compiled = jax.jit(function).lower(*sharded).compile()
    assert collectives(compiled) == []
    assert_same_trees(compiled(*sharded), function(*arrays))


def test_a_mesh_may_be_partly_manual() -> None:
    mesh = mesh_of(AxisType.Explicit, rows=4, columns=2)
    inputs = jax.device_put(CUBE, NamedSharding(mesh, P("rows", None, "columns")))
    indices = jax.device_put(small(8, 6, 1), NamedSharding(mesh, P("rows")))
    gather = jax.vmap(dmljax.gather_nd)
    by_rows = jax.shard_map(gather, mesh=mesh, in_specs=P("rows"), out_specs=P("rows"), axis_names={"rows"})
    assert_same_trees(jax.jit(by_rows)(inputs, indices), gather(CUBE, jax.device_get(indices)))


@FULL
def test_results_on_an_explicit_mesh_carry_their_sharding() -> None:
    mesh = mesh_of(AxisType.Explicit, rows=4, columns=2)
    place = lambda array, *spec: jax.device_put(array, NamedSharding(mesh, P(*spec)))  # noqa: E731
    input, indices = place(CUBE, "rows", None, "columns"), place(small(8, 8, 1), None, "columns")
    gathered = dmljax.gather_nd1(input, indices, batch_dimension_count=1)
    # The batch as in either operand, then the indices' dimensions, then the block's, without using an axis twice.
    assert jax.typeof(gathered).sharding.spec == P("rows", "columns", None)
    count, coordinates = dmljax.nonzero_coordinates(place(CUBE, "rows"))
    assert (jax.typeof(count).sharding.spec, jax.typeof(coordinates).sharding.spec) == (P(), P("rows", None))
    rows_and_columns = place(CUBE, None, "rows", "columns")
    for result in (dmljax.activation_hardmax(rows_and_columns), dmljax.diagonal_matrix1(rows_and_columns, 0.0)):
        assert jax.typeof(result).sharding.spec == P(None, "rows", "columns")
    _, few = dmljax.nonzero_coordinates(place(CUBE, "rows"), size=11)
    assert jax.typeof(few).sharding.spec == P(None, None)  # 11 rows do not divide among 4


@FULL
@AXIS_TYPES
def test_gradients_work_on_a_mesh(axis_type: AxisType) -> None:
    mesh = mesh_of(axis_type, rows=4, columns=2)
    weights = RNG.random((8, 8, 8), np.float32)

    def loss(input: Any, indices: Any, weights: Any) -> Any:
        gathered = dmljax.gather_nd1(input, indices, batch_dimension_count=1)
        return jnp.sum(dmljax.diagonal_matrix1(gathered, 2.0, diagonal_fill_end=3) * weights)

    indices = small(8, 8, 1)
    expected = jax.grad(loss)(CUBE, indices, weights)
    sharded = [jax.device_put(array, NamedSharding(mesh, P("rows"))) for array in (CUBE, indices, weights)]
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(*sharded), expected, rtol=1e-6)


@GATE
def test_products_have_gradients_on_an_explicit_mesh() -> None:
    grad = jax.grad(lambda x: jnp.sum(dmljax.reduce(x, "multiply", axes=(0, 2))))
    numbers = CUBE + 0.5
    sharded = jax.device_put(numbers, NamedSharding(mesh_of(AxisType.Explicit, rows=8), P(None, "rows")))
    np.testing.assert_allclose(jax.jit(grad)(sharded), grad(numbers), rtol=1e-4)


def row(*shape: int) -> Any:
    return RNG.random(shape, np.float32) + 0.5


# Functions of a batch and of floats that all devices share, which broadcast to it.
BROADCASTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "element_wise_add": (dmljax.element_wise_add, (CUBE, row(8))),
    "element_wise_divide, both ways": (
        lambda x, a, b: dmljax.element_wise_divide(a, dmljax.element_wise_divide(x + 1, b)),
        (CUBE, row(16, 1), row(1, 16, 8)),
    ),
    "element_wise_max": (dmljax.element_wise_max, (CUBE, row(1))),
    "element_wise_if": (lambda x, a, b: dmljax.element_wise_if(x > 0.5, a, b), (CUBE, row(8), row(16, 1))),
    "element_wise_pow": (dmljax.element_wise_pow, (CUBE + 1, row(8))),
    "element_wise_clip": (dmljax.element_wise_clip, (CUBE, np.float32(0.2), np.float32(0.7))),
    "element_wise_dequantize_linear": (dmljax.element_wise_dequantize_linear, (small(8, 16, 8), row(16, 1))),
    "dequantize, blocks": (dmljax.dequantize, (small(8, 16, 8), row(8, 4, 8))),
    "activation_linear": (dmljax.activation_linear, (CUBE, np.float32(0.2), np.float32(0.7))),
    "activation_parameterized_relu": (dmljax.activation_parameterized_relu, (CUBE - 0.5, row(16, 1))),
    # In JAX 0.8, nested calls have no derivative by both the mean and the scale.
    "batch_normalization": (
        lambda x, scale, bias: dmljax.batch_normalization(x, 0.5, 1.0, scale, bias),
        (CUBE, row(16), row(16)),
    ),
    "mean_variance_normalization1": (
        lambda x, scale, bias: dmljax.mean_variance_normalization1(x, scale, bias, axes=2),
        (CUBE, row(8), row(8)),
    ),
    "gemm": (dmljax.gemm, (CUBE, row(8, 8), row(8))),
    "convolution": (dmljax.convolution, (CUBE, row(4, 16, 3), row(4))),
    "value_scale_2d": (dmljax.value_scale_2d, (CUBE[:, :8], np.float32(2), row(8))),
}


@pytest.mark.parametrize("name", BROADCASTS)
@pytest.mark.gate(but=3)
def test_devices_sum_the_gradients_of_what_they_share_before_they_exchange_them(name: str) -> None:
    function, (batch, *shared) = BROADCASTS[name]
    mesh = mesh_of(AxisType.Explicit, batch=8, model=1)
    x = jax.device_put(batch, NamedSharding(mesh, P("batch")))
    place = NamedSharding(mesh, P())
    others = jax.device_put(shared, place)
    grad = jax.grad(lambda shared, x: jnp.sum(function(x, *shared) ** 2))
    compiled = jax.jit(grad, out_shardings=place).lower(others, x).compile()
    assert 0 < sum(size for _, size in collectives(compiled)) <= sum(x.nbytes for x in shared)
    for gradient, whole in zip(compiled(others, x), grad(shared, batch), strict=True):
        np.testing.assert_allclose(gradient, whole, rtol=1e-5)


# Nonzero


def naive_nonzero(input: Any) -> Any:
    """A sum over all elements and a scatter of each, as in a lowering that does not pack bits into words."""
    flat = (input != 0).reshape(-1)
    numbers = jnp.cumsum(flat, dtype=jnp.int32)
    row = jnp.where(flat, numbers - 1, flat.size)
    element = jnp.zeros(flat.size + 1, jnp.int32).at[row].set(jnp.arange(flat.size, dtype=jnp.int32))[:-1]
    return numbers[-1], jnp.stack([element // input.shape[1], element % input.shape[1]], axis=1)


@FULL
@pytest.mark.parametrize("shape", [(1024, 64), (65536, 1), (512, 133)])
def test_nonzero_exchanges_only_bits(shape: tuple[int, int]) -> None:
    input = (RNG.random(shape) < 0.3).astype(np.float32)
    exchanged = {}
    for axis_type in (AxisType.Auto, AxisType.Explicit):
        mesh = mesh_of(axis_type, batch=8)
        sharded = jax.device_put(input, NamedSharding(mesh, P("batch")))
        count_and_rows: Any = dmljax.NonzeroCoordinates(*(NamedSharding(mesh, P(*axes)) for axes in ([], ["batch"])))  # type: ignore[arg-type]
        compiled = jax.jit(dmljax.nonzero_coordinates, out_shardings=count_and_rows).lower(sharded).compile()
        exchanged[axis_type] = sum(size for _, size in collectives(compiled))
        memory: Any = compiled.memory_analysis()
        assert memory.temp_size_in_bytes < input.nbytes, "more than the whole input on one device"
        assert_same_trees(compiled(sharded), dmljax.nonzero_coordinates(input))
        assert compiled(sharded).coordinates.addressable_data(0).shape == (math.prod(shape) // 8, 2)
    sharded = jax.device_put(input, NamedSharding(mesh_of(AxisType.Auto, batch=8), P("batch")))
    naive = sum(size for _, size in collectives(jax.jit(naive_nonzero).lower(sharded).compile()))
    print(f"{shape}: {naive} bytes naively, {exchanged}; the input has {input.nbytes}")
    assert naive >= 2 * input.nbytes
    # A bit for 32; runs of 133 are padded to words, and groups of 32 rows that do not divide among 8 devices exchange
    # another bit per row.
    assert exchanged[AxisType.Explicit] <= input.nbytes / (14 if shape == (512, 133) else 30)
    assert exchanged[AxisType.Auto] <= input.nbytes / 3


@FULL
@EXPLICIT_FIRST
@pytest.mark.parametrize("rows", [300, 4096])
def test_nonzero_of_many_rows_may_be_called_inside_shard_map_on_one_device(rows: int, axis_type: AxisType) -> None:
    mesh = mesh_of(axis_type, batch=1)
    input = jax.device_put((RNG.random((rows, 3)) < 0.01).astype(np.float32), NamedSharding(mesh, P("batch")))
    find = lambda x: dmljax.nonzero_coordinates(x).coordinates  # noqa: E731
    inside = jax.jit(jax.shard_map(find, mesh=mesh, in_specs=P("batch"), out_specs=P("batch")))
    assert_same_trees(inside(input), find(np.asarray(input)))


# Arguments that devices share inside shard_map


def two(*shape: int) -> tuple[Any, Any]:
    """A different array for each of two devices."""
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    return x, 3 * x[::-1]


SHARED: dict[str, tuple[Callable[..., Any], list[tuple[Any, Any]]]] = {
    # Rows of one element, whose position is a constant on a CPU.
    "activation_hardmax1": (lambda x: dmljax.activation_hardmax1(x, axes=(1,)), [two(4, 1)]),
    "top_k1": (lambda x: dmljax.top_k1(x, axis=1, k=1), [two(4, 1)]),
    # A TPU has a way of its own for these windows, and another is for those in which many others overlap.
    "max_pooling_grad": (
        lambda x, g: dmljax.max_pooling_grad(x, g, window_sizes=3, strides=2),
        [two(1, 1, 7), two(1, 1, 3)],
    ),
    "max_pooling_grad, many windows": (
        lambda x, g: dmljax.max_pooling_grad(x, g, window_sizes=80),
        [two(1, 1, 90), two(1, 1, 11)],
    ),
}


@SAMPLED
@pytest.mark.parametrize("name", SHARED)
@GATE
def test_devices_may_share_each_argument_inside_shard_map(name: str) -> None:
    function, arrays = SHARED[name]
    here, there = ({str(i): both[device] for i, both in enumerate(arrays)} for device in (0, 1))
    check_shared_and_divided(lambda arguments: function(*(arguments[key] for key in here)), (here, there))


@GATE
def test_devices_may_share_the_image_of_a_gradient_of_regions() -> None:
    def gradients(image: Any, *arrays_of_device: Any) -> Any:
        align = functools.partial(dmljax.roi_align_grad, maximum_samples_per_output=1)
        return jax.lax.scan(lambda nothing, _: (nothing, align(image, *arrays_of_device).input), None, None, length=1)[
            1
        ]

    def inside(image: Any, *arrays_of_device: Any) -> Any:
        return gradients(image, *(x[0] for x in arrays_of_device))

    arrays = small(2, 3, 8, 1, 1).astype(np.float32), BOXES[:6].reshape(2, 3, 4), small(2, 3)
    specs = P(), *[P("devices")] * 3
    mapped = jax.shard_map(inside, mesh=mesh_of(AxisType.Auto, devices=2), in_specs=specs, out_specs=P("devices"))
    expected = [jax.jit(gradients)(IMAGES, *arrays_of_device) for arrays_of_device in zip(*arrays, strict=True)]
    assert_same_trees(jax.jit(mapped)(IMAGES, *arrays), jax.tree.map(lambda *both: np.concatenate(both), *expected))


# Sums along a sharded axis


@functools.partial(jax.jit, static_argnames="axes")
def softmaxes_and_grads(x: Any, *, axes: tuple[int, ...]) -> Any:
    functions = (dmljax.activation_softmax1, dmljax.activation_log_softmax1)
    grad = lambda function: jax.grad(lambda x: function(x, axes=axes).sum())(x)  # noqa: E731
    return [function(x, axes=axes) for function in functions], [grad(function) for function in functions]


@FULL
@pytest.mark.parametrize(
    ("spec", "axis_type"),
    [
        (P(None, "rows"), AxisType.Explicit),
        (P("rows", "columns"), AxisType.Explicit),
        (P(None, ("rows", "columns")), AxisType.Explicit),
        (P("rows", "columns"), AxisType.Auto),
    ],
    ids=str,
)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_sharded_rows_are_summed_as_exactly_as_whole_ones(axes: tuple[int, ...], spec: P, axis_type: AxisType) -> None:
    logits = np.where(np.random.default_rng(0).random((8, 4096)) < 0.01, 0, -18).astype(np.float32)
    sharded = jax.device_put(logits, NamedSharding(mesh_of(axis_type, rows=4, columns=2), spec))
    (softmax, logarithm), grads = softmaxes_and_grads(sharded, axes=axes)
    exact = log_softmax(logits, axes)
    assert units_off(softmax, np.exp(exact)).max() <= UNITS["float32"]
    if 1 in axes:
        assert units_off(logarithm, exact).max() <= UNITS["float32"]
    else:  # 1 less the few small terms of a column leaves few digits
        np.testing.assert_allclose(logarithm, exact, rtol=4 * 2.0**-23, atol=2.0**-23)
    _, expected = softmaxes_and_grads(logits, axes=axes)
    for grad, whole in zip(grads, expected, strict=True):
        np.testing.assert_allclose(grad, whole, rtol=1e-4, atol=1e-4)


# Random words


@FULL
@pytest.mark.parametrize(
    ("sizes", "spec"),
    [
        ((64,), P(("rows", "columns"))),
        ((8, 5), P(("rows", "columns"))),
        ((4, 6), P("rows", "columns")),
        ((3, 7, 8), P(None, None, ("columns", "rows"))),
        ((3, 12, 2), P(None, "rows", "columns")),
        ((4096, 8), P("rows")),
    ],
    ids=str,
)
@EXPLICIT_FIRST
def test_each_device_generates_its_own_words(sizes: tuple[int, ...], spec: P, axis_type: AxisType) -> None:
    mesh = mesh_of(axis_type, rows=4, columns=2)
    sharding = NamedSharding(mesh, spec)
    generate = jax.jit(lambda s: dmljax.random_generator(s, output_sizes=sizes).output, out_shardings=sharding)
    state = jax.device_put(STATE, NamedSharding(mesh, P()))  # the array's type names the mesh
    compiled = generate.lower(state).compile()
    assert collectives(compiled) == []
    memory: Any = compiled.memory_analysis()
    # No device computes all words only to keep some.
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes <= 4 * math.prod(sizes) // 4 + 256
    words = compiled(state)
    assert words.addressable_data(0).shape == sharding.shard_shape(sizes)
    assert_same_trees(words, dmljax.random_generator(STATE, output_sizes=sizes).output)
