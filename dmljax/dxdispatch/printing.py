"""Formats the results of a model's commands as text and as JSON.

The text equals DxDispatch's, which prints numbers with a C++ stream: floats with six significant digits, and 8-bit
integers as characters. 4-bit integers, which DxDispatch does not print, are numbers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from numpy.typing import NDArray

from dmljax.dxdispatch.execution import Dispatched, Printed, Result, Written
from dmljax.dxdispatch.model import Dispatch, Dispatchable
from dmljax.dxdispatch.networks import SizedNetwork
from dmljax.text import escape_controls
from dmljax.types import FLOATS, INTEGERS_4, bits_of


def result_pieces(result: Result, platform: str, timing_verbosity: int, warmup_samples: int) -> Iterator[str]:
    """The text that DxDispatch prints for the result of a command, in pieces, because a buffer may be large."""
    if isinstance(result, Printed):
        yield from print_pieces(result.resource, result.values, verbose=result.verbose)
    elif isinstance(result, Written):
        yield f"Resource '{escape_controls(result.resource)}' written to '{escape_controls(str(result.path))}'"
    else:
        yield "\n".join(_dispatch_lines(result, platform.upper(), timing_verbosity, warmup_samples))


def _dispatch_lines(result: Dispatched, platform: str, timing_verbosity: int, warmup_samples: int) -> Iterator[str]:
    cold, hot = _cold_and_hot(result.milliseconds, warmup_samples)
    head = f"Dispatch '{escape_controls(result.dispatchable)}': {len(result.milliseconds)} iterations"
    if timing_verbosity == 0:
        yield f"{head}, {_median(hot):.4f} ms median ({platform})"
        return
    yield head
    for title, samples in (("(Cold)", cold), ("(Hot) ", hot)):
        if samples:
            yield (
                f"{platform} Timings {title} : {len(samples)} samples, {fmean(samples):.4f} ms average,"
                f" {min(samples):.4f} ms min, {_median(samples):.4f} ms median, {max(samples):.4f} ms max"
            )
    if timing_verbosity >= 2:
        yield "The timings of each iteration: "
        for i, sample in enumerate(result.milliseconds):
            yield f"iteration {i}: {sample:.4f} ms ({platform})"


def binding_lines(dispatch: Dispatch, dispatchables: Mapping[str, Dispatchable]) -> Iterator[str]:
    """The inputs and outputs of a dispatched ONNX model, with their types and the resources bound to them."""
    network = dispatchables[dispatch.dispatchable].desc
    if not isinstance(network, SizedNetwork):
        return
    for title, tensors, unbound in (
        ("Input", network.inputs, "zeros, or the model's default"),
        ("Output", network.results, "dropped"),
    ):
        for name, tensor in tensors.items():
            binding = dispatch.bindings.get(name)
            source = f"resource '{escape_controls(binding.resource)}'" if binding else unbound
            is_open = title == "Output" and network.is_open
            sizes = "sizes that values decide" if is_open else f"[{','.join(map(str, tensor.sizes))}]"
            yield f"{title} '{escape_controls(name)}': {tensor.data_type.name} {sizes}, {source}"


def result_json(result: Result, warmup_samples: int) -> dict[str, Any]:
    """The result of a command as a JSON object."""
    if isinstance(result, Printed):
        values = {"data_type": result.values.dtype.name.upper(), "values": json_values(result.values)}
        return {"type": "print", "resource": result.resource, **values}
    if isinstance(result, Written):
        return {"type": "writeFile", "resource": result.resource, "path": str(result.path)}
    hot = _cold_and_hot(result.milliseconds, warmup_samples)[1]
    times = {"median_milliseconds": _median(hot), "milliseconds": result.milliseconds}
    return {"type": "dispatch", "dispatchable": result.dispatchable, **times}


def total_milliseconds(results: Iterable[Dispatched], warmup_samples: int) -> float:
    """Sums the medians of the dispatches, the time of a run."""
    return sum(_median(_cold_and_hot(result.milliseconds, warmup_samples)[1]) for result in results)


def _cold_and_hot(samples: Sequence[float], warmup_samples: int) -> tuple[Sequence[float], Sequence[float]]:
    """Splits samples into the cold first samples, which may be slow, and the hot rest, which is never empty."""
    cold = min(len(samples) - 1, warmup_samples)
    return samples[:cold], samples[cold:]


def _median(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]  # the upper of two middle samples, as in DxDispatch


_VALUES_PER_PIECE = 2**16


def print_pieces(name: str, values: NDArray[Any], *, verbose: bool) -> Iterator[str]:
    """The text that DxDispatch prints for a resource, in pieces.

    >>> print(
    ...     *print_pieces("x", np.array([0.1, -0.0, 1e7], "float32"), verbose=False),
    ...     sep="",
    ... )
    Resource 'x': 0.1, -0, 1e+07
    """
    yield f"Resource '{escape_controls(name)}':"
    yield "\n" if verbose else " "
    index_width, digits = len(str(len(values))), bits_of(values.dtype) // 4
    for begin in range(0, len(values), _VALUES_PER_PIECE):
        some = values[begin : begin + _VALUES_PER_PIECE]
        if verbose:
            rows = zip(_value_texts(some), some.view(f"u{some.itemsize}").tolist(), strict=True)
            lines = (f"[{i:{index_width}}] {text} (0x{raw:{digits}X})\n" for i, (text, raw) in enumerate(rows, begin))
            yield "".join(lines)
        else:
            yield (", " if begin else "") + ", ".join(_value_texts(some))


def _value_texts(values: NDArray[Any]) -> Iterable[str]:
    if values.dtype in FLOATS:
        return map("%g".__mod__, values.tolist())
    if values.dtype not in INTEGERS_4 and values.itemsize == 1:
        # A C++ stream prints 8-bit integers as characters. Bytes above 127 become surrogates, which the command line
        # writes back as the same bytes.
        return (bytes([byte]).decode(errors="surrogateescape") for byte in values.tobytes())
    return map(str, values.tolist())


def json_values(values: NDArray[Any]) -> list[Any]:
    """Converts values to JSON numbers, and NaN and infinities, which JSON lacks, to "nan", "inf" and "-inf"."""
    if values.dtype not in FLOATS:
        return list(values.tolist())
    return [
        value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        for value in values.tolist()
    ]
