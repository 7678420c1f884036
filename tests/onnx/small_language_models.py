"""A small language model with random weights, in a folder as onnxruntime_genai.models.builder writes them."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx_models import DOMAINS, FLOAT, INT64, model, value

VOCABULARY, HIDDEN, HEADS, KEY_HEADS, SIZE, LAYERS, CONTEXT = 48, 80, 4, 2, 16, 2, 64
END, BLOCK, TAPS = 2, 16, 4
SHORT = 24  # tokens of the sequences for which a model with two tables of angles has the first


def language_proto(
    *,
    layers: int = LAYERS,
    has_positions: bool = True,
    has_state: bool = False,
    has_tables: bool = False,
    of_last: bool = False,
    softcap: float = 0.0,
    padding: float | None = None,
    dequantized: Any = None,
) -> onnx.ModelProto:
    """A decoder of 4-bit weights, with rotary positions and heads that share keys; a last layer may have a state.

    It may have two tables of angles, give the logits of the last token only, or cap them. `padding` replaces the
    embedding of token 0. Weights of the type `dequantized` are converted before products.
    """
    random = np.random.default_rng(7)
    constants: dict[str, Any] = {
        "embedding": random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32),
        "one": np.array([1], np.int64),
        "axis": np.array([1], np.int64),
        "second": np.array(1, np.int64),
        "norm": np.ones(HIDDEN, np.float32),
    }
    if padding is not None:
        constants["embedding"][0] = padding
    angles = np.arange(CONTEXT)[:, None] / 10.0 ** np.linspace(0, 2, SIZE // 2)[None]
    tables = _tables(angles)
    constants |= {} if has_tables else tables
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["counts"], keepdims=1),
        helper.make_node("Sub", ["counts", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["last_places"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["mask_sizes"]),
        helper.make_node("Gather", ["mask_sizes", "second"], ["room"], axis=0),
        helper.make_node("Cast", ["room"], ["total"], to=TensorProto.INT32),
        helper.make_node("Gather", ["embedding", "input_ids"], ["x0"]),
    ]

    if has_tables:
        constants["most"] = np.array(SHORT, np.int64)
        nodes.append(helper.make_node("Greater", ["room", "most"], ["is_long"]))
        branches = {"then_branch": _tables(angles / 4), "else_branch": _tables(angles[:SHORT])}
        graphs = {name: _constants(name, one) for name, one in branches.items()}
        nodes.append(helper.make_node("If", ["is_long"], [*tables], **graphs))

    def product(name: str, x: str, rows: int, columns: int) -> str:
        blocks = -(-rows // BLOCK)
        constants[f"{name}.codes"] = random.integers(0, 256, (columns, blocks, BLOCK // 2), np.uint8)
        constants[f"{name}.scales"] = random.uniform(0.02, 0.06, columns * blocks).astype(np.float32)
        weight = [f"{name}.codes", f"{name}.scales"]
        if dequantized is not None:
            codes = random.integers(0, 16, (rows, columns))
            constants[weight[0]] = (codes - 8 * (dequantized == ml_dtypes.int4)).astype(dequantized)
            constants[weight[1]] = constants[weight[1]].reshape(columns, blocks).T
            if dequantized == ml_dtypes.uint4:
                weight.append(f"{name}.zeros")
                constants[weight[2]] = random.integers(5, 11, (blocks, columns)).astype(dequantized)
            nodes.append(helper.make_node("DequantizeLinear", weight, [f"{name}.weight"], axis=0, block_size=BLOCK))
            nodes.append(helper.make_node("MatMul", [x, f"{name}.weight"], [name]))
            return name
        sizes = {"K": rows, "N": columns, "bits": 4, "block_size": BLOCK}
        nodes.append(helper.make_node("MatMulNBits", [x, *weight], [name], domain="com.microsoft", **sizes))
        return name

    def node(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    x = "x0"
    for i in range(layers):
        rows = node("SimplifiedLayerNormalization", [x, "norm"], f"{i}.rows", epsilon=1e-6)
        parts = [
            product(f"{i}.{kind}", rows, HIDDEN, count * SIZE)
            for kind, count in (("q", HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS))
        ]
        pasts, presents = (
            [f"{side}.{i}.{kind}" for kind in ("key", "value")] for side in ("past_key_values", "present")
        )
        positions = ["position_ids"] if has_positions else []
        inputs = [*parts, *pasts, "last_places", "total", "cosines", "sines", *positions]
        heads = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "do_rotary": 1}
        attended = [f"{i}.attended", *presents]
        nodes.append(helper.make_node("GroupQueryAttention", inputs, attended, domain="com.microsoft", **heads))
        x = node("Add", [x, product(f"{i}.out", f"{i}.attended", HEADS * SIZE, HIDDEN)], f"{i}.x")
    if has_state:
        constants["filter"] = random.uniform(-1, 1, (HIDDEN, 1, TAPS)).astype(np.float32)
        columns = node("Transpose", [x], "columns", perm=[0, 2, 1])
        inputs, outputs = [columns, "filter", "", f"past.{layers}.conv"], ["convolved", f"present.{layers}.conv"]
        nodes.append(helper.make_node("CausalConvWithState", inputs, outputs, domain="com.microsoft"))
        x = node("Add", [x, node("Transpose", ["convolved"], "convolved_rows", perm=[0, 2, 1])], f"{layers}.x")
    last = node("SimplifiedLayerNormalization", [x, "norm"], "rows", epsilon=1e-6)
    if of_last:
        constants["end"] = np.array(-1, np.int64)
        last = node("Unsqueeze", [node("Gather", [last, "end"], "last_row", axis=1), "axis"], "last_rows")
    if softcap:
        constants["cap"] = np.array(softcap, np.float32)
        scaled = node("Div", [product("scores", last, HIDDEN, VOCABULARY), "cap"], "scaled")
        node("Mul", [node("Tanh", [scaled], "capped"), "cap"], "logits")
    else:
        product("logits", last, HIDDEN, VOCABULARY)
    tokens = [value("input_ids", INT64, ["batch", "length"]), value("attention_mask", INT64, ["batch", "total"])]
    tokens += [value("position_ids", INT64, ["batch", "length"])] if has_positions else []
    caches = [
        value(f"past_key_values.{i}.{kind}", FLOAT, ["batch", KEY_HEADS, "past", SIZE])
        for i in range(layers)
        for kind in ("key", "value")
    ]
    presents_of_all = [
        value(one.name.replace("past_key_values", "present"), FLOAT, ["batch", KEY_HEADS, "total", SIZE])
        for one in caches
    ]
    if has_state:
        caches.append(value(f"past.{layers}.conv", FLOAT, ["batch", HIDDEN, TAPS - 1]))
        presents_of_all.append(value(f"present.{layers}.conv", FLOAT, ["batch", HIDDEN, TAPS - 1]))
    logits = value("logits", FLOAT, ["batch", 1 if of_last else "length", VOCABULARY])
    return model(nodes, [*tokens, *caches], [logits, *presents_of_all], constants, domains=DOMAINS)


def _tables(angles: Any) -> dict[str, Any]:
    return {"cosines": np.cos(angles).astype(np.float32), "sines": np.sin(angles).astype(np.float32)}


def _constants(name: str, arrays: dict[str, Any]) -> onnx.GraphProto:
    """A branch that gives these arrays."""
    named = {f"{name}.{one}": numpy_helper.from_array(array) for one, array in arrays.items()}
    nodes = [helper.make_node("Constant", [], [one], value=array) for one, array in named.items()]
    return helper.make_graph(nodes, name, [], [value(one, FLOAT, list(array.dims)) for one, array in named.items()])


CONFIGURATION: dict[str, Any] = {
    "model": {
        "context_length": CONTEXT,
        "eos_token_id": [END],
        "vocab_size": VOCABULARY,
        "decoder": {
            "filename": "model.onnx",
            "head_size": SIZE,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KEY_HEADS,
            "inputs": {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
            "outputs": {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
        },
    },
    "search": {"do_sample": False, "max_length": CONTEXT, "top_k": 50, "top_p": 1.0, "num_beams": 1},
}


def write_folder(folder: Path, **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    onnx.save(language_proto(**options), folder / "model.onnx")
    configuration = copy.deepcopy(CONFIGURATION)
    configuration["model"]["decoder"]["num_hidden_layers"] = options.get("layers", LAYERS) + options.get(
        "has_state", False
    )
    (folder / "genai_config.json").write_text(json.dumps(configuration))
    return folder


WORDS = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, VOCABULARY))])}
TEMPLATE = (
    "{% for m in messages %}{{ 'w5' if m.role == 'user' else 'w4' }} {{ m.content }} </s> {% endfor %}"
    "{% if add_generation_prompt %}w4{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    """Writes a tokenizer of words, with a template for conversations."""
    import tokenizers

    reader = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<pad>"))
    reader.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    reader.add_special_tokens(["<s>", "</s>"])
    reader.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": TEMPLATE}))


class Reference:
    """The same model in ONNX Runtime, with caches that grow."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])

    def logits(self, tokens: Sequence[int]) -> Any:
        """The logits after each token, read in one call."""
        count = len(tokens)
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, count), np.int64),
            "position_ids": np.arange(count, dtype=np.int64)[None],
        }
        none = np.zeros((1, KEY_HEADS, 0, SIZE), np.float32)
        names = [x.name for x in self.session.get_inputs()]
        state = np.zeros((1, HIDDEN, TAPS - 1), np.float32)
        inputs = {name: feeds.get(name, state if name.endswith(".conv") else none) for name in names}
        return self.session.run(["logits"], inputs)[0][0]

    def greedy(self, tokens: Sequence[int], length: int) -> list[int]:
        """The likeliest continuation, without an end."""
        sequence = [*tokens]
        while len(sequence) < length:
            sequence.append(int(np.argmax(self.logits(sequence)[-1])))
        return sequence
