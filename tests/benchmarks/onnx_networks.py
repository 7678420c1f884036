"""ONNX models beside ONNX Runtime: networks that PyTorch exports, with random weights, and models of packages.

`python tests/benchmarks/onnx_networks.py` prints, for each, what loading and the first call take, the medians of
interleaved calls, and how vmap over 32 inputs compares with a batch of 32. Words choose models.
"""

import importlib.util
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
from timing import Effort, medians

import dmljax.onnx

EFFORT = Effort(rounds=5, block_seconds=0.3)


def main(words: list[str]) -> None:
    """Prints a line for each model, and the geometric mean of the ratios."""
    ratios = []
    print(
        f"{'model':20} {'load s':>8} {'first s':>8} {'ms':>9} {'ORT ms':>9} {'x ORT':>7} {'vmap 32':>8} {'differs':>9}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MODELS.items():
            if words and not any(word in name for word in words):
                continue
            made = make(Path(folder) / f"{name}.onnx")
            if made is None:
                print(f"{name:20} its package is not here")
                continue
            ratios.append(_report(name, *made))
    print(f"geometric mean: {np.exp(np.mean(np.log(ratios))):.2f} x ONNX Runtime")


def _report(name: str, path: Path, inputs: dict[str, Any]) -> float:
    start = time.perf_counter()
    model = dmljax.onnx.load(path)
    loaded = time.perf_counter() - start
    arrays = {key: jax.numpy.asarray(value) for key, value in inputs.items()}
    ordered = [arrays[one.name] for one in model.inputs]
    start = time.perf_counter()
    first = jax.block_until_ready(model(*ordered))
    compiled = time.perf_counter() - start
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    results = first if isinstance(first, tuple) else (first,)
    difference = max(
        float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)), initial=0))
        for a, b in zip(results, expected, strict=True)
    )
    rivals = {"own": lambda: jax.block_until_ready(model(*ordered)), "other": lambda: session.run(None, inputs)}
    own, other = medians(rivals, EFFORT).values()
    mapped = _mapped(model, ordered)
    spelled = f"{mapped:8.2f}" if mapped else f"{'-':>8}"
    numbers = f"{loaded:8.2f} {compiled:8.2f} {own * 1e3:9.3f} {other * 1e3:9.3f} {other / own:7.2f}"
    print(f"{name:20} {numbers} {spelled} {difference:9.1e}", flush=True)
    return other / own


def _mapped(model: Any, inputs: list[Any]) -> float | None:
    """The time of a batch of 32 over that of vmap over 32 inputs, where the batch is open and the only input."""
    sizes = model.inputs[0].sizes
    if len(inputs) != 1 or not sizes or isinstance(sizes[0], int) or (inputs[0].ndim == 4 and inputs[0].size > 1e5):
        return None
    batch = jax.numpy.stack([inputs[0]] * 32)
    mapped = jax.jit(jax.vmap(model))
    whole = batch.reshape(-1, *batch.shape[2:])
    jax.block_until_ready((mapped(batch), model(whole)))
    rivals = {
        "vmap": lambda: jax.block_until_ready(mapped(batch)),
        "batch": lambda: jax.block_until_ready(model(whole)),
    }
    by_vmap, by_batch = medians(rivals, EFFORT).values()
    return by_batch / by_vmap


Made = tuple[Path, dict[str, Any]] | None


def _exported(make: Callable[[Any], tuple[Any, dict[str, Any]]], *, is_open: bool = True) -> Callable[[Path], Made]:
    """A network of PyTorch in a file, and its inputs; the batch is open, unless it says otherwise."""

    def write(path: Path) -> Made:
        import torch

        torch.manual_seed(2021)
        network, inputs = make(torch)
        names = [*inputs]
        axes = {name: {0: "batch"} for name in names} if is_open else None
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of the exporter, about itself
            values = tuple(inputs.values())
            torch.onnx.export(network.eval(), values, path, dynamo=False, input_names=names, dynamic_axes=axes)
        return path, {name: value.numpy() for name, value in inputs.items()}

    return write


