"""Accuracy against float64, over float32's range and all of float16 and bfloat16.

`test_every_operator.py` compares integers, copies, selections and predicates bit by bit. This file tests the operators
that round: each is within 4 units in the last place of float32 and 1 of float16 and bfloat16, or as accurate as JAX's
own function in `RIVALS`, except for `SUBNORMAL_INSIDE`. `test_derivatives.py` tests derivatives. The tests also measure
the errors of JAX's idioms and of PyTorch; `RIVALS` decides what is allowed. No error may exceed the one on the page,
for which `--accuracy-table` searches longer.
"""

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_softmax import log_softmax
from families import ELEMENTWISE
from helpers import FULL, GATE, SAMPLED, UNITS, needs_x64, units_beyond, units_off, with_subnormals
from numpy.typing import NDArray
from scalar_functions import BREAKPOINTS, DEFINED, RIVALS, dense, scalar_function
from search import Errors, largest_error, worst_arguments
from test_peers_elementwise import CASES as PEERS

import dmljax
from dmljax import directml
from dmljax.directml import DataType, TensorDesc

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import idioms

Arr = NDArray[Any]
PAGE = Path(__file__).parents[2] / "notebooks" / "accuracy.md"
ROWS = ("SOFTMAX", "SOFTMAX1", "LOG_SOFTMAX", "LOG_SOFTMAX1")
ELSEWHERE = (
    "ELEMENT_WISE_POW",  # below
    "ELEMENT_WISE_ADD1",  # rounds twice: the sum, and the activation's result
)
ROUNDING = [
    name
    for name, case in ELEMENTWISE.items()
    if not case.is_exact and not name.endswith(ROWS) and name not in ELSEWHERE
]
UNARY = [name for name in ROUNDING if len(ELEMENTWISE[name].tensors) == 1]

# Operands left out, by operator, because an intermediate subnormal may become zero.
SUBNORMAL_INSIDE: dict[str, tuple[Callable[..., Any], str]] = {
    "ELEMENT_WISE_MODULUS_FLOOR": (lambda a, b: np.abs(b) < 1e-30, "the remainder, to which `b` is added"),
}


def errors(name: str, desc: directml.Operator, arrays: list[Arr], actual: Arr) -> Arr:
    """The error of each element in units in the last place."""
    with np.errstate(all="ignore"):
        error = units_off(actual, ELEMENTWISE[name].exact_value(desc, *arrays))
        # A subnormal operand may count as zero.
        tiny = jnp.finfo(actual.dtype).tiny
        some = np.flatnonzero(np.any([(np.abs(array) < tiny) & (array != 0) for array in arrays], axis=0))
        samples = {str(i): array[some] for i, array in enumerate(arrays)}
        for value in (0, 1e-300):
            alternative = ELEMENTWISE[name].exact_value(desc, *with_subnormals(samples, value).values())
            error[some] = np.minimum(error[some], units_off(actual[some], alternative))
        if name in SUBNORMAL_INSIDE and actual.dtype != np.float16:
            error[SUBNORMAL_INSIDE[name][0](*arrays)] = 0
    return error


def rival(name: str, arrays: list[Arr], attributes: dict[str, Any]) -> Arr:
    """The result of JAX's own function, computed in float32."""
    *_, arguments = scalar_function(name)
    numbers = [np.float32(attributes[key]) for key in arguments[len(arrays) :]]
    result = jax.jit(RIVALS[name])(*(x.astype(np.float32) for x in arrays), *numbers)
    return np.asarray(result.astype(arrays[0].dtype))


def computed(name: str, desc: directml.Operator, arrays: list[Arr], attributes: dict[str, Any]) -> Arr:
    """The operator's result; descriptors have no bfloat16, of which the function computes it."""
    if arrays[0].dtype != jnp.bfloat16:
        return np.asarray(directml.lower(desc)(*arrays))
    function = getattr(dmljax, name.lower())
    return np.asarray(
        jax.jit(lambda *operands: function(*operands, **{**ELEMENTWISE[name].attributes, **attributes}))(*arrays)
    )


