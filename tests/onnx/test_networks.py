"""Networks that PyTorch exports, beside ONNX Runtime: small, but with all kinds of nodes that real ones have."""

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from helpers import FULL, GATE, SAMPLED, few_of
from onnx_models import FLOAT, model, value

import dmljax.onnx

torch = pytest.importorskip("torch")
pytestmark = GATE

nn = torch.nn


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


def export_model(
    network: Any, inputs: tuple[Any, ...], open_sizes: Mapping[str, Any] | None = None, opset: int = 17
) -> bytes:
    """The file that PyTorch exports for a network, with inputs x0, x1, ..., some of whose sizes may be open."""
    names = [f"x{i}" for i in range(len(inputs))]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"input_names": names, "dynamic_axes": dict(open_sizes or {}), "opset_version": opset}
        torch.onnx.export(network.eval(), inputs, file, dynamo=False, **options)
    return file.getvalue()


def assert_as_onnxruntime(source: bytes | str, inputs: Any, tolerance: float = 1e-5) -> list[Any]:
    """The model's outputs; checks that they equal ONNX Runtime's, and that their sizes follow from the inputs'."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    arrays = [np.asarray(x) for x in inputs]
    expected = session.run(None, dict(zip((x.name for x in session.get_inputs()), arrays, strict=True)))
    model = dmljax.onnx.load(source)
    results = jax.tree.leaves(model(*arrays))
    for actual, other, traced in zip(results, expected, jax.tree.leaves(jax.eval_shape(model, *arrays)), strict=True):
        assert actual.shape == other.shape == traced.shape
        largest = np.abs(other).max(initial=1.0)
        np.testing.assert_allclose(np.asarray(actual, float), other, rtol=tolerance, atol=tolerance * largest)
    return results


class Recurrent(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, layer_class: Any, **options: Any) -> None:
        super().__init__()
        self.layers = layer_class(6, 5, num_layers=2, **options)
        width = 5 * (2 if options.get("bidirectional") else 1)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        sequence, state = self.layers(x)
        return self.head(sequence), *(state if isinstance(state, tuple) else (state,))


@SAMPLED
@pytest.mark.parametrize("layer_name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "batch_first": True}], ids=["forward", "both"])
def test_a_recurrent_network_equals_onnxruntime(layer_name: str, options: dict[str, Any]) -> None:
    axes = {"x0": {0: "a", 1: "b"}}
    source = export_model(Recurrent(getattr(nn, layer_name), **options), (torch.randn(4, 2, 6),), axes)
    assert_as_onnxruntime(source, [np.random.default_rng(0).standard_normal((7, 3, 6)).astype("float32")])


class Block(nn.Module):  # type: ignore[misc, name-defined]
    """A block of a causal transformer, with past keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, past: Any) -> Any:
        batch, length, width = x.shape
        parts = self.projections(self.before(x)).split(width, dim=2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        total = key.shape[2]
        scores = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5
        is_seen = torch.ones(total, total, dtype=torch.bool).tril()[total - length : total]
        scores = scores.masked_fill(~is_seen, torch.finfo(scores.dtype).min)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.output(mixed)
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x)))), torch.stack([key, value])


class Gpt(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(17, 8), nn.Embedding(32, 8)
        self.blocks = nn.ModuleList([Block(8, 2) for _ in range(2)])
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: Any, *pasts: Any) -> Any:
        start = pasts[0].shape[3] if pasts else 0
        places = torch.arange(start, start + ids.shape[1])
        x = self.tokens(ids) + self.places(places)
        presents = []
        for i, block in enumerate(self.blocks):
            x, present = block(x, pasts[i] if pasts else None)
            presents.append(present)
        return self.norm(x) @ self.tokens.weight.T, *presents


IDS = np.array([[1, 4, 2, 16, 0], [3, 3, 9, 11, 7]])


def test_a_language_model_without_a_past_equals_onnxruntime() -> None:
    source = export_model(Gpt(), (torch.tensor(IDS),), {"x0": {0: "batch", 1: "length"}})
    assert_as_onnxruntime(source, [IDS[:, :3]])


