"""Recurrent networks: the pages' tables and equations in float64, step by step, and cases."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import cases_activation
import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr
from helpers import f32, tensor
from pages import tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, RecurrentNetworkDirection, TensorDesc

NETWORK = "InputTensor WeightTensor RecurrenceTensor BiasTensor HiddenInitTensor"
OUTPUTS = "OutputSequenceTensor OutputSingleTensor"
ACTIVATIONS = "ActivationDescCount ActivationDescs Direction"


SUPPORT = tables(
    """
    RNN GRU: InputTensor WeightTensor RecurrenceTensor BiasTensor HiddenInitTensor OutputSequenceTensor
            OutputSingleTensor; SequenceLengthsTensor
        1_0 4 FLOATS; 4 UINT32
    LSTM: InputTensor WeightTensor RecurrenceTensor BiasTensor HiddenInitTensor CellMemInitTensor PeepholeTensor
            OutputSequenceTensor OutputSingleTensor OutputCellSingleTensor; SequenceLengthsTensor
        1_0 4 FLOATS; 4 UINT32
    """
)
MEMBERS = {
    "RNN": f"{NETWORK} SequenceLengthsTensor {OUTPUTS} {ACTIVATIONS}",
    "GRU": f"{NETWORK} SequenceLengthsTensor {OUTPUTS} {ACTIVATIONS} LinearBeforeReset",
    "LSTM": f"{NETWORK} CellMemInitTensor SequenceLengthsTensor PeepholeTensor {OUTPUTS} OutputCellSingleTensor"
    f" {ACTIVATIONS} ClipThreshold UseClipThreshold CoupleInputForget",
}

# The equations for one sequence in one direction, in float64

Function = Callable[[Any], Any]


def rnn_step(x: Arr, w: Arr, r: Arr, bias: Arr, state: tuple[Arr, Arr], f: Function) -> tuple[Arr, Arr]:
    hidden, cell = state
    of_weight, of_recurrence = np.split(bias, 2)
    return f(w @ x + r @ hidden + of_weight + of_recurrence), cell


def gru_step(
    x: Arr, w: Arr, r: Arr, bias: Arr, state: tuple[Arr, Arr], f: Function, g: Function, *, linear_before_reset: bool
) -> tuple[Arr, Arr]:
    hidden, cell = state
    (wz, wr, wh), (rz, rr, rh) = np.split(w, 3), np.split(r, 3)
    wbz, wbr, wbh, rbz, rbr, rbh = np.split(bias, 6)
    z = f(wz @ x + rz @ hidden + wbz + rbz)
    reset = f(wr @ x + rr @ hidden + wbr + rbr)
    if linear_before_reset:
        new = g(wh @ x + reset * (rh @ hidden + rbh) + wbh)
    else:
        new = g(wh @ x + rh @ (reset * hidden) + rbh + wbh)
    return (1 - z) * new + z * hidden, cell


def lstm_step(
    x: Arr,
    w: Arr,
    r: Arr,
    bias: Arr,
    state: tuple[Arr, Arr],
    f: Function,
    g: Function,
    h: Function,
    *,
    peephole: Arr,
    clip: float,
    couple_input_forget: bool,
) -> tuple[Arr, Arr]:
    hidden, cell = state
    (wi, wo, wf, wc), (ri, ro, rf, rc) = np.split(w, 4), np.split(r, 4)
    wbi, wbo, wbf, wbc, rbi, rbo, rbf, rbc = np.split(bias, 8)
    pi, po, pf = np.split(peephole, 3)
    i = f(np.clip(wi @ x + ri @ hidden + pi * cell + wbi + rbi, -clip, clip))
    forget = f(np.clip(wf @ x + rf @ hidden + pf * cell + wbf + rbf, -clip, clip)) if not couple_input_forget else 1 - i
    c = g(np.clip(wc @ x + rc @ hidden + wbc + rbc, -clip, clip))
    cell = forget * cell + i * c
    o = f(np.clip(wo @ x + ro @ hidden + po * cell + wbo + rbo, -clip, clip))
    return o * h(cell), cell


def network(
    step: Callable[..., tuple[Arr, Arr]],
    input: Any,
    weight: Any,
    recurrence: Any,
    bias: Any = None,
    hidden_init: Any = None,
    sequence_lengths: Any = None,
    cell_mem_init: Any = None,
    *,
    functions: Any,
    direction: RecurrentNetworkDirection = RecurrentNetworkDirection.FORWARD,
    peephole: Any = None,
    **attributes: Any,
) -> tuple[Arr, Arr, Arr]:
    """The outputs of the steps and the last states; `functions` has each direction's activations."""
    input, weight, recurrence = (np.asarray(x).astype(np.float64) for x in (input, weight, recurrence))
    (steps, batch, _), (directions, outputs, hidden) = input.shape, recurrence.shape
    shapes = [(directions, 2 * outputs), *[(directions, batch, hidden)] * 2, (directions, 3 * hidden)]
    bias, hidden_init, cell_mem_init, peephole = (
        np.zeros(shape) if x is None else np.asarray(x).astype(np.float64)
        for x, shape in zip((bias, hidden_init, cell_mem_init, peephole), shapes, strict=True)
    )
    sequence = np.zeros((steps, directions, batch, hidden))
    last = hidden_init.copy(), cell_mem_init.copy()
    for d, b in np.ndindex(directions, batch):
        length = steps if sequence_lengths is None else min(max(int(sequence_lengths[b]), 0), steps)
        goes_back = direction is RecurrentNetworkDirection.BACKWARD or d == 1
        state = last[0][d, b], last[1][d, b]
        attributes_of_direction = attributes | ({"peephole": peephole[d]} if step is lstm_step else {})
        for t in range(length)[:: -1 if goes_back else 1]:
            state = step(
                input[t, b], weight[d], recurrence[d], bias[d], state, *functions[d], **attributes_of_direction
            )
            sequence[t, d, b] = state[0]
        last[0][d, b], last[1][d, b] = state
    return sequence, *last


