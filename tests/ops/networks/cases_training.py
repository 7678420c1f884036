"""ADAM_OPTIMIZER: the page's table and pseudo-code in float64, and a case."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr
from helpers import f32, tensor
from pages import tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

INPUTS = "InputParametersTensor InputFirstMomentTensor InputSecondMomentTensor GradientTensor"
OUTPUTS = "OutputParametersTensor OutputFirstMomentTensor OutputSecondMomentTensor"
# The table has FLOAT32 and FLOAT16 for TrainingStepTensor, and the text UINT32: dmljax accepts both.
SUPPORT = tables(
    """
    ADAM_OPTIMIZER: InputParametersTensor InputFirstMomentTensor InputSecondMomentTensor GradientTensor
            OutputParametersTensor OutputFirstMomentTensor OutputSecondMomentTensor; TrainingStepTensor
        3_0 4 FLOATS; 4 FLOATS UINT32
    """
)
MEMBERS = {"ADAM_OPTIMIZER": f"{INPUTS} TrainingStepTensor {OUTPUTS} LearningRate Beta1 Beta2 Epsilon"}
REMARKS = {
    "ADAM_OPTIMIZER": lambda level, data_types: (
        data_types["TrainingStepTensor"] in (data_types["InputParametersTensor"], "UINT32")
    )
}


def adam(
    x: Any,
    m: Any,
    v: Any,
    g: Any,
    t: Any,
    learning_rate: Any = 1e-3,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    epsilon: Any = 1e-8,
) -> tuple[Arr, Arr, Arr]:
    """The page's pseudo-code with FLOAT attributes; powers near 1 have more digits than float64."""
    x, m, v, g = (np.asarray(number).astype(np.float64) for number in (x, m, v, g))
    rate, beta1, beta2, epsilon = (
        np.longdouble(np.float32(number)) for number in (learning_rate, beta1, beta2, epsilon)
    )
    t = np.asarray(t).ravel()[0].astype(np.longdouble)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    alpha = np.sqrt(1 - np.power(beta2, t)) / (1 - np.power(beta1, t))
    x = x - rate * alpha * m / (np.sqrt(v) + epsilon)
    return tuple(np.asarray(number).astype(np.float64) for number in (x, m, v))  # type: ignore[return-value]


def adam_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    tensor = TensorDesc(types["input_parameters"], ones(rank, 2, 3, 4))
    fields = (
        *("input_parameters", "input_first_moment", "input_second_moment", "gradient"),
        *("output_parameters", "output_first_moment", "output_second_moment"),
    )
    return directml.AdamOptimizerDesc(
        **dict.fromkeys(fields, tensor),
        training_step=TensorDesc(types["training_step"], ones(rank, 1)),
        learning_rate=0.25,
        beta1=0.5,
        beta2=0.75,
        epsilon=0.125,
    )


class Training(Case):
    """A case of numbers near 1, where few digits cancel."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> dict[str, Arr]:
        return {
            field: rng.integers(1, 9, tensor.sizes).astype(tensor.dtype)
            if field == "training_step"
            else (rng.random(tensor.sizes) + (field == "input_second_moment")).astype(tensor.dtype)
            for field, tensor in desc.tensors(is_input=True).items()
        }

    def check(self, desc: directml.Operator, inputs: dict[str, Arr], outputs: Any) -> None:
        for actual, exact in zip(outputs, self.oracle(desc, **inputs), strict=True):
            assert_near(actual, exact)


def assert_near(actual: Any, exact: Any, units: float = 4, beside: Any = 1) -> None:
    """Allows the errors of a few roundings, relative to the larger of the result and `beside`."""
    actual = np.asarray(actual)
    units = 0.51 if actual.dtype == np.float16 else units  # rounded once
    allowed = units * float(np.finfo(actual.dtype).eps) * np.maximum(np.abs(exact), beside)
    error = np.abs(actual.astype(np.float64) - exact)
    assert actual.shape == exact.shape
    assert np.all(error <= allowed), f"{np.max(error / allowed * units)} units"


def numbers(desc: Any) -> dict[str, Any]:
    return {name: getattr(desc, name).item for name in ("learning_rate", "beta1", "beta2", "epsilon")}


CASES = {
    "ADAM_OPTIMIZER": Training(
        ("input_parameters", "training_step"),
        adam_desc,
        lambda desc, **inputs: adam(*inputs.values(), **numbers(desc)),
        is_exact=False,
        absolute=1e-6,
        domain=(0.2, 0.9),
    )
}


# Refusals

ADAM: Any = adam_desc(dict.fromkeys(("input_parameters", "training_step"), DataType.FLOAT32), 4)

PARAMETERS = GRADIENT = np.zeros(1000, np.float32)

CALLS: dict[str, dict[str, Any]] = {
    "adam_optimizer": {
        "input_parameters": PARAMETERS,
        "input_first_moment": PARAMETERS,
        "input_second_moment": PARAMETERS,
        "gradient": GRADIENT,
        "training_step": 1,
    }
}

REFUSED_DESCS: list[RefusedDesc] = [
    (ADAM, {"gradient": tensor("FLOAT16", 1, 2, 3, 4)}, "must have the same DataType"),
    (ADAM, {"training_step": tensor("FLOAT16", 1, 1, 1, 1)}, "TrainingStepTensor must have the same DataType"),
    (ADAM, {"training_step": tensor("INT32", 1, 1, 1, 1)}, "TrainingStepTensor.DataType must be one of"),
    (ADAM, {"training_step": tensor("UINT32", 1, 1, 1, 2)}, "TrainingStepTensor.Sizes must each be 1; got"),
    (ADAM, {"output_first_moment": f32(1, 2, 3, 5)}, "must have the same Sizes"),
    (ADAM, {"beta1": 1.5}, "Beta1 must be in [0, 1]; got 1.5"),
    (ADAM, {"beta2": -0.5}, "Beta2 must be in [0, 1]; got -0.5"),
    (ADAM, {"beta2": np.nan}, "Beta2 must be in [0, 1]; got nan"),
]

REFUSED_CALLS: list[RefusedCall] = [
    (
        "adam_optimizer",
        {"gradient": GRADIENT[:3]},
        InvalidDesc,
        "gradient must have the shape of input_parameters, (1000,); got",
    ),
    (
        "adam_optimizer",
        {"input_first_moment": 0.0},
        InvalidDesc,
        "input_first_moment must have the shape of input_parameters",
    ),
    (
        "adam_optimizer",
        {"gradient": GRADIENT.astype(np.float16)},
        InvalidType,
        "gradient must be of float32, as input_parameters",
    ),
    (
        "adam_optimizer",
        {"gradient": GRADIENT.astype(np.int32)},
        InvalidType,
        "gradient must be of a floating type; got int32",
    ),
    ("adam_optimizer", {"training_step": np.ones(2)}, InvalidDesc, "training_step must be a scalar; got shape (2,)"),
    (
        "adam_optimizer",
        {"training_step": True},
        InvalidType,
        "training_step must be of an integer or floating type; got bool",
    ),
    ("adam_optimizer", {"learning_rate": np.ones(2, np.float32)}, InvalidDesc, "learning_rate must be a scalar"),
]
