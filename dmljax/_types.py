"""The enumerations of directml.h, the named sets of data types, and numbers that keep their type."""

import enum
import math
import numbers
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from dmljax._errors import InvalidDesc, InvalidType


class HeaderEnum(enum.IntEnum):
    """An enumeration of directml.h, whose members are found by value, by name and by the header's full spelling.

    >>> DataType("FLOAT32") is DataType("DML_TENSOR_DATA_TYPE_FLOAT32") is DataType(1)
    True
    """

    prefix: str

    def __init_subclass__(cls, *, prefix: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.prefix = prefix

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls.__members__.get(value.removeprefix(cls.prefix)) if isinstance(value, str) else None

    @property
    def spelling(self) -> str:
        """The name that directml.h gives this member."""
        return self.prefix + self.name

    def __str__(self) -> str:
        return self.spelling

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class DataType(HeaderEnum, prefix="DML_TENSOR_DATA_TYPE_"):
    """`DML_TENSOR_DATA_TYPE`: the type of a tensor's elements."""

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
            raise InvalidDesc(f"DataType must be a known data type; got {self.name}")
        return jnp.dtype(self.name.lower())

    @property
    def bits(self) -> int:
        """How many bits one element takes in a buffer."""
        return int(self.name.lstrip("FLOATUIN"))


class FeatureLevel(HeaderEnum, prefix="DML_FEATURE_LEVEL_"):
    """`DML_FEATURE_LEVEL`: what a device promises to support; each level includes those below it.

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
        return cls.__members__.get("FL_" + value.removeprefix(cls.prefix).removeprefix("FL_"))

    @property
    def spelling(self) -> str:
        """The name that directml.h gives this level."""
        return self.prefix + self.name.removeprefix("FL_")


LATEST = max(FeatureLevel)


class TensorFlags(HeaderEnum, prefix="DML_TENSOR_FLAG_"):
    """`DML_TENSOR_FLAGS`: whether DirectML keeps a copy of the tensor's data."""

    NONE = 0
    OWNED_BY_DML = 1


class AxisDirection(HeaderEnum, prefix="DML_AXIS_DIRECTION_"):
    """`DML_AXIS_DIRECTION`: which of several equal elements counts, the first or the last."""

    INCREASING = 0
    DECREASING = 1


FLOAT = frozenset({DataType.FLOAT32, DataType.FLOAT16})
INTEGER_UP_TO_32_BIT = frozenset(
    {DataType.INT32, DataType.INT16, DataType.INT8, DataType.UINT32, DataType.UINT16, DataType.UINT8}
)
UP_TO_32_BIT = FLOAT | INTEGER_UP_TO_32_BIT
INTEGER_64 = frozenset({DataType.INT64, DataType.UINT64})
UP_TO_64_BIT = UP_TO_32_BIT | INTEGER_64 | {DataType.FLOAT64}
UINT32 = frozenset({DataType.UINT32})
INDEX = INTEGER_64 | {DataType.INT32, DataType.UINT32}


# The dtypes that functions compute with: JAX's, bfloat16 and bool included, where descriptors have DirectML's.
FLOATS = frozenset(map(jnp.dtype, ("bfloat16", "float16", "float32", "float64")))
INTEGERS = frozenset(jnp.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
REALS = FLOATS | INTEGERS | {jnp.dtype("bool")}


def exact(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """`value` as a scalar of `dtype`: floats round to the nearest, everything else is equal or refused.

    >>> exact(7.0, np.dtype("uint8")).item(), exact(0.1, np.dtype("float16")).item()
    (7, 0.0999755859375)
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    is_number = value.dtype in REALS if isinstance(value, np.generic) else isinstance(value, numbers.Real)
    if not is_number:
        raise InvalidType(f"must be a real number; got {value!r}")
    if isinstance(value, np.generic) and value.dtype == dtype:
        return value
    return _rounded(value, dtype) if dtype in FLOATS else _equal(value, dtype)


def truncated(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """`value` as a scalar of `dtype`, without its fraction if that is an integer type."""
    drops_fraction = (
        jnp.issubdtype(dtype, jnp.integer) and isinstance(value, float | np.floating) and np.isfinite(value)
    )
    return exact(int(value) if drops_fraction else value, dtype)


def x64_enabled() -> bool:
    """Whether JAX has 64-bit types, here and now."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def _rounded(value: Any, dtype: np.dtype[Any]) -> np.generic:
    try:
        double = np.float64(value)
    except OverflowError:  # an int beyond 2**1024
        double = np.float64(math.inf)
    with np.errstate(over="ignore"):
        rounded: np.generic = double.astype(dtype)
    if np.isinf(np.float64(rounded)) and value not in (math.inf, -math.inf):
        raise InvalidDesc(f"must fit {dtype.name}; got {value}")
    return rounded


def _equal(value: Any, dtype: np.dtype[Any]) -> np.generic:
    # NumPy's iinfo does not know the 4-bit types.
    limits = None if dtype == np.bool_ else jnp.iinfo(dtype)
    lowest, highest = (int(limits.min), int(limits.max)) if limits else (0, 1)
    if not math.isfinite(value) or value != int(value) or not lowest <= int(value) <= highest:
        raise InvalidDesc(f"must be a whole number in [{lowest}, {highest}] to fit {dtype.name}; got {value}")
    whole: np.generic = dtype.type(int(value))
    return whole


@dataclass(frozen=True)
class Scalar:
    """A number with its data type, compared by type and bits: -0.0 is not 0.0, NaN equals itself, 1 is not 1.0."""

    data_type: DataType
    bits: int

    @classmethod
    def of(cls, data_type: DataType, value: Any) -> Self:
        """`value` in `data_type`; refuses what does not fit.

        >>> Scalar.of(DataType.FLOAT32, -0.0) == Scalar.of(DataType.FLOAT32, 0.0)
        False
        """
        if isinstance(value, Scalar):
            if value.data_type is not data_type:
                raise InvalidDesc(f"must be of {data_type.name}; got {value}")
            value = value.item
        raw = np.asarray(exact(value, data_type.dtype)).view(f"u{data_type.dtype.itemsize}")
        return cls(data_type, int(raw))

    @cached_property
    def item(self) -> np.generic:
        """The number as a NumPy scalar."""
        dtype = self.data_type.dtype
        raw = np.array([self.bits], f"u{dtype.itemsize}")
        number: np.generic = raw.view(dtype)[0]
        return number

    def __repr__(self) -> str:
        return f"{self.data_type.name} {self.item}"
