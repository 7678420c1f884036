"""Normalizations: the pages' tables and pseudo-code in float64, and cases."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr
from helpers import f32, tensor
from pages import tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

BATCH = "InputTensor MeanTensor VarianceTensor ScaleTensor BiasTensor OutputTensor"
GRADIENT = (
    "InputTensor InputGradientTensor MeanTensor VarianceTensor ScaleTensor"
    " OutputGradientTensor OutputScaleGradientTensor OutputBiasGradientTensor"
)
TRAINING = "InputTensor ScaleTensor BiasTensor FusedAddTensor OutputTensor OutputMeanTensor OutputVarianceTensor"
MEAN_VARIANCE = "InputTensor ScaleTensor BiasTensor OutputTensor"
SUPPORT = tables(
    """
    BATCH_NORMALIZATION: InputTensor MeanTensor VarianceTensor ScaleTensor BiasTensor OutputTensor
        1_0 4 FLOATS
        3_1 1-8 FLOATS
    BATCH_NORMALIZATION_GRAD: InputTensor InputGradientTensor MeanTensor VarianceTensor ScaleTensor
            OutputGradientTensor OutputScaleGradientTensor OutputBiasGradientTensor
        3_1 1-8 FLOATS
    BATCH_NORMALIZATION_TRAINING: InputTensor ScaleTensor BiasTensor FusedAddTensor OutputTensor
            OutputMeanTensor OutputVarianceTensor
        4_1 1-8 FLOATS
    BATCH_NORMALIZATION_TRAINING_GRAD: InputTensor InputGradientTensor MeanTensor VarianceTensor ScaleTensor
            OutputGradientTensor OutputScaleGradientTensor OutputBiasGradientTensor
        4_1 1-8 FLOATS
    MEAN_VARIANCE_NORMALIZATION: InputTensor ScaleTensor BiasTensor OutputTensor
        1_0 4 FLOATS
    MEAN_VARIANCE_NORMALIZATION1: InputTensor ScaleTensor BiasTensor OutputTensor
        2_1 4 FLOATS
        3_1 1-8 FLOATS
    MEAN_VARIANCE_NORMALIZATION2: InputTensor ScaleTensor BiasTensor OutputTensor
        6_3 1-8 FLOATS
    LOCAL_RESPONSE_NORMALIZATION: InputTensor OutputTensor
        1_0 4 FLOATS
    LOCAL_RESPONSE_NORMALIZATION_GRAD: InputTensor InputGradientTensor OutputGradientTensor
        3_1 4 FLOATS
    LP_NORMALIZATION: InputTensor OutputTensor
        1_0 4 FLOATS
        3_1 1-8 FLOATS
    """
)

RESPONSE = "CrossChannel LocalSize Alpha Beta Bias"
MEMBERS = {
    "BATCH_NORMALIZATION": f"{BATCH} Spatial Epsilon FusedActivation",
    "BATCH_NORMALIZATION_GRAD": f"{GRADIENT} Epsilon",
    "BATCH_NORMALIZATION_TRAINING": f"{TRAINING} Epsilon FusedActivation",
    "BATCH_NORMALIZATION_TRAINING_GRAD": f"{GRADIENT} Epsilon",
    "MEAN_VARIANCE_NORMALIZATION": f"{MEAN_VARIANCE} CrossChannel NormalizeVariance Epsilon FusedActivation",
    "MEAN_VARIANCE_NORMALIZATION1": f"{MEAN_VARIANCE} AxisCount Axes NormalizeVariance Epsilon FusedActivation",
    "MEAN_VARIANCE_NORMALIZATION2": f"{MEAN_VARIANCE} AxisCount Axes UseMean UseVariance Epsilon FusedActivation",
    "LOCAL_RESPONSE_NORMALIZATION": f"InputTensor OutputTensor {RESPONSE}",
    "LOCAL_RESPONSE_NORMALIZATION_GRAD": f"InputTensor InputGradientTensor OutputGradientTensor {RESPONSE}",
    "LP_NORMALIZATION": "InputTensor OutputTensor Axis Epsilon P",
}

# Pseudo-code, in float64


def wide(*arrays: Any) -> list[Any]:
    return [None if array is None else np.asarray(array).astype(np.float64) for array in arrays]


def batch_normalized(input: Any, mean: Any, variance: Any, scale: Any, bias: Any, epsilon: Any) -> Arr:
    input, mean, variance, scale, bias, epsilon = wide(input, mean, variance, scale, bias, epsilon)
    with np.errstate(all="ignore"):
        return np.asarray(scale * ((input - mean) / np.sqrt(variance + epsilon)) + bias)


def repeated(parameter: Any) -> tuple[int, ...]:
    return tuple(i for i, size in enumerate(np.shape(parameter)) if size == 1)


def batch_gradients(
    input: Any, input_gradient: Any, mean: Any, variance: Any, scale: Any, epsilon: Any
) -> tuple[Arr, Arr, Arr]:
    axes = repeated(scale)
    input, gradient, mean, variance, scale, epsilon = wide(input, input_gradient, mean, variance, scale, epsilon)
    of_scale = (gradient * (input - mean) / np.sqrt(variance + epsilon)).sum(axis=axes, keepdims=True)
    of_input: Arr = gradient * (scale / np.sqrt(variance + epsilon))
    return of_input, of_scale, gradient.sum(axis=axes, keepdims=True)


def moments_of(input: Any, axes: tuple[int, ...]) -> tuple[Arr, Arr]:
    (input,) = wide(input)
    mean = input.mean(axis=axes, keepdims=True)
    return mean, np.square(input - mean).mean(axis=axes, keepdims=True)


def batch_trained(input: Any, scale: Any, bias: Any, fused_add: Any, epsilon: Any) -> tuple[Arr, Arr, Arr]:
    mean, variance = moments_of(input, repeated(scale))
    output = batch_normalized(input, mean, variance, scale, bias, epsilon) + wide(fused_add)[0]
    return np.asarray(output), mean, variance


def trained_gradients(
    input: Any, input_gradient: Any, mean: Any, variance: Any, scale: Any, epsilon: Any
) -> tuple[Arr, Arr, Arr]:
    axes = repeated(scale)
    _, of_scale, of_bias = batch_gradients(input, input_gradient, mean, variance, scale, epsilon)
    input, gradient, mean, variance, scale, epsilon = wide(input, input_gradient, mean, variance, scale, epsilon)
    coefficient0 = 1 / np.sqrt(variance + epsilon)
    input_centered = input - mean
    coefficient1 = gradient * input_centered
    gradient_centered = gradient - gradient.mean(axis=axes, keepdims=True)
    correction = input_centered * coefficient1.mean(axis=axes, keepdims=True) / (variance + epsilon)
    return np.asarray(scale * coefficient0 * (gradient_centered - correction)), of_scale, of_bias


def mean_variance_normalized(
    input: Any, scale: Any, bias: Any, epsilon: Any, *, axes: Any, use_mean: bool = True, use_variance: bool = True
) -> Arr:
    input, scale, bias, epsilon = wide(input, scale, bias, epsilon)
    with np.errstate(all="ignore"):
        centered = input - input.mean(axis=axes, keepdims=True) if use_mean else input
        variance = np.square(centered).mean(axis=axes, keepdims=True)
        normal = centered / np.sqrt(variance + epsilon) if use_variance else centered
    return np.asarray(normal * (1 if scale is None else scale) + (0 if bias is None else bias))


def regions(shape: Any, local_size: int, cross_channel: bool) -> Any:
    """Each position with the slices of its local region, clipped at the edges."""
    for place in np.ndindex(*shape):
        region: list[Any] = list(place)
        for axis in [1] if cross_channel else range(2, len(shape)):
            first = place[axis] - (local_size - 1) // 2
            region[axis] = slice(max(first, 0), first + local_size)
        yield place, tuple(region)


def local_response(input: Any, alpha: Any, beta: Any, bias: Any, *, local_size: int, cross_channel: bool) -> Arr:
    input, alpha, beta, bias = wide(input, alpha, beta, bias)
    output = np.empty_like(input)
    for place, region in regions(input.shape, local_size, cross_channel):
        total = np.square(input[region]).sum()
        output[place] = input[place] / (bias + (alpha / local_size) * total) ** beta
    return np.asarray(output)


def local_response_gradient(
    input: Any, input_gradient: Any, alpha: Any, beta: Any, bias: Any, *, local_size: int, cross_channel: bool
) -> Arr:
    """Each result depends on the elements of its region, which get its gradient."""
    input, gradient, alpha, beta, bias = wide(input, input_gradient, alpha, beta, bias)
    output = np.zeros_like(input)
    for place, region in regions(input.shape, local_size, cross_channel):
        base = bias + (alpha / local_size) * np.square(input[region]).sum()
        output[place] += gradient[place] / base**beta
        derivative = -beta * input[place] / base ** (beta + 1) * (alpha / local_size) * 2
        output[region] += gradient[place] * derivative * input[region]
    return np.asarray(output)


def lp_normalized(input: Any, epsilon: Any, *, axis: int, p: int) -> Arr:
    input, epsilon = wide(input, epsilon)
    with np.errstate(all="ignore"):
        norm = (np.abs(input) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
        return np.asarray(input / np.maximum(norm, epsilon))


# Descriptors


def along(sizes: tuple[int, ...], *axes: int) -> tuple[int, ...]:
    """The sizes along these axes, which count from the last, and 1 along the others."""
    return tuple(size if i - len(sizes) in axes else 1 for i, size in enumerate(sizes))


def tensors(data_type: DataType, **sizes: tuple[int, ...]) -> dict[str, Any]:
    return {name: TensorDesc(data_type, size) for name, size in sizes.items()}


def batch_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = ones(rank, 2, 3, 4)
    channels = along(sizes, -2)
    return directml.BatchNormalizationDesc(
        **tensors(
            types["input"],
            input=sizes,
            mean=channels,
            variance=channels,
            scale=along(sizes, -1),
            bias=along(sizes),
            output=sizes,
        ),
        spatial=True,
        epsilon=0.25,
    )


def gradients_desc(operator: Any) -> Callable[[Mapping[str, DataType], int], directml.Operator]:
    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        sizes = ones(rank, 2, 3, 4)
        desc: directml.Operator = operator(
            **tensors(types["input"], **dict.fromkeys(("input", "input_gradient", "output_gradient"), sizes)),
            **tensors(
                types["input"],
                **dict.fromkeys(
                    ("mean", "variance", "scale", "output_scale_gradient", "output_bias_gradient"), along(sizes, -2)
                ),
            ),
            epsilon=0.25,
        )
        return desc

    return make


def training_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = ones(rank, 2, 3, 4)
    return directml.BatchNormalizationTrainingDesc(
        **tensors(types["input"], **dict.fromkeys(("input", "fused_add", "output"), sizes)),
        **tensors(
            types["input"],
            **dict.fromkeys(("scale", "bias", "output_mean", "output_variance"), along(sizes, -2)),
        ),
        epsilon=0.25,
    )


def mean_variance_desc(operator: Any, **members: Any) -> Callable[[Mapping[str, DataType], int], directml.Operator]:
    has_axes = operator is not directml.MeanVarianceNormalizationDesc

    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        sizes = ones(rank, 2, 3, 2, 4)
        axes = {"axes": tuple({rank - 1, max(rank - 3, 0)})} if has_axes else {}
        parameters = along(sizes, 1 - rank, -1)  # earlier levels do not broadcast the second dimension
        desc: directml.Operator = operator(
            **tensors(types["input"], input=sizes, output=sizes, scale=parameters, bias=parameters),
            **axes,
            **members,
            epsilon=0.25,
        )
        return desc

    return make


def axes_of(desc: Any) -> tuple[int, ...]:
    if isinstance(desc, directml.MeanVarianceNormalizationDesc):
        return (1, 2, 3) if desc.cross_channel else (2, 3)
    axes: tuple[int, ...] = desc.axes
    return axes


def response_desc(operator: Any, *fields: str) -> Callable[[Mapping[str, DataType], int], directml.Operator]:
    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        desc: directml.Operator = operator(
            **dict.fromkeys(fields, TensorDesc(types["input"], ones(rank, 2, 5, 2, 3))),
            cross_channel=True,
            local_size=3,
            alpha=0.5,
            beta=0.75,
            bias=1.5,
        )
        return desc

    return make


def response_members(desc: Any) -> dict[str, Any]:
    numbers = {name: getattr(desc, name).item for name in ("alpha", "beta", "bias")}
    return numbers | {"local_size": desc.local_size, "cross_channel": desc.cross_channel}


def lp_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = ones(rank, 3, 2, 4)
    return directml.LpNormalizationDesc(
        **tensors(types["input"], input=sizes, output=sizes), axis=max(rank - 3, 0), epsilon=0.25, p=2
    )


class Normalization(Case):
    """A case of small numbers, where few digits cancel; the family's own tests use other numbers."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> dict[str, Arr]:
        given = {
            field: (rng.random(tensor.sizes) + 0.5).astype(tensor.dtype)
            if field in ("variance", "scale")
            else rng.integers(-8, 9, tensor.sizes).astype(tensor.dtype)
            for field, tensor in desc.tensors(is_input=True).items()
        }
        if "input_gradient" in given and "mean" in given:  # the gradient takes the input's
            given["mean"] = moments_of(given["input"], repeated(given["mean"]))[0].astype(given["mean"].dtype)
        return given

    def check(self, desc: directml.Operator, inputs: dict[str, Arr], outputs: Any) -> None:
        expected = self.oracle(desc, **inputs)
        tensors = desc.tensors(is_input=False).values()
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for actual, exact, member in zip(
            outputs, expected if isinstance(expected, tuple) else (expected,), tensors, strict=True
        ):
            assert_near(actual, exact.reshape(member.sizes))
            assert actual.dtype == member.dtype


