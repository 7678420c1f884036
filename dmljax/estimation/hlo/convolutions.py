"""Counts the multiplications of convolutions in which an element of an image meets one of a filter."""

from functools import cache
from typing import NamedTuple

import numpy as np


class Extent(NamedTuple):
    """The sizes of a convolution's image, filter and output along a dimension, and how they meet there."""

    image: int
    filter: int
    output: int
    stride: int = 1
    padding: int = 0  # before the image
    image_dilation: int = 1
    filter_dilation: int = 1


@cache
def multiplications(extent: Extent) -> int:
    """The pairs of an output and a filter's element that read the image, not its padding or the zeros between elements.

    >>> multiplications(Extent(image=4, filter=3, output=4, padding=1))
    10
    """
    outputs = np.arange(extent.output, dtype=np.int64) * extent.stride - extent.padding
    taps = np.arange(extent.filter, dtype=np.int64) * extent.filter_dilation
    longer, shorter = (outputs, taps) if extent.output > extent.filter else (taps, outputs)
    count = 0
    for offset in shorter:
        element, between = np.divmod(longer + offset, extent.image_dilation)
        count += int(np.count_nonzero((between == 0) & (element >= 0) & (element < extent.image)))
    return count
