"""The handlers of ONNX's operators, by family."""

from dmljax.onnx.nodes import (
    contrib as contrib,
    control as control,
    experts as experts,
    of_padded as of_padded,
    randomness as randomness,
    recurrence as recurrence,
    signal as signal,
    texts as texts,
    training as training,
)
from dmljax.onnx.nodes.attention import (
    block as block,
    grouped as grouped,
    joined as joined,
    linear as linear,
    multi_head as multi_head,
    packing as packing,
)
from dmljax.onnx.nodes.data import indexing as indexing, sequences as sequences, shapes as shapes
from dmljax.onnx.nodes.images import resampling as resampling, vision as vision, windows as windows
from dmljax.onnx.nodes.numbers import (
    elementwise as elementwise,
    normalization as normalization,
    products as products,
    reduction as reduction,
)
from dmljax.onnx.nodes.quantized import few_bits as few_bits, float_blocks as float_blocks, quantization as quantization
