"""Misspelled names and arguments lead to the right ones, and enumerations and providers answer as ONNX Runtime's do."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from dmljax.run import onnxruntime as ort, onnxruntime_genai as og

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Neg(x) }'
).SerializeToString()
CPU = "CPUExecutionProvider"
ENUMERATIONS = (
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "OrtAllocatorType",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfoDeviceType",
)
HINTS: dict[str, tuple[Any, str]] = {
    "InferenceSesion": (ort, "InferenceSession"),
    "get_avaliable_providers": (ort, "get_available_providers"),
    "InvalidArguments": (ort.capi.onnxruntime_pybind11_state, "InvalidArgument"),
    "runn": (ort.InferenceSession, "run"),
    "get_input": (ort.InferenceSession, "get_inputs"),
    "inputs": (ort.InferenceSession, "get_inputs"),
    "run_with_io_binding": (ort.InferenceSession, "run_with_iobinding"),
    "bind_inputs": (ort.IOBinding, "bind_input"),
    "graph_optimisation_level": (ort.SessionOptions(), "graph_optimization_level"),
    "ORT_ENABEL_ALL": (ort.GraphOptimizationLevel, "ORT_ENABLE_ALL"),
    "Tokeniser": (og, "Tokenizer"),
    "generate_next_tokens": (og.Generator, "generate_next_token"),
}


@pytest.mark.parametrize("name", HINTS)
def test_a_misspelled_name_leads_to_the_right_one(name: str) -> None:
    place, right = HINTS[name]
    with pytest.raises(AttributeError, match=rf"\.{name}: dmljax's version of .* have it, did you mean {right}\?$"):
        getattr(place, name)


def test_imports_and_assignments_have_hints() -> None:
    with pytest.raises(ImportError, match=r"did you mean InferenceSession\?"):
        exec("from dmljax.run.onnxruntime import InferenceSesion")
    for options in (ort.SessionOptions(), onnxruntime.SessionOptions()):
        with pytest.raises(AttributeError):
            options.graph_optimisation_level = 1
    with pytest.raises(AttributeError, match=r"have it$"):
        _ = ort.nothing_like_this


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_enumerations_print_as_onnx_runtime_does(name: str) -> None:
    ours, theirs = ([*getattr(library, name).__members__.values()] for library in (ort, onnxruntime))
    for form in (repr, str, format, int, "{0.name} {0.value}".format):
        assert [form(member) for member in ours] == [form(member) for member in theirs]


def test_arguments_that_onnx_runtime_ignores_have_hints() -> None:
    with pytest.warns(UserWarning, match=r"ignores the argument provider, did you mean providers\?") as found:
        ort.InferenceSession(MODEL, provider=["CPUExecutionProvider"])
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match=r"ignores the option 'device_idd', did you mean device_id\?"):
        ort.InferenceSession(MODEL, providers=[("DmlExecutionProvider", {"device_idd": 0})])
    options = ort.SessionOptions()
    options.add_provider("DmlExecutionProvider", {})
    with pytest.warns(UserWarning, match="uses the providers passed to it, not those"):
        assert ort.InferenceSession(MODEL, options, providers=[CPU]).get_providers() == [CPU]
    with warnings.catch_warnings(action="error"):
        ort.InferenceSession(MODEL, disabled_optimizers=["ConstantFolding"], something=5)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DirectMLExecutionProvider", "DmlExecutionProvider"),
        ("DML", "DmlExecutionProvider"),
        ("CPUExecutionProvidr", CPU),
        ("CUDAExecutionProvider", None),
        ("cuda", None),
        ("gpu", None),
    ],
)
def test_names_like_those_of_available_providers_have_hints(name: str, meant: str | None) -> None:
    with pytest.warns(UserWarning, match=f"Specified provider '{name}' is not in") as found:
        ort.InferenceSession(MODEL, providers=[name])
    assert [str(each.message).partition("CPUExecutionProvider'")[2] for each in found] == [
        f", did you mean {meant}?" if meant else ""
    ]


def test_providers_of_other_languages_lead_to_those_of_python() -> None:
    with pytest.raises(
        AttributeError, match=r'write add_provider\("DmlExecutionProvider", {}\), or InferenceSession\('
    ):
        ort.SessionOptions().append_execution_provider("DML")
    with pytest.raises(RuntimeError, match="Unknown Provider Type: DirectML, did you mean DmlExecutionProvider"):
        ort.SessionOptions().add_provider("DirectML", {})


def outcome(library: Any, call: Callable[[Any], Any]) -> Any:
    """What a call returns, or the kind of its error, and its warnings up to a list of providers."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            result = call(library)
        except Exception as error:
            kinds = (TypeError, RuntimeError, library.capi.onnxruntime_pybind11_state.InvalidArgument)
            result = [kind.__name__ for kind in kinds if isinstance(error, kind)]
    return result, [str(each.message).partition("Available")[0] for each in found]


CALLS: dict[str, Callable[[Any], Any]] = {
    "an unknown provider": lambda library: library.InferenceSession(MODEL, providers=["FooProvider"]).get_providers(),
    "an unknown provider without others": lambda library: library.InferenceSession(
        MODEL, providers=["FooProvider"], enable_fallback=0
    ),
    "another provider": lambda library: library.InferenceSession(
        MODEL, providers=["CUDAExecutionProvider", CPU]
    ).get_providers(),
    "a provider twice": lambda library: library.InferenceSession(MODEL, providers=[CPU, CPU]).get_providers(),
    "options of the CPU": lambda library: library.InferenceSession(
        MODEL, providers=[(CPU, {"device_idd": 0})]
    ).get_provider_options(),
    "an unknown provider later": lambda library: library.InferenceSession(MODEL, providers=[CPU]).set_providers(
        ["FooProvider"]
    ),
    "another provider later": lambda library: library.InferenceSession(MODEL, providers=[CPU]).set_providers(
        ["CUDAExecutionProvider"]
    ),
    "an unknown provider in options": lambda library: library.SessionOptions().add_provider("FooProvider", {}),
    "another provider in options": lambda library: library.SessionOptions().add_provider("CUDAExecutionProvider", {}),
    "a number in options": lambda library: library.SessionOptions().add_provider(CPU, {"a": 5}),
    "a number of optimizers": lambda library: library.InferenceSession(MODEL, disabled_optimizers=5),
    "numbers of optimizers": lambda library: library.InferenceSession(MODEL, disabled_optimizers=[5]),
    "names of optimizers": lambda library: library.InferenceSession(
        MODEL, providers=[CPU], disabled_optimizers={"ConstantFolding"}
    ).run(None, {"x": np.ones(1, np.float32)})[0][0],
    "all providers": lambda library: library.get_all_providers(),
}


@pytest.mark.parametrize("name", CALLS)
def test_providers_answer_as_those_of_onnx_runtime(name: str) -> None:
    assert outcome(ort, CALLS[name]) == outcome(onnxruntime, CALLS[name])
