"""Reads and validates DxDispatch models.

The reader continues after an error, so that one run reports every error in a model. Models come from strangers, so
sizes and numbers of findings are bounded, and the time is proportional to the model's size.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from dmljax.calls.binding import check_arguments
from dmljax.dxdispatch.model import DispatchModel, Finding, InvalidModel, MissingModel, UnopenedModel, UnreadableModel
from dmljax.dxdispatch.networks import Network, Overrides
from dmljax.dxdispatch.reading.commands import check_targets, read_command
from dmljax.dxdispatch.reading.context import Context, TooManyFindingsError, require_given_form, sizes_by_name
from dmljax.dxdispatch.reading.dispatchables import read_dispatchable
from dmljax.dxdispatch.reading.resources import read_resource
from dmljax.dxdispatch.reading.serialized_graphs import model_text
from dmljax.dxdispatch.text import Document, InvalidJson, Place, parse
from dmljax.errors import (
    MAX_PROBLEMS,
    DmlError,
    InvalidDesc,
    InvalidType,
    MissingFile,
    Problem,
    Unsupported,
    UnusableFile,
    require,
)
from dmljax.foundation.checks import mapping, parse_enum, path as checked_path, uints
from dmljax.foundation.files import find_foreign_content, open_file
from dmljax.text import show
from dmljax.types import LATEST, FeatureLevel

MAX_TEXT_BYTES = 2**26  # size limit of the JSON file; larger data belongs in separate files
_FORMATS = "models are .json, .onnx, .bin or artifacts of dmljax compile; `python -m dmljax.run` runs programs"


@check_arguments
def load(
    path: str | Path | BinaryIO,
    *,
    input_path: str | Path | None = None,
    feature_level: FeatureLevel | str = LATEST,
    free_dimension_name_overrides: Mapping[str, int] | None = None,
    free_dimension_denotation_overrides: Mapping[str, int] | None = None,
    binding_shapes: Mapping[str, Sequence[int]] | None = None,
) -> DispatchModel:
    """Reads a DxDispatch model from a JSON file, and checks it against DirectML's rules at a feature level.

    A serialized graph (`.bin`) becomes a model that dispatches it once and prints its outputs; its float inputs run
    from 0 to 1 in even steps, and its integer inputs are 0.

    Files that the model names are looked up in `input_path`, by default the model's folder, and then in the current
    folder. The model itself is looked up in `input_path` if `path` does not exist. `path` may also be a stream of
    bytes, whose folder is the current folder.

    The last three arguments set sizes of ONNX models and override the JSON: open dimensions by name or denotation, and
    the tensors of all dispatches by the names of inputs and outputs.

    >>> model = load("notebooks/models/top1_routing.json")
    >>> model.dispatchables["route"](np.eye(4, dtype="float32")[::-1]).tolist()[0]
    [0.0, 0.0, 0.0, 1.0]
    """
    level = parse_enum(FeatureLevel, "feature_level", feature_level)
    shapes = mapping("binding_shapes", binding_shapes, "names of tensors to their sizes")
    folder = None if input_path is None else checked_path("input_path", input_path)
    overrides = Overrides(
        _open_sizes("free_dimension_name_overrides", free_dimension_name_overrides),
        _open_sizes("free_dimension_denotation_overrides", free_dimension_denotation_overrides),
        {name: uints(("binding_shapes", name), shape) for name, shape in shapes.items()},
    )
    if isinstance(path, str | Path):
        beside = Path(path) if folder is None else folder / path
        # os.path.exists takes any text; Path.exists raises for some.
        file = Path(path) if os.path.exists(path) or not os.path.exists(beside) else beside
        document = _document(file, partial(_read_file, file))
    elif not hasattr(path, "read"):
        raise InvalidType(Problem("path", "must be a path or a stream of bytes", show(path)))
    else:
        file = Path(getattr(path, "name", "<stream>"))
        document = _document(file, partial(_read_stream, path))
    context = Context(file, document, file.parent if folder is None else folder, level, overrides)
    rest: list[Finding] = []
    try:
        _read(context)
    except TooManyFindingsError:
        last = context.findings[-1]
        problem = Problem((), f"only {MAX_PROBLEMS} findings are listed; the rest of the model was not read")
        rest.append(Finding(last.file, last.line, problem))
    if context.findings:
        raise InvalidModel([*sorted(context.findings, key=lambda finding: finding.line), *rest], context.warnings)
    return context.finish()


def _open_sizes(argument: str, sizes: Mapping[str, int] | None) -> dict[str, int]:
    return sizes_by_name(argument, dict(mapping(argument, sizes, "names of dimensions to sizes")))


def _read_file(file: Path) -> bytes:
    if file.suffix.lower() == ".bin":
        return model_text(file).encode()
    if file.suffix.lower() == ".onnx":
        raise Unsupported(Problem((), "must be JSON; to run an ONNX model, name it in a dispatchable"))
    with open_file(file, MAX_TEXT_BYTES) as stream:
        data: bytes = stream.read()
    return data


def _read_stream(stream: BinaryIO) -> bytes:
    data = stream.read(MAX_TEXT_BYTES + 1)
    require((), len(data) <= MAX_TEXT_BYTES, f"must hold at most {MAX_TEXT_BYTES} bytes", "more")
    return data


def _document(file: Path, read: Callable[[], bytes]) -> Document:
    try:
        data = read()
        if foreign := find_foreign_content(data):
            raise InvalidDesc(Problem((), foreign.rule, remedy=foreign.remedy))
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = Problem((), "the model must be UTF-8 text", error.reason, remedy=_FORMATS)
        raise UnreadableModel([Finding(str(file), data.count(b"\n", 0, error.start) + 1, problem)]) from None
    except InvalidJson as error:
        (wrong,) = error.problems
        if (error.line, error.column) == (1, 1):
            wrong = replace(wrong, remedy=_FORMATS)
        raise UnreadableModel([Finding(str(file), error.line, wrong, error.column)]) from None
    except DmlError as error:
        (cause,) = error.problems
        is_missing = isinstance(error, MissingFile)
        rule = "no such file" if is_missing else f"the model {cause.rule}"
        problem = Problem((), rule, None if is_missing else cause.given, remedy=cause.remedy)
        findings = [Finding(str(file), 0, problem)]
        if not isinstance(error, UnusableFile):
            raise UnreadableModel(findings) from None
        failure = (MissingModel if isinstance(error, MissingFile) else UnopenedModel)(findings)
        failure.errno, failure.strerror, failure.filename = error.errno, error.strerror, error.filename
        raise failure from None


# Sections

_SECTIONS: dict[str, tuple[type, Callable[[Context, Place, Any], Any]]] = {
    "resources": (dict, read_resource),
    "dispatchables": (dict, read_dispatchable),
    "commands": (list, read_command),
}


def _read(context: Context) -> None:
    document = context.model.document
    for place, line in document.repeated:
        context.add_finding(place, Problem((), "must be given only once", "a repeated name"), line)
    with context.part():
        root = context.fields((), document.root, tuple(_SECTIONS))
        for section, (form, read) in _SECTIONS.items():
            parts = getattr(context, section)
            with context.part():
                values = root.value(section, partial(require_given_form, form))
                for key, value in values.items() if form is dict else enumerate(values):
                    parts[key] = None
                    with context.part(section, key):
                        parts[key] = read(context, (section, key), value)
        check_targets(context)
        known = {
            name for network in context.dispatchables.values() if isinstance(network, Network) for name in network.names
        }
        for name in context.overrides.shapes:
            if name not in known:
                rule = f"the shape of {show(name)} is ignored, because no ONNX model has such an input or output"
                context.warn((), Problem((), rule))
