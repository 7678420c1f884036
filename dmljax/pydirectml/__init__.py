"""PyDirectML for JAX: the classes, functions and enumerations of Microsoft's Python binding of DirectML.

`import dmljax.pydirectml as dml` is the only line of a program that changes, and `python -m dmljax.run program.py` runs
a program that says `import pydirectml`. A model's `function` is a JAX function of its inputs.
"""

import inspect as _inspect
import typing as _typing

from dmljax.calls.binding import check_arguments as _checked

# fmt: off
from dmljax.pydirectml.builder import Binding, Device, Expression, GraphBuilder, Model
from dmljax.pydirectml.enumerations import (
    ConvolutionDirection, ConvolutionMode, EXPORTED as _EXPORTED, ExecutionFlags, InterpolationMode, MatrixTransform,
    OperatorType, OutputOptions, PaddingMode, RecurrentNetworkDirection, TensorDataType, TensorFlags
)
from dmljax.pydirectml.functions import (
    FusedActivation, GRUOutputs, MaxPoolingOutputs, Size2D, activation_identity, activation_linear, activation_relu,
    activation_sigmoid, activation_soft_max, activation_tanh, add, average_pooling, batch_normalization, convolution,
    divide, gather, gemm, gru, input_tensor, join, local_response_normalization, max_pooling,
    mean_variance_normalization, multiply, padding, reinterpret, slice, subtract, up_sample_2d, value_scale_2d
)
from dmljax.pydirectml.tensors import TensorData, TensorDesc, TensorPolicy

__all__ = [
    "Binding", "ConvolutionDirection", "ConvolutionMode", "Device", "ExecutionFlags", "Expression", "FusedActivation",
    "GRUOutputs", "GraphBuilder", "InterpolationMode", "MatrixTransform", "MaxPoolingOutputs", "Model", "OperatorType",
    "OutputOptions", "PaddingMode", "RecurrentNetworkDirection", "Size2D", "TensorData", "TensorDataType", "TensorDesc",
    "TensorFlags", "TensorPolicy", "activation_identity", "activation_linear", "activation_relu", "activation_sigmoid",
    "activation_soft_max", "activation_tanh", "add", "average_pooling", "batch_normalization", "convolution", "divide",
    "gather", "gemm", "gru", "input_tensor", "join", "local_response_normalization", "max_pooling",
    "mean_variance_normalization", "multiply", "padding", "reinterpret", "slice", "subtract", "up_sample_2d",
    "value_scale_2d"
]
# fmt: on

for _name in __all__:
    _own = globals()[_name]
    if _inspect.isfunction(_own):
        globals()[_name] = _checked(_own)
    elif _own.__module__ != "dmljax.pydirectml":  # not an enumeration
        for _key, _method in [*vars(_own).items()]:
            if _inspect.isfunction(_method):
                setattr(_own, _key, _checked(_method))

Dimensions = list  # a name of the binding without use: functions take and return lists
globals().update(_EXPORTED, __all__=[*__all__, "Dimensions", *_EXPORTED])

if not _typing.TYPE_CHECKING:  # a type checker refuses unknown names by itself

    def __getattr__(name):
        from dmljax.pydirectml.names import hint
        from dmljax.text import no_attribute

        raise no_attribute("dmljax.pydirectml", name, hint(name, __all__))


def __dir__() -> list[str]:
    return __all__
