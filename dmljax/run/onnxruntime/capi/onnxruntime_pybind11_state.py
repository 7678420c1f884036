"""ONNX Runtime's kinds of errors, raised with dmljax's own texts."""

from dmljax.errors import DmlError, InvalidDesc, InvalidType, MissingFile, Unsupported
from dmljax.run.answers import Refusal, absent_from

__getattr__ = absent_from(__name__)


class Fail(Refusal):
    """A model cannot be loaded."""


class InvalidArgument(InvalidDesc):
    """A call does not fit the model."""


class InvalidGraph(Fail):
    """ONNX Runtime's kind for models that break a rule; here they are a Fail."""


class InvalidProtobuf(Fail):
    """ONNX Runtime's kind for files that are not models; here they are a Fail."""


class NoSuchFile(MissingFile):
    """There is no file with this name."""


class NotImplemented(Unsupported):
    """A model needs something that dmljax does not support."""


class RuntimeException(Refusal):
    """ONNX Runtime's kind for failures inside a node; here they are an InvalidArgument."""


def kind_of_load(error: DmlError) -> type[DmlError]:
    """Returns ONNX Runtime's class for an error while loading a model."""
    if isinstance(error, MissingFile):
        return NoSuchFile
    if isinstance(error, Unsupported):
        return NotImplemented
    return InvalidType if isinstance(error, InvalidType) else Fail


def kind_of_run(error: DmlError) -> type[DmlError]:
    """Returns ONNX Runtime's class for an error while calling a model."""
    return NotImplemented if isinstance(error, Unsupported) else InvalidArgument
