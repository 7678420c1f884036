"""ONNX Runtime's own operators beside ONNX Runtime, and beside formulas where its CPU has no kernel."""

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import GATE, SAMPLED, few_of
from onnx_models import by_onnxruntime, one_node

import dmljax.onnx
from dmljax import DmlError
from dmljax.directml import Unsupported

RNG = np.random.default_rng(11)


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def integers(low: int, high: int, shape: Any, dtype: Any) -> Any:
    return RNG.integers(low, high, shape).astype(dtype)


def u8(*shape: int) -> Any:
    return integers(0, 256, shape, np.uint8)


def s8(*shape: int) -> Any:
    # Weights of 7 bits: without VNNI, ONNX Runtime saturates sums of two products of whole bytes at 16 bits.
    return integers(-64, 64, shape, np.int8)


def scale(number: float) -> Any:
    return np.array(number, np.float32)


def zero(number: int, dtype: Any = np.uint8) -> Any:
    return np.array(number, dtype)


def run(model: Any, arrays: list[Any]) -> list[Any]:
    results = dmljax.onnx.load(model)(*arrays)
    return list(results) if isinstance(results, tuple) else [results]


def assert_close(actual: Any, other: Any, tolerance: float) -> None:
    actual = np.asarray(actual)
    assert actual.shape == other.shape
    assert actual.dtype == other.dtype
    if other.dtype.kind in "iu":
        assert np.abs(actual.astype(int) - other.astype(int)).max() <= (1 if other.dtype.itemsize == 1 else 0)
    else:
        np.testing.assert_allclose(actual.astype(float), other.astype(float), rtol=tolerance, atol=tolerance)


X = floats(2, 4, 8)
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
QUERY, KEY, VALUE = floats(2, 4, 8), floats(2, 6, 8), floats(2, 6, 8)
WEIGHT, BIAS = floats(8, 24), floats(24)
PAST = floats(2, 2, 2, 3, 4)
PARAMETERS = (scale(0.05), zero(120), scale(0.02), zero(7))
COSINES, SINES = floats(16, 4), floats(16, 4)
FULL = {"num_heads": 2}

