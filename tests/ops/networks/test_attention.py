"""MULTIHEAD_ATTENTION and MULTIHEAD_ATTENTION1."""

import functools
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import cases_attention as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    FLOATS,
    FULL,
    GATE,
    SAMPLED,
    assert_same_bits,
    assert_same_trees,
    collectives,
    f32,
    few_types,
    mesh_of,
    refuses,
    tensor,
)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import dmljax
from dmljax import directml
from dmljax.directml import MultiheadAttentionMaskType as MaskType
from dmljax.lowerings.attention import caches, dot_product as lowerings
from dmljax.lowerings.attention.dot_product import Mask
from dmljax.types import widened

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(11)
BATCH, HEADS, SIZE, QUERIES, KEYS = 2, 2, 4, 3, 5

# Accepts any arguments, which a type checker does not follow through dictionaries.
attention: Any = dmljax.multihead_attention
grouped: Any = dmljax.multihead_attention1
exact_attention: Any = oracles.attention


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.normal(size=shape).astype(dtype)


def near(actual: Any, exact: Any) -> None:
    actual = np.asarray(actual)
    assert actual.shape == exact.shape
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=1e-5, atol=1e-5)


QUERY = normal(BATCH, QUERIES, HEADS * SIZE)
KEY, VALUE = normal(BATCH, KEYS, HEADS * SIZE), normal(BATCH, KEYS, HEADS * 3)


def attended(**options: Any) -> Any:
    return attention(QUERY, KEY, VALUE, head_count=HEADS, **options)


def oracle(**options: Any) -> Any:
    arrays = {"query": QUERY, "key": KEY, "value": VALUE, "heads": HEADS, "key_heads": HEADS, "scale": SIZE**-0.5}
    return exact_attention(**arrays | options)[0]


# Stacked tensors


@FULL
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_stacked_arrays_attend_as_separate_ones(dtype: Any) -> None:
    query, key, value = (normal(BATCH, QUERIES, HEADS * SIZE, dtype=dtype) for _ in range(3))
    bias = normal(3 * HEADS * SIZE, dtype=dtype)

    def stack(*arrays: Any) -> Any:
        return np.stack([x.reshape(BATCH, QUERIES, HEADS, SIZE) for x in arrays], 3)

    forms: tuple[dict[str, Any], ...] = (
        {"query": query, "key": key, "value": value},
        {"stacked_query_key": stack(query, key), "value": value},
        {"query": query, "stacked_key_value": stack(key, value)},
        {"stacked_query_key_value": stack(query, key, value)},
    )
    first, *others = (attention(**form, bias=bias, head_count=HEADS, has_present=True) for form in forms)
    for other in others:
        assert_same_trees(other, first)


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
@pytest.mark.gate(but=1)
def test_the_result_is_rounded_once(dtype: Any) -> None:
    wide = widened(dtype)
    arrays = {
        **{name: x.astype(dtype) for name, x in (("query", QUERY), ("key", KEY), ("value", VALUE))},
        "bias": normal(HEADS * (2 * SIZE + 3), dtype=dtype),
        "relative_position_bias": normal(BATCH, HEADS, QUERIES, KEYS, dtype=dtype),
    }
    result = attention(**arrays, head_count=HEADS)
    wider = attention(**{name: x.astype(wide) for name, x in arrays.items()}, head_count=HEADS)
    assert_same_bits(result, np.asarray(wider).astype(dtype))
    exact, _, _ = exact_attention(**arrays, heads=HEADS, key_heads=HEADS, scale=SIZE**-0.5)
    unit = float(jnp.finfo(wide).eps)
    np.testing.assert_allclose(np.asarray(wider), exact, rtol=8 * unit, atol=8 * unit)


def test_large_scores_do_not_overflow() -> None:
    query, key = 1e18 * np.ones((1, 1, 2), np.float32), np.array([[[1e18, 0], [1e18, 1e12], [0, 0]]], np.float32)
    value = np.array([[[1], [2], [3]]], np.float32)
    result = attention(query, key, value, head_count=1, scale=1.0)
    assert result.tolist() == [[[2.0]]]
    # 16-bit factors whose products overflow float16.
    half = attention(*(np.float16(300) * np.ones((1, 2, 4), np.float16),) * 3, head_count=1)
    assert half.tolist() == [[[300.0] * 4] * 2]


# Masks


BOUNDS = [5, 2], [0, 6], [-3, 1], [2**31 - 1, -(2**31)]


@SAMPLED
@pytest.mark.parametrize("lengths", BOUNDS, ids=str)
@GATE
def test_lengths_and_bounds_select_the_keys_between_them(lengths: Any) -> None:
    lengths = np.array(lengths, np.int32)
    kind = MaskType.KEY_SEQUENCE_LENGTH
    expected = oracle(mask=lengths, mask_type=kind, mask_filter_value=-3.0)
    for mask in (lengths, lengths[None]):
        near(attended(mask=mask, mask_type=kind, mask_filter_value=-3.0), expected)
    bounds = np.stack([lengths, lengths[::-1] - 1])
    kind = MaskType.KEY_SEQUENCE_END_START
    expected = oracle(mask=bounds, mask_type=kind, mask_filter_value=-3.0)
    near(attended(mask=bounds, mask_type=kind, mask_filter_value=-3.0), expected)


