"""The command `dmljax cache`: says where compiled programs are kept, and removes them."""

import argparse
import json

from dmljax.command_line.options import FLAG, Subparsers, add_command, add_options
from dmljax.command_line.terminal import count_text
from dmljax.text import escape_controls

SUMMARY = "Says where compiled programs are kept and how large they are, and removes them."

EXAMPLES = """examples:
  dmljax cache
  dmljax cache --clear
  dmljax run model.onnx --no-cache                   # neither look for programs nor keep them
  DMLJAX_NO_CACHE=1 python -m dmljax.run program.py

Commands and `python -m dmljax.run` keep what they compile, so that a later start need not compile it again. Beyond
2 GB, the programs that were not used for the longest time go. If JAX's own JAX_COMPILATION_CACHE_DIR is set, JAX keeps
programs there instead."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "cache", SUMMARY, EXAMPLES)
    add_options(parser, ("--clear", "remove all programs", FLAG))


def run(options: argparse.Namespace) -> int:
    """Prints the folder of compiled programs and its size, or removes the programs."""
    from dmljax.foundation.programs.store import LIMIT, ProgramStore, cache_folder

    store = ProgramStore(cache_folder())
    size = store.size()
    if options.clear:
        store.clear()
    if options.json:
        values = {"folder": str(store.folder), "programs": size.entries, "bytes": size.bytes, "limit": LIMIT}
        print(json.dumps(values | {"cleared": options.clear}))
        return 0
    verb = "removed " if options.clear else ""
    programs = count_text(size.entries, "program")
    print(f"{escape_controls(str(store.folder))}: {verb}{programs}, {size.bytes / 1e6:.1f} MB")
    return 0
