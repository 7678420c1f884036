"""Makes `python -m dmljax` run the command `dmljax`."""

from dmljax.command_line import main

if __name__ == "__main__":
    main()
