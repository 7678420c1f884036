"""Small language models without attention: a token's logits are its row of a table."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx_models import FLOAT, model, value

WORDS, LAST = 10, 9  # tokens, and the one that ends texts
INTEGER = TensorProto.INT32


def table_of(successors: Mapping[int, int]) -> Any:
    """A table in which each token is followed by the next, but for some that have other successors."""
    return np.eye(WORDS, dtype=np.float32)[[successors.get(token, (token + 1) % LAST) for token in range(WORDS)]] * 20


def table_proto(table: Any, *, switch: int | None = None, of_last: bool = False) -> onnx.ModelProto:
    """A table of logits; from `switch` tokens on, token 4 follows. It may give the logits of the last token only."""
    constants: dict[str, Any] = {"table": table, "axis": np.array(1), "last": np.array([-1])}
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["rows"])]
    if switch is not None:
        constants |= {"switch": np.array(switch), "other": table_of(dict.fromkeys(range(WORDS), 4))}
        nodes += [
            helper.make_node("Shape", ["attention_mask"], ["sizes"]),
            helper.make_node("Gather", ["sizes", "axis"], ["total"]),
            helper.make_node("GreaterOrEqual", ["total", "switch"], ["is_long"]),
            helper.make_node("Gather", ["other", "input_ids"], ["other_rows"]),
            helper.make_node("Where", ["is_long", "other_rows", "rows"], ["switched"]),
        ]
    rows = nodes[-1].output[0]
    last = helper.make_node("Gather", [rows, "last"], ["logits"], axis=1)
    nodes.append(last if of_last else helper.make_node("Identity", [rows], ["logits"]))
    inputs = [value("input_ids", INTEGER, ["batch", "n"]), value("attention_mask", INTEGER, ["batch", "total"])]
    return model(nodes, inputs, [value("logits", FLOAT, ["batch", 1 if of_last else "n", WORDS])], constants)


DECODER: dict[str, Any] = {
    "filename": "model.onnx",
    "head_size": 1,
    "num_hidden_layers": 0,
    "num_key_value_heads": 1,
    "inputs": {},
    "outputs": {},
}


def write_table_folder(
    folder: Path, table: Any, *, draft: onnx.ModelProto | None = None, kind: str = "llama", **options: Any
) -> Path:
    """Writes a folder of such a model, which may have another that drafts."""
    folder.mkdir(exist_ok=True)
    onnx.save(table_proto(table, **options), folder / "model.onnx")
    decoder = copy.deepcopy(DECODER)
    content = {"type": kind, "vocab_size": WORDS, "context_length": 64, "eos_token_id": LAST, "decoder": decoder}
    if draft is not None:
        onnx.save(draft, folder / "draft.onnx")
        content["draft"] = {**decoder, "filename": "draft.onnx"}
    (folder / "genai_config.json").write_text(json.dumps({"model": content, "search": {"max_length": 64}}))
    return folder
