"""Devices, graph builders, and models, which are compiled once and run many times."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import jax
import numpy as np

from dmljax import directml
from dmljax.descriptors import Operator
from dmljax.errors import InvalidDesc, InvalidType, Problem, Where, require, within
from dmljax.graphs.assembly import Assembly, map_tensor, walk_tensors
from dmljax.pydirectml.enumerations import ExecutionFlags
from dmljax.pydirectml.names import Hinting
from dmljax.pydirectml.tensors import TensorData, TensorDesc, storage_array, storage_desc
from dmljax.text import show
from dmljax.types import DataType, FeatureLevel

LEVEL = "5_1"  # the level of DirectML 1.9.1, which the binding uses


class Expression(Hinting):
    """A tensor of a graph under construction: an input, an operator's result, or a reinterpretation of either.

    `+ - * / %` and unary `-` add operators to the graph; the other operand may be an expression or a number.
    """

    _builder: "GraphBuilder | None" = None
    _source = ""
    _view: directml.TensorDesc
    _elsewhere = {
        **dict.fromkeys(("shape", "sizes"), "x.get_output_desc().sizes"),
        **dict.fromkeys(("dtype", "datatype", "type"), "x.get_output_desc().data_type"),
        "desc": "x.get_output_desc()",
        "strides": "x.get_output_desc().strides",
    }

    def get_output_desc(self) -> TensorDesc:
        """The tensor's type, sizes and layout."""
        require_builder("expression", self)
        return TensorDesc._from_desc(self._view)

    def _become(self, other: "Expression") -> "Expression":
        self._builder, self._source, self._view = other._builder, other._source, other._view
        return self

    def __repr__(self) -> str:
        return f"dml.Expression of {self._view}" if self._builder is not None else "dml.Expression, empty"

    def __neg__(self) -> "Expression":
        return add_operator(directml.ElementWiseNegateDesc, {"input": self})["output"]

    def __add__(self, other: Any) -> "Expression":
        return self._combine(directml.ElementWiseAddDesc, other, lambda x: (1.0, x))

    def __radd__(self, other: Any) -> "Expression":
        return self._scale(1.0, other)

    def __sub__(self, other: Any) -> "Expression":
        return self._combine(directml.ElementWiseSubtractDesc, other, lambda x: (1.0, -x))

    def __rsub__(self, other: Any) -> "Expression":
        return self._scale(-1.0, other)

    def __mul__(self, other: Any) -> "Expression":
        return self._combine(directml.ElementWiseMultiplyDesc, other, lambda x: (x, 0.0))

    def __rmul__(self, other: Any) -> "Expression":
        return self._scale(other, 0.0)

    def __truediv__(self, other: Any) -> "Expression":
        return self._combine(directml.ElementWiseDivideDesc, other, lambda x: (np.float32(1) / np.float32(x), 0.0))

    def __rtruediv__(self, other: Any) -> "Expression":
        # The binding uses RECIP with a scale of `other`, although by its page that is 1 / (other * self).
        builder, desc = require_builder("expression", self), self._view
        number = directml.FillValueConstantDesc(
            output=directml.TensorDesc(desc.data_type, desc.sizes), value_data_type=desc.data_type, value=_number(other)
        )
        return _binary(directml.ElementWiseDivideDesc, builder._add(number, ())["output"], self)

    def __mod__(self, other: Any) -> "Expression":
        return _binary(directml.ElementWiseModulusTruncateDesc, self, other)

    def __iadd__(self, other: Any) -> "Expression":
        return self._become(self + other)

    def __isub__(self, other: Any) -> "Expression":
        return self._become(self - other)

    def __imul__(self, other: Any) -> "Expression":
        return self._become(self * other)

    def __itruediv__(self, other: Any) -> "Expression":
        return self._become(self / other)

    def __imod__(self, other: Any) -> "Expression":
        return self._become(self % other)

    def _combine(self, operator: type[Operator], other: Any, scale_bias: Callable[[Any], Any]) -> "Expression":
        if isinstance(other, Expression):
            return _binary(operator, self, other)
        return self._scale(*scale_bias(_number(other)))

    def _scale(self, scale: Any, bias: Any) -> "Expression":
        """`self * scale + bias`."""
        numbers = directml.ScaleBias(_number(scale), _number(bias))
        return add_operator(directml.ElementWiseIdentityDesc, {"input": self}, scale_bias=numbers)["output"]


