"""Comparisons by bits, and arrays that break careless code."""

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec as P
from jax.test_util import check_grads
from numpy.typing import NDArray

from dmljax import DmlError, directml
from dmljax.directml import DataType, InvalidDesc, TensorDesc

X64 = bool(jax.config.read("jax_enable_x64"))
needs_x64 = pytest.mark.skipif(not X64, reason="needs 64-bit types")
needs_x32 = pytest.mark.skipif(X64, reason="tests behavior without 64-bit types")

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
FLOATS = [jnp.dtype(name) for name in ("float32", "float16", "bfloat16", *(("float64",) if X64 else ()))]
INTEGERS_4 = [jnp.dtype("int4"), jnp.dtype("uint4")]
INTEGERS = [jnp.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64) if bits < 64 or X64]
REALS = [*FLOATS, *INTEGERS, jnp.dtype("bool")]
# A type that rounds, a 16-bit type that NumPy does not have, the narrowest signed and the widest unsigned integer.
FEW_TYPES = [*map(jnp.dtype, ("float32", "bfloat16", "int8", "uint64" if X64 else "uint32", "bool"))]
FULL = pytest.mark.full  # skipped unless --full is given
SAMPLED = pytest.mark.full(but=1)  # so are all of a test's cases except one
GATE = pytest.mark.gate  # skipped unless --gate or --full is given


def few_of(every: Iterable[Any], *few: Any) -> list[Any]:
    """Parameters of a test: these few by default, all with `--full`."""
    return [value if value in few else pytest.param(value, marks=FULL) for value in every]


def few_types(dtypes: Iterable[Any]) -> list[Any]:
    """Data types of a test: `FEW_TYPES` by default, all with `--full`."""
    return few_of(dtypes, *FEW_TYPES)


def available(data_types: Iterable[DataType]) -> list[DataType]:
    """The data types that JAX has in its configuration, in the header's order."""
    return sorted(data_type for data_type in data_types if data_type.bits <= 32 or X64)


def tensor(data_type: str, *sizes: int) -> TensorDesc:
    return TensorDesc(DataType[data_type], sizes)


def f32(*sizes: int) -> TensorDesc:
    return TensorDesc(DataType.FLOAT32, sizes)


def refuses(message: str, kind: type[Exception] = DmlError) -> AbstractContextManager[Any]:
    """Expects an error with this message, in which `...` stands for any text."""
    return pytest.raises(kind, match="(.|\n)*".join(map(re.escape, message.split("..."))))


def check_refused(desc: Any, change: Mapping[str, Any], message: str, level: str = "6_4") -> None:
    """Checks that a descriptor is valid, and that the change makes it refused with this message."""
    directml.validate(desc, feature_level=level)
    with refuses(f"{type(desc).type} at DML_FEATURE_LEVEL_{level}: ...{message}", InvalidDesc):
        directml.validate(dataclasses.replace(desc, **change), feature_level=level)


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Checks shape, dtype and every bit: NaN equals itself, and -0 is not 0."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype == jax.dtypes.float0:  # the tangents of integers are empty
        actual, expected = actual.astype(bool), expected.astype(bool)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    unsigned = f"u{actual.dtype.itemsize}"
    np.testing.assert_array_equal(
        actual.view(unsigned), expected.view(unsigned), err_msg=f"{actual}\nis not\n{expected}"
    )


# The allowed error of float arithmetic, in units in the last place
UNITS = {"float16": 1, "bfloat16": 1, "float32": 4, "float64": 4}


