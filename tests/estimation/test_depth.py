"""Deep models cost what two shallow ones of the same layers say."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from small_language_models import write_folder

import dmljax
import dmljax.onnx
from dmljax.command_line.cli import main
from dmljax.directml import InvalidDesc
from dmljax.estimation import Cost, Estimate, NodeCost
from dmljax.estimation.chips import Times
from dmljax.estimation.depth import extrapolate_layers
from dmljax.estimation.targets import MODULES

# JAX 0.12 warns of its own compiler for GPU kernels where XLA calls back to divide one.
pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


@pytest.fixture(autouse=True)
def compilers() -> None:
    for module in MODULES.values():
        pytest.importorskip(module, reason="the extra `accelerators` is not installed")


def perceptron(layers: int, width: int = 256) -> Any:
    weights = ", ".join(f"float[{width}, {width}] w{i}" for i in range(layers))
    nodes = "".join(f"p{i} = MatMul(h{i}, w{i})  h{i + 1} = Tanh(p{i})  " for i in range(layers))
    head = f'<ir_version: 10, opset_import: ["": 21]> f (float[N, {width}] h0) => (float[N, {width}] h{layers})'
    proto = onnx.parser.parse_model(f"{head} <{weights}> {{ {nodes} }}")
    for declared in proto.graph.value_info:
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((width, width), "float32"), declared.name))
    del proto.graph.value_info[:]
    return dmljax.onnx.load(proto)


@pytest.mark.parametrize("options", [{}, {"gradient": True}, {"optimizer": "adamw"}, {"dtype": "bfloat16"}])
def test_costs_of_all_layers_follow_from_those_of_a_few(options: dict[str, Any]) -> None:
    model, x = perceptron(9), jax.ShapeDtypeStruct((64, 256), jnp.float32)
    whole, few = (dmljax.estimate(model, x, target="h100", extrapolate=e, **options) for e in (False, True))
    assert (whole.layers, few.layers) == (0, 9)
    # XLA fuses small kernels of several layers in groups.
    assert few.cost.kernels == pytest.approx(whole.cost.kernels, abs=3)
    assert few.cost.bytes == pytest.approx(whole.cost.bytes, rel=0.06)
    assert few.cost.products == whole.cost.products
    assert few.seconds == pytest.approx(whole.seconds, rel=0.06)
    for name in ("weight_bytes", "state_bytes", "fixed_bytes", "product_seconds", "roof"):
        assert getattr(few, name) == pytest.approx(getattr(whole, name)), name
    assert few.peak_bytes == pytest.approx(whole.peak_bytes, rel=0.05)
    assert "h100: extrapolated to 9 equal layers from models with 2 and 4" in str(few).splitlines()


def test_weights_of_layers_that_are_left_out_may_be_divided() -> None:
    model, x = perceptron(6), jax.ShapeDtypeStruct((64, 256), jnp.float32)
    specs = {name: jax.sharding.PartitionSpec(None, "model") for name in model.weights}
    options: Any = {"target": "h100:2", "mesh": {"data": 1, "model": 2}, "specs": specs}
    whole, few = (dmljax.estimate(model, x, extrapolate=e, **options) for e in (False, True))
    assert few.cost.exchanged == whole.cost.exchanged > 0


def test_a_folder_of_a_language_model_is_extrapolated(tmp_path: Path) -> None:
    folder = str(write_folder(tmp_path, layers=6))
    reports = []
    for options in ([], ["--extrapolate"]):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            arguments = ["estimate", folder, "--for", "h100", "--prompt", "20", "--generate", "10", "--json"]
            assert main([*arguments, *options]) == 0
        reports += json.loads(out.getvalue())
    whole, few = reports
    assert few["cache_bytes"] == whole["cache_bytes"]
    for name in ("prompt_program", "token_program"):
        assert few[name]["cost"]["kernels"] == pytest.approx(whole[name]["cost"]["kernels"], abs=1)
        assert few[name]["weight_bytes"] == whole[name]["weight_bytes"]
    assert few["tokens_per_second"] == pytest.approx(whole["tokens_per_second"], rel=0.01)


def test_models_without_many_equal_layers_are_refused() -> None:
    x = jax.ShapeDtypeStruct((64, 256), jnp.float32)
    for model, count in ((perceptron(4), 4), (jnp.tanh, 0)):
        message = rf"^estimate: extrapolate: needs .* more than 4 equal layers; got {count} \(leave it out\)$"
        with pytest.raises(InvalidDesc, match=message):
            dmljax.estimate(model, x, target="h100", extrapolate=True)


def test_weights_and_inputs_must_be_those_of_the_model() -> None:
    x = jax.ShapeDtypeStruct((64, 256), jnp.float32)
    with pytest.raises(
        InvalidDesc, match="estimate: weights must be left out with extrapolate, because a model has its"
    ):
        dmljax.estimate(perceptron(6), x, target="h100", extrapolate=True, weights={})
    with pytest.raises(InvalidDesc, match="estimate: inputs must be the 1 of the model; got 2"):
        dmljax.estimate(perceptron(6), x, x, target="h100", extrapolate=True)


def test_programs_that_do_not_compile_are_reported() -> None:
    x = jax.ShapeDtypeStruct((2**31, 256), jnp.float32)
    estimate = dmljax.estimate(perceptron(5), x, target="v5e", extrapolate=True)
    assert "memory" in estimate.reason
    assert estimate.layers == 0


def test_shares_are_those_of_the_deeper_model() -> None:
    def made(kernels: int, times: Times) -> Estimate:
        node = NodeCost("layer", sum(times), kernels)
        return Estimate("v5e", 1, "", 2.0, cost=Cost(kernels=kernels), times=times, nodes=(node,))

    estimate = extrapolate_layers(made(5, Times(memory=3.0)), made(7, Times(memory=1.0, arithmetic=4.0)), 10)
    assert (estimate.cost.kernels, estimate.seconds, estimate.compile_seconds) == (13, 11.0, 4.0)
    assert estimate.times == pytest.approx(Times(memory=11 / 5, arithmetic=44 / 5))
