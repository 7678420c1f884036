"""Properties of every registered operator, so that a new operator needs no new tests for them."""

import contextlib
import functools
import inspect
import itertools
import json
import math
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import processes
import pytest
from families import CASES, MEMBERS, SUPPORT, pages_minimum_level
from filelock import FileLock
from helpers import (
    GATE,
    SAMPLED,
    assert_nearly_same_trees,
    assert_same_trees,
    check_linear_gradients,
    check_shared_and_divided,
    collectives,
    compilations,
    mesh_of,
)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jax.test_util import check_grads
from operator_calls import (
    allowed,
    any_desc,
    arguments_of,
    differentiable_call,
    float_call,
    function_of,
    random_inputs,
    tame_call,
    tame_types,
    typed_descs,
)

import dmljax
from dmljax import directml
from dmljax.calls.decorator import record_calls
from dmljax.directml import OPERATORS, DataType, FeatureLevel, InvalidDesc
from dmljax.errors import DmlError, spell_path
from dmljax.examples import examples_of

for_each_operator = pytest.mark.parametrize("operator", OPERATORS)
Test = TypeVar("Test", bound=Callable[..., None])


def in_one_test(check: Callable[[str], None]) -> Callable[[], None]:
    """Makes a quick check of an operator one test of all operators, which lists those that fail."""

    def check_all() -> None:
        failures: dict[str, str] = {}
        for operator in OPERATORS:
            try:
                check(operator)
            except (Exception, pytest.fail.Exception) as error:
                failures[operator] = f"{type(error).__name__}: {error}"
        assert failures == {}

    check_all.__name__ = check.__name__
    return check_all


def function_name(operator: str) -> str:
    return operator.removeprefix("DML_OPERATOR_").lower()


def desc_name(operator: str) -> str:
    return function_name(operator).title().replace("_", "") + "Desc"


def test_the_tables_of_the_tests_know_every_operator() -> None:
    assert set(OPERATORS) == set(CASES) == set(SUPPORT) == set(MEMBERS)


@in_one_test
def test_is_exported_under_its_directml_name(operator: str) -> None:
    assert getattr(directml, desc_name(operator)) is OPERATORS[operator]
    assert callable(getattr(dmljax, function_name(operator)))


@in_one_test
def test_its_rules_are_sentences(operator: str) -> None:
    rules = [rule.sentence_for(OPERATORS[operator]) for rule in OPERATORS[operator].rules]
    assert rules
    for sentences in rules:
        assert re.fullmatch(r"[A-Z].*\.", sentences)
        assert "{{" not in sentences


@in_one_test
def test_is_documented_with_a_running_example(operator: str) -> None:
    documentation = inspect.getdoc(getattr(dmljax, function_name(operator))) or ""
    assert re.search(rf">>> .*\b{function_name(operator)}\(", documentation)


@for_each_operator
@pytest.mark.full(but=10)
@pytest.mark.gate(but=4)
def test_the_pages_examples_are_reproduced_bit_for_bit(operator: str) -> None:
    for example in examples_of(OPERATORS[operator]):
        outputs = jax.tree.leaves(directml.lower(example.desc)(*example.arrays(of_inputs=True).values()))
        computed = dict(zip(example.arrays(of_inputs=False), map(np.asarray, outputs), strict=True))
        assert example.expects(computed), (example.title, computed)


@in_one_test
def test_the_members_are_the_headers_in_its_order(operator: str) -> None:
    assert list(directml.to_json(any_desc(operator))["Desc"]) == MEMBERS[operator].split()


@for_each_operator
@pytest.mark.full(but=20)
@pytest.mark.gate(but=6)
def test_equals_the_oracle_at_every_data_type_and_at_the_lowest_and_highest_rank(operator: str) -> None:
    case, descs = CASES[operator], list(typed_descs(operator))
    inputs = [case.inputs(desc, np.random.default_rng(seed)) for seed, desc in enumerate(descs)]

    @jax.jit  # one compilation for all of them
    def outputs(arrays: list[Any]) -> list[Any]:
        return [directml.lower(desc)(*given) for desc, given in zip(descs, arrays, strict=True)]

    computed_ones = outputs([list(given.values()) for given in inputs])
    for desc, given, computed in zip(descs, inputs, computed_ones, strict=True):
        case.check(desc, given, computed)


