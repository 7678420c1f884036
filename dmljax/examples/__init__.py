"""The examples of DirectML's pages, and dmljax's own examples for operators whose page has none.

`python -m dmljax.examples` runs the pages' examples and compares the outputs.
"""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmljax.descriptors.base import Operator
from dmljax.errors import spell_path
from dmljax.examples.example import Example as Example
from dmljax.examples.own import OWN_EXAMPLES as OWN_EXAMPLES
from dmljax.examples.pages import EXAMPLES as EXAMPLES
from dmljax.text import join_sizes


def examples_of(operator: type[Operator]) -> list[Example]:
    """The examples of an operator's page, or dmljax's own if the page has none."""
    return [example for example in (*EXAMPLES, *OWN_EXAMPLES) if isinstance(example.desc, operator)]


def shown_example(example: Example, computed: Mapping[str, NDArray[Any]]) -> list[str]:
    """The lines that show an example: its inputs, and the outputs of dmljax beside the expected outputs."""
    source = "the page" if example in EXAMPLES else "expected"
    names = {leaf.key: spell_path(leaf.path) for leaf in example.desc.leaves()}
    head = f"{example.desc.short_name}, {example.title}: {'equal' if example.expects(computed) else 'DIFFERENT'}"
    inputs = [_columns(names[key], array) for key, array in example.arrays(of_inputs=True).items()]
    expected = example.arrays(of_inputs=False)
    outputs = [_columns(names[key], computed[key], array, source) for key, array in expected.items()]
    return [head, *([f"  ({example.note})"] if example.note else []), *inputs, *outputs]


def _columns(name: str, array: NDArray[Any], expected: NDArray[Any] | None = None, source: str = "") -> str:
    head = f"  {name} {array.dtype.name.upper()} {join_sizes(array.shape)}"
    ours = _matrix(array)
    if expected is None:
        return "\n".join([head, *(f"    {line}" for line in ours)])
    width = max(map(len, (*ours, "dmljax")))
    lines = zip_longest(["dmljax", *ours], [source, *_matrix(expected)], fillvalue="")
    return "\n".join([head, *(f"    {left:{width}}   {right}" for left, right in lines)])


def _matrix(array: NDArray[Any]) -> list[str]:
    """The printed lines of an array, without the brackets of leading dimensions of size 1."""
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return np.array2string(array, separator=" ").splitlines()
