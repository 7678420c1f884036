"""Layers of networks: products, recurrence, pooling, normalization, resampling, convolutions, the same for each rival.

`python tests/benchmarks/layers.py` times them and prints a table for each kind; words choose layers, `--batch 8` the
batch.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from convolution import BATCHES, convolution_workloads, derived_workloads
from jax import lax
from recurrence import recurrence_workloads
from timing import Effort, medians
from workloads import DMLJAX, IDIOM, ONNX, SEED, TORCH, OnnxNode, Work, Workload, as_numpy

import dmljax
from dmljax.directml import AxisDirection, InterpolationMode

Shape = tuple[int, ...]
F = torch.nn.functional


def whole(shape: Shape) -> Any:
    """Small whole numbers, of which float32 has exact sums."""
    return np.random.default_rng(SEED).integers(-4, 5, shape).astype(np.float32)


def normal(shape: Shape) -> Any:
    """Normally distributed numbers."""
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


# Pooling: network, channels, size, window, stride, padding

POOLED = [
    ("SqueezeNet", 64, 109, 3, 2, 0),
    ("SqueezeNet", 256, 27, 3, 2, 0),
    ("ResNet-18", 64, 112, 3, 2, 1),
    ("U-Net", 64, 128, 2, 2, 0),
    ("U-Net", 256, 32, 2, 2, 0),
    ("ResNet-18, all of an image", 512, 7, 7, 1, 0),
    ("MobileNetV2, all of an image", 1280, 7, 7, 1, 0),
]


def pooling(kind: str, shape: Shape, window: int, stride: int, padding: int) -> Work:
    """A maximum, a maximum with indices, an average, or the gradient of a maximum."""
    x = whole(shape)
    slide: dict[str, Any] = {"strides": stride, "start_padding": padding, "end_padding": padding}
    windows, strides = (1, 1, window, window), (1, 1, stride, stride)
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    attributes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [padding] * 4}

    def reduced(x: Any) -> Any:
        if kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, windows, strides, pads)
        return lax.reduce_window(x, 0.0, lax.add, windows, strides, pads) / window**2

    if kind == "max":
        return Work(
            (x,),
            dmljax=lambda x: dmljax.max_pooling(x, window_sizes=window, **slide),
            jax=reduced,
            torch=lambda x: F.max_pool2d(x, window, stride, padding),
            onnx=OnnxNode("MaxPool", lambda x: {"x": x}, attributes),
            numpy=lambda x: F.max_pool2d(torch.from_numpy(x), window, stride, padding).numpy(),
        )
    return Work(
        (x,),
        dmljax=lambda x: dmljax.average_pooling(x, window_sizes=window, include_padding=True, **slide),
        jax=reduced,
        torch=lambda x: F.avg_pool2d(x, window, stride, padding),
        onnx=OnnxNode("AveragePool", lambda x: {"x": x}, attributes | {"count_include_pad": 1}),
        numpy=lambda x: F.avg_pool2d(torch.from_numpy(x), window, stride, padding).numpy(),
        tolerance=1e-4,
    )


def pooling_workloads(batch: int) -> Iterator[Workload]:
    """Maxima and averages."""
    for kind in ("max", "average"):
        for network, channels, size, window, stride, padding in POOLED:
            shape = (batch, channels, size, size)
            detail = f"{network}: {kind} of {channels}x{size}x{size}, {window}x{window}, stride {stride}"
            work = partial(pooling, kind, shape, window, stride, padding)
            yield Workload("pooling", "float32", math.prod(shape), f"{batch} x {detail}", work)


# Normalization


def over(shape: Shape, axes: tuple[int, ...], of_torch: Callable[[Any], Any], node: str | None) -> Work:
    """Mean and variance along axes."""

    def plain(x: Any) -> Any:
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        return (x - mean) / jnp.sqrt(variance + 1e-5)

    onnx = None
    if node == "LayerNormalization":
        ones = np.ones(shape[-1], np.float32)
        onnx = OnnxNode(node, lambda x: {"x": x, "scale": ones}, {"axis": -1, "epsilon": 1e-5})
    if node == "InstanceNormalization":
        ones = np.ones(shape[1], np.float32)
        onnx = OnnxNode(node, lambda x: {"x": x, "scale": ones, "bias": 0 * ones}, {"epsilon": 1e-5})
    return Work(
        (normal(shape),),
        dmljax=lambda x: dmljax.mean_variance_normalization1(x, axes=axes),
        jax=plain,
        torch=of_torch,
        onnx=onnx,
        numpy=lambda x: of_torch(torch.from_numpy(x)).numpy(),
        tolerance=1e-4,
    )


def batch_normalized(shape: Shape) -> Work:
    """The normalization of a batch by a mean and a variance that are known."""
    channels = shape[1]
    mean, variance, scale, bias = normal((4, channels))
    inputs = (normal(shape), *(x.reshape(-1, 1, 1) for x in (mean, variance**2 + 0.5, scale, bias)))

    def of_torch(x: Any, mean: Any, variance: Any, scale: Any, bias: Any) -> Any:
        return F.batch_norm(x, mean.flatten(), variance.flatten(), scale.flatten(), bias.flatten())

    return Work(
        inputs,
        dmljax=dmljax.batch_normalization,
        jax=lambda x, mean, variance, scale, bias: (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias,
        torch=of_torch,
        onnx=OnnxNode(
            "BatchNormalization",
            lambda x, mean, variance, scale, bias: {
                "x": x,
                "s": scale.ravel(),
                "b": bias.ravel(),
                "m": mean.ravel(),
                "v": variance.ravel(),
            },
            {"epsilon": 1e-5},
        ),
        numpy=lambda *arrays: of_torch(*map(torch.from_numpy, arrays)).numpy(),
        tolerance=1e-4,
    )


def normalization_workloads(batch: int) -> Iterator[Workload]:
    """Batch, layer, instance and group normalization."""
    for network, channels, size in (("ResNet-18", 64, 56), ("ResNet-18", 512, 7), ("MobileNetV2", 96, 112)):
        shape: Shape = (batch, channels, size, size)
        work = partial(batch_normalized, shape)
        detail = f"{batch} x {network}: batch normalization of {channels}x{size}x{size}"
        yield Workload("normalization", "float32", math.prod(shape), detail, work)
    layers: list[tuple[str, Shape, tuple[int, ...], Callable[[Any], Any], str | None]] = [
        ("transformer: rows of", (batch, 128, 768), (2,), lambda x: F.layer_norm(x, (768,)), "LayerNormalization"),
        ("transformer: rows of", (batch, 197, 384), (2,), lambda x: F.layer_norm(x, (384,)), "LayerNormalization"),
        ("U-Net: channels of", (batch, 64, 64, 64), (2, 3), F.instance_norm, "InstanceNormalization"),
        (
            "U-Net: groups of",
            (batch, 32, 4, 32, 32),
            (2, 3, 4),
            lambda x: F.group_norm(x.flatten(1, 2), 32).view_as(x),
            None,
        ),
    ]
    for what, shape, axes, of_torch, node in layers:
        detail = f"{batch} x {what} {'x'.join(map(str, shape[1:]))}"
        yield Workload("normalization", "float32", math.prod(shape), detail, partial(over, shape, axes, of_torch, node))


# Resampling


def resampling(shape: Shape, sizes: tuple[int, int], mode: str) -> Work:
    """An image of another size, by the nearest element or by linear averages."""
    is_linear = mode == "linear"
    outputs = (*shape[:2], *sizes)
    torch_mode = "bilinear" if is_linear else "nearest"
    interpolation = InterpolationMode.LINEAR if is_linear else InterpolationMode.NEAREST_NEIGHBOR
    # PyTorch's nearest element is that before x / scale, which is what this direction and these offsets say.
    edges = {"rounding_direction": AxisDirection.DECREASING, "input_pixel_offsets": 0, "output_pixel_offsets": 0}
    ways: dict[str, Any] = {} if is_linear else edges
    rows, columns = (np.arange(to) * size // to for to, size in zip(sizes, shape[2:], strict=True))
    empty, scales = np.zeros(0, np.float32), np.array(outputs, np.float32) / np.array(shape, np.float32)
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "half_pixel" if is_linear else "asymmetric",
        "nearest_mode": "floor",
    }
    return Work(
        (whole(shape),),
        dmljax=lambda x: dmljax.resample2(x, output_sizes=outputs, interpolation_mode=interpolation, **ways),
        jax=lambda x: (
            jax.image.resize(x, outputs, "linear", antialias=False) if is_linear else x[:, :, rows[:, None], columns]
        ),
        torch=lambda x: F.interpolate(x, sizes, mode=torch_mode),
        onnx=OnnxNode("Resize", lambda x: {"x": x, "roi": empty, "scales": scales}, attributes),
        numpy=lambda x: F.interpolate(torch.from_numpy(x), sizes, mode=torch_mode).numpy(),
        tolerance=1e-3,  # positions of PyTorch and ONNX Runtime are rounded to float32
    )


def resampling_workloads(batch: int) -> Iterator[Workload]:
    """Larger and smaller images."""
    for channels, size, to in ((256, 16, 32), (128, 32, 64), (64, 64, 128), (3, 224, 448), (64, 64, 32), (3, 256, 192)):
        for mode in ("nearest", "linear"):
            shape = (batch, channels, size, size)
            detail = f"{batch} x {mode}: {channels}x{size}x{size} to {to}x{to}"
            yield Workload(
                "resampling", "float32", math.prod(shape), detail, partial(resampling, shape, (to, to), mode)
            )


# Matrix products


def product(rows: int, inner: int, columns: int, batch: int) -> Work:
    """A product of matrices with a bias."""
    a, b, c = whole((batch, rows, inner)), whole((1, inner, columns)), whole((columns,))
    return Work(
        (a, b, c),
        dmljax=dmljax.gemm,
        jax=lambda a, b, c: jnp.matmul(a, b, precision="highest") + c,
        torch=lambda a, b, c: a @ b + c,
        onnx=OnnxNode("Gemm", lambda a, b, c: {"a": a.reshape(-1, inner), "b": b[0], "c": c}, {}),
        numpy=lambda a, b, c: a @ b + c,
        comparable=lambda result: as_numpy(result).reshape(batch, rows, columns),
    )


def product_workloads(batch: int) -> Iterator[Workload]:
    """The products of a transformer block, and of the last layer of a classifier."""
    for rows, inner, columns in ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (1, 1280, 1000), (197, 384, 384)):
        detail = f"{batch} x {rows}x{inner} times {inner}x{columns}"
        work = partial(product, rows, inner, columns, batch)
        yield Workload("gemm", "float32", batch * rows * inner, detail, work)


def layer_workloads(batches: tuple[int, ...] = BATCHES) -> Iterator[Workload]:
    """All of them, kind by kind."""
    for kind in (
        product_workloads,
        recurrence_workloads,
        pooling_workloads,
        normalization_workloads,
        resampling_workloads,
    ):
        for batch in batches:
            yield from kind(batch)
    yield from convolution_workloads(batches)
    yield from derived_workloads(batches)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="layers whose kind or line has one of these words; all by default")
    parser.add_argument("--batch", type=int, action="append", help="1 and 8 by default")
    given = parser.parse_args()
    chosen = [
        workload
        for workload in layer_workloads(tuple(given.batch or BATCHES))
        if not given.words or any(word in f"{workload.operator} {workload.detail}" for word in given.words)
    ]
    for kind in dict.fromkeys(workload.operator for workload in chosen):
        print_table(kind, [workload for workload in chosen if workload.operator == kind])


def print_table(kind: str, workloads: list[Workload]) -> None:
    """Prints how many times as long each rival takes."""
    rivals = (IDIOM, TORCH, ONNX)
    ratios: dict[str, list[float]] = {rival: [] for rival in rivals}
    print(f"| {kind} | {DMLJAX}, ms | {' | '.join(f'{rival} / {DMLJAX}' for rival in rivals)} |")
    print("| --- | --: | --: | --: | --: |")
    for workload in workloads:
        work = workload.work()
        work.check()
        calls = {name: work.calls[name] for name in (DMLJAX, *rivals) if name in work.calls}
        with torch.inference_mode():
            seconds = medians(calls, Effort(rounds=5, block_seconds=0.02))
        columns = []
        for rival in rivals:
            if rival in seconds:
                ratios[rival].append(seconds[rival] / seconds[DMLJAX])
            columns.append(f"{ratios[rival][-1]:.2f}" if rival in seconds else "")
        print(f"| {workload.detail} | {seconds[DMLJAX] * 1e3:.3f} | {' | '.join(columns)} |", flush=True)
        jax.clear_caches()
    for name, summary in (("geometric mean", statistics.geometric_mean), ("least", min)):
        cells = (f"{summary(ratios[rival]):.2f}" if ratios[rival] else "" for rival in rivals)
        print(f"| {name} |  | {' | '.join(cells)} |")
    print()


if __name__ == "__main__":
    main()
