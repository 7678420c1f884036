"""Makes `python -m dmljax.run` run programs of foreign libraries."""

from dmljax.run import main

if __name__ == "__main__":
    main("dmljax.run")
