"""Each public name of ONNX Runtime works, is ignored or is refused with a reason."""

import re
from typing import Any

import numpy as np
import onnxruntime
import onnxruntime_names as names
import pytest

import dmljax.run.onnxruntime as ours
from dmljax.run.answers import WORKS
from dmljax.run.onnxruntime.refusals import REFUSED

NAMES = [(place, holder, name) for place in names.PLACES for holder, name in names.names(place)]


def test_each_name_has_an_answer() -> None:
    without_reason = [each for each in NAMES if (found := names.answer(*each)).word != WORKS and not found.reason]
    assert without_reason == []
    assert {name for _, holder, name in NAMES if not holder} >= REFUSED.keys()  # nothing refuses what is not there


def test_a_name_without_an_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "new_function", lambda: None, raising=False)
    monkeypatch.setattr(onnxruntime.new_function, "__module__", "onnxruntime")
    monkeypatch.setattr(onnxruntime.IOBinding, "new_method", lambda: None, raising=False)
    found = set(names.names("onnxruntime"))
    for holder, name in (("", "new_function"), ("IOBinding", "new_method")):
        assert (holder, name) in found
        with pytest.raises(LookupError, match=f"onnxruntime: {holder} {name} has no answer"):
            names.answer("onnxruntime", holder, name)


def test_names_that_are_refused_raise_with_the_reason_when_they_are_imported() -> None:
    for line, reason in {
        "from onnxruntime import SparseTensor": "pass dense arrays",
        "from onnxruntime.capi import onnxruntime_validation": "own build",
        "from onnxruntime.capi._pybind_state import quantize_matmul_bnb4": "quantize without dmljax.run",
    }.items():
        with pytest.raises(ImportError, match=rf"does not have it \(.*{reason}"):
            exec(line.replace("onnxruntime", "dmljax.run.onnxruntime", 1))
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from dmljax.run.onnxruntime import nothing")
    assert not hasattr(ours, "SparseTensor")
    with pytest.raises(AttributeError, match=r"SessionOptions.register_custom_ops_library: .* kernels are ONNX"):
        _ = ours.SessionOptions.register_custom_ops_library


def described(library: Any) -> list[Any]:
    """What a library tells of devices and memories."""
    state = library.capi.onnxruntime_pybind11_state
    devices = [library.OrtDevice.make(name, 0) for name in ("cpu", "cuda", "dml")]
    memory = state.OrtMemoryInfo("Cpu", state.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 3, state.OrtMemType.DEFAULT)
    shared = state.OrtMemoryInfo.create_v2(
        "x",
        state.OrtMemoryInfoDeviceType.GPU,
        0x10DE,
        2,
        state.OrtDeviceMemoryType.HOST_ACCESSIBLE,
        64,
        state.OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    )
    arena = library.OrtArenaCfg({"max_mem": 5})
    arena.arena_extend_strategy = 1
    kinds = library.OrtExecutionProviderDevicePolicy
    return [
        [(each.device_type(), each.device_vendor_id(), each.device_id(), each.device_mem_type()) for each in devices],
        [
            (each.name, each.device_id, str(each.mem_type), str(each.device_mem_type), each.device_vendor_id)
            for each in (memory, shared)
        ],
        (arena.max_mem, arena.arena_extend_strategy, arena.initial_chunk_size_bytes),
        library.create_and_register_allocator(memory, arena),
        (repr(state.OrtMemType.CPU), int(kinds.PREFER_GPU), library.GraphOptimizationLevel.ORT_ENABLE_ALL == 99),
        state.OrtValue.ortvalue_from_shape_and_type([2], np.float32, state_device(state)).shape(),
    ]


def state_device(state: Any) -> Any:
    return state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)


def test_devices_and_memories_are_those_of_onnx_runtime() -> None:
    assert described(ours) == described(onnxruntime)


def test_providers_may_be_chosen_by_their_devices() -> None:
    options = ours.SessionOptions()
    devices = [device for device in ours.get_ep_devices() if device.ep_name == "DmlExecutionProvider"]
    assert devices[0].device.type == ours.OrtHardwareDeviceType.CPU  # JAX's device in these tests
    options.add_provider_for_devices(devices, {"device_id": "0"})
    options.set_provider_selection_policy(ours.OrtExecutionProviderDevicePolicy.PREFER_NPU)
    assert options.has_providers()
    with pytest.raises(RuntimeError, match="is_canceled must be False, because a load runs to its end"):
        options.set_load_cancellation_flag(True)
    wrong: Any = "dml"
    with pytest.raises(TypeError, match=r"ep_devices must be of type OrtEpDevice; got 'dml'"):
        options.add_provider_for_devices([wrong], {})
    with pytest.raises(TypeError, match="settings must be of type Mapping; got 5"):
        ours.OrtArenaCfg(5)
    with pytest.raises(RuntimeError, match=re.escape("settings must be among max_mem, arena_extend_strategy")):
        ours.OrtArenaCfg({"x": 5})


def test_elements_are_copied_between_values() -> None:
    values = [ours.OrtValue.ortvalue_from_numpy(np.full(2, i, np.float32), "dml") for i in range(4)]
    ours.copy_tensors(values[:2], values[2:])
    assert [value.numpy().tolist() for value in values[2:]] == [[0, 0], [1, 1]]
    with pytest.raises(RuntimeError, match="dst must be 2, as many as src; got 1"):
        ours.copy_tensors(values[:2], values[2:3])
