"""The handlers of ONNX's operators, by family."""

from dmljax.onnx.nodes import (
    attention as attention,
    contrib as contrib,
    control as control,
    elementwise as elementwise,
    experts as experts,
    few_bits as few_bits,
    indexing as indexing,
    joined_attention as joined_attention,
    normalization as normalization,
    of_padded as of_padded,
    packing as packing,
    products as products,
    quantization as quantization,
    randomness as randomness,
    recurrence as recurrence,
    reduction as reduction,
    resampling as resampling,
    sequences as sequences,
    shapes as shapes,
    signal as signal,
    texts as texts,
    training as training,
    vision as vision,
    windows as windows,
)
from dmljax.onnx.registry import REGISTRY as REGISTRY
