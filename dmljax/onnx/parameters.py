"""What a handler's signature says about a node: the dimensions of its inputs, and the kinds of its attributes."""

import math
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dmljax.onnx.file import Graph, Reference, TensorType


@dataclass(frozen=True)
class Demand:
    """How many dimensions an input must have, and whether it is a single number, or text."""

    least: int = 0
    most: int | None = None
    is_number: bool = False
    is_text: bool = False

    def broken_rule(self, value: Any) -> str | None:
        """The rule that an input breaks."""
        if isinstance(value, list):
            return "must be a tensor, not a sequence"
        if self.is_text and not (isinstance(value, np.ndarray) and all(isinstance(one, str) for one in value.flat)):
            return "must be text"
        shape = np.shape(value)
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


# The inputs of handlers: a name in the plural is for at least so many dimensions, one in the singular for just as many.
Tensor = Annotated[Any, Demand()]
Text = Annotated[Any, Demand(is_text=True)]
Number = Annotated[Any, Demand(is_number=True)]
Vector = Annotated[Any, Demand(1, 1)]
Vectors = Annotated[Any, Demand(1)]
Matrix = Annotated[Any, Demand(2, 2)]
Matrices = Annotated[Any, Demand(2)]
Rows = Annotated[Any, Demand(3, 3)]  # of a batch, positions, and what each position has
Heads = Annotated[Any, Demand(4, 4)]  # of a batch, heads, positions, and what each position has
RowsOrHeads = Annotated[Any, Demand(3, 4)]
Stacked = Annotated[Any, Demand(3, 5)]  # rows, heads, or what several of each position have side by side
Mask = Annotated[Any, Demand(1, 4)]
Image = Annotated[Any, Demand(4, 4)]  # of a batch, channels, and two dimensions of space
Images = Annotated[Any, Demand(3)]


def demand(annotation: Any) -> Demand | None:
    """What a parameter's annotation asks of an input; None for an input of any kind."""
    several = (annotation, *(typing.get_args(annotation) if _is_union(annotation) else ()))
    found = (one for part in several for one in getattr(part, "__metadata__", ()))
    return next((one for one in found if isinstance(one, Demand)), None)


def is_optional(annotation: Any) -> bool:
    """Whether a parameter's annotation ends in `| None`."""
    return _is_union(annotation) and type(None) in typing.get_args(annotation)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


_SPELLED = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    np.ndarray: ("a tensor", "tensors"),
    Graph: ("a graph", "graphs"),
    TensorType: ("a type", "types"),
}


def broken_kind(annotation: Any, value: Any) -> str | None:
    """The rule that an attribute of another kind breaks than its parameter's annotation says."""
    parts = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    kinds = [one for one in parts if one is not type(None)]
    if isinstance(value, Reference) or any(_is_of(kind, value) for kind in kinds):
        return None
    return f"must be {' or '.join(map(_spelled, kinds))}"


def _is_of(kind: Any, value: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    if origin is Sequence:
        (inner,) = typing.get_args(kind)
        return isinstance(value, tuple) and all(_is_of(inner, one) for one in value)
    return origin is Any or isinstance(value, (int, float) if origin is float else origin)


def _spelled(kind: Any) -> str:
    origin = typing.get_origin(kind) or kind
    return _SPELLED[typing.get_args(kind)[0]][1] if origin is Sequence else _SPELLED[origin][0]
