"""Ways to compute a workload on a GPU, beside how dmljax computes it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from workloads import Function, Work

# What a variant takes from a machine with a GPU, so that it compiles nowhere else
CUDNN, CUDA = "asks for cuDNN's version", "asks for CUDA's version"

Options = Mapping[str, Any]  # of XLA's compiler


@dataclass(frozen=True)
class Variant:
    """A function of a workload's inputs, and how XLA compiles it."""

    function: Function
    arrange: Callable[..., tuple[Any, ...]] = lambda *inputs: inputs  # before the time starts, as for weights
    restore: Callable[[Any], Any] = lambda result: result  # after it ends
    options: Options = field(default_factory=dict)
    context: Callable[[], AbstractContextManager[Any]] = nullcontext  # that it is traced and lowered in
    needs: str = ""


@dataclass(frozen=True)
class Race:
    """A workload and its variants, the most promising first."""

    build: Callable[[], Work]
    variants: Callable[[Work], Mapping[str, Variant]]
    formula: Function | None = None  # of float32; the workload's idiom, if there is none
    spread: Sequence[float] = ()  # the standard deviation of each input; 1 for those that follow
    share: float = 1  # of the time
    lists_kernels: bool = False  # whether a table lists the kernels by their time


def settings(function: Function, **every: Options) -> dict[str, Variant]:
    """A function under options of XLA's compiler, by their names."""
    return {name.replace("_", " "): Variant(function, options=options) for name, options in every.items()}


def patched(module: Any, **values: Any) -> Callable[[], AbstractContextManager[Any]]:
    """A context in which a module's constants have other values."""
    return lambda: mock.patch.multiple(module, **values)
