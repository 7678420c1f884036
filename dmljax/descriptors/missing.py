"""The operators of directml.h that dmljax does not have yet."""

NOT_YET = ", which DirectML has and dmljax does not have yet"

# By their names without `DML_OPERATOR_`: what JAX, PyTorch and ONNX call them. What is added is taken out.
MISSING = {
    "ADAM_OPTIMIZER": "",
    "AVERAGE_POOLING": "avg_pool avg_pool1d avg_pool2d avg_pool3d",
    "AVERAGE_POOLING1": "",
    "AVERAGE_POOLING_GRAD": "",
    "DEQUANTIZE": "",
    "DYNAMIC_QUANTIZE_LINEAR": "",
    "GRU": "",
    "LP_POOLING": "lp_pool",
    "LP_POOLING1": "",
    "LSTM": "",
    "MAX_POOLING": "max_pool max_pool1d max_pool2d max_pool3d",
    "MAX_POOLING1": "",
    "MAX_POOLING2": "",
    "MAX_POOLING_GRAD": "",
    "MAX_UNPOOLING": "",
    "MULTIHEAD_ATTENTION": "dot_product_attention scaled_dot_product_attention attention",
    "MULTIHEAD_ATTENTION1": "",
    "QUANTIZE": "",
    "QUANTIZED_LINEAR_AVERAGE_POOLING": "",
    "RANDOM_GENERATOR": "",
    "RNN": "",
    "ROI_ALIGN": "",
    "ROI_ALIGN1": "",
    "ROI_ALIGN_GRAD": "",
    "ROI_POOLING": "",
}
