"""Descriptors as a whole: levels, findings, lowering, and the JSON spelling; each operator's rules are in tests/ops."""

import inspect
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE
from hypothesis import given, settings, strategies as st

import dmljax
from dmljax import directml
from dmljax.descriptors import members as kinds
from dmljax.descriptors.json_form import Fused
from dmljax.directml import (
    AxisDirection,
    DataType,
    FeatureLevel,
    InvalidDesc,
    InvalidType,
    Scalar,
    TensorDesc,
    TensorFlags,
    Unsupported,
)

FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32
MATRIX = TensorDesc(FLOAT32, (1, 1, 2, 3))
HARDMAX = directml.ActivationHardmaxDesc(input=MATRIX, output=MATRIX)


def fill(value: Any = 7, data_type: DataType = FLOAT32) -> directml.DiagonalMatrix1Desc:
    return directml.DiagonalMatrix1Desc(
        output=TensorDesc(data_type, (2, 3)),
        value_data_type=data_type,
        value=value,
        diagonal_fill_begin=0,
        diagonal_fill_end=1,
    )


# Feature levels


def test_the_levels_equal_directmls() -> None:
    spelled = ["1_0", "2_0", "2_1", "3_0", "3_1", "4_0", "4_1", "5_0", "5_1", "5_2", "6_0", "6_1", "6_2", "6_3", "6_4"]
    assert [str(level) for level in FeatureLevel] == [f"DML_FEATURE_LEVEL_{name}" for name in spelled]
    assert [f"{level:x}" for level in FeatureLevel] == [name.replace("_", "") + "00" for name in spelled]


@pytest.mark.parametrize("level", [FeatureLevel.FL_3_0, "3_0", "FL_3_0", "DML_FEATURE_LEVEL_3_0", 0x3000])
def test_a_level_may_be_spelled_in_several_ways(level: Any) -> None:
    directml.validate(HARDMAX, feature_level=level)


@pytest.mark.parametrize("level", ["3.0", "7_0", 3, None, "FL_FL_3_0"])
def test_an_unknown_level_is_refused(level: Any) -> None:
    with pytest.raises(InvalidDesc, match=r"feature_level must be one of 1_0, .*; got"):
        directml.validate(HARDMAX, feature_level=level)


def test_all_findings_are_reported_at_once() -> None:
    desc = directml.ActivationHardmaxDesc(
        input=TensorDesc(DataType.FLOAT64, (2, 3, 4)), output=TensorDesc(DataType.INT4, (2, 3))
    )
    findings = directml.find_broken_rules(desc, feature_level="1_0")
    assert findings == (
        "InputTensor.DimensionCount must be 4; got 3",
        "InputTensor.DataType must be one of FLOAT32, FLOAT16; got FLOAT64",
        "OutputTensor.DimensionCount must be 4; got 2",
        "OutputTensor.DataType must be one of FLOAT32, FLOAT16; got INT4",
        "InputTensor.Sizes must be 1 before the last two; got {2,3,4}",
        "InputTensor and OutputTensor must have the same DataType; got FLOAT64 and INT4",
        "InputTensor and OutputTensor must have the same DimensionCount; got 3 and 2",
        "InputTensor and OutputTensor must have the same Sizes; got {2,3,4} and {2,3}",
    )
    with pytest.raises(InvalidDesc) as refused:
        directml.validate(desc, feature_level="1_0")
    expected = "DML_OPERATOR_ACTIVATION_HARDMAX at DML_FEATURE_LEVEL_1_0: " + "\n  ".join(findings)
    assert str(refused.value) == expected


tensor_descs = st.builds(
    TensorDesc,
    st.sampled_from([data_type for data_type in DataType if data_type is not DataType.UNKNOWN]),
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
)
small = st.integers(0, 9)


def of_kind(kind: kinds.MemberKind) -> Any:
    """Values of one kind of member, right or wrong."""
    if isinstance(kind, kinds.Tensor):
        return tensor_descs
    if isinstance(kind, kinds.Enumeration):
        return st.sampled_from([member for member in kind.enumeration if member is not DataType.UNKNOWN])
    if isinstance(kind, kinds.Boolean):
        return st.booleans()
    if isinstance(kind, kinds.Struct):
        return st.builds(kind.form, *(of_kind(kind.of) for _ in kind.fields))
    if isinstance(kind, Fused):
        return st.sampled_from([directml.ActivationTanhDesc(), directml.ActivationEluDesc(alpha=0.5)])
    return st.integers(-9, 9) if kind == kinds.INT else small


