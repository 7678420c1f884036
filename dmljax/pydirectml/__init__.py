"""PyDirectML for JAX: the classes, functions and enumerations of Microsoft's Python binding of DirectML.

`import dmljax.pydirectml as dml` is the only line of a program that changes, and `python -m dmljax.pydirectml
program.py` runs one that says `import pydirectml`. A model's `function` is a JAX function of its inputs.
"""

from dmljax.pydirectml.builder import (
    Binding as Binding,
    Device as Device,
    Expression as Expression,
    GraphBuilder as GraphBuilder,
    Model as Model,
)
from dmljax.pydirectml.enumerations import (
    EXPORTED as _EXPORTED,
    ConvolutionDirection as ConvolutionDirection,
    ConvolutionMode as ConvolutionMode,
    ExecutionFlags as ExecutionFlags,
    InterpolationMode as InterpolationMode,
    MatrixTransform as MatrixTransform,
    OperatorType as OperatorType,
    OutputOptions as OutputOptions,
    PaddingMode as PaddingMode,
    RecurrentNetworkDirection as RecurrentNetworkDirection,
    TensorDataType as TensorDataType,
    TensorFlags as TensorFlags,
)
from dmljax.pydirectml.functions import (
    FusedActivation as FusedActivation,
    GRUOutputs as GRUOutputs,
    MaxPoolingOutputs as MaxPoolingOutputs,
    Size2D as Size2D,
    activation_identity as activation_identity,
    activation_linear as activation_linear,
    activation_relu as activation_relu,
    activation_sigmoid as activation_sigmoid,
    activation_soft_max as activation_soft_max,
    activation_tanh as activation_tanh,
    add as add,
    average_pooling as average_pooling,
    batch_normalization as batch_normalization,
    convolution as convolution,
    divide as divide,
    gather as gather,
    gemm as gemm,
    gru as gru,
    input_tensor as input_tensor,
    join as join,
    local_response_normalization as local_response_normalization,
    max_pooling as max_pooling,
    mean_variance_normalization as mean_variance_normalization,
    multiply as multiply,
    padding as padding,
    reinterpret as reinterpret,
    slice as slice,
    subtract as subtract,
    up_sample_2d as up_sample_2d,
    value_scale_2d as value_scale_2d,
)
from dmljax.pydirectml.tensors import (
    TensorData as TensorData,
    TensorDesc as TensorDesc,
    TensorPolicy as TensorPolicy,
)

Dimensions = list  # a name of the binding without use: lists are taken and given
globals().update(_EXPORTED)