def resnet(torch: Any) -> Any:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
            self.norm = nn.BatchNorm2d(outputs)
            self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.other_norm = nn.BatchNorm2d(outputs)
            self.short = nn.Identity()
            if stride > 1:
                self.short = nn.Sequential(nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            y = self.other_norm(self.second(torch.relu(self.norm(self.first(x)))))
            return torch.relu(y + self.short(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, outputs, stride), Block(outputs, outputs, 1)]
        channels = outputs
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return network, {"x": torch.randn(1, 3, 224, 224)}


def unet(torch: Any) -> Any:
    nn = torch.nn

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([nn.Conv2d(a, b, 3, 1, 1) for a, b in ((3, 16), (16, 32), (32, 64))])
            self.up = nn.ModuleList([nn.Conv2d(a, b, 3, 1, 1) for a, b in ((96, 32), (48, 16))])
            self.last = nn.Conv2d(16, 2, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for i, layer in enumerate(self.down):
                x = torch.relu(layer(x if i == 0 else nn.functional.max_pool2d(x, 2)))
                kept.append(x)
            for layer, other in zip(self.up, kept[-2::-1], strict=True):
                x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
                x = torch.relu(layer(torch.cat([x, other], 1)))
            return self.last(x)

    return Network(), {"x": torch.randn(1, 3, 128, 128)}


def gpt(with_past: bool) -> Callable[[Any], Any]:
    def make(torch: Any) -> Any:
        nn, width, heads, depth = torch.nn, 256, 8, 4

        class Layer(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.other_norm = nn.LayerNorm(width), nn.LayerNorm(width)
                self.stacked, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x: Any, past: Any) -> Any:
                split = self.stacked(self.norm(x)).view(x.shape[0], x.shape[1], 3, heads, -1).permute(2, 0, 3, 1, 4)
                query, key, value = split[0], split[1], split[2]
                if past is not None:
                    key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
                scores = query @ key.transpose(-1, -2) / (width // heads) ** 0.5
                if past is None:
                    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1) > 0, float("-inf"))
                mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape)
                x = x + self.out(mixed)
                x = x + self.narrow(nn.functional.gelu(self.wide(self.other_norm(x))))
                return x, torch.stack([key, value])

        class Network(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.tokens, self.places = nn.Embedding(1000, width), nn.Embedding(128, width)
                self.layers = nn.ModuleList([Layer() for _ in range(depth)])
                self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000, bias=False)

            def forward(self, tokens: Any, *pasts: Any) -> Any:
                start = pasts[0].shape[3] if pasts else 0
                x = self.tokens(tokens) + self.places(torch.arange(start, start + tokens.shape[1]))
                presents = []
                for i, layer in enumerate(self.layers):
                    x, present = layer(x, pasts[i] if pasts else None)
                    presents.append(present)
                return self.head(self.norm(x)), *presents

        tokens = torch.randint(0, 1000, (1, 1 if with_past else 64))
        pasts = {f"past_{i}": torch.randn(2, 1, heads, 63, width // heads) for i in range(depth)}
        return Network(), {"tokens": tokens, **(pasts if with_past else {})}

    return make


def recurrent(kind: str) -> Callable[[Any], Any]:
    def make(torch: Any) -> Any:
        class Network(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = getattr(torch.nn, kind)(64, 128, 2, batch_first=True, bidirectional=True)
                self.head = torch.nn.Linear(256, 10)

            def forward(self, x: Any) -> Any:
                return self.head(self.inner(x)[0])

        return Network(), {"x": torch.randn(1, 50, 64)}

    return make


def _half(torch: Any) -> Any:
    nn = torch.nn
    network = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.Softmax(-1))
    return network.half(), {"x": torch.randn(16, 256).half()}


def _perceptron(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)), {
        "x": torch.randn(8, 256)
    }


def _small_convolutions(torch: Any) -> Any:
    nn = torch.nn
    layers = [nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)), {
        "x": torch.randn(1, 3, 32, 32)
    }


def _quantized(make: Callable[[Any], Any], *, is_dynamic: bool) -> Callable[[Path], Made]:
    """A network as ONNX Runtime quantizes it: its weights alone, or all tensors by pairs of quantizing nodes."""

    def write(path: Path) -> Made:
        from onnxruntime import quantization

        plain = path.with_suffix(".plain.onnx")
        made = _exported(make)(plain)
        assert made is not None
        inputs = made[1]

        class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.rows: Iterator[Any] = iter([inputs])

            def get_next(self) -> Any:
                return next(self.rows, None)

        if is_dynamic:
            quantization.quantize_dynamic(plain, path)
        else:
            quantization.quantize_static(plain, path, Reader(), quant_format=quantization.QuantFormat.QDQ)
        return path, inputs

    return write


def _of_package(package: str, file: str, **inputs: Any) -> Callable[[Path], Made]:
    def find(path: Path) -> Made:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            return None
        return Path(spec.submodule_search_locations[0]) / file, inputs

    return find


def _picture(*sizes: int) -> Any:
    return np.random.default_rng(0).random(sizes, np.float32)


MODELS: dict[str, Callable[[Path], Made]] = {
    "resnet18": _exported(resnet),
    "unet": _exported(unet),
    "gpt": _exported(gpt(False)),
    "gpt_with_past": _exported(gpt(True), is_open=False),
    "lstm": _exported(recurrent("LSTM")),
    "gru": _exported(recurrent("GRU")),
    "half": _exported(_half),
    "quantized_dynamically": _quantized(_perceptron, is_dynamic=True),
    "quantized_in_pairs": _quantized(_small_convolutions, is_dynamic=False),
    "ocr_detection": _of_package(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", x=_picture(1, 3, 320, 320)
    ),
    "ocr_recognition": _of_package(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", x=_picture(1, 3, 48, 320)
    ),
    "ocr_orientation": _of_package(
        "rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", x=_picture(1, 3, 48, 192)
    ),
    "silero_vad": _of_package(
        "silero_vad",
        "data/silero_vad.onnx",
        input=_picture(1, 576),
        state=np.zeros((2, 1, 128), np.float32),
        sr=np.array(16000),
    ),
}

if __name__ == "__main__":
    main(sys.argv[1:])
