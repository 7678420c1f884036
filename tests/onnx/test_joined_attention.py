"""Attention that models write out in several nodes, beside ONNX Runtime and beside the same nodes one by one."""

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx_models
import pytest
from helpers import SAMPLED, few_of
from onnx import parser

import dmljax.onnx
from dmljax.directml import InvalidDesc
from dmljax.lowerings import attention as lowerings

Calls = list[Mapping[str, Any]]


@pytest.fixture(autouse=True)
def few_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins attention of any number of positions."""
    monkeypatch.setattr("dmljax.onnx.nodes.joined_attention._FEWEST", 1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The arguments of each attention that is computed as one operation."""
    made: Calls = []
    own = lowerings.attention

    def attention(query: Any, keys: Any, values: Any, scale: Any, bias: Any, mask: Any, **options: Any) -> Any:
        parts = {} if mask is None else mask._asdict()
        made.append({"query": query, "key": keys[0], "bias": bias, **options, **parts})
        return own(query, keys, values, scale, bias, mask, **options)

    monkeypatch.setattr("dmljax.onnx.nodes.joined_attention.attention", attention)
    return made


SIZES = {
    "q": (2, 4, 5, 8),
    "k": (2, 4, 6, 8),
    "v": (2, 4, 6, 3),
    "bias": (2, 1, 5, 6),
    "seen": (5, 6),
    "left": (2, 4, 3, 5),
    "biases": (3, 1, 1, 5, 6),
}
TYPES = {"seen": "bool"}


