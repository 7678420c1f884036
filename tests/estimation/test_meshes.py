"""Chips that share the work of an ONNX network exchange what the estimate counts."""

import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from dmljax import multihead_attention
from dmljax.lowerings.numbers.few_bits import Division, Weights, multiply_by_weights

for module in ("libtpu", "jax_cuda12_plugin"):
    pytest.importorskip(module, reason="the extra `accelerators` is not installed")
for module in ("torch", "onnxruntime", "onnx", "optax"):
    pytest.importorskip(module, reason="the extra `benchmarks` is not installed")

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
meshes: Any = import_module("meshes")
GPT, LSTM, UNET, RESNET = "GPT of 4 layers", "LSTM of 2 layers", "U-Net", "ResNet-18"


@pytest.fixture(autouse=True)
def as_the_benchmark() -> Iterator[None]:
    """The benchmark's settings: no 64-bit types, JAX's default promotion."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@cache
def use(name: str, target: str, division: str, *, of: int = 0, **options: Any) -> Any:
    *rivals, input = meshes.rivals(name)
    return meshes.use_of(meshes.compiled(rivals[of], input, target, division, **options))


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("name", "target"), [(GPT, "h100:8"), (LSTM, "h100:8"), (UNET, "h100:8"), (GPT, "v5e:4x4"), (LSTM, "v5e:16x16")]
)
def test_nothing_is_exchanged_by_batch(name: str, target: str, axis_type: AxisType) -> None:
    assert use(name, target, meshes.BATCH, gradient=False, axis_type=axis_type).exchanged == 0


@pytest.mark.parametrize(
    ("name", "target", "axis_type"),
    [
        (GPT, "h100:8", AxisType.Auto),
        (LSTM, "v5e:4x4", AxisType.Auto),
        (GPT, "h100:8", AxisType.Explicit),
        *(pytest.param(name, "h100:8", AxisType.Explicit, marks=FULL) for name in (LSTM, UNET, RESNET)),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_gradients_by_batch_exchange_the_bytes_of_the_weights(name: str, target: str, axis_type: AxisType) -> None:
    model, _, _ = meshes.rivals(name)
    weights = sum(weight.nbytes for weight in model.weights.values())
    # Some rows of a table have no gradient, and two biases that are added up have one.
    chips = {"h100:8": 8, "v5e:4x4": 16}[target]
    passed = 2 * (chips - 1) / chips * weights  # around a ring, to add them up and to hand out the sums
    exchanged = use(name, target, meshes.BATCH, gradient=True, axis_type=axis_type).exchanged
    assert 0.99 * passed <= exchanged <= 1.001 * passed


@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        *((RESNET, False), (UNET, True)),
        *(pytest.param(*case, marks=FULL) for case in ((RESNET, True), (UNET, False))),
        *(pytest.param(name, gradient, marks=FULL) for name in (GPT, LSTM) for gradient in (False, True)),
    ],
)
def test_divided_weights_exchange_no_more_on_an_explicit_mesh_than_on_an_auto_one(name: str, gradient: bool) -> None:
    explicit, auto, plain = (
        use(name, "h100:8", meshes.MODEL, of=of, gradient=gradient, axis_type=axis_type).exchanged
        for of, axis_type in ((0, AxisType.Explicit), (0, AxisType.Auto), (1, AxisType.Auto))
    )
    # On an explicit mesh, an LSTM gathers its weights once; on an auto mesh, XLA gathers inputs and states instead.
    assert explicit <= (1.07 if (name, gradient) == (LSTM, False) else 1.05) * min(auto, plain)


@pytest.mark.parametrize(("name", "gradient"), [(GPT, False), (GPT, True), (LSTM, False), (LSTM, True)])
def test_divided_weights_exchange_no_more_than_plain_jax(name: str, gradient: bool) -> None:
    ours, plain = (use(name, "h100:8", meshes.MODEL, of=of, gradient=gradient) for of in (0, 1))
    assert ours.exchanged <= (0.75 if name == LSTM else 1.05) * plain.exchanged
    # Before an LSTM's loop, a chip holds its weights twice: as stored, and as the steps need them.
    assert ours.peak <= {(LSTM, False): 1.11, (LSTM, True): 1.35}.get((name, gradient), 1.05) * plain.peak


def test_tables_are_divided_so_that_they_exchange_least() -> None:
    model, _, input = meshes.rivals(GPT)

    def exchanged(specs: dict[str, P]) -> int:
        other = model._replace(partition=lambda mesh: model.partition(mesh) | specs)
        return int(meshes.use_of(meshes.compiled(other, input, "h100:8", meshes.MODEL, gradient=False)).exchanged)

    tables = "tokens.weight", "places.weight"
    ways = (dict.fromkeys(tables, spec) for spec in (P(), P(meshes.MODEL), P(None, meshes.MODEL)))
    assert exchanged({}) <= 1.05 * min(map(exchanged, ways))


@pytest.mark.parametrize("gradient", [False, True])
def test_an_lstm_by_batch_needs_no_more_memory_than_in_plain_jax(gradient: bool) -> None:
    ours, plain = (use(LSTM, "h100:8", meshes.BATCH, of=of, gradient=gradient) for of in (0, 1))
    assert ours.peak <= 1.05 * plain.peak


def test_nothing_is_exchanged_inside_shard_map() -> None:
    model, _, input = meshes.rivals(GPT)
    mesh = Mesh(np.array(meshes.place_of("h100:8").devices), ("batch",))
    whole, shared = (NamedSharding(mesh, spec) for spec in (P(), P("batch")))
    weights = {
        name: jax.ShapeDtypeStruct(weight.shape, weight.dtype, sharding=whole) for name, weight in model.weights.items()
    }
    x = jax.ShapeDtypeStruct((8, *input.shape[1:]), np.int32, sharding=shared)
    inside = jax.shard_map(model.function, mesh=mesh, in_specs=(P(), P("batch")), out_specs=P("batch"))
    assert meshes.use_of(jax.jit(lambda weights, x: inside(weights, x)[0]).lower(weights, x).compile()).exchanged == 0


def test_operations_with_kernels_compile_for_several_tpus() -> None:
    mesh = Mesh(np.array(meshes.place_of("v5e:2x2").devices).reshape(2, 2), ("data", "model"))

    def array(sizes: tuple[int, ...], dtype: Any, *axes: str | None) -> Any:
        return jax.ShapeDtypeStruct(sizes, dtype, sharding=NamedSharding(mesh, P(*axes)))

    def called(lowered: Any) -> int:
        """The kernels of a program that exchanges nothing."""
        compiled = lowered.compile()
        assert meshes.use_of(compiled).exchanged == 0
        return len(re.findall(r'custom_call_target="tpu_custom_call"', compiled.as_text()))

    x = array((4, 1024, 512), jnp.bfloat16, "data", None, "model")
    attention = partial(multihead_attention, head_count=4, is_causal=True)
    assert called(jax.jit(attention).lower(x, x, x)) == 1
    rows, codes = array((64, 1024), jnp.bfloat16, "data"), array((2048, 32, 16), np.uint8, "model")
    scales, zeros = array((2048, 32), jnp.bfloat16, "model"), array((1, 1), np.uint8)

    def product(rows: Any, *arrays: Any, **options: Any) -> Any:
        return multiply_by_weights(rows, Weights(*arrays), 4, **options)

    by_columns = partial(product, division=Division("data", "model"))
    assert called(jax.jit(by_columns).lower(rows, codes, scales, zeros)) == 1
