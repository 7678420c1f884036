"""ONNX models as dispatchables: each dispatch runs the model for the sizes of its inputs."""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dmljax.descriptors.array_arguments import bind_by_name, require_64_bits
from dmljax.errors import InvalidDesc, Path as Place, Problem, Unsupported, inside, require, within
from dmljax.foundation.open_sizes import OpenSizes, unify_sizes
from dmljax.foundation.precision import full_precision
from dmljax.graphs.to_graph.views import desc_of
from dmljax.types import Results, x64_enabled

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

        self._load = partial(load, path)
        self._is_wide, self._model = x64_enabled(), self._load()
        self._inputs = [declared.overridden(names, denotations) for declared in self._model.inputs]
        self._defaults = [declared.overridden(names, denotations) for declared in self._model.defaults]
        types = (*self._inputs, *self._defaults, *self._model.outputs)
        self.names = dict.fromkeys((declared.name for declared in types), False)

    def sizes(self, shapes: Sizes, bound: Container[str]) -> Sizes:
        """The sizes of all inputs, from bindings or from the model; open sizes of the model become 1.

        An input with a default is included only if it is bound.
        """
        sizes: dict[str, tuple[int, ...]] = {}
        open_sizes: OpenSizes = {}
        for declared in self._used_inputs(bound):
            place = (declared.name, "shape")
            if declared.sizes is None and declared.name not in shapes:
                raise InvalidDesc(Problem(place, "must be given, because the model leaves it open", "none"))
            shape = shapes.get(
                declared.name, tuple(size if isinstance(size, int) else 1 for size in declared.sizes or ())
            )
            if declared.sizes is not None:
                if len(shape) != len(declared.sizes):
                    raise InvalidDesc(
                        Problem(place, f"must have {len(declared.sizes)} sizes to match {declared}", list(shape))
                    )
                conflict = unify_sizes(declared.name, shape, declared.sizes, open_sizes)
                if conflict is not None:
                    name_text = f"for {conflict.name}, as in the inputs before it"
                    reason = f"of {declared}" if conflict.name is None else name_text
                    raise InvalidDesc(Problem(place, f"must have size {conflict.expected} {reason}", list(shape)))
            sizes[declared.name] = shape
        return sizes

    def _used_inputs(self, bound: Container[str]) -> list[Any]:
        """The types of the inputs that have no default or are bound."""
        return [*self._inputs, *(declared for declared in self._defaults if declared.name in bound)]

    def bytes_of_inputs(self, sizes: Sizes) -> Mapping[str, int]:
        """The size of each input in bytes; 0 if it is not a tensor, which `sized` refuses."""
        inputs = self._used_inputs(sizes)
        return {
            declared.name: declared.dtype.itemsize * prod(sizes[declared.name]) if declared.dtype else 0
            for declared in inputs
        }

    def sized(self, sizes: Sizes) -> "SizedNetwork":
        """The model for inputs of these sizes."""
        inputs = self._used_inputs(sizes)
        # Keep 64-bit types regardless of JAX's setting; an Execution reports where it needs them.
        is_wide = x64_enabled() or any(
            declared.dtype is not None and declared.dtype.kind in "iuf" and declared.dtype.itemsize == 8
            for declared in (*inputs, *self._model.outputs)
        )
        with jax.enable_x64(is_wide):
            if is_wide != self._is_wide:  # keep only one model, because its weights may be large
                self._is_wide, self._model = is_wide, self._load()
            return SizedNetwork(
                self._model, {declared.name: _struct(declared, sizes[declared.name]) for declared in inputs}
            )


