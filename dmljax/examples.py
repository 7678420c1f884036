"""The examples of DirectML's pages, word for word, and dmljax's own examples for operators whose page has none.

`python -m dmljax.examples` runs the pages' examples and compares the outputs. The values of a tensor are written as on
its page, with or without the brackets of its leading dimensions.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.checks import INT_MIN
from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS, Operator
from dmljax.descriptors.lowering import lower
from dmljax.descriptors.members import Tensor
from dmljax.errors import spell_path
from dmljax.ops.activation import ActivationLeakyReluDesc
from dmljax.ops.generation import DiagonalMatrix1Desc, DiagonalMatrixDesc, FillValueConstantDesc
from dmljax.ops.indexing import GatherNd1Desc, GatherNdDesc, NonzeroCoordinatesDesc, OneHotDesc
from dmljax.ops.movement import JoinDesc, SliceGradDesc, SplitDesc
from dmljax.ops.reduction import ArgmaxDesc, ArgminDesc
from dmljax.ops.softmax import ActivationHardmax1Desc
from dmljax.scalars import ScaleBias
from dmljax.tensor import TensorDesc
from dmljax.text import join_sizes
from dmljax.types import AxisDirection, DataType, DepthSpaceOrder, IsInfinityMode, PaddingMode, RoundingMode

FLOAT32, INT32, UINT32 = DataType.FLOAT32, DataType.INT32, DataType.UINT32
UINT8, INT8 = DataType.UINT8, DataType.INT8
INF, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Example:
    """An example of an operator: a descriptor, and the values of its inputs and outputs by field."""

    title: str
    desc: Operator
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    note: str = ""

    def arrays(self, *, of_inputs: bool) -> dict[str, NDArray[Any]]:
        """The values of the inputs or outputs as arrays, with the sizes and types of their descs."""
        values = self.inputs if of_inputs else self.outputs
        tensors = self.desc.tensors(is_input=of_inputs)
        return {field: np.array(values[field], desc.dtype).reshape(desc.sizes) for field, desc in tensors.items()}

    def computed(self) -> dict[str, NDArray[Any]]:
        """The outputs as dmljax computes them."""
        outputs = jax.tree.leaves(lower(self.desc)(*self.arrays(of_inputs=True).values()))
        return dict(zip(self.desc.tensors(is_input=False), map(np.asarray, outputs), strict=True))

    def expects(self, computed: Mapping[str, NDArray[Any]]) -> bool:
        """Whether `computed` equals the expected outputs bit for bit; any NaN equals any other NaN."""
        expected = self.arrays(of_inputs=False)
        return all(_bytes_with_one_nan(computed[field]) == _bytes_with_one_nan(expected[field]) for field in expected)

    @property
    def source(self) -> str:
        """The heading of the expected values: "the page", or "expected" for dmljax's own examples."""
        return "the page" if self in EXAMPLES else "expected"


def _bytes_with_one_nan(array: NDArray[Any]) -> bytes:
    return (array if array.dtype.kind != "f" else np.where(np.isnan(array), array.dtype.type(NAN), array)).tobytes()


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


def _element_wise(
    name: str,
    inputs: Mapping[str, Any],
    output: Any,
    note: str = "",
    *,
    types: Mapping[str, DataType] | None = None,
    title: str = "Example",
    **attributes: Any,
) -> Example:
    """An example whose tensors have the shapes of their values, and are FLOAT32 unless `types` gives another type."""
    operator = OPERATORS[OPERATOR_PREFIX + name]
    field = next(member.field for member in operator.members() if member.kind == Tensor(is_input=False))
    values = dict(inputs) | {field: output}
    tensors = {key: TensorDesc((types or {}).get(key, FLOAT32), np.shape(value)) for key, value in values.items()}
    return Example(title, operator(**tensors, **attributes), inputs, {field: output}, note)


def _all_of_type(data_type: DataType) -> dict[str, DataType]:
    return dict.fromkeys(("input", "a", "b", "output"), data_type)


def _moved(name: str, input: Any, output: Any, *, title: str = "Example", note: str = "", **attributes: Any) -> Example:
    """An example of an operator that copies elements; whole images of channels are of UINT32 on the pages."""
    data_type = FLOAT32 if input is _FOUR_BY_FOUR or name == "TILE" else UINT32
    types = {"input": data_type, "output": data_type}
    return _element_wise(name, {"input": input}, output, note, types=types, title=title, **attributes)


