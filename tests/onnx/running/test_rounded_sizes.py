"""Sessions run decoders whose caches grow with few programs, and give what the model computes."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from small_growing_models import decoder_proto, empty_caches, next_caches
from small_language_models import KEY_HEADS, SIZE, language_proto

from dmljax.errors import InvalidDesc
from dmljax.onnx.running import rounded_sizes
from dmljax.onnx.running.plan import Plan
from dmljax.run import onnxruntime as ort
from dmljax.run.onnxruntime.errors import InvalidArgument

FORMS = [
    {},
    pytest.param({"has_mask": False}, marks=pytest.mark.gate),
    pytest.param({"has_mask": False, "is_merged": True}, marks=pytest.mark.gate),
]


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that gets an element for each program."""
    made: list[Any] = []
    trace = Plan.trace

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return trace(*arguments)

    monkeypatch.setattr(Plan, "trace", counted)
    return made


def feed_of(
    proto: Any, tokens: Any, caches: dict[str, Any], is_first: bool, mask: Any = None, heard: int = 6
) -> dict[str, Any]:
    names = {tensor.name for tensor in proto.graph.input}
    feed = {"input_ids": np.asarray(tokens), **caches}
    if "attention_mask" in names:
        past = caches["past_key_values.0.key"].shape[2]
        whole = np.ones((feed["input_ids"].shape[0], past + feed["input_ids"].shape[1]), np.int64)
        feed["attention_mask"] = whole if mask is None else np.concatenate([mask, whole[:, mask.shape[1] :]], 1)
    if "use_cache_branch" in names:
        feed["encoder_hidden_states"] = np.ones((len(feed["input_ids"]), heard, 8), np.float32)
        feed["use_cache_branch"] = np.array([not is_first])
    return feed


def generate(
    session: Any, proto: Any, prompt: Any, count: int, mask: Any = None, heard: int = 6
) -> tuple[Any, list[Any]]:
    """The tokens that follow a prompt, and the last outputs."""
    is_merged = any(tensor.name == "use_cache_branch" for tensor in proto.graph.input)
    tokens, caches, chosen = np.asarray(prompt), empty_caches(len(prompt), hears=is_merged), []
    outputs: list[Any] = []
    for step in range(count):
        outputs = session.run(None, feed_of(proto, tokens, caches, step == 0, mask, heard))
        tokens, caches = outputs[0][:, -1:].argmax(-1), next_caches(outputs[1:], caches)
        chosen.append(tokens)
    return np.concatenate(chosen, 1), outputs


def reference(proto: Any) -> Any:
    return onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("form", FORMS)
def test_a_text_of_70_tokens_needs_three_programs(form: dict[str, Any], traces: list[Any]) -> None:
    proto = decoder_proto(**form)
    prompt = np.arange(10).reshape(2, 5)
    session = ort.InferenceSession(proto.SerializeToString())
    tokens, outputs = generate(session, proto, prompt, 65)
    expected_tokens, expected = generate(reference(proto), proto, prompt, 65)
    assert len(traces) == 3  # for the prompt, and for up to 64 and 128 tokens
    np.testing.assert_array_equal(tokens, expected_tokens)
    for output, wanted in zip(outputs, expected, strict=True):
        assert output.flags.writeable
        assert output.shape == wanted.shape
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)  # sums may be ordered differently


def test_prompts_of_other_lengths_share_a_program_and_see_no_padding(traces: list[Any]) -> None:
    proto = decoder_proto()
    session, other = ort.InferenceSession(proto.SerializeToString()), reference(proto)
    mask = np.array([[0, 0, 1, 1, 1]])
    for length in (5, 9, 16):
        prompt = np.arange(length)[None] + 3
        for found, wanted in zip(
            generate(session, proto, prompt, 1, mask)[1], generate(other, proto, prompt, 1, mask)[1], strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert len(traces) == 1


@pytest.mark.gate
def test_other_sizes_are_rounded_up_once_they_vary(traces: list[Any]) -> None:
    proto = decoder_proto(has_mask=False, is_merged=True)
    session, other = ort.InferenceSession(proto.SerializeToString()), reference(proto)
    counts = []
    for heard in (6, 6, 9, 5, 12):
        outputs = generate(session, proto, [[1, 2, 3]], 2, heard=heard)[1]
        expected = generate(other, proto, [[1, 2, 3]], 2, heard=heard)[1]
        counts.append(len(traces))
        for found, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert counts == [2, 2, 4, 4, 4]


def test_values_stay_on_the_device_with_their_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = decoder_proto()
    session, other = ort.InferenceSession(proto.SerializeToString()), reference(proto)
    copies: list[Any] = []
    with_room = rounded_sizes._with_room

    def counted(array: Any, axis: int, room: int) -> Any:
        made = with_room(array, axis, room)
        copies.extend([array] if array.ndim == 4 and made is not array else [])
        return made

    monkeypatch.setattr(rounded_sizes, "_with_room", counted)
    tokens, caches = np.arange(5)[None], empty_caches()
    values: dict[str, Any] = {}
    for _ in range(4):
        feed = feed_of(proto, tokens, caches, False)
        binding = session.io_binding()
        for name, array in feed.items():
            if name in values:
                binding.bind_ortvalue_input(name, values[name])
            else:
                binding.bind_cpu_input(name, array)
        for name in ("logits", "present.0.key", "present.0.value"):
            binding.bind_output(name, "dml")
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        wanted = other.run(None, feed)
        values = next_caches(binding.get_outputs()[1:])
        assert [value.shape() for value in values.values()] == [[*array.shape] for array in wanted[1:]]
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[1], wanted[1], rtol=1e-5, atol=1e-5)
        tokens, caches = wanted[0][:, -1:].argmax(-1), next_caches(wanted[1:])
    assert len(copies) == 2  # of the prompt's keys and values, whose room is smaller


