"""Makes `python -m dmljax` run the command `dmljax`."""

import sys

from dmljax.command_line.cli import main

if __name__ == "__main__":
    sys.exit(main())
