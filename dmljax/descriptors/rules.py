"""Rules that the pages of many operators share."""

from collections.abc import Callable, Iterator
from typing import Any

from dmljax.descriptors.base import Operator
from dmljax.errors import InvalidDesc, Problem, Where
from dmljax.numerics.windows import Window
from dmljax.scalars import Scalar, exact
from dmljax.tensor import TensorDesc
from dmljax.text import join_sizes, join_words
from dmljax.types import INTEGERS


def alike(desc: Operator, *fields: str) -> Iterator[Problem]:
    """All tensors of `fields` that are present have the same DataType, DimensionCount and Sizes."""
    yield from same_type(desc, *fields)
    yield from same_rank(desc, *fields)
    yield from same_sizes(desc, *fields)


def same_rank(desc: Operator, *fields: str) -> Iterator[Problem]:
    """All tensors of `fields` that are present have the same DimensionCount."""
    yield from _same(desc, fields, "DimensionCount", lambda tensor: tensor.rank)


def same_type(desc: Operator, *fields: str) -> Iterator[Problem]:
    """All tensors of `fields` that are present have the same DataType."""
    yield from _same(desc, fields, "DataType", lambda tensor: tensor.data_type.name)


def same_sizes(desc: Operator, *fields: str) -> Iterator[Problem]:
    """All tensors of `fields` that are present have the same Sizes."""
    yield from _same(desc, fields, "Sizes", lambda tensor: join_sizes(tensor.sizes))


def sizes_are(desc: Operator, field: str, sizes: tuple[int, ...]) -> Iterator[Problem]:
    """The Sizes of the tensor `field` are `sizes`."""
    actual = getattr(desc, field).sizes
    if actual != sizes:
        yield Problem((desc.member(field).name, "Sizes"), f"must be {join_sizes(sizes)}", join_sizes(actual))


def has_type(desc: Operator, data_type: str, tensor: str) -> Iterator[Problem]:
    """The member `data_type`, of a scalar union, is the DataType of `tensor`."""
    given, expected = getattr(desc, data_type), getattr(desc, tensor).data_type
    if given is not expected:
        yield Problem(desc.member(data_type).name, f"must be {expected.name}", given.name)


def one_each(desc: Operator, tensor: str, *names: str) -> Iterator[Problem]:
    """Each of the members `names` has one number for each dimension of `tensor`."""
    rank = getattr(desc, tensor).rank
    for name in names:
        values = getattr(desc, name)
        if len(values) != rank:
            rule = f"must have one number for each of the {rank} dimensions of {desc.member(tensor).name}"
            yield Problem(desc.member(name).name, rule, join_sizes(values))


def spatial_rules(desc: Any, image: str, *fields: str) -> Iterator[Problem]:
    """The arrays `fields` have a number for each spatial dimension of the tensor `image`; only paddings may be 0."""
    count, image_name = getattr(desc, image).rank - 2, desc.member(image).name
    for field in fields:
        name, values = desc.member(field).name, getattr(desc, field)
        if len(values) != count:
            rule = f"must have one number for each of the {count} spatial dimensions of {image_name}"
            yield Problem(name, rule, join_sizes(values))
        for i, value in enumerate(values):
            if value == 0 and not field.endswith("padding"):
                yield Problem((name, i), "must be at least 1", value)


def window_rules(desc: Any, image: str, sizes: str) -> Iterator[Problem]:
    """The windows that slide over the tensor `image`, whose sizes are the member `sizes`, have room in it."""
    steps = (field for field in ("strides", "dilations") if hasattr(desc, field))
    broken = tuple(spatial_rules(desc, image, sizes, *steps, *_PADDINGS))
    yield from broken
    if broken:
        return
    name = desc.member(sizes).name
    for i, window in enumerate(windows_of(desc, image, sizes)):
        if window.extent > window.padded_size:
            most = f"at most {window.padded_size}, the padded size"
            extent = f"1 + ({name}[{i}] - 1) * Dilations[{i}]"
            rule = f"must keep {extent} {most}" if hasattr(desc, "dilations") else f"must be {most}"
            yield Problem((name, i), rule, window.extent)


def windows_of(desc: Any, image: str, sizes: str) -> tuple[Window, ...]:
    """The windows that slide over the tensor `image`, whose sizes are the member `sizes`."""
    spatial = getattr(desc, image).sizes[2:]
    dilations = getattr(desc, "dilations", (1,) * len(spatial))
    start_padding, end_padding = (getattr(desc, field) for field in _PADDINGS)
    return tuple(map(Window, spatial, getattr(desc, sizes), desc.strides, dilations, start_padding, end_padding))


_PADDINGS = ("start_padding", "end_padding")


def _same(desc: Operator, fields: tuple[str, ...], what: str, of: Callable[[TensorDesc], Any]) -> Iterator[Problem]:
    leaves = sorted(
        (leaf for leaf in desc.leaves() if leaf.member.field in fields),
        key=lambda leaf: fields.index(leaf.member.field),
    )
    values = [of(leaf.tensor) for leaf in leaves]
    if len(set(values)) > 1:
        first, *others = (leaf.path for leaf in leaves)
        yield Problem(first, f"must have the same {what}", join_words(values), others)


def axis_of(desc: Any, field: str) -> Iterator[Problem]:
    """Axis is a dimension of the tensor `field`."""
    rank = getattr(desc, field).rank
    if desc.axis >= rank:
        yield Problem("Axis", f"must be less than {rank}", desc.axis)


def distinct_axes(axes: tuple[int, ...], rank: int) -> Iterator[Problem]:
    """Axes names one or more different dimensions."""
    # The pages give the range; they are silent on a reduction over none or over one twice, which ONNX refuses.
    for i, axis in enumerate(axes):
        if axis >= rank:
            yield Problem(("Axes", i), f"must be less than {rank}", axis)
    if not axes or len(set(axes)) < len(axes):
        yield Problem("Axes", "must name one or more different dimensions", join_sizes(axes))


def scale_bias_rules(desc: Any) -> Iterator[Problem]:
    """Where InputTensor.DataType is an integer type, both numbers of ScaleBias are integers that the type can hold."""
    # The pages are silent on what 1.5 would do to an integer.
    if desc.scale_bias is None or desc.input.dtype not in INTEGERS:
        return
    for name, number in zip(("Scale", "Bias"), desc.scale_bias, strict=True):
        yield from fitting(("ScaleBias", name), number, desc.input.dtype)


def fitting(where: Where, number: Scalar, dtype: Any) -> Iterator[Problem]:
    """The number can be converted to `dtype` exactly, or, to a floating type, by rounding."""
    yield from refused_by(exact, where, number, dtype)


def refused_by(convert: Callable[[Any, Any], Any], where: Where, number: Scalar, dtype: Any) -> Iterator[Problem]:
    """The problems that `convert` raises when it converts the number at `where` to `dtype`."""
    try:
        convert(number.item, dtype)
    except InvalidDesc as error:
        for problem in error.problems:
            yield problem.inside(where)
