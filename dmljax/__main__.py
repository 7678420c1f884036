"""Makes `python -m dmljax` run the command `dmljax`."""

import sys

from dmljax.cli import main

if __name__ == "__main__":
    sys.exit(main())
