"""The function half of every operator: what is done to arguments before, and checked of arrays inside, a jitted call.

A public function is written plain and decorated with `operator_function`, which reads the annotations:
arrays are `ArrayLike`, a number in the operator's data type is a `Scalar`, and keyword-only parameters are static.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ParamSpec, TypeVar, cast, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from dmljax._errors import InvalidDesc, InvalidType, Unsupported, bound_arguments, prefixed, within
from dmljax._tensor import UINT_MAX
from dmljax._types import FLOATS, INTEGERS, REALS, AxisDirection, exact, truncated, x64_enabled

P = ParamSpec("P")
R = TypeVar("R")

Axes = int | Sequence[int]
Scalar = Annotated[ArrayLike, "in the operator's data type, exactly"]
TruncatedScalar = Annotated[ArrayLike, "in the operator's data type, after dropping a fraction"]


def operator_function(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a plain function of arrays public: an eager call is one dispatch of one compiled computation.

    Keyword-only arguments are static. They are brought to one spelling first (`axis=True` and `1.0` are refused,
    NumPy's integers become ints), so that equal keys of the compilation cache mean equal requests.
    """
    name = function.__name__
    signature = inspect.signature(function)
    hints = get_type_hints(function, include_extras=True)
    statics = [key for key, parameter in signature.parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    scalars = {key: hints[key] for key in signature.parameters if hints[key] in (Scalar, TruncatedScalar)}
    arrays = [key for key in signature.parameters if key not in statics and key not in scalars]
    optional = {key for key, hint in hints.items() if type(None) in get_args(hint)}
    converters = dict.fromkeys(arrays, _array) | {key: _STATIC[_without_none(hints[key])] for key in statics}
    compiled = jax.jit(function, static_argnames=statics)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with within(name):
            bound = bound_arguments(signature, args, kwargs)
            bound.apply_defaults()
            given = bound.arguments
            for key, convert in converters.items():
                if given[key] is not None or key not in optional:
                    given[key] = convert(key, given[key])
            for key, kind in scalars.items():
                typed = (given.get("dtype"), *(getattr(given[array], "dtype", None) for array in arrays))
                dtype = next((dtype for dtype in typed if dtype is not None), None)
                given[key] = _scalar(key, given[key], dtype, truncate=kind is TruncatedScalar)
            return cast(R, compiled(**given))

    return call


# Arguments, before the jitted call


def _array(name: str, value: Any) -> Any:
    """`value` as JAX takes it without loss: an array, or a Python number, which stays weakly typed."""
    if not isinstance(value, jax.Array) and hasattr(value, "__jax_array__"):
        value = value.__jax_array__()
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return value if isinstance(value, bool | float) else _fitting(name, value)
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        raise InvalidType(f"{name} must be a JAX or NumPy array; got {type(value).__name__}")
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidType(f"{name} must be an array without a mask; got MaskedArray")
    _require_real(name, value.dtype)
    if value.dtype in (np.int64, np.uint64) and not x64_enabled():
        return _narrowed(name, value)
    return value


def _narrowed(name: str, value: Any) -> Any:
    """64-bit integers from NumPy in 32 bits, where JAX would cut them without a word."""
    narrow = np.dtype(f"{value.dtype.kind}4")
    if isinstance(value, jax.Array):
        raise Unsupported(f"{name} must be of at most 32 bits unless jax_enable_x64 is set; got {value.dtype}")
    if value.size:
        for extreme in (value.min(), value.max()):
            if not np.iinfo(narrow).min <= extreme <= np.iinfo(narrow).max:
                raise InvalidDesc(f"{name} must fit {narrow} unless jax_enable_x64 is set; got {extreme}")
    return value.astype(narrow)


def _fitting(name: str, value: int) -> int:
    default = np.iinfo(np.int64 if x64_enabled() else np.int32)
    if not default.min <= value <= default.max:
        raise InvalidDesc(f"{name} must fit {default.dtype}; got {value}")
    return value


def _scalar(name: str, value: Any, dtype: Any, *, truncate: bool) -> Any:
    """`value` in `dtype`, or in the type that JAX gives it where `dtype` is None.

    The value of a Python or NumPy number is known, so that it can be checked; that of a JAX array is not looked at.
    """
    if isinstance(value, bool | int | float | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        target = _default_dtype(value) if dtype is None else jax.dtypes.canonicalize_dtype(dtype)
        with prefixed(name, " "):
            return (truncated if truncate else exact)(value, np.dtype(target))
    value = _array(name, value)
    if value.ndim != 0:
        raise InvalidDesc(f"{name} must be a scalar; got shape {value.shape}")
    if dtype is None or value.dtype == dtype:
        return value
    # A weakly typed tracer stands for a Python number, which follows the operator's type where that loses nothing.
    if value.weak_type and dtype in FLOATS:
        return value.astype(dtype)
    raise InvalidType(f"{name} must be of {np.dtype(dtype).name}, or a Python number; got {value.dtype} array")


def _default_dtype(value: Any) -> np.dtype[Any]:
    if isinstance(value, np.ndarray | np.generic):
        return np.dtype(jax.dtypes.canonicalize_dtype(value.dtype))
    kind = "bool" if isinstance(value, bool) else type(value).__name__ + ("64" if x64_enabled() else "32")
    return np.dtype(kind)


def _without_none(hint: Any) -> Any:
    kept = tuple(kind for kind in get_args(hint) if kind is not type(None))
    return functools.reduce(operator.or_, kept) if type(None) in get_args(hint) else hint


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise InvalidType(f"{name} must be an int that is known while tracing; got {_described(value)}") from None


def _wholes(name: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
        raise InvalidType(f"{name} must be a sequence of ints; got {_described(values)}")
    return tuple(_whole(f"{name}[{i}]", value) for i, value in enumerate(values))


def _axes(name: str, values: Any) -> tuple[int, ...]:
    return _wholes(name, values) if isinstance(values, Sequence | np.ndarray) else (_whole(name, values),)


def _dtype(name: str, value: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = jnp.dtype(value)
    except TypeError:
        raise InvalidType(f"{name} must be a dtype; got {value!r}") from None
    _require_real(name, dtype)
    if value is int or value is float:  # Python's own types mean JAX's defaults
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    if dtype.itemsize > 4 and not x64_enabled():
        raise Unsupported(f"{name} must be of at most 32 bits unless jax_enable_x64 is set; got {dtype}")
    return dtype


def _direction(name: str, value: Any) -> AxisDirection:
    if not isinstance(value, AxisDirection):
        raise InvalidType(f"{name} must be an AxisDirection; got {value!r}")
    return value


_STATIC: dict[Any, Callable[[str, Any], Any]] = {
    int: _whole,
    Sequence[int]: _wholes,
    Axes: _axes,
    DTypeLike: _dtype,
    AxisDirection: _direction,
}


def _described(value: Any) -> str:
    return f"a traced {value.aval}" if isinstance(value, jax.core.Tracer) else repr(value)


# Arrays, inside the jitted call


def _require_real(name: str, dtype: Any) -> None:
    if dtype not in REALS:
        raise InvalidType(f"{name} must be bool, an integer of 8 to 64 bits or a float of 16 to 64 bits; got {dtype}")


def real_array(name: str, value: ArrayLike) -> Array:
    """`value` as an array of one of the types that operators compute with."""
    array = jnp.asarray(value)
    _require_real(name, array.dtype)
    return array


def integer_array(name: str, value: ArrayLike) -> Array:
    """`value` as an array of integers; bool is none."""
    array = real_array(name, value)
    if array.dtype not in INTEGERS:
        raise InvalidType(f"{name} must be of an integer type; got {array.dtype}")
    return array


def normal_axis(name: str, axis: int, rank: int) -> int:
    """`axis` counted from the first dimension."""
    if not -rank <= axis < rank:
        raise InvalidDesc(f"{name} must be in [{-rank}, {rank}); got {axis}")
    return axis % rank


def normal_axes(name: str, axes: Axes, rank: int) -> tuple[int, ...]:
    """`axes` counted from the first dimension, in increasing order."""
    listed = (axes,) if isinstance(axes, int) else tuple(axes)
    normal = sorted(normal_axis(name, axis, rank) for axis in listed)
    if not normal or len(set(normal)) < len(normal):
        raise InvalidDesc(f"{name} must name one or more different dimensions; got {listed}")
    return tuple(normal)


def within_range(name: str, value: int, lowest: int, highest: int) -> int:
    """`value`, if it lies in [lowest, highest]."""
    if not lowest <= value <= highest:
        raise InvalidDesc(f"{name} must be in [{lowest}, {highest}]; got {value}")
    return value


def index_dtype(name: str, count: int) -> np.dtype[Any]:
    """The integer type in which positions among `count` elements are computed, with room for `count` itself."""
    within_range(name, count, 0, UINT_MAX)
    return np.dtype(np.int32 if count <= np.iinfo(np.int32).max else np.uint32)
