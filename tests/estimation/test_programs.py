"""Programs are estimated for chips that this machine does not have, and the table says what costs most."""

from importlib import import_module
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import f32
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from models import MODELS

import dmljax
from dmljax import directml, dxdispatch
from dmljax.estimation import TARGETS, Cost, Estimate, NodeCost, compile_for, programs, table
from dmljax.estimation.chips import Times
from dmljax.estimation.programs import node_of
from dmljax.estimation.report import Batch
from dmljax.estimation.roofline import products_of
from dmljax.estimation.training import OPTIMIZERS

# JAX 0.12 warns of its own compiler for GPU kernels where XLA calls back to divide one.
pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


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
    estimate = dmljax.estimate(layer, array(64, 256), target=target, weights=WEIGHTS)
    assert (estimate.target, estimate.devices, estimate.reason) == (target, devices, "")
    assert estimate.weight_bytes == 256 * 512 * 4
    assert estimate.weight_bytes + 64 * (256 + 512) * 4 // devices <= estimate.peak_bytes < estimate.memory_bytes
    assert estimate.cost.products == 2 * 64 * 256 * 512 // devices
    assert estimate.cost.exchanged == 0
    assert 0 < estimate.roof <= estimate.seconds < 1e-4
    assert (estimate.expected_seconds > estimate.seconds) == target.startswith("v")
    assert estimate.work == Batch(64, 0, devices)
    assert estimate.examples_per_second == 64 / estimate.seconds
    assert any("dot_general" in node.name for node in estimate.nodes)
    assert sum(node.seconds for node in estimate.nodes) == pytest.approx(estimate.seconds)


@pytest.mark.usefixtures("compilers")
def test_kernels_of_pallas_are_named_and_cost_what_they_declare() -> None:
    on_tpu = import_module("jax.experimental.pallas.ops.tpu.flash_attention")
    q = jax.ShapeDtypeStruct((1, 2, 512, 128), jnp.bfloat16)
    with jax.enable_x64(False):  # this kernel does not lower with 64-bit types
        estimate = dmljax.estimate(on_tpu.flash_attention, q, q, q, target="v5e")
    assert estimate.called == ("flash_attention",)
    assert (estimate.cost.kernels, estimate.cost.bytes) == (1, 4 * 2 * 512 * 128 * 2)
    assert estimate.cost.products >= 2 * 2 * 2 * 512**2 * 128
    assert estimate.seconds == pytest.approx(max(estimate.cost.products / 197e12, estimate.cost.bytes / 819e9))
    assert estimate.custom_calls == ()


@pytest.mark.skipif(jax.__version_info__ >= (0, 12), reason="JAX compiles its own deprecated kernel only beside a GPU")
@pytest.mark.usefixtures("compilers")
def test_kernels_that_declare_nothing_count_with_their_arrays() -> None:
    on_gpu = import_module("jax.experimental.pallas.ops.gpu.attention")
    q = jax.ShapeDtypeStruct((1, 512, 2, 128), jnp.bfloat16)
    estimate = dmljax.estimate(lambda *qkv: on_gpu.mha(*qkv, None), q, q, q, target="h100")
    assert (estimate.called, estimate.cost.kernels, estimate.cost.bytes) == (("mha_forward",), 1, 4 * 2 * 512 * 128 * 2)
    assert estimate.custom_calls == ("__gpu$xla.gpu.triton",)
    assert "h100: custom calls without a declared cost count with operands and results: __gpu$xla" in str(estimate)


@pytest.mark.parametrize("target", ["h100", "h100:2", "v5e"])
@pytest.mark.usefixtures("compilers")
def test_kernels_of_dmljax_cost_what_they_declare_on_every_chip(target: str) -> None:
    q = jax.ShapeDtypeStruct((2, 512, 256), jnp.bfloat16)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return dmljax.multihead_attention(q, k, v, head_count=2)

    estimate = dmljax.estimate(attend, q, q, q, target=target)
    products = 2 * 2 * 2 * 2 * 512 * 512 * 128 // estimate.devices
    assert (estimate.cost.products, estimate.called, estimate.custom_calls) == (products, ("attention",), ())
    grads = dmljax.estimate(attend, q, q, q, target=target, gradient=True)
    assert grads.cost.products > 2.9 * products
    assert grads.custom_calls == ()


