"""The descriptor half of every operator: members, support tables, common rules, `validate` and `lower`, and JSON."""

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import jax

from dmljax._checks import UINT_MAX, array, bound_arguments, listed, named, nearest, settle, shown
from dmljax._errors import InvalidDesc, InvalidType, Unsupported, headed, prefixed, within
from dmljax._members import (
    Enumeration,
    Integer,
    Kind,
    Number,
    Scaling,
    Tensor,
    UintArray,
    check_count,
    json_given,
    json_object,
    json_string,
)
from dmljax._scalars import Scalar, ScaleBias
from dmljax._tensor import TensorDesc, braced
from dmljax._types import (
    LATEST,
    AxisDirection,
    DataType,
    FeatureLevel,
    IsInfinityMode,
    RoundingMode,
    x64_enabled,
)

# What the members of a desc are annotated with

Input = Annotated[TensorDesc, Tensor(is_input=True)]
OptionalInput = Annotated[TensorDesc | None, Tensor(is_input=True)]
Output = Annotated[TensorDesc, Tensor(is_input=False)]
OptionalOutput = Annotated[TensorDesc | None, Tensor(is_input=False)]
Uint = Annotated[int, Integer(0, UINT_MAX)]
Int = Annotated[int, Integer(-(2**31), 2**31 - 1)]
UintAxes = Annotated[tuple[int, ...], UintArray(count="AxisCount")]
Direction = Annotated[AxisDirection, Enumeration(AxisDirection)]
SCALAR_TYPE = Enumeration(DataType)
ValueType = Annotated[DataType, SCALAR_TYPE]
Float = Annotated[Any, Number(own_type=DataType.FLOAT32)]  # takes any number, holds a Scalar
ScalarUnion = Annotated[Any, Number(own_type=None)]
OptionalScaleBias = Annotated[ScaleBias | None, Scaling()]
Rounding = Annotated[RoundingMode, Enumeration(RoundingMode)]
InfinityMode = Annotated[IsInfinityMode, Enumeration(IsInfinityMode)]

# Support tables: for each feature level that changed them, what each tensor may be

FL_1_0, FL_2_0, FL_2_1 = FeatureLevel.FL_1_0, FeatureLevel.FL_2_0, FeatureLevel.FL_2_1
FL_3_0, FL_3_1, FL_4_0, FL_4_1 = FeatureLevel.FL_3_0, FeatureLevel.FL_3_1, FeatureLevel.FL_4_0, FeatureLevel.FL_4_1
FL_5_0, FL_5_1, FL_6_0, FL_6_2 = FeatureLevel.FL_5_0, FeatureLevel.FL_5_1, FeatureLevel.FL_6_0, FeatureLevel.FL_6_2
FL_6_4 = FeatureLevel.FL_6_4

RANK_4 = range(4, 5)
RANK_4_TO_5 = range(4, 6)
RANK_1_TO_8 = range(1, 9)
RANK_2_TO_8 = range(2, 9)
RANK_2_TO_4 = range(2, 5)


@dataclass(frozen=True)
class Cell:
    """The dimension counts and data types that a support table lists for one tensor."""

    ranks: range
    data_types: frozenset[DataType]

    @property
    def data_type_names(self) -> list[str]:
        """The data types in the order of the header."""
        return [data_type.name for data_type in DataType if data_type in self.data_types]

    def broken_rules(self, name: str, tensor: TensorDesc) -> Iterator[str]:
        if tensor.rank not in self.ranks:
            lowest, highest = self.ranks[0], self.ranks[-1]
            allowed = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
            yield f"{name}.DimensionCount must be {allowed}; got {tensor.rank}"
        if tensor.data_type not in self.data_types:
            yield f"{name}.DataType must be one of {', '.join(self.data_type_names)}; got {tensor.data_type.name}"


Table = Mapping[str, Cell]


