"""Microsoft's Python binding: its programs run unchanged, and wrong calls are refused."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import GATE, SAMPLED, assert_same_bits, refuses

import dmljax
import dmljax.pydirectml.__main__
from dmljax import DmlError, directml, serialized

dml: Any = dmljax.pydirectml
F32 = dml.TensorDataType.FLOAT32
RNG = np.random.default_rng(5)


class Program:
    """A builder with the bindings of its inputs."""

    def __init__(self) -> None:
        self.device = dml.Device(False)
        self.builder = dml.GraphBuilder(self.device)
        self.bindings: list[Any] = []

    def input(self, data: Any, desc: Any = None) -> Any:
        expression = dml.input_tensor(self.builder, len(self.bindings), desc or dml.TensorDesc(F32, data.shape))
        self.bindings.append(dml.Binding(expression, data))
        return expression

    def run(self, *outputs: Any) -> list[Any]:
        model = self.builder.build(dml.ExecutionFlags.NONE, list(outputs))
        return [np.array(data) for data in self.device.compute(model, self.bindings, list(outputs))]


def floats(*shape: int) -> Any:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


def other_binding() -> Any:
    """A binding of another program's input, of the same sizes as those of `test_wrong_use_raises_clear_errors`."""
    other = Program()
    other.input(floats(1, 1, 2, 2))
    return other.bindings[0]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("softmax", ", did you mean activation_soft_max?"),
        ("conv2d", ", did you mean convolution?"),
        ("layer_norm", ", did you mean mean_variance_normalization?"),
        ("sub", ", did you mean subtract?"),
        ("upsample", ", did you mean up_sample_2d?"),
        ("exp", "; PyDirectML has no such operator, and dmljax.element_wise_exp takes arrays"),
        ("averge_pooling", ", did you mean average_pooling?"),
        ("prelu", "; PyDirectML has no such operator, and dmljax.activation_parameterized_relu takes arrays"),
        ("GraphBuilde", ", did you mean GraphBuilder?"),
        ("xyzzy", ""),
        ("_softmax", ""),
    ],
)
def test_other_names_lead_to_the_bindings(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(dml, name)
    assert str(refused.value) == f"module 'dmljax.pydirectml' has no attribute {name!r}{meant}"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("elu", "dml.FusedActivation(dml.OperatorType.ACTIVATION_ELU, 1.0)"),
        ("leaky_relu", "dml.FusedActivation(dml.OperatorType.ACTIVATION_LEAKY_RELU, 0.01)"),
        ("softsign", "dml.FusedActivation(dml.OperatorType.ACTIVATION_SOFTSIGN)"),
        ("reduce", "dml.average_pooling("),
        ("reshape", "dml.reinterpret("),
        ("transpose", "dml.reinterpret("),
        ("expand", "dml.reinterpret("),
        ("negative", "-x"),
        ("fmod", "x % y"),
        ("reciprocal", "1 / x"),
        ("compile", "builder.build("),
        ("run", "device.compute("),
        ("placeholder", "dml.input_tensor("),
    ],
)
def test_what_the_binding_lacks_leads_to_what_it_writes(name: str, written: str) -> None:
    with pytest.raises(AttributeError, match=f"{name}'; use {re.escape(written)}") as refused:
        getattr(dml, name)
    assert eval(code_in(str(refused.value)), {"dml": dml, **small_program()}) is not None


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        ("x", "shape"),
        ("x", "dtype"),
        ("builder", "compile"),
        ("builder", "input_tensor"),
        ("model", "run"),
        ("device", "run"),
        ("result", "numpy"),
        ("result", "shape"),
        ("desc", "shape"),
        ("desc", "ndim"),
    ],
)
def test_an_attribute_that_an_object_lacks_leads_to_what_to_write(thing: str, name: str) -> None:
    program = small_program()
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; use ") as refused:
        getattr(program[thing], name)
    eval(code_in(str(refused.value)), {"dml": dml, "numpy": np, **program})
    assert not hasattr(program[thing], "_private")


def small_program() -> dict[str, Any]:
    """The objects of a program by the names that hints give them."""
    device, data = dml.Device(False), floats(1, 1, 2, 3)
    builder, desc = dml.GraphBuilder(device), dml.TensorDesc(F32, [1, 1, 2, 3])
    x = dml.input_tensor(builder, 0, desc)
    y = x + x
    model = builder.build(dml.ExecutionFlags.NONE, [y])
    (result,) = device.compute(model, [dml.Binding(x, data)], [y])
    sizes, strides = [1, 1, 3, 2], [6, 6, 1, 3]
    return locals()


