"""Checks models, and folders of language and diffusion models, without running them."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dmljax.command_line.onnx.open_caches import open_caches, sizes_of_inputs
from dmljax.command_line.onnx.provider import left_to_cpu
from dmljax.errors import DmlError, Problem
from dmljax.foundation.checks import find_nonfinite
from dmljax.onnx.diffusion.model import PARTS, file_of, read_diffusion_settings, require_names, vocabulary_of
from dmljax.onnx.diffusion.schedulers import scheduler_of
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType
from dmljax.onnx.graph.reader import Reader, read_model
from dmljax.onnx.language.parts import (
    DECODER,
    load_part,
    problems_between,
    problems_of_adapted,
    problems_of_names,
    revise,
)
from dmljax.onnx.language.settings import Settings, read_configuration, settings_of
from dmljax.onnx.language.tokens import prompt_tokens_in, require_prompt_tokens_below, require_tokens_below, tokens_in
from dmljax.onnx.model import Model, load, loaded_graph
from dmljax.onnx.running.rehearsal import find_refusals
from dmljax.text import show
from dmljax.types import bits_of


class Check(NamedTuple):
    """The problems with a model, and the nodes that ONNX Runtime's DirectML provider leaves to the CPU."""

    problems: Sequence[str]
    left: Sequence[str] = ()  # a sentence per operator and reason
    nodes_left: int | None = None  # None if the nodes cannot be read


class FolderCheck(NamedTuple):
    """The problems with a folder and, if its settings can be read, the checks and sizes of its models."""

    problems: Sequence[str]
    settings: Settings | None = None
    models: Mapping[Path, Check] = {}
    weight_bytes: Mapping[str, int] = {}  # by kind
    cache_bytes: int = 0  # of 1,000 tokens of a sequence

    @property
    def whole(self) -> Check:
        """The checks of all models together, with the folder's problems."""
        checks = self.models.values()
        problems, left = ([text for check in checks for text in getattr(check, name)] for name in ("problems", "left"))
        counts = [check.nodes_left for check in checks]
        is_counted = bool(counts) and None not in counts
        return Check([*self.problems, *problems], left, sum(filter(None, counts)) if is_counted else None)

    def to_json(self) -> dict[str, Any]:
        """The settings and figures, ready for JSON."""
        if self.settings is None:
            return {"model": None}
        hidden = ("file", "names", "search", "others")
        figures = {name: value for name, value in self.settings._asdict().items() if name not in hidden}
        figures["files"] = {part: file.name for part, file in self.settings.files.items()}
        sizes = {"weight_bytes": {**self.weight_bytes}, "cache_bytes_of_1000_tokens": self.cache_bytes}
        return {"model": {**figures, **sizes}, "search": self.settings.search._asdict()}


class _ModelCheck(NamedTuple):
    """The check of a model, the model if it loads, and its graph if the file can be read."""

    check: Check
    model: Model | None
    graph: OnnxGraph | None = None


def check_model(path: str | Path) -> Check:
    """Loads a model, and finds the nodes that refuse to run and those that the provider leaves to the CPU.

    Raises if the file holds no ONNX model.
    """
    return _check_file(path, lambda: load(path)).check


def check_folder(folder: Path) -> FolderCheck:
    """Checks a folder in the format of ONNX Runtime GenAI: its configuration, its models and its tokenizer."""
    content = read_configuration(folder)
    try:
        settings = settings_of(folder, content)
    except DmlError as error:
        return FolderCheck(error.rules)
    by_part = {part: _check_part(file, partial(load_part, settings, part)) for part, file in settings.files.items()}
    checks = {settings.files[part]: model_check.check for part, model_check in by_part.items()}
    problems = [*map(str, _problems_of_tokenizer(folder, settings))]
    decoder = by_part[DECODER]
    if decoder.graph is None:
        return FolderCheck(problems, settings, checks)
    inputs, outputs = _signature(settings, decoder)
    loaded = {part: model_check.model for part, model_check in by_part.items() if model_check.model is not None}
    between = [*problems_of_names(settings, inputs, outputs)] or [*problems_between(settings, loaded)]
    if DECODER in loaded and not between:
        between += problems_of_adapted(settings, loaded[DECODER])
    caches = settings.caches(inputs).keys() - settings.states(inputs)
    types = [inputs[name].dtype for name in [*(caches & inputs.keys()), *settings.stacked(inputs)]]
    bits = sum(bits_of(dtype) * settings.key_heads * settings.head_size for dtype in types if dtype is not None)
    weights = Counter[str]()
    for model_check in by_part.values():
        weights.update(_weights_by_kind(model_check.graph) if model_check.graph else {})
    return FolderCheck(
        [*map(str, between), *problems], settings, checks, dict(sorted(weights.items())), 1000 * bits // 8
    )


