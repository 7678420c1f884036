"""A network from ONNX, trained on a mesh of eight devices and in two processes as it is on one device."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import GATE, SAMPLED, collectives
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from onnx_models import FLOAT, INT64, model as model_of, small_network, value
from trained import State, batch, losses_of_processes, losses_on, optimizer, specs_of, step_of, transformer

import dmljax.onnx
from dmljax.directml import InvalidType

MODEL = transformer()
ULP = {jnp.float32: 2**-23, jnp.bfloat16: 2**-8}


def fresh() -> State:
    weights = jax.tree.map(jnp.copy, MODEL.weights)
    return State(weights, optimizer.init(weights))


def mesh_of(axis_type: AxisType, data: int, model: int) -> Mesh:
    return jax.make_mesh((data, model), ("data", "model"), axis_types=(axis_type,) * 2)


def train(state: State, steps: range, dtype: Any, place: Any = None, **options: Any) -> tuple[State, list[float]]:
    """The state after the steps, and the losses; each step reuses the last one's memory."""
    traces: list[int] = []

    def counted(*arguments: Any) -> Any:
        traces.append(len(traces))
        return step_of(MODEL, dtype)(*arguments)

    step, losses = jax.jit(counted, donate_argnums=0, **options), []
    for i in steps:
        before = jax.tree.leaves(state)
        state, loss = step(state, *(x if place is None else jax.device_put(x, place) for x in batch(i)))
        assert all(leaf.is_deleted() for leaf in before)
        losses.append(float(loss))
    assert len(traces) == 1
    return state, losses


@SAMPLED
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
@GATE
def test_eight_devices_train_as_one_does(axis_type: AxisType, dtype: Any) -> None:
    of_one_device, expected = train(fresh(), range(4), dtype)
    mesh = mesh_of(axis_type, data=4, model=2)
    with jax.set_mesh(mesh):
        weights = MODEL.shard(mesh, specs_of(MODEL, mesh))
        state = State(weights, optimizer.init(weights))
        state = jax.tree.map(lambda x: x if x.ndim else jax.device_put(x, NamedSharding(mesh, P())), state)
        shardings = jax.tree.map(lambda x: x.sharding, state)
        # An auto mesh may divide results differently, which would prevent reuse of the arguments' memory.
        kept = {"out_shardings": (shardings, None)} if axis_type is AxisType.Auto else {}
        result, losses = train(state, range(4), dtype, NamedSharding(mesh, P("data")), **kept)
    np.testing.assert_allclose(losses, expected, rtol=16 * ULP[dtype])
    assert losses[-1] < losses[0]
    for name, weight in result.weights.items():
        assert weight.dtype == jnp.float32
        assert weight.sharding.is_equivalent_to(shardings.weights[name], weight.ndim)
        if dtype == jnp.float32:
            np.testing.assert_allclose(weight, of_one_device.weights[name], rtol=1e-4, atol=1e-5)


@GATE
def test_two_processes_train_as_one_does() -> None:
    expected = losses_on(mesh_of(AxisType.Explicit, data=4, model=2))
    for losses in losses_of_processes():
        np.testing.assert_allclose(losses, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 4), (1, 1)], ids=str)
def test_training_resumes_from_a_checkpoint_on_another_mesh(shape: tuple[int, int], tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("orbax.checkpoint", reason="needs orbax-checkpoint, of the extra notebooks")
    _, expected = train(fresh(), range(4), jnp.float32)

    def on(mesh: Mesh) -> State:
        weights = MODEL.shard(mesh, specs_of(MODEL, mesh))
        return State(weights, jax.jit(optimizer.init)(weights))

    mesh = mesh_of(AxisType.Explicit, data=4, model=2)
    with jax.set_mesh(mesh):
        state, first = train(on(mesh), range(2), jnp.float32, NamedSharding(mesh, P("data")))
    with checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", state)
    devices = np.array(jax.devices()[: math.prod(shape)]).reshape(shape)
    other = Mesh(devices, ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(other), checkpoint.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "saved", on(other))
        assert restored.weights["up"].sharding == NamedSharding(other, P(None, "model"))
        _, last = train(restored, range(2, 4), jnp.float32, NamedSharding(other, P("data")))
    np.testing.assert_allclose(first + last, expected, rtol=2e-6)


@SAMPLED
@pytest.mark.parametrize(
    ("before", "spec", "after", "expected"),
    [
        ((8, 6, 8), P("data", None, "model"), (8, 6, 2, 4), P("data", None, "model")),
        ((8, 6, 2, 4), P("data", None, "model"), (8, 6, 8), P("data", None, "model")),
        ((8, 6, 12), P("data", None, "model"), (8, 6, 3, 4), P("data")),  # queries, keys, values
        ((8, 6, 4), P(None, None, "model"), (8, 24), P()),
        ((8, 6), P("data"), (48,), P("data")),
        ((8, 1, 6), P("data"), (1, 8, 6, 1), P(None, "data")),
    ],
)
def test_a_reshape_keeps_as_much_of_a_sharding_as_possible(before: Any, spec: P, after: Any, expected: P) -> None:
    node = onnx.helper.make_node("Reshape", ["x", "sizes"], ["y"])
    network = dmljax.onnx.load(model_of([node], [value("x", FLOAT, before)], ["y"], {"sizes": np.array(after)}))
    x = np.arange(math.prod(before), dtype=np.float32).reshape(before)
    sharded = jax.device_put(x, NamedSharding(mesh_of(AxisType.Explicit, data=4, model=2), spec))
    result = network(sharded)
    np.testing.assert_array_equal(result, x.reshape(after))
    assert tuple(jax.typeof(result).sharding.spec) == (*expected, *[None] * (len(after) - len(expected)))


def grads_on(mesh: Mesh, text: str, weights: dict[str, Any], specs: dict[str, P], x: Any) -> tuple[Any, Any]:
    """The compiled gradients by the weights of a network whose batch is divided, and the network."""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(weight, name) for name, weight in weights.items())
    network = dmljax.onnx.load(proto)
    grad_of_loss = jax.grad(lambda weights, x: jnp.sum(network.apply(weights, x) ** 2))
    placed = network.shard(mesh, specs)
    places = {name: weight.sharding for name, weight in placed.items()}
    divided = jax.device_put(x, NamedSharding(mesh, P("data")))
    compiled = jax.jit(grad_of_loss, out_shardings=places).lower(placed, divided).compile()
    expected = jax.jit(grad_of_loss)(network.weights, x)
    for name, gradient in compiled(placed, divided).items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-4, atol=1e-4)
    return compiled, network


