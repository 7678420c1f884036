"""Recurrent networks: RNN, GRU and LSTM."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

import dmljax
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.dimensions import at_most
from dmljax.lowerings.rows.recurrence import Products, QuantizedWeights, input_product, state_product
from dmljax.lowerings.workarounds import quotient
from dmljax.onnx.handlers.registry import NodeCall, handles, handles_contrib, look_up
from dmljax.onnx.handlers.signatures import RecurrentAttributes, RecurrentInputs, Rows
from dmljax.onnx.values.types import Array, Results
from dmljax.ops.networks.recurrence import activation_functions, run_gru, run_lstm, run_rnn
from dmljax.text import show


class _Activation(NamedTuple):
    """The descriptor of an activation, and its default alpha and beta."""

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
    "foward": directml.RecurrentNetworkDirection.FORWARD,  # the misspelled default of GRU's version 1
    "reverse": directml.RecurrentNetworkDirection.BACKWARD,
    "bidirectional": directml.RecurrentNetworkDirection.BIDIRECTIONAL,
}


def _activations(network: RecurrentAttributes, count: int) -> list[directml.Operator] | None:
    """The descriptors of `count` activations, or None for the default ones.

    ONNX lists alphas and betas only for the activations that take them, in order.
    """
    if network.activations is None:
        return None
    alphas, betas = iter(network.activation_alpha), iter(network.activation_beta)
    functions = []
    for name in network.activations[:count]:
        activation = look_up("activations", name.lower(), _ACTIVATIONS)
        numbers = []
        if activation.alpha is not None:
            numbers.append(next(alphas, activation.alpha))
        if activation.beta is not None:
            numbers.append(next(betas, activation.beta))
        functions.append(activation.make(*numbers))
    return functions


def _run(
    function: Callable[..., Any],
    count: int,  # activations per direction
    inputs: RecurrentInputs,
    network: RecurrentAttributes,
    call: NodeCall,
    *,
    cell: Array | None = None,
    **more: Any,
) -> tuple[Array | None, ...]:
    """Computes a network; in layout 1, the batch axis comes before the steps and before the directions."""
    recurrent_direction = look_up("direction", network.direction, _DIRECTIONS)
    if recurrent_direction is directml.RecurrentNetworkDirection.BIDIRECTIONAL:
        count *= 2
    if network.activations is not None and len(network.activations) < count:
        raise InvalidDesc(Problem("activations", f"must have {count} names", show(network.activations)))
    size = inputs.recurrence.shape[-1]
    if network.hidden_size not in (None, size):
        raise InvalidDesc(Problem("hidden_size", f"must be {size} to match the weights", network.hidden_size))

    def swap_batch(x: Array | None) -> Array | None:
        return x.swapaxes(0, 1) if network.layout and x is not None else x

    if cell is not None:
        more["cell_mem_init"] = swap_batch(cell)
    sequence, *last = function(
        input=swap_batch(inputs.x),
        weight=inputs.weight,
        recurrence=inputs.recurrence,
        bias=inputs.bias,
        hidden_init=swap_batch(inputs.hidden),
        sequence_lengths=inputs.lengths,
        activations=_activations(network, count),
        direction=recurrent_direction,
        has_sequence=call.wants(0),
        **more,
    )
    if network.layout and sequence is not None:
        sequence = jnp.moveaxis(sequence, 2, 0)
    return sequence, *map(swap_batch, last)


def _clip_sums(
    function: Callable[..., Any],
    run_functions: Callable[..., Any],
    defaults: Sequence[directml.Operator],
    clip: float | None,
) -> Callable[..., Any]:
    """DirectML's function, or the same network with clipped sums, which DirectML has only for LSTM."""
    if not clip:
        return function

    def run(
        activations: Sequence[directml.Operator] | None, direction: directml.RecurrentNetworkDirection, **inputs: Any
    ) -> Any:
        functions = activation_functions(activations, defaults, direction)
        clipped = [lambda x, f=f: f(jnp.clip(x, -clip, clip)) for f in functions]
        return run_functions(clipped, direction, **inputs)

    return run


@handles("RNN")
def _rnn(inputs: RecurrentInputs, *, network: RecurrentAttributes, call: NodeCall) -> Results:
    run = _clip_sums(dmljax.rnn, run_rnn, directml.RnnDesc.defaults, network.clip)
    return _run(run, 1, inputs, network, call)


