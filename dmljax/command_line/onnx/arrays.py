"""Arrays for the inputs of a program, from files and from random numbers."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.files import MAX_POINTER_BYTES, PICTURES, find_foreign_content, open_file, unreadable
from dmljax.text import join_words, reason_of

SEED = 0
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?")


def files_by_name(texts: Sequence[str]) -> dict[str, str]:
    """Parses NAME=FILE options; an .npz file needs no name, and provides all its arrays."""
    files: dict[str, str] = {}
    for text in texts:
        name, _, path = text.rpartition("=")  # names may have equals signs
        if name and path:
            if _NUMBER.fullmatch(path) and not Path(path).exists():
                remedy = f"np.save('{name}.npy', np.full(shape, {path})), then --input {name}={name}.npy"
                raise InvalidDesc(Problem("input", "must be NAME=FILE, not a number", text, remedy=remedy))
            files[name] = path
        elif not name and path.lower().endswith(".npz"):
            files |= dict.fromkeys(load_arrays(path), path)
        else:
            raise InvalidDesc(Problem("input", "must be NAME=FILE, or an .npz file", text))
    return files


def array_of_input(path: str, name: str) -> np.ndarray[Any, Any]:
    """The array in an .npy file, or the array of an input in an .npz file, which may also have only one array."""
    loaded = load_arrays(path)
    if isinstance(loaded, np.ndarray):
        return loaded
    key = name if name in loaded or len(loaded) != 1 else next(iter(loaded))
    if key not in loaded:
        rule = f"{Path(path).name} must have an array with the input's name, or only one array"
        raise InvalidDesc(Problem(("input", name), rule, join_words(loaded) or "none"))
    array: np.ndarray[Any, Any] = loaded[key]
    return array


def array_in(path: str) -> np.ndarray[Any, Any]:
    """The array in an .npy file, or the only array in an .npz file."""
    loaded = load_arrays(path)
    arrays = {"": loaded} if isinstance(loaded, np.ndarray) else loaded
    if len(arrays) != 1:
        raise InvalidDesc(Problem((), f"{Path(path).name} must have one array", join_words(arrays) or "none"))
    array: np.ndarray[Any, Any] = next(iter(arrays.values()))
    return array


def load_arrays(path: str) -> Any:
    """Loads the array in an .npy file, or the arrays in an .npz file by name."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return dict(loaded)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, OSError):
            raise unreadable(Path(path), error) from None
        with open_file(Path(path), sys.maxsize) as file:
            foreign = find_foreign_content(file.read(MAX_POINTER_BYTES))
        if foreign is not None:
            raise InvalidDesc(Problem((), f"{Path(path).name} {foreign.rule}", remedy=foreign.remedy)) from None
        if path.lower().endswith((".npy", ".npz")):
            remedy = "np.save('x.npy', array) and np.savez('x.npz', x=array) write such files"
            rule = f"{Path(path).name} has no arrays of numbers"
            reason = "pickled objects or no array" if "pickle" in str(error) else reason_of(error)
            raise InvalidDesc(Problem((), rule, reason, remedy=remedy)) from None
        kinds = ".npy, .npz, " + ", ".join(PICTURES)
        raise InvalidDesc(Problem((), f"{Path(path).name} must be one of {kinds}")) from None


def draw_array(random: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """Draws normally distributed floats, or zeros and ones for integers, which may be indices."""
    is_float = jnp.issubdtype(dtype, jnp.floating)
    return (random.standard_normal(shape) if is_float else random.integers(0, 2, shape)).astype(dtype)
