"""Runs a program that says `import pydirectml`: `python -m dmljax.pydirectml program.py [arguments]`."""

import runpy
import sys
from pathlib import Path

from dmljax import pydirectml


def main() -> None:
    """Runs the program named on the command line with the arguments after it."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m dmljax.pydirectml program.py [arguments]")
        sys.exit(0 if len(sys.argv) > 1 else 2)
    program = sys.argv[1]
    if not Path(program).is_file():
        sys.exit(f"there is no file {program}")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(program).resolve().parent)
    sys.modules["pydirectml"] = pydirectml
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
