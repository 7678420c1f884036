"""Small folders of older kinds with random weights: GPT-2's stacked caches, and Marian's recurrent units."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto
from onnx_models import DOMAINS, FLOAT, INT64, model, value
from small_folders import Nodes

WORDS, CONTEXT, WIDTH, HEADS, LAYERS = 24, 20, 16, 2, 2
SIZE = WIDTH // HEADS
INT32 = TensorProto.INT32


# GPT-2's


def stacked_proto(*, reads_mask: bool = True, unidirectional: int = 1) -> onnx.ModelProto:
    """A decoder whose attention appends to caches that have a layer's keys and values in one array."""
    nodes = Nodes(11)
    nodes.add("Gather", [nodes.weight("words", WORDS, WIDTH), "input_ids"], "of_words")
    nodes.add("Gather", [nodes.weight("places", CONTEXT, WIDTH), "position_ids"], "of_places")
    nodes.add("Cast", ["attention_mask"], "mask", to=INT32)
    x = nodes.add("Add", ["of_words", "of_places"], "x")
    attributes: Any = {"num_heads": HEADS, "unidirectional": unidirectional, "domain": "com.microsoft"}
    for i in range(LAYERS):
        weights = [nodes.weight(f"{i}.weight", WIDTH, 3 * WIDTH), nodes.weight(f"{i}.bias", 3 * WIDTH)]
        inputs = [x, *weights, "mask" if reads_mask else "", f"past_{i}"]
        nodes.add("Attention", inputs, f"{i}.attended", f"present_{i}", **attributes)
        x = nodes.add("Add", [x, f"{i}.attended"], f"{i}.x")
    nodes.add("MatMul", [x, nodes.weight("head", WIDTH, WORDS)], "logits")
    mask = value("attention_mask", INT64, ["batch", "total"])
    inputs = [*(value(name, INT64, ["batch", "length"]) for name in ("input_ids", "position_ids")), mask]
    inputs += [value(f"past_{i}", FLOAT, [2, "batch", HEADS, "past", SIZE]) for i in range(LAYERS)]
    outputs = [value("logits", FLOAT, ["batch", "length", WORDS])]
    outputs += [value(f"present_{i}", FLOAT, [2, "batch", HEADS, "total", SIZE]) for i in range(LAYERS)]
    return model(nodes.list, inputs, outputs, nodes.constants, domains=DOMAINS)


STACKED: dict[str, Any] = {  # without a search, and without what the model tells
    "model": {
        "context_length": CONTEXT,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "type": "gpt2",
        "vocab_size": WORDS,
        "decoder": {
            "filename": "model.onnx",
            "inputs": {"past_names": "past_%d"},
            "outputs": {"present_names": "present_%d"},
        },
    }
}


