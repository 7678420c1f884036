"""The page `notebooks/at-a-glance.md`: each operator's data types, level, gradient, exactness and speed."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
from families import CASES
from operator_calls import float_call

from dmljax.command_line.describe import (
    coverage,
    data_types_text,
    function_name,
    markdown_table,
    operators_by_family,
    short_level,
)
from dmljax.directml import Operator
from dmljax.types import FLOAT

TESTS = Path(__file__).parents[1]
ACCURACY = TESTS.parent / "notebooks" / "accuracy.md"
SPEEDS = TESTS / "benchmarks" / "figures" / "every.json"
# Operators that add up floats: a sum is rounded several times, in an order that XLA chooses.
SUMS = re.compile(
    "GEMM|INTEGER_TO_FLOAT|^CONVOLUTION$|POOLING|NORMALIZATION|RESAMPLE|UPSAMPLE|REDUCE|CUMULATIVE|FOLD|ADAM|^RNN$|^GRU$|^LSTM$|ATTENTION|ROI_ALIGN"
)
COPIES = re.compile("MAX_|QUANTIZED|UNFOLD|ROI_POOLING")

TEXT = """\
# At a glance

{coverage}, family by family. `dmljax explain NAME` prints the rules and tables of one operator.

- **data types**: what the newest support table lists for all tensors. Functions also take bfloat16, float64 and 64-bit
  integers where the computation makes sense for them.
- **since**: the first feature level that has the operator.
- **gradient**: whether the function has one, in forward and reverse mode. *0* marks step functions, and *none* marks
  functions without a float among their inputs or results.
- **exact**: *to the bit* or *rounded*; [accuracy](accuracy.md) has the largest errors found. *Sums* of floats round
  several times; the operator's page bounds the error relative to the sum of the magnitudes. Sums of integers, maxima
  and copies are exact.
- **speed**: how many times as fast as the fastest rival dmljax is. The rivals are jax.numpy's idiom, PyTorch and ONNX
  Runtime, on one workload of about 2^20 elements and two cores of a shared machine. Differences of a tenth are noise,
  and a cell is empty where no rival computes the same. `tests/benchmarks/RESULTS.md` in the repository has the dates
  and commits of the measurements, [other libraries](beside.md) the reasons.

{families}
"""


def text() -> str:
    """The text of the page."""
    speeds: dict[str, dict[str, float]] = json.loads(SPEEDS.read_text())
    families = []
    for title, operators in operators_by_family().items():
        rows = [row(operator, speeds.get(operator.short_name, {})) for operator in operators]
        head = ("function", "data types", "since", "gradient", "exact", "speed")
        families.append("\n".join([f"## {title}", "", *markdown_table(rows, head)]))
    return TEXT.format(coverage=coverage(), families="\n\n".join(families))


def row(operator: type[Operator], ratios: dict[str, float]) -> tuple[str, ...]:
    """An operator's row in the table."""
    name = function_name(operator)
    table = operator.support[max(operator.support)]
    types = {data_type for cell in table.values() for data_type in cell.data_types}
    rival = min(ratios, key=ratios.__getitem__, default=None)
    return (
        f"[`{name}`](operators/{name}.md)",
        data_types_text(sorted(data_type.name for data_type in types)),
        short_level(str(min(operator.support))),
        gradient(operator),
        exactness(operator.short_name),
        "" if rival is None else f"{ratios[rival]:.2g} x {rival}",
    )


def gradient(operator: type[Operator]) -> str:
    """Whether the function has a derivative, and one that is not always 0."""
    table = operator.support[max(operator.support)]
    floating = [operator.member(field).tensor_kind for field, cell in table.items() if cell.data_types & FLOAT]
    is_of_floats = any(kind and kind.is_input for kind in floating) or CASES[operator.type].of_value
    if not is_of_floats or not any(kind and not kind.is_input for kind in floating):
        return "none"
    if not CASES[operator.type].has_derivative:
        return "0"
    function, floats = float_call(operator.type)
    tangents = jax.tree.map(np.ones_like, floats)
    traced = jax.make_jaxpr(lambda tangents: jax.jvp(function, (floats,), (tangents,))[1])(tangents)
    return "yes" if depends_on_its_inputs(traced.jaxpr) else "0"


def depends_on_its_inputs(jaxpr: Any) -> bool:
    """Whether a derivative depends on an input at all; a constant's derivative is zeros that depend on nothing."""
    reached = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(not hasattr(operand, "val") and operand in reached for operand in equation.invars):
            reached.update(equation.outvars)
    return any(not hasattr(result, "val") and result in reached for result in jaxpr.outvars)


def exactness(name: str) -> str:
    """Whether results are exact to the bit, rounded, or sums; no error in the table of accuracy is exact as well."""
    if SUMS.search(name) and not COPIES.search(name):
        return "sums"
    has_no_error = re.search(rf"^\| {name} \| 0 \|.*\| 0 \| 0 \|$", ACCURACY.read_text(), re.MULTILINE)
    return "to the bit" if has_no_error or CASES[f"DML_OPERATOR_{name}"].is_exact else "rounded"
