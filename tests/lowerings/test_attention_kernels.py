"""Kernels of attention for GPUs and TPUs, in Pallas's interpreter on this CPU."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL, GATE, SAMPLED, collectives, few_of, mesh_of
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import dmljax
from dmljax.lowerings.attention import dot_product as lowerings
from dmljax.lowerings.kernels import attention as attention_kernels

RNG = np.random.default_rng(13)
CHIPS = ("gpu", "tpu")

# Accept any arguments, which a type checker does not follow through dictionaries.
ungrouped: Any = dmljax.multihead_attention
grouped: Any = dmljax.multihead_attention1


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return jnp.asarray(RNG.normal(size=shape), dtype)


@pytest.fixture
def kernels_for(monkeypatch: pytest.MonkeyPatch, lower_for: Callable[[str], None]) -> Callable[[str], None]:
    """When called, makes later calls use the kernels of a chip, for any number of positions."""

    def begin(chip: str) -> None:
        monkeypatch.setattr(lowerings, "_FEWEST_IN_KERNELS", 1)
        lower_for(chip)

    return begin


def coarse(*shape: int, dtype: Any = np.float32) -> Any:
    """Multiples of a quarter, whose products with a power of two are exact, also when they are added to 10,000."""
    return jnp.round(normal(*shape) * 4).astype(dtype) / jnp.asarray(4, dtype)


def agree(actual: Any, expected: Any, dtype: Any) -> None:
    unit = float(jnp.finfo(dtype).eps)
    for (path, leaf), other in zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(actual), strict=True):
        assert leaf.dtype == other.dtype
        assert leaf.shape == other.shape
        leaf, other = (np.asarray(x, np.float64) for x in (leaf, other))
        most = float(np.abs(leaf[np.isfinite(leaf)]).max(initial=1.0))
        most *= 1 if leaf.ndim else 4  # a number is a sum over everything
        np.testing.assert_allclose(other, leaf, rtol=0, atol=64 * unit * most, err_msg=jax.tree_util.keystr(path))


BATCH, HEADS, KEY_HEADS, QUERIES, KEYS = 2, 4, 2, 140, 150  # no block divides the positions
KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "causal": lambda: {"is_causal": True},
    "lengths": lambda: {"mask": np.array([KEYS - 9, 3], np.int32), "mask_type": "key_sequence_length"},
    "no key": lambda: {"mask": np.array([0, KEYS], np.int32), "mask_type": "key_sequence_length", "is_causal": True},
    "weak": lambda: {
        "mask": np.array([0, 20], np.int32),
        "mask_type": "key_sequence_length",
        "mask_filter_value": -3.0,
    },
    "bounds": lambda: {"mask": np.array([[99, KEYS], [2, 130]], np.int32), "mask_type": "key_sequence_end_start"},
    "positions": lambda: {"mask": RNG.random((BATCH, 1, QUERIES, KEYS)) < 0.6},
    "few keys": lambda: {
        "mask": np.array([KEYS - 9, 3], np.int32),
        "mask_type": "key_sequence_length",
        "mask_filter_value": -np.inf,
    },
    "infinity": lambda: {"mask": RNG.random((HEADS, 1, KEYS)) < 0.6, "mask_filter_value": -np.inf},
    "a bias": lambda: {"relative_position_bias": normal(HEADS, QUERIES, KEYS), "is_causal": True},
    "a bias of keys": lambda: {"relative_position_bias": normal(BATCH, 1, 1, KEYS)},
}
CASES = [
    *((chip, kind, 80, "float32") for chip in CHIPS for kind in KINDS),
    *((chip, "causal", size, dtype) for chip in CHIPS for size in (64, 128, 256) for dtype in ("float16", "bfloat16")),
]


def value_and_grads(function: Callable[..., Any], *arrays: Any) -> Any:
    """The result of a function of arrays, and the derivatives of a sum of it."""

    def summed(*arrays: Any) -> Any:
        result = function(*arrays)
        return jnp.sum(jnp.sin(result.astype(np.float32))), result

    (_, result), grads = jax.value_and_grad(summed, tuple(range(len(arrays))), has_aux=True)(*arrays)
    return result, grads


@SAMPLED
@pytest.mark.parametrize(
    "case", few_of(CASES, ("gpu", "causal", 64, "bfloat16"), ("tpu", "no key", 80, "float32")), ids=str
)
@GATE
def test_kernels_compute_what_the_formula_does(case: Any, kernels_for: Callable[[str], None]) -> None:
    chip, kind, size, dtype = case
    options = KINDS[kind]()
    options = {name: x.astype(dtype) if name.endswith("bias") else x for name, x in options.items()}
    shapes = (BATCH, QUERIES, HEADS * size), (BATCH, KEYS, KEY_HEADS * size), (BATCH, KEYS, KEY_HEADS * 48)
    arrays = [*(coarse(*shape, dtype=dtype) for shape in shapes), jnp.float32(0.25)]

    def attended(query: Any, key: Any, value: Any, scale: Any) -> Any:
        heads = {"query_head_count": HEADS, "key_value_head_count": KEY_HEADS}
        return grouped(query, key, value, scale=scale, **options, **heads)

    expected = jax.jit(partial(value_and_grads, attended))(*arrays)
    kernels_for(chip)
    agree(jax.jit(lambda *arrays: value_and_grads(attended, *arrays))(*arrays), expected, jnp.dtype(dtype))


PAIRED = [(kind, dtype) for kind in KINDS for dtype in ("float32", "bfloat16")]


@pytest.mark.parametrize("case", few_of(PAIRED, ("lengths", "bfloat16"), ("a bias", "float32")), ids=str)
@GATE
def test_a_tpu_computes_two_heads_of_64_beside_each_other(case: Any, kernels_for: Callable[[str], None]) -> None:
    kind, dtype = case
    options = KINDS[kind]()
    options = {name: x.astype(dtype) if name.endswith("bias") else x for name, x in options.items()}
    shapes = (BATCH, QUERIES, HEADS * 64), (BATCH, KEYS, HEADS * 64), (BATCH, KEYS, HEADS * 64)
    arrays = [*(coarse(*shape, dtype=dtype) for shape in shapes), jnp.float32(0.125)]

    def attended(query: Any, key: Any, value: Any, scale: Any) -> Any:
        return ungrouped(query, key, value, scale=scale, head_count=HEADS, **options)

    expected = jax.jit(partial(value_and_grads, attended))(*arrays)
    kernels_for("tpu")
    agree(jax.jit(lambda *arrays: value_and_grads(attended, *arrays))(*arrays), expected, jnp.dtype(dtype))


@GATE
def test_the_heads_of_a_pair_do_not_see_each_other(kernels_for: Callable[[str], None]) -> None:
    query, key, value = (normal(1, 16, 2 * 64) for _ in range(3))
    spoiled = [x.at[:, :, 64:].set(np.nan) for x in (query, key, value)]
    kernels_for("tpu")
    program = jax.jit(lambda *arrays: value_and_grads(partial(ungrouped, head_count=2), *arrays))
    for whole, half in zip(*map(jax.tree.leaves, (program(query, key, value), program(*spoiled))), strict=True):
        np.testing.assert_array_equal(half[..., :64], whole[..., :64])
        assert np.isnan(half[..., 64:]).all()


LOWEST = float(np.finfo(np.float32).min)
HIDING: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "a mask": ("float32", lambda keys: {"mask": np.zeros((1, 1, keys), bool), "mask_filter_value": -1e9}),
    "the lowest number": ("float32", lambda keys: {"mask": np.zeros((1, 1, keys), bool), "mask_filter_value": LOWEST}),
    "lengths": (
        "float32",
        lambda keys: {
            "mask": np.zeros(1, np.int32),
            "mask_type": "key_sequence_length",
            "mask_filter_value": -1e9,
        },
    ),
    "a bias": ("float32", lambda keys: {"relative_position_bias": jnp.full((1, 1, 1, keys), LOWEST)}),
    "16 bits": ("bfloat16", lambda keys: {"mask": np.zeros((1, 1, keys), bool), "mask_filter_value": -1e30}),
}
UNSEEN = [(chip, hiding, devices) for chip in CHIPS for hiding in HIDING for devices in (1, 2)]


@pytest.mark.parametrize(
    "case", few_of(UNSEEN, ("gpu", "a mask", 1), ("tpu", "16 bits", 1), ("gpu", "a bias", 2)), ids=str
)
@GATE
def test_a_query_that_sees_no_key_attends_to_all(case: Any, kernels_for: Callable[[str], None]) -> None:
    chip, hiding, devices = case
    dtype, given_for = HIDING[hiding]
    options = given_for(32)
    arrays = [*(normal(1, 32, 8, dtype=dtype) for _ in range(3)), jnp.float32(0.25)]

    def attended(query: Any, key: Any, value: Any, scale: Any, **ring: Any) -> Any:
        return ungrouped(query, key, value, scale=scale, head_count=1, **options, **ring)

    expected = jax.jit(partial(value_and_grads, attended))(*arrays)
    kernels_for(chip)
    mesh, rows = mesh_of(AxisType.Auto, sequence=devices), P(None, "sequence")
    ring = partial(attended, axis_name="sequence")
    divided = jax.shard_map(ring, mesh=mesh, in_specs=(rows, rows, rows, P()), out_specs=rows)
    function = divided if devices > 1 else lambda *arrays: attended(*arrays)
    with jax.set_mesh(mesh):
        agree(jax.jit(partial(value_and_grads, function))(*arrays), expected, jnp.dtype(dtype))


PADDING = (-1e9, -np.inf, -2e4, 1e9, np.nan, np.inf)
FILLINGS = [
    (chip, left, fill, of)
    for chip in CHIPS
    for left in PADDING
    for fill in (-1e4, LOWEST, -np.inf)
    for of in ("keys", "scores")
    if fill > -np.inf or np.isfinite(left) or of == "keys"
]


@pytest.mark.parametrize(
    "case", few_of(FILLINGS, ("gpu", -1e9, -1e4, "keys"), ("tpu", -np.inf, -1e4, "scores")), ids=str
)
@GATE
def test_hidden_keys_count_where_a_bias_outweighs_the_mask(case: Any, kernels_for: Callable[[str], None]) -> None:
    """The first keys of the second sequence are padding, as in batches of language models."""
    chip, left, fill, of = case
    positions = {"gpu": 256, "tpu": 1024}[chip]  # several blocks
    bias = np.zeros((2, 1, positions if of == "scores" else 1, positions), np.float32)
    bias[1, ..., : positions * 7 // 8] = left
    arrays = [coarse(2, positions, 4) for _ in range(3)]

    def attended(*arrays: Any) -> Any:
        more: Any = {"relative_position_bias": bias, "mask_filter_value": fill, "is_causal": True}
        return ungrouped(*arrays, head_count=1, **more)

    agree_for(chip, partial(value_and_grads, attended), kernels_for, *arrays)


FILLED = [
    (chip, hiding, fill)
    for chip in CHIPS
    for hiding in ("a mask", "bounds", "padding")
    for fill in (-np.inf, LOWEST, -1e30, -1e4, -2.0)
    if fill > -np.inf or hiding != "padding"
]


@pytest.mark.parametrize("case", few_of(FILLED, ("gpu", "a mask", -2.0), ("gpu", "padding", -1e30)), ids=str)
@pytest.mark.gate(but=1)
def test_a_fill_takes_the_place_of_hidden_scores(case: Any, kernels_for: Callable[[str], None]) -> None:
    """A hidden score may be lower than the fill, or infinite."""
    chip, hiding, fill = case
    positions = {"gpu": 150, "tpu": 600}[chip]  # several blocks
    *arrays, key = (coarse(1, 2, 1, positions, 16) for _ in range(3))
    end = jnp.arange(1, positions + 1, dtype=np.int32).reshape(1, 1, 1, positions, 1)
    mask = lowerings.Mask(end=end, fill=jnp.float32(fill))
    if hiding == "a mask":
        is_seen = RNG.random((1, 2, 1, positions, positions)) < 0.6
        mask = mask._replace(is_seen=jnp.asarray(is_seen).at[..., 0].set(True))
    bias = jnp.zeros((1, 1, 1, 1, positions)).at[..., : positions // 2].set(LOWEST) if hiding == "padding" else None

    def attended(query: Any, value: Any, key: Any) -> Any:
        return lowerings.attention(query, [key], [value], jnp.float32(3.0), bias, mask, precision=None)

    def both(*arrays: Any) -> Any:
        # Only the last query sees the last key.
        hidden = key.at[..., -1, :].set(np.inf)
        query, value = arrays
        return value_and_grads(attended, query, value, key), attended(query, value, hidden)[..., :-1, :]

    agree_for(chip, both, kernels_for, *arrays)


@pytest.mark.parametrize(
    ("padding", "number", "after"),
    [
        (None, {"added": -1e4}, [1, 2, 3, 4]),
        (0, {"added": -1e4}, [1, 2, 3, 4]),
        (512, {"added": -1e4}, [4, 4, 3, 4]),
        (1000, {"added": -1e4}, [4, 4, 4, 4]),
        (None, {"fill": -1e30}, [1, 2, 3, 4]),
        (None, {"fill": -1e9}, [4, 4, 4, 4]),
        (0, {"fill": -np.inf}, [1, 2, 3, 4]),
        (512, {"fill": -1e30}, [4, 4, 3, 4]),
    ],
)
@pytest.mark.gate(but=1)
def test_blocks_that_no_query_needs_are_skipped(
    padding: int | None, number: dict[str, float], after: list[int]
) -> None:
    """Queries of padding need all keys."""
    query = jnp.zeros((1, 1, 1, 1024, 8))
    bias = normal(1, 1, 1, 1, 1024).at[..., :padding].set(LOWEST) if padding else normal(1, 1, 1, 1, 1024)
    operands = {"query": query, "key": query, "value": query} | ({} if padding is None else {"bias": bias})
    operands |= {"end": jnp.arange(1, 1025, dtype=np.int32).reshape(1, 1, 1, 1024, 1)}
    operands |= {name: jnp.full((1,) * 5, x) for name, x in number.items()}
    spans = attention_kernels._spans(operands, attention_kernels._sizes(operands, 256, 256))
    assert spans["first"].tolist() == [[0, 0, 0, 0]]
    assert spans["after"].tolist() == [after]


STRANGE = [(chip, name, number) for chip in CHIPS for name in range(4) for number in (np.nan, np.inf, -np.inf)]


@pytest.mark.parametrize("case", few_of(STRANGE, ("gpu", 1, np.inf), ("tpu", 3, -np.inf)), ids=str)
@GATE
def test_infinities_and_nan_spread_as_in_the_formula(case: Any, kernels_for: Callable[[str], None]) -> None:
    chip, place, number = case
    arrays = [coarse(1, 40, 4), coarse(1, 40, 4), coarse(1, 40, 4), coarse(1, 1, 40, 40)]
    arrays[place] = arrays[place].at[..., 5, 2].set(number)

    def attended(*arrays: Any) -> Any:
        return ungrouped(*arrays[:3], relative_position_bias=arrays[3], head_count=1)

    def derived(*arrays: Any) -> Any:
        return value_and_grads(lambda *some: attended(*some, arrays[3]), *arrays[:3])

    agree_for(chip, derived, kernels_for, *arrays)


SHARED = ["lengths", "few keys", "no key", "positions", "infinity", "a bias", "a bias of keys", "causal"]


@SAMPLED
@pytest.mark.parametrize("kind", few_of(SHARED, "no key", "few keys"))
@GATE
def test_programs_share_the_keys_of_few_queries(
    kind: str, kernels_for: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = coarse(BATCH, 3, HEADS * 16), coarse(BATCH, KEYS, KEY_HEADS * 16), coarse(BATCH, KEYS, KEY_HEADS * 8)
    options = KINDS[kind]()
    cut = {name: x[..., :3, :] for name, x in options.items() if np.shape(x)[-2:] == (QUERIES, KEYS)}
    heads = {"query_head_count": HEADS, "key_value_head_count": KEY_HEADS}
    attended = partial(value_and_grads, lambda *arrays: grouped(*arrays, **options | cut, **heads))
    expected = jax.jit(attended)(*arrays)
    kernels_for("gpu")
    monkeypatch.setattr(lowerings, "_FEWEST_IN_KERNELS", 4)
    monkeypatch.setattr(lowerings, "_FEWEST_IN_SPLITS", 15)  # two splits of 75
    agree(jax.jit(lambda *arrays: attended(*arrays))(*arrays), expected, np.float32)


SMALL = normal(2, 9, 2 * 8), normal(2, 11, 8), normal(2, 11, 8)
TWO_HEADS: Any = {"query_head_count": 2, "key_value_head_count": 1}


def small(*arrays: Any, **ring: Any) -> Any:
    return grouped(*arrays, **TWO_HEADS, is_causal=True, **ring)


def agree_for(chip: str, function: Callable[..., Any], begin: Callable[[str], None], *arrays: Any) -> None:
    """Checks that `function` of arrays computes the same with the kernels of a chip as on a CPU."""
    expected = jax.jit(function)(*arrays)
    begin(chip)
    agree(jax.jit(lambda *arrays: function(*arrays))(*arrays), expected, np.float32)


TRANSFORMED: dict[str, Callable[..., Any]] = {
    "tangents": lambda *x: jax.jvp(small, x, x),
    "linear": lambda *x: jax.linearize(small, *x)[1](*x),
    "tangents of slopes": lambda *x: jax.jvp(partial(value_and_grads, small), x, x),
    "slopes of slopes": lambda *x: value_and_grads(lambda *x: value_and_grads(small, *x)[1][1], *x),
    "slopes by one": lambda q, k, v: value_and_grads(lambda k: small(q, k, v), k),
    "rematerialized": lambda *x: value_and_grads(jax.checkpoint(small), *x),
    "a batch": lambda q, k, v: jax.vmap(partial(value_and_grads, small), (0, None, None))(jnp.stack([q, -q]), k, v),
}


@SAMPLED
@pytest.mark.parametrize("name", few_of(TRANSFORMED, "tangents of slopes", "a batch"))
@GATE
def test_kernels_have_every_transformation(name: str, kernels_for: Callable[[str], None]) -> None:
    agree_for("gpu", TRANSFORMED[name], kernels_for, *SMALL)


@GATE
def test_a_kernel_reads_a_cache(kernels_for: Callable[[str], None]) -> None:
    past, new = normal(2, 1, 20, 8), normal(2, 4, 8)
    sizes: Any = {"past_sequence_lengths": np.array([3, 16], np.int32), "total_sequence_length": 20}

    def attended(query: Any, past: Any, new: Any) -> Any:
        cache = {"past_key": past, "past_value": past}
        return grouped(query, new, new, **cache, **sizes, **TWO_HEADS, mask_filter_value=-np.inf)

    agree_for("gpu", attended, kernels_for, normal(2, 4, 2 * 8), past, new)


@GATE
def test_without_jit_a_kernel_computes_the_same(kernels_for: Callable[[str], None]) -> None:
    expected = small(*SMALL)
    kernels_for("gpu")
    with jax.disable_jit():
        agree(small(*SMALL), expected, np.float32)


# Meshes


@pytest.mark.parametrize("shares", few_of([1, 2], 1))
@pytest.mark.parametrize("axis_type", few_of([AxisType.Explicit, AxisType.Auto], AxisType.Auto), ids=lambda x: x.name)
@GATE
def test_each_device_has_a_kernel_for_its_batches_and_heads(
    axis_type: AxisType, shares: int, kernels_for: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = mesh_of(axis_type, batch=2, heads=4)
    operands = [normal(2, 8, count * 8) for count in (8, 4, 4)]
    ends = np.array([8, 5], np.int32)

    def attended(query: Any, key: Any, value: Any, ends: Any) -> Any:
        heads = {"query_head_count": 8, "key_value_head_count": 4}
        mask = {"mask": ends, "mask_type": "key_sequence_length"}
        return value_and_grads(lambda *arrays: grouped(*arrays, **heads, **mask), query, key, value)

    expected = jax.jit(attended)(*operands, ends)
    kernels_for("gpu")
    if shares > 1:
        monkeypatch.setattr(lowerings, "_FEWEST_IN_KERNELS", 9)
        monkeypatch.setattr(lowerings, "_FEWEST_IN_SPLITS", 8 // shares)
    rows = NamedSharding(mesh, P("batch", None, "heads"))
    placed = [*(jax.device_put(x, rows) for x in operands), jax.device_put(ends, NamedSharding(mesh, P("batch")))]
    with jax.set_mesh(mesh):
        compiled = jax.jit(lambda *arrays: attended(*arrays)).lower(*placed).compile()
        agree(compiled(*placed), expected, np.float32)
    assert collectives(compiled) == []
    assert compiled(*placed)[0].sharding.spec == rows.spec


@pytest.mark.parametrize("axis_type", few_of([AxisType.Explicit, AxisType.Auto], AxisType.Auto), ids=lambda x: x.name)
@GATE
def test_several_tpus_have_a_kernel_each(axis_type: AxisType, kernels_for: Callable[[str], None]) -> None:
    mesh = mesh_of(axis_type, data=2, model=4)
    operands = [normal(2, 8, count * 8) for count in (8, 4, 4)]
    bias, ends = normal(1, 8, 8, 8), np.array([8, 5], np.int32)

    def attended(query: Any, key: Any, value: Any, bias: Any, ends: Any) -> Any:
        heads = {"query_head_count": 8, "key_value_head_count": 4}
        mask = {"mask": ends, "mask_type": "key_sequence_length", "relative_position_bias": bias}
        return value_and_grads(lambda *arrays: grouped(*arrays, **heads, **mask), query, key, value)

    expected = jax.jit(attended)(*operands, bias, ends)
    kernels_for("tpu")
    rows = NamedSharding(mesh, P("data", None, "model"))
    specs = (P(None, "model"), P("data"))
    placed = [jax.device_put(x, rows) for x in operands]
    placed += [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip((bias, ends), specs, strict=True)]
    program = jax.jit(lambda *arrays: attended(*arrays))
    with jax.enable_x64(False):  # with 64-bit types, JAX 0.8.0 does not lower these kernels
        text = program.trace(*placed).lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("tpu_custom_call") == 3  # forward, and two of the gradients
    compiled = program.lower(*placed).compile()
    agree(compiled(*placed), expected, np.float32)
    assert collectives(compiled) == []


@pytest.mark.parametrize("sizes", [{"model": 8}, {"rows": 2, "model": 4}, {"rows": 2}], ids=str)
def test_meshes_that_do_not_say_how_to_divide_heads_are_left_to_xla(
    sizes: dict[str, int], kernels_for: Callable[[str], None]
) -> None:
    mesh = mesh_of(AxisType.Auto, **sizes)
    placed = [jax.device_put(normal(2, 8, 32), NamedSharding(mesh, P())) for _ in range(3)]
    kernels_for("tpu")
    attended = jax.jit(partial(ungrouped, head_count=4))
    assert "tpu_custom_call" not in attended.trace(*placed).lower(lowering_platforms=("tpu",)).as_text()


@FULL
def test_devices_sum_the_gradients_of_a_bias(kernels_for: Callable[[str], None]) -> None:
    mesh = mesh_of(AxisType.Auto, batch=2)
    operands = (*SMALL, normal(2, 9, 11))

    def attended(query: Any, key: Any, value: Any, bias: Any) -> Any:
        return value_and_grads(
            lambda *x: grouped(*x[:3], relative_position_bias=x[3], **TWO_HEADS), query, key, value, bias
        )

    expected = jax.jit(attended)(*operands)
    kernels_for("gpu")
    placed = [jax.device_put(x, NamedSharding(mesh, P("batch"))) for x in SMALL]
    agree(jax.jit(lambda *x: attended(*x))(*placed, operands[3]), expected, np.float32)


@FULL
def test_a_device_of_a_manual_mesh_has_a_kernel(kernels_for: Callable[[str], None]) -> None:
    mesh, rows = mesh_of(AxisType.Auto, batch=2), P("batch")
    expected = jax.jit(partial(value_and_grads, small))(*SMALL)
    kernels_for("gpu")
    mapped = jax.shard_map(small, mesh=mesh, in_specs=rows, out_specs=rows)
    agree(jax.jit(partial(value_and_grads, mapped))(*SMALL), expected, np.float32)


RINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "causal": ("tpu", {"is_causal": True, "mask_filter_value": -np.inf}),
    "lengths": ("gpu", {"mask": np.array([11, 3], np.int32), "mask_type": "key_sequence_length"}),
    "a mask": ("tpu", {"mask": RNG.random((2, 1, 16, 16)) < 0.6}),
    "a bias": ("gpu", {"relative_position_bias": normal(2, 16, 16), "is_causal": True}),
}


@pytest.mark.parametrize("dtype", few_of(["float32", "bfloat16"], "float32"))
@pytest.mark.parametrize("kind", few_of(RINGS, "causal"))  # the next test has a GPU's
@GATE
def test_devices_in_a_ring_have_kernels(kind: str, dtype: str, kernels_for: Callable[[str], None]) -> None:
    chip, options = RINGS[kind]
    mesh, rows = mesh_of(AxisType.Auto, sequence=4), P(None, "sequence")
    arrays = [normal(2, 16, count * 8, dtype=dtype) for count in (2, 1, 1)]
    names = [name for name, x in options.items() if isinstance(x, np.ndarray | jax.Array)]
    masks = [options[name].astype(dtype) if name.endswith("bias") else options[name] for name in names]
    statics = {name: x for name, x in options.items() if name not in names}

    def attended(*arrays: Any, **ring: Any) -> Any:
        return grouped(*arrays[:3], **dict(zip(names, arrays[3:], strict=True)), **statics, **TWO_HEADS, **ring)

    def of_masks(attended: Callable[..., Any]) -> Any:
        return jax.jit(lambda: value_and_grads(lambda *x: attended(*x, *masks), *arrays))()

    expected = of_masks(attended)
    kernels_for(chip)
    specs = [rows] * 3 + [P(*[None] * (x.ndim - 2), "sequence") if x.ndim > 1 else P() for x in masks]
    ring = jax.shard_map(partial(attended, axis_name="sequence"), mesh=mesh, in_specs=tuple(specs), out_specs=rows)
    with jax.set_mesh(mesh):
        agree(of_masks(ring), expected, jnp.dtype(dtype))


@GATE
def test_rings_of_kernels_have_second_derivatives(kernels_for: Callable[[str], None]) -> None:
    mesh, rows = mesh_of(AxisType.Auto, sequence=2), P(None, "sequence")
    arrays = normal(1, 4, 2 * 8), normal(1, 4, 8), normal(1, 4, 8)

    def tangents_of_slopes(attended: Callable[..., Any]) -> Any:
        return jax.jit(lambda *x: jax.jvp(partial(value_and_grads, attended), x, x))(*arrays)

    expected = tangents_of_slopes(small)
    kernels_for("gpu")
    ring = jax.shard_map(partial(small, axis_name="sequence"), mesh=mesh, in_specs=(rows,) * 3, out_specs=rows)
    agree(tangents_of_slopes(ring), expected, np.float32)


# Programs for several platforms


def test_an_exported_program_has_the_kernels_that_jax_keeps_readable() -> None:
    x = jax.ShapeDtypeStruct((1, 256, 64), jnp.bfloat16)
    attended = jax.jit(lambda x: grouped(x, x, x, query_head_count=1))
    text = jax.export.export(attended, platforms=["cpu", "cuda", "tpu"])(x).mlir_module()
    assert "tpu_custom_call" in text
    assert "triton" not in text


@GATE
def test_a_program_for_a_cpu_does_not_import_pallas() -> None:
    code = """
import sys, dmljax, jax, jax.numpy as jnp
x = jnp.ones((1, 256, 64))
jax.grad(lambda x: dmljax.multihead_attention(x, x, x, head_count=1).sum())(x)
sys.exit("jax.experimental.pallas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
