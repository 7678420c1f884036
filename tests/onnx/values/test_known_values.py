"""Values that follow from constants and shapes are known while tracing, so that sizes may depend on them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import GATE, SAMPLED
from onnx import helper
from onnx_models import FLOAT, INT64, model, value

import dmljax.onnx
from dmljax.onnx.running.interpreter import MAX_FOLDED


class Case(NamedTuple):
    """A node whose inputs are constants."""

    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = {}
    outputs: int = 1


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


ROWS = ints(3, 1, 2, 2).reshape(2, 2)
HALVES = np.array([1.0, 2.5, 0.5], np.float32)
CASES = {
    # Arithmetic and logic
    "Abs": Case([ints(-3, 2)]),
    "Add": Case([ints(1, 2), ints(2)]),
    "And": Case([np.array([True, True]), np.array([False, True])]),
    "BitShift": Case([np.array([1, 2], np.uint64), np.array([1, 0], np.uint64)], {"direction": "LEFT"}),
    "BitwiseAnd": Case([ints(3, 6), ints(2)]),
    "Cast": Case([HALVES], {"to": INT64}),
    "Ceil": Case([HALVES]),
    "Clip": Case([ints(0, 9), np.array(1), np.array(3)]),
    "Div": Case([ints(7, 4), ints(2)]),
    "Equal": Case([ints(1, 2), ints(2)]),
    "Exp": Case([HALVES]),
    "Floor": Case([HALVES]),
    "Hardmax": Case([HALVES]),
    "IsNaN": Case([HALVES]),
    "Log": Case([HALVES]),
    "Max": Case([ints(1, 2), ints(2)]),
    "Mod": Case([ints(7, 5), ints(3)]),
    "Mul": Case([ints(1, 2), ints(2)]),
    "Neg": Case([ints(-3, -2)]),
    "Not": Case([np.array([True, False])]),
    "Pow": Case([ints(1, 2), ints(2)]),
    "Relu": Case([HALVES]),
    "Sqrt": Case([HALVES]),
    "Sub": Case([ints(3, 4), ints(2)]),
    "Where": Case([np.array([True, False]), ints(3, 3), ints(2, 2)]),
    # Sums and products
    "ArgMax": Case([ROWS]),
    "CumSum": Case([ints(1, 1, 1), np.array(0)]),
    "Einsum": Case([ROWS, ROWS], {"equation": "ij,jk->ik"}),
    "MatMul": Case([ROWS, ROWS]),
    "ReduceMax": Case([ROWS, ints(0)]),
    "ReduceMean": Case([ROWS, ints(0)]),
    "ReduceSum": Case([ROWS, ints(0)]),
    "ReduceSumSquare": Case([ROWS, ints(0)]),
    "TopK": Case([ints(1, 3, 2), ints(2)], outputs=2),
    # Movement
    "Compress": Case([ints(1, 2, 3), np.array([True, False, True])], {"axis": 0}),
    "Concat": Case([ints(1), ints(2, 3)], {"axis": 0}),
    "ConstantOfShape": Case([ints(3)], {"value": helper.make_tensor("", INT64, [1], [2])}),
    "Expand": Case([ints(2), ints(3)]),
    "EyeLike": Case([ROWS]),
    "Flatten": Case([ROWS]),
    "Gather": Case([ints(1, 2, 3), ints(2, 0)]),
    "GatherElements": Case([ints(1, 2, 3), ints(2, 0)]),
    "GatherND": Case([ROWS, ints(0, 1, 1, 0).reshape(2, 2)]),
    "Identity": Case([ints(2, 3)]),
    "OneHot": Case([ints(0, 2), ints(3), ints(1, 2)]),
    "Pad": Case([ints(3), ints(0, 2), np.array(2)]),
    "Range": Case([np.array(1), np.array(4), np.array(1)]),
    "Reshape": Case([ROWS, ints(-1)]),
    "ScatterElements": Case([ints(1, 1, 1), ints(2, -3), ints(2, 3)]),
    "ScatterND": Case([ints(1, 1, 1), ints(1, 0).reshape(2, 1), ints(2, 3)], {"reduction": "add"}),
    "Slice": Case([ints(1, 2, 3), ints(1), ints(3)]),
    "Split": Case([ints(1, 2, 3), ints(2, 1)], outputs=2),
    "Squeeze": Case([ints(2), ints(0)]),
    "Tile": Case([ints(2, 3), ints(2)]),
    "Transpose": Case([ROWS]),
    "Trilu": Case([ROWS]),
    "Unsqueeze": Case([ints(2, 3), ints(0)]),
}
X = np.arange(1, 3, dtype=np.float32).reshape(2, 1)


def node_of(operator: str) -> tuple[Any, dict[str, Any], list[str]]:
    """The node of a case, its inputs by name, and the names of its results."""
    case = CASES[operator]
    inputs = {f"c{i}": x for i, x in enumerate(case.inputs)}
    results = [f"r{i}" for i in range(case.outputs)]
    return helper.make_node(operator, [*inputs], results, **case.attributes), inputs, results


def sized_model(operator: str) -> onnx.ModelProto:
    """A model that repeats x as often as the results of a node of constants say, and returns these results as well."""
    node, constants, results = node_of(operator)
    nodes = [node]
    for name in results:
        nodes += [
            helper.make_node("Cast", [name], [f"{name}_whole"], to=INT64),
            helper.make_node("Reshape", [f"{name}_whole", "rest"], [f"{name}_row"]),
        ]
    nodes += [
        helper.make_node("Concat", [f"{name}_row" for name in results], ["row"], axis=0),
        helper.make_node("Clip", ["row", "one"], ["counts"]),
        helper.make_node("ReduceSum", ["counts", "first"], ["count"]),
        helper.make_node("Expand", ["unit", "count"], ["ones"]),
        helper.make_node("Mul", ["x", "ones"], ["y"]),
    ]
    more = {"rest": ints(-1), "one": np.array(1), "first": ints(0), "unit": np.array(1, np.float32)}
    return model(nodes, [value("x", FLOAT, ["n", 1])], ["y", *results], constants | more)


def traced(operator: str) -> list[Any]:
    """The results of a node whose inputs, except those that decide its own sizes, are traced."""
    node, inputs, results = node_of(operator)
    types = [value(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in inputs.items()]
    run = dmljax.onnx.load(model([node], types, results))
    given = run(*(x if name in run._plan.graph.deciding else jnp.asarray(x) for name, x in inputs.items()))
    return [given] if len(results) == 1 else [*given]


@SAMPLED
@pytest.mark.parametrize("operator", CASES)
def test_sizes_may_depend_on_what_an_operator_makes_of_constants(operator: str) -> None:
    run = dmljax.onnx.load(sized_model(operator))
    y, *results = jax.jit(run.apply)(run.weights, X)
    chex.assert_trees_all_equal(results, traced(operator), strict=True)
    count = sum(np.maximum(np.asarray(result).astype(np.int64), 1).sum() for result in results)
    np.testing.assert_array_equal(y, np.repeat(X, count, axis=1))


def repeated() -> onnx.ModelProto:
    """The products of tokens with images that are repeated for each of them, as exporters write it."""
    nodes = [
        helper.make_node("Shape", ["tokens"], ["count"], end=1),
        helper.make_node("Concat", ["one", "count"], ["values"], axis=0),
        helper.make_node("OneHot", ["one", "rank", "values"], ["hot"]),
        helper.make_node("Reshape", ["hot", "rest"], ["repeats"]),
        helper.make_node("Unsqueeze", ["image", "one"], ["wide"]),
        helper.make_node("Tile", ["wide", "repeats"], ["tiled"]),
        helper.make_node("Reshape", ["tiled", "columns"], ["images"]),
        helper.make_node("MatMul", ["tokens", "images"], ["y"]),
    ]
    constants = {"one": ints(1), "rank": np.array(4), "rest": ints(-1), "columns": ints(-1, 3, 4)}
    inputs = [value("image", FLOAT, [1, 3, 4]), value("tokens", FLOAT, ["n", "m", 3])]
    return model(nodes, inputs, ["y"], constants)


@GATE
def test_images_are_repeated_under_every_transformation() -> None:
    run = dmljax.onnx.load(repeated())
    image, tokens = np.arange(12, dtype=np.float32).reshape(1, 3, 4), np.ones((2, 5, 3), np.float32)
    expected = tokens @ image
    chex.assert_trees_all_equal(run(image, tokens), jax.jit(run)(image, tokens), expected)
    grads = jax.grad(lambda image: run(image, tokens).sum())(image)
    np.testing.assert_array_equal(grads, np.full_like(image, tokens[..., 0].size))
    batches = jnp.stack([tokens, 2 * tokens])
    np.testing.assert_array_equal(jax.vmap(run, (None, 0))(image, batches), batches @ image)
    for sizes in ("2, m", "n, m"):
        types = (
            jax.ShapeDtypeStruct(image.shape, "float32"),
            jax.ShapeDtypeStruct((*jax.export.symbolic_shape(sizes), 3), "float32"),
        )
        np.testing.assert_array_equal(jax.export.export(jax.jit(run))(*types).call(image, tokens), expected)


def summed(numbers: Any, *more: Any) -> Any:
    """A model that returns running sums, of which `more` nodes may make a size."""
    nodes = [helper.make_node("CumSum", ["numbers", "axis"], ["sums"]), *more]
    constants = {"numbers": numbers, "axis": np.array(0), "last": ints(-1), "unit": np.array(1, np.float32)}
    return dmljax.onnx.load(model(nodes, [value("x", FLOAT, [1])], ["sums", *(["y"] if more else [])], constants))


TO_SIZE = (helper.make_node("Gather", ["sums", "last"], ["size"]), helper.make_node("Expand", ["x", "size"], ["y"]))


def test_values_that_no_size_needs_are_computed_when_the_program_runs() -> None:
    assert "cumsum" in str(jax.make_jaxpr(summed(ints(1, 1)))(X[0]))
    assert "cumsum" not in str(jax.make_jaxpr(summed(ints(1, 1), *TO_SIZE))(X[0]))


def test_many_values_are_data_and_not_sizes() -> None:
    with pytest.raises(dmljax.DmlError, match="must be known while tracing"):
        jax.jit(summed(np.ones(MAX_FOLDED + 1, np.int64), *TO_SIZE))(X[0])


def test_values_that_take_64_bits_are_not_truncated() -> None:
    halves = [
        helper.make_node("Div", ["sums", "large"], ["parts"]),
        helper.make_node("Gather", ["parts", "last"], ["size"]),
    ]
    constants = {"large": np.array(2**40)}
    nodes = [helper.make_node("CumSum", ["numbers", "axis"], ["sums"]), *halves, TO_SIZE[1]]
    constants |= {"numbers": ints(2**40, 2**41), "axis": np.array(0), "last": ints(-1)}
    run = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [1])], ["y"], constants))
    assert jax.jit(run)(X[0]).shape == (3,)