@pytest.mark.usefixtures("compilers")
def test_a_loop_of_unknown_length_is_reported() -> None:
    def until(x: Any) -> Any:
        return jax.lax.while_loop(lambda x: x[0] < 1, lambda x: x * 2, x)

    estimate = dmljax.estimate(until, array(8), target="h100")
    assert estimate.cost.unbounded_loops == 1
    assert "h100: a loop of unknown length counted as one iteration" in str(estimate).splitlines()


def training_step(weights: Any, moments: Any, x: Any) -> Any:
    grads = jax.grad(lambda weights: jnp.sum(layer(weights, x) ** 2))(weights)
    moments = jax.tree.map(lambda moment, grad: 0.9 * moment + grad, moments, grads)
    return jax.tree.map(lambda weight, moment: weight - 1e-3 * moment, weights, moments), moments


@pytest.mark.parametrize("target", ["h100", "v5e"])
@pytest.mark.usefixtures("compilers")
def test_donated_arguments_leave_their_memory_to_results(target: str) -> None:
    weights = {"w": array(2048, 2048)}
    plain, donating = (
        dmljax.estimate(
            jax.jit(training_step, donate_argnums=donated), weights, weights, array(64, 2048), target=target
        )
        for donated in ((), (0, 1))
    )
    assert plain.peak_bytes - donating.peak_bytes > 0.9 * 2048**2 * 4
    given = jax.jit(training_step, donate_argnames=("weights", "moments"))
    again = dmljax.estimate(given, weights, array(64, 2048), target=target, weights=weights)
    assert again.peak_bytes == donating.peak_bytes


@pytest.mark.parametrize("name", ["sgd", "momentum", "adamw"])
def test_the_named_optimizers_are_those_of_optax(name: str) -> None:
    reference = {"sgd": optax.sgd(1e-3), "momentum": optax.sgd(1e-3, 0.9), "adamw": optax.adamw(1e-3)}[name]
    weights = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
    state, expected = OPTIMIZERS[name].init(weights), reference.init(weights)
    for scale in (1.0, -0.5):
        grads = jax.tree.map(jnp.cos, jax.tree.map(lambda x, scale=scale: scale * x, weights))
        updates, state = OPTIMIZERS[name].update(grads, state, weights)
        with jax.numpy_dtype_promotion("standard"):
            changes, expected = reference.update(grads, expected, weights)
        chex.assert_trees_all_close(updates, changes, rtol=1e-4)
    weigh = lambda tree: sum(leaf.nbytes for leaf in jax.tree.leaves(tree))  # noqa: E731
    assert weigh(state) == weigh(expected)


@pytest.mark.usefixtures("compilers")
def test_a_step_of_training_holds_the_optimizers_state_and_updates_the_weights_in_place() -> None:
    weights, x = {"w": array(2048, 2048), "table": jax.ShapeDtypeStruct((9,), jnp.int8)}, array(64, 2048)

    def model(weights: Any, x: Any) -> Any:
        return layer(weights, x) * weights["table"].astype(x.dtype).sum()

    for optimizer in ("adamw", optax.adamw(1)):
        with jax.numpy_dtype_promotion("standard"):
            step = dmljax.estimate(model, x, target="h100", weights=weights, optimizer=optimizer)
        assert step.state_bytes == 2 * 2048**2 * 4 + 4
        assert step.fixed_bytes == step.weight_bytes + step.state_bytes
        assert step.peak_bytes < 1.1 * (4 * 2048**2 * 4)  # weights, two moments and slopes
        assert "optimizer" in {node.name for node in step.nodes}
    grads = dmljax.estimate(model, x, target="h100", weights=weights, gradient=True)
    assert (grads.state_bytes, grads.fixed_bytes) == (0, grads.weight_bytes + 2048**2 * 4)
    divided = dmljax.estimate(
        *(model, x),
        target="h100:4",
        weights=weights,
        optimizer="adamw",
        mesh={"data": 2, "model": 2},
        specs={"w": PartitionSpec(None, "model")},
    )
    assert divided.state_bytes == 2 * 2048**2 * 4 // 2 + 4


