"""The errors that dmljax raises. Each carries its problems as data, and renders them here.

An error reads `<operator>[ at <level>]: <member> must <rule>; got <value>`, with a line for each further problem.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax

from dmljax.text import correct_grammar, join_words, json_text

Path = tuple[str | int, ...]  # names of members and indices of elements, from the outermost to the innermost
Where = str | Path  # a path, or a name instead of a path of one name


def path_of(where: Where) -> Path:
    """`where` as a path."""
    return (where,) if isinstance(where, str) else where


@dataclass(frozen=True, init=False, slots=True)
class Problem:
    """One broken rule: the place that breaks it, the rule, what was given there, and perhaps a remedy.

    >>> problem = Problem(("InputTensor", "Sizes", 1), "must be at least 1", 0)
    >>> print(problem)
    InputTensor.Sizes[1] must be at least 1; got 0
    """

    path: Path
    rule: str
    given: str | None
    others: tuple[Path, ...]  # the other members that the rule is about, as their operator names them
    remedy: str | None  # what to write instead

    def __init__(
        self, path: Where, rule: str, given: Any = None, others: Sequence[Path] = (), *, remedy: str | None = None
    ) -> None:
        object.__setattr__(self, "path", path_of(path))
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "given", None if given is None else str(given))
        object.__setattr__(self, "others", tuple(others))
        object.__setattr__(self, "remedy", remedy)

    def inside(self, where: Where) -> "Problem":
        """The same problem, with `where` before its path."""
        return replace(self, path=(*path_of(where), *self.path))

    @property
    def message(self) -> str:
        """The rule, what was given, and the remedy, without the place."""
        given = "" if self.given is None else f"; got {self.given}"
        return correct_grammar(self.rule) + given + (f" ({self.remedy})" if self.remedy else "")

    def __str__(self) -> str:
        place = join_words(map(spell_path, (self.path, *self.others)))
        if not place:
            return self.message
        return f"{place} {self.message}" if self.rule.startswith("must ") else f"{place}: {self.message}"


def spell_path(path: Path) -> str:
    """A path as text: `InputTensor.Sizes[1]`; names that are not identifiers are in brackets and quotes."""
    return "".join(f"[{key}]" if isinstance(key, int) else _spell_name(key) for key in path).lstrip(".")


def _spell_name(name: str) -> str:
    short = name if len(name) <= 100 else f"{name[:45]} ... {name[-45:]}"
    return f".{short}" if short.isidentifier() else f"[{json_text(short)}]"


class DmlError(Exception):
    """The base of all errors of dmljax: `problems` are the broken rules, and `operator` is the operator that refuses.

    >>> try:
    ...     one_hot(jnp.array([[0]]), jnp.array([0, 1]), axis=-3, depth=3)
    ... except DmlError as error:
    ...     print(error)
    ...     print(error.operator, error.problems[0].path, error.problems[0].given)
    one_hot: axis must be in [-2, 2); got -3
    one_hot ('axis',) -3
    """

    operator = ""

    def __init__(self, *problems: Problem | str) -> None:
        super().__init__(*(Problem((), problem) if isinstance(problem, str) else problem for problem in problems))

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.args

    def move_inside(self, where: Where) -> None:
        """Puts `where` before the path of each problem."""
        self.args = tuple(problem.inside(where) for problem in self.problems)

    @property
    def rules(self) -> tuple[str, ...]:
        """A sentence for each problem."""
        return tuple(map(str, self.problems))

    def __str__(self) -> str:
        sentences = "\n  ".join(self.rules)
        return f"{self.operator}: {sentences}" if self.operator else sentences


class InvalidDesc(DmlError, ValueError):
    """A value, shape or descriptor breaks a rule of its operator.

    >>> TensorDesc("FLOAT32", sizes=(2, 0))
    Traceback (most recent call last):
    dmljax.directml.InvalidDesc: Sizes must each be at least 1; got {2,0}
    """


class InvalidType(DmlError, TypeError):
    """An argument is of a kind or data type that its operator does not take.

    >>> activation_hardmax([1.0])
    Traceback (most recent call last):
    dmljax.directml.InvalidType: activation_hardmax: input must be a JAX or NumPy array; ...
    """


class Unsupported(DmlError, NotImplementedError):
    """A valid request that dmljax, or JAX as it is configured, cannot carry out.

    >>> from_json({"Type": "NO_SUCH_THING"})
    Traceback (most recent call last):
    dmljax.directml.Unsupported: Type: unknown operator 'NO_SUCH_THING' (`dmljax ops` ...
    """


# The modules that users import them from, whichever is imported first.
DmlError.__module__ = "dmljax"
InvalidDesc.__module__ = InvalidType.__module__ = Unsupported.__module__ = "dmljax.directml"


class UnknownName(InvalidDesc, KeyError):
    """A mapping has nothing of that name; also a KeyError."""


class UnusableFile(InvalidDesc, OSError):
    """A file cannot be opened; also an OSError, with the system's `errno` and `filename`."""

    def __reduce__(self) -> tuple[Any, ...]:
        reason = {name: getattr(self, name) for name in ("errno", "strerror", "filename")}
        return type(self), self.args, {**vars(self), **reason}


class MissingFile(UnusableFile, FileNotFoundError):
    """There is no file of that name."""


def unusable_file(problem: Problem, error: OSError, filename: str) -> UnusableFile:
    """The error for a file, for the reason that the system gives."""
    file_error = (MissingFile if isinstance(error, FileNotFoundError) else UnusableFile)(problem)
    file_error.errno, file_error.strerror, file_error.filename = error.errno, error.strerror, filename
    return file_error


def hide_frames(error: DmlError) -> None:
    """Removes the frames inside dmljax from the error's traceback, unless JAX shows its own."""
    if jax.config.jax_traceback_filtering != "off":  # type: ignore[attr-defined]
        error.__traceback__ = None


class within:  # noqa: N801  # a statement's word, as `contextlib.suppress` is
    """Names the operator in a DmlError raised inside, so that inner code need not know its caller."""

    def __init__(self, operator: str) -> None:
        self.operator = operator

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, DmlError):
            error.operator = self.operator
            hide_frames(error)


@contextmanager
def inside(where: Where) -> Iterator[None]:
    """Puts `where` before the path of each problem of a DmlError raised inside."""
    try:
        yield
    except DmlError as error:
        error.move_inside(where)
        raise


def require(
    where: Where,
    holds: bool,
    rule: str,
    given: Any = None,
    error: type[DmlError] = InvalidDesc,
    *,
    remedy: str | None = None,
) -> None:
    """Refuses the value at `where` unless the rule holds."""
    if not holds:
        raise error(Problem(where, rule, given, remedy=remedy))


MAX_PROBLEMS = 1000  # in one error: nobody reads more


def all_checked(*checks: Callable[[], Any]) -> tuple[Any, ...]:
    """Returns the results of the checks; if some fail, raises all their problems in an error of the first's type."""
    results, refusals = [], []
    for check in checks:
        try:
            results.append(check())
        except DmlError as error:
            refusals.append(error)
            if len(refusals) == MAX_PROBLEMS:
                break
    if refusals:
        raise type(refusals[0])(*(problem for refusal in refusals for problem in refusal.problems))
    return tuple(results)
