"""ONNX files as plain graphs: read, cut and saved."""

from dmljax.foundation.extras import require_onnx

require_onnx("ONNX models", "onnx")

import onnx as onnx  # noqa: E402
