"""Writes what follows from the families and the pages: `__init__.py`, `elsewhere.json`, the list of operators.

Run `python tests/public_names.py` whenever an operator was added; tests/test_public_names.py sees that it was done.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dmljax"
FAMILIES = sorted(path for path in (PACKAGE / "ops").glob("*.py") if path.stem != "__init__")
CORE = {
    "descriptors": (
        "OPERATORS",
        "Operator",
        "broken_rules",
        "from_json",
        "lower",
        "minimum_feature_level",
        "to_json",
        "validate",
    ),
    "graph": ("Graph",),
    "errors": ("DmlError", "InvalidDesc", "InvalidType", "Problem", "Unsupported"),
    "pictures": ("show",),
    "scalars": ("Scalar", "ScaleBias", "Size2D"),
    "tensor": ("TensorDesc",),
    "types": (
        "AxisDirection",
        "ConvolutionDirection",
        "ConvolutionMode",
        "DataType",
        "DepthSpaceOrder",
        "FeatureLevel",
        "InterpolationMode",
        "IsInfinityMode",
        "MatrixTransform",
        "MultiheadAttentionMaskType",
        "PaddingMode",
        "QuantizationType",
        "RandomGeneratorType",
        "RecurrentNetworkDirection",
        "ReduceFunction",
        "RoundingMode",
        "TensorFlags",
    ),
}
TEXT = '''\
"""The operators of DirectML for JAX: functions of arrays, and descriptors that mirror directml.h.

What this file names is public, and so are `dmljax.examples`, `dmljax.dxdispatch`, `dmljax.pydirectml` and
`dmljax.serialized`; nothing else is.
`python tests/public_names.py` writes it.
"""

import typing as _typing

{imports}

__version__ = "{version}"

if not _typing.TYPE_CHECKING:  # type checkers know the names that there are

    def __getattr__(name):
        if name in ("dxdispatch", "onnx", "pydirectml", "serialized"):  # which are imported when they are needed
            from importlib import import_module

            return import_module(f"dmljax.{{name}}")
        from dmljax.relatives import hint

        raise AttributeError(f"module 'dmljax' has no attribute {{name!r}}{{hint(name)}}")


for _public in list(globals().values()):
    if getattr(_public, "__module__", "").startswith("dmljax."):
        _public.__module__ = "dmljax"  # where users find it, whatever file it is in
'''


def text() -> str:
    """The text of `dmljax/__init__.py`."""
    modules = CORE | {f"ops.{path.stem}": tuple(public_names(path)) for path in FAMILIES}
    imports = "\n".join(map(import_of, modules, modules.values()))
    version = (PACKAGE / "__init__.py").read_text().partition('__version__ = "')[2].partition('"')[0]
    if not version:
        raise ValueError('dmljax/__init__.py must say __version__ = "..."')
    return TEXT.format(imports=imports, version=version)


def public_names(family: Path) -> Iterator[str]:
    """The operators of a family, as functions and descriptors, and the named tuples that they return."""
    found = [node.name for node in ast.parse(family.read_text()).body if is_public(node)]  # type: ignore[attr-defined]
    yield from sorted(found, key=lambda name: (name[0].islower(), name))


def is_public(node: ast.stmt) -> bool:
    """Whether a statement defines an operator's function or descriptor, or a named tuple."""
    if isinstance(node, ast.FunctionDef):
        return any("operator_function" in ast.unparse(decorator) for decorator in node.decorator_list)
    if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
        return False
    return any(one.arg == "function" for one in node.keywords) or "NamedTuple" in map(ast.unparse, node.bases)


PAGES = PACKAGE.parent / "notebooks" / "operators"
_FUNCTION = re.compile(r"`(?:[a-z]\w*\.)*(\w+)(?:\([\w, .=]*\))?`")  # a name, perhaps with simple arguments


def elsewhere_text() -> str:
    """The text of `dmljax/elsewhere.json`."""
    functions: dict[str, list[str]] = {}
    for page in sorted(PAGES.glob("*.md")):
        for name in dict.fromkeys(names_elsewhere(page.read_text())):
            functions.setdefault(name, []).append(page.stem)
    return json.dumps({name: " ".join(functions[name]) for name in sorted(functions)}, indent=1) + "\n"


def names_elsewhere(page: str) -> Iterator[str]:
    """The names of the functions that stand alone in the second column of a page's table of relatives."""
    for row in page.partition("## Relatives")[2].splitlines()[4:]:
        _, _, cell, *_ = row.split("|")
        parts = re.split(r"[,;] (?=`)", cell.strip())
        for match in map(_FUNCTION.fullmatch, parts):
            if match and len(match[1]) > 1:
                yield match[1].lower().replace("_", "")


OPERATORS_PAGE = PAGES.parent / "operators.md"
LIST = """\
# The operators

By what they do. Each page has the function, a drawing, the descriptor with its rules and data types, and its relatives
in other libraries. `python tests/public_names.py` writes this list.

{families}

## Levels, ranks and data types

```{{operators}}
```

```{{toctree}}
:hidden:
:glob:

operators/*
```
"""


def operators_text() -> str:
    """The text of `notebooks/operators.md`: each operator with what it does and what it is called elsewhere."""
    from dmljax.describe import function_name, markdown_table, operators_by_family  # when `__init__.py` is written

    families = []
    for title, operators in operators_by_family().items():
        names = [function_name(operator) for operator in operators]
        rows = [(f"[`{name}`](operators/{name}.md)", purpose(name), called_elsewhere(name)) for name in names]
        lines = markdown_table(rows, ("function", "what it does", "called elsewhere"))
        families.append("\n".join([f"## {title}", "", *lines]))
    return LIST.format(families="\n\n".join(families))


def purpose(name: str) -> str:
    """The first paragraph of an operator's page, its links as they are from the page of all."""
    text = (PAGES / f"{name}.md").read_text()
    return re.sub(r"\]\((\w+\.md)\)", r"](operators/\1)", " ".join(text.split("\n\n")[1].splitlines()))


def called_elsewhere(name: str) -> str:
    """What an operator is called in JAX, PyTorch and ONNX, as the table at the end of its page has it."""
    table = (PAGES / f"{name}.md").read_text().partition("## Relatives")[2]
    cells = re.findall(r"^\| (?:JAX|PyTorch|ONNX) \| (.*?) \|", table, re.MULTILINE)
    names = [re.sub(r"\(.*", "", code) for cell in cells for code in re.findall(r"`([^`]*)`", cell)]
    return ", ".join(f"`{one}`" for one in dict.fromkeys(names) if re.fullmatch(r"[\w.]{2,}", one))


def import_of(module: str, names: tuple[str, ...]) -> str:
    """The import of the names, in the form that exports them."""
    line = f"from dmljax.{module} import {', '.join(f'{name} as {name}' for name in names)}"
    if len(line) <= 120:
        return line
    return "\n".join([f"from dmljax.{module} import (", *(f"    {name} as {name}," for name in names), ")"])


if __name__ == "__main__":
    (PACKAGE / "__init__.py").write_text(text())
    (PACKAGE / "elsewhere.json").write_text(elsewhere_text())
    OPERATORS_PAGE.write_text(operators_text())