@pytest.mark.parametrize("target", ["h100", "v5e"])
@pytest.mark.usefixtures("compilers")
def test_precision_and_type_are_those_of_the_programs_products(target: str) -> None:
    choices: list[dict[str, Any]] = [{}, {"precision": "highest"}, {"dtype": "bfloat16"}]
    estimates = [
        dmljax.estimate(layer, array(512, 256), target=target, weights=WEIGHTS, **choice) for choice in choices
    ]
    plain, exact, halves = estimates
    assert [(estimate.cost.full_products > 0) for estimate in estimates] == [False, True, False]
    assert exact.cost.passes == 6 * plain.cost.passes
    assert halves.weight_bytes == plain.weight_bytes // 2
    assert halves.cost.halves == plain.cost.halves // 2


@pytest.mark.usefixtures("compilers")
def test_the_largest_batch_fits_and_a_batch_of_twice_its_size_does_not() -> None:
    def wide(weights: Any, x: Any) -> Any:
        for _ in range(3):
            x = jnp.sort(layer(weights, x), 0)
        return x

    weights = {"w": array(4096, 4096)}
    most = dmljax.estimate(wide, array(1000, 4096), target="h100", weights=weights).largest_batch
    assert most > 1000
    assert dmljax.estimate(wide, array(most, 4096), target="h100", weights=weights).fits
    assert not dmljax.estimate(wide, array(2 * most, 4096), target="h100", weights=weights).fits


@pytest.mark.parametrize("target", ["h100", "h100:2"])
@pytest.mark.usefixtures("compilers")
def test_the_users_mesh_is_not_the_targets(target: str) -> None:
    estimates = []
    for mesh in (jax.sharding.Mesh(np.empty((), object), ()), jax.make_mesh((1,), ("x",), (AxisType.Explicit,))):
        with jax.set_mesh(mesh):
            estimates.append(dmljax.estimate(layer, array(64, 256), target=target, weights=WEIGHTS, gradient=True))
            assert compile_for("h100", jnp.sin, array(8)).cost.kernels == 1
    assert estimates[0].cost == estimates[1].cost


@pytest.mark.usefixtures("compilers")
def test_weights_without_floats_have_no_gradient_but_inputs_do() -> None:
    weights = {"table": jax.ShapeDtypeStruct((8, 256), jnp.int8)}

    def scaled(weights: Any, x: Any) -> Any:
        return x * weights["table"].astype(x.dtype).sum()

    estimate = dmljax.estimate(scaled, array(64, 256), target="h100:2", weights=weights, gradient=True)
    assert (estimate.reason, estimate.fixed_bytes) == ("", estimate.weight_bytes)
    mixed = {**weights, "scale": array(256)}
    trained = dmljax.estimate(
        lambda weights, x: scaled(weights, x) @ weights["scale"],
        array(64, 256),
        target="h100:2",
        weights=mixed,
        gradient=True,
    )
    assert trained.fixed_bytes == trained.weight_bytes + 256 * 4


