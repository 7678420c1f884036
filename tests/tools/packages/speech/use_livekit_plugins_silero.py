# /// script
# dependencies = ["livekit-plugins-silero", "livekit-agents", "numpy"]
# ///
"""Hears speech begin and end in a stream of frames, as its voice agents do."""

import asyncio

import numpy as np
from livekit import rtc
from livekit.plugins import silero

RATE = 16000


def recording() -> np.ndarray:
    """Eight seconds in which something like vowels begins and ends."""
    time = np.arange(8 * RATE) / RATE
    pitch = 120 + 20 * np.sin(2 * np.pi * 3 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(k * phase) * np.exp(-((k * pitch - 700) ** 2) / 4e5) for k in range(1, 25))
    syllables = np.clip(np.sin(2 * np.pi * 4 * time), 0, 1) * ((time % 4) > 1.5)
    noise = np.random.default_rng(0).normal(size=time.size)
    return ((0.1 * voice * syllables + 0.003 * noise) * 32767).astype(np.int16)


async def main() -> None:
    detector = silero.VAD.load(activation_threshold=0.3, force_cpu=True)
    stream = detector.stream()
    samples = recording()
    for start in range(0, samples.size - 319, 320):
        stream.push_frame(rtc.AudioFrame(samples[start : start + 320].tobytes(), RATE, 1, 320))
    stream.end_input()
    count = 0
    async for event in stream:
        count += 1
        if event.type.name != "INFERENCE_DONE":
            print(event.type.name, event.samples_index, f"{event.speech_duration:.3f} {event.silence_duration:.3f}")
        elif count % 10 == 0:
            print(f"{event.probability:.4f}")


asyncio.run(main())