@in_one_test
def test_a_desc_is_written_as_one_would_type_it(operator: str) -> None:
    for desc in typed_descs(operator):
        assert eval(repr(desc), vars(directml)) == desc
        assert "Scalar" not in repr(desc)


@for_each_operator
@SAMPLED
def test_a_lowered_desc_shows_its_arrays(operator: str) -> None:
    desc = any_desc(operator)
    shown = inspect.signature(directml.lower(desc))
    for leaf in desc.leaves(is_input=True):
        form = f"{leaf.tensor.dtype.name}[{','.join(map(str, leaf.tensor.sizes))}]"
        assert form in str(shown.parameters[leaf.member.field].annotation)
    for tensor in desc.tensors(is_input=False).values():
        assert f"{tensor.dtype.name}[" in str(shown.return_annotation)


@for_each_operator
@pytest.mark.gate(but=12)
def test_outputs_have_the_shapes_and_types_of_the_desc(operator: str) -> None:
    for desc in typed_descs(operator):
        shapes = jax.eval_shape(directml.lower(desc), *(t.shape_dtype for t in desc.tensors(is_input=True).values()))
        expected = [tensor.shape_dtype for tensor in desc.tensors(is_input=False).values()]
        assert [(s.shape, s.dtype) for s in jax.tree.leaves(shapes)] == [(e.shape, e.dtype) for e in expected]


@for_each_operator
@SAMPLED
def test_minimum_feature_level_matches_the_page_for_every_type_and_rank(operator: str) -> None:
    case = CASES[operator]
    all_types = [data_type for data_type in DataType if data_type is not DataType.UNKNOWN]
    levels = set()
    # Tables list ranks and types separately: try all combinations of types at one rank, and all ranks with some of each
    # table.
    combinations = [(types, 4) for types in itertools.product(all_types, repeat=len(case.free))]
    of_tables = {
        tuple(allowed(operator, field, level)[1][place] for field in case.free)
        for level in OPERATORS[operator].support
        for place in (0, -1)
    }
    for types, rank in [*combinations, *itertools.product(sorted(of_tables), range(1, 9))]:
        desc = case.make(dict(zip(case.free, types, strict=True)), rank)
        named = {leaf.member.name: (leaf.tensor.rank, leaf.tensor.data_type.name) for leaf in desc.leaves()}
        expected = pages_minimum_level(operator, named)
        if expected is None:
            with pytest.raises(InvalidDesc, match=f"^{operator} at DML_FEATURE_LEVEL_6_4: "):
                directml.find_minimum_feature_level(desc)
        else:
            assert directml.find_minimum_feature_level(desc) is FeatureLevel[f"FL_{expected}"], named
            directml.validate(desc, feature_level=expected)
        levels.add(expected)
    assert levels - {None} == set(SUPPORT[operator]), "every table of the page decides some level"


@in_one_test
def test_is_refused_one_level_below_its_introduction(operator: str) -> None:
    introduced = min(OPERATORS[operator].support)
    desc = next(typed_descs(operator, introduced))
    assert directml.find_minimum_feature_level(desc) is introduced
    for level in FeatureLevel:
        if level < introduced:
            message = f"^{operator} at {level}: the feature level must be at least {introduced}; got {level}"
            with pytest.raises(InvalidDesc, match=message):
                directml.lower(desc, feature_level=level)


@in_one_test
def test_a_desc_survives_json(operator: str) -> None:
    for desc in typed_descs(operator):
        spelled = json.loads(json.dumps(directml.to_json(desc), allow_nan=False))
        assert directml.from_json(spelled) == desc
        # The same with everything abbreviated and inline, which DxDispatch accepts as well.
        short = json.loads(re.sub(r"DML_(OPERATOR|TENSOR_DATA_TYPE|AXIS_DIRECTION)_", "", json.dumps(spelled)))
        if "Type" in short["Desc"]:
            continue  # these may not be next to the operator's own members, only in Desc
        inline = {"type": short["Type"], **short["Desc"]}
        assert directml.from_json({key: value for key, value in inline.items() if key != "AxisCount"}) == desc


