"""Stands in for `import onnxruntime_genai`: language models and tokenizers.

Names match ONNX Runtime GenAI's Python interface. Greedy tokens are GenAI's, except where its arithmetic rounds
otherwise. Drawn tokens follow the same distribution, with other random numbers.
"""

from typing import Any as _Any

from dmljax.run.answers import Answering as _Answering, absent_from as _absent_from
from dmljax.run.onnxruntime_genai.configuration import (
    Config as Config,
    GeneratorParams as GeneratorParams,
    Model as Model,
)
from dmljax.run.onnxruntime_genai.generation import Generator as Generator
from dmljax.run.onnxruntime_genai.texts import (
    Tensor as Tensor,
    Tokenizer as Tokenizer,
    TokenizerStream as TokenizerStream,
)

__version__ = "0.18.0"  # of the interface
__getattr__ = _absent_from(__name__)


class Images(_Answering):
    """Only for annotations: models that see are not supported."""


class Audios(_Answering):
    """Only for annotations: models that hear are not supported."""


def is_dml_available() -> bool:
    """True: dmljax stands for DirectML."""
    return True


def is_cuda_available() -> bool:
    """False: dmljax stands for DirectML, whichever device JAX computes on."""
    return False


is_openvino_available = is_qnn_available = is_webgpu_available = is_cuda_available


def set_log_options(**options: _Any) -> None:
    """Does nothing, because dmljax has no log."""


def set_log_callback(callback: _Any) -> None:
    """Does nothing, because dmljax has no log."""


def disable_telemetry_events() -> None:
    """Does nothing, because dmljax sends nothing."""


enable_telemetry_events = disable_telemetry_events
