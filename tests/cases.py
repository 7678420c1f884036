"""For each operator: valid descriptors of any rank and types, random inputs, and what the oracle makes of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import elementwise
import jax
import numpy as np
import oracles
from helpers import assert_same_bits, assert_within_units, random_array, random_indices, with_subnormals
from numpy.typing import NDArray

import dmljax
from dmljax import AxisDirection, DataType, ScaleBias, TensorDesc
from dmljax.descriptors.bases import ScaledUnary
from dmljax.descriptors.members import Tensor
from dmljax.ops.softmax import AxesActivation, RowActivation
from dmljax.types import FLOAT

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
    # Where not exact, the oracle's value is float64, and the output some units in the last place from it.
    is_exact: bool = True
    # Inputs that are powers of two: scales, which make quotients and products exact, but are never 0.
    scales: tuple[str, ...] = ()
    # Where finite differences tell the derivative; otherwise the operator is linear in its floats.
    domain: tuple[float, float] | None = None
    has_derivative: bool = True

    def inputs(self, desc: dmljax.Operator, rng: np.random.Generator) -> Arrays:
        """Random inputs: any bits at all, or indices in and out of range."""
        return {
            field: random_indices(rng, tensor.dtype, tensor.sizes, self.indices[field])
            if field in self.indices
            else np.exp2(rng.integers(-3, 4, tensor.sizes)).astype(tensor.dtype)
            if field in self.scales
            else random_array(rng, tensor.dtype, tensor.sizes)
            for field, tensor in desc.tensors(is_input=True).items()
        }

    def check(self, desc: dmljax.Operator, inputs: Arrays, outputs: Any) -> None:
        """Compares the outputs with the oracle's; a subnormal input of what is not exact may count as zero."""
        with np.errstate(all="ignore"):
            if self.is_exact:
                for output, expected in zip(jax.tree.leaves(outputs), self.expected(desc, inputs), strict=True):
                    assert_same_bits(output, expected)
            else:
                alternatives = [inputs, *(with_subnormals(inputs, value) for value in (0, 1e-300))]
                assert_within_units(outputs, *(self.oracle(desc, **arrays) for arrays in alternatives))

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


# The element-wise operators and activations


def same_type_case(name: str, case: elementwise.Elementwise) -> Case:
    """The case of an operator whose inputs all have one type, its output that one or one of its own."""
    operator = dmljax.OPERATORS[f"DML_OPERATOR_{name}"]
    has_own_output = (
        operator.support[max(operator.support)][case.output]
        != (operator.support[max(operator.support)][case.tensors[0]])
    )
    is_row = issubclass(operator, RowActivation)
    has_axes = issubclass(operator, AxesActivation)

    def make(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
        sizes = ones(rank, 4, 6) if is_row else ones(rank, 2, 3, 4)
        own = {case.output: TensorDesc(types[case.output], sizes)} if has_own_output else {}
        axes = {"axes": tuple({rank - 1, max(rank - 3, 0)})} if has_axes else {}
        data_type = types[case.tensors[0]]
        # Changes no number, not even a zero; what a ScaleBias does is seen in tests/ops.
        is_scaled = issubclass(operator, ScaledUnary) and not case.is_exact and data_type in FLOAT
        scale_bias = {"scale_bias": ScaleBias(1.0, -0.0)} if is_scaled else {}
        return case.desc(name, data_type, sizes, **own, **axes, **scale_bias)

    def oracle(desc: Any, **inputs: Any) -> Any:
        attributes = {
            member.field: getattr(desc, member.field)
            for member in desc.members()
            if not isinstance(member.kind, Tensor) and getattr(desc, member.field) is not None
        }
        return elementwise.exact_value(name, attributes, *inputs.values())

    free = (case.tensors[0], case.output) if has_own_output else (case.tensors[0],)
    return Case(free, make, oracle, is_exact=case.is_exact, domain=case.domain, has_derivative="_BIT_" not in name)


def pow_(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    input, exponent = (TensorDesc(types[field], ones(rank, 2, 3, 4)) for field in ("input", "exponent"))
    return dmljax.ElementWisePowDesc(input=input, exponent=exponent, output=input)


def if_(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    sizes = ones(rank, 2, 3, 4)
    tensor = TensorDesc(types["a"], sizes)
    return dmljax.ElementWiseIfDesc(condition=TensorDesc(DataType.UINT8, sizes), a=tensor, b=tensor, output=tensor)


def quantize(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    sizes = ones(rank, 2, 3, 4)
    input, output = (TensorDesc(types[field], sizes) for field in ("input", "output"))
    scale = TensorDesc(DataType.FLOAT32, sizes) if types["input"] is DataType.INT32 else input
    return dmljax.ElementWiseQuantizeLinearDesc(input=input, scale=scale, zero_point=output, output=output)


def dequantize(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    input, scale = (TensorDesc(types[field], ones(rank, 2, 3, 4)) for field in ("input", "scale"))
    return dmljax.ElementWiseDequantizeLinearDesc(input=input, scale=scale, zero_point=input, output=scale)


def quantized_add(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    a, b = (TensorDesc(types[field], ones(rank, 2, 3, 4)) for field in ("a", "b"))
    scale, a_zero, b_zero = (
        TensorDesc(data_type, ones(rank)) for data_type in (DataType.FLOAT32, a.data_type, b.data_type)
    )
    return dmljax.ElementWiseQuantizedLinearAddDesc(
        a=a,
        a_scale=scale,
        a_zero_point=a_zero,
        b=b,
        b_scale=scale,
        b_zero_point=b_zero,
        output_scale=scale,
        output_zero_point=a_zero,
        output=a,
    )


def quantized_add_oracle(desc: Any, *, a: Any, b: Any, output_scale: Any, output_zero_point: Any, **others: Any) -> Any:
    total = elementwise.dequantized(a, others["a_scale"], others["a_zero_point"]) + elementwise.dequantized(
        b, others["b_scale"], others["b_zero_point"]
    )
    return elementwise.quantized(total, output_scale, output_zero_point, desc.output.dtype)


CASES |= {
    f"DML_OPERATOR_{name}": same_type_case(name, case)
    for name, case in elementwise.OPERATORS.items()
    if name != "ELEMENT_WISE_POW"
}
CASES |= {
    "DML_OPERATOR_ELEMENT_WISE_POW": Case(
        ("input", "exponent"),
        pow_,
        lambda desc, input, exponent: elementwise.exact_value("ELEMENT_WISE_POW", {}, input, exponent),
        is_exact=False,
        domain=(1.1, 1.9),
    ),
    "DML_OPERATOR_ELEMENT_WISE_IF": Case(("a",), if_, lambda desc, condition, a, b: np.where(condition != 0, a, b)),
    "DML_OPERATOR_ELEMENT_WISE_QUANTIZE_LINEAR": Case(
        ("input", "output"),
        quantize,
        lambda desc, input, scale, zero_point: elementwise.quantized(input, scale, zero_point, desc.output.dtype),
        scales=("scale",),
    ),
    "DML_OPERATOR_ELEMENT_WISE_DEQUANTIZE_LINEAR": Case(
        ("input", "scale"),
        dequantize,
        lambda desc, input, scale, zero_point: elementwise.dequantized(input, scale, zero_point),
        is_exact=False,
        domain=(0.2, 0.9),
        scales=("scale",),
    ),
    "DML_OPERATOR_ELEMENT_WISE_QUANTIZED_LINEAR_ADD": Case(
        ("a", "b"), quantized_add, quantized_add_oracle, scales=("a_scale", "b_scale", "output_scale")
    ),
}
