"""The types of values in ONNX models: tensors, sequences and optional values."""

from typing import Any

import jax
import numpy as np

from dmljax.onnx.values.padded import Padded

Array = jax.Array
Elements = np.ndarray[Any, Any]  # numbers, strings, or symbolic sizes
Tensor = jax.Array | Elements
DType = np.dtype[Any]
Value = jax.Array | Padded | Elements | list["Value"] | None  # a tensor, a sequence, or an empty optional
Results = Value | tuple[Value, ...]
