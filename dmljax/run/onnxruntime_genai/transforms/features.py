"""Features of recordings: log-mel spectra, as the models that read them were trained with."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmljax.errors import require
from dmljax.text import show

_RATE = 16000  # samples in a second


# Whisper's


def spectrum(samples: Any, attributes: Mapping[str, Any]) -> Any:
    """The squared magnitudes (frequencies, frames) of the samples, with silence at both ends, under a window."""
    size, hop = attributes["n_fft"], attributes["hop_length"]
    length = attributes.get("frame_length", size)
    require("n_fft", length == size, "must be frame_length", size)
    window = np.asarray(attributes["hann_win"], np.float32) if "hann_win" in attributes else _window(length, attributes)
    require("audio", len(samples) >= hop, f"must have at least {hop} samples", len(samples))
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(samples, size // 2), size)[::hop]
    result: Any = np.abs(np.fft.rfft(frames * window)) ** 2
    return result.T.astype(np.float32)


def _window(length: int, attributes: Mapping[str, Any]) -> Any:
    kind = attributes.get("win_fn", "hann")
    require("win_fn", kind in ("hann", "hamming"), "must be hann or hamming", show(kind))
    if kind == "hamming":
        return np.hamming(length).astype(np.float32)
    return (np.sin(np.pi * np.arange(length) / length) ** 2).astype(np.float32)


def log_mel(power: Any, attributes: Mapping[str, Any]) -> Any:
    """The log-mel features (mel bins, frames) of a spectrum, padded or cut to the frames of a chunk."""
    filters = mel_filters(attributes["n_fft"], attributes["n_mel"])
    mel = filters @ power[: filters.shape[1], :-1]
    logs = np.log10(np.maximum(mel, np.float32(1e-10)))
    lowest = logs.max() - np.float32(8)
    features = (np.maximum(logs, lowest) + np.float32(4)) / np.float32(4)
    if attributes.get("no_padding"):
        return features if attributes.get("feature_first", 1) else np.ascontiguousarray(features.T)
    frames = _RATE * attributes["chunk_size"] // attributes["hop_length"]
    padded = np.full((len(features), frames), (lowest + np.float32(4)) / np.float32(4), np.float32)
    padded[:, : min(frames, features.shape[1])] = features[:, :frames]
    return padded


def mel_filters(size: int, bins: int) -> Any:
    """Slaney's filters (mel bins, frequencies): triangles of equal area, linear below 1000 Hz and logarithmic above."""
    frequencies = np.arange(size // 2 + 1) * _RATE / size
    mels = np.linspace(0, 45.245640471924965, bins + 2)
    centers = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mels - 15)))
    left, right = np.diff(centers)[:-1, None], np.diff(centers)[1:, None]
    rising = (frequencies - centers[:-2, None]) / left
    falling = (centers[2:, None] - frequencies) / right
    filters: Any = np.maximum(0, np.minimum(rising, falling)) * (2 / (centers[2:] - centers[:-2]))[:, None]
    return filters.astype(np.float32)


# Phi-4's