NORMS_AND_BIASES = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
norms (float[batch, 8, 4, 4] x) => (float[batch, 5] y) <int64[2] rows = {0, -1}>
{
  c = Conv <pads = [1, 1, 1, 1]> (x, filter, bias)
  n = GroupNormalization <num_groups = 2> (c, scale, shift)
  p = PRelu (n, slope)
  q = InstanceNormalization (p, own_scale, own_shift)
  r = Reshape (q, rows)
  s = LayerNormalization (r, row_scale, row_shift)
  t = com.microsoft.BiasGelu (s, row)
  limited = Where (mask, t, other_row)
  y = Gemm (limited, matrix, last)
}
"""


@GATE
def test_norms_and_biases_only_exchange_their_gradients() -> None:
    rng = np.random.default_rng(0)
    sizes = {
        "filter": (8, 8, 3, 3),
        **dict.fromkeys(("bias", "scale", "shift", "own_scale", "own_shift"), (8,)),
        "slope": (8, 1, 1),
        **dict.fromkeys(("row_scale", "row_shift", "row", "other_row"), (128,)),
        "matrix": (128, 5),
        "last": (5,),
    }
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    mask, mesh = {"mask": np.arange(128) % 3 > 0}, mesh_of(AxisType.Explicit, data=8, model=1)
    x = rng.standard_normal((16, 8, 4, 4)).astype(np.float32)
    compiled, network = grads_on(mesh, NORMS_AND_BIASES, weights | mask, {}, x)
    assert [kind for kind, _ in collectives(compiled) if kind != "all-reduce"] == []
    assert sum(size for _, size in collectives(compiled)) == sum(weight.nbytes for weight in network.weights.values())


FIRST_OF_THREE = """
<ir_version: 10, opset_import: ["": 21]>
first (float[batch, 4] x) => (float[batch, 2] y) <int64[3] parts = {0, 3, 2}, int64 number = {0}>
{
  rows = MatMul (x, w)
  three = Reshape (rows, parts)
  y = Gather <axis = 1> (three, number)
}
"""


def test_an_axis_of_one_device_prevents_no_gradient() -> None:
    weights = {"w": np.arange(24, dtype=np.float32).reshape(4, 6)}
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    mesh = mesh_of(AxisType.Explicit, data=8, model=1)
    compiled, _ = grads_on(mesh, FIRST_OF_THREE, weights, {"w": P(None, "model")}, x)
    assert collectives(compiled) == [("all-reduce", 96)]


# Weights of another float type than the file's


def test_weights_of_16_bits_compute_in_16_bits() -> None:
    network = dmljax.onnx.load(small_network())
    half = {name: weight.astype(jnp.bfloat16) for name, weight in network.weights.items()}
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    for result in (network.apply(half, x), jax.jit(network.apply)(half, x)):
        assert result.dtype == jnp.bfloat16
        np.testing.assert_allclose(result.astype(np.float32), network(x), rtol=0.05, atol=0.1)
    network.weights = half
    assert network(x).dtype == jnp.bfloat16


def test_values_independent_of_weights_keep_their_type() -> None:
    # Positions up to 999, which bfloat16 would round, become angles before weights multiply them.
    nodes = [
        onnx.helper.make_node("Cast", ["ids"], ["positions"], to=FLOAT),
        onnx.helper.make_node("Mul", ["positions", "turn"], ["angles"]),
        onnx.helper.make_node("Sin", ["angles"], ["waves"]),
        onnx.helper.make_node("Mul", ["waves", "w"], ["y"]),
    ]
    turn = np.array(2 * np.pi / 1000, np.float32)
    network = dmljax.onnx.load(
        model_of(nodes, [value("ids", INT64, ["n"])], ["y"], {"turn": turn, "w": np.ones(1, np.float32)})
    )
    ids = np.arange(0, 1000, 37)
    result = network.apply(network.weights | {"w": jnp.ones(1, jnp.bfloat16)}, ids)
    np.testing.assert_array_equal(result, np.sin(ids.astype(np.float32) * turn).astype(jnp.bfloat16))


@GATE
def test_mixed_weights_compute_in_the_type_that_differs_from_the_file() -> None:
    weights = MODEL.weights | {"up": MODEL.weights["up"].astype(jnp.bfloat16)}
    ids, _ = batch(0)
    assert MODEL.apply(weights, ids).dtype == jnp.bfloat16
    with pytest.raises(InvalidType, match=r"weights\.up must be of float32, or of float16 as others are; got bfloat16"):
        MODEL.apply(weights | {"key": MODEL.weights["key"].astype(np.float16)}, ids)
