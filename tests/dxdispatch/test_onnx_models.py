"""ONNX models in DxDispatch models: each dispatch computes what the model does for the sizes that it binds."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import onnx
import onnxruntime
import pytest
from helpers import GATE
from models import dispatch, findings, listed, load_model, run, write_model, zeros
from onnx import helper
from onnx_models import BOOL, FLOAT, INT64, model, small_network, value

from dmljax.command_line.cli import main
from dmljax.dxdispatch import Execution, InvalidModel, fuse, load
from dmljax.dxdispatch.execution import trace
from dmljax.dxdispatch.printing import result_json, result_pieces
from dmljax.errors import InvalidType, Unsupported
from dmljax.foundation.extras import command_for

CONCAT = {"type": "onnx", "sourcePath": "concat.onnx"}
DATA = {
    "a": listed("FLOAT32", [1, 2, 3, 4, 5, 6]),
    "b": listed("FLOAT32", [7, 8, 9, 10, 11, 12]),
    "c": zeros("FLOAT32", 12),
    "later": listed("FLOAT32", "deferred"),
}


@pytest.fixture(autouse=True)
def concat(tmp_path: Path) -> None:
    """Concatenates the rows of x0 and x1; the file gives neither their number nor y's shape."""
    node = helper.make_node("Concat", ["x0", "x1"], ["y"], axis=0)
    inputs = [value("x0", FLOAT, ["N", 2]), value("x1", FLOAT, ["N", 2])]
    proto = model([node], inputs, [value("y", FLOAT, [None, None])])
    onnx.save(proto, tmp_path / "concat.onnx")
    batch, channel = proto.graph.input[0].type.tensor_type.shape.dim
    batch.denotation, channel.denotation = "DATA_BATCH", "DATA_CHANNEL"
    onnx.save(proto, tmp_path / "denoted.onnx")


def denoted(**sizes: int) -> dict[str, Any]:
    """The model with N = 2, and these sizes for the denotations of x0's dimensions."""
    overrides = {"freeDimensionNameOverrides": {"N": 2}, "freeDimensionDenotationOverrides": sizes}
    return CONCAT | {"sourcePath": "denoted.onnx"} | overrides


def rows(resource: str, *shape: int) -> dict[str, Any]:
    return {"name": resource, "shape": list(shape)}


def ran(folder: Path, dispatchables: Any, commands: Any, resources: Any = DATA, *, is_fused: bool = False) -> Execution:
    model = load_model(folder, resources, dispatchables, commands)
    assert not model.warnings
    return run(fuse(model) if is_fused else model)


@GATE
def test_a_dispatched_network_computes_what_its_function_does(tmp_path: Path) -> None:
    from dmljax.onnx import load as load_onnx

    network = small_network()
    onnx.save(network, tmp_path / "network.onnx")
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    resources = {"x": {"initialValues": {"sourcePath": "x.npy"}}, "y": zeros("FLOAT32", 10)}
    bindings = dispatch("network", x=rows("x", 2, 3, 4, 4), y="y")
    options = {"graphOptimizationLevel": 0, "loggingLevel": 3, "sessionOptionsConfigEntries": {"a": "b"}}
    execution = ran(
        tmp_path, {"network": {"Type": "ONNX", "sourcePath": "network.onnx"} | options}, [bindings], resources
    )
    expected = load_onnx(network)(x)
    np.testing.assert_allclose(execution.values("y"), np.ravel(expected), rtol=2e-6, atol=1e-6)


def test_each_dispatch_has_its_own_sizes(tmp_path: Path) -> None:
    """As in DxDispatch's guide: the same model, with the same resources."""
    small = dispatch("concat", x0=rows("a", 1, 2), x1=rows("b", 1, 2), y=rows("c", 2, 2))
    large = dispatch("concat", x0=rows("a", 3, 2), x1=rows("b", 3, 2), y=rows("c", 6, 2))
    execution = ran(tmp_path, {"concat": CONCAT}, [small])
    assert execution.values("c").tolist() == [1, 2, 7, 8] + [0] * 8
    execution = ran(tmp_path, {"concat": CONCAT}, [small, large, small, large])
    assert execution.values("c").tolist() == [*range(1, 13)]
    assert [*execution.model.dispatchables] == ["concat", "concat (x0 3x2, x1 3x2)"]
    execution.result(0)
    assert execution.values("c").tolist() == [1, 2, 7, 8, *range(5, 13)]
    (finding,) = findings(tmp_path, DATA, {"concat": CONCAT}, [small, large, dispatch("concat (x0 3x2, x1 3x2)")])
    assert "commands[2].dispatchable must be a dispatchable of the model; got 'concat (x0 3x2, x1 3x2)'" in finding


