"""Names of DirectML's interface and enumerations, and what to write instead."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import dmljax
from dmljax import DmlError, directml, pydirectml
from dmljax.directml import DataType, FeatureLevel, MatrixTransform, TensorDesc


@pytest.mark.parametrize(
    ("enumeration", "name", "meant"),
    [
        (DataType, "FLOAT", "FLOAT32"),
        (DataType, "DML_TENSOR_DATA_TYPE_FLOAT16", "FLOAT16"),
        (FeatureLevel, "DML_FEATURE_LEVEL_6_2", "FL_6_2"),
        (directml.ReduceFunction, "SUMM", "SUM"),
        (pydirectml.TensorDataType, "HALF", "FLOAT16"),  # type: ignore[attr-defined]
    ],
)
def test_a_wrong_member_leads_to_a_right_one(enumeration: Any, name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(enumeration, name)
    assert str(refused.value) == f"{enumeration.__name__} has no member {name!r}, did you mean {meant}?"
    assert getattr(enumeration, meant).name == meant
    assert not hasattr(enumeration, "_private")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("FLOAT", ", did you mean FLOAT32?"),
        ("double", ", did you mean FLOAT64?"),
        ("FLOT16", ", did you mean FLOAT16?"),
        (float, " (use 'FLOAT32')"),
        (np.dtype(bool), " (use 'UINT8')"),
        (jnp.float16, " (use 'FLOAT16')"),
    ],
)
def test_a_type_by_another_name_leads_to_directmls(name: Any, hint: str) -> None:
    with pytest.raises(DmlError) as refused:
        TensorDesc(name, (1,))
    assert str(refused.value).endswith(hint)


def test_an_enumerator_is_shown_as_one_writes_it() -> None:
    with pytest.raises(DmlError, match=r"got directml\.MatrixTransform\.NONE$"):
        dmljax.reduce(jnp.ones(2), MatrixTransform.NONE)  # type: ignore[arg-type]
    with pytest.raises(DmlError, match=r"must be one of 1_0, .*, 6_4; got '99'$"):
        directml.validate(directml.ActivationReluDesc(), feature_level="99")
    with pytest.raises(DmlError, match=r"got True \(use 'TRANSPOSE'\)$"):
        directml.GemmDesc(
            a=TensorDesc("INT8", (1,)),
            b=TensorDesc("INT8", (1,)),
            output=TensorDesc("INT8", (1,)),
            trans_a=True,  # type: ignore[arg-type]
            trans_b=False,  # type: ignore[arg-type]
            alpha=1,
            beta=0,
        )