@in_one_test
def test_a_lowered_desc_refuses_other_arrays_by_name(operator: str) -> None:
    desc = any_desc(operator)
    lowered, inputs = directml.lower(desc), CASES[operator].inputs(desc, np.random.default_rng(0))
    for leaf in desc.leaves(is_input=True):
        array, name = inputs[leaf.key], re.escape(spell_path(leaf.path))
        other = np.int8 if array.dtype == np.uint8 else np.uint8
        for wrong, kind in (
            (array[None], InvalidDesc),
            (array.astype("c8") if array.dtype != bool else array, directml.InvalidType),
            (np.zeros(array.shape, other), directml.InvalidType),
            (array.tolist(), directml.InvalidType),
        ):
            with pytest.raises(kind, match=f"^{operator}: {name} must "):
                lowered(*(inputs | {leaf.key: wrong}).values())
    with pytest.raises(
        directml.InvalidType, match=f"^{operator}: (missing|got an unexpected|too many|takes . arrays|the arrays must)"
    ):
        lowered(*inputs.values(), *([1] * 5))


@for_each_operator
@SAMPLED
def test_a_python_number_takes_the_type_of_the_arrays_beside_it(operator: str) -> None:
    function = getattr(dmljax, function_name(operator))
    for desc in typed_descs(operator):
        with record_calls() as calls:
            jax.eval_shape(directml.lower(desc), *random_inputs(desc))
        for call in calls:
            of_type = {key: np.ones(x.shape, x.dtype) for key, x in call.arrays.items() if isinstance(x, jax.Array)}
            arguments = call.arrays | of_type | {key: one for key, one in call.statics.items() if one is not None}
            for key, x in of_type.items():
                others = [one.dtype for name, one in of_type.items() if one.ndim and name not in (key, *OF_OTHER_TYPES)]
                follows = [*others, call.statics.get("dtype")] if "zero_point" in key else others
                if key in OF_OTHER_TYPES or x.dtype not in filter(None, follows):
                    continue  # has a type of its own, which a number cannot know
                programs = (functools.partial(function, **arguments | {key: one}) for one in (np.ones((), x.dtype), 1))
                assert program_or_refusal(next(programs)) == program_or_refusal(next(programs)), key


# Arrays that do not share a type with the arrays beside them
OF_OTHER_TYPES = ("condition", "indices", "roi", "training_step")


def program_or_refusal(function: Callable[[], Any]) -> str:
    try:
        return str(jax.make_jaxpr(function)())
    except DmlError as error:  # where an array must have dimensions
        return str(error)


# Transformations, reported to the table that conftest.py writes


def transformation(name: str) -> Callable[[Test], Test]:
    """Marks a test of a transformation, the table's row `name`, on every operator."""

    def marked(test: Test) -> Test:
        return cast(Test, for_each_operator(pytest.mark.transformation(name)(test)))

    return marked


def assert_agree(operator: str, actual: Any, expected: Any, *, absolute: float = 0) -> None:
    """Checks that two compilations of one computation agree bit for bit, or up to rounding."""
    if CASES[operator].is_exact:
        assert_same_trees(actual, expected)
    else:
        assert_nearly_same_trees(actual, expected, max(absolute, CASES[operator].absolute))


def batch_of(operator: str, count: int) -> tuple[list[Any], Any]:
    """Inputs of `count` calls stacked along a new first dimension, and likewise the outputs of single calls."""
    calls, outputs = calls_of(operator)
    inputs = [np.stack(arrays) for arrays in zip(*calls[:count], strict=True)]
    return inputs, jax.tree.map(lambda *a: np.stack(a), *outputs[:count])


@functools.cache
def calls_of(operator: str) -> tuple[list[list[Any]], list[Any]]:
    """The inputs of eight calls of an operator, and their outputs."""
    desc = any_desc(operator)
    calls = [arguments_of(desc, seed) for seed in range(8)]
    return calls, [jax.device_get(function_of(desc)(*inputs)) for inputs in calls]


def move_floats(floats: Any, distance: float, direction: Any) -> Any:
    return jax.tree.map(lambda x, v: x + distance * v, floats, direction)


def dot(a: Any, b: Any) -> Any:
    """The sum of the products of two trees' elements."""
    return sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@transformation("jit")
@SAMPLED
def test_a_second_call_traces_and_compiles_nothing(operator: str) -> None:
    desc = any_desc(operator)
    lowered = directml.lower(desc)
    inputs, others = random_inputs(desc), random_inputs(desc, seed=1)
    lowered(*inputs)
    with compilations() as events:
        lowered(*inputs)
        directml.lower(directml.from_json(directml.to_json(desc)))(*others)
    assert not events