def code_in(message: str) -> str:
    """The code that a message says to use, without what it says about it."""
    return re.sub(r"(, the | for | with |, with ).*$", "", message.partition("; use ")[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dml.Device(use_gpu="yes"), "Device: use_gpu must be True or False; got 'yes'"),
        (lambda: dml.gemm(None, None, trans_A=1), "gemm: ... (did you mean trans_a for trans_A?)"),
        (lambda: dml.TensorDesc("FLOAT", [1]), "TensorDesc takes ...got 'FLOAT', [1] (use dml.TensorDataType.FLOAT32)"),
        (lambda: dml.TensorDesc(F32, (1, 1, 1, 3.5)), "TensorDesc: sizes[3] must be an integer; got 3.5"),
        (lambda: dml.TensorDesc(F32, [2], [1.5]), "TensorDesc: strides[0] must be an integer; got 1.5"),
        (
            lambda: dml.FusedActivation("relu"),
            "FusedActivation: ...; got 'relu' (use dml.OperatorType.ACTIVATION_RELU)",
        ),
        (
            lambda: dml.Expression() @ dml.Expression(),
            "PyDirectML's expressions have only + - * / % (use dml.gemm(a, b))",
        ),
        (lambda: dml.convolution(None, None, stride=2), "convolution: ... 'stride' (did you mean strides for stride?)"),
        (
            lambda: dml.gemm(None),
            "gemm: missing b; gemm(a, b, c=None, trans_a=dml.MatrixTransform.NONE, "
            "...fused_activation=dml.FusedActivation of INVALID)",
        ),
        (
            lambda: dml.GraphBuilder(dml.Device(False)).build(0, []),
            "flags must be a member of ExecutionFlags; got 0 (use dml.ExecutionFlags.NONE)",
        ),
        (
            lambda: dml.MatrixTransform.check("trans_a", True),
            "trans_a must be a member of MatrixTransform; got True (use dml.MatrixTransform.TRANSPOSE)",
        ),
        (
            lambda: dml.MatrixTransform.check("trans_a", directml.MatrixTransform.NONE),
            "...got directml.MatrixTransform.NONE (use dml.MatrixTransform.NONE)",
        ),
        (
            lambda: dml.PaddingMode.check("padding_mode", dml.MatrixTransform.NONE),
            "padding_mode must be a member of PaddingMode; got dml.MatrixTransform.NONE",
        ),
        (
            lambda: dml.Device(gpu=True),
            "Device: got an unexpected keyword argument 'gpu' (did you mean use_gpu for gpu?)",
        ),
    ],
)
def test_arguments_of_other_names_are_refused_with_the_remedy(call: Any, message: str) -> None:
    with refuses(message, TypeError):
        call()


def test_a_device_takes_what_is_true_or_false() -> None:
    assert repr(dml.Device(0, None)) == "dml.Device on CPU"
    assert repr(dml.Device()) == f"dml.Device on {jax.devices()[0].platform.upper()}"
    with refuses("Device: use_gpu must be True or False; got 'yes'", TypeError):
        dml.Device(use_gpu="yes")
    with refuses("Device: use_debug_layer must be True or False; got []", TypeError):
        dml.Device(True, [])


# Enumerations


def test_enumerations_have_the_values_in_the_header() -> None:
    operators = dml.OperatorType
    assert [
        int(operators[name]) for name in ("INVALID", "ELEMENT_WISE_IDENTITY", "ACTIVATION_ELU", "ACTIVATION_RELU")
    ] == [*(0, 1, 35, 44)]
    names = ["ACTIVATION_THRESHOLDED_RELU", "CONVOLUTION", "GRU", "ELEMENT_WISE_SIGN", "ELEMENT_WISE_ADD1", "RESAMPLE"]
    assert [operators[name].value for name in names] == [52, 53, 78, 79, 89, 96]
    assert len(operators) == 97
    for name in directml.DataType.__members__:
        if not name.endswith("INT4"):
            assert int(dml.TensorDataType[name]) == int(directml.DataType[name])
    assert dml.MatrixTransform(1) is dml.MatrixTransform.TRANSPOSE
    assert str(dml.TensorDataType.FLOAT32) == "TensorDataType.FLOAT32"
    assert [option.name for option in dml.OutputOptions] == ["Both", "Sequence", "Single"]


def test_members_are_module_names_and_the_last_enumeration_wins() -> None:
    assert (dml.FLOAT32, dml.OWNED_BY_DML) == (dml.TensorDataType.FLOAT32, dml.TensorFlags.OWNED_BY_DML)
    assert dml.ACTIVATION_RELU is dml.OperatorType.ACTIVATION_RELU
    assert dml.NONE is dml.ExecutionFlags.NONE
    assert dml.FORWARD is dml.ConvolutionDirection.FORWARD
    assert dml.CONVOLUTION is dml.OperatorType.CONVOLUTION
    assert not hasattr(dml, "Both")


def test_combined_flags_convert_back_to_a_member() -> None:
    both = dml.ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION | dml.ExecutionFlags.DISABLE_META_COMMANDS
    assert both == 3
    program = Program()
    output = dml.activation_relu(program.input(floats(1, 1, 2, 2)))
    program.builder.build(dml.ExecutionFlags(both), [output])
    with pytest.raises(TypeError, match="flags must be a member of ExecutionFlags; got 3"):
        program.builder.build(both, [output])
    with pytest.raises(ValueError, match="8 is not a valid"):
        dml.ExecutionFlags(8)


# TensorDesc


@pytest.mark.parametrize(
    ("args", "kwargs", "strides", "size"),
    [
        ((F32, [1, 8, 28, 28]), {}, None, 25088),
        ((F32, dml.TensorFlags.OWNED_BY_DML, [1, 8, 28, 28]), {}, None, 25088),
        ((F32, [1, 8, 28, 28], [8, 1, 0, 0]), {}, [8, 1, 0, 0], 32),
        ((F32, [2, 3], None), {}, None, 24),
        ((dml.TensorDataType.UINT8, [5]), {}, None, 8),
        ((F32, dml.TensorFlags.NONE, (2, 3), None, 64, 16), {}, None, 64),
        ((), {"sizes": [2, 3, 4, 5], "data_type": F32}, None, 480),
        ((F32, [2, 3, 4, 5], dml.TensorPolicy.interleaved_channel), {}, [60, 1, 15, 3], 480),
        ((F32, dml.TensorFlags.NONE, np.array([2, 3])), {}, None, 24),
    ],
    ids=str,
)
def test_a_desc_has_four_forms(args: Any, kwargs: Any, strides: Any, size: int) -> None:
    desc = dml.TensorDesc(*args, **kwargs)
    assert desc.strides == strides
    assert desc.total_tensor_size_in_bytes == size
    assert isinstance(desc.sizes, list)
    with pytest.raises(AttributeError):
        desc.sizes = [1]


