"""Elementwise operators: arithmetic, logic, comparisons, activations and casts."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.graph.graph import MAIN
from dmljax.onnx.graph.reader import dtype_of
from dmljax.onnx.handlers.registry import REGISTRY, Handler, T, handles, handles_contrib, look_up, make_handler
from dmljax.onnx.handlers.signatures import Attribute, Kept, Known, Number, Vectors
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.running.interpreter import as_array, promote
from dmljax.onnx.values.symbols import Symbols, compute_known, kind_of, truncated_quotients
from dmljax.onnx.values.types import Array, DType, Tensor
from dmljax.types import REALS

_NUMBERS = "iuf"


_Function = Callable[..., Array]
_Fold = Callable[..., Known | None]


def _restrict_fold(fold: _Fold, kinds: str = _NUMBERS) -> _Fold:
    """Restricts a NumPy function to inputs that broadcast and share a type; `kinds` are NumPy's letters and T for text.

    Other inputs are left to the traced function, which raises a proper error; NumPy's C functions leave no frame.
    """

    def run(*inputs: Known) -> Known | None:
        np.broadcast_shapes(*(x.shape for x in inputs))
        types = {kind_of(x) for x in inputs}
        type_kinds = {"T" if dtype.kind == "O" else dtype.kind for dtype in types}
        return compute_known(fold, *inputs) if type_kinds <= {*kinds} and len(types) == 1 else None

    return run


def _unary(function: _Function) -> _Function:
    return lambda x: function(x)


def _binary(function: _Function) -> _Function:
    return lambda a, b: function(a, b)


# An operator, the function that computes it, and the NumPy function for known values
_Entries = tuple[tuple[str, _Function, _Fold | None], ...]

_handles_each = functools.partial(handles, is_elementwise=True)

# Arithmetic and functions

# The kinds of known values that operators take, if not numbers
_KINDS = {**dict.fromkeys(("And", "Not", "Or", "Xor"), "b"), "Equal": "biufT"}

_FUNCTIONS: _Entries = (
    ("Abs", dmljax.element_wise_abs, np.abs),
    ("BitwiseNot", dmljax.element_wise_bit_not, None),
    ("Ceil", dmljax.element_wise_ceil, np.ceil),
    ("Floor", dmljax.element_wise_floor, np.floor),
    ("HardSwish", dmljax.activation_hard_swish, None),
    ("IsNaN", dmljax.element_wise_is_nan, None),
    ("Neg", dmljax.element_wise_negate, np.negative),
    ("Not", dmljax.element_wise_logical_not, np.logical_not),
    ("Reciprocal", dmljax.element_wise_recip, np.reciprocal),
    ("Round", dmljax.element_wise_round, np.round),
    ("Sign", dmljax.element_wise_sign, np.sign),
    ("Sqrt", dmljax.element_wise_sqrt, np.sqrt),
    *(
        (name, getattr(dmljax, f"element_wise_{name.lower()}"), None)
        for name in ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log")
    ),
    *((name, getattr(dmljax, f"element_wise_{name.lower()}"), None) for name in ("Sin", "Sinh", "Tan")),
    *(
        (name, getattr(dmljax, f"activation_{name.lower()}"), None)
        for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
    ),
)


def _register(entries: _Entries, form: Callable[[_Function], _Function], since: int = 1) -> None:
    for operator, function, fold in entries:
        known_fold = None if fold is None else _restrict_fold(fold, _KINDS.get(operator, _NUMBERS))
        _handles_each(operator, since=since, fold=known_fold)(form(function))


_register(_FUNCTIONS, _unary)


def _quotient(a: Known, b: Known) -> Known | None:
    """Divides known values; truncates integers toward zero."""
    if kind_of(a).kind not in "iu":
        return np.asarray(a / b)
    if not np.all(b):
        return None
    if isinstance(a, Symbols) or isinstance(b, Symbols):
        return np.asarray(truncated_quotients(a, b))
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), a.dtype)


def _divide(a: Array, b: Array) -> Array:
    return dmljax.element_wise_divide(a, b)


_ARITHMETIC: _Entries = (
    ("Add", dmljax.element_wise_add, np.add),
    ("Div", _divide, _quotient),
    ("Mul", dmljax.element_wise_multiply, np.multiply),
    ("Sub", dmljax.element_wise_subtract, np.subtract),
    ("And", dmljax.element_wise_logical_and, np.logical_and),
    ("Or", dmljax.element_wise_logical_or, np.logical_or),
    ("Xor", dmljax.element_wise_logical_xor, np.logical_xor),
    ("Equal", dmljax.element_wise_logical_equals, np.equal),
    ("Greater", dmljax.element_wise_logical_greater_than, np.greater),
    ("Less", dmljax.element_wise_logical_less_than, np.less),
)


def _align_axes(function: _Function) -> _Function:
    """Adds the broadcasting of versions before 7: from an axis on, and only if an attribute asks for it."""

    def run(a: Array, b: Array, *, axis: int | None = None, broadcast: int = 0) -> Array:
        if broadcast and axis is not None:
            after = a.ndim - normalize_axis(axis, a.ndim) - b.ndim
            b = b.reshape(*b.shape, *[1] * max(after, 0))
        elif not broadcast and a.shape != b.shape:
            raise InvalidDesc(
                Problem("broadcast", "must be 1 for inputs of different shapes", f"{a.shape} and {b.shape}")
            )
        return function(a, b)

    return run


_register(_ARITHMETIC, _binary, since=7)
for _operator, _function, _ in _ARITHMETIC:
    handles(_operator, since=1)(_align_axes(_function))

_BROADCAST: _Entries = (
    ("BitwiseAnd", dmljax.element_wise_bit_and, None),
    ("BitwiseOr", dmljax.element_wise_bit_or, None),
    ("BitwiseXor", dmljax.element_wise_bit_xor, None),
    ("GreaterOrEqual", dmljax.element_wise_logical_greater_than_or_equal, np.greater_equal),
    ("LessOrEqual", dmljax.element_wise_logical_less_than_or_equal, np.less_equal),
)
_register(_BROADCAST, _binary)


@handles("PRelu", since=1)
def _parameterized_relu_of_channels(x: Array, slope: Array) -> Array:
    if slope.ndim == 1 and x.ndim > 1:  # a slope for each channel
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return dmljax.activation_parameterized_relu(x, slope)


_handles_each("PRelu", since=7)(_binary(dmljax.activation_parameterized_relu))


def _power(x: Array, exponent: Kept) -> Array:
    dtype = x.dtype
    if isinstance(exponent, np.ndarray) and exponent.size == 1 and dtype.kind == "f":
        number = float(exponent.reshape(()))
        shape = jnp.broadcast_shapes(x.shape, exponent.shape)
        return jnp.broadcast_to(dmljax.element_wise_constant_pow(x, number), shape)
    exponent = jnp.asarray(exponent)
    if exponent.dtype == dtype:
        return dmljax.element_wise_pow(x, exponent)
    are_floats = [jnp.issubdtype(number_type, jnp.floating) for number_type in (dtype, exponent.dtype)]
    wide = promote(dtype, exponent.dtype) if are_floats[0] is are_floats[1] else jnp.float32
    wide = dtype if are_floats == [True, False] and dtype.itemsize >= 4 else wide
    return dmljax.cast(dmljax.element_wise_pow(x.astype(wide), exponent.astype(wide)), dtype=dtype)


def _fold_power(x: Known, exponent: Known) -> Known | None:
    np.broadcast_shapes(x.shape, exponent.shape)
    if x.dtype.kind in "iu" and (exponent.dtype.kind == "f" or np.any(exponent < 0)):
        return None
    return np.asarray(np.power(x, exponent), x.dtype)


handles("Pow", since=7, fold=_fold_power)(_power)
handles("Pow", since=1)(_align_axes(_power))


@handles("Mod", fold=lambda a, b, *, fmod=0: _restrict_fold(np.fmod if fmod else np.mod)(a, b) if np.all(b) else None)
def _modulus(a: Array, b: Array, *, fmod: int = 0) -> Array:
    return (dmljax.element_wise_modulus_truncate if fmod else dmljax.element_wise_modulus_floor)(a, b)


@handles("BitShift")
def _bit_shift(a: Array, b: Array, *, direction: str) -> Array:
    if direction == "RIGHT" and a.dtype.kind == "i":
        # DirectML shifts zeros in; ONNX copies the sign bit.
        bits = a.dtype.itemsize * 8
        return jnp.right_shift(a, jnp.where((b < 0) | (b >= bits), bits - 1, b).astype(a.dtype))
    shifts = {"LEFT": dmljax.element_wise_bit_shift_left, "RIGHT": dmljax.element_wise_bit_shift_right}
    return look_up("direction", direction, shifts)(a, b)


def _variadic(function: Callable[..., T]) -> Callable[..., T]:
    return lambda *inputs: functools.reduce(function, inputs)


_VARIADIC_FUNCTIONS: _Entries = (
    ("Max", dmljax.element_wise_max, np.maximum),
    ("Min", dmljax.element_wise_min, np.minimum),
    ("Sum", dmljax.element_wise_add, np.add),
)
for _operator, _function, _fold in _VARIADIC_FUNCTIONS:
    _fold_numbers = _restrict_fold(_variadic(functools.partial(compute_known, _fold)))  # type: ignore[arg-type]
    _handles_each(_operator, fold=_fold_numbers)(_variadic(_function))


@handles("Mean")
def _mean(*inputs: Array) -> Array:
    if len(inputs) == 2:
        return dmljax.element_wise_mean(*inputs)
    total = _variadic(dmljax.element_wise_add)(*inputs)
    return dmljax.element_wise_divide(total, jnp.asarray(len(inputs), total.dtype))


@handles("IsInf")
def _is_infinite(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    if not (detect_negative or detect_positive):
        return jnp.zeros(x.shape, bool)
    both = detect_negative and detect_positive
    mode = "EITHER" if both else "NEGATIVE" if detect_negative else "POSITIVE"
    return dmljax.element_wise_is_infinity(x, infinity_mode=directml.IsInfinityMode[mode])


def _fold_where(condition: Known, a: Known, b: Known) -> Known | None:
    np.broadcast_shapes(condition.shape, a.shape, b.shape)
    return np.where(condition, a, b) if condition.dtype == bool and kind_of(a) == kind_of(b) else None


@_handles_each("Where", fold=_fold_where)
def _where(condition: Array, a: Array, b: Array) -> Array:
    return dmljax.element_wise_if(condition, a, b)


def _clip_fold(x: Known, low: Known | None = None, high: Known | None = None) -> Known | None:
    if any(value is not None and kind_of(value).kind == "O" for value in (x, low, high)):
        return None
    x = x if low is None else compute_known(np.maximum, x, low)
    return x if high is None else compute_known(np.minimum, x, high)


@_handles_each("Clip", since=11, fold=_clip_fold)
def _clip(x: Array, low: Number | None = None, high: Number | None = None) -> Array:
    if low is not None and high is not None:
        low = jnp.minimum(low, high)  # if Min > Max, DirectML gives Min and ONNX gives Max
    return dmljax.element_wise_clip1(x, low, high)


@_handles_each("Clip", since=1)
def _clip_of_attributes(x: Array, *, min: float = -np.inf, max: float = np.inf) -> Array:
    return dmljax.element_wise_clip(x, min, max)


# Types


def convert(x: Array, dtype: DType, saturate: int = 1, round_mode: str = "up") -> Array:
    """Converts a value: by CAST if DirectML has both types, otherwise by JAX."""
    if dtype.kind == "O":
        raise Unsupported(Problem("to", "must be numbers: JAX has no strings", "strings"))
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype.kind == "b":
        return x != jnp.zeros((), x.dtype)  # CAST truncates 0.5 to 0, but in ONNX 0.5 is true
    is_float = jnp.issubdtype(x.dtype, jnp.floating)
    if is_float and dtype.name in _SMALL_INTEGERS:
        return x.astype(jnp.int32).astype(dtype)  # wraps around
    if x.dtype in REALS and dtype in REALS:
        return dmljax.cast(x, dtype=dtype)
    if dtype.name == "float8_e8m0fnu":
        return _power_of_two(x.astype(jnp.float32), saturate, round_mode)
    if is_float and saturate and dtype.name.startswith("float8"):
        limit = jnp.asarray(jnp.finfo(dtype).max, x.dtype)
        x = jnp.clip(x, -limit, limit)
    return x.astype(dtype)


_SMALL_INTEGERS = frozenset({"int2", "uint2", "int4", "uint4"})


def _power_of_two(x: Array, saturate: int, round_mode: str) -> Array:
    """Converts to float8_e8m0fnu, which stores only an exponent, with 255 for NaN."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    half = 1 << 22  # rounds up, except subnormal numbers
    is_up = {
        "down": jnp.zeros(x.shape, bool),
        "nearest": (fraction > half) | ((fraction == half) & (exponent > 0)),
        "up": fraction > 0,
    }
    rounded = exponent + look_up("round_mode", round_mode, is_up).astype(jnp.uint32)
    rounded = jnp.minimum(rounded, 254) if saturate else rounded
    rounded = jnp.where(exponent == 255, 255, rounded).astype(jnp.uint8)
    return jax.lax.bitcast_convert_type(rounded, jnp.float8_e8m0fnu)