def units_off(actual: Any, exact: NDArray[Any]) -> NDArray[np.float64]:
    """The error of `actual` in units in the last place of its type; infinity if only one of the two is finite or NaN.

    A subnormal result may be a zero of the same sign; an exact zero must have its sign.
    """
    actual = np.asarray(actual)
    limits = jnp.finfo(actual.dtype)
    # float64 separates units of float32 as well as wider types, which take ten times as long.
    kind = np.longdouble if actual.dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        wide, exact = actual.astype(kind), np.asarray(exact).astype(kind)
        _, exponent = np.frexp(np.maximum(np.abs(exact), float(limits.tiny)))
        unit = np.ldexp(kind(1), np.minimum(exponent - 1, limits.maxexp - 1) - limits.nmant)
        error = np.abs(wide - exact) / unit
        # Beyond the largest number, accept infinity; within a unit of it, also the number itself.
        is_beyond = np.abs(exact) >= float(limits.max)
        error = np.where(
            np.isinf(wide), np.where(is_beyond & (np.signbit(wide) == np.signbit(exact)), 0, np.inf), error
        )
        error = np.where(np.isnan(wide) | np.isnan(exact), np.where(np.isnan(wide) & np.isnan(exact), 0, np.inf), error)
        is_flushed = (wide == 0) & (np.abs(exact) < float(limits.tiny))
    return np.where(is_flushed, np.where(np.signbit(wide) == np.signbit(exact), 0, np.inf), error).astype(np.float64)


def units_beyond(actual: Any, exact: NDArray[Any], rival: Any) -> NDArray[np.float64]:
    """`units_off`, but 0 where `actual` is at most one unit less accurate than `rival`."""
    error = units_off(actual, exact)
    return error if rival is None else np.where(error <= units_off(rival, exact) + 1, 0, error)


def assert_within_units(actual: Any, *alternatives: NDArray[Any]) -> None:
    """Checks that each element is within `UNITS` of one of the `alternatives`; integers must match the first."""
    actual = np.asarray(actual)
    if not jnp.issubdtype(actual.dtype, jnp.floating):
        assert_same_bits(actual, alternatives[0].astype(actual.dtype))
        return
    error = np.min([units_off(actual, exact) for exact in alternatives], axis=0)
    worst = np.unravel_index(np.argmax(error), error.shape)
    places = f"{actual[worst]} at {worst}, not {[float(exact[worst]) for exact in alternatives]}"
    assert error[worst] <= UNITS[actual.dtype.name], f"{error[worst]} units off: {places}"


def assert_near_with_signs(actual: Any, exact: NDArray[Any], units: float = 2) -> None:
    """Checks floats to a few units, with NaN where the exact value is NaN, and with its sign if it is a zero."""
    actual = np.asarray(actual)
    wide, rounded = actual.astype(np.float64), exact.astype(actual.dtype).astype(np.float64)
    np.testing.assert_allclose(wide, rounded, rtol=units * float(jnp.finfo(actual.dtype).eps))
    np.testing.assert_array_equal(np.signbit(wide) & ~np.isnan(wide), np.signbit(rounded) & ~np.isnan(rounded))


def with_subnormals(arrays: Mapping[str, NDArray[Any]], value: float) -> dict[str, NDArray[Any]]:
    """The arrays in float64, with subnormals replaced by zeros of the same sign, or by numbers that are not zero."""

    def replaced(array: NDArray[Any]) -> NDArray[Any]:
        if not jnp.issubdtype(array.dtype, jnp.floating):
            return array
        is_subnormal = (np.abs(array) < jnp.finfo(array.dtype).tiny) & (array != 0)
        wide = array.astype(np.float64)
        return np.where(is_subnormal, np.copysign(value, wide), wide)

    return {field: replaced(array) for field, array in arrays.items()}


def assert_same_trees(actual: Any, expected: Any) -> None:
    """Checks that trees have one structure and leaves with equal shape, dtype and bits."""
    structures = [str(jax.tree.structure(tree)) for tree in (actual, expected)]
    assert structures[0] == structures[1]
    for leaf, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert_same_bits(leaf, other)


def assert_nearly_same_trees(actual: Any, expected: Any, absolute: float = 0) -> None:
    """Checks that trees have one structure and floats that differ only by rounding at every step; any NaN equals any.

    Where most of a sum cancels, the difference is small beside the summands but not the sum: `absolute` allows it.
    """
    structures = [str(jax.tree.structure(tree)) for tree in (actual, expected)]
    assert structures[0] == structures[1]
    for leaf, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if not jnp.issubdtype(jnp.asarray(other).dtype, jnp.floating):
            assert_same_bits(leaf, other)
            continue
        leaf, other = np.asarray(leaf), np.asarray(other)
        assert (leaf.dtype, leaf.shape) == (other.dtype, other.shape)
        with np.errstate(invalid="ignore"):
            error = np.where(np.abs(leaf - other) <= absolute, 0, units_off(leaf, other))
        assert np.all(error <= 2 * UNITS[leaf.dtype.name]), f"{error.max()} units apart: {leaf}\nand {other}"


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """Collects JAX's events of tracing, lowering and compiling in a block."""
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
    try:
        yield events
    finally:
        jax.monitoring.clear_event_listeners()
        events[:] = [event for event in events if "/jax/core/compile" in event]


