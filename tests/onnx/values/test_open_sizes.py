"""Open sizes: models exported with symbols for sizes, run at several sizes, beside ONNX Runtime."""

import operator
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from helpers import FULL, SAMPLED
from onnx import TensorProto, helper
from onnx_models import FLOAT, model, value

import dmljax.onnx
from dmljax.errors import DmlError
from dmljax.onnx.running.plan import PlanMode
from dmljax.onnx.values.symbols import (
    SizeExpression,
    Symbols,
    as_sizes,
    compute_known,
    known_numbers,
    sizes_array,
    truncated_quotients,
)


class Case(NamedTuple):
    """A model: its inputs, the nodes that compute `y`, and the constraints on its sizes."""

    inputs: str
    nodes: str
    constraints: Sequence[str] = ()
    opset: int = 21


# Shared by all cases: numbers, and vectors of one or two of them, then the sizes of x
NUMBERS = """int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64 i3 = {3}, int64[1] v0 = {0}, int64[1] v1 = {1},
int64[1] v2 = {2}, int64[1] v3 = {3}, int64[1] rest = {-1}, int64[2] ones = {1, 1}, int64[2] minus = {-1, -1},
float f0 = {0}, float f1 = {1}, float f2 = {2}, float half = {0.5}, float[2] flags = {0, 1},
int64[1] far = {1000000000}"""
SIZES_OF_X = "s = Shape (x) n0 = Gather (s, i0) n1 = Gather (s, i1) w0 = Gather (s, v0) w1 = Gather (s, v1)"
TABLE = f"table = Constant <value = float[8, 3] {{{', '.join(map(str, range(24)))}}}> ()"
PLACES = "places = Constant <value = int64[1, 8] {0, 1, 2, 3, 4, 5, 6, 7}> ()"
BODY = "body = body (int64 k, bool c, float[m] v) => (bool d, float[m] w"
MATRIX, IMAGE, TOKENS = "float[a, b] x", "float[a, 2, b, c] x", "float[a, b, 3] x"
WITH_FILTER = f"{IMAGE}, float[2, 2, 3, 3] w"

