"""Enumerations and activations: every function takes them by name, and errors list the choices."""

import contextlib
import functools
from typing import Any, Literal, get_args, get_origin
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from helpers import SAMPLED, assert_same_trees, refuses

import dmljax
from dmljax import directml
from dmljax.calls.arguments import OneOf
from dmljax.directml import InvalidDesc, InvalidType
from dmljax.examples import examples_of
from dmljax.types import HeaderEnum


def enumeration_of(annotation: Any) -> Any:
    """The enumeration of an argument, or None."""
    return next(
        (part for part in get_args(annotation) if isinstance(part, type) and issubclass(part, HeaderEnum)), None
    )


CHOICES = {
    (operator, name): annotation
    for operator in directml.OPERATORS.values()
    for name, annotation in operator.function.__annotations__.items()
    if enumeration_of(annotation)
}
FUSING = [
    operator for operator in directml.OPERATORS.values() if "fused_activation" in operator.function.__annotations__
]


ENUMERATIONS: list[Any] = sorted(set(map(enumeration_of, CHOICES.values())), key=str)


def name_of_choice(choice: tuple[Any, str]) -> str:
    return f"{choice[0].short_name}-{choice[1]}"


class Recorded(Exception):
    """The arguments are known, and the result is not needed."""


@functools.cache
def arguments_of_example(operator: Any) -> dict[str, Any]:
    """The arguments of the operator's function in its first example."""
    example = examples_of(operator)[0]
    given: dict[str, Any] = {}

    @functools.wraps(operator.function)
    def record(**arguments: Any) -> None:
        given.update(arguments)
        raise Recorded

    arrays = {key: jnp.asarray(array) for key, array in example.arrays(of_inputs=True).items()}
    with mock.patch.object(operator, "function", staticmethod(record)), contextlib.suppress(Recorded):
        example.desc.compute(**arrays)
    return given


def test_some_functions_take_choices() -> None:
    assert len(CHOICES) >= 30
    assert len(FUSING) == 8


@pytest.mark.parametrize("enumeration", ENUMERATIONS)
def test_a_type_checker_knows_the_names(enumeration: Any) -> None:
    for annotation in CHOICES.values():
        if enumeration_of(annotation) is enumeration:
            (literal,) = (part for part in get_args(annotation) if get_origin(part) is Literal)
            assert set(get_args(literal)) == {name.lower() for name in enumeration.__members__} | {*enumeration.in_jax}


@pytest.mark.parametrize("enumeration", ENUMERATIONS)
def test_a_name_in_any_case_is_a_member(enumeration: Any) -> None:
    member_of = functools.partial(OneOf(enumeration), "x")
    for name, member in enumeration.__members__.items():
        for spelled in (name, name.lower(), name.title(), member.spelling, member):
            assert member_of(spelled) is member
    for name, known in enumeration.in_jax.items():
        assert member_of(name) is member_of(known)


@SAMPLED
@pytest.mark.parametrize("choice", CHOICES, ids=name_of_choice)
def test_a_function_takes_the_name_of_a_member(choice: tuple[Any, str]) -> None:
    operator, argument = choice
    arguments = arguments_of_example(operator)
    assert isinstance(arguments[argument], HeaderEnum)
    by_name = operator.function(**arguments | {argument: arguments[argument].name.lower()})
    assert_same_trees(by_name, operator.function(**arguments))


@pytest.mark.parametrize("choice", CHOICES, ids=name_of_choice)
@pytest.mark.gate(but=6)
def test_an_invalid_choice_is_refused_with_the_valid_ones(choice: tuple[Any, str]) -> None:
    operator, argument = choice
    names = [name.lower() for name in enumeration_of(CHOICES[operator, argument]).__members__]
    function, others = operator.function, arguments_of_example(operator)
    choices = f"{function.__name__}: {argument} must be {', '.join(names[:-1])}{' or ' if names[1:] else ''}{names[-1]}"
    with refuses(f"{choices}; got '{names[0]}x', did you mean {names[0]}?", InvalidDesc):
        function(**others | {argument: f"{names[0]}x"})
    for value in (0, None):
        with refuses(f"{choices}; got {value}", InvalidType):
            function(**others | {argument: value})
    for name in names:
        assert f'"{name}"' in function.__doc__


@pytest.mark.parametrize(
    ("name", "hint"), [("maximum", "max"), ("product", "prod"), ("avg", "average"), ("logsum", "log_sum")]
)
def test_an_invalid_choice_leads_to_the_nearest_here_or_in_jax(name: str, hint: str) -> None:
    with pytest.raises(InvalidDesc, match=rf"got '{name}', did you mean {hint}\?"):
        dmljax.reduce(jnp.ones(2), name)  # type: ignore[arg-type]


