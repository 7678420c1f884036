"""The compiled programs of a session, for runs with inputs of types that an earlier run has checked."""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import jax
import numpy as np

from dmljax.foundation.programs.compiling import main_options
from dmljax.onnx import Model
from dmljax.onnx.model import compiled_program, forget_programs
from dmljax.run.onnxruntime.values import value_of

MOST_PROGRAMS = 256  # that a session keeps

_type_of = attrgetter("__class__", "dtype", "shape")


class Programs:
    """The programs of a model by the types of its inputs.

    The first run with new types checks them, and may compile a program, while other threads wait for it. Later runs
    only look the program up, unless `looks_up` is false.
    """

    def __init__(self, model: Model, *, looks_up: bool = True) -> None:
        self._model, self._looks_up = model, looks_up
        self._names = [tensor.name for tensor in model.inputs]
        self._output_names = [tensor.name for tensor in model.outputs]
        self._places = {name: place for place, name in enumerate(self._output_names)}
        self._take_values = _take_values(self._names)
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        self._known: set[Hashable] = set()  # types that a run has checked
        self._lock = threading.Lock()

    def run(self, names: Any, feed: Any) -> Sequence[Any] | None:
        """The outputs of these names, or all, for arrays of known types by name.

        None if the types are not known, no single program computes the outputs, or anything is wrong, for checks to
        find. The program may read the memory of NumPy's arrays until the outputs are ready.
        """
        if type(feed) is not dict or len(feed) != len(self._names) or (names is not None and type(names) is not list):
            return None
        try:
            places = [self._places[name] for name in names] if names and names != self._output_names else ()
            values = self._take_values(feed)
            outputs = self._programs[(main_options(), *map(_type_of, values))](*values)
        except (KeyError, AttributeError, TypeError, ValueError):  # also for arrays on another device
            return None
        outputs = (outputs,) if len(self._output_names) == 1 else outputs
        return [outputs[place] for place in places] if places else outputs

    def run_checked(self, feed: Mapping[str, Any], run: Callable[[Mapping[str, Any]], Any]) -> Any:
        """Calls `run`, which checks the feed, and remembers the program that computed the outputs."""
        types = (main_options(), *((name, _loose_type_of(value_of(value))) for name, value in feed.items()))
        if types not in self._known:
            with self._lock:
                if types not in self._known:  # another thread may have been first
                    if len(self._known) >= MOST_PROGRAMS:
                        self._forget()
                    outputs = run(feed)
                    self._remember(feed)
                    self._known.add(types)
                    return outputs
        return run(feed)

    def _forget(self) -> None:
        """Frees the memory of all programs."""
        self._programs.clear()
        self._known.clear()
        forget_programs(self._model)

    def _remember(self, feed: Mapping[str, Any]) -> None:
        if not self._looks_up or feed.keys() != {*self._names}:
            return
        values = [value_of(feed[name]) for name in self._names]
        for tensor, value in zip(self._model.inputs, values, strict=True):
            is_array = type(value) is np.ndarray or (_is_array(value) and not value.weak_type)
            if not is_array or (tensor.sizes == () and value.shape):  # another model takes scalars with a shape
                return
        program = compiled_program(self._model, values)
        if program is not None:
            is_wide = any(value.dtype.itemsize >= _WIDE for value in values)
            self._programs[main_options(), *map(_type_of, values)] = _with_wide_types(program) if is_wide else program


_WIDE = 8  # bytes of an element


def _take_values(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """A function that takes the values of these names, as fast as Python can."""
    take: Callable[[Mapping[str, Any]], Any] = itemgetter(*names) if names else tuple
    return take if len(names) != 1 else lambda feed: (take(feed),)


def _with_wide_types(program: Callable[..., Any]) -> Callable[..., Any]:
    """A program that takes 64-bit types from NumPy, which JAX would narrow."""

    def run(*values: Any) -> Any:
        with jax.enable_x64(True):
            return program(*values)

    return run


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


def _loose_type_of(value: Any) -> Any:
    """The type of an array with its sizes, or of another object without."""
    return _type_of(value) if isinstance(value, np.ndarray | np.generic) or _is_array(value) else type(value)
