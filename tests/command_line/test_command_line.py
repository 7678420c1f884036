"""The command line: in a process as a user runs it, and in this one for every option."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from helpers import GATE, SAMPLED, few_of
from models import MODELS, dispatch, hardmax, listed, tensor, write_model, zeros

import dmljax
from dmljax.command_line import terminal
from dmljax.command_line.cli import main
from dmljax.command_line.describe import function_name, rules
from dmljax.descriptors.search import PURPOSES, functions_named
from dmljax.directml import OPERATORS
from dmljax.dxdispatch.execution import _compile_operator

ROUTING = MODELS / "top1_routing.json"
ROUTED = """\
Resource 'choices': 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1
Resource 'count': 4
Resource 'pairs': 0, 1, 1, 0, 2, 1, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
Resource 'routed': 1.5, 2, 2.5, 0, 0.5, 1, 1.5, 2, 2.5, 4.5, 5, 5.5
"""


def in_a_process(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dmljax", *map(str, arguments)]
    environment = os.environ | {"JAX_ENABLE_X64": "0", "JAX_PLATFORMS": "cpu"} | environment
    return subprocess.run(command, capture_output=True, timeout=120, env=environment, check=False)


# In a process


@GATE
def test_a_model_runs_in_a_process() -> None:
    finished = in_a_process("run", ROUTING)
    assert (finished.returncode, finished.stderr) == (0, b"")
    head, *dispatches = finished.stdout.decode().removesuffix(ROUTED).splitlines()
    assert finished.stdout.decode().endswith(ROUTED)
    assert head == "Running on 'cpu'"
    for name, line in zip(("route", "list", "fetch"), dispatches, strict=True):
        assert re.fullmatch(rf"Dispatch '{name}': 1 iterations, \d+\.\d{{4}} ms median \(CPU\)", line)


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("dmljax")
    finished = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=120, check=True)
    assert finished.stdout == f"dmljax {dmljax.__version__}, jax {jax.__version__}\n"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_commands_that_do_not_need_jax_do_not_import_it(option: str) -> None:
    program = f"import sys; from dmljax.command_line.cli import main; sys.argv = ['dmljax', '{option}']; main()"
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program], capture_output=True, check=True, text=True
    )
    assert process.stdout.startswith(("usage: dmljax", "dmljax "))
    imported = {*re.findall(r"\| +(\S+)$", process.stderr, re.MULTILINE)}
    assert not imported & {"jax", "numpy"}
    others = {name for name in imported if re.match(r"dmljax\.(?!command_line\b)", name)}
    foundation = {f"dmljax.foundation{name}" for name in ("", ".interrupts", ".programs", ".programs.progress")}
    assert others == {"dmljax.text", *foundation}


@GATE
def test_an_error_prints_one_line_and_exits_with_status_2(tmp_path: Path) -> None:
    path = write_model(tmp_path, {"x": listed("FLOAT32", [1, "NaN", "x"])})
    finished = in_a_process("run", path)
    assert (finished.returncode, finished.stdout) == (2, b"")
    message = "resources.x.initialValues[2] must be a number, 'nan', 'inf' or '-inf' for FLOAT32; got 'x'"
    assert finished.stderr.decode() == f"{path}:8: {message}\n"
    shown = in_a_process("run", path, "--debug")
    assert shown.returncode == 2
    assert b"Traceback" in shown.stderr
    assert shown.stderr.endswith(finished.stderr)


@pytest.mark.full
def test_an_option_enables_64_bit_types(tmp_path: Path) -> None:
    wide: dict[str, Any] = {"type": "ARGMAX", "InputTensor": tensor("FLOAT32", 3), "OutputTensor": tensor("INT64", 1)}
    wide |= {"Axes": [0], "AxisDirection": "INCREASING"}
    resources = {"x": listed("FLOAT32", [1, 3, 2]), "out": zeros("INT64", 1)}
    commands = [dispatch("top", InputTensor="x", OutputTensor="out"), {"type": "print", "resource": "out"}]
    path = write_model(tmp_path, resources, {"top": wide}, commands)
    refused = in_a_process("run", path)
    assert refused.returncode == 2
    assert refused.stdout == b""
    assert b"dispatchables.top.OutputTensor.DataType must be of at most 32 bits unless jax_enable_x64" in refused.stderr
    assert b"or --x64 on the command line; got INT64" in refused.stderr
    assert in_a_process("run", path, "--x64").stdout.endswith(b"Resource 'out': 1\n")
    assert in_a_process("check", path).returncode == 0


@GATE
def test_characters_and_bytes_are_printed_as_such(tmp_path: Path) -> None:
    path = write_model(tmp_path, {"ü": listed("UINT8", [72, 195, 188, 200])}, {}, [{"type": "print", "resource": "ü"}])
    finished = in_a_process("run", path, PYTHONIOENCODING="utf-8")
    assert finished.stdout == "Running on 'cpu'\nResource 'ü': ".encode() + b"H, \xc3, \xbc, \xc8\n"


@GATE
def test_a_reader_may_leave_early() -> None:
    command = f"{sys.executable} -m dmljax ops --json | head -c 1"
    finished = subprocess.run(command, shell=True, capture_output=True, timeout=120, check=True)
    assert (finished.stdout, finished.stderr) == (b"[", b"")


@pytest.mark.full
def test_a_closed_output_is_reported_on_the_other_stream(tmp_path: Path) -> None:
    for command in (["check", ROUTING, "--json"], ["--help"]):
        finished = in_a_shell(command, ">&-")
        assert finished == (2, b"", b"error: the standard output is closed\n")
    assert in_a_shell(["check", ROUTING], "2>&-")[::2] == (0, b"")
    assert in_a_shell(["walk"], "2>&-") == (2, b"", b"")
    assert in_a_shell(["check", tmp_path], ">&- 2>&-") == (2, b"", b"")


@pytest.mark.full
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_full_output_ends_with_one_line() -> None:
    message = b"error: cannot write to the standard output: No space left on device\n"
    for command in (["run", ROUTING], ["ops", "--json"]):
        assert in_a_shell(command, ">/dev/full") == (2, b"", message)
    status, _, err = in_a_shell(["run", "nothing", "--json"], ">/dev/full")
    assert status == 2
    assert err.endswith(message)
    assert b"Traceback" not in err


def in_a_shell(arguments: list[Any], redirected: str) -> tuple[int, bytes, bytes]:
    command = f"exec {shlex.join([sys.executable, '-m', 'dmljax', *map(str, arguments)])} {redirected}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    finished = subprocess.run(command, shell=True, capture_output=True, timeout=120, env=environment, check=False)
    return finished.returncode, finished.stdout, finished.stderr


@GATE
def test_a_model_runs_where_jit_is_disabled(capsys: pytest.CaptureFixture[str]) -> None:
    model = MODELS / "nonzero_coordinates.json"  # which has loops
    finished = in_a_process("run", model, JAX_DISABLE_JIT="1")
    assert (finished.returncode, finished.stderr) == (0, b"")
    for arguments in ([], ["--emit", "stablehlo"], ["--emit", "hlo"], ["--emit", "jaxpr"]):
        outputs = []
        for is_disabled in (False, True):
            _compile_operator.cache_clear()
            with jax.disable_jit(is_disabled):
                assert main(["run", str(model), *arguments]) == 0
            outputs.append(without_times(capsys.readouterr().out))
        assert outputs[0] == outputs[1]


def without_times(printed: str) -> str:
    return re.sub(r"[\d.]+ ms", "", printed)


# run


def test_options_set_iterations_runs_and_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) / 1000, sleep=time.sleep)
    monkeypatch.setattr("dmljax.dxdispatch.execution.time", clock)
    assert main(["run", str(ROUTING), "-i", "5", "-r", "2", "-w", "2", "-v", "2", "-I", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    milliseconds = r"\d+\.\d{4} ms"
    patterns = [
        "Running on 'cpu'",
        *(rf"Initialize '{name}': {milliseconds}" for name in ("route", "list", "fetch")),
        "Dispatch 'route': 5 iterations",
        rf"CPU Timings \(Cold\) : 2 samples, {milliseconds} average, {milliseconds} min, {milliseconds} median, .* max",
        rf"CPU Timings \(Hot\)  : 3 samples, {milliseconds} average, {milliseconds} min, {milliseconds} median, .* max",
        "The timings of each iteration: ",
        *(rf"iteration {i}: {milliseconds} \(CPU\)" for i in range(5)),
        "Dispatch 'list': 5 iterations",
    ]
    assert len(lines) == len(patterns) + 8 + 9 + 4 + 1
    for line, pattern in zip(lines, patterns, strict=False):
        assert re.fullmatch(pattern, line), line
    assert re.fullmatch(rf"All 3 dispatches: {milliseconds}, the sum of the hot medians", lines[-1])
    assert main(["run", str(ROUTING), "-t", "30", "-v", "1"]) == 0
    counts = re.findall(r"Dispatch '\w+': (\d+) iterations", capsys.readouterr().out)
    assert len(counts) == 3
    assert all(1 < int(count) <= 30 for count in counts)  # each takes at least one millisecond of the clock


def test_the_times_of_all_dispatches_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(ROUTING), "--json", "-i", "4"]) == 0
    report = json.loads(capsys.readouterr().out)
    medians = [result["median_milliseconds"] for result in report["results"] if result["type"] == "dispatch"]
    assert len(medians) == 3
    assert report["dispatch_milliseconds"] == pytest.approx(sum(medians))
    assert main(["run", str(MODELS / "activation_hardmax.json"), "-v", "1"]) == 0  # a single dispatch is all
    assert "All" not in capsys.readouterr().out


def test_dispatches_are_compiled_as_one_with_the_same_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(ROUTING), "--fuse"]) == 0
    lines = capsys.readouterr().out.removesuffix(ROUTED).splitlines()
    assert [without_times(line) for line in lines] == [
        "Running on 'cpu'",
        "Dispatch 'route + list': 1 iterations,  median (CPU)",
        "Dispatch 'fetch': 1 iterations,  median (CPU)",
    ]
    for repeated in (["-i", "3"], ["-r", "3"], ["-t", "20"]):
        assert main(["run", str(ROUTING), "--fuse", *repeated]) == 0
        assert capsys.readouterr().out.endswith(ROUTED)


@pytest.mark.parametrize("repeated", [["-i", "2"], ["-r", "2"], ["-t", "1"]])
def test_dispatches_that_change_when_repeated_are_not_fused(
    repeated: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_place = dispatch("max", InputTensor="x", OutputTensor="x")
    path = write_model(tmp_path, {"x": listed("FLOAT32", [1, 2])}, {"max": hardmax(1, 2)}, [in_place, in_place])
    counts = []
    for arguments in ([], repeated):
        assert main(["run", str(path), "--fuse", *arguments]) == 0
        counts.append(capsys.readouterr().out.count("Dispatch"))
    assert counts == [1, 2]


def test_fused_commands_are_printed_with_their_own_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(ROUTING), "--fuse", "--print_commands"]) == 0
    numbers = re.findall(r"\[(StartCmd|EndCmd)\]\[(\d+)\]", capsys.readouterr().out)
    assert numbers[:6] == [
        ("StartCmd", "0000"),
        ("StartCmd", "0001"),
        ("EndCmd", "0000"),
        ("EndCmd", "0001"),
        ("StartCmd", "0002"),
        ("EndCmd", "0002"),
    ]
    assert numbers[-1] == ("EndCmd", "0006")


def test_graphs_are_emitted_without_the_values_of_their_constants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gemm.bin").symlink_to(MODELS / "gemm.bin")
    path = write_model(tmp_path, {}, {"product": {"type": "dmlSerializedGraph", "sourcePath": "gemm.bin"}})
    assert main(["run", str(path), "--emit", "stablehlo"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("// product: graph\nmodule @jit_graph")
    assert not re.search(r"dense<[^>]*(10|20|4)\.", out)  # the constants' values
    assert main(["run", str(ROUTING), "--emit", "stablehlo", "--fuse"]) == 0
    assert "// route + list: graph\nmodule @jit_graph" in capsys.readouterr().out


def test_commands_are_printed_as_they_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(MODELS / "activation_hardmax.json"), "--print_commands"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith('[StartCmd][0000]\t: {"type":"dispatch","dispatchable":"activation_hardmax",')
    assert lines[3:7] == [
        "[EndCmd][0000]\t: hr=0x00000000 ",
        "",
        '[StartCmd][0001]\t: {"type":"print","resource":"output"}',
        "Resource 'output': 0, 0, 1, 0, 1, 0, 0, 0",
    ]


def test_results_are_written_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resources = {"x": listed("FLOAT32", ["nan", "inf", "-inf", 0.1]), "y": zeros("FLOAT32", 4), "z": zeros("UINT8", 2)}
    commands = [
        dispatch("max", InputTensor="x", OutputTensor="y"),
        *({"type": "print", "resource": name} for name in resources),
        {"type": "writeFile", "resource": "z", "targetPath": "z.dat"},
    ]
    path = write_model(tmp_path, resources, {"max": hardmax(1, 4)}, commands)
    assert main(["run", str(path), "--json", "-i", "3", "--print_commands", "--output_path", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["device"] == "cpu"
    assert report["compile_milliseconds"]["max"] > 0
    dispatched, *rest = report["results"]
    assert (dispatched["type"], dispatched["dispatchable"], len(dispatched["milliseconds"])) == ("dispatch", "max", 3)
    assert dispatched["median_milliseconds"] == sorted(dispatched["milliseconds"][1:])[1]
    assert report["dispatch_milliseconds"] == dispatched["median_milliseconds"]
    assert rest[0]["values"] == ["nan", "inf", "-inf", float(np.float32(0.1))]
    assert rest[2] == {"type": "print", "resource": "z", "data_type": "UINT8", "values": [0, 0]}
    assert rest[3] == {"type": "writeFile", "resource": "z", "path": str(tmp_path / "z.dat")}


def test_errors_are_written_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_model(tmp_path, {"x": 3})
    assert main(["run", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    (finding,) = json.loads(out)["findings"]
    message = "must be an object; got 3"
    assert finding == {
        "file": str(path),
        "line": 3,
        "column": None,
        "path": "resources.x",
        "others": [],
        "message": message,
        "rule": "must be an object",
        "given": "3",
    }
    assert err == f"{path}:3: resources.x {message}\n"


@pytest.mark.parametrize(
    ("emit", "start"),
    [
        ("stablehlo", "module @jit_activation_hardmax"),
        ("hlo", "HloModule jit_activation_hardmax"),
        ("jaxpr", r"(let \w+ = )?\{ lambda"),
    ],
)
def test_modules_are_emitted_and_not_run(emit: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", str(MODELS / "activation_hardmax.json"), "--emit", emit]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert re.match(f"// activation_hardmax: DML_OPERATOR_ACTIVATION_HARDMAX\n{start}", out)
    assert "Resource" not in out
    assert main([*arguments, "--json"]) == 0
    assert re.match(start, json.loads(capsys.readouterr().out)["activation_hardmax"])


@pytest.mark.parametrize("emit", ["stablehlo", "hlo"])
def test_modules_are_emitted_for_any_platform(emit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of 1,000, which a CPU reduces in different steps than other platforms."""
    path = write_model(tmp_path, {}, {"max": hardmax(2, 1000)})
    modules = {}
    for platform in (None, "cpu", "gpu", "cuda", "rocm", "tpu"):
        assert main(["run", str(path), "--emit", emit, "--json", *(["--platform", platform] if platform else [])]) == 0
        modules[platform] = json.loads(capsys.readouterr().out)["max"]
    assert modules["cpu"] == modules[None]
    assert modules["cpu"] != modules["tpu"]
    assert modules["gpu"] == modules["cuda"]


