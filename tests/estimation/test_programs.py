"""Programs are estimated for chips that this machine does not have, and the table says what costs most."""

from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import f32
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from models import MODELS

import dmljax
from dmljax import directml, dxdispatch
from dmljax.estimation import TARGETS, Cost, Estimate, NodeCost, programs, table
from dmljax.estimation.cost import Step
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
    assert 0 < found.roof < found.seconds < 1e-4
    assert found.seconds > 1e-7
    assert any("dot_general" in node.name for node in found.nodes)
    assert sum(node.seconds for node in found.nodes) == pytest.approx(found.seconds)


@pytest.mark.usefixtures("compilers")
def test_kernels_of_pallas_are_named_and_cost_what_they_declare() -> None:
    on_tpu, on_gpu = (
        import_module(f"jax.experimental.pallas.ops.{one}") for one in ("tpu.flash_attention", "gpu.attention")
    )
    q = jax.ShapeDtypeStruct((1, 2, 512, 128), jnp.bfloat16)
    with jax.enable_x64(False):  # this kernel does not lower with 64-bit types
        found = dmljax.estimate(on_tpu.flash_attention, q, q, q, target="v5e")
    assert found.called == ("flash_attention",)
    assert (found.cost.kernels, found.cost.bytes) == (1, 4 * 2 * 512 * 128 * 2)
    assert found.cost.products >= 2 * 2 * 2 * 512**2 * 128
    assert found.seconds == pytest.approx(max(found.cost.products / 197e12, found.cost.bytes / 819e9))
    q = jax.ShapeDtypeStruct((1, 512, 2, 128), jnp.bfloat16)
    found = dmljax.estimate(lambda *qkv: on_gpu.mha(*qkv, None), q, q, q, target="h100")
    assert (found.called, found.cost.kernels, found.cost.bytes) == (("mha_forward",), 1, 4 * 2 * 512 * 128 * 2)
    assert found.seconds > 0


@pytest.mark.usefixtures("compilers")
def test_the_gradient_of_weights_is_exchanged() -> None:
    weights = {"w": array(1024, 1024)}
    found = dmljax.estimate(layer, array(64, 1024), target="h100:4", weights=weights, gradient=True)
    assert found.cost.exchanged == found.weight_bytes
    assert found.cost.products == 2 * (2 * 64 * 1024 * 1024) // 4
    assert found.times.exchange > 0


@pytest.mark.usefixtures("compilers")
def test_a_function_without_weights_is_differentiated_by_its_inputs() -> None:
    plain = dmljax.estimate(lambda n, x: jnp.sin(x) * n.astype(x.dtype), N, array(8), target="h100", gradient=True)
    assert (plain.weight_bytes, plain.cost.kernels) == (0, 1)


@pytest.mark.usefixtures("compilers")
def test_the_nodes_of_a_graph_are_listed_by_name() -> None:
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
def test_the_dispatchables_of_a_model_are_nodes_of_one_program() -> None:
    model = dxdispatch.load(MODELS / "top1_routing.json")
    found = dmljax.estimate(model, target="h100")
    assert {node.name for node in found.nodes} == {"route", "list", "fetch"}


def eigenvalues(x: Any) -> Any:
    """A model of three nodes, the second of which a TPU cannot compile."""
    with jax.named_scope("[/first]"), jax.named_scope("Tanh"):
        x = jax.jit(jnp.tanh)(x)
    with jax.named_scope("[/second]"), jax.named_scope("Eigen"):
        x = jax.jit(lambda x: jnp.linalg.eig(x)[0].real)(x)
    with jax.named_scope("[/third]"), jax.named_scope("Gelu"):
        return jax.nn.gelu(x)


@pytest.mark.usefixtures("compilers")
def test_compilation_errors_name_the_node_and_the_reason() -> None:
    found = dmljax.estimate(eigenvalues, array(8, 8), target="v5e")
    assert (found.refused, found.fits) == ("/second", False)
    assert found.reason.startswith("/second (Eigen/eig): ")
    assert str(found).splitlines()[1].split() == ["compiles", "no"]
    assert f"v5e does not compile: {found.reason}" in str(found).splitlines()


def spectrum(x: Any) -> Any:
    with jax.named_scope("[/first]"):
        x = jnp.tanh(x)
    with jax.named_scope("[/second]"):
        return jnp.abs(jnp.fft.fft(x.astype(jnp.complex128)))


@pytest.mark.usefixtures("compilers")
def test_complex128_is_refused_before_a_tpus_compiler_aborts() -> None:
    with jax.enable_x64(True):
        found = dmljax.estimate(spectrum, jax.ShapeDtypeStruct((8, 8), jnp.float64), target="v5e")
        assert dmljax.estimate(spectrum, jax.ShapeDtypeStruct((8, 8), jnp.float64), target="h100").fits
    assert found.refused == "/second"
    assert found.reason.endswith(": complex128 may abort XLA's compiler for TPUs; use complex64")


