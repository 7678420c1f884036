"""CLIP, its gradients and THRESHOLD: the pages' tables and members, and the formulas."""

import math
from typing import Any

import numpy as np
from cases import GRADIENT, Elementwise, RefusedDesc
from formulas import Arr
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, ScaleBias

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


# Refusals

NAN, INF = math.nan, math.inf


def clip_desc(name: str, data_type: str, *sizes: int, **members: Any) -> Any:
    """A descriptor without bounds that any element passes, except for the given members."""
    like = tensor(data_type, *(sizes or (5,)))
    outputs = ("input_gradient", "output_gradient") if "Grad" in name else ("output",)
    bounds: dict[str, Any] = {"min": 0} if name == "Threshold" else {"min": 0, "max": 1}
    if name.endswith("1"):
        bounds["min_max_data_type"] = DataType[data_type]
    return getattr(directml, f"ElementWise{name}Desc")(input=like, **dict.fromkeys(outputs, like), **bounds | members)


FIT_INT8 = "must be a whole number in [-128, 127] to fit int8; got "
CLIP_GRAD = clip_desc("ClipGrad", "FLOAT32")

REFUSED_DESCS: list[RefusedDesc] = [
    (clip_desc("Clip", "INT8"), {"min": 300, "max": 400}, f"Min {FIT_INT8}"),
    (clip_desc("Clip", "INT8"), {"min": -400, "max": -300}, f"Max {FIT_INT8}"),
    (clip_desc("Clip", "UINT8"), {"min": -9, "max": -1}, "Max must be a whole number in [0, 255] to fit uint8; got "),
    (clip_desc("Clip", "INT8"), {"max": NAN}, f"Max {FIT_INT8}"),
    (clip_desc("Clip", "INT8"), {"min": INF, "max": INF}, f"Min {FIT_INT8}"),
    (clip_desc("Clip", "INT8"), {"scale_bias": ScaleBias(0.5, 0)}, f"ScaleBias.Scale {FIT_INT8}"),
    (clip_desc("Threshold", "INT8"), {"min": 300}, f"Min {FIT_INT8}"),
    (clip_desc("ClipGrad", "INT8"), {"min": 300, "max": 400}, f"Min {FIT_INT8}"),
    (
        clip_desc("Clip1", "FLOAT32"),
        {"min_max_data_type": DataType.INT32, "min": 0, "max": 1},
        "MinMaxDataType must be FLOAT32; got INT32",
    ),
    (
        clip_desc("ClipGrad1", "INT32"),
        {"min_max_data_type": DataType.FLOAT32, "min": 0, "max": 1},
        "MinMaxDataType must be INT32; got FLOAT32",
    ),
    (CLIP_GRAD, {"input_gradient": tensor("FLOAT16", 5)}, "the same DataType; got FLOAT32, FLOAT16 and FLOAT32"),
    (CLIP_GRAD, {"input_gradient": f32(1, 5)}, "OutputGradientTensor must have the same ...; got 1, 2 and"),
    (CLIP_GRAD, {"input_gradient": f32(1)}, "must have the same Sizes; got {5}, {1} and {5}"),
]
