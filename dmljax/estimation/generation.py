"""Estimates the cost of generating text with a language model: reading prompts, and adding a token to each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from dmljax.errors import require, within
from dmljax.estimation.depth import PreparedByDepth, prepare_by_depth
from dmljax.estimation.placement import ChipProgram, auto_axis_types, place_arguments, sizes_of_mesh
from dmljax.estimation.programs import Prepared, bytes_on_a_chip
from dmljax.estimation.report import Batch, Estimate, format_amount, largest_batch, remarks, side_by_side
from dmljax.estimation.targets import place_of
from dmljax.foundation.checks import integer_in
from dmljax.foundation.sharding import MODEL_AXIS
from dmljax.text import join_words, show

NOTE = """\
Prompts and tokens take at least these times, computed from XLA's compiled programs, not measured. One program reads all
prompts of the batch; another chooses a token for each sequence and reads it. Tokens per second are the new tokens over
the time of all. Memory is per chip. The largest batch assumes that all memory but the weights grows with the batch, as
caches do. Some intermediate results may not; a larger --batch tells."""

_CACHE = 4  # dimensions of a cache: batch, heads, tokens and features


class Work(NamedTuple):
    """How many sequences are generated at once, the tokens of each prompt, and the tokens that follow it."""

    batch: int = 1
    prompt: int = 512
    generated: int = 128


def work_of(inputs: Sequence[Any], generate: int | None) -> Work:
    """The work of reading prompts, which are the inputs if there are any, and of adding tokens to each."""
    work = Work() if generate is None else Work(generated=integer_in("generate", generate, 1, 2**31 - 1))
    if not inputs:
        return work
    shapes = [jnp.shape(leaf) for leaf in inputs]
    rule = "must be prompts of the shape (sequences, tokens)"
    require("inputs", len(inputs) == 1 and len(shapes[0]) == 2 and all(shapes[0]), rule, join_words(map(show, shapes)))
    return work._replace(batch=shapes[0][0], prompt=shapes[0][1])


class Generation(NamedTuple):
    """The cost of generating text on each chip of a target; `prompt` and `token` are its two programs.

    The batch is divided into `shares` parts, each on its own chips.
    """

    work: Work
    prompt: Estimate
    token: Estimate
    cache_bytes: int
    shares: int

    @property
    def parts(self) -> Mapping[str, Estimate]:
        """The two programs by description."""
        return {"reading the prompts": self.prompt, "adding a token": self.token}

    @property
    def fits(self) -> bool:
        """Whether both programs compile and fit in a chip's memory."""
        return self.prompt.fits and self.token.fits

    @property
    def compiles(self) -> bool:
        return not (self.prompt.reason or self.token.reason)

    @property
    def peak_bytes(self) -> int:
        return max(self.prompt.peak_bytes, self.token.peak_bytes)

    @property
    def tokens_per_second(self) -> float:
        seconds = self.prompt.seconds + self.work.generated * self.token.seconds
        return self.work.batch * self.work.generated / seconds if seconds else 0.0

    @property
    def largest_batch(self) -> int:
        """The most sequences that fit beside the weights, if all other memory grows with the batch."""
        batch = Batch(self.work.batch, shares=self.shares)
        return largest_batch(self.token, self.peak_bytes, self.token.weight_bytes, batch)

    def to_json(self) -> dict[str, Any]:
        """The figures by name, ready for JSON; totals are None if either program does not compile."""
        figures: dict[str, Any] = {
            "prompt_seconds": self.prompt.seconds,
            "token_seconds": self.token.seconds,
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_second_and_chip": self.tokens_per_second / self.token.devices,
            "largest_batch": self.largest_batch if self.compiles else None,
            "peak_bytes": self.peak_bytes,
        }
        known = figures if self.compiles else dict.fromkeys(figures)
        setup = {"target": self.token.target, **self.work._asdict(), "cache_bytes": self.cache_bytes}
        return setup | known | {"prompt_program": self.prompt.to_json(), "token_program": self.token.to_json()}


class PreparedGeneration(NamedTuple):
    """The programs of a generation, placed on chips."""

    work: Work
    prompt: Prepared | PreparedByDepth
    token: Prepared | PreparedByDepth
    shares: int

    def estimate(self) -> Generation:
        caches = [leaf for leaf in jax.tree.leaves(self.prompt.arguments.inputs[0]) if leaf.ndim == _CACHE]
        cache_bytes = bytes_on_a_chip(caches)
        return Generation(self.work, self.prompt.estimate(), self.token.estimate(), cache_bytes, self.shares)


