"""Reads the cost of a compiled HLO module from its text: kernels, bytes, operations, exchange, a TPU's cycles."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from dmljax.estimation.hlo.convolutions import Extent, multiplications
from dmljax.estimation.hlo.exchange import EXCHANGING, Exchange, exchange_of
from dmljax.estimation.hlo.parser import Computation, HloTensor, Instruction, Module, parse


def _opcodes(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Instructions that run nothing on the chip or whose work is counted elsewhere
FREE = _opcodes(
    "parameter constant tuple get-tuple-element bitcast reshape after-all add-dependency opt-barrier domain"
    " partition-id replica-id copy-start slice-start async-update async-done"
    " all-reduce-done all-gather-done reduce-scatter-done all-to-all-done collective-permute-done"
    " ragged-all-to-all-done collective-broadcast-done"
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
    copied: int = 0  # the part that a TPU copies while kernels run
    element_operations: int = 0  # excluding matrix products and convolutions
    gathered: int = 0  # elements gathered or scattered individually
    cycles: int = 0  # the TPU compiler's estimate
    unestimated_bytes: int = 0  # bytes of kernels without an estimate from the TPU compiler
    declared: int = 0  # operations that these kernels declare themselves
    undeclared: int = 0  # custom calls that declare no cost, and count with their operands and results
    iterations: int = 0  # of loops
    loops: int = 0
    unbounded_loops: int = 0  # loops counted as one iteration, because their length is unknown
    conditionals: int = 0
    sorts: int = 0
    products: int = 0  # operations of matrix products and convolutions; a multiply-add counts as two
    full_products: int = 0  # those in float32 or float64 at full precision
    doubles: int = 0  # those in float64
    integer_products: int = 0  # those of integers of more than 8 bits, which a GPU multiplies elementwise
    halves: int = 0  # the others, in 16-bit operations: a 32-bit operation counts as two, an 8-bit operation as half
    passes: int = 0  # all of them, in a TPU's 16-bit operations: an 8-bit operation counts as half, a full one as six
    exchanged: int = 0  # lower bound of bytes that a device receives from others
    linked: float = 0  # the bytes that all of its links could carry meanwhile

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Cost)))

    @classmethod
    def of_kernel(cls, operations: int, powers: int, traffic: int) -> "Cost":
        """The cost that a Pallas kernel declares."""
        product_counts = dict.fromkeys(("products", "halves", "passes", "declared"), operations)
        return cls(bytes=traffic, element_operations=powers, **product_counts)

    def times(self, count: int) -> "Cost":
        """The cost of running this `count` times, as the body of a loop."""
        return replace(self, **{name: getattr(self, name) * count for name in REPEATED})


STRUCTURE = ("loops", "unbounded_loops", "conditionals", "sorts")
REPEATED = tuple(field.name for field in fields(Cost) if field.name not in STRUCTURE)


Links = Callable[[Exchange], float]  # the bytes that all links of a chip could carry during an exchange


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


class KernelCost(NamedTuple):
    """The cost of a kernel over all of its runs, and the JAX operations that it computes."""

    name: str
    cost: Cost
    kernel: str = ""  # of Pallas
    custom_call: str = ""  # that declares no cost


class _ModuleReading(NamedTuple):
    """A module, and the costs of its computations so far."""

    module: Module
    links: Links
    scheduled: dict[str, list[KernelCost]]  # for computations that run as sequences of kernels
    fused: dict[str, Cost]  # for computations that run inside one kernel


def steps_of(text: str, links: Links = Exchange.received_bytes) -> list[KernelCost]:
    """The kernels of a module in execution order, including those of its loops and conditionals."""
    module = parse(text)
    reading = _ModuleReading(module, links, {}, {})
    for name, computation in module.computations.items():
        reading.fused[name] = _total(
            _cost_of_computation(instruction, computation, reading) for instruction in computation
        )
        reading.scheduled[name] = [
            step for instruction in computation for step in _steps_of(instruction, computation, reading)
        ]
    return reading.scheduled[module.entry]


def _total(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost())


def called_kernels(steps: Iterable[KernelCost]) -> tuple[str, ...]:
    """The names of the Pallas kernels that a program calls, in the order of their first calls."""
    return tuple(dict.fromkeys(step.kernel for step in steps if step.kernel))


def calls_without_cost(steps: Iterable[KernelCost]) -> tuple[str, ...]:
    """The custom calls that declare no cost, and count with their operands and results."""
    return tuple(dict.fromkeys(step.custom_call for step in steps if step.custom_call))


def _steps_of(instruction: Instruction, computation: Computation, reading: _ModuleReading) -> list[KernelCost]:
    """The steps that an instruction of a sequence runs."""
    if instruction.opcode == "while":
        return _loop(instruction, reading)
    if instruction.opcode == "conditional":
        return _conditional([reading.scheduled[name] for name in instruction.callees])
    if instruction.opcode in ("call", "async-start"):
        return [step for name in instruction.callees for step in reading.scheduled[name]]
    name, cost = _name(instruction, computation, reading.module), _kernel(instruction, computation, reading)
    if instruction.opcode != "custom-call":
        return [KernelCost(name, cost)]
    custom_call = instruction.custom_call_target if cost.undeclared else ""
    return [KernelCost(name, cost, _pallas_kernel(instruction), custom_call or "")]


def _pallas_kernel(instruction: Instruction) -> str:
    """The name of the Pallas kernel that a custom call runs; a GPU's has it, a TPU's is in JAX's name."""
    match = re.search(r'\bname = "([^"]+)"', instruction.attributes) or re.search(
        r"([^/()]+)\)*/pallas_call$", instruction.op_name
    )
    return match[1] if match else ""