@transformation("jit")
@SAMPLED
def test_an_eager_call_is_one_compiled_computation(operator: str) -> None:
    desc = CASES[operator].make(tame_types(operator), 4)
    inputs = [jax.device_put(array) for array in random_inputs(desc)]
    jax.block_until_ready(inputs)
    jax.clear_caches()
    with compilations() as events:
        directml.lower(desc)(*inputs)
    assert len([event for event in events if event.endswith("backend_compile_duration")]) == 1


@transformation("jit")
@SAMPLED
def test_a_user_jit_around_it_traces_once(operator: str) -> None:
    desc = any_desc(operator)
    chex.clear_trace_counter()
    jitted = jax.jit(chex.assert_max_traces(directml.lower(desc), n=1))
    for seed in range(3):
        jitted(*random_inputs(desc, seed))


@transformation("vmap")
@pytest.mark.full(but=60)
@pytest.mark.gate(but=20)
def test_vmap_adds_a_dimension_to_each_result(operator: str) -> None:
    desc = any_desc(operator)
    one, batch = arguments_of(desc), [np.stack([array] * 3) for array in arguments_of(desc)]
    expected = jax.tree.map(lambda x: ((3, *x.shape), x.dtype), jax.eval_shape(function_of(desc), *one))
    mapped = jax.eval_shape(jax.vmap(function_of(desc)), *batch)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), mapped) == expected


@transformation("vmap")
@SAMPLED
def test_vmap_equals_a_loop(operator: str) -> None:
    desc = any_desc(operator)
    batch, loop = batch_of(operator, 3)
    assert_agree(operator, jax.vmap(function_of(desc))(*batch), loop)


@transformation("nested vmap")
@SAMPLED
def test_vmap_of_vmap_along_other_axes_equals_a_loop(operator: str) -> None:
    desc = any_desc(operator)
    batch, loop = batch_of(operator, 6)
    inner = jax.vmap(function_of(desc), in_axes=-1, out_axes=-1)
    arrays = [np.moveaxis(array.reshape(2, 3, *array.shape[1:]), 1, -1) for array in batch]
    results = jax.vmap(inner, in_axes=0, out_axes=1)(*arrays)
    expected = jax.tree.map(
        lambda array: np.moveaxis(np.moveaxis(array.reshape(2, 3, *array.shape[1:]), 1, -1), 0, 1), loop
    )
    assert_agree(operator, results, expected)


@for_each_operator
@SAMPLED
def test_computes_the_same_where_jit_is_disabled(operator: str) -> None:
    desc = any_desc(operator)
    inputs = arguments_of(desc)
    expected = function_of(desc)(*inputs)
    with jax.disable_jit():
        assert_agree(operator, function_of(desc)(*inputs), expected)


@transformation("scan, map, while_loop")
@SAMPLED
def test_may_be_the_body_of_a_loop(operator: str) -> None:
    desc = any_desc(operator)
    batch, loop = batch_of(operator, 3)
    function = function_of(desc)

    def step(carry: Any) -> Any:
        i, outputs = carry
        row = function(*(jnp.asarray(array)[i] for array in batch))
        return i + 1, jax.tree.map(lambda output, new: output.at[i].set(new), outputs, row)

    @jax.jit
    def loops(batch: list[Any]) -> list[Any]:
        empty = jax.tree.map(jnp.zeros_like, loop)
        return [
            jax.lax.while_loop(lambda carry: carry[0] < 3, step, (jnp.int32(0), empty))[1],
            jax.lax.scan(lambda carry, row: (carry, function(*row)), None, batch)[1],
            jax.lax.map(lambda row: function(*row), batch),
        ]

    for outputs in loops(batch):
        assert_agree(operator, outputs, loop)


@transformation("grad")  # the families' tests and `test_derivatives.py` cover the gradients of all
@SAMPLED
def test_gradients_equal_finite_differences(operator: str) -> None:
    function, floats = differentiable_call(operator)
    if CASES[operator].domain is None:
        check_linear_gradients(function, (floats,))
    else:  # roughly: `test_derivatives.py` compares these with exact ones
        check_grads(function, (floats,), order=1, modes=["rev"], eps=2e-3, atol=1e-2, rtol=1e-2)


