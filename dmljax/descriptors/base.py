"""The base of all descriptors, and the registry of operators."""

import dataclasses
import functools
import inspect
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Protocol,
    Self,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import jax
from jax.export import register_namedtuple_serialization

from dmljax.descriptors.array_arguments import (
    Bind,
    Counts,
    bind_arrays,
    require_64_bits,
    require_match,
    signature,
    type_text,
)
from dmljax.descriptors.members import SCALAR_TYPE, Array, Enumeration, Leaf, Member, MemberKind, Tensor, flag_problems
from dmljax.descriptors.tables import Table, fill_tables
from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, all_checked, within
from dmljax.foundation.checks import NamedThings, set_fields
from dmljax.foundation.precision import full_precision
from dmljax.foundation.scalars import Scalar, ScaleBias, Size2D
from dmljax.foundation.sizes import Sizes, require_sizes, use_member_names, with_leading_ones
from dmljax.text import join_words, nearest, no_attribute_of
from dmljax.types import DataType, FeatureLevel, HeaderEnum

OPERATOR_PREFIX = "DML_OPERATOR_"
OPERATORS: "dict[str, type[Operator]]" = NamedThings("operator", {})
ALIASES: "dict[str, type[Operator]]" = {}  # by other names that directml.h has for types


@dataclass(frozen=True)
class Rule:
    """A rule of an operator's page: a sentence, and a check that yields the problems of a desc that breaks it.

    The sentence names the members by their fields in braces: `{input} and {output} have the same DataType.`
    """

    sentence: str
    check: Callable[[Any], Iterable[Problem]]
    is_of_types: bool = False  # only about data types: sizes can be inferred even if a desc breaks it

    def problems(self, desc: "Operator", feature_level: FeatureLevel) -> Iterable[Problem]:
        """The problems of a desc at a feature level."""
        return self.check(desc)

    def sentence_for(self, operator: "type[Operator]") -> str:
        """The sentence, with the names that the members have in directml.h."""
        return self.sentence.format_map({member.field: member.name for member in operator.members()})


@dataclass(frozen=True)
class LevelRule(Rule):
    """A rule that depends on the feature level: the check takes the desc and the level."""

    check: Callable[[Any, FeatureLevel], Iterable[Problem]]  # type: ignore[assignment]

    def problems(self, desc: "Operator", feature_level: FeatureLevel) -> Iterable[Problem]:
        """The problems of a desc at a feature level."""
        return self.check(desc, feature_level)


class SizesRule(Rule):
    """A rule of sizes, checked only if all ranks are supported and the rules before the first rule of sizes hold."""


