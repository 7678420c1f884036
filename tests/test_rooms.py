"""The rooms of the package: imports point one way, so that a lower room can be read without the higher ones."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import dmljax
from dmljax import directml

PACKAGE = Path(dmljax.__file__).parent
# From the lowest to the highest; a module imports from its own floor and from lower ones. A module may stand lower than
# the rest of its room, and `*` is whatever has no floor of its own.
FLOORS = {
    "": [
        ["text"],
        ["errors"],
        ["types"],
        ["foundation"],
        ["lowerings"],
        ["calls"],
        ["pictures"],
        ["descriptors"],
        ["ops"],
        ["graphs", "directml"],  # directml has Graph; what records graphs of JAX programs names descriptors
        ["functions"],
        ["__init__"],
        ["onnx", "serialized"],
        ["examples", "dxdispatch", "pydirectml", "run"],
        ["conformance", "estimation"],
        ["command_line"],
        ["__main__"],
    ],
    "lowerings": [
        ["numbers.derivatives", "numbers.elementary_float32", "numbers.floats"],
        ["platform", "strides"],
        ["workarounds"],
        ["copies", "kernels"],
        ["numbers"],
        ["attention", "rows"],
        ["images"],
    ],
    "ops": [["data", "elementwise", "rows"], ["images", "networks"]],
    "dxdispatch": [
        ["text"],
        ["networks"],
        ["model"],
        ["files"],
        ["reading"],
        ["execution", "fusion"],
        ["printing"],
        ["__init__"],
    ],
    "conformance": [["values", "variants"], ["samples"], ["promises"], ["kit"], ["comparison"], ["__init__"]],
    "onnx": [
        ["graph"],
        ["values"],
        ["handlers"],
        ["rewrites"],
        ["sharding"],
        ["running"],
        ["nodes"],
        ["loading", "to_directml"],
        ["model"],
        ["several_models"],
        ["language"],
        ["diffusion"],
        ["__init__"],
    ],
    "onnx.graph": [["graph"], ["reader"], ["*"]],
    "onnx.language": [
        ["state"],
        ["sampling"],
        ["acceptance", "beams", "settings"],
        ["parts", "tokens"],
        ["generation"],
        ["drafts", "translation"],
        ["rounds"],
        ["model"],
        ["__init__"],
    ],
    "onnx.nodes": [["data"], ["numbers"], ["attention", "images", "quantized"], ["*"], ["aliases"]],
    "estimation": [["hlo"], ["*"]],
    "command_line": [["onnx", "terminal"], ["describe", "models", "options"], ["*"], ["cli"], ["__init__"]],
}
HEIGHTS = {
    room: {name: height for height, names in enumerate(floors) for name in names} for room, floors in FLOORS.items()
}


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """The parts of the names of the modules that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{name.name}" for name in node.names]
            names = [name if is_module(name) else str(node.module) for name in inner]
        else:
            continue
        yield from (tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == "dmljax")


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def height(room: str, inner: tuple[str, ...]) -> int:
    """The floor of a module inside a room."""
    ends = range(len(inner), 0, -1)
    names = [*(".".join(inner[:end]) for end in ends), *([] if inner else ["__init__"]), "*"]
    return next(HEIGHTS[room][name] for name in names if name in HEIGHTS[room])


def is_upward(module: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether an import points to a higher floor of the room that two modules share."""
    shared = 0
    while module[shared : shared + 1] == other[shared : shared + 1] != ():
        shared += 1
    room = ".".join(module[:shared])
    return room in HEIGHTS and height(room, other[shared:]) > height(room, module[shared:])


def test_modules_import_only_from_their_own_floor_and_lower_ones() -> None:
    upward = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).with_suffix("").parts
        if module == ("onnx", "nodes", "__init__"):  # it imports all handlers
            continue
        upward += [(".".join(module), ".".join(other)) for other in imported(path) if is_upward(module, other)]
    assert upward == []


def test_a_folder_has_few_files() -> None:
    files = [path for folder in (PACKAGE, PACKAGE.parent / "tests") for path in folder.rglob("*.py")]
    counts = Counter(path.parent for path in files)
    assert {str(folder): count for folder, count in counts.items() if count > 15} == {}
    assert counts[PACKAGE] <= 10


def test_signatures_show_the_types_that_functions_take() -> None:
    clip = get_type_hints(dmljax.element_wise_clip)
    assert clip["min"] == (get_type_hints(dmljax.element_wise_add)["a"] | None)
    for operator in directml.OPERATORS.values():
        assert "Annotated" not in str(get_type_hints(operator.function, include_extras=True))


def test_the_command_line_needs_no_extra() -> None:
    absent = "import sys; sys.modules |= dict.fromkeys(['onnx', 'matplotlib', 'PIL'])"
    subprocess.run([sys.executable, "-c", f"{absent}; import dmljax.command_line.cli"], check=True)
