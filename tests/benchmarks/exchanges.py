"""What devices exchange for the layers of networks: eight devices of a CPU, as XLA compiles a layer for each sharding.

`python tests/benchmarks/exchanges.py` prints, for each layer and each dimension that its image is sharded along, the
exchanges of the compiled program and the bytes of their results on each device, beside the bytes of its share of the
image. Channels of filters, and what else has a number for each channel, are sharded as the image's channels are.
"""

import collections
import math
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import dmljax
from dmljax import directml

DEVICES = 8
IMAGE = (16, 64, 64, 64)
SHARDED = {"batch": 0, "channels": 1, "height": 2}
RESULT = r"= (\(?[^=]*?\)?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
BYTES = {"pred": 1, "u8": 1, "s8": 1, "f16": 2, "bf16": 2, "f32": 4, "s32": 4, "u32": 4}

Layer = tuple[Callable[..., Any], list[tuple[int, ...]], list[int | None]]


def layers() -> dict[str, Layer]:
    """Each as a function of arrays, the shapes of those after the image, and which axis of them is that of channels."""
    channels = IMAGE[1]
    padded: dict[str, Any] = {"start_padding": 1, "end_padding": 1}
    numbers = (1, channels, 1, 1)
    whole = partial(dmljax.mean_variance_normalization1, axes=(2, 3))
    return {
        "convolution, 3 x 3": (partial(dmljax.convolution, **padded), [(64, channels, 3, 3)], [1]),
        "convolution, 1 x 1": (dmljax.convolution, [(64, channels, 1, 1)], [1]),
        "convolution, depthwise": (
            partial(dmljax.convolution, group_count=channels, **padded),
            [(channels, 1, 3, 3)],
            [0],
        ),
        "convolution, up": (
            partial(dmljax.convolution, strides=2, direction=directml.ConvolutionDirection.BACKWARD),
            [(channels, 64, 2, 2)],
            [0],
        ),
        "max_pooling, 2 x 2": (partial(dmljax.max_pooling, window_sizes=2, strides=2), [], []),
        "max_pooling, 3 x 3": (partial(dmljax.max_pooling, window_sizes=3, strides=2, **padded), [], []),
        "average_pooling, all": (partial(dmljax.average_pooling, window_sizes=IMAGE[2:]), [], []),
        "batch_normalization": (dmljax.batch_normalization, [numbers] * 4, [1] * 4),
        "mean_variance_normalization1": (whole, [], []),
        "resample2, by 2": (
            partial(dmljax.resample2, scales=(1, 1, 2, 2), interpolation_mode=directml.InterpolationMode.LINEAR),
            [],
            [],
        ),
    }


def exchanged(function: Callable[..., Any], shapes: list[tuple[int, ...]], axes: list[int | None]) -> dict[str, int]:
    """The bytes of the results of each kind of exchange, of arrays that are sharded along these axes."""
    mesh = Mesh(jax.devices(), "devices")

    def placed(shape: tuple[int, ...], axis: int | None) -> Any:
        spec = PartitionSpec(*("devices" if i == axis else None for i in range(len(shape))))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    arrays = [placed(*one) for one in zip(shapes, axes, strict=True)]
    found: dict[str, int] = collections.defaultdict(int)
    for results, kind in re.findall(RESULT, str(jax.jit(function).lower(*arrays).compile().as_text())):
        for dtype, sizes in re.findall(r"(\w+)\[([\d,]*)\]", results):
            found[kind] += BYTES[dtype] * math.prod(int(size) for size in sizes.split(",") if size)
    return dict(found)


def main() -> None:
    """Prints the table."""
    print(f"The share of the image: {4 * math.prod(IMAGE) // DEVICES:,} bytes")
    print(f"| layer | {' | '.join(SHARDED)} |")
    print("|---|" + "---|" * len(SHARDED))
    for name, (function, shapes, channel_axes) in layers().items():
        cells = []
        for dimension, axis in SHARDED.items():
            others = channel_axes if dimension == "channels" else [None for _ in shapes]
            found = exchanged(function, [IMAGE, *shapes], [axis, *others])
            cells.append(", ".join(f"{kind} {size:,}" for kind, size in found.items()) or "nothing")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
