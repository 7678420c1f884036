"""Leads names that PyDirectML does not have to what it has."""

import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dmljax.descriptors.base import operator_called
from dmljax.descriptors.search import call_for, functions_called
from dmljax.text import did_you_mean, hint_for_spelling, join_words, no_attribute_of

_VIEW = "dml.reinterpret(x, x.get_output_desc().data_type, sizes"
_SIZES = "x.get_output_desc().sizes"

# What to write for names elsewhere, without underscores: the code, and what it is.
_ELSEWHERE = {
    **dict.fromkeys(("reshape", "view", "flatten", "squeeze", "unsqueeze", "expanddims"), (f"{_VIEW}, None)", "")),
    **dict.fromkeys(("transpose", "permute", "swapaxes"), (f"{_VIEW}, strides)", ", with exchanged sizes and strides")),
    **dict.fromkeys(("broadcast", "broadcastto", "expand"), (f"{_VIEW}, strides)", ", with strides of 0")),
    **dict.fromkeys(
        ("mean", "reduce", "reducemean", "globalaveragepool", "globalaveragepooling"),
        (
            f"dml.average_pooling(x, [1, 1], {_SIZES}[2:], [0, 0], [0, 0], False)",
            " for means of channels; dmljax.reduce takes arrays",
        ),
    ),
    **dict.fromkeys(("neg", "negate", "negative"), ("-x", "")),
    **dict.fromkeys(("mod", "fmod", "remainder"), ("x % y", "")),
    **dict.fromkeys(("recip", "reciprocal"), ("1 / x", "")),
    **dict.fromkeys(("compile", "compilegraph"), ("builder.build(dml.ExecutionFlags.NONE, [y])", "")),
    **dict.fromkeys(
        ("compute", "dispatch", "execute", "run"), ("device.compute(model, [dml.Binding(x, data)], [y])", "")
    ),
    **dict.fromkeys(
        ("input", "placeholder", "constant"),
        ("dml.input_tensor(builder, 0, dml.TensorDesc(dml.TensorDataType.FLOAT32, sizes))", ""),
    ),
}


def hint(name: str, exported: Sequence[str]) -> str:
    """`, did you mean X?` for a name elsewhere or a similar name, or `; use X` for what the binding writes otherwise.

    >>> from dmljax import pydirectml
    >>> from dmljax.pydirectml.names import hint
    >>> hint("softmax", pydirectml.__all__), hint("negate", pydirectml.__all__)
    (', did you mean activation_soft_max?', '; use -x')
    """
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    plain_name = name.replace("_", "").lower()
    if plain_name in _ELSEWHERE:
        code, words = _ELSEWHERE[plain_name]
        return f"; use {code}{words}"
    functions = functions_called(name)
    exported_names = {other.replace("_", ""): other for other in exported}
    plain = (function.removeprefix("element_wise_").rstrip("0123456789").replace("_", "") for function in functions)
    suggestions = [exported_names[each] for each in dict.fromkeys(plain) if each in exported_names]
    if suggestions:
        return f", did you mean {join_words(suggestions, 'or')}?"
    fused = next((activation for function in functions if (activation := _fused_activation(function))), None)
    if fused is not None:
        return f"; use {fused}, the fused_activation of an operator"
    if functions:
        arrays = join_words((f"dmljax.{function}" for function in functions), "or")
        return f"; PyDirectML has no such operator, and {arrays} takes arrays"
    return did_you_mean(name, exported) if call_for(name) is None else ""


def _fused_activation(function: str) -> str | None:
    """How to fuse the activation that a function of arrays computes, with its usual numbers; None if it cannot be."""
    from dmljax.pydirectml.functions import NUMBERS

    name = function.removeprefix("activation_").upper()
    operator = operator_called(function.upper())
    if name == function.upper() or name not in NUMBERS or operator is None:
        return None
    defaults = inspect.signature(operator.function).parameters
    numbers = "".join(f", {defaults[number].default!r}" for number in NUMBERS[name])
    return f"dml.FusedActivation(dml.OperatorType.ACTIVATION_{name}{numbers})"


class Hinting:
    """The base of classes that say what to write for an attribute that they lack."""

    _elsewhere: Mapping[str, str] = MappingProxyType({})  # by plain names: see `hint_for_spelling`

    if not TYPE_CHECKING:  # a type checker refuses unknown names by itself

        def __getattr__(self, name):
            raise no_attribute_of(self, name, hint_for_spelling(self, name, type(self)._elsewhere))