def arrays(shapes: Mapping[str, Sequence[int]], dtype: Any = np.float32) -> dict[str, Any]:
    random = np.random.default_rng(0)
    made = {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return {name: one > -0.5 if name == "seen" else one for name, one in made.items()}


def network(nodes: str, shapes: Mapping[str, Sequence[Any]], constants: str = "", *, opset: int = 18) -> Any:
    """A model with an output y, written in ONNX's text format."""
    inputs = ", ".join(
        f"{TYPES.get(name, 'float')}{[*shape]} {name}".replace("'", "") for name, shape in shapes.items()
    )
    head = f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => (y) <{constants}>'
    return parser.parse_model(f"{head} {{ {nodes} }}")


def by_onnxruntime(model: Any, inputs: Mapping[str, Any]) -> Any:
    return onnx_models.by_onnxruntime(model, [inputs[own.name] for own in model.graph.input])[0]


def with_all_outputs(model: Any) -> Any:
    """The same model, with every result as an output, so that its nodes run one by one."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    outputs = {one.name for one in model.graph.output}
    made = (name for node in model.graph.node for name in node.output if name and name not in outputs)
    other.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    return other


def derivatives(model: Any, inputs: Mapping[str, Any]) -> Any:
    loaded = dmljax.onnx.load(model)

    def loss(floats: Mapping[str, Any]) -> Any:
        return jnp.sum(jnp.sin(jax.tree.leaves(loaded(**{**inputs, **floats}))[0]))

    return jax.grad(loss)({name: jnp.asarray(one) for name, one in inputs.items() if one.dtype == np.float32})


K_T = "t = Transpose<perm = [0, 1, 3, 2]>(k)"
PRODUCT = f"{K_T}  p = MatMul(q, t)"
REST = "w = Softmax<axis = -1>(s)  y = MatMul(w, v)"
ROOT = "float root = {0.6}"
GUARD = "w = Softmax<axis = -1>(s)  n = IsNaN(w)  u = Where(n, zero, w)  y = MatMul(u, v)"
LOW = "float low = {-inf}, float zero = {0}"
ROWS = "rows = Reshape(k, as_rows)  back = Transpose<perm = [0, 2, 1]>(rows)  t = Reshape(back, as_heads)"
ROW_SIZES = "int64[3] as_rows = {-1, 6, 8}, int64[4] as_heads = {2, 4, 8, 6}"

# The nodes, and the constants
FORMS = {
    "plain": (f"{PRODUCT}  s = Identity(p)  {REST}", ""),
    "scaled": (f"{PRODUCT}  s = Mul(p, root)  {REST}", ROOT),
    "divided": (f"{PRODUCT}  s = Div(p, root)  {REST}", ROOT),
    "scaled before": (f"a = Mul(q, root)  {K_T}  b = Mul(root, t)  s = MatMul(a, b)  {REST}", ROOT),
    "biased": (f"{PRODUCT}  d = Mul(p, root)  s = Add(bias, d)  {REST}", ROOT),
    "biased twice": (f"{PRODUCT}  d = Add(p, bias)  s = Add(d, more)  {REST}", "float[1, 6] more = {0, 1, 2, 3, 4, 5}"),
    "masked": (f"{PRODUCT}  s = Where(seen, p, low)  {REST}", "float low = {-inf}"),
    "masked twice": (
        f"{PRODUCT}  h = Not(seen)  d = Where(h, low, p)  s = Where(other, d, low)  {REST}",
        "float low = {-inf}, bool[6] other = {1, 0, 1, 1, 1, 1}",
    ),
    "filled": (f"{PRODUCT}  h = Not(seen)  s = Where(h, low, p)  {REST}", "float low = {-1e9}"),
    "filled and biased": (f"{PRODUCT}  f = Where(seen, p, low)  s = Add(f, bias)  {REST}", "float low = {-3.4e38}"),
    "guarded": (f"{PRODUCT}  f = Where(seen, zero, low)  s = Add(p, f)  {GUARD}", LOW),
    "cast": (f"{PRODUCT}  s = Cast<to = 1>(p)  w = Softmax(s)  u = Cast<to = 1>(w)  y = MatMul(u, v)", ""),
    "with dropout": (f"{PRODUCT}  w = Softmax<axis = -1>(p)  u, m = Dropout(w)  y = MatMul(u, v)", ""),
    "matrices as one batch": (f"{ROWS}  s = MatMul(q, t)  {REST}", ROW_SIZES),
}


def read(nodes: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs that nodes read."""
    words = set(re.findall(r"\w+", nodes))
    return {name: shape for name, shape in SIZES.items() if name in words}


@SAMPLED
@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_one_attention(calls: Calls, form: str) -> None:
    nodes, constants = FORMS[form]
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, constants), arrays(shapes)
    result = dmljax.onnx.load(model)(**inputs)
    assert len(calls) == 1
    # The order of sums differs.
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("form", few_of(FORMS, "guarded"))
def test_derivatives_equal_those_of_the_nodes(calls: Calls, form: str) -> None:
    nodes, constants = FORMS[form]
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, constants), arrays(shapes)
    own, others = derivatives(model, inputs), derivatives(with_all_outputs(model), inputs)
    assert len(calls) == 1
    for name, one in own.items():
        np.testing.assert_allclose(one, others[name], rtol=2e-4, atol=2e-5, err_msg=name)


SHAPES = {
    "three dimensions": {"q": (3, 5, 8), "k": (3, 6, 8), "v": (3, 6, 3), "bias": (5, 6)},
    "two dimensions": {"q": (5, 8), "k": (6, 8), "v": (6, 3), "bias": (6,)},
    "five dimensions": {"q": (2, 3, 2, 5, 8), "k": (2, 3, 2, 6, 8), "v": (2, 3, 2, 6, 3), "bias": (3, 1, 5, 6)},
    "one head of keys": {"q": (2, 4, 5, 8), "k": (2, 1, 6, 8), "v": (2, 1, 6, 3), "bias": (4, 5, 6)},
    "queries of all batches": {"q": (4, 5, 8), "k": (2, 4, 6, 8), "v": (2, 4, 6, 3), "bias": (2, 1, 1, 6)},
}


