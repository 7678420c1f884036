"""Finds functions by what they do, and by their names elsewhere: in jax.numpy, NumPy, PyTorch, ONNX and WebNN."""

import functools
import inspect
import json
import re
from collections.abc import Iterator
from importlib import resources

from dmljax.descriptors.base import OPERATORS
from dmljax.text import did_you_mean, join_words

_FAMILY_PREFIXES = ("activation_", "element_wise_logical_", "element_wise_bit_", "element_wise_")

# The words that people search for, and the functions that answer, the best first. The site's pages show them.
PURPOSES = {
    "attention mask": "diagonal_matrix1 multihead_attention1",
    "average pool": "average_pooling average_pooling1",
    "batch norm": "batch_normalization batch_normalization_training",
    "beam search": "top_k gather",
    "boolean mask": "nonzero_coordinates element_wise_if",
    "bounding boxes": "roi_align1 roi_pooling",
    "causal mask": "diagonal_matrix1 multihead_attention1",
    "compaction": "nonzero_coordinates",
    "contrast normalization": "local_response_normalization",
    "crop": "slice1 roi_align1",
    "deconvolution": "convolution",
    "depthwise convolution": "convolution",
    "dynamic quantization": "dynamic_quantize_linear",
    "embedding lookup": "gather",
    "embedding": "gather",
    "fake quantization": "element_wise_quantize_linear element_wise_dequantize_linear",
    "flash attention": "multihead_attention1 multihead_attention",
    "flip": "slice1 reverse_subsequences",
    "fully connected": "gemm",
    "global average pooling": "reduce average_pooling1",
    "gqa": "multihead_attention1",
    "grouped query attention": "multihead_attention1",
    "gumbel": "activation_hardmax random_generator",
    "im2col": "unfold",
    "image resize": "resample3 resample2",
    "index select": "gather",
    "iota": "fill_value_sequence",
    "kv cache": "multihead_attention1",
    "label smoothing": "one_hot",
    "linear layer": "gemm",
    "masked softmax": "activation_softmax1 diagonal_matrix1",
    "max unpool": "max_unpooling",
    "mha": "multihead_attention multihead_attention1",
    "mixture of experts": "activation_hardmax top_k nonzero_coordinates gather_nd1",
    "moe": "activation_hardmax top_k nonzero_coordinates gather_nd1",
    "moe dispatch": "activation_hardmax top_k nonzero_coordinates gather_nd1",
    "mqa": "multihead_attention1",
    "multi query attention": "multihead_attention1",
    "nearest neighbor": "resample2 upsample_2d",
    "optimizer": "adam_optimizer",
    "patches": "unfold space_to_depth1",
    "pixel shuffle": "depth_to_space depth_to_space1",
    "pixel unshuffle": "space_to_depth space_to_depth1",
    "prefix sum": "cumulative_summation",
    "pruning": "nonzero_coordinates",
    "quantized matmul": "quantized_linear_matrix_multiply matrix_multiply_integer_to_float",
    "random bits": "random_generator",
    "random numbers": "random_generator",
    "routing": "activation_hardmax top_k nonzero_coordinates gather_nd1",
    "scaled dot product attention": "multihead_attention multihead_attention1",
    "scan": "cumulative_summation cumulative_product",
    "self attention": "multihead_attention1 multihead_attention",
    "silu": "activation_swish",
    "sliding window": "unfold average_pooling1 diagonal_matrix1",
    "sparse": "nonzero_coordinates scatter_nd",
    "straight through": "element_wise_clip element_wise_quantize_linear",
    "token routing": "activation_hardmax top_k nonzero_coordinates gather_nd1",
    "transposed convolution": "convolution",
    "triangular mask": "diagonal_matrix1",
    "upscale": "resample3 upsample_2d depth_to_space1",
    "weight norm": "lp_normalization",
    "window attention": "diagonal_matrix1",
}


def functions_named(name: str) -> list[str]:
    """The functions named `name` apart from their prefix; case and underscores do not matter."""
    return [
        known
        for known in _functions()
        if _normalize_name(name) in (_normalize_name(known), _normalize_name(_without_prefix(known)))
    ]


def functions_called(name: str) -> list[str]:
    """The functions called `name` here or elsewhere, dmljax's own names first; `name` may have its library.

    >>> from dmljax.descriptors.search import functions_called
    >>> functions_called("LeakyRelu"), functions_called("pow"), functions_called("relu7")
    (['activation_leaky_relu'], ['element_wise_pow', 'element_wise_constant_pow'], [])
    """
    functions, (whole, last) = _foreign_names()["functions"], _split_library(name)
    if whole in functions and whole != last:
        return functions[whole].split()
    elsewhere = f"{functions.get(last, '')} {_purposes().get(last, '')}"
    return list(dict.fromkeys([*functions_named(last), *elsewhere.split()]))


