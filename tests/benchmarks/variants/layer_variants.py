"""Convolutions, products and networks on a GPU: as products, with channels last, and under XLA's settings."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from real_sizes import RESNET, convolution, product
from variant import CUDA, Options, Race, Variant, settings
from workloads import Function, Work

AUTOTUNE: dict[str, Options] = {
    "autotune_level_0": {"xla_gpu_autotune_level": 0},
    "autotune_level_5": {"xla_gpu_autotune_level": 5},
}
CHANNELS_LAST: dict[str, Options] = {"channels_last_by_XLA": {"xla_gpu_force_conv_nhwc": True}}
PRODUCTS: dict[str, Options] = {
    "all_tiles_of_Triton": {"xla_gpu_exhaustive_tiling_search": True},
    "no_Triton": {"xla_gpu_enable_triton_gemm": False},
    "Triton_for_all_products": {"xla_gpu_triton_gemm_any": True},
    "cuDNN_for_products": {"xla_gpu_cudnn_gemm_fusion_level": 3},
}
COMMANDS: dict[str, Options] = {
    "command_buffers": {"xla_gpu_graph_min_graph_size": 1},
    "no_command_buffers": {"xla_gpu_enable_command_buffer": ""},
}


def channels_last(x: Any) -> Any:
    return jnp.moveaxis(x, 1, -1)


def channels_second(x: Any) -> Any:
    return jnp.moveaxis(x, -1, 1)


def convolve_channels_last(padding: int, x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x,
        w,
        (1, 1),
        [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=x.dtype,
    )


def multiply_each_image(x: Any, w: Any) -> Any:
    """A product for each image in the layout that it has."""
    batch, channels, *space = x.shape
    matrix = jnp.broadcast_to(w.reshape(1, -1, channels), (batch, w.shape[0], channels))
    result = lax.dot_general(matrix, x.reshape(batch, channels, -1), (((2,), (1,)), ((0,), (0,))))
    return result.reshape(batch, -1, *space)


def multiply_with_batch_last(x: Any, w: Any) -> Any:
    """One product of the filters and of all images, with the batch after the channels."""
    outputs, channels = w.shape[:2]
    return lax.dot_general(w.reshape(outputs, channels), x, (((1,), (0,)), ((), ())))


def multiply_windows(size: int, x: Any, w: Any) -> Any:
    """One product of the filters and of the windows, with channels last."""
    padded = jnp.pad(x, [(0, 0), *[(size // 2, size // 2)] * 2, (0, 0)])
    height, width = x.shape[1:3]
    taps = [padded[:, i : i + height, j : j + width] for i in range(size) for j in range(size)]
    return jnp.concatenate(taps, -1) @ w.reshape(-1, w.shape[-1])


def in_channels_last(function: Function) -> Variant:
    """A function of images with channels last and of filters with outputs last."""
    return Variant(function, lambda x, w: (channels_last(x), w.transpose(2, 3, 1, 0)), channels_second)


def pointwise_variants(work: Work) -> Mapping[str, Variant]:
    """Ways to compute a convolution of 1x1."""
    return {
        "a product for each image": Variant(multiply_each_image),
        "one product, channels last": in_channels_last(lambda x, w: x @ w[0, 0]),
        "one product, batch after channels": Variant(
            multiply_with_batch_last, lambda x, w: (x.swapaxes(0, 1), w), lambda result: result.swapaxes(0, 1)
        ),
        "channels last": in_channels_last(partial(convolve_channels_last, 0)),
        **settings(multiply_each_image, each_image_without_Triton=PRODUCTS["no_Triton"]),
        **settings(work.dmljax, **CHANNELS_LAST, **AUTOTUNE),
    }


def window_variants(size: int, work: Work) -> Mapping[str, Variant]:
    """Ways to compute a convolution of a larger kernel."""
    return {
        "channels last": in_channels_last(partial(convolve_channels_last, size // 2)),
        "a product of windows, channels last": in_channels_last(partial(multiply_windows, size)),
        **settings(work.dmljax, **CHANNELS_LAST, **AUTOTUNE),
    }


def multiply_in_mosaic(columns: int, a: Any, b: Any) -> Any:
    """JAX's kernel for Hopper."""
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu

    config = hopper_matmul_mgpu.TuningConfig(
        tile_m=128, tile_n=columns, tile_k=64, max_concurrent_steps=4, grid_tile_width=8
    )
    return hopper_matmul_mgpu.matmul(a, b, None, config)


def product_variants(work: Work) -> Mapping[str, Variant]:
    return {
        **settings(work.dmljax, no_Triton=PRODUCTS["no_Triton"]),
        **{
            f"Mosaic GPU, {columns} columns": Variant(partial(multiply_in_mosaic, columns), needs=CUDA)
            for columns in (128, 64)
        },
        "sums in float32": Variant(lambda a, b: jnp.matmul(a, b, preferred_element_type=np.float32).astype(a.dtype)),
        **settings(work.dmljax, **{name: options for name, options in PRODUCTS.items() if name != "no_Triton"}),
        **settings(work.dmljax, **AUTOTUNE),
    }


def network_variants(work: Work) -> Mapping[str, Variant]:
    return settings(work.dmljax, **CHANNELS_LAST, **COMMANDS, **PRODUCTS, **AUTOTUNE)


def convolution_race(image: tuple[int, ...], outputs: int, size: int, stride: int, dtype: str) -> Race:
    ways: Callable[[Work], Mapping[str, Variant]] = pointwise_variants if size == 1 else partial(window_variants, size)
    spread = 1, (image[1] * size**2) ** -0.5
    return Race(partial(convolution, image, outputs, size, stride, dtype), ways, spread=spread)


CONVOLUTIONS = ("1x1, 256 to 64 of 56x56", "1x1, 1024 to 512 of 14x14", "3x3, 512 of 7x7", "3x3, 128 of 28x28")
RACES = {
    **{
        f"ResNet-50, {name}, {dtype}": convolution_race(*RESNET[name], dtype)
        for name in CONVOLUTIONS
        for dtype in ("float32", "bfloat16")
    },
    **{
        f"gemm 4096, {dtype}": Race(partial(product, 4096, dtype), product_variants)
        for dtype in ("bfloat16", "float16")
    },
}
SMALL_RACES = {
    "convolution 1x1, float32": convolution_race((2, 8, 6, 6), 4, 1, 1, "float32"),
    "convolution 3x3, bfloat16": convolution_race((2, 8, 6, 6), 4, 3, 1, "bfloat16"),
    "gemm 64, bfloat16": Race(partial(product, 64, "bfloat16"), product_variants),
}


def network_races(networks: Mapping[str, Callable[[], Work]]) -> dict[str, Race]:
    return {
        name: Race(networks[name], network_variants, share=2, lists_kernels=True)
        for name in ("ResNet-18", "U-Net")
        if name in networks
    }
