"""What comes of a model's commands, as DxDispatch prints it (numbers by a C++ stream, with six digits) and as JSON."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from numpy.typing import NDArray

from dmljax._types import FLOATS
from dmljax.importers.execution import Printed, Result, Written


def result_text(result: Result, platform: str, timing_verbosity: int, warmup_samples: int) -> str:
    """What DxDispatch says of a command that it has carried out."""
    if isinstance(result, Printed):
        return printed(result.resource, result.values, verbose=result.verbose)
    if isinstance(result, Written):
        return f"Resource '{result.resource}' written to '{result.path}'"
    where = platform.upper()
    cold, hot = _cold_and_hot(result.milliseconds, warmup_samples)
    head = f"Dispatch '{result.dispatchable}': {len(result.milliseconds)} iterations"
    if timing_verbosity == 0:
        return f"{head}, {_median(hot):.4f} ms median ({where})"
    lines = [head]
    for title, samples in (("(Cold)", cold), ("(Hot) ", hot)):
        if samples:
            lines.append(
                f"{where} Timings {title} : {len(samples)} samples, {fmean(samples):.4f} ms average,"
                f" {min(samples):.4f} ms min, {_median(samples):.4f} ms median, {max(samples):.4f} ms max"
            )
    if timing_verbosity >= 2:
        lines.append("The timings of each iteration: ")
        lines += [f"iteration {i}: {sample:.4f} ms ({where})" for i, sample in enumerate(result.milliseconds)]
    return "\n".join(lines)


def result_json(result: Result, warmup_samples: int) -> dict[str, Any]:
    """The same for a program."""
    if isinstance(result, Printed):
        values = {"data_type": result.values.dtype.name.upper(), "values": json_values(result.values)}
        return {"type": "print", "resource": result.resource, **values}
    if isinstance(result, Written):
        return {"type": "writeFile", "resource": result.resource, "path": str(result.path)}
    hot = _cold_and_hot(result.milliseconds, warmup_samples)[1]
    times = {"median_milliseconds": _median(hot), "milliseconds": result.milliseconds}
    return {"type": "dispatch", "dispatchable": result.dispatchable, **times}


def _cold_and_hot(samples: Sequence[float], warmup_samples: int) -> tuple[Sequence[float], Sequence[float]]:
    """The first samples, which may be slow, and the others, of which there is one at least."""
    cold = min(len(samples) - 1, warmup_samples)
    return samples[:cold], samples[cold:]


def _median(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]  # of an even number the upper one, as DxDispatch has it


def printed(name: str, values: NDArray[Any], *, verbose: bool) -> str:
    """What DxDispatch says of a resource.

    >>> print(printed("x", np.array([0.1, -0.0, 1e7], "float32"), verbose=False))
    Resource 'x': 0.1, -0, 1e+07
    """
    texts = list(_texts(values))
    if not verbose:
        return f"Resource '{name}': {', '.join(texts)}"
    index_width = len(str(len(texts)))
    digits = 2 * values.itemsize
    bits = values.view(f"u{values.itemsize}").tolist()
    lines = [
        f"[{index:{index_width}}] {text} (0x{raw:{digits}X})\n"
        for index, (text, raw) in enumerate(zip(texts, bits, strict=True))
    ]
    return f"Resource '{name}':\n{''.join(lines)}"


def _texts(values: NDArray[Any]) -> Iterable[str]:
    if values.dtype in FLOATS:
        return map("%g".__mod__, values.tolist())
    if values.itemsize == 1:
        # A stream takes them for characters. What is no UTF-8 goes through Python's output as the byte that it is.
        return (bytes([byte]).decode(errors="surrogateescape") for byte in values.tobytes())
    return map(str, values.tolist())


def json_values(values: NDArray[Any]) -> list[Any]:
    """Values for a program: numbers, and what JSON has no number for as DxDispatch's format spells it."""
    if values.dtype not in FLOATS:
        return list(values.tolist())
    return [
        value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        for value in values.tolist()
    ]
