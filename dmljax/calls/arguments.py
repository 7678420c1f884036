"""Arguments of operator functions before `jax.jit`: each kind of argument, and how its values are checked.

An argument's annotation says its kind. An `ArrayKind` says which arrays share a type; Python numbers among them are
converted to it. A number is converted to the type of the arrays, as a `NumberKind` says. All other arguments are
static: known while tracing, and normalized first, because equal keys of the compilation cache must mean equal requests,
and 1 equals `True` and `1.0`.

JAX arrays are checked while tracing, and their values are never read. Only values of Python and NumPy are checked
before each call.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from dmljax.calls.arrays import require_real
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, Where, inside, path_of
from dmljax.foundation.checks import (
    INT64_MAX,
    INT64_MIN,
    array,
    boolean,
    element_path,
    integer_in,
    integers,
    sequence,
    static_problem,
)
from dmljax.foundation.dimensions import is_symbolic
from dmljax.foundation.scalars import (
    ScaleBias,
    Size2D,
    convert_exactly,
    convert_lower_bound,
    convert_step,
    convert_upper_bound,
    truncate,
)
from dmljax.text import did_you_mean, join_words, show
from dmljax.types import FLOATS, INTEGERS, INTEGERS_4, NEEDS_X64, REALS, DataType, HeaderEnum, widened, x64_enabled

# Arrays


@dataclass(frozen=True)
class ArrayKind:
    """How an array relates to the other arrays of its call: arrays with the same `like` share a type.

    Python numbers and weakly typed arrays among them are converted to that type: `dtype` if that is what they are like,
    else the type of the first array that has its own, else the default.
    """

    like: str | None = None  # an argument of this name, if there is one, also has this type
    default: Any = None  # a type, or the name of an argument that has it
    is_float: bool = False  # integers among the arrays do not decide the type
    is_wide: bool = False  # float32 beside 16-bit floats
    may_differ: bool = False  # a float among integers stays a float
    may_have_4_bits: bool = False
    is_sequence: bool = False


ARRAY, ARRAYS = ArrayKind(), ArrayKind(is_sequence=True)
OPERAND = ArrayKind("operands")
QUANTIZED = ArrayKind("operands", may_have_4_bits=True)


def groups_of(kinds: Mapping[str, "ArgumentKind"]) -> dict[ArrayKind, list[str]]:
    """The arguments that share a type, by their kind."""
    groups: dict[ArrayKind, list[str]] = {}
    for key, kind in kinds.items():
        if isinstance(kind, ArrayKind) and kind.like:
            groups.setdefault(kind, [kind.like] if kind.like in kinds else []).append(key)
    return groups


def as_array(where: Where, value: Any, kind: "ArgumentKind" = ARRAY) -> Any:
    """Returns `value` in a form that JAX takes without loss: an array, or a Python number, which stays weakly typed."""
    if is_number(value):
        return value if isinstance(value, bool | float) else _require_fit(where, value)
    x = array(where, value)
    if isinstance(x, jax.Array):
        require_available(where, x, kind)
        return x
    _require_type(where, x.dtype, kind)
    return x if x.dtype.itemsize < 8 or x64_enabled() else _narrow(where, x)


def as_arrays(where: str, values: Any) -> tuple[Any, ...]:
    """Converts a sequence of arrays to a tuple, each array by `as_array`."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        shape = getattr(values, "shape", None)
        got = type(values).__name__ if shape is None else f"one array of shape {shape}"
        raise InvalidType(Problem(where, "must be a sequence of arrays", got))
    return tuple(as_array((where, i), value) for i, value in enumerate(values))


def is_number(value: Any) -> bool:
    """Whether `value` is a Python number."""
    return isinstance(value, bool | int | float) and not isinstance(value, np.generic)


def require_available(where: Where, x: jax.Array, kind: "ArgumentKind" = ARRAY) -> None:
    """Raises unless an array has real numbers, and if it has a 64-bit type, unless `jax_enable_x64` is set."""
    _require_type(where, x.dtype, kind)
    if x.dtype.itemsize == 8 and not x64_enabled():
        raise Unsupported(Problem(where, NEEDS_X64, x.dtype))