def test_open_sizes_default_to_1(tmp_path: Path) -> None:
    command = dispatch("concat", x0="a", x1="b", y="c")
    assert ran(tmp_path, {"concat": CONCAT}, [command]).values("c").tolist() == [1, 2, 7, 8] + [0] * 8
    twice = CONCAT | {"freeDimensionNameOverrides": {"N": 2, "M": 5}}
    assert ran(tmp_path, {"concat": twice}, [command]).values("c").tolist() == [1, 2, 3, 4, 7, 8, 9, 10] + [0] * 4


def test_open_sizes_are_given_by_denotation(tmp_path: Path) -> None:
    command = dispatch("concat", x0="a", x1=rows("b", 2, 2), y="c")
    by_denotation = denoted(Data_Batch=2, **{"": 5}) | {"freeDimensionNameOverrides": {}}
    execution = ran(tmp_path, {"concat": by_denotation}, [command])
    assert execution.values("c").tolist() == [1, 2, 3, 4, 7, 8, 9, 10] + [0] * 4


def test_results_name_a_dispatch_as_the_model_does(tmp_path: Path) -> None:
    commands = [dispatch("concat", x0=rows("a", n, 2), x1=rows("b", n, 2), y="c") for n in (1, 3)]
    for is_fused in (False, True):
        execution = ran(tmp_path, {"concat": CONCAT}, commands, is_fused=is_fused)
        results = [execution.result(index) for index in range(2)]
        for result in results:
            assert "".join(result_pieces(result, "cpu", 0, 1)).startswith("Dispatch 'concat': 1 iterations, ")
            assert result_json(result, 1)["dispatchable"] == "concat"


def test_inputs_with_defaults_may_be_bound(tmp_path: Path) -> None:
    """As in ONNX Runtime; dispatches of one model may differ in it."""
    node = helper.make_node("Add", ["x", "w"], ["y"])
    inputs = [value("x", FLOAT, ["N"]), value("w", FLOAT, ["N"])]
    proto = model([node], inputs, [value("y", FLOAT, ["N"])], {"w": np.array([10, 20, 30], "float32")})
    onnx.save(proto, tmp_path / "sum.onnx")
    x, w = rows("a", 3), rows("b", 3)
    cases: list[tuple[list[dict[str, Any]], list[int]]] = [
        ([{"x": x, "y": "c"}], [11, 22, 33]),
        ([{"x": x, "w": w, "y": "c"}], [8, 10, 12]),
        ([{"x": x, "w": w, "y": "c"}, {"x": x, "w": None, "y": "c"}], [11, 22, 33]),
        ([{"x": x, "y": "c"}, {"x": x, "w": w, "y": "c"}], [8, 10, 12]),
    ]
    for bindings, expected in cases:
        commands = [dispatch("sum", **binding) for binding in bindings]
        execution = ran(tmp_path, {"sum": CONCAT | {"sourcePath": "sum.onnx"}}, commands)
        assert execution.values("c").tolist()[:3] == expected
    reported = findings(
        tmp_path, DATA, {"sum": CONCAT | {"sourcePath": "sum.onnx"}}, [dispatch("sum", x=x, w=rows("b", 2))]
    )
    assert "commands[0].bindings.w.shape must have size 3 for N, as in the inputs before it; got [2]" in reported[0]


