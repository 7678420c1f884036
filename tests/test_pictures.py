"""`dmljax.show`: what is in a picture, and what is refused."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmljax
from dmljax import DmlError
from dmljax.pictures import draw

plt = pytest.importorskip("matplotlib.pyplot", reason="the extra `pictures` is not installed")


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with plt.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


def texts(figure: Any) -> list[list[str]]:
    """What stands in the cells of each array, row by row."""
    return [[text.get_text() for text in place.texts if text.get_text()] for place in figure.axes]


def test_each_number_stands_in_a_cell() -> None:
    figure = draw({"scores": jnp.array([[0.5, -jnp.inf], [jnp.nan, 2.0]]), "flags": np.array([True, False])})
    assert [place.get_title(loc="left") for place in figure.axes] == ["scores", "flags"]
    assert texts(figure) == [["0.5", "-inf", "nan", "2"], ["1", "0"]]


def test_above_0_is_blue_below_it_red_and_what_is_no_number_grey() -> None:
    figure = draw(jnp.array([2.0, -2.0, jnp.inf, 0.0], jnp.bfloat16))
    above, below, infinite, zero = (patch.get_facecolor()[:3] for patch in figure.axes[0].patches)
    assert above[2] > above[0]
    assert below[0] > below[2]
    assert infinite == (0.8, 0.8, 0.8)
    assert min(zero) > 0.95


def test_an_arrow_leads_to_the_results() -> None:
    figure = draw({"x": jnp.arange(3)}, {"y": jnp.arange(2)})
    assert texts(figure) == [["0", "1", "2"], [], ["0", "1"]]


def test_matrices_of_a_higher_rank_lie_below_each_other_apart_by_a_row() -> None:
    (place,) = draw(np.zeros((2, 2, 3), np.int8)).axes
    assert {text.get_position()[1] for text in place.texts} == {0, 1, 3, 4}


def test_a_picture_is_written_to_the_file(tmp_path: Path) -> None:
    dmljax.show(jnp.eye(3), jnp.ones((2, 2)), file=tmp_path / "eye.png")
    assert (tmp_path / "eye.png").read_bytes().startswith(b"\x89PNG")
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 2]],), "arrays must be a JAX or NumPy array; got list (jnp.asarray makes one of it)"),
        (({},), "arrays must have at least one array; got {}"),
        (({"x": np.zeros((0, 3))},), "arrays.x must have 1 to 4096 numbers; got 0"),
        ((np.zeros(4097),), "arrays must have 1 to 4096 numbers; got 4097"),
        ((np.zeros(2), {"y": np.zeros(2, complex)}), "results.y must have real numbers; got complex128"),
        ((jax.random.key(0),), "arrays must have real numbers; got key<fry>"),
        ((np.zeros(2), None, {"columns": 2}), "columns must be in [1, 1]; got 2"),
        ((np.zeros(2), None, {"cell": 0}), "cell must be above 0; got 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    keywords = arguments[2] if len(arguments) == 3 else {}
    with pytest.raises(DmlError, match=f"^show: {re.escape(message)}$"):
        dmljax.show(*arguments[:2], file=tmp_path / "x.png", **keywords)
    assert list(tmp_path.iterdir()) == []


def test_a_traced_array_is_refused() -> None:
    with pytest.raises(DmlError, match=r"arrays must be an array whose values are known; .* got a traced float32\[3\]"):
        jax.jit(lambda x: dmljax.show(x, file="x.png"))(jnp.zeros(3, np.float32))


def test_without_a_window_a_file_must_be_given() -> None:
    with pytest.raises(DmlError, match=r"^show: file must be given where no window can be opened: file='picture\.png'"):
        dmljax.show(jnp.eye(2))


def test_without_matplotlib_its_installation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(DmlError, match=r"Matplotlib must be installed .*: pip install 'dmljax\[pictures\]'"):
        dmljax.show(jnp.eye(2))
