"""The enumerations of directml.h, and the sets of data types in support tables and functions."""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, Problem
from dmljax.text import did_you_mean


class HintingEnumType(enum.EnumType):
    """The type of enumerations that suggest a member's name where an attribute's is unknown.

    `elsewhere` maps names that are not accepted, but that hints know, and `remedies` names without a member to what to
    write instead. `room` is the module as users name it.
    """

    room: str = ""
    prefix: str = ""
    elsewhere: Mapping[str, str] = MappingProxyType({})
    remedies: Mapping[str, str] = MappingProxyType({})

    if not TYPE_CHECKING:  # a type checker refuses unknown names by itself

        def __getattr__(cls, name):
            members = vars(cls).get("_member_map_", {})
            if name in members:  # Python 3.11 finds members here
                return members[name]
            hint = "" if name.startswith("_") else cls.hint(name)
            raise AttributeError(f"{cls.__name__} has no member {name!r}{hint}", name=name, obj=cls)

    def hint(cls, name: str) -> str:
        """`, did you mean X?` for the name of a member in other languages and libraries, or a similar name; or ""."""
        plain = name.upper().removeprefix(cls.prefix)
        words = cls.prefix.split("_")
        while plain not in cls.__members__ and plain.partition("_")[0] in words and "_" in plain:
            plain = plain.partition("_")[2]  # REDUCE_SUM is SUM
        known = cls.elsewhere.get(plain, plain)
        member = cls.__members__.get(known) or cls._missing_(known)  # type: ignore[attr-defined]
        return did_you_mean(plain, cls.__members__) if member is None else f", did you mean {member.name}?"


