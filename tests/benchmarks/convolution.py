"""Layers of networks as convolutions: the same work for every rival. `layers.py` times them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jax import lax
from workloads import SEED, OnnxNode, Work, Workload

import dmljax
from dmljax import ConvolutionDirection

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
    rng = np.random.default_rng(SEED)
    count = len(one.space)
    first = (one.channels, one.outputs) if one.is_backward else (one.outputs, one.channels // one.groups)
    image = rng.integers(-4, 5, (batch, one.channels, *one.space)).astype(dtype)
    filters = rng.integers(-4, 5, (*first, *one.window)).astype(dtype)
    pads = [(one.padding, one.padding)] * count
    direction = ConvolutionDirection(one.is_backward)

    def in_jax(x: Any, w: Any) -> Any:
        if one.is_backward:
            reach = [(size - 1 - one.padding, size - 1 - one.padding) for size in one.window]
            flipped = lax.rev(w.swapaxes(0, 1), range(2, w.ndim))
            return lax.conv_general_dilated(x, flipped, (1,) * count, reach, lhs_dilation=(one.stride,) * count)
        return lax.conv_general_dilated(x, w, (one.stride,) * count, pads, feature_group_count=one.groups)

    name = f"conv{'_transpose' if one.is_backward else ''}{count}d"
    of_torch = partial(getattr(torch.nn.functional, name), stride=one.stride, padding=one.padding, groups=one.groups)
    attributes = {"strides": [one.stride] * count, "pads": [one.padding] * 2 * count, "group": one.groups}
    return Work(
        (image, filters),
        dmljax=lambda x, w: dmljax.convolution(
            x,
            w,
            direction=direction,
            strides=one.stride,
            start_padding=one.padding,
            end_padding=one.padding,
            group_count=one.groups,
        ),
        jax=in_jax,
        torch=of_torch,
        onnx=OnnxNode("ConvTranspose" if one.is_backward else "Conv", lambda x, w: {"x": x, "w": w}, attributes),
        numpy=lambda x, w: of_torch(torch.from_numpy(x), torch.from_numpy(w)).numpy(),
    )


def convolution_workloads(batches: Sequence[int] = BATCHES, dtype: str = "float32") -> Iterator[Workload]:
    """The workloads of the layers."""
    for batch in batches:
        for one in LAYERS:
            elements = batch * one.channels * math.prod(one.space)
            yield Workload("convolution", dtype, elements, f"{batch} x {one.detail}", partial(layer, one, batch, dtype))
