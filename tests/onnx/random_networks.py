"""Random ONNX networks: a seed makes a valid one, and ONNX Runtime computes the output of each node.

A node reads outputs of earlier nodes, new inputs of the network, and constants. ONNX Runtime computes each node as soon
as it is made, which gives its sizes; a node that ONNX Runtime does not take is drawn again.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as errors

NEWEST = 28  # the newest version of ONNX's operators that ONNX Runtime takes
FLOATS = ("float32",) * 6 + ("float16", "float64")  # as often as each is drawn
INTEGERS = ("int32", "int64", "int8", "uint8")
NUMBERS = FLOATS + INTEGERS
MOST_ELEMENTS = 20_000
LARGEST = 1000.0  # magnitude of what a node reads, so that products and powers stay finite
REFUSED = (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.NotImplemented, errors.RuntimeException)


class Node(NamedTuple):
    """A node that reads these arrays: values of the network, and others as constants. It ignores unknown attributes."""

    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = {}
    outputs: int = 1


class Step(NamedTuple):
    """A node of a network, the values and constants that it reads, and what ONNX Runtime computes."""

    node: onnx.NodeProto
    values: dict[str, Any]
    constants: dict[str, Any]
    results: dict[str, Any]


class Network(NamedTuple):
    """The steps of a network, and the version of their operators."""

    opset: int
    steps: Sequence[Step]

    def apart(self) -> tuple[onnx.ModelProto, dict[str, Any]]:
        """A model whose nodes read what ONNX Runtime computed for the nodes before, and these inputs of the model."""
        values = {name: array for step in self.steps for name, array in step.values.items()}
        constants = {name: array for step in self.steps for name, array in step.constants.items()}
        nodes = []
        for step in self.steps:
            nodes.append(onnx.NodeProto())
            nodes[-1].CopyFrom(step.node)
            nodes[-1].output[:] = [f"{name}_own" for name in step.node.output]
        return model(nodes, values, constants, [name for node in nodes for name in node.output], self.opset), values


def model(
    nodes: Sequence[Any], inputs: Mapping[str, Any], constants: Mapping[str, Any], outputs: Iterable[str], opset: int
) -> onnx.ModelProto:
    types = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "random", types, [onnx.ValueInfoProto(name=name) for name in outputs], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def by_onnxruntime(proto: onnx.ModelProto, values: Mapping[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(values)))


def attribute(step: Step, name: str, default: Any = None) -> Any:
    values = [helper.get_attribute_value(attribute) for attribute in step.node.attribute if attribute.name == name]
    return values[0].decode() if values and isinstance(values[0], bytes) else values[0] if values else default


# Where ONNX Runtime deviates from ONNX: such a node is drawn again

DEVIATIONS: dict[str, list[Callable[[Step], bool]]] = {}


def deviates(operator: str) -> Callable[[Callable[[Step], bool]], Callable[[Step], bool]]:
    """Registers a function that says whether ONNX Runtime deviates at a node, as its name says."""

    def register(function: Callable[[Step], bool]) -> Callable[[Step], bool]:
        DEVIATIONS.setdefault(operator, []).append(function)
        return function

    return register


def ends_of(step: Step) -> tuple[Any, Any]:
    """The only input and output of a node, apart from constants."""
    (x,), (y,) = step.values.values(), step.results.values()
    return x, y


@deviates("Col2Im")
def misplaces_dilated_blocks_except_in_two_dimensions(step: Step) -> bool:
    dilations = attribute(step, "dilations", [1, 1])
    return max(dilations) > 1 and len(dilations) != 2


@deviates("ConvTranspose")
def makes_a_smaller_result_where_windows_do_not_overlap(step: Step) -> bool:
    """ONNX has output_shape = input_shape * strides."""
    is_automatic = attribute(step, "auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    if not is_automatic or attribute(step, "output_shape"):
        return False
    x, y = ends_of(step)
    strides = attribute(step, "strides", [1] * (x.ndim - 2))
    rows = zip(x.shape[2:], strides, y.shape[2:], strict=True)
    return any(size * stride != new for size, stride, new in rows)


@deviates("MeanVarianceNormalization")
def subtracts_squares_so_that_small_variances_are_inexact_or_negative(step: Step) -> bool:
    x, _ = ends_of(step)
    axes = tuple(attribute(step, "axes"))
    return bool(np.any(np.var(x, axes) < 0.1 * np.mean(x, axes) ** 2 + 1e-3))


def has_fractions(step: Step) -> bool:
    """Whether sizes of Resize's result are rounded."""
    x, y = ends_of(step)
    if len(step.node.input) == 4:
        return keeps_ratio(step)
    rows = zip(step.constants[step.node.input[2]], attribute(step, "axes", range(x.ndim)), strict=True)
    return any(scale * x.shape[axis] != y.shape[axis] for scale, axis in rows)


