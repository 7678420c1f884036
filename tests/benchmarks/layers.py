"""Layers of networks: convolution, pooling, normalization, resampling, products, the same for each rival."""

from collections.abc import Callable
from typing import Any

import idioms
import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from workloads import SEED, OnnxNode, Work, as_numpy

import dmljax
from dmljax.directml import InterpolationMode

Shape = tuple[int, ...]
F = torch.nn.functional
IMAGE, POOLED = (1, 64, 112, 112), (1, 64, 56, 56)
WINDOW: dict[str, Any] = {"window_sizes": 3, "strides": 2, "start_padding": 1, "end_padding": 1}
SLIDING: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}


def whole(shape: Shape) -> Any:
    """Small whole numbers, whose sums are exact in float32."""
    return np.random.default_rng(SEED).integers(-4, 5, shape).astype(np.float32)


def normal(shape: Shape) -> Any:
    """Normally distributed numbers."""
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


def channels_of(x: Any) -> Any:
    return x.reshape(-1, 1, 1)


def convolution() -> Work:
    """Windows of 3 x 3 at all positions of the image."""
    return Work(
        (whole(POOLED), whole((64, 64, 3, 3))),
        dmljax=lambda x, w: dmljax.convolution(x, w, start_padding=1, end_padding=1),
        jax=lambda x, w: lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)]),
        torch=lambda x, w: F.conv2d(x, w, padding=1),
        onnx=OnnxNode("Conv", lambda x, w: {"x": x, "w": w}, {"pads": [1] * 4}),
    )


def maxima() -> Work:
    return Work(
        (whole(IMAGE),),
        dmljax=lambda x: dmljax.max_pooling(x, **WINDOW),
        jax=idioms.largest,
        torch=lambda x: F.max_pool2d(x, 3, 2, 1),
        onnx=OnnxNode("MaxPool", lambda x: {"x": x}, SLIDING),
    )


def averages(function: Callable[..., Any]) -> Work:
    return Work(
        (whole(IMAGE),),
        dmljax=lambda x: function(x, include_padding=True, **WINDOW),
        jax=idioms.averages,
        torch=lambda x: F.avg_pool2d(x, 3, 2, 1),
        onnx=OnnxNode("AveragePool", lambda x: {"x": x}, SLIDING | {"count_include_pad": 1}),
        tolerance=1e-4,
    )


def _standardized(x: Any, axes: tuple[int, ...]) -> Any:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5)


def instance_norm(function: Callable[..., Any]) -> Work:
    """Mean and variance of each channel of an image."""
    ones = np.ones(64, np.float32)
    return Work(
        (normal((1, 64, 64, 64)),),
        dmljax=function,
        jax=lambda x: _standardized(x, (2, 3)),
        torch=F.instance_norm,
        onnx=OnnxNode("InstanceNormalization", lambda x: {"x": x, "scale": ones, "bias": 0 * ones}, {"epsilon": 1e-5}),
        tolerance=1e-4,
    )


def row_norm(function: Callable[..., Any]) -> Work:
    """Mean and variance of each row."""
    ones = np.ones(768, np.float32)
    return Work(
        (normal((1, 128, 768)),),
        dmljax=lambda x: function(x, axes=2),
        jax=lambda x: _standardized(x, (2,)),
        torch=lambda x: F.layer_norm(x, (768,)),
        onnx=OnnxNode("LayerNormalization", lambda x: {"x": x, "scale": ones}, {"axis": -1, "epsilon": 1e-5}),
        tolerance=1e-4,
    )


def batch_normalized() -> Work:
    """Batch normalization with a given mean and variance."""
    mean, variance, scale, bias = normal((4, 64))
    names = ("x", "mean", "variance", "scale", "bias")

    def flat(*arrays: Any) -> dict[str, Any]:
        given = dict(zip(names, (arrays[0], *(array.reshape(-1) for array in arrays[1:])), strict=True))
        return {name: given[name] for name in ("x", "scale", "bias", "mean", "variance")}

    return Work(
        (normal(POOLED), *map(channels_of, (mean, variance**2 + 0.5, scale, bias))),
        dmljax=dmljax.batch_normalization,
        jax=lambda x, mean, variance, scale, bias: (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias,
        torch=lambda x, *given: F.batch_norm(x, *(one.flatten() for one in given)),
        onnx=OnnxNode("BatchNormalization", flat, {"epsilon": 1e-5}),
        tolerance=1e-4,
    )


def resampled(function: Callable[..., Any]) -> Work:
    """An image of twice the size, by linear averages."""
    sizes = (1, 64, 128, 128)
    empty, scales = np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)
    return Work(
        (whole((1, 64, 64, 64)),),
        dmljax=lambda x: function(x, output_sizes=sizes, interpolation_mode=InterpolationMode.LINEAR),
        jax=lambda x: jax.image.resize(x, sizes, "linear", antialias=False),
        torch=lambda x: F.interpolate(x, sizes[2:], mode="bilinear"),
        onnx=OnnxNode("Resize", lambda x: {"x": x, "roi": empty, "scales": scales}, {"mode": "linear"}),
        tolerance=1e-3,  # positions of PyTorch and ONNX Runtime are rounded to float32
    )


def product() -> Work:
    """A product of matrices with a bias."""
    return Work(
        (whole((1, 128, 768)), whole((1, 768, 768)), whole((768,))),
        dmljax=dmljax.gemm,
        jax=lambda a, b, c: jnp.matmul(a, b) + c,
        torch=lambda a, b, c: a @ b + c,
        onnx=OnnxNode("Gemm", lambda a, b, c: {"a": a[0], "b": b[0], "c": c}, {}),
        comparable=lambda result: as_numpy(result).reshape(128, 768),
    )
