# /// script
# dependencies = ["onnx-asr", "torch", "numpy"]
#
# [tool.dmljax]
# tolerance = 1e-3
# remark = "its features are those of its NumPy version to 2e-4 on ONNX Runtime, and to 1.4e-4 on dmljax"
# ///
"""Recognizes speech with its preprocessors and small CTC and transducer models of ours from folders."""

import json
import warnings
from pathlib import Path

import numpy as np
import onnx_asr
import torch

LETTERS = ["<unk>", *"▁abcdefghijklmnopqrstuvwxyz'", "<blk>"]
RATE = 16000


class Encoder(torch.nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv1d(80, 48, 5, stride=4, padding=2),
            torch.nn.SiLU(),
            torch.nn.Conv1d(48, 48, 3, stride=2, padding=1),
        )
        self.norm, self.linear = torch.nn.LayerNorm(48), torch.nn.Linear(48, outputs)

    def forward(self, audio_signal: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        mask = (torch.arange(audio_signal.shape[2]).unsqueeze(0) < length.unsqueeze(1)).unsqueeze(1)
        x = self.layers(audio_signal * mask).transpose(1, 2)
        return torch.log_softmax(4 * self.linear(self.norm(x)), -1)


class Listener(Encoder):
    def forward(self, audio_signal: torch.Tensor, length: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(audio_signal, length).transpose(1, 2), torch.div(
            length - 1, 8, rounding_mode="floor"
        ) + 1


class Joint(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = torch.nn.Embedding(len(LETTERS), 24)
        self.recurrence = torch.nn.LSTM(24, 24)
        self.linear = torch.nn.Linear(40 + 24, len(LETTERS))

    def forward(self, encoder_outputs, targets, target_length, input_states_1, input_states_2):
        x, (h, c) = self.recurrence(self.letters(targets.long()).transpose(0, 1), (input_states_1, input_states_2))
        x = torch.cat([encoder_outputs.transpose(1, 2), x.transpose(0, 1)], -1)
        return 6 * self.linear(x).unsqueeze(1), target_length, h, c


def export(network: torch.nn.Module, example: tuple[torch.Tensor, ...], path: Path, **names: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.eval(), example, str(path), opset_version=17, dynamo=False, **names)


def write_folder(name: str) -> Path:
    folder = Path(name)
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{letter} {i}\n" for i, letter in enumerate(LETTERS)))
    (folder / "config.json").write_text(json.dumps({"model_type": name, "features_size": 80, "subsampling_factor": 8}))
    return folder


torch.manual_seed(0)
features = (torch.randn(1, 80, 96), torch.tensor([96]))
axes = {"audio_signal": {0: "batch", 2: "frames"}, "length": {0: "batch"}}
inputs = ["audio_signal", "length"]
folder = write_folder("nemo-conformer-ctc")
export(
    Encoder(len(LETTERS)),
    features,
    folder / "model.onnx",
    input_names=inputs,
    output_names=["logprobs"],
    dynamic_axes=axes,
)
folder = write_folder("nemo-conformer-rnnt")
outputs = ["outputs", "encoded_lengths"]
export(
    Listener(40), features, folder / "encoder-model.onnx", input_names=inputs, output_names=outputs, dynamic_axes=axes
)
state = torch.zeros(1, 1, 24)
export(
    Joint(),
    (torch.randn(1, 40, 1), torch.ones(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32), state, state),
    folder / "decoder_joint-model.onnx",
    input_names=["encoder_outputs", "targets", "target_length", "input_states_1", "input_states_2"],
    output_names=["outputs", "prednet_lengths", "output_states_1", "output_states_2"],
)

time = np.arange(3 * RATE) / RATE
noise = np.random.default_rng(0).normal(size=time.size)
sound = (0.3 * np.sin(2 * np.pi * (200 + 300 * time) * time) * (np.sin(9 * time) > 0) + 0.01 * noise).astype(np.float32)
for name in ("nemo-conformer-ctc", "nemo-conformer-rnnt"):
    model = onnx_asr.load_model(name, name)
    print(model.recognize(sound), model.recognize([sound[:RATE], sound[5000:]]))
    print(onnx_asr.load_model(name, name).with_timestamps().recognize(sound[: 2 * RATE], sample_rate=8000))
