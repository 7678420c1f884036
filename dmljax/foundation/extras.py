"""Commands that install extras: the packages that only parts of dmljax need."""

import json
import shlex
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname


def command_for(extra: str) -> str:
    """The command that installs an extra from the source of dmljax: a folder, an address, or a package index."""
    origin = _origin()
    address = origin.get("url", "")
    if not address:
        return f"pip install 'dmljax[{extra}]'"
    if "vcs_info" in origin:
        return f"pip install 'dmljax[{extra}] @ {origin['vcs_info']['vcs']}+{address}'"
    parts = urlsplit(address)
    if parts.scheme != "file":
        return f"pip install 'dmljax[{extra}] @ {address}'"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}{shlex.quote(f'{url2pathname(parts.path)}[{extra}]')}"


def require_onnx(users: str, extra: str) -> None:
    """Raises with the command that installs an extra if the package `onnx` is absent, which the extra brings along."""
    try:
        import_module("onnx")
    except ImportError as error:
        from dmljax.errors import Problem, Unsupported  # imports JAX

        rule = f"{users} need the package onnx"
        raise Unsupported(Problem((), rule, str(error), remedy=command_for(extra))) from None


def _origin() -> Any:
    """The source of dmljax as the installer recorded it; empty for a package index, or if dmljax is not installed."""
    try:
        return json.loads(distribution("dmljax").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return {}