@settings(deadline=None, max_examples=400)
@given(st.data())
@GATE
def test_any_desc_is_validated_without_a_crash(data: st.DataObject) -> None:
    operator = data.draw(st.sampled_from(list(directml.OPERATORS.values())))
    numbers: dict[str, Any] = {
        "value": st.just(1),
        "value_start": st.integers(0, 7),
        "value_delta": st.integers(0, 7),
        "padding_value": st.integers(0, 7),
        "min": st.integers(0, 7),  # also 4-bit numbers
        "max": st.integers(0, 7),
        "scale_bias": st.none() | st.builds(directml.ScaleBias, small, small),
        "fused_activation": st.sampled_from(
            [None, directml.ActivationReluDesc(), directml.ActivationSoftplusDesc(steepness=0)]
        ),
    }
    lengths: dict[str, int] = {}  # arrays that share a count have the same length
    members = {}
    for member in operator.members():
        if isinstance(member.kind, kinds.Array) and member.kind.count:
            length = lengths.setdefault(member.kind.count, data.draw(st.integers(0, 4)))
            each = of_kind(member.kind.of)
            members[member.field] = data.draw(st.lists(each, min_size=length, max_size=length))
        else:
            has_number = member.field in numbers and member.tensor_kind is None
            members[member.field] = data.draw(numbers[member.field] if has_number else of_kind(member.kind))
    desc = operator(**members)
    for level in FeatureLevel:
        findings = directml.find_broken_rules(desc, feature_level=level)
        assert all(" must " in finding and "; got " in finding for finding in findings)
    if not findings:
        directml.find_minimum_feature_level(desc)
    assert directml.from_json(json.loads(json.dumps(directml.to_json(desc)))) == desc


# Lowering


def test_lowered_descs_take_inputs_by_position_or_name() -> None:
    desc = directml.GatherNdDesc(
        input=TensorDesc(FLOAT32, (3,)),
        indices=TensorDesc(UINT32, (1,)),
        output=TensorDesc(FLOAT32, (1,)),
        input_dimension_count=1,
        indices_dimension_count=1,
    )
    input, indices = np.array([1, 2, 3], np.float32), np.array([1], np.uint32)
    gather = directml.lower(desc)
    assert gather(input, indices).tolist() == gather(indices=indices, input=input).tolist() == [2]
    assert gather.__name__ == "gather_nd"


def test_an_absent_optional_input_is_no_parameter() -> None:
    assert directml.lower(fill())().tolist() == [[7, 0, 0], [0, 7, 0]]
    with pytest.raises(InvalidType, match=r"^DML_OPERATOR_DIAGONAL_MATRIX1: too many positional arguments"):
        directml.lower(fill())(np.zeros((2, 3), np.float32))


def test_lowering_refuses_what_the_level_refuses() -> None:
    with pytest.raises(
        InvalidDesc,
        match=r"^DML_OPERATOR_DIAGONAL_MATRIX1 at DML_FEATURE_LEVEL_5_0: the feature level must be at least",
    ):
        directml.lower(fill(), feature_level="5_0")


class Parameter:
    """An object that is not an array but converts to one."""

    def __jax_array__(self) -> jax.Array:
        return jnp.array([[[[1.0, 5.0, 5.0], [2.0, 0.0, 1.0]]]], jnp.float32)


@pytest.mark.parametrize(
    ("input", "error", "message"),
    [
        (np.zeros((1, 1, 2, 3)), InvalidType, "InputTensor must be of float32, like its desc; got float64"),
        (np.zeros((2, 3), np.float32), InvalidDesc, r"InputTensor must have Sizes \{1,1,2,3\}; got \{2,3\}"),
        ([[1.0]], InvalidType, "InputTensor must be a JAX or NumPy array; got list"),
        (1.0, InvalidType, "InputTensor must be a JAX or NumPy array; got float"),
        (None, InvalidType, "InputTensor must be a JAX or NumPy array; got NoneType"),
        (np.ma.zeros((1, 1, 2, 3), np.float32), InvalidType, "InputTensor must be an array without a mask"),
    ],
)
def test_a_lowered_desc_takes_nothing_but_its_arrays(input: Any, error: Any, message: str) -> None:
    hardmax = directml.lower(HARDMAX)
    assert hardmax(Parameter()).tolist() == [[[[0, 1, 0], [1, 0, 0]]]]
    with pytest.raises(error, match=r"^DML_OPERATOR_ACTIVATION_HARDMAX: " + message):
        hardmax(input)


