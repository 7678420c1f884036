"""Builds a graph from nodes that read and return views."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from dmljax import directml
from dmljax.descriptors.base import Operator
from dmljax.descriptors.tensor import packed_strides
from dmljax.errors import DmlError, InvalidDesc, Path, Problem
from dmljax.graphs.assembly import Assembly, map_tensor, walk_tensors
from dmljax.graphs.to_graph.views import View, desc_of
from dmljax.text import join_sizes, unused_name
from dmljax.types import LATEST

unused = partial(unused_name, spelled="{} {}")
Output = tuple[Any, tuple[int, ...]]  # type and sizes


class NoOperator(Exception):
    """DirectML has no operator for an operation; the arguments are the broken rule and the value found."""


class Builder(Assembly):
    """A graph under construction."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[Problem] = []
        self.place: Path = ()
        self.name = ""

    # Inputs and constants

    def input(self, name: str, struct: jax.ShapeDtypeStruct) -> View:
        try:
            self.inputs[name] = desc_of(struct.dtype, struct.shape)
        except DmlError as error:
            self.problems += (problem.inside(("inputs", name)) for problem in error.problems)
        return View(name, np.dtype(struct.dtype), struct.shape, packed_strides(struct.shape))

    def constant(self, name: str, value: Any) -> View:
        is_weak = getattr(value, "weak_type", False)
        self.constants[name] = value
        return View(name, np.dtype(value.dtype), value.shape, packed_strides(value.shape), is_weak)

    def local_constant(self, value: Any, dtype: Any = None) -> View:
        array = value if isinstance(value, jax.Array) else np.asarray(value, dtype)
        return self.constant(unused(f"{self.name} constant", self.constants), array)

    def is_constant(self, view: View) -> bool:
        return view.source in self.constants

    def value(self, view: View) -> np.ndarray[Any, Any]:
        """The elements of a constant."""
        flat = np.ascontiguousarray(self.constants[view.source]).ravel()
        strides = [stride * flat.itemsize for stride in view.strides]
        return np.lib.stride_tricks.as_strided(flat, view.sizes, strides).astype(view.dtype)

    def number(self, name: str, value: Any) -> Any:
        """A number that DirectML takes in a descriptor, not in a tensor."""
        if not isinstance(value, View):
            return value
        if not self.is_constant(value) or math.prod(value.sizes) != 1:
            raise NoOperator(f"needs a known number as {name}", f"an array of {join_sizes(value.sizes) or 'one'}")
        return self.value(value).item()

    # Nodes

    def add(
        self,
        operator: type[Operator],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        suffix: str = "",
        **attributes: Any,
    ) -> list[View]:
        """Adds a node that reads views or lists of views; returns views of its outputs.

        `outputs` gives the types and sizes of the outputs by field.
        """
        read_descs = {key: map_tensor(lambda view: view.desc, tensor) for key, tensor in inputs.items()}
        output_descs = {key: map_tensor(lambda output: desc_of(*output), tensor) for key, tensor in outputs.items()}
        desc = operator(**read_descs, **output_descs, **attributes)
        broken = tuple(desc.problems(LATEST))
        if broken:
            raise InvalidDesc(*broken)
        in_order = {member.field: inputs.get(member.field) for member in operator.members()}
        read = (view.source for _, view in walk_tensors(in_order))
        sources = self.add_node(unused(self.name + suffix, self.nodes), desc, read)
        return [
            View(source, np.dtype(dtype), tuple(sizes), packed_strides(sizes))
            for source, (_, (dtype, sizes)) in zip(sources, walk_tensors(outputs), strict=True)
        ]

    def elementwise(
        self, operator: type[Operator], *inputs: View, dtype: Any = None, suffix: str = "", **attributes: Any
    ) -> View:
        """Adds a node whose inputs broadcast to its output."""
        sizes = np.broadcast_shapes(*(view.sizes for view in inputs))
        tensors = [(member.field, member.tensor_kind.is_input) for member in operator.members() if member.tensor_kind]
        fields, (output, *_) = ([field for field, is_input in tensors if is_input is side] for side in (True, False))
        read = {key: view.broadcast(sizes) for key, view in zip(fields, inputs, strict=False)}
        result = inputs[-1].dtype if dtype is None else dtype, sizes
        return self.add(operator, read, {output: result}, suffix, **attributes)[0]

    def pack(self, view: View) -> View:
        """Copies the elements of a view to a new buffer."""
        return self.elementwise(directml.ElementWiseIdentityDesc, view, suffix=" identity")

    def reshape(self, view: View, sizes: Sequence[int]) -> View:
        """Reshapes a view; copies the elements if no strides can express the result."""
        result = view.reshape(sizes)
        return self.pack(view).reshape(sizes) or view if result is None else result  # a packed view takes any sizes

    def stack(self, views: Sequence[View], axis: int) -> View:
        """Stacks views along a new axis."""
        sizes = views[0].sizes
        layers = [self.reshape(view, (*sizes[:axis], 1, *sizes[axis:])) for view in views]
        output = views[0].dtype, (*sizes[:axis], len(views), *sizes[axis:])
        return self.add(directml.JoinDesc, {"inputs": layers}, {"output": output}, axis=axis)[0]

    def row(self, view: View, index: int) -> View:
        """The elements at an index along the first axis."""
        sizes = view.sizes[1:]
        if self.is_constant(view):
            return self.local_constant(self.value(view)[index])
        ones = [1] * len(view.sizes)
        window: dict[str, Any] = {
            "input_window_offsets": [index, *(0 for _ in sizes)],
            "input_window_sizes": [1, *sizes],
            "input_window_strides": ones,
        }
        (result,) = self.add(directml.Slice1Desc, {"input": view}, {"output": (view.dtype, (1, *sizes))}, **window)
        return self.reshape(result, sizes)

    def cast(self, view: View, dtype: Any) -> View:
        dtype = np.dtype(dtype)
        if view.dtype == dtype or (view.dtype == bool and dtype == np.uint8):
            return replace(view, dtype=dtype)
        if self.is_constant(view) and view.dtype.kind in "biu":
            return self.local_constant(self.value(view).astype(dtype))
        if dtype.kind == "b":  # a CAST to UINT8 would keep values other than 0 and 1
            return self.logical_not(
                self.elementwise(directml.ElementWiseLogicalEqualsDesc, view, self.zero(view), dtype=bool)
            )
        return self.elementwise(directml.CastDesc, view, dtype=dtype)

    def zero(self, view: View) -> View:
        return self.local_constant(0, np.uint8 if view.dtype == bool else view.dtype)

    def logical_not(self, view: View) -> View:
        return self.elementwise(directml.ElementWiseLogicalNotDesc, view, dtype=bool)


