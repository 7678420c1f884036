"""What a call costs beside the work: `python tests/benchmarks/calls.py` prints a table, in microseconds.

On arrays of a few elements: an eager call beside the function of jax.numpy that computes the same, a lowered descriptor
beside that function under `jax.jit`, and a call that a caller's `jax.jit` traces, when the operator was traced before.
"""

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from timing import Effort, medians

import dmljax
from dmljax import directml
from dmljax.directml import AxisDirection, DataType, Operator, TensorDesc

TRACED_CALLS = 20


@dataclass(frozen=True)
class Computation:
    """One computation, as dmljax and as jax.numpy have it, on the same arrays."""

    dmljax: Callable[..., Any]
    numpy: Callable[..., Any]
    arrays: tuple[Any, ...]
    desc: Operator


def computations() -> dict[str, Computation]:
    """Operators of every family that have a relative in jax.numpy or jax.nn."""
    x = jnp.arange(6, dtype=jnp.float32).reshape(2, 3)
    y, square = x + 1, jnp.ones((4, 4), jnp.float32)
    tensor, matrix = TensorDesc(DataType.FLOAT32, (2, 3)), TensorDesc(DataType.FLOAT32, (4, 4))
    index, byte = TensorDesc(DataType.UINT32, (2, 1)), TensorDesc(DataType.UINT8, (2, 3))
    unary: dict[str, Any] = {"input": tensor, "output": tensor}
    binary: dict[str, Any] = {"a": tensor, "b": tensor, "output": tensor}
    band: dict[str, Any] = {"diagonal_fill_begin": 1, "diagonal_fill_end": 4}
    up = AxisDirection.INCREASING
    return {
        "element_wise_add": Computation(
            dmljax.element_wise_add, jnp.add, (x, y), directml.ElementWiseAddDesc(**binary)
        ),
        "element_wise_max": Computation(
            dmljax.element_wise_max, jnp.maximum, (x, y), directml.ElementWiseMaxDesc(**binary)
        ),
        "element_wise_divide": Computation(
            dmljax.element_wise_divide, jnp.divide, (x, y), directml.ElementWiseDivideDesc(**binary)
        ),
        "element_wise_exp": Computation(dmljax.element_wise_exp, jnp.exp, (x,), directml.ElementWiseExpDesc(**unary)),
        "element_wise_is_nan": Computation(
            dmljax.element_wise_is_nan, jnp.isnan, (x,), directml.ElementWiseIsNanDesc(input=tensor, output=byte)
        ),
        "element_wise_clip": Computation(
            lambda x: dmljax.element_wise_clip(x, 1.0, 3.0),
            lambda x: jnp.clip(x, 1.0, 3.0),
            (x,),
            directml.ElementWiseClipDesc(**unary, min=1, max=3),
        ),
        "element_wise_constant_pow": Computation(
            lambda x: dmljax.element_wise_constant_pow(x, 2.5),
            lambda x: jnp.power(x, 2.5),
            (x,),
            directml.ElementWiseConstantPowDesc(**unary, exponent=2.5),
        ),
        "activation_relu": Computation(dmljax.activation_relu, jax.nn.relu, (x,), directml.ActivationReluDesc(**unary)),
        "activation_leaky_relu": Computation(
            lambda x: dmljax.activation_leaky_relu(x, 0.1),
            lambda x: jax.nn.leaky_relu(x, 0.1),
            (x,),
            directml.ActivationLeakyReluDesc(**unary, alpha=0.1),
        ),
        "activation_softmax1": Computation(
            lambda x: dmljax.activation_softmax1(x, axes=1),
            lambda x: jax.nn.softmax(x, 1),
            (x,),
            directml.ActivationSoftmax1Desc(**unary, axes=(1,)),
        ),
        "argmax": Computation(
            lambda x: dmljax.argmax(x, axes=1),
            lambda x: jnp.argmax(x, 1, keepdims=True),
            (x,),
            directml.ArgmaxDesc(input=tensor, output=index, axes=(1,), axis_direction=up),
        ),
        "diagonal_matrix1": Computation(
            lambda x: dmljax.diagonal_matrix1(x, 0.0, **band),
            jnp.tril,
            (square,),
            directml.DiagonalMatrix1Desc(
                input=matrix, output=matrix, value_data_type=DataType.FLOAT32, value=0, **band
            ),
        ),
    }


def seconds(effort: Effort) -> dict[str, dict[str, dict[str, float]]]:
    """Seconds of an eager call, of a lowered descriptor, and of a call that is traced, of dmljax and its relative."""
    table: dict[str, dict[str, dict[str, float]]] = {"eager": {}, "lowered": {}, "traced": {}}
    for name, one in computations().items():
        rivals: dict[str, Callable[..., Any]] = {"dmljax": one.dmljax, "jax.numpy": one.numpy}
        table["eager"][name] = medians({key: partial(call, *one.arrays) for key, call in rivals.items()}, effort)
        compiled: dict[str, Callable[..., Any]] = {"dmljax": directml.lower(one.desc), "jax.numpy": jax.jit(one.numpy)}
        table["lowered"][name] = medians({key: partial(call, *one.arrays) for key, call in compiled.items()}, effort)
        tracing = medians({key: partial(traced, call, one.arrays) for key, call in rivals.items()}, effort)
        table["traced"][name] = {key: taken / TRACED_CALLS for key, taken in tracing.items()}
    return table


def traced(call: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
    """A function that makes many such calls, traced; a new one each time, so that it is not in JAX's cache."""

    def caller(*arrays: Any) -> Any:
        return [call(*arrays) for _ in range(TRACED_CALLS)]

    return jax.jit(caller).trace(*arrays)


def lines(table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """The table in Markdown: microseconds of dmljax, and how many times those of its relative that is."""
    head = ["operator", *(f"{kind} | over jax.numpy's" for kind in table)]
    rows = [f"| {' | '.join(head)} |", "|---" + "|---:" * (2 * len(table)) + "|"]
    shares: dict[str, list[float]] = {kind: [] for kind in table}
    for name in table["eager"]:
        cells = []
        for kind, each in table.items():
            share = each[name]["dmljax"] / each[name]["jax.numpy"]
            shares[kind].append(share)
            cells += [f"{each[name]['dmljax'] * 1e6:.1f}", f"{share:.2f}"]
        rows.append(f"| {' | '.join([name, *cells])} |")
    means = [cell for each in shares.values() for cell in ("", f"{statistics.geometric_mean(each):.2f}")]
    return [*rows, f"| {' | '.join(['geometric mean', *means])} |"]


if __name__ == "__main__":
    effort = Effort(rounds=1, block_seconds=0.002) if "--quick" in sys.argv else Effort(rounds=21, block_seconds=0.05)
    print("\n".join(lines(seconds(effort))))