@for_each_operator
@pytest.mark.full(but=60)
@pytest.mark.gate(but=15)
def test_gradients_are_traced_on_an_auto_mesh(operator: str) -> None:
    """Floats here move as integers, which have no transpose."""
    function, floats = differentiable_call(operator)
    mesh = jax.make_mesh((2,), ("devices",), devices=jax.devices()[:2], axis_types=(AxisType.Auto,))

    def on_the_mesh(x: Any) -> jax.ShapeDtypeStruct:
        spec = next((P(*[None] * i, "devices") for i, size in enumerate(x.shape) if size % 2 == 0), P())
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    def loss(floats: Any) -> Any:
        return sum(map(jnp.sum, function(floats)))

    structs = jax.tree.map(on_the_mesh, floats)
    assert jax.tree.map(jnp.shape, jax.eval_shape(jax.jit(jax.grad(loss)), structs)) == jax.tree.map(jnp.shape, floats)


NO_MIXED_DERIVATIVE = pytest.mark.xfail(
    strict=True, raises=directml.Unsupported, reason="regions have no derivative of a derivative by the image"
)


@pytest.mark.parametrize(
    "operator",
    [pytest.param(name, marks=[NO_MIXED_DERIVATIVE] if name.endswith("ROI_ALIGN") else []) for name in OPERATORS],
)
@pytest.mark.full(but=3)  # of which some are skipped
def test_second_derivatives_equal_finite_differences_of_the_first(operator: str) -> None:
    function, floats = differentiable_call(operator)
    if CASES[operator].domain is None:
        pytest.skip("linear, where `check_linear_gradients` goes to the second order")
    rng = np.random.default_rng(0)
    outputs = jax.eval_shape(function, floats)
    weights, one_way, other_way = (
        jax.tree.map(lambda x: rng.standard_normal(x.shape).astype(x.dtype), tree) for tree in (outputs, floats, floats)
    )

    def loss(floats: Any) -> Any:
        return dot(weights, function(floats))

    def grad(floats: Any) -> Any:
        return jax.jvp(loss, (floats,), (one_way,))[1]

    @jax.jit
    def second_derivatives(floats: Any) -> Any:
        forward_over_reverse = dot(one_way, jax.jvp(jax.grad(loss), (floats,), (other_way,))[1])
        step = 1e-3
        high, low = (grad(move_floats(floats, distance, other_way)) for distance in (step, -step))
        return forward_over_reverse, dot(other_way, jax.grad(grad)(floats)), (high - low) / (2 * step)

    forward, backward, expected = second_derivatives(floats)
    np.testing.assert_allclose(forward, expected, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(backward, forward, rtol=1e-4, atol=1e-4)


@transformation("jvp, vjp, linearize")
@SAMPLED
def test_derivatives_agree_with_each_other(operator: str) -> None:
    function, floats = float_call(operator)
    tangents = jax.tree.map(np.ones_like, floats)

    @jax.jit
    def derivatives(floats: Any, tangents: Any) -> Any:
        outputs, pushed = jax.jvp(function, (floats,), (tangents,))
        linearized, push = jax.linearize(function, floats)
        pulled_outputs, pull = jax.vjp(function, floats)
        cotangents = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), pushed)  # float0 for counts and positions
        return (outputs, pushed), (linearized, push(tangents)), pulled_outputs, pull(cotangents)

    (outputs, pushed), linearized, pulled_outputs, (pulled,) = derivatives(floats, tangents)
    assert_agree(operator, (outputs, pushed), linearized, absolute=1e-6)
    assert_agree(operator, pulled_outputs, outputs)
    total = sum(float(tangent.sum()) for tangent in jax.tree.leaves(pushed) if tangent.dtype != jax.dtypes.float0)
    assert math.isclose(total, sum(float(array.sum()) for array in jax.tree.leaves(pulled)), rel_tol=1e-5, abs_tol=1e-4)


@transformation("checkpoint")
@SAMPLED
def test_works_under_checkpoint_rematerialization(operator: str) -> None:
    function, floats = float_call(operator)
    outputs, pull = jax.vjp(function, floats)
    again, pull_again = jax.vjp(jax.checkpoint(function), floats)
    assert_agree(operator, again, outputs)
    cotangents = jax.tree.map(
        lambda x: np.ones(x.shape, x.dtype if x.dtype == np.float32 else jax.dtypes.float0), outputs
    )
    assert_agree(operator, pull_again(cotangents), pull(cotangents), absolute=1e-6)


