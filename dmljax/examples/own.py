"""dmljax's own examples, for operators whose page has none."""

from typing import Any

import numpy as np

from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS
from dmljax.examples.example import FLOAT32, INF, INT8, INT32, NAN, UINT8, UINT32, Example, all_of_type, element_wise
from dmljax.ops.activation import (
    ActivationLeakyReluDesc,
    ActivationReluDesc,
    ActivationSigmoidDesc,
    ActivationTanhDesc,
)
from dmljax.ops.convolution import ConvolutionDesc
from dmljax.ops.elementary import CastDesc
from dmljax.ops.generation import RandomGeneratorDesc
from dmljax.ops.movement import SliceGradDesc
from dmljax.ops.pooling import MaxPooling1Desc, MaxPooling2Desc
from dmljax.ops.quantization import DequantizeDesc, DynamicQuantizeLinearDesc, QuantizeDesc
from dmljax.ops.regions import RoiAlign1Desc, RoiAlignDesc
from dmljax.ops.training import AdamOptimizerDesc
from dmljax.scalars import ScaleBias, Size2D
from dmljax.tensor import TensorDesc
from dmljax.types import (
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    DataType,
    InterpolationMode,
    IsInfinityMode,
    MatrixTransform,
    MultiheadAttentionMaskType,
    QuantizationType,
    RandomGeneratorType,
    RecurrentNetworkDirection,
    ReduceFunction,
)


def _unary(name: str, input: Any, output: Any, note: str = "", **attributes: Any) -> Example:
    return element_wise(name, {"input": [input]}, [output], note, **attributes)


def _binary(name: str, a: Any, b: Any, output: Any, note: str = "", **attributes: Any) -> Example:
    return element_wise(name, {"a": [a], "b": [b]}, [output], note, **attributes)


def _convolution(title: str, image: Any, filter: Any, output: Any, note: str, **attributes: Any) -> Example:
    tensors = {"input": [[image]], "filter": [[filter]], "output": [[output]]}
    members: dict[str, Any] = {
        "mode": ConvolutionMode.CROSS_CORRELATION,
        "direction": ConvolutionDirection.FORWARD,
        "strides": (1, 1),
        "dilations": (1, 1),
        "start_padding": (0, 0),
        "end_padding": (0, 0),
        "output_padding": (0, 0),
        "group_count": 1,
    }
    members |= {field: TensorDesc(FLOAT32, np.shape(values)) for field, values in tensors.items()} | attributes
    desc = ConvolutionDesc(**members)
    return Example(title, desc, tensors, {"output": tensors["output"]}, note)


_WINDOWS: dict[str, Any] = {"strides": (1, 1), "window_size": (2, 2), "start_padding": (0, 0), "end_padding": (0, 0)}
_THREE_BY_THREE = [[[[1, 2, 3], [2, 4, 2], [5, 6, 7]]]]  # as on the page of MAX_POOLING_GRAD


def _pooling(name: str, output: Any, note: str = "", **attributes: Any) -> Example:
    """An example of windows of 2 x 2 over 3 x 3 elements, 1 apart and without padding unless `attributes` say so."""
    return element_wise(name, {"input": _THREE_BY_THREE}, output, note, **_WINDOWS | attributes)


_REGION_TYPES = {"batch_indices": UINT32}
_ROW = [[[[0, 10, 20, 30]]]]
_SAMPLED: dict[str, Any] = {
    "reduction_function": ReduceFunction.AVERAGE,
    "interpolation_mode": InterpolationMode.LINEAR,
    "spatial_scale_x": 1,
    "spatial_scale_y": 1,
    "out_of_bounds_input_value": 0,
    "minimum_samples_per_output": 1,
    "maximum_samples_per_output": 1,
}


def _regions(
    operator: type[RoiAlignDesc | RoiAlign1Desc], roi: Any, output: Any, note: str, **attributes: Any
) -> Example:
    """An example of regions of a row of four pixels."""
    inputs = {"input": _ROW, "roi": roi, "batch_indices": [0] * len(roi)}
    name = operator.type.removeprefix(OPERATOR_PREFIX)
    return element_wise(name, inputs, output, note, types=_REGION_TYPES, **_SAMPLED | attributes)


def _max_pooling(operator: type[MaxPooling1Desc | MaxPooling2Desc], **attributes: Any) -> Example:
    values = TensorDesc(FLOAT32, (1, 1, 2, 2))
    desc = operator(
        input=TensorDesc(FLOAT32, (1, 1, 3, 3)),
        output=values,
        output_indices=TensorDesc(UINT32, values.sizes),
        **_WINDOWS | attributes,
    )
    outputs = {"output": [[[[4, 4], [6, 7]]]], "output_indices": [[[[4, 4], [7, 8]]]]}
    return Example("Example", desc, {"input": _THREE_BY_THREE}, outputs, "of equal elements, the first is selected")


_UINT8_TENSORS: dict[str, Any] = {"types": all_of_type(UINT8)}
_UINT8_OUTPUT: dict[str, Any] = {"types": {"output": UINT8}}
_QUANTIZED_TYPES = {"zero_point": UINT8, "output": UINT8}