def test_only_the_lengths_are_read_from_lengths_and_positions() -> None:
    kind = MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END
    mask = np.array([3, 1, 0, QUERIES, 2 * QUERIES, 0, KEYS, 2 * KEYS], np.int32)
    expected = attended(mask=mask[:BATCH], mask_type=MaskType.KEY_SEQUENCE_LENGTH)
    assert_same_bits(attended(mask=mask, mask_type=kind), expected)
    mask[BATCH:] = RNG.integers(-9, 9, 6)
    assert_same_bits(attended(mask=mask, mask_type=kind), expected)


@FULL
@pytest.mark.parametrize("shape", [(KEYS,), (QUERIES, KEYS), (HEADS, 1, KEYS), (BATCH, 1, QUERIES, 1)], ids=str)
def test_masks_of_positions_broadcast(shape: tuple[int, ...]) -> None:
    mask = RNG.random(shape) < 0.6
    expected = oracle(mask=mask, mask_filter_value=-2.0)
    near(attended(mask=mask, mask_filter_value=-2.0), expected)
    assert_same_bits(
        attended(mask=mask.astype(np.int8), mask_filter_value=-2.0), attended(mask=mask, mask_filter_value=-2.0)
    )
    relative = normal(*shape)
    near(attended(relative_position_bias=relative), oracle(relative_position_bias=relative))


@GATE
def test_a_mask_selects_keys_whose_value_is_positive() -> None:
    mask = np.array([2, 0, -1, 1, -(2**31)], np.int32)
    assert_same_bits(attended(mask=mask), attended(mask=mask > 0))


def test_the_filter_value_is_added() -> None:
    # If all keys are hidden, they get the weights of visible keys, up to the rounding of scores beside 10000.
    mask = np.array([[True] * KEYS, [False] * KEYS, [True, False, False, False, False]])
    result = np.asarray(attended(mask=mask))
    np.testing.assert_allclose(result[:, 1], np.asarray(attended())[:, 1], atol=5e-3)
    assert_same_bits(result[:, 2], VALUE[:, 0])
    # Infinities hide keys completely; if all are hidden, the result is NaN.
    result = np.asarray(attended(mask=mask, mask_filter_value=-INF))
    assert np.isnan(result[:, 1]).all()
    assert np.isfinite(result[:, [0, 2]]).all()


def test_a_causal_mask_is_a_band() -> None:
    band = dmljax.diagonal_matrix1(None, 1, diagonal_fill_end=1, output_sizes=(QUERIES, KEYS), dtype="int32")
    zeros = np.zeros(BATCH, np.int32)
    lengths = grouped(QUERY, KEY, VALUE, past_sequence_lengths=zeros, query_head_count=HEADS)
    assert_same_bits(attended(mask=band), lengths)


# Past keys


@FULL
def test_past_keys_precede_new_ones() -> None:
    whole = attention(QUERY, KEY, VALUE, head_count=HEADS, has_present=True)
    past = {"past_key": whole.present_key[:, :, :2], "past_value": whole.present_value[:, :, :2]}
    near(attention(QUERY, KEY[:, 2:], VALUE[:, 2:], **past, head_count=HEADS), oracle())
    again = attention(QUERY, KEY[:, 2:], VALUE[:, 2:], **past, head_count=HEADS, has_present=True)
    assert_same_bits(again.present_key, whole.present_key)
    assert_same_bits(again.present_value, whole.present_value)
    near(again.output, oracle())
    assert isinstance(again, dmljax.MultiheadAttention)


def test_present_keys_and_values_include_the_bias() -> None:
    bias = normal(HEADS * (2 * SIZE + 3))
    _, key, value = attention(QUERY, KEY, VALUE, bias=bias, head_count=HEADS, has_present=True)
    of_key, of_value = np.split(bias, [HEADS * SIZE, 2 * HEADS * SIZE])[1:]
    assert_same_bits(np.swapaxes(key, 1, 2).reshape(KEY.shape), KEY + of_key)
    assert_same_bits(np.swapaxes(value, 1, 2).reshape(VALUE.shape), VALUE + of_value)


