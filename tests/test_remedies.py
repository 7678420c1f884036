"""Mistakes of people who know JAX: each error has code to write instead, and that code runs."""

import enum
import inspect
import io
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import GATE
from models import MODELS

import dmljax.onnx
from dmljax import DmlError, directml, dxdispatch
from dmljax.calls import foreign_arguments
from dmljax.functions import ALIASES, HOMES

DENSE = MODELS / "dense.onnx"
GIVEN: dict[str, Any] = {
    **{name: getattr(dmljax, name) for name in (*HOMES, *ALIASES)},
    "dmljax": dmljax,
    "dxdispatch": dxdispatch,
    "io": io,
    "jax": jax,
    "jnp": jnp,
    "path": DENSE,
    "x": jnp.ones((2, 4)),
    "query": jnp.ones((2, 5, 64)),
    "key": jnp.ones((2, 5, 64)),
    "value": jnp.ones((2, 5, 64)),
    "few": jnp.ones((2, 5, 16)),
    "images": jnp.ones((1, 8, 8, 3)),
    "kernel": jnp.ones((3, 3, 3, 4)),
    "lengths": jnp.array([3, 5]),
    "segments": jnp.zeros((2, 5), int),
    "scores": jnp.ones((1, 8, 5, 5)),
    "mask": jnp.ones((2, 4)) > 0,
    "rate": 0.5,
    "cap": 30.0,
    "k": 2,
    "queries": 5,
    "keys": 5,
    "size": 2,
    "bytes_": jnp.ones((1, 3, 8, 8), jnp.uint8),
    "filter_": jnp.ones((4, 3, 3, 3), jnp.uint8),
    "steps": jnp.ones((3, 1, 4)),
    "gates": jnp.ones((1, 8, 4)),
    "recurrence": jnp.ones((1, 8, 2)),
    "model": dmljax.onnx.load(DENSE),
    "pair": jnp.ones((1, 2), jnp.float32),
}
GQA = "multihead_attention1(query, key, value, query_head_count=8, key_value_head_count=2)"
ATTEND = "multihead_attention(query, key, value, head_count=8, "
LAYER = "lstm(steps, gates, recurrence, "

