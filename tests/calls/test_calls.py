"""How operator functions treat their arguments, tested on one or two functions."""

import enum
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL, X64, assert_same_bits, assert_same_trees, needs_x32, needs_x64

import dmljax
from dmljax import DmlError, calls, directml
from dmljax.directml import InvalidDesc, InvalidType, Unsupported

VALUES = np.array([0, 1], np.float32)
BYTES, SIGNED = np.array([[1, 2]], np.uint8), np.array([[3], [4]], np.int8)
HALVES = np.ones((1, 1, 1), np.float16)


def test_numpys_int64_is_accepted_if_all_values_fit() -> None:
    indices = np.array([[0], [-1], [2**31 - 1], [-(2**31)]])
    assert indices.dtype == np.int64
    result = dmljax.one_hot(indices, VALUES, axis=1, depth=2)
    assert result.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


@needs_x32
@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_numpys_int64_beyond_int32_is_refused(value: int) -> None:
    with pytest.raises(
        InvalidDesc, match=f"^one_hot: indices must fit int32 unless jax_enable_x64 is set; got {value}"
    ):
        dmljax.one_hot(np.array([[0], [value]]), VALUES, axis=1, depth=2)
    with pytest.raises(InvalidDesc, match=f"^nonzero_coordinates: input must fit int32 .*; got {value}"):
        dmljax.nonzero_coordinates(np.array([value]))
    with pytest.raises(InvalidDesc, match=f"^gather_nd1: input must fit int32 .*; got {value}"):
        dmljax.gather_nd1(np.array([value]), np.array([[0]]))


@needs_x32
def test_numpys_unsigned_integers_stay_unsigned() -> None:
    assert_same_bits(
        dmljax.gather_nd(np.array([2**32 - 1], np.uint64), np.array([[0]])), np.array([2**32 - 1], np.uint32)
    )
    with pytest.raises(InvalidDesc, match=f"input must fit uint32 .*; got {2**32}"):
        dmljax.gather_nd(np.array([2**32], np.uint64), np.array([[0]]))
    assert dmljax.one_hot(np.zeros((0, 1), np.uint64), VALUES, axis=1, depth=2).shape == (0, 2)


@needs_x32
def test_64_bit_jax_arrays_are_refused_without_x64() -> None:
    with jax.enable_x64(True):
        input = jnp.asarray(np.array([2**40]))
    with pytest.raises(
        Unsupported, match=r"^nonzero_coordinates: input must be of at most 32 bits unless jax_enable_x64"
    ):
        dmljax.nonzero_coordinates(input)


@needs_x32
def test_64_bit_jax_floats_are_refused_without_x64() -> None:
    with jax.enable_x64(True):
        input = jnp.asarray(np.array([0.1]))
    with pytest.raises(Unsupported, match=r"^gather_nd: input must be of at most 32 bits unless .*; got float64"):
        dmljax.gather_nd(input, np.array([[0]]))


@needs_x32
def test_numpys_float64_becomes_float32_next_to_float32() -> None:
    ones = np.ones((2, 2))
    filled = dmljax.diagonal_matrix1(ones, jnp.float32(3), diagonal_fill_begin=1)
    assert_same_bits(filled, np.array([[1, 3], [1, 1]], np.float32))
    assert dmljax.diagonal_matrix1(ones, 0.1).dtype == np.float32


@needs_x64
def test_64_bit_integers_are_kept_with_64_bit_types() -> None:
    values = np.array([2**63 - 1, -(2**63)])
    assert_same_bits(dmljax.gather_nd(values, np.array([[1], [0]])), values[::-1])


@needs_x32
def test_float64_is_rounded_to_float32_as_jax_does() -> None:
    assert_same_bits(dmljax.gather_nd(np.array([0.1]), np.array([[0]])), np.array([0.1], np.float32))


def test_jax_enable_x64_is_left_as_it_is() -> None:
    dmljax.one_hot(np.array([[0]]), VALUES, axis=1, depth=2)
    assert bool(jax.config.read("jax_enable_x64")) == X64


