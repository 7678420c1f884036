"""Compares Microsoft's pages of operators with descriptors, and prints a line for each disagreement.

Run `python tests/tools/audit_pages.py FOLDER...` over MicrosoftDocs' Markdown: `sdk-api-src/content/directml` of
sdk-api, and `docs/directml` of windows-ai-docs. It compares members, tables of tensor support, constraints, flags and
the history of feature levels. A data type or a dimension count inside a table must be accepted at its level, and one
outside refused. It asks `find_broken_rules` alone: `support` in `dmljax/ops` and its copies in `tests/ops` may repeat a
misreading.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.extend(map(str, Path(__file__).parents[1].glob("**/")))
from families import CASES

from dmljax import directml
from dmljax.directml import DataType, FeatureLevel

# Lines that are right, by their beginnings, and why dmljax differs. notebooks/operators/*.md say more.
DELIBERATE = {
    "ACTIVATION_RELU_GRAD: the page has the members ": "its table and its constraints have OutputGradientTensor",
    "ACTIVATION_RELU_GRAD: the history extends ": "its table begins with 8 dimensions",
    "ACTIVATION_SHRINK: the history extends it at 2_1": "its table has integers from 5_1 on",
    "ADAM_OPTIMIZER: the history extends ": "it has a single table",
    "ADAM_OPTIMIZER: dmljax requires the same DataType ": "unless TrainingStepTensor is UINT32",
    "ADAM_OPTIMIZER 3_0 TrainingStepTensor: the page forbids": "its text demands UINT32",
    "ELEMENT_WISE_IF: the history extends it at 2_1": "its table has integers from 3_0 on",
    "ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL: the page introduces it at 1_0 and 3_0": "3_0 is right",
    "FOLD": "its table has no data types, and the tensors of its examples have different dimension counts",
    "JOIN: the history extends it at 3_1": "its table has 8 dimensions from 4_1 on",
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT: the page has the members ": "two of them are not in its struct",
    "MAX_UNPOOLING: the history introduces ": "its table begins with 3_0",
    "MULTIHEAD_ATTENTION1 6_3 PastSequenceLengthsTensor: the page forbids": "ONNX Runtime passes INT32",
    "SCATTER: the history introduces ": "its table begins with 1_0",
    "SCATTER_ELEMENTS: dmljax has no such operator": "the header's other name of SCATTER",
    "SLICE1 InputWindowStrides": "strides may be negative",
    "SLICE_GRAD InputWindowStrides": "strides may be negative",
    "TOP_K: the history introduces ": "its table begins with 2_0",
    "UNFOLD": "its table has no data types, and the tensors of its examples have different dimension counts",
}

UNKNOWN = ": dmljax has no such operator"
TYPES = [data_type.name for data_type in DataType if data_type is not DataType.UNKNOWN]
RANKS = range(1, 9)
LEVELS = {level.name.removeprefix("FL_"): level for level in FeatureLevel}
Desc = dict[str, Any]  # the members of a descriptor, as in JSON
Groups = list[frozenset[str]]


class Cell(NamedTuple):
    """The types that a table lists for a tensor; None stands for what cannot be read."""

    kind: str = ""  # input, optional input, array of inputs, output, ...
    DimensionCount: frozenset[Any] | None = frozenset()
    DataType: frozenset[Any] | None = frozenset()


@dataclass
class Page:
    """An operator's page, as far as it can be read."""

    operator: str
    introduced: list[str] = field(default_factory=list)
    members: dict[str, str] = field(default_factory=dict)  # types, as the header declares them
    tables: dict[str, dict[str, dict[str, Cell]]] = field(default_factory=dict)  # by heading, level and tensor
    alike: dict[str, Groups] = field(default_factory=lambda: {"DataType": [], "DimensionCount": []})
    never_owned: set[str] = field(default_factory=set)  # tensors that may not be OWNED_BY_DML

    def cell(self, heading: str, level: str, tensor: str) -> Cell:
        """The cell that holds at a level: of the newest table up to it."""
        levels = [one for one in self.tables[heading] if one <= level]
        return self.tables[heading][max(levels)].get(tensor, Cell()) if levels else Cell()