@pytest.mark.parametrize("platform", few_of(["gpu", "cuda", "rocm", "tpu"], "tpu"))
@GATE
def test_an_unavailable_platform_is_refused(platform: str) -> None:
    if jax.default_backend() != "cpu":
        pytest.skip("JAX may have this platform here")
    finished = in_a_process("run", ROUTING, "--platform", platform)
    rule = "--platform must name a platform that JAX has on this machine"
    reasons = r"it has no such device, or no plugin for it|Unable to .*|.*pip install 'jax\[\w+\]'"
    message = rf"error: {rule}; got {platform}( \(({reasons})\))?\n(tip: {reasons}\n)?"
    assert finished.returncode == 2
    assert re.fullmatch(message, finished.stderr.decode())
    assert "Error" not in finished.stderr.decode()
    if platform == "gpu":
        assert "rocm" not in finished.stderr.decode()


@pytest.mark.parametrize(
    "command", few_of([["run", ROUTING], ["run", ROUTING, "--emit", "hlo"], ["explain", "one_hot"]], ["run", ROUTING])
)
@GATE
def test_nothing_is_computed_without_a_platform(command: list[Any]) -> None:
    finished = in_a_process(*command, JAX_PLATFORMS="no_such")
    assert finished.returncode == 2
    rule = "JAX_PLATFORMS must name a platform that JAX has on this machine"
    assert re.fullmatch(rf"error: {rule}; got no_such( \(.+\))?\n", finished.stderr.decode())
    assert "Error" not in finished.stderr.decode()


