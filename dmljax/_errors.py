"""What dmljax raises. Each message reads `<operator>[ at <level>]: <member> must <rule>; got <value>`."""

from collections.abc import Iterator
from contextlib import contextmanager


class DmlError(Exception):
    """Everything that dmljax refuses, whatever the reason."""


class InvalidDesc(DmlError, ValueError):
    """A value, shape or descriptor breaks a rule of its operator."""


class InvalidType(DmlError, TypeError):
    """An argument is of a kind or data type that its operator does not take."""


class Unsupported(DmlError, NotImplementedError):
    """A valid request that dmljax, or JAX as it is configured, cannot carry out."""


@contextmanager
def within(operator: str) -> Iterator[None]:
    """Puts the operator before the message of a DmlError, so that inner code need not know who called it."""
    with prefixed(operator, ": "):
        yield


@contextmanager
def prefixed(member: str, separator: str = ".") -> Iterator[None]:
    """Puts `member` before the message of a DmlError, which names a member of it."""
    try:
        yield
    except DmlError as error:
        error.args = (f"{member}{separator}{error}",)
        raise
