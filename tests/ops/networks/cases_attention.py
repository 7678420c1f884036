"""MULTIHEAD_ATTENTION and MULTIHEAD_ATTENTION1: the pages' tables and pseudo-code, and cases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases import Arrays, Case, RefusedCall, RefusedDesc, ones
from formulas import Arr
from helpers import f32, tensor
from pages import tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, MultiheadAttentionMaskType as MaskType, TensorDesc

SUPPORT = tables(
    """
    MULTIHEAD_ATTENTION: QueryTensor KeyTensor ValueTensor OutputTensor; StackedQueryKeyTensor
            StackedKeyValueTensor StackedQueryKeyValueTensor; BiasTensor; MaskTensor; RelativePositionBiasTensor
            PastKeyTensor PastValueTensor OutputPresentKeyTensor OutputPresentValueTensor
        6_1 3-5 FLOATS; 5 FLOATS; 1-5 FLOATS; 1-5 INT32; 4-5 FLOATS
    MULTIHEAD_ATTENTION1: QueryTensor KeyTensor ValueTensor OutputTensor; StackedQueryKeyTensor
            StackedKeyValueTensor StackedQueryKeyValueTensor; BiasTensor; MaskTensor; RelativePositionBiasTensor
            PastKeyTensor PastValueTensor OutputPresentKeyTensor OutputPresentValueTensor;
            PastSequenceLengthsTensor
        6_3 3-5 FLOATS; 5 FLOATS; 1-5 FLOATS; 1-5 INT32; 4-5 FLOATS; 1-5 FLOATS INT32
    """
)

INPUTS = (
    "QueryTensor KeyTensor ValueTensor StackedQueryKeyTensor StackedKeyValueTensor StackedQueryKeyValueTensor"
    " BiasTensor MaskTensor RelativePositionBiasTensor PastKeyTensor PastValueTensor"
)
OUTPUTS = "OutputTensor OutputPresentKeyTensor OutputPresentValueTensor"
MEMBERS = {
    "MULTIHEAD_ATTENTION": f"{INPUTS} {OUTPUTS} Scale MaskFilterValue HeadCount MaskType",
    "MULTIHEAD_ATTENTION1": f"{INPUTS} PastSequenceLengthsTensor {OUTPUTS} Scale MaskFilterValue QueryHeadCount"
    " KeyValueHeadCount MaskType",
}


def lengths_may_be_integers(level: str, data_types: Mapping[str, str]) -> bool:
    """All tensors except the mask share a type; lengths may be INT32."""
    lengths = data_types.get("PastSequenceLengthsTensor")
    return lengths in (None, "INT32", data_types["OutputTensor"])


REMARKS = {"MULTIHEAD_ATTENTION1": lengths_may_be_integers}

# Pseudo-code: [Add Bias to query/key/value] -> GEMM(Query, Transposed(Key)) * Scale -> [Add RelativePositionBias] ->
# [Add Mask] -> Softmax -> GEMM(SoftmaxResult, Value), for each head of each batch


def attention(
    query: Arr | None = None,
    key: Arr | None = None,
    value: Arr | None = None,
    stacked_query_key: Arr | None = None,
    stacked_key_value: Arr | None = None,
    stacked_query_key_value: Arr | None = None,
    bias: Arr | None = None,
    mask: Arr | None = None,
    relative_position_bias: Arr | None = None,
    past_key: Arr | None = None,
    past_value: Arr | None = None,
    past_sequence_lengths: Arr | None = None,
    *,
    heads: int,
    key_heads: int,
    scale: float,
    mask_filter_value: float = -10000.0,
    mask_type: MaskType = MaskType.BOOLEAN,
    total: int | None = None,
) -> tuple[Arr, Arr, Arr]:
    """The attention and the present keys and values in float64, for arrays in the ranks that the functions take."""
    wide: Any = {
        name: None if x is None else np.asarray(x, np.float64) for name, x in locals().items() if name in FLOAT_NAMES
    }
    if stacked_query_key_value is not None:
        new = [split_heads(wide["stacked_query_key_value"][..., i, :]) for i in range(3)]
    else:
        both = wide["stacked_query_key"], wide["stacked_key_value"]
        new = [
            by_heads(wide["query"], heads) if both[0] is None else split_heads(both[0][..., 0, :]),
            split_heads(both[0][..., 1, :]) if both[0] is not None else by_heads_or(wide["key"], both[1], 0, key_heads),
            by_heads_or(wide["value"], both[1], 1, key_heads),
        ]
    if bias is not None:
        sizes = [x.shape[1] * x.shape[3] for x in new]
        for i, part in enumerate(np.split(wide["bias"].ravel(), np.cumsum(sizes)[:-1])):
            new[i] = new[i] + part.reshape(new[i].shape[1], 1, new[i].shape[3])
    queries, keys, values = new
    batch, _, count, _ = queries.shape
    if past_sequence_lengths is not None:
        lengths = [int(x) for x in np.asarray(past_sequence_lengths).ravel()]
        keys = in_buffer(wide["past_key"], keys, lengths, total)
        values = in_buffer(wide["past_value"], values, lengths, total)
    elif past_key is not None:
        keys, values = (
            wide[f"past_{name}"] if new is None else np.concatenate([wide[f"past_{name}"], new], 2)
            for name, new in (("key", keys), ("value", values))
        )
    output = np.empty((batch, count, heads, values.shape[3]))
    for b, h, i in np.ndindex(batch, heads, count):
        head = h // (heads // key_heads)
        scores = np.array([np.dot(queries[b, h, i], key) * scale for key in keys[b, head]])
        for j in range(len(scores)):
            if relative_position_bias is not None:
                scores[j] += at(wide["relative_position_bias"], b, h, i, j)
            is_seen = mask is None or is_shown(mask, mask_type, batch, b, h, i, j)
            if past_sequence_lengths is not None:
                is_seen = is_seen and j <= lengths[b] + i
            if not is_seen:
                scores[j] += mask_filter_value
        probs = np.exp(scores - scores.max())
        output[b, i, h] = (probs / probs.sum()) @ values[b, head]
    return output.reshape(batch, count, -1), keys, values


FLOAT_NAMES = (
    *("query", "key", "value", "stacked_query_key", "stacked_key_value", "stacked_query_key_value", "bias"),
    *("relative_position_bias", "past_key", "past_value"),
)


def split_heads(x: Arr) -> Arr:
    """Transposes (batch, positions, heads, size) to (batch, heads, positions, size)."""
    return np.swapaxes(x, 1, 2)


def by_heads(x: Any, heads: int) -> Arr:
    return split_heads(x.reshape(*x.shape[:2], heads, -1))


def by_heads_or(x: Any, stacked: Any, place: int, heads: int) -> Any:
    """Keys or values by themselves, or from a stack of both; without either, no positions."""
    if stacked is not None:
        return split_heads(stacked[..., place, :])
    return None if x is None else by_heads(x, heads)


def in_buffer(past: Any, new: Arr, lengths: list[int], total: int | None) -> Arr:
    """A buffer of `total` positions with new keys or values after the past ones."""
    count = 0 if past is None else past.shape[2]
    total = count + new.shape[2] if total is None else total
    buffer = np.zeros((*new.shape[:2], total, new.shape[3]))
    if past is not None:
        buffer[:, :, : min(total, count)] = past[:, :, :total]
    for b, length in enumerate(lengths):
        for i in range(new.shape[2]):
            if 0 <= length + i < total:
                buffer[b, :, length + i] = new[b, :, i]
    return buffer


def at(x: Arr, *place: int) -> Any:
    """An element of an array that broadcasts to four dimensions."""
    sizes = (1,) * (4 - x.ndim) + x.shape
    return x.reshape(sizes)[tuple(0 if size == 1 else i for size, i in zip(sizes, place, strict=True))]


def is_shown(mask: Arr, mask_type: MaskType, batch: int, b: int, h: int, i: int, j: int) -> bool:
    flat = np.asarray(mask).ravel()
    match mask_type:
        case MaskType.BOOLEAN:
            return bool(at(np.asarray(mask), b, h, i, j) > 0)
        case MaskType.KEY_SEQUENCE_END_START:
            return bool(flat[batch + b] <= j < flat[b])
        case _:
            return bool(j < flat[b])


# Descriptors


RANKS = {
    **dict.fromkeys(("query", "key", "value"), 3),
    **dict.fromkeys(("stacked_query_key", "stacked_key_value", "stacked_query_key_value"), 5),
    **dict.fromkeys(("bias", "past_sequence_lengths"), 1),
    **dict.fromkeys(("relative_position_bias", "past_key", "past_value", "mask"), 4),
}


def of_desc(desc: Any, inputs: Arrays) -> tuple[Arr, Arr, Arr]:
    """The outputs of any descriptor, by the pseudo-code."""
    is_first = hasattr(desc, "head_count")
    heads, key_heads = (desc.head_count,) * 2 if is_first else (desc.query_head_count, desc.key_value_head_count)
    given = {
        field: x.reshape(((1,) * RANKS[field] + x.shape)[-RANKS[field] :])
        if field != "mask" or desc.mask_type is MaskType.BOOLEAN
        else x
        for field, x in inputs.items()
    }
    present = desc.output_present_key or desc.output_present_value
    return attention(
        **given,
        heads=heads,
        key_heads=key_heads,
        scale=float(desc.scale.item),
        mask_filter_value=float(desc.mask_filter_value.item),
        mask_type=desc.mask_type,
        total=present.sizes[-2] if present else None,
    )


def assert_near(actual: Any, exact: Arr, dtype: Any) -> None:
    """Checks errors as for sums of float32, rounded once more for float16."""
    actual = np.asarray(actual)
    assert (actual.dtype, actual.shape) == (dtype, exact.shape)
    rounding = 0 if dtype == np.float32 else float(np.finfo(dtype).eps) / 2
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=rounding + 1e-7, atol=3e-6)


@dataclass(frozen=True)
class AttentionCase(Case):
    """A case with numbers of one magnitude, and with masks and lengths that show only some of the keys."""

    def inputs(self, desc: Any, rng: np.random.Generator) -> Arrays:
        given: Arrays = {}
        for field, member in desc.tensors(is_input=True).items():
            if field == "mask":
                x = rng.integers(0, 2 if desc.mask_type is MaskType.BOOLEAN else 5, member.sizes)
            elif field == "past_sequence_lengths":
                x = rng.integers(0, 3, member.sizes)
            else:
                x = rng.uniform(-2, 2, member.sizes)
            given[field] = x.astype(member.dtype)
        return given

    def check(self, desc: directml.Operator, inputs: Arrays, outputs: Any) -> None:
        exact = dict(zip(("output", "output_present_key", "output_present_value"), of_desc(desc, inputs), strict=True))
        for field, member in desc.tensors(is_input=False).items():
            assert_near(getattr(outputs, field), exact[field].reshape(member.sizes), member.dtype)


BATCH, QUERIES, PAST, HEADS, SIZE, VALUE_SIZE = 2, 3, 2, 2, 4, 3
TOTAL = QUERIES + PAST


def of_three(data_type: DataType, rank: int, heads: int = HEADS) -> dict[str, TensorDesc]:
    """Separate queries, keys and values; the queries may have more heads."""
    sizes = {"query": heads * SIZE, "key": HEADS * SIZE, "value": HEADS * VALUE_SIZE, "output": heads * VALUE_SIZE}
    return {field: TensorDesc(data_type, ones(rank, BATCH, QUERIES, size)) for field, size in sizes.items()}


def of_past(data_type: DataType, rank: int) -> dict[str, TensorDesc]:
    sizes = {"past_key": SIZE, "past_value": VALUE_SIZE}
    return {field: TensorDesc(data_type, ones(rank, BATCH, HEADS, PAST, size)) for field, size in sizes.items()}


def of_present(data_type: DataType, rank: int, total: int, value_size: int = VALUE_SIZE) -> dict[str, TensorDesc]:
    sizes = {"output_present_key": SIZE, "output_present_value": value_size}
    return {field: TensorDesc(data_type, ones(rank, BATCH, HEADS, total, size)) for field, size in sizes.items()}


def with_masks(data_type: DataType, rank: int) -> dict[str, Any]:
    """Separate queries, keys and values, with a bias, past keys, and a mask of positions."""
    mask = TensorDesc(DataType.INT32, ones(max(rank, 4), BATCH, HEADS, QUERIES, TOTAL))
    bias = TensorDesc(data_type, ones(max(rank - 2, 1), HEADS * (2 * SIZE + VALUE_SIZE)))
    tensors = of_three(data_type, rank) | of_past(data_type, max(rank, 4)) | {"mask": mask, "bias": bias}
    return tensors | {"mask_type": MaskType.BOOLEAN}


def stacked(data_type: DataType, rank: int) -> dict[str, Any]:
    """One tensor for all, with lengths, a bias of positions, and present outputs."""
    return {
        "stacked_query_key_value": TensorDesc(data_type, (BATCH, QUERIES, HEADS, 3, SIZE)),
        "mask": TensorDesc(DataType.INT32, ones(rank, 1, BATCH)),
        "relative_position_bias": TensorDesc(data_type, ones(rank, BATCH, HEADS, QUERIES, QUERIES)),
        "output": TensorDesc(data_type, ones(rank, BATCH, QUERIES, HEADS * SIZE)),
        "mask_type": MaskType.KEY_SEQUENCE_LENGTH,
    } | of_present(data_type, rank, QUERIES, SIZE)


def attention_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    members = (stacked if rank == 5 else with_masks)(types["query"], max(rank, 1))
    return directml.MultiheadAttentionDesc(**members, scale=0.5, mask_filter_value=-4, head_count=HEADS)


def grouped_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    """A buffer of past keys, whose number is in `past_sequence_lengths`."""
    data_type, heads = types["query"], 2 * HEADS
    members = of_three(data_type, rank, heads) | of_past(data_type, max(rank, 4))
    lengths = TensorDesc(types["past_sequence_lengths"], ones(max(rank - 2, 1), BATCH))
    if rank == 5:
        members |= of_present(data_type, rank, TOTAL)
    return directml.MultiheadAttention1Desc(
        **members,
        past_sequence_lengths=lengths,
        scale=0.5,
        mask_filter_value=-4,
        query_head_count=heads,
        key_value_head_count=HEADS,
        mask_type=MaskType.NONE,
    )


CASES = {
    "MULTIHEAD_ATTENTION": AttentionCase(
        ("query",), attention_desc, of_desc, is_exact=False, absolute=2e-6, domain=(0.2, 0.9)
    ),
    "MULTIHEAD_ATTENTION1": AttentionCase(
        ("query", "past_sequence_lengths"), grouped_desc, of_desc, is_exact=False, absolute=2e-6, domain=(0.2, 0.9)
    ),
}


# Refusals

SMALL: dict[str, Any] = {"query": f32(2, 3, 8), "key": f32(2, 5, 8), "value": f32(2, 5, 6), "output": f32(2, 3, 6)}
SMALL |= {"scale": 0.5, "mask_filter_value": -4, "mask_type": MaskType.NONE}
PAST_TENSORS = {"past_key": f32(2, 2, 4, 4), "past_value": f32(2, 2, 4, 3)}
GROUPED = {"query_head_count": 2, "key_value_head_count": 2, "past_sequence_lengths": tensor("INT32", 2)}
MASK = {"mask": tensor("INT32", 2, 2, 3, 5), "mask_type": MaskType.BOOLEAN}
STACKED = {"query": None, "key": None, "stacked_query_key": f32(2, 3, 4, 2, 2)}


def small_desc(changes: dict[str, Any]) -> Any:
    """A descriptor with these members, of grouped attention if they have `query_head_count`."""
    if "query_head_count" in changes:
        return directml.MultiheadAttention1Desc(**SMALL | changes)
    return directml.MultiheadAttentionDesc(**SMALL | {"head_count": 2} | changes)


QUERY, KEY, VALUE = (np.ones(sizes, np.float32) for sizes in ((2, 3, 8), (2, 5, 8), (2, 5, 6)))
FIRST, OF_LENGTHS = np.ones((2, 2, 2, 4), np.float32), {"mask_type": MaskType.KEY_SEQUENCE_LENGTH}

CALLS: dict[str, dict[str, Any]] = {
    "multihead_attention": {"query": QUERY, "key": KEY, "value": VALUE, "head_count": 2},
    "multihead_attention1": {"query": QUERY, "key": KEY, "value": VALUE, "query_head_count": 2},
}

BROKEN_RULES: list[tuple[dict[str, Any], str]] = [
    (
        {"key": tensor("FLOAT16", 2, 5, 8)},
        "KeyTensor, ValueTensor and OutputTensor must have the same DataType",
    ),
    (
        {**GROUPED, "past_sequence_lengths": tensor("FLOAT16", 2)},
        "PastSequenceLengthsTensor and OutputTensor must",
    ),
    (
        {"query": None},
        "QueryTensor, StackedQueryKeyTensor or StackedQueryKeyValueTensor must be given; got none",
    ),
    ({"stacked_key_value": f32(2, 5, 2, 2, 4)}, "must be given; got KeyTensor and StackedKeyValueTensor"),
    ({"value": None, "key": None}, "must be given; got none"),
    (
        {"past_key": f32(2, 2, 4, 4)},
        "PastKeyTensor and PastValueTensor must be given together; got only PastKeyTensor",
    ),
    ({"head_count": 0}, "HeadCount must be at least 1; got 0"),
    ({"head_count": 3}, "QueryTensor must have a last dimension divisible by 3 heads; got 8"),
    (
        {"query_head_count": 4, "key_value_head_count": 3},
        "KeyValueHeadCount must be a divisor of 4, ...; got 3",
    ),
    (
        {**STACKED, "query_head_count": 4, "key_value_head_count": 2},
        "have as many heads as queries; got 4 and 2",
    ),
    ({"query": f32(2, 2, 3, 8)}, "QueryTensor.Sizes must be {1,2,3,8}; got {2,2,3,8}"),
    ({"key": f32(2, 5, 6)}, "KeyTensor.Sizes must be {2,5,8}; got {2,5,6}"),
    ({"value": f32(2, 4, 6)}, "ValueTensor.Sizes must be {2,5,6}; got {2,4,6}"),
    ({"output": f32(2, 3, 8)}, "OutputTensor.Sizes must be {2,3,6}; got {2,3,8}"),
    ({"bias": f32(24)}, "BiasTensor.Sizes must be {22}; got {24}"),
    ({"relative_position_bias": f32(1, 2, 3, 5)}, "BiasTensor.Sizes must be {2,2,3,5}; got {1,2,3,5}"),
    ({**MASK, "mask": tensor("INT32", 3, 5)}, "MaskTensor.Sizes must be {2,2,3,5}; got {3,5}"),
    (
        {**MASK, "mask_type": MaskType.NONE},
        "MaskTensor must not be given with a MaskType of NONE; got NONE",
    ),
    ({"mask_type": MaskType.BOOLEAN}, "MaskTensor must be given without a MaskType of NONE; got BOOLEAN"),
    ({**MASK, **OF_LENGTHS}, "MaskTensor.Sizes must be {1,1,1,2}; got {2,2,3,5}"),
    ({**PAST_TENSORS, "past_value": f32(2, 2, 4, 4)}, "PastValueTensor.Sizes must be {2,2,4,3}; got {2,2,4,4}"),
    ({**PAST_TENSORS, "past_value": f32(2, 2, 3, 3)}, "PastValueTensor.Sizes must be {2,2,4,3}; got {2,2,3,3}"),
    ({"output_present_key": f32(2, 2, 4, 4)}, "OutputPresentKeyTensor.Sizes must be {2,2,5,4}; got {2,2,4,4}"),
    (
        {**GROUPED, "output_present_key": f32(2, 2, 9, 4), "output_present_value": f32(2, 2, 8, 3)},
        "OutputPresentValueTensor.Sizes must be {2,2,9,3}; got {2,2,8,3}",
    ),
    (
        {**GROUPED, "past_sequence_lengths": tensor("INT32", 3)},
        "SequenceLengthsTensor.Sizes must be {2}; got {3}",
    ),
    ({**PAST_TENSORS, **GROUPED, "key": None, "value": None}, "LengthsTensor must not be given without new keys"),
]
REFUSED_DESCS: list[RefusedDesc] = [
    (small_desc(GROUPED if "query_head_count" in change else {}), change, message) for change, message in BROKEN_RULES
]

REFUSED_CALLS: list[RefusedCall] = [
    ("multihead_attention", {"query": None}, InvalidDesc, "or stacked_query_key_value must be given; got none"),
    # As in jax.nn
    (
        "multihead_attention",
        {"query": QUERY.reshape(2, 3, 2, 4)},
        InvalidDesc,
        "have 3 dimensions: batch, sequence, and heads times size; got shape (2, 3, 2, 4)"
        " (query.reshape(*query.shape[:2], -1))",
    ),
    (
        "multihead_attention",
        {"mask": np.ones((3, 4), bool)},
        InvalidDesc,
        "that broadcasts to (2, 2, 3, 5); got (3, 4)",
    ),
    (
        "multihead_attention",
        {"mask": np.ones((2, 5), bool)},
        InvalidDesc,
        "that broadcasts to (2, 2, 3, 5); got (2, 5) (mask[:, None, None] masks keys of each batch)",
    ),
    (
        "multihead_attention",
        OF_LENGTHS | {"mask": np.ones(3, np.int32)},
        InvalidDesc,
        "must have the shape (1, 2); got (3,)",
    ),
    (
        "multihead_attention",
        {"mask": np.zeros((3, 5), np.float32)},
        InvalidType,
        "got float32 (pass floats to add to the scores as relative_position_bias)",
    ),
    (
        "multihead_attention",
        OF_LENGTHS | {"mask": np.ones(2, bool)},
        InvalidType,
        "mask must be of an integer type; got bool",
    ),
    (
        "multihead_attention",  # it has the shape of the scores
        {
            "query": QUERY[:, :2],
            "key": KEY[:, :2],
            "value": VALUE[:, :2],
            "past_key": FIRST[:1],
            "past_value": FIRST,
        },
        InvalidDesc,
        "past_key must have the shape (2, 2, 2, 4); got (1, 2, 2, 4)",
    ),
    (
        "multihead_attention",
        {"key": KEY.astype(np.float16)},
        InvalidType,
        "key must be of float32, as query is; got float16",
    ),
    (
        "multihead_attention1",
        {"query": None, "key": None, "value": None, "stacked_query_key_value": np.ones((1, 2, 2, 3, 4), np.float32)}
        | {"key_value_head_count": 1},
        InvalidDesc,
        "stacked_query_key_value must not be given, unless keys have as many heads as queries; got 2 and 1",
    ),
    (
        "multihead_attention1",
        {"past_sequence_lengths": np.ones(2)},
        InvalidType,
        "must be of an integer type; got float",
    ),
    (
        "multihead_attention1",
        {"total_sequence_length": 5},
        InvalidDesc,
        "total_sequence_length must not be given without",
    ),
]
