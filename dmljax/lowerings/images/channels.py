"""The layout of images on a CPU: channels before the spatial dimensions, or after them in networks.

Images have the dimensions batch, channels and space. On a CPU, XLA's convolutions keep their channels last in memory,
and loops over channels vectorize for every window, stride and padding. A single layer loses more by moving the channels
than it gains. In a network nothing moves between two layers with channels last, because XLA cancels a transpose and its
inverse. So graphs and models are traced as networks, and JAX's caches of traced and compiled functions keep them apart.
Compilers for GPUs and TPUs choose layouts themselves.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dmljax.lowerings.platform import choose

_channels_last = jax.make_user_context(default_value=False)
_library_filters = jax.make_user_context(default_value=False)

_FEWEST_LAYERS = 2


def network_layout(layers: int) -> AbstractContextManager[Any]:
    """The context for tracing a network with this many windowed layers, such as convolutions and poolings."""
    context: AbstractContextManager[Any] = _channels_last(layers >= _FEWEST_LAYERS)
    return context


def are_channels_last() -> bool:
    """Whether a layer traced now should compute with channels last, on a CPU."""
    return bool(_channels_last.value)


def library_filters(are_stored: bool) -> AbstractContextManager[Any]:
    """The context for tracing a network whose filters XLA's library on a CPU reads as they are stored."""
    context: AbstractContextManager[Any] = _library_filters(are_stored)
    return context


def are_filters_stored() -> bool:
    """Whether a CPU has no filter to reorder in a layer traced now."""
    return bool(_library_filters.value)


def choose_layout(plain: Callable[[Array], Array], channels_last: Callable[[Array], Array], image: Array) -> Array:
    """`plain(image)`, or in a network on a CPU, the result of `channels_last` on the image with channels last."""
    if not are_channels_last():
        return plain(image)
    return choose(image, cpu=partial(apply_channels_last, channels_last), default=plain)


def apply_channels_last(function: Callable[[Array], Array], image: Array) -> Array:
    """Calls a function of images with channels last, and moves the channels of its result to DirectML's place."""
    return jnp.moveaxis(function(jnp.moveaxis(image, 1, -1)), -1, 1)
