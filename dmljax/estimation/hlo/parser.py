"""Parses the text of a compiled HLO module, from `jax.stages.Compiled.as_text()`."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

BITS = {
    "pred": 8,
    "token": 0,
    "bf16": 16,
    "c64": 64,
    "c128": 128,
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
}

_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{\s*$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][a-z0-9\-]*)\(")
_TENSOR = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\](\{[^{}]*\})?")
_MEMORY_SPACE = re.compile(r"S\((\d+)\)")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLEES = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation|branch_computations)=(\{[^}]*\}|%[\w.\-]+)"
)


@dataclass(frozen=True)
class HloTensor:
    """An array: its HLO type, its sizes, and its memory space; 0 is the chip's main memory."""

    dtype: str
    sizes: tuple[int, ...]
    memory_space: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    @property
    def bytes(self) -> int:
        bits = 8 if self.dtype.startswith("f8") else 4 if self.dtype.startswith("f4") else BITS.get(self.dtype, 8)
        return -(-self.elements * bits // 8)


@dataclass(frozen=True)
class Instruction:
    """A line of a computation; `attributes` is the text after the operands."""

    name: str
    opcode: str
    results: tuple[HloTensor, ...]
    arguments: str
    attributes: str
    is_root: bool

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(_NAME.findall(self.arguments))

    @cached_property
    def callees(self) -> tuple[str, ...]:
        """The names of the computations that this instruction runs or applies."""
        return tuple(name for group in _CALLEES.findall(self.attributes) for name in _NAME.findall(group))

    def callee(self, role: str) -> str | None:
        """The computation in a role: `body`, `condition` or `calls`."""
        match = re.search(rf"\b{role}=%?([\w.\-]+)", self.attributes)
        return match and match[1]

    def number(self, key: str) -> int | None:
        """The first number in the attributes that follows `key`."""
        match = re.search(rf"{re.escape(key)}\D{{0,8}}?(\d+)", self.attributes)
        return int(match[1]) if match else None

    @property
    def custom_call_target(self) -> str | None:
        """The target of a custom call."""
        match = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return match and match[1]

    @property
    def op_name(self) -> str:
        """JAX's name for the operation: its scopes and its primitive; empty for operations that XLA adds."""
        match = re.search(r'op_name="([^"]*/[^"]*)"', self.attributes)  # arguments have no scopes
        return match[1] if match else ""

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.results)


@dataclass(frozen=True)
class Computation:
    """Instructions in execution order."""

    name: str
    instructions: dict[str, Instruction]

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions.values())

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """The instructions whose results are the operands."""
        return [self.instructions[name] for name in instruction.operands if name in self.instructions]

    @cached_property
    def root(self) -> Instruction:
        return next(instruction for instruction in self if instruction.is_root)

    @cached_property
    def parameters(self) -> list[Instruction]:
        """The parameters, by number."""
        return sorted(
            (instruction for instruction in self if instruction.opcode == "parameter"),
            key=lambda instruction: int(instruction.arguments),
        )

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """The instructions that read each instruction's result."""
        users: dict[str, list[Instruction]] = {name: [] for name in self.instructions}
        for instruction in self:
            for operand in self.operands(instruction):
                users[operand.name].append(instruction)
        return users


@dataclass(frozen=True)
class Module:
    """Computations, each after the ones it calls, for a number of devices."""

    computations: dict[str, Computation]
    entry: str
    devices: int


def parse(text: str) -> Module:
    """Reads the text of a module.

    >>> module = parse('''HloModule f
    ... ENTRY %main (x: f32[4,2]) -> f32[4,2] {
    ...   %x = f32[4,2]{1,0} parameter(0)
    ...   ROOT %y = f32[4,2]{1,0:T(8,128)S(1)} negate(%x)
    ... }''')
    >>> root = module.computations[module.entry].root
    >>> root.opcode, root.operands, root.results
    ('negate', ('x',), (HloTensor(dtype='f32', sizes=(4, 2), memory_space=1),))
    """
    computations: dict[str, Computation] = {}
    entry, current = "", None
    for line in text.splitlines():
        if current is None:
            head = _COMPUTATION.match(line)
            if head:
                current = computations[head[2]] = Computation(head[2], {})
                entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif instruction := _instruction(line):
            current.instructions[instruction.name] = instruction
    counts = re.findall(r"\b(?:num_partitions|replica_count)=(\d+)", text.partition("\n")[0])
    return Module(computations, entry, math.prod(map(int, counts)))


def _instruction(line: str) -> Instruction | None:
    head = _INSTRUCTION.match(line)
    if head is None:
        return None
    start = head.end()
    type_end = _find_closing(line, start) if line[start] == "(" else line.index(" ", start)
    opcode = _OPCODE.match(line, type_end)
    if opcode is None:
        return None
    end = _find_closing(line, opcode.end() - 1)
    return Instruction(
        name=head[2],
        opcode=opcode[1],
        results=tuple(_tensors(line[start:type_end])),
        arguments=line[opcode.end() : end - 1],
        attributes=line[end:],
        is_root=head[1] is not None,
    )


def _find_closing(text: str, start: int) -> int:
    """The position after the parenthesis that closes the parenthesis at `start`."""
    depth = 0
    for place in re.finditer(r"[()]", text[start:]):
        depth += 1 if place[0] == "(" else -1
        if depth == 0:
            return start + place.end()
    return len(text)


def _tensors(text: str) -> Iterator[HloTensor]:
    for dtype, sizes, layout in _TENSOR.findall(re.sub(r"/\*.*?\*/", "", text)):
        space = _MEMORY_SPACE.search(layout)
        yield HloTensor(dtype, tuple(map(int, re.findall(r"\d+", sizes))), int(space[1]) if space else 0)
