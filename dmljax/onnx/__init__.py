"""ONNX models as JAX functions: `load` reads a model, which you call with arrays.

Needs the package `onnx`, which the extra `onnx` installs.
"""

from dmljax.onnx.diffusion.model import DiffusionModel as DiffusionModel, diffusion_model as diffusion_model
from dmljax.onnx.graph.graph import TensorType as TensorType
from dmljax.onnx.language.generation import Stream as Stream
from dmljax.onnx.language.model import LanguageModel as LanguageModel, language_model as language_model
from dmljax.onnx.language.state import State as State
from dmljax.onnx.model import Model as Model, load as load
