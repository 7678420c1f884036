"""Normalization by batch, by mean and variance, by local response and by norm, with gradients.

16-bit floats are computed in float32 and rounded once, before the fused activation. On an explicit mesh, a result is
sharded like the input.

Args:
    input: Floats, in any shape.
    mean: Mean of the elements, in a shape that broadcasts to `input`.
    variance: Variance of the elements, in a shape that broadcasts to `input`.
    scale: Factor of the normalized elements, which broadcasts to `input`; None means 1.
    bias: Added to the product; broadcasts to `input`. None adds nothing.
    epsilon: Added to the variance, so that it is not 0.
    axes: Axes whose elements are normalized together; a negative axis counts from the end.
    normalize_variance: Whether to divide by the root of the variance.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import Problem, require
from dmljax.foundation.checks import require_count
from dmljax.foundation.dimensions import number
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes, shard_along
from dmljax.foundation.sizes import (
    argument_name,
    require_broadcast,
    require_dimensions,
    require_image,
    spell_sizes,
    with_leading_ones,
)
from dmljax.lowerings.images.local_response import local_response, local_response_gradient
from dmljax.lowerings.rows.norms import moments, norm
from dmljax.text import join_sizes
from dmljax.types import FLOAT, FeatureLevel, widened

# Arrays that broadcast to the input


def _input_and_parameters(
    input: ArrayLike, *, per_channel: bool = False, **parameters: ArrayLike | None
) -> tuple[Array, list[Any]]:
    """Returns `input`, and the other arrays with as many dimensions, each of which has the size of `input` or 1.

    All are of one floating type. With `per_channel`, an array of one dimension has a number for each channel.
    """
    x = calls.float_array("input", input)
    arrays: list[Any] = []
    for name, value in parameters.items():
        if value is None:
            arrays.append(None)
            continue
        array = calls.float_array(name, value)
        calls.require_type(name, array, x.dtype, "input")
        if per_channel and array.ndim == 1 and x.ndim > 2:
            rule = f"must have one number for each of the {x.shape[1]} channels of input, or for all"
            require(name, array.shape[0] in (1, x.shape[1]), rule, spell_sizes(array.shape))
            array = array.reshape((1, -1, *(1 for _ in x.shape[2:])))
        require_broadcast(name, array.shape, x.shape, "input")
        arrays.append(shard_along(x, array.reshape(with_leading_ones(array.shape, x.ndim))))
    return x, arrays


def _widen(*arrays: Any) -> list[Any]:
    """Converts the arrays, some of which may be None, to the type of the computation."""
    return [array if array is None else array.astype(widened(array.dtype)) for array in arrays]


def _scale_and_shift(value: Array, scale: Any, bias: Any) -> Array:
    scale, bias = _widen(scale, bias)
    value = value if scale is None else value * scale
    return value if bias is None else value + bias


def _broadcast_rule(*fields: str) -> dml.Rule:
    """The tensors `fields` that are present have the sizes of InputTensor, or 1 in any dimension."""

    def check(desc: Any) -> None:
        for field in fields:
            if getattr(desc, field) is not None:
                require_broadcast(field, getattr(desc, field).sizes, desc.input.sizes, argument_name("input"))

    return dml.require_sizes_rule(f"{dml.members_have(fields)} the sizes of InputTensor, or 1 in any dimension.", check)


# BATCH_NORMALIZATION


@calls.operator_function
def batch_normalization(
    input: calls.Operand,
    mean: calls.Operand,
    variance: calls.Operand,
    scale: calls.Operand | None = None,
    bias: calls.Operand | None = None,
    epsilon: calls.FloatNumber = 1e-5,
    *,
    fused_activation: dml.Fusable | None = None,
) -> Array:
    """Normalizes by a given mean and variance: `scale * (input - mean) / sqrt(variance + epsilon) + bias`.

    For images in the layout NCHW, the other arrays have a number for each channel, in the shape (C,) or (C, 1, 1);
    others broadcast to the shape of `input`.

    Args:
        mean: Means: one for each channel in the shape (C,), or in a shape that broadcasts to `input`.
        variance: Variances: one for each channel in the shape (C,), or in a shape that broadcasts to `input`.

    >>> batch_normalization(
    ...     jnp.array([[1.0, 9.0]]), 1.0, jnp.array([[1.0, 4.0]]), 3.0, 0.5, 0.0
    ... ).tolist()
    [[0.5, 12.5]]
    """
    x, parameters = _input_and_parameters(input, per_channel=True, mean=mean, variance=variance, scale=scale, bias=bias)
    wide, average, spread, *others = _widen(x, *parameters)
    normal = (wide - average) * lax.rsqrt(spread + epsilon)
    return dml.apply_fused_activation(_scale_and_shift(normal, *others).astype(x.dtype), fused_activation)


class BatchNormalizationDesc(dml.Operator, function=batch_normalization):
    input: dml.Input
    mean: dml.Input
    variance: dml.Input
    scale: dml.Input
    bias: dml.Input
    output: dml.Output
    spatial: dml.Bool
    epsilon: dml.Float
    fused_activation: dml.FusedActivation = None
    implied = {"spatial": lambda call: True}
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT), FL_3_1=dml.rows(dml.RANK_1_TO_8, FLOAT))

    def _narrow_means(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        if feature_level < FeatureLevel.FL_4_0 and not self.spatial:
            for field in ("mean", "variance"):
                sizes = getattr(self, field).sizes[-2:]
                if sizes != self.input.sizes[-2:]:
                    rule = f"must end with {join_sizes(self.input.sizes[-2:])} below DML_FEATURE_LEVEL_4_0"
                    yield Problem((self.member(field).name, "Sizes"), f"{rule}, if Spatial is false", join_sizes(sizes))

    rules = dml.page_rules(
        *dml.same_type_and_rank("bias", "input", "mean", "output", "scale", "variance"),
        dml.same_sizes("input", "output"),
        _broadcast_rule("mean", "variance", "scale", "bias"),
        dml.LevelRule(
            "Below level 4_0, MeanTensor and VarianceTensor have the sizes of InputTensor in the last two dimensions, "
            "height and width, unless Spatial is true.",
            _narrow_means,
        ),
        dml.FUSED_ACTIVATION,
    )


# BATCH_NORMALIZATION_GRAD


@calls.result
class BatchNormalizationGradients(NamedTuple):
    """The gradients of a batch normalization with respect to its input, scale and bias.

    >>> row, one = jnp.array([1.0, 3.0]), jnp.ones(1)
    >>> batch_normalization_grad(row, row, one, one, one, 0.0).scale.tolist()
    [6.0]
    """

    input: Array
    scale: Array
    bias: Array


@calls.operator_function
def batch_normalization_grad(
    input: calls.Operand,
    input_gradient: calls.Operand,
    mean: calls.Operand,
    variance: calls.Operand,
    scale: calls.Operand,
    epsilon: calls.FloatNumber = 1e-5,
) -> BatchNormalizationGradients:
    """Computes the gradients of `batch_normalization` with respect to its input, its scale and its bias.

    `mean`, `variance` and `scale` must have the same shape; the gradients with respect to scale and bias are summed
    along the dimensions of size 1 in it. With `n = (input - mean) / sqrt(variance + epsilon)`, these are the sums of
    `input_gradient * n` and of `input_gradient`. The gradient with respect to the input is
    `scale * input_gradient / sqrt(variance + epsilon)`.

    Args:
        input: What `batch_normalization` took.
        scale: Factor of the normalized elements.

    Returns:
        Gradients with respect to the input, the scale and the bias.

    >>> row, one = jnp.array([1.0, 3.0]), jnp.ones(1)
    >>> gradients = batch_normalization_grad(row, row, one, one, 2 * one, 0.0)
    >>> gradients.input.tolist(), gradients.scale.tolist(), gradients.bias.tolist()
    ([2.0, 6.0], [6.0], [4.0])
    """
    return _batch_gradients(input, input_gradient, mean, variance, scale, epsilon)


def _batch_gradients(
    input: ArrayLike,
    input_gradient: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    scale: ArrayLike,
    epsilon: Any,
    *,
    is_training: bool = False,
) -> BatchNormalizationGradients:
    """The gradients of a batch normalization; in training, that of the input passes through its mean and variance."""
    calls.require_same_shape(input=input, input_gradient=input_gradient)
    parameters = {"mean": mean, "variance": variance, "scale": scale}
    calls.require_same_shape(**parameters)
    array, others = _input_and_parameters(input, per_channel=True, input_gradient=input_gradient, **parameters)
    x, gradient, average, spread, factor = _widen(array, *others)
    axes, inverse = _repeated_axes(factor), lax.rsqrt(spread + epsilon)
    normal = (x - average) * inverse
    scale_gradient, bias_gradient = (
        jnp.sum(terms, axis=axes, keepdims=True) for terms in (gradient * normal, gradient)
    )
    if is_training:
        count = number(math.prod(x.shape[axis] for axis in axes), x.dtype)
        gradient = gradient - bias_gradient / count - normal * (scale_gradient / count)
    new_gradient, scale_gradient, bias_gradient = (
        x.astype(array.dtype) for x in (gradient * (factor * inverse), scale_gradient, bias_gradient)
    )
    return BatchNormalizationGradients(
        new_gradient, scale_gradient.reshape(jnp.shape(scale)), bias_gradient.reshape(jnp.shape(scale))
    )


def _repeated_axes(parameter: Array) -> tuple[int, ...]:
    """The dimensions along which a parameter is the same for all elements of the input."""
    return tuple(axis for axis, size in enumerate(parameter.shape) if size == 1)


_INPUT_FIELDS = ("input", "input_gradient", "output_gradient")
_PARAMETER_FIELDS = ("mean", "variance", "scale", "output_scale_gradient", "output_bias_gradient")


class _BatchGradients(dml.Operator):
    """The members and rules of the gradients of batch normalizations."""

    input: dml.Input
    input_gradient: dml.Input
    mean: dml.Input
    variance: dml.Input
    scale: dml.Input
    output_gradient: dml.Output
    output_scale_gradient: dml.Output
    output_bias_gradient: dml.Output
    epsilon: dml.Float
    rules = dml.page_rules(
        *dml.same_type_and_rank(*_INPUT_FIELDS, *_PARAMETER_FIELDS),
        dml.same_sizes(*_INPUT_FIELDS),
        dml.same_sizes(*_PARAMETER_FIELDS),
        _broadcast_rule("mean"),
    )


class BatchNormalizationGradDesc(_BatchGradients, function=batch_normalization_grad):
    support = dml.support(FL_3_1=dml.rows(dml.RANK_1_TO_8, FLOAT))


# BATCH_NORMALIZATION_TRAINING


@calls.result
class BatchNormalizationTraining(NamedTuple):
    """The result of `batch_normalization_training`: the output, and the batch's mean and variance.

    >>> batch_normalization_training(
    ...     jnp.array([1.0, 3.0]), jnp.ones(1), jnp.zeros(1)
    ... ).variance.tolist()
    [1.0]
    """

    output: Array
    mean: Array
    variance: Array


@calls.operator_function
def batch_normalization_training(
    input: calls.Operand,
    scale: calls.Operand | None = None,
    bias: calls.Operand | None = None,
    fused_add: calls.Operand | None = None,
    epsilon: calls.FloatNumber = 1e-5,
    *,
    fused_activation: dml.Fusable | None = None,
) -> BatchNormalizationTraining:
    """Normalizes a batch by its own mean and variance; returns `output`, `mean` and `variance`.

    The output is the activation of `scale * (input - mean) / sqrt(variance + epsilon) + bias + fused_add`. If `scale`
    and `bias` have the shape (C,) or (C, 1, 1), mean and variance are computed for each channel of images in the layout
    NCHW, and returned in that shape. In general, `scale` and `bias` have one shape that broadcasts to the shape of
    `input`, and mean and variance are computed along the dimensions of size 1 in it. Without `scale` and `bias`, the
    result is only normalized, and mean and variance have the shape (C,). The variance is that of the whole batch, the
    mean of the squared distances from the mean.

    Args:
        fused_add: Added before the activation, in the shape of `input`; None adds nothing.

    Returns:
        The output, and the mean and variance of the batch.

    >>> images = jnp.array([[1.0, 10.0], [3.0, 26.0]])
    >>> output, mean, variance = batch_normalization_training(
    ...     images, jnp.ones(2), jnp.zeros(2), epsilon=0.0
    ... )
    >>> output.tolist(), mean.tolist(), variance.tolist()
    ([[-1.0, -1.0], [1.0, 1.0]], [2.0, 18.0], [1.0, 64.0])
    """
    if scale is None and bias is None:
        require_dimensions("input", jnp.shape(input), 2)
    if scale is None:
        scale = jnp.ones(jnp.shape(input)[1:2] if bias is None else jnp.shape(bias), jnp.result_type(input))
    shape = jnp.shape(scale)
    if bias is not None:
        calls.require_same_shape(scale=scale, bias=bias)
    if fused_add is not None:
        calls.require_same_shape(input=input, fused_add=fused_add)
    x, parameters = _input_and_parameters(input, per_channel=True, scale=scale, bias=bias, fused_add=fused_add)
    statistics = moments(x, jnp.asarray(epsilon), _repeated_axes(parameters[0]))
    factor, *summands = _widen(*parameters)
    value = statistics.centered * statistics.inverse * factor
    for summand in summands:
        value = value if summand is None else value + summand
    return BatchNormalizationTraining(
        dml.apply_fused_activation(value.astype(x.dtype), fused_activation),
        statistics.mean.astype(x.dtype).reshape(shape),
        statistics.variance.astype(x.dtype).reshape(shape),
    )


class BatchNormalizationTrainingDesc(dml.Operator, function=batch_normalization_training):
    input: dml.Input
    scale: dml.Input
    bias: dml.Input
    fused_add: dml.OptionalInput = None
    output: dml.Output
    output_mean: dml.Output
    output_variance: dml.Output
    epsilon: dml.Float
    fused_activation: dml.FusedActivation = None
    support = dml.support(FL_4_1=dml.rows(dml.RANK_1_TO_8, FLOAT))
    rules = dml.page_rules(
        *dml.same_type_and_rank("bias", "output_mean", "output_variance", "scale", "fused_add", "input", "output"),
        dml.same_sizes("fused_add", "input", "output"),
        dml.same_sizes("bias", "output_mean", "output_variance", "scale"),
        _broadcast_rule("scale"),
        dml.FUSED_ACTIVATION,
    )


# BATCH_NORMALIZATION_TRAINING_GRAD


@calls.operator_function
def batch_normalization_training_grad(
    input: calls.Operand,
    input_gradient: calls.Operand,
    mean: calls.Operand,
    variance: calls.Operand,
    scale: calls.Operand,
    epsilon: calls.FloatNumber = 1e-5,
) -> BatchNormalizationGradients:
    """Computes the gradients of `batch_normalization_training` with respect to its input, its scale and its bias.

    `input_gradient` is the gradient with respect to the output, before the activation. With
    `n = (input - mean) / sqrt(variance + epsilon)`, the gradients with respect to scale and bias are the sums of
    `input_gradient * n` and of `input_gradient`. The one with respect to the input also passes through the mean and the
    variance: with means over the batch, it is
    `scale / sqrt(variance + epsilon) * (input_gradient - mean(input_gradient) - n * mean(input_gradient * n))`.

    Args:
        input: What `batch_normalization_training` took.
        mean: Mean that `batch_normalization_training` returned.
        variance: Variance that `batch_normalization_training` returned.
        scale: Factor of the normalized elements.

    Returns:
        Gradients with respect to the input, the scale and the bias.

    >>> row, gradient = jnp.array([1.0, 3.0, 3.0, 1.0]), jnp.array([4.0, 0.0, 0.0, 0.0])
    >>> mean, variance, scale = jnp.array([2.0]), jnp.array([1.0]), jnp.array([1.0])
    >>> batch_normalization_training_grad(
    ...     row, gradient, mean, variance, scale, 0.0
    ... ).input.tolist()
    [2.0, 0.0, 0.0, -2.0]
    """
    return _batch_gradients(input, input_gradient, mean, variance, scale, epsilon, is_training=True)


class BatchNormalizationTrainingGradDesc(_BatchGradients, function=batch_normalization_training_grad):
    support = dml.support(FL_4_1=dml.rows(dml.RANK_1_TO_8, FLOAT))


# MEAN_VARIANCE_NORMALIZATION, 1 and 2


@calls.operator_function
def mean_variance_normalization(
    input: calls.Operand,
    scale: calls.Operand | None = None,
    bias: calls.Operand | None = None,
    epsilon: calls.FloatNumber = 1e-5,
    *,
    cross_channel: bool = False,
    normalize_variance: bool = True,
    fused_activation: dml.Fusable | None = None,
) -> Array:
    """Normalizes each channel of each image by its own mean and variance, or, with `cross_channel`, each image.

    The result is `scale * (input - mean) / sqrt(variance + epsilon) + bias`. The variance is the mean of
    the squared distances from the mean. In float32, the squares overflow where elements are 1.8e19 from the mean, and
    the row becomes 0.

    Args:
        input: Images, (batch, channels, spatial dimensions), as floats.
        scale: Factor, one for each channel in the shape (C,), or in a shape that broadcasts; None means 1.
        bias: Added to the product, one for each channel or in a shape that broadcasts; None adds nothing.
        cross_channel: Whether the channels of an image are normalized together.

    >>> image = jnp.array([[[1.0, 3.0], [5.0, 5.0]]])
    >>> mean_variance_normalization(image, epsilon=0.01).round(2).tolist()
    [[[-1.0, 1.0], [0.0, 0.0]]]
    """
    require_image("input", calls.float_array("input", input).shape)
    axes = tuple(range(1 if cross_channel else 2, jnp.ndim(input)))
    options = True, normalize_variance, fused_activation
    return _normalize_mean_variance(input, scale, bias, epsilon, axes, *options, per_channel=True)


@calls.operator_function
def mean_variance_normalization1(
    input: calls.Operand,
    scale: calls.Operand | None = None,
    bias: calls.Operand | None = None,
    epsilon: calls.FloatNumber = 1e-5,
    *,
    axes: calls.Axes,
    normalize_variance: bool = True,
    fused_activation: dml.Fusable | None = None,
) -> Array:
    """Normalizes by the mean and variance along `axes`: `scale * (input - mean) / sqrt(variance + epsilon) + bias`.

    The variance is the mean of the squared distances from the mean. In float32, the squares overflow where elements are
    1.8e19 from the mean, and the row becomes 0.

    Use `mean_variance_normalization2` for the root of the mean square (RMS). Different axes give layer, instance and
    group normalization.

    >>> mean_variance_normalization1(
    ...     jnp.array([[1.0, 3.0], [1e8, 1e8]]), 10.0, 0.5, axes=-1, epsilon=0.0
    ... ).tolist()
    [[-9.5, 10.5], [nan, nan]]
    """
    return _normalize_mean_variance(input, scale, bias, epsilon, axes, True, normalize_variance, fused_activation)


@calls.operator_function
def mean_variance_normalization2(
    input: calls.Operand,
    scale: calls.Operand | None = None,
    bias: calls.Operand | None = None,
    epsilon: calls.FloatNumber = 1e-5,
    *,
    axes: calls.Axes,
    use_mean: bool = True,
    use_variance: bool = True,
    fused_activation: dml.Fusable | None = None,
) -> Array:
    """Normalizes by the mean and variance along `axes`, or, without `use_mean`, by the root of the mean square (RMS).

    The result is `scale * (input - mean) / sqrt(variance + epsilon) + bias`. RMS subtracts nothing, and uses the mean
    of squares as the variance.

    Everything else is as in `mean_variance_normalization1`.

    Args:
        use_mean: Whether to subtract the mean.
        use_variance: Whether to divide by the root of the variance, or of the mean square without `use_mean`.

    >>> mean_variance_normalization2(
    ...     jnp.array([3.0, 3.0, 3.0, 9.0]), axes=0, use_mean=False, epsilon=9.0
    ... ).tolist()
    [0.5, 0.5, 0.5, 1.5]
    """
    return _normalize_mean_variance(input, scale, bias, epsilon, axes, use_mean, use_variance, fused_activation)


def _normalize_mean_variance(
    input: ArrayLike,
    scale: ArrayLike | None,
    bias: ArrayLike | None,
    epsilon: Any,
    axes: calls.Axes,
    use_mean: bool,
    use_variance: bool,
    fused_activation: dml.ActivationLike | None,
    *,
    per_channel: bool = False,
) -> Array:
    x, parameters = _input_and_parameters(input, per_channel=per_channel, scale=scale, bias=bias)
    axes = calls.normal_axes(axes, x)
    if use_mean or use_variance:
        statistics = moments(x, jnp.asarray(epsilon), axes, use_mean=use_mean, use_variance=use_variance)
        value = statistics.centered * statistics.inverse
    else:
        value = x.astype(widened(x.dtype))
    return dml.apply_fused_activation(_scale_and_shift(value, *parameters).astype(x.dtype), fused_activation)


class _MeanVariance(dml.Operator):
    """The first members of the mean-variance normalizations, and the rules that they share."""

    input: dml.Input
    scale: dml.OptionalInput = None
    bias: dml.OptionalInput = None
    output: dml.Output
    rules = dml.page_rules(
        *dml.same_type_and_rank("bias", "input", "output", "scale"),
        dml.same_sizes("input", "output"),
        _broadcast_rule("scale", "bias"),
    )

    def _lone_parameter(self: Any, feature_level: FeatureLevel) -> Iterator[Problem]:
        if feature_level < FeatureLevel.FL_5_2 and (self.scale is None) != (self.bias is None):
            absent, present = ("ScaleTensor", "BiasTensor") if self.scale is None else ("BiasTensor", "ScaleTensor")
            yield Problem(absent, f"must be given below DML_FEATURE_LEVEL_5_2, if {present} is", "none")

    _both_given = dml.LevelRule(
        "Below level 5_2, ScaleTensor and BiasTensor are given together or not at all.", _lone_parameter
    )


class MeanVarianceNormalizationDesc(_MeanVariance, function=mean_variance_normalization):
    cross_channel: dml.Bool
    normalize_variance: dml.Bool
    epsilon: dml.Float
    fused_activation: dml.FusedActivation = None
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT))
    rules = dml.page_rules(*_MeanVariance.rules, _MeanVariance._both_given, dml.FUSED_ACTIVATION)


class MeanVarianceNormalization1Desc(_MeanVariance, function=mean_variance_normalization1):
    axes: dml.UintAxes
    normalize_variance: dml.Bool
    epsilon: dml.Float
    fused_activation: dml.FusedActivation = None
    support = dml.support(FL_2_1=dml.rows(dml.RANK_4, FLOAT), FL_3_1=dml.rows(dml.RANK_1_TO_8, FLOAT))

    def _narrow_channels(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        channels = self.input.sizes[1:2]
        for field in ("scale", "bias"):
            tensor = getattr(self, field)
            is_narrow = tensor is not None and len(tensor.sizes) == self.input.rank and tensor.sizes[1:2] != channels
            if feature_level < FeatureLevel.FL_4_0 and is_narrow:
                rule = f"must be {channels[0]} below DML_FEATURE_LEVEL_4_0, the channels of InputTensor"
                yield Problem((self.member(field).name, "Sizes", 1), rule, *tensor.sizes[1:2])

    rules = dml.page_rules(
        *_MeanVariance.rules,
        _MeanVariance._both_given,
        dml.LevelRule(
            "Below level 4_0, the second dimension of ScaleTensor and BiasTensor has the size of InputTensor.",
            _narrow_channels,
        ),
        dml.DISTINCT_AXES,
        dml.FUSED_ACTIVATION,
    )


class MeanVarianceNormalization2Desc(_MeanVariance, function=mean_variance_normalization2):
    axes: dml.UintAxes
    use_mean: dml.Bool
    use_variance: dml.Bool
    epsilon: dml.Float
    fused_activation: dml.FusedActivation = None
    support = dml.support(FL_6_3=dml.rows(dml.RANK_1_TO_8, FLOAT))
    rules = dml.page_rules(*_MeanVariance.rules, dml.DISTINCT_AXES, dml.FUSED_ACTIVATION)


# LOCAL_RESPONSE_NORMALIZATION and its gradient


@calls.operator_function
def local_response_normalization(
    input: ArrayLike,
    alpha: calls.FloatNumber = 1e-4,
    beta: calls.FloatNumber = 0.75,
    bias: calls.FloatNumber = 1.0,
    *,
    local_size: int,
    cross_channel: bool = True,
) -> Array:
    """Divides by a power of the squares nearby: `input / (bias + alpha / local_size * squares) ** beta`.

    The dimensions of `input` are batch, channels, and the spatial dimensions. `squares` is the sum of the squares of
    `local_size` channels around each element or, without `cross_channel`, of a spatial region `local_size` wide in each
    dimension; elements outside `input` count as 0. If `local_size` is even, the region has one more element after the
    center than before it. `alpha` is divided by `local_size` in both cases, as on the page.

    Args:
        input: Images, (batch, channels, spatial dimensions), as floats.
        alpha: Factor of the squares, divided by `local_size`.
        beta: Exponent of the divisor.
        bias: First term of the divisor, which keeps it from being 0.
        local_size: Number of channels, or width of the region, whose squares are added.
        cross_channel: Whether the squares are of neighboring channels, or of neighbors in space.

    >>> local_response_normalization(
    ...     jnp.array([[2.0, 0.0, 2.0]]), 3.0, 1.0, 0.0, local_size=3
    ... ).tolist()
    [[0.5, 0.0, 0.5]]
    """
    x, numbers, axes = _response_arrays(input, local_size, cross_channel, alpha, beta, bias)

    def respond(x: Array, *numbers: Array) -> Array:
        return local_response(*_widen(x), *numbers, axes=axes, local_size=local_size).astype(x.dtype)

    mesh_axes = dimension_axes(x)
    return call_with_auto_axes(respond, [(x, mesh_axes), *((value, []) for value in numbers)], mesh_axes)


@calls.operator_function
def local_response_normalization_grad(
    input: calls.Operand,
    input_gradient: calls.Operand,
    alpha: calls.FloatNumber = 1e-4,
    beta: calls.FloatNumber = 0.75,
    bias: calls.FloatNumber = 1.0,
    *,
    local_size: int,
    cross_channel: bool = True,
) -> Array:
    """Computes the gradient of `local_response_normalization` with respect to its input.

    The operator computes `input / (bias + alpha / local_size * squares) ** beta`.

    Everything else is as in `local_response_normalization`.

    Args:
        input: What `local_response_normalization` took.

    Returns:
        Gradient with respect to `input`.

    >>> row, gradient = jnp.array([[2.0, 0.0, 2.0]]), jnp.ones((1, 3))
    >>> local_response_normalization_grad(
    ...     row, gradient, 3.0, 1.0, 0.0, local_size=3
    ... ).tolist()
    [[-0.25, 0.125, -0.25]]
    """
    calls.require_same_shape(input=input, input_gradient=input_gradient)
    x, numbers, axes = _response_arrays(input, local_size, cross_channel, alpha, beta, bias)
    _, (gradient,) = _input_and_parameters(x, input_gradient=input_gradient)

    def pull(gradient: Array, x: Array, *numbers: Array) -> Array:
        result = local_response_gradient(*_widen(gradient, x), *numbers, axes=axes, local_size=local_size)
        return result.astype(x.dtype)

    mesh_axes = dimension_axes(x)
    operands = [(gradient, mesh_axes), (x, mesh_axes), *((value, []) for value in numbers)]
    return call_with_auto_axes(pull, operands, mesh_axes)


def _response_arrays(
    input: ArrayLike, local_size: int, cross_channel: bool, *numbers: ArrayLike
) -> tuple[Array, list[Array], tuple[int, ...]]:
    """The input, the numbers in the type of the computation, and the dimensions of a local region."""
    x = calls.float_array("input", input)
    if cross_channel:
        require_dimensions("input", x.shape, 2)
    else:
        require_image("input", x.shape)
    require_count("local_size", local_size, 1)
    wide = widened(x.dtype)
    return x, [jnp.asarray(value, wide) for value in numbers], (1,) if cross_channel else tuple(range(2, x.ndim))


_LOCAL_SIZE = dml.require_rule("LocalSize is at least 1.", lambda desc: require_count("local_size", desc.local_size, 1))


class _LocalResponse(dml.Operator):
    """The numbers of both operators, which follow the tensors."""

    cross_channel: dml.Bool
    local_size: dml.Uint
    alpha: dml.Float
    beta: dml.Float
    bias: dml.Float


class LocalResponseNormalizationDesc(_LocalResponse, dml.Unary, function=local_response_normalization):
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT))
    rules = dml.page_rules(*dml.Unary.rules, _LOCAL_SIZE)


class LocalResponseNormalizationGradDesc(_LocalResponse, dml.Gradient, function=local_response_normalization_grad):
    support = dml.support(FL_3_1=dml.rows(dml.RANK_4, FLOAT))
    rules = dml.page_rules(*dml.Gradient.rules, _LOCAL_SIZE)


# LP_NORMALIZATION


@calls.operator_function
def lp_normalization(input: ArrayLike, epsilon: calls.FloatNumber = 1e-5, *, axis: int = -1, p: int = 2) -> Array:
    """Divides each row along `axis` by its norm, or by `epsilon` where that is larger: `input / max(norm, epsilon)`.

    The norm is the sum of absolute values if `p` is 1, and the square root of the sum of squares if `p` is 2. These
    overflow where float32 elements exceed 1.8e19, and the row becomes 0.

    Args:
        epsilon: Lower bound of the norm, so that no row is divided by 0.
        axis: Axis of the rows; a negative axis counts from the end.
        p: 1 for the sum of magnitudes, 2 for the root of the sum of squares.

    >>> lp_normalization(
    ...     jnp.array([[3.0, -3.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]]), axis=1
    ... ).tolist()
    [[0.5, -0.5, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]]
    """
    x = calls.float_array("input", input)
    axis = calls.normal_axis(axis, x)
    _require_known_norm(p)
    (wide,) = _widen(x)
    result: Array = wide / jnp.maximum(norm(wide, (axis,), p), jnp.asarray(epsilon, wide.dtype))
    return result.astype(x.dtype)


def _require_known_norm(p: int) -> None:
    require("p", p in (1, 2), "must be 1 or 2", p)


class LpNormalizationDesc(dml.Unary, function=lp_normalization):
    axis: dml.Uint
    epsilon: dml.Float
    p: dml.Uint
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT), FL_3_1=dml.rows(dml.RANK_1_TO_8, FLOAT))
    rules = dml.page_rules(
        *dml.Unary.rules,
        dml.axis_within("input"),
        dml.require_rule("P is 1 or 2.", lambda desc: _require_known_norm(desc.p)),
    )
