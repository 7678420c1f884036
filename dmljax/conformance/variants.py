"""Varies a descriptor into valid ones of other data types, ranks and attributes.

Support tables and rules are data, so that no operator needs code of its own here: a variant is proposed, the sizes of
its outputs are inferred, and validation says whether DirectML would take it.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jax.numpy import iinfo

from dmljax.descriptors.base import OPERATORS, Operator
from dmljax.descriptors.members import SCALAR_TYPE, Array, Boolean, Enumeration, Integer, Member, Number, Struct
from dmljax.descriptors.tensor import TensorDesc
from dmljax.descriptors.validation import find_broken_rules
from dmljax.errors import DmlError
from dmljax.foundation.scalars import Scalar, ScaleBias
from dmljax.types import FLOAT, LATEST, DataType

Values = dict[str, Any]


def members_of(desc: Operator) -> Values:
    """The values of a desc's members, by field."""
    return {member.field: getattr(desc, member.field) for member in desc.members()}


def build_valid(desc: Operator, changes: Mapping[str, Any]) -> Operator | None:
    """The desc with changes and the output sizes that follow; None if DirectML would refuse it."""
    try:
        built = type(desc)(**members_of(desc) | dict(changes))
        built = built.with_inferred_sizes(LATEST) if find_broken_rules(built) else built
        return None if find_broken_rules(built) else built
    except DmlError:
        return None


def find_first(desc: Operator, proposals: Iterator[Values]) -> Operator | None:
    """The first valid desc with the changes of a proposal."""
    built = (build_valid(desc, changes) for changes in proposals)
    return next((variant for variant in built if variant is not None), None)


# Data types


def with_type(desc: Operator, field: str, data_type: DataType) -> Operator | None:
    """The desc with the tensor `field` of this type, and as few others as the rules need; None if no desc is valid."""
    return find_first(desc, _type_proposals(desc, field, data_type))


def _type_proposals(desc: Operator, field: str, data_type: DataType) -> Iterator[Values]:
    newest = type(desc).support[max(type(desc).support)]
    tensors = {member.field: getattr(desc, member.field) for member in desc.members() if member.tensor_kind}
    present = {name: value for name, value in tensors.items() if value}
    types = {name: _first(value).data_type for name, value in present.items()}
    fitting = [name for name in present if data_type in newest[name].data_types]
    alike = [name for name in fitting if types[name] is types[field]]
    outputs = [name for name in fitting if not desc.member(name).tensor_kind.is_input]  # type: ignore[union-attr]
    groups = [[field], alike, sorted({field, *outputs}), [*fitting]]
    for group in groups:
        others = [name for name in present if name not in group]
        changed = {name: _retype(present[name], data_type) for name in group}
        yield from _with_scalars(desc, changed, data_type)
        for other in others:  # such as a scale, whose type goes with the outputs'
            for of_other in sorted(newest[other].data_types - {types[other]}):
                yield from _with_scalars(desc, changed | {other: _retype(present[other], of_other)}, data_type)


def _retype(value: Any, data_type: DataType) -> Any:
    """The tensor in another type; of an array, only the floats or only the others, if it has both."""
    if isinstance(value, TensorDesc):
        return replace(value, data_type=data_type)
    alike = [is_float(tensor) == (data_type in FLOAT) for tensor in value]
    pairs = zip(value, alike, strict=True)
    return tuple(_retype(tensor, data_type) if is_alike or not any(alike) else tensor for tensor, is_alike in pairs)


def _with_scalars(desc: Operator, changes: Values, data_type: DataType) -> Iterator[Values]:
    """Yields the changes as they are, and again with the scalars in this type."""
    yield changes
    unions = [member for member in desc.members() if isinstance(member.kind, Number) and member.kind.own_type is None]
    type_members = {member.field: data_type for member in desc.members() if member.kind == SCALAR_TYPE}
    if type_members:
        numbers = {member.field: _fit_number(getattr(desc, member.field), data_type) for member in unions}
        yield changes | type_members | numbers
    if getattr(desc, "scale_bias", None) is not None:
        yield changes | type_members | {"scale_bias": ScaleBias(1.0, 0.0)}


def _fit_number(value: Scalar, data_type: DataType) -> Any:
    number = value.item.item()
    if data_type.dtype.kind == "f":
        largest = float(np.finfo(data_type.dtype).max)
        return min(max(number, -largest), largest)
    limits = iinfo(data_type.dtype)
    return int(min(max(round(number), int(limits.min)), int(limits.max)))


# Ranks


def with_rank(desc: Operator, rank: int) -> Operator | None:
    """The desc with tensors of this many dimensions: those that come are 1, and those that go are cut off."""
    return find_first(desc, _rank_proposals(desc, rank))


