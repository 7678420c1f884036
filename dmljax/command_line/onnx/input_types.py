"""The types of a model's inputs, with numbers or symbols for its open sizes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from dmljax.command_line.onnx.open_caches import open_caches
from dmljax.errors import Problem, Unsupported, require
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.graph.reader import require_possible_sizes
from dmljax.onnx.model import Model
from dmljax.text import join_words


class GivenSizes(NamedTuple):
    """The sizes that a caller chooses: shapes by input, and open sizes by name and by denotation."""

    shapes: Mapping[str, Sequence[int]]
    names: Mapping[str, int]
    denotations: Mapping[str, int]

    def overridden(self, inputs: Iterable[TensorType]) -> list[TensorType]:
        """The types of inputs with these open sizes; ignores `shapes`."""
        return [tensor.overridden(self.names, self.denotations) for tensor in inputs]


def types_of_inputs(model: Model, sizes: GivenSizes, batch: int | None) -> list[jax.ShapeDtypeStruct]:
    """The types of a model's inputs; an open first dimension becomes `batch`, and other open sizes are refused."""
    sizes = sizes._replace(names=open_caches(model).with_sizes(sizes.names))
    wanted = sizes.overridden(model.inputs)
    _require_open_batch(wanted, sizes.shapes, batch)
    _require_sizes([tensor for tensor in wanted if tensor.name not in sizes.shapes])
    return [type_of_input(tensor, sizes.shapes.get(tensor.name), batch or 1) for tensor in wanted]


def _require_open_batch(inputs: Sequence[TensorType], shapes: Mapping[str, Sequence[int]], batch: int | None) -> None:
    """Raises if the first dimension of every input is fixed or in `shapes`."""
    has_batch = any(
        tensor.sizes and not isinstance(tensor.sizes[0], int) for tensor in inputs if tensor.name not in shapes
    )
    rule, shown = "needs a model with an input whose first dimension is open", join_words(map(str, inputs))
    remedy = "leave it out, or export the model with an open batch"
    require("batch", batch is None or has_batch, rule, shown or "no inputs", remedy=remedy)


def _require_sizes(inputs: Sequence[TensorType]) -> None:
    """Raises if sizes are open beyond the first dimension, because costs depend on them."""
    opened = [tensor for tensor in inputs if not all(isinstance(size, int) for size in (tensor.sizes or ())[1:])]
    names = dict.fromkeys(size for tensor in opened for size in (tensor.sizes or ())[1:] if isinstance(size, str))
    unnamed = [tensor for tensor in opened if None in (tensor.sizes or ())[1:]]
    remedies = [
        *(f"-f {name}:256" for name in names),
        *(f"-b {tensor.name}:{','.join(_some_sizes(tensor))}" for tensor in unnamed),
    ]
    shown = ", ".join(map(str, opened))
    require((), not opened, "sizes that the model leaves open must be given", shown, remedy=" ".join(remedies))


def _some_sizes(tensor: TensorType) -> list[str]:
    """Sizes to type for an input: 1 for the batch, and 256 for the others that are open."""
    return [str(size if isinstance(size, int) else 256 if axis else 1) for axis, size in enumerate(tensor.sizes or ())]


def open_types_of_inputs(
    model: Model,
    sizes: GivenSizes,
    batch: int | None,
    divisor: int,
    multiples: Mapping[str, tuple[int, str]],
) -> list[jax.ShapeDtypeStruct]:
    """Returns the types of a model's inputs, with symbols for open sizes; `batch` is each input's first size.

    Open first sizes are multiples of `divisor`; `multiples` maps the names of other sizes to a factor and the name of a
    symbol. A total of past and new tokens is their sum.
    """
    caches, shapes = open_caches(model), sizes.shapes
    sizes = sizes._replace(names={**caches.decided, **sizes.names})
    if batch is not None:
        _require_open_batch(sizes.overridden(model.inputs), shapes, batch)
        first = {tensor.sizes[0]: batch for tensor in model.inputs if tensor.sizes and isinstance(tensor.sizes[0], str)}
        sizes = sizes._replace(names={**first, **sizes.names})
    wanted = sizes.overridden(model.inputs)
    # A valid Python name for each open size, after the factor and `*` of a multiple
    symbols = {name: f"{factor}*{_symbol(symbol)}" for name, (factor, symbol) in multiples.items()}
    spelled = []
    for i, tensor in enumerate(wanted):
        known_sizes: Sequence[Any] = shapes.get(tensor.name) or tensor.sizes or ()
        names = [f"d{i}_{axis}" if size is None else size for axis, size in enumerate(known_sizes)]
        if batch is not None and names and not isinstance(names[0], int):
            names[0] = batch
        spelled.append([symbols.setdefault(name, _symbol(name)) if isinstance(name, str) else name for name in names])
    opened = [*dict.fromkeys(symbol.rpartition("*")[2] for symbol in symbols.values())]
    sizes_of: dict[Any, Any] = (
        dict(zip(opened, jax.export.symbolic_shape(", ".join(opened)), strict=True)) if opened else {}
    )
    sizes_of |= {f"{k}*{_symbol(symbol)}": k * sizes_of[_symbol(symbol)] for k, symbol in multiples.values()}
    sizes_of |= {names[0]: divisor * sizes_of[names[0]] for names in spelled if names and names[0] in sizes_of}
    known = {**sizes.names, **{name: sizes_of[symbol] for name, symbol in symbols.items()}}
    for total, (past, new) in caches.totals.items():
        if total in symbols and past in known and new in known:
            sizes_of[symbols[total]] = known[past] + known[new]
    types = [
        type_of_input(tensor, shapes.get(tensor.name)) for tensor in wanted
    ]  # raises for inputs that are not tensors
    return [
        jax.ShapeDtypeStruct(tuple(sizes_of.get(size, size) for size in names), tensor.dtype)
        for names, tensor in zip(spelled, types, strict=True)
    ]


def _symbol(name: str) -> str:
    """A name of a size as jax.export reads it."""
    symbol = re.sub(r"\W", "_", name)
    return symbol if symbol.isidentifier() else f"d_{symbol}"


def type_of_input(
    tensor: TensorType,
    shape: Sequence[int] | None,
    batch: int = 1,
    *,
    rule: str = "must be a tensor of numbers with a shape",
    remedy: str = "--binding_shape NAME:1,3,224,224 gives a shape",
) -> jax.ShapeDtypeStruct:
    """The type of an input; an open first dimension becomes `batch`, and any other open size 1."""
    if not tensor.has_numbers or (tensor.sizes is None and shape is None):
        raise Unsupported(Problem(tensor.name, rule, tensor, remedy=remedy))
    opened = [batch, *[1] * len(tensor.sizes or ())]
    sizes = [fixed if isinstance(fixed, int) else size for fixed, size in zip(tensor.sizes or (), opened, strict=False)]
    sizes = sizes if shape is None else [*shape]
    require_possible_sizes(tensor.name, sizes)
    return jax.ShapeDtypeStruct(tuple(sizes), tensor.dtype)