def assert_near(name: str, arrays: list[Arr], attributes: dict[str, Any]) -> float:
    """Checks that results are within the allowed units or as accurate as JAX's own function; returns the error."""
    dtype = arrays[0].dtype
    data_type = DataType.FLOAT16 if dtype == np.float16 else DataType.FLOAT32
    desc = ELEMENTWISE[name].desc(name, data_type, arrays[0].shape, **attributes)
    exact = [array.astype(data_type.dtype) for array in arrays]
    error = errors(name, desc, exact, computed(name, desc, arrays, attributes))
    allowed = np.full_like(error, UNITS[dtype.name])
    if name in RIVALS:
        others = errors(name, desc, exact, rival(name, arrays, {**ELEMENTWISE[name].attributes, **attributes}))
        allowed = np.maximum(allowed, others + 1)
    place = int(np.argmax(np.where(error <= allowed, 0, error)))
    where = [array[place] for array in arrays]
    assert error[place] <= allowed[place], f"{error[place]} units at {where}, where {allowed[place]} are allowed"
    return float(error.max())


def operands(name: str, dtype: Any, count: int) -> list[Arr]:
    arrays = [dense(dtype, count, seed) for seed in range(len(ELEMENTWISE[name].tensors))]
    rng = np.random.default_rng(9)
    return [arrays[0], *(rng.permutation(array) for array in arrays[1:])]


@pytest.mark.full(but=8)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", ROUNDING)
@pytest.mark.gate(but=2)
def test_is_within_a_few_ulp_of_float64(name: str, dtype: Any, record_property: Callable[[str, object], None]) -> None:
    error = assert_near(name, operands(name, dtype, 200_000), {})
    if dtype != np.float32:
        record_property("units", f"{name} {np.dtype(dtype).name} {error:.3g}")


# Beside JAX's idioms and PyTorch, with the attributes of the first case in `test_peers_elementwise.py`

# PyTorch's slope is exactly 1/6, not the nearest float.
OTHER_SLOPE = ("ACTIVATION_HARD_SIGMOID", "ACTIVATION_HARD_SWISH")


@SAMPLED
@pytest.mark.parametrize("name", ROUNDING)
def test_is_as_accurate_with_the_attributes_of_peers(name: str) -> None:
    assert_near(name, operands(name, np.float32, 200_000), attributes_of_peers(name))


@pytest.mark.full(but=8)
@pytest.mark.parametrize("name", ROUNDING)
@pytest.mark.gate(but=2)
def test_the_page_has_the_largest_errors(
    name: str, record_property: Callable[[str, object], None], pytestconfig: pytest.Config
) -> None:
    arrays, is_written = operands(name, np.float32, 200_000), pytestconfig.getoption("--accuracy-table") is not None
    for column, function in columns(name, attributes_of_peers(name)).items():
        units_of = errors_of(name, function, attributes_of_peers(name))
        errors = units_of(*arrays).max()
        if is_written:
            errors = max(errors, largest_error(units_of, len(arrays)))
            record_property("units", f"{name} {column} {errors:.3g}")
        elif column == "dmljax":
            assert float(f"{errors:.3g}") <= listed(name)


def attributes_of_peers(name: str) -> dict[str, Any]:
    case = case_of_peers(name)
    bound = inspect.signature(case.function).bind(*ELEMENTWISE[name].tensors)
    bound.apply_defaults()
    return {key: bound.arguments[key] for key in ELEMENTWISE[name].attributes}


def case_of_peers(name: str) -> Any:
    return next(peer for peer in PEERS.values() if function_of(peer) is getattr(dmljax, name.lower()))


