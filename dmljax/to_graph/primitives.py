"""Operations of JAX as nodes: those that stand between the calls of dmljax's functions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jax import lax

from dmljax import directml
from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS, Operator
from dmljax.to_graph.builder import Builder, NoOperator, Output, product
from dmljax.to_graph.views import View, desc_of

MOVES = {"reshape", "squeeze", "transpose", "broadcast_in_dim", "expand_dims", "copy", "stop_gradient"}
PRIMITIVES: dict[str, Callable[..., Any]] = {}


def _of(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the one that converts the equations of these primitives to nodes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return register


@_of("reshape", "squeeze", "expand_dims")
def _reshape(builder: Builder, params: Any, outputs: Sequence[Output], x: View, *_: Any) -> View:
    return builder.reshaped(x, outputs[0][1])


@_of("transpose")
def _transpose(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    return x.transposed(params["permutation"])


@_of("broadcast_in_dim")
def _broadcast_in_dim(builder: Builder, params: Any, outputs: Sequence[Output], x: View, *_: Any) -> View:
    return x.placed(outputs[0][1], params["broadcast_dimensions"])


@_of("copy", "stop_gradient", "sharding_constraint", "optimization_barrier")
def _same(builder: Builder, params: Any, outputs: Any, *views: View) -> list[View]:
    return [*views]


@_of("convert_element_type")
def _convert(builder: Builder, params: Any, outputs: Sequence[Output], x: View, *_: Any) -> View:
    return builder.cast(x, outputs[0][0])


# Element-wise operations that JAX calls as DirectML does, and what DirectML calls the others.
_SAME_NAME = (
    *("abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor"),
    *("log", "max", "min", "pow", "sign", "sin", "sinh", "sqrt", "tan"),
)
_OTHER_NAMES = {
    "add_any": "ADD",
    "atan2": "ATAN_YX",
    "div": "DIVIDE",
    "eq": "LOGICAL_EQUALS",
    "ge": "LOGICAL_GREATER_THAN_OR_EQUAL",
    "gt": "LOGICAL_GREATER_THAN",
    "le": "LOGICAL_LESS_THAN_OR_EQUAL",
    "lt": "LOGICAL_LESS_THAN",
    "mul": "MULTIPLY",
    "neg": "NEGATE",
    "rem": "MODULUS_TRUNCATE",
    "shift_left": "BIT_SHIFT_LEFT",
    "shift_right_logical": "BIT_SHIFT_RIGHT",
    "sub": "SUBTRACT",
}


def _elementwise(operator: type[Operator], bits: type[Operator] | None = None) -> Callable[..., Any]:
    """Converts an operation to this operator, or one of other numbers than truth values to that of their bits."""

    def convert(builder: Builder, params: Any, outputs: Sequence[Output], *views: View) -> View:
        chosen = operator if bits is None or views[0].dtype == bool else bits
        return builder.elementwise(chosen, *views, dtype=outputs[0][0])

    return convert


def _element_wise(name: str) -> type[Operator]:
    return OPERATORS[f"{OPERATOR_PREFIX}ELEMENT_WISE_{name.upper()}"]


for _name, _operator in (dict(zip(_SAME_NAME, _SAME_NAME, strict=True)) | _OTHER_NAMES).items():
    _of(_name)(_elementwise(_element_wise(_operator)))
for _name in ("and", "not", "or", "xor"):
    _of(_name)(_elementwise(_element_wise(f"LOGICAL_{_name}"), _element_wise(f"BIT_{_name}")))
_of("logistic")(_elementwise(directml.ActivationSigmoidDesc))
_of("tanh")(_elementwise(directml.ActivationTanhDesc))


@_of("ne")
def _ne(builder: Builder, params: Any, outputs: Any, a: View, b: View) -> View:
    return builder.logical_not(builder.elementwise(directml.ElementWiseLogicalEqualsDesc, a, b, dtype=bool))


@_of("square")
def _square(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    return builder.elementwise(directml.ElementWiseMultiplyDesc, x, x)


@_of("integer_pow")
def _integer_pow(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    return builder.elementwise(directml.ElementWiseConstantPowDesc, x, exponent=params["y"])


@_of("rsqrt")
def _rsqrt(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    return builder.elementwise(directml.ElementWiseRecipDesc, builder.elementwise(directml.ElementWiseSqrtDesc, x))


@_of("round")
def _round(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    is_even = params["rounding_method"] is lax.RoundingMethod.TO_NEAREST_EVEN
    mode = directml.RoundingMode.HALVES_TO_NEAREST_EVEN if is_even else directml.RoundingMode.TOWARD_INFINITY
    return builder.elementwise(directml.ElementWiseRoundDesc, x, rounding_mode=mode)


@_of("is_finite")
def _is_finite(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    mode = directml.IsInfinityMode.EITHER
    infinite = builder.elementwise(directml.ElementWiseIsInfinityDesc, x, dtype=bool, infinity_mode=mode)
    nan = builder.elementwise(directml.ElementWiseIsNanDesc, x, dtype=bool)
    return builder.logical_not(builder.elementwise(directml.ElementWiseLogicalOrDesc, infinite, nan, dtype=bool))


@_of("clamp")
def _clamp(builder: Builder, params: Any, outputs: Any, low: View, x: View, high: View) -> View:
    return builder.elementwise(
        directml.ElementWiseMinDesc, builder.elementwise(directml.ElementWiseMaxDesc, x, low), high
    )


@_of("select_n")
def _select(builder: Builder, params: Any, outputs: Any, which: View, *cases: View) -> View:
    if which.dtype != bool:
        raise NoOperator("must choose between two by a truth value", f"{len(cases)} by {which.dtype}")
    return builder.elementwise(directml.ElementWiseIfDesc, which, *cases[::-1])


def _reduction(function: directml.ReduceFunction) -> Callable[..., Any]:
    def convert(builder: Builder, params: Any, outputs: Sequence[Output], x: View, *_: Any) -> View:
        if not params["axes"]:
            return x
        output = {"output": (outputs[0][0], directml.ReduceDesc.infer(x.sizes, params["axes"]))}
        (result,) = builder.add(directml.ReduceDesc, {"input": x}, output, function=function, axes=params["axes"])
        return builder.reshaped(result, outputs[0][1])

    return convert


for _name, _function in (
    ("argmax", directml.ReduceFunction.ARGMAX),
    ("argmin", directml.ReduceFunction.ARGMIN),
    ("reduce_and", directml.ReduceFunction.MIN),
    ("reduce_max", directml.ReduceFunction.MAX),
    ("reduce_min", directml.ReduceFunction.MIN),
    ("reduce_or", directml.ReduceFunction.MAX),
    ("reduce_prod", directml.ReduceFunction.MULTIPLY),
    ("reduce_sum", directml.ReduceFunction.SUM),
):
    _of(_name)(_reduction(_function))


def _running(operator: type[Operator], exclusive: str) -> Callable[..., Any]:
    def convert(builder: Builder, params: Any, outputs: Any, x: View) -> View:
        direction = directml.AxisDirection(params["reverse"])
        members: dict[str, Any] = {"axis": params["axis"], "axis_direction": direction, exclusive: False}
        return builder.add(operator, {"input": x}, {"output": outputs[0]}, **members)[0]

    return convert


_of("cumsum")(_running(directml.CumulativeSummationDesc, "has_exclusive_sum"))
_of("cumprod")(_running(directml.CumulativeProductDesc, "has_exclusive_product"))


@_of("concatenate")
def _concatenate(builder: Builder, params: Any, outputs: Any, *views: View) -> View:
    return builder.add(directml.JoinDesc, {"inputs": [*views]}, {"output": outputs[0]}, axis=params["dimension"])[0]


@_of("split")
def _split(builder: Builder, params: Any, outputs: Any, x: View) -> list[View]:
    return builder.add(directml.SplitDesc, {"input": x}, {"outputs": outputs}, axis=params["axis"])


def _sliced(
    builder: Builder, x: View, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int], output: Output
) -> View:
    members: dict[str, Any] = {
        "input_window_offsets": starts,
        "input_window_sizes": sizes,
        "input_window_strides": strides,
    }
    return builder.add(directml.Slice1Desc, {"input": x}, {"output": output}, **members)[0]


@_of("slice")
def _slice(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    starts, strides = params["start_indices"], params["strides"] or (1,) * len(x.sizes)
    sizes = [limit - start for start, limit in zip(starts, params["limit_indices"], strict=True)]
    if not any(starts) and x.is_packed and set(strides) == {1} and tuple(sizes[1:]) == x.sizes[1:]:
        return replace(x, sizes=tuple(sizes))  # the first rows
    return _sliced(builder, x, starts, sizes, strides, outputs[0])


@_of("dynamic_slice")
def _dynamic_slice(builder: Builder, params: Any, outputs: Any, x: View, *starts: View) -> View:
    sizes = params["slice_sizes"]
    known = [int(builder.number("start", one)) for one in starts]
    rows = zip(known, x.sizes, sizes, strict=True)
    return _sliced(
        builder, x, [min(max(at, 0), most - size) for at, most, size in rows], sizes, [1] * len(sizes), outputs[0]
    )


@_of("rev")
def _reverse(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    strides = [-1 if i in params["dimensions"] else 1 for i in range(len(x.sizes))]
    return _sliced(builder, x, [0] * len(x.sizes), x.sizes, strides, outputs[0])


@_of("pad")
def _pad(builder: Builder, params: Any, outputs: Any, x: View, value: View) -> View:
    if any(inner for _, _, inner in params["padding_config"]):
        raise NoOperator("must not have padding between elements", params["padding_config"])
    return padded(
        builder,
        directml.Padding1Desc,
        x,
        [low for low, _, _ in params["padding_config"]],
        [high for _, high, _ in params["padding_config"]],
        padding_mode=directml.PaddingMode.CONSTANT,
        padding_value_data_type=desc_of(x.dtype, (1,)).data_type,
        padding_value=builder.number("padding_value", value),
    )


def padded(
    builder: Builder,
    operator: type[Operator],
    x: View,
    start_padding: Sequence[int],
    end_padding: Sequence[int],
    **attributes: Any,
) -> View:
    """Padding. DirectML has no negative padding; crop first."""
    start, end = start_padding, end_padding
    if min(*start, *end) < 0:
        offsets = [max(-low, 0) for low in start]
        cut = [size + min(low, 0) + min(high, 0) for size, low, high in zip(x.sizes, start, end, strict=True)]
        x = _sliced(builder, x, offsets, cut, [1] * len(cut), (x.dtype, tuple(cut)))
    start, end = ([max(one, 0) for one in amounts] for amounts in (start, end))
    output = {"output": (x.dtype, operator.infer(x.sizes, start, end))}
    return builder.add(operator, {"input": x}, output, start_padding=start, end_padding=end, **attributes)[0]


@_of("iota")
def _iota(builder: Builder, params: Any, outputs: Sequence[Output]) -> View:
    dtype, sizes = outputs[0]
    axis = params["dimension"]
    members: dict[str, Any] = {"value_data_type": desc_of(dtype, (1,)).data_type, "value_start": 0, "value_delta": 1}
    (row,) = builder.add(directml.FillValueSequenceDesc, {}, {"output": (dtype, (sizes[axis],))}, **members)
    return row.placed(sizes, [axis])


@_of("dot_general")
def _dot_general(builder: Builder, params: Any, outputs: Sequence[Output], a: View, b: View) -> View:
    (a_summed, b_summed), (a_batch, b_batch) = params["dimension_numbers"]
    a_rest = [i for i in range(len(a.sizes)) if i not in (*a_summed, *a_batch)]
    b_rest = [i for i in range(len(b.sizes)) if i not in (*b_summed, *b_batch)]

    def count(view: View, axes: Sequence[int]) -> int:
        return math.prod(view.sizes[i] for i in axes)

    batch, inner = [a.sizes[i] for i in a_batch], count(a, a_summed)
    left = builder.reshaped(a.transposed([*a_batch, *a_rest, *a_summed]), [*batch, count(a, a_rest), inner])
    right = builder.reshaped(b.transposed([*b_batch, *b_summed, *b_rest]), [*batch, inner, count(b, b_rest)])
    dtype, sizes = outputs[0]
    result = product(builder, directml.GemmDesc, left, right, dtype, {}, {}, **PLAIN_PRODUCT)
    return builder.reshaped(result, sizes)


PLAIN_PRODUCT: dict[str, Any] = {"trans_a": 0, "trans_b": 0, "alpha": 1.0, "beta": 1.0}
