"""Products with weights of few bits, as each platform computes them, on this CPU."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, SAMPLED, collectives, few_of, mesh_of
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from dmljax.lowerings.kernels import few_bits as few_bits_kernels
from dmljax.lowerings.numbers import few_bits
from dmljax.lowerings.numbers.few_bits import WHOLE, Division, Weights, multiply_by_weights, unpack

RNG = np.random.default_rng(5)
PLATFORMS = ("cpu", "gpu", "tpu")


def weights_of(
    columns: int, blocks: int, size: int, bits: int, zeros: str = "bytes", dtype: Any = np.float32
) -> Weights:
    codes = RNG.integers(0, 256, (columns, blocks, size * bits // 8), np.uint8)
    scales = RNG.uniform(-0.2, 0.2, (columns, blocks)).astype(dtype)
    kinds = {
        "bytes": RNG.integers(0, 2**bits, (columns, blocks), np.uint8),
        "floats": RNG.uniform(0, 2**bits, (columns, blocks)).astype(dtype),
        "one": np.full((1, 1), 2 ** (bits - 1), np.uint8),
    }
    return Weights(*map(jnp.asarray, (codes, scales, kinds[zeros])))


def expected_product(a: Any, weights: Weights, bits: int) -> Any:
    """By NumPy, in float64, with weights rounded as products round them."""
    codes, scales, zeros = map(np.asarray, weights)
    places = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = ((codes[..., None] >> places) & (2**bits - 1)).reshape(*codes.shape[:2], -1).astype(scales.dtype)
    matrix = ((numbers - zeros.astype(scales.dtype)[..., None]) * scales[..., None]).astype(a.dtype)
    return np.asarray(a, np.float64) @ matrix.reshape(codes.shape[0], -1)[:, : a.shape[-1]].astype(np.float64).T


def agree(actual: Any, expected: Any, unit: float = 1e-6) -> None:
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=0, atol=unit * max(1, float(np.abs(expected).max(initial=0))))


CASES = [
    (platform, bits, zeros, shape, dtype)
    for platform in PLATFORMS
    for bits, zeros, shape, dtype in (
        (4, "bytes", (1, 96), "float32"),
        (4, "one", (2, 3, 96), "float32"),
        (4, "floats", (3, 96), "float32"),
        (2, "bytes", (3, 96), "float32"),
        (8, "bytes", (3, 90), "float32"),  # the last block is not full
        (4, "one", (1, 81), "float16"),
        (4, "bytes", (20, 96), "bfloat16"),
        (4, "bytes", (70, 96), "float32"),
        (4, "one", (2, 0, 96), "float32"),
    )
] + [
    ("tpu", bits, zeros, shape, dtype)  # where blocks are in eights, in a kernel
    for bits, zeros, shape, dtype in (
        (4, "one", (1, 256), "float16"),
        (4, "bytes", (2, 3, 256), "bfloat16"),
        (2, "bytes", (3, 512), "float32"),
        (8, "one", (3, 256), "float32"),
        (4, "bytes", (300, 256), "float32"),  # too many rows for one program: weights are unpacked before
        (2, "one", (257, 512), "bfloat16"),
    )
]


@SAMPLED
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_equal_numpys_on_every_platform(case: Any, lower_for: Callable[[str], None]) -> None:
    platform, bits, zeros, shape, dtype = case
    weights = weights_of(21, -(-shape[-1] // 32), 32, bits, zeros, jnp.dtype(dtype))
    a = jnp.asarray(RNG.standard_normal(shape), dtype)
    lower_for(platform)
    # Integers on a CPU do not round weights to 16 bits, and a TPU's kernel rounds all factors to them.
    is_rounded = dtype != "float32" or (platform == "tpu" and shape[-1] % 256 == 0)
    unit = float(jnp.finfo(jnp.bfloat16 if platform == "tpu" else dtype).eps) if is_rounded else 1e-6
    agree(jax.jit(partial(multiply_by_weights, bits=bits))(a, weights), expected_product(a, weights, bits), unit)


@GATE
def test_scales_of_float16_are_read_from_their_bits() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    floats = few_bits_kernels._float32(jnp.asarray(bits.view(np.int16)))
    np.testing.assert_array_equal(floats, bits.view(np.float16).astype(np.float32))


@GATE
def test_many_blocks_are_divided_among_programs(lower_for: Callable[[str], None]) -> None:
    weights, a = weights_of(5, 20, 64, 4), jnp.asarray(RNG.standard_normal((2, 1280)), np.float32)
    lower_for("gpu")
    agree(jax.jit(partial(multiply_by_weights, bits=4))(a, weights), expected_product(a, weights, 4))


@pytest.mark.parametrize("size", few_of([16, 32, 128], 128))
@GATE
def test_integers_on_a_cpu_are_as_accurate_as_floats(size: int) -> None:
    weights = weights_of(64, 1024 // size, size, 4)
    a = jnp.asarray(RNG.standard_normal((4, 1024)) * 10.0 ** RNG.uniform(-3, 3, (4, 1)), np.float32)
    expected = expected_product(a, weights, 4)
    errors = [
        np.asarray(jax.jit(partial(lowering, 4, None))(a, *weights)) - expected
        for lowering in (few_bits._multiply_integers, few_bits._multiply_planes)
    ]
    rms = [np.sqrt(np.mean((error / np.abs(expected).max(-1, keepdims=True)) ** 2)) for error in errors]
    assert rms[0] < 4 * rms[1]  # 3.5 times for blocks of 128 on JAX 0.8.0, and less than once for smaller ones


def test_zeros_and_numbers_that_are_not_finite_stay_so() -> None:
    weights = weights_of(4, 2, 16, 4, "one")
    a = np.ones((4, 32), np.float32)
    a[0], a[1, 3], a[2, 20], a[3] = 0, np.nan, np.inf, 1e-42
    actual = np.asarray(jax.jit(partial(multiply_by_weights, bits=4))(jnp.asarray(a), weights))
    np.testing.assert_array_equal(actual[0], 0)
    assert not np.isfinite(actual[1:3]).any()
    assert np.isfinite(actual[3]).all()


def grads_of(a: Any, weights: Weights) -> Any:
    def summed(a: Any, scales: Any) -> Any:
        return jnp.sum(jnp.sin(multiply_by_weights(a, weights._replace(scales=scales), 4)))

    return jax.value_and_grad(summed, (0, 1))(a, weights.scales)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.gate(but=1)
def test_derivatives_are_those_of_the_formula(platform: str, lower_for: Callable[[str], None]) -> None:
    weights, a = weights_of(6, 8, 16, 4), jnp.asarray(RNG.standard_normal((2, 128)), jnp.bfloat16).astype(np.float32)

    def by_formula(a: Any, scales: Any) -> Any:
        return jnp.sum(jnp.sin(few_bits._multiply_planes(4, None, a, weights.codes, scales, weights.zeros)))

    floats = a, weights.scales
    expected, second = jax.jit(
        lambda *x: (jax.grad(by_formula, (0, 1))(*x), jax.jvp(jax.grad(by_formula), x, floats)[1])
    )(*floats)
    lower_for(platform)
    # The kernel of a TPU rounds the weights to bfloat16.
    unit = 0.1 if platform == "tpu" else 1e-4
    by_both: Any = lambda *x: grads_of(x[0], weights._replace(scales=x[1]))[1]  # noqa: E731
    actual, tangent = jax.jit(lambda *x: jax.jvp(by_both, x, floats))(*floats)
    for result, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=unit, atol=unit)
    np.testing.assert_allclose(tangent[0], second, rtol=unit, atol=10 * unit)


@pytest.mark.parametrize("platform", few_of(PLATFORMS, "gpu"))
@GATE
def test_batches_of_rows_and_weights_equal_a_loop(platform: str, lower_for: Callable[[str], None]) -> None:
    a = jnp.asarray(RNG.standard_normal((3, 2, 32)), np.float32)
    one, several = weights_of(6, 2, 16, 4), [weights_of(6, 2, 16, 4) for _ in range(3)]
    lower_for(platform)
    multiply = partial(multiply_by_weights, bits=4)
    agree(jax.jit(jax.vmap(multiply, (0, None)))(a, one), np.stack([expected_product(x, one, 4) for x in a]))
    stacked = Weights(*map(jnp.stack, zip(*several, strict=True)))
    pairs = zip(a, several, strict=True)
    agree(jax.jit(jax.vmap(multiply))(a, stacked), np.stack([expected_product(x, some, 4) for x, some in pairs]))


MESHES = [(platform, axis_type) for platform in PLATFORMS for axis_type in (AxisType.Auto, AxisType.Explicit)]


@SAMPLED
@pytest.mark.parametrize("divided", ["columns", "columns with one zero point", "blocks", "rows"])
@pytest.mark.parametrize("where", MESHES, ids=str)
@GATE
def test_devices_have_columns_or_blocks(where: Any, divided: str, lower_for: Callable[[str], None]) -> None:
    platform, axis_type = where
    mesh = mesh_of(axis_type, model=4)
    zeros = "bytes" if divided in ("columns", "blocks") else "one"
    weights, a = weights_of(32, 4, 16, 4, zeros), jnp.asarray(RNG.standard_normal((4, 64)), np.float32)
    of_weights, of_a = {
        "columns": (P("model"), P()),
        "columns with one zero point": (P("model"), P()),
        "blocks": (P(None, "model"), P(None, "model")),
        "rows": (P(), P("model")),
    }[divided]
    specs = (of_weights if x.size > 1 else P() for x in weights)
    placed = Weights(*(jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(weights, specs, strict=True)))
    a_there = jax.device_put(a, NamedSharding(mesh, of_a))
    lower_for(platform)
    multiply = jax.jit(partial(multiply_by_weights, bits=4))
    agree(multiply(a_there, placed), expected_product(a, weights, 4))
    exchanged = collectives(multiply.lower(a_there, placed).compile())
    assert {name for name, _ in exchanged} <= ({"all-reduce"} if divided == "blocks" else set())


DIVISIONS = {
    "columns": Division("data", "model"),
    "blocks": Division("data", None, "model"),
    "rows": Division("data"),
}


@SAMPLED
@pytest.mark.parametrize("divided", DIVISIONS)
@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
@GATE
def test_several_tpus_have_a_kernel_each(axis_type: AxisType, divided: str, lower_for: Callable[[str], None]) -> None:
    mesh, (rows, columns, blocks) = mesh_of(axis_type, data=2, model=4), DIVISIONS[divided]
    weights, a = weights_of(32, 32, 16, 4), jnp.asarray(RNG.standard_normal((6, 2, 512)), np.float32)
    placed = Weights(*(jax.device_put(x, NamedSharding(mesh, P(columns, blocks))) for x in weights))
    a_there = jax.device_put(a, NamedSharding(mesh, P(rows, None, blocks)))
    # Types tell how an explicit mesh divides arrays.
    division = DIVISIONS[divided] if axis_type is AxisType.Auto else WHOLE
    multiply = jax.jit(partial(multiply_by_weights, bits=4, division=division))
    assert "tpu_custom_call" in multiply.trace(a_there, placed).lower(lowering_platforms=("tpu",)).as_text()
    lower_for("tpu")
    expected = expected_product(a, weights, 4)
    with jax.set_mesh(mesh) if axis_type is AxisType.Explicit else contextlib.nullcontext():
        compiled = multiply.lower(a_there, placed).compile()
    agree(compiled(a_there, placed), expected, 2**-8)
    assert {name for name, _ in collectives(compiled)} == ({"all-reduce"} if blocks else set())
    # A batch of rows, and derivatives by the formula
    batched = jax.jit(jax.vmap(partial(multiply_by_weights, bits=4, division=division), (0, None)))
    agree(batched(a_there, placed), expected, 2**-8)
    grads = jax.jit(lambda a, weights: jax.grad(lambda a: jnp.sum(multiply(a, weights) ** 2))(a))(a_there, placed)
    expected_grads = jax.grad(lambda a: jnp.sum(few_bits._multiply_planes(4, None, a, *weights) ** 2))(a)
    agree(grads.astype(np.float32), np.asarray(expected_grads, np.float64), 0.05)


def test_parts_that_the_kernel_of_a_tpu_does_not_take_are_left_to_xla() -> None:
    mesh = mesh_of(AxisType.Auto, model=4)
    weights, a = weights_of(32, 8, 16, 4), jnp.ones((4, 128), np.float32)  # two blocks of rows for each device
    placed = Weights(*(jax.device_put(x, NamedSharding(mesh, P(None, "model"))) for x in weights))
    for division, has_kernel in (
        (Division(None, None, "model"), False),
        (WHOLE, False),
        (Division(None, "model"), True),
    ):
        multiply = jax.jit(partial(multiply_by_weights, bits=4, division=division))
        text = multiply.trace(a, placed).lower(lowering_platforms=("tpu",)).as_text()
        assert ("tpu_custom_call" in text) is has_kernel


def test_columns_of_bytes_are_in_order() -> None:
    np.testing.assert_array_equal(unpack(jnp.array([[0x21, 0x43]], jnp.uint8), 4), [[1, 2, 3, 4]])
    np.testing.assert_array_equal(unpack(jnp.array([[0b11100100]], jnp.uint8), 2), [[0, 1, 2, 3]])


@GATE
def test_a_loop_on_a_cpu_does_not_unpack_codes_before_it() -> None:
    weights, a = weights_of(256, 8, 32, 4), jnp.ones((1, 256), np.float32)

    def loop(a: Any, weights: Weights) -> Any:
        return jax.lax.fori_loop(0, 4, lambda _, a: a + 1e-3 * multiply_by_weights(a, weights, 4), a)

    memory: Any = jax.jit(loop).lower(a, weights).compile().memory_analysis()
    assert memory.temp_size_in_bytes < weights.codes.size  # unpacked codes have 8 times as many


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.gate(but=1)
def test_precise_products_are_not_rounded(dtype: Any, lower_for: Callable[[str], None]) -> None:
    weights, a = weights_of(21, 8, 32, 4, dtype=dtype), jnp.asarray(RNG.standard_normal((2, 256)), dtype)
    lower_for("tpu")
    with jax.default_matmul_precision("highest"):
        agree(jax.jit(partial(multiply_by_weights, bits=4))(a, weights), expected_product(a, weights, 4))


@pytest.mark.parametrize(("platform", "call"), [("cuda", "triton"), ("tpu", "tpu_custom_call")])
def test_few_rows_are_one_kernel(platform: str, call: str) -> None:
    weights, a = weights_of(256, 8, 32, 4, "one", np.float16), jnp.ones((4, 256), np.float16)
    traced = jax.jit(partial(multiply_by_weights, bits=4)).trace(a, weights)
    assert call in traced.lower(lowering_platforms=(platform,)).as_text()
