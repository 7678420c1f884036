"""Binds the arrays of a call to a model's inputs, and checks them against their types."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, Where
from dmljax.foundation.checks import array
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
        opened: dict[str, tuple[str, int]] = {}
        return {name: check_input(types[name], value, opened, floats) for name, value in arrays.items()}


def check_input(
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
        return None if value is None else check_input(inner, value, opened, floats)
    if wanted.kind == "sequence":
        if not isinstance(value, list | tuple):
            raise InvalidType(Problem(wanted.name, "must be a list, as the input is a sequence", show(value)))
        element = replace(wanted.element or TensorType("", None, None), sizes=None)  # which may differ
        return [check_input(element, part, opened, floats, (wanted.name, i)) for i, part in enumerate(value)]
    if isinstance(value, bool | int | float) and wanted.dtype is not None and not wanted.sizes:
        value = np.asarray(value, wanted.dtype)
    given = array(where, value)
    if wanted.dtype is None or (is_text(given) and wanted.dtype == object):
        return given
    if is_text(given) and any(isinstance(text, str) for text in np.asarray(given).flat):
        raise InvalidType(Problem(where, f"must be {wanted.dtype.name}", "text"))
    narrow = jax.dtypes.canonicalize_dtype(wanted.dtype) if wanted.dtype.kind != "O" else wanted.dtype
    if given.dtype not in (wanted.dtype, narrow) and not (wanted.dtype in FLOATS and given.dtype in floats):
        remedy = f"{where}.astype({narrow.name!r})" if isinstance(where, str) and where.isidentifier() else None
        raise InvalidType(Problem(where, f"must be {wanted.dtype.name}", given.dtype, remedy=remedy))
    if wanted.sizes is None:
        return given
    if len(wanted.sizes) != given.ndim:
        raise InvalidDesc(Problem(wanted.name, f"must have {len(wanted.sizes)} dimensions", given.shape))
    for size, due in zip(given.shape, wanted.sizes, strict=True):
        if isinstance(due, str):
            name, first = opened.setdefault(due, (wanted.name, size))
            if first is not size and first != size:
                rule = f"must have size {first} for {due}, like {name}"
                raise InvalidDesc(Problem(wanted.name, rule, given.shape))
        elif due is not None and size != due:
            spelled = str(wanted).partition(": ")[2]
            raise InvalidDesc(Problem(wanted.name, f"must be a {spelled}", given.shape))
    return given


def is_text(value: Value) -> bool:
    """Whether a value may hold text: its known elements are Python objects."""
    return isinstance(value, np.ndarray) and value.dtype == object
