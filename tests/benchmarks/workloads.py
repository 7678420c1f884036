"""The same work for every rival: inputs, how each computes the result, and how results become comparable."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as errors

import dmljax

DMLJAX, IDIOM, MEMORY = "dmljax", "jax.numpy", "memory"
TORCH, STATIC, ONNX, NUMPY = "torch", "torch static", "onnxruntime", "numpy"
RIVALS = (IDIOM, TORCH, STATIC, ONNX, NUMPY, MEMORY)

Function = Callable[..., Any]
Array = NDArray[Any]

SMALL, MEDIUM, LARGE = 2**10, 2**20, 2**24
SEED = 2021
OPSET = 18


def as_numpy(result: Any) -> Array:
    """A result of any rival."""
    return np.asarray(result.numpy() if isinstance(result, onnxruntime.OrtValue) else result)


@dataclass(frozen=True)
class OnnxNode:
    """One operator of ONNX; `feeds` makes its inputs of the workload's, in its types. None is an input left out."""

    operator: str
    feeds: Callable[..., Mapping[str, Array | None]]
    attributes: dict[str, Any]
    outputs: int = 1
    opset: int = OPSET


@dataclass(frozen=True)
class Work:
    """One operator on one set of inputs. The functions take `inputs` by position, each in its library's arrays.

    Results are compared with NumPy's, or with ours where NumPy has none.
    """

    inputs: tuple[Array, ...]
    dmljax: Function
    jax: Function | None = None
    torch: Function | None = None
    numpy: Function | None = None
    memory: Function | None = None  # reads the input once, writes the output once, and computes nothing
    torch_static: Function | None = None
    onnx: OnnxNode | None = None
    comparable: Function = as_numpy
    tolerance: float = 0  # beside 1 and beside each element

    @property
    def of_jax(self) -> dict[str, Function]:
        """The functions of JAX's arrays: ours, and the idiom if there is one."""
        return {DMLJAX: self.dmljax} | ({} if self.jax is None else {IDIOM: self.jax})

    @cached_property
    def calls(self) -> dict[str, Callable[[], Any]]:
        """A call without arguments for each rival that can do the work, on data that lies where it wants it."""
        calls = {name: _jitted(function, self.inputs) for name, function in self.of_jax.items()}
        tensors = [torch.from_numpy(x) for x in self.inputs]
        # PyTorch indexes by int64 and widens what is narrower on every call.
        tensors = [x.long() if i > 0 and x.dtype == torch.int32 and x.ndim else x for i, x in enumerate(tensors)]
        if self.torch is not None:
            calls[TORCH] = partial(self.torch, *tensors)
        if self.torch_static is not None:
            calls[STATIC] = partial(self.torch_static, *tensors)
        if self.onnx is not None:
            session = _session(self.onnx, self.inputs)
            if session is not None:
                calls[ONNX] = session
        if self.numpy is not None:
            calls[NUMPY] = partial(self.numpy, *self.inputs)
        if self.memory is not None:
            calls[MEMORY] = _jitted(self.memory, self.inputs)
        return calls

    def check(self) -> None:
        """Refuses to compare rivals whose results differ."""
        expected = self.comparable(self.calls[NUMPY if NUMPY in self.calls else DMLJAX]())
        for name, call in self.calls.items():
            if name != MEMORY:
                actual, tolerance = self.comparable(call()), self.tolerance
                np.testing.assert_allclose(actual, expected, tolerance, tolerance, err_msg=name)


@dataclass(frozen=True)
class Workload:
    """What a line of the table tells of, and how to come by its work."""

    operator: str
    dtype: str
    elements: int
    detail: str
    work: Callable[[], Work]


def _jitted(function: Function, inputs: Sequence[Array]) -> Callable[[], Any]:
    compiled, arrays = jax.jit(function), jax.device_put(inputs)
    return lambda: jax.block_until_ready(compiled(*arrays))