def keeps_ratio(step: Step) -> bool:
    return bool(attribute(step, "keep_aspect_ratio_policy", "stretch") != "stretch")


@deviates("Resize")
def rounds_sizes_before_it_aligns_corners_or_widens_filters(step: Step) -> bool:
    """ONNX's test cases and reference do not."""
    is_aligned = attribute(step, "coordinate_transformation_mode") == "align_corners"
    return has_fractions(step) and bool(is_aligned or attribute(step, "antialias"))


@deviates("Resize")
def rounds_the_shift_of_symmetric_half_pixels_which_decides_ties(step: Step) -> bool:
    is_symmetric = attribute(step, "coordinate_transformation_mode") == "half_pixel_symmetric"
    return is_symmetric and attribute(step, "mode") == "nearest" and has_fractions(step)


@deviates("Resize")
def crops_no_dimension_whose_size_stays(step: Step) -> bool:
    if attribute(step, "coordinate_transformation_mode") != "tf_crop_and_resize":
        return False
    x, y = ends_of(step)
    roi = step.constants[step.node.input[1]].reshape(2, -1).T
    rows = zip(attribute(step, "axes", range(x.ndim)), roi.tolist(), strict=True)
    return any(x.shape[axis] == y.shape[axis] and of_axis != [0, 1] for axis, of_axis in rows)


@deviates("Resize")
def keeps_the_ratio_of_other_dimensions_if_axes_are_negative(step: Step) -> bool:
    return keeps_ratio(step) and min(attribute(step, "axes", [0])) < 0


class Draw:
    """Random choices, and the network that they make."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = self.integer(13, NEWEST)
        self.values: list[Any] = []
        self.steps: list[Step] = []

    def network(self) -> Network:
        """A network of 5 to 10 nodes."""
        count = self.integer(5, 10)
        while len(self.steps) < count:
            self.add()
        return Network(self.opset, self.steps)

    def add(self) -> None:
        """Adds a node, or nothing if ONNX Runtime does not take it."""
        names, make = self.choice(MAKERS)
        operator = self.choice(names)
        if not self.has(operator):
            return
        before = len(self.values)
        node = make(self, operator)
        try:
            step = self.step(operator, node)
        except REFUSED:
            del self.values[before:]
            return
        is_large = any(array.size > MOST_ELEMENTS for array in step.results.values())
        if is_large or any(is_other(step) for is_other in DEVIATIONS.get(operator, ())):
            del self.values[before:]
            return
        self.values += step.results.values()
        self.steps.append(step)

    def step(self, operator: str, node: Node) -> Step:
        values: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        names = []
        for i, array in enumerate(node.inputs):
            place = next((place for place, value in enumerate(self.values) if value is array), None)
            name = "" if array is None else f"c{len(self.steps)}_{i}" if place is None else f"v{place}"
            names.append(name)
            if name:
                (constants if place is None else values)[name] = np.asarray(array)
        known = onnx.defs.get_schema(operator, self.opset).attributes
        attributes = {name: value for name, value in node.attributes.items() if name in known}
        outputs = [f"v{len(self.values) + i}" for i in range(node.outputs)]
        proto = helper.make_node(operator, names, outputs, **attributes)
        results = by_onnxruntime(model([proto], values, constants, outputs, self.opset), values)
        return Step(proto, values, constants, dict(zip(outputs, results, strict=True)))

    def has(self, operator: str) -> bool:
        """Whether the network's version of ONNX has the operator."""
        try:
            return not onnx.defs.get_schema(operator, self.opset).deprecated
        except onnx.defs.SchemaError:
            return False

    # Numbers

    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def integers(self, count: int, low: int, high: int) -> list[int]:
        return [self.integer(low, high) for _ in range(count)]

    def number(self, low: float = -2, high: float = 2) -> float:
        """A random number, often a simple one."""
        return self.integer(int(low * 8), int(high * 8)) / 8 if self.chance() else float(self.random.uniform(low, high))

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.random.random() < share)

    def choice(self, several: Sequence[Any]) -> Any:
        return several[self.integer(0, len(several) - 1)]

    def some(self, several: Iterable[Any], at_least: int = 0) -> list[Any]:
        """Some of the elements, in a random order."""
        every = [*several]
        order = self.random.permutation(len(every))[: self.integer(min(at_least, len(every)), len(every))]
        return [every[i] for i in order]

    def axis(self, rank: int) -> int:
        return self.integer(-rank, rank - 1)

    # Arrays

    def array(self, dtype: str, sizes: Sequence[int], positive: bool = False) -> Any:
        if dtype == "bool":
            return self.random.random(sizes) < 0.5
        if dtype in INTEGERS:
            return self.random.integers(1 if positive else 0 if dtype == "uint8" else -8, 9, sizes).astype(dtype)
        drawn = self.random.integers(-16, 17, sizes) / 8 if self.chance(0.3) else self.random.standard_normal(sizes)
        return (np.abs(drawn) + 0.5 if positive else drawn).astype(dtype)

    def sizes(self, rank: int, is_empty: bool = True) -> list[int]:
        sizes = [1 if self.chance(0.15) else self.integer(1, 5 if i < 2 and rank > 2 else 14) for i in range(rank)]
        while math.prod(sizes) > 3000:
            sizes[int(np.argmax(sizes))] //= 2
        if rank and is_empty and self.chance(0.03):
            sizes[self.integer(0, rank - 1)] = 0
        return sizes

    def value(
        self,
        kinds: Sequence[str] = NUMBERS,
        ranks: Sequence[int] = range(6),
        fits: Callable[[Any], bool] = lambda _: True,
        *,
        sizes: Sequence[int] | None = None,
        is_empty: bool = True,
    ) -> Any:
        """A value of the network, preferably a late one, or a new input."""

        def is_fit(x: Any) -> bool:
            has_sizes = x.ndim in ranks if sizes is None else x.shape == tuple(sizes)
            return has_sizes and x.dtype.name in kinds and fits(x) and (is_empty or x.size > 0) and is_moderate(x)

        fitting = [x for x in self.values if is_fit(x)]
        if fitting and self.chance(0.8):
            return fitting[-1] if self.chance(0.6) else self.choice(fitting)
        while True:
            shape = self.sizes(self.choice(ranks), is_empty) if sizes is None else sizes
            x = self.array(self.choice(kinds), shape)
            if is_fit(x):
                self.values.append(x)
                return x

    def beside(self, x: Any, *, positive: bool = False) -> Any:
        """Another operand of an elementwise operator."""
        fitting = [y for y in self.values if y.dtype == x.dtype and broadcasts(x, y) and is_moderate(y)]
        if fitting and not positive and self.chance():
            return self.choice(fitting)
        sizes = [1 if self.chance(0.3) else size for size in x.shape][self.integer(0, x.ndim) :]
        return self.array(x.dtype.name, sizes, positive)


