"""A small diffusion model with random weights, in a folder as Stable Diffusion is exported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx_models import FLOAT, INT64, model, value

VOCABULARY, LENGTH, WIDTH, CHANNELS, RATIO = 24, 6, 8, 4, 8
INDEX = {"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet2DConditionModel"]}
SCHEDULER: dict[str, Any] = {
    "_class_name": "PNDMScheduler",
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "clip_sample": False,
    "num_train_timesteps": 1000,
    "set_alpha_to_one": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "trained_betas": None,
}


class _Graph:
    """Nodes and constants that are collected one by one."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        name = f"{operator}_{len(self.nodes)}"
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weight(self, *sizes: int) -> Any:
        return (self.random.standard_normal(sizes) / np.sqrt(np.prod(sizes[1:]))).astype(np.float32)

    def convolution(self, x: str, inputs: int, outputs: int, stride: int = 1) -> str:
        window = {"pads": [1, 1, 1, 1], "strides": [stride, stride]}
        return self.node("Conv", x, self.weight(outputs, inputs, 3, 3), self.weight(outputs, 1)[:, 0], **window)

    def silu(self, x: str) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x))

    def model(self, inputs: Any, result: str, output: Any) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], [output.name]))
        return model(self.nodes, inputs, [output], self.constants)


def text_encoder() -> onnx.ModelProto:
    graph = _Graph(1)
    flat = graph.node("Reshape", "input_ids", np.array([-1, LENGTH]))
    x = graph.node("Gather", graph.weight(VOCABULARY, WIDTH), flat)
    x = graph.node("Add", x, graph.weight(LENGTH, WIDTH))
    x = graph.node("LayerNormalization", x, np.ones(WIDTH, np.float32))
    tokens = value("input_ids", INT64, ["batch", "length"])
    return graph.model([tokens], x, value("last_hidden_state", FLOAT, ["batch", "length", WIDTH]))


def unet() -> onnx.ModelProto:
    """A network with one level below, the time added, and attention to the text."""
    graph = _Graph(2)
    time = graph.node("Unsqueeze", graph.node("Cast", "timestep", to=TensorProto.FLOAT), np.array([1]))
    angles = graph.node("Mul", time, np.array([[1, 0.1, 0.01, 0.001]], np.float32))
    waves = graph.node("Concat", graph.node("Sin", angles), graph.node("Cos", angles), axis=1)
    shift = graph.node("Unsqueeze", graph.node("MatMul", waves, graph.weight(8, WIDTH)), np.array([2, 3]))
    top = graph.silu(graph.node("Add", graph.convolution("sample", CHANNELS, WIDTH), shift))
    below = graph.convolution(top, WIDTH, WIDTH, stride=2)
    sizes = graph.node("Shape", below)
    rows = graph.node("Transpose", graph.node("Reshape", below, np.array([0, WIDTH, -1])), perm=[0, 2, 1])
    query = graph.node("MatMul", rows, graph.weight(WIDTH, WIDTH))
    key = graph.node(
        "Transpose", graph.node("MatMul", "encoder_hidden_states", graph.weight(WIDTH, WIDTH)), perm=[0, 2, 1]
    )
    scores = graph.node("Softmax", graph.node("MatMul", query, key), axis=-1)
    read = graph.node("MatMul", scores, graph.node("MatMul", "encoder_hidden_states", graph.weight(WIDTH, WIDTH)))
    attended = graph.node("Reshape", graph.node("Transpose", read, perm=[0, 2, 1]), sizes)
    below = graph.silu(graph.node("Add", below, attended))
    above = graph.node("Resize", below, "", np.array([1, 1, 2, 2], np.float32), mode="nearest")
    change = graph.convolution(graph.node("Concat", top, above, axis=1), 2 * WIDTH, CHANNELS)
    x = graph.node("Add", "sample", graph.node("Tanh", change))
    inputs = [
        value("sample", FLOAT, ["batch", CHANNELS, "height", "width"]),
        value("timestep", INT64, ["steps"]),
        value("encoder_hidden_states", FLOAT, ["batch", "length", WIDTH]),
    ]
    return graph.model(inputs, x, value("out_sample", FLOAT, ["batch", CHANNELS, "height", "width"]))


def vae_decoder() -> onnx.ModelProto:
    graph = _Graph(3)
    x = graph.silu(graph.convolution("latent_sample", CHANNELS, WIDTH))
    x = graph.node("DepthToSpace", graph.convolution(x, WIDTH, 3 * RATIO**2), blocksize=RATIO)
    x = graph.node("Mul", x, np.array(0.1, np.float32))
    latents = value("latent_sample", FLOAT, ["batch", CHANNELS, "height", "width"])
    return graph.model([latents], x, value("sample", FLOAT, ["batch", 3, "image_height", "image_width"]))


PROTOS = {"text_encoder": text_encoder, "unet": unet, "vae_decoder": vae_decoder}

LETTERS = "abcdehrst"
MERGES = [("a", "t</w>"), ("c", "at</w>"), ("r", "e"), ("re", "d</w>")]


def write_tokenizer(folder: Path) -> None:
    """CLIP's kind of tokenizer, for words of a few letters."""
    words = [
        *LETTERS,
        *(f"{letter}</w>" for letter in LETTERS),
        *(a + b for a, b in MERGES),
        "<|startoftext|>",
        "<|endoftext|>",
    ]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *(f"{a} {b}" for a, b in MERGES)]))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"model_max_length": LENGTH, "pad_token": "<|endoftext|>"})
    )


def write_folder(folder: Path) -> Path:
    for part, proto in PROTOS.items():
        (folder / part).mkdir(parents=True)
        onnx.save(proto(), folder / part / "model.onnx")
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "scheduler_config.json").write_text(json.dumps(SCHEDULER))
    (folder / "unet" / "config.json").write_text(json.dumps({"in_channels": CHANNELS, "sample_size": 4}))
    (folder / "model_index.json").write_text(json.dumps(INDEX))
    write_tokenizer(folder / "tokenizer")
    return folder
