"""GenAI's arrays, alone and by name."""

from typing import Any

import numpy as np

from dmljax.errors import InvalidDesc, Problem
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime_genai.configuration import LIBRARY
from dmljax.text import did_you_mean, show


class Tensor(Answering):
    """An array."""

    _REFUSED = dict.fromkeys(("data", "type"), "as_numpy gives the array")

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def as_numpy(self) -> Any:
        return self._array


class NamedTensors(Answering):
    """Arrays by name, as processors make them and `Generator.set_inputs` takes them."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        with refusing(LIBRARY):
            if name not in self._tensors:
                rule = f"no tensor has this name{did_you_mean(name, self._tensors)}"
                raise InvalidDesc(Problem((), rule, show(name)))
            return self._tensors[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._tensors[name] = value if isinstance(value, Tensor) else Tensor(np.array(value))

    def __delitem__(self, name: str) -> None:
        """Removes a tensor; does nothing if there is none."""
        self._tensors.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def keys(self) -> list[str]:
        return [*self._tensors]
