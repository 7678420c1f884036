"""Fourier transforms, windows and mel weights."""

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.dimensions import is_symbolic
from dmljax.onnx.graph.reader import dtype_of
from dmljax.onnx.handlers.registry import handles
from dmljax.onnx.handlers.signatures import Known, KnownNumber, Matrices, Vector
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.running.interpreter import promote
from dmljax.onnx.values.types import Array, DType


def _wide(x: Array) -> Array:
    return x.astype(promote(x.dtype, jnp.float32))


def _complex(x: Array) -> Array:
    """Complex numbers from a last dimension of real and imaginary parts, or real numbers if its size is 1."""
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise InvalidDesc(Problem("input", "must have a last dimension of 1 or 2", x.shape))
    x = _wide(x)
    return x[..., 0] if x.shape[-1] == 1 else jax.lax.complex(x[..., 0], x[..., 1])


def _parts(x: Array, dtype: DType) -> Array:
    return jnp.stack([x.real, x.imag], -1).astype(dtype)


def _transform(x: Array, length: Known | None, axis: int, inverse: int, onesided: int) -> Array:
    if axis % x.ndim == x.ndim - 1:
        raise InvalidDesc(Problem("axis", "must not be the last, which holds the real and imaginary parts", axis))
    axis, numbers = normalize_axis(axis, x.ndim), _complex(x)
    count = None if length is None else int(length.item())
    if inverse and onesided:
        return jnp.fft.irfft(numbers, count, axis)[..., None].astype(x.dtype)
    if inverse:
        return _parts(jnp.fft.ifft(numbers, count, axis), x.dtype)
    return _parts(_frequencies(numbers, count, axis, onesided), x.dtype)


def _frequencies(numbers: Array, count: int | None, axis: int, onesided: int) -> Array:
    length = numbers.shape[axis] if count is None else count
    if jnp.iscomplexobj(numbers):
        whole = jnp.fft.fft(numbers, length, axis)
        return jax.lax.slice_in_dim(whole, 0, length // 2 + 1, axis=axis) if onesided else whole
    half = jnp.fft.rfft(numbers, length, axis)
    if onesided:
        return half
    others = jax.lax.slice_in_dim(half, 1, (length + 1) // 2, axis=axis)  # the rest are their conjugates
    return jnp.concatenate([half, jnp.flip(others, axis).conj()], axis)


@handles("DFT", since=20)
def _dft(
    x: Matrices,
    length: KnownNumber | None = None,
    axis: KnownNumber | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    return _transform(x, length, -2 if axis is None else int(axis.item()), inverse, onesided)


@handles("DFT", since=17)
def _dft_of_attribute(
    x: Matrices, length: KnownNumber | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Array:
    return _transform(x, length, axis, inverse, onesided)


@handles("STFT")
def _stft(
    signal: Matrices,
    step: KnownNumber,
    window: Vector | None = None,
    length: KnownNumber | None = None,
    *,
    onesided: int = 1,
) -> Array:
    numbers = (
        _wide(signal) if signal.ndim == 2 else _complex(signal)
    )  # PyTorch omits the last dimension of real signals
    whole, stride = numbers.shape[1], int(step.item())
    window_length = whole if window is None else window.shape[0]
    count = window_length if length is None else int(length.item())
    if stride < 1:
        raise InvalidDesc(Problem("frame_step", "must be at least 1", stride))
    if not 1 <= count <= whole:
        raise InvalidDesc(Problem("frame_length", f"must be in [1, {whole}]", count))
    if window is not None and window_length != count:
        raise InvalidDesc(Problem("window", f"must have {count} elements, like a frame", window_length))
    blocks = (whole - count) // stride + 1
    starts = (jnp if is_symbolic(blocks) else np).arange(blocks) * stride
    places = starts[:, None] + np.arange(count)[None, :]
    frames = numbers[:, places]
    frames = frames if window is None else frames * _wide(window)[None, None]
    return _parts(_frequencies(frames, None, 2, onesided), signal.dtype)


@handles("MelWeightMatrix")
def _mel_weights(
    bins: KnownNumber,
    length: KnownNumber,
    rate: KnownNumber,
    lowest: KnownNumber,
    highest: KnownNumber,
    *,
    output_datatype: int = 1,
) -> Known:
    # Each triangle spans three consecutive frequencies, which are evenly spaced in mels.
    count = int(bins.item())
    for name, number in (("num_mel_bins", bins), ("dft_length", length), ("sample_rate", rate)):
        if number.item() < 1:
            raise InvalidDesc(Problem(name, "must be at least 1", number.item()))
    low, high = (2595 * np.log10(1 + edge.reshape(()).astype(np.float64) / 700) for edge in (lowest, highest))
    mels = low + np.arange(count + 2) * (high - low) / (count + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    places = ((int(length.item()) + 1) * hertz // int(rate.item())).astype(np.int64)
    weights = np.zeros((int(length.item()) // 2 + 1, count))
    for i, (start, middle, end) in enumerate(zip(places, places[1:], places[2:], strict=False)):
        rising = np.arange(start, middle + 1)
        weights[rising, i] = (rising - start) / (middle - start) if middle > start else 1
        falling = np.arange(middle, end)
        weights[falling, i] = (end - falling) / max(end - middle, 1)
    return weights.astype(dtype_of(output_datatype))
