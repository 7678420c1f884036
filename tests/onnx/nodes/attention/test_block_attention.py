"""Attention to keys in blocks, beside ONNX Runtime and beside NumPy where its CPU has no kernel."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from helpers import GATE, SAMPLED
from onnx_models import one_node

import dmljax.onnx
from dmljax import DmlError
from dmljax.directml import Unsupported

RNG = np.random.default_rng(5)
HEADS, KEY_HEADS, SIZE = 4, 2, 16


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(*numbers: Any) -> Any:
    return np.array(numbers, np.int32)


def run(model: Any, arrays: list[Any]) -> list[Any]:
    return [*dmljax.onnx.load(model)(*arrays)]


# SparseAttention

# Two layouts of 4 x 4 blocks, as ONNX Runtime documents them
STARTS = integers([0, 1, 3, 5, 8], [0, 1, 3, 6, 9])
COLUMNS = integers([0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3])
ANGLES = RNG.uniform(-3, 3, (64, SIZE // 2))
TABLES = [np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)]
SPARSE: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "sparse_block_size": 16}


def sparse(queries: int, lengths: list[int], *, packed: bool = False, tables: Any = ()) -> list[Any]:
    batch = len(lengths)
    sizes = [(HEADS + 2 * KEY_HEADS) * SIZE] if packed else [HEADS * SIZE, KEY_HEADS * SIZE, KEY_HEADS * SIZE]
    new = [floats(batch, queries, size) for size in sizes] + [None] * (3 - len(sizes))
    buffers = [floats(batch, KEY_HEADS, 64, SIZE) for _ in range(2)]
    return [*new, *buffers, STARTS, COLUMNS, np.array([max(lengths)], np.int32), integers(*lengths), *tables]


MASK = np.zeros((2, 4, 4), bool)
MASK[0][[0, 1, 1, 2, 2, 3, 3, 3], [0, 0, 1, 1, 2, 1, 2, 3]] = True
MASK[1][[0, 1, 1, 2, 2, 2, 3, 3, 3], [0, 0, 1, 0, 1, 2, 0, 2, 3]] = True


def by_onnxruntime_in_place(model: Any, arrays: list[Any]) -> list[Any]:
    """The results of ONNX Runtime, with caches that inputs and outputs share, as it demands."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names, outputs = ([x.name for x in some] for some in (session.get_inputs(), session.get_outputs()))
    present = [x for x in arrays if x is not None]
    values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()) for n, x in zip(names, present, strict=True)}
    binding = session.io_binding()
    for name, x in values.items():
        binding.bind_ortvalue_input(name, x)
    binding.bind_output(outputs[0])
    pasts = [name for name, x in zip(names, present, strict=True) if x.shape[1:3] == (KEY_HEADS, 64)]
    for name, past in zip(outputs[1:], pasts, strict=True):
        binding.bind_ortvalue_output(name, values[past])
    session.run_with_iobinding(binding)
    return list(binding.copy_outputs_to_cpu())


@SAMPLED
@pytest.mark.parametrize(
    ("arrays", "attributes"),
    [
        (sparse(50, [50, 50]), {}),
        (sparse(50, [50, 50], tables=TABLES), {"do_rotary": 1}),
        (sparse(1, [60, 60], tables=TABLES), {"do_rotary": 1, "rotary_interleaved": 1}),
        (sparse(1, [64, 64], packed=True), {"scale": 0.5}),
    ],
)
@GATE
def test_queries_see_the_blocks_of_their_layout_as_in_onnxruntime(arrays: Any, attributes: Any) -> None:
    model = one_node("SparseAttention", arrays, 3, **SPARSE, **attributes)
    actual = run(model, [array for array in arrays if array is not None])
    other = by_onnxruntime_in_place(model, arrays)
    np.testing.assert_allclose(actual[0], other[0], rtol=1e-4, atol=1e-5)
    for present, expected in zip(actual[1:], other[1:], strict=True):
        length = arrays[8][0]
        np.testing.assert_allclose(present[:, :, :length], expected[:, :, :length], rtol=1e-5, atol=1e-5)


