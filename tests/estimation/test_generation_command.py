"""`dmljax estimate` of folders of language models: memory, times and batches, and what it refuses."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import refuses
from small_language_models import KEY_HEADS, LAYERS, SIZE, write_folder

import dmljax
from dmljax.command_line.cli import main
from dmljax.estimation import Estimate
from dmljax.estimation.chips import Times
from dmljax.estimation.generation import Generation, PreparedGeneration, Work, table
from dmljax.onnx import language_model
from dmljax.onnx.language.generation import generation_programs

# JAX 0.12 warns of its own compiler for GPU kernels where XLA calls back to divide one.
pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")

WORK = ["--prompt", "20", "--generate", "10"]
BATCH = 16
CACHE_BYTES = 2 * LAYERS * KEY_HEADS * SIZE * 30 * 4  # of one sequence


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jax_cuda12_plugin", reason="the extra `accelerators` is not installed")
    return write_folder(tmp_path_factory.mktemp("model"))


def estimate_folder(folder: Path, *options: str) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["estimate", str(folder), *WORK, "--batch", str(BATCH), *options, "--json"]) == 0
    return json.loads(out.getvalue())


@pytest.fixture(scope="module")
def reports(folder: Path) -> Any:
    """The figures of one GPU, and of two that divide the weights."""
    return estimate_folder(folder, "--for", "h100", "--for", "h100:2")


def test_the_figures_fit_together(folder: Path, reports: Any) -> None:
    report, _ = reports
    prompt, token = report["prompt_program"], report["token_program"]
    assert (report["program"], report["target"], report["batch"]) == (str(folder), "h100", BATCH)
    seconds = prompt["seconds"] + 10 * token["seconds"]
    assert report["tokens_per_second"] == report["tokens_per_second_and_chip"] == pytest.approx(10 * BATCH / seconds)
    assert report["cache_bytes"] == BATCH * CACHE_BYTES
    assert report["peak_bytes"] == max(prompt["peak_bytes"], token["peak_bytes"])
    weights = sum(weight.nbytes for weight in language_model(folder).weights.values())
    assert prompt["weight_bytes"] == token["weight_bytes"] == weights
    left = token["memory_bytes"] - weights
    assert report["largest_batch"] == pytest.approx(left * BATCH / (report["peak_bytes"] - weights), abs=1)


def test_the_function_estimates_the_same(folder: Path, reports: Any) -> None:
    prompts = jax.ShapeDtypeStruct((BATCH, 20), jnp.int32)
    estimated = dmljax.estimate(language_model(folder), prompts, target="h100", generate=10)
    names = ("prompt_seconds", "token_seconds", "tokens_per_second", "largest_batch", "peak_bytes", "cache_bytes")
    figures = estimated.to_json()
    assert [figures[name] for name in names] == [reports[0][name] for name in names]


def test_the_function_refuses_what_generation_does_not_use(folder: Path) -> None:
    model, prompts = language_model(folder), jax.ShapeDtypeStruct((2, 20), jnp.int32)
    with refuses("estimate: dtype must be left out for a language model; got 'bfloat16'"):
        dmljax.estimate(model, target="h100", dtype="bfloat16")
    with refuses("estimate: inputs must be prompts of the shape (sequences, tokens); got (20,)"):
        dmljax.estimate(model, jnp.ones(20, int), target="h100")
    with refuses("estimate: generate must leave at most 64 tokens with the prompt's 20, the model's context; got 128"):
        dmljax.estimate(model, prompts, target="h100")
    with refuses("estimate: generate must be left out except for language models; got 8"):
        dmljax.estimate(jnp.sin, prompts, target="h100", generate=8)  # type: ignore[call-overload]


def test_caches_are_updated_in_place(reports: Any) -> None:
    report, _ = reports
    token = report["token_program"]
    assert token["peak_bytes"] - token["weight_bytes"] < 2 * report["cache_bytes"]


def test_several_chips_divide_weights_and_heads(reports: Any) -> None:
    whole, divided = reports
    assert divided["token_program"]["weight_bytes"] < 0.7 * whole["token_program"]["weight_bytes"]
    assert divided["cache_bytes"] == BATCH * CACHE_BYTES / 2
    assert divided["token_program"]["cost"]["exchanged"] > 0
    assert divided["tokens_per_second"] == 2 * divided["tokens_per_second_and_chip"]


@pytest.mark.full
def test_the_first_axis_of_a_mesh_divides_the_batch(folder: Path, reports: Any) -> None:
    (divided,) = estimate_folder(folder, "--for", "h100:2", "--mesh", "data=2")
    assert divided["token_program"]["weight_bytes"] == reports[0]["token_program"]["weight_bytes"]
    assert divided["cache_bytes"] == BATCH * CACHE_BYTES / 2
    assert divided["token_program"]["cost"]["exchanged"] == 0
    assert divided["largest_batch"] % 2 == 0


def generation(reason: str = "", peak: int = 40_000) -> Generation:
    """The cost on two chips, whose weights of 10 kB and caches leave room in 100 kB."""
    figures: Any = {"weight_bytes": 10_000, "memory_bytes": 100_000}
    prompt = Estimate("v5e:1x2", 2, "", 1.0, peak_bytes=peak, times=Times(0, 0.2, 0, 0), **figures)
    token = Estimate("v5e:1x2", 2, reason, 0.5, peak_bytes=25_000, times=Times(0, 0, 0.01, 0), **figures)
    return Generation(Work(6, prompt=20, generated=30), prompt, token, cache_bytes=12_000, shares=2)


def test_a_table_has_a_column_for_each_batch_and_chip() -> None:
    lines = table([generation(), generation("no kernel")])
    rows = {line[:17].strip(): line[17:] for line in lines[: lines.index("")]}
    assert rows["batch"].split() == ["6", "6"]
    assert rows["compiles"].split() == ["1.5", "s", "no"]
    assert rows["all prompts"].split() == ["200", "ms"]
    assert rows["a token of each"].split() == ["10", "ms"]
    assert rows["tokens per second"].split() == ["360"]  # 6 x 30 in 0.2 + 30 x 0.01 seconds
    assert rows["and chip"].split() == ["180"]
    assert rows["largest batch"].split() == ["18"]  # 2 x 3 take 30 kB of each chip, which has room for 90
    assert "v5e:1x2, batch 6: adding a token does not compile: no kernel" in lines


def test_figures_of_programs_that_do_not_compile_are_null() -> None:
    figures = generation("no kernel").to_json()
    assert [figures["largest_batch"], figures["tokens_per_second"], figures["peak_bytes"]] == [None] * 3
    assert figures["token_program"]["reason"] == "no kernel"


def test_a_generation_that_does_not_fit_exits_with_status_1(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PreparedGeneration, "estimate", lambda self: generation(peak=300_000))
    assert main(["estimate", str(folder), *WORK, "--for", "h100"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[0] == str(folder)
    assert "v5e:1x2, batch 6: reading the prompts does not fit in memory: 300 kB needed, 100 kB available" in out


def test_options_that_do_not_fit_are_refused_before_anything_is_compiled(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        ("--prompt", "60", "--generate", "5"): "--prompt and --generate must be at most 64 tokens in all, the model's",
        ("--gradient",): f"--gradient is not for folders of language models; got {folder}",
        ("-f", "batch:2"): "--onnx_free_dim_name_override is not for folders of language models",
        (*WORK, "--mesh", "data=2"): "mesh must have as many chips as h100, 1; got 2",
    }
    for options, message in wrong.items():
        assert main(["estimate", str(folder), "--for", "h100", *options]) == 2
        assert message in capsys.readouterr().err.splitlines()[0]
    assert main(["estimate", str(folder / "model.onnx"), "--for", "h100", "--prompt", "3"]) == 2
    assert "--prompt is only for folders of language models" in capsys.readouterr().err


def test_each_program_returns_what_it_updates(folder: Path) -> None:
    model = language_model(folder)
    reading, step = generation_programs(model.decoder, 2, 20, 30)
    for program in (reading, step):
        results = jax.eval_shape(program.function, model.weights, *program.inputs)
        assert jax.tree.map(jax.typeof, results) == jax.tree.map(jax.typeof, program.inputs[0])
    assert reading.inputs[1].shape == (2, 30)  # rounded up to 32, and then to the room
