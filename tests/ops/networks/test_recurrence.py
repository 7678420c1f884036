"""RNN, GRU and LSTM; their examples run in test_every_operator.py."""

from typing import Any

import cases_recurrence as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_recurrence import (
    GATES,
    OF_DIRECTIONS,
    SIGMOID,
    STEPS,
    TANH,
    assert_near,
    function_of,
    recurrence_desc,
)
from helpers import (
    FLOATS,
    FULL,
    GATE,
    SAMPLED,
    assert_same_bits,
    assert_same_trees,
    few_of,
    needs_x64,
    refuses,
)

import dmljax
from dmljax import directml
from dmljax.directml import InvalidDesc, RecurrentNetworkDirection

FORWARD, BACKWARD, BOTH = RecurrentNetworkDirection
FUNCTIONS: dict[str, Any] = {"RNN": dmljax.rnn, "GRU": dmljax.gru, "LSTM": dmljax.lstm}
DEFAULTS: dict[str, Any] = {"RNN": [TANH], "GRU": [SIGMOID, TANH], "LSTM": [SIGMOID, TANH, TANH]}
NAMES = pytest.mark.parametrize("name", FUNCTIONS)
LSTM_FIRST = pytest.mark.parametrize("name", few_of(FUNCTIONS, "LSTM"))
RELU = directml.ActivationReluDesc()


def arrays_of(
    name: str,
    directions: int = 1,
    steps: int = 5,
    batch: int = 3,
    features: int = 2,
    hidden: int = 4,
    dtype: Any = np.float32,
    seed: int = 0,
) -> dict[str, Any]:
    """All arrays of a network of these sizes except lengths: small numbers, whose products are exact."""
    rng, outputs = np.random.default_rng(seed), GATES[name] * hidden
    shapes = {
        "input": (steps, batch, features),
        "weight": (directions, outputs, features),
        "recurrence": (directions, outputs, hidden),
        "bias": (directions, 2 * outputs),
        "hidden_init": (directions, batch, hidden),
    }
    if name == "LSTM":
        shapes |= {"cell_mem_init": (directions, batch, hidden), "peephole": (directions, 3 * hidden)}
    return {key: (rng.integers(-8, 9, shape) / 8).astype(dtype) for key, shape in shapes.items()}


def exact(name: str, arrays: Any, activations: Any = None, direction: Any = FORWARD, **attributes: Any) -> Any:
    """The result of the equations in float64."""
    count, directions = len(DEFAULTS[name]), 2 if direction is BOTH else 1
    given = [*(DEFAULTS[name] if activations is None else activations)]
    given = given * (count * directions // len(given))
    functions = [[function_of(activation) for activation in given[i : i + count]] for i in range(0, len(given), count)]
    defaults: Any = {"GRU": {"linear_before_reset": False}, "LSTM": {"clip": np.inf, "couple_input_forget": False}}.get(
        name, {}
    )
    if "clip_threshold" in attributes:
        attributes["clip"] = attributes.pop("clip_threshold")
    results = oracles.network(STEPS[name], **arrays, functions=functions, direction=direction, **defaults | attributes)
    return results if name == "LSTM" else results[:2]


@FULL
@LSTM_FIRST
@pytest.mark.parametrize("direction", RecurrentNetworkDirection, ids=lambda one: one.name)
@pytest.mark.usefixtures("lowering")
def test_networks_follow_the_equations_with_any_optional_inputs(name: str, direction: Any) -> None:
    arrays = arrays_of(name, 2 if direction is BOTH else 1)
    required = {key: arrays[key] for key in ("input", "weight", "recurrence")}
    lengths = {"sequence_lengths": np.array([5, 0, 3])}
    members: Any
    every: Any = [(required, {}), (arrays, {}), (arrays | lengths, {})]
    if name == "GRU":
        every = [(one, {"linear_before_reset": i != 1}) for i, (one, _) in enumerate(every)]
    if name == "LSTM":
        without = {key: x for key, x in arrays.items() if key != "peephole"}
        changes: list[Any] = [{"couple_input_forget": True}, {"clip_threshold": 0.5}]
        every += [(one | lengths, change) for one in (arrays, without) for change in changes]
    results = jax.jit(
        lambda given: [
            FUNCTIONS[name](**one, **members, direction=direction)
            for one, (_, members) in zip(given, every, strict=True)
        ]
    )([one for one, _ in every])
    for result, (given, members) in zip(results, every, strict=True):
        for actual, expected in zip(result, exact(name, given, direction=direction, **members), strict=True):
            assert_near(actual, expected)


@SAMPLED
@NAMES
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_16_bit_outputs_are_rounded_once_and_the_state_is_not(name: str, dtype: Any) -> None:
    # After 300 steps, a state rounded in each of them would be off by many units.
    arrays = arrays_of(name, steps=300, dtype=dtype)
    arrays["recurrence"] = (arrays["recurrence"] / 4).astype(arrays["input"].dtype)
    for actual, expected in zip(FUNCTIONS[name](**arrays), exact(name, arrays), strict=True):
        assert actual.dtype == dtype
        if dtype == jnp.bfloat16:
            np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=2**-8, atol=1e-6)
        else:
            assert_near(actual, expected)


