"""Arrays inside the jitted call of an operator: types, ranks and axes checked, shapes broadcast."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dmljax.errors import InvalidDesc, InvalidType, Problem, Where, path_of, require, spell_path
from dmljax.foundation.sharding import broadcast_with_sharding
from dmljax.foundation.sizes import remedy_for_channels, remedy_for_open, require_dimensions
from dmljax.text import join_words, show
from dmljax.types import FLOATS, INTEGERS, INTEGERS_4, REALS, widened


def require_real(where: Where, dtype: Any) -> None:
    """Raises if operators do not compute with a dtype."""
    rule = "must be bool, an integer of 8 to 64 bits or a float of 16 to 64 bits"
    if dtype not in REALS:
        is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)
        raise InvalidType(Problem(where, rule, dtype, remedy=_STATE_OF_A_KEY if is_key else None))


_STATE_OF_A_KEY = "for random_generator, pass jnp.concatenate([jnp.zeros(4, 'uint32'), jax.random.key_data(key)])"


def real_array(where: Where, value: ArrayLike) -> Array:
    """`value` as an array of bool, integers or floats."""
    x = jnp.asarray(value)
    require_real(where, x.dtype)
    return x


def integer_array(where: Where, value: ArrayLike) -> Array:
    """`value` as an array of integers; bool is refused."""
    x = real_array(where, value)
    require(where, x.dtype in INTEGERS, "must be of an integer type", x.dtype, InvalidType)
    return x


def quantized_array(where: Where, value: ArrayLike) -> Array:
    """`value` as an array of integers, which may be integers of 4 bits; bool is refused."""
    x = jnp.asarray(value)
    return x if x.dtype in INTEGERS_4 else integer_array(where, x)


def float_array(where: Where, value: ArrayLike) -> Array:
    """`value` as an array of floats."""
    x = real_array(where, value)
    if x.dtype not in FLOATS:
        remedy = f"{spell_path(path_of(where))}.astype(jnp.float32)"
        raise InvalidType(Problem(where, "must be of a floating type", x.dtype, remedy=remedy))
    return x


def number_array(where: Where, value: ArrayLike) -> Array:
    """`value` as an array of integers or floats; bool is refused."""
    x = real_array(where, value)
    if x.dtype == bool:
        rule, remedy = "must be of an integer or floating type", "convert it with astype(jnp.int32)"
        raise InvalidType(Problem(where, rule, "bool", remedy=remedy))
    return x


def require_holds(dtype: Any, numbers: str, largest: int) -> None:
    """Raises if a type cannot hold the largest possible position or count."""
    if largest > np.iinfo(dtype).max:
        wide = next(name for name in ("int32", "uint32", "int64") if largest <= np.iinfo(name).max)
        raise InvalidDesc(
            Problem("dtype", f"must hold {numbers} up to {largest}", dtype, remedy=f"use dtype=jnp.{wide}")
        )


def require_type(where: Where, x: Array, expected: Any, other: str) -> None:
    """Raises if the type of an array is not `expected`, the type of `other`."""
    if x.dtype != expected:
        name, dtype = spell_path(path_of(where)), expected
        if jnp.issubdtype(x.dtype, np.floating) and not jnp.issubdtype(expected, np.floating):
            name, dtype = other, x.dtype  # integers would lose the fractions
        remedy = f"use jnp.asarray({name}, {str(dtype)!r})"
        raise InvalidType(Problem(where, f"must be of {expected}, as {other} is", x.dtype, remedy=remedy))


def arrays_of_one_type(
    convert: Callable[[Where, ArrayLike], Array] = real_array, **values: ArrayLike
) -> dict[str, Array]:
    """The `values` as arrays, which must be of one type."""
    arrays = {name: convert(name, value) for name, value in values.items()}
    for name, x in arrays.items():
        first = next(iter(arrays))
        require_type(name, x, arrays[first].dtype, first)
    return arrays


def broadcast_operands(
    convert: Callable[[Where, ArrayLike], Array] = real_array, **values: ArrayLike
) -> tuple[Array, ...]:
    """The `values` as arrays of one shape; they must be of one type."""
    return broadcast(**arrays_of_one_type(convert, **values))


def floats_of_one_type(**values: ArrayLike | None) -> dict[str, Array]:
    """The `values` that are present as floats, all of the type of the first."""
    return arrays_of_one_type(float_array, **{name: value for name, value in values.items() if value is not None})


def apply_to_floats(function: Callable[..., Array], *numbers: ArrayLike, **values: ArrayLike) -> Array:
    """Applies `function` to floats of one type and to numbers, in at least 32 bits, and rounds the result once."""
    floats = broadcast_operands(float_array, **values)
    dtype = floats[0].dtype
    wide = widened(dtype)
    return function(*(x.astype(wide) for x in floats), *(jnp.asarray(x, wide) for x in numbers)).astype(dtype)


def broadcast(**arrays: Array) -> tuple[Array, ...]:
    """The arrays broadcast to one shape by NumPy's rules."""
    shapes = [x.shape for x in arrays.values()]
    try:
        shape = jnp.broadcast_shapes(*shapes)
    except ValueError:
        rule = f"{join_words(arrays)} must have shapes that broadcast"
        remedies = (remedy_for_channels(sizes, max(shapes, key=len)) for sizes in shapes)
        remedy = next(filter(None, remedies), None) or remedy_for_open(*shapes)
        raise InvalidDesc(Problem((), rule, join_words(shapes), remedy=remedy)) from None
    return broadcast_with_sharding(shape, *arrays.values())


def require_same_shape(**values: ArrayLike) -> None:
    """Raises if arrays have different shapes, for operators that do not broadcast."""
    shapes = {name: jnp.shape(value) for name, value in values.items()}
    first, *others = shapes
    for name in others:
        rule, remedy = f"must have the shape of {first}, {shapes[first]}", remedy_for_open(shapes[name], shapes[first])
        require(name, shapes[name] == shapes[first], rule, shapes[name], remedy=remedy)


def normal_axis(axis: int, x: Array, argument: Where = "input", name: str = "axis") -> int:
    """`axis` of an array of at least one dimension, counted from the first."""
    require_dimensions(argument, x.shape, 1)
    require(name, -x.ndim <= axis < x.ndim, f"must be in [{-x.ndim}, {x.ndim})", show(axis))
    return axis % x.ndim


def normal_axes(axes: int | Sequence[int] | None, x: Array) -> tuple[int, ...]:
    """Returns `axes` of an input, counted from the first, in increasing order; None means all axes."""
    several = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    normal = sorted(normal_axis(axis, x, name="axes") for axis in several)
    if len(set(normal)) < len(normal):
        raise InvalidDesc(Problem("axes", "must name different dimensions", several))
    return tuple(normal)
