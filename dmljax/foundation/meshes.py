"""Shards weights over a mesh by PartitionSpecs; raises if these do not fit."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from dmljax.errors import InvalidDesc, InvalidType, Path, Problem
from dmljax.text import did_you_mean, join_words, show

OnMesh = Callable[[Path, Any, PartitionSpec | None], Any]


def place_weights(specs: Any, weights: Any, on_mesh: OnMesh, path: Path = ("weights",)) -> Any:
    """Places weights by a PartitionSpec for all of them, or by a mapping with specs for some of them.

    `on_mesh` takes the path of a weight, the weight, and its spec or None.
    """
    place = ("specs", *path[1:])
    if isinstance(specs, Mapping) and isinstance(weights, Mapping):
        for name in specs:
            if name not in weights:
                got = show(name) + did_you_mean(name, map(str, weights))
                raise InvalidDesc(Problem(place, "must name weights", got))
        return {
            name: place_weights(specs.get(name), part, on_mesh, (*path, str(name))) for name, part in weights.items()
        }
    if specs is not None and not isinstance(specs, PartitionSpec):
        names = ", or map names of weights to PartitionSpecs" if isinstance(weights, Mapping) else ""
        raise InvalidType(Problem(place, f"must be a PartitionSpec{names}", show(specs)))

    def on_leaf(keys: Sequence[Any], leaf: Any) -> Any:
        return on_mesh((*path, *(str(getattr(key, "key", key)) for key in keys)), leaf, specs)

    return jax.tree.map_with_path(on_leaf, weights)


def require_fitting(
    path: Path, sizes: Sequence[int], spec: PartitionSpec, mesh: Mapping[str, int], remedy: str | None = None
) -> None:
    """Raises if a spec names axes that the mesh does not have, or divides an array into unequal parts."""
    if len(spec) > len(sizes):
        raise InvalidDesc(Problem(path, f"must have a dimension for each entry of {spec}", tuple(sizes)))
    for dimension, entry in enumerate(spec):
        axes = (entry,) if isinstance(entry, str) else entry or ()
        for axis in axes:
            if axis not in mesh:
                rule = f"must be divided along axes of the mesh, {join_words(mesh)}"
                raise InvalidDesc(Problem(path, rule, show(axis)))
        count = math.prod(mesh[axis] for axis in axes)
        if sizes[dimension] % count:
            which = "first dimension" if dimension == 0 else f"dimension {dimension}"
            rule = f"{which} must be divisible by {count} devices"
            raise InvalidDesc(Problem(path, rule, tuple(sizes), remedy=remedy or "leave it None in the PartitionSpec"))
