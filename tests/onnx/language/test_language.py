"""Language models in the format of ONNX Runtime GenAI, beside ONNX Runtime."""

import itertools
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import FULL, GATE, assert_same_bits, few_of, mesh_of, refuses
from jax.sharding import AxisType, PartitionSpec as P
from onnx import TensorProto, helper, numpy_helper, parser
from small_language_models import (
    CONFIGURATION,
    CONTEXT,
    END,
    HIDDEN,
    LAYERS,
    SHORT,
    VOCABULARY,
    Reference,
    language_proto,
    write_folder,
)

from dmljax.errors import Unsupported
from dmljax.lowerings.attention import dot_product
from dmljax.onnx import LanguageModel, language_model, load
from dmljax.onnx.language.generation import generation_programs

PROMPT, OTHER = [5, 11, 40, 7, 23], [9, 30, 17]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return language_model(folder)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(language_proto())


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return language_model(write_folder(tmp_path_factory.mktemp("stateful"), has_state=True))


@pytest.fixture(scope="module")
def stateful_reference() -> Reference:
    return Reference(language_proto(has_state=True))


ENDLESS: Any = {"max_length": 20, "min_length": 20}


def check_greedy_tokens(model: LanguageModel, reference: Reference) -> None:
    """Compares the tokens that `generate` would choose; reading them at once takes half the compilations."""
    tokens = reference.greedy(PROMPT, 20)
    assert np.argmax(model.logits(tokens[:-1]), -1).tolist()[len(PROMPT) - 1 :] == tokens[len(PROMPT) :]


def test_layers_and_states_that_a_configuration_does_not_name_are_found(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "state", has_state=True)
    proto = onnx.load(folder / "model.onnx")
    renamed = {f"past.{LAYERS}.conv": f"past_key_values.{LAYERS}.conv_state"}
    renamed |= {f"present.{LAYERS}.conv": f"present.{LAYERS}.conv_state"}
    for names in (names for node in proto.graph.node for names in (node.input, node.output)):
        names[:] = [renamed.get(name, name) for name in names]
    for tensor in (*proto.graph.input, *proto.graph.output):
        tensor.name = renamed.get(tensor.name, tensor.name)
    onnx.save(proto, folder / "model.onnx")
    configuration = json.loads((folder / "genai_config.json").read_text())
    configuration["model"]["decoder"]["num_hidden_layers"] = 1
    (folder / "genai_config.json").write_text(json.dumps(configuration))
    model = language_model(folder)
    assert model.settings.layers == LAYERS + 1
    assert {*model.decoder.batch_axes} == {f"past_key_values.{LAYERS}.conv_state"}


def test_greedy_tokens_equal_onnxruntimes(model: LanguageModel, reference: Reference) -> None:
    assert model.generate(PROMPT, **ENDLESS) == reference.greedy(PROMPT, 20)


def test_prompts_of_a_batch_may_have_different_lengths(model: LanguageModel, reference: Reference) -> None:
    prompts = [PROMPT[::-1] + OTHER, OTHER]
    assert model.generate(prompts, **ENDLESS) == [reference.greedy(prompt, 20) for prompt in prompts]


@FULL
def test_padding_does_not_change_states(stateful: LanguageModel, stateful_reference: Reference) -> None:
    prompts = [PROMPT, OTHER]
    expected = [stateful_reference.greedy(prompt, 20) for prompt in prompts]
    assert stateful.generate(prompts, **ENDLESS) == expected
    for actual, prompt in zip(stateful.logits(prompts), prompts, strict=True):
        np.testing.assert_allclose(actual, stateful_reference.logits(prompt), rtol=1e-4, atol=1e-4)


@pytest.fixture(params=few_of(["gpu", "tpu"], "gpu"))
def kernels_for(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, lower_for: Callable[[str], None]
) -> Callable[[], None]:
    """When called, makes later calls use a chip's kernels of attention."""
    monkeypatch.setattr(dot_product, "_FEWEST_IN_KERNELS", 2)
    return lambda: lower_for(request.param)


@GATE
def test_kernels_read_prompts_of_different_lengths(folder: Path, kernels_for: Callable[[], None]) -> None:
    prompts = [PROMPT * 3 + OTHER, OTHER]
    expected = language_model(folder).logits(prompts)
    kernels_for()
    for actual, reference in zip(language_model(folder).logits(prompts), expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=2e-5, atol=2e-5)


WITH_LEFT_PADDING = """
<ir_version: 10, opset_import: ["": 21]>
f (float[batch, 2, n, 8] q, float[batch, 2, n, 8] k, float[batch, 2, n, 8] v, float[batch, n] mask)
    => (float[batch, 2, n, 8] y)
<float one = {1}, float zero = {0}, float low = {-10000}, float lowest = {-3.4028235e38}, int64[2] axes = {1, 2}> {
    sizes = Shape <start = 2, end = 3> (q)
    square = Concat <axis = 0> (sizes, sizes)
    ones = Expand (one, square)
    seen = Trilu <upper = 0> (ones)
    is_hidden = Equal (seen, zero)
    causal = Where (is_hidden, low, zero)
    rest = Sub (one, mask)
    hidden = Mul (rest, lowest)
    padding = Unsqueeze (hidden, axes)
    keys = Transpose <perm = [0, 1, 3, 2]> (k)
    products = MatMul (q, keys)
    of_past = Add (products, causal)
    scores = Add (of_past, padding)
    probs = Softmax <axis = -1> (scores)
    y = MatMul (probs, v)
}
"""