# Descriptors

STEPS: dict[str, Callable[..., tuple[Arr, Arr]]] = {"RNN": rnn_step, "GRU": gru_step, "LSTM": lstm_step}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LEAKY, SOFTSIGN = directml.ActivationLeakyReluDesc(alpha=0.25), directml.ActivationSoftsignDesc()
SIGMOID, TANH = directml.ActivationSigmoidDesc(), directml.ActivationTanhDesc()
# For the forward direction and the backward one
OF_DIRECTIONS = {
    "RNN": ((TANH,), (SOFTSIGN,)),
    "GRU": ((SIGMOID, TANH), (SIGMOID, LEAKY)),
    "LSTM": ((SIGMOID, TANH, SOFTSIGN), (SIGMOID, TANH, TANH)),
}


def function_of(activation: directml.Operator) -> Function:
    elementwise = cases_activation.ELEMENTWISE[type(activation).short_name]
    return lambda x: elementwise.exact_value(activation, np.asarray(x))


def desc_of(name: str) -> Callable[[Mapping[str, DataType], int], directml.Operator]:
    steps, batch, features, hidden, directions = 4, 3, 2, 2, 2
    outputs = GATES[name] * hidden
    sizes = {
        "input": (1, steps, batch, features),
        "weight": (1, directions, outputs, features),
        "recurrence": (1, directions, outputs, hidden),
        "bias": (1, 1, directions, 2 * outputs),
        "hidden_init": (1, directions, batch, hidden),
        "sequence_lengths": (1, 1, 1, batch),
        "output_sequence": (steps, directions, batch, hidden),
        "output_single": (1, directions, batch, hidden),
    }
    more: dict[str, Any] = {"linear_before_reset": False} if name == "GRU" else {}
    if name == "LSTM":
        state = (1, directions, batch, hidden)
        sizes |= {"cell_mem_init": state, "output_cell_single": state, "peephole": (1, 1, directions, 3 * hidden)}
        more = {"clip_threshold": 1.5, "use_clip_threshold": True, "couple_input_forget": False}

    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        types_of_fields = {field: types.get(field, types["input"]) for field in sizes}
        desc: directml.Operator = directml.OPERATORS[f"DML_OPERATOR_{name}"](
            **{field: TensorDesc(types_of_fields[field], ones(rank, *size)) for field, size in sizes.items()},
            activation_descs=[activation for direction in OF_DIRECTIONS[name] for activation in direction],
            direction=RecurrentNetworkDirection.BIDIRECTIONAL,
            **more,
        )
        return desc

    return make


