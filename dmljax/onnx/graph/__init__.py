"""ONNX files as plain graphs: read, cut and saved."""
