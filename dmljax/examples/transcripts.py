"""Turns calls in Python transcripts, from DirectML's pages and from docstrings, into examples of descriptors."""

import doctest
import functools
import inspect
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax import directml
from dmljax.calls.binding import check_arguments
from dmljax.calls.decorator import RecordedCall, record_calls
from dmljax.descriptors.base import Operator
from dmljax.descriptors.tensor import packed_strides
from dmljax.examples.example import Example
from dmljax.functions import HOMES
from dmljax.graphs.to_graph.builder import Builder
from dmljax.graphs.to_graph.calls import OperatorCall
from dmljax.graphs.to_graph.views import View

_PARSER = doctest.DocTestParser()


@check_arguments
def examples_of(operator: type[Operator]) -> Sequence[Example]:
    """The examples of an operator's page, or the first example of its docstring if the page has none."""
    return page_examples(operator) or [docstring_example(operator)]


@functools.cache
@check_arguments
def page_examples(operator: type[Operator]) -> Sequence[Example]:
    """The examples of an operator's page."""
    names = vars(np) | _public_names()
    examples, heading = [], ""
    for piece in _PARSER.parse(resources.files("dmljax.examples").joinpath("pages.txt").read_text()):
        if isinstance(piece, str):
            heading = piece.rpartition("\n\n")[2].strip() or heading
        elif not piece.want:
            exec(piece.source, names)  # noqa: S102  # of dmljax itself
        elif piece.source.startswith(f"{operator.function.__name__}("):
            title, _, remark = heading.partition("\n")
            expected = eval(piece.want, names)  # noqa: S307
            values = expected if isinstance(expected, tuple) else (expected,)
            with jax.enable_x64(False), record_calls() as calls:  # numbers become float32, as in DirectML
                jax.eval_shape(functools.partial(eval, piece.source.strip(), names))
                examples.append(_example(calls[0], values, title, remark, is_of_page=True))
    return examples


@functools.cache
def docstring_example(operator: type[Operator]) -> Example:
    """The first call of an operator's function in its docstring."""
    name = operator.function.__name__
    names = _public_names() | {"jax": jax, "jnp": jnp, "np": np}
    for shown in _PARSER.get_examples(inspect.getdoc(getattr(dmljax, name)) or ""):
        with jax.enable_x64(False), record_calls() as calls:
            exec(shown.source, names)  # noqa: S102
            for call in calls:
                if call.operator == name:
                    return _example(call, jax.tree.leaves(call.results), "Example")
    raise LookupError(f"the docstring of dmljax.{name} must show a call")


@check_arguments
def samples_of_calls(text: str, operator: type[Operator]) -> Sequence[Example]:
    """The calls of an operator in a transcript without outputs; the examples have no values of outputs."""
    names = vars(np) | _public_names()
    examples, title = [], ""
    for piece in _PARSER.parse(text):
        if isinstance(piece, str):
            title = piece.strip().rpartition("\n\n")[2] or title
        elif piece.source.partition("(")[0] not in HOMES:
            exec(piece.source, names)  # noqa: S102  # of dmljax itself
        elif piece.source.startswith(f"{operator.function.__name__}("):
            with jax.enable_x64(False), record_calls() as calls:
                jax.eval_shape(functools.partial(eval, piece.source.strip(), names))
                results = jax.tree.leaves(calls[0].results)
                examples.append(_example(calls[0], [np.zeros(x.shape, x.dtype) for x in results], title))
    return examples


def _public_names() -> dict[str, Any]:
    return vars(directml) | {name: getattr(dmljax, name) for name in HOMES}


def _example(
    call: RecordedCall, values: Sequence[Any], title: str, remark: str = "", *, is_of_page: bool = False
) -> Example:
    """Converts a call with these output values to an example of its descriptor."""
    builder = Builder()
    builder.name = call.operator
    # Inputs are constants, because the descriptor needs the values of some.
    constants = [builder.local_constant(jnp.asarray(x)) for x in jax.tree.leaves(tuple(call.arrays.values()))]
    types = [np.dtype(result.dtype) for result in jax.tree.leaves(call.results)]
    OperatorCall(builder, call, constants, list(zip(types, map(np.shape, values), strict=True))).results()
    ((node, desc),) = builder.nodes.items()
    inputs = {}
    for key, tensor in desc.tensors(is_input=True).items():
        strides = tensor.strides or packed_strides(tensor.sizes)
        inputs[key] = builder.value(View(builder.edges[f"{node}.{key}"], tensor.dtype, tensor.sizes, strides))
    outputs = dict(zip(desc.tensors(is_input=False), values, strict=True))
    return Example(title, desc, inputs, outputs, remark.strip("()"), is_of_page)
