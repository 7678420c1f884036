"""Every operator beside PyTorch, ONNX Runtime and JAX's own functions, on one workload of about 2^20 elements.

`python tests/benchmarks/every.py` writes `figures/every.json`, from which `notebooks/at-a-glance.md` has its
column of speeds; words choose operators, and then nothing is written.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import idioms
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jax import lax
from layers import (
    IMAGE,
    POOLED,
    SLIDING,
    WINDOW,
    averages,
    batch_normalized,
    channels_of,
    convolution,
    instance_norm,
    maxima,
    normal,
    product,
    resampled,
    row_norm,
    whole,
)
from movement import (
    diagonal_triangle,
    elements_of,
    gathered_rows,
    hardmax,
    largest,
    nonzero_coordinates,
    one_hot,
    running_product,
    running_sum,
    scattered,
    summed,
    taken,
    top_k,
    unfolded,
)
from recurrence import network
from timing import Effort, medians
from workloads import DMLJAX, MEDIUM, RIVALS, SEED, Array, OnnxNode, Work, as_numpy, numbers

sys.path.extend(map(str, Path(__file__).parents[1].glob("**/")))
from test_peers_elementwise import CASES

import dmljax
from dmljax.directml import AxisDirection, DepthSpaceOrder, InterpolationMode

Build = Callable[[], Work]
F = torch.nn.functional
FILE = Path(__file__).parent / "figures" / "every.json"
FLOAT = "float32"


def random(shape: tuple[int, ...], dtype: str = FLOAT) -> Array:
    """Random integers from the whole range of their type, or floats between 0.5 and 1.5."""
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return np.random.default_rng(SEED).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return numbers(shape)


# Elementwise operators and activations, with the peers of tests/operators/test_peers_elementwise.py


def elementwise() -> Iterator[tuple[str, Build]]:
    """A workload for each function in that file."""
    seen = set()
    for case in CASES.values():
        function = getattr(case.function, "func", case.function)
        if function not in seen:
            seen.add(function)
            yield function.__name__.upper(), partial(_elementwise, case, function.__name__)


def _elementwise(case: Any, name: str) -> Work:
    dtype = "uint32" if "_bit_" in name else FLOAT
    if name.startswith("element_wise_logical") and name.endswith(("_and", "_or", "_xor", "_not")):
        dtype = "bool"
    rng = np.random.default_rng(SEED)
    inputs = tuple(
        rng.integers(0, 2 if dtype == "bool" else 30, MEDIUM).astype(dtype)
        if dtype != FLOAT
        else rng.uniform(case.domain[0], case.domain[1], MEDIUM).astype(dtype)
        for _ in range(case.inputs)
    )
    of_torch, of_onnx = case.peers.get("torch"), case.peers.get("onnxruntime")
    node = None
    if of_onnx is not None and dtype in of_onnx.types:
        operator, constants, opset, attributes = of_onnx.node

        def feeds(*arrays: Array) -> dict[str, Array | None]:
            more = [None if number is None else np.array(number, arrays[0].dtype) for number in constants]
            return {f"x{i}": x for i, x in enumerate([*arrays, *more])}

        node = OnnxNode(operator, feeds, attributes, opset=opset)
    has_torch = of_torch is not None and dtype in of_torch.types
    tensors = of_torch.tensors if has_torch else None
    idiom = idioms.ELEMENTWISE[name.upper()]
    return Work(inputs, case.function, jax=idiom, torch=tensors, onnx=node, tolerance=1e-4)


def selected() -> Work:
    condition = np.random.default_rng(SEED).random(MEDIUM) < 0.5
    a, b = random((2, MEDIUM))
    return Work(
        (condition, a, b),
        dmljax.element_wise_if,
        jax=jnp.where,
        torch=torch.where,
        onnx=OnnxNode("Where", lambda *x: dict(zip("cab", x, strict=True)), {}),
    )


def counted_bits() -> Work:
    return Work((random((MEDIUM,), "uint32"),), dmljax.element_wise_bit_count, jax=lax.population_count)


def softmax(function: Any, of_jax: Any, of_torch: Any, node: str) -> Work:
    return Work(
        (random((4096, 256)),),
        function,
        jax=of_jax,
        torch=partial(of_torch, dim=-1),
        onnx=OnnxNode(node, lambda x: {"x": x}, {}),
        tolerance=1e-5,
    )


def gradient(function: Any, of_jax: Any, of_torch: Any) -> Work:
    """The gradient of an elementwise function, beside JAX's derivative and PyTorch's backward kernel."""
    return Work(
        (normal((MEDIUM,)), random((MEDIUM,))),
        function,
        jax=lambda x, g: jax.vjp(of_jax, x)[1](g)[0],
        torch=of_torch,
    )


clip_gradient = partial(
    gradient,
    of_jax=lambda x: jnp.clip(x, -1, 1),
    of_torch=lambda x, g: torch.where((x > -1) & (x < 1), g, 0),
)
OF_SOFTMAX = jax.nn.softmax, torch.softmax, "Softmax"
OF_LOG_SOFTMAX = jax.nn.log_softmax, torch.log_softmax, "LogSoftmax"
SMOOTH: dict[str, Build] = {
    "ELEMENT_WISE_IF": selected,
    "ELEMENT_WISE_BIT_COUNT": counted_bits,
    "ACTIVATION_RELU_GRAD": partial(
        gradient, dmljax.activation_relu_grad, jax.nn.relu, lambda x, g: torch.ops.aten.threshold_backward(g, x, 0)
    ),
    "ELEMENT_WISE_CLIP_GRAD": partial(clip_gradient, lambda x, g: dmljax.element_wise_clip_grad(x, g, -1, 1)),
    "ELEMENT_WISE_CLIP_GRAD1": partial(clip_gradient, lambda x, g: dmljax.element_wise_clip_grad1(x, g, -1, 1)),
    "ACTIVATION_HARDMAX": partial(hardmax, dmljax.activation_hardmax),
    "ACTIVATION_HARDMAX1": partial(hardmax, partial(dmljax.activation_hardmax1, axes=-1)),
    "ACTIVATION_SOFTMAX": partial(softmax, dmljax.activation_softmax, *OF_SOFTMAX),
    "ACTIVATION_SOFTMAX1": partial(softmax, partial(dmljax.activation_softmax1, axes=-1), *OF_SOFTMAX),
    "ACTIVATION_LOG_SOFTMAX": partial(softmax, dmljax.activation_log_softmax, *OF_LOG_SOFTMAX),
    "ACTIVATION_LOG_SOFTMAX1": partial(softmax, partial(dmljax.activation_log_softmax1, axes=-1), *OF_LOG_SOFTMAX),
    "VALUE_SCALE_2D": lambda: Work(
        (random((1, 3, 592, 592)),),
        lambda x: dmljax.value_scale_2d(x, 0.5, jnp.array([1.0, 2.0, 3.0])),
        jax=lambda x: x * 0.5 + jnp.array([1.0, 2.0, 3.0])[:, None, None],
        torch=lambda x: x * 0.5 + torch.tensor([1.0, 2.0, 3.0])[:, None, None],
        onnx=OnnxNode("ImageScaler", lambda x: {"x": x}, {"scale": 0.5, "bias": [1.0, 2.0, 3.0]}, opset=9),
        tolerance=1e-5,
    ),
    "CAST": lambda: Work(
        (random((MEDIUM,)),),
        lambda x: dmljax.cast(x, dtype="float16"),
        jax=lambda x: x.astype("float16"),
        torch=lambda x: x.half(),
        onnx=OnnxNode("Cast", lambda x: {"x": x}, {"to": 10}),
    ),
}


# Indices, copies, sums along axes


def to_coordinates() -> Work:
    """Rows of 256 by their numbers."""
    indices = np.random.default_rng(SEED).permutation(4096)[:2048, None].astype(np.int32)
    feeds = lambda x, i, u: {"x": x, "i": i.astype(np.int64), "u": u}  # noqa: E731
    return Work(
        (random((4096, 256)), indices, random((2048, 256))),
        dmljax.scatter_nd,
        jax=lambda x, i, u: x.at[i[:, 0]].set(u),
        torch=lambda x, i, u: x.index_put((i[:, 0],), u),
        onnx=OnnxNode("ScatterND", feeds, {}),
    )


def reversed_rows() -> Work:
    lengths = np.random.default_rng(SEED).integers(1, 256, 4096).astype(np.int32)

    def in_jax(x: Any, n: Any) -> Any:
        at = jnp.arange(256)
        return jnp.take_along_axis(x, jnp.where(at < n[:, None], n[:, None] - 1 - at, at), axis=1)

    return Work(
        (random((4096, 256)), lengths[:, None]),
        lambda x, n: dmljax.reverse_subsequences(x, n, axis=1),
        jax=lambda x, n: in_jax(x, n[:, 0]),
        onnx=OnnxNode(
            "ReverseSequence", lambda x, n: {"x": x, "n": n[:, 0].astype(np.int64)}, {"batch_axis": 0, "time_axis": 1}
        ),
    )


def copied(ours: Any, of_jax: Any, of_torch: Any, node: OnnxNode | None = None, shape: Any = (4096, 256)) -> Work:
    return Work((random(shape),), ours, jax=of_jax, torch=of_torch, onnx=node)


def window_of_slice(ours: Any, step: int) -> Work:
    """Every second column of all rows but the first, forward or backward."""
    start, end = (1, 255) if step > 0 else (254, 0)
    steps = {"starts": [1, start], "ends": [4096, end], "axes": [0, 1], "steps": [1, step]}
    return Work(
        (random((4096, 256)),),
        ours,
        jax=lambda x: x[1:, start:end:step],
        torch=lambda x: (x if step > 0 else x.flip(1))[1:, 1:255:2].contiguous(),
        onnx=OnnxNode("Slice", lambda x: {"x": x} | {name: np.array(v) for name, v in steps.items()}, {}),
    )


def blocks(function: Any, order: str, is_to_depth: bool) -> Work:
    """Blocks of 2 x 2 into channels, or back."""
    mode = {"mode": order} if order else {}
    node = OnnxNode("SpaceToDepth" if is_to_depth else "DepthToSpace", lambda x: {"x": x}, {"blocksize": 2} | mode)
    of_torch = partial(F.pixel_unshuffle if is_to_depth else F.pixel_shuffle, **{
        "downscale_factor" if is_to_depth else "upscale_factor": 2
    })  # fmt: skip
    back = partial(idioms.depth_to_space, are_blocks_first=order == "DCR")
    # PyTorch has the channels before the blocks, like the order COLUMN_ROW_DEPTH.
    return Work(
        (random((1, 64, 128, 128)),),
        partial(function, block_size=2),
        jax=idioms.space_to_depth if is_to_depth else back,
        torch=of_torch if order == "CRD" else None,
        onnx=node,
    )


def padded(function: Any) -> Work:
    pads = np.array([1, 3, 2, 4])
    return Work(
        (random((4096, 256)),),
        lambda x: function(x, 0, start_padding=(1, 3), end_padding=(2, 4)),
        jax=lambda x: jnp.pad(x, ((1, 2), (3, 4))),
        torch=lambda x: F.pad(x, (3, 4, 1, 2)),
        onnx=OnnxNode("Pad", lambda x: {"x": x, "pads": pads}, {}),
    )


def folded() -> Work:
    """Adds 3 x 3 windows at their positions."""
    image, kernel = np.array([64, 64]), np.array([3, 3])
    return Work(
        (whole((1, 32 * 9, 64 * 64)),),
        lambda x: dmljax.fold(
            x, output_sizes=(1, 32, 64, 64), window_sizes=(3, 3), start_padding=(1, 1), end_padding=(1, 1)
        ),
        jax=idioms.folded,
        torch=lambda x: F.fold(x, (64, 64), 3, padding=1),
        onnx=OnnxNode("Col2Im", lambda x: {"x": x, "image": image, "kernel": kernel}, {"pads": [1, 1, 1, 1]}),
    )


def filled() -> Work:
    return Work(
        (np.array(3, FLOAT),),
        lambda value: dmljax.fill_value_constant(value, output_sizes=(MEDIUM,)),
        jax=lambda value: jnp.full((MEDIUM,), value),
        torch=lambda value: torch.full((MEDIUM,), 3.0),
        onnx=OnnxNode("Expand", lambda value: {"x": value, "shape": np.array([MEDIUM])}, {}),
    )


def sequence() -> Work:
    ends = {"start": np.array(3, FLOAT), "limit": np.array(3 + MEDIUM, FLOAT), "delta": np.array(1, FLOAT)}
    return Work(
        (np.array(3, FLOAT),),
        lambda start: dmljax.fill_value_sequence(start, 1.0, output_sizes=(MEDIUM,)),
        jax=lambda start: start + jnp.arange(MEDIUM, dtype=FLOAT),
        torch=lambda start: torch.arange(3.0, 3.0 + MEDIUM, dtype=torch.float32),
        onnx=OnnxNode("Range", lambda start: ends, {}),
    )


def diagonal() -> Work:
    return Work(
        (np.array(3, FLOAT),),
        lambda value: dmljax.diagonal_matrix(value, output_sizes=(1024, 1024)),
        jax=lambda value: value * jnp.eye(1024),
        torch=lambda value: value * torch.eye(1024),
    )


def random_words() -> Work:
    return Work(
        (np.array([0, 0, 0, 0, SEED, 0], np.uint32),),
        lambda state: dmljax.random_generator(state, output_sizes=(MEDIUM,)).output,
        jax=lambda state: jax.random.bits(jax.random.wrap_key_data(state[4:]), (MEDIUM,), "uint32"),
        torch=lambda state: torch.empty(MEDIUM, dtype=torch.int32).random_(),
        comparable=lambda words: np.mean(as_numpy(words) & 1),  # each rival has its own generator
        tolerance=0.01,
    )


MOVED: dict[str, Build] = {
    "ONE_HOT": one_hot,
    "NONZERO_COORDINATES": nonzero_coordinates,
    "GATHER": taken,
    "GATHER_ELEMENTS": elements_of,
    "GATHER_ND": partial(gathered_rows, dmljax.gather_nd),
    "GATHER_ND1": partial(gathered_rows, dmljax.gather_nd1),
    "SCATTER": scattered,
    "SCATTER_ND": to_coordinates,
    "REVERSE_SUBSEQUENCES": reversed_rows,
    "DIAGONAL_MATRIX": diagonal,
    "DIAGONAL_MATRIX1": diagonal_triangle,
    "FILL_VALUE_CONSTANT": filled,
    "FILL_VALUE_SEQUENCE": sequence,
    "RANDOM_GENERATOR": random_words,
    "SLICE": partial(window_of_slice, lambda x: dmljax.slice(x, starts=(1, 1), sizes=(4095, 127), strides=(1, 2)), 2),
    "SLICE1": partial(
        window_of_slice, lambda x: dmljax.slice1(x, starts=(1, 1), sizes=(4095, 254), strides=(1, -2)), -2
    ),
    "SLICE_GRAD": lambda: Work(
        (random((4096, 127)),),
        lambda g: dmljax.slice_grad(g, output_sizes=(4096, 256), starts=(0, 1), sizes=(4096, 254), strides=(1, 2)),
        jax=lambda g: jnp.zeros((4096, 256)).at[:, 1:255:2].set(g),
        torch=lambda g: torch.ops.aten.slice_backward(g, (4096, 256), 1, 1, 255, 2),
    ),
    "SPLIT": lambda: Work(
        (random((4096, 256)),),
        lambda x: dmljax.split(x, axis=1, sizes=(64, 64, 128)),
        jax=lambda x: jnp.split(x, (64, 128), axis=1),
        torch=lambda x: [part.contiguous() for part in torch.split(x, (64, 64, 128), 1)],
        onnx=OnnxNode("Split", lambda x: {"x": x, "sizes": np.array([64, 64, 128])}, {"axis": 1}, outputs=3),
        comparable=lambda parts: np.concatenate([as_numpy(part) for part in parts], axis=1),
    ),
    "JOIN": partial(
        copied,
        lambda x: dmljax.join([x, x], axis=1),
        lambda x: jnp.concatenate([x, x], axis=1),
        lambda x: torch.cat([x, x], 1),
        OnnxNode("Concat", lambda x: {"x": x, "y": x}, {"axis": 1}),
    ),
    "TILE": partial(
        copied,
        lambda x: dmljax.tile(x, repeats=(1, 2)),
        lambda x: jnp.tile(x, (1, 2)),
        lambda x: x.repeat(1, 2),
        OnnxNode("Tile", lambda x: {"x": x, "repeats": np.array([1, 2])}, {}),
    ),
    "SPACE_TO_DEPTH": partial(blocks, dmljax.space_to_depth, "", True),
    "SPACE_TO_DEPTH1": partial(blocks, dmljax.space_to_depth1, "", True),
    "DEPTH_TO_SPACE": partial(blocks, dmljax.depth_to_space, "DCR", False),
    "DEPTH_TO_SPACE1": partial(
        blocks, partial(dmljax.depth_to_space1, order=DepthSpaceOrder.COLUMN_ROW_DEPTH), "CRD", False
    ),
    "PADDING": partial(padded, dmljax.padding),
    "PADDING1": partial(padded, dmljax.padding1),
    "UNFOLD": unfolded,
    "FOLD": folded,
    "REDUCE": summed,
    "ARGMAX": partial(largest, dmljax.argmax, jnp.argmax, torch.argmax, "ArgMax"),
    "ARGMIN": partial(largest, dmljax.argmin, jnp.argmin, torch.argmin, "ArgMin"),
    "CUMULATIVE_SUMMATION": running_sum,
    "CUMULATIVE_PRODUCT": running_product,
    "TOP_K": partial(top_k, dmljax.top_k),
    "TOP_K1": partial(top_k, partial(dmljax.top_k1, axis_direction=AxisDirection.DECREASING)),
}


# Layers


def max_pooling(function: Any) -> Work:
    """The largest element of each window, and its index in the image."""
    return Work(
        (normal(IMAGE),),
        lambda x: tuple(function(x, **WINDOW)),
        jax=idioms.largest_and_places,
        torch=lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        onnx=OnnxNode("MaxPool", lambda x: {"x": x}, SLIDING, outputs=2),
        comparable=lambda results: as_numpy(results[0]),
    )


def max_pooling_gradient() -> Work:
    x = normal(IMAGE)
    indices = F.max_pool2d(torch.from_numpy(x), 3, 2, 1, return_indices=True)[1]
    steps = ([3, 3], [2, 2], [1, 1], [1, 1], False)
    return Work(
        (x, whole(POOLED)),
        lambda x, g: dmljax.max_pooling_grad(x, g, **WINDOW),
        jax=lambda x, g: jax.vjp(idioms.largest, x)[1](g)[0],
        torch=lambda x, g: torch.ops.aten.max_pool2d_with_indices_backward(g, x, *steps, indices),
    )


def average_pooling_gradient() -> Work:
    steps = ([3, 3], [2, 2], [1, 1], False, True, None)
    return Work(
        (whole(POOLED),),
        lambda g: dmljax.average_pooling_grad(g, output_sizes=IMAGE, include_padding=True, **WINDOW),
        jax=partial(idioms.average_gradient, shape=IMAGE),
        torch=lambda g: torch.ops.aten.avg_pool2d_backward(g, g.new_empty(IMAGE), *steps),
        tolerance=1e-5,
    )


def norms_of_windows(function: Any) -> Work:
    return Work(
        (random(IMAGE),),
        lambda x: function(x, window_sizes=3, strides=2),
        jax=lambda x: jnp.sqrt(lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 3, 3), (1, 1, 2, 2), "VALID")),
        torch=lambda x: F.lp_pool2d(x, 2.0, 3, 2),
        onnx=OnnxNode("LpPool", lambda x: {"x": x}, SLIDING | {"pads": [0] * 4}),
        tolerance=1e-4,
    )


def unpooled() -> Work:
    values, places = F.max_pool2d(torch.from_numpy(normal((1, 64, 128, 128))), 2, return_indices=True)
    # PyTorch counts within a channel, ONNX and DirectML across all channels.
    indices = (places + torch.arange(64).reshape(-1, 1, 1) * 128 * 128).numpy()
    return Work(
        (values.numpy(), indices.astype(np.int32)),
        lambda x, i: dmljax.max_unpooling(x, i, output_sizes=(1, 64, 128, 128)),
        jax=partial(idioms.unpooled, shape=(1, 64, 128, 128)),
        torch=lambda x, i: F.max_unpool2d(x, places, 2),
        onnx=OnnxNode("MaxUnpool", lambda x, i: {"x": x, "i": indices}, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    )


def trained() -> Work:
    """The normalization of a batch by its own mean and variance."""
    shape = (8, 64, 56, 56)
    scale, bias = normal((2, 64))

    def of_jax(x: Any, scale: Any, bias: Any) -> Any:
        mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias, mean, variance

    return Work(
        (normal(shape), channels_of(scale), channels_of(bias)),
        lambda *given: tuple(dmljax.batch_normalization_training(*given)),
        jax=of_jax,
        torch=lambda x, s, b: torch.native_batch_norm(x, s.flatten(), b.flatten(), None, None, True, 0.1, 1e-5),
        comparable=lambda results: as_numpy(results[0]),
        tolerance=1e-4,
    )


def normalization_gradient(function: Any, is_training: bool) -> Work:
    shape = (8, 64, 56, 56)
    x, g = normal(shape), normal((2, *shape))[1]
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    scale = normal((64,))

    def of_torch(x: Any, g: Any, mean: Any, variance: Any, scale: Any) -> Any:
        mean, variance, scale = mean.flatten(), variance.flatten(), scale.flatten()
        saved = (None, None, mean, (variance + 1e-5).rsqrt()) if is_training else (mean, variance, None, None)
        return torch.ops.aten.native_batch_norm_backward(g, x, scale, *saved, is_training, 1e-5, [True] * 3)

    return Work(
        (x, g, *map(channels_of, (mean, variance, scale))),
        lambda *given: tuple(function(*given)),
        jax=partial(idioms.normalization_gradient, is_training=is_training),
        torch=of_torch,
        comparable=lambda results: as_numpy(results[0]),
        tolerance=1e-3,
    )


def local_response(is_gradient: bool) -> Work:
    def of_jax(x: Any) -> Any:
        sums = lax.reduce_window(x * x, 0.0, lax.add, (1, 5, 1, 1), (1, 1, 1, 1), "SAME")
        return x / (1 + 1e-4 / 5 * sums) ** 0.75

    x, g = normal((2, 1, 96, 55, 55))
    if is_gradient:
        return Work(
            (x, g),
            lambda x, g: dmljax.local_response_normalization_grad(x, g, local_size=5),
            jax=lambda x, g: jax.vjp(of_jax, x)[1](g)[0],
            tolerance=1e-4,
        )
    return Work(
        (x,),
        lambda x: dmljax.local_response_normalization(x, local_size=5),
        jax=of_jax,
        torch=lambda x: F.local_response_norm(x, 5),
        onnx=OnnxNode("LRN", lambda x: {"x": x}, {"size": 5}),
        tolerance=1e-4,
    )


def resampling_gradient(function: Any) -> Work:
    """The gradient of a linear resampling to twice the size."""
    linear = InterpolationMode.LINEAR
    large, small = (1, 64, 128, 128), (1, 64, 64, 64)
    return Work(
        (whole(large),),
        lambda g: function(g, output_sizes=small, interpolation_mode=linear),
        jax=lambda g: jax.linear_transpose(
            lambda x: jax.image.resize(x, large, "linear", antialias=False), jax.ShapeDtypeStruct(small, FLOAT)
        )(g)[0],
        torch=lambda g: torch.ops.aten.upsample_bilinear2d_backward(g, large[2:], small, False, 2.0, 2.0),
        tolerance=1e-4,
    )


def upsampled() -> Work:
    return Work(
        (random((1, 64, 64, 64)),),
        lambda x: dmljax.upsample_2d(x, scale_size=2),
        jax=lambda x: jnp.repeat(jnp.repeat(x, 2, 2), 2, 3),
        torch=lambda x: F.interpolate(x, scale_factor=2),
        onnx=OnnxNode("Upsample", lambda x: {"x": x, "s": np.array([1, 1, 2, 2], FLOAT)}, {"mode": "nearest"}, opset=9),
    )


SCALE, ZERO = np.array(0.05, FLOAT), np.array(3, "uint8")
FACTOR, POINT = np.array(0.5, FLOAT), np.array(100, "uint8")


def integer_product(ours: Any, of_jax: Any, node: str, *, scales: int) -> Work:
    """A product of bytes with zero points, whose sums stay integers, become floats, or are quantized."""
    a, b = random((128, 768), "uint8"), random((768, 768), "uint8")

    def feeds(a: Any, b: Any) -> dict[str, Array | None]:
        if scales == 3:
            inputs = {"a": a, "as": SCALE, "az": ZERO, "b": b, "bs": SCALE, "bz": ZERO, "os": FACTOR, "oz": POINT}
            return dict(inputs)
        more = {"as": SCALE, "bs": SCALE} if scales else {}
        return {"a": a, "b": b, **more, "az": ZERO, "bz": ZERO}

    attributes = {} if scales != 2 else {"domain": "com.microsoft"}
    return Work((a, b), ours, jax=of_jax, onnx=OnnxNode(node, feeds, attributes), tolerance=1e-3)


def products_of_bytes(a: Any, b: Any) -> Any:
    """The idiom of jax.numpy."""
    return jnp.matmul(a.astype("int32") - 3, b.astype("int32") - 3)


def requantized(sums: Any) -> Any:
    """Sums of products as bytes."""
    return idioms.quantized(sums.astype(FLOAT) * (SCALE * SCALE), FACTOR, POINT)


def integer_convolution(ours: Any, *, is_quantized: bool) -> Work:
    x, w = random((1, 64, 56, 56), "uint8"), random((64, 64, 3, 3), "uint8")

    def of_jax(x: Any, w: Any) -> Any:
        differences = x.astype("int32") - 3, w.astype("int32") - 3
        sums = lax.conv_general_dilated(*differences, (1, 1), "VALID")
        return requantized(sums) if is_quantized else sums

    def feeds(x: Any, w: Any) -> dict[str, Array | None]:
        if is_quantized:
            return {"x": x, "xs": SCALE, "xz": ZERO, "w": w, "ws": SCALE, "wz": ZERO, "os": FACTOR, "oz": POINT}
        return {"x": x, "w": w, "xz": ZERO, "wz": ZERO}

    node = "QLinearConv" if is_quantized else "ConvInteger"
    return Work((x, w), ours, jax=of_jax, onnx=OnnxNode(node, feeds, {}))


def quantization(function: Any, of_jax: Any, node: str, *inputs: Array) -> Work:
    return Work(
        inputs, function, jax=of_jax, onnx=OnnxNode(node, lambda *x: {f"x{i}": one for i, one in enumerate(x)}, {})
    )


def in_blocks(function: Any, of_jax: Any, node: str, dtype: str) -> Work:
    """A scale and a zero point for each 32 elements of a row."""
    scale, zero = random((1024, 32)), random((1024, 32), "uint8")
    return Work(
        (random((1024, 1024), dtype), scale, zero),
        function,
        jax=lambda x, *parameters: of_jax(x, *(jnp.repeat(one, 32, axis=1) for one in parameters)),
        onnx=OnnxNode(
            node,
            lambda *x: {f"x{i}": one for i, one in enumerate(x)},
            {"axis": 1, "block_size": 32},
            opset=21,
        ),
    )


def quantized_dynamically() -> Work:
    return Work(
        (normal((MEDIUM,)),),
        dmljax.dynamic_quantize_linear,
        jax=idioms.quantized_dynamically,
        onnx=OnnxNode("DynamicQuantizeLinear", lambda x: {"x": x}, {}, outputs=3),
        comparable=lambda results: as_numpy(results[0]),
        tolerance=1,  # one step of a byte: the idiom's scale may be off by one ULP
    )


def quantized_average() -> Work:
    def averaged(x: Any) -> Any:
        counts = lax.reduce_window(jnp.ones(x.shape), 0.0, lax.add, *idioms.WINDOWS)
        sums = lax.reduce_window(idioms.dequantized(x, SCALE, ZERO), 0.0, lax.add, *idioms.WINDOWS)
        return idioms.quantized(sums / counts, FACTOR, POINT)

    more = {"xs": SCALE, "xz": ZERO, "os": FACTOR, "oz": POINT}
    return Work(
        (random(IMAGE, "uint8"),),
        lambda x: dmljax.quantized_linear_average_pooling(x, SCALE, ZERO, FACTOR, POINT, **WINDOW),
        jax=averaged,
        onnx=OnnxNode("QLinearAveragePool", lambda x: {"x": x, **more}, SLIDING | {"domain": "com.microsoft"}),
        tolerance=1,  # one step of a byte: ONNX Runtime rounds differently
    )


def quantized_sum() -> Work:
    a, b = random((2, MEDIUM), "uint8")
    rest = (SCALE, ZERO)
    return Work(
        (a, b),
        lambda a, b: dmljax.element_wise_quantized_linear_add(a, *rest, b, *rest, FACTOR, POINT),
        jax=lambda a, b: idioms.quantized(idioms.dequantized(a, *rest) + idioms.dequantized(b, *rest), FACTOR, POINT),
        onnx=OnnxNode(
            "QLinearAdd",
            lambda a, b: dict(zip("abcdefgh", (a, *rest, b, *rest, FACTOR, POINT), strict=True)),
            {"domain": "com.microsoft"},
        ),
        tolerance=1,  # one step of a byte: ONNX Runtime adds the zero point before it rounds
    )


LAYERS: dict[str, Build] = {
    "CONVOLUTION": convolution,
    "CONVOLUTION_INTEGER": lambda: integer_convolution(
        lambda x, w: dmljax.convolution_integer(x, ZERO, w, ZERO), is_quantized=False
    ),
    "QUANTIZED_LINEAR_CONVOLUTION": lambda: integer_convolution(
        lambda x, w: dmljax.quantized_linear_convolution(*(x, SCALE, ZERO), *(w, SCALE, ZERO), None, *(FACTOR, POINT)),
        is_quantized=True,
    ),
    "AVERAGE_POOLING": partial(averages, dmljax.average_pooling),
    "AVERAGE_POOLING1": partial(averages, dmljax.average_pooling1),
    "AVERAGE_POOLING_GRAD": average_pooling_gradient,
    "LP_POOLING": partial(norms_of_windows, dmljax.lp_pooling),
    "LP_POOLING1": partial(norms_of_windows, dmljax.lp_pooling1),
    "MAX_POOLING": maxima,
    "MAX_POOLING1": partial(max_pooling, dmljax.max_pooling1),
    "MAX_POOLING2": partial(max_pooling, dmljax.max_pooling2),
    "MAX_POOLING_GRAD": max_pooling_gradient,
    "MAX_UNPOOLING": unpooled,
    "QUANTIZED_LINEAR_AVERAGE_POOLING": quantized_average,
    "GEMM": product,
    "MATRIX_MULTIPLY_INTEGER": lambda: integer_product(
        lambda a, b: dmljax.matrix_multiply_integer(a, b, ZERO, ZERO), products_of_bytes, "MatMulInteger", scales=0
    ),
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": lambda: integer_product(
        lambda a, b: dmljax.matrix_multiply_integer_to_float(a, b, SCALE, SCALE, ZERO, ZERO),
        lambda a, b: products_of_bytes(a, b).astype(FLOAT) * (SCALE * SCALE),
        "MatMulIntegerToFloat",
        scales=2,
    ),
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY": lambda: integer_product(
        lambda a, b: dmljax.quantized_linear_matrix_multiply(*(a, SCALE, ZERO), *(b, SCALE, ZERO), *(FACTOR, POINT)),
        lambda a, b: requantized(products_of_bytes(a, b)),
        "QLinearMatMul",
        scales=3,
    ),
    "BATCH_NORMALIZATION": batch_normalized,
    "BATCH_NORMALIZATION_TRAINING": trained,
    "BATCH_NORMALIZATION_GRAD": partial(normalization_gradient, dmljax.batch_normalization_grad, False),
    "BATCH_NORMALIZATION_TRAINING_GRAD": partial(
        normalization_gradient, dmljax.batch_normalization_training_grad, True
    ),
    "MEAN_VARIANCE_NORMALIZATION": partial(instance_norm, dmljax.mean_variance_normalization),
    "MEAN_VARIANCE_NORMALIZATION1": partial(row_norm, dmljax.mean_variance_normalization1),
    "MEAN_VARIANCE_NORMALIZATION2": partial(row_norm, dmljax.mean_variance_normalization2),
    "LOCAL_RESPONSE_NORMALIZATION": partial(local_response, False),
    "LOCAL_RESPONSE_NORMALIZATION_GRAD": partial(local_response, True),
    "LP_NORMALIZATION": lambda: Work(
        (random((4096, 256)),),
        lambda x: dmljax.lp_normalization(x, axis=1),
        jax=lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True),
        torch=lambda x: F.normalize(x, dim=1),
        onnx=OnnxNode("LpNormalization", lambda x: {"x": x}, {"axis": 1}),
        tolerance=1e-5,
    ),
    "UPSAMPLE_2D": upsampled,
    **{
        name.upper(): partial(resampled, getattr(dmljax, name))
        for name in ("resample", "resample1", "resample2", "resample3")
    },
    "RESAMPLE_GRAD": partial(resampling_gradient, dmljax.resample_grad),
    "RESAMPLE_GRAD1": partial(resampling_gradient, dmljax.resample_grad1),
    "ELEMENT_WISE_QUANTIZE_LINEAR": lambda: quantization(
        dmljax.element_wise_quantize_linear, idioms.quantized, "QuantizeLinear", random((MEDIUM,)), SCALE, ZERO
    ),
    "ELEMENT_WISE_DEQUANTIZE_LINEAR": lambda: quantization(
        dmljax.element_wise_dequantize_linear,
        idioms.dequantized,
        "DequantizeLinear",
        random((MEDIUM,), "uint8"),
        SCALE,
        ZERO,
    ),
    "ELEMENT_WISE_QUANTIZED_LINEAR_ADD": quantized_sum,
    "QUANTIZE": lambda: in_blocks(
        dmljax.quantize,
        lambda x, s, z: jnp.clip(jnp.round(x / s) + z.astype(FLOAT), 0, 255).astype("uint8"),
        "QuantizeLinear",
        FLOAT,
    ),
    "DEQUANTIZE": lambda: in_blocks(
        dmljax.dequantize,
        lambda x, s, z: (x.astype("int32") - z.astype("int32")).astype(FLOAT) * s,
        "DequantizeLinear",
        "uint8",
    ),
    "DYNAMIC_QUANTIZE_LINEAR": quantized_dynamically,
}


def step_of_adam() -> Work:
    x, m, g = random((3, MEDIUM))
    v = np.square(g)
    own = [torch.from_numpy(one.copy()) for one in (x, m, v, g)]  # which are updated in place
    rates = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0, "eps": 1e-8}

    def of_torch(*_: Any) -> Any:
        x, m, v, g = ([one] for one in own)
        torch._fused_adam_(x, g, m, v, [], [torch.tensor(10.0)], **rates, amsgrad=False, maximize=False)
        return own

    def of_optax(x: Any, m: Any, v: Any, g: Any) -> Any:
        state = (optax.ScaleByAdamState(jnp.int32(9), m, v), optax.EmptyState())
        updates, (state, _) = optax.adam(1e-3).update(g, state)
        return optax.apply_updates(x, updates), state.mu, state.nu

    return Work(
        (x, m, v, g),
        lambda x, m, v, g: tuple(dmljax.adam_optimizer(x, m, v, g, 10)),
        jax=of_optax,
        torch=of_torch,
        comparable=lambda results: np.stack([as_numpy(one) for one in results[:3]]),
        tolerance=1e-5,
    )


TRAINING: dict[str, Build] = {"ADAM_OPTIMIZER": step_of_adam}


# Networks of sequences, attention, regions


def simple_network() -> Work:
    """A recurrent network of 32 steps."""
    steps, batch, size = 32, 16, 64
    x, w, r = normal((steps, batch, size)), normal((2, 1, size, size))[0] / 8, normal((2, 1, size, size))[1] / 8
    bias = np.zeros((1, 2 * size), np.float32)
    own = torch.nn.RNN(size, size).requires_grad_(False)
    for parameter, value in zip(own.parameters(), (w[0], r[0], bias[0, :size], bias[0, size:]), strict=True):
        parameter.copy_(torch.from_numpy(value))
    return Work(
        (x, w, r, bias),
        lambda *arrays: dmljax.rnn(*arrays).sequence,
        jax=lambda x, w, r, bias: idioms.simple_network(x, w[0], r[0], bias),
        torch=lambda x, *_: own(x)[0],
        onnx=OnnxNode("RNN", lambda x, w, r, b: {"x": x, "w": w, "r": r, "b": b}, {"hidden_size": size}),
        comparable=lambda result: as_numpy(result).reshape(steps, batch, size),
        tolerance=1e-4,
    )


def attention(function: Callable[..., Any]) -> Work:
    """Twelve heads of 64 over 512 positions."""
    heads, positions, size = 12, 512, 64
    q, k, v = normal((3, 1, positions, heads * size))
    apart = (1, positions, heads, size)

    def of_torch(*arrays: Any) -> Any:
        heads_first = (x.view(apart).transpose(1, 2) for x in arrays)
        return F.scaled_dot_product_attention(*heads_first).transpose(1, 2).reshape(q.shape)

    return Work(
        (q, k, v),
        function,
        jax=lambda *arrays: jax.nn.dot_product_attention(*(x.reshape(apart) for x in arrays)).reshape(q.shape),
        torch=of_torch,
        onnx=OnnxNode(
            "MultiHeadAttention",
            lambda q, k, v: {"q": q, "k": k, "v": v},
            {"num_heads": heads, "domain": "com.microsoft"},
        ),
        tolerance=1e-4,
    )


def boxes(count: int) -> Array:
    """Regions of an image of 50 x 50: left, top, right and bottom."""
    corners = np.random.default_rng(SEED).uniform(0, 50, (count, 2, 2)).astype(np.float32)
    return np.concatenate([corners.min(1), corners.max(1) + 1], axis=1)


MAPS, ZEROS = (1, 64, 50, 50), np.zeros(100, np.int32)
SAMPLED: dict[str, Any] = {"minimum_samples_per_output": 2, "maximum_samples_per_output": 2}


def aligned(function: Callable[..., Any], **more: Any) -> Work:
    attributes = {"output_height": 7, "output_width": 7, "sampling_ratio": 2}
    return Work(
        (normal(MAPS), boxes(100)),
        lambda x, roi: function(x, roi, ZEROS, output_size=7, **SAMPLED, **more),
        onnx=OnnxNode("RoiAlign", lambda x, roi: {"x": x, "roi": roi, "b": ZEROS.astype(np.int64)}, attributes),
        tolerance=1e-3,
    )


def pooled_regions() -> Work:
    rois = np.concatenate([np.zeros((100, 1), np.float32), boxes(100).round()], axis=1)
    return Work(
        (normal(MAPS), rois),
        lambda x, roi: dmljax.roi_pooling(x, roi, pooled_size=7),
        onnx=OnnxNode("MaxRoiPool", lambda x, roi: {"x": x, "roi": roi}, {"pooled_shape": [7, 7]}),
    )


def gradient_of_regions() -> Work:
    """Beside JAX's own derivative of the operator, because no rival has it."""
    x, gradient, roi = normal(MAPS), whole((100, 64, 7, 7)), boxes(100)
    return Work(
        (x, gradient, roi),
        lambda x, g, roi: dmljax.roi_align_grad(None, g, roi, ZEROS, output_sizes=MAPS, **SAMPLED)[0],
        jax=lambda x, g, roi: jax.vjp(lambda x: dmljax.roi_align1(x, roi, ZEROS, output_size=7, **SAMPLED), x)[1](g)[0],
        tolerance=1e-3,
    )


