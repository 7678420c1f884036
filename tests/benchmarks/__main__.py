"""Times every operator beside what a user would take instead: `python tests/benchmarks FOLDER`.

Prints a table, and writes it with the measurements and a picture into FOLDER: results.md, results.json, results.png.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from movement import more_workloads
from overheads import OPERATORS, compile_seconds, dispatch_seconds, eager_over_jitted, import_seconds, memory
from report import draw, lines, ratio, size_name
from timing import Effort, medians
from workloads import DMLJAX, DTYPES, RIVALS, SIZES, Workload, workloads


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the results are written; made if it does not exist")
    parser.add_argument("--quick", action="store_true", help="float32 and up to 2^20 elements, in less than a minute")
    parser.add_argument("--operator", action="append", help="this operator alone; may be given several times")
    given = parser.parse_args(arguments)
    kinds, sizes = (DTYPES[:1], SIZES[:3]) if given.quick else (DTYPES, SIZES)
    chosen = [*workloads(quick=given.quick), *more_workloads(kinds, sizes)]
    known = {workload.operator for workload in chosen}
    if unknown := set(given.operator or known) - known:
        parser.error(f"--operator must be one of {', '.join(sorted(known))}; got {', '.join(sorted(unknown))}")
    given.folder.mkdir(parents=True, exist_ok=True)

    start, header = time.perf_counter(), machine()
    effort = Effort(rounds=3, block_seconds=0.01) if given.quick else Effort(rounds=5, block_seconds=0.03)
    results = [measure(workload, effort) for workload in chosen if workload.operator in set(given.operator or known)]
    rounds = 1 if given.quick else 5
    operators = {name: build for name, build in OPERATORS.items() if name in set(given.operator or OPERATORS)}
    overheads = {
        "import": import_seconds(given.folder, rounds),
        "compile": compile_seconds(operators, rounds),
        "dispatch": dispatch_seconds(operators, effort),
        "eager over jitted": eager_over_jitted(operators, effort),
        "memory": memory(operators),
    }
    header["run"] = (
        f"{time.perf_counter() - start:.0f} s, {effort.rounds} rounds of {effort.block_seconds * 1e3:.0f} ms"
    )
    report = "\n".join(lines(results, overheads, header))
    print(report)
    (given.folder / "results.md").write_text(report)
    (given.folder / "results.json").write_text(
        json.dumps({"header": header, "results": results, "overheads": overheads}, indent=1)
    )
    draw(results, given.folder / "results.png")


def measure(workload: Workload, effort: Effort) -> dict[str, Any]:
    """Seconds for each rival, after their results were found to be the same."""
    work = workload.work()
    work.check()
    seconds = medians(work.calls, effort)
    result = {
        "operator": workload.operator,
        "dtype": workload.dtype,
        "elements": workload.elements,
        "detail": workload.detail,
        "seconds": seconds,
    }
    ratios = "  ".join(f"{rival} {ratio(result, rival):.2f}" for rival in RIVALS if rival in seconds)
    what = f"{workload.operator} {workload.dtype} {size_name(workload.elements)} {workload.detail}"
    print(f"{what:60} {seconds[DMLJAX] * 1e6:10.1f} us  {ratios}", file=sys.stderr, flush=True)
    return result


def machine() -> dict[str, str]:
    """What the numbers hold for."""
    names = ("dmljax", "jax", "jaxlib", "numpy", "torch", "onnxruntime")
    model = [line.split(":")[1].strip() for line in _cpu_facts() if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{model[0] if model else platform.processor()}, {os.cpu_count()} CPUs, {platform.platform()}",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "device": str(jax.devices()[0]),
        "versions": f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in names),
    }


def _cpu_facts() -> list[str]:
    facts = Path("/proc/cpuinfo")
    return facts.read_text().splitlines() if facts.exists() else []


if __name__ == "__main__":
    main()
