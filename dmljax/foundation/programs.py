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
        self._place = (name, number, count)
        self._compiled: set[Hashable] = set()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if is_heard():
            self._compile_in_stages(arguments, options)
        return self.jitted(*arguments, **options)

    def _compile_in_stages(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Compiles what the call runs: JAX keeps traced and compiled programs, and finds them again."""
        leaves, tree = jax.tree.flatten((arguments, options))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return
        types = (tree, *map(_type_of, leaves))
        if types not in self._compiled:
            name, *_ = self._place
            with interlude():
                report(f"tracing {name}")
                compile_in_stages(self.jitted.trace(*arguments, **options), *self._place)
            self._compiled.add(types)


def compile_in_stages(traced: jax.stages.Traced, name: str, number: int = 1, count: int = 1) -> jax.stages.Compiled:
    """Lowers and compiles what was traced, and reports both."""
    report(f"lowering {name}")
    lowered = traced.lower()
    report(f"compiling {name}", *((number, count, "program") if count > 1 else ()))
    compiled: jax.stages.Compiled = lowered.compile()
    return compiled


def _type_of(leaf: Any) -> Hashable:
    """What another program is compiled for: the type of an array, or a static value itself."""
    return (leaf.shape, leaf.dtype, getattr(leaf, "sharding", None)) if hasattr(leaf, "dtype") else leaf
