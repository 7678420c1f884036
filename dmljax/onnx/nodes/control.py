"""Operators that choose and repeat subgraphs."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, Problem, Unsupported, inside
from dmljax.foundation.dimensions import is_symbolic
from dmljax.onnx.graph.graph import OnnxGraph
from dmljax.onnx.handlers.registry import NodeCall, handles
from dmljax.onnx.handlers.signatures import Passed, Wanted
from dmljax.onnx.nodes.data.indexing import counting_type
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.rewrites.joining import JOINED
from dmljax.onnx.running.interpreter import as_array, as_known, is_known
from dmljax.onnx.values.counts import NotKnown
from dmljax.onnx.values.padded import BranchType, Padded, is_padded, is_padded_array
from dmljax.onnx.values.symbols import kind_of, known_numbers, size_of
from dmljax.onnx.values.types import Array, Results, Tensor, Value

MAX_SHORT = 4  # up to this count, iterations are unrolled first, so that known values stay known
MAX_UNROLLED = 1024  # iterations that are unrolled if each needs its own trace
MAX_COUNTED = 2**31 - 1  # exporters write a greater count for a loop that only its condition ends


def _arrays(names: Sequence[str], values: Sequence[Value], *, may_be_padded: bool = False) -> tuple[Value, ...]:
    """Converts values to arrays, and sequences of arrays, for JAX's control flow."""
    result = []
    for name, value in zip(names, values, strict=True):
        with inside(name):
            is_taken = may_be_padded and is_padded_array(value)
            result.append(value if is_taken else jax.tree.map(as_array, value, is_leaf=is_padded_array))
    return tuple(result)


def _spell(value: Value) -> str:
    """The type of a value, as errors spell it."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"a sequence of {', '.join(map(_spell, value)) or 'nothing'}"
    return f"{value.dtype.name}{[*value.shape]}"


def _truth(name: str, value: Value) -> Tensor:
    """A condition as a scalar."""
    if value is None or isinstance(value, list | Padded) or math.prod(value.shape) != 1:
        raise InvalidDesc(Problem(name, "must have one element", getattr(value, "shape", "no tensor")))
    return value.reshape(())


# If


@handles("If")
def _if(condition: Wanted, *, then_branch: OnnxGraph, else_branch: OnnxGraph, call: NodeCall) -> Results:
    branches = {"then_branch": then_branch, "else_branch": else_branch}
    condition = _truth(call.node.inputs[0], condition)
    if is_known(condition):
        name = "then_branch" if condition else "else_branch"
        with inside(name):
            return tuple(call.run(branches[name], ()))
    traced: dict[str, tuple[Value, ...]] = {}

    def compute(name: str) -> tuple[Value, ...]:
        with inside(name):
            traced[name] = _arrays(branches[name].output_names, call.run(branches[name], ()), may_be_padded=True)
        return traced[name]

    def choose(form: Callable[[tuple[Value, ...]], Any]) -> Any:
        return jax.lax.cond(condition.astype(bool), *(lambda name=name: form(compute(name)) for name in branches))

    try:
        results: Results = choose(lambda results: results)
        return results
    except TypeError as error:
        if len(traced) < 2:
            raise
        pairs = [*zip(*(traced[name] for name in branches), strict=False)]
        types = [BranchType.of(*pair) for pair in pairs]
        has_bounds = call.bound is not None or any(is_padded(value) for pair in pairs for value in pair)
        if has_bounds and None not in types:
            made = choose(lambda results: [of.enlarge(x) for of, x in zip(types, results, strict=True) if of])
            return tuple(of.padded(*pair) for of, pair in zip(types, made, strict=True) if of)
        rule = "must have the same type in both branches of a traced condition"
        spelled = [(name, *map(_spell, pair)) for name, pair in zip(call.node.outputs, pairs, strict=False)]
        problems = [Problem(name, rule, f"{first} and {second}") for name, first, second in spelled if first != second]
        raise (NotKnown(*problems) if problems else error) from None


# Shared by Loop and Scan

_Values = Sequence[Value]


class _Iteration(NamedTuple):
    """The results of a loop's body: whether to continue, the carried values, and a row of each output."""

    goes_on: Value
    carried: _Values
    rows: _Values


# A loop's body; takes the iteration, whether to continue, the carried values, and a row of each input
_Step = Callable[[Tensor, Value, _Values, _Values], _Iteration]