def is_moderate(x: Any) -> bool:
    """Whether no element is NaN, infinite or huge; other tests have those."""
    return x.dtype.kind in "biu" or bool(np.all(np.abs(x.astype(np.float64)) < LARGEST))


def broadcasts(x: Any, y: Any) -> bool:
    try:
        return math.prod(np.broadcast_shapes(x.shape, y.shape)) <= MOST_ELEMENTS
    except ValueError:
        return False


def whole(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    *("tf_crop_and_resize", "tf_half_pixel_for_nn"),
)
Make = Callable[[Draw, str], Node]
MAKERS: list[tuple[list[str], Make]] = []


def makes(names: str, times: int = 1) -> Callable[[Make], Make]:
    """Registers a function that makes nodes of these operators, to be chosen so many times as often as another."""

    def register(make: Make) -> Make:
        MAKERS.extend([(names.split(), make)] * times)
        return make

    return register


# Elementwise


@makes(
    """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity
    IsInf IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt
    Swish Tan Tanh ThresholdedRelu""",
    times=3,
)
def _(draw: Draw, operator: str) -> Node:
    names = ("alpha", "beta", "gamma", "lambd", "bias")
    attributes = {name: draw.number(0.25, 2) for name in names if draw.chance()}
    return Node([draw.value(FLOATS)], attributes | {"approximate": draw.choice(["none", "tanh"])})


@makes("Abs Neg Sign Relu Identity BitwiseNot")
def _(draw: Draw, operator: str) -> Node:
    return Node([draw.value(INTEGERS)])


@makes("Add Sub Mul Max Min Equal Greater Less GreaterOrEqual LessOrEqual", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value()
    return Node([x, draw.beside(x)][:: draw.choice([1, -1])])


@makes("Sum Mean Max Min")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS)
    return Node([x, *(draw.beside(x) for _ in range(draw.integer(0, 2)))])


@makes("Div Mod Pow PRelu")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS if operator in ("Pow", "PRelu") else NUMBERS)
    return Node([x, draw.beside(x, positive=True)], {"fmod": int(x.dtype.kind == "f" or draw.chance())})


@makes("And Or Xor Not")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(["bool"])
    return Node([x] if operator == "Not" else [x, draw.beside(x)])


@makes("BitwiseAnd BitwiseOr BitwiseXor BitShift")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(["uint8"] if operator == "BitShift" else INTEGERS)
    y = draw.beside(x)
    return Node([x, y % 8 if operator == "BitShift" else y], {"direction": draw.choice(["LEFT", "RIGHT"])})


@makes("Where")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value()
    return Node([draw.array("bool", draw.beside(x).shape), x, draw.beside(x)])


@makes("Clip")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value()
    low, high = np.sort(draw.array(x.dtype.name, (2,)))
    return Node([x, np.asarray(low) if draw.chance(0.8) else None, np.asarray(high) if draw.chance(0.8) else None])


