"""Diffusion models in folders as Stable Diffusion is exported, beside ONNX Runtime."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from helpers import FULL, GATE, mesh_of, refuses
from jax.sharding import AxisType
from onnx_models import FLOAT, value
from small_diffusion_models import CHANNELS, PROTOS, RATIO, SCHEDULER, write_folder

from dmljax.onnx import DiffusionModel, diffusion_model
from dmljax.onnx.diffusion.schedulers import REACH, scheduler_of

pytest.importorskip("tokenizers")

PROMPTS = ["red cat", "dear hat"]
TOKENS = [[22, 21, 19, 23, 23, 23], [22, 3, 4, 0, 15, 23]]
SIZES = (CHANNELS, 2, 4)
SHAPE: Any = {"height": 2 * RATIO, "width": 4 * RATIO}
LATENTS = np.random.default_rng(0).standard_normal((2, *SIZES)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model") / "folder")


@pytest.fixture(scope="module")
def model(folder: Path) -> DiffusionModel:
    return diffusion_model(folder)


class Reference:
    """The same model in ONNX Runtime, with a loop in NumPy."""

    def __init__(self) -> None:
        self.sessions = {
            part: onnxruntime.InferenceSession(proto().SerializeToString(), providers=["CPUExecutionProvider"])
            for part, proto in PROTOS.items()
        }

    def run(self, part: str, **inputs: Any) -> Any:
        return self.sessions[part].run(None, inputs)[0]

    def images(
        self,
        kind: str,
        steps: int,
        *,
        latents: Any = LATENTS,
        guidance: float = 7.5,
        noise: Callable[[int], Any] = lambda step: 0,
    ) -> Any:
        table = scheduler_of(SCHEDULER, kind).table(steps)
        states, others = (
            self.run("text_encoder", input_ids=np.array(tokens, np.int64)) for tokens in (TOKENS, [NEGATIVE] * 2)
        )
        latents, estimates = table.start * latents, [0] * REACH
        for i, time in enumerate(table.timesteps):
            inputs = {"sample": np.float32(latents), "timestep": np.array([time], np.int64)}
            toward, away = (self.run("unet", **inputs, encoder_hidden_states=one) for one in (states, others))
            output = toward if guidance <= 1 else away + guidance * (toward - away)
            estimates = [table.of_latents[i] * latents + table.of_output[i] * output, *estimates[:-1]]
            taken = sum(factor * one for factor, one in zip(table.taken[i], estimates, strict=True))
            latents = table.kept[i] * latents + taken + table.noise[i] * noise(i)
        images = self.run("vae_decoder", latent_sample=np.float32(latents / 0.18215))
        return np.moveaxis(np.clip(images / 2 + 0.5, 0, 1), 1, -1)


NEGATIVE = [22, 23, 23, 23, 23, 23]  # of the empty text


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def assert_alike(actual: Any, expected: Any) -> None:
    assert (actual.shape, actual.dtype) == (expected.shape, np.float32)
    assert 0.1 < np.std(expected) < 0.45, "neither gray nor saturated"
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("kind", "steps"), [("pndm", 7), pytest.param("dpmsolver++", 4, marks=GATE)])
def test_images_equal_onnxruntimes(kind: str, steps: int, model: DiffusionModel, reference: Reference) -> None:
    actual = model.generate(PROMPTS, latents=LATENTS, steps=steps, scheduler=kind, **SHAPE)
    assert_alike(actual, reference.images(kind, steps))


def test_schedulers_and_steps_share_a_program(model: DiffusionModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first = model.generate(PROMPTS, latents=LATENTS, steps=3, **SHAPE)  # compiles where no test has
    monkeypatch.setattr(model.models.by_part["unet"], "apply", None)
    again = model.generate(np.array(TOKENS), negative=NEGATIVE, latents=LATENTS, steps=3, **SHAPE)
    np.testing.assert_array_equal(again, first)
    for options in ({"scheduler": "euler"}, {"guidance": 3.0}, {"negative": "bed"}, {"negative": ["bed", "red"]}):
        other = model.generate(PROMPTS, latents=LATENTS, **{"steps": 6, **SHAPE, **options})
        assert np.max(np.abs(other - first)) > 0.01


@FULL
def test_tokens_keys_and_latents_are_traced(model: DiffusionModel) -> None:
    options: Any = {"steps": 2, "scheduler": "lcm", **SHAPE}

    def make(tokens: Any, negative: Any, key: Any, latents: Any, weights: Any) -> Any:
        return model.generate(tokens, negative=negative, key=key, latents=latents, weights=weights, **options)

    arguments = (jnp.array(TOKENS), jnp.array(NEGATIVE), jax.random.key(5), jnp.array(LATENTS), model.weights)
    np.testing.assert_allclose(jax.jit(make)(*arguments), make(*arguments), atol=1e-5)


def test_numbers_that_choose_the_program_are_not_traced(model: DiffusionModel) -> None:
    with refuses("guidance must be a finite number; got a traced"):
        jax.jit(lambda guidance: model.generate(PROMPTS, latents=LATENTS, guidance=guidance, **SHAPE))(3.0)
    with refuses("steps must be"):
        jax.jit(lambda steps: model.generate(PROMPTS, latents=LATENTS, steps=steps, **SHAPE))(3)
    with refuses("prompts must be a text, a list of texts, or tokens"):
        jax.jit(lambda token: model.generate([[token]], latents=LATENTS, **SHAPE))(3)


@FULL
def test_noise_is_drawn_by_the_key(model: DiffusionModel, reference: Reference) -> None:
    key = jax.random.key(5)

    def drawn(index: int) -> Any:
        keys = [jax.random.fold_in(jax.random.fold_in(key, place), index) for place in range(2)]
        return np.stack([jax.random.normal(key, SIZES, jnp.float32) for key in keys])

    options: Any = {"steps": 3, "scheduler": "euler_ancestral", **SHAPE}
    expected = reference.images("euler_ancestral", 3, latents=drawn(0), noise=lambda step: drawn(step + 1))
    assert_alike(model.generate(PROMPTS, key=key, **options), expected)
    other = model.generate(PROMPTS, key=jax.random.key(6), **options)
    assert np.max(np.abs(other - expected)) > 0.01


@FULL
def test_a_prompt_does_not_depend_on_the_others_of_its_batch(model: DiffusionModel) -> None:
    options: Any = {"key": jax.random.key(1), "steps": 3, "scheduler": "lcm"}
    both = model.generate(PROMPTS, **options)
    assert both.shape == (2, 4 * RATIO, 4 * RATIO, 3), "the size in unet/config.json"
    np.testing.assert_allclose(model.generate(PROMPTS[0], **options), both[:1], atol=1e-4)


@FULL
def test_without_guidance_each_prompt_is_one_row(model: DiffusionModel, reference: Reference) -> None:
    actual = model.generate(PROMPTS, guidance=1, latents=LATENTS, steps=4, scheduler="ddim", **SHAPE)
    assert_alike(actual, reference.images("ddim", 4, guidance=1))


@FULL
def test_latents_are_differentiated_forward_and_mapped(model: DiffusionModel) -> None:
    def images(latents: Any) -> Any:
        return model.generate(PROMPTS, latents=latents, steps=3, **SHAPE)

    batches = jnp.stack([LATENTS, -LATENTS])
    expected = jnp.stack([images(batch) for batch in batches])
    np.testing.assert_allclose(jax.vmap(images)(batches), expected, atol=1e-4)
    _, tangent = jax.jvp(images, (LATENTS,), (LATENTS,))
    near = (images(LATENTS * 1.001) - images(LATENTS * 0.999)) / 0.002
    np.testing.assert_allclose(tangent, near, atol=0.05 * float(jnp.max(jnp.abs(near))))


@FULL
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_images_follow_the_float_type_of_the_weights(folder: Path, model: DiffusionModel, dtype: Any) -> None:
    half = diffusion_model(folder, dtype=dtype)
    assert {weight.dtype for weight in half.weights.values()} == {jnp.dtype(dtype)}
    options: Any = {"latents": LATENTS, "steps": 4, "guidance": 2.0, **SHAPE}
    expected = model.generate(PROMPTS, **options)
    actual = half.generate(PROMPTS, **options)
    assert actual.dtype == jnp.float32
    np.testing.assert_allclose(actual, expected, atol=0.1)
    np.testing.assert_array_equal(model.generate(PROMPTS, weights=half.weights, **options), actual)


@FULL
@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit], ids=lambda x: x.name)
def test_devices_divide_weights_and_latents(model: DiffusionModel, axis_type: AxisType) -> None:
    mesh = mesh_of(axis_type, data=2, model=2)
    weights = model.shard(mesh)
    assert any(name.startswith("unet.") and "model" in spec for name, spec in model.partition(mesh).items())
    options: Any = {"latents": LATENTS, "steps": 4, **SHAPE}
    actual = model.generate(PROMPTS, weights=weights, **options)
    assert len(actual.sharding.device_set) == 4
    np.testing.assert_allclose(actual, model.generate(PROMPTS, **options), atol=1e-3)


# Texts


@pytest.mark.parametrize(
    ("text", "tokens", "is_cut"),  # by transformers.CLIPTokenizerFast 5.24
    [
        (PROMPTS[0], TOKENS[0], False),
        ("Red  cats!", [22, 21, 2, 0, 8, 23], True),
        ("<|endoftext|> hat", [22, 23, 5, 18, 23, 23], False),
        ("a bed, a cat's", [22, 9, 1, 4, 12, 23], True),
        ("red red red red", [22, 21, 21, 21, 21, 23], False),
        ("red red red red red", [22, 21, 21, 21, 21, 23], True),
        ("", NEGATIVE, False),
    ],
)
def test_texts_are_clips_tokens(model: DiffusionModel, text: str, tokens: list[int], is_cut: bool) -> None:
    assert model.tokenizer.tokens([text]) == [tokens]
    assert model.tokenizer.is_cut(text) == is_cut


def test_a_tokenizer_may_be_one_file(folder: Path, tmp_path: Path, model: DiffusionModel) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    model.tokenizer._reader.save(str(copied / "tokenizer" / "tokenizer.json"))
    (copied / "tokenizer" / "vocab.json").unlink()
    assert diffusion_model(copied).tokenizer.tokens(PROMPTS[:1]) == TOKENS[:1]


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": 3}, "prompts must be a text, a list of texts, or tokens of the shape (prompts, length); got 3"),
        ({"prompts": []}, "prompts must be a text, a list of texts, or tokens"),
        ({"prompts": [[1, 2], [3]]}, "prompts must be a text, a list of texts, or tokens"),
        (
            {"prompts": [[1] * 5 + [24]]},
            "prompts must have tokens from 0 to 23, as many as the text encoder embeds; got 24",
        ),
        ({"prompts": [[1] * 5]}, "negative must be one, or 1 of 5 tokens, as prompts are; got 1 of 6"),
        ({"negative": ["a", "b", "c"]}, "negative must be one, or 2 of 6 tokens, as prompts are; got 3 of 6"),
        ({"height": 20}, "height must be a multiple of 8; got 20"),
        ({"height": 24}, "...the model takes no images of 24 x 32 pixels: nodes.Concat_29.Concat.inputs[1] must have"),
        ({"width": 0}, "width must be in [1, 65536]; got 0"),
        ({"steps": 0}, "steps must be in [1, 1000]; got 0"),
        ({"guidance": "7"}, "guidance must be a finite number; got '7'"),
        ({"key": None}, "key: needed for drawing the first latents (key=jax.random.key(0))"),
        ({"key": None, "latents": LATENTS, "scheduler": "lcm"}, "key: needed for a scheduler that adds noise"),
        ({"key": 3}, "key must be a single jax.random key; got 3"),
        ({"latents": LATENTS[:1]}, "latents must have shape (2, 4, 2, 4); got (1, 4, 2, 4)"),
        ({"scheduler": "heun"}, "scheduler must be one of ddim, pndm, euler"),
        ({"weights": {}}, "weights must have the same names as model.weights; got no text_encoder."),
    ],
    ids=str,
)
@pytest.mark.gate(but=4)
def test_wrong_calls_are_refused(model: DiffusionModel, options: dict[str, Any], message: str) -> None:
    with refuses(f"onnx: {message}"):
        model.generate(**{"prompts": PROMPTS, "key": jax.random.key(0), **SHAPE, **options})


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_text(name: str, text: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    return write


def with_extra_input(folder: Path) -> None:
    proto = onnx.load(folder / "unet" / "model.onnx")
    proto.graph.input.append(value("time_ids", FLOAT, ["batch", 6]))
    onnx.save(proto, folder / "unet" / "model.onnx")


def with_other_output(folder: Path) -> None:
    proto = onnx.load(folder / "vae_decoder" / "model.onnx")
    proto.graph.node[-1].output[0] = proto.graph.output[0].name = "image"
    onnx.save(proto, folder / "vae_decoder" / "model.onnx")


def with_external_data(folder: Path) -> None:
    proto = onnx.load(folder / "unet" / "model.onnx")
    data = {"save_as_external_data": True, "location": "model.onnx_data", "size_threshold": 0}
    onnx.save(proto, folder / "unet" / "model.onnx", **data)
    (folder / "unet" / "model.onnx_data").unlink()


WRONG_FOLDERS: list[tuple[Callable[[Path], object], str]] = [
    (without("model_index.json"), "folder must have a model_index.json; got"),
    (with_text("model_index.json", "{"), '["model_index.json"] must be JSON; got'),
    (with_text("model_index.json", "[]"), '["model_index.json"] must be a JSON object; got list'),
    (without("unet/model.onnx"), '["unet/model.onnx"] must be in the folder; got'),
    (with_external_data, "model.onnx_data"),
    (with_text("transformer/model.onnx", ""), "transformer: models with this part are not supported"),
    (with_text("text_encoder_2/model.onnx", ""), "text_encoder_2: models with this part are not supported"),
    (without("scheduler/scheduler_config.json"), '["scheduler/scheduler_config.json"] must be in the folder'),
    (
        with_text("unet/config.json", '{"in_channels": 9}'),
        '["unet/config.json"].in_channels must be 4, as out_channels is; inpainting and learned variances are not',
    ),
    (with_text("unet/config.json", '{"sample_size": "64"}'), ".sample_size must be an integer above 0; got '64'"),
    (with_text("vae_decoder/config.json", '{"scaling_factor": "1"}'), ".scaling_factor must be a number; got '1'"),
    (
        with_extra_input,
        '["unet/model.onnx"].inputs must be sample, timestep and encoder_hidden_states; others are not supported; got',
    ),
    (with_other_output, '["vae_decoder/model.onnx"].outputs must include sample; got image'),
]


@pytest.mark.parametrize(("change", "message"), WRONG_FOLDERS, ids=range(len(WRONG_FOLDERS)))
def test_wrong_folders_are_refused(
    folder: Path, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    change(copied)
    with refuses(message):
        diffusion_model(copied)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("tokenizer/vocab.json"), '["tokenizer/vocab.json"] must be in the folder'),
        (without("tokenizer/merges.txt"), '["tokenizer/merges.txt"] must be in the folder'),
        (with_text("tokenizer/merges.txt", "a z"), '["tokenizer/merges.txt"] must have pairs of tokens in vocab.json'),
        (with_text("tokenizer/vocab.json", '{"a": 0}'), "must have the token '<|startoftext|>'"),
        (with_text("tokenizer/tokenizer.json", "{}"), '["tokenizer/tokenizer.json"] must be a tokenizer; got'),
        (
            with_text("tokenizer/tokenizer_config.json", '{"pad_token": "!!"}'),
            "[\"tokenizer/tokenizer_config.json\"].pad_token must be a token of the tokenizer; got '!!'",
        ),
        (
            with_text("tokenizer/tokenizer_config.json", '{"model_max_length": 1e30}'),
            ".model_max_length must be an integer from 3 to 65535; got 1e+30",
        ),
        (
            with_text("tokenizer/vocab.json", '{"<|startoftext|>": 0, "<|endoftext|>": 24}'),
            "tokenizer must have tokens below 24, as many as the text encoder embeds; got 24",
        ),
    ],
    ids=range(8),
)
def test_wrong_tokenizers_are_refused(
    folder: Path, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    if "vocab" in message or "24" in message:
        (copied / "tokenizer" / "merges.txt").write_text("")
    change(copied)
    with refuses(message):
        diffusion_model(copied).generate("red", key=jax.random.key(0))


def test_fixed_sizes_of_a_model_are_followed(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    proto = onnx.load(copied / "unet" / "model.onnx")
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 2
    onnx.save(proto, copied / "unet" / "model.onnx")
    with refuses("onnx: height must be 16, because the model has sample: float32[batch, 4, 2, width]; got 24"):
        diffusion_model(copied).generate("red", height=24, key=jax.random.key(0))
