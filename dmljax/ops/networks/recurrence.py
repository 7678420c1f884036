"""Recurrent networks of one layer: RNN, GRU and LSTM.

They compute in at least float32. On a CPU, this type also holds the states, and only outputs are rounded to 16 bits; a
GPU and a TPU also round what they multiply. Weights and states have a dimension for one or two directions.

Args:
    input: Sequences, (steps, batch, input size), as floats.
    hidden_init: State before the first step, (directions, batch, hidden size); None means 0.
    sequence_lengths: Number of steps of each sequence, (batch,); None means all steps.
    direction: Whether to begin at the first step, at the last, or to do both.
    has_sequence: Whether to return the state after each step.

Returns:
    The states, (steps, directions, batch, hidden size), and the last state, without the steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.sharding import MeshAxes, call_with_auto_axes, dimension_axes, match_varying_axes, may_be_sharded
from dmljax.foundation.sizes import Sizes, remedy_for_rank, require_sizes
from dmljax.lowerings.rows.recurrence import (
    BACKWARD,
    BOTH,
    FLOAT_PRODUCTS,
    FORWARD,
    Cell,
    Products,
    QuantizedWeights,
    State,
    recur,
    split_gates,
    state_product,
)
from dmljax.ops.elementwise.activation import ActivationSigmoidDesc, ActivationTanhDesc
from dmljax.types import (
    FLOAT,
    UINT32,
    FeatureLevel,
    RecurrentNetworkDirection,
    RecurrentNetworkDirectionLike,
    widened,
)

_DIRECTIONS = {
    RecurrentNetworkDirection.FORWARD: FORWARD,
    RecurrentNetworkDirection.BACKWARD: BACKWARD,
    RecurrentNetworkDirection.BIDIRECTIONAL: BOTH,
}

# Activations

_Function = Callable[[Array], Array]  # of an array whose first dimension is the directions
_SIGMOID, _TANH = ActivationSigmoidDesc(), ActivationTanhDesc()

# XLA's own functions take half as long as `activation_sigmoid` and `activation_tanh`, and so does a step of small
# matrices. Their errors are no larger than those of the sums that they are applied to.
_XLA_ACTIVATIONS: Mapping[dml.Operator, _Function] = {_SIGMOID: lax.logistic, _TANH: lax.tanh}


def activation_functions(
    activations: Sequence[dml.ActivationLike] | None,
    defaults: Sequence[dml.Operator],
    direction: RecurrentNetworkDirection,
) -> list[_Function]:
    """The activation functions, by default `defaults`; `activations` lists them once, or once for each direction."""
    operators, count = defaults if activations is None else dml.Fusables()("activations", activations), len(defaults)
    if len(operators) not in (count, count * len(_DIRECTIONS[direction])):
        is_both = direction is RecurrentNetworkDirection.BIDIRECTIONAL
        rule = f"must be {count}, or {count} for each direction" if is_both else f"must be {count}"
        raise InvalidDesc(Problem("activations", rule, len(operators)))
    return [_activation_function(operators[i::count]) for i in range(count)]


def _activation_function(activations: Sequence[dml.Operator]) -> _Function:
    functions = [
        _XLA_ACTIVATIONS.get(activation, partial(dml.apply_fused_activation, activation=activation))
        for activation in activations
    ]
    if len({*activations}) == 1:
        return functions[0]
    return lambda x: jnp.stack([function(part) for function, part in zip(functions, x, strict=True)])


# Arrays


_Sizes = tuple[tuple[str, int], ...]  # each size with its name
_SCALES = ("weight_scale", "recurrence_scale")


def _sizes(gates: int, directions: int, input: Sequence[int], recurrence: Sequence[int]) -> dict[str, _Sizes]:
    """The sizes of all arrays, from the shapes of two of them."""
    steps, batch, features = ("steps", input[0]), ("batch", input[1]), ("input size", input[2])
    each, hidden = ("directions", directions), ("hidden size", recurrence[-1])
    state = each, batch, hidden

    def several(count: int) -> tuple[str, int]:
        return hidden if count == 1 else (f"{count} * hidden size", count * recurrence[-1])

    return {
        "input": (steps, batch, features),
        "weight": (each, several(gates), features),
        "recurrence": (each, several(gates), hidden),
        **dict.fromkeys(_SCALES, (each, several(gates))),
        "bias": (each, several(2 * gates)),
        "hidden_init": state,
        "cell_mem_init": state,
        "sequence_lengths": (batch,),
        "peephole": (each, several(3)),
        "output_sequence": (steps, *state),
        "output_single": state,
        "output_cell_single": state,
    }


def _network_sizes(
    gates: int,
    direction: RecurrentNetworkDirection,
    input: Sizes,
    weight: Sizes,
    recurrence: Sizes,
    bias: Sizes | None = None,
    hidden_init: Sizes | None = None,
    cell_mem_init: Sizes | None = None,
    sequence_lengths: Sizes | None = None,
    peephole: Sizes | None = None,
    **scales: Sizes,
) -> dict[str, Sizes]:
    """The sizes of the outputs."""
    problems = [
        Problem(name, f"must have 3 dimensions: {dimensions}", f"shape {sizes}", remedy=remedy_for_rank(name, sizes, 3))
        for name, sizes, dimensions, highest in (
            ("input", input, "steps, batch, input size", 3),
            ("weight", weight, "directions, outputs, input size", len(weight)),  # its sizes are checked below
            ("recurrence", recurrence, "directions, outputs, hidden size", 3),
        )
        if not 3 <= len(sizes) <= highest
    ]
    if problems:
        raise InvalidDesc(*problems)
    array_sizes = _sizes(gates, len(_DIRECTIONS[direction]), input, recurrence)
    shapes = {"input": input, "weight": weight, "recurrence": recurrence, "bias": bias, "hidden_init": hidden_init}
    more = {"cell_mem_init": cell_mem_init, "sequence_lengths": sequence_lengths, "peephole": peephole}
    for name, shape in (shapes | more | scales).items():
        if shape is not None:
            reasons, sizes = zip(*array_sizes[name], strict=True)
            require_sizes(name, shape, sizes, why=f": {', '.join(reasons)}")
    return {name: tuple(size for _, size in sizes) for name, sizes in array_sizes.items() if name.startswith("output_")}


def _check_arrays(
    gates: int, direction: RecurrentNetworkDirection, values: Mapping[str, ArrayLike | None]
) -> dict[str, Array]:
    """Returns the arrays that are present: floats of one type, except for the lengths, and of the right sizes."""
    inputs: dict[str, Array] = {}
    for name, value in values.items():
        if name == "sequence_lengths" and value is not None:
            inputs[name] = calls.integer_array(name, value)
        elif value is not None:
            inputs[name] = calls.float_array(name, value)
            calls.require_type(name, inputs[name], inputs["input"].dtype, "input")
    _network_sizes(gates, direction, **{name: x.shape for name, x in inputs.items()})
    return inputs


# Computation


class _Weights(NamedTuple):
    """The arrays that a step needs besides the products of its input, in the type of the computation."""

    recurrence: Any  # an array or QuantizedWeights, in the type of the input
    input_bias: Array
    state_bias: Array
    peephole: Array | None
    clip_threshold: Array | None
    precision: Any
    has_gates_apart: bool  # as the dimension before the features

    @property
    def bias(self) -> Array:
        """Both biases, added up before the loop."""
        return self.input_bias + self.state_bias


_BATCH = {"input": 1, "hidden_init": 1, "cell_mem_init": 1, "sequence_lengths": 0}  # the dimension of the batch


def _run(
    make_cell: Callable[[_Weights], Cell],
    network: type["_Network"],
    direction: RecurrentNetworkDirection,
    has_sequence: bool,
    precision: Any,
    products: Products = FLOAT_PRODUCTS,
    /,
    clip_threshold: ArrayLike | None = None,
    **values: ArrayLike | None,
) -> tuple[Any, ...]:
    """Returns the output of each step, or None, and then the last states."""
    gates, reverses = network.gates, _DIRECTIONS[direction]
    inputs = _check_arrays(gates, direction, values)
    are_quantized = _SCALES[0] in inputs
    wide = widened(inputs["input"].dtype)
    if clip_threshold is not None:
        inputs["clip_threshold"] = jnp.asarray(clip_threshold, wide)

    def compute(*arrays: Array) -> Any:
        input, *others = match_varying_axes(arrays)
        tensors = dict(zip([*inputs][1:], others, strict=True))
        lengths = tensors.pop("sequence_lengths", None)
        weight: Any = tensors.pop("weight")
        recurrence: Any = tensors.pop("recurrence")
        directions, outputs, hidden = recurrence.shape
        if are_quantized:
            scales = map(tensors.pop, _SCALES)
            weight, recurrence = map(QuantizedWeights, (weight, recurrence), scales)
        tensors = {name: x.astype(wide) for name, x in tensors.items()}
        zeros = jnp.zeros_like(input, wide, shape=(directions, input.shape[1], hidden))
        bias = tensors.get("bias", jnp.zeros((directions, 2 * outputs), wide))[:, None]
        peephole = tensors["peephole"][:, None] if "peephole" in tensors else None
        may_have_gates_apart = network.may_have_gates_apart and peephole is None and not are_quantized
        has_gates_apart = may_have_gates_apart and may_be_sharded(weight)
        if has_gates_apart:
            weight, recurrence = (split_gates(x, gates, 1) for x in (weight, recurrence))
            bias = split_gates(bias, 2 * gates, 2)
        input_bias, state_bias = jnp.split(bias, 2, 2)
        initial = [tensors.get(name, zeros) for name in network.states]
        if directions == 1:
            of_loop = recurrence, input_bias, state_bias, peephole, initial
            recurrence, input_bias, state_bias, peephole, initial = jax.tree.map(lambda x: x[0], of_loop)
        threshold = tensors.get("clip_threshold")
        sequence, last = recur(
            make_cell(_Weights(recurrence, input_bias, state_bias, peephole, threshold, precision, has_gates_apart)),
            input,
            weight,
            tuple(initial),
            lengths,
            reverses=reverses,
            has_sequence=has_sequence,
            precision=precision,
            multiply=products.of_input,
        )
        results = (*([sequence] if has_sequence else []), *last)
        return results if len(results) > 1 else results[0]

    batch_axes = (dimension_axes(x)[_BATCH[name]] for name, x in inputs.items() if name in _BATCH)
    batch: MeshAxes = next((axes for axes in batch_axes if axes), None)
    operands = [(x, [batch if i == _BATCH.get(name) else None for i in range(x.ndim)]) for name, x in inputs.items()]
    last: list[MeshAxes] = [None, batch, None]
    results = call_with_auto_axes(
        compute, operands, *([[None, *last]] if has_sequence else []), *([last] * len(network.states))
    )
    several = results if isinstance(results, tuple) else (results,)
    return several if has_sequence else (None, *several)


@calls.result
class RecurrentNetwork(NamedTuple):
    """The result of `rnn` and `gru`: the output of each step, and the last output in each direction.

    `sequence` has the shape (steps, directions, batch, hidden size), `single` the same without the steps.

    >>> one = jnp.ones((1, 1, 1))
    >>> sequence, single = rnn(jnp.ones((3, 1, 1)), one, one, activations=["relu"])
    >>> sequence.ravel().tolist(), single.ravel().tolist()
    ([1.0, 2.0, 3.0], [3.0])
    """

    sequence: Array | Any  # None without has_sequence
    single: Array


@calls.result
class Lstm(NamedTuple):
    """The result of `lstm`: `sequence` and `single` as in `RecurrentNetwork`, and the last cell in each direction.

    >>> ones = jnp.ones((1, 4, 1))
    >>> sequence, single, cell_single = lstm(jnp.ones((3, 1, 1)), ones, ones)
    >>> sequence.shape, single.shape, cell_single.shape
    ((3, 1, 1, 1), (1, 1, 1), (1, 1, 1))
    """

    sequence: Array | Any  # None without has_sequence
    single: Array
    cell_single: Array


# Descriptors


class _Network(dml.Operator):
    """The sizes and activations that the descriptors share, and their leading dimension of size 1."""

    gates: ClassVar[int]
    states: ClassVar[tuple[str, ...]] = ("hidden_init",)
    may_have_gates_apart: ClassVar[bool] = False
    defaults: ClassVar[tuple[dml.Operator, ...]]  # the activations of one direction

    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT, sequence_lengths=UINT32))
    has_leading_ones = True
    arguments = {"activation_descs": "activations"}

    def natural_sizes(self: Any) -> dict[str, Sizes]:
        directions = len(_DIRECTIONS[self.direction])
        array_sizes = _sizes(self.gates, directions, self.input.sizes[1:], self.recurrence.sizes[1:])
        present = (leaf.key for leaf in self.leaves(is_input=True))
        return {field: tuple(size for _, size in array_sizes[field]) for field in present}

    derived = {"has_sequence": dml.HasOutput(("output_sequence",))}
    implied = {
        "activation_descs": lambda call: (
            call.argument("activations") or call.operator.defaults * len(_DIRECTIONS[call.argument("direction")])
        )
    }

    def present(self, result: Any) -> Sequence[Any]:
        return [getattr(result, leaf.key.removeprefix("output_")) for leaf in self.leaves(is_input=False)]


_PAGE_NAMES = {"steps": "seq_length", "batch": "batch_size", "directions": "num_directions"}


def _spell_sizes(gates: int, field: str) -> str:
    """The sizes of a tensor, as the pages write them."""
    names = [name for name, _ in _sizes(gates, 1, (1, 1, 1), (1,))[field]]
    return ", ".join(
        ["1"] * (4 - len(names)) + [_PAGE_NAMES.get(name, name.replace(" size", "_size")) for name in names]
    )


def _rules(gates: int, activations: int, *fields: str) -> tuple[dml.Rule, ...]:
    """The rules of a network with the tensors `fields`, and these numbers of gates and activations per direction."""

    def missing_output(desc: Any) -> Iterator[Problem]:
        if not desc.leaves(is_input=False):
            yield Problem((), "at least one output must be given", "none")

    def wrong_activations(desc: Any, feature_level: FeatureLevel) -> Iterator[Problem]:
        count = activations * len(_DIRECTIONS[desc.direction])
        if len(desc.activation_descs) != count:
            yield Problem("ActivationDescCount", f"must be {count}", len(desc.activation_descs))
        for i, activation in enumerate(desc.activation_descs):
            yield from dml.fused_activation_rules(activation, feature_level, ("ActivationDescs", i))

    sizes = ", ".join(
        f"{{{{{_spell_sizes(gates, field)}}}}} of {{{field}}}" for field in fields
    )  # double braces stay braces
    have = "has 1 activation" if activations == 1 else f"has {activations} activations"
    return dml.page_rules(
        dml.same_type(*sorted({*fields} - {"sequence_lengths"})),
        *dml.infer_rules(f"The Sizes are {sizes}."),
        dml.Rule("At least one output is given.", missing_output),
        dml.LevelRule(
            f"Each direction {have}, each of which can be fused, is in the feature level, and has no tensors.",
            wrong_activations,
        ),
        dml.Rule("No input is flagged OWNED_BY_DML.", lambda desc: dml.flag_problems(desc.leaves(is_input=True))),
    )


_INPUTS = ("input", "weight", "recurrence", "bias", "hidden_init", "sequence_lengths")
_SIMPLE = (*_INPUTS, "output_sequence", "output_single")


class _SimpleNetwork(_Network):
    """The members of RNN, which GRU also has."""

    input: dml.Input
    weight: dml.Input
    recurrence: dml.Input
    bias: dml.OptionalInput = None
    hidden_init: dml.OptionalInput = None
    sequence_lengths: dml.OptionalInput = None
    output_sequence: dml.OptionalOutput = None
    output_single: dml.OptionalOutput = None
    activation_descs: dml.FusedActivations
    direction: dml.Enumerator[RecurrentNetworkDirection]


# RNN


@calls.operator_function
def rnn(
    input: calls.Operand,
    weight: calls.Operand,
    recurrence: calls.Operand,
    bias: calls.Operand | None = None,
    hidden_init: calls.Operand | None = None,
    sequence_lengths: ArrayLike | None = None,
    *,
    activations: dml.EachFusable | None = None,
    direction: RecurrentNetworkDirectionLike = RecurrentNetworkDirection.FORWARD,
    has_sequence: bool = True,
    precision: calls.Precision | None = None,
) -> RecurrentNetwork:
    """Computes a simple recurrent network: each state h becomes `f(x @ weight.T + h @ recurrence.T + biases)`.

    The backward direction, the second of two, begins at the last step; its outputs keep the order of the inputs. Each
    sequence of the batch may have its own length in `sequence_lengths`: the backward direction begins at its end, and
    `sequence` is 0 beyond it. `single` is the last state of each direction, which is `hidden_init` if the length is 0;
    a length beyond the number of steps counts as that number. Without `has_sequence`, intermediate states are not kept,
    and `sequence` is None. Each of `activations` is a name such as "relu", a function, perhaps in a `functools.partial`
    with numbers, or a descriptor without tensors.

    Args:
        weight: Factors of the input, (directions, hidden size, input size).
        recurrence: Factors of the state, (directions, hidden size, hidden size).
        bias: Biases of both products, one after the other, (directions, 2 * hidden size); None means 0.
        activations: The function f, or one for each direction; None means the hyperbolic tangent.

    >>> one = jnp.ones((1, 1, 1))
    >>> sequence, single = rnn(jnp.ones((3, 1, 1)), one, 0.5 * one, activations=["relu"])
    >>> sequence.ravel().tolist(), single.ravel().tolist()
    ([1.0, 1.5, 1.75], [1.75])
    """
    network_direction = RecurrentNetworkDirection.of(direction)
    functions = activation_functions(activations, RnnDesc.defaults, network_direction)
    arrays = zip(_INPUTS, (input, weight, recurrence, bias, hidden_init, sequence_lengths), strict=True)
    return run_rnn(functions, network_direction, has_sequence, precision, **dict(arrays))


def _apply_to_parts(function: Callable[..., Array], count: int, is_on_cpu: bool, *arrays: Array) -> list[Array]:
    """Applies `function` to each of `count` parts of the last dimension.

    A single call takes a CPU a quarter of the time, because XLA vectorizes it; on a TPU, it would be its own kernel.
    """
    if is_on_cpu:
        return jnp.split(function(*arrays), count, -1)
    return [function(*parts) for parts in zip(*(jnp.split(x, count, -1) for x in arrays), strict=True)]


def run_rnn(
    functions: Sequence[_Function],
    direction: RecurrentNetworkDirection,
    has_sequence: bool,
    precision: Any = None,
    **values: ArrayLike | None,
) -> RecurrentNetwork:
    """Computes `rnn` with any functions as activations."""
    (f,) = functions

    def make_cell(weights: _Weights) -> Cell:
        def step(products: Array, states: State, recurrence: Array, _: bool) -> State:
            return (f(products + state_product(states[0], recurrence, weights.precision)),)

        return Cell(step, weights.recurrence, weights.bias, bias_is_in_step=True, only_multiplies_output=True)

    return RecurrentNetwork(*_run(make_cell, RnnDesc, direction, has_sequence, precision, **values))


class RnnDesc(_SimpleNetwork, function=rnn, infer=partial(_network_sizes, 1)):
    gates = 1
    defaults = (_TANH,)
    rules = _rules(gates, len(defaults), *_SIMPLE)


# GRU


@calls.operator_function
def gru(
    input: calls.Operand,
    weight: calls.Operand,
    recurrence: calls.Operand,
    bias: calls.Operand | None = None,
    hidden_init: calls.Operand | None = None,
    sequence_lengths: ArrayLike | None = None,
    *,
    activations: dml.EachFusable | None = None,
    direction: RecurrentNetworkDirectionLike = RecurrentNetworkDirection.FORWARD,
    linear_before_reset: bool = False,
    has_sequence: bool = True,
    precision: calls.Precision | None = None,
) -> RecurrentNetwork:
    """Computes a network of gated recurrent units (GRU): each state h becomes `(1 - z) * new + z * h`.

    The update gate z and the reset gate r are `f(x @ weight.T + h @ recurrence.T + biases)`, and new is the same with g
    and with `r * h` in place of h; with `linear_before_reset`, as in PyTorch, r multiplies the product of h plus its
    bias instead.

    Everything else is as in `rnn`.

    Args:
        weight: Factors of the input, in rows for z, r and new, (directions, 3 * hidden size, input size).
        recurrence: Factors of the state, in the same rows, (directions, 3 * hidden size, hidden size).
        bias: Biases of both products, one after the other, (directions, 6 * hidden size); None means 0.
        activations: The functions f and g, perhaps for each direction; None means a sigmoid and a tanh.
        linear_before_reset: Whether the reset gate multiplies the product of the state, as in PyTorch.

    >>> zeros = jnp.zeros((1, 3, 1))
    >>> gru(
    ...     jnp.ones((3, 1, 1)), zeros, zeros, hidden_init=jnp.full((1, 1, 1), 8.0)
    ... ).sequence.ravel().tolist()
    [4.0, 2.0, 1.0]
    """
    network_direction = RecurrentNetworkDirection.of(direction)
    functions = activation_functions(activations, GruDesc.defaults, network_direction)
    arrays = zip(_INPUTS, (input, weight, recurrence, bias, hidden_init, sequence_lengths), strict=True)
    return run_gru(
        functions, network_direction, has_sequence, precision, linear_before_reset=linear_before_reset, **dict(arrays)
    )


def run_gru(
    functions: Sequence[_Function],
    direction: RecurrentNetworkDirection,
    has_sequence: bool,
    precision: Any = None,
    *,
    linear_before_reset: bool = False,
    **values: ArrayLike | None,
) -> RecurrentNetwork:
    """Computes `gru` with any functions as activations."""
    f, g = functions

    def make_cell(weights: _Weights) -> Cell:
        size = weights.recurrence.shape[-1]
        gates, new = slice(None, 2 * size), slice(2 * size, None)
        bias = weights.bias
        if linear_before_reset:
            is_of_gate = lax.iota(jnp.int32, bias.shape[-1]) < 2 * size
            bias = jnp.where(is_of_gate, bias, weights.input_bias)  # one loop, where a concatenation takes three
            new_bias = weights.state_bias[..., new]  # sliced in a step, it is a kernel of its own on a TPU

        def step(products: Array, states: State, recurrence: Array, is_on_cpu: bool) -> State:
            (hidden,) = states
            multiply = partial(state_product, precision=weights.precision)

            def update_and_reset(state_products: Array) -> list[Array]:
                return _apply_to_parts(lambda a, b: f(a + b), 2, is_on_cpu, products[..., gates], state_products)

            if linear_before_reset:
                state_products = multiply(hidden, recurrence)
                update, reset = update_and_reset(state_products[..., gates])
                if is_on_cpu:  # XLA slices first, and needs no loop before this one
                    of_new = (state_products + weights.state_bias)[..., new]
                else:
                    of_new = state_products[..., new] + new_bias
                candidate = g(products[..., new] + reset * of_new)
            else:
                update, reset = update_and_reset(multiply(hidden, recurrence[..., gates, :]))
                candidate = g(products[..., new] + multiply(reset * hidden, recurrence[..., new, :]))
            return (1 - update) * candidate, update * hidden

        return Cell(step, weights.recurrence, bias, has_summands=True)

    return RecurrentNetwork(*_run(make_cell, GruDesc, direction, has_sequence, precision, **values))


class GruDesc(_SimpleNetwork, function=gru, infer=partial(_network_sizes, 3)):
    linear_before_reset: dml.Bool
    gates = 3
    defaults = (_SIGMOID, _TANH)
    rules = _rules(gates, len(defaults), *_SIMPLE)


# LSTM


@calls.operator_function
def lstm(
    input: calls.Operand,
    weight: calls.Operand,
    recurrence: calls.Operand,
    bias: calls.Operand | None = None,
    hidden_init: calls.Operand | None = None,
    cell_mem_init: calls.Operand | None = None,
    sequence_lengths: ArrayLike | None = None,
    peephole: calls.Operand | None = None,
    clip_threshold: calls.WideNumber | None = None,
    *,
    activations: dml.EachFusable | None = None,
    direction: RecurrentNetworkDirectionLike = RecurrentNetworkDirection.FORWARD,
    couple_input_forget: bool = False,
    has_sequence: bool = True,
    precision: calls.Precision | None = None,
) -> Lstm:
    """Computes a network of long short-term memory (LSTM): each cell C becomes `f * C + i * c`, each state `o * h(C)`.

    The network reads a sequence step by step, and hands the cell, which is its memory, and the state, which is its
    output, to the next step. By default, the gates are between 0 and 1: f is the share of the memory to keep, i the
    share of the new content to add, and o the share of the memory to output.

    The gates i, o and f and the new content c are activations of `x @ weight.T + h @ recurrence.T + biases`, first
    clipped to [-clip_threshold, clip_threshold] if `clip_threshold` is given. The products of `peephole` and the cell
    are added to the sums of i, o and f before they are clipped: i and f use the cell before the step, and o the new
    one. With `couple_input_forget`, f is `1 - i`. `activations` are one for the gates, one for c and one for the cell.

    Everything else is as in `rnn`.

    Args:
        weight: Factors of the input, in rows for i, o, f and c, (directions, 4 * hidden size, input size).
        recurrence: Factors of the state, in the same rows, (directions, 4 * hidden size, hidden size).
        bias: Biases of both products, one after the other, (directions, 8 * hidden size); None means 0.
        cell_mem_init: Cell before the first step, (directions, batch, hidden size); None means 0.
        peephole: Factors of the cell in the gates i, o and f, (directions, 3 * hidden size); None means 0.
        clip_threshold: Limit of the magnitude of what activations are applied to; None means no limit.
        activations: For gates, content and cell, perhaps for each direction; None means a sigmoid and two tanh.
        couple_input_forget: Whether the forget gate is 1 - i.

    Returns:
        The states, (steps, directions, batch, hidden size), and the last state and cell, without the steps.

    >>> ones = jnp.ones((1, 4, 1))
    >>> lstm(
    ...     jnp.ones((2, 1, 1)), ones, 0 * ones, activations=["relu"] * 3
    ... ).cell_single.tolist()
    [[[2.0]]]
    """
    network_direction = RecurrentNetworkDirection.of(direction)
    functions = activation_functions(activations, LstmDesc.defaults, network_direction)
    arrays = zip(_INPUTS, (input, weight, recurrence, bias, hidden_init, sequence_lengths), strict=True)
    more = {"cell_mem_init": cell_mem_init, "peephole": peephole}
    return run_lstm(
        functions,
        network_direction,
        has_sequence,
        precision,
        couple_input_forget=couple_input_forget,
        clip_threshold=clip_threshold,
        **dict(arrays),
        **more,
    )


def run_lstm(
    functions: Sequence[_Function],
    direction: RecurrentNetworkDirection,
    has_sequence: bool,
    precision: Any = None,
    products: Products = FLOAT_PRODUCTS,
    /,
    *,
    couple_input_forget: bool = False,
    clip_threshold: ArrayLike | None = None,
    **values: ArrayLike | None,
) -> Lstm:
    """Computes `lstm` with any functions as activations, and with any products.

    With `weight_scale` and `recurrence_scale`, both (directions, 4 * hidden size), the weights are integers, which the
    functions of `products` take as `QuantizedWeights`.
    """
    f, g, h = functions

    def make_cell(weights: _Weights) -> Cell:
        # Split before the loop: in a step, a TPU runs a kernel for it.
        peepholes: Any = None if weights.peephole is None else jnp.split(weights.peephole, 3, -1)
        threshold = weights.clip_threshold

        def clip(x: Array) -> Array:
            return x if threshold is None else jnp.clip(x, -threshold, threshold)

        def step(input_products: Array, state: State, recurrence: Any, is_on_cpu: bool) -> State:
            hidden, cell = state
            size = hidden.shape[-1]
            total = input_products + products.of_state(hidden, recurrence, weights.precision)
            count = 2 if couple_input_forget else 3

            def gate(i: int, cell: Array) -> Array:
                return f(clip(total[..., i * size : (i + 1) * size] + peepholes[i] * cell))

            if weights.has_gates_apart:
                into, out, *forget = (f(clip(total[..., i, :])) for i in range(count))
                content = g(clip(total[..., 3, :]))
            else:
                content = g(clip(total[..., 3 * size :]))
                if peepholes is None:
                    gates = total[..., : count * size]
                    into, out, *forget = _apply_to_parts(lambda x: f(clip(x)), count, is_on_cpu, gates)
                else:
                    into, forget = gate(0, cell), [] if couple_input_forget else [gate(2, cell)]
            cell = (1 - into if couple_input_forget else forget[0]) * cell + into * content
            return (out if peepholes is None else gate(1, cell)) * h(cell), cell

        are_quantized = isinstance(weights.recurrence, QuantizedWeights)
        return Cell(step, weights.recurrence, weights.bias, only_multiplies_output=not are_quantized)

    return Lstm(*_run(make_cell, LstmDesc, direction, has_sequence, precision, products, clip_threshold, **values))


class LstmDesc(_Network, function=lstm, infer=partial(_network_sizes, 4)):
    input: dml.Input
    weight: dml.Input
    recurrence: dml.Input
    bias: dml.OptionalInput = None
    hidden_init: dml.OptionalInput = None
    cell_mem_init: dml.OptionalInput = None
    sequence_lengths: dml.OptionalInput = None
    peephole: dml.OptionalInput = None
    output_sequence: dml.OptionalOutput = None
    output_single: dml.OptionalOutput = None
    output_cell_single: dml.OptionalOutput = None
    activation_descs: dml.FusedActivations
    direction: dml.Enumerator[RecurrentNetworkDirection]
    clip_threshold: dml.Float
    use_clip_threshold: dml.Bool
    couple_input_forget: dml.Bool
    gates = 4
    states = ("hidden_init", "cell_mem_init")
    may_have_gates_apart = True
    defaults = (_SIGMOID, _TANH, _TANH)
    rules = _rules(gates, len(defaults), *_SIMPLE, "cell_mem_init", "peephole", "output_cell_single")

    derived = _Network.derived | {
        "clip_threshold": lambda desc: desc.clip_threshold.item if desc.use_clip_threshold else None
    }
    implied = _Network.implied | {
        "clip_threshold": lambda call: call.argument("clip_threshold") or 0.0,
        "use_clip_threshold": lambda call: call.argument("clip_threshold") is not None,
    }
