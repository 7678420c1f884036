"""ONNX's own backend node cases, which the onnx package ships, run against the functions.

A case's rule is not DirectML's: where the two differ, the page decides, and the case is listed with the reason.
"""

import functools
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import INT32_MAX, INT32_MIN, UNITS, X64, assert_same_bits, units_off
from onnx.backend.test.case.node import collect_testcases

import dmljax
from dmljax import (
    AxisDirection,
    ConvolutionDirection,
    DepthSpaceOrder,
    InterpolationMode,
    IsInfinityMode,
    PaddingMode,
    RecurrentNetworkDirection,
    ReduceFunction,
    Size2D,
)

# Why a case cannot apply, or differs, by its name.
NO_SUCH_TYPE = "DirectML has no data type of that kind"
NO_CAST = "the table of CAST has no floats of 4 or 8 bits, and no integers of 2 or 4 bits"
NO_TENSOR = "a sequence or an optional, where DirectML has tensors"
NO_APPROXIMATION = "the page has the Gaussian itself, not an approximation of it"
NO_EXTREME = "DirectML has no empty tensors, and dmljax refuses to find the largest of no elements"
TWO_INPUTS = "the page has the mean of two tensors"
NO_EMPTY = "a result is empty, which DirectML's tensors are not"
LOGICAL_SHIFT = "the page has unsigned integers alone, into which zeros are shifted, not copies of a sign"
NO_CUBIC = "DirectML resamples by nearest neighbours and linear averages"
NO_CORNER = "the last corner is that of a fractional size, where the DirectML provider takes the size of the result"
NO_OUTSIDE = "what lies outside of the image is a number of its own, where DirectML repeats the edges"
NO_REDUCTION = "DirectML's scatters overwrite, and do not reduce"
NO_SOFTCAP = "DirectML's attention has no bound of the scores"
NO_SCORES = "DirectML's attention does not return its scores"
NOTHING_SEEN = "a query that sees nothing has 0 in ONNX, and NaN where infinity is added to all of its scores"
INAPPLICABLE: dict[str, str] = {
    **{
        f"test_attention_{name}": NOTHING_SEEN
        for name in (
            *("causal_boolmask_nan_robustness", "23_boolmask_fullymasked_row_nan_robustness"),
            *("4d_causal_nonpad_negative_offset_structural_empty", "4d_causal_padded_kv_bf16"),
        )
    },
    "test_scatter_elements_with_duplicate_indices": NO_REDUCTION,
    **{f"test_scatter_elements_with_reduction_{kind}": NO_REDUCTION for kind in ("max", "min", "mul")},
    **{
        f"test_scatternd_{kind}": NO_REDUCTION
        for kind in ("add", "max", "max_with_element_indices", "min", "min_with_element_indices", "multiply")
    },
    **{
        f"test_resize_{kind}": NO_CUBIC
        for kind in (
            *("upsample_sizes_cubic", "upsample_scales_cubic", "upsample_scales_cubic_align_corners"),
            *("upsample_scales_cubic_A_n0p5_exclude_outside", "upsample_scales_cubic_asymmetric"),
            *("downsample_sizes_cubic", "downsample_scales_cubic", "downsample_scales_cubic_align_corners"),
            *("downsample_scales_cubic_A_n0p5_exclude_outside", "downsample_scales_cubic_antialias"),
            "downsample_sizes_cubic_antialias",
        )
    },
    "test_resize_downsample_scales_linear_align_corners": NO_CORNER,
    "test_resize_tf_crop_and_resize_extrapolation_value": NO_OUTSIDE,
    "test_roialign_mode_max": "the page has the largest of whole samples, where ONNX has that of their weighted pixels",
    "test_clip_min_greater_than_max": "the page has max(Min, min(x, Max)): Min wins, where in ONNX Max does",
    "test_equal_string": NO_SUCH_TYPE,
    "test_equal_string_broadcast": NO_SUCH_TYPE,
    "test_gelu_tanh_1": NO_APPROXIMATION,
    "test_gelu_tanh_2": NO_APPROXIMATION,
    **{f"test_reduce_{name}": NO_EXTREME for name in ("max_empty_set", "max_empty_set_bool", "min_empty_set")},
    "test_identity_opt": NO_TENSOR,
    "test_identity_sequence": NO_TENSOR,
    "test_split_zero_size_splits_opset13": NO_EMPTY,
    "test_split_zero_size_splits_opset18": NO_EMPTY,
    "test_slice_start_out_of_bounds": NO_EMPTY,
    "test_mean_example": TWO_INPUTS,
    "test_mean_one_input": TWO_INPUTS,
    **{
        f"test_{operator}_{kind}": NO_SUCH_TYPE
        for operator in ("quantizelinear", "dequantizelinear")
        for kind in ("e4m3fn", "e5m2", "float4e2m1", "int2", "uint2")
    },
    "test_dequantizelinear_e4m3fn_float16": NO_SUCH_TYPE,
    "test_dequantizelinear_e4m3fn_zero_point": NO_SUCH_TYPE,
    **{
        f"test_bitshift_right_{case}": LOGICAL_SHIFT
        for kind in ("int8", "int32")
        for case in (f"{kind}_negative_input", f"{kind}_negative_shift", f"{kind}_shift_ge_width")
    },
}


def one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    # ONNX inserts the axis and takes floating indices; DirectML's indices have the axis, with size 1, and are integers.
    return dmljax.one_hot(np.expand_dims(indices.astype(np.int32), axis), values, axis=axis, depth=int(depth.item()))


