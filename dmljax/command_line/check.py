"""The command `dmljax check`: lists what is wrong in models, weights and folders."""

import argparse
import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dmljax.command_line.options import Subparsers, add_command, add_model_options, add_options
from dmljax.command_line.terminal import FINDINGS, GREEN, RED, color_text, count_text, report_error
from dmljax.text import escape_controls, join_words

SUMMARY = "Lists every error in models, and everything in ONNX models that dmljax does not support."

EXAMPLES = """examples:
  dmljax check model.json                            # check the rules of the newest feature level
  dmljax check model.json --dml_feature_level 3_0    # check the rules of an older feature level
  dmljax check models/*.json                         # check several models
  generate_model | dmljax check -                    # check what another program writes
  dmljax check model.onnx                            # missing operators, and nodes that refuse or need a CPU
  dmljax check phi-3-mini-directml                   # a folder of a language model
  dmljax check net.stablehlo                         # what `dmljax compile` wrote: its platforms and types
  dmljax check net.stablehlo --weights FILE.npz      # compare weights with an artifact's

The exit status is 0 without findings, 1 with findings, and 2 if a file cannot be read as what its name says."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "check", SUMMARY, EXAMPLES)
    add_model_options(parser, may_be_artifact=True, may_be_folder=True)
    add_options(
        parser,
        (
            "--weights",
            "the weights of an artifact that `dmljax compile` wrote for several chips",
            {"metavar": "FILE.npz"},
        ),
    )


def run(options: argparse.Namespace) -> int:
    """Lists every error in DxDispatch models, and everything in ONNX models that dmljax does not support."""
    from dmljax.errors import DmlError

    statuses = []
    for path in options.models:
        try:
            if options.weights:
                statuses.append(_check_weights(path, options))
                continue
            statuses.append(_check(path, options))
        except DmlError as error:  # the other models are checked all the same
            if options.debug:
                traceback.print_exc()
            statuses.append(report_error(error, as_json=options.json))
    return max(statuses)


def _check(path: str, options: argparse.Namespace) -> int:
    """Checks a folder or a file of whichever kind."""
    from dmljax.command_line.models import OF_DXDISPATCH_MODELS, OF_SIZES, is_onnx, warn_without_effect
    from dmljax.foundation.files import is_exported_file

    if Path(path).is_dir():
        return _check_folder(path, options)
    ignored = (*OF_DXDISPATCH_MODELS, *OF_SIZES)
    if is_exported_file(Path(path)):
        warn_without_effect(options, ignored, "on artifacts")
        return _check_artifact(path, options)
    if is_onnx(path):
        warn_without_effect(options, ignored, "on checks of ONNX models")
        return _check_onnx(path, options)
    return _check_model(path, options)


def _check_artifact(path: str, options: argparse.Namespace) -> int:
    """Describes an artifact, which has no findings if it can be read."""
    from dmljax.command_line.artifacts import artifact_lines, describe_artifact

    if options.json:
        print(json.dumps({"findings": [], **describe_artifact(path)}))
    else:
        print(*artifact_lines(path), f"{escape_controls(path)}: {color_text('no findings', GREEN)}", sep="\n")
    return 0


def _check_weights(path: str, options: argparse.Namespace) -> int:
    """Compares a file of weights with the artifact that takes them as an argument."""
    from dmljax.estimation import artifacts

    problems = [*map(str, artifacts.find_weight_problems(path, options.weights))]
    if options.json:
        print(json.dumps({"findings": problems}))
    else:
        _print_lines(options.weights, problems)
        count = color_text(count_text(len(problems), "finding"), RED if problems else GREEN)
        print(f"{escape_controls(options.weights)}: {count} as the weights of {escape_controls(path)}")
    return FINDINGS if problems else 0


def _check_onnx(path: str, options: argparse.Namespace) -> int:
    from dmljax.command_line.onnx.checking import check_model

    result = check_model(path)
    if options.json:
        print(json.dumps(_check_json(result)))
    else:
        _print_lines(path, [*result.problems, *result.left])
        _print_counts(path, result)
    return FINDINGS if result.problems else 0


def _check_folder(path: str, options: argparse.Namespace) -> int:
    from dmljax.command_line.models import is_of_diffusion, refuse_model_options
    from dmljax.command_line.onnx.checking import check_diffusion, check_folder

    refuse_model_options(path, options)
    folder_check = (check_diffusion if is_of_diffusion(Path(path)) else check_folder)(Path(path))
    settings, whole = folder_check.settings, folder_check.whole
    if options.json:
        print(json.dumps({**_check_json(whole), **folder_check.to_json()}))
    else:
        if settings is not None:
            _print_lines(path, _describe_folder(settings, folder_check.weight_bytes, folder_check.cache_bytes))
        for file, check in folder_check.models.items():
            _print_lines(file, [*check.problems, *check.left])
        _print_lines(path, folder_check.problems)
        _print_counts(path, whole)
    return FINDINGS if whole.problems else 0


def _describe_folder(settings: Any, weight_bytes: Mapping[str, int], cache_bytes: int) -> Iterator[str]:
    """Describes a language model, with a sentence per line."""
    from dmljax.estimation.report import format_amount
    from dmljax.onnx.language.sampling import OF_BEAMS

    heads = f"{settings.heads} heads, " if settings.heads else ""
    caches = f"{heads}{settings.key_heads} key heads of {settings.head_size}"
    layers = f"{settings.layers} layers, {caches}, " if settings.layers else ""
    yield f"{settings.kind or 'a model'} of {layers}{settings.vocabulary} tokens"
    ends = f"ends at {join_words(settings.end_tokens, 'or')}" if settings.end_tokens else "has no end token"
    yield f"context of {settings.context_length} tokens; {ends}"
    options = settings.search._asdict()
    if settings.search.num_beams == 1:
        options = {name: value for name, value in options.items() if name not in OF_BEAMS}
    yield f"search: {', '.join(f'{name} {value}' for name, value in options.items())}"
    if settings.others:
        others = (f", {other.file.name} as {part}" for part, other in settings.others.items())
        yield f"models: {settings.file.name} to decode{''.join(others)}"
    if weight_bytes:
        parts = join_words(f"{format_amount(size, 'B')} of {group}" for group, size in weight_bytes.items())
        yield f"weights of {format_amount(sum(weight_bytes.values()), 'B')}: {parts}"
        length = min(settings.context_length, 1000)
        tokens = "1,000 tokens of a sequence" if length == 1000 else f"a sequence of {length} tokens, the context"
        yield f"caches of {format_amount(cache_bytes * length // 1000, 'B')} for {tokens}"


def _check_model(path: str, options: argparse.Namespace) -> int:
    from dmljax.command_line.models import load_model, warn
    from dmljax.dxdispatch.model import Finding, InvalidModel, UnreadableModel
    from dmljax.types import LATEST

    findings: Sequence[Finding] = ()
    try:
        model = load_model(path, options)
        warnings = model.warnings
    except UnreadableModel:
        raise
    except InvalidModel as error:
        findings, warnings = error.findings, error.warnings
    if options.json:
        lists = {"findings": findings, "warnings": warnings}
        print(json.dumps({key: [finding.to_json() for finding in listed] for key, listed in lists.items()}))
    else:
        warn(warnings, file=sys.stdout)
        for finding in findings:
            print(finding)
        count = color_text(count_text(len(findings), "finding"), RED if findings else GREEN)
        name = "<stdin>" if path == "-" else escape_controls(path)
        print(f"{name}: {count} at {options.dml_feature_level or LATEST}")
    return FINDINGS if findings else 0


def _check_json(result: Any) -> dict[str, Any]:
    return {"findings": [*result.problems], "left_to_cpu": [*result.left], "nodes_left_to_cpu": result.nodes_left}


def _print_lines(path: object, lines: Iterable[str]) -> None:
    for line in lines:
        print(f"{escape_controls(str(path))}: {escape_controls(line)}")


def _print_counts(path: str, check: Any) -> None:
    count = color_text(count_text(len(check.problems), "finding"), RED if check.problems else GREEN)
    if check.nodes_left is not None:
        count += f", {count_text(check.nodes_left, 'node')} that ONNX Runtime's DirectML provider leaves to the CPU"
    print(f"{escape_controls(path)}: {count}")