REMEDY = "(use a smaller batch, or a mesh that divides the weights)"


def much(x: Any) -> Any:
    with jax.named_scope("[/small]"):
        x = jnp.tanh(x)
    with jax.named_scope("[/outer]"):
        cube = x[:, None, None] * x[None, :, None] * x[None, None]
    with jax.named_scope("[/sorted]"):
        return jnp.sum(jnp.sort(cube, 0), (0, 1))


@pytest.mark.usefixtures("compilers")
def test_out_of_memory_errors_name_the_node_and_a_remedy() -> None:
    found = dmljax.estimate(much, array(4096), target="v5e")
    assert found.refused == "/outer"
    assert found.reason.endswith(REMEDY)
    on_gpu = dmljax.estimate(much, array(4096), target="h100")  # whose compiler does not check the memory
    assert (on_gpu.reason, on_gpu.fits) == ("", False)
    assert "h100 does not fit in memory: " in str(on_gpu)


@pytest.mark.usefixtures("compilers")
def test_arguments_that_are_too_large_are_not_blamed_on_a_node() -> None:
    found = dmljax.estimate(jnp.tanh, array(2**40), target="v5e")
    assert found.refused == ""
    assert "memory" in found.reason


@pytest.mark.usefixtures("compilers")
def test_a_mesh_divides_weights_as_specs_say() -> None:
    weights = {"w": array(256, 512), "v": array(512, 256), "other": array(3)}

    def pair(weights: Any, x: Any) -> Any:
        return jnp.tanh(x @ weights["w"]) @ weights["v"] + weights["other"][0]

    specs = {"w": PartitionSpec(None, "model"), "v": PartitionSpec("model")}
    mesh = {"data": 2, "model": 4}
    found = dmljax.estimate(pair, array(64, 256), target="h100:8", weights=weights, mesh=mesh, specs=specs)
    assert found.weight_bytes == 2 * 256 * 512 * 4 // 4 + 3 * 4
    assert found.cost.products == 2 * 2 * 64 * 256 * 512 // 8
    assert found.cost.exchanged == 64 * 256 * 4 // 2
    gradient = dmljax.estimate(
        pair, array(64, 256), target="h100:8", weights=weights, mesh=mesh, specs=specs, gradient=True
    )
    assert gradient.cost.exchanged > found.cost.exchanged


@pytest.mark.usefixtures("compilers")
def test_arrays_already_divided_stay_divided() -> None:
    mesh = AbstractMesh((2, 4), ("data", "model"))

    def on_mesh(*spec: Any) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*spec))

    x = jax.ShapeDtypeStruct((64, 256), jnp.float32, sharding=on_mesh("data"))
    weights = {"w": jax.ShapeDtypeStruct((256, 512), jnp.float32, sharding=on_mesh(None, "model"))}
    found = dmljax.estimate(layer, x, target="h100:8", weights=weights)
    assert found.weight_bytes == 256 * 512 * 4 // 4
    assert found.cost.products == 2 * 64 * 256 * 512 // 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"x": array(3, 256)},
            r"inputs\[0\]: first dimension must be divisible by 2 devices; got \(3, 256\) "
            r"\(use a batch of 2, or one chip\)",
        ),
        ({"mesh": {"data": 2}}, r"mesh must have as many chips as h100:8, 8; got 2"),
        ({"mesh": ("data", 8)}, r"mesh must map names of axes to sizes; got \('data', 8\)"),
        (
            {"mesh": {"data": 2, "modle": 4}},
            r"mesh: has an axis that divides no array; got 'modle', did you mean model\?",
        ),
        ({"specs": {"u": PartitionSpec()}}, r"specs must name weights; got 'u'"),
        ({"specs": {"w": "model"}}, r"specs.w must be a PartitionSpec; got 'model'"),
        (
            {"specs": PartitionSpec("rows")},
            r"weights.w must be divided along axes of the mesh, data and model; got 'rows'",
        ),
        (
            {"specs": PartitionSpec(None, ("data", "model"))},
            r"weights.w: dimension 1 must be divisible by 8 devices; got \(256, 516\) \(leave it None in",
        ),
        ({"specs": PartitionSpec(None, None, "model")}, r"weights.w must have a dimension for each entry of "),
    ],
)
@pytest.mark.usefixtures("compilers")
def test_a_division_that_does_not_fit_is_refused(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"x": array(4, 256), "mesh": {"data": 2, "model": 4}, "specs": None, **changed}
    with pytest.raises(dmljax.DmlError, match=message):
        dmljax.estimate(layer, given.pop("x"), target="h100:8", weights={"w": array(256, 516)}, **given)


