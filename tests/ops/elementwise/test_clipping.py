"""ELEMENT_WISE_CLIP, CLIP1, their gradients, and ELEMENT_WISE_THRESHOLD."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_clipping import clip_desc
from helpers import (
    FLOATS,
    INTEGERS,
    SAMPLED,
    assert_same_bits,
    few_types,
    needs_x64,
    random_array,
    refuses,
    specials,
)

import dmljax
from dmljax import directml
from dmljax.directml import InvalidDesc, InvalidType, ScaleBias

NAN, INF = math.nan, math.inf
FLT_MAX = float(np.finfo(np.float32).max)
CLIPS: list[Any] = [dmljax.element_wise_clip, dmljax.element_wise_clip1]
GRADIENTS: list[Any] = [dmljax.element_wise_clip_grad, dmljax.element_wise_clip_grad1]

# Functions


@SAMPLED
@pytest.mark.parametrize("dtype", [*FLOATS, *(dtype for dtype in INTEGERS if dtype.kind == "i")], ids=str)
@pytest.mark.parametrize("clip", CLIPS)
def test_clip_keeps_elements_within_bounds(clip: Any, dtype: Any) -> None:
    input = np.array([-9, -2, -1, 0, 2, 3, 9], dtype)
    assert_same_bits(clip(input, min=-2, max=3), np.array([-2, -2, -1, 0, 2, 3, 3], dtype))


@pytest.mark.parametrize("clip", CLIPS)
def test_the_lower_bound_wins_above_the_upper_one(call: Any, clip: Any) -> None:
    assert call(clip, np.array([-9, 2, 3, 4, 9], np.int8), min=5, max=1).tolist() == [5] * 5
    assert call(clip, np.array([-INF, 2.0, INF], np.float32), min=5.0, max=-INF).tolist() == [5.0] * 3


@SAMPLED
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.float16])
@pytest.mark.parametrize("clip", CLIPS)
def test_traced_and_static_bounds_clip_the_same(clip: Any, dtype: Any) -> None:
    x = np.array([0, 1, 5, 7, 100], dtype)
    compiled = jax.jit(clip)
    for low, high in ((0, 7), (2, 3), (-1000, 6), (3, 1000), (5, 1)):
        assert_same_bits(compiled(x, low, high), clip(x, low, high))


@SAMPLED
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("clip", [*CLIPS, lambda x, min, max: dmljax.element_wise_threshold(x, min=min)])
def test_clip_keeps_every_bit_of_nan_and_of_unbounded_elements(clip: Any, dtype: Any) -> None:
    input = specials(dtype)
    for bound in (None, NAN):
        assert_same_bits(clip(input, min=bound, max=bound), input)
    assert_same_bits(clip(input, min=-INF, max=INF), input)
    with np.errstate(invalid="ignore"):
        nan = input[np.isnan(input)]
    assert_same_bits(clip(nan, min=-1.0, max=1.0), nan)


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_subnormals_compare_as_distinct_numbers(call: Any, dtype: Any) -> None:
    bits = np.arange(6, dtype=f"u{dtype.itemsize}")
    bounds = {"min": bits[2:3].view(dtype)[0], "max": bits[4:5].view(dtype)[0]}
    result = call(dmljax.element_wise_clip, bits.view(dtype), **bounds)
    assert_same_bits(result, np.array([2, 2, 2, 3, 4, 4], bits.dtype).view(dtype))
    gradient = call(dmljax.element_wise_clip_grad, bits.view(dtype), np.ones(6, dtype), **bounds)
    assert gradient.tolist() == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("bounds", [(None, 2), (-2, None)])
def test_a_bound_may_be_missing(call: Any, bounds: tuple[int | None, int | None]) -> None:
    least, most = bounds
    for dtype in ("int8", "float32"):
        input = np.array([-128, -2, 0, 2, 127], dtype)
        expected = [
            x if (least is None or x >= least) and (most is None or x <= most) else least or most for x in input
        ]
        assert_same_bits(call(dmljax.element_wise_clip, input, min=least, max=most), np.array(expected, dtype))


def test_bounds_on_integers_lose_their_fraction_toward_zero(call: Any) -> None:
    input = np.array([-3, -2, -1, 0, 1, 2, 3], np.int8)
    assert call(dmljax.element_wise_clip, input, min=-1.9, max=2.9).tolist() == [-1, -1, -1, 0, 1, 2, 2]
    assert call(dmljax.element_wise_clip, np.array([0, 1, 9], np.uint8), min=-0.9, max=1.9).tolist() == [0, 1, 1]
    assert call(dmljax.element_wise_threshold, input, min=-1.9).tolist() == [-1, -1, -1, 0, 1, 2, 3]


def test_bounds_on_float16_are_rounded_to_it(call: Any) -> None:
    input = np.array([0.0, 9.0, INF, -INF], np.float16)
    result = call(dmljax.element_wise_clip, input, min=0.1, max=np.float32(1e6))
    least = float(np.float16(0.1))
    assert_same_bits(result, np.array([least, 9.0, INF, least], np.float16))


@needs_x64
@pytest.mark.parametrize("clip", CLIPS)
def test_bounds_on_64_bit_integers_are_exact(call: Any, clip: Any) -> None:
    input = np.array([-(2**63), 0, 2**62 + 1, 2**63 - 1])
    assert call(clip, input, min=-(2**62) - 1, max=2**62 + 3).tolist() == [-(2**62) - 1, 0, 2**62 + 1, 2**62 + 3]
    result = call(clip, input.view(np.uint64), min=2**63 - 2, max=2**63 + 1)
    assert result.tolist() == [2**63, 2**63 - 2, 2**63 - 2, 2**63 - 1]


def test_the_scale_bias_comes_before_the_bounds(call: Any) -> None:
    input = np.array([1.0, 2.0, -1.0], np.float32)
    result = call(dmljax.element_wise_clip, input, min=0.0, max=5.0, scale_bias=ScaleBias(3.0, 1.0))
    assert result.tolist() == [4.0, 5.0, 0.0]
    result = call(dmljax.element_wise_threshold, input, min=0.0, scale_bias=ScaleBias(3.0, 1.0))
    assert result.tolist() == [4.0, 7.0, 0.0]
    wraps = np.array([1, 60, -1], np.int8)  # 60 * 3 is -76
    assert call(dmljax.element_wise_clip1, wraps, min=0, max=5, scale_bias=ScaleBias(3, 1)).tolist() == [4, 0, 0]


@pytest.mark.parametrize("clip", CLIPS)
def test_a_bound_outside_the_type_has_no_effect(call: Any, clip: Any) -> None:
    integers = np.array([-128, 0, 127], np.int8)
    for lowest, highest in ((-1000, 1000.5), (-INF, INF), (np.float32(-3e38), np.float32(3e38)), (-129, 10**400)):
        assert call(clip, integers, min=lowest, max=highest).tolist() == integers.tolist()
    assert call(clip, integers, min=-1000, max=50).tolist() == [-128, 0, 50]
    halves = np.array([-INF, -65504, 65504, INF], np.float16)
    assert_same_bits(call(clip, halves, min=-1e30, max=1e30), halves)


@pytest.mark.parametrize("gradient", [dmljax.element_wise_clip_grad, dmljax.element_wise_clip_grad1])
def test_the_gradient_is_zero_at_a_bound_but_not_at_the_end_of_the_type(call: Any, gradient: Any) -> None:
    ends, upper = np.array([-128, 127], np.int8), np.array([3, 4], np.int8)
    assert call(gradient, ends, upper, min=-1000, max=INF).tolist() == [3, 4]
    assert call(gradient, ends, upper, min=-128, max=127).tolist() == [0, 0]


KNOWN = "min must be of int8, or a Python number that is known while tracing; got an array of "


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"min": 300}, InvalidDesc, "min must be a whole number in [-128, 127] to fit int8; got 300"),
        ({"max": -INF}, InvalidDesc, "max must be a whole number in [-128, 127] to fit int8; got -inf"),
        ({"min": NAN}, InvalidDesc, "min must be a whole number in ...; got nan"),
        ({"input": np.ones(2, np.float32), "max": 10**400}, InvalidDesc, "must fit float32; got an int of 1329 bits"),
        ({"max": ScaleBias(1.0, 2.0)}, InvalidType, "max must be a JAX or NumPy array; got ScaleBias"),
        ({"min": np.ones(2, np.int8)}, InvalidDesc, "min must be a scalar; got shape (2,)"),
        ({"min": jnp.ones((), jnp.int32)}, InvalidType, f"{KNOWN}int32"),
        ({"min": jnp.asarray(1.5)}, InvalidType, f"{KNOWN}float"),
        ({"input": np.ones(2, bool), "min": 0}, InvalidType, "input must be of an integer or floating type; got bool"),
        ({"scale_bias": ScaleBias(0.5, 0)}, InvalidDesc, "scale must be a whole number in [-128, 127] to ...; got 0.5"),
    ],
)
@pytest.mark.parametrize("clip", CLIPS)
def test_clip_refuses(clip: Any, change: dict[str, Any], error: type[Exception], message: str) -> None:
    with refuses(f"{clip.__name__}: ...{message}", error):
        clip(**{"input": np.ones(2, np.int8), "min": None, "max": None} | change)


@pytest.mark.parametrize(
    ("upper", "error", "message"),
    [
        (np.ones(2, np.float16), InvalidType, "input_gradient must be of float32, as input is; got float16"),
        (np.ones(3, np.float32), InvalidDesc, "must have shapes that broadcast; got (2,) and (3,)"),
    ],
)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_gradient_of_another_type_or_shape_is_refused(gradient: Any, upper: Any, error: Any, message: str) -> None:
    with refuses(f"{gradient.__name__}: ...{message}", error):
        gradient(np.ones(2, np.float32), upper, 0, 1)


# Gradients


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_the_gradient_is_zero_at_the_bounds_and_beyond(call: Any, gradient: Any) -> None:
    input = np.array([-INF, -1.0, -0.5, 2.0, 2.5, NAN], np.float32)
    upper = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], np.float32)
    assert str(call(gradient, input, upper, min=-1.0, max=2.0).tolist()) == "[0.0, 0.0, 3.0, 0.0, 0.0, 6.0]"
    assert call(gradient, np.array([1, 2, 3], np.int8), np.array([7, 8, 9], np.int8), min=1, max=3).tolist() == [
        0,
        8,
        0,
    ]
    assert call(gradient, input, upper, min=None, max=None).tolist() == upper.tolist()
    assert call(gradient, input, upper, min=NAN, max=2.0).tolist() == [1.0, 2.0, 3.0, 0.0, 0.0, 6.0]


@SAMPLED
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("bounds", [(1.0, 2.0), (2.0, 1.0), (-0.0, 0.0), (-INF, INF), (None, 1.0), (0.0, None)])
def test_the_gradient_is_that_of_the_function_bit_for_bit(bounds: tuple[Any, Any], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    least, most = bounds
    input, upper = random_array(rng, dtype, (400,)), random_array(rng, dtype, (400,))
    _, pullback = jax.vjp(lambda x: dmljax.element_wise_clip(x, least, most), input)
    assert_same_bits(dmljax.element_wise_clip_grad(input, upper, least, most), pullback(jnp.asarray(upper))[0])


# Descriptors


@pytest.mark.parametrize("limit", [FLT_MAX, INF, 300.0, 127.5])
def test_a_float_bound_outside_the_integer_range_has_no_effect(limit: float) -> None:
    input, none = np.array([-128, -1, 0, 1, 127], np.int8), {"min": -limit - 1, "max": limit}
    assert directml.lower(clip_desc("Clip", "INT8", **none))(input).tolist() == input.tolist()
    assert directml.lower(clip_desc("Clip", "INT8", max=limit))(input).tolist() == [0, 0, 0, 1, 127]
    assert directml.lower(clip_desc("Threshold", "INT8", min=-limit - 1))(input).tolist() == input.tolist()
    assert directml.lower(clip_desc("ClipGrad", "INT8", **none))(input, input).tolist() == input.tolist()


def test_float_bounds_of_a_desc_take_the_type_of_the_elements() -> None:
    input = np.array([0, 1, 2, 3, 255], np.uint8)
    assert directml.lower(clip_desc("Clip", "UINT8", min=1.9, max=2.9))(input).tolist() == [1, 1, 2, 2, 2]
    assert directml.lower(clip_desc("Clip", "UINT8", min=-5, max=-0.5))(input).tolist() == [0, 0, 0, 0, 0]
    halves = np.array([0.0, 65504.0, INF, NAN, -INF], np.float16)
    result, least = directml.lower(clip_desc("Clip", "FLOAT16", min=0.1, max=FLT_MAX))(halves), float(np.float16(0.1))
    assert str(result.tolist()) == str([least, 65504.0, INF, NAN, least])


@needs_x64
def test_bounds_of_clip1_are_exact_while_those_of_clip_are_floats() -> None:
    input = np.array([0, 2**24 + 1, 2**62 + 1])
    result = directml.lower(clip_desc("Clip1", "INT64", 3, min=1, max=2**62 + 1))(input)
    assert result.tolist() == [1, 2**24 + 1, 2**62 + 1]
    result = directml.lower(clip_desc("Clip", "INT64", 3, min=1, max=2**24 + 1))(input)
    assert result.tolist() == [1, 2**24, 2**24]


@pytest.mark.parametrize(
    ("change", "message"), [({"max": 300}, "Max ...; got 300"), ({"min": 0.5}, "Min ...; got 0.5")]
)
def test_bounds_of_clip1_are_of_its_own_type(change: dict[str, Any], message: str) -> None:
    with refuses(f"DML_OPERATOR_ELEMENT_WISE_CLIP1: {message}", InvalidDesc):
        clip_desc("Clip1", "INT8", **change)
