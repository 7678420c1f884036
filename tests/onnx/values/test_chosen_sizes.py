"""Results whose sizes depend on values, samples between pixels, transforms, and casts to small types."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from helpers import FULL, GATE, compilations
from onnx import TensorProto, helper
from onnx_models import BOOL, FLOAT, INT64, model, value

import dmljax.onnx
from dmljax.directml import InvalidDesc, Unsupported


def floats(values: Any) -> Any:
    return np.asarray(values, np.float32)


def load_model(operator: str, kinds: Any, outputs: int = 1, opset: int = 21, **options: Any) -> Any:
    """A model of one operator, with inputs a, b ... of these kinds."""
    attributes = {name: option for name, option in options.items() if name != "maximum"}
    names, results = [*"abcdef"[: len(kinds)]], [*"uvwxyz"[:outputs]]
    node = helper.make_node(operator, names, results, name="one", **attributes)
    inputs = [value(name, element_type, None) for name, element_type in zip(names, kinds, strict=True)]
    maximum = {"u": options["maximum"]} if "maximum" in options else None
    return dmljax.onnx.load(model([node], inputs, results, opset=opset), maximum_sizes=maximum)


@GATE
def test_unique_elements_are_exact_and_a_bound_fills_with_zeros() -> None:
    x = floats([3, 1, 3, 2])
    values, first, inverse, counts = load_model("Unique", [FLOAT], 4, sorted=0)(x)
    assert (values.tolist(), first.tolist(), inverse.tolist(), counts.tolist()) == (
        [3, 1, 2],
        [0, 1, 3],
        [0, 1, 0, 2],
        [2, 1, 1],
    )
    values, first, inverse, counts = jax.jit(load_model("Unique", [FLOAT], 4, sorted=0, maximum=5))(x)
    assert values.tolist() == [3, 1, 2, 0, 0]
    assert counts.tolist() == [2, 1, 1, 0, 0]
    assert inverse.tolist() == [0, 1, 0, 2]
    with pytest.raises(Unsupported, match=r"one\.Unique\.a must be known"):
        jax.jit(load_model("Unique", [FLOAT]))(x)


def test_compressed_elements_fill_a_bound_with_zeros() -> None:
    x, condition = floats([[1, 2], [3, 4], [5, 6]]), np.array([False, True, True])
    assert load_model("Compress", [FLOAT, BOOL], axis=0)(x, condition).tolist() == [[3, 4], [5, 6]]
    bounded = jax.jit(load_model("Compress", [FLOAT, BOOL], axis=0, maximum=3))
    assert bounded(x, condition).tolist() == [[3, 4], [5, 6], [0, 0]]


@pytest.fixture(scope="module")
def boxes() -> Any:
    random = np.random.default_rng(0)
    corners = random.uniform(0, 10, (2, 30, 2))
    boxes = np.concatenate([corners, corners + random.uniform(-4, 4, (2, 30, 2))], -1)
    return boxes.astype("float32"), random.uniform(size=(2, 3, 30)).round(2).astype("float32")


@FULL
@pytest.mark.parametrize("center_point_box", [0, 1])
def test_boxes_are_those_of_onnx_runtime_and_a_bound_fills_with_minus_one(boxes: Any, center_point_box: int) -> None:
    options = {"center_point_box": center_point_box}
    kinds = [FLOAT, FLOAT, INT64, FLOAT, FLOAT]
    inputs = (*boxes, np.array([5]), floats([0.3]), floats([0.2]))
    node = helper.make_node("NonMaxSuppression", [*"abcde"], ["u"], **options)
    typed = [value(name, element_type, None) for name, element_type in zip("abcde", kinds, strict=True)]
    proto = model([node], typed, [value("u", INT64, None)])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (expected,) = session.run(None, dict(zip("abcde", inputs, strict=True)))
    assert 10 < len(expected) <= 30
    np.testing.assert_array_equal(load_model("NonMaxSuppression", kinds, **options)(*inputs), expected)
    bounded = jax.jit(load_model("NonMaxSuppression", kinds, maximum=40, **options))(*inputs)
    np.testing.assert_array_equal(bounded[: len(expected)], expected)
    assert (np.asarray(bounded)[len(expected) :] == -1).all()


@GATE
def test_any_number_of_boxes_is_chosen_without_a_gradient_and_compiled_once(boxes: Any) -> None:
    constants = {"c": np.array([2**63 - 1]), "d": np.float32(0.3)}
    nodes = [helper.make_node("NonMaxSuppression", [*"abcd"], ["u"]), helper.make_node("Identity", ["a"], ["v"])]
    inputs = [value("a", FLOAT, None), value("b", FLOAT, None)]
    proto = model(nodes, inputs, [value("u", INT64, None), value("v", FLOAT, None)], constants)
    expected, _ = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"a": boxes[0], "b": boxes[1]})
    choose = dmljax.onnx.load(proto)
    assert len(expected) > 30
    np.testing.assert_array_equal(choose(*boxes)[0], expected)
    with compilations() as events:
        choose(*boxes)
    assert not events
    bounded = dmljax.onnx.load(proto, maximum_sizes="largest")
    assert jax.eval_shape(bounded, *boxes)[0].shape == (180, 3), "2 batches, 3 classes, 30 boxes"
    assert np.isfinite(jax.jit(jax.grad(lambda box: bounded(box, boxes[1])[1].sum()))(boxes[0])).all()


@FULL
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_samples_between_pixels_are_those_of_onnx_runtime(padding: str, mode: str, align_corners: int) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 3, 5, 4)).astype("float32")
    grid = random.uniform(-1.7, 1.7, (2, 6, 7, 2)).astype("float32")
    options = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    node = helper.make_node("GridSample", ["a", "b"], ["u"], **options)
    proto = model([node], [value("a", FLOAT, None), value("b", FLOAT, None)], [value("u", FLOAT, None)], opset=20)
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"a": x, "b": grid})
    sample = dmljax.onnx.load(proto)
    np.testing.assert_allclose(jax.jit(sample)(x, grid), expected, rtol=1e-4, atol=1e-5)
    assert jnp.isfinite(jax.grad(lambda x: sample(x, jnp.asarray(grid)).sum())(jnp.asarray(x))).all()


def test_fourier_transforms_invert_each_other_in_any_opset() -> None:
    x = np.random.default_rng(2).standard_normal((2, 9, 1)).astype("float32")
    first = load_model("DFT", [FLOAT], opset=17, axis=1)(x)
    expected = np.fft.fft(x[..., 0])
    np.testing.assert_allclose(first, np.stack([expected.real, expected.imag], -1), rtol=1e-4, atol=1e-5)
    again = load_model("DFT", [FLOAT], opset=20, inverse=1)(first)
    np.testing.assert_allclose(again[..., 0], x[..., 0], rtol=1e-4, atol=1e-6)
    with pytest.raises(InvalidDesc, match="axis must not be the last, which holds the real and imaginary parts; got 2"):
        load_model("DFT", [FLOAT], opset=17, axis=2)(x)


def test_casts_to_floats_of_8_bits_saturate_by_default() -> None:
    x = floats([1e6, np.inf, -np.inf, 0.3, np.nan])
    element_type = TensorProto.FLOAT8E4M3FN
    saturated = load_model("Cast", [FLOAT], to=element_type)(x).astype(jnp.float32)
    assert saturated[:4].tolist() == [448, 448, -448, 0.3125]
    assert jnp.isnan(saturated[4])
    unsaturated = load_model("Cast", [FLOAT], to=element_type, saturate=0)(x).astype(jnp.float32)
    assert jnp.isnan(unsaturated).tolist() == [True, True, True, False, True]


@pytest.mark.parametrize(("round_mode", "expected"), [("up", [1, 2, 4]), ("down", [1, 1, 2]), ("nearest", [1, 2, 2])])
def test_casts_to_powers_of_two_follow_the_rounding_mode(round_mode: str, expected: list[float]) -> None:
    cast = load_model("Cast", [FLOAT], opset=24, to=TensorProto.FLOAT8E8M0, round_mode=round_mode)
    assert cast(floats([1, 1.5, 2.25])).astype(jnp.float32).tolist() == expected
