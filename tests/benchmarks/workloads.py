"""The same work for every rival: inputs, how each computes the result, and how results become comparable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

DMLJAX, IDIOM, TORCH, ONNX = "dmljax", "jax.numpy", "torch", "onnxruntime"
RIVALS = (IDIOM, TORCH, ONNX)

Function = Callable[..., Any]
Array = NDArray[Any]

MEDIUM = 2**20
SEED = 2021
OPSET = 18


def as_numpy(result: Any) -> Array:
    """A result of any rival."""
    return np.asarray(result.numpy() if hasattr(result, "numpy") else result)


@dataclass(frozen=True)
class OnnxNode:
    """One ONNX operator; `feeds` converts the workload's inputs to its inputs. None is an input left out."""

    operator: str
    feeds: Callable[..., Mapping[str, Array | None]]
    attributes: dict[str, Any]
    outputs: int = 1
    opset: int = OPSET


@dataclass(frozen=True)
class Work:
    """One operator on one set of inputs. The functions take `inputs` by position, each in its library's arrays."""

    inputs: tuple[Any, ...]  # arrays, or their shapes for what is only compiled
    dmljax: Function
    jax: Function | None = None
    torch: Function | None = None
    onnx: OnnxNode | None = None
    comparable: Function = as_numpy
    tolerance: float = 0  # both absolute and relative
    updated: tuple[int, ...] = ()  # indices of inputs that are donated where the work is compiled, for small changes
    share: float = 1  # of the idiom's products that are needed: half of them in causal attention

    @property
    def of_jax(self) -> dict[str, Function]:
        """The functions of JAX arrays: ours, and the idiom if there is one."""
        return {DMLJAX: self.dmljax} | ({} if self.jax is None else {IDIOM: self.jax})

    @cached_property
    def calls(self) -> dict[str, Callable[[], Any]]:
        """A call without arguments for each rival that can do the work, on data in that library's own arrays."""
        calls = {name: _jitted(function, self.inputs) for name, function in self.of_jax.items()}
        if self.torch is not None:
            import torch

            tensors = [torch.from_numpy(x) for x in self.inputs]
            # PyTorch indexes by int64, and would widen narrower indices at every call.
            tensors = [x.long() if i > 0 and x.dtype == torch.int32 and x.ndim else x for i, x in enumerate(tensors)]
            calls[TORCH] = partial(self.torch, *tensors)
        if self.onnx is not None:
            session = _session(self.onnx, self.inputs)
            if session is not None:
                calls[ONNX] = session
        return calls

    def check(self) -> None:
        """Refuses to compare rivals whose results differ."""
        expected = self.comparable(self.calls[DMLJAX]())
        for name, call in self.calls.items():
            np.testing.assert_allclose(self.comparable(call()), expected, self.tolerance, self.tolerance, err_msg=name)


def _jitted(function: Function, inputs: Sequence[Array]) -> Callable[[], Any]:
    compiled, arrays = jax.jit(function), jax.device_put(inputs)
    return lambda: jax.block_until_ready(compiled(*arrays))


def _session(node: OnnxNode, inputs: Sequence[Array]) -> Callable[[], Any] | None:
    """A call of ONNX Runtime, or None where it has no kernel for these types."""
    import onnx
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

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
            bound.bind_output(name)  # a new array, as every other rival allocates its result
        session.run_with_iobinding(bound)
        computed = bound.get_outputs()
        return computed[0] if len(computed) == 1 else computed

    return call


def numbers(shape: tuple[int, ...]) -> Array:
    """Random numbers, none of them zero or subnormal."""
    return np.random.default_rng(SEED).random(shape, np.float32) + np.float32(0.5)
