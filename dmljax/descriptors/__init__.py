"""Descriptors: what `directml.h` knows of an operator. Every family imports what it needs from here, as `dml`."""

from dmljax.descriptors.base import (
    OPERATOR_PREFIX as OPERATOR_PREFIX,
    OPERATORS as OPERATORS,
    Leaf as Leaf,
    Member as Member,
    Operator as Operator,
)
from dmljax.descriptors.bases import (
    ACTIVATION_SINCE_1_0 as ACTIVATION_SINCE_1_0,
    FLOAT_SINCE_1_0 as FLOAT_SINCE_1_0,
    FLOAT_SINCE_2_0 as FLOAT_SINCE_2_0,
    Activation as Activation,
    Binary as Binary,
    Gradient as Gradient,
    Predicate as Predicate,
    ScaledUnary as ScaledUnary,
    Unary as Unary,
    binary as binary,
    fused_activation_rules as fused_activation_rules,
    gradient as gradient,
    unary as unary,
)
from dmljax.descriptors.json_form import (
    FusedActivation as FusedActivation,
    FusedActivations as FusedActivations,
    from_json as from_json,
    to_json as to_json,
)
from dmljax.descriptors.lowering import lower as lower
from dmljax.descriptors.members import (
    Bool as Bool,
    Direction as Direction,
    Float as Float,
    InfinityMode as InfinityMode,
    Input as Input,
    Inputs as Inputs,
    Int as Int,
    IntDimensions as IntDimensions,
    OptionalInput as OptionalInput,
    OptionalOutput as OptionalOutput,
    OptionalScaleBias as OptionalScaleBias,
    Order as Order,
    Output as Output,
    Outputs as Outputs,
    Padding as Padding,
    Repeats as Repeats,
    Rounding as Rounding,
    ScalarUnion as ScalarUnion,
    Size as Size,
    Uint as Uint,
    Uint64 as Uint64,
    UintAxes as UintAxes,
    UintDimensions as UintDimensions,
    ValueType as ValueType,
)
from dmljax.descriptors.rules import (
    alike as alike,
    distinct_axes as distinct_axes,
    fitting as fitting,
    has_type as has_type,
    one_each as one_each,
    refused_by as refused_by,
    same_rank as same_rank,
    same_sizes as same_sizes,
    same_type as same_type,
    scale_bias_rules as scale_bias_rules,
    sizes_are as sizes_are,
)
from dmljax.descriptors.tables import (
    RANK_1_TO_8 as RANK_1_TO_8,
    RANK_2_TO_4 as RANK_2_TO_4,
    RANK_2_TO_8 as RANK_2_TO_8,
    RANK_3_TO_8 as RANK_3_TO_8,
    RANK_4 as RANK_4,
    RANK_4_TO_5 as RANK_4_TO_5,
    Cell as Cell,
    Table as Table,
    rows as rows,
    support as support,
)
from dmljax.descriptors.validation import (
    broken_rules as broken_rules,
    minimum_feature_level as minimum_feature_level,
    validate as validate,
)
