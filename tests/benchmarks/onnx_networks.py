"""PyTorch networks with random weights, each with its inputs and the ONNX model that PyTorch exports."""

import io
import warnings
from collections.abc import Callable
from typing import Any

from workloads import SEED

Make = Callable[[Any], tuple[Any, dict[str, Any]]]


def exported(make: Make) -> tuple[Any, bytes, dict[str, Any]]:
    """The network, its ONNX model with an open batch, and its inputs."""
    import torch

    torch.manual_seed(SEED)
    network, inputs = make(torch)
    names, file = [*inputs], io.BytesIO()
    axes = {name: {0: "batch"} for name in names}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's deprecation warnings
        values = tuple(inputs.values())
        torch.onnx.export(network.eval(), values, file, dynamo=False, input_names=names, dynamic_axes=axes)
    return network, file.getvalue(), inputs


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


def gpt(torch: Any) -> Any:
    nn, width, heads, depth = torch.nn, 256, 8, 4

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.other_norm = nn.LayerNorm(width), nn.LayerNorm(width)
            self.stacked, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            split = self.stacked(self.norm(x)).view(x.shape[0], x.shape[1], 3, heads, -1).permute(2, 0, 3, 1, 4)
            query, key, value = split[0], split[1], split[2]
            scores = query @ key.transpose(-1, -2) / (width // heads) ** 0.5
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], device=scores.device).triu(1) > 0, float("-inf"))
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

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            presents = []
            for layer in self.layers:
                x, present = layer(x)
                presents.append(present)
            return self.head(self.norm(x)), *presents

    return Network(), {"tokens": torch.randint(0, 1000, (1, 64))}


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
