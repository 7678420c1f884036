"""ONNX's own backend cases, which the onnx package ships, run through `dmljax.onnx`.

Every case is run, or refused with one of the reasons below.
"""

import glob
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import UNITS, X64, assert_same_bits, few_of, units_off
from onnx import numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case import base as case_base
from onnx.reference.ops import op_pool_common

import dmljax.onnx
from dmljax import DmlError

# The refused cases, by the beginning of their names, and why
REFUSED: dict[str, str] = {
    "test_ai_onnx_ml_": "DirectML has no classical machine learning",
    "test_image_decoder_": "JAX does not decode files",
    "test_gradient_of_": "jax.grad differentiates models",
}

# Operators that compute in floats, so the last bit may differ
ROUNDED_NAMES = """
    Acos Acosh Adam Asin Asinh Atan Atanh Attention AveragePool BatchNormalization Celu Conv ConvTranspose Cos
    Cosh CumProd CumSum Elu Erf Exp Gelu Gemm GRU GroupNormalization GlobalAveragePool HardSigmoid HardSwish
    InstanceNormalization LRN LSTM LayerNormalization Log LogSoftmax LpNormalization MatMul
    MeanVarianceNormalization LpPool Pow RMSNormalization RNN ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
    ReduceMean ReduceProd ReduceSum ReduceSumSquare Resize RoiAlign Selu Sigmoid Sin Sinh Softmax Softplus
    Softsign Sqrt Swish Tan Tanh
"""
ROUNDED = frozenset(ROUNDED_NAMES.split())
# Operators with only one correct result: integers, copies, and floats that IEEE 754 rounds one way
EXACT_NAMES = """
    Abs Add And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip Col2Im Concat
    ConvInteger DepthToSpace DequantizeLinear Div DynamicQuantizeLinear Equal EyeLike Floor Gather
    GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax Identity IsInf IsNaN LeakyRelu Less
    LessOrEqual MatMulInteger Max MaxPool MaxUnpool Mean Min Mod Mul Neg NonZero Not OneHot Or PRelu Pad
    QLinearConv QLinearMatMul QuantizeLinear Range Reciprocal ReduceMax ReduceMin Relu ReverseSequence Round
    ScatterElements ScatterND Shrink Sign Slice SpaceToDepth Split Sub ThresholdedRelu Tile TopK Trilu
    Upsample Where Xor
"""
EXACT = frozenset(EXACT_NAMES.split())
# Expectations are NumPy's, in the case's own type: both errors together are within our own bound, except where sums
# cancel, or digits are few.
ABSOLUTE = {
    "Attention": 1e-6,
    "AveragePool": 1e-6,
    "GlobalAveragePool": 1e-6,
    "Gelu": 1e-6,  # the approximation by tanh cancels
    "RoiAlign": 2e-4,  # whose expectations have four digits
    **dict.fromkeys(("RNN", "GRU", "LSTM"), 4e-7),
}
DIGITS = {"test_averagepool_2d_ceil_last_window_starts_on_pad": 1e-4}  # which has results of four digits


class Postponed(np.ndarray):
    """An expectation of a pool, which `compute` computes: onnx takes seconds for those of its 3-D cases."""

    compute: Callable[[], Any]


def postponed(pool: Callable[..., Any]) -> Callable[..., Any]:
    def result(padded: Any, x_shape: Any, kernel: Any, strides: Any, out_shape: Any, *more: Any, **named: Any) -> Any:
        empty = np.empty((*x_shape[:2], *out_shape), padded.dtype).view(Postponed)
        empty.compute = lambda: pool(padded, x_shape, kernel, strides, out_shape, *more, **named)
        return empty

    return result


def cases() -> list[Any]:
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        warnings.simplefilter("ignore")  # onnx overflows on purpose while it computes its expectations
        patched.setattr(op_pool_common, "pool", postponed(op_pool_common.pool))
        # onnx parses the source of each case, for its pages.
        patched.setattr(case_base, "process_snippet", lambda *_: ("", ""))
        kinds = ("node", "simple", "pytorch-converted", "pytorch-operator")
        return [case for kind in kinds for case in loader.load_model_tests(kind=kind)]


CASES = cases()
FIRST_OF_EACH_OPERATOR = {case.model.graph.node[0].op_type: case for case in reversed(CASES) if case.model}.values()


# Cases that draw random numbers, whose types and sizes are compared; test_randomness.py tests the numbers
RANDOM = re.compile("test_bernoulli|test_training_dropout(_default)?(_mask)?$")


def model_of(case: Any) -> Any:
    return case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")