CASES = {
    # Sizes into shapes
    "Reshape to the batch": Case(TOKENS, "t = Concat <axis = 0> (w0, rest) y = Reshape (x, t)"),
    "Reshape to what is left": Case(TOKENS, "t = Concat <axis = 0> (rest, v3) y = Reshape (x, t)"),
    "Reshape of 0": Case("float[a, b, 6] x", "t = Constant <value_ints = [0, 0, 2, 3]> () y = Reshape (x, t)"),
    "Flatten": Case(TOKENS, "y = Flatten (x)"),
    "Shape": Case(MATRIX, "y = Identity (s)"),
    "Size": Case(MATRIX, "y = Size (x)"),
    "Squeeze": Case("float[a, 1, b] x", "y = Squeeze (x)"),
    "Expand": Case("float[a, 1] x, float[a, b] z", "t = Shape (z) y = Expand (x, t)"),
    "Expand of a constant": Case(MATRIX, "y = Expand (f2, s)"),
    "Expand as exporters write it": Case(
        MATRIX, "e = Equal (s, minus) t = Where (e, ones, s) q = ConstantOfShape (ones) y = Expand (q, t)"
    ),
    "ConstantOfShape": Case(MATRIX, "y = ConstantOfShape <value = int64[1] {2}> (s)"),
    "Tile": Case("float[a, b] x, float[1, c] z", "y = Tile (z, s)"),
    "Tile by repeats in a one-hot row": Case(
        "float[a, b] x, float[1, c] z",
        """o = Concat <axis = 0> (v1, w0) h = OneHot (v1, i3, o) q = Flatten <axis = 0> (h) t = Squeeze (q, v0)
        u = Unsqueeze (z, v1) y = Tile (u, t)""",
    ),
    "Tile of a constant": Case(MATRIX, "y = Tile (flags, w1)"),
    "EyeLike": Case(MATRIX, "z = ConstantOfShape (s) y = EyeLike (z)"),
    "Trilu": Case("float[a, b, c] x", "y = Trilu (x, n0)"),
    "Trilu as a causal mask": Case(
        "float[a, b, b] x",
        """t = Concat <axis = 0> (w1, w1) o = ConstantOfShape <value = float[1] {1}> (t) m = Trilu <upper = 0> (o)
        y = Mul (x, m)""",
    ),
    "CenterCropPad": Case(MATRIX, "t = Constant <value_ints = [3, 5]> () y = CenterCropPad (x, t)"),
    # Ranges
    "Range": Case(MATRIX, "y = Range (i0, n1, i1)"),
    "Range by steps": Case(MATRIX, "y = Range (i1, n1, i2)"),
    "Range backwards": Case(MATRIX, "m = Neg (i1) y = Range (n1, i0, m)"),
    "Range of a cast size": Case(MATRIX, "t = Cast <to = 1> (n1) u = Cast <to = 7> (t) y = Range (i0, u, i1)"),
    "Range of floats": Case(MATRIX, "t = Cast <to = 1> (n1) y = Range (f0, t, half)"),
    # Slices
    "Slice of a constant": Case(TOKENS, f"{TABLE} p = Slice (table, v0, w1) y = Add (x, p)", ["b <= 8"]),
    "Slice of positions": Case(
        TOKENS, f"{TABLE} {PLACES} p = Slice (places, v0, w1, v1) e = Gather (table, p) y = Add (x, e)", ["b <= 8"]
    ),
    "Slice of later positions": Case(
        f"{TOKENS}, float[a, d, 3] past",
        f"""{TABLE} {PLACES} r = Shape (past) d = Gather (r, v1) m = Add (d, w1) p = Slice (places, d, m, v1)
        e = Gather (table, p) y = Add (x, e)""",
        ["b + d <= 8", "d <= 8"],
    ),
    "Slice to 1000000000": Case(MATRIX, "z = Slice (x, v0, far, v1) y = Add (x, z)"),
    "Slice of the last": Case(MATRIX, "z = Slice (x, rest, far, v1) y = Squeeze (z, v1)"),
    "Slice but the last": Case(MATRIX, "y = Slice (x, v0, rest, v1)", ["b >= 2"]),
    "Slice backwards": Case(
        MATRIX, "e = Constant <value_ints = [-9223372036854775807]> () y = Slice (x, rest, e, v1, rest)"
    ),
    "Slice of a half": Case(MATRIX, "h = Div (w1, v2) y = Slice (x, v0, h, v1)"),
    "Slice by steps": Case(MATRIX, "y = Slice (x, v1, far, v1, v2)"),
    "Split": Case(MATRIX, "y, z = Split <axis = 1, num_outputs = 2> (x)"),
    "Split by sizes": Case(
        MATRIX, "m = Sub (w1, v1) t = Concat <axis = 0> (v1, m) z, y = Split <axis = 1> (x, t)", ["b >= 2"]
    ),
    # Padding
    "Pad": Case(MATRIX, "p = Constant <value_ints = [0, 1, 2, 0]> () y = Pad (x, p)"),
    "Pad to another size": Case(
        f"{MATRIX}, float[a, c] z",
        "t = Shape <start = 1> (z) d = Sub (t, w1) p = Concat <axis = 0> (v0, v0, v0, d) y = Pad (x, p)",
        ["c >= b"],
    ),
    "Pad to a multiple": Case(
        MATRIX, "k = Add (v3, v1) m = Neg (w1) r = Mod (m, k) p = Concat <axis = 0> (v0, v0, v0, r) y = Pad (x, p)"
    ),
    "Pad by reflection": Case(
        MATRIX, "p = Constant <value_ints = [0, 2, 0, 3]> () y = Pad <mode = 'reflect'> (x, p)", ["b >= 4"]
    ),
    "Pad by wrapping": Case(
        MATRIX, "p = Constant <value_ints = [0, 1, 0, 2]> () y = Pad <mode = 'wrap'> (x, p)", ["b >= 4"]
    ),
    "Pad by edges": Case(MATRIX, "p = Constant <value_ints = [0, 1, 0, 1]> () y = Pad <mode = 'edge'> (x, p)"),
    # Places
    "Gather": Case(f"{MATRIX}, int64[c, d] i", "y = Gather <axis = 1> (x, i)"),
    "GatherElements of sizes": Case(MATRIX, "t = GatherElements (s, v1) y = ConstantOfShape (t)"),
    "GatherND": Case(f"{MATRIX}, int64[c, 1] i", "y = GatherND (x, i)"),
    "ScatterElements": Case(f"{MATRIX}, int64[a, c] i, float[a, c] u", "y = ScatterElements <axis = 1> (x, i, u)"),
    "ScatterElements that adds": Case(
        f"{MATRIX}, int64[a, c] i, float[a, c] u", "y = ScatterElements <axis = 1, reduction = 'add'> (x, i, u)"
    ),
    "ScatterND": Case(f"{MATRIX}, int64[c, 1] i, float[c, b] u", "y = ScatterND <reduction = 'add'> (x, i, u)"),
    "OneHot": Case(f"{MATRIX}, int64[c] i", "y = OneHot (i, n1, flags)"),
    "TopK": Case(MATRIX, "y, z = TopK (x, w1)"),
    "TopK of a half": Case(MATRIX, "h = Div (w1, v2) y, z = TopK (x, h)"),
    "TopK of at most two": Case(MATRIX, "h = Min (w1, v2) y, z = TopK (x, h)"),
    "Compress": Case(MATRIX, "k = Constant <value = bool[2] {1, 1}> () y = Compress <axis = 1> (x, k)", ["b >= 2"]),
    # Arithmetic of sizes
    "Max": Case(MATRIX, "t = Max (s, v3) y = ConstantOfShape (t)"),
    "Min": Case(MATRIX, "t = Min (s, v3) y = ConstantOfShape (t)"),
    "Clip": Case(MATRIX, "t = Clip (s, i3) y = ConstantOfShape (t)"),
    "Mod": Case(MATRIX, "t = Mod (s, v3) y = ConstantOfShape (t)"),
    "Div": Case(MATRIX, "t = Div (s, v2) y = ConstantOfShape (t)"),
    "Div towards zero": Case(MATRIX, "m = Sub (v3, s) y = Div (m, v2)"),
    "Neg and Abs": Case(MATRIX, "m = Neg (s) t = Abs (m) y = ConstantOfShape (t)"),
    "Pow": Case(MATRIX, "y = Pow (s, v2)"),
    "ReduceProd": Case(MATRIX, "y = ReduceProd <keepdims = 0> (s)"),
    "ReduceMax": Case(MATRIX, "t = ReduceMax (s) y = ConstantOfShape (t)"),
    "Greater": Case(MATRIX, "y = Greater (s, v3)"),
    "Equal": Case(MATRIX, "y = Equal (s, v3)"),
    "Cast to float": Case(MATRIX, "c = Cast <to = 1> (s) m = ReduceProd <keepdims = 0> (c) y = Div (x, m)"),
    "Cast to int32": Case(MATRIX, "c = Cast <to = 6> (s) y = Mul (c, c)"),
    "Cast of a product": Case(
        MATRIX, "c = Cast <to = 1> (s) m = Mul (c, half) t = Cast <to = 7> (m) y = ConstantOfShape (t)"
    ),
    "Floor": Case(
        MATRIX,
        """k = Constant <value_float = 0.7> () c = Cast <to = 1> (s) m = Mul (c, k) f = Floor (m)
        t = Cast <to = 7> (f) y = ConstantOfShape (t)""",
    ),
    "Ceil": Case(
        MATRIX, "c = Cast <to = 1> (s) m = Div (c, f2) f = Ceil (m) t = Cast <to = 7> (f) y = ConstantOfShape (t)"
    ),
    "Sqrt": Case(MATRIX, "c = Cast <to = 1> (n1) r = Sqrt (c) y = Div (x, r)"),
    "sequences of sizes": Case(
        MATRIX, "q = SplitToSequence <axis = 0> (s) t = SequenceAt (q, i1) y = ConstantOfShape (t)"
    ),
    # Images
    "GlobalAveragePool": Case(IMAGE, "y = GlobalAveragePool (x)"),
    "GlobalMaxPool": Case(IMAGE, "y = GlobalMaxPool (x)"),
    "GlobalLpPool": Case(IMAGE, "y = GlobalLpPool <p = 3> (x)"),
    "AveragePool": Case(IMAGE, "y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)", ["b >= 2", "c >= 2"]),
    "MaxPool": Case(IMAGE, "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)", ["b >= 2", "c >= 2"]),
    "MaxPool of rounded sizes": Case(
        IMAGE, "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x)", ["b >= 2", "c >= 2"]
    ),
    "MaxPool of the same size": Case(
        IMAGE, "y = MaxPool <kernel_shape = [3, 3], auto_pad = 'SAME_UPPER', strides = [2, 2]> (x)"
    ),
    "Conv": Case(WITH_FILTER, "y = Conv <pads = [1, 1, 1, 1]> (x, w)"),
    "Conv of the same size": Case(WITH_FILTER, "y = Conv <auto_pad = 'SAME_UPPER', strides = [2, 2]> (x, w)"),
    "Conv without padding": Case(WITH_FILTER, "y = Conv (x, w)", ["b >= 3", "c >= 3"]),
    "ConvTranspose": Case(WITH_FILTER, "y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)"),
    "Resize by scales": Case(IMAGE, "k = Concat <axis = 0> (t, t, u, u) y = Resize <mode = 'nearest'> (x, , k)"),
    "Upsample": Case(IMAGE, "k = Concat <axis = 0> (t, t, u, u) y = Upsample (x, k)", opset=9),
    "Resize to computed sizes": Case(
        IMAGE,
        """c = Cast <to = 1> (s) q = Concat <axis = 0> (t, t, u, u) m = Mul (c, q) f = Floor (m) n = Cast <to = 7> (f)
        y = Resize <mode = 'linear'> (x, , , n)""",
    ),
    **{
        f"Resize by {mode} and {way}": Case(
            f"{IMAGE}, float[a, 2, d, e] z",
            f"t = Shape (z) y = Resize <mode = '{mode}', coordinate_transformation_mode = '{way}'> (x, , , t)",
        )
        for mode, way in (
            ("nearest", "asymmetric"),
            ("linear", "half_pixel"),
            ("linear", "align_corners"),
            ("linear", "pytorch_half_pixel"),
            ("cubic", "half_pixel"),
        )
    },
    "DepthToSpace": Case("float[a, 4, b, c] x", "y = DepthToSpace <blocksize = 2> (x)"),
    "SpaceToDepth": Case("float[a, 2, c, c] x", "y = SpaceToDepth <blocksize = 2> (x)", ["mod(c, 2) == 0"]),
    "windows of an image": Case(
        "float[a, c, c, 2] x",
        """h = Div (w1, v2) t = Concat <axis = 0> (w0, h, v2, h, v2, v2) z = Reshape (x, t)
        p = Transpose <perm = [0, 1, 3, 2, 4, 5]> (z) q = Concat <axis = 0> (rest, v2, v2, v2) y = Reshape (p, q)""",
        ["mod(c, 2) == 0"],
    ),
    "STFT": Case("float[a, b, 1] x", "k = Constant <value_int = 4> () y = STFT (x, i2, , k)", ["b >= 4"]),
    # Control
    "If": Case(
        MATRIX,
        """c = Greater (n1, i3) y = If (c) <then_branch = t () => (float[a, b] p) { p = Add (x, x) },
        else_branch = e () => (float[a, b] q) { q = Neg (x) }>""",
    ),
    "Loop": Case(MATRIX, f"y = Loop (n0, , x) <{BODY}) {{ d = Identity (c) w = Add (v, v) }}>"),
    "Loop of rows": Case(
        MATRIX,
        f"""z = ReduceSum <keepdims = 0> (x) q, y = Loop (n0, , z) <{BODY}, float[m] o) {{
        d = Identity (c) w = Add (v, v) o = Gather (x, k) }}>""",
    ),
    "Scan": Case(
        MATRIX,
        """q, y = Scan <num_scan_inputs = 1, body = body (float v, float[b] r) => (float w, float[b] o) {
        m = ReduceSum <keepdims = 0> (r) w = Add (v, m) o = Mul (r, w) }> (f0, x)""",
    ),
}
USUAL = (
    "Expand of a constant",
    "Slice of positions",
    "Slice to 1000000000",
    "Pad by reflection",
    "TopK of a half",
    "Floor",
    "GlobalAveragePool",
    "Resize by linear and half_pixel",
    "Loop",
)
SIZES = ({"a": 2, "b": 5, "c": 6, "d": 2, "e": 3}, {"a": 3, "b": 6, "c": 8, "d": 1, "e": 5})