def _refuse(remedy: str) -> Callable[..., Any]:
    def refuse(self: Expression, *operands: Any) -> Any:
        raise InvalidType(Problem((), "PyDirectML's expressions have only + - * / %", remedy=f"use {remedy}"))

    return refuse


for _name, _remedy in {
    "__matmul__": "dml.gemm(a, b)",
    "__pow__": "x * x for a square",
    "__getitem__": "dml.slice(x, offsets, sizes, strides)",
}.items():
    setattr(Expression, _name, _refuse(_remedy))


def _binary(operator: type[Operator], a: Any, b: Any) -> Expression:
    return add_operator(operator, {"a": a, "b": b})["output"]


def _number(value: Any) -> float:
    if not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidType(Problem("operand", "must be an expression or a number", show(value)))
    return float(np.float32(value))


class GraphBuilder(Hinting):
    """A graph under construction: each function of this module adds an operator to its expressions' builder."""

    _elsewhere = {
        **dict.fromkeys(("compile", "finish", "create"), "builder.build(dml.ExecutionFlags.NONE, [y])"),
        **dict.fromkeys(
            ("input", "inputtensor", "addinput"),
            "dml.input_tensor(builder, 0, dml.TensorDesc(dml.TensorDataType.FLOAT32, sizes))",
        ),
    }

    def __init__(self, device: "Device") -> None:
        if not isinstance(device, Device):
            raise InvalidType(Problem("device", "must be a Device", show(device)))
        self._device = device
        self._inputs: dict[str, tuple[int, directml.TensorDesc]] = {}  # indices and descs, by source
        self._assembly = Assembly()
        self._outputs: dict[str, directml.TensorDesc] = {}

    def build(self, flags: Any, outputs: Sequence[Expression]) -> "Model":
        """Compiles the operators that the outputs need."""
        ExecutionFlags.check("flags", flags)
        return Model(self, outputs)

    def _input(self, index: int, desc: TensorDesc) -> Expression:
        name = _input_name(index)
        source = f"{name} ({len(self._inputs)})" if name in self._inputs else name
        self._inputs[source] = index, desc._desc
        return self._expression(source, desc._desc)

    def _add(self, desc: Operator, inputs: Iterable[Expression]) -> dict[str, Expression]:
        """Adds an operator that reads the input expressions; returns its outputs' expressions by key."""
        directml.validate(desc, feature_level=LEVEL)
        name = f"{desc.short_name.lower()}_{len(self._assembly.nodes)}"
        sources = self._assembly.add_node(name, desc, (expression._source for expression in inputs))
        outputs = {
            key: self._expression(source, tensor)
            for source, (key, tensor) in zip(sources, desc.tensors(is_input=False).items(), strict=True)
        }
        self._outputs |= {output._source: output._view for output in outputs.values()}
        return outputs

    def _expression(self, source: str, view: directml.TensorDesc) -> Expression:
        expression = Expression()
        expression._builder, expression._source, expression._view = self, source, view
        return expression

    def _graph(self, outputs: Sequence[Expression]) -> directml.Graph:
        """The operators that the outputs need, and all inputs."""
        part = copy(self._assembly)
        part.keep(output._source for output in outputs)
        inputs = self._inputs_of(set(part.edges.values()))
        part.rename({source: _input_name(index) for index, source in inputs.items()})
        part.inputs = {_input_name(index): storage_desc(self._inputs[source][1]) for index, source in inputs.items()}
        by_name = {f"output_{i}": output for i, output in enumerate(outputs)}
        return part.finish(
            {name: output._source for name, output in by_name.items()},
            views={
                name: output._view
                for name, output in by_name.items()
                if output._view != self._outputs[output._source]  # a reinterpretation
            },
        )

    def _inputs_of(self, read: Collection[str]) -> dict[int, str]:
        """The source of each input, by index: the tensor that operators read, or otherwise the first.

        Programs create further tensors with the same index to bind new data to a model.
        """
        sources: dict[int, str] = {}
        for source, (index, _) in self._inputs.items():
            if source in read and sources.get(index) in read:
                rule = "must use only one input_tensor for each input_index"
                with within("build"):
                    raise InvalidDesc(Problem("outputs", rule, f"two of {index}"))
            if index not in sources or source in read:
                sources[index] = source
        return dict(sorted(sources.items()))


