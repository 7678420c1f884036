"""ONNX models as DirectML graphs."""
