"""`dmljax.show`: the contents of pictures, and refusals."""

import itertools
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL, GATE, SAMPLED

import dmljax
from dmljax import DmlError, directml, pictures
from dmljax.command_line.describe import function_name
from dmljax.directml import DataType, Graph, TensorDesc
from dmljax.pictures import draw


@pytest.fixture(autouse=True)
def plt() -> Iterator[Any]:
    """Matplotlib without windows, which takes a second to import."""
    module = pytest.importorskip("matplotlib.pyplot", reason="the extra `pictures` is not installed")
    with module.rc_context({"backend": "agg"}):
        yield module
    module.close("all")


def texts(figure: Any) -> list[list[str]]:
    """The text in the cells of each array, row by row."""
    return [[text.get_text() for text in place.texts if text.get_text()] for place in figure.axes]


@GATE
def test_each_number_has_a_cell() -> None:
    figure = draw({"scores": jnp.array([[0.5, -jnp.inf], [jnp.nan, 2.0]]), "flags": np.array([True, False])})
    assert [place.get_title(loc="left") for place in figure.axes] == ["scores", "flags"]
    assert texts(figure) == [["0.5", "-inf", "nan", "2"], ["1", "0"]]


def test_positive_numbers_are_blue_negative_ones_red_and_nan_gray() -> None:
    figure = draw(jnp.array([2.0, -2.0, jnp.inf, 0.0], jnp.bfloat16))
    above, below, infinite, zero = (patch.get_facecolor()[:3] for patch in figure.axes[0].patches)
    assert above[2] > above[0]
    assert below[0] > below[2]
    assert infinite == (0.8, 0.8, 0.8)
    assert min(zero) > 0.95


def test_an_arrow_leads_to_the_results() -> None:
    figure = draw({"x": jnp.arange(3)}, {"y": jnp.arange(2)})
    assert texts(figure) == [["0", "1", "2"], [], ["0", "1"]]


def test_matrices_of_a_higher_rank_are_side_by_side_while_they_fit() -> None:
    (place,) = draw(np.zeros((2, 2, 3), np.int8)).axes
    assert {text.get_position() for text in place.texts} == {(x, y) for x in (0, 1, 2, 4, 5, 6) for y in (0, 1)}
    (place,) = draw(np.zeros((3, 2, 5), np.int8)).axes
    assert {text.get_position()[1] for text in place.texts} == {0, 1, 3, 4, 6, 7}


def test_matrices_of_one_number_form_a_row() -> None:
    (place,) = draw(np.zeros((3, 1, 1), np.int8)).axes
    assert {text.get_position() for text in place.texts} == {(0, 0), (1, 0), (2, 0)}


def test_numbers_are_as_short_as_their_cells() -> None:
    numbers = np.array([1 / 3, -1 / 3, 2**24 + 1, 1e30, 1.4e-45, -0.0])
    assert texts(draw(numbers)) == [["0.333", "-0.333", "16777217", "1e+30", "1.4e-45", "-0"]]


def positions(array: Any) -> tuple[list[float], list[float]]:
    """The columns and rows that have numbers."""
    (place,) = draw(array).axes
    columns, rows = zip(*(text.get_position() for text in place.texts if text.get_text() != "…"), strict=True)
    return sorted(set(columns)), sorted(set(rows))


def test_the_gap_is_wider_where_a_batch_begins() -> None:
    assert positions(np.zeros((1, 6, 1, 3))) == ([0, 1, 2, 4, 5, 6, 8, 9, 10], [0, 2])
    assert positions(np.zeros((2, 3, 1, 3))) == ([0, 1, 2, 4, 5, 6, 8, 9, 10], [0, 3])
    assert positions(np.zeros((2, 1, 2, 1))) == ([0, 3], [0, 1])


def test_a_long_row_continues_below() -> None:
    figure = draw(np.arange(45))
    assert texts(figure) == [[*map(str, range(20)), "…", *map(str, range(20, 40)), "…", *map(str, range(40, 45))]]
    assert positions(np.arange(45)) == ([*range(20)], [0, 1, 2])


@pytest.mark.parametrize("arrays", [{"x": np.zeros(40), "y": np.zeros(40)}, np.zeros((2, 40)), np.zeros(22)])
def test_a_wide_picture_is_at_most_ten_inches_wide(arrays: Any) -> None:
    assert 9 < draw(arrays).get_size_inches()[0] <= 10.001


