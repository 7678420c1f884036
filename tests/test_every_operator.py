"""What holds for each registered operator, so that the last one costs no more than the first."""

import inspect
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.export
import jax.monitoring
import numpy as np
import pytest
from cases import CASES
from helpers import assert_same_bits, available, check_gradients
from pages import MEMBERS, SUPPORT, pages_minimum_level

import dmljax
from dmljax import OPERATORS, DataType, FeatureLevel, InvalidDesc
from dmljax.examples import EXAMPLES

for_each_operator = pytest.mark.parametrize("operator", OPERATORS)
LATEST = max(FeatureLevel)


def function_name(operator: str) -> str:
    return operator.removeprefix("DML_OPERATOR_").lower()


def desc_name(operator: str) -> str:
    return function_name(operator).title().replace("_", "") + "Desc"


def allowed(operator: str, field: str, level: FeatureLevel = LATEST) -> tuple[range, list[DataType]]:
    """Ranks and data types of one tensor, by the newest table at `level`."""
    tables = [table for introduced, table in OPERATORS[operator].support.items() if introduced <= level]
    cell = tables[-1][field]
    return cell.ranks, available(cell.data_types)


def typed_descs(operator: str, level: FeatureLevel = LATEST) -> Iterator[dmljax.Operator]:
    """A desc for every data type of every free tensor, at the lowest and the highest rank."""
    case = CASES[operator]
    ranks, _ = allowed(operator, case.free[0], level)
    types = [allowed(operator, field, level)[1] for field in case.free]
    for rank in (ranks[0], ranks[-1]):
        # Each type of each tensor in turn is enough: the others cycle beside it.
        for i in range(max(map(len, types))):
            chosen = {field: list_[i % len(list_)] for field, list_ in zip(case.free, types, strict=True)}
            yield case.make(chosen, rank)


def any_desc(operator: str) -> dmljax.Operator:
    return next(typed_descs(operator))


def random_inputs(desc: dmljax.Operator, seed: int = 0) -> list[Any]:
    return list(CASES[desc.type].inputs(desc, np.random.default_rng(seed)).values())


def test_the_tables_of_the_tests_know_every_operator() -> None:
    assert set(OPERATORS) == set(CASES) == set(SUPPORT) == set(MEMBERS) == {e.desc.type for e in EXAMPLES}


@for_each_operator
def test_is_exported_under_its_directml_name(operator: str) -> None:
    assert getattr(dmljax, desc_name(operator)) is OPERATORS[operator]
    assert callable(getattr(dmljax, function_name(operator)))


@for_each_operator
def test_is_documented_with_a_running_example(operator: str) -> None:
    documentation = inspect.getdoc(getattr(dmljax, function_name(operator))) or ""
    assert re.search(rf">>> .*\b{function_name(operator)}\(", documentation)
    header_name = operator.replace("DML_OPERATOR", "DML") + "_OPERATOR_DESC"
    assert f"`{header_name}`, lowered to `{function_name(operator)}`" in (OPERATORS[operator].__doc__ or "")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{function_name(example.desc.type)}-{example.title}")
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jitted"])
def test_the_pages_examples_come_out_bit_for_bit(example: Any, transform: Any) -> None:
    outputs = jax.tree.leaves(transform(dmljax.lower(example.desc))(**example.arrays(of_inputs=True)))
    for output, expected in zip(outputs, example.arrays(of_inputs=False).values(), strict=True):
        assert_same_bits(output, expected)


@for_each_operator
def test_the_members_are_the_headers_in_its_order(operator: str) -> None:
    assert list(dmljax.to_json(any_desc(operator))["Desc"]) == MEMBERS[operator].split()


@for_each_operator
def test_equals_the_oracle_at_every_data_type_and_at_the_lowest_and_highest_rank(operator: str) -> None:
    for seed, desc in enumerate(typed_descs(operator)):
        case = CASES[operator]
        inputs = case.inputs(desc, np.random.default_rng(seed))
        outputs = jax.tree.leaves(dmljax.lower(desc)(**inputs))
        for output, expected in zip(outputs, case.expected(desc, inputs), strict=True):
            assert_same_bits(output, expected)