def along(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input, *, axis=-1: function(input, axes=axis)


def nonzero(input: Any) -> Any:
    # ONNX has a dynamic result with a coordinate per column; the count says where ours ends.
    count, coordinates = dmljax.nonzero_coordinates(input)
    return coordinates[: int(count)].T


def gather_nd(input: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    return dmljax.gather_nd1(input, indices, batch_dimension_count=batch_dims)


def scatter_elements(input: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: bytes = b"none") -> Any:
    assert reduction == b"none"
    return dmljax.scatter(input, indices, updates, axis=axis)


def scatter_nd(input: Any, indices: Any, updates: Any, *, reduction: bytes = b"none") -> Any:
    assert reduction == b"none"
    return dmljax.scatter_nd(input, indices, updates)


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> Any:
    def in_rows(x: Any) -> Any:
        return np.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], -1) if x.ndim == 4 else x

    heads, key_heads = (query.shape[1], key.shape[1]) if query.ndim == 4 else (q_num_heads, kv_num_heads)
    arrays = [in_rows(x) for x in (query, key, value)]
    batch, queries, past = len(query), arrays[0].shape[1], 0 if past_key is None else past_key.shape[2]
    total = past + arrays[1].shape[1]
    # What ONNX says by attributes is a mask here: positions are counted from the first key that a query may see.
    offset = np.full(batch, past) if lengths is None else lengths - queries
    own = (offset[:, None] + np.arange(queries))[:, None, :, None]
    seen = np.ones((batch, 1, queries, total), bool)
    position = np.arange(total)
    if is_causal:
        seen &= position <= own
    if left_window_size >= 0:
        seen &= position >= own - left_window_size
    if right_window_size >= 0:
        seen &= position <= own + right_window_size
    if lengths is not None:
        seen &= position < lengths[:, None, None, None]
    bias = None
    if mask is not None:  # one that is too short hides the other keys
        missing = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1] if mask.shape[-1] > 1 else 0)]
        is_bool = mask.dtype == bool
        mask = np.pad(mask, missing, constant_values=False if is_bool else -np.inf)
        seen = seen & mask if is_bool else seen
        bias = None if is_bool else mask
    result = dmljax.multihead_attention1(
        arrays[0],
        arrays[1],
        arrays[2],
        mask=seen,
        relative_position_bias=bias,
        past_key=past_key,
        past_value=past_value,
        scale=scale,
        mask_filter_value=-math.inf,
        query_head_count=heads,
        key_value_head_count=key_heads,
        has_present=True,
    )
    output = np.asarray(result.output)
    if query.ndim == 4:
        output = np.swapaxes(output.reshape(batch, queries, heads, -1), 1, 2)
    return output, result.present_key, result.present_value


def reverse_sequence(input: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    # ONNX has a length for each index of the batch axis; DirectML has one for each sequence.
    sizes = [1 if axis == time_axis else size for axis, size in enumerate(input.shape)]
    other = [axis for axis in range(input.ndim) if axis != batch_axis]
    return dmljax.reverse_subsequences(input, np.broadcast_to(np.expand_dims(lengths, other), sizes), axis=time_axis)


def trilu(input: Any, k: Any = 0, *, upper: int = 1) -> Any:
    # ONNX keeps one side of diagonal k; DirectML fills the other with zeros.
    k = max(INT32_MIN, min(INT32_MAX, int(np.asarray(k).item())))
    begin, end = (INT32_MIN, k) if upper else (k + 1, INT32_MAX)
    return dmljax.diagonal_matrix1(input, 0, diagonal_fill_begin=begin, diagonal_fill_end=end)


def eye_like(input: Any, *, dtype: int = 0, k: int = 0) -> Any:
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype) if dtype else input.dtype
    return dmljax.diagonal_matrix(1, offset=k, output_sizes=input.shape, dtype=jnp.dtype(kind))