@pytest.mark.usefixtures("compilers")
def test_states_shaped_unlike_the_weights_are_whole_on_each_chip() -> None:
    specs = {"w": PartitionSpec("model")}
    options: Any = {"target": "h100:2", "mesh": {"data": 1, "model": 2}, "weights": WEIGHTS, "specs": specs}
    with jax.numpy_dtype_promotion("standard"):
        estimate = dmljax.estimate(layer, array(64, 256), optimizer=optax.adafactor(1e-3), **options)
    assert (estimate.reason, estimate.weight_bytes) == ("", 256 * 512 * 4 // 2)


@pytest.mark.usefixtures("compilers")
def test_numbers_are_arrays_and_replicated_inputs_stay_replicated() -> None:
    def plus(weights: Any, x: Any, y: Any) -> Any:
        return layer(weights, x) + y.astype(x.dtype)

    mesh = AbstractMesh((2,), ("batch",))
    whole = jax.ShapeDtypeStruct((3, 256), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
    choices: list[dict[str, Any]] = [{"dtype": "bfloat16"}, {"gradient": True}]
    for options in choices:
        estimate = dmljax.estimate(plus, whole, 2.0, target="h100:2", weights=WEIGHTS, **options)
        assert estimate.reason == ""


@pytest.mark.usefixtures("compilers")
def test_static_arguments_are_refused() -> None:
    power = jax.jit(lambda x, n, y: x**n + y, static_argnums=1, donate_argnums=2)
    with pytest.raises(
        directml.InvalidDesc, match=r"function must have no static arguments \(bind them with functools"
    ):
        dmljax.estimate(power, array(8), 3, array(8), target="h100")


@pytest.mark.usefixtures("compilers")
def test_the_roofline_has_the_chips_kernels_on_all_devices() -> None:
    q = jax.ShapeDtypeStruct((2, 2048, 256), jnp.bfloat16)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return dmljax.multihead_attention(q, k, v, head_count=2)

    estimate = dmljax.estimate(attend, q, q, q, target="h100")
    assert estimate.product_seconds == pytest.approx(estimate.cost.products / 989.17e12)
    mesh = AbstractMesh((8,), ("batch",), axis_types=(AxisType.Auto,))
    divided = jax.shard_map(jnp.matmul, mesh=mesh, in_specs=PartitionSpec("batch"), out_specs=PartitionSpec("batch"))
    x = jax.ShapeDtypeStruct((8, 64, 64), jnp.float32)
    assert products_of(jax.make_jaxpr(divided)(x, x).jaxpr).total() == 2 * 8 * 64**3


@pytest.mark.usefixtures("compilers")
def test_a_matrix_of_integers_has_tokens() -> None:
    tokens = jax.ShapeDtypeStruct((4, 16), jnp.int32)
    estimate = dmljax.estimate(lambda weights, x: weights["w"][x], tokens, target="h100", weights=WEIGHTS)
    assert estimate.work == Batch(4, 64, 1)
    assert estimate.tokens_per_second == pytest.approx(16 * estimate.examples_per_second)


@pytest.mark.usefixtures("compilers")
def test_the_gradient_of_weights_is_exchanged() -> None:
    weights = {"w": array(1024, 1024)}
    estimate = dmljax.estimate(layer, array(64, 1024), target="h100:4", weights=weights, gradient=True)
    assert estimate.cost.exchanged == 2 * 3 * estimate.weight_bytes // 4
    assert estimate.cost.products == 2 * (2 * 64 * 1024 * 1024) // 4
    assert estimate.times.exchange == estimate.cost.exchanged / 450e9
    assert estimate.overlapped_seconds == max(estimate.times.exchange, estimate.seconds - estimate.times.exchange)


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
    estimate = dmljax.estimate(graph, target="h100")
    assert estimate.weight_bytes == 64 * 64 * 4
    assert {node.name for node in estimate.nodes} & {"sum[0]", "/head/softmax"}
    softmax = directml.ActivationSoftmaxDesc(input=f32(64, 64), output=f32(64, 64))
    assert dmljax.estimate(softmax, target="h100").cost.kernels == 1


@pytest.mark.usefixtures("compilers")
def test_the_dispatchables_of_a_model_are_nodes_of_one_program() -> None:
    model = dxdispatch.load(MODELS / "top1_routing.json")
    estimate = dmljax.estimate(model, target="h100")
    assert {node.name for node in estimate.nodes} == {"route", "list", "fetch"}


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
    estimate = dmljax.estimate(eigenvalues, array(8, 8), target="v5e")
    assert (estimate.refused, estimate.fits) == ("/second", False)
    assert estimate.reason.startswith("/second (Eigen/eig): ")
    assert str(estimate).splitlines()[1].split() == ["compiles", "no"]
    assert f"v5e does not compile: {estimate.reason}" in str(estimate).splitlines()


def spectrum(x: Any) -> Any:
    with jax.named_scope("[/first]"):
        x = jnp.tanh(x)
    with jax.named_scope("[/second]"):
        return jnp.abs(jnp.fft.fft(x.astype(jnp.complex128)))


@pytest.mark.usefixtures("compilers")
def test_complex128_is_refused_before_a_tpus_compiler_aborts() -> None:
    with jax.enable_x64(True):
        estimate = dmljax.estimate(spectrum, jax.ShapeDtypeStruct((8, 8), jnp.float64), target="v5e")
        assert dmljax.estimate(spectrum, jax.ShapeDtypeStruct((8, 8), jnp.float64), target="h100").fits
    assert estimate.refused == "/second"
    assert estimate.reason.endswith(": complex128 may abort XLA's compiler for TPUs; use complex64")


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
    estimate = dmljax.estimate(much, array(4096), target="v5e")
    assert estimate.refused == "/outer"
    assert estimate.reason.endswith(REMEDY)
    on_gpu = dmljax.estimate(much, array(4096), target="h100")  # whose compiler does not check the memory
    assert (on_gpu.reason, on_gpu.fits) == ("", False)
    assert "h100 does not fit in memory: " in str(on_gpu)


@pytest.mark.usefixtures("compilers")
def test_arguments_that_are_too_large_are_not_blamed_on_a_node() -> None:
    estimate = dmljax.estimate(jnp.tanh, array(2**40), target="v5e")
    assert estimate.refused == ""
    assert "memory" in estimate.reason


@pytest.mark.usefixtures("compilers")
def test_a_mesh_divides_weights_as_specs_say() -> None:
    weights = {"w": array(256, 512), "v": array(512, 256), "other": array(3)}

    def pair(weights: Any, x: Any) -> Any:
        return jnp.tanh(x @ weights["w"]) @ weights["v"] + weights["other"][0]

    specs = {"w": PartitionSpec(None, "model"), "v": PartitionSpec("model")}
    mesh = {"data": 2, "model": 4}
    estimate = dmljax.estimate(pair, array(64, 256), target="h100:8", weights=weights, mesh=mesh, specs=specs)
    assert estimate.weight_bytes == 2 * 256 * 512 * 4 // 4 + 3 * 4
    assert estimate.cost.products == 2 * 2 * 64 * 256 * 512 // 8
    assert estimate.cost.exchanged == 2 * 3 * (64 * 256 * 4 // 2) // 4
    gradient = dmljax.estimate(
        pair, array(64, 256), target="h100:8", weights=weights, mesh=mesh, specs=specs, gradient=True
    )
    assert gradient.cost.exchanged > estimate.cost.exchanged


@pytest.mark.usefixtures("compilers")
def test_arrays_already_divided_stay_divided() -> None:
    mesh = AbstractMesh((2, 4), ("data", "model"))

    def on_mesh(*spec: Any) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*spec))

    x = jax.ShapeDtypeStruct((64, 256), jnp.float32, sharding=on_mesh("data"))
    weights = {"w": jax.ShapeDtypeStruct((256, 512), jnp.float32, sharding=on_mesh(None, "model"))}
    estimate = dmljax.estimate(layer, x, target="h100:8", weights=weights)
    assert estimate.weight_bytes == 256 * 512 * 4 // 4
    assert estimate.cost.products == 2 * 64 * 256 * 512 // 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"x": array(3, 256)},
            r"inputs\[0\]: first dimension must be divisible by 2 devices; got \(3, 256\) "
            r"\(use a batch that 2 divides, or one chip\)",
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
    options: dict[str, Any] = {"x": array(4, 256), "mesh": {"data": 2, "model": 4}, "specs": None, **changed}
    with pytest.raises(dmljax.DmlError, match=message):
        dmljax.estimate(layer, options.pop("x"), target="h100:8", weights={"w": array(256, 516)}, **options)


@pytest.mark.usefixtures("compilers")
def test_work_that_cannot_be_estimated_is_refused_in_a_sentence() -> None:
    whole = jax.ShapeDtypeStruct((8,), jnp.int32)
    with pytest.raises(directml.InvalidDesc, match=r"gradient: needs weights or inputs of floats; got int32\[8\]"):
        dmljax.estimate(jnp.negative, whole, target="h100", gradient=True)
    with pytest.raises(directml.InvalidDesc, match=r"estimate: gradient: needs a result of floats; got bool\[8\]"):
        dmljax.estimate(jnp.isnan, array(8), target="h100", gradient=True)
    with pytest.raises(directml.InvalidType, match=r"estimate: target must be a text such as 'h100:8'; got \['h100'\]"):
        dmljax.estimate(jnp.sin, array(8), target=["h100"])  # type: ignore[call-overload]
    q = jax.ShapeDtypeStruct((1, 512, 8, 64), jnp.bfloat16)
    with pytest.raises(directml.Unsupported, match=r"cuDNN's attention compiles only where cuDNN is \(implementation="):
        dmljax.estimate(lambda q: jax.nn.dot_product_attention(q, q, q, implementation="cudnn"), q, target="h100")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"precision": "hihgest"}, "precision must be default, high or highest; got 'hihgest'"),
        ({"dtype": "float8"}, "dtype must be bfloat16, float16 or float32; got 'float8'"),
        (
            {"optimizer": "adam"},
            "optimizer must be sgd, momentum or adamw, or one of optax's; got 'adam', did you mean",
        ),
        ({"optimizer": 3}, "optimizer must be a name, or have init and update, as optax's do; got 3"),
        ({"optimizer": "sgd", "weights": None}, "optimizer: needs weights of floats; got none"),
    ],
)
@pytest.mark.usefixtures("compilers")
def test_unknown_options_are_refused_with_the_known_ones(wrong: dict[str, Any], message: str) -> None:
    options: Any = {"weights": WEIGHTS, **wrong}
    with pytest.raises(dmljax.DmlError, match=message):
        dmljax.estimate(layer if options["weights"] else jnp.sin, array(64, 256), target="h100", **options)


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
    costs = [Cost(kernels=1, bytes=3), Cost(kernels=1, bytes=33_523_200)]
    expected = [Times(launches=1e-6), Times(memory=1e-5)]
    assert [pytest.approx(times) for times in expected] == programs._time_by_kernel(TARGETS["h100"], costs)