@GATE
def test_kernels_read_batches_with_padding_on_the_left(kernels_for: Callable[[], None]) -> None:
    """Queries of padding see keys after their own, because -10,000 hides those less than padding is hidden."""
    model = load(parser.parse_model(WITH_LEFT_PADDING))
    random = np.random.default_rng(0)
    inputs = [random.integers(-4, 5, (2, 2, 256, 8)).astype(np.float32) / 4 for _ in range(3)]
    mask = (np.arange(256) >= np.array([[0], [200]])).astype(np.float32)
    expected = model(*inputs, mask)
    kernels_for()
    np.testing.assert_allclose(model(*inputs, mask), expected, rtol=2e-5, atol=2e-5)


@GATE
def test_finished_sequences_keep_their_states(stateful: LanguageModel, stateful_reference: Reference) -> None:
    read = stateful.start([PROMPT + OTHER, OTHER], max_length=20)
    shorter = stateful.stream(state=read, max_length=len(PROMPT + OTHER) + 1, min_length=20)
    assert len(list(shorter)) == len(PROMPT) + 1, "the first sequence is over after one token, the second goes on"
    longer = stateful.generate(state=shorter.state, **ENDLESS)
    assert longer == [stateful_reference.greedy(prompt, 20) for prompt in (PROMPT + OTHER, OTHER)]


@pytest.mark.parametrize("dtype", few_of(["int4", "uint4"], "uint4"))  # the next test has int4
@GATE
def test_weights_of_4_bits_are_packed_and_saved_as_they_were(dtype: str, tmp_path: Path) -> None:
    proto = language_proto(dequantized=np.dtype(dtype))
    folder = write_folder(tmp_path / "model", dequantized=np.dtype(dtype))
    model = language_model(folder)
    check_greedy_tokens(model, Reference(proto))
    packed = {name: x for name, x in model.weights.items() if name.endswith(".codes.codes")}
    assert {x.dtype.name for x in packed.values()} == {"uint8"}
    in_file = {x.name: numpy_helper.to_array(x) for x in proto.graph.initializer}
    assert sum(x.nbytes for x in packed.values()) == sum(in_file[name[:-6]].size for name in packed) / 2
    model.model.save(tmp_path / "saved.onnx")
    for x in onnx.load(tmp_path / "saved.onnx").graph.initializer:
        assert_same_bits(numpy_helper.to_array(x), in_file[x.name])


@GATE
def test_only_weights_that_nothing_else_reads_are_packed(tmp_path: Path) -> None:
    proto = language_proto(dequantized=np.dtype("int4"))
    proto.graph.node.add(op_type="Identity", input=["0.q.weight"], output=["copy"])
    for node in proto.graph.node:
        if list(node.output) == ["0.k.weight"]:
            node.attribute[1].i = 8  # MatMulNBits has blocks of at least 16
    folder = write_folder(tmp_path / "model")
    for x in proto.graph.initializer:
        if x.name == "0.k.scales":
            x.CopyFrom(numpy_helper.from_array(np.repeat(numpy_helper.to_array(x), 2, 0), x.name))
    onnx.save(proto, folder / "model.onnx")
    model = language_model(folder)
    check_greedy_tokens(model, Reference(proto))
    kinds = {name: x.dtype.name for name, x in model.weights.items() if ".codes" in name}
    assert {name for name, kind in kinds.items() if kind == "int4"} == {"0.q.codes", "0.k.codes"}
    assert kinds["0.v.codes.codes"] == "uint8"


