"""TensorDesc: sizes, strides, flags, sizes in bytes, and copies between a buffer and a logical array."""

import math
import random
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import SAMPLED, assert_same_bits, needs_x32, random_array
from hypothesis import given, settings, strategies as st

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc, TensorFlags, Unsupported

FLOAT32, FLOAT16, UINT8 = DataType.FLOAT32, DataType.FLOAT16, DataType.UINT8
ALL = [data_type for data_type in DataType if data_type is not DataType.UNKNOWN]


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [
        ("FLOAT32", 1, "float32"),
        ("FLOAT16", 2, "float16"),
        ("UINT32", 3, "uint32"),
        ("UINT16", 4, "uint16"),
        ("UINT8", 5, "uint8"),
        ("INT32", 6, "int32"),
        ("INT16", 7, "int16"),
        ("INT8", 8, "int8"),
        ("FLOAT64", 9, "float64"),
        ("UINT64", 10, "uint64"),
        ("INT64", 11, "int64"),
        ("UINT4", 12, "uint4"),
        ("INT4", 13, "int4"),
    ],
)
def test_the_data_types_equal_directml_h(name: str, value: int, dtype: str) -> None:
    data_type, spelling = DataType(value), f"DML_TENSOR_DATA_TYPE_{name}"
    assert data_type is DataType[name] is DataType(spelling)
    assert (str(data_type), data_type.dtype) == (f"DML_TENSOR_DATA_TYPE_{name}", jnp.dtype(dtype))


# DMLCalcBufferTensorSize


@pytest.mark.parametrize(
    ("data_type", "sizes", "strides", "expected"),
    [
        ("FLOAT32", (1, 2, 3, 4), None, 96),
        ("FLOAT16", (3,), None, 8),
        ("UINT8", (1,), None, 4),
        ("UINT8", (5,), None, 8),
        ("FLOAT64", (3,), None, 24),
        ("INT64", (2, 2), (1, 2), 32),
        ("FLOAT32", (2, 3), (5, 1), 32),  # padded rows: the minimum size excludes the padding of the last row
        ("FLOAT32", (2, 3), (0, 1), 12),  # broadcast rows
        ("FLOAT32", (2, 3), (0, 0), 4),
        ("UINT4", (5,), None, 4),
        ("INT4", (9,), None, 8),
        ("UINT8", (2**32 - 1,), None, 2**32),
    ],
)
def test_the_size_in_bytes_is_directmls(data_type: str, sizes: Any, strides: Any, expected: int) -> None:
    assert TensorDesc(DataType[data_type], sizes, strides).minimum_size_in_bytes == expected


@settings(max_examples=200)
@given(st.sampled_from(ALL), st.lists(st.tuples(st.integers(1, 6), st.integers(0, 50)), min_size=1, max_size=8))
def test_the_size_in_bytes_follows_the_helper_functions_formula(data_type: DataType, dimensions: Any) -> None:
    sizes, strides = zip(*dimensions, strict=True)
    last = np.dot(np.array(sizes) - 1, strides)
    expected = (math.ceil((last + 1) * data_type.bits / 8) + 3) & ~3
    assert TensorDesc(data_type, sizes, strides).minimum_size_in_bytes == expected


