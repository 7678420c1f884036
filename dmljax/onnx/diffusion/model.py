"""Diffusion models that make images from texts, read from folders in which Stable Diffusion is exported to ONNX.

One compiled program encodes the prompts, removes the noise from all latents of a batch step by step, and decodes them.
A table holds the scheduler's coefficients for each step, so the same program serves every scheduler and any number of
steps. If somebody listens to the progress, three programs make the same images step by step.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh

from dmljax.calls.binding import check_arguments
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, all_checked, require, within
from dmljax.foundation.checks import array, integer_in
from dmljax.foundation.files import read_object, require_folder
from dmljax.foundation.programs.compiling import Program
from dmljax.foundation.programs.progress import Progress, has_listener, listen, report
from dmljax.foundation.programs.store import digest_of
from dmljax.onnx.diffusion.schedulers import FILE as SCHEDULER, REACH, Scheduler, Table, scheduler_of
from dmljax.onnx.graph.graph import Node
from dmljax.onnx.language.settings import DIFFUSION_FILE as INDEX, FILE as LANGUAGE_FILE
from dmljax.onnx.language.tokens import PromptTokenizer
from dmljax.onnx.loading import load_graph
from dmljax.onnx.model import Model, loaded_graph, require_key
from dmljax.onnx.several_models import FolderModel, SeveralModels, check_folder, in_floats
from dmljax.onnx.sharding import divide_along
from dmljax.onnx.values.types import DType
from dmljax.text import join_words, show
from dmljax.types import FLOATS

_MOST_BYTES = 2**20

# The parts, with the names of their inputs and of the output that is used
PARTS = {
    "text_encoder": (("input_ids",), "last_hidden_state"),
    "unet": (("sample", "timestep", "encoder_hidden_states"), "out_sample"),
    "vae_decoder": (("latent_sample",), "sample"),
}
_OTHER_PARTS = ("controlnet", "image_encoder", "text_encoder_2", "text_encoder_3", "transformer")


class DiffusionSettings(NamedTuple):
    """The settings that a folder has for its model."""

    folder: Path
    scheduler: Mapping[str, Any]  # the content of its file
    channels: int  # of latents
    size: int  # of latents, if neither a call nor the model says otherwise
    ratio: int  # of the sizes of images and latents
    scale: float  # that the latents of images were multiplied by
    shift: float  # that was subtracted from them before


def read_diffusion_settings(folder: Path) -> DiffusionSettings:
    """Reads the configurations in a folder; an error lists all missing parts, or all wrong fields."""
    require_folder(folder)
    if not (folder / INDEX).exists():
        is_of_language = (folder / LANGUAGE_FILE).exists()
        remedy = (
            f"dmljax.onnx.language_model loads a folder with {LANGUAGE_FILE}"
            if is_of_language
            else "a folder that diffusers or Optimum exported to ONNX"
        )
        raise InvalidDesc(Problem("folder", f"must have a {INDEX}", show(str(folder)), remedy=remedy))
    read_object(folder, INDEX, _MOST_BYTES)
    for part in _OTHER_PARTS:
        if (folder / part).exists():
            raise Unsupported(Problem(part, "models with this part are not supported"))
    all_checked(*(functools.partial(_require_file, folder, file_of(part)) for part in PARTS))
    scheduler = read_object(folder, SCHEDULER, _MOST_BYTES)
    unet, vae = (functools.partial(_field, folder, f"{part}/config.json") for part in ("unet", "vae_decoder"))
    channels, outputs, size, blocks, scale, shift = all_checked(
        lambda: unet("in_channels", 4),
        lambda: unet("out_channels", 4),
        lambda: unet("sample_size", 64),
        lambda: vae("block_out_channels", [0] * 4),
        lambda: vae("scaling_factor", 0.18215),
        lambda: vae("shift_factor", 0.0),
    )
    rule = f"must be {outputs}, as out_channels is; inpainting and learned variances are not supported"
    require(("unet/config.json", "in_channels"), channels == outputs, rule, channels, Unsupported)
    return DiffusionSettings(folder, scheduler, channels, size, 1 << (len(blocks) - 1), scale, shift)


def file_of(part: str) -> str:
    """The file of a part in its folder."""
    return f"{part}/model.onnx"


def _require_file(folder: Path, name: str) -> None:
    require(name, (folder / name).exists(), "must be in the folder", show(str(folder)))


def _field(folder: Path, file: str, name: str, default: Any) -> Any:
    """Reads an optional field of a configuration, of the type of its default; integers also pass as floats."""
    value = read_object(folder, file, _MOST_BYTES, is_optional=True).get(name)
    if value is None:
        return default
    expected_type = type(default)
    is_right = (
        type(value) in (expected_type, int) if expected_type is float else type(value) is expected_type and bool(value)
    )
    requirement = {float: "a number", int: "an integer above 0", list: "a list that is not empty"}[expected_type]
    require((file, name), is_right and (expected_type is not int or value > 0), f"must be {requirement}", show(value))
    return value


@check_arguments
def diffusion_model(
    folder: str | Path, *, dtype: Any = None, progress: bool | Callable[[Progress], Any] | None = None
) -> "DiffusionModel":
    """Loads a folder in which diffusers, Optimum or Olive exported Stable Diffusion to ONNX.

    `dtype` converts its floats: a TPU computes with bfloat16, not with the float16 of many folders. `progress=True`
    shows how far it is, as `load` does.
    """
    with within("onnx"), listen(progress):
        path, floats = check_folder(folder, dtype)
        settings = read_diffusion_settings(path)
        return DiffusionModel(settings, {part: _load_part(path / file_of(part), floats) for part in PARTS})


def _load_part(path: Path, dtype: DType | None) -> Model:
    loaded, weights = load_graph(path, {}, {})
    return Model(loaded, in_floats(weights, dtype))


class DiffusionModel(FolderModel):
    """A diffusion model: `generate` makes images from texts.

    `weights` has the weights of all its ONNX models; names begin with `text_encoder.`, `unet.` or `vae_decoder.`.
    `generate` takes them with other values: trained, in another float type, or on several devices as `shard` places
    them.

    The first call compiles one program. Calls with as many prompts and the same sizes use it again, with any scheduler
    and any number of steps; with and without guidance are two programs, and schedulers that add noise have their own.
    """

    def __init__(self, settings: DiffusionSettings, parts: Mapping[str, Model]) -> None:
        self.settings, self.models = settings, SeveralModels(parts)
        names = {
            part: [[tensor.name for tensor in side] for side in (model.inputs, model.outputs)]
            for part, model in parts.items()
        }
        all_checked(*(functools.partial(require_names, part, *sides) for part, sides in names.items()))
        self._inputs = {part: {tensor.name: tensor for tensor in model.inputs} for part, model in parts.items()}
        encoder = parts["text_encoder"]
        self._vocabulary = vocabulary_of(loaded_graph(encoder).joined.nodes, encoder.weights)
        static = ("is_guided", "mesh")
        self._jit_make_images = jax.jit(self._make_images, static_argnames=static)
        # The same in three programs, for those who want to hear of each step
        source: Any = {"source": lambda: digest_of(repr(settings), self.models.digest)}
        self._jit_encode = Program(self._encode, "the text encoder", 1, 3, static_argnames="mesh", **source)
        self._jit_remove_noise = Program(self._remove_noise, "the U-Net", 2, 3, static_argnames=static, **source)
        self._jit_decode = Program(self._decode, "the image decoder", 3, 3, **source)

    def __repr__(self) -> str:
        return f"DiffusionModel({', '.join(f'{part}={model!r}' for part, model in self.models.by_part.items())})"

    @functools.cached_property
    def tokenizer(self) -> PromptTokenizer:
        """The folder's tokenizer; reading it needs the extra `genai`."""
        return PromptTokenizer(self.settings.folder, self._vocabulary)

    @check_arguments
    def generate(
        self,
        prompts: Any,
        *,
        negative: Any = "",
        steps: int = 50,
        guidance: float = 7.5,
        height: int | None = None,
        width: int | None = None,
        scheduler: str | None = None,
        key: Array | None = None,
        latents: Any = None,
        weights: Mapping[str, Any] | None = None,
        progress: bool | Callable[[Progress], Any] | None = None,
    ) -> Array:
        """Makes an image for each prompt: an array (prompts, height, width, 3) of float32 from 0 to 1.

        `prompts` is a text, a list of texts, or an array (prompts, length) of tokens; so is `negative`, with a single
        row for all prompts or a row for each. Texts need the extra `genai`, and are cut where they are longer than the
        encoder reads. Above 1, `guidance` leads away from `negative`, with two rows of the batch for each prompt.
        `scheduler` replaces the folder's: "ddim", "pndm", "euler", "euler_ancestral", "lcm" or "dpmsolver++".

        `key` draws the first latents, and the noise of "euler_ancestral" and "lcm", for each prompt by its place.
        `latents` are normal numbers (prompts, channels, height / 8, width / 8) to begin with instead.

        `progress=True` shows how far it is, as `load` does.

        Under `jax.jit`, tokens, `key`, `latents` and `weights` may be arguments.
        """
        with within("onnx"), listen(progress):
            scheduler_used = self.scheduler(scheduler)
            table = scheduler_used.table(steps)
            arguments, mesh = self.models.call_weights(weights)
            is_guided = _check_guidance(guidance) > 1
            rows = self._tokens("prompts", prompts)
            others = self._tokens("negative", negative) if is_guided else rows[:0]
            batch, length = rows.shape
            if is_guided:
                rule = f"must be one, or {batch} of {length} tokens, as prompts are"
                is_right = len(others) in (1, batch) and others.shape[1] == length
                require("negative", is_right, rule, f"{len(others)} of {others.shape[1]}")
                others = others if len(others) == batch else others.repeat(batch, 0)
            is_traced = any(isinstance(x, jax.core.Tracer) for x in (others, rows))
            tokens = (jnp if is_traced else np).concatenate([others, rows])
            sizes = self._sizes(height, width)
            if latents is None or scheduler_used.is_random:
                key = _key(key, "drawing the first latents" if latents is None else "a scheduler that adds noise")
            if latents is None:
                latents = _draw_normals(key, 0, batch, sizes)
            elif array("latents", latents).shape != (batch, *sizes):
                raise InvalidDesc(Problem("latents", f"must have shape {(batch, *sizes)}", latents.shape))
            is_traced |= any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((latents, key, arguments)))
            make_images = self._make_images_in_steps if has_listener() and not is_traced else self._jit_make_images
            with _report_refused_sizes(*(size * self.settings.ratio for size in sizes[1:])):
                images: Array = make_images(
                    arguments,
                    tokens,
                    jnp.asarray(latents, jnp.float32),
                    _pad_table(table, scheduler_used.options.num_train_timesteps + 1),
                    np.int32(len(table.timesteps)),
                    np.float32(guidance),
                    key if scheduler_used.is_random else None,
                    is_guided=is_guided,
                    mesh=mesh,
                )
            return images

    def scheduler(self, kind: str | None = None) -> Scheduler:
        """The folder's scheduler, or another kind with the folder's options."""
        return scheduler_of(self.settings.scheduler, kind)

    def _tokens(self, name: str, prompts: Any) -> Any:
        """Prompts as an array of tokens, a row for each."""
        texts = [prompts] if isinstance(prompts, str) else prompts
        if isinstance(texts, Sequence) and texts and all(isinstance(text, str) for text in texts):
            tokens = np.array(self.tokenizer.tokens(texts), np.int32)
        else:
            tokens = _rows(name, prompts, self._vocabulary)
        due = (self._inputs["text_encoder"]["input_ids"].sizes or (None, None))[-1]
        if isinstance(due, int) and tokens.shape[1] != due:
            raise InvalidDesc(Problem(name, f"must have {due} tokens, as the text encoder does", tokens.shape[1]))
        return tokens

    def _sizes(self, height: int | None, width: int | None) -> tuple[int, ...]:
        """The sizes of latents."""
        settings, sample = self.settings, self._inputs["unet"]["sample"]
        latent_sizes: list[int] = []
        for name, wanted, due in zip(
            ("height", "width"), (height, width), (sample.sizes or (None,) * 4)[-2:], strict=True
        ):
            latent_size = due if isinstance(due, int) else settings.size
            size = latent_size * settings.ratio if wanted is None else integer_in(name, wanted, 1, 2**16)
            require(name, size % settings.ratio == 0, f"must be a multiple of {settings.ratio}", size)
            if isinstance(due, int) and size != due * settings.ratio:
                rule = f"must be {due * settings.ratio}, because the model has {sample}"
                raise InvalidDesc(Problem(name, rule, size))
            latent_sizes.append(size // settings.ratio)
        return (settings.channels, *latent_sizes)

    def _run_part(self, part: str, weights: Mapping[str, Any], **inputs: Array) -> Array:
        """The output of a part, in float32; floats have the type of the weights."""
        floats, types = self.models.float_type(weights), self._inputs[part]
        typed = {
            name: x.astype(jax.dtypes.canonicalize_dtype(dtype) if floats is None or dtype not in FLOATS else floats)
            for name, x in inputs.items()
            for dtype in [types[name].dtype]
        }
        return self.models.run(part, weights, typed)[PARTS[part][1]].astype(jnp.float32)

    def _make_images(
        self,
        weights: Mapping[str, Any],
        tokens: Array,
        latents: Array,
        table: Table,
        count: Array,
        guidance: Array,
        key: Array | None,
        *,
        is_guided: bool,
        mesh: Mesh | None,
    ) -> Array:
        """The images for tokens; the tokens to lead away from come first."""
        states, carried = self._encode(weights, tokens, latents, table, mesh=mesh)
        steps = (0, count)
        latents, _ = self._remove_noise(
            weights, states, carried, table, steps, guidance, key, is_guided=is_guided, mesh=mesh
        )
        return self._decode(weights, latents)

    def _make_images_in_steps(
        self,
        weights: Mapping[str, Any],
        tokens: Any,
        latents: Array,
        table: Table,
        count: Any,
        guidance: Any,
        key: Array | None,
        *,
        is_guided: bool,
        mesh: Mesh | None,
    ) -> Array:
        """The same images, with a call for each step, which is reported."""
        report("encoding the text")
        states, carried = self._jit_encode(weights, tokens, latents, table, mesh=mesh)
        for step in range(count):
            report("removing noise", step + 1, int(count), "step")
            steps = (np.int32(step), np.int32(step + 1))
            carried = self._jit_remove_noise(
                weights, states, carried, table, steps, guidance, key, is_guided=is_guided, mesh=mesh
            )
            jax.block_until_ready(carried)
        report("decoding the image")
        images: Array = self._jit_decode(weights, carried[0])
        return images

    def _encode(
        self, weights: Mapping[str, Any], tokens: Array, latents: Array, table: Table, *, mesh: Mesh | None
    ) -> tuple[Array, tuple[Array, Array]]:
        """The text encoder's states, and what the first step takes: latents, and the estimates of earlier steps."""
        states = self._run_part("text_encoder", weights, input_ids=tokens)
        return states, (_divide(mesh, table.start * latents), jnp.zeros((REACH, *latents.shape), jnp.float32))

    def _remove_noise(
        self,
        weights: Mapping[str, Any],
        states: Array,
        carried: tuple[Array, Array],
        table: Table,
        steps: tuple[Any, Any],
        guidance: Array,
        key: Array | None,
        *,
        is_guided: bool,
        mesh: Mesh | None,
    ) -> tuple[Array, Array]:
        """The latents and estimates after `steps`: the first, and the one before which to stop."""
        batch = carried[0].shape[0]

        def step(i: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
            latents, estimates = carried
            row = jax.tree.map(lambda x: x[i] if jnp.ndim(x) else x, table)
            both = _divide(mesh, jnp.concatenate([latents, latents]) if is_guided else latents)
            inputs = {"sample": both, "timestep": self._time(row.timesteps, both), "encoder_hidden_states": states}
            output = self._run_part("unet", weights, **inputs)
            if is_guided:
                away, toward = jnp.split(output, 2)
                output = away + guidance * (toward - away)
            estimate = row.of_latents * latents + row.of_output * output
            estimates = jnp.concatenate([estimate[None], estimates[:-1]])
            # Not a product of matrices, which some platforms round to 16 bits.
            latents = row.kept * latents + jnp.sum(row.taken[:, None, None, None, None] * estimates, 0)
            if key is not None:
                latents += row.noise * _draw_normals(key, i + 1, batch, latents.shape[1:])
            return _divide(mesh, latents), estimates

        noiseless: tuple[Array, Array] = lax.fori_loop(*steps, step, carried)
        return noiseless

    def _decode(self, weights: Mapping[str, Any], latents: Array) -> Array:
        """The images of latents."""
        scaled = latents / self.settings.scale + self.settings.shift
        images = self._run_part("vae_decoder", weights, latent_sample=scaled)
        return jnp.moveaxis(jnp.clip(images / 2 + 0.5, 0, 1), 1, -1)

    def _time(self, time: Array, both: Array) -> Array:
        """A timestep in the shape that the U-Net takes: a single number, or a number for each row."""
        sizes = self._inputs["unet"]["timestep"].sizes
        if not sizes:
            return time
        size, batch = sizes[0], (self._inputs["unet"]["sample"].sizes or (None,))[0]
        is_of_rows = isinstance(size, str) and size == batch
        return jnp.broadcast_to(time, (size if isinstance(size, int) else both.shape[0] if is_of_rows else 1,))


def _divide(mesh: Mesh | None, x: Array) -> Array:
    """Divides the rows of a batch over a mesh."""
    return x if mesh is None else divide_along(mesh, x, ("data",))


def require_names(part: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Raises if a part has other inputs than expected, or lacks its output."""
    expected, output = PARTS[part]
    rule = f"must be {join_words(expected)}; others are not supported"
    require((file_of(part), "inputs"), {*inputs} == {*expected}, rule, join_words(inputs), Unsupported)
    require((file_of(part), "outputs"), output in outputs, f"must include {output}", join_words(outputs))


def vocabulary_of(nodes: Iterable[Node], weights: Mapping[str, Any]) -> int | None:
    """The number of tokens that a text encoder embeds, if its nodes show it."""
    tokens = {"input_ids"}
    for node in nodes:
        if node.operator == "Gather" and node.inputs[1] in tokens and node.inputs[0] in weights:
            return int(weights[node.inputs[0]].shape[0])
        if node.operator in ("Cast", "Identity", "Reshape") and node.inputs[0] in tokens:
            tokens.add(node.outputs[0])
    return None


@contextlib.contextmanager
def _report_refused_sizes(height: int, width: int) -> Iterator[None]:
    """Reports that a model does not take images of these sizes if one of its nodes refuses them."""
    try:
        yield
    except InvalidDesc as error:
        if error.problems[0].path[:1] != ("nodes",):
            raise
        rule = f"the model takes no images of {height} x {width} pixels: {error.problems[0]}"
        remedy = "Stable Diffusion takes multiples of 64"
        raise InvalidDesc(Problem("height and width", rule, remedy=remedy)) from None


def _rows(name: str, value: Any, vocabulary: int | None) -> Any:
    """Tokens as an array of two dimensions."""
    requirement = "must be a text, a list of texts, or tokens of the shape (prompts, length)"
    is_traced = isinstance(value, jax.core.Tracer)
    try:
        tokens = value if is_traced else np.asarray(value)
    except (ValueError, jax.errors.TracerArrayConversionError):  # rows of different lengths, or of traced tokens
        raise InvalidType(Problem(name, requirement, show(value))) from None
    if tokens.dtype.kind not in "iu" or tokens.ndim not in (1, 2) or tokens.size == 0:
        raise InvalidType(Problem(name, requirement, show(value)))
    if is_traced:
        return jnp.atleast_2d(tokens).astype(np.int32)
    outside = tokens[(tokens < 0) | (tokens >= (2**31 if vocabulary is None else vocabulary))]
    rule = f"must have tokens from 0 to {(vocabulary or 2**31) - 1}, as many as the text encoder embeds"
    require(name, not outside.size, rule, *outside[:1].tolist())
    return np.atleast_2d(tokens).astype(np.int32)


def _check_guidance(value: Any) -> float:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool) and np.isfinite(value)
    require("guidance", is_number, "must be a finite number", show(value), InvalidType)
    return float(value)


def _key(key: Any, purpose: str) -> Array:
    if key is None:
        raise InvalidType(Problem("key", f"needed for {purpose}", remedy="key=jax.random.key(0)"))
    require_key(key)
    return cast(Array, key)


def _draw_normals(key: Any, index: int | Array, batch: int, sizes: Sequence[int]) -> Array:
    """Normal numbers for each row of a batch, which do not depend on the other rows."""

    def row(place: Array) -> Array:
        row_key = jax.random.fold_in(jax.random.fold_in(key, place), index)
        return jax.random.normal(row_key, tuple(sizes), jnp.float32)

    return jax.vmap(row)(lax.iota(np.int32, batch))


def _pad_table(table: Table, rows: int) -> Table:
    """A table in float32, padded with rows that no call reads, so that any number of steps has the same program."""

    def pad(x: Any) -> Any:
        x = np.asarray(x, np.float32)
        return np.pad(x, [(0, rows - len(x)), *[(0, 0)] * (x.ndim - 1)]) if x.ndim else x

    padded_table: Table = jax.tree.map(pad, table)
    return padded_table
