"""The code of README, notebooks, pages and docstrings, each as a separate program."""

import doctest
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import dmljax
from dmljax import directml

ROOT = Path(__file__).parents[2]
NAMES = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
import dmljax
"""
NAMES_OF_DOCSTRINGS = NAMES + "from dmljax import *\nfrom dmljax.directml import *\n"
NAMES_OF_FRAGMENTS = NAMES + "n = size = width = 2\n"  # pages of operators say what to write inside a program


def programs() -> Iterator[tuple[str, str]]:
    """The name and the text of each program."""
    for page in (ROOT / "README.md", *sorted((ROOT / "notebooks").rglob("*.md"))):
        blocks = re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
        if blocks:
            names = NAMES_OF_FRAGMENTS if page.parent.name == "operators" else ""
            yield f"page_{page.stem}", names + "\n".join(map(textwrap.dedent, blocks))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
        yield (
            f"notebook_{notebook.stem.replace('-', '_')}",
            re.sub(r"^( *)[%!]", r"\1# \g<0>", text, flags=re.MULTILINE),
        )
    for module in (dmljax, directml):
        for name in module.__all__:
            text = "".join(example.source for example in _examples(getattr(module, name)))
            if text:
                yield f"docstring_{name}", NAMES_OF_DOCSTRINGS + text


def _examples(documented: object) -> list[doctest.Example]:
    if inspect.ismodule(documented):
        return []
    return doctest.DocTestParser().get_examples(inspect.getdoc(documented) or "")