def test_a_value_that_a_program_writes_to_is_read_anew() -> None:
    proto = decoder_proto()
    session = ort.InferenceSession(proto.SerializeToString())
    feed = feed_of(proto, [[1, 2, 3]], empty_caches(), True)
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
    _, keys, others = session.run_with_ort_values(None, values)
    changed = np.full(keys.shape(), 2, np.float32)
    keys.update_inplace(changed)
    np.testing.assert_array_equal(keys.numpy(), changed)
    later = feed_of(proto, [[4]], next_caches([changed, others.numpy()]), False)
    again = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in later.items()}
    _, present, _ = session.run_with_ort_values(None, again | next_caches([keys, others]))
    np.testing.assert_array_equal(present.numpy()[:, :, :3], changed)


def test_outputs_that_are_bound_to_memory_are_written_there() -> None:
    proto = decoder_proto(has_mask=False)
    session = ort.InferenceSession(proto.SerializeToString())
    feed = feed_of(proto, [[7]], {name: x + 1 for name, x in empty_caches(1, 6).items()}, False)
    wanted = reference(proto).run(None, feed)
    memory = np.zeros_like(wanted[1])
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("present.0.key", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(memory, wanted[1], rtol=1e-5, atol=1e-5)


def test_grouped_attention_takes_caches_with_room(traces: list[Any]) -> None:
    proto = language_proto(layers=1)
    session, other = ort.InferenceSession(proto.SerializeToString()), reference(proto)
    caches = {name: np.zeros((1, KEY_HEADS, 0, SIZE), np.float32) for name in next_caches([0, 0])}
    for tokens in ([[5, 6, 7]], [[3]], [[4, 5]], [[9]]):
        feed = feed_of(proto, tokens, caches, False)
        past = caches["past_key_values.0.key"].shape[2]
        feed["position_ids"] = np.arange(past, past + len(tokens[0]))[None]
        wanted = other.run(None, feed)
        for found, array in zip(session.run(None, feed), wanted, strict=True):
            np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5)
        caches = next_caches(wanted[1:])
    assert len(traces) == 3  # for the prompt, for single tokens, and for several


def test_an_operator_without_padding_leaves_a_program_for_each_length(traces: list[Any]) -> None:
    # Pads by reflection need the true sizes.
    added = ["amounts = Constant<value: tensor = int64[8] {0, 0, 0, 0, 0, 0, 0, 0}>()"]
    added += ['kept = Pad<mode: string = "reflect">(k, amounts)  total = ReduceSum(kept)  other = Mul(total, logits)']
    proto = decoder_proto(has_mask=False, added=added)
    proto.graph.output.add(name="other")
    session, other = ort.InferenceSession(proto.SerializeToString()), reference(proto)
    for past in (3, 4):
        feed = feed_of(proto, [[7]], empty_caches(1, past), False)
        for found, wanted in zip(session.run(None, feed), other.run(None, feed), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    exact = len(traces)
    session.run(None, feed)
    assert len(traces) == exact
    assert session._decoder is None


def test_wrong_inputs_raise_as_in_other_models() -> None:
    proto = decoder_proto()
    session = ort.InferenceSession(proto.SerializeToString())
    feed = feed_of(proto, [[7]], empty_caches(1, 6), False)
    with pytest.raises(InvalidDesc, match="Required inputs"):
        session.run(None, {name: x for name, x in feed.items() if name != "input_ids"})
    with pytest.raises(InvalidArgument, match="Unexpected input data type"):
        session.run(None, feed | {"input_ids": np.ones((1, 1), np.int32)})
    with pytest.raises(InvalidArgument, match="Got invalid dimensions for input"):
        session.run(None, feed | {"past_key_values.0.key": np.zeros((1, 3, 6, 4), np.float32)})
