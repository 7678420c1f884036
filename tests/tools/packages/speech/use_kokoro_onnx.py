# /// script
# dependencies = ["kokoro-onnx", "torch", "numpy"]
# ///
"""Speaks phonemes and a text with a small voice of ours, whole and in windows, with the times of phonemes."""

import warnings

import numpy as np
import torch
from kokoro_onnx import Kokoro


class Voice(torch.nn.Module):
    """Phonemes with a style, which last for a number of frames, to samples."""

    def __init__(self) -> None:
        super().__init__()
        self.phonemes, self.style = torch.nn.Embedding(200, 32), torch.nn.Linear(256, 32)
        self.recurrence = torch.nn.LSTM(32, 16, batch_first=True, bidirectional=True)
        self.durations = torch.nn.Linear(32, 1)
        self.decoder = torch.nn.Sequential(
            torch.nn.Conv1d(32, 32, 3, padding=1), torch.nn.Tanh(), torch.nn.ConvTranspose1d(32, 1, 600, stride=600)
        )

    def forward(
        self, input_ids: torch.Tensor, style: torch.Tensor, speed: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.recurrence(self.phonemes(input_ids) + self.style(style).unsqueeze(1))[0]
        widths = torch.round(torch.sigmoid(self.durations(x)).squeeze(-1) * 5 / speed).clamp(min=1).long().squeeze(0)
        x = torch.repeat_interleave(x.squeeze(0), widths, dim=0)
        return torch.tanh(self.decoder(x.T.unsqueeze(0))).flatten(), widths


torch.manual_seed(0)
example = (torch.arange(12).unsqueeze(0), torch.randn(1, 256), torch.ones(1))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.onnx.export(
        Voice().eval(), example, "voice.onnx", input_names=["input_ids", "style", "speed"],
        output_names=["waveform", "duration"], opset_version=17, dynamo=False,
        dynamic_axes={"input_ids": {1: "tokens"}, "waveform": {0: "samples"}, "duration": {0: "tokens"}},
    )  # fmt: skip
styles = np.random.default_rng(0).normal(size=(510, 1, 256)).astype(np.float32)
with open("voices.bin", "wb") as file:
    np.savez(file, af_small=styles, am_small=styles[::-1])

kokoro = Kokoro("voice.onnx", "voices.bin")
print(kokoro.has_timings, kokoro.get_voices())
for text, options in (
    ("hAlO wIld. rid ræbits rAn.", {"is_phonemes": True, "voice": "af_small"}),
    ("hAlO wIld, and god dA.", {"is_phonemes": True, "voice": "am_small", "speed": 1.5, "trim": False}),
    ("hAlO wIld. " * 40, {"is_phonemes": True, "voice": "af_small", "continuous": True}),
    ("The ship sails at nine.", {"voice": "af_small"}),
):
    samples, rate, timings = kokoro.create_timed(text, **options)
    print(rate, samples.shape, np.round(samples[::9000], 4))
    print([(each.phoneme, f"{each.start:.4f}") for each in timings[:8]])
