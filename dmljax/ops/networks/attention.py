"""Multi-head attention: MULTIHEAD_ATTENTION, and MULTIHEAD_ATTENTION1 with grouped heads and a buffer of past keys.

16-bit floats are computed in float32, and each result is rounded once; kernels of a GPU and a TPU also round the
softmax. There, and above a number of scores that depends on the platform, the scores are never in memory all at once,
forward or backward. On an explicit mesh, the result is sharded like the queries, and present keys and values like the
keys.

Args:
    query: Queries, (batch, queries, heads * head size); None if they are stacked.
    key: Keys, (batch, keys, key heads * head size); None if they are stacked, or all are past ones.
    value: Values, (batch, keys, key heads * value size); None if they are stacked, or all are past ones.
    stacked_query_key: Queries and keys, (batch, positions, heads, 2, head size); None if they are apart.
    stacked_key_value: Keys and values, (batch, keys, key heads, 2, head size); None if they are apart.
    stacked_query_key_value: Queries, keys and values, (batch, positions, heads, 3, head size); None if they are apart.
    bias: One number for each element of a query, of a key and of a value, which are added; None adds nothing.
    mask: Which keys each query sees, in the form that `mask_type` names; None shows all keys.
    relative_position_bias: Added to the scores; broadcasts to (batch, heads, queries, keys). None adds nothing.
    past_key: Keys before the new ones, (batch, key heads, positions, head size); None if there are none.
    past_value: Values before the new ones, (batch, key heads, positions, value size); None if there are none.
    scale: Factor of the scores; None means 1 / sqrt(head size).
    mask_filter_value: Added to the scores of hidden keys; -inf hides them for certain.
    mask_type: Whether `mask` holds booleans, or lengths or bounds of the keys of each example.
    has_present: Whether to return also all keys and values, to pass as past ones to the next call.
    is_causal: Whether keys after a query's own position get `mask_filter_value`, too; past keys come first.
    axis_name: Mesh axis over which the positions are spread; None if one device has them all.

Returns:
    The output, (batch, queries, heads * value size); with `has_present`, a `MultiheadAttention`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, InvalidType, Problem, require
from dmljax.foundation.checks import integer_in
from dmljax.foundation.dimensions import is_symbolic, number
from dmljax.foundation.open_sizes import spell_equalities
from dmljax.foundation.sharding import MeshAxes, call_with_auto_axes, dimension_axes, dividing_axes
from dmljax.foundation.sizes import (
    argument_name,
    remedy_for_open,
    remedy_for_rank,
    require_broadcast,
    use_member_names,
    with_leading_ones,
)
from dmljax.lowerings.attention.caches import write_new
from dmljax.lowerings.attention.dot_product import Mask, attention
from dmljax.text import join_sizes, join_words
from dmljax.types import (
    FLOAT,
    FLOATS,
    ONLY_INT32,
    DataType,
    MultiheadAttentionMaskType,
    MultiheadAttentionMaskTypeLike,
    Results,
    widened,
)

_BOOLEAN = MultiheadAttentionMaskType.BOOLEAN

# The arrays that hold queries, keys and values, with the index in the second-to-last dimension of a stacked array

_PLACES = {
    "query": {"query": 0, "stacked_query_key": 0, "stacked_query_key_value": 0},
    "key": {"key": 0, "stacked_query_key": 1, "stacked_key_value": 0, "stacked_query_key_value": 1},
    "value": {"value": 0, "stacked_key_value": 1, "stacked_query_key_value": 2},
}
_STACKED = {"stacked_query_key": 2, "stacked_key_value": 2, "stacked_query_key_value": 3}
_RANKS = {
    **dict.fromkeys(("query", "key", "value", "output"), 3),
    **dict.fromkeys(_STACKED, 5),
    **dict.fromkeys(("past_key", "past_value", "relative_position_bias"), 4),
    **dict.fromkeys(("output_present_key", "output_present_value"), 4),
    **dict.fromkeys(("bias", "past_sequence_lengths"), 1),
}

_MEANINGS = {
    **dict.fromkeys(("query", "key", "value"), ": batch, sequence, and heads times size"),
    **dict.fromkeys(_STACKED, ": batch, sequence, heads, the stacked, and size"),
    **dict.fromkeys(("past_key", "past_value"), ": batch, heads, sequence and size"),
}
Shapes = Mapping[str, Sequence[int]]  # by the names of the function's arguments, in the ranks that it takes


@dataclass(frozen=True)
class _AttentionSizes:
    """The sizes that determine all shapes of an attention."""

    batch: int
    queries: int
    keys: int  # new ones
    past: int
    total: int
    heads: int
    key_heads: int
    size: int  # of the part of a query or a key that a head has
    value_size: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each array except the mask, even of arrays that are absent."""
        keys = (self.batch, self.key_heads, self.past, self.size)
        values = (*keys[:3], self.value_size)
        parts = (self.heads * self.size, self.key_heads * self.size, self.key_heads * self.value_size)
        return {
            "query": (self.batch, self.queries, parts[0]),
            "key": (self.batch, self.keys, parts[1]),
            "value": (self.batch, self.keys, parts[2]),
            "stacked_query_key": (self.batch, self.queries, self.heads, 2, self.size),
            "stacked_key_value": (self.batch, self.keys, self.key_heads, 2, self.size),
            "stacked_query_key_value": (self.batch, self.queries, self.heads, 3, self.size),
            "bias": (sum(parts),),
            "relative_position_bias": self.scores(),
            "past_key": keys,
            "past_value": values,
            "past_sequence_lengths": (self.batch,),
            "output": (self.batch, self.queries, self.heads * self.value_size),
            "output_present_key": (*keys[:2], self.total, self.size),
            "output_present_value": (*values[:2], self.total, self.value_size),
        }

    def scores(self) -> tuple[int, ...]:
        return (self.batch, self.heads, self.queries, self.total)

    def mask(self, mask_type: MultiheadAttentionMaskType) -> tuple[int, ...]:
        """The shape of a mask, as the pages give it."""
        match mask_type:
            case MultiheadAttentionMaskType.KEY_SEQUENCE_LENGTH:
                return (1, self.batch)
            case MultiheadAttentionMaskType.KEY_SEQUENCE_END_START:
                return (2, self.batch)
            case MultiheadAttentionMaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END:
                return (3 * self.batch + 2,)
            case _:
                return self.scores()


