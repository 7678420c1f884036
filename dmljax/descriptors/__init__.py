"""Descriptors: what `directml.h` declares of an operator. Every family imports what it needs from here, as `dml`."""

# fmt: off
from dmljax.descriptors.base import (
    OPERATORS, OPERATOR_PREFIX, Call, Derived, HasOutput, Implied, LevelRule, Operator, Rule
)
from dmljax.descriptors.bases import (
    ACTIVATION_SINCE_1_0, FLOAT_SINCE_1_0, FLOAT_SINCE_2_0, FUSED_ACTIVATION, Activation, ActivationLike, Adjoint,
    Binary, EachFusable, Fusable, FusableInto, Fusables, Gradient, Predicate, Resized, ScaledUnary, Unary,
    apply_fused_activation, fused_activation_rules
)
from dmljax.descriptors.json_form import FusedActivation, FusedActivations, to_json
from dmljax.descriptors.lowering import lower
from dmljax.descriptors.members import (
    Bool, Enumerator, Float, FloatChannels, FloatDimensions, Input, Inputs, Int, IntDimensions, OptionalInput,
    OptionalOutput, OptionalScaleBias, Output, Outputs, QuantizationTensors, Repeats, ScalarUnion, Scales, Size,
    StepUnion, Uint, Uint64, UintAxes, UintDimensions, flag_problems
)
from dmljax.descriptors.rules import (
    DISTINCT_AXES, SCALE_BIAS_FITS, axis_within, find_misfit, find_refusals, has_type, infer_rules, members_have,
    name_members, one_element, page_rules, require_rule, require_sizes_rule, same_rank, same_sizes, same_type,
    same_type_and_rank, same_type_and_sizes, find_wrong_sizes, spatial_sentence
)
from dmljax.descriptors.tables import (
    RANK_1_TO_4, RANK_1_TO_5, RANK_1_TO_8, RANK_2_TO_4, RANK_2_TO_8, RANK_3_TO_4, RANK_3_TO_5, RANK_3_TO_8, RANK_4,
    RANK_4_TO_5, Cell, Table, fill_tables, rows, support
)
from dmljax.descriptors.validation import find_broken_rules, find_minimum_feature_level, validate

__all__ = [
    "ACTIVATION_SINCE_1_0",
    "DISTINCT_AXES",
    "FLOAT_SINCE_1_0",
    "FLOAT_SINCE_2_0",
    "FUSED_ACTIVATION",
    "OPERATORS",
    "OPERATOR_PREFIX",
    "RANK_1_TO_4",
    "RANK_1_TO_5",
    "RANK_1_TO_8",
    "RANK_2_TO_4",
    "RANK_2_TO_8",
    "RANK_3_TO_4",
    "RANK_3_TO_5",
    "RANK_3_TO_8",
    "RANK_4",
    "RANK_4_TO_5",
    "SCALE_BIAS_FITS",
    "Activation",
    "ActivationLike",
    "Adjoint",
    "Binary",
    "Bool",
    "Call",
    "Cell",
    "Derived",
    "EachFusable",
    "Enumerator",
    "Float",
    "FloatChannels",
    "FloatDimensions",
    "Fusable",
    "FusableInto",
    "Fusables",
    "FusedActivation",
    "FusedActivations",
    "Gradient",
    "HasOutput",
    "Implied",
    "Input",
    "Inputs",
    "Int",
    "IntDimensions",
    "LevelRule",
    "Operator",
    "OptionalInput",
    "OptionalOutput",
    "OptionalScaleBias",
    "Output",
    "Outputs",
    "Predicate",
    "QuantizationTensors",
    "Repeats",
    "Resized",
    "Rule",
    "ScalarUnion",
    "ScaledUnary",
    "Scales",
    "Size",
    "StepUnion",
    "Table",
    "Uint",
    "Uint64",
    "UintAxes",
    "UintDimensions",
    "Unary",
    "apply_fused_activation",
    "axis_within",
    "fill_tables",
    "find_broken_rules",
    "find_minimum_feature_level",
    "find_misfit",
    "find_refusals",
    "find_wrong_sizes",
    "flag_problems",
    "fused_activation_rules",
    "has_type",
    "infer_rules",
    "lower",
    "members_have",
    "name_members",
    "one_element",
    "page_rules",
    "require_rule",
    "require_sizes_rule",
    "rows",
    "same_rank",
    "same_sizes",
    "same_type",
    "same_type_and_rank",
    "same_type_and_sizes",
    "spatial_sentence",
    "support",
    "to_json",
    "validate"
]
# fmt: on
