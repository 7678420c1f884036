"""Descriptions of the operators as text, Markdown and JSON, for the command line and the documentation.

Everything is computed from the operators' own docstrings, members, rules, support tables and examples.
"""

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import dmljax
from dmljax import directml
from dmljax.calls.binding import spell_call
from dmljax.command_line.terminal import MODEL_SUFFIXES
from dmljax.descriptors.base import OPERATOR_PREFIX, Operator
from dmljax.descriptors.json_form import to_json
from dmljax.descriptors.search import call_for, functions_called, functions_for, functions_named, hint, summary_of
from dmljax.descriptors.spellings import hint_for_interface, names_for
from dmljax.descriptors.tables import Table
from dmljax.directml import OPERATORS
from dmljax.errors import InvalidDesc, Problem
from dmljax.examples import example_lines, examples_of
from dmljax.text import escape_controls, show
from dmljax.types import LATEST, FeatureLevel, HeaderEnum


def find_operator(name: str) -> type[Operator]:
    """Finds an operator by its type, descriptor or function, or by a name elsewhere that means only one operator.

    `one_hot`, `one-hot`, `DML_OPERATOR_ONE_HOT` and `OneHotDesc` are ONE_HOT, `relu` is ACTIVATION_RELU, and `relu6` is
    the operator that computes it, ELEMENT_WISE_CLIP.
    """
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Desc")) if name.endswith("Desc") else name
    wanted = plain.upper().replace("-", "_").removeprefix(OPERATOR_PREFIX)
    if OPERATOR_PREFIX + wanted in OPERATORS:
        return OPERATORS[OPERATOR_PREFIX + wanted]
    call = call_for(wanted)
    in_call = [] if call is None else functions_named(call.partition("(")[0])
    if call is not None and not in_call:
        raise InvalidDesc(Problem((), f"unknown operator {show(name)}", remedy=f"use {call}"))
    for functions in (in_call, functions_named(wanted), functions_called(wanted)):
        if len(functions) == 1:
            return OPERATORS[OPERATOR_PREFIX + functions[0].upper()]
    if replacement := hint_for_interface(name):
        raise InvalidDesc(Problem((), f"unknown operator {show(name)}", remedy=replacement.removeprefix("; ")))
    meant = hint(wanted)
    remedy = None if meant else "`dmljax ops` lists them"
    known = [word for word in name.split() if functions_called(word)]
    if len(known) > 1 and known == name.split():
        meant, remedy = "", f"`dmljax explain {known[0]}`, then `dmljax explain {known[1]}`: one at a time"
    if name.lower().endswith(MODEL_SUFFIXES):
        meant, remedy = "", f"`dmljax check {escape_controls(name)}` checks a model"
    raise InvalidDesc(Problem((), f"unknown operator {show(name)}{meant}", remedy=remedy))


def find_replacement(name: str) -> str | None:
    """What to write for a name that has no operator, in another library or in DirectML's interface; or None."""
    call = call_for(name)
    return f"use {call}" if call is not None else hint_for_interface(name).removeprefix("; ") or None


def find_operators(words: str) -> list[type[Operator]]:
    """Finds the operator that `words` name, or else the operators whose descriptions match them, best first."""
    try:
        return [find_operator(words)]
    except InvalidDesc:
        operators = [OPERATORS[OPERATOR_PREFIX + function.upper()] for function in functions_for(words)]
        if not operators or call_for(words) is not None:
            raise
        return operators


def function_name(operator: type[Operator]) -> str:
    """The name of the operator's function in dmljax."""
    return operator.short_name.lower()


# All operators

FAMILIES = {
    "indexing": "Indices",
    "gathering": "Gathers and scatters",
    "generation": "Bands, constants and random bits",
    "movement": "Slices, joins and blocks",
    "padding": "Padding, and sliding windows",
    "convolution": "Convolutions",
    "pooling": "Pooling",
    "products": "Matrix products",
    "attention": "Attention",
    "recurrence": "Recurrent networks",
    "resampling": "Resampling",
    "regions": "Regions of images",
    "reduction": "Reductions",
    "scans": "Running sums and products",
    "selection": "Largest and smallest elements",
    "softmax": "Softmax and hardmax",
    "normalization": "Normalization",
    "activation": "Activations",
    "arithmetic": "Arithmetic",
    "elementary": "Elementary functions",
    "clipping": "Clipping",
    "logic": "Comparisons, logic and selection",
    "bitwise": "Bits",
    "quantization": "Quantization",
    "training": "Training",
}