@FULL
def test_a_language_model_continues_from_its_past() -> None:
    network = Gpt()
    first = export_model(network, (torch.tensor(IDS),), {"x0": {0: "batch", 1: "length"}})
    past = torch.randn(2, 2, 2, 3, 4)
    open_sizes = {"x0": {0: "batch", 1: "length"}, **{f"x{i}": {1: "batch", 3: "past"} for i in (1, 2)}}
    next_one = export_model(network, (torch.tensor(IDS[:, 3:4]), past, past), open_sizes)
    whole, *_ = dmljax.onnx.load(first)(IDS)
    _, *pasts = dmljax.onnx.load(first)(IDS[:, :4])
    logits, *_ = assert_as_onnxruntime(next_one, [IDS[:, 4:], *pasts])
    np.testing.assert_allclose(logits[:, 0], whole[:, 4], rtol=1e-4, atol=1e-5)


class Convolutional(nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions, a residual, a transposed convolution that doubles the image, and poolings."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.GroupNorm(2, 8), nn.SiLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        small = self.deep(nn.functional.max_pool2d(x, 2))
        x = x + self.up(small) + nn.functional.interpolate(small, scale_factor=2, mode="bilinear")
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


IMAGE = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype("float32")


def convolutional() -> bytes:
    return export_model(Convolutional(), (torch.tensor(IMAGE),), {"x0": {0: "batch"}})


def test_a_convolutional_network_equals_onnxruntime() -> None:
    assert_as_onnxruntime(convolutional(), [IMAGE])


def test_a_batch_stays_open_when_a_network_is_exported() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    model = dmljax.onnx.load(export_model(network, (torch.tensor(IMAGE),), {"x0": {0: "batch"}}))
    (batch,) = jax.export.symbolic_shape("b")
    kept = jax.export.export(jax.jit(model))(jax.ShapeDtypeStruct((batch, 3, 8, 8), jnp.float32))
    for count in (1, 2):
        actual = jax.export.deserialize(kept.serialize()).call(IMAGE[:count])
        np.testing.assert_allclose(actual, model(IMAGE[:count]), rtol=1e-5, atol=1e-6)


def test_a_network_is_mapped_and_trained() -> None:
    network = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    x = torch.randn(5, 6)
    model, rows = dmljax.onnx.load(export_model(network, (x,), {"x0": {0: "n"}})), jnp.asarray(x.numpy())
    single = jax.vmap(lambda row: model(row[None])[0])(rows)
    np.testing.assert_allclose(single, model(rows), rtol=1e-5, atol=1e-6)

    @jax.jit
    def loss(weights: Any) -> Any:
        return jnp.mean((model.apply(weights, rows) - 1) ** 2)

    grads = jax.grad(loss)(model.weights)
    weights = jax.tree.map(lambda weight, grad: weight - 0.05 * grad, dict(model.weights), grads)
    assert loss(weights) < loss(model.weights)


def test_a_block_in_half_precision_equals_onnxruntime() -> None:
    network = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.Softmax(-1)).half()
    x = torch.randn(3, 16).half()
    (result,) = assert_as_onnxruntime(export_model(network, (x,)), [x.numpy()], 2e-3)
    assert result.dtype == jnp.float16


def test_a_transformer_encoder_equals_onnxruntime() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    x = torch.randn(2, 5, 8)
    assert_as_onnxruntime(export_model(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (x,)), [x.numpy()])


def test_a_dynamically_quantized_network_equals_onnxruntime(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    x = torch.randn(5, 16)
    (tmp_path / "whole.onnx").write_bytes(export_model(network, (x,), {"x0": {0: "n"}}))
    paths = (tmp_path / "whole.onnx", tmp_path / "small.onnx")
    # In 7 bits: without VNNI, ONNX Runtime saturates sums of two products of whole bytes at 16 bits.
    quantize_dynamic(*paths, weight_type=QuantType.QInt8, reduce_range=True)
    assert_as_onnxruntime(str(tmp_path / "small.onnx"), [x.numpy()])


def test_a_dynamically_quantized_recurrent_network_equals_onnxruntime(tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    x = torch.randn(4, 1, 6)
    (tmp_path / "whole.onnx").write_bytes(export_model(Recurrent(nn.LSTM, bidirectional=True), (x,)))
    paths = (tmp_path / "whole.onnx", tmp_path / "small.onnx")
    quantize_dynamic(*paths, op_types_to_quantize=["LSTM"], reduce_range=True)  # to 7 bits, as above
    assert any(node.op_type == "DynamicQuantizeLSTM" for node in onnx.load(tmp_path / "small.onnx").graph.node)
    assert_as_onnxruntime(str(tmp_path / "small.onnx"), [x.numpy()])


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_a_statically_quantized_network_equals_onnxruntime(tmp_path: Path, form: str) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [{"x0": IMAGE}]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 3), nn.Sigmoid(), nn.Flatten(),
        nn.Linear(16, 5),
    )  # fmt: skip
    (tmp_path / "whole.onnx").write_bytes(export_model(network, (torch.tensor(IMAGE),)))
    paths = (tmp_path / "whole.onnx", tmp_path / "small.onnx")
    quantize_static(*paths, Reader(), quant_format=QuantFormat[form], per_channel=True, reduce_range=True)
    assert_as_onnxruntime(
        str(paths[1]), [IMAGE], 0.02
    )  # one step of 8 bits, because ONNX Runtime may round a tie the other way


