"""Reads handlers' signatures: how a handler takes each input, and its attributes.

An input's annotation says what the handler receives and what the input must be. `Array` and its kin, such as `Images`,
are JAX arrays. `Known` is a NumPy array that decides sizes; a value that is not known while tracing is refused. `Kept`
is a tensor as it comes, which is a NumPy array if known. `Wanted` also makes a simpler program if known. Only the sizes
of a `Measured` tensor matter. A NamedTuple groups several inputs, its fields.
"""

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum
from typing import Annotated, Any, NamedTuple

import numpy as np

from dmljax.onnx.graph.graph import OnnxGraph, Reference, TensorType
from dmljax.onnx.values.types import Array, Elements, Results, Tensor, Value

Function = Callable[..., Results]


class Use(Enum):
    """How a handler takes an input."""

    ARRAY = "as a JAX array"
    KNOWN = "as a NumPy array, which must be known"
    KEPT = "as it comes"
    WANTED = "as it comes, and better known"
    PASSED = "as it comes, to hand it on"  # knowing it gains nothing
    MEASURED = "as it comes, for its sizes"  # its sizes are known even if it is not


@dataclass(frozen=True)
class Demand:
    """The number of dimensions that a tensor must have, and whether it must be a single number or text."""

    least: int = 0
    most: int | None = None
    is_number: bool = False
    is_text: bool = False

    def broken_rule(self, value: Value) -> str | None:
        """The rule that an input breaks, if any."""
        if isinstance(value, list):
            return "must be a tensor, not a sequence"
        if self.is_text and not (isinstance(value, np.ndarray) and all(isinstance(text, str) for text in value.flat)):
            return "must be text"
        shape = np.shape(value)  # type: ignore[arg-type]  # NumPy reads only the shape
        if self.is_number and math.prod(shape) != 1:
            return "must have one element"
        if len(shape) < self.least or (self.most is not None and len(shape) > self.most):
            return f"must have {self._count}"
        return None

    @property
    def _count(self) -> str:
        if self.most is None:
            return f"at least {self.least} dimension{'s' * (self.least != 1)}"
        if self.least == self.most:
            return f"{self.least} dimension{'s' * (self.least != 1)}"
        return f"{self.least} to {self.most} dimensions"


# The inputs of handlers: a plural name requires at least that many dimensions, a singular name exactly that many.
Vector = Annotated[Array, Demand(1, 1)]
Vectors = Annotated[Array, Demand(1)]
Matrix = Annotated[Array, Demand(2, 2)]
Matrices = Annotated[Array, Demand(2)]
Rows = Annotated[Array, Demand(3, 3)]  # (batch, positions, features)
Heads = Annotated[Array, Demand(4, 4)]  # (batch, heads, positions, features)
RowsOrHeads = Annotated[Array, Demand(3, 4)]
Stacked = Annotated[Array, Demand(3, 5)]  # rows, heads, or packed queries, keys and values
Mask = Annotated[Array, Demand(1, 4)]
Image = Annotated[Array, Demand(4, 4)]  # (batch, channels, height, width)
Images = Annotated[Array, Demand(3)]
Number = Annotated[Array, Demand(is_number=True)]
Known = Annotated[Elements, Use.KNOWN]
KnownNumber = Annotated[Known, Demand(is_number=True)]
KnownVector = Annotated[Known, Demand(1, 1)]
KnownText = Annotated[Known, Demand(is_text=True)]
Kept = Annotated[Tensor, Use.KEPT, Demand()]
KeptNumber = Annotated[Tensor, Use.KEPT, Demand(is_number=True)]
KeptVector = Annotated[Tensor, Use.KEPT, Demand(1, 1)]
KeptVectors = Annotated[Tensor, Use.KEPT, Demand(1)]
KeptMatrix = Annotated[Tensor, Use.KEPT, Demand(2, 2)]
KeptValue = Annotated[Value, Use.KEPT]
Wanted = Annotated[Tensor, Use.WANTED, Demand()]
WantedNumber = Annotated[Tensor, Use.WANTED, Demand(is_number=True)]
Passed = Annotated[Value, Use.PASSED]
Measured = Annotated[Tensor, Use.MEASURED, Demand()]


class Quantized(NamedTuple):
    """Three inputs that a handler takes together: integers, their scale, and an optional zero point."""

    array: Array
    scale: Array
    zero_point: Array | None


QuantizedMatrix = Annotated[Quantized, Demand(2, 2)]
QuantizedImages = Annotated[Quantized, Demand(3)]


class RecurrentInputs(NamedTuple):
    """The inputs that all recurrent networks share."""

    x: Rows
    weight: Rows
    recurrence: Rows
    bias: Array | None = None
    lengths: Vector | None = None
    hidden: Rows | None = None


