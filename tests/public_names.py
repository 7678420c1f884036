"""Writes `dmljax/__init__.py` from the families: `python tests/public_names.py`, whenever an operator was added.

tests/test_public_names.py sees that it was done.
"""

import ast
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
    "errors": ("DmlError", "InvalidDesc", "InvalidType", "Problem", "Unsupported"),
    "scalars": ("Scalar", "ScaleBias", "Size2D"),
    "tensor": ("TensorDesc",),
    "types": (
        "AxisDirection",
        "DataType",
        "FeatureLevel",
        "IsInfinityMode",
        "RoundingMode",
        "TensorFlags",
    ),
}
TEXT = '''\
"""The operators of DirectML for JAX: functions of arrays, and descriptors that mirror directml.h.

What this file names is public, and so are `dmljax.examples` and `dmljax.dxdispatch`; nothing else is.
`python tests/public_names.py` writes it.
"""

{imports}

__version__ = "{version}"

for _public in list(globals().values()):
    if getattr(_public, "__module__", "").startswith("dmljax."):
        _public.__module__ = "dmljax"  # where users find it, whatever file it is in
'''


def text() -> str:
    """The text of `dmljax/__init__.py`."""
    modules = CORE | {f"ops.{path.stem}": tuple(public_names(path)) for path in FAMILIES}
    imports = "\n".join(map(import_of, modules, modules.values()))
    version = (PACKAGE / "__init__.py").read_text().partition('__version__ = "')[2].partition('"')[0]
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
    return any(one.arg == "type" for one in node.keywords) or "NamedTuple" in map(ast.unparse, node.bases)


def import_of(module: str, names: tuple[str, ...]) -> str:
    """The import of the names, in the form that exports them."""
    line = f"from dmljax.{module} import {', '.join(f'{name} as {name}' for name in names)}"
    if len(line) <= 120:
        return line
    return "\n".join([f"from dmljax.{module} import (", *(f"    {name} as {name}," for name in names), ")"])


if __name__ == "__main__":
    (PACKAGE / "__init__.py").write_text(text())
