"""Pictures of small arrays: each number in a colored cell. They need Matplotlib, from the extra `pictures`."""

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dmljax.calls.binding import check_arguments
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, inside, require, within
from dmljax.foundation import checks
from dmljax.foundation.extras import command_for
from dmljax.text import show as spelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@check_arguments
def show(
    arrays: Any,
    results: Any = None,
    *,
    columns: int | None = None,
    cell: float = 0.45,
    file: str | os.PathLike[str] | None = None,
) -> None:
    """Shows an array, or a dict of arrays by their titles, as colored cells; an arrow leads to the `results`.

    Positive numbers are blue and negative ones red, darker the farther from 0; infinities and NaN are gray. An array of
    fewer than two dimensions is shown as a row. One of more than two is shown as matrices: those along the third
    dimension from the end side by side while they fit, and all others below each other. In a notebook the picture
    appears below the cell, elsewhere in a window, and with `file` it is written there instead. `columns` is the number
    of arrays side by side, `cell` the size of a number's cell in inches.

    >>> mask = diagonal_matrix1(None, -jnp.inf, diagonal_fill_begin=1, output_sizes=(4, 4))
    >>> show({"a causal mask": mask}, file="mask.png")
    """
    with within("show"):
        path = None if file is None else checks.path("file", file)
        _grids("arrays", arrays)  # refuse wrong arrays before asking for a file
        present(lambda: draw(arrays, results, columns=columns, cell=cell), path)


def present(draw: Callable[[], "Figure"], file: str | os.PathLike[str] | None) -> None:
    """Shows what is drawn in a notebook or a window, or writes it to a file."""
    plt = pyplot()
    # Matplotlib itself only warns, and shows nothing.
    if file is None and plt.get_backend().lower() == "agg":
        raise Unsupported(Problem("file", "must be given, because no window can be opened here: file='picture.png'"))
    figure = draw()
    if file is None:
        plt.show()
    else:
        figure.savefig(file, dpi=min(160, _MAX_PIXELS / max(figure.get_size_inches())))
        plt.close(figure)


