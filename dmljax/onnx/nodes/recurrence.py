"""Recurrent networks: RNN, GRU and LSTM."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

import dmljax as dml
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.parameters import Rows, Vector
from dmljax.onnx.registry import Call, handles, one_of
from dmljax.text import show


class _Activation(NamedTuple):
    """An activation by name: its descriptor, with the numbers that are alpha and beta unless the node gives them."""

    make: Callable[..., directml.Operator]
    alpha: float | None = None
    beta: float | None = None


_ACTIVATIONS = {
    "affine": _Activation(lambda alpha, beta: directml.ActivationLinearDesc(alpha=alpha, beta=beta), 1.0, 0.0),
    "elu": _Activation(lambda alpha: directml.ActivationEluDesc(alpha=alpha), 1.0),
    "hardsigmoid": _Activation(
        lambda alpha, beta: directml.ActivationHardSigmoidDesc(alpha=alpha, beta=beta), 0.2, 0.5
    ),
    "leakyrelu": _Activation(lambda alpha: directml.ActivationLeakyReluDesc(alpha=alpha), 0.01),
    "relu": _Activation(directml.ActivationReluDesc),
    "scaledtanh": _Activation(lambda alpha, beta: directml.ActivationScaledTanhDesc(alpha=alpha, beta=beta), 1.0, 1.0),
    "sigmoid": _Activation(directml.ActivationSigmoidDesc),
    "softplus": _Activation(lambda: directml.ActivationSoftplusDesc(steepness=1.0)),
    "softsign": _Activation(directml.ActivationSoftsignDesc),
    "tanh": _Activation(directml.ActivationTanhDesc),
    "thresholdedrelu": _Activation(lambda alpha: directml.ActivationThresholdedReluDesc(alpha=alpha), 1.0),
}

_DIRECTIONS = {
    "forward": directml.RecurrentNetworkDirection.FORWARD,
    "foward": directml.RecurrentNetworkDirection.FORWARD,  # the default that version 1 of GRU spells so
    "reverse": directml.RecurrentNetworkDirection.BACKWARD,
    "bidirectional": directml.RecurrentNetworkDirection.BIDIRECTIONAL,
}


def _activations(
    names: Sequence[str] | None, alphas: Sequence[float], betas: Sequence[float], count: int
) -> list[directml.Operator] | None:
    """The descriptors of `count` activations, or None for the usual ones.

    A list of numbers has one for each activation that takes such a number, in their order, not one for each activation.
    """
    if names is None:
        return None
    given_alphas, given_betas = iter(alphas), iter(betas)
    made = []
    for name in names[:count]:
        activation = one_of("activations", name.lower(), _ACTIVATIONS)
        numbers = []
        if activation.alpha is not None:
            numbers.append(next(given_alphas, activation.alpha))
        if activation.beta is not None:
            numbers.append(next(given_betas, activation.beta))
        made.append(activation.make(*numbers))
    return made


def _run(
    function: Callable[..., Any],
    count: int,  # of the activations of a direction
    arrays: Sequence[Any],
    call: Call,
    *,
    activations: Sequence[str] | None,
    activation_alpha: Sequence[float],
    activation_beta: Sequence[float],
    direction: str,
    hidden_size: int | None,
    layout: int,
    cell: Any = None,
    **more: Any,
) -> Any:
    """The outputs of a network; in layout 1, the batch stands before the steps and before the directions."""
    x, weight, recurrence, bias, lengths, hidden = arrays
    chosen = one_of("direction", direction, _DIRECTIONS)
    if chosen is directml.RecurrentNetworkDirection.BIDIRECTIONAL:
        count *= 2
    if activations is not None and len(activations) < count:
        raise InvalidDesc(Problem("activations", f"must be {count}", show(activations)))
    if hidden_size is not None and recurrence.shape[-1] != hidden_size:
        raise InvalidDesc(Problem("hidden_size", f"must be {recurrence.shape[-1]}, as the weights say", hidden_size))

    def turned(x: Any) -> Any:
        return x.swapaxes(0, 1) if layout and x is not None else x

    if cell is not None:
        more["cell_mem_init"] = turned(cell)
    sequence, *last = function(
        *(turned(x), weight, recurrence, bias, turned(hidden)),
        sequence_lengths=lengths,
        activations=_activations(activations, activation_alpha, activation_beta, count),
        direction=chosen,
        has_sequence=call.wants(0),
        **more,
    )
    if layout and sequence is not None:
        sequence = jnp.moveaxis(sequence, 2, 0)
    return sequence, *map(turned, last)


def _require_no_clip(clip: float | None) -> None:
    if clip:
        raise Unsupported(Problem("clip", "must not be given: DirectML has one for LSTM alone", clip))


@handles("RNN")
def _rnn(
    x: Rows,
    weight: Rows,
    recurrence: Rows,
    bias: Any = None,
    lengths: Vector = None,
    hidden: Rows = None,
    *,
    activations: Sequence[str] = ("Tanh", "Tanh"),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,  # of version 1, which says by it what the outputs of the node say, too
    call: Call,
) -> Any:
    _require_no_clip(clip)
    return _run(
        dml.rnn,
        1,
        (x, weight, recurrence, bias, lengths, hidden),
        call,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        direction=direction,
        hidden_size=hidden_size,
        layout=layout,
    )


@handles("GRU")
def _gru(
    x: Rows,
    weight: Rows,
    recurrence: Rows,
    bias: Any = None,
    lengths: Vector = None,
    hidden: Rows = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
    call: Call,
) -> Any:
    _require_no_clip(clip)
    return _run(
        dml.gru,
        2,
        (x, weight, recurrence, bias, lengths, hidden),
        call,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        direction=direction,
        hidden_size=hidden_size,
        layout=layout,
        linear_before_reset=bool(linear_before_reset),
    )


@handles("LSTM")
def lstm(
    x: Rows,
    weight: Rows,
    recurrence: Rows,
    bias: Any = None,
    lengths: Vector = None,
    hidden: Rows = None,
    cell: Any = None,
    peephole: Any = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
    call: Call,
) -> Any:
    """A network of long short-term memory."""
    return _run(
        dml.lstm,
        3,
        (x, weight, recurrence, bias, lengths, hidden),
        call,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        direction=direction,
        hidden_size=hidden_size,
        layout=layout,
        cell=cell,
        peephole=peephole,
        clip_threshold=clip or None,
        couple_input_forget=bool(input_forget),
    )
