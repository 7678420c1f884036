"""Interrupts of real processes in a pseudo-terminal, at every moment of a command."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from helpers import GATE
from onnx import helper
from onnx_models import FLOAT, model, value
from pseudo_terminals import SOON, WAIT, Terminal
from small_language_models import write_folder, write_tokenizer

import dmljax.run  # noqa: F401
from dmljax.foundation import interrupts
from dmljax.foundation.files import open_output

pytest.importorskip("pty", reason="needs POSIX's pseudo-terminals")
pytest.importorskip("tokenizers")
LAST_LINES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `net.onnx`, which takes seconds to compile, and `model`, a language model."""
    folder = tmp_path_factory.mktemp("interrupted")
    random, nodes, weights, last = np.random.default_rng(0), list[onnx.NodeProto](), {}, "x"
    for i in range(400):
        weights[f"w{i}"] = random.standard_normal((64 + i % 7, 64 + (i + 1) % 7)).astype(np.float32) / 8
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"product{i}"]))
        nodes.append(helper.make_node("Softmax", [f"product{i}"], [last := f"y{i}"]))
    proto = model(nodes, [value("x", FLOAT, ["N", 64])], [value(last, FLOAT, None)], weights)
    onnx.save(proto, folder / "net.onnx")
    (folder / "model").mkdir()
    write_tokenizer(write_folder(folder / "model", layers=8))
    return folder


RUN = ["dmljax", "run", "net.onnx"]
GENERATE = ["dmljax", "generate", "model", "w7 w30 w9", "--min_length", "60", "--max_length", "60"]
COMPILE = ["dmljax", "compile", "net.onnx", "--for", "cpu", "-o", "net.stablehlo"]
DRAWN = r"\r"  # the line of progress begins so
MOMENTS = {
    "importing": (["dmljax", "ops"], DRAWN + "starting"),
    "importing for a level": (["dmljax", "run", "net.onnx", "--dml_feature_level", "5_0"], DRAWN + "starting"),
    "running on a platform": (RUN, "Running on 'cpu'"),
    "tracing": (["dmljax", "run", "net.onnx", "--verbose"], "tracing the model"),
    "lowering": (["dmljax", "run", "net.onnx", "--verbose"], "lowering the model"),
    "compiling": (RUN, DRAWN + "compiling the model"),
    "compiling for seconds": (RUN, DRAWN + "compiling the model: 2 s"),
    "reading a prompt": ([*GENERATE, "--verbose"], "compiling the prompt"),
    "generating": ([*GENERATE, "--verbose"], "compiling the decoder"),
    "a prompt to type": (["dmljax", "generate", "model", "--chat"], "> "),
    "a process apart": (COMPILE, DRAWN + "starting"),
}


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param(moment, number, marks=[] if (moment, number) == ("compiling", signal.SIGINT) else GATE)
        for moment in MOMENTS
        for number in LAST_LINES
    ],
)
def test_an_interrupt_ends_a_command_with_one_line(moment: str, number: signal.Signals, folder: Path) -> None:
    command, pattern = MOMENTS[moment]
    terminal = Terminal(command, folder)
    terminal.read_until(pattern)
    before = terminal.shown
    terminal.interrupt(number)
    assert terminal.status() == 128 + number
    assert terminal.shown[-1] == LAST_LINES[number]
    assert len(terminal.shown) - len(before) <= 2  # a line that was being written may have ended
    assert "Traceback" not in terminal.text
    assert not (folder / "net.stablehlo").exists()
    assert not [*folder.glob(".dmljax-*")]


@GATE
@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.4, 0.7, 1.1])
def test_an_interrupt_ends_a_command_while_it_starts(seconds: float, folder: Path) -> None:
    terminal = Terminal(RUN, folder)
    time.sleep(seconds)
    terminal.interrupt(signal.SIGINT)
    status = terminal.status()
    # Python itself cannot be interrupted without a traceback before it runs the first line of ours.
    assert (status == 130 and terminal.shown[-1] == "interrupted") or "dmljax" not in terminal.text


@GATE
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_parent_ends_its_child(number: signal.Signals, folder: Path) -> None:
    command = [sys.executable, "-m", *COMPILE, "--verbose"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=folder, env=environment, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "starting\n"
        process.send_signal(number)
        # The pipe closes only when the child has ended as well.
        assert process.stderr.read().splitlines()[-1] == LAST_LINES[number]
        assert process.wait(SOON) == 128 + number


@GATE
def test_a_reader_of_a_generation_may_leave_early(folder: Path) -> None:
    command = [sys.executable, "-m", *GENERATE, "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(WAIT)) == (b"", 0)


# Programs of foreign libraries

STUCK = """
import hashlib
print("stuck", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)
"""
HANDLED = """
import time
print("waiting", flush=True)
try:
    time.sleep(1000)
except KeyboardInterrupt:
    print("handled", flush=True)
"""
CANCELLED = """
import asyncio

async def wait():
    try:
        print("waiting", flush=True)
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

asyncio.run(wait())
"""
THROUGH = """
import atexit, time
import onnxruntime
atexit.register(print, "left", flush=True)
print("waiting", flush=True)
try:
    time.sleep(1000)
finally:
    print("cleaned", flush=True)
"""


@GATE
@pytest.mark.parametrize(
    ("program", "first", "status", "lines"),
    [
        (STUCK, "stuck", 130, ["interrupted"]),
        (HANDLED, "waiting", 0, ["handled"]),
        (CANCELLED, "waiting", 130, ["cancelled", "interrupted"]),
        (THROUGH, "waiting", 130, ["cleaned", "interrupted", "left"]),
    ],
)
def test_a_foreign_program_may_handle_an_interrupt(
    program: str, first: str, status: int, lines: list[str], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(program)
    terminal = Terminal(["dmljax.run", "program.py"], tmp_path)
    terminal.read_until(first)
    time.sleep(0.1)
    terminal.interrupt(signal.SIGINT)
    assert terminal.status() == status
    assert [line.removeprefix("^C") for line in terminal.shown] == [first, *lines]


# In this process


def test_an_import_installs_no_handler() -> None:
    assert "dmljax.run" in sys.modules
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1


def test_an_interrupt_during_imports_is_raised_at_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_state", interrupts._State())
    done = []

    @interrupts.delay()
    def interrupted_import() -> None:
        interrupts._raise(signal.SIGINT, None)
        done.append("import")

    with pytest.raises(KeyboardInterrupt):
        interrupted_import()
    assert done == ["import"]
    with interrupts.delay():
        done.append("another")


def test_a_file_is_whole_or_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "net.stablehlo"
    path.write_bytes(b"before")
    with contextlib.suppress(KeyboardInterrupt), open_output(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert ([*tmp_path.iterdir()], path.read_bytes()) == ([path], b"before")
    with open_output(path) as file:
        file.write(b"after")
        (cleanup,) = interrupts._cleanups
    assert (path.read_bytes(), interrupts._cleanups) == (b"after", [])
    cleanup()  # finds nothing to remove
    with open_output(Path(os.devnull)) as file:  # nothing may replace a device
        file.write(b"lost")
    assert not Path(os.devnull).is_file()
