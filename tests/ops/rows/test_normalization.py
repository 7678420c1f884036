"""Normalizations; examples run in test_every_operator.py."""

import math
from typing import Any

import cases_normalization as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_normalization import BATCH_NORM, MEAN_VARIANCE_NORM, TRAINING_NORM, assert_near, normalization_desc
from helpers import FULL, GATE, assert_same_bits, f32, mesh_of, needs_x64, refuses
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import dmljax
from dmljax import directml

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
CHANNELS: Any = tuple((RNG.random((3, 1, 1)) + 0.5).astype(np.float32) for _ in range(4))
RELU = directml.ActivationReluDesc()


def normalized(x: Any, *others: Any, **arguments: Any) -> Any:
    """MEAN_VARIANCE_NORMALIZATION2; the others are special cases."""
    return dmljax.mean_variance_normalization2(x, *others, **arguments)


def exact_rows(x: Any, axes: Any, epsilon: float, use_mean: bool = True) -> Any:
    """Computes in more digits than float64, if the machine has such a type."""
    x = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        centered = x - x.mean(axis=axes, keepdims=True) if use_mean else x
        variance = np.square(centered).mean(axis=axes, keepdims=True) + np.longdouble(np.float32(epsilon))
        return (centered / np.sqrt(variance)).astype(np.float64)


# Digits

# The bound of errors: units in the last place of the result, of 1 if it is smaller, or of the mean, which is rounded.
# XLA adds up long rows accurately, and less so before JAX 0.10.
BOUND = 4 if jax.__version_info__ >= (0, 10) else 64
USES = [(epsilon, use_mean) for epsilon in (0.0, 1e-5) for use_mean in (False, True)]


@jax.jit  # once for rows of each shape
def of_rows(x: Any) -> list[Any]:
    return [
        *(normalized(x, axes=1, epsilon=epsilon, use_mean=use_mean) for epsilon, use_mean in USES),
        *(dmljax.lp_normalization(x, 0.0, axis=1, p=p) for p in (1, 2)),
    ]