@transformation("checking_leaks")
@SAMPLED
def test_leaks_no_tracer(operator: str) -> None:
    desc = any_desc(operator)
    inputs = arguments_of(desc)
    jax.clear_caches()  # cached functions would not be traced again
    with jax.checking_leaks():
        jax.make_jaxpr(jax.jit(function_of(desc)))(*inputs)
        jax.make_jaxpr(jax.vmap(function_of(desc)))(*(np.stack([array]) for array in inputs))


@transformation("transfer_guard")
@SAMPLED
def test_moves_nothing_between_host_and_device(operator: str) -> None:
    desc = any_desc(operator)
    inputs = jax.block_until_ready([jax.device_put(array) for array in arguments_of(desc)])
    jax.clear_caches()
    with jax.transfer_guard("disallow"):
        eager = function_of(desc)(*inputs)
        jitted = jax.jit(function_of(desc))(*inputs)
    assert_agree(operator, jitted, eager)


@transformation("debug_nans")
@SAMPLED
def test_makes_no_nan_of_its_own(operator: str) -> None:
    function, floats = float_call(operator)
    for array in floats.values():
        if array.ndim:
            array.flat[0], array.flat[-1] = -np.inf, np.inf  # their difference, or their product with 0, would be NaN
    expected = function(floats)
    if any(np.isnan(output).any() for output in jax.tree.leaves(expected)):
        pytest.skip("infinite or negative operands give NaN by definition")
    with jax.debug_nans(True):
        assert_agree(operator, function(floats), expected)
        assert_agree(operator, jax.jit(function)(floats), expected)


# Where a page says that infinity and NaN touch more than on a CPU: linear resampling by products with matrices
SPREADING = {f"DML_OPERATOR_{name}": {"tpu"} for name in ("UPSAMPLE_2D", "RESAMPLE", "RESAMPLE3", "RESAMPLE_GRAD")}
# Where the pseudo-code adds up fewer terms, or in another order
UNLIKE_THE_ORACLE = {
    "DML_OPERATOR_CONVOLUTION": "padding is 0, also beside an infinite filter",
    "DML_OPERATOR_ROI_ALIGN_GRAD": "infinities cancel in the gradient of regions",
    **dict.fromkeys(SPREADING, "the oracle computes in fractions"),
    "DML_OPERATOR_MULTIHEAD_ATTENTION": "test_attention.py tests what masks hide",
    "DML_OPERATOR_MULTIHEAD_ATTENTION1": "test_attention.py tests what masks hide",
}


