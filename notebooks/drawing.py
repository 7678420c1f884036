"""Draws the pictures of the operators' pages, each from the call that stands on the page.

Numbers and other attributes stand in the picture as they are written there. `x` is every number from -4 to 4: such a
call is drawn as a curve.
"""

import ast
import doctest
import functools
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from matplotlib.patches import Rectangle

import dmljax
from dmljax import directml, functions
from dmljax.pictures import X, draw, draw_curve, named
from dmljax.text import join_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGES = Path(__file__).parent / "operators"


class Picture(NamedTuple):
    """A call with its attributes spelled out, and its input and output arrays by name."""

    call: str
    arrays: dict[str, Any]
    results: dict[str, Any]

    @property
    def is_curve(self) -> bool:
        """Whether the call has no arrays but `x`."""
        return not self.arrays and any(
            result.shape == X.shape for result in self.results.values()
        )

    @property
    def description(self) -> str:
        """What the picture shows, in words."""
        if self.is_curve:
            return f"The curve of {self.call} for x from -4 to 4"
        given = [f"{name} is {numbers(array)}" for name, array in self.arrays.items()]
        result = join_words(
            f"{name} {numbers(array)}".lstrip() for name, array in self.results.items()
        )
        call = self.call.replace("\u00a0", " ")
        return (
            f"{call}{f', where {join_words(given)},' if given else ''} gives {result}"
        )


def numbers(array: Any) -> str:
    """The numbers of an array if it has at most 32, or else its shape."""
    if array.size > 32:
        return f"an array of shape {array.shape}"
    return str(
        jax.tree.map(lambda number: float(f"{number:.3g}"), array.tolist())
    ).replace(".0", "")


def image(*rows: Any) -> Any:
    """An image of one channel, for the calls on the pages."""
    return np.float32([[[*rows]]])


@functools.cache
def source(name: str) -> tuple[ast.Call, dict[str, Any]]:
    """The call that a function's page draws, and the names that it may use."""
    text = (PAGES / f"{name}.md").read_text()
    (block,) = re.findall(
        rf"^```{{operator-function}} {name}\n(.*?)^```", text, re.M | re.S
    )
    *steps, last = doctest.DocTestParser().get_examples(block)
    names: dict[str, Any] = (
        vars(np) | vars(directml) | vars(functions) | {"x": X, "image": image}
    )
    for step in steps:
        exec(step.source, names)
    call = ast.parse(last.source, mode="eval").body
    if not isinstance(call, ast.Call):
        raise TypeError(f"{name}.md must end its block with the call to draw")
    return call, names


@functools.cache
def picture_of(name: str) -> Picture:
    """The picture of a function: the inputs and outputs of the call on its page."""
    call, names = source(name)
    function = getattr(dmljax, name)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    given = inspect.signature(function).bind(*call.args, **keywords).arguments
    values = {key: eval(ast.unparse(node), names) for key, node in given.items()}
    arrays = {
        key: value
        for key, value in values.items()
        if is_array(value) and value is not X
    }
    shown = given | {key: ast.Name(key) for key in arrays}
    shown |= {
        key: ast.Constant(value.item())
        for key, value in values.items()
        if isinstance(value, np.generic)
    }
    spelled = ast.Call(
        ast.Name(name),
        [shown[key] for key in list(given)[: len(call.args)]],
        [ast.keyword(key, shown[key]) for key in keywords],
    )
    results = function(**values)
    text = re.sub(
        r"\([\d, .-]+\)",
        lambda sizes: sizes[0].replace(" ", "\u00a0"),
        ast.unparse(spelled).replace("'", '"'),
    )
    return Picture(text, by_name(arrays), by_name(results_by_name(results)))


def is_array(value: Any) -> bool:
    """Whether a value is an array, or a list of arrays."""
    return isinstance(value, np.ndarray) or (
        isinstance(value, list) and all(map(is_array, value))
    )


def results_by_name(results: Any) -> Mapping[str, Any]:
    """The results of a function by name; a single result has no name."""
    if (fields := named(results)) is not None:
        return fields
    return {"result": results} if isinstance(results, list | tuple) else {"": results}


def by_name(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by name, with their positions in a sequence."""
    parts = {
        key: value if isinstance(value, list | tuple) else [value]
        for key, value in arrays.items()
    }
    return {
        f"{key}[{i}]" if len(several) > 1 else key: np.asarray(one)
        for key, several in parts.items()
        for i, one in enumerate(several)
    }


def draw_example(name: str) -> "Figure":
    """The picture of an operator's page."""
    picture = picture_of(name)
    if picture.is_curve:
        return draw_curve(picture.call, next(iter(picture.results.values())))
    if not picture.arrays:
        return draw(picture.results, heading=picture.call)
    figure = draw(picture.arrays, picture.results, heading=picture.call)
    given = {keyword.arg: keyword.value for keyword in source(name)[0].keywords}
    if (
        "_pooling" in name
        and "_grad" not in name
        and "window_sizes" in given
        and "start_padding" not in given
    ):
        sizes, apart = (
            ast.literal_eval(given.get(key, ast.Constant(1)))
            for key in ("window_sizes", "dilations")
        )
        frame_window(figure, sizes, apart, len(picture.results))
    return figure


def frame_window(figure: "Figure", sizes: Any, apart: Any, results: int) -> None:
    """Frames the elements of the input's first window, and those of the results that they become."""
    first, *others = (place for place in figure.axes if place.patches)
    for place in np.ndindex(*sizes):
        row, column = np.multiply(place, apart)
        first.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **FRAME))
    for result in others[-results:]:
        result.add_patch(Rectangle((-0.5, -0.5), 1, 1, **FRAME))


FRAME = {"fill": False, "edgecolor": "#d98032", "linewidth": 2.5, "clip_on": False}
