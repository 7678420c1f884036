"""All steps of a small LSTM or GRU in one Pallas kernel for GPUs, which keeps the states on the chip.

A program has 16 sequences of the batch, and reads the weights in each step from the GPU's cache.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.lax import platform_dependent  # also where tests replace jax.lax's

ROWS = 16  # the fewest that Triton multiplies
LARGEST = 256  # hidden sizes whose weights a processor reads in less than the time of a launch

Gates = Callable[[int], Any]  # a gate's products with the input, or with the state


def _lstm_step(of_input: Gates, of_state: Gates, state: tuple[Any, ...]) -> tuple[Any, ...]:
    _, cell = state
    i, o, f, c = (of_input(gate) + of_state(gate) for gate in range(4))
    cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(c)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell


def _gru_step(of_input: Gates, of_state: Gates, state: tuple[Any, ...]) -> tuple[Any, ...]:
    (hidden,) = state
    update, reset = (jax.nn.sigmoid(of_input(gate) + of_state(gate)) for gate in range(2))
    new = jnp.tanh(of_input(2) + reset * of_state(2))
    return ((1 - update) * new + update * hidden,)


STEPS: dict[str, tuple[Callable[..., tuple[Any, ...]], int, int]] = {  # with the numbers of gates and states
    "LSTM": (_lstm_step, 4, 2),
    "GRU": (_gru_step, 3, 1),
}


def run_all_steps(kind: str, x: Any, w: Any, r: Any, b: Any) -> Any:
    """All states of a network, (steps, 1, batch, size), as `plain_lstm` and `plain_gru` compute them."""
    step, gates, states = STEPS[kind]
    (steps, batch, _), size = x.shape, r.shape[-1]
    bias = b[0].reshape(2, gates * size)
    products = jnp.matmul(x, w[0].T, preferred_element_type=np.float32) + bias[0]
    weights = r[0].reshape(gates, size, size).swapaxes(1, 2)

    def kernel(products_ref: Any, weights_ref: Any, bias_ref: Any, result_ref: Any) -> None:
        row = pl.program_id(0) * np.int32(ROWS) + lax.iota(np.int32, ROWS)
        column, factor = lax.iota(np.int32, size), lax.iota(np.int32, size)
        mask = jnp.broadcast_to((row < batch)[:, None], (ROWS, size))

        def run_step(t: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            narrow = state[0].astype(weights.dtype)

            def place(gate: int) -> Any:
                return column + np.int32(gate * size)

            def of_input(gate: int) -> Any:
                return triton.load(products_ref.at[t, row[:, None], place(gate)[None]], mask=mask, other=0)

            def of_state(gate: int) -> Any:
                matrix = triton.load(weights_ref.at[gate, factor[:, None], column[None]])
                product = jnp.dot(narrow, matrix, preferred_element_type=np.float32, precision=lax.Precision.DEFAULT)
                return product + triton.load(bias_ref.at[place(gate)])[None]

            after = step(of_input, of_state, state)
            triton.store(result_ref.at[t, row[:, None], column[None]], after[0].astype(x.dtype), mask=mask)
            return after

        zero = jnp.zeros((ROWS, size), np.float32)
        lax.fori_loop(np.int32(0), np.int32(steps), run_step, (zero,) * states)

    call = partial(
        pl.pallas_call,
        kernel,
        grid=(pl.cdiv(batch, ROWS),),
        out_shape=jax.ShapeDtypeStruct((steps, batch, size), x.dtype),
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=1),
        name=f"all_steps_of_{kind.lower()}",
    )
    operands = products, weights, bias[1].astype(np.float32)
    result = platform_dependent(*operands, cpu=call(interpret=True), default=call())
    return result[:, None]
