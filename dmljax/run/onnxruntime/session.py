"""ONNX Runtime's sessions: an ONNX model that is called with arrays by name."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import onnx
import onnx.shape_inference

from dmljax.errors import InvalidType, Problem
from dmljax.onnx import Model, load
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.graph.reader import read_model
from dmljax.onnx.model import loaded_graph
from dmljax.onnx.running.inputs import check_input
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime.binding import IOBinding
from dmljax.run.onnxruntime.capi.onnxruntime_pybind11_state import kind_of_load, kind_of_run
from dmljax.run.onnxruntime.options import RunOptions, SessionOptions
from dmljax.run.onnxruntime.providers import Provider, choose_providers
from dmljax.run.onnxruntime.values import OrtValue, as_numpy, type_text, value_of
from dmljax.text import did_you_mean, join_words, show


class NodeArg(NamedTuple):
    """The type of an input or an output; an open size is its name or None."""

    name: str
    type: str
    shape: list[int | str | None]


class ModelMetadata(NamedTuple):
    """The metadata in a model's file."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class _Seed:
    """The seed of random nodes, and how many runs have drawn from it."""

    value, runs = secrets.randbits(32), 0


def set_seed(seed: int) -> None:
    """Makes the random numbers of later runs the same in each process."""
    _Seed.value, _Seed.runs = seed, 0


class InferenceSession(Answering):
    """A model that dmljax runs, with 64-bit types as in the file."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **optimizers: Any,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else sess_options
        with refusing("onnxruntime", kind_of_load), jax.enable_x64(True):
            if optimizers.keys() - {"disabled_optimizers", "enable_fallback"}:
                raise InvalidType(Problem((), "unknown arguments", join_words(optimizers)))
            if not isinstance(path_or_bytes, str | os.PathLike | bytes | bytearray | memoryview):
                raise InvalidType(Problem("path_or_bytes", "must be a path or bytes", show(path_or_bytes)))
            self.set_providers(providers or self._options._providers, provider_options)
            source = os.fspath(path_or_bytes) if isinstance(path_or_bytes, os.PathLike) else path_or_bytes
            self._model = load(source)
            self._texts = _type_texts(self._model, source)
            self._inputs, self._defaults, self._outputs = (
                [tensor.overridden(self._options._names, self._options._denotations) for tensor in types]
                for types in (self._model.inputs, self._model.defaults, self._model.outputs)
            )

    # Inputs and outputs

    def get_inputs(self) -> list[NodeArg]:
        return [self._node_arg(tensor) for tensor in self._inputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default."""
        return [self._node_arg(tensor) for tensor in self._defaults]

    def get_outputs(self) -> list[NodeArg]:
        return [self._node_arg(tensor) for tensor in self._outputs]

    def _node_arg(self, tensor: TensorType) -> NodeArg:
        return NodeArg(tensor.name, self._texts[tensor.name], list(tensor.sizes or ()))

    def get_modelmeta(self) -> ModelMetadata:
        """Reads the metadata in the file."""
        proto = loaded_graph(self._model).file
        version = proto.model_version if proto.HasField("model_version") else np.iinfo(np.int64).max
        entries = {entry.key: entry.value for entry in proto.metadata_props}
        texts = (proto.producer_name, proto.graph.name, proto.domain, proto.doc_string, proto.graph.doc_string)
        return ModelMetadata(*texts, int(version), entries)

    def get_session_options(self) -> SessionOptions:
        return self._options

    # Providers

    def get_providers(self) -> list[str]:
        """Returns the requested providers, and the CPU's."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: dict(options) for name, options in self._providers.items()}

    def set_providers(
        self, providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Replaces the names of the providers."""
        with refusing("onnxruntime", kind_of_load):
            self._providers = choose_providers(providers, provider_options)

    def disable_fallback(self) -> None:
        """Does nothing, because no provider falls back to another."""

    enable_fallback = disable_fallback

    # Runs

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Computes the outputs of these names, or all outputs, from inputs by name."""
        return [as_numpy(result) for result in self._results(output_names, input_feed)]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Runs with values that stay on the device."""
        return [OrtValue(result, "cpu") for result in self._results(output_names, input_dict_ort_values)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs, and passes the results, `user_data` and an error's text to `callback`."""
        try:
            results = self.run(output_names, input_feed)
        except Exception as error:  # pass any error to the callback
            callback([], user_data, str(error))
        else:
            callback(results, user_data, "")

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        iobinding._fill(self._results(list(iobinding._outputs), iobinding._inputs))

    def _results(self, names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any]:
        outputs = [output.name for output in self._outputs]
        with refusing("onnxruntime", kind_of_run), jax.enable_x64(True):
            requested = list(names) if names else outputs
            for name in requested:
                if name not in outputs:
                    rule = f"must be among the outputs: {', '.join(outputs)}"
                    raise InvalidType(Problem("output_names", rule, show(name)))
            values = self._call_model(feed)
            results = dict(zip(outputs, values if len(outputs) > 1 else [values], strict=True))
            return [results[name] for name in requested]

    def _call_model(self, feed: Mapping[str, Any]) -> Any:
        types = {tensor.name: tensor for tensor in (*self._inputs, *self._defaults)}
        for name in feed:
            if name not in types:
                rule = f"unknown input{did_you_mean(name, types)}"
                raise InvalidType(Problem(name, rule, remedy=f"the inputs are {', '.join(types)}"))
        missing = [tensor.name for tensor in self._inputs if tensor.name not in feed]
        if missing:
            raise InvalidType(Problem("input_feed", "must have all inputs", f"no {join_words(missing)}"))
        arrays = {name: check_input(types[name], _convert_feed(types[name], value), {}) for name, value in feed.items()}
        placed = [arrays.pop(tensor.name) for tensor in self._inputs]
        if self._model.is_random:
            _Seed.runs += 1
            arrays["key"] = jax.random.fold_in(jax.random.key(_Seed.value), _Seed.runs)
        return self._model(*placed, **arrays)


def _type_texts(model: Model, source: Any) -> dict[str, str]:
    """Spells the types of inputs and outputs as ONNX Runtime does; a file may leave out the types of outputs."""
    proto = loaded_graph(model).file
    if not all(output.HasField("type") for output in proto.graph.output):
        whole, _ = read_model(source)  # the types of the outputs follow from the sizes of the weights
        proto = onnx.shape_inference.infer_shapes(whole)
    return {value.name: type_text(value.type) for value in (*proto.graph.input, *proto.graph.output)}


def _convert_feed(requested: TensorType, value: Any) -> Any:
    """Converts a value of a feed for dmljax."""
    value = value_of(value)
    if requested.kind != "tensor" or requested.dtype is None:
        return value
    if isinstance(value, list):
        return np.array(value, requested.dtype)
    is_text = isinstance(value, np.ndarray) and value.dtype.kind in "US"
    return value.astype(object) if is_text else value
