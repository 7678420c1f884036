"""Small folders of several models with random weights: one that hears, as Whisper, and one that sees."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx_models import DOMAINS, FLOAT, INT64, model, value
from small_language_models import CONFIGURATION, HIDDEN, KEY_HEADS, SIZE, language_proto

Arrays = Mapping[str, Any]


class Nodes:
    """The nodes and constants of a model as it is written."""

    def __init__(self, seed: int) -> None:
        self.random, self.list = np.random.default_rng(seed), list[Any]()
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, array: Any) -> str:
        self.constants[name] = array
        return name

    def weight(self, name: str, *sizes: int) -> str:
        return self.constant(name, (self.random.standard_normal(sizes) / 2).astype(np.float32))

    def add(self, operator: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        self.list.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs[0]


# A folder that hears

MELS, FRAMES, WIDTH, HEADS, LAYERS = 5, 6, 16, 2, 2
HEARD_WORDS, HEARD_CONTEXT = 24, 20
KINDS = ("key", "value")


def encoder_proto() -> onnx.ModelProto:
    """A convolution, then the keys and values of each layer of the decoder."""
    nodes = Nodes(1)
    nodes.weight("filters", WIDTH, MELS, 3)
    nodes.constant("sizes", np.array([-1, FRAMES // 2, HEADS, WIDTH // HEADS], np.int64))
    nodes.add("Conv", ["audio_features", "filters"], "convolved", pads=[1, 1], strides=[2])
    nodes.add("Transpose", ["convolved"], "hidden_states", perm=[0, 2, 1])
    for name in (f"present_{kind}_cross_{i}" for i in range(LAYERS) for kind in KINDS):
        nodes.add("MatMul", ["hidden_states", nodes.weight(f"{name}.weight", WIDTH, WIDTH)], f"{name}.rows")
        nodes.add("Reshape", [f"{name}.rows", "sizes"], f"{name}.heads")
        nodes.add("Transpose", [f"{name}.heads"], name, perm=[0, 2, 1, 3])
    outputs = [value("hidden_states", FLOAT, ["batch", FRAMES // 2, WIDTH]), *_caches("present", "cross", FRAMES // 2)]
    audio = value("audio_features", FLOAT, ["batch", MELS, FRAMES])
    return model(nodes.list, [audio], outputs, nodes.constants, domains=DOMAINS)


def _caches(side: str, kind: str, length: int | str) -> list[Any]:
    names = (f"{side}_{part}_{kind}_{i}" for i in range(LAYERS) for part in KINDS)
    return [value(name, FLOAT, ["batch", HEADS, length, WIDTH // HEADS]) for name in names]


def hearing_proto(*, unidirectional: int = 1, has_cross_caches: bool = True) -> onnx.ModelProto:
    """A decoder that counts past tokens by the size of its caches, and also attends to what an encoder heard."""
    nodes = Nodes(2)
    nodes.weight("words", HEARD_WORDS, WIDTH)
    nodes.weight("places", HEARD_CONTEXT, WIDTH)
    for name, number in (("one", 1), ("two", 2), ("rows", [0]), ("step", [1])):
        nodes.constant(name, np.array(number, np.int64))
    nodes.add("Shape", ["input_ids"], "sizes")
    nodes.add("Gather", ["sizes", "one"], "new", axis=0)
    nodes.add("Shape", ["past_key_self_0"], "past_sizes")
    nodes.add("Gather", ["past_sizes", "two"], "past", axis=0)
    nodes.add("Add", ["new", "past"], "total")
    for name in ("past", "total"):
        nodes.add("Unsqueeze", [name, "rows"], f"{name}1")
    nodes.add("Slice", ["places", "past1", "total1", "rows", "step"], "own_places")
    nodes.add("Gather", ["words", "input_ids"], "own_words")
    x = nodes.add("Add", ["own_words", "own_places"], "x")
    contributed: Any = {"domain": "com.microsoft", "num_heads": HEADS}
    for i in range(LAYERS):
        parts = [f"{i}.{part}" for part in ("query", "key", "value")]
        for name in parts:
            nodes.add("MatMul", [x, nodes.weight(f"{name}.weight", WIDTH, WIDTH)], name)
        bias = nodes.weight(f"{i}.bias", 3 * WIDTH) if i else ""
        pasts, presents, cross_caches = (
            [f"{side}_{part}_{kind}_{i}" for part in KINDS]
            for side, kind in (("past", "self"), ("present", "self"), ("past", "cross"))
        )
        inputs, outputs = [*parts, bias, "", "", *pasts], [f"{i}.own", *presents]
        nodes.add("MultiHeadAttention", inputs, *outputs, unidirectional=unidirectional, **contributed)
        x = nodes.add("Add", [x, f"{i}.own"], f"{i}.x")
        nodes.add("MatMul", [x, nodes.weight(f"{i}.asked.weight", WIDTH, WIDTH)], f"{i}.asked")
        source = cross_caches if has_cross_caches else ["encoder_hidden_states"] * 2
        nodes.add("MultiHeadAttention", [f"{i}.asked", *source], f"{i}.heard", **contributed)
        x = nodes.add("Add", [x, f"{i}.heard"], f"{i}.y")
    nodes.add("MatMul", [x, nodes.weight("head", WIDTH, HEARD_WORDS)], "logits")
    inputs = [value("input_ids", INT64, ["batch", "length"]), *_caches("past", "self", "past")]
    rows = value("encoder_hidden_states", FLOAT, ["batch", FRAMES // 2, WIDTH])
    inputs += _caches("past", "cross", FRAMES // 2) if has_cross_caches else [rows]
    logits = value("logits", FLOAT, ["batch", "length", HEARD_WORDS])
    return model(nodes.list, inputs, [logits, *_caches("present", "self", "total")], nodes.constants, domains=DOMAINS)


HEARING: dict[str, Any] = {
    "model": {
        "context_length": HEARD_CONTEXT,
        "eos_token_id": 2,
        "type": "whisper",
        "vocab_size": HEARD_WORDS,
        "decoder": {
            "filename": "decoder.onnx",
            "head_size": WIDTH // HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": HEADS,
            "inputs": {"past_key_names": "past_key_self_%d", "past_value_names": "past_value_self_%d"},
            "outputs": {"present_key_names": "present_key_self_%d", "present_value_names": "present_value_self_%d"},
        },
        "encoder": {
            "filename": "encoder.onnx",
            "inputs": {"audio_features": "audio_features"},
            "outputs": {"encoder_hidden_states": "hidden_states"},
        },
    },
    "search": {"do_sample": False, "max_length": HEARD_CONTEXT, "num_beams": 1},
}


def write_hearing_folder(folder: Path, configuration: Any = HEARING, **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    onnx.save(encoder_proto(), folder / "encoder.onnx")
    onnx.save(hearing_proto(**options), folder / "decoder.onnx")
    (folder / "genai_config.json").write_text(json.dumps(configuration))
    return folder


def audio_of(count: int) -> Any:
    return np.random.default_rng(3).standard_normal((count, MELS, FRAMES)).astype(np.float32)


# A folder that sees

IMAGE, PIXELS, TOKEN = 2, 7, 45  # rows of features of an image, numbers of which each is made, and their token


def seeing_protos(*, is_negative: bool = False) -> dict[str, onnx.ModelProto]:
    """The model of `language_proto` without its table of tokens, the table in a model of its own, and one that sees.

    Places of images are negative tokens, as Phi-3 has them, or one token.
    """
    decoder = language_proto()
    graph = decoder.graph
    table = next(tensor for tensor in graph.initializer if tensor.name == "embedding")
    graph.initializer.remove(table)
    graph.node.remove(next(node for node in graph.node if "x0" in node.output))
    for node in graph.node:
        node.input[:] = ["inputs_embeds" if name == "x0" else name for name in node.input]
    graph.input[0].CopyFrom(value("inputs_embeds", FLOAT, ["batch", "length", HIDDEN]))
    nodes = Nodes(4)
    nodes.constant("table", onnx.numpy_helper.to_array(table))
    nodes.constant("token", np.array(0 if is_negative else TOKEN, np.int64))
    nodes.constant("zero", np.array(0, np.int64))
    nodes.add("Less" if is_negative else "Equal", ["input_ids", "token"], "is_place")
    nodes.add("NonZero", ["is_place"], "columns")
    nodes.add("Transpose", ["columns"], "places", perm=[1, 0])
    nodes.add("Max", ["input_ids", "zero"], "words")
    nodes.add("Gather", ["table", "words"], "rows")
    nodes.add("ScatterND", ["rows", "places", "image_features"], "inputs_embeds")
    tokens = value("input_ids", INT64, ["batch", "length"])
    features = value("image_features", FLOAT, ["features", HIDDEN])
    rows = value("inputs_embeds", FLOAT, ["batch", "length", HIDDEN])
    embedding = model(nodes.list, [tokens, features], [rows], nodes.constants, domains=DOMAINS)
    nodes = Nodes(5)
    nodes.constant("flat", np.array([-1, PIXELS], np.int64))
    nodes.add("Reshape", ["pixel_values", "flat"], "flattened")
    nodes.add("MatMul", ["flattened", nodes.weight("seen", PIXELS, HIDDEN)], "image_features")
    pixels = value("pixel_values", FLOAT, ["images", IMAGE, PIXELS])
    vision = model(nodes.list, [pixels], [features], nodes.constants, domains=DOMAINS)
    return {"model": decoder, "embedding": embedding, "vision": vision}


def seeing_configuration() -> dict[str, Any]:
    content = copy.deepcopy(CONFIGURATION)
    settings = content["model"]
    settings["decoder"]["inputs"]["inputs_embeds"] = "inputs_embeds"
    names = {"input_ids": "input_ids", "image_features": "image_features"}
    settings["embedding"] = {
        "filename": "embedding.onnx",
        "inputs": names,
        "outputs": {"inputs_embeds": "inputs_embeds"},
    }
    outputs = {"image_features": "image_features"}
    settings["vision"] = {"filename": "vision.onnx", "inputs": {"pixel_values": "pixel_values"}, "outputs": outputs}
    return content


def write_seeing_folder(folder: Path, configuration: Any = None, **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, proto in seeing_protos(**options).items():
        onnx.save(proto, folder / f"{name}.onnx")
    content = seeing_configuration() if configuration is None else configuration
    (folder / "genai_config.json").write_text(json.dumps(content))
    return folder


def images_of(count: int) -> dict[str, Any]:
    pixels = np.random.default_rng(6).standard_normal((count, IMAGE, PIXELS)).astype(np.float32)
    return {"pixel_values": pixels}


class FolderReference:
    """The models of a folder in ONNX Runtime, where the decoder reads all tokens again for each."""

    def __init__(self, folder: Path) -> None:
        def session(name: str) -> Any:
            path = folder / f"{name}.onnx"
            return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) if path.exists() else None

        self.encoder, self.embedding, self.vision = map(session, ("encoder", "embedding", "vision"))
        self.decoder = session("decoder") or session("model")

    def logits(self, tokens: Sequence[int], audio: Any = None, images: Arrays | None = None) -> Any:
        """The logits after each token, read in one call; audio is of one sequence, without a batch."""
        count = len(tokens)
        given: dict[str, Any] = {"input_ids": np.array([tokens], np.int64)}
        if self.encoder is not None:
            names = [tensor.name.replace("present", "past") for tensor in self.encoder.get_outputs()]
            given |= dict(zip(names, self.encoder.run(None, {"audio_features": audio[None]}), strict=True))
            given["encoder_hidden_states"] = given["hidden_states"]
        if self.embedding is not None:
            features = np.zeros((0, HIDDEN), np.float32) if images is None else self.vision.run(None, images)[0]
            (rows,) = self.embedding.run(None, {"input_ids": given["input_ids"], "image_features": features})
            mask, places = np.ones((1, count), np.int64), np.arange(count)[None]
            given |= {"inputs_embeds": rows, "attention_mask": mask, "position_ids": places}
        for tensor in self.decoder.get_inputs():
            sizes = (KEY_HEADS, 0, SIZE) if self.embedding is not None else (HEADS, 0, WIDTH // HEADS)
            given.setdefault(tensor.name, np.zeros((1, *sizes), np.float32))
        feeds = {tensor.name: given[tensor.name] for tensor in self.decoder.get_inputs()}
        return self.decoder.run(["logits"], feeds)[0][0]

    def greedy(self, tokens: Sequence[int], length: int, end: int = 2, **senses: Any) -> list[int]:
        """The likeliest continuation, without an end."""
        sequence = [*tokens]
        while len(sequence) < length:
            logits = self.logits(sequence, **senses)[-1]
            logits[end] = -np.inf
            sequence.append(int(np.argmax(logits)))
        return sequence
