"""Derivatives are accurate and finite: at kinks, at infinity, and at both ends of the range.

They are compared with formulas in float64, or with JAX's derivatives of such formulas.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import ELEMENTWISE
from helpers import FULL, GATE, SAMPLED, needs_x64
from numpy.typing import NDArray
from scalar_functions import DEFINED, dense, scalar_function
from scipy import special

import dmljax
from dmljax import directml
from dmljax.directml import DataType

Arr = NDArray[Any]

# The largest number whose square is in range, as JAX's derivatives need it

LARGEST = 1e18

# With respect to the input

SIGMOID = special.expit
SQRT_2_PI = np.sqrt(2 * np.pi)


def elu(x: Arr, alpha: float) -> Arr:
    return np.where(x >= 0, 1, alpha * np.exp(np.minimum(x, 0)))


def inside(x: Arr, alpha: float, beta: float) -> Arr:
    line = alpha * x + beta
    return np.where((line > 0) & (line < 1), alpha, 0.0)


# By operator, for the attributes in `ELEMENTWISE`.
DERIVATIVES: dict[str, Callable[[Arr], Any]] = {
    "ELEMENT_WISE_ABS": lambda x: np.where(x == 0, np.nan, np.sign(x)),
    "ELEMENT_WISE_ACOS": lambda x: -1 / np.sqrt(1 - x * x),
    "ELEMENT_WISE_ACOSH": lambda x: np.where(x > 1, 1 / np.sqrt(x * x - 1), np.nan),
    "ELEMENT_WISE_ASIN": lambda x: 1 / np.sqrt(1 - x * x),
    "ELEMENT_WISE_ASINH": lambda x: 1 / np.sqrt(1 + x * x),
    "ELEMENT_WISE_ATAN": lambda x: 1 / (1 + x * x),
    "ELEMENT_WISE_ATANH": lambda x: np.where(np.abs(x) < 1, 1 / (1 - x * x), np.nan),
    "ELEMENT_WISE_CEIL": np.zeros_like,
    "ELEMENT_WISE_COS": lambda x: -np.sin(x),
    "ELEMENT_WISE_COSH": np.sinh,
    "ELEMENT_WISE_ERF": lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x),
    "ELEMENT_WISE_EXP": np.exp,
    "ELEMENT_WISE_FLOOR": np.zeros_like,
    "ELEMENT_WISE_LOG": lambda x: np.where(x > 0, 1 / x, np.nan),
    "ELEMENT_WISE_RECIP": lambda x: -1 / (x * x),
    "ELEMENT_WISE_SIN": np.cos,
    "ELEMENT_WISE_SINH": np.cosh,
    "ELEMENT_WISE_SQRT": lambda x: 0.5 / np.sqrt(x),
    "ELEMENT_WISE_TAN": lambda x: 1 / np.cos(x) ** 2,
    "ELEMENT_WISE_TANH": lambda x: 1 / np.cosh(x) ** 2,
    "ELEMENT_WISE_CONSTANT_POW": lambda x: 1.5 * np.sqrt(x),
    "ACTIVATION_CELU": lambda x: np.where(x >= 0, 1, np.exp(np.minimum(x, 0) / 0.7)),
    "ACTIVATION_ELU": lambda x: elu(x, 0.7),
    "ACTIVATION_GELU": lambda x: special.ndtr(x) + np.clip(x, -99, 99) * np.exp(-x * x / 2) / SQRT_2_PI,
    "ACTIVATION_HARD_SIGMOID": lambda x: inside(x, 0.3, 0.4),
    "ACTIVATION_HARD_SWISH": lambda x: np.clip(0.3 * x + 0.4, 0, 1) + x * inside(x, 0.3, 0.4),
    "ACTIVATION_LEAKY_RELU": lambda x: np.where(x >= 0, 1, 0.3),
    "ACTIVATION_LINEAR": lambda x: np.full_like(x, 0.3),
    "ACTIVATION_PARAMETRIC_SOFTPLUS": lambda x: 0.5 * 1.5 * SIGMOID(1.5 * x),
    "ACTIVATION_RELU": lambda x: np.where(x > 0, 1, 0),
    "ACTIVATION_SCALED_ELU": lambda x: 1.0507 * np.where(x > 0, 1, 1.6732 * np.exp(np.minimum(x, 0))),
    "ACTIVATION_SCALED_TANH": lambda x: 0.75 / np.cosh(1.5 * x) ** 2,
    "ACTIVATION_SHRINK": lambda x: np.where(np.abs(x) > 0.5, 1, 0),
    "ACTIVATION_SIGMOID": lambda x: SIGMOID(x) * SIGMOID(-x),
    "ACTIVATION_SOFTPLUS": lambda x: SIGMOID(1.5 * x),
    "ACTIVATION_SOFTSIGN": lambda x: 1 / (1 + np.abs(x)) ** 2,
    "ACTIVATION_SWISH": lambda x: SIGMOID(1.5 * x) + 1.5 * np.clip(x, -999, 999) * SIGMOID(1.5 * x) * SIGMOID(-1.5 * x),
    "ACTIVATION_TANH": lambda x: 1 / np.cosh(x) ** 2,
    "ACTIVATION_THRESHOLDED_RELU": lambda x: np.where(x > 0.7, 1, 0),
}


@SAMPLED
@pytest.mark.parametrize("name", DERIVATIVES)
def test_the_gradient_is_finite_and_right_wherever_the_exact_one_is_finite(name: str) -> None:
    x = dense(np.float32, 20_000, 5)
    x = x[((np.abs(x) >= np.finfo(np.float32).tiny) | (x == 0)) & ~((np.abs(x) > LARGEST) & np.isfinite(x))]
    compute: Any = directml.lower(ELEMENTWISE[name].desc(name, DataType.FLOAT32, x.shape))

    @jax.jit
    def derivatives(x: Any) -> Any:
        output, pull = jax.vjp(compute, x)
        return output, pull(jnp.ones_like(output))[0], jax.jvp(compute, (x,), (jnp.ones_like(x),))[1]

    output, gradient, pushed = map(np.asarray, derivatives(x))
    with np.errstate(all="ignore"):
        exact = np.asarray(DERIVATIVES[name](x.astype(np.float64)), np.float64)
        concerned = np.isfinite(np.asarray(output)) & (np.abs(exact) < 1e37)
        error = np.abs(gradient - exact)
        # Where summands cancel, as at the minimum of swish, errors are relative to the slope of a line to the origin.
        steepness = np.nan_to_num(np.abs(np.asarray(output, np.float64) / x))
    is_wrong = concerned & ~(error <= 1e-36 + 1e-5 * steepness + 1e-4 * np.abs(exact))
    assert not is_wrong.any(), [(x[i], gradient[i], exact[i]) for i in np.flatnonzero(is_wrong)[:5]]
    assert concerned.mean() > 0.2
    np.testing.assert_allclose(np.where(concerned, pushed, 0), np.where(concerned, gradient, 0), rtol=1e-5, atol=1e-6)


@SAMPLED
@pytest.mark.parametrize("exponent_type", [np.float32, np.int32, np.int8])
@pytest.mark.parametrize(
    ("base", "exponent", "derivative"),
    [(0, 1, 1), (0, 2, 0), (0, 0, 0), (-0.0, 1, 1), (-2, 3, 12), (3, -1, -1 / 9), (0, -1, -np.inf), (np.inf, 1, 1)],
)
def test_the_gradient_of_a_power_is_right_at_its_edges(
    base: float, exponent: float, derivative: float, exponent_type: Any
) -> None:
    gradient = jax.grad(dmljax.element_wise_pow)(jnp.float32(base), exponent_type(exponent))
    np.testing.assert_allclose(gradient, derivative, rtol=1e-6)


def test_the_gradient_of_a_fractional_power_equals_the_exact_one() -> None:
    of_base, of_exponent = jax.grad(dmljax.element_wise_pow, argnums=(0, 1))(jnp.float32(2), jnp.float32(0.5))
    np.testing.assert_allclose([of_base, of_exponent], [0.5 * 2**-0.5, 2**0.5 * np.log(2)], rtol=1e-6)
    assert jax.grad(dmljax.element_wise_constant_pow)(jnp.float32(0), 0.5) == np.inf
    assert np.isnan(jax.grad(dmljax.element_wise_constant_pow)(jnp.float32(-2), 0.5))


@SAMPLED
@pytest.mark.parametrize("exponent", [np.int8(-128), np.int16(-(2**15)), np.int32(-(2**31)), np.uint8(0), np.uint32(1)])
@pytest.mark.parametrize("base", [1.01, 0.999, -1.0, 1.0])
def test_the_gradient_of_a_power_is_right_at_the_end_of_the_exponents_type(base: float, exponent: Any) -> None:
    with np.errstate(over="ignore"):
        expected = np.float32(int(exponent) * np.float64(np.float32(base)) ** (int(exponent) - 1))
    np.testing.assert_allclose(jax.grad(dmljax.element_wise_pow)(jnp.float32(base), exponent), expected, rtol=1e-4)


# The derivatives with respect to each input and attribute, in float64


def slopes_of_celu(x: Arr, alpha: Arr) -> tuple[Arr, Arr]:
    ratio = np.minimum(x, 0) / alpha
    return np.where(x >= 0, 1, np.exp(ratio)), np.where(x >= 0, 0, np.expm1(ratio) - ratio * np.exp(ratio))


def derivatives_of_scaled_elu(x: Arr, alpha: Arr, gamma: Arr) -> tuple[Arr, ...]:
    below = np.minimum(x, 0)
    derivatives = gamma * alpha * np.exp(below), gamma * np.expm1(below), alpha * np.expm1(below)
    above = gamma, np.zeros_like(x), x
    return tuple(np.where(x > 0, *both) for both in zip(above, derivatives, strict=True))


def slopes_of_softplus(x: Arr, steepness: Arr) -> tuple[Arr, Arr]:
    distance = np.abs(steepness * x)
    entropy = distance * SIGMOID(-distance) + np.log1p(np.exp(-distance))
    return SIGMOID(steepness * x), -entropy / steepness**2


def derivatives_of_scaled_tanh(x: Arr, alpha: Arr, beta: Arr) -> tuple[Arr, ...]:
    shrunk = np.exp(-2 * np.abs(beta * x))
    derivative = 4 * shrunk / (1 + shrunk) ** 2
    return alpha * beta * derivative, np.tanh(beta * x), alpha * x * derivative


def slopes_of_swish(x: Arr, scale: Arr) -> tuple[Arr, Arr]:
    sigmoid, other = SIGMOID(scale * x), SIGMOID(-scale * x)
    return sigmoid + scale * x * sigmoid * other, x * x * sigmoid * other


def slopes_of_hard_swish(x: Arr, alpha: Arr, beta: Arr) -> tuple[Arr, ...]:
    of_x, of_alpha, of_beta = derivatives_of_hard_sigmoid(x, alpha, beta)
    return np.clip(alpha * x + beta, 0, 1) + x * of_x, x * of_alpha, x * of_beta


def derivatives_of_hard_sigmoid(x: Arr, alpha: Arr, beta: Arr) -> tuple[Arr, ...]:
    line = alpha * x + beta
    return tuple(np.where((line > 0) & (line < 1), derivative, 0) for derivative in (alpha, x, 1))


PARTIAL_DERIVATIVES: dict[str, Callable[..., Any]] = {
    "ACTIVATION_CELU": slopes_of_celu,
    "ACTIVATION_ELU": lambda x, alpha: (elu(x, alpha), np.where(x >= 0, 0, np.expm1(np.minimum(x, 0)))),
    "ACTIVATION_HARD_SIGMOID": derivatives_of_hard_sigmoid,
    "ACTIVATION_HARD_SWISH": slopes_of_hard_swish,
    "ACTIVATION_LEAKY_RELU": lambda x, alpha: (np.where(x >= 0, 1, alpha), np.where(x >= 0, 0, x)),
    "ACTIVATION_LINEAR": lambda x, alpha, beta: (alpha, x, np.ones_like(x)),
    "ACTIVATION_PARAMETRIC_SOFTPLUS": lambda x, alpha, beta: (
        alpha * beta * SIGMOID(beta * x),
        np.logaddexp(0, beta * x),
        alpha * x * SIGMOID(beta * x),
    ),
    "ACTIVATION_SCALED_ELU": derivatives_of_scaled_elu,
    "ACTIVATION_SCALED_TANH": derivatives_of_scaled_tanh,
    "ACTIVATION_SOFTPLUS": slopes_of_softplus,
    "ACTIVATION_SWISH": slopes_of_swish,
    "ELEMENT_WISE_ATAN_YX": lambda y, x: (x / (x * x + y * y), -y / (x * x + y * y)),
    "ELEMENT_WISE_CONSTANT_POW": lambda x, exponent: (
        exponent * np.float_power(x, exponent - 1),
        np.float_power(x, exponent) * np.log(x),
    ),
    "ELEMENT_WISE_DIVIDE": lambda a, b: (1 / b, -a / b**2),
}


def is_away_from_kinks(name: str, operands: list[Arr]) -> Any:
    """Whether inputs are too far from a kink for rounding to decide its side."""
    if "HARD" in name:
        line = operands[1] * operands[0] + operands[2]
        return (np.abs(line - 1) > 1e-6) & (np.abs(line) > 1e-6 * np.abs(operands[2]))
    return operands[0] > 0 if name == "ELEMENT_WISE_CONSTANT_POW" else True


def everyday(rng: np.random.Generator, count: int) -> Arr:
    """Numbers from 1e-3 to 1e3 and their negatives, a fifth of them simple ones."""
    shape = count, 2**16
    drawn = np.exp(rng.uniform(-7, 7, shape)) * rng.choice([-1, 1], shape)
    simple = rng.choice([0, 1, 0.5, 2, 0.1, 3, -1, -0.5, -2], shape)
    return np.where(rng.random(shape) < 0.2, simple, drawn).astype(np.float32)


@SAMPLED
@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("name", PARTIAL_DERIVATIVES)
def test_derivatives_with_respect_to_every_argument_are_finite_and_right(name: str, mode: str) -> None:
    function, _, arguments = scalar_function(name)
    drawn = everyday(np.random.default_rng(3), len(arguments))
    wide = list(drawn.astype(np.float64))
    derivative = jax.grad if mode == "reverse" else _forward
    functions = [function, *(derivative(function, i) for i in range(len(arguments)))]
    value, *derivatives = (
        np.asarray(result, np.float64)
        for result in jax.jit(
            lambda *operands: [jax.vmap(partial_derivative)(*operands) for partial_derivative in functions]
        )(*drawn)
    )
    with np.errstate(all="ignore"):
        expected = PARTIAL_DERIVATIVES[name](*wide)
        concerned = np.isfinite(value) & is_away_from_kinks(name, wide)
        concerned &= DEFINED[name](*wide) if name in DEFINED else True
    for i, (argument, actual) in enumerate(zip(arguments, derivatives, strict=True)):
        with np.errstate(all="ignore"):
            exact = np.broadcast_to(expected[i], actual.shape)
            allowed = 1e-4 * np.abs(exact) + np.nan_to_num(1e-5 * np.abs(value / wide[i])) + 1e-30
            is_known = np.abs(exact) < 1e36
            is_wrong = np.where(is_known, ~(np.abs(actual - exact) <= allowed), np.isnan(actual) & ~np.isnan(exact))
        is_wrong &= concerned
        places = [(drawn[:, k].tolist(), actual[k], exact[k]) for k in np.flatnonzero(is_wrong)[:5]]
        assert not places, f"with respect to {argument}: {places}"
        assert concerned.mean() > 0.3


def _forward(function: Callable[..., Any], i: int) -> Callable[..., Any]:
    def derivative(*operands: Any) -> Any:
        of_one = lambda x: function(*operands[:i], x, *operands[i + 1 :])  # noqa: E731
        return jax.jvp(of_one, (operands[i],), (jnp.ones_like(operands[i]),))[1]

    return derivative


@SAMPLED
@pytest.mark.parametrize("name", [name for name in PARTIAL_DERIVATIVES if name.startswith("ACTIVATION")])
@pytest.mark.parametrize("x", [np.inf, -np.inf])
def test_the_gradient_at_infinity_is_a_number_where_the_function_is_finite(name: str, x: float) -> None:
    function, _, arguments = scalar_function(name)
    for attributes in itertools.product((0.2, -0.7, 3.0), repeat=len(arguments) - 1):
        operands = [np.float32(x), *map(np.float32, attributes)]
        if np.isfinite(function(*operands)):
            gradient = jax.grad(function)(*operands)
            assert np.isfinite(gradient), (attributes, gradient)


@pytest.mark.parametrize("base", [0.0, -0.0])
def test_zero_to_the_power_of_zero_has_no_gradient_in_the_exponent(base: float) -> None:
    assert jax.grad(dmljax.element_wise_pow, 1)(jnp.float32(base), jnp.float32(0)) == 0
    assert jax.grad(dmljax.element_wise_constant_pow, 1)(jnp.float32(base), jnp.float32(0)) == 0


# Second derivatives that XLA does not have, or not finite, beside calculus.
SECOND_DERIVATIVES: dict[str, Callable[[Arr], Any]] = {
    "ELEMENT_WISE_ASINH": lambda x: -x / (1 + x * x) ** 1.5,
    "ELEMENT_WISE_ATAN": lambda x: -2 * x / (1 + x * x) ** 2,
    "ELEMENT_WISE_COS": lambda x: -np.cos(x),
    "ELEMENT_WISE_COSH": np.cosh,
    "ELEMENT_WISE_ERF": lambda x: -4 / np.sqrt(np.pi) * x * np.exp(-x * x),
    "ELEMENT_WISE_EXP": np.exp,
    "ELEMENT_WISE_SIN": lambda x: -np.sin(x),
    "ELEMENT_WISE_SINH": np.sinh,
    "ELEMENT_WISE_TANH": lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2,
    "ACTIVATION_SIGMOID": lambda x: -np.tanh(x / 2) * SIGMOID(x) * SIGMOID(-x),
    "ACTIVATION_SOFTPLUS": lambda x: 1.5 * SIGMOID(1.5 * x) * SIGMOID(-1.5 * x),
    "ACTIVATION_TANH": lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2,
    "ACTIVATION_ELU": lambda x: np.where(x >= 0, 0, 0.7 * np.exp(np.minimum(x, 0))),
    "ACTIVATION_GELU": lambda x: (2 - x * x) * np.exp(-x * x / 2) / SQRT_2_PI,
}


@SAMPLED
@pytest.mark.parametrize(
    "name",
    SECOND_DERIVATIVES,
)
@GATE
def test_the_second_derivative_is_finite_and_right_where_the_exact_one_is_finite(name: str) -> None:
    magnitudes = np.array([0.0, 1e-30, 1e-3, 0.3, 1, 3, 12, 45, 88, 100, 1e4, 1e20], np.float32)
    x = np.concatenate([magnitudes, -magnitudes])
    compute: Any = directml.lower(ELEMENTWISE[name].desc(name, DataType.FLOAT32, x.shape))
    once = jax.grad(lambda x: compute(x).sum())
    twice = jax.jit(lambda x: [jax.grad(lambda x: once(x).sum())(x), jax.jvp(once, (x,), (jnp.ones_like(x),))[1]])
    with np.errstate(all="ignore"):
        exact = np.asarray(SECOND_DERIVATIVES[name](x.astype(np.float64)), np.float64)
    concerned = np.abs(exact) < 1e37
    for actual in twice(x):
        np.testing.assert_allclose(actual[concerned], exact[concerned], rtol=2e-4, atol=1e-6)


# In float64, where JAX differentiates the formulas here
SMOOTH: dict[str, Callable[..., Any]] = {
    "activation_celu": lambda x, alpha: jnp.where(x >= 0, x, alpha * jnp.expm1(x / alpha)),
    "activation_elu": lambda x, alpha: jnp.where(x >= 0, x, alpha * jnp.expm1(x)),
    "activation_parametric_softplus": lambda x, alpha, beta: alpha * jnp.logaddexp(0.0, beta * x),
    "activation_scaled_elu": lambda x, alpha, gamma: gamma * jnp.where(x > 0, x, alpha * jnp.expm1(x)),
    "activation_scaled_tanh": lambda x, alpha, beta: alpha * jnp.tanh(beta * x),
    "activation_softplus": lambda x, steepness: jnp.logaddexp(0.0, steepness * x) / steepness,
    "activation_swish": lambda x, scale: x * jax.nn.sigmoid(scale * x),
    "element_wise_divide": lambda a, b: a / b,
}


@FULL
@needs_x64
@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_with_respect_to_all_pairs_of_arguments_are_right(name: str) -> None:
    def second(function: Callable[..., Any], *modes: Any) -> Callable[..., Any]:
        once = jax.grad(lambda operands: function(*operands))
        return jax.jit(lambda operands: [jax.vmap(again(once))(operands) for again in modes])

    count = SMOOTH[name].__code__.co_argcount
    rng = np.random.default_rng(6)
    operands = (rng.uniform(0.3, 2.5, (500, count)) * rng.choice([-1, 1], (500, count))).astype(np.float32)
    (exact,) = second(SMOOTH[name], jax.jacfwd)(operands.astype(np.float64))
    for actual in second(getattr(dmljax, name), jax.jacfwd, jax.jacrev)(operands):
        np.testing.assert_allclose(actual, exact, rtol=1e-3, atol=1e-5 * np.abs(exact).max())


@SAMPLED
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, np.int32(0), np.int8(1), np.int32(2), np.uint8(3)])
@pytest.mark.parametrize("base", [0.0, -0.0, 1.5, -2.0])
def test_the_second_derivative_of_a_power_is_right_at_its_edges(base: float, exponent: Any) -> None:
    twice = jax.grad(jax.grad(lambda x: dmljax.element_wise_pow(x, exponent)))
    order = float(exponent)
    expected = 0 if order < 2 else order * (order - 1) * base ** (order - 2)
    np.testing.assert_allclose(twice(jnp.float32(base)), expected, rtol=1e-6)


@pytest.mark.parametrize("function", [dmljax.element_wise_modulus_floor, dmljax.element_wise_modulus_truncate])
@pytest.mark.gate(but=1)
def test_the_derivative_of_a_modulus_ignores_an_overflowing_quotient(function: Any) -> None:
    of_a = lambda a: function(a, np.float32(1e-3))  # noqa: E731
    large = jnp.float32(1e38)  # divided by 1e-3, it is infinite
    assert jax.jvp(of_a, (large,), (jnp.float32(1),))[1] == 1
    assert jax.linearize(of_a, large)[1](jnp.float32(1)) == 1
    assert jax.grad(of_a)(large) == 1


@SAMPLED
@pytest.mark.parametrize("y", [np.inf, -np.inf, 3.0, 3e38, 1e-30])
@pytest.mark.parametrize("x", [np.inf, -np.inf, -2.0, 3e38, 1e-30])
def test_the_gradient_of_the_angle_is_finite(y: float, x: float) -> None:
    point = (jnp.float32(y), jnp.float32(x))
    of_y, of_x = jax.grad(dmljax.element_wise_atan_yx, argnums=(0, 1))(*point)
    with np.errstate(all="ignore"):
        square = np.float64(y) ** 2 + np.float64(x) ** 2
        exact = [0.0, 0.0] if np.isinf(square) else [x / square, -y / square]
    np.testing.assert_allclose([float(of_y), float(of_x)], exact, rtol=1e-5, atol=1e-38)


@FULL
@pytest.mark.parametrize("function", [dmljax.activation_softmax, dmljax.activation_log_softmax])
def test_gradients_of_rows_are_finite(function: Any) -> None:
    rows = jnp.array([[0.0, -np.inf, 1.0], [3e38, -3e38, 0.0], [1000.0, 1000.0, -1000.0]], jnp.float32)
    weights = jnp.array([1.0, 2.0, 4.0], jnp.float32)

    def total(rows: Any) -> Any:
        results = function(rows)
        return jnp.sum(jnp.where(jnp.isfinite(results), results, jnp.zeros_like(results)) * weights[None])

    assert np.isfinite(jax.grad(total)(rows)).all()
