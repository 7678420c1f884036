"""Times starts of programs of ONNX Runtime: on it, and under `dmljax.run` without and with compiled programs.

    python tests/benchmarks/starts.py magika_program.py rapidocr_program.py

Prints seconds of processor time, the median of three interleaved runs, as a Markdown table. The environment has dmljax,
ONNX Runtime, and what the programs import; Python keeps compiled modules in it.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

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


def main(programs: Sequence[str]) -> None:
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
