"""Times starts of programs of ONNX Runtime: on it, and under `dmljax.run` without and with compiled programs.

    python tests/benchmarks/starts.py magika_program.py rapidocr_program.py

Prints seconds of processor time, the median of three interleaved runs, as a Markdown table. The environment has dmljax,
ONNX Runtime, and what the programs import; Python keeps compiled modules in it.

Without programs, it times what a session adds to each run: it prints microseconds of processor time, the least of 20
interleaved blocks, for ONNX Runtime, dmljax, and the call of `jax.jit` beneath it.
"""

import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

RUNS = 3
ROWS = ("first start", "later starts", "with ONNX Runtime")


def seconds_of(command: Sequence[str], cache: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    subprocess.run([sys.executable, *command], env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_of_starts(program: str) -> tuple[float, float, float]:
    under_dmljax = ["-m", "dmljax.run", program]
    with tempfile.TemporaryDirectory() as cache:
        return seconds_of(under_dmljax, cache), seconds_of(under_dmljax, cache), seconds_of([program], cache)


BLOCKS, CALLS = 20, 500
GRAPHS = {
    "adds two arrays of four numbers": "(float[4] x, float[4] y) => (float[4] a) { a = Add(x, y) }",
    "has four outputs": "(float[4] x) => (float[4] a, float[4] b, float[4] c, float[4] d) "
    "{ a = Neg(x) b = Abs(x) c = Exp(x) d = Add(x, x) }",
    "takes eight images": "(float[8, 3, 224, 224] x) => (float[1] a) "
    "<int64[4] start = {0, 0, 0, 0}, int64[4] end = {1, 1, 1, 1}, int64[1] one = {1}> "
    "{ s = Slice(x, start, end)  a = Reshape(s, one) }",
}


def microseconds_of(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    least = dict.fromkeys(calls, math.inf)
    for _ in range(BLOCKS):
        for name, call in calls.items():
            call()
            start = time.process_time()
            for _ in range(CALLS):
                call()
            least[name] = min(least[name], (time.process_time() - start) / CALLS * 1e6)
    return least


def calls_of(session: Any, values: Mapping[str, Any], feed: Mapping[str, Any]) -> dict[str, Callable[[], object]]:
    """The ways to run a session."""
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return {
        "run": lambda: session.run(None, feed),
        "run_with_ort_values": lambda: session.run_with_ort_values(None, values),
        "run_with_iobinding": lambda: session.run_with_iobinding(binding),
    }


def call_with_numpy(function: Callable[..., Sequence[Any]], arrays: Sequence[Any]) -> list[Any]:
    return list(map(np.asarray, function(*arrays)))


def time_runs() -> None:
    import jax
    import onnx.parser
    import onnxruntime

    import dmljax.onnx
    from dmljax.run import onnxruntime as dmljax_onnxruntime

    libraries = {"ONNX Runtime": onnxruntime, "dmljax": dmljax_onnxruntime}
    print("| | | ONNX Runtime | dmljax | jax.jit |\n|---|---|---|---|---|")
    for name, graph in GRAPHS.items():
        proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> f {graph}')
        calls: dict[str, Callable[[], object]] = {}
        for library_name, library in libraries.items():
            session = library.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
            feed = {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()}
            values = {key: library.OrtValue.ortvalue_from_numpy(array) for key, array in feed.items()}
            ways = calls_of(session, values, feed)
            calls |= {f"{library_name} {way}": call for way, call in ways.items()}
        model, arrays = dmljax.onnx.load(proto), tuple(feed.values())
        jitted = jax.jit(model if len(model.outputs) > 1 else lambda *inputs, model=model: (model(*inputs),))
        calls["jax.jit"] = partial(call_with_numpy, jitted, arrays)
        times = microseconds_of(calls)
        for way in ways:
            cells = [f"{times[f'{library} {way}']:.1f}" for library in libraries]
            print(f"| {name} | `{way}` | {' | '.join(cells)} | {times['jax.jit']:.1f} |")


def main(programs: Sequence[str]) -> None:
    if not programs:
        time_runs()
        return
    for program in programs:
        seconds_of([program], "")  # so that modules are compiled
        seconds_of(["-m", "dmljax.run", program], tempfile.gettempdir())
    columns = [zip(*(seconds_of_starts(program) for _ in range(RUNS)), strict=True) for program in programs]
    print(f"| | {' | '.join(Path(program).stem for program in programs)} |")
    print("|---" * (len(programs) + 1) + "|")
    for name, *cells in zip(ROWS, *columns, strict=True):
        print(f"| {name} | {' | '.join(f'{statistics.median(cell):.1f}' for cell in cells)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
