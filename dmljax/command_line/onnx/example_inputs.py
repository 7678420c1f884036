"""Makes inputs for a model, from files and from random numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from dmljax.command_line.onnx.arrays import SEED, array_of_input, draw_array
from dmljax.command_line.onnx.input_types import GivenSizes, type_of_input
from dmljax.command_line.onnx.open_caches import open_caches
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.files import MODES, PICTURES, read_picture
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.model import Model
from dmljax.onnx.values.types import Elements
from dmljax.text import did_you_mean


def make_inputs(model: Model, files: Mapping[str, str], sizes: GivenSizes) -> dict[str, Elements]:
    """Makes a model's inputs: arrays and images from files by name, and random numbers for the others.

    An input with a default keeps it unless a file or shape names it.
    """
    names, shapes = [tensor.name for tensor in (*model.inputs, *model.defaults)], sizes.shapes
    for option, name in (*(("input", name) for name in files), *(("shape", name) for name in shapes)):
        if name not in names:
            rule = f"must name one of the inputs {', '.join(names)}"
            raise InvalidDesc(Problem((option, name), rule, name + did_you_mean(name, names)))
    random = np.random.default_rng(SEED)
    inputs = (*model.inputs, *(tensor for tensor in model.defaults if tensor.name in files or tensor.name in shapes))
    types = sizes._replace(names=open_caches(model).with_sizes(sizes.names)).overridden(inputs)
    return {
        tensor.name: _read(files[tensor.name], tensor)
        if tensor.name in files
        else _random(random, tensor, shapes.get(tensor.name))
        for tensor in types
    }


def _read(path: str, tensor: TensorType) -> Elements:
    suffix = Path(path).suffix.lower()
    if suffix in PICTURES:
        return _from_picture(path, tensor)
    return array_of_input(path, tensor.name)


def _from_picture(path: str, tensor: TensorType) -> Elements:
    """Reads a picture as a batch of one, with channels where the input has 1, 3 or 4; scales floats to [0, 1]."""
    sizes, dtype = tensor.sizes or (), tensor.dtype
    is_float = dtype is not None and jnp.issubdtype(dtype, jnp.floating)
    channels_at = next((axis for axis in (-3, -1) if len(sizes) in (3, 4) and sizes[axis] in MODES), None)
    if dtype is None or channels_at is None or not (is_float or dtype == np.uint8):
        rule = "must have 1, 3 or 4 channels, first or last, of floats or uint8, to be read from an image"
        raise InvalidDesc(Problem(tensor.name, rule, tensor, remedy=f"--input {tensor.name}=FILE.npy"))
    height, width = (
        size if isinstance(size, int) else None for size in (sizes[-2:] if channels_at == -3 else sizes[-3:-1])
    )
    pixels = read_picture(Path(path), MODES[sizes[channels_at]], height, width)
    pixels = np.moveaxis(pixels, -1, 0) if channels_at == -3 else pixels
    pixels = (pixels.astype(np.float32) / np.float32(255)).astype(dtype) if is_float else pixels
    return pixels[None] if len(sizes) == 4 else pixels


def _random(random: np.random.Generator, tensor: TensorType, shape: Sequence[int] | None) -> Elements:
    """Draws normally distributed floats, or zeros and ones for integers, which may be indices."""
    rule, remedy = "must be a tensor of numbers to be filled at random", f"--input {tensor.name}=FILE.npy"
    struct = type_of_input(tensor, shape, rule=rule, remedy=remedy)
    return draw_array(random, struct.shape, struct.dtype)