def assert_near(actual: Any, exact: Any, units: float = 8) -> None:
    """Allows rounding errors: some units of the type, relative to the result or to 1."""
    actual, exact = np.asarray(actual), np.asarray(exact)
    assert actual.shape == exact.shape
    unit = float(np.finfo(actual.dtype).eps)
    units = 0.75 if actual.dtype == np.float16 else units  # rounded once
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=units * unit, atol=units * unit)


def case(make: Any, oracle: Any) -> Normalization:
    return Normalization(("input",), make, oracle, is_exact=False, absolute=4e-6, domain=(0.2, 0.9))


def mean_variance_oracle(desc: Any, input: Any, scale: Any, bias: Any) -> Arr:
    uses = {"use_mean": getattr(desc, "use_mean", True), "use_variance": getattr(desc, "use_variance", True)}
    return mean_variance_normalized(input, scale, bias, desc.epsilon.item, axes=axes_of(desc), **uses)


CASES = {
    "BATCH_NORMALIZATION": case(
        batch_desc, lambda desc, **inputs: batch_normalized(**inputs, epsilon=desc.epsilon.item)
    ),
    "BATCH_NORMALIZATION_GRAD": case(
        gradients_desc(directml.BatchNormalizationGradDesc),
        lambda desc, **inputs: batch_gradients(**inputs, epsilon=desc.epsilon.item),
    ),
    "BATCH_NORMALIZATION_TRAINING": case(
        training_desc, lambda desc, **inputs: batch_trained(**inputs, epsilon=desc.epsilon.item)
    ),
    "BATCH_NORMALIZATION_TRAINING_GRAD": case(
        gradients_desc(directml.BatchNormalizationTrainingGradDesc),
        lambda desc, **inputs: trained_gradients(**inputs, epsilon=desc.epsilon.item),
    ),
    "MEAN_VARIANCE_NORMALIZATION": case(
        mean_variance_desc(directml.MeanVarianceNormalizationDesc, cross_channel=True, normalize_variance=True),
        mean_variance_oracle,
    ),
    "MEAN_VARIANCE_NORMALIZATION1": case(
        mean_variance_desc(directml.MeanVarianceNormalization1Desc, normalize_variance=True), mean_variance_oracle
    ),
    "MEAN_VARIANCE_NORMALIZATION2": case(
        mean_variance_desc(directml.MeanVarianceNormalization2Desc, use_mean=False, use_variance=True),
        mean_variance_oracle,
    ),
    "LOCAL_RESPONSE_NORMALIZATION": case(
        response_desc(directml.LocalResponseNormalizationDesc, "input", "output"),
        lambda desc, input: local_response(input, **response_members(desc)),
    ),
    "LOCAL_RESPONSE_NORMALIZATION_GRAD": case(
        response_desc(directml.LocalResponseNormalizationGradDesc, "input", "input_gradient", "output_gradient"),
        lambda desc, input, input_gradient: local_response_gradient(input, input_gradient, **response_members(desc)),
    ),
    "LP_NORMALIZATION": case(
        lp_desc, lambda desc, input: lp_normalized(input, desc.epsilon.item, axis=desc.axis, p=desc.p)
    ),
}