def columns(name: str, attributes: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """The operator in each library, with these attributes."""

    def ours(*arrays: Arr) -> Any:
        return directml.lower(desc_of(name, arrays[0], attributes))(*arrays)

    def of_jax(*arrays: Arr) -> Any:
        return rival(name, [*arrays], attributes)

    peers = case_of_peers(name).peers
    others = {"PyTorch": peers["torch"].run} if "torch" in peers and name not in OTHER_SLOPE else {}
    return {"dmljax": ours, "JAX": of_jax if name in RIVALS else jax.jit(idioms.ELEMENTWISE[name]), **others}


def errors_of(name: str, function: Callable[..., Any], attributes: dict[str, Any]) -> Errors:
    """The errors of a library's function in units in the last place, except at subnormal, infinite and NaN operands.

    The signs of zeros do not count, because the peers do not promise them.
    """

    def units_of(*arrays: Arr) -> Arr:
        tiny = np.finfo(np.float32).tiny
        is_plain = np.all([np.isfinite(x) & ((x == 0) | (np.abs(x) >= tiny)) for x in arrays], axis=0)
        operands = [np.where(is_plain, x, np.float32(1)) for x in arrays]
        actual = np.asarray(function(*operands))
        with np.errstate(all="ignore"):
            exact = ELEMENTWISE[name].exact_value(desc_of(name, operands[0], attributes), *operands)
        is_zero = (actual == 0) & (np.abs(exact) < tiny)
        return np.where(is_plain & ~is_zero, units_off(actual, exact), 0)

    return units_of


def desc_of(name: str, array: Arr, attributes: dict[str, Any]) -> directml.Operator:
    return ELEMENTWISE[name].desc(name, DataType.FLOAT32, array.shape, **attributes)


def listed(name: str) -> float:
    """The largest error of an operator that the page lists."""
    row = re.search(rf"^\| {name} \| (\S+) \|", PAGE.read_text(), re.MULTILINE)
    assert row is not None
    return float(row[1])


def function_of(peer: Any) -> Callable[..., Any]:
    return getattr(peer.function, "func", peer.function)  # type: ignore[no-any-return]


# Sums, on the workloads of `benchmarks/every.py`

SUMS = (
    "ACTIVATION_SOFTMAX1",
    "ACTIVATION_LOG_SOFTMAX1",
    "REDUCE",
    "CUMULATIVE_SUMMATION",
    "GEMM",
    "CONVOLUTION",
    "AVERAGE_POOLING",
    "BATCH_NORMALIZATION_TRAINING",
    "MEAN_VARIANCE_NORMALIZATION1",
    "LP_NORMALIZATION",
    "LOCAL_RESPONSE_NORMALIZATION",
    "LSTM",
    "MULTIHEAD_ATTENTION1",
)


@SAMPLED
@needs_x64
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_as_accurate_as_the_peers_within_a_factor_of_two(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    *_, torch = (
        pytest.importorskip(module, reason="the extra `benchmarks` is not installed")
        for module in ("onnxruntime", "optax", "torch")
    )
    import every
    from workloads import DMLJAX, SEED

    torch.manual_seed(SEED)  # for the weights of recurrent networks
    work = every.every()[name]()
    work = replace(work, inputs=tuple(map(with_fractions, work.inputs)))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"), torch.inference_mode():
        results = {column: work.comparable(work.calls[of]()) for of, column in COLUMNS.items() if of in work.calls}
        exact = work.comparable(jax.jit(work.of_jax["jax.numpy"])(*(x.astype(np.float64) for x in work.inputs)))
    assert exact.dtype == np.float64
    unit = np.spacing(np.float32(np.abs(exact).max()))
    errors = {column: float(np.abs(result - exact).max() / unit) for column, result in results.items()}
    for column, units in errors.items():
        record_property("sums", f"{name} {column} {units:.3g}")
    assert errors.pop(COLUMNS[DMLJAX]) <= 2 * max(errors.values())


COLUMNS = {"dmljax": "dmljax", "jax.numpy": "JAX", "torch": "PyTorch", "onnxruntime": "ONNX-Runtime"}


def with_fractions(x: Arr) -> Arr:
    """Normally distributed numbers instead of integers, whose sums are exact."""
    is_whole = x.ndim > 0 and np.array_equal(x, np.rint(x))
    return np.random.default_rng(x.size).standard_normal(x.shape, x.dtype) if is_whole else x


# The worst arguments and attributes that a search finds


@SAMPLED
@pytest.mark.parametrize("name", ROUNDING)
def test_a_search_for_the_worst_arguments_finds_no_large_error(name: str) -> None:
    function, formula, arguments = scalar_function(name)
    inputs = len(ELEMENTWISE[name].tensors)

    def is_concerned(*operands: Arr) -> Any:
        is_finite = np.all([np.isfinite(attribute) for attribute in operands[inputs:]], axis=0)
        return is_finite & (DEFINED[name](*operands) if name in DEFINED else True)

    compute, rival_of = jax.jit(jax.vmap(function)), jax.jit(jax.vmap(RIVALS[name])) if name in RIVALS else None

    def units_of(*operands: Arr) -> Arr:
        wide = [x.astype(np.float64) for x in operands]
        other = None if rival_of is None else rival_of(*operands)
        with np.errstate(all="ignore"):
            return np.where(is_concerned(*wide), units_beyond(compute(*operands), formula(*wide), other), 0)

    units, where = worst_arguments(units_of, len(arguments), rounds=8)
    assert units <= UNITS["float32"], f"{units} units at {dict(zip(arguments, where, strict=True))}"


def test_the_documentation_has_every_exception() -> None:
    tables = [part for part in PAGE.read_text().split("\n\n") if part.startswith("|")]
    exceptions, _, observed, sums = ([line.split("|")[1] for line in table.splitlines()] for table in tables)
    excepted = [*SUBNORMAL_INSIDE, *ELSEWHERE]
    named = [name.strip() for row in exceptions[2:] for name in row.split(",")]
    assert set(excepted) <= set(named)
    assert {name.strip() for name in observed[2:]} == set(ROUNDING)
    assert {name.strip() for name in sums[2:]} == set(SUMS)


@SAMPLED
@pytest.mark.parametrize("attributes", [{"alpha": 1e-3, "beta": 50.0}, {"alpha": -7.0, "beta": -0.3}], ids=str)
@pytest.mark.parametrize("name", [name for name, case in ELEMENTWISE.items() if "beta" in case.attributes])
def test_is_as_accurate_with_other_attributes(name: str, attributes: dict[str, Any]) -> None:
    assert_near(name, [dense(np.float32, 100_000, 1)], attributes)


@GATE
def test_angles_near_large_multiples_of_a_quarter_turn_are_accurate() -> None:
    rng = np.random.default_rng(5)
    turns = np.arange(1, 200_000) * np.pi / 2
    x = np.concatenate([turns, turns * 2.0 ** rng.integers(0, 100, turns.size)]).astype(np.float32)
    for name, formula in (("sin", np.sin), ("cos", np.cos), ("tan", np.tan)):
        function = getattr(dmljax, f"element_wise_{name}")
        assert units_off(function(x), formula(x.astype(np.float64))).max() <= 2


def test_powers_are_within_a_few_ulp_of_float64() -> None:
    rng = np.random.default_rng(2)
    bases = [np.exp(rng.normal(0, 20, 60_000)), 1 + rng.normal(0, 0.01, 60_000), rng.normal(0, 9, 60_000)]
    exponents = [rng.normal(0, 4, 60_000), rng.normal(0, 4000, 60_000), rng.integers(-30, 30, 60_000)]
    base, exponent = (np.concatenate(parts).astype(np.float32) for parts in (bases, exponents))
    tensor = TensorDesc(DataType.FLOAT32, base.shape)
    desc = directml.ElementWisePowDesc(input=tensor, exponent=tensor, output=tensor)
    actual = np.asarray(directml.lower(desc)(base, exponent))
    assert errors("ELEMENT_WISE_POW", desc, [base, exponent], actual).max() <= UNITS["float32"]


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


@SAMPLED
@needs_x64
@pytest.mark.parametrize("name", UNARY)
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


# The operators inside a caller's computation


@SAMPLED
@pytest.mark.parametrize("name", UNARY)
def test_is_as_accurate_on_arrays_of_one_element(name: str) -> None:
    # XLA treats scalars unlike arrays: it merges products with two constants, for example.
    x = specials_of(name)
    function, formula, arguments = scalar_function(name)
    attributes = [np.float32(ELEMENTWISE[name].attributes[key]) for key in arguments[1:]]
    compute = lambda x: function(x, *attributes)  # noqa: E731
    with np.errstate(all="ignore"):
        exact = formula(x.astype(np.float64), *map(np.float64, attributes))
    looped = jax.jit(lambda x: jax.lax.map(compute, x))(x)
    others = jax.lax.map(lambda x: RIVALS[name](x, *attributes), x) if name in RIVALS else None
    assert units_beyond(looped, exact, others).max() <= UNITS["float32"]
    of_each_rank = jax.jit(lambda *operands: [compute(array) for array in operands])
    for i in range(0, len(x), len(x) // 8):
        other = None if others is None else others[i]
        for result in of_each_rank(x[i], x[i][None], x[i][None, None]):
            assert units_beyond(result.reshape(()), exact[i], other) <= UNITS["float32"], x[i]


def specials_of(name: str) -> Arr:
    """Numbers of all kinds except subnormals."""
    x = np.concatenate([np.linspace(-110, 110, 441), BREAKPOINTS, [1e-37, 1e-20, 1e20, 3e38, np.inf, np.nan]])
    if name == "ELEMENT_WISE_CONSTANT_POW":
        x = np.abs(x)
    return np.concatenate([x, -x]).astype(np.float32)


@SAMPLED
@pytest.mark.parametrize("name", [name for name in ROUNDING if name.startswith("ACTIVATION")])
def test_is_as_accurate_on_values_computed_in_the_same_program(name: str) -> None:
    # XLA may compute a product again where it is used, and not round it there.
    rng = np.random.default_rng(8)
    function, formula, arguments = scalar_function(name)
    inputs = len(ELEMENTWISE[name].tensors)
    attributes = [np.float32(ELEMENTWISE[name].attributes[key]) for key in arguments[inputs:]]
    factors = [rng.normal(0, 5, 4000).astype(np.float32) for _ in range(2 * inputs)]
    products = [a * b for a, b in zip(factors[::2], factors[1::2], strict=True)]
    unrounded = [a.astype(np.float64) * b for a, b in zip(factors[::2], factors[1::2], strict=True)]

    def computed(function: Callable[..., Any]) -> Any:
        @jax.jit
        def compute(*factors: Any) -> Any:
            return function(*(a * b for a, b in zip(factors[::2], factors[1::2], strict=True)), *attributes)

        return compute(*factors)

    numbers = list(map(np.float64, attributes))
    exact = [formula(*(x.astype(np.float64) for x in operands), *numbers) for operands in (products, unrounded)]
    others = computed(RIVALS[name]) if name in RIVALS else None
    error = np.min([units_beyond(computed(function), values, others) for values in exact], axis=0)
    assert error.max() <= UNITS["float32"]


# Quotients by one number, which XLA turns into products with its reciprocal where it can


@FULL
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
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
            directml.lower(directml.ElementWiseDivideDesc(**dict.fromkeys(("a", "b", "output"), DESC[dtype])))(
                a, np.full_like(a, b)
            ),
        ):
            assert units_off(actual, exact).max() <= 0.5


def test_two_divisions_are_not_merged_into_one() -> None:
    twice = jax.jit(lambda x, a, b: dmljax.element_wise_divide(dmljax.element_wise_divide(x, a), b))
    x, tiny = np.full(3, 1e-20, np.float32), np.float32(1e-25)  # its square underflows
    np.testing.assert_allclose(twice(x, tiny, tiny), np.full(3, 1e30), rtol=1e-6)


DESC = {np.float32: TensorDesc(DataType.FLOAT32, (10,)), np.float16: TensorDesc(DataType.FLOAT16, (10,))}


def test_quantization_by_one_scale_rounds_halves_correctly() -> None:
    for scale in range(1, 200):
        halves = (np.arange(-20, 20) + np.float32(0.5)) * np.float32(scale)
        steps = np.rint(halves.astype(np.float64) / scale)
        for shaped_scale in (np.array(scale, np.float32), np.array([scale], np.float32)):
            assert dmljax.element_wise_quantize_linear(halves, shaped_scale, np.int8(0)).tolist() == steps.tolist()


# Rows


def hard_rows(rng: np.random.Generator, count: int, width: int) -> list[Arr]:
    """Rows whose sum is lost by rounding, for example many summands that are small beside one."""
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


@SAMPLED
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("width", [1, 2, 3, 16, 33, 64, 65, 1000, 50257])
def test_softmax_is_as_accurate_as_differences_from_the_maximum(width: int, axis: int) -> None:
    # Each distance is rounded before its exponential, and XLA's version decides the order of sums in long rows.
    unit = np.finfo(np.float32).eps
    for rows in hard_rows(np.random.default_rng(width), max(2, min(500, 100_000 // width)), width):
        x = rows.astype(np.float32)
        logarithms = log_softmax(x, (-1,)).astype(np.float64)
        exponentials, distance = np.exp(logarithms), x.max(axis=-1, keepdims=True).astype(np.float64) - x
        lanes = x if axis == 1 else np.ascontiguousarray(x.T)
        for function, exact, units in (
            (dmljax.activation_softmax1, exponentials, exponentials * (16 + width / 16 + distance)),
            (dmljax.activation_log_softmax1, logarithms, 16 + width / 16 + distance),
        ):
            result = np.asarray(function(lanes, axes=axis), np.float64)
            error = np.abs((result if axis == 1 else result.T) - exact)
            assert np.all(error <= units * unit + np.finfo(np.float32).tiny), function.__name__


def test_the_log_softmax_oracle_equals_the_log_of_the_quotient() -> None:
    rows = np.random.default_rng(4).normal(0, 3, (50, 20)).astype(np.longdouble)
    exponentials = np.exp(rows)
    direct = np.log(exponentials / exponentials.sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(log_softmax(rows, (-1,)).astype(float), direct.astype(float), rtol=1e-13)