@pytest.mark.parametrize(
    ("input", "error", "message"),
    [
        (jnp.zeros((1, 1, 2, 3), jnp.int32), InvalidType, "InputTensor must be of float32, like its desc; got int32"),
        (jnp.zeros((2, 3), jnp.float32), InvalidDesc, r"InputTensor must have Sizes \{1,1,2,3\}; got \{2,3\}"),
    ],
)
def test_jax_arrays_are_checked_while_tracing(input: Any, error: Any, message: str) -> None:
    hardmax = directml.lower(HARDMAX)
    right = jnp.zeros((1, 1, 2, 3), jnp.float32)
    for function in (hardmax, jax.jit(hardmax)):
        assert function(right).tolist() == [[[[1, 0, 0], [1, 0, 0]]]]
        with pytest.raises(error, match="^DML_OPERATOR_ACTIVATION_HARDMAX: " + message):
            function(input)


def test_descs_and_function_arguments_correspond() -> None:
    for operator in directml.OPERATORS.values():
        arguments = inspect.signature(operator.function).parameters
        fields = {field.field for field in operator.members()}
        assert operator.derived.keys() <= arguments.keys()
        assert {*operator.arguments, *operator.spread, *operator.implied} <= fields
        for member in operator.members():
            names = operator.spread.get(member.field, (operator.arguments.get(member.field, member.field),))
            is_told = member.kind == kinds.SCALAR_TYPE or member.field in operator.implied
            is_output = member.tensor_kind is not None and not member.tensor_kind.is_input
            assert is_output or is_told or arguments.keys() >= {*names}, (operator, member.field)


@pytest.mark.parametrize(
    "use",
    [
        directml.validate,
        directml.lower,
        directml.to_json,
        directml.find_broken_rules,
        directml.find_minimum_feature_level,
    ],
)
@pytest.mark.parametrize("given", [5, None, MATRIX, directml.ActivationHardmaxDesc])
def test_anything_but_a_descriptor_is_refused(use: Any, given: Any) -> None:
    with pytest.raises(InvalidType, match="a descriptor must be an Operator or a Graph; got "):
        use(given)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("relu", "(ActivationReluDesc(input=..., output=...) is one)"),
        (
            "DML_OPERATOR_GATHER",
            "(GatherDesc(input=..., indices=..., output=..., axis=..., index_dimensions=...) is one)",
        ),
        (dmljax.activation_hardmax, "(ActivationHardmaxDesc(input=..., output=...) is one)"),
        (directml.ActivationHardmaxDesc, "(ActivationHardmaxDesc(input=..., output=...) is one)"),
        ({"Type": "DML_OPERATOR_GATHER"}, "(from_json makes a descriptor of it)"),
        ("", "got ''"),
        ("elu_", "got 'elu_'"),
        ("lu", "got 'lu'"),
        (lambda: None, ">"),
    ],
)
def test_errors_for_functions_name_the_descriptor(given: Any, remedy: str) -> None:
    with pytest.raises(InvalidType) as refused:
        directml.lower(given)
    assert str(refused.value).endswith(remedy)


@pytest.mark.parametrize("level", ["3.0", 3.0])
def test_levels_with_a_point_get_their_name(level: Any) -> None:
    with pytest.raises(InvalidDesc, match=r"got '?3.0'? \(use '3_0'\)$"):
        directml.validate(HARDMAX, feature_level=level)


# JSON


def test_a_desc_is_spelled_as_in_directml_h() -> None:
    desc = directml.ArgmaxDesc(
        input=TensorDesc(FLOAT32, (2, 3), (0, 1), TensorFlags.OWNED_BY_DML, 16, 32),
        output=TensorDesc(UINT32, (2, 1)),
        axes=(1,),
        axis_direction=AxisDirection.DECREASING,
    )
    assert directml.to_json(desc) == {
        "Type": "DML_OPERATOR_ARGMAX",
        "Desc": {
            "InputTensor": {
                "DataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
                "Sizes": [2, 3],
                "Strides": [0, 1],
                "TotalTensorSizeInBytes": 16,
                "GuaranteedBaseOffsetAlignment": 32,
                "Flags": "DML_TENSOR_FLAG_OWNED_BY_DML",
            },
            "OutputTensor": {"DataType": "DML_TENSOR_DATA_TYPE_UINT32", "Sizes": [2, 1]},
            "AxisCount": 1,
            "Axes": [1],
            "AxisDirection": "DML_AXIS_DIRECTION_DECREASING",
        },
    }
    assert directml.from_json(directml.to_json(desc)) == desc


