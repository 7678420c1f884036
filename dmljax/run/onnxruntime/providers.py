"""ONNX Runtime's providers: only their names are kept, because JAX computes on its own device."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.run.answers import require_first_device
from dmljax.text import show

VERSION = "1.32.0"  # of ONNX Runtime, whose interface this is
CPU = "CPUExecutionProvider"
AVAILABLE = ("DmlExecutionProvider", CPU)

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
        if name in AVAILABLE:
            require_first_device(name, provider_options)
            options_by_name.setdefault(name, {key: str(value) for key, value in provider_options.items()})
        else:
            known = ", ".join(AVAILABLE)
            warnings.warn(f"provider {name!r} is not available; dmljax has {known}", stacklevel=4)
    return {**options_by_name, CPU: options_by_name.get(CPU, {})}


def _pair(index: int, provider: Any) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(provider, tuple) or len(provider) != 2 or not isinstance(provider[1], Mapping):
        raise InvalidType(Problem(("providers", index), "must be a name, or a name with options", show(provider)))
    return provider