def operators_by_family() -> dict[str, list[type[Operator]]]:
    """The operators of each family, by its title, in the order of `FAMILIES`."""
    families: dict[str, list[type[Operator]]] = {family: [] for family in FAMILIES}
    for operator in OPERATORS.values():
        families[inspect.unwrap(operator.function).__module__.rpartition(".")[2]].append(operator)
    return {FAMILIES[family]: operators for family, operators in families.items()}


def _match_operators(words: str) -> list[type[Operator]]:
    """Returns the operators whose names contain `words`, or else those that `find_operators` finds."""
    plain = words.lower().replace(" ", "_").replace("-", "_")
    named = [operator for _, operator in sorted(OPERATORS.items()) if plain in function_name(operator)]
    return named or find_operators(words)


def summaries(words: str) -> list[dict[str, Any]]:
    """Each operator with its lowest feature level, and the ranks and data types of its newest support table.

    If there are `words`, lists only the operators whose names contain them, or else whose descriptions match them.
    """
    return [
        {
            "operator": operator.type,
            "function": f"dmljax.{function_name(operator)}",
            "feature_level": str(min(operator.support)),
            "tensors": _cells(operator, operator.support[max(operator.support)]),
        }
        for operator in _match_operators(words)
    ]


def _cells(operator: type[Operator], table: Table) -> dict[str, dict[str, Any]]:
    return {
        operator.member(field).name: {
            "dimension_counts": [cell.ranks[0], cell.ranks[-1]],
            "data_types": cell.data_type_names,
        }
        for field, cell in table.items()
    }


def coverage() -> str:
    """A phrase that counts the operators."""
    return f"All {len(OPERATORS)} operators of {LATEST}"


OPERATORS_HEAD = ("operator", "level", "tensors", "ranks", "data types")


def operator_rows(words: str = "", width: int | None = None) -> Iterator[tuple[str, ...]]:
    """The rows of the table of `summaries`; an operator's tensors with the same ranks and data types share a row.

    For a table that fits `width`, data types are wrapped, and a long name has a row of a single cell.
    """
    name_width, type_width = _widths(width)
    for summary in summaries(words):
        tensors_by_cell: dict[tuple[str, str], list[str]] = {}
        for tensor, cell in summary["tensors"].items():
            tensors_by_cell.setdefault(_cell_texts(cell), []).append(tensor.removesuffix("Tensor"))
        names = [summary["operator"].removeprefix(OPERATOR_PREFIX), short_level(summary["feature_level"])]
        if len(names[0]) > name_width:
            yield (names[0],)
            names[0] = ""
        for (ranks, data_types), tensors in tensors_by_cell.items():
            wrapped = textwrap.wrap(", ".join(tensors), _TENSOR_WIDTH), textwrap.wrap(data_types, type_width)
            for tensor, types in zip_longest(*wrapped, fillvalue=""):
                yield (*names, tensor, ranks, types)
                names, ranks = ["", ""], ""


_TENSOR_WIDTH = 21  # of the longest name and a comma


def _widths(width: int | None) -> tuple[int, int]:
    """Computes the widths of names and data types in a table; a line has one to three kinds of types."""
    if width is None:
        return 100, 100
    room = width - _TENSOR_WIDTH - 18  # the level, ranks and gaps
    types = 42 if room >= 75 else 28 if room >= 61 else 14
    return room - types, types


def _cell_texts(cell: Mapping[str, Any]) -> tuple[str, str]:
    lowest, highest = cell["dimension_counts"]
    return str(lowest) if lowest == highest else f"{lowest}-{highest}", data_types_text(cell["data_types"])


def data_types_text(names: Iterable[str]) -> str:
    """Data types grouped by kind: `FLOAT16/32 INT8/16/32`."""
    widths: dict[str, list[int]] = {"FLOAT": [], "INT": [], "UINT": []}
    for name in names:
        family = name.rstrip("0123456789")
        widths[family].append(int(name.removeprefix(family)))
    return " ".join(family + "/".join(map(str, sorted(bits))) for family, bits in widths.items() if bits)


def short_level(spelled: str) -> str:
    """A feature level without the common prefix: `6_4`."""
    return spelled.removeprefix(FeatureLevel.prefix)


# One operator


