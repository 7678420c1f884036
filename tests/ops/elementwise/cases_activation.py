"""ACTIVATION_* except softmax and hardmax: the pages' tables and members, and the formulas."""

from typing import Any

import numpy as np
from cases import GRADIENT, Elementwise, RefusedCall, RefusedDesc
from formulas import Arr, by_python, of_kind
from helpers import f32, tensor
from pages import merge, of_all, tables
from scipy import special

from dmljax import directml
from dmljax.directml import InvalidDesc, InvalidType

# ACTIVATION_RELU_GRAD's table for level 4_0 repeats 3_0's, and is left out.
SUPPORT = tables(
    """
    ACTIVATION_ELU ACTIVATION_HARD_SIGMOID ACTIVATION_IDENTITY ACTIVATION_LEAKY_RELU ACTIVATION_LINEAR
            ACTIVATION_PARAMETRIC_SOFTPLUS ACTIVATION_SCALED_ELU ACTIVATION_SCALED_TANH ACTIVATION_SIGMOID
            ACTIVATION_SOFTPLUS ACTIVATION_SOFTSIGN ACTIVATION_TANH ACTIVATION_THRESHOLDED_RELU: InputTensor
            OutputTensor
        1_0 4 FLOATS
        2_0 4-5 FLOATS
        3_0 1-8 FLOATS
    ACTIVATION_GELU: InputTensor OutputTensor
        5_1 1-8 FLOATS
    ACTIVATION_CELU: InputTensor OutputTensor
        3_0 1-8 FLOATS
    ACTIVATION_HARD_SWISH ACTIVATION_SWISH: InputTensor OutputTensor
        6_2 1-8 FLOATS
    ACTIVATION_PARAMETERIZED_RELU: InputTensor SlopeTensor OutputTensor
        1_0 4 FLOATS
        2_0 4-5 FLOATS
        3_0 1-8 FLOATS
        5_1 1-8 FLOATS INT32 INT16 INT8
    ACTIVATION_RELU: InputTensor OutputTensor
        1_0 4 FLOATS
        2_0 4-5 FLOATS
        3_0 1-8 FLOATS
        5_1 1-8 FLOATS INT32 INT16 INT8
    ACTIVATION_RELU_GRAD: InputTensor InputGradientTensor OutputGradientTensor
        3_0 1-8 FLOATS
        5_1 1-8 FLOATS INT32 INT16 INT8
    ACTIVATION_SHRINK: InputTensor OutputTensor
        2_0 4-5 FLOATS
        3_0 1-8 FLOATS
        5_1 1-8 UP_TO_32
    """
)

MEMBERS = merge(
    of_all(
        """
        ACTIVATION_IDENTITY ACTIVATION_RELU ACTIVATION_SIGMOID ACTIVATION_SOFTSIGN ACTIVATION_TANH ACTIVATION_GELU
        """,
        "InputTensor OutputTensor",
    ),
    of_all("ACTIVATION_RELU_GRAD", "InputTensor InputGradientTensor OutputGradientTensor"),
    of_all(
        "ACTIVATION_ELU ACTIVATION_CELU ACTIVATION_LEAKY_RELU ACTIVATION_THRESHOLDED_RELU",
        "InputTensor OutputTensor Alpha",
    ),
    of_all(
        """
        ACTIVATION_HARD_SIGMOID ACTIVATION_LINEAR ACTIVATION_PARAMETRIC_SOFTPLUS ACTIVATION_SCALED_TANH
        ACTIVATION_HARD_SWISH
        """,
        "InputTensor OutputTensor Alpha Beta",
    ),
    of_all("ACTIVATION_PARAMETERIZED_RELU", "InputTensor SlopeTensor OutputTensor"),
    of_all("ACTIVATION_SCALED_ELU", "InputTensor OutputTensor Alpha Gamma"),
    of_all("ACTIVATION_SOFTPLUS", "InputTensor OutputTensor Steepness"),
    of_all("ACTIVATION_SHRINK", "InputTensor OutputTensor Bias Threshold"),
    of_all("ACTIVATION_SWISH", "InputTensor OutputTensor SigmoidInputScale"),
)

# Formulas, on floats as float64


def shrunk(x: Arr, bias: float, threshold: float) -> Any:
    if x.dtype.kind == "f":
        return np.where(x > threshold, x - bias, np.where(x < -threshold, x + bias, 0.0))
    return by_python(lambda v: v - int(bias) if v > threshold else v + int(bias) if v < -threshold else 0)(x)


