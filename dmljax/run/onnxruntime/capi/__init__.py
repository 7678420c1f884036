"""The place of ONNX Runtime's compiled module, from which programs import its errors."""

from dmljax.run.answers import absent_from

__getattr__ = absent_from(__name__)
