"""Names of DirectML's interface and enumerations, and what to write instead."""

import copy
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refuses

import dmljax
from dmljax import DmlError, directml, pydirectml
from dmljax.descriptors import spellings
from dmljax.directml import DataType, FeatureLevel, MatrixTransform, TensorDesc


@pytest.mark.parametrize(
    ("enumeration", "name", "meant"),
    [
        (DataType, "FLOAT", "FLOAT32"),
        (DataType, "DML_TENSOR_DATA_TYPE_FLOAT16", "FLOAT16"),
        (FeatureLevel, "DML_FEATURE_LEVEL_6_2", "FL_6_2"),
        (directml.ReduceFunction, "SUMM", "SUM"),
        (directml.ReduceFunction, "REDUCE_SUM", "SUM"),
        (directml.DataType, "TENSOR_FLOAT32", "FLOAT32"),
        (pydirectml.TensorDataType, "HALF", "FLOAT16"),
    ],
)
def test_a_wrong_member_leads_to_a_right_one(enumeration: Any, name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(enumeration, name)
    assert str(refused.value) == f"{enumeration.__name__} has no member {name!r}, did you mean {meant}?"
    assert getattr(enumeration, meant).name == meant
    assert not hasattr(enumeration, "_private")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("FLOAT", ", did you mean FLOAT32?"),
        ("double", ", did you mean FLOAT64?"),
        ("FLOT16", ", did you mean FLOAT16?"),
        (float, " (use 'FLOAT32')"),
        (np.dtype(bool), " (use 'UINT8')"),
        (jnp.float16, " (use 'FLOAT16')"),
    ],
)
def test_a_type_by_another_name_leads_to_directmls(name: Any, hint: str) -> None:
    with pytest.raises(DmlError) as refused:
        TensorDesc(name, (1,))
    assert str(refused.value).endswith(hint)


def test_an_enumerator_is_shown_as_one_writes_it() -> None:
    with pytest.raises(DmlError, match=r"got directml\.MatrixTransform\.NONE$"):
        dmljax.reduce(jnp.ones(2), MatrixTransform.NONE)  # type: ignore[arg-type]
    with pytest.raises(DmlError, match=r"must be one of 1_0, .*, 6_4; got '99'$"):
        directml.validate(directml.ActivationReluDesc(), feature_level="99")
    with pytest.raises(DmlError, match=r"got True \(use 'TRANSPOSE'\)$"):
        directml.GemmDesc(
            a=TensorDesc("INT8", (1,)),
            b=TensorDesc("INT8", (1,)),
            output=TensorDesc("INT8", (1,)),
            trans_a=True,
            trans_b=False,
            alpha=1,
            beta=0,
        )


INPUT = TensorDesc("FLOAT32", (2, 3))
RELU = directml.ActivationReluDesc(input=INPUT, output=INPUT)
INTERFACE = """
DMLCreateDevice IDMLDevice IDMLDevice1 CreateOperator CompileOperator IDMLCompiledOperator IDMLDispatchable: lower(desc)
CompileGraph compile: lower(desc)
BindingTable IDMLBindingTable CreateBindingTable DML_BINDING_DESC DML_BUFFER_BINDING BindInputs: lower(desc)(*arrays)
IDMLCommandRecorder RecordDispatch ExecuteCommandLists dispatch run: lower(desc)(*arrays)
DMLCalcBufferTensorSize: tensor.minimum_size_in_bytes
CheckFeatureSupport DML_FEATURE_FEATURE_LEVELS: find_minimum_feature_level(desc)
DML_TARGET_VERSION: validate(desc, feature_level="6_4")
DML_OPERATOR_DESC: GemmDesc
DML_OPERATOR_TYPE: OPERATORS
DML_TENSOR_DIMENSION_COUNT_MAX: 5
DML_TENSOR_DIMENSION_COUNT_MAX1: 8
DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT: 16
DML_TEMPORARY_BUFFER_ALIGNMENT: 256
DML_EXECUTION_FLAG_NONE DML_CREATE_DEVICE_FLAG_DEBUG DML_TENSOR_TYPE_BUFFER IDMLOperatorInitializer: leave it out
ID3D12Device D3D12CreateDevice CD3DX12_HEAP_PROPERTIES IDXGIFactory4 BindTemporaryResource: leave it out
"""
ENTRIES = [(name, line.split(": ")[1]) for line in INTERFACE.splitlines() for name in line.split(":")[0].split()]


def written_in(hint: str) -> str:
    """The code that a hint says to use."""
    return re.fullmatch(r".*; use ((?:[^,(]|\(.*?\))+)(,| for |$).*", hint)[1]  # type: ignore[index]