@GATE
def test_heads_of_queries_may_share_keys() -> None:
    query = normal(BATCH, QUERIES, 6 * SIZE)
    result = grouped(query, KEY, VALUE, query_head_count=6, key_value_head_count=HEADS)
    repeated: Any = (np.repeat(x.reshape(BATCH, KEYS, HEADS, -1), 3, 2).reshape(BATCH, KEYS, -1) for x in (KEY, VALUE))
    near(result, np.asarray(attention(query, *repeated, head_count=6)))
    # A mask may differ between heads that share keys.
    options: Any = {"mask": RNG.random((6, QUERIES, KEYS)) < 0.5, "mask_filter_value": -5.0}
    result = grouped(query, KEY, VALUE, **options, query_head_count=6, key_value_head_count=HEADS)
    near(result, oracle(query=query, **options, heads=6))


LENGTHS = [[0, 0], [2, 4], [3, 1], [4, 3], [5, 9], [-1, -9], [2**31 - 1, -(2**31)]]


@SAMPLED
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("total", [None, 4, 6])
def test_new_keys_are_appended_to_the_existing_ones(lengths: Any, total: int | None) -> None:
    past = {"past_key": normal(BATCH, HEADS, 4, SIZE), "past_value": normal(BATCH, HEADS, 4, 3)}
    options: Any = {**past, "past_sequence_lengths": np.array(lengths, np.int32), "mask_filter_value": -5.0}
    arrays: Any = QUERY, KEY[:, :QUERIES], VALUE[:, :QUERIES]
    size: Any = {"query_head_count": HEADS, "total_sequence_length": total}
    result = grouped(*arrays, **options, **size, has_present=True)
    expected = exact_attention(*arrays, **options, heads=HEADS, key_heads=HEADS, scale=SIZE**-0.5, total=total)
    for actual, exact in zip(result, expected, strict=True):
        near(actual, exact)
    # Lengths, a mask and a bias of positions hide and change keys where they stand in the buffer.
    mask = RNG.integers(1, 5, (1, BATCH)).astype(np.int32)
    relative = normal(BATCH, HEADS, QUERIES, result.present_key.shape[2])
    more: Any = {"mask": mask, "mask_type": MaskType.KEY_SEQUENCE_LENGTH, "relative_position_bias": relative}
    expected = exact_attention(*arrays, **options, **more, heads=HEADS, key_heads=HEADS, scale=SIZE**-0.5, total=total)
    near(grouped(*arrays, **options, **more, **size), expected[0])


@SAMPLED
@pytest.mark.parametrize(
    "dtype", ["uint8", "int32", *(["int64", "uint64"] if jax.config.read("jax_enable_x64") else [])]
)
@GATE
def test_lengths_may_be_of_any_integer_type(dtype: str) -> None:
    most = np.iinfo(dtype).max
    lengths = np.array([1, most], dtype)
    past = {"past_key": normal(BATCH, HEADS, 4, SIZE), "past_value": normal(BATCH, HEADS, 4, 3)}
    size: Any = {**past, "query_head_count": HEADS}
    result = grouped(QUERY, KEY, VALUE, past_sequence_lengths=lengths, **size)
    expected = grouped(QUERY, KEY, VALUE, past_sequence_lengths=np.array([1, 200], np.int32), **size)
    assert_same_bits(result, expected)


def test_single_steps_in_a_loop_equal_causal_attention() -> None:
    count, heads = 6, 4
    arrays: Any = (
        normal(BATCH, count, heads * SIZE),
        normal(BATCH, count, HEADS * SIZE),
        normal(BATCH, count, HEADS * 3),
    )
    size: Any = {"query_head_count": heads, "key_value_head_count": HEADS}
    first: Any = {"past_sequence_lengths": np.zeros(BATCH, np.int32)}
    whole = grouped(*arrays, **first, **size, has_present=True)

    def step(cache: Any, inputs: Any) -> Any:
        place, *position = inputs
        now = grouped(
            *(x[:, None] for x in position),
            past_key=cache[0],
            past_value=cache[1],
            past_sequence_lengths=jnp.full(BATCH, place),
            **size,
            total_sequence_length=count,
            has_present=True,
        )
        return (now.present_key, now.present_value), now.output[:, 0]

    empty = tuple(jnp.zeros((BATCH, HEADS, count, size), np.float32) for size in (SIZE, 3))
    steps = np.arange(count, dtype=np.int32), *(np.swapaxes(x, 0, 1) for x in arrays)
    cache, outputs = jax.lax.scan(step, empty, steps)
    near(np.swapaxes(outputs, 0, 1), np.asarray(whole.output))
    assert_same_trees(cache, (whole.present_key, whole.present_value))


