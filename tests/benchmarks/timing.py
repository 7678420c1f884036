"""Times of rivals that share a machine: medians over blocks of calls, in alternating order over several rounds.

The thread pools of JAX, PyTorch and ONNX Runtime slow each other down if their calls alternate, so each rival has its
own block of calls, after a pause in which the others' threads go to sleep.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Call = Callable[[], object]

PAUSE = 0.01
MOST_CALLS = 400


@dataclass(frozen=True)
class Effort:
    """How long each rival is measured for."""

    rounds: int
    block_seconds: float


def medians(rivals: Mapping[str, Call], effort: Effort) -> dict[str, float]:
    """Seconds that a call of each rival takes: the median over the rounds of the medians of their blocks."""
    counts = {name: _calls_in(call, effort.block_seconds) for name, call in rivals.items()}
    blocks: dict[str, list[float]] = {name: [] for name in rivals}
    names = list(rivals)
    for turn in range(effort.rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            blocks[name].append(_block(rivals[name], counts[name]))
    return {name: statistics.median(times) for name, times in blocks.items()}


def _calls_in(call: Call, seconds: float) -> int:
    call()
    return max(1, min(MOST_CALLS, int(seconds / max(_seconds(call), 1e-9))))


def _block(call: Call, count: int) -> float:
    time.sleep(PAUSE)
    call()
    gc.disable()
    try:
        return statistics.median(_seconds(call) for _ in range(count))
    finally:
        gc.enable()


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