# A mistake; what its message has; and, if that is no call, a call with it
MISTAKES = [
    (
        "multihead_attention(query, key, value, head_count=8, kv_head_count=2)",
        GQA,
        GQA.replace("key, value,", "few, few,"),
    ),
    (
        "multihead_attention1(query, few, few, head_count=8)",
        "query_head_count",
        GQA.replace("key, value,", "few, few,"),
    ),
    ("multihead_attention1(query, few, few, query_head_count=8)", GQA, GQA.replace("key, value,", "few, few,")),
    ("multihead_attention(query, few, few, head_count=8)", GQA, GQA.replace("key, value,", "few, few,")),
    (
        "multihead_attention1(query, few, few)",
        "query_head_count=8, key_value_head_count=2",
        "multihead_attention1(query, few, few, {})",
    ),
    ("multihead_attention(query, key, value)", "head_count=8", "multihead_attention(query, key, value, {})"),
    (ATTEND + "bias=scores)", "relative_position_bias=bias", ATTEND + "relative_position_bias=scores)"),
    (ATTEND + "mask=lengths)", "mask_type='key_sequence_length'", ATTEND + "mask=lengths, {})"),
    (ATTEND + "mask=lengths[:, None, None, None])", "mask=mask > 0", ATTEND + "mask=lengths[:, None, None, None] > 0)"),
    (ATTEND + "key_value_seq_lengths=lengths)", "mask=lengths, mask_type='key_sequence_length'", ATTEND + "{})"),
    (ATTEND + "segment_ids=segments)", "mask=segments[:, None, :, None] == segments[:, None, None, :]", ATTEND + "{})"),
    (
        ATTEND + "local_window_size=2)",
        "mask=jnp.abs(jnp.arange(queries)[:, None] - jnp.arange(keys)) <= size",
        ATTEND + "{})",
    ),
    (ATTEND + "softcap=30.0)", "gemm(softmax(cap * jnp.tanh(gemm(query, key, transpose_b=True) / cap)), value)", ""),
    (
        ATTEND + "dropout=0.1)",
        "x * jax.random.bernoulli(key, 1 - rate, x.shape) / (1 - rate)",
        "(lambda key: {})(jax.random.key(0))",
    ),
    (ATTEND + "attn_bias=scores)", "relative_position_bias", ATTEND + "{}=scores)"),
    (
        "multihead_attention(query, key, value, query_head_count=8)",
        "head_count=8",
        "multihead_attention(query, key, value, {})",
    ),
    ("softmax(x, axis=0)", "activation_softmax1(x, axes=0)", ""),
    ("log_softmax(x, axis=0)", "activation_log_softmax1(x, axes=0)", ""),
    ("softmax(x, where=mask)", "softmax(jnp.where(mask, x, -jnp.inf))", ""),
    ("log_softmax(x, where=mask)", "log_softmax(jnp.where(mask, x, -jnp.inf))", ""),
    ("reduce(x, 'sum', where=mask)", "reduce(jnp.where(mask, x, 0), 'sum')", ""),
    ("reduce(x, 'max', initial=0)", "jnp.max(x, initial=0)", ""),
    ("top_k(x, k=2, largest=False)", "top_k1(x, k=k, axis_direction='increasing')", ""),
    ("top_k1(x, k=2, largest=False)", "axis_direction='increasing'", "top_k1(x, k=2, {})"),
    ("top_k(x, k=2, sorted=True)", "always sorted", "0"),
    ("max_pooling(x, window_sizes=2)", "input[None, None]", "(lambda input: max_pooling({}, window_sizes=2))(x)"),
    ("convolution(x, x)", "input[None, None]", "(lambda input: convolution({}, {}))(x)"),
    ("convolution(x[None, None], x)", "filter[None, None]", "(lambda filter: convolution(x[None, None], {}))(x)"),
    ("gemm(x[0], x.T)", "a[None]", "(lambda a: gemm({}, x.T))(x[0])"),
    ("gemm(x, x[0])", "b[..., None]", "(lambda b: gemm(x, {}))(x[0])"),
    ("gemm(x, x[0], transpose_b=True)", "b[None]", "(lambda b: gemm(x, {}, transpose_b=True))(x[0])"),
    (
        "multihead_attention(x, x, x, head_count=2)",
        "value[None]",
        "(lambda value: multihead_attention({}, {}, {}, head_count=2))(x)",
    ),
    (
        "lstm(steps[0], gates[0], recurrence[0])",
        "recurrence[None]",
        "(lambda recurrence: lstm(steps, gates, {}))(recurrence[0])",
    ),
    ("lstm(steps, gates[0], recurrence)", "weight[None]", "(lambda weight: lstm(steps, {}, recurrence))(gates[0])"),
    ("activation_softmax(lengths)", "input.astype(jnp.float32)", "(lambda input: softmax({}))(lengths)"),
    ("activation_relu('3')", "jnp.asarray(float(text))", "(lambda text: {})('3')"),
    ("activation_relu(None)", "without a return statement", "0"),
    ("activation_elu(x, '1')", "alpha must be a number", "0"),
    ("element_wise_clip(x, '0', 1)", "min must be a number", "0"),
    ("cast(x, dtype='flaot32')", "did you mean float32?", "0"),
    ("top_k(x, 2)", "give k by name", "top_k(x, k=2)"),
    ("activation_gelu(x, approximate=True)", "jax.nn.gelu(x, approximate=True)", ""),
    ("relu(x, inplace=True)", "a new one", "0"),
    (LAYER + "batch_first=True)", "jnp.swapaxes(x, 0, 1)", ""),
    ("gru(steps, gates, recurrence, bidirectional=True)", "direction='bidirectional'", "0"),
    ("quantize(x)", "scale=jnp.max(jnp.abs(x)) / 127, dtype='int8'", "quantize(x, {})"),
    (
        "element_wise_quantize_linear(x)",
        "scale=jnp.max(jnp.abs(x)) / 127, dtype='int8'",
        "element_wise_quantize_linear(x, {})",
    ),
    ("quantize(x, 1.0, block_size=2)", "scale=jnp.ones((*x.shape[:-1], x.shape[-1] // 2))", "quantize(x, {})"),
    ("quantize(x, 1.0, bits=8)", "dtype='int8'", "quantize(x, 1.0, {})"),
    ("quantize(x, 1.0, dtype='int3')", "int4", "quantize(x, 1.0, dtype='{}')"),
    ("convolution(images, kernel, dimension_numbers=0)", "jnp.transpose(images, (0, 3, 1, 2))", ""),
    (
        "convolution(images, kernel)",
        "convolution(jnp.transpose(x, (0, 3, 1, 2)), jnp.transpose(kernel, (3, 2, 0, 1)))",
        "(lambda x: {})(images)",
    ),
    (
        "max_pooling(images, window_sizes=4)",
        "jnp.transpose(x, (0, 3, 1, 2))",
        "(lambda x: max_pooling({}, window_sizes=4))(images)",
    ),
    ("batch_normalization(images, 0, 1, axis=-1)", "jnp.moveaxis(x, -1, 1)", ""),
    (
        "mean_variance_normalization(images, groups=2)",
        "mean_variance_normalization2(x.reshape(batch, groups, -1), axes=-1).reshape(x.shape)",
        "(lambda x, batch, groups: {})(images, 1, 2)",
    ),
    (
        "padding(images, ((0, 0), (0, 0), (1, 1), (1, 1)))",
        "start_padding=(0, 0, 1, 1), end_padding=(0, 0, 1, 1)",
        "padding(images, {})",
    ),
    (
        "one_hot(lengths, 3)",
        "one_hot(indices[..., None], jnp.array([0.0, 1.0]), depth=3)",
        "(lambda indices: {})(lengths)",
    ),
    ("convolution(images, kernel, lhs_dilation=2)", "direction='backward'", "0"),
    ("convolution(images, kernel, preferred_element_type=0)", "cast(x, dtype=jnp.float32)", ""),
    (
        "convolution_integer(bytes_, filter_)",
        "convolution_integer(x, None, filter)",
        "convolution_integer(bytes_, None, filter_)",
    ),
    ("reduce(x)", "reduce(x, 'sum')", ""),
    (
        "convolution(images, kernel, padding='SAME', strides=2)",
        "zip(*jax.lax.padtype_to_pads(x.shape[2:], window, strides, 'SAME'))",
        "(lambda x, window, strides: convolution(x, jnp.ones((4, 3, *window)), strides=strides, "
        "**dict(zip(('start_padding', 'end_padding'), {}))))(jnp.ones((1, 3, 8, 8)), (3, 3), (2, 2))",
    ),
    (
        "resample(images, scales=2, interpolation_mode='bicubic')",
        "jax.image.resize(x, shape, 'cubic')",
        "(lambda x, shape: {})(images, (1, 16, 16, 3))",
    ),
    ("dmljax.resize", "resample (it scales centers, as jax.image.resize does)", "0"),
    ("dmljax.attention", "multihead_attention (keys have as many heads as queries)", "0"),
    ("dmljax.quantize_linear", "element_wise_quantize_linear (its scale broadcasts)", "0"),
    ("dmljax.show(x, title='relu')", 'show({"relu": x}) titles an array', "0"),
    ("max_pooling(images)", "window_sizes=2, strides=2", "max_pooling(images, {})"),
    ("batch_normalization(x, 0, 0, 0, 0, training=True)", "batch_normalization_training", "{}"),
    (
        "dmljax.onnx.load(path, dtype=jnp.bfloat16)",
        "model.apply(weights, x)",
        "(lambda weights, x: {})(model.weights, pair)",
    ),
    ("dmljax.onnx.load(path, batch=4)", "model(x)", "(lambda x: {})(pair)"),
    ("dmljax.onnx.load(path, providers=[])", "model(jax.device_put(x, jax.devices()[0]))", "(lambda x: {})(pair)"),
    ("dmljax.onnx.load(path, input_shapes={})", "model.graph(shapes)", "(lambda shapes: {})({'x': (4, 2)})"),
    (
        "dmljax.onnx.load(io.BytesIO(path.read_bytes()))",
        "load(file.read())",
        "(lambda load, file: {})(dmljax.onnx.load, io.BytesIO(path.read_bytes()))",
    ),
    ("dmljax.load_onnx", "dmljax.onnx.load(path)", ""),
    ("dmljax.onnx.load()", "dmljax.onnx.load('model.onnx')", "0"),
    ("dmljax.onnx.Model(path)", "dmljax.onnx.load(path)", ""),
    ("estimate(model, 'h100')", "target='h100'", "0"),
    ("estimate(model, chip='h100')", "target='h100'", "0"),
    ("estimate(model, target='h100', batch=8)", "jax.ShapeDtypeStruct((8, 2), 'float32')", ""),
    ("model.partition()", "mesh=jax.make_mesh((jax.device_count(),), ('model',))", "model.partition({})"),
    ("model.apply()", "model.apply(model.weights, x)", "(lambda x: {})(pair)"),
    ("model.with_low_rank(1)", "key=jax.random.key(0)", "model.with_low_rank(1, {})"),
    ("model.save()", "model.save('model.onnx')", ""),
    ("dxdispatch.Execution(0, output_folder='x')", "output_path", "0"),
    ("model.params", "model.weights", ""),
    ("model.run(pair)", "model(x)", "(lambda x: {})(pair)"),
    (
        "model.half()",
        "model.apply({name: w.astype(jnp.bfloat16) for name, w in model.weights.items()}, x)",
        "(lambda x: {})(pair)",
    ),
    ("model.export()", "jax.export.export(jax.jit(model))(x)", "(lambda x: {})(pair)"),
    ("model.to('cpu')", "model(jax.device_put(x, jax.devices()[0]))", "(lambda x: {})(pair)"),
    ("model.compile()", "jax.jit(model)", ""),
    ("model.as_text()", "jax.jit(model).lower(x).as_text()", "(lambda x: {})(pair)"),
    ("model.grad()", "jax.grad(lambda weights: model.apply(weights, x).sum())", "(lambda x: {}(model.weights))(pair)"),
    ("model.input_names", "[tensor.name for tensor in model.inputs]", ""),
    ("model.output_names", "[tensor.name for tensor in model.outputs]", ""),
    ("model.input_shape", "[tensor.sizes for tensor in model.inputs]", ""),
    ("model.output_shape", "jax.eval_shape(model, x)", "(lambda x: {})(pair)"),
    ("model.nodes", "model.graph(shapes).nodes", "(lambda shapes: {})({'x': (4, 2)})"),
    ("model.to_dot()", "model.graph(shapes).to_dot()", "(lambda shapes: {})({'x': (4, 2)})"),
    ("model.estimate()", "dmljax.estimate(model, x, target='h100')", "0"),
    ("model.aply", "apply", "model.{}"),
    ("dmljax.onnx.check", "dmljax.onnx.load(path)", ""),
    ("dmljax.onnx.infer_shapes", "jax.eval_shape(dmljax.onnx.load(path), x)", "(lambda x: {})(pair)"),
    ("dmljax.onnx.optimize", "dmljax.onnx.load(path)", ""),
    ("dmljax.onnx.from_jax", "jax.export.export(jax.jit(function))(x)", "(lambda function: {})(jnp.sin)"),
    ("dmljax.onnx.export", "Model.save", "dmljax.onnx.{}"),
    ("dmljax.onnx.generate", "dmljax.onnx.language_model", ""),
    ("dmljax.onnx.run", "dmljax.onnx.load(path)(x)", "(lambda x: {})(pair)"),
]