def test_python_numbers_promote_as_in_jax() -> None:
    assert int(dmljax.nonzero_coordinates(3).count) == 1
    with pytest.raises(InvalidDesc, match=f"input must fit int{64 if X64 else 32}; got {2**80}"):
        dmljax.nonzero_coordinates(2**80)
    with pytest.raises(InvalidType, match="input must be a JAX or NumPy array; got complex"):
        dmljax.nonzero_coordinates(1j)


def test_objects_that_convert_to_jax_arrays_are_accepted() -> None:
    class Parameter:
        def __jax_array__(self) -> jax.Array:
            return jnp.array([1.0, 0.0])

    assert int(dmljax.nonzero_coordinates(Parameter()).count) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["complex64", "float8_e4m3fn", "int4", "S1", "O", "M8[s]", "longdouble"])
def test_other_types_are_refused_by_name(dtype: str) -> None:
    array = np.zeros((1,), jnp.dtype(dtype))
    with pytest.raises(InvalidType, match=r"^activation_hardmax: input must be bool, an integer .* got "):
        dmljax.activation_hardmax(array)


@pytest.mark.parametrize("make", [lambda: jnp.complex64(1), lambda: jax.random.key(0)], ids=["complex64", "key"])
@pytest.mark.parametrize("argument", ["input", "min", "max"])
def test_jax_arrays_of_other_types_are_refused_at_every_call(make: Any, argument: str) -> None:
    arguments = {"input": jnp.ones(2), "min": jnp.float32(0), "max": 1.0} | {argument: make()}
    expected = rf"^element_wise_clip: {argument} must be bool, an integer .* got (complex64|key<fry>)"
    functions: list[Any] = [dmljax.element_wise_clip, dmljax.element_wise_clip, jax.jit(dmljax.element_wise_clip)]
    for call in functions:
        with pytest.raises(InvalidType, match=expected):
            call(**arguments)


