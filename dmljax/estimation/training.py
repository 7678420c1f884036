"""Makes a program's gradient, and a step of training with it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from dmljax.errors import InvalidType, require
from dmljax.estimation.placement import ChipProgram, Placed
from dmljax.text import did_you_mean, join_words, show


class Optimizer(NamedTuple):
    """Turns gradients into updates of weights and keeps a state, with the functions that optax's optimizers have."""

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


_RATE = 1e-3
_zeros_like = partial(jax.tree.map, jnp.zeros_like)


def _momentum(grads: Any, state: Any, weights: Any) -> tuple[Any, Any]:
    state = jax.tree.map(lambda mean, grad: 0.9 * mean + grad, state, grads)
    return jax.tree.map(lambda mean: -_RATE * mean, state), state


def _adam(grads: Any, state: Any, weights: Any) -> tuple[Any, Any]:
    count, means, squares = state
    means = jax.tree.map(lambda mean, grad: 0.9 * mean + 0.1 * grad, means, grads)
    squares = jax.tree.map(lambda square, grad: 0.999 * square + 0.001 * grad * grad, squares, grads)
    number = (count + 1).astype(jnp.float32)
    first, second = (1 - decay**number for decay in (0.9, 0.999))

    def update(mean: Any, square: Any, weight: Any) -> Any:
        mean, square = mean / first.astype(mean.dtype), square / second.astype(square.dtype)
        return -_RATE * (mean / (jnp.sqrt(square) + 1e-8) + 1e-4 * weight)

    return jax.tree.map(update, means, squares, weights), (count + 1, means, squares)


OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer(lambda weights: (), lambda grads, state, _: (jax.tree.map(lambda x: -_RATE * x, grads), state)),
    "momentum": Optimizer(_zeros_like, _momentum),
    "adamw": Optimizer(lambda weights: (jnp.zeros((), jnp.int32), _zeros_like(weights), _zeros_like(weights)), _adam),
}


def optimizer_of(choice: Any) -> Any:
    """The optimizer of a name; one of optax's is itself."""
    if not isinstance(choice, str):
        has_both = hasattr(choice, "init") and hasattr(choice, "update")
        rule = "must be a name, or have init and update, as optax's do"
        require("optimizer", has_both, rule, show(choice), InvalidType)
        return choice
    rule = f"must be {join_words(OPTIMIZERS, 'or')}, or one of optax's"
    require("optimizer", choice in OPTIMIZERS, rule, repr(choice) + did_you_mean(choice, OPTIMIZERS))
    return OPTIMIZERS[choice]


def gradient_of(program: ChipProgram, weights: Any) -> tuple[ChipProgram, Any]:
    """The derivative of the outputs' squares by the weights of floats, and these; or else by the inputs."""
    if jax.tree.leaves(_floats(weights)):
        return program._replace(function=partial(_grads, program), donated=()), _floats(weights)
    inputs = tuple(i + 1 for i, x in enumerate(program.inputs) if any(map(_is_float, jax.tree.leaves(x))))
    require(
        "gradient", bool(inputs), "needs weights or inputs of floats", _spell_types((program.weights, program.inputs))
    )
    return program._replace(function=jax.grad(partial(_loss, program), inputs, allow_int=True), donated=()), None


def _grads(program: ChipProgram, weights: Any, *inputs: Any) -> Any:
    return jax.grad(lambda floats: _loss(program, _merge(floats, weights), *inputs))(_floats(weights))


def _loss(program: ChipProgram, weights: Any, *inputs: Any) -> Any:
    results = jax.tree.leaves(program.function(weights, *inputs))
    floats = [result.astype(jnp.float32) for result in results if _is_float(result)]
    require("gradient", bool(floats), "needs a result of floats", _spell_types(results))
    return sum(jnp.vdot(x, x) for x in floats) / 2


def training_step(program: ChipProgram, arguments: Placed, optimizer: Any) -> tuple[ChipProgram, Placed]:
    """A step that updates the weights of floats and the optimizer's state, which is placed as they are."""
    floats = _floats(arguments.weights)
    require("optimizer", bool(jax.tree.leaves(floats)), "needs weights of floats", _spell_types(program.weights))

    def step(weights_and_state: Any, *inputs: Any) -> Any:
        weights, state = weights_and_state
        floats, grads = _floats(weights), _grads(program, weights, *inputs)
        with jax.named_scope("[optimizer]"):
            updates, state = optimizer.update(grads, state, floats)
            floats = jax.tree.map(lambda weight, update: (weight + update).astype(weight.dtype), floats, updates)
        return _merge(floats, weights), state

    state = _place_like_weights(jax.eval_shape(optimizer.init, floats), floats)
    return program._replace(function=step, donated=(0,)), arguments._replace(weights=(arguments.weights, state))


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _floats(weights: Any) -> Any:
    """The weights with None, which is no leaf, where they are not floats."""
    return jax.tree.map(lambda weight: weight if _is_float(weight) else None, weights)


def _merge(new_weights: Any, weights: Any) -> Any:
    return jax.tree.map(
        lambda new, old: old if new is None else new, new_weights, weights, is_leaf=lambda leaf: leaf is None
    )


def _place_like_weights(state: Any, weights: Any) -> Any:
    """Places what a state has for each weight, in its shape, as the weight, and all else whole on each device."""
    structure: Any = jax.tree.structure(weights)
    whole = _replicate(jax.tree.leaves(weights)[0].sharding)

    def like(leaf: Any, weight: Any) -> Any:
        return leaf.update(sharding=weight.sharding if leaf.shape == weight.shape else whole)

    def place(part: Any) -> Any:
        if jax.tree.structure(part) == structure:
            return jax.tree.map(like, part, weights)
        return part.update(sharding=whole)

    return jax.tree.map(place, state, is_leaf=lambda part: jax.tree.structure(part) == structure)


def _replicate(sharding: Sharding) -> Sharding:
    return NamedSharding(sharding.mesh, PartitionSpec()) if isinstance(sharding, NamedSharding) else sharding


def _spell_types(arrays: Any) -> str:
    return ", ".join(jax.typeof(leaf).str_short() for leaf in jax.tree.leaves(arrays)) or "none"
