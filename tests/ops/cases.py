"""How a family's `tests/ops/<room>/cases_<family>.py` describes the tests of an operator.

A `Case` makes valid descriptors of any rank and data types, random inputs, and the oracle's outputs. An `Elementwise`
holds the formula of an operator whose inputs share a type, from which the case follows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from formulas import Arr, Formula
from helpers import assert_same_bits, assert_within_units, random_array, random_indices, with_subnormals

from dmljax import directml
from dmljax.directml import DataType, ScaleBias, TensorDesc
from dmljax.types import FLOAT

Arrays = dict[str, Arr]
# A valid descriptor, changes that break a rule, and the message about them
RefusedDesc = tuple[directml.Operator, dict[str, Any], str]
# The name of a function, changes to the arguments that its family's `CALLS` has, and the error
RefusedCall = tuple[str, dict[str, Any], type[Exception], str]
AB = ("a", "b")
GRADIENT = ("input", "input_gradient")


@dataclass(frozen=True)
class Case:
    """Makes descriptors of one operator, from a rank and a data type for each of the `free` tensors."""

    free: tuple[str, ...]
    make: Callable[[Mapping[str, DataType], int], directml.Operator]
    oracle: Callable[..., Any]
    # Inputs that hold indices, and the size that they index.
    indices: Mapping[str, int] = ()  # type: ignore[assignment]
    # For operators without input tensors: the function of its float32 value that transformations act on.
    of_value: Callable[[Any], Any] | None = None
    # If not exact, the oracle returns float64, and the output may differ by some units in the last place.
    is_exact: bool = True
    # How far apart two compilations may be where sums cancel: small relative to the summands, but not to the sum.
    absolute: float = 0
    # Inputs that are powers of two, such as scales: they make quotients and products exact, and are never 0.
    scales: tuple[str, ...] = ()
    # Whether finite differences check the derivative; otherwise the operator is linear in its floats.
    domain: tuple[float, float] | None = None
    has_derivative: bool = True

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> Arrays:
        """Random inputs: any bits, or indices in and out of range."""
        return {
            field: random_indices(rng, tensor.dtype, tensor.sizes, self.indices[field])
            if field in self.indices
            else np.exp2(rng.integers(-3, 4, tensor.sizes)).astype(tensor.dtype)
            if field in self.scales
            else random_array(rng, tensor.dtype, tensor.sizes)
            for field, tensor in desc.tensors(is_input=True).items()
        }

    def check(self, desc: directml.Operator, inputs: Arrays, outputs: Any) -> None:
        """Compares the outputs with the oracle's; without `exact`, a subnormal input may count as zero."""
        with np.errstate(all="ignore"):
            if self.is_exact:
                for output, expected in zip(jax.tree.leaves(outputs), self.expected(desc, inputs), strict=True):
                    assert_same_bits(output, expected)
            else:
                alternatives = [inputs, *(with_subnormals(inputs, value) for value in (0, 1e-300))]
                assert_within_units(outputs, *(self.oracle(desc, **arrays) for arrays in alternatives))

    def expected(self, desc: directml.Operator, inputs: Arrays) -> list[Arr]:
        """The outputs by the pseudo-code, with the descriptor's sizes and types."""
        outputs = self.oracle(desc, **inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        tensors = desc.tensors(is_input=False).values()
        return [
            array.astype(tensor.dtype, copy=False).reshape(tensor.sizes)
            for array, tensor in zip(outputs, tensors, strict=True)
        ]


def ones(rank: int, *last: int) -> tuple[int, ...]:
    """`last`, padded with leading 1s to `rank` dimensions, or cut to its last `rank`."""
    return ((1,) * rank + last)[-rank:]


@dataclass(frozen=True)
class Elementwise:
    """An operator whose inputs share a type: its formula, and what else its case needs."""

    formula: Formula
    tensors: tuple[str, ...] = ("input",)  # the inputs that share the first one's type
    output: str = "output"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (2, 3, 4)  # of the last tensors
    is_exact: bool = False  # bit for bit, including NaN
    domain: tuple[float, float] = (0.2, 0.9)  # whether finite differences check the derivative
    has_derivative: bool = True

    def desc(self, operator: str, data_type: DataType, sizes: tuple[int, ...], **more: Any) -> directml.Operator:
        """A descriptor whose tensors have one type and size, except those in `more`."""
        kind = directml.OPERATORS[f"DML_OPERATOR_{operator}"]
        tensor = TensorDesc(data_type, sizes)
        attributes = dict(self.attributes)
        if "min_max_data_type" in attributes:
            attributes["min_max_data_type"] = data_type
        return kind(**dict.fromkeys((*self.tensors, self.output), tensor) | attributes | more)

    def exact_value(self, desc: directml.Operator, *arrays: Arr) -> Arr:
        """The formula's value, from the arrays themselves if it is exact, or else from their floats in float64."""
        if not self.is_exact:
            arrays = tuple(x.astype(np.float64) if x.dtype.kind == "f" else x for x in arrays)
        fields = [member.field for member in desc.members() if member.tensor_kind is None]
        members = {field: getattr(desc, field) for field in fields if field != "min_max_data_type"}
        numbers = {field: plain(value) for field, value in members.items() if value is not None}
        scale_bias = numbers.pop("scale_bias", None)
        if scale_bias is not None:
            scale, bias = map(plain, scale_bias)
            arrays = (arrays[0] * scale + bias, *arrays[1:])
        with np.errstate(all="ignore"):
            return np.asarray(self.formula(*arrays, **numbers))


def plain(value: Any) -> Any:
    """A Scalar as a number."""
    return value.item.item() if isinstance(value, directml.Scalar) else value


def same_type_case(name: str, elementwise: Elementwise) -> Case:
    """The case of an operator whose inputs share a type, which is also the output's unless the tables say otherwise."""
    operator = directml.OPERATORS[f"DML_OPERATOR_{name}"]
    fields = {member.field for member in operator.members()}
    latest = operator.support[max(operator.support)]
    has_own_output = latest[elementwise.output] != latest[elementwise.tensors[0]]

    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        sizes = ones(rank, *elementwise.sizes)
        output = {elementwise.output: TensorDesc(types[elementwise.output], sizes)} if has_own_output else {}
        axes = {"axes": tuple({rank - 1, max(rank - 3, 0)})} if "axes" in fields else {}
        data_type = types[elementwise.tensors[0]]
        # Changes no number, not even a zero; tests/ops test a ScaleBias.
        is_scaled = "scale_bias" in fields and not elementwise.is_exact and data_type in FLOAT
        scale_bias = {"scale_bias": ScaleBias(1.0, -0.0)} if is_scaled else {}
        return elementwise.desc(name, data_type, sizes, **output, **axes, **scale_bias)

    return Case(
        free=(elementwise.tensors[0], elementwise.output) if has_own_output else (elementwise.tensors[0],),
        make=make,
        oracle=lambda desc, **inputs: elementwise.exact_value(desc, *inputs.values()),
        is_exact=elementwise.is_exact,
        domain=elementwise.domain,
        has_derivative=elementwise.has_derivative,
    )