# Valid TensorDescs


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sizes": ()}, InvalidDesc, r"DimensionCount must be in \[1, 8\]; got 0"),
        ({"sizes": (1,) * 9}, InvalidDesc, r"DimensionCount must be in \[1, 8\]; got 9"),
        ({"sizes": (2, 0)}, InvalidDesc, r"Sizes must each be at least 1; got \{2,0\}"),
        ({"sizes": (2, -1)}, InvalidDesc, r"Sizes\[1\] must be in \[0, 4294967295\]; got -1"),
        ({"sizes": (2.0,)}, InvalidType, r"Sizes\[0\] must be an integer; got 2.0"),
        ({"sizes": (True,)}, InvalidType, r"Sizes\[0\] must be an integer; got True"),
        ({"sizes": 3}, InvalidType, "Sizes must be a sequence of integers; got 3"),
        ({"sizes": "12"}, InvalidType, "Sizes must be a sequence of integers; got '12'"),
        ({"sizes": (2**16, 2**16)}, InvalidDesc, r"must span at most 2\^32 - 1 elements; got FLOAT32 \{65536,65536\}"),
        ({"sizes": (2, 2), "strides": (2**32 - 1, 1)}, InvalidDesc, r"must span at most 2\^32 - 1 elements"),
        ({"sizes": (2, 2), "strides": (1,)}, InvalidDesc, r"Strides must have 2 elements, as Sizes has; got \{1\}"),
        ({"sizes": (2, 2), "strides": ()}, InvalidDesc, r"Strides must have 2 elements, as Sizes has; got \{\}"),
        ({"sizes": (2,), "strides": (-1,)}, InvalidDesc, r"Strides\[0\] must be in"),
        ({"data_type": DataType.UNKNOWN}, InvalidDesc, "DataType must be a known data type; got UNKNOWN"),
        ({"data_type": "FLOAT"}, InvalidDesc, "DataType must be one of UNKNOWN, FLOAT32, .*; got 'FLOAT'"),
        ({"data_type": np.float32}, InvalidDesc, r"DataType must be one of .*float32'> \(use 'FLOAT32'\)$"),
        ({"data_type": np.dtype("uint8")}, InvalidDesc, r"\(use 'UINT8'\)$"),
        ({"data_type": jnp.uint8}, InvalidDesc, r"\(use 'UINT8'\)$"),
        ({"data_type": jax.dtypes.prng_key}, InvalidDesc, "prng_key'>$"),
        ({"data_type": jnp.bfloat16}, InvalidDesc, "bfloat16'>$"),
        ({"data_type": np.ones((3, 4))}, InvalidDesc, r"got an array of float64 of shape \(3, 4\)$"),
        ({"dtype": "FLOAT32"}, InvalidType, "^TensorDesc: .*did you mean data_type for dtype"),
        ({"shape": (3,)}, InvalidType, "^TensorDesc: .*did you mean sizes for shape"),
        ({"unknown": 3}, InvalidType, r"^TensorDesc: .* 'unknown'; TensorDesc\(data_type, sizes, strides=None,"),
        ({"data_type": True}, InvalidDesc, "DataType must be one of"),
        (
            {"data_type": TensorFlags.OWNED_BY_DML},
            InvalidDesc,
            "DataType must be one of .*; got directml.TensorFlags.OWNED",
        ),
        ({"sizes": {2, 3}}, InvalidType, "Sizes must be a sequence of integers; got {2, 3}"),
        ({"sizes": b"12"}, InvalidType, "Sizes must be a sequence of integers; got b'12'"),
        ({"sizes": (10**5000,)}, InvalidDesc, r"Sizes\[0\] must be in .*; got an int of 16610 bits"),
        ({"total_tensor_size_in_bytes": False}, InvalidType, "TotalTensorSizeInBytes must be an integer; got False"),
        ({"total_tensor_size_in_bytes": 2**64}, InvalidDesc, "TotalTensorSizeInBytes must be in"),
        ({"flags": "OWNED"}, InvalidDesc, "Flags must be one of NONE, OWNED_BY_DML; got 'OWNED'"),
        ({"total_tensor_size_in_bytes": 8}, InvalidDesc, "TotalTensorSizeInBytes must be at least 12; got 8"),
        ({"guaranteed_base_offset_alignment": 12}, InvalidDesc, "must be a power of two .*; got 12"),
        (
            {"guaranteed_base_offset_alignment": 2},
            InvalidDesc,
            "must be a power of two of at least the element size; got 2",
        ),
    ],
)
def test_invalid_tensor_descs_are_refused(arguments: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        TensorDesc(**{"data_type": FLOAT32, "sizes": (3,), **arguments})


def test_a_tensor_desc_reports_missing_fields() -> None:
    with pytest.raises(InvalidType, match=r"^TensorDesc: missing sizes; TensorDesc\(data_type, sizes, "):
        TensorDesc("FLOAT32")  # type: ignore[call-arg]


def test_a_tensor_desc_is_shown_as_it_is_written() -> None:
    assert repr(TensorDesc("FLOAT32", [2, 3])) == "TensorDesc('FLOAT32', (2, 3))"
    desc = TensorDesc("INT8", (2, 3), (0, 1), "OWNED_BY_DML", 16, 4)
    assert eval(repr(desc), vars(directml)) == desc


def test_a_tensor_desc_is_hashable_whatever_sequences_it_was_made_from() -> None:
    desc = TensorDesc("FLOAT32", np.array([2, 3]), [3, 1], "OWNED_BY_DML")  # type: ignore[arg-type]
    assert {desc} == {TensorDesc(FLOAT32, (2, 3), (3, 1), TensorFlags.OWNED_BY_DML)}
    assert (desc.rank, desc.element_count, desc.dtype) == (2, 6, np.dtype("float32"))


@pytest.mark.parametrize(
    ("sizes", "expected"), [((1, 2, 3, 4), 3), ((1, 1, 5, 5, 5), 3), ((1, 1, 1, 1), 0), ((3, 1), 2)]
)
def test_the_effective_rank_leaves_out_leading_ones(sizes: Any, expected: int) -> None:
    assert TensorDesc(FLOAT32, sizes).effective_rank == expected


# Buffers


def test_reads_packed_transposed_broadcast_and_padded_tensors() -> None:
    buffer = np.arange(10, dtype=np.float32)
    read = lambda *desc: TensorDesc(FLOAT32, *desc).read(buffer).tolist()  # noqa: E731
    assert read((2, 3)) == [[0, 1, 2], [3, 4, 5]]
    assert read((2, 3), (1, 2)) == [[0, 2, 4], [1, 3, 5]]
    assert read((2, 3), (0, 1)) == [[0, 1, 2], [0, 1, 2]]
    assert read((2, 3), (5, 1)) == [[0, 1, 2], [5, 6, 7]]
    assert read((2, 2), (1, 1)) == [[0, 1], [1, 2]]


def test_reading_copies() -> None:
    buffer = np.zeros(3, np.float32)
    array = TensorDesc(FLOAT32, (3,)).read(buffer)
    buffer[:] = 1
    assert array.tolist() == [0, 0, 0]
    assert array.flags.owndata
    assert array.flags.c_contiguous


LAYOUTS = {
    "packed": TensorDesc(FLOAT32, (2, 3)),
    "transposed": TensorDesc(FLOAT32, (3, 2), (1, 3)),
    "repeated": TensorDesc(FLOAT32, (4, 3), (0, 1)),
    "both": TensorDesc(FLOAT32, (3, 4, 2), (1, 0, 3)),
    "padded": TensorDesc(FLOAT32, (2, 2), (4, 1)),
    "overlapping": TensorDesc(FLOAT32, (3, 2), (1, 2)),
}


@SAMPLED
@pytest.mark.parametrize("layout", LAYOUTS)
def test_jax_arrays_are_read_under_every_transformation(layout: str) -> None:
    desc, buffer = LAYOUTS[layout], jnp.arange(1, 9, dtype=jnp.float32)
    expected = desc.read(np.asarray(buffer).tobytes())
    assert_same_bits(desc.read(buffer), expected)
    assert_same_bits(jax.jit(desc.read)(buffer), expected)
    assert_same_bits(jax.jit(desc.read)(buffer.reshape(2, 4)), expected)
    assert_same_bits(jax.vmap(desc.read)(jnp.stack([buffer, -buffer])), np.stack([expected, -expected]))
    assert_same_bits(jax.jit(desc.read)(buffer.view(jnp.uint8)), expected)
    gradient = jax.grad(lambda x: jnp.vdot(desc.read(x), expected))(buffer)
    times = np.array([np.count_nonzero(expected == element) for element in np.asarray(buffer)], np.float32)
    assert_same_bits(gradient, times * np.asarray(buffer))


@SAMPLED
@pytest.mark.parametrize("layout", ["packed", "transposed", "repeated", "both"])
def test_transposed_and_repeated_jax_arrays_are_views(layout: str) -> None:
    desc = LAYOUTS[layout]
    program = jax.make_jaxpr(desc.read)(jax.ShapeDtypeStruct((desc.span,), jnp.float32))
    assert {equation.primitive.name for equation in program.eqns} <= {"reshape", "transpose", "broadcast_in_dim"}


def test_a_jax_array_that_is_too_short_is_refused() -> None:
    with pytest.raises(InvalidDesc, match=r"buffer must hold at least 24 bytes for FLOAT32 \{2,3\}; got 20"):
        jax.jit(LAYOUTS["packed"].read)(jnp.ones(5, jnp.float32))


@needs_x32
def test_64_bit_types_are_refused_if_jax_disables_them() -> None:
    with pytest.raises(
        Unsupported, match="DataType must be of at most 32 bits unless jax_enable_x64 is set; got INT64"
    ):
        TensorDesc("INT64", (2,)).read(jnp.ones(4, jnp.int32))


def test_writing_leaves_the_bytes_between_the_elements_untouched() -> None:
    buffer = bytearray(b"\xee" * 16)
    TensorDesc(UINT8, (2, 3), (5, 2)).write(buffer, np.array([[1, 2, 3], [4, 5, 6]], np.uint8))
    assert buffer.hex(" ") == "01 ee 02 ee 03 04 ee 05 ee 06 ee ee ee ee ee ee"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.array, jnp.asarray])