def _require_type(where: Where, dtype: Any, kind: "ArgumentKind") -> None:
    may_have_4_bits = isinstance(kind, ArrayKind) and kind.may_have_4_bits
    if not may_have_4_bits or dtype not in INTEGERS_4:
        require_real(where, dtype)


def _narrow(where: Where, x: Any) -> np.ndarray[Any, Any]:
    """Converts NumPy's 64-bit numbers to 32 bits: rounds floats as JAX does; raises if JAX would wrap an integer."""
    narrow = np.dtype(f"{x.dtype.kind}4")
    if x.dtype in INTEGERS and x.size:
        limits = np.iinfo(narrow)
        for extreme in (x.min(), x.max()):
            if not limits.min <= extreme <= limits.max:
                raise InvalidDesc(Problem(where, f"must fit {narrow} unless jax_enable_x64 is set", extreme))
    with np.errstate(over="ignore"):
        result: np.ndarray[Any, Any] = x.astype(narrow)
        return result


def _require_fit(where: Where, value: int) -> int:
    default = np.iinfo(_default_dtype(value))
    if not default.min <= value <= default.max:
        raise InvalidDesc(Problem(where, f"must fit {default.dtype}", show(value)))
    return value


def unify_types(
    arrays: dict[Any, Any], exempt: Any, kind: ArrayKind = OPERAND, like: Any = None, default: Any = None
) -> dict[Any, Any]:
    """Converts Python numbers and weakly typed arrays to the type of `like`, of the first array, or of `default`."""
    dtypes = [getattr(x, "dtype", x) for x in (like, *arrays.values(), default) if _has_own_type(x)]
    dtype = next((dtype for dtype in dtypes if dtype in FLOATS or not kind.is_float), None)
    dtype = widened(dtype) if kind.is_wide and dtype is not None else dtype
    weak = {key: x for key, x in arrays.items() if not (x is None or _has_own_type(x) or isinstance(x, exempt))}
    return {key: _convert_weak(key, x, dtype, kind) for key, x in weak.items()}


def _convert_weak(where: Where, value: Any, dtype: Any, kind: ArrayKind) -> Any:
    is_other = kind.may_differ and dtype not in FLOATS and jnp.result_type(value) in FLOATS
    if dtype is None or is_other:
        return as_array(where, value)
    if np.ndim(value):
        return convert_array(where, value, dtype)
    return as_scalar(where, value, dtype, NUMBER, is_weak=False)


def _has_own_type(value: Any) -> bool:
    return isinstance(value, np.dtype) or (hasattr(value, "dtype") and not getattr(value, "weak_type", False))


# Numbers


def _wrap(value: Any, dtype: np.dtype[Any]) -> Any:
    return value.astype(dtype)


def _clamp(value: Any, dtype: np.dtype[Any]) -> Any:
    limits_of_value, limits = jnp.iinfo(value.dtype), jnp.iinfo(dtype)
    return jnp.clip(value, max(limits_of_value.min, limits.min), min(limits_of_value.max, limits.max)).astype(dtype)


@dataclass(frozen=True, eq=False)
class NumberKind:
    """How a number is converted to a type, which may differ from the type of the arrays."""

    convert: Callable[[Any, Any], np.generic | None]
    dtype: Callable[[Any], np.dtype[Any]] = np.dtype
    is_scale_bias: bool = False  # two numbers
    traced: Callable[[Any, np.dtype[Any]], Any] = _wrap  # for a traced Python integer, whose value is unknown


def _matching_float(dtype: Any) -> np.dtype[Any]:
    wide = np.float64 if dtype.itemsize == 8 and x64_enabled() else np.float32
    return np.dtype(wide)


NUMBER = NumberKind(convert_exactly)


def as_number(where: str, value: Any, kind: NumberKind, dtype: Any, *, is_weak: bool) -> Any:
    """Converts a number, or both numbers of a ScaleBias, to the type that `kind` gives for an array of `dtype`."""
    if dtype is not None:
        dtype = kind.dtype(dtype)
    if not kind.is_scale_bias:
        number = as_scalar(where, value, dtype, kind, is_weak=is_weak)
        return number if is_weak else _to_fast_number(number)
    if not isinstance(value, ScaleBias):
        remedy = "directml.ScaleBias(scale=..., bias=...)"
        raise InvalidType(Problem(where, "must be a ScaleBias", show(value), remedy=remedy))
    numbers = value._asdict().items()
    return ScaleBias(*(as_scalar((where, key), x, dtype, kind, is_weak=is_weak) for key, x in numbers))


