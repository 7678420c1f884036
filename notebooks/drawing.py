"""Draws small arrays as coloured grids, for the notebooks and the reference."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Title = str


def draw(arrays: Mapping[Title, Any], *, cell: float = 0.45, columns: int | None = None) -> Figure:
    """The arrays side by side, each number in a coloured cell: darker is larger, grey is infinite or NaN.

    What has more than two dimensions is shown as matrices below each other, what has fewer as one row.
    """
    grids = {title: _grid(array) for title, array in arrays.items()}
    columns = columns or len(grids)
    rows = -(-len(grids) // columns)
    width = sum(sorted((grid.shape[1] + 1.2 for grid in grids.values()), reverse=True)[:columns])
    height = rows * (max(grid.shape[0] for grid in grids.values()) + 1.4)
    figure = plt.figure(figsize=(max(width * cell, 2.5), height * cell), layout="constrained")
    ratios = [max(grid.shape[1] for grid in list(grids.values())[column::columns]) for column in range(columns)]
    places = figure.subplots(rows, columns, squeeze=False, width_ratios=ratios).ravel()
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
    numbers = np.array([[np.nan if value is None else float(value) for value in row] for row in grid])
    finite = numbers[np.isfinite(numbers)]
    lowest, highest = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    colours = np.ma.masked_invalid(numbers)
    map_ = plt.get_cmap("Blues").with_extremes(bad="#dddddd")
    place.imshow(colours, cmap=map_, vmin=lowest, vmax=highest + 0.35 * (highest - lowest or 1), aspect="equal")
    for (row, column), value in np.ndenumerate(grid):
        if value is None:
            place.add_patch(plt.Rectangle((column - 0.51, row - 0.51), 1.02, 1.02, color="white"))
        else:
            place.text(column, row, f"{float(value):g}", ha="center", va="center", fontsize=8)
    place.set_title(title, fontsize=9)
    place.set_xticks(np.arange(-0.5, grid.shape[1]), labels=[])
    place.set_yticks(np.arange(-0.5, grid.shape[0]), labels=[])
    place.grid(color="white", linewidth=1.5)
    place.tick_params(length=0)
    place.spines[:].set_visible(False)
