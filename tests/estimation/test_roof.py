"""The roof of a program's work follows from its shapes: arrays moved once, or products at the peak rate."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas

from dmljax.estimation import roof
from dmljax.estimation.roofline import Factors, bytes_of, products_of


def array(*sizes: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def products(function: Any, *inputs: Any) -> dict[Factors, int]:
    return dict(products_of(jax.make_jaxpr(function)(*inputs).jaxpr))


MATRICES = array(8, 16), array(16, 4)
OF_MATRICES = {Factors(32): 2 * 8 * 16 * 4}


@pytest.mark.parametrize(
    ("target", "dtype", "precision", "microseconds"),
    [
        ("h100", "float32", None, 278),  # as TF32
        ("h100", "float32", "highest", 2054),
        ("h100", "bfloat16", None, 139),
        ("h100", "float64", None, 2054),
        ("v5e", "float32", None, 698),  # as bfloat16
        ("v5e", "float32", "highest", 4186),
        ("v5e", "float16", None, 698),
        ("v5e", "int8", None, 349),
    ],
)
def test_a_large_product_takes_the_peak_rate_of_its_type(
    target: str, dtype: str, precision: Any, microseconds: float
) -> None:
    with jax.enable_x64(True):
        x = array(4096, 4096, dtype=dtype)
        assert 1e6 * roof(target, partial(jnp.matmul, precision=precision), x, x) == pytest.approx(
            microseconds, rel=2e-3
        )


def test_small_work_takes_the_time_of_its_bytes() -> None:
    assert roof("h100", jnp.matmul, *MATRICES) == pytest.approx(4 * (8 * 16 + 16 * 4 + 8 * 4) / 3.35232e12)


def test_only_results_and_arguments_that_are_read_count_as_moved() -> None:
    read = bytes_of(jax.make_jaxpr(lambda x, _, y: (x + 1, y))(array(8), array(9), array(7, dtype=jnp.bfloat16)))
    assert read == 2 * 8 * 4 + 2 * 7 * 2
    assert bytes_of(jax.make_jaxpr(lambda x: x.astype(jnp.int4))(array(8, dtype=jnp.int8))) == 8 + 4


@pytest.mark.parametrize(
    "function",
    [
        jax.jit(jnp.matmul),
        jax.checkpoint(jnp.matmul),
        lambda x, y: lax.scan(lambda sum, row: (sum, row @ y), 0.0, x)[1],
        lambda x, y: lax.cond(x[0, 0] > 0, lambda: x @ y, lambda: x[:, :1] @ y[:1]),
        lambda x, y: lax.while_loop(lambda z: z[0, 0] > 0, lambda z: x @ y, jnp.zeros((8, 4), "float32")),
    ],
)
def test_products_inside_other_operations_count(function: Any) -> None:
    assert products(function, *MATRICES) == OF_MATRICES


def test_a_convolution_counts_the_filter_of_each_result() -> None:
    forward = partial(lax.conv_general_dilated, window_strides=(2, 2), padding=[(1, 1), (1, 1)])
    x, w = array(8, 6, 16, 16), array(4, 2, 3, 3)
    grouped = partial(forward, feature_group_count=3)
    met = 8 * 3 - 1  # along an axis; the first output reads a zero of the padding
    assert products(forward, x, array(4, 6, 3, 3)) == {Factors(32): 2 * (8 * 4) * 6 * met**2}
    assert products(grouped, x, array(6, 2, 3, 3)) == {Factors(32): 2 * (8 * 6) * 2 * met**2}
    spread = partial(lax.conv_general_dilated, window_strides=(1, 1), padding=[(0, 0)] * 2, lhs_dilation=(2, 2))
    met = 7 * 2 + 6 * 1  # outputs that read two elements, and those that read one between zeros
    assert products(spread, array(8, 2, 8, 8), w) == {Factors(32): 2 * (8 * 4) * 2 * met**2}


def test_causal_attention_needs_half_of_its_products() -> None:
    x = array(4, 2048, 16, 128, dtype=jnp.bfloat16)
    causal = partial(jax.nn.dot_product_attention, is_causal=True)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        every = roof("v5e", jax.nn.dot_product_attention, x, x, x)
        assert every == pytest.approx(2 * 2 * 4 * 16 * 2048**2 * 128 / 197e12)
        assert roof("v5e", causal, x, x, x, share=0.5) == every / 2


def test_a_pallas_kernel_counts_as_it_declares_or_as_often_as_it_runs() -> None:
    def kernel(x: Any, y: Any, z: Any) -> None:
        z[...] = x[...] @ y[...]

    block = pallas.BlockSpec((2, 16), lambda i: (i, 0))
    call = partial(
        pallas.pallas_call,
        kernel,
        out_shape=array(8, 4),
        grid=(4,),
        in_specs=[block, pallas.BlockSpec((16, 4), lambda i: (0, 0))],
        out_specs=pallas.BlockSpec((2, 4), lambda i: (i, 0)),
    )
    assert products(call(), *MATRICES) == OF_MATRICES
    declared = pallas.CostEstimate(flops=123, bytes_accessed=0, transcendentals=0)
    assert products(call(cost_estimate=declared), *MATRICES) == {Factors(32): 123}
