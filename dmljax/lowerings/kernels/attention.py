"""Attention in one Pallas kernel, forward and backward, that never writes scores to memory: for GPUs and TPUs.

Each program has a block of queries and walks over blocks of keys, or the other way around. Arrays have five dimensions:
batches, heads of keys, heads of queries that share one of them, positions, and elements.

JAX's own kernels do not fit: none supports lengths, heads that share keys and a causal mask that begins after past
positions together, and all hide keys completely, where DirectML adds a number. JAX 0.12 deprecates those for GPUs.

Import this module only where a program is lowered for such a chip, because importing Pallas takes a second.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as mosaic, triton

Arrays = dict[str, Array]  # by the names of the operands
Block = dict[str, Any]  # the values that a program has of each operand: matrices, columns or rows, and numbers
Types = dict[str, jax.ShapeDtypeStruct]

# Operands: "query", "key", "value", and "grad", the gradient by the result; "bias" and "is_seen", with an element
# for each score or for each key; "begin" and "end", the bounds of the keys that a query attends to, and "delta", the
# sum of its result times the derivative by it, with one element for each query; "lse", the logarithm of the sum of
# exp(score), as two summands for each query: its highest score, and the logarithm of the sum of exp(score - highest),
# which one number would round away where the highest is -1e9; "scale"; and "added" or "fill".

_KEY_OPERANDS = ("key", "value")
_SCORE_OPERANDS = ("bias", "is_seen")
_QUERY_OPERANDS = ("begin", "end", "delta", "dscale", "dadded")
_NUMBERS = ("scale", "added", "fill")
_SPANS = ("first", "after")

# Added to a score, this leaves a key without weight beside a visible one, if the products of queries and keys, times
# the scale, are between -4,400 and 4,400. Nothing else could tell without reading keys that are hidden.
HIDES = -9e3
_FILLS = -1e30  # as a score, this leaves a key without weight beside a visible one, if such products are above it


class ScoreSizes(NamedTuple):
    """The sizes of an attention, and of its blocks."""

    batch: int
    heads: int
    group: int  # heads of queries that share a head of keys
    queries: int
    keys: int
    size: int
    value_size: int
    rows: int  # queries in a block
    columns: int  # keys in a block

    @property
    def blocks(self) -> tuple[int, int]:
        """The numbers of blocks of queries and of keys."""
        return -(-self.queries // self.rows), -(-self.keys // self.columns)

    def products(self, *sizes: int) -> int:
        """The operations of products over all scores that sum over vectors of these sizes."""
        return 2 * self.batch * self.heads * self.group * self.queries * self.keys * sum(sizes)


def _sizes(operands: Arrays, rows: int, columns: int) -> ScoreSizes:
    (batch, heads, group, queries, size), key, value = (operands[name].shape for name in ("query", "key", "value"))
    return ScoreSizes(batch, heads, group, queries, key[3], size, value[4], rows, columns)


# The computations of a program with a block of queries and a block of keys, on every chip


def _product(a: Any, b: Any, axis_of_b: int = 0) -> Any:
    # Kernels take float32 only at JAX's default precision, and the setting does not concern 16-bit factors.
    axes = (((1,), (axis_of_b,)), ((), ()))
    return lax.dot_general(a, b, axes, precision=lax.Precision.DEFAULT, preferred_element_type=np.float32)


def _scores(block: Block, first: Any, sizes: ScoreSizes) -> tuple[Any, Any]:
    """The scores of the keys from `first` on, and which of them are visible; None if all are."""
    scores = _product(block["query"], block["key"], 1) * block["scale"]
    if "bias" in block:
        scores += block["bias"].astype(np.float32)
    position = first + lax.broadcasted_iota(np.int32, scores.shape, 1)
    visible = [jnp.broadcast_to(block["is_seen"].astype(np.int32) != 0, scores.shape)] if "is_seen" in block else []
    visible += [position >= block["begin"]] if "begin" in block else []
    visible += [position < block["end"]] if "end" in block else []
    is_visible = functools.reduce(operator.and_, visible) if visible else None
    if is_visible is not None and "fill" in block:
        scores = jnp.where(is_visible, scores, block["fill"])
    elif is_visible is not None:
        scores += jnp.where(is_visible, np.float32(0), block["added"])
    if sizes.keys % sizes.columns:
        scores = jnp.where(position < sizes.keys, scores, -np.inf)
    return scores, is_visible


_LOG2_OF_E = np.float32(math.log2(math.e))


def _exp(x: Any) -> Any:
    return jnp.exp2(x * _LOG2_OF_E)


def _finite(highest: Any) -> Any:
    """Replaces -inf by 0, so that the exponentials of scores that are all -inf are 0 and not NaN."""
    return jnp.where(highest == -np.inf, np.float32(0), highest)


Sums = tuple[Any, Any, Any]  # each query's highest score, sum of unnormalized probs, and sum of values times these


def _zero_sums(sizes: ScoreSizes, width: int) -> Sums:
    column = jnp.zeros((sizes.rows, 1), np.float32)
    return column - np.inf, column, jnp.zeros((sizes.rows, width), np.float32)


def _add_keys(sums: Sums, scores: Any, value: Any) -> Sums:
    highest, weight, total = sums
    new_highest = jnp.maximum(highest, jnp.max(scores, 1, keepdims=True))
    shift = _finite(new_highest)
    # Probs before their division by the sum
    probs, correction = _exp(scores - shift), _exp(highest - shift)
    weight = weight * correction + jnp.sum(probs, 1, keepdims=True)
    return new_highest, weight, total * correction + _product(probs.astype(value.dtype), value)


def _finish_sums(sums: Sums) -> tuple[Any, tuple[Any, Any]]:
    """The attention, and the two summands of the logsumexp of the scores."""
    highest, weight, total = sums
    return total / weight, (highest, jnp.log(weight))


def _score_grads(block: Block, first: Any, sizes: ScoreSizes) -> tuple[Any, Any, Any]:
    """The probabilities, the gradients by the scores, and which keys are visible."""
    scores, is_visible = _scores(block, first, sizes)
    highest, log_of_weight = block["lse"]
    probs = jnp.exp2((scores - highest) * _LOG2_OF_E - log_of_weight * _LOG2_OF_E)
    grads = probs * (_product(block["grad"], block["value"], 1) - block["delta"])
    if is_visible is not None and "fill" in block:
        grads = jnp.where(is_visible, grads, np.float32(0))
    return probs, grads, is_visible


def _multiply_grads(grads: Any, other: Any) -> Any:
    dtype = np.float32 if other.dtype == np.float16 else other.dtype  # float16 may not hold them
    return _product(grads.astype(dtype), other.astype(dtype))


Grads = tuple[Any, ...]  # sums over some queries or keys


def _add_dk_dv(sums: Grads, block: Block, first: Any, sizes: ScoreSizes) -> Grads:
    probs, ds, _ = _score_grads(block, first, sizes)
    dk, dv = sums
    dv += _product(probs.T.astype(block["grad"].dtype), block["grad"])
    return dk + _multiply_grads(ds.T, block["query"]), dv


def _add_dq(sums: Grads, block: Block, first: Any, sizes: ScoreSizes) -> Grads:
    """Sums without the factor `scale`, and the sums of the gradients by hidden scores."""
    _, ds, is_visible = _score_grads(block, first, sizes)
    dq, dadded = sums
    if is_visible is not None:
        dadded += jnp.sum(jnp.where(is_visible, np.float32(0), ds), 1, keepdims=True)
    return dq + _multiply_grads(ds, block["key"]), dadded


# Blocks without a visible key


def _spans(operands: Arrays, sizes: ScoreSizes) -> Arrays:
    """The blocks of keys that each block of queries attends to: "first" and "after"; nothing if these are all.

    Other blocks are skipped, because none of their keys has weight. A query that sees no key has the same number added
    to all of its scores, or in place of them, so no key can be skipped.
    """
    if "is_seen" in operands or not ("begin" in operands or "end" in operands):
        return {}
    (count, last), keys = sizes.blocks, np.int32(sizes.keys)
    everywhere = jnp.zeros((1, 1, 1, 1, 1), np.int32)
    bounds = operands.get("begin", everywhere), operands.get("end", everywhere + keys)
    number, hides = (operands["fill"], _FILLS) if "fill" in operands else (operands["added"], HIDES)
    batch = max(x.shape[0] for x in (*bounds, number, operands.get("bias", everywhere)))
    begin, end = (jnp.broadcast_to(x, (batch, 1, 1, sizes.queries, 1)).reshape(batch, -1) for x in bounds)
    filling = ((0, 0), (0, count * sizes.rows - sizes.queries))
    begin, end = (jnp.clip(jnp.pad(x, filling, mode="edge"), 0, keys).reshape(batch, count, -1) for x in (begin, end))
    all_count = jnp.any(end <= begin, -1) | ~(_hidden_score_bound(operands, number, begin, end) <= hides)
    columns = np.int32(sizes.columns)
    first, after = jnp.min(begin, -1) // columns, (jnp.max(end, -1) + (columns - 1)) // columns
    return {"first": jnp.where(all_count, 0, first), "after": jnp.where(all_count, np.int32(last), after)}


def _hidden_score_bound(operands: Arrays, number: Array, begin: Any, end: Any) -> Any:
    """The most that `number`, added or as a fill, and the bias give a hidden key beside a key that all queries see.

    `begin` and `end` have the queries of a block in their last dimension. NaN if the bias leaves it open.
    """
    number, bias = number[:, 0, 0, :, 0], operands.get("bias")
    if bias is None:
        return number
    if bias.shape[3] > 1:  # reading a bias of all scores takes as long as computing what it may show
        return jnp.where(number == -np.inf, number, np.nan)
    bias = bias.astype(np.float32).reshape(bias.shape[0], -1, 1, bias.shape[4])
    position = lax.broadcasted_iota(np.int32, (1, 1, bias.shape[3]), 2)
    is_visible = (jnp.max(begin, -1, keepdims=True) <= position) & (position < jnp.min(end, -1, keepdims=True))
    most_visible = jnp.max(jnp.where(is_visible[:, None], bias, -np.inf), -1)
    most_hidden = np.float32(0) if "fill" in operands else jnp.max(bias, -1)
    return number + jnp.max(most_hidden - most_visible, 1)


def _spans_of_keys(spans: Arrays, sizes: ScoreSizes) -> Arrays:
    """Likewise, the blocks of queries that attend to each block of keys, with any blocks between them."""
    if not spans:
        return {}
    first, after = (spans[name][:, :, None] for name in ("first", "after"))
    block = lax.broadcasted_iota(np.int32, (1, 1, sizes.blocks[1]), 2)
    attends = (first <= block) & (block < after)
    begin, behind = (jnp.argmax(x, 1).astype(np.int32) for x in (attends, attends[:, ::-1]))
    after = jnp.where(jnp.any(attends, 1), np.int32(sizes.blocks[0]) - behind, begin)
    return {"first": begin, "after": after}


def _estimate(operations: int, exponentials: int, arrays: Iterable[Any], share: float) -> pl.CostEstimate:
    return pl.CostEstimate(
        flops=int(operations * share),
        transcendentals=int(exponentials * share),
        bytes_accessed=sum(x.size * x.dtype.itemsize for x in arrays),
    )


# GPUs: programs read blocks from whole arrays


TileKey = tuple[bool, bool]


class Tile(NamedTuple):
    """The block of scores that a program computes, its warps, and the blocks that it loads ahead.

    Tuned on an H100 for heads of up to 128 elements, gradients in 16 bits only, among tiles that fit in the 99 KiB of
    smaller GPUs, such as an A10 or an L4.
    """

    rows: int
    columns: int
    warps: int = 4
    stages: int = 2


_FORWARD_TILES: dict[TileKey, Tile] = {
    (False, False): Tile(128, 64),
    (False, True): Tile(64, 32, warps=8),
    (True, False): Tile(128, 32, warps=8),
    (True, True): Tile(32, 16),
}
_FEW_QUERIES = 16
_FEW_QUERIES_TILES = {key: Tile(_FEW_QUERIES, tile.columns, warps=2) for key, tile in _FORWARD_TILES.items()}
_BACKWARD_TILES: dict[TileKey, Tile] = {
    (False, False): Tile(64, 64),
    (False, True): Tile(32, 32),
    (True, False): Tile(32, 32),
    (True, True): Tile(32, 16),
}


def _tile_key(operands: Arrays) -> TileKey:
    """Whether elements have more than 16 bits, and whether heads have more than 128 elements."""
    return operands["query"].dtype.itemsize > 2, max(operands["query"].shape[-1], operands["value"].shape[-1]) > 128


class _OnGpu(NamedTuple):
    """How programs of a GPU read and write blocks of arrays, with heads as they lie in memory."""

    sizes: ScoreSizes
    in_rows: frozenset[str]  # names of arrays whose heads lie beside each other in a row for each position

    def place(self, ref: Any, name: str, g: Any, *inside: Any) -> Any:
        """The positions and elements of one head in an array, with index 0 if all heads share it."""
        g = g if ref.shape[1 if name in self.in_rows else 0] > 1 else _zero()
        positions, *rest = inside
        return ref.at[(positions, g, *rest) if name in self.in_rows else (g, positions, *rest)]

    def matrix(self, refs: Mapping[str, Any], name: str, block: Any, g: Any) -> Any:
        """A block of queries, keys or values, with zeros beyond the ends."""
        ref, (start, count, mask) = refs[name], self.positions(name, block)
        width, size = ref.shape[-1], self.sizes.value_size if name in ("value", "grad") else self.sizes.size
        if size < width:
            inside = (lax.iota(np.int32, width) < size)[None, :]
            mask = inside if mask is None else mask[:, None] & inside
        elif mask is not None:
            mask = mask[:, None]
        place = self.place(ref, name, g, pl.ds(start, count), pl.ds(_zero(), ref.shape[-1]))
        if mask is None:
            return triton.load(place)
        return triton.load(place, mask=jnp.broadcast_to(mask, (count, width)), other=0)

    def positions(self, name: str, block: Any) -> tuple[Any, int, Any]:
        """The first position of a block, the number of positions, and a mask of those that exist; None if all do."""
        is_key = name in (*_KEY_OPERANDS, *_SCORE_OPERANDS)
        count, total = (self.sizes.columns, self.sizes.keys) if is_key else (self.sizes.rows, self.sizes.queries)
        start = block * np.int32(count)
        return start, count, None if total % count == 0 else start + lax.iota(np.int32, count) < total

    def column(self, refs: Mapping[str, Any], name: str, block: Any, g: Any, *part: Any) -> Any:
        ref, (start, count, mask) = refs[name], self.positions(name, block)
        if ref.shape[1] == 1 and not part:
            return jnp.full((1, 1), ref[0, 0])
        place = self.place(ref, name, g, pl.ds(start, count), *part)
        return (triton.load(place) if mask is None else triton.load(place, mask=mask, other=0))[:, None]

    def scores_ref(self, refs: Mapping[str, Any], name: str, i: Any, j: Any, g: Any) -> Any:
        """A block of an array with an element for each score, or for each key."""
        ref, (start, count, mask) = refs[name], self.positions(name, j)
        columns = jnp.full((count,), True) if mask is None else mask
        if ref.shape[1] == 1:
            return triton.load(self.place(ref, name, g, _zero(), pl.ds(start, count)), mask=columns, other=0)[None, :]
        first, rows, inside = self.positions("query", i)
        both = jnp.broadcast_to(columns[None, :], (rows, count))
        both = both if inside is None else both & inside[:, None]
        return triton.load(self.place(ref, name, g, pl.ds(first, rows), pl.ds(start, count)), mask=both, other=0)

    def queries(self, refs: Mapping[str, Any], i: Any, g: Any) -> Block:
        """The operands of a block of queries, without those of keys."""
        matrices = {name: self.matrix(refs, name, i, g) for name in ("query", "grad") if name in refs}
        columns = {name: self.column(refs, name, i, g) for name in _QUERY_OPERANDS if name in refs}
        if "lse" in refs:
            columns["lse"] = tuple(self.column(refs, "lse", i, g, np.int32(part)) for part in range(2))
        return matrices | columns | {name: refs[name][0, 0, 0] for name in _NUMBERS if name in refs}

    def keys(self, refs: Mapping[str, Any], j: Any) -> Block:
        return {name: self.matrix(refs, name, j, 0) for name in _KEY_OPERANDS}

    def scores(self, refs: Mapping[str, Any], i: Any, j: Any, g: Any) -> Block:
        return {name: self.scores_ref(refs, name, i, j, g) for name in _SCORE_OPERANDS if name in refs}

    def write(self, refs: Mapping[str, Any], name: str, like: str, block: Any, g: Any, x: Any, *part: Any) -> None:
        ref, (start, count, inside) = refs[name], self.positions(like, block)
        mask = jnp.full((count,), True) if inside is None else inside
        if x.shape[1] == 1:
            triton.store(self.place(ref, name, g, pl.ds(start, count), *part), x.reshape(count), mask=mask)
            return
        size = self.sizes.value_size if name in ("result", "value") else self.sizes.size
        mask = mask[:, None] & (lax.iota(np.int32, x.shape[1]) < size)[None, :]
        place = self.place(ref, name, g, pl.ds(start, count), pl.ds(_zero(), ref.shape[-1]))
        triton.store(place, x.astype(ref.dtype), mask=mask)

    def call(
        self,
        kernel_name: str,
        kernel: Callable[[Mapping[str, Any], Any], None],
        programs: int,
        operands: Arrays,
        results: Types,
        tile: Tile,
        *,
        estimate: tuple[int, int, float],
        interpret: bool,
    ) -> Arrays:
        """Runs `kernel` in `programs` programs for each head of keys and each batch; it gets the program's number."""
        inputs = {name: self.to_layout(name, x) for name, x in operands.items()}
        types = {name: jax.eval_shape(functools.partial(self.to_layout, name), x) for name, x in results.items()}
        names = [*inputs, *types]

        def body(*refs: Any) -> None:
            kernel(dict(zip(names, refs, strict=True)), pl.program_id(0) % np.int32(programs))

        outputs = pl.pallas_call(
            body,
            grid=(programs * self.sizes.heads * self.sizes.batch,),
            in_specs=[self.spec(name, x.shape, programs) for name, x in inputs.items()],
            out_specs=[self.spec(name, x.shape, programs) for name, x in types.items()],
            out_shape=[*types.values()],
            compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
            cost_estimate=_estimate(*estimate[:2], [*inputs.values(), *types.values()], estimate[2]),
            interpret=interpret,
            name=kernel_name,
        )(*inputs.values())
        return {name: self.from_layout(name, x) for name, x in zip(types, outputs, strict=True)}

    def to_layout(self, name: str, x: Any) -> Any:
        """Arranges an array as it lies in memory; columns become rows."""
        if name in self.in_rows:
            return jnp.moveaxis(x, 3, 1)
        return x[..., 0] if name in _QUERY_OPERANDS else x

    def from_layout(self, name: str, x: Array) -> Array:
        return jnp.moveaxis(x, 1, 3) if name in self.in_rows else x[..., None] if name in _QUERY_OPERANDS else x

    def spec(self, name: str, shape: tuple[int, ...], programs: int) -> pl.BlockSpec:
        """The block of a whole batch and head of keys, with the elements of vectors padded to a power of two."""
        axis = 2 if name in self.in_rows else 1
        block: list[int | None] = [*shape]
        block[0] = None
        if name not in _SPANS:
            block[axis] = None
        if name not in (*_SPANS, *_NUMBERS, *_SCORE_OPERANDS, *_QUERY_OPERANDS):
            block[-1] = max(16, pl.next_power_of_2(shape[-1]))

        def index(number: Any) -> tuple[Any, ...]:
            head = number // np.int32(programs)
            indices: list[Any] = [np.int32(0)] * len(shape)
            if shape[0] > 1:
                indices[0] = head // np.int32(self.sizes.heads)
            if name not in _SPANS and shape[axis] > 1:
                indices[axis] = head % np.int32(self.sizes.heads)
            return tuple(indices)

        return pl.BlockSpec(tuple(block), index)


