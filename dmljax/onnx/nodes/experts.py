"""ONNX Runtime's mixtures of experts: each token passes through the few perceptrons that a router chooses for it.

A step that decodes a single token reads only the weights of its experts. When tokens choose most experts anyway, tokens
that share an expert are computed together, in blocks, so that an expert's weights are read once per block.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.lowerings.numbers.few_bits import unpack
from dmljax.onnx.handlers.registry import handles_contrib, look_up
from dmljax.onnx.handlers.signatures import Attributes, Matrices, Matrix, Rows
from dmljax.onnx.nodes.quantized.few_bits import dequantize_blocks
from dmljax.onnx.values.types import Array
from dmljax.types import widened

_FEWEST_ROWS, _MOST_ROWS = 8, 128  # of a block
_FEW_BLOCKS = 4  # computed side by side rather than sequentially
_JITTER = 0.01  # the share by which scores may fall short of the largest and still count, in SparseMixer


@dataclass(frozen=True, kw_only=True)
class _Mixture(Attributes):
    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    k: int = 1
    normalize_routing_weights: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    swiglu_limit_after_activation: int = 0
    use_sparse_mixer: int = 0

    @property
    def is_gated(self) -> bool:
        return self.activation_type in ("geglu", "swiglu")


@dataclass(frozen=True, kw_only=True)
class _Codes(Attributes):
    accuracy_level: int = 0  # we keep the activations in floats at every level
    block_size: int = 0
    expert_weight_bits: int = 4
    fc1_expert_weight_bits: int | None = None
    fc2_expert_weight_bits: int | None = None
    fc3_expert_weight_bits: int | None = None
    quant_type: str = "int"
    weights_prepacked: int = -1


class _Layer(NamedTuple):
    """A product of all experts: `weight` gives an expert's matrix (outputs, inputs)."""

    weight: Callable[[Array], Array]
    bias: Array | None

    def __call__(self, rows: Array, expert: Array) -> Array:
        """Multiplies rows with an expert's matrix, in at least float32."""
        wide = widened(rows.dtype)
        product: Array = jnp.einsum("rk,nk->rn", rows, self.weight(expert), preferred_element_type=wide)
        return product if self.bias is None else product + _take_expert(expert, self.bias)[None].astype(wide)


def _take_expert(expert: Array, matrices: Array) -> Array:
    matrix: Array = lax.dynamic_index_in_dim(matrices, expert, keepdims=False)
    return matrix


# Routing


def _route(router: Array, mixing: Array | None, mixture: _Mixture) -> tuple[Array, Array]:
    """The `k` experts of each token, and their weights in its result."""
    count, scores = mixture.k, router.astype(jnp.float32)
    if not 1 <= count <= router.shape[1]:
        raise InvalidDesc(Problem("k", f"must be from 1 to {router.shape[1]}, the number of experts", count))
    if mixture.use_sparse_mixer:
        if count != 2:
            raise InvalidDesc(Problem("k", "must be 2 with use_sparse_mixer", count))
        return _route_by_sparse_mixer(scores)
    values, experts = lax.top_k(scores, count)
    if mixing is not None:
        weights = jnp.take_along_axis(mixing.astype(jnp.float32), experts, 1)
        if mixture.normalize_routing_weights:
            total = jnp.sum(weights, 1, keepdims=True)
            weights = weights / jnp.where(total == 0, 1, total)
    elif mixture.normalize_routing_weights:
        weights = jax.nn.softmax(values, 1)
    else:
        weights = jnp.take_along_axis(jax.nn.softmax(scores, 1), experts, 1)
    return experts, weights


def _route_by_sparse_mixer(scores: Array) -> tuple[Array, Array]:
    """Chooses two experts as SparseMixer does, each weighted among the scores that are close to its own."""
    left, experts, weights = scores, [], []
    for _ in range(2):
        largest, expert = jnp.max(left, 1, keepdims=True), lax.argmax(left, 1, jnp.int32)[:, None]
        distance = (largest - scores) / jnp.maximum(jnp.abs(scores), largest)
        close = jnp.where(distance > 2 * _JITTER, -jnp.inf, left)
        experts.append(expert)
        weights.append(jnp.take_along_axis(jax.nn.softmax(close, 1), expert, 1))
        left = jnp.where(lax.iota(jnp.int32, scores.shape[1])[None] == expert, -jnp.inf, left)
    return jnp.concatenate(experts, 1), jnp.concatenate(weights, 1)