def rows(ranks: range, **tensors: frozenset[DataType] | Cell) -> Table:
    """One support table: `ranks` for every tensor that does not bring a Cell of its own."""
    cells = {name: cell if isinstance(cell, Cell) else Cell(ranks, cell) for name, cell in tensors.items()}
    return types.MappingProxyType(cells)


@dataclass(frozen=True)
class Member:
    """A member of a desc: its Python field, its name in directml.h, and what it can be."""

    field: str
    name: str
    kind: Kind
    is_optional: bool


class Operator:
    """The base of all descriptors: frozen dataclasses that mirror the `DML_*_OPERATOR_DESC` of directml.h.

    A subclass names its type, annotates its members in the header's order, copies its page's support tables, and yields
    a sentence for each documented rule that it breaks. Its `function` is called with its members by name; where that
    takes something else, the subclass has `attributes` of its own, where the sizes differ, a `lower`.

    >>> [member.name for member in OPERATORS["DML_OPERATOR_ONE_HOT"].members()]
    ['IndicesTensor', 'ValuesTensor', 'OutputTensor', 'Axis']
    """

    type: ClassVar[str]
    short_name: ClassVar[str]  # the type without its prefix, as pages and formats abridge it
    support: ClassVar[Mapping[FeatureLevel, Table]]
    function: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, type: str | None = None, function: Callable[..., Any] | None = None) -> None:
        if function is not None:
            cls.function = staticmethod(function)
        if type is not None:
            cls.type, cls.short_name = type, type.removeprefix(OPERATOR_PREFIX)
            OPERATORS[type] = cls

    def __post_init__(self) -> None:
        with within(self.type):
            data_type = None
            for member in self.members():
                value = getattr(self, member.field)
                if not (value is None and member.is_optional):
                    value = member.kind.settled(member.name, value, data_type)
                settle(self, **{member.field: value})
                data_type = value if isinstance(value, DataType) else data_type

    @classmethod
    @functools.cache
    def members(cls) -> tuple[Member, ...]:
        """The members in the header's order, counts of arrays left out."""
        hints = get_type_hints(cls, include_extras=True)
        annotated = [(field.name, hints[field.name]) for field in fields(cls)]  # type: ignore[arg-type]
        return tuple(
            Member(field, _header_name(field, hint.__metadata__[0]), hint.__metadata__[0], _is_optional(hint))
            for field, hint in annotated
        )

    @classmethod
    def member(cls, field: str) -> Member:
        """The member that `field` mirrors."""
        return next(member for member in cls.members() if member.field == field)

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        """The names that JSON may give: the members, and the counts of those that are arrays."""
        counts = [member.kind.count for member in cls.members() if isinstance(member.kind, UintArray)]
        return (*(member.name for member in cls.members()), *counts)

    def tensors(self, *, is_input: bool | None = None) -> dict[str, TensorDesc]:
        """The tensors that are present, all of them or the inputs or outputs alone, by field in the header's order."""
        kinds = [Tensor(True), Tensor(False)] if is_input is None else [Tensor(is_input)]
        wanted = [member.field for member in self.members() if member.kind in kinds]
        return {field: getattr(self, field) for field in wanted if getattr(self, field) is not None}

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """A sentence for each rule of the operator's page that this desc breaks."""
        raise NotImplementedError

    def attributes(self) -> dict[str, Any]:
        """What the function takes beside arrays: members that are no tensors, the type and the sizes of the output.

        Scalars are numbers of their type, so that the member which tells it is left out.
        """
        members = [member for member in self.members() if not isinstance(member.kind, Tensor)]
        given = {member.field: _number(getattr(self, member.field)) for member in members if member.kind != SCALAR_TYPE}
        output = getattr(self, "output", None)
        of_output = {} if output is None else {"dtype": output.dtype, "output_sizes": output.sizes}
        taken = inspect.signature(self.function).parameters
        return given | {name: value for name, value in of_output.items() if name in taken}

    def lower(self, **inputs: Any) -> Any:
        """The outputs, computed from arrays with the sizes and types of the inputs that are present."""
        absent = dict.fromkeys(member.field for member in self.members() if member.kind == Tensor(is_input=True))
        return self.function(**absent | inputs, **self.attributes())


