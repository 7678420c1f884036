"""The first call in the docstring of an operator's function, as an example of its descriptor."""

import doctest
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax import directml
from dmljax.calls.decorator import RecordedCall, recorded_calls
from dmljax.descriptors.base import Operator
from dmljax.examples.example import Example
from dmljax.tensor import packed_strides
from dmljax.to_graph.builder import Builder
from dmljax.to_graph.calls import OperatorCall
from dmljax.to_graph.views import View


@functools.cache
def docstring_example(operator: type[Operator]) -> Example:
    """The first call in the docstring of an operator's function, with its descriptor."""
    with jax.enable_x64(False):  # a Python number is a float32, as DirectML has no other
        return _example(operator)


def _example(operator: type[Operator]) -> Example:
    call, results = _first_call(operator)
    builder = Builder()
    builder.name = call.operator
    # As constants: the descriptor needs some numbers by value.
    given = [builder.local_constant(jnp.asarray(x)) for x in jax.tree.leaves(tuple(call.arrays.values()))]
    OperatorCall(builder, call, given, [(np.dtype(x.dtype), x.shape) for x in results]).results()
    ((node, desc),) = builder.nodes.items()
    inputs = {}
    for key, tensor in desc.tensors(is_input=True).items():
        strides = tensor.strides or packed_strides(tensor.sizes)
        inputs[key] = builder.value(View(builder.edges[f"{node}.{key}"], tensor.dtype, tensor.sizes, strides))
    return Example("Example", desc, inputs, dict(zip(desc.tensors(is_input=False), results, strict=True)))


def _first_call(operator: type[Operator]) -> tuple[RecordedCall, list[Any]]:
    """The first call of an operator's function in its docstring, and the arrays that it gives."""
    name = operator.function.__name__
    function = getattr(dmljax, name)
    names = vars(directml) | vars(dmljax) | {"jax": jax, "jnp": jnp, "np": np}
    for shown in doctest.DocTestParser().get_examples(inspect.getdoc(function) or ""):
        with recorded_calls() as calls:
            exec(shown.source, names)  # noqa: S102  # of dmljax itself
        for call in calls:
            if call.operator == name:
                return call, jax.tree.leaves(function(**call.arrays, **call.statics))
    raise LookupError(f"the docstring of dmljax.{name} must show a call")
