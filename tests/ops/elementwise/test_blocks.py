"""QUANTIZE, DEQUANTIZE and DYNAMIC_QUANTIZE_LINEAR, and 4-bit integers."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_quantization import (
    BLOCK_SCALES,
    DEQUANTIZE_BLOCKS,
    ONE_BLOCK,
    QUANTIZE_BLOCKS,
    dynamically_quantized,
    for_each_element,
    quantized,
    with_tensors,
)
from helpers import (
    FULL,
    GATE,
    SAMPLED,
    assert_same_bits,
    at_once,
    mesh_of,
    needs_x64,
    random_array,
    refuses,
    tensor,
)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import dmljax
from dmljax import directml
from dmljax.directml import DataType, FeatureLevel, InvalidDesc, InvalidType

INT4, UINT4 = jnp.dtype("int4"), jnp.dtype("uint4")
NARROW = [INT4, UINT4, np.dtype("int8"), np.dtype("uint8")]
of_4_bits = pytest.mark.parametrize("dtype", [INT4, UINT4], ids=str)
of_each_type = pytest.mark.parametrize("dtype", NARROW, ids=str)
NAN, INF, TINY = math.nan, math.inf, float(np.finfo(np.float32).tiny)
ROWS = np.array([[1, 2, 10, 70], [-1, 0, 4, -8]], np.float32)


def all_of(dtype: Any) -> Any:
    """Every integer of a type."""
    limits = jnp.iinfo(dtype)
    return np.arange(int(limits.min), int(limits.max) + 1).astype(dtype)


# Exhaustively


@SAMPLED
@of_each_type
def test_every_integer_is_dequantized_exactly_from_every_zero_point(dtype: Any) -> None:
    every = all_of(dtype)
    distances = np.subtract.outer(every.astype(int), every.astype(int)).astype(np.float32)
    scales = np.array([1, 0.37, -3e38, 2.0**-126, INF, NAN], np.float32)
    computed = dmljax.dequantize(every[:, None, None] + np.zeros((1, every.size, 6), dtype), scales, every[:, None])
    with np.errstate(all="ignore"):
        expected = distances[..., None] * scales
    np.testing.assert_array_equal(np.asarray(computed), expected, strict=True)


@SAMPLED
@of_each_type
def test_every_step_and_every_half_is_quantized_from_every_zero_point(dtype: Any) -> None:
    every = all_of(dtype)
    halves = np.arange(-2 * every.size - 3, 2 * every.size + 4).astype(np.float32) / 2
    around = np.concatenate([np.nextafter(halves, -INF), halves, np.nextafter(halves, INF)]).astype(np.float32)
    around[np.abs(around) < TINY] = 0  # a subnormal number may count as zero
    limits = jnp.iinfo(dtype)
    total = np.add.outer(np.rint(around).astype(int), every.astype(int))
    expected = np.clip(total, int(limits.min), int(limits.max)).astype(dtype)
    whole = np.broadcast_to(around[:, None], expected.shape)
    assert_same_bits(dmljax.quantize(whole, np.float32(1), every[None]), expected)
    # Powers of two keep halves exact.
    scaled = dmljax.quantize(whole * np.float32(0.125), np.float32(0.125), every[None])
    assert_same_bits(scaled, expected)


@SAMPLED
@of_each_type
def test_quantizing_inverts_dequantizing(dtype: Any) -> None:
    every = all_of(dtype)
    zero = every[every.size // 3]
    for scale in np.array([0.37, 1e-30, 7, 1e30], np.float32):
        assert_same_bits(dmljax.quantize(dmljax.dequantize(every, scale, zero), scale, zero), every)


@of_4_bits
def test_nan_and_out_of_range_numbers_in_4_bits(call: Any, dtype: Any) -> None:
    least, most = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    result = call(dmljax.quantize, np.array([NAN, INF, -INF, 3e38, -99], np.float32), jnp.ones(1), jnp.array(3, dtype))
    assert_same_bits(result, np.array([3, most, least, most, least], dtype))


# Blocks


@SAMPLED
@pytest.mark.parametrize("scales", [(2, 6, 4), (2, 3, 2), (1, 1, 1), (2, 1, 4), (1, 6, 1), (4,), (3, 1), ()], ids=str)
def test_each_scale_is_for_a_block(call: Any, scales: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    input = rng.uniform(-9, 9, (2, 6, 4)).astype(np.float32)
    scale = rng.uniform(0.5, 2, scales).astype(np.float32)
    of_each = for_each_element(scale.reshape((1,) * (3 - scale.ndim) + scale.shape), input.shape)
    steps = call(dmljax.quantize, input, scale, dtype="int4")
    assert_same_bits(steps, quantized(input, of_each, None, INT4))
    assert_same_bits(call(dmljax.dequantize, steps, scale), np.asarray(steps).astype(np.float32) * of_each)


def test_scales_and_zero_points_may_have_blocks_of_different_sizes(call: Any) -> None:
    scale, zero = np.array([[1, 10], [0.5, 2]], np.float32), np.array([[1], [-1]]).astype(INT4)
    result = call(dmljax.quantize, ROWS, scale, zero)
    assert_same_bits(result, np.array([[2, 3, 2, 7], [-3, -1, 1, -5]], INT4))
    back = call(dmljax.dequantize, result, scale, zero)
    assert_same_bits(back, np.array([[1, 2, 10, 60], [-1, 0, 4, -8]], np.float32))


@pytest.mark.parametrize("scales", [(2, 3), (3, 4), (4, 4), (2, 8), (1, 2, 4), (0, 4)])
def test_the_sizes_of_scales_must_divide_those_of_the_input(scales: tuple[int, ...]) -> None:
    with refuses(f"quantize: scale must have sizes that divide those of input, (2, 4); got {scales}", InvalidDesc):
        dmljax.quantize(ROWS, np.ones(scales, np.float32))


def test_neither_zero_points_nor_the_input_are_repeated() -> None:
    with refuses("dequantize: zero_point must have sizes that divide those of input, ", InvalidDesc):
        dmljax.dequantize(np.ones((2, 4), np.int8), 1.0, np.ones((2, 3), np.int8))
    # As element_wise_quantize_linear would
    with refuses("sizes that divide those of input, (2, 1); got (2, 3)", InvalidDesc):
        dmljax.quantize(np.ones((2, 1), np.float32), np.ones((2, 3), np.float32))


def test_empty_arrays_may_be_quantized() -> None:
    assert dmljax.quantize(np.zeros((2, 0), np.float32), np.ones((2, 3), np.float32)).shape == (2, 0)
    assert dmljax.dequantize(np.zeros((0, 4), np.int8), np.ones((0, 2), np.float32)).shape == (0, 4)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.gate(but=1)
def test_the_gradient_of_a_scale_is_the_sum_over_its_block(kind: str) -> None:
    input, zero = np.arange(-8, 8).astype(INT4).reshape(4, 4), np.array(1).astype(INT4)
    scale = jnp.ones((2, 1), kind)
    value, pull = jax.vjp(lambda scale: dmljax.dequantize(input, scale, zero), scale)
    distances = input.astype(np.float32) - 1
    assert_same_bits(value, distances.astype(jnp.dtype(kind)))
    (gradient,) = pull(jnp.ones((4, 4), kind))
    assert_same_bits(gradient, distances.reshape(2, 8).sum(1, keepdims=True).astype(jnp.dtype(kind)))
    _, pushed = jax.jvp(lambda scale: dmljax.dequantize(input, scale, zero), (scale,), (2 * scale,))
    assert_same_bits(pushed, (2 * distances).astype(jnp.dtype(kind)))


@pytest.mark.parametrize("scale_kind", ["float16", "bfloat16", "float32"])
def test_a_dequantized_number_has_the_type_of_its_scale(call: Any, scale_kind: str) -> None:
    kind = jnp.dtype(scale_kind)
    result = call(dmljax.dequantize, all_of(INT4), np.array([0.1]).astype(kind), np.array(-8).astype(INT4))
    exact = (np.arange(16) * np.array([0.1]).astype(kind).astype(np.float32)).astype(np.float32)
    assert_same_bits(result, exact.astype(kind))


@needs_x64
def test_float64_is_computed_in_float64(call: Any) -> None:
    result = call(dmljax.dequantize, all_of(UINT4), np.array([0.1, 0.3]))
    assert_same_bits(result, np.arange(16) * np.repeat([0.1, 0.3], 8))
    largest = np.array([1.5 - 2.0**-52])
    assert_same_bits(call(dmljax.quantize, largest, np.ones(1)), np.array([1], np.uint8))


@FULL
def test_the_output_is_of_the_zero_points_type_of_dtype_or_uint8(call: Any) -> None:
    one = np.ones(1, np.float32)
    assert call(dmljax.quantize, ROWS, one).dtype == np.uint8
    assert call(dmljax.quantize, ROWS, one, jnp.array(0, UINT4)).dtype == UINT4
    for dtype in (*NARROW, np.dtype("int16"), np.dtype("uint16")):
        assert call(dmljax.quantize, ROWS, one, dtype=dtype).dtype == dtype


def test_a_python_number_is_a_zero_point_of_the_inputs_type(call: Any) -> None:
    assert call(dmljax.dequantize, all_of(UINT4)[:2], 0.5, zero_point=8).tolist() == [-4, -3.5]
    with refuses("zero_point must be a whole number in [-8, 7] to fit int4; got 8", InvalidDesc):
        dmljax.dequantize(all_of(INT4), 0.5, 8)


# Integers of 4 bits


@FULL
@of_4_bits
def test_integers_of_4_bits_work_under_transformations(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    input = random_array(rng, dtype, (3, 6))
    scale, zero = rng.uniform(1, 2, (3, 2)).astype(np.float32), random_array(rng, dtype, (3, 1))
    expected = [np.asarray(dmljax.dequantize(*row)) for row in zip(input, scale, zero, strict=True)]

    def both(input: Any, scale: Any, zero: Any) -> Any:
        numbers = dmljax.dequantize(input, scale, zero)
        return numbers, dmljax.quantize(numbers, scale, zero)

    vmapped = jax.vmap(both)(input, scale, zero)
    scanned = jax.lax.scan(lambda carry, row: (carry, both(*row)), None, (input, scale, zero))[1]
    (size,) = jax.export.symbolic_shape("batch")
    shapes = [jax.ShapeDtypeStruct((size, *array.shape[1:]), array.dtype) for array in (input, scale, zero)]
    exported = jax.export.export(jax.jit(jax.vmap(both)), platforms=["cpu", "cuda", "tpu"])(*shapes)
    called = jax.export.deserialize(exported.serialize()).call(input, scale, zero)
    for numbers, integers in (vmapped, scanned, called):
        assert_same_bits(numbers, np.stack(expected))
        assert_same_bits(integers, input)


@FULL
@of_4_bits
def test_integers_of_4_bits_are_right_in_arrays_of_any_shape(dtype: Any) -> None:
    # XLA on CPU of JAX 0.8 reads some of them wrongly where the last dimension has 4 elements.
    shapes = [(4, 4), (4, 4, 4), (3, 4), (1, 4), (16, 4), (5,), (7, 3), (2, 8), (9, 16)]
    rng = np.random.default_rng(4)
    rows = [(random_array(rng, dtype, sizes), random_array(rng, dtype, (*sizes[:-1], 1))) for sizes in shapes]

    def of_row(row: Any) -> Any:
        input, zero = row
        numbers, pull = jax.vjp(lambda scale: dmljax.dequantize(input, scale, zero), jnp.float32(1))
        return numbers, pull(jnp.ones_like(numbers))[0], dmljax.quantize(numbers, np.float32(1), zero)

    for (input, zero), (numbers, gradient, integers) in zip(rows, at_once(of_row, rows), strict=True):
        expected = input.astype(np.float32) - zero.astype(np.float32)
        assert_same_bits(numbers, expected)
        assert float(gradient) == expected.sum()
        assert_same_bits(integers, input)


@FULL
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
def test_integers_of_4_bits_are_sharded(axis_type: AxisType) -> None:
    mesh = mesh_of(axis_type, rows=4, columns=2)
    rng = np.random.default_rng(2)
    arrays = (
        random_array(rng, INT4, (8, 16)),
        rng.uniform(1, 2, (4, 8)).astype(np.float32),
        random_array(rng, INT4, (8, 1)),
    )
    expected = dmljax.dequantize(*arrays)
    specs = [
        (P("rows", "columns"), P(), P()),
        (P("columns"), P("rows"), P("rows")),
        (P(None, "rows"), P("columns", "rows"), P()),
    ]
    placed = [
        [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(arrays, chosen, strict=True)]
        for chosen in specs
    ]
    for computed, operands in zip(at_once(lambda operands: dmljax.dequantize(*operands), placed), placed, strict=True):
        assert_same_bits(computed, expected)
        assert_same_bits(jax.jit(lambda x, s, z: dmljax.quantize(x, s, z))(computed, *operands[1:]), arrays[0])


def test_the_unused_half_of_a_byte_is_ignored() -> None:
    input = np.array([0xF3, 0x8F, 0x70], np.uint8)
    assert dmljax.dequantize(input.view(INT4), 1.0).tolist() == [3, -1, 0]
    assert dmljax.dequantize(input.view(UINT4), 1.0).tolist() == [3, 15, 0]


@of_4_bits
def test_elementwise_quantization_takes_integers_of_4_bits(call: Any, dtype: Any) -> None:
    every = all_of(dtype)
    zero = every[5]
    numbers = call(dmljax.element_wise_dequantize_linear, every, jnp.float32(0.5), zero)
    assert_same_bits(numbers, (np.arange(16, dtype=np.float32) - 5) / 2)
    assert_same_bits(call(dmljax.element_wise_quantize_linear, numbers, jnp.float32(0.5), zero), every)


def test_other_operators_refuse_integers_of_4_bits_also_inside_jit() -> None:
    with refuses("element_wise_abs: input must be bool, an integer of 8 ...; got int4", InvalidType):
        jax.jit(dmljax.element_wise_abs)(all_of(INT4))


# The range of a tensor


@SAMPLED
@pytest.mark.parametrize("dtype", [*NARROW, np.dtype("uint16")], ids=str)
def test_the_range_is_divided_into_steps(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((200, 9)).astype(np.float32) * np.exp2(rng.integers(-90, 90, (200, 1))).astype(
        np.float32
    )
    rows = np.concatenate([rows, np.abs(rows), -np.abs(rows), rows[:, :1] + np.zeros((1, 9), np.float32)])
    outputs = jax.vmap(lambda row: dmljax.dynamic_quantize_linear(row, dtype=dtype))(rows)
    expected = zip(*(dynamically_quantized(row, dtype) for row in rows), strict=True)
    for computed, reference in zip(outputs, expected, strict=True):
        assert_same_bits(computed, np.stack(reference))


@pytest.mark.parametrize("dtype", [np.dtype("uint8"), np.dtype("int8")], ids=str)
def test_the_range_includes_0(call: Any, dtype: Any) -> None:
    least, most = (int(limit) for limit in (jnp.iinfo(dtype).min, jnp.iinfo(dtype).max))
    for input, output, scale, zero in (
        ([510, 2, 255], [most, least + 1, least + 128], 2, least),
        ([-510, -2, -255], [least, most - 1, most - 128], 2, most),  # halves go to the even integer
        ([255, 255, 255], [most] * 3, 1, least),
        ([-127.5, 0.5, 127.5], [least, least + 128, most], 1, least + 128),  # 128 steps up from there saturate
    ):
        result = call(dmljax.dynamic_quantize_linear, np.array(input, np.float32), dtype=dtype)
        assert (result.output.tolist(), float(result.scale), int(result.zero_point)) == (output, scale, zero)


def test_a_tensor_of_zeros_has_a_scale_of_1(call: Any) -> None:
    for input in (
        np.zeros(3, np.float32),
        np.full(2, -0.0, np.float32),
        np.zeros(0, np.float32),
        np.array([1e-40, -1e-45], np.float32),
    ):
        result = call(dmljax.dynamic_quantize_linear, input, dtype="int8")
        assert_same_bits(result.output, np.full(input.shape, -128, np.int8))
        assert (float(result.scale), int(result.zero_point)) == (1, -128)


def test_a_scale_is_never_subnormal(call: Any) -> None:
    for highest in (TINY, 10 * TINY, 254 * TINY):
        result = call(dmljax.dynamic_quantize_linear, np.array([0, highest], np.float32))
        assert (result.output.tolist(), float(result.scale)) == ([0, round(highest / TINY)], TINY)


def test_a_range_may_be_larger_than_the_largest_number(call: Any) -> None:
    largest = float(np.finfo(np.float32).max)
    result = call(dmljax.dynamic_quantize_linear, np.array([-largest, 0, largest], np.float32), dtype="int8")
    assert (result.output.tolist(), int(result.zero_point)) == ([-128, 0, 127], 0)
    assert_same_bits(result.scale, np.float32(largest / 127.5))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_infinities_and_nan_make_the_scale_infinite_or_nan(call: Any, dtype: str) -> None:
    least = np.iinfo(dtype).min
    for input, scale in (([NAN, 1], NAN), ([INF, 1], INF), ([-INF, 1], INF), ([-INF, INF], INF), ([-INF, NAN], NAN)):
        result = call(dmljax.dynamic_quantize_linear, np.array(input, np.float32), dtype=dtype)
        np.testing.assert_array_equal(result.scale, np.float32(scale))
        assert result.output.tolist() == [least, least]
        assert int(result.zero_point) == least
        # The NaN or infinite scale makes every dequantized number NaN.
        assert np.isnan(dmljax.dequantize(result.output, result.scale, result.zero_point)).all()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_16_bit_floats_have_a_scale_of_float32(call: Any, kind: str) -> None:
    input = np.array([-1, 0.1, 3], np.float32).astype(jnp.dtype(kind))
    result = call(dmljax.dynamic_quantize_linear, input)
    for computed, expected in zip(result, dynamically_quantized(input.astype(np.float32), np.uint8), strict=True):
        assert_same_bits(computed, expected)


@GATE
def test_the_scale_has_a_gradient() -> None:
    scale = lambda x: dmljax.dynamic_quantize_linear(x).scale  # noqa: E731
    input = jnp.array([-1.0, 0.5, 3.0])
    np.testing.assert_allclose(jax.grad(scale)(input), [-1 / 255, 0, 1 / 255], rtol=1e-6)
    np.testing.assert_allclose(jax.grad(scale)(jnp.abs(input)), [0, 0, 1 / 255], rtol=1e-6)
    assert jax.grad(scale)(jnp.zeros(3)).tolist() == [0, 0, 0]


# Descriptors


def test_a_desc_may_have_a_scale_without_a_zero_point() -> None:
    scales = np.array([[1, 10], [0.5, 2]], np.float32)
    steps = directml.lower(replace(QUANTIZE_BLOCKS, **with_tensors(BLOCK_SCALES)))(ROWS, scales)
    assert_same_bits(steps, np.array([[1, 2, 1, 7], [-2, 0, 2, -4]], INT4))
    lowered = directml.lower(replace(DEQUANTIZE_BLOCKS, **with_tensors(BLOCK_SCALES)))
    numbers = lowered(input=steps, quantization_tensors=[scales])
    assert_same_bits(numbers, np.array([[1, 2, 10, 70], [-1, 0, 4, -8]], np.float32))


@SAMPLED
@pytest.mark.parametrize("data_type", ["INT8", "UINT8", "INT4", "UINT4"])
def test_a_desc_quantizes_to_the_type_of_its_output(data_type: str) -> None:
    desc = replace(QUANTIZE_BLOCKS, output=tensor(data_type, 2, 4), **with_tensors(ONE_BLOCK))
    assert directml.lower(desc)(ROWS, np.ones((1, 1), np.float32)).dtype == DataType[data_type].dtype
    assert directml.find_minimum_feature_level(desc) is FeatureLevel.FL_6_3


def test_a_desc_reads_and_writes_buffers_of_4_bits() -> None:
    buffers = ("1ff10877", "0000803f000000400000803f0000803f", "0f")
    leaves = DEQUANTIZE_BLOCKS.leaves(is_input=True)
    arrays = [leaf.tensor.read(bytes.fromhex(data)) for leaf, data in zip(leaves, buffers, strict=True)]
    numbers = directml.lower(DEQUANTIZE_BLOCKS)(*arrays)
    assert_same_bits(numbers, np.array([[0, 2, 4, 0], [-7, 1, 8, 8]], np.float32))
