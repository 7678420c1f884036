"""Operators and their formulas as functions of scalars, and the numbers to try them on."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from families import ELEMENTWISE
from helpers import specials
from jax import lax
from numpy.typing import NDArray

import dmljax

Arr = NDArray[Any]


def dense(dtype: Any, count: int, seed: int) -> Arr:
    """Numbers of all magnitudes, with many small ones and many near points where functions break."""
    if dtype in (np.float16, jnp.bfloat16):
        return np.arange(2**16).astype(np.uint16).view(dtype)
    rng = np.random.default_rng(seed)
    ranges = [rng.uniform(-size, size, count // 8).astype(np.float32) for size in (1e-3, 0.1, 1, 3, 10, 30, 110, 1000)]
    breakpoints = np.array(BREAKPOINTS + [-x for x in BREAKPOINTS], np.float32).view(np.int32)
    around = breakpoints[:, None] + np.arange(-64, 64, dtype=np.int32)
    raw = [rng.integers(0, 2**32, count, dtype=np.uint32), specials(np.float32), *ranges, around.ravel()]
    return np.concatenate([part.view(np.uint32) for part in raw]).view(np.float32)


BREAKPOINTS = [0.0, 1.0, 0.5, 0.55, 0.41421357, 0.7, 0.34657359, 1.5707963, 14.6, 60.0, 87.33655, 88.72284]


def scalar_function(name: str) -> tuple[Callable[..., Any], Callable[..., Any], list[str]]:
    """An operator and its formula as functions of scalars: first the inputs, then the float attributes."""
    case = ELEMENTWISE[name]
    attributes = [key for key, value in case.attributes.items() if isinstance(value, float | int) and key not in STATIC]
    static = {key: value for key, value in case.attributes.items() if key not in attributes}
    operator = getattr(dmljax, name.lower())
    inputs = len(case.tensors)

    def function(*operands: Any) -> Any:
        return operator(*operands[:inputs], **dict(zip(attributes, operands[inputs:], strict=True)), **static)

    def formula(*operands: Any) -> Any:
        return case.formula(*operands[:inputs], **dict(zip(attributes, operands[inputs:], strict=True)), **static)

    return function, formula, [*case.tensors, *attributes]


STATIC = ("rounding_mode",)

# Where the formulas have no value, or one that depends on the sign of a zero
DEFINED: dict[str, Callable[..., Any]] = {
    "ACTIVATION_CELU": lambda x, alpha: alpha != 0,
    "ACTIVATION_HARD_SIGMOID": lambda x, alpha, beta: alpha * x + beta != 0,
    "ACTIVATION_HARD_SWISH": lambda x, alpha, beta: alpha * x + beta != 0,
    "ELEMENT_WISE_MODULUS_FLOOR": lambda a, b: np.abs(b) > 1e-30,
}

# JAX's own functions of inputs and attributes, where these are less accurate than others: at the ends of the range, or
# where summands cancel. An operator must be as accurate as they are.
RIVALS: dict[str, Callable[..., Any]] = {
    "ACTIVATION_CELU": jax.nn.celu,
    "ACTIVATION_ELU": jax.nn.elu,
    "ACTIVATION_GELU": lambda x: jax.nn.gelu(x, approximate=False),
    "ACTIVATION_HARD_SIGMOID": lambda x, alpha, beta: jnp.clip(alpha * x + beta, 0, 1),
    "ACTIVATION_HARD_SWISH": lambda x, alpha, beta: x * jnp.clip(alpha * x + beta, 0, 1),
    "ACTIVATION_LINEAR": lambda x, alpha, beta: alpha * x + beta,
    "ACTIVATION_PARAMETRIC_SOFTPLUS": lambda x, alpha, beta: alpha * jax.nn.softplus(beta * x),
    "ACTIVATION_SCALED_ELU": lambda x, alpha, gamma: gamma * jax.nn.elu(x, alpha),
    "ACTIVATION_SCALED_TANH": lambda x, alpha, beta: alpha * jnp.tanh(beta * x),
    "ACTIVATION_SOFTPLUS": lambda x, steepness: jax.nn.softplus(steepness * x) / steepness,
    "ACTIVATION_SWISH": lambda x, scale: x * jax.nn.sigmoid(scale * x),
    "ACTIVATION_TANH": jnp.tanh,
    "ELEMENT_WISE_ACOSH": jnp.arccosh,
    "ELEMENT_WISE_ERF": lax.erf,
    "ELEMENT_WISE_EXP": jnp.exp,
    "ELEMENT_WISE_TANH": jnp.tanh,
}
