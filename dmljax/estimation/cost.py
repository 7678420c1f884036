"""Reads the cost of a compiled HLO module from its text: kernels, bytes, operations, exchange, a TPU's cycles."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from dmljax.estimation.hlo import Computation, Instruction, Module, Tensor, parse


def _opcodes(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Instructions that run nothing on the chip or whose work is counted elsewhere
FREE = _opcodes(
    "parameter constant tuple get-tuple-element bitcast reshape after-all add-dependency opt-barrier domain"
    " partition-id replica-id copy-start slice-start async-update async-done"
    " all-reduce-done all-gather-done reduce-scatter-done all-to-all-done collective-permute-done"
)
# Instructions that exchange data between devices, which wait for each other
GATHERING = _opcodes("all-gather all-gather-start reduce-scatter reduce-scatter-start")
EXCHANGING = GATHERING | _opcodes(
    "all-reduce all-reduce-start all-to-all all-to-all-start collective-permute collective-permute-start"
)
# Instructions that only move elements, and products, which run on separate units
MOVING = (
    FREE
    | EXCHANGING
    | _opcodes(
        "iota broadcast transpose copy slice pad concatenate reverse dynamic-slice dynamic-update-slice"
        " copy-done slice-done async-start custom-call dot convolution"
    )
)
SLICING = _opcodes("slice dynamic-slice gather")
IN_PLACE = {"dynamic-update-slice": 1, "scatter": 2}  # and the operand that holds the new elements


@dataclass(frozen=True)
class Cost:
    """The cost of a program: loop bodies count as often as they run, and conditionals as their costliest branch.

    Loops, conditionals and sorts themselves are counted once each as they appear in the text, in all branches.
    """

    kernels: int = 0
    bytes: int = 0  # read from and written to the chip's main memory
    element_operations: int = 0  # excluding matrix products and convolutions
    gathered: int = 0  # elements gathered or scattered individually
    cycles: int = 0  # the TPU compiler's estimate
    unestimated_bytes: int = 0  # bytes of kernels without an estimate from the TPU compiler
    declared: int = 0  # operations that these kernels declare themselves
    loops: int = 0
    unbounded_loops: int = 0  # loops counted as one iteration, because their length is unknown
    conditionals: int = 0
    sorts: int = 0
    products: int = 0  # operations of matrix products and convolutions; a multiply-add counts as two
    full_products: int = 0  # those in float32 or float64 at full precision
    halves: int = 0  # the others, in 16-bit operations: a 32-bit operation counts as two, an 8-bit operation as half
    exchanged: int = 0  # lower bound of bytes that a device receives from others

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Cost)))

    def times(self, count: int) -> "Cost":
        """The cost of running this `count` times, as the body of a loop."""
        return replace(self, **{name: getattr(self, name) * count for name in REPEATED})


STRUCTURE = ("loops", "unbounded_loops", "conditionals", "sorts")
REPEATED = tuple(field.name for field in fields(Cost) if field.name not in STRUCTURE)


def cost_of(text: str) -> Cost:
    """The cost of a module, from the text that `jax.stages.Compiled.as_text()` returns.

    >>> cost = cost_of('''HloModule f
    ... ENTRY %main (x: f32[4,2]) -> f32[4,2] {
    ...   %x = f32[4,2]{1,0} parameter(0)
    ...   ROOT %y = f32[4,2]{1,0} negate(%x)
    ... }''')
    >>> cost.kernels, cost.bytes, cost.element_operations
    (1, 64, 8)
    """
    return _total(step.cost for step in steps_of(text))


class Step(NamedTuple):
    """The cost of a kernel over all of its runs, and the JAX operations that it computes."""

    name: str
    cost: Cost


def steps_of(text: str) -> list[Step]:
    """The kernels of a module in execution order, including those of its loops and conditionals."""
    module = parse(text)
    scheduled: dict[str, list[Step]] = {}  # for computations that run as sequences of kernels
    fused: dict[str, Cost] = {}  # for computations that run inside one kernel
    for name, computation in module.computations.items():
        fused[name] = _total(_computed(instruction, computation, fused) for instruction in computation)
        scheduled[name] = [
            step
            for instruction in computation
            for step in _scheduled(instruction, computation, module, scheduled, fused)
        ]
    return scheduled[module.entry]


def _total(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost())


_PALLAS = re.compile(r"([^/()]+)\)*/pallas_call$")


def called_kernels(steps: Iterable[Step]) -> tuple[str, ...]:
    """The names of the Pallas kernels that a program calls, in the order of their first calls."""
    return tuple(dict.fromkeys(found[1] for step in steps if (found := _PALLAS.search(step.name))))


Steps = Mapping[str, list[Step]]


def _scheduled(
    instruction: Instruction, computation: Computation, module: Module, scheduled: Steps, fused: Mapping[str, Cost]
) -> list[Step]:
    """The steps that an instruction of a sequence runs."""
    if instruction.opcode == "while":
        return _loop(instruction, module, scheduled)
    if instruction.opcode == "conditional":
        return _conditional([scheduled[name] for name in instruction.callees])
    if instruction.opcode in ("call", "async-start"):
        return [step for name in instruction.callees for step in scheduled[name]]
    return [Step(_name(instruction, computation, module), _kernel(instruction, computation, module, fused))]


def _name(instruction: Instruction, computation: Computation, module: Module) -> str:
    """JAX's name of a kernel's operation, or of its last named part, or of the nearest operation that it reads."""
    nearest, seen = [instruction], {instruction.name}
    for near in nearest:  # grows while we iterate
        if name := _own_name(near, module):
            return name
        nearest += [operand for operand in computation.operands(near) if operand.name not in seen]
        seen.update(near.operands)
    return ""


def _own_name(instruction: Instruction, module: Module) -> str:
    callees = instruction.callees if instruction.opcode == "fusion" else ()
    parts = [part for name in callees for part in module.computations[name]]
    return next(filter(None, (part.op_name for part in (instruction, *reversed(parts)))), "")


def _kernel(instruction: Instruction, computation: Computation, module: Module, fused: Mapping[str, Cost]) -> Cost:
    cycles = instruction.number('"estimated_cycles":') or 0
    if instruction.opcode in ("copy-done", "slice-done"):  # overlaps with kernels
        return Cost(bytes=instruction.results[0].bytes, cycles=cycles)
    if instruction.opcode in FREE or instruction.custom_call_target == "AllocateBuffer":
        return Cost(cycles=cycles)
    every, main = _moved(instruction, computation, module)
    if declared := _declared(instruction):
        amount = declared.bytes or every
        prefetched = every - main  # into the core's memory, where copies have counted them
        return replace(declared, kernels=1, bytes=max(amount - prefetched, 0), unestimated_bytes=amount)
    kernel = Cost(kernels=1, bytes=main, cycles=cycles, unestimated_bytes=0 if cycles else every)
    return kernel + _computed(instruction, computation, fused)


_DECLARED = re.compile(r'"cost_estimate":\{([^}]*)\}')


def _declared(instruction: Instruction) -> Cost | None:
    """The cost that a Pallas kernel declares. On a GPU, JAX drops it."""
    if not (found := _DECLARED.search(instruction.attributes)):
        return None
    figures = {name: int(number) for name, number in re.findall(r'"(\w+)":"?(\d+)', found[1])}
    operations = figures.get("flops", 0)
    return Cost(
        bytes=figures.get("bytes_accessed", 0),
        element_operations=figures.get("transcendentals", 0),
        products=operations,
        halves=operations,
        declared=operations,
    )


def _loop(instruction: Instruction, module: Module, scheduled: Steps) -> list[Step]:
    known = instruction.number('known_trip_count":{"n":')
    count = _bound(module.computations[instruction.callee("condition") or ""]) if known is None else known
    turn = [step for name in instruction.callees for step in scheduled[name]]
    turns = [Step(step.name, step.cost.times(1 if count is None else count)) for step in turn]
    return [*turns, Step(instruction.op_name, Cost(loops=1, unbounded_loops=int(count is None)))]


def _bound(condition: Computation) -> int | None:
    """The number of iterations of a loop that counts from 0 up to a constant, as JAX's loops of known length do."""
    if condition.root.opcode != "compare" or "direction=LT" not in condition.root.attributes:
        return None
    counter, bound = condition.operands(condition.root)
    is_counted = counter.opcode == "get-tuple-element" and bound.opcode == "constant"
    return int(bound.arguments) if is_counted and bound.arguments.isdigit() else None


