"""What a JAX user writes instead of an operator: a function of jax.numpy, jax.nn or jax.lax, or a few of them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

# Elementwise operators and activations, with the attributes of their first case in test_peers_elementwise.py

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "ELEMENT_WISE_ABS": jnp.abs,
    "ELEMENT_WISE_NEGATE": jnp.negative,
    "ELEMENT_WISE_IDENTITY": lambda x: x,
    "ELEMENT_WISE_SIGN": jnp.sign,
    "ELEMENT_WISE_CEIL": jnp.ceil,
    "ELEMENT_WISE_FLOOR": jnp.floor,
    "ELEMENT_WISE_ROUND": jnp.round,
    "ELEMENT_WISE_SQRT": jnp.sqrt,
    "ELEMENT_WISE_RECIP": jnp.reciprocal,
    "ELEMENT_WISE_EXP": jnp.exp,
    "ELEMENT_WISE_LOG": jnp.log,
    "ELEMENT_WISE_ERF": lax.erf,
    "ELEMENT_WISE_SIN": jnp.sin,
    "ELEMENT_WISE_COS": jnp.cos,
    "ELEMENT_WISE_TAN": jnp.tan,
    "ELEMENT_WISE_ASIN": jnp.arcsin,
    "ELEMENT_WISE_ACOS": jnp.arccos,
    "ELEMENT_WISE_ATAN": jnp.arctan,
    "ELEMENT_WISE_SINH": jnp.sinh,
    "ELEMENT_WISE_COSH": jnp.cosh,
    "ELEMENT_WISE_TANH": jnp.tanh,
    "ELEMENT_WISE_ASINH": jnp.arcsinh,
    "ELEMENT_WISE_ACOSH": jnp.arccosh,
    "ELEMENT_WISE_ATANH": jnp.arctanh,
    "ELEMENT_WISE_CONSTANT_POW": lambda x: x**1.5,
    "ELEMENT_WISE_IS_NAN": jnp.isnan,
    "ELEMENT_WISE_IS_INFINITY": jnp.isinf,
    "ELEMENT_WISE_CLIP": lambda x: jnp.clip(x, 1, 3),
    "ELEMENT_WISE_CLIP1": lambda x: jnp.clip(x, max=3),
    "ELEMENT_WISE_THRESHOLD": lambda x: jnp.maximum(x, 2),
    "ELEMENT_WISE_BIT_NOT": jnp.bitwise_not,
    "ELEMENT_WISE_LOGICAL_NOT": jnp.logical_not,
    "ELEMENT_WISE_ADD": jnp.add,
    "ELEMENT_WISE_ADD1": lambda a, b: jax.nn.leaky_relu(a + b, 0.5),
    "ELEMENT_WISE_SUBTRACT": jnp.subtract,
    "ELEMENT_WISE_MULTIPLY": jnp.multiply,
    "ELEMENT_WISE_DIVIDE": jnp.divide,
    "ELEMENT_WISE_MODULUS_TRUNCATE": jnp.fmod,
    "ELEMENT_WISE_MODULUS_FLOOR": jnp.mod,
    "ELEMENT_WISE_MEAN": lambda a, b: (a + b) / 2,
    "ELEMENT_WISE_DIFFERENCE_SQUARE": lambda a, b: jnp.square(a - b),
    "ELEMENT_WISE_MAX": jnp.maximum,
    "ELEMENT_WISE_MIN": jnp.minimum,
    "ELEMENT_WISE_ATAN_YX": jnp.arctan2,
    "ELEMENT_WISE_POW": jnp.power,
    "ELEMENT_WISE_LOGICAL_EQUALS": jnp.equal,
    "ELEMENT_WISE_LOGICAL_GREATER_THAN": jnp.greater,
    "ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL": jnp.greater_equal,
    "ELEMENT_WISE_LOGICAL_LESS_THAN": jnp.less,
    "ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL": jnp.less_equal,
    "ELEMENT_WISE_LOGICAL_AND": jnp.logical_and,
    "ELEMENT_WISE_LOGICAL_OR": jnp.logical_or,
    "ELEMENT_WISE_LOGICAL_XOR": jnp.logical_xor,
    "ELEMENT_WISE_BIT_AND": jnp.bitwise_and,
    "ELEMENT_WISE_BIT_OR": jnp.bitwise_or,
    "ELEMENT_WISE_BIT_XOR": jnp.bitwise_xor,
    "ELEMENT_WISE_BIT_SHIFT_LEFT": jnp.left_shift,
    "ELEMENT_WISE_BIT_SHIFT_RIGHT": jnp.right_shift,
    "ACTIVATION_RELU": jax.nn.relu,
    "ACTIVATION_LEAKY_RELU": lambda x: jax.nn.leaky_relu(x, 0.3),
    "ACTIVATION_PARAMETERIZED_RELU": lambda x, slope: jnp.where(x >= 0, x, slope * x),
    "ACTIVATION_THRESHOLDED_RELU": lambda x: jnp.where(x > 0.7, x, 0),
    "ACTIVATION_SHRINK": lambda x: jnp.where(jnp.abs(x) > 0.5, x, 0),
    "ACTIVATION_ELU": lambda x: jax.nn.elu(x, 0.7),
    "ACTIVATION_CELU": lambda x: jax.nn.celu(x, 0.7),
    "ACTIVATION_SCALED_ELU": jax.nn.selu,
    "ACTIVATION_SOFTPLUS": jax.nn.softplus,
    "ACTIVATION_PARAMETRIC_SOFTPLUS": lambda x: 0.5 * jax.nn.softplus(1.5 * x),
    "ACTIVATION_SIGMOID": jax.nn.sigmoid,
    "ACTIVATION_HARD_SIGMOID": jax.nn.hard_sigmoid,
    "ACTIVATION_TANH": jnp.tanh,
    "ACTIVATION_SCALED_TANH": lambda x: 0.5 * jnp.tanh(1.5 * x),
    "ACTIVATION_SOFTSIGN": jax.nn.soft_sign,
    "ACTIVATION_GELU": lambda x: jax.nn.gelu(x, approximate=False),
    "ACTIVATION_SWISH": jax.nn.silu,
    "ACTIVATION_HARD_SWISH": jax.nn.hard_swish,
    "ACTIVATION_IDENTITY": lambda x: x,
    "ACTIVATION_LINEAR": lambda x: 0.3 * x + 0.4,
}


# Quantized numbers


def quantized(x: Any, scale: Any, zero: Any) -> Any:
    """Floats as bytes."""
    return jnp.clip(jnp.round(x / scale) + jnp.float32(zero), 0, 255).astype("uint8")


def dequantized(x: Any, scale: Any, zero: Any) -> Any:
    """Bytes as floats."""
    return (x.astype("float32") - jnp.float32(zero)) * scale


def quantized_dynamically(x: Any) -> Any:
    """Floats as bytes, with the scale and the zero point that fit their range."""
    least, most = jnp.minimum(x.min(), 0), jnp.maximum(x.max(), 0)
    scale = (most - least) / 255
    zero = jnp.clip(jnp.round(-least / scale), 0, 255).astype("uint8")
    return quantized(x, scale, zero), scale, zero


# Blocks, windows


def space_to_depth(x: Any) -> Any:
    """Blocks of 2 x 2 before the channels."""
    count, channels, height, width = x.shape
    apart = x.reshape(count, channels, height // 2, 2, width // 2, 2)
    return apart.transpose(0, 3, 5, 1, 2, 4).reshape(count, 4 * channels, height // 2, width // 2)


def depth_to_space(x: Any, are_blocks_first: bool) -> Any:
    """Moves channels back into 2 x 2 blocks, which come before or after the channels."""
    count, channels, height, width = x.shape
    if are_blocks_first:
        apart = x.reshape(count, 2, 2, channels // 4, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        apart = x.reshape(count, channels // 4, 2, 2, height, width).transpose(0, 1, 4, 2, 5, 3)
    return apart.reshape(count, channels // 4, 2 * height, 2 * width)


WINDOWS = (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))  # window, strides, padding


def largest(x: Any) -> Any:
    """The largest of each window."""
    return lax.reduce_window(x, -jnp.inf, lax.max, *WINDOWS)


def averages(x: Any) -> Any:
    """Means of windows, padding included."""
    return lax.reduce_window(x, 0.0, lax.add, *WINDOWS) / 9


def average_gradient(gradient: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of `averages`."""
    return jax.linear_transpose(averages, jax.ShapeDtypeStruct(shape, gradient.dtype))(gradient)[0]


