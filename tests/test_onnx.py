"""ONNX's own backend node cases, which the onnx package ships, run against the functions.

A case's rule is not DirectML's: where the two differ, the page decides, and the case is listed with the reason.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import INT32_MAX, INT32_MIN, X64
from onnx.backend.test.case.node import collect_testcases

import dmljax
from dmljax import AxisDirection

OPERATORS = ("OneHot", "Hardmax", "NonZero", "GatherND", "Trilu", "EyeLike", "ArgMax", "ArgMin")

# Why a case cannot apply, by its name.
INAPPLICABLE: dict[str, str] = {}


def one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    # ONNX inserts the axis and takes floating indices; DirectML's indices have the axis, with size 1, and are integers.
    return dmljax.one_hot(np.expand_dims(indices.astype(np.int32), axis), values, axis=axis, depth=int(depth.item()))


def hardmax(input: Any, *, axis: int = -1) -> Any:
    return dmljax.activation_hardmax1(input, axes=axis)


def nonzero(input: Any) -> Any:
    # ONNX has a dynamic result with a coordinate per column; the count says where ours ends.
    count, coordinates = dmljax.nonzero_coordinates(input)
    return coordinates[: int(count)].T


def gather_nd(input: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    return dmljax.gather_nd1(input, indices, batch_dimension_count=batch_dims)


def trilu(input: Any, k: Any = 0, *, upper: int = 1) -> Any:
    # ONNX keeps one side of diagonal k; DirectML fills the other with zeros.
    k = max(INT32_MIN, min(INT32_MAX, int(np.asarray(k).item())))
    begin, end = (INT32_MIN, k) if upper else (k + 1, INT32_MAX)
    return dmljax.diagonal_matrix1(input, 0, diagonal_fill_begin=begin, diagonal_fill_end=end)


def eye_like(input: Any, *, dtype: int = 0, k: int = 0) -> Any:
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype) if dtype else input.dtype
    return dmljax.diagonal_matrix(1, offset=k, output_sizes=input.shape, dtype=jnp.dtype(kind))


def arg_reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(input: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        result = function(input, axes=axis, axis_direction=AxisDirection(select_last_index))
        return result if keepdims else jnp.squeeze(result, axis)

    return run


RUN: dict[str, Callable[..., Any]] = {
    "OneHot": one_hot,
    "Hardmax": hardmax,
    "NonZero": nonzero,
    "GatherND": gather_nd,
    "Trilu": trilu,
    "EyeLike": eye_like,
    "ArgMax": arg_reduce(dmljax.argmax),
    "ArgMin": arg_reduce(dmljax.argmin),
}


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx overflows on purpose while it computes its expectations
        collected = collect_testcases(None)
    single = {
        case.name: case for case in collected if [n.op_type for n in case.model.graph.node] in [[o] for o in OPERATORS]
    }
    return list(single.values())


CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_onnx_case(case: Any) -> None:
    if case.name in INAPPLICABLE:
        pytest.skip(INAPPLICABLE[case.name])
    (node,) = case.model.graph.node
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for inputs, outputs in case.data_sets:
        if not X64 and any(np.asarray(array).dtype == np.float64 for array in inputs):
            pytest.skip("float64 data, of which JAX without 64-bit types keeps 32 bits")
        if not X64 and attributes.get("dtype") == onnx.TensorProto.DOUBLE:
            pytest.skip("a float64 result needs 64-bit types")
        result = np.asarray(RUN[node.op_type](*map(np.asarray, inputs), **attributes))
        expected = np.asarray(outputs[0])
        # ONNX counts in int64, the functions in uint32; everything else has the type of its input.
        if node.op_type in ("NonZero", "ArgMax", "ArgMin"):
            assert (result.dtype.name, expected.dtype.name) == ("uint32", "int64")
            result = result.astype(np.int64)
        if not X64 and expected.dtype == np.int64:
            result = result.astype(np.int64)
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        assert result.tobytes() == expected.tobytes()


def test_every_onnx_operator_has_cases_and_every_exception_is_one() -> None:
    operators = {case.model.graph.node[0].op_type for case in CASES}
    assert operators == set(OPERATORS)
    assert set(INAPPLICABLE) <= {case.name for case in CASES}
    assert math.isclose(len(CASES), 76, abs_tol=20), "the number of cases in onnx 1.17 to 1.23"