def _convert_results(step: _Step, names: Sequence[str]) -> _Step:
    """Converts the results of a step for JAX's control flow; `names` lists the carried values, then the rows."""

    def run(i: Tensor, goes_on: Value, carried: _Values, inputs: _Values) -> _Iteration:
        going, after, rows = step(i, goes_on, carried, inputs)
        state_count = len(after)
        return _Iteration(going, _arrays(names[:state_count], after), _arrays(names[state_count:], rows))

    return run


class _TypeVaries(Exception):
    """Carried values change type after an iteration, so that a single trace cannot serve all iterations."""


class _MayEndEarly(Exception):
    """A condition may end a loop before its count."""


def _stack_rows(rows: Sequence[Any]) -> Tensor:
    if all(isinstance(row, np.ndarray | np.generic) for row in rows):
        return known_numbers(np.stack(rows), kind_of(rows[0]))
    arrays = [as_array(row) for row in rows]
    for array in arrays:
        if array.shape != arrays[0].shape:
            shapes = f"{arrays[0].shape} and {array.shape}"
            raise InvalidDesc(Problem((), "must have rows of the same shape in every iteration", shapes))
    return jnp.stack(arrays)


def _run_in_turn(
    step: _Step, count: int | None, goes_on: Value, carried: _Values, inputs: Sequence[Array]
) -> tuple[_Values, list[_Values]]:
    """Runs the iterations sequentially; carried values may change type after each."""
    rows: list[_Values] = []
    while (count is None or len(rows) < count) and goes_on:
        i = len(rows)
        if i == MAX_UNROLLED and isinstance(jnp.zeros(()), jax.core.Tracer):
            rule = f"must end within {MAX_UNROLLED} iterations if each needs its own trace"
            raise NotKnown(Problem((), rule, "more"))
        goes_on, carried, row = step(np.array(i, np.int64), np.array(True), carried, [row[i] for row in inputs])
        rows.append(row)
        if not is_known(goes_on):
            raise NotKnown(
                Problem(
                    (), "needs a condition that is known while tracing, because a size depends on it", "a traced array"
                )
            )
    return carried, rows


def _run_by_scan(step: _Step, count: int, carried: _Values, inputs: Sequence[Array]) -> tuple[_Values, _Values]:
    """Runs all iterations from a single trace, provided that none can end the loop."""

    def run(state: tuple[Array, _Values], row: _Values) -> tuple[tuple[Array, _Values], _Values]:
        i, before = state
        goes_on, after, rows = step(i, np.array(True), before, row)
        if not (is_known(goes_on) and goes_on):
            raise _MayEndEarly
        _require_same(before, after)
        return (i + 1, after), rows

    first = (jnp.zeros((), counting_type()), carried)
    scanned: Any = inputs
    if is_symbolic(count) and not inputs:
        scanned = jnp.zeros((count, 0))  # carries the length, because scan's `length` cannot be a symbol
    (_, after), rows = jax.lax.scan(run, first, scanned, length=None if is_symbolic(count) else count)
    return after, rows


def _require_same(before: _Values, after: _Values) -> None:
    if [*map(_spell, before)] != [*map(_spell, after)]:
        raise _TypeVaries


def _run_until(step: _Step, count: Tensor | int | None, goes_on: Tensor, carried: _Values) -> _Values:
    """Iterates until a traced condition or a traced count ends the loop."""
    is_endless = []

    def run(state: tuple[Array, Array, _Values]) -> tuple[Array, Array, _Values]:
        i, _, before = state
        going, after, _ = step(i, np.array(True), before, ())
        is_endless.append(bool(is_known(going) and going))
        _require_same(before, after)
        return i + 1, as_array(_truth("condition", going)).astype(bool), after

    def is_going(state: tuple[Array, Array, _Values]) -> Array:
        i, going, _ = state
        return going if count is None else going & (i < count)

    first = (jnp.zeros((), counting_type()), jnp.asarray(goes_on, bool), carried)
    _, _, result = jax.lax.while_loop(is_going, run, first)
    if count is None and all(is_endless):
        raise InvalidDesc(Problem((), "never ends: it has no count, and its condition is always true"))
    return result


# Loop