def _name(instruction: Instruction, computation: Computation, module: Module) -> str:
    """JAX's name of a kernel's operation, or of its last named part, or of the nearest operation that it reads."""
    nearest, names = [instruction], {instruction.name}
    for near in nearest:  # grows while we iterate
        if name := _own_name(near, module):
            return name
        nearest += [operand for operand in computation.operands(near) if operand.name not in names]
        names.update(near.operands)
    return ""


def _own_name(instruction: Instruction, module: Module) -> str:
    callees = instruction.callees if instruction.opcode == "fusion" else ()
    parts = [part for name in callees for part in module.computations[name]]
    return next(filter(None, (part.op_name for part in (instruction, *reversed(parts)))), "")


def _kernel(instruction: Instruction, computation: Computation, reading: _ModuleReading) -> Cost:
    cycles = instruction.number('"estimated_cycles":') or 0
    if instruction.opcode in ("copy-done", "slice-done"):
        amount = instruction.results[0].bytes
        return Cost(bytes=amount, copied=amount, cycles=cycles)
    if instruction.opcode in FREE or instruction.custom_call_target == "AllocateBuffer":
        return Cost(cycles=cycles)
    every, main = _bytes_moved(instruction, computation, reading.module)
    if declared := _declared_cost(instruction):
        amount = declared.bytes or every
        prefetch = every - main  # into the core's memory, where copies have counted them
        return replace(declared, kernels=1, bytes=max(amount - prefetch, 0), unestimated_bytes=amount)
    kernel = Cost(kernels=1, bytes=main, cycles=cycles, unestimated_bytes=0 if cycles else every)
    return kernel + _cost_of_computation(instruction, computation, reading)


_DECLARED = re.compile(r'"cost_estimate":\{([^}]*)\}')


def _declared_cost(instruction: Instruction) -> Cost | None:
    """The cost that a Pallas kernel declares. On a GPU, JAX drops it."""
    if not (match := _DECLARED.search(instruction.attributes)):
        return None
    figures = {name: int(number) for name, number in re.findall(r'"(\w+)":"?(\d+)', match[1])}
    return Cost.of_kernel(*(figures.get(name, 0) for name in ("flops", "transcendentals", "bytes_accessed")))


def _loop(instruction: Instruction, reading: _ModuleReading) -> list[KernelCost]:
    known = instruction.number('known_trip_count":{"n":')
    count = (
        _count_iterations(reading.module.computations[instruction.callee("condition") or ""])
        if known is None
        else known
    )
    turn = [step for name in instruction.callees for step in reading.scheduled[name]]
    iterations = 1 if count is None else count
    turns = [step._replace(cost=step.cost.times(iterations)) for step in turn]
    cost = Cost(iterations=iterations, loops=1, unbounded_loops=int(count is None))
    return [*turns, KernelCost(instruction.op_name, cost)]