def read_page(operator: str, text: str) -> Page:
    """Reads an operator's page of either repository."""
    page = Page(operator)
    section = member = heading = level = ""
    columns: list[str] = []
    for line in map(str.strip, text.splitlines()):
        title = plain(line).removeprefix("-field ") if line.startswith("#") else ""
        if line.startswith(("# ", "## ")):
            section, member, heading, level = title.lower(), "", "", ""
        elif section in ("members", "-struct-fields") and (title or re.fullmatch(r"`\w+`", line)):
            member = title or plain(line)
        elif member and line.startswith("Type: "):
            page.members[member] = plain(line.removeprefix("Type: "))
        elif member and re.search(r"doesn't support .*OWNED_BY_DML", line):
            page.never_owned.add(member)
        elif match := re.match(r"This operator was introduced in \W*DML_FEATURE_LEVEL_(\d_\d)", line):
            page.introduced.append(match[1])
        elif match := re.match(r"(.*) must have the same (.*)", line if section == "tensor constraints" else ""):
            for what in page.alike.keys() & set(re.findall(r"\w+", match[2])):
                page.alike[what] = merged([*page.alike[what], re.findall(r"\w*Tensors?\b", match[1])])
        elif title and section.startswith("tensor support"):
            match = re.match(r"DML_FEATURE_LEVEL_(\d_\d)", title)
            heading, level = (heading, match[1]) if match else (title, "")
        elif line.startswith("| ") and section.startswith("tensor support"):
            cells = [plain(cell) for cell in line.strip("|").split("|")]
            if cells[0] == "Tensor":
                columns = cells
            elif cells[0].strip("-"):
                row = dict(zip(columns, cells, strict=False))
                start = level or (page.introduced or [min(LEVELS)])[-1]
                table = page.tables.setdefault(heading, {}).setdefault(start, {})
                table[cells[0]] = read_cell({name.lower(): cell for name, cell in row.items()})
    return page


def plain(markdown: str) -> str:
    """Text without links, tags, emphasis and escapes; the star of a pointer stays."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown.lstrip("# "))
    return re.sub(r"<[^>]*>|\*\*|`|\\", "", text).strip()


def read_cell(row: Mapping[str, str]) -> Cell:
    ranks = re.fullmatch(r"(\d)(?: to (\d))?", row.get("supported dimension counts", ""))
    types = frozenset(row.get("supported data types", "").split(", "))
    counts = frozenset(range(int(ranks[1]), int(ranks[2] or ranks[1]) + 1)) if ranks else None
    return Cell(row.get("kind", "").lower(), counts, types if types <= set(TYPES) else None)


def merged(groups: Iterable[Iterable[str]]) -> Groups:
    """Joins groups that share a name."""
    result: Groups = []
    for group in map(frozenset, groups):
        touching = [other for other in result if other & group]
        result = [*(other for other in result if other not in touching), group.union(*touching)]
    return result


# Comparing


def disagreements(page: Page, starts: set[str]) -> Iterator[str]:
    """A line for each disagreement with a page; `starts` gets the levels from which on dmljax accepts anything new."""
    desc = valid_desc(page)
    if desc is None:
        yield ": no descriptor has the data types and dimension counts of its newest table"
        return
    for lines in (of_members, of_kinds, of_flags, of_constraints):
        yield from lines(page, desc)
    for heading, tables in page.tables.items():
        if {*page.introduced} != {min(tables)}:
            yield f": the page introduces it at {' and '.join(page.introduced)}, its first table is of {min(tables)}"
        for variant in variants(page, heading, desc):
            accepted = acceptance(page.operator, variant, tensors_of(page, heading, desc))
            yield from of_cells(page, heading, accepted)
            for by_level in accepted.values():
                none = frozenset[Any]()
                starts |= {now for before, now in pairwise(["", *LEVELS]) if by_level[now] - by_level.get(before, none)}


def valid_desc(page: Page) -> Desc | None:
    """A valid descriptor with data types and a dimension count of the page's newest table."""
    case, members = CASES[page.operator], directml.OPERATORS[page.operator].members()
    heading = next(iter(page.tables), None)
    if heading is None:
        return None
    cells = {one.field: page.cell(heading, max(LEVELS), one.name) for one in members if one.field in case.free}
    ranks = set(RANKS).intersection(*(cell.DimensionCount or RANKS for cell in cells.values()))
    for first in TYPES:
        types = {name: cell.DataType or {first} for name, cell in cells.items()}
        chosen = {name: DataType[first if first in of_cell else min(of_cell)] for name, of_cell in types.items()}
        for rank in sorted(ranks, reverse=True):
            desc = case.make(chosen, rank)
            if not directml.find_broken_rules(desc):
                return dict(directml.to_json(desc)["Desc"])
    return None


