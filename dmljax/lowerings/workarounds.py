"""Ways around what XLA makes of arithmetic: what it fuses, reassociates or computes again.

On a CPU, all are needed with JAX 0.8.0, 0.10.2 and 0.12.0.1, the newest one tried, but for `in_memory_bits`. Without
that, results are the same; whether they still take longer, we have not measured since 0.10.2.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.arithmetic.derivatives import with_derivatives, with_slopes
from dmljax.arithmetic.floats import layout


@with_derivatives(lambda a, b: b, lambda a, b: a)
def product(a: Array, b: Array) -> Array:
    """`a * b`, rounded to its type even where a sum uses it.

    XLA fuses the product and the sum into a multiply-add that does not round in between. The select prevents that.
    """
    return jnp.where(jnp.isnan(a), a, a * b)


def rounded(x: Array) -> Array:
    """`x`, bit for bit, rounded to its type even where a sum uses it; as in `product`, a select sees to that."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    integer, _, _ = layout(x.dtype)
    bits, sign = lax.bitcast_convert_type(x, integer), np.array(np.iinfo(integer).min, integer)
    return lax.bitcast_convert_type(jnp.where(bits < 0, (bits & ~sign) | sign, bits), x.dtype)


def _quotient_of_tangent(tangent: Array, a: Array, b: Array) -> Array:
    value = quotient(a, b)
    return lax.div(jnp.broadcast_to(tangent, value.shape), jnp.where(jnp.isnan(value), value, b))


@with_slopes(_quotient_of_tangent, lambda tangent, a, b: tangent * -quotient(quotient(a, b), b))
def quotient(a: Array, b: Array) -> Array:
    """`a / b`, rounded once; `a` must have the shape of the result.

    XLA replaces `(x / a) / b` by `x / (a * b)`, whose product may be out of range, and, from JAX 0.10 on, a division by
    a broadcast scalar by a multiplication by its reciprocal, which is rounded as well or is not even a normal number.
    The selects hide both patterns.
    """
    return lax.div(jnp.where(jnp.isnan(b), b, a), jnp.where(jnp.isnan(a), a, b))


@with_slopes(lambda tangent, x: tangent)
def in_memory(x: Array) -> Array:
    """Materializes `x`, so that it is computed once for all loops that read it; subnormal numbers may become zero.

    XLA recomputes a sum or product in every loop that reads it, and may round it differently there. It does not
    recompute a quotient, which is why `x` is divided by 1.
    """
    return quotient(x, jnp.ones_like(x))


@with_slopes(lambda tangent, x: tangent)
def in_memory_bits(x: Array) -> Array:
    """Materializes `x`, bit for bit, where `in_memory` is not enough; it takes longer, and is for few elements.

    Inside of loops, XLA does recompute a quotient of floats, but not one of integers.
    """
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{x.dtype.itemsize * 8}"))
    return lax.bitcast_convert_type(lax.div(bits, _hidden_zero(bits) | 1), x.dtype)


def bfloat16_of(bits: Array) -> Array:
    """The bfloat16 with these bits, for which a CPU computes an integer last.

    XLA makes one loop of a move and this conversion, and LLVM then moves bfloat16 again, by way of float32 where the
    processor has no bfloat16 of its own, which makes signaling NaNs quiet.
    """
    return lax.bitcast_convert_type(bits | _hidden_zero(bits), jnp.bfloat16)


def _hidden_zero(bits: Array) -> Array:
    """Zeros of which compilers do not know that they are: no square leaves 5 or 7 when it is divided by 8."""
    square = bits * bits
    return square & (square >> 2) & 1
