"""ONNX models as dispatchables: a dispatch runs the DirectML graph that the model has for the sizes of its inputs."""

from collections.abc import Container, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax

from dmljax.dxdispatch.model import BindPoint
from dmljax.errors import InvalidDesc, Problem
from dmljax.graph import Graph
from dmljax.types import x64_enabled

Sizes = Mapping[str, tuple[int, ...]]  # of inputs, by their names


class Overrides(NamedTuple):
    """The sizes that a caller of `load` gives: of open dimensions, by name or by denotation, and of whole tensors."""

    names: dict[str, int]
    denotations: dict[str, int]
    shapes: dict[str, tuple[int, ...]]  # by the names of inputs and outputs


class Network:
    """An ONNX model, whose tensors are bound by the names of its inputs and outputs."""

    def __init__(self, path: Path, names: Mapping[str, int], denotations: Mapping[str, int]) -> None:
        from dmljax.onnx import load  # the package onnx is an extra

        self._load = partial(load, path)
        self._is_wide, self._model = x64_enabled(), self._load()
        self._inputs = [one.overridden(names, denotations) for one in self._model.inputs]
        self._defaults = [one.overridden(names, denotations) for one in self._model.defaults]
        types = (*self._inputs, *self._defaults, *self._model.outputs)
        self.names = dict.fromkeys((one.name for one in types), False)

    def sizes(self, shapes: Sizes, bound: Container[str]) -> Sizes:
        """The sizes of all inputs: those of bindings, or those of the model, in which open ones are 1.

        An input that has a default is one of them only if it is bound.
        """
        sizes: dict[str, tuple[int, ...]] = {}
        known: dict[str, int] = {}
        for one in self._used(bound):
            place = (one.name, "shape")
            if one.sizes is None and one.name not in shapes:
                raise InvalidDesc(Problem(place, "must be given, because the model leaves it open", "none"))
            given = shapes.get(one.name, tuple(size if isinstance(size, int) else 1 for size in one.sizes or ()))
            if one.sizes is not None:
                if len(given) != len(one.sizes):
                    raise InvalidDesc(Problem(place, f"must have {len(one.sizes)} sizes, for {one}", list(given)))
                for size, wanted in zip(given, one.sizes, strict=True):
                    expected = known.setdefault(wanted, size) if isinstance(wanted, str) else wanted
                    if expected not in (None, size):
                        what = f"for {wanted}, as for the inputs before it" if isinstance(wanted, str) else f"of {one}"
                        raise InvalidDesc(Problem(place, f"must have the size {expected} {what}", list(given)))
            sizes[one.name] = given
        return sizes

    def _used(self, bound: Container[str]) -> list[Any]:
        """The types of the inputs that have no default, and of those that are bound."""
        return [*self._inputs, *(one for one in self._defaults if one.name in bound)]

    def bytes_of_inputs(self, sizes: Sizes) -> Mapping[str, int]:
        """How many bytes each input has, or 0 if it is not a tensor, which `graph` refuses."""
        used = self._used(sizes)
        return {one.name: one.dtype.itemsize * prod(sizes[one.name]) if one.dtype else 0 for one in used}

    def graph(self, sizes: Sizes) -> Graph:
        """The graph for inputs of these sizes."""
        # Buffers of 64 bits have them, whatever JAX has; an Execution says where it needs them.
        is_wide = x64_enabled() or any(
            one.dtype is not None and one.dtype.kind in "iuf" and one.dtype.itemsize == 8
            for one in (*self._used(sizes), *self._model.outputs)
        )
        with jax.enable_x64(is_wide):
            if is_wide != self._is_wide:  # one of them is kept: its weights may be large
                self._is_wide, self._model = is_wide, self._load()
            return self._model.graph(sizes)


# Bindings


def require_shapes_of_outputs(points: Sequence[BindPoint], shapes: Sizes) -> None:
    """Refuses a shape for an output if the model computes another one; a scalar has the shape [1] in a graph."""
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


def single_bindings(given: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The bindings of single tensors as objects, if each is one, a name, or a list of one of these."""
    singles = {name: one[0] if isinstance(one, list) and len(one) == 1 else one for name, one in given.items()}
    return {name: one if isinstance(one, dict) else {"name": one} for name, one in singles.items()}