def _session(node: OnnxNode, inputs: Sequence[Array]) -> Callable[[], Any] | None:
    """A call of ONNX Runtime, or None where it has no kernel for these types."""
    given = node.feeds(*inputs)
    feeds = {name: x for name, x in given.items() if x is not None}
    described = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    names = [name if name in feeds else "" for name in given]
    results = [f"output{i}" for i in range(node.outputs)]
    nodes = [onnx.helper.make_node(node.operator, names, results, **node.attributes)]
    infos = [onnx.ValueInfoProto(name=name) for name in results]
    graph = onnx.helper.make_graph(nodes, node.operator, described, infos)
    domains = [onnx.helper.make_opsetid("", node.opset), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=domains, ir_version=9)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except (errors.NotImplemented, errors.InvalidGraph):
        return None
    bound = session.io_binding()
    for name, x in feeds.items():
        bound.bind_cpu_input(name, x)

    def call() -> Any:
        for name in results:
            bound.bind_output(name)  # afresh, as every other rival allocates its result
        session.run_with_iobinding(bound)
        computed = bound.get_outputs()
        return computed[0] if len(computed) == 1 else computed

    return call


def numbers(dtype: str, shape: tuple[int, ...]) -> Array:
    """Random numbers, none of them zero or subnormal."""
    rng = np.random.default_rng(SEED)
    if np.dtype(dtype).kind == "i":
        return rng.integers(1, 1000, shape).astype(dtype)
    return (rng.random(shape, np.float32) + np.float32(0.5)).astype(dtype)


def _at_least(elements: int) -> int:
    return 1 << max(elements - 1, 0).bit_length()


# NONZERO_COORDINATES


