"""ONNX Runtime's sessions: an ONNX model that is called with arrays by name."""

import functools
import itertools
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem
from dmljax.onnx import Model
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.model import loaded_graph, rounded_decoder
from dmljax.onnx.running.inputs import check_input
from dmljax.onnx.running.rounded_sizes import RoundedArray, RoundedDecoder
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime.arguments import (
    check_array,
    convert_feed,
    read_names,
    require_callback,
    require_feed,
    require_inputs,
    require_kind,
    require_optimizers,
    require_outputs,
    require_type,
    require_values,
    warn,
    warn_of_unknown,
)
from dmljax.run.onnxruntime.binding import IOBinding
from dmljax.run.onnxruntime.devices import CPU_MEMORY, OrtEpDevice, OrtMemoryInfo, get_ep_devices
from dmljax.run.onnxruntime.errors import kind_of_load, kind_of_load_from, kind_of_run, message_of
from dmljax.run.onnxruntime.models.files import load_with
from dmljax.run.onnxruntime.models.signatures import infer_outputs, sizes_of, with_open_scalars
from dmljax.run.onnxruntime.models.types import require_types
from dmljax.run.onnxruntime.options import RunOptions, SessionOptions
from dmljax.run.onnxruntime.profiling import Profile, count_nodes
from dmljax.run.onnxruntime.programs import Programs
from dmljax.run.onnxruntime.providers import Provider, choose_providers, names_of, require_known
from dmljax.run.onnxruntime.values import (
    OrtValue,
    RoundedValue,
    as_numpy,
    content_of,
    type_text,
    value_of,
    value_of_result,
)
from dmljax.text import show


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
    """The seed of random nodes, and the number of the next run that draws from it."""

    value: int = secrets.randbits(32)
    runs: Iterator[int] = itertools.count(1)  # threads may share it


def set_seed(seed: int) -> None:
    """Makes the random numbers of later runs the same in each process."""
    require_type("seed", seed, int, np.integer)
    _Seed.value, _Seed.runs = seed, itertools.count(1)