def arg_reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(input: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        result = function(input, axes=axis, axis_direction=AxisDirection(select_last_index))
        return result if keepdims else jnp.squeeze(result, axis)

    return run


def predicate(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.partial(function, dtype=bool)


def of_any_number(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: functools.reduce(function, inputs)


def selu(input: Any, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Any:
    # DirectML's typical values have fewer digits.
    return dmljax.activation_scaled_elu(input, alpha, gamma)


def shrink(input: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    return dmljax.activation_shrink(input, bias, lambd)


def swish(input: Any, *, alpha: float = 1.0) -> Any:
    return dmljax.activation_swish(input, alpha)


def gelu(input: Any, *, approximate: bytes = b"none") -> Any:
    assert approximate == b"none"
    return dmljax.activation_gelu(input)


def clip(input: Any, min: Any = None, max: Any = None) -> Any:
    return dmljax.element_wise_clip1(input, min, max)


def bit_shift(a: Any, b: Any, *, direction: bytes) -> Any:
    shift = {b"LEFT": dmljax.element_wise_bit_shift_left, b"RIGHT": dmljax.element_wise_bit_shift_right}
    return shift[direction](a, b)


def mod(a: Any, b: Any, *, fmod: int = 0) -> Any:
    return (dmljax.element_wise_modulus_truncate if fmod else dmljax.element_wise_modulus_floor)(a, b)


def is_inf(input: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    if detect_negative and detect_positive:
        mode = IsInfinityMode.EITHER
    else:
        mode = IsInfinityMode.NEGATIVE if detect_negative else IsInfinityMode.POSITIVE
    return dmljax.element_wise_is_infinity(input, infinity_mode=mode, dtype=bool)


def in_blocks(parameter: Any, input: Any, axis: int, block_size: int) -> Any:
    # ONNX has a scale and a zero point for the tensor, for each index of an axis, or for each block of one.
    if parameter is None or parameter.ndim == 0 or block_size:
        return parameter
    return np.expand_dims(parameter, [other for other in range(input.ndim) if other != axis])


def dequantize(input: Any, scale: Any, zero_point: Any, *, axis: int = 1, block_size: int = 0) -> Any:
    parameters = [in_blocks(given, input, axis, block_size) for given in (scale, zero_point)]
    result = dmljax.dequantize(input, *parameters)
    if not block_size:
        assert_same_bits(dmljax.element_wise_dequantize_linear(input, *parameters), result)
    return result


def quantize(
    input: Any, scale: Any, zero_point: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    parameters = [in_blocks(given, input, axis, block_size) for given in (scale, zero_point)]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(output_dtype) if output_dtype else None
    result = dmljax.quantize(input, *parameters, dtype=dtype)
    if not block_size:
        assert_same_bits(dmljax.element_wise_quantize_linear(input, *parameters, dtype=dtype), result)
    return result


def gemm(a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, **transforms: int) -> Any:
    transpose_a, transpose_b = (bool(transforms.get(name)) for name in ("transA", "transB"))
    return dmljax.gemm(a, b, c, alpha, beta, transpose_a=transpose_a, transpose_b=transpose_b)


def matmul(a: Any, b: Any) -> Any:
    # ONNX has products of vectors, too, as NumPy does.
    product = np.asarray(dmljax.gemm(np.atleast_2d(a), b[:, None] if b.ndim == 1 else b))
    product = product[..., 0] if b.ndim == 1 else product
    return product if a.ndim > 1 else product[..., 0] if b.ndim == 1 else product[..., 0, :]


def slice1(input: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    # ONNX has the index after the last element, and clamps; DirectML has the size of a window inside the input.
    axes = range(len(starts)) if axes is None else axes.tolist()
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    windows = {axis: range(input.shape[axis]) for axis in range(input.ndim)}
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps.tolist(), strict=True):
        windows[axis % input.ndim] = range(input.shape[axis])[start:end:step]
    first = [min(window[0], window[-1]) for window in windows.values()]
    sizes = [abs(window[-1] - window[0]) + 1 for window in windows.values()]
    return dmljax.slice1(input, starts=first, sizes=sizes, strides=[window.step for window in windows.values()])


ORDERS = {b"DCR": DepthSpaceOrder.DEPTH_COLUMN_ROW, b"CRD": DepthSpaceOrder.COLUMN_ROW_DEPTH}


def depth_to_space(input: Any, *, blocksize: int, mode: bytes = b"DCR") -> Any:
    return dmljax.depth_to_space1(input, block_size=blocksize, order=ORDERS[mode])


def space_to_depth(input: Any, *, blocksize: int, mode: bytes = b"DCR") -> Any:
    return dmljax.space_to_depth1(input, block_size=blocksize, order=ORDERS[mode])


def split(input: Any, sizes: Any = None, *, axis: int = 0, num_outputs: int) -> Any:
    if sizes is None:  # ONNX has equal parts, the last of which may be smaller
        whole = input.shape[axis]
        part = -(-whole // num_outputs)
        sizes = np.diff([*range(0, whole, part), whole])
    return dmljax.split(input, sizes=sizes.tolist(), axis=axis)


def axis_of(axis: Any) -> int:
    return int(np.asarray(axis).item())


def cumulate(function: Callable[..., Any], exclusive_member: str) -> Callable[..., Any]:
    def run(input: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        direction = AxisDirection(reverse)
        return function(input, axis=axis_of(axis), axis_direction=direction, **{exclusive_member: bool(exclusive)})

    return run


def top_k(input: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    direction = AxisDirection(largest)
    values, indices = dmljax.top_k1(input, axis=axis, k=axis_of(k), axis_direction=direction)
    return values, np.asarray(indices).astype(np.int64)  # as ONNX counts


def reduction(function: ReduceFunction) -> Callable[..., Any]:
    def run(input: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        if axes is None or not len(axes):
            if noop_with_empty_axes:  # a reduction of single elements
                return np.squeeze(dmljax.reduce(input[..., None], function=function, axes=-1), -1)
            axes = range(input.ndim)
        result = dmljax.reduce(input, function=function, axes=tuple(map(int, axes)))
        return result if keepdims else jnp.squeeze(result, tuple(map(int, axes)))

    return run


def cast(input: Any, *, to: int, saturate: int = 1) -> Any:  # `saturate` is for floats of 8 bits alone
    return dmljax.cast(input, dtype=onnx.helper.tensor_dtype_to_np_dtype(to))


def cast_like(input: Any, target: Any, *, saturate: int = 1) -> Any:
    return dmljax.cast(input, dtype=target.dtype)


def sequence(start: Any, limit: Any, delta: Any) -> Any:
    # ONNX has the end of the sequence; DirectML has the sizes of the output.
    count = math.ceil((float(limit) - float(start)) / float(delta))
    return dmljax.fill_value_sequence(start, delta, output_sizes=(max(count, 0),))


def fold(input: Any, image: Any, block: Any, **attributes: Any) -> Any:
    count = len(block)
    pads = attributes.pop("pads", [0] * (2 * count))
    sizes = (input.shape[0], input.shape[1] // int(np.prod(block)), *image.tolist())
    return dmljax.fold(
        input,
        output_sizes=sizes,
        window_sizes=block.tolist(),
        start_padding=pads[:count],
        end_padding=pads[count:],
        **attributes,
    )


def space_of(
    input: Any,
    filter: Any,
    *,
    auto_pad: bytes = b"NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> dict[str, Any]:
    """ONNX's attributes of a convolution as DirectML's members; padding that ONNX derives from sizes is computed."""
    count = input.ndim - 2
    dilations, strides = np.array(dilations or [1] * count), np.array(strides or [1] * count)
    extents = (np.array(filter.shape[2:]) - 1) * dilations + 1
    start, end = padding_of(input.shape[2:], extents, strides, auto_pad, pads)
    members = {"strides": strides, "dilations": dilations, "group_count": group}
    return members | {"start_padding": start, "end_padding": end}


def padding_of(sizes: Any, extents: Any, strides: Any, auto_pad: bytes, pads: Any) -> Any:
    """The padding before and after each dimension of space, given or as `auto_pad` derives it from the sizes."""
    if not auto_pad.startswith(b"SAME"):
        return np.array(pads or [0] * (2 * len(sizes))).reshape(2, -1)
    sizes = np.array(sizes)
    total = np.maximum((-(-sizes // strides) - 1) * strides + extents - sizes, 0)
    start = total // 2 if auto_pad == b"SAME_UPPER" else total - total // 2
    return start, total - start


def convolution(input: Any, filter: Any, bias: Any = None, **attributes: Any) -> Any:
    return dmljax.convolution(input, filter, bias, **space_of(input, filter, **attributes))


def transposed_convolution(
    input: Any, filter: Any, bias: Any = None, *, output_padding: Any = 0, output_shape: Any = None, **attributes: Any
) -> Any:
    auto_pad = attributes.pop("auto_pad", b"NOTSET")
    space = space_of(input, filter, **attributes)
    if output_shape or auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):  # which say how large the result is
        appended = output_padding or [0] * (input.ndim - 2)
        rows = zip(input.shape[2:], filter.shape[2:], space["strides"], space["dilations"], appended, strict=True)
        largest = [(size - 1) * stride + 1 + (window - 1) * more + one for size, window, stride, more, one in rows]
        sizes = output_shape or [size * one for size, one in zip(input.shape[2:], space["strides"], strict=True)]
        totals = [max(0, whole - size) for whole, size in zip(largest, sizes, strict=True)]
        halves = [total // 2 for total in totals]
        others = [total - half for total, half in zip(totals, halves, strict=True)]
        is_upper = auto_pad == b"SAME_UPPER"
        space |= dict(
            zip(("start_padding", "end_padding"), (halves, others) if is_upper else (others, halves), strict=True)
        )
        output_padding = [max(0, size - whole) + one for whole, size, one in zip(largest, sizes, appended, strict=True)]
    direction = ConvolutionDirection.BACKWARD
    return dmljax.convolution(input, filter, bias, direction=direction, output_padding=output_padding, **space)


def integer_convolution(input: Any, filter: Any, input_zero: Any = None, zero: Any = None, **attributes: Any) -> Any:
    return dmljax.convolution_integer(input, input_zero, filter, zero, **space_of(input, filter, **attributes))


def quantized_convolution(
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    scale: Any,
    zero: Any,
    bias: Any = None,
    **kw: Any,
) -> Any:
    return dmljax.quantized_linear_convolution(
        x, x_scale, x_zero, w, w_scale, w_zero, bias, scale, zero, **space_of(x, w, **kw)
    )


def pool(function: Callable[..., Any]) -> Callable[..., Any]:
    """What slides windows over an image, with ONNX's attributes."""

    def run(
        input: Any,
        *more: Any,
        kernel_shape: Any,
        strides: Any = None,
        dilations: Any = None,
        pads: Any = None,
        auto_pad: bytes = b"NOTSET",
        ceil_mode: int = 0,
        **attributes: Any,
    ) -> Any:
        rank = len(kernel_shape)
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        sizes, strides, dilations = map(np.array, (input.shape[2:], strides, dilations))
        extents = (np.array(kernel_shape) - 1) * dilations + 1
        start, end = padding_of(sizes, extents, strides, auto_pad, pads)
        windows = {"window_sizes": kernel_shape, "strides": strides, "dilations": dilations, "start_padding": start}
        if ceil_mode:
            # Another window goes beyond the padded image, unless it has no element but padding.
            places = -(-(sizes + start + end - extents) // strides)
            places = np.where(places * strides >= sizes + start, places - 1, places)
            beyond = np.maximum(places * strides + extents - sizes - start - end, 0)
            if attributes.get("count_include_pad"):  # of which what is beyond is none
                amounts: dict[str, Any] = {"start_padding": (0, 0, *start), "end_padding": (0, 0, *end)}
                input, windows["start_padding"], end = dmljax.padding1(input, 0.0, **amounts), start * 0, end * 0
                attributes["count_include_pad"] = 0
            end = end + beyond
        return function(input, *more, windows | {"end_padding": end}, **attributes)

    return run


def average_pool(input: Any, windows: Any, *, count_include_pad: int = 0) -> Any:
    return dmljax.average_pooling1(input, include_padding=bool(count_include_pad), **windows)


def max_pool(input: Any, windows: Any, *, storage_order: int = 0) -> Any:
    values, indices = dmljax.max_pooling2(input, **windows)
    places: Any = np.unravel_index(np.asarray(indices), input.shape)
    if storage_order:  # the last dimensions are counted first
        places, shape = (*places[:2], *places[:1:-1]), (*input.shape[:2], *input.shape[:1:-1])
        indices = np.ravel_multi_index(places, shape)
    return values, np.asarray(indices).astype(np.int64)  # as ONNX counts


def lp_pool(input: Any, windows: Any, *, p: int = 2) -> Any:
    return dmljax.lp_pooling1(input, p=p, **windows)


def whole(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input, **attributes: function(input, window_sizes=input.shape[2:], **attributes)


def max_unpool(
    input: Any, indices: Any, output_shape: Any = None, *, kernel_shape: Any, strides: Any, pads: Any = None
) -> Any:
    start, end = np.array(pads or [0] * (2 * len(strides))).reshape(2, -1)
    spatial = (np.array(input.shape[2:]) - 1) * strides + kernel_shape - start - end
    result = dmljax.max_unpooling(input, indices, output_sizes=(*input.shape[:2], *spatial))
    if output_shape is None:
        return result
    # The indices are of the result that the windows give, which then grows.
    return dmljax.padding(result, start_padding=(0,) * result.ndim, end_padding=output_shape - result.shape)


# Which way a position is rounded, and how far it is moved before.
NEAREST_MODES = {
    b"round_prefer_floor": (AxisDirection.INCREASING, 0.5),
    b"round_prefer_ceil": (AxisDirection.DECREASING, -0.5),
    b"floor": (AxisDirection.DECREASING, 0.0),
    b"ceil": (AxisDirection.INCREASING, 0.0),
}


def resize(
    input: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    axes: Any = None,
    mode: bytes = b"nearest",
    nearest_mode: bytes = b"round_prefer_floor",
    coordinate_transformation_mode: bytes = b"half_pixel",
    keep_aspect_ratio_policy: bytes = b"stretch",
    antialias: int = 0,
) -> Any:
    # As ONNX Runtime's DirectML provider has it, with the roles of the dimensions that are given.
    axes = range(input.ndim) if axes is None else axes
    own, new = np.ones(input.ndim), np.array(input.shape)
    if sizes is not None and sizes.size:
        ratios = [size / input.shape[axis] for axis, size in zip(axes, sizes, strict=True)]
        if keep_aspect_ratio_policy != b"stretch":
            ratio = (min if keep_aspect_ratio_policy == b"not_larger" else max)(ratios)
            ratios = [ratio] * len(ratios)
        for axis, ratio in zip(axes, ratios, strict=True):
            own[axis], new[axis] = ratio, math.floor(ratio * input.shape[axis] + 0.5)
    else:
        own[list(axes)] = scales
        new = np.floor(np.float32(own) * new.astype(np.float32)).astype(int)
    before, after = np.full((2, input.ndim), [[0.5], [-0.5]])
    match coordinate_transformation_mode:
        case b"align_corners":
            before[:], after[:] = 0, 0
            own = np.array([(b - 1) / (a - 1) if a > 1 and b > 1 else 1 for a, b in zip(input.shape, new, strict=True)])
        case b"asymmetric":
            before[:], after[:] = 0, 0
        case b"half_pixel_symmetric":
            before = 0.5 - np.array(input.shape) / 2 * (1 - new / (own * input.shape))
        case b"pytorch_half_pixel":
            before[new == 1], after[new == 1], own[new == 1] = 0, 0, 1
        case b"tf_crop_and_resize":
            start, end = np.zeros(input.ndim), np.ones(input.ndim)
            start[list(axes)], end[list(axes)] = np.split(roi, 2)
            spans = (end - start) * (np.array(input.shape) - 1)
            own = np.array([(n - 1) / span if span else 1 for n, span in zip(new, spans, strict=True)])
            before, after = -start * (np.array(input.shape) - 1), np.zeros(input.ndim)
    interpolation = InterpolationMode.LINEAR if mode == b"linear" else InterpolationMode.NEAREST_NEIGHBOR
    direction, shift = NEAREST_MODES[nearest_mode]
    return dmljax.resample3(
        input,
        output_sizes=new.tolist(),
        scales=own.tolist(),
        interpolation_mode=interpolation,
        rounding_direction=direction,
        input_pixel_offsets=(before + (0 if mode == b"linear" else shift)).tolist(),
        output_pixel_offsets=after.tolist(),
        antialiased=bool(antialias),
    )


def roi_align(
    input: Any,
    roi: Any,
    batch_indices: Any,
    *,
    mode: bytes = b"avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: bytes = b"half_pixel",
) -> Any:
    is_half = coordinate_transformation_mode == b"half_pixel"
    if not is_half:  # regions are one pixel large then, at least
        roi = np.concatenate([roi[:, :2], np.maximum(roi[:, 2:], roi[:, :2] + 1 / spatial_scale)], axis=1)
    return dmljax.roi_align1(
        input,
        roi,
        batch_indices,
        output_size=Size2D(width=output_width, height=output_height),
        reduction_function=ReduceFunction.MAX if mode == b"max" else ReduceFunction.AVERAGE,
        spatial_scale_x=spatial_scale,
        spatial_scale_y=spatial_scale,
        input_pixel_offset=0.5 if is_half else 0.0,
        minimum_samples_per_output=sampling_ratio or 1,
        maximum_samples_per_output=sampling_ratio or 2**32 - 1,
    )


def upsample(input: Any, scales: Any, *, mode: bytes) -> Any:
    assert mode == b"nearest"
    return dmljax.upsample_2d(input, scale_size=Size2D(width=int(scales[3]), height=int(scales[2])))


MODES = {
    b"constant": PaddingMode.CONSTANT,
    b"edge": PaddingMode.EDGE,
    b"reflect": PaddingMode.REFLECTION,
    b"wrap": PaddingMode.WRAP,
}


def pad(input: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: bytes = b"constant") -> Any:
    axes = range(input.ndim) if axes is None else axes.tolist()
    start, end = np.zeros((2, input.ndim), int)
    for i, axis in enumerate(axes):
        start[axis], end[axis] = pads[i], pads[len(axes) + i]
    value = 0 if value is None else value
    return dmljax.padding1(input, value, padding_mode=MODES[mode], start_padding=start, end_padding=end)


def of_channels(array: Any, input: Any) -> Any:
    # ONNX has one number for each channel; DirectML has the dimensions of the input.
    return array.reshape(-1, *([1] * (input.ndim - 2)))


def batch_normalize(
    input: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Any:
    scale, bias = of_channels(scale, input), of_channels(bias, input)
    if not training_mode:
        moments = of_channels(mean, input), of_channels(variance, input)
        return dmljax.batch_normalization(input, *moments, scale, bias, epsilon)
    # ONNX returns running moments, DirectML those of the batch.
    output, *own = dmljax.batch_normalization_training(input, scale, bias, epsilon=epsilon)
    running = [momentum * old + (1 - momentum) * np.ravel(new) for old, new in zip((mean, variance), own, strict=True)]
    return output, *(one.astype(input.dtype) for one in running)


def mean_variance_normalize(input: Any, *, axes: Any = (0, 2, 3)) -> Any:
    return dmljax.mean_variance_normalization1(input, axes=axes, epsilon=1e-9)


def instance_normalize(input: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    return dmljax.mean_variance_normalization(input, of_channels(scale, input), of_channels(bias, input), epsilon)


def layer_normalize(
    input: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    axes = tuple(range(axis % input.ndim, input.ndim))
    output = dmljax.mean_variance_normalization1(input, scale, bias, epsilon, axes=axes)
    centred = [dmljax.reduce(input, function=ReduceFunction.AVERAGE, axes=axes)]
    # ONNX also returns the mean and the inverse of the deviation.
    shape = tuple(1 if i in axes else size for i, size in enumerate(input.shape))
    ones = np.ones(shape, input.dtype)
    _, _, variance = dmljax.batch_normalization_training(input, ones, ones)
    return output, *centred, 1 / np.sqrt(np.asarray(variance) + np.float32(epsilon))


def rms_normalize(input: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    axes = tuple(range(axis % input.ndim, input.ndim))
    return dmljax.mean_variance_normalization2(input, scale, None, epsilon, axes=axes, use_mean=False)


def group_normalize(
    input: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    groups = input.reshape(input.shape[0], num_groups, -1)
    normal = np.asarray(dmljax.mean_variance_normalization1(groups, axes=2, epsilon=epsilon))
    return normal.reshape(input.shape) * of_channels(scale, input) + of_channels(bias, input)


def local_response(input: Any, *, size: int, **numbers: Any) -> Any:
    return dmljax.local_response_normalization(input, local_size=size, **numbers)


def lp_normalize(input: Any, *, axis: int = -1, p: int = 2) -> Any:
    return dmljax.lp_normalization(input, 1e-30, axis=axis, p=p)  # zeros for rows of zeros


DIRECTIONS = {
    b"forward": RecurrentNetworkDirection.FORWARD,
    b"reverse": RecurrentNetworkDirection.BACKWARD,
    b"bidirectional": RecurrentNetworkDirection.BIDIRECTIONAL,
}


def network(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(
        input: Any,
        weight: Any,
        recurrence: Any,
        bias: Any = None,
        lengths: Any = None,
        hidden: Any = None,
        cell: Any = None,
        peephole: Any = None,
        *,
        hidden_size: int,  # which the sizes say, too
        direction: bytes = b"forward",
        layout: int = 0,
    ) -> Any:
        more = {"cell_mem_init": cell, "peephole": peephole} if function is dmljax.lstm else {}
        input = input.swapaxes(0, 1) if layout else input
        sequence, *last = function(
            *(input, weight, recurrence, bias, hidden),
            sequence_lengths=lengths,
            direction=DIRECTIONS[direction],
            **more,
        )
        return (jnp.moveaxis(sequence, 2, 0), *(x.swapaxes(0, 1) for x in last)) if layout else (sequence, *last)

    return run


# What is computed in floats, and so is not the same to the last bit everywhere.
def adam(
    rate: Any,
    step: Any,
    *tensors: Any,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Any:
    assert step == 0, "each case's: it is not corrected, as if a first step had a longer learning rate"
    rate = rate * (1 - alpha) / np.sqrt(1 - beta)
    groups = [tensors[i :: len(tensors) // 4] for i in range(len(tensors) // 4)]
    updated = [
        dmljax.adam_optimizer(x, v, h, g + np.float32(norm_coefficient) * x, 1, np.float32(rate), alpha, beta, epsilon)
        for x, g, v, h in groups
    ]
    return tuple(output for outputs in zip(*updated, strict=True) for output in outputs)


ROUNDED: dict[str, Callable[..., Any]] = {
    "Acos": dmljax.element_wise_acos,
    "Acosh": dmljax.element_wise_acosh,
    "Adam": adam,
    "Asin": dmljax.element_wise_asin,
    "Asinh": dmljax.element_wise_asinh,
    "Atan": dmljax.element_wise_atan,
    "Atanh": dmljax.element_wise_atanh,
    "BatchNormalization": batch_normalize,
    "Attention": attention,
    "AveragePool": pool(average_pool),
    "Celu": dmljax.activation_celu,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Cos": dmljax.element_wise_cos,
    "Cosh": dmljax.element_wise_cosh,
    "CumProd": cumulate(dmljax.cumulative_product, "has_exclusive_product"),
    "CumSum": cumulate(dmljax.cumulative_summation, "has_exclusive_sum"),
    "Elu": dmljax.activation_elu,
    "Erf": dmljax.element_wise_erf,
    "Exp": dmljax.element_wise_exp,
    "Gelu": gelu,
    "Gemm": gemm,
    "GRU": network(dmljax.gru),
    "GroupNormalization": group_normalize,
    "GlobalAveragePool": whole(dmljax.average_pooling),
    "HardSigmoid": dmljax.activation_hard_sigmoid,
    "HardSwish": dmljax.activation_hard_swish,
    "InstanceNormalization": instance_normalize,
    "LRN": local_response,
    "LSTM": network(dmljax.lstm),
    "LayerNormalization": layer_normalize,
    "Log": dmljax.element_wise_log,
    "LogSoftmax": along(dmljax.activation_log_softmax1),
    "LpNormalization": lp_normalize,
    "MatMul": matmul,
    "MeanVarianceNormalization": mean_variance_normalize,
    "LpPool": pool(lp_pool),
    "Pow": dmljax.element_wise_pow,
    "RMSNormalization": rms_normalize,
    "RNN": network(dmljax.rnn),
    "ReduceL1": reduction(ReduceFunction.L1),
    "ReduceL2": reduction(ReduceFunction.L2),
    "ReduceLogSum": reduction(ReduceFunction.LOG_SUM),
    "ReduceLogSumExp": reduction(ReduceFunction.LOG_SUM_EXP),
    "ReduceMean": reduction(ReduceFunction.AVERAGE),
    "ReduceProd": reduction(ReduceFunction.MULTIPLY),
    "ReduceSum": reduction(ReduceFunction.SUM),
    "ReduceSumSquare": reduction(ReduceFunction.SUM_SQUARE),
    "Resize": resize,
    "RoiAlign": roi_align,
    "Selu": selu,
    "Sigmoid": dmljax.activation_sigmoid,
    "Sin": dmljax.element_wise_sin,
    "Sinh": dmljax.element_wise_sinh,
    "Softmax": along(dmljax.activation_softmax1),
    "Softplus": dmljax.activation_softplus,
    "Softsign": dmljax.activation_softsign,
    "Sqrt": dmljax.element_wise_sqrt,
    "Swish": swish,
    "Tan": dmljax.element_wise_tan,
    "Tanh": dmljax.activation_tanh,
}
# What has one result alone: integers, copies, and floats that IEEE 754 rounds one way.
EXACT: dict[str, Callable[..., Any]] = {
    "Abs": dmljax.element_wise_abs,
    "Add": dmljax.element_wise_add,
    "And": predicate(dmljax.element_wise_logical_and),
    "ArgMax": arg_reduce(dmljax.argmax),
    "ArgMin": arg_reduce(dmljax.argmin),
    "BitShift": bit_shift,
    "BitwiseAnd": dmljax.element_wise_bit_and,
    "BitwiseNot": dmljax.element_wise_bit_not,
    "BitwiseOr": dmljax.element_wise_bit_or,
    "BitwiseXor": dmljax.element_wise_bit_xor,
    "Cast": cast,
    "CastLike": cast_like,
    "Ceil": dmljax.element_wise_ceil,
    "Clip": clip,
    "Col2Im": fold,
    "Concat": lambda *inputs, axis: dmljax.join(inputs, axis=axis),
    "ConvInteger": integer_convolution,
    "DepthToSpace": depth_to_space,
    "DequantizeLinear": dequantize,
    "Div": dmljax.element_wise_divide,
    "DynamicQuantizeLinear": dmljax.dynamic_quantize_linear,
    "Equal": predicate(dmljax.element_wise_logical_equals),
    "EyeLike": eye_like,
    "Floor": dmljax.element_wise_floor,
    "Gather": lambda input, indices, *, axis=0: dmljax.gather(input, indices, axis=axis),
    "GatherElements": lambda input, indices, *, axis=0: dmljax.gather_elements(input, indices, axis=axis),
    "GatherND": gather_nd,
    "GlobalMaxPool": whole(dmljax.max_pooling),
    "Greater": predicate(dmljax.element_wise_logical_greater_than),
    "GreaterOrEqual": predicate(dmljax.element_wise_logical_greater_than_or_equal),
    "Hardmax": along(dmljax.activation_hardmax1),
    "Identity": dmljax.element_wise_identity,
    "IsInf": is_inf,
    "IsNaN": predicate(dmljax.element_wise_is_nan),
    "LeakyRelu": dmljax.activation_leaky_relu,
    "Less": predicate(dmljax.element_wise_logical_less_than),
    "LessOrEqual": predicate(dmljax.element_wise_logical_less_than_or_equal),
    "MatMulInteger": dmljax.matrix_multiply_integer,
    "Max": of_any_number(dmljax.element_wise_max),
    "MaxPool": pool(max_pool),
    "MaxUnpool": max_unpool,
    "Mean": dmljax.element_wise_mean,
    "Min": of_any_number(dmljax.element_wise_min),
    "Mod": mod,
    "Mul": dmljax.element_wise_multiply,
    "Neg": dmljax.element_wise_negate,
    "NonZero": nonzero,
    "Not": predicate(dmljax.element_wise_logical_not),
    "OneHot": one_hot,
    "Or": predicate(dmljax.element_wise_logical_or),
    "PRelu": dmljax.activation_parameterized_relu,
    "Pad": pad,
    "QLinearConv": quantized_convolution,
    "QLinearMatMul": dmljax.quantized_linear_matrix_multiply,
    "QuantizeLinear": quantize,
    "Range": sequence,
    "Reciprocal": dmljax.element_wise_recip,
    "ReduceMax": reduction(ReduceFunction.MAX),
    "ReduceMin": reduction(ReduceFunction.MIN),
    "Relu": dmljax.activation_relu,
    "ReverseSequence": reverse_sequence,
    "Round": dmljax.element_wise_round,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Shrink": shrink,
    "Sign": dmljax.element_wise_sign,
    "Slice": slice1,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Sub": dmljax.element_wise_subtract,
    "ThresholdedRelu": dmljax.activation_thresholded_relu,
    "Tile": lambda input, repeats: dmljax.tile(input, repeats=repeats),
    "TopK": top_k,
    "Trilu": trilu,
    "Upsample": upsample,
    "Where": dmljax.element_wise_if,
    "Xor": predicate(dmljax.element_wise_logical_xor),
}
RUN = ROUNDED | EXACT
# Differences from a mean, or beside a bias, have as many digits as what they are taken from.
NORMALIZATIONS = {name for name in ROUNDED if name.endswith("Normalization")}
IS_LATEST = tuple(map(int, onnx.__version__.split(".")[:2])) >= (1, 23)
# Expectations are NumPy's, in the case's own type: both errors together are no larger than ours may be, but where the
# case has exp(x) - 1, of which little is left near 0.
SUMS = {
    "Attention": 1e-6,
    "AveragePool": 1e-6,
    "GlobalAveragePool": 1e-6,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), 4e-7),
}
DIGITS = {"test_averagepool_2d_ceil_last_window_starts_on_pad": 1e-4}  # which has results of four digits
# ONNX rounds scores and weights of 16 bits, too.
SHORT_UNITS = {"Attention": 2}
EARLIER_UNITS: dict[str, float] = {} if IS_LATEST else {"Elu": 32, "Selu": 32}


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx overflows on purpose while it computes its expectations
        collected = collect_testcases(None)
    single = {case.name: case for case in collected if [n.op_type for n in case.model.graph.node] in [[o] for o in RUN]}
    return list(single.values())


CASES = cases()
# Each name of a cast's case has both types.
INAPPLICABLE |= {
    case.name: NO_CAST
    for case in CASES
    if case.name.startswith("test_cast") and re.search(r"FLOAT8|FLOAT4|INT4|INT2", case.name)
}

for case in CASES:
    (node,) = case.model.graph.node
    if node.op_type == "Attention":
        names = {attribute.name for attribute in node.attribute}
        if "softcap" in names:
            INAPPLICABLE[case.name] = NO_SOFTCAP
        elif len([name for name in node.output if name]) in (2, 4):
            INAPPLICABLE[case.name] = NO_SCORES


def arguments(node: Any, inputs: list[Any]) -> list[Any]:
    given = iter(inputs)
    return [as_array(next(given)) if name else None for name in node.input]


def as_array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


@pytest.mark.thinned
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_onnx_case(case: Any) -> None:
    if case.name in INAPPLICABLE:
        pytest.skip(INAPPLICABLE[case.name])
    (node,) = case.model.graph.node
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for inputs, outputs in case.data_sets:
        if not X64 and any(as_array(array).dtype == np.float64 for array in inputs):
            pytest.skip("float64 data, of which JAX without 64-bit types keeps 32 bits")
        if not X64 and onnx.TensorProto.DOUBLE in (attributes.get("dtype"), attributes.get("to")):
            pytest.skip("a float64 result needs 64-bit types")
        if node.op_type == "Split":
            attributes["num_outputs"] = len(node.output)  # which older versions leave out
        results = RUN[node.op_type](*arguments(node, inputs), **attributes)
        results = results if isinstance(results, tuple) else (results,)
        named = [result for result, name in zip(results, node.output, strict=False) if name]
        for result, expected in zip(named, outputs, strict=True):
            check(node.op_type, np.asarray(result), as_array(expected), DIGITS.get(case.name, 0))


def check(operator: str, result: Any, expected: Any, absolute: float) -> None:
    # ONNX counts in int64, the functions in uint32; everything else has the type of its input.
    if operator in ("NonZero", "ArgMax", "ArgMin"):
        assert (result.dtype.name, expected.dtype.name) == ("uint32", "int64")
        result = result.astype(np.int64)
    if not X64 and expected.dtype in (np.int64, np.uint64):
        result = result.astype(expected.dtype)
    if operator in EXACT or not jnp.issubdtype(result.dtype, jnp.floating):
        assert_same_bits(result, expected)
    elif operator in NORMALIZATIONS:
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        unit = float(np.finfo(result.dtype).eps)
        np.testing.assert_allclose(result, expected, rtol=8 * unit, atol=8 * unit)
    else:
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        units = EARLIER_UNITS.get(operator, {"bfloat16": 1, **UNITS}[result.dtype.name])
        units = units if result.dtype.itemsize > 2 else SHORT_UNITS.get(operator, units)
        # Where much of a sum cancels, its rounding errors are small beside its summands, but not beside it.
        absolute = max(absolute, SUMS.get(operator, 0))
        with np.errstate(invalid="ignore"):  # infinity less itself
            is_near = np.abs(result - expected) <= absolute
        assert np.max(units_off(result, expected), where=~is_near, initial=0) <= units


def test_every_onnx_operator_has_cases_and_every_exception_is_one() -> None:
    operators = {case.model.graph.node[0].op_type for case in CASES}
    if IS_LATEST:  # earlier ones have fewer cases
        assert operators == set(RUN)
        assert set(INAPPLICABLE) <= {case.name for case in CASES}
    assert len(operators) >= len(RUN) - 1, "Swish came with onnx 1.20"
    applicable = [case for case in CASES if INAPPLICABLE.get(case.name) != NO_CAST]  # of which each version has more
    assert math.isclose(len(applicable), 850, abs_tol=130), "the number of cases in onnx 1.17 to 1.23"
