"""Programs are estimated for chips that are not here, and the table says what costs most."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import f32

import dmljax
from dmljax import directml
from dmljax.estimation import Cost, Estimate, NodeCost
from dmljax.estimation.programs import node_of
from dmljax.estimation.targets import Times


@pytest.fixture
def compilers() -> None:
    for module in ("libtpu", "jax_cuda12_plugin"):
        pytest.importorskip(module, reason="the extra `accelerators` is not installed")


def array(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def layer(weights: Any, x: Any) -> Any:
    return jnp.tanh(x @ weights["w"])


WEIGHTS = {"w": array(256, 512)}
N = np.arange(8, dtype=np.int32)


@pytest.mark.parametrize(("target", "devices"), [("h100", 1), ("h100:8", 8), ("v5e", 1), ("v5e:2x2", 4)])
@pytest.mark.usefixtures("compilers")
def test_each_chip_has_all_weights_and_its_part_of_the_inputs(target: str, devices: int) -> None:
    found = dmljax.estimate(layer, array(64, 256), target=target, weights=WEIGHTS)
    assert (found.target, found.devices, found.reason) == (target, devices, "")
    assert found.weight_bytes == 256 * 512 * 4
    assert found.weight_bytes + 64 * (256 + 512) * 4 // devices <= found.peak_bytes < found.memory_bytes
    assert found.cost.products == 2 * 64 * 256 * 512 // devices
    assert found.cost.exchanged == 0
    assert 1e-7 < found.seconds < 1e-4
    assert any("dot_general" in node.name for node in found.nodes)
    assert sum(node.seconds for node in found.nodes) == pytest.approx(found.seconds)


@pytest.mark.usefixtures("compilers")
def test_the_gradient_of_weights_is_exchanged() -> None:
    weights = {"w": array(1024, 1024)}
    found = dmljax.estimate(layer, array(64, 1024), target="h100:4", weights=weights, gradient=True)
    assert found.cost.exchanged == found.weight_bytes
    assert found.cost.products == 2 * (2 * 64 * 1024 * 1024) // 4
    assert found.times.exchange > 0


@pytest.mark.usefixtures("compilers")
def test_a_function_without_weights_is_derived_by_its_inputs() -> None:
    plain = dmljax.estimate(lambda n, x: jnp.sin(x) * n.astype(x.dtype), N, array(8), target="h100", gradient=True)
    assert (plain.weight_bytes, plain.cost.kernels) == (0, 1)


@pytest.mark.usefixtures("compilers")
def test_the_nodes_of_a_graph_go_by_their_names() -> None:
    graph = directml.Graph(
        nodes={
            "sum[0]": directml.ElementWiseAddDesc(a=f32(64, 64), b=f32(64, 64), output=f32(64, 64)),
            "/head/softmax": directml.ActivationSoftmaxDesc(input=f32(64, 64), output=f32(64, 64)),
        },
        edges={"sum[0].a": "x", "sum[0].b": "bias", "/head/softmax.input": "sum[0].output"},
        inputs={"x": f32(64, 64)},
        constants={"bias": np.ones((64, 64), "float32")},
        outputs={"y": "/head/softmax.output"},
    )
    found = dmljax.estimate(graph, target="h100")
    assert found.weight_bytes == 64 * 64 * 4
    assert {node.name for node in found.nodes} & {"sum[0]", "/head/softmax"}
    softmax = directml.ActivationSoftmaxDesc(input=f32(64, 64), output=f32(64, 64))
    assert dmljax.estimate(softmax, target="h100").cost.kernels == 1


@pytest.mark.usefixtures("compilers")
def test_what_does_not_compile_says_why() -> None:
    found = dmljax.estimate(lambda x: jnp.linalg.eig(x)[0], array(8, 8), target="v5e")
    assert found.reason
    assert str(found).splitlines()[1].split() == ["compiles", "no"]
    assert f"v5e does not compile: {found.reason}" in str(found).splitlines()


@pytest.mark.usefixtures("compilers")
def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(
        directml.InvalidDesc,
        match=r"estimate: inputs\[0\] must have a first dimension that 8 devices can share; got \(12, 256\) "
        r"\(a batch of 8, or target='h100'\)",
    ):
        dmljax.estimate(layer, array(12, 256), target="h100:8", weights=WEIGHTS)


def test_an_unknown_chip_is_refused() -> None:
    with pytest.raises(
        directml.InvalidDesc, match=r"estimate: target must be h100, .*; got 'v5ee', did you mean v5e\?"
    ):
        dmljax.estimate(jnp.sin, array(8), target="v5ee")


@pytest.mark.parametrize(
    ("op_name", "node"),
    [
        ("jit(f)/[/layer1/conv]/Conv/conv_general_dilated", "/layer1/conv"),
        ("jit(f)/transpose(jvp([a[0] b]))/while/body/[inner]/add", "a[0] b"),
        ("jit(f)/jit(main)/transpose(jvp(attention))/dot_general", "attention/dot_general"),
        ("jit(f)/jvp()/jit(relu)/max", "max"),
        ("jit(f)/inputs[0]/add", "inputs[0]/add"),
        ("", "(of no node)"),
    ],
)
def test_an_operation_is_of_the_outermost_node(op_name: str, node: str) -> None:
    assert node_of(op_name) == node


def test_an_estimate_prints_itself_and_is_json() -> None:
    made = Estimate(
        *("h100:8", 8, "", 1.25, 44_700_000, 90_000_000_000, 80_000_000_000),
        cost=Cost(kernels=12, bytes=1_500, products=3_600_000_000, element_operations=12, exchanged=44_700_000),
        times=Times(launches=1e-6, memory=3e-6),
        nodes=(NodeCost("/a/very/long/name/of/a/layer/of/it", 3e-6, 2), NodeCost("relu", 1e-6, 1)),
    )
    assert [" ".join(line.split()) for line in str(made).partition("\n\n")[0].splitlines()] == [
        "h100:8",
        "compiles in 1.2 s",
        "chips 8",
        "weights 44.7 MB",
        "peak memory 90 GB of 80 GB: too much",
        "kernels 12",
        "moved 1.5 kB",
        "operations: products 3.6 G",
        "operations: others 12",
        "exchanged 44.7 MB",
        "takes at least 4 us",
        "set by memory 75%, launches 25%",
        "costs most 75% .../long/name/of/a/layer/of/it",
        "25% relu",
    ]
    json = made.to_json()
    assert (json["seconds"], json["times"]["memory"], json["cost"]["kernels"]) == (made.seconds, 3e-6, 12)
    assert json["nodes"][1] == {"name": "relu", "seconds": 1e-6, "kernels": 1}