def tensors_of(page: Page, heading: str, desc: Desc) -> list[str]:
    """The members that have a row in the tables under a heading."""
    return list(dict.fromkeys(name for table in page.tables[heading].values() for name in table if name in desc))


def variants(page: Page, heading: str, desc: Desc) -> list[Desc]:
    """The descriptor, or one for each function that the heading names, such as ARGMIN and ARGMAX."""
    functions = [name for name, kind in page.members.items() if kind.endswith("_FUNCTION")]
    names = re.findall(r"\b[A-Z][A-Z0-9_]+", heading)
    return [desc | {one: f"{page.members[one]}_{name}" for one in functions} for name in names] or [desc]


def made(operator: str, desc: Desc) -> directml.Operator | None:
    """The descriptor, whatever rules it breaks; None where a member's type is wrong."""
    try:
        result: directml.Operator = directml.from_json({"Type": operator, "Desc": desc})
    except directml.InvalidDesc:
        return None
    return result


def refusals(desc: directml.Operator | None, level: str = max(LEVELS)) -> Sequence[str]:
    """The rules that a descriptor breaks at a level, as sentences."""
    return directml.find_broken_rules(desc, LEVELS[level]) if desc else ["no descriptor"]


STRUCTS = {
    "DML_TENSOR_DESC": "DataType",
    "DML_OPERATOR_DESC": "Type",
    "DML_SCALE_BIAS": "Scale",
    "DML_SIZE_2D": "Width",
}
NUMBERS = {"UINT": int, "INT": int, "UINT64": int, "FLOAT": float, "float": float, "BOOL": bool}


def of_members(page: Page, desc: Desc) -> Iterator[str]:
    """Members of other names, order or types."""
    if list(page.members) != list(desc):
        yield f": the page has the members {', '.join(page.members)}, dmljax {', '.join(desc)}"
    for name in (name for name in page.members if name in desc):
        declared, value = page.members[name], desc[name]
        match = re.fullmatch(r"(_Maybenull_ )?(_Field_size_\(\w+\) )?(?:const )?(\w+) ?(\*?)", declared)
        if match is None:
            yield f" {name}: cannot read the type {declared}"
            continue
        is_optional, is_sized, kind, pointer = match.groups()
        is_array = bool(is_sized or (pointer and kind in NUMBERS))
        if value is not None and not fits(kind, is_array, value):
            yield f" {name}: the page declares {declared}, dmljax has {value}"
        # An array is null where it is empty; `of_kinds` tells whether a tensor may be.
        tried: list[Any] = [None] if kind in ("DML_OPERATOR_DESC", "DML_SCALE_BIAS") and not is_array else []
        if kind in ("INT", "UINT") and not name.endswith("Count"):
            tried = [[-1] * len(value) if is_array else -1]
        for other in tried:
            is_allowed = kind == "INT" or bool(is_optional)
            if (made(page.operator, desc | {name: other}) is not None) != is_allowed:
                yield f" {name}: the page declares {declared} and {differ(is_allowed=is_allowed)} {other}"


def fits(kind: str, is_array: bool, value: Any) -> bool:
    """Whether a value of JSON has a type of the header."""
    if isinstance(value, list):
        return (is_array or kind in STRUCTS) and all(fits(kind, False, one) for one in value)
    if isinstance(value, str):
        return value.startswith(f"{kind}_")
    if isinstance(value, dict):
        return STRUCTS.get(kind) in value
    return kind == "DML_SCALAR_UNION" or type(value) is NUMBERS.get(kind)


def of_kinds(page: Page, desc: Desc) -> Iterator[str]:
    """Tensors that are inputs, arrays or optional on one side only, at each table's level."""
    own = dict[str, str]()
    for member in directml.OPERATORS[page.operator].members():
        if member.tensor_kind:
            own[member.name] = "input" if member.tensor_kind.is_input else "output"
    for heading, tables in page.tables.items():
        for level, table in tables.items():
            for tensor in {**own, **table}:
                kind = own.get(tensor, "unknown tensor")
                if isinstance(desc.get(tensor), list):
                    kind = f"array of {kind}s"
                elif tensor in own and not is_needed(page.operator, desc, level, tensor):
                    kind = f"optional {kind}"
                told = table[tensor].kind if tensor in table else "unknown tensor"
                if kind != told:
                    yield f" {level} {tensor}: the page has an {told}{heading and ' of '}{heading}, dmljax an {kind}"