def _splitting(title: str, axis: int, *parts: Any) -> Example:
    tensors = tuple(TensorDesc(FLOAT32, np.shape(part)) for part in parts)
    desc = SplitDesc(input=TensorDesc(FLOAT32, (1, 1, 6, 2)), outputs=tensors, axis=axis)
    input = [[[[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]]]
    return Example(title, desc, {"input": input}, {f"outputs[{i}]": part for i, part in enumerate(parts)})


def _joining(title: str, axis: int, parts: Sequence[Any], output: Any) -> Example:
    tensors = tuple(TensorDesc(FLOAT32, np.shape(part)) for part in parts)
    desc = JoinDesc(inputs=tensors, output=TensorDesc(FLOAT32, np.shape(output)), axis=axis)
    return Example(title, desc, {f"inputs[{i}]": part for i, part in enumerate(parts)}, {"output": output})


_TWO_BY_TWO = ([[[[1, 2], [3, 4]]]], [[[[5, 6], [7, 8]]]], [[[[9, 10], [11, 12]]]])
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
        _element_wise(
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
    return _element_wise(
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
    _element_wise(
        "ELEMENT_WISE_BIT_COUNT", {"input": [[0, 123], [456, 789]]}, [[0, 6], [4, 5]], types=_all_of_type(UINT32)
    ),
    _element_wise(
        "ELEMENT_WISE_BIT_NOT", {"input": [[0, 128], [42, 255]]}, [[255, 127], [213, 0]], types=_all_of_type(UINT8)
    ),
    _element_wise(
        "ELEMENT_WISE_IF",
        {"condition": [[1, 0], [1, 1]], "a": [[1, 2], [3, 4]], "b": [[9, 8], [7, 6]]},
        [[1, 8], [3, 4]],
        types={"condition": UINT8},
    ),
    *(
        _element_wise(
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
    *_padding_examples("PADDING"),
    *_padding_examples("PADDING1", padding_value_data_type=FLOAT32),
    _sliding("UNFOLD", "Example 1. 1-channel unfold", _counted(1, 1, 5, 5), _UNFOLDED, 0),
    _sliding(
        "UNFOLD",
        "Example 2. 1-channel, padded unfold",
        _counted(1, 1, 5, 5),
        _UNFOLDED_WITH_PADDING,
        1,
        "the page calls it a padded fold",
    ),
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


def _unary(name: str, input: Any, output: Any, note: str = "", **attributes: Any) -> Example:
    return _element_wise(name, {"input": [input]}, [output], note, **attributes)


def _binary(name: str, a: Any, b: Any, output: Any, note: str = "", **attributes: Any) -> Example:
    return _element_wise(name, {"a": [a], "b": [b]}, [output], note, **attributes)


_UINT8_TENSORS: dict[str, Any] = {"types": _all_of_type(UINT8)}
_UINT8_OUTPUT: dict[str, Any] = {"types": {"output": UINT8}}
_QUANTIZED_TYPES = {"zero_point": UINT8, "output": UINT8}

OWN_EXAMPLES = (
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
    _element_wise(
        "ACTIVATION_HARDMAX",
        {"input": [[3, 0, 5, 2], [7, 1, 7, 7]]},
        [[0, 0, 1, 0], [1, 0, 0, 0]],
        "the first of equal values is chosen",
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
    _element_wise(
        "ACTIVATION_LOG_SOFTMAX1",
        {"input": [[1000, -50], [0, 150]]},
        [[0, -200], [-1000, 0]],
        "the page repeats the examples of HARDMAX1",
        axes=(0,),
    ),
    _element_wise("ACTIVATION_PARAMETERIZED_RELU", {"input": [[-2, 3, -4]], "slope": [[0.5, 9, 2]]}, [[-1, 3, -8]]),
    _unary("ACTIVATION_PARAMETRIC_SOFTPLUS", [-INF, 1000], [0, 6000], alpha=3, beta=2),
    _unary("ACTIVATION_RELU", [-1, -0.0, 2, NAN], [0, 0, 2, NAN]),
    _element_wise("ACTIVATION_RELU_GRAD", {"input": [[-1, 0, 2]], "input_gradient": [[5, 6, 7]]}, [[0, 0, 7]]),
    _unary("ACTIVATION_SCALED_ELU", [-INF, 0, 2], [-1.5, 0, 6], alpha=0.5, gamma=3),
    _unary("ACTIVATION_SCALED_TANH", [-INF, 0, 100], [-3, 0, 3], alpha=3, beta=0.5),
    _unary("ACTIVATION_SHRINK", [-2, 0.25, 0.5, 3], [-1, 0, 0, 2], bias=1, threshold=0.5),
    _unary("ACTIVATION_SIGMOID", [-INF, 0, 100], [0, 0.5, 1]),
    _element_wise("ACTIVATION_SOFTMAX", {"input": [[1000, 1000], [-INF, 5]]}, [[0.5, 0.5], [0, 1]]),
    _element_wise("ACTIVATION_SOFTMAX1", {"input": [[2, 0], [2, -200]]}, [[0.5, 1], [0.5, 0]], axes=(0,)),
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
        "ELEMENT_WISE_CLIP1", [-3, 0, 3], [-1, 0, 2], types=_all_of_type(INT32), min_max_data_type=INT32, min=-1, max=2
    ),
    _element_wise(
        "ELEMENT_WISE_CLIP_GRAD", {"input": [[-1, 0, 1]], "input_gradient": [[5, 6, 7]]}, [[0, 6, 7]], min=-1, max=2
    ),
    _element_wise(
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
    _element_wise(
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
        types=_all_of_type(INT32),
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
    _element_wise("ELEMENT_WISE_POW", {"input": [[-2, -2, 0]], "exponent": [[3, 0.5, 0]]}, [[-8, NAN, 1]]),
    _element_wise(
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
    _element_wise(
        "ELEMENT_WISE_QUANTIZE_LINEAR",
        {"input": [[-2.5, 3, 1e6]], "scale": [[2, 2, 2]], "zero_point": [[3, 3, 3]]},
        [[2, 5, 255]],
        "halves are rounded to the nearest even integer",
        types=_QUANTIZED_TYPES,
    ),
    _unary("ELEMENT_WISE_RECIP", [4, -0.0], [0.25, -INF]),
    _unary("ELEMENT_WISE_SIGN", [-2.5, -0.0, NAN, 3], [-1, 0, 0, 1]),
    _unary("ELEMENT_WISE_SIN", [-0.0, INF], [-0.0, NAN]),
    _unary("ELEMENT_WISE_SINH", [-0.0, 1000], [-0.0, INF]),
    _unary("ELEMENT_WISE_SQRT", [1.5, 4], [2, 3], "the ScaleBias is applied first", scale_bias=ScaleBias(2, 1)),
    _binary("ELEMENT_WISE_SUBTRACT", [1, 2], [0.5, 5], [0.5, -3]),
    _unary("ELEMENT_WISE_TAN", [-0.0, INF], [-0.0, NAN]),
    _unary("ELEMENT_WISE_TANH", [-0.0, INF], [-0.0, 1]),
    _unary("ELEMENT_WISE_THRESHOLD", [-1, 0.5, NAN], [0.25, 0.5, NAN], min=0.25),
)


def examples_of(operator: type[Operator]) -> list[Example]:
    """The examples of an operator's page, or dmljax's own if the page has none."""
    return [example for example in (*EXAMPLES, *OWN_EXAMPLES) if isinstance(example.desc, operator)]


def main() -> int:
    """Prints the pages' examples, with dmljax's outputs beside the expected outputs; returns 1 if any bit differs."""
    equal = 0
    for example in EXAMPLES:
        computed = example.computed()
        equal += example.expects(computed)
        print("\n".join(shown_example(example, computed)), end="\n\n")
    print(f"{equal} of {len(EXAMPLES)} examples equal the pages' expected values, bit for bit")
    return 0 if equal == len(EXAMPLES) else 1


def shown_example(example: Example, computed: Mapping[str, NDArray[Any]]) -> list[str]:
    """The lines that show an example: its inputs, and the outputs of dmljax beside the expected outputs."""
    names = {leaf.key: spell_path(leaf.path) for leaf in example.desc.leaves()}
    head = f"{example.desc.short_name}, {example.title}: {'equal' if example.expects(computed) else 'DIFFERENT'}"
    inputs = [_columns(names[key], array) for key, array in example.arrays(of_inputs=True).items()]
    expected = example.arrays(of_inputs=False)
    outputs = [_columns(names[key], computed[key], array, example.source) for key, array in expected.items()]
    return [head, *([f"  ({example.note})"] if example.note else []), *inputs, *outputs]


def _columns(name: str, array: NDArray[Any], expected: NDArray[Any] | None = None, source: str = "") -> str:
    head = f"  {name} {array.dtype.name.upper()} {join_sizes(array.shape)}"
    ours = _matrix(array)
    if expected is None:
        return "\n".join([head, *(f"    {line}" for line in ours)])
    width = max(map(len, (*ours, "dmljax")))
    lines = zip_longest(["dmljax", *ours], [source, *_matrix(expected)], fillvalue="")
    return "\n".join([head, *(f"    {left:{width}}   {right}" for left, right in lines)])


def _matrix(array: NDArray[Any]) -> list[str]:
    """The printed lines of an array, without the brackets of leading dimensions of size 1."""
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return np.array2string(array, separator=" ").splitlines()


if __name__ == "__main__":
    sys.exit(main())