def test_axis_is_accepted_for_axes() -> None:
    input = np.array([[1, 5], [7, 0]], np.float32)
    assert_same_bits(dmljax.argmax(input, axis=1), dmljax.argmax(input, axes=1))  # type: ignore[call-arg]
    assert_same_bits(dmljax.activation_softmax1(input, axis=(0, 1)), dmljax.activation_softmax1(input, axes=(0, 1)))  # type: ignore[call-arg]
    with pytest.raises(InvalidType, match=r"^argmax: got an unexpected keyword argument 'axis'"):
        dmljax.argmax(input, axis=1, axes=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: dmljax.activation_relu([1.0, 2.0]), "got list (jnp.asarray converts it)"),  # type: ignore[arg-type]
        (lambda: dmljax.activation_relu({1.0}), "got set"),  # type: ignore[arg-type]
        (lambda: dmljax.argmax(VALUES, 1), "(give axes, axis_direction and dtype by name)"),  # type: ignore[call-arg]
        (lambda: dmljax.argmax(VALUES, axes=0, keepdims=False), "jnp.squeeze removes those of size 1)"),  # type: ignore[call-arg]
        (
            lambda: dmljax.mean_variance_normalization1(VALUES),  # type: ignore[call-arg]
            "(axes=-1 is the last dimension, axes=range(x.ndim) all of them)",
        ),
        (lambda: dmljax.gather(VALUES, VALUES), "(axis=0 is the first dimension, axis=-1 the last)"),  # type: ignore[call-arg]
        (
            lambda: dmljax.one_hot(depth=2),  # type: ignore[call-arg]
            "(values=jnp.array([0.0, 1.0]) gives the off and on values)",
        ),
        (
            lambda: dmljax.padding(VALUES, start_padding=(1,), end_padding=(1,), mode="reflect"),  # type: ignore[call-arg]
            "(did you mean padding_mode for mode?)",
        ),
        (lambda: dmljax.resample(VALUES, size=(2,)), "(did you mean output_sizes for size?)"),  # type: ignore[call-arg]
        (lambda: dmljax.random_generator(0, output_sizes=(2,)), "([0, 0, 0, 0, seed, 0], 'uint32') counts from 0)"),
        (
            lambda: dmljax.element_wise_identity(VALUES, scale_bias=(2, 1)),  # type: ignore[arg-type]
            "got (2, 1) (directml.ScaleBias(scale=..., bias=...))",
        ),
        (lambda: dmljax.element_wise_add(VALUES, VALUES.astype(int)), " (use jnp.asarray(b, 'float32'))"),
        (lambda: dmljax.element_wise_add(VALUES.astype(int), VALUES), " (use jnp.asarray(a, 'float32'))"),
        (
            lambda: dmljax.matrix_multiply_integer(SIGNED.T, SIGNED, np.array(3, np.int32)),
            " (use jnp.asarray(a_zero_point, 'int8'))",
        ),
        (lambda: dmljax.cast(VALUES, dtype="FLOAT16"), "got 'FLOAT16' ('float16' is one)"),
        (lambda: dmljax.cast(VALUES, dtype="UNKNOWN"), "got 'UNKNOWN'"),
        (lambda: dmljax.element_wise_clip(VALUES, min_value=0), "(did you mean min for min_value?)"),  # type: ignore[call-arg]
        (lambda: dmljax.roi_align(VALUES, VALUES, output_size=2), "takes all regions from the first image)"),  # type: ignore[call-arg]
        (lambda: dmljax.batch_normalization(VALUES), "(batch_normalization_training computes mean and variance)"),  # type: ignore[call-arg]
        (
            lambda: dmljax.gru(VALUES, VALUES, VALUES, hidden_size=3),  # type: ignore[call-arg]
            "(the last size of recurrence is the hidden size)",
        ),
        (lambda: dmljax.argmax(VALUES, dim=0), "(did you mean axes for dim?)"),  # type: ignore[call-arg]
        (lambda: dmljax.one_hot(VALUES, VALUES, dim=0, depth=2), "(did you mean axis for dim?)"),  # type: ignore[call-arg]
        (lambda: dmljax.one_hot(VALUES, VALUES, axis=0, num_classes=2), "(did you mean depth for num_classes?)"),  # type: ignore[call-arg]
        (lambda: dmljax.nonzero_coordinates(VALUES, fill=1), "(did you mean fill_value for fill?)"),  # type: ignore[call-arg]
        (lambda: dmljax.activation_relu(VALUES, fnord=1), "'fnord'; activation_relu(input)"),  # type: ignore[call-arg]
        (lambda: dmljax.activation_softmax(VALUES, axis=0), "; activation_softmax1(x, axes=0) takes others)"),  # type: ignore[call-arg]
        (lambda: dmljax.activation_hardmax(VALUES, axis=0), "(activation_hardmax1 takes axes)"),  # type: ignore[call-arg]
        (lambda: dmljax.fill_value_constant(1, shape=(2,)), "(did you mean output_sizes for shape?)"),  # type: ignore[call-arg]
        (lambda: dmljax.slice1(VALUES, begin=(1,)), "(did you mean starts for begin?)"),  # type: ignore[call-arg]
        (lambda: dmljax.slice1(VALUES, end=(1,)), "(sizes are numbers of elements, such as end - start)"),  # type: ignore[call-arg]
        (lambda: dmljax.max_pooling(VALUES, stride=2), "(did you mean strides for stride?)"),  # type: ignore[call-arg]
        (
            lambda: dmljax.max_pooling(VALUES, padding=1),  # type: ignore[call-arg]
            "(did you mean start_padding and end_padding for padding?)",
        ),
        (
            lambda: dmljax.max_pooling(VALUES, padding="SAME"),  # type: ignore[call-arg]
            "SAME is start_padding=(size - 1) // 2, end_padding=size // 2 for windows of that size; with others, "
            "start_padding, end_padding = zip(*jax.lax.padtype_to_pads(x.shape[2:], window, strides, 'SAME')))",
        ),
        (
            lambda: dmljax.max_pooling(VALUES, padding="VALID"),  # type: ignore[call-arg]
            "(VALID is start_padding=0, end_padding=0, the default)",
        ),
        (
            lambda: dmljax.max_pooling(VALUES, kernel_shape=2),  # type: ignore[call-arg]
            "(did you mean window_sizes for kernel_shape?)",
        ),
        *(
            (
                partial(getattr(dmljax, pool), VALUES, window_sizes=2, **{name: (1, 1, 4, 4)}),
                "rounds them up instead of down)",
            )
            for pool in ("average_pooling", "lp_pooling1", "max_pooling2")
            for name in ("output_sizes", "output_size")
        ),
        *(
            (partial(dmljax.split, VALUES, axis=0, **arguments), "size of each part along axis, such as (2, 2, 4))")
            for arguments in ({"output_sizes": (1, 1)}, {"num_outputs": 2})
        ),
        *(
            (partial(getattr(dmljax, name), VALUES, 1.0, axis=1), "one number for each channel of (N, C, H, W))")
            for name in ("dequantize", "element_wise_quantize_linear")
        ),
        (lambda: dmljax.tile(VALUES, repeats=2), "got 2 ((2,) * x.ndim has one for each dimension)"),  # type: ignore[arg-type]
        (
            lambda: dmljax.padding(VALUES, start_padding=1, end_padding=(0,)),  # type: ignore[arg-type]
            "got 1 ((1,) * x.ndim has one for each dimension)",
        ),
        (
            lambda: dmljax.slice(VALUES, starts=0, sizes=(1,)),  # type: ignore[arg-type]
            "got 0 ((0,) * x.ndim has one for each dimension)",
        ),
        (
            lambda: dmljax.random_generator(jax.random.key(0), output_sizes=(2,)),
            "(for random_generator, pass jnp.concatenate([jnp.zeros(4, 'uint32'), jax.random.key_data(key)]))",
        ),
        (
            lambda: dmljax.random_generator(jax.random.PRNGKey(0), output_sizes=(2,)),
            "(jnp.concatenate([jnp.zeros(4, 'uint32'), key]) counts from 0)",
        ),
    ],
)
def test_habits_from_other_libraries_get_a_remedy(call: Any, remedy: str) -> None:
    with pytest.raises(DmlError) as refused:
        call()
    assert str(refused.value).endswith(remedy)