def largest_and_places(x: Any) -> Any:
    """The largest element of each window, and its index in the channel."""
    places = lax.broadcasted_iota("int32", x.shape, 2) * x.shape[3] + lax.broadcasted_iota("int32", x.shape, 3)

    def larger(a: Any, b: Any) -> Any:
        is_first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return jnp.where(is_first, a[0], b[0]), jnp.where(is_first, a[1], b[1])

    return lax.reduce_window((x, places), (-jnp.inf, jnp.int32(x.size)), larger, *WINDOWS)


def unpooled(x: Any, places: Any, shape: tuple[int, ...]) -> Any:
    """Puts elements at their indices among zeros."""
    return jnp.zeros(shape).ravel().at[places.ravel()].set(x.ravel()).reshape(shape)


def folded(x: Any) -> Any:
    """Adds 3 x 3 windows at their positions in a 64 x 64 image."""
    parts = x.reshape(x.shape[0], x.shape[1] // 9, 3, 3, 64, 64)
    places = [(i, j) for i in range(3) for j in range(3)]
    spread = [jnp.pad(parts[:, :, i, j], ((0, 0), (0, 0), (i, 2 - i), (j, 2 - j))) for i, j in places]
    return functools.reduce(jnp.add, spread)[:, :, 1:-1, 1:-1]


# Norms, recurrence


def normalization_gradient(x: Any, g: Any, mean: Any, variance: Any, scale: Any, is_training: bool) -> Any:
    """The gradients of a batch normalization's input, scale and bias; in training, also through mean and variance."""
    inverse = lax.rsqrt(variance + 1e-5)
    normalized = (x - mean) * inverse
    of_scale, of_bias = (jnp.sum(y, (0, 2, 3), keepdims=True) for y in (g * normalized, g))
    through_means = (of_bias + normalized * of_scale) / (x.size / x.shape[1]) if is_training else 0
    return (g - through_means) * inverse * scale, of_scale, of_bias


def simple_network(x: Any, w: Any, r: Any, bias: Any) -> Any:
    """A recurrent network of tanh, and its results of all steps."""

    both = bias.reshape(2, -1).sum(0)[None]

    def step(h: Any, given: Any) -> Any:
        h = jnp.tanh(given + both + h @ r.T)
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], r.shape[0])), x @ w.T)[1]
