"""Estimates what a program costs on a chip, from what XLA compiles for that chip on this CPU."""

from dmljax.estimation.hlo.cost import Cost, cost_of
from dmljax.estimation.entry import estimate
from dmljax.estimation.report import Estimate, NodeCost, table
from dmljax.estimation.roofline import roof
from dmljax.estimation.chips import TARGETS, Target
from dmljax.estimation.targets import Compiled, compile_for

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