def test_copies_take_time_only_where_the_memory_needs_more_than_kernels_leave() -> None:
    def spent(copied: int) -> list[Times]:
        costs = [Cost(bytes=copied, copied=copied), Cost(kernels=1, bytes=819_000, passes=3 * 197_000_000)]
        return programs._time_by_kernel(TARGETS["v5e"], costs)

    assert spent(2 * 819_000) == [Times(), pytest.approx(Times(arithmetic=3e-6))]
    assert spent(5 * 819_000) == [pytest.approx(Times(memory=3e-6)), pytest.approx(Times(arithmetic=3e-6))]


def test_an_estimate_prints_itself_and_is_json() -> None:
    estimate = Estimate(
        *("h100:8", 8, "", 1.25, 44_700_000),
        peak_bytes=90_000_000_000,
        memory_bytes=80_000_000_000,
        cost=Cost(kernels=12, bytes=1_500, products=3_600_000_000, element_operations=12, exchanged=44_700_000),
        times=Times(launches=1e-6, memory=2e-6, exchange=1e-6),
        overlapped_seconds=3e-6,
        product_seconds=1e-6,
        nodes=(
            NodeCost("/a/very/long/name/of/a/layer/in/a/network/of/layers", 3e-6, 2, 1000, 2000, "memory"),
            NodeCost("relu", 1e-6, 1, 500, 0, "launches"),
        ),
        roof=2e-6,
        work=Batch(16, 2048, 8),
        called=("flash_attention", "mha_forward"),
    )
    assert [" ".join(line.split()) for line in str(estimate).partition("\n\nThe time")[0].splitlines()] == [
        "h100:8",
        "compiles 1.2 s",
        "chips 8",
        "weights 44.7 MB",
        "peak memory 90 GB",
        "of 80 GB",
        "largest batch, about 8",
        "kernels 12",
        "moved 1.5 kB",
        "operations: products 3.6 G",
        "operations: others 12",
        "exchanged 44.7 MB",
        "takes at least 4 us",
        "for launches 25%",
        "for memory 50%",
        "for exchange 25%",
        "if exchange overlaps 3 us",
        "roof 2 us",
        "utilization 25%",
        "examples per second 4 M",
        "tokens per second 512 M",
        "",
        "nodes of h100:8 time share kernels moved operations bound by",
        "...ame/of/a/layer/in/a/network/of/layers 3 us 75% 2 1 kB 2 k memory",
        "relu 1 us 25% 1 500 B 0 launches",
        "",
        f"h100:8 does not fit in memory: 90 GB needed, 80 GB available {REMEDY}",
        "",
        "h100:8: kernels called: flash_attention, mha_forward",
    ]
    json = estimate.to_json()
    assert (json["seconds"], json["times"]["memory"], json["cost"]["kernels"]) == (estimate.seconds, 2e-6, 12)
    assert (json["utilization"], json["examples_per_second"], json["largest_batch"]) == (0.25, 4e6, 8)
    relu = {"name": "relu", "seconds": 1e-6, "kernels": 1, "bytes": 500, "operations": 0, "bound": "launches"}
    assert json["nodes"][1] == relu