@makes("Cast CastLike")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value((*NUMBERS, "bool"))
    # A float beyond the range of an integer type has no defined result.
    narrow = ("float32", "float64", "int32", "int64", "bool", "float16")
    number_type = np.dtype(draw.choice(narrow if x.dtype.kind == "f" else (*NUMBERS, "bool")))
    return Node(
        [x, np.zeros(1, number_type)][: 1 + (operator == "CastLike")],
        {"to": helper.np_dtype_to_tensor_dtype(number_type)},
    )


# Images


def image_of(draw: Draw, kinds: Sequence[str] = FLOATS, space: int = 3) -> Any:
    return draw.value(kinds, range(3, 3 + space), is_empty=False)


def windows_of(draw: Draw, x: Any, kernel: Sequence[int], fit: bool = True) -> dict[str, Any]:
    """Windows with strides, dilations and padding; those that must fit the image are at most as large as it."""
    count = x.ndim - 2
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if draw.chance(0.6):
        attributes["strides"] = draw.integers(count, 1, 3)
    if draw.chance(0.4):
        rows = zip(x.shape[2:], kernel, strict=True)
        most = [(size - 1) // (window - 1) if window > 1 and fit else 3 for size, window in rows]
        attributes["dilations"] = [draw.integer(1, max(1, min(3, limit))) for limit in most]
    if draw.chance(0.2):
        attributes["auto_pad"] = draw.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    elif draw.chance(0.6):
        attributes["pads"] = [draw.integer(0, size - 1) for size in (*kernel, *kernel)]
    return attributes


def kernel_of(draw: Draw, x: Any, most: int = 4) -> list[int]:
    return [draw.integer(1, min(most, size)) for size in x.shape[2:]]


@makes("AveragePool MaxPool LpPool", times=4)
def _(draw: Draw, operator: str) -> Node:
    x = image_of(draw, (*FLOATS, "int8", "uint8") if operator == "MaxPool" else FLOATS)
    attributes = windows_of(draw, x, kernel_of(draw, x))
    for name in ("ceil_mode", "count_include_pad", "storage_order"):
        attributes |= {name: 1} if draw.chance() else {}
    attributes |= {"p": draw.integer(1, 3)} if draw.chance() else {}
    return Node([x], attributes, 1 + (operator == "MaxPool" and draw.chance()))


@makes("GlobalAveragePool GlobalMaxPool GlobalLpPool")
def _(draw: Draw, operator: str) -> Node:
    return Node([image_of(draw)], {"p": draw.integer(1, 3)})


@makes("MaxUnpool")
def _(draw: Draw, operator: str) -> Node:
    x = image_of(draw, ["float32"])
    places = 2 * np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
    corners = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    places = places + corners * math.prod(2 * size for size in x.shape[2:])
    return Node([x, places], {"kernel_shape": [2] * (x.ndim - 2), "strides": [2] * (x.ndim - 2)})


def divisor_of(draw: Draw, number: int) -> int:
    return int(draw.choice([candidate for candidate in range(1, number + 1) if number % candidate == 0]))


@makes("Conv", times=3)
def _(draw: Draw, operator: str) -> Node:
    x = image_of(draw)
    group, kernel = divisor_of(draw, x.shape[1]), kernel_of(draw, x)
    count = group * draw.integer(1, 3)
    filter = draw.array(x.dtype.name, (count, x.shape[1] // group, *kernel))
    bias = draw.array(x.dtype.name, (count,)) if draw.chance() else None
    return Node([x, filter, bias], windows_of(draw, x, kernel) | {"group": group})


@makes("ConvTranspose", times=4)
def _(draw: Draw, operator: str) -> Node:
    x = image_of(draw)
    count = x.ndim - 2
    group, kernel = divisor_of(draw, x.shape[1]), draw.integers(count, 1, 4)
    several = draw.integer(1, 3)
    filter = draw.array(x.dtype.name, (x.shape[1], several, *kernel))
    bias = draw.array(x.dtype.name, (group * several,)) if draw.chance() else None
    attributes = windows_of(draw, x, kernel, fit=False) | {"group": group}
    strides, dilations = (attributes.get(name, [1] * count) for name in ("strides", "dilations"))
    if draw.chance(0.4):
        rows = zip(strides, dilations, strict=True)
        attributes["output_padding"] = [draw.integer(0, max(stride, dilation) - 1) for stride, dilation in rows]
    if draw.chance(0.2):
        sizes = zip(x.shape[2:], strides, strict=True)
        attributes["output_shape"] = [max(1, size * stride + draw.integer(-2, 2)) for size, stride in sizes]
    return Node([x, filter, bias], attributes)


@makes("ConvInteger QLinearConv", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = image_of(draw, ["uint8", "int8"])
    group, kernel = divisor_of(draw, x.shape[1]), kernel_of(draw, x, 3)
    count = group * draw.integer(1, 2)
    filter = draw.array(
        "int8" if x.dtype == np.int8 else draw.choice(["int8", "uint8"]), (count, x.shape[1] // group, *kernel)
    )
    attributes = windows_of(draw, x, kernel) | {"group": group}
    zeros = [np.asarray(draw.integer(0, 5), one.dtype) for one in (x, filter, x)]
    if operator == "ConvInteger":
        return Node([x, filter, *zeros[:2]], attributes)
    scales = [np.float32(draw.number(0.25, 2)) for _ in range(3)]
    bias = draw.array("int32", (count,)) if draw.chance() else None
    return Node([x, scales[0], zeros[0], filter, scales[1], zeros[1], scales[2], zeros[2], bias], attributes)


@makes("Resize", times=8)
def _(draw: Draw, operator: str) -> Node:
    mode = draw.choice(["nearest", "linear", "cubic"])
    # ONNX does not say how averages of integers are rounded.
    x = draw.value(FLOATS + INTEGERS[1:] if mode == "nearest" else FLOATS, range(1, 6), is_empty=False)
    axes = draw.some(range(x.ndim), 1) if draw.opset >= 18 and draw.chance(0.4) else [*range(x.ndim)]
    fixed = draw.choice([0, 0, 2]) if x.ndim > 2 else 0
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": draw.choice(COORDINATES),
        "nearest_mode": draw.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
        "antialias": int(mode != "nearest" and draw.chance(0.3)),
        "exclude_outside": int(draw.chance(0.3)),
        "keep_aspect_ratio_policy": draw.choice(["stretch"] * 2 + ["not_larger", "not_smaller"]),
        "extrapolation_value": draw.number(),
        "cubic_coeff_a": draw.choice([-0.75, -0.5]),
    }
    if len(axes) < x.ndim or draw.chance(0.2):
        attributes["axes"] = [axis - x.ndim if draw.chance(0.2) else axis for axis in axes]
    # ONNX Runtime rounds positions to float32, which decides ties of nearest elements and what lies outside: draw
    # numbers that need no rounding, or whose positions are far from these.
    edge = draw.random.uniform if draw.chance() else lambda low, high: draw.integer(int(8 * low), int(8 * high)) / 8
    spans = [(0, 1) if axis < fixed else (edge(-0.25, 0.5), edge(0.5, 1.25)) for axis in axes]
    roi = np.array(spans, np.float32).T.flatten()
    ratios = [1.0 if axis < fixed else 2.0 ** draw.integer(-2, 2) for axis in axes]
    if mode != "nearest" and draw.chance(0.7):
        ratios = [1.0 if axis < fixed else draw.integer(1, 12) / x.shape[axis] for axis in axes]
    if draw.chance():
        sizes = [max(1, round(x.shape[axis] * ratio)) for axis, ratio in zip(axes, ratios, strict=True)]
        return Node([x, roi, None, whole(*sizes)], attributes)
    if draw.chance():
        ratios = [1.0 if axis < fixed else draw.number(0.25, 2.5) for axis in axes]
    return Node([x, roi, np.array(ratios, np.float32)], attributes)


@makes("DepthToSpace SpaceToDepth")
def _(draw: Draw, operator: str) -> Node:
    size = draw.integer(1, 3)
    if operator == "SpaceToDepth":
        x = draw.value(FLOATS, [4], lambda x: x.shape[2] % size == x.shape[3] % size == 0)
    else:
        x = draw.value(FLOATS, [4], lambda x: x.shape[1] % size**2 == 0)
    return Node([x], {"blocksize": size, "mode": draw.choice(["DCR", "CRD"])})


@makes("Col2Im")
def _(draw: Draw, operator: str) -> Node:
    count = draw.integer(1, 3)
    kernel, image = draw.integers(count, 1, 3), draw.integers(count, 5, 8)
    attributes = windows_of(draw, np.zeros((1, 1, *image)), kernel)
    rows = zip(image, kernel, *(attributes.get(name, [1] * count) for name in ("strides", "dilations")), strict=True)
    pads = attributes.get("pads", [0] * 2 * count)
    blocks = [
        (size + pads[i] + pads[count + i] - (window - 1) * dilation - 1) // stride + 1
        for i, (size, window, stride, dilation) in enumerate(rows)
    ]
    columns = draw.array("float32", (draw.integer(1, 2), 2 * math.prod(kernel), max(math.prod(blocks), 1)))
    draw.values.append(columns)
    return Node([columns, whole(*image), whole(*kernel)], attributes)


@makes("GridSample")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS, [4, 5] if draw.opset >= 20 else [4], is_empty=False)
    grid = draw.array(
        draw.choice(["float32", x.dtype.name]), (x.shape[0], *draw.integers(x.ndim - 2, 1, 5), x.ndim - 2)
    )
    modes = ["linear", "nearest", "cubic"] if draw.opset >= 20 else ["bilinear", "nearest", "bicubic"]
    attributes = {"mode": draw.choice(modes), "padding_mode": draw.choice(["zeros", "border", "reflection"])}
    return Node([x, grid], attributes | {"align_corners": int(draw.chance())})


@makes("RoiAlign MaxRoiPool")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS if operator == "RoiAlign" else ["float32"], [4], is_empty=False)
    count = draw.integer(1, 3)
    starts, sizes = draw.random.uniform(-1, 6, (count, 2)), draw.random.uniform(0.5, 6, (count, 2))
    rois = np.concatenate([starts, starts + sizes], 1).astype(x.dtype)
    batch = draw.random.integers(0, x.shape[0], count)
    if operator == "MaxRoiPool":
        rows = np.concatenate([batch[:, None], np.round(np.abs(rois))], 1).astype("float32")
        return Node([x, rows], {"pooled_shape": draw.integers(2, 1, 3)})
    attributes = {
        "mode": draw.choice(["avg", "max"]),
        "coordinate_transformation_mode": draw.choice(["half_pixel", "output_half_pixel"]),
        "output_height": draw.integer(1, 3),
        "output_width": draw.integer(1, 3),
        "sampling_ratio": draw.integer(1, 3),
        "spatial_scale": draw.choice([1.0, 0.5]),
    }
    return Node([x, rois, batch], attributes)


# Movement


@makes("Pad", times=3)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 6), is_empty=False)
    axes = draw.some(range(x.ndim), 1) if draw.opset >= 18 and draw.chance() else [*range(x.ndim)]
    mode = draw.choice(["constant", "edge", "reflect", "wrap"])
    pads = [
        draw.integer(-min(size // 2, 2), 3 if mode in ("constant", "edge") else min(3, size - 1))
        for size in [x.shape[axis] for axis in axes] * 2
    ]
    value = draw.array(x.dtype.name, ()) if draw.chance() else None
    last = [whole(*axes)] if len(axes) < x.ndim else []
    return Node([x, whole(*pads), value, *last], {"mode": mode})


@makes("Slice", times=3)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 6))
    axes = draw.some(range(x.ndim), 1)
    rows = []
    for axis in axes:
        size, step = x.shape[axis], draw.choice([1, 1, 2, 3, -1, -2])
        first, last = draw.integer(-size - 1, size), draw.integer(-size - 1, size + 1)
        if draw.chance(0.7):
            first, last = ((0, size) if draw.chance() else (1, 2**40)) if step > 0 else (-1, -(2**40))
        rows.append((first, last, axis - x.ndim if draw.chance(0.3) else axis, step))
    return Node([x, *(whole(*one) for one in zip(*rows, strict=True))])