def test_reduce_takes_its_function_by_position() -> None:
    x = jnp.array([[3.0, 4.0]])
    assert dmljax.reduce(x, "mean", axes=1).tolist() == [[3.5]]
    assert jax.jit(lambda x: dmljax.reduce(x, directml.ReduceFunction.SUM, axes=1))(x).tolist() == [[7.0]]
    with refuses("reduce: multiple values for argument 'function'", InvalidType):
        dmljax.reduce(x, "sum", function="sum", axes=1)  # type: ignore[misc]
    with refuses("reduce: too many positional arguments", InvalidType):
        dmljax.reduce(x, "sum", 1)  # type: ignore[call-arg]


def test_programs_spell_members_as_the_header_does() -> None:
    desc = {"Type": "DML_OPERATOR_ELEMENT_WISE_ROUND", "Desc": {"RoundingMode": "halves_to_nearest_even"}}
    for name in ("InputTensor", "OutputTensor"):
        desc["Desc"][name] = {"DataType": "FLOAT32", "Sizes": [1]}  # type: ignore[index]
    with refuses("RoundingMode must be one of HALVES_TO_NEAREST_EVEN, ...; got 'halves_to_nearest_even'", InvalidDesc):
        directml.from_json(desc)


# Activations

ACTIVATIONS = [
    operator
    for operator in directml.OPERATORS.values()
    if hasattr(operator, "fused_since") and operator.fused_since("DML_OPERATOR_GEMM")
]
X = jnp.array([[-2.0, 0.5], [3.0, -0.25]], jnp.float32)  # the numbers of descriptors are float32


def name_of(activation: Any) -> str:
    return str(activation.short_name.lower())


NEEDED: dict[str, dict[str, Any]] = {
    "activation_softmax1": {"axes": [1]},
    "element_wise_clip": {"min": -1.0, "max": 5.0},
}


@SAMPLED
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=name_of)
def test_an_activation_is_its_function_or_its_name(activation: Any) -> None:
    function, name = activation.function, name_of(activation)
    needed = NEEDED.get(name, {})
    expected = function(dmljax.gemm(X, X), **needed)
    short = name.removeprefix("activation_").removeprefix("element_wise_")
    for spelling in (
        functools.partial(function, **needed),
        *(() if needed else (name, short, short.upper(), function)),
    ):
        assert_same_trees(dmljax.gemm(X, X, fused_activation=spelling), expected)
    if needed:
        with refuses("gemm: fused_activation...must be", directml.InvalidType):
            dmljax.gemm(X, X, fused_activation=name)


def test_functools_partial_sets_the_numbers_of_an_activation() -> None:
    steep = functools.partial(dmljax.activation_elu, alpha=2.0)
    expected = dmljax.activation_elu(X + X, 2.0)
    assert_same_trees(dmljax.element_wise_add1(X, X, fused_activation=steep), expected)


@SAMPLED
@pytest.mark.parametrize("operator", FUSING, ids=name_of)
def test_functions_that_take_an_activation_take_its_name(operator: Any) -> None:
    arguments = arguments_of_example(operator)
    by_name = operator.function(**arguments | {"fused_activation": "relu"})
    assert_same_trees(by_name, operator.function(**arguments | {"fused_activation": directml.ActivationReluDesc()}))
    names = "celu, ...relu, ...softsign, tanh or thresholded_relu, dmljax's function of that name, or its descriptor"
    with refuses(f"fused_activation must be {names}; got 'rela', did you mean relu?", InvalidDesc):
        operator.function(**arguments | {"fused_activation": "rela"})
    with refuses(f"fused_activation must be {names}; got <...did you mean relu?", InvalidType):
        operator.function(**arguments | {"fused_activation": jax.nn.relu})


@pytest.mark.parametrize(("function", "gates", "count"), [("rnn", 1, 1), ("gru", 3, 2), ("lstm", 4, 3)])
@pytest.mark.gate(but=1)
def test_networks_take_the_names_of_their_activations(function: str, gates: int, count: int) -> None:
    network = getattr(dmljax, function)
    arrays = jnp.ones((2, 1, 3)), jnp.full((1, gates * 2, 3), 0.5), jnp.full((1, gates * 2, 2), -0.5)
    by_desc = network(*arrays, activations=[directml.ActivationReluDesc()] * count)
    assert_same_trees(network(*arrays, activations=["relu"] * count), by_desc)
    assert_same_trees(network(*arrays, activations=[dmljax.activation_relu] * count), by_desc)
    with refuses(f"{function}: activations[0] must be celu, ...; got 'softmax'", InvalidDesc):
        network(*arrays, activations=["softmax"] * count)