@pytest.mark.parametrize("places", [[3, 0, -1, 2, 5], [7, 4, -3, 4, 9], [1, 2, 3, 0, 1]], ids=str)
@pytest.mark.gate(but=1)
def test_a_tpu_writes_one_key_of_each_sequence_as_others_do(places: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_ROWS_AT_ONCE", 2)
    buffer, new, where = normal(5, HEADS, 4, SIZE), normal(5, HEADS, 1, SIZE), np.array(places, np.int32)
    expected = buffer.copy()
    for row, place in enumerate(places):
        if 0 <= place < 4:
            expected[row, :, place] = new[row, :, 0]
    writes = caches._write_by_slices, caches._write_by_scatter
    for write in writes:
        assert_same_bits(jax.jit(write)(buffer, new, where), expected)
    directions = normal(*buffer.shape), normal(*new.shape)

    def transform(write: Any, buffer: Any, new: Any, directions: Any, where: Any) -> Any:
        placed = functools.partial(write, places=where)
        batch = jnp.stack([new, directions[1]]), jnp.stack([where, where[::-1]])
        tangents, pull = jax.jvp(placed, (buffer, new), directions), jax.vjp(placed, buffer, new)[1]
        return tangents, pull(directions[0]), jax.vmap(write, (None, 0, 0))(buffer, *batch)

    operands = buffer, new, directions, where
    assert_same_trees(*(jax.jit(functools.partial(transform, write))(*operands) for write in writes))


# Blocks


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """When called, makes later calls compute scores in blocks of at most three queries of three heads and 23 keys."""

    def begin() -> None:
        jax.clear_caches()
        monkeypatch.setattr(lowerings, "_MOST_ON_CPU", 3 * 3 * 23)

    yield begin
    jax.clear_caches()


def both_ways(function: Callable[..., Any], in_blocks: Callable[[], None], *arrays: Any) -> Iterator[tuple[Any, Any]]:
    """The results of `function` at once and in blocks, leaf by leaf."""
    whole = jax.jit(function)(*arrays)
    in_blocks()
    blocks = jax.jit(lambda *operands: function(*operands))(*arrays)
    return zip(jax.tree.leaves(whole), jax.tree.leaves(blocks), strict=True)


LEADING = (2, 2, 3)  # batches, heads of keys, and heads of queries that share them
SHARED = (2, 2, 1)


def rows_of(*numbers: int) -> Any:
    return jnp.array(numbers, np.int32).reshape(-1, 1, 1, 1, 1)


MASKS: dict[str, Callable[[int, int], tuple[tuple[int, ...] | None, Mask]]] = {
    "none": lambda queries, keys: (None, Mask()),
    "a bias": lambda queries, keys: ((1, 2, 1, queries, keys), Mask()),
    "a bias of keys": lambda queries, keys: ((2, 1, 1, 1, keys), Mask()),
    "positions": lambda queries, keys: (
        (2, 2, 3, queries, keys),
        Mask(jnp.float32(-2), jnp.asarray(RNG.random((2, 1, 1, queries, keys)) < 0.5)),
    ),
    "bounds": lambda queries, keys: (None, Mask(jnp.float32(-INF), None, rows_of(1, 3), rows_of(5, 9))),
    "causal": lambda queries, keys: (
        None,
        Mask(jnp.float32(-INF), None, None, jnp.arange(1, queries + 1, dtype=np.int32).reshape(1, 1, 1, queries, 1)),
    ),
}


def derivatives(mask: Mask, past: int) -> Callable[..., Any]:
    """Attention, its tangents, slopes and their tangents, with past keys as separate arrays."""

    def every(floats: Any, tangents: Any) -> Any:
        def result(query: Any, key: Any, value: Any, scale: Any, bias: Any = None) -> Any:
            keys, values = ([x[..., :past, :], x[..., past:, :]] if past else [x] for x in (key, value))
            return lowerings.attention(query, keys, values, scale, bias, mask, precision=None)

        def grads(*floats: Any) -> Any:
            return jax.grad(lambda *x: jnp.sum(jnp.sin(result(*x))), tuple(range(len(floats))))(*floats)

        return jax.jvp(result, floats, tangents), jax.jvp(grads, floats, tangents)

    return every


def check_both_ways(name: str, begin: Callable[[], None], queries: int, keys: int, past: int) -> None:
    shape, mask = MASKS[name](queries, keys)
    query, key, value = normal(*LEADING, queries, 4), normal(*SHARED, keys, 4), normal(*SHARED, keys, 3)
    floats = query, key, value, np.float32(0.3), *([] if shape is None else [normal(*shape)])
    tangents = tuple(normal(*np.shape(x)) for x in floats)
    for whole, other in both_ways(derivatives(mask, past), begin, floats, tangents):
        np.testing.assert_allclose(other, whole, rtol=1e-4, atol=2e-5 * float(np.abs(whole).max()) + 1e-6)


@FULL
@pytest.mark.parametrize("queries", [1, 10, 13])
@pytest.mark.parametrize("name", MASKS)
def test_attention_in_blocks_and_its_derivatives_equal_the_direct_computation(
    name: str, queries: int, in_blocks: Callable[[], None]
) -> None:
    check_both_ways(name, in_blocks, queries, keys=23, past=0)


def test_a_bias_and_a_mask_of_fewer_dimensions_broadcast_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowerings, "_MOST_ON_CPU", 7)  # one query of a head at once
    query, key, value, bias = normal(2, 3, 5, 4), normal(2, 3, 7, 4), normal(2, 3, 7, 2), normal(7)
    is_seen, begin = RNG.random((5, 7)) < 0.5, np.int32(2)

    @jax.jit
    def result(bias: Any, is_seen: Any, begin: Any) -> Any:
        mask = Mask(jnp.float32(-2), is_seen, begin)
        return lowerings.attention(query, [key], [value], jnp.float32(1), bias, mask, precision=None)

    scores = query @ np.swapaxes(key, -1, -2) + bias + np.where(is_seen & (np.arange(7) >= begin), 0, -2)
    probs = np.exp(scores)
    exact = probs / probs.sum(-1, keepdims=True) @ value
    np.testing.assert_allclose(result(bias, is_seen, begin), exact, rtol=1e-5, atol=1e-5)


