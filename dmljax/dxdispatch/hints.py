"""The fields of a dispatchable that tell DirectML how to run it, and have no effect on XLA."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from dmljax.checks import parse_enum
from dmljax.descriptors.members import json_string
from dmljax.errors import InvalidDesc, Problem, Where
from dmljax.text import show
from dmljax.types import HeaderEnum


class _ExecutionFlags(HeaderEnum, prefix="DML_EXECUTION_FLAG_"):
    """`DML_EXECUTION_FLAGS`: hints to DirectML, which have no effect on XLA."""

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


def checks_of_hints(fields: Mapping[str, Any]) -> Iterator[Callable[[], Any]]:
    """Yields a check for each hint that a dispatchable gives: that its value is one that DirectML knows."""
    flags = fields.get("executionFlags", [])
    places: list[tuple[Where, Any]] = (
        [(("executionFlags", i), flag) for i, flag in enumerate(flags)] if isinstance(flags, list) else []
    )
    for place, flag in places or [("executionFlags", flags or "NONE")]:
        yield partial(lambda place, flag: parse_enum(_ExecutionFlags, place, json_string(place, flag)), place, flag)
    kinds = ("DmlCompileOp", "DmlCompileGraph")
    kind = fields.get("dmlCompileType", kinds[0])

    def check_kind() -> None:
        if kind not in kinds:
            raise InvalidDesc(Problem("dmlCompileType", f"must be one of {', '.join(kinds)}", show(kind)))

    yield check_kind
