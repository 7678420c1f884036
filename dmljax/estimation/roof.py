"""The minimum time of a program on a chip: moving its arrays once, or its matrix products at the peak rate."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from dmljax.estimation.targets import TARGETS, Target, chips_of
from dmljax.types import bits_of


class Factors(NamedTuple):
    """The type of a product's factors, or of the narrower factor."""

    bits: int
    is_full: bool = False  # whether float32 factors are not rounded


def roof(target: str, function: Callable[..., Any], *inputs: Any, share: float = 1) -> float:
    """The minimum seconds that a function takes on one chip, however it is computed.

    This is the longer of two times: reading each input and writing each result once, and the function's products at the
    chip's peak rate. `share` is the fraction of these products that are needed: half in causal attention.

    >>> x = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    >>> f"{roof('h100', jnp.matmul, x, x) * 1e6:.0f} us"
    '139 us'
    """
    return roof_of(jax.make_jaxpr(function)(*inputs), TARGETS[chips_of(target)[0]], share)


def roof_of(program: ClosedJaxpr, chip: Target, share: float = 1) -> float:
    """The roof of a traced program."""
    products = products_of(program.jaxpr).items()
    operations = sum(count / chip.products_per_second(*factors) for factors, count in products)
    return max(bytes_of(program) / chip.bytes_per_second, share * operations)


def bytes_of(program: ClosedJaxpr) -> float:
    """The bytes of a program's results, and of the arguments and constants that it reads."""
    jaxpr = program.jaxpr
    atoms = (*jaxpr.outvars, *(atom for equation in jaxpr.eqns for atom in equation.invars))
    read = {atom for atom in atoms if not isinstance(atom, Literal)}
    inputs = [variable for variable in (*jaxpr.constvars, *jaxpr.invars) if variable in read]
    avals: list[Any] = [variable.aval for variable in (*inputs, *jaxpr.outvars)]
    return float(sum(aval.size * bits_of(aval.dtype) / 8 for aval in avals))


def products_of(jaxpr: Jaxpr) -> Counter[Factors]:
    """The operations of matrix products and convolutions, by their factors; a multiply-add counts as two.

    Loops of unknown length count as one iteration, and conditionals as the branch with the most operations.
    """
    total: Counter[Factors] = Counter()
    for equation in jaxpr.eqns:
        found = [products_of(inner) for inner in _jaxprs(equation.params)]
        if equation.primitive.name in _TERMS:
            result: Any = equation.outvars[0].aval
            total[_factors(equation)] += 2 * result.size * _TERMS[equation.primitive.name](equation)
        elif declared := equation.params.get("cost_estimate"):
            total[_factors(equation)] += declared.flops
        elif equation.primitive.name == "cond":
            most = max(found, key=lambda branch: branch.total())
            total += most
        else:
            times = equation.params.get("length") or _grid(equation)
            for counts in found:
                total += Counter({factors: times * count for factors, count in counts.items()})
    return total


def _grid(equation: Any) -> int:
    """How often a Pallas kernel runs, except for sizes known only at run time; once for all other operations."""
    grid = getattr(equation.params.get("grid_mapping"), "grid", ())
    return math.prod(size for size in grid if isinstance(size, int))


def _jaxprs(parameters: Any) -> Iterator[Jaxpr]:
    values = parameters.values() if isinstance(parameters, dict) else parameters
    for value in values:
        if isinstance(value, Jaxpr):
            yield value
        elif isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, (tuple, list)):
            yield from _jaxprs(value)


def _terms_of_product(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    return math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)


def _terms_of_convolution(equation: Any) -> int:
    """Counts the elements of a filter that meet the image, excluding the zeros of a dilated image."""
    filters = equation.invars[1].aval
    outputs = filters.shape[equation.params["dimension_numbers"].rhs_spec[0]]
    return int(filters.size // outputs // math.prod(equation.params["lhs_dilation"]))


_TERMS = {"dot_general": _terms_of_product, "conv_general_dilated": _terms_of_convolution}


def _factors(equation: Any) -> Factors:
    bits = min(bits_of(operand.aval.dtype) for operand in equation.invars[:2])
    return Factors(bits, bits == 32 and "HIGHEST" in str(equation.params.get("precision")))
