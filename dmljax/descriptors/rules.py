"""Rules that the pages of many operators share."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from dmljax.descriptors.base import Operator, Rule, SizesRule
from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import InvalidDesc, Problem, Where
from dmljax.foundation.scalars import Scalar, convert_exactly
from dmljax.foundation.sizes import use_member_names
from dmljax.text import join_sizes, join_words
from dmljax.types import INTEGERS


def page_rules(*rules: Rule) -> tuple[Rule, ...]:
    """The rules of an operator's page, in the order in which they are checked.

    Their type has no length, so that a class may have more rules than its base: a plain tuple would need an annotation.
    """
    return rules


def same_type_and_sizes(*fields: str) -> Rule:
    """All tensors of `fields` that are present have the same DataType, DimensionCount and Sizes."""
    parts = *same_type_and_rank(*fields), same_sizes(*fields)
    return Rule(
        f"{name_members(fields)} have the same DataType, DimensionCount and Sizes.",
        lambda desc: chain.from_iterable(rule.check(desc) for rule in parts),
    )


def same_rank(*fields: str) -> Rule:
    """All tensors of `fields` that are present have the same DimensionCount."""
    return _same(fields, "DimensionCount", lambda tensor: tensor.rank)


def same_type(*fields: str) -> Rule:
    """All tensors of `fields` that are present have the same DataType."""
    return _same(fields, "DataType", lambda tensor: tensor.data_type.name, is_of_types=True)


def same_type_and_rank(*fields: str) -> tuple[Rule, Rule]:
    """All tensors of `fields` that are present have the same DataType and DimensionCount."""
    return same_type(*fields), same_rank(*fields)


def same_sizes(*fields: str) -> Rule:
    """All tensors of `fields` that are present have the same Sizes."""
    return _same(fields, "Sizes", lambda tensor: join_sizes(tensor.sizes))


def one_element(*fields: str) -> Rule:
    """The tensors `fields` that are present have one element."""

    def check(desc: Operator) -> Iterator[Problem]:
        for leaf in desc.leaves():
            if leaf.member.field in fields and leaf.tensor.element_count != 1:
                yield Problem((*leaf.path, "Sizes"), "must each be 1", join_sizes(leaf.tensor.sizes))

    return Rule(f"{members_have(fields)} one element.", check)


def members_have(fields: Sequence[str]) -> str:
    """The beginning of a sentence about what the members have."""
    return f"{name_members(fields)} {'has' if len(fields) == 1 else 'have'}"


def name_members(fields: Sequence[str]) -> str:
    """Lists members in a sentence."""
    return join_words([f"{{{field}}}" for field in fields])


def find_wrong_sizes(desc: Operator, field: str, sizes: tuple[int, ...]) -> Iterator[Problem]:
    """The Sizes of the tensor `field` are `sizes`."""
    actual = getattr(desc, field).sizes
    if actual != sizes:
        yield Problem((desc.member(field).name, "Sizes"), f"must be {join_sizes(sizes)}", join_sizes(actual))


def has_type(data_type: str, tensor: str) -> Rule:
    """The member `data_type`, of a scalar union, is the DataType of `tensor`."""

    def check(desc: Operator) -> Iterator[Problem]:
        actual, expected = getattr(desc, data_type), getattr(desc, tensor).data_type
        if actual is not expected:
            yield Problem(desc.member(data_type).name, f"must be {expected.name}", actual.name)

    return Rule(f"{{{data_type}}} is {{{tensor}}}.DataType.", check, is_of_types=True)


def require_rule(sentence: str, check: Callable[[Any], object], rule: type[Rule] = Rule) -> Rule:
    """Makes a rule of a check that raises an error, as functions do."""

    def refuse(desc: Operator) -> None:
        with use_member_names(desc.argument_paths(), has_leading_ones=desc.has_leading_ones):
            check(desc)

    return rule(sentence, lambda desc: _refusals(refuse, desc))


def require_sizes_rule(sentence: str, check: Callable[[Any], object]) -> Rule:
    """Like `require_rule`, for sizes."""
    return require_rule(sentence, check, SizesRule)


def infer_rules(*sentences: str) -> tuple[Rule, ...]:
    """The rules that the operator's `infer` checks together, in as many sentences as needed."""
    *others, last = sentences
    return (*(Rule(sentence, lambda desc: ()) for sentence in others), SizesRule(last, _find_size_misfits))


