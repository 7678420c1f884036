"""SLICE, SPLIT, JOIN, TILE, SPACE_TO_DEPTH and DEPTH_TO_SPACE: the pages' tables and pseudo-code, and cases."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr, bits_of
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, DepthSpaceOrder, InvalidDesc, InvalidType, TensorDesc

SUPPORT = tables(
    """
    SLICE: InputTensor OutputTensor
        1_0 4-5 FLOATS INT32 INT16 UINT32 UINT16
        2_1 4-5 UP_TO_32
        3_0 1-8 UP_TO_32
        4_1 1-8 ALL
    SLICE1: InputTensor OutputTensor
        2_1 4-5 UP_TO_32
        3_0 1-8 UP_TO_32
        4_1 1-8 ALL
    SLICE_GRAD: InputGradientTensor OutputGradientTensor
        3_0 4-5 UP_TO_32
        3_1 1-8 UP_TO_32
        4_1 1-8 ALL
    SPLIT: InputTensor OutputTensors
        1_0 4 FLOATS INT32 INT16 UINT32 UINT16
        2_1 4 UP_TO_32
        3_0 1-8 UP_TO_32
        4_1 1-8 ALL
    JOIN: InputTensors OutputTensor
        1_0 4 FLOATS INT32 INT16 UINT32 UINT16
        2_1 4 UP_TO_32
        3_0 4-5 UP_TO_32
        4_1 1-8 ALL
    TILE: InputTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 UP_TO_32
        3_1 1-8 UP_TO_32
        4_1 1-8 FLOATS INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8
    SPACE_TO_DEPTH DEPTH_TO_SPACE: InputTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 UP_TO_32
        5_0 4 ALL
    SPACE_TO_DEPTH1 DEPTH_TO_SPACE1: InputTensor OutputTensor
        2_1 4 UP_TO_32
        5_0 4 ALL
    """
)

MEMBERS = merge(
    of_all("SLICE", "InputTensor OutputTensor DimensionCount Offsets Sizes Strides"),
    of_all("SLICE1", "InputTensor OutputTensor DimensionCount InputWindowOffsets InputWindowSizes InputWindowStrides"),
    of_all(
        "SLICE_GRAD",
        "InputGradientTensor OutputGradientTensor DimensionCount "
        "InputWindowOffsets InputWindowSizes InputWindowStrides",
    ),
    of_all("SPLIT", "InputTensor OutputCount OutputTensors Axis"),
    of_all("JOIN", "InputCount InputTensors OutputTensor Axis"),
    of_all("TILE", "InputTensor OutputTensor RepeatsCount Repeats"),
    of_all("SPACE_TO_DEPTH DEPTH_TO_SPACE", "InputTensor OutputTensor BlockSize"),
    of_all("SPACE_TO_DEPTH1 DEPTH_TO_SPACE1", "InputTensor OutputTensor BlockSize Order"),
)

# Pseudo-code


def copied(input: Arr, sizes: tuple[int, ...], source: Any) -> Arr:
    """An array of `sizes` with the elements of `input` at the coordinates that `source` computes."""
    bits = bits_of(input)
    output = np.empty(sizes, bits.dtype)
    for place in np.ndindex(*sizes):
        output[place] = bits[tuple(int(coordinate) for coordinate in source(place))]
    return output.view(input.dtype)


def sliced(input: Arr, *, starts: Any, sizes: Any, strides: Any) -> Arr:
    return copied(input, tuple(sizes), lambda place: np.add(starts, np.multiply(strides, place)))


def windowed(input: Arr, *, starts: Any, sizes: Any, strides: Any, output_sizes: Any) -> Arr:
    first = [
        start + (size - 1 if stride < 0 else 0) for start, size, stride in zip(starts, sizes, strides, strict=True)
    ]
    return copied(input, tuple(output_sizes), lambda place: np.add(first, np.multiply(strides, place)))


def put_back(input: Arr, *, starts: Any, sizes: Any, strides: Any, output_sizes: Any) -> Arr:
    """Puts the elements of a window back, by the indices that `windowed` finds there."""
    places = np.arange(np.prod(output_sizes)).reshape(output_sizes)
    taken = windowed(places, starts=starts, sizes=sizes, strides=strides, output_sizes=input.shape)
    bits = bits_of(input)
    output = np.zeros(np.prod(output_sizes), bits.dtype)
    for place in np.ndindex(*input.shape):
        output[taken[place]] = bits[place]
    return output.reshape(output_sizes).view(input.dtype)


def split(input: Arr, *, sizes: Any, axis: int) -> tuple[Arr, ...]:
    parts, start = [], 0
    for size in sizes:
        shape = (*input.shape[:axis], size, *input.shape[axis + 1 :])
        offset = np.eye(input.ndim, dtype=int)[axis] * start
        parts.append(copied(input, shape, lambda place, offset=offset: np.add(place, offset)))
        start += size
    return tuple(parts)


def joined(*inputs: Arr, axis: int) -> Arr:
    sizes = list(inputs[0].shape)
    sizes[axis] = sum(input.shape[axis] for input in inputs)
    output = np.empty(sizes, bits_of(inputs[0]).dtype)
    for place in np.ndindex(*sizes):
        within, which = list(place), 0
        while within[axis] >= inputs[which].shape[axis]:
            within[axis] -= inputs[which].shape[axis]
            which += 1
        output[place] = bits_of(inputs[which])[tuple(within)]
    return output.view(inputs[0].dtype)


def tiled(input: Arr, *, repeats: Any) -> Arr:
    sizes = tuple(np.multiply(input.shape, repeats))
    return copied(input, sizes, lambda place: np.remainder(place, input.shape))


def channel(order: DepthSpaceOrder, block: int, depth: int, row: int, column: int, c: int) -> int:
    if order is DepthSpaceOrder.DEPTH_COLUMN_ROW:
        return (row * block + column) * depth + c
    return (c * block + row) * block + column


def to_depth(input: Arr, *, block_size: int, order: Any) -> Arr:
    batch, depth, height, width = input.shape
    block = block_size
    output = np.empty((batch, depth * block**2, height // block, width // block), input.dtype)
    source, target = bits_of(input), bits_of(output)
    for n, c, y, x in np.ndindex(*input.shape):
        place = channel(order, block, depth, y % block, x % block, c)
        target[n, place, y // block, x // block] = source[n, c, y, x]
    return target.view(input.dtype)


def to_space(input: Arr, *, block_size: int, order: Any) -> Arr:
    batch, channels, height, width = input.shape
    block = block_size
    depth = channels // block**2
    output = np.empty((batch, depth, height * block, width * block), input.dtype)
    source, target = bits_of(input), bits_of(output)
    for n, c, y, x in np.ndindex(*output.shape):
        place = channel(order, block, depth, y % block, x % block, c)
        target[n, c, y, x] = source[n, place, y // block, x // block]
    return target.view(input.dtype)


# Descriptors


def slice_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.SliceDesc(
        input=TensorDesc(types["input"], ones(rank, 4, 7)),
        output=TensorDesc(types["input"], ones(rank, 3, 2)),
        offsets=(*(0 for _ in range(rank)), 1, 1)[-rank:],
        sizes=ones(rank, 3, 2),
        strides=ones(rank, 1, 3),
    )


def slice1_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.Slice1Desc(
        input=TensorDesc(types["input"], ones(rank, 4, 7)),
        output=TensorDesc(types["input"], ones(rank, 2, 3)),
        input_window_offsets=(*(0 for _ in range(rank)), 1, 1)[-rank:],
        input_window_sizes=ones(rank, 3, 6),
        input_window_strides=ones(rank, 2, -2),
    )


def slice_grad_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.SliceGradDesc(
        input_gradient=TensorDesc(types["input_gradient"], ones(rank, 2, 3)),
        output_gradient=TensorDesc(types["input_gradient"], ones(rank, 4, 7)),
        input_window_offsets=(*(0 for _ in range(rank)), 1, 1)[-rank:],
        input_window_sizes=ones(rank, 3, 6),
        input_window_strides=ones(rank, 2, -2),
    )


def split_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = [ones(rank, 3, size) for size in (1, 4, 2)]
    return directml.SplitDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 7)),
        outputs=tuple(TensorDesc(types["input"], part) for part in sizes),
        axis=rank - 1,
    )


def join_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = [ones(rank, size, 3) for size in (1, 4, 2)] if rank > 1 else [(1,), (4,), (2,)]
    return directml.JoinDesc(
        inputs=tuple(TensorDesc(types["inputs"], part) for part in sizes),
        output=TensorDesc(types["inputs"], ones(rank, 7, 3) if rank > 1 else (7,)),
        axis=max(rank - 2, 0),
    )


def tile_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.TileDesc(
        input=TensorDesc(types["input"], ones(rank, 2, 3)),
        output=TensorDesc(types["input"], ones(rank, 6, 6)),
        repeats=ones(rank, 3, 2),
    )


def blocks_desc(name: str) -> Any:
    operator = directml.OPERATORS[f"DML_OPERATOR_{name}"]
    image, deep = (2, 3, 4, 6), (2, 12, 2, 3)

    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        # No table has ranks other than 4, so these are not valid descriptors.
        sizes = [ones(rank, *(image if is_image else deep)) for is_image in (True, False)]
        input, output = sizes if name.startswith("SPACE") else sizes[::-1]
        order = {"order": DepthSpaceOrder.COLUMN_ROW_DEPTH} if name.endswith("1") else {}
        data_type = types["input"]
        return operator(input=TensorDesc(data_type, input), output=TensorDesc(data_type, output), block_size=2, **order)

    return make


def blocks_case(name: str) -> Case:
    move = to_depth if name.startswith("SPACE") else to_space

    def oracle(desc: Any, input: Arr) -> Arr:
        order = getattr(desc, "order", DepthSpaceOrder.DEPTH_COLUMN_ROW)
        return move(input, block_size=desc.block_size, order=order)

    return Case(("input",), blocks_desc(name), oracle)


CASES = {
    "SLICE": Case(
        ("input",),
        slice_desc,
        lambda desc, input: sliced(input, starts=desc.offsets, sizes=desc.sizes, strides=desc.strides),
    ),
    "SLICE1": Case(
        ("input",),
        slice1_desc,
        lambda desc, input: windowed(
            input,
            starts=desc.input_window_offsets,
            sizes=desc.input_window_sizes,
            strides=desc.input_window_strides,
            output_sizes=desc.output.sizes,
        ),
    ),
    "SLICE_GRAD": Case(
        ("input_gradient",),
        slice_grad_desc,
        lambda desc, input_gradient: put_back(
            input_gradient,
            starts=desc.input_window_offsets,
            sizes=desc.input_window_sizes,
            strides=desc.input_window_strides,
            output_sizes=desc.output_gradient.sizes,
        ),
    ),
    "SPLIT": Case(
        ("input",),
        split_desc,
        lambda desc, input: split(input, sizes=[tensor.sizes[desc.axis] for tensor in desc.outputs], axis=desc.axis),
    ),
    "JOIN": Case(("inputs",), join_desc, lambda desc, **inputs: joined(*inputs.values(), axis=desc.axis)),
    "TILE": Case(("input",), tile_desc, lambda desc, input: tiled(input, repeats=desc.repeats)),
    **{name: blocks_case(name) for name in ("SPACE_TO_DEPTH", "SPACE_TO_DEPTH1", "DEPTH_TO_SPACE", "DEPTH_TO_SPACE1")},
}


# Refusals

ROW = np.arange(10, dtype=np.int32)
IMAGE = np.zeros((4, 4, 6), np.float32)
WINDOW: dict[str, Any] = {"input_window_offsets": (1, 0), "input_window_sizes": (3, 6)}
WINDOW |= {"input_window_strides": (-2, 2)}
PARTS = (f32(2, 1), f32(2, 2))
SLICE = directml.SliceDesc(input=f32(4, 6), output=f32(2, 3), offsets=(1, 0), sizes=(2, 3), strides=(2, 2))
SLICE1 = directml.Slice1Desc(input=f32(4, 6), output=f32(2, 3), **WINDOW)
SLICE_GRAD = directml.SliceGradDesc(input_gradient=f32(2, 3), output_gradient=f32(4, 6), **WINDOW)
SPLIT = directml.SplitDesc(input=f32(2, 3), outputs=PARTS, axis=1)
JOIN = directml.JoinDesc(inputs=PARTS, output=f32(2, 3), axis=1)
TILE = directml.TileDesc(input=f32(2, 3), output=f32(4, 3), repeats=(2, 1))
TO_DEPTH = directml.SpaceToDepthDesc(input=f32(1, 1, 4, 4), output=f32(1, 4, 2, 2), block_size=2)
TO_SPACE = directml.DepthToSpaceDesc(input=f32(1, 4, 2, 2), output=f32(1, 1, 4, 4), block_size=2)
BYTES = tensor("INT8", 2, 3)

CALLS: dict[str, dict[str, Any]] = {
    "slice": {"input": ROW, "starts": (0,), "sizes": (2,)},
    "slice1": {"input": ROW, "starts": (0,), "sizes": (7,)},
    "slice_grad": {"input_gradient": ROW, "starts": (0,), "sizes": (10,), "output_sizes": (11,)},
    "split": {"input": ROW, "axis": 0},
    "join": {"axis": 0},
    "tile": {"input": ROW},
    "space_to_depth": {"input": IMAGE},
    "depth_to_space": {"input": IMAGE},
    "depth_to_space1": {"input": IMAGE, "block_size": 2},
}

REFUSED_DESCS: list[RefusedDesc] = [
    (SLICE, {"output": BYTES}, "InputTensor and OutputTensor must have the same DataType"),
    (SLICE1, {"output": BYTES}, "InputTensor and OutputTensor must have the same DataType"),
    (TILE, {"output": tensor("INT8", 4, 3)}, "InputTensor and OutputTensor must have the same DataType"),
    (TILE, {"output": f32(1, 4, 3)}, "must have the same DimensionCount; got 2 and 3"),
    (SLICE, {"output": f32(1, 2, 3)}, "must have the same DimensionCount; got 2 and 3"),
    (SLICE1, {"output": f32(1, 2, 3)}, "must have the same DimensionCount; got 2 and 3"),
    (SLICE, {"offsets": (1,), "sizes": (2,), "strides": (2,)}, "Offsets must have one number for ...; got {1}"),
    (SLICE, {"sizes": (2, 2)}, "OutputTensor.Sizes must be {2,2}; got {2,3}"),
    (SLICE, {"strides": (0, 2)}, "Strides[0] must be at least 1; got 0"),
    (SLICE, {"offsets": (2, 0)}, "Sizes[0] must keep Offsets[0] ... below 4, the size of InputTensor ...; got 4"),
    (SLICE1, {"input_window_offsets": (2, 0)}, "must keep ... at most 4, the size of InputTensor ...; got 5"),
    (SLICE1, {"input_window_sizes": (3, 0)}, "InputWindowSizes[1] must be at least 1; got 0"),
    (SLICE1, {"input_window_strides": (-2, 0)}, "InputWindowStrides[1] must not be 0; got 0"),
    (SLICE1, {"input_window_strides": (-3, 2)}, "OutputTensor.Sizes[0] must be at most 1, ...; got 2"),
    (SLICE_GRAD, {"output_gradient": f32(3, 6)}, "at most 3, the size of OutputGradientTensor ...; got 4"),
    (
        SLICE_GRAD,
        {"input_gradient": f32(2, 4)},
        "InputGradientTensor.Sizes[1] must be at most 3, the number ...; got 4",
    ),
    (SLICE_GRAD, {"input_gradient": BYTES}, "OutputGradientTensor and InputGradientTensor must have the same"),
    (SLICE_GRAD, {"input_window_strides": (-2, 0)}, "InputWindowStrides[1] must not be 0; got 0"),
    (SPLIT, {"outputs": (), "axis": 2}, "Axis must be less than 2"),
    (SPLIT, {"outputs": (BYTES,)}, "OutputTensors[0] and InputTensor must have the same DataType"),
    (SPLIT, {"outputs": ()}, "OutputTensors must have at least 1 element; got {}"),
    (SPLIT, {"axis": 2}, "Axis must be less than 2; got 2"),
    (SPLIT, {"outputs": PARTS[:1]}, "must add up to 3, the size of InputTensor along axis 1; got {1}"),
    (JOIN, {"output": f32(2, 4)}, "OutputTensor.Sizes must be {2,3}; got {2,4}"),
    (JOIN, {"inputs": ()}, "InputTensors must have at least 1 array; got 0"),
    (JOIN, {"axis": 2}, "Axis must be less than 2; got 2"),
    (JOIN, {"output": BYTES}, "InputTensors[0], ... and OutputTensor must have the same DataType"),
    (JOIN, {"output": f32(1, 2, 3)}, "InputTensors[0], ... must have the same DimensionCount; got 2, 2 and 3"),
    (JOIN, {"inputs": (f32(2, 1), f32(1, 2))}, "InputTensors[1].Sizes must be {2,2}; got {1,2}"),
    (TILE, {"repeats": (2,)}, "Repeats must have one number for each of the 2 dimensions of InputTensor; got {2}"),
    (TILE, {"repeats": (2, 0)}, "Repeats[1] must be at least 1; got 0"),
    (TILE, {"repeats": (2, 2)}, "OutputTensor.Sizes must be {4,6}; got {4,3}"),
    (TO_DEPTH, {"input": f32(1, 1, 4, 5)}, "InputTensor.Sizes[3] must be a multiple of 2; got 5"),
    # As on the page
    (
        TO_DEPTH,
        {"input": f32(1, 4, 4, 4), "output": f32(1, 1, 8, 8)},
        "OutputTensor.Sizes must be {1,16,2,2}; got {1,1,8,8}",
    ),
    (TO_DEPTH, {"block_size": 0}, "BlockSize must be at least 1; got 0"),
    (TO_SPACE, {"block_size": 0}, "BlockSize must be at least 1; got 0"),
    (TO_SPACE, {"input": f32(1, 6, 4, 4)}, "InputTensor.Sizes[1] must be a multiple of 4; got 6"),
    (TO_SPACE, {"input": f32(1, 4, 4, 4)}, "OutputTensor.Sizes must be {1,1,8,8}; got {1,1,4,4}"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("slice", {"starts": (-1,)}, InvalidDesc, "starts[0] must be at least 0; got -1"),
    ("slice1", {"strides": (2**31,)}, InvalidDesc, "strides[0] must be in [-2147"),
    (
        "slice1",
        {"strides": (-3,), "output_sizes": (4,)},
        InvalidDesc,
        "output_sizes[0] must be at most 3, the number of elements ...; got 4",
    ),
    ("split", {"sizes": (10, 0)}, InvalidDesc, "sizes[1] must be at least 1; got 0"),
    ("split", {"input": np.float32(1), "sizes": (1,)}, InvalidDesc, "input must have at least 1 dimension; got 0"),
    ("join", {"inputs": ROW}, InvalidType, "inputs must be a sequence of arrays; got one array of shape (10,)"),
    ("join", {"inputs": [ROW, [1, 2]]}, InvalidType, "inputs[1] must be a JAX or NumPy array"),
    ("join", {"inputs": [ROW, IMAGE[0, 0]]}, InvalidType, "inputs[1] must be of int32, as inputs[0] is; got float32"),
    ("tile", {"repeats": (2**32 - 1,)}, InvalidDesc, "result.shape[0] must be in [0, 4294967295]; got 42949672950"),
    (
        "depth_to_space",
        {"input": IMAGE[0], "block_size": 2},
        InvalidDesc,
        "input must have at least 3 dimensions; got 2",
    ),
]
