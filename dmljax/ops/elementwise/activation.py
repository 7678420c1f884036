"""Elementwise activations, ACTIVATION_CELU to ACTIVATION_THRESHOLDED_RELU.

Each is the plain formula of JAX's own functions. 16-bit floats are computed in float32, and only the result is rounded
to 16 bits. Attributes are FLOAT, whatever the type of the tensors. An element that an activation passes on unchanged
keeps every bit. At a kink, the gradient follows the branch that the page's formula selects. Parameters default to the
typical values that the page gives.

Args:
    input: Floats, in any shape.
    alpha: Factor of the result.
    beta: Factor of `input`.
"""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import Problem
from dmljax.lowerings.copies import select_exactly
from dmljax.lowerings.numbers.comparisons import greater
from dmljax.lowerings.numbers.derivatives import custom_jvps
from dmljax.lowerings.numbers.floats import is_above_zero, is_below_zero, is_not_negative
from dmljax.lowerings.platform import choose
from dmljax.types import FLOAT, INTEGERS, SIGNED_UP_TO_32_BIT, UP_TO_32_BIT, FeatureLevel, widened


def _apply_below_zero(function: Callable[[Array], Array], x: Array) -> Array:
    """Applies `function` where `x` is negative, and returns `x` elsewhere.

    Other elements reach `function` as 0: their results are discarded, but could make a gradient NaN.
    """
    is_below = is_below_zero(x)
    return select_exactly(is_below, function(jnp.where(is_below, x, jnp.zeros((), x.dtype))), x)


class AlphaActivation(dml.Activation):
    """An activation with one attribute, Alpha."""

    alpha: dml.Float


class AlphaBetaActivation(dml.Activation):
    """An activation with two attributes, Alpha and Beta."""

    alpha: dml.Float
    beta: dml.Float


# Rectifiers

_SINCE_5_1 = dml.support(FL_5_1=dml.rows(dml.RANK_1_TO_8, FLOAT | SIGNED_UP_TO_32_BIT))
_SINCE_1_0 = dml.ACTIVATION_SINCE_1_0 | _SINCE_5_1


@calls.operator_function
def activation_relu(input: ArrayLike) -> Array:
    """Computes the rectified linear unit (ReLU): `input` where it is above zero, +0 elsewhere.

    NaN stays NaN.

    Args:
        input: Floats or integers, in any shape.

    >>> activation_relu(jnp.array([-1.0, -0.0, 2.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    return _relu(calls.number_array("input", input))


# NaN passes through, but its gradient is 0, as on ACTIVATION_RELU_GRAD's page. Never move tangents as bits, which have
# no transpose.
@custom_jvps(lambda tangent, x: jnp.where(is_above_zero(x), tangent, jnp.zeros((), tangent.dtype)))
def _relu(x: Array) -> Array:
    """`max(x, 0)`: what cuDNN computes along with a convolution. A CPU's `max` flushes subnormal numbers."""

    def by_bits(x: Array) -> Array:
        return select_exactly(is_not_negative(x), x, jnp.zeros((), x.dtype))

    return choose(x, cpu=by_bits, default=lambda x: jnp.maximum(x, 0))


class ActivationReluDesc(dml.Activation, function=activation_relu):
    support = _SINCE_1_0


@calls.operator_function
def activation_relu_grad(input: calls.Operand, input_gradient: calls.Operand) -> Array:
    """Computes the gradient of `activation_relu`: `input_gradient` where `input` is above zero, 0 elsewhere.

    Args:
        input: What `activation_relu` took: floats or integers.

    Returns:
        Gradient with respect to `input`.

    >>> activation_relu_grad(
    ...     jnp.array([-1.0, 0.0, 2.0]), jnp.array([5.0, 6.0, 7.0])
    ... ).tolist()
    [0.0, 0.0, 7.0]
    """
    x, gradient = calls.broadcast_operands(calls.number_array, input=input, input_gradient=input_gradient)
    return select_exactly(is_above_zero(x), gradient, jnp.zeros((), x.dtype))


class ActivationReluGradDesc(dml.Gradient, function=activation_relu_grad):
    support = dml.support(FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT)) | _SINCE_5_1


