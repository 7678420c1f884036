"""Binds the arrays of a call to a model's inputs, and checks them against their types."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, Where
from dmljax.foundation.checks import array
from dmljax.foundation.open_sizes import OpenSizes, unify_sizes
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.values.types import DType, Value
from dmljax.text import did_you_mean, join_words, show
from dmljax.types import FLOATS


@dataclass(frozen=True)
class Inputs:
    """The types of the required inputs, and of the inputs with a default."""

    needed: tuple[TensorType, ...]
    defaults: tuple[TensorType, ...]

    def bind(self, inputs: Sequence[Any], named: Mapping[str, Any], floats: Collection[DType] = ()) -> dict[str, Value]:
        """The inputs of a call by name; `floats` are further types that float inputs may have."""
        types = {tensor.name: tensor for tensor in (*self.needed, *self.defaults)}
        if any(isinstance(value, dict) for value in inputs):
            raise InvalidType(
                Problem((), "takes arrays, not a dict of them", remedy="model(**inputs) gives inputs by name")
            )
        if len(inputs) > len(self.needed):
            raise InvalidType(Problem((), f"takes at most {len(self.needed)} arrays by position", len(inputs)))
        arrays = dict(zip((tensor.name for tensor in self.needed), inputs, strict=False))
        for name, value in named.items():
            if name not in types:
                rule = f"unknown input{did_you_mean(name, types)}"
                raise InvalidType(Problem(name, rule, remedy=f"the inputs are {', '.join(types)}"))
            if name in arrays:
                raise InvalidType(Problem(name, "given both by position and by name"))
            arrays[name] = value
        missing = [tensor.name for tensor in self.needed if tensor.name not in arrays]
        if missing:
            raise InvalidType(Problem((), f"no array for input{'s' * (len(missing) > 1)} {join_words(missing)}"))
        open_sizes: OpenSizes = {}
        return {name: check_input(types[name], value, open_sizes, floats) for name, value in arrays.items()}


def check_input(
    declared: TensorType,
    value: Any,
    open_sizes: OpenSizes,
    floats: Collection[DType] = (),
    where: Where | None = None,
) -> Value:
    """Checks an input against the model's type and sizes; open sizes with the same name must be equal.

    `where` is the place of an element in a sequence.
    """
    where = where or declared.name
    if declared.kind == "optional":
        inner = replace(declared.element or TensorType("", None, None), name=declared.name)
        return None if value is None else check_input(inner, value, open_sizes, floats)
    if declared.kind == "sequence":
        if not isinstance(value, list | tuple):
            raise InvalidType(Problem(declared.name, "must be a list, as the input is a sequence", show(value)))
        element = replace(declared.element or TensorType("", None, None), sizes=None)  # which may differ
        return [check_input(element, part, open_sizes, floats, (declared.name, i)) for i, part in enumerate(value)]
    if isinstance(value, bool | int | float) and declared.dtype is not None and not declared.sizes:
        value = np.asarray(value, declared.dtype)
    x = array(where, value)
    if declared.dtype is None or (is_text(x) and declared.dtype == object):
        return x
    if is_text(x) and any(isinstance(text, str) for text in np.asarray(x).flat):
        raise InvalidType(Problem(where, f"must be {declared.dtype.name}", "text"))
    narrow = jax.dtypes.canonicalize_dtype(declared.dtype) if declared.dtype.kind != "O" else declared.dtype
    if x.dtype not in (declared.dtype, narrow) and not (declared.dtype in FLOATS and x.dtype in floats):
        remedy = f"{where}.astype({narrow.name!r})" if isinstance(where, str) and where.isidentifier() else None
        raise InvalidType(Problem(where, f"must be {declared.dtype.name}", x.dtype, remedy=remedy))
    if declared.sizes is None:
        return x
    if len(declared.sizes) != x.ndim:
        raise InvalidDesc(Problem(declared.name, f"must have {len(declared.sizes)} dimensions", x.shape))
    conflict = unify_sizes(declared.name, x.shape, declared.sizes, open_sizes)
    if conflict is None:
        return x
    expected, name, first_input = conflict
    type_name = str(declared).partition(": ")[2]
    rule = f"must be a {type_name}" if name is None else f"must have size {expected} for {name}, like {first_input}"
    raise InvalidDesc(Problem(declared.name, rule, x.shape))


def is_text(value: Value) -> bool:
    """Whether a value may hold text: its known elements are Python objects."""
    return isinstance(value, np.ndarray) and value.dtype == object