def embed_for_phi4(samples: Any, rate: int, attributes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """The log-mel features (frames, mel bins) of samples at 8 or 16 kHz, that all are heard, and their embeddings."""
    require("audio", rate in (8000, 16000), "must have 8000 or 16000 samples in a second", rate)
    suffix = "_8k" if rate == 8000 else ""
    size, length, hop = (attributes[f"stft_normal{suffix}/{name}"] for name in ("n_fft", "frame_length", "hop_length"))
    require("audio", len(samples) >= length, f"must have at least {length} samples", len(samples))
    frames = np.lib.stride_tricks.sliding_window_view(samples, length)[::hop]
    before = np.concatenate([frames[:, :1], frames[:, :-1]], 1)
    emphasized = (frames - np.float32(0.97) * before) * np.float32(2**15)
    window = (0.08 + 0.92 * np.sin(np.pi * np.arange(length) / (length - 1)) ** 2).astype(np.float32)
    power = (np.abs(np.fft.rfft(emphasized * window, size)) ** 2).astype(np.float32)
    filters = _filters_of_phi4(attributes[f"logmel{suffix}/n_fft"], attributes[f"logmel{suffix}/n_mel"])
    if len(filters) > power.shape[1]:  # what is above 4 kHz is silent
        power = np.pad(power[:, : len(filters) - power.shape[1] - 1], ((0, 0), (0, power.shape[1] + 1)))
    features = np.log(np.maximum(power @ filters, np.float32(1)))
    count = -(-len(features) // attributes.get("audio_compression_rate", 8))
    return features, np.ones(len(features), bool), np.array([count])


def _filters_of_phi4(size: int, bins: int) -> Any:
    """Triangles (frequencies, mel bins) of equal height over mels, from 0 to 7689 Hz."""
    frequencies = np.arange(size // 2 + 1) * _RATE / size
    mels, highest = (1127 * np.log(1 + value / 700) for value in (frequencies, 7689.0))
    centers, width = np.linspace(0, highest, bins + 2)[1:-1], highest / (bins + 1)
    filters = np.maximum(0, 1 - np.abs(mels[:, None] - centers) / width)
    filters[0] = filters[int(7689 * size / _RATE + 0.5) :] = 0
    return filters.astype(np.float32)


# Gemma 4's


def log_mel_for_gemma4(samples: Any, attributes: Mapping[str, Any]) -> tuple[Any, Any]:
    """The log-mel features (frames, mel bins) of samples, and that all are heard."""
    rate, bins = attributes.get("sampling_rate", _RATE), attributes.get("feature_size", 128)
    length, hop = (
        round(rate * attributes.get(name, usual) / 1000)
        for name, usual in (("frame_length_ms", 20.0), ("hop_length_ms", 10.0))
    )
    size = 2 ** int(np.ceil(np.log2(length))) * (2 if attributes.get("fft_overdrive") else 1)
    padded = np.pad(samples, (length // 2, 0))
    require("audio", len(padded) > length, f"must have more than {length // 2} samples", len(samples))
    frames = np.lib.stride_tricks.sliding_window_view(padded, length + 1)[::hop]
    emphasis = np.float32(attributes.get("preemphasis", 0))
    if not emphasis:
        frames = frames[:, :-1]
    elif attributes.get("preemphasis_htk_flavor", 1):
        frames = np.concatenate([frames[:, :1] * (1 - emphasis), frames[:, 1:-1] - emphasis * frames[:, :-2]], 1)
    else:
        frames = frames[:, 1:] - emphasis * frames[:, :-1]
    window = (np.sin(np.pi * np.arange(length) / length) ** 2).astype(np.float32)
    magnitudes = np.abs(np.fft.rfft(frames * window, size)).astype(np.float32)
    ends = [attributes.get(name, usual) for name, usual in (("min_frequency", 0.0), ("max_frequency", 8000.0))]
    mel = magnitudes.astype(np.float64) @ _filters_of_gemma4(size, bins, rate, *ends)
    features = np.log(mel.astype(np.float32) + np.float32(attributes.get("mel_floor", 0.001)))
    if "per_bin_mean" in attributes:
        features -= _of_bins("per_bin_mean", attributes, bins)
    if "per_bin_stddev" in attributes:
        deviations = _of_bins("per_bin_stddev", attributes, bins)
        features /= np.where(deviations == 0, np.float32(1), deviations)
    return features, np.ones(len(features), bool)


def _filters_of_gemma4(size: int, bins: int, rate: int, lowest: float, highest: float) -> Any:
    """Triangles (frequencies, mel bins) of equal height over frequencies, whose centers are equally spaced in mels."""
    first, last = (2595 * np.log10(1 + end / 700) for end in (lowest, highest))
    centers = 700 * (10 ** (np.linspace(first, last, bins + 2) / 2595) - 1) * size / rate
    frequencies = np.arange(size // 2 + 1)[:, None]
    rising = (frequencies - centers[:-2]) / np.diff(centers)[:-1]
    falling = (centers[2:] - frequencies) / np.diff(centers)[1:]
    filters: Any = np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
    return filters


def _of_bins(name: str, attributes: Mapping[str, Any], bins: int) -> Any:
    values = np.asarray(attributes[name], np.float32)
    require(name, values.shape == (bins,), f"must have a number for each of {bins} mel bins", values.size)
    return values