def message_of(mistake: str) -> str:
    with pytest.raises((DmlError, AttributeError)) as refused:
        eval(mistake, GIVEN)
    return str(refused.value)


def test_the_message_has_the_remedy() -> None:
    assert [mistake for mistake, remedy, _ in MISTAKES if remedy not in message_of(mistake)] == []


@GATE
@pytest.mark.parametrize(("mistake", "remedy", "call"), MISTAKES, ids=[mistake for mistake, _, _ in MISTAKES])
def test_what_the_message_says_runs(
    mistake: str, remedy: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as users have it
        eval((call or "{}").replace("{}", remedy), GIVEN)


def test_lengths_in_place_of_a_mask_are_refused() -> None:
    query = jnp.ones((2, 2, 4))  # as many keys as batches
    for mask in (jnp.array([1, 2]), jnp.array([[1, 2]]), jnp.array([1, 2])[:, None]):
        with pytest.raises(DmlError, match="mask must be of bool, or have a number for each key"):
            dmljax.multihead_attention(query, query, query, mask=mask, head_count=2)
    seen = jnp.array([[1, 0], [1, 1]])
    result = dmljax.multihead_attention(query, query, query, mask=seen, head_count=2)
    assert (result == dmljax.multihead_attention(query, query, query, mask=seen > 0, head_count=2)).all()


def test_every_remedy_is_printed_by_a_mistake() -> None:
    messages = [message_of(mistake) for mistake, *_ in MISTAKES]
    tables = foreign_arguments._REMEDIES[: foreign_arguments._REMEDIES.index(LAST_OF_JAX)]
    assert [remedy for *_, remedy in tables if not any(remedy in message for message in messages)] == []


LAST_OF_JAX = next(row for row in foreign_arguments._REMEDIES if row[0].startswith("max_new_tokens"))
MODULES = ("", ".directml", ".dxdispatch", ".onnx", ".pydirectml", ".serialized", ".examples")
RECORDS = (tuple, enum.Enum, BaseException)  # what functions return, whose constructors nobody calls


def is_called(value: Any, name: str) -> bool:
    """Whether users call this: a function, a descriptor, or a class that is no record of results."""
    if not callable(value) or not getattr(value, "__module__", "").startswith("dmljax") or name in BARE:
        return False
    is_record = inspect.isclass(value) and (issubclass(value, RECORDS) or is_dataclass(value))
    return not is_record or issubclass(value, directml.Operator)


def public_callables() -> Iterator[tuple[str, Any]]:
    for module in (import_module(f"dmljax{name}") for name in MODULES):
        for name in module.__all__:
            if is_called(value := getattr(module, name), name):
                yield f"{module.__name__}.{name}", value
    model, execution = GIVEN["model"], dxdispatch.Execution(dxdispatch.load(MODELS / "top1_routing.json"))
    for name in ("graph", "save", "with_low_rank", "with_layers", "partition", "shard"):
        yield f"Model.{name}", getattr(model, name)
    for name in ("compile", "result", "values"):
        yield f"Execution.{name}", getattr(execution, name)
    for name in ("show", "to_dot"):
        yield f"Graph.{name}", getattr(model.graph({"x": (1, 2)}), name)


BARE = {"Operator", "Expression", "Stream", "LanguageModel", "DiffusionModel"}  # abstract, or made by functions


def test_every_public_callable_refuses_wrong_arguments_by_name() -> None:
    names = []
    for name, function in public_callables():
        with pytest.raises(DmlError, match=r"wrong_word|missing"):
            function(wrong_word=1)
        names.append(name)
    assert len(names) > 400
    assert {"dmljax.estimate", "dmljax.onnx.load", "dmljax.serialized.save", "Model.partition"} <= {*names}


@pytest.mark.parametrize("function", [directml.validate, dmljax.show, dxdispatch.load, dmljax.onnx.load])
def test_too_many_arguments_are_refused_with_the_call(function: Any) -> None:
    with pytest.raises(DmlError, match=rf"^{function.__name__}: too many positional arguments \("):
        function(1, 2, 3, 4)