def _sizes(shapes: Shapes, head_counts: Mapping[str, int], total: int | None, blocks: int = 1) -> _AttentionSizes:
    """Infers the sizes of an attention from its arrays' shapes, those of one of `blocks` blocks of positions."""
    source = _sources(shapes)
    for name, count in head_counts.items():
        require(name, count >= 1, "must be at least 1", count)
    heads, *_, key_heads = *head_counts.values(), *head_counts.values()
    rule = f"must be a divisor of {heads}, the number of heads of the queries"
    require("key_value_head_count", heads % key_heads == 0, rule, key_heads)
    for name in ("stacked_query_key", "stacked_query_key_value"):
        rule = "must not be given, unless keys have as many heads as queries"
        require(name, name not in shapes or heads == key_heads, rule, f"{heads} and {key_heads}")

    def size_of(role: str, heads: int) -> int:
        name = source[role]
        *_, whole = shapes[name]
        rest = 0 if name in _STACKED else whole % heads
        rule = f"must have a last dimension divisible by {heads} heads"
        require(name, rest == 0, rule, whole, remedy=spell_equalities((rest, 0)))
        return whole if name in _STACKED else whole // heads

    past = shapes["past_key"][2] if "past_key" in shapes else 0
    keys = shapes[source["key"]][1] if "key" in source else 0
    return _AttentionSizes(
        batch=shapes[source["query"]][0],
        queries=shapes[source["query"]][1],
        keys=keys,
        past=past,
        total=past + keys * blocks if total is None else total,
        heads=heads,
        key_heads=key_heads,
        size=size_of("query", heads),
        value_size=size_of("value", key_heads) if "value" in source else shapes["past_value"][3],
    )


def _sources(shapes: Shapes) -> dict[str, str]:
    """Returns the names of the arrays that hold the queries, keys and values; keys and values may all be past ones."""
    pasts = ("past_key", "past_value")
    known = [name for name in pasts if name in shapes]
    if len(known) == 1:
        rule = f"{argument_name(pasts[0])} and {argument_name(pasts[1])} must be given together"
        raise InvalidDesc(Problem((), rule, f"only {argument_name(known[0])}"))
    names_by_role = {role: [name for name in places if name in shapes] for role, places in _PLACES.items()}
    has_only_past = bool(known) and not names_by_role["key"] and not names_by_role["value"]
    for role, names in names_by_role.items():
        if len(names) != 1 and (role == "query" or not has_only_past):
            *most, last = map(argument_name, _PLACES[role])
            rule = f"exactly one of {', '.join(most)} or {last} must be given"
            raise InvalidDesc(Problem((), rule, join_words(map(argument_name, names)) if names else "none"))
    if has_only_past and "past_sequence_lengths" in shapes:
        raise InvalidDesc(Problem("past_sequence_lengths", "must not be given without new keys"))
    return {role: names[0] for role, names in names_by_role.items() if names}


# What both operators compute


@calls.result
class MultiheadAttention(NamedTuple):
    """The output of an attention with `has_present`, and the keys and values to pass to the next call.

    >>> x = jnp.array([[[1.0], [3.0]]])
    >>> multihead_attention(x, x, x, head_count=1, has_present=True).present_key.tolist()
    [[[[1.0], [3.0]]]]
    """

    output: Array
    present_key: Array
    present_value: Array


