"""The handlers of ONNX's operators, by family.

ONNX Runtime's own operators stand beside ONNX's; most of them are fusions of several. Where ONNX Runtime's definition
and its DirectML provider disagree, we follow the definition.
"""

from dmljax.onnx.nodes import (
    control as control,
    embedding as embedding,
    experts as experts,
    padded_rules as padded_rules,
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
from dmljax.onnx.nodes.images import (
    channels_last as channels_last,
    resampling as resampling,
    vision as vision,
    windows as windows,
)
from dmljax.onnx.nodes.numbers import (
    elementwise as elementwise,
    normalization as normalization,
    products as products,
    reduction as reduction,
)
from dmljax.onnx.nodes.quantized import (
    few_bits as few_bits,
    float_blocks as float_blocks,
    qlinear as qlinear,
    quantization as quantization,
)

# isort: split
# Looks up the newest handlers, so it comes last
from dmljax.onnx.nodes import aliases as aliases