def _zero() -> Array:
    """An index in 32 bits, as all indices of one array must be."""
    return jnp.zeros((), np.int32)


def _span(refs: Mapping[str, Any], block: Any, count: int) -> tuple[Any, Any]:
    return (refs["first"][block], refs["after"][block]) if "first" in refs else (np.int32(0), np.int32(count))


def _on_gpu(operands: Arrays, tile: Tile, in_rows: Iterable[str]) -> _OnGpu:
    return _OnGpu(_sizes(operands, tile.rows, tile.columns), frozenset(in_rows))


def _forward_on_gpu(operands: Arrays, types: Types, in_rows: Iterable[str], interpret: bool) -> Arrays:
    has_few = operands["query"].shape[3] <= _FEW_QUERIES
    tile = (_FEW_QUERIES_TILES if has_few else _FORWARD_TILES)[_tile_key(operands)]
    chip = _on_gpu(operands, tile, in_rows)
    sizes = chip.sizes
    count = sizes.blocks[0] * sizes.group

    def kernel(refs: Mapping[str, Any], number: Any) -> None:
        # The last queries come first, because those of a causal attention have the most keys.
        number = np.int32(count - 1) - number
        i, g = number // np.int32(sizes.group), number % np.int32(sizes.group)
        query_block = chip.queries(refs, i, g)

        def step(j: Any, sums: Sums) -> Sums:
            block = query_block | chip.keys(refs, j) | chip.scores(refs, i, j, g)
            scores, _ = _scores(block, j * np.int32(sizes.columns), sizes)
            return _add_keys(sums, scores, block["value"])

        width = refs["value"].shape[-1]
        sums = lax.fori_loop(*_span(refs, i, sizes.blocks[1]), step, _zero_sums(sizes, width))
        result, lse = _finish_sums(sums)
        chip.write(refs, "result", "query", i, g, result)
        for part, x in enumerate(lse if "lse" in types else ()):
            chip.write(refs, "lse", "query", i, g, x, np.int32(part))

    operands = operands | _spans(operands, sizes)
    estimate = sizes.products(sizes.size, sizes.value_size), sizes.products(1) // 2, _estimate_share(operands)
    return chip.call("attention", kernel, count, operands, types, tile, estimate=estimate, interpret=interpret)


