"""Examples of operators as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.descriptors.base import Operator
from dmljax.descriptors.lowering import lower


@dataclass(frozen=True)
class Example:
    """An example of an operator: a descriptor, and the values of its inputs and outputs by field."""

    title: str
    desc: Operator
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    note: str = ""
    is_of_page: bool = False

    def arrays(self, *, of_inputs: bool) -> dict[str, NDArray[Any]]:
        """The values of the inputs or outputs as arrays with the sizes and types of their descs."""
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
    return (array if array.dtype.kind != "f" else np.where(np.isnan(array), array.dtype.type(np.nan), array)).tobytes()
