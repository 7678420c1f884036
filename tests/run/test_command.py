"""The command line of `python -m dmljax.run`, in this process."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dmljax.run
from dmljax.foundation import interrupts


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which commands run; the modules in it are forgotten at the end."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Runs the command, whose changes to this process end with it; returns the status that it exits with."""
    with monkeypatch.context() as patch:
        patch.setattr(interrupts, "install_for_programs", lambda: None)
        patch.setattr(sys, "argv", ["run", *arguments])
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "meta_path", [*sys.meta_path])
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        patch.setattr(os, "environ", os.environ.copy())
        try:
            dmljax.run.main("dmljax.run")
        except SystemExit as left:
            return left.code
    return None


def test_help_explains(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--help") is None
    text = capsys.readouterr().out
    assert text.startswith("usage: python -m dmljax.run [options] PROGRAM.py [arguments]\n")
    for option in ("-m MODULE", "-c CODE", "--show-missing", "--no-cache", "JAX_PLATFORMS", "DMLJAX_NO_CACHE"):
        assert f"\n  {option}" in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["none.py"], "error: none.py: no such file\ntip: -m runs a module\n"),
        (["--no_cache", "none.py"], "error: unrecognized option: --no_cache\ntip: did you mean --no-cache?\n"),
        (["-x"], "error: unrecognized option: -x\ntip: python -m dmljax.run --help lists the options\n"),
        (["-m"], "error: -m needs the name of a module after it\n"),
        (["--no-cache", "-c"], "error: -c needs code after it\n"),
        (["-m", "no_such_module"], "error: No module named no_such_module\n"),
        (["-m", ".module"], "error: Relative module names not supported\n"),
        (["."], "error: can't find '__main__' module in '.'\n"),
    ],
)
def test_a_command_without_a_program_is_refused(
    arguments: list[str],
    error: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert capsys.readouterr() == ("", error)


def test_a_command_without_arguments_prints_how_to_use_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch) == 2
    error = capsys.readouterr().err.splitlines()
    assert (len(error), error[-1]) == (5, "tip: python -m dmljax.run --help explains")


PROGRAM = """\
import os, pickle, sys
import beside

class Value:
    pass

print(__name__, sys.argv, sys.path[0], beside.NAME, os.environ.get("DMLJAX_NO_CACHE"))
assert isinstance(pickle.loads(pickle.dumps(Value())), Value)
"""


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--no-cache", "inner/program.py", "a", "-m"], "__main__ ['inner/program.py', 'a', '-m'] {0}/inner inner 1"),
        (["inner/program.py", "--no-cache"], "__main__ ['inner/program.py', '--no-cache'] {0}/inner inner None"),
        (["-m", "inner.program", "--help"], "__main__ ['{0}/inner/program.py', '--help'] {0} outer None"),
        (["-minner", "a"], "__main__ ['{0}/inner/__main__.py', 'a'] {0} outer None"),
        (["inner", "a"], "__main__ ['inner', 'a'] inner inner None"),
        (["--no-cache", "-c", PROGRAM, "-c"], "__main__ ['-c', '-c']  outer 1"),
    ],
)
def test_a_program_sees_what_python_shows_it(
    arguments: list[str],
    printed: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DMLJAX_NO_CACHE")
    (folder / "inner").mkdir()
    for path in ("inner/program.py", "inner/__main__.py"):
        (folder / path).write_text(PROGRAM)
    (folder / "beside.py").write_text("NAME = 'outer'")
    (folder / "inner" / "beside.py").write_text("NAME = 'inner'")
    assert run(monkeypatch, *arguments) is None
    assert capsys.readouterr().out == f"{printed.format(folder)}\n"


@pytest.mark.parametrize("form", ["program.py", "-mprogram"])
def test_imports_that_fail_inside_a_program_are_its_own(
    form: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "program.py").write_text("import no_such_module")
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_module'"):
        run(monkeypatch, form)
