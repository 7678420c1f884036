"""Binds and checks the arrays that a lowered descriptor or graph is called with."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dmljax.calls.arguments import ShownText
from dmljax.calls.binding import bind_arguments
from dmljax.descriptors.members import Leaf
from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, Unsupported
from dmljax.foundation.checks import array
from dmljax.text import join_sizes
from dmljax.types import NEEDS_X64, x64_enabled

Counts = Mapping[str, int | None]  # by input present: the number of tensors in an array, or None for a single tensor
Given = tuple[Sequence[Any], Mapping[str, Any]]  # arrays by position, and those by name
Bind = Callable[[Sequence[Any], dict[str, Any]], Given]


def type_text(tensors: TensorDesc | tuple[TensorDesc, ...] | None) -> str:
    """The type of the arrays that a member describes, as a signature shows it: `float32[2,3]`."""
    if isinstance(tensors, TensorDesc):
        return f"{tensors.data_type.name.lower()}[{','.join(map(str, tensors.sizes))}]"
    return "None" if tensors is None else f"({', '.join(map(type_text, tensors))})"


def signature(
    counts: Counts, type_texts: Mapping[str, str] | None = None, result: str | None = None
) -> inspect.Signature:
    """The signature of the inputs present; an array of tensors is one parameter by name, and several by position.

    `type_texts` has each field's type as text, and `result` the result's type.
    """
    parameter_kinds = inspect.Parameter
    is_plain = all(count is None for count in counts.values())
    kind = parameter_kinds.POSITIONAL_OR_KEYWORD if is_plain else parameter_kinds.KEYWORD_ONLY
    arrays = [] if is_plain else [parameter_kinds("arrays", parameter_kinds.VAR_POSITIONAL)]
    types: Mapping[str, Any] = {field: ShownText(text) for field, text in (type_texts or {}).items()}
    fields = (parameter_kinds(field, kind, annotation=types.get(field, parameter_kinds.empty)) for field in counts)
    annotation = inspect.Signature.empty if result is None else ShownText(result)
    return inspect.Signature([*arrays, *fields], return_annotation=annotation)


def bind_arrays(
    function: str, counts: Counts, leaves: Sequence[Leaf], args: Sequence[Any], kwargs: dict[str, Any]
) -> Given:
    """The arrays of a call in the order of the leaves, each with the size and type of its desc."""
    if any(count is not None for count in counts.values()):
        values = _bind_leaves(counts, leaves, args, kwargs)
    else:
        values = list(bind_arguments(function, signature(counts), args, kwargs).values())
    return [
        require_match(leaf.path, leaf.tensor, array(leaf.path, value))
        for leaf, value in zip(leaves, values, strict=True)
    ], {}


def signature_by_name(
    inputs: Mapping[str, TensorDesc], others: Mapping[str, TensorDesc], results: Mapping[str, TensorDesc]
) -> inspect.Signature:
    """The signature of arrays that `bind_by_name` takes; a single result is not in a dictionary."""

    def parameter(name: str, tensor: TensorDesc, kind: Any, **default: Any) -> inspect.Parameter:
        return inspect.Parameter(name, kind, annotation=ShownText(type_text(tensor)), **default)

    arrays = [parameter(name, tensor, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name, tensor in inputs.items()]
    for name, tensor in others.items():
        arrays.append(parameter(name, tensor, inspect.Parameter.KEYWORD_ONLY, default=ShownText("...")))
    texts = {name: type_text(tensor) for name, tensor in results.items()}
    each = ", ".join(f"{name!r}: {text}" for name, text in texts.items())
    return inspect.Signature(
        arrays, return_annotation=ShownText(f"{{{each}}}" if len(texts) > 1 else "".join(texts.values()))
    )


def bind_by_name(
    inputs: Mapping[str, TensorDesc], others: Mapping[str, TensorDesc], args: Sequence[Any], kwargs: dict[str, Any]
) -> Given:
    """The arrays of all inputs in order, and those for the names in `others` that a call gives."""
    known = {**inputs, **others}
    for name in kwargs:
        if name not in known:
            raise InvalidType(Problem(name, "unknown input", remedy=f"the inputs are {', '.join(known)}"))
    if len(args) > len(inputs):
        raise InvalidType(Problem((), f"takes at most {len(inputs)} arrays by position", len(args)))
    by_position = dict(zip(inputs, args, strict=False))
    for name in inputs:
        if (name in by_position) == (name in kwargs):
            rule = "given both by position and by name" if name in kwargs else "no array for this input"
            raise InvalidType(Problem(name, rule))
    arrays = {
        name: require_match((name,), known[name], array(name, value)) for name, value in (by_position | kwargs).items()
    }
    return [arrays.pop(name) for name in inputs], arrays


def _bind_leaves(counts: Counts, leaves: Sequence[Leaf], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arrays by position, in the order of the leaves, or by name, with a sequence for an array of tensors."""
    if args:
        if kwargs or len(args) != len(leaves):
            got = f"{len(args)}{' and ' + ', '.join(kwargs) if kwargs else ''}"
            raise InvalidType(Problem((), f"takes {len(leaves)} arrays, all by position or all by name", got))
        return list(args)
    if kwargs.keys() != counts.keys():
        raise InvalidType(Problem((), f"the arrays must be {', '.join(counts)}", ", ".join(kwargs) or "none"))
    values: list[Any] = []
    for field, count in counts.items():
        value = kwargs[field]
        if count is None:
            values.append(value)
        elif isinstance(value, Sequence) and len(value) == count:
            values.extend(value)
        else:
            got = f"{len(value)}" if isinstance(value, Sequence) else type(value).__name__
            raise InvalidType(Problem(field, f"must be a sequence of {count} arrays", got))
    return values


def require_match(where: Path, tensor: TensorDesc, x: Any) -> Any:
    """`x`, if it has the size and the type of its desc."""
    if x.dtype != tensor.dtype:
        raise InvalidType(Problem(where, f"must be of {tensor.dtype}, like its desc", x.dtype))
    if x.shape != tensor.sizes:
        remedy = "its strides describe buffers: `TensorDesc.read` makes an array of one" if tensor.strides else None
        rule = f"must have Sizes {join_sizes(tensor.sizes)}"
        raise InvalidDesc(Problem(where, rule, join_sizes(x.shape), remedy=remedy))
    return x


def require_64_bits(tensors: Iterable[tuple[Path, TensorDesc]]) -> None:
    """Raises if a tensor has a 64-bit type, unless `jax_enable_x64` is set."""
    if x64_enabled():
        return
    for path, tensor in tensors:
        if tensor.data_type.bits > 32:
            rule = (
                f"{NEEDS_X64}, by"
                ' jax.config.update("jax_enable_x64", True), JAX_ENABLE_X64=1, or --x64 on the command line'
            )
            raise Unsupported(Problem((*path, "DataType"), rule, tensor.data_type.name))