def _estimate_share(operands: Arrays) -> float:
    """Estimates the share of scores that are computed; bounds for each query are mostly causal masks."""
    skips = "is_seen" not in operands and ("bias" not in operands or operands["bias"].shape[3] == 1)
    return 0.5 if skips and any(name in operands and operands[name].shape[3] > 1 for name in ("begin", "end")) else 1.0


def _backward_on_gpu(operands: Arrays, types: Types, in_rows: Iterable[str], interpret: bool) -> Arrays:
    tile = _BACKWARD_TILES[_tile_key(operands)]
    chip = _on_gpu(operands, tile, in_rows)
    sizes = chip.sizes
    (blocks, blocks_of_keys), spans = sizes.blocks, _spans(operands, sizes)
    exponentials, share = sizes.products(1) // 2, _estimate_share(operands)

    def dq_kernel(refs: Mapping[str, Any], number: Any) -> None:
        number = np.int32(blocks * sizes.group - 1) - number
        i, g = number // np.int32(sizes.group), number % np.int32(sizes.group)
        query_block = chip.queries(refs, i, g)

        def step(j: Any, sums: Grads) -> Grads:
            block = query_block | chip.keys(refs, j) | chip.scores(refs, i, j, g)
            return _add_dq(sums, block, j * np.int32(sizes.columns), sizes)

        none = jnp.zeros(query_block["query"].shape, np.float32), jnp.zeros((sizes.rows, 1), np.float32)
        dq, dadded = lax.fori_loop(*_span(refs, i, blocks_of_keys), step, none)
        dscale = jnp.sum(query_block["query"].astype(np.float32) * dq, 1, keepdims=True)
        sums = {"dq": dq * query_block["scale"], "dscale": dscale, "dadded": dadded}
        for name in filter(types.__contains__, sums):
            chip.write(refs, name, "query", i, g, sums[name])

    def dkv_kernel(refs: Mapping[str, Any], j: Any) -> None:
        key_block = chip.keys(refs, j)
        first, after = _span(refs, j, blocks)

        def step(number: Any, sums: Grads) -> Grads:
            i, g = first + number // np.int32(sizes.group), number % np.int32(sizes.group)
            block = key_block | chip.queries(refs, i, g) | chip.scores(refs, i, j, g)
            return _add_dk_dv(sums, block, j * np.int32(sizes.columns), sizes)

        none = tuple(jnp.zeros(key_block[name].shape, np.float32) for name in _KEY_OPERANDS)
        dk, dv = lax.fori_loop(np.int32(0), (after - first) * np.int32(sizes.group), step, none)
        sums = {"dk": dk * refs["scale"][0, 0, 0], "dv": dv}
        for name in filter(types.__contains__, sums):
            chip.write(refs, name, "key", j, 0, sums[name])

    results: Arrays = {}
    for name, kernel, programs, kernel_spans, sums, values in (
        ("attention_dq", dq_kernel, blocks * sizes.group, spans, _DQ_RESULTS, 1),
        ("attention_dkv", dkv_kernel, blocks_of_keys, _spans_of_keys(spans, sizes), _DKV_RESULTS, 2),
    ):
        outputs = {result: x for result, x in types.items() if result in sums}
        if outputs:
            estimate = sizes.products(sizes.size * 2, sizes.value_size * values), exponentials, share
            inputs = operands | kernel_spans
            results |= chip.call(name, kernel, programs, inputs, outputs, tile, estimate=estimate, interpret=interpret)
    return results


