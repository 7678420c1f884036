"""Every operator beside JAX's idiom on an NVIDIA H100 and a TPU v5e, by what XLA compiles for them on this CPU.

`python tests/benchmarks/compilers.py` writes `compilers.json` beside this file and `notebooks/compilers.md` from it. It
lowers the budget in `compilers_budget.json`, which tests/test_compilers.py holds dmljax to, where less is needed. Words
choose operators and networks, and then nothing is written without `--update`. `--meshes` prints what the networks
exchange on several chips instead. It needs the extra `accelerators`.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# JAX would look for the chips of the compilers that are installed.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import meshes
from every import every
from plain_networks import NETWORKS
from workloads import Function, Work

sys.path.insert(1, str(Path(__file__).parents[1] / "tables"))
from compiler_table import CHIPS, COUNTS, DMLJAX, FILE, PAGE, Figures, Results, Rivals, lines, text

from dmljax.estimation import Compiled, compile_for

BUDGET = Path(__file__).with_name("compilers_budget.json")


def compiled(target: str, function: Function, inputs: Sequence[Any]) -> Compiled:
    """Compiles from scratch, with dmljax's full precision, because a TPU would round an idiom's factors."""
    jax.clear_caches()
    with jax.default_matmul_precision("highest"):
        return compile_for(target, function, *inputs)


def figures(target: str, function: Function, inputs: Sequence[Any]) -> Figures | None:
    """The cost of the compiled function, or None if XLA cannot compile it; all but the last are deterministic."""
    try:
        found = compiled(target, function, inputs)
    except jax.errors.JaxRuntimeError as error:
        print(f"\n{target}: {str(error).strip()[:200]}", file=sys.stderr)
        return None
    cost = found.cost
    return {
        "kernels": cost.kernels,
        "bytes": cost.bytes,
        "element operations": cost.element_operations,
        "microseconds": round(found.estimated_seconds * 1e6, 3),
        "loops": cost.loops,
        "conditionals": cost.conditionals,
        "sorts": cost.sorts,
        "compile seconds": round(found.compile_seconds, 2),
    }


def measure(work: Work) -> Mapping[str, Rivals]:
    """The figures of both rivals on both chips."""
    found = {
        target: {name: figures(target, function, work.inputs) for name, function in work.of_jax.items()}
        for target in CHIPS
    }
    return {target: {name: of for name, of in rivals.items() if of} for target, rivals in found.items()}


def works() -> dict[str, Callable[[], Work]]:
    """The operators, and then the networks."""
    return every() | NETWORKS


def needed(name: str) -> dict[str, list[int]]:
    """The counts of dmljax that the budget limits, on each chip."""
    work = works()[name]()
    costs = {target: compiled(target, work.dmljax, work.inputs).cost for target in CHIPS}
    return {target: [getattr(cost, one) for one in COUNTS] for target, cost in costs.items()}


def write(found: Results) -> None:
    """Adds figures to the results file, the page and the budget."""
    known = {**(json.loads(FILE.read_text()) if FILE.exists() else {}), **found}
    FILE.write_text(json.dumps({name: known[name] for name in works() if name in known}, indent=1) + "\n")
    PAGE.write_text(text())
    lower_budget(found)


def lower_budget(results: Results) -> None:
    """Writes counts that are below the budget, or all counts for another version of JAX."""
    old = json.loads(BUDGET.read_text())
    budget = old["budget"] if old["jax"] == jax.__version__ else {}
    for name, chips in results.items():
        found = {target: [rivals[DMLJAX][one] for one in COUNTS] for target, rivals in chips.items()}
        allowed = budget.get(name, found)
        budget[name] = {target: [*map(min, figures, allowed[target])] for target, figures in found.items()}
    entries = (f"  {json.dumps(name)}: {json.dumps(budget[name])}" for name in works() if name in budget)
    BUDGET.write_text(f'{{\n "jax": "{jax.__version__}",\n "budget": {{\n' + ",\n".join(entries) + "\n }\n}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of the names of operators and networks; all by default")
    parser.add_argument("--update", action="store_true", help="also write the figures if there are words")
    parser.add_argument("--meshes", action="store_true", help="print the networks' exchanges on several chips")
    given = parser.parse_args(arguments)
    if given.meshes:
        for line in meshes.rows(given.words):
            print(line, flush=True)
        return
    for target in CHIPS:
        compiled(target, lambda x: x + 1, [jax.ShapeDtypeStruct((8,), "float32")])  # the first takes half a second more
    found: dict[str, Mapping[str, Rivals]] = {}
    for name, build in works().items():
        if not given.words or any(word.upper() in name.upper() for word in given.words):
            print(name, end=" ", file=sys.stderr, flush=True)
            found[name] = measure(build())
            if given.update or not given.words:
                write({name: found[name]})
    print(file=sys.stderr)
    print(*lines(found), sep="\n")


if __name__ == "__main__":
    main()
