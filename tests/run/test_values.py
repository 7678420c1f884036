"""Values of ONNX Runtime's programs at addresses of memory, on the CPU and on JAX's device."""

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from test_run import NEG, session_of

import dmljax.run.onnxruntime as ort

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def dml_value(array: Any) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(array, "dml", 0)


def test_addresses_of_dml_values_bind_them() -> None:
    session = session_of(ort, NEG)
    source, target = dml_value(X), ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "dml")
    binding = session.io_binding()
    binding.bind_input("x", "dml", 0, np.float32, source.shape(), source.data_ptr())
    binding.bind_output("y", "dml", 0, np.float32, target.shape(), target.data_ptr())
    address = target.data_ptr()
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), -X)
    assert isinstance(target._value, jax.Array)  # it has not left the device
    source.update_inplace(X + 1)
    session.run_with_iobinding(binding)  # reads the value anew, and writes to the same one
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -X - 1)
    assert binding.get_outputs()[0] is target
    assert (target.data_ptr(), target.device_name()) == (address, "dml")


def test_a_dml_value_has_a_copy_and_a_cpu_value_the_memory() -> None:
    array = X.copy()
    copy, shared = dml_value(array), ort.OrtValue.ortvalue_from_numpy(array)
    array[:] = 7
    np.testing.assert_array_equal(copy.numpy(), X)
    np.testing.assert_array_equal(shared.numpy(), array)
    assert shared.data_ptr() == array.ctypes.data
    transposed = ort.OrtValue.ortvalue_from_numpy(array.T)
    assert transposed.data_ptr() != array.ctypes.data  # the elements at an address are contiguous
    wide = dml_value(np.array([2**40]))
    assert (wide.data_type(), wide.numpy().tolist()) == ("tensor(int64)", [2**40])


def test_dml_values_share_memory_through_dlpack() -> None:
    value = dml_value(X)
    assert value.__dlpack_device__() == (1, 0)  # JAX's device is the CPU here
    np.testing.assert_array_equal(np.from_dlpack(value), X)
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(value), X)


def test_values_may_have_types_that_numpy_does_not_know() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)  # 1 and 2 in bfloat16
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    assert (value.data_type(), value.element_type(), value.shape()) == ("tensor(bfloat16)", 16, [2])
    assert value.data_ptr() == bits.ctypes.data
    (result,) = session_of(ort, "g (bfloat16[N] x) => (bfloat16[N] y) { y = Neg(x) }").run_with_ort_values(
        None, {"x": value}
    )
    np.testing.assert_array_equal(result.numpy(), np.array([-1, -2], ml_dtypes.bfloat16))


def bind(bind_input: Callable[[Any], Any] | None = None, bind_output: Callable[[Any], Any] | None = None) -> Any:
    """Runs with a binding."""

    def run(library: Any) -> None:
        session = session_of(library, NEG)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
        for change in (bind_input, bind_output):
            if change is not None:
                change(binding)
        session.run_with_iobinding(binding)

    return run


def sequence(library: Any) -> Any:
    """A value that is a sequence."""
    session = session_of(library, "g (float[N, 3] x) => (seq(float[N, 3]) y) { y = SequenceConstruct(x) }")
    return session.run_with_ort_values(None, {"x": library.OrtValue.ortvalue_from_numpy(X)})[0]


MEMORY = np.empty((2, 3), np.float32)
WRONG: dict[str, tuple[type[Exception], Callable[[Any], Any]]] = {
    "type of input": (
        RuntimeError,
        bind(lambda each: each.bind_input("x", "cpu", 0, np.float64, [1, 3], X.ctypes.data)),
    ),
    "negative size": (
        RuntimeError,
        bind(lambda each: each.bind_input("x", "cpu", 0, np.float32, [-1, 3], X.ctypes.data)),
    ),
    "no type": (
        ValueError,
        bind(None, lambda each: each.bind_output("y", "cpu", 0, None, [2, 3], MEMORY.ctypes.data)),
    ),
    "no shape": (
        ValueError,
        bind(None, lambda each: each.bind_output("y", "cpu", 0, np.float32, None, MEMORY.ctypes.data)),
    ),
    "type of output": (
        RuntimeError,
        bind(None, lambda each: each.bind_output("y", "cpu", 0, np.int32, [2, 3], MEMORY.ctypes.data)),
    ),
    "shape of output": (
        RuntimeError,
        bind(None, lambda each: each.bind_output("y", "cpu", 0, np.float32, [3, 2], MEMORY.ctypes.data)),
    ),
    "address of a sequence": (RuntimeError, lambda library: sequence(library).data_ptr()),
    "array of a sequence": (RuntimeError, lambda library: sequence(library).numpy()),
    "shape of a sequence": (RuntimeError, lambda library: sequence(library).shape()),
    "text": (RuntimeError, lambda library: library.OrtValue.ortvalue_from_shape_and_type([2], np.object_)),
    "unknown type": (RuntimeError, lambda library: library.OrtValue.ortvalue_from_shape_and_type([2], "x")),
    "bytes of elements": (
        RuntimeError,
        lambda library: library.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2, np.uint8), 16),
    ),
    "list": (TypeError, lambda library: library.OrtValue.ortvalue_from_numpy_with_onnx_type([1], 16)),
}


@pytest.mark.parametrize(("kind", "call"), WRONG.values(), ids=WRONG)
def test_wrong_values_raise_the_kinds_of_onnx_runtime(kind: type[Exception], call: Callable[[Any], Any]) -> None:
    import onnxruntime

    for library in (ort, onnxruntime):
        with pytest.raises(kind):
            call(library)


def test_handles_are_refused_for_other_values() -> None:
    binding = session_of(ort, NEG).io_binding()
    value = dml_value(X)
    with pytest.raises(RuntimeError, match=r"buffer_ptr must be the data_ptr\(\) of a dml value that is still in use"):
        binding.bind_input("x", "dml", 0, np.float32, [2, 3], X.ctypes.data)
    with pytest.raises(RuntimeError, match=r"shape must be tensor\(float\) of shape \(2, 3\), as the value at this"):
        binding.bind_input("x", "dml", 0, np.float32, [1, 3], value.data_ptr())