@pytest.mark.parametrize(
    ("data_type", "value", "spelled"),
    [
        ("FLOAT32", 0.1, 0.10000000149011612),
        ("FLOAT32", -0.0, -0.0),
        ("FLOAT32", np.nan, "nan"),
        ("FLOAT16", -np.inf, "-inf"),
        ("FLOAT64", np.inf, "inf"),
        ("INT64", -(2**63), -(2**63)),
        ("UINT64", 2**64 - 1, 2**64 - 1),
        ("FLOAT16", np.array(0x7C01, np.uint16).view(np.float16)[()], {"UInt16": 0x7C01}),
        ("FLOAT32", np.array(0xFFC00001, np.uint32).view(np.float32)[()], {"UInt32": 0xFFC00001}),
        ("FLOAT64", -np.float64(np.nan), {"UInt64": 0xFFF8000000000000}),
    ],
)
def test_scalars_keep_every_bit(data_type: str, value: Any, spelled: Any) -> None:
    desc = fill(value, DataType[data_type])
    json_value = directml.to_json(desc)["Desc"]["Value"]
    assert repr(json_value) == repr(spelled)
    assert directml.from_json(directml.to_json(desc)) == desc


@pytest.mark.parametrize(
    ("data_type", "given", "expected"),
    [
        ("FLOAT32", {"Float32": "nan"}, Scalar.of(FLOAT32, float("nan"))),
        ("FLOAT32", {"Float32": 1.5}, Scalar.of(FLOAT32, 1.5)),
        ("FLOAT16", {"UInt16": 0x3C00}, Scalar.of(DataType.FLOAT16, 1)),
        ("UINT8", {"UInt8": 255}, Scalar.of(DataType.UINT8, 255)),
        ("INT64", {"Int64": -1}, Scalar.of(DataType.INT64, -1)),
        ("INT8", -1, Scalar.of(DataType.INT8, -1)),
    ],
)
def test_scalar_unions_may_be_objects(data_type: str, given: Any, expected: Scalar) -> None:
    spelled = directml.to_json(fill(0, DataType[data_type]))
    spelled["Desc"]["Value"] = given
    desc = directml.from_json(spelled)
    assert isinstance(desc, directml.DiagonalMatrix1Desc)
    assert desc.value == expected


def test_an_output_cannot_be_owned_by_dml() -> None:
    owned = TensorDesc(FLOAT32, MATRIX.sizes, flags="OWNED_BY_DML")
    directml.validate(directml.ActivationHardmaxDesc(input=owned, output=MATRIX))
    for level in ("1_0", "6_4"):
        broken = directml.find_broken_rules(directml.ActivationHardmaxDesc(input=owned, output=owned), level)
        assert broken == ("OutputTensor.Flags must be NONE; got OWNED_BY_DML",)


def test_json_accepts_the_spellings_of_dxdispatch() -> None:
    tensor = {"DataType": "FLOAT32", "Sizes": [1, 1, 2, 3]}
    wrapped = {"Type": "DML_TENSOR_TYPE_BUFFER", "Desc": tensor}
    for spelled in (
        {"type": "ACTIVATION_HARDMAX", "InputTensor": tensor, "OutputTensor": wrapped},
        {
            "Type": "DML_OPERATOR_ACTIVATION_HARDMAX",
            "Desc": {"InputTensor": tensor | {"Flags": []}, "OutputTensor": tensor},
        },
        {"type": "ACTIVATION_HARDMAX", "desc": {"InputTensor": tensor | {"Strides": None}, "OutputTensor": tensor}},
        {"type": "ACTIVATION_HARDMAX", "InputTensor": tensor | {"Flags": ["NONE"]}, "OutputTensor": tensor},
        {"type": "ACTIVATION_HARDMAX", "InputTensor": tensor | {"TotalTensorSizeInBytes": 0}, "OutputTensor": tensor},
    ):
        assert directml.from_json(spelled) == HARDMAX
    owned = directml.from_json(
        {"type": "ACTIVATION_HARDMAX", "InputTensor": tensor | {"Flags": ["OWNED_BY_DML"]}, "OutputTensor": tensor}
    )
    assert isinstance(owned, directml.ActivationHardmaxDesc)
    assert owned.input.flags is TensorFlags.OWNED_BY_DML


