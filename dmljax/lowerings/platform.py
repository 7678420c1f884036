"""Chooses a lowering by the platform that a program is compiled for.

The process that traces a program seldom knows that platform: a program exported on a CPU may run on a GPU.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from jax import lax

from dmljax.foundation.platforms import known_platform
from dmljax.foundation.sharding import match_varying_axes

R = TypeVar("R")  # an array, or a tree of arrays


def choose(
    *operands: Any,
    default: Callable[..., R],
    cpu: Callable[..., R] | None = None,
    gpu: Callable[..., R] | None = None,
    tpu: Callable[..., R] | None = None,
) -> R:
    """Applies to `operands` the function for the platform compiled for, or `default` if it has none.

    Inside `jax.shard_map`, the result varies over the mesh as the operands do, even if one of the functions ignores
    them, as for rows of one element.
    """
    operands = match_varying_axes(operands)

    def match_operands(lowering: Callable[..., R]) -> Callable[..., R]:
        return lambda *operands: match_varying_axes(lowering(*operands), operands)

    if platform := known_platform():  # the other functions need not be traced
        return match_operands({"cpu": cpu, "gpu": gpu, "tpu": tpu}.get(platform) or default)(*operands)
    by_device = {"cpu": cpu, "cuda": gpu, "rocm": gpu, "tpu": tpu}
    by_platform = {
        platform: match_operands(lowering) for platform, lowering in by_device.items() if lowering is not None
    }
    return cast(R, lax.platform_dependent(*operands, default=match_operands(default), **by_platform))
