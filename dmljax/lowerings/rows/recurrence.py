"""Recurrent networks of one layer: a state that passes through the steps of a sequence, in one or two directions.

In the loop, the data of a step has the dimensions (directions, batch, features), or (batch, features) if there is one
direction: a leading dimension of 1 would double the time of a step on a TPU. In a sequence, the steps come first. A
function updates the state in each step, so that this module knows nothing about gates.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.dimensions import at_most, is_symbolic
from dmljax.foundation.sharding import may_be_sharded, reshape_like
from dmljax.lowerings.platform import choose
from dmljax.types import widened

State = tuple[Array, ...]
InputProduct = Callable[[Array, Any, Array | None, tuple[bool, ...], Any], tuple[Array, ...]]
FORWARD, BACKWARD, BOTH = (False,), (True,), (False, True)  # whether each direction begins at the last step


class QuantizedWeights(NamedTuple):
    """Integers, as floats, that are multiplied before each output is scaled."""

    integers: Array  # (directions, outputs, features)
    scale: Array  # (directions, outputs)


class Cell(NamedTuple):
    """A network's step.

    It takes the products of the input with the weights, plus `bias`, the states, `recurrence`, and `is_on_cpu`.
    """

    step: Callable[[Array, State, Any, bool], State]
    recurrence: Any  # an array, or a tree of arrays
    bias: Array
    has_summands: bool = False  # whether a step returns two summands of its only state
    bias_is_in_step: bool = False  # on every platform, not only on a CPU
    only_multiplies_output: bool = False  # whether steps only multiply the first state, which then may be rounded


def _total(summands: State) -> State:
    return (summands[0] + summands[1],)


def recur(
    cell: Cell,
    input: Array,
    weight: Any,
    initial: State,
    lengths: Array | None,
    *,
    reverses: tuple[bool, ...],
    has_sequence: bool,
    precision: Any,
    multiply: InputProduct,
) -> tuple[Array | None, State]:
    """The output of each step, in the type of `input`, if `has_sequence`, and the states after the last step.

    `input` is (steps, batch, features), and `weight` is what `multiply` takes. `lengths` has the length of each
    sequence in the batch. A step beyond it outputs 0 and keeps the states.
    """
    is_within, within = None, None
    if lengths is not None:
        is_within = _steps_within(lengths, input.shape[0])
        within = _to_loop_order([is_within] * len(reverses), reverses)
    products = multiply(input, weight, is_within, reverses, precision)
    loop = partial(_loop, cell, _LoopInputs(products, within, reverses, input.dtype, has_sequence), initial)
    # A bias added before the loop costs a CPU another pass over the products, and saves a TPU a kernel per step, except
    # in an RNN. If the loop carries the result of a function, XLA on CPU computes it element by element, in three times
    # the time that summands take.
    elsewhere = partial(loop, is_on_cpu=False)
    wide = widened(input.dtype)
    is_alike = cell.bias_is_in_step and jax.tree.all(jax.tree.map(lambda x: x.dtype == wide, cell.recurrence))
    return elsewhere() if is_alike else choose(cpu=partial(loop, is_on_cpu=True), default=elsewhere)


def input_product(
    input: Array, weight: Array, is_within: Array | None, reverses: tuple[bool, ...], precision: Any
) -> tuple[Array, ...]:
    """The products of all steps with the weights of each direction, which need not wait for states.

    `weight` is (directions, outputs, features) or a result of `split_gates`. Steps that are not within their sequence
    affect nothing, not even derivatives.
    """
    input = input if is_within is None else jnp.where(is_within, input, 0)
    if may_be_sharded(weight):
        # Multiply once, so that devices that divide the outputs exchange the input's derivatives only once, and none
        # copies the weights of a direction.
        every = _product(input, weight, precision)
        return _to_loop_order([every[:, :, i] for i in range(len(reverses))], reverses)

    def multiply_each(input: Array, weight: Array) -> tuple[Array, ...]:
        inputs = zip(_to_loop_order([input] * len(reverses), reverses), weight, strict=True)
        return tuple(_product(x, weights, precision) for x, weights in inputs)

    def multiply_both(input: Array, weight: Array) -> tuple[Array, ...]:
        every = _product(input, weight.reshape(-1, weight.shape[-1]), precision)
        return _to_loop_order(jnp.split(every, 2, -1), reverses)

    has_few_rows = reverses == BOTH and _has_few_rows(input)
    return choose(input, weight, cpu=multiply_both if has_few_rows else None, default=multiply_each)


# Up to this many rows of steps and batch, a CPU copies products in less time than weights, and in fewer loops, which
# compile faster. With thousands of rows it took up to 1.7 times as long.
_FEW_ROWS = 256


def _has_few_rows(sequence: Array) -> bool:
    return at_most(sequence.shape[0] * sequence.shape[1], _FEW_ROWS)


class _LoopInputs(NamedTuple):
    """The inputs of a loop's steps for each direction, and the form of their results."""

    products: tuple[Array, ...]
    within: tuple[Array, ...] | None  # whether a step is within the length of each sequence
    reverses: tuple[bool, ...]
    dtype: Any
    has_sequence: bool

    def join_directions(self, each: Sequence[Array]) -> Array:
        """The directions of a step as one array."""
        return jnp.stack(each) if len(each) > 1 else each[0]


