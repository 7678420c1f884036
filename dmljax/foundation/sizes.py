"""Infers the sizes of results from the sizes of arrays and from attributes, for functions and descriptors alike.

A function that infers sizes takes sizes and attributes under the names of its operator's arguments. Its errors use
these names, which `argument_name` and `spell_sizes` turn into the caller's spelling: `input` with the shape `(2, 3)` in
a function, `InputTensor` with the Sizes `{2,3}` in a descriptor.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import zip_longest

from dmljax.errors import DmlError, InvalidDesc, Path, Problem, Where, path_of, require, spell_path
from dmljax.foundation.dimensions import is_symbolic
from dmljax.foundation.open_sizes import spell_equalities
from dmljax.text import join_sizes

Sizes = tuple[int, ...]
_NAMES: ContextVar[Mapping[str, Path] | None] = ContextVar("_NAMES", default=None)
_LEADS: ContextVar[bool] = ContextVar("_LEADS", default=False)


@contextmanager
def use_member_names(names: Mapping[str, Path], *, has_leading_ones: bool) -> Iterator[None]:
    """Names the members in problems raised inside: `names` has a path for each argument.

    Where tensors may have leading 1s, `require_sizes` accepts them.
    """
    token, leads = _NAMES.set(names), _LEADS.set(has_leading_ones)
    try:
        yield
    except DmlError as error:
        error.args = tuple(
            replace(p, path=_member_path(p.path), others=tuple(map(_member_path, p.others))) for p in error.problems
        )
        raise
    finally:
        _NAMES.reset(token)
        _LEADS.reset(leads)


def remedy_for_channels_last(image: Sequence[int], remedy: str) -> str | None:
    """Returns `remedy` if a refused image seems to have its channels last; None for tensors of descriptors."""
    is_likely = len(image) == 4 and not any(map(is_symbolic, image)) and image[-1] in (1, 3, 4) and image[1] > 4
    return remedy if is_likely and not _NAMES.get() else None


def _member_path(path: Path) -> Path:
    names = _NAMES.get()
    if names is None or not path:
        return path
    first, *rest = path
    return (*names.get(str(first), (first,)), *(_member(key) for key in rest))


def _member(key: str | int) -> str | int:
    return "Sizes" if key == "shape" else key.capitalize() if isinstance(key, str) else key


def argument_name(*place: str | int) -> str:
    """The caller's name of an argument or its part: `argument_name("input", "shape", 1)` is `InputTensor.Sizes[1]`."""
    return spell_path(_member_path(place))


def array_name(argument: str) -> str:
    """The caller's name for an array, or for the array whose sizes are an argument."""
    return argument_name(argument).removesuffix(".Sizes")


def spell_sizes(sizes: Sequence[float]) -> str:
    """Spells sizes, or other numbers for each dimension, as the caller writes them."""
    return str(tuple(sizes)) if _NAMES.get() is None else join_sizes(sizes)


def with_leading_ones(sizes: Sequence[int], rank: int) -> Sizes:
    """The sizes with leading 1s, `rank` in all."""
    return (1,) * (rank - len(sizes)) + tuple(sizes)


def require_sizes(
    argument: Where, sizes: Sequence[int], expected: Sequence[int], *, of: str = "", why: str = ""
) -> None:
    """Raises if an array does not have the sizes `expected`.

    A function's error adds that they are the sizes `of` another array, or else `why`.
    """
    is_function = _NAMES.get() is None
    whole = with_leading_ones(expected, len(sizes)) if _LEADS.get() else tuple(expected)
    if tuple(sizes) != whole:
        path = path_of(argument) if is_function else (*path_of(argument), "shape")
        reason = f"have the shape {of and f'of {of}, '}{spell_sizes(whole)}{why}"
        rule = f"must {reason if is_function else f'be {spell_sizes(whole)}'}"
        remedy = spell_equalities(*zip(sizes, whole, strict=True)) if len(sizes) == len(whole) else None
        raise InvalidDesc(Problem(path, rule, spell_sizes(sizes), remedy=remedy))


