"""Joins consecutive dispatches into a graph, whose edges replace the buffers between them.

A dispatch joins the preceding graph if each tensor that it reads was written by exactly one of the graph's outputs,
starting at the same byte, or by none. It starts a new graph if it reads an output from a different byte, a tensor
that several outputs wrote parts of, or the gaps between an output's elements. Serialized graphs and ONNX models are
already compiled as a graph, and are not joined with others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from dmljax.calls.binding import check_arguments
from dmljax.descriptors import Operator
from dmljax.descriptors.tensor import TensorDesc
from dmljax.dxdispatch.model import Binding, Command, Dispatch, Dispatchable, DispatchModel, require_model
from dmljax.foundation.checks import boolean
from dmljax.graphs.assembly import Assembly
from dmljax.text import unused_name

MAX_DISPATCHES = 500  # in a graph: XLA compiles 500 additions in 1.3 s, and 1000 in 3.9 s


@check_arguments
def fuse(model: DispatchModel, *, is_repeated: bool = False) -> DispatchModel:
    """Joins consecutive dispatches of a model where this does not change what it prints and writes.

    Only the bits of computed NaNs may differ, because XLA does not define them. An output that only the joined
    dispatches read is not written to its buffer. Set `is_repeated` for runs that repeat each dispatch, such as by a
    `Repetition`: dispatches that would read different values if repeated together then stay separate.

    >>> from dmljax.dxdispatch import Execution, fuse, load
    >>> model = fuse(load("notebooks/models/top1_routing.json"))
    >>> execution = Execution(model)
    >>> execution.result(0).dispatchable, execution.values("count").tolist()
    ('route + list', [4])
    """
    require_model(model)
    is_repeated = boolean("is_repeated", is_repeated)
    readers: dict[str, set[int]] = {}
    for number, command in enumerate(model.commands):
        for resource in _resources_read(model, command):
            readers.setdefault(resource, set()).add(number)
    groups = list(_groups(model, is_repeated=is_repeated))
    members = {number for group in groups if len(group.numbers) > 1 for number in group.numbers}
    together, alone = (
        {
            command.dispatchable
            for number, command in enumerate(model.commands)
            if isinstance(command, Dispatch) and (number in members) is is_fused
        }
        for is_fused in (True, False)
    )
    dispatchables = {name: part for name, part in model.dispatchables.items() if name in alone or name not in together}
    commands: list[Command] = []
    for group in groups:
        if len(group.numbers) == 1:
            commands.append(model.commands[group.numbers[0]])
            continue
        name = unused_name(" + ".join(group.names), {**model.dispatchables, **dispatchables})
        dispatchables[name], dispatch = group.build_dispatch(name, readers)
        commands.append(dispatch)
    numbers = [tuple(number for index in group.numbers for number in model.numbers_of(index)) for group in groups]
    return replace(model, dispatchables=dispatchables, commands=commands, numbers=numbers)


def _resources_read(model: DispatchModel, command: Command) -> Iterator[str]:
    if not isinstance(command, Dispatch):
        yield command.resource
        return
    for point in model.dispatchables[command.dispatchable].points:
        if point.is_input and point.key in command.bindings:
            yield command.bindings[point.key].resource


def _groups(model: DispatchModel, *, is_repeated: bool) -> Iterator["_Group"]:
    """Groups the commands, in order; a command that cannot be joined with others is a group without a graph."""
    group = _Group(is_repeated)
    for number, command in enumerate(model.commands):
        dispatchable = model.dispatchables[command.dispatchable] if isinstance(command, Dispatch) else None
        if group.take(number, command, dispatchable):
            continue
        if group.numbers:
            yield group
        group = _Group(is_repeated)
        if not group.take(number, command, dispatchable):
            group.numbers.append(number)
            yield group
            group = _Group(is_repeated)
    if group.numbers:
        yield group


class _Area(NamedTuple):
    """The bits of a buffer that a tensor spans, from `begin` to `end`."""

    binding: Binding
    tensor: TensorDesc
    begin: int
    end: int

    def meets(self, other: "_Area") -> bool:
        """Whether two areas share bits."""
        return self.binding.resource == other.binding.resource and self.begin < other.end and other.begin < self.end

    def fills(self, other: "_Area") -> bool:
        """Whether the elements of this tensor cover the whole other area."""
        is_around = self.begin <= other.begin and other.end <= self.end
        has_gaps = self.tensor.span > self.tensor.element_count
        return self.binding.resource == other.binding.resource and is_around and not has_gaps

    def passes_on(self, read: "_Area") -> bool:
        """Whether an edge from this output gives its reader the same bits as the buffer does."""
        return self.binding == read.binding and (self.fills(read) or _places(self.tensor) == _places(read.tensor))


def _area(binding: Binding, tensor: TensorDesc) -> _Area:
    begin, layout = 8 * binding.offset_in_bytes, TensorDesc(tensor.data_type, tensor.sizes, tensor.strides)
    return _Area(binding, layout, begin, begin + tensor.span * tensor.data_type.bits)


def _places(tensor: TensorDesc) -> tuple[object, ...]:
    """A key that is equal for tensors with the same layout of elements."""
    return tensor.data_type, tuple(size for size in tensor.sizes if size > 1), tensor.steps


class _Group:
    """Consecutive dispatches, and the graph they form so far."""

    def __init__(self, is_repeated: bool) -> None:
        self.is_repeated = is_repeated
        self.numbers: list[int] = []
        self.names: list[str] = []
        self.assembly = Assembly()
        self.inputs: dict[tuple[_Area, bool], str] = {}  # names, by area and whether DirectML owns it
        self.outputs: dict[str, _Area] = {}  # by the nodes' tensors

    def take(self, number: int, dispatch: Command, dispatchable: Dispatchable | None) -> bool:
        """Adds a dispatch of an operator; returns False for other commands, and if the dispatch must stay separate."""
        if not isinstance(dispatch, Dispatch) or dispatchable is None or len(self.assembly.nodes) == MAX_DISPATCHES:
            return False
        if not isinstance(dispatchable.desc, Operator):
            return False
        node = f"{len(self.assembly.nodes)}: {dispatch.dispatchable}"
        sources: list[str] = []
        inputs: dict[tuple[_Area, bool], str] = {}
        outputs: dict[str, _Area] = {}
        reads: list[_Area] = []
        for point in dispatchable.points:
            is_owned = point.key in dispatchable.bindings
            binding = (dispatchable if is_owned else dispatch).bindings[point.key]
            area = _area(binding, point.tensor)
            if not point.is_input:
                outputs[f"{node}.{point.key}"] = area
                continue
            source = None if is_owned else self._last_output(area)
            if source is None:
                new = inputs.get((area, is_owned), f"input {len(self.inputs) + len(inputs)}")
                source = inputs[area, is_owned] = self.inputs.get((area, is_owned), new)
            elif not self.outputs[source].passes_on(area):
                return False
            sources.append(source)
            reads += [] if is_owned else [area]
        # Repeating the group equals repeating each dispatch only if none writes what it or an earlier dispatch reads.
        if self.is_repeated and any(
            output.meets(read) for output in outputs.values() for read in (*reads, *self._outside_areas())
        ):
            return False
        self.numbers.append(number)
        self.names.append(dispatch.dispatchable)
        self.assembly.add_node(node, dispatchable.desc, sources)
        self.inputs |= inputs
        self.outputs |= outputs
        return True

    def _last_output(self, area: _Area) -> str | None:
        """The last output that shares bits with an area."""
        return next((name for name, output in reversed(self.outputs.items()) if output.meets(area)), None)

    def _outside_areas(self) -> Iterator[_Area]:
        """The areas that the group reads from buffers as they were before its first dispatch."""
        return (area for area, is_owned in self.inputs if not is_owned)

    def build_dispatch(self, name: str, readers: Mapping[str, set[int]]) -> tuple[Dispatchable, Dispatch]:
        """The dispatchable that runs the group, and its dispatch; `readers` are the commands reading each resource."""
        kept = {source: f"output {i}" for i, source in enumerate(self._outputs_to_write(readers))}
        self.assembly.inputs = {name: area.tensor for (area, _), name in self.inputs.items()}
        graph = self.assembly.finish({name: source for source, name in kept.items()})
        bindings = [(is_owned, name, area.binding) for (area, is_owned), name in self.inputs.items()]
        owned = {name: binding for is_owned, name, binding in bindings if is_owned}
        bound = {name: binding for is_owned, name, binding in bindings if not is_owned}
        bound |= {name: self.outputs[source].binding for source, name in kept.items()}
        return Dispatchable(graph, owned, rounds_between_nodes=True), Dispatch(name, bound)

    def _outputs_to_write(self, readers: Mapping[str, set[int]]) -> Iterator[str]:
        """Yields the outputs to write: not overwritten later, and read outside the group or not at all."""
        passed_on, numbers, later = set(self.assembly.edges.values()), set(self.numbers), list[_Area]()
        kept = []
        for source, area in reversed(self.outputs.items()):
            is_read_elsewhere = not readers.get(area.binding.resource, set()) <= numbers
            is_read_elsewhere |= any(
                area.meets(read) for read in self._outside_areas()
            )  # by the group, when it runs again
            if (is_read_elsewhere or source not in passed_on) and not any(other.fills(area) for other in later):
                kept.append(source)
            later.append(area)
        return reversed(kept)
