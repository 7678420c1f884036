"""Measures the time of a model's calls, by dmljax and by ONNX Runtime, and compares their results."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from dmljax.errors import Problem, Unsupported, inside
from dmljax.foundation.programs.progress import report
from dmljax.text import escape_controls, reason_of

if TYPE_CHECKING:  # artifacts are timed where the package onnx may not be installed
    from dmljax.onnx.model import Model
    from dmljax.onnx.values.types import Elements, Value

CALLS = 5  # after the first
SEED = 0
SHOWN = 8  # elements of a result


class Timing(NamedTuple):
    """The results of a model by output name, the seconds of its first call, and the median of later calls."""

    results: dict[str, Any]
    first: float
    median: float

    @property
    def compilation(self) -> float:
        return max(self.first - self.median, 0.0)


def measure_calls(names: Sequence[str], call: Callable[[], Sequence[Any]], count: int) -> Timing:
    """Calls a function once to compile it, and then `count` times."""
    results: Sequence[Any] = ()
    times = []
    for index in range(1 + count):
        report("running the model", index + 1, 1 + count, "call")
        start = time.perf_counter()
        results = call()
        times.append(time.perf_counter() - start)
    return Timing(dict(zip(names, results, strict=True)), times[0], float(np.median(times[1:])))


def measure(model: "Model", inputs: "Mapping[str, Elements]", count: int = CALLS) -> Timing:
    """Measures `count` calls of a model, always with the same random key."""
    placed = [inputs[tensor.name] for tensor in model.inputs]
    named: dict[str, Any] = {tensor.name: inputs[tensor.name] for tensor in model.defaults if tensor.name in inputs}
    if model.is_random:
        named["key"] = jax.random.key(SEED)

    def call() -> Sequence[Any]:
        results = jax.block_until_ready(model(*placed, **named))
        return results if isinstance(results, tuple) else (results,)

    return measure_calls([tensor.name for tensor in model.outputs], call, count)


def measure_in_onnxruntime(path: str, inputs: "Mapping[str, Elements]", count: int = CALLS) -> Timing:
    """Measures `count` calls of a model by ONNX Runtime on the CPU."""
    try:
        import onnxruntime
    except ImportError as error:
        remedy = "pip install onnxruntime"
        raise Unsupported(Problem("compare", "needs the package onnxruntime", str(error), remedy=remedy)) from None
    with inside("onnxruntime"):
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            names = [output.name for output in session.get_outputs()]
            return measure_calls(names, lambda: session.run(None, dict(inputs)), count)
        except Exception as error:  # its errors derive directly from Exception
            raise Unsupported(Problem((), f"cannot run the model: {reason_of(error)}")) from None


def greatest_difference(first: ArrayLike, second: ArrayLike) -> float:
    """The greatest difference between two tensors; infinity if their shapes differ or only one has NaN somewhere."""
    a, b = (np.asarray(value, np.float64) for value in (first, second))
    if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
        return np.inf
    with np.errstate(invalid="ignore"):
        distances = np.where((a == b) | np.isnan(a), 0, np.abs(a - b))
    return float(np.max(distances, initial=0))


def to_json(timed: Timing, loaded: float) -> dict[str, Any]:
    """The results and times of a program that took `loaded` seconds to load, ready for JSON."""
    outputs = {
        name: {"type": jax.typeof(array).str_short(), "values": array.tolist()} for name, array in timed.results.items()
    }
    times = {"load": loaded, "compile": timed.compilation, "call": timed.median}
    return {"outputs": outputs, "seconds": times}


def timing_lines(timed: Timing, loaded: float) -> Iterator[str]:
    """The times and results of a program that took `loaded` seconds to load, as lines."""
    yield f"{loaded:.2f} s to load, {timed.compilation:.2f} s to compile, {timed.median * 1e3:.3f} ms for a call"
    for name, result in timed.results.items():
        yield f"{escape_controls(name)}: {describe_result(result)}"


def describe_result(result: "Value") -> str:
    """Describes a result: its type and its first elements."""
    if not isinstance(result, jax.Array):
        return f"{len(result)} elements of a sequence" if isinstance(result, list) else str(result)
    elements = np.asarray(result).ravel()[:SHOWN].tolist()
    dots = ", ..." if result.size > SHOWN else ""
    spelled = ", ".join(f"{number:.6g}" if isinstance(number, float) else str(number) for number in elements)
    return f"{jax.typeof(result).str_short()} {spelled}{dots}"