@handles("Loop")
def _loop(
    count: Wanted | None = None, condition: Wanted | None = None, *initial: Passed, body: OnnxGraph, call: NodeCall
) -> Results:
    state_count = len(initial)
    names = body.output_names[1:]
    if len(body.inputs) != state_count + 2 or len(body.outputs) < state_count + 1:
        rule = f"must have {state_count + 2} inputs and at least {state_count + 1} outputs"
        raise InvalidDesc(Problem("body", rule, f"{len(body.inputs)} and {len(body.outputs)}"))

    def step(i: Tensor, goes_on: Value, carried: _Values, _: _Values) -> _Iteration:
        with inside("body"):
            going, *results = call.run(body, [i, goes_on, *carried], i)
        return _Iteration(_truth(body.output_names[0], going), results[:state_count], results[state_count:])

    goes_on = np.array(True) if condition is None else _truth(call.node.inputs[1], condition)
    known_count: int | None = None
    if count is not None:
        count = _truth(call.node.inputs[0], count)
        if is_known(count):
            known_count = jax.core.max_dim(0, size_of(as_known("M", count).item()))
            if not is_symbolic(known_count) and known_count > MAX_COUNTED:
                count = known_count = None
    if known_count == 0 or (is_known(goes_on) and not goes_on):
        return (*initial, *_empty_rows(_convert_results(step, names), initial, len(names) - state_count))
    can_unroll = is_known(goes_on) and (count is None or (known_count is not None and not is_symbolic(known_count)))

    def unroll() -> Results:
        after, rows = _run_in_turn(step, known_count, goes_on, initial, ())
        return *after, *_stack_named_rows(rows, names[state_count:])

    if can_unroll and known_count is not None and known_count <= MAX_SHORT:
        with contextlib.suppress(NotKnown):  # the condition of a later iteration, which may not be needed
            return unroll()
    carried = _arrays(call.node.inputs[2 : 2 + state_count], initial)
    remedy = "call the model outside jit, or fix the inputs that decide it with load(..., constants={name: value})"
    rule = "needs a count and a condition that are known while tracing, because it collects rows or sizes change"
    refusal = NotKnown(Problem((), rule, "a traced array", remedy=remedy))
    try:
        if known_count is not None and is_known(goes_on):
            with contextlib.suppress(_MayEndEarly):
                after, rows = _run_by_scan(_convert_results(step, names), known_count, carried, ())
                return *after, *rows
        if len(names) == state_count:
            limit = count if known_count is None else known_count
            return tuple(_run_until(_convert_results(step, names), limit, goes_on, carried))
    except _TypeVaries:
        pass
    except NotKnown as error:
        refusal = error
    if can_unroll:
        return unroll()
    raise refusal


def _stack_named_rows(rows: Sequence[_Values], names: Sequence[str]) -> list[Tensor]:
    results = []
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        with inside(name):
            results.append(_stack_rows(column))
    return results


def _empty_rows(step: _Step, carried: _Values, count: int) -> list[Array]:
    """Empty rows, of the type that an iteration would give."""
    if not count:
        return []
    goes_on, number = np.array(True), np.array(0, np.int64)
    rows = jax.eval_shape(lambda: step(number, goes_on, carried, ()).rows)
    return [jnp.zeros((0, *row.shape), row.dtype) for row in rows]


# Scan


def _count_of_states(inputs: _Values, body: OnnxGraph, num_scan_inputs: int) -> int:
    """The number of inputs that are states, before those that are scanned."""
    if not 1 <= num_scan_inputs <= len(inputs) or len(body.inputs) != len(inputs):
        rule = f"must be in [1, {len(inputs)}], and the body must have {len(inputs)} inputs"
        raise InvalidDesc(Problem("num_scan_inputs", rule, num_scan_inputs))
    return len(inputs) - num_scan_inputs


