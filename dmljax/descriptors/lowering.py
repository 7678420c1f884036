"""Descriptors and graphs as functions of arrays."""

from collections.abc import Callable
from typing import Any

from dmljax.calls.binding import check_arguments
from dmljax.descriptors.validation import validate
from dmljax.errors import DmlError, hide_frames
from dmljax.foundation.checks import JAX_ARRAYS
from dmljax.types import LATEST, FeatureLevel, Results


@check_arguments
def lower(desc: Any, feature_level: FeatureLevel | str = LATEST) -> Callable[..., Results]:
    """Lowers a descriptor or graph to a function that takes its inputs, by position or name, and returns its outputs.

    The function takes and returns arrays with exactly the descs' sizes and data types, and works under every
    transformation. Pass an array of tensors one after the other, or by name as a sequence; it is returned as a tuple.
    Several outputs are a named tuple with the members' names, or a dictionary for a graph.

    >>> tensor = TensorDesc("FLOAT32", (1, 3))
    >>> hardmax = lower(ActivationHardmaxDesc(input=tensor, output=tensor))
    >>> hardmax(np.array([[1, 5, 5]], "float32")).tolist()
    [[0.0, 1.0, 0.0]]
    """
    validate(desc, feature_level=feature_level)
    desc.require_available()
    compiled, bind, count = desc.compiled(), desc.binder(), desc.input_count

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            if not kwargs and len(args) == count:
                for value in args:
                    if type(value) not in JAX_ARRAYS:
                        break
                else:
                    return compiled(*args)  # which checks them while it is traced
            arrays, keywords = bind(args, kwargs)
            return compiled(*arrays, **keywords)
        except DmlError as error:
            error.operator = desc.title
            hide_frames(error)
            raise

    desc.describe(function)
    function.__module__ = "dmljax.directml"
    return function
