"""PADDING, PADDING1, UNFOLD and FOLD: the pages' tables and pseudo-code, and cases."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, ones
from formulas import Arr, bits_of
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, PaddingMode, TensorDesc

SUPPORT = tables(
    """
    PADDING: InputTensor OutputTensor
        1_0 4-5 FLOATS
        2_1 4-5 UP_TO_32
        3_1 1-8 UP_TO_32
        5_0 1-8 ALL
    PADDING1: InputTensor OutputTensor
        5_0 1-8 ALL
    UNFOLD FOLD: InputTensor OutputTensor
        6_4 3-8 FLOATS
    """
)

MEMBERS = merge(
    of_all("PADDING", "InputTensor OutputTensor PaddingMode PaddingValue DimensionCount StartPadding EndPadding"),
    of_all(
        "PADDING1",
        "InputTensor OutputTensor PaddingMode PaddingValueDataType PaddingValue DimensionCount StartPadding EndPadding",
    ),
    of_all(
        "UNFOLD FOLD",
        "InputTensor OutputTensor DimensionCount WindowSizes Strides Dilations StartPadding EndPadding",
    ),
)

# Pseudo-code


def source_index(index: int, size: int, mode: PaddingMode) -> int:
    """The source of the element at `index` of an endless row: folded over the edges until it lies inside."""
    if mode is PaddingMode.EDGE or size == 1:
        return min(max(index, 0), size - 1)
    while not 0 <= index < size:
        if mode is PaddingMode.WRAP:
            index += size if index < 0 else -size
        elif mode is PaddingMode.SYMMETRIC:
            index = -1 - index if index < 0 else 2 * size - 1 - index
        else:
            index = -index if index < 0 else 2 * size - 2 - index
    return index


def padded(input: Arr, value: Any, *, mode: PaddingMode, start: Any, end: Any) -> Arr:
    source, bits = bits_of(input), bits_of(np.array([value], input.dtype))[0]
    sizes = [size + before + after for size, before, after in zip(input.shape, start, end, strict=True)]
    output = np.empty(sizes, source.dtype)
    for place in np.ndindex(*sizes):
        index = [i - before for i, before in zip(place, start, strict=True)]
        if mode is PaddingMode.CONSTANT:
            is_inside = all(0 <= i < size for i, size in zip(index, input.shape, strict=True))
            output[place] = source[tuple(index)] if is_inside else bits
        else:
            indices = (source_index(i, size, mode) for i, size in zip(index, input.shape, strict=True))
            output[place] = source[tuple(indices)]
    return output.view(input.dtype)


def blocks_of(
    spatial: Any, *, window_sizes: Any, strides: Any, dilations: Any, start_padding: Any, end_padding: Any
) -> list[int]:
    """The page's BlocksPerDimension."""
    return [
        (size + before + after - dilation * (window - 1) - 1) // stride + 1
        for size, window, stride, dilation, before, after in zip(
            spatial, window_sizes, strides, dilations, start_padding, end_padding, strict=True
        )
    ]


def column_sizes(image: Any, **windows: Any) -> tuple[int, int, int]:
    batch, channels, *spatial = image
    in_window = int(np.prod(windows["window_sizes"]))
    return batch, channels * in_window, int(np.prod(blocks_of(spatial, **windows)))


def places(image: Any, **windows: Any) -> Any:
    """Each element of the columns with its position in the image, which may be in the padding."""
    batch, channels, *spatial = image
    in_window = list(itertools.product(*map(range, windows["window_sizes"])))
    blocks = list(itertools.product(*map(range, blocks_of(spatial, **windows))))
    for n, c in itertools.product(range(batch), range(channels)):
        for row, element in enumerate(in_window):
            for column, block in enumerate(blocks):
                place = (
                    np.multiply(element, windows["dilations"])
                    + np.multiply(block, windows["strides"])
                    - windows["start_padding"]
                )
                is_inside = all(0 <= i < size for i, size in zip(place, spatial, strict=True))
                yield (n, c * len(in_window) + row, column), (n, c, *map(int, place)) if is_inside else None


def unfolded(input: Arr, **windows: Any) -> Arr:
    source = bits_of(input)
    output = np.zeros(column_sizes(input.shape, **windows), source.dtype)
    for column, place in places(input.shape, **windows):
        if place is not None:
            output[column] = source[place]
    return output.view(input.dtype)


def folded(input: Arr, *, output_sizes: Any, **windows: Any) -> Arr:
    """Sums in 64 bits, rounded to the input's type at the end."""
    kind = np.float64 if input.dtype.kind == "f" else np.int64
    output = np.zeros(output_sizes, kind)
    for column, place in places(output_sizes, **windows):
        if place is not None:
            output[place] += input[column].astype(kind)
    return output.astype(input.dtype)


# Descriptors


def padding_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.PaddingDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        output=TensorDesc(types["input"], ones(rank, 9, 10)),
        padding_mode=PaddingMode.REFLECTION,
        padding_value=0,
        start_padding=(*(0 for _ in range(rank)), 5, 2)[-rank:],
        end_padding=(*(0 for _ in range(rank)), 1, 4)[-rank:],
    )


def padding1_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.Padding1Desc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        output=TensorDesc(types["input"], ones(rank, 4, 7)),
        padding_mode=PaddingMode.CONSTANT,
        padding_value_data_type=types["input"],
        padding_value=3,
        start_padding=(*(0 for _ in range(rank)), 1, 0)[-rank:],
        end_padding=(*(0 for _ in range(rank)), 0, 3)[-rank:],
    )


def window_members(desc: Any) -> dict[str, tuple[int, ...]]:
    names = ("window_sizes", "strides", "dilations", "start_padding", "end_padding")
    return {name: getattr(desc, name) for name in names}


def windows_desc(operator: Any, image: str, columns: str) -> Any:
    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        # No table has fewer than 3 dimensions, so these are not valid descriptors.
        spatial = rank - 2
        windows = {
            "window_sizes": ones(spatial, 2, 3),
            "strides": ones(spatial, 2, 1),
            "dilations": ones(spatial, 1, 2),
            "start_padding": (0,) * (spatial - 1) + (2,),
            "end_padding": (0,) * (spatial - 1) + (1,),
        }
        if spatial < 1:
            windows = dict.fromkeys(windows, ())
            sizes, of_columns = (2,) * rank, (2, 2, 1)
        else:
            sizes = (2, 2, *ones(spatial, 5, 4))
            of_columns = column_sizes(sizes, **windows)
        tensors = {
            image: TensorDesc(types["input"], sizes),
            columns: TensorDesc(types["input"], of_columns),
        }
        made: directml.Operator = operator(**tensors, **windows)
        return made

    return make


CASES = {
    "PADDING": Case(
        ("input",),
        padding_desc,
        lambda desc, input: padded(input, 0, mode=desc.padding_mode, start=desc.start_padding, end=desc.end_padding),
    ),
    "PADDING1": Case(
        ("input",),
        padding1_desc,
        lambda desc, input: padded(
            input,
            desc.padding_value.item,
            mode=desc.padding_mode,
            start=desc.start_padding,
            end=desc.end_padding,
        ),
    ),
    "UNFOLD": Case(
        ("input",),
        windows_desc(directml.UnfoldDesc, "input", "output"),
        lambda desc, input: unfolded(input, **window_members(desc)),
    ),
    "FOLD": Case(
        ("input",),
        windows_desc(directml.FoldDesc, "output", "input"),
        lambda desc, input: folded(input, output_sizes=desc.output.sizes, **window_members(desc)),
        scales=("input",),  # few sums, which are exact
    ),
}