def test_a_desc_reports_its_type_and_sizes() -> None:
    desc = dml.TensorDesc(F32, dml.TensorFlags.OWNED_BY_DML, [1, 3, 2, 2], None, 48, 16)
    assert repr(desc) == "dml.TensorDesc of type 1 and shape [1,3,2,2] with flags 1"
    assert (desc.data_type, desc.flags) == (F32, dml.TensorFlags.OWNED_BY_DML)
    assert desc.guaranteed_base_offset_alignment == 16


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((1, [2, 3]), TypeError),  # an int is not a member
        ((F32,), TypeError),
        ((F32, "23"), TypeError),
        ((F32, [2, 3], 4), TypeError),
        ((F32, [2, 3], [1]), ValueError),
        ((F32, [2, 0]), ValueError),
        ((F32, [-1]), ValueError),
    ],
    ids=str,
)
def test_other_forms_of_a_desc_are_refused(args: Any, error: Any) -> None:
    with pytest.raises(error, match="TensorDesc"):
        dml.TensorDesc(*args)


# Expressions


@GATE
def test_expressions_have_operators() -> None:
    program = Program()
    x, y = floats(1, 1, 2, 3), floats(1, 1, 2, 3)
    a, b = program.input(x), program.input(y)
    computed = program.run(
        a + b, a - b, a * b, a / b, a % b, -a, a + 2, a - 2, a * 2, a / 4, 2 + a, 2 - a, 2 * a, 3 / a
    )
    expected = [x + y, x - y, x * y, x / y, np.fmod(x, y), -x, x + 2, x - 2, x * 2, x / 4, 2 + x, 2 - x, 2 * x, 3 / x]
    for actual, reference in zip(computed, expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=3e-7)


def test_an_expression_is_changed_in_place() -> None:
    program = Program()
    x = np.array([[[[-1.5, -0.0625, 0.1875, 1.75]]]], np.float32)  # every step is exact
    a = program.input(x)
    b = dml.activation_identity(a)
    other = b
    b += 1
    b -= a
    b *= 2
    b /= 8
    b %= a
    assert other is b
    assert_same_bits(program.run(b)[0], np.fmod(np.full_like(x, 0.25), x))


@pytest.mark.parametrize("wrong", ["text", None, [1.0], 1j])
def test_operands_of_other_types_are_refused(wrong: Any) -> None:
    a = Program().input(floats(1, 1, 1, 4))
    with pytest.raises(TypeError, match="must be an expression or a number"):
        a + wrong


def test_an_empty_expression_is_refused_where_it_is_used() -> None:
    empty = dml.Expression()
    program = Program()
    a = program.input(floats(1, 1, 2, 2))
    pooled = dml.max_pooling(a, [2, 2])
    for use in (
        lambda: dml.activation_relu(empty),
        lambda: dml.add(a, empty),
        lambda: dml.activation_relu(pooled.indices),
        lambda: empty.get_output_desc(),
        lambda: dml.Binding(empty, np.zeros(1)),
        lambda: program.builder.build(dml.ExecutionFlags.NONE, [empty]),
        lambda: empty + 1,
    ):
        with pytest.raises(ValueError, match="must not be empty; got an empty expression"):
            use()


# Functions, beside NumPy


def test_elementwise_functions_equal_numpys() -> None:
    program = Program()
    x, y = floats(1, 2, 3, 4), floats(1, 2, 3, 4)
    a, b = program.input(x), program.input(y)
    relu = dml.FusedActivation(dml.OperatorType.ACTIVATION_RELU)
    outputs = [
        dml.activation_identity(a),
        dml.activation_relu(a),
        dml.activation_sigmoid(a),
        dml.activation_tanh(a),
        dml.activation_linear(a, alpha=2, beta=0.5),
        dml.add(a, b),
        dml.add(a, b, relu),
        dml.subtract(a, b),
        dml.multiply(a, b),
        dml.divide(a, b),
        dml.activation_identity(b),
    ]
    expected = [
        *(x, np.maximum(x, 0), 1 / (1 + np.exp(-x)), np.tanh(x), 2 * x + 0.5),
        *(x + y, np.maximum(x + y, 0), x - y, x * y, x / y, y),
    ]
    for actual, reference in zip(program.run(*outputs), expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=2e-6, atol=1e-6)


def test_only_strides_of_0_broadcast() -> None:
    program = Program()
    x, bias = floats(1, 3, 2, 2), floats(3)
    a = program.input(x)
    b = program.input(bias, dml.TensorDesc(F32, [1, 3, 2, 2], [3, 1, 0, 0]))
    assert_same_bits(program.run(dml.add(a, b))[0], x + bias[:, None, None])
    c = program.input(floats(1, 3, 1, 1))
    with pytest.raises(
        ValueError, match=r"ELEMENT_WISE_ADD1 at DML_FEATURE_LEVEL_5_1: ATensor, BTensor and OutputTensor"
    ):
        dml.add(a, c)


def test_matrix_products_and_softmax_equal_numpys() -> None:
    program = Program()
    x, y, z = floats(1, 1, 3, 2), floats(1, 1, 3, 4), floats(1, 1, 1, 4)
    a, b = program.input(x), program.input(y)
    c = program.input(z, dml.TensorDesc(F32, [1, 1, 2, 4], [4, 4, 0, 1]))
    product = dml.gemm(a, b, c, trans_a=dml.MatrixTransform.TRANSPOSE, alpha=2, beta=0.5)
    expected = 2 * np.swapaxes(x, 2, 3) @ y + 0.5 * z
    exponentials = np.exp(expected)
    softmax = exponentials / exponentials.sum(-1, keepdims=True)
    for actual, reference in zip(
        program.run(product, dml.activation_soft_max(product)), (expected, softmax), strict=True
    ):
        np.testing.assert_allclose(actual, reference, rtol=1e-5, atol=1e-6)