@pytest.mark.usefixtures("compilers")
def test_what_is_not_compiled_is_refused_in_a_sentence() -> None:
    whole = jax.ShapeDtypeStruct((8,), jnp.int32)
    with pytest.raises(directml.InvalidDesc, match=r"gradient: needs weights or inputs of floats; got int32\[8\]"):
        dmljax.estimate(jnp.negative, whole, target="h100", gradient=True)
    with pytest.raises(directml.InvalidDesc, match=r"estimate: gradient: needs a result of floats; got bool\[8\]"):
        dmljax.estimate(jnp.isnan, array(8), target="h100", gradient=True)
    with pytest.raises(directml.InvalidType, match=r"estimate: target must be a text such as 'h100:8'; got \['h100'\]"):
        dmljax.estimate(jnp.sin, array(8), target=["h100"])  # type: ignore[arg-type]
    q = jax.ShapeDtypeStruct((1, 512, 8, 64), jnp.bfloat16)
    with pytest.raises(directml.Unsupported, match=r"cuDNN's attention compiles only where cuDNN is \(implementation="):
        dmljax.estimate(lambda q: jax.nn.dot_product_attention(q, q, q, implementation="cudnn"), q, target="h100")


def test_an_unknown_chip_is_refused() -> None:
    with pytest.raises(
        directml.InvalidDesc, match=r"estimate: unknown chip 'v5ee', did you mean v5e\? \(choose h100, "
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
        ("", "(no node)"),
    ],
)
def test_an_operation_belongs_to_the_outermost_node(op_name: str, node: str) -> None:
    assert node_of(op_name) == node


def test_a_kernel_takes_the_longest_of_its_times() -> None:
    for moved, expected in ((1, Times(launches=1.5e-6)), (33_523_200, Times(memory=1e-5))):
        assert programs._longest(TARGETS["h100"], Step("", Cost(kernels=1, bytes=moved))) == pytest.approx(expected)


def test_an_estimate_prints_itself_and_is_json() -> None:
    made = Estimate(
        *("h100:8", 8, "", 1.25, 44_700_000, 90_000_000_000, 80_000_000_000),
        cost=Cost(kernels=12, bytes=1_500, products=3_600_000_000, element_operations=12, exchanged=44_700_000),
        times=Times(launches=1e-6, memory=3e-6),
        nodes=(NodeCost("/a/very/long/name/of/a/layer/in/a/network/of/layers", 3e-6, 2), NodeCost("relu", 1e-6, 1)),
        roof=2e-6,
        called=("flash_attention", "mha_forward"),
    )
    assert [" ".join(line.split()) for line in str(made).partition("\n\nThe time")[0].splitlines()] == [
        "h100:8",
        "compiles 1.2 s",
        "chips 8",
        "weights 44.7 MB",
        "peak memory 90 GB",
        "of 80 GB",
        "kernels 12",
        "moved 1.5 kB",
        "operations: products 3.6 G",
        "operations: others 12",
        "exchanged 44.7 MB",
        "takes at least 4 us",
        "for launches 25%",
        "for memory 75%",
        "for arithmetic",
        "for exchange",
        "roof 2 us",
        "nodes",
        "...ame/of/a/layer/in/a/network/of/layers 75%",
        "relu 25%",
        "",
        f"h100:8 does not fit in memory: 90 GB needed, 80 GB available {REMEDY}",
        "",
        "h100:8 kernels called: flash_attention, mha_forward",
    ]
    json = made.to_json()
    assert (json["seconds"], json["times"]["memory"], json["cost"]["kernels"]) == (made.seconds, 3e-6, 12)
    assert json["nodes"][1] == {"name": "relu", "seconds": 1e-6, "kernels": 1}


def made_for(target: str, **seconds: float) -> Estimate:
    nodes = tuple(NodeCost(name, time, 1) for name, time in seconds.items())
    return Estimate(target, 1, "", 1.0, memory_bytes=1, times=Times(memory=sum(seconds.values())), nodes=nodes)


def test_columns_are_side_by_side_while_they_fit() -> None:
    estimates = [made_for(target, a=1.0) for target in ("h100", "v5e", "v6e")]
    heads = [line.split() for line in table(estimates, [1, 1, 8], width=40) if "h100" in line or "v6e" in line]
    assert heads == [["h100", "v5e"], ["v6e"]]
    assert [line.split() for line in table(estimates, [1, 1, 8])][:2] == [["h100", "v5e", "v6e"], ["batch", *"118"]]


def test_the_nodes_of_a_table_are_those_with_the_greatest_share_in_any_column() -> None:
    one = made_for("h100", **{f"n{i}": 1.0 + i / 100 for i in range(20)})
    other = made_for("v5e", last=9.0, n0=1.0)
    lines = [line.split() for line in table([one, other])]
    nodes = lines[lines.index(["nodes"]) + 1 : lines.index([])]
    assert [node[0] for node in nodes] == ["last", "n0", *(f"n{i}" for i in range(19, 11, -1))]
    assert nodes[:3] == [["last", "90%"], ["n0", "5%", "10%"], ["n19", "5%"]]
