"""Every docstring's example runs, and every public name has a docstring."""

import ast
import builtins
import doctest
import importlib
import inspect
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmljax
from dmljax import directml, ops
from dmljax.command_line.describe import desc_example, function_name, with_imports
from dmljax.examples.transcripts import docstring_example
from dmljax.functions import HOMES

MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(dmljax.__path__, "dmljax.")
    if not info.name.endswith("__main__")
]
NAMES = {
    name: value
    for name, value in ({name: getattr(dmljax, name) for name in HOMES} | vars(directml)).items()
    if not name.startswith("_") and not isinstance(value, ModuleType)
}


# Objects with `__module__` "dmljax" are in none of the modules searched, wherever their files are.
DOCUMENTED = {module.__name__: module for module in MODULES} | {
    name: value for name, value in NAMES.items() if name != "OPERATORS"
}


def examples_in(name: str) -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    documented = DOCUMENTED[name]
    module = documented if isinstance(documented, ModuleType) else False
    return finder.find(documented, name, module, extraglobs=NAMES | {"jax": jax, "jnp": jnp, "np": np})


@pytest.mark.full(but=20)
@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_docstrings_examples_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # one writes a picture
    Path("notebooks").symlink_to(Path(__file__).parents[2] / "notebooks")  # some read a model in notebooks/models
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in examples_in(name):
        with jax.numpy_dtype_promotion("standard"):
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_the_examples_of_operators_import_what_they_name() -> None:
    for operator in directml.OPERATORS.values():
        text = with_imports(inspect.getdoc(getattr(dmljax, function_name(operator))) or "")
        examples = [example.source for example in doctest.DocTestParser().get_examples(text)]
        names: dict[str, Any] = {}
        exec("".join(source for source in examples if re.match("import|from", source)), names)
        assert names_read("".join(examples)) <= names.keys() | vars(builtins).keys(), operator.function.__name__


