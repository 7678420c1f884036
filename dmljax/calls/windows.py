"""The arguments of operators with windows, such as `strides` and `start_padding`, and the windows that they make."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dmljax.errors import InvalidDesc, Path, Problem, Unsupported, all_checked
from dmljax.foundation.checks import UINT_MAX, require_count
from dmljax.foundation.dimensions import MAX_BYTES, is_addressable, is_symbolic
from dmljax.foundation.open_sizes import fits
from dmljax.foundation.sizes import Sizes, argument_name, array_name, remedy_for_channels_last, spell_sizes
from dmljax.lowerings.images.windows import Window


class WindowPlan(NamedTuple):
    """Windows over an image, and the sizes of the result, which may be larger than they need."""

    windows: tuple[Window, ...]
    sizes: Sizes


def make_windows(
    image: str,
    space: Sequence[int],
    window_sizes: int | Sequence[int],
    strides: int | Sequence[int],
    dilations: int | Sequence[int],
    start_padding: int | Sequence[int],
    end_padding: int | Sequence[int],
) -> tuple[Window, ...]:
    """The window of each dimension of `space`, of the argument `image`; one number applies to all dimensions."""
    *steps, sizes = for_each_dimension(
        image,
        len(space),
        ("strides", strides, 1),
        ("dilations", dilations, 1),
        ("start_padding", start_padding, 0),
        ("end_padding", end_padding, 0),
        ("window_sizes", window_sizes, 1),
    )
    return tuple(map(Window, space, sizes, *steps))


def fit_windows(
    image: str,
    sizes: Sequence[int],
    window_sizes: int | Sequence[int],
    strides: int | Sequence[int],
    dilations: int | Sequence[int],
    start_padding: int | Sequence[int],
    end_padding: int | Sequence[int],
) -> tuple[Window, ...]:
    """The windows over the argument `image`, which has `sizes` and must have room for them."""
    windows = make_windows(image, sizes[2:], window_sizes, strides, dilations, start_padding, end_padding)
    remedy = remedy_for_channels_last(sizes, "images are (N, C, H, W): jnp.transpose(x, (0, 3, 1, 2))")
    require_room(image, windows, lambda i: ("window_sizes", i), remedy)
    padded, arguments = [window.padded_size for window in windows], window_arguments(windows)
    paddings = {name: arguments[name] for name in ("start_padding", "end_padding")}
    require_representable(f"the padded size of {array_name(image)}", padded, paddings, sizes[:2])
    return windows


def window_arguments(windows: Sequence[Window]) -> dict[str, Any]:
    """The arguments that make functions slide these windows, except the windows' sizes."""
    return {
        "strides": tuple(window.stride for window in windows),
        "dilations": tuple(window.dilation for window in windows),
        "start_padding": tuple(window.start_padding for window in windows),
        "end_padding": tuple(window.end_padding for window in windows),
    }


def require_room(
    image: str, windows: Sequence[Window], place: Callable[[int], Path], remedy: str | None = None
) -> None:
    """Raises if a window is larger than the padded image; `place` is the argument of each window's size."""
    problems = []
    for i, window in enumerate(windows):
        if not fits(window.extent, window.padded_size):
            extent = (
                f"keep 1 + ({argument_name(*place(i))} - 1) * {argument_name('dilations', i)}"
                if window.dilation > 1
                else "be"
            )
            padded = f"{window.padded_size}, the padded size of {array_name(image)} along axis {i + 2}"
            rule = f"must {extent} at most {padded}"
            problems.append(Problem(place(i), rule, window.extent, remedy=remedy))
    if problems:
        raise InvalidDesc(*problems)


def require_representable(
    subject: str, sizes: Sequence[int], amounts: Mapping[str, Sequence[int]], before: Sequence[int] = ()
) -> None:
    """Raises if UINTs cannot hold the sizes, or XLA the array, and names the largest of the amounts that led to them.

    `before` are the sizes of the dimensions before these.
    """
    problems = []
    known = [(size, i) for i, size in enumerate(sizes) if not is_symbolic(size)]
    largest = lambda i: max(amounts, key=lambda name: amounts[name][i])  # noqa: E731
    for size, i in known:
        if size > UINT_MAX:
            rule = f"must keep {subject} at most {UINT_MAX} along axis {i + len(before)}, not {size}"
            problems.append(Problem((largest(i), i), rule, amounts[largest(i)][i]))
    if problems:
        raise InvalidDesc(*problems)
    if not is_addressable((*before, *sizes)):
        _, i = max(known)
        rule = f"must keep {subject} under {MAX_BYTES}"
        raise Unsupported(Problem((largest(i), i), rule, amounts[largest(i)][i]))


def for_each_dimension(
    image: str, count: int, *arguments: tuple[str, int | Sequence[int], int]
) -> tuple[tuple[int, ...], ...]:
    """The arguments with a number for each of `count` spatial dimensions of `image`; one number applies to all.

    An argument is its name, its value and its lowest valid number.
    """

    def check(name: str, values: int | Sequence[int], lowest: int) -> tuple[int, ...]:
        if isinstance(values, int):
            require_count(name, values, lowest)
            return (values,) * count
        if len(values) != count:
            rule = f"must have one number for each of the {count} spatial dimensions of {array_name(image)}"
            raise InvalidDesc(Problem(name, rule, spell_sizes(values)))
        return all_checked(*(partial(require_count, (name, i), value, lowest) for i, value in enumerate(values)))

    return all_checked(*(partial(check, *argument) for argument in arguments))