ELEMENTWISE = {
    "ACTIVATION_CELU": Elementwise(
        lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)), attributes={"alpha": 0.7}
    ),
    "ACTIVATION_ELU": Elementwise(
        lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))), attributes={"alpha": 0.7}
    ),
    "ACTIVATION_GELU": Elementwise(lambda x: x * special.ndtr(x)),
    "ACTIVATION_HARD_SIGMOID": Elementwise(
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), attributes={"alpha": 0.3, "beta": 0.4}
    ),
    "ACTIVATION_HARD_SWISH": Elementwise(
        lambda x, alpha, beta: x * np.clip(alpha * x + beta, 0, 1), attributes={"alpha": 0.3, "beta": 0.4}
    ),
    "ACTIVATION_IDENTITY": Elementwise(lambda x: x, is_exact=True),
    "ACTIVATION_LEAKY_RELU": Elementwise(lambda x, alpha: np.where(x >= 0, x, alpha * x), attributes={"alpha": 0.3}),
    "ACTIVATION_LINEAR": Elementwise(lambda x, alpha, beta: alpha * x + beta, attributes={"alpha": 0.3, "beta": 0.4}),
    "ACTIVATION_PARAMETERIZED_RELU": Elementwise(
        of_kind(lambda x, slope: np.where(x >= 0, x, slope * x), lambda x, slope: x if x >= 0 else slope * x),
        ("input", "slope"),
    ),
    "ACTIVATION_PARAMETRIC_SOFTPLUS": Elementwise(
        lambda x, alpha, beta: alpha * np.logaddexp(0, beta * x), attributes={"alpha": 0.5, "beta": 1.5}
    ),
    "ACTIVATION_RELU": Elementwise(lambda x: np.where(x > 0, x, np.where(x != x, x, 0)), is_exact=True),
    "ACTIVATION_RELU_GRAD": Elementwise(
        lambda x, gradient: np.where(x > 0, gradient, 0), GRADIENT, "output_gradient", is_exact=True
    ),
    "ACTIVATION_SCALED_ELU": Elementwise(
        lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(x)),
        attributes={"alpha": 1.6732, "gamma": 1.0507},
    ),
    "ACTIVATION_SCALED_TANH": Elementwise(
        lambda x, alpha, beta: alpha * np.tanh(beta * x), attributes={"alpha": 0.5, "beta": 1.5}
    ),
    "ACTIVATION_SHRINK": Elementwise(shrunk, attributes={"bias": 2, "threshold": 0.5}, domain=(0.6, 0.9)),
    "ACTIVATION_SIGMOID": Elementwise(special.expit),
    "ACTIVATION_SOFTPLUS": Elementwise(
        lambda x, steepness: np.logaddexp(0, steepness * x) / steepness, attributes={"steepness": 1.5}
    ),
    "ACTIVATION_SOFTSIGN": Elementwise(lambda x: x / (1 + np.abs(x))),
    "ACTIVATION_SWISH": Elementwise(
        lambda x, sigmoid_input_scale: x * special.expit(sigmoid_input_scale * x),
        attributes={"sigmoid_input_scale": 1.5},
    ),
    "ACTIVATION_TANH": Elementwise(np.tanh),
    "ACTIVATION_THRESHOLDED_RELU": Elementwise(
        lambda x, alpha: np.where(x > alpha, x, 0), attributes={"alpha": 0.7}, domain=(0.75, 0.95)
    ),
}


# Refusals

ELU = directml.ActivationEluDesc(input=f32(2, 3), output=f32(2, 3), alpha=1)
PARAMETERIZED = directml.ActivationParameterizedReluDesc(input=f32(2, 3), slope=f32(2, 3), output=f32(2, 3))
BYTES = tensor("INT8", 2, 3)
RELU_GRAD = directml.ActivationReluGradDesc(input=BYTES, input_gradient=BYTES, output_gradient=BYTES)

ONES = np.ones(2, np.float32)

REFUSED_DESCS: list[RefusedDesc] = [
    (ELU, {"output": tensor("FLOAT16", 2, 3)}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    (ELU, {"output": f32(6)}, "InputTensor and OutputTensor must have the same DimensionCount; got 2 and 1"),
    (ELU, {"output": f32(3, 2)}, "InputTensor and OutputTensor must have the same Sizes; got {2,3} and {3,2}"),
    (PARAMETERIZED, {"slope": tensor("FLOAT16", 2, 3)}, "the same DataType; got FLOAT32, FLOAT16 and FLOAT32"),
    (PARAMETERIZED, {"slope": f32(3)}, "SlopeTensor and OutputTensor must have the same ...; got 2, 1 and"),
    (PARAMETERIZED, {"slope": f32(1, 3)}, "must have the same Sizes; got {2,3}, {1,3} and {2,3}"),
    (RELU_GRAD, {"input_gradient": tensor("UINT8", 2, 3)}, "must have the same DataType; got INT8, UINT8 and INT8"),
    (RELU_GRAD, {"output_gradient": tensor("INT8", 3, 2)}, "must have the same Sizes; got {2,3}, {2,3} and {3,2}"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("activation_elu", {"input": ONES, "alpha": ONES}, InvalidDesc, "alpha must be a scalar; got shape (2,)"),
    ("activation_elu", {"input": ONES, "alpha": "1"}, InvalidType, "alpha must be a number; got '1'"),
    (
        "activation_elu",
        {"input": ONES.astype(np.float16), "alpha": 1e39},
        InvalidDesc,
        "alpha must fit float32; got 1e+39",
    ),
    *(
        (f"activation_{name}", {"input": input, argument: operand}, error, message)
        for name, argument in (("relu_grad", "input_gradient"), ("parameterized_relu", "slope"))
        for input, operand, error, message in (
            (
                ONES,
                ONES.astype(np.float16),
                InvalidType,
                f"{argument} must be of float32, as input is; got float16",
            ),
            (ONES.astype(np.int8), 0.5, InvalidDesc, f"{argument} must be a whole number in ...; got 0.5"),
            (ONES, np.ones(3, np.float32), InvalidDesc, "must have shapes that broadcast; got (2,) and (3,)"),
            (ONES > 0, ONES > 0, InvalidType, "input must be of an integer or floating type; got bool"),
        )
    ),
]
