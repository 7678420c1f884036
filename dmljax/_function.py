"""The function half of every operator: what is done to arguments before, and checked of arrays inside, a jitted call.

A public function is written plain and decorated with `operator_function`, which reads the annotations: arrays are
`ArrayLike`, or `Operand` where they share a type; numbers are of the kinds below; keyword-only parameters are static.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, cast, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.export import is_symbolic_dim
from jax.typing import ArrayLike, DTypeLike

from dmljax._checks import UINT_MAX, array, bound_arguments, integer, integer_in, integers, listed, shown
from dmljax._errors import InvalidDesc, InvalidType, Unsupported, prefixed, within
from dmljax._operator import Operator
from dmljax._scalars import ScaleBias, exact, lower_bound, truncated, upper_bound
from dmljax._sharding import sharded_alike
from dmljax._types import FLOATS, INTEGERS, REALS, HeaderEnum, widened, x64_enabled

P = ParamSpec("P")
R = TypeVar("R")

Axes = int | Sequence[int]
Size = Annotated[int, "or the symbolic size of a dimension, while exporting"]
Operand = Annotated[ArrayLike, "in the type of the other operands, exactly"]
ScalarLike = Annotated[ArrayLike, "in the operator's data type, exactly"]
TruncatedScalarLike = Annotated[ArrayLike, "in the operator's data type, after dropping a fraction"]
LowerBoundLike = Annotated[ArrayLike, "cast to the operator's data type; nothing where all integers are above"]
UpperBoundLike = Annotated[ArrayLike, "cast to the operator's data type; nothing where all integers are below"]
FloatLike = Annotated[ArrayLike, "a float of at least 32 bits"]
WideScalarLike = Annotated[ArrayLike, "a float of at least 32 bits; beside integers, exactly one of them"]
FloatScaleBias = Annotated[ScaleBias, "two floats of at least 32 bits"]


def _modulo(value: Any, dtype: np.dtype[Any]) -> Any:
    return value.astype(dtype)


def _within(value: Any, dtype: np.dtype[Any]) -> Any:
    own, limits = jnp.iinfo(value.dtype), jnp.iinfo(dtype)
    return jnp.clip(value, max(own.min, limits.min), min(own.max, limits.max)).astype(dtype)


class _ScalarKind(NamedTuple):
    """How a number is brought into a type, which may be another one than that of the arrays."""

    convert: Callable[[Any, Any], np.generic | None]
    dtype: Callable[[Any], np.dtype[Any]] = np.dtype
    is_scale_bias: bool = False  # two numbers
    traced: Callable[[Any, np.dtype[Any]], Any] = _modulo  # a Python integer that is not known, as JAX itself takes it


_EXACT = _ScalarKind(exact)


def _float_beside(dtype: Any) -> np.dtype[Any]:
    wide = np.float64 if dtype.itemsize == 8 and x64_enabled() else np.float32
    return np.dtype(wide)


_SCALARS: dict[Any, _ScalarKind] = {
    ScalarLike: _EXACT,
    TruncatedScalarLike: _ScalarKind(truncated),
    LowerBoundLike: _ScalarKind(lower_bound, traced=_within),
    UpperBoundLike: _ScalarKind(upper_bound, traced=_within),
    FloatLike: _ScalarKind(exact, _float_beside),
    WideScalarLike: _ScalarKind(exact, widened),
    ScaleBias: _ScalarKind(exact, widened, is_scale_bias=True),
    FloatScaleBias: _ScalarKind(exact, _float_beside, is_scale_bias=True),
}


def operator_function(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a plain function of arrays public: an eager call is one dispatch of one compiled computation.

    Scalars take the type that `dtype`, if there is such a parameter, gives, or else that of the first array.
    Keyword-only arguments are static. They are brought to one spelling first (`axis=True` and `1.0` are refused,
    NumPy's integers become ints), so that equal keys of the compilation cache mean equal requests.
    """

    @functools.cache
    def prepared() -> Callable[..., R]:  # at the first call: of a hundred functions, a program calls some
        return _prepared(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return prepared()(*args, **kwargs)

    return call


def _prepared(function: Callable[..., R]) -> Callable[..., R]:
    name = function.__name__
    signature = inspect.signature(function)
    hints = get_type_hints(function, include_extras=True)
    statics = [key for key, parameter in signature.parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    kinds = {key: _without_none(hints[key]) for key in signature.parameters}
    scalars = {key: _SCALARS[kind] for key, kind in kinds.items() if kind in _SCALARS}
    arrays = [key for key in kinds if key not in statics and key not in scalars]
    operands = [key for key in arrays if kinds[key] is Operand]
    optional = {key for key, hint in hints.items() if type(None) in get_args(hint)}
    converters: dict[str, Callable[[str, Any], Any]] = {key: _operand if key in operands else _array for key in arrays}
    converters |= {key: _static(kinds[key]) for key in statics}
    compiled = jax.jit(function, static_argnames=statics)

    def call(*args: Any, **kwargs: Any) -> R:
        with within(name):
            bound = bound_arguments(signature, args, kwargs)
            bound.apply_defaults()
            given = bound.arguments
            for key, convert in converters.items():
                if given[key] is not None or key not in optional:
                    given[key] = convert(key, given[key])
            if operands:
                given.update(_in_one_type({key: given[key] for key in operands}))
            if scalars:
                first = next((given[key] for key in arrays if given[key] is not None), None)
                dtype = given.get("dtype")
                dtype = getattr(first, "dtype", None) if dtype is None else dtype
                is_weak = dtype is None or getattr(first, "weak_type", False)
                for key, kind in scalars.items():
                    if given[key] is not None or key not in optional:
                        given[key] = _scalars(key, given[key], kind, dtype, is_weak=is_weak)
            return cast(R, compiled(**given))

    return call


# Arguments, before the jitted call


def _array(name: str, value: Any) -> Any:
    """`value` as JAX takes it without loss: an array, or a Python number, which stays weakly typed."""
    if _is_number(value):
        return value if isinstance(value, bool | float) else _fitting(name, value)
    given = array(name, value)
    _require_real(name, given.dtype)
    return given if given.dtype.itemsize < 8 or x64_enabled() else _narrowed(name, given)


def _operand(name: str, value: Any) -> Any:
    """As `_array`, but a Python number stays as it is until the type of the other operands is known."""
    return value if _is_number(value) else _array(name, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float) and not isinstance(value, np.generic)


def _narrowed(name: str, given: Array | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """NumPy's 64 bits in 32: floats rounded as JAX does, integers whole, where JAX would cut them without a word."""
    if isinstance(given, jax.Array):
        raise Unsupported(f"{name} must be of at most 32 bits unless jax_enable_x64 is set; got {given.dtype}")
    narrow = np.dtype(f"{given.dtype.kind}4")
    if given.dtype in INTEGERS and given.size:
        limits = np.iinfo(narrow)
        for extreme in (given.min(), given.max()):
            if not limits.min <= extreme <= limits.max:
                raise InvalidDesc(f"{name} must fit {narrow} unless jax_enable_x64 is set; got {extreme}")
    with np.errstate(over="ignore"):
        return given.astype(narrow)


def _fitting(name: str, value: int) -> int:
    default = np.iinfo(np.int64 if x64_enabled() else np.int32)
    if not default.min <= value <= default.max:
        raise InvalidDesc(f"{name} must fit {default.dtype}; got {shown(value)}")
    return value


def _in_one_type(operands: dict[str, Any]) -> dict[str, Any]:
    """The operands, Python numbers and what is weakly typed among them in the type of the first that has one."""
    dtypes = [operand.dtype for operand in operands.values() if _has_own_type(operand)]
    weak = {key: x for key, x in operands.items() if x is not None and not _has_own_type(x)}
    if not dtypes:
        return {key: _array(key, x) for key, x in weak.items()}
    return {
        key: _in_dtype(key, x, dtypes[0]) if np.ndim(x) else _scalar(key, x, dtypes[0], _EXACT, is_weak=False)
        for key, x in weak.items()
    }


def _has_own_type(operand: Any) -> bool:
    return hasattr(operand, "dtype") and not getattr(operand, "weak_type", False)


def _scalars(name: str, value: Any, kind: _ScalarKind, dtype: Any, *, is_weak: bool) -> Any:
    """A number, or the two of a ScaleBias, as their kind has them beside an array of `dtype`."""
    if dtype is not None:
        dtype = kind.dtype(dtype)
    if not kind.is_scale_bias:
        return _scalar(name, value, dtype, kind, is_weak=is_weak)
    if not isinstance(value, ScaleBias):
        raise InvalidType(f"{name} must be a ScaleBias; got {shown(value)}")
    numbers = zip(ScaleBias._fields, value, strict=True)
    return ScaleBias(*(_scalar(f"{name}.{key}", x, dtype, kind, is_weak=is_weak) for key, x in numbers))


def _scalar(name: str, value: Any, dtype: Any, kind: _ScalarKind, *, is_weak: bool) -> Any:
    """`value` in `dtype`, or in the type that JAX gives it where `dtype` is None.

    The value of a Python or NumPy number is known, so that it can be checked. That of a JAX array is not looked at:
    it has `dtype` already, or is a Python number that a transformation traced, which JAX rounds or takes modulo a type.
    A Python number beside nothing, or beside what is weakly typed, stays so: a mask does not widen what it is added to.
    """
    if isinstance(value, bool | int | float | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        default = _default_dtype(value)
        with prefixed(name, " "):
            converted = kind.convert(value, default if dtype is None else dtype)
        is_same = converted is not None and converted.dtype == default
        return value if is_weak and type(value) in (int, float) and is_same else converted
    value = _array(name, value)
    if value.ndim != 0:
        raise InvalidDesc(f"{name} must be a scalar; got shape {value.shape}")
    return value if dtype is None else _in_dtype(name, value, dtype, kind)


def _in_dtype(name: str, value: Any, dtype: Any, kind: _ScalarKind = _EXACT) -> Any:
    """An array whose numbers are not known in `dtype`: that has them all, or the array is weakly typed."""
    if value.dtype == dtype:
        return value
    is_weak = getattr(value, "weak_type", False)
    if dtype in FLOATS and (is_weak or (value.dtype in FLOATS and value.dtype.itemsize < dtype.itemsize)):
        return value.astype(dtype)
    if dtype in INTEGERS and is_weak and value.dtype in INTEGERS:
        return kind.traced(value, dtype)
    raise InvalidType(
        f"{name} must be of {dtype}, or a Python number that is known while tracing; got an array of {value.dtype}"
    )


def _default_dtype(value: Any) -> np.dtype[Any]:
    if isinstance(value, np.ndarray | np.generic):
        return np.dtype(jax.dtypes.canonicalize_dtype(value.dtype))
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    if isinstance(value, int):
        return np.dtype(np.int64 if x64_enabled() else np.int32)
    return np.dtype(np.float64 if x64_enabled() else np.float32)


def _without_none(hint: Any) -> Any:
    kept = tuple(kind for kind in get_args(hint) if kind is not type(None))
    return functools.reduce(operator.or_, kept) if type(None) in get_args(hint) else hint


def _axes(name: str, values: Any) -> tuple[int, ...]:
    is_several = isinstance(values, Sequence) or np.ndim(values) > 0
    return integers(name, values) if is_several else (integer(name, values),)


def _dtype(name: str, value: Any) -> np.dtype[Any]:
    try:
        if isinstance(value, jax.Array):
            raise TypeError
        dtype: np.dtype[Any] = jnp.dtype(value)
    except (TypeError, ValueError):
        raise InvalidType(f"{name} must be a dtype; got {shown(value)}") from None
    _require_real(name, dtype)
    if value is int or value is float:  # Python's own types mean JAX's defaults
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    if dtype.itemsize > 4 and not x64_enabled():
        raise Unsupported(f"{name} must be of at most 32 bits unless jax_enable_x64 is set; got {dtype}")
    return dtype


def _size(name: str, value: Any) -> int:
    return value if is_symbolic(value) else integer(name, value)


def _sizes(name: str, values: Any) -> tuple[int, ...]:
    return integers(name, values, _size)


def _enumerator(enumeration: type[HeaderEnum], name: str, value: Any) -> HeaderEnum:
    if not isinstance(value, enumeration):
        article = "an" if enumeration.__name__[0] in "AEIOU" else "a"
        raise InvalidType(f"{name} must be {article} {enumeration.__name__}; got {shown(value)}")
    return value


def _operator(name: str, value: Any) -> Operator:
    if not isinstance(value, Operator):
        raise InvalidType(f"{name} must be a descriptor; got {shown(value)}")
    return value


def _static(kind: Any) -> Callable[[str, Any], Any]:
    if isinstance(kind, type) and issubclass(kind, HeaderEnum):
        return functools.partial(_enumerator, kind)
    return _STATIC[kind]


_STATIC: dict[Any, Callable[[str, Any], Any]] = {
    int: integer,
    Size: _size,
    Sequence[Size]: _sizes,
    Axes: _axes,
    DTypeLike: _dtype,
    Operator: _operator,
}


# Arrays, inside the jitted call


def _require_real(name: str, dtype: Any) -> None:
    if dtype not in REALS:
        raise InvalidType(f"{name} must be bool, an integer of 8 to 64 bits or a float of 16 to 64 bits; got {dtype}")


def real_array(name: str, value: ArrayLike) -> Array:
    """`value` as an array of one of the types that operators compute with."""
    given = jnp.asarray(value)
    _require_real(name, given.dtype)
    return given


def integer_array(name: str, value: ArrayLike) -> Array:
    """`value` as an array of integers; bool is none."""
    given = real_array(name, value)
    if given.dtype not in INTEGERS:
        raise InvalidType(f"{name} must be of an integer type; got {given.dtype}")
    return given


def float_array(name: str, value: ArrayLike) -> Array:
    """`value` as an array of floats."""
    given = real_array(name, value)
    if given.dtype not in FLOATS:
        raise InvalidType(f"{name} must be of a floating type; got {given.dtype}")
    return given


def number_array(name: str, value: ArrayLike) -> Array:
    """`value` as an array of integers or floats; bool is none."""
    given = real_array(name, value)
    if given.dtype == bool:
        raise InvalidType(f"{name} must be of an integer or floating type; got bool")
    return given


def operands(convert: Callable[[str, ArrayLike], Array] = real_array, **values: ArrayLike) -> tuple[Array, ...]:
    """The `values`, which must be of one type, as arrays of one shape."""
    arrays = [convert(name, value) for name, value in values.items()]
    for name, given in zip(values, arrays, strict=True):
        if given.dtype != arrays[0].dtype:
            raise InvalidType(f"{name} must be of {arrays[0].dtype}, as {next(iter(values))} is; got {given.dtype}")
    return broadcast(**dict(zip(values, arrays, strict=True)))


def of_floats(function: Callable[..., Array], *numbers: ArrayLike, **values: ArrayLike) -> Array:
    """The function of floats of one type, and of numbers, computed in at least 32 bits and rounded once."""
    floats = operands(float_array, **values)
    dtype = floats[0].dtype
    wide = widened(dtype)
    return function(*(x.astype(wide) for x in floats), *(jnp.asarray(x, wide) for x in numbers)).astype(dtype)


def broadcast(**arrays: Array) -> tuple[Array, ...]:
    """The arrays in the one shape that all of them can be repeated to, as NumPy has it."""
    shapes = [given.shape for given in arrays.values()]
    try:
        shape = jnp.broadcast_shapes(*shapes)
    except ValueError:
        raise InvalidDesc(f"{listed(arrays)} must have shapes that broadcast; got {listed(shapes)}") from None
    return sharded_alike(*(jnp.broadcast_to(given, shape) for given in arrays.values()))


def require_rank(name: str, given: Array, lowest: int) -> None:
    """Refuses an array of fewer than `lowest` dimensions."""
    if given.ndim < lowest:
        raise InvalidDesc(
            f"{name} must have at least {lowest} {'dimension' if lowest == 1 else 'dimensions'}; got {given.ndim}"
        )


def normal_axis(name: str, axis: int, rank: int) -> int:
    """`axis` counted from the first dimension."""
    if not -rank <= axis < rank:
        raise InvalidDesc(f"{name} must be in [{-rank}, {rank}); got {shown(axis)}")
    return axis % rank


def normal_axes(name: str, axes: Axes, rank: int) -> tuple[int, ...]:
    """`axes` counted from the first dimension, in increasing order."""
    listed = (axes,) if isinstance(axes, int) else tuple(axes)
    normal = sorted(normal_axis(name, axis, rank) for axis in listed)
    if not normal or len(set(normal)) < len(normal):
        raise InvalidDesc(f"{name} must name one or more different dimensions; got {listed}")
    return tuple(normal)


# Sizes, which jax.export may leave open: a symbolic one is known when the exported computation is called


def is_symbolic(size: int) -> bool:
    """Whether `size` is left open by an export."""
    return bool(is_symbolic_dim(size))


def check_size(name: str, size: int, lowest: int) -> None:
    """Refuses a size below `lowest`, or one that DirectML's UINT cannot hold."""
    if not is_symbolic(size):
        integer_in(name, size, lowest, UINT_MAX)


def number(size: int, dtype: Any) -> Any:
    """A size as a scalar of `dtype`."""
    return jnp.asarray(size).astype(dtype) if is_symbolic(size) else np.array(size, dtype)


def index_dtype(name: str, *sizes: int) -> np.dtype[Any]:
    """The integer type in which positions in dimensions of these sizes are computed, with room for the sizes."""
    for size in sizes:
        check_size(name, size, 0)
    int32_holds = all(not is_symbolic(size) and size <= np.iinfo(np.int32).max for size in sizes)
    return np.dtype(np.int32 if int32_holds else np.uint32)
