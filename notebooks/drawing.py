"""Draws the examples of the operators' pages."""

from typing import TYPE_CHECKING

from dmljax.describe import find_operator
from dmljax.errors import spell_path
from dmljax.examples import examples_of
from dmljax.pictures import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_example(name: str) -> "Figure":
    """The first example of an operator's page, of one with inputs: these, and what dmljax makes of them."""
    examples = examples_of(find_operator(name))
    example = next((one for one in examples if one.inputs), examples[0])
    inputs, outputs = (
        {spell_path(leaf.path): arrays[leaf.key] for leaf in example.desc.leaves() if leaf.key in arrays}
        for arrays in (example.arrays(of_inputs=True), example.computed())
    )
    return draw(inputs, outputs) if inputs else draw(outputs)