def _loop(cell: Cell, steps: _LoopInputs, initial: State, *, is_on_cpu: bool) -> tuple[Array | None, State]:
    dtype, wide, has_two = steps.dtype, widened(steps.dtype), steps.reverses == BOTH
    recurrence = cell.recurrence
    if is_on_cpu:  # a GPU and a TPU multiply 16-bit factors, and read half of the bytes in each step
        recurrence = jax.tree.map(lambda x: x.astype(wide), recurrence)
    bias_is_in_step = is_on_cpu or cell.bias_is_in_step
    carries_summands = is_on_cpu and cell.has_summands
    states = _total if carries_summands else lambda carry: carry

    def update(before: State, products: Sequence[Array]) -> State:
        summands = steps.join_directions(products).astype(wide)
        summands = summands + cell.bias if bias_is_in_step else summands
        after = cell.step(summands, states(before), recurrence, is_on_cpu)
        after = _total(after) if cell.has_summands and not carries_summands else after
        return tuple(new.astype(old.dtype) for new, old in zip(after, before, strict=True))

    def one_step(before: State, inputs: Any) -> tuple[State, Array | None]:
        products, within = inputs
        after = update(before, products)
        output = states(after)[0].astype(dtype) if steps.has_sequence else None
        if within is not None:
            is_within = steps.join_directions(within)
            output = None if output is None else jnp.where(is_within, output, 0)
            after = tuple(jnp.where(is_within, new, old) for new, old in zip(after, before, strict=True))
        return after, output

    first, *others = initial
    first = first.astype(recurrence.dtype) if cell.only_multiplies_output else first
    start = (jnp.zeros_like(first), first, *others) if carries_summands else (first, *others)
    products = steps.products
    if not bias_is_in_step:
        biases = cell.bias[:, None] if has_two else cell.bias[None, None]
        products = tuple(x + bias for x, bias in zip(products, biases, strict=True))
    if not is_on_cpu:
        products = tuple(x.astype(dtype) for x in products)
    elif has_two and _has_few_rows(products[0]):
        products = (jnp.stack(products, 1),)
    carry, sequence = _scan(one_step, start, (products, steps.within), reverse=steps.reverses == BACKWARD)
    sequence = None if sequence is None else _to_input_order(sequence, steps.reverses)
    finals = (x.astype(dtype) for x in states(carry))
    return sequence, tuple(x if has_two else x[None] for x in finals)


def _scan(step: Callable[..., Any], start: State, steps: Any, *, reverse: bool) -> tuple[State, Array | None]:
    """`lax.scan`, without a loop for a single step."""
    count = steps[0][0].shape[0]
    if is_symbolic(count) or count != 1:
        return cast(tuple[State, Array | None], lax.scan(step, start, steps, reverse=reverse))
    carry, output = step(start, jax.tree.map(lambda x: x[0], steps))
    return carry, None if output is None else output[None]


def _to_input_order(sequence: Array, reverses: tuple[bool, ...]) -> Array:
    """The outputs in the order of the input: (steps, directions, batch, features)."""
    if reverses != BOTH:
        return sequence[:, None]
    return jnp.stack([sequence[:, 0], jnp.flip(sequence[:, 1], 0)], 1)


def _to_loop_order(each: Sequence[Array], reverses: tuple[bool, ...]) -> tuple[Array, ...]:
    """The array of each direction, with its steps in the order of the loop, which runs backward only for BACKWARD."""
    return (each[0], jnp.flip(each[1], 0)) if reverses == BOTH else tuple(each)


def _steps_within(lengths: Array, steps: int) -> Array:
    """Whether each step is within the length of each sequence of the batch: (steps, batch, 1)."""
    # Use at least 32 bits: 8 or 16 may not hold the number of steps.
    wide = lengths if lengths.dtype.itemsize >= 4 else lengths.astype(np.int32)
    return lax.broadcasted_iota(wide.dtype, (steps, *wide.shape, 1), 0) < wide[None, :, None]


def _product(x: Array, weights: Array, precision: Any) -> Array:
    """`x`, (..., batch, features), times the transposed weights, (outputs, features), in at least float32."""
    dimensions = (((x.ndim - 1,), (weights.ndim - 1,)), ((), ()))
    wide = widened(x.dtype)
    return lax.dot_general(x, weights, dimensions, precision=precision, preferred_element_type=wide)


def state_product(state: Array, weights: Array, precision: Any) -> Array:
    """The product of a state, in the type of the weights, with the transposed weights, in at least float32.

    The weights are (outputs, features), or (directions, outputs, features) for a state of both directions.
    """
    narrow, wide = state.astype(weights.dtype), widened(weights.dtype)
    if state.ndim == 2:
        return _product(narrow, weights, precision)
    dimensions = (((2,), (weights.ndim - 1,)), ((0,), (0,)))
    return lax.dot_general(narrow, weights, dimensions, precision=precision, preferred_element_type=wide)


class Products(NamedTuple):
    """How a network multiplies its input and its states with weights."""

    of_input: InputProduct
    of_state: Callable[[Array, Any, Any], Array]


FLOAT_PRODUCTS = Products(input_product, state_product)


def split_gates(x: Array, gates: int, axis: int) -> Array:
    """`x` with a new dimension for the gates, which follow each other along `axis`.

    Devices that divide the outputs then exchange weights before the loop, so that each has its features of all gates,
    and exchange no gates in the steps.
    """
    by_features = x.reshape(*x.shape[:axis], -1, gates, *x.shape[axis + 1 :])
    return reshape_like(x, by_features.swapaxes(axis, axis + 1))
