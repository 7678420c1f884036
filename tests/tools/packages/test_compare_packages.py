"""Programs of packages are compared by what they print, and the table says what differs or is missing."""

from collections.abc import Sequence
from pathlib import Path

import compare_packages
import pytest
from compare_packages import PROGRAMS, Printed, Program, difference, read, row
from helpers import GATE

TOY = '''\
# /// script
# dependencies = ["onnx", "numpy"]
#
# [tool.dmljax]
# tolerance = 1e-3
# remark = "as it should"
# ///
"""Adds
two numbers."""

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
print(session.run(None, {"x": np.array([0.25, 1], np.float32)}))
'''


@pytest.fixture
def toy(tmp_path: Path) -> Program:
    path = tmp_path / "use_toy.py"
    path.write_text(TOY)
    return read(path)


def test_a_program_says_what_it_does_and_needs(toy: Program) -> None:
    assert toy[1:] == ("Adds two numbers", ["onnx", "numpy"], 1e-3, "as it should")
    assert toy.name == "toy"


def test_every_program_of_a_package_can_be_read() -> None:
    programs = [read(path) for path in PROGRAMS]
    assert all(program.purpose and program.packages for program in programs)
    assert len({program.name for program in programs}) == len(programs) > 0


@pytest.mark.parametrize(
    ("ours", "theirs", "result"),
    [
        ("a 1", "a 1", "same"),
        ("[1.  2.5]", "[1. 2.5]", "same"),
        ("x 0.50001", "x 0.5", "same, numbers to 1e-05"),
        ("x 10001.0", "x 10000.5", "same, numbers to 5e-05"),
        ("x 0.502", "x 0.5", "differs: 0.502, on ONNX Runtime 0.5"),
        ("x nan 1e-9", "x nan 0.0", "same, numbers to 1e-09"),
        ("x nan", "x 1.0", "differs: nan, on ONNX Runtime 1"),
        ("a\nb 2", "a\nb 3", "differs: `b 2`, on ONNX Runtime `b 3`"),
        ("a\nb", "a", "differs: 2 lines, on ONNX Runtime 1"),
        ("", "", "prints nothing"),
    ],
)
def test_texts_are_equal_and_numbers_within_a_tolerance(ours: str, theirs: str, result: str) -> None:
    assert difference(ours, theirs, 1e-3) == result


def test_rows_say_what_fails_and_what_is_not_installed(toy: Program) -> None:
    def fail(program: Program, options: Sequence[str]) -> Printed:
        return Printed("", "ValueError: a | b" if options else "")

    def fail_on_both(program: Program, options: Sequence[str]) -> Printed:
        return Printed("", "ImportError: c")

    def count(program: Program, options: Sequence[str]) -> Printed:
        return Printed(str(len(options)))

    def refuse(program: Program, options: Sequence[str]) -> Printed:
        return Printed("", "x: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : no d (use e)" if options else "")

    assert row(toy, refuse)[2] == "refused: no d"
    assert row(toy, fail)[1:] == ("Adds two numbers", r"fails: ValueError: a \| b")
    assert row(toy, fail_on_both)[2] == "fails on ONNX Runtime: ImportError: c"
    assert row(toy, count)[2] == "differs: `2`, on ONNX Runtime `0`; as it should"
    assert row(toy._replace(packages=["no-such-package", "onnx"]))[::2] == (
        "no-such-package",
        "not installed: no-such-package",
    )


@GATE
def test_a_program_runs_on_both(toy: Program) -> None:
    assert row(toy) == (f"onnx {compare_packages.version_of('onnx')}", "Adds two numbers", "same")


@GATE
def test_an_error_is_shown_by_its_last_line(toy: Program) -> None:
    toy.path.write_text("import sys\nif 'dmljax.run' in sys.modules: raise ValueError('first\\n  second')\nprint(1)")
    assert row(toy)[2] == "fails: ValueError: first"
