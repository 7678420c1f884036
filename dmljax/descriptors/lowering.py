"""Descriptors as functions of arrays."""

import functools
import inspect
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import jax

from dmljax.checks import JAX_ARRAYS, array, bound_arguments
from dmljax.descriptors.base import Leaf, Operator
from dmljax.descriptors.validation import validate
from dmljax.errors import DmlError, InvalidDesc, InvalidType, Path, Problem, Unsupported, within
from dmljax.tensor import TensorDesc
from dmljax.text import join_sizes
from dmljax.types import LATEST, NEEDS_X64, FeatureLevel, x64_enabled


def lower(desc: Any, *, feature_level: FeatureLevel | str = LATEST) -> Callable[..., Any]:
    """A function of the inputs of a descriptor or a graph, by position or name, that returns its output or outputs.

    It takes and returns arrays with exactly the descs' sizes and data types, and works under every transformation. The
    tensors of an array are given one after the other, or by name as a sequence; they are returned as a tuple. Several
    outputs come as a named tuple with the members' names, or, of a graph, as a dictionary.

    >>> tensor = TensorDesc("FLOAT32", (1, 3))
    >>> hardmax = lower(ActivationHardmaxDesc(input=tensor, output=tensor))
    >>> hardmax(np.array([[1, 5, 5]], "float32")).tolist()
    [[0.0, 1.0, 0.0]]
    """
    validate(desc, feature_level=feature_level)
    return lowered(desc)


@functools.singledispatch
def lowered(desc: Any) -> Callable[..., Any]:
    """As `lower`, of what is valid."""
    with within(type(desc).type):
        require_64_bits_available(desc)
    leaves, counts = desc.leaves(is_input=True), _counts(desc)
    compiled = _compile(_without_layout(desc))

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            if not kwargs and len(args) == len(leaves):
                for value in args:
                    if type(value) not in JAX_ARRAYS:
                        break
                else:
                    return compiled(*args)  # which checks them while tracing
            return compiled(*_bind_arrays(counts, leaves, args, kwargs))
        except DmlError as error:
            error.operator = type(desc).type
            raise

    function.__name__ = function.__qualname__ = desc.short_name.lower()
    function.__doc__ = f"{type(desc).type} for one descriptor."
    function.__signature__ = _signature(counts)  # type: ignore[attr-defined]
    return function


Counts = dict[str, int | None]  # of the inputs that are present: how many tensors an array has, None for a tensor


def _counts(desc: Operator) -> Counts:
    members = [member for member in desc.members() if member.tensor_kind and member.tensor_kind.is_input]
    present = {member.field: getattr(desc, member.field) for member in members}
    return {
        field: len(value) if isinstance(value, tuple) else None for field, value in present.items() if value is not None
    }


def _signature(counts: Counts) -> inspect.Signature:
    """The inputs that are present; the tensors of an array are one parameter by name, and several by position."""
    kinds = inspect.Parameter
    is_plain = all(count is None for count in counts.values())
    kind = kinds.POSITIONAL_OR_KEYWORD if is_plain else kinds.KEYWORD_ONLY
    arrays = [] if is_plain else [kinds("arrays", kinds.VAR_POSITIONAL)]
    return inspect.Signature([*arrays, *(kinds(field, kind) for field in counts)])


def _bind_arrays(counts: Counts, leaves: Sequence[Leaf], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arrays of a call in the order of the leaves, each with the size and type of its desc."""
    if any(count is not None for count in counts.values()):
        values = _bind_leaves(counts, leaves, args, kwargs)
    else:
        values = list(bound_arguments(_signature(counts), args, kwargs).values())
    return [
        require_match(leaf.path, leaf.tensor, array(leaf.path, value))
        for leaf, value in zip(leaves, values, strict=True)
    ]


def _bind_leaves(counts: Counts, leaves: Sequence[Leaf], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arrays by position, one for each leaf, or by name, with a sequence for an array of tensors."""
    if args:
        if kwargs or len(args) != len(leaves):
            given = f"{len(args)}{' and ' + ', '.join(kwargs) if kwargs else ''}"
            raise InvalidType(Problem((), f"the arrays must be {len(leaves)} by position, or all by name", given))
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
            given = f"{len(value)}" if isinstance(value, Sequence) else type(value).__name__
            raise InvalidType(Problem(field, f"must be a sequence of {count} arrays", given))
    return values


def require_match(where: Path, tensor: TensorDesc, given: Any) -> Any:
    """`given`, if it has the size and the type of its desc."""
    if given.dtype != tensor.dtype:
        raise InvalidType(Problem(where, f"must be of {tensor.dtype}, as its desc is", given.dtype))
    if given.shape != tensor.sizes:
        raise InvalidDesc(Problem(where, f"must have Sizes {join_sizes(tensor.sizes)}", join_sizes(given.shape)))
    return given


@functools.lru_cache(maxsize=4096)
def _compile(desc: Operator) -> Callable[..., Any]:
    """The jitted computation of all descs that differ from this one in layout alone."""
    leaves, counts = desc.leaves(is_input=True), _counts(desc)

    def computation(*arrays: Any) -> Any:
        require_64_bits_available(desc)
        checked = iter(require_match(leaf.path, leaf.tensor, value) for leaf, value in zip(leaves, arrays, strict=True))
        given = {
            field: next(checked) if count is None else tuple(islice(checked, count)) for field, count in counts.items()
        }
        return _outputs(desc, desc.compute(**given))

    computation.__name__ = computation.__qualname__ = desc.short_name.lower()  # the name of the compiled module
    return jax.jit(computation)


def _outputs(desc: Operator, computed: Any) -> Any:
    """The outputs as `lower` promises them; those that the desc leaves out are None."""
    if desc.Outputs is None:
        return computed
    present = iter(computed)
    return desc.Outputs(*(None if getattr(desc, field) is None else next(present) for field in desc.Outputs._fields))


def _without_layout(desc: Operator) -> Operator:
    """The desc with packed tensors: equal computations are equal descs, whatever their strides and flags."""

    def packed(value: Any) -> Any:
        if isinstance(value, TensorDesc):
            return TensorDesc(value.data_type, value.sizes)
        is_tensors = isinstance(value, tuple) and value and isinstance(value[0], TensorDesc)
        return tuple(map(packed, value)) if is_tensors else value

    given = {member.field: getattr(desc, member.field) for member in desc.members()}
    changed = {field: packed(value) for field, value in given.items()}
    return desc if changed == given else type(desc)(**changed)


@functools.singledispatch
def require_64_bits_available(desc: Any) -> None:
    """Refuses a desc with 64-bit types where JAX has none."""
    if x64_enabled():
        return
    for leaf in desc.leaves():
        if leaf.tensor.data_type.bits > 32:
            rule = (
                f"{NEEDS_X64}, by"
                ' jax.config.update("jax_enable_x64", True), JAX_ENABLE_X64=1, or --x64 on the command line'
            )
            raise Unsupported(Problem((*leaf.path, "DataType"), rule, leaf.tensor.data_type.name))