OPERATORS: dict[str, type[Operator]] = {}
OPERATOR_PREFIX = "DML_OPERATOR_"


class FusedDesc(Kind):
    """A DML_OPERATOR_DESC of an activation that is fused into another operator."""

    @property
    def description(self) -> str:
        return "desc of an activation, without tensors"

    def json_fields(self, value: Any) -> tuple[str, ...]:
        known = OPERATORS.get(OPERATOR_PREFIX + str(value.get("Type", value.get("type"))).removeprefix(OPERATOR_PREFIX))
        return ("Type", "type", "Desc", "desc", *known.json_fields()) if known else tuple(value)

    def settled(self, name: str, value: Any, data_type: DataType | None) -> Operator:
        if not isinstance(value, Operator):
            raise InvalidType(f"{name} must be a descriptor; got {shown(value)}")
        return value

    def to_json(self, value: Operator) -> dict[str, Any]:
        return to_json(value)

    def from_json(self, name: str, value: Any, data_type: DataType | None) -> Operator:
        with prefixed(name):
            return from_json(value)


FusedActivation = Annotated[Operator | None, FusedDesc()]


def _number(value: Any) -> Any:
    match value:
        case Scalar():
            return value.item
        case ScaleBias():
            return ScaleBias(*map(_number, value))
    return value


def _header_name(field: str, kind: Kind) -> str:
    return "".join(word.capitalize() for word in field.split("_")) + ("Tensor" if isinstance(kind, Tensor) else "")


def _is_optional(hint: Any) -> bool:
    return type(None) in get_args(hint.__origin__)


# Rules that many pages share


def same_rank(desc: Operator, *tensors: str) -> Iterator[str]:
    """All of `tensors` that are present have the same DimensionCount."""
    yield from _same(desc, tensors, "DimensionCount", lambda tensor: tensor.rank)


def same_type(desc: Operator, *tensors: str) -> Iterator[str]:
    """All of `tensors` that are present have the same DataType."""
    yield from _same(desc, tensors, "DataType", lambda tensor: tensor.data_type.name)


def same_sizes(desc: Operator, *tensors: str) -> Iterator[str]:
    """All of `tensors` that are present have the same Sizes."""
    yield from _same(desc, tensors, "Sizes", lambda tensor: braced(tensor.sizes))


def distinct_axes(axes: tuple[int, ...], rank: int) -> Iterator[str]:
    """Axes names one or more different dimensions."""
    # The pages give the range; they are silent on a reduction over none or over one twice, which ONNX refuses.
    for i, axis in enumerate(axes):
        if axis >= rank:
            yield f"Axes[{i}] must be less than {rank}; got {axis}"
    if not axes or len(set(axes)) < len(axes):
        yield f"Axes must name one or more different dimensions; got {braced(axes)}"


def _same(desc: Operator, tensors: tuple[str, ...], what: str, of: Callable[[TensorDesc], Any]) -> Iterator[str]:
    present = {desc.member(field).name: of(getattr(desc, field)) for field in tensors if getattr(desc, field)}
    if len(set(present.values())) > 1:
        yield f"{listed(present)} must have the same {what}; got {listed(present.values())}"


# What is done with a desc


def broken_rules(desc: Operator, *, feature_level: FeatureLevel | str = LATEST) -> tuple[str, ...]:
    """Everything that keeps a device of `feature_level` from accepting `desc`, a sentence each.

    >>> tensor = TensorDesc("FLOAT32", (2, 3))
    >>> broken_rules(ActivationHardmaxDesc(input=tensor, output=tensor), feature_level="2_0")[0]
    'InputTensor.DimensionCount must be 4 to 5; got 2'
    """
    level = _level(desc, feature_level)
    tables = [table for introduced, table in sorted(desc.support.items()) if introduced <= level]
    if not tables:
        return (f"the operator must not be used below {min(desc.support)}; got {level}",)
    tensors = desc.tensors()
    table = (
        rule
        for field, cell in tables[-1].items()
        if field in tensors
        for rule in cell.broken_rules(desc.member(field).name, tensors[field])
    )
    return (*table, *desc.broken_rules(level))