@dataclass(frozen=True)
class Input:
    """An input in a handler's signature, or each of a variable number of inputs."""

    use: Use = Use.ARRAY
    demand: Demand | None = None  # None for an input of any kind
    is_required: bool = True
    may_be_absent: bool = False  # a required input with an empty name

    @property
    def is_kept(self) -> bool:
        """Whether the handler takes the input as it comes."""
        return self.use in (Use.KEPT, Use.WANTED, Use.PASSED, Use.MEASURED)


def inputs_of(parameter: inspect.Parameter) -> list[Input]:
    """The inputs that a parameter represents: `Vector | None = None` is an optional vector."""
    annotation, is_required = parameter.annotation, parameter.default is parameter.empty
    bundle = find_bundle(annotation)
    if bundle is None:
        return [_input_of(annotation, is_required)]
    inputs = [_input_of(part, name not in bundle._field_defaults) for name, part in bundle.__annotations__.items()]
    demand = _input_of(annotation, is_required).demand
    return [replace(inputs[0], demand=demand or inputs[0].demand), *inputs[1:]]


def find_bundle(annotation: Any) -> Any:
    """The NamedTuple of inputs in an annotation, if there is one."""
    origin = getattr(annotation, "__origin__", annotation)
    return origin if isinstance(origin, type) and issubclass(origin, tuple) else None


def _input_of(annotation: Any, is_required: bool) -> Input:
    parts = (annotation, *(typing.get_args(annotation) if _is_union(annotation) else ()))
    marks = [mark for part in parts for mark in getattr(part, "__metadata__", ())]
    return Input(
        use=next((mark for mark in marks if isinstance(mark, Use)), Use.ARRAY),
        demand=next((mark for mark in marks if isinstance(mark, Demand)), None),
        is_required=is_required,
        may_be_absent=is_optional(annotation),
    )


def is_optional(annotation: Any) -> bool:
    """Whether an annotation ends in `| None`."""
    return _is_union(annotation) and type(None) in typing.get_args(annotation)


class Attributes:
    """The base of dataclasses that group attributes shared by several operators.

    A handler annotates a keyword-only parameter with such a class to take all of its fields as attributes.
    """


@dataclass(frozen=True, kw_only=True)
class WindowAttributes(Attributes):
    """The attributes of windows as ONNX spells them, where None is a default and padding may follow from the image."""

    auto_pad: str = "NOTSET"
    dilations: Sequence[int] | None = None
    pads: Sequence[int] | None = None
    strides: Sequence[int] | None = None


@dataclass(frozen=True, kw_only=True)
class ConvolutionAttributes(WindowAttributes):
    """The attributes of convolutions, whose filters determine the window's size."""

    group: int = 1
    kernel_shape: Sequence[int] | None = None


@dataclass(frozen=True, kw_only=True)
class PoolingAttributes(WindowAttributes):
    """The attributes of poolings."""

    kernel_shape: Sequence[int]
    ceil_mode: int = 0


@dataclass(frozen=True, kw_only=True)
class RecurrentAttributes(Attributes):
    """The attributes of recurrent networks."""

    activations: Sequence[str] | None = None
    activation_alpha: Sequence[float] = ()
    activation_beta: Sequence[float] = ()
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0
    output_sequence: int = 0  # in version 1; implied by the node's outputs


@dataclass(frozen=True)
class Attribute:
    """An attribute of a handler: its annotated kind, and the parameter that groups it with others, if any."""

    kind: Any = Any
    is_required: bool = False
    group: str | None = None


def attributes_of(parameters: Mapping[str, inspect.Parameter]) -> Iterator[tuple[str, Attribute]]:
    """The attributes that keyword-only parameters declare, by name."""
    for name, parameter in parameters.items():
        annotation = parameter.annotation
        if isinstance(annotation, type) and issubclass(annotation, Attributes):
            for field in fields(annotation):  # type: ignore[arg-type]  # each of them is a dataclass
                yield field.name, Attribute(field.type, field.default is MISSING, name)
        else:
            yield name, Attribute(annotation, parameter.default is parameter.empty)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


_SPELLED = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    np.ndarray: ("a tensor", "tensors"),
    OnnxGraph: ("a graph", "graphs"),
    TensorType: ("a type", "types"),
}


def find_broken_kind(annotation: Any, value: Any) -> str | None:
    """The rule that an attribute breaks if its kind differs from its parameter's annotation."""
    parts = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    kinds = [part for part in parts if part is not type(None)]
    if isinstance(value, Reference) or any(_has_kind(allowed, value) for allowed in kinds):
        return None
    return f"must be {' or '.join(map(_spell, kinds))}"


def _has_kind(annotation: Any, value: Any) -> bool:
    origin = typing.get_origin(annotation) or annotation
    if origin is Sequence:
        (inner,) = typing.get_args(annotation)
        return isinstance(value, tuple) and all(_has_kind(inner, element) for element in value)
    return origin is Any or isinstance(value, (int, float) if origin is float else origin)


def _spell(annotation: Any) -> str:
    origin = typing.get_origin(annotation) or annotation
    return _SPELLED[typing.get_args(annotation)[0]][1] if origin is Sequence else _SPELLED[origin][0]