def product(
    builder: Builder,
    operator: type[Operator],
    a: View,
    b: View,
    dtype: Any,
    summands: Mapping[str, View | None],
    parameters: Mapping[str, View | None],
    **attributes: Any,
) -> View:
    """Multiplies matrices, broadcasting their batches; merges more than two batch dimensions."""
    transposes = (bool(attributes.get(field)) for field in ("trans_a", "trans_b"))
    *batch, rows, columns = whole = operator.infer(a.sizes, b.sizes, *transposes)
    outer = batch if len(batch) <= 2 else (math.prod(batch),)
    result = (*outer, rows, columns)

    def matrices(view: View, sizes: Sequence[int]) -> View:
        return builder.reshape(view.broadcast((*batch, *sizes)), (*outer, *sizes))

    inputs: dict[str, Any] = {"a": matrices(a, a.sizes[-2:]), "b": matrices(b, b.sizes[-2:])}
    for field, view in summands.items():
        inputs[field] = None if view is None else matrices(view.broadcast(whole), whole[-2:])
    for field, view in parameters.items():
        if view is not None:
            is_of_rows = len(view.sizes) == 1 and not field.startswith("b_")
            sizes = () if math.prod(view.sizes) == 1 else (*view.sizes, 1) if is_of_rows else view.sizes[-2:]
            inputs[field] = builder.reshape(view, (1,) * (len(result) - len(sizes)) + sizes)
    (product,) = builder.add(operator, inputs, {"output": (dtype, result)}, **attributes)
    return builder.reshape(product, whole)
