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


def draw(
    arrays: Mapping[str, Any],
    results: Mapping[str, Any] | None = None,
    *,
    cell: float = 0.45,
    columns: int | None = None,
) -> Figure:
    """The arrays side by side, and an arrow to the `results`, if there are some: each number in a coloured cell.

    Blue is above 0 and red below, darker is further away; grey is infinite or NaN. What has more than two dimensions is
    shown as matrices below each other, what has fewer as one row. The background is that of the page.
    """
    grids = [(title, _grid(array)) for title, array in arrays.items()]
    if results is not None:
        grids += [("", None), *((title, _grid(array)) for title, array in results.items())]
    columns = columns or len(grids)
    rows = -(-len(grids) // columns)
    # In cells; a title takes about a fifth of one for each character.
    sizes = [_ARROW if grid is None else (grid.shape[0], max(grid.shape[1], 0.2 * len(title))) for title, grid in grids]
    widths = [max(width for _, width in sizes[column::columns]) for column in range(columns)]
    heights = [max(height for height, _ in sizes[row * columns :][:columns]) for row in range(rows)]
    size = (max(sum(widths) + 0.4 * columns, 5) * cell, (sum(heights) + 1.2 * rows) * cell)
    figure = plt.figure(figsize=size, layout="constrained", facecolor="none")
    places = figure.subplots(rows, columns, squeeze=False, width_ratios=widths, height_ratios=heights).ravel()
    for i, (place, (title, grid)) in enumerate(zip(places, grids, strict=False)):
        # All in the same units, so that every cell has the same size.
        height, width = heights[i // columns], widths[i % columns]
        place.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
        place.set_anchor("NW")
        place.set_axis_off()
        if grid is None:
            _draw_arrow(place)
        else:
            _draw_grid(place, title, grid)
    for place in places[len(grids) :]:
        place.set_axis_off()
    return figure


_ARROW = (1, 0.8)  # the size of an arrow, in cells
_LINES = "#7a7f87"  # told from a white page and from a dark one


def _grid(array: Any) -> np.ndarray[Any, Any]:
    """A matrix of the array's numbers; the matrices of a higher rank lie below each other, apart by a row of None."""
    values = np.asarray(array)
    values = values.reshape(1, -1) if values.ndim < 2 else values
    matrices: Sequence[Any] = values.reshape(-1, *values.shape[-2:])
    apart = np.full((1, values.shape[-1]), None)
    pieces = [piece for matrix in matrices for piece in (apart, matrix.astype(object))]
    return np.concatenate(pieces[1:])


def _draw_grid(place: Axes, title: str, grid: np.ndarray[Any, Any]) -> None:
    numbers = [float(value) for value in grid.ravel() if value is not None]
    largest = max((abs(number) for number in numbers if np.isfinite(number)), default=0) or 1
    for (row, column), value in np.ndenumerate(grid):
        if value is not None:
            colour = _colour(float(value) / largest)
            place.add_patch(plt.Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, color=colour))
            black_or_white = "black" if _luminance(colour) > 0.18 else "white"  # a contrast of at least 4.5 : 1
            place.text(column, row, f"{float(value):g}", ha="center", va="center", fontsize=8, color=black_or_white)
    place.set_title(title, fontsize=9, loc="left", color=_LINES)


def _colour(part: float) -> tuple[float, ...]:
    """The colour of a number that is this part of the largest: blue above 0, red below, grey if it is no number."""
    if not np.isfinite(part):
        return (0.8, 0.8, 0.8)
    return tuple(plt.get_cmap("RdBu")(0.5 + 0.42 * part)[:3])


def _luminance(colour: tuple[float, ...]) -> float:
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in colour]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def _draw_arrow(place: Axes) -> None:
    place.annotate("", (0.25, 0), (-0.45, 0), arrowprops={"arrowstyle": "->", "color": _LINES, "linewidth": 1.5})


def draw_example(name: str) -> Figure:
    """The first example of an operator's page, of one with inputs: these, and what dmljax makes of them."""
    examples = examples_of(find_operator(name))
    example = next((one for one in examples if one.inputs), examples[0])
    inputs, outputs = (
        {example.desc.member(field).name: array for field, array in arrays.items()}
        for arrays in (example.arrays(of_inputs=True), example.computed())
    )
    return draw(inputs, outputs) if inputs else draw(outputs)


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
    draw(arrays, cell=0.4).savefig(path, dpi=160)


if __name__ == "__main__":
    main(sys.argv[1])