@FULL
def test_nan_and_infinity_in_blocks_equal_the_direct_computation(in_blocks: Callable[[], None]) -> None:
    query, key, value = normal(6, 5, 4), normal(6, 21, 4), normal(6, 21, 3)
    key[0, 3, 0], key[1, 20, 1], query[2, 1, 1] = NAN, INF, -INF
    value[3, 2, 0], value[4, 15] = INF, NAN

    def result(query: Any, key: Any, value: Any) -> Any:
        return lowerings.attention(query, [key], [value], jnp.float32(1), precision=None)

    ((whole, blocks),) = both_ways(result, in_blocks, query, key, value)
    np.testing.assert_allclose(blocks, whole, rtol=1e-5, atol=1e-6)
    assert np.isfinite(blocks[5]).all()


@FULL
def test_large_score_matrices_are_never_materialized() -> None:
    # 16 heads of 4,096 positions have a gibibyte of scores.
    x = jax.ShapeDtypeStruct((1, 4096, 16 * 64), np.float32)
    lengths = jax.ShapeDtypeStruct((1,), np.int32)

    def attended(x: Any, lengths: Any) -> Any:
        return grouped(x, x, x, past_sequence_lengths=lengths, query_head_count=16)

    grads = jax.grad(lambda x, lengths: jnp.sum(attended(x, lengths)))
    for function, most in ((attended, 160), (grads, 224)):
        analysis: Any = jax.jit(function).lower(x, lengths).compile().memory_analysis()
        assert analysis.temp_size_in_bytes < most * 2**20


# Platforms other than a CPU


def lowered_text(
    platform: str,
    *shapes: tuple[int, ...],
    dtype: Any = np.float32,
    derive: Any = lambda attended: attended,
    **options: Any,
) -> str:
    """The text that attention lowers to; `shapes` are the batches and positions of queries and of keys."""
    arrays = [jax.ShapeDtypeStruct((*shape, 12 * 64), dtype) for shape in (*shapes, shapes[-1])]
    traced = jax.jit(derive(lambda *arrays: attention(*arrays, head_count=12, **options))).trace(*arrays)
    return str(traced.lower(lowering_platforms=(platform,)).as_text())


@SAMPLED
@pytest.mark.parametrize(
    ("positions", "platform", "is_loop"),
    [(512, "cpu", True), (4096, "cuda", False), (4096, "tpu", False), (16384, "cuda", True)],
)
def test_accelerators_compute_only_large_scores_in_a_loop(positions: int, platform: str, is_loop: bool) -> None:
    text = lowered_text(platform, (1, positions), (1, positions), precision="highest")
    assert ("stablehlo.while" in text) is is_loop


KERNELS = {"cuda": "__gpu$xla.gpu.triton", "tpu": "tpu_custom_call", "cpu": "custom_call"}


@SAMPLED
@pytest.mark.parametrize(
    ("change", "having_kernels"),
    [
        ({}, ("cuda", "tpu")),
        ({"dtype": jnp.bfloat16, "precision": "highest"}, ("cuda", "tpu")),
        ({"is_causal": True}, ("cuda", "tpu")),
        ({"precision": "highest"}, ()),  # kernels round float32, as JAX does by default
        ({"shapes": ((2, 1), (2, 512))}, ("cuda",)),  # in shares of the keys
        ({"shapes": ((2, 1), (2, 255))}, ()),
        ({"shapes": ((2, 512), (2, 64))}, ()),
    ],
    ids=str,
)
@pytest.mark.parametrize("platform", KERNELS)
def test_a_kernel_computes_what_fits_it(platform: str, change: Any, having_kernels: tuple[str, ...]) -> None:
    options = {"shapes": ((2, 512), (2, 512))} | change
    text = lowered_text(platform, *options.pop("shapes"), **options)
    assert (KERNELS[platform] in text) is (platform in having_kernels)


def test_an_old_gpu_computes_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(compute_capability="7.5")])
    assert KERNELS["cuda"] not in lowered_text("cuda", (2, 512), (2, 512))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.gate(but=1)
