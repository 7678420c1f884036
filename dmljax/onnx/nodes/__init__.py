"""The handlers of ONNX's operators, by family."""

from dmljax.onnx.nodes import (
    attention as attention,
    contrib as contrib,
    elementwise as elementwise,
    indexing as indexing,
    normalization as normalization,
    products as products,
    quantization as quantization,
    recurrence as recurrence,
    reduction as reduction,
    resampling as resampling,
    shapes as shapes,
    windows as windows,
)
from dmljax.onnx.registry import REGISTRY as REGISTRY
