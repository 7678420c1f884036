"""The chips that take part in an exchange, and what each receives from the others."""

import pytest

from dmljax.estimation.chips import TARGETS
from dmljax.estimation.hlo.exchange import Exchange, Groups, exchange_of
from dmljax.estimation.hlo.parser import parse
from dmljax.estimation.targets import Place


def groups(attributes: str, devices: int = 8) -> Groups:
    text = f"""HloModule m, num_partitions={devices}
ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  ROOT %y = f32[8]{{0}} all-reduce(%x), channel_id=1, {attributes}, use_global_device_ids=true, to_apply=%add
}}"""
    module = parse(text)
    main = module.computations["main"]
    return exchange_of(main.root, main, module.devices).groups


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("replica_groups={}", (tuple(range(8)),)),
        ("replica_groups=[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups=mesh['a'=2,'b'=4] {'a'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups=mesh['a'=2,'b'=4] {'a','b'}", (tuple(range(8)),)),
        ("replica_groups=mesh['a'=4,'b'=2] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        (
            "replica_groups=mesh['a'=4,'b'=2], device_ids=([2,2,2]T(0,2,1)) {'a':(2)2}",
            ((0, 1), (2, 3), (4, 5), (6, 7)),
        ),
        ("source_target_pairs={{0,1},{1,0}}", ((0, 1), (1, 0))),
    ],
)
def test_groups_are_read_in_each_of_their_forms(attributes: str, expected: Groups) -> None:
    assert groups(attributes) == expected


SIXTEEN = (tuple(range(16)),)


@pytest.mark.parametrize(
    ("collective", "operand", "result", "from_chips", "from_machines"),
    [
        # Half of the array enters each machine of eight chips, which divide it.
        ("all-gather", 10, 160, 150, 10),
        ("reduce-scatter", 160, 10, 150, 10),
        ("all-reduce", 160, 160, 300, 20),
        ("all-to-all", 160, 160, 150, 80),
    ],
)
def test_traffic_into_a_machine_is_divided_among_its_chips(
    collective: str, operand: int, result: int, from_chips: float, from_machines: float
) -> None:
    exchange = Exchange(collective, operand, result, SIXTEEN)
    assert exchange.received_bytes() == from_chips
    assert exchange.received_bytes(lambda chip: chip // 8) == from_machines


def test_the_network_bounds_gpus_of_several_machines() -> None:
    place = Place("h100:16", TARGETS["h100"], ())
    inside, between = (Exchange("all-reduce", 160, 160, groups) for groups in (((0, 1, 2, 3),), SIXTEEN))
    assert place.links(inside) == inside.received_bytes()
    assert place.links(between) == max(300 - 20, 20 * 450 / 50)
    assert place.links(Exchange("all-to-all", 160, 160, SIXTEEN)) == 80 * 450 / 50


class Chip:
    def __init__(self, *coords: int) -> None:
        self.coords = coords


def test_an_exchange_along_an_axis_has_the_links_of_that_axis() -> None:
    slice_ = Place("v5e:2x4", TARGETS["v5e"], tuple(Chip(x, y, 0) for y in range(4) for x in range(2)))
    pairs = Exchange("all-reduce", 8, 8, tuple((2 * i, 2 * i + 1) for i in range(4)))
    columns = Exchange("all-reduce", 8, 8, ((0, 2, 4, 6), (1, 3, 5, 7)))
    every = Exchange("all-reduce", 8, 8, (tuple(range(8)),))
    # One of four links between the pairs, two along the columns, and three together.
    shares = [exchange.received_bytes() / slice_.links(exchange) for exchange in (pairs, columns, every)]
    assert shares == pytest.approx([1 / 4, 2 / 4, 3 / 4])
    halves = Place("v7x:1", TARGETS["v7x"], (Chip(0, 0, 0), Chip(0, 0, 0)))
    assert halves.links(Exchange("all-reduce", 8, 8, ((0, 1),))) == 0  # parts of a chip