def _input_name(index: int) -> str:
    return f"input_{index}"


class Model(Hinting):
    """A compiled graph: `function` is a JAX function of its inputs, in the order of their indices.

    The function takes arrays of the inputs' sizes, with size 1 where a stride of 0 repeats an element. It works under
    every JAX transformation, and is differentiable in all inputs, weights included. `graph` is the
    `dmljax.directml.Graph` that it computes.
    """

    graph: directml.Graph
    function: Callable[..., Any]
    _elsewhere = dict.fromkeys(
        ("compute", "dispatch", "execute", "run", "predict"), "device.compute(model, [dml.Binding(x, data)], [y])"
    )

    def __init__(self, builder: GraphBuilder, outputs: Sequence[Expression]) -> None:
        with within("build"):
            if not isinstance(outputs, Sequence) or not outputs:
                raise InvalidType(Problem("outputs", "must be a sequence of expressions", show(outputs)))
            for i, output in enumerate(outputs):
                if require_builder(("outputs", i), output) is not builder:
                    raise InvalidDesc(
                        Problem(("outputs", i), "must be an expression of this builder", "one of another builder")
                    )
                rule = "must be the result of an operator; use activation_identity to return an input"
                require(("outputs", i), output._source in builder._outputs, rule, output._source)
        self._builder = builder
        self.graph = builder._graph(outputs)
        self._indices = sorted({index for index, _ in builder._inputs.values()})
        self._outputs = [(output._source, output._view) for output in outputs]
        read = set(self.graph.edges.values())
        self._unread = {
            index: jax.numpy.zeros(desc.sizes, desc.dtype)
            for index, desc in zip(self._indices, self.graph.inputs.values(), strict=True)
            if _input_name(index) not in read
        }
        self.function = directml.lower(self.graph, feature_level=LEVEL)

    def _require_outputs(self, outputs: Any) -> None:
        """Raises if outputs differ from the expressions that the model was built with; each may be None."""
        if not isinstance(outputs, Sequence):
            raise InvalidType(Problem("outputs", "must be a list of expressions", show(outputs)))
        rule = f"must have {len(self._outputs)} expressions, like the model"
        require("outputs", len(outputs) == len(self._outputs), rule, len(outputs))
        for i, (output, expected) in enumerate(zip(outputs, self._outputs, strict=True)):
            if output is None:
                continue
            require_builder(("outputs", i), output)
            if output._builder is not self._builder or (output._source, output._view) != expected:
                rule = f"must be None or {expected[0]}, as passed to build"
                raise InvalidDesc(Problem(("outputs", i), rule, output._source))


class Binding:
    """A copy of the data for an input; later changes to the array have no effect."""

    def __init__(self, expr: Expression, data: Any) -> None:
        with within("Binding"):
            self._builder = require_builder("expr", expr)
            rule = "must be an input made by input_tensor; compute returns the results of operators"
            require("expr", expr._source not in self._builder._outputs, rule, expr._source)
            self._array = storage_array(expr._view, data)


