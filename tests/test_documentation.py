"""Every docstring's example runs, and every public name has a docstring."""

import doctest
import importlib
import inspect
import pkgutil
import re
from importlib import resources
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import few_of
from kinds import FIRST_OF_EVERY_KIND

import dmljax
from dmljax import directml
from dmljax.command_line.describe import desc_example, function_name

MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(dmljax.__path__, "dmljax.")
    if not info.name.endswith("__main__")
]
NAMES = {
    name: value
    for name, value in (vars(dmljax) | vars(directml)).items()
    if not name.startswith("_") and not isinstance(value, ModuleType)
}


# Objects with `__module__` "dmljax" are in none of the modules searched, wherever their files are.
DOCUMENTED = {module.__name__: module for module in MODULES} | {
    name: value for name, value in NAMES.items() if name != "OPERATORS"
}
FEW = {
    name
    for operator in map(directml.OPERATORS.__getitem__, FIRST_OF_EVERY_KIND)
    for name in (function_name(operator), operator.__name__)
}


def examples_in(name: str) -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    documented = DOCUMENTED[name]
    module = documented if isinstance(documented, ModuleType) else False
    return finder.find(documented, name, module, extraglobs=NAMES | {"jax": jax, "jnp": jnp, "np": np})


@pytest.mark.parametrize("name", few_of(DOCUMENTED, *FEW))
def test_the_docstrings_examples_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # one writes a picture
    Path("notebooks").symlink_to(Path(__file__).parents[1] / "notebooks")  # some read a model in notebooks/models
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in examples_in(name):
        with jax.numpy_dtype_promotion("standard"):
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "OPERATORS"])
def test_every_public_name_is_documented(name: str) -> None:
    documentation = NAMES[name].__doc__
    assert documentation
    assert not documentation.startswith(f"{name}(")  # a dataclass's default docstring


def test_help_shows_the_short_names_of_types() -> None:
    for operator in directml.OPERATORS.values():
        shown = str(inspect.signature(operator.function))
        assert not re.search(r"jaxlib|typing|collections|Union|Literal|ndarray|Optional", shown), shown
    assert str(inspect.signature(dmljax.cumulative_summation)) == (
        "(input: ArrayLike, *, axis: int, axis_direction: AxisDirection | str = AxisDirection.INCREASING, "
        "has_exclusive_sum: bool = False) -> Array"
    )
    expected = "(input: ArrayLike, *, sizes: Sequence[int], axis: int) -> tuple[Array, ...]"
    assert str(inspect.signature(dmljax.split)) == expected
    assert "dtype: DTypeLike | None = None" in str(inspect.signature(dmljax.reduce))


def test_each_example_of_the_pages_calls_a_function() -> None:
    text = (resources.files("dmljax.examples") / "pages.txt").read_text()
    calls = [one.source.partition("(")[0] for one in doctest.DocTestParser().get_examples(text) if one.want]
    assert len(calls) == 99
    assert set(calls) <= {function_name(operator) for operator in directml.OPERATORS.values()}


def test_there_are_examples_to_run() -> None:
    examples = sum(len(test.examples) for name in DOCUMENTED for test in examples_in(name))
    assert examples >= len(directml.OPERATORS) + 40


# In the first tier, too: one whose function takes signed integers and whose operator does not.
@pytest.mark.parametrize(
    "name", few_of(sorted(directml.OPERATORS), *FIRST_OF_EVERY_KIND, "DML_OPERATOR_ELEMENT_WISE_BIT_AND")
)
def test_the_example_of_every_descriptor_runs(name: str) -> None:
    lines = desc_example(directml.OPERATORS[name])
    assert max(map(len, lines)) <= 88, "as wide as the site shows code"
    session = [line or "<BLANKLINE>" for line in lines]
    test = doctest.DocTestParser().get_doctest("\n".join(session) + "\n", {"dmljax": dmljax, "np": np}, name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test)
    assert runner.summarize(verbose=False) == (0, 3)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "OPERATORS"])
def test_every_public_name_has_a_running_example(name: str) -> None:
    value = NAMES[name]
    if isinstance(value, type) and issubclass(value, directml.Operator) and value is not directml.Operator:
        return  # has an example made from its page's, tested above
    assert any(test.examples for test in examples_in(name))
