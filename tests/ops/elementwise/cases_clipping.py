"""CLIP, its gradients and THRESHOLD: the pages' tables and members, and the formulas."""

from typing import Any

import numpy as np
from cases import GRADIENT, Elementwise
from formulas import Arr
from pages import merge, of_all, tables

from dmljax.directml import DataType

SUPPORT = tables(
    """
    ELEMENT_WISE_CLIP: InputTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 UP_TO_32
        3_0 1-8 UP_TO_32
        5_0 1-8 UP_TO_64
    ELEMENT_WISE_CLIP1: InputTensor OutputTensor
        5_0 1-8 UP_TO_64
    ELEMENT_WISE_CLIP_GRAD: InputTensor InputGradientTensor OutputGradientTensor
        3_1 1-8 UP_TO_32
        5_0 1-8 UP_TO_64
    ELEMENT_WISE_CLIP_GRAD1: InputTensor InputGradientTensor OutputGradientTensor
        5_0 1-8 UP_TO_64
    ELEMENT_WISE_THRESHOLD: InputTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 UP_TO_32
        3_0 1-8 UP_TO_32
    """
)

MEMBERS = merge(
    of_all("ELEMENT_WISE_CLIP", "InputTensor OutputTensor ScaleBias Min Max"),
    of_all("ELEMENT_WISE_CLIP1", "InputTensor OutputTensor ScaleBias MinMaxDataType Min Max"),
    of_all("ELEMENT_WISE_CLIP_GRAD", "InputTensor InputGradientTensor OutputGradientTensor Min Max"),
    of_all("ELEMENT_WISE_CLIP_GRAD1", "InputTensor InputGradientTensor OutputGradientTensor MinMaxDataType Min Max"),
    of_all("ELEMENT_WISE_THRESHOLD", "InputTensor OutputTensor ScaleBias Min"),
)

# Formulas


def clipped(x: Arr, min: Any = None, max: Any = None) -> Arr:
    for bound, passes in ((max, np.greater_equal), (min, np.less_equal)):
        if bound is not None:
            limit = np.asarray(bound).astype(x.dtype)
            x = np.where(passes(x, limit), limit, x)
    return x


def clipped_gradient(x: Arr, gradient: Arr, min: Any, max: Any) -> Arr:
    low, high = (np.asarray(bound).astype(x.dtype) for bound in (min, max))
    return np.where((x <= low) | (x >= high), np.zeros_like(gradient), gradient)


UINT8 = DataType.UINT8
ELEMENTWISE = {
    "ELEMENT_WISE_CLIP": Elementwise(clipped, attributes={"min": 1, "max": 3}, domain=(1.2, 2.8), is_exact=True),
    "ELEMENT_WISE_CLIP1": Elementwise(
        clipped, attributes={"min_max_data_type": UINT8, "min": 1, "max": 3}, domain=(1.2, 2.8), is_exact=True
    ),
    "ELEMENT_WISE_CLIP_GRAD": Elementwise(
        clipped_gradient, GRADIENT, "output_gradient", attributes={"min": 1, "max": 3}, domain=(1.2, 2.8), is_exact=True
    ),
    "ELEMENT_WISE_CLIP_GRAD1": Elementwise(
        clipped_gradient,
        GRADIENT,
        "output_gradient",
        attributes={"min_max_data_type": UINT8, "min": 1, "max": 3},
        domain=(1.2, 2.8),
        is_exact=True,
    ),
    "ELEMENT_WISE_THRESHOLD": Elementwise(clipped, attributes={"min": 2}, domain=(2.1, 3), is_exact=True),
}
