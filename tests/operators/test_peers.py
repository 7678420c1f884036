"""Functions that differ from ONNX Runtime or PyTorch, or may be less accurate, beside them.

`tests/onnx` compares ONNX's operators with ONNX's own cases and with ONNX Runtime.
"""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL, GATE, SAMPLED

import dmljax
from dmljax import directml
from dmljax.directml import Size2D

pytestmark = GATE


RNG = np.random.default_rng(7)


# ONNX Runtime


def onnxruntime_run(operator: str, inputs: list[Any], opset: int = 18, outputs: int = 1, **attributes: Any) -> Any:
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    helper = onnx.helper
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]  # an omitted input has no name
    arrays = {name: array for name, array in zip(names, inputs, strict=True) if name}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, names, results, **attributes)
    graph = helper.make_graph([node], "graph", infos, [onnx.ValueInfoProto(name=name) for name in results])
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    computed = session.run(None, arrays)
    return computed[0] if outputs == 1 else computed


def same(actual: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(actual).astype(expected.dtype), expected, strict=True)


def near(actual: Any, expected: Any, digits: float = 1e-5) -> None:
    """Equal up to rounding at some steps."""
    actual = np.asarray(actual)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=digits, atol=digits)


@FULL
def test_attention_equals_onnxruntime() -> None:
    batch, count, heads, size, past = 2, 3, 2, 4, 5
    query, key, value = (RNG.normal(size=(batch, count, heads * size)).astype(np.float32) for _ in range(3))
    bias = RNG.normal(size=3 * heads * size).astype(np.float32)
    relative = RNG.normal(size=(batch, heads, count, count)).astype(np.float32)
    before = [RNG.normal(size=(batch, heads, past, size)).astype(np.float32) for _ in range(2)]
    attention: Any = dmljax.multihead_attention
    run: Any = functools.partial(onnxruntime_run, "MultiHeadAttention", domain="com.microsoft", num_heads=heads)

    # ONNX Runtime adds the filter value once per kind of mask, and reads only the lengths of masks that have positions.
    lengths = np.array([2, 0], np.int32)
    positions = np.array([*lengths, 0, 3, 6, 0, 3, 6], np.int32)
    is_seen = np.array([[1, 0, 2], [-1, 0, 1]], np.int32)
    kind = directml.MultiheadAttentionMaskType
    masks: tuple[tuple[Any, dict[str, Any]], ...] = (
        (lengths, {"mask": lengths, "mask_type": kind.KEY_SEQUENCE_LENGTH}),
        (positions, {"mask": positions, "mask_type": kind.KEY_QUERY_SEQUENCE_LENGTH_START_END}),
        (is_seen, {"mask": is_seen[:, None, None]}),
    )
    for mask, options in masks:
        expected = run([query, key, value, bias, mask, relative], mask_filter_value=-1.5)
        options |= {"bias": bias, "relative_position_bias": relative}
        near(attention(query, key, value, **options, mask_filter_value=-1.5, head_count=heads), expected)
    # ONNX Runtime's Attention multiplies by weights first, and takes a mask of two bounds.
    weights = np.concatenate([np.eye(heads * size, dtype=np.float32)] * 3, 1)
    bounds = np.array([[2, 3], [1, 0]], np.int32)
    whole: Any = functools.partial(onnxruntime_run, "Attention", domain="com.microsoft", num_heads=heads)
    expected = whole([query, weights, bias, bounds.ravel()], mask_filter_value=-1.5)
    options = {"bias": bias, "mask": bounds, "mask_type": kind.KEY_SEQUENCE_END_START, "mask_filter_value": -1.5}
    near(attention(query, query, query, **options, head_count=heads), expected)

    # Its CPU kernel has no stacked forms.
    near(attention(query, key, value, scale=0.3, head_count=heads), run([query, key, value], scale=0.3))
    expected = run([query, key, value, None, None, None, *before], outputs=3)
    results = attention(query, key, value, past_key=before[0], past_value=before[1], head_count=heads, has_present=True)
    for result, reference in zip(results, expected, strict=True):
        near(result, reference)
    expected = run([query, *before])  # only keys and values of an earlier call
    near(attention(query, past_key=before[0], past_value=before[1], head_count=heads), expected)


