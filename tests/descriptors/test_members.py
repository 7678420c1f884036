"""The members of descriptors: a mock operator for each kind of member that no real operator has."""

import contextlib
import dataclasses
import inspect
import io
import json
import pickle
import pydoc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import compilations

import dmljax
from dmljax import descriptors as dml, directml
from dmljax.command_line import describe
from dmljax.descriptors import members as kinds
from dmljax.directml import AxisDirection, DataType, InvalidDesc, InvalidType, Size2D, TensorDesc
from dmljax.dxdispatch import Execution, InvalidModel, Printed, load
from dmljax.examples import Example
from dmljax.types import FLOAT

FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32
Tensors = tuple[TensorDesc, ...]
LENGTH = "DimensionCount"


class Mock(dml.Operator):
    """A mock operator: no rules, and support from the first level on."""


def join(inputs: Any, offset: Any, *, axis: int) -> Any:
    return jnp.concatenate(inputs, axis) + offset


class MockJoinDesc(Mock, type="DML_OPERATOR_MOCK_JOIN", function=join):
    """Several inputs in one member, and an optional one after them."""

    inputs: Annotated[Tensors, kinds.Array(kinds.Tensor(is_input=True), count="InputCount")]
    offset: dml.OptionalInput = None
    output: dml.Output
    axis: dml.Uint
    support = dml.support(FL_1_0=dml.rows(dml.RANK_1_TO_8, inputs=FLOAT, offset=FLOAT, output=FLOAT))

    def compute(self, **inputs: Any) -> Any:
        return join(inputs["inputs"], inputs.get("offset", np.float32(0)), axis=self.axis)

    rules = dml.page_rules(dml.same_type("inputs", "output"))


def split(input: Any, *, output_sizes: Any = None, sizes: Any, axis: int) -> Any:
    return tuple(jnp.split(input, np.cumsum(sizes)[:-1], axis))


class MockSplitDesc(Mock, type="DML_OPERATOR_MOCK_SPLIT", function=split):
    """Several outputs in one member."""

    input: dml.Input
    outputs: Annotated[Tensors, kinds.Array(kinds.Tensor(is_input=False), count="OutputCount")]
    axis: dml.Uint
    support = dml.support(FL_1_0=dml.rows(dml.RANK_1_TO_8, input=FLOAT, outputs=FLOAT))

    def compute(self, **inputs: Any) -> Any:
        return split(inputs["input"], sizes=[tensor.sizes[self.axis] for tensor in self.outputs], axis=self.axis)


class MockQuantizeDesc(Mock, type="DML_OPERATOR_MOCK_QUANTIZE", function=join):
    """An array of inputs whose name says that its elements are tensors."""

    quantization_tensors: Annotated[Tensors, kinds.Array(kinds.Tensor(True), count="QuantizationTensorCount")]
    output: dml.Output
    support = dml.support(FL_1_0=dml.rows(dml.RANK_1_TO_8, quantization_tensors=FLOAT, output=FLOAT))


def window(input: Any, *, pooled_size: Any, scales: Any, strides: Any) -> Any:
    return input


Counted = Annotated[tuple[int, ...], kinds.Array(kinds.UINT, count=LENGTH)]


class MockWindowDesc(Mock, type="DML_OPERATOR_MOCK_WINDOW", function=window):
    """Every kind of attribute that no real operator has."""

    input: Annotated[TensorDesc, kinds.Tensor(is_input=True), "ROITensor"]
    output: dml.Output
    strides: Counted
    dilations: Counted
    steps: Annotated[tuple[int, ...], kinds.Array(kinds.INT, count=LENGTH)]
    scales: Annotated[tuple[Any, ...] | None, kinds.Array(kinds.FLOAT, count=LENGTH)] = None
    pooled_size: dml.Size
    cross_channel: dml.Bool
    seed: dml.Uint64
    activation_descs: dml.FusedActivations
    support = dml.support(FL_1_0=dml.rows(dml.RANK_1_TO_8, input=FLOAT, output=FLOAT))