# by operator: inputs, attributes, and which outputs there are if several
CASES: dict[str, tuple[Any, ...]] = {
    "BiasGelu": ([X, floats(8)], {}),
    "FastGelu": ([X], {}),
    "FastGelu with bias": ([X, floats(8)], {}),
    "Gelu": ([X], {}),
    "QuickGelu": ([X], {"alpha": 1.5}),
    "SimplifiedLayerNormalization": ([X, floats(8)], {"axis": -1, "epsilon": 1e-3}, [True, True]),
    "LayerNormalization": ([X, floats(8), floats(8)], {"axis": 2}),
    "SkipLayerNormalization": ([X, floats(2, 4, 8), floats(8), floats(8), floats(8)], {}, [True, False, False, True]),
    "SkipLayerNormalization broadcast": ([X, floats(4, 8), floats(8)], {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": ([X, floats(2, 4, 8), floats(8), floats(8)], {}, [True, False, False, True]),
    "EmbedLayerNormalization": (
        [
            *(integers(0, 9, (2, 4), np.int32), integers(0, 2, (2, 4), np.int32), floats(9, 8), floats(7, 8)),
            *(floats(2, 8), floats(8), floats(8), MASK),
        ],
        {"epsilon": 1e-5},
        [True, True, True],
    ),
    "EmbedLayerNormalization places": (
        [
            *(integers(0, 9, (2, 4), np.int32), None, floats(9, 8), floats(7, 8), None, floats(8), floats(8), None),
            np.array([[3, 1, 0, 6]], np.int32),
        ],
        {"epsilon": 1e-5},
        [True, True],
    ),
    "FusedMatMul": ([floats(3, 5, 4), floats(3, 5, 6)], {"transA": 1, "alpha": 0.5}),
    "FusedMatMul batches": ([floats(5, 3, 4), floats(6, 3, 4)], {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    "FusedGemm": (
        [floats(3, 4), floats(5, 4), floats(5)],
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    "MatMulIntegerToFloat": (
        [u8(2, 3, 8), s8(8, 5), scale(0.1), floats(5), zero(100), integers(-5, 5, (5,), np.int8), floats(5)],
        {},
    ),
    "MatMulIntegerToFloat plain": ([u8(3, 8), u8(8, 5), scale(0.1), scale(0.2)], {}),
    "DynamicQuantizeMatMul": ([floats(3, 8), s8(8, 5), scale(0.02), zero(3, np.int8), floats(5)], {}),
    "MatMulNBits": ([floats(2, 3, 40), u8(6, 2, 16), floats(12)], {"K": 40, "N": 6, "block_size": 32, "bits": 4}),
    "MatMulNBits zero points": (
        [floats(3, 64), u8(6, 4, 8), floats(24), u8(12), None, floats(6)],
        {"K": 64, "N": 6, "block_size": 16, "bits": 4},
    ),
    "MatMulNBits of 8 bits": (
        [floats(3, 64), u8(6, 2, 32), floats(12), u8(12)],
        {"K": 64, "N": 6, "block_size": 32, "bits": 8},
    ),
    "MatMulBnb4 FP4": (
        [floats(2, 3, 40), u8(120), np.abs(floats(15))],
        {"K": 40, "N": 6, "block_size": 16, "quant_type": 0},
    ),
    "MatMulBnb4 NF4": (
        [floats(3, 64), u8(192), np.abs(floats(12))],
        {"K": 64, "N": 6, "block_size": 32, "quant_type": 1},
    ),
    "GatherBlockQuantized": (
        [u8(7, 3, 20), np.array([[0, -1, 5], [9, 2, -8]]), floats(7, 3, 3), u8(7, 3, 2)],
        {"block_size": 16, "quantize_axis": 2},
    ),
    "GatherBlockQuantized of 8 bits": ([u8(7, 40), np.array([3, 3, -7]), floats(7, 3)], {"block_size": 16, "bits": 8}),
    "QEmbedLayerNormalization": (
        [
            *(integers(0, 9, (2, 3), np.int32), integers(0, 2, (2, 3), np.int32), u8(9, 8), u8(5, 8), u8(2, 8)),
            *(u8(8), u8(8), np.array([[1, 1, 0], [1, 1, 1]], np.int32)),
            *(scale(0.02), scale(0.03), scale(0.01), scale(0.02), scale(0.04)),
            *(zero(120), zero(100), zero(90), zero(130), zero(128)),
        ],
        {"epsilon": 1e-5},
        [True, True],
    ),
    "Inverse": ([floats(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)], {}),
    "GridSample": ([floats(1, 2, 4, 5), floats(1, 3, 3, 2)], {"mode": "bicubic", "padding_mode": "border"}),
    "QLinearAdd": ([u8(2, 5), scale(0.1), zero(9), u8(5), scale(0.3), zero(128), scale(0.4), zero(50)], {}),
    "QLinearMul": (
        [s8(2, 5), scale(0.1), zero(9, np.int8), s8(5), scale(0.3), zero(-3, np.int8), scale(2.0), zero(5, np.int8)],
        {},
    ),
    "QLinearSigmoid": ([u8(3, 5), *PARAMETERS], {}),
    "QLinearLeakyRelu": ([s8(3, 5), scale(0.05), zero(12, np.int8), scale(0.04), zero(-7, np.int8)], {"alpha": 0.2}),
    "QLinearSoftmax": ([u8(3, 5), scale(0.05), zero(120), scale(1 / 256), zero(0)], {"axis": -1, "opset": 13}),
    "QLinearSoftmax in 288 of 288.7 steps": (
        [u8(3, 5), scale(0.05), zero(120), scale(1 / 288.7), zero(0)],
        {"axis": -1, "opset": 13},
    ),
    "QLinearSoftmax flat": ([u8(2, 3, 5), scale(0.05), zero(120), scale(1 / 256), zero(0)], {"axis": 1, "opset": 12}),
    "QLinearConcat": (
        [scale(0.1), zero(3), u8(2, 3), scale(0.2), zero(100), u8(2, 4), scale(0.05), zero(9)],
        {"axis": 1},
    ),
    "QLinearWhere": (
        [
            *(RNG.random((2, 5)) > 0.5, u8(2, 5), scale(0.1), zero(3), u8(2, 5), scale(0.2), zero(100)),
            *(scale(0.15), zero(50)),
        ],
        {},
    ),
    "QGemm": (
        [
            *(u8(3, 8), scale(0.1), zero(100), s8(5, 8), scale(0.02), zero(0, np.int8)),
            *(integers(-900, 900, (5,), np.int32), scale(0.2), zero(128)),
        ],
        {"transB": 1},
    ),
    "QGemm float": ([u8(3, 8), scale(0.1), zero(100), s8(8, 5), scale(0.02), zero(0, np.int8)], {}),
    "QLinearAveragePool": (
        [u8(1, 2, 5, 6), *PARAMETERS],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "QLinearAveragePool padded": (
        [u8(1, 2, 5, 6), *PARAMETERS],
        {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "QLinearAveragePool last": ([u8(1, 5, 6, 2), *PARAMETERS], {"kernel_shape": [2, 2], "channels_last": 1}),
    "QLinearGlobalAveragePool": ([u8(2, 3, 5, 6), *PARAMETERS], {}),
    "QLinearGlobalAveragePool last": ([u8(2, 5, 6, 3), *PARAMETERS], {"channels_last": 1}),
    "QLinearConv last": (
        [u8(1, 5, 6, 2), *PARAMETERS[:2], s8(4, 2, 3, 3), scale(0.03), zero(0, np.int8), *PARAMETERS[2:]],
        {"channels_last": 1, "pads": [1, 0, 1, 0], "strides": [2, 1]},
    ),
    "NhwcMaxPool": ([u8(1, 5, 6, 3)], {"kernel_shape": [2, 3], "strides": [2, 1]}),
    "QuantizeLinear": ([X, scale(0.02), zero(100)], {}),
    "DequantizeLinear": ([u8(3, 4), floats(4), u8(4)], {"axis": 1}),
    "FusedConv": (
        [floats(1, 3, 6, 6), floats(4, 3, 3, 3), floats(4), floats(1, 4, 6, 6)],
        {"pads": [1, 1, 1, 1], "activation": "Relu"},
    ),
    "FusedConv clip": (
        [floats(1, 3, 6, 6), floats(4, 3, 3, 3)],
        {"activation": "Clip", "activation_params": [-0.5, 0.75]},
    ),
    "FusedConv sigmoid": (
        [floats(1, 4, 6, 6), floats(4, 2, 3, 3), floats(4)],
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4], "group": 2},
    ),
    "Trilu": ([floats(3, 4), np.array(1)], {"upper": 0}),
    "Attention": ([X, WEIGHT, BIAS], FULL),
    "Attention lengths": ([X, WEIGHT, BIAS, np.array([3, 2], np.int32)], FULL),
    "Attention ends": ([X, WEIGHT, BIAS, np.array([4, 3, 1, 0], np.int32)], FULL),
    "Attention mask": ([X, WEIGHT, BIAS, MASK, None, floats(2, 2, 4, 4)], {**FULL, "scale": 0.3}),
    "Attention causal": ([X, WEIGHT, BIAS, MASK], {**FULL, "unidirectional": 1}),
    "Attention past": ([X, WEIGHT, BIAS, np.ones((2, 7), np.int32), PAST], {**FULL, "unidirectional": 1}, [True, True]),
    "Attention sizes": ([X, floats(8, 28), floats(28)], {**FULL, "qkv_hidden_sizes": [8, 8, 12]}),
    "QAttention": (
        [
            u8(2, 4, 8),
            s8(8, 24),
            BIAS,
            scale(0.02),
            scale(0.02),
            np.array([3, 2], np.int32),
            zero(120),
            zero(0, np.int8),
        ],
        FULL,
    ),
    "MultiHeadAttention": ([QUERY, KEY, VALUE, BIAS], FULL),
    "MultiHeadAttention cached": ([QUERY, floats(2, 2, 6, 4), floats(2, 2, 6, 4)], FULL),
    "MultiHeadAttention mask": (
        [QUERY, KEY, VALUE, None, integers(0, 2, (2, 6), np.int32), floats(1, 2, 4, 6)],
        {**FULL, "mask_filter_value": -50.0},
    ),
    "MultiHeadAttention past": (
        [QUERY, QUERY, QUERY, BIAS, None, None, PAST[0], PAST[1]],
        {**FULL, "unidirectional": 1},
        [True, True, True],
    ),
    "RotaryEmbedding": ([floats(2, 4, 16), integers(0, 16, (2, 4), np.int64), COSINES, SINES], {}),
    "RotaryEmbedding interleaved": ([floats(2, 3, 4, 8), np.array([2]), COSINES, SINES], {"interleaved": 1}),
    "RotaryEmbedding part": (
        [floats(2, 4, 24), integers(0, 16, (2, 4), np.int64), COSINES[:, :2], SINES[:, :2]],
        {"num_heads": 2, "rotary_embedding_dim": 4},
    ),
}
POSITIONS = integers(0, 16, (3, 2, 4), np.int64)
for _layout in (0, 1):
    CASES[f"MRotaryEmbedding {'apart' if _layout == 0 else 'interleaved'}"] = (
        [floats(2, 4, 24), POSITIONS, COSINES, SINES],
        {"num_heads": 2, "rotary_embedding_dim": 8, "mrope_section": [2, 1, 1], "mrope_layout": _layout, "scale": 0.5},
    )
IN_MAIN = {"SimplifiedLayerNormalization", "LayerNormalization"}


@SAMPLED
@pytest.mark.parametrize(
    "name",
    CASES,
)
def test_contrib_operators_equal_onnxruntime(name: str) -> None:
    inputs, attributes, *outputs = CASES[name]
    operator = name.partition(" ")[0]
    domain = "" if operator in IN_MAIN else "com.microsoft"
    model = one_node(operator, inputs, outputs[0] if outputs else 1, domain=domain, **attributes)
    arrays = [x for x in inputs if x is not None]
    # ONNX Runtime rounds factors to 8 bits if scales have 8 bits, and sums them in another order.
    tolerance = 2e-5 if operator != "MatMulNBits" else 1e-3
    results = run(model, arrays)
    for actual, other in zip(results, by_onnxruntime(model, arrays), strict=True):
        assert_close(actual, other, tolerance)
    function = dmljax.onnx.load(model)
    jitted = jax.tree.leaves(jax.jit(function)(*arrays))
    for by_jit, actual in zip(jitted, results, strict=True):
        np.testing.assert_allclose(np.asarray(by_jit, float), np.asarray(actual, float), rtol=1e-5, atol=1e-5)


GROUPED = {"num_heads": 4, "kv_num_heads": 2}
ANGLES = (floats(16, 8), floats(16, 8))


def grouped(queries: int, past: int, lengths: list[int], *, more: Any = (), **attributes: Any) -> tuple[Any, ...]:
    """Inputs of GroupQueryAttention with a buffer of `past` keys, and each sequence's total length."""
    batch = len(lengths)
    pasts = [floats(batch, 2, past, 16) if past else np.zeros((batch, 2, 0, 16), np.float32) for _ in range(2)]
    arrays = [floats(batch, queries, 64), floats(batch, queries, 32), floats(batch, queries, 32), *pasts]
    arrays += [np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32), *more]
    return arrays, {**GROUPED, **attributes}


@SAMPLED
@pytest.mark.parametrize(
    ("arrays", "attributes"),
    [
        grouped(4, 0, [4, 4]),
        grouped(1, 5, [6, 6]),
        grouped(1, 5, [6, 4]),
        grouped(1, 9, [6, 4]),
        grouped(1, 5, [6, 4], more=ANGLES, do_rotary=1),
        grouped(4, 0, [4, 4], more=ANGLES, do_rotary=1, rotary_interleaved=1),
        grouped(4, 0, [4, 4], local_window_size=2),
        grouped(1, 5, [6, 6], local_window_size=3),
        grouped(1, 5, [6, 6], softcap=2.0),
        grouped(4, 0, [4, 4], smooth_softmax=1),
        grouped(1, 5, [6, 6], scale=0.7),
    ],
)
def test_groups_of_queries_attend_as_in_onnxruntime(arrays: Any, attributes: Any) -> None:
    model = one_node("GroupQueryAttention", arrays, 3, **attributes)
    actual, other = run(model, arrays), by_onnxruntime(model, arrays)
    assert_close(actual[0], other[0], 1e-5)
    for present, expected in zip(actual[1:], other[1:], strict=True):
        assert present.shape == expected.shape
        for i, last in enumerate(arrays[5]):  # later positions are unwritten
            assert_close(present[i, :, : last + 1], expected[i, :, : last + 1], 1e-5)


def test_chunks_of_a_group_query_may_be_padded_as_in_onnxruntime() -> None:
    arrays, attributes = grouped(3, 8, [5, 7], more=ANGLES, do_rotary=1)
    counts = np.array([2, 3], np.int32)
    model = one_node("GroupQueryAttention", [*arrays, *[None] * 7, counts], 3, **attributes)
    actual, other = run(model, [*arrays, counts]), by_onnxruntime(model, [*arrays, counts])
    for i, (count, last) in enumerate(zip(counts, arrays[5], strict=True)):
        assert_close(actual[0][i, :count], other[0][i, :count], 1e-5)
        for present, expected in zip(actual[1:], other[1:], strict=True):
            assert_close(present[i, :, : last + 1], expected[i, :, : last + 1], 1e-5)


@GATE
def test_nan_in_padding_reaches_no_query_of_a_group() -> None:
    arrays, attributes = grouped(4, 0, [4, 2])
    expected = run(one_node("GroupQueryAttention", arrays, 3, **attributes), arrays)
    for x in arrays[:3]:
        x[1, 2:] = np.nan
    actual = run(one_node("GroupQueryAttention", arrays, 3, **attributes), arrays)
    assert_close(actual[0][1, :2], np.asarray(expected[0][1, :2]), 1e-6)
    assert all(np.isfinite(x).all() for x in actual[1:])


def resident(total: int, capacity: int, width: int) -> int:
    """The number of the latest keys that a sliding window keeps, by ONNX Runtime's definition."""
    step = capacity - width + 1
    return total if total <= capacity else total - step * -(-(total - capacity) // step)


@SAMPLED
@pytest.mark.parametrize(
    ("queries", "capacity", "lengths", "attributes"),
    [
        (1, 8, [6], {}),
        (1, 6, [20, 18], {}),
        (1, 4, [9], {"softcap": 2.0}),
        (9, 6, [9], {"smooth_softmax": 1}),
        (5, 6, [12], {}),
    ],
)
@GATE
def test_caches_of_a_sliding_window_keep_the_latest_keys_as_in_onnxruntime(
    queries: int, capacity: int, lengths: list[int], attributes: Any
) -> None:
    window = {"local_window_size": 4, "sliding_window_cache": 1, "do_rotary": 1}
    arrays, given = grouped(queries, capacity, lengths, more=(floats(32, 8), floats(32, 8)), **window, **attributes)
    model = one_node("GroupQueryAttention", arrays, 3, **given)
    actual, other = run(model, arrays), by_onnxruntime(model, arrays)
    assert_close(actual[0], other[0], 1e-5)
    for present, expected in zip(actual[1:], other[1:], strict=True):
        for i, total in enumerate(lengths):
            count = resident(total, capacity, 4)
            assert_close(present[i, :, :count], expected[i, :, :count], 1e-5)


def test_a_cache_that_is_smaller_than_its_window_is_refused() -> None:
    arrays, attributes = grouped(1, 3, [6], local_window_size=4, sliding_window_cache=1)
    with pytest.raises(DmlError, match="past_key must have 4 positions, as many as local_window_size; got 3"):
        run(one_node("GroupQueryAttention", arrays, 3, **attributes), arrays)


@pytest.mark.parametrize(("queries", "lengths"), [(4, [4, 4]), (1, [6, 4])])
@GATE
def test_the_longest_sequence_may_be_known_at_run_time_only(queries: int, lengths: list[int]) -> None:
    arrays, attributes = grouped(queries, 9, lengths)
    function = dmljax.onnx.load(one_node("GroupQueryAttention", arrays, 3, **attributes))
    for actual, other in zip(jax.jit(function)(*arrays), function(*arrays), strict=True):
        np.testing.assert_allclose(actual, other, rtol=1e-5, atol=1e-5)


@SAMPLED
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("queries", "past", "lengths"), [(4, 0, [4, 4]), (1, 8, [6, 4])])
@GATE
def test_caches_of_groups_are_quantized_as_in_onnxruntime(
    kind: str, bits: int, queries: int, past: int, lengths: list[int]
) -> None:
    arrays, attributes = grouped(queries, past, lengths)
    arrays[3:5] = [s8(2, 2, past, 16) if bits == 8 else u8(2, 2, past, 8) for _ in range(2)]
    sizes = (1, 2, 1, 16) if kind == "PER_CHANNEL" else (1,)
    inputs = [*arrays, *[None] * 5, *(np.abs(floats(*sizes)) / 40 + np.float32(0.01) for _ in range(2))]
    attributes |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
    model = one_node("GroupQueryAttention", inputs, 3, **attributes)
    given = [x for x in inputs if x is not None]
    actual, other = run(model, given), by_onnxruntime(model, given)
    assert_close(actual[0], other[0], 1e-5)
    for present, expected in zip(actual[1:], other[1:], strict=True):
        for i, last in enumerate(arrays[5]):
            np.testing.assert_array_equal(present[i, :, : last + 1], expected[i, :, : last + 1])


@GATE
def test_queries_and_keys_of_groups_are_normalized_before_they_attend() -> None:
    # ONNX Runtime does so only on GPUs.
    arrays, attributes = grouped(4, 0, [4, 4])
    weights = [floats(16), floats(16)]
    inputs = [*arrays, *[None] * 7, *weights]
    actual = run(one_node("GroupQueryAttention", inputs, 3, **attributes), [*arrays, *weights])
    for i, weight in enumerate(weights):
        heads = arrays[i].reshape(2, 4, -1, 16)
        scales = np.sqrt(np.mean(heads**2, -1, keepdims=True) + 1e-6)
        arrays[i] = (heads / scales * weight).reshape(arrays[i].shape).astype(np.float32)
    for result, other in zip(
        actual, run(one_node("GroupQueryAttention", arrays, 3, **attributes), arrays), strict=True
    ):
        assert_close(result, np.asarray(other), 1e-5)


def test_a_cache_of_another_width_is_refused() -> None:
    arrays, attributes = grouped(1, 8, [6, 4])
    arrays[3:5] = [s8(2, 2, 8, 16), s8(2, 2, 8, 16)]
    inputs = [*arrays, *[None] * 5, scale(0.1), scale(0.1)]
    attributes |= {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 4}
    with pytest.raises(DmlError, match="kv_cache_bit_width must fit a cache of int8; got 4"):
        run(one_node("GroupQueryAttention", inputs, 3, **attributes), [x for x in inputs if x is not None])


@GATE
def test_a_group_query_may_pack_its_keys_and_values() -> None:
    arrays, attributes = grouped(1, 5, [6, 4])
    packed = [np.concatenate(arrays[:3], axis=-1), None, None, *arrays[3:]]
    model = one_node("GroupQueryAttention", packed, 3, **attributes)
    actual = run(model, [x for x in packed if x is not None])
    for result, other in zip(
        actual, run(one_node("GroupQueryAttention", arrays, 3, **attributes), arrays), strict=True
    ):
        assert_close(result, np.asarray(other), 1e-6)


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.gate(but=1)
def test_keys_and_values_may_be_stacked_in_each_head(is_whole: bool) -> None:
    stacked = floats(2, 6, 2, 3, 4)
    apart = [stacked[:, :, :, i].reshape(2, 6, 8) for i in range(3)]
    arrays = [stacked] if is_whole else [apart[0], stacked[:, :, :, 1:].copy()]
    (actual,) = run(one_node("MultiHeadAttention", arrays, num_heads=2), arrays)
    (other,) = run(one_node("MultiHeadAttention", apart, num_heads=2), apart)
    assert_close(actual, np.asarray(other), 1e-6)


@pytest.mark.parametrize(("channels_last", "activation"), [(1, 0), (1, 1), (0, 1)])
@pytest.mark.gate(but=1)
def test_groups_of_channels_are_normalized_with_their_channels_first_or_last(
    channels_last: int, activation: int
) -> None:
    x, gamma, beta, skip, bias = floats(2, 4, 5, 6), floats(6), floats(6), floats(2, 6), floats(6)
    total = x + skip[:, None, None] + bias
    groups = total.reshape(2, 20, 3, 2).astype(float)
    centered = groups - groups.mean((1, 3), keepdims=True)
    expected = (centered / np.sqrt((centered**2).mean((1, 3), keepdims=True) + 1e-5)).reshape(x.shape) * gamma + beta
    expected = expected / (1 + np.exp(-expected)) if activation else expected
    if not channels_last:
        x, total, expected = (np.moveaxis(images, -1, 1) for images in (x, total, expected))
    arrays = [x, gamma, beta, skip, bias]
    attributes: Any = {"groups": 3, "activation": activation, "channels_last": channels_last}
    actual, actual_total = run(one_node("SkipGroupNorm", arrays, 2, **attributes), arrays)
    assert_close(actual_total, total, 1e-6)
    assert_close(actual, expected.astype(np.float32), 1e-5)
    (plain,) = run(one_node("GroupNorm", [total, gamma, beta], **attributes), [total, gamma, beta])
    assert_close(plain, expected.astype(np.float32), 1e-5)


@GATE
def test_bias_split_gelu_gates_one_half_by_the_gelu_of_the_other() -> None:
    x, bias = floats(2, 3, 8), floats(8)
    (result,) = run(one_node("BiasSplitGelu", [x, bias]), [x, bias])
    left, right = jnp.split(jnp.asarray(x + bias), 2, axis=-1)
    assert_close(result, np.asarray(left * jax.nn.gelu(right, approximate=False)), 1e-6)


def test_a_channels_last_convolution_has_a_channels_last_filter() -> None:
    x, filter = floats(1, 3, 5, 6), floats(4, 3, 3, 3)
    arrays = [np.moveaxis(x, 1, -1).copy(), np.moveaxis(filter, 1, -1).copy()]
    (result,) = run(one_node("NhwcConv", arrays, pads=[1, 1, 1, 1]), arrays)
    (expected,) = run(one_node("Conv", [x, filter], domain="", pads=[1, 1, 1, 1]), [x, filter])
    assert_close(np.moveaxis(result, -1, 1), np.asarray(expected), 1e-6)


def test_a_transposed_convolution_takes_its_padding_as_an_input() -> None:
    x, filter, pads = floats(1, 2, 4, 4), floats(2, 3, 3, 3), np.array([1, 0, 1, 1])
    arrays = [x, filter, pads]
    model = one_node("ConvTransposeWithDynamicPads", arrays, strides=[2, 2])
    (expected,) = run(
        one_node("ConvTranspose", [x, filter], domain="", strides=[2, 2], pads=pads.tolist()), [x, filter]
    )
    (result,) = run(model, arrays)
    assert_close(result, np.asarray(expected), 1e-6)
    with pytest.raises(DmlError, match="x2 must be known"):
        jax.jit(dmljax.onnx.load(model))(*arrays)


def test_a_fused_channels_last_convolution_equals_the_channels_first_one() -> None:
    x, filter, bias, summand = floats(1, 3, 5, 6), floats(4, 3, 3, 3), floats(4), floats(1, 4, 5, 6)
    attributes: dict[str, Any] = {"pads": [1, 1, 1, 1], "activation": "Relu"}
    (expected,) = run(one_node("FusedConv", [x, filter, bias, summand], **attributes), [x, filter, bias, summand])
    last = [np.moveaxis(x, 1, -1).copy(), filter, bias, np.moveaxis(summand, 1, -1).copy()]
    (result,) = run(one_node("NhwcFusedConv", last, **attributes), last)
    assert_close(np.moveaxis(result, -1, 1), np.asarray(expected), 1e-6)


def test_a_product_may_end_in_an_activation() -> None:
    a, b = floats(2, 3, 4), floats(2, 5, 4)
    attributes: dict[str, Any] = {"alpha": 0.5, "transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.25}
    (result,) = run(one_node("FusedMatMulActivation", [a, b], **attributes), [a, b])
    product = 0.5 * a @ b.swapaxes(1, 2)
    assert_close(result, np.where(product < 0, 0.25 * product, product).astype(np.float32), 1e-6)


def test_blocks_of_integers_of_4_bits_are_gathered_along_any_other_axis() -> None:
    x, scales = integers(-8, 8, (40, 3), np.int8), floats(2, 3)  # the last block is shorter
    arrays = [x.astype(ml_dtypes.int4), np.array([2, 0]), scales]
    model = one_node("GatherBlockQuantized", arrays, block_size=32, quantize_axis=0, gather_axis=1)
    expected = (x * np.repeat(scales, 32, 0)[:40])[:, [2, 0]].astype(np.float32)
    assert_close(run(model, arrays)[0], expected, 1e-6)
    wrong = one_node("GatherBlockQuantized", arrays, block_size=32, quantize_axis=1, gather_axis=1)
    with pytest.raises(DmlError, match="gather_axis and quantize_axis must differ"):
        run(wrong, arrays)


def test_a_dimension_is_inserted() -> None:
    arrays = [X, np.array(-2, np.int32)]
    model = one_node("ExpandDims", arrays)
    np.testing.assert_array_equal(run(model, arrays)[0], by_onnxruntime(model, arrays)[0])


def test_unique_elements_stay_in_their_order() -> None:
    arrays = [np.array([2, 1, 1, 3, 4, 3], np.float32)]
    model = one_node("Unique", arrays, 3)
    for actual, other in zip(run(model, arrays), by_onnxruntime(model, arrays), strict=True):
        np.testing.assert_array_equal(actual, other)


def test_integer_products_subtract_the_zero_points() -> None:
    a, b = u8(3, 4), s8(4)
    (result,) = run(one_node("MulInteger", [a, zero(7), b, zero(-3, np.int8)]), [a, zero(7), b, zero(-3, np.int8)])
    np.testing.assert_array_equal(result, (a.astype(int) - 7) * (b.astype(int) + 3))


def test_a_product_may_end_in_a_fast_gelu() -> None:
    arrays = [floats(2, 3, 4), floats(4, 5), floats(5)]
    (result,) = run(one_node("GemmFastGelu", arrays), arrays)
    (expected,) = run(one_node("FastGelu", [result, arrays[2]]), [arrays[0] @ arrays[1], arrays[2]])
    assert_close(result, np.asarray(expected), 1e-5)


@GATE
def test_dropout_of_a_sum_is_added_to_the_residual() -> None:
    arrays = [floats(50, 8), floats(8), floats(50, 8), np.array(0.25, np.float32), np.array(True)]
    model = dmljax.onnx.load(one_node("BiasDropout", arrays, 2))
    result, mask = model(*arrays, key=jax.random.key(0))
    total = (arrays[0] + arrays[1]) / np.float32(0.75)
    assert 0.6 < np.mean(mask) < 0.9
    assert_close(result, np.where(mask, total, 0) + arrays[2], 1e-5)
    arrays[4] = np.array(False)
    assert_close(model(*arrays)[0], arrays[0] + arrays[1] + arrays[2], 1e-6)


def test_a_bias_and_a_skip_connection_are_added() -> None:
    arrays = [floats(2, 5, 8), floats(8), floats(2, 5, 8)]
    (result,) = run(one_node("BiasAdd", arrays), arrays)
    assert_close(result, sum(arrays), 1e-6)


@pytest.mark.parametrize(("is_inner", "shape"), [(0, (1, 1, 3, 4)), (1, (3, 4))])
def test_a_bias_is_added_before_a_softmax_of_all_inner_dimensions(is_inner: int, shape: Any) -> None:
    x, bias = floats(2, 5, 3, 4), floats(*shape)
    (result,) = run(one_node("BiasSoftmax", [x, bias], axis=2, is_inner_broadcast=is_inner), [x, bias])
    powers = np.exp((x + bias).astype(float))
    assert_close(result, (powers / powers.sum((2, 3), keepdims=True)).astype(np.float32), 1e-6)


def test_the_mean_of_quantized_numbers_equals_the_dequantized_mean() -> None:
    arrays = [u8(3, 4, 5), *PARAMETERS]
    (result,) = run(one_node("QLinearReduceMean", arrays, axes=[0, 2], keepdims=1), arrays)
    mean = 0.05 * (arrays[0].astype(float) - 120).mean((0, 2), keepdims=True)
    assert_close(result, np.clip(np.round(mean / 0.02) + 7, 0, 255).astype(np.uint8), 0)


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.gate(but=1)
def test_a_quantized_softmax_keeps_an_open_batch(opset: int) -> None:
    arrays = [u8(2, 3, 5), scale(0.05), zero(120), scale(1 / 256), zero(0)]
    proto = one_node("QLinearSoftmax", arrays, axis=1, opset=opset)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model = dmljax.onnx.load(proto)
    (batch,) = jax.export.symbolic_shape("n")
    structs = [
        jax.ShapeDtypeStruct((batch, 3, 5), np.uint8),
        *(jax.ShapeDtypeStruct((), array.dtype) for array in arrays[1:]),
    ]
    assert_close(jax.export.export(jax.jit(model))(*structs).call(*arrays), np.asarray(model(*arrays)), 0)


OF_PROVIDER: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Add": ([floats(4, 4), floats(4, 4)], {}),
    "BatchNormalization": ([floats(2, 3, 4), floats(3), floats(3), floats(3), np.abs(floats(3))], {}),
    "Conv": ([floats(1, 2, 4, 4), floats(2, 2, 3, 3)], {"pads": [1, 1, 1, 1]}),
    "ConvTranspose": ([floats(1, 2, 4, 4), floats(2, 3, 3, 3)], {"strides": [2, 2]}),
    "Gemm": ([floats(4, 4), floats(4, 4)], {"transA": 1}),
    "InstanceNormalization": ([floats(2, 3, 4), floats(3), floats(3)], {}),
    "MatMul": ([floats(4, 4), floats(4, 4)], {}),
    "MeanVarianceNormalization": ([floats(2, 3, 4, 4)], {}),
    "Sum": ([floats(4, 4), floats(4, 4), floats(4, 4)], {}),
}


@pytest.mark.parametrize("operator", few_of(OF_PROVIDER, "Conv", "Gemm"))
@pytest.mark.gate(but=1)
def test_fused_operators_apply_the_operator_and_then_the_activation(operator: str) -> None:
    arrays, attributes = OF_PROVIDER[operator]
    fused: dict[str, Any] = {"fused_activation": "LeakyRelu", "fused_alpha": 0.25}
    model = one_node(f"DmlFused{operator}", arrays, domain="com.microsoft.dml", **fused, **attributes)
    (result,), (plain,) = run(model, arrays), run(one_node(operator, arrays, domain="", **attributes), arrays)
    assert_close(result, np.where(plain < 0, 0.25 * plain, plain).astype(np.float32), 1e-6)


def test_an_unknown_activation_is_refused() -> None:
    arrays = [floats(1, 2, 4, 4), floats(2, 2, 3, 3)]
    model = dmljax.onnx.load(one_node("FusedConv", arrays, activation="Rely"))
    with pytest.raises(DmlError, match="activation must be one of"):
        model(*arrays)


def test_unsupported_attributes_of_attention_are_refused_by_name() -> None:
    model = dmljax.onnx.load(one_node("Attention", [X, WEIGHT, BIAS], num_heads=2, past_present_share_buffer=1))
    with pytest.raises(Unsupported, match="past_present_share_buffer: not supported"):
        model(X, WEIGHT, BIAS)


@pytest.mark.parametrize("size", [0, 2])
@pytest.mark.gate(but=1)
def test_attention_rotates_queries_and_keys_by_their_positions(size: int) -> None:
    # ONNX Runtime does so only on GPUs.
    arrays = [X[:, :1], WEIGHT, BIAS, np.ones((2, 4), np.int32), PAST]
    turned = one_node("Attention", arrays, [True, True], num_heads=2, do_rotary=1, rotary_embedding_dim=size)
    projected = X[:, :1] @ WEIGHT + BIAS
    angles = 3 * 10000.0 ** -(np.arange(0, size or 4, 2) / (size or 4))
    tables = [np.tile(of(angles), (16, 1)).astype(np.float32) for of in (np.cos, np.sin)]
    parts = []
    for part in np.split(projected, 3, -1)[:2]:
        inputs = [np.ascontiguousarray(part), np.array([3]), *tables]
        more: dict[str, Any] = {"num_heads": 2, "rotary_embedding_dim": size} if size else {}
        parts += by_onnxruntime(one_node("RotaryEmbedding", inputs, **more), inputs)
    actual = run(turned, arrays)
    inputs = [*parts, projected[..., 16:], *PAST]
    named = [*inputs[:3], None, None, None, *inputs[3:]]
    expected = by_onnxruntime(one_node("MultiHeadAttention", named, [True] * 3, num_heads=2), inputs)
    assert_close(actual[0], expected[0], 1e-5)
    assert_close(actual[1], np.stack(expected[1:]), 1e-5)


def test_packed_sequences_may_be_longer_than_the_table_of_angles() -> None:
    arrays = [floats(1, 20, 16), integers(0, 16, (1, 20), np.int64), COSINES, SINES]
    model = one_node("RotaryEmbedding", arrays, is_packed_batching=1, num_heads=2)
    assert_close(run(model, arrays)[0], by_onnxruntime(model, arrays)[0], 1e-5)


def test_attention_has_derivatives_and_is_mapped() -> None:
    model = dmljax.onnx.load(one_node("MultiHeadAttention", [QUERY, KEY, VALUE], num_heads=2))
    grads = jax.jit(jax.grad(lambda query: jnp.sum(model(query, KEY, VALUE) ** 2)))(QUERY)
    step = 1e-2 * floats(*QUERY.shape)
    ahead, behind = (np.sum(np.asarray(model(QUERY + sign * step, KEY, VALUE), float) ** 2) for sign in (1, -1))
    assert np.sum(grads * step) == pytest.approx((ahead - behind) / 2, rel=1e-2)
    several = jax.jit(jax.vmap(model, (0, None, None)))(jnp.stack([QUERY, 2 * QUERY]), KEY, VALUE)
    np.testing.assert_allclose(several[1], model(2 * QUERY, KEY, VALUE), rtol=1e-5, atol=1e-6)
