"""Runs a program that says `import pydirectml`: `python -m dmljax.pydirectml program.py [arguments]`."""

from dmljax import run


def main() -> None:
    """Runs the program named on the command line with the arguments after it."""
    run.main("dmljax.pydirectml")


if __name__ == "__main__":
    main()