@handles("Scan", since=9)
def _scan(
    *inputs: Passed,
    body: OnnxGraph,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    call: NodeCall,
) -> Results:
    state_count = _count_of_states(inputs, body, num_scan_inputs)
    names, states = body.output_names, inputs[:state_count]
    rows, scanned = map(as_array, inputs[state_count:]), []
    axes = _check_numbers("scan_input_axes", scan_input_axes, num_scan_inputs)
    directions = _check_numbers("scan_input_directions", scan_input_directions, num_scan_inputs)
    for row, axis, is_reverse in zip(rows, axes, directions, strict=True):
        row = jnp.moveaxis(row, normalize_axis(axis, row.ndim), 0)
        scanned.append(jnp.flip(row, 0) if is_reverse else row)
    counts = {row.shape[0] for row in scanned}
    if len(counts) != 1:
        raise InvalidDesc(Problem((), "must scan inputs of the same length", sorted(counts)))
    count = counts.pop()

    def step(i: Tensor, goes_on: Value, carried: _Values, row: _Values) -> _Iteration:
        with inside("body"):
            results = call.run(body, [*carried, *row], i)
        return _Iteration(np.array(True), results[:state_count], results[state_count:])

    try:
        after, results = _run_by_scan(
            _convert_results(step, names), count, _arrays(call.node.inputs[:state_count], states), scanned
        )
    except (NotKnown, _TypeVaries):
        if is_symbolic(count) or not 0 < count <= MAX_UNROLLED:
            raise Unsupported(Problem((), "states must keep their types and shapes in every iteration")) from None
        after, iteration_rows = _run_in_turn(step, count, np.array(True), states, scanned)
        results = _stack_named_rows(iteration_rows, names[state_count:])
    finished = []
    axes = _check_numbers("scan_output_axes", scan_output_axes, len(results))
    directions = _check_numbers("scan_output_directions", scan_output_directions, len(results))
    for result, axis, is_reverse in zip(map(as_array, results), axes, directions, strict=True):
        finished.append(
            jnp.moveaxis(jnp.flip(result, 0) if is_reverse else result, 0, normalize_axis(axis, result.ndim))
        )
    return *after, *finished


@handles("Stack", domain=JOINED)
def _stack(*inputs: Array) -> Results:
    return jnp.stack(inputs)


@handles("Unstack", domain=JOINED)
def _unstack(rows: Array, *, call: NodeCall) -> Results:
    return tuple(row if call.wants(i) else None for i, row in enumerate(rows))


def _check_numbers(name: str, numbers: Sequence[int], count: int) -> Sequence[int]:
    if numbers and len(numbers) != count:
        raise InvalidDesc(Problem(name, f"must have {count} numbers", tuple(numbers)))
    return numbers or [0] * count


@handles("Scan", since=8)
def _scan_of_batches(
    lengths: Passed = None,
    *inputs: Passed,
    body: OnnxGraph,
    num_scan_inputs: int,
    directions: Sequence[int] = (),
    call: NodeCall,
) -> Results:
    # The first axis of each input is the batch, and the second axis of scanned inputs is the sequence.
    state_count = _count_of_states(inputs, body, num_scan_inputs)
    reverse = _check_numbers("directions", directions, num_scan_inputs)
    if lengths is not None and any(reverse):
        raise Unsupported(Problem("directions", "must be 0 if sequence lengths are given", tuple(directions)))
    names = body.output_names
    arrays: Sequence[Any] = _arrays(call.node.inputs[1 : 1 + len(inputs)], inputs)
    short = next((row.shape for row in arrays[state_count:] if row.ndim < 2), None)
    if short is not None:
        raise InvalidDesc(Problem((), "must scan inputs with a batch and a sequence dimension", short))
    batch, longest = arrays[state_count].shape[:2]
    limits = jnp.full(batch, longest) if lengths is None else as_array(lengths)

    def scan_sequence(first: Array, limit: Array, states: _Values, rows: Sequence[Array]) -> tuple[_Values, _Values]:
        def run(state: Sequence[Any], row: tuple[Array, _Values]) -> tuple[_Values, _Values]:
            with inside("body"):
                results: Sequence[Any] = _arrays(names, call.run(body, [*state, *row[1]], first + row[0]))
            is_inside = row[0] < limit
            after = [jnp.where(is_inside, new, old) for new, old in zip(results, state, strict=False)]
            made = [jnp.where(is_inside, row, jnp.zeros((), row.dtype)) for row in results[state_count:]]
            return tuple(after), tuple(made)

        rows = [jnp.flip(row, 0) if is_reverse else row for row, is_reverse in zip(rows, reverse, strict=True)]
        return jax.lax.scan(run, states, (jnp.arange(longest), rows))

    firsts = longest * jnp.arange(batch)  # iterations before each sequence starts
    states, results = jax.vmap(scan_sequence)(firsts, limits, arrays[:state_count], arrays[state_count:])
    return (*states, *results)
