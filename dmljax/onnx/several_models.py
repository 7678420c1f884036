"""Several models as a function of all their weights."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax.numpy as jnp
from jax import Array
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from dmljax.errors import InvalidType, Problem
from dmljax.onnx.model import Model, require_weights, types_of_weights
from dmljax.onnx.sharding import on_auto_mesh, on_mesh
from dmljax.text import show
from dmljax.types import FLOATS


class SeveralModels:
    """Models by part. If there are several, the names of weights begin with the part, such as `encoder.`."""

    def __init__(self, by_part: Mapping[str, Model]) -> None:
        self.by_part = dict(by_part)

    @property
    def weights(self) -> dict[str, Array]:
        """The weights of all models."""
        return self._join_names({part: model.weights for part, model in self.by_part.items()})

    def partition(self, mesh: Mesh | AbstractMesh, axis: str) -> dict[str, PartitionSpec]:
        """Chooses how the devices along a mesh axis divide each weight."""
        return self._join_names({part: model.partition(mesh, axis) for part, model in self.by_part.items()})

    def shard(self, mesh: Mesh, specs: Mapping[str, PartitionSpec] | PartitionSpec | None) -> dict[str, Array]:
        """Places the weights on the devices of a mesh, divided by `specs`, which default to `partition`."""
        return on_mesh(mesh, self.partition(mesh, "model") if specs is None else specs, self.weights)

    def call_weights(self, weights: Mapping[str, Any] | None) -> tuple[dict[str, Any], Mesh | None]:
        """The weights of a call, which default to the models' own, and the mesh that they are on."""
        loaded = self.weights
        if weights is not None:
            require_weights(weights, loaded)
        return on_auto_mesh(loaded if weights is None else weights)

    def float_type(self, weights: Mapping[str, Any]) -> Any:
        """The float type that weights have instead of the files'; None if they do not differ."""
        file_types = self._join_names({part: dict(types_of_weights(model)) for part, model in self.by_part.items()})
        types = {weight.dtype for name, weight in weights.items() if weight.dtype != file_types[name]}
        return types.pop() if len(types) == 1 else None

    def weights_of(self, part: str, weights: Mapping[str, Any]) -> Mapping[str, Any]:
        """The weights of a model among all weights, by its own names."""
        if len(self.by_part) == 1:
            return weights
        prefix = f"{part}."
        return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}

    def run(self, part: str, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The outputs of a model by name."""
        model = self.by_part[part]
        results: Any = model.apply(self.weights_of(part, weights), **inputs)
        several = results if isinstance(results, tuple) else (results,)
        return dict(zip((tensor.name for tensor in model.outputs), several, strict=True))

    def _join_names(self, of_parts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        if len(of_parts) == 1:
            return next(iter(of_parts.values()))
        return {f"{part}.{name}": value for part, values in of_parts.items() for name, value in values.items()}


class _OfFolder(Protocol):
    @property
    def models(self) -> SeveralModels: ...


M = TypeVar("M", bound=_OfFolder)


def in_floats(dtype: Any, folder: Any, load: Callable[[Path], M]) -> M:
    """Loads a folder, and converts the floats among its weights to a type, or keeps them if it is None."""
    if not isinstance(folder, str | Path):
        raise InvalidType(Problem("folder", "must be a path", show(folder)))
    floats: Any = None
    with contextlib.suppress(TypeError):
        floats = jnp.dtype(dtype) if dtype is not None else None
    if dtype is not None and floats not in FLOATS:
        raise InvalidType(Problem("dtype", "must be a type of floats, such as jnp.bfloat16", show(dtype)))
    loaded = load(Path(folder))
    if dtype is not None:
        for model in loaded.models.by_part.values():
            weights = model.weights.items()
            model.weights = {name: value.astype(floats) if value.dtype in FLOATS else value for name, value in weights}
    return loaded