def halves(input: Any) -> Any:
    return input / 2, input * 2


class MockHalvesDesc(Mock, type="DML_OPERATOR_MOCK_HALVES", function=halves):
    """Two outputs, one of them optional."""

    input: dml.Input
    output_half: dml.OptionalOutput = None
    output_double: dml.Output
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_1_TO_8, input=FLOAT, output_half=FLOAT, output_double=FLOAT),
    )

    def present(self, result: Any) -> Any:
        return result[1:] if self.output_half is None else result


Up = Annotated[AxisDirection, kinds.Enumeration(AxisDirection)]


def signed(input: Any, *, function: Any, directions: Any) -> Any:
    return input if function is AxisDirection.INCREASING else -input


class MockReduceDesc(Mock, type="DML_OPERATOR_MOCK_REDUCE", function=signed):
    """Members whose names descriptors use themselves, like REDUCE's Function and RANDOM_GENERATOR's Type."""

    function: Up  # type: ignore[assignment,misc]
    type: Up = AxisDirection.DECREASING  # type: ignore[assignment,misc]
    input: dml.Input
    output: dml.Output
    directions: Annotated[tuple[AxisDirection, ...], kinds.Array(kinds.Enumeration(AxisDirection), count="Count")] = ()
    support = dml.support(FL_1_0=dml.rows(dml.RANK_1_TO_8, input=FLOAT, output=FLOAT))

    def attributes(self) -> dict[str, Any]:
        return {"function": self.function, "directions": self.directions}