# Refusals


def normalization_desc(name: str, **changes: Any) -> Any:
    """The family's case of an operator, with other members."""
    desc: Any = CASES[name].make({"input": DataType.FLOAT32}, 4)
    return replace(desc, **changes)


BATCH_NORM, TRAINING_NORM = "BATCH_NORMALIZATION", "BATCH_NORMALIZATION_TRAINING"
MEAN_VARIANCE_NORM = "MEAN_VARIANCE_NORMALIZATION"
RESPONSE_NORM = "LOCAL_RESPONSE_NORMALIZATION"
HALF = tensor("FLOAT16", 1, 2, 3, 4)
OF_MEAN = ("mean", "variance", "scale", "output_scale_gradient", "output_bias_gradient")
OF_SCALE = ("scale", "bias", "output_mean", "output_variance")

ROW, ONE, IMAGES = np.ones((2, 3), np.float32), np.ones((1, 1), np.float32), np.ones((2, 3, 4, 5), np.float32)
PARAMETERS = {"input": ROW} | dict.fromkeys(("mean", "variance", "scale"), ONE)

CALLS: dict[str, dict[str, Any]] = {
    "batch_normalization": {**PARAMETERS, "bias": ONE},
    "batch_normalization_grad": {**PARAMETERS, "input_gradient": ROW},
    "batch_normalization_training": {"input": ROW, "scale": ONE, "bias": ONE},
    "batch_normalization_training_grad": {**PARAMETERS, "input_gradient": ROW},
    "mean_variance_normalization": {"input": ROW},
    "mean_variance_normalization1": {"input": ROW, "axes": 0},
    "mean_variance_normalization2": {"input": ROW, "axes": 0},
    "local_response_normalization": {"input": ROW, "local_size": 3},
    "local_response_normalization_grad": {"input": ROW, "local_size": 3},
    "lp_normalization": {"input": ROW, "axis": 1},
}