def data_of(case: Any, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """The inputs and outputs of a case, in memory or in files."""
    for inputs, outputs in case.data_sets or ():
        yield [value_of(proto) for proto in inputs], [value_of(proto) for proto in outputs]
    if case.data_sets is None:
        for folder in sorted(glob.glob(f"{case.model_dir}/test_data_set_*")):
            yield values_in(folder, "input", model.graph.input), values_in(folder, "output", model.graph.output)


PROTOS = {
    "tensor_type": onnx.TensorProto,
    "sequence_type": onnx.SequenceProto,
    "optional_type": onnx.OptionalProto,
    "sparse_tensor_type": onnx.SparseTensorProto,
}


def values_in(folder: str, kind: str, infos: Any) -> list[Any]:
    values = []
    for i in range(len(glob.glob(f"{folder}/{kind}_*.pb"))):
        proto = PROTOS[infos[i].type.WhichOneof("value")]()
        with open(f"{folder}/{kind}_{i}.pb", "rb") as file:
            proto.ParseFromString(file.read())
        values.append(value_of(proto))
    return values


def value_of(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, Postponed):
        return value.compute()
    return numpy_helper.to_optional(value) if isinstance(value, onnx.OptionalProto) else value


def reason_of(name: str) -> str | None:
    return next((reason for pattern, reason in REFUSED.items() if re.match(pattern, name)), None)


@pytest.mark.parametrize("case", few_of(CASES, *FIRST_OF_EACH_OPERATOR), ids=lambda case: case.name)
@pytest.mark.gate(but=25)
def test_backend_case(case: Any) -> None:
    proto = model_of(case)
    nodes = proto.graph.node
    operator = nodes[0].op_type if len(nodes) == 1 and case.kind == "node" else ""
    if reason_of(case.name) is not None:
        with pytest.raises(DmlError):
            run(proto, next(data_of(case, proto))[0])
        return
    for inputs, outputs in data_of(case, proto):
        if not X64 and needs_64_bits([*inputs, *outputs]):
            pytest.skip("float64 data, or integers beyond 32 bits, which JAX without 64-bit types does not hold")
        results = run(proto, inputs)
        assert len(results) == len(outputs)
        for result, expected in zip(results, outputs, strict=True):
            if RANDOM.match(case.name):
                assert (result.dtype, result.shape) == (jax.dtypes.canonicalize_dtype(expected.dtype), expected.shape)
            else:
                check(operator, result, expected, case)


def run(proto: Any, inputs: list[Any]) -> list[Any]:
    model = dmljax.onnx.load(proto)
    results = model(*inputs, key=jax.random.key(0)) if model.is_random else model(*inputs)
    return list(results) if isinstance(results, tuple) else [results]


def needs_64_bits(values: list[Any]) -> bool:
    for value in jax.tree.leaves(values):
        array = np.asarray(value)
        if array.dtype in (np.float64, np.complex128, np.uint64) or (
            array.dtype == np.int64 and array.size and np.abs(array.astype(float)).max() >= 2**31
        ):
            return True
    return False


def check(operator: str, result: Any, expected: Any, case: Any) -> None:
    if expected is None or isinstance(expected, list):
        assert type(result) is type(expected)
        for element, other in zip(result or (), expected or (), strict=True):
            check(operator, element, other, case)
        return
    result, expected = np.asarray(result), np.asarray(expected)
    if not X64:
        expected = expected.astype(jax.dtypes.canonicalize_dtype(expected.dtype))
    if expected.dtype == object:
        assert result.tolist() == expected.tolist()
        return
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    is_float = jnp.issubdtype(result.dtype, jnp.inexact)
    if not is_float and result.dtype.itemsize:
        np.testing.assert_array_equal(result.astype(np.int64), expected.astype(np.int64))
    elif operator in EXACT and result.dtype.itemsize > 1:
        assert_same_bits(result, expected)
    elif operator in ROUNDED and result.dtype.name in ("float16", "bfloat16", "float32", "float64"):
        units = {"bfloat16": 1, **UNITS}[result.dtype.name] * (2 if operator == "Attention" else 1)
        with np.errstate(invalid="ignore"):  # infinity less itself
            is_near = np.abs(result - expected) <= max(ABSOLUTE.get(operator, 0), DIGITS.get(case.name, 0))
        if operator.endswith("Normalization"):  # differences from a mean are only as accurate as its summands
            unit = float(jnp.finfo(result.dtype).eps)
            is_near |= np.isclose(result, expected, rtol=8 * unit, atol=8 * unit)
        off = np.max(units_off(result, expected), where=~is_near, initial=0)
        assert off <= units, f"{off} units off"
    else:
        digits = {"float16": 2e-3, "bfloat16": 2e-2}.get(result.dtype.name, 0)
        wide_type = np.complex128 if result.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            result.astype(wide_type),
            expected.astype(wide_type),
            rtol=max(case.rtol, digits),
            atol=max(case.atol, digits),
        )


def test_the_promised_number_of_cases_runs() -> None:
    refused = [case.name for case in CASES if reason_of(case.name) is not None]
    assert len(CASES) == 2024
    assert len(refused) == 19
    for pattern in REFUSED:
        assert any(re.match(pattern, case.name) for case in CASES), pattern
