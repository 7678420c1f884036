"""The operators that `pytest --sample` tries transformations on."""

import pytest

import dmljax

# What operators of one family have in common, one JAX has tried on all of them, and others on these.
SAMPLE = [
    "ACTIVATION_LOG_SOFTMAX1",
    "ARGMAX",
    "DIAGONAL_MATRIX1",
    "ELEMENT_WISE_ADD1",
    "ELEMENT_WISE_CLIP1",
    "ELEMENT_WISE_ERF",
    "ELEMENT_WISE_POW",
    "ELEMENT_WISE_QUANTIZED_LINEAR_ADD",
    "GATHER_ND1",
    "NONZERO_COORDINATES",
    "ONE_HOT",
]


def tried_operators(config: pytest.Config) -> tuple[str, ...]:
    """The operators that transformations are tried on."""
    if not config.getoption("--sample"):
        return tuple(dmljax.OPERATORS)
    return tuple(f"DML_OPERATOR_{name}" for name in SAMPLE)
