"""Tries out a model: makes inputs, measures time, and compares with another runtime."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from dmljax.errors import DmlError, InvalidDesc, Problem, Unsupported, inside
from dmljax.foundation.files import opened, pillow, unreadable
from dmljax.onnx.file import TensorType
from dmljax.onnx.model import Model, load as load
from dmljax.onnx.open_caches import open_caches
from dmljax.onnx.parameters import Elements, Value
from dmljax.text import did_you_mean, join_words, reason_of

SEED = 0
CALLS = 5  # after the first one
SHOWN = 8  # elements of a result


class Trial(NamedTuple):
    """The results of a model by output name, the seconds of its first call, and the median of later calls."""

    results: dict[str, Any]
    first: float
    median: float

    @property
    def compilation(self) -> float:
        return max(self.first - self.median, 0.0)


def make_inputs(
    model: Model,
    files: Mapping[str, str],
    shapes: Mapping[str, Sequence[int]],
    names_of_sizes: Mapping[str, int],
    denotations: Mapping[str, int],
) -> dict[str, Elements]:
    """Makes a model's inputs: arrays and images from files by name, and random numbers for the others.

    Open sizes may be given by shape, by name or by denotation. An input with a default keeps it unless a file or shape
    is given for it.
    """
    names = [one.name for one in (*model.inputs, *model.defaults)]
    for kind, given in (("input", files), ("shape", shapes)):
        for name in given:
            if name not in names:
                rule = f"must name one of the inputs {', '.join(names)}"
                raise InvalidDesc(Problem((kind, name), rule, name + did_you_mean(name, names)))
    random = np.random.default_rng(SEED)
    wanted = (*model.inputs, *(one for one in model.defaults if one.name in files or one.name in shapes))
    types = [one.overridden(open_caches(model).with_sizes(names_of_sizes), denotations) for one in wanted]
    return {
        one.name: _read(files[one.name], one) if one.name in files else _random(random, one, shapes.get(one.name))
        for one in types
    }


def types_of_inputs(
    model: Model,
    shapes: Mapping[str, Sequence[int]],
    names_of_sizes: Mapping[str, int],
    denotations: Mapping[str, int],
    batch: int | None,
) -> list[jax.ShapeDtypeStruct]:
    """The types of a model's inputs; an open first dimension becomes `batch`, and any other open size 1."""
    names_of_sizes = open_caches(model).with_sizes(names_of_sizes)
    wanted = [one.overridden(names_of_sizes, denotations) for one in model.inputs]
    _require_open_batch(wanted, shapes, batch)
    return [_type(one, shapes.get(one.name), batch or 1) for one in wanted]


def _require_open_batch(wanted: Sequence[TensorType], shapes: Mapping[str, Sequence[int]], batch: int | None) -> None:
    """Refuses a batch if the first dimension of every input is fixed or has a given shape."""
    has_batch = any(one.sizes and not isinstance(one.sizes[0], int) for one in wanted if one.name not in shapes)
    if batch is not None and not has_batch:
        given = join_words(map(str, wanted)) or "no inputs"
        remedy = "leave it out, or export the model with an open batch"
        raise InvalidDesc(
            Problem("batch", "needs a model with an input whose first dimension is open", given, remedy=remedy)
        )


def open_types_of_inputs(
    model: Model,
    shapes: Mapping[str, Sequence[int]],
    names_of_sizes: Mapping[str, int],
    denotations: Mapping[str, int],
    batch: int | None,
    divisor: int,
    multiples: Mapping[str, tuple[int, str]] = MappingProxyType({}),
) -> list[jax.ShapeDtypeStruct]:
    """Returns the types of a model's inputs, with symbols for open sizes; `batch` is each input's first size.

    First sizes that stay open are multiples of `divisor`, and others are `multiples`: a factor and the symbol's name
    for the name of a size. A total of past and new tokens is their sum.
    """
    caches = open_caches(model)
    names_of_sizes = {**caches.decided, **names_of_sizes}
    if batch is not None:
        _require_open_batch([one.overridden(names_of_sizes, denotations) for one in model.inputs], shapes, batch)
        first = {one.sizes[0] for one in model.inputs if one.sizes}
        names_of_sizes = {**{one: batch for one in first if isinstance(one, str)}, **names_of_sizes}
    wanted = [one.overridden(names_of_sizes, denotations) for one in model.inputs]
    # A valid Python name for each open size, after the factor and `*` of a multiple
    symbols = {name: f"{factor}*{_symbol(one)}" for name, (factor, one) in multiples.items()}
    spelled = []
    for i, one in enumerate(wanted):
        sizes: Sequence[Any] = shapes.get(one.name) or one.sizes or ()
        names = [f"d{i}_{axis}" if size is None else size for axis, size in enumerate(sizes)]
        if batch is not None and names and not isinstance(names[0], int):
            names[0] = batch
        spelled.append([symbols.setdefault(name, _symbol(name)) if isinstance(name, str) else name for name in names])
    opened = [*dict.fromkeys(symbol.rpartition("*")[2] for symbol in symbols.values())]
    sizes_of: dict[Any, Any] = (
        dict(zip(opened, jax.export.symbolic_shape(", ".join(opened)), strict=True)) if opened else {}
    )
    sizes_of |= {f"{k}*{_symbol(one)}": k * sizes_of[_symbol(one)] for k, one in multiples.values()}
    sizes_of |= {names[0]: divisor * sizes_of[names[0]] for names in spelled if names and names[0] in sizes_of}
    known = {**names_of_sizes, **{name: sizes_of[symbol] for name, symbol in symbols.items()}}
    for total, (past, new) in caches.totals.items():
        if total in symbols and past in known and new in known:
            sizes_of[symbols[total]] = known[past] + known[new]
    types = [_type(one, shapes.get(one.name), 1) for one in wanted]  # refuses inputs that are not tensors
    return [
        jax.ShapeDtypeStruct(tuple(sizes_of.get(size, size) for size in sizes), one.dtype)
        for sizes, one in zip(spelled, types, strict=True)
    ]


