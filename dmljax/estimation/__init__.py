"""What a program costs on chips that are not here, read from what XLA compiles for them on this CPU."""

from dmljax.estimation.cost import Cost, cost_of
from dmljax.estimation.programs import Estimate, NodeCost, estimate, table
from dmljax.estimation.targets import TARGETS, Compiled, Target, compile_for

__all__ = [
    "TARGETS",
    "Compiled",
    "Cost",
    "Estimate",
    "NodeCost",
    "Target",
    "compile_for",
    "cost_of",
    "estimate",
    "table",
]