class InferenceSession(Answering):
    """A model that dmljax runs, with 64-bit types as in the file."""

    _REFUSED: ClassVar[Mapping[str, str]] = {
        "get_provider_graph_assignment_info": "XLA makes one program of all nodes",
        "run_with_ortvaluevector": "it is beneath ONNX Runtime's Python classes; write run_with_ort_values",
    }

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        disabled_optimizers: Iterable[str] | None = None,
        enable_fallback: Any = 1,
        **others: Any,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else sess_options
        require_kind("sess_options", self._options, SessionOptions)
        require_optimizers(disabled_optimizers)
        warn_of_unknown("InferenceSession", InferenceSession.__init__, others)
        with refusing("onnxruntime", type):
            if not isinstance(path_or_bytes, str | os.PathLike | bytes | bytearray | memoryview):
                raise InvalidType(Problem("path_or_bytes", "must be a path or bytes", show(path_or_bytes)))
        source = os.fspath(path_or_bytes) if isinstance(path_or_bytes, os.PathLike) else path_or_bytes
        self._model_path = source if isinstance(source, str) else None  # Optimum reads it
        if (providers or provider_options) and self._options.has_providers():
            warn("InferenceSession uses the providers passed to it, not those that its SessionOptions have")
        self._set_providers(providers or self._options._providers, provider_options)
        if int(enable_fallback) != 1:
            require_known(names_of(providers))
        self._profile = Profile(self._options.profile_file_prefix if self._options.enable_profiling else None)
        with refusing("onnxruntime", kind_of_load_from(self._model_path)), jax.enable_x64(True):
            with self._profile.measure(f"model_loading_{'array' if self._model_path is None else 'uri'}"):
                self._model = load_with(source, self._options._initializers)
                require_types(self._model)
            with self._profile.measure("session_initialization", lambda: count_nodes(self._model)):
                self._inputs, self._defaults = map(self._override, (self._model.inputs, self._model.defaults))
                self._output_names = [output.name for output in self._model.outputs]
            self._decoder = rounded_decoder(self._model)
        if self._options.optimized_model_filepath:
            with refusing("onnxruntime"), jax.enable_x64(True):
                self._model.save(self._options.optimized_model_filepath)
        self._programs = Programs(self._model, looks_up=not self._profile.is_open)  # a profile counts each run
        if self._profile.is_open:
            vars(self)["_results"] = self._profile.measure_runs(self._results)  # in place of the method
            weakref.finalize(self, self._profile.write)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # ONNX Runtime's sessions are Python's, and take any attribute

    def _override(self, types: Sequence[TensorType]) -> list[TensorType]:
        return [tensor.overridden(self._options._names, self._options._denotations) for tensor in types]

    # Inputs and outputs

    def get_inputs(self) -> list[NodeArg]:
        return [self._node_arg(tensor) for tensor in self._inputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default."""
        return [self._node_arg(tensor) for tensor in self._defaults]

    def get_outputs(self) -> list[NodeArg]:
        return list(self._output_args)

    @functools.cached_property
    def _output_args(self) -> list[NodeArg]:
        outputs, types = infer_outputs(self._model, [*self._inputs, *self._defaults])
        return [NodeArg(tensor.name, type_text(types[tensor.name]), sizes_of(tensor)) for tensor in outputs]

    def _node_arg(self, tensor: TensorType) -> NodeArg:
        return NodeArg(tensor.name, self._texts[tensor.name], sizes_of(tensor))

    @functools.cached_property
    def _texts(self) -> dict[str, str]:
        """The types of inputs in ONNX Runtime's words."""
        return {value.name: type_text(value.type) for value in loaded_graph(self._model).file.graph.input}

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
        return {name: dict(options) for name, options in self._provider_options.items()}

    def set_providers(
        self, providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Replaces the names of the providers."""
        self._set_providers(providers, provider_options)
        require_known(names_of(providers))

    def _set_providers(
        self, providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[str, Any]] | None
    ) -> None:
        with refusing("onnxruntime", kind_of_load):
            self._provider_options = choose_providers(providers, provider_options)
            self._providers = list(self._provider_options)

    def disable_fallback(self) -> None:
        """Does nothing, because no provider falls back to another."""

    enable_fallback = disable_fallback

    # Profiles

    def end_profiling(self) -> str:
        """Writes the profile, and returns the name of its file."""
        with refusing("onnxruntime"):
            return self._profile.write()

    def get_profiling_start_time_ns(self) -> int:
        """Returns the clock's time at which the profile began."""
        return self._profile.start_ns

    # Devices

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Makes a value of zeros."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns the memory that each input is read from."""
        return [CPU_MEMORY for _ in self._inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns the memory that each output is written to."""
        return [CPU_MEMORY for _ in self._output_names]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """Returns the device of the first provider for each input."""
        (device,) = (device for device in get_ep_devices() if device.ep_name == next(iter(self._providers)))
        return [device for _ in self._inputs]

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Does nothing, because providers are only names."""

    def get_tuning_results(self) -> list[Any]:
        """Returns nothing, because XLA tunes its programs itself."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Does nothing, because XLA tunes its programs itself."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Does nothing, because no graph is captured."""

    # Runs

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Computes the outputs of these names, or all outputs, from inputs by name."""
        results = self._programs.run(output_names, input_feed) if _is_for_run(run_options) else None
        if results is None:
            names = self._check_call(output_names, "input_feed", input_feed, run_options)
            results = self._results(names, _with_adapters(input_feed, run_options))
        return list(map(as_numpy, results))

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Runs with values that stay on the device."""
        feed, results = input_dict_ort_values, None
        if _is_for_run(run_options) and type(feed) is dict and {*map(type, feed.values())} == {OrtValue}:
            results = self._run_again(output_names, {name: value._value for name, value in feed.items()})
        if results is None:
            names = self._check_call(output_names, "input_dict_ort_values", feed, run_options)
            require_values("input_dict_ort_values", feed)
            results = self._results(names, _with_adapters(feed, run_options))
        return [value_of_result(result, "cpu") for result in results]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs in another thread, and passes the results, `user_data` and an error's text to `callback`."""
        names, feed = self._check_call(output_names, "input_feed", input_feed, run_options), dict(input_feed)
        require_callback(callback)

        def run() -> None:
            try:
                outputs = self._programs.run(names, feed)
                results = list(map(as_numpy, self._results(names, feed) if outputs is None else outputs))
            except Exception as error:  # pass any error to the callback
                callback([], user_data, message_of(error) if isinstance(error, DmlError) else str(error))
            else:
                callback(results, user_data, "")

        threading.Thread(target=run, name="onnxruntime.run_async").start()

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs with the inputs of a binding, and puts the results where its outputs are bound."""
        require_kind("iobinding", iobinding, IOBinding)
        if iobinding._session is not self:
            raise InvalidDesc("IOBinding must be used with the session that created it.")
        if not _is_for_run(run_options):
            require_type("run_options", run_options, RunOptions, type(None))
        names, feed = list(iobinding._outputs), iobinding._inputs
        looks_up = names and self._decoder is None
        results = self._run_again(names, {name: value_of(value) for name, value in feed.items()}) if looks_up else None
        with refusing("onnxruntime"):
            if not names:
                raise InvalidDesc("Error in execution: At least one output should be requested.")
            if results is None:
                require_feed("iobinding", feed, self._inputs)
                results = self._results(names, feed)
            iobinding._fill(results)

    def _run_again(self, names: Any, feed: Mapping[str, Any]) -> Sequence[Any] | None:
        """The results without checks, when the memory of the inputs may change; None if checks are due."""
        results = self._programs.run(names, feed)
        if results is not None and np.ndarray in map(type, feed.values()):
            jax.block_until_ready(results)
        return results

    def _check_call(self, names: Any, feed_name: str, feed: Any, run_options: Any) -> list[str] | None:
        """Checks the arguments of a run, and returns the names of outputs."""
        require_feed(feed_name, feed, self._inputs)
        require_type("run_options", run_options, RunOptions, type(None))
        return read_names(names)

    def _results(self, names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any]:
        outputs = self._output_names
        with refusing("onnxruntime", kind_of_run), jax.enable_x64(True):
            requested = list(names) if names else outputs
            require_outputs(requested, outputs)
            values = None if self._decoder is None else self._call_decoder(self._decoder, feed)
            if values is None:
                values = self._programs.run_checked(feed, self._call_model)
            results = dict(zip(outputs, values if len(outputs) > 1 else [values], strict=True))
            return [results[name] for name in requested]

    def _call_decoder(self, decoder: RoundedDecoder, feed: Mapping[str, Any]) -> Any:
        require_inputs(feed, self._types)
        contents = {name: content_of(value) for name, value in feed.items() if isinstance(value, RoundedValue)}
        rounded = {name: array for name, array in contents.items() if isinstance(array, RoundedArray)}
        arrays, shaped = self._check_feed({name: value for name, value in feed.items() if name not in rounded})
        for name, array in rounded.items():
            check_array(self._types[name], array)
        outputs = None if shaped else decoder(self._model.weights, {**arrays, **rounded})
        if decoder.is_exact:
            self._decoder = None
        return outputs if outputs is None or len(outputs) > 1 else outputs[0]

    @functools.cached_property
    def _types(self) -> dict[str, TensorType]:
        return {tensor.name: tensor for tensor in (*self._inputs, *self._defaults)}

    def _check_feed(self, feed: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
        """The arrays of a feed, and the names of scalars that have a shape."""
        types = self._types
        require_inputs(feed, types)
        converted = {name: convert_feed(types[name], value) for name, value in feed.items()}
        shaped = {name for name, value in converted.items() if types[name].sizes == () and np.ndim(value)}
        arrays = {
            name: value if name in shaped else check_input(types[name], value, {}) for name, value in converted.items()
        }
        return arrays, shaped

    def _call_model(self, feed: Mapping[str, Any]) -> Any:
        arrays, shaped = self._check_feed(feed)
        placed = [arrays.pop(tensor.name, None) for tensor in self._inputs]
        if self._model.is_random:
            arrays["key"] = jax.random.fold_in(jax.random.key(_Seed.value), next(_Seed.runs))
        model = self._open_model if shaped else self._model
        return model(*placed, **arrays)

    @functools.cached_property
    def _open_model(self) -> Model:
        """The model for scalars that are given with a shape, which ONNX Runtime accepts."""
        return with_open_scalars(self._model)


def _is_for_run(run_options: Any) -> bool:
    """Whether options leave a run as it is."""
    return run_options is None or (type(run_options) is RunOptions and not run_options._adapters)


def _with_adapters(feed: Mapping[str, Any], run_options: RunOptions | None) -> Mapping[str, Any]:
    """The feed with the arrays of the options' adapters, of which the first counts."""
    for adapter in reversed(run_options._adapters if run_options else []):
        feed = {**feed, **adapter._arrays}
    return feed
