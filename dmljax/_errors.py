"""What dmljax raises. Each message reads `<operator>[ at <level>]: <member> must <rule>; got <value>`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class DmlError(Exception):
    """Everything that dmljax refuses, whatever the reason; `rules` has a sentence for each rule that is broken.

    >>> try:
    ...     one_hot(jnp.array([[0]]), jnp.array([0, 1]), axis=2, depth=3)
    ... except DmlError as error:
    ...     print(error)
    one_hot: axis must be in [-2, 2); got 2
    """

    @property
    def rules(self) -> tuple[str, ...]:
        return self.args

    def __str__(self) -> str:
        return "\n  ".join(self.rules)


class InvalidDesc(DmlError, ValueError):
    """A value, shape or descriptor breaks a rule of its operator.

    >>> TensorDesc("FLOAT32", sizes=(2, 0))
    Traceback (most recent call last):
    dmljax._errors.InvalidDesc: Sizes must be at least 1 each; got {2,0}
    """


class InvalidType(DmlError, TypeError):
    """An argument is of a kind or data type that its operator does not take.

    >>> activation_hardmax([[1.0, 2.0]])
    Traceback (most recent call last):
    dmljax._errors.InvalidType: activation_hardmax: input must be a JAX or NumPy array; got list
    """


class Unsupported(DmlError, NotImplementedError):
    """A valid request that dmljax, or JAX as it is configured, cannot carry out.

    >>> from_json({"Type": "DML_OPERATOR_NO_SUCH_THING"})
    Traceback (most recent call last):
    dmljax._errors.Unsupported: Type must be an operator that `dmljax ops` lists; got 'DML_OPERATOR_NO_SUCH_THING'
    """


@contextmanager
def within(operator: str) -> Iterator[None]:
    """Puts the operator before the message of a DmlError, so that inner code need not know who called it."""
    try:
        yield
    except DmlError as error:
        error.args = headed(operator, error.rules)
        raise


@contextmanager
def prefixed(member: str, separator: str = ".") -> Iterator[None]:
    """Puts `member` before each sentence of a DmlError, which names a member of it."""
    try:
        yield
    except DmlError as error:
        error.args = tuple(f"{member}{separator}{rule}" for rule in error.rules)
        raise


def headed(operator: str, rules: Iterable[str]) -> tuple[str, ...]:
    """`rules` with the operator before the first: it is named once."""
    first, *others = rules
    return (f"{operator}: {first}", *others)


MAX_RULES = 1000  # that one refusal tells: nobody reads more


def all_checked(*checks: Callable[[], Any]) -> tuple[Any, ...]:
    """What each check returns, or one refusal with all that they refuse, of the kind of the first."""
    results, refusals = [], []
    for check in checks:
        try:
            results.append(check())
        except DmlError as error:
            refusals.append(error)
            if len(refusals) == MAX_RULES:
                break
    if refusals:
        raise type(refusals[0])(*(rule for refusal in refusals for rule in refusal.rules))
    return tuple(results)
