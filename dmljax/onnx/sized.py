"""ONNX models for inputs of fixed sizes, with DirectML's types at their inputs and outputs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from dmljax.descriptors.array_arguments import Bind, bind_by_name, require_64_bits
from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import Path, Problem, Unsupported, inside, within
from dmljax.graphs.graph import Computation
from dmljax.graphs.to_graph.views import desc_of
from dmljax.lowerings.products import full_precision
from dmljax.onnx.file import TensorType
from dmljax.onnx.model import Model, separated
from dmljax.onnx.padded import is_padded_array, sizes_of
from dmljax.onnx.parameters import Array, Value
from dmljax.types import FeatureLevel, x64_enabled


class SizedModel(Computation):
    """A model for inputs of these sizes; booleans are UINT8 and scalars have one dimension, as in `Model.graph`.

    Load the model with `maximum_sizes="largest"`. 64-bit types are used if they are enabled when this object is made.
    """

    title = "ONNX model"

    def __init__(self, model: Model, sizes: Mapping[str, tuple[int, ...]], *, is_folded: bool = False) -> None:
        self._model, self._sizes, self._is_wide = model, sizes, x64_enabled()
        self.constants, self._compute = separated(model, is_folded=is_folded)
        self._names = [*dict.fromkeys(one.name for one in model.outputs)]  # a file may list an output twice
        types = {one.name: one for one in (*model.inputs, *model.defaults)}
        self._structs = {name: _struct(types[name], its) for name, its in sizes.items()}
        self.inputs = {name: _desc_of(("inputs", name), one) for name, one in self._structs.items()}

        def onnx_model(constants: Mapping[str, Array], *inputs: Array) -> tuple[Any, ...]:
            with full_precision():
                return self._computed(constants, inputs)

        self._computation = jax.jit(onnx_model)  # made once, so that it is traced once
        made = dict(zip(self._names, self.traced.out_info, strict=True))
        self._results = {name: _desc_of(("outputs", name), _array_of(one)) for name, one in made.items()}
        self.bounded = [name for name, one in made.items() if isinstance(one, tuple)]

    @property
    def traced(self) -> Any:
        """The trace of the computation."""
        with jax.disable_jit(False), jax.enable_x64(self._is_wide):
            types = (one.shape_dtype for one in self.inputs.values())
            return self._computation.trace(self.types_of_constants, *types)

    def problems(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        yield from ()  # its operators are not DirectML's

    def require_available(self) -> None:
        with within(self.title):
            require_64_bits(((name,), tensor) for name, tensor in {**self.inputs, **self.results}.items())

    @property
    def results(self) -> Mapping[str, TensorDesc]:
        return self._results

    @property
    def types_of_constants(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        return {name: jax.ShapeDtypeStruct(one.shape, one.dtype) for name, one in self.constants.items()}

    def computation(self, *, rounds_between_nodes: bool = False) -> Any:
        return self._computation

    def folded(self) -> "SizedModel":
        with jax.enable_x64(self._is_wide):
            return SizedModel(self._model, self._sizes, is_folded=True)

    @property
    def input_count(self) -> int:
        return len(self.inputs)

    def compiled(self) -> Callable[..., Any]:
        folded = self.folded()

        def computed(*inputs: Any) -> Any:
            arrays = [_array_of(one) for one in folded.computation()(folded.constants, *inputs)]
            return dict(zip(self.results, arrays, strict=True)) if len(arrays) > 1 else arrays[0]

        return computed

    def binder(self) -> Bind:
        return partial(bind_by_name, self.inputs, {})

    def describe(self, function: Any) -> None:
        """Gives the function that `lower` returns its name and docstring."""
        function.__name__ = function.__qualname__ = "model"
        function.__doc__ = "Computes the model from its inputs, given by position or name."

    def json(self) -> dict[str, Any]:
        """The DirectML graph of the model, as JSON."""
        with jax.enable_x64(self._is_wide):
            return self._model.graph(self._sizes).json()

    def _computed(self, constants: Mapping[str, Array], inputs: Sequence[Array]) -> tuple[Any, ...]:
        """An array for each output, or if values decide its sizes, a pair of an array and its true sizes."""
        with within("onnx"), jax.enable_x64(self._is_wide):
            rows = zip(self._structs.items(), inputs, strict=True)
            given = {name: x.reshape(struct.shape).astype(struct.dtype) for (name, struct), x in rows}
            wanted = (one.name for one in self._model.outputs)
            results = dict(zip(wanted, self._compute(constants, given), strict=True))
            return tuple(_stored(name, results[name]) for name in self._names)


def _struct(wanted: TensorType, sizes: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    if wanted.dtype is None or wanted.dtype == object:
        raise Unsupported(Problem(("inputs", wanted.name), "must be a tensor of numbers", wanted))
    return jax.ShapeDtypeStruct(sizes, jax.dtypes.canonicalize_dtype(wanted.dtype))


def _desc_of(place: Path, one: Any) -> TensorDesc:
    with inside(place):
        return desc_of(one.dtype, one.shape)


def _array_of(result: Any) -> Any:
    """The array of a result, without its true sizes."""
    return result[0] if isinstance(result, tuple) else result


def _stored(name: str, result: Value) -> Any:
    """A result as a buffer stores it."""
    if is_padded_array(result):
        return _stored(name, result.array), sizes_of(result)
    if not isinstance(result, jax.Array):
        raise Unsupported(Problem(("outputs", name), "must be a tensor of numbers", type(result).__name__))
    return (result.astype(np.uint8) if result.dtype == bool else result).reshape(result.shape or (1,))
