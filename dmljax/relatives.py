"""Finds functions by their names elsewhere: in jax.numpy, NumPy, PyTorch, ONNX and WebNN, and without a prefix."""

import functools
import json
from importlib import resources

from dmljax.directml import OPERATORS
from dmljax.text import did_you_mean

_FAMILY_PREFIXES = ("activation_", "element_wise_logical_", "element_wise_bit_", "element_wise_")


def functions_named(name: str) -> list[str]:
    """The functions that are called `name` without their prefix; capital letters and underscores do not matter."""
    return [one for one in _functions() if _plain(name) in (_plain(one), _plain(_without_prefix(one)))]


def functions_called(name: str) -> list[str]:
    """The functions called `name` here or elsewhere, dmljax's own names first.

    >>> from dmljax.relatives import functions_called
    >>> functions_called("LeakyRelu"), functions_called("pow"), functions_called("relu7")
    (['activation_leaky_relu'], ['element_wise_pow', 'element_wise_constant_pow'], [])
    """
    return list(dict.fromkeys([*functions_named(name), *_elsewhere().get(_plain(name), "").split()]))


def hint(name: str) -> str:
    """`, did you mean X or Y?` for the functions that are called `name`, or for one of a similar name, if any."""
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    called = functions_called(name)
    return f", did you mean {' or '.join(called)}?" if called else did_you_mean(name, _functions())


@functools.cache
def _elsewhere() -> dict[str, str]:
    """The functions by what other libraries call them, as the operators' pages list it."""
    return json.loads((resources.files("dmljax") / "elsewhere.json").read_text())  # type: ignore[no-any-return]


def _functions() -> list[str]:
    return [operator.short_name.lower() for operator in OPERATORS.values()]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _without_prefix(function: str) -> str:
    prefix = next((one for one in _FAMILY_PREFIXES if function.startswith(one)), "")
    return function.removeprefix(prefix)
