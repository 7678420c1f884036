"""Workarounds for XLA, which fuses, reassociates and recomputes arithmetic, and misreads windows of padding.

On a CPU, JAX 0.8.0, 0.10.2 and 0.12.0.1, the newest tried, need all of them except `materialize_bits`. Results are the
same without it; we have not measured since 0.10.2 whether they still take longer.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.lowerings.numbers.derivatives import custom_derivatives, custom_jvps
from dmljax.lowerings.numbers.floats import float_layout


@custom_derivatives(lambda a, b: b, lambda a, b: a)
def product(a: Array, b: Array) -> Array:
    """`a * b`, rounded to its type even inside a sum.

    XLA fuses a product and a sum into a multiply-add that does not round in between. The select prevents that.
    """
    return jnp.where(jnp.isnan(a), a, a * b)


def round_to_type(x: Array) -> Array:
    """`x`, bit for bit, rounded to its type even inside a sum; as in `product`, a select does that."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    integer, _, _ = float_layout(x.dtype)
    bits, sign = lax.bitcast_convert_type(x, integer), np.array(np.iinfo(integer).min, integer)
    return lax.bitcast_convert_type(jnp.where(bits < 0, (bits & ~sign) | sign, bits), x.dtype)


def _quotient_of_tangent(tangent: Array, a: Array, b: Array) -> Array:
    value = quotient(a, b)
    return lax.div(jnp.broadcast_to(tangent, value.shape), jnp.where(jnp.isnan(value), value, b))


QUOTIENT_JVPS = _quotient_of_tangent, lambda tangent, a, b: tangent * -quotient(quotient(a, b), b)


@custom_jvps(*QUOTIENT_JVPS)
def quotient(a: Array, b: Array) -> Array:
    """`a / b`, rounded once; `a` must have the shape of the result.

    XLA replaces `(x / a) / b` by `x / (a * b)`, whose product may overflow. From JAX 0.10 on, it also replaces a
    division by a broadcast scalar by a multiplication by its reciprocal, which rounds twice and may not even be normal.
    The selects hide both patterns.
    """
    return lax.div(jnp.where(jnp.isnan(b), b, a), jnp.where(jnp.isnan(a), a, b))


@custom_jvps(lambda tangent, x: tangent)
def materialize(x: Array) -> Array:
    """Materializes `x`, so that it is computed once for all loops that read it; subnormal numbers may become zero.

    XLA recomputes a sum or product in every loop that reads it, and may round it differently there. It does not
    recompute a quotient, which is why `x` is divided by 1.
    """
    return quotient(x, jnp.ones_like(x))


@custom_jvps(lambda tangent, x: tangent)
def materialize_bits(x: Array) -> Array:
    """Materializes `x`, bit for bit, where `materialize` is not enough. It takes longer, so use it for few elements.

    Inside loops, XLA does recompute a quotient of floats, but not of integers.
    """
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{x.dtype.itemsize * 8}"))
    return lax.bitcast_convert_type(lax.div(bits, _hidden_zero(bits) | 1), x.dtype)


def bits_to_bfloat16(bits: Array) -> Array:
    """The bfloat16 with these bits, computed last by an integer operation on a CPU.

    XLA fuses a move and this conversion into one loop. LLVM then moves bfloat16 again, through float32 if the processor
    has no bfloat16, which makes signaling NaNs quiet.
    """
    return lax.bitcast_convert_type(bits | _hidden_zero(bits), jnp.bfloat16)


def _hidden_zero(bits: Array) -> Array:
    """Zeros that compilers do not recognize: no square leaves 5 or 7 when divided by 8."""
    square = bits * bits
    return square & (square >> 2) & 1


def crop_to_overlap(image: range, windows: range, taps: range) -> tuple[range, range, range]:
    """Cuts off the ends of an image, of windows and of their taps that meet nothing; a range is empty if nothing meets.

    A tap meets an element where `window + tap` is the element's position. An end of the image that is shorter than a
    stride stays, since XLA skips it.

    Where a convolution crops the start of an image entirely, XLA on CPU of JAX 0.8.0 and 0.10.2 reads uninitialized
    memory, and that of 0.10.2 and 0.12.0.1 ignores a padding of (-1, 1) or (1, -1) around one row. Both of these should
    be 0:

        lax.conv_general_dilated(jnp.ones((1, 4, 1, 4)), jnp.ones((1, 4, 1, 2)), (1, 1), [(-1, 1), (0, 0)])
        lax.conv_general_dilated(jnp.ones((1, 32, 1, 1)), jnp.ones((1, 32, 1, 1)), (1, 1), [(-1, 1), (0, 0)])

    JAX crops the start of images in derivatives if the padding is as wide as the windows.
    """
    while image and windows and taps:
        cut = (
            _clip_range(image, windows[0] + taps[0], windows[-1] + taps[-1] + windows.step - 1),
            _clip_range(windows, image[0] - taps[-1], image[-1] - taps[0]),
            _clip_range(taps, image[0] - windows[-1], image[-1] - windows[0]),
        )
        if cut == (image, windows, taps):
            break
        image, windows, taps = cut
    return image, windows, taps


def _clip_range(places: range, low: int, high: int) -> range:
    """The places in [low, high]."""
    first, last = -((places.start - low) // places.step), (high - places.start) // places.step
    return places[max(first, 0) : max(last + 1, 0)]
