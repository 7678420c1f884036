# /// script
# dependencies = ["silero-vad", "torch", "numpy"]
# ///
"""Finds speech in ten seconds of tones and noise, at 16 and 8 kHz, and in chunks as they come."""

import numpy as np
import torch
from silero_vad import VADIterator, get_speech_timestamps, load_silero_vad


def recording(rate: int) -> torch.Tensor:
    """Ten seconds in which something like vowels begins and ends."""
    time = np.arange(10 * rate) / rate
    pitch = 120 + 20 * np.sin(2 * np.pi * 3 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(k * phase) * np.exp(-((k * pitch - 700) ** 2) / 4e5) for k in range(1, 25))
    syllables = np.clip(np.sin(2 * np.pi * 4 * time), 0, 1) * ((time % 4) > 1.5)
    noise = np.random.default_rng(0).normal(size=time.size)
    return torch.from_numpy((0.1 * voice * syllables + 0.003 * noise).astype(np.float32))


model = load_silero_vad(onnx=True)
for rate in (16000, 8000):
    audio = recording(rate)
    print(rate, get_speech_timestamps(audio, model, sampling_rate=rate, threshold=0.3))
    size = 512 if rate == 16000 else 256
    model.reset_states()
    chunks = [model(audio[start : start + size], rate).item() for start in range(0, 100 * size, size)]
    print(np.round(chunks, 4))
iterator = VADIterator(model, threshold=0.3)
audio = recording(16000)
events = (iterator(audio[start : start + 512], return_seconds=True) for start in range(0, audio.numel() - 512, 512))
print([event for event in events if event])