def write_stacked_folder(folder: Path, **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    onnx.save(stacked_proto(**options), folder / "model.onnx")
    (folder / "genai_config.json").write_text(json.dumps(STACKED))
    return folder


def stacked_outputs(folder: Path, tokens: Sequence[int], **adapted: Any) -> dict[str, Any]:
    """The outputs of the model for tokens read in one call, by ONNX Runtime, which may get inputs of adapters."""
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    count = len(tokens)
    given: dict[str, Any] = {"input_ids": np.array([tokens], np.int64), "attention_mask": np.ones((1, count), np.int64)}
    given["position_ids"] = np.arange(count, dtype=np.int64)[None]
    given |= {f"past_{i}": np.zeros((2, 1, HEADS, 0, SIZE), np.float32) for i in range(LAYERS)} | adapted
    return dict(zip((output.name for output in session.get_outputs()), session.run(None, given), strict=True))


def adapt_logits(path: Path, *, has_defaults: bool = True) -> None:
    """Adds to the logits of a model the product of its last product's rows with two inputs, and a third input.

    These are nothing and 0 by default, as Olive writes inputs of LoRA.
    """
    proto = onnx.load(path)
    graph = proto.graph
    (last,) = (node for node in graph.node if node.output[0] == "logits")
    last.output[0] = "plain"
    width, words = next([*one.dims] for one in graph.initializer if one.name == last.input[1])
    nodes = Nodes(0)
    nodes.add("MatMul", [last.input[0], "first"], "low")
    nodes.add("MatMul", ["low", "second"], "tuned")
    nodes.add("Add", ["plain", "tuned"], "sum")
    nodes.add("Add", ["sum", "shift"], "logits")
    graph.node.extend(nodes.list)
    sizes: dict[str, list[int | str]] = {"first": [width, "rank"], "second": ["rank", words], "shift": [words]}
    graph.input.extend(value(name, FLOAT, each) for name, each in sizes.items())
    if has_defaults:
        empty: dict[str, Any] = {name: [0 if size == "rank" else size for size in each] for name, each in sizes.items()}
        arrays = {name: np.zeros(each, np.float32) for name, each in empty.items()}
        graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save(proto, path)


def low_rank_arrays(rank: int, width: int = WIDTH, words: int = WORDS) -> dict[str, Any]:
    """The arrays of an adapter for two of these inputs."""
    random = np.random.default_rng(rank)
    shapes = {"first": (width, rank), "second": (rank, words)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


# Marian's

START = 3


def translating_protos(sizes: Sequence[int | str] = ("batch", "length")) -> dict[str, onnx.ModelProto]:
    """An encoder of texts, and a decoder that attends to what it read and keeps three states of recurrent units."""
    batch, length = sizes
    nodes = Nodes(12)
    nodes.constant("axis", np.array([2], np.int64))
    nodes.add("Gather", [nodes.weight("words", WORDS, WIDTH), "input_ids"], "rows")
    nodes.add("Cast", ["attention_mask"], "floats", to=FLOAT)
    nodes.add("Unsqueeze", ["floats", "axis"], "columns")
    nodes.add("Mul", ["rows", "columns"], "encoder_outputs")
    texts = [value("input_ids", INT64, [batch, length]), value("attention_mask", INT32, [batch, length])]
    read = value("encoder_outputs", FLOAT, [batch, length, WIDTH])
    encoder = model(nodes.list, texts, [read], nodes.constants, domains=DOMAINS)
    nodes = Nodes(13)
    for name, number in (("first", [0]), ("second", [1])):
        nodes.constant(name, np.array(number, np.int64))
    nodes.constant("large", np.array(1e9, np.float32))
    nodes.constant("one", np.array(1, np.float32))
    nodes.add("Gather", [nodes.weight("words", WORDS, WIDTH), "input_ids"], "of_words")
    nodes.add("Gather", [nodes.weight("places", CONTEXT, WIDTH), "past_key_values_length"], "of_places")
    x = nodes.add("Add", ["of_words", "of_places"], "x")
    nodes.add("Unsqueeze", [x, "second"], "query")
    nodes.add("Transpose", ["encoder_hidden_states"], "keys", perm=[0, 2, 1])
    nodes.add("MatMul", ["query", "keys"], "scores")
    nodes.add("Cast", ["encoder_attention_mask"], "floats", to=FLOAT)
    nodes.add("Sub", ["floats", "one"], "hidden")
    nodes.add("Mul", ["hidden", "large"], "biases")
    nodes.add("Unsqueeze", ["biases", "second"], "bias")
    nodes.add("Add", ["scores", "bias"], "biased")
    nodes.add("Softmax", ["biased"], "probs", axis=-1)
    nodes.add("MatMul", ["probs", "encoder_hidden_states"], "heard")
    nodes.add("Squeeze", ["heard", "second"], "heard_row")
    nodes.add("Add", [x, "heard_row"], "y")
    nodes.add("Split", ["rnn_states_prev"], *(f"state{i}" for i in range(3)), axis=0, num_outputs=3)
    x = "y"
    for i in range(3):
        nodes.add("Squeeze", [f"state{i}", "first"], f"{i}.state")
        nodes.add("MatMul", [x, nodes.weight(f"{i}.forget", WIDTH, WIDTH)], f"{i}.gate")
        nodes.add("Sigmoid", [f"{i}.gate"], f"{i}.kept")
        nodes.add("Mul", [f"{i}.state", f"{i}.kept"], f"{i}.old")
        nodes.add("Add", [f"{i}.old", x], f"{i}.new")
        nodes.add("Unsqueeze", [f"{i}.new", "first"], f"{i}.stacked")
        x = nodes.add("Tanh", [f"{i}.new"], f"{i}.x")
    nodes.add("Concat", [f"{i}.stacked" for i in range(3)], "rnn_states", axis=0)
    nodes.add("MatMul", [x, nodes.weight("head", WIDTH, WORDS)], "logits")
    inputs = [
        value("input_ids", INT64, [batch]),
        value("encoder_hidden_states", FLOAT, [batch, length, WIDTH]),
        value("encoder_attention_mask", INT32, [batch, length]),
        value("rnn_states_prev", FLOAT, [3, batch, WIDTH]),
        value("past_key_values_length", INT64, [1]),
    ]
    outputs = [value("logits", FLOAT, [batch, WORDS]), value("rnn_states", FLOAT, [3, batch, WIDTH])]
    return {"encoder": encoder, "decoder": model(nodes.list, inputs, outputs, nodes.constants, domains=DOMAINS)}


TRANSLATING: dict[str, Any] = {
    "model": {
        "bos_token_id": START,
        "context_length": CONTEXT,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "type": "marian-ssru",
        "vocab_size": WORDS,
        "decoder": {
            "filename": "decoder.onnx",
            "head_size": 3,
            "hidden_size": WIDTH,
            "inputs": {"rnn_states_prev": "rnn_states_prev"},
            "outputs": {"rnn_states": "rnn_states"},
        },
        "encoder": {
            "filename": "encoder.onnx",
            "hidden_size": WIDTH,
            "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"},
            "outputs": {"encoder_outputs": "encoder_outputs"},
        },
    },
    "search": {"do_sample": False, "max_length": CONTEXT, "num_beams": 1},
}


def write_translating_folder(folder: Path, **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, proto in translating_protos(**options).items():
        onnx.save(proto, folder / f"{name}.onnx")
    (folder / "genai_config.json").write_text(json.dumps(TRANSLATING))
    return folder


def translate(folder: Path, tokens: Sequence[int], length: int, end: int = 2) -> list[int]:
    """A text and its likeliest translation by ONNX Runtime, without an end."""
    encoder, decoder = (
        onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    )
    text, mask = np.array([[*tokens, end]], np.int64), np.ones((1, len(tokens) + 1), np.int32)
    (read,) = encoder.run(None, {"input_ids": text, "attention_mask": mask})
    sequence, last, states = [*tokens], START, np.zeros((3, 1, WIDTH), np.float32)
    for step in range(length - len(tokens)):
        given = {
            "input_ids": np.array([last], np.int64),
            "encoder_hidden_states": read,
            "encoder_attention_mask": mask,
            "rnn_states_prev": states,
            "past_key_values_length": np.array([step], np.int64),
        }
        logits, states = decoder.run(None, given)
        logits[0, end] = -np.inf
        last = int(np.argmax(logits[0]))
        sequence.append(last)
    return sequence