class Device(Hinting):
    """JAX's first device, or the first CPU if `use_gpu` is false."""

    _elsewhere = dict.fromkeys(("dispatch", "execute", "run"), "device.compute(model, [dml.Binding(x, data)], [y])")

    def __init__(self, use_gpu: bool = True, use_debug_layer: bool = False) -> None:
        with within("Device"):
            is_gpu = require_flag("use_gpu", use_gpu)
            require_flag("use_debug_layer", use_debug_layer)
        self._device = (jax.devices() if is_gpu else jax.devices("cpu"))[0]

    def __repr__(self) -> str:
        return f"dml.Device on {self._device.platform.upper()}"

    def compute(
        self, model: Model, inputs: Sequence[Binding | None], outputs: Sequence[Expression | None]
    ) -> list[TensorData]:
        """Runs the model with these bindings, in the order of the input indices, and waits for the results.

        `outputs` are the expressions passed to `build`, in the same order; pass None to leave a result out.
        """
        with within("compute"):
            if not isinstance(model, Model):
                raise InvalidType(Problem("model", "must be a Model that build returned", show(model)))
            arrays = self._arrays(model, inputs)
            model._require_outputs(outputs)
            with jax.default_device(self._device):
                results = model.function(*arrays)
        tensors = list(results.values()) if isinstance(results, dict) else [results]
        return [
            TensorData(jax.block_until_ready(result))
            for result, output in zip(tensors, outputs, strict=True)
            if output is not None
        ]

    def _arrays(self, model: Model, inputs: Sequence[Binding | None]) -> list[Any]:
        if not isinstance(inputs, Sequence):
            raise InvalidType(Problem("inputs", "must be a list of bindings", show(inputs)))
        rule = f"must be {len(model._indices)} bindings, one for each input of the builder"
        require("inputs", len(inputs) == len(model._indices), rule, len(inputs))
        arrays = []
        for i, (index, binding) in enumerate(zip(model._indices, inputs, strict=True)):
            if isinstance(binding, Binding):
                rule = f"must be a Binding of input {index} of the builder that built the model"
                require(("inputs", i), binding._builder is model._builder, rule, "one of another builder")
                arrays.append(binding._array)
            elif binding is None and index in model._unread:
                arrays.append(model._unread[index])
            else:
                raise InvalidType(Problem(("inputs", i), f"must be a Binding of input {index}", show(binding)))
        return arrays


# Operators


def require_builder(where: Where, value: Any) -> GraphBuilder:
    """The builder of an expression; raises for anything else, and for empty expressions."""
    if not isinstance(value, Expression):
        raise InvalidType(Problem(where, "must be an expression", show(value)))
    if value._builder is None:
        raise InvalidDesc(Problem(where, "must not be empty", "an empty expression"))
    return value._builder


def require_flag(where: Where, value: Any) -> bool:
    """The truth of a flag, which the binding also takes as a number or None; raises for strings and lists."""
    if not hasattr(type(value), "__bool__") or np.ndim(value):  # as pybind11 decides it
        raise InvalidType(Problem(where, "must be True or False", show(value)))
    return bool(value)


Operand = Expression | list[Expression] | None  # for a member: a tensor, an array of tensors, or nothing


def add_operator(
    operator: type[Operator], inputs: Mapping[str, Operand], outputs: Sequence[str] = ("output",), **attributes: Any
) -> dict[str, Expression]:
    """Adds an operator with these inputs and attributes; returns the outputs with these fields.

    Outputs have the first input's type, or UINT32 for indices; sizes are inferred unless `output_sizes` sets them.
    """
    given_sizes = attributes.pop("output_sizes", ())
    with within(operator.type):
        leaves = dict(walk_tensors(inputs)) or {(field,): None for field in inputs}
        builders = {path: require_builder(path, expression) for path, expression in leaves.items()}
        builder = next(iter(builders.values()))
        for path, owner in builders.items():
            require(path, owner is builder, "must be an expression of the same builder", "one of another builder")
        first = next(iter(leaves.values()))._view
        sizes = tuple(given_sizes or first.sizes)
        types = {field: DataType.UINT32 if field == "output_indices" else first.data_type for field in outputs}
        tensors = {field: directml.TensorDesc(data_type, sizes) for field, data_type in types.items()}
    descs = {name: map_tensor(lambda expression: expression._view, operand) for name, operand in inputs.items()}
    desc = operator(**descs, **tensors, **attributes)
    whole = desc if given_sizes else desc.with_inferred_sizes(FeatureLevel[f"FL_{LEVEL}"])
    return builder._add(whole, leaves.values())
