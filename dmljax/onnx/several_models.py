"""Several models as a function of all their weights."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from dmljax.errors import InvalidType, Problem, within
from dmljax.foundation.programs.store import digest_of
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.model import Model, loaded_graph, require_weights
from dmljax.onnx.sharding import shard_weights, with_auto_mesh
from dmljax.onnx.values.types import DType
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

    @property
    def adapted(self) -> dict[str, TensorType]:
        """The types of the weights that are inputs in a file, which adapters give."""
        by_part = {part: loaded_graph(model).adapted for part, model in self.by_part.items()}
        return self._join_names({part: {tensor.name: tensor for tensor in types} for part, types in by_part.items()})

    @property
    def digest(self) -> str:
        """A digest of all models, but not of their weights' numbers."""
        return digest_of(*(part for name, model in self.by_part.items() for part in (name, loaded_graph(model).digest)))

    def partition(self, mesh: Mesh | AbstractMesh, axis: str) -> dict[str, PartitionSpec]:
        """Chooses how the devices along a mesh axis divide each weight."""
        return self._join_names({part: model.partition(mesh, axis) for part, model in self.by_part.items()})

    def shard(self, mesh: Mesh, specs: Mapping[str, PartitionSpec] | PartitionSpec | None) -> dict[str, Array]:
        """Places the weights on the devices of a mesh, divided by `specs`, which default to `partition`."""
        return shard_weights(mesh, self.partition(mesh, "model") if specs is None else specs, self.weights)

    def call_weights(self, weights: Mapping[str, Any] | None) -> tuple[dict[str, Any], Mesh | None]:
        """The weights of a call, which default to the models' own, and the mesh that they are on."""
        loaded = self.weights
        given = loaded if weights is None else weights
        return with_auto_mesh(require_weights(given, loaded, self.adapted))

    def float_type(self, weights: Mapping[str, Any]) -> Any:
        """The float type that weights have instead of the files'; None if they do not differ."""
        in_files = self._join_names({part: {**loaded_graph(model).types} for part, model in self.by_part.items()})
        types = {weight.dtype for name, weight in weights.items() if weight.dtype != in_files.get(name, weight).dtype}
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


class FolderModel:
    """A model that a folder of ONNX models makes, as users hold it: all their weights, and how a mesh divides them."""

    models: SeveralModels

    @property
    def weights(self) -> dict[str, Array]:
        """The weights of the ONNX models."""
        return self.models.weights

    def partition(self, mesh: Mesh | AbstractMesh, axis: str = "model") -> dict[str, PartitionSpec]:
        """Chooses how the devices along a mesh axis divide each weight, as `Model.partition` does."""
        return self.models.partition(mesh, axis)

    def shard(self, mesh: Mesh, specs: Mapping[str, PartitionSpec] | PartitionSpec | None = None) -> dict[str, Array]:
        """Places the weights on the devices of a mesh, divided by `specs`, which default to `partition`.

        With these weights, `generate` and its like divide sequences or latents along the axis `data` of the mesh, and
        the heads of keys and values along `model`, where their numbers are divisible.
        """
        with within("onnx"):
            return self.models.shard(mesh, specs)


def check_folder(folder: Any, dtype: Any) -> tuple[Path, DType | None]:
    """Checks a folder, and a type for the floats among its weights, which keep their types if it is None."""
    if not isinstance(folder, str | Path):
        raise InvalidType(Problem("folder", "must be a path", show(folder)))
    floats: Any = None
    with contextlib.suppress(TypeError):
        floats = jnp.dtype(dtype) if dtype is not None else None
    if dtype is not None and floats not in FLOATS:
        raise InvalidType(Problem("dtype", "must be a type of floats, such as jnp.bfloat16", show(dtype)))
    return Path(folder), floats


def in_floats(weights: Mapping[str, Array], dtype: DType | None) -> dict[str, Array]:
    """Weights with their floats converted to a type; unchanged if it is None."""
    is_other = {name: dtype is not None and weight.dtype in FLOATS for name, weight in weights.items()}
    return {name: weight.astype(dtype) if is_other[name] else weight for name, weight in weights.items()}