_DQ_RESULTS = ("dq", "dscale", "dadded")
_DKV_RESULTS = ("dk", "dv")


# TPUs: programs get blocks of arrays, and leave their sums for the next program


class _OnTpu(NamedTuple):
    """How blocks of arrays reach the programs of a TPU, which run in sequence."""

    sizes: ScoreSizes
    in_rows: frozenset[str]  # names of arrays whose heads lie beside each other in a row for each position
    has_pairs: bool = False  # whether blocks have the columns of two heads, which take the place of a group

    def is_flat(self, name: str, x: Any) -> bool:
        """Whether heads are columns of a matrix; a TPU reads columns in multiples of 128."""
        return name in self.in_rows and (self.has_pairs or x.shape[-1] % 128 == 0)

    def to_layout(self, name: str, x: Any) -> Any:
        if name in (*_NUMBERS, *_SPANS):
            return x.reshape(-1)
        return jnp.moveaxis(x, 3, 1).reshape(x.shape[0], x.shape[3], -1) if self.is_flat(name, x) else x

    def from_layout(self, like: Any, x: Array) -> Array:
        if x.ndim == like.ndim:
            return x
        batch, heads, group, positions, size = like.shape
        return jnp.moveaxis(x.reshape(batch, positions, heads, group, size), 1, 3)

    def spec(self, name: str, x: Any, places: Callable[..., tuple[Any, ...]]) -> pl.BlockSpec:
        *_, group, positions, width = x.shape
        sizes = self.sizes
        is_key = name in (*_KEY_OPERANDS, *_DKV_RESULTS)
        count = 1 if positions == 1 else sizes.columns if is_key else sizes.rows

        def index(*programs: Any) -> tuple[Any, ...]:
            b, h, g, i, j = places(*programs)
            position = np.int32(0) if positions == 1 else j if is_key else i
            if self.is_flat(name, x):
                column = h if self.has_pairs else h * np.int32(group) + (g if group > 1 else np.int32(0))
                return b, position, column
            each = (number if size > 1 else np.int32(0) for number, size in zip((b, h, g), x.shape, strict=False))
            return *each, position, j if name in _SCORE_OPERANDS else np.int32(0)

        if self.is_flat(name, x):
            return pl.BlockSpec((None, count, 2 * width if self.has_pairs else width), index)
        return pl.BlockSpec((None, None, None, count, sizes.columns if name in _SCORE_OPERANDS else width), index)

    def block(self, refs: Mapping[str, Any], b: Any, g: Any, i: Any, j: Any) -> Block:
        """The operands of a program, with zeros beyond the ends."""
        sizes, block = self.sizes, {}
        for name in (*_KEY_OPERANDS, *_SCORE_OPERANDS, *_QUERY_OPERANDS, "query", "grad", "lse"):
            if name in refs:
                x = self.matrix(refs, name, g)
                if name in _KEY_OPERANDS:
                    x = _zero_beyond(x, j, sizes.keys)
                elif x.shape[0] > 1:
                    x = _zero_beyond(x, i, sizes.queries)
                block[name] = (x[:, :1], x[:, 1:]) if name == "lse" else x
        return block | {name: self.number(refs, name, b) for name in _NUMBERS if name in refs}

    def matrix(self, refs: Mapping[str, Any], name: str, g: Any) -> Any:
        x = refs[name][...]
        if not (self.has_pairs and name in self.in_rows):
            return x
        size = x.shape[1] // 2
        return jnp.where(g == 0, x[:, :size], x[:, size:])

    def write(self, refs: Mapping[str, Any], g: Any, values: Mapping[str, Any]) -> None:
        """Writes the values that are results of the kernel."""
        for name in filter(refs.__contains__, values):
            ref, x = refs[name], values[name].astype(refs[name].dtype)
            if self.has_pairs and name in self.in_rows:
                for head in range(2):
                    place = pl.ds(head * x.shape[1], x.shape[1])
                    pl.when(g == head)(functools.partial(ref.__setitem__, (slice(None), place), x))
            else:
                ref[...] = x

    def order(self, *, is_by_keys: bool) -> tuple[int, ...]:
        """The order of programs: those that write to one block follow each other."""
        return _BY_COLUMNS if is_by_keys else _BY_PAIRS if self.has_pairs else _BY_ROWS

    def number(self, refs: Mapping[str, Any], name: str, b: Any) -> Any:
        return refs[name][b if refs[name].shape[0] > 1 else 0]

    def call(
        self,
        kernel_name: str,
        kernel: Callable[..., None],
        order: tuple[int, ...],
        operands: Arrays,
        results: Types,
        scratch: list[tuple[int, int]],
        *,
        estimate: tuple[int, int, float],
        interpret: bool,
    ) -> Arrays:
        """Runs a program for each batch, key head, query head, query block and key block, in `order`.

        `kernel` gets the references, the sums, the indices, and whether the queries of the block attend to its keys.
        """
        sizes = self.sizes
        counts = (sizes.batch, sizes.heads, sizes.group, *sizes.blocks)
        is_by_keys = order[-1] == 3
        smaller = {name: x for name, x in operands.items() if name in (*_NUMBERS, *_SPANS)}
        arrays = {name: x for name, x in operands.items() if name not in smaller}
        inputs = {name: self.to_layout(name, x) for name, x in (smaller | arrays).items()}
        types = {name: jax.eval_shape(functools.partial(self.to_layout, name), x) for name, x in results.items()}
        names = [*inputs, *types]

        def span(refs: Mapping[str, Any], b: Any, block: Any) -> tuple[Any, Any]:
            if "first" not in refs:
                return np.int32(0), np.int32(counts[order[-1]])
            count = smaller["first"].shape[1]
            place = block + (b * np.int32(count) if smaller["first"].shape[0] > 1 else np.int32(0))
            return refs["first"][place], refs["after"][place]

        def indices(*programs: Any) -> tuple[Any, ...]:
            return tuple(programs[order.index(axis)] for axis in range(5))

        def places(*arguments: Any) -> tuple[Any, ...]:
            """The indices of a program's blocks; a program that computes nothing takes the nearest used blocks."""
            b, h, g, i, j = indices(*arguments[:5])
            refs = dict(zip(smaller, arguments[5:], strict=True))
            if "first" in refs:
                first, after = span(refs, b, j if is_by_keys else i)
                if is_by_keys:
                    i = jnp.clip(i, first, jnp.maximum(after - 1, first))
                else:
                    j = jnp.clip(j, first, jnp.maximum(after - 1, first))
            return b, h, g, i, j

        def body(*refs: Any) -> None:
            refs_by_name = dict(zip(names, refs, strict=False))
            b, _, g, i, j = indices(*map(pl.program_id, range(5)))
            first, after = span(refs_by_name, b, j if is_by_keys else i)
            moving_block = i if is_by_keys else j
            kernel(refs_by_name, refs[len(names) :], (b, g, i, j), (first <= moving_block) & (moving_block < after))

        outputs = pl.pallas_call(
            body,
            grid_spec=mosaic.PrefetchScalarGridSpec(
                num_scalar_prefetch=len(smaller),
                grid=tuple(counts[axis] for axis in order),
                in_specs=[self.spec(name, x, places) for name, x in arrays.items()],
                out_specs=[self.spec(name, x, places) for name, x in results.items()],
                scratch_shapes=[mosaic.VMEM(shape, jnp.dtype(np.float32)) for shape in scratch],
            ),
            out_shape=[*types.values()],
            compiler_params=mosaic.CompilerParams(dimension_semantics=_SEMANTICS[order]),
            cost_estimate=_estimate(*estimate[:2], [*inputs.values(), *types.values()], estimate[2]),
            interpret=interpret,
            name=kernel_name,
        )(*inputs.values())
        return {name: self.from_layout(results[name], x) for name, x in zip(types, outputs, strict=True)}


