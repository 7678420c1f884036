"""Commands and calls say how far they are, which changes nothing else."""

import json
import logging
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
import small_diffusion_models
from helpers import GATE
from models import MODELS
from onnx_models import small_network
from pseudo_terminals import Terminal
from small_language_models import write_folder

import dmljax
from dmljax.command_line import terminal
from dmljax.command_line.cli import main
from dmljax.errors import DmlError
from dmljax.foundation.programs.compiling import Program
from dmljax.foundation.programs.progress import BYTES, Progress, ProgressLine, listen, report
from dmljax.onnx import diffusion_model, language_model, load

HARDMAX = str(MODELS / "activation_hardmax.json")


class Screen(StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time of lines of progress, which begins at 100 seconds."""
    now = [100.0]
    monkeypatch.setattr("dmljax.foundation.programs.progress.time.monotonic", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "50")

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


# Lines


@pytest.mark.parametrize(
    ("heard", "text"),
    [
        (Progress("starting"), "starting"),
        (Progress("reading weights", 0, 1_234_000, BYTES), "reading weights: 0 of 1.23 MB"),
        (Progress("reading weights", 5e9, None, BYTES), "reading weights: 5 GB"),
        (Progress("placing weights", 0, 0, BYTES), "placing weights: 0 of 0 B"),
        (Progress("compiling x", 1, 2, "program"), "compiling x: program 1 of 2"),
        (Progress("generating", 1, unit="token"), "generating: 1 token"),
        (Progress("generating", total=50, unit="token"), "generating: 50 tokens"),
    ],
)
def test_progress_is_spelled(heard: Progress, text: str) -> None:
    assert str(heard) == text


def test_a_line_is_redrawn_and_cleared_for_other_output(clock: Callable[[float], None]) -> None:
    screen = Screen()
    line = ProgressLine(screen, patience=0.2, is_redrawn=True)
    line(Progress("compiling the model"))
    line.draw()
    assert screen.getvalue() == ""
    clock(0.5)
    line.draw()
    clock(2)
    line.draw()
    line.draw()
    assert screen.getvalue() == "\rcompiling the model\x1b[K\rcompiling the model: 2 s\x1b[K"
    with line.pause():
        line.is_at_start = False
    assert screen.getvalue().endswith(": 2 s\x1b[K\r\x1b[K")
    written = screen.getvalue()
    line.draw()  # not into a text that goes on
    assert screen.getvalue() == written
    line.is_at_start = True
    line(Progress("x" * 60))
    line.draw()
    assert screen.getvalue() == f"{written}\r{'x' * 49}\x1b[K"


def test_tokens_have_a_rate(clock: Callable[[float], None]) -> None:
    line = ProgressLine(screen := Screen(), patience=0, is_redrawn=True)
    for tokens in (10, 18, 26):
        line(Progress("generating", tokens, 100, "token"))
        clock(2)
    line.draw()
    assert screen.getvalue() == "\rgenerating: token 26 of 100, 2.7 per second\x1b[K"


def test_plain_lines_say_what_changes_and_that_it_goes_on(clock: Callable[[float], None]) -> None:
    file = StringIO()
    line = ProgressLine(file, patience=10, is_redrawn=False)
    line(Progress("tracing"))
    line.draw()
    clock(11)
    line.draw()
    line(Progress("compiling", 1, 2, "program"))
    for _ in range(24):
        clock(1)
        line.draw()
    assert file.getvalue().splitlines() == [
        "tracing: 11 s",
        "compiling: program 1 of 2",
        "compiling: program 1 of 2, 10 s",
        "compiling: program 1 of 2, 20 s",
    ]


# Commands


def test_a_command_says_what_its_options_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", HARDMAX]) == 0
    silent = capsys.readouterr()
    assert silent.err == ""  # it takes less than ten seconds
    assert main(["run", HARDMAX, "--verbose"]) == 0
    out, err = capsys.readouterr()
    stages = ["starting", "compiling activation_hardmax: program 1 of 1"]
    assert err.splitlines()[:2] == stages
    assert out.splitlines()[0] == silent.out.splitlines()[0]
    assert main(["run", HARDMAX, "--verbose", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[:2] == stages
    assert json.loads(out)["device"] == "cpu"


def test_quiet_commands_and_json_on_a_pipe_say_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "PATIENCE_OF_FILES", 0.0)
    for option, is_said in (("--quiet", False), ("--json", False), ("--debug", True)):
        assert main(["run", HARDMAX, option]) == 0
        assert bool(capsys.readouterr().err) == is_said
    with pytest.raises(SystemExit):
        main(["run", HARDMAX, "--quiet", "--verbose"])
    assert "not allowed with argument --quiet" in capsys.readouterr().err


@GATE
def test_a_terminal_shows_a_line_that_is_gone_at_the_end(tmp_path: Path) -> None:
    onnx.save(small_network(), tmp_path / "net.onnx")
    shown = {}
    for option in ("--debug", "--quiet"):
        screen = Terminal(["dmljax", "run", "net.onnx", option], tmp_path, NO_COLOR="1")
        assert screen.status() == 0
        assert ("\rstarting" in screen.text) == (option == "--debug")
        assert "\x1b[3" not in screen.text
        shown[option] = [line for line in screen.shown if " s to load" not in line]
    assert shown["--debug"] == shown["--quiet"]
    assert shown["--debug"][0] == "Running on 'cpu'"


# Calls


def stages_of(heard: list[Progress]) -> list[str]:
    return [*dict.fromkeys(stage for stage, *_ in heard)]


def test_a_model_says_what_it_does_in_order(tmp_path: Path) -> None:
    onnx.save(small_network(), tmp_path / "net.onnx")
    heard: list[Progress] = []
    model = load(tmp_path / "net.onnx", progress=heard.append)
    assert stages_of(heard) == ["reading net.onnx", "checking the model", "placing weights"]
    assert heard[0][1:] == (0, (tmp_path / "net.onnx").stat().st_size, BYTES)
    heard.clear()
    image = np.ones((2, 3, 4, 4), np.float32)
    with listen(heard.append):
        result = model(image)
    program = ["tracing the model", "lowering the model", "compiling the model"]
    assert stages_of(heard)[-3:] == program
    heard.clear()
    with listen(heard.append):
        np.testing.assert_array_equal(model(image), result)
    assert heard == []
    with listen(heard.append):
        model(image[:1])
    assert stages_of(heard) == program
    np.testing.assert_array_equal(model(image), result)  # nobody listens any more
    assert stages_of(heard) == program


def test_weights_in_other_files_are_counted(tmp_path: Path) -> None:
    onnx.save(small_network(), tmp_path / "net.onnx", save_as_external_data=True, location="data", size_threshold=0)
    heard: list[Progress] = []
    load(tmp_path / "net.onnx", progress=heard.append)
    counts = [(done, total) for stage, done, total, _ in heard if stage == "reading weights"]
    assert counts[0] == (0, counts[0][1])
    assert np.all(np.diff([done or 0 for done, _ in counts]) > 0)
    assert {total for _, total in counts} == {sum((4 * 3 * 9 * 4, 16 * 5 * 4, 5 * 4, *(8,) * 3))}


def test_a_generation_says_what_it_does_in_order(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    heard: list[Progress] = []
    model = language_model(folder, progress=heard.append)
    assert stages_of(heard)[-1] == "preparing the decoder"
    heard.clear()
    tokens = model.generate([7, 30, 9], max_length=20, min_length=20, progress=heard.append)
    verbs = ("tracing", "lowering", "compiling")
    of_prompt, of_decoder = ([f"{verb} the {name}" for verb in verbs] for name in ("prompt", "decoder"))
    assert stages_of(heard) == ["reading the prompt", *of_prompt, "generating", *of_decoder]
    assert [(done, total) for stage, done, total, _ in heard if stage.startswith("compiling")] == [(1, 2), (2, 2)]
    assert model.generate([7, 30, 9], max_length=20, min_length=20) == tokens
    heard.clear()
    streamed = [*model.stream([7, 30, 9], block=4, max_length=20, min_length=20, progress=heard.append)]
    assert [7, 30, 9, *streamed] == tokens
    assert [done for stage, done, *_ in heard if stage == "generating"] == [3, 7, 11, 15, 19]


@GATE
@pytest.mark.parametrize("scheduler", ["ddim", "pndm", "euler_ancestral", "lcm", "dpmsolver++"])
@pytest.mark.parametrize("guidance", [1.0, 7.5])
def test_images_are_the_same_step_by_step(scheduler: str, guidance: float, tmp_path: Path) -> None:
    model = diffusion_model(small_diffusion_models.write_folder(tmp_path))
    tokens = np.arange(2 * 6).reshape(2, 6) % 7
    choices: dict[str, Any] = {"key": jax.random.key(1), "steps": 5, "scheduler": scheduler, "guidance": guidance}
    heard: list[Progress] = []
    images = model.generate(tokens, negative=tokens[:1], progress=heard.append, **choices)
    np.testing.assert_array_equal(images, model.generate(tokens, negative=tokens[:1], **choices))
    steps = [(done, total) for stage, done, total, _ in heard if stage == "removing noise"]
    count = steps[0][1]
    assert count is not None
    assert [*dict.fromkeys(steps)] == [(step + 1, count) for step in range(int(count))]


def test_progress_must_be_heard_by_a_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DmlError, match=r"onnx: progress must be True, False or a function; got 3"):
        load(small_network(), progress=3)  # type: ignore[arg-type]
    with pytest.raises(DmlError, match=r"estimate: progress must be True, False or a function; got 'all'"):
        dmljax.estimate(jnp.sin, jnp.ones(8), target="h100", progress="all")  # type: ignore[call-overload]
    onnx.save(small_network(), tmp_path / "net.onnx")
    load(tmp_path / "net.onnx", progress=True)
    assert capsys.readouterr().err.startswith("reading net.onnx: 0 of ")
    load(tmp_path / "net.onnx", progress=False)
    assert capsys.readouterr().err == ""


def test_reports_without_a_listener_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dmljax"):
        load(small_network())(np.ones((1, 3, 4, 4), np.float32))
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "dmljax"):
        load(small_network())(np.ones((1, 3, 4, 4), np.float32))
    messages = [record.getMessage() for record in caplog.records if record.name == "dmljax"]
    assert messages[-3:] == ["tracing the model", "lowering the model", "compiling the model"]


# Programs


def test_a_program_is_compiled_once_whoever_listens(caplog: pytest.LogCaptureFixture) -> None:
    def scale_in_place(x: Any, y: Any, *, factor: int) -> Any:
        return x * factor + y["y"]

    program = Program(scale_in_place, "it", donate_argnums=0, static_argnames="factor")
    heard: list[Progress] = []
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        for listener in (heard.append, None, heard.append):
            x, y = jnp.arange(4, dtype=np.float32), {"y": np.ones(4, np.float32)}
            with listen(listener):
                assert program(x, y, factor=3).tolist() == [1, 4, 7, 10]
            assert x.is_deleted()
    compiled = [record for record in caplog.messages if "XLA compilation of jit(scale_in_place)" in record]
    assert len(compiled) == 1
    assert [str(progress) for progress in heard] == ["tracing it", "lowering it", "compiling it"]
    with listen(heard.append):
        assert program(jnp.arange(4, dtype=np.float32), {"y": np.ones(4, np.float32)}, factor=2).tolist() == [
            1,
            3,
            5,
            7,
        ]
        assert len(heard) == 6
        jax.jit(lambda x: program(x, {"y": x}, factor=2))(jnp.arange(4.0))
        with jax.disable_jit():
            program(jnp.arange(5.0), {"y": 0.0}, factor=2)
    assert len(heard) == 6  # neither traced nor eager calls compile it


def test_a_program_goes_back_to_the_stage_before_it() -> None:
    heard: list[str] = []
    with listen(lambda progress: heard.append(str(progress))):
        report("running", 1, 2, "call")
        Program(lambda x: x + 1, "it")(1)
    assert heard == ["running: call 1 of 2", "tracing it", "lowering it", "compiling it", "running: call 1 of 2"]
