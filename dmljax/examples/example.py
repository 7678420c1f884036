"""What an example of an operator is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS, Operator
from dmljax.descriptors.lowering import lower
from dmljax.descriptors.members import Tensor
from dmljax.tensor import TensorDesc
from dmljax.types import DataType

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


def _bytes_with_one_nan(array: NDArray[Any]) -> bytes:
    return (array if array.dtype.kind != "f" else np.where(np.isnan(array), array.dtype.type(NAN), array)).tobytes()


def element_wise(
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


def all_of_type(data_type: DataType) -> dict[str, DataType]:
    """The types of the tensors of `element_wise`, where each of them has the same."""
    return dict.fromkeys(("input", "a", "b", "output"), data_type)
