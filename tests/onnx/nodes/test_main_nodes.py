"""ONNX's operators beside ONNX Runtime, where ONNX's own cases leave something out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, SAMPLED
from onnx import helper
from onnx_models import FLOAT, by_onnxruntime, model, one_node, value

import dmljax.onnx
from dmljax import DmlError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def both(operator: str, arrays: list[Any], **attributes: Any) -> tuple[Any, Any]:
    """The result of a node here and in ONNX Runtime."""
    proto = one_node(operator, arrays, domain="", version=18, **attributes)
    present = [array for array in arrays if array is not None]
    return dmljax.onnx.load(proto)(*present), by_onnxruntime(proto, present)[0]


@SAMPLED
@pytest.mark.parametrize("shape", [(2, 2), (5, 3), (2, 0)])
@pytest.mark.parametrize("axis", [0, -2])
def test_elements_are_gathered_at_fewer_indices_than_there_are(shape: Any, axis: int) -> None:
    indices = np.arange(np.prod(shape)).reshape(shape) % 3
    result, expected = both("GatherElements", [X, indices], axis=axis)
    np.testing.assert_array_equal(result, expected)


@SAMPLED
@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("axis", [0, 1])
def test_elements_are_scattered_to_fewer_indices_than_there_are(axis: int, reduction: str) -> None:
    indices, updates = np.array([[1, 2], [0, -1]]), np.array([[50, -50], [60, -60]], np.float32)
    result, expected = both("ScatterElements", [X, indices, updates], axis=axis, reduction=reduction)
    np.testing.assert_array_equal(result, expected)


def test_known_indices_out_of_range_are_refused() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Squeeze", ["sizes"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["places"]),
        helper.make_node("Gather", ["table", "places"], ["y"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "table": np.array([5.0, 7.0], np.float32)}
    run = dmljax.onnx.load(model(nodes, [value("x", FLOAT, ["n"])], [value("y", FLOAT, ["n"])], constants))
    np.testing.assert_array_equal(run(jnp.zeros(2, jnp.float32)), [5, 7])
    for call in (run, jax.jit(run)):
        with pytest.raises(DmlError, match=r"Gather.indices must be in \[-2, 2\); got 2"):
            call(jnp.zeros(3, jnp.float32))


@GATE
def test_few_indices_have_derivatives_and_a_graph() -> None:
    indices, updates = np.array([[1, 2], [0, 1]], np.int32), np.array([[50, -50], [60, -60]], np.float32)
    run = dmljax.onnx.load(one_node("ScatterElements", [X, indices, updates], domain="", version=18))
    grads = jax.grad(lambda x: jnp.sum(run(x, indices, updates)))(X)
    np.testing.assert_array_equal(grads, [[0, 1, 1, 1], [0, 0, 1, 1], [1, 0, 1, 1]])
    kinds = {type(node).__name__ for node in run.graph().nodes.values()}
    assert {"ScatterDesc", "JoinDesc"} <= kinds


@pytest.mark.parametrize("operator", ["GatherElements", "ScatterElements"])
def test_indices_that_reach_beyond_another_axis_are_refused(operator: str) -> None:
    indices = np.zeros((3, 5), np.int64)
    arrays = [X, indices, np.zeros((3, 5), np.float32)][: 2 + (operator == "ScatterElements")]
    run = dmljax.onnx.load(one_node(operator, arrays, domain=""))
    with pytest.raises(DmlError, match=r"indices must be no larger than data \(3, 4\), except along axis 0"):
        run(*arrays)


@SAMPLED
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceLogSumExp"])
def test_empty_reductions_equal_onnxruntime(operator: str, dtype: Any) -> None:
    result, expected = both(operator, [np.zeros((2, 0, 3), dtype), np.array([1])])
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype


def steps(number: float) -> Any:
    return np.array(number / 64, np.float32)


@SAMPLED
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("operator", ["QLinearConv", "QLinearMatMul", "QGemm", "QLinearMul"])
def test_quantized_sums_next_to_halves_are_rounded_as_in_onnxruntime(operator: str, dtype: Any) -> None:
    column, row = np.arange(256).astype(dtype), np.arange(-64, 64).astype(np.int8)
    odd = np.array(3, dtype)
    left, right = (steps(16), np.array(100, dtype)), (steps(8), np.array(0, np.int8))
    last = (steps(60), odd)
    if operator == "QLinearConv":
        arrays = [column.reshape(1, 1, 16, 16), *left, row.reshape(-1, 1, 1, 1), *right, *last]
    elif operator == "QLinearMul":
        arrays = [column[:, None], *left, row.astype(dtype)[None], steps(8), odd, steps(128), odd]
    else:
        bias = [np.arange(128, dtype=np.int32)] if operator == "QGemm" else []
        arrays = [column[:, None], *left, row[None], *right, *bias, *last]
    domain = "com.microsoft" if operator in ("QGemm", "QLinearMul") else ""
    proto = one_node(operator, arrays, domain=domain)
    np.testing.assert_array_equal(dmljax.onnx.load(proto)(*arrays), by_onnxruntime(proto, arrays)[0])


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize(("axis", "shape"), [(1, (4, 6)), (0, (7, 2))])
@pytest.mark.gate(but=1)
def test_the_last_block_of_an_axis_may_be_shorter(axis: int, shape: Any, operator: str) -> None:
    random, sizes = np.random.default_rng(0), np.array(shape)
    sizes[axis] = -(-shape[axis] // 4)
    x = random.standard_normal(shape).astype(np.float32)
    x = x if operator == "QuantizeLinear" else (40 * x).astype(np.int8)
    scale, zero = random.uniform(0.01, 0.1, sizes).astype(np.float32), random.integers(-9, 9, sizes, np.int8)
    proto = one_node(operator, [x, scale, zero], domain="", version=21, axis=axis, block_size=4)
    (expected,) = by_onnxruntime(proto, [x, scale, zero])
    np.testing.assert_array_equal(dmljax.onnx.load(proto)(x, scale, zero), expected)


def test_blocks_that_do_not_cover_an_axis_are_refused() -> None:
    x, scale = np.zeros((4, 6), np.int8), np.ones((4, 1), np.float32)
    run = dmljax.onnx.load(one_node("DequantizeLinear", [x, scale], domain="", version=21, axis=1, block_size=4))
    with pytest.raises(DmlError, match="must have 2 blocks of 4 along axis 1"):
        run(x, scale)


def test_a_quantized_product_may_have_a_scale_for_each_row() -> None:
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, 2], [3, 4]], np.uint8)
    scales, zeros = np.array([0.5, 2.0], np.float32), np.array([1, 2], np.uint8)
    one, zero = np.array(1, np.float32), np.array(0, np.uint8)
    result = dmljax.onnx.load(one_node("QLinearMatMul", [a, scales, zeros, b, one, zero, one, zero], domain=""))(
        *(a, scales, zeros, b, one, zero, one, zero)
    )
    expected = np.clip(np.rint((a.astype(float) - zeros[:, None]) @ b * scales[:, None]), 0, 255)
    np.testing.assert_array_equal(result, expected)


@SAMPLED
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_integers_are_reduced_as_in_onnxruntime(operator: str) -> None:
    x = np.array([[3, 8, 2], [5, 1, 1]], np.int32) * (-1 if operator == "ReduceMean" else 1)
    result, expected = both(operator, [x, np.array([1])])
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype


@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceL2", "ReduceLogSumExp"])
def test_integers_are_reduced_along_no_axes(operator: str) -> None:
    for x in (np.array(3, np.int32), np.array([[3, 2], [0, 2]], np.int32)):
        arrays = [x, np.array([], np.int64)]
        proto = one_node(operator, arrays, domain="", version=18, noop_with_empty_axes=1)
        np.testing.assert_array_equal(dmljax.onnx.load(proto)(*arrays), x)


@SAMPLED
@pytest.mark.parametrize(("start", "end", "step"), [(-3, -3, -1), (-9, -9, -2), (9, -9, -1), (-1, 0, -1)])
def test_a_slice_backwards_begins_at_the_first_element_or_later(start: int, end: int, step: int) -> None:
    bounds = [np.array([bound]) for bound in (start, end, 0, step)]
    result, expected = both("Slice", [X[:2], *bounds])
    np.testing.assert_array_equal(result, expected)


RAMP = np.arange(10, dtype=np.float32).reshape(1, 1, 2, 5) ** 2


def resized(x: Any, scales: list[float], roi: list[float] | None = None, **attributes: Any) -> tuple[Any, Any]:
    more = [None if roi is None else np.array(roi, np.float32), np.array(scales, np.float32)]
    return both("Resize", [x, *more], **attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_half_pixels_of_tensorflow_are_not_subtracted_and_move_only_dimensions_that_are_scaled(mode: str) -> None:
    # The position is (x + 0.5) / scale.
    coordinates = "tf_half_pixel_for_nn"
    result, expected = resized(
        RAMP, [1, 1, 1, 0.6], mode=mode, coordinate_transformation_mode=coordinates, nearest_mode="floor"
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [2**31 - 1, -(2**24) - 1])
def test_nearest_elements_of_a_crop_keep_their_bits(value: int) -> None:
    x = np.array([[value, 1, 2, value]], np.int32)
    crop: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "nearest"}
    result, expected = resized(x, [1, 0.75], [0, 0, 1, 1], **crop)
    np.testing.assert_array_equal(result, expected)
    row = np.array([[np.inf, 1, 2, np.nan]], np.float32)
    result, expected = resized(row, [1, 0.75], [0, 0, 1, 1], **crop)
    np.testing.assert_array_equal(result, expected)


def test_the_end_of_a_crop_is_inside() -> None:
    # In floats, -0.14648986 + (1 + 0.14648986) is more than 1.
    crop: dict[str, Any] = {
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "mode": "linear",
        "extrapolation_value": 9.0,
    }
    result, expected = resized(RAMP[0, 0, :, :4].T, [0.5, 1], [-0.14648986, 0, 1, 1], **crop)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert result[-1].tolist() == RAMP[0, 0, :, 3].tolist()


@SAMPLED
@pytest.mark.parametrize("dtype", [np.int8, np.int32])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_averages_of_integers_are_rounded_to_nearest(mode: str, dtype: Any) -> None:
    # ONNX does not say how; ONNX Runtime rounds toward 0 where it takes integers.
    x, scales = np.array([[0, 3, 10, -9]], dtype), np.array([1, 2], np.float32)

    def run(x: Any) -> Any:
        return dmljax.onnx.load(one_node("Resize", [x, None, scales], domain="", mode=mode))(x, scales)

    result, exact = run(x), run(x.astype(np.float32))
    np.testing.assert_array_equal(result, np.rint(exact))
    assert result.dtype == dtype


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_empty_batch_of_images_stays_empty(mode: str) -> None:
    images = np.zeros((0, 2, 3, 4), np.float32)
    result, expected = resized(images, [1, 1, 2, 0.5], mode=mode)
    assert result.shape == expected.shape == (0, 2, 6, 2)
    sizes = np.array([0, 2, 5, 5])
    run = dmljax.onnx.load(one_node("Resize", [images, None, None, sizes], domain="", mode=mode))
    assert run(images, sizes).shape == (0, 2, 5, 5)
    with pytest.raises(DmlError, match="X must not be empty where it is resized"):
        run(images, np.array([1, 2, 5, 5]))


def test_corners_of_a_single_element_are_that_element() -> None:
    options: dict[str, Any] = {
        "antialias": 1,
        "exclude_outside": 1,
        "mode": "linear",
        "coordinate_transformation_mode": "align_corners",
    }
    result, expected = resized(RAMP[..., 2:3], [1, 1, 2, 3], **options)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.gate(but=1)
def test_samples_may_have_another_type_than_the_grid(dtype: Any) -> None:
    grid = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 2, 3, 2)

    def run(x: Any) -> Any:
        return dmljax.onnx.load(one_node("GridSample", [x, grid], domain="", mode="bicubic"))(x, grid)

    result = run(RAMP.astype(dtype))
    np.testing.assert_allclose(result, run(RAMP), rtol=2e-3)
    assert result.dtype == jax.dtypes.canonicalize_dtype(dtype)
