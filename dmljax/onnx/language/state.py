"""The sequences that a language model has read, in buffers of a fixed size.

All sequences of a batch have a row in the buffers: their tokens, and the keys and values of each layer. Layers of
convolutions and of linear attention have states instead, which each token changes: their batch axis is where the graph
has it, and rows that read no token take back what they had.

The encoder's results for audio stand beside the caches and never change.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.onnx.sharding import divide_along
from dmljax.text import show

_FEWEST = 16  # tokens that a prompt is padded to


class State(NamedTuple):
    """Sequences that a model has read, as a pytree: keep it to continue or fork a conversation."""

    tokens: Array  # (batch, room), zeros after each sequence's end
    lengths: Array  # (batch,)
    logits: Array  # (batch, vocabulary) of each sequence's next token, in float32
    caches: dict[str, Array]  # keys and values or states of each layer, and an encoder's results, by input name


def empty_state(batch: int, room: int, vocabulary: int, types: Mapping[str, jax.ShapeDtypeStruct]) -> State:
    """The state of sequences without tokens, whose caches have these types."""
    return State(
        jnp.zeros((batch, room), jnp.int32),
        jnp.zeros(batch, jnp.int32),
        jnp.zeros((batch, vocabulary), jnp.float32),
        {name: jnp.zeros(cache_type.shape, cache_type.dtype) for name, cache_type in types.items()},
    )


def place_on_mesh(state: State, mesh: Mesh | None, batch_axes: Mapping[str, int]) -> State:
    """The state on a mesh: sequences along its axis `data`, and heads of keys and values along `model`."""
    if mesh is None:
        return state

    def axes_of(name: str, dimensions: int) -> tuple[str | None, ...]:
        if dimensions == 5:  # keys and values in one array
            return None, "data", "model"
        has_heads = name not in batch_axes and dimensions == 4
        return ("data", "model") if has_heads else (*[None] * batch_axes.get(name, 0), "data")

    caches = {name: divide_along(mesh, x, axes_of(name, x.ndim)) for name, x in state.caches.items()}
    tokens, lengths, logits = (divide_along(mesh, x, ("data",)) for x in state[:3])
    return State(tokens, lengths, logits, caches)


def restore_inactive(
    old: State, logits: Array, caches: dict[str, Array], is_read: Array, batch_axes: Mapping[str, int]
) -> tuple[Array, dict[str, Array]]:
    """The logits and states of the rows that read a token; other rows keep theirs."""

    def select_rows(x: Array, before: Array, axis: int) -> Array:
        return jnp.where(jnp.expand_dims(is_read, [i for i in range(x.ndim) if i != axis]), x, before)

    states = {name: select_rows(caches[name], old.caches[name], axis) for name, axis in batch_axes.items()}
    return select_rows(logits, old.logits, 0), caches | states


def rewind(state: State, lengths: Any, rows: Any, batch_axes: Mapping[str, int]) -> tuple[State, list[list[int]]]:
    """The state before its first token, and all of its tokens with the rows after them, to be read again."""
    known = zip(np.asarray(state.tokens), lengths, rows, strict=True)
    whole = [[*tokens[:length].tolist(), *row] for tokens, length, row in known]
    states = {name: jnp.zeros_like(state.caches[name]) for name in batch_axes}
    return state._replace(lengths=jnp.zeros_like(state.lengths), caches=state.caches | states), whole


def shorten(state: State, lengths: Any) -> State:
    """Cuts sequences, or a single one, to their first tokens; the logits stay those of their ends."""
    kept = jnp.minimum(state.lengths, jnp.asarray(lengths, jnp.int32))
    is_kept = iota(state.tokens.shape[1])[None] < kept[:, None]
    return state._replace(tokens=jnp.where(is_kept, state.tokens, 0), lengths=kept)


def mask_after_buffer(mask: Array, places: Array, room: int) -> tuple[Array, int]:
    """The mask of attention that appends new tokens to a buffer, and how much of the buffer it reads.

    `mask` tells which places of the buffer are visible once it has the new tokens at `places`. It is as long as the new
    tokens if nothing came before them.
    """
    if mask.shape[1] != room:
        return mask, 0
    is_before = iota(room)[None] < places[:, :1]
    are_new = jnp.take_along_axis(mask, places, 1, mode="fill", fill_value=False)
    return jnp.concatenate([mask & is_before, are_new], 1), room


def append_stacked(buffer: Array, present: Array, places: Array) -> Array:
    """A buffer (2, sequences, heads, room, size) with the last keys and values of `present` at `places`."""
    count = places.shape[1]
    new = jnp.transpose(present[..., present.shape[-2] - count :, :], (1, 3, 0, 2, 4))
    return buffer.at[:, iota(buffer.shape[1])[:, None], :, places].set(new, mode="drop")


def batch_axis(name: str, sizes: Sequence[int | str | None] | None) -> int:
    """The axis of a state's batch, which is the only open axis."""
    is_open = [not isinstance(size, int) for size in sizes or ()]
    if sum(is_open) != 1:
        raise InvalidDesc(Problem(name, "must have sizes of which only the batch is open", show(sizes)))
    return is_open.index(True)


