"""Profiles of sessions: when they loaded, compiled and ran, in a file that chrome://tracing and Perfetto open.

XLA compiles all nodes of a model into one program, so no single node has a time; `jax.profiler` shows XLA's operations.
"""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.monitoring

from dmljax.errors import Problem, unusable_file
from dmljax.foundation.files import open_output
from dmljax.onnx import Model
from dmljax.onnx.model import loaded_graph
from dmljax.text import reason_of

_MOST_EVENTS = 1_000_000  # ONNX Runtime's limit, after which it records no more
_STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}  # of JAX's events


class Profile:
    """The complete events of a session, until they are written; none if there is no prefix for the file's name."""

    def __init__(self, prefix: str | None) -> None:
        self.is_open = prefix is not None
        self.start_ns = time.time_ns() if self.is_open else 0
        self._origin = time.perf_counter_ns()
        self._path = f"{prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S_%f}"[:-3] + ".json"  # milliseconds, as ONNX Runtime
        self._events: list[Mapping[str, Any]] = []
        if self.is_open:
            _listen()

    def record(self, category: str, name: str, duration_ns: int, **args: str) -> None:
        """Adds an event that has just ended."""
        if not self.is_open or len(self._events) == _MOST_EVENTS:
            return
        start = (time.perf_counter_ns() - duration_ns - self._origin) // 1000
        thread = {"pid": os.getpid(), "tid": threading.get_native_id()}
        times = {"dur": duration_ns // 1000, "ts": max(start, 0)}
        self._events.append({"cat": category, **thread, **times, "ph": "X", "name": name, "args": args})

    @contextmanager
    def measure(self, name: str, args: Callable[[], Mapping[str, str]] = dict) -> Iterator[None]:
        """Records what happens inside, and the programs that JAX compiles for it."""
        token, start = _CURRENT.set(self), time.perf_counter_ns()
        try:
            yield
        finally:
            _CURRENT.reset(token)
            duration = time.perf_counter_ns() - start
            self.record("Session", name, duration, **args())

    def measure_runs(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `run` with an event for each call, which lasts until the results are there."""

        def measured(*arguments: Any) -> Any:
            with self.measure("model_run"):
                return jax.block_until_ready(run(*arguments))

        return measured

    def write(self) -> str:
        """Writes the events once, ends the profile, and returns the name of the file; nothing if there is none."""
        if not self.is_open:
            return ""
        self.is_open = False
        lines = ",\n".join(json.dumps(event) for event in self._events)
        try:
            with open_output(Path(self._path)) as file:
                file.write(f"[\n{lines}\n]\n".encode())
        except OSError as error:
            rule = "must begin the name of a file that can be written"
            problem = Problem("profile_file_prefix", rule, f"{self._path!r} ({reason_of(error)})")
            raise unusable_file(problem, error, self._path) from None
        return self._path


_CURRENT: ContextVar[Profile | None] = ContextVar("profile", default=None)


@cache
def _listen() -> None:
    """Lets JAX report what it compiles."""
    jax.monitoring.register_event_duration_secs_listener(_record_stage)


def _record_stage(event: str, duration_secs: float, **_: Any) -> None:
    profile = _CURRENT.get()
    if profile is not None and event in _STAGES:
        profile.record("Compiler", _STAGES[event], int(duration_secs * 1e9))


def count_nodes(model: Model) -> dict[str, str]:
    """Counts the nodes of a model's graph by operator."""
    counts = Counter(node.op_type for node in loaded_graph(model).file.graph.node)
    return {operator: str(count) for operator, count in sorted(counts.items())}
