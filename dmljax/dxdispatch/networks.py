"""ONNX models as dispatchables: each dispatch runs the model for the sizes of its inputs."""

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax

from dmljax.dxdispatch.model import BindPoint
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.types import x64_enabled

Sizes = Mapping[str, tuple[int, ...]]  # by input name


class Overrides(NamedTuple):
    """The sizes that a caller of `load` sets: open dimensions by name or by denotation, and whole tensors."""

    names: dict[str, int]
    denotations: dict[str, int]
    shapes: dict[str, tuple[int, ...]]  # by input or output name


class Network:
    """An ONNX model; bindings use the names of its inputs and outputs."""

    def __init__(self, path: Path, names: Mapping[str, int], denotations: Mapping[str, int]) -> None:
        from dmljax.onnx import load  # onnx is an optional dependency

        self._path, self._load = path, partial(load, path, maximum_sizes="largest")
        self._is_wide, self._model = x64_enabled(), self._load()
        self._inputs = [one.overridden(names, denotations) for one in self._model.inputs]
        self._defaults = [one.overridden(names, denotations) for one in self._model.defaults]
        types = (*self._inputs, *self._defaults, *self._model.outputs)
        self.names = dict.fromkeys((one.name for one in types), False)

    def sizes(self, shapes: Sizes, bound: Container[str]) -> Sizes:
        """The sizes of all inputs, from bindings or from the model; open sizes of the model become 1.

        An input with a default is included only if it is bound.
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
                    raise InvalidDesc(Problem(place, f"must have {len(one.sizes)} sizes to match {one}", list(given)))
                for size, wanted in zip(given, one.sizes, strict=True):
                    expected = known.setdefault(wanted, size) if isinstance(wanted, str) else wanted
                    if expected not in (None, size):
                        what = f"for {wanted}, as in the inputs before it" if isinstance(wanted, str) else f"of {one}"
                        raise InvalidDesc(Problem(place, f"must have size {expected} {what}", list(given)))
            sizes[one.name] = given
        return sizes

    def _used(self, bound: Container[str]) -> list[Any]:
        """The types of the inputs that have no default or are bound."""
        return [*self._inputs, *(one for one in self._defaults if one.name in bound)]

    def bytes_of_inputs(self, sizes: Sizes) -> Mapping[str, int]:
        """The size of each input in bytes; 0 if it is not a tensor, which `sized` refuses."""
        used = self._used(sizes)
        return {one.name: one.dtype.itemsize * prod(sizes[one.name]) if one.dtype else 0 for one in used}

    def sized(self, sizes: Sizes) -> Any:
        """The model for inputs of these sizes."""
        from dmljax.onnx.counts import NotKnown
        from dmljax.onnx.sized import SizedModel

        # Keep 64-bit types regardless of JAX's setting; an Execution reports where it needs them.
        is_wide = x64_enabled() or any(
            one.dtype is not None and one.dtype.kind in "iuf" and one.dtype.itemsize == 8
            for one in (*self._used(sizes), *self._model.outputs)
        )
        with jax.enable_x64(is_wide):
            if is_wide != self._is_wide:  # keep only one model, because its weights may be large
                self._is_wide, self._model = is_wide, self._load()
            try:
                return SizedModel(self._model, sizes)
            except NotKnown as error:
                raise Unsupported(*self._advised(error.problems)) from None

    def _advised(self, problems: Sequence[Problem]) -> Iterator[Problem]:
        """Problems of sizes that nothing bounds, with advice for the command line instead of for Python."""
        yield from (replace(one, remedy=None) for one in problems)
        name = shlex.quote(self._path.name)
        rule = "sizes need bounds before the model runs, because buffers have fixed sizes"
        yield Problem((), rule, remedy=f"dmljax run {name} needs none")


# Bindings


def require_shapes_of_outputs(points: Sequence[BindPoint], shapes: Sizes) -> None:
    """Refuses a shape for an output if the model computes a different one; a scalar has shape [1]."""
    wrong = [
        Problem(
            (point.name, "shape"),
            f"must be {list(point.tensor.sizes)}, which the model computes",
            list(shapes[point.name]),
        )
        for point in points
        if not point.is_input and (shapes.get(point.name, point.tensor.sizes) or (1,)) != point.tensor.sizes
    ]
    if wrong:
        raise InvalidDesc(*wrong)


def single_bindings(given: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Converts the bindings of single tensors to objects; each is an object, a name, or a list of one of these."""
    singles = {name: one[0] if isinstance(one, list) and len(one) == 1 else one for name, one in given.items()}
    return {name: one if isinstance(one, dict) else {"name": one} for name, one in singles.items()}
