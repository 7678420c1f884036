"""A network from ONNX, trained on a mesh of eight devices and in two processes as it is on one device."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import SAMPLED
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


def trained(state: State, steps: range, dtype: Any, place: Any = None, **options: Any) -> tuple[State, list[float]]:
    """The state after the steps, and the losses; each step reuses the last one's memory."""
    traces: list[int] = []

    def counted(*arguments: Any) -> Any:
        traces.append(len(traces))
        return step_of(MODEL, dtype)(*arguments)

    step, losses = jax.jit(counted, donate_argnums=0, **options), []
    for i in steps:
        before = jax.tree.leaves(state)
        state, loss = step(state, *(x if place is None else jax.device_put(x, place) for x in batch(i)))
        assert all(one.is_deleted() for one in before)
        losses.append(float(loss))
    assert len(traces) == 1
    return state, losses


@SAMPLED
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
def test_eight_devices_train_as_one_does(axis_type: AxisType, dtype: Any) -> None:
    one, expected = trained(fresh(), range(4), dtype)
    mesh = mesh_of(axis_type, data=4, model=2)
    with jax.set_mesh(mesh):
        weights = MODEL.shard(mesh, specs_of(MODEL, mesh))
        state = State(weights, optimizer.init(weights))
        state = jax.tree.map(lambda x: x if x.ndim else jax.device_put(x, NamedSharding(mesh, P())), state)
        shardings = jax.tree.map(lambda x: x.sharding, state)
        # An auto mesh may divide results differently, which would prevent reuse of the arguments' memory.
        kept = {"out_shardings": (shardings, None)} if axis_type is AxisType.Auto else {}
        result, losses = trained(state, range(4), dtype, NamedSharding(mesh, P("data")), **kept)
    np.testing.assert_allclose(losses, expected, rtol=16 * ULP[dtype])
    assert losses[-1] < losses[0]
    for name, weight in result.weights.items():
        assert weight.dtype == jnp.float32
        assert weight.sharding.is_equivalent_to(shardings.weights[name], weight.ndim)
        if dtype == jnp.float32:
            np.testing.assert_allclose(weight, one.weights[name], rtol=1e-4, atol=1e-5)


def test_two_processes_train_as_one_does() -> None:
    expected = losses_on(mesh_of(AxisType.Explicit, data=4, model=2))
    for losses in losses_of_processes():
        np.testing.assert_allclose(losses, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 4), (1, 1)], ids=str)
def test_training_resumes_from_a_checkpoint_on_another_mesh(shape: tuple[int, int], tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("orbax.checkpoint", reason="needs orbax-checkpoint, of the extra notebooks")
    _, expected = trained(fresh(), range(4), jnp.float32)

    def on(mesh: Mesh) -> State:
        weights = MODEL.shard(mesh, specs_of(MODEL, mesh))
        return State(weights, jax.jit(optimizer.init)(weights))

    mesh = mesh_of(AxisType.Explicit, data=4, model=2)
    with jax.set_mesh(mesh):
        state, first = trained(on(mesh), range(2), jnp.float32, NamedSharding(mesh, P("data")))
    with checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", state)
    devices = np.array(jax.devices()[: math.prod(shape)]).reshape(shape)
    other = Mesh(devices, ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(other), checkpoint.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "saved", on(other))
        assert restored.weights["up"].sharding == NamedSharding(other, P(None, "model"))
        _, last = trained(restored, range(2, 4), jnp.float32, NamedSharding(other, P("data")))
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


# Weights of another float type than the file's


def test_weights_of_16_bits_compute_in_16_bits() -> None:
    network = dmljax.onnx.load(small_network())
    half = {name: one.astype(jnp.bfloat16) for name, one in network.weights.items()}
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


def test_mixed_weights_compute_in_the_type_that_differs_from_the_file() -> None:
    weights = MODEL.weights | {"up": MODEL.weights["up"].astype(jnp.bfloat16)}
    ids, _ = batch(0)
    assert MODEL.apply(weights, ids).dtype == jnp.bfloat16
    with pytest.raises(InvalidType, match=r"weights\.up must be of float32, or of float16 as others are; got bfloat16"):
        MODEL.apply(weights | {"key": MODEL.weights["key"].astype(np.float16)}, ids)
