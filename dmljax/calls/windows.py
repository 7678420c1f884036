"""The arguments of operators with windows, such as `strides` and `start_padding`, and the windows that they make."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from dmljax.errors import InvalidDesc, Path, Problem, Unsupported, all_checked
from dmljax.foundation.checks import UINT_MAX, require_count
from dmljax.foundation.dimensions import MAX_BYTES, is_addressable, is_symbolic
from dmljax.foundation.open_sizes import fits
from dmljax.foundation.sizes import Sizes, argument_name, array_name, spell_sizes
from dmljax.lowerings.images.windows import Window


class WindowPlan(NamedTuple):
    """Windows over an image, and the sizes of the result."""

    windows: tuple[Window, ...]
    sizes: Sizes


class Steps(NamedTuple):
    """How windows slide along each spatial dimension."""

    sizes: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    start_padding: Sequence[int]
    end_padding: Sequence[int]

    def over(self, image: Sequence[int]) -> tuple[Window, ...]:
        """The windows over an image of these sizes."""
        return tuple(map(Window, image, *self))

    def onto(self, image: Sequence[int], appended: Sequence[int]) -> tuple[Window, ...]:
        """The windows over the result of a transposed convolution, a place for each element of the image."""
        windows = []
        for count, more, window in zip(image, appended, self.over(image), strict=True):
            size = (count - 1) * window.stride + window.extent - window.start_padding - window.end_padding + more
            windows.append(window._replace(input_size=size))
        return tuple(windows)


def check_steps(
    image: str,
    sizes: Sequence[int],
    strides: int | Sequence[int],
    dilations: int | Sequence[int],
    start_padding: int | Sequence[int],
    end_padding: int | Sequence[int],
) -> Steps:
    """How windows of `sizes` slide over the argument `image`; one number applies to all spatial dimensions."""
    each = ("strides", strides, 1), ("dilations", dilations, 1), ("start_padding", start_padding, 0)
    return Steps(sizes, *for_each_dimension(image, len(sizes), *each, ("end_padding", end_padding, 0)))


def windows_over(
    image: str,
    sizes: Sequence[int],
    window_sizes: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    dilations: int | Sequence[int] = 1,
    start_padding: int | Sequence[int] = 0,
    end_padding: int | Sequence[int] = 0,
) -> tuple[Window, ...]:
    """The window of each spatial dimension of the argument `image`, which has `sizes` and must have room for them."""
    spatial = sizes[2:]
    each = ("strides", strides, 1), ("dilations", dilations, 1), ("start_padding", start_padding, 0)
    more = ("end_padding", end_padding, 0), ("window_sizes", window_sizes, 1)
    *steps, sizes_of_windows = for_each_dimension(image, len(spatial), *each, *more)
    windows = Steps(sizes_of_windows, *steps).over(spatial)
    require_room(image, windows, lambda i: ("window_sizes", i))
    _, _, start_padding, end_padding = steps
    padded = [window.padded_size for window in windows]
    what = f"the padded size of {array_name(image)}"
    require_representable(what, padded, {"start_padding": start_padding, "end_padding": end_padding}, sizes[:2])
    return windows


def require_room(image: str, windows: Sequence[Window], place: Callable[[int], Path]) -> None:
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
            problems.append(Problem(place(i), rule, window.extent))
    if problems:
        raise InvalidDesc(*problems)


def require_representable(
    what: str, sizes: Sequence[int], amounts: Mapping[str, Sequence[int]], before: Sequence[int] = ()
) -> None:
    """Raises if UINTs cannot hold the sizes, or XLA the array, and names the largest of the amounts that led to them.

    `before` are the sizes of the dimensions before these.
    """
    problems = []
    known = [(size, i) for i, size in enumerate(sizes) if not is_symbolic(size)]
    largest = lambda i: max(amounts, key=lambda name: amounts[name][i])  # noqa: E731
    for size, i in known:
        if size > UINT_MAX:
            rule = f"must keep {what} at most {UINT_MAX} along axis {i + len(before)}, not {size}"
            problems.append(Problem((largest(i), i), rule, amounts[largest(i)][i]))
    if problems:
        raise InvalidDesc(*problems)
    if not is_addressable((*before, *sizes)):
        _, i = max(known)
        rule = f"must keep {what} under {MAX_BYTES}"
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
