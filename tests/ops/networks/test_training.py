"""ADAM_OPTIMIZER; its example runs in test_every_operator.py, and test_peers.py has Optax and PyTorch beside it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import cases_training as oracles
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_training import ADAM, assert_near
from helpers import FLOATS, FULL, GATE, SAMPLED, assert_same_bits, tensor

import dmljax
from dmljax import directml

RNG = np.random.default_rng(0)
PARAMETERS, GRADIENT = (RNG.standard_normal(1000).astype(np.float32) for _ in range(2))
MOMENTS = (0.1 * RNG.standard_normal(1000)).astype(np.float32), (0.01 * RNG.random(1000)).astype(np.float32)
FLOAT32_BETAS = np.array([0, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1 - 2.0**-20, 1 - 2.0**-24], np.float32)
STEPS = np.array([1, 2, 3, 7, 10, 33, 100, 999, 10**4, 10**6, 2**24 + 1, 2**31, 2**32 - 1], np.uint32)


@SAMPLED
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("step", [1, 1000])
def test_equals_the_pseudo_code_rounded_once(dtype: Any, step: int) -> None:
    x, m, v, g = (value.astype(dtype) for value in (PARAMETERS, *MOMENTS, GRADIENT))
    numbers: Any = [float(np.float32(value)) for value in (0.01, 0.9, 0.999, 1e-8)]
    results = dmljax.adam_optimizer(x, m, v, g, step, *numbers)
    for result, exact in zip(results, oracles.adam(x, m, v, g, step, *numbers), strict=True):
        assert result.dtype == dtype
        if dtype.itemsize >= 4:
            assert_near(result, exact, units=2)
        else:  # computed in float32 and rounded once more, rarely to the other side
            assert np.mean(np.asarray(result) == exact.astype(dtype)) > 0.995
            np.testing.assert_allclose(result.astype(np.float32), exact, rtol=float(jnp.finfo(dtype).eps), atol=1e-7)


def test_the_bias_correction_is_accurate_at_any_step_and_decay() -> None:
    betas, steps = (grid.ravel() for grid in np.meshgrid(FLOAT32_BETAS, STEPS))
    one = np.ones(1, np.float32)

    @jax.jit
    def updates(decays: Any, steps: Any) -> Any:
        """Updates a parameter of 0 with moments that do not decay, so that the update is the correction."""

        def update(beta1: Any, beta2: Any, step: Any) -> Any:
            new = dmljax.adam_optimizer(0 * one, one, one, one, step, 1.0, beta1, beta2, 0.0)
            return -new.parameters[0]

        kept = jnp.zeros_like(decays)  # 1 - 0**t is 1
        return jax.vmap(update)(decays, kept, steps), jax.vmap(update)(kept, decays, steps)

    of_first, of_second = updates(betas, steps)
    wide, count = betas.astype(np.longdouble), steps.astype(np.longdouble)
    with np.errstate(divide="ignore"):
        rest = -np.expm1(count * np.log(wide))
    np.testing.assert_allclose(of_first, (1 / rest).astype(np.float64), rtol=6 * 2.0**-24)
    np.testing.assert_allclose(of_second, np.sqrt(rest).astype(np.float64), rtol=6 * 2.0**-24)


def test_step_0_gives_nan() -> None:
    parameters, first, second = dmljax.adam_optimizer(PARAMETERS, *MOMENTS, GRADIENT, 0)
    assert np.isnan(parameters).all()
    assert_near(first, oracles.adam(PARAMETERS, *MOMENTS, GRADIENT, 1)[1])
    assert_near(second, oracles.adam(PARAMETERS, *MOMENTS, GRADIENT, 1)[2])


def test_the_first_step_is_as_long_as_the_learning_rate() -> None:
    gradient = np.array([1e-8, -3, 1e15, -1e20], np.float32)
    zeros = np.zeros_like(gradient)
    new = dmljax.adam_optimizer(zeros, zeros, zeros, gradient, 1, 0.5, epsilon=0.0)
    np.testing.assert_allclose(new.parameters, [-0.5, 0.5, -0.5, 0.5], rtol=1e-6)
    assert np.isfinite(new.second_moment).all(), "0.001 times the square of 1e20 is in range"


@FULL
def test_a_step_may_have_any_numeric_type() -> None:
    expected = dmljax.adam_optimizer(PARAMETERS, *MOMENTS, GRADIENT, 3)
    for step in (np.uint32(3), jnp.int8(3), np.float32(3), jnp.float16(3), 3.0, np.full((1, 1), 3)):
        for new, old in zip(dmljax.adam_optimizer(PARAMETERS, *MOMENTS, GRADIENT, step), expected, strict=True):
            assert_same_bits(new, old)


def test_hyperparameters_may_be_traced() -> None:
    chex.clear_trace_counter()
    compute = lambda step, rate: dmljax.adam_optimizer(PARAMETERS, *MOMENTS, GRADIENT, step, rate)  # noqa: E731
    update = jax.jit(chex.assert_max_traces(compute, n=1))
    for step in (1, 50):
        for rate in (0.1, 0.01):
            assert_near(update(step, rate).parameters, oracles.adam(PARAMETERS, *MOMENTS, GRADIENT, step, rate)[0])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.gate(but=1)
def test_a_donated_update_is_in_place(dtype: Any) -> None:
    arrays: Any = [jnp.asarray(RNG.random(4096), dtype) for _ in range(4)]
    update = jax.jit(dmljax.adam_optimizer, donate_argnums=(0, 1, 2))
    compiled = update.lower(*arrays, jnp.uint32(1)).compile()
    memory: Any = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == 3 * arrays[0].nbytes
    # In 16 bits, XLA on CPU copies both moments, and updates the parameters from them without rounding.
    assert memory.temp_size_in_bytes <= 64 + (2 * arrays[0].nbytes if dtype == "float16" else 0)
    x, m, v, g = arrays
    expected = jax.device_get(dmljax.adam_optimizer(x, m, v, g, jnp.uint32(1)))
    places = [array.unsafe_buffer_pointer() for array in arrays[:3]]
    new = update(*arrays, jnp.uint32(1))
    assert [array.is_deleted() for array in arrays] == [True, True, True, False]
    assert [array.unsafe_buffer_pointer() for array in new] == places
    for result, other in zip(new, expected, strict=True):
        assert_same_bits(result, other)


def test_trains_in_a_loop() -> None:
    target = jnp.asarray(PARAMETERS[:20])

    def step(carry: Any, count: Any) -> Any:
        x, m, v = carry
        gradient = jax.grad(lambda x: jnp.sum((x - target) ** 2))(x)
        return tuple(dmljax.adam_optimizer(x, m, v, gradient, count, 0.05)), None

    zeros = jnp.zeros_like(target)
    (x, _, _), _ = jax.lax.scan(step, (zeros, zeros, zeros), jnp.arange(1, 401))
    assert float(jnp.max(jnp.abs(x - target))) < 1e-3


def test_the_pages_update_of_a_tree_is_in_place() -> None:
    page = (Path(__file__).parents[3] / "notebooks" / "operators" / "adam_optimizer.md").read_text()
    names: dict[str, Any] = {"jax": jax, "dmljax": dmljax}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)
    trees: Any = [
        {"w": jnp.asarray(array[:6]).reshape(2, 3), "b": [jnp.asarray(array[6:9])]} for array in (PARAMETERS, *MOMENTS)
    ]
    x, m, v = (tree["w"] for tree in trees)
    expected = dmljax.adam_optimizer(x, m, v, x, 2)
    gradients = jax.tree.map(jnp.copy, trees[0])
    updated = names["update_in_place"](*trees, gradients, 2)
    for tree, array in zip(updated, expected, strict=True):
        assert_same_bits(tree["w"], array)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(trees))


@GATE
def test_derivatives_are_finite_where_a_gradient_is_0() -> None:
    gradient = np.array([0, 1, -2], np.float32)
    zeros = np.zeros_like(gradient)

    def loss(gradient: Any, rate: Any, beta1: Any, epsilon: Any) -> Any:
        return dmljax.adam_optimizer(zeros, zeros, zeros, gradient, 1, rate, beta1, 0.75, epsilon).parameters.sum()

    of_gradient, *others = jax.grad(loss, argnums=(0, 1, 2, 3))(gradient, 0.5, 0.0, 0.5)
    # alpha is 1/2, and the update of the first element gradient / (|gradient| / 2 + epsilon) / 4
    np.testing.assert_allclose(of_gradient[0], -0.5, rtol=1e-6)
    assert np.isfinite([float(derivative) for derivative in others]).all()


def test_a_step_may_be_an_integer_or_of_the_parameters_type() -> None:
    inputs = list(oracles.CASES["ADAM_OPTIMIZER"].inputs(ADAM, RNG).values())
    expected = directml.lower(ADAM)(*inputs)
    counted = replace(ADAM, training_step=tensor("UINT32", 1, 1, 1, 1))
    inputs[4] = inputs[4].astype(np.uint32)
    for result, other in zip(directml.lower(counted)(*inputs), expected, strict=True):
        assert_same_bits(result, other)