def _blockwise(
    operator: type[QuantizeDesc | DequantizeDesc], types: list[DataType], values: list[Any], output: Any, note: str
) -> Example:
    """An example with `values` of the input, the scale and the zero point, and the types of these and of the output."""
    tensors = [TensorDesc(kind, np.shape(one)) for kind, one in zip(types, [*values, output], strict=True)]
    desc = operator(
        input=tensors[0],
        quantization_type=QuantizationType.SCALE_ZERO_POINT,
        quantization_tensors=tuple(tensors[1:3]),
        output=tensors[3],
    )
    names = ("input", "quantization_tensors[0]", "quantization_tensors[1]")
    return Example("Example", desc, dict(zip(names, values, strict=True)), {"output": output}, note)


def _of_floats(name: str, note: str, inputs: Any, outputs: Any, **attributes: Any) -> Example:
    tensors = {field: TensorDesc(FLOAT32, np.shape(value)) for field, value in (inputs | outputs).items()}
    return Example("Example", OPERATORS[OPERATOR_PREFIX + name](**tensors, **attributes), inputs, outputs, note)


_FORWARD: dict[str, Any] = {"direction": RecurrentNetworkDirection.FORWARD}
_RELU = ActivationReluDesc()
_NETWORKS = (
    _of_floats(
        "RNN",
        "each adds half of the state before; the second direction begins at the end",
        {"input": [[[[1]], [[0]], [[2]]]], "weight": [[[[1]], [[1]]]], "recurrence": [[[[0.5]], [[0.5]]]]},
        {
            "output_sequence": [[[[1]], [[1.5]]], [[[0.5]], [[1]]], [[[2.25]], [[2]]]],
            "output_single": [[[[2.25]], [[1.5]]]],
        },
        activation_descs=[_RELU, _RELU],
        direction=RecurrentNetworkDirection.BIDIRECTIONAL,
    ),
    _of_floats(
        "GRU",
        "without weights, the update gate is sigmoid(0), which keeps half of the state",
        {
            "input": [[[[1]], [[1]], [[1]]]],
            "weight": [[[[0], [0], [0]]]],
            "recurrence": [[[[0], [0], [0]]]],
            "hidden_init": [[[[8]]]],
        },
        {"output_sequence": [[[[4]]], [[[2]]], [[[1]]]], "output_single": [[[[1]]]]},
        activation_descs=[ActivationSigmoidDesc(), ActivationTanhDesc()],
        linear_before_reset=False,
        **_FORWARD,
    ),
    _of_floats(
        "LSTM",
        "the biases of i, o and f alone open their gates, so that the cell adds up its input",
        {
            "input": [[[[1]], [[3]], [[0.25]]]],
            "weight": [[[[0], [0], [0], [1]]]],
            "recurrence": [[[[0], [0], [0], [0]]]],
            "bias": [[[[1, 0.5, 1, 0, 0, 0, 0, 0]]]],
        },
        {
            "output_sequence": [[[[0.5]]], [[[2]]], [[[2.125]]]],
            "output_single": [[[[2.125]]]],
            "output_cell_single": [[[[4.25]]]],
        },
        activation_descs=[_RELU, _RELU, _RELU],
        clip_threshold=0,
        use_clip_threshold=False,
        couple_input_forget=False,
        **_FORWARD,
    ),
)

