"""ONNX Runtime's convolutions and poolings with channels last, and convolutions fused with an activation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from dmljax.onnx.handlers.registry import handles_contrib
from dmljax.onnx.handlers.signatures import Attributes, ConvolutionAttributes, Images, PoolingAttributes
from dmljax.onnx.nodes.images import windows
from dmljax.onnx.nodes.numbers.elementwise import activate, add_arrays
from dmljax.onnx.values.types import Array


def _channels_first(x: Array) -> Array:
    return jnp.moveaxis(x, -1, 1)


def apply_to_channels_last(function: Callable[[Array], Array], x: Array, channels_last: int = 1) -> Array:
    """Applies a function of channels-first images to images that may have channels last."""
    return jnp.moveaxis(function(_channels_first(x)), 1, -1) if channels_last else function(x)


@handles_contrib("NhwcConv")
def _convolution_of_last_channels(
    x: Images, filter: Images, bias: Array | None = None, *, window: ConvolutionAttributes
) -> Array:
    filter_channels_first = _channels_first(filter)  # here the filter has channels last too
    return apply_to_channels_last(
        lambda image: windows.convolution(image, filter_channels_first, bias, window=window), x
    )


@handles_contrib("NhwcMaxPool")
def _max_pool_of_last_channels(x: Images, *, window: PoolingAttributes, storage_order: int = 0) -> Array:
    return apply_to_channels_last(lambda image: windows.max_pool(image, window), x)


# The attributes of activations that do not take alpha, beta and gamma
_PARAMETERS = {"Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",)}


@dataclass(frozen=True, kw_only=True)
class _ListedActivation(Attributes):
    activation: str = ""
    activation_params: Sequence[float] = ()


class _Fused(NamedTuple):
    x: Images
    filter: Images
    bias: Array | None = None
    summand: Array | None = None


@handles_contrib("FusedConv")
def _fused_convolution(inputs: _Fused, *, window: ConvolutionAttributes, fused: _ListedActivation) -> Array:
    names = _PARAMETERS.get(fused.activation, ("alpha", "beta", "gamma"))
    numbers = dict(zip(names, fused.activation_params, strict=False))
    total = add_arrays(windows.convolution(*inputs[:3], window=window), inputs.summand)
    return activate(total, fused.activation, numbers)


@handles_contrib("NhwcFusedConv")
def _fused_convolution_of_last_channels(
    inputs: _Fused, *, window: ConvolutionAttributes, fused: _ListedActivation
) -> Array:
    summand = None if inputs.summand is None else _channels_first(inputs.summand)

    def convolution(image: Array) -> Array:
        return _fused_convolution(inputs._replace(x=image, summand=summand), window=window, fused=fused)

    return apply_to_channels_last(convolution, inputs.x)