def _rank_proposals(desc: Operator, rank: int) -> Iterator[Values]:
    old = max(leaf.tensor.rank for leaf in desc.leaves())
    for place, is_shifted, are_all, filler in itertools.product((0, old, 2), (True, False), (False, True), (1, 0)):
        change = _RankChange(old, rank, min(place, old, rank), is_shifted, are_all, filler)
        members = {member: getattr(desc, member.field) for member in desc.members()}
        yield {member.field: change.apply(member, value) for member, value in members.items() if value is not None}
    yield _lead_by_ones(desc, rank)


class _RankChange(NamedTuple):
    """A way to give the tensors of the highest rank another rank, and to change the other members accordingly."""

    old: int
    new: int
    place: int  # of the dimensions that come or go
    is_shifted: bool  # whether axes and counts of dimensions move with the dimensions
    are_all: bool  # whether tensors of lower ranks change as well
    filler: int  # of arrays that have a number for each dimension

    def apply(self, member: Member, value: Any) -> Any:
        """The value that a member then has."""
        more, name = self.new - self.old, member.field
        if member.tensor_kind:
            return _map_tensors(value, self._resize)
        if name == "axis" or name.endswith(("dimension_count", "index_dimensions")):
            is_moved = self.is_shifted and (name != "axis" or value >= self.place)
            return max(value + more, 0) if is_moved else value
        if name == "axes":
            moved = (axis + more if axis >= self.place else axis for axis in value)
            return tuple(dict.fromkeys(min(max(axis, 0), self.new - 1) for axis in moved))
        if isinstance(value, tuple) and len(value) == self.old:
            return self._insert(value, self.place, self._filler_of(name))
        if isinstance(value, tuple) and len(value) == self.old - 2:  # of spatial dimensions
            return self._insert(value, max(self.place - 2, 0), self._filler_of(name))
        return value

    def _resize(self, tensor: TensorDesc) -> TensorDesc:
        if tensor.rank != self.old and not self.are_all:
            return tensor
        sizes = self._insert(tensor.sizes, min(self.place, tensor.rank), 1)
        return replace(tensor, sizes=sizes or (1,), strides=None)

    def _filler_of(self, name: str) -> float:
        if "pixel" in name:
            return 0.5 if "input" in name else -0.5
        return 0 if "padding" in name or "offset" in name else self.filler

    def _insert(self, values: Sequence[Any], place: int, filler: Any) -> tuple[Any, ...]:
        """The values with fillers before `place` where dimensions come, or without those from there on that go."""
        more = self.new - self.old
        return (*values[:place], *(filler,) * max(more, 0), *values[place + max(-more, 0) :])


def _lead_by_ones(desc: Operator, rank: int) -> Values:
    """The tensors with as many leading dimensions as their own ranks in the support tables allow."""
    newest = type(desc).support[max(type(desc).support)]
    changes: Values = {}
    for member in desc.members():
        value = getattr(desc, member.field)
        if member.tensor_kind and value:
            ranks = newest[member.field].ranks
            own_rank = min(max(rank, ranks[0]), ranks[-1])
            changes[member.field] = _map_tensors(value, partial(_with_leading_ones, rank=own_rank))
    return changes


def _with_leading_ones(tensor: TensorDesc, rank: int) -> TensorDesc:
    return replace(tensor, sizes=((1,) * rank + tensor.sizes)[-rank:], strides=None)


# Attributes


def attribute_variants(desc: Operator) -> Iterator[tuple[str, Operator]]:
    """The valid descs that differ from a desc in one attribute or optional tensor, each with what differs."""
    for member in desc.members():
        for label, changes in _attribute_proposals(desc, member):
            built = build_valid(desc, changes)
            if built is not None and built != desc:
                yield label, built