def mesh_of(axis_type: AxisType, **axes: int) -> jax.sharding.Mesh:
    """A mesh of devices with these axes, all of one type."""
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(axis_type,) * len(axes))


def at_once(function: Callable[..., Any], arguments: Iterable[Any]) -> list[Any]:
    """Calls a function with each of the arguments, all compiled as one computation."""
    arrays = list(arguments)
    return jax.jit(lambda batches: [function(array) for array in batches])(arrays)  # type: ignore[no-any-return]


def check_shared_and_divided(
    function: Callable[[dict[str, Any]], Any],
    of_devices: tuple[dict[str, Any], dict[str, Any]],
    assert_alike: Callable[[Any, Any], None] = assert_same_trees,
) -> None:
    """Compares a function of arrays and its gradients inside `jax.shard_map` with a loop over two devices.

    By turns, each array is divided while the devices share the others, and shared while they divide the others. The
    gradient by a shared array is the sum over the devices.
    """
    keys, weights = frozenset(of_devices[0]), np.array([1, 3], np.float32)
    cuts = list(dict.fromkeys(cut for key in of_devices[0] for cut in (frozenset({key}), keys - {key})))
    floats = [key for key, x in of_devices[0].items() if x.dtype == np.float32]

    def values_and_grads(arrays: dict[str, Any], weight: Any) -> tuple[Any, dict[str, Any]]:
        def loss(some: dict[str, Any]) -> tuple[Any, Any]:
            values = function(arrays | some)
            leaves = [one.ravel() for one in jax.tree.leaves(values) if one.dtype == np.float32]
            parts = (jnp.vdot(jnp.cos(jnp.arange(one.size, dtype=np.float32)), one) for one in leaves)
            return sum(parts, jnp.float32(0)) * weight, values

        grads, values = jax.grad(loss, has_aux=True)({key: arrays[key] for key in floats})
        return values, grads

    def inside(shared: dict[str, Any], parts: dict[str, Any], weights: Any) -> list[Any]:
        results = []
        for cut in cuts:
            arrays = {key: parts[key][0] if key in cut else shared[key] for key in keys}
            values, grads = values_and_grads(arrays, weights[0])
            grads = {key: one[None] if key in cut else one for key, one in grads.items()}
            results.append((jax.tree.map(lambda one: one[None], values), grads))
        return results

    of_slopes = [{key: P("devices") if key in cut else P() for key in floats} for cut in cuts]
    mapped = jax.shard_map(
        inside,
        mesh=mesh_of(AxisType.Auto, devices=2),
        in_specs=(P(), P("devices"), P("devices")),
        out_specs=[(P("devices"), one) for one in of_slopes],
    )
    parts = jax.tree.map(lambda *both: np.stack(both), *of_devices)
    alone = jax.jit(values_and_grads)
    for cut, (values, grads) in zip(cuts, jax.jit(mapped)(of_devices[0], parts, weights), strict=True):
        every = [
            alone({key: (one if key in cut else of_devices[0])[key] for key in keys}, weight)
            for one, weight in zip(of_devices, weights, strict=True)
        ]
        assert_alike(values, jax.tree.map(lambda *both: np.stack(both), *(one for one, _ in every)))
        for key in floats:
            both = np.stack([of_one[key] for _, of_one in every])
            expected = both if key in cut else both.sum(0)
            np.testing.assert_allclose(
                grads[key], expected, rtol=1e-5, atol=1e-5 * np.abs(both).max(initial=0), err_msg=f"{key}, {cut}"
            )


_COLLECTIVE = re.compile(
    r" = (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter|ragged-all-to-all)(?:-start)?\("
)


