"""Random bits by Philox 4x32-10, which encrypts a counter with a key: each block of four words depends on both.

The 128-bit counter and the 64-bit key are words of 32 bits, lowest first. Salmon, Moraes, Dror and Shaw, "Parallel
Random Numbers: As Easy as 1, 2, 3", 2011.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.dimensions import number
from dmljax.lowerings.platform import choose

_ROUNDS = 10
_FACTORS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85


def random_words(counter: Sequence[Array], key: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Fills an array of `sizes`, row by row, with the words of consecutive blocks, starting at `counter`.

    Each element computes its own block and keeps one word. Computing each block once takes less arithmetic, but XLA on
    CPU does not vectorize the loop that shuffles the four words, which then takes 10 times as long, and a mesh would
    exchange words.
    """
    position = _positions(sizes)
    words = advance(counter, position >> np.uint32(2))
    keys = [
        [word + np.uint32(turn * step % 2**32) for turn in range(_ROUNDS)]
        for word, step in zip(key, _KEY_STEPS, strict=True)
    ]
    return choose(position & np.uint32(3), words, keys, tpu=_encrypt_by_halves, default=_encrypt)


def _encrypt(place: Array, words: Sequence[Array], keys: Sequence[Sequence[Array]]) -> Array:
    """The word at `place` of each encrypted block.

    Backends multiply the low halves of 64-bit integers with one instruction. Truncating words to 32 bits after each
    round takes twice as long, and products of 16 bits 3 times. These lines enable JAX's 64-bit types, which may be
    disabled. `vmap` would truncate a 64-bit constant, so constants are converted like words.
    """
    with jax.enable_x64(True):
        low_bits, shift, *factors = (_to_uint64(lax.full_like(place, value)) for value in (2**32 - 1, 32, *_FACTORS))
        first, second, third, fourth = map(_to_uint64, words)
        for first_key, second_key in zip(*keys, strict=True):
            left, right = (first & low_bits) * factors[0], (third & low_bits) * factors[1]
            first, second = (right >> shift) ^ second ^ _to_uint64(first_key), right
            third, fourth = (left >> shift) ^ fourth ^ _to_uint64(second_key), left
        return lax.convert_element_type(_select_word(place, first, second, third, fourth), np.uint32)


def _encrypt_by_halves(place: Array, words: Sequence[Array], keys: Sequence[Sequence[Array]]) -> Array:
    """Does the same for a TPU, which has no 64-bit integers; emulating them takes 1.5 times as long.

    `lax.mulhi` of JAX 0.10.2 takes 1.2 times as long: XLA expects one operation, but a v5e runs 117 bundles for 1,024
    words, instead of 95. Computing each block once takes more than twice as long, as XLA repeats it for each word.
    """
    first, second, third, fourth = words
    for first_key, second_key in zip(*keys, strict=True):
        (left_high, left), (right_high, right) = (
            _product(*pair) for pair in zip((first, third), _FACTORS, strict=True)
        )
        first, second = right_high ^ second ^ first_key, right
        third, fourth = left_high ^ fourth ^ second_key, left
    return _select_word(place, first, second, third, fourth)


def _product(word: Array, factor: int) -> tuple[Array, Array]:
    """The high and the low word of a product."""
    low_factor, high_factor = np.uint32(factor % 2**16), np.uint32(factor >> 16)
    low, high = word & np.uint32(2**16 - 1), word >> np.uint32(16)
    middle = high * low_factor + (low * low_factor >> np.uint32(16))
    upper = low * high_factor + (middle & np.uint32(2**16 - 1))
    return high * high_factor + (middle >> np.uint32(16)) + (upper >> np.uint32(16)), word * np.uint32(factor)


def _select_word(place: Array, first: Array, second: Array, third: Array, fourth: Array) -> Array:
    """The element at `place`, 0 to 3."""
    return jnp.where(place < 2, jnp.where(place == 0, first, second), jnp.where(place == 2, third, fourth))


def _to_uint64(word: Array) -> Array:
    """A word as a 64-bit integer."""
    return lax.convert_element_type(word, np.uint64)


def advance(counter: Sequence[Array], blocks: Array) -> list[Array]:
    """`counter + blocks`, modulo 2**128."""
    first = counter[0] + blocks
    words, carry = [first], first < blocks
    for word in counter[1:]:
        words.append(word + carry.astype(np.uint32))
        carry = carry & (words[-1] == 0)
    return words


def _positions(sizes: Sequence[int]) -> Array:
    """The position of each element, row by row."""
    position, step = jnp.zeros(tuple(sizes), np.uint32), 1
    for axis in reversed(range(len(sizes))):
        position += lax.broadcasted_iota(np.uint32, tuple(sizes), axis) * number(step, np.uint32)
        step *= sizes[axis]
    return position