@pytest.fixture(scope="module")
def tabled(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("tabled")
    return language_model(write_folder(folder, has_positions=False, has_tables=True))


@pytest.fixture(scope="module")
def tabled_reference() -> Reference:
    return Reference(language_proto(has_positions=False, has_tables=True))


LONG = [*range(3, 3 + SHORT), *OTHER]


@GATE
def test_a_model_chooses_angles_by_the_length_of_each_sequence(
    tabled: LanguageModel, tabled_reference: Reference
) -> None:
    prompts, most = [PROMPT, LONG[: SHORT - 1], LONG], SHORT + 8
    assert len(LONG) > SHORT
    # The second becomes long while it grows, as does the first: its tokens are then read again.
    assert tabled.generate(prompts, max_length=most, min_length=most) == [
        tabled_reference.greedy(prompt, most) for prompt in prompts
    ]
    for actual, prompt in zip(tabled.logits(prompts), prompts, strict=True):
        np.testing.assert_allclose(actual, tabled_reference.logits(prompt), rtol=1e-4, atol=1e-4)


@GATE
def test_a_conversation_that_becomes_long_is_read_again(tabled: LanguageModel, tabled_reference: Reference) -> None:
    read = tabled.start([PROMPT, LONG[:4]], max_length=SHORT + 8)
    longer = tabled.start([LONG, OTHER], state=read)
    for logits, tokens in zip(longer.logits, ([*PROMPT, *LONG], [*LONG[:4], *OTHER]), strict=True):
        np.testing.assert_allclose(logits, tabled_reference.logits(tokens)[-1], rtol=1e-4, atol=1e-4)


@FULL
def test_a_stream_goes_on_when_a_sequence_becomes_long(tabled: LanguageModel, tabled_reference: Reference) -> None:
    most = SHORT + 4
    stream = tabled.stream(PROMPT, max_length=most, min_length=most, block=3)
    assert [*PROMPT, *stream] == tabled_reference.greedy(PROMPT, most)
    np.testing.assert_allclose(stream.logits[0], tabled_reference.logits(stream.state.tokens[0].tolist())[-1], 1e-3)


def test_other_choices_by_the_length_of_the_mask_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", has_positions=False, has_tables=True)
    proto = onnx.load(folder / "model.onnx")
    next(node for node in proto.graph.node if node.op_type == "Greater").op_type = "GreaterOrEqual"
    onnx.save(proto, folder / "model.onnx")
    rule = "must choose the angles of GroupQueryAttention, by whether the mask is longer than a number"
    with pytest.raises(Unsupported, match=rule):
        language_model(folder)


def test_a_prompt_multiplies_only_its_last_token_by_the_vocabulary(model: LanguageModel) -> None:
    reading, _ = generation_programs(model.decoder, batch=2, prompt=CONTEXT, room=CONTEXT)
    text = jax.jit(reading.function).lower(model.weights, *reading.inputs).as_text()
    assert f"2x{CONTEXT}x{HIDDEN}xf32" in text
    assert f"2x{CONTEXT}x{VOCABULARY}xf32" not in text


@pytest.mark.parametrize("options", [{"of_last": True}, pytest.param({"softcap": 3.0}, marks=FULL)])
@GATE
def test_logits_of_last_tokens_follow_any_ending(tmp_path: Path, options: dict[str, Any]) -> None:
    ending = language_model(write_folder(tmp_path / "model", **options))
    reference = Reference(language_proto(**{**options, "of_last": False}))
    for actual, prompt in zip(ending.start([PROMPT, OTHER]).logits, (PROMPT, OTHER), strict=True):
        np.testing.assert_allclose(actual, reference.logits(prompt)[-1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ending.logits(PROMPT), reference.logits(PROMPT), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_tables", [False, pytest.param(True, marks=FULL)])
@GATE
def test_nan_in_padding_reaches_no_token(tmp_path: Path, reference: Reference, has_tables: bool) -> None:
    options: dict[str, Any] = {"has_tables": has_tables, "has_positions": not has_tables}
    padded = language_model(write_folder(tmp_path / "model", padding=np.nan, **options))
    expected_model = Reference(language_proto(**options)) if has_tables else reference
    first = padded.start([PROMPT + OTHER, OTHER], max_length=40)
    second = padded.start([OTHER, PROMPT + OTHER], state=first)
    expected = [[*PROMPT, *OTHER, *OTHER], [*OTHER, *PROMPT, *OTHER]]
    for logits, tokens in zip(second.logits, expected, strict=True):
        np.testing.assert_allclose(logits, expected_model.logits(tokens)[-1], rtol=1e-4, atol=1e-4)
    assert padded.generate(state=second, **ENDLESS) == [expected_model.greedy(prompt, 20) for prompt in expected]
    assert all(np.isfinite(x).all() for x in second.caches.values())


@FULL
def test_a_model_without_positions_counts_them(tmp_path: Path, reference: Reference) -> None:
    counting = language_model(write_folder(tmp_path / "model", has_positions=False))
    assert counting.generate([PROMPT, OTHER], **ENDLESS) == [reference.greedy(prompt, 20) for prompt in (PROMPT, OTHER)]


@FULL
def test_a_prompt_may_fill_the_context(model: LanguageModel, reference: Reference) -> None:
    prompt = [3 + i % 40 for i in range(CONTEXT - 2)]
    assert model.generate(prompt, min_length=CONTEXT) == reference.greedy(prompt, CONTEXT)
    assert model.generate(prompt, max_length=len(prompt)) == prompt


@GATE
def test_logits_equal_onnxruntimes(model: LanguageModel, reference: Reference) -> None:
    np.testing.assert_allclose(model.logits(PROMPT), reference.logits(PROMPT), rtol=1e-4, atol=1e-4)
    for actual, prompt in zip(model.logits([PROMPT, OTHER]), (PROMPT, OTHER), strict=True):
        np.testing.assert_allclose(actual, reference.logits(prompt), rtol=1e-4, atol=1e-4)


@GATE
def test_later_calls_compile_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = language_model(folder)
    calls: list[Any] = []
    called = model.decoder.run_decoder

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return called(*arguments)

    monkeypatch.setitem(vars(model.decoder), "run_decoder", counted)
    prompts = [PROMPT * 4, OTHER * 9, PROMPT * 5 + OTHER]  # of 20 to 28 tokens
    model.generate(prompts[0], max_length=40)
    assert len(calls) == 2  # a prompt, and the loop
    model.generate(prompts[1], max_length=40)
    [*model.stream(prompts[2], max_length=40, block=3)]
    assert len(calls) == 2
    numbers: Any = {"do_sample": True, "key": jax.random.key(0), "max_length": 40}
    model.generate(prompts[0], temperature=0.5, top_p=0.9, **numbers)
    assert len(calls) == 3
    model.generate(prompts[0], temperature=0.7, top_p=0.8, **numbers)
    assert len(calls) == 3


# Streams and states


@pytest.mark.parametrize("block", few_of([1, 4, 50], 4))
def test_a_stream_yields_the_tokens_one_by_one(model: LanguageModel, block: int) -> None:
    assert [*model.stream(PROMPT, block=block, **ENDLESS)] == model.generate(PROMPT, **ENDLESS)[len(PROMPT) :]


@GATE
def test_a_stream_yields_none_for_sequences_that_ended(model: LanguageModel) -> None:
    prompts = [PROMPT, OTHER]
    steps = [*model.stream(prompts, **ENDLESS)]
    columns = [[token for token in column if token is not None] for column in zip(*steps, strict=True)]
    assert [a + b for a, b in zip(prompts, columns, strict=True)] == model.generate(prompts, **ENDLESS)
    assert steps[-1][0] is None


def test_a_conversation_goes_on(model: LanguageModel) -> None:
    expected = model.generate(PROMPT + OTHER, **ENDLESS)
    state = model.start(PROMPT, max_length=20)
    assert model.generate(OTHER, state=state, min_length=20) == expected
    assert model.generate(OTHER, state=state, min_length=20) == expected  # a fork: the state stays as it is
    assert model.generate(state=state, min_length=20) == model.generate(PROMPT, **ENDLESS)
    both = model.start(OTHER, state=state)
    assert both.tokens[0, : len(PROMPT + OTHER)].tolist() == PROMPT + OTHER
    assert model.generate(state=both, min_length=20) == expected


@GATE
def test_the_sequences_of_a_state_may_differ_in_length(model: LanguageModel) -> None:
    long, short = (PROMPT * 3)[:13], OTHER[:1]
    state = model.start([long, short], max_length=20)
    more = [[], PROMPT + OTHER + PROMPT]  # its padding would pass the end of the longer one
    expected = [model.generate(a + b, **ENDLESS) for a, b in zip((long, short), more, strict=True)]
    assert model.generate(more, state=state, min_length=20) == expected


def test_a_state_is_a_tree_of_arrays(model: LanguageModel) -> None:
    state = model.start(PROMPT, max_length=20)
    kept = jax.tree.map(np.asarray, state)
    assert model.generate(state=kept, min_length=20) == model.generate(PROMPT, **ENDLESS)
    chex.assert_trees_all_equal(kept, jax.tree.map(np.asarray, state))


# The search


def test_an_end_token_ends_a_sequence(folder: Path, tmp_path: Path, reference: Reference) -> None:
    greedy = reference.greedy(PROMPT, 20)
    end = greedy[8]
    changed = json.loads((folder / "genai_config.json").read_text())
    changed["model"]["eos_token_id"] = end
    (tmp_path / "genai_config.json").write_text(json.dumps(changed))
    (tmp_path / "model.onnx").symlink_to(folder / "model.onnx")
    ended, other = language_model(tmp_path).generate([PROMPT, OTHER], max_length=20)
    place = greedy.index(end, len(PROMPT))
    assert ended == greedy[: place + 1]
    whole = reference.greedy(OTHER, 20)
    assert other == whole[: whole.index(end) + 1 if end in whole[len(OTHER) :] else 20]


@GATE
def test_draws_are_reproducible(model: LanguageModel) -> None:
    draw: Any = {"do_sample": True, "top_k": 0, **ENDLESS}
    first, again, other = (model.generate(PROMPT, key=jax.random.key(i), **draw) for i in (0, 0, 1))
    assert first == again
    assert first != other


NARROW: list[dict[str, Any]] = [{"top_k": 1}, {"top_k": 0, "top_p": 1e-50}, {"top_k": 0, "temperature": 1e-6}]


@FULL
@pytest.mark.parametrize("narrow", NARROW, ids=str)
def test_a_narrow_draw_is_greedy(model: LanguageModel, narrow: dict[str, Any]) -> None:
    drawn = model.generate(PROMPT, do_sample=True, key=jax.random.key(0), **narrow, **ENDLESS)
    assert drawn == model.generate(PROMPT, **ENDLESS)


def likeliest(logits: Any, temperature: float, top_k: int, top_p: float) -> Any:
    """The probability of each token."""
    powers = np.exp(logits / temperature - np.max(logits / temperature))
    order = np.argsort(-powers)[: top_k or None]
    shares = powers[order] / powers[order].sum()
    kept = order[: int(np.searchsorted(np.cumsum(shares), top_p) + 1)]
    result = np.zeros(VOCABULARY)
    result[kept] = powers[kept] / powers[kept].sum()
    return result


@GATE
def test_tokens_are_drawn_by_their_probabilities(model: LanguageModel, reference: Reference) -> None:
    search: Any = {"temperature": 2.0, "top_k": 8, "top_p": 0.4}
    count = 1000
    drawn = model.generate(
        [OTHER] * count, do_sample=True, key=jax.random.key(3), max_length=len(OTHER) + 1, min_length=20, **search
    )
    logits = reference.logits(OTHER)[-1]
    logits[END] = -np.inf
    shares = np.bincount([row[-1] for row in drawn], minlength=VOCABULARY) / count
    np.testing.assert_allclose(shares, likeliest(logits, **search), atol=5 * 0.5 / np.sqrt(count))


@FULL
def test_earlier_tokens_are_penalized(model: LanguageModel, reference: Reference) -> None:
    def penalized(tokens: list[int]) -> int:
        logits = reference.logits(tokens)[-1]
        logits[END] = -np.inf
        for token in {*tokens}:
            logits[token] *= 2.5 if logits[token] < 0 else 1 / 2.5
        return int(np.argmax(logits))

    expected = [*PROMPT]
    while len(expected) < 20:
        expected.append(penalized(expected))
    assert model.generate(PROMPT, repetition_penalty=2.5, **ENDLESS) == expected


NGRAMS: list[dict[str, Any]] = [
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3, "repetition_penalty": 0.5},
    {"no_repeat_ngram_size": 19},
    {"no_repeat_ngram_size": 2**31 - 1},
]


def repeated(tokens: list[int], size: int) -> list[int]:
    """The tokens that would complete `size` tokens again."""
    ngrams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return [last for *first, last in ngrams if first == tokens[len(tokens) - size + 1 :]]


def without_repetition(reference: Reference, tokens: list[int], options: dict[str, Any]) -> list[int]:
    while len(tokens) < 20:
        logits = reference.logits(tokens)[-1]
        present = [*{*tokens}]
        penalty = options.get("repetition_penalty", 1)
        logits[present] *= np.where(logits[present] < 0, penalty, 1 / penalty)
        logits[[END, *repeated(tokens, options["no_repeat_ngram_size"])]] = -np.inf
        tokens = [*tokens, int(np.argmax(logits))]
    return tokens


PROMPTS = [[5, 11, 5, 11, 5], [9, 30, 17, 9, 30, 17, 9, 30], OTHER[:1]]


@pytest.mark.parametrize("options", few_of(NGRAMS, NGRAMS[2]))
@GATE
def test_no_ngram_is_repeated(model: LanguageModel, reference: Reference, options: dict[str, Any]) -> None:
    expected = [without_repetition(reference, prompt, options) for prompt in PROMPTS]
    assert model.generate(PROMPTS, **options, **ENDLESS) == expected


@FULL
@pytest.mark.parametrize("options", NGRAMS)
def test_no_ngram_of_a_state_is_repeated(model: LanguageModel, options: dict[str, Any]) -> None:
    state = model.start([prompt[:1] for prompt in PROMPTS], max_length=20)
    drawing: Any = {"do_sample": True, "temperature": 9.0, "key": jax.random.key(2), **options, **ENDLESS}
    drawn = model.generate([prompt[1:] for prompt in PROMPTS], state=state, **drawing)
    for prompt, row in zip(PROMPTS, drawn, strict=True):
        for end in range(len(prompt), 20):
            assert row[end] not in repeated(row[:end], options["no_repeat_ngram_size"])


# Transformations


@GATE
def test_generation_is_traced(model: LanguageModel) -> None:
    expected = model.generate(PROMPT, **ENDLESS)
    assert jax.jit(lambda tokens: model.generate(tokens, **ENDLESS))(jnp.array(PROMPT)).tolist() == expected


@FULL
def test_generation_is_traced_with_weights_and_mapped(model: LanguageModel) -> None:
    options: Any = {"max_length": 20, "no_repeat_ngram_size": 2}
    generate = jax.jit(lambda tokens, weights: model.generate(tokens, weights=weights, **options))
    prompts = [[5, 11, 40, 7], [9, 30, 17, 40]]
    expected = [row + [0] * (20 - len(row)) for row in model.generate(prompts, **options)]
    assert generate(jnp.array(prompts), model.weights).tolist() == expected
    mapped = jax.vmap(lambda tokens: model.generate(tokens, **options))(jnp.array(prompts))
    assert mapped.tolist() == expected


@FULL
def test_all_methods_are_traced(model: LanguageModel, stateful: LanguageModel, tabled: LanguageModel) -> None:
    expected = model.generate(PROMPT, **ENDLESS)
    state = jax.jit(lambda tokens: model.start(tokens, max_length=20))(jnp.array(PROMPT))
    assert model.generate(state=state, **ENDLESS) == expected
    assert jax.jit(lambda state: model.generate(state=state, **ENDLESS))(state).tolist() == expected
    with_state = jax.jit(lambda tokens: model.generate(tokens, state=model.start(PROMPT[:1], max_length=20), **ENDLESS))
    with pytest.raises(Unsupported, match="state must not be an argument"):
        with_state(jnp.array(PROMPT[1:]))
    begun = model.start(PROMPT[:1], max_length=20)
    with_state = jax.jit(lambda tokens: model.generate(tokens, state=begun, **ENDLESS))
    assert with_state(jnp.array(PROMPT[1:])).tolist() == expected
    drawing: Any = {"do_sample": True, "temperature": 9.0, **ENDLESS}
    keys = jax.random.split(jax.random.key(3), 2)
    drawn = [model.generate(PROMPT, key=key, **drawing) for key in keys]
    assert jax.vmap(lambda key: model.generate(PROMPT, key=key, **drawing))(keys).tolist() == drawn
    assert jax.jit(lambda: model.generate([PROMPT, OTHER], **ENDLESS))().tolist() == model.generate(
        [PROMPT, OTHER], **ENDLESS
    )
    for other, options in ((stateful, ENDLESS), (tabled, {"max_length": SHORT, "min_length": SHORT})):
        generate = jax.jit(lambda tokens, other=other, options=options: other.generate(tokens, **options))
        assert generate(jnp.array(PROMPT)).tolist() == other.generate(PROMPT, **options)


TRACED: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda m, x: m.stream(x, max_length=20), "stream: not supported under jax.jit"),
    (
        lambda m, x: m.generate(x, max_length=4),
        "max_length must be more than 5, because it counts the tokens of the prompt; got 4",
    ),
    (lambda m, x: m.generate(x[None, None], max_length=20), "prompts must be integers of the shape (tokens,)"),
    (lambda m, x: m.generate(x[:0], max_length=20), "prompts must be integers of the shape (tokens,)"),
    (lambda m, x: m.generate(x / 2, max_length=20), "prompts must be integers of the shape (tokens,)"),
    (lambda m, x: m.generate([x, x], max_length=20), "prompts[0] must be a list of tokens"),
    (lambda m, x: m.generate([x[0]], max_length=20), "prompts[0] must be a list of tokens"),
    (lambda m, x: m.generate(x, max_length=x[0]), "max_length must be an integer from 1 to 64"),
    (lambda m, x: m.generate(x, temperature=x[0]), "temperature must be a number"),
    (lambda m, x: m.generate(x, images={}, max_length=20), "images: not supported with an array of tokens"),
    (lambda m, x: m.generate(x, state=x, max_length=20), "state must be a State"),
]


