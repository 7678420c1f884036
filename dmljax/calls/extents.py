"""Refuses computations with arrays that XLA cannot compile.

XLA multiplies an element's size by each dimension in an int64. Where that overflows, it aborts the process, or raises
an error that names no operator.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from dmljax.errors import Path, Problem, Unsupported
from dmljax.lowerings.sizes import is_symbolic
from dmljax.types import INTEGERS_4


def require_addressable(jaxpr: Jaxpr, arguments: Mapping[str, Any]) -> None:
    """Refuses a computation if one of its arrays is too large for XLA.

    The error names the largest integer in `arguments`, unless an input has as large a dimension.
    """
    for what, array in _arrays(jaxpr):
        if isinstance(array, jax.core.ShapedArray) and _is_too_large(array):
            sizes = [size for one in jaxpr.invars for size in getattr(one.aval, "shape", ()) if not is_symbolic(size)]
            path, number = max(_integers(arguments), key=lambda one: one[1], default=((), 0))
            if number > max(sizes, default=0):
                rule = f"must keep {what}, {array.str_short()}, under 2**63 bytes, the most that XLA can address"
                raise Unsupported(Problem(path, rule, number))
            rule = f"{what} must have fewer than 2**63 bytes, the most that XLA can address"
            raise Unsupported(Problem((), rule, array.str_short()))


def _arrays(jaxpr: Jaxpr) -> Iterator[tuple[str, Any]]:
    for variable in jaxpr.outvars:
        yield "the result", variable.aval
    for equation in equations(jaxpr):
        for variable in equation.outvars:
            yield "an intermediate array", variable.aval
        for padded in _padded(equation):
            yield "a padded array", padded


def _integers(arguments: Mapping[str, Any]) -> Iterator[tuple[Path, int]]:
    """The integers among arguments, and in tuples of them."""
    for name, value in arguments.items():
        if isinstance(value, tuple):
            yield from (((name, i), one) for i, one in enumerate(value) if type(one) is int)
        elif type(value) is int:
            yield (name,), value


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The equations of a computation and of those inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for given in equation.params.values():
            for one in given if isinstance(given, tuple | list) else (given,):
                if isinstance(one, ClosedJaxpr | Jaxpr):
                    yield from equations(one.jaxpr if isinstance(one, ClosedJaxpr) else one)


def _is_too_large(array: jax.core.ShapedArray) -> bool:
    # XLA packs integers of 4 bits and counts their bits.
    extent = 4 if array.dtype in INTEGERS_4 else array.dtype.itemsize
    for size in array.shape:
        extent *= 1 if is_symbolic(size) else size
        if extent >= 2**63:
            return True
    return False


def _padded(equation: JaxprEqn) -> Iterator[jax.core.ShapedArray]:
    """Returns the fully padded image, which XLA may materialize before it crops or convolves it."""
    padding = _padding(equation)
    if not padding:
        return
    image, result = (cast(jax.core.ShapedArray, one.aval) for one in (equation.invars[0], equation.outvars[0]))
    sizes = list(image.shape)
    for axis, before, after, interior in padding:
        added = jax.core.max_dim(before, 0) + jax.core.max_dim(after, 0)
        sizes[axis] += added + (sizes[axis] - 1) * interior
    yield jax.core.ShapedArray(sizes, max(image.dtype, result.dtype, key=lambda dtype: dtype.itemsize))


def _padding(equation: JaxprEqn) -> Sequence[tuple[int, int, int, int]]:
    """Returns the axes that an equation pads, each with its padding before, after and between elements."""
    given = equation.params
    match equation.primitive.name:
        case "pad":
            return [(axis, *amounts) for axis, amounts in enumerate(given["padding_config"])]
        case "conv_general_dilated":
            axes, dilations = given["dimension_numbers"].lhs_spec[2:], given["lhs_dilation"]
        case _ if "window_dimensions" in given and "base_dilation" in given:
            axes, dilations = range(len(given["padding"])), given["base_dilation"]
        case _:
            return []
    each = zip(axes, given["padding"], dilations, strict=True)
    return [(axis, *amounts, dilation - 1) for axis, amounts, dilation in each]