def collectives(compiled: Any) -> list[tuple[str, int]]:
    """The collectives of a compiled computation, each with the bytes of its results on one device."""
    return [
        (name, sum(_bytes(dtype) * math.prod(map(int, filter(None, sizes.split(",")))) for dtype, sizes in arrays))
        for results, name in _COLLECTIVE.findall(compiled.as_text())
        if (arrays := re.findall(r"(\w+)\[([\d,]*)\]", results))
    ]


def _bytes(hlo_dtype: str) -> int:
    return 1 if hlo_dtype == "pred" else int(re.sub(r"\D", "", hlo_dtype)) // 8


def transposes(function: Callable[..., Any], *arguments: Any) -> dict[str, int]:
    """The number of transposes in a function, lowered for each platform; XLA computes those of constants only once."""
    traced = jax.jit(function).trace(*arguments)
    texts = {name: traced.lower(lowering_platforms=(name,)).as_text() for name in ("cpu", "cuda", "tpu")}
    return {name: len(re.findall(r"stablehlo\.transpose %(?!cst)", text)) for name, text in texts.items()}


def check_linear_gradients(function: Callable[..., Any], arguments: tuple[Any, ...], *, order: int = 2) -> None:
    """Compares forward and backward derivatives of a function that is linear in its floats with finite differences.

    Wide steps are exact for such a function, and make float32's rounding negligible.
    """
    check_grads(function, arguments, order=order, eps=0.5)


def specials(dtype: Any) -> NDArray[Any]:
    """The values of a dtype that break careless code."""
    dtype = jnp.dtype(dtype)
    if dtype == np.bool_:
        return np.array([False, True])
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        return np.array([info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max, info.max // 2], dtype)
    bits = dtype.itemsize * 8
    infinity = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
    smallest_normal = int(np.array(jnp.finfo(dtype).tiny, dtype).view(f"u{dtype.itemsize}"))
    positive = [
        0,
        1,  # the smallest subnormal
        2,
        smallest_normal - 1,  # the largest subnormal
        smallest_normal,
        int(np.array(1, dtype).view(f"u{dtype.itemsize}")),
        infinity - 1,  # the largest number
        infinity,
        infinity + 1,  # a signaling NaN
        infinity | ((infinity & -infinity) >> 1),  # the usual quiet NaN
        2 ** (bits - 1) - 1,  # a quiet NaN with all bits set
    ]
    raw = np.array(positive + [value | 1 << (bits - 1) for value in positive], f"u{dtype.itemsize}")
    return raw.view(dtype)


def wrapped(value: int, dtype: Any) -> int:
    """A Python integer in the type's bits."""
    bits = dtype.itemsize * 8
    value &= 2**bits - 1
    return value - 2**bits if dtype.kind == "i" and value >= 2 ** (bits - 1) else value


def pairs(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Every pair of the values, as the left and the right operands."""
    return np.repeat(values, len(values)), np.tile(values, len(values))


def random_array(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """A third special values, a third random bits, a third small numbers, so that ties and zeros are frequent."""
    dtype = jnp.dtype(dtype)
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    count = int(np.prod(shape))
    unsigned = f"u{dtype.itemsize}"
    special = rng.choice(specials(dtype).view(unsigned), count)
    bits = np.frombuffer(rng.bytes(count * dtype.itemsize), unsigned)
    small = rng.integers(0, 3, count).astype(dtype).view(unsigned)
    raw = np.choose(rng.integers(0, 3, count), [special, bits, small])
    if dtype in INTEGERS_4:  # the other half of the byte is 0
        raw = raw & np.uint8(15)
    if dtype == jnp.bfloat16:  # a processor with native bfloat16 may turn subnormals into zeros
        raw = np.where(raw & 0x7F80, raw, raw & 0x8000)
    return np.asarray(raw.view(dtype).reshape(shape))


def random_indices(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...], size: int) -> NDArray[Any]:
    """Indices in range from either end, just outside, and at the extremes of their type."""
    info = np.iinfo(dtype)
    near = rng.integers(max(-size - 2, info.min), min(size + 2, info.max), shape, endpoint=True)
    extreme = rng.choice(np.array([info.min, info.min + 1, info.max - 1, info.max], dtype), shape)
    return np.where(rng.random(shape) < 0.2, extreme, near.astype(dtype))
