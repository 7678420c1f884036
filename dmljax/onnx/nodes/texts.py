"""Text operators, which NumPy computes on known values, because JAX has no strings."""

import itertools
import operator
import re
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.handlers.registry import handles, look_up
from dmljax.onnx.handlers.signatures import Known, KnownText, Vectors
from dmljax.onnx.values.types import Array, Results


@handles("StringConcat")
def _join_texts(a: KnownText, b: KnownText) -> Known:
    np.broadcast_shapes(a.shape, b.shape)  # raises the error here, from NumPy's Python code
    return np.asarray(np.frompyfunc(operator.add, 2, 1)(a, b), object)


@handles("StringSplit")
def _split_texts(x: KnownText, *, delimiter: str = "", maxsplit: int = -1) -> Results:
    parts = [text.split(delimiter or None, maxsplit) for text in x.ravel().tolist()]
    longest = max(map(len, parts), default=0)
    rows = np.full((len(parts), longest), "", object)
    for row, texts in zip(rows, parts, strict=True):
        row[: len(texts)] = texts
    return rows.reshape(*x.shape, longest), np.array([*map(len, parts)], np.int64).reshape(x.shape)


@handles("RegexFullMatch")
def _matches(x: KnownText, *, pattern: str) -> Known:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise InvalidDesc(Problem("pattern", f"invalid regular expression: {error}", repr(pattern))) from None
    matches = [expression.fullmatch(text) is not None for text in x.ravel().tolist()]
    return np.array(matches, bool).reshape(x.shape)


@handles("StringNormalizer")
def _normalize(
    x: KnownText,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "en_US",
    stopwords: Sequence[str] = (),
) -> Known:
    cases: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change = look_up("case_change_action", case_change_action, cases)
    stop = {*stopwords} if is_case_sensitive else {word.casefold() for word in stopwords}
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise InvalidDesc(Problem("X", "must be a vector or a single row", x.shape))
    texts_left = [text for text in x.ravel().tolist() if (text if is_case_sensitive else text.casefold()) not in stop]
    texts: Known = np.array([change(text) for text in texts_left] or [""], object)
    return texts.reshape(1, -1) if x.ndim == 2 else texts


@handles("TfIdfVectorizer")
def _count_grams(
    x: Vectors,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Array:
    # Only numbers get here: strings cannot become JAX arrays.
    rows = x.reshape(-1, x.shape[-1])
    columns = []
    bounds = [*ngram_counts, len(pool_int64s)]
    for length, (start, end) in enumerate(itertools.pairwise(bounds), 1):
        for place in range(start, end, length):
            gram = pool_int64s[place : place + length]
            columns.append(_count_of(rows, gram, max_skip_count if length > 1 else 0, min_gram_length, max_gram_length))
    if len(columns) != len(ngram_indexes) or (weights and len(weights) != len(columns)):
        raise InvalidDesc(Problem("ngram_indexes", f"must have {len(columns)} numbers", len(ngram_indexes)))
    counts = jnp.stack(columns, axis=-1).astype(jnp.float32)
    scales = jnp.asarray(weights or [1.0] * len(columns), jnp.float32)
    by_mode = {"TF": counts, "IDF": jnp.where(counts > 0, scales[None], 0), "TFIDF": counts * scales[None]}
    result = jnp.zeros((len(rows), max(ngram_indexes) + 1), jnp.float32)
    result = result.at[:, jnp.asarray(ngram_indexes)].set(look_up("mode", mode, by_mode))
    return result.reshape(*x.shape[:-1], -1)


def _count_of(rows: Array, gram: Sequence[int], most_skipped: int, shortest: int, longest: int) -> Array:
    """Counts an n-gram in each row, allowing equal gaps of skipped elements."""
    total = jnp.zeros(len(rows), jnp.int32)
    if not shortest <= len(gram) <= longest:
        return total
    for step in range(1, most_skipped + 2):
        count = rows.shape[-1] - (len(gram) - 1) * step
        if count > 0:
            hits = [rows[:, i * step : i * step + count] == number for i, number in enumerate(gram)]
            total += jnp.sum(jnp.all(jnp.stack(hits), axis=0), axis=-1, dtype=jnp.int32)
    return total