def test_any_contiguous_bytes_like_object_is_a_buffer(kind: Any) -> None:
    data = np.array([1, 2, 3], np.float32)
    buffer = kind(data) if kind in (np.array, jnp.asarray) else kind(data.tobytes())
    assert TensorDesc(FLOAT32, (3,)).read(buffer).tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "V4", "S12"])
def test_a_numpy_array_of_bytes_is_a_buffer(dtype: str) -> None:
    buffer = np.array([1, 2, 3], np.float32).view(dtype)
    assert TensorDesc(FLOAT32, (3,)).read(buffer).tolist() == [1, 2, 3]
    assert TensorDesc(UINT8, (2,)).read(np.array([True, False])).tolist() == [1, 0]


def test_a_buffer_need_not_be_aligned() -> None:
    buffer = memoryview(b"\0" + np.array([1, 2], np.float64).tobytes())[1:]
    assert TensorDesc(DataType.FLOAT64, (2,)).read(buffer).tolist() == [1, 2]


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_elements_are_written_and_read_at_the_dot_product_of_coordinates_and_strides(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(sizes))))
    strides, step = [0] * len(sizes), 1
    for axis in order:
        step *= data.draw(st.integers(1, 2))
        strides[axis] = step
        step *= sizes[axis]
    desc = TensorDesc(data.draw(st.sampled_from(ALL)), tuple(sizes), tuple(strides))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    array = random_array(rng, desc.dtype, desc.sizes)
    buffer = np.frombuffer(rng.bytes(desc.minimum_size_in_bytes), np.uint8).copy()
    before = buffer.copy()
    desc.write(buffer, array)
    assert_same_bits(desc.read(buffer), array)
    # As bits, the lowest of each byte first, so that 4-bit elements are no special case.
    bits, bits_before = np.unpackbits([buffer, before], axis=1, bitorder="little")
    touched = np.zeros(bits.size, bool)
    for coordinate in np.ndindex(*sizes):
        place = slice(int(np.dot(coordinate, strides)) * desc.data_type.bits, None)
        of_element = np.unpackbits(np.frombuffer(array[coordinate].tobytes(), np.uint8), bitorder="little")
        bits_of_element = of_element[: desc.data_type.bits]
        assert (bits[place][: bits_of_element.size] == bits_of_element).all()
        touched[place][: bits_of_element.size] = True
    assert (bits == bits_before)[~touched].all()