def test_results_are_shown_by_their_fields() -> None:
    def titles(*arrays: Any) -> list[str]:
        return [place.get_title(loc="left") for place in draw(*arrays).axes if place.patches]

    image = np.zeros((1, 1, 2, 2), np.float32)
    pooled = dmljax.max_pooling1(image, window_sizes=2)
    assert titles(image, pooled) == ["", "values", "indices"]
    assert titles({"pooled": pooled}) == ["pooled.values", "pooled.indices"]
    assert titles(image, pooled._replace(indices=None)) == ["", "values"]


def test_a_function_of_one_array_is_shown_as_a_curve() -> None:
    figure: Any = draw(dmljax.activation_relu)
    (line,) = figure.axes[0].lines
    assert figure.get_suptitle() == "activation_relu(x)"
    assert line.get_ydata().tolist() == np.maximum(line.get_xdata(), 0).tolist()


def test_results_that_do_not_fit_are_below_an_arrow_that_points_down() -> None:
    def places(wide: int) -> dict[str, tuple[int, int]]:
        figure: Any = draw({"x": np.zeros(wide), "z": np.zeros(2)}, {"y": np.zeros(5)}, heading="f(x, z)")
        assert figure.get_suptitle() == "f(x, z)"
        grids = {axes.get_title(loc="left"): axes.get_subplotspec() for axes in figure.axes}
        return {title: (grids[title].rowspan.start, grids[title].colspan.start) for title in "xzy"}

    assert places(wide=3) == {"x": (0, 0), "z": (0, 1), "y": (0, 3)}, "beside the arrow"
    assert places(wide=7) == {"x": (0, 0), "z": (0, 1), "y": (2, 0)}, "below the arrow"
    assert places(wide=12) == {"x": (0, 0), "z": (1, 0), "y": (3, 0)}


# The pictures of the operators' pages


@pytest.fixture(scope="module")
def drawing() -> Any:
    """The module that draws them, beside the pages."""
    return runpy.run_path(str(Path(__file__).parents[1] / "notebooks" / "drawing.py"))


@SAMPLED
@pytest.mark.parametrize("name", [*map(function_name, directml.OPERATORS.values())])
def test_each_page_has_a_picture_of_its_operator(name: str, drawing: Any) -> None:
    assert drawing["picture_of"](name).call.startswith(f"{name}(")


def test_a_picture_shows_the_call_with_its_attributes(drawing: Any) -> None:
    figure = drawing["draw_example"]("nonzero_coordinates")
    assert figure.get_suptitle() == "nonzero_coordinates(input, size=4)"
    assert [place.get_title(loc="left") for place in figure.axes] == ["input", "", "count", "coordinates"]
    assert drawing["picture_of"]("nonzero_coordinates").description == (
        "nonzero_coordinates(input, size=4), where input is [[0, 3, 0], [5, 0, 1]], "
        "gives count 3 and coordinates [[0, 1], [1, 0], [1, 2], [0, 0]]"
    )


@pytest.mark.parametrize(("name", "apart"), [("max_pooling1", 1), ("max_pooling2", 2)])
def test_a_picture_of_pooling_frames_the_first_window_and_what_it_becomes(drawing: Any, name: str, apart: int) -> None:
    def framed(place: Any) -> list[tuple[float, float]]:
        return [part.get_xy() for part in place.patches if not part.get_fill()]

    image, arrow, *results = drawing["draw_example"](name).axes
    assert framed(image) == [(x * apart - 0.5, y * apart - 0.5) for y in (0, 1) for x in (0, 1)]
    assert [framed(part) for part in (arrow, *results)] == [[], [(-0.5, -0.5)], [(-0.5, -0.5)]]


def test_the_picture_of_grouped_attention_shows_how_the_cache_grows(drawing: Any) -> None:
    picture = drawing["picture_of"]("multihead_attention1")
    assert picture.arrays["past_key"].tolist() == [[[[9, 0], [0, 0], [0, 0]]]]
    assert picture.results["present_key"].tolist() == [[[[9, 0], [0, 9], [0, 0]]]]


def test_a_function_of_one_number_is_drawn_as_a_curve(drawing: Any) -> None:
    figure = drawing["draw_example"]("element_wise_floor")
    (line,) = figure.axes[0].lines
    assert figure.get_suptitle() == "element_wise_floor(x)"
    assert np.isnan(line.get_ydata()).sum() == 8, "it is broken where it jumps"
    assert (
        drawing["picture_of"]("element_wise_floor").description
        == "The curve of element_wise_floor(x) for x from -4 to 4"
    )


