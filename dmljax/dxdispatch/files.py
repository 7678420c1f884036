"""Reads and writes arrays in buffers and files: .npy files, raw bytes and, with Pillow, images.

NumPy's files have no 4-bit elements; INT4 is stored as int8 and UINT4 as uint8, with a byte per element.

Models come from strangers, so we read only complete, regular files of bounded size, and write files only inside one
folder.
"""

import io
import math
import warnings
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import Any
from unicodedata import category

import numpy as np
from jax.numpy import iinfo
from numpy.typing import NDArray

from dmljax.descriptors.members import json_string
from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import InvalidDesc, Problem, require, unusable_file
from dmljax.foundation.files import import_pillow, open_file, open_replacement
from dmljax.text import one_line, reason_of, show
from dmljax.types import INTEGER_4, INTEGERS_4, DataType

IMAGES = (".jpg", ".png")
_MAX_HEADER = 2**20  # bytes of an .npy file's header
_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 1024  # Linux allows 4096 for a path including its folder
_MAX_DIMENSIONS = 64  # NumPy's limit
_IN_NPY = {DataType.INT4: DataType.INT8, DataType.UINT4: DataType.UINT8}
_IMAGE_TYPES = (DataType.FLOAT32, DataType.FLOAT16)
_IMAGE_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_values(path: Path, data_type: DataType, size: Sequence[int], at_most: int) -> tuple[DataType, NDArray[Any]]:
    """Reads the data type and values of a file; `data_type` may be UNKNOWN for an .npy file, which stores its type.

    `size` is the batch, channels, height and width to scale an image to; if empty, the image keeps its size.
    """
    with open_file(path, at_most + _MAX_HEADER) as file:
        if path.suffix.lower() == ".npy":
            values = _read_npy(file, path)
            file_type = _data_type_of(values.dtype, path)
            target_type = _IN_NPY.get(data_type, data_type)
            whose = "" if target_type is data_type else f" for {data_type.name}"
            rule = f"must hold {target_type.name}{whose} to match initialValuesDataType"
            require((), target_type in (DataType.UNKNOWN, file_type), rule, file_type.name)
            return (data_type, _convert_to_4_bits(values, data_type)) if data_type in INTEGER_4 else (file_type, values)
        rule = "needs initialValuesDataType, because only .npy files store their type"
        require((), data_type is not DataType.UNKNOWN, rule, "UNKNOWN")
        if path.suffix.lower() in IMAGES:
            return data_type, _read_image(file, path, data_type, size, at_most)
        return data_type, np.frombuffer(file.read(), np.uint8)


def _convert_to_4_bits(values: NDArray[Any], data_type: DataType) -> NDArray[Any]:
    limits = iinfo(data_type.dtype)
    outside = values[(values < limits.min) | (values > limits.max)]
    require((), not outside.size, f"must hold values in [{limits.min}, {limits.max}]", *outside[:1].tolist())
    return values.astype(data_type.dtype)


def _read_npy(file: Any, path: Path) -> NDArray[Any]:
    with _raise_if_undecodable(path, "must be a complete .npy file"):
        with warnings.catch_warnings(action="ignore"):  # NumPy warns about headers written by Python 2
            version = np.lib.format.read_magic(file)
            if version not in _HEADER_READERS:
                raise ValueError(f"version {version}")
            shape, fortran_order, dtype = _HEADER_READERS[version](file)
        _data_type_of(dtype, path)
        data = file.read()
        if len(data) != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{len(data)} bytes for {dtype} {list(shape)}")
        values = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran_order else "C")
    return np.ascontiguousarray(values.astype(dtype.newbyteorder("="), copy=False))


@contextmanager
def _raise_if_undecodable(path: Path, rule: str) -> Iterator[None]:
    """Raises a DmlError if a decoder cannot read its file; NumPy and Pillow raise many kinds of errors."""
    try:
        yield
    except InvalidDesc:
        raise
    except Exception as error:
        raise InvalidDesc(Problem((), rule, f"'{one_line(path)}' ({reason_of(error)})")) from None


_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def _data_type_of(dtype: np.dtype[Any], path: Path) -> DataType:
    name = "UINT8" if dtype == np.bool_ else dtype.name.upper()
    is_known = name in DataType.__members__ and dtype.kind in "fiub" and not dtype.shape
    require((), is_known, "must hold numbers of a DirectML data type", f"{one_line(dtype)} in '{one_line(path)}'")
    return DataType[name]


def _read_image(file: Any, path: Path, data_type: DataType, size: Sequence[int], at_most: int) -> NDArray[Any]:
    image_module = import_pillow()
    require((), data_type in _IMAGE_TYPES, "must be read as FLOAT32 or FLOAT16, because it is an image", data_type.name)
    rule = "must be scaled to resampleSize [1, channels, height, width] with 1, 3 or 4 channels"
    require((), not size or _is_image(size, tuple(_IMAGE_MODES)), rule, list(size))
    channels = size[1] if size else 3
    with _raise_if_undecodable(path, "must be an image"), image_module.open(file) as image:
        height, width = size[2:] if size else (image.height, image.width)
        byte_count = max(height * width, image.height * image.width) * channels * 4
        picture = f"'{one_line(path)}', {image.height} x {image.width}"
        require((), byte_count <= at_most, f"must take at most {at_most} bytes", picture)
        pixels = image.convert(_IMAGE_MODES[channels])
        if pixels.size != (width, height):
            pixels = pixels.resize((width, height), image_module.Resampling.BICUBIC)
        bytes_of_rows = np.asarray(pixels).reshape(height, width, channels)
    return (bytes_of_rows.transpose(2, 0, 1).astype(np.float32) / np.float32(255)).astype(data_type.dtype)


