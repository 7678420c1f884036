"""Names in other libraries, and what to write instead."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import dmljax
from dmljax.command_line.cli import main
from dmljax.descriptors.search import PURPOSES, call_for, functions_called
from dmljax.functions import ALIASES, HOMES

PAGE = (Path(__file__).parents[2] / "notebooks" / "names.md").read_text()
ROWS = re.findall(r"^\| (`.+`) \| `(.+)` \|$", PAGE, re.MULTILINE)

# Names elsewhere, and the functions of dmljax that they may mean
MEANT = """
relu: activation_relu
leaky_relu LeakyReLU: activation_leaky_relu
prelu: activation_parameterized_relu
elu: activation_elu
selu: activation_scaled_elu
celu: activation_celu
gelu GELU: activation_gelu
silu swish: activation_swish
sigmoid: activation_sigmoid
hard_sigmoid: activation_hard_sigmoid
hardswish: activation_hard_swish
tanh: activation_tanh or element_wise_tanh
softplus: activation_softplus
softsign: activation_softsign
softmax Softmax: activation_softmax or activation_softmax1
log_softmax: activation_log_softmax or activation_log_softmax1
add: element_wise_add or element_wise_quantized_linear_add
subtract sub: element_wise_subtract
multiply mul: element_wise_multiply
divide div true_divide: element_wise_divide
mod remainder: element_wise_modulus_floor
fmod: element_wise_modulus_truncate
pow: element_wise_pow or element_wise_constant_pow
power: element_wise_constant_pow or element_wise_pow
negative neg: element_wise_negate
abs: element_wise_abs
sign: element_wise_sign
sqrt: element_wise_sqrt
exp: element_wise_exp
log: element_wise_log
sin: element_wise_sin
cos: element_wise_cos
tan: element_wise_tan
arcsin: element_wise_asin
atan2 arctan2: element_wise_atan_yx
sinh: element_wise_sinh
erf: element_wise_erf
floor: element_wise_floor
ceil: element_wise_ceil
round trunc: element_wise_round
reciprocal: element_wise_recip
clip: element_wise_clip or element_wise_clip1
clamp: element_wise_clip, element_wise_clip1 or element_wise_threshold
minimum: element_wise_min
max: element_wise_max or reduce
min: element_wise_min or reduce
cumsum: cumulative_summation
cumprod: cumulative_product
concatenate cat Concat: join
flip: slice1 or reverse_subsequences
pad Pad: padding or padding1
tril triu: diagonal_matrix1
eye: diagonal_matrix
arange linspace: fill_value_sequence
full: fill_value_constant
take index_select embedding: gather
Gather: gather, gather_elements or reverse_subsequences
GatherElements: gather_elements
GatherND: gather_nd
ScatterElements put_along_axis: scatter
index_put: scatter_nd
where: element_wise_if
nonzero argwhere: nonzero_coordinates
sort topk: top_k or top_k1
Gemm addmm: gemm
Conv conv_transpose2d: convolution
avg_pool2d: average_pooling, average_pooling1 or quantized_linear_average_pooling
AveragePool: average_pooling or average_pooling1
upsample: upsample_2d
interpolate: resample, resample1, resample2 or resample3
Resize resize: resample (it scales centers, as jax.image.resize does), resample1, resample2, resample3 or upsample_2d
pixel_shuffle DepthToSpace: depth_to_space or depth_to_space1
batch_norm: batch_normalization or batch_normalization_training
LayerNormalization: mean_variance_normalization, mean_variance_normalization1 or mean_variance_normalization2
LSTM: lstm
scaled_dot_product_attention dot_product_attention: multihead_attention or multihead_attention1
MultiHeadAttention: multihead_attention
mha: multihead_attention or multihead_attention1
gqa: multihead_attention1
moe_dispatch: activation_hardmax, top_k, nonzero_coordinates or gather_nd1
quantized_matmul: quantized_linear_matrix_multiply or matrix_multiply_integer_to_float
quantize_per_tensor: element_wise_quantize_linear
QuantizeLinear: element_wise_quantize_linear (its scale broadcasts) or quantize
DequantizeLinear: element_wise_dequantize_linear or dequantize
equal eq: element_wise_logical_equals
greater: element_wise_logical_greater_than
less_equal: element_wise_logical_less_than_or_equal
logical_and: element_wise_logical_and
bitwise_and: element_wise_bit_and
left_shift: element_wise_bit_shift_left
isnan: element_wise_is_nan
isinf: element_wise_is_infinity
astype to: cast
adam: adam_optimizer
"""
# Names elsewhere, and what to write for them
WRITTEN = """
relu6: element_wise_clip(x, 0, 6)
mish: x * activation_tanh(activation_softplus(x))
hardtanh: element_wise_clip(x, -1, 1)
logsigmoid: -activation_softplus(-x)
glu: jax.nn.glu(x)
softmin: activation_softmax1(-x)
floor_divide: jnp.floor_divide(a, b)
rsqrt: jax.lax.rsqrt(x)
square: x * x
expm1: jnp.expm1(x)
log1p: jnp.log1p(x)
log2: jnp.log2(x)
erfc: jax.scipy.special.erfc(x)
clip_by_value: element_wise_clip(x, min, max)
maximum: element_wise_max(a, b)
mean average reduce_mean ReduceMean: reduce(x, "average", axes=axes)
sum reduce_sum: reduce(x, "sum", axes=axes)
prod: reduce(x, "multiply", axes=axes)
amax reduce_max: reduce(x, "max", axes=axes)
amin: reduce(x, "min", axes=axes)
any: jnp.any(x, axis)
all: jnp.all(x, axis)
var: jnp.var(x, axis)
std: jnp.std(x, axis)
median: jnp.median(x, axis)
logsumexp: reduce(x, "log_sum_exp", axes=axes)
cummax: jax.lax.cummax(x, axis)
norm: jnp.linalg.norm(x, axis=axis)
count_nonzero: jnp.count_nonzero(x, axis)
transpose permute Transpose: jnp.transpose(x, axes)
reshape Reshape view: jnp.reshape(x, shape)
flatten: jnp.ravel(x)
rms_norm RMSNorm RMSNormalization: mean_variance_normalization2(x, axes=-1, use_mean=False)
squeeze: jnp.squeeze(x, axis)
unsqueeze expand_dims: jnp.expand_dims(x, axis)
broadcast_to expand: jnp.broadcast_to(x, shape)
stack: jnp.stack(arrays, axis)
chunk: jnp.array_split(x, n, axis)
repeat: jnp.repeat(x, n, axis)
roll: jnp.roll(x, shift, axis)
moveaxis: jnp.moveaxis(x, source, destination)
diag: jnp.diag(x)
zeros: jnp.zeros(shape)
ones_like: jnp.ones(shape)
shape: x.shape
layer_norm: mean_variance_normalization2(x, scale, bias, axes=-1)
take_along_axis: gather_elements(x, indices, axis=axis)
rope rotary_embedding: x * cos + jnp.concatenate((-x[..., half:], x[..., :half]), -1) * sin
fake_quant: x + jax.lax.stop_gradient(dequantize(quantize(x, scale, dtype="int8"), scale) - x)
int4_matmul: gemm(a, dequantize(kernel, scale))
conv2d: convolution(x, filter)
max_pool2d MaxPool maxpool: max_pooling2(x, window_sizes=2, strides=2).values
depthwise_conv: convolution(x, filter, group_count=x.shape[1])
make_causal_mask: jnp.tril(jnp.ones((n, n), bool))
grouped_matmul ragged: jax.lax.ragged_dot(a, b, group_sizes)
load: dmljax.onnx.load(path)
scatter_add index_add tensor_scatter_nd_add: x.at[indices].add(updates)
segment_sum: jax.ops.segment_sum(x, segments, n)
masked_fill: element_wise_if(mask, value, x)
argsort: jnp.argsort(x, axis)
unique: jnp.unique(x, size=n)
linear Linear: gemm(x, weight, bias, transpose_b=True)
Dense: gemm(x, kernel, bias)
matmul MatMul mm bmm dot: gemm(a, b)
einsum: jnp.einsum("ij,jk->ik", a, b)
adaptive_avg_pool2d GlobalAveragePool: reduce(x, "average", axes=(2, 3))
grid_sample: jax.scipy.ndimage.map_coordinates(x, coordinates, order=1)
dropout: jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)
cross_entropy cross_entropy_loss: -jnp.sum(labels * activation_log_softmax1(logits), axis=-1)
mse_loss: reduce(element_wise_difference_square(a, b), "average")
not_equal: element_wise_logical_not(element_wise_logical_equals(a, b))
isfinite: jnp.isfinite(x)
normal: jax.random.normal(key, shape)
uniform: jax.random.uniform(key, shape)
randint: jax.random.randint(key, shape, low, high)
sgd: optax.sgd(learning_rate)
stop_gradient detach: jax.lax.stop_gradient(x)
jit: jax.jit(function)
grad backprop: jax.grad(function)
nn: flax.linen
Sequential: flax.linen.Sequential(layers)
plot draw imshow picture: show(x)
version: dmljax.__version__
vmap: jax.vmap(function)
"""


def entries(table: str) -> list[tuple[str, str]]:
    rows = (line.split(": ") for line in table.strip().splitlines())
    return [(name, answer) for names, answer in rows for name in names.split()]


@pytest.mark.parametrize(("name", "meant"), [entry for entry in entries(MEANT) if entry[0] not in ALIASES])
def test_a_name_elsewhere_leads_to_functions(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(dmljax, name)
    assert str(refused.value) == f"module 'dmljax' has no attribute {name!r}, did you mean {meant}?"


@pytest.mark.parametrize(("name", "written"), entries(WRITTEN))
def test_a_name_elsewhere_leads_to_what_to_write(name: str, written: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(dmljax, name)
    assert str(refused.value) == f"module 'dmljax' has no attribute {name!r}; use {written}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("torch.gather", ["gather_elements", "reverse_subsequences"]),
        ("tf.gather", ["gather", "gather_elements", "reverse_subsequences"]),
        ("jax.nn.relu", ["activation_relu"]),
        ("F.softmax", ["activation_softmax1"]),
        ("jax.numpy.max", ["reduce"]),
        ("torch.maximum", ["element_wise_max"]),
        ("nn.LSTM", ["lstm"]),
    ],
)
def test_a_name_with_its_library_leads_to_fewer_functions(name: str, meant: list[str]) -> None:
    assert (functions_called(name), call_for(name)) == (meant, None)


def test_the_page_lists_each_name_once_and_no_name_of_dmljax() -> None:
    names = [name for row, _ in ROWS for name in re.findall(r"`(\w+)`", row)]
    assert len(set(names)) == len(names) > 200
    assert [name for name in names if name in HOMES] == []
    assert [purpose for purpose in PURPOSES if call_for(purpose)] == []
    assert {call_for(name) for name in names} == {call for _, call in ROWS}


SQUARE = jnp.eye(4) + 1
GIVEN: dict[str, Any] = (
    {name: getattr(dmljax, name) for name in (*HOMES, *ALIASES)}
    | dict.fromkeys(("a", "b", "weight", "kernel", "logits", "labels", "x"), SQUARE)
    | dict.fromkeys(("half", "groups", "n", "temperature", "bins"), 1)
    | dict.fromkeys(("q", "rate"), 0.5)
    | dict.fromkeys(("axis", "source", "destination", "low", "min"), 0)
    | {"bias": SQUARE[0], "mask": SQUARE > 1, "value": 0.0, "values": [1.0], "axes": (1, 0), "max": 6, "high": 6}
    | {"jax": jax, "jnp": jnp, "dmljax": dmljax, "indices": jnp.zeros((4, 1), int), "updates": 1.0, "batch": 4}
    | {"shape": (4, 4), "sizes": (2, 2), "starts": (0, 0), "update": SQUARE[:1], "arrays": [SQUARE], "shift": 1}
    | {"sorted": SQUARE[0], "cos": 1.0, "sin": 0.0, "key": jax.random.key(0), "dtype": jnp.int32, "body": max}
    | {"condition": True, "function": jnp.sin, "f": jnp.sin, "g": jnp.cos, "coordinates": jnp.zeros((2, 3))}
    | {"path": Path(__file__).parents[2] / "notebooks" / "models" / "dense.onnx", "group_sizes": jnp.array([4])}
    | {"overlaps": SQUARE, "scale": jnp.ones(()), "lengths": jnp.array([2])}
)
OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"x": jnp.ones(1), "n": 4, "indices": jnp.zeros((4, 4), int), "kernel": SQUARE.astype(jnp.int4)},
    {"x": jnp.ones((2, 3, 4, 4)), "filter": jnp.ones((3, 1, 2, 2))},
    {"x": jnp.ones((2, 3, 4, 4)), "filter": jnp.ones((5, 3, 2, 2))},
    {"x": SQUARE, "n": 4, "indices": jnp.zeros((4, 4), int), "b": SQUARE[None]},
    {"x": SQUARE[0].astype(int), "a": jnp.ones(3), "b": jnp.ones(3), "segments": jnp.zeros(4, int)},
    {"x": SQUARE, "condition": lambda x: x.sum() < 0, "body": lambda x: x, "segments": jnp.zeros(4, int)},
    {"x": SQUARE, "body": lambda i, x: x},
    dict.fromkeys(("is_query", "is_key"), SQUARE > 1) | {"segments": jnp.zeros((4, 1), int), "a": jnp.ones((4, 1, 2))},
    {"steps": jnp.ones((3, 1, 4)), "weights": jnp.ones((1, 8, 4)), "recurrence": jnp.ones((1, 8, 2))},
)


def runs(written: str, given: dict[str, Any]) -> bool:
    try:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as users have it
            eval(written, given)
    except Exception:
        return False
    return True


def test_the_page_writes_what_runs() -> None:
    for _, written in ROWS:
        needs_more = written.startswith(("optax.", "flax.", "show("))  # other libraries, and a window
        assert needs_more or any(runs(written, GIVEN | others) for others in OTHERS), written


@pytest.mark.parametrize(
    ("name", "operator", "tip"),
    [
        ("relu6", "ELEMENT_WISE_CLIP", "relu6 is element_wise_clip(x, 0, 6)"),
        ("mean", "REDUCE", 'mean is reduce(x, "average", axes=axes)'),
    ],
)
def test_a_call_of_an_operator_is_explained(
    name: str, operator: str, tip: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name]) == 0
    out, error = capsys.readouterr()
    assert out.startswith(f"DML_OPERATOR_{operator}\n")
    assert error == f"tip: {tip}\n"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("transpose", "jnp.transpose(x, axes)"),
        ("jnp.transpose", "jnp.transpose(x, axes)"),
        ("lax.associative_scan", "jax.lax.associative_scan(jnp.add, x)"),
        ("scatter_add", "x.at[indices].add(updates)"),
    ],
)
def test_a_name_without_an_operator_is_explained_by_what_to_write(
    name: str, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name]) == 0
    assert capsys.readouterr() == (f"{name}: use {written}\n", "")