def test_a_picture_is_written_to_the_file(plt: Any, tmp_path: Path) -> None:
    dmljax.show(jnp.eye(3), jnp.ones((2, 2)), file=tmp_path / "eye.png")
    assert (tmp_path / "eye.png").read_bytes().startswith(b"\x89PNG")
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 2]],), "arrays must be a JAX or NumPy array; got list (jnp.asarray converts it)"),
        (({},), "arrays must have at least one array; got {}"),
        (({"x": np.zeros((0, 3))},), "arrays.x must have 1 to 4096 numbers; got 0"),
        ((np.zeros(4097),), "arrays must have 1 to 4096 numbers; got 4097"),
        ((np.zeros(2), {"y": np.zeros(2, complex)}), "results.y must have real numbers; got complex128"),
        ((jax.random.key(0),), "arrays must have real numbers; got key<fry>"),
        ((np.zeros(2), None, {"columns": 2}), "columns must be in [1, 1]; got 2"),
        ((np.zeros(2), None, {"cell": 0}), "cell must be above 0; got 0"),
        ((np.zeros(2), None, {"cell": "big"}), "cell must be a finite number of inches; got 'big'"),
        ((np.zeros(2), "out.png"), "results must be arrays; got 'out.png' (file='out.png' writes the picture)"),
        (
            (np.zeros(2), None, {"title": "a"}),
            "got an unexpected keyword argument 'title' (show({\"relu\": x}) titles an array)",
        ),
        ((dmljax.activation_relu, None, {"columns": 2}), "columns must not be given with a function"),
        (
            (dmljax.activation_softmax,),
            "arrays must be arrays or a function of one number; got the function activation_softmax "
            "(x = jnp.linspace(-4, 4, 9); show(x, activation_softmax(x)))",
        ),
        (
            (np.zeros(2), dmljax.activation_relu),
            "results must be an array; got the function activation_relu "
            "(x = jnp.linspace(-4, 4, 9); show(x, activation_relu(x)))",
        ),
    ],
)
def test_arrays_that_cannot_be_drawn_are_refused(arguments: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    keywords = arguments[2] if len(arguments) == 3 else {}
    with pytest.raises(DmlError, match=f"^show: {re.escape(message)}$"):
        dmljax.show(*arguments[:2], file=tmp_path / "x.png", **keywords)
    assert list(tmp_path.iterdir()) == []


def test_a_traced_array_is_refused() -> None:
    with pytest.raises(DmlError, match=r"arrays must be an array whose values are known; .* got a traced float32\[3\]"):
        jax.jit(lambda x: dmljax.show(x, file="x.png"))(jnp.zeros(3, np.float32))


def test_a_file_is_required_without_a_window() -> None:
    with pytest.raises(
        DmlError, match=r"^show: file must be given, because no window can be opened here: file='picture\.png'"
    ):
        dmljax.show(jnp.eye(2))


def test_arrays_are_checked_before_a_file_is_required() -> None:
    with pytest.raises(DmlError, match=r"^show: results\.y must be a JAX or NumPy array; got str"):
        dmljax.show(jnp.eye(2), {"y": "hello"})


@pytest.mark.parametrize(
    ("file", "rule"),
    [
        ("out.xyz", "must end as a picture's name does; got .*out.xyz"),
        ("missing/out.png", "must be a file in a folder that exists; got .*out.png"),
        ("missing/out", "must be a writable file; got .*No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(plt: Any, file: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(DmlError, match=f"^show: file {rule}"):
        dmljax.show(jnp.eye(2), file=tmp_path / file)
    assert plt.get_fignums() == []


def test_missing_matplotlib_is_refused_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(DmlError, match=r"Matplotlib must be installed .*\(pip install .*\[pictures\]'\)$"):
        dmljax.show(jnp.eye(2))


# Diagrams of graphs


TENSOR = TensorDesc(DataType.FLOAT32, (2, 3))
BYTES = TensorDesc(DataType.UINT8, (2, 3))


def boxes(figure: Any) -> dict[str, tuple[Any, ...]]:
    """The box of each text, by its first line: left, bottom, right and top, and its other lines."""
    figure.canvas.draw()
    (axes,) = figure.axes
    return {
        (lines := text.get_text().split("\n"))[0]: (*text.get_bbox_patch().get_window_extent().extents, *lines[1:])
        for text in axes.texts
    }


def unary(name: str, **more: Any) -> Any:
    return getattr(directml, name)(input=TENSOR, output=TENSOR, **more)


def a_graph(**changed: Any) -> Graph:
    """Two paths from an input to a sum, one longer, and a constant."""
    parts: dict[str, Any] = {
        "nodes": {
            "sum": directml.ElementWiseAddDesc(a=TENSOR, b=TENSOR, output=TENSOR),
            "relu": unary("ActivationReluDesc"),
            "scaled": directml.ElementWiseMultiplyDesc(a=TENSOR, b=TENSOR, output=TENSOR),
            "flags": directml.ElementWiseIsNanDesc(input=TENSOR, output=BYTES),
        },
        "edges": {
            "relu.input": "x",
            "scaled.a": "relu.output",
            "scaled.b": "weights",
            "sum.a": "scaled.output",
            "sum.b": "x",
            "flags.input": "x",
        },
        "inputs": {"x": TENSOR},
        "constants": {"weights": np.ones((2, 3), "float32")},
        "outputs": {"y": "sum.output", "has": "flags.output"},
    }
    return Graph(**parts | changed)


def test_a_graph_is_drawn_from_its_inputs_down_to_its_outputs() -> None:
    drawn = boxes(a_graph()._drawing)
    assert {name: lines for name, (_, _, _, _, *lines) in drawn.items()} == {
        "x": ["2 x 3"],
        "relu": ["ACTIVATION_RELU 2 x 3"],
        "scaled": ["ELEMENT_WISE_MULTIPLY 2 x 3", "b: weights"],
        "sum": ["ELEMENT_WISE_ADD 2 x 3"],
        "flags": ["ELEMENT_WISE_IS_NAN 2 x 3 UINT8"],
        "y": ["2 x 3"],
        "has": ["2 x 3 UINT8"],
    }
    for above, below in itertools.pairwise(["x", "relu", "scaled", "sum", "y"]):
        assert drawn[above][1] > drawn[below][3], "pixels count from below"


def test_boxes_do_not_overlap_or_leave_the_picture() -> None:
    nodes = {f"n{i}": unary("ActivationReluDesc") for i in range(12)}
    edges = {f"n{i}.input": "x" if i % 3 == 0 else f"n{i // 3}.output" for i in range(12)}
    figure = Graph(nodes=nodes, edges=edges, inputs={"x": TENSOR}, outputs={"y": "n11.output"})._drawing
    drawn = boxes(figure)
    for box, other in itertools.combinations(drawn.values(), 2):
        assert box[0] > other[2] or other[0] > box[2] or box[1] > other[3] or other[1] > box[3]
    assert min(min(box[:2]) for box in drawn.values()) >= 0
    assert max(box[2] for box in drawn.values()) <= figure.bbox.width
    assert max(box[3] for box in drawn.values()) <= figure.bbox.height


def test_an_arrow_goes_past_the_boxes_between() -> None:
    figure = a_graph()._drawing
    drawn = boxes(figure)
    (axes,) = figure.axes
    paths = [axes.transData.transform(patch.get_path().vertices) for patch in axes.patches]
    longest = max(paths, key=len)  # from x to the sum
    for name in ("relu", "scaled"):
        left, bottom, right, top = drawn[name][:4]
        inside = [(x, y) for x, y in longest if bottom <= y <= top]
        assert inside
        assert all(not left < x < right for x, _ in inside)


def test_a_graph_is_written_to_a_file(plt: Any, tmp_path: Path) -> None:
    a_graph().show(tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")
    assert plt.get_fignums() == []


@pytest.mark.parametrize(("count", "most"), [(40, 3000), pytest.param(900, 2**16 - 1, marks=FULL)])
def test_matplotlib_can_write_the_picture_of_a_long_graph(
    count: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pictures._MAX_PIXELS == 2**16 - 1, "as many as Matplotlib writes"
    monkeypatch.setattr(pictures, "_MAX_PIXELS", most)
    nodes = {f"n{i}": unary("ActivationReluDesc") for i in range(count)}
    edges = {f"n{i}.input": f"n{i - 1}.output" if i else "x" for i in range(count)}
    graph = Graph(nodes=nodes, edges=edges, inputs={"x": TENSOR}, outputs={"y": f"n{count - 1}.output"})
    graph.show(tmp_path / "long.png")
    header = (tmp_path / "long.png").read_bytes()[16:24]
    assert most * 0.9 < int.from_bytes(header[4:]) <= most, "pixels from top to bottom"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edges": {"relu.input": "scaled.output", "scaled.a": "relu.output"}}, "graph: "),
        ({"nodes": {}, "edges": {}}, "graph: nodes must have at least one node to draw; got none"),
    ],
)
def test_a_graph_without_an_order_is_refused(changed: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DmlError, match=message):
        a_graph(**changed).show(tmp_path / "graph.png")