@pytest.mark.parametrize(("call", "message"), TRACED)
def test_calls_that_cannot_be_traced_are_refused(
    model: LanguageModel, call: Callable[[Any, Any], Any], message: str
) -> None:
    with refuses(message):
        jax.jit(partial(call, model))(jnp.array(PROMPT))


@FULL
def test_sequences_that_may_become_long_are_not_traced(tabled: LanguageModel) -> None:
    with refuses(f"max_length must be at most {SHORT} under jax.jit"):
        jax.jit(lambda tokens: tabled.generate(tokens, max_length=SHORT + 1))(jnp.array(PROMPT))


# Meshes


@pytest.mark.parametrize(
    "axis_type", few_of([AxisType.Auto, AxisType.Explicit], AxisType.Explicit), ids=lambda x: x.name
)
@GATE
def test_devices_divide_weights_caches_and_sequences(model: LanguageModel, axis_type: AxisType) -> None:
    mesh = mesh_of(axis_type, data=4, model=2)
    specs = model.partition(mesh)
    for layer in range(LAYERS):
        for name in ("q", "k", "v"):
            assert specs[f"{layer}.{name}.codes"] == specs[f"{layer}.{name}.scales"] == P("model")
        assert specs[f"{layer}.out.codes"] == P(None, "model")
    weights = model.shard(mesh)
    prompts = [PROMPT, OTHER, PROMPT[:2], OTHER[:3]]
    state = model.start(prompts, weights=weights)
    shardings: Any = jax.tree.map(lambda x: x.sharding.spec, state)
    assert (shardings.tokens, {*shardings.caches.values()}) == (P("data"), {P("data", "model")})
    expected = model.generate(prompts, **ENDLESS)
    assert model.generate(state=state, weights=weights, **ENDLESS) == expected
    # 4 devices do not divide one sequence.
    np.testing.assert_allclose(model.logits(PROMPT, weights=weights), model.logits(PROMPT), atol=1e-4)