@calls.operator_function
def activation_leaky_relu(input: ArrayLike, alpha: calls.FloatNumber = 0.01) -> Array:
    """Computes the leaky ReLU: `alpha * input` where `input` is below zero, `input` elsewhere.

    Args:
        alpha: Slope below zero.

    >>> activation_leaky_relu(jnp.array([-2.0, 3.0]), 0.5).tolist()
    [-1.0, 3.0]
    """
    return calls.apply_to_floats(lambda x, alpha: _apply_below_zero(lambda x: alpha * x, x), alpha, input=input)


class ActivationLeakyReluDesc(AlphaActivation, function=activation_leaky_relu):
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_parameterized_relu(input: calls.Operand, slope: calls.Operand) -> Array:
    """Computes the parametric ReLU (PReLU): `slope * input` where `input` is below zero, `input` elsewhere.

    Args:
        input: Floats or integers, in any shape.
        slope: Slopes below zero, which broadcast with `input`.

    Returns:
        Array of the shape to which `input` and `slope` broadcast.

    >>> activation_parameterized_relu(
    ...     jnp.array([[-2.0, 3.0], [-4.0, -1.0]]), jnp.array([0.5, 2.0])
    ... ).tolist()
    [[-1.0, 3.0], [-2.0, -2.0]]
    """
    x, slope = calls.broadcast_operands(calls.number_array, input=input, slope=slope)
    return _apply_below_zero(lambda x: slope * x, x)


class ActivationParameterizedReluDesc(dml.Operator, function=activation_parameterized_relu):
    input: dml.Input
    slope: dml.Input
    output: dml.Output
    support = _SINCE_1_0
    rules = dml.page_rules(dml.same_type_and_sizes("input", "slope", "output"))


@calls.operator_function
def activation_thresholded_relu(input: ArrayLike, alpha: calls.FloatNumber = 1.0) -> Array:
    """Computes the thresholded ReLU: `input` where it is above `alpha`, 0 elsewhere.

    Args:
        alpha: Threshold that elements must exceed.

    >>> activation_thresholded_relu(jnp.array([0.5, 1.0, 1.5])).tolist()
    [0.0, 0.0, 1.5]
    """
    return calls.apply_to_floats(
        lambda x, alpha: select_exactly(greater(x, alpha), x, jnp.zeros((), x.dtype)), alpha, input=input
    )


class ActivationThresholdedReluDesc(AlphaActivation, function=activation_thresholded_relu):
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_shrink(input: ArrayLike, bias: calls.WideNumber = 0.0, threshold: calls.FloatNumber = 0.5) -> Array:
    """Shrinks elements by `bias`: `input - bias` above `threshold`, `input + bias` below `-threshold`, 0 elsewhere.

    NaN gives 0. Integers are compared with the exact threshold; their bias must be an integer of the same type.

    Args:
        input: Floats or integers, in any shape.
        bias: Distance by which elements move toward zero.
        threshold: Magnitude that elements must exceed.

    >>> activation_shrink(jnp.array([-2.0, 0.25, 3.0]), 1.0).tolist()
    [-1.0, 0.0, 2.0]
    >>> activation_shrink(jnp.array([-2, 0, 3]), 1, 2.5).tolist()
    [0, 0, 2]
    """
    input = calls.number_array("input", input)
    x = input.astype(widened(input.dtype))
    bias, threshold = jnp.asarray(bias, x.dtype), jnp.asarray(threshold)
    if x.dtype in INTEGERS:
        is_above, is_below = _is_above(x, threshold), _is_below(x, -threshold)
    else:
        is_above, is_below = greater(x, threshold), greater(-threshold, x)
    zero = jnp.zeros((), x.dtype)
    return jnp.where(is_above, x - bias, jnp.where(is_below, x + bias, zero)).astype(input.dtype)


def _is_above(x: Array, bound: Array) -> Array:
    """Tells where integers are above a floating-point bound, which may be NaN or outside their type's range."""
    limits = np.iinfo(x.dtype)
    end = float(limits.max) + 1  # a power of 2, which a float holds exactly
    floor = jnp.where((bound < end) & (bound >= limits.min), jnp.floor(bound), jnp.zeros_like(bound)).astype(x.dtype)
    return jnp.where(bound < end, (bound < limits.min) | (x > floor), jnp.zeros_like(x, bool))


