"""Stands in for `import onnxruntime_genai`: language models and tokenizers.

Names match ONNX Runtime GenAI's Python interface. Greedy tokens are GenAI's, except where its arithmetic rounds
otherwise. Drawn tokens follow the same distribution, with other random numbers.
"""

from dmljax.foundation.extras import require_onnx as _require_onnx

_require_onnx("language models", "genai")  # the next imports would name the extra onnx, which does not suffice

from dmljax.run.answers import (
    absent_from as _absent_from,
    refusing as _refusing,
    require_first_device as _require_first_device,
)
from dmljax.run.onnxruntime_genai.adapters import Adapters as Adapters
from dmljax.run.onnxruntime_genai.configuration import Config as Config
from dmljax.run.onnxruntime_genai.generation import Generator as Generator
from dmljax.run.onnxruntime_genai.logs import set_log_callback as set_log_callback, set_log_options as set_log_options
from dmljax.run.onnxruntime_genai.media import Audios as Audios, Images as Images
from dmljax.run.onnxruntime_genai.models import GeneratorParams as GeneratorParams, Model as Model
from dmljax.run.onnxruntime_genai.processors import MultiModalProcessor as MultiModalProcessor
from dmljax.run.onnxruntime_genai.tensors import NamedTensors as NamedTensors, Tensor as Tensor
from dmljax.run.onnxruntime_genai.texts import Tokenizer as Tokenizer, TokenizerStream as TokenizerStream

__version__ = "0.18.0"  # of the interface

_OF_ENGINE = (
    *("EngineCapabilities", "EngineErrorCode", "EngineEvent", "EngineEventBuffer", "EngineEventFlags"),
    *("FinishReason", "Request", "RequestOptions", "TurnOptions", "TurnUsage"),
)
_REASONS = {
    "Engine": "it shares pages of caches between requests; a Generator with batch_size answers several prompts at once",
    **dict.fromkeys(_OF_ENGINE, "it belongs to the Engine; a Generator with batch_size answers several prompts"),
    "MtpGenerator": "a Generator gives the same tokens",
    "StreamingProcessor": "models that hear speech as it comes are not supported; Whisper's read a whole recording",
}
__getattr__ = _absent_from(__name__, _REASONS)


def is_dml_available() -> bool:
    """True: dmljax stands for DirectML."""
    return True


def is_cuda_available() -> bool:
    """False: dmljax stands for DirectML, whichever device JAX computes on."""
    return False


is_openvino_available = is_qnn_available = is_webgpu_available = is_cuda_available


def get_current_gpu_device_id() -> int:
    """0: computes on JAX's first device."""
    return 0


def set_current_gpu_device_id(device_id: int) -> None:
    """Raises unless the device is the first."""
    with _refusing("onnxruntime_genai"):
        _require_first_device("gpu", {"device_id": device_id})


def register_execution_provider_library(provider_name: str, path: str) -> None:
    """Does nothing, because JAX chooses the device."""


def unregister_execution_provider_library(provider_name: str) -> None:
    """Does nothing, because JAX chooses the device."""


def disable_telemetry_events() -> None:
    """Does nothing, because dmljax sends nothing."""


enable_telemetry_events = disable_telemetry_events
