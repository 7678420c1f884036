"""GenAI's log: what generators do, on the console, in a file, or told to a function."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dmljax.errors import InvalidType, Problem
from dmljax.foundation.files import unreadable
from dmljax.run.answers import refusing
from dmljax.run.onnxruntime_genai.configuration import LIBRARY
from dmljax.text import did_you_mean, show

_flags = {
    **dict.fromkeys(("enabled", "generate_next_token", "append_next_tokens", "hit_eos", "hit_max_length"), False),
    **dict.fromkeys(("model_input_values", "model_output_shapes", "model_output_values", "model_logits"), False),
    "ansi_tags": True,
    "warning": True,
    "ort_lib": False,
    "value_stats": True,
}
_file: TextIO | None = None
_callback: Callable[[str], Any] | None = None


def set_log_options(**options: Any) -> None:
    """Chooses what is logged, once `enabled` is True: a line for each event that has the event's name.

    `generate_next_token` and `append_next_tokens` have the tokens, `hit_eos` and `hit_max_length` an end,
    `model_input_values` the tokens that the model reads, and `model_logits`, `model_output_values` and
    `model_output_shapes` the logits or their shape. `filename` is a file for the log, instead of the console or a
    function; an empty one closes it. `ansi_tags`, `warning`, `ort_lib` and `value_stats` have no effect.
    """
    with refusing(LIBRARY):
        for name, value in options.items():
            if name == "filename" and isinstance(value, str):
                _open(value)
            elif name in _flags and isinstance(value, bool):
                _flags[name] = value
            elif name in _flags or name == "filename":
                requirement = "a text" if name == "filename" else "True or False"
                raise InvalidType(Problem(("log", name), f"must be {requirement}", show(value)))
            else:
                rule = f"must be an option of GenAI's log{did_you_mean(name, [*_flags, 'filename'])}"
                raise InvalidType(Problem(("log", name), rule, show(value)))


def set_log_callback(callback: Callable[[str], Any] | None) -> None:
    """Tells the log to a function, instead of the console or a file; None ends that."""
    global _callback
    _callback = callback
    if callback is not None:
        _open("")


def _open(filename: str) -> None:
    global _file, _callback
    if _file is not None:
        _file.close()
        _file = None
    if filename:
        try:
            _file = Path(filename).open("w", encoding="utf-8")  # noqa: SIM115  # until another file replaces it
        except OSError as error:
            raise unreadable(Path(filename), error) from None
        _callback = None


def log(event: str, message: Callable[[], str]) -> None:
    """Logs an event, if somebody asked for it."""
    if not (_flags["enabled"] and _flags[event]):
        return
    line = f"{event}: {message()}\n"
    if _callback is not None:
        _callback(line)
    else:
        stream = _file or sys.stderr
        stream.write(line)
        stream.flush()


def log_tokens(event: str, tokens: Any) -> None:
    """Logs tokens."""
    log(event, lambda: np.array2string(np.asarray(tokens), separator=", ", threshold=1000).replace("\n", ""))


def log_logits(logits: Callable[[], Any]) -> None:
    """Logs the logits of a model, and their shape."""
    log("model_output_shapes", lambda: f"logits {logits().shape}")
    for event in ("model_output_values", "model_logits"):
        log(event, lambda: f"logits {np.array2string(logits(), precision=4)}".replace("\n", ""))
