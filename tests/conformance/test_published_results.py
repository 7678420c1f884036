"""Results that others printed from DirectML; notebooks/compare-with-directml.md lists the sources."""

from functools import partial

import numpy as np

import dmljax
from dmljax import directml
from dmljax.directml import Size2D, TensorDesc

float32, float16 = (partial(np.array, dtype=dtype) for dtype in ("float32", "float16"))


def test_the_reduction_of_dxdispatchs_readme() -> None:
    desc = directml.ReduceDesc(
        input=TensorDesc("FLOAT32", (1, 1, 3, 3)),
        output=TensorDesc("FLOAT32", (1, 1, 3, 1)),
        function="SUM",
        axes=(3,),
    )
    values = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    assert np.asarray(directml.lower(desc)(values)).ravel().tolist() == [6, 15, 24]


def test_the_concatenations_of_dxdispatchs_guide() -> None:
    a, b = np.arange(1, 7, dtype=np.float32), np.arange(7, 13, dtype=np.float32)
    for rows, expected in ((1, [1, 2, 7, 8]), (3, [*range(1, 13)])):
        joined = dmljax.join([x[: 2 * rows].reshape(rows, 2) for x in (a, b)], axis=0)
        assert np.asarray(joined).ravel().tolist() == expected


def test_the_copy_of_hellodirectml() -> None:
    values = np.full((1, 2, 3, 4), 1.618, np.float32)
    copied = np.asarray(dmljax.element_wise_identity(values))
    assert {f"{value:.3g}" for value in copied.ravel()} == {"1.62"}


def test_copies_of_float16_that_webml_read_back() -> None:
    stored = np.array([2048, 2048, 2050, 2050, 2052, 2052, 2054], np.float16)
    assert np.asarray(dmljax.element_wise_identity(stored)).tolist() == [2048, 2048, 2050, 2050, 2052, 2052, 2054]


def test_the_depthwise_convolution_of_issue_234() -> None:
    image = float32([10, 10, 10, 10, 21, 22, 23, 24, 10, 20, 30, 40, 0, 0, 0, 0]).reshape(1, 4, 2, 2)
    filters = float32([0.25] * 4 + [0, 1, 0, 1] + [10, 20, 30, 40] + [50] * 4).reshape(4, 1, 2, 2)
    bias = float32([6000, 7000, 8000, 9000])
    output = dmljax.convolution(image, filters, bias, group_count=4)
    assert np.asarray(output).ravel().tolist() == [6010, 7046, 11000, 9000]


def test_the_powers_of_issue_370() -> None:
    bases, exponents = float16([0.6094, 0.6094]), float16([-0.5024, 0.5024])
    powers = np.asarray(dmljax.element_wise_pow(bases, exponents))
    printed = float16([1.2822, 0.7793])  # by DirectML; PyTorch on a CPU prints 0.7798, the nearest number
    assert powers[0] == printed[0]
    assert abs(int(powers[1].view(np.int16)) - int(printed[1].view(np.int16))) <= 1


def test_the_upsampling_that_onnx_runtime_skips() -> None:
    """ONNX Runtime's tests expect [1, 1.5, 2, 2.5, 3, ...] and find DirectML 0.5 away at the first difference."""
    image = float32([1, 3, 3, 5]).reshape(1, 1, 2, 2)
    row = np.asarray(dmljax.upsample_2d(image, scale_size=Size2D(width=4, height=2), interpolation_mode="linear"))[
        0, 0, 0
    ]
    expected = float32([1, 1.5, 2, 2.5, 3, 3, 3, 3])
    differences = np.abs(row - expected)
    assert differences[differences > 0][0] == 0.5