@pytest.mark.parametrize("count", [1, 4])
def test_grouped_attention_equals_onnxruntime(count: int) -> None:
    batch, heads, key_heads, size, most = 2, 4, 2, 8, 6
    shapes = ((batch, count, heads * size), *((batch, count, key_heads * size),) * 2)
    arrays = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]
    past = [RNG.normal(size=(batch, key_heads, most, size)).astype(np.float32) for _ in range(2)]
    # A first call has no past, whatever its lengths say; in a step, they are one less than all lengths.
    lengths = np.array([2, 5] if count == 1 else [0, 0], np.int32)
    whole = np.array([most if count == 1 else count], np.int32)
    inputs = [*arrays, *(past if count == 1 else [None, None]), lengths if count == 1 else lengths + count - 1, whole]
    expected = onnxruntime_run(
        "GroupQueryAttention", inputs, outputs=3, domain="com.microsoft", num_heads=heads, kv_num_heads=key_heads
    )
    attention: Any = dmljax.multihead_attention1
    buffers = {"past_key": past[0], "past_value": past[1], "total_sequence_length": most} if count == 1 else {}
    results = attention(
        *arrays,
        **buffers,
        past_sequence_lengths=lengths,
        query_head_count=heads,
        key_value_head_count=key_heads,
        has_present=True,
    )
    near(results.output, expected[0])
    for result, reference in zip(results[1:], expected[1:], strict=True):
        for b, length in enumerate(lengths):  # later positions are unwritten
            same(result[b, :, : length + count], reference[b, :, : length + count])


@SAMPLED
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("include_padding", [False, True])
def test_quantized_averages_equal_onnxruntime(dtype: Any, include_padding: bool) -> None:
    limits = np.iinfo(dtype)
    image = RNG.integers(limits.min, limits.max, (2, 3, 9, 8), endpoint=True).astype(dtype)
    # ONNX Runtime adds the zero point before it rounds halves to even; with an even zero point, both agree.
    zero, final_zero = np.array(3, dtype), np.array(8, dtype)
    # Scales that make everything exact, so that rounding creates no ties.
    scale, final_scale = np.float32(0.5), np.float32(4)
    windows: dict[str, Any] = {"window_sizes": (2, 4), "strides": (2, 3), "start_padding": (1, 0)}
    arrays: list[Any] = [image, scale, zero, final_scale, final_zero]
    expected = onnxruntime_run(
        "QLinearAveragePool",
        [np.asarray(array) for array in arrays],
        domain="com.microsoft",
        kernel_shape=(2, 4),
        strides=(2, 3),
        pads=(1, 0, 0, 0),
        count_include_pad=int(include_padding),
    )
    actual = dmljax.quantized_linear_average_pooling(*arrays, include_padding=include_padding, **windows)
    same(actual, expected)


