"""Reading a model takes calls and memory in proportion to its file, whatever is wrong with it."""

import contextlib
import cProfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import FULL

from dmljax.dxdispatch.model import InvalidModel
from dmljax.dxdispatch.reading.reader import load

ONE_BYTE = "'initialValuesDataType': 'INT8', 'initialValues': [1]"


def model(resources: str = "", dispatchables: str = "", commands: str = "") -> str:
    return f"{{'resources': {{{resources}}}, 'dispatchables': {{{dispatchables}}}, 'commands': [{commands}]}}"


def halves_of(values: str) -> str:
    return model(f"'x': {{'initialValuesDataType': 'FLOAT16', 'initialValues': [{values}]}}")


def hardmax_with(flags: str) -> str:
    tensor = f"{{'DataType': 'FLOAT32', 'Sizes': [1, 1], 'Flags': [{flags}]}}"
    return f"'max': {{'type': 'ACTIVATION_HARDMAX', 'InputTensor': {tensor}}}"


def number_copies(part: str, count: int) -> str:
    """Repeats `part`, with each copy's number for #."""
    return ",".join(part.replace("#", str(i)) for i in range(count))


def growing(template: str, part: str) -> Callable[[int], str]:
    """Models with many copies of a part in place of the template's @."""
    return lambda count: template.replace("@", number_copies(part, count))


X = f"'x': {{{ONE_BYTE}}}"
PRINT = "{'type': 'print', 'resource': 'x'}"
DISPATCH = "{'type': 'dispatch', 'dispatchable': 'max', 'bindings': {'InputTensor': 'x', 'Outputs': 1}}"
FUSED = "'add': {'type': 'ELEMENT_WISE_ADD1', 'FusedActivation': {'Type': 'NONE', @}}"
WRITE = "{'type': 'writeFile', 'resource': 'x', 'targetPath': 'x.npy', 'dimensions': [@]}"
deep_targets = growing(model(X, "", "@"), f"{{'type': 'writeFile', 'resource': 'x', 'targetPath': '#/{'a/' * 400}x'}}")
MODELS = {
    "halves": growing(halves_of("@"), "70000"),
    "names_again": growing(model("@"), X),
    "wrong_resources": growing(model("@"), "'r#': 3"),
    "unknown_fields": growing(model(f"'x': {{{ONE_BYTE}, @}}"), "'f#': 3"),
    "struct": growing(model("'x': {'initialValues': [@]}"), "{'type': 'FLOAT16', 'value': 70000}"),
    "wrong_commands": growing(model(commands="@"), PRINT),
    "wrong_dispatches": growing(model("", hardmax_with(""), "@"), DISPATCH),
    "wrong_flags": growing(model("", hardmax_with("@")), "'F'"),
    "long_names_of_places": lambda count: growing(model(f"'{'x' * 8192 * count}': {{@}}"), "'f#': 3")(count),
    "long_names_nearby": lambda count: growing(
        model(",".join(f"'{'x' * 40 * count}{i}': 3" for i in range(200)), "", "@"), PRINT
    )(count),
    "fields_of_no_operator": lambda count: model("", FUSED.replace("@", number_copies("'f#': 1", 40 * count))),
    "many_dimensions": lambda count: model(X, "", WRITE.replace("@", number_copies("4294967295", 40 * count))),
    "deep_targets": deep_targets,
}


def calls(path: Path, text: str) -> int:
    """Counts the calls, of Python's own functions as well, that reading a model takes."""
    path.write_text(text.replace("'", '"'))
    profile = cProfile.Profile()
    with profile, contextlib.suppress(InvalidModel):
        load(path)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.gate(but=4)
def test_calls_grow_no_faster_than_the_model(tmp_path: Path, name: str) -> None:
    few, many = (calls(tmp_path / "model.json", MODELS[name](count)) for count in (50, 400))
    assert many < 9 * few


@FULL
def test_deeply_nested_findings_take_little_memory(tmp_path: Path) -> None:
    text = '{"x":' * 60 + "[" + "{}," * 50_000 + "]" + "}" * 60
    (tmp_path / "model.json").write_text(text)
    tracemalloc.start()
    with pytest.raises(InvalidModel):
        load(tmp_path / "model.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500 * 50_000


def test_targets_in_deep_folders_take_little_memory(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(deep_targets(500).replace("'", '"'))
    tracemalloc.start()
    load(tmp_path / "model.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 800 * 500


def test_only_the_first_repeated_names_are_reported(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"resources": {"x": 1' + ',\n"x": 1' * 5000 + "}}")
    with pytest.raises(InvalidModel) as refused:
        load(tmp_path / "model.json")
    assert len(refused.value.findings) == 1001
    assert [finding.line for finding in refused.value.findings[:4]] == [2, 3, 4, 5]
    assert {finding.path for finding in refused.value.findings[:1000]} == {"resources.x"}
