"""Adapters replace inputs of a language model's decoder, as they do in ONNX Runtime."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import GATE, compilations, refuses
from onnx_models import INT64, value
from small_folders import HEARD_WORDS, WIDTH, audio_of, write_hearing_folder
from small_older_folders import adapt_logits, low_rank_arrays, stacked_outputs, write_stacked_folder

from dmljax.command_line.cli import main
from dmljax.onnx import LanguageModel, language_model
from dmljax.onnx.graph.adapters import Adapter, write_adapter

PROMPT = [5, 7, 4]
NAME = "style.onnx_adapter"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_stacked_folder(tmp_path_factory.mktemp("adapted"))
    adapt_logits(folder / "model.onnx")
    write_adapter(folder / NAME, Adapter(low_rank_arrays(2)))
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return language_model(folder)


def test_logits_follow_adapters_as_in_onnx_runtime(model: LanguageModel, folder: Path) -> None:
    adapted = model.load_adapter(folder / NAME)
    for weights, arrays in ((None, {}), (adapted, low_rank_arrays(2))):
        expected = stacked_outputs(folder, PROMPT, **arrays)["logits"][0]
        np.testing.assert_allclose(model.logits(PROMPT, weights=weights), expected, rtol=1e-4, atol=1e-4)
    assert model.weights["first"].shape == (WIDTH, 0)  # the model's own stay


def test_adapters_of_the_same_sizes_share_programs(model: LanguageModel, folder: Path, tmp_path: Path) -> None:
    write_adapter(tmp_path / NAME, Adapter({name: 3 * array - 1 for name, array in low_rank_arrays(2).items()}))
    first, second = (model.load_adapter(path / NAME) for path in (folder, tmp_path))
    logits = model.logits(PROMPT, weights=first)
    with compilations() as events:
        others = model.logits(PROMPT, weights=second)
    assert events == []
    assert not np.array_equal(logits, others)


def test_adapters_may_follow_each_other_and_be_trained(model: LanguageModel, folder: Path, tmp_path: Path) -> None:
    shift = np.arange(24, dtype=np.float32)
    write_adapter(tmp_path / NAME, Adapter({"shift": shift}))
    first = model.load_adapter(folder / NAME)
    both = model.load_adapter(tmp_path / NAME, weights=first)
    expected = np.asarray(model.logits(PROMPT, weights=first)) + shift
    np.testing.assert_allclose(model.logits(PROMPT, weights=both), expected, rtol=1e-4, atol=1e-4)
    of_shift = jax.grad(lambda shift: model.logits(PROMPT, weights=both | {"shift": shift}).sum())(both["shift"])
    np.testing.assert_array_equal(of_shift, np.full(24, len(PROMPT)))


@GATE
def test_adapters_take_the_type_of_other_weights(folder: Path) -> None:
    model = language_model(folder, dtype=jnp.bfloat16)
    weights = model.load_adapter(folder / NAME)
    assert weights["first"].dtype == jnp.bfloat16
    expected = stacked_outputs(folder, PROMPT, **low_rank_arrays(2))["logits"][0]
    np.testing.assert_allclose(model.logits(PROMPT, weights=weights), expected, rtol=0.1, atol=0.3)


@GATE
def test_a_decoder_beside_an_encoder_is_adapted(tmp_path: Path) -> None:
    folder = write_hearing_folder(tmp_path / "hearing")
    adapt_logits(folder / "decoder.onnx")
    shift = np.zeros(HEARD_WORDS, np.float32)
    shift[17] = 1e6
    write_adapter(tmp_path / NAME, Adapter({"shift": shift}))
    model = language_model(folder)
    weights = model.load_adapter(tmp_path / NAME)
    np.testing.assert_array_equal(weights["decoder.shift"], shift)
    assert model.generate(PROMPT, audio=audio_of(1), max_length=5, weights=weights) == [*PROMPT, 17, 17]


def test_inputs_without_defaults_need_an_adapter(folder: Path, tmp_path: Path) -> None:
    write_stacked_folder(tmp_path / "needy")
    adapt_logits(tmp_path / "needy" / "model.onnx", has_defaults=False)
    model = language_model(tmp_path / "needy")
    message = "weights must have an array for each input that only adapters give; got no first (load_adapter reads"
    for call in (lambda: model.logits(PROMPT), lambda: model.generation_programs(1, 4, 8)):
        with refuses(message):
            call()
    write_adapter(tmp_path / NAME, Adapter({"shift": np.zeros(24, np.float32)}))
    weights = model.load_adapter(folder / NAME, weights=model.load_adapter(tmp_path / NAME))
    expected = stacked_outputs(folder, PROMPT, **low_rank_arrays(2))["logits"][0]
    np.testing.assert_allclose(model.logits(PROMPT, weights=weights), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"frist": np.ones(2)}, "adapter.frist must be an input of model.onnx that adapters replace, did you mean"),
        ({"input_ids": np.ones(2)}, "adapter.input_ids must be an input of model.onnx that adapters replace"),
        ({"shift": np.ones(24)}, "adapter.shift must be float32; got float64"),
        ({"shift": np.ones(9, np.float32)}, "weights.shift must be shift: float32[24]; got (9,)"),
        ({"first": np.ones(9, np.float32)}, "weights.first must be first: float32[16, rank]; got (9,)"),
    ],
)
def test_adapters_that_do_not_fit_say_why(model: LanguageModel, arrays: Any, message: str, tmp_path: Path) -> None:
    write_adapter(tmp_path / NAME, Adapter(arrays))
    with refuses(message):
        model.logits(PROMPT, weights=model.load_adapter(tmp_path / NAME))


def test_other_inputs_stay_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_stacked_folder(tmp_path)
    proto = onnx.load(folder / "model.onnx")
    proto.graph.input.append(value("abcde", INT64, []))
    onnx.save(proto, tmp_path / "model.onnx")
    with refuses('["model.onnx"].abcde: not supported as an input; got abcde: int64[] (known are input_ids'):
        language_model(tmp_path)
    assert main(["check", str(tmp_path)]) == 1
    assert "abcde: not supported as an input" in capsys.readouterr().out