@FULL
@LSTM_FIRST
def test_the_state_carries_over_between_pieces_of_a_sequence(name: str) -> None:
    arrays = arrays_of(name, steps=6)
    states = ["hidden_init", "cell_mem_init"][: 2 if name == "LSTM" else 1]
    whole = FUNCTIONS[name](**arrays)
    first = FUNCTIONS[name](**arrays | {"input": arrays["input"][:2]})
    second = FUNCTIONS[name](**arrays | {"input": arrays["input"][2:]} | dict(zip(states, first[1:], strict=True)))
    assert_same_bits(np.concatenate([first.sequence, second.sequence]), whole.sequence)
    assert_same_trees(list(second[1:]), list(whole[1:]))


@FULL
@NAMES
def test_the_backward_direction_is_the_forward_one_of_the_sequence_reversed(name: str) -> None:
    arrays = arrays_of(name)
    forward = FUNCTIONS[name](**arrays | {"input": arrays["input"][::-1]})
    backward = FUNCTIONS[name](**arrays, direction=BACKWARD)
    assert_same_bits(backward.sequence, forward.sequence[::-1])
    assert_same_trees(list(backward[1:]), list(forward[1:]))


@FULL
@LSTM_FIRST
def test_one_step_makes_no_loop_and_is_the_first_of_several(name: str) -> None:
    arrays = arrays_of(name, 2)
    lengths = np.array([1, 0, 4])
    for more in ({}, {"sequence_lengths": lengths}):
        inputs = arrays | more
        single_step = inputs | {"input": arrays["input"][:1]}
        assert "scan" not in str(
            jax.make_jaxpr(lambda single_step: FUNCTIONS[name](**single_step, direction=BOTH))(single_step)
        )
        result = FUNCTIONS[name](**single_step, direction=BOTH)
        for actual, expected in zip(result, exact(name, single_step, direction=BOTH), strict=True):
            assert_near(actual, expected)
        assert FUNCTIONS[name](**single_step, direction=BOTH, has_sequence=False).sequence is None


@NAMES
def test_input_products_precede_the_loop_and_the_sequence_is_kept_only_on_request(name: str) -> None:
    arrays = arrays_of(name, steps=50)

    def loops(**members: Any) -> list[Any]:
        return loops_of(name, arrays, **members)

    assert len(loops()) == (1 if name == "RNN" else 2)  # one for a CPU, one for all others
    for loop in loops():
        products = [
            equation
            for equation in every_equation(loop.params["jaxpr"].jaxpr)
            if equation.primitive.name == "dot_general"
        ]
        assert len(products) == (2 if name == "GRU" else 1)
        assert {out.aval.shape[0] for out in loop.outvars} == {arrays["input"].shape[1], 50}
    assert all(out.aval.ndim == 2 for loop in loops(has_sequence=False) for out in loop.outvars)