class Lowerable(ABC):
    """A descriptor or a graph: what `validate`, `lower` and `to_json` take."""

    if not TYPE_CHECKING:  # a type checker refuses unknown names by itself

        def __getattr__(self, name):
            from dmljax.descriptors.spellings import hint_for_attribute

            raise no_attribute_of(self, name, hint_for_attribute(self, name))

        def __call__(self, *args, **kwargs):
            remedy = "use dmljax.directml.lower(desc)(*arrays)"
            with within(self.title):
                raise InvalidType(Problem((), "a descriptor does not compute", remedy=remedy))

    @property
    @abstractmethod
    def title(self) -> str:
        """Its name in errors."""

    @abstractmethod
    def problems(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """Lists why a device of this level refuses it."""

    @abstractmethod
    def require_available(self) -> None:
        """Raises if a tensor has a 64-bit type, unless `jax_enable_x64` is set."""

    @property
    @abstractmethod
    def input_count(self) -> int:
        """How many arrays it takes by position."""

    @abstractmethod
    def compiled(self) -> Callable[..., Any]:
        """The function of JAX arrays that `lower` calls, which checks them while it is traced."""

    @abstractmethod
    def binder(self) -> Bind:
        """Returns a function that checks and converts the arguments of calls that `compiled` does not take directly."""

    @abstractmethod
    def describe(self, function: Any) -> None:
        """Names and documents the function that `lower` returns."""

    @abstractmethod
    def json(self) -> dict[str, Any]:
        """The JSON object that `to_json` returns."""


class Call(Protocol):
    """A call of an operator's function, from which `implied` members follow."""

    operator: Any
    outputs: list[tuple[Any, tuple[int, ...]]]  # types and sizes

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The arrays by argument, each with sizes and a type, or None if absent."""

    def argument(self, name: str) -> Any:
        """The value that the function is called with."""


Derived = dict[str, Callable[[Any], Any]]
Implied = dict[str, Callable[[Call], Any]]


@dataclass(frozen=True)
class HasOutput:
    """An argument that says whether optional outputs are present."""

    fields: tuple[str, ...]

    def __call__(self, desc: "Operator") -> bool:
        return any(getattr(desc, field) is not None for field in self.fields)


class _Signature:
    """The signature of a descriptor's class, as `help` shows it: its members, keyword-only."""

    def __get__(self, instance: object, operator: "type[Operator]") -> inspect.Signature:
        fields: tuple[Any, ...] = dataclasses.fields(operator) if dataclasses.is_dataclass(operator) else ()
        return inspect.Signature([_parameter(field) for field in fields])


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Operator(Lowerable):
    """The base of all descriptors: frozen dataclasses that mirror the `DML_*_OPERATOR_DESC` of directml.h.

    A subclass names the `function` that it is lowered to, whose name determines its type. It annotates its members in
    the header's order, and has its page's support tables and rules as data; it is a dataclass without a decorator. Its
    `function` is called with the members by name, or by the names in `arguments` and `spread`, and with what is
    `derived`; `implied` turns a call of the function back into a desc. A subclass may override `attributes`, and
    `natural_sizes` if the function's arrays have other sizes than the tensors. `infer` takes the function's arguments,
    with sizes in place of arrays, and returns the sizes of the output, those of each output by its field, or an object
    that has them as `sizes`. An operator may have a member called `type` or `function`: `type(desc).type` is always the
    operator's type. A subclass of an operator with an `alias` is that operator by another name that directml.h has.

    >>> [member.name for member in OPERATORS["DML_OPERATOR_ONE_HOT"].members()]
    ['IndicesTensor', 'ValuesTensor', 'OutputTensor', 'Axis']
    """

    type: ClassVar[str]
    short_name: ClassVar[str]  # the type without its prefix
    spelling: ClassVar[str]  # the type as JSON spells it: an alias, for a desc that was read by that name
    support: ClassVar[Mapping[FeatureLevel, Table]]
    rules: ClassVar[tuple[Rule, ...]] = ()  # of the page, besides the support tables
    function: ClassVar[Callable[..., Any]]
    infer: ClassVar[Callable[..., Any]]
    arguments: ClassVar[Mapping[str, str]] = {}  # from a member to the function's argument, where their names differ
    spread: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # the function's arguments for the tensors of an array
    derived: ClassVar[Derived] = {}  # arguments that are not members, computed from a desc
    implied: ClassVar[Implied] = {}  # members that are not arguments, computed from a call: see Call
    has_images: ClassVar[bool] = False  # tensors have at least two spatial dimensions; arrays may have one
    has_leading_ones: ClassVar[bool] = False  # tensors may have leading 1s that the function's arrays do not have
    Outputs: ClassVar[Any] = None  # the named tuple of the outputs, where an operator has several
    __signature__: ClassVar[Any] = _Signature()
    _members: ClassVar[tuple[Member, ...]] = ()

    def __init_subclass__(
        cls,
        type: str | None = None,
        function: Callable[..., Any] | None = None,
        infer: Callable[..., Any] | None = None,
        alias: str | None = None,
    ) -> None:
        if infer is not None:
            cls.infer = staticmethod(infer)
        if function is not None:
            name = type or OPERATOR_PREFIX + function.__name__.upper()
            header_name = name.removeprefix(OPERATOR_PREFIX)
            cls.__doc__ = cls.__doc__ or f"`DML_{header_name}_OPERATOR_DESC`, lowered to `{function.__name__}`."
        # Write once below what a dataclass would generate: generating it takes a millisecond for each class.
        dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=True)(cls)
        declared = dataclasses.fields(cls)  # type: ignore[arg-type]  # it is a dataclass now
        # Annotations are strings where their module has `from __future__ import annotations`.
        is_text = any(isinstance(field.type, str) for field in declared)
        hints = get_type_hints(cls, include_extras=True) if is_text else {field.name: field.type for field in declared}
        cls._members = tuple(_member(field, hints[field.name]) for field in declared)
        if function is not None:
            cls.function = staticmethod(function)
            cls.type, cls.short_name, cls.spelling = name, name.removeprefix(OPERATOR_PREFIX), name
            _register(cls)
        if alias is not None:
            ALIASES[alias], cls.spelling = cls, alias

    def __init__(self, *args: Any, **values: Any) -> None:
        with within(type(self).type):
            if args:
                rule = "pass the members by name"
                raise InvalidType(Problem((), rule, f"{len(args)} by position", remedy=type(self).called()))
            fields = [member.field for member in self._members]
            meant = {key: self._field_meant(key) for key in values if key not in fields}
            if problems := (*self._unknown_members(meant), *self._missing_members({*values, *meant.values()})):
                raise InvalidType(*problems)
            data_type = None
            for member in self._members:
                value = values.get(member.field, member.default)
                if not (value is None and member.is_optional):
                    value = member.kind.coerce(member.name, value, data_type)
                set_fields(self, **{member.field: value})
                data_type = value if isinstance(value, DataType) else data_type
            for problem in self._differing_lengths():
                raise InvalidDesc(problem)

    def _unknown_members(self, meant: Mapping[str, str | None]) -> Iterator[Problem]:
        """Yields a problem for keys that are no members, with the fields that they may mean."""
        counts = {name.lower() for name in self.json_fields()} - {member.name.lower() for member in self._members}
        lengths = [key for key in meant if key.replace("_", "").lower() in counts]
        if len(meant) > 1:
            hints = {key: "leave it out" if key in lengths else field for key, field in meant.items()}
            got = join_words(f"{key} ({hint})" if hint else key for key, hint in hints.items())
        elif lengths:
            got = f"{lengths[0]}, which is the length of an array; leave it out"
        else:
            got = "".join(f"{key}, did you mean {field}?" if field else key for key, field in meant.items())
        if meant:
            rule = f"the members must be among {', '.join(member.field for member in self._members)}"
            yield Problem((), rule, got)

    @classmethod
    def _field_meant(cls, key: str) -> str | None:
        """The field that is spelled as in the header, or has a similar name; or None."""
        return cls.field_called(key) or nearest(key, [member.field for member in cls._members])

    @classmethod
    def field_called(cls, name: str) -> str | None:
        """The field of a member, by its name in directml.h in any case, with or without underscores; or None."""
        plain = name.replace("_", "").lower()
        return next((member.field for member in cls._members if member.name.lower() == plain), None)

    def _missing_members(self, present: Container[str | None]) -> Iterator[Problem]:
        required = (member.field for member in self._members if member.default is dataclasses.MISSING)
        missing = [(field,) for field in required if field not in present]
        if missing:
            yield Problem(missing[0], "must be given", "none", missing[1:])

    def _differing_lengths(self) -> Iterator[Problem]:
        """Yields a problem for arrays that share a count member but differ in length."""
        lengths: dict[str, dict[str, int]] = {}
        for member in self._members:
            value = getattr(self, member.field)
            if member.kind.count is not None and value is not None:
                lengths.setdefault(member.kind.count, {})[member.name] = len(value)
        for count, by_name in lengths.items():
            if len(set(by_name.values())) > 1:
                first, *others = ((name,) for name in by_name)
                yield Problem(first, f"must have the same length, {count}", join_words(by_name.values()), others)

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, member.field) for member in self._members)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        values = [(member, getattr(self, member.field)) for member in self._members]
        parts = (f"{member.field}={member.as_code(value)}" for member, value in values if value != member.default)
        return f"{type(self).__name__}({', '.join(parts)})"

    @classmethod
    def called(cls) -> str:
        """How to write a desc: `ActivationReluDesc(input=..., output=...)`."""
        return f"{cls.__name__}({', '.join(f'{member.field}=...' for member in cls._members)})"

    @classmethod
    def members(cls) -> tuple[Member, ...]:
        """The members in the header's order, counts of arrays left out."""
        return cls._members

    @classmethod
    def member(cls, field: str) -> Member:
        """The member that `field` mirrors."""
        return next(member for member in cls._members if member.field == field)

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        """The names that JSON may give: the members, and the counts of those that are arrays."""
        counts = dict.fromkeys(member.kind.count for member in cls._members if member.kind.count is not None)
        return (*(member.name for member in cls._members), *counts)

    @classmethod
    def _input_fields(cls) -> Sequence[str]:
        return [member.field for member in cls._members if member.tensor_kind and member.tensor_kind.is_input]

    def leaves(self, *, is_input: bool | None = None) -> tuple[Leaf, ...]:
        """The tensors that are present, in the header's order: all of them, or only the inputs or outputs."""
        return self._leaves[is_input]

    @functools.cached_property
    def _leaves(self) -> dict[bool | None, tuple[Leaf, ...]]:
        leaves_by_direction: dict[bool | None, list[Leaf]] = {None: [], False: [], True: []}
        for member in self._members:
            kind, value = member.tensor_kind, getattr(self, member.field)
            if kind is None or value is None:
                continue
            places = enumerate(value) if isinstance(value, tuple) else [(None, value)]
            new_leaves = [Leaf(member, index, tensor) for index, tensor in places]
            leaves_by_direction[None] += new_leaves
            leaves_by_direction[kind.is_input] += new_leaves
        return {is_input: tuple(leaves) for is_input, leaves in leaves_by_direction.items()}

    def tensors(self, *, is_input: bool | None = None) -> dict[str, TensorDesc]:
        """The tensors that are present by their keys, `input` or `inputs[0]`; see `leaves`."""
        return {leaf.key: leaf.tensor for leaf in self.leaves(is_input=is_input)}

    @property
    def title(self) -> str:
        """Its name in errors: the type."""
        return type(self).type

    def problems(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """Lists why a device of this level refuses it: its support table, its outputs' flags and its page's rules."""
        support = self.own_support()
        tables = [table for introduced, table in sorted(support.items()) if introduced <= feature_level]
        if not tables:
            yield Problem((), f"the feature level must be at least {min(support)}", feature_level)
            return
        for leaf in self.leaves():
            yield from tables[-1][leaf.member.field].problems(leaf.path, leaf.tensor)
        yield from flag_problems(self.leaves(is_input=False))
        yield from self.rule_problems(feature_level)

    def rule_problems(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """Yields the problems that the rules of the operator's page find in this desc."""
        fits = self._has_known_ranks
        for rule in self.rules:
            if isinstance(rule, SizesRule):
                yield from rule.problems(self, feature_level) if fits else ()
                continue
            broken = tuple(rule.problems(self, feature_level))
            fits = fits and (rule.is_of_types or not broken)
            yield from broken

    @property
    def _has_known_ranks(self) -> bool:
        """Whether the tensors have ranks that some feature level supports."""
        support = self.own_support()
        newest = support[max(support)]
        return all(leaf.tensor.rank in newest[leaf.member.field].ranks for leaf in self.leaves())

    def own_support(self) -> Mapping[FeatureLevel, Table]:
        """The support tables that hold for this desc: those of its operator, unless a member narrows them down."""
        return type(self).support

    # Sizes

    def natural_sizes(self) -> dict[str, Sizes]:
        """The sizes of the function's arrays, by field, where they differ from the tensors'."""
        return {}

    def argument_paths(self) -> dict[str, Path]:
        """The places of the function's arguments in directml.h."""
        outputs = self.leaves(is_input=False)
        places: dict[str, Path] = {"output_sizes": (*outputs[0].path, "Sizes")} if outputs else {}
        return places | {self.arguments.get(member.field, member.field): (member.name,) for member in self._members}

    def inferred_sizes(self, *, is_draft: bool = False) -> dict[str, Any]:
        """Infers the sizes of the outputs present, by their keys; raises an error if the inputs do not fit together.

        The outputs' own sizes do not matter.
        """
        sizes = {field: _sizes(getattr(self, field)) for field in self._input_fields()}
        natural = self.natural_sizes()
        arguments = sizes | natural | self.attributes()
        if is_draft:
            arguments.pop("output_sizes", None)
        infer, outputs = type(self).infer, self.leaves(is_input=False)
        with use_member_names(self.argument_paths(), has_leading_ones=self.has_leading_ones):
            all_checked(*(partial(require_sizes, field, sizes[field], shape) for field, shape in natural.items()))
            sizes_of_outputs = infer(**_select_arguments(infer, arguments))
        sizes_of_outputs = getattr(sizes_of_outputs, "sizes", sizes_of_outputs)
        sizes_by_key: dict[str, Any] = {}
        for leaf in outputs:
            member_sizes = (
                sizes_of_outputs[leaf.member.field] if isinstance(sizes_of_outputs, dict) else sizes_of_outputs
            )
            shape = member_sizes if leaf.index is None else member_sizes[leaf.index]
            sizes_by_key[leaf.key] = (
                with_leading_ones(shape, leaf.tensor.rank) if self.has_leading_ones else tuple(shape)
            )
        return sizes_by_key

    def with_inferred_sizes(self, feature_level: FeatureLevel) -> "Operator":
        """Returns the desc with inferred output sizes; the desc itself if its other members break a rule."""
        before = takewhile(lambda rule: not isinstance(rule, SizesRule), self.rules)
        shapes = (rule for rule in before if not rule.is_of_types)
        fits = self._has_known_ranks and not any(True for rule in shapes for _ in rule.problems(self, feature_level))
        if not self._has_implied_sizes or not fits:
            return self
        try:
            sizes = self.inferred_sizes(is_draft=True)
        except InvalidDesc:
            return self
        outputs: dict[str, Any] = {}
        for leaf in self.leaves(is_input=False):
            tensor, field = replace(leaf.tensor, sizes=sizes[leaf.key]), leaf.member.field
            outputs[field] = tensor if leaf.index is None else (*outputs.get(field, ()), tensor)
        return type(self)(**{member.field: getattr(self, member.field) for member in self._members} | outputs)

    @property
    def _has_implied_sizes(self) -> bool:
        """Whether the sizes of the outputs follow from the other members."""
        parameters = inspect.signature(type(self).infer).parameters if hasattr(type(self), "infer") else {}
        sizes = parameters.get("output_sizes")
        return bool(parameters) and (sizes is None or sizes.default is not inspect.Parameter.empty)

    # The function

    def attributes(self) -> dict[str, Any]:
        """The function's arguments besides its arrays: members other than tensors, the first output's type and sizes.

        A scalar is passed as a number of its data type, so the member with that data type is left out.
        """
        fields = [member.field for member in self._members if not member.tensor_kind and member.kind != SCALAR_TYPE]
        values = {self.arguments.get(field, field): _number(getattr(self, field)) for field in fields}
        outputs = self.leaves(is_input=False)
        output_arguments = (
            {"dtype": outputs[0].tensor.dtype, "output_sizes": outputs[0].tensor.sizes} if outputs else {}
        )
        arguments = _select_arguments(type(self).function, values | output_arguments)
        return arguments | {name: derive(self) for name, derive in self.derived.items()}

    def compute(self, **inputs: Any) -> Any:
        """Computes the outputs from arrays that have the sizes and types of the inputs that are present.

        An array of tensors is passed as a sequence of arrays. Several outputs are returned as a tuple of those present.
        """
        arrays: dict[str, Any] = {field: None for field in self._input_fields() if field not in self.spread}
        natural = self.natural_sizes()
        for field, value in inputs.items():
            if field in self.spread:
                arrays |= zip(self.spread[field], value, strict=False)
                continue
            arrays[field] = value if isinstance(value, Sequence) else _reshape(value, natural.get(field, value.shape))
        with full_precision():
            result = type(self).function(**arrays, **self.attributes())
        outputs = self.leaves(is_input=False)
        if not outputs:  # a fused activation
            return result
        tensors = [_reshape(x, leaf.tensor.sizes) for leaf, x in zip(outputs, self.present(result), strict=True)]
        return tensors[0] if type(self).Outputs is None and outputs[0].index is None else tuple(tensors)

    def present(self, result: Any) -> Sequence[Any]:
        """Splits what the function returns into the outputs that are present."""
        return jax.tree.leaves(result)

    # As a function of arrays

    def require_available(self) -> None:
        with within(self.title):
            require_64_bits((leaf.path, leaf.tensor) for leaf in self.leaves())

    @property
    def input_count(self) -> int:
        return len(self.leaves(is_input=True))

    def compiled(self) -> Callable[..., Any]:
        return _compile(self._pack())

    def binder(self) -> Bind:
        return functools.partial(bind_arrays, self.short_name.lower(), self._counts(), self.leaves(is_input=True))

    def describe(self, function: Any) -> None:
        function.__name__ = function.__qualname__ = self.short_name.lower()
        function.__doc__ = f"Computes {self.title} from arrays with the sizes and types of its descriptor."
        function.__signature__ = self._signature

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        type_texts = {field: type_text(getattr(self, field)) for field in self._counts()}
        outputs = [member.field for member in self._members if member.tensor_kind and not member.tensor_kind.is_input]
        results = [type_text(getattr(self, field)) for field in outputs]
        results_text = ", ".join(f"{field}: {result}" for field, result in zip(outputs, results, strict=True))
        return signature(self._counts(), type_texts, results[0] if len(results) == 1 else f"({results_text})")

    def _counts(self) -> Counts:
        members = [member for member in self._members if member.tensor_kind and member.tensor_kind.is_input]
        present = {member.field: getattr(self, member.field) for member in members}
        return {
            field: len(value) if isinstance(value, tuple) else None
            for field, value in present.items()
            if value is not None
        }

    def _pack(self: Self) -> Self:
        """Returns the desc with packed tensors, so that equal computations are equal descs."""
        if all(_has_no_layout(leaf.tensor) for leaf in self.leaves()):
            return self

        def bare(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(bare, value))
            return TensorDesc(value.data_type, value.sizes) if isinstance(value, TensorDesc) else value

        return type(self)(**{member.field: bare(getattr(self, member.field)) for member in self._members})

    # As JSON

    def json(self) -> dict[str, Any]:
        json: dict[str, Any] = {}
        for member in self._members:
            value = getattr(self, member.field)
            if member.kind.count is not None and value is not None:
                json[member.kind.count] = len(value)
            json[member.name] = None if value is None else member.kind.to_json(value)
        return {"Type": self.spelling, "Desc": json}


@functools.lru_cache(maxsize=256)
def _compile(desc: Operator) -> Callable[..., Any]:
    """The jitted computation of all descs that differ from this one only in layout."""
    leaves, counts = desc.leaves(is_input=True), desc._counts()

    def computation(*arrays: Any) -> Any:
        desc.require_available()
        matches = iter(require_match(leaf.path, leaf.tensor, value) for leaf, value in zip(leaves, arrays, strict=True))
        inputs = {
            field: next(matches) if count is None else tuple(islice(matches, count)) for field, count in counts.items()
        }
        return _outputs(desc, desc.compute(**inputs))

    computation.__name__ = computation.__qualname__ = desc.short_name.lower()  # the name of the compiled module
    return jax.jit(computation)


def operator_called(name: str) -> type[Operator] | None:
    """The operator of that type, given by any of its names in directml.h, with or without their prefix."""
    name = OPERATOR_PREFIX + name.removeprefix(OPERATOR_PREFIX)
    return OPERATORS.get(name) or ALIASES.get(name)


def _outputs(desc: Operator, result: Any) -> Any:
    """The outputs as `lower` promises them; those that the desc leaves out are None."""
    if desc.Outputs is None:
        return result
    present = iter(result)
    return desc.Outputs(*(None if getattr(desc, field) is None else next(present) for field in desc.Outputs._fields))


def _select_arguments(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a function takes."""
    return {name: value for name, value in arguments.items() if name in _parameters(function)}


@functools.cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _sizes(value: TensorDesc | tuple[TensorDesc, ...] | None) -> Any:
    return tuple(map(_sizes, value)) if isinstance(value, tuple) else None if value is None else value.sizes


def _has_no_layout(tensor: TensorDesc) -> bool:
    """Whether a tensor has a type and sizes only."""
    layout = tensor.strides, tensor.flags, tensor.total_tensor_size_in_bytes, tensor.guaranteed_base_offset_alignment
    return not any(layout)


def _reshape(x: Any, sizes: Sizes) -> Any:
    return x if x.shape == sizes else x.reshape(sizes)


def _register(operator: type[Operator]) -> None:
    if operator.type in OPERATORS:
        raise ValueError(
            f"{operator.type} must be registered once; got {operator!r} after {OPERATORS[operator.type]!r}"
        )
    OPERATORS[operator.type] = operator
    tensors = {member.field: member.tensor_kind for member in operator.members() if member.tensor_kind}
    operator.support = fill_tables(operator.support, [*tensors])
    outputs = [field for field, kind in tensors.items() if not kind.is_input]
    if len(outputs) > 1:
        name = f"{operator.__name__}.Outputs"
        operator.Outputs = namedtuple("Outputs", outputs, module=operator.__module__)  # type: ignore[misc]
        operator.Outputs.__qualname__ = name
        register_namedtuple_serialization(operator.Outputs, serialized_name=f"dmljax.{operator.type}.Outputs")


def _parameter(field: "dataclasses.Field[Any]") -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
    plain = getattr(field.type, "__origin__", field.type)  # of Annotated
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=plain)


def _member(field: "dataclasses.Field[Any]", annotation: Any) -> Member:
    """The member that `Annotated[type, kind]` declares; a name after the kind is the member's in directml.h."""
    if isinstance(annotation, type) and issubclass(annotation, HeaderEnum):
        annotation = Annotated[annotation, Enumeration(annotation)]
    kind, *name = getattr(annotation, "__metadata__", (None,))
    if not isinstance(kind, MemberKind):
        raise TypeError(
            f"{field.name} must be annotated with the kind of the member, such as Input; got {annotation!r}"
        )
    is_optional = type(None) in get_args(annotation.__origin__)
    header_name = name[0] if name else _header_name(field.name, kind)
    return Member(field.name, header_name, kind, is_optional, field.default)


def _header_name(field: str, kind: MemberKind) -> str:
    name = "".join(word.capitalize() for word in field.split("_"))
    if isinstance(kind, Tensor):
        return f"{name}Tensor"
    is_tensors = isinstance(kind, Array) and isinstance(kind.of, Tensor) and not name.endswith("Tensors")
    return f"{name.removesuffix('s')}Tensors" if is_tensors else name


def _number(value: Any) -> Any:
    match value:
        case Scalar():
            return value.item
        case ScaleBias() | Size2D():
            return type(value)(*map(_number, value))
        case tuple():
            return tuple(map(_number, value))
    return value
