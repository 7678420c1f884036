"""ONNX files as plain graphs: read, cut and saved."""

from dmljax.errors import Problem, Unsupported
from dmljax.foundation.extras import command_for

try:
    import onnx as onnx
except ImportError as error:  # pragma: no cover  # the tests have it
    raise Unsupported(
        Problem((), "ONNX models need the package onnx", str(error), remedy=command_for("onnx"))
    ) from None
