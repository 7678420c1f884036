"""Every operator beside JAX's idiom on an NVIDIA H100 and a TPU v5e, by what XLA compiles for them on this CPU.

`python tests/benchmarks/compilers.py` writes `compilers.json` beside this file, from which `notebooks/compilers.md` has
its table; words choose operators, and then nothing is written. It needs the extra `accelerators`.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# JAX would look for the chips of the compilers that are installed.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
from every import every
from workloads import Function, Work

sys.path.insert(1, str(Path(__file__).parents[1]))
from compiler_table import Figures, Rivals, lines

from dmljax.estimate import TARGETS, Compiled, compile_for

FILE = Path(__file__).with_name("compilers.json")


def compiled(target: str, function: Function, inputs: Sequence[Any]) -> Compiled:
    """Compiles from scratch, with exact factors: dmljax's products have them, and a TPU rounds those of an idiom."""
    jax.clear_caches()
    with jax.default_matmul_precision("highest"):
        return compile_for(target, function, *inputs)


def figures(target: str, function: Function, inputs: Sequence[Any]) -> Figures | None:
    """What the compiled function costs, or None where XLA cannot compile it: all but the last are deterministic."""
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
        for target in TARGETS
    }
    return {target: {name: of for name, of in rivals.items() if of} for target, rivals in found.items()}


def main(words: list[str]) -> None:
    """Runs the command line."""
    found: dict[str, Mapping[str, Rivals]] = {}
    for operator, build in every().items():
        if not words or any(word.upper() in operator for word in words):
            print(operator, end=" ", file=sys.stderr, flush=True)
            found[operator] = measure(build())
    print(file=sys.stderr)
    print(*lines(found), sep="\n")
    if not words:
        FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
