"""Where the channels of an image lie while it is computed: before the dimensions of space, or after them, in networks.

Images have the dimensions batch, channels and space. On a CPU, XLA's convolutions have their channels last in memory,
and loops over channels are vectorised whatever the sizes of windows, strides and paddings are. One layer alone loses
more by moving the channels than it gains. In a network nothing is moved between two layers that both have them last:
XLA lets a transpose and its inverse cancel. So graphs and models are traced as networks, which is part of what JAX's
caches of traced and compiled functions look at.

On two cores, one image: MobileNetV2 takes 8.6 ms with channels last in all its layers, and 17 ms with each layer as it
is quickest alone.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

_channels_last = jax.make_user_context(default_value=False)

_FEWEST_LAYERS = 2


def network_of(layers: int) -> AbstractContextManager[Any]:
    """The context in which all that has so many layers with windows, such as convolutions and poolings, is traced."""
    is_network = layers >= _FEWEST_LAYERS and jax.default_backend() == "cpu"
    context: AbstractContextManager[Any] = _channels_last(is_network)
    return context


def are_channels_last() -> bool:
    """Whether a layer that is traced now should compute with channels after the dimensions of space."""
    return bool(_channels_last.value)


def with_channels_last(function: Callable[[Array], Array], image: Array) -> Array:
    """The result of a function of images with channels last, with its channels where they are in DirectML."""
    return jnp.moveaxis(function(jnp.moveaxis(image, 1, -1)), -1, 1)