def _is_image(sizes: Sequence[int], channels: Container[int]) -> bool:
    return len(sizes) == 4 and sizes[0] == 1 and sizes[1] in channels and 0 not in sizes


def view_elements(data: NDArray[np.uint8], data_type: DataType) -> NDArray[Any]:
    """Views a buffer as elements of a data type, without the bytes of an incomplete last element.

    Copies 4-bit elements, because an array has a byte for each.
    """
    if data_type in INTEGER_4:
        return TensorDesc(data_type, (2 * data.size,)).read(data) if data.size else np.zeros(0, data_type.dtype)
    return data[: data.size // data_type.dtype.itemsize * data_type.dtype.itemsize].view(data_type.dtype)


def bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of elements in a buffer; 4-bit elements are two to a byte, the first in the low half."""
    if values.dtype in INTEGERS_4:
        desc = TensorDesc(DataType[values.dtype.name.upper()], (values.size,))
        return np.frombuffer(desc.buffer_of(values.ravel()), np.uint8)
    return values.reshape(-1).view(np.uint8)


def target_path(name: str, value: Any) -> PureWindowsPath:
    """Reads a path below the output folder; slash and backslash both separate folders, as on Windows.

    Raises if a path leaves the folder, or if a file system cannot store it.
    """
    text = json_string(name, value)
    path = PureWindowsPath(text)
    if not path.parts or ".." in path.parts or path.anchor or text.endswith(("/", "\\")):
        raise InvalidDesc(Problem(name, "must be a file inside the output folder", show(text)))
    if any(category(character) == "Cc" for character in text):
        raise InvalidDesc(Problem(name, "must not contain control characters", show(text)))
    if len(text.encode()) > _MAX_PATH_BYTES or any(len(part.encode()) > _MAX_NAME_BYTES for part in path.parts):
        limits = f"at most {_MAX_PATH_BYTES} bytes, {_MAX_NAME_BYTES} in each part"
        raise InvalidDesc(Problem(name, f"must be a path of {limits}", show(text)))
    return path


def target_in(folder: Path, target: str) -> Path:
    """The file that `target` names inside `folder`; raises if a path leaves `folder`, even through a link."""
    root = folder.resolve()
    try:
        path = (root / target).resolve()
        is_taken = path.exists() and not path.is_file()  # opening a pipe would block
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a NUL, or a name that is too long
        raise InvalidDesc(Problem("targetPath", "must name a file", f"{show(target)} ({reason_of(error)})")) from None
    is_inside = path.is_relative_to(root) and not is_taken
    require("targetPath", is_inside, "must be a file inside the output folder", show(target))
    return path


def check_writable(suffix: str, size_in_bytes: int, data_type: DataType, dimensions: Sequence[int]) -> None:
    """Raises if a buffer's data type or `dimensions` do not fit an .npy file or an image."""
    suffix = suffix.lower()
    if suffix not in (".npy", *IMAGES):
        return
    is_typed = data_type is not DataType.UNKNOWN
    require("resource", is_typed, "must have an initialValuesDataType to be written as numbers", "UNKNOWN")
    count, most = size_in_bytes * 8 // data_type.bits, f"must have at most {_MAX_DIMENSIONS} elements"
    require("dimensions", len(dimensions) <= _MAX_DIMENSIONS, most, len(dimensions))
    if dimensions and math.prod(dimensions) > count:
        raise InvalidDesc(Problem("dimensions", f"must describe at most {count} elements", show(tuple(dimensions))))
    if suffix in IMAGES:
        rule = "must be of FLOAT32 or FLOAT16 to be written as an image"
        require("resource", data_type in _IMAGE_TYPES, rule, data_type.name)
        channels = (1, 3) if suffix == ".jpg" else (1, 3, 4)
        rule = f"must be [1, channels, height, width] with {' or '.join(map(str, channels))} channels"
        require("dimensions", _is_image(dimensions, channels), rule, show(tuple(dimensions)))


def write_values(path: Path, data: NDArray[np.uint8], data_type: DataType, dimensions: Sequence[int]) -> None:
    """Writes a buffer to a file: by suffix, as an .npy array or image of `dimensions`, or as raw bytes."""
    suffix = path.suffix.lower()
    check_writable(suffix, data.size, data_type, dimensions)
    values: Any = None
    if suffix in (".npy", *IMAGES):
        elements = view_elements(data, data_type)
        values = elements[: math.prod(dimensions)].reshape(dimensions) if dimensions else elements
    image = io.BytesIO()  # encoded first, so that an error leaves an existing file untouched
    try:
        if suffix in IMAGES:
            _image_of(values).save(image, format="JPEG" if suffix == ".jpg" else "PNG")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_replacement(path) as file:
            if suffix == ".npy":
                values = values.astype(_IN_NPY[data_type].dtype) if data_type in INTEGER_4 else values
                np.lib.format.write_array(file, values, allow_pickle=False)
            else:
                file.write(image.getbuffer() if suffix in IMAGES else data.data)
    except OSError as error:
        reason = f"'{one_line(path)}' ({reason_of(error)})"
        problem = Problem("targetPath", "must be a writable file", reason)
        raise unusable_file(problem, error, str(path)) from None


def _image_of(values: NDArray[Any]) -> Any:
    # As in DxDispatch, the order of comparisons turns NaN into white, and the cast to integers truncates.
    pixels = np.maximum(np.float32(0), np.where(values < 1, values, np.ones((), values.dtype)).astype(np.float32))
    rows = (pixels[0].transpose(1, 2, 0) * np.float32(255)).astype(np.uint8)
    return import_pillow().fromarray(rows[..., 0] if rows.shape[2] == 1 else rows, _IMAGE_MODES[rows.shape[2]])
