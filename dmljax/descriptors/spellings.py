"""Finds the names in `dmljax.directml` for those of directml.h."""

import re
from collections.abc import Container, Iterable

from dmljax.descriptors import search
from dmljax.descriptors.base import OPERATORS, Lowerable, Operator, operator_called
from dmljax.text import did_you_mean, hint_for_spelling, join_words
from dmljax.types import HeaderEnum

_LOWER, _CALL = "dmljax.directml.lower(desc)", "dmljax.directml.lower(desc)(*arrays)"

# What takes the place of DirectML's interface: the names, without DML and underscores, what to write, and what that is.
# Where there is nothing to write, it says why.
INTERFACE = (
    (
        "(?<!dml)(device|graphbuilder|binding)",
        "dmljax.pydirectml",
        f" for a program of PyDirectML, and {_LOWER} for others",
    ),
    ("(create)?device[0-9]?", _LOWER, ", a function of arrays on JAX's devices"),
    (
        "compile|compile(operator|graph)|(create|compiled)operator|dispatchable|devicechild|object|pageable|creategraph",
        _LOWER,
        ", a function of arrays",
    ),
    ("(create)?operatorinitializer|initializeoperators?", "", "operators need no initialization"),
    (
        "(create)?bindingtable(desc)?|bind(in|out)puts|(get)?bindingproperties"
        "|buffer(array)?binding|binding(desc|type.*)",
        _CALL,
        ", which takes the inputs and returns the outputs",
    ),
    (
        "(create)?commandrecorder|recorddispatch|executecommandlists?|commandlist|commandqueue|dispatch|execute|run",
        _CALL,
        ", which computes",
    ),
    ("executionflags?.*", "", "XLA compiles without flags"),
    ("createdeviceflags?.*|debugdevice", "", "errors always name the member and the rule"),
    (
        "(c|i)?(d3d|d3dx|dxgi)(1[0-9])?.*|createdxgifactory[0-9]?|(create)?fence|signal|makeresident|evict|bind(temporary|persistent)resource",
        "",
        "JAX has the devices, memory and queues",
    ),
    ("tensortype.*", "", "each tensor is a buffer"),
    ("expression|inputtensor|outputtensor", "", "functions take and return arrays"),
    ("calcbuffertensorsize", "tensor.minimum_size_in_bytes", ", of a TensorDesc"),
    ("targetversion.*", 'dmljax.directml.validate(desc, feature_level="6_4")', ", or another level"),
    (
        "checkfeaturesupport|feature(data|query)?.*",
        "dmljax.directml.find_minimum_feature_level(desc)",
        ", the lowest level whose devices accept it",
    ),
    ("operatordesc", "dmljax.directml.GemmDesc", ", or that of another operator"),
    ("operatortype", "dmljax.directml.OPERATORS", ", the descriptors by type"),
    ("tensordimensioncountmax", "5", ""),
    ("tensordimensioncountmax1", "8", ""),
    ("minimumbuffertensoralignment", "16", ""),
    ("(temporary|persistent)bufferalignment", "256", ""),
)
_STRUCTS = {"SCALARUNION": "Scalar", "SIZE2D": "Size2D", "SCALEBIAS": "ScaleBias"}


def hint(name: str, exported: Iterable[str]) -> str:
    """`, did you mean X?` or `; use X` for a name in directml.h, or similar to an exported name; or "".

    >>> from dmljax.descriptors.spellings import hint
    >>> hint("DML_TENSOR_DATA_TYPE_FLOAT32", ()), hint("SoftmaxDesc", ())
    (', did you mean DataType.FLOAT32?', ', did you mean ActivationSoftmaxDesc or ActivationSoftmax1Desc?')
    >>> hint("DMLCalcBufferTensorSize", ()), hint("DML_EXECUTION_FLAG_NONE", ())
    ('; use tensor.minimum_size_in_bytes, of a TensorDesc', '; leave it out: XLA compiles without flags')
    """
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    of_header = names_for(name)
    of_operators = [] if name.isupper() and of_header else _descs_called(name)
    if not of_header and not of_operators and (replacement := hint_for_interface(name)):
        return replacement
    names = of_operators or of_header  # `Convolution` is an operator rather than a mode
    if names:
        return f", did you mean {join_words(names, 'or')}?"
    return did_you_mean(name, sorted(exported, key=lambda other: other.endswith("Desc")))


