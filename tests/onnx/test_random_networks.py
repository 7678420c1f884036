"""Random networks beside ONNX Runtime, node by node: each reads what ONNX Runtime computed for the nodes before."""

from typing import Any

import jax
import numpy as np
import pytest
from helpers import GATE, few_of
from onnx import helper
from random_networks import Draw, Step

import dmljax.onnx

pytestmark = GATE


ERRORS = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-10}  # beside the largest number that a node reads or computes


@pytest.mark.parametrize("seed", few_of(range(300), *range(3)))
def test_each_node_computes_what_onnxruntime_does(seed: int) -> None:
    network = Draw(seed).network()
    model, values = network.apart()
    results = iter(jax.jit(dmljax.onnx.load(model))(*values.values()))
    for step in network.steps:
        for expected in step.results.values():
            check(step, np.asarray(next(results)), expected)


def check(step: Step, result: Any, expected: Any) -> None:
    expected = expected.astype(jax.dtypes.canonicalize_dtype(expected.dtype))
    node = helper.printable_node(step.node)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape), node
    if result.dtype.kind != "f":
        np.testing.assert_array_equal(result, expected, node)
        return
    error = ERRORS[result.dtype.name]
    arrays = [expected, *step.values.values(), *step.constants.values()]
    finite = (array[np.isfinite(array)].astype(np.float64) for array in arrays if array.dtype.kind == "f")
    largest = max(1.0, *(np.abs(array).max(initial=0) for array in finite))
    result, expected = (array.astype(np.float64) for array in (result, expected))
    np.testing.assert_allclose(result, expected, rtol=error, atol=error * largest, err_msg=node)
