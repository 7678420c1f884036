"""Attention that models write out in several nodes, beside ONNX Runtime and beside the same nodes one by one."""

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx_models
import pytest
from helpers import FULL, GATE, SAMPLED, few_of
from onnx import parser

import dmljax.onnx
from dmljax.directml import InvalidDesc
from dmljax.lowerings.attention import dot_product as lowerings

Calls = list[Mapping[str, Any]]


@pytest.fixture(autouse=True)
def few_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins attention of any number of positions."""
    monkeypatch.setattr("dmljax.onnx.nodes.attention.joined._FEWEST", 1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The arguments of each attention that is computed as one operation."""
    recorded_calls: Calls = []
    attend = lowerings.attention

    def attention(query: Any, keys: Any, values: Any, scale: Any, bias: Any, mask: Any, **options: Any) -> Any:
        parts = {} if mask is None else mask._asdict()
        recorded_calls.append({"query": query, "key": keys[0], "bias": bias, **options, **parts})
        return attend(query, keys, values, scale, bias, mask, **options)

    monkeypatch.setattr("dmljax.onnx.nodes.attention.joined.attention", attention)
    return recorded_calls


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
    feeds = {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return {name: array > -0.5 if name == "seen" else array for name, array in feeds.items()}


def network(nodes: str, shapes: Mapping[str, Sequence[Any]], constants: str = "", *, opset: int = 18) -> Any:
    """A model with an output y, written in ONNX's text format."""
    inputs = ", ".join(
        f"{TYPES.get(name, 'float')}{[*shape]} {name}".replace("'", "") for name, shape in shapes.items()
    )
    head = f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => (y) <{constants}>'
    return parser.parse_model(f"{head} {{ {nodes} }}")


def by_onnxruntime(model: Any, inputs: Mapping[str, Any]) -> Any:
    return onnx_models.by_onnxruntime(model, [inputs[tensor.name] for tensor in model.graph.input])[0]


def with_all_outputs(model: Any) -> Any:
    """The same model, with every result as an output, so that its nodes run one by one."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    outputs = {tensor.name for tensor in model.graph.output}
    inner_names = (name for node in model.graph.node for name in node.output if name and name not in outputs)
    other.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner_names)
    return other


def derivatives(model: Any, inputs: Mapping[str, Any]) -> Any:
    loaded = dmljax.onnx.load(model)

    def loss(floats: Mapping[str, Any]) -> Any:
        return jnp.sum(jnp.sin(jax.tree.leaves(loaded(**{**inputs, **floats}))[0]))

    return jax.grad(loss)({name: jnp.asarray(x) for name, x in inputs.items() if x.dtype == np.float32})


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
    "biased and masked": (f"{PRODUCT}  f = Add(p, bias)  s = Where(seen, f, low)  {REST}", "float low = {-inf}"),
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
@GATE
def test_derivatives_equal_those_of_the_nodes(calls: Calls, form: str) -> None:
    nodes, constants = FORMS[form]
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, constants), arrays(shapes)
    grads, others = derivatives(model, inputs), derivatives(with_all_outputs(model), inputs)
    assert len(calls) == 1
    for name, grad in grads.items():
        np.testing.assert_allclose(grad, others[name], rtol=2e-4, atol=2e-5, err_msg=name)


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
    assert [(call["key"].shape, call["keys_in_rows"]) for call in calls] == [((2, 4, 1, 6, 8), True)]


def test_repeated_heads_are_not_repeated(calls: Calls) -> None:
    shapes = {"q": (2, 6, 5, 8), "k": (2, 3, 4, 8), "v": (2, 3, 4, 3), "bias": (6, 5, 4)}
    repeat = "{0}1 = Unsqueeze({0}, two)  {0}2 = Expand({0}1, twice)  {0}3 = Reshape({0}2, of_{0})"
    nodes = f"{repeat.format('k')}  {repeat.format('v')}  t = Transpose<perm = [0, 1, 3, 2]>(k3)  p = MatMul(q, t)"
    nodes += "  s = Add(p, bias)  w = Softmax<axis = -1>(s)  y = MatMul(w, v3)"
    constants = "int64[1] two = {2}, int64[5] twice = {1, 1, 2, 1, 1}, "
    constants += "int64[4] of_k = {0, 6, 4, 8}, int64[4] of_v = {0, 6, 4, 3}"
    model, inputs = network(nodes, shapes, constants), arrays(shapes)
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert [(call["query"].shape, call["key"].shape, call["bias"].shape) for call in calls] == [
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
@pytest.mark.gate(but=1)
def test_a_causal_mask_becomes_bounds(calls: Calls, form: str) -> None:
    model = causal_network(form, q=["b", 4, "n", 8], k=["b", 4, "m", 8], v=["b", 4, "m", 3])
    inputs = arrays({name: SIZES[name] for name in "qkv"})
    loaded = dmljax.onnx.load(model)
    np.testing.assert_allclose(loaded(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert [(call["bias"], call["is_seen"], call["end"].ravel().tolist()) for call in calls] == [
        (None, None, [1, 2, 3, 4, 5])
    ]
    loaded.apply(loaded.weights, **inputs)
    assert not loaded.weights


@GATE
def test_a_causal_mask_in_the_file_becomes_bounds(calls: Calls) -> None:
    shapes = {"q": (1, 1, 40, 8), "k": (1, 1, 50, 8), "v": (1, 1, 50, 3)}
    model = network(f"{PRODUCT}  cut = Slice(stored, zero, end, last)  s = Where(cut, p, low)  {REST}", shapes)
    stored = {"stored": np.tri(40, 64, 10, dtype=bool), "low": np.array(-np.inf, np.float32)}
    stored |= {"zero": np.array([0]), "end": np.array([50]), "last": np.array([1])}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in stored.items())
    inputs = arrays(shapes)
    loaded = dmljax.onnx.load(model)
    result = loaded.apply(loaded.weights, **inputs)
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert [(x["is_seen"], x["end"].ravel().tolist()) for x in calls] == [(None, [*range(11, 51)])]


def test_the_last_query_needs_no_causal_mask(calls: Calls) -> None:
    nodes = f"{PRODUCT}  s = Where(seen, p, low)  {REST}"
    shapes = {"q": (1, 1, 1, 8), "k": (1, 1, 4, 8), "v": (1, 1, 4, 3)}
    model = network(nodes, shapes, "bool[1, 4] seen = {1, 1, 1, 1}, float low = {-inf}")
    dmljax.onnx.load(model)(**arrays(shapes))
    assert [call.get("end") for call in calls] == [None]


@SAMPLED
@pytest.mark.parametrize(
    ("nodes", "low"),
    [
        (f"{PRODUCT}  s = Where(seen, p, low)  {REST}", -np.inf),
        (f"{PRODUCT}  s = Where(seen, p, low)  {GUARD}", -np.inf),
        (f"{PRODUCT}  f = Where(seen, zero, low)  s = Add(p, f)  {GUARD}", -np.inf),
        (f"{PRODUCT}  s = Where(seen, p, low)  {GUARD}", -1e30),
        (f"{PRODUCT}  s = Where(seen, p, low)  {REST}", -1e30),
        (f"{PRODUCT}  s = Where(seen, p, low)  {REST}", -3.4e38),
        (f"{PRODUCT}  f = Where(seen, zero, low)  s = Add(p, f)  {REST}", -1e4),
    ],
    ids=["NaN", "guarded", "guarded sum", "filled and guarded", "filled", "filled with the lowest", "added"],
)
def test_a_query_that_sees_no_key_computes_what_onnxruntime_does(calls: Calls, nodes: str, low: float) -> None:
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, f"float low = {{{low}}}, float zero = {{0}}"), arrays(shapes)
    inputs["seen"][2] = False
    inputs["q"] *= 40  # scores that are not lost beside -1e4
    result = dmljax.onnx.load(model)(**inputs)
    assert len(calls) == 1
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "steps", ["s = Where(seen, p, low)", "f = Where(seen, zero, low)  s = Add(p, f)"], ids=["replaced", "added"]
)
@pytest.mark.gate(but=1)
def test_derivatives_of_a_guarded_query_that_sees_no_key_are_zero(steps: str) -> None:
    nodes = f"{PRODUCT}  {steps}  {GUARD}"
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, LOW), arrays(shapes)
    inputs["seen"][2] = False
    grads = derivatives(model, inputs)
    assert not any(np.isnan(grad).any() for grad in grads.values())
    assert not grads["q"][:, :, 2].any()


@pytest.mark.parametrize("form", ["filled", "filled and biased"])
@GATE
def test_derivatives_do_not_pass_through_replaced_scores(form: str) -> None:
    nodes, constants = FORMS[form]
    shapes = read(nodes)
    model, inputs = network(nodes, shapes, constants), arrays(shapes)
    inputs["seen"][2] = False
    grads = derivatives(model, inputs)
    assert not grads["q"][:, :, 2].any()
    np.testing.assert_allclose(grads["k"], derivatives(with_all_outputs(model), inputs)["k"], rtol=2e-4, atol=2e-5)


# Others


class Near(NamedTuple):
    """Nodes that come near attention, with the sizes of inputs that are not those of `SIZES`."""

    nodes: str
    constants: str = ""
    shapes: Mapping[str, Sequence[int]] = {}
    change: Callable[[dict[str, Any]], None] = lambda inputs: None

    def model(self, *, opset: int = 18) -> tuple[Any, dict[str, Any]]:
        shapes = self.shapes or read(self.nodes)
        inputs = arrays(shapes)
        self.change(inputs)
        return network(self.nodes, shapes, self.constants, opset=opset), inputs


def assert_as_node_by_node(model: Any, inputs: Mapping[str, Any]) -> None:
    """Checks every element of the first result, also NaN."""
    result, *_ = jax.tree.leaves(dmljax.onnx.load(model)(**inputs))
    expected, *_ = dmljax.onnx.load(with_all_outputs(model))(**inputs)
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6, strict=True)


def large(inputs: dict[str, Any]) -> None:
    inputs["q"] *= 4e3


def closed(inputs: dict[str, Any]) -> None:
    inputs["seen"][2] = False


def closed_beside_low_biases(inputs: dict[str, Any]) -> None:
    closed(inputs)
    inputs["bias"][..., :3] = -np.inf


TURNED = "t = Transpose<perm = [0, 1, 3, 2]>(k)"
FILLED = f"{PRODUCT}  s = Where(seen, p, low)  {REST}"
GUARDED = f"{PRODUCT}  s = Identity(p)  {GUARD}"
CAST = f"{PRODUCT}  f = Where(seen, p, low)  s = Cast<to = 10>(f)  w = Softmax<axis = -1>(s)"
THREE = {"q": (2, 6, 8), "k": (2, 6, 8), "v": (2, 6, 3)}
AS_ONE = "s = MatMul(q, t)  w = Softmax<axis = -1>(s)  y = MatMul(w, v)"
REPEATED = (
    "k2 = Expand(k, twice)  k3 = Reshape(k2, of_k)  v2 = Expand(v, twice)  v3 = Reshape(v2, of_v)"
    "  t = Transpose<perm = [0, 1, 3, 2]>(k3)  s = MatMul(q, t)  w = Softmax<axis = -1>(s)  y = MatMul(w, v3)"
)

OTHERS = {
    "filled with -10000, then biased": Near(
        f"{PRODUCT}  f = Where(seen, p, low)  s = Add(f, bias)  {REST}", "float low = {-1e4}"
    ),
    "filled with a low number between biases": Near(
        f"{PRODUCT}  a = Add(p, bias)  f = Where(seen, a, low)  s = Add(f, bias)  {REST}", "float low = {-1e30}"
    ),
    "filled before and after a bias": Near(
        f"{PRODUCT}  f = Where(seen, p, low)  a = Add(f, bias)  s = Where(seen, a, low)  {REST}", "float low = {-1e30}"
    ),
    "another axis": Near(f"{PRODUCT}  w = Softmax<axis = 1>(p)  y = MatMul(w, v)"),
    "no softmax": Near(f"{PRODUCT}  w = LogSoftmax<axis = -1>(p)  y = MatMul(w, v)"),
    "no product": Near(f"{PRODUCT}  w = Softmax<axis = -1>(p)  y = Add(w, bias)"),
    "scores are read twice": Near(f"{PRODUCT}  r = Relu(p)  s = Add(p, r)  {REST}"),
    "weights are read twice": Near(
        f"{PRODUCT}  w = Softmax<axis = -1>(p)  a = MatMul(w, v)  b = Exp(w)  y = MatMul(b, v)"
    ),
    "weights come second": Near(f"{PRODUCT}  w = Softmax<axis = -1>(p)  y = MatMul(left, w)"),
    "weights that change": Near(f"{PRODUCT}  w = Softmax<axis = -1>(p)  u = Sqrt(w)  y = MatMul(u, v)"),
    "weights are read before a cast": Near(
        f"{PRODUCT}  w = Softmax<axis = -1>(p)  u = Cast<to = 1>(w)  a = MatMul(u, v)  b = Exp(w)  c = MatMul(b, v)"
        "  y = Add(a, c)"
    ),
    "weights are read before a guard": Near(
        f"{GUARDED.replace('y =', 'a =')}  b = Exp(w)  c = MatMul(b, v)  y = Add(a, c)",
        "float zero = {0}",
    ),
    "a guard is read twice": Near(
        f"{GUARDED.replace('y =', 'a =')}  b = Cast<to = 1>(n)  c = MatMul(b, v)  y = Add(a, c)",
        "float zero = {0}",
    ),
    "NaN elsewhere is guarded": Near(
        f"{GUARDED.replace('IsNaN(w)', 'IsNaN(bias)').replace('y =', 'a =')}  b = Exp(w)  c = MatMul(b, v)"
        "  y = Add(a, c)",
        "float zero = {0}",
        change=lambda inputs: inputs["bias"].__setitem__((0, 0, 2, 1), np.nan),
    ),
    "weights that are 1 are guarded": Near(
        GUARDED.replace("IsNaN(w)", "Equal(w, one)"),
        "float zero = {0}, float one = {1}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 1, 8), "v": (1, 1, 1, 3)},
    ),
    "a guard of 1": Near(f"{FILLED[: -len(REST)]}{GUARD}", "float low = {-inf}, float zero = {1}", change=closed),
    "weights as integers": Near(
        f"{PRODUCT}  w = Softmax<axis = -1>(p)  b = Cast<to = 6>(w)  u = Cast<to = 1>(b)  y = MatMul(u, v)"
    ),
    "divided by the scores": Near(f"{PRODUCT}  s = Div(one, p)  {REST}", "float one = {1}"),
    "scores as integers": Near(f"{PRODUCT}  i = Cast<to = 6>(p)  s = Cast<to = 1>(i)  {REST}"),
    "scores of a smaller range": Near(f"{CAST}  u = Cast<to = 1>(w)  y = MatMul(u, v)", "float low = {-3.4e38}"),
    "a scale for each key": Near(f"{PRODUCT}  s = Mul(p, scales)  {REST}", "float[6] scales = {1, 2, 3, 4, 5, 6}"),
    "a scale of infinity": Near(f"{PRODUCT}  s = Mul(p, root)  {REST}", "float root = {inf}"),
    "a division by 0": Near(f"{PRODUCT}  s = Div(p, root)  {REST}", "float root = {0}"),
    "a scaled mask": Near(
        f"{PRODUCT}  f = Where(seen, p, low)  s = Mul(f, less)  {REST}", "float low = {-inf}, float less = {-1}"
    ),
    "a scaled bias": Near(f"{PRODUCT}  f = Add(p, bias)  s = Mul(f, two)  {REST}", "float two = {2}"),
    "a mask of the scores": Near(f"{PRODUCT}  h = Greater(p, low)  s = Where(h, p, low)  {REST}", "float low = {0}"),
    "filled with a number that is not known": Near(FILLED, shapes={**read(FILLED), "low": ()}),
    "filled with two numbers": Near(
        f"{PRODUCT}  f = Where(seen, p, low)  s = Where(other, f, lower)  {REST}",
        "float low = {-1e30}, float lower = {-inf}, bool[6] other = {1, 0, 1, 1, 1, 1}",
        change=closed,
    ),
    "a bias of more batches": Near(f"{PRODUCT}  s = Add(p, biases)  {REST}"),
    "a mask of more batches": Near(
        f"{PRODUCT}  s = Where(m, p, low)  {REST}",
        "float low = {-inf}, bool[2, 1, 1, 1] m = {1, 0}",
        {"q": (1, 1, 5, 8), "k": (1, 1, 6, 8), "v": (1, 1, 6, 3)},
    ),
    "a causal mask of more dimensions": Near(
        f"{PRODUCT}  s = Where(m, p, low)  {REST}",
        "float low = {-inf}, bool[1, 1, 1, 2, 2] m = {1, 0, 1, 1}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 2, 8), "v": (1, 1, 2, 3)},
    ),
    "a causal bias of more dimensions": Near(
        f"{PRODUCT}  s = Add(p, m)  {REST}",
        "float[1, 1, 1, 2, 2] m = {0, -1e30, 0, 0}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 2, 8), "v": (1, 1, 2, 3)},
    ),
    "a scale of more dimensions": Near(f"{PRODUCT}  s = Mul(p, two)  {REST}", "float[1, 1, 1, 1, 1] two = {2}"),
    "a mask of no queries": Near(
        f"{PRODUCT}  s = Add(p, m)  {REST}",
        "float[0, 6] m = {}",
        {"q": (1, 1, 1, 8), "k": (1, 1, 6, 8), "v": (1, 1, 6, 3)},
    ),
    "queries of one head": Near(
        REPEATED,
        "int64[5] twice = {1, 1, 2, 1, 1}, int64[4] of_k = {1, 4, 6, 8}, int64[4] of_v = {1, 4, 6, 3}",
        {"q": (1, 1, 5, 8), "k": (1, 2, 1, 6, 8), "v": (1, 2, 1, 6, 3)},
    ),
    "values of another type": Near(
        f"{PRODUCT}  w = Softmax<axis = -1>(p)  u = Cast<to = 10>(w)  v2 = Cast<to = 10>(v)  y2 = MatMul(u, v2)"
        "  y = Cast<to = 1>(y2)"
    ),
    "a vector of queries": Near(AS_ONE, shapes={"q": (8,), "t": (8, 6), "v": (6, 3)}),
    "values of more batches": Near(AS_ONE, shapes={"q": (1, 6, 8), "t": (1, 8, 6), "v": (2, 6, 3)}),
    "keys of fewer batches": Near(AS_ONE, shapes={"q": (2, 6, 8), "t": (1, 8, 6), "v": (1, 6, 3)}),
}


@pytest.mark.parametrize("form", few_of(OTHERS, "a causal mask of more dimensions", "scores of a smaller range"))
@pytest.mark.gate(but=1)
def test_another_form_runs_node_by_node(calls: Calls, form: str) -> None:
    model, inputs = OTHERS[form].model()
    assert_as_node_by_node(model, inputs)
    assert not calls


def infinite(inputs: dict[str, Any]) -> None:
    inputs["k"][0, 0, 4] = np.inf
    inputs["seen"][2, 4] = False


SAME = {
    "filled with 0": Near(FILLED, "float low = {0}"),
    "filled with -10000": Near(FILLED, "float low = {-1e4}", change=large),
    "filled with -10000 beside higher scores": Near(FILLED, "float low = {-1e4}"),
    "biased, then filled": Near(
        f"{PRODUCT}  f = Add(p, bias)  s = Where(seen, f, low)  {REST}",
        "float low = {-1e30}",
        change=closed_beside_low_biases,
    ),
    "filled, beside infinite scores": Near(
        FILLED,
        "float low = {-1e9}",
        change=infinite,
    ),
    "a scale for each number of a query": Near(
        f"a = Mul(q, scales)  {TURNED}  s = MatMul(a, t)  {REST}", "float[8] scales = {1, 2, 3, 4, 5, 6, 7, 8}"
    ),
    "a scaled key that is the value, of matrices as one batch": Near(
        "t1 = Mul(x, three)  t2 = Transpose<perm = [0, 2, 1]>(t1)  t = Reshape(t2, turned)"
        "  t3 = Transpose<perm = [0, 2, 1]>(t)  v = Reshape(t3, straight)  s = MatMul(q, t)"
        "  w = Softmax<axis = -1>(s)  y = MatMul(w, v)",
        "float three = {3}, int64[3] turned = {2, 8, 6}, int64[3] straight = {2, 6, 8}",
        {"q": (2, 5, 8), "x": (2, 6, 8)},
    ),
    "keys in another order than matrices as one batch": Near(
        "t1 = Reshape(k, wrong)  t2 = Transpose<perm = [0, 2, 1]>(t1)  t = Reshape(t2, turned)"
        "  s = MatMul(q, t)  w = Softmax<axis = -1>(s)  y = MatMul(w, v)",
        "int64[3] wrong = {2, 8, 6}, int64[3] turned = {2, 8, 6}",
        THREE,
    ),
    "keys that another permutation turns": Near(
        "t1 = Reshape(k, rows)  t2 = Transpose<perm = [1, 0, 2]>(t1)  t = Reshape(t2, turned)"
        "  s = MatMul(q, t)  w = Softmax<axis = -1>(s)  y = MatMul(w, v)",
        "int64[3] rows = {2, 6, 8}, int64[3] turned = {2, 8, 6}",
        THREE,
    ),
    "keys that are no matrices in the result": Near(
        "t1 = Reshape(k, rows)  t2 = Transpose<perm = [0, 2, 1]>(t1)  t = Reshape(t2, turned)"
        "  s = MatMul(q, t)  w = Softmax<axis = -1>(s)  y = MatMul(w, v)",
        "int64[3] rows = {2, 6, 8}, int64[3] turned = {2, 4, 12}",
        {"q": (2, 6, 4), "k": (2, 6, 8), "v": (2, 12, 3)},
    ),
    "repeated batches": Near(
        REPEATED,
        "int64[5] twice = {2, 1, 1, 1, 1}, int64[4] of_k = {1, 4, 6, 8}, int64[4] of_v = {1, 4, 6, 3}",
        {"q": (1, 4, 5, 8), "k": (1, 2, 1, 6, 8), "v": (1, 2, 1, 6, 3)},
    ),
    "repeated positions": Near(
        REPEATED,
        "int64[5] twice = {1, 1, 2, 6, 1}, int64[4] of_k = {1, 4, 6, 8}, int64[4] of_v = {1, 4, 6, 3}",
        {"q": (1, 4, 5, 8), "k": (1, 2, 1, 1, 8), "v": (1, 2, 1, 1, 3)},
    ),
    "heads in a later dimension": Near(
        REPEATED,
        "int64[5] twice = {1, 2, 1, 1, 1}, int64[4] of_k = {1, 4, 6, 8}, int64[4] of_v = {1, 4, 6, 3}",
        {"q": (1, 4, 5, 8), "k": (1, 1, 2, 6, 8), "v": (1, 1, 2, 6, 3)},
    ),
    "heads that are not repeated": Near(
        REPEATED,
        "int64[5] twice = {1, 1, 1, 1, 1}, int64[4] of_k = {1, 4, 6, 8}, int64[4] of_v = {1, 4, 6, 3}",
        {"q": (1, 4, 5, 8), "k": (1, 2, 2, 6, 8), "v": (1, 2, 2, 6, 3)},
    ),
    "repeated heads of another shape": Near(
        REPEATED,
        "int64[5] twice = {1, 1, 2, 1, 1}, int64[4] of_k = {1, 4, 8, 6}, int64[4] of_v = {1, 4, 8, 3}",
        {"q": (1, 4, 5, 6), "k": (1, 2, 1, 6, 8), "v": (1, 2, 1, 8, 3)},
    ),
    "keys that are scaled twice": Near(
        f"{TURNED}  u = Mul(two, t)  u2 = Div(u, three)  s = MatMul(q, u2)  {REST}",
        "float two = {2}, float three = {3}",
    ),
    "keys that divide": Near(
        f"{TURNED}  u = Div(two, t)  s = MatMul(q, u)  {REST}",
        "float two = {2}",
        change=lambda inputs: inputs["k"].__iadd__(9),
    ),
    "repeated keys": Near(
        REPEATED.replace("v2 = Expand(v, twice)", "").replace("v3 = Reshape(v2, of_v)", "").replace("v3", "v"),
        "int64[5] twice = {1, 1, 2, 1, 1}, int64[4] of_k = {1, 4, 6, 8}",
        {"q": (1, 4, 5, 8), "k": (1, 2, 1, 6, 8), "v": (1, 4, 6, 3)},
    ),
    "repeated heads that are queries": Near(
        "k2 = Expand(k, twice)  k3 = Reshape(k2, of_k)  t = Transpose<perm = [0, 1, 3, 2]>(k3)"
        "  s = MatMul(k3, t)  w = Softmax<axis = -1>(s)  y = MatMul(w, k3)",
        "int64[5] twice = {1, 1, 2, 1, 1}, int64[4] of_k = {1, 4, 6, 8}",
        {"k": (1, 2, 1, 6, 8)},
    ),
    "a causal mask and another": Near(
        f"{PRODUCT}  f = Where(seen, p, low)  s = Where(m, f, low)  {REST}",
        "float low = {-inf}, bool[3, 3] m = {1, 0, 0, 1, 1, 0, 1, 1, 1}",
        {"q": (1, 1, 3, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3), "seen": (3, 3)},
        change=lambda inputs: inputs["seen"].__setitem__((slice(None), 0), True),
    ),
    "two causal masks": Near(
        f"{PRODUCT}  f = Where(m2, p, low)  s = Where(m, f, low)  {REST}",
        "float low = {-inf}, bool[2, 3] m = {1, 0, 0, 1, 1, 0}, bool[2, 3] m2 = {1, 1, 0, 1, 1, 1}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "two causal masks, the narrower first": Near(
        f"{PRODUCT}  f = Where(m, p, low)  s = Where(m2, f, low)  {REST}",
        "float low = {-inf}, bool[2, 3] m = {1, 0, 0, 1, 1, 0}, bool[2, 3] m2 = {1, 1, 0, 1, 1, 1}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "an added causal mask and another": Near(
        f"{PRODUCT}  f = Add(p, m)  s = Add(f, m2)  {REST}",
        "float[2, 3] m = {0, -2, -2, 0, 0, -2}, float[2, 3] m2 = {0, 0, -3, 0, 0, 0}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "an added causal mask of another number": Near(
        f"{PRODUCT}  f = Where(m2, p, low)  s = Add(f, m)  {REST}",
        "float low = {-inf}, float[2, 3] m = {0, -2, -2, 0, 0, -2}, bool[3] m2 = {1, 0, 1}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "an added causal mask of two numbers": Near(
        f"{PRODUCT}  s = Add(p, m)  {REST}",
        "float[2, 3] m = {0, -2, -3, 0, 0, -2}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "a mask that is nearly causal": Near(
        f"{PRODUCT}  s = Where(m, p, low)  {REST}",
        "float low = {-inf}, bool[3, 3] m = {1, 0, 0, 1, 1, 0, 0, 1, 1}",
        {"q": (1, 1, 3, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "a causal mask that hides what it should show": Near(
        f"{PRODUCT}  s = Where(m, low, p)  {REST}",
        "float low = {-inf}, bool[2, 3] m = {1, 0, 0, 1, 1, 0}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "a row of a mask for all queries": Near(
        f"{PRODUCT}  s = Where(m, p, low)  {REST}",
        "float low = {-inf}, bool[1, 3] m = {1, 0, 0}",
        {"q": (1, 1, 2, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "causal masks of each batch": Near(
        f"{PRODUCT}  s = Where(m, p, low)  {REST}",
        "float low = {-inf}, bool[2, 1, 2, 2] m = {1, 0, 1, 1, 1, 1, 1, 0}",
        {"q": (2, 1, 2, 8), "k": (2, 1, 2, 8), "v": (2, 1, 2, 3)},
    ),
    "filled, then biased with numbers as low": Near(
        f"{PRODUCT}  f = Where(seen, p, low)  s = Add(f, bias)  {REST}",
        "float low = {-3.4e38}",
        change=closed_beside_low_biases,
    ),
    "guarded, with a query before all keys": Near(
        f"{PRODUCT}  s = Add(p, m)  {GUARD}",
        "float zero = {0}, float[3, 3] m = {-inf, -inf, -inf, 0, -inf, -inf, 0, 0, -inf}",
        {"q": (1, 1, 3, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)},
    ),
    "guarded, with a causal mask and another": Near(
        f"{PRODUCT}  f = Where(seen, p, low)  s = Where(m, f, low)  {GUARD}",
        "float low = {-inf}, float zero = {0}, bool[3, 3] m = {1, 0, 0, 1, 1, 0, 1, 1, 1}",
        {"q": (1, 1, 3, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3), "seen": (3, 3)},
        change=lambda inputs: inputs["seen"].__setitem__(0, [False, False, True]),
    ),
    "guarded, with low biases": Near(
        f"{PRODUCT}  f = Where(seen, p, low)  s = Add(f, bias)  {GUARD}",
        "float low = {-1e30}, float zero = {0}",
        change=closed_beside_low_biases,
    ),
    "guarded, with a closed bias": Near(
        f"{PRODUCT}  s = Add(p, bias)  {GUARD}",
        "float zero = {0}",
        change=lambda inputs: inputs["bias"].__setitem__((0, 0, 2), -np.inf),
    ),
    "scores that are a scale of other scores": Near(
        f"{PRODUCT}  a = Add(p, bias)  s = Add(a, a2)  {REST}",
        "float a2 = {2}",
    ),
}


@pytest.mark.parametrize(
    "form",
    few_of(
        SAME,
        "filled, beside infinite scores",
        "a scaled key that is the value, of matrices as one batch",
        "repeated batches",
        "guarded, with low biases",
    ),
)
@pytest.mark.gate(but=1)
def test_a_near_form_gives_what_its_nodes_give(calls: Calls, form: str) -> None:
    assert_as_node_by_node(*SAME[form].model())
    assert len(calls) == 1


def test_two_attentions_share_keys_and_queries(calls: Calls) -> None:
    nodes = f"{AS_ONE.replace('MatMul(q, t)', 'MatMul(q, k2)').replace('y =', 'a =')}"
    nodes = f"k2 = Transpose<perm = [0, 2, 1]>(k)  {nodes}  s2 = MatMul(k2, k3)  w2 = Softmax<axis = -1>(s2)"
    nodes += "  b = MatMul(w2, v2)  y = MatMul(a, b)"
    shapes = {"q": (2, 5, 8), "k": (2, 6, 8), "v": (2, 6, 8), "k3": (2, 6, 7), "v2": (2, 7, 3)}
    model, inputs = network(nodes, shapes), arrays(shapes)
    result = dmljax.onnx.load(model)(**inputs)
    np.testing.assert_allclose(result, by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert len(calls) == 2


def test_weights_that_are_an_output_run_node_by_node(calls: Calls) -> None:
    nodes, constants = FORMS["scaled"]
    model, inputs = network(nodes, read(nodes), constants), arrays(read(nodes))
    model.graph.output.append(onnx.ValueInfoProto(name="w"))
    _, weights = dmljax.onnx.load(model)(**inputs)
    assert not calls
    np.testing.assert_allclose(np.sum(weights, -1), 1, rtol=1e-6)


@GATE
def test_weights_that_dropout_draws_run_node_by_node(calls: Calls) -> None:
    nodes = f"{PRODUCT}  w = Softmax<axis = -1>(p)  u = Dropout(w, ratio, training)  y = MatMul(u, v)"
    model = network(nodes, read(nodes), "float ratio = {0.5}, bool training = {1}")
    loaded, inputs = dmljax.onnx.load(model), arrays(read(nodes))
    results = [np.asarray(loaded(**inputs, key=jax.random.key(seed))) for seed in range(2)]
    assert not calls
    assert (results[0] != results[1]).any()


@GATE
def test_a_mask_that_is_drawn_is_no_constant(calls: Calls) -> None:
    nodes = f"{PRODUCT}  m = Bernoulli<dtype = 9>(chances)  s = Where(m, p, low)  {REST}"
    shapes = {"q": (1, 1, 3, 8), "k": (1, 1, 3, 8), "v": (1, 1, 3, 3)}
    model = network(nodes, shapes, "float[3, 3] chances = {1, 0, 0, 1, 1, 0, 1, 1, 1}, float low = {-inf}")
    result = dmljax.onnx.load(model)(**arrays(shapes), key=jax.random.key(0))
    np.testing.assert_allclose(np.asarray(result)[0, 0, 0], arrays(shapes)["v"][0, 0, 0], rtol=1e-6)
    assert [call["end"] for call in calls] == [None]


def test_keys_that_are_an_output_stay(calls: Calls) -> None:
    nodes, constants = FORMS["plain"]
    model, inputs = network(nodes, read(nodes), constants), arrays(read(nodes))
    model.graph.output.append(onnx.ValueInfoProto(name="t"))
    _, turned = dmljax.onnx.load(model)(**inputs)
    np.testing.assert_array_equal(turned, np.swapaxes(inputs["k"], 2, 3))
    assert len(calls) == 1


def test_scores_that_are_an_attention_run_node_by_node(calls: Calls) -> None:
    nodes = "a = Softmax<axis = -1>(q)  b = MatMul(a, k)  c = Softmax<axis = -1>(b)  y = MatMul(c, v)"
    shapes = {"q": (2, 5, 6), "k": (2, 6, 4), "v": (2, 4, 3)}
    model, inputs = network(nodes, shapes), arrays(shapes)
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert len(calls) == 1
    nodes = "s = MatMul(q, t)  a = Softmax<axis = -1>(s)  b = MatMul(a, k)  c = Softmax<axis = -1>(b)  y = MatMul(c, v)"
    model, inputs = network(nodes, shapes | {"t": (2, 6, 6)}), arrays(shapes | {"t": (2, 6, 6)})
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert len(calls) == 2


def test_a_softmax_of_two_dimensions_is_not_along_keys(calls: Calls) -> None:
    nodes = f"{PRODUCT}  w = Softmax(p)  y = MatMul(w, v)"  # before version 13, along all dimensions from 1
    model, inputs = network(nodes, read(nodes), opset=11), arrays(read(nodes))
    np.testing.assert_allclose(dmljax.onnx.load(model)(**inputs), by_onnxruntime(model, inputs), rtol=2e-5, atol=2e-6)
    assert not calls


@GATE
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


@pytest.mark.parametrize(("name", "shape", "node"), [("v", (2, 4, 7, 3), "y"), ("q", (2, 4, 5, 7), "p")])
def test_errors_name_the_node_of_the_file(name: str, shape: tuple[int, ...], node: str) -> None:
    nodes = f"{PRODUCT}  s = Add(p, bias)  {REST}"
    shapes = read(nodes)
    model = network(nodes, {name: [f"{name}{i}" for i in range(4)] for name in shapes})
    inputs = arrays(shapes | {name: shape})
    with pytest.raises(InvalidDesc, match=rf"nodes\.{node}\.MatMul"):
        dmljax.onnx.load(model)(**inputs)


def test_errors_name_the_node_that_adds_a_bias_of_wrong_heads() -> None:
    repeated = OTHERS["queries of one head"]
    nodes = repeated.nodes.replace("s = MatMul(q, t)", "p = MatMul(q, t)  s = Add(p, bias)")
    shapes = {**repeated.shapes, "q": (1, 4, 5, 8), "bias": (3, 1, 1)}
    model = network(nodes, shapes | {"bias": ["heads", 1, 1]}, repeated.constants)
    with pytest.raises(InvalidDesc, match=r"nodes\.s\.Add"):
        dmljax.onnx.load(model)(**arrays(shapes))


def test_an_attention_in_a_subgraph_is_joined(calls: Calls) -> None:
    branch = f"then_branch = a () => (y) {{ {PRODUCT}  {REST.replace('(s)', '(p)')} }}"
    other = "else_branch = b () => (z) { z = Identity(v2) }"
    nodes = f"h = Cast<to = 9>(which)  y = If(h) <{branch}, {other}>"
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
    monkeypatch.setattr("dmljax.onnx.nodes.attention.joined._FEWEST", 6)
    nodes, constants = FORMS["plain"]
    inputs = arrays(read(nodes))
    result = dmljax.onnx.load(network(nodes, read(nodes), constants))(**inputs)
    assert result.shape == (2, 4, 5, 3)
    assert calls == []  # for 5 queries


@pytest.mark.parametrize(("form", "name", "number"), [("biased", "root", 0.6), ("masked", "low", -65504.0)])
def test_float16_is_added_up_in_float32(calls: Calls, form: str, name: str, number: float) -> None:
    nodes, _ = FORMS[form]
    shapes = {name: (*shape[:-1], 64) if name in "qk" else shape for name, shape in read(nodes).items()}
    inputs = arrays(shapes)
    if "seen" in inputs:
        inputs["seen"][2] = False
    expected = by_onnxruntime(network(nodes, shapes, f"float {name} = {{{number}}}"), inputs)
    half = network(nodes, shapes)
    half.graph.initializer.append(onnx.numpy_helper.from_array(np.array(number, np.float16), name))
    for x in half.graph.input:
        if x.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            x.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    feeds = {name: x.astype(np.float16) if x.dtype == np.float32 else x for name, x in inputs.items()}
    result = dmljax.onnx.load(half)(**feeds)
    assert len(calls) == 1
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, expected, rtol=1e-2, atol=1e-2)  # of inputs that are rounded


def test_directml_graphs_keep_the_nodes() -> None:
    nodes, constants = FORMS["scaled"]
    loaded = dmljax.onnx.load(network(nodes, read(nodes), constants))
    assert "w" in loaded.graph().nodes


# Random forms

SIDE = 4  # of all dimensions but the batch, so that every permutation fits
NUMBERS = [0.0, 5.0, -1.0, -1e4, -65504.0, -1e9, -1e29, -1e30, -3.4e38, -np.inf]


class Forms:
    """Draws nodes that are attention, or come near it; scores are whole numbers, which products do not round."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[str] = []
        self.constants: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        self.has_bias = False

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def add(self, call: str) -> str:
        name = f"x{len(self.nodes)}"
        self.nodes.append(f"{name} = {call}")
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def input(self, value: Any) -> str:
        name = f"i{len(self.inputs)}"
        self.inputs[name] = np.asarray(value)
        return name

    def numbers(self, *shape: int) -> Any:
        return self.random.integers(-3, 4, shape).astype(np.float32)

    def scaled(self, name: str) -> str:
        """A value times a number, or sometimes times a number for each column, or divided."""
        number = self.pick([0.5, 2.0, -1.0])
        scale = self.constant(np.array(number if self.chance(0.8) else [number, 1, 2, 1], np.float32))
        return self.add(self.pick([f"Mul({name}, {scale})", f"Mul({scale}, {name})", f"Div({name}, {scale})"]))

    def permuted(self, name: str, usual: Sequence[int]) -> str:
        order = usual if self.chance(0.8) else (0, *(self.random.permutation(3) + 1))
        return self.add(f"Transpose<perm = {[*map(int, order)]}>({name})")

    def factor(self, name: str, *, is_key: bool) -> str:
        """Keys, or values, in any of the forms that are undone."""
        if self.chance(0.4):
            name = self.scaled(name)
        form = self.pick(["plain", "plain", "heads last", "matrices as one batch", "repeated"])
        if form == "heads last":
            return self.permuted(name, (0, 2, 3, 1) if is_key else (0, 2, 1, 3))
        if form == "matrices as one batch" and is_key:
            rows = self.pick([[-1, SIDE, SIDE], [-1, SIDE, SIDE], [2, SIDE, -1], [2 * SIDE, 2, -1]])
            name = self.add(f"Reshape({name}, {self.constant(rows)})")
            name = self.add(f"Transpose<perm = {self.pick([[0, 2, 1], [0, 2, 1], [1, 0, 2], [1, 2, 0]])}>({name})")
            return self.add(f"Reshape({name}, {self.constant([2, SIDE, SIDE, SIDE])})")
        if form == "repeated":
            sizes, times = self.pick([([2, 2, 1], [1, 1, 2]), ([2, 2, 1], [1, 1, 2]), ([1, 4, 1], [2, 1, 1])])
            total = SIDE * SIDE * math.prod(sizes)
            flat = self.add(f"Reshape({name}, {self.constant([-1])})")
            bounds = [self.constant(np.array([bound])) for bound in (0, total)]
            cut = self.add(f"Slice({flat}, {', '.join(bounds)})")
            five = self.add(f"Reshape({cut}, {self.constant([*sizes, SIDE, SIDE])})")
            repeated = self.add(f"Expand({five}, {self.constant([*times, 1, 1])})")
            name = self.add(f"Reshape({repeated}, {self.constant([2, SIDE, SIDE, SIDE])})")
        return self.permuted(name, (0, 1, 3, 2)) if is_key else name

    def mask(self) -> str:
        shape = self.pick([(SIDE, SIDE), (SIDE,), (2, 1, 1, SIDE), (2, 1, SIDE, SIDE), (1, 1, 1, SIDE, SIDE)])
        if self.chance(0.4):
            own = np.tri(SIDE, SIDE, int(self.random.integers(2)), dtype=bool)
            own = own if self.chance(0.8) else own.T
            return self.constant(own if self.chance(0.8) else own[None, None, None])
        mask = self.random.random(shape) > 0.3
        mask[..., 1] &= self.chance(0.5)
        return self.constant(mask) if self.chance(0.5) else self.input(mask)

    def step(self, name: str) -> str:
        """A node between the product and the softmax."""
        kind = self.pick(["scale", "bias", "added mask", "where", "where", "identity"])
        if kind == "scale":
            return self.scaled(name)
        if kind in ("bias", "added mask"):
            self.has_bias = True
        if kind == "bias":
            bias = self.numbers(*self.pick([(SIDE,), (SIDE, SIDE), (2, 1, 1, SIDE), (1, SIDE, SIDE, SIDE)]))
            return self.add(f"Add({name}, {self.input(bias)})")
        if kind == "added mask":
            hidden, zero = (self.constant(np.float32(one)) for one in (self.pick(NUMBERS), 0))
            return self.add(f"Add({self.add(f'Where({self.mask()}, {zero}, {hidden})')}, {name})")
        if kind == "where":
            fill = self.constant(np.float32(self.pick(NUMBERS)))
            pair = f"{name}, {fill}" if self.chance(0.8) else f"{fill}, {name}"
            return self.add(f"Where({self.mask()}, {pair})")
        return self.add(f"Identity({name})")

    def draw(self) -> tuple[Any, dict[str, Any]]:
        query, key, value = (self.input(self.numbers(2, SIDE, SIDE, SIDE)) for _ in range(3))
        if self.chance(0.2):
            value = key
        if self.chance(0.3):
            self.inputs[query] *= np.float32(self.pick([1e3, 1e6, 1e12]))
        factors = [self.scaled(query) if self.chance(0.4) else query]
        factors += [self.factor(key, is_key=True), self.factor(value, is_key=False)]
        scores = self.add(f"MatMul({factors[0]}, {factors[1]})")
        for _ in range(self.random.integers(4)):
            scores = self.step(scores)
        weights = self.add(f"Softmax<axis = {-1 if self.chance(0.9) else 1}>({scores})")
        guarded = self.chance(0.2)
        if guarded:
            zero, is_nan = self.constant(np.float32(0)), self.add(f"IsNaN({weights})")
            weights = self.add(f"Where({is_nan}, {zero}, {weights})")
        result = self.add(f"MatMul({weights}, {factors[2]})")
        # What a mask replaces before a bias, and what a guard does, is known only for finite scores.
        if not self.has_bias and not guarded and self.chance(0.3):
            chosen = self.inputs[self.pick([query, key, value])]
            chosen.reshape(-1)[self.random.integers(chosen.size)] = self.pick([np.inf, -np.inf, np.nan])
        outputs = [result]
        if self.chance(0.15):
            outputs.append(self.pick([name for name in self.names_before(result) if name != result]))
        return self.model(outputs), self.inputs

    def names_before(self, name: str) -> list[str]:
        return [f"x{i}" for i in range(int(name[1:]))]

    def model(self, outputs: Sequence[str]) -> Any:
        inputs = ", ".join(
            f"{'bool' if x.dtype == bool else 'float'}{[*x.shape]} {name}" for name, x in self.inputs.items()
        )
        head = f'<ir_version: 8, opset_import: ["": 18]> g ({inputs}) => ({", ".join(outputs)})'
        model = parser.parse_model(f"{head} {{ {'  '.join(self.nodes)} }}")
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()
        )
        return model


