"""Numbers in other types, computed from their bits, with at most one rounding.

XLA rounds a float64 to float32 before it rounds it to 16 bits, and an int32 likewise; on CPU it takes subnormal
operands for zero; and it leaves open what a float beyond the range of an integer type becomes.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.arithmetic.floats import is_nan, layout


def float32_to_float64(x: Array) -> Array:
    """A float32 as a float64."""
    bits = lax.bitcast_convert_type(x, np.int32)
    is_subnormal = (bits & 0x7F800000) == 0
    fraction = jnp.where(is_subnormal, bits & 0x007FFFFF, jnp.zeros_like(bits))
    # XLA on CPU makes a zero of a subnormal number, to whose sign the bits of its magnitude are added here.
    subnormal = fraction.astype(np.float64) * 2.0**-149
    together = (lax.bitcast_convert_type(number, np.int64) for number in (x.astype(np.float64), subnormal))
    return lax.bitcast_convert_type(lax.bitwise_or(*together), np.float64)


def float64_to_float32(x: Array) -> Array:
    """A float64 as a float32."""
    magnitude = jnp.abs(x)
    is_small = magnitude < 2.0**-126
    # The sum counts, in its last bits, how often the smallest float32 fits, rounded to the nearest.
    counted = lax.bitcast_convert_type(magnitude + 2.0 ** (52 - 149), np.uint64).astype(np.uint32)
    sign = (lax.bitcast_convert_type(x, np.uint64) >> np.uint64(63)).astype(np.uint32) << np.uint32(31)
    small = lax.bitcast_convert_type(counted | sign, np.float32)
    # The inner select also keeps XLA from skipping the float64 between an int64 and a float32.
    return jnp.where(is_small, small, jnp.where(is_small, jnp.zeros_like(x), x).astype(np.float32))


def by_bits(x: Array, dtype: Any) -> Array:
    """Floats of 16 or 32 bits in another such type."""
    if x.dtype.itemsize < 4:
        x = _widened(x)
    return x if x.dtype == dtype else narrowed(x, dtype)


def _sign_and_magnitude(x: Array) -> tuple[Array, Array]:
    """Whether the sign bit of `x` is set, as 0 or 1, and the other bits."""
    unsigned, _, _ = layout(x.dtype, "uint")
    bits = lax.bitcast_convert_type(x, unsigned)
    top = unsigned.type(unsigned.itemsize * 8 - 1)
    return bits >> top, bits & unsigned.type(np.iinfo(unsigned).max >> 1)


def _with_sign(sign: Array, magnitude: Array, dtype: Any) -> Array:
    unsigned, _, _ = layout(dtype, "uint")
    top = unsigned.type(unsigned.itemsize * 8 - 1)
    return lax.bitcast_convert_type(magnitude.astype(unsigned) | (sign.astype(unsigned) << top), dtype)


def narrowed(x: Array, dtype: Any) -> Array:
    """Floats of a wider type, rounded once."""
    unsigned, digits, bias = layout(x.dtype, "uint")
    _, kept, new_bias = layout(dtype, "uint")
    number = unsigned.type
    sign, magnitude = _sign_and_magnitude(x)
    infinity = number((2 * bias + 1) << digits)
    dropped, rebias = digits - kept, bias - new_bias
    rounded = _shifted_to_nearest(magnitude - number(rebias << digits), number(dropped))
    if rebias:  # subnormal numbers of the new type: the leading 1 is no longer implied
        exponent = magnitude >> number(digits)
        fraction = (magnitude & number((1 << digits) - 1)) | number(1 << digits)
        places = number(rebias + 1 + dropped) - exponent
        small = _shifted_to_nearest(fraction, jnp.minimum(places, number(digits + 2)))
        rounded = jnp.where(magnitude < number((rebias + 1) << digits), small, rounded)
    new_infinity = (2 * new_bias + 1) << kept
    # A number beyond the new range may have a larger exponent than the new infinity.
    is_beyond = magnitude >= number((rebias + 2 * new_bias + 1) << digits)
    rounded = jnp.where(is_beyond, number(new_infinity), rounded)
    rounded = jnp.where(magnitude > infinity, number(new_infinity | (1 << (kept - 1))), rounded)
    return _with_sign(sign, rounded, dtype)


def _shifted_to_nearest(x: Array, places: Any) -> Array:
    """`x / 2**places` rounded to the nearest integer, the even one of two; at least one place."""
    one = x.dtype.type(1)
    half = (one << (places - one)) - one + ((x >> places) & one)
    return jnp.right_shift(x + half, places)


def _widened(x: Array) -> Array:
    """A float16 or bfloat16 as a float32."""
    _, digits, bias = layout(x.dtype, "uint")
    sign, narrow = _sign_and_magnitude(x)
    magnitude = narrow.astype(np.uint32)
    wide = magnitude << np.uint32(23 - digits)
    if bias < 127:
        # A subnormal number is an integer times the smallest one, which float32 holds as a normal number.
        counted = narrow.astype(np.float32) * np.float32(2.0 ** (1 - bias - digits))
        subnormal = lax.bitcast_convert_type(counted, np.uint32)
        finite = wide + np.uint32((127 - bias) << 23)
        normal = jnp.where(magnitude < np.uint32((2 * bias + 1) << digits), finite, wide | np.uint32(0x7F800000))
        wide = jnp.where(magnitude < np.uint32(1 << digits), subnormal, normal)
    return _with_sign(sign, wide, np.float32)


def truncated(x: Array, dtype: np.dtype[Any]) -> Array:
    """Floats as integers: toward zero, the nearest integer beyond the range, and 0 for NaN."""
    x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    limits = np.iinfo(dtype)
    lowest, highest = np.array(limits.min, x.dtype), np.array(limits.max, x.dtype)
    if int(highest) > limits.max:  # rounded up
        highest = np.nextafter(highest, np.zeros_like(highest))
    inside = lax.clamp(lowest, jnp.where(is_nan(x), jnp.zeros_like(x), x), highest)
    return jnp.where(x > highest, dtype.type(limits.max), inside.astype(dtype))


def rounded_to_odd(x: Array) -> Array:
    """Converts integers to the next wider float, so that rounding it to half as many bits rounds only once.

    Of an integer with more bits than that float has, the last bits become one that tells whether all were 0.
    """
    wide = np.dtype(np.float32 if x.dtype.itemsize == 4 else np.float64)
    held = int(jnp.finfo(wide).nmant) + 1
    number = x.dtype.type
    spare = number((1 << (x.dtype.itemsize * 8 - held + 1)) - 1)
    sticky = ((x & spare) != 0).astype(x.dtype) * number((int(spare) + 1) >> 1)
    is_held = x < number(1 << held)
    if x.dtype.kind == "i":
        is_held &= x > number(-(1 << held))
    return jnp.where(is_held, x, (x & ~spare) | sticky).astype(wide)
