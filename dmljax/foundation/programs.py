"""Jitted functions that say when they are traced, lowered and compiled."""

from collections.abc import Callable, Hashable
from typing import Any

import jax

from dmljax.foundation.progress import interlude, is_heard, report


class Program:
    """A function of `jax.jit`; whoever listens hears the stages before the first call with new types.

    `number` and `count` are its place among the programs that are compiled for the same work. `options` are those of
    `jax.jit`.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, number: int = 1, count: int = 1, **options: Any
    ) -> None:
        self.jitted = jax.jit(function, **options)
        self._name, self._place = name, (number, count, "program") if count > 1 else ()
        self._compiled: set[Hashable] = set()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if is_heard():
            self._compile_in_stages(arguments, options)
        return self.jitted(*arguments, **options)

    def _compile_in_stages(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Compiles what the call runs: JAX keeps traced, lowered and compiled programs, and finds them again."""
        leaves, tree = jax.tree.flatten((arguments, options))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return
        types = (tree, *map(_type_of, leaves))
        if types in self._compiled:
            return
        with interlude():
            report(f"tracing {self._name}")
            traced = self.jitted.trace(*arguments, **options)
            report(f"lowering {self._name}")
            lowered = traced.lower()
            report(f"compiling {self._name}", *self._place)
            lowered.compile()
        self._compiled.add(types)


def _type_of(leaf: Any) -> Hashable:
    """What another program is compiled for: the type of an array, or a static value itself."""
    return (leaf.shape, leaf.dtype, getattr(leaf, "sharding", None)) if hasattr(leaf, "dtype") else leaf
