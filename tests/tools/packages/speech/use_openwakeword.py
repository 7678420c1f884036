# /// script
# dependencies = ["openwakeword", "torch", "numpy"]
# ///
"""Listens for two wake words in a stream, with small networks of ours for spectra, features and words."""

import warnings

import numpy as np
import torch
from openwakeword.model import Model

torch.manual_seed(0)


class Spectra(torch.nn.Module):
    """The logarithm of the energy in 32 bands of frames of 25 ms."""

    def __init__(self) -> None:
        super().__init__()
        time = torch.arange(512) / 16000
        waves = [
            wave(2 * torch.pi * hertz * time)
            for hertz in torch.linspace(100, 7000, 32)
            for wave in (torch.sin, torch.cos)
        ]
        self.register_buffer("waves", (torch.stack(waves) * torch.hann_window(512) / 512).unsqueeze(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = torch.conv1d(x.unsqueeze(1), self.waves, stride=160)
        energy = (parts**2).unflatten(1, (32, 2)).sum(2)
        return (10 * torch.log10(energy.clamp(min=1e-10))).transpose(1, 2).unsqueeze(1)


features = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 5, stride=4), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
    torch.nn.Linear(8 * 9 * 3, 96), torch.nn.Unflatten(1, (1, 1, 96)),
)  # fmt: skip


class Features(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.permute(0, 3, 1, 2))


def word() -> torch.nn.Module:
    layers = [torch.nn.Flatten(), torch.nn.Linear(16 * 96, 16), torch.nn.LayerNorm(16), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(16, 1), torch.nn.Sigmoid())


def export(network: torch.nn.Module, example: torch.Tensor, name: str, argument: str, axes: dict[int, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(), (example,), f"{name}.onnx", input_names=[argument], opset_version=13, dynamo=False,
            dynamic_axes={argument: axes},
        )  # fmt: skip


export(Spectra(), torch.randn(1, 1760), "spectra", "input", {0: "batch", 1: "samples"})
export(Features(), torch.randn(1, 76, 32, 1), "features", "input_1", {0: "batch"})
for name in ("hello", "ahoy"):
    export(word(), torch.randn(1, 16, 96), name, "onnx::Flatten_0", {})

np.random.seed(0)  # its features begin with those of random sound
model = Model(
    wakeword_models=["hello.onnx", "ahoy.onnx"],
    inference_framework="onnx",
    melspec_model_path="spectra.onnx",
    embedding_model_path="features.onnx",
)
time = np.arange(3 * 16000) / 16000
noise = np.random.default_rng(0).normal(size=time.size)
sound = (6000 * np.sin(2 * np.pi * (300 + 200 * time) * time) + 300 * noise).astype(np.int16)
for start in range(0, sound.size, 1280):
    print({name: f"{score:.6f}" for name, score in model.predict(sound[start : start + 1280]).items()})