def check_diffusion(folder: Path) -> FolderCheck:
    """Checks a folder with an export of Stable Diffusion: its configurations, its parts and its tokenizer."""
    try:
        settings = read_diffusion_settings(folder)
    except DmlError as error:
        return FolderCheck(error.rules)
    checks: list[Callable[[], object]] = [lambda: scheduler_of(settings.scheduler)]
    parts: dict[Path, Check] = {}
    vocabulary = None
    for part in PARTS:
        path = folder / file_of(part)
        parts[path], _, graph = _check_part(path, partial(load, path))
        if graph is not None:
            inputs = [name for name in graph.input_names if name not in graph.constants]
            checks.append(partial(require_names, part, inputs, graph.output_names))
            vocabulary = vocabulary_of(graph.nodes, graph.constants) if part == "text_encoder" else vocabulary
    checks.append(lambda: require_prompt_tokens_below(vocabulary, max(prompt_tokens_in(folder), default=0)))
    problems: list[str] = []
    for check in checks:
        try:
            check()
        except DmlError as error:
            problems += error.rules
    return FolderCheck(problems, models=parts)


def _signature(settings: Settings, decoder: _ModelCheck) -> tuple[dict[str, TensorType], dict[str, TensorType]]:
    """The types of a decoder's inputs, with open sizes that its attention decides, and of its outputs."""
    graph: Any = decoder.graph
    with contextlib.suppress(DmlError):  # the model's own check reports it
        graph = revise(settings, DECODER, graph).graph
    decided = {} if decoder.model is None else open_caches(decoder.model).decided
    inputs = {tensor.name: tensor.overridden(decided, {}) for tensor in graph.inputs}
    return inputs, {tensor.name: tensor for tensor in graph.outputs}


def _check_part(path: Path, loading: Callable[[], Model]) -> _ModelCheck:
    """Checks a model of a folder, in which a file without a model is a finding."""
    try:
        return _check_file(path, loading)
    except DmlError as error:
        return _ModelCheck(Check(error.rules), None)


def _check_file(path: str | Path, loading: Callable[[], Model]) -> _ModelCheck:
    """Checks a model that `loading` loads from the file; raises if the file holds none."""
    problems: Sequence[str] = ()
    model = None
    try:
        model = loading()
        caches = open_caches(model)
        refusals = find_refusals(loaded_graph(model), lambda size: sizes_of_inputs(model, caches, size))
        problems = [*map(str, (*refusals, *find_nonfinite(model.weights)))]
    except DmlError as error:
        problems = error.rules
    proto, folder = read_model(path)
    try:
        graph = Reader(proto, folder).read(proto.graph)
    except DmlError:
        return _ModelCheck(Check(problems), model)
    left = [*left_to_cpu(graph)]
    alike: dict[tuple[str, str], list[Node]] = {}
    for node, reason in left:
        alike.setdefault((node.operator, reason), []).append(node)
    sentences = [f"{_name_nodes(nodes)} left to the CPU: {reason}" for (_, reason), nodes in alike.items()]
    return _ModelCheck(Check(problems, sentences, len({id(node) for node, _ in left})), model, graph)


def _name_nodes(nodes: Sequence[Node]) -> str:
    first = f"{nodes[0].operator} {show(nodes[0].place[1])}"
    return f"{first} is" if len(nodes) == 1 else f"{first} and {len(nodes) - 1} more are"


def _problems_of_tokenizer(folder: Path, settings: Settings) -> Sequence[Problem]:
    if not (folder / "tokenizer.json").exists():
        return [Problem("tokenizer.json", "must be in the folder for texts; lists of tokens need none")]
    try:
        require_tokens_below(settings.vocabulary, max(tokens_in(folder), default=0))
    except DmlError as error:
        return error.problems
    return ()


# The inputs with codes of few bits, and with their scales and zero points
_CODES = {
    "DequantizeLinear": (0, (1, 2)),
    "GatherBlockQuantized": (0, (2, 3)),
    "MatMulBnb4": (1, (2,)),
    "MatMulNBits": (1, (2, 3)),
}


def _weights_by_kind(graph: OnnxGraph) -> dict[str, int]:
    """The bytes of a graph's constants: codes by their bits, their scales and zero points, and others."""
    kinds: dict[str, str] = {}
    for node in graph.nodes:
        codes, factors = _CODES.get(node.operator, (-1, ()))
        for place, name in enumerate(node.inputs):
            if name in graph.constants and place == codes:
                weight_bits = bits_of(graph.constants[name].dtype)
                kinds[name] = f"{weight_bits if node.domain == MAIN else node.attributes.get('bits', 4)}-bit codes"
            elif place in factors:
                kinds[name] = "scales and zero points"
    bytes_of = Counter[str]()
    for name, value in graph.constants.items():
        if value.dtype != object:
            bytes_of[kinds.get(name, "other weights")] += -(-value.size * bits_of(value.dtype) // 8)
    return {group: bytes_of[group] for group in sorted(bytes_of)}  # codes, others, scales