BROKEN_RULES: list[tuple[str, dict[str, Any], str]] = [
    (
        BATCH_NORM,
        {"scale": f32(1, 2, 3, 1), "mean": f32(1, 2, 2, 1)},
        "MeanTensor must have a shape that broadcasts to",
    ),
    (
        BATCH_NORM,
        {"bias": f32(2, 1, 1, 1)},
        "BiasTensor must have a shape that broadcasts ...; got {2,1,1,1}",
    ),
    (BATCH_NORM, {"bias": f32(1, 1, 1)}, "must have the same DimensionCount; got 3, 4,"),
    (BATCH_NORM, {"input": HALF}, "must have the same DataType; got"),
    (
        BATCH_NORM,
        {"output": f32(1, 2, 3, 5)},
        "InputTensor and OutputTensor must have the same Sizes",
    ),
    *(
        (
            f"{name}_GRAD",
            {field: f32(1, 2, 3, 4)},
            "MeanTensor, VarianceTensor, ScaleTensor, ... the same Sizes",
        )
        for name in (BATCH_NORM, TRAINING_NORM)
        for field in ("scale", "output_bias_gradient")
    ),
    (
        f"{BATCH_NORM}_GRAD",
        {"output_gradient": f32(1, 1, 3, 4)},
        "InputTensor, InputGradientTensor and",
    ),
    (
        f"{TRAINING_NORM}_GRAD",
        dict.fromkeys(OF_MEAN, f32(1, 1, 2, 1)),
        "MeanTensor must have a shape that broadcasts",
    ),
    (
        TRAINING_NORM,
        {"bias": f32(1, 1, 1, 1)},
        "BiasTensor, OutputMeanTensor, OutputVarianceTensor and ScaleTensor",
    ),
    (
        TRAINING_NORM,
        {"fused_add": f32(1, 2, 3, 1)},
        "FusedAddTensor, InputTensor and OutputTensor must have the same",
    ),
    (
        TRAINING_NORM,
        dict.fromkeys(OF_SCALE, f32(1, 2, 1, 3)),
        "ScaleTensor must have a shape that broadcasts to",
    ),
    (
        TRAINING_NORM,
        {"fused_activation": directml.ActivationSoftmaxDesc(input=HALF, output=HALF)},
        "FusedActivation.Type must be an activation that can be fused",
    ),
    (
        f"{MEAN_VARIANCE_NORM}1",
        {"bias": f32(1, 3, 2, 2)},
        "BiasTensor must have a shape that broadcasts to",
    ),
    (f"{MEAN_VARIANCE_NORM}1", {"axes": (1, 1)}, "Axes must name one or more different dimensions"),
    (f"{MEAN_VARIANCE_NORM}2", {"axes": (4,)}, "Axes[0] must be less than 4; got 4"),
    (f"{MEAN_VARIANCE_NORM}2", {"axes": ()}, "Axes must name one or more different dimensions"),
    (
        MEAN_VARIANCE_NORM,
        {"output": f32(1, 3, 2, 4)},
        "InputTensor and OutputTensor must have the same Si",
    ),
    (
        f"{MEAN_VARIANCE_NORM}2",
        {"fused_activation": directml.ActivationReluDesc(input=HALF, output=HALF)},
        "FusedActivation.InputTensor must not be given",
    ),
    (RESPONSE_NORM, {"local_size": 0}, "LocalSize must be at least 1; got 0"),
    (f"{RESPONSE_NORM}_GRAD", {"local_size": 0}, "LocalSize must be at least 1; got 0"),
    (f"{RESPONSE_NORM}_GRAD", {"input_gradient": f32(2, 5, 2, 1)}, "must have the same Sizes"),
    ("LP_NORMALIZATION", {"p": 3}, "P must be 1 or 2; got 3"),
    ("LP_NORMALIZATION", {"axis": 4}, "Axis must be less than 4; got 4"),
]
REFUSED_DESCS: list[RefusedDesc] = [
    (normalization_desc(name), change, message) for name, change, message in BROKEN_RULES
]

