"""The operators of directml.h that dmljax does not have yet."""

NOT_YET = ", which DirectML has and dmljax does not have yet"

# By their names without `DML_OPERATOR_`: what JAX, PyTorch and ONNX call them. What is added is taken out.
MISSING: dict[str, str] = {
    "DEQUANTIZE": "",
    "DYNAMIC_QUANTIZE_LINEAR": "",
    "GRU": "",
    "LSTM": "",
    "QUANTIZE": "",
    "RNN": "",
    "ROI_ALIGN": "",
    "ROI_ALIGN1": "",
    "ROI_ALIGN_GRAD": "",
    "ROI_POOLING": "",
}