def test_kernels_compute_the_gradients(platform: str) -> None:
    def derive(attended: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda *arrays: jnp.sum(attended(*arrays)), (0, 1, 2))

    text = lowered_text(platform, (2, 512), (2, 512), derive=derive)
    assert text.count(KERNELS[platform]) == 3


@FULL
@pytest.mark.parametrize("name", MASKS)
def test_accelerators_compute_what_a_cpu_computes(name: str, lower_for: Callable[[str], None]) -> None:
    check_both_ways(name, lambda: lower_for("gpu"), queries=5, keys=11, past=4)


@GATE
def test_derivatives_on_a_cpu_store_no_scores_from_the_accelerator_path() -> None:
    x = normal(1, 2048, 4)
    _, pull = jax.vjp(lambda x: attention(x, x, x, head_count=2), x)
    assert max(leaf.size for leaf in jax.tree.leaves(pull)) < 2 * 2048**2


# Meshes


@FULL
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
@pytest.mark.parametrize("queries", [8, 256])
def test_batches_and_heads_on_a_mesh_stay_where_they_are(axis_type: AxisType, queries: int) -> None:
    mesh = mesh_of(axis_type, batch=2, heads=4)
    query, key, value = (
        normal(4, queries, 16 * 4) for _ in range(3)
    )  # with 256 queries, more scores than are computed at once
    relative, lengths = normal(1, 16, queries, queries), np.arange(4, dtype=np.int32)
    past = normal(4, 16, 2, 4)
    spec = P("batch", None, "heads")
    given = [
        *((x, spec) for x in (query, key, value)),
        *((past, P("batch", "heads")),) * 2,
        (lengths, P("batch")),
        (np.pad(relative, [(0, 0), (0, 0), (0, 0), (0, 2)]), P(None, "heads")),
    ]

    def attended(*arrays: Any) -> Any:
        past = ("past_key", "past_value", "past_sequence_lengths")
        names = ("query", "key", "value", *past, "relative_position_bias")
        return grouped(**dict(zip(names, arrays, strict=True)), query_head_count=16, has_present=True)

    sharded = [jax.device_put(x, NamedSharding(mesh, sharding)) for x, sharding in given]
    compiled = jax.jit(attended).lower(*sharded).compile()
    assert collectives(compiled) == []
    results, expected = compiled(*sharded), attended(*(x for x, _ in given))
    for leaf, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-5)
    assert [result.sharding.spec[0] for result in results] == ["batch"] * 3


# Rings of devices


ROUND = {"query_head_count": 4, "key_value_head_count": 2}
RING_KINDS: dict[str, dict[str, Any]] = {
    "plain": {"scale": np.float32(0.4)},
    "causal": {"is_causal": True, "mask_filter_value": -INF},
    "a mask and a bias": {
        "mask": RNG.random((2, 1, 16, 24)) < 0.6,
        "relative_position_bias": normal(4, 16, 24),
    },
    "lengths": {"mask": np.array([20, 7], np.int32), "mask_type": MaskType.KEY_SEQUENCE_LENGTH},
    "biases": {"bias": normal(4 * 4 + 2 * 4 + 2 * 3), "is_causal": True},
}


def in_ring(mesh: Any, kind: str, **options: Any) -> Callable[..., Any]:
    """The attention of `kind` to a sequence divided over devices, as a function of the whole arrays."""
    sequence, along_queries = P(None, "sequence"), P(None, None, "sequence")
    specs = {"mask": along_queries, "relative_position_bias": P(None, "sequence"), "query": sequence}
    specs |= dict.fromkeys(("key", "value"), sequence)
    statics = {
        name: value for name, value in RING_KINDS[kind].items() if not isinstance(value, np.ndarray | np.generic)
    }

    def whole(arrays: Any) -> Any:
        function = functools.partial(grouped, **ROUND, **statics, axis_name="sequence")
        sharding = {name: specs.get(name, P()) if x.ndim > 1 else P() for name, x in arrays.items()}
        mapped = jax.shard_map(
            lambda operands: function(**operands), mesh=mesh, in_specs=(sharding,), out_specs=sequence, **options
        )
        placed = {name: jax.device_put(x, NamedSharding(mesh, sharding[name])) for name, x in arrays.items()}
        return mapped(placed)

    return whole


def arrays_of(kind: str, dtype: Any = np.float32) -> tuple[dict[str, Any], Any]:
    """The arrays of an attention of `kind`, and its function on one device."""
    operands = {name: value for name, value in RING_KINDS[kind].items() if isinstance(value, np.ndarray | np.generic)}
    floats = {"query": normal(2, 16, 16), "key": normal(2, 24, 8), "value": normal(2, 24, 6)}
    arrays = {
        name: jnp.asarray(x.astype(dtype) if x.dtype == np.float32 else x) for name, x in (operands | floats).items()
    }
    statics = {name: value for name, value in RING_KINDS[kind].items() if name not in operands}
    return arrays, lambda arrays: grouped(**arrays, **ROUND, **statics)