def mean(query: Any, keys: Any, values: Any, *, softcap: float = 0.0, sink: float | None = None) -> Any:
    """The mean of values for a query, by the softmax of its products with the keys."""
    scores = keys @ query / 4
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    powers = np.exp(scores)
    return powers @ values / (powers.sum() + (0 if sink is None else np.exp(sink)))


@pytest.mark.parametrize(("queries", "lengths"), [(50, [50, 37]), (1, [60, 35])])
@pytest.mark.gate(but=1)
def test_sequences_of_a_sparse_batch_may_differ_in_length(queries: int, lengths: list[int]) -> None:
    # ONNX Runtime 1.32 gives the shorter ones other results than its documentation says.
    arrays = sparse(queries, lengths)
    outputs = run(one_node("SparseAttention", arrays, 3, **SPARSE), arrays)
    for i, length in enumerate(lengths):
        keys, values = (np.asarray(x[i]) for x in outputs[1:])
        past = max(length - queries, 0)
        for head in range(HEADS):
            for step in range(min(queries, length)):
                place = past + step
                visible = [k for k in range(place + 1) if MASK[head % 2, place // 16, k // 16]]
                query = arrays[0][i, step].reshape(HEADS, SIZE)[head]
                expected = mean(query, keys[head // 2, visible], values[head // 2, visible])
                actual = outputs[0][i, step].reshape(HEADS, SIZE)[head]
                np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_layouts_must_divide_the_heads() -> None:
    arrays = sparse(1, [60, 60])
    model = one_node("SparseAttention", arrays, 3, **{**SPARSE, "num_heads": 3, "kv_num_heads": 1})
    with pytest.raises(DmlError, match="num_heads must be divisible by 2, the number of layouts; got 3"):
        run(model, arrays)


# PagedAttention

BLOCK = 8
PAGED: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS}
COUNTS, PASTS = [1, 0, 5], [9, 3, 6]
TABLE = integers([4, 1, -1], [2, -1, -1], [0, 5, -1])


def paged(**others: Any) -> list[Any]:
    """Inputs of three sequences, of which one has no new token; NaN where no sequence has written a key."""
    tokens = sum(COUNTS)
    new = [floats(tokens, heads * SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    caches = [np.full((6, BLOCK, KEY_HEADS, SIZE), np.nan, np.float32) for _ in range(2)]
    for past, row in zip(PASTS, TABLE, strict=True):
        for place in range(past):
            for cache in caches:
                cache[row[place // BLOCK], place % BLOCK] = floats(KEY_HEADS, SIZE)
    starts = np.cumsum([0, *COUNTS]).astype(np.int32)
    arrays = [*new, *caches, starts, integers(*PASTS), TABLE, *[None] * 6]
    for place, name in enumerate(("cosines", "sines", "slots", "sink", "q_norm", "k_norm")):
        arrays[8 + place] = others.get(name)
    return arrays


def rotated(x: Any, place: int) -> Any:
    cosines, sines, (first, second) = TABLES[0][place], TABLES[1][place], np.split(x, 2, -1)
    return np.concatenate([first * cosines - second * sines, first * sines + second * cosines], -1)


def normal(x: Any, weight: Any) -> Any:
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-6) * weight


def by_pages(arrays: list[Any], *, width: int = 64, is_causal: bool = True, softcap: float = 0.0) -> list[Any]:
    query, key, value, *caches, starts, pasts, table = arrays[:8]
    cosines, _, slots, sink, *norms = arrays[8:]
    keys, values = (x.copy() for x in caches)
    query, key, value = (x.reshape(len(x), -1, SIZE) for x in (query, key, value))
    if norms[0] is not None:
        query, key = normal(query, norms[0]), normal(key, norms[1])
    output = np.zeros_like(query)
    queries = {}
    for i, row in enumerate(table):
        for token in range(starts[i], starts[i + 1]):
            place = pasts[i] + token - starts[i]
            turn = (lambda x, place=place: x) if cosines is None else (lambda x, place=place: rotated(x, place))
            queries[token] = turn(query[token])
            slot = row[place // BLOCK] * BLOCK + place % BLOCK if slots is None else slots[token]
            if slot >= 0:
                keys.reshape(-1, KEY_HEADS, SIZE)[slot] = turn(key[token])
                values.reshape(-1, KEY_HEADS, SIZE)[slot] = value[token]
    for i, row in enumerate(table):
        end = pasts[i] + starts[i + 1] - starts[i]
        for token in range(starts[i], starts[i + 1]):
            place = pasts[i] + token - starts[i]
            visible = range(max(place - width + 1, 0), place + 1 if is_causal else end)
            places = [(row[k // BLOCK], k % BLOCK) for k in visible]
            for head in range(HEADS):
                of_head = [np.stack([x[block, k, head // 2] for block, k in places]) for x in (keys, values)]
                share = None if sink is None else sink[head]
                output[token, head] = mean(queries[token][head], *of_head, softcap=softcap, sink=share)
    return [output.reshape(len(output), -1), keys, values]


NORMS = {"q_norm": floats(SIZE), "k_norm": floats(SIZE)}


@SAMPLED
@pytest.mark.parametrize(
    ("arrays", "attributes", "options"),
    [
        (paged(), {}, {}),
        (paged(cosines=TABLES[0], sines=TABLES[1], **NORMS), {"do_rotary": 1}, {}),
        (paged(), {"local_window_size": 3}, {"width": 3}),
        (paged(), {"is_causal": 0}, {"is_causal": False}),
        (paged(sink=floats(HEADS)), {"softcap": 2.0}, {"softcap": 2.0}),
        (paged(slots=integers(9, 6, 7, 40, 41, 42)), {}, {}),
    ],
)
def test_sequences_attend_to_their_pages(arrays: Any, attributes: Any, options: Any) -> None:
    present = [array for array in arrays if array is not None]
    outputs = run(one_node("PagedAttention", arrays, 3, **PAGED, **attributes), present)
    for actual, expected in zip(outputs, by_pages(arrays, **options), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@GATE
def test_tokens_without_a_slot_are_not_kept() -> None:
    arrays = paged(slots=integers(9, 6, 7, 40, 41, -1))
    present = [array for array in arrays if array is not None]
    _, keys, _ = run(one_node("PagedAttention", arrays, 3, **PAGED), present)
    expected = arrays[3].copy().reshape(-1, KEY_HEADS, SIZE)
    expected[[9, 6, 7, 40, 41]] = arrays[1][:5].reshape(-1, KEY_HEADS, SIZE)
    np.testing.assert_array_equal(keys.reshape(expected.shape), expected)


@GATE
def test_packed_tokens_attend_as_padded_ones() -> None:
    arrays = paged()
    actual = run(one_node("PagedAttention", arrays, 3, **PAGED), arrays[:8])
    packed = [np.concatenate(arrays[:3], 1), None, None, *arrays[3:8]]
    other = run(one_node("PagedAttention", packed, 3, **PAGED), [array for array in packed if array is not None])
    np.testing.assert_allclose(other[0], actual[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"kv_cache_layout": "LATENT"}, "kv_cache_layout must be SEPARATE; others are not supported; got LATENT"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type: not supported; got PER_TENSOR"),
        ({"rotary_offset": 8}, "rotary_offset: not supported; got 8"),
        ({"v_cache_dtype": "int4"}, "v_cache_dtype must be float32, the type of the cache; got int4"),
    ],
)
def test_other_kinds_of_pages_are_refused(attributes: Any, message: str) -> None:
    arrays = paged()
    with pytest.raises(Unsupported, match=message):
        run(one_node("PagedAttention", arrays, 3, **PAGED, **attributes), arrays[:8])