@SAMPLED
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_batches_broadcast(calls: Calls, shapes: Mapping[str, Sequence[int]]) -> None:
    rank = len(shapes["k"])
    turn = f"t = Transpose<perm = {[*range(rank - 2), rank - 1, rank - 2]}>(k)"
    model, inputs = network(f"{turn}  p = MatMul(q, t)  s = Add(p, bias)  {REST}", shapes), arrays(shapes)
    result = dmljax.onnx.load(model)(**inputs)
    assert len(calls) == 1
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)


def test_keys_of_positions_before_heads_are_transposed_once(calls: Calls) -> None:
    shapes = {"q": (2, 4, 5, 8), "k": (2, 6, 4, 8), "v": (2, 6, 4, 3)}
    scores = "t = Transpose<perm = [0, 2, 3, 1]>(k)  s = MatMul(q, t)  w = Softmax<axis = -1>(s)"
    model = network(f"{scores}  u = Transpose<perm = [0, 2, 1, 3]>(v)  y = MatMul(w, u)", shapes)
    inputs = arrays(shapes)
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert [(one["key"].shape, one["keys_in_rows"]) for one in calls] == [((2, 4, 1, 6, 8), True)]


def test_repeated_heads_are_not_repeated(calls: Calls) -> None:
    shapes = {"q": (2, 6, 5, 8), "k": (2, 3, 4, 8), "v": (2, 3, 4, 3), "bias": (6, 5, 4)}
    repeat = "{0}1 = Unsqueeze({0}, two)  {0}2 = Expand({0}1, twice)  {0}3 = Reshape({0}2, of_{0})"
    nodes = f"{repeat.format('k')}  {repeat.format('v')}  t = Transpose<perm = [0, 1, 3, 2]>(k3)  p = MatMul(q, t)"
    nodes += "  s = Add(p, bias)  w = Softmax<axis = -1>(s)  y = MatMul(w, v3)"
    constants = "int64[1] two = {2}, int64[5] twice = {1, 1, 2, 1, 1}, "
    constants += "int64[4] of_k = {0, 6, 4, 8}, int64[4] of_v = {0, 6, 4, 3}"
    model, inputs = network(nodes, shapes, constants), arrays(shapes)
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert [(one["query"].shape, one["key"].shape, one["bias"].shape) for one in calls] == [
        ((2, 3, 2, 5, 8), (2, 3, 1, 4, 8), (1, 3, 2, 5, 4))
    ]


# Masks

CAUSAL = {
    "triangle of floats": (
        "both = Concat<axis = 0>(of_q, of_k)  ones = Expand(one, both)  low_half = Trilu<upper = 0>(ones)"
        "  h = Equal(low_half, zero)  m = Where(h, low, zero)  s = Add(p, m)",
        "float one = {1}, float zero = {0}, float low = {-inf}",
    ),
    "triangle that is hidden": (
        "sizes = Shape<start = 2>(p)  ones = ConstantOfShape(sizes)  m = Trilu<upper = 1>(ones, next)"
        "  high = Cast<to = 9>(m)  s = Where(high, low, p)",
        "int64 next = {1}, float low = {-10000}",
    ),
    "positions": (
        "n = Squeeze(of_q)  m = Squeeze(of_k)  own = Range(zero, n, one)  others = Range(zero, m, one)"
        "  column = Unsqueeze(own, last)  h = LessOrEqual(others, column)  s = Where(h, p, low)",
        "int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}, float low = {-3.4028235e38}",
    ),
}


def causal_network(form: str, **shapes: Sequence[Any]) -> Any:
    nodes, constants = CAUSAL[form]
    nodes = nodes.replace("ConstantOfShape(sizes)", "ConstantOfShape<value = float[1] {1}>(sizes)")
    sizes = "of_q = Shape<start = -2, end = -1>(q)  of_k = Shape<start = -2, end = -1>(k)"
    return network(f"{sizes}  {PRODUCT}  {nodes}  {REST}", shapes, constants)