@pytest.mark.parametrize("kind", ["uint4", "int4"])
def test_integers_of_4_bits_equal_onnxruntime(kind: str) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper, dtype = onnx.helper, jnp.dtype(kind)
    least, most = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    input = (RNG.standard_normal((6, 10)) * 9).astype(np.float32)
    scale, zero = RNG.uniform(0.5, 2, (6, 2)).astype(np.float32), RNG.integers(least, most + 1, (6, 2)).astype(dtype)
    # NumPy cannot pass 4-bit integers to ONNX Runtime or receive them: they stay inside the model.
    halves = zero.ravel().view(np.uint8)
    packed = (halves[0::2] | halves[1::2] << 4).tobytes()
    constants = [helper.make_tensor("zero", getattr(onnx.TensorProto, kind.upper()), zero.shape, packed, raw=True)]
    how = {"axis": 1, "block_size": 5}
    nodes = [
        helper.make_node("QuantizeLinear", ["input", "scale", "zero"], ["steps"], **how),
        helper.make_node("DequantizeLinear", ["steps", "scale", "zero"], ["output"], **how),
        helper.make_node("Cast", ["steps"], ["integers"], to=onnx.TensorProto.INT32),
    ]
    floats = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
        for name, array in (("input", input), ("scale", scale))
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("integers", "output")]
    graph = helper.make_graph(nodes, "graph", floats, outputs, initializer=constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    integers, floats = session.run(None, {"input": input, "scale": scale})
    steps = dmljax.quantize(input, scale, zero)
    assert steps.dtype == dtype
    same(steps, integers)
    same(dmljax.dequantize(steps, scale, zero), floats)


def test_dynamic_quantization_equals_onnxruntime_except_for_tiny_and_huge_ranges() -> None:
    rows = RNG.standard_normal((60, 50)) * np.exp2(RNG.integers(-100, 100, (60, 1)))
    halves = RNG.integers(-255, 256, (60, 50)) / 2
    halves[:, :2] = [-50.5, 204.5]  # a range of 255, so that each is a step or a half
    rows = np.concatenate([rows, np.abs(rows), -np.abs(rows), np.clip(halves, -50.5, 204.5)])
    constant = np.repeat(np.array([0, 5, -5, 1e30, -1e-30]), 50).reshape(5, 50)
    for row in np.concatenate([rows, constant]).astype(np.float32):
        expected = onnxruntime_run("DynamicQuantizeLinear", [row], outputs=3)
        for computed, reference in zip(dmljax.dynamic_quantize_linear(row), expected, strict=True):
            same(computed, reference)
    # ONNX Runtime's scale may be subnormal, or infinite where the range overflows.
    scales = []
    for row in np.array([[0, 1e-37], [-3e38, 3e38]], np.float32):
        scales.append(
            (onnxruntime_run("DynamicQuantizeLinear", [row], outputs=3)[1], dmljax.dynamic_quantize_linear(row))
        )
    assert 0 < scales[0][0] < float(scales[0][1].scale)
    assert np.isinf(scales[1][0])
    assert np.isfinite(scales[1][1].scale)


@FULL
@pytest.mark.parametrize("samples", [0, 1, 3])
def test_averages_of_regions_equal_onnxruntime(samples: int) -> None:
    image = RNG.standard_normal((3, 4, 9, 11)).astype(np.float32)
    first, sizes = RNG.uniform(-6, 14, (2, 20, 2))  # also across the edges, outside, and inverted
    roi, indices = np.concatenate([first, first + np.abs(sizes)], axis=1).astype(np.float32), RNG.integers(0, 3, 20)
    expected = onnxruntime_run(
        "RoiAlign",
        [image, roi, indices],
        output_height=3,
        output_width=4,
        sampling_ratio=samples,
        spatial_scale=0.75,
        coordinate_transformation_mode="half_pixel",
    )
    actual = dmljax.roi_align(
        image,
        roi,
        indices,
        output_size=Size2D(width=4, height=3),
        spatial_scale_x=0.75,
        spatial_scale_y=0.75,
        minimum_samples_per_output=samples or 1,
        maximum_samples_per_output=samples or 2**32 - 1,
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_bins_of_regions_equal_onnxruntime() -> None:
    # Bins whose width divides by a power of two, so that ONNX Runtime's sizes are exact.
    image = RNG.standard_normal((3, 4, 9, 11)).astype(np.float32)
    roi = np.concatenate([RNG.integers(0, 3, (40, 1)), RNG.uniform(-9, 25, (40, 4))], axis=1).astype(np.float32)
    expected = onnxruntime_run("MaxRoiPool", [image, roi], pooled_shape=[2, 4], spatial_scale=0.5)
    same(dmljax.roi_pooling(image, roi, pooled_size=Size2D(width=4, height=2), spatial_scale=0.5), expected)


# PyTorch


@pytest.mark.parametrize("training", [False, True])
def test_batch_normalization_and_its_gradients_equal_torch(training: bool) -> None:
    torch = pytest.importorskip("torch")
    image, weights = RNG.standard_normal((2, 4, 3, 5, 6)).astype(np.float32)
    arrays = list((RNG.random((4, 3)) + 0.5).astype(np.float32))
    mean, variance, scale, bias = (array.reshape(1, 3, 1, 1) for array in arrays)
    tensors = [torch.from_numpy(array).requires_grad_() for array in (image, *arrays[2:])]
    moments = [None, None] if training else [torch.from_numpy(array) for array in arrays[:2]]
    peer = torch.nn.functional.batch_norm(tensors[0], *moments, *tensors[1:], training=training, eps=0.01)
    (peer * torch.from_numpy(weights)).sum().backward()
    if training:
        output, mean, variance = dmljax.batch_normalization_training(image, scale, bias, epsilon=0.01)
        gradients = dmljax.batch_normalization_training_grad(image, weights, mean, variance, scale, 0.01)
    else:
        output = dmljax.batch_normalization(image, mean, variance, scale, bias, 0.01)
        gradients = dmljax.batch_normalization_grad(image, weights, mean, variance, scale, 0.01)
    near(output, peer.detach().numpy())
    for gradient, tensor in zip(gradients, tensors, strict=True):
        near(np.asarray(gradient).reshape(tensor.shape), tensor.grad.numpy(), 1e-4)


def test_norms_of_windows_and_unpooling_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    pool = torch.nn.functional
    image = RNG.random((2, 3, 9, 8), np.float32)
    for p in (1, 2, 3):
        expected = pool.lp_pool2d(torch.from_numpy(image), p, (3, 2), (2, 1)).numpy()
        actual = dmljax.lp_pooling(image, window_sizes=(3, 2), strides=(2, 1), p=p)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    values, indices = pool.max_pool2d(torch.from_numpy(image[:1, :1]), 3, 2, return_indices=True)
    expected = pool.max_unpool2d(values, indices, 3, 2, output_size=(9, 8)).numpy()
    same(dmljax.max_unpooling(values.numpy(), indices.numpy(), output_sizes=(1, 1, 9, 8)), expected)


def test_casts_between_floats_equal_torch_whose_narrow_integers_wrap() -> None:
    torch = pytest.importorskip("torch")
    raw = RNG.integers(0, 2**32, 5000, np.uint64).astype(np.uint32)
    floats, integers = raw.view(np.float32), raw.view(np.int32)
    floats = np.concatenate([floats[~np.isnan(floats)], np.array([1e-40, -1e-45, 65520, np.inf], np.float32)])
    same(dmljax.cast(floats, dtype="float16"), torch.from_numpy(floats).to(torch.float16).numpy())
    same(dmljax.cast(integers, dtype="int8"), torch.from_numpy(integers).to(torch.int8).numpy())
    bfloat16 = torch.from_numpy(floats).to(torch.bfloat16).to(torch.float32).numpy()
    same(dmljax.cast(dmljax.cast(floats, dtype="bfloat16"), dtype="float32"), bfloat16)


# Training


@FULL
@pytest.mark.parametrize("peer", ["optax", "torch"])
def test_adam_equals_the_peers_after_scaling_epsilon(peer: str) -> None:
    library = pytest.importorskip(peer)
    import jax

    rate, beta1, beta2 = 0.01, 0.9, 0.99
    start, *gradients = RNG.standard_normal((11, 500)).astype(np.float32)
    moments = np.zeros_like(start), np.zeros_like(start)
    for epsilon in (0.0, 0.1):
        x, m, v = start, *moments
        for step, gradient in enumerate(gradients, 1):
            own_epsilon = epsilon * (1 - beta2**step) ** 0.5  # the peers add their epsilon after the correction
            x, m, v = dmljax.adam_optimizer(x, m, v, gradient, step, rate, beta1, beta2, own_epsilon)
        if peer == "optax":
            optimizer = library.adam(rate, beta1, beta2, epsilon)
            expected, state = start, optimizer.init(start)
            for gradient in gradients:
                with jax.numpy_dtype_promotion("standard"):
                    updates, state = optimizer.update(gradient, state)
                    expected = library.apply_updates(expected, updates)
            np.testing.assert_allclose(m, state[0].mu, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(v, state[0].nu, rtol=1e-5)
        else:
            tensor = library.nn.Parameter(library.from_numpy(start.copy()))
            optimizer = library.optim.Adam([tensor], rate, (beta1, beta2), epsilon)
            for gradient in gradients:
                tensor.grad = library.from_numpy(gradient)
                optimizer.step()
            expected = tensor.detach().numpy()
        np.testing.assert_allclose(x, expected, rtol=1e-6, atol=1e-6)
