"""GenAI's speculative decoding: options, statistics, what interrupts a round, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import refuses
from small_tables import WORDS, table_of, table_proto, write_table_folder

import dmljax.run.onnxruntime_genai as og
from dmljax.run.answers import Refusal
from dmljax.run.onnxruntime_genai import speculation

CYCLE = [1, 2, 1, 2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return og.Model(str(write_table_folder(tmp_path_factory.mktemp("cycle"), table_of({1: 2, 2: 1, 7: 1}))))


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model whose draft is right up to the eighth token."""
    folder = tmp_path_factory.mktemp("drafted")
    table = table_of({3: 3})
    return og.Model(str(write_table_folder(folder, table, draft=table_proto(table, switch=8))))


def generator_of(model: Any, prompt: Any, search: Any = None, **speculative: Any) -> Any:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 20, **(search or {})})
    params.set_speculative_options(**speculative)
    generator = og.Generator(model, params)
    generator.append_tokens(prompt)
    return generator


def finish(generator: Any) -> list[int]:
    while not generator.is_done():
        generator.generate_next_token()
    tokens: list[int] = generator.get_sequence(0).tolist()
    return tokens


def check_counts(statistics: Any) -> None:
    """Checks what holds of the statistics at any moment."""
    ends = ("completed_rounds", "interrupted_rounds", "active_rounds")
    assert statistics["rounds"] == sum(statistics[name] for name in ends)
    queued = sum(statistics[f"tokens_{name}"] for name in ("emitted", "discarded", "buffered"))
    assert statistics["tokens_queued"] == queued
    kinds = ("verify", "reanchor", "reconciliation")
    passes = sum(statistics[f"target_{kind}_forward_passes"] for kind in kinds)
    assert statistics["target_forward_passes"] == passes


def test_a_round_gives_a_token_at_a_time(model: Any) -> None:
    generator = generator_of(model, CYCLE, ngram_size=3, max_draft_tokens=2)
    for length, buffered in ((5, 2), (6, 1), (7, 0)):
        generator.generate_next_token()
        statistics = generator.get_speculative_stats()
        assert (generator.token_count(), statistics["tokens_buffered"]) == (length, buffered)
        check_counts(statistics)
    wanted = {"rounds": 1, "full_accept_rounds": 1, "draft_tokens_accepted": 2, "bonus_tokens": 1}
    wanted |= {"target_forward_passes": 1, "ngram_lookup_hits": 1, "draft_forward_passes": 0}
    assert {name: statistics[name] for name in wanted} == wanted
    assert statistics["expected_tokens_per_round"] == 3


def test_texts_are_those_without_drafts(model: Any, drafted: Any) -> None:
    for one, options in ((model, {"ngram_size": 2, "ngram_chained_lookup": True}), (drafted, {"min_adaptive_k": 2})):
        generator = generator_of(one, [3, 3], **options)
        plain = generator_of(one, [3, 3], max_draft_tokens=1)
        assert finish(generator) == finish(plain)
        check_counts(generator.get_speculative_stats())


def test_a_wrong_draft_gives_the_model_s_own_token(drafted: Any) -> None:
    generator = generator_of(drafted, [3] * 6)
    generator.generate_next_token()
    statistics = generator.get_speculative_stats()
    assert (statistics["draft_tokens_proposed"], statistics["draft_tokens_accepted"]) == (4, 2)
    assert (statistics["correction_tokens"], statistics["draft_forward_passes"]) == (1, 4)
    assert finish(generator) == [3] * 20


def test_what_interrupts_a_round_discards_its_tokens(model: Any) -> None:
    def begin() -> Any:
        generator = generator_of(model, CYCLE, ngram_size=3)
        generator.generate_next_token()
        return generator

    for interrupt in (
        lambda generator: generator.append_tokens([7, 1]),
        lambda generator: generator.rewind_to(4),
        lambda generator: generator.set_logits(generator.get_logits()),
    ):
        generator = begin()
        before = generator.get_speculative_stats()
        interrupt(generator)
        statistics = generator.get_speculative_stats()
        check_counts(statistics)
        assert (statistics["interrupted_rounds"], statistics["active_rounds"]) == (1, 0)
        assert statistics["tokens_discarded"] == before["tokens_buffered"] == 2
    generator = begin()
    generator.append_tokens([7, 1])
    assert finish(generator) == [*CYCLE, 1, 7, *([1, 2] * 7)]


def test_logits_may_be_read_and_set_within_a_round(model: Any) -> None:
    generator = generator_of(model, CYCLE, ngram_size=3)
    generator.generate_next_token()
    logits = generator.get_logits()
    assert np.argmax(logits) == 2
    np.testing.assert_array_equal(generator.get_logits(), logits)
    forced = np.full_like(logits, -100)
    forced[0, 0, 7] = 100
    generator.set_logits(forced)
    generator.generate_next_token()
    assert finish(generator)[:8] == [*CYCLE, 1, 7, 1, 2]


def test_drawn_tokens_are_those_without_lookups(tmp_path: Path) -> None:
    table = np.zeros((WORDS, WORDS), np.float32)
    table[:, 9] = -20
    model = og.Model(str(write_table_folder(tmp_path / "even", table)))
    for seed in range(3):
        search = {"do_sample": True, "top_k": 4, "random_seed": seed}
        drawn = [finish(generator_of(model, CYCLE, search, ngram_size=size)) for size in (0, 2)]
        assert drawn[0] == drawn[1]


