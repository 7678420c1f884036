"""Operators that draw random numbers with `jax.random` keys; other runtimes draw different numbers."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.graph.graph import Node
from dmljax.onnx.graph.reader import dtype_of
from dmljax.onnx.handlers.registry import NodeCall, handles, handles_contrib
from dmljax.onnx.handlers.signatures import Kept, Matrix, Wanted
from dmljax.onnx.nodes.numbers.elementwise import add_arrays
from dmljax.onnx.running.interpreter import promote
from dmljax.onnx.values.types import Array, DType, Tensor


def _always(node: Node) -> bool:
    return True


def _dtype(number: int | None, like: DType) -> DType:
    """The type that an attribute selects, in JAX's precision."""
    return jax.dtypes.canonicalize_dtype(like if number is None else dtype_of(number))


def _normal(call: NodeCall, seed: float | None, shape: Sequence[int], dtype: DType, mean: float, scale: float) -> Array:
    numbers: Array = jax.random.normal(call.key(seed), tuple(shape), dtype)
    return numbers * jnp.asarray(scale, dtype) + jnp.asarray(mean, dtype)


@handles("RandomNormal", draws=_always)
def _random_normal(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    call: NodeCall,
) -> Array:
    return _normal(call, seed, shape, _dtype(dtype, np.dtype(np.float32)), mean, scale)


@handles("RandomNormalLike", draws=_always)
def _random_normal_like(
    x: Kept,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    call: NodeCall,
) -> Array:
    return _normal(call, seed, x.shape, _dtype(dtype, x.dtype), mean, scale)


@handles("RandomUniform", draws=_always)
def _random_uniform(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    call: NodeCall,
) -> Array:
    draw_type = _dtype(dtype, np.dtype(np.float32))
    return jax.random.uniform(call.key(seed), tuple(shape), draw_type, low, high)


@handles("RandomUniformLike", draws=_always)
def _random_uniform_like(
    x: Kept, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None, call: NodeCall
) -> Array:
    return jax.random.uniform(call.key(seed), x.shape, _dtype(dtype, x.dtype), low, high)


@handles("Bernoulli", draws=_always)
def _bernoulli(x: Array, *, dtype: int | None = None, seed: float | None = None, call: NodeCall) -> Array:
    drawn: Array = jax.random.bernoulli(call.key(seed), x.astype(promote(x.dtype, np.float32)))
    return drawn.astype(_dtype(dtype, x.dtype))


@handles("Multinomial", draws=_always)
def _multinomial(
    x: Matrix, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, call: NodeCall
) -> Array:
    drawn: Array = jax.random.categorical(call.key(seed), x, shape=(sample_size, x.shape[0]))
    return drawn.T.astype(_dtype(dtype, np.dtype(np.int32)))


# Outside training, Dropout returns its input, and a mask that is all true.


def _pass_through(x: Array) -> tuple[Array, Array]:
    return dmljax.activation_identity(x), jnp.ones(x.shape, bool)


def may_drop(node: Node, place: int = 2) -> bool:
    """Whether a node has the input that enables training."""
    return len(node.inputs) > place and bool(node.inputs[place])


@handles("Dropout", since=12, draws=may_drop)
def dropout(
    x: Array,
    ratio: Wanted | None = None,
    training_mode: Wanted | None = None,
    *,
    seed: int | None = None,
    call: NodeCall,
) -> tuple[Array, Array]:
    """Drops a random share of the elements; also returns the mask of those that are kept."""
    share: Tensor = np.array(0.5, np.float32) if ratio is None else ratio.reshape(())
    if isinstance(share, np.ndarray) and not 0 <= share < 1:
        raise InvalidDesc(Problem("ratio", "must be in [0, 1)", share))
    if _is_none(training_mode) or _is_none(share):
        return _pass_through(x)
    wide = promote(x.dtype, np.float32)
    share = jnp.where(jnp.asarray(training_mode).reshape(()), jnp.asarray(share, wide), 0)
    mask: Array = jax.random.bernoulli(call.key(seed), 1 - share, x.shape)
    return jnp.where(mask, (x / (1 - share)).astype(x.dtype), jnp.zeros((), x.dtype)), mask


def _is_none(value: Tensor | None) -> bool:
    """Whether a value is absent, or known to be zero or false."""
    return value is None or (isinstance(value, np.ndarray) and not value.any())


@handles("Dropout", since=1)
def _dropout_of_attributes(x: Array, *, is_test: int = 0, ratio: float = 0.5) -> tuple[Array, Array]:
    return _pass_through(x)


@handles_contrib("BiasDropout", draws=lambda node: may_drop(node, 4))
def _dropout_of_sum(
    x: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Wanted | None = None,
    training_mode: Wanted | None = None,
    *,
    seed: int | None = None,
    call: NodeCall,
) -> tuple[Array, Array]:
    dropped, mask = dropout(add_arrays(x, bias), ratio, training_mode, seed=seed, call=call)
    return add_arrays(dropped, residual), mask