def proto_of(case: Case) -> onnx.ModelProto:
    scales = (
        "t = Constant <value_floats = [1.0]> () u = Constant <value_floats = [1.5]> ()" if "u, u" in case.nodes else ""
    )
    text = f"""<ir_version: 8, opset_import: ["": {case.opset}]> f ({case.inputs}) => (float y) <{NUMBERS}>
    {{ {SIZES_OF_X} {scales} {case.nodes} }}"""
    proto = onnx.parser.parse_model(text.replace("'", '"'))
    proto.graph.output[0].ClearField("type")
    return proto


def open_names(proto: onnx.ModelProto) -> list[str]:
    shapes = (x.type.tensor_type.shape.dim for x in proto.graph.input)
    return [*dict.fromkeys(x.dim_param for shape in shapes for x in shape if x.dim_param)]


def combinations() -> list[Any]:
    """Each case with each of its sizes open, and with all of them open."""
    parameters = []
    for name, case in CASES.items():
        names = open_names(proto_of(case))
        for opened in [*([name] for name in names), *([names] if len(names) > 1 else [])]:
            is_usual = name in USUAL and opened == names
            parameters.append(
                pytest.param(name, opened, marks=() if is_usual else FULL, id=f"{name}-{'-'.join(opened)}")
            )
    return parameters