@FULL
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_mutated_forms_compute_what_their_nodes_do(calls: Calls, first: int) -> None:
    joined = 0
    for seed in range(first, first + 100):
        model, inputs = Forms(seed).draw()
        before = len(calls)
        results = jax.tree.leaves(dmljax.onnx.load(model)(**inputs))
        joined += len(calls) > before
        expected = dmljax.onnx.load(with_all_outputs(model))(**inputs)
        message = f"seed {seed}: {onnx.printer.to_text(model)}"
        for result, other in zip(results, expected, strict=False):
            np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-4, strict=True, err_msg=message)
    assert 20 <= joined <= 80


# PyTorch


@SAMPLED
@pytest.mark.parametrize("mask_kind", ["none", "causal", "bool", "float"])
def test_attention_exported_by_pytorch_is_joined(calls: Calls, mask_kind: str) -> None:
    torch = pytest.importorskip("torch")

    class Attending(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(query, key, value, mask, is_causal=mask_kind == "causal")

    inputs = [torch.randn(SIZES[name]) for name in "qkv"]
    inputs += {"bool": [torch.rand(5, 6) > 0.4], "float": [torch.randn(5, 6)]}.get(mask_kind, [])
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Attending().eval(), tuple(inputs), file, dynamo=False, opset_version=17)
    model = onnx.load_from_string(file.getvalue())
    names = [x.name for x in model.graph.input]
    feeds = dict(zip(names, (np.asarray(x) for x in inputs), strict=True))
    result = dmljax.onnx.load(model)(*feeds.values())
    np.testing.assert_allclose(result, by_onnxruntime(model, feeds), rtol=2e-5, atol=2e-6)
    assert [x["bias"] is not None for x in calls] == [mask_kind in ("bool", "float")]
