"""Estimates what a program costs on a chip, from what XLA compiles for that chip on this CPU."""

from dmljax.estimation.cost import Cost, cost_of
from dmljax.estimation.programs import estimate
from dmljax.estimation.report import Estimate, NodeCost, table
from dmljax.estimation.roof import roof
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
    "roof",
    "table",
]
