"""Calls of every operator: descriptors, functions and inputs made from the families' cases."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from families import CASES
from helpers import available

from dmljax import directml
from dmljax.directml import OPERATORS, DataType, FeatureLevel

LATEST = max(FeatureLevel)


def allowed(operator: str, field: str, level: FeatureLevel = LATEST) -> tuple[range, list[DataType]]:
    """Ranks and data types of one tensor, by the newest table at `level`."""
    tables = [table for introduced, table in OPERATORS[operator].support.items() if introduced <= level]
    cell = tables[-1][field]
    return cell.ranks, available(cell.data_types)


def typed_descs(operator: str, level: FeatureLevel = LATEST) -> Iterator[directml.Operator]:
    """A descriptor for every data type of every free tensor, alternating between the lowest and the highest rank."""
    case = CASES[operator]
    ranks, _ = allowed(operator, case.free[0], level)
    types = [allowed(operator, field, level)[1] for field in case.free]
    # Each type of each tensor once is enough; the others cycle.
    for i in range(max(2, *map(len, types))):
        types_by_field = {field: list_[i % len(list_)] for field, list_ in zip(case.free, types, strict=True)}
        yield case.make(types_by_field, ranks[-(i % 2)])


def any_desc(operator: str) -> directml.Operator:
    return next(typed_descs(operator))


def random_inputs(desc: directml.Operator, seed: int = 0) -> list[Any]:
    return list(CASES[type(desc).type].inputs(desc, np.random.default_rng(seed)).values())


def function_of(desc: directml.Operator) -> Callable[..., Any]:
    return CASES[type(desc).type].of_value or directml.lower(desc)


def arguments_of(desc: directml.Operator, seed: int = 0) -> list[Any]:
    return [np.float32(seed)] if CASES[type(desc).type].of_value else random_inputs(desc, seed)


def tame_call(operator: str, seed: int = 0) -> tuple[Callable[[dict[str, Any]], Any], dict[str, Any]]:
    """An operator as a function of its inputs, whose floats are so far apart that small steps keep their order."""
    case = CASES[operator]
    if case.of_value:
        return lambda arrays: case.of_value(arrays["value"]), {"value": np.float32(3 + seed)}
    desc = case.make(tame_types(operator), 4)
    inputs = case.inputs(desc, np.random.default_rng(seed))
    keys = [key for key, array in inputs.items() if array.dtype == np.float32]
    # Reverse every other input, so that no two are equal anywhere.
    floats = {key: tame_floats(case.domain, inputs[key].shape, (i + seed) % 2 == 1) for i, key in enumerate(keys)}
    return lambda arrays: function_of(desc)(*(arrays[key] for key in inputs)), inputs | floats


def float_call(operator: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """`tame_call` as a function of the float inputs only."""
    function, inputs = tame_call(operator)
    floats = {key: array for key, array in inputs.items() if array.dtype == np.float32}
    return lambda arrays: function(inputs | arrays), floats


def differentiable_call(operator: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """`float_call` with the float outputs only."""
    function, floats = float_call(operator)

    def float_outputs(floats: Any) -> list[Any]:
        return [output for output in jax.tree.leaves(function(floats)) if output.dtype == np.float32]

    if not (CASES[operator].has_derivative and jax.eval_shape(float_outputs, floats)):
        pytest.skip("no result is a float, or the results depend on the bits of a number rather than its value")
    return float_outputs, floats


def tame_types(operator: str) -> dict[str, DataType]:
    """FLOAT32 wherever possible, else UINT32 where possible, so indices stay indices."""
    types = {field: allowed(operator, field)[1] for field in CASES[operator].free}
    preferred = (DataType.FLOAT32, DataType.UINT32)
    return {
        field: next((data_type for data_type in preferred if data_type in list_), list_[0])
        for field, list_ in types.items()
    }


def tame_floats(domain: tuple[float, float] | None, shape: tuple[int, ...], backwards: bool) -> Any:
    """Numbers so far apart, or so far inside a domain, that small steps do not change the computation."""
    count = int(np.prod(shape))
    steps = np.arange(count) * 70 % 1010 if domain is None else np.linspace(*domain, count + 2)[1:-1]
    return steps[:: -1 if backwards else 1].astype(np.float32).reshape(shape)
