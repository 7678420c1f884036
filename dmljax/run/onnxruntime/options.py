"""Settings of sessions and runs. Most tune ONNX Runtime itself: they can be set and read, and mean nothing here."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.run.answers import Answering, absent, refusing
from dmljax.run.onnxruntime.arguments import require_type, to_int32
from dmljax.run.onnxruntime.capi.adapters import LoraAdapter
from dmljax.run.onnxruntime.devices import OrtEpDevice
from dmljax.run.onnxruntime.enumerations import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtExecutionProviderDevicePolicy,
)
from dmljax.run.onnxruntime.errors import InvalidArgument
from dmljax.run.onnxruntime.models.files import Initializer
from dmljax.run.onnxruntime.providers import AVAILABLE, require_known
from dmljax.run.onnxruntime.values import OrtValue
from dmljax.text import one_line, show


class _KnownOptions(Answering):
    """Attributes with defaults; those that would mean something must keep theirs."""

    _DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    _KEPT: ClassVar[Mapping[str, str]] = {}  # the reasons
    _IGNORED: ClassVar[Mapping[str, str]] = {}  # the reasons why the others have no effect

    def __init_subclass__(cls) -> None:
        for name, default in cls._DEFAULTS.items():
            setattr(cls, name, default)  # programs ask a class which options it has

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in self._DEFAULTS:
            raise absent(f"onnxruntime.{type(self).__name__}", name, known=self._DEFAULTS)
        if not name.startswith("_"):
            value = _convert(name, value, self._DEFAULTS[name])
        if name in self._KEPT and value != self._DEFAULTS[name]:
            with refusing("onnxruntime"):
                rule = f"must be {self._DEFAULTS[name]!r}, because {self._KEPT[name]}"
                raise Unsupported(Problem((type(self).__name__, name), rule, show(value)))
        object.__setattr__(self, name, value)

    def _add_entry(self, config_key: str, config_value: str) -> None:
        """Does nothing, because entries tune ONNX Runtime itself; they can only be read again."""
        require_type("config_key", config_key, str)
        require_type("config_value", config_value, str)
        self._entries[config_key] = config_value

    def _entry(self, config_key: str) -> str:
        """Returns an entry that was added."""
        if config_key not in self._entries:
            with refusing("onnxruntime"):
                raise InvalidDesc(Problem("key", "must have been added before", show(config_key)))
        return self._entries[config_key]


def _convert(name: str, value: Any, default: Any) -> Any:
    """Converts the value of an option to the type of its default; raises a TypeError if it has another type."""
    if isinstance(default, bool):
        require_type(name, value, bool, int, np.bool, type(None))
        return bool(value)
    if isinstance(default, int) and not isinstance(default, IntEnum):
        return to_int32(name, value)
    require_type(name, value, type(default))
    return value


_NO_LOG = dict.fromkeys(("log_severity_level", "log_verbosity_level", "logid"), "dmljax has no log")


class SessionOptions(_KnownOptions):
    """Options of a session; those for threads, memory and optimizations have no effect."""

    _DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    _IGNORED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse"), "XLA plans the memory"),
        **dict.fromkeys(("execution_mode", "execution_order"), "XLA schedules the nodes"),
        "graph_optimization_level": "XLA always compiles the whole graph",
        **dict.fromkeys(("inter_op_num_threads", "intra_op_num_threads"), "XLA chooses its threads"),
        **_NO_LOG,
        "use_deterministic_compute": "XLA's flag xla_gpu_deterministic_ops asks for it",
        "use_per_session_threads": "all sessions share XLA's threads",
    }
    _REFUSED: ClassVar[Mapping[str, str]] = {
        "add_external_initializers_from_files_in_memory": "dmljax reads no file from memory; write "
        "add_external_initializers, or the weights into the model's files with onnx.save",
        **dict.fromkeys(
            ("clear_ep_context_data_read_func", "set_ep_context_data_read_func"),
            "XLA compiles a model when it first runs, and dmljax.run keeps what it compiles",
        ),
        **dict.fromkeys(
            ("AppendExecutionProvider", "AppendExecutionProvider_DML", "append_execution_provider"),
            'it is of other languages than Python; write add_provider("DmlExecutionProvider", {}), or '
            'InferenceSession(path, providers=["DmlExecutionProvider"])',
        ),
        "register_custom_ops_library": "its kernels are ONNX Runtime's; write the operator as a function of the model",
    }

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, int] = {}
        self._denotations: dict[str, int] = {}
        self._providers: list[tuple[str, Mapping[str, str]]] = []
        self._initializers: dict[str, Initializer] = {}

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Fixes the open sizes with a name."""
        require_type("dim_name", dim_name, str)
        self._names[dim_name] = to_int32("dim_value", dim_value)

    def add_free_dimension_override_by_denotation(self, denotation: str, dim_value: int) -> None:
        """Fixes the open sizes with a denotation, such as DATA_BATCH."""
        require_type("denotation", denotation, str)
        self._denotations[denotation] = to_int32("dim_value", dim_value)

    def add_initializer(self, name: str, ort_value: OrtValue) -> None:
        """Puts a value in place of a model's initializer with this name."""
        self._add_initializer(name, ort_value, is_external=False)

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[OrtValue]) -> None:
        """Puts values in place of initializers whose data is in other files than the model."""
        with refusing("onnxruntime"):
            if len(names) != len(ort_values):
                raise InvalidDesc(Problem("ort_values", f"must be {len(names)}, as many as names", len(ort_values)))
        for name, value in zip(names, ort_values, strict=True):
            self._add_initializer(name, value, is_external=True)

    def _add_initializer(self, name: str, value: OrtValue, *, is_external: bool) -> None:
        require_type("name", name, str)
        with refusing("onnxruntime"):
            if not isinstance(value, OrtValue):
                raise InvalidType(Problem("ort_value", "must be an OrtValue", show(value)))
            if name in self._initializers:
                raise InvalidDesc(f"An OrtValue for this name has already been added: {one_line(name)}")
        self._initializers[name] = Initializer(value, is_external)

    add_session_config_entry, get_session_config_entry = _KnownOptions._add_entry, _KnownOptions._entry

    def add_provider(self, provider_name: str, provider_options: Mapping[str, str]) -> None:
        """Adds a provider for sessions that name none themselves."""
        require_type("provider_name", provider_name, str)
        require_type("provider_options", provider_options, Mapping)
        for option in (*provider_options, *provider_options.values()):
            require_type("provider_options", option, str)
        require_known([provider_name])
        if provider_name not in AVAILABLE:
            rule = f"Failed to add provider of type {provider_name!r} to SessionOptions. Provider configuration is not"
            raise InvalidArgument(f"{rule} supported.")
        self._providers.append((provider_name, provider_options))

    def add_provider_for_devices(self, ep_devices: Sequence[OrtEpDevice], provider_options: Mapping[str, str]) -> None:
        """Adds the provider of devices for sessions that name none themselves."""
        for device in ep_devices:
            require_type("ep_devices", device, OrtEpDevice)
            self.add_provider(device.ep_name, provider_options)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Does nothing, because JAX chooses the device."""
        require_type("policy", policy, OrtExecutionProviderDevicePolicy)

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any]) -> None:
        """Does nothing, because JAX chooses the device."""

    def set_load_cancellation_flag(self, is_canceled: bool) -> None:
        """Does nothing, because a load runs to its end; raises if it is to be canceled."""
        require_type("is_canceled", is_canceled, bool)
        if is_canceled:
            with refusing("onnxruntime"):
                raise Unsupported(Problem("is_canceled", "must be False, because a load runs to its end", is_canceled))

    def has_providers(self) -> bool:
        return bool(self._providers)


class RunOptions(_KnownOptions):
    """Options of a run; only adapters have an effect."""

    _DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }
    _IGNORED: ClassVar[Mapping[str, str]] = {
        **_NO_LOG,
        "only_execute_path_to_fetches": "a compiled program computes all outputs",
    }
    _KEPT: ClassVar[Mapping[str, str]] = {"terminate": "a compiled program runs to its end"}

    def __init__(self) -> None:
        super().__init__()
        self._adapters: list[LoraAdapter] = []

    def add_active_adapter(self, adapter: LoraAdapter) -> None:
        """Gives a run the arrays of an adapter in place of inputs; only `run` and `run_with_ort_values` look at them.

        Of several adapters for an input, the first counts.
        """
        require_type("adapter", adapter, LoraAdapter)
        self._adapters.append(adapter)

    add_run_config_entry, get_run_config_entry = _KnownOptions._add_entry, _KnownOptions._entry
