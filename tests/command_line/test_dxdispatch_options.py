"""`dmljax run` takes every option of DxDispatch: it follows those that mean something here, and names the others."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import pytest
from models import MODELS

from dmljax.command_line import models
from dmljax.command_line.cli import _parser, main
from dmljax.command_line.options import IGNORED

ONE_HOT = str(MODELS / "one_hot.json")
# Every option of DxDispatch's help, of all its versions, with a value where it takes one
FOLLOWED = """
-m FILE | --model FILE | -S | --show_dependencies | --input_path FOLDER | --output_path FOLDER | --print_commands
-i 3 | --dispatch_iterations 3 | -r 2 | --dispatch_repeat 2 | -t 5 | --milliseconds_to_run 5
-I 1 | --dispatch_interval 1 | -w 1 | --warmup_samples 1 | -v 2 | --timing_verbosity 2
-d | --debug | -a NVIDIA | --adapter NVIDIA | -s | --show_adapters | --clear_shader_caches | --dml_feature_level 6.2
-f n:3 | --onnx_free_dim_name_override n:3 | -F DATA_BATCH:3 | --onnx_free_dim_denotation_override DATA_BATCH:3
-b x:2,2 | --binding_shape x:2,2 | -p | --print_onnx_bindings
"""
OF_DIRECT3D = """
--max_gpu_time_measurements 0 | -q direct | --queue_type compute | --disable_custom_heaps | --disable_gpu_timeout
--enable_dred | --disable_background_processing | --set_stable_power_state | --disable_agility_sdk
--print_hlsl_disassembly | --post_dispatch_barriers none | --post_dispatch_barriers uav+aliasing
-c gpu | --pix_capture_type manual | -o capture | --pix_capture_name capture | --present_separator
--xbox_allow_precompile
"""
OF_ONNX_RUNTIME = """
-e foo:0 | --onnx_session_config_entry foo:0 | -l 99 | --onnx_graph_optimization_level 1 | -L 2
--onnx_logging_level 4 | -x | --enable_ort_extensions | --enable_onnx_profiling
"""


def options_in(text: str) -> list[list[str]]:
    return [option.split() for line in text.split("\n") for option in line.split("|") if option.strip()]


@pytest.mark.parametrize("option", options_in(FOLLOWED + OF_DIRECT3D + OF_ONNX_RUNTIME), ids=" ".join)
def test_every_option_is_taken(option: list[str]) -> None:
    assert _parser().parse_args(["run", "model.json", *option]).command == "run"


@pytest.mark.parametrize(("text", "subject"), [(OF_DIRECT3D, "Direct3D"), (OF_ONNX_RUNTIME, "ONNX Runtime")])
def test_options_without_meaning_are_named_in_a_line(
    text: str, subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", ONE_HOT]) == 0
    prints = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Resource")]
    assert main(["run", ONE_HOT, *chain(*options_in(text))]) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.startswith("Resource")] == prints
    (warning,) = err.splitlines()
    *names, last = [name.split()[-1] for name in IGNORED[subject]]
    assert warning == f"warning: {', '.join(names)} and {last} have no effect without {subject}"


def test_one_option_without_meaning_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", ONE_HOT, "-q", "direct", "--emit", "jaxpr"]) == 0
    assert capsys.readouterr().err == "warning: --queue_type has no effect without Direct3D\n"


@pytest.mark.parametrize(
    ("option", "error"),
    [
        (["-q", "copy"], "argument -q/--queue_type: invalid choice: 'copy'"),
        (["-c", "cpu"], "argument -c/--pix_capture_type: invalid choice: 'cpu'"),
        (["-l", "5"], "argument -l/--onnx_graph_optimization_level: invalid choice: 5"),
        (["-e", "foo"], "argument -e/--onnx_session_config_entry: must be KEY:VALUE; got 'foo'"),
    ],
    ids=str,
)
def test_their_values_are_checked(option: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["run", ONE_HOT, *option])
    assert refused.value.code == 2
    assert error in capsys.readouterr().err


def test_an_adapter_is_a_part_of_a_devices_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-m", ONE_HOT, "--adapter", "CPU"]) == 0
    assert capsys.readouterr().out.startswith("Running on 'cpu'\n")
    assert main(["run", ONE_HOT, "--adapter", "NVIDIA"]) == 2
    error = "error: --adapter must be a part of a device's name; got 'NVIDIA'\ntip: JAX has cpu on this machine\n"
    assert capsys.readouterr().err == error
    devices = [Chip("cpu", "cpu"), Chip("gpu", "NVIDIA H100"), Chip("gpu", "NVIDIA A100")]
    monkeypatch.setattr(models, "find_devices", lambda platform: devices)
    assert models.find_device(None, "nvidia").device_kind == "NVIDIA H100"
    assert models.find_device(None, "A100").device_kind == "NVIDIA A100"
    assert models.find_device(None, "gpu").device_kind == "NVIDIA H100"


class Chip:
    """A device as JAX describes it."""

    def __init__(self, platform: str, kind: str) -> None:
        self.platform, self.device_kind = platform, kind

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": 80_000_000_000}


def test_devices_and_versions_are_listed_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-s", "-S"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("dmljax: ")
    assert f"\njax: {jax.__version__}\n" in out
    assert "\ncpu\n-Platform: cpu\n" in out
    assert main(["run", "-s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {"name": "cpu", "platform": "cpu"}
    chip: Any = Chip("gpu", "NVIDIA H100")
    assert models.describe_device(chip) == {"name": "NVIDIA H100", "platform": "gpu", "memory": "80 GB"}


def test_bindings_of_onnx_models_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    dense = MODELS / "dense.onnx"
    assert main(["run", str(dense), "-p", "--shape", "x=3,2"]) == 0
    assert "\nInput 'x': float32[3,2], random numbers\n" in capsys.readouterr().out
    resource = {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4]}
    content = {
        "resources": {"rows": resource},
        "dispatchables": {"dense": {"type": "onnx", "sourcePath": str(dense)}},
        "commands": [
            {"type": "dispatch", "dispatchable": "dense", "bindings": {"x": {"name": "rows", "shape": [2, 2]}}}
        ],
    }
    Path("model.json").write_text(json.dumps(content))
    assert main(["run", "model.json", "--print_onnx_bindings"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:3]
    assert lines == ["Input 'x': FLOAT32 [2,2], resource 'rows'", "Output 'y': FLOAT32 [2,3], dropped"]


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ([str(MODELS / "dense.onnx"), "-r", "2", "-v", "1"], "--dispatch_repeat and --timing_verbosity have no effect"),
        ([str(MODELS / "dense.onnx"), "--input_path", "."], "--input_path has no effect on ONNX models"),
        ([ONE_HOT, "--emit", "jaxpr", "-w", "3"], "--warmup_samples has no effect beside --emit, which runs nothing"),
    ],
    ids=str,
)
def test_options_that_change_nothing_of_a_model_are_named(
    options: list[str], warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options]) == 0
    assert capsys.readouterr().err.startswith(f"warning: {warning}")


@pytest.mark.parametrize("option", [["--input", "x=a.npy"], ["--shape", "x=3"], ["--compare", "onnxruntime"]], ids=str)
def test_options_of_onnx_models_are_refused_for_others(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", ONE_HOT, *option]) == 2
    assert f"error: {option[0]} is only for ONNX models and artifacts" in capsys.readouterr().err
