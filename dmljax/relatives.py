"""What the functions are called elsewhere: in jax.numpy, NumPy, PyTorch, ONNX and WebNN, and without a prefix.

The table is written by `python tests/public_names.py` from the section "Relatives" of the operators' pages.
"""

from dmljax.descriptors import OPERATORS
from dmljax.text import did_you_mean

_FAMILY_PREFIXES = ("activation_", "element_wise_logical_", "element_wise_bit_", "element_wise_")


def functions_named(name: str) -> list[str]:
    """The functions that are called `name` without their prefix; capital letters and underscores do not matter."""
    return [one for one in _functions() if _plain(name) in (_plain(one), _plain(_without_prefix(one)))]


def functions_called(name: str) -> list[str]:
    """The functions that are called `name` here or elsewhere, those of dmljax's own name first.

    >>> from dmljax.relatives import functions_called
    >>> functions_called("LeakyRelu"), functions_called("pow"), functions_called("relu7")
    (['activation_leaky_relu'], ['element_wise_pow', 'element_wise_constant_pow'], [])
    """
    return list(dict.fromkeys([*functions_named(name), *_ELSEWHERE.get(_plain(name), "").split()]))


def hint(name: str) -> str:
    """`, did you mean X or Y?` for the functions that are called `name`, or for one of a similar name, if any."""
    called = functions_called(name)
    return f", did you mean {' or '.join(called)}?" if called else did_you_mean(name, _functions())


def _functions() -> list[str]:
    return [operator.short_name.lower() for operator in OPERATORS.values()]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _without_prefix(function: str) -> str:
    prefix = next((one for one in _FAMILY_PREFIXES if function.startswith(one)), "")
    return function.removeprefix(prefix)