def _symbol(name: str) -> str:
    """A name of a size as jax.export reads it."""
    symbol = re.sub(r"\W", "_", name)
    return symbol if symbol.isidentifier() else f"d_{symbol}"


def _type(wanted: TensorType, shape: Sequence[int] | None, batch: int) -> jax.ShapeDtypeStruct:
    if wanted.dtype is None or wanted.dtype.kind == "O" or (wanted.sizes is None and shape is None):
        remedy = "--binding_shape NAME:1,3,224,224 gives a shape"
        raise Unsupported(Problem(wanted.name, "must be a tensor of numbers with a shape", wanted, remedy=remedy))
    opened = [batch, *[1] * len(wanted.sizes or ())]
    sizes = [own if isinstance(own, int) else size for own, size in zip(wanted.sizes or (), opened, strict=False)]
    return jax.ShapeDtypeStruct(tuple(sizes if shape is None else shape), wanted.dtype)


def files_by_name(texts: Sequence[str]) -> dict[str, str]:
    """Parses NAME=FILE options; an .npz file needs no name, and gives all arrays in it."""
    files: dict[str, str] = {}
    for text in texts:
        name, _, path = text.rpartition("=")  # names may have equals signs
        if name and path:
            files[name] = path
        elif not name and path.lower().endswith(".npz"):
            files |= dict.fromkeys(_loaded(path), path)
        else:
            raise InvalidDesc(Problem("input", "must be NAME=FILE, or an .npz file", text))
    return files


def _read(path: str, wanted: TensorType) -> Elements:
    suffix = Path(path).suffix.lower()
    if suffix in IMAGES:
        return _read_image(path, wanted)
    given = _loaded(path)
    if isinstance(given, np.ndarray):
        return given
    name = wanted.name if wanted.name in given or len(given) != 1 else next(iter(given))
    if name not in given:
        rule = f"{Path(path).name} must have an array with the input's name, or only one array"
        raise InvalidDesc(Problem(("input", wanted.name), rule, join_words(given) or "none"))
    elements: Elements = given[name]
    return elements


def array_in(path: str) -> Elements:
    """The array in an .npy file, or the only one in an .npz file."""
    given = _loaded(path)
    found = {"": given} if isinstance(given, np.ndarray) else given
    if len(found) != 1:
        raise InvalidDesc(Problem((), f"{Path(path).name} must have one array", join_words(found) or "none"))
    elements: Elements = next(iter(found.values()))
    return elements


