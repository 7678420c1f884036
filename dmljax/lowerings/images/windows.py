"""Windows that slide over the spatial dimensions of an image, which follow batch and channels."""

import math
from itertools import chain
from typing import NamedTuple

from dmljax.foundation.dimensions import is_symbolic


class Window(NamedTuple):
    """How a window slides along one dimension: sizes, stride, dilations and padding, from an operator to XLA."""

    input_size: int
    size: int
    stride: int
    dilation: int
    start_padding: int
    end_padding: int
    input_dilation: int = 1  # how far apart the elements of the input lie, as in a transposed convolution

    @property
    def extent(self) -> int:
        """From the first to the last element."""
        return 1 + (self.size - 1) * self.dilation

    @property
    def padded_size(self) -> int:
        return (self.input_size - 1) * self.input_dilation + 1 + self.start_padding + self.end_padding

    @property
    def blocks(self) -> int:
        """The number of places of the window, called blocks."""
        return (self.padded_size - self.extent) // self.stride + 1

    @property
    def needed_size(self) -> int:
        """How many elements of the padded input the windows read, up to the end of the last one."""
        return (self.blocks - 1) * self.stride + self.extent

    @property
    def on_padded_input(self) -> "Window":
        """The window over an input that has its padding, and no elements after the last window."""
        # A single window does not need its stride, nor a window of one element its dilation, however large they are.
        stride, dilation = 1 if self.blocks == 1 else self.stride, 1 if self.size == 1 else self.dilation
        return Window(self.needed_size, self.size, stride, dilation, 0, 0)

    def on_transposed_result(self, extra: int = 0) -> "Window":
        """The window over the result of a transposed convolution, with a place for each element of the input."""
        padding = self.start_padding + self.end_padding
        return self._replace(input_size=(self.input_size - 1) * self.stride + self.extent - padding + extra)

    @property
    def rounded_up(self) -> "Window":
        """The window with more padding after the input, so that its places, rounded up, cover the whole image.

        The last place begins in the input, or in the padding before it.
        """
        last = -(-(self.padded_size - self.extent) // self.stride)
        last -= last * self.stride >= self.input_size + self.start_padding
        beyond = max(last * self.stride + self.extent - self.padded_size, 0)
        return self._replace(end_padding=self.end_padding + beyond)

    def after_padding(self, padding: "Window") -> "Window":
        """This window over an input that already has the padding of another window."""
        beyond = self.end_padding - padding.end_padding
        return self._replace(input_size=padding.padded_size, start_padding=0, end_padding=beyond)

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
