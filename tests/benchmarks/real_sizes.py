"""Products, attention, rows and decoding in the types and sizes that users compute with, beside what they write in JAX.

The inputs are shapes: `compilers.py` compiles these workloads for chips that are not here, and `device.py` fills them
and runs them beside PyTorch, if it is installed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from recurrence import plain_lstm
from workloads import Function, Work

import dmljax
import dmljax.onnx

Build = Callable[[], Work]


def array(dtype: str, *sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def in_torch(name: str, *arguments: Any, **more: Any) -> Any:
    """Calls a function of PyTorch."""
    import torch

    return getattr(torch.nn.functional, name)(*arguments, **more)


def product(size: int, dtype: str) -> Work:
    return Work((array(dtype, size, size),) * 2, dmljax.gemm, jax=jnp.matmul, torch=lambda a, b: a @ b)


def convolution(image: tuple[int, ...], outputs: int, kernel: int, stride: int, dtype: str) -> Work:
    """Images by filters, with the padding that keeps the image's size at a stride of 1."""
    pad = kernel // 2
    return Work(
        (array(dtype, *image), array(dtype, outputs, image[1], kernel, kernel)),
        lambda x, w: dmljax.convolution(x, w, strides=stride, start_padding=pad, end_padding=pad),
        jax=lambda x, w: lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2),
        torch=lambda x, w: in_torch("conv2d", x, w, stride=stride, padding=pad),
    )


def attention_in_torch(query: Any, key: Any, value: Any, size: int, **more: Any) -> Any:
    """Attention of stacked heads of a size."""
    apart = (x.reshape(*x.shape[:2], -1, size).transpose(1, 2) for x in (query, key, value))
    result = in_torch("scaled_dot_product_attention", *apart, **more)
    return result.transpose(1, 2).reshape(query.shape)


def attention(batch: int, positions: int, heads: int, size: int, dtype: str, *, is_causal: bool = False) -> Work:
    """Attention of all positions to all, or of each to those before it."""
    apart = (batch, positions, heads, size)
    return Work(
        (array(dtype, batch, positions, heads * size),) * 3,
        partial(dmljax.multihead_attention, head_count=heads, is_causal=is_causal),
        jax=lambda *arrays: jax.nn.dot_product_attention(
            *(x.reshape(apart) for x in arrays), is_causal=is_causal
        ).reshape(arrays[0].shape),
        torch=partial(attention_in_torch, size=size, is_causal=is_causal),
        share=0.5 if is_causal else 1,
    )


def gradients(work: Work) -> Work:
    """The gradients of all inputs, from that of the result."""

    def of(function: Any) -> Function:
        return lambda g, *arrays: jax.vjp(function, *arrays)[1](g)

    def of_torch(g: Any, *arrays: Any) -> Any:
        import torch

        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in arrays]
            return torch.autograd.grad(work.torch(*inputs), inputs, g)  # type: ignore[misc]

    result = jax.eval_shape(work.dmljax, *work.inputs)
    return Work((result, *work.inputs), of(work.dmljax), jax=of(work.jax), torch=of_torch, share=work.share)


BATCH, HEADS, KEY_HEADS, SIZE, CACHED = 8, 32, 8, 128, 4096


def decoding(
    dtype: str,
    batch: int = BATCH,
    heads: int = HEADS,
    key_heads: int = KEY_HEADS,
    size: int = SIZE,
    count: int = CACHED,
) -> Work:
    """One token's queries, which attend to all cached keys; four heads share a key."""
    cached = array(dtype, batch, count, key_heads * size)

    def of_jax(query: Any, *cache: Any) -> Any:
        keys, values = (x.reshape(batch, count, key_heads, size) for x in cache)
        return jax.nn.dot_product_attention(query.reshape(batch, 1, heads, size), keys, values).reshape(query.shape)

    return Work(
        (array(dtype, batch, 1, heads * size), cached, cached),
        partial(dmljax.multihead_attention1, query_head_count=heads, key_value_head_count=key_heads),
        jax=of_jax,
        torch=partial(attention_in_torch, size=size, enable_gqa=True),
    )