def oracle(desc: Any, **inputs: Any) -> tuple[Arr, ...]:
    name = type(desc).short_name
    natural = {
        field: x.reshape(x.shape[{"bias": 2, "peephole": 2, "sequence_lengths": 3}.get(field, 1) :])
        for field, x in inputs.items()
    }
    members = [
        member.field for member in desc.members() if member.field in ("linear_before_reset", "couple_input_forget")
    ]
    attributes = {field: getattr(desc, field) for field in members}
    if name == "LSTM":
        attributes["clip"] = desc.clip_threshold.item.item() if desc.use_clip_threshold else np.inf
    count = len(OF_DIRECTIONS[name][0])
    activations = [desc.activation_descs[i : i + count] for i in range(0, len(desc.activation_descs), count)]
    functions = [[function_of(one) for one in each] for each in activations]
    results = network(STEPS[name], **natural, functions=functions, direction=desc.direction, **attributes)
    outputs = zip(("output_sequence", "output_single", "output_cell_single"), results, strict=True)
    return tuple(x for field, x in outputs if getattr(desc, field, None) is not None)


class Network(Case):
    """A case of small numbers, whose sums are exact; lengths range from 0 to more than the number of steps."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> dict[str, Arr]:
        return {
            field: rng.permutation(np.resize([0, 2, 9], tensor.element_count))
            .astype(tensor.dtype)
            .reshape(tensor.sizes)
            if field == "sequence_lengths"
            else (rng.integers(-8, 9, tensor.sizes) / 8).astype(tensor.dtype)
            for field, tensor in desc.tensors(is_input=True).items()
        }

    def check(self, desc: directml.Operator, inputs: dict[str, Arr], outputs: Any) -> None:
        tensors = desc.tensors(is_input=False).values()
        for actual, exact, member in zip(outputs, self.oracle(desc, **inputs), tensors, strict=True):
            assert_near(actual, exact.reshape(member.sizes))
            assert actual.dtype == member.dtype


def assert_near(actual: Any, exact: Any, units: float = 8) -> None:
    """Allows rounding errors: units of float32 relative to the result or 1, and half a unit of a shorter type."""
    actual, exact = np.asarray(actual), np.asarray(exact)
    assert actual.shape == exact.shape
    rounding = 0.51 * float(np.finfo(actual.dtype).eps) if actual.dtype.itemsize < 4 else 0
    unit = float(np.finfo(np.float64 if actual.dtype == np.float64 else np.float32).eps)
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=rounding + units * unit, atol=units * unit)


CASES = {
    name: Network(
        ("input", "sequence_lengths"), desc_of(name), oracle, is_exact=False, absolute=4e-6, domain=(0.2, 0.9)
    )
    for name in STEPS
}


# Refusals


def recurrence_desc(name: str, **changes: Any) -> Any:
    whole: Any = desc_of(name)({"input": DataType.FLOAT32, "sequence_lengths": DataType.UINT32}, 4)
    return replace(whole, **changes)


def owned(*sizes: int) -> TensorDesc:
    return TensorDesc(DataType.FLOAT32, sizes, flags=directml.TensorFlags.OWNED_BY_DML)


RNN_DESC, GRU_DESC, LSTM_DESC = map(recurrence_desc, GATES)

CALLS: dict[str, dict[str, Any]] = {
    name.lower(): {
        "input": np.ones((5, 3, 2), np.float32),
        "weight": np.ones((1, 4 * gates, 2), np.float32),
        "recurrence": np.ones((1, 4 * gates, 4), np.float32),
        "hidden_init": np.ones((1, 3, 4), np.float32),
    }
    for name, gates in GATES.items()
}

REFUSED_DESCS: list[RefusedDesc] = [
    (
        RNN_DESC,
        {"weight": tensor("FLOAT16", 1, 2, 2, 2)},
        "BiasTensor, HiddenInitTensor, ... and WeightTensor must",
    ),
    (RNN_DESC, {"input": f32(2, 4, 3, 2)}, "InputTensor.Sizes must be {1,4,3,2}; got {2,4,3,2}"),
    (GRU_DESC, {"weight": f32(1, 2, 6, 3)}, "WeightTensor.Sizes must be {1,2,6,2}; got {1,2,6,3}"),
    (LSTM_DESC, {"recurrence": f32(1, 1, 8, 2)}, "RecurrenceTensor.Sizes must be {1,2,8,2}; got {1,1,8,2}"),
    (LSTM_DESC, {"bias": f32(1, 2, 1, 16)}, "BiasTensor.Sizes must be {1,1,2,16}; got {1,2,1,16}"),
    (RNN_DESC, {"hidden_init": f32(1, 1, 3, 2)}, "HiddenInitTensor.Sizes must be {1,2,3,2}; got {1,1,3,2}"),
    (LSTM_DESC, {"cell_mem_init": f32(1, 2, 3, 1)}, "CellMemInitTensor.Sizes must be {1,2,3,2}; got {1,2,3,1}"),
    (GRU_DESC, {"sequence_lengths": tensor("UINT32", 1, 1, 3, 1)}, "Sizes must be {1,1,1,3}; got {1,1,3,1}"),
    (LSTM_DESC, {"peephole": f32(1, 1, 2, 8)}, "PeepholeTensor.Sizes must be {1,1,2,6}; got {1,1,2,8}"),
    (RNN_DESC, {"output_sequence": f32(1, 2, 3, 2)}, "OutputSequenceTensor.Sizes must be {4,2,3,2}"),
    (GRU_DESC, {"output_single": f32(4, 2, 3, 2)}, "OutputSingleTensor.Sizes must be {1,2,3,2}"),
    (LSTM_DESC, {"output_cell_single": f32(1, 2, 3, 8)}, "OutputCellSingleTensor.Sizes must be {1,2,3,2}"),
    (GRU_DESC, {"output_sequence": None, "output_single": None}, "at least one output must be given; got none"),
    (RNN_DESC, {"activation_descs": [TANH]}, "ActivationDescCount must be 2; got 1"),
    (GRU_DESC, {"direction": RecurrentNetworkDirection.FORWARD}, "ActivationDescCount must be 2; got 4"),
    (LSTM_DESC, {"activation_descs": [TANH] * 3}, "ActivationDescCount must be 6; got 3"),
    (
        RNN_DESC,
        {"activation_descs": [TANH, directml.ActivationSoftmaxDesc()]},
        "ActivationDescs[1].Type must be an activation that can be fused; got DML_OPERATOR_ACTIVATION_SOFTMAX",
    ),
    (
        RNN_DESC,
        {"activation_descs": [TANH, directml.ActivationTanhDesc(input=f32(1, 1), output=f32(1, 1))]},
        "ActivationDescs[1].InputTensor must not be given",
    ),
    (RNN_DESC, {"input": owned(1, 4, 3, 2)}, "InputTensor.Flags must be NONE; got OWNED_BY_DML"),
    (LSTM_DESC, {"weight": owned(1, 2, 8, 2)}, "WeightTensor.Flags must be NONE; got OWNED_BY_DML"),
    (GRU_DESC, {"weight": owned(1, 2, 6, 2)}, "WeightTensor.Flags must be NONE; got OWNED_BY_DML"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("rnn", {"input": np.ones((5, 2), np.float32)}, InvalidDesc, "input must have 3 dim"),
    ("gru", {"recurrence": np.ones((12, 4), np.float32)}, InvalidDesc, "recurrence must have 3 dim"),
    ("lstm", {"weight": np.ones((1, 12, 2), np.float32)}, InvalidDesc, "* hidden size, input size; got (1, 12, 2)"),
    ("rnn", {"hidden_init": np.ones((3, 4), np.float32)}, InvalidDesc, "hidden_init must have the shape (1, 3,"),
    ("rnn", {"sequence_lengths": np.ones(3, np.float32)}, InvalidType, "must be of an integer type"),
    ("rnn", {"weight": np.ones((1, 4, 2), np.float16)}, InvalidType, "be of float32, as input is; got float16"),
    ("rnn", {"input": np.ones((5, 3, 2), np.int32)}, InvalidType, "input must be of a floating type"),
    ("rnn", {"activations": TANH}, InvalidType, "activations must be a sequence of activations"),
    (
        "rnn",
        {"activations": [directml.ActivationSoftmaxDesc()]},
        InvalidDesc,
        "activations[0] must be an activation without tensors",
    ),
]