def test_numpys_integers_serve_as_static_arguments() -> None:
    result = dmljax.one_hot(np.array([[1]]), VALUES, axis=np.int64(1), depth=np.uint8(2))  # type: ignore[arg-type]
    assert result.tolist() == [[0, 1]]


def test_arrays_serve_as_integers_and_sequences() -> None:
    input: Any = np.ones((2, 3), np.float32)
    axis: Any = np.array(1)
    assert dmljax.argmax(input, axes=axis).shape == (2, 1)
    axes: Any = np.array([0, 1])
    assert dmljax.argmax(input, axes=axes).shape == (1, 1)
    sizes: Any = np.array([2, 3])
    assert dmljax.diagonal_matrix1(None, 1, output_sizes=sizes).shape == (2, 3)


@pytest.mark.parametrize("sizes", [b"\2\3", {2, 3}, np.ones((2, 2), int), np.array(3), iter([2, 3]), "23"])
def test_anything_but_a_sequence_of_integers_is_refused(sizes: Any) -> None:
    with pytest.raises(InvalidType, match=r"^diagonal_matrix1: output_sizes must be a sequence of integers; got "):
        dmljax.diagonal_matrix1(None, 1, output_sizes=sizes)


@pytest.mark.parametrize("dtype", [jnp.zeros(2), np.zeros(2), 7, "FLOAT", object(), "S1", complex])
def test_anything_but_a_numeric_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(InvalidType, match=r"^diagonal_matrix1: dtype must be "):
        dmljax.diagonal_matrix1(None, 1, output_sizes=(2, 2), dtype=dtype)


