"""PADDING, PADDING1, UNFOLD and FOLD: the pages' tables and pseudo-code, and cases."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr, bits_of
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, PaddingMode, TensorDesc

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
        desc: directml.Operator = operator(**tensors, **windows)
        return desc

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


# Refusals

ROW = np.arange(1, 5, dtype=np.int32)


def window_arguments(*rows: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    names = ("window_sizes", "strides", "dilations", "start_padding", "end_padding")
    return dict(zip(names, rows, strict=True))


IMAGE = np.zeros((1, 2, 5, 6), np.float32)
NO_PADDING = {"start_padding": (0,), "end_padding": (0,)}
WINDOWS: dict[str, Any] = window_arguments((2, 3), (1, 1), (1, 1), (0, 0), (0, 0))
PADDING = directml.PaddingDesc(
    input=f32(1, 1, 2, 3),
    output=f32(1, 1, 3, 5),
    padding_mode=PaddingMode.CONSTANT,
    padding_value=0.5,
    start_padding=(0, 0, 1, 0),
    end_padding=(0, 0, 0, 2),
)
PADDING1 = directml.Padding1Desc(
    input=f32(2, 3),
    output=f32(3, 5),
    padding_mode=PaddingMode.CONSTANT,
    padding_value_data_type=DataType.FLOAT32,
    padding_value=0.5,
    start_padding=(1, 0),
    end_padding=(0, 2),
)
OF_BYTES: dict[str, Any] = {"input": tensor("UINT8", 1, 1, 2, 3), "output": tensor("UINT8", 1, 1, 3, 5)}
BYTE_ROWS = {"input": tensor("UINT8", 2, 3), "output": tensor("UINT8", 3, 5)}
UNFOLD = directml.UnfoldDesc(input=f32(1, 2, 3, 5), output=f32(1, 12, 6), **WINDOWS)
FOLD = directml.FoldDesc(input=f32(1, 12, 6), output=f32(1, 2, 3, 5), **WINDOWS)

CALLS: dict[str, dict[str, Any]] = {
    "padding": {"input": ROW, **NO_PADDING},
    "padding1": {"input": ROW, **NO_PADDING},
    "unfold": {"input": IMAGE, "window_sizes": (2, 2)},
    "fold": {"input": IMAGE[0], "output_sizes": (2, 2, 5), "window_sizes": (2,)},
}

REFUSED_DESCS: list[RefusedDesc] = [
    (PADDING, {"output": tensor("FLOAT16", 1, 1, 3, 5)}, "must have the same DataType"),
    (PADDING1, {"output": f32(1, 3, 5)}, "must have the same DimensionCount; got 2 and 3"),
    (PADDING1, {"start_padding": (1,), "end_padding": (0,)}, "StartPadding must have one number for ...; got {1}"),
    (PADDING, {"end_padding": (0, 0, 0, 1)}, "OutputTensor.Sizes must be {1,1,3,4}; got {1,1,3,5}"),
    (PADDING1, {"start_padding": (0, 0)}, "OutputTensor.Sizes must be {2,5}; got {3,5}"),
    (PADDING, OF_BYTES | {"padding_value": 300}, "PaddingValue must be a whole number in ... to fit ...; got 300"),
    (PADDING, OF_BYTES | {"padding_value": math.nan}, "must be a whole number in ... to fit uint8; got nan"),
    (PADDING1, BYTE_ROWS, "PaddingValueDataType must be UINT8; got FLOAT32"),
    (PADDING1, BYTE_ROWS | {"padding_mode": "EDGE"}, "PaddingValueDataType must be UINT8; got FLOAT32"),
    (UNFOLD, {"output": tensor("FLOAT16", 1, 12, 6)}, "must have the same DataType"),
    (UNFOLD, {"output": f32(1, 1, 12, 6)}, "OutputTensor.Sizes must be {1,12,6}; got"),
    (FOLD, {"input": f32(1, 1, 12, 6)}, "InputTensor must have 3 dimensions: ...; got 4"),
    (FOLD, dict.fromkeys(WINDOWS, (1,)), "WindowSizes must have one number for each of the 2 spatial dimensions"),
    (UNFOLD, dict.fromkeys(WINDOWS, ()), "WindowSizes must have one number for each of the 2 ...; got {}"),
    (UNFOLD, {"window_sizes": (0, 3)}, "WindowSizes[0] must be at least 1; got 0"),
    (UNFOLD, {"strides": (1, 0)}, "Strides[1] must be at least 1; got 0"),
    (FOLD, {"dilations": (0, 1)}, "Dilations[0] must be at least 1; got 0"),
    (UNFOLD, {"dilations": (1, 3)}, "WindowSizes[1] must keep 1 + (WindowSizes[1] - 1) * Dilations[1] ...; got 7"),
    (UNFOLD, {"output": f32(1, 12, 8)}, "OutputTensor.Sizes must be {1,12,6}; got {1,12,8}"),
    (FOLD, {"start_padding": (1, 0)}, "InputTensor.Sizes must be {1,12,9}; got {1,12,6}"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("padding", {"start_padding": (2**32,)}, InvalidDesc, "must be in [-4294967295, 4294967295]; got 4294967296"),
    (
        "padding",
        {"start_padding": (-3,), "end_padding": (-2,)},
        InvalidDesc,
        "result.shape[0] must be at least 0; got -1",
    ),
    ("padding", {"padding_mode": PaddingMode.WRAP, "start_padding": (-9,)}, InvalidDesc, "must be at least 0; got -5"),
    (
        "padding",
        {"start_padding": (2**32 - 1,)},
        InvalidDesc,
        "start_padding[0] must keep ... at most 4294967295 along axis 0, not 4294967299; got 4294967295",
    ),
    (
        "padding1",
        {"padding_value": np.int64(2**40)},
        InvalidDesc,
        "padding_value must be a whole number in ... to fit int32",
    ),
    ("unfold", {"input": IMAGE[0, 0], "window_sizes": ()}, InvalidDesc, "input must have at least 3 dimensions; got 2"),
    ("unfold", {"start_padding": (-1, 0)}, InvalidDesc, "start_padding[0] must be at least 0; got -1"),
    (
        "unfold",
        {"window_sizes": (4, 3), "dilations": (2, 1), "start_padding": (1, 0)},
        InvalidDesc,
        "at most 6, the padded size of input along axis 2; got 7",
    ),
    ("fold", {"input": IMAGE[0] > 0}, InvalidType, "input must be of an integer or floating type; got bool"),
    (
        "fold",
        {"output_sizes": (5, 6), "window_sizes": ()},
        InvalidDesc,
        "output_sizes must be batch, channels ...; got (5, 6)",
    ),
    ("fold", {"output_sizes": (-1, 2, 5)}, InvalidDesc, "output_sizes[0] must be at least 0; got -1"),
    (
        "fold",
        {"window_sizes": (6,)},
        InvalidDesc,
        "must be at most 5, the padded size of output_sizes along axis 2; got 6",
    ),
]
