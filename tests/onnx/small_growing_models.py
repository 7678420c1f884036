"""Small decoders whose caches grow, as Optimum exports them: attention is written out, and sizes are computed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, parser
from onnx_models import BOOL, FLOAT, INT64, model, value

VOCABULARY, HIDDEN, HEADS, SIZE, PLACES = 24, 8, 2, 4, 160
_CACHES = ("past_key_values.0.key", "past_key_values.0.value")
_HEARD = "past_key_values.0.encoder.key"
_PRESENTS = ("present.0.key", "present.0.value")


def decoder_proto(*, has_mask: bool = True, is_merged: bool = False, added: Sequence[str] = ()) -> onnx.ModelProto:
    """A decoder of one layer, which counts past tokens by the size of its caches.

    A merged one also hears an encoder: for prompts, a branch without caches computes keys from it, which later runs
    take back. `added` are nodes after the logits.
    """
    random = np.random.default_rng(3)
    shapes = {"table": (VOCABULARY, HIDDEN), "places": (PLACES, HIDDEN), "head": (HIDDEN, VOCABULARY)}
    shapes |= dict.fromkeys(("query", "key", "value"), (HIDDEN, HIDDEN))
    constants: dict[str, Any] = {name: random.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    constants |= {"heads": np.array([0, 0, HEADS, SIZE]), "whole": np.array([0, 0, HIDDEN])}
    constants |= {"zero": np.array(0), "one": np.array(1), "two": np.array(2), "first": np.array([0])}
    constants |= {
        "second": np.array([1]),
        "axis": np.array([2]),
        "middle": np.array([1, 2]),
        "low": np.array(-1e9, np.float32),
    }
    inputs = [value("input_ids", INT64, ["batch", "length"])]
    if has_mask:
        inputs.append(value("attention_mask", INT64, ["batch", "past + length"]))
    inputs += [value(name, FLOAT, ["batch", HEADS, "past", SIZE]) for name in _CACHES]
    outputs = [value("logits", FLOAT, ["batch", "length", VOCABULARY])]
    outputs += [value(name, FLOAT, ["batch", HEADS, "past + length", SIZE]) for name in _PRESENTS]
    if not is_merged:
        return model(_nodes(has_mask, True, False, added), inputs, outputs, constants)
    outputs += [value("present.0.encoder.key", FLOAT, ["batch", HEADS, "heard", SIZE])]
    branches = {
        name: helper.make_graph(_nodes(has_mask, reads_past, True, added), name, [], outputs)
        for name, reads_past in (("then_branch", True), ("else_branch", False))
    }
    inputs += [value("encoder_hidden_states", FLOAT, ["batch", "heard", HIDDEN])]
    inputs += [value(_HEARD, FLOAT, ["batch", HEADS, "heard", SIZE])]
    choice = helper.make_node("If", ["use_cache_branch"], [output.name for output in outputs], **branches)
    return model([choice], [*inputs, value("use_cache_branch", BOOL, [1])], outputs, constants)


def _nodes(has_mask: bool, reads_past: bool, hears: bool, added: Sequence[str]) -> list[onnx.NodeProto]:
    joined = [
        f"{present} = Concat<axis: int = 2>({past}, {new})" if reads_past else f"{present} = Identity({new})"
        for past, present, new in zip(("pk", "pv"), ("k", "v"), ("nk", "nv"), strict=True)
    ]
    mask = "is_kept = Cast<to: int = 9>(mask)  kept = Unsqueeze(is_kept, middle)  seen = And(causal, kept)"
    new_keys = "e0 = MatMul(encoder, key)  e1 = Reshape(e0, heads)  ek = Transpose<perm: ints = [0, 2, 1, 3]>(e1)"
    heard = f"{'ek = Identity(pek)' if reads_past else new_keys}  heard = ReduceMean(ek, axis)  y9 = Add(y0, heard)"
    body = f"""
        sizes = Shape(pk)  past_size = Gather(sizes, two)  new_sizes = Shape(ids)  length = Gather(new_sizes, one)
        before = {"Identity(past_size)" if reads_past else "Identity(zero)"}
        all = Add(before, length)  rows = Range(before, all, one)  columns = Range(zero, all, one)
        embedded = Gather(table, ids)  moved = Gather(places, rows)  x = Add(embedded, moved)
        q0 = MatMul(x, query)  q1 = Reshape(q0, heads)  q = Transpose<perm: ints = [0, 2, 1, 3]>(q1)
        k0 = MatMul(x, key)  k1 = Reshape(k0, heads)  nk = Transpose<perm: ints = [0, 2, 1, 3]>(k1)
        v0 = MatMul(x, value)  v1 = Reshape(v0, heads)  nv = Transpose<perm: ints = [0, 2, 1, 3]>(v1)
        {joined[0]}  {joined[1]}  turned = Transpose<perm: ints = [0, 1, 3, 2]>(k)  scores = MatMul(q, turned)
        upright = Unsqueeze(rows, second)  causal = LessOrEqual(columns, upright)
        {mask if has_mask else "seen = Identity(causal)"}
        masked = Where(seen, scores, low)  weights = Softmax<axis: int = -1>(masked)
        y0 = MatMul(weights, v)  {heard if hears else "y9 = Identity(y0)"}
        y1 = Transpose<perm: ints = [0, 2, 1, 3]>(y9)  y = Reshape(y1, whole)
        logits = MatMul(y, head)
        {" ".join(added)}
    """
    nodes = parser.parse_graph(f"g (float x0) => (float logits) {{ {body} }}").node
    names = dict(zip(("pk", "pv", "k", "v"), (*_CACHES, *_PRESENTS), strict=True))
    names |= {"pek": _HEARD, "ek": "present.0.encoder.key", "encoder": "encoder_hidden_states"}
    names |= {"ids": "input_ids", "mask": "attention_mask"}
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    return [*nodes]


def empty_caches(batch: int = 1, past: int = 0, *, hears: bool = False) -> dict[str, Any]:
    names = (*_CACHES, _HEARD) if hears else _CACHES
    return {name: np.zeros((batch, HEADS, past, SIZE), np.float32) for name in names}


def next_caches(presents: Sequence[Any], caches: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The outputs of a run after its logits, as inputs of the next; what is heard stays as it was first."""
    heard = dict(caches or {}).get(_HEARD)
    fresh = dict(zip((*_CACHES, _HEARD), presents, strict=False))
    return fresh if heard is None or not heard.size else {**fresh, _HEARD: heard}
