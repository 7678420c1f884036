"""The rooms of the package: imports point one way, so that a lower room can be read without the higher ones."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import dmljax
from dmljax import directml

PACKAGE = Path(dmljax.__file__).parent
# From the lowest to the highest; a module imports from its own room and from lower ones.
ROOMS = [
    ["text"],
    ["errors"],
    ["types"],
    ["foundation"],
    ["pictures"],
    ["arithmetic"],
    ["lowerings"],
    ["calls"],
    ["descriptors"],
    ["ops"],
    ["graphs", "directml"],  # directml has Graph; what records graphs of JAX programs names descriptors
    ["estimation"],
    ["functions"],
    ["__init__"],
    ["onnx", "serialized"],
    ["examples", "dxdispatch", "pydirectml", "run"],
    ["command_line"],
    ["__main__"],
]
HEIGHTS = {room: height for height, rooms in enumerate(ROOMS) for room in rooms}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def room_of(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py") if parts else "__init__"


def imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (room_of(tuple(name.name.split("."))[1:]) for name in node.names if name.name[:6] == "dmljax")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dmljax":
            inner = tuple((node.module or "").split("."))[1:]
            for name in node.names:
                is_room = not inner and name.name in HEIGHTS
                yield name.name if is_room else room_of(inner)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_its_own_room_and_lower_ones(path: Path) -> None:
    own = room_of(path.relative_to(PACKAGE).parts)
    assert [room for room in imported_rooms(path) if HEIGHTS[room] > HEIGHTS[own]] == []


def test_the_root_has_few_files() -> None:
    assert len([*PACKAGE.glob("*.py")]) <= 10


def test_no_file_is_too_long_to_read() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 850} == {}


def test_signatures_show_the_types_that_functions_take() -> None:
    clip = get_type_hints(dmljax.element_wise_clip)
    assert clip["min"] == (get_type_hints(dmljax.element_wise_add)["a"] | None)
    for operator in directml.OPERATORS.values():
        assert "Annotated" not in str(get_type_hints(operator.function, include_extras=True))


def test_the_command_line_needs_no_extra() -> None:
    absent = "import sys; sys.modules |= dict.fromkeys(['onnx', 'matplotlib', 'PIL'])"
    subprocess.run([sys.executable, "-c", f"{absent}; import dmljax.command_line.cli"], check=True)