def test_operator_aliases_are_read_and_written() -> None:
    tensor, indices = {"DataType": "FLOAT32", "Sizes": [3]}, {"DataType": "INT32", "Sizes": [3]}
    members = {"InputTensor": tensor, "IndicesTensor": indices, "UpdatesTensor": tensor, "OutputTensor": tensor}
    scatter, alias = (
        directml.from_json({"Type": name, "Desc": members | {"Axis": 0}})
        for name in ("SCATTER", "DML_OPERATOR_SCATTER_ELEMENTS")
    )
    assert isinstance(alias, directml.ScatterElementsDesc)
    assert isinstance(alias, type(scatter))
    assert type(alias).type == "DML_OPERATOR_SCATTER"
    spelled = directml.to_json(alias)
    assert spelled == directml.to_json(scatter) | {"Type": "DML_OPERATOR_SCATTER_ELEMENTS"}
    assert directml.from_json(spelled) == alias
    x, at, updates = np.zeros(3, np.float32), np.array([2, 0, 1], np.int32), np.array([1, 2, 3], np.float32)
    assert directml.lower(alias)(x, at, updates).tolist() == [2, 3, 1]


GOOD: dict[str, Any] = {
    "InputTensor": {"DataType": "FLOAT32", "Sizes": [2, 3]},
    "OutputTensor": {"DataType": "UINT32", "Sizes": [2, 1]},
    "AxisCount": 1,
    "Axes": [1],
    "AxisDirection": "INCREASING",
}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"InputTensor": None}, InvalidDesc, "InputTensor must be given; got none"),
        ({"InputTensor": 3}, InvalidType, "InputTensor must be an object; got 3"),
        ({"InputTensor": {"Sizes": [2, 3]}}, InvalidDesc, "InputTensor.DataType must be given"),
        ({"InputTensor": {"DataType": "FLOAT32"}}, InvalidDesc, "InputTensor.Sizes must be given"),
        (
            {"InputTensor": {"DataType": "FLOAT", "Sizes": [2]}},
            InvalidDesc,
            "InputTensor.DataType must be one of UNKNOWN",
        ),
        ({"InputTensor": {"DataType": 1, "Sizes": [2]}}, InvalidType, "InputTensor.DataType must be a name; got 1"),
        ({"InputTensor": {"DataType": "FLOAT32", "Sizes": [2, -3]}}, InvalidDesc, r"InputTensor.Sizes\[1\] must be in"),
        (
            {"InputTensor": {"DataType": "FLOAT32", "Sizes": [2, 3.0]}},
            InvalidType,
            r"InputTensor.Sizes\[1\] must be an int",
        ),
        (
            {"InputTensor": {"DataType": "FLOAT32", "Size": [2]}},
            InvalidDesc,
            "unknown field 'Size', did you mean Sizes?",
        ),
        (
            {"InputTensor": {"Type": "DML_TENSOR_TYPE_IMAGE"}},
            InvalidDesc,
            "InputTensor.Type must be DML_TENSOR_TYPE_BUFFER",
        ),
        ({"InputTensor": {"Type": "BUFFER", "Desc": 3}}, InvalidType, "InputTensor.Desc must be an object; got 3"),
        ({"Axis": 1}, InvalidDesc, "Desc: unknown field 'Axis', did you mean Axes?"),
        ({"AxisCount": True}, InvalidType, "AxisCount must be an integer; got True"),
        ({"InputTensor": ""}, InvalidType, "InputTensor must be an object; got ''"),
        ({"AxisDirection": ""}, InvalidDesc, "AxisDirection must be one of INCREASING, DECREASING; got ''"),
        (
            {"InputTensor": {"DataType": "FLOAT32", "Sizes": [2, 3], "TotalTensorSizeInBytes": False}},
            InvalidType,
            "InputTensor.TotalTensorSizeInBytes must be an integer; got False",
        ),
        (
            {"InputTensor": {"DataType": "FLOAT32", "Sizes": [2, 3], "Flags": ""}},
            InvalidDesc,
            "InputTensor.Flags must be one of NONE, OWNED_BY_DML; got ''",
        ),
        ({"AxisCount": 2}, InvalidDesc, "AxisCount must be 1, the length of Axes; got 2"),
        ({"Axes": 1}, InvalidType, "Axes must be a sequence of integers; got 1"),
        ({"Axes": [True]}, InvalidType, r"Axes\[0\] must be an integer; got True"),
        ({"AxisDirection": "UP"}, InvalidDesc, "AxisDirection must be one of INCREASING, DECREASING; got 'UP'"),
        ({"AxisDirection": 0}, InvalidType, "AxisDirection must be a name; got 0"),
    ],
)
def test_json_is_refused_by_the_member_that_is_wrong(change: dict[str, Any], error: Any, message: str) -> None:
    directml.from_json({"Type": "ARGMAX", "Desc": GOOD})
    with pytest.raises(error, match=r"^DML_OPERATOR_ARGMAX: .*" + message.replace("?", r"\?")):
        directml.from_json({"Type": "ARGMAX", "Desc": GOOD | change})


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], InvalidType, r"an operator must be an object; got \[\]$"),
        ("{}", InvalidType, r"an operator must be an object; got '{}' \(json.loads reads text\)"),
        ({}, InvalidDesc, "Type must be given; got none"),
        ({"Type": "ARGMIX"}, Unsupported, "Type: unknown operator 'ARGMIX', did you mean ARGMIN"),
        ({"Type": "ARGMAX", "Desc": []}, InvalidType, r"DML_OPERATOR_ARGMAX: Desc must be an object; got \[\]"),
        ({"Type": "ARGMAX", "Desc": GOOD, "Axes": [1]}, InvalidDesc, "unknown field 'Axes' beside Desc"),
    ],
)
def test_json_other_than_operators_is_refused(given: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        directml.from_json(given)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("seven", InvalidType, "Value must be a number, or 'nan', 'inf', '-inf'; got 'seven'"),
        (True, InvalidType, "Value must be a number"),
        ([7], InvalidType, "Value must be a number"),
        ({}, InvalidDesc, r"Value must have the field Float32 or UInt32; got \[\]"),
        ({"Int32": 7}, InvalidDesc, r"Value must have the field Float32 or UInt32; got \['Int32'\]"),
        ({"Float32": "x", "UInt32": 7}, InvalidType, "Value.Float32 must be a number"),
        ({"UInt32": 2**32}, InvalidDesc, r"Value.UInt32 must be in \[0, 4294967295\]"),
        (1e39, InvalidDesc, "Value must fit float32; got 1e"),
        (10**400, InvalidDesc, "Value must fit float32; got an int of 1329 bits"),
    ],
)
def test_json_scalars_are_refused(value: Any, error: Any, message: str) -> None:
    spelled = directml.to_json(fill())
    spelled["Desc"]["Value"] = value
    with pytest.raises(error, match=r"^DML_OPERATOR_DIAGONAL_MATRIX1: " + message):
        directml.from_json(spelled)


def test_scalars_compare_by_type_and_bits() -> None:
    of = Scalar.of
    assert of(FLOAT32, 0.0) != of(FLOAT32, -0.0)
    assert of(FLOAT32, np.nan) == of(FLOAT32, np.nan)
    assert of(FLOAT32, 1) != of(DataType.INT32, 1)
    assert of(FLOAT32, 1) == of(FLOAT32, 1.0)
    assert str(of(FLOAT32, 1.5)) == "FLOAT32 1.5"


@pytest.mark.parametrize(
    ("data_type", "bits", "error", "message"),
    [
        (DataType.UINT8, 256, InvalidDesc, r"bits must be in \[0, 255\]; got 256"),
        (DataType.UINT8, 1.0, InvalidType, "bits must be an integer; got 1.0"),
        ("FLOAT", 0, InvalidDesc, "data_type must be one of"),
        (DataType.UNKNOWN, 0, InvalidDesc, "DataType must be a known data type; got UNKNOWN"),
    ],
)
def test_invalid_scalars_are_refused(data_type: Any, bits: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        Scalar(data_type, bits)