@for_each_operator
def test_the_shapes_and_types_of_the_outputs_are_the_descs(operator: str) -> None:
    for desc in typed_descs(operator):
        shapes = jax.eval_shape(dmljax.lower(desc), *(t.shape_dtype for t in desc.tensors(is_input=True).values()))
        expected = [tensor.shape_dtype for tensor in desc.tensors(is_input=False).values()]
        assert [(s.shape, s.dtype) for s in jax.tree.leaves(shapes)] == [(e.shape, e.dtype) for e in expected]


@for_each_operator
def test_minimum_feature_level_is_the_pages_for_every_type_and_rank(operator: str) -> None:
    case = CASES[operator]
    all_types = [data_type for data_type in DataType if data_type is not DataType.UNKNOWN]
    seen = set()
    for types in itertools.product(all_types, repeat=len(case.free)):
        for rank in range(1, 9):
            desc = case.make(dict(zip(case.free, types, strict=True)), rank)
            tensors = desc.tensors(is_input=True) | desc.tensors(is_input=False)
            named = {desc.member(field).name: (t.rank, t.data_type.name) for field, t in tensors.items()}
            expected = pages_minimum_level(operator, named)
            if expected is None:
                with pytest.raises(InvalidDesc, match=f"^{operator} at DML_FEATURE_LEVEL_6_4: "):
                    dmljax.minimum_feature_level(desc)
            else:
                assert dmljax.minimum_feature_level(desc) is FeatureLevel[f"FL_{expected}"], named
                dmljax.validate(desc, feature_level=expected)
            seen.add(expected)
    assert seen - {None} == set(SUPPORT[operator]), "some table of the page decides nothing"


@for_each_operator
def test_is_refused_one_level_below_its_introduction(operator: str) -> None:
    introduced = min(OPERATORS[operator].support)
    desc = next(typed_descs(operator, introduced))
    assert dmljax.minimum_feature_level(desc) is introduced
    for level in FeatureLevel:
        if level < introduced:
            message = f"^{operator} at {level}: the operator must not be used below {introduced}; got {level}"
            with pytest.raises(InvalidDesc, match=message):
                dmljax.lower(desc, feature_level=level)


@for_each_operator
def test_a_desc_survives_json(operator: str) -> None:
    for desc in typed_descs(operator):
        spelled = json.loads(json.dumps(dmljax.to_json(desc), allow_nan=False))
        assert dmljax.from_json(spelled) == desc
        # The same with everything abbreviated and inline, as DxDispatch takes it too.
        short = json.loads(re.sub(r"DML_(OPERATOR|TENSOR_DATA_TYPE|AXIS_DIRECTION)_", "", json.dumps(spelled)))
        inline = {"type": short["Type"], **short["Desc"]}
        assert dmljax.from_json({key: value for key, value in inline.items() if key != "AxisCount"}) == desc


@for_each_operator
def test_a_second_call_traces_and_compiles_nothing(operator: str) -> None:
    desc = any_desc(operator)
    lowered = dmljax.lower(desc)
    inputs, others = random_inputs(desc), random_inputs(desc, seed=1)
    lowered(*inputs)
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
    try:
        lowered(*inputs)
        dmljax.lower(dmljax.from_json(dmljax.to_json(desc)))(*others)
    finally:
        jax.monitoring.clear_event_listeners()
    assert not [event for event in events if "/jax/core/compile" in event]


@for_each_operator
def test_an_eager_call_is_one_compiled_computation(operator: str) -> None:
    desc = CASES[operator].make(dict.fromkeys(CASES[operator].free, DataType.UINT32) | FLOAT_TYPES[operator], 4)
    inputs = [jax.device_put(array) for array in random_inputs(desc)]
    jax.block_until_ready(inputs)
    jax.clear_caches()
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
    try:
        dmljax.lower(desc)(*inputs)
    finally:
        jax.monitoring.clear_event_listeners()
    assert len([event for event in events if event.endswith("backend_compile_duration")]) == 1


FLOAT_TYPES: dict[str, dict[str, DataType]] = {
    operator: {field: DataType.FLOAT32 for field in ("input", "values") if field in case.free}
    for operator, case in CASES.items()
}


