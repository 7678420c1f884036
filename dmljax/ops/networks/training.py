"""Operators for training: ADAM_OPTIMIZER.

16-bit floats are computed in float32, and each result is rounded once.

Args:
    input_parameters: Parameters of the model, as floats.
    input_first_moment: Running mean of the gradients; zeros at first.
    input_second_moment: Running mean of the squared gradients; zeros at first.
    gradient: Gradient of the loss with respect to the parameters.
    training_step: Number of this update, counted from 1.
    learning_rate: Factor of the update.
    beta1: Share of the first moment that an update keeps.
    beta2: Share of the second moment that an update keeps.
    epsilon: Added to the root of the second moment, so that it is not 0.

Returns:
    The updated parameters, and both updated moments.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import Problem, require
from dmljax.lowerings.numbers.derivatives import custom_derivatives
from dmljax.types import FLOAT, UINT32, widened

# ADAM_OPTIMIZER


@calls.result
class AdamOptimizer(NamedTuple):
    """The result of `adam_optimizer`: the parameters and both moments, updated.

    >>> weights, zeros, gradient = (
    ...     jnp.array([1.0, 2.0]),
    ...     jnp.zeros(2),
    ...     jnp.array([4.0, -2.0]),
    ... )
    >>> adam_optimizer(
    ...     weights, zeros, zeros, gradient, 1, beta1=0.5, beta2=0.75
    ... ).second_moment.tolist()
    [4.0, 1.0]
    """

    parameters: Array
    first_moment: Array
    second_moment: Array


@calls.operator_function
def adam_optimizer(
    input_parameters: calls.Operand,
    input_first_moment: calls.Operand,
    input_second_moment: calls.Operand,
    gradient: calls.Operand,
    training_step: ArrayLike,
    learning_rate: calls.FloatNumber = 1e-3,
    beta1: calls.FloatNumber = 0.9,
    beta2: calls.FloatNumber = 0.999,
    epsilon: calls.FloatNumber = 1e-8,
) -> AdamOptimizer:
    """Updates parameters by their gradient with Adam; returns `parameters`, `first_moment` and `second_moment`.

    The moments, which begin as zeros, become `m = beta1 * m + (1 - beta1) * gradient` and
    `v = beta2 * v + (1 - beta2) * gradient**2`. The parameters lose `learning_rate * alpha * m / (sqrt(v) + epsilon)`,
    where `alpha = sqrt(1 - beta2**training_step) / (1 - beta1**training_step)`. Count the steps from 1: at step 0,
    `alpha` divides 0 by 0, and all parameters become NaN.

    `epsilon` is added before the second moment is corrected; Optax and PyTorch add it afterward, so their `epsilon` is
    this one divided by `sqrt(1 - beta2**training_step)`. Under `jax.jit(..., donate_argnums=(0, 1, 2))` the update is
    in place.

    >>> weights, zeros, gradient = (
    ...     jnp.array([1.0, 2.0]),
    ...     jnp.zeros(2),
    ...     jnp.array([4.0, -2.0]),
    ... )
    >>> weights, first, second = adam_optimizer(
    ...     weights, zeros, zeros, gradient, 1, 0.5, 0.5, 0.75, 0.0
    ... )
    >>> weights.tolist(), first.tolist(), second.tolist()
    ([0.5, 2.5], [2.0, -1.0], [4.0, 1.0])
    """
    floats = {
        "input_parameters": input_parameters,
        "input_first_moment": input_first_moment,
        "input_second_moment": input_second_moment,
        "gradient": gradient,
    }
    calls.require_same_shape(**floats)
    arrays = calls.broadcast_operands(calls.float_array, **floats)
    step = calls.number_array("training_step", training_step)
    require("training_step", step.size == 1, "must be a scalar", f"shape {step.shape}")
    dtype = arrays[0].dtype
    wide = widened(dtype)
    x, m, v, g = (x.astype(wide) for x in arrays)
    rate, beta1, beta2, epsilon = (jnp.asarray(number, wide) for number in (learning_rate, beta1, beta2, epsilon))
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    count = step.reshape(()).astype(wide)
    alpha = lax.sqrt(_one_minus_power(beta2, count)) / _one_minus_power(beta1, count)
    x = x - rate * alpha * m / (_root(v) + epsilon)
    return AdamOptimizer(*(x.astype(dtype) for x in (x, m, v)))


@custom_derivatives(
    lambda beta, count: -count * lax.pow(beta, count - 1),
    lambda beta, count: -lax.pow(beta, count) * jnp.where(beta > 0, lax.log(beta), 0),
)
def _one_minus_power(beta: Array, count: Array) -> Array:
    """Computes `1 - beta ** count`, where `pow` would lose half of the digits of a result near 1."""
    exponent = count * lax.log(beta)
    return jnp.where(exponent < -0.25, 1 - lax.pow(beta, count), -lax.expm1(exponent))


@custom_derivatives(lambda v: jnp.where(v > 0, 0.5 * lax.rsqrt(v), 0))
def _root(v: Array) -> Array:
    """Computes the square root, with a derivative of 0 at 0: its argument is the square of the gradient's magnitude."""
    return lax.sqrt(v)


_TENSORS = (
    *("gradient", "input_first_moment", "input_parameters", "input_second_moment"),
    *("output_first_moment", "output_parameters", "output_second_moment"),
)


class AdamOptimizerDesc(dml.Operator, function=adam_optimizer):
    input_parameters: dml.Input
    input_first_moment: dml.Input
    input_second_moment: dml.Input
    gradient: dml.Input
    training_step: dml.Input
    output_parameters: dml.Output
    output_first_moment: dml.Output
    output_second_moment: dml.Output
    learning_rate: dml.Float
    beta1: dml.Float
    beta2: dml.Float
    epsilon: dml.Float
    support = dml.support(FL_3_0=dml.rows(dml.RANK_4, FLOAT, training_step=FLOAT | UINT32))

    def _other_steps(self) -> Iterator[Problem]:
        # The page's text requires UINT32, but its constraints and its table require the type of the parameters.
        # Microsoft's plugin for TensorFlow passes UINT32 with both types of parameters.
        if self.training_step.data_type not in UINT32:
            yield from dml.same_type(*_TENSORS, "training_step").check(self)
        else:
            yield from dml.same_type(*_TENSORS).check(self)

    def _beyond_one(self) -> Iterator[Problem]:
        for field in ("beta1", "beta2"):
            value = getattr(self, field).item
            if not 0 <= value <= 1:
                yield Problem(self.member(field).name, "must be in [0, 1]", value)

    rules = dml.page_rules(
        dml.Rule("All tensors have the same DataType; TrainingStepTensor may have UINT32 instead.", _other_steps),
        dml.same_sizes(*_TENSORS),
        dml.one_element("training_step"),
        dml.Rule("Beta1 and Beta2 are in [0, 1].", _beyond_one),
    )