def test_models_optimized_by_onnxruntime_load(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(convolutional(), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(tmp_path / "fused.onnx").graph.node
    assert any(node.domain == "com.microsoft" for node in nodes)
    assert_as_onnxruntime(str(tmp_path / "fused.onnx"), [IMAGE])


def test_weights_lie_in_a_file_beside_the_model(tmp_path: Path) -> None:
    model = onnx.load_from_string(convolutional())
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save_model(model, tmp_path / "model.onnx", **options)
    assert (tmp_path / "weights.bin").stat().st_size > 1000
    assert_as_onnxruntime(str(tmp_path / "model.onnx"), [IMAGE])
    with pytest.raises(dmljax.DmlError, match="no folder to read from"):
        dmljax.onnx.load((tmp_path / "model.onnx").read_bytes())


def test_a_spectrogram_of_signals_without_a_last_dimension_equals_onnxruntime() -> None:
    class Spectrogram(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=False)

    x = torch.randn(2, 60)
    assert_as_onnxruntime(export_model(Spectrogram(), (x,)), [x.numpy()])


@SAMPLED
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners"])
@pytest.mark.parametrize("exclude_outside", [0, 1])
def test_a_smoothed_image_has_the_weights_of_its_ratio(coordinates: str, exclude_outside: int) -> None:
    options = {"coordinate_transformation_mode": coordinates, "exclude_outside": exclude_outside}
    node = onnx.helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1, **options)
    output = value("y", FLOAT, [2, 3, 3, 5])
    source = model([node], [value("x", FLOAT, [2, 3, 8, 8])], [output], {"sizes": np.array([2, 3, 3, 5])}, opset=19)
    assert_as_onnxruntime(source.SerializeToString(), [IMAGE])


# Networks whose sizes stay open when they are exported again


class Text(nn.Module):  # type: ignore[misc, name-defined]
    """A text encoder: learned positions, whose numbers are a constant, and a mask of padding."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.tokens, self.places, self.kinds = nn.Embedding(17, 8), nn.Embedding(16, 8), nn.Embedding(2, 8)
        self.register_buffer("numbers", torch.arange(16)[None])
        self.projections, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, ids: Any, mask: Any) -> Any:
        batch, length = ids.shape
        kinds = torch.zeros(ids.shape, dtype=torch.long)
        x = self.norm(self.tokens(ids) + self.places(self.numbers[:, :length]) + self.kinds(kinds))
        parts = self.projections(x).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        lowest = torch.finfo(x.dtype).min
        hidden = (1 - mask[:, None, None, :].expand(batch, 1, length, length).to(x.dtype)) * lowest
        if self.is_causal:
            hidden = hidden + torch.full((length, length), lowest).triu(1)
        scores = parts[0] @ parts[1].transpose(2, 3) / 2 + hidden
        x = self.norm(x + (scores.softmax(-1) @ parts[2]).transpose(1, 2).reshape(batch, length, 8))
        pooled = x[torch.arange(batch), ids.argmax(1)]
        weights = mask[:, :, None].expand(x.shape).to(x.dtype)
        return x, pooled, (x * weights).sum(1) / weights.sum(1)


class Relative(nn.Module):  # type: ignore[misc, name-defined]
    """Attention from a target to a source, with a bias by distance, in buckets that become wider."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.bias = nn.Embedding(17, 8), nn.Embedding(8, 2)

    def forward(self, source: Any, target: Any) -> Any:
        distances = torch.arange(source.shape[1])[None, :] - torch.arange(target.shape[1])[:, None]
        far = 2 + (torch.log(distances.abs().float().clamp(min=1) / 2) * 2).long()
        buckets = torch.where(distances.abs() < 2, distances.abs(), far.clamp(max=3)) + (distances > 0).long() * 4
        key, query = (self.tokens(rows).view(*rows.shape, 2, 4).transpose(1, 2) for rows in (source, target))
        scores = query @ key.transpose(2, 3) + self.bias(buckets).permute(2, 0, 1)[None]
        return (scores.softmax(-1) @ key).transpose(1, 2).flatten(2)


class Waves(nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions of a signal without padding, and one with padding for positions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(1, 4, 10, stride=5), nn.Conv1d(4, 4, 3, stride=2)
        self.places, self.norm = nn.Conv1d(4, 4, 4, padding=2, groups=2), nn.GroupNorm(4, 4)

    def forward(self, x: Any) -> Any:
        x = nn.functional.gelu(self.norm(self.first(x[:, None])))
        x = nn.functional.gelu(self.second(x))
        x = (x + self.places(x)[:, :, :-1]).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Segmenting(nn.Module):  # type: ignore[misc, name-defined]
    """Shrinks an image and resizes it to its original size."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, 2, 1), nn.Conv2d(12, 2, 1)

    def forward(self, x: Any) -> Any:
        resize = nn.functional.interpolate
        large = self.down(x)
        small = nn.functional.max_pool2d(self.deep(large), 3, 2, 1)
        whole = resize(small, size=large.shape[2:], mode="bilinear", align_corners=False)
        doubled = resize(
            resize(small, scale_factor=2, mode="nearest"), size=x.shape[2:], mode="bilinear", align_corners=True
        )
        return self.up(torch.cat([large, whole, doubled], 1)), nn.functional.adaptive_avg_pool2d(large, 1)


def ids(*shape: int) -> Any:
    return torch.randint(0, 17, shape)


# A network, a function from sizes to inputs, the names of its open sizes, and their constraints
BATCH_AND_LENGTH = {0: "batch", 1: "length"}
TEXT = (
    lambda batch, length: (ids(batch, length), (torch.arange(length) < length - 1).long().expand(batch, -1)),
    {"x0": BATCH_AND_LENGTH, "x1": BATCH_AND_LENGTH},
    ["length <= 16"],
)
NETWORKS: dict[str, tuple[Any, Any, Any, Sequence[str]]] = {
    "a text": (lambda: Text(False), *TEXT),
    "a text that looks back": (lambda: Text(True), *TEXT),
    "a language model": (
        Gpt,
        lambda batch, length: (ids(batch, length), *(torch.randn(2, batch, 2, 3, 4) for _ in range(2))),
        {"x0": BATCH_AND_LENGTH, "x1": {1: "batch"}, "x2": {1: "batch"}},
        ["length <= 16"],
    ),
    "relative places": (
        Relative,
        lambda batch, length: (ids(batch, length), ids(batch, 4)),
        {"x0": BATCH_AND_LENGTH, "x1": {0: "batch"}},
        [],
    ),
    "waves": (
        Waves,
        lambda batch, length: (torch.randn(batch, 20 * length),),
        {"x0": BATCH_AND_LENGTH},
        ["length >= 50"],
    ),
    "a recurrent network": (
        lambda: Recurrent(nn.LSTM, bidirectional=True, batch_first=True),
        lambda batch, length: (torch.randn(batch, length, 6),),
        {"x0": BATCH_AND_LENGTH},
        [],
    ),
    "an image": (
        Segmenting,
        lambda batch, length: (torch.randn(batch, 3, 4 * length, 2 * length + 6),),
        {"x0": {0: "batch", 2: "height", 3: "width"}},
        [],
    ),
}


@FULL
@pytest.mark.parametrize("name", few_of(NETWORKS, "a text"))
def test_open_sizes_of_a_network_stay_open(name: str) -> None:
    make, inputs, open_sizes, constraints = NETWORKS[name]
    source = export_model(make(), inputs(2, 5), open_sizes)
    names = [*dict.fromkeys(x for axes in open_sizes.values() for x in axes.values())]
    symbols = dict(zip(names, jax.export.symbolic_shape(", ".join(names), constraints=constraints), strict=True))
    types = []
    for i, x in enumerate(inputs(2, 5)):
        sizes = [symbols.get(open_sizes[f"x{i}"].get(axis), size) for axis, size in enumerate(x.shape)]
        types.append(jax.ShapeDtypeStruct(sizes, x.numpy().dtype))
    call = jax.export.export(jax.jit(dmljax.onnx.load(source)))(*types).call
    for batch, length in ((1, 6), (3, 11)):
        arrays = [x.numpy() for x in inputs(batch, length)]
        results = jax.tree.leaves(call(*arrays))
        for actual, other in zip(results, assert_as_onnxruntime(source, arrays), strict=True):
            np.testing.assert_allclose(actual, other, rtol=1e-5, atol=1e-5)