def export_model(
    proto: onnx.ModelProto, opened: Sequence[str], constraints: Sequence[str], fixed: Any = SIZES[0]
) -> Any:
    """The model exported with symbols for the sizes of these names."""
    texts = [
        re.sub(r"\b[a-e]\b", lambda one: one[0] if one[0] in opened else str(fixed[one[0]]), c) for c in constraints
    ]
    texts = [one for one in texts if re.search(r"\b[a-e]\b", one)]
    symbols = dict(zip(opened, jax.export.symbolic_shape(", ".join(opened), constraints=texts), strict=True))
    types = []
    for one in proto.graph.input:
        tensor_type = one.type.tensor_type
        sizes = [
            size.dim_value or symbols.get(size.dim_param, fixed.get(size.dim_param)) for size in tensor_type.shape.dim
        ]
        dtype = jax.dtypes.canonicalize_dtype(helper.tensor_dtype_to_np_dtype(tensor_type.elem_type))
        types.append(jax.ShapeDtypeStruct(sizes, dtype))
    return jax.export.export(jax.jit(dmljax.onnx.load(proto)))(*types)


def assert_as_onnxruntime(function: Any, proto: onnx.ModelProto, sizes: dict[str, int]) -> None:
    random = np.random.default_rng(0)
    arrays = {}
    for tensor in proto.graph.input:
        tensor_type = tensor.type.tensor_type
        shape = [size.dim_value or sizes[size.dim_param] for size in tensor_type.shape.dim]
        is_float = tensor_type.elem_type == FLOAT
        arrays[tensor.name] = random.uniform(-2, 2, shape).astype("float32") if is_float else np.zeros(shape, np.int64)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, arrays)
    result = function(*map(jnp.asarray, arrays.values()))
    assert result.dtype == jax.dtypes.canonicalize_dtype(expected.dtype)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@SAMPLED