def grads_of(function: Callable[..., Any], arrays: Any) -> Any:
    floats = {name: x for name, x in arrays.items() if jnp.issubdtype(x.dtype, jnp.floating)}
    weights = jnp.cos(jnp.arange(2 * 16 * 12, dtype=np.float32)).reshape(2, 16, 12)
    return jax.grad(lambda floats: jnp.sum(function(arrays | floats).astype(np.float32) * weights))(floats)


@SAMPLED
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
@pytest.mark.parametrize("kind", RING_KINDS)
@GATE
def test_a_ring_of_devices_computes_what_one_device_does(kind: str, axis_type: AxisType) -> None:
    arrays, one_device = arrays_of(kind)
    ring = in_ring(mesh_of(axis_type, sequence=8), kind)
    np.testing.assert_allclose(jax.jit(ring)(arrays), one_device(arrays), rtol=2e-6, atol=2e-6)
    grads, expected = (jax.jit(functools.partial(grads_of, attend))(arrays) for attend in (ring, one_device))
    for name, exact in expected.items():
        np.testing.assert_allclose(grads[name], exact, rtol=1e-5, atol=1e-5, err_msg=name)


@FULL
def test_a_ring_rounds_16_bits_once() -> None:
    arrays, one_device = arrays_of("plain", jnp.bfloat16)
    ring = in_ring(mesh_of(AxisType.Auto, sequence=8), "plain")
    whole: Any = {"result": one_device(arrays)} | grads_of(one_device, arrays)
    parts: Any = {"result": jax.jit(ring)(arrays)} | jax.jit(functools.partial(grads_of, ring))(arrays)
    for name, one in whole.items():
        assert parts[name].dtype == one.dtype == jnp.bfloat16
        parted, one = parts[name].astype(np.float32), one.astype(np.float32)
        np.testing.assert_allclose(parted, one, rtol=2**-7, atol=2**-8 * float(jnp.max(jnp.abs(one))))


@GATE
def test_a_ring_sums_derivatives_in_32_bits() -> None:
    # Each of seven devices adds so little to 1/8 that bfloat16 would drop it.
    mesh, blocks = mesh_of(AxisType.Auto, sequence=8), P(None, "sequence")
    attended = functools.partial(attention, head_count=1, axis_name="sequence")
    ring = jax.shard_map(attended, mesh=mesh, in_specs=(blocks,) * 3, out_specs=blocks)
    x = jax.device_put(jnp.zeros((1, 8, 1), jnp.bfloat16), NamedSharding(mesh, blocks))
    _, pulled = jax.vjp(jax.jit(lambda value: ring(x, x, value)), x)
    grads = jax.device_put(jnp.asarray([[[1]] + [[2**-9]] * 7], jnp.bfloat16), x.sharding)
    expected = np.float32((1 + 7 * 2**-9) / 8).astype(jnp.bfloat16)
    assert_same_bits(pulled(grads)[0], np.full((1, 8, 1), expected))


@GATE
def test_a_ring_exchanges_only_its_keys_and_values() -> None:
    arrays, _ = arrays_of("causal")
    ring = in_ring(mesh_of(AxisType.Auto, sequence=8), "causal")
    names = {name for name, _ in collectives(jax.jit(functools.partial(grads_of, ring)).lower(arrays).compile())}
    assert names == {"collective-permute"}
    forward = collectives(jax.jit(ring).lower(arrays).compile())
    assert sum(size for _, size in forward) == (arrays["key"].nbytes + arrays["value"].nbytes) // 8


@GATE
def test_a_ring_needs_as_much_memory_as_blocks() -> None:
    # 8 heads of 16,384 positions have 8 GiB of scores; each device has 128 MiB, for its block and another.
    x = jax.ShapeDtypeStruct((1, 16384, 8 * 16), np.float32)
    attended = functools.partial(attention, head_count=8, is_causal=True, axis_name="sequence")
    sequence = P(None, "sequence")
    mesh = mesh_of(AxisType.Auto, sequence=8)
    ring = jax.shard_map(lambda x: attended(x, x, x), mesh=mesh, in_specs=sequence, out_specs=sequence)
    grads = jax.jit(jax.grad(lambda x: jnp.sum(ring(x) ** 2)), in_shardings=NamedSharding(mesh, sequence))
    analysis: Any = grads.lower(x).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 96 * 2**20


@FULL
def test_a_ring_combines_with_a_sharded_batch() -> None:
    # One axis of the mesh is the ring's; JAX handles the other.
    arrays, one_device = arrays_of("causal")
    for axis_type in (AxisType.Explicit, AxisType.Auto):
        mesh = mesh_of(axis_type, batch=2, sequence=4)
        ring = in_ring(mesh, "causal", axis_names={"sequence"})
        with jax.set_mesh(mesh):
            result = jax.jit(ring)(arrays)
        np.testing.assert_allclose(result, one_device(arrays), rtol=2e-6, atol=2e-6)


