"""The precision of products, resolved when a call is bound.

Rules for derivatives, batching and partitioning run after the call, when the option that it saw may have changed. So
precision is a parameter of everything that they compute.
"""

from contextlib import AbstractContextManager
from typing import Any

import jax
from jax import lax

Precision = lax.Precision | lax.DotAlgorithmPreset


def resolve_precision(precision: Precision | None = None) -> Precision | None:
    """Returns `precision`, or what `jax_default_matmul_precision` says; None leaves it to each platform."""
    option = _option()
    if precision is not None or option is None:
        return precision
    return lax.DotAlgorithmPreset[option] if option in lax.DotAlgorithmPreset.__members__ else lax.Precision(option)


def full_precision() -> AbstractContextManager[Any]:
    """The context for tracing FLOAT32 products as DirectML promises: at full precision, unless JAX's option is set.

    By default, JAX rounds the factors of float32 products to TF32 on a GPU and to bfloat16 on a TPU.
    """
    context: AbstractContextManager[Any] = jax.default_matmul_precision(_option() or "highest")
    return context


def _option() -> str | None:
    option: str | None = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    return option