MOCKS: list[type[dml.Operator]] = [
    *(MockJoinDesc, MockSplitDesc, MockQuantizeDesc, MockWindowDesc, MockHalvesDesc, MockReduceDesc)
]
for mock in MOCKS:
    del dml.OPERATORS[mock.type]  # other tests go through all operators


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers the mocks while a test of this file runs."""
    for mock in MOCKS:
        monkeypatch.setitem(dml.OPERATORS, mock.type, mock)


def matrix(width: int, data_type: Any = "FLOAT32", **others: Any) -> TensorDesc:
    return TensorDesc(data_type, (2, width), **others)


def joining(*widths: int, **others: Any) -> MockJoinDesc:
    return MockJoinDesc(inputs=tuple(matrix(width) for width in widths), output=matrix(sum(widths)), axis=1, **others)


def windowing(**changes: Any) -> MockWindowDesc:
    members: dict[str, Any] = {
        "input": matrix(3),
        "output": matrix(3),
        "strides": (1, 2),
        "dilations": np.array([3, 4]),
        "steps": (-1, 2),
        "scales": (0.5, float("inf")),
        "pooled_size": Size2D(3, 2),
        "cross_channel": True,
        "seed": 2**64 - 1,
        "activation_descs": (directml.ActivationReluDesc(), directml.ActivationEluDesc(alpha=0.5)),
    }
    return MockWindowDesc(**members | changes)


A, B, C = (np.arange(2 * width, dtype=np.float32).reshape(2, width) for width in (3, 1, 2))
JOINED = np.concatenate([A, B, C], 1)


# Tensors as leaves


def test_tensors_of_an_array_have_keys_and_paths() -> None:
    desc = joining(3, 1, offset=TensorDesc(FLOAT32, (2, 4)))
    assert list(desc.tensors()) == ["inputs[0]", "inputs[1]", "offset", "output"]
    assert list(desc.tensors(is_input=True)) == ["inputs[0]", "inputs[1]", "offset"]
    assert [leaf.path for leaf in desc.leaves()] == [
        ("InputTensors", 0),
        ("InputTensors", 1),
        ("OffsetTensor",),
        ("OutputTensor",),
    ]
    assert [member.name for member in MockQuantizeDesc.members()] == ["QuantizationTensors", "OutputTensor"]
    assert MockWindowDesc.members()[0].name == "ROITensor"


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (1e20, "1e+20"),
        (np.inf, "float('inf')"),
        (-np.inf, "float('-inf')"),
        (np.nan, "float('nan')"),
        (directml.Scalar(DataType.FLOAT32, 0x7FC00001), "Scalar('FLOAT32', 0x7fc00001)"),
    ],
)
def test_a_number_is_written_as_python(number: Any, written: str) -> None:
    desc = directml.ActivationEluDesc(alpha=number)
    assert repr(desc) == f"ActivationEluDesc(alpha={written})"
    assert eval(repr(desc), vars(directml)) == desc
    assert eval(repr(desc.alpha), vars(directml)) == desc.alpha


def test_structs_and_arrays_of_numbers_are_written_as_python() -> None:
    tensor = TensorDesc(FLOAT32, (1, 3, 2, 2))
    scaled = directml.ElementWiseSqrtDesc(input=tensor, output=tensor, scale_bias=directml.ScaleBias(2, 0.1))
    assert "scale_bias=ScaleBias(scale=2.0, bias=0.1)" in repr(scaled)
    shifted = directml.ValueScale2DDesc(input=tensor, output=tensor, scale=0.5, bias=(1, 2, 0.1))
    assert repr(shifted).endswith("scale=0.5, bias=(1.0, 2.0, 0.1))")
    assert [eval(repr(desc), vars(directml)) for desc in (scaled, shifted)] == [scaled, shifted]


def test_help_shows_the_arrays_of_a_lowered_desc_or_graph() -> None:
    x = TensorDesc(FLOAT32, (1, 1, 2, 3))
    one = {"output_value": TensorDesc(FLOAT32, (1, 1, 2, 1)), "output_index": TensorDesc("UINT32", (1, 1, 2, 1))}
    top_k = directml.lower(directml.TopKDesc(input=x, **one, axis=3, k=1))
    shown = "(input: float32[1,1,2,3]) -> (output_value: float32[1,1,2,1], output_index: uint32[1,1,2,1])"
    assert str(inspect.signature(top_k)) == shown
    text = pydoc.render_doc(top_k, renderer=pydoc._PlainTextDoc())  # type: ignore[attr-defined]
    assert f"function top_k in module dmljax.directml\n\ntop_k{shown}\n    Computes DML_OPERATOR_TOP_K" in text
    add = directml.ElementWiseAddDesc(a=x, b=x, output=x)
    parts: dict[str, Any] = {"nodes": {"add": add}, "edges": {"add.a": "x", "add.b": "w"}, "inputs": {"x": x}}
    graph = directml.Graph(**parts, constants={"w": np.ones(x.sizes, np.float32)}, outputs={"y": "add.output"})
    shown = "(x: float32[1,1,2,3], *, w: float32[1,1,2,3] = ...) -> float32[1,1,2,3]"
    assert str(inspect.signature(directml.lower(graph))) == shown
    spaced = directml.Graph(
        **parts | {"edges": {"add.a": "a b", "add.b": "a b"}, "inputs": {"a b": x}}, outputs={"y": "add.output"}
    )
    assert "a b" not in str(inspect.signature(directml.lower(spaced)))


def test_arrays_are_passed_by_position_or_by_name() -> None:
    join_all = directml.lower(joining(3, 1, 2))
    for outputs in (join_all(A, B, C), join_all(inputs=[A, B, C]), jax.jit(join_all)(A, B, C)):
        np.testing.assert_array_equal(outputs, JOINED)
    offset = np.full((2, 6), 10, np.float32)
    shifted = directml.lower(joining(3, 1, 2, offset=TensorDesc(FLOAT32, (2, 6))))
    for outputs in (shifted(A, B, C, offset), shifted(offset=offset, inputs=(A, B, C))):
        np.testing.assert_array_equal(outputs, JOINED + 10)
    assert str(inspect.signature(shifted)) == (
        "(*arrays, inputs: (float32[2,3], float32[2,1], float32[2,2]), offset: float32[2,6]) -> float32[2,6]"
    )


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((A, B), {}, InvalidType, "takes 3 arrays, all by position or all by name; got 2"),
        ((A,), {"inputs": [A]}, InvalidType, "takes 3 arrays, all by position or all by name; got 1 and inputs"),
        ((), {"input": A}, InvalidType, "the arrays must be inputs; got input"),
        ((), {"inputs": [A, B]}, InvalidType, "inputs must be a sequence of 3 arrays; got 2"),
        ((), {"inputs": A}, InvalidType, "inputs must be a sequence of 3 arrays; got ndarray"),
        ((A, A, C), {}, InvalidDesc, r"InputTensors\[1\] must have Sizes \{2,1\}; got \{2,3\}"),
        ((A, B.astype(int), C), {}, InvalidType, r"InputTensors\[1\] must be of float32, like its desc; got int64"),
        ((A, B, [1]), {}, InvalidType, r"InputTensors\[2\] must be a JAX or NumPy array; got list"),
    ],
)
def test_other_arrays_are_refused(args: Any, kwargs: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=f"^DML_OPERATOR_MOCK_JOIN: {message}"):
        directml.lower(joining(3, 1, 2))(*args, **kwargs)


def test_several_outputs_in_one_member_are_a_tuple() -> None:
    desc = MockSplitDesc(input=matrix(6), outputs=(matrix(3), matrix(1), matrix(2)), axis=1)
    outputs = directml.lower(desc)(JOINED)
    assert isinstance(outputs, tuple)
    for actual, expected in zip(outputs, (A, B, C), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_several_outputs_are_a_named_tuple() -> None:
    both = directml.lower(MockHalvesDesc(input=matrix(3), output_half=matrix(3), output_double=matrix(3)))(A)
    assert both._fields == ("output_half", "output_double")
    np.testing.assert_array_equal(both.output_half, A / 2)
    one = directml.lower(MockHalvesDesc(input=matrix(3), output_double=matrix(3)))(A)
    assert one.output_half is None
    np.testing.assert_array_equal(one.output_double, A * 2)
    rows = TensorDesc(UINT32, (2, 1))
    desc = directml.NonzeroCoordinatesDesc(
        input=TensorDesc(FLOAT32, (2,)), output_count=TensorDesc(UINT32, (1,)), output_coordinates=rows
    )
    outputs = directml.lower(desc)(jnp.array([0, 5], jnp.float32))
    assert (outputs.output_count.tolist(), outputs.output_coordinates.tolist()) == ([1], [[1], [0]])
    sent = pickle.loads(pickle.dumps(jax.device_get(outputs)))
    assert type(sent) is type(outputs) is directml.NonzeroCoordinatesDesc.Outputs


def test_rules_and_tables_name_the_tensor_of_an_array() -> None:
    desc = MockJoinDesc(inputs=(matrix(3), matrix(1, "INT8")), output=matrix(4, "FLOAT16"), axis=1)
    assert directml.find_broken_rules(desc) == (
        "InputTensors[1].DataType must be one of FLOAT32, FLOAT16; got INT8",
        "InputTensors[0], InputTensors[1] and OutputTensor must have the same DataType; got FLOAT32, INT8 and FLOAT16",
    )


# Members


def test_every_kind_of_member_survives_json() -> None:
    desc = windowing()
    spelled = json.loads(json.dumps(directml.to_json(desc)))
    assert directml.from_json(spelled) == desc
    assert spelled["Desc"] | {"ROITensor": 0, "OutputTensor": 0} == {
        "ROITensor": 0,
        "OutputTensor": 0,
        "DimensionCount": 2,
        "Strides": [1, 2],
        "Dilations": [3, 4],
        "Steps": [-1, 2],
        "Scales": [0.5, "inf"],
        "PooledSize": {"Width": 3, "Height": 2},
        "CrossChannel": True,
        "Seed": 2**64 - 1,
        "ActivationDescCount": 2,
        "ActivationDescs": [
            {"Type": "DML_OPERATOR_ACTIVATION_RELU", "Desc": {"InputTensor": None, "OutputTensor": None}},
            {
                "Type": "DML_OPERATOR_ACTIVATION_ELU",
                "Desc": {"InputTensor": None, "OutputTensor": None, "Alpha": 0.5},
            },
        ],
    }
    assert MockWindowDesc.json_fields().count("DimensionCount") == 1
    joined = joining(3, 1)
    assert directml.from_json(json.loads(json.dumps(directml.to_json(joined)))) == joined
    assert directml.to_json(joined)["Desc"]["InputCount"] == 2
    spelled["Desc"] |= {"CrossChannel": 0, "Scales": None}  # a BOOL of C is a number
    assert directml.from_json(spelled) == windowing(cross_channel=False, scales=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dilations": (1, 2, 3)}, "Strides, Dilations, Steps and Scales must have the same length, DimensionCount; "),
        ({"dilations": (1, 2, 3), "scales": None}, "Strides, Dilations and Steps must have the same length"),
        ({"strides": (1, -1)}, r"Strides\[1\] must be in \[0, 4294967295\]; got -1"),
        ({"steps": (0, 2**31)}, r"Steps\[1\] must be in \[-2147483648, 2147483647\]"),
        ({"scales": (1, "x")}, r"Scales\[1\] must be a real number; got 'x'"),
        ({"scales": 0.5}, "Scales must be a sequence of numbers; got 0.5"),
        ({"scales": (1, 1e39)}, r"Scales\[1\] must fit float32"),
        ({"pooled_size": (3, 2)}, r"PooledSize must be a Size2D; got \(3, 2\)"),
        ({"pooled_size": Size2D(3, -2)}, r"PooledSize.Height must be in \[0, 4294967295\]; got -2"),
        ({"cross_channel": 1}, "CrossChannel must be true or false; got 1"),
        ({"seed": 2**64}, r"Seed must be in \[0, 18446744073709551615\]"),
        ({"activation_descs": (directml.ActivationReluDesc(), 3)}, r"ActivationDescs\[1\] must be a descriptor; got 3"),
        (
            {"activation_descs": directml.ActivationReluDesc()},
            "ActivationDescs must be a sequence of descriptors of",
        ),
        ({"strids": 1}, "the members must be among input, .*; got strids, did you mean strides[?]"),
        ({"CrossChannel": 1}, "the members must be .*; got CrossChannel, did you mean cross_channel[?]"),
        ({"dimension_count": 2}, "the members must be .*; got dimension_count, which is the length of an array; leave"),
        (
            {"CrossChannel": 1, "DimensionCount": 2, "strids": 1, "xyzzy": 0},
            r".*; got CrossChannel \(cross_channel\), DimensionCount \(leave it out\), strids \(strides\) and xyzzy$",
        ),
    ],
)
def test_a_wrong_member_is_refused_by_its_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidDesc, InvalidType), match=f"^DML_OPERATOR_MOCK_WINDOW: {message}"):
        windowing(**changes)


def test_a_refusal_names_all_members_that_are_missing_or_unknown() -> None:
    with pytest.raises(InvalidType) as refused:
        directml.GemmDesc(ATensor=None, BTensor=None)  # type: ignore[call-arg]
    unknown, missing = refused.value.problems
    assert unknown.given == "ATensor (a) and BTensor (b)"
    assert str(missing) == "output, trans_a, trans_b, alpha and beta must be given; got none"


def test_a_refusal_names_all_lengths() -> None:
    with pytest.raises(InvalidDesc, match=r"; got 2, 3, 2 and 2$"):
        windowing(dilations=(1, 2, 3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"DimensionCount": 3}, "DimensionCount must be 2, the length of Strides; got 3"),
        ({"PooledSize": {"Width": 3}}, "PooledSize.Height must be given; got none"),
        ({"PooledSize": {"Width": 3, "Hight": 2}}, "PooledSize: unknown field 'Hight', did you mean Height?"),
        ({"PooledSize": [3, 2]}, r"PooledSize must be an object; got \[3, 2\]"),
        ({"CrossChannel": 2}, "CrossChannel must be true or false; got 2"),
        ({"Seed": -1}, "Seed must be in"),
        ({"ActivationDescs": [{"Type": "RELU"}]}, r"ActivationDescs\[0\].Type: unknown operator"),
    ],
)
def test_wrong_json_is_refused_by_the_member(changes: dict[str, Any], message: str) -> None:
    spelled = directml.to_json(windowing())
    with pytest.raises(dmljax.DmlError, match=f"^DML_OPERATOR_MOCK_WINDOW: {message.replace('?', '[?]')}"):
        directml.from_json({"Type": spelled["Type"], "Desc": spelled["Desc"] | changes})


def test_a_wrong_tensor_of_an_array_is_refused_by_its_index() -> None:
    with pytest.raises(InvalidType, match=r"InputTensors\[1\] must be a TensorDesc; got int"):
        MockJoinDesc(inputs=(matrix(3), 3), output=matrix(4), axis=1)  # type: ignore[arg-type]
    spelled = directml.to_json(joining(3, 1))
    spelled["Desc"]["InputTensors"][1]["Sizes"] = [2, -1]
    with pytest.raises(InvalidDesc, match=r"InputTensors\[1\].Sizes\[1\] must be in"):
        directml.from_json(spelled)


def test_a_second_operator_of_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r"DML_OPERATOR_ARGMAX must be registered once; got .*Second.* after"):

        class Second(Mock, function=dmljax.argmax):
            pass

    assert dml.OPERATORS["DML_OPERATOR_ARGMAX"] is directml.ArgmaxDesc


def test_a_desc_is_a_frozen_dataclass() -> None:
    desc = windowing()
    for change in (lambda: setattr(desc, "seed", 1), lambda: delattr(desc, "seed")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    changed = dataclasses.replace(desc, seed=1)
    assert (changed.seed, changed.strides) == (1, desc.strides)
    assert changed != desc == dataclasses.replace(changed, seed=desc.seed)
    assert hash(desc) == hash(windowing())
    assert pickle.loads(pickle.dumps(directml.ActivationEluDesc(alpha=-0.0))) == directml.ActivationEluDesc(alpha=-0.0)
    assert repr(directml.ActivationEluDesc(alpha=0.1)) == "ActivationEluDesc(alpha=0.1)"
    assert eval(repr(directml.ActivationEluDesc(alpha=0.5)), vars(directml)) == directml.ActivationEluDesc(alpha=0.5)
    with pytest.raises(InvalidType, match="DML_OPERATOR_ACTIVATION_ELU: alpha must be given; got none"):
        directml.ActivationEluDesc()  # type: ignore[call-arg]
    with pytest.raises(InvalidType, match=r"got InputTensor, did you mean input\?"):
        directml.ActivationEluDesc(InputTensor=matrix(3), alpha=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidType, match="GATHER: indices, output, axis and index_dimensions must be given"):
        directml.GatherDesc(input=matrix(3))  # type: ignore[call-arg]


def test_members_may_share_names_of_attributes() -> None:
    desc = MockReduceDesc(function="DECREASING", input=matrix(3), output=matrix(3))  # type: ignore[arg-type]
    assert (desc.function, desc.type) == (AxisDirection.DECREASING, AxisDirection.DECREASING)
    np.testing.assert_array_equal(directml.lower(desc)(A), -A)
    assert directml.to_json(desc)["Type"] == "DML_OPERATOR_MOCK_REDUCE"
    assert directml.from_json(json.loads(json.dumps(directml.to_json(desc)))) == desc
    with pytest.raises(InvalidType, match=r"^DML_OPERATOR_MOCK_REDUCE: function must be given; got none"):
        MockReduceDesc(input=matrix(3), output=matrix(3))  # type: ignore[call-arg]
    with pytest.raises(InvalidType, match="Directions must be a sequence of enumerators of DML_AXIS_DIRECTION; got 3"):
        MockReduceDesc(function=0, input=matrix(3), output=matrix(3), directions=3)  # type: ignore[arg-type]


def test_an_array_of_no_tensors_is_an_empty_sequence() -> None:
    def count(inputs: Any, offset: Any, *, axis: int) -> Any:
        return jnp.full((2, 3), len(inputs), jnp.float32)

    desc = MockJoinDesc(inputs=(), output=matrix(3), axis=1)
    with patch.object(MockJoinDesc, "compute", lambda self, inputs: count(inputs, None, axis=1)):
        for outputs in (directml.lower(desc)(), directml.lower(desc)(inputs=[])):
            assert outputs.tolist() == [[0, 0, 0]] * 2


def test_members_are_keyword_only() -> None:
    expected = r"ADD: .* by name; got 3 by position \(ElementWiseAddDesc\(a=..., b=..., output=...\)\)$"
    with pytest.raises(InvalidType, match=expected):
        directml.ElementWiseAddDesc(matrix(3), matrix(3), matrix(3))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (jnp.ones((2, 3), jnp.float32), r"got ArrayImpl \(TensorDesc\('FLOAT32', \(2, 3\)\) describes it\)$"),
        (np.ones(4, np.int8), r"got ndarray \(TensorDesc\('INT8', \(4,\)\) describes it\)$"),
        (np.float32(3), "got float32$"),
        (jnp.ones(2, bool), "got ArrayImpl$"),
        ((2, 3), "got tuple$"),
    ],
)
def test_an_array_instead_of_a_desc_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidType, match=f"InputTensor must be a TensorDesc; {message}"):
        directml.ActivationReluDesc(input=given, output=matrix(3))


def test_classes_without_checks_or_kinds_are_refused() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Decorated(directml.Operator):
        input: dml.OptionalInput = None

    with pytest.raises(InvalidType, match="a descriptor's class must keep Operator's __init__; got Decorated"):
        directml.validate(Decorated())
    with pytest.raises(TypeError, match="input must be annotated with the kind of the member, such as Input; got"):

        class Plain(Mock):
            input: TensorDesc


def test_annotations_may_be_text() -> None:
    code = "from __future__ import annotations\n" + inspect.getsource(MockHalvesDesc).replace(
        "HALVES", "HALVES_OF_TEXT"
    )
    names = vars(sys.modules[__name__]) | {"__name__": __name__}
    exec(compile(code, "text", "exec"), names)
    del dml.OPERATORS["DML_OPERATOR_MOCK_HALVES_OF_TEXT"]
    assert names["MockHalvesDesc"].members() == MockHalvesDesc.members()


def test_attributes_are_what_a_function_takes() -> None:
    attributes = windowing().attributes()
    assert (attributes["pooled_size"], attributes["scales"], attributes["strides"]) == (
        Size2D(3, 2),
        (0.5, np.inf),
        (1, 2),
    )
    assert type(attributes["pooled_size"]) is Size2D
    assert type(attributes["scales"][0]) is np.float32


def test_the_signature_of_a_desc_lists_its_members() -> None:
    parameters = inspect.signature(directml.ElementWiseThresholdDesc).parameters
    assert list(parameters) == ["input", "output", "scale_bias", "min"]
    assert parameters["input"].annotation is TensorDesc
    assert parameters["scale_bias"].default is None
    assert not inspect.signature(directml.Operator).parameters


def test_equal_computations_in_different_layouts_compile_once() -> None:
    packed = directml.ElementWiseAddDesc(a=matrix(3), b=matrix(3), output=matrix(3))
    strided = directml.ElementWiseAddDesc(
        a=matrix(3, strides=(0, 1)), b=matrix(3, flags="OWNED_BY_DML"), output=matrix(3, total_tensor_size_in_bytes=64)
    )
    directml.lower(packed)(A, A)
    with compilations() as events:
        np.testing.assert_array_equal(directml.lower(strided)(A, A), A + A)
    assert not events


def test_a_compiled_module_carries_the_operators_name() -> None:
    add = directml.lower(directml.ElementWiseAddDesc(a=matrix(3), b=matrix(3), output=matrix(3)))
    assert "@element_wise_add(" in jax.jit(add).lower(A, A).as_text()
    assert "@one_hot(" in jax.jit(lambda i: dmljax.one_hot(i, A, axis=0, depth=3)).lower(jnp.array([0])).as_text()


# Descriptions


def test_examples_have_the_tensors_of_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    example = Example("three", joining(3, 1, 2), {"inputs[0]": A, "inputs[1]": B, "inputs[2]": C}, {"output": JOINED})
    assert example.expects(example.computed())
    monkeypatch.setattr(describe, "examples_of", lambda operator: [example])
    session = describe.desc_example(MockJoinDesc)
    names: dict[str, Any] = {
        "np": np,
        "dmljax": SimpleNamespace(directml=SimpleNamespace(**vars(directml), MockJoinDesc=MockJoinDesc)),
    }
    code = [line[4:] for line in session if line.startswith((">>> ", "... "))]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec("\n".join(code), names)
    assert output.getvalue().splitlines() == [line for line in session if not line.startswith((">>> ", "... "))]


def test_the_source_of_a_value_makes_the_same_value() -> None:
    desc = windowing()
    for member in desc.members():
        value = getattr(desc, member.field)
        again = eval(describe._qualify(member.as_code(value)), {"dmljax": dmljax, "np": np})
        assert dataclasses.replace(desc, **{member.field: again}) == desc


# Models


def model(folder: Path, bindings: Any) -> Path:
    values = {name: array.ravel().tolist() for name, array in (("a", A), ("b", B), ("c", C), ("out", 0 * JOINED))}
    resources = {name: {"initialValuesDataType": "FLOAT32", "initialValues": list_} for name, list_ in values.items()}
    desc = directml.to_json(joining(3, 1, 2))
    commands = [
        {"type": "dispatch", "dispatchable": "join", "bindings": bindings},
        {"type": "print", "resource": "out"},
    ]
    path = folder / "model.json"
    path.write_text(
        json.dumps(
            {
                "resources": resources,
                "dispatchables": {"join": {"type": desc["Type"], "desc": desc["Desc"]}},
                "commands": commands,
            }
        )
    )
    return path


def test_models_bind_each_tensor_of_an_array(tmp_path: Path) -> None:
    bindings = {"InputTensors": ["a", {"name": "b"}, "c"], "OutputTensor": "out"}
    execution = Execution(load(model(tmp_path, bindings)))
    execution.result(0)
    printed = execution.result(1)
    assert isinstance(printed, Printed)
    np.testing.assert_array_equal(printed.values, JOINED.ravel())


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        ({"InputTensors": ["a", "b"]}, "bindings.InputTensors must have 3 resources; got 2"),
        ({"InputTensors": "a"}, "bindings.InputTensors must have 3 resources; got 1"),
        (
            {"InputTensors": ["a", "x", "c"]},
            r"bindings.InputTensors\[1\].name must be a resource of the model",
        ),
        ({"InputTensors": ["b", "b", "c"]}, r"bindings.InputTensors\[0\] must have 24 bytes; got 8"),
        ({}, r"bindings.InputTensors\[2\] must be bound; got none"),
    ],
)
def test_wrong_bindings_of_an_array_are_found(tmp_path: Path, bindings: Any, message: str) -> None:
    with pytest.raises(InvalidModel, match=rf"commands\[0\]\.{message}"):
        load(model(tmp_path, bindings | {"OutputTensor": "out"}))