def _is_below(x: Array, bound: Array) -> Array:
    """Tells where integers are below a floating-point bound, which may be NaN or outside their type's range."""
    limits = np.iinfo(x.dtype)
    end = float(limits.max) + 1
    ceil = jnp.where((bound < end) & (bound > limits.min), jnp.ceil(bound), jnp.zeros_like(bound))
    is_end = ceil == end
    whole = jnp.where(is_end, jnp.zeros_like(ceil), ceil).astype(x.dtype)
    return jnp.where(bound > limits.min, (bound >= end) | is_end | (x < whole), jnp.zeros_like(x, bool))


class ActivationShrinkDesc(dml.Activation, function=activation_shrink):
    bias: dml.Float
    threshold: dml.Float
    support = dml.support(
        FL_2_0=dml.rows(dml.RANK_4_TO_5, FLOAT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT),
        FL_5_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
    )

    def _misfits(self) -> Iterator[Problem]:
        # The page does not say what a fractional Bias does to an integer, so refuse it.
        if self.input is not None and self.input.dtype in INTEGERS:
            yield from dml.find_misfit("Bias", self.bias, self.input.dtype)

    rules = dml.page_rules(
        *dml.Activation.rules,
        dml.Rule("If InputTensor.DataType is an integer type, Bias is an integer that the type can hold.", _misfits),
    )


# Exponential units


@calls.operator_function
def activation_elu(input: ArrayLike, alpha: calls.FloatNumber = 1.0) -> Array:
    """Computes the exponential linear unit (ELU): `alpha * (exp(input) - 1)` below zero, `input` elsewhere.

    Args:
        alpha: Limit of the magnitude of negative results.

    >>> activation_elu(jnp.array([-jnp.inf, 0.0, 2.0]), 0.5).tolist()
    [-0.5, 0.0, 2.0]
    """
    return calls.apply_to_floats(
        lambda x, alpha: _apply_below_zero(lambda x: alpha * lax.expm1(x), x), alpha, input=input
    )


class ActivationEluDesc(AlphaActivation, function=activation_elu):
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_celu(input: ArrayLike, alpha: calls.FloatNumber = 1.0) -> Array:
    """Computes the continuously differentiable ELU (CELU).

    The result is `max(0, input) + min(0, alpha * (exp(input / alpha) - 1))`. With an `alpha` of 0, a negative element
    gives 0.

    Args:
        alpha: Limit of the magnitude of negative results.

    >>> activation_celu(jnp.array([-jnp.inf, 0.0, 2.0]), 0.5).tolist()
    [-0.5, 0.0, 2.0]
    """
    return calls.apply_to_floats(
        lambda x, alpha: _apply_below_zero(lambda x: alpha * lax.expm1(x / alpha), x), alpha, input=input
    )


class ActivationCeluDesc(AlphaActivation, function=activation_celu):
    support = dml.support(FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT))


@calls.operator_function
def activation_scaled_elu(
    input: ArrayLike, alpha: calls.FloatNumber = 1.6732, gamma: calls.FloatNumber = 1.0507
) -> Array:
    """Computes the scaled ELU (SELU): `gamma * input` above zero, `gamma * (alpha * exp(input) - alpha)` elsewhere.

    Args:
        alpha: Limit of the magnitude of negative results, before `gamma`.
        gamma: Factor of the result.

    >>> activation_scaled_elu(jnp.array([-jnp.inf, 0.0, 2.0]), 0.5, 3.0).tolist()
    [-1.5, 0.0, 6.0]
    """
    return calls.apply_to_floats(_scaled_elu, alpha, gamma, input=input)


def _scaled_elu(x: Array, alpha: Array, gamma: Array) -> Array:
    is_above = is_above_zero(x)
    below = jnp.where(is_above, jnp.zeros_like(x), x)  # the gradient of an infinite exponential would be NaN
    return gamma * jnp.where(is_above, x, alpha * lax.expm1(below))


class ActivationScaledEluDesc(dml.Activation, function=activation_scaled_elu):
    alpha: dml.Float
    gamma: dml.Float
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_softplus(input: ArrayLike, steepness: calls.FloatNumber = 1.0) -> Array:
    """Computes the softplus, `ln(1 + exp(steepness * input)) / steepness`, even where the exponential overflows.

    Args:
        steepness: Sharpness of the bend at zero; the larger, the closer to the ReLU.

    >>> activation_softplus(jnp.array([-jnp.inf, 1000.0]), 2.0).tolist()
    [0.0, 1000.0]
    """
    return calls.apply_to_floats(
        lambda x, steepness: jax.nn.softplus(steepness * x) / steepness, steepness, input=input
    )