def test_elements_of_4_bits_are_packed_low_half_first() -> None:
    of_rows = TensorDesc(DataType.INT4, (2, 3), (4, 1))
    buffer = bytearray(b"\xee" * 6)
    of_rows.write(buffer, np.array([[1, -1, 7], [-8, 0, 3]], jnp.int4))
    assert buffer.hex(" ") == "f1 e7 08 e3 ee ee"
    assert of_rows.read(buffer).tolist() == [[1, -1, 7], [-8, 0, 3]]
    assert TensorDesc(DataType.UINT4, (2, 2), (0, 5)).read(buffer).tolist() == [[1, 0]] * 2
    # NumPy accepts any byte as an element, and ignores its other half.
    of_rows.write(buffer, np.array([[0xF1, 0x0F, 0x97], [0x38, 0, 0xF3]], np.uint8).view(jnp.int4))
    assert buffer.hex(" ") == "f1 e7 08 e3 ee ee"


def test_elements_of_4_bits_need_half_a_byte_each() -> None:
    odd = TensorDesc(DataType.UINT4, (5,), guaranteed_base_offset_alignment=1)
    assert odd.read(bytes([0x10, 0x32, 0x54])).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidDesc, match=r"buffer must hold at least 3 bytes for UINT4 \{5\}; got 2"):
        odd.read(bytes(2))
    buffer = bytearray(b"\xee" * 3)
    odd.write(buffer, np.array([1, 2, 3, 4, 5], jnp.uint4))
    assert buffer.hex(" ") == "21 43 e5"


def test_a_4_bit_array_has_one_byte_per_element_and_is_not_a_packed_buffer() -> None:
    with pytest.raises(InvalidType, match="buffer must be a contiguous bytes-like object; got ndarray"):
        TensorDesc(DataType.INT4, (4,)).read(np.zeros(4, jnp.int4))