@GATE
def test_a_platform_of_the_environment_has_the_package_to_install() -> None:
    if jax.default_backend() != "cpu":
        pytest.skip("JAX may have this platform here")
    finished = in_a_process("run", ROUTING, JAX_PLATFORMS="gpu")
    assert "got gpu\ntip: for NVIDIA GPUs, pip install 'jax[cuda13]'\n" in finished.stderr.decode()


@pytest.mark.full
def test_an_available_platform_is_used() -> None:
    assert in_a_process("run", ROUTING, "--platform", "cpu").returncode == 0


@pytest.mark.parametrize("level", ["1_0", "1.0", "DML_FEATURE_LEVEL_1_0"])
def test_a_level_refuses_what_its_devices_would_refuse(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(MODELS / "activation_hardmax.json"), "--dml_feature_level", level]) == 2
    assert "desc.InputTensor.DimensionCount must be 4; got 2 (at DML_FEATURE_LEVEL_1_0)" in capsys.readouterr().err


def test_ignored_fields_give_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_model(tmp_path, {"x": zeros("INT32", 1, sizeInByte=4)}, {}, [{"type": "print", "resource": "x"}])
    assert main(["run", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("Resource 'x': 0\n")
    ignored = "unknown field 'sizeInByte' is ignored; known fields are "
    assert err.startswith(f"warning: {path}:9: resources.x.sizeInByte: {ignored}")
    assert err.endswith(", did you mean sizeInBytes?\n")


def test_a_failing_command_exits_with_status_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_bytes(b"")
    commands = [{"type": "print", "resource": "x"}, {"type": "writeFile", "resource": "x", "targetPath": "file/x.dat"}]
    path = write_model(tmp_path, {"x": zeros("INT32", 1)}, {}, commands)
    assert main(["run", str(path), "--output_path", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out.endswith("Resource 'x': 0\n")
    assert re.fullmatch(rf"{path}:\d+: commands\[1\].targetPath must be a writable file; .*\n", err)


def test_commands_are_printed_on_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = "a\n\x7f\x9b\u2028"
    path = write_model(tmp_path, {odd: zeros("INT32", 1)}, {}, [{"type": "print", "resource": odd}])
    path = path.rename(tmp_path / f"{odd}.json")
    assert main(["run", str(path), "--print_commands"]) == 0
    lines = capsys.readouterr().out.removesuffix("\n").split("\n")
    assert len(lines) == 5
    assert lines[1] == r'[StartCmd][0000]	: {"type":"print","resource":"a\n\u007f\u009b\u2028"}'
    assert lines[2] == r"Resource 'a\n\u007f\u009b\u2028': 0"
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out.rstrip("\n").isprintable()


def test_a_compiler_that_aborts_gives_a_one_line_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = b"I1127 11:12:19.7 7 a.cc:7] all is well\nF1127 11:12:19.7 7 b.cc:7] Check failed: a <= 16 \n*** trace\n"
    monkeypatch.setattr(terminal, "_PROGRAM", f"import os; os.write(2, {words!r}); os.abort()")
    assert terminal.run_apart(["estimate"]) == 2
    assert capfd.readouterr().err == "error: XLA's compiler stopped: Check failed: a <= 16\n"
    monkeypatch.setattr(terminal, "_PROGRAM", "import os; os.kill(os.getpid(), 9)")
    assert terminal.run_apart(["estimate"]) == 2
    assert capfd.readouterr().err == "error: XLA's compiler stopped: signal 9\n"


@GATE
def test_commands_that_compile_for_chips_run_in_a_process_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["dmljax", "compile", "none.onnx", "--for", "cpu", "-o", "none"])
    assert main() == 2
    assert capfd.readouterr().err == "error: none.onnx: no such file\n"


def test_an_unexpected_exception_exits_with_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr("dmljax.command_line.models.load", broken)
    assert main(["run", str(ROUTING)]) == 2
    assert capsys.readouterr().err == "error: MemoryError: no room\ntip: --debug prints the traceback\n"
    assert main(["run", str(ROUTING), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


# check


def test_check_lists_all_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(ROUTING)]) == 0
    assert capsys.readouterr().out == f"{ROUTING}: no findings at DML_FEATURE_LEVEL_6_4\n"
    assert main(["check", str(ROUTING), "--dml_feature_level", "2_0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2].partition(" must")[0] for line in lines] == [
        "dispatchables.route.desc.InputTensor.DimensionCount",
        "dispatchables.route.desc.OutputTensor.DimensionCount",
        "dispatchables.list.desc: the feature level",
        "dispatchables.fetch.desc: the feature level",
        "4 findings at DML_FEATURE_LEVEL_2_0",
    ]
    assert main(["check", str(ROUTING), "--dml_feature_level", "2_0", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [finding["line"] for finding in report["findings"]] == [28, 29, 34, 42]
    assert report["warnings"] == []


def test_terminals_show_colors_unless_users_disable_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["check", str(ROUTING)]) == 0
    assert capsys.readouterr().out == f"{ROUTING}: \033[32mno findings\033[0m at DML_FEATURE_LEVEL_6_4\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["check", str(ROUTING)]) == 0
    assert capsys.readouterr().out == f"{ROUTING}: no findings at DML_FEATURE_LEVEL_6_4\n"


def test_several_models_are_checked_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, unreadable = write_model(tmp_path, {"x": 3}), tmp_path / "none.json"
    assert main(["check", str(ROUTING), str(wrong)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{ROUTING}: no findings at DML_FEATURE_LEVEL_6_4"
    assert printed[-1] == f"{wrong}: 1 finding at DML_FEATURE_LEVEL_6_4"
    assert main(["check", str(unreadable), str(wrong), "--json"]) == 2
    printed = capsys.readouterr().out.splitlines()
    assert [len(json.loads(line)["findings"]) for line in printed] == [1, 1]


def test_several_models_run_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    models = [str(ROUTING), str(MODELS / "nonzero_coordinates.json")]
    assert main(["run", *models]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":")] == [f"{model}:" for model in models]
    assert lines.count("Running on 'cpu'") == 2
    assert main(["run", *models, "--json"]) == 0
    assert [json.loads(line)["device"] for line in capsys.readouterr().out.splitlines()] == ["cpu", "cpu"]


def test_a_serialized_graph_runs_as_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = MODELS / "gemm.bin"  # x @ w + b, of x = [0, 1]
    graph = dmljax.serialized.load(path)
    expected = dmljax.directml.lower(graph)(np.array([[[[0, 1]]]], np.float32))
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no findings at DML_FEATURE_LEVEL_6_4\n"
    assert main(["run", str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["results"][-1]
    assert printed["values"] == np.ravel(expected["y"] if isinstance(expected, dict) else expected).tolist()
    broken = tmp_path / "broken.BIN"
    broken.write_bytes(b"graph")
    assert main(["check", str(broken)]) == 2
    assert capsys.readouterr().err.startswith(f"{broken}: the model ")


@pytest.mark.full
def test_a_model_is_read_from_the_standard_input() -> None:
    command = [sys.executable, "-m", "dmljax"]
    checked = subprocess.run(
        [*command, "check", "-"], input='{"resources": {"x": 3}}', capture_output=True, text=True, check=False
    )
    assert checked.returncode == 1
    first, *_, last = checked.stdout.splitlines()
    assert first == "<stdin>:1: resources.x must be an object; got 3"
    assert last.startswith("<stdin>: ")
    ran = subprocess.run([*command, "run", "-"], input=ROUTING.read_bytes(), capture_output=True, check=True)
    assert ran.stdout.decode().endswith(ROUTED)


def test_findings_are_in_line_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.json"
    path.write_text('{"commands": [\n{"type": "walk"}],\n"dispatchables": {\n"a": 3},\n"resources": {\n"x": 3}}')
    assert main(["check", str(path), "--json"]) == 1
    lines = [finding["line"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert lines == sorted(lines)
    assert set(lines) >= {2, 4, 6}


def test_check_refuses_files_that_are_not_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.json").write_text("{")
    assert main(["check", str(tmp_path / "model.json")]) == 2
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'model.json'}:1:2: expected a name in double quotes")


# ops and explain


def test_ops_lists_every_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    table = capsys.readouterr().out
    assert main(["ops", "--markdown"]) == 0
    markdown = capsys.readouterr().out
    assert main(["ops", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [entry["operator"] for entry in report] == sorted(OPERATORS)
    for name in OPERATORS:
        short = name.removeprefix("DML_OPERATOR_")
        assert re.search(rf"^{short} ", table, re.MULTILINE)
        assert f"| {short} |" in markdown
    assert max(map(len, table.splitlines())) <= 130
    assert table.endswith(f"\nAll {len(OPERATORS)} operators of DML_FEATURE_LEVEL_6_4\n")
    one_hot = next(entry for entry in report if entry["operator"] == "DML_OPERATOR_ONE_HOT")
    assert one_hot["feature_level"] == "DML_FEATURE_LEVEL_2_0"
    assert one_hot["tensors"]["IndicesTensor"] == {
        "dimension_counts": [1, 8],
        "data_types": ["UINT32", "INT32", "UINT64", "INT64"],
    }


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_the_table_of_operators_fits_a_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # which does not matter to other programs
    assert main(["ops"]) == 0
    whole = capsys.readouterr().out
    assert max(map(len, whole.splitlines())) > 120
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["ops"]) == 0
    fitted = capsys.readouterr().out
    assert max(map(len, fitted.splitlines())) <= columns
    assert sorted(re.findall(r"[\w/]+", fitted)) == sorted(re.findall(r"[\w/]+", whole))  # nothing is cut
    if columns >= 100:
        assert fitted.count("\n") < 1.3 * whole.count("\n")


@SAMPLED
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_is_explained(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["explain", name]) == 0
    text = capsys.readouterr().out
    assert main(["explain", name, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    operator = OPERATORS[name]
    assert [member["name"] for member in report["members"]] == [member.name for member in operator.members()]
    assert list(report["support"]) == [str(level) for level in sorted(operator.support)]
    assert report["examples"]
    assert "    >>> import jax.numpy as jnp\n    >>> from dmljax import *\n    >>> " in text
    for part in (name, report["signature"].split("(")[0], *(member["name"] for member in report["members"])):
        assert part in text
    written = [line for line in text.splitlines() if not line.lstrip().startswith((">>>", "..."))]
    assert max(map(len, written)) <= 100


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_rules_name_members(name: str) -> None:
    operator = OPERATORS[name]
    listed_rules = rules(operator)
    assert listed_rules
    known = {*operator.json_fields(), "DataType", "DimensionCount", "Sizes"}
    for rule in listed_rules:
        named = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", rule))
        assert named <= known | {"BatchDimensionCount"}, rule  # which one of the gathers does not have


@pytest.mark.parametrize("name", ["one_hot", "ONE_HOT", "one-hot", "DML_OPERATOR_ONE_HOT", "OneHotDesc"])
def test_an_operator_is_found_by_any_of_its_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    assert capsys.readouterr().out.startswith("DML_OPERATOR_ONE_HOT\n")


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("relu", "ACTIVATION_RELU"),
        ("hardmax", "ACTIVATION_HARDMAX"),
        ("max", "ELEMENT_WISE_MAX"),
        ("onehot", "ONE_HOT"),
        ("nonzero", "NONZERO_COORDINATES"),
        ("Trilu", "DIAGONAL_MATRIX1"),
    ],
)
def test_an_operator_is_found_by_its_name_in_other_libraries(
    name: str, operator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name]) == 0
    assert capsys.readouterr().out.startswith(f"DML_OPERATOR_{operator}\n")


@pytest.mark.parametrize(
    ("name", "tip"),
    [
        ("one_hott", "did you mean one_hot?"),
        ("softmx", "did you mean activation_softmax?"),
        ("xyzzy", "`dmljax ops` lists them"),
    ],
)
def test_an_unknown_operator_gets_suggestions(name: str, tip: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 2
    assert capsys.readouterr().err == f"error: unknown operator {name!r}\ntip: {tip}\n"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("DML_EXECUTION_FLAG_NONE", "leave it out: XLA compiles without flags"),
        ("IDMLDevice", "use dmljax.directml.lower(desc), a function of arrays on JAX's devices"),
    ],
)
def test_a_name_of_directmls_interface_is_explained_by_what_takes_its_place(
    name: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name]) == 0
    assert capsys.readouterr() == (f"{name}: {instead}\n", "")
    assert main(["explain", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": name, "instead": instead}


@pytest.mark.parametrize("name", ["pydirectml", "dmljax.pydirectml", "PyDirectML"])
def test_a_module_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    assert capsys.readouterr().out.startswith("dmljax.pydirectml\n    PyDirectML for JAX: ")


@pytest.mark.parametrize(
    ("name", "signature", "line"),
    [
        ("TensorDesc", "TensorDesc(data_type, sizes, strides=None,", "`DML_BUFFER_TENSOR_DESC`: the data type"),
        ("DML_TENSOR_DATA_TYPE_FLOAT16", "DataType", "FLOAT16  DML_TENSOR_DATA_TYPE_FLOAT16"),
        ("validate", "validate(desc, feature_level=directml.FeatureLevel.FL_6_4)", "Raises if a device"),
    ],
)
def test_classes_and_functions_are_explained(
    name: str, signature: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"dmljax.directml.{signature}\n")
    assert f"\n    {line}" in out
    assert main(["explain", name, "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["name"] == f"dmljax.directml.{signature.partition('(')[0]}"
    assert bool(known["members"]) == (known["name"] == known["signature"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["run", "none.bin"], "error: none.bin: no such file\n"),
        (["run", "none.onnx"], "error: none.onnx: no such file\n"),
        (["check", "none.onnx"], "error: none.onnx: no such file\n"),
        (["check", "none.json"], "error: none.json: no such file\n"),
        (
            ["run", "notes.md"],
            "notes.md:1:1: expected a value; got '# notes' "
            "(models are .json, .onnx, .bin or artifacts of dmljax compile; `python -m dmljax.run` runs programs)\n",
        ),
        (["run", "notes.onnx"], "error: onnx: not an ONNX model in protobuf; got 7 bytes in 'notes.onnx'\n"),
        (
            ["run", str(MODELS / "dense.onnx"), "--input", "x=notes.md"],
            "error: notes.md must be one of .npy, .npz, .bmp, .gif, .jpeg, .jpg, .png, .webp\n",
        ),
        (
            ["run", "none.json", "--print"],
            "error: unrecognized arguments: --print\ntip: --emit hlo prints each operator's HLO\n",
        ),
        (
            ["run", "none.json", "--hlo"],
            "error: unrecognized arguments: --hlo\ntip: --emit hlo prints each operator's HLO\n",
        ),
        (
            ["run", str(MODELS / "dense.onnx"), "--input", "x=1"],
            "error: input must be NAME=FILE, not a number; got x=1\n"
            "tip: np.save('x.npy', np.full(shape, 1)), then --input x=x.npy\n",
        ),
        (
            ["run", str(MODELS / "dense.onnx"), "--input", "x=bad.npy"],
            "error: bad.npy has no arrays of numbers; got pickled objects or no array\n"
            "tip: np.save('x.npy', array) and np.savez('x.npz', x=array) write such files\n",
        ),
        (
            ["explain", "relu", "gelu"],
            "error: unknown operator 'relu gelu'\n"
            "tip: `dmljax explain relu`, then `dmljax explain gelu`: one at a time\n",
        ),
    ],
)
def test_an_invalid_command_is_refused_with_the_remedy(
    arguments: list[str],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("notes.md", "notes.onnx", "bad.npy"):
        Path(name).write_text("# notes")
    try:
        status: Any = main(arguments)
    except SystemExit as stopped:
        status = stopped.code
    assert (status, capsys.readouterr().err) == (2, error)


@pytest.mark.parametrize(
    ("words", "functions"),
    [
        ("tanh", ["activation_tanh", "element_wise_tanh"]),
        ("causal mask", ["diagonal_matrix1", "multihead_attention1"]),
        ("batch norm", ["batch_normalization", "batch_normalization_training"]),
        ("pixel shuffle", ["depth_to_space", "depth_to_space1"]),
        ("flash attention", ["multihead_attention1", "multihead_attention"]),
        ("moe", ["activation_hardmax", "top_k", "nonzero_coordinates", "gather_nd1"]),
        ("gradients of pools", ["average_pooling_grad", "max_pooling_grad"]),
    ],
)
def test_operators_are_found_by_what_they_do(
    words: str, functions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words.split()]) == 0
    out, tip = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == functions
    assert tip == f"tip: `dmljax explain {functions[0]}` shows one in full\n"
    assert main(["explain", words, "--json"]) == 0
    assert [entry["function"] for entry in json.loads(capsys.readouterr().out)] == [
        f"dmljax.{entry}" for entry in functions
    ]


@pytest.mark.parametrize(
    ("words", "operator"), [("where", "ELEMENT_WISE_IF"), ("hyperbolic sine inverse", "ELEMENT_WISE_ASINH")]
)
def test_words_that_find_one_operator_explain_it(words: str, operator: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words.split()]) == 0
    assert capsys.readouterr().out.startswith(f"DML_OPERATOR_{operator}\n")


def test_purposes_name_functions_in_their_own_words() -> None:
    assert {name for functions in PURPOSES.values() for name in functions.split()} <= {
        *map(function_name, OPERATORS.values())
    }
    assert [purpose for purpose in PURPOSES if functions_named(purpose)] == []


@pytest.mark.parametrize(
    ("words", "operators"),
    [
        (["log_softmax"], ["ACTIVATION_LOG_SOFTMAX", "ACTIVATION_LOG_SOFTMAX1"]),
        (["causal", "mask"], ["DIAGONAL_MATRIX1", "MULTIHEAD_ATTENTION1"]),
    ],
)
def test_the_table_of_operators_is_filtered(
    words: list[str], operators: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ops", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:] if line[0] != " "] == operators
    assert main(["ops", *words, "--json"]) == 0
    assert [entry["operator"] for entry in json.loads(capsys.readouterr().out)] == [
        f"DML_OPERATOR_{entry}" for entry in operators
    ]


# Wrong calls


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["explain", "relu", "softmax"],
            "error: unknown operator 'relu softmax'\n"
            "tip: `dmljax explain relu`, then `dmljax explain softmax`: one at a time\n",
        ),
        (["run", "x.ipynb"], "error: x.ipynb is no model\ntip: `jupyter lab x.ipynb` opens it\n"),
        (["run", "x.py"], "error: x.py is no model\ntip: `python x.py` runs it\n"),
    ],
)
def test_other_files_and_words_lead_to_their_commands(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["walk"], "error: unrecognized command: walk\ntip: the commands are run, "),
        (["estimte", "x.onnx"], "error: unrecognized command: estimte\ntip: did you mean estimate?\n"),
        (["help"], "error: unrecognized command: help\ntip: did you mean --help?\n"),
        (["x.bin"], "error: unrecognized command: x.bin\ntip: `dmljax run x.bin` runs a model\n"),
        (["relu"], "error: unrecognized command: relu\ntip: `dmljax explain relu` explains the function\n"),
        (["show", "relu"], "error: unrecognized command: show\ntip: `dmljax explain relu` explains the function\n"),
        (["run"], "the following arguments are required: model"),
        (["run", "x.json", "-i", "0"], r"must be a whole number in [1, 4294967295]; got '0'"),
        (["run", "x.json", "-w", "-1"], r"must be a whole number in [0, 4294967295]; got '-1'"),
        (["run", "x.json", "-t", "soon"], r"must be a whole number in [0, 4294967295]; got 'soon'"),
        (["run", "x.json", "-v", "3"], "invalid choice: 3"),
        (["run", "x.json", "--emit", "ptx"], "invalid choice: 'ptx'"),
        (["run", "x.json", "--platform", "npu"], "invalid choice: 'npu'"),
        (["run", "x.json", "--dml_feature_level", "9"], "must be one of 1_0"),
        (["run", "x.json", "--input_pat"], "unrecognized arguments: --input_pat\ntip: did you mean --input_path?"),
        (["run", "x.json", "--platfrom=cpu"], "unrecognized arguments: --platfrom=cpu\ntip: did you mean --platform?"),
        (["check", "x.json", "--platform", "cpu"], "tip: `dmljax check --help` lists the options\n"),
        (["--verson"], "unrecognized arguments: --verson\ntip: did you mean --version?"),
        (["explain"], "the following arguments are required: words"),
    ],
)
def test_wrong_calls_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_shells_complete_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    parsers: list[Any] = []
    monkeypatch.setitem(sys.modules, "argcomplete", SimpleNamespace(autocomplete=parsers.append))
    assert main(["ops", "one_hot"]) == 0
    assert parsers == []
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert main(["ops", "one_hot"]) == 0
    assert [parser.prog for parser in parsers] == ["dmljax"]


def test_running_without_a_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("usage: dmljax ")
    assert all(f"\n    {command} " in printed.out for command in ("run", "check", "ops", "explain"))
    assert printed.err == ""


@pytest.mark.parametrize("command", [[], ["run"], ["check"], ["ops"], ["explain"]])
def test_help_has_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([*command, "--help"])
    assert done.value.code == 0
    out = capsys.readouterr().out
    assert not command or "examples:\n  dmljax" in out
    assert max(map(len, out.splitlines())) <= 110