def require_dimensions(argument: Where, sizes: Sequence[int], lowest: int, *, at_end: bool = False) -> None:
    """Raises if an array has fewer than `lowest` dimensions; the remedy adds them in front, or `at_end`."""
    dimensions = "dimension" if lowest == 1 else "dimensions"
    rule, remedy = f"must have at least {lowest} {dimensions}", remedy_for_rank(argument, sizes, lowest, at_end=at_end)
    require(argument, len(sizes) >= lowest, rule, len(sizes), remedy=remedy)


def remedy_for_rank(argument: Where, sizes: Sequence[int], rank: int, *, at_end: bool = False) -> str | None:
    """Returns how to add the dimensions that an array lacks; None for tensors of descriptors."""
    missing = rank - len(sizes)
    if missing <= 0 or _NAMES.get() is not None:
        return None
    index = ["..."] * (at_end and len(sizes) > 0) + ["None"] * missing
    return f"{spell_path(path_of(argument))}[{', '.join(index)}] adds {missing}"


def remedy_for_image(argument: Where, sizes: Sequence[int]) -> str | None:
    """Returns how to add batch and channels to an array of spatial dimensions, whether a signal or an image."""
    return remedy_for_rank(argument, sizes, max(3, len(sizes) + 2)) if len(sizes) < 3 else None


def require_image(argument: Where, sizes: Sequence[int]) -> None:
    """Raises if an array does not have batch, channels and at least one spatial dimension."""
    remedy = remedy_for_image(argument, sizes)
    require(argument, len(sizes) >= 3, "must have at least 3 dimensions", len(sizes), remedy=remedy)


def require_broadcast(argument: str, sizes: Sequence[int], whole: Sequence[int], of: str = "") -> None:
    """Raises if an array does not broadcast to the sizes `whole`, those `of` another array."""
    pairs = zip(reversed(sizes), reversed(whole), strict=False)
    if len(sizes) > len(whole) or any(size not in (1, most) for size, most in pairs):
        rule = f"must have a shape that broadcasts to {spell_sizes(whole)}{of and f', that of {of}'}"
        remedy = remedy_for_channels(sizes, whole) or remedy_for_open(sizes, whole)
        raise InvalidDesc(Problem(argument, rule, spell_sizes(sizes), remedy=remedy))


def remedy_for_channels(sizes: Sequence[int], whole: Sequence[int]) -> str | None:
    """Returns how to shape one number for each channel to broadcast to the sizes `whole`, if `sizes` suggest that."""
    if len(sizes) != 1 or len(whole) < 3 or sizes[0] != whole[1]:
        return None
    return f"for one number per channel, reshape to {spell_sizes((sizes[0], *(1 for _ in whole[2:])))}"


def remedy_for_open(*shapes: Sequence[int]) -> str | None:
    """Returns the constraints on open sizes with which these shapes broadcast, if there are any."""
    each = zip_longest(*map(reversed, shapes), fillvalue=1)
    several = ([size for size in sizes if size != 1] for sizes in each)
    return spell_equalities(*((sizes[0], size) for sizes in several for size in sizes))


def require_one_each(argument: str, values: Sequence[float], of: str, rank: int) -> None:
    """Raises unless each of the `rank` dimensions of the array `of` has a number."""
    rule = f"must have one number for each of the {rank} dimensions of {argument_name(of)}"
    require(argument, len(values) == rank, rule, spell_sizes(values))


def expand_spatial(argument: str, number: float, elsewhere: float, of: str, rank: int) -> tuple[float, ...]:
    """Returns `number` for each spatial dimension of the array `of`, and `elsewhere` for its batch and channels.

    One or two dimensions are spatial, and all after the second of four or more. Three may be (N, C, W) or (C, H, W).
    """
    if rank == 3 and number != elsewhere:
        signal, image = (elsewhere, elsewhere, number), (elsewhere, number, number)
        spellings = [f"({', '.join(f'{value:g}' for value in each)})" for each in (signal, image)]
        rule = f"must have one number for each dimension of {of}, whose rank of 3 does not say which are spatial"
        remedy = f"{argument}={spellings[0]} for (N, C, W), {argument}={spellings[1]} for (C, H, W)"
        raise InvalidDesc(Problem(argument, rule, f"{number:g}", remedy=remedy))
    others = 0 if rank < 3 else 2
    return (elsewhere,) * others + (number,) * (rank - others)
