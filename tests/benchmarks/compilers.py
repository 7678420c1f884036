"""Every operator beside JAX's idiom on an NVIDIA H100 and a TPU v5e, by what XLA compiles for them on this CPU.

`python tests/benchmarks/compilers.py` writes `figures/compilers.json` and `notebooks/compilers.md` from it. It
lowers the budget in `figures/compilers_budget.json`, which tests/operators/test_compilers.py holds dmljax to, where
less is needed. Words choose operators, real sizes and networks, and then nothing is written without `--update`.
`--meshes` prints what the networks exchange on several chips instead. It needs the extra `accelerators`.
"""

import argparse
import json
import os
import sys
import warnings
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
from real_sizes import REAL_SIZES
from workloads import Function, Work

sys.path.extend(map(str, Path(__file__).parents[1].glob("**/")))
from compiler_table import (
    CHIPS,
    COUNTS,
    DMLJAX,
    FILE,
    PAGE,
    REFUSED,
    ROOF,
    Figures,
    Results,
    Rivals,
    lines,
    ratio,
    text,
)

from dmljax.estimation import Compiled, compile_for, roof

BUDGET = Path(__file__).parent / "figures" / "compilers_budget.json"


MOST = 1.05  # times JAX's time that real sizes may take, unless the budget has more
LIMITED = (*COUNTS, "x JAX's time")


def compiled(target: str, function: Function, inputs: Sequence[Any], donated: Sequence[int] = ()) -> Compiled:
    """Compiles from scratch, with no setting of JAX."""
    jax.clear_caches()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")  # a rival's caches
        return compile_for(target, function, *inputs, donate_argnums=donated)


def figures(target: str, function: Function, work: Work, least: float) -> Figures:
    """The cost of the compiled function, or why XLA cannot compile it; all but the last are deterministic.

    JAX's own Pallas kernels count at least with the roof, because they declare no cost for a GPU.
    """
    try:
        found = compiled(target, function, work.inputs, work.updated)
    except jax.errors.JaxRuntimeError as error:
        print(f"\n{target}: {str(error).strip()[:200]}", file=sys.stderr)
        return {REFUSED: "out of memory" if "RESOURCE_EXHAUSTED" in str(error) else "does not compile"}
    cost = found.cost
    return {
        "kernels": cost.kernels,
        "bytes": cost.bytes,
        "element operations": cost.element_operations,
        "microseconds": max(round(found.estimated_seconds * 1e6, 3), least if found.custom_calls else 0),
        "loops": cost.loops,
        "conditionals": cost.conditionals,
        "sorts": cost.sorts,
        "compile seconds": round(found.compile_seconds, 2),
    }


def roofs(work: Work) -> dict[str, float]:
    """The microseconds that the work takes at least on each chip, by the idiom's shapes.

    Inputs that are updated in place count as read, and not as written.
    """
    function, updated = work.jax or work.dmljax, {work.inputs[i] for i in work.updated}

    def written(*inputs: Any) -> Any:
        results = jax.tree.leaves(function(*inputs))
        return [x for x in results if jax.ShapeDtypeStruct(x.shape, x.dtype) not in updated]

    return {target: round(1e6 * roof(target, written, *work.inputs, share=work.share), 3) for target in CHIPS}


def measure(work: Work) -> Mapping[str, Rivals]:
    """The figures of both rivals on both chips."""
    return {
        target: {name: figures(target, one, work, least) for name, one in work.of_jax.items()} | {ROOF: least}
        for target, least in roofs(work).items()
    }


def works() -> dict[str, Callable[[], Work]]:
    """The operators, the real sizes, and the networks."""
    return every() | REAL_SIZES | NETWORKS


def needed(name: str) -> dict[str, list[float]]:
    """What the budget limits, on each chip, beside the idiom's time in the results file."""
    work, known = works()[name](), json.loads(FILE.read_text())[name]
    return {
        target: limited(name, {**of_chip, DMLJAX: figures(target, work.dmljax, work, of_chip[ROOF])})
        for target, of_chip in known.items()
    }


def limited(name: str, rivals: Rivals) -> list[float]:
    """What the budget limits: the counts of dmljax and, for real sizes, its time over JAX's; nothing if refused."""
    if REFUSED in rivals[DMLJAX]:
        return []
    times = ratio(rivals) if name in REAL_SIZES else None
    return [*(rivals[DMLJAX][one] for one in COUNTS), *([] if times is None else [max(MOST, round(times, 2))])]


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
        found = {target: limited(name, rivals) for target, rivals in chips.items()}
        allowed = {target: budget.get(name, {}).get(target) or figures for target, figures in found.items()}
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
