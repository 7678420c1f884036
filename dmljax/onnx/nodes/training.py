"""Optimizer steps, which take a rate, a step count, and several tensors of each kind."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp

import dmljax
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.handlers.refusals import TRAINING
from dmljax.onnx.handlers.registry import handles, look_up
from dmljax.onnx.handlers.signatures import Number
from dmljax.onnx.values.types import Array, Results


def _each(kinds: int, tensors: Sequence[Array], update: Callable[..., tuple[Array, ...]]) -> tuple[Array, ...]:
    """Updates each parameter; `tensors` lists all parameters, then all gradients, then each kind of state."""
    count = len(tensors) // kinds
    if not count or len(tensors) != count * kinds:
        raise InvalidDesc(Problem((), f"needs {kinds} tensors per parameter", len(tensors)))
    updated = [update(*tensors[i::count]) for i in range(count)]
    return tuple(output for outputs in zip(*updated, strict=True) for output in outputs)


@handles("Adam", domain=TRAINING)
def _adam(
    rate: Number,
    step: Number,
    *tensors: Array,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Results:
    # At step 0 ONNX does not correct the moments; scale DirectML's learning rate to undo its correction.
    rate, step = rate.reshape(()), step.reshape(())
    rate = jnp.where(step > 0, rate, rate * ((1 - alpha) / (1 - beta) ** 0.5))

    def update(x: Array, gradient: Array, first: Array, second: Array) -> tuple[Array, ...]:
        grad = gradient + x * jnp.asarray(norm_coefficient, x.dtype)
        new, *moments = dmljax.adam_optimizer(x, first, second, grad, jnp.maximum(step, 1), rate, alpha, beta, epsilon)
        return new * jnp.asarray(1 - norm_coefficient_post, x.dtype), *moments

    return _each(4, tensors, update)


@handles("Adagrad", domain=TRAINING)
def _adagrad(
    rate: Number,
    step: Number,
    *tensors: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> Results:
    def update(x: Array, gradient: Array, squares: Array) -> tuple[Array, ...]:
        length = (rate / (1 + step.astype(rate.dtype) * decay_factor)).reshape(()).astype(x.dtype)
        grad = gradient + x * jnp.asarray(norm_coefficient, x.dtype)
        total = squares + grad * grad
        return x - length * grad / (jnp.sqrt(total) + jnp.asarray(epsilon, x.dtype)), total

    return _each(3, tensors, update)


@handles("Momentum", domain=TRAINING)
def _momentum(
    rate: Number, step: Number, *tensors: Array, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> Results:
    is_nesterov = look_up("mode", mode, {"standard": False, "nesterov": True})

    def update(x: Array, gradient: Array, momentum: Array) -> tuple[Array, ...]:
        decay, length = jnp.asarray(alpha, x.dtype), rate.reshape(()).astype(x.dtype)
        grad = gradient + x * jnp.asarray(norm_coefficient, x.dtype)
        share = jnp.where(step.reshape(()) > 0, beta, 1).astype(x.dtype)  # the gradient counts fully in the first step
        new = decay * momentum + share * grad
        return x - length * (grad + decay * new if is_nesterov else new), new

    return _each(3, tensors, update)
