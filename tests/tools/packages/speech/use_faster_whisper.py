# /// script
# dependencies = ["faster-whisper", "numpy"]
# ///
"""Finds speech with the detector that it runs before Whisper."""

import numpy as np
from faster_whisper.vad import VadOptions, collect_chunks, get_speech_timestamps, get_vad_model

RATE = 16000
time = np.arange(20 * RATE) / RATE
pitch = 150 + 30 * np.sin(2 * np.pi * 2 * time)
phase = 2 * np.pi * np.cumsum(pitch) / RATE
voice = sum(np.sin(k * phase) * np.exp(-((k * pitch - 600) ** 2) / 3e5) for k in range(1, 25))
syllables = np.clip(np.sin(2 * np.pi * 4 * time), 0, 1) * ((time % 5) > 2)
audio = (0.1 * voice * syllables + 0.003 * np.random.default_rng(0).normal(size=time.size)).astype(np.float32)

for threshold in (0.5, 0.2, 0.05):
    spans = get_speech_timestamps(audio, VadOptions(threshold=threshold, min_silence_duration_ms=300))
    chunks, parts = collect_chunks(audio, spans)
    print(threshold, spans, [len(chunk) for chunk in chunks], parts)
model = get_vad_model()
print(np.round(model(audio[: 512 * 100]).ravel(), 4))
