"""The minimum time of a program on a chip: moving its arrays once, or its matrix products at the peak rate."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from dmljax.estimation.chips import TARGETS, Target, chips_of
from dmljax.estimation.hlo.convolutions import Extent, multiplications
from dmljax.lowerings.kernels.primitives import CHIPS, KERNELS
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
    return roofline_of(jax.make_jaxpr(function)(*inputs), TARGETS[chips_of(target)[0]], share)


def roofline_of(program: ClosedJaxpr, chip: Target, share: float = 1) -> float:
    """The roofline of a traced program."""
    return max(bytes_of(program) / chip.bytes_per_second, share * seconds_of_products(program, chip))


def seconds_of_products(program: ClosedJaxpr, chip: Target) -> float:
    """The seconds that a program's products take at the chip's peak rates."""
    products = products_of(program.jaxpr, chip.platform).items()
    return sum(count / chip.products_per_second(*factors) for factors, count in products)


def bytes_of(program: ClosedJaxpr) -> float:
    """The bytes of a program's results, and of the arguments and constants that it reads."""
    jaxpr = program.jaxpr
    atoms = (*jaxpr.outvars, *(atom for equation in jaxpr.eqns for atom in equation.invars))
    read = {atom for atom in atoms if not isinstance(atom, Literal)}
    inputs = [variable for variable in (*jaxpr.constvars, *jaxpr.invars) if variable in read]
    avals: list[Any] = [variable.aval for variable in (*inputs, *jaxpr.outvars)]
    return float(sum(aval.size * bits_of(aval.dtype) / 8 for aval in avals))


def products_of(jaxpr: Jaxpr, platform: str = "") -> Counter[Factors]:
    """The operations of matrix products and convolutions, by their factors; a multiply-add counts as two.

    Loops of unknown length count as one iteration, and conditionals as the branch with the most operations.
    """
    total: Counter[Factors] = Counter()
    for equation in jaxpr.eqns:
        if operations := _OPERATIONS.get(equation.primitive.name):
            total[_factors(equation)] += operations(equation)
            continue
        if declared := equation.params.get("cost_estimate"):
            total[_factors(equation)] += declared.flops
            continue
        branches = [products_of(inner, platform) for inner in programs_in(equation, platform)]
        if equation.primitive.name == "cond":
            most = max(branches, key=lambda branch: branch.total())
            total += most
            continue
        times = equation.params.get("length") or _grid(equation) * devices_in(equation)
        for counts in branches:
            total += Counter({factors: times * count for factors, count in counts.items()})
    return total


def _grid(equation: Any) -> int:
    """How often a Pallas kernel runs, except for sizes known only at run time; once for all other operations."""
    grid = getattr(equation.params.get("grid_mapping"), "grid", ())
    return math.prod(size for size in grid if isinstance(size, int))


def devices_in(equation: Any) -> int:
    """The number of devices on which `jax.shard_map` runs its program; 1 for all other operations."""
    if equation.primitive.name != "shard_map":
        return 1
    parameters = equation.params
    axes = parameters["newly_manual_axes" if "newly_manual_axes" in parameters else "manual_axes"]  # before JAX 0.10
    return math.prod(parameters["mesh"].shape[axis] for axis in axes)


def programs_in(equation: Any, platform: str) -> Iterator[Jaxpr]:
    """Yields the programs in an equation, without branches for other platforms, and the kernels of dmljax."""
    parameters = equation.params
    if kernel := KERNELS.get(equation.primitive):
        arguments = {name: value for name, value in parameters.items() if name != "marker"}
        if kernel.chip_of(**arguments) == CHIPS.get(platform):
            with jax.enable_x64(False):
                inputs = [variable.aval for variable in equation.invars]
                yield jax.make_jaxpr(partial(kernel.compute, interpret=False, **arguments))(*inputs).jaxpr
    elif platform and (platforms := parameters.get("branches_platforms")):
        yield parameters["branches"][
            next(i for i, names in enumerate(platforms) if names is None or platform in names)
        ].jaxpr
    else:
        yield from _jaxprs(parameters)


def _jaxprs(parameters: Any) -> Iterator[Jaxpr]:
    values = parameters.values() if isinstance(parameters, dict) else parameters
    for value in values:
        if isinstance(value, Jaxpr):
            yield value
        elif isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, (tuple, list)):
            yield from _jaxprs(value)


def _operations_of_product(equation: Any) -> int:
    (axes, _), _ = equation.params["dimension_numbers"]
    terms = math.prod(equation.invars[0].aval.shape[axis] for axis in axes)
    return int(2 * equation.outvars[0].aval.size * terms)


def _operations_of_convolution(equation: Any) -> int:
    """Counts the multiplications and additions where a filter meets an image, not its padding or zeros between."""
    image, filter_, output = (variable.aval.shape for variable in (*equation.invars, *equation.outvars))
    names, settings = equation.params["dimension_numbers"], equation.params
    extents = map(
        Extent,
        (image[axis] for axis in names.lhs_spec[2:]),
        (filter_[axis] for axis in names.rhs_spec[2:]),
        (output[axis] for axis in names.out_spec[2:]),
        settings["window_strides"],
        (before for before, _ in settings["padding"]),
        settings["lhs_dilation"],
        settings["rhs_dilation"],
    )
    channels = filter_[names.rhs_spec[0]] * filter_[names.rhs_spec[1]]
    return int(2 * output[names.out_spec[0]] * channels * math.prod(map(multiplications, extents)))


_OPERATIONS = {"dot_general": _operations_of_product, "conv_general_dilated": _operations_of_convolution}


def _factors(equation: Any) -> Factors:
    bits = min(bits_of(operand.aval.dtype) for operand in equation.invars[:2])
    return Factors(bits, bits == 32 and "HIGHEST" in str(equation.params.get("precision")))
