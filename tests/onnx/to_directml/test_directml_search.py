"""Each operator at each rank, along each axis: a model and its DirectML graph compute the same.

The cases of one operator and rank are nodes of one model, so that they compile together.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import SAMPLED
from onnx import helper, numpy_helper

import dmljax
import dmljax.onnx
from dmljax import directml
from dmljax.directml import Unsupported

RNG = np.random.default_rng(7)
START = RNG.bit_generator.state
SIZES = (2, 3, 4, 5, 2, 3)  # of dimensions, chosen so that neighbors differ
SPACE = (5, 6, 4)
VERSIONS = {"CumProd": 26, "Upsample": 9}
VERSION = 23


class Case(NamedTuple):
    """One node; its inputs at the positions in `known` are initializers."""

    inputs: Sequence[Any]
    attributes: dict[str, Any] = {}
    known: tuple[int, ...] = ()
    outputs: int = 1


# What DirectML has no operator for
REFUSED = {"MaxUnpool 5": "DimensionCount must be 4; got 5", "Resize 5": "DimensionCount must be 1 to 4; got 5"}
OfRank = Callable[[int], Iterator[Case]]
CASES: dict[str, OfRank] = {}  # by operator and rank


def cases(names: str, *ranks: int) -> Callable[[OfRank], OfRank]:
    """Registers a function that makes the cases of these operators at each of these ranks."""

    def register(function: OfRank) -> OfRank:
        CASES.update({f"{name} {rank}": function for name in names.split() for rank in ranks})
        return function

    return register


def floats(*sizes: int) -> Any:
    return RNG.standard_normal(sizes).astype(np.float32)


def positive(*sizes: int) -> Any:
    return np.abs(floats(*sizes)) + np.float32(0.5)


def indices(limit: int, *sizes: int) -> Any:
    return RNG.integers(0, limit, sizes).astype(np.int32)


def whole(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def of_rank(rank: int) -> Any:
    return floats(*SIZES[:rank])


def axes(rank: int) -> Iterator[int]:
    """Each axis; the last one counts from the end if there are several."""
    return iter((*range(rank - 1), -1 if rank > 1 else 0))


# Along axes: a case for each rank and each axis


def layer(rank: int, axis: int) -> Case:
    x, scale, bias = of_rank(rank), floats(*SIZES[:rank][axis:]), floats(*SIZES[:rank][axis:])
    return Case([x, scale, bias], {"axis": axis}) if axis else Case([x, scale], {"axis": axis}, outputs=3)


def joined(rank: int, axis: int) -> Case:
    other = [*SIZES[:rank]]
    other[axis] = 2
    return Case([of_rank(rank), floats(*other), of_rank(rank)], {"axis": axis})


def split(rank: int, axis: int) -> Case:
    return Case([of_rank(rank), whole(1, SIZES[:rank][axis] - 1)], {"axis": axis}, known=(1,), outputs=2)


def tallied(rank: int, axis: int) -> Case:
    return Case([of_rank(rank), np.array(axis)], {"exclusive": axis % 2, "reverse": axis // 2 % 2}, known=(1,))


ALONG_AXES: dict[str, Callable[[int, int], Case]] = {
    "Softmax LogSoftmax Hardmax": lambda rank, axis: Case([of_rank(rank)], {"axis": axis}),
    "LpNormalization": lambda rank, axis: Case([of_rank(rank)], {"axis": axis, "p": 1 + axis % 2}),
    "ArgMax ArgMin": lambda rank, axis: Case([of_rank(rank)], {"axis": axis, "keepdims": axis % 2}),
    "LayerNormalization": layer,
    "RMSNormalization": lambda rank, axis: Case([of_rank(rank), floats(*SIZES[:rank][axis:])], {"axis": axis}),
    "Concat": joined,
    "Split": split,
    "GatherElements": lambda rank, axis: Case(
        [of_rank(rank), indices(SIZES[:rank][axis], *SIZES[:rank])], {"axis": axis}
    ),
    "ScatterElements": lambda rank, axis: Case(
        [of_rank(rank), np.argsort(of_rank(rank), axis).astype(np.int64), of_rank(rank)], {"axis": axis}
    ),
    "CumSum CumProd": tallied,
    "TopK": lambda rank, axis: Case(
        [of_rank(rank), whole(2)], {"axis": axis, "largest": axis % 2}, known=(1,), outputs=2
    ),
}
for names, along in ALONG_AXES.items():
    cases(names, 1, 2, 3, 4, 5)(lambda rank, along=along: (along(rank, axis) for axis in axes(rank)))  # type: ignore[misc]


@cases("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax", 1, 2, 3, 4, 5)
@cases("ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    several = {(0,), (rank - 1,), (0, rank - 1), (*range(rank // 2, rank),), ()}
    for i, reduced in enumerate(sorted(several)):
        yield Case([positive(*SIZES[:rank]), whole(*set(reduced))], {"keepdims": i % 2}, known=(1,))


@cases("MeanVarianceNormalization", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    several = {(0,), (rank - 1,), (*range(rank),), (0, *range(2, rank))}
    return (Case([of_rank(rank)], {"axes": one}) for one in sorted(several))


@cases("Gather", 1, 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    for axis, sizes in itertools.product(axes(rank), ((), (3,), (2, 2))):
        yield Case([of_rank(rank), indices(SIZES[:rank][axis], *sizes)], {"axis": axis})


@cases("GatherND", 1, 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    for batch in range(min(rank, 3)):
        for count in range(1, rank - batch + 1):
            given = [indices(SIZES[batch + i], *SIZES[:batch], 2, 1) for i in range(count)]
            yield Case([of_rank(rank), np.concatenate(given, -1).astype(np.int64)], {"batch_dims": batch})


@cases("ScatterND", 1, 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    for count in range(1, rank + 1):
        given = np.stack([whole(size - 1, 0) for size in SIZES[:count]], -1)
        yield Case([of_rank(rank), given, floats(2, *SIZES[count:rank])])


@cases("OneHot", 1, 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    return (Case([indices(4, *SIZES[:rank]), whole(4), floats(2)], {"axis": axis}, (1,)) for axis in axes(rank + 1))


@cases("Flatten", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    return (Case([of_rank(rank)], {"axis": axis}) for axis in range(-rank, rank + 1))


@cases("Unsqueeze", 1, 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    return (Case([of_rank(rank), whole(axis)], known=(1,)) for axis in axes(rank + 1))


@cases("Squeeze", 1, 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    for axis in axes(rank):
        sizes = [*SIZES[:rank]]
        sizes[axis] = 1
        yield Case([floats(*sizes), whole(axis)], known=(1,))


@cases("Transpose", 1, 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    return (Case([of_rank(rank)], {"perm": perm}) for perm in itertools.permutations(range(rank)))


@cases("ReverseSequence", 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    for batch in (0, 1):
        lengths = 1 + np.arange(SIZES[batch]) % SIZES[1 - batch]
        yield Case([of_rank(rank), lengths], {"batch_axis": batch, "time_axis": 1 - batch})


@cases("Slice", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    for axis, (start, end, step) in itertools.product(axes(rank), ((1, 99, 1), (0, 99, 2), (99, -99, -1))):
        yield Case([of_rank(rank), *map(whole, (start, end, axis, step))], known=(1, 2, 3, 4))


@cases("Pad", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    amounts = whole(*([1] * rank), *(i % 2 for i in range(rank)))
    return (Case([of_rank(rank), amounts], {"mode": mode}, (1,)) for mode in ("constant", "edge", "reflect", "wrap"))


@cases("Expand", 1, 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    yield Case([of_rank(rank), whole(2, *SIZES[:rank])], known=(1,))
    yield Case([floats(*SIZES[: rank - 1], 1), whole(*[1] * (rank - 1), 3)], known=(1,))


@cases("Tile", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    yield Case([of_rank(rank), whole(*(1 + i % 2 for i in range(rank)))], known=(1,))


@cases("Trilu", 2, 3, 4)
def _(rank: int) -> Iterator[Case]:
    for upper, k in itertools.product((0, 1), (-1, 0, 1)):
        yield Case([of_rank(rank), np.array(k)], {"upper": upper}, known=(1,))


@cases("QuantizeLinear", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    yield Case([of_rank(rank), positive()])
    for axis in axes(rank):
        size = SIZES[:rank][axis]
        yield Case([of_rank(rank), positive(size), indices(9, size).astype(np.uint8)], {"axis": axis})


@cases("DequantizeLinear", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    data = indices(99, *SIZES[:rank]).astype(np.uint8)
    yield Case([data, positive()])
    for axis in axes(rank):
        size = SIZES[:rank][axis]
        yield Case([data, positive(size), indices(9, size).astype(np.uint8)], {"axis": axis})


@cases("Resize", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    for axis, mode in itertools.product(axes(rank), ("nearest", "linear")):
        scales = np.ones(rank, np.float32)
        scales[axis] = 1.5
        yield Case([of_rank(rank), None, scales], {"mode": mode}, known=(2,))


# Elements


@cases("Add Div Max Mean Min Mod Mul Pow PRelu Sub Equal Greater LessOrEqual", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    for shorter in range(rank + 1):
        yield Case([positive(*SIZES[:rank]), positive(*SIZES[rank - shorter : rank])])
    yield Case(
        [positive(*(1 if i % 2 else size for i, size in enumerate(SIZES[:rank]))), positive(*SIZES[:rank])][::-1]
    )


@cases("Where", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    for shorter in range(rank + 1):
        yield Case([floats(*SIZES[rank - shorter : rank]) > 0, of_rank(rank), floats(*SIZES[rank - 1 : rank])])


@cases("Clip Erf Gelu HardSwish Identity Relu Shrink Sign", 1, 3, 5, 6)
def _(rank: int) -> Iterator[Case]:
    yield Case([of_rank(rank)])


# Products


@cases("MatMul", 1, 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    whole_batch = SIZES[: max(rank - 2, 0)]
    vector, rows, columns = floats(4), floats(*whole_batch, 2, 4), floats(*whole_batch, 4, 3)
    yield Case([vector, columns if rank > 1 else vector])
    yield Case([rows if rank > 1 else vector, vector])
    if rank > 1:
        yield Case([rows, columns])
    for kept in range(1, rank - 1):  # batches that broadcast
        yield Case([rows, floats(*whole_batch[kept:], 4, 3)])
        yield Case([floats(*([1] * kept), *whole_batch[kept:], 2, 4), columns])
        yield Case([rows, floats(*whole_batch[:kept], *([1] * (rank - 2 - kept)), 4, 3)])


@cases("Gemm", 2)
def _(rank: int) -> Iterator[Case]:
    for a, b, c in itertools.product((0, 1), (0, 1), ((), (3,), (2, 1), (2, 3))):
        inputs = [floats(*(4, 2) if a else (2, 4)), floats(*(3, 4) if b else (4, 3)), floats(*c)]
        yield Case(inputs, {"transA": a, "transB": b, "alpha": 0.5, "beta": 2.0})


@cases("Einsum", 3)
def _(rank: int) -> Iterator[Case]:
    for equation, *given in (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 2, 5)),
        ("ij->ji", (2, 3)),
        ("ij->i", (2, 3)),
        ("i,j->ij", (2,), (3,)),
        ("bij,jk->bki", (2, 3, 4), (4, 5)),
    ):
        yield Case([floats(*sizes) for sizes in given], {"equation": equation})


# Images


@cases("InstanceNormalization", 3, 4, 5, 6)
def _(rank: int) -> Iterator[Case]:
    yield Case([of_rank(rank), floats(3), floats(3)])
    yield Case([floats(2, 1, *SIZES[2:rank]), floats(1), floats(1)], {"epsilon": 0.1})


@cases("GroupNormalization", 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    for groups in (2, 4):
        yield Case([floats(2, 4, *SIZES[2:rank]), floats(4), floats(4)], {"num_groups": groups})


@cases("BatchNormalization", 2, 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    moments = [floats(3), floats(3), floats(3), positive(3)]
    yield Case([of_rank(rank), *moments])
    yield Case([of_rank(rank), *moments], {"training_mode": 1}, outputs=3)


@cases("LRN", 3, 4, 5, 6)
def _(rank: int) -> Iterator[Case]:
    return (Case([of_rank(rank)], {"size": size}) for size in (1, 3))


@cases("Conv", 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    space = rank - 2
    for groups in (1, 2):
        image, filter = floats(2, 4, *SPACE[:space]), floats(6, 4 // groups, *[3] * space)
        yield Case([image, filter, floats(6)], {"group": groups, "pads": [1] * 2 * space})
        yield Case([image, filter], {"group": groups, "strides": [2] * space})


@cases("ConvTranspose", 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    space = rank - 2
    for groups in (1, 2):
        image, filter = floats(2, 4, *SPACE[:space]), floats(4, 3, *[3] * space)
        yield Case([image, filter, floats(3 * groups)], {"group": groups})
        yield Case([image, filter], {"group": groups, "strides": [2] * space, "pads": [1] * 2 * space})


@cases("AveragePool LpPool MaxPool", 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    space, image = rank - 2, floats(2, 3, *SPACE[: rank - 2])
    yield Case([image], {"kernel_shape": [2] * space})
    yield Case([image], {"kernel_shape": [3] * space, "strides": [2] * space, "pads": [1] * 2 * space})


@cases("GlobalAveragePool GlobalLpPool GlobalMaxPool", 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    yield Case([of_rank(rank)])


@cases("MaxUnpool", 3, 4, 5)
def _(rank: int) -> Iterator[Case]:
    sizes, space = (2, 3, *[2] * (rank - 2)), rank - 2
    places = 2 * np.arange(np.prod(sizes)).reshape(sizes)
    yield Case([floats(*sizes), places], {"kernel_shape": [2] * space, "strides": [2] * space})


@cases("DepthToSpace", 4)
def _(rank: int) -> Iterator[Case]:
    return (Case([floats(2, 8, 3, 4)], {"blocksize": 2, "mode": mode}) for mode in ("DCR", "CRD"))


@cases("SpaceToDepth", 4)
def _(rank: int) -> Iterator[Case]:
    yield Case([floats(2, 3, 4, 6)], {"blocksize": 2})


@cases("Upsample", 4)
def _(rank: int) -> Iterator[Case]:
    scales = np.array([1, 1, 2, 3], np.float32)
    return (Case([of_rank(4), scales], {"mode": mode}, (1,)) for mode in ("nearest", "linear"))


# Sequences

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(operator: str, rank: int) -> Iterator[Case]:
    for direction, layout in itertools.product(("forward", "reverse", "bidirectional"), (0, 1)):
        count, rows = 1 + (direction == "bidirectional"), GATES[operator] * 3
        inputs = [floats(2, 4, 5), floats(count, rows, 5), floats(count, rows, 3), floats(count, 2 * rows)]
        yield Case(inputs, {"hidden_size": 3, "direction": direction, "layout": layout}, outputs=2)


CASES |= {f"{operator} 3": functools.partial(recurrent, operator) for operator in GATES}


# The tests

# At the highest rank, operators that become DirectML nodes in their own way.


def model_of(operator: str, every: Sequence[Case]) -> tuple[Any, list[Any]]:
    """A model that has a node for each case, and the arrays of its inputs."""
    nodes, types, arrays, initializers, outputs = [], [], [], [], []
    for i, case in enumerate(every):
        names = ["" if value is None else f"x{i}_{j}" for j, value in enumerate(case.inputs)]
        made = [f"y{i}_{j}" for j in range(case.outputs)]
        nodes.append(helper.make_node(operator, names, made, **case.attributes))
        outputs += [onnx.ValueInfoProto(name=name) for name in made]
        for j, (name, value) in enumerate(zip(names, case.inputs, strict=True)):
            if j in case.known:
                initializers.append(numpy_helper.from_array(value, name))
            elif value is not None:
                element_type = helper.np_dtype_to_tensor_dtype(value.dtype)
                types.append(helper.make_tensor_value_info(name, element_type, value.shape))
                arrays.append(value)
    graph = helper.make_graph(nodes, "every case", types, outputs, initializers)
    imports = [helper.make_opsetid("", VERSIONS.get(operator, VERSION))]
    return dmljax.onnx.load(helper.make_model(graph, opset_imports=imports, ir_version=10)), arrays


def as_tensor(value: Any, desc: Any) -> Any:
    return jnp.asarray(value).astype(desc.data_type.dtype).reshape(desc.sizes)


@SAMPLED
@pytest.mark.parametrize("name", CASES)
def test_a_graph_computes_what_the_model_does(name: str) -> None:
    RNG.bit_generator.state = START  # whichever other tests run
    operator, rank = name.split()
    model, arrays = model_of(operator, [*CASES[name](int(rank))])
    if name in REFUSED:
        with pytest.raises(Unsupported, match=REFUSED[name]):
            model.graph()
        return
    graph = model.graph()
    pairs = zip(arrays, graph.inputs.values(), strict=True)
    results = directml.lower(graph)(*(as_tensor(value, desc) for value, desc in pairs))
    expected = model(*arrays)
    several = expected if isinstance(expected, tuple) else (expected,)
    outputs = results.values() if isinstance(results, dict) else [results]
    for result, reference in zip(outputs, several, strict=True):
        assert result.shape == (reference.shape or (1,))
        np.testing.assert_allclose(np.asarray(result).reshape(reference.shape), reference, rtol=1e-5, atol=1e-6)
