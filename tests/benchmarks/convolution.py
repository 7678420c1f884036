"""Layers of networks as convolutions: the same work for every rival. `layers.py` times them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from jax import lax
from workloads import SEED, OnnxNode, Work, Workload

import dmljax
from dmljax.directml import ConvolutionDirection

BATCHES = (1, 8)


@dataclass(frozen=True)
class Layer:
    """One convolution of a network, whose image has `channels` and the sizes `space`."""

    network: str
    channels: int
    space: tuple[int, ...]
    outputs: int
    window: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    groups: int = 1
    is_backward: bool = False

    @property
    def detail(self) -> str:
        """A line of the table."""
        sizes = "x".join(map(str, (self.channels, *self.space)))
        window = "x".join(map(str, self.window))
        kind = "up " if self.is_backward else "depthwise " if self.groups > 1 else ""
        return f"{self.network}: {kind}{sizes} to {self.outputs}, {window}, stride {self.stride}"


def _squares(network: str, *rows: Any) -> list[Layer]:
    """Layers of square images and windows: channels, size, outputs, window, stride, padding and groups."""
    return [
        Layer(network, channels, (size, size), outputs, (window, window), *rest)
        for channels, size, outputs, window, *rest in rows
    ]


LAYERS = [
    *_squares("SqueezeNet", (3, 224, 64, 3, 2), (64, 55, 16, 1), (16, 55, 64, 1), (16, 55, 64, 3, 1, 1)),
    *_squares("SqueezeNet", (256, 27, 32, 1), (32, 27, 128, 3, 1, 1), (64, 13, 256, 3, 1, 1), (512, 13, 1000, 1)),
    *_squares("MobileNetV2", (3, 224, 32, 3, 2, 1), (32, 112, 32, 3, 1, 1, 32), (32, 112, 16, 1), (16, 112, 96, 1)),
    *_squares("MobileNetV2", (96, 112, 96, 3, 2, 1, 96), (96, 56, 24, 1), (144, 56, 144, 3, 1, 1, 144)),
    *_squares("MobileNetV2", (144, 56, 144, 3, 2, 1, 144), (192, 28, 32, 1), (384, 14, 384, 3, 1, 1, 384)),
    *_squares("MobileNetV2", (384, 14, 96, 1), (576, 14, 576, 3, 2, 1, 576), (960, 7, 960, 3, 1, 1, 960)),
    *_squares("MobileNetV2", (960, 7, 160, 1), (320, 7, 1280, 1)),
    *_squares("ResNet-18", (3, 224, 64, 7, 2, 3), (64, 56, 64, 3, 1, 1), (64, 56, 128, 3, 2, 1), (64, 56, 128, 1, 2)),
    *_squares("ResNet-18", (128, 28, 128, 3, 1, 1), (128, 28, 256, 3, 2, 1), (256, 14, 256, 3, 1, 1)),
    *_squares("ResNet-18", (256, 14, 512, 3, 2, 1), (512, 7, 512, 3, 1, 1)),
    *_squares("U-Net", (1, 128, 32, 3, 1, 1), (64, 64, 64, 3, 1, 1), (256, 16, 256, 3, 1, 1), (32, 128, 2, 1)),
    Layer("U-Net", 256, (16, 16), 128, (2, 2), 2, is_backward=True),
    Layer("U-Net", 64, (64, 64), 32, (2, 2), 2, is_backward=True),
    Layer("U-Net", 128, (16, 16), 64, (4, 4), 2, 1, is_backward=True),
    *_squares("transformer", (3, 224, 768, 16, 16)),
    Layer("transformer", 384, (196,), 1536, (1,)),
    Layer("transformer", 1536, (196,), 384, (1,)),
    Layer("transformer", 512, (256,), 512, (31,), 1, 15, 512),
]


def layer(one: Layer, batch: int, dtype: str) -> Work:
    """The work of a layer on small whole numbers, whose sums are the same in any order."""
    image, filters = whole_numbers(one, batch, dtype)
    count = len(one.space)
    attributes = {"strides": [one.stride] * count, "pads": [one.padding] * 2 * count, "group": one.groups}
    of_dmljax, of_jax, of_torch = rivals(one)
    return Work(
        (image, filters),
        dmljax=of_dmljax,
        jax=of_jax,
        torch=of_torch,
        onnx=OnnxNode("ConvTranspose" if one.is_backward else "Conv", lambda x, w: {"x": x, "w": w}, attributes),
        numpy=lambda x, w: of_torch(torch.from_numpy(x), torch.from_numpy(w)).numpy(),
    )


def whole_numbers(one: Layer, batch: int, dtype: str) -> tuple[Any, Any]:
    """An image and filters."""
    rng = np.random.default_rng(SEED)
    first = (one.channels, one.outputs) if one.is_backward else (one.outputs, one.channels // one.groups)
    image = rng.integers(-4, 5, (batch, one.channels, *one.space)).astype(dtype)
    return image, rng.integers(-4, 5, (*first, *one.window)).astype(dtype)


def rivals(one: Layer) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """The layer as a function of image and filters, of dmljax, JAX and PyTorch."""
    count = len(one.space)
    pads = [(one.padding, one.padding)] * count

    def of_dmljax(x: Any, w: Any) -> Any:
        return dmljax.convolution(
            x,
            w,
            direction=ConvolutionDirection(one.is_backward),
            strides=one.stride,
            start_padding=one.padding,
            end_padding=one.padding,
            group_count=one.groups,
        )

    def of_jax(x: Any, w: Any) -> Any:
        if one.is_backward:
            reach = [(size - 1 - one.padding, size - 1 - one.padding) for size in one.window]
            flipped = lax.rev(w.swapaxes(0, 1), range(2, w.ndim))
            return lax.conv_general_dilated(x, flipped, (1,) * count, reach, lhs_dilation=(one.stride,) * count)
        return lax.conv_general_dilated(x, w, (one.stride,) * count, pads, feature_group_count=one.groups)

    name = f"conv{'_transpose' if one.is_backward else ''}{count}d"
    of_torch = partial(getattr(torch.nn.functional, name), stride=one.stride, padding=one.padding, groups=one.groups)
    return of_dmljax, of_jax, of_torch


def gradient(one: Layer, batch: int) -> Work:
    """The gradients of a layer by image and filters, with the layer itself computed before them."""
    image, filters = whole_numbers(one, batch, "float32")
    of_dmljax, of_jax, of_torch = rivals(one)
    cotangent = np.sign(of_torch(torch.from_numpy(image), torch.from_numpy(filters)).numpy())

    def both(function: Callable[..., Any]) -> Callable[..., Any]:
        def gradients(x: Any, w: Any, cotangent: Any) -> Any:
            y, pull = jax.vjp(function, x, w)
            return y, *pull(cotangent)

        return gradients

    def both_of_torch(x: Any, w: Any, cotangent: Any) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            x, w = (one.detach().requires_grad_() for one in (x, w))
            y = of_torch(x, w)
            return y.detach(), *torch.autograd.grad(y, (x, w), cotangent)

    return Work(
        (image, filters, cotangent),
        dmljax=both(of_dmljax),
        jax=both(of_jax),
        torch=both_of_torch,
        comparable=lambda results: np.concatenate([np.asarray(one).ravel() for one in results]),
    )


STEPS = 4


def loop(one: Layer, batch: int) -> Work:
    """A layer whose result is its next image, in a loop."""
    image, filters = whole_numbers(one, batch, "float32")
    filters /= 64
    of_dmljax, of_jax, of_torch = rivals(one)

    def repeated(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w: lax.fori_loop(0, STEPS, lambda _, x: function(x, w), x)

    def repeated_by_torch(x: Any, w: Any) -> Any:
        for _ in range(STEPS):
            x = of_torch(x, w)
        return x

    return Work(
        (image, filters),
        dmljax=repeated(of_dmljax),
        jax=repeated(of_jax),
        torch=repeated_by_torch,
        comparable=lambda result: np.asarray(result) / np.abs(np.asarray(result)).max(),
        tolerance=1e-5,
    )


def convolution_workloads(batches: Sequence[int] = BATCHES, dtype: str = "float32") -> Iterator[Workload]:
    """The workloads of the layers."""
    for batch in batches:
        for one in LAYERS:
            elements = batch * one.channels * math.prod(one.space)
            yield Workload("convolution", dtype, elements, f"{batch} x {one.detail}", partial(layer, one, batch, dtype))


def derived_workloads(batches: Sequence[int] = BATCHES) -> Iterator[Workload]:
    """Gradients of layers, and layers in loops, where they keep the size of the image."""
    for batch in batches:
        for one in LAYERS:
            detail, elements = f"{batch} x {one.detail}", batch * one.channels * math.prod(one.space)
            yield Workload("convolution's gradients", "float32", elements, detail, partial(gradient, one, batch))
            if one.channels == one.outputs and one.stride == 1 and max(one.window) == 3:
                yield Workload("convolution in a loop", "float32", elements, detail, partial(loop, one, batch))