def _zero_beyond(x: Any, block: Any, total: int) -> Any:
    """Sets the positions of a block beyond the end to 0; they may hold any value."""
    count = x.shape[0]
    if total % count == 0:
        return x
    position = block * np.int32(count) + lax.broadcasted_iota(np.int32, x.shape, 0)
    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    return jnp.where(position < total, wide, jnp.zeros_like(wide)).astype(x.dtype)


def _block_size(positions: int) -> int:
    return min(512, -(-positions // 128) * 128)


def _on_tpu(operands: Arrays, in_rows: Iterable[str]) -> _OnTpu:
    queries, keys = operands["query"].shape[3], operands["key"].shape[3]
    return _OnTpu(_sizes(operands, _block_size(queries), _block_size(keys)), frozenset(in_rows))


def _pair_heads(attend: Callable[..., Arrays]) -> Callable[..., Arrays]:
    """Takes pairs of heads of 64 elements that lie in rows as groups, so that they need not be moved apart."""

    def apply(operands: Arrays, types: Types, in_rows: Iterable[str], interpret: bool) -> Arrays:
        chip = _on_tpu(operands, in_rows)
        sizes = chip.sizes
        is_alone = sizes.group == 1 and sizes.heads % 2 == 0 and sizes.size == sizes.value_size == 64
        if not (is_alone and {"query", "key", "value"} <= chip.in_rows):
            return attend(chip, operands, types, interpret)

        def pair(x: Any) -> Any:
            return x.reshape(x.shape[0], -1, 2, *x.shape[3:]) if x.ndim == 5 and x.shape[1] == sizes.heads else x

        paired = {name: pair(x) for name, x in operands.items()}
        paired_types = {name: jax.eval_shape(pair, x) for name, x in types.items()}
        chip = _on_tpu(paired, in_rows)._replace(has_pairs=True)
        results = attend(chip, paired, paired_types, interpret)
        return {name: x.reshape(types[name].shape) for name, x in results.items()}

    return apply


def _accumulate(
    refs: Sequence[Any],
    ends: tuple[Any, Any, Any],
    none: Callable[[], tuple[Any, ...]],
    step: Callable[[tuple[Any, ...]], tuple[Any, ...]],
    finish: Callable[..., None],
) -> None:
    """Runs a step of a sum; `ends` say whether it is the first step, adds anything, and is the last."""

    def write(values: tuple[Any, ...]) -> None:
        for ref, x in zip(refs, values, strict=True):
            ref[...] = x

    is_first, adds, is_last = ends
    pl.when(is_first)(lambda: write(none()))
    pl.when(adds)(lambda: write(step(tuple(ref[...] for ref in refs))))
    pl.when(is_last)(lambda: finish(*(ref[...] for ref in refs)))


@_pair_heads
def _forward_on_tpu(chip: _OnTpu, operands: Arrays, types: Types, interpret: bool) -> Arrays:
    sizes = chip.sizes

    def kernel(refs: Mapping[str, Any], sums: Any, place: tuple[Any, ...], attends: Any) -> None:
        b, g, i, j = place

        def step(sums: Any) -> Sums:
            block = chip.block(refs, b, g, i, j)
            scores, _ = _scores(block, j * np.int32(sizes.columns), sizes)
            return _add_keys(sums, scores, block["value"])

        def finish(*sums: Any) -> None:
            result, lse = _finish_sums(sums)
            chip.write(refs, g, {"result": result, "lse": jnp.concatenate(lse, 1)})

        ends = j == 0, attends, j == sizes.blocks[1] - 1
        _accumulate(sums, ends, lambda: _zero_sums(sizes, sizes.value_size), step, finish)

    estimate = (sizes.products(sizes.size, sizes.value_size), sizes.products(1) // 2, _estimate_share(operands))
    scratch = [(sizes.rows, 1), (sizes.rows, 1), (sizes.rows, sizes.value_size)]
    operands = operands | _spans(operands, sizes)
    order = chip.order(is_by_keys=False)
    return chip.call("attention", kernel, order, operands, types, scratch, estimate=estimate, interpret=interpret)


@_pair_heads
def _backward_on_tpu(chip: _OnTpu, operands: Arrays, types: Types, interpret: bool) -> Arrays:
    sizes, spans = chip.sizes, _spans(operands, chip.sizes)
    count, count_of_keys = sizes.blocks
    query_sums = [(sizes.rows, sizes.size), (sizes.rows, 1)]
    key_sums = [(sizes.columns, sizes.size), (sizes.columns, sizes.value_size)]

    def zeros(shapes: list[tuple[int, int]]) -> tuple[Any, ...]:
        return tuple(jnp.zeros(shape, np.float32) for shape in shapes)

    def dq_kernel(refs: Mapping[str, Any], sums: Any, place: tuple[Any, ...], attends: Any) -> None:
        b, g, i, j = place

        def step(sums: Any) -> Grads:
            return _add_dq(sums, chip.block(refs, b, g, i, j), j * np.int32(sizes.columns), sizes)

        def finish(dq: Any, dadded: Any) -> None:
            dscale = jnp.sum(chip.matrix(refs, "query", g).astype(np.float32) * dq, 1, keepdims=True)
            grad = dq * chip.number(refs, "scale", b)
            chip.write(refs, g, {"dq": grad, "dscale": dscale, "dadded": dadded})

        _accumulate(sums, (j == 0, attends, j == count_of_keys - 1), lambda: zeros(query_sums), step, finish)

    def dkv_kernel(refs: Mapping[str, Any], sums: Any, place: tuple[Any, ...], attends: Any) -> None:
        b, g, i, j = place

        def step(sums: Any) -> Grads:
            return _add_dk_dv(sums, chip.block(refs, b, g, i, j), j * np.int32(sizes.columns), sizes)

        def finish(dk: Any, dv: Any) -> None:
            chip.write(refs, g, {"dk": dk * chip.number(refs, "scale", b), "dv": dv})

        # The heads of a group share their keys, and those of a pair do not.
        is_first, is_last = (True, True) if chip.has_pairs else (g == 0, g == sizes.group - 1)
        ends = is_first & (i == 0), attends, is_last & (i == count - 1)
        _accumulate(sums, ends, lambda: zeros(key_sums), step, finish)

    results: Arrays = {}
    by_rows, by_columns = (chip.order(is_by_keys=is_by_keys) for is_by_keys in (False, True))
    for name, kernel, order, kernel_spans, sums, scratch, values in (
        ("attention_dq", dq_kernel, by_rows, spans, _DQ_RESULTS, query_sums, 1),
        ("attention_dkv", dkv_kernel, by_columns, _spans_of_keys(spans, sizes), _DKV_RESULTS, key_sums, 2),
    ):
        outputs = {result: x for result, x in types.items() if result in sums}
        if outputs:
            operations = sizes.products(sizes.size * 2, sizes.value_size * values)
            estimate = operations, sizes.products(1) // 2, _estimate_share(operands)
            results |= chip.call(
                name, kernel, order, operands | kernel_spans, outputs, scratch, estimate=estimate, interpret=interpret
            )
    return results


# Orders of programs, and which axes run in any order
_BY_ROWS, _BY_PAIRS, _BY_COLUMNS = (0, 1, 2, 3, 4), (0, 1, 3, 2, 4), (0, 1, 4, 2, 3)
_SEMANTICS: dict[tuple[int, ...], Any] = {
    _BY_ROWS: ("parallel", "parallel", "parallel", "parallel", "arbitrary"),
    **dict.fromkeys((_BY_PAIRS, _BY_COLUMNS), ("parallel", "parallel", "parallel", "arbitrary", "arbitrary")),
}


FORWARD = {"gpu": _forward_on_gpu, "tpu": _forward_on_tpu}
BACKWARD = {"gpu": _backward_on_gpu, "tpu": _backward_on_tpu}
