"""Every docstring's example runs, and every public name has a docstring."""

import doctest
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmljax

MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(dmljax.__path__, "dmljax.")
    if not info.name.endswith("__main__")
]
NAMES = {
    name: value
    for name, value in vars(dmljax).items()
    if not name.startswith("_") and not isinstance(value, ModuleType)
}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_docstrings_examples_run(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])  # some name a model in notebooks/models
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in finder.find(module, extraglobs=NAMES | {"jax": jax, "jnp": jnp, "np": np}):
        with jax.numpy_dtype_promotion("standard"):
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "OPERATORS"])
def test_every_public_name_is_documented(name: str) -> None:
    documentation = NAMES[name].__doc__
    assert documentation
    assert not documentation.startswith(f"{name}(")  # what a dataclass writes when nobody else does


def test_there_are_examples_to_run() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = sum(len(test.examples) for module in MODULES for test in finder.find(module))
    assert examples >= 2 * len(dmljax.OPERATORS)