SEQUENCES: dict[str, Build] = {
    "RNN": simple_network,
    "GRU": partial(network, "GRU", 32, 16, 64),
    "LSTM": partial(network, "LSTM", 32, 16, 64),
    "MULTIHEAD_ATTENTION": lambda: attention(lambda *arrays: dmljax.multihead_attention(*arrays, head_count=12)),
    "MULTIHEAD_ATTENTION1": lambda: attention(
        lambda *arrays: dmljax.multihead_attention1(*arrays, query_head_count=12)
    ),
    "ROI_POOLING": pooled_regions,
    "ROI_ALIGN": partial(aligned, dmljax.roi_align),
    "ROI_ALIGN1": partial(aligned, dmljax.roi_align1),
    "ROI_ALIGN_GRAD": gradient_of_regions,
}


# What is measured


def every() -> dict[str, Build]:
    """A workload for each operator that has a rival, by its name without DML_OPERATOR_."""
    return dict(elementwise()) | SMOOTH | MOVED | LAYERS | SEQUENCES | TRAINING


def ratios(build: Build) -> Mapping[str, float]:
    """How many times as long as dmljax each rival takes."""
    work = build()
    work.check()
    calls = {name: work.calls[name] for name in (DMLJAX, *RIVALS) if name in work.calls}
    with torch.inference_mode():
        seconds = medians(calls, Effort(rounds=5, block_seconds=0.02))
    jax.clear_caches()
    return {name: round(seconds[name] / seconds[DMLJAX], 2) for name in calls if name != DMLJAX}


def main(words: list[str]) -> None:
    """Runs the command line."""
    found: dict[str, Mapping[str, float]] = {}
    for operator, build in every().items():
        if not words or any(word.upper() in operator for word in words):
            found[operator] = ratios(build)
            print(operator, *(f"{rival} {ratio}" for rival, ratio in found[operator].items()), sep="  ", flush=True)
    best = [min(ratio.values()) for ratio in found.values() if ratio]
    print(f"beside the best rival: {statistics.geometric_mean(best):.2f} x, least {min(best)} x")
    if not words:
        FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
