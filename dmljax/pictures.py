"""Pictures of small arrays, each number in a colored cell, and curves of functions. They need the extra `pictures`."""

import math
import os
import pathlib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.calls.binding import check_arguments
from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, Unsupported, Where, require, within
from dmljax.foundation import checks
from dmljax.foundation.extras import command_for
from dmljax.foundation.files import require_picture_file, unwritable
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
    cell: float | None = None,
    file: str | os.PathLike[str] | None = None,
) -> None:
    """Shows an array, or a dict of arrays by their titles, as colored cells; an arrow leads to the `results`.

    Positive numbers are blue and negative ones red, darker the farther from 0; infinities and NaN are gray. An array of
    fewer than two dimensions is shown as a row, which continues below if it is long. One of more than two is shown as
    matrices: those along the third dimension from the end side by side while they fit, and all others below each other,
    with a wider gap where a dimension before that changes. Results such as those of `max_pooling1` are shown by their
    fields, and a function of one number as its curve from -4 to 4.

    In a notebook the picture appears below the cell, elsewhere in a window, and with `file` it is written there
    instead. `columns` is the number of arrays side by side, by default as many as fit. `cell` is the size of a number's
    cell in inches, by default 0.45, or less where an array is wide.

    >>> mask = diagonal_matrix1(None, -jnp.inf, diagonal_fill_begin=1, output_sizes=(4, 4))
    >>> show({"a causal mask": mask}, file="mask.png")
    """
    with within("show"):
        present(lambda: draw(arrays, results, columns=columns, cell=cell), file)


def present(draw: Callable[[], "Figure"], file: str | os.PathLike[str] | None) -> None:
    """Shows what is drawn in a notebook or a window, or writes it to a file."""
    path = None if file is None else checks.path("file", file)
    plt = pyplot()
    figure = draw()  # refuse what cannot be drawn before asking for a file
    # Matplotlib itself only warns, and shows nothing.
    if path is None and plt.get_backend().lower() != "agg":
        plt.show()  # which may return while the window is open
        return
    try:
        if path is None:
            rule = "must be given, because no window can be opened here: file='picture.png'"
            raise Unsupported(Problem("file", rule))
        _write(figure, path)
    finally:
        plt.close(figure)


def _write(figure: "Figure", path: pathlib.Path) -> None:
    if path.suffix or path.is_dir():  # Matplotlib adds a missing suffix
        require_picture_file("file", path, {f".{form}" for form in figure.canvas.get_supported_filetypes()})
    try:
        figure.savefig(path, dpi=min(160, _MAX_PIXELS / max(figure.get_size_inches())))
    except OSError as error:
        raise unwritable("file", path, error) from None