def test_no_step_slices_a_bias_or_a_peephole() -> None:
    # In a loop, a slice is a kernel of a TPU, which takes as long as the product of a small network.
    for name, more in (("GRU", {"linear_before_reset": True}), ("LSTM", {})):
        for loop in loops_of(name, arrays_of(name, steps=50), **more):
            body = loop.params["jaxpr"].jaxpr
            # The loop's inputs are constants, states, and sequences, which have one more dimension outside.
            whole = [inner for outer, inner in zip(loop.invars, body.invars, strict=True) if outer.aval == inner.aval]
            states = [out for out, inner in zip(loop.outvars, body.outvars, strict=True) if out.aval == inner.aval]
            slices = [equation for equation in every_equation(body) if equation.primitive.name in ("slice", "split")]
            assert slices
            assert not {equation.invars[0] for equation in slices} & {*whole[: -len(states)]}


def loops_of(name: str, arrays: dict[str, Any], **members: Any) -> list[Any]:
    jaxpr = jax.make_jaxpr(lambda given: FUNCTIONS[name](**given, **members))(arrays)
    return [equation for equation in every_equation(jaxpr.jaxpr) if equation.primitive.name == "scan"]


def every_equation(jaxpr: Any) -> Any:
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(tuple(equation.params.values())):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from every_equation(inner)


# Lengths


@FULL
@LSTM_FIRST
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32", pytest.param("uint64", marks=needs_x64)])
def test_lengths_may_be_of_any_integer_type_and_out_of_range(name: str, dtype: Any) -> None:
    arrays = arrays_of(name, 2, steps=150)  # more than an int8 counts to
    arrays["recurrence"] = (arrays["recurrence"] / 4).astype(arrays["input"].dtype)
    most = np.iinfo(dtype).max
    lengths = np.array([3, most, 0], dtype) - np.array([0, 0, 1], dtype)  # -1, or all bits set
    result = FUNCTIONS[name](**arrays, sequence_lengths=lengths, direction=BOTH)
    inputs = arrays | {"sequence_lengths": lengths}
    for actual, expected in zip(result, exact(name, inputs, direction=BOTH), strict=True):
        assert_near(actual, expected)


@FULL
@LSTM_FIRST
def test_steps_beyond_a_length_affect_neither_results_nor_gradients(name: str) -> None:
    arrays = arrays_of(name, 2)
    lengths = np.array([5, 0, 3])
    padded = arrays["input"].copy()
    padded[3:, 2], padded[:, 1] = np.nan, np.inf

    @jax.jit
    def both(given: Any) -> Any:
        def total(given: Any) -> Any:
            result = FUNCTIONS[name](**given, sequence_lengths=lengths, direction=BOTH)
            return sum(jnp.sum(x) for x in result), result

        return jax.value_and_grad(total, has_aux=True)(given)

    (_, result), gradients = both(arrays | {"input": padded})
    (_, expected), expected_gradients = both(arrays)
    assert_same_trees(result, expected)
    assert_same_trees(gradients, expected_gradients)
    assert np.all(result.sequence[3:, :, 2] == 0)
    assert np.all(result.sequence[:, :, 1] == 0)
    assert_same_bits(result.single[:, 1], arrays["hidden_init"][:, 1])
    assert np.all(gradients["input"][3:, 2] == 0)


# Activations, clipping and peepholes


@FULL
def test_each_direction_has_its_own_activations() -> None:
    for name, (forward, backward) in OF_DIRECTIONS.items():
        arrays = arrays_of(name, 2)
        result = FUNCTIONS[name](**arrays, activations=[*forward, *backward], direction=BOTH)
        expected = exact(name, arrays, [*forward, *backward], direction=BOTH)
        for actual, exact_result in zip(result, expected, strict=True):
            assert_near(actual, exact_result)


@GATE
def test_activations_may_be_given_once_for_both_directions() -> None:
    arrays = arrays_of("GRU", 2)
    activations = [directml.ActivationHardSigmoidDesc(alpha=0.25, beta=0.5), RELU]
    once = dmljax.gru(**arrays, activations=activations, direction=BOTH)
    twice = dmljax.gru(**arrays, activations=2 * activations, direction=BOTH)
    assert_same_trees(once, twice)


