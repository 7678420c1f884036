"""Draws the examples of the operators' pages; run, it draws the README's picture."""

import sys
from typing import TYPE_CHECKING

import jax.numpy as jnp

import dmljax
from dmljax.describe import find_operator
from dmljax.errors import spell_path
from dmljax.examples import examples_of
from dmljax.pictures import draw, draw_all

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


def main(path: str) -> None:
    """Draws the README's picture: what goes into three operators, and what comes out."""
    x = jnp.array([[0.0, 3.0, 0.0, 1.0], [5.0, -0.0, 0.0, 2.0]])
    scores = jnp.array([[0.1, 2.5, -1.0, 0.3], [1.7, 0.2, 0.9, 1.7]])
    count, coordinates = dmljax.nonzero_coordinates(x, size=4)
    band = dmljax.diagonal_matrix1(None, -jnp.inf, diagonal_fill_begin=1, diagonal_fill_end=-1, output_sizes=(4, 4))
    steps = [
        ({"scores": scores}, {"activation_hardmax": dmljax.activation_hardmax(scores)}),
        ({"x": x}, {f"nonzero_coordinates, count {count}": coordinates}),
        ({"diagonal_matrix1": band}, None),
    ]
    draw_all(steps, cell=0.4).savefig(path, dpi=160)


if __name__ == "__main__":
    main(sys.argv[1])