def test_a_python_number_of_any_class_is_read_by_value() -> None:
    class Level(enum.IntEnum):
        HIGH = 7

    class Metres(float):
        pass

    assert int(dmljax.diagonal_matrix1(jnp.zeros((1, 1), jnp.uint8), Level.HIGH)[0, 0]) == 7
    assert float(dmljax.diagonal_matrix1(None, Metres(0.5), output_sizes=(1, 1))[0, 0]) == 0.5
    assert dmljax.one_hot(np.array([[0]]), VALUES, axis=1, depth=Level.HIGH).shape == (1, 7)


def test_types_are_weak_where_jax_keeps_them_weak() -> None:
    size = (2, 2)
    half = jnp.ones(size, jnp.bfloat16)
    # As for jnp.full: a mask made from a Python number takes the type of the array that it is added to.
    for make in (
        lambda: dmljax.diagonal_matrix1(None, -1.0, output_sizes=size),
        lambda: dmljax.diagonal_matrix(-1.0, output_sizes=size),
        lambda: dmljax.diagonal_matrix1(jnp.full(size, 2.0), -1.0),
        lambda: dmljax.gather_nd(jnp.full(size, 2.0), np.array([[0], [1]])),
        lambda: dmljax.one_hot(np.array([[0], [1]]), jnp.full((2,), 2.0), axis=1, depth=2),
    ):
        assert make().weak_type
        assert (half + make()).dtype == jax.jit(lambda make=make: half + make())().dtype == jnp.bfloat16
    assert not dmljax.diagonal_matrix1(None, -1.0, output_sizes=size, dtype="float32").weak_type
    assert not dmljax.diagonal_matrix1(None, np.float32(-1), output_sizes=size).weak_type
    assert not dmljax.diagonal_matrix1(jnp.full(size, 2.0), np.float32(-1)).weak_type
    assert not dmljax.diagonal_matrix1(half, -1.0).weak_type
    assert jax.jit(dmljax.diagonal_matrix1)(half, -1.0).dtype == jnp.bfloat16


@pytest.mark.parametrize("digits", [400, 5000])
def test_huge_integers_are_refused_by_their_length(digits: int) -> None:
    long = f"an int of {(10**digits).bit_length()} bits"
    with pytest.raises(InvalidDesc, match=f"^one_hot: depth must be in .*; got {long}"):
        dmljax.one_hot(np.array([[0]]), VALUES, axis=1, depth=10**digits)
    with pytest.raises(InvalidDesc, match=f"^diagonal_matrix1: value must .*float32; got {long}"):
        dmljax.diagonal_matrix1(jnp.zeros((2, 2), jnp.float32), 10**digits)
    with pytest.raises(InvalidDesc, match=f"^diagonal_matrix: value must .*int8; got {long}"):
        dmljax.diagonal_matrix(10**digits, output_sizes=(2, 2), dtype="int8")
    with pytest.raises(InvalidDesc, match=f"^argmax: axes must be in .*; got {long}"):
        dmljax.argmax(VALUES, axes=10**digits)
    with pytest.raises(InvalidDesc, match=f"^nonzero_coordinates: input must fit .*; got {long}"):
        dmljax.nonzero_coordinates(10**digits)


def test_arguments_may_be_given_by_name() -> None:
    assert dmljax.one_hot(values=VALUES, indices=np.array([[1]]), axis=1, depth=2).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing input; activation_hardmax"),
        ({"input": VALUES, "axis": 1}, "got an unexpected keyword argument 'axis'"),
    ],
)
def test_wrong_calls_name_the_operator(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidType, match=f"^activation_hardmax: {message}"):
        dmljax.activation_hardmax(**arguments)


def test_tracing_refuses_invalid_arguments() -> None:
    with pytest.raises(InvalidDesc, match=r"^one_hot: depth"):
        jax.jit(lambda i: dmljax.one_hot(i, VALUES, axis=1, depth=0)).trace(np.array([[1]]))
    with pytest.raises(InvalidDesc, match=r"^one_hot: depth"):
        jax.eval_shape(lambda i: dmljax.one_hot(i, VALUES, axis=1, depth=0), np.array([[1]]))


