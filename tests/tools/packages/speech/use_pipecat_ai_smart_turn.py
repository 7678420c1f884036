# /// script
# dependencies = ["pipecat-ai", "numpy"]
#
# [tool.dmljax]
# remark = "if features change by 1e-6, ONNX Runtime gives 0.42 to 0.79, and dmljax 0.43 to 0.80"
# ///
"""Guesses with Smart Turn, in 8 bits, whether a speaker is done."""

import numpy as np
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3

RATE = 16000
time = np.arange(4 * RATE) / RATE
pitch = 120 + 20 * np.sin(2 * np.pi * 3 * time)
phase = 2 * np.pi * np.cumsum(pitch) / RATE
voice = sum(np.sin(k * phase) * np.exp(-((k * pitch - 700) ** 2) / 4e5) for k in range(1, 25))
syllables = np.clip(np.sin(2 * np.pi * 4 * time), 0, 1) * ((time % 4) > 1)
noise = np.random.default_rng(0).normal(size=time.size)
audio = (0.1 * voice * syllables + 0.003 * noise).astype(np.float32)

analyzer = LocalSmartTurnAnalyzerV3()
for seconds in (1, 2, 4):
    result = analyzer._predict_endpoint(audio[: seconds * RATE])
    print(seconds, result["prediction"], f"{result['probability']:.5f}")