_ARRAYS = (
    *("query", "key", "value", "stacked_query_key", "stacked_key_value", "stacked_query_key_value"),
    *("bias", "mask", "relative_position_bias", "past_key", "past_value", "past_sequence_lengths"),
)


class _Options(NamedTuple):
    """The arguments of an attention besides its arrays and numbers."""

    mask_type: MultiheadAttentionMaskType
    has_present: bool
    precision: Any
    is_causal: bool
    axis_name: str | None
    total: int | None = None


def _attend(
    arrays: Sequence[ArrayLike | None],
    scale: ArrayLike | None,
    mask_filter_value: ArrayLike,
    head_counts: Mapping[str, int],
    options: _Options,
) -> Results:
    """Computes the attention of the first of `_ARRAYS`: an array, or with `has_present` a `MultiheadAttention`."""
    inputs = _check_arrays(dict(zip(_ARRAYS, arrays, strict=False)), options.mask_type)
    sizes, source = _check_sizes(inputs, head_counts, options)
    wide = widened(inputs[source["query"]].dtype)
    numbers = {"scale": _inverse_root(sizes.size, wide) if scale is None else scale, "added": mask_filter_value}
    inputs |= {name: jnp.asarray(value, wide) for name, value in numbers.items()}

    operands = [(x, dimension_axes(x)) for x in inputs.values()]
    axes_of_results = _axes_of_results(inputs, sizes, source, options.has_present)
    division: tuple[MeshAxes, MeshAxes] | None = None
    if any(map(any, (axes for _, axes in operands))):
        batch, positions, features = axes_of_results[0]
        division = (None, None) if positions else (batch, features)

    def compute(*operands: Array) -> Any:
        return _compute(dict(zip(inputs, operands, strict=True)), sizes, source, options, division)

    outputs: Any = call_with_auto_axes(compute, operands, *axes_of_results)
    return cast(Results, MultiheadAttention(*outputs) if options.has_present else outputs)


def _check_sizes(
    inputs: Mapping[str, Array], head_counts: Mapping[str, int], options: _Options
) -> tuple[_AttentionSizes, dict[str, str]]:
    """The sizes of an attention, and the names of the arrays that hold queries, keys and values."""
    blocks = 1 if options.axis_name is None else _ring_size(options.axis_name, inputs, options.has_present)
    shapes = {name: x.shape for name, x in inputs.items()}
    problems = []
    for name, shape in shapes.items():
        if len(shape) != _RANKS.get(name, len(shape)) and name != "relative_position_bias":
            rule = f"must have {_RANKS[name]} dimensions{_MEANINGS.get(name, '')}"
            remedy = remedy_for_rank(name, shape, _RANKS[name])
            if _RANKS[name] == 3 and len(shape) == 4:
                remedy = f"{name}.reshape(*{name}.shape[:2], -1)"
            if name == "bias" and len(shape) > 1:
                remedy = "relative_position_bias=bias adds it to the scores"
            problems.append(Problem(name, rule, f"shape {shape}", remedy=remedy))
    if problems:
        raise InvalidDesc(*problems)
    sizes = _sizes(shapes, head_counts, options.total, blocks)
    if "mask" in inputs and options.mask_type is _BOOLEAN and inputs["mask"].dtype != bool:
        _refuse_lengths(inputs["mask"], sizes)
    _require_shapes(sizes, shapes, options.mask_type)
    return sizes, _sources(shapes)


def _compute(
    arrays: dict[str, Array],
    sizes: _AttentionSizes,
    source: Mapping[str, str],
    options: _Options,
    division: tuple[MeshAxes, MeshAxes] | None,
) -> Any:
    """The output, and the present keys and values if wanted, in the type of the queries."""
    axis_name, dtype = options.axis_name, arrays[source["query"]].dtype
    query, key, value = (_split_heads(role, sizes, source, arrays) for role in _PLACES)
    keys, values = _append_to_past("key", key, sizes, arrays), _append_to_past("value", value, sizes, arrays)
    if options.has_present:
        keys, values = [lax.concatenate(keys, 3)], [lax.concatenate(values, 3)]
    first = sizes.past if axis_name is None else lax.axis_index(axis_name) * sizes.queries
    result = attention(
        query,
        keys,
        values,
        arrays["scale"],
        _expand_to_scores(arrays.get("relative_position_bias"), sizes),
        _mask(options.mask_type, sizes, arrays, is_causal=options.is_causal, first=first),
        axis_name,
        precision=options.precision,
        keys_in_rows=not any(name.startswith("past_") for name in arrays),
        division=division,
    )
    output = jnp.moveaxis(result, 3, 1).reshape(sizes.shapes()["output"]).astype(dtype)
    if not options.has_present:
        return output
    return (output, *(x[:, :, 0].astype(dtype) for x in keys + values))


