"""Converts calls of dmljax's functions to nodes: the same-named descriptor, filled from arguments and sizes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from dmljax import directml
from dmljax.calls.decorator import RecordedCall
from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS, HasOutput
from dmljax.descriptors.members import SCALAR_TYPE, Array, Enumeration, Member, Struct
from dmljax.foundation.scalars import ScaleBias
from dmljax.foundation.sizes import with_leading_ones
from dmljax.graphs.assembly import map_tensor, walk_tensors
from dmljax.graphs.to_graph.builder import Builder, NoOperator, Output, product
from dmljax.graphs.to_graph.primitives import pad
from dmljax.graphs.to_graph.views import View, desc_of
from dmljax.text import join_sizes
from dmljax.types import UNSIGNED, DataType

_NO_SPACE = {"strides": 1, "dilations": 1, "window_size": 1, "start_padding": 0, "end_padding": 0, "output_padding": 0}
_IMAGES = {"input", "filter", "indices", "input_gradient"}
_PRODUCTS = {"GEMM", "MATRIX_MULTIPLY_INTEGER", "MATRIX_MULTIPLY_INTEGER_TO_FLOAT", "QUANTIZED_LINEAR_MATRIX_MULTIPLY"}
# Functions take these as integers of any type.
_COUNTS = {"indices", "sequence_lengths", "batch_indices", "past_sequence_lengths"}


class OperatorCall:
    """Converts a call of a dmljax function to a node."""

    def __init__(self, builder: Builder, call: RecordedCall, views: Sequence[View], outputs: Sequence[Output]) -> None:
        self.builder = builder
        self.operator = OPERATORS[f"{OPERATOR_PREFIX}{call.operator.upper()}"]
        values = tuple(call.arrays.values())
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(values)]
        if shapes != [view.sizes for view in views]:
            raise NoOperator("must be called with the node's own arrays", "a call under jax.vmap")
        read = jax.tree.unflatten(jax.tree.structure(values), views)
        self.arrays: dict[str, Any] = dict(zip(call.arrays, read, strict=True))
        self.statics = call.statics
        self.asked = [dtype for dtype, _ in outputs]
        fields = self._output_fields()
        each = fields * len(outputs) if len(fields) == 1 else fields
        self.outputs = [
            (self._output_type(field, dtype), sizes) for field, (dtype, sizes) in zip(each, outputs, strict=True)
        ]

    @property
    def name(self) -> str:
        return self.operator.short_name

    @property
    def level(self) -> Any:
        return self.operator.support[max(self.operator.support)]

    def results(self) -> list[View]:
        views = self._views()
        return [
            view if view.dtype.itemsize == dtype.itemsize else self.builder.cast(view, dtype)
            for view, dtype in zip(views, self.asked, strict=True)
        ]

    def _views(self) -> list[View]:
        special = _SPECIAL.get(self.name)
        if special is not None:
            return special(self)
        if self.name in _PRODUCTS:
            return [self._product()]
        if self.name.startswith("ELEMENT_WISE_") or self.name == "ACTIVATION_PARAMETERIZED_RELU":
            return [self.elementwise()]
        return self.spatial() if self.operator.has_images else self.convert_at_one_rank()

    def argument(self, name: str) -> Any:
        return self.statics[name] if name in self.statics else self.arrays[name]

    # Tensors

    def _fields(self, *, is_input: bool) -> list[Member]:
        members = self.operator.members()
        return [member for member in members if member.tensor_kind and member.tensor_kind.is_input == is_input]

    def inputs(self) -> dict[str, Any]:
        """The views by field, converted to the types that the operator takes."""
        views: dict[str, Any] = {}
        for member in self._fields(is_input=True):
            spread = self.operator.spread.get(member.field)
            value = self.arrays[member.field] if spread is None else tuple(self.arrays[name] for name in spread)
            if isinstance(value, tuple):  # drop empty arrays, which DirectML does not have
                value = [view for view in value if view is not None and 0 not in view.sizes]
            views[member.field] = value
        dtype = next((view.dtype for _, view in walk_tensors(views) if not view.is_weak), None)
        return {field: self._convert_input(field, value, dtype) for field, value in views.items()}

    def _convert_input(self, field: str, value: Any, dtype: Any) -> Any:
        if not isinstance(value, View):
            return value
        if value.is_weak and dtype is not None and value.dtype != dtype and self.builder.is_constant(value):
            new_dtype = np.dtype(np.float32) if value.dtype.kind == "f" and dtype.kind != "f" else dtype
            return self.builder.local_constant(self.builder.value(value).astype(new_dtype))
        cell = self.level[field]
        if field in _COUNTS and desc_of(value.dtype, (1,)).data_type not in cell.data_types:
            unsigned = self._unsigned_dtype(field, value.dtype)
            is_same_width = unsigned.itemsize == value.dtype.itemsize
            return replace(value, dtype=unsigned) if is_same_width else self.builder.cast(value, unsigned)
        if value.dtype == np.float16 and cell.data_types == {DataType.FLOAT32}:
            return self.builder.cast(value, np.float32)
        return value

    def _unsigned_dtype(self, field: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The unsigned type in which the operator takes counts: of the same width if supported, otherwise uint32."""
        same_width = np.dtype(f"uint{dtype.itemsize * 8}")
        is_there = desc_of(same_width, (1,)).data_type in self.level[field].data_types
        return same_width if is_there else np.dtype(np.uint32)

    def _output_type(self, field: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The type of an output; functions count in any integer type, but operators only in unsigned types."""
        types = self.level[field].data_types
        is_there = not types <= UNSIGNED or desc_of(dtype, (1,)).data_type in types
        return dtype if is_there else self._unsigned_dtype(field, dtype)

    def _output_fields(self) -> list[str]:
        """The fields of the present outputs, in the order of the members."""
        flags = {name: flag for name, flag in self.operator.derived.items() if isinstance(flag, HasOutput)}
        absent = {field for name, flag in flags.items() if not self.statics[name] for field in flag.fields}
        return [member.field for member in self._fields(is_input=False) if member.field not in absent]

    def _present_outputs(self) -> dict[str, Any]:
        """The outputs by field."""
        fields = self._output_fields()
        return {"outputs": self.outputs} if fields == ["outputs"] else dict(zip(fields, self.outputs, strict=True))

    # Layouts

    def elementwise(self) -> View:
        views = [view for view in self.inputs().values() if view is not None]
        attributes = self.attributes()
        ((dtype, sizes),) = self.outputs
        if self.name.startswith("ELEMENT_WISE_BIT_") and views[0].dtype.kind == "i":  # DirectML has only unsigned types
            views = [replace(view, dtype=np.dtype(f"u{view.dtype}")) for view in views]
            dtype = dtype if self.name == "ELEMENT_WISE_BIT_COUNT" else views[0].dtype
        if self.name == "ELEMENT_WISE_BIT_COUNT" or sizes == np.broadcast_shapes(*(view.sizes for view in views)):
            return self.builder.elementwise(self.operator, *views, dtype=dtype, **attributes)
        raise NoOperator("must broadcast to the output", join_sizes(sizes))

    def convert_at_one_rank(self) -> list[View]:
        """Prepends dimensions of size 1 so that all tensors have the same rank."""
        inputs, outputs = self.inputs(), self._present_outputs()
        cells, views = self.level, [view for _, view in walk_tensors(inputs)]
        ranks = [len(sizes) for sizes in (*(view.sizes for view in views), *(sizes for _, sizes in self.outputs))]
        rank = max([1, *ranks, *(cells[field].ranks[0] for field in (*inputs, *outputs) if field in cells)])
        first = views[0] if views else None
        shift = 0 if first is None else rank - len(first.sizes)
        if self.name in ("FOLD", "UNFOLD"):  # their tensors have different ranks
            rank, shift = 1, 0
        operands: dict[str, Any] = {
            field: map_tensor(lambda view: self.builder.reshape(view, with_leading_ones(view.sizes, rank)), tensor)
            for field, tensor in inputs.items()
        }
        longer = {
            field: map_tensor(lambda output: (output[0], with_leading_ones(output[1], rank)), tensor)
            for field, tensor in outputs.items()
        }
        views = self.builder.add(self.operator, operands, longer, **self.attributes(shift, first))
        return [self.builder.reshape(view, sizes) for view, (_, sizes) in zip(views, self.outputs, strict=True)]

    def spatial(self) -> list[View]:
        """Appends dimensions of size 1 to images up to four dimensions; other tensors hold a number per channel."""
        inputs, outputs = self.inputs(), self._present_outputs()
        first = next(iter(inputs.values()))
        spatial_rank = len(first.sizes)
        rank = max(4, spatial_rank)
        more = (1,) * (rank - spatial_rank)
        operands: dict[str, Any] = {}
        for field, view in inputs.items():
            if view is None:
                operands[field] = None
            elif field in _IMAGES:
                operands[field] = self.builder.reshape(view, view.sizes + more)
            else:
                count = math.prod(view.sizes)
                sizes = (1, count, *(1,) * (rank - 2)) if count > 1 or field == "bias" else (1,) * rank
                operands[field] = self.builder.reshape(view, sizes)
        longer = {field: (dtype, sizes + more) for field, (dtype, sizes) in outputs.items()}
        attributes = self.attributes(0, first)
        for field, fill in _NO_SPACE.items():
            if field in attributes:
                attributes[field] = (*attributes[field], *(fill for _ in more))
        views = self.builder.add(self.operator, operands, longer, **attributes)
        return [self.builder.reshape(view, sizes) for view, (_, sizes) in zip(views, self.outputs, strict=True)]

    def _product(self) -> View:
        inputs = self.inputs()
        a, b = inputs.pop("a"), inputs.pop("b")
        ((dtype, _),) = self.outputs
        summands: dict[str, View | None] = {field: inputs.pop(field) for field in ("c", "bias") if field in inputs}
        return product(self.builder, self.operator, a, b, dtype, summands, inputs, **self.attributes())

    # Attributes

    def attributes(self, shift: int = 0, first: View | None = None) -> dict[str, Any]:
        """The members that are not tensors."""
        members = [member for member in self.operator.members() if member.tensor_kind is None]
        return {member.field: self._attribute(member, shift, first) for member in members}

    def _attribute(self, member: Member, shift: int, first: View | None) -> Any:
        field = member.field
        if member.kind == SCALAR_TYPE:
            return desc_of(self.outputs[0][0], (1,)).data_type
        implied = self.operator.implied.get(field)
        value = self.argument(self.operator.arguments.get(field, field)) if implied is None else implied(self)
        if isinstance(value, ScaleBias):
            return ScaleBias(*(self.builder.number(field, element) for element in value))
        if field in ("axis", "axes") and first is not None:
            rank = len(first.sizes)
            axes = (value,) if isinstance(value, int) else value
            new_axes = tuple(sorted(axis % rank + shift for axis in axes))
            return new_axes[0] if isinstance(value, int) else new_axes
        if isinstance(member.kind, Array) and isinstance(value, View):
            return [element.item() for element in self.builder.value(value).ravel()]
        if isinstance(member.kind, Array) and isinstance(value, int | float) and first is not None:
            return (value,) * self._dimension_count(first)
        if isinstance(member.kind, Enumeration) and isinstance(value, bool):
            return member.kind.enumeration(int(value))
        if isinstance(member.kind, Struct) and not isinstance(value, tuple):
            return value
        if value is None and not member.is_optional:
            raise NoOperator(f"no value for {field}")
        return self.builder.number(field, value)

    def _dimension_count(self, first: View) -> int:
        """The number of spatial dimensions, to which a single number applies."""
        if self.name == "FOLD":  # its input has columns instead of an image
            return len(self.statics["output_sizes"]) - 2
        return len(first.sizes) - 2


# Functions that need special treatment


def _cast_call(call: OperatorCall) -> list[View]:
    return [call.builder.cast(call.arrays["input"], call.outputs[0][0])]


def _clip_call(call: OperatorCall) -> list[View]:
    """Uses MAX and MIN for computed bounds, because CLIP takes only numbers."""
    bounds = [call.arrays["min"], call.arrays["max"]]
    if all(bound is None or call.builder.is_constant(bound) for bound in bounds):
        return [call.elementwise()]
    x = call.arrays["input"]
    for operator, bound in zip((directml.ElementWiseMaxDesc, directml.ElementWiseMinDesc), bounds, strict=True):
        x = x if bound is None else call.builder.elementwise(operator, x, bound)
    return [x]


def _padding_call(call: OperatorCall) -> list[View]:
    return [pad(call.builder, call.operator, call.arrays["input"], **call.attributes())]


def _pixels_call(call: OperatorCall) -> list[View]:
    """Reshapes images to DirectML's four dimensions for operators that treat each pixel independently.

    {N, C, L} becomes {N, C, L, 1}, and {N, C, D, H, W} becomes {N, C, D * H * W, 1}.
    """
    inputs, ((dtype, sizes),) = call.inputs(), call.outputs
    if len(sizes) == 4:
        return call.convert_at_one_rank()

    def image(view: View) -> View:
        sizes_of_view = with_leading_ones(view.sizes, len(sizes))
        whole = sizes_of_view if math.prod(sizes_of_view[2:]) == 1 else (*sizes_of_view[:2], *sizes[2:])
        return call.builder.reshape(view.broadcast(whole), (*whole[:2], math.prod(whole[2:]), 1))

    images = {field: view and image(view) for field, view in inputs.items()}
    outputs = dict.fromkeys(call._present_outputs(), (dtype, (*sizes[:2], math.prod(sizes[2:]), 1)))
    (result,) = call.builder.add(call.operator, images, outputs, **call.attributes())
    return [call.builder.reshape(result, sizes)]


def _response_call(call: OperatorCall) -> list[View]:
    return _pixels_call(call) if call.statics["cross_channel"] else call.spatial()


def _attention_call(call: OperatorCall) -> list[View]:
    """Broadcasts masks and biases to each head and query, and converts boolean masks to INT32, as DirectML requires."""
    (_, (batch, queries, _)), heads = call.outputs[0], call.statics[_HEADS[call.name]]
    is_boolean = call.statics["mask_type"] is directml.MultiheadAttentionMaskType.BOOLEAN
    for field, is_spread in (("mask", is_boolean), ("relative_position_bias", True)):
        view = call.arrays[field]
        if view is not None and is_spread:
            mask = call.builder.cast(view, np.int32) if field == "mask" else view
            call.arrays[field] = mask.broadcast((batch, heads, queries, view.sizes[-1]))
    return call.convert_at_one_rank()


_HEADS = {"MULTIHEAD_ATTENTION": "head_count", "MULTIHEAD_ATTENTION1": "query_head_count"}


def _quantized_sum_call(call: OperatorCall) -> list[View]:
    """Broadcasts the operands, because DirectML's quantized sum does not."""
    for field in ("a", "b"):
        call.arrays[field] = call.arrays[field].broadcast(call.outputs[0][1])
    return call.convert_at_one_rank()


def _dequantize_call(call: OperatorCall) -> list[View]:
    """Uses DEQUANTIZE for blocks and the smallest types, and the elementwise operator for wider integers."""
    x, *parameters = (view for view in call.arrays.values() if view is not None)
    is_in_blocks = any({*with_leading_ones(parameter.sizes, len(x.sizes))} - {1, *x.sizes} for parameter in parameters)
    if is_in_blocks or desc_of(x.dtype, (1,)).data_type in call.level["input"].data_types:
        return call.convert_at_one_rank()
    dtype = call.outputs[0][0]
    return [call.builder.elementwise(directml.ElementWiseDequantizeLinearDesc, x, *parameters, dtype=dtype)]


def _nonzero_call(call: OperatorCall) -> list[View]:
    """Keeps the first rows that the call asked for; DirectML writes a row for each element of the input."""
    count, (dtype, (*batch, rows, columns)) = call.outputs
    x = call.arrays["input"]
    if call.statics["fill_value"]:
        raise NoOperator("must fill with 0", call.statics["fill_value"])
    whole = max(rows, math.prod(x.sizes))
    call.outputs = [count, (dtype, (*batch, whole, columns))]
    number, coordinates = call.convert_at_one_rank()
    return [number, replace(coordinates, sizes=(*batch, rows, columns))]


_SPECIAL: dict[str, Callable[[OperatorCall], list[View]]] = {
    "CAST": _cast_call,
    "DEQUANTIZE": _dequantize_call,
    "ELEMENT_WISE_CLIP": _clip_call,
    "ELEMENT_WISE_CLIP1": _clip_call,
    "ELEMENT_WISE_QUANTIZED_LINEAR_ADD": _quantized_sum_call,
    "LOCAL_RESPONSE_NORMALIZATION": _response_call,
    "LOCAL_RESPONSE_NORMALIZATION_GRAD": _response_call,
    "MEAN_VARIANCE_NORMALIZATION": _pixels_call,
    "MULTIHEAD_ATTENTION": _attention_call,
    "MULTIHEAD_ATTENTION1": _attention_call,
    "NONZERO_COORDINATES": _nonzero_call,
    "PADDING": _padding_call,
    "PADDING1": _padding_call,
}
