"""Searches with beams, beside a search in plain Python with the logits of ONNX Runtime."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL, GATE, few_of, mesh_of, refuses
from jax.sharding import AxisType
from scipy.special import log_softmax
from small_language_models import END, SHORT, VOCABULARY, Reference, language_proto, write_folder

from dmljax.onnx import LanguageModel, language_model

PROMPT, OTHER = [5, 11, 40, 7, 23], [9, 30, 17]
ENDS = [END, *range(20, 40)]  # so many that sequences end soon


def folder_of(folder: Path, ends: Any, **options: Any) -> Path:
    path = write_folder(folder, **options) / "genai_config.json"
    configuration = json.loads(path.read_text())
    configuration["model"]["eos_token_id"] = ends
    path.write_text(json.dumps(configuration))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return language_model(folder_of(tmp_path_factory.mktemp("model"), ENDS))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(language_proto())


def search(
    reference: Reference,
    prompt: list[int],
    beams: int,
    max_length: int,
    *,
    ends: Any = tuple(ENDS),
    length_penalty: float = 1.0,
    early_stopping: bool = True,
    min_length: int = 0,
) -> list[list[int]]:
    """The best sequences, from the likeliest to the least likely."""
    growing, ended = [(0.0, prompt)], list[tuple[float, list[int]]]()

    def add(score: float, tokens: list[int]) -> None:
        ended.append((score / len(tokens) ** length_penalty, tokens))
        ended.sort(key=lambda entry: -entry[0])
        del ended[beams:]

    while len(growing[0][1]) < max_length:
        candidates = []
        for score, tokens in growing:
            logits = np.array(reference.logits(tokens)[-1], np.float64)
            if len(tokens) < min_length:
                logits[[*ends]] = -np.inf
            candidates += [(score + more, tokens, token) for token, more in enumerate(log_softmax(logits))]
        candidates.sort(key=lambda candidate: -candidate[0])
        for score, tokens, token in candidates[:beams]:
            if token in ends:
                add(score, tokens)
        growing = [(score, [*tokens, token]) for score, tokens, token in candidates if token not in ends][:beams]
        best = candidates[0][0] / len(candidates[0][1]) ** length_penalty
        if len(ended) == beams and (early_stopping or ended[-1][0] >= best):
            return [tokens for _, tokens in ended]
    for score, tokens in growing:
        add(score, tokens)
    return [tokens for _, tokens in ended]


CASES: list[dict[str, Any]] = [
    {},
    {"early_stopping": False},
    {"early_stopping": False, "length_penalty": 2.0},
    {"length_penalty": -1.5, "min_length": 9},
]


@pytest.mark.parametrize("options", few_of(CASES, CASES[2]), ids=str)
@pytest.mark.parametrize("beams", few_of([2, 5], 5))
def test_beams_are_the_likeliest_sequences(
    model: LanguageModel, reference: Reference, beams: int, options: dict[str, Any]
) -> None:
    found = model.generate([PROMPT, OTHER], max_length=14, num_beams=beams, num_return_sequences=beams, **options)
    expected = [search(reference, prompt, beams, 14, **options) for prompt in (PROMPT, OTHER)]
    assert found == [*itertools.chain(*expected)]


@GATE
def test_as_many_beams_as_tokens_find_the_likeliest_pair(tmp_path: Path, reference: Reference) -> None:
    model = language_model(folder_of(tmp_path, END))
    pairs: dict[tuple[int, int], float] = {}
    first = log_softmax(reference.logits(OTHER)[-1])
    for token in range(VOCABULARY):
        second = log_softmax(reference.logits([*OTHER, token])[-1])
        pairs |= {(token, other): first[token] + second[other] for other in range(VOCABULARY)}
    likeliest = max((pair for pair in pairs if END not in pair), key=pairs.__getitem__)
    found = model.generate(OTHER, max_length=5, min_length=5, num_beams=VOCABULARY)
    assert found == [*OTHER, *likeliest]


def test_one_sequence_of_each_prompt_has_the_form_of_the_prompts(model: LanguageModel) -> None:
    options: Any = {"max_length": 14, "num_beams": 5, **CASES[2]}
    several = model.generate([PROMPT, OTHER], num_return_sequences=5, **options)
    assert model.generate([PROMPT, OTHER], **options) == several[::5]


@GATE
def test_sequences_of_one_prompt_are_a_list(model: LanguageModel) -> None:
    several = model.generate(PROMPT, max_length=12, num_beams=3, num_return_sequences=3)
    assert [len(several), several[0]] == [3, model.generate(PROMPT, max_length=12, num_beams=3)]


@FULL
@pytest.mark.parametrize("options", [{"has_state": True}, {"has_tables": True}], ids=str)
def test_beams_take_states_and_become_long(tmp_path: Path, options: dict[str, Any]) -> None:
    model, reference = language_model(folder_of(tmp_path, END, **options)), Reference(language_proto(**options))
    limits: Any = {"max_length": SHORT + 3, "min_length": SHORT + 3}
    expected = search(reference, PROMPT, 3, SHORT + 3, ends=[END], min_length=SHORT + 3)
    assert model.generate(PROMPT, num_beams=3, num_return_sequences=3, **limits) == expected


@GATE
def test_a_search_is_traced_and_follows_a_state(model: LanguageModel) -> None:
    def find(prompts: Any) -> Any:
        return model.generate(prompts, max_length=12, num_beams=3, num_return_sequences=2)

    expected = find([PROMPT, PROMPT[::-1]])
    traced = jax.jit(find)(jnp.array([PROMPT, PROMPT[::-1]]))
    assert [row[: len(tokens)].tolist() for row, tokens in zip(traced, expected, strict=True)] == expected
    state = model.start([PROMPT[:2], PROMPT[::-1][:2]], max_length=12)
    rests: Any = [PROMPT[2:], PROMPT[::-1][2:]]
    assert model.generate(rests, state=state, num_beams=3, num_return_sequences=2) == expected


@FULL
def test_devices_divide_beams(model: LanguageModel) -> None:
    prompts: Any = [PROMPT, OTHER]
    options: Any = {"max_length": 12, "num_beams": 4, "num_return_sequences": 4}
    weights = model.shard(mesh_of(AxisType.Explicit, data=4, model=2))
    assert model.generate(prompts, weights=weights, **options) == model.generate(prompts, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.generate(PROMPT, num_beams=0), "num_beams must be an integer from 1 to 2147483647"),
        (
            lambda m: m.generate(PROMPT, num_beams=2, num_return_sequences=3),
            "num_return_sequences must be at most 2, which is num_beams; got 3",
        ),
        (
            lambda m: m.generate(PROMPT, length_penalty=2.0),
            "length_penalty: has no effect without num_beams; got 2.0 (num_beams=4 keeps four sequences)",
        ),
        (
            lambda m: m.generate(PROMPT, num_beams=2, do_sample=True, key=jax.random.key(0)),
            "do_sample: not supported with beams, which take the likeliest tokens (num_beams=1)",
        ),
        (lambda m: m.stream(PROMPT, num_beams=2), "num_beams must be 1 for a call that gives tokens as they come"),
        (lambda m: m.generate(PROMPT, num_beams=2, draft=3), "num_beams must be 1 for a call that drafts tokens"),
        (
            lambda m: m.generate(PROMPT, num_beam_groups=2),
            "beams form no groups: num_beams=4 keeps the four best",
        ),
    ],
)
def test_wrong_calls_are_refused(model: LanguageModel, call: Callable[[Any], Any], message: str) -> None:
    with refuses(message):
        call(model)
