"""Folders of several models, which hear or see, beside ONNX Runtime."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import FULL, GATE, mesh_of, refuses
from jax.sharding import AxisType
from small_folders import (
    FRAMES,
    HEARING,
    MELS,
    TOKEN,
    FolderReference,
    audio_of,
    hearing_proto,
    images_of,
    seeing_configuration,
    write_hearing_folder,
    write_seeing_folder,
)

from dmljax.command_line.cli import main
from dmljax.onnx import LanguageModel, language_model
from dmljax.onnx.language.generation import generation_programs
from dmljax.onnx.rewrites.decoders import Tables

PROMPTS = [[3, 5, 7], [3, 6, 9, 10, 11]]
ENDLESS: Any = {"max_length": 18, "min_length": 18}
AUDIO = audio_of(2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearing_folder(tmp_path_factory.mktemp("hearing"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return language_model(folder)


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    """The texts by ONNX Runtime."""
    reference = FolderReference(folder)
    return [reference.greedy(prompt, 18, audio=audio) for prompt, audio in zip(PROMPTS, AUDIO, strict=True)]


@pytest.fixture(scope="module")
def seeing_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeing_folder(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="module")
def seeing(seeing_folder: Path) -> LanguageModel:
    return language_model(seeing_folder)


# Audio


@GATE
def test_sequences_continue_encoded_audio(model: LanguageModel, expected: list[list[int]]) -> None:
    assert model.generate(PROMPTS, audio=AUDIO, **ENDLESS) == expected
    assert model.generate(PROMPTS, audio=AUDIO[::-1], **ENDLESS) != expected


@FULL
def test_logits_after_audio_equal_onnxruntimes(folder: Path, model: LanguageModel) -> None:
    reference = FolderReference(folder)
    logits = model.logits(PROMPTS, audio=AUDIO)
    for actual, prompt, audio in zip(logits, PROMPTS, AUDIO, strict=True):
        np.testing.assert_allclose(actual, reference.logits(prompt, audio=audio), rtol=1e-4, atol=1e-4)


def test_an_encoder_runs_once(model: LanguageModel, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    hear, calls = model.decoder.jit_encode_audio, list[Any]()

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return hear(*arguments)

    monkeypatch.setitem(vars(model.decoder), "jit_encode_audio", counted)
    state = model.start(PROMPTS, audio=AUDIO, max_length=18)
    steps = [*model.stream(state=state, **ENDLESS)]
    assert [token for token, _ in steps] == expected[0][len(PROMPTS[0]) :]
    assert model.generate(state=state, **ENDLESS) == expected
    assert len(calls) == 1
    with refuses("onnx: audio must be left out with state, which has heard what came before"):
        model.generate(PROMPTS, audio=AUDIO, state=state)


@FULL
def test_a_decoder_may_read_encoded_audio(tmp_path: Path) -> None:
    folder = write_hearing_folder(tmp_path, has_cross_caches=False)
    model, reference = language_model(folder), FolderReference(folder)
    expected = [reference.greedy(prompt, 18, audio=audio) for prompt, audio in zip(PROMPTS, AUDIO, strict=True)]
    assert model.generate(PROMPTS, audio=AUDIO, **ENDLESS) == expected
    mesh = mesh_of(AxisType.Auto, data=2, model=2)
    assert model.generate(PROMPTS, audio=AUDIO, weights=model.shard(mesh), **ENDLESS) == expected


def test_weights_of_several_models_are_one_mapping(model: LanguageModel, expected: list[list[int]]) -> None:
    assert {name.partition(".")[0] for name in model.weights} == {"decoder", "encoder"}
    assert "encoder.filters" in model.weights
    deaf = {name: jnp.zeros_like(x) if name == "encoder.filters" else x for name, x in model.weights.items()}
    assert model.generate(PROMPTS, audio=AUDIO, weights=deaf, **ENDLESS) != expected
    del deaf["encoder.filters"]
    with refuses("onnx: weights must have the same names as model.weights; got no encoder.filters"):
        model.generate(PROMPTS, audio=AUDIO, weights=deaf)


@FULL
def test_devices_divide_encoded_audio(model: LanguageModel, expected: list[list[int]]) -> None:
    mesh = mesh_of(AxisType.Auto, data=2, model=2)
    weights = model.shard(mesh)
    assert not weights["encoder.filters"].sharding.is_fully_replicated
    state = model.start(PROMPTS, audio=AUDIO, weights=weights)
    audio_cache = state.caches["past_key_cross_0"]
    assert audio_cache.sharding.shard_shape(audio_cache.shape)[:2] == (1, 1)
    assert model.generate(state=state, weights=weights, **ENDLESS) == expected


@FULL
def test_all_models_of_a_folder_have_the_float_type(folder: Path, model: LanguageModel) -> None:
    half = language_model(folder, dtype=jnp.bfloat16)
    assert {x.dtype for x in half.weights.values()} == {jnp.dtype(jnp.bfloat16)}
    state = half.start(PROMPTS, audio=AUDIO)
    assert {x.dtype for x in state.caches.values()} == {jnp.dtype(jnp.bfloat16)}
    pairs = zip(half.logits(PROMPTS, audio=AUDIO), model.logits(PROMPTS, audio=AUDIO), strict=True)
    for actual, exact in pairs:
        np.testing.assert_allclose(actual, exact, rtol=0, atol=1)


def test_the_first_program_of_an_estimate_encodes_audio(model: LanguageModel) -> None:
    reading, step = generation_programs(model.decoder, 2, 5, 18)
    assert reading.inputs[-1].shape == (2, MELS, FRAMES)
    for program in (reading, step):
        results = jax.eval_shape(program.function, model.weights, *program.inputs)
        assert jax.tree.map(jax.typeof, results) == jax.tree.map(jax.typeof, program.inputs[0])


# Images


@GATE
def test_a_text_needs_no_image(seeing_folder: Path, seeing: LanguageModel) -> None:
    logits = seeing.logits(PROMPTS[0])
    np.testing.assert_allclose(logits, FolderReference(seeing_folder).logits(PROMPTS[0]), rtol=1e-4, atol=1e-4)


def prompts_with(place: int) -> list[list[int]]:
    return [[3, place, place, 7], [3, 6, 9, place, place, 10, 11, place, place]]


IMAGES = images_of(3)
OF_ROWS = [{"pixel_values": IMAGES["pixel_values"][rows]} for rows in (slice(1), slice(1, 3))]


@GATE
def test_image_features_take_the_places_of_their_tokens(seeing_folder: Path, seeing: LanguageModel) -> None:
    prompts, reference = prompts_with(TOKEN), FolderReference(seeing_folder)
    expected = [reference.greedy(prompt, 18, images=images) for prompt, images in zip(prompts, OF_ROWS, strict=True)]
    assert seeing.generate(prompts, images=IMAGES, **ENDLESS) == expected


@FULL
@pytest.mark.parametrize("place", [TOKEN, -1])
def test_later_prompts_may_have_images(tmp_path: Path, place: int) -> None:
    folder = write_seeing_folder(tmp_path / "model", is_negative=place < 0)
    model, reference = language_model(folder), FolderReference(folder)
    prompts = prompts_with(place)
    state = model.start([[3, 6], [3, 6, 9]], max_length=18)
    with refuses("onnx: images must be given with prompts"):
        model.generate(state=state, images=IMAGES)
    logits_of_rows = model.start(prompts, images=IMAGES, state=state).logits
    whole = zip(logits_of_rows, [[3, 6], [3, 6, 9]], prompts, OF_ROWS, strict=True)
    for actual, before, prompt, row_images in whole:
        expected = reference.logits(before + prompt, images=row_images)
        np.testing.assert_allclose(actual, expected[-1], rtol=1e-4, atol=1e-4)
        logits = model.logits(before + prompt, images=row_images)
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


@FULL
def test_images_are_encoded_in_the_float_type_of_the_weights(seeing_folder: Path, seeing: LanguageModel) -> None:
    half, prompt = language_model(seeing_folder, dtype=jnp.bfloat16), prompts_with(TOKEN)[0]
    for images in (None, OF_ROWS[0]):
        logits, exact = (variant.logits(prompt, images=images) for variant in (half, seeing))
        np.testing.assert_allclose(logits, exact, rtol=0, atol=0.1 * np.max(np.abs(exact)))


@FULL
def test_image_positions_do_not_count_as_earlier_tokens(tmp_path: Path) -> None:
    model = language_model(write_seeing_folder(tmp_path / "model", is_negative=True))
    prompt, penalty, images = [3, -1, -1, 7], 1e6, images_of(1)
    first, *_ = model.generate(prompt, images=images, max_length=5, min_length=5)[4:]
    negative = [first - 48, first - 48]  # would be the first token if they counted from the end
    logits = model.start([3, *negative, 7], images=images).logits
    tokens = model.generate([3, *negative, 7], images=images, repetition_penalty=penalty, max_length=5, min_length=5)
    assert tokens[-1] == int(np.argmax(np.where(np.isin(np.arange(48), [2, 3, 7]), -np.inf, logits)))


# Bad input

ROWS = f"float32[batch, {MELS}, {FRAMES}]"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.generate([3]), f"audio must be given: encoder.onnx reads audio_features: {ROWS}; got none"),
        (lambda m: m.generate([3], audio="a.wav"), "audio must be a JAX or NumPy array"),
        (lambda m: m.generate([3], audio=AUDIO), "audio must have 1 row, one for each prompt; got 2"),
        (lambda m: m.logits([3], audio=AUDIO[0]), f"audio must be audio_features: {ROWS}, as encoder.onnx has it"),
        (lambda m: m.start([3], audio=AUDIO[:1, :, :4]), f"as encoder.onnx has it; got (1, {MELS}, 4)"),
        (
            lambda m: m.generate([3], audio=AUDIO[:1], images=images_of(1)),
            "images must be left out, because the folder has no vision model",
        ),
    ],
)
def test_wrong_audio_is_refused(model: LanguageModel, call: Callable[[Any], Any], message: str) -> None:
    with refuses(message):
        call(model)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.generate([3], audio=AUDIO), "audio must be left out, because the folder has no encoder"),
        (
            lambda m: m.generate([3], images=AUDIO),
            "images must be a mapping with arrays for pixel_values; got an array",
        ),
        (lambda m: m.generate([3], images={"pixels": AUDIO}), "images.pixels: unknown input"),
        (lambda m: m.generate([3], images={}), "images: no array for input pixel_values"),
        (lambda m: m.generate([3, -1], images=images_of(1)), "prompts must have 2 tokens in the places of images"),
        (lambda m: m.generate([3, -1]), "prompts[0] must have tokens from 0 to 47"),
    ],
)
def test_wrong_images_are_refused(seeing: LanguageModel, call: Callable[[Any], Any], message: str) -> None:
    with refuses(message):
        call(seeing)


def test_images_are_refused_if_earlier_ones_would_be_read_again(
    seeing: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeing, "decoder", replace(seeing.decoder, tables=Tables(most=8, short=8)))
    with refuses("onnx: images: not supported for models with other rotary angles for long sequences"):
        seeing.generate([3, -1, -1, 7], images=images_of(1))


def changed(content: Any, value: Any, *path: str) -> Any:
    content = inner = copy.deepcopy(content)
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return content


HEARD = '["genai_config.json"].model.encoder'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(HEARING, "no.onnx", "model", "encoder", "filename"), "encoder.filename must be a file in the folder"),
        (changed(HEARING, None, "model", "encoder"), f"{HEARD} must be an object; got None"),
        (
            changed(HEARING, "x", "model", "encoder", "inputs", "audio_features"),
            f"{HEARD}.inputs.audio_features must name inputs of encoder.onnx; got x (it has audio_features)",
        ),
        (
            changed(HEARING, "x.%d", "model", "encoder", "outputs", "cross_present_value_names"),
            f"{HEARD}.outputs must name outputs of encoder.onnx; got x.0",
        ),
        (
            changed(HEARING, "x", "model", "encoder", "outputs", "cross_present_key_names"),
            f"{HEARD}.cross_present_key_names must have %d for the layer; got 'x'",
        ),
        (
            changed(HEARING, "x.%d", "model", "decoder", "inputs", "cross_past_key_names"),
            '["decoder.onnx"].past_key_cross_0: not supported as an input; got past_key_cross_0: float32[batch, 2',
        ),
        (changed(HEARING, {}, "model", "speech"), "model.speech: not supported (known are decoder, encoder, embedding"),
        (changed(HEARING, [], "model", "decoder", "pipeline"), "model.decoder.pipeline: not supported; a part must be"),
        (changed(HEARING, {}, "model", "vision"), "model.embedding must be an object beside vision; got none"),
    ],
)
def test_wrong_audio_folders_are_refused(folder: Path, tmp_path: Path, content: Any, message: str) -> None:
    for name in ("encoder.onnx", "decoder.onnx"):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / "genai_config.json").write_text(json.dumps(content))
    with refuses(message):
        language_model(tmp_path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("embedding", "outputs", "inputs_embeds"), "outputs.inputs_embeds must name outputs of embedding.onnx; got x"),
        (("embedding", "inputs", "image_features"), "inputs.image_features must name inputs of embedding.onnx; got x"),
        (("vision", "outputs", "image_features"), "outputs.image_features must name outputs of vision.onnx; got x"),
        (("decoder", "inputs", "inputs_embeds"), "inputs.inputs_embeds must name inputs of model.onnx; got x"),
    ],
)
def test_wrong_image_folders_are_refused(
    seeing_folder: Path, tmp_path: Path, path: tuple[str, ...], message: str
) -> None:
    for name in ("model.onnx", "embedding.onnx", "vision.onnx"):
        (tmp_path / name).symlink_to(seeing_folder / name)
    (tmp_path / "genai_config.json").write_text(json.dumps(changed(seeing_configuration(), "x", "model", *path)))
    with refuses(message):
        language_model(tmp_path)


def test_a_decoder_that_counts_tokens_differently_is_refused(tmp_path: Path) -> None:
    write_hearing_folder(tmp_path, unidirectional=0)
    rule = "counts past tokens in a way that is not supported; got past_key_self_0"
    with refuses(f'onnx: ["decoder.onnx"].nodes["0.own"].MultiHeadAttention: {rule}'):
        language_model(tmp_path)
    proto = hearing_proto()
    steps = next(tensor for tensor in proto.graph.initializer if tensor.name == "step")
    steps.CopyFrom(onnx.numpy_helper.from_array(np.array([2]), "step"))
    onnx.save(proto, tmp_path / "decoder.onnx")
    with refuses(f'onnx: ["decoder.onnx"].nodes.past_sizes.Shape: {rule}'):
        language_model(tmp_path)


def test_the_length_of_a_cache_may_be_a_single_node(tmp_path: Path) -> None:
    write_hearing_folder(tmp_path)
    proto = hearing_proto()
    nodes = [node for node in proto.graph.node if node.output[0] != "past1"]
    nodes.insert(0, onnx.helper.make_node("Shape", ["past_key_self_0"], ["past1"], start=2, end=3))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save(proto, tmp_path / "decoder.onnx")
    language_model(tmp_path)


@pytest.mark.parametrize("change", ["one row later", "at the number of heads"])
def test_tables_that_skip_rows_are_refused(tmp_path: Path, change: str) -> None:
    """Some decoders leave out the first rows of their table."""
    write_hearing_folder(tmp_path)
    proto = hearing_proto()
    slices = next(node for node in proto.graph.node if node.op_type == "Slice")
    if change == "one row later":
        proto.graph.node.insert(
            [*proto.graph.node].index(slices), onnx.helper.make_node("Add", ["past1", "step"], ["later"])
        )
        slices = next(node for node in proto.graph.node if node.op_type == "Slice")
        slices.input[1] = "later"
    else:
        next(node for node in proto.graph.node if node.output[0] == "past").input[1] = "one"
    onnx.save(proto, tmp_path / "decoder.onnx")
    with refuses("counts past tokens in a way that is not supported; got past_key_self_0"):
        language_model(tmp_path)


# Commands


def test_a_check_reads_all_models(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder), "--json"]) == 1  # no tokenizer
    report = json.loads(capsys.readouterr().out)
    assert report["model"]["files"] == {"decoder": "decoder.onnx", "encoder": "encoder.onnx"}
    weights = sum(x.nbytes for x in language_model(folder).weights.values())
    assert report["model"]["weight_bytes"]["other weights"] >= weights
    write_hearing_folder(tmp_path, unidirectional=0)
    (tmp_path / "encoder.onnx").write_bytes(b"none")
    assert main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"{tmp_path}: models: decoder.onnx to decode, encoder.onnx as encoder" in out
    assert f"{tmp_path}/encoder.onnx: not an ONNX model" in out
    assert f'{tmp_path}/decoder.onnx: nodes["0.own"].MultiHeadAttention: counts past tokens' in out


@pytest.fixture
def speaking(folder: Path, tmp_path: Path) -> Path:
    """A folder with a tokenizer, and with features of audio in a file."""
    tokenizers = pytest.importorskip("tokenizers")
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    reader = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(24)}, unk_token="w0"))
    reader.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    reader.save(str(tmp_path / "tokenizer.json"))
    np.save(tmp_path / "features.npy", AUDIO[:1])
    return tmp_path


@FULL
def test_a_command_continues_audio(
    speaking: Path, expected: list[list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    search = ["--max_length", "18", "--min_length", "18"]
    assert main(["generate", str(speaking), "w3 w5 w7", "--json", *search, "--audio", f"{speaking}/features.npy"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == expected[0][3:]


def test_a_command_refuses_wrong_audio(speaking: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*options: str) -> str:
        assert main(["generate", str(speaking), "w3", *options]) == 2
        return capsys.readouterr().err

    error = "error: --audio must be given, because the folder has an encoder; got none\ntip: --audio FEATURES.npy\n"
    assert told() == error
    assert "--audio is not for conversations" in told("--chat", "--audio", "features.npy")
    np.savez(speaking / "two.npz", a=AUDIO, b=AUDIO)
    assert "two.npz must have one array; got a and b" in told("--audio", str(speaking / "two.npz"))
    np.save(speaking / "two.npy", AUDIO)
    assert "audio must have 1 row, one for each prompt; got 2" in told("--audio", str(speaking / "two.npy"))