def validate(desc: Operator, *, feature_level: FeatureLevel | str = LATEST) -> None:
    """Refuses a desc that a device of `feature_level` would refuse, with every rule that it breaks.

    >>> tensor = TensorDesc("FLOAT64", (1, 1, 2, 3))
    >>> validate(ActivationHardmaxDesc(input=tensor, output=tensor), feature_level="1_0")
    Traceback (most recent call last):
    dmljax._errors.InvalidDesc: DML_OPERATOR_ACTIVATION_HARDMAX at DML_FEATURE_LEVEL_1_0: ...
    """
    rules = broken_rules(desc, feature_level=feature_level)
    if rules:
        raise _refusal(desc, _level(desc, feature_level), rules)


def _level(desc: Operator, feature_level: FeatureLevel | str) -> FeatureLevel:
    _require_operator(desc)
    with within(desc.type):
        level: FeatureLevel = named(FeatureLevel, "feature_level", feature_level)
    return level


def _require_operator(desc: Any) -> None:
    if not isinstance(desc, Operator):
        raise InvalidType(f"a descriptor must be an Operator; got {shown(desc)}")


def _refusal(desc: Operator, level: FeatureLevel, rules: Iterable[str]) -> InvalidDesc:
    return InvalidDesc(*headed(f"{desc.type} at {level}", rules))


def minimum_feature_level(desc: Operator) -> FeatureLevel:
    """The lowest level whose devices accept `desc`; refused is a desc that none accepts.

    >>> tensor = TensorDesc("FLOAT16", (2, 3))
    >>> minimum_feature_level(ActivationHardmaxDesc(input=tensor, output=tensor))
    FeatureLevel.FL_3_0
    """
    for level in FeatureLevel:
        rules = broken_rules(desc, feature_level=level)
        if not rules:
            return level
    raise _refusal(desc, level, rules)


def lower(desc: Operator, *, feature_level: FeatureLevel | str = LATEST) -> Callable[..., Any]:
    """A function of the desc's inputs that are present, by position or name, that returns its output or outputs.

    It takes and returns arrays with exactly the descs' sizes and data types, and works under every transformation.

    >>> tensor = TensorDesc("FLOAT32", (1, 3))
    >>> hardmax = lower(ActivationHardmaxDesc(input=tensor, output=tensor))
    >>> hardmax(np.array([[1, 5, 5]], "float32")).tolist()
    [[0.0, 1.0, 0.0]]
    """
    validate(desc, feature_level=feature_level)
    inputs = desc.tensors(is_input=True)
    parameters = [inspect.Parameter(field, inspect.Parameter.POSITIONAL_OR_KEYWORD) for field in inputs]
    signature = inspect.Signature(parameters)
    with within(desc.type):
        require_64_bits_available(desc)

    def lowered(*args: Any, **kwargs: Any) -> Any:
        with within(desc.type):
            arrays = bound_arguments(signature, args, kwargs).arguments
            require_64_bits_available(desc)
            for field, tensor in inputs.items():
                arrays[field] = _matching(desc.member(field).name, arrays[field], tensor)
        return _lowered(desc, arrays)

    lowered.__name__ = lowered.__qualname__ = desc.short_name.lower()
    lowered.__doc__ = f"{desc.type} for one descriptor."
    lowered.__signature__ = signature  # type: ignore[attr-defined]
    return lowered


@functools.partial(jax.jit, static_argnums=0)
def _lowered(desc: Operator, inputs: dict[str, Any]) -> Any:
    return desc.lower(**inputs)


