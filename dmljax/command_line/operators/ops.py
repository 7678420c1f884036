"""The command `dmljax ops`: lists operators."""

import argparse
import json

from dmljax.command_line.options import FLAG, Subparsers, add_command, add_options
from dmljax.command_line.terminal import terminal_width

SUMMARY = "Lists the operators."

EXAMPLES = """examples:
  dmljax ops
  dmljax ops softmax                     # operators with softmax in their names
  dmljax ops --markdown > operators.md
  dmljax ops --json | jq -r '.[].operator'"""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "ops", SUMMARY, EXAMPLES)
    parser.add_argument("words", nargs="*", help="words in the names of the operators to list, or what they do")
    add_options(parser, ("--markdown", "print a Markdown table", FLAG))


def run(options: argparse.Namespace) -> int:
    """Lists all operators, or those that match the words."""
    from dmljax.command_line.describe import OPERATORS_HEAD, coverage, markdown_table, operator_rows, summaries, table
    from dmljax.command_line.models import warn_without_effect

    words = " ".join(options.words)
    if options.json:
        warn_without_effect(options, ["markdown"], "beside --json")
    if options.json:
        print(json.dumps(summaries(words), indent=1))
        return 0
    if options.markdown:
        lines = markdown_table(operator_rows(words), OPERATORS_HEAD)
    else:
        lines = table(operator_rows(words, terminal_width()), OPERATORS_HEAD)
    print("\n".join(lines))
    if not words:
        print(f"\n{coverage()}")
    return 0