def test_a_write_needs_a_place_for_each_element_and_strides_that_nest() -> None:
    interleaved = (3, 2), (3, 4)  # which DirectML takes
    for sizes, strides in (((2, 3), (0, 1)), ((2, 2), (1, 1)), ((3, 2), (2, 4)), interleaved):
        desc = TensorDesc(UINT8, sizes, strides)
        with pytest.raises(InvalidDesc, match="must not let elements of an output overlap or interleave; got UINT8"):
            desc.write(bytearray(32), np.zeros(sizes, np.uint8))
    # A dimension of size 1 repeats no element, whatever its stride.
    TensorDesc(UINT8, (1, 3), (0, 1)).write(bytearray(3), np.zeros((1, 3), np.uint8))


def test_nested_elements_do_not_overlap() -> None:
    rng = random.Random(0)
    outcomes: Counter[bool] = Counter()
    for _ in range(5000):
        rank, largest, longest = rng.randint(1, 5), rng.choice([2, 3, 5, 9]), rng.choice([3, 10, 40, 200])
        sizes = [rng.randint(1, largest) for _ in range(rank)]
        strides = [rng.randint(0, longest) for _ in range(rank)]
        places = np.zeros(1, int)
        for size, stride in zip(sizes, strides, strict=True):
            places = np.add.outer(places, np.arange(size) * stride).ravel()
        is_nested = TensorDesc(UINT8, tuple(sizes), tuple(strides)).is_nested
        assert not is_nested or np.unique(places).size == places.size, (sizes, strides)
        outcomes[is_nested] += 1
    assert min(outcomes.values()) > 500


@pytest.mark.parametrize(
    ("desc", "buffer", "error", "message"),
    [
        (
            TensorDesc(FLOAT32, (3,)),
            bytes(11),
            InvalidDesc,
            r"buffer must hold at least 12 bytes for FLOAT32 \{3\}; got 11",
        ),
        (
            TensorDesc(FLOAT32, (2, 3), (5, 1)),
            bytes(31),
            InvalidDesc,
            r"at least 32 bytes for FLOAT32 \{2,3\} strides \{5,1\}",
        ),
        (
            TensorDesc(FLOAT32, (3,)),
            np.zeros(6, np.float32)[::2],
            InvalidType,
            "buffer must be a contiguous bytes-like object",
        ),
        (
            TensorDesc(FLOAT32, (3,)),
            np.arange(3),
            InvalidType,
            r"buffer must be of float32 or bytes; got int64 \(buffer\.astype\('float32'\) converts the numbers",
        ),
        (TensorDesc(FLOAT32, (3,)), np.zeros(12, bool), InvalidType, "must be of float32 or bytes; got bool"),
        (TensorDesc(FLOAT32, (3,)), [1, 2, 3], InvalidType, "buffer must be a contiguous bytes-like object; got list"),
    ],
)
def test_reading_refuses(desc: TensorDesc, buffer: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        desc.read(buffer)


@pytest.mark.parametrize(
    ("buffer", "array", "error", "message"),
    [
        (bytes(12), np.zeros(3, np.float32), InvalidType, "buffer must be writable; got a read-only bytes"),
        (bytearray(11), np.zeros(3, np.float32), InvalidDesc, "buffer must hold at least 12 bytes"),
        (bytearray(12), np.zeros((1, 3), np.float32), InvalidDesc, r"array must be float32\[3\]; got float32\[1, 3\]"),
        (bytearray(12), [1.0, 2.0, 3.0], InvalidType, "array must be a JAX or NumPy array; got list"),
        (np.zeros(3, np.int32), np.zeros(3, np.float32), InvalidType, "must be of float32 or bytes; got int32"),
        (3, np.zeros(3, np.float32), InvalidType, "buffer must be a contiguous bytes-like object; got int"),
        (bytearray(12), np.zeros(3, np.float64), InvalidDesc, r"array must be float32\[3\]; got float64\[3\]"),
    ],
)
def test_writing_refuses(buffer: Any, array: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        TensorDesc(FLOAT32, (3,)).write(buffer, array)


def test_reading_a_huge_tensor_is_refused_without_allocating() -> None:
    with pytest.raises(InvalidDesc, match="buffer must hold at least 17179869180 bytes"):
        TensorDesc(FLOAT32, (2**16 - 1, 2**16 + 1)).read(bytes(4))