def draw(
    arrays: Any, results: Any = None, *, columns: int | None = None, cell: float | None = None, heading: str = ""
) -> "Figure":
    """Draws what `show` shows as a Matplotlib figure.

    Below a heading, there are as many arrays side by side as fit its width.
    """
    plt = pyplot()
    if _is_function(arrays):
        for name, value in {"results": results, "columns": columns, "cell": cell}.items():
            require(name, value is None, "must not be given with a function", None)
        return _draw_function(arrays)
    grids = _grids(("arrays",), arrays)
    if results is not None:
        if isinstance(results, str | os.PathLike):
            remedy = f"file={os.fspath(results)!r} writes the picture"
            raise InvalidType(Problem("results", "must be arrays", spelled(results), remedy=remedy))
        grids += [("", None), *_grids(("results",), results)]
    size = _CELL_INCHES if cell is None else _cell_size(cell)
    if columns is None:
        grids, columns = _placed(grids, (_HEADING_INCHES if heading else _MOST_INCHES) / size)
    columns = checks.integer_in("columns", columns, 1, len(grids))
    rows = -(-len(grids) // columns)
    widths, heights = _widths(grids, columns), _heights(grids, columns)
    # Below half the size, numbers are unreadable.
    scale = 1.0 if cell is not None else min(1, max(0.5, _MOST_INCHES / (_total(widths) * size)))
    size *= scale
    lines = textwrap.wrap(heading, int(_HEADING_INCHES / _CHARACTER_INCHES))
    width = max(_total(widths) * size, 5 * size, max(map(len, lines), default=0) * _CHARACTER_INCHES + 0.1)
    height = (sum(heights) + 1.2 * rows) * size + 0.2 * len(lines)
    # Keep the background of the page.
    figure: Figure = plt.figure(figsize=(width, height), layout="constrained", facecolor="none")
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
            _draw_grid(place, title, grid, scale)
    for place in places[len(grids) :]:
        place.set_axis_off()
    return figure


def _cell_size(cell: Any) -> float:
    if isinstance(cell, bool) or not isinstance(cell, int | float | np.number) or not math.isfinite(cell):
        raise InvalidType(Problem("cell", "must be a finite number of inches", spelled(cell)))
    require("cell", bool(cell > 0), "must be above 0", spelled(cell))
    return float(cell)


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
_CELL_INCHES = 0.45
_MOST_INCHES = 10  # of the width of a picture, which has 1,600 pixels in a file
_MOST_COLUMNS = 12  # of matrices side by side
_LINE = 20  # the numbers in each line of a row that continues below
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


def named(results: Any) -> Mapping[Any, Any] | None:
    """Arrays by name, if they are in a mapping or a named tuple, without fields that are None."""
    if isinstance(results, tuple) and hasattr(results, "_asdict"):
        return {name: result for name, result in results._asdict().items() if result is not None}
    return results if isinstance(results, Mapping) else None


def _grids(where: Path, arrays: Any, title: str = "") -> list[Titled]:
    """A title and a matrix for each array by name, or for a single array."""
    arrays_by_name = named(arrays)
    if arrays_by_name is None:
        return [(title, _grid(where, arrays))]
    if not arrays_by_name:
        raise InvalidDesc(Problem(where, "must have at least one array", spelled(arrays)))
    return [
        grid
        for name, array in arrays_by_name.items()
        for grid in _grids((*where, str(name)), array, f"{title}.{name}" if title else str(name))
    ]


def _grid(where: Where, array: Any) -> np.ndarray[Any, Any]:
    """A matrix of the array's numbers; rows and columns of None separate the matrices of an array of higher rank."""
    if isinstance(array, jax.core.Tracer):
        rule = "must be an array whose values are known; show it outside of jax.jit"
        raise InvalidType(Problem(where, rule, spelled(array)))
    if _is_function(array):
        raise InvalidType(_not_a_curve(where, "must be an array", array))
    x = checks.array(where, array)
    if not isinstance(x.dtype, np.dtype) or x.dtype.kind not in "biufV":  # V: NumPy's kind of bfloat16
        raise InvalidType(Problem(where, "must have real numbers", x.dtype))
    values = np.asarray(x)
    require(where, 0 < values.size <= _MOST_NUMBERS, f"must have 1 to {_MOST_NUMBERS} numbers", values.size)
    if values.ndim < 2 and values.size > _MOST_INCHES / _CELL_INCHES:
        return _lines(values)
    if values.ndim < 2 or (values.shape[-2:] == (1, 1) and values.size <= _MOST_COLUMNS):
        values = values.reshape(1, -1)
    outer = values.shape[:-2]
    count = next((size for size in outer[::-1] if size > 1), 1)
    most = max(1, (_MOST_COLUMNS + 1) // (values.shape[-1] + 1))
    beside = next(n for n in range(min(count, most), 0, -1) if count % n == 0)
    rows = values.astype(object).reshape(-1, beside, *values.shape[-2:])
    gaps = [_gap(outer, i * beside) for i in range(1, len(rows))]
    return _apart([_apart(list(row), [_gap(outer, 1)] * (beside - 1), axis=1) for row in rows], gaps, axis=0)


def _lines(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers in lines, each with an ellipsis at its end if another one follows."""
    lines = -(-values.size // _LINE)
    grid = np.full((lines, _LINE + 1), None, object)
    grid[:-1, -1] = ...
    grid[:, :-1].flat[: values.size] = values.astype(object)
    return grid


def _gap(outer: Sequence[int], index: int) -> int:
    """The cells before the matrix of that index: one more for each dimension that begins anew with it."""
    return 1 + sum(index % math.prod(outer[-depth:]) == 0 for depth in range(1, len(outer)))


def _apart(matrices: Sequence[np.ndarray[Any, Any]], gaps: Sequence[int], axis: int) -> np.ndarray[Any, Any]:
    """Joins matrices along an axis, with rows or columns of None between them."""
    pieces = [
        piece
        for matrix, gap in zip(matrices, (0, *gaps), strict=True)
        for piece in (np.full_like(matrix.take([0] * gap, axis), None), matrix)
    ]
    return np.concatenate(pieces, axis)


# The curves of functions


X = np.linspace(-4, 4, 801, dtype=np.float32)  # what a curve is drawn from


def _is_function(value: Any) -> bool:
    return callable(value) and not hasattr(value, "__jax_array__")


def _name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", ""))
    return name if name.isidentifier() else "f"


def _not_a_curve(where: Where, rule: str, function: Any) -> Problem:
    name = _name_of(function)
    remedy = f"x = jnp.linspace(-4, 4, 9); show(x, {name}(x))"
    return Problem(where, rule, f"the function {name}", remedy=remedy)


def _draw_function(function: Any) -> "Figure":
    """The curve of a function, if it makes each number of its result from one number of a single array."""
    problem = _not_a_curve("arrays", "must be arrays or a function of one number", function)
    half = X.size // 2
    try:
        whole, part = (checks.array("arrays", function(jnp.asarray(x))) for x in (X, X[:half]))
    except (TypeError, ValueError) as error:
        raise InvalidType(problem) from error
    if whole.shape != X.shape or part.shape != (half,) or not jnp.isrealobj(whole):
        raise InvalidType(problem)
    y, y_part = np.asarray(whole, np.float64), np.asarray(part, np.float64)
    if not np.isfinite(y).any() or not np.allclose(y[:half], y_part, rtol=1e-3, equal_nan=True):
        raise InvalidType(problem)
    return draw_curve(f"{_name_of(function)}(x)", y)


def draw_curve(call: str, y: np.ndarray[Any, Any]) -> "Figure":
    """The curve of a function of one number, broken where it jumps; `y` has its results for `X`."""
    low, high = -4.2, 4.2
    jumps = np.flatnonzero(np.abs(np.diff(y.astype(float))) > 0.3)
    x, y = (np.insert(values, jumps + 1, np.nan) for values in (X, y.astype(float)))
    figure: Figure = pyplot().figure(figsize=(3.8, 2.7), layout="constrained", facecolor="none")
    axes = figure.subplots()
    axes.plot(x, y, color="#3b82c4", linewidth=2)
    finite = y[np.isfinite(y)]
    bottom, top = min(finite.min(), -0.5) - 0.3, max(finite.max(), 1) + 0.3
    axes.set(xlim=(low, high), ylim=(max(low, bottom), min(high, top)))
    axes.set_facecolor("none")
    axes.grid(color=LINES, alpha=0.25, linewidth=0.6)
    for side in ("left", "bottom"):
        axes.spines[side].set(position="zero", color=LINES)
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=LINES, labelsize=7, length=2)
    style = {"family": "monospace", "fontsize": min(8, 400 / len(call)), "color": LINES}
    figure.suptitle(call, x=0.01, horizontalalignment="left", **style)
    return figure


# The cells of arrays


def _draw_grid(place: "Axes", title: str, grid: np.ndarray[Any, Any], scale: float) -> None:
    from matplotlib.patches import Rectangle

    numbers = [float(value) for value in grid.ravel() if value is not None and value is not ...]
    largest = max((abs(number) for number in numbers if np.isfinite(number)), default=0) or 1
    for (row, column), value in np.ndenumerate(grid):
        if value is ...:
            place.text(column, row, "…", ha="center", va="center", fontsize=8 * scale, color=LINES)
        elif value is not None:
            color = _color(float(value) / largest)
            place.add_patch(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, color=color))
            black_or_white = "black" if _luminance(color) > 0.18 else "white"  # a contrast of at least 4.5 : 1
            text = _short(value)
            size = 8 * scale * min(1, 6 / len(text))
            place.text(column, row, text, ha="center", va="center", fontsize=size, color=black_or_white)
    place.set_title(title, fontsize=9 * scale, loc="left", color=LINES)


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