class HeaderEnum(enum.IntEnum, metaclass=HintingEnumType):
    """An enumeration of directml.h, whose members are found by value, by name and by the header's full spelling.

    The case of names does not matter. `in_jax` maps JAX's names for some members to their names here.

    >>> DataType("float32") is DataType("DML_TENSOR_DATA_TYPE_FLOAT32") is DataType(1)
    True
    """

    prefix: str
    in_jax: Mapping[str, str]

    if TYPE_CHECKING:  # `_missing_` takes names

        def __new__(cls, value: int | str) -> Self: ...

    def __init_subclass__(
        cls,
        *,
        prefix: str,
        in_jax: Mapping[str, str] = MappingProxyType({}),
        elsewhere: Mapping[str, str] = MappingProxyType({}),
        remedies: Mapping[str, str] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.room, cls.prefix, cls.in_jax, cls.elsewhere = "directml", prefix, in_jax, elsewhere
        cls.remedies = remedies

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        name = value.upper().removeprefix(cls.prefix)
        return cls.__members__.get(cls.in_jax.get(name.lower(), name))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the members, as one writes them in strings."""
        return tuple(cls.__members__)

    @classmethod
    def of(cls, value: Self | str) -> Self:
        """The member that is given, or has that name."""
        return value if isinstance(value, cls) else cls(value)

    @property
    def spelling(self) -> str:
        """The name that directml.h gives this member."""
        return self.prefix + self.name

    def __str__(self) -> str:
        return self.spelling

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class DataType(
    HeaderEnum,
    prefix="DML_TENSOR_DATA_TYPE_",
    elsewhere={
        **dict.fromkeys(("FLOAT", "SINGLE", "FP32", "F32"), "FLOAT32"),
        **dict.fromkeys(("HALF", "FP16", "F16"), "FLOAT16"),
        **dict.fromkeys(("DOUBLE", "FP64", "F64"), "FLOAT64"),
        **dict.fromkeys(("BOOL", "BOOLEAN", "BYTE", "UCHAR"), "UINT8"),
        "INT": "INT32",
        "UINT": "UINT32",
        "LONG": "INT64",
        "SHORT": "INT16",
        "CHAR": "INT8",
    },
):
    """`DML_TENSOR_DATA_TYPE`: the type of a tensor's elements.

    >>> DataType("FLOAT16").dtype, DataType["UINT4"].bits
    (dtype('float16'), 4)
    """

    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy and JAX dtype of the same name."""
        if self is DataType.UNKNOWN:
            raise InvalidDesc(Problem("DataType", "must be a known data type", self.name))
        return jnp.dtype(self.name.lower())

    @property
    def bits(self) -> int:
        """The number of bits of one element in a buffer."""
        return bits_of(self.dtype)


def bits_of(dtype: Any) -> int:
    """The number of bits of one element in a buffer; NumPy does not know it, because its elements have whole bytes."""
    kinds = ((jnp.integer, jnp.iinfo), (jnp.floating, jnp.finfo))
    return next((limits(dtype).bits for kind, limits in kinds if jnp.issubdtype(dtype, kind)), 8 * dtype.itemsize)


class FeatureLevel(HeaderEnum, prefix="DML_FEATURE_LEVEL_"):
    """`DML_FEATURE_LEVEL`: what a device promises to support; each level includes all lower levels.

    >>> FeatureLevel("3_0") is FeatureLevel("DML_FEATURE_LEVEL_3_0") is FeatureLevel.FL_3_0
    True
    """

    FL_1_0 = 0x1000
    FL_2_0 = 0x2000
    FL_2_1 = 0x2100
    FL_3_0 = 0x3000
    FL_3_1 = 0x3100
    FL_4_0 = 0x4000
    FL_4_1 = 0x4100
    FL_5_0 = 0x5000
    FL_5_1 = 0x5100
    FL_5_2 = 0x5200
    FL_6_0 = 0x6000
    FL_6_1 = 0x6100
    FL_6_2 = 0x6200
    FL_6_3 = 0x6300
    FL_6_4 = 0x6400

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        name = value.upper().removeprefix(cls.prefix)
        return cls.__members__.get(name) or cls.__members__.get(f"FL_{name}")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(name.removeprefix("FL_") for name in cls.__members__)

    @property
    def spelling(self) -> str:
        """The name that directml.h gives this level."""
        return self.prefix + self.name.removeprefix("FL_")


LATEST = max(FeatureLevel)


class TensorFlags(HeaderEnum, prefix="DML_TENSOR_FLAG_"):
    """`DML_TENSOR_FLAGS`: whether DirectML keeps a copy of the tensor's data, which only inputs may have.

    >>> TensorDesc("FLOAT32", (2, 3), flags="OWNED_BY_DML").flags
    TensorFlags.OWNED_BY_DML
    """

    NONE = 0
    OWNED_BY_DML = 1


class AxisDirection(HeaderEnum, prefix="DML_AXIS_DIRECTION_"):
    """`DML_AXIS_DIRECTION`: an order of elements along an axis, or of their values.

    ARGMAX and ARGMIN choose the first (INCREASING) or the last (DECREASING) of equal elements; running sums and
    products begin at the first or at the last element; TOP_K1 selects the smallest or the largest elements.

    >>> argmax(
    ...     jnp.array([3, 7, 7]), axes=0, axis_direction=AxisDirection.DECREASING
    ... ).tolist()
    [2]
    """

    INCREASING = 0
    DECREASING = 1


AxisDirectionLike = AxisDirection | Literal["increasing", "decreasing"]


class ReduceFunction(
    HeaderEnum,
    prefix="DML_REDUCE_FUNCTION_",
    in_jax={"mean": "AVERAGE", "prod": "MULTIPLY", "logsumexp": "LOG_SUM_EXP"},
    elsewhere={
        "AVG": "AVERAGE",
        "MUL": "MULTIPLY",
        "NORM": "L2",
        "ADD": "SUM",
        "SUMSQUARE": "SUM_SQUARE",
    },
):
    """`DML_REDUCE_FUNCTION`: what `reduce` computes from the elements along its axes.

    >>> reduce(jnp.array([3.0, 4.0]), function=ReduceFunction.L2, axes=0).tolist()
    [5.0]
    """

    ARGMAX = 0
    ARGMIN = 1
    AVERAGE = 2
    L1 = 3
    L2 = 4
    LOG_SUM = 5
    LOG_SUM_EXP = 6
    MAX = 7
    MIN = 8
    MULTIPLY = 9
    SUM = 10
    SUM_SQUARE = 11


ReduceFunctionLike = (
    ReduceFunction
    | Literal[
        "argmax",
        "argmin",
        "average",
        "l1",
        "l2",
        "log_sum",
        "log_sum_exp",
        "max",
        "min",
        "multiply",
        "sum",
        "sum_square",
        "mean",
        "prod",
        "logsumexp",
    ]
)


class RoundingMode(
    HeaderEnum,
    prefix="DML_ROUNDING_MODE_",
    elsewhere={
        **dict.fromkeys(("NEAREST", "HALF_EVEN", "HALF_TO_EVEN"), "HALVES_TO_NEAREST_EVEN"),
        **dict.fromkeys(("TRUNC", "TRUNCATE", "ZERO"), "TOWARD_ZERO"),
    },
):
    """`DML_ROUNDING_MODE`: how numbers are rounded to integers.

    HALVES_TO_NEAREST_EVEN rounds to the nearest integer, and halves to the even one. TOWARD_ZERO truncates.
    TOWARD_INFINITY also rounds to the nearest integer, and halves away from zero.

    >>> element_wise_round(
    ...     jnp.array([-2.5, -1.75, 0.5]), rounding_mode=RoundingMode.TOWARD_INFINITY
    ... ).tolist()
    [-3.0, -2.0, 1.0]
    """

    HALVES_TO_NEAREST_EVEN = 0
    TOWARD_ZERO = 1
    TOWARD_INFINITY = 2


RoundingModeLike = RoundingMode | Literal["halves_to_nearest_even", "toward_zero", "toward_infinity"]


class DepthSpaceOrder(HeaderEnum, prefix="DML_DEPTH_SPACE_ORDER_"):
    """`DML_DEPTH_SPACE_ORDER`: the order of block elements in the channels, named with the fastest dimension first.

    With DEPTH_COLUMN_ROW, neighboring channels belong to the same element of a block; with COLUMN_ROW_DEPTH, to the
    same channel of the image.

    >>> image = jnp.array([[[1, 2]], [[5, 6]]]).repeat(2, axis=1)
    >>> space_to_depth1(
    ...     image, block_size=2, order=DepthSpaceOrder.DEPTH_COLUMN_ROW
    ... ).ravel().tolist()
    [1, 5, 2, 6, 1, 5, 2, 6]
    """

    DEPTH_COLUMN_ROW = 0
    COLUMN_ROW_DEPTH = 1


DepthSpaceOrderLike = DepthSpaceOrder | Literal["depth_column_row", "column_row_depth"]


class PaddingMode(
    HeaderEnum,
    prefix="DML_PADDING_MODE_",
    in_jax={"reflect": "REFLECTION"},
    elsewhere={
        "ZERO": "CONSTANT",
        "ZEROS": "CONSTANT",
        "REPLICATE": "EDGE",
        "MIRROR": "REFLECTION",
        "CIRCULAR": "WRAP",
    },
):
    """`DML_PADDING_MODE`: what padding consists of.

    CONSTANT is one value, and EDGE the nearest element. REFLECTION mirrors the elements without those at the edges,
    SYMMETRIC with them, and WRAP begins again at the other edge; these three repeat periodically.

    >>> input, mode = jnp.array([1, 2, 3]), PaddingMode.REFLECTION
    >>> padding(input, padding_mode=mode, start_padding=(1,), end_padding=(4,)).tolist()
    [2, 1, 2, 3, 2, 1, 2, 3]
    """

    CONSTANT = 0
    EDGE = 1
    REFLECTION = 2
    SYMMETRIC = 3
    WRAP = 4


PaddingModeLike = PaddingMode | Literal["constant", "edge", "reflection", "symmetric", "wrap", "reflect"]


class MatrixTransform(
    HeaderEnum, prefix="DML_MATRIX_TRANSFORM_", elsewhere={"T": "TRANSPOSE", "TRUE": "TRANSPOSE", "FALSE": "NONE"}
):
    """`DML_MATRIX_TRANSFORM`: whether a matrix is transposed before it is multiplied.

    >>> MatrixTransform("DML_MATRIX_TRANSFORM_TRANSPOSE") is MatrixTransform.TRANSPOSE
    True
    """

    NONE = 0
    TRANSPOSE = 1


class InterpolationMode(
    HeaderEnum,
    prefix="DML_INTERPOLATION_MODE_",
    in_jax={"nearest": "NEAREST_NEIGHBOR", "bilinear": "LINEAR"},
    remedies=dict.fromkeys(("CUBIC", "BICUBIC"), "jax.image.resize(x, shape, 'cubic')")
    | dict.fromkeys(("LANCZOS", "LANCZOS3"), "jax.image.resize(x, shape, 'lanczos3')"),
):
    """`DML_INTERPOLATION_MODE`: how a resampled element is computed.

    NEAREST_NEIGHBOR copies the nearest element, and LINEAR averages the two nearest ones along each dimension.

    >>> resample(
    ...     jnp.array([0.0, 4.0]), scales=2, interpolation_mode=InterpolationMode.LINEAR
    ... ).tolist()
    [0.0, 1.0, 3.0, 4.0]
    """

    NEAREST_NEIGHBOR = 0
    LINEAR = 1


InterpolationModeLike = InterpolationMode | Literal["nearest_neighbor", "linear", "nearest", "bilinear"]


class ConvolutionMode(HeaderEnum, prefix="DML_CONVOLUTION_MODE_"):
    """`DML_CONVOLUTION_MODE`: whether filters are flipped, as in mathematics, or not, as in neural networks.

    >>> image, filter = jnp.array([[[1.0, 2.0, 4.0]]]), jnp.array([[[1.0, 10.0]]])
    >>> convolution(image, filter, mode=ConvolutionMode.CROSS_CORRELATION).tolist()
    [[[21.0, 42.0]]]
    >>> convolution(image, filter, mode=ConvolutionMode.CONVOLUTION).tolist()
    [[[12.0, 24.0]]]
    """

    CONVOLUTION = 0
    CROSS_CORRELATION = 1


ConvolutionModeLike = ConvolutionMode | Literal["convolution", "cross_correlation"]


class ConvolutionDirection(HeaderEnum, prefix="DML_CONVOLUTION_DIRECTION_"):
    """`DML_CONVOLUTION_DIRECTION`: a convolution, or its gradient, the transposed convolution.

    >>> image, filter = jnp.array([[[1.0, 2.0]]]), jnp.array([[[1.0, 10.0]]])
    >>> convolution(image, filter, direction=ConvolutionDirection.BACKWARD).tolist()
    [[[1.0, 12.0, 20.0]]]
    """

    FORWARD = 0
    BACKWARD = 1


ConvolutionDirectionLike = ConvolutionDirection | Literal["forward", "backward"]


class RecurrentNetworkDirection(
    HeaderEnum, prefix="DML_RECURRENT_NETWORK_DIRECTION_", elsewhere={"REVERSE": "BACKWARD", "BOTH": "BIDIRECTIONAL"}
):
    """`DML_RECURRENT_NETWORK_DIRECTION`: whether a network begins at the first step of a sequence, the last, or both.

    >>> one, backward = jnp.ones((1, 1, 1)), RecurrentNetworkDirection.BACKWARD
    >>> rnn(
    ...     jnp.ones((3, 1, 1)),
    ...     one,
    ...     one,
    ...     activations=[ActivationReluDesc()],
    ...     direction=backward,
    ... ).sequence.tolist()
    [[[[3.0]]], [[[2.0]]], [[[1.0]]]]
    """

    FORWARD = 0
    BACKWARD = 1
    BIDIRECTIONAL = 2


RecurrentNetworkDirectionLike = RecurrentNetworkDirection | Literal["forward", "backward", "bidirectional"]


class QuantizationType(HeaderEnum, prefix="DML_QUANTIZATION_TYPE_"):
    """`DML_QUANTIZATION_TYPE`: what QUANTIZE and DEQUANTIZE take besides their input.

    SCALE is a scale, and SCALE_ZERO_POINT a scale and a zero point. Both operators refuse NONE.

    >>> QuantizationType(
    ...     "DML_QUANTIZATION_TYPE_SCALE_ZERO_POINT"
    ... ) is QuantizationType.SCALE_ZERO_POINT
    True
    """

    NONE = 0
    SCALE = 1
    SCALE_ZERO_POINT = 2


class IsInfinityMode(HeaderEnum, prefix="DML_IS_INFINITY_MODE_"):
    """`DML_IS_INFINITY_MODE`: whether to test for positive infinity, negative infinity, or either.

    >>> element_wise_is_infinity(
    ...     jnp.array([-jnp.inf, 1.0, jnp.inf]), infinity_mode=IsInfinityMode.NEGATIVE
    ... ).tolist()
    [True, False, False]
    """

    EITHER = 0
    POSITIVE = 1
    NEGATIVE = 2


IsInfinityModeLike = IsInfinityMode | Literal["either", "positive", "negative"]


class RandomGeneratorType(HeaderEnum, prefix="DML_RANDOM_GENERATOR_TYPE_"):
    """`DML_RANDOM_GENERATOR_TYPE`: the generator of random bits. There is one.

    >>> RandomGeneratorType("PHILOX_4X32_10").spelling
    'DML_RANDOM_GENERATOR_TYPE_PHILOX_4X32_10'
    """

    PHILOX_4X32_10 = 0


RandomGeneratorTypeLike = RandomGeneratorType | Literal["philox_4x32_10"]


class MultiheadAttentionMaskType(HeaderEnum, prefix="DML_MULTIHEAD_ATTENTION_MASK_TYPE_"):
    """`DML_MULTIHEAD_ATTENTION_MASK_TYPE`: what the mask of an attention holds.

    BOOLEAN is a mask of positions. KEY_SEQUENCE_LENGTH is the number of visible keys in each batch.
    KEY_SEQUENCE_END_START is the position after the last visible key, then the position of the first.
    KEY_QUERY_SEQUENCE_LENGTH_START_END holds these numbers, and where sequences begin and end in memory.

    >>> x, two = (
    ...     jnp.array([[[1.0], [4.0], [9.0]]]),
    ...     MultiheadAttentionMaskType.KEY_SEQUENCE_LENGTH,
    ... )
    >>> multihead_attention(
    ...     0 * x, x, x, mask=jnp.array([2]), head_count=1, mask_type=two
    ... ).tolist()
    [[[2.5], [2.5], [2.5]]]
    """

    NONE = 0
    KEY_SEQUENCE_LENGTH = 1
    KEY_SEQUENCE_END_START = 2
    KEY_QUERY_SEQUENCE_LENGTH_START_END = 3
    BOOLEAN = 4


MultiheadAttentionMaskTypeLike = (
    MultiheadAttentionMaskType
    | Literal["none", "key_sequence_length", "key_sequence_end_start", "key_query_sequence_length_start_end", "boolean"]
)


FLOAT = frozenset({DataType.FLOAT32, DataType.FLOAT16})
SIGNED_UP_TO_32_BIT = frozenset({DataType.INT32, DataType.INT16, DataType.INT8})
UNSIGNED_UP_TO_32_BIT = frozenset({DataType.UINT32, DataType.UINT16, DataType.UINT8})
UNSIGNED = UNSIGNED_UP_TO_32_BIT | {DataType.UINT64}
INTEGER_UP_TO_32_BIT = SIGNED_UP_TO_32_BIT | UNSIGNED_UP_TO_32_BIT
UP_TO_32_BIT = FLOAT | INTEGER_UP_TO_32_BIT
INTEGER_32 = frozenset({DataType.INT32, DataType.UINT32})
INTEGER_8 = frozenset({DataType.INT8, DataType.UINT8})
INTEGER_4 = frozenset({DataType.INT4, DataType.UINT4})
INTEGER_64 = frozenset({DataType.INT64, DataType.UINT64})
UP_TO_64_BIT = UP_TO_32_BIT | INTEGER_64 | {DataType.FLOAT64}
UINT32 = frozenset({DataType.UINT32})
UINT8 = frozenset({DataType.UINT8})
UINT32_OR_8 = UINT32 | UINT8
UINT32_OR_64 = UINT32 | {DataType.UINT64}
ONLY_FLOAT32 = frozenset({DataType.FLOAT32})
ONLY_INT32 = frozenset({DataType.INT32})
INDEX = INTEGER_64 | {DataType.INT32, DataType.UINT32}


# The dtypes that functions compute with. They are JAX's and include bfloat16 and bool, unlike DirectML's data types
# above, which descriptors use.
FLOATS = frozenset(map(jnp.dtype, ("bfloat16", "float16", "float32", "float64")))
INTEGERS = frozenset(jnp.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
REALS = FLOATS | INTEGERS | {jnp.dtype("bool")}
INTEGERS_4 = frozenset(map(jnp.dtype, ("int4", "uint4")))  # which only quantization and CAST take


def widened(dtype: Any) -> np.dtype[Any]:
    """The type in which computations on `dtype` are done: float32 for 16-bit floats, otherwise `dtype` itself."""
    return np.dtype(np.float32) if dtype in FLOATS and dtype.itemsize < 4 else np.dtype(dtype)


NEEDS_X64 = "must be of at most 32 bits unless jax_enable_x64 is set"  # a rule in errors


def x64_enabled() -> bool:
    """Whether 64-bit types are currently enabled in JAX."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


if TYPE_CHECKING:

    class Results(jax.Array):
        """One array, or several in a named tuple or a dictionary, whose names a type checker cannot know."""

        def __getattr__(self, name: str) -> Any: ...
else:
    Results = jax.Array
