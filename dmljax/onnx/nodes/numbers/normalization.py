"""Normalizations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

import dmljax
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.foundation.sharding import reshape
from dmljax.onnx.handlers.registry import NodeCall, handles, handles_contrib
from dmljax.onnx.handlers.signatures import Attributes, Images, Vector
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.nodes.numbers.elementwise import add_arrays
from dmljax.onnx.running.interpreter import promote
from dmljax.onnx.values.types import Array, Results


def reshape_to_channels(array: Array, x: Array) -> Array:
    """Reshapes per-channel values to broadcast over an image, as DirectML requires."""
    return array.reshape(-1, *([1] * (x.ndim - 2)))


class _ByMoments(NamedTuple):
    """The inputs of a normalization by per-channel mean and variance."""

    x: Array
    scale: Array
    bias: Array
    mean: Array
    variance: Array

    def normalize(self, epsilon: float) -> Array:
        x, wide = self.x, promote(self.x.dtype, self.mean.dtype)
        scale, bias, mean, variance = (reshape_to_channels(moments, x).astype(wide) for moments in self[1:])
        return dmljax.batch_normalization(x.astype(wide), mean, variance, scale, bias, epsilon).astype(x.dtype)


@handles("BatchNormalization", since=14)
def _batch_normalization(
    inputs: _ByMoments, *, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0
) -> Results:
    if not training_mode:
        return inputs.normalize(epsilon)
    # ONNX returns running moments, DirectML the batch's moments.
    x, scale, bias, *moments = inputs
    scale, bias = (reshape_to_channels(factors, x).astype(x.dtype) for factors in (scale, bias))
    output, *batch_moments = dmljax.batch_normalization_training(x, scale, bias, epsilon=epsilon)
    news = [moment.reshape(-1).astype(moments[0].dtype) for moment in batch_moments]
    return output, *(momentum * old + (1 - momentum) * new for old, new in zip(moments, news, strict=True))


@handles("BatchNormalization", since=1)
def _first_batch_normalization(
    inputs: _ByMoments,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
    call: NodeCall,
) -> Array:
    if call.wants(1) or not spatial:
        what = "spatial=0" if not spatial else f"{len(call.node.outputs)} outputs"
        rule = "training and spatial=0 are not supported before version 14"
        raise Unsupported(Problem((), rule, what))
    return inputs.normalize(epsilon)


@handles("InstanceNormalization")
def _instance_normalization(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5) -> Array:
    return dmljax.mean_variance_normalization(x, reshape_to_channels(scale, x), reshape_to_channels(bias, x), epsilon)


@handles("MeanVarianceNormalization", since=9)
def _mean_variance_normalization(x: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    return dmljax.mean_variance_normalization1(x, axes=axes, epsilon=1e-9)


@handles("MeanVarianceNormalization", since=1)
def _first_mean_variance_normalization(x: Array, *, across_channels: int = 0, normalize_variance: int = 1) -> Array:
    axes = range(x.ndim) if across_channels else (0, *range(2, x.ndim))
    return dmljax.mean_variance_normalization1(x, axes=axes, epsilon=1e-9, normalize_variance=bool(normalize_variance))


@handles("LayerNormalization", since=1)
def layer_normalization(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    call: NodeCall,
) -> Results:
    """Normalizes the input from an axis on; also returns its mean and inverse deviation, of type `stash_type`."""
    output, mean, inverse = normalize(x, scale, bias, epsilon, call, axis=axis)
    return output if mean is None else (output, mean, inverse)


def normalize(
    x: Array,
    scale: Array,
    bias: Array | None,
    epsilon: float,
    call: NodeCall,
    *,
    axis: int = -1,
    is_simple: bool = False,
) -> tuple[Array, Array | None, Array | None]:
    """Normalizes the input from an axis on; also returns its mean and inverse deviation if the node wants them.

    `is_simple` takes the mean for 0.
    """
    axes = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    wide = promote(x.dtype, scale.dtype)
    parts = x.astype(wide), scale.astype(wide), None if bias is None else bias.astype(wide), epsilon
    if is_simple:
        output = dmljax.mean_variance_normalization2(*parts, axes=axes, use_mean=False)
    else:
        output = dmljax.mean_variance_normalization1(*parts, axes=axes)
    output = output.astype(scale.dtype)
    if not (call.wants(1) or call.wants(2)):
        return output, None, None
    values = x.astype(promote(x.dtype, jnp.float32))
    mean = dmljax.reduce(values, function=directml.ReduceFunction.AVERAGE, axes=axes)
    squares = values if is_simple else values - mean
    variance = dmljax.reduce(squares**2, function=directml.ReduceFunction.AVERAGE, axes=axes)
    return output, mean, 1 / jnp.sqrt(variance + epsilon)


@handles("RMSNormalization")
def rms_normalization(x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Array:
    """Divides the input by its root mean square."""
    axes = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    return dmljax.mean_variance_normalization2(x, scale, None, epsilon, axes=axes, use_mean=False)


@handles("GroupNormalization", since=21)
def _group_normalization(
    x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    groups = reshape(_normalize_groups(x, num_groups, epsilon), x.shape)
    return dmljax.element_wise_add(
        dmljax.element_wise_multiply(groups, reshape_to_channels(scale, x)), reshape_to_channels(bias, x)
    )


@handles("GroupNormalization", since=18)
def _group_normalization_by_group(
    x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = 1e-5
) -> Array:
    scaled = dmljax.element_wise_multiply(_normalize_groups(x, num_groups, epsilon), scale.reshape(-1, 1))
    return reshape(dmljax.element_wise_add(scaled, bias.reshape(-1, 1)), x.shape)


def _normalize_groups(x: Array, count: int, epsilon: float) -> Array:
    """The normalized groups of channels, in the shape (batch, groups, elements)."""
    groups = reshape(x, (x.shape[0], count, math.prod(x.shape[1:]) // count))
    return dmljax.mean_variance_normalization1(groups, axes=2, epsilon=epsilon)


@handles("LRN")
def _local_response_normalization(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:
    return dmljax.local_response_normalization(x, alpha, beta, bias, local_size=size)


@handles("LpNormalization")
def _lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    return dmljax.lp_normalization(x, 1e-30, axis=normalize_axis(axis, x.ndim), p=p)  # rows of zeros give zeros


# ONNX Runtime's own normalizations


@handles("SimplifiedLayerNormalization")  # ONNX Runtime defines it in ONNX's domain
def _simplified_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, call: NodeCall
) -> Results:
    output, _, inverse = normalize(x, scale, None, epsilon, call, axis=axis, is_simple=True)
    return output, inverse


@handles_contrib("SkipLayerNormalization")
def _skip_layer_normalization(
    x: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    call: NodeCall,
) -> Results:
    total = add_arrays(x, skip, bias)
    return *normalize(total, gamma, beta, epsilon, call), total


@handles_contrib("SkipSimplifiedLayerNormalization")
def _skip_simplified_normalization(
    x: Array, skip: Array, gamma: Array, bias: Array | None = None, *, epsilon: float = 1e-12, call: NodeCall
) -> Results:
    total = add_arrays(x, skip, bias)
    return *normalize(total, gamma, None, epsilon, call, is_simple=True), total


@dataclass(frozen=True, kw_only=True)
class _GroupAttributes(Attributes):
    activation: int
    channels_last: int = 1
    epsilon: float = 1e-5
    groups: int


@handles_contrib("GroupNorm")
def _group_norm(x: Images, gamma: Vector, beta: Vector, *, norm: _GroupAttributes) -> Array:
    image = x if norm.channels_last else jnp.moveaxis(x, 1, -1)
    channels, groups = image.shape[-1], norm.groups
    if groups < 1 or channels % groups:
        raise InvalidDesc(Problem("groups", f"must divide {channels} channels", groups))
    wide = image.astype(promote(x.dtype, gamma.dtype))
    parts = reshape(wide, (image.shape[0], math.prod(image.shape[1:-1]), groups, channels // groups))
    parts = dmljax.mean_variance_normalization1(parts, axes=(1, 3), epsilon=norm.epsilon)
    gamma, beta = gamma.astype(wide.dtype), beta.astype(wide.dtype)
    result = dmljax.element_wise_add(dmljax.element_wise_multiply(reshape(parts, image.shape), gamma), beta)
    result = (dmljax.activation_swish(result) if norm.activation else result).astype(x.dtype)
    return result if norm.channels_last else jnp.moveaxis(result, -1, 1)


@handles_contrib("SkipGroupNorm")
def _skip_group_norm(
    x: Images, gamma: Vector, beta: Vector, skip: Array, bias: Vector | None = None, *, norm: _GroupAttributes
) -> tuple[Array, Array]:
    place = -1 if norm.channels_last else 1

    def expand_to_image(rows: Array) -> Array:
        return jnp.expand_dims(rows, [axis for axis in range(1, x.ndim) if axis != place % x.ndim])

    skip = expand_to_image(skip) if skip.ndim == 2 else skip
    total = add_arrays(x, skip, None if bias is None else expand_to_image(bias[None]))
    return _group_norm(total, gamma, beta, norm=norm), total
