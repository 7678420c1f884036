"""For each operator: valid descriptors of any rank and types, random inputs, and what the oracle makes of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracles
from helpers import random_array, random_indices
from numpy.typing import NDArray

import dmljax
from dmljax import AxisDirection, DataType, TensorDesc

Arrays = dict[str, NDArray[Any]]
UINT32 = DataType.UINT32


@dataclass(frozen=True)
class Case:
    """How to make descs of one operator: from a rank and a data type for each of the `free` tensors."""

    free: tuple[str, ...]
    make: Callable[[Mapping[str, DataType], int], dmljax.Operator]
    oracle: Callable[..., Any]
    # Inputs that hold indices, with the size that they index.
    indices: Mapping[str, int] = ()  # type: ignore[assignment]
    # What transformations act upon where no tensor is an input: the function of its float32 value.
    of_value: Callable[[Any], Any] | None = None

    def inputs(self, desc: dmljax.Operator, rng: np.random.Generator) -> Arrays:
        """Random inputs: any bits at all, or indices in and out of range."""
        return {
            field: random_indices(rng, tensor.dtype, tensor.sizes, self.indices[field])
            if field in self.indices
            else random_array(rng, tensor.dtype, tensor.sizes)
            for field, tensor in desc.tensors(is_input=True).items()
        }

    def expected(self, desc: dmljax.Operator, inputs: Arrays) -> list[NDArray[Any]]:
        """The outputs by the pseudo-code, with the descs' sizes and types."""
        outputs = self.oracle(desc, **inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        tensors = desc.tensors(is_input=False).values()
        return [
            array.astype(tensor.dtype, copy=False).reshape(tensor.sizes)
            for array, tensor in zip(outputs, tensors, strict=True)
        ]


def ones(rank: int, *last: int) -> tuple[int, ...]:
    """`last`, right-aligned in `rank` dimensions; of a smaller rank only the trailing ones."""
    return ((1,) * rank + last)[-rank:]


def one_hot(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    return dmljax.OneHotDesc(
        indices=TensorDesc(types["indices"], ones(rank, 2, 3, 1)),
        values=TensorDesc(types["values"], ones(rank, 3)),
        output=TensorDesc(types["values"], ones(rank, 2, 3, 4)),
        axis=rank - 1,
    )


def hardmax(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    tensor = TensorDesc(types["input"], ones(rank, 4, 5))
    return dmljax.ActivationHardmaxDesc(input=tensor, output=tensor)


def hardmax1(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    tensor = TensorDesc(types["input"], ones(rank, 2, 3, 4))
    return dmljax.ActivationHardmax1Desc(input=tensor, output=tensor, axes=tuple({rank - 1, max(rank - 3, 0)}))


def nonzero(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    input = TensorDesc(types["input"], ones(rank, 3, 4))
    coordinates = ones(max(rank, 2), input.element_count, rank)
    return dmljax.NonzeroCoordinatesDesc(
        input=input,
        output_count=TensorDesc(UINT32, ones(rank)),
        output_coordinates=TensorDesc(UINT32, coordinates),
    )


def diagonal(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    return dmljax.DiagonalMatrixDesc(output=TensorDesc(types["output"], ones(rank, 2, 3, 4)), offset=1, value=3.0)


def diagonal1(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    tensor = TensorDesc(types["input"], ones(rank, 2, 3, 4))
    return dmljax.DiagonalMatrix1Desc(
        input=tensor,
        output=tensor,
        value_data_type=types["input"],
        value=3,
        diagonal_fill_begin=1,
        diagonal_fill_end=-1,
    )


def fill(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    output = TensorDesc(types["output"], ones(rank, 2, 3, 4))
    return dmljax.FillValueConstantDesc(output=output, value_data_type=types["output"], value=3)


def gather(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    return dmljax.GatherNdDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        indices=TensorDesc(types["indices"], ones(rank, 2, 1)),
        output=TensorDesc(types["input"], ones(rank, 2, 4) if rank > 1 else (1,)),
        input_dimension_count=min(rank, 2),
        indices_dimension_count=min(rank, 2),
    )


def gather1(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    if rank == 1:
        return dmljax.GatherNd1Desc(
            input=TensorDesc(types["input"], (4,)),
            indices=TensorDesc(types["indices"], (1,)),
            output=TensorDesc(types["input"], (1,)),
            input_dimension_count=1,
            indices_dimension_count=1,
            batch_dimension_count=0,
        )
    return dmljax.GatherNd1Desc(
        input=TensorDesc(types["input"], ones(rank, 2, 3)),
        indices=TensorDesc(types["indices"], ones(rank, 2, 1)),
        output=TensorDesc(types["input"], ones(rank, 2)),
        input_dimension_count=2,
        indices_dimension_count=2,
        batch_dimension_count=1,
    )


def arg_reduce(operator: Any) -> Callable[[Mapping[str, DataType], int], dmljax.Operator]:
    def make(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
        sizes = ones(rank, 3, 4)
        desc: dmljax.Operator = operator(
            input=TensorDesc(types["input"], sizes),
            output=TensorDesc(types["output"], (*sizes[:-1], 1)),
            axes=(rank - 1,),
            axis_direction=AxisDirection.DECREASING,
        )
        return desc

    return make


def gather_oracle(desc: Any, input: Any, indices: Any) -> Any:
    return oracles.gather_nd1(
        input.reshape(input.shape[input.ndim - desc.input_dimension_count :]),
        indices.reshape(indices.shape[indices.ndim - desc.indices_dimension_count :]),
        batch_dimension_count=getattr(desc, "batch_dimension_count", 0),
    )


CASES = {
    "DML_OPERATOR_ONE_HOT": Case(
        ("indices", "values"),
        one_hot,
        lambda desc, indices, values: oracles.one_hot(
            indices, values, axis=desc.axis, depth=desc.output.sizes[desc.axis]
        ),
        {"indices": 4},
    ),
    "DML_OPERATOR_ACTIVATION_HARDMAX": Case(("input",), hardmax, lambda desc, input: oracles.hardmax(input)),
    "DML_OPERATOR_ACTIVATION_HARDMAX1": Case(
        ("input",), hardmax1, lambda desc, input: oracles.hardmax(input, axes=desc.axes)
    ),
    "DML_OPERATOR_NONZERO_COORDINATES": Case(
        ("input",),
        nonzero,
        lambda desc, input: oracles.nonzero_coordinates(input, columns=desc.output_coordinates.sizes[-1]),
    ),
    "DML_OPERATOR_DIAGONAL_MATRIX": Case(
        ("output",),
        diagonal,
        lambda desc: oracles.diagonal_matrix1(
            None, 3, begin=1, end=2, sizes=desc.output.sizes, dtype=desc.output.dtype
        ),
        of_value=lambda value: dmljax.diagonal_matrix(value, offset=1, output_sizes=(3, 4)),
    ),
    "DML_OPERATOR_DIAGONAL_MATRIX1": Case(
        ("input",),
        diagonal1,
        lambda desc, input: oracles.diagonal_matrix1(
            input, 3, begin=1, end=-1, sizes=desc.output.sizes, dtype=input.dtype
        ),
    ),
    "DML_OPERATOR_FILL_VALUE_CONSTANT": Case(
        ("output",),
        fill,
        lambda desc: oracles.fill_value_constant(3, sizes=desc.output.sizes, dtype=desc.output.dtype),
        of_value=lambda value: dmljax.fill_value_constant(value, output_sizes=(3, 4)),
    ),
    "DML_OPERATOR_GATHER_ND": Case(("input", "indices"), gather, gather_oracle, {"indices": 3}),
    "DML_OPERATOR_GATHER_ND1": Case(("input", "indices"), gather1, gather_oracle, {"indices": 3}),
    "DML_OPERATOR_ARGMAX": Case(
        ("input", "output"),
        arg_reduce(dmljax.ArgmaxDesc),
        lambda desc, input: oracles.argmax(input, axes=desc.axes, last=True),
    ),
    "DML_OPERATOR_ARGMIN": Case(
        ("input", "output"),
        arg_reduce(dmljax.ArgminDesc),
        lambda desc, input: oracles.argmin(input, axes=desc.axes, last=True),
    ),
}