def nonzero_coordinates(dtype: str, elements: int, density: float, *, all_rows: bool) -> Work:
    """Rows for every element, as DirectML has it, or the least power of two that holds the count."""
    shape = (elements // 64, 64)
    present = np.random.default_rng(SEED).random(shape) < density
    count = int(present.sum())
    size = elements if all_rows else _at_least(count)

    def comparable(result: Any) -> Array:
        if isinstance(result, dmljax.NonzeroCoordinates):
            assert int(result.count) == count
            return np.asarray(result.coordinates)[:count]
        rows = as_numpy(result)
        return rows.T if isinstance(result, onnxruntime.OrtValue) else rows[:count]

    return Work(
        (np.where(present, numbers(dtype, shape), np.zeros((), dtype)),),
        dmljax=lambda x: dmljax.nonzero_coordinates(x, size=size),
        jax=lambda x: jnp.argwhere(x, size=size, fill_value=0),
        torch=torch.nonzero,
        torch_static=lambda x: torch.nonzero_static(x, size=size, fill_value=0),
        onnx=OnnxNode("NonZero", lambda x: {"x": x}, {}),
        numpy=np.argwhere,
        memory=lambda x: (jnp.max(x, axis=0), jnp.broadcast_to(x[0, 0] > 2, (size, 2)).astype(jnp.uint32)),
        comparable=comparable,
    )


# ACTIVATION_HARDMAX


def activation_hardmax(dtype: str, elements: int, width: int) -> Work:
    rows = max(1, elements // width)

    def idiom(x: Any) -> Any:
        return jax.nn.one_hot(jnp.argmax(x, axis=-1), width, dtype=x.dtype)

    def torch_function(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).scatter_(-1, x.argmax(-1, keepdim=True), 1)

    def numpy_function(x: Array) -> Array:
        result = np.zeros_like(x)
        np.put_along_axis(result, np.argmax(x, axis=-1, keepdims=True), 1, axis=-1)
        return result

    return Work(
        (numbers(dtype, (rows, width)),),
        dmljax=dmljax.activation_hardmax,
        jax=idiom,
        torch=torch_function,
        onnx=OnnxNode("Hardmax", lambda x: {"x": x}, {"axis": -1}),
        numpy=numpy_function,
        memory=lambda x: x + jnp.ones((), x.dtype),
    )


# ARGMAX


def argmax(dtype: str, elements: int, width: int) -> Work:
    rows = max(1, elements // width)
    return Work(
        (numbers(dtype, (rows, width)),),
        dmljax=lambda x: dmljax.argmax(x, axes=-1),
        jax=lambda x: jnp.argmax(x, axis=-1, keepdims=True),
        torch=lambda x: torch.argmax(x, dim=-1, keepdim=True),
        onnx=OnnxNode("ArgMax", lambda x: {"x": x}, {"axis": -1, "keepdims": 1}),
        numpy=lambda x: np.argmax(x, axis=-1, keepdims=True),
    )


# ONE_HOT


def one_hot(dtype: str, elements: int, depth: int) -> Work:
    rows = max(1, elements // depth)
    indices = np.random.default_rng(SEED).integers(0, depth, (rows, 1)).astype(np.int32)

    def numpy_function(values: Array, indices: Array) -> Array:
        result = np.full((rows, depth), values[0])
        np.put_along_axis(result, indices, values[1], axis=1)
        return result

    def torch_function(values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return torch.zeros(rows, depth, dtype=values.dtype).scatter_(1, indices, 1)

    def feeds(values: Array, indices: Array) -> dict[str, Array]:
        return {"indices": indices[:, 0].astype(np.int64), "depth": np.array(depth, np.int64), "values": values}

    return Work(
        (np.array([0, 1], dtype), indices),
        dmljax=lambda values, indices: dmljax.one_hot(indices, values, axis=1, depth=depth),
        jax=lambda values, indices: jnp.where(jax.nn.one_hot(indices[:, 0], depth, dtype=bool), values[1], values[0]),
        torch=torch_function,
        onnx=OnnxNode("OneHot", feeds, {"axis": -1}),
        numpy=numpy_function,
        memory=lambda values, indices: jnp.broadcast_to(values[0], (rows, depth)),
    )


# DIAGONAL_MATRIX1


def diagonal_band(dtype: str, elements: int) -> Work:
    """Five diagonals written over a matrix."""
    size, begin, end = math.isqrt(elements), -2, 3

    def is_filled(library: Any) -> Any:
        shift = library.arange(size)[None, :] - library.arange(size)[:, None]
        return (shift >= begin) & (shift < end)

    mask = torch.from_numpy(is_filled(np))
    return Work(
        (numbers(dtype, (size, size)), np.array(3, dtype)),
        dmljax=lambda x, value: dmljax.diagonal_matrix1(x, value, diagonal_fill_begin=begin, diagonal_fill_end=end),
        jax=lambda x, value: jnp.where(is_filled(jnp), value, x),
        torch=lambda x, value: torch.where(mask, value, x),
        numpy=lambda x, value: np.where(mask.numpy(), value, x),
        memory=lambda x, value: x + value,
    )


def diagonal_triangle(dtype: str, elements: int) -> Work:
    """Everything right of the main diagonal set to zero."""
    size = math.isqrt(elements)
    return Work(
        (numbers(dtype, (size, size)), np.array(0, dtype)),
        dmljax=lambda x, value: dmljax.diagonal_matrix1(x, value, diagonal_fill_begin=1),
        jax=lambda x, value: jnp.tril(x),
        torch=lambda x, value: torch.tril(x),
        onnx=OnnxNode("Trilu", lambda x, value: {"x": x}, {"upper": 0}),
        numpy=lambda x, value: np.tril(x),
        memory=lambda x, value: x + value,
    )


def diagonal_mask(dtype: str, elements: int) -> Work:
    """A causal mask out of nothing: a value right of the main diagonal, 0 elsewhere."""
    size = math.isqrt(elements)
    return Work(
        (np.array(3, dtype),),
        dmljax=lambda value: dmljax.diagonal_matrix1(None, value, diagonal_fill_begin=1, output_sizes=(size, size)),
        jax=lambda value: jnp.triu(jnp.full((size, size), value), 1),
        torch=lambda value: torch.full((size, size), value, dtype=value.dtype).triu_(1),
        numpy=lambda value: np.triu(np.full((size, size), value), 1),
        memory=lambda value: jnp.broadcast_to(value, (size, size)),
    )


# GATHER_ND1


def gather_scalars(dtype: str, elements: int) -> Work:
    return _gather(dtype, (1024, 1024), (elements, 2), lambda library, x, i: x[i[:, 0], i[:, 1]])


def gather_rows(dtype: str, elements: int) -> Work:
    return _gather(dtype, (16384, 64), (elements // 64, 1), lambda library, x, i: x[i[:, 0]])


def gather_batches(dtype: str, elements: int) -> Work:
    def indexed(library: Any, x: Any, indices: Any) -> Any:
        return x[library.arange(8)[:, None], indices[:, :, 0]]

    return _gather(dtype, (8, 2048, 64), (8, elements // 64 // 8, 1), indexed, batch=1)


def _gather(
    dtype: str, sizes: tuple[int, ...], indices_sizes: tuple[int, ...], indexed: Function, *, batch: int = 0
) -> Work:
    """Tuples of random indices; `indexed` fetches them by a library's own indexing."""
    indices = np.random.default_rng(SEED).integers(0, sizes[batch], indices_sizes).astype(np.int32)
    tuple_end = batch + indices_sizes[-1]
    output_sizes = indices_sizes[:-1] + sizes[tuple_end:]
    return Work(
        (numbers(dtype, sizes), indices),
        dmljax=lambda x, indices: dmljax.gather_nd1(x, indices, batch_dimension_count=batch),
        jax=partial(indexed, jnp),
        torch=partial(indexed, torch),
        onnx=OnnxNode("GatherND", lambda x, i: {"x": x, "indices": i.astype(np.int64)}, {"batch_dims": batch}),
        numpy=partial(indexed, np),
        memory=lambda x, indices: jnp.broadcast_to(x[(0,) * tuple_end], output_sizes),
    )


# What is run

DTYPES = ("float32", "float16", "int32")
SIZES = (SMALL, 2**16, MEDIUM, 2**22, LARGE)
DENSITIES = (0.001, 0.01, 0.1, 0.5, 0.99)
WIDTHS = (10, 128, 1000, 50257)


def workloads(*, quick: bool) -> Iterator[Workload]:
    """Every workload, or with `quick` those of one type and the lesser sizes."""
    dtypes, sizes = (DTYPES[:1], SIZES[:3]) if quick else (DTYPES, SIZES)
    widths, densities = (WIDTHS[1::2], DENSITIES[::3]) if quick else (WIDTHS, DENSITIES)
    for dtype in dtypes:
        for elements in sizes:
            for all_rows in (True, False):
                for density in densities:
                    work = partial(nonzero_coordinates, dtype, elements, density, all_rows=all_rows)
                    rows = "all rows" if all_rows else "enough rows"
                    yield Workload("nonzero_coordinates", dtype, elements, f"{density:g}, {rows}", work)
            for width in (width for width in widths if width <= elements):
                detail = f"width {width}"
                hardmax = partial(activation_hardmax, dtype, elements, width)
                yield Workload("activation_hardmax", dtype, elements, detail, hardmax)
                yield Workload("argmax", dtype, elements, detail, partial(argmax, dtype, elements, width))
                yield Workload("one_hot", dtype, elements, detail, partial(one_hot, dtype, elements, width))
            for build in (diagonal_band, diagonal_triangle, diagonal_mask):
                detail = build.__name__.removeprefix("diagonal_")
                yield Workload("diagonal_matrix1", dtype, elements, detail, partial(build, dtype, elements))
            for build in (gather_scalars, gather_rows, gather_batches):
                detail = build.__name__.removeprefix("gather_")
                yield Workload("gather_nd1", dtype, elements, detail, partial(build, dtype, elements))
