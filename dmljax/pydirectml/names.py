"""Finds PyDirectML's names for operators that other libraries call something else."""

from collections.abc import Sequence

from dmljax.descriptors.search import call_for, functions_called
from dmljax.text import did_you_mean, join_words


def hint(name: str, exported: Sequence[str]) -> str:
    """`, did you mean X?` for a name elsewhere, of the binding or else of dmljax, or for a similar name; or "".

    >>> from dmljax import pydirectml
    >>> from dmljax.pydirectml.names import hint
    >>> hint("softmax", pydirectml.__all__), hint("exp", pydirectml.__all__)
    (', did you mean activation_soft_max?', ', did you mean dmljax.element_wise_exp?')
    """
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    functions = functions_called(name)
    exported_names = {other.replace("_", ""): other for other in exported}
    plain = (function.removeprefix("element_wise_").rstrip("0123456789").replace("_", "") for function in functions)
    suggestions = [
        exported_names[plain_name] for plain_name in dict.fromkeys(plain) if plain_name in exported_names
    ] or [f"dmljax.{function}" for function in functions]
    if suggestions:
        return f", did you mean {join_words(suggestions, 'or')}?"
    return did_you_mean(name, exported) if call_for(name) is None else ""
