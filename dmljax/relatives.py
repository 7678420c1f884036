"""Functions by what they are called elsewhere: in jax.numpy, NumPy, PyTorch, ONNX and WebNN, and without a prefix."""

from dmljax.descriptors import OPERATORS
from dmljax.descriptors.missing import MISSING, NOT_YET
from dmljax.elsewhere import ELSEWHERE
from dmljax.text import did_you_mean

_FAMILY_PREFIXES = ("activation_", "element_wise_logical_", "element_wise_bit_", "element_wise_")


def functions_named(name: str) -> list[str]:
    """The functions that are called `name` without their prefix; capital letters and underscores do not matter."""
    return [one for one in _functions() if _plain(name) in (_plain(one), _plain(_without_prefix(one)))]


def functions_called(name: str) -> list[str]:
    """The functions that are called `name` here or elsewhere, those of dmljax's own name first.

    >>> from dmljax.relatives import functions_called
    >>> functions_called("LeakyRelu"), functions_called("pow"), functions_called("relu7")
    (['activation_leaky_relu'], ['element_wise_pow', 'element_wise_constant_pow'], [])
    """
    return list(dict.fromkeys([*functions_named(name), *ELSEWHERE.get(_plain(name), "").split()]))


def hint(name: str) -> str:
    """`, did you mean X or Y?` for the functions that are called `name`, or for one of a similar name, if any.

    If another library calls an operator so that DirectML has and dmljax lacks, it says that, too.
    """
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    called, missing = functions_called(name), _missing_called(name)
    meant = f", did you mean {' or '.join(called)}?" if called else ""
    if missing is None:
        return meant or did_you_mean(name, _functions())
    if called:
        return f"{meant} DirectML's {missing} is called that, too; dmljax does not have it yet"
    return (
        NOT_YET if _plain(missing) == _plain(name) else f", which is DirectML's {missing}; dmljax does not have it yet"
    )


def _missing_called(name: str) -> str | None:
    """The first operator that dmljax lacks and that is called `name` here or elsewhere."""
    wanted = _plain(name)
    return next((one for one, called in MISSING.items() if wanted in map(_plain, (one, *called.split()))), None)


def _functions() -> list[str]:
    return [operator.short_name.lower() for operator in OPERATORS.values()]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _without_prefix(function: str) -> str:
    prefix = next((one for one in _FAMILY_PREFIXES if function.startswith(one)), "")
    return function.removeprefix(prefix)