@for_each_operator
def test_a_user_jit_around_it_traces_once(operator: str) -> None:
    desc = any_desc(operator)
    chex.clear_trace_counter()
    jitted = jax.jit(chex.assert_max_traces(dmljax.lower(desc), n=1))
    for seed in range(3):
        jitted(*random_inputs(desc, seed))


@for_each_operator
def test_vmap_equals_a_loop(operator: str) -> None:
    for desc in typed_descs(operator):
        lowered, inputs = dmljax.lower(desc), [random_inputs(desc, seed) for seed in range(3)]
        if not inputs[0]:
            continue
        batch = [np.stack(arrays) for arrays in zip(*inputs, strict=True)]
        loop = jax.tree.map(lambda *rows: np.stack(rows), *(lowered(*row) for row in inputs))
        chex.assert_trees_all_equal_shapes_and_dtypes(jax.vmap(lowered)(*batch), loop)
        for actual, expected in zip(*map(jax.tree.leaves, (jax.vmap(lowered)(*batch), loop)), strict=True):
            assert_same_bits(actual, expected)


@for_each_operator
def test_gradients_equal_finite_differences(operator: str) -> None:
    case = CASES[operator]
    # Integer types stay out of the way of floats: indices are indices.
    desc = case.make(dict.fromkeys(case.free, DataType.UINT32) | FLOAT_TYPES[operator], 4)
    inputs = case.inputs(desc, np.random.default_rng(0))
    # Far enough apart that no step of a finite difference changes which is the largest.
    floats = {
        key: (np.arange(array.size, dtype=array.dtype) * 70 % 1010).reshape(array.shape)
        for key, array in inputs.items()
        if array.dtype == np.float32
    }
    outputs_are_floats = all(tensor.data_type is DataType.FLOAT32 for tensor in desc.tensors(is_input=False).values())
    if floats and outputs_are_floats:
        check_gradients(lambda given: dmljax.lower(desc)(**inputs | given), (floats,))


@for_each_operator
def test_lowers_for_every_platform_without_callbacks_or_large_constants(operator: str) -> None:
    desc = any_desc(operator)
    shapes = [tensor.shape_dtype for tensor in desc.tensors(is_input=True).values()]
    exported = jax.export.export(jax.jit(dmljax.lower(desc)), platforms=["cpu", "cuda", "rocm", "tpu"])(*shapes)
    module = exported.mlir_module()
    assert "custom_call" not in module
    for constant in re.findall(r"stablehlo.constant dense<([^>]*)>", module):
        # Larger ones are printed as one hexadecimal string.
        assert constant.count(",") < 8, f"a baked-in constant: {constant[:80]}"
        assert '"0x' not in constant, f"a baked-in constant: {constant[:80]}"
    again = jax.export.deserialize(exported.serialize()) if len(exported.out_avals) == 1 else exported
    inputs = random_inputs(desc)
    for actual, expected in zip(*map(jax.tree.leaves, (again.call(*inputs), dmljax.lower(desc)(*inputs))), strict=True):
        assert_same_bits(actual, expected)


@for_each_operator
def test_a_lowered_desc_refuses_other_arrays_by_name(operator: str) -> None:
    desc = any_desc(operator)
    lowered, inputs = dmljax.lower(desc), CASES[operator].inputs(desc, np.random.default_rng(0))
    for field, array in inputs.items():
        name = desc.member(field).name
        other = np.int8 if array.dtype == np.uint8 else np.uint8
        for wrong, kind in (
            (array[None], InvalidDesc),
            (array.astype("c8") if array.dtype != bool else array, dmljax.InvalidType),
            (np.zeros(array.shape, other), dmljax.InvalidType),
            (array.tolist(), dmljax.InvalidType),
        ):
            with pytest.raises(kind, match=f"^{operator}: {name} must "):
                lowered(**inputs | {field: wrong})
    with pytest.raises(dmljax.InvalidType, match=f"^{operator}: (missing|got an unexpected|too many)"):
        lowered(*inputs.values(), *([1] * 5))
