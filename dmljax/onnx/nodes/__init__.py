"""The handlers of ONNX's operators, by family."""

from dmljax.onnx.nodes import (
    attention as attention,
    contrib as contrib,
    elementwise as elementwise,
    indexing as indexing,
    recurrence as recurrence,
    reduction as reduction,
    shapes as shapes,
)
from dmljax.onnx.registry import REGISTRY as REGISTRY