class SizedNetwork:
    """A model for inputs of these types; in buffers, booleans are UINT8 and scalars have one dimension.

    64-bit types are used if they are enabled when this object is made. Random numbers are always the same.
    """

    title = "ONNX model"

    def __init__(self, model: Any, structs: Mapping[str, jax.ShapeDtypeStruct]) -> None:
        from dmljax.onnx.values.counts import NotKnown

        self._model, self._structs, self._is_wide = model, structs, x64_enabled()
        self._names = [*dict.fromkeys(output.name for output in model.outputs)]  # a file may list an output twice
        self.inputs = {name: _desc_of(("inputs", name), struct) for name, struct in structs.items()}
        self.types_of_constants = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in model.weights.items()}

        def onnx_model(weights: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
            return self._compute(partial(model.apply, weights), inputs)

        self._computation = jax.jit(onnx_model)  # made once, so that it is traced once
        shapes = (tensor.shape_dtype for tensor in self.inputs.values())
        self.traced: Any = None
        try:
            with jax.disable_jit(False):
                self.traced = self._computation.trace(self.types_of_constants, *shapes)
            output_structs = self.traced.out_info
        except NotKnown:  # values decide sizes, and the calls know them
            types = {output.name: output for output in model.outputs}
            output_structs = [_struct(types[name], (1,), "outputs") for name in self._names]
        results = zip(self._names, output_structs, strict=True)
        self.results = {name: _desc_of(("outputs", name), struct) for name, struct in results}

    @property
    def is_open(self) -> bool:
        """Whether the sizes of outputs depend on values; `results` then has their types only."""
        return self.traced is None

    def __call__(self, *args: Any, **kwargs: Any) -> Results:
        with within(self.title):
            arrays, _ = bind_by_name(self.inputs, {}, args, kwargs)
        outputs = self.compute(*arrays)
        results: Any = dict(zip(self._names, outputs, strict=True)) if len(outputs) > 1 else outputs[0]
        return results  # type: ignore[no-any-return]

    def compute(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs in order, from arrays of all inputs."""
        return self._compute(self._model, inputs)

    def computation(self) -> Any:
        """The jitted function of a dict of weights and of the inputs."""
        rule = "no program for all inputs, because values decide sizes"
        require((), not self.is_open, rule, error=Unsupported)
        return self._computation

    def require_available(self) -> None:
        """Raises if there are 64-bit types and `jax_enable_x64` is not set."""
        with within(self.title):
            require_64_bits(((name,), tensor) for name, tensor in {**self.inputs, **self.results}.items())

    def _compute(self, call: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        rows = zip(self._structs.items(), inputs, strict=True)
        arrays = {name: _view_as(x, struct.shape, struct.dtype) for (name, struct), x in rows}
        by_place = [arrays.pop(tensor.name) for tensor in self._model.inputs]
        with jax.enable_x64(self._is_wide), full_precision():
            key = {"key": jax.random.key(0)} if self._model.is_random else {}
            results = call(*by_place, **arrays, **key)
        several = (results,) if len(self._model.outputs) == 1 else results
        results = {output.name: result for output, result in zip(self._model.outputs, several, strict=True)}
        return tuple(_store(name, results[name]) for name in self._names)


def _struct(declared: Any, sizes: tuple[int, ...], side: str = "inputs") -> jax.ShapeDtypeStruct:
    if declared.dtype is None or declared.dtype == object:
        raise Unsupported(Problem((side, declared.name), "must be a tensor of numbers", declared))
    return jax.ShapeDtypeStruct(sizes, jax.dtypes.canonicalize_dtype(declared.dtype))


def _desc_of(place: Place, struct: Any) -> Any:
    with inside(place):
        return desc_of(struct.dtype, struct.shape)


def _store(name: str, result: Any) -> Any:
    """A result as a buffer stores it."""
    if not isinstance(result, jax.Array):
        raise Unsupported(Problem(("outputs", name), "must be a tensor of numbers", type(result).__name__))
    return _view_as(result, result.shape or (1,), np.uint8 if result.dtype == bool else result.dtype)


def _view_as(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    x = x if x.shape == shape else x.reshape(shape)
    return x if x.dtype == dtype else x.astype(dtype)