@FULL
def test_a_ring_computes_large_blocks_in_parts(in_blocks: Callable[[], None]) -> None:
    arrays, one_device = arrays_of("a mask and a bias")
    expected = grads_of(one_device, arrays)
    in_blocks()
    ring = in_ring(mesh_of(AxisType.Auto, sequence=2), "a mask and a bias")
    for name, grad in jax.jit(functools.partial(grads_of, ring))(arrays).items():
        np.testing.assert_allclose(grad, expected[name], rtol=1e-5, atol=1e-5, err_msg=name)


@GATE
def test_a_query_in_a_ring_that_sees_no_key_is_nan_as_on_one_device() -> None:
    is_seen = np.ones((16, 24), bool)
    is_seen[3], is_seen[4, :20] = False, False
    arrays, _ = arrays_of("plain")
    arrays = {name: arrays[name] for name in ("query", "key", "value")} | {"mask": jnp.asarray(is_seen)[None, None]}
    mesh = mesh_of(AxisType.Auto, sequence=8)
    ring = in_ring(mesh, "plain")
    result = jax.jit(ring)(arrays | {"mask_filter_value": jnp.float32(-INF)})
    assert np.isnan(result[:, 3]).all()
    expected = grouped(**arrays, **ROUND, mask_filter_value=-INF)
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "axis_name must be a manual axis of the mesh; got ring (call the function inside jax.shard_map"),
        ({"axis_name": ("a", "b")}, "axis_name must be the name of an axis of a mesh; got ('a', 'b')"),
        ({"has_present": True}, "axis_name must not be given with has_present"),
        ({"past_key": normal(2, 2, 1, 4), "past_value": normal(2, 2, 1, 3)}, "must not be given with past_key"),
    ],
)
def test_an_impossible_ring_is_refused(changed: dict[str, Any], message: str) -> None:
    with refuses(message):
        attended(**{"axis_name": "ring"} | changed)


def test_causal_attention_equals_attention_with_a_band_mask() -> None:
    past = {"past_key": normal(2, 2, 2, 4), "past_value": normal(2, 2, 2, 3)}
    band = np.tri(QUERIES, 2 + KEYS, 2, dtype=bool)
    assert_same_bits(attended(**past, is_causal=True), attended(**past, mask=band))


# Descriptors


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"query": f32(1, 1, 2, 3, 8), "key": f32(1, 2, 5, 8)},
        oracles.MASK,
        {"mask": tensor("INT32", 1, 1, 1, 1, 2), "mask_type": MaskType.KEY_SEQUENCE_LENGTH},
        {"mask": tensor("INT32", 2), "mask_type": MaskType.KEY_SEQUENCE_LENGTH},
        {"mask": tensor("INT32", 2, 2), "mask_type": MaskType.KEY_SEQUENCE_END_START},
        {"mask": tensor("INT32", 1, 8), "mask_type": MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END},
        {"bias": f32(1, 22), "relative_position_bias": f32(1, 2, 2, 3, 5), "output_present_value": f32(2, 2, 5, 3)},
        {**oracles.PAST_TENSORS, "output_present_key": f32(2, 2, 9, 4)},
        {**oracles.PAST_TENSORS, "key": None, "value": None, "output_present_key": f32(2, 2, 4, 4)},
        {
            **oracles.PAST_TENSORS,
            **oracles.GROUPED,
            "output_present_key": f32(2, 2, 4, 4),
            "output_present_value": f32(2, 2, 4, 3),
        },
        {**oracles.GROUPED, "output_present_key": f32(2, 2, 16, 4), "output_present_value": f32(2, 2, 16, 3)},
        {**oracles.PAST_TENSORS, **oracles.GROUPED, "past_sequence_lengths": tensor("INT32", 1, 2)},
    ],
    ids=str,
)
def test_every_form_of_descriptor_computes_the_pages_formula(changed: Any) -> None:
    desc = oracles.small_desc(changed)
    case = oracles.CASES[type(desc).short_name]
    inputs = case.inputs(desc, np.random.default_rng(0))
    case.check(desc, inputs, directml.lower(desc)(*inputs.values()))


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 3, 3), (1, 0, 3), (0, 0, 3)])
@pytest.mark.gate(but=1)
def test_attention_accepts_empty_batches_queries_and_keys(batch: int, queries: int, keys: int) -> None:
    query, key = np.ones((batch, queries, 4), np.float32), np.ones((batch, keys, 4), np.float32)
    attend = lambda q, k, v: dmljax.multihead_attention(q, k, v, head_count=2, scale=1.0)  # noqa: E731
    gradient = jax.grad(lambda *x: jax.tree.leaves(attend(*x))[0].sum())(query, key, key)
    assert jax.tree.leaves(attend(query, key, key))[0].shape == (batch, queries, 4)
    assert gradient.shape == query.shape
