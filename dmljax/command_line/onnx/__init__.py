"""Example inputs, timing and checks of ONNX models, which only commands need."""