def test_pooling_has_its_windows_before_or_after_its_strides() -> None:
    program = Program()
    x = RNG.permutation(64).astype(np.float32).reshape(1, 1, 8, 8)
    a = program.input(x)
    mean = dml.average_pooling(a, [3, 3], [2, 2], [0, 0], [0, 0], 0)  # strides of 3, windows of 2
    pooled = dml.max_pooling(a, [2, 2], [3, 3], output_indices=1)
    assert mean.get_output_desc().sizes == pooled.values.get_output_desc().sizes == [1, 1, 3, 3]
    blocks = np.lib.stride_tricks.sliding_window_view(x[0, 0], (2, 2))[::3, ::3]
    means, values, indices = program.run(mean, pooled.values, pooled.indices)
    np.testing.assert_allclose(means[0, 0], blocks.mean((2, 3)), rtol=1e-6)
    assert_same_bits(values[0, 0], blocks.max((2, 3)))
    assert_same_bits(x.ravel()[indices.view(np.uint32)], values)


def test_convolutions_run_forward_and_backward() -> None:
    torch = pytest.importorskip("torch")
    program = Program()
    x, w, v, c = floats(1, 2, 5, 5), floats(4, 2, 3, 3), floats(2, 3, 3, 3), floats(1, 4, 1, 1)
    a = program.input(x)
    forward = dml.convolution(
        a,
        program.input(w),
        program.input(c),
        strides=[2, 2],
        start_padding=[1, 1],
        end_padding=[1, 1],
        fused_activation=dml.FusedActivation(dml.OperatorType.ACTIVATION_LEAKY_RELU, 0.5),
    )
    sizes = [1, 3, 10, 10]  # one more than follows from the strides
    backward = dml.convolution(
        a,
        program.input(v),
        direction=dml.ConvolutionDirection.BACKWARD,
        strides=[2, 2],
        start_padding=[1, 1],
        end_padding=[1, 1],
        output_sizes=sizes,
    )
    result, other = program.run(forward, backward)
    functional, tensor = torch.nn.functional, torch.from_numpy
    expected = functional.leaky_relu(functional.conv2d(tensor(x), tensor(w), tensor(c.ravel()), 2, 1), 0.5)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    expected = functional.conv_transpose2d(tensor(x), tensor(v), stride=2, padding=1)
    np.testing.assert_allclose(other[:, :, :9, :9], expected, rtol=1e-4, atol=1e-4)
    assert not other[:, :, 9:].any()
    assert not other[:, :, :, 9:].any()
    with pytest.raises(ValueError, match="output_sizes must be given for direction BACKWARD"):
        dml.convolution(a, a, direction=dml.ConvolutionDirection.BACKWARD)


def test_copies_keep_every_bit() -> None:
    program = Program()
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    a = program.input(x)
    pads = [0, 0, 1, 1]
    padded = dml.padding(a, dml.PaddingMode.REFLECTION, 0, pads, pads)
    part = dml.slice(a, [0, 0, 0, 1], [1, 2, 3, 3], [1, 1, 2, -2])
    joined = dml.join([a, a, a], 1)
    upper = dml.up_sample_2d(a, dml.Size2D(3, 2), dml.InterpolationMode.NEAREST_NEIGHBOR)
    scaled = dml.value_scale_2d(dml.slice(a, [0, 0, 0, 0], [1, 1, 3, 4], [1, 1, 1, 1]), 2.0, [1.0])
    results = program.run(padded, part, joined, upper, scaled)
    expected = [
        np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], mode="reflect"),
        x[:, :, ::2, 3:0:-2],
        np.concatenate([x] * 3, axis=1),
        x.repeat(2, 2).repeat(3, 3),
        x[:, :1] * 2 + 1,
    ]
    for actual, reference in zip(results, expected, strict=True):
        assert_same_bits(actual, reference)


def test_gather_takes_the_bindings_arguments() -> None:
    program = Program()
    x, i = floats(1, 1, 5, 4), np.array([[0, 4, 1], [2, 2, 3]], np.uint32)
    desc = dml.TensorDesc(dml.TensorDataType.UINT32, [1, 1, 2, 3])
    gathered = dml.gather(program.input(x), program.input(i.view(np.float32), desc), 2, 2)
    assert gathered.get_output_desc().sizes == [1, 2, 3, 4]
    assert_same_bits(program.run(gathered)[0], x[0, 0][i][None])


def test_normalizations_follow_their_formulas() -> None:
    program = Program()
    x, parameters = (
        floats(2, 3, 4, 5),
        [floats(1, 3, 1, 1), floats(1, 3, 1, 1) ** 2, floats(1, 3, 1, 1), floats(1, 3, 1, 1)],
    )
    a = program.input(x)
    mean, variance, scale, bias = map(program.input, parameters)
    outputs = [
        dml.batch_normalization(a, mean, variance, scale, bias, True, 0.5),
        dml.mean_variance_normalization(a, scale, bias, [2, 3], 1, 0.5),
        dml.mean_variance_normalization(a, axes=[1], normalize_variance=False, epsilon=0),
        dml.local_response_normalization(a, True, 3, 0.5, 0.75, 2.0),
    ]
    m, v, s, b = parameters
    centered = x - x.mean((2, 3), keepdims=True)
    squares = np.pad(x * x, [(0, 0), (1, 1), (0, 0), (0, 0)])
    sums = squares[:, :3] + squares[:, 1:4] + squares[:, 2:]
    expected = [
        s * (x - m) / np.sqrt(v + 0.5) + b,
        s * centered / np.sqrt((centered**2).mean((2, 3), keepdims=True) + 0.5) + b,
        x - x.mean(1, keepdims=True),
        x / (2 + 0.5 / 3 * sums) ** 0.75,
    ]
    for actual, reference in zip(program.run(*outputs), expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match="mean_variance_normalization: normalize_variance must be given; got none"):
        dml.mean_variance_normalization(a, epsilon=0)


