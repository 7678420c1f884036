"""The README's code runs and prints what it says, and its statements about JAX hold."""

import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, X64, needs_x32, needs_x64, units_off

import dmljax
from dmljax import directml
from dmljax.command_line.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = [*map(textwrap.dedent, re.findall(r"```python\n(.*?) *```", README, re.DOTALL))]


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {README[: README.index(block)].count(chr(10)) + 1}")
@GATE
def test_a_block_of_code_prints_by_itself_what_the_readme_says(block: str) -> None:
    said = [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]
    finished = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == said
    assert said


def test_the_commands_print_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    console = "".join(map(textwrap.dedent, re.findall(r"```console\n(.*?) *```", README, re.DOTALL)))
    blocks = re.findall(r"^\$ \.venv/bin/dmljax (.*)\n((?:[^$].*\n)*)", console, re.MULTILINE)
    assert len(blocks) == 1
    for arguments, said in blocks:
        main(arguments.split())
        printed, said = (re.sub(r"\d+\.\d{4} ms", "0.0000 ms", text) for text in (capsys.readouterr().out, said))
        assert printed == said


def test_the_files_named_in_the_readme_exist() -> None:
    links = re.findall(r"\]\(([^):]+)\)", README)
    assert len(links) >= 10
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_package_index_shows_no_links_into_the_repository() -> None:
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]
    text = README
    for substitution in hook["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    assert text.startswith("# dmljax\n\ndmljax implements all ")
    assert "## Ten lines" in text
    assert "picture on the right" not in text
    assert "CONTRIBUTING says how" in text
    assert not re.findall(r"\]\((?!https:)", text)


def test_the_operators_are_counted() -> None:
    assert f"implements all {len(directml.OPERATORS)} operators" in README


# Statements of notebooks/beside.md about JAX's nearest functions. When JAX changes, change the page.

SUBNORMALS = jnp.array([[1e-40, 2e-40]], jnp.float32)
on_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="describes XLA on a CPU")


def test_jax_one_hot_wraps_narrow_indices_and_ignores_negative_ones() -> None:
    assert jnp.flatnonzero(jax.nn.one_hot(jnp.array(3, jnp.uint8), 300)).tolist() == [3, 259]
    assert jax.nn.one_hot(-1, 3).tolist() == [0, 0, 0]
    hot, off, on = jax.nn.one_hot(0, 2), jnp.array(0.0, jnp.float32), jnp.array(jnp.inf, jnp.float32)
    if not X64:
        assert jnp.isnan(hot * (on - off) + off).tolist() == [False, True]


def test_jax_full_truncates_numbers_that_do_not_fit() -> None:
    assert jnp.full((1,), 300, "uint8").tolist() == [44]
    assert jnp.full((1,), 2.5, "int32").tolist() == [2]


@on_cpu
def test_jax_treats_subnormals_as_equal_or_zero() -> None:
    assert jnp.argmax(SUBNORMALS, -1).tolist() == [0]
    assert dmljax.argmax(SUBNORMALS, axes=-1).tolist() == [[1]]
    assert jnp.nonzero(SUBNORMALS)[0].size == 0
    assert int(dmljax.nonzero_coordinates(SUBNORMALS).count) == 2


def test_jax_argmax_fails_on_an_empty_row_where_hardmax_does_not() -> None:
    with pytest.raises(ValueError, match="empty"):
        jnp.argmax(jnp.zeros((2, 0)), -1)
    assert dmljax.activation_hardmax(jnp.zeros((2, 0))).shape == (2, 0)


def test_jax_nonzero_needs_a_size_under_jit() -> None:
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(jnp.nonzero)(SUBNORMALS)


def test_jax_argmax_takes_one_axis() -> None:
    with pytest.raises(TypeError):
        jnp.argmax(SUBNORMALS, (0, 1))  # type: ignore[arg-type]


@GATE
def test_jax_indexing_drops_the_gradient_of_a_clamped_index() -> None:
    x = jnp.array([1.0, 2.0], jnp.float32)
    assert float(x[5]) == 2
    assert jax.grad(lambda x: x[jnp.array([5])].sum())(x).tolist() == [0, 0]
    assert jax.grad(lambda x: dmljax.gather_nd(x, jnp.array([[5]])).sum())(x).tolist() == [0, 1]


@needs_x64
def test_jax_indexing_truncates_64_bit_indices() -> None:
    x, index = jnp.array([1.0, 2.0, 3.0]), np.array([2**32 + 1])
    assert jax.jit(lambda x, i: x[i])(x, index).tolist() == [2]
    assert dmljax.gather_nd(x, index[:, None]).tolist() == [3]


@needs_x32
def test_jax_triangles_are_wrong_at_the_end_of_int32() -> None:
    x = jnp.ones((2, 2), jnp.float32)
    assert jnp.tril(x, 2**31 - 1).tolist() != x.tolist()
    assert (
        dmljax.diagonal_matrix1(x, 0, diagonal_fill_begin=2**31 - 1, diagonal_fill_end=2**31 - 1).tolist() == x.tolist()
    )


@on_cpu
def test_jax_sinh_is_off_by_more_than_a_few_ulp() -> None:
    at = np.float32(76.24613)
    assert units_off(jnp.sinh(at), np.sinh(np.float64(at))) > 24