def test_an_end_within_a_round_discards_the_rest(tmp_path: Path) -> None:
    model = og.Model(str(write_table_folder(tmp_path / "end", table_of({2: 9, 9: 5}))))
    generator = generator_of(model, [1, 2, 9, 4, 1, 2], ngram_size=3)
    assert finish(generator) == [1, 2, 9, 4, 1, 2]
    statistics = generator.get_speculative_stats()
    check_counts(statistics)
    assert (statistics["tokens_emitted"], statistics["interrupted_rounds"]) == (0, 1)


def test_no_round_crosses_the_length_at_which_phi_3_reads_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(speculation._BOUNDARIES, "phi3", 8)
    model = og.Model(str(write_table_folder(tmp_path / "phi", table_of({1: 2, 2: 1}), kind="phi3")))
    generator = generator_of(model, [*CYCLE, 1], ngram_size=2, ngram_chained_lookup=True)
    assert finish(generator) == [1, 2] * 10
    check_counts(generator.get_speculative_stats())


def test_options_have_defaults_and_are_checked(model: Any) -> None:
    params = og.GeneratorParams(model)
    defaults = {"max_draft_tokens": 4, "ngram_size": 0, "ngram_chained_lookup": False, "min_adaptive_k": 0}
    assert params.get_speculative_options() == {**defaults, "cooldown": False}
    params.set_speculative_options(max_draft_tokens=6, cooldown=True)
    assert params.get_speculative_options() == {**defaults, "max_draft_tokens": 6, "cooldown": True}
    for options, message in (
        ({"max_draft_tokens": 17}, "speculative.max_draft_tokens must be an integer from 1 to 16; got 17"),
        ({"ngram_size": 1}, "speculative.ngram_size must be 0, or an integer from 2 to 16; got 1"),
        ({"min_adaptive_k": 1.5}, "speculative.min_adaptive_k must be an integer from 0 to 16; got 1.5"),
        ({"cooldown": 2}, "speculative.cooldown must be True or False; got 2"),
        ({"max_draft_tokens": True}, "speculative.max_draft_tokens must be a number; got True"),
        ({"adaptive_k": True}, "speculative.adaptive_k must be an option of GenAI's speculative decoding"),
    ):
        with refuses(message, Refusal):
            params.set_speculative_options(**options)
    assert not any(generator_of(model, CYCLE).get_speculative_stats().values())


@pytest.mark.parametrize(
    ("options", "search", "message"),
    [
        ({"ngram_chained_lookup": True}, {}, "speculative.ngram_chained_lookup requires speculative.ngram_size"),
        ({"ngram_size": 3}, {"batch_size": 2}, "N-gram decoding requires batch_size=1; got 2"),
    ],
)
def test_lookups_are_refused(model: Any, options: Any, search: Any, message: str) -> None:
    with refuses(message, Refusal):
        generator_of(model, CYCLE, search, **options)


def test_folders_without_all_rows_or_with_a_draft_have_no_lookups(drafted: Any, tmp_path: Path) -> None:
    pruned = og.Model(str(write_table_folder(tmp_path / "pruned", table_of({}), of_last=True)))
    for model, message in ((pruned, "pruned last-token-only logits"), (drafted, "cannot be combined with draft-model")):
        with refuses(message, Refusal):
            generator_of(model, CYCLE, ngram_size=3)
    with refuses("Speculative decoding does not support no_repeat_ngram_size != 0; got 2", Refusal):
        generator_of(drafted, CYCLE, {"no_repeat_ngram_size": 2})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["model"].update(draft={}), "model.draft.filename is not set in genai_config.json"),
        (lambda content: content["model"].update(vision={}), "multimodal (vision/audio) models"),
        (lambda content: content["model"]["decoder"].update(layer_types=["conv"]), "LFM2 (hybrid SSM/attention)"),
        (
            lambda content: content["model"]["draft"].update(sliding_window={"slide_key_value_cache": True}),
            "physically sliding KV caches",
        ),
        (
            lambda content: content["model"]["draft"].update(outputs={"logits": "scores"}),
            "Draft logits output 'scores' was not found in the ONNX model",
        ),
        (lambda content: content.update(speculative={"min_adaptive_k": -1}), "speculative.min_adaptive_k must be"),
        (lambda content: content.update(speculative=3), "speculative must be an object; got 3"),
    ],
)
def test_folders_that_draft_are_checked(tmp_path: Path, change: Callable[[Any], Any], message: str) -> None:
    folder = write_table_folder(tmp_path / "folder", table_of({}), draft=table_proto(table_of({})))
    content = json.loads((folder / "genai_config.json").read_text())
    change(content)
    (folder / "genai_config.json").write_text(json.dumps(content))
    with refuses(message, Refusal):
        og.Model(str(folder))


def test_drafts_must_have_as_many_tokens(tmp_path: Path) -> None:
    wider = np.zeros((WORDS, WORDS + 1), np.float32)
    draft = table_proto(wider)
    draft.graph.output[0].type.tensor_type.shape.dim[2].dim_value = WORDS + 1
    with refuses(f"Target vocab: {WORDS}, Draft vocab: {WORDS + 1}", Refusal):
        og.Model(str(write_table_folder(tmp_path / "folder", table_of({}), draft=draft)))
