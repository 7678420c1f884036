"""The examples of DirectML's pages, and of docstrings for operators whose page has none.

`python -m dmljax.examples` runs the pages' examples and compares the outputs.
"""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmljax.calls.binding import check_arguments
from dmljax.errors import spell_path
from dmljax.examples.example import Example
from dmljax.examples.transcripts import examples_of, page_examples, samples_of_calls
from dmljax.text import join_sizes

__all__ = ["Example", "example_lines", "examples_of", "page_examples", "samples_of_calls"]


@check_arguments
def example_lines(example: Example, computed: Mapping[str, NDArray[Any]]) -> list[str]:
    """The lines that show an example: its inputs, and dmljax's outputs next to the page's expected ones."""
    names = {leaf.key: spell_path(leaf.path) for leaf in example.desc.leaves()}
    head = f"{example.desc.short_name}, {example.title}"
    expected: Mapping[str, NDArray[Any]] = {}
    if example.is_of_page:
        expected = example.arrays(of_inputs=False)
        head += f": {'equal' if example.expects(computed) else 'DIFFERENT'}"
    inputs = [_columns(names[key], array) for key, array in example.arrays(of_inputs=True).items()]
    outputs = [_columns(names[key], array, expected.get(key)) for key, array in computed.items()]
    return [head, *([f"  ({example.note})"] if example.note else []), *inputs, *outputs]


def _columns(name: str, array: NDArray[Any], expected: NDArray[Any] | None = None) -> str:
    head = f"  {name} {array.dtype.name.upper()} {join_sizes(array.shape)}"
    ours = _matrix(array)
    if expected is None:
        return "\n".join([head, *(f"    {line}" for line in ours)])
    width = max(map(len, (*ours, "dmljax")))
    lines = zip_longest(["dmljax", *ours], ["the page", *_matrix(expected)], fillvalue="")
    return "\n".join([head, *(f"    {left:{width}}   {right}" for left, right in lines)])


def _matrix(array: NDArray[Any]) -> list[str]:
    """The printed lines of an array, without the brackets of leading dimensions of size 1."""
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return np.array2string(array, separator=" ").splitlines()


def __dir__() -> list[str]:
    return __all__