def _to_fast_number(number: Any) -> Any:
    """Returns a NumPy float32 as a Python float: `jax.jit` takes it faster and converts it to the same float32."""
    # XLA on CPU rounds a float64 to zero where its float32 is subnormal.
    is_same = type(number) is np.float32 and (number == 0 or abs(number) >= 2.0**-126)
    return float(number) if is_same else number


def as_scalar(where: Where, value: Any, dtype: Any, kind: NumberKind, *, is_weak: bool) -> Any:
    """`value` in `dtype`, or in the type that JAX gives it where `dtype` is None.

    A Python or NumPy number is checked. A JAX array is not read: it already has `dtype`, or is a traced Python number,
    which JAX rounds or wraps. A Python number stays weakly typed if all arrays are weakly typed or there are none, so
    that a mask does not widen what it is added to.
    """
    if isinstance(value, bool | int | float | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        if isinstance(value, np.ndarray | np.generic):
            require_real(where, value.dtype)
        default = _default_dtype(value)
        with inside(where):
            scalar = kind.convert(value, default if dtype is None else dtype)
        is_same = scalar is not None and scalar.dtype == default
        return value if is_weak and type(value) in (int, float) and is_same else scalar
    if value is None or isinstance(value, str):
        raise InvalidType(Problem(where, "must be a number", show(value)))
    value = as_array(where, value)
    if value.ndim != 0:
        raise InvalidDesc(Problem(where, "must be a scalar", f"shape {value.shape}"))
    stays = dtype is None or (is_weak and value.dtype == dtype)
    return value if stays else convert_array(where, value, dtype, kind)


def convert_array(where: Where, value: Any, dtype: Any, kind: NumberKind = NUMBER) -> Any:
    """Converts an array of unknown values to `dtype`, which must hold any of them unless the array is weakly typed."""
    is_weak = getattr(value, "weak_type", False)
    if value.dtype == dtype and not is_weak:
        return value
    if dtype in FLOATS and (is_weak or (value.dtype in FLOATS and value.dtype.itemsize < dtype.itemsize)):
        return value.astype(dtype)
    if dtype in INTEGERS and is_weak and value.dtype in INTEGERS:
        return kind.traced(value, dtype)
    rule = f"must be of {dtype}, or a Python number that is known while tracing"
    raise InvalidType(Problem(where, rule, f"an array of {value.dtype}"))


def _default_dtype(value: Any) -> np.dtype[Any]:
    python_type = bool if isinstance(value, bool) else int if isinstance(value, int) else float
    return np.dtype(jax.dtypes.canonicalize_dtype(getattr(value, "dtype", python_type)))


# Static arguments

Static = Callable[[Any, Any], Any]  # from the argument's name and value to its normalized form


def _integer(where: Where, value: Any) -> int:
    """Returns `value` as an int that fits int64, which computations on static arguments rely on."""
    return integer_in(where, value, INT64_MIN, INT64_MAX)


def _size(where: Where, value: Any) -> int:
    return value if is_symbolic(value) else _integer(where, value)


def _sizes(where: Where, values: Any, remedy: str = "({},) has one") -> tuple[int, ...]:
    if isinstance(values, int) and not isinstance(values, bool):
        rule = "must be a sequence of integers"
        raise InvalidType(Problem(where, rule, show(values), remedy=remedy.format(show(values))))
    return integers(where, values, _size)


def _one_or_several(where: Where, values: Any) -> int | tuple[int, ...]:
    if values is None or (isinstance(values, jax.Array) and values.ndim > 0):
        raise InvalidType(Problem(where, "must be an integer or a sequence of integers", show(values)))
    is_several = isinstance(values, Sequence) or (isinstance(values, np.ndarray) and values.ndim > 0)
    return integers(where, values, _integer) if is_several else _integer(where, values)


def _number_or_several(where: Where, values: Any) -> float | tuple[float, ...]:
    is_one = isinstance(values, np.ndarray) and values.ndim == 0
    if is_one or isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        return _float32(where, values)
    return tuple(_float32(element_path(where, i), value) for i, value in enumerate(sequence(where, values, "numbers")))


def _float32(where: Where, value: Any) -> float:
    """Rounds `value` to a finite FLOAT, as descriptors do; -0 becomes 0, which it equals as a key."""
    is_array = isinstance(value, np.ndarray | np.generic) and np.ndim(value) == 0
    if isinstance(value, bool | np.bool_) or not (is_array or isinstance(value, int | float)):
        raise InvalidType(static_problem(where, "must be a number", value, jax.Array))
    with inside(where):
        number = float(convert_exactly(value, np.dtype(np.float32)))
    if not math.isfinite(number):
        raise InvalidDesc(Problem(where, "must be finite", show(value)))
    return number + 0.0


def _size_2d(where: Where, value: Any) -> Size2D:
    if isinstance(value, Size2D):
        place = path_of(where)
        return Size2D(*(_integer((*place, key), size) for key, size in value._asdict().items()))
    if isinstance(value, Sequence):  # whether the width or the height comes first would be a guess
        remedy = "directml.Size2D(width=..., height=...) names them"
        raise InvalidType(Problem(where, "must be an integer or a Size2D", show(value), remedy=remedy))
    both = _integer(where, value)
    return Size2D(both, both)


def _axes(where: Where, values: Any) -> tuple[int, ...]:
    axes = _one_or_several(where, values)
    return (axes,) if isinstance(axes, int) else axes


def _dtype(where: Where, value: Any, kind: ArrayKind = ARRAY) -> np.dtype[Any]:
    try:
        if value is None or isinstance(value, jax.Array):  # NumPy takes None for float64
            raise TypeError
        dtype: np.dtype[Any] = jnp.dtype(value)
    except (TypeError, ValueError):
        remedy = _lower_case(value) or (_INTEGER_NAMES if str(value).startswith(("int", "uint")) else None)
        hint = did_you_mean(value, sorted(map(str, REALS))) if isinstance(value, str) and not remedy else ""
        raise InvalidType(Problem(where, "must be a dtype", show(value) + hint, remedy=remedy)) from None
    _require_type(where, dtype, kind)
    if value is int or value is float:  # Python's own types mean JAX's defaults
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    if dtype.itemsize > 4 and not x64_enabled():
        raise Unsupported(Problem(where, NEEDS_X64, dtype))
    return dtype


_INTEGER_NAMES = "integers are int4, int8, int16, int32 and int64, and with a u those without a sign"


def _lower_case(value: Any) -> str | None:
    """Returns the name of a dtype to write instead of its name in directml.h."""
    is_name = isinstance(value, str) and value in DataType.__members__ and value != DataType.UNKNOWN.name
    return f"{value.lower()!r} is one" if is_name else None


def _integer_dtype(where: Where, value: Any) -> np.dtype[Any]:
    dtype = _dtype(where, value)
    if dtype not in INTEGERS:
        raise InvalidType(Problem(where, "must be an integer type", dtype))
    return dtype


@dataclass(frozen=True)
class OneOf:
    """A static argument that is a member of `enumeration`, or its name in any case."""

    enumeration: type[HeaderEnum]

    def __call__(self, where: Where, value: Any) -> HeaderEnum:
        if isinstance(value, self.enumeration):
            return value
        try:
            if isinstance(value, str):
                return self.enumeration.of(value)
        except ValueError:
            remedy = self.enumeration.remedies.get(value.upper())
            hint = "" if remedy else self._hint(value)
            raise InvalidDesc(Problem(where, self._rule, show(value) + hint, remedy=remedy)) from None
        raise InvalidType(Problem(where, self._rule, show(value)))

    def _hint(self, value: str) -> str:
        """A hint for a name that resembles a member's, here or in JAX, or begins with one, as maximum does with max."""
        names = [*self._names, *self.enumeration.in_jax]
        begun = [name for name in names if len(name) > 2 and value.lower().startswith(name)]
        meant = self.enumeration.elsewhere.get(value.upper(), max(begun, key=len, default="")).lower()
        return f", did you mean {meant}?" if meant else did_you_mean(value, names)

    @property
    def _names(self) -> list[str]:
        return [name.lower() for name in self.enumeration.__members__]

    @property
    def _rule(self) -> str:
        return f"must be {join_words(self._names, 'or')}"

    @property
    def choices(self) -> str:
        """The type of an argument of this kind, with the names of the members."""
        return join_words([*(f'"{choice}"' for choice in self._names), f"directml.{self.enumeration.__name__}"], "or")


def _precision(where: Where, value: Any) -> lax.Precision | lax.DotAlgorithmPreset:
    if isinstance(value, lax.Precision | lax.DotAlgorithmPreset):
        return value
    try:
        if not isinstance(value, str):  # None means the default to JAX, but not here
            raise ValueError
        return lax.Precision(value)
    except ValueError:
        rule = "must be 'default', 'high', 'highest', a jax.lax.Precision or a jax.lax.DotAlgorithmPreset"
        raise InvalidType(Problem(where, rule, show(value))) from None


def _precision_of_convolution(where: Where, value: Any) -> lax.Precision:
    precision = _precision(where, value)
    if isinstance(precision, lax.DotAlgorithmPreset):
        raise InvalidType(Problem(where, "must be a jax.lax.Precision or the name of one", precision.name))
    return precision


def _axis_name(where: Where, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidType(Problem(where, "must be the name of an axis of a mesh", show(value)))
    return value


ArgumentKind = ArrayKind | NumberKind | Static


# Annotations for arguments whose kind does not follow from their type

Operand = Annotated[ArrayLike, OPERAND]
Quantized = Annotated[ArrayLike, QUANTIZED]  # an operand that may be of integers of 4 bits
OperandOfAnyType = Annotated[ArrayLike, ArrayKind("operands", may_differ=True)]
# Of the type of the other Floats; integers may stand among them.
Float = Annotated[ArrayLike, ArrayKind("floats", np.dtype(np.float32), is_float=True)]
WideFloat = Annotated[ArrayLike, ArrayKind("input", is_float=True, is_wide=True)]
Number = Annotated[ArrayLike, NUMBER]  # in the type of the arrays, without rounding if that is an integer type
TruncatedNumber = Annotated[ArrayLike, NumberKind(truncate)]  # like Number, but truncated to an integer type
StepNumber = Annotated[
    ArrayLike, NumberKind(convert_step)
]  # like Number; a negative number wraps around in an unsigned type
# Like TruncatedNumber, but a number beyond all integers of the type sets no bound.
LowerBound = Annotated[ArrayLike, NumberKind(convert_lower_bound, traced=_clamp)]
UpperBound = Annotated[ArrayLike, NumberKind(convert_upper_bound, traced=_clamp)]
FloatNumber = Annotated[
    ArrayLike, NumberKind(convert_exactly, _matching_float)
]  # of at least 32 bits, whatever the arrays are
WideNumber = Annotated[ArrayLike, NumberKind(convert_exactly, widened)]  # like Number, but float32 beside 16-bit floats
FloatScaleBias = Annotated[
    ScaleBias, NumberKind(convert_exactly, _matching_float, is_scale_bias=True)
]  # of two FloatNumbers
Axes = Annotated[int | Sequence[int], _axes]  # as a tuple
EachDimension = Annotated[int | Sequence[int], _one_or_several]  # a number for all, or a tuple with a number for each
OneEach = Annotated[Sequence[int], partial(_sizes, remedy="({},) * x.ndim has one for each dimension")]  # of an array x
EachNumber = Annotated[float | Sequence[float], _number_or_several]  # likewise; finite, rounded to a FLOAT
Size = Annotated[int, _size]  # an integer, or the symbolic size of a dimension
IntegerDType = Annotated[DTypeLike, _integer_dtype]
QuantizedDType = Annotated[DTypeLike, partial(_dtype, kind=QUANTIZED)]  # which may be an integer of 4 bits
AxisName = Annotated[str, _axis_name]  # of a mesh
Precision = lax.Precision | lax.DotAlgorithmPreset | str  # of a matrix product or a convolution

_KINDS: dict[Any, ArgumentKind] = {
    ArrayLike: ARRAY,
    Sequence[ArrayLike]: ARRAYS,
    ScaleBias: NumberKind(convert_exactly, widened, is_scale_bias=True),  # of two WideNumbers
    int: _integer,
    float: _float32,
    bool: boolean,
    Sequence[int]: _sizes,
    Size2D | int: _size_2d,
    DTypeLike: _dtype,
    Precision: _precision,
    lax.Precision | str: _precision_of_convolution,
}


@cache
def read_annotation(annotation: Any) -> tuple[ArgumentKind, Any]:
    """The kind of an argument, and its type without the kind, as `help` shows it."""
    if hasattr(annotation, "__metadata__"):
        return annotation.__metadata__[0], annotation.__origin__
    if type(None) in get_args(annotation):
        present: Any = Union[*(part for part in get_args(annotation) if part is not type(None))]
        kind, plain = read_annotation(present)
        return kind, annotation if plain is present else plain | None
    for part in get_args(annotation):
        if isinstance(part, type) and issubclass(part, HeaderEnum):
            return OneOf(part), annotation
    if annotation not in _KINDS:
        raise TypeError(f"an argument must have an annotation that says its kind; got {annotation}")
    return _KINDS[annotation], annotation


class ShownText:
    """An annotation that `help` shows as this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@cache
def spell_type(annotation: Any) -> str:
    """A type by the short names that a user knows; the docstring lists what a `str` may be."""
    if get_origin(annotation) not in (Union, UnionType):
        if get_origin(annotation) is Literal:
            return "str"
        if annotation is ...:
            return "..."
        type_name = annotation.__name__.rpartition(".")[2]
        arguments = () if type_name == "Callable" else get_args(annotation)
        return f"{type_name}[{', '.join(map(spell_type, arguments))}]" if arguments else type_name
    several, aliases = dict.fromkeys(get_args(annotation)), []
    for name, alias in (("ArrayLike", ArrayLike), ("DTypeLike", DTypeLike)):
        if several.keys() >= {*get_args(alias)} - {NoneType}:
            aliases.append(name)
            several = {part: None for part in several if part is NoneType or part not in get_args(alias)}
    parts = [*(part for part in several if part is not NoneType), *(part for part in several if part is NoneType)]
    return " | ".join([*aliases, *("None" if part is NoneType else spell_type(part) for part in parts)])


def convert_arguments(kinds: Mapping[str, ArgumentKind], arguments: dict[str, Any], exempt: Any = ()) -> dict[str, Any]:
    """Converts arrays to the types that they share, and numbers to the type `dtype`, or else that of the first array.

    Without an array, several numbers are converted to the type of the first number that has its own.

    Instances of `exempt` are not converted: these are JAX arrays, before they are traced.
    """
    for group, keys in groups_of(kinds).items():
        like, default = (arguments.get(x) if isinstance(x, str) else x for x in (group.like, group.default))
        together = {key: arguments[key] for key in keys}
        arguments = arguments | unify_types(together, exempt, group, like, default)
    numbers = {key: kind for key, kind in kinds.items() if isinstance(kind, NumberKind)}
    scalars: dict[str, Any] = {}
    if numbers:
        first = next((arguments[key] for key in kinds if key not in numbers and arguments[key] is not None), None)
        dtype = arguments.get("dtype")
        dtype = getattr(first, "dtype", None) if dtype is None else dtype
        is_weak = dtype is None or getattr(first, "weak_type", False)
        values = {key: arguments[key] for key in numbers}
        dtypes = [value.dtype for value in values.values() if _has_own_type(value) and value.dtype != bool]
        for key, value in values.items():
            if isinstance(value, jax.Array):
                require_real(key, value.dtype)
        for key, value in values.items():
            if value is None or isinstance(value, exempt):
                continue
            if dtype is None and dtypes and len(numbers) > 1:
                scalars[key] = as_scalar(key, value, dtypes[0], numbers[key], is_weak=False)
            else:
                scalars[key] = as_number(key, value, numbers[key], dtype, is_weak=is_weak)
    return arguments | scalars