def _loaded(path: str) -> Any:
    """Loads the array in an .npy file, or the arrays in an .npz file by name."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return dict(loaded)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, OSError):
            raise unreadable(Path(path), error) from None
        kinds = ".npy, .npz, " + ", ".join(IMAGES)
        raise InvalidDesc(Problem((), f"{Path(path).name} must be one of {kinds}", reason_of(error))) from None


IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")  # formats that Pillow reads
_MODES: dict[Any, str] = {1: "L", 3: "RGB", 4: "RGBA"}


def _read_image(path: str, wanted: TensorType) -> Elements:
    """Reads an image as a batch of one, with channels where the input has 1, 3 or 4; scales floats to [0, 1]."""
    sizes, dtype = wanted.sizes or (), wanted.dtype
    is_float = dtype is not None and jax.numpy.issubdtype(dtype, jax.numpy.floating)
    channels_at = next((axis for axis in (-3, -1) if len(sizes) in (3, 4) and sizes[axis] in _MODES), None)
    if dtype is None or channels_at is None or not (is_float or dtype == np.uint8):
        rule = "must have 1, 3 or 4 channels, first or last, of floats or uint8, to be read from an image"
        raise InvalidDesc(Problem(wanted.name, rule, wanted, remedy=f"--input {wanted.name}=FILE.npy"))
    height, width = sizes[-2:] if channels_at == -3 else sizes[-3:-1]
    module = pillow()
    try:
        with opened(Path(path), MAX_IMAGE_BYTES) as file, module.open(file) as image:
            image = image.convert(_MODES[sizes[channels_at]])
            shape = (
                width if isinstance(width, int) else image.width,
                height if isinstance(height, int) else image.height,
            )
            pixels = np.asarray(image if image.size == shape else image.resize(shape, module.Resampling.BICUBIC))
    except (OSError, ValueError, SyntaxError, module.DecompressionBombError) as error:  # all that decoders raise
        if isinstance(error, DmlError):
            raise
        raise InvalidDesc(Problem((), f"{Path(path).name} must be an image", reason_of(error))) from None
    pixels = pixels.reshape(shape[1], shape[0], -1)
    pixels = np.moveaxis(pixels, -1, 0) if channels_at == -3 else pixels
    pixels = (pixels.astype(np.float32) / np.float32(255)).astype(dtype) if is_float else pixels
    return pixels[None] if len(sizes) == 4 else pixels


MAX_IMAGE_BYTES = 2**30  # of a file


def _random(random: np.random.Generator, wanted: TensorType, shape: Sequence[int] | None) -> Elements:
    """Draws normally distributed floats, or zeros and ones for integers, which may be indices."""
    if wanted.dtype is None or wanted.dtype.kind == "O" or (wanted.sizes is None and shape is None):
        remedy = f"--input {wanted.name}=FILE.npy"
        raise Unsupported(
            Problem(wanted.name, "must be a tensor of numbers to be filled at random", wanted, remedy=remedy)
        )
    sizes = [size if isinstance(size, int) else 1 for size in wanted.sizes or ()] if shape is None else shape
    if jax.numpy.issubdtype(wanted.dtype, jax.numpy.floating):
        return random.standard_normal(sizes).astype(wanted.dtype)
    return random.integers(0, 2, sizes).astype(wanted.dtype)


def try_model(model: Model, inputs: Mapping[str, Elements]) -> Trial:
    """Calls a model once to compile it, and then a few times to measure it, always with the same random key."""
    placed = [inputs[one.name] for one in model.inputs]
    named: dict[str, Any] = {one.name: inputs[one.name] for one in model.defaults if one.name in inputs}
    if model.is_random:
        named["key"] = jax.random.key(SEED)

    def call() -> Any:
        return jax.block_until_ready(model(*placed, **named))

    first = _seconds(call)
    results, times = None, []
    for _ in range(CALLS):
        start = time.perf_counter()
        results = call()
        times.append(time.perf_counter() - start)
    several = results if isinstance(results, tuple) else (results,)
    by_name = zip((one.name for one in model.outputs), several, strict=True)
    return Trial(dict(by_name), first, float(np.median(times)))


def try_onnxruntime(path: str, inputs: Mapping[str, Elements]) -> Trial:
    """Runs the model by ONNX Runtime on the CPU."""
    try:
        import onnxruntime
    except ImportError as error:
        remedy = "pip install onnxruntime"
        raise Unsupported(Problem("compare", "needs the package onnxruntime", str(error), remedy=remedy)) from None
    with inside("onnxruntime"):
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            first = _seconds(lambda: session.run(None, dict(inputs)))
            times = []
            for _ in range(CALLS):
                start = time.perf_counter()
                results = session.run(None, dict(inputs))
                times.append(time.perf_counter() - start)
        except Exception as error:  # its errors derive directly from Exception
            raise Unsupported(Problem((), f"cannot run the model: {reason_of(error)}")) from None
    names = [one.name for one in session.get_outputs()]
    return Trial(dict(zip(names, results, strict=True)), first, float(np.median(times)))


def greatest_difference(one: ArrayLike, other: ArrayLike) -> float:
    """The greatest difference between two tensors; infinity if their shapes differ or only one has NaN somewhere."""
    one, other = (np.asarray(value, np.float64) for value in (one, other))
    if one.shape != other.shape:
        return np.inf
    if not np.array_equal(np.isnan(one), np.isnan(other)):
        return np.inf
    with np.errstate(invalid="ignore"):
        distances = np.where((one == other) | np.isnan(one), 0, np.abs(one - other))
    return float(np.max(distances, initial=0))


def shown(result: Value) -> str:
    """Describes a result: its type and its first elements."""
    if not isinstance(result, jax.Array):
        return f"{len(result)} elements of a sequence" if isinstance(result, list) else str(result)
    elements = np.asarray(result).ravel()[:SHOWN].tolist()
    dots = ", ..." if result.size > SHOWN else ""
    spelled = ", ".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in elements)
    return f"{jax.typeof(result).str_short()} {spelled}{dots}"


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
