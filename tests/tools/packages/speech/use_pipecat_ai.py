# /// script
# dependencies = ["pipecat-ai", "numpy"]
# ///
"""Scores the frames of a voice with its detector."""

import numpy as np
from pipecat.audio.vad.silero import SileroVADAnalyzer

RATE = 16000
time = np.arange(4 * RATE) / RATE
pitch = 120 + 20 * np.sin(2 * np.pi * 3 * time)
phase = 2 * np.pi * np.cumsum(pitch) / RATE
voice = sum(np.sin(k * phase) * np.exp(-((k * pitch - 700) ** 2) / 4e5) for k in range(1, 25))
syllables = np.clip(np.sin(2 * np.pi * 4 * time), 0, 1) * ((time % 4) > 1)
noise = np.random.default_rng(0).normal(size=time.size)
audio = (0.1 * voice * syllables + 0.003 * noise).astype(np.float32)
frames = (audio * 32767).astype(np.int16)

detector = SileroVADAnalyzer(sample_rate=RATE)
detector.set_sample_rate(RATE)
size = detector.num_frames_required()
scores = [detector.voice_confidence(frames[i : i + size].tobytes()) for i in range(0, frames.size - size, size)]
print(np.round(np.array(scores, np.float64).ravel(), 4))
