"""How exact the operators are, and their gradients: against float64, over float32's range and all of float16.

Integers, copies, selections and predicates are compared bit by bit in `test_every_operator.py`. Here are the operators
that round: each is within 4 units in the last place of float32 and 1 of float16, but for `EXCEPTIONS`.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_elementary import SCALED_UNARY
from cases_softmax import log_softmax
from families import ELEMENTWISE
from helpers import UNITS, needs_x64, specials, units_off, with_subnormals
from numpy.typing import NDArray
from scipy import special
from search import draw, worst_arguments

import dmljax
from dmljax import DataType, TensorDesc

Arr = NDArray[Any]
ROWS = ("SOFTMAX", "SOFTMAX1", "LOG_SOFTMAX", "LOG_SOFTMAX1")
ELSEWHERE = (
    "ELEMENT_WISE_POW",  # below
    "ELEMENT_WISE_ADD1",  # rounds twice: the sum, and what the activation makes of it
)
ROUNDING = [
    name
    for name, case in ELEMENTWISE.items()
    if not case.is_exact and not name.endswith(ROWS) and name not in ELSEWHERE
]

# What is left out, by operator, and why: the operands for which it holds, as a subnormal in the middle may become zero.
SUBNORMAL_INSIDE: dict[str, tuple[Callable[..., Any], str]] = {
    "ELEMENT_WISE_MODULUS_FLOOR": (lambda a, b: np.abs(b) < 1e-30, "the remainder, to which `b` is added"),
}


def dense(dtype: Any, count: int, seed: int) -> Arr:
    """Numbers of all magnitudes, many small ones and those around what functions break at."""
    if dtype == np.float16:
        return np.arange(2**16).astype(np.uint16).view(np.float16)
    rng = np.random.default_rng(seed)
    ranges = [rng.uniform(-size, size, count // 8).astype(np.float32) for size in (1e-3, 0.1, 1, 3, 10, 30, 110, 1000)]
    breakpoints = np.array(BREAKPOINTS + [-x for x in BREAKPOINTS], np.float32).view(np.int32)
    around = breakpoints[:, None] + np.arange(-64, 64, dtype=np.int32)
    raw = [rng.integers(0, 2**32, count, dtype=np.uint32), specials(np.float32), *ranges, around.ravel()]
    return np.concatenate([part.view(np.uint32) for part in raw]).view(np.float32)


BREAKPOINTS = [0.0, 1.0, 0.5, 0.55, 0.41421357, 0.7, 0.34657359, 1.5707963, 14.6, 60.0, 87.33655, 88.72284]


def worst(name: str, desc: dmljax.Operator, arrays: list[Arr]) -> tuple[float, str]:
    """How many units the operator is off at most, and where."""
    actual = np.asarray(dmljax.lower(desc)(*arrays))
    with np.errstate(all="ignore"):
        exact = ELEMENTWISE[name].exact_value(desc, *arrays)
        error = units_off(actual, exact)
        # A subnormal operand may count as zero.
        tiny = np.finfo(actual.dtype).tiny
        some = np.flatnonzero(np.any([(np.abs(array) < tiny) & (array != 0) for array in arrays], axis=0))
        given = {str(i): array[some] for i, array in enumerate(arrays)}
        for value in (0, 1e-300):
            alternative = ELEMENTWISE[name].exact_value(desc, *with_subnormals(given, value).values())
            error[some] = np.minimum(error[some], units_off(actual[some], alternative))
        if name in SUBNORMAL_INSIDE and actual.dtype == np.float32:
            error[SUBNORMAL_INSIDE[name][0](*arrays)] = 0
    place = int(np.argmax(error))
    return float(error[place]), f"{[a[place] for a in arrays]}: {actual[place]}, not {exact[place]}"


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.FLOAT16], ids=str)
@pytest.mark.parametrize("name", ROUNDING)
@pytest.mark.whole
def test_is_within_few_units_of_float64(
    name: str, data_type: DataType, record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> None:
    case = ELEMENTWISE[name]
    count = 40_000 if request.config.getoption("--sample") else 200_000
    arrays = [dense(data_type.dtype, count, seed) for seed in range(len(case.tensors))]
    rng = np.random.default_rng(9)
    arrays[1:] = [rng.permutation(array) for array in arrays[1:]]
    error, where = worst(name, case.desc(name, data_type, arrays[0].shape), arrays)
    record_property("units", f"{name} {data_type.name} {error:.2f}")
    assert error <= UNITS[data_type.dtype.name], f"{error} units at {where}"


# The worst arguments, attributes among them, that a search finds


def scalar_function(name: str) -> tuple[Callable[..., Any], Callable[..., Any], list[str]]:
    """An operator and its formula as functions of scalars: the inputs, and then the attributes that are floats."""
    case = ELEMENTWISE[name]
    attributes = [key for key, value in case.attributes.items() if isinstance(value, float | int) and key not in STATIC]
    static = {key: value for key, value in case.attributes.items() if key not in attributes}
    operator = getattr(dmljax, name.lower())
    inputs = len(case.tensors)

    def function(*given: Any) -> Any:
        return operator(*given[:inputs], **dict(zip(attributes, given[inputs:], strict=True)), **static)

    def formula(*given: Any) -> Any:
        return case.formula(*given[:inputs], **dict(zip(attributes, given[inputs:], strict=True)), **static)

    return function, formula, [*case.tensors, *attributes]


STATIC = ("rounding_mode",)

# Where the formulas have no value, or one by the sign of a zero alone
DEFINED: dict[str, Callable[..., Any]] = {
    "ACTIVATION_CELU": lambda x, alpha: alpha != 0,
    "ACTIVATION_HARD_SIGMOID": lambda x, alpha, beta: alpha * x + beta != 0,
    "ACTIVATION_HARD_SWISH": lambda x, alpha, beta: alpha * x + beta != 0,
    "ELEMENT_WISE_MODULUS_FLOOR": lambda a, b: np.abs(b) > 1e-30,
}


@pytest.mark.parametrize("name", ROUNDING)
@pytest.mark.whole
def test_a_search_for_the_worst_arguments_and_attributes_finds_none_that_is_far_off(
    name: str, record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> None:
    function, formula, arguments = scalar_function(name)
    inputs = len(ELEMENTWISE[name].tensors)

    def is_concerned(*given: Arr) -> Any:
        is_finite = np.all([np.isfinite(attribute) for attribute in given[inputs:]], axis=0)
        return is_finite & (DEFINED[name](*given) if name in DEFINED else True)

    rounds = 3 if request.config.getoption("--sample") else 8
    units, where = worst_arguments(function, formula, len(arguments), rounds, is_concerned)
    record_property("units", f"{name} FLOAT32 {units:.2f}")
    assert units <= UNITS["float32"], f"{units} units at {dict(zip(arguments, where, strict=True))}"


@pytest.mark.whole
def test_a_search_for_the_worst_scale_and_bias_finds_that_they_are_rounded_once() -> None:
    units, where = worst_arguments(
        lambda x, *both: dmljax.element_wise_identity(x, dmljax.ScaleBias(*both)),
        lambda x, scale, bias: x * scale + bias,
        count=3,
        rounds=8,
    )
    assert units <= 0.51, f"{units} units at {where}"


@pytest.mark.whole
def test_the_documentation_has_every_exception() -> None:
    page = (Path(__file__).parents[1] / "notebooks" / "accuracy.md").read_text()
    tables = [part for part in page.split("\n\n") if part.startswith("|")]
    exceptions, seen = ([line.split("|")[1] for line in table.splitlines()] for table in tables)
    excepted = [*SUBNORMAL_INSIDE, *ELSEWHERE]
    named = [name.strip() for row in exceptions[2:] for name in row.split(",")]
    assert set(excepted) <= set(named)
    assert {name.strip() for name in seen[2:]} == set(ROUNDING)


@pytest.mark.parametrize("attributes", [{"alpha": 1e-3, "beta": 50.0}, {"alpha": -7.0, "beta": -0.3}], ids=str)
@pytest.mark.parametrize("name", [name for name, case in ELEMENTWISE.items() if "beta" in case.attributes])
@pytest.mark.whole
def test_is_as_exact_with_other_attributes(name: str, attributes: dict[str, Any]) -> None:
    x = dense(np.float32, 100_000, 1)
    desc = ELEMENTWISE[name].desc(name, DataType.FLOAT32, x.shape, **attributes)
    error, where = worst(name, desc, [x])
    assert error <= UNITS["float32"], f"{error} units at {where}"


@pytest.mark.whole
def test_powers_are_within_few_units_of_float64() -> None:
    rng = np.random.default_rng(2)
    bases = [np.exp(rng.normal(0, 20, 60_000)), 1 + rng.normal(0, 0.01, 60_000), rng.normal(0, 9, 60_000)]
    exponents = [rng.normal(0, 4, 60_000), rng.normal(0, 4000, 60_000), rng.integers(-30, 30, 60_000)]
    base, exponent = (np.concatenate(parts).astype(np.float32) for parts in (bases, exponents))
    tensor = TensorDesc(DataType.FLOAT32, base.shape)
    desc = dmljax.ElementWisePowDesc(input=tensor, exponent=tensor, output=tensor)
    error, where = worst("ELEMENT_WISE_POW", desc, [base, exponent])
    assert error <= UNITS["float32"], f"{error} units at {where}"


@pytest.mark.whole
def test_powers_with_integer_exponents_of_any_size() -> None:
    rng = np.random.default_rng(3)
    exponent = rng.choice([3, -7, 200, 2**24 + 1, 2**31 - 1, -(2**31), -(2**25) - 1], 5000).astype(np.int32)
    base = (
        rng.choice([-1, 1], 5000) * np.exp(rng.uniform(-80, 80, 5000) / np.abs(exponent.astype(np.float64)))
    ).astype(np.float32)
    actual = np.asarray(dmljax.element_wise_pow(base, exponent))
    magnitude = np.exp(np.log(np.abs(base.astype(np.longdouble))) * exponent)
    exact = np.where((base < 0) & (exponent % 2 != 0), -magnitude, magnitude)
    assert units_off(actual, exact).max() <= UNITS["float32"]


@pytest.mark.parametrize("name", SCALED_UNARY)
@pytest.mark.whole
def test_a_scale_and_a_bias_are_rounded_once_before_the_function(name: str) -> None:
    x = dense(np.float32, 20_000, 4)
    scale, bias = np.float32(1.7), np.float32(-0.9)
    with np.errstate(all="ignore"):
        scaled = (x.astype(np.float64) * scale + bias).astype(np.float32)
    case = ELEMENTWISE[name]
    desc = case.desc(name, DataType.FLOAT32, x.shape, scale_bias=dmljax.ScaleBias(scale, bias))
    actual = np.asarray(dmljax.lower(desc)(x))
    with np.errstate(all="ignore"):
        exact = case.formula(scaled.astype(np.float64))
    error = units_off(actual, exact)
    # What rounds differently before the function is one unit off there, and as far as the function takes it after.
    assert np.mean(error > UNITS["float32"]) < 1e-4


@needs_x64
@pytest.mark.parametrize("name", [name for name in ROUNDING if len(ELEMENTWISE[name].tensors) == 1])
@pytest.mark.whole
def test_float64_is_computed_in_float64_at_all_magnitudes(name: str) -> None:
    function, formula, arguments = scalar_function(name)
    attributes = [ELEMENTWISE[name].attributes[key] for key in arguments[1:]]
    magnitudes = np.logspace(-14, 2, 400)
    x = np.concatenate([magnitudes, -magnitudes])
    with np.errstate(all="ignore"):
        exact = formula(x, *map(np.float64, attributes))
    actual = np.asarray(function(x, *attributes))
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, exact, rtol=1e-12, atol=1e-300)


# What XLA makes of the operators inside a caller's computation


@pytest.mark.parametrize("name", [name for name in ROUNDING if len(ELEMENTWISE[name].tensors) == 1])
@pytest.mark.whole
def test_is_as_exact_of_arrays_with_one_element(name: str) -> None:
    # XLA computes with scalars as it does not with arrays: it takes products with two constants together, say.
    x = specials_of(name)
    function, formula, arguments = scalar_function(name)
    attributes = [np.float32(ELEMENTWISE[name].attributes[key]) for key in arguments[1:]]
    compute = lambda x: function(x, *attributes)  # noqa: E731
    with np.errstate(all="ignore"):
        exact = formula(x.astype(np.float64), *map(np.float64, attributes))
    looped = jax.jit(lambda x: jax.lax.map(compute, x))(x)
    assert units_off(looped, exact).max() <= UNITS["float32"]
    of_each_rank = jax.jit(lambda *given: [compute(one) for one in given])
    for one, value in list(zip(x, exact, strict=True))[:: len(x) // 8]:
        for result in of_each_rank(one, one[None], one[None, None]):
            assert units_off(result.reshape(()), value) <= UNITS["float32"], one


def specials_of(name: str) -> Arr:
    """Numbers of all kinds, but no subnormal ones."""
    x = np.concatenate([np.linspace(-110, 110, 441), BREAKPOINTS, [1e-37, 1e-20, 1e20, 3e38, np.inf, np.nan]])
    if name == "ELEMENT_WISE_CONSTANT_POW":
        x = np.abs(x)
    return np.concatenate([x, -x]).astype(np.float32)


@pytest.mark.parametrize("name", [name for name in ROUNDING if name.startswith("ACTIVATION")])
@pytest.mark.whole
def test_is_as_exact_of_what_is_computed_inside_the_same_computation(name: str) -> None:
    # XLA may compute a product again where it is used, and not round it there.
    rng = np.random.default_rng(8)
    function, formula, arguments = scalar_function(name)
    inputs = len(ELEMENTWISE[name].tensors)
    attributes = [np.float32(ELEMENTWISE[name].attributes[key]) for key in arguments[inputs:]]
    factors = [rng.normal(0, 5, 4000).astype(np.float32) for _ in range(2 * inputs)]
    products = [a * b for a, b in zip(factors[::2], factors[1::2], strict=True)]
    unrounded = [a.astype(np.float64) * b for a, b in zip(factors[::2], factors[1::2], strict=True)]

    @jax.jit
    def compute(*factors: Any) -> Any:
        given = [a * b for a, b in zip(factors[::2], factors[1::2], strict=True)]
        return function(*given, *attributes)

    actual = np.asarray(compute(*factors))
    numbers = list(map(np.float64, attributes))
    exact = [formula(*(x.astype(np.float64) for x in given), *numbers) for given in (products, unrounded)]
    assert np.min([units_off(actual, values) for values in exact], axis=0).max() <= UNITS["float32"]


ROW_FUNCTIONS = [dmljax.activation_softmax, dmljax.activation_log_softmax]


# Every kind of computation before short rows and long ones, and one kind before rows of other lengths
BEFORE_ROWS = [
    *itertools.product(["a product", "a square", "a quotient", "a sum of products", "a scaled elu"], [3, 300]),
    *itertools.product(["a product"], [2, 40]),
]


@pytest.mark.parametrize("function", ROW_FUNCTIONS)
@pytest.mark.parametrize(("before", "width"), BEFORE_ROWS)
@pytest.mark.whole
def test_rows_that_are_computed_inside_the_same_computation_are_those_that_are_not(
    function: Any, before: str, width: int
) -> None:
    compute: dict[str, Callable[[Any], Any]] = {
        "a product": lambda x: x * np.float32(3.3),
        "a square": lambda x: x * x,
        "a quotient": lambda x: x / np.float32(3.3),
        "a sum of products": lambda x: x * np.float32(3.3) + jnp.sin(x) * np.float32(1e9),
        "a scaled elu": lambda x: dmljax.activation_scaled_elu(x, 0.7, 3.3),
    }
    rng = np.random.default_rng(width)
    x = rng.normal(0, 1, (50, width)).astype(np.float32) * np.float32(1e9)
    rows = np.asarray(jax.jit(compute[before])(x))
    expected = np.asarray(function(rows))
    fused = np.asarray(jax.jit(lambda x: function(compute[before](x)))(x))
    assert units_off(fused, expected.astype(np.float64)).max() <= UNITS["float32"]
    consumed = jax.jit(lambda x: (function(compute[before](x)) * np.float32(0.5), compute[before](x) + 1))(x)[0]
    assert units_off(consumed, expected.astype(np.float64) / 2).max() <= UNITS["float32"]


# Quotients by one number, which XLA makes products with its reciprocal where it can


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.whole
def test_a_quotient_by_one_number_is_rounded_once(dtype: Any) -> None:
    largest = np.finfo(dtype).max
    a = np.array([1, 7, 49, 829.5, largest / 3, largest, -largest, 0, np.nan, np.inf], dtype)
    for b in map(dtype, (49, 7, 3, largest, 1e-5, -199, np.inf, 0, np.nan)):
        with np.errstate(all="ignore"):
            exact = a.astype(np.longdouble) / b
        for actual in (
            dmljax.element_wise_divide(a, b),
            dmljax.element_wise_divide(a, b[None]),
            jax.jit(lambda a, b=b: dmljax.element_wise_divide(a, b))(a),
            jax.vmap(dmljax.element_wise_divide, (0, None))(a, b),
            jax.jit(lambda a, b: dmljax.element_wise_divide(a, jnp.broadcast_to(b, a.shape)))(a, b),
            dmljax.lower(dmljax.ElementWiseDivideDesc(**dict.fromkeys(("a", "b", "output"), DESC[dtype])))(
                a, np.full_like(a, b)
            ),
        ):
            assert units_off(actual, exact).max() <= 0.5


DESC = {np.float32: TensorDesc(DataType.FLOAT32, (10,)), np.float16: TensorDesc(DataType.FLOAT16, (10,))}


@pytest.mark.whole
def test_quantization_by_one_scale_has_its_halves() -> None:
    for scale in range(1, 200):
        halves = (np.arange(-20, 20) + np.float32(0.5)) * np.float32(scale)
        steps = np.rint(halves.astype(np.float64) / scale)
        for one in (np.array(scale, np.float32), np.array([scale], np.float32)):
            assert dmljax.element_wise_quantize_linear(halves, one, np.int8(0)).tolist() == steps.tolist()


@pytest.mark.whole
def test_celu_with_a_large_alpha_is_the_element() -> None:
    x = np.array([-1e30, -1e37], np.float32)
    error = units_off(dmljax.activation_celu(x, 3e38), np.float32(3e38) * np.expm1(x / np.longdouble(np.float32(3e38))))
    assert error.max() <= UNITS["float32"]


# Rows, whose sums are rounded once for each element


@pytest.mark.parametrize("width", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("spread", [1, 30, 1e4])
@pytest.mark.whole
def test_softmax_is_within_few_units_of_float64(width: int, spread: float) -> None:
    rows = np.random.default_rng(width).normal(0, spread, (64, width)).astype(np.float32)
    for function, formula in (
        (dmljax.activation_softmax, lambda x: np.exp(log_softmax(x, (-1,)))),
        (dmljax.activation_log_softmax, lambda x: log_softmax(x, (-1,))),
    ):
        error = units_off(function(rows), formula(rows))
        assert error.max() <= UNITS["float32"], f"{function.__name__}: {error.max()} units"


def hard_rows(rng: np.random.Generator, count: int, width: int) -> list[Arr]:
    """Rows whose sum is lost by rounding, one way or another: of many summands that are small beside one, say."""
    distance = rng.uniform(0, 25, (count, 1))
    one_and_others = np.repeat(-distance, width, axis=1)
    one_and_others[:, 0] = 0
    return [
        one_and_others,
        -distance * (rng.random((count, width)) < 0.99),
        np.sort(-rng.uniform(0, 30, (count, width)), axis=1),
        -rng.uniform(0, 2, (count, 1)) * rng.integers(0, 60, (count, width)),
        rng.uniform(-1, 1, (count, width)) * rng.choice([1e-3, 1, 100, 1e4, 1e30], (count, 1)),
        1e4 + rng.normal(0, 1, (count, width)),
    ]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("width", [1, 2, 3, 16, 33, 64, 65, 1000, 50257])
@pytest.mark.whole
def test_rows_of_any_length_and_cancellation_are_within_few_units(width: int, axis: int) -> None:
    for rows in hard_rows(np.random.default_rng(width), max(2, min(500, 100_000 // width)), width):
        x = rows.astype(np.float32)
        logarithms = log_softmax(x, (-1,))
        given = x if axis == 1 else np.ascontiguousarray(x.T)
        for function, exact in (
            (dmljax.activation_softmax1, np.exp(logarithms)),
            (dmljax.activation_log_softmax1, logarithms),
        ):
            error = units_off(np.asarray(function(given, axes=axis)).reshape(given.shape), exact if axis else exact.T)
            assert error.max() <= UNITS["float32"], f"{function.__name__}: {error.max()} units"


@pytest.mark.whole
def test_a_long_row_of_little_summands_counts_each() -> None:
    row = np.concatenate([[0], np.full(50256, -20.2)]).astype(np.float32)
    np.testing.assert_allclose(dmljax.activation_softmax(row)[0], 0.99991520, rtol=1e-7)
    row = np.concatenate([[0], np.full(31, -16.7)]).astype(np.float32)
    exact = 1 / (1 + 31 * np.exp(np.float64(np.float32(-16.7))))
    assert units_off(dmljax.activation_softmax(row)[0], exact) <= 1


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.whole
def test_the_derivatives_of_a_long_row_cancel(mode: str) -> None:
    # The softmaxes add up to 1 wherever the row goes, so that the sum has no slope; a plain sum would leave 8e-5.
    row = jnp.concatenate([jnp.zeros(1, np.float32), jnp.full(50256, -20.2, np.float32)])
    if mode == "reverse":
        slope = jax.grad(lambda x: dmljax.activation_softmax(x).sum())(row)
    else:
        slope = jax.jvp(dmljax.activation_softmax, (row,), (jnp.ones_like(row),))[1]
    assert np.abs(slope).max() < 1e-6


@pytest.mark.whole
def test_the_oracle_of_log_softmax_is_the_logarithm_of_the_quotient() -> None:
    rows = np.random.default_rng(4).normal(0, 3, (50, 20)).astype(np.longdouble)
    powers = np.exp(rows)
    direct = np.log(powers / powers.sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(log_softmax(rows, (-1,)).astype(float), direct.astype(float), rtol=1e-13)


@pytest.mark.whole
def test_log_softmax_tells_the_little_that_a_row_lacks() -> None:
    rows = np.array([[0, -40], [0, -17], [50, 33]], np.float32)
    error = units_off(dmljax.activation_log_softmax(rows), log_softmax(rows, (-1,)))
    assert error.max() <= UNITS["float32"]


# Gradients

SIGMOID = special.expit
SQRT_2_PI = np.sqrt(2 * np.pi)


def elu(x: Arr, alpha: float) -> Arr:
    return np.where(x >= 0, 1, alpha * np.exp(np.minimum(x, 0)))


def inside(x: Arr, alpha: float, beta: float) -> Arr:
    line = alpha * x + beta
    return np.where((line > 0) & (line < 1), alpha, 0.0)


# By operator, for the attributes that `ELEMENTWISE` has.
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


@pytest.mark.parametrize("name", DERIVATIVES)
def test_the_gradient_is_finite_and_right_wherever_that_of_the_function_is(name: str) -> None:
    x = dense(np.float32, 20_000, 5)
    x = x[(np.abs(x) >= np.finfo(np.float32).tiny) | (x == 0)]
    compute: Any = dmljax.lower(ELEMENTWISE[name].desc(name, DataType.FLOAT32, x.shape))

    @jax.jit
    def derivatives(x: Any) -> Any:
        output, pull = jax.vjp(compute, x)
        return output, pull(jnp.ones_like(output))[0], jax.jvp(compute, (x,), (jnp.ones_like(x),))[1]

    output, gradient, pushed = map(np.asarray, derivatives(x))
    with np.errstate(all="ignore"):
        exact = np.asarray(DERIVATIVES[name](x.astype(np.float64)), np.float64)
        concerned = np.isfinite(np.asarray(output)) & (np.abs(exact) < 1e37)
        error = np.abs(gradient - exact)
        # Where summands cancel, as at the minimum of swish, the steepness of a line to the origin is the measure.
        steepness = np.nan_to_num(np.abs(np.asarray(output, np.float64) / x))
    is_wrong = concerned & ~(error <= 1e-37 + 1e-5 * steepness + 1e-4 * np.abs(exact))
    assert not is_wrong.any(), [(x[i], gradient[i], exact[i]) for i in np.flatnonzero(is_wrong)[:5]]
    assert concerned.mean() > 0.2
    np.testing.assert_allclose(np.where(concerned, pushed, 0), np.where(concerned, gradient, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exponent_type", [np.float32, np.int32, np.int8])
@pytest.mark.parametrize(
    ("base", "exponent", "slope"),
    [(0, 1, 1), (0, 2, 0), (0, 0, 0), (-0.0, 1, 1), (-2, 3, 12), (3, -1, -1 / 9), (0, -1, -np.inf), (np.inf, 1, 1)],
)
def test_the_gradient_of_a_power_is_right_at_its_edges(
    base: float, exponent: float, slope: float, exponent_type: Any
) -> None:
    gradient = jax.grad(dmljax.element_wise_pow)(jnp.float32(base), exponent_type(exponent))
    np.testing.assert_allclose(gradient, slope, rtol=1e-6)


def test_the_gradient_of_a_fractional_power_is_the_functions() -> None:
    of_base, of_exponent = jax.grad(dmljax.element_wise_pow, argnums=(0, 1))(jnp.float32(2), jnp.float32(0.5))
    np.testing.assert_allclose([of_base, of_exponent], [0.5 * 2**-0.5, 2**0.5 * np.log(2)], rtol=1e-6)
    assert jax.grad(dmljax.element_wise_constant_pow)(jnp.float32(0), 0.5) == np.inf
    assert np.isnan(jax.grad(dmljax.element_wise_constant_pow)(jnp.float32(-2), 0.5))


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


def slopes_of_scaled_elu(x: Arr, alpha: Arr, gamma: Arr) -> tuple[Arr, ...]:
    below = np.minimum(x, 0)
    slopes = gamma * alpha * np.exp(below), gamma * np.expm1(below), alpha * np.expm1(below)
    above = gamma, np.zeros_like(x), x
    return tuple(np.where(x > 0, *both) for both in zip(above, slopes, strict=True))


def slopes_of_softplus(x: Arr, steepness: Arr) -> tuple[Arr, Arr]:
    distance = np.abs(steepness * x)
    entropy = distance * SIGMOID(-distance) + np.log1p(np.exp(-distance))
    return SIGMOID(steepness * x), -entropy / steepness**2


def slopes_of_scaled_tanh(x: Arr, alpha: Arr, beta: Arr) -> tuple[Arr, ...]:
    shrunk = np.exp(-2 * np.abs(beta * x))
    slope = 4 * shrunk / (1 + shrunk) ** 2
    return alpha * beta * slope, np.tanh(beta * x), alpha * x * slope


def slopes_of_swish(x: Arr, scale: Arr) -> tuple[Arr, Arr]:
    sigmoid, other = SIGMOID(scale * x), SIGMOID(-scale * x)
    return sigmoid + scale * x * sigmoid * other, x * x * sigmoid * other


def slopes_of_hard_swish(x: Arr, alpha: Arr, beta: Arr) -> tuple[Arr, ...]:
    of_x, of_alpha, of_beta = slopes_of_hard_sigmoid(x, alpha, beta)
    return np.clip(alpha * x + beta, 0, 1) + x * of_x, x * of_alpha, x * of_beta


def slopes_of_hard_sigmoid(x: Arr, alpha: Arr, beta: Arr) -> tuple[Arr, ...]:
    line = alpha * x + beta
    return tuple(np.where((line > 0) & (line < 1), slope, 0) for slope in (alpha, x, 1))


SLOPES: dict[str, Callable[..., Any]] = {
    "ACTIVATION_CELU": slopes_of_celu,
    "ACTIVATION_ELU": lambda x, alpha: (elu(x, alpha), np.where(x >= 0, 0, np.expm1(np.minimum(x, 0)))),
    "ACTIVATION_HARD_SIGMOID": slopes_of_hard_sigmoid,
    "ACTIVATION_HARD_SWISH": slopes_of_hard_swish,
    "ACTIVATION_LEAKY_RELU": lambda x, alpha: (np.where(x >= 0, 1, alpha), np.where(x >= 0, 0, x)),
    "ACTIVATION_LINEAR": lambda x, alpha, beta: (alpha, x, np.ones_like(x)),
    "ACTIVATION_PARAMETRIC_SOFTPLUS": lambda x, alpha, beta: (
        alpha * beta * SIGMOID(beta * x),
        np.logaddexp(0, beta * x),
        alpha * x * SIGMOID(beta * x),
    ),
    "ACTIVATION_SCALED_ELU": slopes_of_scaled_elu,
    "ACTIVATION_SCALED_TANH": slopes_of_scaled_tanh,
    "ACTIVATION_SOFTPLUS": slopes_of_softplus,
    "ACTIVATION_SWISH": slopes_of_swish,
    "ELEMENT_WISE_ATAN_YX": lambda y, x: (x / (x * x + y * y), -y / (x * x + y * y)),
    "ELEMENT_WISE_CONSTANT_POW": lambda x, exponent: (
        exponent * np.float_power(x, exponent - 1),
        np.float_power(x, exponent) * np.log(x),
    ),
    "ELEMENT_WISE_DIVIDE": lambda a, b: (1 / b, -a / b**2),
}
# A product with a power, or with the square of a steepness, of which a part may be subnormal
LEAST = {"ELEMENT_WISE_CONSTANT_POW": 1e-36, "ACTIVATION_SOFTPLUS": 4e-36}


def is_away_from_kinks(name: str, given: list[Arr]) -> Any:
    """Where rounding does not decide on which side of a kink the operator is."""
    if "HARD" in name:
        line = given[1] * given[0] + given[2]
        return (np.abs(line - 1) > 1e-6) & (np.abs(line) > np.maximum(1e-37, 1e-6 * np.abs(given[2])))
    return given[0] > 0 if name == "ELEMENT_WISE_CONSTANT_POW" else True


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_with_respect_to_every_argument_are_finite_and_right(name: str, mode: str) -> None:
    function, _, arguments = scalar_function(name)
    drawn = draw(np.random.default_rng(3), len(arguments))
    wide = list(drawn.astype(np.float64))
    attributes = wide[len(ELEMENTWISE[name].tensors) :]
    derivative = jax.grad if mode == "reverse" else _forward
    functions = [function, *(derivative(function, i) for i in range(len(arguments)))]
    value, *derivatives = (
        np.asarray(result, np.float64)
        for result in jax.jit(lambda *given: [jax.vmap(one)(*given) for one in functions])(*drawn)
    )
    with np.errstate(all="ignore"):
        slopes = SLOPES[name](*wide)
        concerned = np.isfinite(value) & is_away_from_kinks(name, wide)
        concerned &= np.all([np.isfinite(x) for x in attributes], axis=0)
        concerned &= DEFINED[name](*wide) if name in DEFINED else True
    for i, (argument, actual) in enumerate(zip(arguments, derivatives, strict=True)):
        with np.errstate(all="ignore"):
            exact = np.broadcast_to(slopes[i], actual.shape)
            allowed = 1e-4 * np.abs(exact) + np.nan_to_num(1e-5 * np.abs(value / wide[i])) + LEAST.get(name, 5e-38)
            is_known = np.isfinite(exact) & (np.abs(exact) < 1e36) & np.all(np.isfinite(wide), axis=0)
            is_wrong = np.where(is_known, ~(np.abs(actual - exact) <= allowed), np.isnan(actual) & ~np.isnan(exact))
        is_wrong &= concerned
        places = [(drawn[:, k].tolist(), actual[k], exact[k]) for k in np.flatnonzero(is_wrong)[:5]]
        assert not places, f"with respect to {argument}: {places}"
        assert concerned.mean() > 0.3


def _forward(function: Callable[..., Any], i: int) -> Callable[..., Any]:
    def derivative(*given: Any) -> Any:
        of_one = lambda x: function(*given[:i], x, *given[i + 1 :])  # noqa: E731
        return jax.jvp(of_one, (given[i],), (jnp.ones_like(given[i]),))[1]

    return derivative


@pytest.mark.parametrize("name", [name for name in SLOPES if name.startswith("ACTIVATION")])
@pytest.mark.parametrize("x", [np.inf, -np.inf])
def test_derivatives_at_infinity_are_numbers_where_the_function_is_finite(name: str, x: float) -> None:
    function, _, arguments = scalar_function(name)
    for attributes in itertools.product((0.2, -0.7, 3.0), repeat=len(arguments) - 1):
        given = [np.float32(x), *map(np.float32, attributes)]
        if np.isfinite(function(*given)):
            gradient = jax.grad(function, tuple(range(len(given))))(*given)
            assert np.isfinite(gradient).all(), (attributes, gradient)


@pytest.mark.parametrize("name", SCALED_UNARY)
def test_the_derivative_with_respect_to_a_scale_is_a_number_at_infinity_too(name: str) -> None:
    of_scale = lambda scale, x: getattr(dmljax, name.lower())(x, dmljax.ScaleBias(scale, np.float32(0.5)))  # noqa: E731
    for x in (np.float32(np.inf), np.float32(-np.inf)):
        if np.isfinite(of_scale(np.float32(2), x)):
            assert np.isfinite(jax.grad(of_scale)(np.float32(2), x))


@pytest.mark.parametrize("base", [0.0, -0.0])
def test_zero_to_the_power_of_zero_has_no_slope_in_the_exponent(base: float) -> None:
    assert jax.grad(dmljax.element_wise_pow, 1)(jnp.float32(base), jnp.float32(0)) == 0
    assert jax.grad(dmljax.element_wise_constant_pow, 1)(jnp.float32(base), jnp.float32(0)) == 0


# What XLA has no second derivative of, or one that is not finite, beside what calculus has.
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


@pytest.mark.parametrize("name", SECOND_DERIVATIVES)
def test_the_second_derivative_is_finite_and_right_where_that_of_the_function_is(name: str) -> None:
    magnitudes = np.array([0.0, 1e-30, 1e-3, 0.3, 1, 3, 12, 45, 88, 100, 1e4, 1e20], np.float32)
    x = np.concatenate([magnitudes, -magnitudes])
    compute: Any = dmljax.lower(ELEMENTWISE[name].desc(name, DataType.FLOAT32, x.shape))
    once = jax.grad(lambda x: compute(x).sum())
    twice = jax.jit(lambda x: [jax.grad(lambda x: once(x).sum())(x), jax.jvp(once, (x,), (jnp.ones_like(x),))[1]])
    with np.errstate(all="ignore"):
        exact = np.asarray(SECOND_DERIVATIVES[name](x.astype(np.float64)), np.float64)
    concerned = np.abs(exact) < 1e37
    for actual in twice(x):
        np.testing.assert_allclose(actual[concerned], exact[concerned], rtol=2e-4, atol=1e-6)


# In float64, where JAX differentiates what is written here
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


@needs_x64
@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_with_respect_to_all_pairs_of_arguments_are_right(name: str) -> None:
    def second(function: Callable[..., Any], *modes: Any) -> Callable[..., Any]:
        once = jax.grad(lambda given: function(*given))
        return jax.jit(lambda given: [jax.vmap(again(once))(given) for again in modes])

    count = SMOOTH[name].__code__.co_argcount
    rng = np.random.default_rng(6)
    given = (rng.uniform(0.3, 2.5, (500, count)) * rng.choice([-1, 1], (500, count))).astype(np.float32)
    (exact,) = second(SMOOTH[name], jax.jacfwd)(given.astype(np.float64))
    for actual in second(getattr(dmljax, name), jax.jacfwd, jax.jacrev)(given):
        np.testing.assert_allclose(actual, exact, rtol=1e-3, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, np.int32(0), np.int8(1), np.int32(2), np.uint8(3)])
@pytest.mark.parametrize("base", [0.0, -0.0, 1.5, -2.0])
def test_the_second_derivative_of_a_power_is_right_at_its_edges(base: float, exponent: Any) -> None:
    twice = jax.grad(jax.grad(lambda x: dmljax.element_wise_pow(x, exponent)))
    order = float(exponent)
    expected = 0 if order < 2 else order * (order - 1) * base ** (order - 2)
    np.testing.assert_allclose(twice(jnp.float32(base)), expected, rtol=1e-6)


@pytest.mark.parametrize("function", [dmljax.element_wise_modulus_floor, dmljax.element_wise_modulus_truncate])
def test_the_derivative_of_a_modulus_by_a_constant_counts_nothing(function: Any) -> None:
    of_a = lambda a: function(a, np.float32(1e-3))  # noqa: E731
    large = jnp.float32(1e38)  # so many times 1e-3 that they are infinite
    assert jax.jvp(of_a, (large,), (jnp.float32(1),))[1] == 1
    assert jax.linearize(of_a, large)[1](jnp.float32(1)) == 1
    assert jax.grad(of_a)(large) == 1


def test_a_line_has_the_gradient_of_a_line_in_its_steepness() -> None:
    of_steepness = jax.grad(dmljax.activation_softplus, argnums=1)
    assert of_steepness(jnp.float32(3e38), 1.5) == 0
    assert of_steepness(jnp.float32(-3e38), 1.5) == 0


@pytest.mark.parametrize("x", [-30, -59.5, -60.5, -90, -110, -150, -200])
def test_what_is_multiplied_by_a_tiny_exponential_is_a_number_for_as_long_as_the_product(x: float) -> None:
    with np.errstate(over="ignore"):
        for alpha in (1e-20, 1.0, 1e10, 3e38):
            exact = np.float32(alpha) * np.log1p(np.exp(np.longdouble(x)))
            actual = dmljax.activation_parametric_softplus(np.float32(x), alpha, 1.0)
            assert units_off(actual, exact) <= UNITS["float32"]
    large, scale = np.float32(x * 1e20), np.float32(1e-20)
    exact = large / (1 + np.exp(-np.longdouble(scale) * large))
    assert units_off(dmljax.activation_swish(large, scale), exact) <= UNITS["float32"]


@pytest.mark.parametrize("x", [1e5, 1e20, 5e37])
def test_the_gradient_of_a_large_numbers_asinh_is_its_reciprocal(x: float) -> None:
    np.testing.assert_allclose(jax.grad(dmljax.element_wise_asinh)(jnp.float32(x)), 1 / x, rtol=1e-5)


@pytest.mark.parametrize("y", [np.inf, -np.inf, 3.0, 3e38, 1e-30])
@pytest.mark.parametrize("x", [np.inf, -np.inf, -2.0, 3e38, 1e-30])
def test_the_gradient_of_the_angle_is_finite(y: float, x: float) -> None:
    point = (jnp.float32(y), jnp.float32(x))
    of_y, of_x = jax.grad(dmljax.element_wise_atan_yx, argnums=(0, 1))(*point)
    with np.errstate(all="ignore"):
        square = np.float64(y) ** 2 + np.float64(x) ** 2
        exact = [0.0, 0.0] if np.isinf(square) else [x / square, -y / square]
    np.testing.assert_allclose([float(of_y), float(of_x)], exact, rtol=1e-5, atol=1e-38)


@pytest.mark.parametrize("function", [dmljax.activation_softmax, dmljax.activation_log_softmax])
def test_gradients_of_rows_are_finite(function: Any) -> None:
    rows = jnp.array([[0.0, -np.inf, 1.0], [3e38, -3e38, 0.0], [1000.0, 1000.0, -1000.0]], jnp.float32)
    weights = jnp.array([1.0, 2.0, 4.0], jnp.float32)

    def total(rows: Any) -> Any:
        results = function(rows)
        return jnp.sum(jnp.where(jnp.isfinite(results), results, jnp.zeros_like(results)) * weights[None])

    assert np.isfinite(jax.grad(total)(rows)).all()