@FULL
def test_sequences_that_devices_do_not_divide_are_replicated(model: LanguageModel) -> None:
    weights = model.shard(mesh_of(AxisType.Explicit, data=4, model=2))
    prompts = [PROMPT, OTHER]
    assert model.generate(prompts, weights=weights, **ENDLESS) == model.generate(prompts, **ENDLESS)


# Float types


def require_products_of_bfloat16() -> None:
    """Skips a test where plain JAX fails: JAX 0.8.0 on processors that multiply bfloat16; 0.8.3 and later do not."""
    queries, keys = jnp.ones((2, 2, 16, 16), jnp.bfloat16), jnp.ones((2, 16, 16), jnp.bfloat16)
    multiply = partial(jnp.einsum, "bhqd,bkd->bhqk", preferred_element_type=jnp.float32)
    try:
        jax.block_until_ready(jax.jit(multiply)(queries, keys))
    except jax.errors.JaxRuntimeError as error:
        pytest.skip(f"XLA: {error}")


@GATE
def test_a_model_computes_in_the_float_type_of_its_weights(folder: Path, model: LanguageModel) -> None:
    require_products_of_bfloat16()
    half = language_model(folder, dtype=jnp.bfloat16)
    assert {x.dtype for x in half.weights.values()} == {jnp.dtype(jnp.bfloat16), np.dtype(np.uint8)}
    state = half.start(PROMPT)
    assert {x.dtype for x in state.caches.values()} == {jnp.dtype(jnp.bfloat16)}
    np.testing.assert_allclose(half.logits(PROMPT), model.logits(PROMPT), rtol=0, atol=0.1)
    tokens = half.generate(state=state, max_length=12, min_length=12)
    assert (tokens[: len(PROMPT)], len(tokens)) == (PROMPT, 12)
    assert_same_bits(model.logits(PROMPT, weights=half.weights), half.logits(PROMPT))
    for wrong in (np.int8, "eighth"):
        with refuses(f"onnx: dtype must be a type of floats, such as jnp.bfloat16; got {wrong!r}"):
            language_model(folder, dtype=wrong)


