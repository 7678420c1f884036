"""What a program costs on chips that are not here, read from what XLA compiles for them on this CPU."""

from dmljax.estimate.cost import Cost, cost_of
from dmljax.estimate.targets import TARGETS, Compiled, Target, compile_for

__all__ = ["TARGETS", "Compiled", "Cost", "Target", "compile_for", "cost_of"]