IMAGE = np.ones((1, 1, 4, 4), np.float32)
FAR = 2**31
average: Any = partial(dmljax.average_pooling, IMAGE)
total: Any = partial(dmljax.reduce, IMAGE, function=directml.ReduceFunction.SUM)


@pytest.mark.parametrize(
    ("call_", "message"),
    [
        *(
            (partial(dmljax.dynamic_quantize_linear, IMAGE, dtype=dtype), "integer type of at most 16 bits")
            for dtype in (np.float32, jnp.bfloat16, bool)
        ),
        *(
            (
                partial(dmljax.fill_value_sequence, start, 1, output_sizes=(3,)),
                "value_start must be bool, an integer of",
            )
            for start in (np.complex64(1), np.longdouble(1), jnp.float8_e4m3fn(1), jax.random.key(0))
        ),
        (lambda: total(axes=np.int32), "axes must be an integer"),
        *(
            (partial(average, **({"window_sizes": 2} | {name: np.int32})), f"{name} must be an integer")
            for name in ("window_sizes", "strides", "start_padding", "end_padding")
        ),
        (lambda: dmljax.tile(IMAGE, repeats=(1, 1, 1, 10**400)), r"repeats\[3\] must be in \["),
    ],
)
def test_wrong_types_and_numbers_are_refused(call_: Callable[[], Any], message: str) -> None:
    with pytest.raises(DmlError, match=message):
        call_()


@pytest.mark.parametrize(
    "call_",
    [
        lambda: dmljax.fill_value_constant(1.0, output_sizes=(FAR, FAR)),
        lambda: dmljax.diagonal_matrix(1, output_sizes=(FAR, FAR)),
        lambda: dmljax.padding(IMAGE, start_padding=(0, 0, FAR, FAR), end_padding=(0, 0, 0, 0)),
        lambda: dmljax.resample(IMAGE, scales=(1, 1, 2.0**29, 2.0**29)),
        lambda: dmljax.upsample_2d(IMAGE, scale_size=2**29),
        lambda: dmljax.slice_grad(IMAGE, starts=(0, 0, 0, 0), sizes=(1, 1, 4, 4), output_sizes=(FAR, FAR, 4, 4)),
        lambda: dmljax.roi_pooling(IMAGE, np.zeros((1, 5), np.float32), pooled_size=FAR),
        lambda: dmljax.roi_align(
            IMAGE, np.ones((1, 4), np.float32), np.zeros(1, np.uint32), output_size=FAR, maximum_samples_per_output=1
        ),
        lambda: dmljax.convolution(IMAGE, IMAGE, start_padding=FAR),
        lambda: dmljax.average_pooling(IMAGE, window_sizes=2, start_padding=FAR),
        lambda: dmljax.lp_pooling(IMAGE, window_sizes=2, start_padding=FAR),
        lambda: dmljax.tile(IMAGE, repeats=(FAR, FAR, 1, 1)),
    ],
)
def test_arrays_that_xla_cannot_address_are_refused(call_: Callable[[], Any]) -> None:
    with pytest.raises(DmlError, match=r"(fewer than|under) 2\*\*63 bytes|must have at most 2147483647 elements"):
        call_()


def test_any_array_that_xla_can_address_is_traced() -> None:
    large = jax.eval_shape(lambda: dmljax.fill_value_constant(np.int8(1), output_sizes=(FAR - 1, FAR)))
    assert large.shape == (FAR - 1, FAR)