def test_the_calls_of_pages_run_with_the_names_that_learners_are_given() -> None:
    notebooks = Path(__file__).parents[2] / "notebooks"
    session = doctest.DocTestParser().get_doctest(
        "".join(re.findall(r"```pycon\n(.*?)```", (notebooks / "for-learners.md").read_text(), re.DOTALL)),
        {},
        "for-learners",
        None,
        0,
    )
    assert doctest.DocTestRunner(verbose=False).run(session, clear_globs=False).failed == 0
    for page in sorted((notebooks / "operators").glob("*.md")):
        (calls,) = re.findall(r"^```{operator-function} \w+\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        source = "".join(example.source for example in doctest.DocTestParser().get_examples(calls))
        assert names_read(source) <= session.globs.keys() | vars(builtins).keys(), page.name


def names_read(source: str) -> set[str]:
    """The names that a program reads and does not assign."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name | ast.arg)]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return read - {
        node.arg if isinstance(node, ast.arg) else node.id
        for node in nodes
        if isinstance(node, ast.arg) or isinstance(node.ctx, ast.Store)
    }


def test_every_public_name_is_documented() -> None:
    documented = {name: inspect.getdoc(value) or "" for name, value in NAMES.items() if name != "OPERATORS"}
    # Unlike a dataclass's default docstring.
    assert [name for name, text in documented.items() if not text or text.startswith(f"{name}(")] == []


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


def lines_in(documentation: str | None) -> dict[str, str]:
    """The lines of the section `Args:`, each without the type, and of the section `Returns:`, by that name."""
    lines = {}
    for paragraph in inspect.cleandoc(documentation or "").split("\n\n"):
        section, *entries = re.split(r"\n    (?! )", paragraph)
        if section in ("Args:", "Returns:"):
            for entry in map(" ".join, map(str.split, entries)):
                name, line = re.fullmatch(r"(?:(\w+)(?: \(.*?\))?: )?(.*)", entry).groups()  # type: ignore[union-attr]
                lines["Returns" if section == "Returns:" else name] = line
    return lines


def families() -> dict[ModuleType, dict[str, Callable[..., Any]]]:
    """The functions of each family, as they are written."""
    functions: dict[ModuleType, dict[str, Callable[..., Any]]] = {}
    for operator in directml.OPERATORS.values():
        function = inspect.unwrap(operator.function)
        functions.setdefault(sys.modules[function.__module__], {})[function.__name__] = function
    return functions


def test_every_argument_and_result_has_a_line() -> None:
    for operator in directml.OPERATORS.values():
        lines = lines_in(operator.function.__doc__)
        assert list(lines) == [*inspect.signature(operator.function).parameters, "Returns"]
        for name, line in lines.items():
            assert re.fullmatch(r"[A-Z0-9`].{,98}\.", line), f"{operator.function.__name__}: {name}: {line}"


def test_each_line_is_unique_and_describes_an_argument() -> None:
    everywhere, taken = lines_in(ops.__doc__), Counter[str]()
    for family, functions in families().items():
        shared, parameters = lines_in(family.__doc__), Counter[str]()
        for name, function in functions.items():
            lines = lines_in(function.__doc__)
            signature = {*inspect.signature(function).parameters, "Returns"}
            assert lines.keys() <= signature, name
            assert not lines.items() & (everywhere | shared).items(), name
            parameters.update(signature - lines.keys())
        assert not shared.items() & everywhere.items(), family.__name__
        assert [name for name in shared if parameters[name] == 0] == [], family.__name__
        taken.update(parameters.keys() - shared.keys())
    assert [name for name in everywhere if taken[name] < 2 and name != "output_zero_point"] == []


@pytest.mark.full(but=5)
@pytest.mark.parametrize("name", directml.OPERATORS)
def test_a_result_has_the_shape_and_type_that_its_line_promises(name: str) -> None:
    operator = directml.OPERATORS[name]
    if lines_in(operator.function.__doc__)["Returns"] == "Array of the shape and type of `input`.":
        example = docstring_example(operator)
        (output,) = example.arrays(of_inputs=False).values()
        input = example.arrays(of_inputs=True)["input"]
        assert (output.shape, output.dtype) == (input.shape, input.dtype)


TWIN = r"\b(?:as|as in|as by|as with|like|than) `(?:dmljax\.)?(\w+)`"


def test_documentation_sends_no_reader_to_another_operator() -> None:
    names = {function_name(operator) for operator in directml.OPERATORS.values()}
    for operator in directml.OPERATORS.values():
        references = re.findall(TWIN, " ".join((inspect.getdoc(operator.function) or "").split()))
        assert names.isdisjoint(references), operator.function.__name__
    for page in (Path(__file__).parents[2] / "notebooks" / "operators").rglob("*.md"):
        text = page.read_text().partition("## Relatives")[0]
        assert not re.search(r"(?i)\b(?:the )?same as (?:for )?\[`|says about|also holds here", text), page.name


def test_each_example_of_the_pages_calls_a_function() -> None:
    text = (resources.files("dmljax.examples") / "pages.txt").read_text()
    calls = [example.source.partition("(")[0] for example in doctest.DocTestParser().get_examples(text) if example.want]
    assert len(calls) == 99
    assert set(calls) <= {function_name(operator) for operator in directml.OPERATORS.values()}


@pytest.mark.full(but=10)
@pytest.mark.parametrize("name", sorted(directml.OPERATORS))
def test_the_example_of_every_descriptor_runs(name: str) -> None:
    lines = desc_example(directml.OPERATORS[name])
    assert max(map(len, lines)) <= 88, "as wide as the site shows code"
    session = [line or "<BLANKLINE>" for line in lines]
    test = doctest.DocTestParser().get_doctest("\n".join(session) + "\n", {"dmljax": dmljax, "np": np}, name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test)
    assert runner.summarize(verbose=False) == (0, 3)


def test_every_public_name_has_an_example() -> None:
    names = NAMES.keys() - {"OPERATORS"}
    without = [name for name in sorted(names) if not any(test.examples for test in examples_in(name))]
    # The examples of descriptors are made from their pages'.
    assert [name for name in without if not (name.endswith("Desc") and name != "TensorDesc")] == []
