"""Networks in which values decide sizes, with bounds for these sizes, beside ONNX Runtime."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx.parser
import pytest
from helpers import GATE, SAMPLED
from onnx_models import by_onnxruntime

import dmljax.onnx
from dmljax.directml import Unsupported

X = np.array([[-5, 1, -2, 3], [4, -1, 0, 2], [-3, -4, 6, -7]], np.float32)
BOXES = np.random.default_rng(0).uniform(0, 8, (12, 2)).astype(np.float32)

# The nodes of each network, after `m`, the elements of `x` above 0, and their coordinates, in rows `p`
POSITIVE = """
m = Greater (x, zero)
places = NonZero (m)
p = Transpose (places)
"""
NETWORKS = {
    "sum": "v = GatherND (x, p)  y = ReduceSum <keepdims = 0> (v)  n = Shape (v)",
    "every reduction": """
        v = GatherND (x, p)  a = ReduceMax (v)  b = ReduceMin (v)  c = ReduceProd (v)  d = ReduceMean (v)
        e = ReduceL2 (v)  f = ReduceLogSumExp (v)  y = Concat <axis = 0> (a, b, c, d, e, f)
        i = ArgMax <axis = 0> (v)  j = ArgMin <axis = 0> (v)  n = Concat <axis = 0> (i, j)""",
    "softmax and cumulated sums": """
        v = GatherND (x, p)  s = Softmax <axis = 0> (v)  k = Constant <value_int = 0> ()
        c = CumSum <reverse = 1> (v, k)  y = Mul (s, c)  n = Size (y)""",
    "written back": """
        v = GatherND (x, p)  w = Neg (v)  y = ScatterND (x, p, w)  n = Shape (p)""",
    "written from rows of a fixed number": """
        y = ScatterND (x, p, five)  n = Shape (p)""",
    "elements written back along an axis": """
        flat = Reshape (x, minus)  above = Greater (flat, zero)  at = NonZero (above)  row = Squeeze (at, none)
        v = Gather (flat, row)  w = Exp (v)  y = ScatterElements (flat, row, w)  n = Shape (row)""",
    "counted rows": """
        s = Shape (p)  k = Gather (s, first)  f = Cast <to = 1> (k)  v = GatherND (x, p)
        t = ReduceSum <keepdims = 0> (v)  y = Div (t, f)  n = Mul (k, k)""",
    "the best of them": """
        v = GatherND (x, p)  s = Shape (v)  k = Min (s, three)  y, n = TopK (v, k)""",
    "joined, and sliced from both ends": """
        v = GatherND (x, p)  w = Neg (v)  both = Concat <axis = 0> (v, w, v)
        y = Slice (both, one, last)  n = Shape (y)""",
    "reversed": """
        v = GatherND (x, p)  y = Slice (v, last, far, axis0, last)  n = Shape (y)""",
    "powers, and as many of the last elements": """
        v = GatherND (x, p)  w = Pow (v, two)  flat = Reshape (x, minus)  s = Shape (v)  start = Neg (s)
        end = Constant <value = int64[1] {9223372036854775807}> ()  z = Slice (flat, start, end)  y = Add (w, z)
        n = Shape (z)""",
    "pairs": """
        v = GatherND (x, p)  a = Unsqueeze (v, minus)  b = Unsqueeze (v, none)  d = Sub (a, b)  q = Mul (d, d)
        y = ReduceSum <keepdims = 0> (q, minus)  flat = Reshape (d, minus)  n = Shape (flat)""",
    "products of rows and of columns": """
        r = ReduceMax <keepdims = 0> (x, minus)  above = Greater (r, zero)  at = NonZero (above)
        row = Squeeze (at, none)  v = Gather (x, row)  t = Transpose <perm = [1, 0]> (v)  g = MatMul (t, v)
        h = MatMul (v, t)  z = ReduceSum (h)  y = Add (g, z)  n = Shape (h)""",
    "coordinates from two computations": """
        m2 = Greater (x, zero)  places2 = NonZero (m2)  p2 = Transpose (places2)
        a = GatherND (x, p)  b = GatherND (x, p2)  y = Add (a, b)  n = Sub (p, p2)""",
    "nonzero of nonzero": """
        v = GatherND (x, p)  large = Greater (v, two)  at = NonZero (large)  row = Squeeze (at, none)
        y = Gather (v, row)  n = Shape (y)""",
    "ranges and fills of that size": """
        s = Shape (p)  k = Gather (s, first)  r = Range (first, k, step)  e = Reshape (k, minus)
        ones = ConstantOfShape <value = float[1] {1}> (e)  f = Cast <to = 1> (r)  y = Add (f, ones)
        w = Expand (three, e)  n = Add (r, w)""",
    "padding up to a fixed size": """
        v = GatherND (x, p)  s = Shape (v)  more = Sub (ten, s)  pads = Concat <axis = 0> (none, more)
        y = Pad (v, pads, half)  n = Shape (y)""",
    "unique elements and a compression": """
        v = GatherND (x, p)  c = Clip (v, zero, two)  u, i, inverse, n = Unique (c)
        keep = Greater (v, two)  w = Compress <axis = 0> (v, keep)  y = Concat <axis = 0> (u, w)""",
    "one of two branches": """
        v = GatherND (x, p)  t = ReduceSum <keepdims = 0> (v)  is_large = Greater (t, zero)
        y = If (is_large) <then_branch = a () => (float[k] r) { r = Mul (v, v) },
                           else_branch = b () => (float[l] q) { q = Identity (two_floats) }>
        n = Shape (y)""",
    "boxes that overlap": """
        corners = Concat <axis = 1> (small, large_boxes)  b = Unsqueeze (corners, none)  all = Unsqueeze (scores, row2)
        chosen = NonMaxSuppression (b, all, ten1, overlap)
        at = Gather <axis = 1> (chosen, second)  kept = Gather (corners, at)  y = ReduceSum (kept, none)
        n = Shape (kept)""",
    "layers of a chosen batch": """
        images = Reshape (x, batch_sizes)  means = ReduceMean <keepdims = 0> (images, rows123)
        above = Greater (means, minus_one)  at = NonZero (above)  row = Squeeze (at, none)  v = Gather (images, row)
        c = Conv <pads = [1, 1, 1, 1]> (v, filters)  r = Relu (c)  q = AveragePool <kernel_shape = [2, 2]> (r)
        big = Resize <mode = "nearest"> (q, , scales)  flat = Flatten (big)  norm = LayerNormalization (flat, gain)
        e = Einsum <equation = "ij,kj->ki"> (norm, gains)  y = Softmax <axis = 0> (e)  n = Shape (big)""",
    "tiles, one-hot rows and a gather along the axis": """
        v = GatherND (x, p)  t = Tile (v, two_times)  k = Cast <to = 7> (v)
        o = OneHot (k, ten, zero_one)  order, at = TopK (v, one)  e = GatherElements (v, at)
        s = ReduceSum <keepdims = 0> (o, none)  y = Concat <axis = 0> (t, e, s)  n = Shape (o)""",
    "regions of an image": """
        image = Reshape (x, image_sizes)  rows = Cast <to = 1> (p)  ends = Add (rows, one_float)
        rois = Concat <axis = 1> (rows, ends)  s = Shape (p)  k = Gather (s, first)  e = Reshape (k, minus)
        batch = ConstantOfShape <value = int64[1] {0}> (e)
        a = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 1> (image, rois, batch)
        y = Flatten (a)  n = Shape (y)""",
}
CONSTANTS = """float zero = {0}, float two = {2}, float one_float = {1}, float half = {0.5}, int64[1] one = {1},
    int64[1] none = {0}, int64[1] axis0 = {0}, int64[1] minus = {-1}, int64[1] last = {-1}, int64[1] far = {-100},
    int64[1] three = {3}, int64[1] ten = {10}, int64 first = {0}, int64 step = {1}, int64 second = {2},
    int64[1] ten1 = {10}, float[1] overlap = {0.2}, int64[2] row2 = {0, 1}, int64[4] image_sizes = {1, 1, 3, 4},
    float[2] two_floats = {7, 8}, int64[4] batch_sizes = {3, 1, 2, 2}, int64[3] rows123 = {1, 2, 3},
    float minus_one = {-1}, float[1, 1, 2, 2] filters = {1, -2, 3, 4}, float[4] scales = {1, 1, 2, 2},
    float[16] gain = {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2}, int64[1] two_times = {2},
    float[5] five = {1, 2, 3, 4, 5},
    float[1, 16] gains = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}, float[2] zero_one = {0, 1}"""


def network(nodes: str) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["": 21]> f (float[3, 4] x) => (float y, int64 n)'
    proto = onnx.parser.parse_model(f"{head} <{CONSTANTS}> {{ {POSITIVE} {nodes} }}")
    for output in proto.graph.output:  # of any shape
        output.CopyFrom(onnx.ValueInfoProto(name=output.name))
    boxes = {"small": BOXES, "large_boxes": BOXES + 3, "scores": BOXES[:, 0] / 8}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(box, name) for name, box in boxes.items())
    return proto


def bounds_of(proto: onnx.ModelProto, x: Any, more: int) -> dict[str, int]:
    """For each node whose result has a size that its values decide, that size and some more."""
    operators = ("NonZero", "Compress", "Unique", "NonMaxSuppression")
    nodes = [node for node in proto.graph.node if node.op_type in operators]
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    proto.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in nodes)
    results = by_onnxruntime(proto, [x])[2:]
    axis = {"NonZero": -1}
    rows = zip(nodes, results, strict=True)
    return {node.output[0]: max(1, x.shape[axis.get(node.op_type, 0)]) + more for node, x in rows}


@SAMPLED
@pytest.mark.parametrize("bounds", ["exact", "larger", "largest"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_compute_what_onnx_runtime_does_for_any_bound(name: str, bounds: str) -> None:
    proto = network(NETWORKS[name])
    expected = by_onnxruntime(proto, [X])
    maximum_sizes: Any = bounds if bounds == "largest" else bounds_of(proto, X, 3 if bounds == "larger" else 0)
    require_same(dmljax.onnx.load(proto, maximum_sizes=maximum_sizes), X, expected)


def require_same(model: Any, x: Any, expected: Any) -> None:
    results, sizes = jax.jit(model.with_sizes)(x)
    for result, reference, name in zip(results, expected, ("y", "n"), strict=True):
        assert sizes[name].tolist() == [*np.shape(reference)]
        true = np.asarray(result)[tuple(map(slice, np.shape(reference)))]
        np.testing.assert_allclose(true, reference, rtol=2e-6, atol=1e-6)
        assert np.abs(result).sum() == np.abs(true).sum(), "the padding is 0"


@SAMPLED
@pytest.mark.parametrize(
    "name", ["sum", "written back", "joined, and sliced from both ends", "pairs", "boxes that overlap"]
)
def test_networks_without_any_such_element_compute_what_onnx_runtime_does(name: str) -> None:
    x = -np.abs(X) - 1
    proto = network(NETWORKS[name])
    require_same(dmljax.onnx.load(proto, maximum_sizes="largest"), x, by_onnxruntime(proto, [x]))


@GATE
def test_a_batch_is_mapped_each_with_sizes_of_its_own() -> None:
    model = dmljax.onnx.load(network(NETWORKS["sum"]), maximum_sizes="largest")
    batch = np.stack([X, -X, np.abs(X)])
    totals, counts = jax.vmap(model)(batch)
    assert totals.tolist() == [np.maximum(x, 0).sum() for x in batch]
    assert counts.ravel().tolist() == [(x > 0).sum() for x in batch]


@GATE
def test_padding_has_no_part_in_gradients() -> None:
    nodes = "v = GatherND (x, p)  l = Log (v)  y = ReduceSum <keepdims = 0> (l)  n = Shape (v)"
    model = dmljax.onnx.load(network(nodes), maximum_sizes="largest")
    x = jnp.asarray(X)
    np.testing.assert_allclose(jax.grad(lambda x: model(x)[0])(x), np.where(X > 0, 1 / np.where(X > 0, X, 1), 0))


REFUSED = "v = GatherND (x, p)  y = MeanVarianceNormalization <axes = [0]> (v)  n = Shape (v)"


def test_an_operator_that_would_read_padding_is_named() -> None:
    model = dmljax.onnx.load(network(REFUSED), maximum_sizes="largest")
    message = (
        r"nodes.*MeanVarianceNormalization\.v must not have a size that depends on values, .* \(call the model outside"
    )
    with pytest.raises(Unsupported, match=message):
        jax.jit(model)(X)


def test_outside_jit_a_model_with_such_an_operator_returns_the_true_sizes() -> None:
    y, n = dmljax.onnx.load(network(REFUSED), maximum_sizes="largest")(X)
    (expected, count) = by_onnxruntime(network(REFUSED), [X])
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert n.tolist() == count.tolist()


def test_a_bound_of_one_node_leaves_the_others_to_refuse() -> None:
    nodes = "v = GatherND (x, p)  u = Unique (v)  y = Neg (u)  n = Shape (v)"
    with pytest.raises(Unsupported, match=r"Unique\.v must be known while tracing"):
        jax.jit(dmljax.onnx.load(network(nodes), maximum_sizes={"places": 12}))(X)
