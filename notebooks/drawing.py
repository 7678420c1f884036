"""Draws small arrays as coloured grids, for the notebooks and the reference; run, it draws the README's picture."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import dmljax
from dmljax.describe import find_operator
from dmljax.examples import examples_of


def draw(arrays: Mapping[str, Any], *, cell: float = 0.45, columns: int | None = None) -> Figure:
    """The arrays side by side, each number in a coloured cell: darker is further from 0, grey is infinite or NaN.

    What has more than two dimensions is shown as matrices below each other, what has fewer as one row.
    """
    grids = {title: _grid(array) for title, array in arrays.items()}
    columns = columns or len(grids)
    rows = -(-len(grids) // columns)
    # In cells; a title takes about a fifth of one for each character.
    sizes = [(grid.shape[0], max(grid.shape[1], 0.2 * len(title))) for title, grid in grids.items()]
    widths = [max(width for _, width in sizes[column::columns]) for column in range(columns)]
    heights = [max(height for height, _ in sizes[row * columns :][:columns]) for row in range(rows)]
    size = (max(sum(widths) + 0.4 * columns, 5) * cell, (sum(heights) + 1.2 * rows) * cell)
    figure = plt.figure(figsize=size, layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False, width_ratios=widths, height_ratios=heights).ravel()
    for place, (title, grid) in zip(places, grids.items(), strict=False):
        _draw_grid(place, title, grid)
    for place in places[len(grids) :]:
        place.set_axis_off()
    return figure


def _grid(array: Any) -> np.ndarray[Any, Any]:
    """A matrix of the array's numbers; the matrices of a higher rank lie below each other, apart by a row of NaN."""
    values = np.asarray(array)
    values = values.reshape(1, -1) if values.ndim < 2 else values
    matrices: Sequence[Any] = values.reshape(-1, *values.shape[-2:])
    apart = np.full((1, values.shape[-1]), None)
    pieces = [piece for matrix in matrices for piece in (apart, matrix.astype(object))]
    return np.concatenate(pieces[1:])


def _draw_grid(place: Axes, title: str, grid: np.ndarray[Any, Any]) -> None:
    numbers = np.array([[np.nan if value is None else abs(float(value)) for value in row] for row in grid])
    largest = max(numbers[np.isfinite(numbers)], default=0) or 1
    colours = np.ma.masked_invalid(numbers)
    map_ = plt.get_cmap("Blues").with_extremes(bad="#dddddd")
    place.imshow(colours, cmap=map_, vmin=0, vmax=1.35 * largest, aspect="equal")
    place.set_anchor("NW")
    for (row, column), value in np.ndenumerate(grid):
        if value is None:
            place.add_patch(plt.Rectangle((column - 0.51, row - 0.51), 1.02, 1.02, color="white"))
        else:
            place.text(column, row, f"{float(value):g}", ha="center", va="center", fontsize=8)
    place.set_title(title, fontsize=9, loc="left")
    place.set_xticks(np.arange(-0.5, grid.shape[1]), labels=[])
    place.set_yticks(np.arange(-0.5, grid.shape[0]), labels=[])
    place.grid(color="white", linewidth=1.5)
    place.tick_params(length=0)
    place.spines[:].set_visible(False)


def draw_example(name: str) -> Figure:
    """The first example of an operator's page, of one with inputs: these, and what dmljax makes of them."""
    examples = examples_of(find_operator(name))
    example = next((one for one in examples if one.inputs), examples[0])
    arrays = example.arrays(of_inputs=True) | example.computed()
    return draw({example.desc.member(field).name: array for field, array in arrays.items()})


def main(path: str) -> None:
    """Draws the README's picture: what goes into three operators, and what comes out."""
    x = jnp.array([[0.0, 3.0, 0.0, 1.0], [5.0, -0.0, 0.0, 2.0]])
    scores = jnp.array([[0.1, 2.5, -1.0, 0.3], [1.7, 0.2, 0.9, 1.7]])
    count, coordinates = dmljax.nonzero_coordinates(x, size=4)
    band = dmljax.diagonal_matrix1(None, -jnp.inf, diagonal_fill_begin=1, diagonal_fill_end=-1, output_sizes=(4, 4))
    arrays = {
        "scores": scores,
        "activation_hardmax": dmljax.activation_hardmax(scores),
        "x": x,
        f"nonzero_coordinates: {count}": coordinates,
        "diagonal_matrix1": band,
    }
    draw(arrays, cell=0.4).savefig(path, dpi=120)


if __name__ == "__main__":
    main(sys.argv[1])