def _count_iterations(condition: Computation) -> int | None:
    """The number of iterations of a loop that counts from 0 up to a constant, as JAX's loops of known length do."""
    if condition.root.opcode != "compare" or "direction=LT" not in condition.root.attributes:
        return None
    counter, bound = condition.operands(condition.root)
    is_counted = counter.opcode == "get-tuple-element" and bound.opcode == "constant"
    return int(bound.arguments) if is_counted and bound.arguments.isdigit() else None


def _conditional(branches: Sequence[list[KernelCost]]) -> list[KernelCost]:
    totals = [_total(step.cost for step in branch) for branch in branches]
    structure = {name: sum(getattr(total, name) for total in totals) for name in STRUCTURE}
    dearest = max(range(len(branches)), key=lambda i: (totals[i].cycles, totals[i].bytes, totals[i].kernels))
    steps = [step._replace(cost=replace(step.cost, **dict.fromkeys(STRUCTURE, 0))) for step in branches[dearest]]
    return [*steps, KernelCost("", Cost(**structure) + Cost(conditionals=1))]


def _cost_of_computation(instruction: Instruction, computation: Computation, reading: _ModuleReading) -> Cost:
    """The cost of an instruction's computation, whether it is a kernel or part of a kernel."""
    if instruction.opcode in ("fusion", "call"):
        return _total(reading.fused[name] for name in instruction.callees)
    if instruction.opcode in EXCHANGING:
        exchange = exchange_of(instruction, computation, reading.module.devices)
        return Cost(exchanged=round(exchange.received_bytes()), linked=reading.links(exchange))
    if instruction.opcode in ("dot", "convolution") or _PRODUCT.match(instruction.custom_call_target or ""):
        return _product(instruction, computation)
    if 'op_name="online-softmax"' in instruction.attributes:  # XLA's kernel for softmax(scores) @ values on a TPU
        scores = computation.operands(instruction)[0].results[0]
        operations = 2 * instruction.elements * scores.sizes[-1]
        return Cost(products=operations, halves=operations, passes=operations, element_operations=scores.elements)
    if instruction.opcode == "custom-call":
        return Cost(sorts=int("Sort" in (instruction.custom_call_target or "")), undeclared=1)
    if instruction.opcode in MOVING:
        return Cost()
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
    if instruction.opcode == "reduce-window":
        return Cost(element_operations=_operations_of_windows(instruction, operands[0].results[0]))
    return Cost(element_operations=instruction.elements)


def _operations_of_windows(instruction: Instruction, image: HloTensor) -> int:
    """Counts the elements that windows reduce, without padding; where every window sees all of them, they count once.

    XLA writes a reduction and the broadcast of its result that way.
    """
    operations = len(instruction.results)
    for axis, (size, output) in enumerate(zip(image.sizes, instruction.results[0].sizes, strict=True)):
        window, stride, padding, *dilations = (
            _along(axis, instruction, name) for name in ("size", "stride", "pad", *_DILATIONS)
        )
        products = multiplications(Extent(size, window, output, stride, padding, *dilations))
        operations *= size if products == size * output else products
    return operations


_PRODUCT = re.compile(r"__cublas\$.*matmul|__cublas\$gemm|__cudnn\$conv")
_CONTRACTED = re.compile(r'\blhs_contracting_dim(?:ension)?s"?[=:][\[{]([\d",]*)')
_LABELS = re.compile(r"\bdim_labels=(\w+)_(\w+)->(\w+)")
_PRECISION = re.compile(r"operand_precision[\"=:{\[]*([\w\",]+)")
_PASSES = {"HIGHEST": 6, "HIGH": 3}  # that multiply parts of float32 factors on a TPU


def _product(instruction: Instruction, computation: Computation) -> Cost:
    """Counts the operations of a matrix product or a convolution."""
    operands = [operand.results[0] for operand in computation.operands(instruction)]
    if labels := _LABELS.search(instruction.attributes):
        operations = _operations_of_convolution(instruction, operands, labels.groups())
    else:
        match = _CONTRACTED.search(instruction.attributes)
        axes = map(int, re.findall(r"\d+", match[1])) if match else ()
        operations = 2 * instruction.results[0].elements * math.prod(operands[0].sizes[axis] for axis in axes)
    bits = 8 * max(HloTensor(operand.dtype, ()).bytes for operand in operands[:2])
    match = _PRECISION.search(instruction.attributes)
    precision = max(re.findall(r"\w+", match[1].upper()), key=lambda word: _PASSES.get(word, 1)) if match else ""
    is_integer = bits > 8 and operands[0].dtype[0] in "su"
    is_full = not is_integer and (bits > 32 or (bits == 32 and precision == "HIGHEST"))
    passes = _PASSES.get(precision, 1) if bits == 32 else 1
    return Cost(
        products=operations,
        full_products=operations * is_full,
        doubles=operations * (is_full and bits > 32),
        integer_products=operations * is_integer,
        halves=0 if is_full or is_integer else operations * bits // 16,
        passes=operations // 2 if bits <= 8 else operations * passes,
    )


