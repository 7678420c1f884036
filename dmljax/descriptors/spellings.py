"""Finds the names in `dmljax.directml` for those of directml.h."""

import re
from collections.abc import Container, Iterable

from dmljax.descriptors import search
from dmljax.descriptors.base import OPERATORS, operator_called
from dmljax.text import did_you_mean, join_words
from dmljax.types import HeaderEnum

# The objects of DirectML's interface that functions of arrays replace.
_OBJECTS = re.compile(
    "(idml|dml)?(create)?(device|bindingtable|commandrecorder|compiledoperator|operator(initializer)?|graph)"
    "|(idml|dml)?(compile(operator|graph)|dispatchable)"
)

_NO_OBJECTS = "; there are no devices: dmljax.directml.lower(desc) is a function of arrays"


def hint(name: str, exported: Iterable[str]) -> str:
    """`, did you mean X?` for a name in directml.h, or similar to an exported name; or "".

    >>> from dmljax.descriptors.spellings import hint
    >>> hint("DML_TENSOR_DATA_TYPE_FLOAT32", ()), hint("SoftmaxDesc", ())
    (', did you mean DataType.FLOAT32?', ', did you mean ActivationSoftmaxDesc or ActivationSoftmax1Desc?')
    """
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    if is_object(name):
        return _NO_OBJECTS
    names = names_for(name) or _descs_called(name)
    if names:
        return f", did you mean {join_words(names, 'or')}?"
    return did_you_mean(name, sorted(exported, key=lambda other: other.endswith("Desc")))


def hint_for_function(name: str, exported: Container[str]) -> str:
    """The hint for a name in `dmljax`: a function, or else a name that `dmljax.directml` exports or has for it."""
    if name.startswith("_") or search.call_for(name) or search.functions_called(name):
        return search.hint(name)
    if is_object(name):
        return f"{_NO_OBJECTS}, and dmljax.pydirectml has PyDirectML's classes"
    names = [name] if name in exported else names_for(name)
    if names:
        return f", did you mean {join_words((f'dmljax.directml.{each}' for each in names), 'or')}?"
    return search.hint(name)


def is_object(name: str) -> bool:
    """Whether DirectML's interface has an object or a method of this name."""
    return _OBJECTS.fullmatch(name.replace("_", "").lower()) is not None


def names_for(name: str) -> list[str]:
    """The names in `dmljax.directml` for a name of directml.h, with or without its prefix."""
    upper = name.upper()
    plain = re.sub(r"^DML_(OPERATOR_)?|^OPERATOR_|_OPERATOR_DESC$", "", upper)
    operator = operator_called(plain) if plain != upper else None
    if operator is not None:
        return [operator.__name__]
    if re.fullmatch(r"(DML_?)?(BUFFER_?)?TENSOR_?(DESC)?", upper):
        return ["TensorDesc"]
    if re.fullmatch(
        r"(DML_?)?((INPUT|OUTPUT|INTERMEDIATE|OPERATOR|CONSTANT(_DATA)?)_?)?GRAPH_?((EDGE|NODE)_?)?DESC", upper
    ):
        return ["Graph"]
    members = []
    for enumeration in HeaderEnum.__subclasses__():
        spellings = {upper, f"DML_{upper}"}
        by_spelling = [enumeration._missing_(each) for each in spellings if each.startswith(enumeration.prefix)]
        members += [repr(member) for member in (*by_spelling, enumeration.__members__.get(upper)) if member is not None]
    return members


def _descs_called(name: str) -> list[str]:
    """The descriptors of the operators that are called so here or elsewhere, with or without `Desc`."""
    descs = {operator.short_name.lower(): operator.__name__ for operator in OPERATORS.values()}
    functions = search.functions_called(re.sub(r"_?desc$", "", name, flags=re.IGNORECASE))
    return functions and [f"dmljax.{function}" if name.islower() else descs[function] for function in functions]