def _run_experts(x: Array, experts: Array, count: int, run: Callable[[Array, Array], Array]) -> Array:
    """The results (tokens, k, features) of `run(rows, expert)` for the experts of each token."""
    tokens, per_token = experts.shape
    pairs, pair_experts = tokens * per_token, experts.reshape(-1).astype(jnp.int32)
    if isinstance(pairs, int) and pairs <= count:
        results = _run_in_turn(run, jnp.repeat(x, per_token, axis=0)[:, None], pair_experts, pairs)
        return results.reshape(tokens, per_token, -1)
    rows = _MOST_ROWS
    if isinstance(pairs, int):
        rows = min(max(_FEWEST_ROWS, 1 << (pairs // count).bit_length()), _MOST_ROWS)
    # Sort the pairs of a token and an expert by expert, and begin a block with each expert's first pair.
    order = jnp.argsort(pair_experts, stable=True).astype(jnp.int32)
    sizes = jnp.zeros(count, jnp.int32).at[pair_experts].add(1)
    of_experts = -(-sizes // rows)  # blocks
    begins, first_blocks = jnp.cumsum(sizes) - sizes, jnp.cumsum(of_experts) - of_experts
    blocks = pairs // rows + count  # the most there can be
    block = jnp.arange(blocks, dtype=jnp.int32)
    owners = jnp.searchsorted(first_blocks + of_experts, block, side="right").astype(jnp.int32)
    owners = jnp.minimum(owners, count - 1)
    inside = (block - first_blocks[owners])[:, None] * rows + lax.iota(jnp.int32, rows)[None]
    places = jnp.clip(begins[owners][:, None] + inside, 0, pairs - 1)  # rows past an expert's pairs repeat others
    results = _run_in_turn(run, x[order[places] // per_token], owners, blocks)
    ranks = jnp.zeros_like(order).at[order].set(jnp.arange(pairs, dtype=order.dtype)) - begins[pair_experts]
    flat = results.reshape(blocks * rows, results.shape[-1])
    return flat[first_blocks[pair_experts] * rows + ranks].reshape(tokens, per_token, -1)


def _run_in_turn(run: Callable[[Array, Array], Array], blocks: Array, experts: Array, count: int) -> Array:
    is_few = isinstance(count, int) and count <= _FEW_BLOCKS
    unroll = max(count, 1) if is_few else 1
    return lax.scan(lambda _, block: (None, run(*block)), None, (blocks, experts), unroll=unroll)[1]


# Experts


def _mix(
    x: Matrices, router: Matrix, mixing: Array | None, layers: tuple[_Layer, _Layer, _Layer | None], mixture: _Mixture
) -> Array:
    tokens = x.reshape(-1, x.shape[-1])
    experts, weights = _route(router, mixing, mixture)
    first, second, third = layers
    if mixture.is_gated and (third is None) != bool(mixture.swiglu_fusion):
        rule = "needs fc3_experts_weights if swiglu_fusion is 0, and else must not have them"
        raise InvalidDesc(Problem((), rule, f"swiglu_fusion {mixture.swiglu_fusion}"))

    def expert_of(rows: Array, expert: Array) -> Array:
        gate, linear = first(rows, expert), None if third is None else third(rows, expert)
        return second(_activate(gate, linear, mixture).astype(rows.dtype), expert)

    results = _run_experts(tokens, experts, router.shape[1], expert_of)
    mean = jnp.einsum("tk,tkn->tn", weights.astype(results.dtype), results)
    return mean.astype(x.dtype).reshape(x.shape)


def _activate(gate: Array, linear: Array | None, mixture: _Mixture) -> Array:
    """Applies the activation, which multiplies the gate with the linear part, if any."""
    if mixture.is_gated and mixture.swiglu_fusion:
        is_halves = look_up("swiglu_fusion", str(mixture.swiglu_fusion), {"0": False, "1": False, "2": True})
        parts = gate.reshape(*gate.shape[:-1], *((2, -1) if is_halves else (-1, 2)))
        gate, linear = (jnp.take(parts, i, axis=-2 if is_halves else -1) for i in range(2))
    if mixture.activation_type == "swiglu" and linear is not None:
        return _swiglu(gate, linear, mixture)
    activation = look_up("activation_type", mixture.activation_type, _ACTIVATIONS)
    return activation(gate) if linear is None else activation(gate) * linear


def _swiglu(gate: Array, linear: Array, mixture: _Mixture) -> Array:
    limit, is_late = mixture.swiglu_limit, mixture.swiglu_limit_after_activation
    if limit is not None:
        gate = gate if is_late else jnp.minimum(gate, limit)
        linear = jnp.clip(linear, -limit, limit)
    gate = gate * jax.nn.sigmoid(mixture.activation_alpha * gate)
    gate = jnp.minimum(gate, limit) if is_late and limit is not None else gate
    return gate * (linear + mixture.activation_beta)


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "geglu": functools.partial(jax.nn.gelu, approximate=True),
    "gelu": functools.partial(jax.nn.gelu, approximate=True),  # as ONNX Runtime computes it
    "identity": lambda x: x,
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "silu": jax.nn.silu,
    "swiglu": jax.nn.silu,
}


def _require_matrices(name: str, weight: Array, experts: int, inputs: int, per_byte: int = 1, remedy: str = "") -> None:
    bytes_per_row = -(-inputs // per_byte)
    if weight.shape[0] != experts or weight.shape[2] != bytes_per_row:
        rule = f"must have shape ({experts}, outputs, {bytes_per_row})"
        raise InvalidDesc(Problem(name, rule, weight.shape, remedy=remedy or None))


@handles_contrib("MoE")
def _mixture_of_experts(
    x: Matrices,
    router: Matrix,
    weight1: Rows,
    bias1: Matrix | None,
    weight2: Rows,
    bias2: Matrix | None = None,
    weight3: Rows | None = None,
    bias3: Matrix | None = None,
    *,
    mixture: _Mixture,
) -> Array:
    hidden, features = x.shape[-1], weight1.shape[1]
    features = features // 2 if mixture.is_gated and mixture.swiglu_fusion else features

    def layer(name: str, weight: Array, bias: Array | None, inputs: int) -> _Layer:
        _require_matrices(name, weight, router.shape[1], inputs)
        return _Layer(lambda expert: _take_expert(expert, weight).astype(x.dtype), bias)

    first = layer("fc1_experts_weights", weight1, bias1, hidden)
    second = layer("fc2_experts_weights", weight2, bias2, features)
    third = None if weight3 is None else layer("fc3_experts_weights", weight3, bias3, hidden)
    return _mix(x, router, None, (first, second, third), mixture)


@handles_contrib("QMoE")
def _quantized_mixture_of_experts(
    x: Matrices,
    router: Matrix,
    weight1: Rows,
    scales1: Matrices | None,
    bias1: Matrix | None,
    weight2: Rows,
    scales2: Matrices | None = None,
    bias2: Matrix | None = None,
    weight3: Rows | None = None,
    scales3: Matrices | None = None,
    bias3: Matrix | None = None,
    zeros1: Matrices | None = None,
    zeros2: Matrices | None = None,
    zeros3: Matrices | None = None,
    router_weights: Matrix | None = None,
    *,
    mixture: _Mixture,
    codes: _Codes,
) -> Array:
    if codes.quant_type != "int" or codes.weights_prepacked == 1:
        setting = codes.quant_type if codes.quant_type != "int" else "weights_prepacked 1"
        rule, remedy = "supports only integers that are not prepacked", "make the model for the CPU"
        raise Unsupported(Problem((), rule, setting, remedy=remedy))
    hidden, features = x.shape[-1], weight1.shape[1]
    features = features // 2 if mixture.is_gated and mixture.swiglu_fusion else features

    def layer(
        place: int, weight: Array, scales: Array | None, zeros: Array | None, bias: Array | None, inputs: int
    ) -> _Layer:
        layer_bits = getattr(codes, f"fc{place}_expert_weight_bits")
        bits = codes.expert_weight_bits if layer_bits is None else layer_bits
        if bits not in (2, 4, 8):
            raise Unsupported(Problem(f"fc{place}_expert_weight_bits", "must be 2, 4 or 8", bits))
        if scales is None:
            raise InvalidDesc(Problem(f"fc{place}_scales", "must be given for integers", "none"))
        name, remedy = f"fc{place}_experts_weights", "weights that are prepacked for CUDA are not supported"
        _require_matrices(name, weight, router.shape[1], inputs, 8 // bits, remedy)

        size = codes.block_size if codes.block_size > 0 else inputs
        blocks = -(-inputs // size)

        def matrix(expert: Array) -> Array:
            numbers = unpack(_take_expert(expert, weight), bits)[:, :inputs]
            factors = _take_expert(expert, scales)
            shift: Any = np.full((1, 1), 2 ** (bits - 1), np.float32)
            if zeros is not None:
                shift = unpack(_take_expert(expert, zeros), bits)[..., : factors.shape[-1]].reshape(-1, blocks)
            return dequantize_blocks(numbers, factors.reshape(-1, blocks), shift, size, x.dtype)

        return _Layer(matrix, bias)

    first = layer(1, weight1, scales1, zeros1, bias1, hidden)
    second = layer(2, weight2, scales2, zeros2, bias2, features)
    third = None if weight3 is None else layer(3, weight3, scales3, zeros3, bias3, hidden)
    return _mix(x, router, router_weights, (first, second, third), mixture)
