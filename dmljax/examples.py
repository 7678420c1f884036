"""The examples of DirectML's pages, word for word; `python -m dmljax.examples` replays them beside the pages.

A tensor's values stand here as on its page, with or without the brackets of its leading dimensions.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax._operator import Operator, lower
from dmljax._tensor import TensorDesc, braced
from dmljax._types import AxisDirection, DataType
from dmljax.ops.activation import ActivationHardmax1Desc, ActivationHardmaxDesc
from dmljax.ops.generation import DiagonalMatrix1Desc, DiagonalMatrixDesc, FillValueConstantDesc
from dmljax.ops.indexing import GatherNd1Desc, GatherNdDesc, NonzeroCoordinatesDesc, OneHotDesc
from dmljax.ops.reduction import ArgmaxDesc, ArgminDesc

FLOAT32, INT32, UINT32 = DataType.FLOAT32, DataType.INT32, DataType.UINT32
INT32_MIN = -(2**31)


@dataclass(frozen=True)
class Example:
    """One example of a page: a descriptor, the inputs' values and the outputs' values, by member."""

    title: str
    desc: Operator
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    note: str = ""

    def arrays(self, *, of_inputs: bool) -> dict[str, NDArray[Any]]:
        """The values as arrays of their descs' sizes and types."""
        values = self.inputs if of_inputs else self.outputs
        tensors = self.desc.tensors(is_input=of_inputs)
        return {field: np.array(values[field], desc.dtype).reshape(desc.sizes) for field, desc in tensors.items()}

    def computed(self) -> dict[str, NDArray[Any]]:
        """The outputs as dmljax computes them."""
        outputs = jax.tree.leaves(lower(self.desc)(**self.arrays(of_inputs=True)))
        return dict(zip(self.desc.tensors(is_input=False), map(np.asarray, outputs), strict=True))

    def expects(self, computed: Mapping[str, NDArray[Any]]) -> bool:
        """Whether these are the page's outputs, bit for bit."""
        expected = self.arrays(of_inputs=False)
        return all(computed[field].tobytes() == expected[field].tobytes() for field in expected)


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
        ActivationHardmaxDesc(input=TensorDesc(FLOAT32, (2, 4)), output=TensorDesc(FLOAT32, (2, 4))),
        {"input": [[3, 0, 5, 2], [7, 1, 7, 7]]},
        {"output": [[0, 0, 1, 0], [1, 0, 0, 0]]},
        "the page has no example; this one shows its rule, the first of equal values",
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
        "the page leaves the rows past the count undefined; dmljax promises zeros",
    ),
    _diagonal1(
        "Default identity matrix",
        7,
        0,
        1,
        [[7, 0, 0, 0, 0], [0, 7, 0, 0, 0], [0, 0, 7, 0, 0], [0, 0, 0, 7, 0]],
        note="the page prints 1 for Value 7: a misprint, by its own pseudo-code",
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
        INT32_MIN,
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
    _arg(ArgmaxDesc, "Example 1: columns", (0,), [[1, 2, 1]]),
    _arg(ArgmaxDesc, "Example 2: rows", (1,), [[2], [2], [1]]),
    _arg(ArgmaxDesc, "Example 3: all axes", (0, 1), [[7]]),
    _arg(ArgminDesc, "Example 1: columns", (0,), [[0, 1, 2]]),
    _arg(ArgminDesc, "Example 2: rows", (1,), [[0], [1], [0]]),
    _arg(ArgminDesc, "Example 3: all axes", (0, 1), [[4]]),
)


def examples_of(operator: type[Operator]) -> list[Example]:
    """The examples of an operator's page."""
    return [example for example in EXAMPLES if isinstance(example.desc, operator)]


def main() -> int:
    """Prints every example with what dmljax computes and what the page expects; 1 if any differ, bit for bit."""
    equal = 0
    for example in EXAMPLES:
        computed = example.computed()
        equal += example.expects(computed)
        print("\n".join(shown_example(example, computed)), end="\n\n")
    print(f"{equal} of {len(EXAMPLES)} examples equal the pages' expected values, bit for bit")
    return 0 if equal == len(EXAMPLES) else 1


def shown_example(example: Example, computed: Mapping[str, NDArray[Any]]) -> list[str]:
    """The lines that show an example: its inputs, and what dmljax computes beside the page's outputs."""
    member = example.desc.member
    head = f"{example.desc.short_name}, {example.title}: {'equal' if example.expects(computed) else 'DIFFERENT'}"
    inputs = [_columns(member(field).name, array) for field, array in example.arrays(of_inputs=True).items()]
    expected = example.arrays(of_inputs=False)
    outputs = [_columns(member(field).name, computed[field], array) for field, array in expected.items()]
    return [head, *([f"  ({example.note})"] if example.note else []), *inputs, *outputs]


def _columns(name: str, array: NDArray[Any], expected: NDArray[Any] | None = None) -> str:
    head = f"  {name} {array.dtype.name.upper()} {braced(array.shape)}"
    ours = _matrix(array)
    if expected is None:
        return "\n".join([head, *(f"    {line}" for line in ours)])
    width = max(map(len, (*ours, "dmljax")))
    lines = zip_longest(["dmljax", *ours], ["the page", *_matrix(expected)], fillvalue="")
    return "\n".join([head, *(f"    {left:{width}}   {right}" for left, right in lines)])


def _matrix(array: NDArray[Any]) -> list[str]:
    """The lines of an array without the brackets of its leading dimensions of size 1."""
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return np.array2string(array, separator=" ").splitlines()


if __name__ == "__main__":
    sys.exit(main())