def test_a_reinterpretation_is_another_view_of_the_bytes() -> None:
    program = Program()
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    y = dml.activation_identity(program.input(x))
    flat = dml.reinterpret(y, F32, [1, 1, 1, 6], None)
    columns = dml.reinterpret(flat, F32, [1, 1, 3, 2], [6, 6, 1, 3])  # chains lead to the same bytes
    bits = dml.reinterpret(y, dml.TensorDataType.UINT32, [1, 1, 2, 3], None)
    results = program.run(flat, columns, dml.activation_relu(columns), bits)
    assert_same_bits(results[0], x.reshape(1, 1, 1, 6))
    assert_same_bits(results[1], np.swapaxes(x, 2, 3).copy())
    assert_same_bits(results[2], np.swapaxes(x, 2, 3).copy())
    assert_same_bits(results[3].view(np.uint32), x.view(np.uint32))
    with pytest.raises(ValueError, match="reinterpret: TotalTensorSizeInBytes must be at least 28; got 24"):
        dml.reinterpret(y, F32, [1, 1, 1, 7], [7, 7, 7, 1])


@pytest.mark.parametrize("sizes", [[1, 1, 1, 7], [1, 1, 1, 5]])
def test_a_packed_reinterpretation_has_all_bytes(sizes: list[int]) -> None:
    y = Program().input(np.zeros((1, 1, 2, 3), np.float32))
    assert dml.reinterpret(y, F32, [1, 1, 3, 2], []).get_output_desc().strides is None
    with pytest.raises(ValueError, match=r"new_size must take up 24 bytes, as input does; got 2[08] bytes"):
        dml.reinterpret(y, F32, sizes, [])


@pytest.mark.parametrize("options", ["Both", "Sequence", "Single"])
def test_gru_equals_torch_after_reordering_gates(options: str) -> None:
    torch = pytest.importorskip("torch")
    program, hidden, size, steps, batch = Program(), 3, 2, 4, 5
    x = floats(1, steps, batch, size)
    network = torch.nn.GRU(size, hidden)
    gates = np.array([1, 0, 2])  # PyTorch's are reset, update, new
    w, r, b, c = (
        tensor.detach().numpy().reshape(3, hidden, -1)[gates].reshape(3 * hidden, -1)
        for tensor in (network.weight_ih_l0, network.weight_hh_l0, network.bias_ih_l0, network.bias_hh_l0)
    )
    sigmoid, tanh = (dml.FusedActivation(dml.OperatorType[f"ACTIVATION_{name}"]) for name in ("SIGMOID", "TANH"))
    outputs = dml.gru(
        program.input(x),
        program.input(w[None, None]),
        program.input(r[None, None]),
        program.input(np.concatenate([b, c]).reshape(1, 1, 1, -1)),
        activation_descs=[sigmoid, tanh],
        direction=dml.RecurrentNetworkDirection.FORWARD,
        output_options=dml.OutputOptions[options],
    )
    sequence, single = (tensor.detach().numpy() for tensor in network(torch.from_numpy(x[0])))
    references = {"sequence": sequence[:, None], "single": single[None]}
    kept = ["sequence", "single"] if options == "Both" else [options.lower()]
    for name, actual in zip(kept, program.run(*(getattr(outputs, name) for name in kept)), strict=True):
        np.testing.assert_allclose(actual, references[name], rtol=1e-5, atol=1e-5)
    if options != "Both":
        (missing,) = {"sequence", "single"} - set(kept)
        with pytest.raises(ValueError, match="must not be empty"):
            dml.activation_relu(getattr(outputs, missing))