def _axes_of_results(
    inputs: Mapping[str, Array], sizes: _AttentionSizes, source: Mapping[str, str], has_present: bool
) -> list[list[MeshAxes]]:
    """The mesh axes of the output, as those of the queries, and of present keys and values, as those of the keys."""
    query, keys = inputs[source["query"]], inputs[source.get("key", "past_key")]
    query_axes, key_axes = dimension_axes(query)[:3], dimension_axes(keys)
    key_axes = key_axes[:3:2] if "key" in source else key_axes[:2]
    output = [*query_axes[:2], dividing_axes(query_axes[2], sizes.heads * sizes.value_size, query)]
    present: list[MeshAxes] = [key_axes[0], dividing_axes(key_axes[1], sizes.key_heads, keys), None, None]
    return [output, *([present, present] if has_present else [])]


def _ring_size(axis_name: str, inputs: Mapping[str, Array], has_present: bool) -> int:
    """Returns the number of devices along an axis of the mesh, each of which has a block of the positions."""
    for name in (*(name for name in inputs if name.startswith("past_")), *["has_present"] * has_present):
        raise InvalidDesc(Problem("axis_name", f"must not be given with {argument_name(name)}"))
    try:
        return int(lax.axis_size(axis_name))
    except NameError:
        remedy = "call the function inside jax.shard_map over a mesh with that axis"
        raise InvalidDesc(Problem("axis_name", "must be a manual axis of the mesh", axis_name, remedy=remedy)) from None


def _check_arrays(arrays: Mapping[str, ArrayLike | None], mask_type: MultiheadAttentionMaskType) -> dict[str, Array]:
    """Returns the arrays that are present; floats must all have one type."""
    converters = {
        "mask": calls.real_array if mask_type is _BOOLEAN else calls.integer_array,
        "past_sequence_lengths": calls.integer_array,
    }
    inputs = {
        name: converters.get(name, calls.float_array)(name, value)
        for name, value in arrays.items()
        if value is not None
    }
    floats = {name: x.dtype for name, x in inputs.items() if name not in converters}
    for name in floats:
        first, dtype = next(iter(floats.items()))
        calls.require_type(name, inputs[name], dtype, first)
    if "mask" in inputs and inputs["mask"].dtype in FLOATS:
        remedy = "pass floats to add to the scores as relative_position_bias"
        raise InvalidType(Problem("mask", "must be of bool or an integer type", inputs["mask"].dtype, remedy=remedy))
    return inputs


def _require_shapes(sizes: _AttentionSizes, shapes: Shapes, mask_type: MultiheadAttentionMaskType) -> None:
    """Raises if the shape of an array does not follow from the sizes, or does not broadcast to the scores."""
    if "mask" in shapes and mask_type is MultiheadAttentionMaskType.NONE:
        raise InvalidDesc(Problem("mask", "must not be given with a mask_type of NONE"))
    expected = sizes.shapes() | {"mask": sizes.mask(mask_type)}
    for name, shape in shapes.items():
        whole = expected[name]
        if (name, mask_type, shape) == ("mask", _BOOLEAN, (whole[0], whole[-1])) and shape[0] != whole[-2]:
            rule, remedy = (
                f"must have a shape that broadcasts to {whole}",
                "mask[:, None, None] masks keys of each batch",
            )
            raise InvalidDesc(Problem(name, rule, shape, remedy=remedy))
        if name == "relative_position_bias" or (name, mask_type) == ("mask", _BOOLEAN):
            require_broadcast(name, shape, whole)
        elif shape != whole and not (name == "mask" and (1, *shape) == whole):
            rule = f"must have the shape {whole}"
            of_heads = _remedy_for_heads(shape[-1], sizes.size, sizes.heads) if name == "key" else None
            raise InvalidDesc(Problem(name, rule, shape, remedy=of_heads or remedy_for_open(shape, whole)))