@pytest.mark.parametrize(
    ("name", "rows"),
    {
        "around 0": RNG.standard_normal((16, 768)),
        "around 1e4": 1e4 + RNG.standard_normal((16, 768)),
        "around 1e7, where numbers are whole": 1e7 + RNG.standard_normal((16, 768)),
        "positive and long": RNG.random((2, 100_352)),
        "around 100, and of an odd length": 100 + RNG.random((3, 12_321)),
        "large": 1e15 * RNG.standard_normal((16, 768)),
        "small": 1e-15 * RNG.standard_normal((16, 768)),
        "one outlier": np.where(np.arange(768) == 7, 1e6, RNG.standard_normal((16, 768))),
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.gate(but=2)
def test_errors_are_bounded_for_any_rows(name: str, rows: Any) -> None:
    x = rows.astype(np.float32)
    *results, first, second = of_rows(x)
    unit = float(np.finfo(np.float32).eps)
    for result, (epsilon, use_mean) in zip(results, USES, strict=True):
        exact = exact_rows(x, 1, epsilon, use_mean)
        wide = x.astype(np.float64)
        of_mean = np.abs(wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + epsilon) if use_mean else 0
        error = np.abs(np.asarray(result, np.float64) - exact) / (np.maximum(np.abs(exact), 1) + of_mean)
        assert error.max() <= BOUND * unit, (epsilon, use_mean)
    for result, p in ((first, 1), (second, 2)):
        exact = oracles.lp_normalized(x, 0, axis=1, p=p)
        np.testing.assert_allclose(result, exact, rtol=BOUND * unit, atol=1e-38)


def test_squares_overflow_in_float32_and_not_in_float16(call: Any) -> None:
    large = np.array([[1e20, -1e20], [-3e19, 3e19]], np.float32)
    assert call(normalized, large, axes=1).tolist() == [[0, 0], [0, 0]]
    assert call(dmljax.lp_normalization, large, axis=1).tolist() == [[0, 0], [0, 0]]
    half = np.array([[6e4, -6e4], [-3e4, 3e4]], np.float16)
    assert call(normalized, half, axes=1).tolist() == [[1, -1], [-1, 1]]
    np.testing.assert_allclose(call(dmljax.lp_normalization, half[0, :1], axis=0), [1])


@pytest.mark.parametrize("constant", [0.1, -7e-3, 30.0])
@pytest.mark.gate(but=1)
def test_rows_of_one_value_are_nearly_0(constant: float) -> None:
    rows = np.full((3, 1001), constant, np.float32)
    np.testing.assert_allclose(normalized(rows, axes=1), 0 * rows, atol=abs(constant) * 1e-3)
    weigh = lambda x: (normalized(x, axes=1) * np.arange(1001.0, dtype=x.dtype)[None]).sum()  # noqa: E731
    assert np.isfinite(jax.jit(jax.grad(weigh))(rows)).all()


def test_a_single_element_has_no_variance(call: Any) -> None:
    x = np.array([[5.0], [-2.0]], np.float32)
    assert call(normalized, x, axes=1).tolist() == [[0], [0]]
    assert np.isnan(call(normalized, x, axes=1, epsilon=0.0)).all()
    assert call(normalized, x, axes=1, epsilon=0.0, use_mean=False).tolist() == [[1], [-1]]
    assert call(dmljax.lp_normalization, x, 0.0, axis=1).tolist() == [[1], [-1]]


@FULL
def test_infinities_and_nan_stay_in_their_rows() -> None:
    x = np.array([[1, np.inf, 3], [1, 2, 3], [np.nan, 2, 3]], np.float32)
    finite = np.asarray(normalized(x[1:2], axes=1))
    for result in (normalized(x, axes=1), dmljax.mean_variance_normalization1(x, axes=(1,))):
        assert np.isnan(result[::2]).all()
        np.testing.assert_allclose(result[1:2], finite, rtol=1e-6)
    divided = np.asarray(dmljax.lp_normalization(x, axis=1))
    assert_same_bits(divided[0, ::2], np.zeros(2, np.float32))
    assert np.isnan(divided[0, 1])
    assert np.isnan(divided[2]).all()


@FULL
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_16_bit_floats_are_rounded_once(dtype: Any) -> None:
    wide = (4 + RNG.standard_normal((3, 4, 300))).astype(dtype)
    channels = [array.reshape(1, 3, 1).astype(dtype) for array in CHANNELS]
    rows, given = wide.astype(np.float32), [array.astype(np.float32) for array in channels]

    def every(x: Any, one: Any, two: Any, three: Any, four: Any) -> Any:
        transposed = jnp.moveaxis(x, 0, 1)
        return [
            normalized(x, axes=2),
            normalized(x, axes=2, use_mean=False),
            dmljax.batch_normalization(transposed, one, two, three, four),
            *dmljax.batch_normalization_training(transposed, one, two, transposed),
            *dmljax.batch_normalization_grad(transposed, transposed, one, two, three),
            *dmljax.batch_normalization_training_grad(transposed, transposed, one, two, three),
            dmljax.local_response_normalization(x, 1.0, local_size=3),
            dmljax.local_response_normalization_grad(x, x, 1.0, local_size=3),
            dmljax.lp_normalization(x, axis=2),
        ]

    of_every = jax.jit(every)
    for narrow, one in zip(of_every(wide, *channels), of_every(rows, *given), strict=True):
        assert narrow.dtype == dtype
        error = np.asarray(narrow, np.float64) - np.asarray(one, np.float64)
        # Half a unit, and float32's own small error.
        digits = jnp.finfo(dtype).nmant
        assert np.all(np.abs(error) <= 2.0 ** (-digits - 1) * 1.01 * np.abs(np.asarray(one)) + 2.0**-25)


@needs_x64
def test_float64_is_fully_accurate() -> None:
    x = RNG.standard_normal((4, 768))
    result = normalized(x, axes=1, epsilon=0.0)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, exact_rows(x, 1, 0.0), rtol=1e-14, atol=1e-14)


# The pseudo-code


AXES = [((5,), (0,)), ((2, 3), (1,)), ((4, 1, 3), (2, 0)), ((2, 3, 4, 2), (1, 2, 3)), ((3, 2, 2, 5), (0,))]


@FULL
@pytest.mark.parametrize(("shape", "axes"), AXES, ids=str)
def test_batches_of_any_shape_equal_the_pseudo_code(shape: Any, axes: Any) -> None:
    x, gradient = RNG.integers(-9, 10, (2, *shape)).astype(np.float32)
    of_parameters = tuple(1 if i in axes else size for i, size in enumerate(shape))
    mean, variance, scale, bias = (RNG.random((4, *of_parameters)) + 0.5).astype(np.float32)
    pairs: list[tuple[Any, Any, Any]] = [
        (dmljax.batch_normalization, oracles.batch_normalized, (x, mean, variance, scale, bias)),
        (dmljax.batch_normalization_grad, oracles.batch_gradients, (x, gradient, mean, variance, scale)),
        (dmljax.batch_normalization_training, oracles.batch_trained, (x, scale, bias, gradient)),
        (dmljax.batch_normalization_training_grad, oracles.trained_gradients, (x, gradient, mean, variance, scale)),
    ]
    every = jax.jit(lambda arrays: [pair[0](*given, 0.25) for pair, given in zip(pairs, arrays, strict=True)])
    for results, (_, oracle, given) in zip(every([given for *_, given in pairs]), pairs, strict=True):
        for result, exact in zip(jax.tree.leaves(results), jax.tree.leaves(oracle(*given, 0.25)), strict=True):
            # Sums of up to a few hundred summands, most of which may cancel
            assert_near(result, exact, units=64)


@FULL
@pytest.mark.parametrize("cross_channel", [True, False])
@pytest.mark.parametrize("local_size", [1, 2, 3, 4, 5, 8, 11, 2**32 - 1])
def test_local_regions_equal_the_pseudo_code(local_size: int, cross_channel: bool) -> None:
    x, gradient = RNG.integers(-4, 5, (2, 2, 6, 4, 3)).astype(np.float32)
    size = min(local_size, 30)  # regions are no larger than this
    numbers = [0.5 * local_size / size, 0.75, 1.5]
    uses: dict[str, Any] = {"local_size": local_size, "cross_channel": cross_channel}
    respond = lambda x: dmljax.local_response_normalization(x, *numbers, **uses)  # noqa: E731
    result, pulled, gradients = jax.jit(
        lambda x, g: [
            respond(x),
            *jax.vjp(respond, x)[1](g),
            dmljax.local_response_normalization_grad(x, g, *numbers, **uses),
        ]
    )(x, gradient)
    of_oracle = [0.5, 0.75, 1.5]
    uses["local_size"] = size
    assert_near(result, oracles.local_response(x, *of_oracle, **uses))
    exact = oracles.local_response_gradient(x, gradient, *of_oracle, **uses)
    assert_near(gradients, exact, units=16)
    assert_near(pulled, exact, units=16)


def test_an_even_region_reaches_further_after_an_element() -> None:
    x = np.array([[1.0, 10.0, 100.0]], np.float32)
    result = dmljax.local_response_normalization(x, 2.0, 1.0, 0.0, local_size=2)
    np.testing.assert_allclose(result, [[1 / 101, 10 / 10_100, 100 / 10_000]], rtol=1e-6)
    # Regions of space have local_size elements in each dimension, and alpha is divided by local_size once.
    square = np.ones((1, 1, 3, 3), np.float32)
    result = dmljax.local_response_normalization(square, 3.0, 1.0, 0.0, local_size=3, cross_channel=False)
    np.testing.assert_allclose(result[0, 0], [[1 / 4, 1 / 6, 1 / 4], [1 / 6, 1 / 9, 1 / 6], [1 / 4, 1 / 6, 1 / 4]])


def test_regions_may_have_thousands_of_channels() -> None:
    x = np.ones((1, 5000, 1), np.float32)
    result = dmljax.local_response_normalization(x, 1.0, 1.0, 0.0, local_size=4001)
    counts = np.convolve(x[0, :, 0], np.ones(4001), "same")
    np.testing.assert_allclose(result[0, :, 0], 4001 / counts, rtol=1e-6)


def test_squares_in_a_local_response_overflow_as_on_the_page() -> None:
    x = np.array([[1e30, 1.0, 0.0]], np.float32)
    assert dmljax.local_response_normalization(x, local_size=3).tolist() == [[0, 0, 0]]
    assert np.isnan(dmljax.local_response_normalization(x[:, 2:], bias=0.0, local_size=1)).all()  # 0 / 0


@pytest.mark.full
def test_cross_channel_means_all_axes_of_an_image() -> None:
    scale, bias = CHANNELS[:2]
    for cross_channel, axes in ((True, (1, 2, 3)), (False, (2, 3))):
        result = dmljax.mean_variance_normalization(IMAGES, scale, bias, cross_channel=cross_channel)
        assert_same_bits(result, dmljax.mean_variance_normalization1(IMAGES, scale, bias, axes=axes))
        assert_same_bits(
            dmljax.mean_variance_normalization(IMAGES, cross_channel=cross_channel, normalize_variance=False),
            dmljax.mean_variance_normalization1(IMAGES, axes=axes, normalize_variance=False),
        )
        assert_near(result, oracles.mean_variance_normalized(IMAGES, scale, bias, 1e-5, axes=axes))


def test_epsilon_is_a_lower_bound_of_a_norm() -> None:
    x = np.array([[3, -4], [0.3, 0.4], [0, 0]], np.float32)
    assert_near(dmljax.lp_normalization(x, 2.0, axis=1), x / [[5], [2], [2]], units=1)
    assert_near(dmljax.lp_normalization(x, 2.0, axis=1, p=1), x / [[7], [2], [2]], units=1)
    assert np.isnan(dmljax.lp_normalization(x, 0.0, axis=1)[2]).all()
    # Also where the squares, or the square of epsilon, vanish or overflow
    rows = np.array([[1e-30, 0], [2e-38, -1e-38]], np.float32)
    for epsilon in (1e-30, 1e-5, 1e30, 3e38):
        assert_near(dmljax.lp_normalization(rows, epsilon, axis=1), oracles.lp_normalized(rows, epsilon, axis=1, p=2))


def test_epsilon_matters_for_small_and_large_rows() -> None:
    rows = np.exp2(np.arange(-60.0, 61, 24))[:, None] * np.array([[1, -1, 2, -2]])
    for epsilon in (1e-20, 1.0, 1e20):
        result = np.asarray(normalized(rows.astype(np.float32), axes=1, epsilon=epsilon))
        np.testing.assert_allclose(result, exact_rows(rows, 1, epsilon), rtol=1e-6, atol=1e-37)


def test_parameters_of_full_size_normalize_rows_of_one_element() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    output, mean, variance = dmljax.batch_normalization_training(x, 2 * x, x, epsilon=1.0)
    for actual, expected in ((output, x), (mean, x), (variance, 0 * x)):
        assert_same_bits(actual, expected)


@FULL
@pytest.mark.parametrize("activation", [RELU, directml.ActivationLinearDesc(alpha=-2, beta=1)])
def test_an_activation_may_be_fused(activation: Any) -> None:
    apply = lambda x: activation.compute(input=x)  # noqa: E731
    pairs = jax.jit(
        lambda x, channels: [
            (call_(fused_activation=activation), apply(call_()))
            for call_ in (
                lambda **more: dmljax.batch_normalization(x, *channels, **more),
                lambda **more: dmljax.batch_normalization_training(x, channels[0], channels[1], x, **more).output,
                lambda **more: dmljax.mean_variance_normalization(x, channels[0], channels[1], **more),
                lambda **more: dmljax.mean_variance_normalization1(x, None, channels[0], axes=1, **more),
                lambda **more: dmljax.mean_variance_normalization2(x, channels[0], axes=1, **more),
            )
        ]
    )(IMAGES, CHANNELS)
    for fused, expected in pairs:
        np.testing.assert_allclose(fused, expected, rtol=1e-6, atol=1e-6)
    # As in a separate operator, it acts on the rounded result.
    x = IMAGES.astype(np.float16)
    fused = dmljax.mean_variance_normalization2(x, axes=1, fused_activation=activation)
    assert_same_bits(fused, apply(dmljax.mean_variance_normalization2(x, axes=1)))


def test_numbers_take_the_type_of_the_input_and_epsilon_is_a_float() -> None:
    x = np.ones((2, 3), np.float16)
    assert dmljax.batch_normalization(x, 1, 2.5, 3, 4).dtype == np.float16
    assert dmljax.mean_variance_normalization1(x, 2, axes=1, epsilon=1e-9).dtype == np.float16
    tiny = dmljax.mean_variance_normalization2(
        np.array([1e-4, -1e-4], np.float16), axes=0, epsilon=1e-8
    )  # float16 has no 1e-8
    np.testing.assert_allclose(tiny, [0.707, -0.707], rtol=1e-3)


# Gradients


def test_batch_gradients_equal_the_gradient_operators() -> None:
    x = (5 + RNG.standard_normal((4, 3, 6))).astype(np.float32)
    gradient = RNG.standard_normal(x.shape).astype(np.float32)
    mean, variance, scale, bias = (array.reshape(1, 3, 1) for array in CHANNELS)

    @jax.jit
    def every() -> Any:
        _, pull = jax.vjp(lambda x, s, b: dmljax.batch_normalization(x, mean, variance, s, b, 0.01), x, scale, bias)
        (_, own_mean, own_variance), pull_training = jax.vjp(
            lambda x, s, b: dmljax.batch_normalization_training(x, s, b, epsilon=0.01), x, scale, bias
        )
        zeros = jnp.zeros_like(own_mean)
        return (
            (pull(gradient), dmljax.batch_normalization_grad(x, gradient, mean, variance, scale, 0.01)),
            (
                pull_training(dmljax.BatchNormalizationTraining(jnp.asarray(gradient), zeros, zeros)),
                dmljax.batch_normalization_training_grad(x, gradient, own_mean, own_variance, scale, 0.01),
            ),
        )

    for pulled, gradients in every():
        assert isinstance(gradients, dmljax.BatchNormalizationGradients)
        for actual, expected in zip(gradients, pulled, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_a_trained_batch_is_centered_by_the_given_mean() -> None:
    x, gradient = RNG.standard_normal((2, 4, 3, 6)).astype(np.float32)
    _, variance, scale, _ = (array.reshape(1, 3, 1) for array in CHANNELS)
    mean = np.ones_like(scale)
    result = dmljax.batch_normalization_training_grad(x, gradient, mean, variance, scale)
    expected = oracles.trained_gradients(x, gradient, mean, variance, scale, 1e-5)
    for actual, exact in zip(result, expected, strict=True):
        assert_near(actual, exact, units=64)


@FULL
def test_gradients_are_finite_and_right_at_the_edges() -> None:
    rows = np.stack([s * np.array([1.0, -2, 4, 0.5]) for s in (1e-15, 1.0, 1e10)])
    weights = np.array([[1.0, -1, 3, 2]])

    def gradient(x: Any, one: Any) -> Any:
        (centered,) = [x - x.mean()]
        root = np.sqrt(np.square(centered).mean() + one)
        normal = centered / root
        return (weights[0] - weights.mean() - normal * (normal * weights[0]).mean()) / root

    loss = lambda x: (normalized(x, axes=1) * weights.astype(np.float32)).sum()  # noqa: E731
    actual = jax.grad(loss)(rows.astype(np.float32))
    for row, expected in zip(actual, (gradient(x, np.float32(1e-5)) for x in rows), strict=True):
        np.testing.assert_allclose(row, expected, rtol=1e-4)
    # Rows of zeros, and of one value
    flat = np.array([[0, 0, 0, 0], [3, 3, 3, 3]], np.float32)
    expected = (weights[0] - weights.mean()) / math.sqrt(1e-5)
    np.testing.assert_allclose(jax.grad(loss)(flat), [expected, expected], rtol=1e-5)
    norm = lambda x: (dmljax.lp_normalization(x, 0.5, axis=1) * weights.astype(np.float32)).sum()  # noqa: E731
    np.testing.assert_allclose(jax.grad(norm)(flat)[0], weights[0] / 0.5, rtol=1e-6)


def test_empty_batches_are_empty() -> None:
    empty, ones = np.zeros((0, 3, 4), np.float32), np.ones((1, 3, 1), np.float32)
    assert normalized(empty, axes=2).shape == empty.shape
    assert dmljax.batch_normalization(empty, ones, ones, ones, ones).shape == empty.shape
    assert dmljax.lp_normalization(empty, axis=2).shape == empty.shape
    assert dmljax.local_response_normalization(empty, local_size=3).shape == empty.shape
    output, mean, variance = dmljax.batch_normalization_training(empty, ones, ones)
    assert output.shape == empty.shape
    for moment in (mean, variance):  # without elements
        assert np.isnan(moment).all()
    assert dmljax.batch_normalization_grad(empty, empty, ones, ones, ones).bias.tolist() == np.zeros((1, 3, 1)).tolist()


@FULL
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
def test_statistics_of_a_sharded_batch_cover_the_whole_batch(axis_type: AxisType) -> None:
    x = (1 + RNG.standard_normal((8, 4, 6))).astype(np.float32)
    scale, bias = (RNG.random((2, 1, 4, 1)) + 0.5).astype(np.float32)
    mesh = mesh_of(axis_type, rows=4, columns=2)
    place = lambda array, *spec: jax.device_put(array, NamedSharding(mesh, P(*spec)))  # noqa: E731
    train = jax.jit(lambda x, s, b: dmljax.batch_normalization_training(x, s, b, epsilon=0.0))
    exact = oracles.batch_trained(x, scale, bias, 0 * x, 0)
    for spec in (("rows", "columns"), (None, "rows", "columns"), (("rows", "columns"),)):
        for actual, expected in zip(train(place(x, *spec), place(scale), place(bias)), exact, strict=True):
            assert_near(actual, expected)


# Refusals


@GATE
def test_numbers_per_channel_need_no_other_dimension() -> None:
    mean, variance, scale, bias = CHANNELS
    flat = [parameter.ravel() for parameter in CHANNELS]
    for name, parameters in {
        "batch_normalization": (mean, variance, scale, bias),
        "batch_normalization_training": (scale, bias),
        "mean_variance_normalization": (scale, bias),
    }.items():
        function = getattr(dmljax, name)
        images = IMAGES[..., :3]  # as wide as the number of channels: parameters by channel must not apply to the width
        expected = function(images, *parameters)
        results = function(images, *(parameter.ravel() for parameter in parameters))
        for result, reference in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
            assert_same_bits(result, reference if reference.ndim == 4 else reference.ravel())
    for name in ("batch_normalization_grad", "batch_normalization_training_grad"):
        function = getattr(dmljax, name)
        expected = function(IMAGES, -IMAGES, mean, variance, scale)
        for result, reference in zip(function(IMAGES, -IMAGES, *flat[:3]), expected, strict=True):
            assert_same_bits(result, reference if reference.ndim == 4 else reference.ravel())
    one_for_all = dmljax.batch_normalization(IMAGES, np.zeros(1, np.float32), np.ones(1, np.float32))
    assert_near(one_for_all, dmljax.batch_normalization(IMAGES, 0.0, 1.0))


def test_batch_normalization_works_without_scale_and_bias() -> None:
    mean, variance, scale, bias = CHANNELS
    for given in ({}, {"scale": scale}, {"bias": bias}):
        filled = {"scale": 1.0, "bias": 0.0} | given
        without = dmljax.batch_normalization(IMAGES, mean, variance, **given)
        assert_near(without, dmljax.batch_normalization(IMAGES, mean, variance, **filled))


@GATE
def test_a_batch_trains_by_channel_without_scale_and_bias() -> None:
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    shifted = IMAGES + 5
    cases: list[dict[str, Any]] = [{}, {"scale": 2 * ones}, {"bias": 2 * ones}, {"bias": 2 * ones.reshape(3, 1, 1)}]
    for given in cases:
        shape = next(iter(given.values()), ones).shape
        filled: dict[str, Any] = {"scale": ones.reshape(shape), "bias": zeros.reshape(shape)} | given
        results = dmljax.batch_normalization_training(shifted, fused_add=IMAGES, **given)
        assert results.mean.shape == shape
        for result, expected in zip(
            results, dmljax.batch_normalization_training(shifted, fused_add=IMAGES, **filled), strict=True
        ):
            assert_near(result, expected)


@pytest.mark.parametrize("name", ["mean_variance_normalization1", "mean_variance_normalization2"])
def test_rows_without_axes_or_dimensions_have_one_element(name: str) -> None:
    function = getattr(dmljax, name)
    assert_same_bits(function(IMAGES, axes=()), np.zeros_like(IMAGES))
    assert_same_bits(function(IMAGES[0, 0, 0, 0], axes=()), np.float32(0))


@pytest.mark.parametrize(
    ("desc", "level", "message"),
    [
        (
            normalization_desc(BATCH_NORM, spatial=False),
            "3_1",
            "MeanTensor.Sizes must end with {3,4} below ...; got {3,1}",
        ),
        (
            normalization_desc(BATCH_NORM, spatial=False, mean=f32(1, 1, 3, 4)),
            "3_1",
            "VarianceTensor.Sizes must end with {3,4} below",
        ),
        (
            normalization_desc(BATCH_NORM, fused_activation=directml.ActivationGeluDesc()),
            "3_1",
            "FusedActivation.Type must be one of DML_FEATURE_LEVEL_3_1",
        ),
        *(
            (
                normalization_desc(f"{MEAN_VARIANCE_NORM}{version}", **{absent: None}),
                "5_1",
                f"{absent.title()}Tensor must be given below DML_FEATURE_LEVEL_5_2, if {other}Tensor is; got none",
            )
            for version in ("", "1")
            for absent, other in (("scale", "Bias"), ("bias", "Scale"))
        ),
        (
            normalization_desc(f"{MEAN_VARIANCE_NORM}1", scale=f32(1, 1, 1, 4)),
            "3_1",
            "ScaleTensor.Sizes[1] must be 3 below ...; got 1",
        ),
    ],
)
def test_a_desc_is_refused_at_a_level(desc: Any, level: str, message: str) -> None:
    with refuses(f"{desc.type} at DML_FEATURE_LEVEL_{level}: ...{message}"):
        directml.validate(desc, feature_level=level)


@pytest.mark.parametrize(
    ("desc", "level"),
    [
        (normalization_desc(BATCH_NORM, spatial=False), "4_0"),
        (normalization_desc(BATCH_NORM, spatial=False, mean=f32(1, 2, 3, 4), variance=f32(1, 1, 3, 4)), "1_0"),
        (normalization_desc(f"{MEAN_VARIANCE_NORM}1", scale=None), "5_2"),
        (normalization_desc(f"{MEAN_VARIANCE_NORM}1", scale=None, bias=None), "2_1"),
        (normalization_desc(f"{MEAN_VARIANCE_NORM}1", scale=f32(1, 1, 1, 1)), "4_0"),
        (normalization_desc(MEAN_VARIANCE_NORM, bias=None), "5_2"),
        (normalization_desc(MEAN_VARIANCE_NORM, scale=f32(1, 1, 1, 1)), "1_0"),
        (normalization_desc(TRAINING_NORM, fused_add=None), "4_1"),
    ],
)
def test_a_desc_is_allowed_from_a_level_on(desc: Any, level: str) -> None:
    assert str(directml.find_minimum_feature_level(desc)) == f"DML_FEATURE_LEVEL_{level}"


def test_a_desc_computes_without_its_optional_tensors() -> None:
    x = RNG.standard_normal((2, 3, 2, 4)).astype(np.float32)
    desc = normalization_desc(f"{MEAN_VARIANCE_NORM}2", scale=None, bias=None, use_mean=True, fused_activation=RELU)
    result = directml.lower(desc)(x)
    expected = oracles.mean_variance_normalized(x, None, None, 0.25, axes=desc.axes)
    assert_near(result, np.maximum(expected, 0))
    scale = np.full(normalization_desc(f"{MEAN_VARIANCE_NORM}1").scale.sizes, 2, np.float32)
    result = directml.lower(normalization_desc(f"{MEAN_VARIANCE_NORM}1", bias=None))(x, scale)
    assert_near(result, 2 * expected)