def draw(
    arrays: Any, results: Any = None, *, columns: int | None = None, cell: float = 0.45, heading: str = ""
) -> "Figure":
    """Draws what `show` shows as a Matplotlib figure.

    Below a heading, there are as many arrays side by side as fit its width.
    """
    plt = pyplot()
    grids = _grids("arrays", arrays)
    if results is not None:
        grids += [("", None), *_grids("results", results)]
    require("cell", cell > 0, "must be above 0", spelled(cell))
    if columns is None:
        grids, columns = _placed(grids, _HEADING_INCHES / cell) if heading else (grids, len(grids))
    columns = checks.integer_in("columns", columns, 1, len(grids))
    rows = -(-len(grids) // columns)
    widths, heights = _widths(grids, columns), _heights(grids, columns)
    lines = textwrap.wrap(heading, int(_HEADING_INCHES / _CHARACTER_INCHES))
    width = max(_total(widths) * cell, 5 * cell, max(map(len, lines), default=0) * _CHARACTER_INCHES + 0.1)
    size = (width, (sum(heights) + 1.2 * rows) * cell + 0.2 * len(lines))
    # Keep the background of the page.
    figure: Figure = plt.figure(figsize=size, layout="constrained", facecolor="none")
    if heading:
        style = {"family": "monospace", "fontsize": 9, "color": LINES}
        figure.suptitle("\n".join(lines), x=0.01, horizontalalignment="left", **style)
    places = figure.subplots(rows, columns, squeeze=False, width_ratios=widths, height_ratios=heights).ravel()
    for i, (place, (title, grid)) in enumerate(zip(places, grids, strict=False)):
        # All in the same units, so that every cell has the same size.
        height, width = heights[i // columns], widths[i % columns]
        place.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
        place.set_anchor("NW")
        place.set_axis_off()
        if grid is None:
            _draw_arrow(place, points_down=title == "down")
        else:
            _draw_grid(place, title, grid)
    for place in places[len(grids) :]:
        place.set_axis_off()
    return figure


Titled = tuple[str, np.ndarray[Any, Any] | None]  # a grid by its title; None is an arrow, to the right or down
_GAP: Titled = ("", np.full((1, 1), None))
_DOWN: Titled = ("down", None)


def _size(titled: Titled) -> tuple[int, float]:
    """The height and width of a grid in cells; each character of its title takes about a fifth of a cell."""
    title, grid = titled
    return _ARROW if grid is None else (grid.shape[0], max(grid.shape[1], 0.2 * len(title)))


def _widths(grids: Sequence[Titled], columns: int) -> list[float]:
    """The width of each column, in cells."""
    return [max(_size(grid)[1] for grid in grids[column::columns]) for column in range(columns)]


def _heights(grids: Sequence[Titled], columns: int) -> list[float]:
    """The height of each row, in cells."""
    return [max(_size(grid)[0] for grid in grids[row : row + columns]) for row in range(0, len(grids), columns)]


def _total(widths: Sequence[float]) -> float:
    return sum(widths) + 0.4 * len(widths)


def _placed(grids: list[Titled], room: float) -> tuple[list[Titled], int]:
    """Arranges the grids in as many columns as fit `room`, in cells; unless one row holds all, an arrow points down."""
    arrow = next((i for i, (_, grid) in enumerate(grids) if grid is None), len(grids))
    if _total(_widths(grids, len(grids))) <= room:
        return grids, len(grids)
    for columns in range(len(grids), 0, -1):
        down = [*[_GAP] * (-arrow % columns), _DOWN, *[_GAP] * (columns - 1)] if arrow < len(grids) else []
        filled = grids[:arrow] + down + grids[arrow + 1 :]
        if _total(_widths(filled, columns)) <= room:
            break
    return filled, columns


_ARROW = (1, 0.8)  # the size of an arrow, in cells
_HEADING_INCHES = 6.5  # as wide as the text of the site
_CHARACTER_INCHES = 0.0755  # of a heading
_MOST_COLUMNS = 12  # of matrices side by side
_MAX_PIXELS = 2**16 - 1  # the largest side of a picture that Matplotlib writes
LINES = "#7a7f87"  # visible on a white page and on a dark page
_MOST_NUMBERS = 4096  # in one array; with more, cells are unreadable and drawing takes seconds


def pyplot() -> Any:
    """Matplotlib's interface to windows and notebooks."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        remedy = command_for("pictures")
        raise Unsupported(Problem((), "Matplotlib must be installed to draw a picture", remedy=remedy)) from None
    return plt


def _grids(where: str, arrays: Any) -> list[Titled]:
    """A title and a matrix for each array of a dict, or for a single array."""
    if not isinstance(arrays, Mapping):
        return [("", _grid(where, arrays))]
    if not arrays:
        raise InvalidDesc(Problem(where, "must have at least one array", spelled(arrays)))
    with inside(where):
        return [(str(title), _grid(str(title), array)) for title, array in arrays.items()]


def _grid(where: str, array: Any) -> np.ndarray[Any, Any]:
    """A matrix of the array's numbers; rows and columns of None separate the matrices of an array of higher rank."""
    if isinstance(array, jax.core.Tracer):
        rule = "must be an array whose values are known; show it outside of jax.jit"
        raise InvalidType(Problem(where, rule, spelled(array)))
    x = checks.array(where, array)
    if not isinstance(x.dtype, np.dtype) or x.dtype.kind not in "biufV":  # V: NumPy's kind of bfloat16
        raise InvalidType(Problem(where, "must have real numbers", x.dtype))
    values = np.asarray(x)
    require(where, 0 < values.size <= _MOST_NUMBERS, f"must have 1 to {_MOST_NUMBERS} numbers", values.size)
    if values.ndim < 2 or (values.shape[-2:] == (1, 1) and values.size <= _MOST_COLUMNS):
        values = values.reshape(1, -1)
    count = next((size for size in values.shape[-3::-1] if size > 1), 1)
    most = max(1, (_MOST_COLUMNS + 1) // (values.shape[-1] + 1))
    beside = next(n for n in range(min(count, most), 0, -1) if count % n == 0)
    rows = values.astype(object).reshape(-1, beside, *values.shape[-2:])
    return _apart([_apart(list(row), axis=1) for row in rows], axis=0)


def _apart(matrices: Sequence[np.ndarray[Any, Any]], axis: int) -> np.ndarray[Any, Any]:
    """Joins matrices along an axis, with None between them."""
    gap = np.full_like(matrices[0].take([0], axis), None)
    return np.concatenate([piece for matrix in matrices for piece in (gap, matrix)][1:], axis)


def _draw_grid(place: "Axes", title: str, grid: np.ndarray[Any, Any]) -> None:
    from matplotlib.patches import Rectangle

    numbers = [float(value) for value in grid.ravel() if value is not None]
    largest = max((abs(number) for number in numbers if np.isfinite(number)), default=0) or 1
    for (row, column), value in np.ndenumerate(grid):
        if value is not None:
            color = _color(float(value) / largest)
            place.add_patch(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, color=color))
            black_or_white = "black" if _luminance(color) > 0.18 else "white"  # a contrast of at least 4.5 : 1
            text = _short(value)
            size = 8 * min(1, 6 / len(text))
            place.text(column, row, text, ha="center", va="center", fontsize=size, color=black_or_white)
    place.set_title(title, fontsize=9, loc="left", color=LINES)


def _short(value: Any) -> str:
    """A number in few characters; an integer of at most 10 digits is written in full."""
    number = float(value)
    texts = (f"{number:.10g}" if number.is_integer() else "", f"{number:g}", f"{number:.3g}", f"{number:.2g}")
    return next((text for text, most in zip(texts, (10, 6, 6), strict=False) if 0 < len(text) <= most), texts[-1])


def _color(part: float) -> tuple[float, ...]:
    """The color of a number, given as a fraction of the largest: blue above 0, red below, gray if it is not finite."""
    from matplotlib import colormaps

    if not np.isfinite(part):
        return (0.8, 0.8, 0.8)
    return tuple(colormaps["RdBu"](0.5 + 0.42 * part)[:3])


def _luminance(color: tuple[float, ...]) -> float:
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in color]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def _draw_arrow(place: "Axes", *, points_down: bool) -> None:
    start, end = ((0, -0.45), (0, 0.25)) if points_down else ((-0.45, 0), (0.25, 0))
    place.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": LINES, "linewidth": 1.5})