def made_for(target: str, **seconds: float) -> Estimate:
    nodes = tuple(NodeCost(name, time, 1) for name, time in seconds.items())
    return Estimate(target, 1, "", 1.0, memory_bytes=1, times=Times(memory=sum(seconds.values())), nodes=nodes)


def test_columns_are_side_by_side_while_they_fit() -> None:
    estimates = [made_for(target, a=1.0) for target in ("h100", "v5e", "v6e")]
    lines = [line.split() for line in table(estimates, [1, 1, 8], width=40)]
    heads = [line for line in lines if {"h100", "v6e"} & {*line} and "nodes" not in line]
    assert heads == [["h100", "v5e"], ["v6e"]]
    lines = [line.split() for line in table(estimates, [1, 1, 8])]
    assert lines[:2] == [["h100", "v5e", "v6e"], ["batch", *"118"]]
    assert "nodes of v6e, batch 8 time share kernels moved operations bound by" in map(" ".join, lines)


def test_the_costliest_nodes_of_each_estimate_are_listed() -> None:
    on_h100 = made_for("h100", **{f"n{i}": 1.0 + i / 100 for i in reversed(range(20))})
    lines = [line.split() for line in table([on_h100, made_for("v5e", last=9.0, n0=1.0)])]
    begin = next(i for i, line in enumerate(lines) if line[:3] == ["nodes", "of", "h100"])
    assert [line[0] for line in lines[begin + 1 : begin + 11]] == [f"n{i}" for i in range(19, 9, -1)]
    assert lines[begin + 11] == []
    assert lines[begin + 13][:4] == ["last", "9", "s", "90%"]