@pytest.mark.parametrize(
    ("call_", "message"),
    [
        (partial(dmljax.element_wise_add, BYTES, 300), "b must be a whole number in [0, 255] to fit uint8; got 300"),
        (partial(dmljax.element_wise_add, -1, BYTES), "a must be a whole number in [0, 255] to fit uint8; got -1"),
        (partial(dmljax.element_wise_pow, SIGNED, 128), "exponent must be a whole number in [-128, 127] to fit int8"),
        (partial(dmljax.matrix_multiply_integer, BYTES, SIGNED, -1), "a_zero_point must be a whole number in [0, 255]"),
        (
            partial(dmljax.matrix_multiply_integer, BYTES, SIGNED, 1, 0.5),
            "b_zero_point must be a whole number in [-128",
        ),
        (partial(dmljax.dequantize, SIGNED, 0.5, 128), "zero_point must be a whole number in [-128, 127] to fit int8"),
        (
            partial(dmljax.quantized_linear_matrix_multiply, BYTES, 1.0, 0, SIGNED, 1.0, 0, 1.0, -1),
            "output_zero_point must be a whole number in [0, 255] to fit uint8; got -1",
        ),
        *(
            (partial(dmljax.quantize, VALUES, 0.5, number, **dtype), f"zero_point must be a whole number in {limits}")
            for number, dtype, limits in (
                (256, {}, "[0, 255] to fit uint8; got 256"),
                (0.5, {"dtype": "int8"}, "[-128, 127] to fit int8; got 0.5"),
                (8, {"dtype": "int4"}, "[-8, 7] to fit int4; got 8"),
            )
        ),
        (partial(dmljax.quantize, VALUES.astype(np.float16), 1e6), "scale must fit float16; got 1000000.0"),
    ],
)
def test_python_numbers_must_fit_the_arrays_type(call_: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidDesc, match=re.escape(message)):
        call_()


@pytest.mark.parametrize(
    ("call_", "message"),
    [
        (
            partial(dmljax.rnn, HALVES, HALVES, HALVES, bias=0.5),
            "rnn: bias must have the shape (1, 2): directions, 2 * ",
        ),
        (partial(dmljax.convolution, HALVES, 0.5), "convolution: filter must have 3 dimensions, like input; got 0"),
        (partial(dmljax.max_pooling_grad, 0.5, HALVES, window_sizes=1), "input must have at least 3 dimensions; got 0"),
    ],
)
def test_a_python_number_in_place_of_an_array_with_dimensions_is_refused_as_such(
    call_: Callable[[], Any], message: str
) -> None:
    with pytest.raises(InvalidDesc, match=re.escape(message)):
        call_()


def test_refusals_are_dml_and_builtin_errors() -> None:
    for error, builtin in ((InvalidDesc, ValueError), (InvalidType, TypeError), (Unsupported, NotImplementedError)):
        assert issubclass(error, dmljax.DmlError)
        assert issubclass(error, builtin)


@FULL
@pytest.mark.parametrize(
    "call_",
    [
        lambda: dmljax.diagonal_matrix(1, output_sizes=(2, 2), dtype=np.float32),
        lambda: dmljax.diagonal_matrix1(None, 1.0, output_sizes=(2, 2), dtype=np.float32),
        lambda: dmljax.fill_value_constant(1.0, output_sizes=(2,), dtype=np.float32),
        lambda: dmljax.fill_value_sequence(1.0, 1.0, output_sizes=(2,), dtype=np.float32),
        lambda: dmljax.activation_shrink(np.array([-3, 0.25, 3], np.float32)),
        lambda: dmljax.element_wise_constant_pow(np.array([1, 2], np.float32), 2.0),
        lambda: dmljax.top_k(np.array([1, 3, 2], np.float32), axis=0, k=2),
        lambda: dmljax.roi_align(np.ones((1, 1, 4, 4)), np.ones((1, 4)), np.array([0]), output_size=2),
    ],
)
def test_numbers_have_the_same_type_without_jit(call_: Callable[[], Any]) -> None:
    expected = call_()
    with jax.disable_jit():
        assert_same_trees(call_(), expected)


# Python numbers, whose conversions are cached


def test_numbers_are_distinguished_by_their_bits() -> None:
    for value in (0.0, -0.0, 0.0, 1e-40, -1e-40, 2.0**-126):
        for _ in range(2):  # converted, and remembered
            filled = dmljax.fill_value_constant(value, output_sizes=(1,), dtype="float32")
            assert_same_bits(filled, np.array([value], np.float32))