def decoding_step(dtype: str) -> Work:
    """One token: its keys and values join the cache, to whose filled part it attends; each rival has its own layout."""
    new = array(dtype, BATCH, 1, KEY_HEADS * SIZE)
    ours, of_jax = (BATCH, KEY_HEADS, CACHED, SIZE), (BATCH, CACHED, KEY_HEADS, SIZE)
    lengths = array("int32", BATCH)

    def step(query: Any, key: Any, value: Any, past: Any, past_value: Any, _: Any, __: Any, lengths: Any) -> Any:
        return dmljax.multihead_attention1(
            *(query, key, value),
            past_key=past,
            past_value=past_value,
            past_sequence_lengths=lengths,
            query_head_count=HEADS,
            key_value_head_count=KEY_HEADS,
            total_sequence_length=CACHED,
            has_present=True,
        )

    def plain(query: Any, key: Any, value: Any, _: Any, __: Any, keys: Any, values: Any, lengths: Any) -> Any:
        put = jax.vmap(lambda cache, new, at: lax.dynamic_update_slice(cache, new, (at, 0, 0)))
        keys, values = (
            put(cache, new.reshape(BATCH, 1, KEY_HEADS, SIZE), lengths) for cache, new in ((keys, key), (values, value))
        )
        queries = query.reshape(BATCH, 1, HEADS, SIZE)
        result = jax.nn.dot_product_attention(queries, keys, values, key_value_seq_lengths=lengths + 1)
        return result.reshape(query.shape), keys, values

    caches = (*[array(dtype, *ours)] * 2, *[array(dtype, *of_jax)] * 2)
    inputs = (array(dtype, BATCH, 1, HEADS * SIZE), new, new, *caches, lengths)
    return Work(inputs, step, jax=plain, updated=(3, 4, 5, 6))


def product_of_4_bits(rows: int, factors: int, columns: int, dtype: str) -> Work:
    """Rows times weights of 4 bits in blocks of 32: in bytes, as ONNX has them, or in JAX's own integers of 4 bits."""
    from onnx import helper

    block = 32
    blocks, node = factors // block, {"K": factors, "N": columns, "bits": 4, "block_size": block}
    types = {"a": (dtype, (rows, factors)), "codes": ("uint8", (columns, blocks, block // 2))}
    types |= {"scales": (dtype, (columns, blocks))}
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(jnp.dtype(one)), sizes)
        for name, (one, sizes) in types.items()
    ]
    result = helper.make_tensor_value_info("y", values[0].type.tensor_type.elem_type, (rows, columns))
    nodes = [helper.make_node("MatMulNBits", list(types), ["y"], domain="com.microsoft", **node)]
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "product", values, [result])
    model = dmljax.onnx.load(helper.make_model(graph, opset_imports=domains))

    def plain(a: Any, _: Any, scales: Any, numbers: Any) -> Any:
        weights = (numbers.astype(dtype) - 8) * scales[..., None]
        return a @ weights.reshape(columns, factors).T

    given = [array(one, *sizes) for one, sizes in types.values()]
    numbers = array("uint4", columns, blocks, block)
    return Work((*given, numbers), lambda *arrays: model(*arrays[:3])[0], jax=plain)


def softmax(size: int, dtype: str) -> Work:
    return Work(
        (array(dtype, size, size),),
        partial(dmljax.activation_softmax1, axes=-1),
        jax=jax.nn.softmax,
        torch=lambda x: in_torch("softmax", x, dim=-1),
    )


def layer_norm(size: int, dtype: str) -> Work:
    """Mean and variance of each row, with a scale and a bias."""

    def of_jax(x: Any, scale: Any, bias: Any) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias

    row = array(dtype, 1, size)
    return Work(
        (array(dtype, size, size), row, row),
        partial(dmljax.mean_variance_normalization1, axes=-1),
        jax=of_jax,
        torch=lambda x, scale, bias: in_torch("layer_norm", x, (size,), scale[0], bias[0]),
    )


IMAGES = (64, 64, 56, 56)