REFUSED_CALLS: list[RefusedCall] = [
    (
        "batch_normalization",
        {"mean": ONE.astype(np.float16)},
        InvalidType,
        "mean must be of float32, as input is; got float16",
    ),
    ("batch_normalization", {"epsilon": ONE}, InvalidDesc, "epsilon must be a scalar; got shape"),
    ("batch_normalization", {"input": ROW.astype(int)}, InvalidType, "input must be of a floating type; got int"),
    (
        "batch_normalization_grad",
        {"input_gradient": ROW[:1]},
        InvalidDesc,
        "input_gradient must have the shape ...; got (1, 3)",
    ),
    (
        "batch_normalization_training",
        {"fused_add": ROW[:1]},
        InvalidDesc,
        "fused_add must have the shape of input, (2, 3); got",
    ),
    (
        "batch_normalization_training",
        {"bias": np.ones(2)},
        InvalidDesc,
        "bias must have the shape of scale, (1, 1); got (2,)",
    ),
    (
        "batch_normalization_training",
        {"input": ROW[0], "scale": None, "bias": None},
        InvalidDesc,
        "input must have at least 2 dimensions; got 1",
    ),
    ("mean_variance_normalization", {}, InvalidDesc, "input must have at least 3 dimensions; got 2"),
    ("mean_variance_normalization", {"cross_channel": 1}, InvalidType, "cross_channel must be true or false; got 1"),
    ("mean_variance_normalization1", {"axes": 2}, InvalidDesc, "axes must be in [-2, 2); got 2"),
    ("mean_variance_normalization2", {"input": 1.0}, InvalidDesc, "input must have at least 1 dimension; got 0"),
    (
        "local_response_normalization",
        {"cross_channel": False},
        InvalidDesc,
        "input must have at least 3 dimensions; got 2",
    ),
    ("local_response_normalization", {"input": ROW[0]}, InvalidDesc, "must have at least 2 dimensions; got 1"),
    (
        "local_response_normalization_grad",
        {"input_gradient": ROW[:1]},
        InvalidDesc,
        "the shape of input, (2, 3); got (1, 3)",
    ),
    (
        "batch_normalization",
        {"input": IMAGES, "mean": np.ones(4, np.float32)},
        InvalidDesc,
        "mean must have one number for each of the 3 channels of input, or for all; got (4,)",
    ),
    (
        "mean_variance_normalization1",
        {"input": IMAGES, "axes": -1, "scale": np.ones(3, np.float32)},
        InvalidDesc,
        "got (3,) (for one number per channel, reshape to (3, 1, 1))",
    ),
    ("lp_normalization", {"axis": -3}, InvalidDesc, "axis must be in [-2, 2); got -3"),
    (
        "lp_normalization",
        {"input": np.ones(3, np.int32), "axis": 0},
        InvalidType,
        "input must be of a floating type; got int32",
    ),
]
