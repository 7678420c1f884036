"""Quotients and conversions that a device may round in its own way, beside NumPy's and the CPU's."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers import random_array
from workloads import SEED

import dmljax
from dmljax.lowerings.numbers.special import rounded_quotient

TYPES = ("float32", "float16", "bfloat16", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32)), "bool")


def different_quotients(device: Any, count: int) -> int:
    """How many quotients are not rounded to nearest, of integers and of floats whose quotients are normal."""
    rng, half = np.random.default_rng(SEED), count // 2
    integers = rng.integers(1, 4096, (2, half)).astype(np.float32)
    floats = (rng.standard_normal((2, count - half)) * 2.0 ** rng.integers(-40, 40, (2, count - half))).astype(
        np.float32
    )
    a, b = np.concatenate([integers, floats], 1)
    with jax.default_device(device):
        found = np.asarray(jax.jit(lambda a, b: rounded_quotient(a, b))(*jax.device_put((a, b), device)))
    return int(np.sum(found.view(np.int32) != (a / b).view(np.int32)))


def convert_to_all(x: Any) -> list[Any]:
    return [dmljax.cast(x, dtype=dtype) for dtype in TYPES]


def different_conversions(source: str, device: Any, cpu: Any, count: int) -> dict[str, int]:
    """How many numbers of a type become something else than on the CPU, by the type that they become."""
    x = random_array(np.random.default_rng(SEED), source, (count,))
    results = []
    for place in (device, cpu):
        with jax.default_device(place):
            results.append(jax.jit(lambda x: convert_to_all(x))(jax.device_put(x, place)))
    pairs = zip(TYPES, *results, strict=True)
    return {
        dtype: count for dtype, one, other in pairs if (count := _count_differences(*map(np.asarray, (one, other))))
    }


def _count_differences(one: Any, other: Any) -> int:
    if not jnp.issubdtype(one.dtype, jnp.floating):
        return int(np.sum(one != other))
    bits = f"i{one.dtype.itemsize}"
    with np.errstate(invalid="ignore"):  # NumPy's bfloat16 warns of NaN
        are_nan = np.isnan(one) & np.isnan(other)
    return int(np.sum((one.view(bits) != other.view(bits)) & ~are_nan))


def differences(device: Any, quotients: int, conversions: int, types: Sequence[str] = TYPES) -> Iterator[str]:
    """Sentences on what differs."""
    cpu = jax.devices("cpu")[0]
    yield f"{different_quotients(device, quotients):,} of {quotients:,} quotients are not rounded to nearest."
    found = {source: different_conversions(source, device, cpu, conversions) for source in types}
    total = sum(sum(counts.values()) for counts in found.values())
    yield f"{total:,} of {conversions * len(types) * len(TYPES):,} conversions differ from the CPU's."
    for source, counts in found.items():
        yield from (f"- {count:,} from {source} to {dtype}" for dtype, count in counts.items())