def _find_size_misfits(desc: Operator) -> Iterator[Problem]:
    try:
        sizes = desc.inferred_sizes()
    except InvalidDesc as error:
        yield from error.problems
        return
    for leaf in desc.leaves(is_input=False):
        actual, expected = leaf.tensor.sizes, sizes[leaf.key]
        if actual != expected:
            yield Problem((*leaf.path, "Sizes"), f"must be {join_sizes(expected)}", join_sizes(actual))


def spatial_sentence(members: str, image: str = "input") -> str:
    """Returns the sentence that `members` have a number for each dimension that windows slide along."""
    each = f"each dimension of {{{image}}} after the first two, batch and channels"
    return f"{members} have one number for {each}; only paddings may be 0."


def _same(
    fields: tuple[str, ...], fact: str, fact_of: Callable[[TensorDesc], Any], *, is_of_types: bool = False
) -> Rule:
    def check(desc: Operator) -> Iterator[Problem]:
        leaves = sorted(
            (leaf for leaf in desc.leaves() if leaf.member.field in fields),
            key=lambda leaf: fields.index(leaf.member.field),
        )
        values = [fact_of(leaf.tensor) for leaf in leaves]
        if len(set(values)) > 1:
            first, *others = (leaf.path for leaf in leaves)
            yield Problem(first, f"must have the same {fact}", join_words(values), others)

    return Rule(f"{name_members(fields)} have the same {fact}.", check, is_of_types)


def axis_within(field: str) -> Rule:
    """Axis is a dimension of the tensor `field`."""

    def check(desc: Any) -> Iterator[Problem]:
        rank = getattr(desc, field).rank
        if desc.axis >= rank:
            yield Problem("Axis", f"must be less than {rank}", desc.axis)

    return Rule(f"Axis is less than the DimensionCount of {{{field}}}.", check)


def _find_wrong_axes(desc: Any) -> Iterator[Problem]:
    # The pages give only the range. ONNX also refuses to reduce over no axis, or twice over the same axis.
    if desc.input is None:
        return
    axes, rank = desc.axes, desc.input.rank
    for i, axis in enumerate(axes):
        if axis >= rank:
            yield Problem(("Axes", i), f"must be less than {rank}", axis)
    if not axes or len(set(axes)) < len(axes):
        yield Problem("Axes", "must name one or more different dimensions", join_sizes(axes))


DISTINCT_AXES = Rule("Axes names one or more different dimensions of {input}.", _find_wrong_axes)


def _find_scale_bias_misfits(desc: Any) -> Iterator[Problem]:
    # The pages do not say what 1.5 would do to an integer.
    if desc.input is None or desc.scale_bias is None or desc.input.dtype not in INTEGERS:
        return
    for name, number in zip(("Scale", "Bias"), desc.scale_bias, strict=True):
        yield from find_misfit(("ScaleBias", name), number, desc.input.dtype)


SCALE_BIAS_FITS = Rule(
    "If {input}.DataType is an integer type, both numbers of ScaleBias are integers that the type can hold.",
    _find_scale_bias_misfits,
)


def find_misfit(where: Where, number: Scalar, dtype: Any) -> Iterator[Problem]:
    """The number can be converted to `dtype` exactly, or, to a floating type, by rounding."""
    yield from find_refusals(convert_exactly, where, number, dtype)


def find_refusals(convert: Callable[[Any, Any], Any], where: Where, number: Scalar, dtype: Any) -> Iterator[Problem]:
    """The problems that `convert` raises when it converts the number at `where` to `dtype`."""
    for problem in _refusals(convert, number.item, dtype):
        yield problem.inside(where)


def _refusals(function: Callable[..., object], *arguments: Any) -> Iterator[Problem]:
    """The problems that a function raises."""
    try:
        function(*arguments)
    except InvalidDesc as error:
        yield from error.problems
