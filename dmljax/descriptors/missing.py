"""The operators of directml.h that dmljax does not have yet."""

NOT_YET = ", which DirectML has and dmljax does not have yet"

# By their names without `DML_OPERATOR_`: what JAX, PyTorch and ONNX call them. What is added is taken out.
MISSING: dict[str, str] = {
    "MULTIHEAD_ATTENTION": "dot_product_attention scaled_dot_product_attention attention",
    "MULTIHEAD_ATTENTION1": "",
}