def test_a_default_of_64_bits_needs_them_if_it_is_bound(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"])
    inputs = [value("x", FLOAT, [3]), value("i", INT64, [2])]
    proto = model([node], inputs, [value("y", FLOAT, [2])], {"i": np.array([2, 0])})
    onnx.save(proto, tmp_path / "gather.onnx")
    resources = DATA | {"i": listed("INT64", [1, 1])}
    gather = {"gather": CONCAT | {"sourcePath": "gather.onnx"}}
    unbound, bound = (dispatch("gather", x="a", y="c", **more) for more in ({}, {"i": "i"}))
    assert ran(tmp_path, gather, [unbound], resources).values("c").tolist()[:2] == [3, 1]
    try:
        execution = ran(tmp_path, gather, [unbound, bound, unbound, bound], resources)
    except InvalidModel as error:
        assert "--x64 on the command line; got INT64" in str(error)  # noqa: PT017
        return
    assert execution.values("c").tolist()[:2] == [2, 2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-f", "N:3"], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),  # before the JSON's 2
        (["-f", "M:3"], [1, 2, 3, 4, 7, 8, 9, 10, 0, 0, 0, 0]),
        (["-F", "DATA_BATCH:2", "-b", "x1:1,2"], "must have size 2 of x1: float32[2, 2]; got [1, 2]"),
        (["--onnx_free_dim_name_override", "N:1", "--binding_shape", "y:2,2"], [1, 2, 7, 8] + [0] * 8),
        (["-b", "y:3,2"], "commands[0].bindings.y.shape must be [4, 2], which the model computes; got [3, 2]"),
        (["-b", "z:3,2"], "warning: {}:1: the shape of 'z' is ignored, because no ONNX model has such an input"),
        (["-f", "3"], "argument -f/--onnx_free_dim_name_override: must be NAME:SIZE; got '3'"),
        (["-F", "B:x"], "argument -F/--onnx_free_dim_denotation_override: must be a whole number in [0, 4294967295]"),
        (["-b", "x0"], "argument -b/--binding_shape: must be TENSOR:1,3,224,224; got 'x0'"),
    ],
)
def test_command_line_sizes_override_the_models(
    options: list[str], expected: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [dispatch("concat", x0="a", x1="b", y="c"), {"type": "print", "resource": "c"}]
    path = write_model(tmp_path, DATA, {"concat": denoted()}, commands)
    try:
        main(["run", str(path), *options])
    except SystemExit as refused:
        assert refused.code == 2  # noqa: PT017
    printed = capsys.readouterr()
    if isinstance(expected, str):
        assert expected.format(path) in printed.err
    else:
        assert printed.out.endswith(f"Resource 'c': {', '.join(map(str, expected))}\n")


def test_binding_shapes_override_bindings(tmp_path: Path) -> None:
    command = dispatch("concat", x0=rows("a", 1, 2), x1=rows("b", 1, 2), y="c")
    load_model(tmp_path, DATA, {"concat": CONCAT}, [command])
    model = load(tmp_path / "model.json", binding_shapes={"x0": (2, 2), "x1": (2, 2), "y": (4, 2)})
    assert run(model).values("c").tolist() == [1, 2, 3, 4, 7, 8, 9, 10] + [0] * 4
    with pytest.raises(InvalidType, match=r"binding_shapes\.x0 must be a sequence of integers"):
        load(tmp_path / "model.json", binding_shapes={"x0": 3})  # type: ignore[dict-item]


def test_a_deferred_resource_has_the_size_of_the_output(tmp_path: Path) -> None:
    commands = [
        dispatch("concat", x0=rows("a", 3, 2), x1=rows("b", 3, 2), y={"name": "later"}),
        {"type": "print", "resource": "later"},
        dispatch("concat", x0=rows("later", 3, 2), x1=rows("b", 3, 2), y="c"),
    ]
    execution = ran(tmp_path, {"concat": CONCAT}, commands)
    text = "".join(result_pieces(execution.result(1), "cpu", 0, 1))
    assert text == "Resource 'later': 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12"
    assert execution.values("c").tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def test_unbound_inputs_are_0_and_outputs_are_dropped(tmp_path: Path) -> None:
    ones = DATA | {"c": listed("FLOAT32", [1] * 12)}
    commands = [dispatch("concat"), dispatch("concat", x1="b", y="c"), dispatch("concat", x0="a", x1=None)]
    for is_fused in (False, True):
        execution = ran(tmp_path, {"concat": CONCAT}, commands, ones, is_fused=is_fused)
        assert execution.values("c").tolist() == [0, 0, 7, 8] + [1] * 8


def test_a_model_is_exported_for_the_sizes_of_its_dispatch(tmp_path: Path) -> None:
    path = write_model(tmp_path, DATA, {"concat": CONCAT}, [dispatch("concat", x0=rows("a", 1, 2), x1="b", y="c")])
    assert main(["compile", str(path), "--for", "cpu", "-o", str(tmp_path / "concat.bin")]) == 0
    exported = jax.export.deserialize(bytearray((tmp_path / "concat.bin").read_bytes()))
    x = np.array([[1, 2]], np.float32)
    assert np.asarray(exported.call(x, -x)).tolist() == [[1, 2], [-1, -2]]


def test_models_are_read_even_if_no_dispatch_runs_them(tmp_path: Path) -> None:
    assert not load_model(tmp_path, {}, {"concat": CONCAT}).dispatchables
    (finding,) = findings(tmp_path, {}, {"concat": CONCAT | {"sourcePath": "no.onnx"}})
    assert "dispatchables.concat.sourcePath must be a readable file; got" in finding


def test_buffers_of_64_bits_do_not_depend_on_jax_enable_x64(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    onnx.save(model([node], [value("x", INT64, [2])], [value("y", INT64, [2])]), tmp_path / "sum.onnx")
    resources = {"x": listed("INT64", [2**40, -1]), "y": zeros("INT64", 2)}
    read = load_model(
        tmp_path, resources, {"sum": CONCAT | {"sourcePath": "sum.onnx"}}, [dispatch("sum", x="x", y="y")]
    )
    try:
        execution = Execution(read)
    except InvalidModel as error:
        assert "--x64 on the command line; got INT64" in str(error)  # noqa: PT017
        return
    execution.result(0)
    assert execution.values("y").tolist() == [2**41, -2]


@pytest.mark.parametrize(
    ("changes", "bindings", "message"),
    [
        ({"sourcePath": None}, {}, "dispatchables.concat.sourcePath must be given; got none"),
        ({"sourcePath": "model.json"}, {}, "dispatchables.concat.sourcePath: not an ONNX model"),
        ({"freeDimensionNameOverrides": {"N": -1}}, {}, "freeDimensionNameOverrides.N must be in [0, 4294967295"),
        ({"freeDimensionNameOverrides": [2]}, {}, "concat.freeDimensionNameOverrides must be an object; got [2]"),
        ({"freeDimensionDenotationOverrides": {"N": 2.5}}, {}, "freeDimensionDenotationOverrides.N must be an integer"),
        (denoted(DATA_BATCH=3), {}, "sourcePath.x0 must have size 2 in the dimension denoted DATA_BATCH; got 3"),
        (denoted(DATA_CHANNEL=3), {}, "sourcePath.x0 must have size 2 in the dimension denoted DATA_CHANNEL; got 3"),
        ({"graphOptimizationLevel": "all"}, {}, "dispatchables.concat.graphOptimizationLevel must be an integer"),
        ({"sourcePath": "reshape.onnx"}, {}, "dispatchables.concat.sourcePath.nodes.z.Reshape"),
        ({}, {"x0": rows("a", 3, 2)}, "bindings.x1.shape must have size 3 for N, as in the inputs before it; got"),
        (
            {},
            {"x0": rows("a", 3)},
            "commands[0].bindings.x0.shape must have 2 sizes to match x0: float32[N, 2]; got [3]",
        ),
        ({}, {"x0": rows("a", 1, 3)}, "commands[0].bindings.x0.shape must have size 2 of x0: float32[N, 2]; got"),
        ({"freeDimensionNameOverrides": {"N": 2}}, {"x0": rows("a", 3, 2)}, "x0.shape must have size 2 of x0"),
        ({"freeDimensionNameOverrides": {"N": 2**31}}, {}, "bindings.x0.shape must take at most 2147483648"),
        ({}, {"y": rows("c", 3, 2)}, "bindings.y.shape must be [2, 2], which the model computes; got [3, 2]"),
        ({}, {"y": {"name": "c", "shape": "2,2"}}, "commands[0].bindings.y.shape must be a sequence of integers"),
        ({}, {"x0": "later"}, "bindings.x0.name must be an output of an ONNX model before it is used, because its"),
        ({}, {"x0": "later", "y": "later"}, "bindings.x0.name must be an output of an ONNX model before it is used"),
        ({}, {"y": "small"}, "commands[0].bindings.y must have 16 bytes; got 4, in 'small' from byte 0 on"),
    ],
)
def test_invalid_models_are_refused_with_the_reason(changes: Any, bindings: Any, message: str, tmp_path: Path) -> None:
    onnx.save(reshape({"sizes": np.array([4, 2])}), tmp_path / "reshape.onnx")
    resources = DATA | {"small": listed("FLOAT32", [1])}
    reported = findings(tmp_path, resources, {"concat": CONCAT | changes}, [dispatch("concat", **bindings)])
    assert message in reported[0]


def reshape(constants: dict[str, Any] | None = None) -> onnx.ModelProto:
    node = helper.make_node("Reshape", ["x", "sizes"], ["z"], "z")
    return model([node], [value("x", FLOAT, [6]), value("sizes", INT64, [2])], [value("z", FLOAT, None)], constants)


@pytest.mark.parametrize("sizes", [[2, 3], [-1, 1]])
def test_a_model_may_read_sizes_from_a_buffer(sizes: list[int], tmp_path: Path) -> None:
    onnx.save(reshape(), tmp_path / "reshape.onnx")
    resources = DATA | {"sizes": listed("INT64", sizes)}
    commands = [dispatch("sized", x="a", sizes="sizes", z="later")]
    read = load_model(tmp_path, resources, {"sized": CONCAT | {"sourcePath": "reshape.onnx"}}, commands)
    if not jax.config.read("jax_enable_x64"):
        with pytest.raises(InvalidModel, match=r"dispatchables\.sized\.sizes\.DataType.*got INT64"):
            Execution(read)
        return
    assert run(read).values("later").tolist() == [1, 2, 3, 4, 5, 6]


UNIQUE = model(
    [
        helper.make_node("Unique", ["x"], ["values", "first", "places", "counts"]),
        helper.make_node("Cast", ["counts"], ["count"], to=FLOAT),
    ],
    [value("x", FLOAT, ["N"])],
    [value("values", FLOAT, [None]), value("count", FLOAT, [None])],
)


@pytest.mark.parametrize("given", [[3, 1, 3, 2, 1, 3], [5] * 6, [6, 5, 4, 3, 2, 1]])
def test_deferred_resources_take_dynamic_sizes(given: list[float], tmp_path: Path) -> None:
    path = tmp_path / "unique.onnx"
    onnx.save(UNIQUE, path)
    resources = {
        "x": listed("FLOAT32", given),
        "values": listed("FLOAT32", "deferred"),
        "count": listed("UNKNOWN", "deferred"),
    }
    shown = [{"type": "print", "resource": name} for name in ("values", "count")]
    command = dispatch("unique", x=rows("x", 6), values="values", count="count")
    count = len({*given})
    saved = {"type": "writeFile", "resource": "values", "targetPath": "values.npy", "dimensions": [count]}
    unique = {"unique": CONCAT | {"sourcePath": "unique.onnx"}}
    read = load_model(tmp_path, resources, unique, [command, *shown, command, saved])
    with pytest.raises(Unsupported, match="no program for all inputs, because values decide sizes"):
        trace(read.dispatchables["unique"])
    for variant in (read, fuse(read)):
        execution = run(variant, output_path=tmp_path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        expected = session.run(None, {"x": np.array(given, np.float32)})
        for name, due in zip(("values", "count"), expected, strict=True):
            np.testing.assert_array_equal(execution.values(name), due, strict=True)
        np.testing.assert_array_equal(np.load(tmp_path / "values.npy"), expected[0], strict=True)
    text = "".join(result_pieces(execution.result(1), "cpu", 0, 1))
    assert text == f"Resource 'values': {', '.join(f'{number:g}' for number in sorted({*given}))}"


def test_results_of_dynamic_size_start_a_larger_buffer(tmp_path: Path) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Cast", ["places"], ["y"], to=FLOAT)]
    onnx.save(model(nodes, [value("x", FLOAT, [2, 3])], [value("y", FLOAT, None)]), tmp_path / "nonzero.onnx")
    resources = {"x": listed("FLOAT32", [0, 1, 0, 2, 0, 3]), "y": listed("FLOAT32", [-1] * 16)}
    nonzero = {"nonzero": CONCAT | {"sourcePath": "nonzero.onnx"}}
    bound = {"name": "y", "elementOffset": 4}
    execution = ran(tmp_path, nonzero, [dispatch("nonzero", x="x", y=bound)], resources)
    assert execution.values("y").tolist() == [-1] * 4 + [0, 1, 1, 1, 0, 2] + [-1] * 6
    small = load_model(tmp_path, resources, nonzero, [dispatch("nonzero", x="x", y=bound | {"elementOffset": 12})])
    with pytest.raises(InvalidModel, match=r"commands\[0\].bindings.y must have 24 bytes; got 16, in 'y' from byte 48"):
        run(small)


def test_too_small_results_are_refused_when_run(tmp_path: Path) -> None:
    onnx.save(UNIQUE, tmp_path / "unique.onnx")
    unique = {"unique": CONCAT | {"sourcePath": "unique.onnx"}, "concat": CONCAT}
    commands = [
        dispatch("unique", x=rows("x", 6), values="later"),
        dispatch("concat", x0=rows("later", 3, 2), x1=rows("b", 3, 2), y="c"),
    ]
    for given, is_enough in (([1, 2, 3, 4, 5, 6], True), ([1, 1, 2, 3, 4, 5], False)):
        execution = Execution(load_model(tmp_path, DATA | {"x": listed("FLOAT32", given)}, unique, commands))
        execution.result(0)
        if is_enough:
            execution.result(1)
            continue
        with pytest.raises(InvalidModel, match=r"commands\[1\].bindings.x0.buffer must hold at least 24 bytes.*got 20"):
            execution.result(1)


def test_a_deferred_resource_grows_again(tmp_path: Path) -> None:
    onnx.save(UNIQUE, tmp_path / "unique.onnx")
    unique = {"unique": CONCAT | {"sourcePath": "unique.onnx"}, "concat": CONCAT}
    commands = [
        dispatch("unique", x=rows("x", 4), values="later"),
        dispatch("concat", x0="a", x1="b", y="later"),
        dispatch("unique", x=rows("x", 4), count="later"),
    ]
    execution = Execution(load_model(tmp_path, DATA | {"x": listed("FLOAT32", [1, 1, 1, 1])}, unique, commands))
    for index, expected in enumerate([[1], [1, 2, 7, 8], [4], [1, 2, 7, 8]]):
        execution.result(index if index < 3 else 1)
        assert execution.values("later").tolist() == expected


def test_too_large_models_are_refused_before_they_run(tmp_path: Path) -> None:
    nodes = [helper.make_node("Expand", ["x", "sizes"], ["large"]), helper.make_node("ReduceSum", ["large"], ["y"])]
    sizes = {"sizes": np.array([2**20, 2**12])}
    onnx.save(model(nodes, [value("x", FLOAT, [1])], [value("y", FLOAT, [1, 1])], sizes), tmp_path / "large.onnx")
    (finding,) = findings(tmp_path, DATA, {"large": CONCAT | {"sourcePath": "large.onnx"}}, [dispatch("large", x="a")])
    assert "must compute with arrays of at most 2147483648 bytes; got float32[1048576,4096]" in finding


def test_booleans_scalars_and_noise_are_stored(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Greater", ["x", "limit"], ["is_above"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("RandomUniformLike", ["x"], ["noise"]),
    ]
    inputs = [value("x", FLOAT, [3]), value("limit", FLOAT, [])]
    outputs = [value("is_above", BOOL, [3]), value("sum", FLOAT, []), value("noise", FLOAT, [3])]
    onnx.save(model(nodes, inputs, outputs), tmp_path / "mixed.onnx")
    resources = {"x": listed("FLOAT32", [1, 2, 3]), "limit": listed("FLOAT32", [1.5])}
    resources |= {"is_above": zeros("UINT8", 4), "sum": zeros("FLOAT32", 1), "noise": zeros("FLOAT32", 3)}
    bindings = dispatch("mixed", **{name: name for name in resources})
    execution = ran(tmp_path, {"mixed": CONCAT | {"sourcePath": "mixed.onnx"}}, [bindings], resources)
    assert execution.values("is_above").tolist() == [0, 1, 1, 0]
    assert execution.values("sum").tolist() == [6]
    noise = execution.values("noise").tolist()
    assert len({*noise}) == 3
    execution.result(0)
    assert execution.values("noise").tolist() == noise


def test_a_deferred_resource_keeps_its_size(tmp_path: Path) -> None:
    large = dispatch("concat", x0=rows("a", 3, 2), x1=rows("b", 3, 2), y="later")
    small = dispatch("concat", y="later")
    (finding,) = findings(tmp_path, DATA, {"concat": CONCAT}, [large, small])
    assert "commands[1].bindings.y must have 48 bytes, like the first output in 'later'; got 16" in finding
    (finding,) = findings(tmp_path, DATA, {"concat": CONCAT}, [small, large])
    assert "commands[1].bindings.y must have 48 bytes; got 16, in 'later' from byte 0 on" in finding
    wrong = DATA | {"later": listed("FLOAT", "deferred")}
    (finding,) = findings(tmp_path, wrong, {"concat": CONCAT}, [dispatch("concat", y="later")])
    assert "resources.later.initialValuesDataType must be one of UNKNOWN, FLOAT32" in finding
    (finding,) = findings(tmp_path, DATA, {}, [{"type": "print", "resource": "later"}])
    assert "commands[0].resource must be an output of an ONNX model before it is used" in finding


def test_a_missing_onnx_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dmljax.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    (finding,) = findings(tmp_path, {}, {"concat": CONCAT})
    assert "dispatchables.concat.sourcePath: ONNX models need the package onnx" in finding
    assert f"({command_for('onnx')})" in finding
