"""ONNX models as dispatchables: each dispatch is the DirectML graph for the sizes of its inputs."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import jax

from dmljax.checks import UINT_MAX, integer_in
from dmljax.dxdispatch.model import BindPoint
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, all_checked
from dmljax.graph import Graph
from dmljax.text import show
from dmljax.types import x64_enabled

ONNX_FIELDS = (
    "sourcePath",
    "freeDimensionNameOverrides",
    "freeDimensionDenotationOverrides",
    "sessionOptionsConfigEntries",
    "graphOptimizationLevel",
    "loggingLevel",
)
Sizes = Mapping[str, tuple[int, ...]]  # of inputs, by their names


def overridden_sizes(fields: Mapping[str, Any]) -> dict[str, int]:
    """The open sizes that a dispatchable gives by name; what only ONNX Runtime reads is checked and has no effect."""

    def require_no_denotations() -> None:
        given = _object(fields, "freeDimensionDenotationOverrides")
        if given:
            rule = (
                "must be empty, because sizes have no denotations here; freeDimensionNameOverrides gives them by name"
            )
            raise Unsupported(Problem("freeDimensionDenotationOverrides", rule, show(given)))

    overrides = "freeDimensionNameOverrides"
    sizes, *_ = all_checked(
        lambda: {
            name: integer_in((overrides, name), size, 0, UINT_MAX) for name, size in _object(fields, overrides).items()
        },
        require_no_denotations,
        lambda: _object(fields, "sessionOptionsConfigEntries"),
        lambda: integer_in("graphOptimizationLevel", fields.get("graphOptimizationLevel", 99), 0, UINT_MAX),
        lambda: integer_in("loggingLevel", fields.get("loggingLevel", 2), 0, UINT_MAX),
    )
    return dict(sizes)


def _object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise InvalidType(Problem(name, "must be an object", show(value)))
    return value


class Network:
    """An ONNX model, whose tensors are bound by the names of its inputs and outputs."""

    def __init__(self, path: Path, overrides: Mapping[str, int]) -> None:
        from dmljax.onnx import load  # the package onnx is an extra

        self._overrides = overrides
        self._is_wide = False
        self._model = load(path)
        types = (*self._model.inputs, *self._model.outputs)
        if any(one.dtype is not None and one.dtype.kind in "iuf" and one.dtype.itemsize == 8 for one in types):
            # Buffers of such a model have 64 bits, whatever JAX has; an Execution says where it needs them.
            self._is_wide = True
            with jax.enable_x64(True):
                self._model = load(path)
        self.names = dict.fromkeys((one.name for one in types), False)

    def sizes(self, shapes: Sizes) -> Sizes:
        """The sizes of all inputs: those of bindings, or those of the model, in which open ones are 1."""
        sizes: dict[str, tuple[int, ...]] = {}
        known: dict[str, int] = {}
        for one in self._model.inputs:
            place = (one.name, "shape")
            if one.sizes is None and one.name not in shapes:
                raise InvalidDesc(Problem(place, "must be given, because the model leaves it open", "none"))
            due = None if one.sizes is None else tuple(self._fixed(size) for size in one.sizes)
            given = shapes.get(one.name, tuple(size if isinstance(size, int) else 1 for size in due or ()))
            if due is not None:
                if len(given) != len(due):
                    raise InvalidDesc(Problem(place, f"must have {len(due)} sizes, for {one}", list(given)))
                for size, wanted in zip(given, due, strict=True):
                    expected = known.setdefault(wanted, size) if isinstance(wanted, str) else wanted
                    if expected not in (None, size):
                        what = f"for {wanted}, as for the inputs before it" if isinstance(wanted, str) else f"of {one}"
                        raise InvalidDesc(Problem(place, f"must have the size {expected} {what}", list(given)))
            sizes[one.name] = given
        return sizes

    def _fixed(self, size: int | str | None) -> int | str | None:
        return self._overrides.get(size, size) if isinstance(size, str) else size

    def bytes_of_inputs(self, sizes: Sizes) -> Mapping[str, int]:
        """How many bytes each input has, or 0 if it is not a tensor, which `graph` refuses."""
        inputs = self._model.inputs
        return {one.name: one.dtype.itemsize * prod(sizes[one.name]) if one.dtype else 0 for one in inputs}

    def graph(self, sizes: Sizes) -> Graph:
        """The graph for inputs of these sizes."""
        with jax.enable_x64(self._is_wide or x64_enabled()):
            return self._model.graph(sizes)


# Bindings


def require_shapes_of_outputs(points: Sequence[BindPoint], shapes: Sizes) -> None:
    """Refuses other shapes of outputs than the model gives; a scalar has one dimension in a graph."""
    wrong = [
        Problem(
            (point.name, "shape"),
            f"must be {list(point.tensor.sizes)}, as the model computes it",
            list(shapes[point.name]),
        )
        for point in points
        if not point.is_input and (shapes.get(point.name, point.tensor.sizes) or (1,)) != point.tensor.sizes
    ]
    if wrong:
        raise InvalidDesc(*wrong)


def single_binding(source: Any) -> Any:
    """A binding that may be the only one of a list."""
    return source[0] if isinstance(source, list) and len(source) == 1 else source


def resource_bound(source: Any) -> str | None:
    """The name of the resource in a binding, if it has one."""
    one = single_binding(source)
    name = one.get("name") if isinstance(one, dict) else one
    return name if isinstance(name, str) else None