def prepare_generation(
    model: Any,
    work: Work,
    target: str,
    mesh: Mapping[str, int] | None,
    *,
    precision: str | None = None,
    extrapolate: bool = False,
) -> PreparedGeneration:
    """Places the two programs of a language model on chips, which by default all divide the weights.

    The first axis of a mesh divides the batch, and `model` the weights and the heads of caches.
    """
    batch, prompt, new_tokens = work
    room, context = prompt + new_tokens, model.settings.context_length
    with within("estimate"):
        rule = f"must leave at most {context} tokens with the prompt's {prompt}, the model's context"
        require("generate", room <= context, rule, new_tokens)
        place = place_of(target)
        count = len(place.devices)
        axes = sizes_of_mesh((), target, count, mesh or {"data": 1, MODEL_AXIS: count})
        first = next(iter(axes))
        batch_axis = None if first == MODEL_AXIS else first

        def prepare_program(program: ChipProgram) -> Prepared:
            inputs = jax.tree.map(lambda leaf: _divide(leaf, axes, batch_axis), program.inputs)
            return Prepared(
                program, place_arguments(program._replace(inputs=inputs), place, axes, None), place, precision
            )

        def both(model: Any) -> list[Prepared]:
            return [
                prepare_program(
                    ChipProgram(part.function, model.weights, part.inputs, model.partition, donated=(1,), updates=True)
                )
                for part in model.generation_programs(batch, prompt, room)
            ]

        reading, step = prepare_by_depth(model, both) if extrapolate else both(model)
        return PreparedGeneration(work, reading, step, axes[first] if batch_axis else 1)


def _divide(leaf: Any, axes: Mapping[str, int], batch_axis: str | None) -> Any:
    """Divides the first dimension of an input among the chips, and the heads of a cache."""
    spec = [batch_axis] * bool(leaf.ndim)
    if leaf.ndim == _CACHE and MODEL_AXIS in axes and leaf.shape[1] % axes[MODEL_AXIS] == 0:
        spec.append(MODEL_AXIS)
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=auto_axis_types(axes))
    return leaf.update(sharding=NamedSharding(mesh, PartitionSpec(*spec)))


def table(generations: Sequence[Generation], width: int | None = None) -> list[str]:
    """Returns the lines of a table with a column for each generation."""
    columns = [[generation.token.target, *(tell(generation) for tell in ROWS.values())] for generation in generations]
    rows = [
        (f"{generation.token.target}, batch {generation.work.batch}: {name}", part)
        for generation in generations
        for name, part in generation.parts.items()
    ]
    return [*side_by_side(["", *ROWS], columns, width), *remarks(rows), *NOTE.splitlines()]


def _cell(tell: Callable[[Generation], str]) -> Callable[[Generation], str]:
    """A cell that is empty if a program does not compile."""
    return lambda generation: tell(generation) if generation.compiles else ""


ROWS: Mapping[str, Callable[[Generation], str]] = {
    "batch": lambda generation: str(generation.work.batch),
    "chips": lambda generation: str(generation.token.devices),
    "compiles": lambda generation: (
        f"{sum(part.compile_seconds for part in generation.parts.values()):.1f} s" if generation.compiles else "no"
    ),
    "weights": _cell(lambda generation: format_amount(generation.token.weight_bytes, "B")),
    "caches": _cell(lambda generation: format_amount(generation.cache_bytes, "B")),
    "peak memory": _cell(lambda generation: format_amount(generation.peak_bytes, "B")),
    "  of": _cell(lambda generation: format_amount(generation.token.memory_bytes, "B")),
    "all prompts": _cell(lambda generation: f"{generation.prompt.seconds * 1e3:.3g} ms"),
    "a token of each": _cell(lambda generation: f"{generation.token.seconds * 1e3:.3g} ms"),
    "tokens per second": _cell(lambda generation: format_amount(generation.tokens_per_second, "")),
    "  and chip": _cell(lambda generation: format_amount(generation.tokens_per_second / generation.token.devices, "")),
    "largest batch": _cell(lambda generation: str(generation.largest_batch)),
}