def require_64_bits_available(desc: Operator) -> None:
    """Refuses a desc with 64-bit types where JAX has none."""
    if x64_enabled():
        return
    for field, tensor in (desc.tensors()).items():
        if tensor.data_type.bits > 32:
            raise Unsupported(
                f"{desc.member(field).name}.DataType must be of at most 32 bits unless jax_enable_x64 is set, by"
                ' jax.config.update("jax_enable_x64", True), JAX_ENABLE_X64=1, or --x64 on the command line; got'
                f" {tensor.data_type.name}"
            )


def _matching(name: str, value: Any, tensor: TensorDesc) -> Any:
    given = array(name, value)
    if given.dtype != tensor.dtype:
        raise InvalidType(f"{name} must be of {tensor.dtype}, as its desc is; got {given.dtype}")
    if given.shape != tensor.sizes:
        raise InvalidDesc(f"{name} must have Sizes {braced(tensor.sizes)}; got {braced(given.shape)}")
    return given


# Descriptors as JSON objects, in the spelling of directml.h


def to_json(desc: Operator) -> dict[str, Any]:
    """`desc` as a plain JSON object, every name spelled as in directml.h.

    >>> tensor = TensorDesc("FLOAT32", (1, 1, 2, 3))
    >>> to_json(ActivationHardmaxDesc(input=tensor, output=tensor))["Type"]
    'DML_OPERATOR_ACTIVATION_HARDMAX'
    """
    _require_operator(desc)
    json: dict[str, Any] = {}
    for member in desc.members():
        value = getattr(desc, member.field)
        if isinstance(member.kind, UintArray):
            json[member.kind.count] = len(value)
        json[member.name] = None if value is None else member.kind.to_json(value)
    return {"Type": desc.type, "Desc": json}


def from_json(json: Any) -> Operator:
    """The desc that a JSON object spells: members under `Desc` or beside `Type`, names whole or without their prefix.

    >>> tensor = {"DataType": "FLOAT32", "Sizes": [1, 1, 2, 3]}
    >>> desc = from_json({"Type": "ACTIVATION_HARDMAX", "InputTensor": tensor, "OutputTensor": tensor})
    >>> desc.input.sizes
    (1, 1, 2, 3)
    """
    if not isinstance(json, Mapping):
        raise InvalidType(f"an operator must be an object; got {shown(json)}")
    rest = dict(json)
    operator = operator_named("Type", rest.pop("Type", rest.pop("type", None)))
    with within(operator.type):
        nested = rest.pop("Desc", rest.pop("desc", None))
        if nested is not None:
            json_object("the operator beside Desc", rest, ())
        fields = json_object("Desc", rest if nested is None else nested, operator.json_fields())
        settled = settled_members(operator, fields)
    return operator(**settled)


def operator_named(member: str, spelled: Any) -> type[Operator]:
    """The operator of that type, its name whole or without its prefix."""
    name = json_string(member, spelled).removeprefix(OPERATOR_PREFIX)
    operator = OPERATORS.get(OPERATOR_PREFIX + name)
    if operator is None:
        hint = nearest(name, (known.short_name for known in OPERATORS.values()))
        raise Unsupported(f"{member} must be an operator that `dmljax ops` lists; got {shown(spelled)}{hint}")
    return operator


def settled_members(
    operator: type[Operator], fields: Mapping[str, Any], scope: Callable[[], AbstractContextManager[None]] = nullcontext
) -> dict[str, Any]:
    """The members of a desc out of its JSON fields, each read inside a `scope`, which may note what is wrong."""
    settled: dict[str, Any] = {}
    data_type = None
    for member in operator.members():
        with scope():
            value = fields.get(member.name)
            if not member.is_optional:
                json_given(member.name, value)
            if value is not None:
                read = member.kind.from_json(member.name, value, data_type)
                value = member.kind.settled(member.name, read, data_type)
                if isinstance(member.kind, UintArray):
                    check_count(member.kind.count, fields.get(member.kind.count), member.name, len(value))
            data_type = value if isinstance(value, DataType) else data_type
            settled[member.field] = value
    return settled
