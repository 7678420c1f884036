"""The samples of an operator: descriptors with inputs, whose results dmljax and DirectML should agree on."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.conformance.values import fit_values, pair_up, specials_of, surprises_of
from dmljax.conformance.variants import attribute_variants, with_length, with_rank, with_type
from dmljax.descriptors.base import Operator
from dmljax.descriptors.lowering import lower
from dmljax.examples import examples_of, samples_of_calls
from dmljax.functions import HOMES

Arrays = dict[str, NDArray[Any]]
MOST = 6  # samples of attributes per operator, of as many members as possible
# Inputs whose values are not data: positions, lengths, and what has to be positive.
NOT_DATA = ("indices", "lengths", "roi", "scale", "variance", "state", "step", "mask", "zero_point", "quantization")


@dataclass(frozen=True)
class Sample:
    """A descriptor, the values of its inputs by key, and what it shows."""

    reason: str
    desc: Operator
    inputs: Mapping[str, NDArray[Any]]

    def is_same(self, other: "Sample") -> bool:
        """Whether both ask the same."""
        if self.desc != other.desc:
            return False
        return all(array.tobytes() == other.inputs[key].tobytes() for key, array in self.inputs.items())


def samples_of(operator: type[Operator]) -> Sequence[Sample]:
    """The samples of an operator, in an order that does not change."""
    samples: list[Sample] = []
    by_desc: dict[Operator, list[Sample]] = {}
    for sample in _every_sample(operator):
        alike = by_desc.setdefault(sample.desc, [])
        if not any(sample.is_same(other) for other in alike):
            alike.append(sample)
            samples.append(sample)
    return samples


def _every_sample(operator: type[Operator]) -> Iterator[Sample]:
    bases = [Sample(f"example: {e.title}", e.desc, e.arrays(of_inputs=True)) for e in examples_of(operator)]
    calls = resources.files("dmljax.conformance").joinpath("calls.txt").read_text(encoding="utf-8")
    bases += [Sample(e.title, e.desc, e.arrays(of_inputs=True)) for e in samples_of_calls(calls, operator)]
    yield from bases
    attributes = [_vary(bases[0], label, desc) for label, desc in attribute_variants(bases[0].desc)]
    bases += attributes
    yield from _of_types(operator, bases)
    yield from _pick_in_turn(attributes)[:MOST]
    yield from _of_surprises(operator, bases[0])


def _pick_in_turn(samples: Sequence[Sample]) -> list[Sample]:
    """The samples in another order: the first of each member, then the second, and so on."""
    by_member: dict[str, list[Sample]] = {}
    for sample in samples:
        by_member.setdefault(sample.reason.split(" ")[0], []).append(sample)
    turns = itertools.zip_longest(*by_member.values())
    return [sample for turn in turns for sample in turn if sample is not None]


def _vary(base: Sample, reason: str, desc: Operator) -> Sample:
    """A sample of another desc, with the values of a base."""
    inputs = {
        key: fit_values(base.inputs.get(key), tensor, f"{desc.short_name}.{key}")
        for key, tensor in desc.tensors(is_input=True).items()
    }
    return Sample(reason, desc, inputs)


def _of_types(operator: type[Operator], bases: Sequence[Sample]) -> Iterator[Sample]:
    """A sample of each type and each end of the ranks, level by level."""
    known: set[Any] = set()
    for table in (operator.support[level] for level in sorted(operator.support)):
        for field, cell in table.items():
            for i, data_type in enumerate(sorted(cell.data_types)):
                if (field, data_type) in known:
                    continue
                known.add((field, data_type))
                sample = _find_typed(bases, field, data_type)
                if sample is not None:
                    rank = cell.ranks[-(i % 2)]
                    ranked = with_rank(sample.desc, rank)
                    yield sample if ranked is None else _vary(sample, f"{sample.reason}, rank {rank}", ranked)
        first = table[next(iter(table))]
        for rank in sorted({first.ranks[0], first.ranks[-1]}):
            if ("rank", rank) not in known:
                known.add(("rank", rank))
                sample = _find_ranked(bases, rank)
                if sample is not None:
                    yield sample


def _find_typed(bases: Sequence[Sample], field: str, data_type: Any) -> Sample | None:
    for base in bases:
        if not getattr(base.desc, field):
            continue
        desc = with_type(base.desc, field, data_type)
        if desc is not None:
            return _vary(base, f"{desc.member(field).name} {data_type.name}", desc)
    return None


def _find_ranked(bases: Sequence[Sample], rank: int) -> Sample | None:
    for base in bases:
        desc = with_rank(base.desc, rank)
        if desc is not None:
            return _vary(base, f"rank {rank}", desc)
    return None


def _of_surprises(operator: type[Operator], base: Sample) -> Iterator[Sample]:
    tensors = base.desc.tensors(is_input=True)
    data = [key for key in tensors if not any(word in key for word in NOT_DATA)]
    if not data:
        return
    if room_of(operator) == "elementwise":
        specials = [*_of_specials(base, data)]
        yield from specials
        if specials:  # which have all surprises
            return
    first = data[0]
    for label, values in surprises_of(tensors[first].dtype, base.inputs[first]):
        yield replace(base, reason=label, inputs={**base.inputs, first: values})


def _of_specials(base: Sample, data: Sequence[str]) -> Iterator[Sample]:
    """An elementwise operator of all special values of each type."""
    operator, first = type(base.desc), data[0]
    if first not in operator.support[max(operator.support)]:
        return
    for data_type in sorted(operator.support[max(operator.support)][first].data_types):
        typed = with_type(base.desc, first, data_type)
        if typed is None:
            continue
        specials = specials_of(data_type.dtype)
        columns = {key: pair_up(specials, i, len(data)) for i, key in enumerate(data)}
        desc = with_length(typed, len(columns[first]))
        if desc is not None:
            varied = _vary(base, f"special values of {data_type.name}", desc)
            tensors = desc.tensors(is_input=True)
            special = {key: fit_values(columns[key], tensors[key], key) for key in data}
            yield replace(varied, inputs={**varied.inputs, **special})


def room_of(operator: type[Operator]) -> str:
    """The folder of `dmljax/ops` that has an operator, such as `elementwise`."""
    return HOMES[operator.function.__name__].split(".")[-2]


def compute_all(samples: Sequence[Sample]) -> list[Arrays]:
    """The results of the samples by key, computed on a CPU in one program."""
    functions = [lower(sample.desc) for sample in samples]
    arguments = [list(sample.inputs.values()) for sample in samples]

    @jax.jit
    def compute(arrays: list[Any]) -> list[Any]:
        return [function(*each) for function, each in zip(functions, arrays, strict=True)]

    with jax.default_device(jax.devices("cpu")[0]):
        results = compute(arguments)
    return [
        dict(zip(sample.desc.tensors(is_input=False), map(np.asarray, jax.tree.leaves(result)), strict=True))
        for sample, result in zip(samples, results, strict=True)
    ]
