"""The examples of DirectML's pages, word for word.

The values of a tensor are written as on its page, with or without the brackets of its leading dimensions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmljax.checks import INT_MIN
from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS
from dmljax.examples.example import FLOAT32, INT32, UINT8, UINT32, Example, all_of_type, element_wise
from dmljax.ops.gathering import GatherNd1Desc, GatherNdDesc
from dmljax.ops.generation import (
    DiagonalMatrix1Desc,
    DiagonalMatrixDesc,
    FillValueConstantDesc,
    FillValueSequenceDesc,
)
from dmljax.ops.indexing import NonzeroCoordinatesDesc, OneHotDesc
from dmljax.ops.movement import JoinDesc, SplitDesc
from dmljax.ops.reduction import ArgmaxDesc, ArgminDesc, ReduceDesc
from dmljax.ops.regions import RoiAlignGradDesc
from dmljax.ops.resampling import ResampleGrad1Desc, ResampleGradDesc
from dmljax.ops.softmax import ActivationHardmax1Desc
from dmljax.tensor import TensorDesc
from dmljax.types import (
    AxisDirection,
    DepthSpaceOrder,
    InterpolationMode,
    PaddingMode,
    ReduceFunction,
    RoundingMode,
)


def _one_hot(
    title: str, axis: int, index: tuple[TensorDesc, Any], value: tuple[TensorDesc, Any], output: Any
) -> Example:
    desc = OneHotDesc(indices=index[0], values=value[0], output=TensorDesc(FLOAT32, (1, 1, 3, 4)), axis=axis)
    return Example(title, desc, {"indices": index[1], "values": value[1]}, {"output": output})


def _diagonal1(
    title: str, value: float, begin: int, end: int, output: Any, *, input: Any = None, note: str = ""
) -> Example:
    tensor = TensorDesc(FLOAT32, (4, 5))
    desc = DiagonalMatrix1Desc(
        input=None if input is None else tensor,
        output=tensor,
        value_data_type=FLOAT32,
        value=value,
        diagonal_fill_begin=begin,
        diagonal_fill_end=end,
    )
    return Example(title, desc, {} if input is None else {"input": input}, {"output": output}, note)


def _diagonal(title: str, sizes: tuple[int, ...], offset: int, output: Any) -> Example:
    desc = DiagonalMatrixDesc(output=TensorDesc(FLOAT32, sizes), offset=offset, value=1.0)
    return Example(title, desc, {}, {"output": output})


def _hardmax1(title: str, axes: tuple[int, ...], output: Any) -> Example:
    tensor = TensorDesc(FLOAT32, (2, 2, 2))
    desc = ActivationHardmax1Desc(input=tensor, output=tensor, axes=axes)
    return Example(title, desc, {"input": [[[12, 0], [-101, 11]], [[3, 234], [0, -101]]]}, {"output": output})


def _arg(
    operator: type[ArgmaxDesc | ArgminDesc], title: str, axes: tuple[int, ...], output: Any, note: str = ""
) -> Example:
    sizes = tuple(1 if axis in axes else 3 for axis in range(2))
    desc = operator(
        input=TensorDesc(FLOAT32, (3, 3)),
        output=TensorDesc(UINT32, sizes),
        axes=axes,
        axis_direction=AxisDirection.INCREASING,
    )
    return Example(title, desc, {"input": [[1, 2, 3], [3, 0, 4], [2, 5, 2]]}, {"output": output}, note)


def _indexed(
    name: str, inputs: Mapping[str, Any], output: Any, note: str = "", *, title: str = "Example", **attributes: Any
) -> Example:
    types = {"indices": UINT32, "sequence_lengths": UINT32}
    return element_wise(name, inputs, output, note, types=types, title=title, **attributes)


def _moved(name: str, input: Any, output: Any, *, title: str = "Example", note: str = "", **attributes: Any) -> Example:
    """An example of an operator that copies elements; whole images of channels are of UINT32 on the pages."""
    data_type = FLOAT32 if input is _FOUR_BY_FOUR or name == "TILE" else UINT32
    types = {"input": data_type, "output": data_type}
    return element_wise(name, {"input": input}, output, note, types=types, title=title, **attributes)


def _splitting(title: str, axis: int, *parts: Any) -> Example:
    tensors = tuple(TensorDesc(FLOAT32, np.shape(part)) for part in parts)
    desc = SplitDesc(input=TensorDesc(FLOAT32, (1, 1, 6, 2)), outputs=tensors, axis=axis)
    input = [[[[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]]]
    return Example(title, desc, {"input": input}, {f"outputs[{i}]": part for i, part in enumerate(parts)})


def _joining(title: str, axis: int, parts: Sequence[Any], output: Any) -> Example:
    tensors = tuple(TensorDesc(FLOAT32, np.shape(part)) for part in parts)
    desc = JoinDesc(inputs=tensors, output=TensorDesc(FLOAT32, np.shape(output)), axis=axis)
    return Example(title, desc, {f"inputs[{i}]": part for i, part in enumerate(parts)}, {"output": output})


def _tally(
    operator: str, title: str, exclusive: dict[str, bool], axis: int, direction: int, output: list[int]
) -> Example:
    tensor = TensorDesc(FLOAT32, (1, 1, 3, 4))
    desc = OPERATORS[f"{OPERATOR_PREFIX}{operator}"](
        input=tensor, output=tensor, axis=axis, axis_direction=AxisDirection(direction), **exclusive
    )
    return Example(title, desc, {"input": [[[[2, 1, 3, 5], [3, 8, 7, 3], [9, 6, 2, 4]]]]}, {"output": output})


def _sum(title: str, axes: tuple[int, ...], output: Any) -> Example:
    sizes = tuple(1 if axis in axes else 3 for axis in range(2))
    desc = ReduceDesc(
        function=ReduceFunction.SUM, input=TensorDesc(FLOAT32, (3, 3)), output=TensorDesc(FLOAT32, sizes), axes=axes
    )
    return Example(title, desc, {"input": [[1, 2, 3], [3, 0, 4], [2, 4, 2]]}, {"output": output})


def _top_k(
    operator: str, title: str, axis: int, k: int, direction: int, input: Any, values: list[int], indices: list[int]
) -> Example:
    sizes = tuple(k if i == axis else size for i, size in enumerate((1, 1, 3, 4)))
    desc = OPERATORS[f"{OPERATOR_PREFIX}{operator}"](
        input=TensorDesc(FLOAT32, (1, 1, 3, 4)),
        output_value=TensorDesc(FLOAT32, sizes),
        output_index=TensorDesc(UINT32, sizes),
        axis=axis,
        k=k,
        **({"axis_direction": AxisDirection(direction)} if operator == "TOP_K1" else {}),
    )
    return Example(title, desc, {"input": input}, {"output_value": values, "output_index": indices})


def _pooling_grad(name: str, inputs: Mapping[str, Any], output: Any, **attributes: Any) -> Example:
    """The gradient of windows of 2 x 2, 1 apart, over 3 x 3 elements without padding."""
    windows: dict[str, Any] = {"strides": (1, 1), "window_size": (2, 2), "start_padding": (0, 0), "end_padding": (0, 0)}
    return element_wise(name, inputs, output, **windows, **attributes)


_DISTINCT = [[[[0, 1, 10, 11], [3, 2, 9, 8], [4, 5, 6, 7]]]]
_TIED = [[[[1, 2, 2, 3], [3, 4, 5, 5], [6, 6, 6, 6]]]]
_COLUMNS = [4, 5, 10, 11, 3, 2, 9, 8], [2, 2, 0, 0, 1, 1, 1, 1]
_SUMS = [2, 3, 6, 11, 3, 11, 18, 21, 9, 15, 17, 21]
_PRODUCTS = [2, 2, 6, 30, 3, 24, 168, 504, 9, 54, 108, 432]
_TWO_BY_TWO = ([[[[1, 2], [3, 4]]]], [[[[5, 6], [7, 8]]]], [[[[9, 10], [11, 12]]]])
_THREE_ROWS = [[1, 2], [3, 4], [5, 6]]
_TWELVE = [[[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]]]
_FOUR_BY_FOUR = [[[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]]]
_EIGHT_CHANNELS = [
    [
        *([[0, 1, 2], [3, 4, 5]], [[9, 10, 11], [12, 13, 14]]),
        *([[18, 19, 20], [21, 22, 23]], [[27, 28, 29], [30, 31, 32]]),
        *([[36, 37, 38], [39, 40, 41]], [[45, 46, 47], [48, 49, 50]]),
        *([[54, 55, 56], [57, 58, 59]], [[63, 64, 65], [66, 67, 68]]),
    ]
]
_DEPTH_COLUMN_ROW = [
    [
        [[0, 18, 1, 19, 2, 20], [36, 54, 37, 55, 38, 56], [3, 21, 4, 22, 5, 23], [39, 57, 40, 58, 41, 59]],
        [[9, 27, 10, 28, 11, 29], [45, 63, 46, 64, 47, 65], [12, 30, 13, 31, 14, 32], [48, 66, 49, 67, 50, 68]],
    ]
]
_COLUMN_ROW_DEPTH = [
    [
        [[0, 9, 1, 10, 2, 11], [18, 27, 19, 28, 20, 29], [3, 12, 4, 13, 5, 14], [21, 30, 22, 31, 23, 32]],
        [[36, 45, 37, 46, 38, 47], [54, 63, 55, 64, 56, 65], [39, 48, 40, 49, 41, 50], [57, 66, 58, 67, 59, 68]],
    ]
]
_ORDERS = (
    ("Example 1. Depth-column-row order", DepthSpaceOrder.DEPTH_COLUMN_ROW, _DEPTH_COLUMN_ROW),
    ("Example 2. Column-row-depth order", DepthSpaceOrder.COLUMN_ROW_DEPTH, _COLUMN_ROW_DEPTH),
)


def _padding_examples(name: str, **data_type: Any) -> tuple[Example, ...]:
    """The four examples that the pages of PADDING and PADDING1 share; a value counts in the first alone."""
    return tuple(
        element_wise(
            name,
            {"input": _TWO_ROWS_TWICE},
            output,
            title=title,
            padding_mode=mode,
            padding_value=9,
            start_padding=(0, 0, 1, 2),
            end_padding=(0, 0, 3, 4),
            **data_type,
        )
        for title, mode, output in _PADDED
    )


def _sliding(name: str, title: str, input: Any, output: Any, padding: int, note: str = "") -> Example:
    """An example of windows of 3 by 3 elements, 1 apart."""
    return element_wise(
        name,
        {"input": input},
        output,
        note,
        title=title,
        window_sizes=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(padding, 0),
        end_padding=(padding, 0),
    )


def _counted(*sizes: int) -> Any:
    """An array of `sizes` that counts its elements, as nested lists."""
    return np.arange(np.prod(sizes)).reshape(sizes).tolist()


_TWO_ROWS_TWICE = [[[[1, 2, 3, 4], [5, 6, 7, 8], [1, 2, 3, 4], [5, 6, 7, 8]]]]
_NINES = [9] * 10
_FILLED = ([9, 9, 1, 2, 3, 4, 9, 9, 9, 9], [9, 9, 5, 6, 7, 8, 9, 9, 9, 9])
_EDGES = ([1, 1, 1, 2, 3, 4, 4, 4, 4, 4], [5, 5, 5, 6, 7, 8, 8, 8, 8, 8])
_REFLECTED = ([7, 6, 5, 6, 7, 8, 7, 6, 5, 6], [3, 2, 1, 2, 3, 4, 3, 2, 1, 2])
_MIRRORED = ([2, 1, 1, 2, 3, 4, 4, 3, 2, 1], [6, 5, 5, 6, 7, 8, 8, 7, 6, 5])
_PADDED = (
    ("Example 1", PaddingMode.CONSTANT, [[[_NINES, *_FILLED, *_FILLED, _NINES, _NINES, _NINES]]]),
    ("Example 2", PaddingMode.EDGE, [[[_EDGES[0], *_EDGES, *_EDGES, _EDGES[1], _EDGES[1], _EDGES[1]]]]),
    ("Example 3", PaddingMode.REFLECTION, [[[*_REFLECTED, *_REFLECTED, *_REFLECTED, *_REFLECTED]]]),
    ("Example 4", PaddingMode.SYMMETRIC, [[[_MIRRORED[0], *_MIRRORED, *_MIRRORED, *_MIRRORED[::-1], _MIRRORED[1]]]]),
)


def _resampling_gradient(operator: type[Any], input_offset: float, **rounding: Any) -> Example:
    desc = operator(
        input_gradient=TensorDesc(FLOAT32, (1, 3)),
        output_gradient=TensorDesc(FLOAT32, (2, 2)),
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        scales=(0.5, 1.5),
        input_pixel_offsets=(input_offset, input_offset),
        output_pixel_offsets=(0, 0),
        **rounding,
    )
    inputs, outputs = {"input_gradient": [[4, 5, 6]]}, {"output_gradient": [[9, 6], [0, 0]]}
    return Example("Example", desc, inputs, outputs, "the page gives no offsets")


_REGIONS_GRADIENT = Example(
    "Example",
    RoiAlignGradDesc(
        input_gradient=TensorDesc(FLOAT32, (4, 1, 1, 3)),
        roi=TensorDesc(FLOAT32, (4, 4)),
        batch_indices=TensorDesc(UINT32, (4,)),
        output_gradient=TensorDesc(FLOAT32, (1, 1, 4, 4)),
        reduction_function=ReduceFunction.AVERAGE,
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        spatial_scale_x=1,
        spatial_scale_y=1,
        input_pixel_offset=0.5,
        output_pixel_offset=-0.5,
        minimum_samples_per_output=1,
        maximum_samples_per_output=1,
        align_regions_to_corners=False,
    ),
    {
        "input_gradient": [[[[1, 2, 3]]], [[[4, 5, 6]]], [[[7, 8, 9]]], [[[10, 11, 12]]]],
        "roi": [[0, 0, 2, 2], [2, 0, 4, 2], [0, 2, 2, 4], [2, 2, 4, 4]],
        "batch_indices": [0, 0, 0, 0],
    },
    {"output_gradient": [[[[3, 3, 9, 6], [0, 0, 0, 0], [15, 9, 21, 12], [0, 0, 0, 0]]]]},
    "the page gives no offsets and no numbers of samples",
)

_UNFOLDED = [
    [
        [0, 1, 2, 5, 6, 7, 10, 11, 12],
        [1, 2, 3, 6, 7, 8, 11, 12, 13],
        [2, 3, 4, 7, 8, 9, 12, 13, 14],
        [5, 6, 7, 10, 11, 12, 15, 16, 17],
        [6, 7, 8, 11, 12, 13, 16, 17, 18],
        [7, 8, 9, 12, 13, 14, 17, 18, 19],
        [10, 11, 12, 15, 16, 17, 20, 21, 22],
        [11, 12, 13, 16, 17, 18, 21, 22, 23],
        [12, 13, 14, 17, 18, 19, 22, 23, 24],
    ]
]
_UNFOLDED_WITH_PADDING = [
    [
        [0, 0, 0, 0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17],
        [0, 0, 0, 1, 2, 3, 6, 7, 8, 11, 12, 13, 16, 17, 18],
        [0, 0, 0, 2, 3, 4, 7, 8, 9, 12, 13, 14, 17, 18, 19],
        [0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17, 20, 21, 22],
        [1, 2, 3, 6, 7, 8, 11, 12, 13, 16, 17, 18, 21, 22, 23],
        [2, 3, 4, 7, 8, 9, 12, 13, 14, 17, 18, 19, 22, 23, 24],
        [5, 6, 7, 10, 11, 12, 15, 16, 17, 20, 21, 22, 0, 0, 0],
        [6, 7, 8, 11, 12, 13, 16, 17, 18, 21, 22, 23, 0, 0, 0],
        [7, 8, 9, 12, 13, 14, 17, 18, 19, 22, 23, 24, 0, 0, 0],
    ]
]
_FOLDED = [[[[0, 5, 13, 9], [14, 38, 54, 32], [38, 86, 102, 56], [26, 57, 65, 35]]]]
_FOLDED_WITH_PADDING = [[26, 70, 102, 60], [78, 183, 231, 129], [84, 195, 243, 135], [82, 182, 214, 116]]
_SECOND_CHANNEL = [[170, 358, 390, 204], [294, 615, 663, 345], [300, 627, 675, 351], [226, 470, 502, 260]]

_OFF_ON = TensorDesc(FLOAT32, (1, 1, 1, 2))
_COLUMN = TensorDesc(UINT32, (1, 1, 3, 1))
_MATRIX = [[4, 7, 3, 7, 9], [1, 2, 8, 6, 9], [9, 4, 1, 8, 7], [4, 3, 4, 2, 4]]

EXAMPLES = (
    _one_hot(
        "Example 1",
        3,
        (_COLUMN, [[[[0], [3], [2]]]]),
        (_OFF_ON, [[[[0, 1]]]]),
        [[[[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]]],
    ),
    _one_hot(
        "Example 2: a different axis",
        2,
        (TensorDesc(UINT32, (1, 1, 1, 4)), [[[[0, 2, 1, 0]]]]),
        (_OFF_ON, [[[[0, 1]]]]),
        [[[[1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]]]],
    ),
    _one_hot(
        "Example 3: different on/off values",
        3,
        (_COLUMN, [[[[0], [3], [2]]]]),
        (TensorDesc(FLOAT32, (1, 1, 3, 1)), [[[[4], [2], [9]]]]),
        [[[[2, 4, 4, 4], [4, 4, 4, 2], [4, 4, 2, 4]]]],
    ),
    _one_hot(
        "Example 4: negative and out-of-bounds indices",
        3,
        (TensorDesc(INT32, (1, 1, 3, 1)), [[[[-3], [100], [3]]]]),
        (_OFF_ON, [[[[0, 1]]]]),
        [[[[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]]],
    ),
    Example(
        "Example",
        NonzeroCoordinatesDesc(
            input=TensorDesc(FLOAT32, (1, 1, 2, 4)),
            output_count=TensorDesc(UINT32, (1, 1, 1, 1)),
            output_coordinates=TensorDesc(UINT32, (1, 1, 8, 3)),
        ),
        {"input": [[1.0, 0.0, 0.0, 2.0], [-0.0, 3.5, 0.0, -5.2]]},
        {
            "output_count": [4],
            "output_coordinates": [[0, 0, 0], [0, 0, 3], [0, 1, 1], [0, 1, 3]] + [[0, 0, 0]] * 4,
        },
        "the page leaves the rows from the count on undefined; dmljax fills them with zeros",
    ),
    _diagonal1(
        "Default identity matrix",
        7,
        0,
        1,
        [[7, 0, 0, 0, 0], [0, 7, 0, 0, 0], [0, 0, 7, 0, 0], [0, 0, 0, 7, 0]],
        note="the page prints 1 for Value 7, a misprint according to its own pseudo-code",
    ),
    _diagonal1(
        "Fill a 3-element wide diagonal strip",
        7,
        0,
        3,
        [[7, 7, 7, 0, 0], [0, 7, 7, 7, 0], [0, 0, 7, 7, 7], [0, 0, 0, 7, 7]],
    ),
    _diagonal1(
        "Keep the strictly upper triangle, zero the bottom left",
        0,
        INT_MIN,
        1,
        [[0, 7, 3, 7, 9], [0, 0, 8, 6, 9], [0, 0, 0, 8, 7], [0, 0, 0, 0, 4]],
        input=_MATRIX,
    ),
    _diagonal1(
        "Keep only the values along the diagonal",
        0,
        1,
        0,
        [[4, 0, 0, 0, 0], [0, 2, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 2, 0]],
        input=_MATRIX,
    ),
    Example(
        "Example 1: 1D remapping",
        GatherNd1Desc(
            input=TensorDesc(FLOAT32, (2, 2)),
            indices=TensorDesc(UINT32, (2, 1)),
            output=TensorDesc(FLOAT32, (2, 2)),
            input_dimension_count=2,
            indices_dimension_count=2,
            batch_dimension_count=0,
        ),
        {"input": [[0, 1], [2, 3]], "indices": [[1], [0]]},
        {"output": [[2, 3], [0, 1]]},
    ),
    Example(
        "Example 2: 2D remapping with batch count",
        GatherNd1Desc(
            input=TensorDesc(FLOAT32, (1, 3, 2, 2)),
            indices=TensorDesc(UINT32, (1, 3, 2, 2)),
            output=TensorDesc(FLOAT32, (1, 1, 3, 2)),
            input_dimension_count=3,
            indices_dimension_count=3,
            batch_dimension_count=1,
        ),
        {
            "input": [[[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]],
            "indices": [[[[0, 0], [1, 1]], [[1, 1], [0, 0]], [[0, 1], [1, 0]]]],
        },
        {"output": [[[[0, 3], [7, 4], [9, 10]]]]},
    ),
    _hardmax1("Example 1", (1,), [[[1, 0], [0, 1]], [[1, 1], [0, 0]]]),
    _hardmax1("Example 2", (0,), [[[1, 0], [0, 1]], [[0, 1], [1, 0]]]),
    _hardmax1("Example 3", (0, 2), [[[0, 0], [0, 1]], [[0, 1], [0, 0]]]),
    _diagonal("Default identity matrix", (1, 1, 3, 3), 0, [[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]]),
    _diagonal("Shift ones right/up", (1, 1, 3, 3), 1, [[[[0, 1, 0], [0, 0, 1], [0, 0, 0]]]]),
    _diagonal("Shift ones left/down", (1, 1, 3, 2), -1, [[[[0, 0], [1, 0], [0, 1]]]]),
    _diagonal("Shift so far that all become zeroes", (1, 1, 3, 2), -3, [[[[0, 0], [0, 0], [0, 0]]]]),
    Example(
        "Example",
        FillValueConstantDesc(output=TensorDesc(FLOAT32, (1, 1, 2, 4)), value_data_type=FLOAT32, value=13.0),
        {},
        {"output": [[[[13, 13, 13, 13], [13, 13, 13, 13]]]]},
    ),
    _indexed(
        "GATHER",
        {"input": [11, 12, 13, 14], "indices": [3, 1, 3, 0, 2]},
        [14, 12, 14, 11, 13],
        title="Example 1. 1D remapping",
        axis=0,
        index_dimensions=1,
    ),
    _indexed(
        "GATHER",
        {"input": _THREE_ROWS, "indices": [[0, 1, 1, 2]]},
        [[1, 2], [3, 4], [3, 4], [5, 6]],
        title="Example 2. 2D output, 1D indices, Axis 0, concatenate rows",
        axis=0,
        index_dimensions=1,
    ),
    _indexed(
        "GATHER",
        {"input": _THREE_ROWS, "indices": [[1, 0]]},
        [[2, 1], [4, 3], [6, 5]],
        "the page has IndexDimensions 2, with which the output would have three dimensions",
        title="Example 3. 2D, Axis 1, swap columns",
        axis=1,
        index_dimensions=1,
    ),
    _indexed(
        "GATHER",
        {"input": [[[1, 2, 3], [4, 5, 6], [7, 8, 9]]], "indices": [[[0, 2]]]},
        [[[1, 3]], [[4, 6]], [[7, 9]]],
        title="Example 4. 2D, Axis 1, nested indices",
        axis=2,
        index_dimensions=2,
    ),
    _indexed(
        "GATHER",
        {"input": [_THREE_ROWS], "indices": [[[0, 1], [1, 2]]]},
        [[[1, 2], [3, 4]], [[3, 4], [5, 6]]],
        title="Example 5. 2D, Axis 0, nested indices",
        axis=1,
        index_dimensions=2,
    ),
    _indexed(
        "GATHER_ELEMENTS",
        {"input": [[1, 2, 3], [4, 5, 6], [7, 8, 9]], "indices": [[1, 2, 0], [2, 0, 0]]},
        [[4, 8, 3], [7, 2, 3]],
        "the page has an output of UINT32, a misprint according to its own constraints",
        axis=0,
    ),
    _indexed(
        "SCATTER",
        {"input": [0, 1, 2, 3, 4], "indices": [3, 1, 3, 0], "updates": [5, 6, 7, 8]},
        [8, 6, 2, 7, 4],
        title="Example 1. 1D scatter",
        axis=0,
    ),
    _indexed(
        "SCATTER",
        {"input": [[0, 0, 0]] * 3, "indices": [[1, 0, 2], [0, 2, 1]], "updates": [[10, 11, 12], [20, 21, 22]]},
        [[20, 11, 0], [10, 0, 22], [0, 21, 12]],
        "the page has an input of {2,3} with three rows",
        title="Example 2. 2D scatter",
        axis=0,
    ),
    _indexed(
        "SCATTER_ND",
        {"input": [[1, 2, 3, 4, 5, 6, 7, 8]], "indices": [[4], [3], [1], [7]], "updates": [[9, 10, 11, 12]]},
        [[1, 11, 3, 10, 9, 6, 7, 12]],
        "the page has no leading 1s, and indices of FLOAT32",
        input_dimension_count=1,
        indices_dimension_count=2,
    ),
    _indexed(
        "REVERSE_SUBSEQUENCES",
        {"input": _TWELVE, "sequence_lengths": [[[[2], [4], [3]]]]},
        [[[[2, 1, 3, 4], [8, 7, 6, 5], [11, 10, 9, 12]]]],
        title="Example 1",
        axis=3,
    ),
    _indexed(
        "REVERSE_SUBSEQUENCES",
        {"input": _TWELVE, "sequence_lengths": [[[[2, 3, 1, 0]]]]},
        [[[[5, 10, 3, 4], [1, 6, 7, 8], [9, 2, 11, 12]]]],
        title="Example 2. Reversing along a different axis",
        axis=2,
    ),
    Example(
        "Example 1. 1D ascending step",
        FillValueSequenceDesc(
            output=TensorDesc(FLOAT32, (1, 1, 1, 3)), value_data_type=FLOAT32, value_start=3, value_delta=2
        ),
        {},
        {"output": [[[[3, 5, 7]]]]},
    ),
    Example(
        "Example 2. 2D ascending step",
        FillValueSequenceDesc(
            output=TensorDesc(UINT8, (1, 1, 2, 2)), value_data_type=UINT8, value_start=10, value_delta=-2
        ),
        {},
        {"output": [[[[10, 8], [6, 4]]]]},
        "-2 is 254, modulo 256",
    ),
    _moved(
        "SLICE",
        _FOUR_BY_FOUR,
        [[[[7, 8], [11, 12], [15, 16]]]],
        title="Example 1. Contiguous slice",
        offsets=(0, 0, 1, 2),
        sizes=(1, 1, 3, 2),
        strides=(1, 1, 1, 1),
    ),
    _moved(
        "SLICE",
        _FOUR_BY_FOUR,
        [[[[5, 8], [13, 16]]]],
        title="Example 2. Strided slice",
        offsets=(0, 0, 1, 0),
        sizes=(1, 1, 2, 2),
        strides=(1, 1, 2, 3),
    ),
    _moved(
        "SLICE1",
        _FOUR_BY_FOUR,
        [[[[2, 4], [10, 12]]]],
        title="Example 1. Strided slice with positive strides",
        input_window_offsets=(0, 0, 0, 1),
        input_window_sizes=(1, 1, 4, 3),
        input_window_strides=(1, 1, 2, 2),
    ),
    _moved(
        "SLICE1",
        _FOUR_BY_FOUR,
        [[[[14, 16], [6, 8]]]],
        title="Example 2. Strided slice with negative strides",
        input_window_offsets=(0, 0, 0, 1),
        input_window_sizes=(1, 1, 4, 3),
        input_window_strides=(1, 1, -2, 2),
    ),
    _splitting("Example 1. Splitting axis 2", 2, [[[[1, 2], [3, 4]]]], [[[[5, 6]]]], [[[[7, 8], [9, 10], [11, 12]]]]),
    _splitting(
        "Example 2. Splitting axis 3", 3, [[[[1], [3], [5], [7], [9], [11]]]], [[[[2], [4], [6], [8], [10], [12]]]]
    ),
    _joining(
        "Example 1. Joining tensors with only one possible axis",
        3,
        ([[[[1, 2, 3], [4, 5, 6]]]], [[[[7, 8, 9, 10], [11, 12, 13, 14]]]]),
        [[[[1, 2, 3, 7, 8, 9, 10], [4, 5, 6, 11, 12, 13, 14]]]],
    ),
    _joining("Example 2. Joining axis 1", 1, _TWO_BY_TWO, [[[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]]]),
    _joining("Example 2. Joining axis 2", 2, _TWO_BY_TWO, [[[[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]]]),
    _joining("Example 2. Joining axis 3", 3, _TWO_BY_TWO, [[[[1, 2, 5, 6, 9, 10], [3, 4, 7, 8, 11, 12]]]]),
    _moved("TILE", [[[[1, 2, 3], [4, 5, 6]]]], [[[[1, 2, 3] * 3, [4, 5, 6] * 3] * 3]], repeats=(1, 1, 3, 3)),
    _moved("SPACE_TO_DEPTH", _DEPTH_COLUMN_ROW, _EIGHT_CHANNELS, block_size=2),
    _moved("DEPTH_TO_SPACE", _EIGHT_CHANNELS, _DEPTH_COLUMN_ROW, block_size=2),
    *(
        _moved("SPACE_TO_DEPTH1", image, _EIGHT_CHANNELS, title=title, block_size=2, order=order)
        for title, order, image in _ORDERS
    ),
    *(
        _moved("DEPTH_TO_SPACE1", _EIGHT_CHANNELS, image, title=title, block_size=2, order=order)
        for title, order, image in _ORDERS
    ),
    Example(
        "Example 1: 1D remapping",
        GatherNdDesc(
            input=TensorDesc(FLOAT32, (2, 2)),
            indices=TensorDesc(UINT32, (2, 1)),
            output=TensorDesc(FLOAT32, (2, 2)),
            input_dimension_count=2,
            indices_dimension_count=2,
        ),
        {"input": [[0, 1], [2, 3]], "indices": [[1], [0]]},
        {"output": [[2, 3], [0, 1]]},
    ),
    Example(
        "Example 2: 2D remapping",
        GatherNdDesc(
            input=TensorDesc(FLOAT32, (1, 2, 2, 2)),
            indices=TensorDesc(UINT32, (1, 1, 2, 2)),
            output=TensorDesc(FLOAT32, (1, 1, 2, 2)),
            input_dimension_count=3,
            indices_dimension_count=2,
        ),
        {"input": [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]], "indices": [[[[0, 1], [1, 0]]]]},
        {"output": [[[[2, 3], [4, 5]]]]},
    ),
    element_wise(
        "ELEMENT_WISE_BIT_COUNT", {"input": [[0, 123], [456, 789]]}, [[0, 6], [4, 5]], types=all_of_type(UINT32)
    ),
    element_wise(
        "ELEMENT_WISE_BIT_NOT", {"input": [[0, 128], [42, 255]]}, [[255, 127], [213, 0]], types=all_of_type(UINT8)
    ),
    element_wise(
        "ELEMENT_WISE_IF",
        {"condition": [[1, 0], [1, 1]], "a": [[1, 2], [3, 4]], "b": [[9, 8], [7, 6]]},
        [[1, 8], [3, 4]],
        types={"condition": UINT8},
    ),
    *(
        element_wise(
            "ELEMENT_WISE_ROUND",
            {"input": [[-2.5, -1.75, -1.5], [-1.25, 0, 1.25], [1.5, 1.75, 2.5]]},
            np.reshape(output, (3, 3)),
            f"{mode.name}, from the table of DML_ROUNDING_MODE",
            title="Example",
            rounding_mode=mode,
        )
        for mode, output in (
            (RoundingMode.HALVES_TO_NEAREST_EVEN, [-2, -2, -2, -1, 0, 1, 2, 2, 2]),
            (RoundingMode.TOWARD_ZERO, [-2, -1, -1, -1, 0, 1, 1, 1, 2]),
            (RoundingMode.TOWARD_INFINITY, [-3, -2, -2, -1, 0, 1, 2, 2, 3]),
        )
    ),
    _arg(ArgmaxDesc, "Example 1: columns", (0,), [[1, 2, 1]]),
    _arg(ArgmaxDesc, "Example 2: rows", (1,), [[2], [2], [1]]),
    _arg(ArgmaxDesc, "Example 3: all axes", (0, 1), [[7]]),
    _arg(ArgminDesc, "Example 1: columns", (0,), [[0, 1, 2]]),
    _arg(ArgminDesc, "Example 2: rows", (1,), [[0], [1], [0]]),
    _arg(ArgminDesc, "Example 3: all axes", (0, 1), [[4]]),
    *(
        _tally("CUMULATIVE_SUMMATION", title, {"has_exclusive_sum": is_exclusive}, axis, direction, output)
        for title, is_exclusive, axis, direction, output in (
            ("Example 1. Cumulative summation across horizontal slivers", False, 3, 0, _SUMS),
            ("Example 2. Exclusive sums", True, 3, 0, [0, 2, 3, 6, 0, 3, 11, 18, 0, 9, 15, 17]),
            ("Example 3. Axis direction", False, 3, 1, [11, 9, 8, 5, 21, 18, 10, 3, 21, 12, 6, 4]),
            ("Example 4. Summing along a different axis", False, 2, 0, [2, 1, 3, 5, 5, 9, 10, 8, 14, 15, 12, 12]),
        )
    ),
    *(
        _tally("CUMULATIVE_PRODUCT", title, {"has_exclusive_product": is_exclusive}, axis, direction, output)
        for title, is_exclusive, axis, direction, output in (
            ("Example 1. Cumulative product across horizontal slivers", False, 3, 0, _PRODUCTS),
            ("Example 2. Exclusive products", True, 3, 0, [1, 2, 2, 6, 1, 3, 24, 168, 1, 9, 54, 108]),
            ("Example 3. Axis direction", False, 3, 1, [30, 15, 15, 5, 504, 168, 21, 3, 432, 48, 8, 4]),
            ("Example 4. Multiplying along a different axis", False, 2, 0, [2, 1, 3, 5, 6, 8, 21, 15, 54, 48, 42, 60]),
        )
    ),
    _sum("Example 1. Applying sum to columns", (0,), [[6, 6, 9]]),
    _sum("Example 2. Applying sum to rows", (1,), [[6], [7], [8]]),
    _sum("Example 3. Applying sum to all axes (the entire tensor)", (0, 1), [[21]]),
    *(
        _top_k(operator, *example)
        for operator in ("TOP_K", "TOP_K1")
        for example in (
            ("Example 1", 3, 2, 1, _DISTINCT, [11, 10, 9, 8, 7, 6], [3, 2, 2, 3, 3, 2]),
            ("Example 2. Using a different axis", 2, 2, 1, _DISTINCT, *_COLUMNS),
            ("Example 3. Tied values", 3, 3, 1, _TIED, [3, 2, 2, 5, 5, 4, 6, 6, 6], [3, 1, 2, 2, 3, 1, 0, 1, 2]),
        )
    ),
    _top_k(
        "TOP_K1", "Example 4. Increasing axis direction", 3, 3, 0, _TIED, [1, 2, 2, 3, 4, 5, 6, 6, 6], [0, 1, 2] * 3
    ),
    *_padding_examples("PADDING"),
    *_padding_examples("PADDING1", padding_value_data_type=FLOAT32),
    _pooling_grad(
        "AVERAGE_POOLING_GRAD",
        {"input_gradient": [[[[1, 2], [3, 4]]]]},
        [[[[0.25, 0.75, 0.5], [1, 2.5, 1.5], [0.75, 1.75, 1]]]],
        include_padding=False,
    ),
    _pooling_grad(
        "MAX_POOLING_GRAD",
        {"input": [[[[1, 2, 3], [2, 4, 2], [5, 6, 7]]]], "input_gradient": [[[[1, 2], [4, 5]]]]},
        [[[[0, 0, 0], [0, 3, 0], [0, 4, 5]]]],
        dilations=(1, 1),
    ),
    _sliding("UNFOLD", "Example 1. 1-channel unfold", _counted(1, 1, 5, 5), _UNFOLDED, 0),
    _sliding(
        "UNFOLD",
        "Example 2. 1-channel, padded unfold",
        _counted(1, 1, 5, 5),
        _UNFOLDED_WITH_PADDING,
        1,
        "the page calls it a padded fold",
    ),
    _resampling_gradient(ResampleGradDesc, 0.5),
    _resampling_gradient(ResampleGrad1Desc, 0.0, rounding_direction=AxisDirection.DECREASING),
    _REGIONS_GRADIENT,
    _sliding("FOLD", "Example 1. 1-channel fold", _counted(1, 9, 4), _FOLDED, 0),
    _sliding("FOLD", "Example 2. 1-channel, padded fold", _counted(1, 9, 8), [[_FOLDED_WITH_PADDING]], 1),
    _sliding(
        "FOLD",
        "Example 3. 2-channel, padded fold",
        _counted(1, 18, 8),
        [[_FOLDED_WITH_PADDING, _SECOND_CHANNEL]],
        1,
    ),
)


# dmljax's own examples, for pages without one