def _attribute_proposals(desc: Operator, member: Member) -> Iterator[tuple[str, Values]]:
    value, kind, name = getattr(desc, member.field), member.kind, member.name
    if member.tensor_kind:
        if member.is_optional and value is not None:
            yield f"no {name}", {member.field: None}
        elif value is None:
            for tensor in dict.fromkeys(leaf.tensor for leaf in desc.leaves()):
                if build_valid(desc, {member.field: tensor}) is not None:
                    yield f"with {name}", {member.field: tensor}
                    break
    elif kind == SCALAR_TYPE:
        return
    elif isinstance(kind, Boolean):
        yield f"{name} {not value}".upper(), {member.field: not value}
    elif isinstance(kind, Enumeration):
        for other in kind.enumeration:
            if other is not value:
                yield f"{name} {other.name}", {member.field: other}
    elif isinstance(kind, Integer):
        for number in dict.fromkeys((0, 1, 2, 3, max(value - 1, 0), value + 1)):
            if number != value:
                yield f"{name} {number}", {member.field: number}
    elif isinstance(kind, Number):
        for number in _other_numbers(value):
            yield f"{name} {number}", {member.field: number}
    elif isinstance(kind, Struct):
        yield from _struct_proposals(member, value)
    elif member.field == "fused_activation":
        if value is not None:
            yield "no FusedActivation", {member.field: None}
        for short_name in ("RELU", "SIGMOID", "LINEAR"):
            yield f"FusedActivation {short_name}", {member.field: _activation(short_name)}
    elif isinstance(kind, Array) and isinstance(value, tuple):
        yield from _array_proposals(desc, member, value)


def _activation(short_name: str) -> Operator:
    operator = OPERATORS[f"DML_OPERATOR_ACTIVATION_{short_name}"]
    numbers = {member.field: 0.5 for member in operator.members() if isinstance(member.kind, Number)}
    return operator(**numbers)


def _other_numbers(value: Scalar | None) -> list[Any]:
    if value is None:
        return []
    number = value.item.item()
    others = [0, 1, 3, -2] if value.data_type.dtype.kind != "f" else [0.0, 0.25, 1.0, -2.0, 1e-3]
    return [other for other in others if other != number]


def _struct_proposals(member: Member, value: Any) -> Iterator[tuple[str, Values]]:
    if value is None:
        for pair in (ScaleBias(2.0, 1.0), ScaleBias(-0.5, 0.25)):
            yield f"ScaleBias {pair.scale} {pair.bias}", {member.field: pair}
    elif isinstance(value, ScaleBias):
        yield "no ScaleBias", {member.field: None}
        yield "ScaleBias -1.5 0.25", {member.field: ScaleBias(-1.5, 0.25)}
    else:
        for i, more in itertools.product(range(len(value)), (-1, 1)):
            changed = type(value)(*(size + more * (i == j) for j, size in enumerate(value)))
            if all(size >= 1 for size in changed):
                text = " x ".join(map(str, changed))
                yield f"{member.name} {text}", {member.field: changed}


def _array_proposals(desc: Operator, member: Member, value: tuple[Any, ...]) -> Iterator[tuple[str, Values]]:
    if member.field == "axes":
        rank = desc.leaves()[0].tensor.rank
        choices: list[tuple[Any, ...]] = [(axis,) for axis in range(rank)]
        choices += [tuple(range(rank)), tuple(range(rank))[-2:]]
    elif value and all(isinstance(item, int) for item in value):
        steps = itertools.product(range(len(value)), (-1, 1))
        choices = [(*value[:i], value[i] + step, *value[i + 1 :]) for i, step in steps]
        choices.append(tuple(item + 1 for item in value))
    elif value and all(isinstance(item, Scalar) for item in value):
        numbers = [item.item.item() for item in value]
        choices = [tuple(number * factor for number in numbers) for factor in (0.5, 2.0)]
        choices += [tuple(number + 0.25 for number in numbers)]
    elif value and all(isinstance(item, Operator) for item in value):
        choices = [(_activation(name),) * len(value) for name in ("TANH", "SIGMOID", "RELU")]
    else:
        return
    for choice in choices:
        if choice != value:
            text = ", ".join(getattr(item, "short_name", str(item)) for item in choice)
            yield f"{member.name} {text}", {member.field: choice}


# Sizes


def with_length(desc: Operator, length: int) -> Operator | None:
    """The desc of an elementwise operator with `length` elements in the last dimension of all tensors of its size."""
    sizes = desc.leaves()[0].tensor.sizes
    whole = (*(1,) * (len(sizes) - 1), length)

    def resize(tensor: TensorDesc) -> TensorDesc:
        return replace(tensor, sizes=whole, strides=None) if tensor.sizes == sizes else tensor

    tensors = {member.field: getattr(desc, member.field) for member in desc.members() if member.tensor_kind}
    return build_valid(desc, {name: _map_tensors(value, resize) for name, value in tensors.items() if value})


def _map_tensors(value: Any, change: Callable[[TensorDesc], TensorDesc]) -> Any:
    return tuple(map(change, value)) if isinstance(value, tuple) else change(value)


def _first(value: Any) -> TensorDesc:
    tensor: TensorDesc = value[0] if isinstance(value, tuple) else value
    return tensor


def is_float(tensor: TensorDesc) -> bool:
    """Whether a tensor's elements are floats."""
    return tensor.data_type in FLOAT
