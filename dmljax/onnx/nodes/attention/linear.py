"""Linear attention, whose states have a fixed size, and the convolutions, gates and norms around it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.handlers.registry import NodeCall, handles, handles_contrib, look_up
from dmljax.onnx.handlers.signatures import Attributes, Matrix, Rows, Vector, Vectors
from dmljax.onnx.values.types import Array, Results
from dmljax.types import widened

_CHUNK = 64  # tokens that are computed at once
_FEW_TOKENS = 16  # computed sequentially
_ACTIVATIONS = {"none": lambda x: x, "silu": jax.nn.silu, "swish": jax.nn.silu}


# The recurrence. Arrays have shape (batch, tokens, heads, ...), where several query heads may share a key head; states
# have shape (batch, heads, keys, values).


class _Tokens(NamedTuple):
    """The tokens that the recurrence reads."""

    query: Array  # (batch, tokens, heads, queries per head, keys)
    key: Array
    value: Array
    decay: Array | None  # logarithms, per head or per key
    rate: Array | None  # per head, at which a value replaces the state's value for its key

    def cut(self, begin: int, end: int) -> "_Tokens":
        return self.map_arrays(lambda x: x[:, begin:end])

    def map_arrays(self, change: Callable[[Array], Array]) -> "_Tokens":
        decay, rate = (x if x is None else change(x) for x in (self.decay, self.rate))
        return _Tokens(change(self.query), change(self.key), change(self.value), decay, rate)

    def steps_first(self) -> "_Tokens":
        """The tokens with their axis first."""
        return self.map_arrays(lambda x: x.swapaxes(0, 1))

    @property
    def length(self) -> int:
        return self.key.shape[1]


def _update_state(state: Array, token: _Tokens) -> Array:
    """Updates the state with a token, whose arrays have no token axis."""
    if token.decay is not None:
        decay = jnp.exp(token.decay)
        state = state * (decay[..., None] if decay.ndim == token.key.ndim else decay[..., None, None])
    value = token.value
    if token.rate is not None:
        value = (value - jnp.einsum("bhkv,bhk->bhv", state, token.key)) * token.rate[..., None]
    return state + token.key[..., None] * value[..., None, :]


def _output(state: Array, token: _Tokens) -> Array:
    return jnp.einsum("bhgk,bhkv->bhgv", token.query, state)


def _scan_tokens(state: Array, tokens: _Tokens, *, keeps_states: bool = False) -> tuple[Array, Array, Array | None]:
    """Returns the last state, the outputs, and, if kept, the state after each token, (tokens, batch, ...)."""

    def step(state: Array, token: _Tokens) -> tuple[Array, tuple[Array, Array | None]]:
        state = _update_state(state, token)
        return state, (_output(state, token), state if keeps_states else None)

    state, (outputs, states) = lax.scan(step, state, tokens.steps_first(), unroll=tokens.length == 1)
    return state, outputs.swapaxes(0, 1), states


def _scan_chunks(state: Array, tokens: _Tokens) -> tuple[Array, Array]:
    """Computes the last state and all outputs by products of whole chunks of tokens; decays are per head.

    Within a chunk, the corrections of values solve a triangular system of the products of the keys.
    """
    count = tokens.length
    chunks = -(-count // _CHUNK)

    def split_chunks(x: Array) -> Array:  # (chunks, batch, heads, tokens of a chunk, ...)
        whole = jnp.pad(x, [(0, 0), (0, chunks * _CHUNK - count)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(whole.reshape(x.shape[0], chunks, _CHUNK, *x.shape[2:]), (1, 3), (0, 2))

    tokens_in_chunks = tokens.map_arrays(split_chunks)
    key, value = tokens_in_chunks.key, tokens_in_chunks.value
    decay = (
        jnp.zeros(key.shape[:-1], key.dtype)
        if tokens_in_chunks.decay is None
        else jnp.cumsum(tokens_in_chunks.decay, -1)
    )
    is_before = jnp.tril(jnp.ones((_CHUNK, _CHUNK), bool))
    between = decay[..., :, None] - decay[..., None, :]
    between = jnp.exp(jnp.where(is_before[None, None, None], between, -jnp.inf))  # the share left at a later token
    from_state = jnp.zeros_like(key)
    if tokens_in_chunks.rate is not None:
        value, from_state = (x * tokens_in_chunks.rate[..., None] for x in (value, key))
        products = jnp.einsum("nbhik,nbhjk->nbhij", from_state, key) * between
        system = jnp.tril(products, -1) + jnp.eye(_CHUNK, dtype=key.dtype)[None, None, None]
        both = jnp.concatenate([value, from_state * jnp.exp(decay)[..., None]], -1)
        solved = lax.linalg.triangular_solve(system, both, left_side=True, lower=True, unit_diagonal=True)
        value, from_state = solved[..., : value.shape[-1]], solved[..., value.shape[-1] :]
    scores = jnp.einsum("nbhigk,nbhjk->nbhgij", tokens_in_chunks.query, key) * between[:, :, :, None]
    queries = tokens_in_chunks.query * jnp.exp(decay)[..., None, None]
    left = jnp.exp(decay[..., -1:] - decay)[..., None] * key

    def step(state: Array, chunk: tuple[Array, ...]) -> tuple[Array, Array]:
        value, from_state, scores, queries, left, decay = chunk
        value = value - jnp.einsum("bhik,bhkv->bhiv", from_state, state)
        output = jnp.einsum("bhigk,bhkv->bhigv", queries, state) + jnp.einsum("bhgij,bhjv->bhigv", scores, value)
        state = state * jnp.exp(decay[..., -1])[..., None, None] + jnp.einsum("bhik,bhiv->bhkv", left, value)
        return state, output

    state, outputs = lax.scan(step, state, (value, from_state, scores, queries, left, decay))
    outputs = jnp.moveaxis(outputs, (0, 3), (1, 2))  # (batch, chunks, tokens of a chunk, heads, ...)
    return state, outputs.reshape(outputs.shape[0], -1, *outputs.shape[3:])[:, :count]


def _recur(state: Array, tokens: _Tokens) -> tuple[Array, Array]:
    """Computes the last state and the output of each token."""
    is_of_heads = tokens.decay is None or tokens.decay.ndim == 3
    if is_of_heads and isinstance(tokens.length, int) and tokens.length > _FEW_TOKENS:
        return _scan_chunks(state, tokens)
    return _scan_tokens(state, tokens)[:2]


def _make_tokens(rule: str, parts: Sequence[Array], decay: Array | None, rate: Array | None, scale: float) -> _Tokens:
    """Makes tokens from queries, keys and values, with the decay and rate that the rule has, in at least float32."""
    query, key, value = parts
    has_decay, is_delta = look_up("update_rule", rule, _RULES)
    for name, part, is_needed in (("decay", decay, has_decay), ("beta", rate, is_delta)):
        if is_needed and part is None:
            raise InvalidDesc(Problem(name, f"must be given for update_rule {rule}", "none"))
    heads, size = value.shape[2], query.shape[3]
    for name, count, may_be_more in (("query", query.shape[2], True), ("key", key.shape[2], False)):
        if heads % count and not (may_be_more and count % heads == 0):
            requirement = f"must have a number of heads that divides {heads}{' or is a multiple' * may_be_more}"
            raise InvalidDesc(Problem(name, requirement, count))
    wide = widened(query.dtype)
    query, key = (jnp.repeat(x.astype(wide), -(-heads // x.shape[2]), axis=2) for x in (query, key))
    groups = (query * (scale or 1 / math.sqrt(size))).reshape(*query.shape[:2], heads, -1, size)
    decay = decay.astype(wide) if has_decay and decay is not None else None
    rate = jnp.broadcast_to(rate.astype(wide), value.shape[:3]) if is_delta and rate is not None else None
    return _Tokens(groups, key, value.astype(wide), decay, rate)


_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}


def _require_window(count: int) -> None:
    if not 0 <= count <= 8:
        raise InvalidDesc(Problem("state_window", "must be from 0 to 8", count))


@handles("LinearAttention", since=27)
@handles_contrib("LinearAttention")
def _linear_attention(
    query: Rows,
    key: Rows,
    value: Rows,
    past: Array | None = None,
    decay: Rows | None = None,
    rate: Rows | None = None,
    *,
    chunk_size: int = 64,  # affects no result
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> Results:
    _require_window(state_window)
    if min(q_num_heads, kv_num_heads) < 1 or query.shape[2] % q_num_heads or value.shape[2] % kv_num_heads:
        rule = f"must divide the last dimensions of {query.shape} and {value.shape}"
        raise InvalidDesc(Problem(("q_num_heads", "kv_num_heads"), rule, f"{q_num_heads} and {kv_num_heads}"))
    batch, count = query.shape[:2]
    size, values = query.shape[2] // q_num_heads, value.shape[2] // kv_num_heads
    if key.shape[2] % size:
        raise InvalidDesc(Problem("key", f"must have heads of size {size}, as the queries", key.shape))
    parts = [x.reshape(batch, count, -1, width) for x, width in ((query, size), (key, size), (value, values))]
    if decay is not None and decay.shape[2] != kv_num_heads:
        decay = decay.reshape(batch, count, kv_num_heads, size)
    tokens = _make_tokens(update_rule, parts, decay, rate, scale)
    dtype = query.dtype if past is None else past.dtype
    if past is None:
        state = jnp.zeros((batch, kv_num_heads, size, values), tokens.key.dtype)
    else:
        state = (past[-1] if state_window else past).astype(tokens.key.dtype)
    if not state_window:
        state, output = _recur(state, tokens)
        present = state
    else:
        kept_count = min(state_window, count)
        parted: list[Array] = []
        if count > kept_count:
            state, output = _recur(state, tokens.cut(0, count - kept_count))
            parted.append(output)
        _, output, states = _scan_tokens(state, tokens.cut(count - kept_count, count), keeps_states=True)
        output = jnp.concatenate([*parted, output], 1)
        present = jnp.pad(states, [(state_window - kept_count, 0)] + [(0, 0)] * 4)  # type: ignore[arg-type]
    return output.reshape(batch, count, -1).astype(query.dtype), present.astype(dtype)


@dataclass(frozen=True, kw_only=True)
class _Gates(Attributes):
    beta_activation: str = "none"
    gate_activation: str = "none"
    gate_lower_bound: float = -5.0

    def decay(self, raw: Array, logarithms: Array | None, bias: Array | None) -> Array:
        """Computes the logarithms of the decays."""
        activation = look_up("gate_activation", self.gate_activation, _GATES)
        if activation == "none":
            return raw
        if logarithms is None or bias is None:
            raise InvalidDesc(Problem("gate_activation", "needs a_log and dt_bias", self.gate_activation))
        powers = jnp.exp(logarithms.astype(jnp.float32))
        powers = powers.reshape(1, 1, -1, *[1] * (raw.ndim - 3))
        total = raw + bias.astype(jnp.float32).reshape(1, 1, *raw.shape[2:])
        if activation == "softplus":
            return -powers * jax.nn.softplus(total)
        return self.gate_lower_bound * jax.nn.sigmoid(powers * total)

    def rate(self, raw: Array) -> Array:
        is_raw = look_up("beta_activation", self.beta_activation, {"none": False, "sigmoid": True})
        return jax.nn.sigmoid(raw) if is_raw else raw


_GATES = {"none": "none", "softplus": "softplus", "qwen": "softplus", "sigmoid": "sigmoid", "kda": "sigmoid"}


@handles_contrib("LinearAttentionGate")
def _gates(a: Rows, bias: Vector, scale: Vector, b: Rows | None = None, *, call: NodeCall) -> Results:
    if b is None and call.wants(1):
        raise InvalidDesc(Problem("b", "must be given for the output beta", "none"))
    decay = scale[None, None] * jax.nn.softplus(a.astype(jnp.float32) + bias[None, None])
    rate = None if b is None else jax.nn.sigmoid(b.astype(jnp.float32)).astype(b.dtype)
    return decay.astype(a.dtype), rate


@handles_contrib("GatedRMSNorm")
def _gated_norm(x: Vectors, scale: Vector, gate: Vectors, *, activation: str = "silu", epsilon: float = 1e-5) -> Array:
    width = scale.shape[0]
    if x.shape[-1] % width:
        raise InvalidDesc(Problem("X", f"must have a last dimension that {width} divides, the size of scale", x.shape))
    gating = look_up("activation", activation, {**_ACTIVATIONS, "sigmoid": jax.nn.sigmoid})
    parts = x.reshape(*x.shape[:-1], -1, width).astype(widened(x.dtype))
    means = jnp.mean(jnp.square(parts), -1, keepdims=True)
    scale = scale.astype(parts.dtype).reshape(*[1] * (parts.ndim - 1), -1)
    normal: Array = parts * lax.rsqrt(means + epsilon) * scale
    gated: Array = normal.reshape(x.shape) * gating(gate.astype(parts.dtype))
    return gated.astype(x.dtype)


@handles_contrib("GatedAdd")
def _gated_sum(x: Vectors, y: Vectors, gate: Vectors, gate_weight: Matrix | None = None) -> Array:
    if gate_weight is not None:
        gate = jnp.einsum("...k,kn->...n", gate, gate_weight, preferred_element_type=widened(gate.dtype))
        gate = jax.nn.sigmoid(gate.astype(x.dtype).astype(widened(x.dtype))).astype(x.dtype)
    return x + y * gate


# Causal convolutions of channels


def _channels_second(x: Array) -> Array:
    return x.reshape(*x.shape[:2], -1).swapaxes(1, 2)


def _taps(filter: Rows) -> list[Array]:
    return [filter[:, 0, i].astype(widened(filter.dtype)) for i in range(filter.shape[2])]


def _require_dilation(dilation: int) -> None:
    if dilation < 1:
        raise InvalidDesc(Problem("dilation", "must be at least 1", dilation))


@handles("CausalConvWithState")
@handles_contrib("CausalConvWithState")
def _causal_convolution(
    x: Vectors,
    filter: Vectors,
    bias: Vector | None = None,
    past: Vectors | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> Results:
    _require_window(state_window)
    _require_dilation(dilation)
    if ndim != 1:
        raise Unsupported(Problem("ndim", "must be 1", ndim))
    past = past[-1] if past is not None and state_window else past
    signal, sizes = x, x.shape
    if channels_last:
        signal = _channels_second(x)
        past = None if past is None else _channels_second(past)
    taps, count = _taps(filter), signal.shape[2]
    before = (len(taps) - 1) * dilation
    past = jnp.zeros((*signal.shape[:2], before), x.dtype) if past is None else past
    whole = jnp.concatenate([past, signal], axis=2)
    parts = [whole[:, :, i * dilation : i * dilation + count] * tap[None, :, None] for i, tap in enumerate(taps)]
    output = _finish(sum(parts), None if bias is None else bias[None, :, None], activation, x)  # type: ignore[arg-type]

    def show(part: Array) -> Array:
        return part.swapaxes(1, 2).reshape(part.shape[0], part.shape[2], *sizes[2:]) if channels_last else part

    def state_after(tokens: int) -> Array:
        state = whole[:, :, tokens : tokens + before] if tokens > 0 else jnp.zeros_like(past)
        return show(state)

    if not state_window:
        return show(output), show(whole[:, :, count:])
    states = [state_after(count - state_window + 1 + slot) for slot in range(state_window)]
    return show(output), jnp.stack(states)


def _finish(total: Array, bias: Array | None, activation: str, x: Array) -> Array:
    total = total if bias is None else total + bias.astype(total.dtype)
    output: Array = look_up("activation", activation, _ACTIVATIONS)(total)
    return output.astype(x.dtype)


class _Packing(NamedTuple):
    """The sequences of packed tokens."""

    begins: Array
    lengths: Array
    owners: Array  # the sequence of each token
    places: Array  # of each token in its sequence


def _packing(ends: Array, total: int) -> _Packing:
    ends = ends.astype(jnp.int32)
    begins, token = ends[:-1], lax.iota(jnp.int32, total)
    owners = jnp.searchsorted(ends[1:], token, side="right").astype(jnp.int32)
    owners = jnp.minimum(owners, begins.shape[0] - 1)
    return _Packing(begins, ends[1:] - begins, owners, token - begins[owners])


@handles_contrib("VarlenCausalConvWithState")
def _packed_causal_convolution(
    x: Matrix,
    filter: Rows,
    ends: Vector,
    bias: Vector | None,
    past: Rows,
    captured: Vector | None = None,
    *,
    activation: str = "none",
    dilation: int = 1,
    state_update_capacity: int = 0,
) -> Results:
    _require_dilation(dilation)
    if (captured is None) == bool(state_update_capacity):
        capacity = state_update_capacity
        raise InvalidDesc(Problem("state_update_capacity", "must be positive exactly with capture_count", capacity))
    taps, packing, total = _taps(filter), _packing(ends, x.shape[0]), x.shape[0]
    before = (len(taps) - 1) * dilation

    def element(owners: Array, begins: Array, places: Array) -> Array:
        """Reads the elements at places of sequences; places before 0 are in the state."""
        elements = x[jnp.clip(begins + places, 0, total - 1)]
        if before == 0:
            return elements
        return jnp.where((places >= 0)[..., None], elements, past[owners, :, jnp.clip(before + places, 0, before - 1)])

    begins = packing.begins[packing.owners]
    parts = [
        element(packing.owners, begins, packing.places - (len(taps) - 1 - i) * dilation) * tap[None]
        for i, tap in enumerate(taps)
    ]
    output = _finish(sum(parts), None if bias is None else bias[None], activation, x)  # type: ignore[arg-type]
    rows = lax.iota(jnp.int32, past.shape[0])[:, None]
    last = packing.lengths[:, None] - before + lax.iota(jnp.int32, before)[None]
    state = element(rows, packing.begins[:, None], last).swapaxes(1, 2)
    if captured is None:
        return output, state
    slots = lax.iota(jnp.int32, state_update_capacity)[None]
    is_kept = slots < jnp.minimum(captured.astype(jnp.int32), packing.lengths)[:, None]
    news = x[jnp.clip(packing.begins[:, None] + slots, 0, total - 1)]
    return output, state, jnp.where(is_kept[..., None], news, jnp.zeros((), x.dtype))


@handles_contrib("GatedDeltaNet")
def _gated_delta_network(
    query: Vectors,
    key: Vectors | None = None,
    value: Vectors | None = None,
    ends: Vector | None = None,
    decay: Vectors | None = None,
    rate: Vectors | None = None,
    past: Array | None = None,
    logarithms: Vector | None = None,
    bias: Vectors | None = None,
    captured: Vector | None = None,
    is_capturing: Array | None = None,
    *,
    chunk_size: int = 64,  # affects no result
    gates: _Gates,
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
) -> Results:
    if state_update_capacity or captured is not None or is_capturing is not None:
        raise Unsupported(Problem("state_update_capacity", "must be 0, without capture_count", state_update_capacity))
    if key is not None and value is not None:
        heads_of = query, key, value
    elif past is not None:
        heads_of = _unpack_heads(query, past)
    else:
        raise InvalidDesc(Problem("initial_state", "must be given with packed queries, keys and values", "none"))
    if past is None and ends is None:
        raise InvalidDesc(Problem("initial_state", "must be given without cu_seqlens", "none"))
    leading, batch = heads_of[0].shape[:-2], 1 if past is None or ends is not None else past.shape[0]

    def split_sequences(x: Array) -> Array:
        return x.reshape(batch, -1, *x.shape[len(leading) :])

    parts = [split_sequences(x) for x in heads_of]
    if qk_l2_norm:
        parts[:2] = map(_unit_vectors, parts[:2])
    decay, rate = (x if x is None else split_sequences(x).astype(jnp.float32) for x in (decay, rate))
    decay = None if decay is None else gates.decay(decay, logarithms, bias)
    rate = None if rate is None else gates.rate(rate)
    tokens = _make_tokens(update_rule, parts, decay, rate, scale)
    heads, size, values = tokens.key.shape[2], tokens.key.shape[3], tokens.value.shape[3]
    if past is not None:
        state = past.astype(jnp.float32).swapaxes(2, 3)
    else:
        state = jnp.zeros((0 if ends is None else ends.shape[0] - 1, heads, size, values), jnp.float32)
    state, output = _recur(state, tokens) if ends is None else _recur_sequences(state, tokens, ends)
    return output.reshape(*leading, -1, values).astype(query.dtype), state.swapaxes(2, 3)


def _unpack_heads(packed: Array, past: Array) -> tuple[Array, Array, Array]:
    """Splits packed queries, keys and values; their sizes follow from the state (batch, heads, values, keys)."""
    heads, values, size = past.shape[1:]
    width = packed.shape[-1] - heads * values
    if width <= 0 or width % (2 * size):
        rule = f"must have room for {heads} values of size {values}, and for queries and keys of size {size}"
        raise InvalidDesc(Problem("query", rule, packed.shape))
    parts = jnp.split(packed, [width // 2, width], -1)
    sizes = (size, size, values)
    query, key, value = (x.reshape(*x.shape[:-1], -1, size) for x, size in zip(parts, sizes, strict=True))
    return query, key, value


def _unit_vectors(x: Array) -> Array:
    wide = x.astype(widened(x.dtype))
    return wide * lax.rsqrt(jnp.sum(jnp.square(wide), -1, keepdims=True) + 1e-6)


def _recur_sequences(states: Array, tokens: _Tokens, ends: Array) -> tuple[Array, Array]:
    """Computes the last state of each packed sequence, and the output of each token."""
    owners = _packing(ends, tokens.length).owners

    def step(states: Array, row: tuple[Array, _Tokens]) -> tuple[Array, Array]:
        owner, token = row
        state = _update_state(lax.dynamic_slice_in_dim(states, owner, 1), token)
        return lax.dynamic_update_slice_in_dim(states, state, owner, 0), _output(state, token)

    states, outputs = lax.scan(step, states, (owners, tokens.steps_first()))
    return states, outputs.swapaxes(0, 1)