def test_a_model_in_another_float_type_keeps_no_copy_in_the_files_type(folder: Path) -> None:
    before = {id(array) for array in jax.live_arrays()}
    half = language_model(folder, dtype=jnp.bfloat16)
    loaded = [array for array in jax.live_arrays() if id(array) not in before]
    assert sum(array.nbytes for array in loaded) <= 1.1 * sum(array.nbytes for array in half.weights.values())


def test_a_model_with_fewer_layers_generates(tmp_path: Path) -> None:
    short = language_model(write_folder(tmp_path, layers=3)).with_layers(2)
    assert (short.settings.layers, short.equal_layers) == (2, 2)
    assert len(short.generate(PROMPT, max_length=12, min_length=12)) == 12


@pytest.mark.parametrize("name", ["num_logits_to_keep", "onnx::Neg_67"])
def test_a_number_of_logits_to_keep_is_0(name: str, folder: Path, tmp_path: Path, model: LanguageModel) -> None:
    shutil.copytree(folder, tmp_path / "kept")
    proto = language_proto()
    nodes = proto.graph.node
    place = next(i for i, node in enumerate(nodes) if "logits" in node.output)
    rows, nodes[place].input[0] = nodes[place].input[0], "kept"
    nodes.insert(place, helper.make_node("Slice", [rows, "start", "limit", "places"], ["kept"]))
    nodes.insert(place, helper.make_node("Neg", [name], ["start"]))
    for constant, value in (("limit", 2**40), ("places", 1)):
        proto.graph.initializer.append(numpy_helper.from_array(np.array([value]), constant))
    proto.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, [1]))
    onnx.save(proto, tmp_path / "kept" / "model.onnx")
    kept = language_model(tmp_path / "kept")
    assert kept.generate(PROMPT, max_length=12) == model.generate(PROMPT, max_length=12)
    np.testing.assert_array_equal(kept.logits(PROMPT), model.logits(PROMPT))


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.generate(), "prompts must be given without state"),
        (lambda m: m.generate("hello"), "prompts must be a list of tokens, or a list of such lists; got 'hello'"),
        (lambda m: m.generate([]), "prompts must be a list of tokens"),
        (lambda m: m.generate([[1], 2]), "prompts[1] must be a list of tokens"),
        (lambda m: m.generate([1, 48]), "prompts[0] must have tokens from 0 to 47, the model's vocabulary; got 48"),
        (lambda m: m.generate([[1], []]), "prompts[1] must have at least one token; got none"),
        (
            lambda m: m.generate(PROMPT, max_length=4),
            "max_length must be more than 5, because it counts the tokens of the prompt; got 4",
        ),
        (lambda m: m.generate([3] * 64), "prompts must have fewer than 64 tokens, the model's context; got 64"),
        (lambda m: m.generate([PROMPT, [1] * 9], max_length=8), "prompts must leave at most max_length = 8 tokens"),
        (
            lambda m: m.generate(PROMPT, temperature=0.7),
            "temperature: has no effect without do_sample; got 0.7 (do_sample=True draws tokens)",
        ),
        (lambda m: m.stream(PROMPT, top_p=0.9, do_sample=False), "top_p: has no effect without do_sample; got 0.9"),
        (
            lambda m: m.generate(PROMPT, max_new_tokens=20),
            "generate: got an unexpected keyword argument 'max_new_tokens' (max_length counts the prompt: ",
        ),
        (lambda m: m.stream(PROMPT, seed=3), "'seed' (did you mean key for seed?)"),
        (
            lambda m: m.generate(PROMPT, max_length=65),
            "max_length must be an integer from 1 to 64, the model's context",
        ),
        (lambda m: m.generate(PROMPT, top_p=0), "top_p must be a number above 0 and at most 1; got 0"),
        (
            lambda m: m.generate(PROMPT, top_k=True),
            "top_k must be an integer from 0 to 2147483647, where 0 keeps all tokens",
        ),
        (lambda m: m.generate(PROMPT, do_sample=1), "do_sample must be True or False; got 1"),
        (lambda m: m.generate(PROMPT, do_sample=True), "key: needed for do_sample (key=jax.random.key(0))"),
        (lambda m: [*m.stream(PROMPT, tempo=1)], "got an unexpected keyword argument 'tempo'"),
        (lambda m: m.logits([3] * 65), "prompts must have at most 64 tokens, the model's context; got 65"),
        (lambda m: m.generate(PROMPT, state={}), "state must be a State, as start returns it; got {}"),
        (lambda m: m.generate([PROMPT] * 2, state=m.start(PROMPT)), "prompts must be 1 lists of tokens"),
        (
            lambda m: m.generate(OTHER, state=m.start(PROMPT, max_length=20), max_length=21),
            "max_length must be at most 20, the room of state; got 21",
        ),
    ],
)
@pytest.mark.gate(but=4)
def test_wrong_calls_are_refused(model: LanguageModel, call: Callable[[Any], Any], message: str) -> None:
    with refuses(message):
        call(model)