def test_numbers_are_on_the_device_of_the_arrays() -> None:
    def halved(x: Any) -> Any:
        return dmljax.element_wise_clip(x, 0.25, 0.5)

    last = jax.devices()[-1]
    for x in (jnp.arange(3.0), jnp.arange(3, dtype=np.float32)):  # weakly typed, and not
        assert jax.jit(lambda x=x: halved(x))().tolist() == [0.25, 0.5, 0.5]  # the first call is made while tracing
        with jax.transfer_guard("disallow"):  # no number is transferred to the device at each call
            result = halved(x)
        assert result.tolist() == [0.25, 0.5, 0.5]
        assert result.weak_type == x.weak_type
    assert halved(jax.device_put(x, last)).devices() == {last}
    with jax.default_device(last):
        assert halved(jnp.arange(3.0)).devices() == {last}
    assert halved(x).devices() == x.devices()


def test_numbers_are_converted_anew_for_another_type() -> None:
    for dtype in ("float16", "float32", "int8", "float16"):
        x = np.array([1, 5], dtype)
        for clip in (dmljax.element_wise_clip, jax.jit(dmljax.element_wise_clip, static_argnums=(1, 2))):
            assert_same_bits(clip(x, 1.7, 3.3), np.clip(x, np.array(1.7).astype(dtype), np.array(3.3).astype(dtype)))
    with pytest.raises(InvalidDesc, match=r"^element_wise_add: b must be a whole number in \[-128, 127\]"):
        dmljax.element_wise_add(np.array([1], np.int8), 200)


def test_an_operator_caches_a_bounded_number_of_numbers() -> None:
    from dmljax.calls.decorator import _MAX_NUMBERS

    x = jnp.array([1.0], jnp.float32)
    for value in range(_MAX_NUMBERS + 10):
        dmljax.activation_leaky_relu(x, float(value))
    (called,) = (
        cell.cell_contents
        for cell in dmljax.activation_leaky_relu.__closure__ or ()
        if hasattr(cell.cell_contents, "numbers")
    )
    assert 0 < len(called.numbers) <= _MAX_NUMBERS


def test_an_annotation_without_a_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must have an annotation that says its kind; got <class 'str'>$"):

        @calls.operator_function
        def repeat(x: str) -> Any:
            return x


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"missing indices, values, depth; one_hot\(indices, values, \*, axis=-1, depth\) \("),
        ((VALUES,), {"axis": 0, "depth": 2}, "missing values; one_hot"),
        ((VALUES, VALUES, 0), {"depth": 2}, r"too many positional arguments \(give axis by name\)"),
        ((VALUES, VALUES, 0), {"axis": 1, "depth": 2}, r"too many positional arguments \(one_hot\(indices, values, "),
        ((VALUES, VALUES), {"axis": 0}, "missing depth; one_hot"),
        ((VALUES, VALUES), {"axis": 0, "depth": 2, "dept": 2}, "got an unexpected keyword argument 'dept'"),
        ((VALUES, VALUES), {"axis": 0, "depth": 2, "values": VALUES}, "multiple values for argument 'values'"),
    ],
)
def test_a_call_that_python_would_refuse_is_refused(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(InvalidType, match=f"^one_hot: {message}"):
        dmljax.one_hot(*args, **kwargs)


@pytest.mark.parametrize("name", ["element_wise_add", "element_wise_quantize_linear", "quantize"])
def test_errors_suggest_the_shape_of_per_channel_numbers(name: str) -> None:
    image = np.ones((2, 3, 4, 5), np.float32)
    remedy = "for one number per channel, reshape to (3, 1, 1)"
    with pytest.raises(InvalidDesc, match=re.escape(f"({remedy})")):
        getattr(dmljax, name)(image, np.ones(3, np.float32))
    with pytest.raises(InvalidDesc) as refused:
        getattr(dmljax, name)(image, np.ones(2, np.float32))
    assert refused.value.problems[0].remedy is None
