"""Conversions between types that are exact, or rounded once, on every platform.

XLA rounds a float64 to float32 before it rounds it to 16 bits, and an int32 likewise; on CPU it takes subnormal
operands for zero; and it leaves open what a float beyond the range of an integer type becomes. Here such conversions
are computed from the bits. XLA's own conversion serves the others, on the platforms where its result is known.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.numerics.floats import is_nan, is_nonzero
from dmljax.numerics.platform import choose
from dmljax.types import FLOATS, INTEGERS


def converted(x: Array, dtype: Any) -> Array:
    """`x` in another type, which may be any.

    A float becomes the nearest float, the even one of two; infinity beyond the range. An integer becomes the nearest
    float, too, or an integer that equals it modulo the range. A float becomes an integer by truncation, the nearest
    integer beyond the range, and 0 if it is NaN. All but zeros are True, and True is 1.
    """
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype == np.bool_:
        return is_nonzero(x)
    if x.dtype not in FLOATS:
        return _rounded(x, dtype) if x.dtype in INTEGERS and dtype in FLOATS else x.astype(dtype)
    return _between_floats(dtype, x) if dtype in FLOATS else _truncated(x, dtype)


def positions_as(dtype: Any, positions: Array) -> Array:
    """Converts positions, which are not negative, to another integer type.

    Types of one width share the bits of such numbers, and to reinterpret them spares a GPU and a TPU a kernel.
    """
    is_same_width = np.dtype(dtype).itemsize == positions.dtype.itemsize
    return lax.bitcast_convert_type(positions, dtype) if is_same_width else positions.astype(dtype)


# Floats to floats


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _between_floats(dtype: np.dtype[Any], x: Array) -> Array:
    if dtype == np.float64:
        single = x if x.dtype == np.float32 else _between_floats(np.dtype(np.float32), x)
        return single.astype(dtype) if x.dtype == np.float16 else _double(single)  # no float16 is subnormal there
    if x.dtype == np.float64:
        return _single(x) if dtype == np.float32 else _narrowed(x, dtype)

    def platforms_own(x: Array) -> Array:
        return x.astype(dtype)

    return choose(x, cpu=platforms_own, gpu=platforms_own, default=lambda x: _by_bits(x, dtype))


@_between_floats.defjvp
def _between_floats_jvp(dtype: np.dtype[Any], primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _between_floats(dtype, *primals), tangents[0].astype(dtype)


def _double(x: Array) -> Array:
    """A float32 as a float64."""
    bits = lax.bitcast_convert_type(x, np.int32)
    is_subnormal = (bits & 0x7F800000) == 0
    fraction = jnp.where(is_subnormal, bits & 0x007FFFFF, jnp.zeros_like(bits))
    # XLA on CPU makes a zero of a subnormal number, to whose sign the bits of its magnitude are added here.
    subnormal = fraction.astype(np.float64) * 2.0**-149
    together = (lax.bitcast_convert_type(number, np.int64) for number in (x.astype(np.float64), subnormal))
    return lax.bitcast_convert_type(lax.bitwise_or(*together), np.float64)


def _single(x: Array) -> Array:
    """A float64 as a float32."""
    magnitude = jnp.abs(x)
    is_small = magnitude < 2.0**-126
    # The sum counts, in its last bits, how often the smallest float32 fits, rounded to the nearest.
    counted = lax.bitcast_convert_type(magnitude + 2.0 ** (52 - 149), np.uint64).astype(np.uint32)
    sign = (lax.bitcast_convert_type(x, np.uint64) >> np.uint64(63)).astype(np.uint32) << np.uint32(31)
    small = lax.bitcast_convert_type(counted | sign, np.float32)
    # The inner select also keeps XLA from skipping the float64 between an int64 and a float32.
    return jnp.where(is_small, small, jnp.where(is_small, jnp.zeros_like(x), x).astype(np.float32))


def _by_bits(x: Array, dtype: Any) -> Array:
    """Floats of 16 or 32 bits in another such type."""
    if x.dtype.itemsize < 4:
        x = _widened(x)
    return x if x.dtype == dtype else _narrowed(x, dtype)


def _layout(dtype: Any) -> tuple[np.dtype[Any], int, int]:
    """The unsigned type that holds the bits of a float type, its number of fraction bits, and its exponent bias."""
    limits = jnp.finfo(dtype)
    return np.dtype(f"uint{limits.bits}"), int(limits.nmant), int(limits.maxexp) - 1


def _sign_and_magnitude(x: Array) -> tuple[Array, Array]:
    """Whether the sign bit of `x` is set, as 0 or 1, and the other bits."""
    unsigned, _, _ = _layout(x.dtype)
    bits = lax.bitcast_convert_type(x, unsigned)
    top = unsigned.type(unsigned.itemsize * 8 - 1)
    return bits >> top, bits & unsigned.type(np.iinfo(unsigned).max >> 1)


def _with_sign(sign: Array, magnitude: Array, dtype: Any) -> Array:
    unsigned, _, _ = _layout(dtype)
    top = unsigned.type(unsigned.itemsize * 8 - 1)
    return lax.bitcast_convert_type(magnitude.astype(unsigned) | (sign.astype(unsigned) << top), dtype)


def _narrowed(x: Array, dtype: Any) -> Array:
    """Floats of a wider type, rounded once."""
    unsigned, digits, bias = _layout(x.dtype)
    _, kept, new_bias = _layout(dtype)
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
    _, digits, bias = _layout(x.dtype)
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


# Floats to integers


def _truncated(x: Array, dtype: np.dtype[Any]) -> Array:
    # XLA on CPU does what `_clamped` does, in half the time.
    return choose(x, cpu=lambda x: lax.convert_element_type(x, dtype), default=lambda x: _clamped(x, dtype))


def _clamped(x: Array, dtype: np.dtype[Any]) -> Array:
    x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    limits = np.iinfo(dtype)
    lowest, highest = np.array(limits.min, x.dtype), np.array(limits.max, x.dtype)
    if int(highest) > limits.max:  # rounded up
        highest = np.nextafter(highest, np.zeros_like(highest))
    inside = lax.clamp(lowest, jnp.where(is_nan(x), jnp.zeros_like(x), x), highest)
    return jnp.where(x > highest, dtype.type(limits.max), inside.astype(dtype))


# Integers to floats


def _rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.itemsize >= 4:
        return x.astype(dtype)
    if dtype == np.float16 or x.dtype.itemsize < 4:
        # An integer that float32 does not hold is beyond the range of float16.
        return _between_floats(dtype, x.astype(np.float32))
    # Of an integer with more bits than the wider float has, the last bits become one that tells whether all were 0.
    wide = np.dtype(np.float32 if x.dtype.itemsize == 4 else np.float64)
    held = int(jnp.finfo(wide).nmant) + 1
    number = x.dtype.type
    spare = number((1 << (x.dtype.itemsize * 8 - held + 1)) - 1)
    sticky = ((x & spare) != 0).astype(x.dtype) * number((int(spare) + 1) >> 1)
    is_held = x < number(1 << held)
    if x.dtype.kind == "i":
        is_held &= x > number(-(1 << held))
    return _between_floats(dtype, jnp.where(is_held, x, (x & ~spare) | sticky).astype(wide))