def explanation(operator: type[Operator]) -> dict[str, Any]:
    """Everything that dmljax knows about an operator, as a JSON object."""
    return {
        "operator": operator.type,
        "function": f"dmljax.{function_name(operator)}",
        "signature": signature(operator),
        "documentation": inspect.getdoc(getattr(dmljax, function_name(operator))),
        "desc": f"dmljax.directml.{operator.__name__}",
        "members": [
            {
                "name": member.name,
                "field": member.field,
                "kind": member.kind.description,
                "optional": member.is_optional,
            }
            for member in operator.members()
        ],
        "support": {str(level): _cells(operator, table) for level, table in sorted(operator.support.items())},
        "rules": rules(operator),
        "examples": [
            {
                "title": example.title,
                "desc": to_json(example.desc)["Desc"],
                "inputs": {key: array.tolist() for key, array in example.arrays(of_inputs=True).items()},
                "outputs": {key: array.tolist() for key, array in example.arrays(of_inputs=False).items()},
            }
            for example in examples_of(operator)
        ],
    }


def member_rows(operator: type[Operator]) -> list[tuple[str, str, str]]:
    """The name, the Python field and the kind of each member."""
    return [
        (member.name, member.field, member.kind.description + (", optional" if member.is_optional else ""))
        for member in operator.members()
    ]


def signature(operator: type[Operator]) -> str:
    """The signature of the operator's function, without type annotations."""
    function = getattr(dmljax, function_name(operator))
    return spell_call(f"dmljax.{function_name(operator)}", inspect.signature(function))


def rules(operator: type[Operator]) -> list[str]:
    """The rules of the operator's page besides its support tables."""
    return [rule.sentence_for(operator) for rule in operator.rules]


def with_imports(documentation: str) -> str:
    """Puts what the examples of an operator's function import before the first of them, so that they run as copied."""
    return documentation.replace(">>> ", f"{_IMPORTS}>>> ", 1)


_IMPORTS = ">>> import jax.numpy as jnp\n>>> from dmljax import *\n"


def operator_list(operators: Sequence[type[Operator]], width: int) -> list[str]:
    """Returns a line for each of several operators, with what it does."""
    names = [function_name(operator) for operator in operators]
    column = max(map(len, names)) + 2
    return [
        name.ljust(column) + textwrap.shorten(summary_of(name), width - column, placeholder=" ...") for name in names
    ]


def operators_json(operators: Sequence[type[Operator]]) -> list[dict[str, str]]:
    """Returns several operators and what they do, as JSON."""
    names = [(operator.type, function_name(operator)) for operator in operators]
    return [{"operator": key, "function": f"dmljax.{name}", "summary": summary_of(name)} for key, name in names]


