"""Numbers as DxDispatch prints them: by a C++ stream, with six digits."""

import math
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from dmljax._types import FLOATS


def printed(name: str, values: NDArray[Any], *, verbose: bool) -> str:
    """What DxDispatch says of a resource.

    >>> print(printed("x", np.array([0.1, -0.0, 1e7], "float32"), verbose=False))
    Resource 'x': 0.1, -0, 1e+07
    """
    texts = list(_texts(values))
    if not verbose:
        return f"Resource '{name}': {', '.join(texts)}"
    index_width = len(str(len(texts)))
    digits = 2 * values.itemsize
    bits = values.view(f"u{values.itemsize}").tolist()
    lines = [
        f"[{index:{index_width}}] {text} (0x{raw:{digits}X})\n"
        for index, (text, raw) in enumerate(zip(texts, bits, strict=True))
    ]
    return f"Resource '{name}':\n{''.join(lines)}"


def _texts(values: NDArray[Any]) -> Iterable[str]:
    if values.dtype in FLOATS:
        return map("%g".__mod__, values.tolist())
    if values.itemsize == 1:
        # A stream takes them for characters. What is no UTF-8 goes through Python's output as the byte that it is.
        return (bytes([byte]).decode(errors="surrogateescape") for byte in values.tobytes())
    return map(str, values.tolist())


def json_values(values: NDArray[Any]) -> list[Any]:
    """Values for a program: numbers, and what JSON has no number for as DxDispatch's format spells it."""
    if values.dtype not in FLOATS:
        return list(values.tolist())
    return [
        value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        for value in values.tolist()
    ]