def _fold_type(x: Known, dtype: DType) -> Known | None:
    if isinstance(x, Symbols):
        return x.to_kind(dtype) if dtype.kind in "iuf" else None
    if dtype.kind not in "iufb" or x.dtype.kind not in "iufb":
        return None
    if x.dtype.kind == "f" and dtype.kind in "iu" and not np.all(np.isfinite(x)):
        return None
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@_handles_each("Cast", since=6, fold=lambda x, *, to, **_: _fold_type(x, dtype_of(to)))
def _cast(x: Kept, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    return _convert_text(x, dtype_of(to), saturate, round_mode)


@handles("CastLike", fold=lambda x, like, *, saturate=1, round_mode="up": _fold_type(x, kind_of(like)))
def _cast_like(x: Kept, like: Kept, *, saturate: int = 1, round_mode: str = "up") -> Array:
    return _convert_text(x, kind_of(like), saturate, round_mode)


@handles("Cast", since=1)
def _cast_by_name(x: Kept, *, to: str) -> Array:
    names = {"FLOAT": "float32", "DOUBLE": "float64", "BOOL": "bool"}
    return _convert_text(x, np.dtype(names.get(to, to.lower())))


@handles("BitCast")
def _bit_cast(x: Array, *, to: int) -> Array:
    dtype = dtype_of(to)
    if dtype.itemsize != x.dtype.itemsize or (dtype.name in _SMALL_INTEGERS) != (x.dtype.name in _SMALL_INTEGERS):
        raise InvalidDesc(Problem("to", f"must be as wide as {x.dtype}", dtype))
    x = x.astype(jnp.uint8) if x.dtype == bool else x
    return x != 0 if dtype.kind == "b" else jax.lax.bitcast_convert_type(x, dtype)


def _convert_text(x: Tensor, dtype: DType, saturate: int = 1, round_mode: str = "up") -> Array:
    if kind_of(x).kind == "O":
        x = x.astype(np.float64 if dtype.kind == "f" else dtype)
    return convert(as_array(x), dtype, saturate, round_mode)


# Activations


# Activations that take an array and numbers; the numbers are attributes, with these defaults
_NUMBER_FUNCTIONS: tuple[tuple[str, int, _Function, Mapping[str, float | None]], ...] = (
    ("Celu", 1, dmljax.activation_celu, {"alpha": 1.0}),
    ("Elu", 1, dmljax.activation_elu, {"alpha": 1.0}),
    ("HardSigmoid", 1, dmljax.activation_hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    ("LeakyRelu", 1, dmljax.activation_leaky_relu, {"alpha": 0.01}),
    ("ParametricSoftplus", 1, dmljax.activation_parametric_softplus, {"alpha": None, "beta": None}),
    ("ScaledTanh", 1, dmljax.activation_scaled_tanh, {"alpha": 1.0, "beta": 0.5}),
    ("Selu", 6, dmljax.activation_scaled_elu, {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    ("Selu", 1, dmljax.activation_scaled_elu, {"alpha": 1.6732, "gamma": 1.0507}),
    ("Shrink", 1, dmljax.activation_shrink, {"bias": 0.0, "lambd": 0.5}),
    ("Swish", 1, dmljax.activation_swish, {"alpha": 1.0}),
    ("ThresholdedRelu", 1, dmljax.activation_thresholded_relu, {"alpha": 1.0}),
)


def _bind_numbers(function: _Function, defaults: Mapping[str, float | None]) -> _Function:
    return lambda x, **numbers: function(x, *{**defaults, **numbers}.values())


for _operator, _since, _function, _defaults in _NUMBER_FUNCTIONS:
    _handler = make_handler(_bind_numbers(_function, _defaults), since=_since, is_elementwise=True)
    _attributes = {name: Attribute(float, is_required=default is None) for name, default in _defaults.items()}
    REGISTRY.add(MAIN, _operator, replace(_handler, attributes=_attributes))


@_handles_each("Gelu", since=20)
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """Computes GELU by DirectML's operator, or its tanh approximation by a composition."""
    if look_up("approximate", approximate, {"none": False, "tanh": True}):
        return jax.nn.gelu(x, approximate=True)
    return dmljax.activation_gelu(x)


@_handles_each("Mish")
def _mish(x: Array) -> Array:
    return dmljax.element_wise_multiply(x, dmljax.activation_tanh(dmljax.activation_softplus(x)))


@handles("Affine", "ImageScaler")
def _affine(
    x: Array, *, alpha: float = 1.0, beta: float = 0.0, scale: float = 1.0, bias: Sequence[float] | None = None
) -> Array:
    if bias is not None:
        return dmljax.value_scale_2d(x, scale, jnp.asarray(bias, x.dtype))
    return dmljax.element_wise_identity(x, directml.ScaleBias(alpha, beta))


def _axis_forms(flattened: _Function, function: _Function) -> tuple[_Function, _Function]:
    def run_flattened(x: Array, *, axis: int = 1) -> Array:
        axis = axis % x.ndim if x.ndim else 0
        rows = x if 0 in x.shape else x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        return flattened(rows).reshape(x.shape)

    def run_along(x: Array, *, axis: int = -1) -> Array:
        return function(x, axes=axis)

    return run_flattened, run_along


for _operator, _first, _function in (
    ("Hardmax", dmljax.activation_hardmax, dmljax.activation_hardmax1),
    ("LogSoftmax", dmljax.activation_log_softmax, dmljax.activation_log_softmax1),
    ("Softmax", dmljax.activation_softmax, dmljax.activation_softmax1),
):
    _flattened, _by_axis = _axis_forms(_first, _function)
    handles(_operator, since=1)(_flattened)
    handles(_operator, since=13)(_by_axis)


def _is_unary(handler: Handler) -> bool:
    is_ready = not any(attribute.is_required for attribute in handler.attributes.values())
    return handler.required == 1 and is_ready and not handler.takes_call


def activate(x: Array, name: str | None, numbers: Mapping[str, float | None]) -> Array:
    """Applies the ONNX activation of this name, with those `numbers` that are attributes of it."""
    if not name:
        return x
    known = {
        operator: entries
        for (domain, operator), entries in REGISTRY.handlers.items()
        if domain == "" and _is_unary(entries[0])
    }
    numbers_given = {key: value for key, value in numbers.items() if value is not None}
    entries = look_up("activation", name, known)
    handler = next((entry for entry in entries if numbers_given.keys() <= entry.attributes.keys()), entries[0])
    result: Array = handler.function(x, **handler.arguments(numbers_given))  # type: ignore[assignment]  # of one array
    return result


# ONNX Runtime's own operators: sums and their activations


def add_arrays(x: Array, *others: Array | None) -> Array:
    """Adds those arrays that are given."""
    return functools.reduce(dmljax.element_wise_add, (other for other in others if other is not None), x)


@handles_contrib("BiasAdd")
def _sum_with_skip(x: Array, bias: Array, skip: Array) -> Array:
    return add_arrays(x, bias, skip)


@handles_contrib("BiasGelu")
def _gelu_of_sum(x: Array, bias: Array) -> Array:
    return dmljax.element_wise_add1(x, bias, fused_activation=directml.ActivationGeluDesc())


@handles_contrib("FastGelu")
def _fast_gelu(x: Array, bias: Array | None = None) -> Array:
    # The DirectML provider computes the exact GELU, but the definition is this approximation.
    return jax.nn.gelu(add_arrays(x, bias), approximate=True)


@handles_contrib("QuickGelu")
def _quick_gelu(x: Array, *, alpha: float = 1.702) -> Array:
    return dmljax.activation_swish(x, alpha)


@handles_contrib("BiasSplitGelu")
def _gated_gelu(x: Vectors, bias: Array) -> Array:
    total = dmljax.element_wise_add(x, bias)
    left, right = dmljax.split(total, sizes=[total.shape[-1] // 2] * 2, axis=-1)
    return dmljax.element_wise_multiply(left, dmljax.activation_gelu(right))


@handles_contrib("BiasSoftmax")
def _softmax_of_sum(x: Array, bias: Array, *, axis: int = 1, is_inner_broadcast: int) -> Array:
    axis = normalize_axis(axis, x.ndim)
    if is_inner_broadcast:  # the bias repeats along inner dimensions
        repeated = x.ndim - bias.ndim
        bias = bias if repeated <= 0 else bias.reshape((1,) * repeated + bias.shape)
    return dmljax.activation_softmax1(dmljax.element_wise_add(x, bias), axes=range(axis, x.ndim))