@pytest.mark.parametrize("form", CAUSAL)
def test_a_causal_mask_becomes_bounds(calls: Calls, form: str) -> None:
    model = causal_network(form, q=["b", 4, "n", 8], k=["b", 4, "m", 8], v=["b", 4, "m", 3])
    inputs = arrays({name: SIZES[name] for name in "qkv"})
    loaded = dmljax.onnx.load(model)
    np.testing.assert_allclose(loaded(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert [(one["bias"], one["is_seen"], one["end"].ravel().tolist()) for one in calls] == [
        (None, None, [1, 2, 3, 4, 5])
    ]
    loaded.apply(loaded.weights, **inputs)
    assert not loaded.weights


def test_a_causal_mask_in_the_file_becomes_bounds(calls: Calls) -> None:
    shapes = {"q": (1, 1, 40, 8), "k": (1, 1, 50, 8), "v": (1, 1, 50, 3)}
    model = network(f"{PRODUCT}  cut = Slice(stored, zero, end, last)  s = Where(cut, p, low)  {REST}", shapes)
    stored = {"stored": np.tri(40, 64, 10, dtype=bool), "low": np.array(-np.inf, np.float32)}
    stored |= {"zero": np.array([0]), "end": np.array([50]), "last": np.array([1])}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(one, name) for name, one in stored.items())
    inputs = arrays(shapes)
    loaded = dmljax.onnx.load(model)
    result = loaded.apply(loaded.weights, **inputs)
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert [(one["is_seen"], one["end"].ravel().tolist()) for one in calls] == [(None, [*range(11, 51)])]


def test_the_last_query_needs_no_causal_mask(calls: Calls) -> None:
    nodes = f"{PRODUCT}  s = Where(seen, p, low)  {REST}"
    shapes = {"q": (1, 1, 1, 8), "k": (1, 1, 4, 8), "v": (1, 1, 4, 3)}
    model = network(nodes, shapes, "bool[1, 4] seen = {1, 1, 1, 1}, float low = {-inf}")
    dmljax.onnx.load(model)(**arrays(shapes))
    assert [one.get("end") for one in calls] == [None]


@SAMPLED
@pytest.mark.parametrize(
    ("nodes", "low"),
    [
        (f"{PRODUCT}  s = Where(seen, p, low)  {REST}", -np.inf),
        (f"{PRODUCT}  s = Where(seen, p, low)  {GUARD}", -np.inf),
        (f"{PRODUCT}  f = Where(seen, zero, low)  s = Add(p, f)  {GUARD}", -np.inf),
        (f"{PRODUCT}  s = Where(seen, p, low)  {REST}", -1e4),
        (f"{PRODUCT}  s = Where(seen, p, low)  {REST}", -3.4e38),
        (f"{PRODUCT}  f = Where(seen, zero, low)  s = Add(p, f)  {REST}", -1e4),
    ],
    ids=["NaN", "guarded", "guarded sum", "filled", "filled with the lowest", "added"],
)
def test_a_query_that_sees_no_key(calls: Calls, nodes: str, low: float) -> None:
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, f"float low = {{{low}}}, float zero = {{0}}"), arrays(shapes)
    inputs["seen"][2] = False
    inputs["q"] *= 40  # scores that are not lost beside -1e4
    result = dmljax.onnx.load(model)(**inputs)
    assert len(calls) == 1
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-4, atol=2e-5)


def test_derivatives_of_a_guarded_query_that_sees_no_key_are_zero() -> None:
    nodes = f"{PRODUCT}  s = Where(seen, p, low)  {GUARD}"
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, LOW), arrays(shapes)
    inputs["seen"][2] = False
    slopes = derivatives(model, inputs)
    assert not any(np.isnan(one).any() for one in slopes.values())
    assert not slopes["q"][:, :, 2].any()


# Others