def scalar_lstm(bias: Any, cell: float = 0.0, **members: Any) -> Any:
    """An LSTM of one unit and one step without weights; its biases are for i, o, f and c."""
    zeros = np.zeros((1, 4, 1), np.float32)
    biases = np.array([[*bias, 0, 0, 0, 0]], np.float32)
    start = np.full((1, 1, 1), cell, np.float32)
    return dmljax.lstm(np.ones((1, 1, 1), np.float32), zeros, zeros, biases, cell_mem_init=start, **members)


def test_the_peephole_of_the_output_gate_reads_the_new_cell() -> None:
    peephole = np.array([[0, 1, 0]], np.float32)
    result = scalar_lstm((1, 0, 1, 3), 5.0, peephole=peephole, activations=[RELU] * 3)
    assert (float(result.cell_single.squeeze()), float(result.single.squeeze())) == (8, 64)  # not 40


def test_clipping_leaves_the_cell_and_nan_unchanged() -> None:
    result = scalar_lstm((2, 3, 9, 4), 5.0, clip_threshold=2.0, activations=[RELU] * 3)
    assert (float(result.cell_single.squeeze()), float(result.single.squeeze())) == (2 * 5 + 2 * 2, 2 * 14)
    assert np.isnan(scalar_lstm((np.nan, 0, 0, 1), 1.0, clip_threshold=2.0).cell_single).all()


def test_peepholes_are_clipped_with_the_rest() -> None:
    peephole = np.array([[9, 0, -9]], np.float32)
    result = scalar_lstm((0, 1, 0, 1), 1.0, peephole=peephole, clip_threshold=0.5, activations=[RELU] * 3)
    assert float(result.cell_single.squeeze()) == 0.25


def test_saturated_gates_are_exactly_open_or_shut() -> None:
    result = scalar_lstm((-200, 200, 200, 1), 5.0, activations=[SIGMOID, TANH, RELU])
    assert (float(result.cell_single.squeeze()), float(result.single.squeeze())) == (5, 5)


# Refusals


def test_a_bidirectional_network_says_how_many_activations_it_takes() -> None:
    with refuses("activations must be 2, or 2 for each direction; got 3", InvalidDesc):
        dmljax.gru(**arrays_of("GRU", 2), activations=[TANH] * 3, direction=BOTH)


# Descriptors


@FULL
@LSTM_FIRST
def test_a_desc_may_leave_out_optional_tensors(name: str) -> None:
    whole = recurrence_desc(name)
    outputs = list(whole.tensors(is_input=False))
    optional = {member.field: None for member in whole.members() if member.is_optional}
    inputs = oracles.CASES[name].inputs(whole, np.random.default_rng(0))
    for output in outputs:
        reduced_desc = recurrence_desc(name, **optional | {output: getattr(whole, output)})
        present = {field: inputs[field] for field in reduced_desc.tensors(is_input=True)}
        result = directml.lower(reduced_desc)(**present)
        assert [field for field in result._fields if getattr(result, field) is not None] == [output]
        (expected,) = oracles.oracle(reduced_desc, **present)
        assert_near(getattr(result, output), expected.reshape(getattr(reduced_desc, output).sizes))


@FULL
def test_a_clip_threshold_counts_only_where_it_is_used() -> None:
    inputs = oracles.CASES["LSTM"].inputs(recurrence_desc("LSTM"), np.random.default_rng(0))
    for is_used in (True, False):
        lstm = recurrence_desc("LSTM", clip_threshold=0.0, use_clip_threshold=is_used)
        for actual, expected in zip(directml.lower(lstm)(**inputs), oracles.oracle(lstm, **inputs), strict=True):
            assert_near(actual, expected.reshape(actual.shape))


def test_an_activation_is_refused_below_its_level() -> None:
    refused = recurrence_desc("RNN", activation_descs=[TANH, directml.ActivationGeluDesc()])
    with refuses("ActivationDescs[1].Type must be one of DML_FEATURE_LEVEL_1_0", InvalidDesc):
        directml.validate(refused, feature_level="1_0")
    directml.validate(refused, feature_level="5_1")