@makes("Tile")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 6))
    return Node([x, whole(*draw.integers(x.ndim, 0 if draw.chance(0.05) else 1, 2))])


@makes("Concat", times=3)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 6))
    axis = draw.axis(x.ndim)

    def joins(y: Any) -> bool:
        sizes = [*y.shape]
        sizes[axis] = x.shape[axis]
        return bool(y.dtype == x.dtype and tuple(sizes) == x.shape)

    several = [x]
    for _ in range(draw.integer(0, 2)):
        sizes = [*x.shape]
        sizes[axis] = draw.integer(0 if draw.chance(0.1) else 1, 4)
        fitting = [y for y in draw.values if y.ndim == x.ndim and joins(y) and is_moderate(y)]
        several.append(draw.choice(fitting) if draw.chance() else draw.array(x.dtype.name, sizes))
    return Node(several, {"axis": axis})


@makes("Split", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 6))
    axis = draw.axis(x.ndim)
    count = draw.integer(1, 3)
    if draw.chance():
        return Node([x], {"axis": axis, "num_outputs": count}, count)
    ends = sorted(draw.integers(count - 1, 0, x.shape[axis]))
    return Node([x, whole(*np.diff([0, *ends, x.shape[axis]]))], {"axis": axis}, count)


@makes("Transpose", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value()
    return Node([x], {"perm": draw.random.permutation(x.ndim).tolist()} if x.ndim and draw.chance(0.8) else {})


@makes("Reshape", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value()
    sizes: list[int] = []
    left = x.size
    while left > 1 and len(sizes) < 5:
        sizes.append(divisor_of(draw, left))
        left //= sizes[-1]
    sizes.append(left)
    if draw.chance() and x.size:
        sizes[draw.integer(0, len(sizes) - 1)] = -1
    return Node([x, whole(*sizes)], {"allowzero": int(x.size == 0)})


@makes("Flatten Shape Size EyeLike Trilu")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=[2] if operator == "EyeLike" else range(2, 6) if operator == "Trilu" else range(1, 6))
    attributes = {"axis": draw.axis(x.ndim), "start": draw.axis(x.ndim), "end": draw.axis(x.ndim)}
    diagonal = [np.array(draw.integer(-3, 3))] if operator == "Trilu" and draw.chance() else []
    return Node([x, *diagonal], attributes | {"k": draw.integer(-2, 2), "upper": int(draw.chance())})


@makes("Squeeze Unsqueeze")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value()
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    axes = draw.some(ones, 1) if operator == "Squeeze" else draw.some(range(x.ndim + 1), 1)[:1]
    return Node([x, whole(*axes)] if axes else [x])


@makes("Expand")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value()
    sizes = [draw.integer(1, 4) if size == 1 else draw.choice([1, size]) for size in x.shape]
    return Node([x, whole(*draw.integers(draw.integer(0, 2), 1, 2), *sizes)])


@makes("CenterCropPad")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 6))
    axes = draw.some(range(x.ndim), 1)
    return Node([x, whole(*draw.integers(len(axes), 1, 9))], {"axes": axes})