def rows_of_prompts(prompts: Any, vocabulary: int, lowest: int) -> tuple[list[list[int]], bool]:
    """The prompts as lists of tokens, and whether there is a single prompt, without a list around it."""
    nested = prompts.tolist() if isinstance(prompts, np.ndarray | jax.Array) else prompts
    wanted = "must be a list of tokens, or a list of such lists"
    if not isinstance(nested, Sequence) or isinstance(nested, str) or len(nested) == 0:
        raise InvalidType(Problem("prompts", wanted, show(nested)))
    is_single = not isinstance(nested[0], Sequence)
    rows = [list(row) if isinstance(row, Sequence) else row for row in ([nested] if is_single else nested)]
    for i, row in enumerate(rows):
        if not isinstance(row, list) or not all(isinstance(token, int | np.integer) for token in row):
            raise InvalidType(Problem(("prompts", i), wanted, show(row)))
        for token in row:
            if not lowest <= token < vocabulary:
                rule = f"must have tokens from 0 to {vocabulary - 1}, the model's vocabulary"
                raise InvalidDesc(Problem(("prompts", i), rule, token))
    return [[int(token) for token in row] for row in rows], is_single


def tokens_of_array(prompts: Array, images: Any) -> Array:
    """Prompts that are an argument of a transformed function, as an array of two dimensions."""
    if prompts.ndim not in (1, 2) or not jnp.issubdtype(prompts.dtype, jnp.integer) or not prompts.size:
        rule = "must be integers of the shape (tokens,) or (sequences, tokens)"
        raise InvalidType(Problem("prompts", rule, f"{prompts.dtype} of {prompts.shape}"))
    if images is not None:
        raise Unsupported(Problem("images", "not supported with an array of tokens under jax.jit"))
    return jnp.atleast_2d(prompts).astype(jnp.int32)


def round_up(count: int, limit: int) -> int:
    """A power of two that holds `count` tokens, so that few lengths are compiled."""
    return min(max(_FEWEST, 1 << max(count - 1, 0).bit_length()), limit)


def pad_rows(rows: Any, size: int) -> tuple[Any, Any]:
    """The rows in one array with zeros after their ends, and their lengths."""
    if any(map(is_traced, rows)):  # of equal lengths
        stacked = jnp.pad(jnp.stack(rows), ((0, 0), (0, size - rows[0].shape[0])))
        return stacked, np.full(len(rows), rows[0].shape[0], np.int32)
    tokens = np.zeros((len(rows), size), np.int32)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    return tokens, np.array([len(row) for row in rows], np.int32)


def iota(count: int) -> Array:
    """The numbers below `count`, in int32."""
    return lax.iota(np.int32, count)


def is_traced(value: Any) -> bool:
    """Whether a value is known only when a transformed function runs."""
    return isinstance(value, jax.core.Tracer)


def to_numpy(value: Any) -> Any:
    """The array in NumPy, unless it is traced."""
    return value if is_traced(value) else np.asarray(value)
