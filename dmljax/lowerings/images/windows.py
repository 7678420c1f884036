"""Windows that slide over the spatial dimensions of an image, which follow batch and channels."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from dmljax.errors import InvalidDesc, Path, Problem, Unsupported, all_checked
from dmljax.foundation.checks import UINT_MAX, require_count
from dmljax.foundation.dimensions import MAX_BYTES, is_addressable, is_symbolic
from dmljax.foundation.open_sizes import fits
from dmljax.foundation.sizes import Sizes, argument_name, array_name, spell_sizes


class Window(NamedTuple):
    """How a window slides along one dimension."""

    input_size: int
    size: int
    stride: int
    dilation: int
    start_padding: int
    end_padding: int

    @property
    def extent(self) -> int:
        """From the first to the last element."""
        return 1 + (self.size - 1) * self.dilation

    @property
    def padded_size(self) -> int:
        return self.input_size + self.start_padding + self.end_padding

    @property
    def blocks(self) -> int:
        """The number of places of the window, called blocks."""
        return (self.padded_size - self.extent) // self.stride + 1

    @property
    def padded(self) -> "PaddedWindow":
        # A single window does not need its stride, nor a window of one element its dilation, however large they are.
        stride, dilation = 1 if self.blocks == 1 else self.stride, 1 if self.size == 1 else self.dilation
        return PaddedWindow(self.size, stride, dilation, self.blocks)

    @property
    def rounded_up(self) -> "Window":
        """The window with more padding after the input, so that its places, rounded up, cover the whole image.

        The last place begins in the input, or in the padding before it.
        """
        last = -(-(self.padded_size - self.extent) // self.stride)
        last -= last * self.stride >= self.input_size + self.start_padding
        beyond = max(last * self.stride + self.extent - self.padded_size, 0)
        return self._replace(end_padding=self.end_padding + beyond)

    @property
    def misses_input(self) -> bool:
        """Whether the window lies entirely in the padding at some place; False where a symbolic size decides."""
        if is_symbolic(self.input_size):
            return False
        # If a window's elements are at most the input's width apart, the window cannot step over it. Otherwise, whether
        # a window that begins before the input steps over it repeats after every `period` blocks.
        period = self.dilation // math.gcd(self.stride, self.dilation)
        count = 1 if self.dilation <= self.input_size else min(self.blocks, period)
        return not all(map(self._meets_input, chain(range(count), (self.blocks - 1,))))

    def _meets_input(self, block: int) -> bool:
        first = block * self.stride - self.start_padding
        inside = max(0, -(first // self.dilation))
        return inside < self.size and first + inside * self.dilation < self.input_size

    @property
    def is_whole(self) -> bool:
        """Whether there is a single window with all elements of the input and no padding."""
        is_plain = self.dilation == 1 and self.start_padding == 0 and self.end_padding == 0
        return is_plain and not is_symbolic(self.input_size) and self.size == self.input_size


class WindowPlan(NamedTuple):
    """Windows over an image, and the sizes of the result."""

    windows: tuple[Window, ...]
    sizes: Sizes


class PaddedWindow(NamedTuple):
    """How a window slides along a dimension that is already padded."""

    size: int
    stride: int
    dilation: int
    blocks: int

    @property
    def length(self) -> int:
        """How many elements of the dimension the windows need."""
        return (self.size - 1) * self.dilation + (self.blocks - 1) * self.stride + 1


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


def checked_steps(
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
