"""Conversions between all types, in exact arithmetic to integers, and the numbers that break careless ones.

Arrays are computed as signs, 64-bit integers and powers of two, single numbers as fractions.
"""

from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
from formulas import Arr

# The bits of the fraction and the exponent.
LAYOUTS = {
    jnp.dtype("float16"): (10, 5),
    jnp.dtype("bfloat16"): (7, 8),
    jnp.dtype("float32"): (23, 8),
    jnp.dtype("float64"): (52, 11),
}


def one_nan(array: Arr) -> Arr:
    """Replaces every NaN with the type's quiet NaN, because a conversion may return any NaN."""
    dtype = array.dtype
    if dtype not in LAYOUTS:
        return array
    fraction, exponent = LAYOUTS[dtype]
    raw = array.view(f"u{dtype.itemsize}")
    infinity = ((1 << exponent) - 1) << fraction
    is_nan = (raw & raw.dtype.type((1 << (fraction + exponent)) - 1)) > raw.dtype.type(infinity)
    quiet = raw.dtype.type(infinity | (1 << (fraction - 1)))
    return np.asarray(np.where(is_nan, quiet, raw).view(dtype))


# Single numbers


def number(value: Any, dtype: Any) -> Any:
    """A finite number as an integer or a bool, by fractions."""
    dtype = jnp.dtype(dtype)
    exact = Fraction(float(value)) if value.dtype in LAYOUTS else Fraction(int(value))
    if dtype == np.bool_:
        return np.bool_(exact != 0)
    lowest, highest = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    whole = int(exact)  # truncated
    if value.dtype in LAYOUTS:
        return dtype.type(min(max(whole, lowest), highest))
    return dtype.type((whole - lowest) % (highest - lowest + 1) + lowest)


# Arrays


def convert(x: Arr, dtype: Any) -> Arr:
    """Converts the array to another type: in exact arithmetic, except that JAX rounds floats."""
    dtype = jnp.dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype in LAYOUTS:
        return np.asarray(jnp.asarray(x).astype(dtype))
    is_negative, integer, exponent, is_nan, is_infinite = _exactly(x)
    if dtype == np.bool_:
        return np.asarray((integer != 0) | is_nan | is_infinite)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    if x.dtype not in LAYOUTS:
        wrapped = np.where(is_negative, ~integer + np.uint64(1), integer)
        return (wrapped & np.uint64(np.iinfo(unsigned).max)).astype(unsigned).view(dtype)
    limits = np.iinfo(dtype)
    is_beyond = (exponent + _bit_length(integer) > 64) | is_infinite
    places = np.clip(np.abs(exponent), 0, 63).astype(np.uint64)
    whole = np.where(exponent >= 0, integer << places, np.where(exponent < -63, np.uint64(0), integer >> places))
    most = np.where(is_negative, np.uint64(-int(limits.min)), np.uint64(limits.max))
    whole = np.where(is_nan, np.uint64(0), np.where(is_beyond, most, np.minimum(whole, most)))
    return np.where(is_negative, ~whole + np.uint64(1), whole).astype(unsigned).view(dtype)


def _exactly(x: Arr) -> tuple[Arr, Arr, Arr, Arr, Arr]:
    """Sign, integer and exponent, and which elements are NaN or infinite."""
    if x.dtype not in LAYOUTS:
        wide = x.astype(np.uint8) if x.dtype == np.bool_ else x
        is_negative = wide < 0
        raw = wide.astype(np.int64).view(np.uint64) if wide.dtype.kind == "i" else wide.astype(np.uint64)
        nowhere = np.zeros(x.shape, bool)
        return is_negative, np.where(is_negative, ~raw + np.uint64(1), raw), np.zeros(x.shape, int), nowhere, nowhere
    fraction, exponent = LAYOUTS[x.dtype]
    raw = x.view(f"u{x.dtype.itemsize}").astype(np.uint64)
    field = ((raw >> np.uint64(fraction)) & np.uint64(2**exponent - 1)).astype(np.int64)
    digits = raw & np.uint64(2**fraction - 1)
    is_special = field == 2**exponent - 1
    return (
        (raw >> np.uint64(fraction + exponent)) != 0,
        np.where(field == 0, digits, digits | np.uint64(2**fraction)),
        np.maximum(field, 1) - (2 ** (exponent - 1) - 1) - fraction,
        is_special & (digits != 0),
        is_special & (digits == 0),
    )


def _bit_length(x: Arr) -> Arr:
    length = np.zeros(x.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        is_longer = x >> np.uint64(step) != 0
        length += is_longer * step
        x = np.where(is_longer, x >> np.uint64(step), x)
    return np.asarray(length + (x != 0))


def hard_values(dtype: Any) -> Arr:
    """Every value of a type of up to 16 bits; for others, random bits and values on and beside the edges.

    Edges are powers of two, the ends of integer types, midpoints between two numbers of narrower floats, and
    subnormals.
    """
    dtype = jnp.dtype(dtype)
    if dtype == np.bool_:
        return np.array([True, False])
    bits = dtype.itemsize * 8
    raw = np.dtype(f"u{dtype.itemsize}")
    if bits <= 16:
        return np.arange(2**bits).astype(raw).view(dtype)
    rng = np.random.default_rng(0)
    ends = [sign * 2**power + near for power in range(65) for near in (-2, -1, 0, 1, 2) for sign in (1, -1)]
    for digits in (8, 11, 24, 53):  # midpoints between numbers with so many digits
        for power in range(63 - digits):
            for head in map(int, rng.integers(2 ** (digits - 1), 2**digits, 3)):
                half = (2 * head + 1) << power
                ends += [sign * (half + near) for near in (-1, 0, 1) for sign in (1, -1)]
    anything = rng.integers(0, 2**64, 3000, np.uint64, endpoint=False).astype(raw).view(dtype)
    if dtype not in LAYOUTS:
        return np.concatenate([np.array([end % 2**bits for end in ends], np.uint64).astype(raw).view(dtype), anything])
    fraction, _ = LAYOUTS[dtype]
    halves = []
    for narrow, (digits, exponent) in LAYOUTS.items():
        if narrow.itemsize >= dtype.itemsize:
            continue
        smallest = 2 - 2 ** (exponent - 1) - digits
        of_narrow = np.concatenate(
            [
                np.arange(0.5, 300.5) * 2.0**smallest,  # subnormals
                (2.0**digits + np.arange(-99.5, 100.5)) * 2.0**smallest,
                *(
                    (2.0**digits + np.arange(-3.5, 40.5)) * 2.0**power
                    for power in range(smallest, -2 * smallest // 2, 5)
                ),
                (2.0 ** (digits + 1) - np.arange(-1.5, 9.5)) * 2.0 ** (2 ** (exponent - 1) - 1 - digits),  # the last
            ]
        )
        with np.errstate(over="ignore"):
            of_narrow = of_narrow.astype(dtype)
        halves += [of_narrow, *(np.nextafter(of_narrow, dtype.type(to)) for to in (np.inf, -np.inf))]
    with np.errstate(over="ignore"):
        edges = np.array([float(end) for end in ends]).astype(dtype)
    both = np.concatenate([*halves, edges, edges + dtype.type(0.5), np.array([np.inf, np.nan, 0], dtype)])
    near_zero = np.concatenate([np.arange(200), 2**fraction + np.arange(-99, 100)]).astype(raw).view(dtype)
    return np.concatenate([both, -both, near_zero, -near_zero, anything])
