"""The command line of `python -m dmljax.run`, in this process."""

import os
import re
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
        patch.setattr(sys, "excepthook", sys.excepthook)
        try:
            dmljax.run.main("dmljax.run")
        except SystemExit as left:
            return left.code
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)  # as Python does
            raise
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
        (["gemm.json"], "error: gemm.json: not a Python program\ntip: dmljax run gemm.json\n"),
        (["--show-missing", "m.onnx"], "error: m.onnx: not a Python program\ntip: dmljax run m.onnx\n"),
        (["phi"], "error: phi: not a Python program\ntip: dmljax generate phi PROMPT\n"),
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
    for name in ("gemm.json", "m.onnx"):  # which Python could run without any effect
        Path(name).write_text('{"resources": {}}')
    Path("phi").mkdir()
    Path("phi", "genai_config.json").write_text("{}")
    assert run(monkeypatch, *arguments) == 2
    assert capsys.readouterr() == ("", error)


@pytest.mark.parametrize(
    ("library", "needs", "extra"),
    [("onnxruntime", "ONNX models need", "onnx"), ("onnxruntime_genai", "language models need", "genai")],
)
def test_a_package_that_is_absent_ends_a_program_with_a_sentence(
    library: str, needs: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("onnx", library) or name.startswith(("dmljax.onnx", "dmljax.run.onnx")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert run(monkeypatch, "-c", f"import {library}") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {needs} the package onnx")
    assert f"[{extra}]'" in error
    assert len(error.splitlines()) == 1


def test_a_plugin_of_pytorch_leads_to_onnx(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "dmljax does not run PyTorch's own networks; export the network with torch.onnx.export"
    (folder / "program.py").write_text("import torch_directml\ntorch_directml.device()\n")
    assert run(monkeypatch, "--show-missing", "program.py") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"program.py:1: torch_directml: {reason}")
    assert lines[1:] == ["program.py: 1 finding, 0 uses without effect"]
    with pytest.raises(ModuleNotFoundError, match=f"No module named 'torch_directml': {reason}"):
        run(monkeypatch, "program.py")
    (folder / "program.py").write_text("try:\n    import torch_directml\nexcept ImportError:\n    print('none')\n")
    assert run(monkeypatch, "--show-missing", "program.py") == 0
    assert run(monkeypatch, "program.py") is None


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


FAILURE = "def fail():\n    raise ValueError('wrong')\nfail()\n"
HOOK = "import sys\nsys.excepthook = lambda kind, error, traceback: print(error, traceback.tb_lineno)\n"


@pytest.mark.parametrize(
    ("arguments", "file"), [(["program.py"], "program.py"), (["-m", "program"], "{0}/program.py"), (["-c"], "<string>")]
)
def test_a_traceback_begins_at_the_program(
    arguments: list[str],
    file: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(program: str, error: type[Exception] = ValueError) -> tuple[str, str]:
        (folder / "program.py").write_text(program)
        with pytest.raises(error):
            run(monkeypatch, *arguments, *([program] if arguments == ["-c"] else []))
        return capsys.readouterr()

    frames = [line for line in fail(FAILURE)[1].splitlines() if not line.startswith("    ")]
    first, second = (f'  File "{file.format(folder)}", line {place}' for place in ("3, in <module>", "2, in fail"))
    assert frames == ["Traceback (most recent call last):", first, second, "ValueError: wrong"]
    assert fail(HOOK + FAILURE) == ("wrong 5\n", "")
    assert fail("x = (", SyntaxError)[1].startswith(f'  File "{file.format(folder)}", line 1\n    x = (\n')


# Names that a program uses and dmljax lacks; in these programs, `#` is followed by what is said about a line

IMPORTS = """\
import onnxruntime.training # No module named 'onnxruntime.training'
import importlib
from onnxruntime import ModelCompiler, SessionOptions # onnxruntime.ModelCompiler: dmljax's version of onnxruntime does
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, NoSuchModel # onnxruntime.capi.onnxruntime_pybind
import pydirectml as dml
og = importlib.import_module("onnxruntime_genai")
og.Engine # onnxruntime_genai.Engine: dmljax's version of onnxruntime_genai does not have it (it shares pages of caches
dml.softmax # module 'dmljax.pydirectml' has no attribute 'softmax', did you mean activation_soft_max?
dml.Size2D(1, 2).depth # pydirectml.Size2D.depth: dmljax's version of pydirectml does not have it
dml.MaxPoolingOutputs().values.sizes # pydirectml.Expression.sizes:
try:
    import onnxruntime.training
    from onnxruntime import ModelCompiler
except ImportError:
    pass
"""
VALUES = """\
import onnxruntime as ort
from typing import Optional

def make(path) -> ort.InferenceSession:
    return CACHE[path]

class Base:
    def __init__(self, path):
        self.session, self.others = make(path), []
        self.others.append(ort.InferenceSession(path))

class Model(Base):
    @property
    def inner(self):
        return self.session

    def run(self, values: "Optional[ort.OrtValue]", other):
        self.session.a # onnxruntime.InferenceSession.a: dmljax's version of onnxruntime does not have it
        self.inner.b # onnxruntime.InferenceSession.b:
        for each in self.others:
            each.c # onnxruntime.InferenceSession.c:
        self.others[0].io_binding().d # onnxruntime.IOBinding.d:
        [x.e for x in self.session.get_inputs()] # onnxruntime.NodeArg.e:
        values.f # onnxruntime.OrtValue.f:
        other.g # onnxruntime.InferenceSession.g:
        self.session.run(None, {})[0].shape

Model("x").run(None, other=make("y"))
Model("x").session.h # onnxruntime.InferenceSession.h:
with ort.InferenceSession("x") as entered:
    (named := entered).i # onnxruntime.InferenceSession.i:
first, second = ort.RunOptions(), 3
first.j, second.j = 1, 2 # onnxruntime.RunOptions.j:
try:
    lambda: ort.OrtValue.ortvalue_from_numpy(None).k # onnxruntime.OrtValue.k:
except ort.capi.onnxruntime_pybind11_state.Fail as error:
    error.args
    error.l # onnxruntime.Fail.l:
"""
SETTINGS = """\
import onnxruntime as ort

options = ort.SessionOptions()
options.intra_op_num_threads = 1 # onnxruntime.SessionOptions.intra_op_num_threads has no effect: XLA chooses its
options.enable_profiling = True
run_options = ort.RunOptions()
run_options.terminate = False
run_options.terminate = True # onnxruntime.RunOptions.terminate must be `False`, because
options.threads = 3 # onnxruntime.SessionOptions.threads: dmljax's version of onnxruntime does not have it
ort.set_default_logger_severity(3) # onnxruntime.set_default_logger_severity has no effect: dmljax has no log
ort.OrtValue.ort_value_from_sparse_tensor(None) # onnxruntime.OrtValue.ort_value_from_sparse_tensor is refused: no
"""
OLDER = """\
import onnxruntime_genai as og

model = og.Model("phi")
params = og.GeneratorParams(model)
params.input_ids = og.Tokenizer(model).encode("a") # onnxruntime_genai.GeneratorParams.input_ids: dmljax's version of
params.try_graph_capture_with_max_batch_size(1) # onnxruntime_genai.GeneratorParams.try_graph_capture_with_max_batch_
generator = og.Generator(model, params)
while not generator.is_done():
    generator.compute_logits() # onnxruntime_genai.Generator.compute_logits: dmljax's version of onnxruntime_genai does
    generator.generate_next_token()
generator.get_output("logits")
model.generate(params) # onnxruntime_genai.Model.generate: dmljax's version of onnxruntime_genai does not have it (GenAI
"""
UNCERTAIN = """\
import onnxruntime as ort, os, helper, unknown
from typing import TYPE_CHECKING
from helper import *

if TYPE_CHECKING:
    from onnxruntime import NoSuchClass
session = ort.InferenceSession("x") if os.environ else unknown.Session()
session.eval()
if hasattr(ort, "no_such_name"):
    ort.no_such_name
try:
    ort.no_such_name
except AttributeError:
    pass
class Session(ort.InferenceSession):
    def __init__(self):
        self.mine = 3
        self.mine, self.theirs
class Session(Session):
    pass
Session().other
nested = []
for i in range(9):
    nested = [nested]
nested[0][0][0].x
def count(number):
    global session
    session = unknown.Session()
    return count(number + 1) if number else None
count(3)
"""


@pytest.mark.parametrize("program", [IMPORTS, VALUES, SETTINGS, OLDER, UNCERTAIN])
def test_missing_names_are_shown_before_a_program_runs(
    program: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "program.py").write_text(program)
    status = run(monkeypatch, "--show-missing", "program.py")
    *lines, last = capsys.readouterr().out.splitlines()
    expected = {i: line.split(" # ")[1] for i, line in enumerate(program.splitlines(), 1) if " # " in line}
    assert [int(line.split(":")[1]) for line in lines] == [*expected]
    for line, start in zip(lines, expected.values(), strict=True):
        assert line.partition(": ")[2].startswith(start)
    ignored = sum(" has no effect: " in line for line in lines)
    found = re.fullmatch(r"program\.py: (\d+) findings?, (\d+) uses? without effect", last)
    assert found
    assert [*map(int, found.groups())] == [len(lines) - ignored, ignored]
    assert status == (1 if len(lines) > ignored else 0)


USE = "import onnxruntime\nSESSION = onnxruntime.InferenceSession('x')\nSESSION.absent\n"
ABSENT = ": onnxruntime.InferenceSession.absent: dmljax's version of onnxruntime does not have it\n"


@pytest.mark.parametrize(
    ("arguments", "paths", "name"),
    [
        (["tools/program.py"], ["tools/beside.py:3", "tools/program.py:2"], "tools/program.py"),
        (["tools"], ["tools/__main__.py:3"], "tools"),
        (["-m", "tools"], ["tools/__init__.py:3", "tools/__main__.py:3", "tools/beside.py:3"], "tools"),
        (["-m", "tools.program"], ["tools/__init__.py:3"], "tools.program"),
        (["-m", "space"], ["space/inner/module.py:3"], "space"),
        (["-m", "space.inner.module"], ["space/inner/module.py:3"], "space.inner.module"),
        (["-m", "outer"], ["outer.py:2", "tools/__init__.py:3"], "outer"),
        (["-c", USE, "argument"], ["<string>:3"], "<string>"),
    ],
)
def test_missing_names_are_shown_in_all_files_of_a_program(
    arguments: list[str],
    paths: list[str],
    name: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "space" / "inner").mkdir(parents=True)
    (folder / "tools").mkdir()
    for path in ("tools/__init__.py", "tools/__main__.py", "tools/beside.py", "space/inner/module.py"):
        (folder / path).write_text(USE)
    (folder / "tools" / "program.py").write_text("from beside import SESSION as session\nsession.absent")
    (folder / "outer.py").write_text("import tools.program, json\ntools.SESSION.absent")
    monkeypatch.syspath_prepend(folder)
    assert run(monkeypatch, "--show-missing", *arguments) == 1
    printed = capsys.readouterr().out
    count = f"{len(paths)} finding{'s' if len(paths) > 1 else ''}"
    assert printed == "".join(f"{path}{ABSENT}" for path in paths) + f"{name}: {count}, 0 uses without effect\n"


def test_a_second_program_is_an_argument_of_the_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first.py", "second.py"):
        (folder / name).write_text("")
    assert run(monkeypatch, "--show-missing", "first.py", "second.py", "none.py", "--fast") == 0
    out, tip = capsys.readouterr()
    assert out == "first.py: 0 findings, 0 uses without effect\n"
    assert tip == "tip: second.py is an argument of first.py, and was not read\n"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("x = (", "error: program.py:1: '(' was never closed\n"),
        (f"x = {'-' * 100_000}1", "error: program.py: must be Python that can be parsed"),
        ("import big", "error: must hold at most"),
    ],
)
def test_a_program_that_cannot_be_read_is_refused(
    program: str, error: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "program.py").write_text(program)
    with (folder / "big.py").open("wb") as file:
        file.truncate(2**24 + 1)
    assert run(monkeypatch, "--show-missing", "program.py") == 2
    assert capsys.readouterr().err.startswith(error)
    assert run(monkeypatch, "--show-missing", "-m", "no_such_module") == 2
    assert capsys.readouterr().err == "error: No module named no_such_module\n"


def test_the_page_on_programs_shows_what_its_program_prints(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebooks = Path(__file__).parents[2] / "notebooks"
    page = (notebooks / "for-programs.md").read_text()
    (folder / "notebooks").symlink_to(notebooks)
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (folder / "program.py").write_text(program)
    console = "".join(re.findall(r"```console\n(.*?)```", page, re.DOTALL))
    commands = re.findall(r"^\$ python -m dmljax.run (.*)\n((?:[^$].*\n)+)", console, re.MULTILINE)
    assert len(commands) == 2
    for arguments, shown in commands:
        assert not run(monkeypatch, *arguments.split())
        assert capsys.readouterr().out == shown
