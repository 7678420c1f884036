"""Estimates deep models from two with fewer layers: kernels, bytes and seconds are linear in the depth."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

from dmljax.errors import require, within
from dmljax.estimation.chips import Times
from dmljax.estimation.hlo.cost import Cost
from dmljax.estimation.placement import Placed
from dmljax.estimation.report import COMPILED, Estimate
from dmljax.estimation.targets import Place


class PreparedByDepth(NamedTuple):
    """Programs of a model with all of its layers, which is not compiled, and with few of them, which are."""

    whole: Any
    shorter: Sequence[Any]
    layers: int

    @property
    def arguments(self) -> Placed:
        arguments: Placed = self.whole.arguments
        return arguments

    @property
    def place(self) -> Place:
        place: Place = self.whole.place
        return place

    def estimate(self, **options: Any) -> Estimate:
        """Extrapolates what the shorter programs cost, or tells why one of them does not compile."""
        few, more = estimates = [program.estimate(**options) for program in self.shorter]
        refusal: Estimate | None = next((estimate for estimate in estimates if estimate.reason), None)
        return refusal or extrapolate_layers(few, more, self.layers)


def prepare_by_depth(model: Any, prepare: Callable[[Any], Sequence[Any]]) -> list[PreparedByDepth]:
    """Prepares the programs of an ONNX model, or of a folder's language model, by its layers."""
    count = getattr(model, "equal_layers", 0)
    with within("estimate"):
        rule, remedy = f"needs an ONNX model with more than {max(COMPILED)} equal layers", "leave it out"
        require("extrapolate", count > max(COMPILED), rule, count, remedy=remedy)
    shorter = (prepare(model.with_layers(layers)) for layers in COMPILED)
    return [
        PreparedByDepth(*programs, count) for programs in zip(prepare(model), zip(*shorter, strict=True), strict=True)
    ]


def extrapolate_layers(few: Estimate, more: Estimate, layers: int) -> Estimate:
    """Extrapolates from two depths, `COMPILED`; nodes and shares of time come from the deeper model."""
    first, second = COMPILED
    steps = (layers - first) / (second - first)

    def along(start: Any, end: Any) -> Any:
        if isinstance(start, Cost):
            return Cost(*map(along, astuple(start), astuple(end)))
        value = max(start + (end - start) * steps, 0)
        return round(value) if isinstance(start, int) and isinstance(end, int) else value

    figures = {name: along(getattr(few, name), getattr(more, name)) for name in _LINEAR}
    seconds = along(few.seconds, more.seconds)
    times = Times(*(part * seconds / more.seconds for part in more.times)) if more.seconds else more.times
    compile_seconds = few.compile_seconds + more.compile_seconds
    return more._replace(**figures, times=times, compile_seconds=compile_seconds, layers=layers)


_LINEAR = (
    *("weight_bytes", "state_bytes", "fixed_bytes", "peak_bytes", "cost"),
    *("overlapped_seconds", "expected_seconds", "product_seconds", "roof"),
)