OTHERS = {
    "another axis": f"{PRODUCT}  w = Softmax<axis = 1>(p)  y = MatMul(w, v)",
    "scores are read twice": f"{PRODUCT}  r = Relu(p)  s = Add(p, r)  {REST}",
    "a mask of the scores": f"{PRODUCT}  h = Greater(p, zero)  s = Where(h, p, zero)  {REST}",
    "weights are read twice": f"{PRODUCT}  w = Softmax<axis = -1>(p)  a = MatMul(w, v)  b = Exp(w)  y = MatMul(b, v)",
    "weights come second": f"{PRODUCT}  w = Softmax<axis = -1>(p)  y = MatMul(left, w)",
    "a scale for each key": f"{PRODUCT}  s = Mul(p, scales)  {REST}",
    "filled with a score": f"{PRODUCT}  s = Where(seen, p, zero)  {REST}",
    "biased, then filled": f"{PRODUCT}  f = Add(p, bias)  s = Where(seen, f, low)  {REST}",
    "a bias of more batches": f"{PRODUCT}  s = Add(p, biases)  {REST}",
}


@SAMPLED
@pytest.mark.parametrize("nodes", OTHERS.values(), ids=OTHERS)
def test_another_form_runs_node_by_node(calls: Calls, nodes: str) -> None:
    shapes = read(nodes)
    constants = "float zero = {0}, float low = {-1e4}, float[6] scales = {1, 2, 3, 4, 5, 6}"
    model, inputs = network(nodes, shapes, constants), arrays(shapes)
    result = dmljax.onnx.load(model)(**inputs)
    assert not calls
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)


def test_weights_that_are_an_output_run_node_by_node(calls: Calls) -> None:
    nodes, constants = FORMS["scaled"]
    model, inputs = network(nodes, read(nodes), constants), arrays(read(nodes))
    model.graph.output.append(onnx.ValueInfoProto(name="w"))
    _, weights = dmljax.onnx.load(model)(**inputs)
    assert not calls
    np.testing.assert_allclose(np.sum(weights, -1), 1, rtol=1e-6)


def test_a_softmax_of_two_dimensions_is_not_along_keys(calls: Calls) -> None:
    nodes = f"{PRODUCT}  w = Softmax(p)  y = MatMul(w, v)"  # before version 13, along all dimensions from 1
    model, inputs = network(nodes, read(nodes), opset=11), arrays(read(nodes))
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert not calls


def test_operands_with_padding_run_node_by_node(calls: Calls) -> None:
    nodes = "h = Cast<to = 9>(keep)  k2 = Compress<axis = 2>(k, h)  v2 = Compress<axis = 2>(v, h)"
    nodes += "  t = Transpose<perm = [0, 1, 3, 2]>(k2)  p = MatMul(q, t)  w = Softmax<axis = -1>(p)  y = MatMul(w, v2)"
    shapes = {name: SIZES[name] for name in "qkv"}
    model = network(nodes, {**shapes, "keep": (6,)})
    inputs = arrays(shapes) | {"keep": np.array([1, 0, 1, 1, 0, 1], np.float32)}
    loaded = dmljax.onnx.load(model, maximum_sizes="largest")
    np.testing.assert_allclose(jax.jit(loaded)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert not calls


def test_readers_of_sizes_do_not_matter(calls: Calls) -> None:
    nodes = f"{PRODUCT}  sizes = Shape(p)  m = Expand(low, sizes)  s = Where(seen, p, m)  {REST}"
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, "float low = {-inf}"), arrays(shapes)
    dmljax.onnx.load(model)(**inputs)
    assert not calls  # the number in place of hidden scores is an array
    nodes = f"{PRODUCT}  sizes = Shape(p)  m = Expand(seen, sizes)  s = Where(m, p, low)  {REST}"
    model = network(nodes, shapes, "float low = {-inf}")
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert len(calls) == 1


def test_errors_name_the_node_of_the_file() -> None:
    nodes = f"{PRODUCT}  s = Add(p, bias)  {REST}"
    shapes = read(nodes)
    model = network(nodes, {name: [f"{name}{i}" for i in range(4)] for name in shapes})
    inputs = arrays(shapes | {"v": (2, 4, 7, 3)})
    with pytest.raises(InvalidDesc, match=r"nodes\.y\.MatMul"):
        dmljax.onnx.load(model)(**inputs)