@makes("ReverseSequence")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(2, 6), is_empty=False)
    time = draw.integer(0, 1)
    lengths = draw.random.integers(1, x.shape[time] + 1, x.shape[1 - time])
    return Node([x, lengths], {"time_axis": time, "batch_axis": 1 - time})


# Indices


@makes("Gather GatherElements", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 6), is_empty=False)
    axis = draw.axis(x.ndim)
    size = x.shape[axis]
    sizes = draw.sizes(draw.integer(0, 2))
    if operator == "GatherElements":
        sizes = [draw.integer(1, one) for one in x.shape]
        sizes[axis] = draw.integer(1, 4)
    return Node([x, draw.random.integers(-size, size, sizes).astype(draw.choice(["int32", "int64"]))], {"axis": axis})


@makes("GatherND ScatterND")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 5), is_empty=False)
    count, several = draw.integer(1, x.ndim), draw.integer(1, 3)
    batch = draw.integer(0, min(1, count - 1)) if operator == "GatherND" else 0
    places = [draw.random.integers(-size, size, (*x.shape[:batch], several)) for size in x.shape[batch:count]]
    if operator == "GatherND":
        return Node([x, np.stack(places, -1)], {"batch_dims": batch})
    positions = draw.random.permutation(math.prod(x.shape[:count]))[:several]
    indices = np.stack(np.unravel_index(positions, x.shape[:count]), -1).astype(np.int64)
    reduction = draw.choice(["none", "add", "mul", "max", "min"])
    return Node([x, indices, draw.array(x.dtype.name, (len(positions), *x.shape[count:]))], {"reduction": reduction})


