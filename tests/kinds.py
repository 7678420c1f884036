"""The operators that represent their kind in tests of JAX's transformations."""

# Grouped by kind of computation: a loop around an operator, or a mesh under it, behaves alike within a kind. An
# operator with a lowering of its own (a loop, a derivative rule, vmap or a mesh, something for one platform) is listed
# as well.
KINDS: dict[str, tuple[str, ...]] = {
    "one function of XLA": ("ELEMENT_WISE_SQRT",),
    "an elementary function": ("ELEMENT_WISE_ERF", "ELEMENT_WISE_ASINH", "ELEMENT_WISE_ATAN_YX", "ACTIVATION_TANH"),
    "a product, sum or quotient that is rounded once": (
        *("ACTIVATION_SCALED_ELU", "ACTIVATION_LINEAR", "ACTIVATION_SOFTPLUS"),
        *("ELEMENT_WISE_DIVIDE", "ELEMENT_WISE_MEAN"),
    ),
    "arithmetic that is also of integers": (
        *("ELEMENT_WISE_POW", "ELEMENT_WISE_CONSTANT_POW"),
        *("ELEMENT_WISE_MODULUS_FLOOR", "ELEMENT_WISE_MODULUS_TRUNCATE"),
    ),
    "one operator after another": ("ELEMENT_WISE_ADD1",),
    "one of two elements": (*("ELEMENT_WISE_CLIP1", "ELEMENT_WISE_CLIP_GRAD", "ELEMENT_WISE_MAX", "ELEMENT_WISE_IF"),),
    "another type": ("CAST",),
    "a predicate": ("ELEMENT_WISE_LOGICAL_EQUALS",),
    "bits": ("ELEMENT_WISE_BIT_COUNT",),
    "a matrix product": ("GEMM", "QUANTIZED_LINEAR_MATRIX_MULTIPLY", "MATRIX_MULTIPLY_INTEGER_TO_FLOAT"),
    "products, a softmax and products": ("MULTIHEAD_ATTENTION", "MULTIHEAD_ATTENTION1"),
    "quantization": (
        *("ELEMENT_WISE_QUANTIZED_LINEAR_ADD", "ELEMENT_WISE_QUANTIZE_LINEAR"),
        *("DEQUANTIZE", "DYNAMIC_QUANTIZE_LINEAR"),
    ),
    "a sum along axes": ("ACTIVATION_LOG_SOFTMAX1", "ACTIVATION_SOFTMAX"),
    "the largest along axes": ("ARGMAX", "ACTIVATION_HARDMAX1"),
    "a sum along axes in blocks": ("REDUCE",),
    "rows by their mean and variance": ("MEAN_VARIANCE_NORMALIZATION1", "BATCH_NORMALIZATION_TRAINING_GRAD"),
    "rows by their norm": ("LP_NORMALIZATION",),
    "sums of neighbors": ("LOCAL_RESPONSE_NORMALIZATION",),
    "the largest elements in order": ("TOP_K1",),
    "a running tally": ("CUMULATIVE_SUMMATION", "CUMULATIVE_PRODUCT"),
    "a band": ("DIAGONAL_MATRIX1", "DIAGONAL_MATRIX", "FILL_VALUE_CONSTANT", "FILL_VALUE_SEQUENCE"),
    "random bits": ("RANDOM_GENERATOR",),
    "a step of training": ("ADAM_OPTIMIZER",),
    "elements at other places": ("SLICE1", "SLICE_GRAD", "JOIN", "SPLIT", "TILE", "SPACE_TO_DEPTH1", "DEPTH_TO_SPACE1"),
    "elements around others": ("PADDING", "PADDING1"),
    "windows": ("FOLD", "UNFOLD"),
    "products of windows and filters": ("CONVOLUTION", "QUANTIZED_LINEAR_CONVOLUTION"),
    "what windows become": ("MAX_POOLING2", "AVERAGE_POOLING_GRAD", "LP_POOLING", "MAX_POOLING_GRAD"),
    "a loop over steps": ("LSTM", "GRU"),
    "averages of neighbors": ("RESAMPLE3", "RESAMPLE_GRAD", "RESAMPLE1"),
    "samples of regions": ("ROI_ALIGN", "ROI_ALIGN1", "ROI_POOLING"),
    "a place for each element": ("ONE_HOT",),
    "elements from places": ("GATHER_ND1", "GATHER_ND", "GATHER", "GATHER_ELEMENTS", "REVERSE_SUBSEQUENCES"),
    "elements to places": ("SCATTER", "SCATTER_ND"),
    "as many rows as there are": ("NONZERO_COORDINATES",),
}
OF_EVERY_KIND = tuple(f"DML_OPERATOR_{name}" for names in KINDS.values() for name in names)
FIRST_OF_EVERY_KIND = tuple(f"DML_OPERATOR_{names[0]}" for names in KINDS.values())
# For slow tests: a derivative rule, integers, sums, windows, and elements that move.
FEW = tuple(
    f"DML_OPERATOR_{name}"
    for name in ("ELEMENT_WISE_ERF", "ELEMENT_WISE_QUANTIZED_LINEAR_ADD", "GEMM", "MAX_POOLING2", "SCATTER")
)
