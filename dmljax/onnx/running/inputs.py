"""Binds the arrays of a call to a model's inputs, and checks them against their types."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, Where
from dmljax.foundation.checks import array
from dmljax.onnx.graph.file import TensorType
from dmljax.onnx.values.types import DType, Value
from dmljax.text import did_you_mean, join_words, show
from dmljax.types import FLOATS


@dataclass(frozen=True)
class Inputs:
    """The types of the required inputs, and of the inputs with a default."""

    needed: tuple[TensorType, ...]
    defaults: tuple[TensorType, ...]

    def bound(
        self, inputs: Sequence[Any], named: Mapping[str, Any], floats: Collection[DType] = ()
    ) -> dict[str, Value]:
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
        opened: dict[str, tuple[str, int]] = {}
        return {name: checked(types[name], value, opened, floats) for name, value in arrays.items()}


def checked(
    wanted: TensorType,
    value: Any,
    opened: dict[str, tuple[str, int]],
    floats: Collection[DType] = (),
    where: Where | None = None,
) -> Value:
    """Checks an input against the model's type and sizes; open sizes with the same name must be equal.

    `where` is the place of an element in a sequence.
    """
    where = where or wanted.name
    if wanted.kind == "optional":
        inner = replace(wanted.element or TensorType("", None, None), name=wanted.name)
        return None if value is None else checked(inner, value, opened, floats)
    if wanted.kind == "sequence":
        if not isinstance(value, list | tuple):
            raise InvalidType(Problem(wanted.name, "must be a list, as the input is a sequence", show(value)))
        element = replace(wanted.element or TensorType("", None, None), sizes=None)  # which may differ
        return [checked(element, part, opened, floats, (wanted.name, i)) for i, part in enumerate(value)]
    if isinstance(value, bool | int | float) and wanted.dtype is not None and not wanted.sizes:
        value = np.asarray(value, wanted.dtype)
    found = array(where, value)
    if wanted.dtype is None or (is_text(found) and wanted.dtype == object):
        return found
    if is_text(found) and any(isinstance(text, str) for text in np.asarray(found).flat):
        raise InvalidType(Problem(where, f"must be {wanted.dtype.name}", "text"))
    narrow = jax.dtypes.canonicalize_dtype(wanted.dtype) if wanted.dtype.kind != "O" else wanted.dtype
    if found.dtype not in (wanted.dtype, narrow) and not (wanted.dtype in FLOATS and found.dtype in floats):
        remedy = f"{where}.astype({narrow.name!r})" if isinstance(where, str) and where.isidentifier() else None
        raise InvalidType(Problem(where, f"must be {wanted.dtype.name}", found.dtype, remedy=remedy))
    if wanted.sizes is None:
        return found
    if len(wanted.sizes) != found.ndim:
        raise InvalidDesc(Problem(wanted.name, f"must have {len(wanted.sizes)} dimensions", found.shape))
    for size, due in zip(found.shape, wanted.sizes, strict=True):
        if isinstance(due, str):
            name, first = opened.setdefault(due, (wanted.name, size))
            if first is not size and first != size:
                rule = f"must have size {first} for {due}, like {name}"
                raise InvalidDesc(Problem(wanted.name, rule, found.shape))
        elif due is not None and size != due:
            spelled = str(wanted).partition(": ")[2]
            raise InvalidDesc(Problem(wanted.name, f"must be a {spelled}", found.shape))
    return found


def is_text(value: Value) -> bool:
    """Whether a value may hold text: its known elements are Python objects."""
    return isinstance(value, np.ndarray) and value.dtype == object
