"""Requests of GenAI programs besides the next token: outputs, logs, named tensors, translations and refusals."""

import contextlib
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import GATE, refuses
from small_folders import images_of, write_hearing_folder, write_seeing_folder
from small_language_models import VOCABULARY, write_folder, write_tokenizer
from small_older_folders import stacked_outputs, translate, write_stacked_folder, write_translating_folder

import dmljax.run.onnxruntime_genai as og

PROMPT, OTHER = [5, 7, 4], [9, 6, 10, 11, 4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stacked_folder(tmp_path_factory.mktemp("stacked"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return og.Model(str(folder))


def generator_of(model: Any, **options: Any) -> Any:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 12, "min_length": 12, **options})
    return og.Generator(model, params)


# Outputs and logits


def test_a_prompt_that_leaves_no_room_is_read(model: Any) -> None:
    full, roomy = generator_of(model, max_length=len(PROMPT), min_length=0), generator_of(model)
    for generator in (full, roomy):
        generator.append_tokens(PROMPT)
    np.testing.assert_allclose(full.get_logits(), roomy.get_logits(), rtol=1e-5, atol=1e-5)
    with refuses(f"the sequences have max_length = {len(PROMPT)} tokens"):
        full.generate_next_token()


def test_outputs_are_of_the_tokens_that_genai_reads_last(folder: Path, model: Any) -> None:
    generator = generator_of(model)
    generator.append_tokens(PROMPT)
    expected = stacked_outputs(folder, PROMPT)

    def check(name: str, rows: Any) -> None:
        np.testing.assert_allclose(generator.get_output(name), rows, rtol=1e-4, atol=1e-4)

    check("logits", expected["logits"])
    check("present_1", expected["present_1"])
    generator.generate_next_token()
    check("logits", expected["logits"])  # GenAI has not read the new token yet
    generator.generate_next_token()
    read = generator.get_sequence(0).tolist()[:4]
    check("logits", stacked_outputs(folder, read)["logits"][:, -1:])
    with refuses("onnxruntime_genai: name must be an output of the model: logits, present_0, present_1; got 'none'"):
        generator.get_output("none")


def test_outputs_have_zeros_for_padding(folder: Path, model: Any) -> None:
    generator = generator_of(model, batch_size=2)
    generator.append_tokens(np.array([[*PROMPT, 0, 0], OTHER]))
    logits = generator.get_output("logits")
    for row, prompt in zip(logits, (PROMPT, OTHER), strict=True):
        expected = stacked_outputs(folder, prompt)["logits"][0]
        np.testing.assert_allclose(row[: len(prompt)], expected, rtol=1e-4, atol=1e-4)
    assert not logits[0, len(PROMPT) :].any()


def test_logits_can_be_set(model: Any) -> None:
    generator = generator_of(model)
    generator.append_tokens(PROMPT)
    logits = generator.get_logits()
    logits[..., 17] = 1e6
    generator.set_logits(logits)
    generator.generate_next_token()
    assert generator.get_next_tokens().tolist() == [17]
    with refuses("new_logits must have the shape (1, 1, 24); got (3,)"):
        generator.set_logits(np.zeros(3))


def test_a_rewound_generator_gives_the_same_tokens(model: Any) -> None:
    generator = generator_of(model)
    generator.append_tokens(PROMPT)
    while not generator.is_done():
        generator.generate_next_token()
    first = generator.get_sequence(0).tolist()
    generator.rewind_to(5)
    generator.append_tokens(first[5:7])
    while not generator.is_done():
        generator.generate_next_token()
    assert generator.get_sequence(0).tolist() == first


# Tensors by name


@GATE
def test_beams_end_with_the_best_sequences(model: Any) -> None:
    beams: dict[str, Any] = {"num_beams": 3, "num_return_sequences": 2, "max_length": 12}
    prompts = [[5, 11, 14], [9, 20, 17]]
    generator = generator_of(model, batch_size=2, **beams)
    generator.append_tokens(prompts)
    steps = 0
    while not generator.is_done():
        generator.generate_next_token()
        steps += 1
        assert generator.token_count() == 3 + steps
        assert len(generator.get_next_tokens()) == 6
    found = [generator.get_sequence(i).tolist() for i in range(4)]
    assert found == model._model.generate(prompts, **beams)
    for call, message in (
        (lambda: generator.rewind_to(2), "rewind_to: not supported with beam search"),
        (lambda: generator.append_tokens([[1], [2]]), "tokens: can be given only once to a search with beams"),
        (lambda: generator.get_output("logits"), "get_output: not supported for searches with beams"),
        (lambda: generator_of(model, num_beams=33), r"num_beams must be in \[1, 32\]; got 33"),
        (lambda: generator_of(model, num_return_sequences=2), r"num_return_sequences must be in \[1, 1\]; got 2"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


def test_tensors_have_names() -> None:
    tensors = og.NamedTensors()
    tensors["a"] = np.arange(3, dtype=np.int32)
    tensors["b"] = og.Tensor(np.ones((1, 2), np.float32))
    assert (tensors.keys(), len(tensors), "a" in tensors, "c" in tensors) == (["a", "b"], 2, True, False)
    assert (tensors["a"].as_numpy().tolist(), tensors["b"].shape()) == ([0, 1, 2], [1, 2])
    del tensors["a"]
    del tensors["none"]
    assert len(tensors) == 1
    with pytest.raises(RuntimeError, match=r"^onnxruntime_genai: no tensor has this name; got 'a'$"):
        tensors["a"]


# Logs


@pytest.fixture
def no_log() -> Iterator[None]:
    yield
    og.set_log_options(enabled=False, filename="", **dict.fromkeys(EVENTS, False))
    og.set_log_callback(None)


EVENTS = ("generate_next_token", "append_next_tokens", "hit_max_length", "hit_eos", "model_input_values")


@pytest.mark.usefixtures("no_log")
def test_a_log_goes_where_a_program_wants_it(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    og.set_log_callback(lines.append)
    og.set_log_options(enabled=True, ansi_tags=False, **dict.fromkeys(EVENTS, True))
    generator = generator_of(model, max_length=4)
    generator.append_tokens(PROMPT)
    generator.generate_next_token()
    events = [line.partition(":")[0] for line in lines]
    assert events == ["append_next_tokens", "model_input_values", "generate_next_token", "hit_max_length"]
    assert lines[0] == "append_next_tokens: [[5, 7, 4]]\n"
    og.set_log_options(filename=str(tmp_path / "log.txt"))
    generator_of(model).append_tokens(PROMPT)
    assert (tmp_path / "log.txt").read_text() == "".join(lines[:2])
    assert len(lines) == 4  # the file is instead of the function
    og.set_log_options(filename="")
    generator_of(model).append_tokens(PROMPT)
    assert capsys.readouterr().err == "".join(lines[:2])
    og.set_log_options(model_logits=True, model_output_shapes=True)
    generator_of(model).append_tokens(PROMPT)
    assert "model_output_shapes: logits (1, 24)\nmodel_logits: logits [[" in capsys.readouterr().err
    og.set_log_options(model_logits=False, model_output_shapes=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enable": True}, "log.enable must be an option of GenAI's log, did you mean enabled?; got True"),
        ({"enabled": 3}, "log.enabled must be True or False; got 3"),
        ({"filename": True}, "log.filename must be a text; got True"),
        ({"filename": "none/log.txt"}, "must be a readable file"),
    ],
)
def test_options_of_logs_are_checked(options: dict[str, Any], message: str) -> None:
    with refuses(message, RuntimeError):
        og.set_log_options(**options)


# Configurations


def test_a_model_may_lie_in_memory(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "genai_config.json", tmp_path)
    config = og.Config(str(tmp_path))
    with refuses("model.decoder.filename must be a file in the folder; got 'model.onnx'", RuntimeError):
        og.Model(config)
    config.add_model_data("model.onnx", bytearray((folder / "model.onnx").read_bytes()))
    model = og.Model(config)
    config.remove_model_data("model.onnx")
    generator = generator_of(model)
    generator.append_tokens(PROMPT)
    assert generator.get_output("logits").shape == (1, 3, 24)
    with refuses("data must be bytes; got 3", RuntimeError):
        config.add_model_data("model.onnx", 3)


def test_what_is_not_supported_says_so(model: Any, folder: Path, tmp_path: Path) -> None:
    with refuses("guidance: not supported: dmljax has no grammars; got 'lark_grammar'", RuntimeError):
        og.GeneratorParams(model).set_guidance("lark_grammar", "start: TEXT")
    with refuses("set_inputs: not supported for models that read only texts (append_tokens reads", RuntimeError):
        generator_of(model).set_inputs(og.NamedTensors())
    with refuses("model.type must be one of whisper, phi3v, phi4mm", RuntimeError):
        model.create_multimodal_processor()
    shutil.copytree(folder, tmp_path / "paged")
    content = json.loads((folder / "genai_config.json").read_text())
    (tmp_path / "paged" / "genai_config.json").write_text(json.dumps({**content, "engine": {"dynamic_batching": {}}}))
    with refuses("engine.dynamic_batching: not supported: its pages of caches belong to the Engine", RuntimeError):
        og.Model(str(tmp_path / "paged"))


def test_conversations_need_a_template(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    folder = write_folder(tmp_path / "model")
    tokenizers.Tokenizer(tokenizers.models.BPE({"a": 3}, [])).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    tokenizer = og.Tokenizer(og.Model(str(folder)))
    with pytest.raises(RuntimeError, match="Empty chat template"):
        tokenizer.apply_chat_template('[{"role": "user", "content": "a"}]')
    template = "{{ messages[0].content }}"
    assert tokenizer.apply_chat_template('[{"content": "a"}]', template_str=template) == "a"


# Translations


def test_translations_follow_their_texts(tmp_path: Path) -> None:
    folder = write_translating_folder(tmp_path / "translating")
    generator = generator_of(og.Model(str(folder)), batch_size=2)
    generator.append_tokens(np.array([[*PROMPT, 0, 0], OTHER]))
    while not generator.is_done():
        generator.generate_next_token()
    for row, prompt in enumerate((PROMPT, OTHER)):
        news = translate(folder, prompt, len(prompt) + 7)[len(prompt) :]
        assert generator.get_sequence(row).tolist()[5:] == news
    for call in (lambda: generator.append_tokens([3, 4]), lambda: generator.get_output("logits")):
        with pytest.raises(RuntimeError):
            call()
    single = generator_of(og.Model(str(folder)))
    single.append_tokens(PROMPT)
    for refused in (lambda: single.append_tokens([3]), lambda: single.rewind_to(2)):
        with refuses("translate", RuntimeError):
            refused()
    single.rewind_to(0)
    single.append_tokens(PROMPT)
    single.generate_next_token()
    assert single.get_sequence(0).tolist() == translate(folder, PROMPT, 4)


# Models of several parts


def test_generators_take_what_processors_make(tmp_path: Path) -> None:
    model = og.Model(str(write_hearing_folder(tmp_path / "subscriber")))
    audio = np.random.default_rng(3).standard_normal((2, 5, 6)).astype(np.float32)
    inputs = og.NamedTensors()
    inputs["audio_features"] = audio
    inputs["input_ids"] = np.array([[3, 5], [3, 6]], np.int32)
    generator = generator_of(model, batch_size=2, max_length=8, min_length=8)
    generator.set_inputs(inputs)
    assert generator.token_count() == 2
    while not generator.is_done():
        generator.generate_next_token()
    expected = model._model.generate([[3, 5], [3, 6]], audio=audio, max_length=8, min_length=8)
    assert [generator.get_sequence(row).tolist() for row in range(2)] == expected
    with refuses("input_ids must be among the inputs; got none", RuntimeError):
        generator.set_inputs(og.NamedTensors())


@GATE
def test_generators_read_images_again_after_a_rewind(tmp_path: Path) -> None:
    model = og.Model(str(write_seeing_folder(tmp_path / "seeing", is_negative=True)))
    inputs = og.NamedTensors()
    inputs["input_ids"] = np.array([[3, -1, -1, 5]], np.int32)
    for name, array in images_of(1).items():
        inputs[name] = array
    generator = generator_of(model)
    generator.set_inputs(inputs)
    logits = generator.get_logits()
    np.testing.assert_allclose(generator.get_output("logits")[:, -1:], logits, rtol=1e-4, atol=1e-4)
    assert logits.shape == (1, 1, VOCABULARY)
    tokens = []
    for _ in range(3):
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    generator.rewind_to(4)
    generator.generate_next_token()
    assert generator.get_next_tokens().tolist() == tokens[:1]


# Names


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: og.TurnOptions, "it belongs to the Engine"),
        (lambda: og.Model.create_streaming_processor, "models that hear speech as it comes are not supported"),
        (lambda: og.Tensor(np.zeros(1)).data, "as_numpy gives the array"),
        (lambda: og.Model.generate, "write generator = Generator(model, params), generator.append_tokens(tokens)"),
        (lambda: og.Generator.compute_logits, "leave it out, because generate_next_token computes the logits"),
        (lambda: og.GeneratorParams.set_inputs, "write generator.set_inputs(inputs)"),
        (lambda: og.GeneratorParams.try_graph_capture_with_max_batch_size, "leave it out"),
    ],
)
def test_names_that_are_absent_say_why(read: Callable[[], Any], reason: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(reason)):
        read()


def test_parameters_of_older_programs_go_to_the_generator(model: Any) -> None:
    with pytest.raises(
        AttributeError, match=r"write generator\.append_tokens\(tokens\) after Generator\(model, params"
    ):
        og.GeneratorParams(model).input_ids = [3, 4]


@pytest.mark.parametrize("kind", [og.Adapters, og.GeneratorParams, og.MultiModalProcessor])
def test_what_takes_a_model_refuses_texts(kind: Callable[[Any], Any]) -> None:
    with refuses("onnxruntime_genai: model must be a Model; got 'letters'", TypeError):
        kind("letters")


def test_arguments_of_wrong_types_are_refused(model: Any, tmp_path: Path) -> None:
    wrong: Any = 5
    with refuses("model must be a Model, a Config or the path of a folder; got 5", TypeError):
        og.Tokenizer(wrong)
    with refuses("model must be a Model, a Config or the path of a folder; got 'letters'", RuntimeError):
        og.Tokenizer("letters")
    with refuses("config_path must be the path of a folder; got 5", TypeError):
        og.Model(wrong)
    with refuses("named_tensors must be NamedTensors; got {}", TypeError):
        generator_of(model).set_inputs({})
    folder = write_folder(tmp_path / "model")
    write_tokenizer(folder)
    tokenizer: Any = og.Tokenizer(str(folder))
    with refuses("text must be a text; got 5", TypeError):
        tokenizer.encode(5)
    with refuses("texts must be a list of texts; got 'ab'", TypeError):
        tokenizer.encode_batch("ab")
    with refuses("tokens must be a Tensor, as encode_batch returns it; got [[3]]", TypeError):
        tokenizer.decode_batch([[3]])


def test_tokenizers_take_folders_and_configurations(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    write_tokenizer(folder)
    ways: list[Any] = [og.Model(str(folder)), og.Config(str(folder)), str(folder)]
    tokens = [og.Tokenizer(way).encode("a").tolist() for way in ways]
    assert tokens[0]
    assert tokens == [tokens[0]] * 3


@pytest.mark.parametrize(
    ("name", "meant"), [("DirectML", "dml"), ("DirectMLExecutionProvider", "DmlExecutionProvider")]
)
def test_other_names_of_directml_have_hints(name: str, meant: str, folder: Path) -> None:
    config = og.Config(str(folder))
    with pytest.warns(UserWarning, match=rf"GenAI knows no provider '{name}', did you mean {meant}\?") as found:
        config.append_provider(name)
    assert found[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        config.append_provider(meant)
        config.set_provider_option("DML", "performance_preference", "default")


def test_programs_may_name_the_first_device_of_all() -> None:
    assert og.get_current_gpu_device_id() == 0
    og.set_current_gpu_device_id(0)
    with refuses("device_id must be 0; got 1", RuntimeError):
        og.set_current_gpu_device_id(1)


@pytest.mark.parametrize(("kind", "known"), [("qwen3", 4), ("phi3", 2), ("llama", 1)])
def test_tokens_of_tools_and_reasoning_are_known(kind: str, known: int, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    write_tokenizer(folder)
    config = og.Config(str(folder))
    config.overlay(json.dumps({"model": {"type": kind, "eot_token_id": 7}}))
    tokenizer = og.Tokenizer(og.Model(config))
    assert tokenizer.eot_token_id == 7
    tokens = []
    for name in ("bot_token_id", "eot_token_id", "bor_token_id", "eor_token_id"):
        with contextlib.suppress(RuntimeError):
            tokens.append(getattr(tokenizer, name))
    assert len(tokens) == known
    assert all(isinstance(token, int) for token in tokens)