def is_needed(operator: str, desc: Desc, level: str, tensor: str) -> bool:
    """Whether a level requires a tensor, whatever else is given: refusals name no other member."""
    without = made(operator, desc | {tensor: None})
    sentences = [one for one in refusals(without, level) if one.startswith(f"{tensor} ")]
    return without is None or any(desc.keys() & re.findall(r"\w+", one) == {tensor} for one in sentences)


def of_flags(page: Page, desc: Desc) -> Iterator[str]:
    """Inputs that only one side lets DirectML own."""
    for member in directml.OPERATORS[page.operator].members():
        tensor = desc[member.name]
        if member.tensor_kind and member.tensor_kind.is_input and isinstance(tensor, dict):
            owned = desc | {member.name: tensor | {"Flags": ["DML_TENSOR_FLAG_OWNED_BY_DML"]}}
            is_forbidden = member.name in page.never_owned
            if bool(refusals(made(page.operator, owned))) != is_forbidden:
                yield f" {member.name}: the page {differ(is_allowed=not is_forbidden)} OWNED_BY_DML"


def differ(*, is_allowed: bool) -> str:
    return "allows, and dmljax refuses," if is_allowed else "forbids, and dmljax accepts,"


def of_constraints(page: Page, desc: Desc) -> Iterator[str]:
    """Tensors that must have the same data type, or the same dimension count, on one side only."""
    heading = next(iter(page.tables))
    tensors = tensors_of(page, heading, desc)
    own: dict[str, Groups] = {what: [] for what in page.alike}
    for repeat in (1, 2):  # in one of the two, at least, any two of 16 tensors differ
        ones = {
            name: with_tensor(TYPES[i // repeat % len(TYPES)], RANKS[i // repeat % len(RANKS)])
            for i, name in enumerate(tensors)
        }
        for sentence in refusals(made(page.operator, desc | of_tensors(desc, ones))):
            if match := re.match(r"(.*) must have the same (DataType|DimensionCount|Sizes);", sentence):
                what = match[2].replace("Sizes", "DimensionCount")  # the same Sizes have the same length
                own[what] = merged([*own[what], re.findall(r"\w*Tensors?\b", match[1])])
    for what, groups in page.alike.items():
        for group in groups:
            listed = {getattr(page.cell(heading, max(LEVELS), name), what) for name in group}
            is_given = len(listed) == 1 and all(one and len(one) == 1 for one in listed)
            if not is_given and not any(group <= other for other in own[what]):
                yield f": the page requires the same {what} of {', '.join(sorted(group))}, dmljax does not"
    for group in own["DataType"]:  # pages leave many dimension counts to the members' texts
        if page.alike["DataType"] and not any(group <= other for other in page.alike["DataType"]):
            yield f": dmljax requires the same DataType of {', '.join(sorted(group))}, the page does not"


def with_tensor(data_type: str, rank: int) -> dict[str, Any]:
    return {"DataType": f"DML_TENSOR_DATA_TYPE_{data_type}", "Sizes": [1] * rank}


def of_tensors(desc: Desc, ones: Mapping[str, dict[str, Any]]) -> Desc:
    """Tensors by member; each stands for all of an array."""
    return {name: [one] * len(desc[name]) if isinstance(desc[name], list) else one for name, one in ones.items()}


Accepted = dict[tuple[str, str], dict[str, frozenset[Any]]]  # by tensor and attribute, and by level


def acceptance(operator: str, desc: Desc, tensors: Sequence[str]) -> Accepted:
    """The data types and dimension counts of each tensor by itself that dmljax accepts at each level."""
    whole = {"DataType": frozenset(TYPES), "DimensionCount": frozenset(RANKS)}
    accepted: Accepted = {(tensor, what): dict.fromkeys(LEVELS, whole[what]) for tensor in tensors for what in whole}
    for i, data_type in enumerate(TYPES):
        tried: dict[str, Any] = {"DataType": data_type, "DimensionCount": RANKS[i % len(RANKS)]}
        one = with_tensor(data_type, tried["DimensionCount"])
        all_alike = made(operator, desc | of_tensors(desc, dict.fromkeys(tensors, one)))
        for level in LEVELS:
            for sentence in refusals(all_alike, level):
                match = re.match(r"(\w+)(?:\[\d+\])?\.(DimensionCount|DataType) must be ", sentence)
                refused = [match.groups()] if match else accepted if sentence.startswith("the feature level") else []
                for tensor, what in refused:
                    accepted[tensor, what][level] -= {tried[what]}
    return accepted


def of_cells(page: Page, heading: str, accepted: Accepted) -> Iterator[str]:
    """What a cell lists and dmljax refuses, and the other way round, at the first level of each such difference."""
    for (tensor, what), by_level in accepted.items():
        before = {True: frozenset[Any](), False: frozenset[Any]()}
        for level in LEVELS:
            listed = getattr(page.cell(heading, level, tensor), what)
            if listed is None:
                yield f" {level} {tensor}: cannot read its {what}"
                break
            for is_allowed, ones in ((True, listed - by_level[level]), (False, by_level[level] - listed)):
                if ones - before[is_allowed]:
                    names = ", ".join(map(str, sorted(ones - before[is_allowed])))
                    function = heading and f" of {heading}"
                    yield f" {level} {tensor}: the page{function} {differ(is_allowed=is_allowed)} {what} {names}"
                before[is_allowed] = ones


# The history of feature levels


def of_history(text: str, starts: Mapping[str, set[str]]) -> Iterator[str]:
    """Operators that the history introduces, or extends by data types or dimensions, at other levels than dmljax."""
    introduced = {name: "1_0" for name, levels in starts.items() if levels}
    extended: list[tuple[str, str]] = []
    level = paragraph = bullet = ""
    for line in text.splitlines():
        told, is_bullet = plain(line).lstrip("* "), re.match(r"\s*\* ", line)
        if line.startswith("## "):
            level = told.removeprefix("DML_FEATURE_LEVEL_")
        if line and not is_bullet:
            paragraph, bullet = told, ""
        elif line.startswith("* "):
            bullet = told
        names = re.findall(r"DML_OPERATOR_(\w+)", told) if is_bullet else []
        is_whole = re.fullmatch(r"(Added )?DML_OPERATOR_\w+\.?", told)
        if is_whole and (is_whole[1] or re.match(r"Added .*\boperator types", paragraph)):
            introduced |= dict.fromkeys(names, level)
        elif re.search("data ?type|dimension|support UINT8", f"{paragraph} {bullet} {told}", re.IGNORECASE):
            extended += [(name, level) for name in names]
    for name, own in introduced.items():
        if f"DML_OPERATOR_{name}" not in CASES:
            yield f"{name}{UNKNOWN}"
        elif starts.get(name) and min(starts[name]) != own:
            yield f"{name}: the history introduces it at {own}, dmljax at {min(starts[name])}"
    for name, own in extended:
        if own not in starts.get(name, {own}):
            yield f"{name}: the history extends it at {own}, where nothing begins in dmljax"


def audit(folders: Iterable[str]) -> Iterator[str]:
    """A line for each disagreement that is not deliberate, and for each deliberate one that is gone."""
    texts = {path.stem: path.read_text() for folder in folders for path in sorted(Path(folder).rglob("*.md"))}
    starts: dict[str, set[str]] = {}
    lines: list[str] = []
    for stem, text in texts.items():
        match = re.search(r"-dml_(\w+?)(_operator)?_desc$", stem)
        if match and "# Tensor support" in text:
            name = match[1].upper()
            starts[name] = set()
            is_known = f"DML_OPERATOR_{name}" in CASES
            found = disagreements(read_page(f"DML_OPERATOR_{name}", text), starts[name]) if is_known else [UNKNOWN]
            lines += [f"{name}{line}" for line in found]
    history = texts.get("dml-feature-level-history", "")
    lines += of_history(history, starts) if history else []
    yield from (line for line in lines if not line.startswith(tuple(DELIBERATE)))
    for start in DELIBERATE:
        is_read = re.split(r"\W", start)[0] in starts and (history or "the history" not in start)
        if is_read and not any(line.startswith(start) for line in lines):
            yield f"{start}: stands in DELIBERATE, but agrees"
    missing = sorted({name.removeprefix("DML_OPERATOR_") for name in CASES} - starts.keys())
    if missing:
        yield f"no page of {', '.join(missing)}"


if __name__ == "__main__":
    found = list(audit(sys.argv[1:]))
    print("\n".join(found) or "The pages agree with dmljax.")
    sys.exit(bool(found))