_CHANNELS = {"input": [[[[1, 3]], [[5, 9]]]]}
_RESPONSE = {"cross_channel": True, "local_size": 3, "alpha": 3, "beta": 1, "bias": 0}
_NORMALIZATIONS = (
    _of_floats(
        "BATCH_NORMALIZATION",
        "two channels",
        {
            **_CHANNELS,
            "mean": [[[[1]], [[5]]]],
            "variance": [[[[4]], [[16]]]],
            "scale": [[[[2]], [[1]]]],
            "bias": [[[[0.5]], [[0]]]],
        },
        {"output": [[[[0.5, 2.5]], [[0, 1]]]]},
        spatial=True,
        epsilon=0,
    ),
    _of_floats(
        "BATCH_NORMALIZATION_GRAD",
        "two channels, which the sums keep apart",
        {
            **_CHANNELS,
            "input_gradient": [[[[1, 2]], [[3, 4]]]],
            "mean": [[[[1]], [[5]]]],
            "variance": [[[[4]], [[16]]]],
            "scale": [[[[2]], [[1]]]],
        },
        {
            "output_gradient": [[[[1, 2]], [[0.75, 1]]]],
            "output_scale_gradient": [[[[2]], [[4]]]],
            "output_bias_gradient": [[[[3]], [[7]]]],
        },
        epsilon=0,
    ),
    _of_floats(
        "BATCH_NORMALIZATION_TRAINING",
        "the mean and variance of each channel",
        {**_CHANNELS, "scale": [[[[2]], [[1]]]], "bias": [[[[0.5]], [[0]]]]},
        {
            "output": [[[[-1.5, 2.5]], [[-1, 1]]]],
            "output_mean": [[[[2]], [[7]]]],
            "output_variance": [[[[1]], [[4]]]],
        },
        epsilon=0,
    ),
    _of_floats(
        "BATCH_NORMALIZATION_TRAINING_GRAD",
        "one element of the output is weighted; each element of the input has an effect on it",
        {
            "input": [[[[1, 3, 3, 1]]]],
            "input_gradient": [[[[4, 0, 0, 0]]]],
            "mean": [[[[2]]]],
            "variance": [[[[1]]]],
            "scale": [[[[1]]]],
        },
        {
            "output_gradient": [[[[2, 0, 0, -2]]]],
            "output_scale_gradient": [[[[-4]]]],
            "output_bias_gradient": [[[[4]]]],
        },
        epsilon=0,
    ),
    _of_floats(
        "MEAN_VARIANCE_NORMALIZATION",
        "each channel by its own mean and variance",
        _CHANNELS,
        {"output": [[[[-1, 1]], [[-1, 1]]]]},
        cross_channel=False,
        normalize_variance=True,
        epsilon=0,
    ),
    _of_floats(
        "MEAN_VARIANCE_NORMALIZATION1",
        "the norm of a layer",
        {"input": [[1, 3], [5, 9]], "scale": [[2, 1]], "bias": [[0.5, 0]]},
        {"output": [[-1.5, 1], [-1.5, 1]]},
        axes=(1,),
        normalize_variance=True,
        epsilon=0,
    ),
    _of_floats(
        "MEAN_VARIANCE_NORMALIZATION2",
        "divided by the root of the mean square, 27, plus epsilon",
        {"input": [[3, 3, 3, 9]]},
        {"output": [[0.5, 0.5, 0.5, 1.5]]},
        axes=(1,),
        use_mean=False,
        use_variance=True,
        epsilon=9,
    ),
    _of_floats(
        "LOCAL_RESPONSE_NORMALIZATION",
        "three channels: the squares of two or three of them are 4, 8 and 4",
        {"input": [[[[2]], [[0]], [[2]]]]},
        {"output": [[[[0.5]], [[0]], [[0.5]]]]},
        **_RESPONSE,
    ),
    _of_floats(
        "LOCAL_RESPONSE_NORMALIZATION_GRAD",
        "of the sum of all outputs",
        {"input": [[[[2]], [[0]], [[2]]]], "input_gradient": [[[[1]], [[1]], [[1]]]]},
        {"output_gradient": [[[[-0.25]], [[0.125]], [[-0.25]]]]},
        **_RESPONSE,
    ),
    _of_floats(
        "LP_NORMALIZATION",
        "a norm of 5, and one below epsilon",
        {"input": [[3, 4], [0, 0.25]]},
        {"output": [[0.6, 0.8], [0, 0.5]]},
        axis=1,
        epsilon=0.5,
        p=2,
    ),
)

_PARAMETERS = TensorDesc(FLOAT32, (1, 1, 1, 2))
_STATE = TensorDesc(UINT32, (1, 1, 1, 6))


def _attention(name: str, note: str, outputs: dict[str, Any], attributes: Any, **inputs: Any) -> Example:
    values = inputs | outputs
    types = {"mask": INT32, "past_sequence_lengths": INT32}
    tensors = {field: TensorDesc(types.get(field, FLOAT32), np.shape(value)) for field, value in values.items()}
    desc = OPERATORS[OPERATOR_PREFIX + name](**tensors, scale=1.0, mask_filter_value=-10000.0, **attributes)
    return Example("Example", desc, inputs, outputs, note)


_ATTENTIONS = (
    _attention(
        "MULTIHEAD_ATTENTION",
        "the first query sees the first key alone, the second both of them alike",
        {"output": [[[2, 10], [3, 20]]]},
        {"head_count": 1, "mask_type": MultiheadAttentionMaskType.BOOLEAN},
        query=[[[1], [0]]],
        key=[[[5], [6]]],
        value=[[[2, 10], [4, 30]]],
        mask=[[[[1, 0], [1, 1]]]],
    ),
    _attention(
        "MULTIHEAD_ATTENTION1",
        "two heads share the keys: the new one is written behind the one that there is",
        {"output": [[[3, 3]]], "output_present_key": [[[[5], [1], [0]]]], "output_present_value": [[[[2], [4], [0]]]]},
        {"query_head_count": 2, "key_value_head_count": 1, "mask_type": MultiheadAttentionMaskType.NONE},
        query=[[[0, 0]]],
        key=[[[1]]],
        value=[[[4]]],
        past_key=[[[[5], [0], [0]]]],
        past_value=[[[[2], [0], [0]]]],
        past_sequence_lengths=[1],
    ),
)

