"""The command `dmljax conformance`: writes a kit that asks DirectML itself, and compares what it answers."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmljax.command_line.options import FLAG, Subparsers, add_command, add_options
from dmljax.command_line.terminal import FINDINGS, GREEN, RED, color_text, count_text
from dmljax.text import escape_controls

if TYPE_CHECKING:
    from dmljax.conformance.comparison import OperatorReport

SUMMARY = "Writes models that ask DirectML itself on Windows, and compares its results with dmljax's."

EXAMPLES = """examples:
  dmljax conformance kit                             # write the models of all operators, inputs and our results
  kit\\run.bat -DxDispatch C:\\dxdispatch.exe          # on Windows: run them on a GPU and on WARP
  dmljax conformance kit --compare                   # list by operator what differs
  dmljax conformance kit --only GATHER --only CAST   # a kit of some operators

The exit status is 0 if all results agree, 1 if a result differs or is missing, and 2 for a folder that has no kit."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "conformance", SUMMARY, EXAMPLES)
    parser.add_argument("folder", type=Path, help="a new folder, or that of a kit")
    add_options(
        parser,
        ("--compare", "compare the results that run.bat left in the folder", FLAG),
        (
            "--only",
            "an operator to write or to compare, repeatable (default: all)",
            {"action": "append", "default": [], "metavar": "OPERATOR"},
        ),
    )


def run(options: argparse.Namespace) -> int:
    """Writes a kit, or compares the results in one."""
    from dmljax.command_line.describe import find_operator

    operators = [find_operator(name) for name in options.only]
    return _compare(options, operators) if options.compare else _write(options, operators)


def _write(options: argparse.Namespace, operators: Any) -> int:
    from dmljax.conformance.kit import write_kit

    written = write_kit(options.folder, operators)
    if options.json:
        print(json.dumps(written._asdict()))
        return 0
    counts = f"{count_text(written.dispatches, 'dispatch')[:-1]}es of {count_text(written.operators, 'operator')}"
    size = f"{count_text(written.files, 'file')} of {written.bytes / 1e6:.1f} MB"
    folder = escape_controls(str(options.folder))
    print(f"{folder}: {counts}, {size}")
    print(f"copy it to Windows, run run.bat there, and then `dmljax conformance {folder} --compare`")
    return 0


def _compare(options: argparse.Namespace, operators: Any) -> int:
    from dmljax.conformance.comparison import compare

    reports = compare(options.folder, operators)
    if options.json:
        print(json.dumps({adapter: _report_json(listed) for adapter, listed in reports.items()}, allow_nan=False))
    else:
        _print_reports(options.folder, reports)
    has_findings = any(report.has_findings for listed in reports.values() for report in listed)
    return FINDINGS if has_findings or not reports else 0


def _print_reports(folder: Path, reports: "Mapping[str, Sequence[OperatorReport]]") -> None:
    from dmljax.command_line.describe import table

    if not reports:
        print(f"{escape_controls(str(folder))}: no results; run run.bat there on Windows")
    for adapter, listed in reports.items():
        rows = [_row(report) for report in listed if report.has_findings]
        if rows:
            print("\n".join(table(rows, ("operator", "results", "agree", "differ", "missing", "most ULP"))), end="\n\n")
        for report in listed:
            for difference in report.differences:
                print(escape_controls(str(difference)))
            if report.missing and not report.is_unknown:
                of_results = f"{len(report.missing)} of {count_text(report.results, 'result')}"
                print(f"{of_results} of {report.operator} {'is' if len(report.missing) == 1 else 'are'} missing")
            elif report.is_unknown:
                print(f"DxDispatch cannot run {report.operator} yet")
        agreeing, results = (sum(getattr(report, name) for report in listed) for name in ("agreeing", "results"))
        has_findings = any(report.has_findings for report in listed)
        text = color_text(f"{agreeing} of {count_text(results, 'result')} agree", RED if has_findings else GREEN)
        print(f"{escape_controls(adapter)}: {text}")


def _row(report: "OperatorReport") -> tuple[str, ...]:
    counts = report.results, report.agreeing, len(report.differences), len(report.missing)
    return (report.operator, *map(str, counts), f"{report.most_units:.3g}")


def _report_json(reports: "Sequence[OperatorReport]") -> dict[str, Any]:
    return {report.operator: report.to_json() for report in reports}
