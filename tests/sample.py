"""The operators that stand for all of their kind where a test is of JAX's own transformations."""

import pytest

import dmljax

# By the kind of computation: what operators of one kind have in common, a loop around them or a mesh beneath them sees
# on a few. An operator with a computation of its own (a loop, a rule for derivatives, vmap or a mesh, what is told for
# one platform alone) stands here, whatever else it is like. `--sample` tries the first of each kind alone, and
# `--every-operator` all operators.
KINDS: dict[str, tuple[str, ...]] = {
    "one function of XLA": ("ELEMENT_WISE_SQRT", "ELEMENT_WISE_NEGATE"),
    "an elementary function": (
        *("ELEMENT_WISE_ERF", "ELEMENT_WISE_EXP", "ELEMENT_WISE_SINH", "ELEMENT_WISE_ASINH", "ELEMENT_WISE_ATAN_YX"),
        *("ACTIVATION_GELU", "ACTIVATION_SIGMOID", "ACTIVATION_TANH"),
    ),
    "a product, sum or quotient that is rounded once": (
        *("ACTIVATION_SCALED_ELU", "ACTIVATION_CELU", "ACTIVATION_LINEAR", "ACTIVATION_HARD_SWISH"),
        *("ACTIVATION_PARAMETRIC_SOFTPLUS", "ACTIVATION_SOFTPLUS", "ACTIVATION_SCALED_TANH", "ACTIVATION_SWISH"),
        *("ELEMENT_WISE_DIVIDE", "ELEMENT_WISE_RECIP", "ELEMENT_WISE_MEAN"),
    ),
    "arithmetic that is also of integers": (
        *("ELEMENT_WISE_POW", "ELEMENT_WISE_CONSTANT_POW", "ELEMENT_WISE_MULTIPLY"),
        *("ELEMENT_WISE_MODULUS_FLOOR", "ELEMENT_WISE_MODULUS_TRUNCATE"),
    ),
    "one operator after another": ("ELEMENT_WISE_ADD1",),
    "one of two elements": (
        *("ELEMENT_WISE_CLIP1", "ELEMENT_WISE_CLIP_GRAD", "ELEMENT_WISE_MAX", "ELEMENT_WISE_IF"),
        *("ACTIVATION_RELU", "ACTIVATION_SHRINK"),
    ),
    "a predicate": ("ELEMENT_WISE_LOGICAL_EQUALS", "ELEMENT_WISE_IS_INFINITY"),
    "bits": ("ELEMENT_WISE_BIT_COUNT", "ELEMENT_WISE_BIT_SHIFT_LEFT"),
    "quantization": (
        *("ELEMENT_WISE_QUANTIZED_LINEAR_ADD", "ELEMENT_WISE_QUANTIZE_LINEAR", "ELEMENT_WISE_DEQUANTIZE_LINEAR"),
    ),
    "a sum along axes": ("ACTIVATION_LOG_SOFTMAX1", "ACTIVATION_SOFTMAX"),
    "the largest along axes": ("ARGMAX", "ARGMIN", "ACTIVATION_HARDMAX1"),
    "a band": ("DIAGONAL_MATRIX1", "DIAGONAL_MATRIX", "FILL_VALUE_CONSTANT"),
    "a place for each element": ("ONE_HOT",),
    "elements from places": ("GATHER_ND1", "GATHER_ND"),
    "as many rows as there are": ("NONZERO_COORDINATES",),
}
SAMPLE = [names[0] for names in KINDS.values()]


def tried_operators(config: pytest.Config) -> tuple[str, ...]:
    """The operators that transformations are tried on."""
    if config.getoption("--every-operator"):
        return tuple(dmljax.OPERATORS)
    names = SAMPLE if config.getoption("--sample") else [name for kind in KINDS.values() for name in kind]
    return tuple(f"DML_OPERATOR_{name}" for name in names)
