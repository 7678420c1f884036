"""What only commands need of ONNX models: example inputs, timing and checks."""
