"""The handlers of ONNX's operators, by family."""

from dmljax.onnx.nodes import (
    elementwise as elementwise,
    indexing as indexing,
    reduction as reduction,
    shapes as shapes,
)
from dmljax.onnx.registry import REGISTRY as REGISTRY
