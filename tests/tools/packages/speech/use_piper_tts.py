# /// script
# dependencies = ["piper-tts", "torch", "numpy"]
# ///
"""Speaks sentences with a small voice of ours, whose lengths follow from the phonemes as VITS's do."""

import json
import warnings

import numpy as np
import torch
from piper import PiperVoice, SynthesisConfig
from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP

HOP = 64


class Voice(torch.nn.Module):
    """An encoder of phonemes, their durations, frames that repeat them, and a decoder to samples."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.phonemes, self.speakers = torch.nn.Embedding(symbols, 32), torch.nn.Embedding(2, 32)
        self.encoder = torch.nn.Conv1d(32, 32, 5, padding=2)
        self.durations = torch.nn.Conv1d(32, 1, 3, padding=1)
        self.decoder = torch.nn.Sequential(
            torch.nn.ConvTranspose1d(32, 16, 16, stride=8, padding=4), torch.nn.LeakyReLU(0.1),
            torch.nn.ConvTranspose1d(16, 8, 16, stride=8, padding=4), torch.nn.LeakyReLU(0.1),
            torch.nn.Conv1d(8, 1, 7, padding=3), torch.nn.Tanh(),
        )  # fmt: skip

    def forward(
        self, input: torch.Tensor, input_lengths: torch.Tensor, scales: torch.Tensor, sid: torch.Tensor
    ) -> torch.Tensor:
        x = (self.phonemes(input) + self.speakers(sid).unsqueeze(1)).transpose(1, 2)
        mask = (torch.arange(input.shape[1]).unsqueeze(0) < input_lengths.unsqueeze(1)).unsqueeze(1).float()
        x = torch.relu(self.encoder(x * mask)) * mask
        logs = self.durations(x) + torch.randn_like(x[:, :1]) * scales[2]
        widths = torch.ceil(torch.exp(logs) * 3 * scales[1]) * mask
        frames = torch.clamp_min(torch.sum(widths, (1, 2)), 1).long()
        ends = torch.cumsum(widths, -1).squeeze(1)
        places = (
            torch.arange(int(frames.max())).unsqueeze(0) if not torch.jit.is_tracing() else torch.arange(frames.max())
        )
        path = (places.view(1, -1, 1) < ends.unsqueeze(1)) & (
            places.view(1, -1, 1) >= (ends - widths.squeeze(1)).unsqueeze(1)
        )
        x = torch.matmul(path.float(), x.transpose(1, 2)).transpose(1, 2)
        x = x + torch.randn_like(x) * scales[0]
        return self.decoder(x).unsqueeze(1)


symbols = 1 + max(number for numbers in DEFAULT_PHONEME_ID_MAP.values() for number in numbers)
torch.manual_seed(0)
example = (torch.arange(20).unsqueeze(0), torch.tensor([20]), torch.tensor([0.0, 1, 0]), torch.tensor([0]))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.onnx.export(
        Voice(symbols).eval(), example, "voice.onnx", input_names=["input", "input_lengths", "scales", "sid"],
        output_names=["output"], opset_version=15, dynamo=False,
        dynamic_axes={"input": {0: "batch_size", 1: "phonemes"}, "input_lengths": {0: "batch_size"},
                      "output": {0: "batch_size", 3: "time"}},
    )  # fmt: skip
configuration = {
    "audio": {"sample_rate": 16000}, "espeak": {"voice": "en-us"}, "phoneme_type": "espeak", "num_symbols": symbols,
    "num_speakers": 2, "phoneme_id_map": DEFAULT_PHONEME_ID_MAP, "speaker_id_map": {"a": 0, "b": 1}, "hop_length": HOP,
}  # fmt: skip
with open("voice.onnx.json", "w") as file:
    json.dump(configuration, file)

voice = PiperVoice.load("voice.onnx")
for speaker, speed in ((0, 1.0), (1, 1.6)):
    options = SynthesisConfig(speaker_id=speaker, length_scale=speed, noise_scale=0, noise_w_scale=0)
    for chunk in voice.synthesize("Hello, how are you? It is a fine day.", options):
        samples = chunk.audio_float_array
        print("".join(chunk.phonemes), samples.shape, np.round(samples[::400], 4))