@handles("GRU")
def _gru(
    inputs: RecurrentInputs, *, network: RecurrentAttributes, linear_before_reset: int = 0, call: NodeCall
) -> Results:
    run = _clip_sums(dmljax.gru, run_gru, directml.GruDesc.defaults, network.clip)
    return _run(run, 2, inputs, network, call, linear_before_reset=bool(linear_before_reset))


@handles("LSTM")
def lstm(
    inputs: RecurrentInputs,
    cell: Array | None = None,
    peephole: Array | None = None,
    *,
    network: RecurrentAttributes,
    input_forget: int = 0,
    call: NodeCall,
) -> Results:
    """Computes an LSTM."""
    return _run(
        *(dmljax.lstm, 3, inputs, network, call),
        cell=cell,
        peephole=peephole,
        clip_threshold=network.clip or None,
        couple_input_forget=bool(input_forget),
    )


@handles_contrib("DynamicQuantizeLSTM")
def _lstm_of_quantized_weights(
    x: Rows,
    weight: Rows,
    recurrence: Rows,
    bias: Array | None,
    lengths: Array | None,
    hidden: Array | None,
    cell: Array | None,
    peephole: Array | None,
    weight_scale: Array,
    weight_zero_point: Array,
    recurrence_scale: Array,
    recurrence_zero_point: Array,
    *,
    network: RecurrentAttributes,
    input_forget: int = 0,
    call: NodeCall,
) -> Results:
    directions, _, outputs = weight.shape

    def spread(parameter: Array) -> Array:
        # Scales and zero points are per direction or per output.
        return jnp.broadcast_to(parameter.reshape(directions, -1), (directions, outputs))

    def center(weights: Array, zero_point: Array) -> Array:
        # Floats hold these integers, and their sums below 2**24, exactly, and XLA for a CPU multiplies floats faster.
        return weights.swapaxes(1, 2).astype(x.dtype) - spread(zero_point)[..., None].astype(x.dtype)

    weights = center(weight, weight_zero_point), center(recurrence, recurrence_zero_point)
    return _run(
        *(_quantized_lstm, 3, RecurrentInputs(x, *weights, bias, lengths, hidden), network, call),
        cell=cell,
        peephole=peephole,
        clip_threshold=network.clip or None,
        couple_input_forget=bool(input_forget),
        weight_scale=spread(weight_scale),
        recurrence_scale=spread(recurrence_scale),
    )


def _quantized_lstm(
    activations: Sequence[directml.Operator] | None, direction: directml.RecurrentNetworkDirection, **inputs: Any
) -> Any:
    functions = activation_functions(activations, directml.LstmDesc.defaults, direction)
    has_sequence = inputs.pop("has_sequence")
    return run_lstm(functions, direction, has_sequence, None, _QUANTIZED_PRODUCTS, **inputs)


def _quantized_input_product(
    input: Array, weight: QuantizedWeights, is_within: Array | None, reverses: tuple[bool, ...], precision: Any
) -> tuple[Array, ...]:
    """The products of all steps up to the end of the longest sequence, which share a scale."""
    if is_within is not None:
        input = jnp.where(jnp.any(is_within, axis=1, keepdims=True), input, 0)
    integers, scale = _quantize(input, None)
    products = input_product(integers, weight.integers, None, reverses, precision)
    return tuple(product * (scale * each[None, None]) for product, each in zip(products, weight.scale, strict=True))


def _quantized_state_product(state: Array, recurrence: QuantizedWeights, precision: Any) -> Array:
    """The product of a step, whose scales are those of ONNX Runtime with a thread for each sequence.

    With fewer threads, ONNX Runtime divides the batch among them, and the sequences of a thread share a scale.
    """
    batch, size = state.shape[-2:]
    is_one_thread = at_most(batch, 4) and size > 256
    integers, scale = _quantize(state, (-2, -1) if is_one_thread else -1)
    return state_product(integers, recurrence.integers, precision) * (scale * recurrence.scale[..., None, :])


def _quantize(x: Array, axes: int | tuple[int, ...] | None) -> tuple[Array, Array]:
    """Quantizes to 8 bits, minus the zero point, over the range along `axes`, which share a scale."""
    lowest, highest = (reduce(x, axis=axes, keepdims=True, initial=0) for reduce in (jnp.min, jnp.max))
    scale = jnp.where(lowest < highest, quotient(highest - lowest, jnp.full_like(highest, 255)), 1)
    zero_point = jnp.round(quotient(-lowest, scale))
    return jnp.clip(jnp.round(quotient(x, scale)), -zero_point, 255 - zero_point), scale


_QUANTIZED_PRODUCTS = Products(_quantized_input_product, _quantized_state_product)
