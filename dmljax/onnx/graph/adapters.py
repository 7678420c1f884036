"""Reads and writes ONNX Runtime's adapters: files of arrays that replace inputs of a model, such as LoRA's matrices."""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import helper

from dmljax.errors import InvalidDesc, Problem, Unsupported, inside, unusable_file
from dmljax.foundation.files import open_file, open_output
from dmljax.graphs.flatbuffer import Buffer, TableReader, build
from dmljax.text import one_line, reason_of, show

VERSION = 1  # of the format
_IDENTIFIER = b"TORT"
_MOST_BYTES = 2**31 - 1  # to which an offset can lead
_TYPES = (1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 16, 17, 18, 19, 20)  # of ONNX: integers from 8 bits on, and floats


class Adapter(NamedTuple):
    """The content of an adapter's file: arrays by the names of inputs, and versions that mean what its maker says."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    adapter_version: int = 0
    model_version: int = 0


def read_adapter(path: Path) -> Adapter:
    """Reads the file of an adapter."""
    with open_file(path, _MOST_BYTES) as file:
        data = file.read()
    with inside((path.name,)):
        if data[4:8] != _IDENTIFIER:
            raise InvalidDesc(Problem((), "must be an adapter of ONNX Runtime, with TORT after the first four bytes"))
        root = Buffer(data, "an adapter of ONNX Runtime").root()
        version = root.number(4, "i")
        if version != VERSION:
            raise Unsupported(Problem("format_version", f"must be {VERSION}", version))
        return Adapter(dict(_arrays(root)), root.number(6, "i"), root.number(8, "i"))


def _arrays(root: TableReader) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for parameter in root.tables(10):
        name, sizes, number = parameter.text(4), parameter.numbers(6, "int64"), parameter.number(8, "i")
        with inside((name,)):
            if number not in _TYPES:
                raise Unsupported(Problem("data_type", "must be that of integers from 8 bits on, or of floats", number))
            data, dtype = parameter.numbers(10, "uint8"), np.dtype(helper.tensor_dtype_to_np_dtype(number))
            if name == "" or data is None or sizes is None or not len(sizes):
                raise InvalidDesc(Problem((), "must have a name, sizes and elements"))
            shape = tuple(map(int, sizes))
            if min(shape) < 0 or prod(shape) * dtype.itemsize != len(data):
                raise InvalidDesc(Problem((), f"must have the bytes of {dtype} of shape {shape}", len(data)))
            yield name, data.view(dtype).reshape(shape)


def write_adapter(path: Path, adapter: Adapter) -> None:
    """Writes the file of an adapter."""
    tables = [_table(name, array) for name, array in adapter.arrays.items()]
    size = sum(array.nbytes for array in adapter.arrays.values())
    if size > _MOST_BYTES - 2**20:
        raise Unsupported(Problem((), f"adapters must be smaller than {_MOST_BYTES + 1} bytes", size))
    numbers = {4: VERSION, 6: adapter.adapter_version, 8: adapter.model_version}
    data = build({**{slot: ("i", number) for slot, number in numbers.items()}, 10: tables}, _IDENTIFIER)
    try:
        with open_output(path) as file:
            file.write(data)
    except OSError as error:
        problem = Problem((), "must be a writable file", f"'{one_line(path)}' ({reason_of(error)})")
        raise unusable_file(problem, error, str(path)) from None


def _table(name: str, array: np.ndarray[Any, Any]) -> dict[int, Any]:
    number = 0 if array.dtype.kind in "OUS" else int(helper.np_dtype_to_tensor_dtype(array.dtype))
    if number not in _TYPES or not array.ndim:
        rule = "must be integers from 8 bits on, or floats, with at least one dimension"
        raise Unsupported(Problem(name, rule, show(array)))
    return {4: name, 6: np.array(array.shape, np.int64), 8: ("i", number), 10: np.ascontiguousarray(array).tobytes()}