def _operations_of_convolution(instruction: Instruction, operands: Sequence[HloTensor], labels: Sequence[str]) -> int:
    """Counts what elements of filters and images do, without padding and dilation; a multiply-add counts as two."""
    target, result = instruction.custom_call_target or "", instruction.results[0]
    if target.endswith("BackwardFilter"):
        images, outputs, filters = operands[0], operands[1], result
    elif target.endswith("BackwardInput"):
        outputs, filters, images = operands[0], operands[1], result
    else:
        (images, filters), outputs = operands[:2], result
    image_labels, filter_labels, output_labels = labels
    operations = 2 * outputs.sizes[output_labels.index("b")]
    operations *= filters.sizes[filter_labels.index("o")] * filters.sizes[filter_labels.index("i")]
    for axis in filter(str.isdigit, image_labels):
        arrays = ((images, image_labels), (filters, filter_labels), (outputs, output_labels))
        size, taps, output = (tensor.sizes[names.index(axis)] for tensor, names in arrays)
        stride, padding, *dilations = (_along(int(axis), instruction, name) for name in ("stride", "pad", *_DILATIONS))
        operations *= multiplications(Extent(size, taps, output, stride, padding, *dilations))
    return operations


_DILATIONS = ("lhs_dilate", "rhs_dilate")


def _along(axis: int, instruction: Instruction, name: str) -> int:
    """A number of an instruction's window along an axis; of the padding, the number before the image."""
    match = re.search(rf"\bwindow=\{{[^}}]*\b{name}=([-\dx_]+)", instruction.attributes)
    return int(match[1].split("x")[axis].partition("_")[0]) if match else int(name != "pad")


def _bytes_moved(instruction: Instruction, computation: Computation, module: Module) -> tuple[int, int]:
    """The bytes that a kernel reads and writes, in all memories and in main memory."""
    traffic: list[tuple[float, HloTensor]] = []
    for position, operand in enumerate(computation.operands(instruction)):
        amount = _bytes_read(instruction, position, computation, module)
        traffic += [(amount, tensor) for tensor in operand.results]
    traffic += zip(_bytes_written(instruction, computation, module), instruction.results, strict=True)
    amounts = [(int(min(amount, tensor.bytes)), tensor.memory_space) for amount, tensor in traffic]
    return sum(amount for amount, _ in amounts), sum(amount for amount, space in amounts if space == 0)


def _bytes_read(user: Instruction, position: int, computation: Computation, module: Module) -> float:
    """The bytes that an instruction reads from the operand at a position; infinity means all."""
    if user.opcode == "fusion":
        callee = module.computations[user.callees[0]]
        return sum(_bytes_read(*use, callee, module) for use in _uses(callee.parameters[position], callee))
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


def _bytes_written(instruction: Instruction, computation: Computation, module: Module) -> list[float]:
    """The bytes that an instruction writes to each of its results; infinity means all."""
    if instruction.opcode == "fusion":
        callee = module.computations[instruction.callees[0]]
        root = callee.root
        parts = callee.operands(root) if root.opcode == "tuple" else [root]
        amounts = [amount for part in parts for amount in _bytes_written(part, callee, module)]
        return amounts if len(amounts) == len(instruction.results) else [math.inf] * len(instruction.results)
    if instruction.opcode == "bitcast":
        return _bytes_written(computation.operands(instruction)[0], computation, module)
    amount = _bytes_of_updates(instruction, computation) if instruction.opcode in IN_PLACE else math.inf
    return [amount] * len(instruction.results)


def _bytes_of_updates(instruction: Instruction, computation: Computation) -> int:
    """The bytes of the elements that an instruction updates in place."""
    updates = computation.operands(instruction)[IN_PLACE[instruction.opcode]]
    return sum(tensor.bytes for tensor in updates.results)