OWN_EXAMPLES = (
    *_ATTENTIONS,
    *_NORMALIZATIONS,
    *_NETWORKS,
    Example(
        "Example",
        AdamOptimizerDesc(
            **dict.fromkeys(("input_parameters", "input_first_moment", "input_second_moment"), _PARAMETERS),
            gradient=_PARAMETERS,
            training_step=TensorDesc(UINT32, (1, 1, 1, 1)),
            **dict.fromkeys(("output_parameters", "output_first_moment", "output_second_moment"), _PARAMETERS),
            learning_rate=0.5,
            beta1=0.5,
            beta2=0.75,
            epsilon=0,
        ),
        {
            "input_parameters": [1, 2],
            "input_first_moment": [0, 0],
            "input_second_moment": [0, 0],
            "gradient": [4, -2],
            "training_step": 1,
        },
        {"output_parameters": [0.5, 2.5], "output_first_moment": [2, -1], "output_second_moment": [4, 1]},
        "the first step is as long as LearningRate, whatever the gradient's magnitude",
    ),
    Example(
        "Example",
        RandomGeneratorDesc(
            input_state=_STATE,
            output=TensorDesc(UINT32, (1, 1, 3, 2)),
            output_state=_STATE,
            type=RandomGeneratorType.PHILOX_4X32_10,
        ),
        {"input_state": [0, 0, 0, 0, 0, 0]},
        {
            "output": [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8, 0xF8E4CCA4, 0x5CB200DB],
            "output_state": [2, 0, 0, 0, 0, 0],
        },
        "the first block is Random123's known answer; a second one was begun",
    ),
    Example(
        "Example",
        SliceGradDesc(
            input_gradient=TensorDesc(FLOAT32, (2, 2)),
            output_gradient=TensorDesc(FLOAT32, (4, 4)),
            input_window_offsets=(0, 0),
            input_window_sizes=(4, 4),
            input_window_strides=(2, 2),
        ),
        {"input_gradient": [[1, 2], [3, 4]]},
        {"output_gradient": [[1, 0, 2, 0], [0, 0, 0, 0], [3, 0, 4, 0], [0, 0, 0, 0]]},
        "the page has letters instead of numbers",
    ),
    element_wise(
        "ACTIVATION_HARDMAX",
        {"input": [[3, 0, 5, 2], [7, 1, 7, 7]]},
        [[0, 0, 1, 0], [1, 0, 0, 0]],
        "the first of equal values is chosen",
    ),
    element_wise(
        "GEMM",
        {"a": [[1, 2], [3, 4]], "b": [[1, 0], [2, 1]], "c": [[0.5, -9], [0.5, -9]]},
        [[2.5, 0], [6.5, 11]],
        "the columns of B are multiplied, since TransB is TRANSPOSE; RELU makes 0 of -1",
        trans_a=MatrixTransform.NONE,
        trans_b=MatrixTransform.TRANSPOSE,
        alpha=2,
        beta=1,
        fused_activation=ActivationReluDesc(),
    ),
    element_wise(
        "MATRIX_MULTIPLY_INTEGER",
        {"a": [[0, 255], [3, 5]], "a_zero_point": [[0], [3]], "b": [[-128], [127]]},
        [[32385], [254]],
        "each row of A has a zero point of its own",
        types={"a": UINT8, "a_zero_point": UINT8, "b": INT8, "output": INT32},
    ),
    element_wise(
        "MATRIX_MULTIPLY_INTEGER_TO_FLOAT",
        {
            "a": [[1, 2]],
            "a_scale": [[0.5]],
            "a_zero_point": [[1]],
            "b": [[3], [4]],
            "b_scale": [[0.25]],
            "bias": [[10]],
        },
        [[10.5]],
        types={"a": INT8, "a_zero_point": INT8, "b": INT8},
    ),
    element_wise(
        "QUANTIZED_LINEAR_MATRIX_MULTIPLY",
        {
            "a": [[1, 2], [100, 100]],
            "a_scale": [[0.5]],
            "b": [[3], [4]],
            "b_scale": [[1]],
            "output_scale": [[1]],
            "output_zero_point": [[-3]],
        },
        [[3], [127]],
        "5.5 goes to the even 6, and 350 saturates",
        types={"a": INT8, "b": INT8, "output_zero_point": INT8, "output": INT8},
    ),
    element_wise(
        "VALUE_SCALE_2D",
        {"input": [[[[1, 2]], [[1, 2]], [[1, 2]]]]},
        [[[[12, 14]], [[22, 24]], [[32, 34]]]],
        scale=2,
        bias=(10, 20, 30),
    ),
    _pooling("AVERAGE_POOLING", [[[[2.25, 2.75], [4.25, 4.75]]]], include_padding=False),
    _pooling(
        "AVERAGE_POOLING1",
        [[[[4, 2, 4], [4, 4, 4], [4, 2, 4]]]],
        "a window is divided by the number of its elements that are not padding",
        dilations=(2, 2),
        start_padding=(1, 1),
        end_padding=(1, 1),
        include_padding=False,
    ),
    _pooling("LP_POOLING", [[[[9, 11], [17, 19]]]], p=1),
    _pooling("LP_POOLING1", [[[[16]]]], dilations=(2, 2), p=1),
    _pooling("MAX_POOLING", [[[[4, 4], [6, 7]]]]),
    _max_pooling(MaxPooling1Desc),
    _max_pooling(MaxPooling2Desc, dilations=(1, 1)),
    element_wise(
        "MAX_UNPOOLING",
        {"input": [[[[4, 4], [6, 7]]]], "indices": [[[[4, 4], [7, 8]]]]},
        [[[[0, 0, 0], [0, 4, 0], [0, 6, 7]]]],
        types={"indices": UINT32},
    ),
    element_wise(
        "QUANTIZED_LINEAR_AVERAGE_POOLING",
        {
            "input": [[[[10, 20, 255]]]],
            "input_scale": [0.5],
            "input_zero_point": [10],
            "output_scale": [2],
            "output_zero_point": [3],
        },
        [[[[4, 35]]]],
        "halves are rounded to the nearest even integer",
        types={"input": UINT8, "input_zero_point": UINT8, "output_zero_point": INT8, "output": INT8},
        **_WINDOWS | {"window_size": (1, 2)},
        dilations=(1, 1),
        include_padding=False,
    ),
    Example(
        "Example",
        CastDesc(input=TensorDesc(FLOAT32, (1, 5)), output=TensorDesc(INT8, (1, 5))),
        {"input": [[-1.5, 2.5, 300, -INF, NAN]]},
        {"output": [[-1, 2, 127, -128, 0]]},
        "truncated toward zero; the nearest end of the range for what is beyond it",
    ),
    _convolution(
        "An image and a filter of 2 by 2",
        [[1, 2, 0], [0, 1, 3], [2, 0, 1]],
        [[1, 0], [0, -1]],
        [[0, 0], [0, 0]],
        "the differences along the diagonal, where they are positive",
        fused_activation=ActivationReluDesc(),
    ),
    _convolution(
        "The transposed convolution, of stride 2",
        [[1, 2]],
        [[1, 10, 100]],
        [[1, 10, 102, 20, 200]],
        "each element of the image, times the filter, is added to a window of the output",
        direction=ConvolutionDirection.BACKWARD,
        strides=(1, 2),
    ),
    element_wise(
        "CONVOLUTION_INTEGER",
        {
            "input": [[[[7, 9, 255]]]],
            "input_zero_point": [[[[7]]]],
            "filter": [[[[1, 2]]], [[[-1, 127]]]],
            "filter_zero_point": [[[[0]], [[-1]]]],
        },
        [[[[0, 4, 498, 248]], [[0, 256, 31744, 0]]]],
        "the padding is the zero point of the input, so that it adds nothing",
        types={"input": UINT8, "input_zero_point": UINT8, "filter": INT8, "filter_zero_point": INT8, "output": INT32},
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 1),
        end_padding=(0, 1),
        group_count=1,
    ),
    element_wise(
        "QUANTIZED_LINEAR_CONVOLUTION",
        {
            "input": [[[[10, 20, 250]]]],
            "input_scale": [[[[0.5]]]],
            "input_zero_point": [[[[10]]]],
            "filter": [[[[1, 2]]]],
            "filter_scale": [[[[1]]]],
            "bias": [[[[1]]]],
            "output_scale": [[[[1]]]],
        },
        [[[[10, 246]]]],
        "10.5 and 245.5 are rounded to the nearest even integers",
        types={"input": UINT8, "input_zero_point": UINT8, "filter": INT8, "bias": INT32, "output": UINT8},
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 0),
        group_count=1,
    ),
    *(
        element_wise(
            name,
            {"input": [[[[0, 8], [16, 24]]]]},
            [[[[0, 2, 6, 8], [4, 6, 10, 12], [12, 14, 18, 20], [16, 18, 22, 24]]]],
            interpolation_mode=InterpolationMode.LINEAR,
            **scales,
        )
        for name, scales in (
            ("UPSAMPLE_2D", {"scale_size": Size2D(width=2, height=2)}),
            ("RESAMPLE", {"scales": (1, 1, 2, 2)}),
        )
    ),
    element_wise(
        "RESAMPLE1",
        {"input": [[1, 2, 3, 4]]},
        [[2, 4]],
        "of two elements that are as near, the second is chosen",
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        scales=(1, 0.5),
        input_pixel_offsets=(0.5, 0.5),
        output_pixel_offsets=(-0.5, -0.5),
    ),
    element_wise(
        "RESAMPLE2",
        {"input": [[1, 2, 3, 4]]},
        [[1, 3]],
        "of two elements that are as near, the first is chosen",
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        rounding_direction=AxisDirection.INCREASING,
        scales=(1, 0.5),
        input_pixel_offsets=(1, 1),
        output_pixel_offsets=(-0.5, -0.5),
    ),
    element_wise(
        "RESAMPLE3",
        {"input": [[0, 0, 8, 0, 0, 0]]},
        [[1, 3, 0]],
        "four elements make one, with the weights 1/8, 3/8, 3/8 and 1/8",
        interpolation_mode=InterpolationMode.LINEAR,
        rounding_direction=AxisDirection.DECREASING,
        scales=(1, 0.5),
        input_pixel_offsets=(0.5, 0.5),
        output_pixel_offsets=(-0.5, -0.5),
        antialiased=True,
    ),
    _unary("ACTIVATION_CELU", [-INF, 0, 2], [-0.5, 0, 2], alpha=0.5),
    _unary("ACTIVATION_ELU", [-INF, 0, 2], [-0.5, 0, 2], alpha=0.5),
    _unary("ACTIVATION_GELU", [-100, 0, 20], [-0.0, 0, 20]),
    _unary("ACTIVATION_HARD_SIGMOID", [-9, 1, 9], [0, 0.75, 1], alpha=0.25, beta=0.5),
    _unary("ACTIVATION_HARD_SWISH", [-9, 1, 9], [-0.0, 0.75, 9], alpha=0.25, beta=0.5),
    _unary("ACTIVATION_IDENTITY", [-0.0, 2.5], [-0.0, 2.5]),
    _unary("ACTIVATION_LEAKY_RELU", [-2, 0, 3], [-1, 0, 3], alpha=0.5),
    _unary("ACTIVATION_LINEAR", [1, -2], [3.5, -5.5], alpha=3, beta=0.5),
    _unary("ACTIVATION_LOG_SOFTMAX", [1000, 0, -INF], [0, -1000, -INF], "no exponential overflows"),
    element_wise(
        "ACTIVATION_LOG_SOFTMAX1",
        {"input": [[1000, -50], [0, 150]]},
        [[0, -200], [-1000, 0]],
        "the page repeats the examples of HARDMAX1",
        axes=(0,),
    ),
    element_wise("ACTIVATION_PARAMETERIZED_RELU", {"input": [[-2, 3, -4]], "slope": [[0.5, 9, 2]]}, [[-1, 3, -8]]),
    _unary("ACTIVATION_PARAMETRIC_SOFTPLUS", [-INF, 1000], [0, 6000], alpha=3, beta=2),
    _unary("ACTIVATION_RELU", [-1, -0.0, 2, NAN], [0, 0, 2, NAN]),
    element_wise("ACTIVATION_RELU_GRAD", {"input": [[-1, 0, 2]], "input_gradient": [[5, 6, 7]]}, [[0, 0, 7]]),
    _unary("ACTIVATION_SCALED_ELU", [-INF, 0, 2], [-1.5, 0, 6], alpha=0.5, gamma=3),
    _unary("ACTIVATION_SCALED_TANH", [-INF, 0, 100], [-3, 0, 3], alpha=3, beta=0.5),
    _unary("ACTIVATION_SHRINK", [-2, 0.25, 0.5, 3], [-1, 0, 0, 2], bias=1, threshold=0.5),
    _unary("ACTIVATION_SIGMOID", [-INF, 0, 100], [0, 0.5, 1]),
    element_wise("ACTIVATION_SOFTMAX", {"input": [[1000, 1000], [-INF, 5]]}, [[0.5, 0.5], [0, 1]]),
    element_wise("ACTIVATION_SOFTMAX1", {"input": [[2, 0], [2, -200]]}, [[0.5, 1], [0.5, 0]], axes=(0,)),
    _unary("ACTIVATION_SOFTPLUS", [-INF, 1000], [0, 1000], steepness=2),
    _unary("ACTIVATION_SOFTSIGN", [-1, 0, 3], [-0.5, 0, 0.75]),
    _unary("ACTIVATION_SWISH", [-2000, 0, 200], [-0.0, 0, 200], sigmoid_input_scale=1),
    _unary("ACTIVATION_TANH", [-INF, 0, 100], [-1, 0, 1]),
    _unary("ACTIVATION_THRESHOLDED_RELU", [0.5, 1, 1.5], [0, 0, 1.5], alpha=1),
    _unary("ELEMENT_WISE_ABS", [-2, 3], [3, 7], scale_bias=ScaleBias(2, 1)),
    _unary("ELEMENT_WISE_ACOS", [1, 2], [0, NAN]),
    _unary("ELEMENT_WISE_ACOSH", [1, 0.5], [0, NAN]),
    _binary("ELEMENT_WISE_ADD", [1, 2], [0.5, -2], [1.5, 0]),
    _binary(
        "ELEMENT_WISE_ADD1",
        [1, 2],
        [0.5, -4],
        [1.5, -1],
        "the fused activation is applied to the sum",
        fused_activation=ActivationLeakyReluDesc(alpha=0.5),
    ),
    _unary("ELEMENT_WISE_ASIN", [0, 2], [0, NAN]),
    _unary("ELEMENT_WISE_ASINH", [0, -INF], [0, -INF]),
    _unary("ELEMENT_WISE_ATAN", [-0.0, NAN], [-0.0, NAN]),
    _unary("ELEMENT_WISE_ATANH", [0, 1, -1, 2], [0, INF, -INF, NAN]),
    _binary("ELEMENT_WISE_ATAN_YX", [0, -0.0], [2, 2], [0, -0.0], "a is the y coordinate, b the x coordinate"),
    _binary("ELEMENT_WISE_BIT_AND", [12, 5], [10, 4], [8, 4], **_UINT8_TENSORS),
    _binary("ELEMENT_WISE_BIT_OR", [12, 5], [10, 2], [14, 7], **_UINT8_TENSORS),
    _binary("ELEMENT_WISE_BIT_SHIFT_LEFT", [1, 255, 1], [7, 4, 8], [128, 240, 0], **_UINT8_TENSORS),
    _binary("ELEMENT_WISE_BIT_SHIFT_RIGHT", [128, 255, 128], [7, 4, 8], [1, 15, 0], **_UINT8_TENSORS),
    _binary(
        "ELEMENT_WISE_BIT_XOR", [12, 5], [10, 4], [6, 1], "the page repeats the example of BIT_NOT", **_UINT8_TENSORS
    ),
    _unary("ELEMENT_WISE_CEIL", [-0.5, 1.25], [-0.0, 2]),
    _unary("ELEMENT_WISE_CLIP", [-3, 0.5, 3], [-1, 0.5, 2], min=-1, max=2),
    _unary(
        "ELEMENT_WISE_CLIP1", [-3, 0, 3], [-1, 0, 2], types=all_of_type(INT32), min_max_data_type=INT32, min=-1, max=2
    ),
    element_wise(
        "ELEMENT_WISE_CLIP_GRAD", {"input": [[-1, 0, 1]], "input_gradient": [[5, 6, 7]]}, [[0, 6, 7]], min=-1, max=2
    ),
    element_wise(
        "ELEMENT_WISE_CLIP_GRAD1",
        {"input": [[-1, 0, 1]], "input_gradient": [[5, 6, 7]]},
        [[0, 6, 0]],
        min_max_data_type=FLOAT32,
        min=-1,
        max=1,
    ),
    _unary("ELEMENT_WISE_CONSTANT_POW", [-2, 0, 3], [4, 0, 9], exponent=2),
    _unary("ELEMENT_WISE_COS", [0, INF], [1, NAN]),
    _unary("ELEMENT_WISE_COSH", [0, -1000], [1, INF]),
    element_wise(
        "ELEMENT_WISE_DEQUANTIZE_LINEAR",
        {"input": [[0, 255]], "scale": [[0.5, 2]], "zero_point": [[128, 128]]},
        [[-64, 254]],
        types={"input": UINT8, "zero_point": UINT8},
    ),
    _binary("ELEMENT_WISE_DIFFERENCE_SQUARE", [1, 5], [4, 3], [9, 4]),
    _binary(
        "ELEMENT_WISE_DIVIDE",
        [-7, 7],
        [2, -2],
        [-3, -3],
        "integer division truncates toward zero",
        types=all_of_type(INT32),
    ),
    _unary("ELEMENT_WISE_ERF", [0, -INF, 10], [0, -1, 1]),
    _unary("ELEMENT_WISE_EXP", [0, -INF, 1000], [1, 0, INF]),
    _unary("ELEMENT_WISE_FLOOR", [-0.5, 1.25], [-1, 1]),
    _unary("ELEMENT_WISE_IDENTITY", [1, -2], [3.5, -5.5], scale_bias=ScaleBias(3, 0.5)),
    _unary(
        "ELEMENT_WISE_IS_INFINITY", [-INF, NAN, INF], [1, 0, 0], **_UINT8_OUTPUT, infinity_mode=IsInfinityMode.NEGATIVE
    ),
    _unary("ELEMENT_WISE_IS_NAN", [NAN, INF, 0], [1, 0, 0], **_UINT8_OUTPUT),
    _unary("ELEMENT_WISE_LOG", [1, 0, -1], [0, -INF, NAN]),
    _binary("ELEMENT_WISE_LOGICAL_AND", [5, 0, 2], [3, 4, 0], [1, 0, 0], **_UINT8_TENSORS),
    _binary("ELEMENT_WISE_LOGICAL_EQUALS", [1, -0.0, NAN], [2, 0, NAN], [0, 1, 0], **_UINT8_OUTPUT),
    _binary("ELEMENT_WISE_LOGICAL_GREATER_THAN", [3, -0.0, NAN], [2, 0, 1], [1, 0, 0], **_UINT8_OUTPUT),
    _binary("ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL", [3, -0.0, NAN], [2, 0, 1], [1, 1, 0], **_UINT8_OUTPUT),
    _binary("ELEMENT_WISE_LOGICAL_LESS_THAN", [1, -0.0, NAN], [2, 0, 1], [1, 0, 0], **_UINT8_OUTPUT),
    _binary("ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL", [1, -0.0, NAN], [2, 0, 1], [1, 1, 0], **_UINT8_OUTPUT),
    _unary("ELEMENT_WISE_LOGICAL_NOT", [5, 0], [0, 1], **_UINT8_TENSORS),
    _binary("ELEMENT_WISE_LOGICAL_OR", [5, 0, 0], [3, 4, 0], [1, 1, 0], **_UINT8_TENSORS),
    _binary("ELEMENT_WISE_LOGICAL_XOR", [5, 0, 0], [3, 4, 0], [0, 1, 0], **_UINT8_TENSORS),
    _binary("ELEMENT_WISE_MAX", [1, -0.0, NAN], [2, 0, 5], [2, 0, NAN]),
    _binary("ELEMENT_WISE_MEAN", [2.0**127, 1], [2.0**127, 2], [2.0**127, 1.5]),
    _binary("ELEMENT_WISE_MIN", [1, -0.0, NAN], [2, 0, 5], [1, -0.0, NAN]),
    _binary(
        "ELEMENT_WISE_MODULUS_FLOOR", [-7.5, 7.5, 6], [2, -2, -2], [0.5, -0.5, -0.0], "the result has the sign of b"
    ),
    _binary(
        "ELEMENT_WISE_MODULUS_TRUNCATE", [-7.5, 7.5, -6], [2, -2, 2], [-1.5, 1.5, -0.0], "the result has the sign of a"
    ),
    _binary("ELEMENT_WISE_MULTIPLY", [2.5, -3], [2, -0.0], [5, 0]),
    _unary("ELEMENT_WISE_NEGATE", [0, -3], [-0.0, 3]),
    element_wise("ELEMENT_WISE_POW", {"input": [[-2, -2, 0]], "exponent": [[3, 0.5, 0]]}, [[-8, NAN, 1]]),
    element_wise(
        "ELEMENT_WISE_QUANTIZED_LINEAR_ADD",
        {
            "a": [[10, 200]],
            "a_scale": [[0.5]],
            "b": [[0, 100]],
            "b_scale": [[1]],
            "output_scale": [[1]],
            "output_zero_point": [[7]],
        },
        [[12, 207]],
        types={"a": UINT8, "b": UINT8, "output_zero_point": UINT8, "output": UINT8},
    ),
    element_wise(
        "ELEMENT_WISE_QUANTIZE_LINEAR",
        {"input": [[-2.5, 3, 1e6]], "scale": [[2, 2, 2]], "zero_point": [[3, 3, 3]]},
        [[2, 5, 255]],
        "halves are rounded to the nearest even integer",
        types=_QUANTIZED_TYPES,
    ),
    _blockwise(
        QuantizeDesc,
        [FLOAT32, FLOAT32, DataType.INT4, DataType.INT4],
        [[[1, 2.5, 10, 90], [-1, 0, 4, -8]], [[1, 10], [0.5, 2]], [[0, -1], [3, 0]]],
        [[1, 2, 0, 7], [1, 3, 2, -4]],
        "blocks of two elements; 2.5 goes to the even 2, and 8 saturates",
    ),
    _blockwise(
        DequantizeDesc,
        [DataType.UINT4, FLOAT32, DataType.UINT4, FLOAT32],
        [[[0, 15, 8, 9]], [[0.5, 2]], [[8]]],
        [[-4, 3.5, 0, 2]],
        "two blocks, and one zero point for both",
    ),
    Example(
        "Example",
        DynamicQuantizeLinearDesc(
            input=TensorDesc(FLOAT32, (1, 4)),
            output=TensorDesc(UINT8, (1, 4)),
            output_scale=TensorDesc(FLOAT32, (1, 1)),
            output_zero_point=TensorDesc(UINT8, (1, 1)),
        ),
        {"input": [[-1, 0, 0.5, 254]]},
        {"output": [[0, 1, 1, 255]], "output_scale": [[1]], "output_zero_point": [[1]]},
    ),
    _unary("ELEMENT_WISE_RECIP", [4, -0.0], [0.25, -INF]),
    _unary("ELEMENT_WISE_SIGN", [-2.5, -0.0, NAN, 3], [-1, 0, 0, 1]),
    _unary("ELEMENT_WISE_SIN", [-0.0, INF], [-0.0, NAN]),
    _unary("ELEMENT_WISE_SINH", [-0.0, 1000], [-0.0, INF]),
    element_wise(
        "ROI_POOLING",
        {"input": _THREE_BY_THREE, "roi": [[[[0, 0, 0, 2, 1], [0, 1, 1, 9, 9]]]]},
        [[[[2, 3], [4, 4]]], [[[7, 0], [0, 0]]]],
        "bins overlap; three of the second region lie outside of the image",
        spatial_scale=1,
        pooled_size=Size2D(width=2, height=2),
    ),
    _regions(
        RoiAlignDesc,
        [[0, 0, 4, 1], [3, 0, 1, 1]],
        [[[[5, 25]]], [[[20, 10]]]],
        "the second region is mirrored",
    ),
    _regions(
        RoiAlign1Desc,
        [[1, 0, 3, 0]],
        [[[[10, 20, 30]]]],
        "samples at the corners",
        input_pixel_offset=0,
        output_pixel_offset=0,
        align_regions_to_corners=True,
    ),
    _unary("ELEMENT_WISE_SQRT", [1.5, 4], [2, 3], "the ScaleBias is applied first", scale_bias=ScaleBias(2, 1)),
    _binary("ELEMENT_WISE_SUBTRACT", [1, 2], [0.5, 5], [0.5, -3]),
    _unary("ELEMENT_WISE_TAN", [-0.0, INF], [-0.0, NAN]),
    _unary("ELEMENT_WISE_TANH", [-0.0, INF], [-0.0, 1]),
    _unary("ELEMENT_WISE_THRESHOLD", [-1, 0.5, NAN], [0.25, 0.5, NAN], min=0.25),
)