def batch_norm(dtype: str, *, is_training: bool) -> Work:
    """With a given mean and variance, or with those of the batch, which are results."""
    channels = array(dtype, 1, IMAGES[1], 1, 1)

    def given(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias

    def of_batch(x: Any, scale: Any, bias: Any) -> Any:
        mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        return given(x, scale, bias, mean, variance), mean, variance

    inputs = (array(dtype, *IMAGES), channels, channels)

    def of_torch(x: Any, scale: Any, bias: Any, *of_channels: Any) -> Any:
        scale, bias, *known = (one.flatten() for one in (scale, bias, *of_channels))
        mean, variance = known or (None, None)
        return in_torch("batch_norm", x, mean, variance, scale, bias, training=is_training)

    if is_training:
        return Work(inputs, dmljax.batch_normalization_training, jax=of_batch, torch=of_torch)

    def ours(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return dmljax.batch_normalization(x, mean, variance, scale, bias)

    return Work((*inputs, channels, channels), ours, jax=given, torch=of_torch)


def lstm(steps: int, batch: int, size: int, dtype: str) -> Work:
    """All states of an LSTM with as many features in as out."""
    weights = array(dtype, 1, 4 * size, size)
    return Work(
        (array(dtype, steps, batch, size), weights, weights, array(dtype, 1, 8 * size)),
        lambda *arrays: dmljax.lstm(*arrays).sequence,
        jax=plain_lstm,
    )


HALF, SINGLE = "bfloat16", "float32"
# The first convolution, and one of each kind, from all stages: image, output channels, kernel and stride.
RESNET: dict[str, tuple[tuple[int, ...], int, int, int]] = {
    "7x7, stride 2, 3 to 64 of 224x224": ((32, 3, 224, 224), 64, 7, 2),
    "1x1, 256 to 64 of 56x56": ((32, 256, 56, 56), 64, 1, 1),
    "3x3, 128 of 28x28": ((32, 128, 28, 28), 128, 3, 1),
    "1x1, 1024 to 512 of 14x14": ((32, 1024, 14, 14), 512, 1, 1),
    "3x3, 512 of 7x7": ((32, 512, 7, 7), 512, 3, 1),
}
IN_BOTH_TYPES: dict[str, Callable[[str], Work]] = {
    "convolution 3x3 of 64x64x56x56": lambda dtype: convolution(IMAGES, 64, 3, 1, dtype),
    **{f"ResNet-50, {name}": partial(convolution, *layer) for name, layer in RESNET.items()},
    "attention 4x2048x16x128": partial(attention, 4, 2048, 16, 128),
    "softmax of 8192x8192": partial(softmax, 8192),
    "layer norm of 8192x8192": partial(layer_norm, 8192),
    "batch norm of 64x64x56x56": partial(batch_norm, is_training=False),
    "batch norm of 64x64x56x56, training": partial(batch_norm, is_training=True),
    "LSTM of 256 steps, 32x1024": partial(lstm, 256, 32, 1024),
}
REAL_SIZES: dict[str, Build] = {
    **{f"gemm 4096, {dtype}": partial(product, 4096, dtype) for dtype in (SINGLE, "float16", HALF)},
    **{f"{name}, {dtype}": partial(make, dtype) for name, make in IN_BOTH_TYPES.items() for dtype in (SINGLE, HALF)},
    f"attention 4x2048x16x128, causal, {HALF}": partial(attention, 4, 2048, 16, 128, HALF, is_causal=True),
    f"attention 4x2048x16x128, gradient, {HALF}": lambda: gradients(attention(4, 2048, 16, 128, HALF)),
    f"attention 1x16384x16x128, causal, {HALF}": partial(attention, 1, 16384, 16, 128, HALF, is_causal=True),
    f"decoding, 8 tokens to 4096 keys each, {HALF}": partial(decoding, HALF),
    f"decoding, a step of 8 tokens with caches of 4096, {HALF}": partial(decoding_step, HALF),
    **{
        f"weights of 4 bits, {rows} x 2048 by 2048 x 8192, {HALF}": partial(product_of_4_bits, rows, 2048, 8192, HALF)
        for rows in (1, 16, 2048)
    },
}