def explanation_text(operator: type[Operator], width: int) -> str:
    """The text of `dmljax explain`: the operator's documentation, members, rules, support tables and first example."""
    known = explanation(operator)
    members = [
        (name, f"{field}=", line) if first else ("", "", line)
        for name, field, kind in member_rows(operator)
        for first, line in zip([True, *[False] * len(kind)], textwrap.wrap(kind, width // 2), strict=False)
    ]
    support = [
        (short_level(level) if first else "", tensor, *_cell_texts(cell))
        for level, cells in known["support"].items()
        for first, (tensor, cell) in zip([True, *[False] * len(cells)], cells.items(), strict=False)
    ]
    rule_lines = [
        line
        for rule in known["rules"]
        for line in textwrap.wrap(rule, width, initial_indent="  - ", subsequent_indent="    ")
    ]
    example = examples_of(operator)[0]
    return "\n".join(
        [
            known["operator"],
            "",
            *textwrap.wrap(known["signature"], width, subsequent_indent="    "),
            *_wrap(with_imports(known["documentation"]), width),
            known["desc"],
            *table(members, indent="    "),
            "",
            "Rules",
            *rule_lines,
            "",
            "Support",
            *table(support, ("level", "tensor", "ranks", "data types"), indent="  "),
            "",
            "An example",
            *example_lines(example, example.computed()),
        ]
    )


# Classes and functions besides the operators


MODULES = ("pydirectml", "serialized")  # named after what DirectML's developers have


def find_definition(name: str) -> str | None:
    """Finds a class or function of `dmljax.directml` that is no operator's, by its name here or in directml.h.

    Also finds a module by its name.
    """
    if (module := name.lower().removeprefix("dmljax.")) in MODULES:
        return module
    names = [name] if name in directml.__all__ else names_for(name) if name.upper().startswith("DML") else []
    found = {spelled.partition(".")[0] for spelled in names} - {kind.__name__ for kind in OPERATORS.values()}
    return found.pop() if len(found) == 1 and callable(getattr(directml, *found)) else None


def definition(name: str) -> dict[str, Any]:
    """A module, or a class or function of `dmljax.directml`, as a JSON object."""
    is_module = name in MODULES
    value: Any = importlib.import_module(f"dmljax.{name}") if is_module else getattr(directml, name)
    is_enumeration = isinstance(value, type) and issubclass(value, HeaderEnum)
    spelled = f"dmljax.{name}" if is_module else f"dmljax.directml.{name}"
    return {
        "name": spelled,
        "signature": spelled if is_enumeration or is_module else spell_call(spelled, inspect.signature(value)),
        "documentation": inspect.getdoc(value),
        "members": {member.name: member.spelling for member in value} if is_enumeration else {},
    }


def definition_text(name: str, width: int) -> str:
    """The text of `dmljax explain` for a class, a function or a module."""
    known = definition(name)
    lines = [
        *textwrap.wrap(known["signature"], width, subsequent_indent="    "),
        *_wrap(known["documentation"], width),
        *table(known["members"].items(), indent="    "),
    ]
    return "\n".join(lines).rstrip()


def desc_example(operator: type[Operator]) -> list[str]:
    """The lines of a Python session that computes the operator's first example from its descriptor."""
    example = examples_of(operator)[0]
    values = [(member, getattr(example.desc, member.field)) for member in operator.members()]
    written = [(member.field, _qualify(member.as_code(value))) for member, value in values if value is not None]
    members = [f"...     {field}={value}," for field, value in written]
    arrays = example.arrays(of_inputs=True)
    by_name = all(key.isidentifier() for key in arrays)  # the tensors of an array are passed by position
    inputs = [
        f"{f'{key}=' if by_name else ''}np.array({_with_numpys_names(str(array.tolist()))}, dtype={array.dtype.name!r})"
        for key, array in arrays.items()
    ]
    call = (
        [">>> print(compute())"]
        if not inputs
        else [">>> print(compute(", *(f"...     {value}," for value in inputs), "... ))"]
    )
    lines = [f">>> desc = dmljax.directml.{operator.__name__}(", *members, "... )"]
    lines += [">>> compute = dmljax.directml.lower(desc)", *call]
    outputs = str(directml.lower(example.desc)(*arrays.values()))
    return [
        *(part for line in lines for part in _split_line(line.replace("'", '"'), "...         ")),
        *(part for line in outputs.splitlines() for part in _split_line(line, "    ")),
    ]


def _split_line(line: str, indent: str) -> list[str]:
    """Splits a line of a session into lines of at most 88 columns."""
    return textwrap.wrap(line, 88, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [line]


def _with_numpys_names(numbers: str) -> str:
    return re.sub(r"\b(inf|nan)\b", r"np.\1", numbers)


def _qualify(source: str) -> str:
    """Returns Python with the names of `dmljax.directml` spelled in full."""
    return re.sub(r"\b[A-Z]\w+(?=[.(])", r"dmljax.directml.\g<0>", source)


def _wrap(documentation: str, width: int) -> Iterator[str]:
    """Wraps the paragraphs of a docstring and the entries of its sections to `width`, but not its examples."""
    for paragraph in documentation.split("\n\n"):
        is_example = paragraph.startswith(">>>")
        for part in paragraph.splitlines() if is_example else re.split(r"\n(?=    \S)", paragraph):
            margin = "" if is_example or part == part.lstrip() else "    "
            text, indent = " ".join(part.split()), f"    {margin}"
            yield from (
                [f"    {part}"]
                if is_example
                else textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + margin)
            )
        yield ""


# Tables


def table(rows: Iterable[tuple[str, ...]], head: tuple[str, ...] | None = None, *, indent: str = "") -> list[str]:
    """The lines of a table whose columns are as wide as their widest cells; a row of a single cell has no columns."""
    cells = [head, *rows] if head else list(rows)
    widths = [max(map(len, column)) for column in zip(*(row for row in cells if len(row) > 1), strict=True)]
    lines = [
        indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in cells
    ]
    return [lines[0], indent + "  ".join("-" * width for width in widths), *lines[1:]] if head else lines


def markdown_table(rows: Iterable[tuple[str, ...]], head: tuple[str, ...]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, tuple("---" for _ in head), *rows)]