_ELSEWHERE = {
    "abs": "element_wise_abs",
    "acos": "element_wise_acos",
    "acosh": "element_wise_acosh",
    "add": "element_wise_add element_wise_quantized_linear_add",
    "and": "element_wise_logical_and",
    "arccos": "element_wise_acos",
    "arccosh": "element_wise_acosh",
    "arcsin": "element_wise_asin",
    "arcsinh": "element_wise_asinh",
    "arctan": "element_wise_atan",
    "arctan2": "element_wise_atan_yx",
    "arctanh": "element_wise_atanh",
    "argmax": "activation_hardmax1 argmax",
    "argmin": "argmin",
    "argwhere": "nonzero_coordinates",
    "asin": "element_wise_asin",
    "asinh": "element_wise_asinh",
    "atan": "element_wise_atan",
    "atan2": "element_wise_atan_yx",
    "atanh": "element_wise_atanh",
    "bitwiseand": "element_wise_bit_and",
    "bitwisecount": "element_wise_bit_count",
    "bitwiseleftshift": "element_wise_bit_shift_left",
    "bitwisenot": "element_wise_bit_not",
    "bitwiseor": "element_wise_bit_or",
    "bitwiserightshift": "element_wise_bit_shift_right",
    "bitwisexor": "element_wise_bit_xor",
    "ceil": "element_wise_ceil",
    "celu": "activation_celu",
    "clamp": "element_wise_clip element_wise_clip1 element_wise_threshold",
    "clip": "element_wise_clip element_wise_clip1",
    "constantofshape": "fill_value_constant",
    "copy": "activation_identity",
    "cos": "element_wise_cos",
    "cosh": "element_wise_cosh",
    "dequantize": "element_wise_dequantize_linear",
    "dequantizelinear": "element_wise_dequantize_linear",
    "diagembed": "diagonal_matrix",
    "div": "element_wise_divide",
    "elu": "activation_elu",
    "eq": "element_wise_logical_equals",
    "equal": "element_wise_logical_equals",
    "erf": "element_wise_erf",
    "exp": "element_wise_exp",
    "expand": "fill_value_constant",
    "expit": "activation_sigmoid",
    "eye": "diagonal_matrix",
    "eyelike": "diagonal_matrix",
    "floor": "element_wise_floor",
    "fmod": "element_wise_modulus_truncate",
    "full": "fill_value_constant",
    "gathernd": "gather_nd",
    "ge": "element_wise_logical_greater_than_or_equal",
    "gelu": "activation_gelu",
    "greater": "element_wise_logical_greater_than",
    "greaterequal": "element_wise_logical_greater_than_or_equal",
    "greaterorequal": "element_wise_logical_greater_than_or_equal",
    "gt": "element_wise_logical_greater_than",
    "hardmax": "activation_hardmax activation_hardmax1",
    "hardshrink": "activation_shrink",
    "hardsigmoid": "activation_hard_sigmoid",
    "hardswish": "activation_hard_swish",
    "identity": "activation_identity element_wise_identity",
    "isinf": "element_wise_is_infinity",
    "isinfinite": "element_wise_is_infinity",
    "isnan": "element_wise_is_nan",
    "isneginf": "element_wise_is_infinity",
    "isposinf": "element_wise_is_infinity",
    "le": "element_wise_logical_less_than_or_equal",
    "leakyrelu": "activation_leaky_relu",
    "leftshift": "element_wise_bit_shift_left",
    "less": "element_wise_logical_less_than",
    "lessequal": "element_wise_logical_less_than_or_equal",
    "lesser": "element_wise_logical_less_than",
    "lesserorequal": "element_wise_logical_less_than_or_equal",
    "lessorequal": "element_wise_logical_less_than_or_equal",
    "linear": "activation_linear",
    "log": "element_wise_log",
    "logaddexp": "activation_softplus",
    "logicaland": "element_wise_logical_and",
    "logicalnot": "element_wise_logical_not",
    "logicalor": "element_wise_logical_or",
    "logicalxor": "element_wise_logical_xor",
    "logsoftmax": "activation_log_softmax activation_log_softmax1",
    "lt": "element_wise_logical_less_than",
    "max": "element_wise_max",
    "maximum": "activation_relu element_wise_max element_wise_threshold",
    "mean": "element_wise_mean",
    "min": "element_wise_min",
    "minimum": "element_wise_min",
    "mod": "element_wise_modulus_floor",
    "mul": "element_wise_multiply",
    "neg": "element_wise_negate",
    "negative": "element_wise_negate",
    "nonzero": "nonzero_coordinates",
    "nonzerostatic": "nonzero_coordinates",
    "not": "element_wise_logical_not",
    "onehot": "one_hot",
    "or": "element_wise_logical_or",
    "populationcount": "element_wise_bit_count",
    "pow": "element_wise_constant_pow element_wise_pow",
    "power": "element_wise_constant_pow element_wise_pow",
    "prelu": "activation_parameterized_relu",
    "quantizelinear": "element_wise_quantize_linear",
    "quantizepertensor": "element_wise_quantize_linear",
    "reciprocal": "element_wise_recip",
    "relu": "activation_relu",
    "remainder": "element_wise_modulus_floor",
    "rightshift": "element_wise_bit_shift_right",
    "round": "element_wise_round",
    "roundeven": "element_wise_round",
    "selu": "activation_scaled_elu",
    "shiftrightlogical": "element_wise_bit_shift_right",
    "shrink": "activation_shrink",
    "sigmoid": "activation_sigmoid",
    "sign": "element_wise_sign",
    "silu": "activation_swish",
    "sin": "element_wise_sin",
    "sinh": "element_wise_sinh",
    "softmax": "activation_softmax activation_softmax1",
    "softplus": "activation_softplus",
    "softshrink": "activation_shrink",
    "softsign": "activation_softsign",
    "sqrt": "element_wise_sqrt",
    "sub": "element_wise_subtract",
    "swish": "activation_swish",
    "tan": "element_wise_tan",
    "tanh": "activation_tanh element_wise_tanh",
    "threshold": "activation_thresholded_relu",
    "thresholdedrelu": "activation_thresholded_relu",
    "tril": "diagonal_matrix1",
    "trilu": "diagonal_matrix1",
    "triu": "diagonal_matrix1",
    "trunc": "element_wise_round",
    "where": "element_wise_if",
    "xor": "element_wise_logical_xor",
}