@makes("ScatterElements")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 5), is_empty=False)
    axis = draw.axis(x.ndim)
    sizes = [draw.integer(1, one) for one in x.shape]
    places = np.argsort(draw.random.random([*sizes[:axis], x.shape[axis], *sizes[axis:][1:]]), axis)
    places = np.take(places, range(sizes[axis]), axis)
    reduction = draw.choice(["none", "add", "mul", "max", "min"])
    return Node([x, places, draw.array(x.dtype.name, sizes)], {"axis": axis, "reduction": reduction})


@makes("OneHot")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(["int32", "int64"], range(4))
    values = draw.array(draw.choice(["float32", "int64", "int32"]), (2,))
    return Node([x, np.array(draw.integer(1, 6)), values], {"axis": draw.axis(x.ndim + 1)})


@makes("TopK", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 5), is_empty=False)
    axis = draw.axis(x.ndim)
    return Node([x, whole(draw.integer(1, x.shape[axis]))], {"axis": axis, "largest": draw.integer(0, 1)}, 2)


@makes("ArgMax ArgMin")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 6), is_empty=False)
    attributes = {name: draw.integer(0, 1) for name in ("keepdims", "select_last_index")}
    return Node([x], {"axis": draw.axis(x.ndim)} | attributes)


@makes("CumSum CumProd")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(ranks=range(1, 5))
    attributes = {name: draw.integer(0, 1) for name in ("exclusive", "reverse")}
    return Node([x, np.array(draw.axis(x.ndim))], attributes)


# Reductions and normalizations


@makes(
    """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare""",
    times=3,
)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS if operator == "ReduceLogSum" else NUMBERS)
    axes = [axis - x.ndim if draw.chance(0.3) else axis for axis in draw.some(range(x.ndim))]
    attributes: dict[str, Any] = {"keepdims": draw.integer(0, 1), "noop_with_empty_axes": draw.integer(0, 1)}
    if "axes" in onnx.defs.get_schema(operator, draw.opset).attributes:
        return Node([x], attributes | ({"axes": axes} if axes else {}))
    return Node([x, whole(*axes)] if axes or draw.chance() else [x], attributes)


@makes("Softmax LogSoftmax Hardmax LpNormalization", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS, range(1, 6))
    return Node([x], {"axis": draw.axis(x.ndim), "p": draw.integer(1, 2)})