def _conditional(branches: Sequence[list[Step]]) -> list[Step]:
    totals = [_total(step.cost for step in branch) for branch in branches]
    structure = {name: sum(getattr(total, name) for total in totals) for name in STRUCTURE}
    dearest = max(range(len(branches)), key=lambda i: (totals[i].cycles, totals[i].bytes, totals[i].kernels))
    steps = [Step(name, replace(cost, **dict.fromkeys(STRUCTURE, 0))) for name, cost in branches[dearest]]
    return [*steps, Step("", Cost(**structure) + Cost(conditionals=1))]


def _computed(instruction: Instruction, computation: Computation, fused: Mapping[str, Cost]) -> Cost:
    """The cost of an instruction's computation, whether it is a kernel or part of a kernel."""
    if instruction.opcode in ("fusion", "call"):
        return _total(fused[name] for name in instruction.callees)
    if instruction.opcode in EXCHANGING:
        return Cost(exchanged=_exchanged(instruction, computation))
    if instruction.opcode in ("dot", "convolution") or _PRODUCT.match(instruction.custom_call_target or ""):
        return _product(instruction, computation)
    if instruction.opcode in MOVING:
        return Cost(sorts=int(instruction.opcode == "custom-call" and "Sort" in (instruction.custom_call_target or "")))
    if instruction.opcode == "gather":
        return Cost(gathered=instruction.elements)
    operands = computation.operands(instruction)
    if instruction.opcode == "scatter":
        updates = sum(operand.elements for operand in operands[len(operands) // 2 + 1 :])
        return Cost(element_operations=updates, gathered=updates)
    if instruction.opcode == "sort":
        steps = max(1, math.ceil(math.log2(instruction.results[0].sizes[instruction.number("dimensions=") or 0])))
        return Cost(element_operations=instruction.elements * steps, sorts=1)
    if instruction.opcode in ("reduce", "select-and-scatter"):  # the operands are the arrays, then the initial values
        return Cost(element_operations=sum(operand.elements for operand in operands[: len(operands) // 2 or 1]))
    return Cost(element_operations=instruction.elements * instruction.window_elements)


_PRODUCT = re.compile(r"__cublas\$.*matmul|__cublas\$gemm|__cudnn\$conv")
_CONTRACTED = re.compile(r'\blhs_contracting_dim(?:ension)?s"?[=:][\[{]([\d",]*)')
_LABELS = re.compile(r"\bdim_labels=\w+_(\w+)->")
_DILATION = re.compile(r"\blhs_dilate=([\dx]+)")


def _product(instruction: Instruction, computation: Computation) -> Cost:
    """Counts the operations of a matrix product or a convolution."""
    operands = [operand.results[0] for operand in computation.operands(instruction)]
    if labels := _LABELS.search(instruction.attributes):
        target = instruction.custom_call_target or ""
        filters = instruction.results[0] if target.endswith("BackwardFilter") else operands[1]
        images = operands[int(target.endswith("Filter"))] if "Backward" in target else instruction.results[0]
        # If the input is dilated, as in batched matrix products on a TPU, most of the filter meets zeros.
        dilation = _DILATION.search(instruction.attributes)
        zeros = math.prod(map(int, dilation[1].split("x"))) if dilation else 1
        operations = 2 * images.elements * filters.elements // filters.sizes[labels[1].index("o")] // zeros
    else:
        contracted = _CONTRACTED.search(instruction.attributes)
        axes = map(int, re.findall(r"\d+", contracted[1])) if contracted else ()
        operations = 2 * instruction.results[0].elements * math.prod(operands[0].sizes[axis] for axis in axes)
    bits = 8 * max(Tensor(operand.dtype, ()).bytes for operand in operands[:2])
    is_full = bits > 32 or (bits == 32 and re.search("highest", instruction.attributes, re.IGNORECASE) is not None)
    return Cost(
        products=operations,
        full_products=operations * is_full,
        halves=0 if is_full else operations * bits // 16,
    )


def _exchanged(instruction: Instruction, computation: Computation) -> int:
    """The bytes that a device receives: its results, minus its own part of gathered arrays."""
    operands = [tensor for operand in computation.operands(instruction) for tensor in operand.results]
    is_started = instruction.opcode.endswith("-start") and len(instruction.results) > len(
        operands
    )  # the operands come first
    results = instruction.results[len(operands) : 2 * len(operands)] if is_started else instruction.results
    received = sum(tensor.bytes for tensor in results)
    return abs(received - sum(tensor.bytes for tensor in operands)) if instruction.opcode in GATHERING else received


def _moved(instruction: Instruction, computation: Computation, module: Module) -> tuple[int, int]:
    """The bytes that a kernel reads and writes, in all memories and in main memory."""
    moved: list[tuple[float, Tensor]] = []
    for position, operand in enumerate(computation.operands(instruction)):
        amount = _read(instruction, position, computation, module)
        moved += [(amount, tensor) for tensor in operand.results]
    moved += zip(_written(instruction, computation, module), instruction.results, strict=True)
    amounts = [(int(min(amount, tensor.bytes)), tensor.memory_space) for amount, tensor in moved]
    return sum(amount for amount, _ in amounts), sum(amount for amount, space in amounts if space == 0)


def _read(user: Instruction, position: int, computation: Computation, module: Module) -> float:
    """The bytes that an instruction reads from the operand at a position; infinity means all."""
    if user.opcode == "fusion":
        callee = module.computations[user.callees[0]]
        return sum(_read(*use, callee, module) for use in _uses(callee.parameters[position], callee))
    if position > 0:
        return math.inf
    if user.opcode in SLICING:
        return sum(tensor.bytes for tensor in user.results)
    return _bytes_of_updates(user, computation) if user.opcode in IN_PLACE else math.inf


def _uses(instruction: Instruction, computation: Computation) -> Iterator[tuple[Instruction, int]]:
    """Yields the instructions that read a result, among them a bitcast that is the last, and its positions there."""
    for user in {user.name: user for user in computation.users[instruction.name]}.values():
        if user.opcode == "bitcast" and not user.is_root:
            yield from _uses(user, computation)
        else:
            yield from ((user, i) for i, name in enumerate(user.operands) if name == instruction.name)


def _written(instruction: Instruction, computation: Computation, module: Module) -> list[float]:
    """The bytes that an instruction writes to each of its results; infinity means all."""
    if instruction.opcode == "fusion":
        callee = module.computations[instruction.callees[0]]
        root = callee.root
        parts = callee.operands(root) if root.opcode == "tuple" else [root]
        written = [amount for part in parts for amount in _written(part, callee, module)]
        return written if len(written) == len(instruction.results) else [math.inf] * len(instruction.results)
    if instruction.opcode == "bitcast":
        return _written(computation.operands(instruction)[0], computation, module)
    amount = _bytes_of_updates(instruction, computation) if instruction.opcode in IN_PLACE else math.inf
    return [amount] * len(instruction.results)


def _bytes_of_updates(instruction: Instruction, computation: Computation) -> int:
    """The bytes of the elements that an instruction updates in place."""
    updates = computation.operands(instruction)[IN_PLACE[instruction.opcode]]
    return sum(tensor.bytes for tensor in updates.results)
