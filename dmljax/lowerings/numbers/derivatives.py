"""Functions with custom derivatives."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

Function = Callable[..., Array]


def custom_jvps(*jvps: Function) -> Callable[[Function], Function]:
    """Gives a function a custom JVP rule, as one function for each argument.

    Each of `jvps` takes the tangent of its argument and all arguments of the function; it must be linear in the
    tangent. It returns the contribution of this tangent to the tangent of the result. That of an argument without a
    tangent is not called, because its result may be infinite.
    """

    def decorate(function: Function) -> Function:
        differentiable = jax.custom_jvp(function)

        def jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
            value = differentiable(*primals)
            tangent = jnp.zeros_like(value)
            for argument_jvp, direction in zip(jvps, tangents, strict=True):
                if type(direction) is not SymbolicZero:
                    tangent += argument_jvp(direction, *primals)
            return value, tangent

        differentiable.defjvp(jvp, symbolic_zeros=True)
        return differentiable

    return decorate


def custom_derivatives(*derivatives: Function) -> Callable[[Function], Function]:
    """Gives a function a custom JVP rule: a partial derivative per argument, each a function of all arguments."""
    return custom_jvps(*(lambda tangent, *primals, d=d: tangent * d(*primals) for d in derivatives))