_COMMANDS = {  # what has no function, but a command
    **dict.fromkeys(("help", "explain"), "`dmljax explain relu` explains a function"),
    "ops": "`dmljax ops` lists the operators",
}


def hint_for_function(name: str, exported: Container[str]) -> str:
    """The hint for a name in `dmljax`: a function, or else a name that `dmljax.directml` exports or has for it."""
    if name.startswith("_") or search.call_for(name) or search.functions_called(name):
        return search.hint(name)
    if name in _COMMANDS:
        return f"; in a shell, {_COMMANDS[name]}"
    names = [name] if name in exported else names_for(name)
    if names:
        return f", did you mean {join_words((f'dmljax.directml.{each}' for each in names), 'or')}?"
    replacement = "" if name.islower() else hint_for_interface(name)  # `compile` may mean that of JAX
    return replacement or search.hint(name)


def hint_for_interface(name: str) -> str:
    """`; use X` for a name of DirectML's or Direct3D's interfaces, or `; leave it out` if it needs nothing; or ""."""
    plain = re.sub(r"[\W_]", "", name).lower()
    for names, code, words in INTERFACE:
        if re.fullmatch(f"(i?dml)?({names})", plain):
            return f"; use {code}{words}" if code else f"; leave it out: {words}"
    return ""


_OF_DESCS = ("lower", "validate", "find_minimum_feature_level", "find_broken_rules", "to_json")


def hint_for_attribute(desc: Lowerable, name: str) -> str:
    """`, did you mean X?` or `; use X` for an attribute that a descriptor or a graph does not have; or ""."""
    elsewhere = {each.replace("_", ""): f"dmljax.directml.{each}(desc)" for each in _OF_DESCS}
    elsewhere |= {"inputs": "desc.tensors(is_input=True)", "outputs": "desc.tensors(is_input=False)"}
    field = desc.field_called(name) if isinstance(desc, Operator) else None
    if field is not None:
        return f", did you mean {field}?"
    of_interface = "" if name.startswith("_") else hint_for_interface(name)
    return of_interface or hint_for_spelling(desc, name, elsewhere)


def names_for(name: str) -> list[str]:
    """The names in `dmljax.directml` for a name of directml.h, with or without its prefix."""
    upper = name.upper()
    whole = upper.replace("_", "").removeprefix("DML")
    if whole in _STRUCTS:
        return [_STRUCTS[whole]]
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
    enumerations = [each for each in HeaderEnum.__subclasses__() if each.__name__[0] != "_"]
    for enumeration in enumerations:
        if whole.removesuffix("S") == enumeration.prefix.replace("_", "").removeprefix("DML"):
            return [enumeration.__name__]
    members = []
    for enumeration in enumerations:
        spellings = {upper, f"DML_{upper}"}
        by_spelling = [enumeration._missing_(each) for each in spellings if each.startswith(enumeration.prefix)]
        members += [repr(member) for member in (*by_spelling, enumeration.__members__.get(upper)) if member is not None]
    return members


def _descs_called(name: str) -> list[str]:
    """The descriptors of the operators that are called so here or elsewhere, with or without `Desc`."""
    descs = {operator.short_name.lower(): operator.__name__ for operator in OPERATORS.values()}
    functions = search.functions_called(re.sub(r"_?desc$", "", name, flags=re.IGNORECASE))
    return functions and [f"dmljax.{function}" if name.islower() else descs[function] for function in functions]