def test_an_attention_in_a_subgraph_is_joined(calls: Calls) -> None:
    chosen = f"then_branch = a () => (y) {{ {PRODUCT}  {REST.replace('(s)', '(p)')} }}"
    other = "else_branch = b () => (z) { z = Identity(v2) }"
    nodes = f"h = Cast<to = 9>(which)  y = If(h) <{chosen}, {other}>"
    shapes = {"q": (1, 1, 5, 8), "k": (1, 1, 5, 8), "v": (1, 1, 5, 3), "v2": (1, 1, 5, 3), "which": ()}
    model, inputs = network(nodes, shapes), arrays(shapes) | {"which": np.array(1, np.float32)}
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert len(calls) == 1


def test_open_sizes_stay_open(calls: Calls) -> None:
    model = causal_network("positions", q=["b", 4, "n", 8], k=["b", 4, "m", 8], v=["b", 4, "m", 3])
    loaded = dmljax.onnx.load(model)
    b, n = jax.export.symbolic_shape("b, n")
    types = [jax.ShapeDtypeStruct((b, 4, n, size), np.float32) for size in (8, 8, 3)]
    program = jax.export.export(jax.jit(lambda *given: loaded(*given)))(*types)
    inputs = arrays({"q": (2, 4, 7, 8), "k": (2, 4, 7, 8), "v": (2, 4, 7, 3)})
    result = jax.export.deserialize(program.serialize()).call(*inputs.values())
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert calls == []


def test_few_positions_run_node_by_node(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmljax.onnx.nodes.joined_attention._FEWEST", 6)
    nodes, constants = FORMS["plain"]
    inputs = arrays(read(nodes))
    result = dmljax.onnx.load(network(nodes, read(nodes), constants))(**inputs)
    assert result.shape == (2, 4, 5, 3)
    assert calls == []  # for 5 queries


def test_float16_is_added_up_in_float32(calls: Calls) -> None:
    nodes, constants = FORMS["biased"]
    shapes = {name: (*shape[:-1], 64) if name in "qk" else shape for name, shape in read(nodes).items()}
    inputs = arrays(shapes)
    expected = by_onnxruntime(network(nodes, shapes, constants), inputs)
    half = network(nodes, shapes)
    half.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0.6, np.float16), "root"))
    for one in half.graph.input:
        one.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    result = dmljax.onnx.load(half)(**{name: one.astype(np.float16) for name, one in inputs.items()})
    assert len(calls) == 1
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, expected, rtol=1e-2, atol=1e-2)  # of inputs that are rounded


def test_directml_graphs_keep_the_nodes() -> None:
    nodes, constants = FORMS["scaled"]
    loaded = dmljax.onnx.load(network(nodes, read(nodes), constants))
    assert "w" in loaded.graph().nodes


# PyTorch

torch = pytest.importorskip("torch")
attend: Callable[..., Any] = torch.nn.functional.scaled_dot_product_attention


class Attending(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        return attend(query, key, value, mask, **self.options)


@SAMPLED
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "float"])
def test_attention_that_pytorch_exports(calls: Calls, kind: str) -> None:
    inputs = [torch.randn(SIZES[name]) for name in "qkv"]
    inputs += {"bool": [torch.rand(5, 6) > 0.4], "float": [torch.randn(5, 6)]}.get(kind, [])
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = Attending(is_causal=kind == "causal").eval()
        torch.onnx.export(network, tuple(inputs), file, dynamo=False, opset_version=17)
    model = onnx.load_from_string(file.getvalue())
    names = [one.name for one in model.graph.input]
    given = dict(zip(names, (np.asarray(one) for one in inputs), strict=True))
    result = dmljax.onnx.load(model)(*given.values())
    np.testing.assert_allclose(result, by_onnxruntime(model, given), rtol=2e-5, atol=2e-6)
    assert [one["bias"] is not None for one in calls] == [kind in ("bool", "float")]
