"""Writes the files that follow from families, cases, pages and measurements.

Run `python tests/tools/generated.py` after adding an operator; tests/tools/test_generated.py checks that you did.
"""

import ast
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE, NOTEBOOKS = TESTS.parent / "dmljax", TESTS.parent / "notebooks"
FOREIGN_NAMES = PACKAGE / "descriptors" / "foreign_names.json"
FAMILIES = sorted(path for path in (PACKAGE / "ops").glob("*/*.py") if path.stem != "__init__")
FUNCTIONS = {
    "errors": ("DmlError",),
    "estimation.entry": ("estimate",),
    "estimation.report": ("Estimate", "NodeCost"),
    "pictures": ("show",),
}  # names in the package besides the operators' functions
# Names without `activation_` that jax.nn has for the same function; test_public_names.py calls both. For others, such
# as gelu and hard_sigmoid, jax.nn has other defaults, and a name would mean two things in one program.
ALIASES = (
    *("celu", "elu", "hard_swish", "leaky_relu", "log_softmax", "relu", "sigmoid", "softmax", "softplus", "swish"),
    "tanh",
)
DIRECTML = {
    "descriptors": (
        "OPERATORS",
        "Operator",
        "find_broken_rules",
        "lower",
        "find_minimum_feature_level",
        "to_json",
        "validate",
    ),
    "graphs.graph": ("Graph", "from_json"),
    "errors": ("InvalidDesc", "InvalidType", "Problem", "Unsupported"),
    "foundation.scalars": ("Scalar", "ScaleBias", "Size2D"),
    "descriptors.tensor": ("TensorDesc",),
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
FUNCTIONS_TEXT = '''\
"""The modules that have what `dmljax` exports, each of which is imported when one of its names is first used.

`python tests/tools/generated.py` writes this file, and `functions.pyi`, which type checkers read.
"""

# fmt: off
_NAMES = {{
{names}
}}
_NAMES_OF_JAX = "{aliases}"
# fmt: on
HOMES = {{name: module for module, names in _NAMES.items() for name in names.split()}}
ALIASES = {{name: f"activation_{{name}}" for name in _NAMES_OF_JAX.split()}}
'''
STUB_TEXT = """\
# fmt: off
{imports}
{all}
# fmt: on
HOMES: dict[str, str]
ALIASES: dict[str, str]
"""
DIRECTML_TEXT = '''\
"""DirectML's descriptors, which mirror directml.h: validated, lowered to functions of arrays, read and written as JSON.

`python tests/tools/generated.py` writes this file.
"""

# fmt: off
import typing as _typing

{imports}
{all}
# fmt: on

for _name in __all__:
    if _name != "OPERATORS":
        globals()[_name].__module__ = "dmljax.directml"  # the module that users import it from

if not _typing.TYPE_CHECKING:  # a type checker refuses unknown names by itself

    def __getattr__(name):
        from dmljax.descriptors.spellings import hint
        from dmljax.text import no_attribute

        raise no_attribute("dmljax.directml", name, hint(name, __all__))


def __dir__() -> list[str]:
    return __all__
'''


def functions_text() -> str:
    """The text of `dmljax/functions.py`."""
    modules = _modules(FUNCTIONS, is_desc=False)
    names = "\n".join(f'    "dmljax{module}": """\n{_indented(names)}""",' for module, names in modules.items())
    return FUNCTIONS_TEXT.format(names=names, aliases=" ".join(ALIASES))


def _indented(names: Sequence[str]) -> str:
    return "\n".join(f"        {row}" for row in textwrap.wrap(" ".join(names), 110))


def stub_text() -> str:
    """The text of `dmljax/functions.pyi`."""
    modules = {"": ("directml",)} | _modules(FUNCTIONS, is_desc=False)
    homes = {name: module for module, names in modules.items() for name in names}
    aliases = [f"from dmljax{homes[f'activation_{name}']} import activation_{name} as {name}" for name in ALIASES]
    imports = "\n".join([_imports(modules), *aliases])
    return STUB_TEXT.format(imports=imports, all=_exported({**modules, "aliases": ALIASES}))


def directml_text() -> str:
    """The text of `dmljax/directml.py`."""
    modules = _modules(DIRECTML, is_desc=True)
    return DIRECTML_TEXT.format(imports=_imports(modules), all=_exported(modules))


def _modules(core: Mapping[str, tuple[str, ...]], *, is_desc: bool) -> dict[str, tuple[str, ...]]:
    """The exported names, by the modules that they come from."""
    families = {f".ops.{path.parent.stem}.{path.stem}": tuple(public_names(path, is_desc=is_desc)) for path in FAMILIES}
    return {f".{module}": names for module, names in core.items()} | {
        key: names for key, names in families.items() if names
    }


def _imports(modules: Mapping[str, tuple[str, ...]]) -> str:
    return "\n".join(_wrapped(f"from dmljax{module} import ", names) for module, names in modules.items())


def _exported(modules: Mapping[str, tuple[str, ...]]) -> str:
    names = sorted((name for several in modules.values() for name in several), key=_as_ruff_sorts)
    return _wrapped("__all__ = ", [f'"{name}"' for name in names], "[]")


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _wrapped(start: str, names: Sequence[str], brackets: str = "()") -> str:
    """Writes `start` and the names on as few lines as possible."""
    line = start + ", ".join(names)
    if len(line) <= 120 and brackets == "()":
        return line
    first, last = brackets[0], brackets[1]
    rows = textwrap.wrap(", ".join(names), 115)
    return "\n".join([start + first, *(f"    {row}" for row in rows), last])


def public_names(family: Path, *, is_desc: bool) -> list[str]:
    """The descriptors of a family, or its functions and the named tuples that they return."""
    found = [node for node in ast.parse(family.read_text()).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return sorted((one.name for one in found if (_is_desc if is_desc else _is_of_functions)(one)), key=_lowercase_last)


def _lowercase_last(name: str) -> tuple[bool, str]:
    return name[0].islower(), name


def _is_desc(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return isinstance(node, ast.ClassDef) and any(one.arg in ("function", "alias") for one in node.keywords)


def _is_of_functions(node: ast.FunctionDef | ast.ClassDef) -> bool:
    if isinstance(node, ast.FunctionDef):
        return any("operator_function" in ast.unparse(decorator) for decorator in node.decorator_list)
    return not node.name.startswith("_") and "NamedTuple" in map(ast.unparse, node.bases)


PAGES = NOTEBOOKS / "operators"
_FUNCTION = re.compile(r"`((?:[a-z]\w*\.)*\w+)(?:\([\w, .=]*\))?`")  # a name, perhaps with simple arguments


def foreign_names_text() -> str:
    """The text of `dmljax/descriptors/foreign_names.json`: functions by their names elsewhere, and what else to write.

    A name has its library where it means less with it: `gather` may be three functions, `torch.gather` two.
    """
    functions: dict[str, list[str]] = {}
    for page in sorted(PAGES.glob("*.md")):
        whole = [name for name in names_elsewhere(page.read_text()) if len(name.rpartition(".")[2]) > 1]
        for name in dict.fromkeys([*whole, *(name.rpartition(".")[2] for name in whole)]):
            functions.setdefault(name, []).append(page.stem)
    kept = {name: " ".join(pages) for name, pages in functions.items() if _says_more(name, functions)}
    rows = re.findall(r"^\| (`.+`) \| `(.+)` \|$", (NOTEBOOKS / "names.md").read_text(), re.MULTILINE)
    calls = {_plain(name): call for names, call in rows for name in re.findall(r"`(\w+)`", names)}
    return json.dumps({"functions": dict(sorted(kept.items())), "calls": dict(sorted(calls.items()))}, indent=1) + "\n"


def _says_more(name: str, functions: Mapping[str, Sequence[str]]) -> bool:
    last = name.rpartition(".")[2]
    return name == last or functions[name] != functions[last]


def names_elsewhere(page: str) -> Iterator[str]:
    """The names of functions in the second column of a page's table of relatives, if they fill a cell by themselves."""
    for row in page.partition("## Relatives")[2].splitlines()[4:]:
        _, _, cell, *_ = row.split("|")
        parts = re.split(r"[,;] (?=`)", cell.strip())
        yield from (_plain(match[1]) for match in map(_FUNCTION.fullmatch, parts) if match)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


LIST = """\
% `python tests/tools/generated.py` writes this page.

# The operators

Each page has the function, a picture, the descriptor with its rules and data types, and its relatives in other
libraries.

```{{operator-filter}}
```

{families}
"""


def operators_text() -> str:
    """The text of `notebooks/operators.md`: what each operator does and what others call it."""
    from dmljax.command_line.describe import (  # when `functions.py` is written
        function_name,
        markdown_table,
        operators_by_family,
    )

    families = []
    for title, operators in operators_by_family().items():
        names = [function_name(operator) for operator in operators]
        rows = [(f"[`{name}`](operators/{name}.md)", purpose(name), called_elsewhere(name)) for name in names]
        lines = markdown_table(rows, ("function", "what it does", "called elsewhere"))
        families.append("\n".join([f"## {title}", "", *lines]))
    return LIST.format(families="\n\n".join(families))


def purpose(name: str) -> str:
    """The first paragraph of an operator's page, with links as seen from the page of all operators."""
    text = (PAGES / f"{name}.md").read_text()
    return re.sub(r"\]\((\w+\.md)\)", r"](operators/\1)", " ".join(text.split("\n\n")[1].splitlines()))


def called_elsewhere(name: str) -> str:
    """The operator's names in JAX, PyTorch and ONNX, from the table at the end of its page."""
    table = (PAGES / f"{name}.md").read_text().partition("## Relatives")[2]
    cells = re.findall(r"^\| (?:JAX|PyTorch|ONNX) \| (.*?) \|", table, re.MULTILINE)
    names = [re.sub(r"\(.*", "", code) for cell in cells for code in re.findall(r"`([^`]*)`", cell)]
    return ", ".join(f"`{one}`" for one in dict.fromkeys(names) if re.fullmatch(r"[\w.]{2,}", one))


def at_a_glance_text() -> str:
    """The text of `notebooks/at-a-glance.md`."""
    import at_a_glance

    return at_a_glance.text()


def compilers_text() -> str:
    """The text of `notebooks/compilers.md`."""
    import compiler_table

    return compiler_table.text()


def onnxruntime_names_text() -> str:
    """The text of `notebooks/onnxruntime-names.md`."""
    import onnxruntime_names

    return onnxruntime_names.text()


def results_text() -> str:
    """The text of `tests/benchmarks/RESULTS.md`."""
    import results

    return results.text()


# In this order, since the later ones import dmljax
GENERATED: dict[Path, Callable[[], str]] = {
    PACKAGE / "functions.py": functions_text,
    PACKAGE / "functions.pyi": stub_text,
    PACKAGE / "directml.py": directml_text,
    FOREIGN_NAMES: foreign_names_text,
    NOTEBOOKS / "operators.md": operators_text,
    NOTEBOOKS / "at-a-glance.md": at_a_glance_text,
    NOTEBOOKS / "compilers.md": compilers_text,
    NOTEBOOKS / "onnxruntime-names.md": onnxruntime_names_text,
    TESTS / "benchmarks" / "RESULTS.md": results_text,
}

if __name__ == "__main__":
    sys.path += map(str, TESTS.glob("**/"))
    for path, text in GENERATED.items():
        path.write_text(text())
