"""ONNX Runtime's operators that equal the newest version of an ONNX operator, or fuse it with an activation."""

from dataclasses import dataclass, replace
from typing import Any

from dmljax.onnx.handlers.registry import MICROSOFT, REGISTRY, Handler, make_handler
from dmljax.onnx.handlers.signatures import Attributes
from dmljax.onnx.nodes.numbers.elementwise import activate
from dmljax.onnx.values.types import Array

DIRECTML = "com.microsoft.dml"  # the domain of the operators that the DirectML provider fuses

for _operator in ("DequantizeLinear", "GatherND", "Gelu", "GridSample", "Pad", "QuantizeLinear", "Range", "Trilu"):
    REGISTRY.add(MICROSOFT, _operator, replace(REGISTRY.handlers["", _operator][0], since=1))


@dataclass(frozen=True, kw_only=True)
class _FusedActivation(Attributes):
    fused_activation: str
    fused_activation_domain: str = ""
    fused_activation_since_version: int = 1
    fused_alpha: float | None = None
    fused_beta: float | None = None
    fused_gamma: float | None = None
    fused_ratio: float | None = None


def _fuse_activation(base: Handler) -> Handler:
    """The handler that applies an activation to the result of `base`."""

    def run(*inputs: Any, fused: _FusedActivation, **more: Any) -> Array:
        numbers = {"alpha": fused.fused_alpha, "beta": fused.fused_beta, "gamma": fused.fused_gamma}
        result: Any = base.function(*inputs, **more)
        return activate(result, fused.fused_activation, numbers)

    handler = make_handler(run)
    attributes, groups = {**base.attributes, **handler.attributes}, {**base.groups, **handler.groups}
    return replace(base, function=run, since=1, attributes=attributes, groups=groups, fold=None, is_elementwise=False)


for _operator in (
    *("Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "MatMul"),
    *("MeanVarianceNormalization", "Sum"),
):
    _newest = REGISTRY.handlers["", _operator][0]
    REGISTRY.add(DIRECTML, f"DmlFused{_operator}", _fuse_activation(_newest))