def call_for(name: str) -> str | None:
    """Returns what to write for a foreign name without a function of its own here; None if the table lacks it.

    >>> from dmljax.descriptors.search import call_for
    >>> call_for("transpose"), call_for("torch.nn.functional.relu6"), call_for("relu")
    ('jnp.transpose(x, axes)', 'element_wise_clip(x, 0, 6)', None)
    """
    whole, last = _split_library(name)
    return None if whole != last and whole in _foreign_names()["functions"] else _foreign_names()["calls"].get(last)


def _split_library(name: str) -> tuple[str, str]:
    """A plain name with the usual name of its library, and without."""
    library, point, last = _normalize_name(name).rpartition(".")
    return _LIBRARIES.get(library, library) + point + last, last


_LIBRARIES = {"f": "torch.nn.functional", "jax.numpy": "jnp", "lax": "jax.lax", "nn": "torch.nn", "numpy": "np"}


# What the first of several functions of a name is for
_USUAL = {
    "attention": "multihead_attention (keys have as many heads as queries)",
    "quantizelinear": "element_wise_quantize_linear (its scale broadcasts)",
    "resize": "resample (it scales centers, as jax.image.resize does)",
}

MAX_FOUND = 8


def functions_for(words: str) -> list[str]:
    """Finds the functions called `words` here or elsewhere, or else those that all of the words match, best first.

    >>> from dmljax.descriptors.search import functions_for
    >>> functions_for("causal mask"), functions_for("hyperbolic tangent scaled")
    (['diagonal_matrix1', 'multihead_attention1'], ['activation_scaled_tanh'])
    """
    exact = functions_called(words)
    if exact:
        return exact
    stems = [_stem(word) for word in re.findall(r"[a-z0-9]+", words.lower())]
    scores = {function: [_score(word, function) for word in stems] for function in _functions()}
    matches = [function for function, word_scores in scores.items() if stems and all(word_scores)]
    return sorted(matches, key=lambda function: -sum(scores[function]))[:MAX_FOUND]


def _score(word: str, function: str) -> int:
    """Scores a word for a function: 3 if it is in its name, 2 if in its names elsewhere, 1 if in its summary."""
    name, elsewhere, summary = _texts()[function]
    return 3 * (word in name) or 2 * (word in elsewhere) or 1 * (word in summary)


@functools.cache
def _texts() -> dict[str, tuple[set[str], set[str], set[str]]]:
    """Returns the words of each function: in its name, in its names elsewhere and its purposes, and in its summary."""
    elsewhere: dict[str, list[str]] = {function: [] for function in _functions()}
    for name, functions in (*_foreign_names()["functions"].items(), *PURPOSES.items()):
        for function in functions.split():
            elsewhere[function].append(name)
    return {
        (function := operator.short_name.lower()): (
            set(_stems(function.replace("_", " "))),
            set(_stems(" ".join(elsewhere[function]))),
            set(_stems(summary_of(function))),
        )
        for operator in OPERATORS.values()
    }


def summary_of(function: str) -> str:
    """Returns the first paragraph of a function's documentation."""
    operator = next(operator for operator in OPERATORS.values() if operator.short_name.lower() == function)
    return " ".join((inspect.getdoc(operator.function) or "").partition("\n\n")[0].split())


def _stems(text: str) -> Iterator[str]:
    return map(_stem, re.findall(r"[a-z0-9]+", text.lower()))


def _stem(word: str) -> str:
    """Returns a word without the ending of a plural or of a verb, so that pools and pooling are equal."""
    return re.sub(r"(?<=[a-z0-9]{3})(ing|es|s|ed|e|d)$", "", word)


def hint(name: str) -> str:
    """`; use X` or `, did you mean X or Y?` for a name elsewhere, or for a function of a similar name; or ""."""
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    call = call_for(name)
    if call is not None:
        return f"; use {call}"
    functions = functions_called(name)
    usual = _USUAL.get(_split_library(name)[1])
    if usual and len(functions) > 1:
        functions = [usual, *(function for function in functions if function != usual.partition(" ")[0])]
    return f", did you mean {join_words(functions, 'or')}?" if functions else did_you_mean(name, _functions())


@functools.cache
def _foreign_names() -> dict[str, dict[str, str]]:
    """The functions by their names in other libraries, as listed on the operators' pages, and calls for other names."""
    return json.loads((resources.files("dmljax.descriptors") / "foreign_names.json").read_text())  # type: ignore[no-any-return]


@functools.cache
def _purposes() -> dict[str, str]:
    return {_normalize_name(purpose): functions for purpose, functions in PURPOSES.items()}


def _functions() -> list[str]:
    return [operator.short_name.lower() for operator in OPERATORS.values()]


def _normalize_name(name: str) -> str:
    """Lowercases a name, which may be a C++ struct or a DMLX function, and drops spaces, hyphens and underscores."""
    inner = re.sub(r"^dml::|^dml_(\w+)_operator_desc$", r"\1", name.lower())
    return re.sub(r"[\s_-]", "", inner)


def _without_prefix(function: str) -> str:
    prefix = next((prefix for prefix in _FAMILY_PREFIXES if function.startswith(prefix)), "")
    return function.removeprefix(prefix)
