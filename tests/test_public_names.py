"""The names that dmljax exports."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, few_of

import dmljax
from dmljax import directml, dxdispatch, examples, onnx, pydirectml, serialized
from dmljax.functions import ALIASES


def test_every_operator_is_exported() -> None:
    for operator in directml.OPERATORS.values():
        assert getattr(dmljax.directml, operator.__name__) is operator
        assert getattr(dmljax, operator.short_name.lower()) is operator.function


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DML_TENSOR_DATA_TYPE_FLOAT32", "DataType.FLOAT32"),
        ("DML_FEATURE_LEVEL_2_0", "FeatureLevel.FL_2_0"),
        ("DML_CONVOLUTION_OPERATOR_DESC", "ConvolutionDesc"),
        ("DML_OPERATOR_GATHER_ND1", "GatherNd1Desc"),
        ("DML_SCATTER_ELEMENTS_OPERATOR_DESC", "ScatterElementsDesc"),
        ("DML_BUFFER_TENSOR_DESC", "TensorDesc"),
        ("Convolution2Desc", "ConvolutionDesc"),
        ("Validate", "validate"),
        ("GEMM_OPERATOR_DESC", "GemmDesc"),
        ("FEATURE_LEVEL_6_2", "FeatureLevel.FL_6_2"),
        ("FLOAT32", "DataType.FLOAT32"),
        ("BufferTensorDesc", "TensorDesc"),
        ("GraphDesc", "Graph"),
        ("DML_INTERMEDIATE_GRAPH_EDGE_DESC", "Graph"),
        ("Gemm", "GemmDesc"),
        ("gemm", "dmljax.gemm"),
        ("SoftmaxDesc", "ActivationSoftmaxDesc or ActivationSoftmax1Desc"),
    ],
)
def test_names_of_the_header_lead_to_those_of_directml(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf" has no attribute '{name}', did you mean {meant}\?$"):
        getattr(directml, name)


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (dmljax, "DML_OPERATOR_GEMM", ", did you mean dmljax.directml.GemmDesc?"),
        (dmljax, "FEATURE_LEVEL_6_2", ", did you mean dmljax.directml.FeatureLevel.FL_6_2?"),
        (dmljax, "Gemm", ", did you mean gemm?"),
        (
            dmljax,
            "Device",
            "; use dmljax.pydirectml for a program of PyDirectML, and dmljax.directml.lower(desc) for others",
        ),
        (dmljax, "IDMLDevice", "; use dmljax.directml.lower(desc), a function of arrays on JAX's devices"),
        (dmljax, "DMLCalcBufferTensorSize", "; use tensor.minimum_size_in_bytes, of a TensorDesc"),
        (dxdispatch, "load_model", "; use load"),
        (onnx, "load_model", "; use dmljax.onnx.load"),
        (onnx, "InferenceSession", "; use dmljax.onnx.load(path)(x)"),
        (onnx, "languag_model", ", did you mean language_model?"),
        (serialized, "read", "; use load"),
        (serialized, "nothing_like_it", "nothing_like_it'"),
    ],
)
def test_names_of_elsewhere_lead_to_names_here(module: ModuleType, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert str(raised.value).startswith(f"module '{module.__name__}' has no attribute '{name}'")
    assert str(raised.value).endswith(hint)


@pytest.mark.parametrize("module", [directml, dxdispatch, examples, onnx, pydirectml, serialized])
def test_completion_shows_what_is_public(module: ModuleType) -> None:
    assert dir(module) == sorted(module.__all__)
    assert [name for name in dir(module) if inspect.ismodule(getattr(module, name))] == []


def public_names_of(module: ModuleType) -> dict[str, Any]:
    names = [name for name in dir(module) if not name.startswith("_")]
    return {n: v for n in names if not inspect.ismodule(v := getattr(module, n))}


def test_public_objects_report_the_module_that_users_import() -> None:
    for module in (dmljax, dmljax.directml):
        for name, value in public_names_of(module).items():
            if name != "OPERATORS" and name not in ALIASES:
                assert (value.__module__, value.__name__) == (module.__name__, name)


def test_the_package_exports_the_functions_and_their_types() -> None:
    functions = {operator.short_name.lower() for operator in dmljax.directml.OPERATORS.values()}
    results = {name for name in public_names_of(dmljax) if name[0].isupper() and name != "DmlError"}
    assert all(issubclass(getattr(dmljax, name), tuple) for name in results)
    rooms = {"directml", "dxdispatch", "examples", "onnx", "pydirectml", "serialized"}
    listed = {name for name in dir(dmljax) if not name.startswith("_")}
    assert listed == {"DmlError", "estimate", "show"} | functions | results | rooms | ALIASES.keys()
    assert {"__all__", "__doc__", "__file__", "__version__"} <= set(dir(dmljax))


def test_results_name_their_fields() -> None:
    results = dmljax.top_k(jnp.arange(3.0), axis=0, k=1)
    with pytest.raises(AttributeError) as raised:
        results.value  # type: ignore[attr-defined]  # noqa: B018
    assert (
        str(raised.value) == "'TopK' has no attribute 'value', did you mean values?; its fields are values and indices"
    )
    assert not hasattr(results, "_private")


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_is_jax_function_of_that_name(name: str) -> None:
    function, x = getattr(dmljax, name), jax.random.normal(jax.random.key(0), (3, 40)) * 4
    assert function is getattr(dmljax, f"activation_{name}")
    np.testing.assert_allclose(function(x), getattr(jax.nn, name)(x), rtol=1e-6, atol=1e-6)


def test_no_two_public_classes_share_a_name() -> None:
    # PyDirectML's have the names of Microsoft's binding.
    classes = {
        value
        for module in (dmljax, directml, dxdispatch, onnx)
        for value in public_names_of(module).values()
        if inspect.isclass(value) and value.__module__.startswith("dmljax")
    }
    assert len({value.__name__ for value in classes}) == len(classes)


def test_errors_point_to_descriptors_in_directml() -> None:
    with pytest.raises(AttributeError, match=r"'OneHotDesc', did you mean dmljax\.directml\.OneHotDesc\?$"):
        dmljax.OneHotDesc  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("resample2d", ", did you mean resample2?"),
        ("l2Pool2d", ", did you mean lp_pooling or lp_pooling1?"),
        ("triangular", ", did you mean diagonal_matrix1?"),
        ("nonzero_coordinate", ", did you mean nonzero_coordinates?"),
        ("softmx", ", did you mean activation_softmax?"),
        ("causal_mask", ", did you mean diagonal_matrix1 or multihead_attention1?"),
        ("help", "; in a shell, `dmljax explain relu` explains a function"),
        ("xyzzy", ""),
        ("_relu", ""),
        ("", ""),
    ],
)
def test_names_from_other_libraries_are_answered_with_dmljaxs(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(dmljax, name)
    assert str(refused.value) == f"module 'dmljax' has no attribute {name!r}{meant}"


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        ("dmljax", "activation_reul", ", did you mean activation_relu?"),
        ("dmljax", "conv2d", "; use convolution(x, filter)"),
        ("dmljax.directml", "SoftmaxDesc", ", did you mean ActivationSoftmaxDesc or ActivationSoftmax1Desc?"),
    ],
)
def test_an_import_of_another_name_has_the_hint(module: str, name: str, meant: str) -> None:
    with pytest.raises(ImportError) as refused:
        exec(f"from {module} import {name}")
    assert str(refused.value) == f"cannot import name {name!r} from {module!r}{meant}"
    assert not hasattr(import_module(module), name)


@pytest.mark.parametrize("room", few_of(["directml", "dxdispatch", "onnx", "pydirectml", "serialized"], "onnx"))
@GATE
def test_formats_are_imported_on_demand(room: str) -> None:
    program = f"import dmljax, sys; assert 'dmljax.{room}' not in sys.modules; print(dmljax.{room}.__name__)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (f"dmljax.{room}\n", "")


@GATE
def test_the_package_is_imported_without_jax() -> None:
    program = "import dmljax, sys; assert 'jax' not in sys.modules; print(dmljax.gather.__module__, dir(dmljax)[-1])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("dmljax value_scale_2d\n", "")


@GATE
def test_one_function_loads_few_modules() -> None:
    program = (
        "import dmljax, sys; dmljax.activation_relu; print(sum(name.startswith('dmljax') for name in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(run.stdout) <= 50


def test_the_version_matches_the_changelog() -> None:
    changelog = (Path(__file__).parent.parent / "CHANGELOG.md").read_text()
    assert re.search(r"^## ([\d.]+)", changelog, re.MULTILINE)[1] == dmljax.__version__  # type: ignore[index]


def test_public_names_other_than_operators_are_in_the_reference() -> None:
    operators = {kind.__name__ for kind in directml.OPERATORS.values()}
    operators |= {kind.short_name.lower() for kind in directml.OPERATORS.values()}
    public = public_names_of(dmljax).keys() | public_names_of(dmljax.directml).keys()
    reference = (Path(dmljax.__file__).parents[1] / "notebooks" / "reference.md").read_text().splitlines()
    assert public - operators - ALIASES.keys() - {"OPERATORS"} <= set(reference)
