"""Profiles of sessions have complete events, which Chrome's tracing opens."""

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from test_run import NEG

import dmljax.run.onnxruntime as ours

GRAPH = f'<ir_version: 10, opset_import: ["": 21]> {NEG}'


def session(library: Any, prefix: str) -> Any:
    """A session that writes its profile to a file whose name begins with `prefix`."""
    options = library.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, prefix
    model = onnx.parser.parse_model(GRAPH).SerializeToString()
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def profile(library: Any, prefix: str) -> tuple[str, list[dict[str, Any]]]:
    """The name of the file after two runs, and its events in the order of their beginnings."""
    profiled = session(library, prefix)
    for size in (1, 2):
        profiled.run(None, {"x": np.ones((size, 3), np.float32)})
    path = profiled.end_profiling()
    assert profiled.end_profiling() == ""
    return path, sorted(json.loads(Path(path).read_text()), key=lambda event: event["ts"])


def test_a_profile_has_the_events_of_onnx_runtime_s(tmp_path: Path) -> None:
    import onnxruntime

    (our_path, our_events), (their_path, their_events) = (
        profile(library, str(tmp_path / name)) for library, name in ((ours, "ours"), (onnxruntime, "theirs"))
    )
    assert len(our_path) - len("ours") == len(their_path) - len("theirs")
    for event in our_events:
        assert event.keys() == their_events[0].keys()
        assert event["ph"] == "X"
    names = ["model_loading_array", "session_initialization", "model_run", "model_run"]
    for events in (our_events, their_events):
        assert [event["name"] for event in events if event["name"] in names] == names
    loaded, initialized, *_, last = (event for event in our_events if event["name"] in names)
    assert initialized["args"] == {"Neg": "1"}
    assert loaded["ts"] + loaded["dur"] <= initialized["ts"] + 1 <= last["ts"] + 1
    compiled = [event for event in our_events if event["name"] == "compile"]
    assert len(compiled) == 2  # a program for each size
    assert {event["cat"] for event in compiled} == {"Compiler"}


def test_a_profile_is_written_when_its_session_goes(tmp_path: Path) -> None:
    profiled = session(ours, str(tmp_path / "left"))
    assert profiled.get_profiling_start_time_ns() > 0
    del profiled
    gc.collect()
    (path,) = tmp_path.iterdir()
    assert len(json.loads(path.read_text())) == 2


def test_sessions_without_a_profile_write_nothing() -> None:
    plain = ours.InferenceSession(onnx.parser.parse_model(GRAPH).SerializeToString())
    assert (plain.end_profiling(), plain.get_profiling_start_time_ns()) == ("", 0)


def test_a_profile_in_no_folder_is_refused(tmp_path: Path) -> None:
    profiled = session(ours, str(tmp_path / "none" / "x"))
    with pytest.raises(RuntimeError, match=r"^onnxruntime: profile_file_prefix must begin the name of a file that can"):
        profiled.end_profiling()