def spoiled(arrays: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arrays, with an infinity and a NaN in one of them after another."""
    for key, array in arrays.items():
        if array.size:
            changed = array.copy()
            changed.flat[array.size // 2] = np.inf
            changed.flat[array.size // 4] = np.nan  # instead of the infinity, if it is the only element
            yield arrays | {key: changed}


def touched(function: Callable[..., Any], calls: Iterator[Any]) -> list[Any]:
    """Which elements of each call's results are NaN, infinite or not, and the integers."""
    jitted = jax.jit(lambda arrays: function(arrays))
    return [jax.tree.map(special_of, jax.device_get(jitted(arrays))) for arrays in calls]


def special_of(x: Any) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return np.where(np.isnan(x), 2, np.where(np.isinf(x), np.sign(x.astype(np.float32)), 0)).astype(np.int8)


def touched_by_values(operator: str) -> list[Any]:
    function, floats = float_call(operator)
    return touched(function, spoiled(floats))


def touched_by_derivatives(operator: str) -> list[Any]:
    function, floats = differentiable_call(operator)
    outputs = {str(i): np.ones(x.shape, x.dtype) for i, x in enumerate(jax.eval_shape(function, floats))}

    def forward_mode(tangents: Any) -> Any:
        return jax.jvp(function, (floats,), (tangents,))[1]

    def reverse_mode(cotangents: Any) -> Any:
        return jax.vjp(function, floats)[1](list(cotangents.values()))[0]

    tangents = {key: np.ones_like(x) for key, x in floats.items()}
    return touched(forward_mode, spoiled(tangents)) + touched(reverse_mode, spoiled(outputs))


@for_each_operator
@SAMPLED
@pytest.mark.parametrize("what", ["values", "derivatives"])
def test_infinity_and_nan_touch_the_same_elements_on_every_platform(operator: str, what: str, lower_for: Any) -> None:
    touched_elements = {"values": touched_by_values, "derivatives": touched_by_derivatives}[what]
    expected = touched_elements(operator)
    for platform in ("gpu", "tpu"):
        lower_for(platform)
        is_spreading = platform in SPREADING.get(operator, ())
        with pytest.raises(AssertionError) if is_spreading else contextlib.nullcontext():
            assert_same_trees(touched_elements(operator), expected)


@for_each_operator
@SAMPLED
def test_infinity_and_nan_touch_what_the_pseudo_code_says(operator: str) -> None:
    case = CASES[operator]
    if case.of_value or operator in UNLIKE_THE_ORACLE:
        pytest.skip(UNLIKE_THE_ORACLE.get(operator, "no inputs"))
    _, inputs = tame_call(operator)
    _, floats = float_call(operator)
    desc = case.make(tame_types(operator), 4)
    for arrays, results in zip(spoiled(floats), touched_by_values(operator), strict=True):
        with np.errstate(all="ignore"):
            outputs = case.oracle(desc, **(inputs | arrays))
        tensors = desc.tensors(is_input=False).values()
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        for output, result, tensor in zip(several, jax.tree.leaves(results), tensors, strict=True):
            if jnp.issubdtype(tensor.dtype, jnp.floating):  # a NaN has no integer
                np.testing.assert_array_equal(result, special_of(output.astype(tensor.dtype)).reshape(tensor.sizes))


@transformation("donation")
@SAMPLED
def test_inputs_may_be_donated(operator: str) -> None:
    desc = any_desc(operator)
    inputs = [jax.device_put(array) for array in arguments_of(desc)]
    expected = function_of(desc)(*inputs)
    donating = jax.jit(function_of(desc), donate_argnums=tuple(range(len(inputs))))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")  # no output has their size
        assert_agree(operator, donating(*inputs), expected)
    if any(array.is_deleted() for array in inputs):
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            function_of(desc)(*inputs)


@transformation("result as pytree")
@SAMPLED
def test_the_result_is_a_tree_like_any_other(operator: str) -> None:
    desc = any_desc(operator)
    inputs = arguments_of(desc)
    result = function_of(desc)(*inputs)
    leaves, structure = jax.tree.flatten(result)
    assert_same_trees(jax.tree.unflatten(structure, leaves), result)
    assert str(jax.tree.structure(jax.eval_shape(function_of(desc), *inputs))) == str(structure)
    assert_same_trees(pickle.loads(pickle.dumps(jax.device_get(result))), result)


@transformation("export")
@pytest.mark.full(but=60)
@pytest.mark.gate(but=15)
def test_lowers_for_every_platform_without_callbacks_or_large_constants(operator: str) -> None:
    desc = any_desc(operator)
    shapes = [tensor.shape_dtype for tensor in desc.tensors(is_input=True).values()]
    exported = jax.export.export(jax.jit(directml.lower(desc)), platforms=["cpu", "cuda", "rocm", "tpu"])(*shapes)
    module = exported.mlir_module()
    targets = re.findall(r"custom_call @([\w.]+)", module)  # JAX 0.8 prints some operations of XLA this way
    assert [name for name in targets if name != "Sharding" and not name.startswith("mhlo.")] == []
    for constant in re.findall(r"stablehlo.constant dense<([^>]*)>", module):
        # Larger ones are printed as one hexadecimal string.
        assert constant.count(",") < 8, f"a baked-in constant: {constant[:80]}"
        assert '"0x' not in constant, f"a baked-in constant: {constant[:80]}"


@transformation("export")
@SAMPLED
def test_computes_the_same_when_it_is_exported(operator: str) -> None:
    desc = any_desc(operator)
    inputs = random_inputs(desc)
    exported = jax.export.export(jax.jit(directml.lower(desc)))(*inputs)
    again = jax.export.deserialize(exported.serialize())
    assert_agree(operator, again.call(*inputs), directml.lower(desc)(*inputs))


@transformation("symbolic batch")
@SAMPLED
def test_exports_a_batch_of_open_size(operator: str) -> None:
    desc = any_desc(operator)
    batch, loop = batch_of(operator, 5)
    (size,) = jax.export.symbolic_shape("batch")
    shapes = [jax.ShapeDtypeStruct((size, *array.shape[1:]), array.dtype) for array in batch]
    exported = jax.export.export(jax.jit(jax.vmap(function_of(desc))), platforms=["cpu", "cuda", "tpu"])(*shapes)
    again = jax.export.deserialize(exported.serialize())
    assert_agree(operator, again.call(*batch), loop)
    assert_agree(operator, again.call(*(array[:2] for array in batch)), jax.tree.map(lambda array: array[:2], loop))


def check_that_a_sharded_batch_stays_where_it_is(operator: str, mesh: jax.sharding.Mesh, *, by_shard_map: bool) -> None:
    desc = any_desc(operator)
    batch, loop = batch_of(operator, 8)
    function = jax.vmap(function_of(desc))
    if by_shard_map:
        function = jax.shard_map(function, mesh=mesh, in_specs=P("batch"), out_specs=P("batch"))
    sharded = [jax.device_put(array, NamedSharding(mesh, P("batch"))) for array in batch]
    compiled = jax.jit(function).lower(*sharded).compile()
    assert collectives(compiled) == []
    outputs = compiled(*sharded)
    assert_agree(operator, outputs, loop)
    for output in jax.tree.leaves(outputs):
        assert output.sharding.spec[0] == "batch"


@transformation("explicit mesh")
@SAMPLED
def test_a_batch_on_an_explicit_mesh_stays_where_it_is(operator: str) -> None:
    check_that_a_sharded_batch_stays_where_it_is(operator, mesh_of(AxisType.Explicit, batch=8), by_shard_map=False)


@transformation("auto mesh")
@SAMPLED
def test_a_batch_on_an_auto_mesh_stays_where_it_is(operator: str) -> None:
    if operator == "DML_OPERATOR_ELEMENT_WISE_ERF" and jax.__version_info__ < (0, 12):
        pytest.skip("before JAX 0.12, XLA gathers the operands of erf on an auto mesh")
    check_that_a_sharded_batch_stays_where_it_is(operator, mesh_of(AxisType.Auto, batch=8), by_shard_map=False)


@transformation("shard_map")
@SAMPLED
def test_may_be_called_inside_shard_map(operator: str) -> None:
    for axis_type in (AxisType.Explicit, AxisType.Auto):
        check_that_a_sharded_batch_stays_where_it_is(operator, mesh_of(axis_type, batch=8), by_shard_map=True)


@transformation("shard_map")
@SAMPLED
def test_may_share_or_divide_each_argument_inside_shard_map(operator: str) -> None:
    function, inputs = tame_call(operator)

    def repeated(arrays: dict[str, Any]) -> Any:
        _, results = jax.lax.scan(lambda nothing, _: (nothing, function(arrays)), None, None, length=2)
        return jax.tree.map(lambda leaf: leaf[1], results)

    # Operators that are gradients may compute them by JAX, which inside a loop sums them over the devices unasked.
    is_gradient = "_GRAD" in operator
    _, others = tame_call(operator, seed=1)
    check_shared_and_divided(
        repeated if is_gradient else function,
        (inputs, others),
        functools.partial(assert_agree, operator, absolute=1e-6),
    )


@for_each_operator
@SAMPLED
def test_may_be_called_inside_shard_map_on_one_device(operator: str) -> None:
    check_that_a_sharded_batch_stays_where_it_is(operator, mesh_of(AxisType.Explicit, batch=1), by_shard_map=True)


@pytest.fixture(scope="session")
def in_several_processes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> dict[str, str]:
    """The results of several processes for the operators under test, started by the first worker that asks."""
    asking = (item for item in request.session.items if "in_several_processes" in item.fixturenames)  # type: ignore[attr-defined]
    operators = tuple(item.callspec.params["operator"] for item in asking)  # type: ignore[attr-defined]
    if worker_id == "master":
        return processes.outcomes(operators)
    file = tmp_path_factory.getbasetemp().parent / "processes.json"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_text(json.dumps(processes.outcomes(operators)))
    return cast(dict[str, str], json.loads(file.read_text()))


@transformation("several processes")
@SAMPLED
@GATE
def test_runs_on_arrays_shared_by_several_processes(operator: str, in_several_processes: dict[str, str]) -> None:
    assert in_several_processes[operator] == processes.AS_IN_ONE