@pytest.mark.parametrize(("name", "opened"), combinations())
def test_a_model_of_open_sizes_serves_for_all_sizes(name: str, opened: list[str]) -> None:
    proto = proto_of(CASES[name])
    call = export_model(proto, opened, CASES[name].constraints).call
    for sizes in SIZES:
        assert_as_onnxruntime(call, proto, SIZES[0] | {name: sizes[name] for name in opened})


# What stays refused


REFUSED = {
    "positions without a bound": (
        CASES["Slice of positions"]._replace(constraints=()),
        r'Add.*must have shapes that broadcast.*\n.*Add: sizes depend on an undecided min .*constraints=\["b <= 8"\]',
    ),
    "tokens beyond the positions of a table": (
        Case(TOKENS, f"{PLACES} t = Shape <end = 2> (x) p = Slice (places, v0, w1, v1) y = Expand (p, t)"),
        r'Expand.shape must broadcast with the input.*\n.*Expand: sizes depend on an undecided min .*\["b <= 8"\]',
    ),
    "as many copies as there are positions": (
        Case(
            MATRIX, f"{PLACES} p = Slice (places, v0, w1, v1) t = Shape (p) z = Slice (x, v0, v1, v0) y = Expand (z, t)"
        ),
        r'Expand: sizes depend on an undecided min .*constraints=\["b <= 8"\]',
    ),
    "an image that is halved and doubled": (
        Case(
            f"{IMAGE}, float[2, 2, 3, 3] w",
            """k = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()
            h = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
            q = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (h, w)
            m = Resize <mode = 'nearest'> (q, , k) y = Concat <axis = 1> (h, m)""",
        ),
        r"Concat: sizes are equal only if b is a multiple of 4 and c is a multiple of 4 "
        r"\(write 4\*b for b and 4\*c for c in jax.export.symbolic_shape; dmljax compile takes -f b:4\*b -f c:4\*c\)",
    ),
    "an odd size in two parts": (
        Case(MATRIX, "p, q = Split <axis = 1, num_outputs = 2> (x) y = Add (p, q)"),
        r"Add: sizes are equal only if b is a multiple of 2 \(write 2\*b for b in jax.export.symbolic_shape; "
        r"dmljax compile takes -f b:2\*b\)",
    ),
    "a size that a comparison chooses": (
        Case(MATRIX, "c = Greater (n1, i3) t = Where (c, v2, v3) y = ConstantOfShape (t)"),
        r'must be known while tracing.*\n.*decide whether b >= 4 .*constraints=\["b >= 4"\]',
    ),
    "a rank that a size chooses": (
        Case(MATRIX, "c = Equal (n1, i3) t = Where (c, v2, v3) y = ConstantOfShape (t)"),
        r'must be known while tracing.*\n.*decide whether b >= 4 .*constraints=\["b >= 4"\]',
    ),
    "places of ones": (
        Case(MATRIX, "o = ConstantOfShape <value = int64[1] {1}> (s) y = NonZero (o)"),
        r"NonZero.*must be known while tracing",
    ),
    "a part of an axis that is a symbol": (
        Case(MATRIX, "y = CumSum (x, n1)"),
        r"CumSum: needs a fixed size here; got b \(export the model with that size fixed\)",
    ),
    "a filter as wide as sizes say": (
        Case(f"{IMAGE}, float[a, 2, d, e] z", "t = Shape (z) y = Resize <mode = 'linear', antialias = 1> (x, , , t)"),
        "antialias must be 0 for open sizes; got 1",
    ),
    "averages of rounded sizes": (
        Case(IMAGE, "y = AveragePool <kernel_shape = [2, 2], auto_pad = 'SAME_UPPER', strides = [2, 2]> (x)"),
        r"padding must not depend on open sizes; got floordiv.*export the model with fixed sizes",
    ),
    "a window without its least size": (
        Case(IMAGE, "y = MaxPool <kernel_shape = [3, 1]> (x)"),
        r'decide whether b >= 3 \(.*constraints=\["b >= 3"\]\)',
    ),
    "frequencies of an open length": (
        Case("float[a, b, 1] x", "y = DFT (x, , i1)"),
        r"DFT: needs a fixed size here; got an open size \(export the model with that size fixed\)",
    ),
    "sizes of one ratio": (
        Case(
            f"{IMAGE}, float[a, 2, d, e] z",
            "t = Shape (z) y = Resize <mode = 'linear', keep_aspect_ratio_policy = 'not_larger'> (x, , , t)",
        ),
        "keep_aspect_ratio_policy must be stretch for open sizes; got not_larger",
    ),
    "a scale that is no fraction": (
        Case(IMAGE, "k = Constant <value_floats = [1.0, 1.0, 1.4142135, 1.0]> () y = Resize (x, , k)"),
        "scales must be simple fractions for open sizes; got 1.414",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_undecidable_open_sizes_are_refused_with_a_remedy(name: str) -> None:
    case, rule = REFUSED[name]
    proto = proto_of(case)
    with pytest.raises(DmlError, match=rule):
        export_model(proto, open_names(proto), case.constraints)


# Symbols as numbers

VALUES = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}


def at(value: Any, number: int) -> Any:
    """The value of an expression of n for a number n."""
    if not isinstance(value, SizeExpression):
        return value
    return eval(str(value.dividend).replace("^", "**"), VALUES | {"n": number}) / value.divisor


@pytest.mark.parametrize(
    "function",
    [
        lambda n: [n + 3, 3 + n, n - 3, 3 - n, -n, n * 4, 4 * n, n * n, n**3, abs(3 - n)],
        lambda n: [n // 3, 20 // n, n % 3, 20 % n, (n * n) // n],
        lambda n: [n * 0.5, n / 4, n * 0.1 + 1.5, (n * 0.5) * 2.0, n / n, (n * n) / n, 0.5 - n, (n / 4) % 1.5],
        lambda n: [np.floor(n * 0.7), np.ceil(n / 3), np.floor(-n / 4), np.ceil(n * np.float16(0.1))],
    ],
)
def test_symbols_compute_as_numbers_do(function: Any) -> None:
    (n,) = jax.export.symbolic_shape("n")
    for number in (1, 2, 7, 30):
        results = [at(result, number) for result in function(SizeExpression(n))]
        np.testing.assert_allclose(np.asarray(results, float), np.asarray(function(number), float), rtol=1e-3)


def test_quotients_of_symbols_round_toward_zero() -> None:
    (n,) = jax.export.symbolic_shape("n")
    for number in (1, 2, 6, 9):
        assert at(truncated_quotients(4 - SizeExpression(n), 3), number) == int((4 - number) / 3)
        assert at(truncated_quotients(SizeExpression(n), -2), number) == int(number / -2)


def test_comparisons_of_symbols_are_decided_or_raise() -> None:
    (n,) = jax.export.symbolic_shape("n", constraints=["n >= 3"])
    size = SizeExpression(n)
    assert size > 2
    assert size >= 3
    assert not size < 3
    assert size * 0.5 > 1
    assert size == SizeExpression(n)
    assert size != -1
    assert size != 2
    for compare in (operator.gt, operator.eq, operator.lt):
        with pytest.raises(Exception, match="inconclusive"):
            compare(size, 5)


def test_arrays_of_symbols_keep_the_type_of_their_numbers() -> None:
    (n,) = jax.export.symbolic_shape("n")
    sizes = sizes_array((n, 3))  # type: ignore[arg-type]  # a symbol computes as an integer does
    assert isinstance(sizes, Symbols)
    assert as_sizes(sizes * 2 - 5) == (2 * n - 5, 1)
    assert as_sizes(sizes.to_kind(np.dtype("float32")) * 0.5) == (n // 2, 1)
    largest = known_numbers(compute_known(np.max, sizes, axis=(0,)), np.dtype(np.int64))
    assert as_sizes(largest) == (jax.core.max_dim(n, 3),)
    for numbers in (sizes[1:], sizes - sizes):
        assert known_numbers(numbers, np.dtype(np.int32)).dtype == np.int32, (
            "without symbols, it is an array of numbers"
        )


# Floats that decide sizes


@pytest.mark.parametrize("steps", [["Cast"], ["Identity", "Cast"], ["CastLike"]])
def test_scales_that_are_cast_are_not_weights(steps: list[str]) -> None:
    nodes, name = [], "scales"
    for i, step in enumerate(steps):
        more = {"to": FLOAT} if step == "Cast" else {}
        nodes.append(helper.make_node(step, [name, *(["like"] if step == "CastLike" else [])], [f"t{i}"], **more))
        name = f"t{i}"
    nodes.append(helper.make_node("Resize", ["x", "", name], ["y"], mode="linear"))
    constants: dict[str, Any] = {"scales": np.array([1, 1, 2, 2], np.float16)}
    constants |= {"like": np.float32(0)} if "CastLike" in steps else {}
    resize = dmljax.onnx.load(model(nodes, [value("x", FLOAT, ["n", 1, 2, 3])], ["y"], constants))
    assert not resize.weights
    x = jnp.arange(12, dtype=jnp.float32).reshape(2, 1, 2, 3)
    result = jax.jit(resize)(x)
    assert result.shape == (2, 1, 4, 6)
    np.testing.assert_array_equal(resize(x), result)
    assert resize._plan._mode is PlanMode.BY_PLACE, "calls are one program"
    assert [*resize.graph({"x": (2, 1, 2, 3)}).nodes] == ["y"]


def test_an_integer_that_is_cast_decides_sizes_of_calls() -> None:
    nodes = [
        helper.make_node("Cast", ["n"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Expand", ["x", "wide"], ["y"]),
    ]
    inputs = [value("x", FLOAT, [1]), value("n", TensorProto.INT32, [1])]
    expand = dmljax.onnx.load(model(nodes, inputs, ["y"]))
    for n in (2, 3):
        assert expand(np.ones(1, np.float32), np.array([n], np.int32)).shape == (n,)
    assert expand._plan._mode is PlanMode.BY_VALUES
