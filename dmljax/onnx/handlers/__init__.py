"""The registry of handlers for ONNX's operators, and how a model finds its own."""
