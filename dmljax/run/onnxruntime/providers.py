"""ONNX Runtime's providers: only their names are kept, because JAX computes on its own device."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.run.answers import refusing, require_first_device
from dmljax.run.onnxruntime.arguments import warn
from dmljax.text import did_you_mean, one_line, show

VERSION = "1.32.0"  # of ONNX Runtime, whose interface this is
CPU = "CPUExecutionProvider"
AVAILABLE = ("DmlExecutionProvider", CPU)
KNOWN = (
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "MIGraphXExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "CoreMLExecutionProvider",
    "DmlExecutionProvider",
    "RknpuExecutionProvider",
    "WebNNExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
    CPU,
)  # in some build of ONNX Runtime

Provider = str | tuple[str, Mapping[str, Any]]


def choose_providers(
    providers: Sequence[Provider] | None, options: Sequence[Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Returns the available providers with their options, in order, and the CPU's last."""
    named = [providers] if isinstance(providers, str) else list(providers or [])
    if options and not (isinstance(options, Sequence) and all(isinstance(each, Mapping) for each in options)):
        raise InvalidType(Problem("provider_options", "must be a list of dictionaries", show(options)))
    if options and len(options) != len(named):
        raise InvalidDesc(Problem("provider_options", f"must be {len(named)}, as many as providers", len(options)))
    options_by_name: dict[str, Any] = {}
    for i, provider in enumerate(named):
        name, provider_options = (
            (provider, options[i] if options else {}) if isinstance(provider, str) else _pair(i, provider)
        )
        if name not in AVAILABLE:
            rule = f"Specified provider {name!r} is not in available provider names."
            warn(f"{rule}Available providers: '{', '.join(AVAILABLE)}'{_hint(name, AVAILABLE)}")
        elif name in options_by_name:
            warn(f"Duplicate provider {name!r} encountered, ignoring.")
        else:
            options_by_name[name] = _read_options(name, provider_options)
    return {**options_by_name, CPU: options_by_name.get(CPU, {})}


def _read_options(provider: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The options of a provider; DirectML's ignores those that it does not know, and the CPU's has none."""
    require_first_device(provider, options)
    if provider == CPU:
        return {}
    for name in options:
        if name not in _OPTIONS_OF_DML and (hint := did_you_mean(name, _OPTIONS_OF_DML)):
            warn(f"{provider} ignores the option {name!r}{hint}")
    return {name: str(value) for name, value in options.items()}


_OPTIONS_OF_DML = (
    "device_filter",
    "device_id",
    "disable_metacommands",
    "enable_graph_capture",
    "enable_graph_serialization",
    "performance_preference",
)


def require_known(names: Iterable[str]) -> None:
    """Raises a RuntimeError if no build of ONNX Runtime has a provider."""
    with refusing("onnxruntime"):
        for name in names:
            if name not in KNOWN:
                raise InvalidDesc(f"Unknown Provider Type: {one_line(name)}{_hint(name, KNOWN)}")


_END = "executionprovider"


def _hint(name: str, known: Sequence[str]) -> str:
    """`, did you mean X?` for the name of a provider that is short or has a typo; all have a long end in common."""
    by_lower = {other.lower(): other for other in KNOWN}
    plain = name.lower().replace("directml", "dml")
    is_short = len(plain) < len(_END)
    close = get_close_matches(plain + _END * is_short, by_lower, n=1, cutoff=1 if is_short else 0.9)
    meant = by_lower[close[0]] if close else name
    return f", did you mean {meant}?" if meant in known and meant != name else ""


def names_of(providers: str | Sequence[Provider] | None) -> list[str]:
    """The names of providers that are given with or without options."""
    named = [providers] if isinstance(providers, str) else list(providers or [])
    return [provider if isinstance(provider, str) else provider[0] for provider in named]


def _pair(index: int, provider: Any) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(provider, tuple) or len(provider) != 2 or not isinstance(provider[1], Mapping):
        raise InvalidType(Problem(("providers", index), "must be a name, or a name with options", show(provider)))
    return provider
