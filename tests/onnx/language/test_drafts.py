"""Drafts: the same tokens as without them, in fewer runs of the model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, few_of, refuses
from small_language_models import SHORT, VOCABULARY, write_folder
from small_tables import WORDS, table_of, write_table_folder

from dmljax.onnx import LanguageModel, language_model
from dmljax.onnx.language.acceptance import Drafts, judge_drafts
from dmljax.onnx.language.drafts import Cooldown, DraftCounts, Drafter, DraftOptions, Lookup, Round, Width
from dmljax.onnx.language.sampling import Search, numbers_of, sampling_of

PROMPT = [5, 11, 40, 7, 5, 11, 40, 7]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return language_model(write_folder(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return language_model(write_folder(tmp_path_factory.mktemp("small"), layers=1))


@pytest.fixture(scope="module")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return language_model(write_table_folder(tmp_path_factory.mktemp("cycle"), table_of({1: 2, 2: 1})))


# Tokens


@GATE
@pytest.mark.parametrize(
    "options",
    [{}, *few_of([{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 3}, {"min_length": 40}], 1)],
)
def test_drafts_do_not_change_the_likeliest_tokens(model: LanguageModel, small: LanguageModel, options: Any) -> None:
    options = {"max_length": 40, **options}
    expected = model.generate(PROMPT, **options)
    for draft in (small, model, 3):
        assert model.generate(PROMPT, draft=draft, **options) == expected
    assert model.generate([PROMPT], draft=2, **options) == [expected]


@GATE
def test_lookups_do_not_change_drawn_tokens(model: LanguageModel) -> None:
    options: dict[str, Any] = {"do_sample": True, "top_k": 3, "key": jax.random.key(3), "max_length": 40}
    assert model.generate(PROMPT, draft=2, **options) == model.generate(PROMPT, **options)


@GATE
def test_a_model_that_drafts_for_itself_draws_what_it_accepts(model: LanguageModel) -> None:
    drafter = Drafter(DraftOptions(), model.decoder)
    options: dict[str, Any] = {"do_sample": True, "top_p": 0.9, "key": jax.random.key(3), "max_length": 32}
    stream = model.stream(PROMPT, draft=drafter, **options)
    assert len([*stream]) <= 32 - len(PROMPT)
    counts = drafter.counts
    assert counts.draft_tokens_accepted >= 0.9 * counts.draft_tokens_evaluated > 0


def test_a_model_reads_several_tokens_in_one_run(cycle: LanguageModel) -> None:
    drafter = Drafter(DraftOptions(ngram_size=2, ngram_chained_lookup=True))
    tokens = [*cycle.stream([1, 2, 1, 2], draft=drafter, max_length=24)]
    assert tokens == [1, 2] * 10
    assert drafter.counts.target_verify_forward_passes == 4  # of a token and four drafts each
    assert not drafter.counts.target_reanchor_forward_passes + drafter.counts.standard_fallback_steps


@GATE
def test_sequences_that_become_long_are_read_again(tmp_path: Path) -> None:
    model = language_model(write_folder(tmp_path / "tables", has_tables=True))
    expected = model.generate(PROMPT, max_length=SHORT + 12)
    for draft in (model, 2):
        assert model.generate(PROMPT, draft=draft, max_length=SHORT + 12) == expected


@GATE
def test_a_state_has_the_tokens_that_came_out(model: LanguageModel) -> None:
    expected = model.generate(PROMPT, max_length=30)
    stream = model.stream(PROMPT, draft=model, max_length=30)
    first = [next(stream) for _ in range(3)]
    state = stream.state  # which forgets the drafts that have not come out
    assert [*PROMPT, *first, *stream] == expected
    assert model.generate(state=state, draft=2, max_length=30) == expected


@GATE
def test_logits_between_drafts_are_those_without_them(model: LanguageModel) -> None:
    streams = [model.stream(PROMPT, block=1, max_length=30, draft=draft) for draft in (None, model)]
    for _ in range(7):
        plain, drafted = (stream.logits for stream in streams)
        np.testing.assert_allclose(drafted, plain, rtol=1e-4, atol=1e-4)
        assert next(streams[0]) == next(streams[1])
    for stream in streams:
        stream.logits = jnp.zeros((1, VOCABULARY), jnp.float32).at[0, 9].set(1)
    assert [next(stream) for stream in streams] == [9, 9]
    assert [*streams[0]] == [*streams[1]]


@GATE
def test_drafted_tokens_are_distributed_as_without_drafts(tmp_path: Path) -> None:
    """Compares all pairs of tokens that a table draws, with drafts from another table."""
    random = np.random.default_rng(0)
    tables = [random.normal(size=(WORDS, WORDS)).astype(np.float32) for _ in range(2)]
    target, other = (language_model(write_table_folder(tmp_path / str(i), table)) for i, table in enumerate(tables))
    pairs = {"plain": np.zeros((WORDS, WORDS)), "drafted": np.zeros((WORDS, WORDS))}
    for i in range(1500):
        options: dict[str, Any] = {"do_sample": True, "key": jax.random.key(i), "max_length": 3, "min_length": 3}
        for name, draft in (("plain", None), ("drafted", other)):
            _, first, second = target.generate([3], draft=draft, **options)
            pairs[name][first, second] += 1 / 1500
    assert np.abs(pairs["plain"] - pairs["drafted"]).sum() < 0.25


def test_accepted_drafts_leave_the_distribution() -> None:
    form = sampling_of(search := Search(8, do_sample=True))
    random = np.random.default_rng(1)
    rows = jnp.asarray(random.normal(size=(3, 6)), jnp.float32)
    probs = jnp.asarray(random.dirichlet(np.ones(6), 2), jnp.float32)

    def first_token(key: Any) -> Any:
        draft_key, key = jax.random.split(key)
        drafts = jax.random.categorical(draft_key, jnp.log(probs), axis=1).astype(jnp.int32)
        judged = Drafts(jnp.pad(drafts, (0, 1)), jnp.int32(2), probs)
        tokens, length = jnp.zeros((1, 8), jnp.int32), jnp.int32(1)
        verdict = judge_drafts(rows, tokens, length, judged, form, numbers_of(search), jnp.array([], jnp.int32), key)
        return jnp.where(verdict.accepted > 0, drafts[0], verdict.token)

    drawn = jax.jit(jax.vmap(first_token))(jax.random.split(jax.random.key(0), 20_000))
    np.testing.assert_allclose(np.bincount(drawn, minlength=6) / 20_000, jax.nn.softmax(rows[0]), atol=0.015)


# What drafts are


@pytest.mark.parametrize(
    ("is_chained", "tokens", "expected"),
    [
        (False, [2, 3, 4, 8, 2, 5, 6, 7, 3, 2], [5, 6, 7, 3]),
        (True, [2, 3, 4, 8, 2, 5, 6, 7, 3, 2], [5, 6, 7, 3]),
        (True, [3, 4, 5, 2, 3, 8, 2], [3, 8, 2, 3]),
        (False, [1, 2, 1, 2], [1, 2]),
        (True, [1, 2, 1, 2], [1, 2, 1, 2]),
        (True, [1, 2, 3], []),
        (False, [1], []),
    ],
)
def test_lookups_find_what_followed_last(is_chained: bool, tokens: list[int], expected: list[int]) -> None:
    lookup = Lookup(2, is_chained, DraftCounts())
    run: Any = None
    assert [*lookup.propose(run, tokens, 4).tokens] == expected


def test_lookups_forget_tokens_that_are_no_more() -> None:
    lookup, run = Lookup(2, False, DraftCounts()), None
    lookup.propose(run, [1, 2, 3, 1], 1)  # type: ignore[arg-type]
    lookup.begin(run, [1, 4, 1])  # type: ignore[arg-type]
    assert lookup.propose(run, [1, 4, 1], 1).tokens == [4]  # type: ignore[arg-type]


def rounds(width: Width, accepted: int, milliseconds: float) -> Iterator[int]:
    """The widths after each of many rounds in which so many drafts are right."""
    while True:
        right = min(accepted, width.current)
        evaluated = min(right + 1, width.current)
        width.learn(Round(width.current, evaluated, right, right + 1, True, milliseconds))
        yield width.current


def test_widths_grow_while_drafts_are_right_and_shrink_while_they_are_wrong() -> None:
    width = Width(DraftOptions(min_adaptive_k=2))
    right = rounds(width, 16, 1.0)
    assert [next(right) for _ in range(2)] == [2, 3]
    assert max(next(right) for _ in range(100)) == 16
    wrong = rounds(width, 0, 1.0)
    assert min(next(wrong) for _ in range(100)) == 2
    width.reset()
    assert (width.current, width.throughput) == (2, 0.0)


def test_widths_that_take_too_long_are_given_up() -> None:
    width = Width(DraftOptions(min_adaptive_k=2))
    for milliseconds in (1.0, 1.0, 9.0):
        next(rounds(width, 16, milliseconds))
    assert (width.current, width.probes, width.decreases) == (2, 1, 1)


def test_three_rounds_without_a_right_draft_cool_down() -> None:
    cooldown, wrong = Cooldown(True), Round(2, 1, 0, 1, True, 1.0)
    for finished in (wrong, wrong, wrong._replace(accepted=1), wrong, wrong):
        cooldown.learn(finished, 2)
    assert not cooldown.remaining
    cooldown.learn(wrong, 2)
    assert (cooldown.remaining, cooldown.entries) == (1, 1)


# Masks whose size is compared


def test_models_that_compare_the_size_of_their_mask_count_tokens(tmp_path: Path) -> None:
    model = language_model(write_table_folder(tmp_path / "switch", table_of({}), switch=5))
    assert model.generate([0], max_length=9) == [0, 1, 2, 3, 4, 4, 4, 4, 4]


# Refusals


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.generate([PROMPT, PROMPT], draft=3), "draft: not supported for several prompts"),
        (lambda model: model.generate(PROMPT, draft=1), "draft must be in [2, 16]; got 1"),
        (lambda model: jax.jit(lambda x: model.generate(x, draft=3))(jnp.array(PROMPT)), "not supported under jax.jit"),
    ],
)
def test_drafts_are_refused(model: LanguageModel, ask: Callable[[Any], Any], message: str) -> None:
    with refuses(message):
        ask(model)


@GATE
def test_states_and_other_tokens_are_refused(model: LanguageModel, cycle: LanguageModel, tmp_path: Path) -> None:
    with refuses("draft must be a model with the same tokens"):
        model.generate(PROMPT, draft=cycle)
    stateful = language_model(write_folder(tmp_path / "state", has_state=True))
    with refuses("draft: not supported for several prompts, models that translate, and layers with states"):
        stateful.generate(PROMPT, draft=3)


def test_the_last_row_of_logits_suffices(tmp_path: Path) -> None:
    model = language_model(write_table_folder(tmp_path / "last", table_of({1: 2, 2: 1}), of_last=True))
    assert model.generate([5, 1], max_length=6) == [5, 1, 2, 1, 2, 1]
