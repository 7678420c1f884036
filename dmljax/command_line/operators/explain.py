"""The command `dmljax explain`: explains an operator."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from dmljax.command_line.options import Subparsers, add_command

SUMMARY = "Explains an operator: its function, members, rules, data types and an example."

EXAMPLES = """examples:
  dmljax explain one_hot
  dmljax explain causal mask                         # what an operator does, or what another library calls it
  dmljax explain DML_OPERATOR_GATHER_ND1 --json
  dmljax explain TensorDesc                          # a class or function of dmljax.directml
  dmljax explain pydirectml                          # a module of dmljax
  dmljax explain CheckFeatureSupport                 # what takes the place of a name in DirectML.h
  dmljax explain network.stablehlo                   # what `dmljax compile` wrote: its platforms and types"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "explain", SUMMARY, EXAMPLES)
    parser.add_argument(
        "words", nargs="+", help="name of an operator, such as one_hot or DML_OPERATOR_ONE_HOT, or what it does"
    )


def run(options: argparse.Namespace) -> int:
    """Explains an operator with its rules and an example, or lists those that match; or a class, or an artifact."""
    from dmljax.command_line.describe import (
        definition,
        definition_text,
        explanation,
        explanation_text,
        find_definition,
        find_operators,
        find_replacement,
        function_name,
        operator_list,
        operators_json,
    )
    from dmljax.command_line.models import find_device
    from dmljax.descriptors.search import call_for
    from dmljax.errors import InvalidDesc
    from dmljax.foundation.files import is_exported_file

    words = " ".join(options.words)
    if is_exported_file(Path(words)):
        from dmljax.command_line.artifacts import artifact_lines, describe_artifact

        print(json.dumps(describe_artifact(words), indent=1) if options.json else "\n".join(artifact_lines(words)))
        return 0
    name = find_definition(words)
    if name is not None:
        width = min(shutil.get_terminal_size().columns, 120)
        print(json.dumps(definition(name), indent=1) if options.json else definition_text(name, width))
        return 0
    try:
        operator, *others = operators = find_operators(words)
    except InvalidDesc:
        replacement = find_replacement(words)
        if replacement is None:
            raise
        print(json.dumps({"name": words, "instead": replacement}) if options.json else f"{words}: {replacement}")
        return 0
    if others:
        width = shutil.get_terminal_size().columns
        print(
            json.dumps(operators_json(operators), indent=1)
            if options.json
            else "\n".join(operator_list(operators, width))
        )
        if not options.json:
            print(f"tip: `dmljax explain {function_name(operator)}` shows one in full", file=sys.stderr)
        return 0
    find_device(None)  # raises early if JAX has no platform to compute the example on
    width = min(shutil.get_terminal_size().columns, 120)
    print(json.dumps(explanation(operator), indent=1) if options.json else explanation_text(operator, width))
    call = call_for(words)
    if call is not None and not options.json:
        print(f"tip: {words} is {call}", file=sys.stderr)
    return 0