def without(*path: str) -> Any:
    changed = json.loads(json.dumps(CONFIGURATION))
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return changed


def with_value(value: Any, *path: str) -> Any:
    changed = json.loads(json.dumps(CONFIGURATION))
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return changed


CACHE_NAMES = ("model", "decoder", "inputs", "past_key_names")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", '["genai_config.json"] must be JSON'),
        ([], "must be a JSON object; got list"),
        (without("model", "decoder"), '["genai_config.json"].model.decoder must be an object; got none'),
        (with_value("2", "model", "decoder", "num_hidden_layers"), "num_hidden_layers must be an integer; got '2'"),
        (
            with_value("gone.onnx", "model", "decoder", "filename"),
            "filename must be a file in the folder; got 'gone.onnx'",
        ),
        (with_value("../model.onnx", "model", "decoder", "filename"), "filename must be a file in the folder"),
        (with_value("past.%d", *CACHE_NAMES), "inputs.past_key_names must name inputs of model.onnx; got past.0"),
        (
            with_value("y", "model", "decoder", "outputs", "logits"),
            "outputs.logits must name outputs of model.onnx; got y",
        ),
        (
            with_value(40, "model", "vocab_size"),
            "model.vocab_size must be 48, as logits: float32[batch, length, 48] has it; got 40",
        ),
        (
            with_value(8, "model", "decoder", "head_size"),
            "model.decoder.head_size must be 16, as past_key_values.0.key",
        ),
        (with_value(9, "search", "topk"), "search.topk: unknown field, did you mean top_k?"),
        (
            with_value(-1, "search", "no_repeat_ngram_size"),
            "no_repeat_ngram_size must be an integer from 0 to 2147483647",
        ),
        (with_value(["x"], "model", "eos_token_id"), "eos_token_id must be an integer, or a list of them; got ['x']"),
        (with_value("x", "search", "max_length"), "search.max_length must be an integer from 1 to 64"),
        (with_value("past", *CACHE_NAMES), "past_key_names must have %d for the layer; got 'past'"),
        (with_value(0, "search", "num_beams"), "search.num_beams must be an integer from 1 to 2147483647"),
        (
            with_value(-1.0, "search", "temperature"),
            "search.temperature must be a number from 1e-06 to 2147483647; got -1.0",
        ),
    ],
)
def test_wrong_folders_are_refused(folder: Path, tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "model.onnx").symlink_to(folder / "model.onnx")
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "genai_config.json").write_text(text)
    with refuses(message):
        language_model(tmp_path)


def test_a_folder_needs_its_files(tmp_path: Path) -> None:
    with refuses("folder must have a genai_config.json; got"):
        language_model(tmp_path)
    with refuses("folder must exist; got") as missing:
        language_model(tmp_path / "none")
    assert isinstance(missing.value, FileNotFoundError)
    (tmp_path / "model.onnx").write_bytes(b"")
    with refuses("folder must be a folder, not a file; got '...model.onnx' (`dmljax run ...dmljax.onnx.load runs"):
        language_model(tmp_path / "model.onnx")
    with refuses("folder must be a path; got 3"):
        language_model(3)  # type: ignore[arg-type]


@FULL
def test_weights_may_be_replaced(model: LanguageModel) -> None:
    zeros = {name: jnp.zeros_like(x) if name.endswith("scales") else x for name, x in model.weights.items()}
    assert model.generate(PROMPT, weights=zeros, max_length=8) != model.generate(PROMPT, max_length=8)
    assert [*itertools.islice(model.stream(PROMPT, weights=zeros, min_length=9), 2)] == [0, 0]
