"""A small transformer that came from ONNX, and its training: on one device, on a mesh, and in several processes.

`losses_of_processes` starts the processes, on loopback with JAX's own CPU collectives; each of them runs this file.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx.parser
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

import dmljax.onnx

PROCESSES, DEVICES = 2, 4  # of each process
BATCH, LENGTH, WIDTH, TOKENS = 16, 6, 8, 12
TEXT = """
<ir_version: 10, opset_import: ["": 21]>
transformer (int32[batch, 6] ids) => (float[batch, 6, 12] logits)
<int64[4] heads = {0, 0, 2, 4}, int64[3] rows = {0, 0, 8}, float scale = {0.5}>
{
  x = Gather (tokens, ids)
  normal = LayerNormalization (x, norm, shift)
  query_rows = MatMul (normal, query)
  key_rows = MatMul (normal, key)
  value_rows = MatMul (normal, value)
  query_heads = Reshape (query_rows, heads)
  key_heads = Reshape (key_rows, heads)
  value_heads = Reshape (value_rows, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (query_heads)
  k = Transpose <perm = [0, 2, 3, 1]> (key_heads)
  v = Transpose <perm = [0, 2, 1, 3]> (value_heads)
  products = MatMul (q, k)
  scores = Mul (products, scale)
  shares = Softmax (scores)
  means = MatMul (shares, v)
  positions = Transpose <perm = [0, 2, 1, 3]> (means)
  joined = Reshape (positions, rows)
  attended = MatMul (joined, out)
  y = Add (x, attended)
  inner = MatMul (y, up)
  biased = Add (inner, up_bias)
  active = Gelu (biased)
  outer = MatMul (active, down)
  z = Add (y, outer)
  logits = MatMul (z, head)
}
"""
SHAPES = {
    "tokens": (TOKENS, WIDTH),
    **dict.fromkeys(("norm", "shift"), (WIDTH,)),
    **dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH)),
    "up": (WIDTH, 4 * WIDTH),
    "up_bias": (4 * WIDTH,),
    "down": (4 * WIDTH, WIDTH),
    "head": (WIDTH, TOKENS),
}
optimizer = optax.adamw(0.01)


def transformer() -> dmljax.onnx.Model:
    proto, rng = onnx.parser.parse_model(TEXT), np.random.default_rng(0)
    for name, shape in SHAPES.items():
        weight = (rng.standard_normal(shape) / WIDTH**0.5).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return dmljax.onnx.load(proto)


class State(NamedTuple):
    """The state of training between steps."""

    weights: dict[str, jax.Array]
    moments: Any


def step_of(model: dmljax.onnx.Model, dtype: Any) -> Callable[[State, Any, Any], tuple[State, jax.Array]]:
    """A step of training, which computes in `dtype` and keeps the weights in float32."""

    def loss(weights: dict[str, jax.Array], ids: Any, labels: Any) -> jax.Array:
        logits = model.apply({name: weight.astype(dtype) for name, weight in weights.items()}, ids)
        shares = jax.nn.one_hot(labels, TOKENS, dtype=jnp.float32)
        return jnp.mean(optax.softmax_cross_entropy(logits.astype(jnp.float32), shares))

    def step(state: State, ids: Any, labels: Any) -> tuple[State, jax.Array]:
        value, grads = jax.value_and_grad(loss)(state.weights, ids, labels)
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes types, as the tests do not
            updates, moments = optimizer.update(grads, state.moments, state.weights)
        return State(optax.apply_updates(state.weights, updates), moments), value

    return step


def batch(index: int) -> tuple[Any, Any]:
    """Tokens, and the same tokens sorted."""
    ids = np.random.default_rng(index).integers(0, TOKENS, (BATCH, LENGTH)).astype(np.int32)
    return ids, np.sort(ids, axis=1)


def specs_of(model: dmljax.onnx.Model, mesh: Mesh) -> dict[str, P]:
    """The default specs, except for the head: the loss needs all scores of a token."""
    return model.partition(mesh) | {"head": P()}


def losses_on(mesh: Mesh, steps: int = 4, dtype: Any = jnp.float32) -> list[float]:
    """The losses on an explicit mesh with the axes `data` and `model`, whose devices may be in several processes."""
    model, by_batch = transformer(), NamedSharding(mesh, P("data"))
    with jax.set_mesh(mesh):
        weights = model.shard(mesh, specs_of(model, mesh))
        state = State(weights, jax.jit(optimizer.init)(weights))
        step = jax.jit(step_of(model, dtype), donate_argnums=0)
        losses = []
        for i in range(steps):
            arrays = (jax.make_array_from_callback(x.shape, by_batch, x.__getitem__) for x in batch(i))
            state, loss = step(state, *arrays)
            losses.append(float(loss))
    return losses


def losses_of_processes() -> list[list[float]]:
    """The losses that each process sees when they train on one mesh."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    # The tests also run from copies of the package, so pass on the path.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    with tempfile.TemporaryFile("w+") as first, tempfile.TemporaryFile("w+") as second:
        started = [
            subprocess.Popen(
                [sys.executable, __file__, address, str(index)],
                env=environment,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
            for index, printed in enumerate((first, second))
        ]
        try:
            codes = [process.wait(timeout=300) for process in started]
        finally:
            for process in started:
                process.kill()
        outputs = []
        for printed in (first, second):
            printed.seek(0)
            outputs.append(printed.read())
    if any(codes):
        raise RuntimeError("\n".join(outputs))
    return [json.loads(output.splitlines()[-1]) for output in outputs]


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[1], num_processes=PROCESSES, process_id=int(sys.argv[2]))
    print(json.dumps(losses_on(jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2))))
