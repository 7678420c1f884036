"""The commands in the README and on the pages print what stands below them there.

`tests/run/test_command.py` has those that run programs.
"""

import os
import re
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers import GATE

ROOT = Path(__file__).parents[2]
BLOCKS = [
    textwrap.dedent(block)
    for page in (ROOT / "README.md", *sorted((ROOT / "notebooks").rglob("*.md")))
    for block in re.findall(r"^ *```console\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
]
TRANSCRIPTS = [
    (command, output)
    for block in BLOCKS
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    if output and "dmljax.run" not in command
]
# What depends on the machine: times, differences in the last digit, and the size of an artifact, which has paths in it.
VARYING = re.compile(r" *\b\d+\.\d+ m?s\b|(?<=^y: )[\d.e-]+$|\b\d+(?= bytes for )", re.MULTILINE)


@GATE
@pytest.mark.parametrize(("command", "output"), TRANSCRIPTS, ids=[command[:60] for command, _ in TRANSCRIPTS])
def test_a_command_prints_what_stands_below_it(command: str, output: str, tmp_path: Path) -> None:
    arguments = command.removeprefix(".venv/bin/").split()
    assert arguments[0] == "dmljax"
    if arguments[1] == "estimate" and not find_spec("jax_cuda12_plugin"):
        pytest.skip("the extra `accelerators` is not installed")
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    # With JAX's own settings, as users have it.
    environment = os.environ | {"JAX_ENABLE_X64": "0", "JAX_PLATFORMS": "cpu", "DMLJAX_NO_CACHE": "1"}
    finished = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert VARYING.sub("…", finished.stdout).rstrip() == VARYING.sub("…", output).rstrip(), finished.stderr


def test_pages_have_transcripts() -> None:
    assert {command.split()[1] for command, _ in TRANSCRIPTS} == {"check", "compile", "estimate", "run"}
