"""Draws graphs as boxes in rows, each box below its inputs. Needs Matplotlib, as pictures do."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dmljax.pictures import LINES, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Places = Mapping[Hashable, tuple[float, int]]

_SWEEPS = 12  # passes over all rows
_ROW, _LINE, _LETTER, _GAP = 0.32, 0.12, 0.066, 0.25  # inches between rows, per line, per letter, between boxes


def draw(boxes: Mapping[str, Sequence[str]], arrows: Iterable[tuple[str, str]], filled: Iterable[str]) -> "Figure":
    """Draws boxes with their text; `boxes` must be sorted so that arrows lead only to later boxes."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    arrows = [*dict.fromkeys(arrows)]
    widths: dict[Hashable, float] = {name: _LETTER * max(map(len, lines)) + _GAP for name, lines in boxes.items()}
    depths = _depths(boxes, arrows)
    chains = [_chain(tail, head, depths) for tail, head in arrows]
    places = _place_boxes(depths, chains, widths)
    heights: dict[Hashable, float] = {name: _LINE * (len(lines) + 0.7) for name, lines in boxes.items()}
    tallest = [max((heights[name] for name in boxes if depths[name] == row), default=0.0) for row in _rows(depths)]
    middles = [sum(tallest[:row]) + tallest[row] / 2 + _ROW * row for row in _rows(depths)]
    left = min(x - widths.get(name, 0) / 2 for name, (x, _) in places.items())
    right = max(x + widths.get(name, 0) / 2 for name, (x, _) in places.items())
    size = (max(right - left, 1.0) + _GAP, sum(tallest) + _ROW * len(tallest))
    figure: Figure = pyplot().figure(figsize=size, facecolor="none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(left - _GAP / 2, left - _GAP / 2 + size[0]), ylim=(size[1] - _ROW / 2, -_ROW / 2))
    axes.set_axis_off()
    for name, lines in boxes.items():
        x, row = places[name]
        color = "#dbe9f6" if name in filled else "white"
        box = {"boxstyle": "round,pad=0.4", "facecolor": color, "edgecolor": LINES}
        axes.text(x, middles[row], "\n".join(lines), ha="center", va="center", fontsize=7, color="black", bbox=box)
    for tail, *between, head in chains:
        (first, first_row), (last, last_row) = places[tail], places[head]
        start = (first, middles[first_row] + heights[tail] / 2)
        end = (last, middles[last_row] - heights[head] / 2)
        points = [start, *((places[point][0], middles[places[point][1]]) for point in between), end]
        path = Path(*_curve(points))
        axes.add_patch(FancyArrowPatch(path=path, arrowstyle="->", mutation_scale=7, color=LINES, linewidth=0.8))
    return figure


def _curve(points: Sequence[tuple[float, float]]) -> tuple[list[tuple[float, float]], list[int]]:
    """The vertices and codes of a path that is vertical at each of these points."""
    curve, codes = [points[0]], [1]  # Matplotlib's MOVETO
    for (x, y), (next_x, next_y) in pairwise(points):
        curve += [(x, (y + next_y) / 2), (next_x, (y + next_y) / 2), (next_x, next_y)]
        codes += [4] * 3  # CURVE4
    return curve, codes


def _depths(names: Iterable[str], arrows: Sequence[tuple[str, str]]) -> dict[Hashable, int]:
    """The row of each box: below its lowest input, or just above its first reader if it has no inputs."""
    tails: dict[str, list[str]] = {}
    heads: dict[str, list[str]] = {}
    for tail, head in arrows:
        tails.setdefault(head, []).append(tail)
        heads.setdefault(tail, []).append(head)
    depths: dict[Hashable, int] = {}
    for name in names:
        depths[name] = 1 + max((depths[tail] for tail in tails.get(name, ())), default=-1)
    for name, readers in heads.items():
        if name not in tails:
            depths[name] = min(depths[reader] for reader in readers) - 1
    return depths


def _rows(depths: Mapping[Hashable, int]) -> range:
    return range(max(depths.values()) + 1)


def _chain(tail: str, head: str, depths: Mapping[Hashable, int]) -> list[Hashable]:
    """The points of an arrow: its tail, a point in each row it crosses, and its head. Arrows share a tail's points."""
    return [tail, *((tail, row) for row in range(depths[tail] + 1, depths[head])), head]


def _place_boxes(
    depths: Mapping[Hashable, int], chains: Sequence[Sequence[Hashable]], widths: Mapping[Hashable, float]
) -> Places:
    """Places the boxes so that few arrows cross, by repeatedly moving each to the mean of its neighbors."""
    steps = {step: None for chain in chains for step in pairwise(chain)}
    near: dict[Hashable, list[Hashable]] = {name: [] for name in depths}
    for first, second in steps:
        near.setdefault(first, []).append(second)
        near.setdefault(second, []).append(first)
    row_of = {name: depths.get(name, name[1] if isinstance(name, tuple) else 0) for name in near}
    rows: list[list[Hashable]] = [[] for _ in _rows(depths)]
    for name, row in row_of.items():
        rows[row].append(name)
    x = {name: float(i) for names in rows for i, name in enumerate(names)}
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        is_ordering = sweep < _SWEEPS - 4  # the last sweeps keep the order in each row
        for names in rows if is_down else reversed(rows):
            targets = {}
            for name in names:
                others = [
                    x[other] for other in near[name] if not is_ordering or (row_of[other] < row_of[name]) == is_down
                ]
                targets[name] = sum(others) / len(others) if others else x[name]
            if is_ordering:
                names.sort(key=targets.__getitem__)
            x |= _keep_apart(names, targets, widths)
    return {name: (x[name], row_of[name]) for name in near}


def _keep_apart(
    names: Sequence[Hashable], targets: Mapping[Hashable, float], widths: Mapping[Hashable, float]
) -> dict[Hashable, float]:
    """Moves boxes as little as possible so that none overlap: to the mean of shifting left and shifting right."""
    halves = [widths.get(name, 0.0) / 2 + _GAP / 2 for name in names]
    rightward = [targets[name] for name in names]
    leftward = rightward.copy()
    for i in range(1, len(names)):
        rightward[i] = max(rightward[i], rightward[i - 1] + halves[i - 1] + halves[i])
        leftward[-i - 1] = min(leftward[-i - 1], leftward[-i] - halves[-i] - halves[-i - 1])
    return {name: (left + right) / 2 for name, left, right in zip(names, leftward, rightward, strict=True)}
