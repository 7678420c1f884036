"""Loops that run the same under `jax.disable_jit()`."""

from collections.abc import Callable
from typing import TypeVar, cast

import jax.numpy as jnp
from jax import Array, lax

R = TypeVar("R")  # an array, or a tree of arrays


def counted_loop(begin: int, end: int | Array, body: Callable[[Array, R], R], carry: R) -> R:
    """`lax.fori_loop` whose `body` always gets an array: under `jax.disable_jit()`, JAX passes a Python int."""
    return cast(R, lax.fori_loop(begin, end, lambda i, state: body(jnp.asarray(i), state), carry))