class ActivationSoftplusDesc(dml.Activation, function=activation_softplus):
    steepness: dml.Float
    support = dml.ACTIVATION_SINCE_1_0

    def _low_steepness(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        if feature_level < FeatureLevel.FL_6_4 and not self.steepness.item >= 1:
            yield Problem("Steepness", f"must be at least 1 below {FeatureLevel.FL_6_4}", self.steepness.item)

    attribute_rules = dml.page_rules(
        dml.LevelRule("Below DML_FEATURE_LEVEL_6_4, Steepness is at least 1.", _low_steepness)
    )
    rules = dml.page_rules(*dml.Activation.rules, *attribute_rules)


@calls.operator_function
def activation_parametric_softplus(
    input: ArrayLike, alpha: calls.FloatNumber = 1.0, beta: calls.FloatNumber = 1.0
) -> Array:
    """Computes the parametric softplus, `alpha * ln(1 + exp(beta * input))`, even where the exponential overflows.

    >>> activation_parametric_softplus(jnp.array([-jnp.inf, 1000.0]), 3.0, 2.0).tolist()
    [0.0, 6000.0]
    """
    return calls.apply_to_floats(lambda x, alpha, beta: alpha * jax.nn.softplus(beta * x), alpha, beta, input=input)


class ActivationParametricSoftplusDesc(AlphaBetaActivation, function=activation_parametric_softplus):
    support = dml.ACTIVATION_SINCE_1_0


# Sigmoids


@calls.operator_function
def activation_sigmoid(input: ArrayLike) -> Array:
    """Computes the logistic sigmoid, `1 / (1 + exp(-input))`.

    >>> activation_sigmoid(jnp.array([-jnp.inf, 0.0, 100.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return calls.apply_to_floats(lax.logistic, input=input)


class ActivationSigmoidDesc(dml.Activation, function=activation_sigmoid):
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_hard_sigmoid(input: ArrayLike, alpha: calls.FloatNumber = 0.2, beta: calls.FloatNumber = 0.5) -> Array:
    """Computes the hard sigmoid: `alpha * input + beta`, clipped to [0, 1].

    The gradient is 0 where the result is 0 or 1.

    Args:
        alpha: Slope at zero.
        beta: Result at zero, before it is clipped.

    >>> activation_hard_sigmoid(jnp.array([-9.0, 1.0, 9.0]), 0.25, 0.5).tolist()
    [0.0, 0.75, 1.0]
    """
    return calls.apply_to_floats(_hard_sigmoid, alpha, beta, input=input)


def _hard_sigmoid(x: Array, alpha: Array, beta: Array) -> Array:
    return lax.clamp(np.zeros((), x.dtype), alpha * x + beta, np.ones((), x.dtype))


class ActivationHardSigmoidDesc(AlphaBetaActivation, function=activation_hard_sigmoid):
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_tanh(input: ArrayLike) -> Array:
    """Computes the hyperbolic tangent.

    Infinity gives 1. -infinity gives -1, although the fraction on the page is infinity over infinity there.

    >>> activation_tanh(jnp.array([-jnp.inf, -0.0, 100.0])).tolist()
    [-1.0, -0.0, 1.0]
    """
    return calls.apply_to_floats(lax.tanh, input=input)


class ActivationTanhDesc(dml.Activation, function=activation_tanh):
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_scaled_tanh(input: ArrayLike, alpha: calls.FloatNumber = 1.0, beta: calls.FloatNumber = 0.5) -> Array:
    """Computes the scaled hyperbolic tangent, `alpha * tanh(beta * input)`.

    >>> activation_scaled_tanh(jnp.array([-jnp.inf, 0.0, 100.0]), 3.0).tolist()
    [-3.0, 0.0, 3.0]
    """
    return calls.apply_to_floats(lambda x, alpha, beta: alpha * lax.tanh(beta * x), alpha, beta, input=input)


class ActivationScaledTanhDesc(AlphaBetaActivation, function=activation_scaled_tanh):
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_softsign(input: ArrayLike) -> Array:
    """Computes the softsign, `input / (1 + |input|)`.

    An infinity gives NaN, as in the page's formula.

    >>> activation_softsign(jnp.array([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """
    return calls.apply_to_floats(lambda x: x / (1 + jnp.abs(x)), input=input)


class ActivationSoftsignDesc(dml.Activation, function=activation_softsign):
    support = dml.ACTIVATION_SINCE_1_0


# GELU, swish, identity and linear function


@calls.operator_function
def activation_gelu(input: ArrayLike) -> Array:
    """Computes the Gaussian error linear unit (GELU), `0.5 * input * (1 + erf(input / sqrt(2)))`.

    The complementary error function avoids the cancellation in this sum. -infinity gives NaN, as in the page's formula.

    >>> activation_gelu(jnp.array([-100.0, 0.0, 20.0])).tolist()
    [-0.0, 0.0, 20.0]
    """
    return calls.apply_to_floats(lambda x: jax.nn.gelu(x, approximate=False), input=input)


class ActivationGeluDesc(dml.Activation, function=activation_gelu):
    support = dml.support(FL_5_1=dml.rows(dml.RANK_1_TO_8, FLOAT))


@calls.operator_function
def activation_swish(input: ArrayLike, sigmoid_input_scale: calls.FloatNumber = 1.0) -> Array:
    """Computes the swish, `input * sigmoid(sigmoid_input_scale * input)`.

    An infinity times 0 in this formula gives NaN, as on the page.

    Args:
        sigmoid_input_scale: Factor of `input` inside the sigmoid.

    >>> activation_swish(jnp.array([-2000.0, 0.0, 200.0])).tolist()
    [-0.0, 0.0, 200.0]
    """
    return calls.apply_to_floats(lambda x, scale: x * lax.logistic(scale * x), sigmoid_input_scale, input=input)


class ActivationSwishDesc(dml.Unary, function=activation_swish):
    sigmoid_input_scale: dml.Float
    support = dml.support(FL_6_2=dml.rows(dml.RANK_1_TO_8, FLOAT))


@calls.operator_function
def activation_hard_swish(input: ArrayLike, alpha: calls.FloatNumber = 1 / 6, beta: calls.FloatNumber = 0.5) -> Array:
    """Computes the hard swish: `input` times its hard sigmoid, which is `alpha * input + beta` clipped to [0, 1].

    An infinity times 0 in this product gives NaN, as on the page.

    Args:
        alpha: Slope of the hard sigmoid at zero.
        beta: Value of the hard sigmoid at zero.

    >>> activation_hard_swish(jnp.array([-9.0, 1.0, 9.0]), 0.25, 0.5).tolist()
    [-0.0, 0.75, 9.0]
    """
    return calls.apply_to_floats(lambda x, alpha, beta: x * _hard_sigmoid(x, alpha, beta), alpha, beta, input=input)


class ActivationHardSwishDesc(dml.Unary, function=activation_hard_swish):
    alpha: dml.Float
    beta: dml.Float
    support = dml.support(FL_6_2=dml.rows(dml.RANK_1_TO_8, FLOAT))


@calls.operator_function
def activation_identity(input: ArrayLike) -> Array:
    """Returns each element unchanged, with every bit.

    >>> activation_identity(jnp.array([-0.0, 2.5])).tolist()
    [-0.0, 2.5]
    """
    return calls.float_array("input", input)


class ActivationIdentityDesc(dml.Activation, function=activation_identity):
    support = dml.ACTIVATION_SINCE_1_0


@calls.operator_function
def activation_linear(input: ArrayLike, alpha: calls.FloatNumber = 1.0, beta: calls.FloatNumber = 0.0) -> Array:
    """Computes the linear function `alpha * input + beta`.

    Args:
        alpha: Factor of `input`.
        beta: Added to the product.

    >>> activation_linear(jnp.array([1.0, -2.0]), 3.0, 0.5).tolist()
    [3.5, -5.5]
    """
    return calls.apply_to_floats(lambda x, alpha, beta: alpha * x + beta, alpha, beta, input=input)


class ActivationLinearDesc(AlphaBetaActivation, function=activation_linear):
    support = dml.ACTIVATION_SINCE_1_0