@makes("BatchNormalization InstanceNormalization GroupNormalization", times=3)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS, range(2 if operator == "BatchNormalization" else 3, 6), is_empty=False)
    groups = divisor_of(draw, x.shape[1])
    count = groups if operator == "GroupNormalization" and draw.opset < 21 else x.shape[1]
    scale, bias, mean, variance = (draw.array(x.dtype.name, (count,), positive=i == 3) for i in range(4))
    attributes = {"epsilon": 10.0 ** -draw.integer(1, 5), "num_groups": groups}
    return Node([x, scale, bias, *([mean, variance] if operator == "BatchNormalization" else [])], attributes)


@makes("LayerNormalization RMSNormalization", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS, range(1, 6), is_empty=False)
    axis = draw.axis(x.ndim)
    sizes = x.shape[axis:]
    scale, bias = draw.array(x.dtype.name, sizes), draw.array(x.dtype.name, sizes)
    has_bias = operator == "LayerNormalization" and draw.chance()
    outputs = draw.choice([1, 2, 3]) if operator == "LayerNormalization" else 1
    return Node([x, scale, bias][: 2 + has_bias], {"axis": axis, "epsilon": 10.0 ** -draw.integer(1, 5)}, outputs)


@makes("LRN MeanVarianceNormalization")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS, [4] if operator == "LRN" else range(1, 6), is_empty=False)
    attributes = {"size": draw.choice([1, 3, 5]), "alpha": draw.number(0.25, 2), "bias": draw.number(0.5, 2)}
    return Node([x], attributes | {"axes": sorted(draw.some(range(x.ndim), 1))})


# Products


@makes("MatMul", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value((*FLOATS, "int32", "int64"), range(1, 5))
    batch = [1 if draw.chance(0.3) else size for size in x.shape[:-2]][draw.integer(0, max(x.ndim - 2, 0)) :]
    sizes = [x.shape[-1]] if draw.chance(0.2) else [*batch, x.shape[-1], draw.integer(1, 5)]
    return Node([x, draw.array(x.dtype.name, sizes)])


@makes("Gemm")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(FLOATS, [2])
    rows, size = x.shape
    is_turned = draw.chance()
    if is_turned:
        rows, size = size, rows
    columns, turns = draw.integer(1, 5), draw.chance()
    b = draw.array(x.dtype.name, (columns, size) if turns else (size, columns))
    c = draw.array(x.dtype.name, draw.choice([(), (columns,), (rows, 1), (rows, columns), (1, columns)]))
    attributes = {"transA": int(is_turned), "transB": int(turns), "alpha": draw.number(), "beta": draw.number()}
    return Node([x, b, c] if draw.chance(0.8) else [x, b], attributes)


@makes("MatMulInteger QLinearMatMul")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(["uint8", "int8"], range(2, 5), is_empty=False)
    y = draw.array(x.dtype.name, (x.shape[-1], draw.integer(1, 5)))
    zeros = [np.asarray(draw.integer(0, 5), x.dtype) for _ in range(3)]
    if operator == "MatMulInteger":
        return Node([x, y, *zeros[:2]])
    scales = [np.float32(draw.number(0.25, 2)) for _ in range(3)]
    return Node([x, scales[0], zeros[0], y, scales[1], zeros[1], scales[2], zeros[2]])


@makes("QuantizeLinear DequantizeLinear", times=2)
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(["float32", "float16"] if operator == "QuantizeLinear" else ["int8", "uint8", "int32"], range(1, 5))
    axis = draw.axis(x.ndim)
    sizes = (x.shape[axis],) if draw.chance() else ()
    scale = draw.array(x.dtype.name if x.dtype.kind == "f" else "float32", sizes, positive=True)
    number_type = draw.choice(["int8", "uint8"]) if x.dtype.kind == "f" else x.dtype.name
    zero = draw.array(number_type, sizes) * (number_type != "int32")
    return Node([x, scale, zero.astype(number_type)], {"axis": axis})


@makes("DynamicQuantizeLinear")
def _(draw: Draw, operator: str) -> Node:
    return Node([draw.value(["float32"], is_empty=False)], outputs=3)


@makes("RNN GRU LSTM")
def _(draw: Draw, operator: str) -> Node:
    x = draw.value(["float32"], [3], is_empty=False)
    direction = draw.choice(["forward", "reverse", "bidirectional"])
    count, gates, size = (
        1 + (direction == "bidirectional"),
        {"RNN": 1, "GRU": 3, "LSTM": 4}[operator],
        draw.integer(1, 3),
    )
    factors = [draw.array("float32", (count, gates * size, one)) for one in (x.shape[2], size)]
    bias = draw.array("float32", (count, 2 * gates * size)) if draw.chance() else None
    attributes = {"hidden_size": size, "direction": direction, "linear_before_reset": draw.integer(0, 1)}
    return Node([x, *factors, bias], attributes, draw.integer(1, 2))