def test_wrong_recurrent_units_are_refused() -> None:
    program = Program()
    a, w, r = (program.input(floats(*shape)) for shape in ((1, 2, 1, 1), (1, 1, 3, 1), (1, 1, 3, 1)))
    tanh = dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH)
    rest: dict[str, Any] = {
        "direction": dml.RecurrentNetworkDirection.FORWARD,
        "output_options": dml.OutputOptions.Both,
        "activation_descs": [tanh, tanh],
    }
    for change, message in (
        ({"direction": None}, "gru: direction must be given; got none"),
        ({"output_options": 1}, "gru: output_options must be a member of OutputOptions; got 1"),
        ({"activation_descs": None}, "gru: activation_descs must be given; got none"),
        ({"activation_descs": [tanh] * 5}, "gru: activation_descs must have at most four activations"),
        ({"activation_descs": [dml.FusedActivation()] * 2}, "gru: activation_descs must have at most four activations"),
        ({"activation_descs": [tanh]}, "DML_OPERATOR_GRU at DML_FEATURE_LEVEL_5_1: ActivationDesc"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            dml.gru(a, w, r, **rest | change)


@SAMPLED
@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("ELU", (0.5,), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
        ("LINEAR", (2, 3), lambda x: 2 * x + 3),
        ("SCALED_ELU", (2, 3), lambda x: 3 * np.where(x > 0, x, 2 * np.expm1(x))),
        ("SHRINK", (0.25, 0.5), lambda x: np.where(x > 0.5, x - 0.25, np.where(x < -0.5, x + 0.25, 0))),
        ("SOFTPLUS", (2,), lambda x: np.log1p(np.exp(2 * x)) / 2),
        ("TANH", (), np.tanh),
        ("INVALID", (), lambda x: x),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fused_activation_takes_its_numbers(name: str, numbers: Any, expected: Any) -> None:
    program = Program()
    x = floats(1, 1, 4, 5)
    a = program.input(x)
    activation_type = dml.OperatorType["INVALID" if name == "INVALID" else f"ACTIVATION_{name}"]
    zero = program.input(np.zeros_like(x))
    (computed,) = program.run(dml.add(a, zero, dml.FusedActivation(activation_type, *numbers)))
    np.testing.assert_allclose(computed, expected(x), rtol=1e-5, atol=1e-6)


def test_operators_that_cannot_be_fused_are_refused() -> None:
    a = Program().input(floats(1, 1, 2, 2))
    with pytest.raises(ValueError, match="fused_activation must be one of ELU, HARD_SIGMOID"):
        dml.add(a, a, dml.FusedActivation(dml.OperatorType.ACTIVATION_SOFTMAX))
    with pytest.raises(TypeError, match="activation must be a member of OperatorType; got 44"):
        dml.FusedActivation(44)


# Data


def test_data_is_bound_by_its_bytes_as_float32_and_copied() -> None:
    program = Program()
    data = np.arange(4, dtype=np.float64)
    a = program.input(data, dml.TensorDesc(F32, [1, 1, 2, 2]))
    data += 100
    assert program.run(dml.activation_identity(a))[0].ravel().tolist() == [0, 1, 2, 3]
    for wrong in (np.zeros(3), np.zeros((1, 1, 2, 3))):
        with pytest.raises(ValueError, match=r"Binding: data must have 16 bytes, like FLOAT32 \{1,1,2,2\}; got"):
            dml.Binding(a, wrong)


def test_integers_are_bound_by_their_bits() -> None:
    data_type = dml.TensorDataType.UINT32
    numbers = np.array([[1, 2**31 + 5, 7, 0]], np.uint32)
    for data in (numbers.view(np.float32), numbers):
        program = Program()
        a = program.input(data, dml.TensorDesc(data_type, [1, 1, 1, 4]))
        (sliced,) = program.run(dml.slice(a, [0, 0, 0, 1], [1, 1, 1, 2], [1, 1, 1, 1]))
        assert sliced.dtype == np.float32
        assert sliced.view(np.uint32).ravel().tolist() == [2**31 + 5, 7]


def test_float64_integers_are_bound_as_float32() -> None:
    program = Program()
    a = program.input(np.array([[[[1.0, 2.0]]]]), dml.TensorDesc(dml.TensorDataType.UINT32, [1, 1, 1, 2]))
    assert_same_bits(program.run(dml.slice(a, [0] * 4, [1, 1, 1, 2], [1] * 4))[0].ravel(), np.array([1, 2], np.float32))


def test_inputs_are_in_the_order_of_their_indices() -> None:
    builder = dml.GraphBuilder(dml.Device(False))
    second, first = (dml.input_tensor(builder, index, dml.TensorDesc(F32, [1, 1, 1, 2])) for index in (7, 3))
    model = builder.build(dml.ExecutionFlags.NONE, [first - second])
    assert list(model.graph.inputs) == ["input_3", "input_7"]
    x, y = floats(1, 1, 1, 2), floats(1, 1, 1, 2)
    assert_same_bits(model.function(x, y), x - y)


def test_numpy_reads_the_results_of_compute() -> None:
    data = dml.TensorData(np.array([1.0, 2.0], np.float32))
    assert np.array(data).tolist() == np.asarray(data).tolist() == [1, 2]
    assert np.array(data, np.float32).dtype == np.float32
    assert np.array(data, np.float64).dtype == np.float64


def test_a_model_reruns_with_other_data_and_skips_none() -> None:
    program = Program()
    a = program.input(floats(1, 1, 1, 3))
    unread = dml.input_tensor(program.builder, 1, dml.TensorDesc(F32, [9]))
    outputs = [dml.activation_relu(a), -a]
    model = program.builder.build(dml.ExecutionFlags.NONE, outputs)
    later = dml.activation_tanh(outputs[0])  # which the model does not have
    for _ in range(2):
        x = floats(1, 1, 1, 3)
        (negative,) = program.device.compute(model, [dml.Binding(a, x), None], [None, outputs[1]])
        assert_same_bits(np.array(negative), -x)
    assert program.builder.build(dml.ExecutionFlags.NONE, [later]).function(x, np.zeros(9, np.float32)).shape == x.shape
    with pytest.raises(TypeError, match=r"compute: inputs\[0\] must be a Binding of input 0; got None"):
        program.device.compute(model, [None, dml.Binding(unread, np.zeros(9))], outputs)
    with pytest.raises(ValueError, match="compute: inputs must be 2 bindings, one for each input of the builder"):
        program.device.compute(model, [dml.Binding(a, x)], outputs)
    with pytest.raises(ValueError, match="compute: outputs must have 2 expressions, like the model; got 1"):
        program.device.compute(model, [dml.Binding(a, x), None], outputs[:1])


def test_a_models_function_works_with_jax_transformations() -> None:
    program = Program()
    image, weights = floats(1, 2, 6, 6), floats(3, 2, 3, 3)
    bias = floats(3)
    convolved = dml.convolution(
        program.input(image),
        program.input(weights),
        program.input(bias, dml.TensorDesc(F32, [1, 3, 1, 1])),
    )
    scaled = dml.multiply(convolved, program.input(bias, dml.TensorDesc(F32, [1, 3, 4, 4], [3, 1, 0, 0])))
    model = program.builder.build(dml.ExecutionFlags.NONE, [scaled])
    flat = bias.reshape(1, 3, 1, 1)
    arrays = (image, weights, flat, flat)  # an element that a stride of 0 repeats is stored once
    value = jax.jit(model.function)(*arrays)
    gradient = jax.grad(lambda weights: model.function(image, weights, flat, flat).sum())(weights)
    step = np.zeros_like(weights)
    step[1, 0, 2, 2] = 1
    moved = model.function(image, weights + step, flat, flat)  # which is linear in the weights
    np.testing.assert_allclose(gradient[1, 0, 2, 2], moved.sum() - value.sum(), rtol=1e-4)
    batch = np.stack([image, 2 * image])
    np.testing.assert_allclose(
        jax.vmap(model.function, (0, None, None, None))(batch, *arrays[1:])[0], value, rtol=1e-5, atol=1e-5
    )
    assert "convolution_0 -> " not in repr(model.graph)
    assert 'CONVOLUTION"]' in model.graph.to_dot()


def test_the_graph_of_a_model_is_read_back_from_a_file(tmp_path: Path) -> None:
    program = Program()
    x = floats(1, 1, 2, 3)
    y = dml.activation_relu(program.input(x))
    model = program.builder.build(dml.ExecutionFlags.NONE, [y])
    serialized.save(model.graph, tmp_path / "model.bin")
    assert_same_bits(directml.lower(serialized.load(tmp_path / "model.bin"))(x), np.maximum(x, 0))
    view = program.builder.build(dml.ExecutionFlags.NONE, [dml.reinterpret(y, F32, [1, 1, 3, 2], None)])
    serialized.save(view.graph, tmp_path / "view.bin")
    assert_same_bits(directml.lower(serialized.load(tmp_path / "view.bin"))(x), np.maximum(x, 0).reshape(1, 1, 3, 2))


def test_a_new_tensor_of_an_index_binds_new_data() -> None:
    program, x, y = Program(), floats(1, 1, 2, 3), floats(1, 1, 2, 3)
    negated = -program.input(x)
    model = program.builder.build(dml.ExecutionFlags.NONE, [negated])
    again = dml.input_tensor(program.builder, 0, dml.TensorDesc(F32, [1, 1, 2, 3]))
    (result,) = program.device.compute(model, [dml.Binding(again, y)], [negated])
    assert_same_bits(np.array(result), -y)
    # The tensor may also be the input of another model of the builder.
    positive = dml.activation_relu(again)
    other = program.builder.build(dml.ExecutionFlags.NONE, [positive])
    for built, output, expected in ((model, negated, -y), (other, positive, np.maximum(y, 0))):
        (result,) = program.device.compute(built, [dml.Binding(again, y)], [output])
        assert_same_bits(np.array(result), expected)


def test_a_model_refuses_two_tensors_with_the_same_index() -> None:
    program = Program()
    first = program.input(floats(1, 1, 2, 3))
    second = dml.input_tensor(program.builder, 0, dml.TensorDesc(F32, [1, 1, 2, 3]))
    rule = "build: outputs must use only one input_tensor for each input_index; got two of 0"
    with pytest.raises(ValueError, match=rule):
        program.builder.build(dml.ExecutionFlags.NONE, [first + second])


# Refusals, and programs


def test_a_wrong_operator_is_refused_at_construction() -> None:
    program = Program()
    a, other = program.input(floats(1, 2, 4, 4)), Program().input(floats(1, 2, 4, 4))
    with pytest.raises(ValueError, match="b must be an expression of the same builder; got one of another"):
        dml.add(a, other)
    with pytest.raises(ValueError, match="strides must have 2 numbers, one for each spatial dimension, or be empty"):
        dml.convolution(a, a, strides=[1])
    with pytest.raises(DmlError, match="DML_OPERATOR_CONVOLUTION at DML_FEATURE_LEVEL_5_1: FilterTensor"):
        dml.convolution(a, program.input(floats(3, 5, 1, 1)))
    with pytest.raises(TypeError, match="mode must be a member of ConvolutionMode; got 0"):
        dml.convolution(a, a, mode=0)
    with pytest.raises(TypeError, match="input must be a list of expressions"):
        dml.join(a, 1)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        dml.activation_relu(x=a)
    for wrong in (a, dml.reinterpret(a, F32, [32], None)):
        with pytest.raises(ValueError, match="use activation_identity to return an input"):
            program.builder.build(dml.ExecutionFlags.NONE, [wrong])


WRONG: dict[str, tuple[Any, str]] = {
    "no device": (lambda p, a, m: dml.GraphBuilder(None), "device must be a Device; got None"),
    "no list of bindings": (
        lambda p, a, m: p.device.compute(m, p.bindings[0], [a]),
        "compute: inputs must be a list of bindings; got <dmljax",
    ),
    "arrays for bindings": (
        lambda p, a, m: p.device.compute(m, [np.zeros(4)], [a]),
        r"compute: inputs\[0\] must be a Binding of input 0; got array",
    ),
    "a builder for a model": (
        lambda p, a, m: p.device.compute(p.builder, p.bindings, [a]),
        "compute: model must be a Model that build returned; got <dmljax",
    ),
    "no list of outputs": (
        lambda p, a, m: p.device.compute(m, p.bindings, a),
        "compute: outputs must be a list of expressions; got dml.Expression of",
    ),
    "a number for an output": (
        lambda p, a, m: p.device.compute(m, p.bindings, [3]),
        r"compute: outputs\[0\] must be an expression; got 3",
    ),
    "outputs of another model": (
        lambda p, a, m: p.device.compute(m, p.bindings, [dml.activation_tanh(a)]),
        r"compute: outputs\[0\] must be None or activation_relu_0.output, as passed to build; got acti",
    ),
    "text as data": (
        lambda p, a, m: p.input("text", dml.TensorDesc(F32, [4])),
        "Binding: data must be real numbers; got an array of <U4",
    ),
    "complex data": (
        lambda p, a, m: p.input(np.zeros(4, complex), dml.TensorDesc(F32, [4])),
        "Binding: data must be real numbers; got an array of complex128",
    ),
    "ragged data": (
        lambda p, a, m: p.input([[1, 2], [3]], dml.TensorDesc(F32, [4])),
        "Binding: data must be convertible to a NumPy array; got setting an array element",
    ),
    "a result that data is bound to": (
        lambda p, a, m: dml.Binding(a, np.zeros(4)),
        "Binding: expr must be an input made by input_tensor; compute returns the results of operators; got activ",
    ),
    "another view of a result that data is bound to": (
        lambda p, a, m: dml.Binding(dml.reinterpret(a, F32, [4], None), np.zeros(4)),
        "Binding: expr must be an input made by input_tensor; compute returns the results of operators; got activ",
    ),
    "a binding of another builder": (
        lambda p, a, m: p.device.compute(m, [other_binding()], [a]),
        r"compute: inputs\[0\] must be a Binding of input 0 of the builder that built the model; got one of another",
    ),
    "more padding than there is to reflect": (
        lambda p, a, m: dml.padding(a, dml.PaddingMode.REFLECTION, 0, [0, 0, 2, 0], [0, 0, 0, 3]),
        r"padding: end_padding\[3\] must be at most 2, the input's size, for REFLECTION; pad in several steps, "
        "or use EDGE; got 3",
    ),
    "a padding that is no integer": (
        lambda p, a, m: dml.padding(a, dml.PaddingMode.REFLECTION, 0, [0, 0, 0, "1"], [0] * 4),
        r"padding: start_padding\[3\] must be an integer; got '1'",
    ),
    "a stride": (
        lambda p, a, m: dml.convolution(a, a, strides=2),
        "convolution: strides must be a list of numbers; got 2",
    ),
    "a window size": (
        lambda p, a, m: dml.max_pooling(a, 2),
        "max_pooling: window_sizes must be a list of numbers; got 2",
    ),
    "a window size to average": (
        lambda p, a, m: dml.average_pooling(a, [1, 1], 2, [0, 0], [0, 0], 0),
        "average_pooling: window_sizes must be a list of numbers; got 2",
    ),
    "a size": (
        lambda p, a, m: dml.reinterpret(a, F32, 4, None),
        "reinterpret: new_size must be a list of numbers; got 4",
    ),
    "an amount of padding": (
        lambda p, a, m: dml.padding(a, dml.PaddingMode.EDGE, 0, 1, 1),
        "padding: start_padding must be a list of numbers; got 1",
    ),
    "an offset": (
        lambda p, a, m: dml.slice(a, 0, [1] * 4, [1] * 4),
        "slice: input_window_offsets must be a list of numbers; got 0",
    ),
    "an axis that is no integer": (lambda p, a, m: dml.join([a, a], 1.0), "JOIN: Axis must be an integer; got 1.0"),
    "nothing for an expression": (
        lambda p, a, m: dml.activation_relu(None),
        "RELU: input must be an expression; got None",
    ),
    "a number among expressions": (
        lambda p, a, m: dml.join([a, 3], 1),
        r"JOIN: inputs\[1\] must be an expression; got 3",
    ),
    "an activation that is not fused": (
        lambda p, a, m: dml.add(a, a, dml.OperatorType.ACTIVATION_RELU),
        "fused_activation must be a FusedActivation; got dml.OperatorType.ACTIVATION_RELU",
    ),
    "no activation": (
        lambda p, a, m: dml.add(a, a, None),
        "fused_activation must be a FusedActivation; got None",
    ),
    "outputs of pooling": (
        lambda p, a, m: dml.activation_relu(dml.max_pooling(a, [2, 2])),
        "ACTIVATION_RELU: input must be an expression; got <dmljax.pydirectml.functions.MaxPoolingOutputs",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_raises_clear_errors(name: str) -> None:
    program = Program()
    output = dml.activation_relu(program.input(floats(1, 1, 2, 2)))
    model = program.builder.build(dml.ExecutionFlags.NONE, [output])
    use, message = WRONG[name]
    with pytest.raises(DmlError, match=message):
        use(program, output, model)


PROGRAM = """\
import sys
import numpy as np
import pydirectml as dml
from helper import SIZES

device = dml.Device(True, True)
builder = dml.GraphBuilder(device)
x = dml.input_tensor(builder, 0, dml.TensorDesc(dml.FLOAT32, SIZES))
y = dml.activation_relu(x) + float(sys.argv[1])
model = builder.build(dml.ExecutionFlags.NONE, [y])
print(device, *np.array(device.compute(model, [dml.Binding(x, np.array([-1.0, 2.0]))], [y])[0]).tolist())
"""


@GATE
def test_a_windows_program_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("SIZES = [2]\n")
    command = [sys.executable, "-m", "dmljax.pydirectml"]
    finished = subprocess.run(
        [*command, str(tmp_path / "program.py"), "0.5"], capture_output=True, text=True, check=True
    )
    assert finished.stdout == f"dml.Device on {jax.devices()[0].platform.upper()} 0.5 2.5\n"


def test_help_is_about_this_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["pydirectml", "--help"])
    with pytest.raises(SystemExit):
        dmljax.pydirectml.__main__.main()
    assert capsys.readouterr().out.startswith("usage: python -m dmljax.pydirectml [options] PROGRAM.py [arguments]\n")