def _remedy_for_heads(whole: int, size: int, heads: int) -> str | None:
    """Names the argument for keys of fewer heads than the queries have; None if `whole` is not that of such keys."""
    if is_symbolic(whole) or is_symbolic(size) or size < 1 or whole < size or whole % size or heads % (whole // size):
        return None
    return f"multihead_attention1(query, key, value, query_head_count={heads}, key_value_head_count={whole // size})"


def _refuse_lengths(mask: Array, sizes: _AttentionSizes) -> None:
    """Raises if integers may be lengths of the keys of each batch, all of which would count as true."""
    is_each_batch = mask.shape in ((sizes.batch,), (1, sizes.batch))
    if is_each_batch or (mask.shape[-1:] in ((), (1,)) and sizes.total != 1):
        rule = "must be of bool, or have a number for each key, unless mask_type says that it has lengths"
        given = f"{mask.dtype} of shape {mask.shape}"
        remedy = "mask_type='key_sequence_length' for lengths of each batch; mask=mask > 0 for zeros and ones"
        raise InvalidType(Problem("mask", rule, given, remedy=remedy))


def _inverse_root(size: int, wide: Any) -> Any:
    return lax.rsqrt(number(size, wide)) if is_symbolic(size) else 1 / math.sqrt(max(size, 1))  # 1 if the size is 0


def _split_heads(role: str, sizes: _AttentionSizes, source: Mapping[str, str], inputs: Mapping[str, Array]) -> Any:
    """Returns the queries, keys or values plus their bias, by batch, head of keys, head of queries, and position."""
    if role not in source:
        return None
    x, shapes = inputs[source[role]], sizes.shapes()
    heads = sizes.heads if role == "query" else sizes.key_heads
    size = sizes.value_size if role == "value" else sizes.size
    is_stacked = source[role] in _STACKED
    x = x[..., _PLACES[role][source[role]], :] if is_stacked else x.reshape(*x.shape[:2], heads, size)
    if "bias" in inputs:
        wide, before = widened(x.dtype), list(_PLACES)[: list(_PLACES).index(role)]
        first = sum(shapes[name][-1] for name in before)
        bias = lax.slice_in_dim(inputs["bias"], first, first + shapes[role][-1])
        x = x.astype(wide) + bias.astype(wide).reshape(1, 1, *x.shape[2:])
    # Split the heads before moving them, so that XLA cancels this with the opposite in a kernel for rows of heads.
    return jnp.moveaxis(x.reshape(*x.shape[:2], sizes.key_heads, heads // sizes.key_heads, size), 1, 3)


def _append_to_past(role: str, new: Any, sizes: _AttentionSizes, inputs: Mapping[str, Array]) -> list[Array]:
    """Returns the past and then the new keys or values, in one array or two."""
    past = inputs[f"past_{role}"][:, :, None] if f"past_{role}" in inputs else None
    if "past_sequence_lengths" in inputs:
        return [_write_to_buffer(past, new, sizes, inputs["past_sequence_lengths"])]
    if past is None or new is None:
        return [new if past is None else past]
    return [past.astype(new.dtype), new]


def _write_to_buffer(past: Array | None, new: Array, sizes: _AttentionSizes, lengths: Array) -> Array:
    """Writes the new keys or values into the buffer, after the past ones of each batch."""
    if past is None:
        past = jnp.zeros_like(new[:, :, :, :0])
    past = lax.slice_in_dim(past, 0, min(sizes.past, sizes.total), axis=3).astype(new.dtype)
    buffer = jnp.pad(past, (*[(0, 0)] * 3, (0, max(sizes.total - sizes.past, 0)), (0, 0)))
    cache = write_new(buffer.squeeze(2), new.squeeze(2), _clamp_positions(lengths, sizes))
    return jnp.expand_dims(cache, 2)


_FAR = 2**30  # a position that no key has


def _clamp_positions(positions: Array, sizes: _AttentionSizes) -> Array:
    """Returns positions as int32, clamped to `_FAR` beyond the range."""
    limits = jnp.iinfo(positions.dtype)
    return jnp.clip(positions, max(limits.min, -_FAR), min(limits.max, _FAR)).astype(jnp.int32)


def _expand_to_scores(x: Array | None, sizes: _AttentionSizes) -> Array | None:
    """An array that broadcasts to the scores, with a separate dimension for the heads that share keys."""
    if x is None:
        return None
    batch, heads, queries, keys = (1,) * (4 - x.ndim) + x.shape
    groups = (1, 1) if heads == 1 else (sizes.key_heads, sizes.heads // sizes.key_heads)
    return x.reshape(batch, *groups, queries, keys)


def _mask(
    mask_type: MultiheadAttentionMaskType,
    sizes: _AttentionSizes,
    inputs: Mapping[str, Array],
    *,
    is_causal: bool,
    first: int | Array,
) -> Mask:
    """Returns which keys are visible; if causal or with past lengths, only those up to the query's own position.

    `first` is the position of the first query, unless there are past lengths.
    """

    def bound(positions: Array) -> Array:
        return _clamp_positions(positions, sizes).reshape(sizes.batch, 1, 1, 1, 1)

    mask = Mask(inputs["added"])
    match mask_type, inputs.get("mask"):
        case _, None:
            pass
        case MultiheadAttentionMaskType.BOOLEAN, is_seen:
            mask = mask._replace(is_seen=_expand_to_scores(is_seen if is_seen.dtype == bool else is_seen > 0, sizes))
        case MultiheadAttentionMaskType.KEY_SEQUENCE_END_START, bounds:
            mask = mask._replace(end=bound(bounds[0]), begin=bound(bounds[1]))
        case _, lengths:
            mask = mask._replace(end=bound(lengths.reshape(-1)[: sizes.batch]))
    has_lengths = "past_sequence_lengths" in inputs
    if has_lengths or is_causal:
        begin = bound(inputs["past_sequence_lengths"]) if has_lengths else first
        positions = begin + lax.broadcasted_iota(jnp.int32, (1, 1, 1, sizes.queries, 1), 3)
        mask = mask._replace(end=positions + 1 if mask.end is None else jnp.minimum(mask.end, positions + 1))
    return mask


# MULTIHEAD_ATTENTION


@calls.operator_function
def multihead_attention(
    query: calls.Operand | None = None,
    key: calls.Operand | None = None,
    value: calls.Operand | None = None,
    stacked_query_key: calls.Operand | None = None,
    stacked_key_value: calls.Operand | None = None,
    stacked_query_key_value: calls.Operand | None = None,
    bias: calls.Operand | None = None,
    mask: ArrayLike | None = None,
    relative_position_bias: calls.Operand | None = None,
    past_key: calls.Operand | None = None,
    past_value: calls.Operand | None = None,
    scale: calls.WideNumber | None = None,
    mask_filter_value: calls.WideNumber = -10000.0,
    *,
    head_count: int,
    mask_type: MultiheadAttentionMaskTypeLike = _BOOLEAN,
    has_present: bool = False,
    precision: calls.Precision | None = None,
    is_causal: bool = False,
    axis_name: calls.AxisName | None = None,
) -> Results:
    """Computes the attention of several heads: for each query, the mean of values weighted by the softmax of scores.

    The scores of a head are `query @ key.T * scale`, plus `relative_position_bias`, plus `mask_filter_value` where the
    mask hides the key. Because the value is added, a query whose keys are all hidden attends to them as if there were
    no mask. With -inf, such a query gives NaN.

    Past keys and values come before the new ones. A mask of type BOOLEAN is True where a key is visible; it broadcasts
    to (batch, heads, queries, keys), past keys included.

    For a sequence that is spread over several devices, call this inside `jax.shard_map` on each device's block of the
    queries, keys and values, with the name of the mesh axis as `axis_name`. Devices pass keys and values around in a
    ring, so each query attends to the whole sequence. The mask and the bias cover the queries of the block and the keys
    of the whole sequence. Only reverse-mode derivatives are supported then.

    Use `multihead_attention1` where several heads of queries share a head of keys and values.

    Args:
        head_count: Number of heads, of keys and values as well.

    >>> query, key = jnp.zeros((1, 2, 2)), jnp.ones((1, 3, 2))
    >>> value = jnp.array([[[1.0, 10.0], [3.0, 30.0], [8.0, 80.0]]])
    >>> seen = jnp.array([[True, False, False], [True, True, False]])
    >>> multihead_attention(query, key, value, mask=seen, head_count=2).tolist()
    [[[1.0, 10.0], [2.0, 20.0]]]
    """
    sources = query, key, value, stacked_query_key, stacked_key_value, stacked_query_key_value
    others = bias, mask, relative_position_bias, past_key, past_value
    options = _Options(MultiheadAttentionMaskType.of(mask_type), has_present, precision, is_causal, axis_name)
    return _attend((*sources, *others), scale, mask_filter_value, {"head_count": head_count}, options)


_PRESENT = ("output_present_key", "output_present_value")


def _implied_scale(call: dml.Call) -> Any:
    """The scale, or 1 / sqrt(head size)."""
    tensor = call.arrays["stacked_query_key"] or call.arrays["stacked_query_key_value"]
    heads = call.argument("head_count" if call.operator is MultiheadAttentionDesc else "query_head_count")
    size = call.arrays["query"].sizes[-1] // heads if tensor is None else tensor.sizes[-1]
    return call.argument("scale") or 1 / math.sqrt(size)


class _Attention(dml.Operator):
    """The inputs and rules that both operators share."""

    query: dml.OptionalInput = None
    key: dml.OptionalInput = None
    value: dml.OptionalInput = None
    stacked_query_key: dml.OptionalInput = None
    stacked_key_value: dml.OptionalInput = None
    stacked_query_key_value: dml.OptionalInput = None
    bias: dml.OptionalInput = None
    mask: dml.OptionalInput = None
    relative_position_bias: dml.OptionalInput = None
    past_key: dml.OptionalInput = None
    past_value: dml.OptionalInput = None
    derived = {"has_present": dml.HasOutput(_PRESENT)}
    implied = {
        "scale": _implied_scale,
        "mask_type": lambda call: (
            MultiheadAttentionMaskType.NONE if call.arrays["mask"] is None else call.argument("mask_type")
        ),
    }

    def _wrong_types(self) -> Iterator[Problem]:
        tensors = self.tensors()
        lengths = tensors.get("past_sequence_lengths")
        exempt = {"mask"} | ({"past_sequence_lengths"} if lengths and lengths.data_type is DataType.INT32 else set())
        yield from dml.same_type(*(field for field in tensors if field not in exempt)).check(self)

    def _needless_mask(self: Any) -> Iterator[Problem]:
        if (self.mask is None) != (self.mask_type is MultiheadAttentionMaskType.NONE):
            rule = "must not be given with" if self.mask is not None else "must be given without"
            yield Problem("MaskTensor", f"{rule} a MaskType of NONE", self.mask_type.name)

    def _wrong_sizes(self: Any) -> Iterator[Problem]:
        try:
            sizes = self._sizes()
        except InvalidDesc as error:
            yield from error.problems
            return
        expected = sizes.shapes() | {"mask": sizes.mask(self.mask_type)}
        for field, tensor in self.tensors().items():
            whole = with_leading_ones(expected[field], tensor.rank)
            if with_leading_ones(tensor.sizes, len(whole)) != whole:
                rule = f"must be {join_sizes(whole)}"
                yield Problem((self.member(field).name, "Sizes"), rule, join_sizes(tensor.sizes))

    _mask_given = dml.Rule("MaskTensor is given unless MaskType is NONE.", _needless_mask)
    _mask_sizes = (
        "MaskTensor.Sizes are {{1, batchSize}} for KEY_SEQUENCE_LENGTH, {{2, batchSize}} for KEY_SEQUENCE_END_START, "
        "{{batchSize * 3 + 2}} for KEY_QUERY_SEQUENCE_LENGTH_START_END, and {{batchSize, headCount, sequenceLength, "
        "totalSequenceLength}} for BOOLEAN, like RelativePositionBiasTensor."
    )
    rules = dml.page_rules(
        dml.Rule("All tensors but MaskTensor have the same DataType.", _wrong_types),
        _mask_given,
        dml.Rule(
            "Exactly one tensor has the queries, one the keys and one the values: by themselves or stacked. Keys and "
            "values may be missing where PastKeyTensor and PastValueTensor are given, which are given together. "
            "HeadCount is at least 1, and divides the last Sizes of QueryTensor, KeyTensor and ValueTensor. All other "
            "sizes follow from those of queries, keys, values and past keys, and dimensions before those that the page "
            f"names are 1. {_mask_sizes}",
            _wrong_sizes,
        ),
    )

    def _sizes(self) -> _AttentionSizes:
        tensors = self.tensors()
        shapes = {
            field: with_leading_ones(tensor.sizes, _RANKS[field])[-_RANKS[field] :]
            for field, tensor in tensors.items()
            if field in _RANKS
        }
        counts = {field: getattr(self, field) for field in _HEAD_COUNTS if hasattr(self, field)}
        present = shapes.get("output_present_key", shapes.get("output_present_value"))
        total = present[2] if present is not None and "past_sequence_lengths" in tensors else None
        with use_member_names(self.argument_paths(), has_leading_ones=True):
            return _sizes(shapes, counts, total)

    def natural_sizes(self: Any) -> dict[str, tuple[int, ...]]:
        sizes = self._sizes()
        shapes = sizes.shapes() | {"mask": sizes.mask(self.mask_type)}
        return {leaf.key: shapes[leaf.key] for leaf in self.leaves(is_input=True)}

    def present(self, result: Any) -> Sequence[Any]:
        several = result if self.derived["has_present"](self) else (result,)
        by_field = dict(zip(("output", *_PRESENT), several, strict=False))
        return [by_field[leaf.key] for leaf in self.leaves(is_input=False)]


_HEAD_COUNTS = ("head_count", "query_head_count", "key_value_head_count")


def _table(**lengths: dml.Cell) -> dml.Table:
    cell = dml.Cell(dml.RANK_4_TO_5, FLOAT)
    return dml.rows(
        dml.RANK_3_TO_5,
        FLOAT,
        **dict.fromkeys(_STACKED, dml.Cell(range(5, 6), FLOAT)),
        bias=dml.Cell(dml.RANK_1_TO_5, FLOAT),
        mask=dml.Cell(dml.RANK_1_TO_5, ONLY_INT32),
        **dict.fromkeys(("relative_position_bias", "past_key", "past_value", *_PRESENT), cell),
        **lengths,
    )


class MultiheadAttentionDesc(_Attention, function=multihead_attention):
    output: dml.Output
    output_present_key: dml.OptionalOutput = None
    output_present_value: dml.OptionalOutput = None
    scale: dml.Float
    mask_filter_value: dml.Float
    head_count: dml.Uint
    mask_type: dml.Enumerator[MultiheadAttentionMaskType]
    support = dml.support(FL_6_1=_table())


# MULTIHEAD_ATTENTION1


@calls.operator_function
def multihead_attention1(
    query: calls.Operand | None = None,
    key: calls.Operand | None = None,
    value: calls.Operand | None = None,
    stacked_query_key: calls.Operand | None = None,
    stacked_key_value: calls.Operand | None = None,
    stacked_query_key_value: calls.Operand | None = None,
    bias: calls.Operand | None = None,
    mask: ArrayLike | None = None,
    relative_position_bias: calls.Operand | None = None,
    past_key: calls.Operand | None = None,
    past_value: calls.Operand | None = None,
    past_sequence_lengths: ArrayLike | None = None,
    scale: calls.WideNumber | None = None,
    mask_filter_value: calls.WideNumber = -10000.0,
    *,
    query_head_count: int,
    key_value_head_count: int | None = None,
    mask_type: MultiheadAttentionMaskTypeLike = _BOOLEAN,
    total_sequence_length: calls.Size | None = None,
    has_present: bool = False,
    precision: calls.Precision | None = None,
    is_causal: bool = False,
    axis_name: calls.AxisName | None = None,
) -> Results:
    """Computes multi-head attention with heads of queries that may share keys, and with buffers of past keys.

    Each head of keys and values serves an equal number of consecutive heads of queries. With `past_sequence_lengths`,
    past keys and values are buffers, filled up to these lengths. New keys and values are written after them, and
    dropped where the buffer ends. The attention is then causal: a query attends to no key after its own. In a loop,
    pass the length of the past as `total_sequence_length` to keep the buffers' size.

    Everything else is as in `multihead_attention`.

    Args:
        query_head_count: Number of heads of queries.
        key_value_head_count: Number of heads of keys and values, which divides that of queries; None means the same.
        past_sequence_lengths: Number of past positions that each batch has in its buffers, (batch,); None means all.
        total_sequence_length: Number of positions after the call; None means past and new ones.

    >>> query, new, cache = (
    ...     jnp.zeros((1, 1, 2)),
    ...     jnp.array([[[8.0]]]),
    ...     jnp.array([[[[2.0], [0.0], [0.0]]]]),
    ... )
    >>> output, present_key, _ = multihead_attention1(
    ...     query,
    ...     new,
    ...     new,
    ...     past_key=cache,
    ...     past_value=cache,
    ...     past_sequence_lengths=jnp.array([1]),
    ...     query_head_count=2,
    ...     key_value_head_count=1,
    ...     total_sequence_length=3,
    ...     has_present=True,
    ... )
    >>> present_key.ravel().tolist(), output.tolist()
    ([2.0, 8.0, 0.0], [[[5.0, 5.0]]])
    """
    sources = query, key, value, stacked_query_key, stacked_key_value, stacked_query_key_value
    others = bias, mask, relative_position_bias, past_key, past_value, past_sequence_lengths
    if total_sequence_length is not None:
        if not is_symbolic(total_sequence_length):
            integer_in("total_sequence_length", total_sequence_length, 1, _FAR)
        if past_sequence_lengths is None:
            raise InvalidDesc(Problem("total_sequence_length", "must not be given without past_sequence_lengths"))
    key_heads = query_head_count if key_value_head_count is None else key_value_head_count
    heads = {"query_head_count": query_head_count, "key_value_head_count": key_heads}
    type_of_mask = MultiheadAttentionMaskType.of(mask_type)
    options = _Options(type_of_mask, has_present, precision, is_causal, axis_name, total_sequence_length)
    return _attend((*sources, *others), scale, mask_filter_value, heads, options)


class MultiheadAttention1Desc(_Attention, function=multihead_attention1):
    past_sequence_lengths: dml.OptionalInput = None
    output: dml.Output
    output_present_key: dml.OptionalOutput = None
    output_present_value: dml.OptionalOutput = None
    scale: dml.Float
    mask_filter_value: dml.Float
    query_head_count: dml.Uint
    key_value_head_count: dml.Uint
    mask_type: dml.Enumerator[MultiheadAttentionMaskType]
    support = dml.support(FL_6_3=_table(past_sequence_lengths=dml.Cell(dml.RANK_1_TO_5, FLOAT | ONLY_INT32)))
    rules = dml.page_rules(
        dml.Rule(
            "All tensors but MaskTensor have the same DataType; PastSequenceLengthsTensor may also be of INT32.",
            _Attention._wrong_types,
        ),
        _Attention._mask_given,
        dml.Rule(
            "Exactly one tensor has the queries, one the keys and one the values: by themselves or stacked. Keys and "
            "values may be missing where PastKeyTensor and PastValueTensor are given, which are given together, and "
            "PastSequenceLengthsTensor is not. QueryHeadCount and KeyValueHeadCount are at least 1, and the second one "
            "divides the first one; they are the same if queries are stacked. They divide the last Sizes of "
            "QueryTensor, and of KeyTensor and ValueTensor. All other sizes follow from those of queries, keys, values "
            "and past keys, and dimensions before those that the page names are 1. With PastSequenceLengthsTensor, "
            "OutputPresentKeyTensor and OutputPresentValueTensor may have any number of positions, the same one. "
            f"{_Attention._mask_sizes}",
            _Attention._wrong_sizes,
        ),
    )

    def compute(self, **inputs: Any) -> Any:
        if "past_sequence_lengths" in inputs:
            inputs["past_sequence_lengths"] = inputs["past_sequence_lengths"].astype(jnp.int32)
        return super().compute(**inputs)

    derived = _Attention.derived | {
        "total_sequence_length": lambda desc: None if desc.past_sequence_lengths is None else desc._sizes().total
    }
    implied = _Attention.implied | {
        "key_value_head_count": lambda call: call.argument("key_value_head_count") or call.argument("query_head_count")
    }