@pytest.mark.parametrize(("name", "meant"), ENTRIES)
def test_a_name_of_the_interface_leads_to_what_takes_its_place(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(directml, name)
    if meant == "leave it out":
        assert f"{name!r}; leave it out: " in str(refused.value)
    else:
        assert f"; use {meant}" in str(refused.value).replace("dmljax.directml.", "")


@pytest.mark.parametrize("code", [code for _, code, _ in spellings.INTERFACE if code])
def test_what_takes_the_place_of_the_interface_runs(code: str) -> None:
    arrays = [np.ones((2, 3), np.float32)]
    eval(code, {"dmljax": dmljax, "desc": RELU, "arrays": arrays, "tensor": RELU.input})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DML_TENSOR_DATA_TYPE", "DataType"),
        ("DML_TENSOR_FLAGS", "TensorFlags"),
        ("DML_FEATURE_LEVEL", "FeatureLevel"),
        ("ReduceFunctions", "ReduceFunction"),
        ("DML_SCALAR_UNION", "Scalar"),
        ("DML_SIZE_2D", "Size2D"),
    ],
)
def test_a_type_of_the_header_leads_to_that_of_directml(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"{name}', did you mean {meant}\?$"):
        getattr(directml, name)
    with pytest.raises(AttributeError, match=rf"{name}', did you mean dmljax\.directml\.{meant}\?$"):
        getattr(dmljax, name)


GEMM = directml.GemmDesc(
    **dict.fromkeys(("a", "b", "output"), TensorDesc("FLOAT32", (1, 1, 2, 2))),  # type: ignore[arg-type]
    trans_a=MatrixTransform.NONE,
    trans_b=MatrixTransform.NONE,
    alpha=1,
    beta=0,
)
GRAPH = directml.Graph(
    nodes={"relu": RELU}, edges={"relu.input": "x"}, inputs={"x": INPUT}, outputs={"y": "relu.output"}
)


@pytest.mark.parametrize(
    ("thing", "name", "hint"),
    [
        (GEMM, "ATensor", ", did you mean a?"),
        (GEMM, "TransB", ", did you mean trans_b?"),
        (GEMM, "compile", "; use dmljax.directml.lower(desc), a function of arrays"),
        (GEMM, "toJson", "; use dmljax.directml.to_json(desc)"),
        (GEMM, "inputs", "; use desc.tensors(is_input=True)"),
        (GEMM, "xyzzy", ""),
        (RELU, "InputTensor", ", did you mean input?"),
        (GRAPH, "lower", "; use dmljax.directml.lower(desc)"),
        (GRAPH, "run", "; use dmljax.directml.lower(desc)(*arrays), which computes"),
        (GRAPH, "node", ", did you mean nodes?"),
        (RELU.input, "Sizes", ", did you mean sizes?"),
        (RELU.input, "shape", ", did you mean sizes?"),
        (RELU.input, "DimensionCount", ", did you mean rank?"),
        (RELU.input, "TotalTensorSizeInBytes", ", did you mean total_tensor_size_in_bytes?"),
        (RELU.input, "itemsize", "; use tensor.data_type.bits // 8"),
    ],
)
def test_an_attribute_in_another_spelling_leads_to_the_right_one(thing: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(thing, name)
    assert str(refused.value) == f"{type(thing).__name__!r} has no attribute {name!r}{hint}"
    if ", did you mean" in hint:
        getattr(thing, hint.removeprefix(", did you mean ").removesuffix("?"))
    elif hint:
        arrays = [np.ones((2, 3), np.float32)]
        eval(written_in(str(refused.value)), {"dmljax": dmljax, "desc": RELU, "tensor": thing, "arrays": arrays})
    assert not hasattr(thing, "__array__")
    assert copy.deepcopy(thing) is not None


def test_a_descriptor_that_is_called_leads_to_lower() -> None:
    with pytest.raises(TypeError, match=r"RELU: a descriptor does not compute \(use (.*)\)$") as refused:
        RELU(np.ones((2, 3), np.float32))  # type: ignore[operator]
    remedy = str(refused.value.problems[0].remedy)  # type: ignore[attr-defined]
    arrays = [np.ones((2, 3), np.float32)]
    assert eval(remedy.removeprefix("use "), {"dmljax": dmljax, "desc": RELU, "arrays": arrays}).shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: directml.OPERATORS["GEMM"], "no operator has the name 'GEMM', did you mean DML_OPERATOR_GEMM?"),
        (lambda: directml.lower(RELU, level="4_1"), "lower: got ... (did you mean feature_level for level?)"),  # type: ignore[call-arg]
        (
            lambda: directml.from_json({"Type": "ELEMENT_WISE_ABS"}),
            "... must be given; ...\n  OutputTensor must be given",
        ),
        (lambda: directml.Convolution, "... has no attribute 'Convolution', did you mean ConvolutionDesc?"),  # type: ignore[attr-defined]
        (lambda: directml.float32, "... has no attribute 'float32', did you mean DataType.FLOAT32?"),  # type: ignore[attr-defined]
    ],
)
def test_other_mistakes_lead_to_what_is_meant(call: Any, message: str) -> None:
    with refuses(message, Exception):
        call()
