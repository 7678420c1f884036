"""The tensor support tables of the operators' pages, transcribed row by row, and the members of directml.h.

The tables are written down a second time here on purpose: what `support` says is checked against what the pages say.
Where Microsoft's pages differ in age, the newest counts; the level at which a table begins is that of its heading.
"""

from typing import Any

FLOATS = "FLOAT32 FLOAT16"
INTEGERS_32 = "INT32 INT16 INT8 UINT32 UINT16 UINT8"
UP_TO_32 = "FLOAT32 FLOAT16 INT32 INT16 INT8 UINT32 UINT16 UINT8"
ALL = "FLOAT64 FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8"
INDICES = "INT64 INT32 UINT64 UINT32"

# operator: {level: [(tensor, lowest and highest dimension count, data types)]}
SUPPORT: dict[str, dict[str, list[tuple[str, int, int, str]]]] = {
    "DML_OPERATOR_ONE_HOT": {
        "2_0": [
            ("IndicesTensor", 4, 4, "UINT32"),
            ("ValuesTensor", 4, 4, "FLOAT32 FLOAT16"),
            ("OutputTensor", 4, 4, "FLOAT32 FLOAT16"),
        ],
        "2_1": [
            ("IndicesTensor", 4, 4, "UINT32"),
            ("ValuesTensor", 4, 4, UP_TO_32),
            ("OutputTensor", 4, 4, UP_TO_32),
        ],
        "3_0": [
            ("IndicesTensor", 1, 8, INDICES),
            ("ValuesTensor", 1, 8, UP_TO_32),
            ("OutputTensor", 1, 8, UP_TO_32),
        ],
        "4_1": [
            ("IndicesTensor", 1, 8, INDICES),
            ("ValuesTensor", 1, 8, ALL),
            ("OutputTensor", 1, 8, ALL),
        ],
    },
    "DML_OPERATOR_ACTIVATION_HARDMAX": {
        "1_0": [("InputTensor", 4, 4, "FLOAT32 FLOAT16"), ("OutputTensor", 4, 4, "FLOAT32 FLOAT16")],
        "2_0": [("InputTensor", 4, 5, "FLOAT32 FLOAT16"), ("OutputTensor", 4, 5, "FLOAT32 FLOAT16")],
        "3_0": [("InputTensor", 1, 8, "FLOAT32 FLOAT16"), ("OutputTensor", 1, 8, "FLOAT32 FLOAT16")],
    },
    "DML_OPERATOR_ACTIVATION_HARDMAX1": {
        "5_1": [("InputTensor", 1, 8, "FLOAT32 FLOAT16"), ("OutputTensor", 1, 8, "FLOAT32 FLOAT16")],
    },
    "DML_OPERATOR_NONZERO_COORDINATES": {
        "3_0": [
            ("InputTensor", 4, 5, UP_TO_32),
            ("OutputCountTensor", 4, 5, "UINT32"),
            ("OutputCoordinatesTensor", 4, 5, "UINT32"),
        ],
        "4_0": [
            ("InputTensor", 1, 8, UP_TO_32),
            ("OutputCountTensor", 1, 8, "UINT32"),
            ("OutputCoordinatesTensor", 2, 8, "UINT32"),
        ],
    },
    "DML_OPERATOR_DIAGONAL_MATRIX": {
        "2_0": [("OutputTensor", 4, 4, "FLOAT32 FLOAT16")],
        "2_1": [("OutputTensor", 4, 4, UP_TO_32)],
        "4_0": [("OutputTensor", 2, 4, UP_TO_32)],
        "5_1": [("OutputTensor", 2, 4, ALL)],
    },
    "DML_OPERATOR_DIAGONAL_MATRIX1": {
        "5_1": [("InputTensor", 2, 4, ALL), ("OutputTensor", 2, 4, ALL)],
    },
    "DML_OPERATOR_FILL_VALUE_CONSTANT": {
        "2_1": [("OutputTensor", 4, 4, UP_TO_32)],
        "4_0": [("OutputTensor", 1, 8, UP_TO_32)],
        "4_1": [("OutputTensor", 1, 8, ALL)],
    },
    "DML_OPERATOR_GATHER_ND": {
        "2_1": [
            ("InputTensor", 4, 4, UP_TO_32),
            ("IndicesTensor", 4, 4, "UINT32"),
            ("OutputTensor", 4, 4, UP_TO_32),
        ],
        "3_0": [
            ("InputTensor", 1, 8, UP_TO_32),
            ("IndicesTensor", 1, 8, INDICES),
            ("OutputTensor", 1, 8, UP_TO_32),
        ],
        "4_1": [
            ("InputTensor", 1, 8, ALL),
            ("IndicesTensor", 1, 8, INDICES),
            ("OutputTensor", 1, 8, ALL),
        ],
    },
    "DML_OPERATOR_GATHER_ND1": {
        "3_0": [
            ("InputTensor", 1, 8, UP_TO_32),
            ("IndicesTensor", 1, 8, INDICES),
            ("OutputTensor", 1, 8, UP_TO_32),
        ],
        "4_1": [
            ("InputTensor", 1, 8, ALL),
            ("IndicesTensor", 1, 8, INDICES),
            ("OutputTensor", 1, 8, ALL),
        ],
    },
    "DML_OPERATOR_ARGMAX": {
        "3_0": [("InputTensor", 1, 8, UP_TO_32), ("OutputTensor", 1, 8, INDICES)],
        "4_1": [("InputTensor", 1, 8, UP_TO_32 + " INT64 UINT64"), ("OutputTensor", 1, 8, INDICES)],
    },
    "DML_OPERATOR_ARGMIN": {
        "3_0": [("InputTensor", 1, 8, UP_TO_32), ("OutputTensor", 1, 8, INDICES)],
        "4_1": [("InputTensor", 1, 8, UP_TO_32 + " INT64 UINT64"), ("OutputTensor", 1, 8, INDICES)],
    },
}

# operator: its members in the header's order
MEMBERS = {
    "DML_OPERATOR_ONE_HOT": "IndicesTensor ValuesTensor OutputTensor Axis",
    "DML_OPERATOR_ACTIVATION_HARDMAX": "InputTensor OutputTensor",
    "DML_OPERATOR_ACTIVATION_HARDMAX1": "InputTensor OutputTensor AxisCount Axes",
    "DML_OPERATOR_NONZERO_COORDINATES": "InputTensor OutputCountTensor OutputCoordinatesTensor",
    "DML_OPERATOR_DIAGONAL_MATRIX": "OutputTensor Offset Value",
    "DML_OPERATOR_DIAGONAL_MATRIX1": "InputTensor OutputTensor ValueDataType Value DiagonalFillBegin DiagonalFillEnd",
    "DML_OPERATOR_FILL_VALUE_CONSTANT": "OutputTensor ValueDataType Value",
    "DML_OPERATOR_GATHER_ND": "InputTensor IndicesTensor OutputTensor InputDimensionCount IndicesDimensionCount",
    "DML_OPERATOR_GATHER_ND1": (
        "InputTensor IndicesTensor OutputTensor InputDimensionCount IndicesDimensionCount BatchDimensionCount"
    ),
    "DML_OPERATOR_ARGMAX": "InputTensor OutputTensor AxisCount Axes AxisDirection",
    "DML_OPERATOR_ARGMIN": "InputTensor OutputTensor AxisCount Axes AxisDirection",
}

# The element-wise operators and activations, many of which share their tables and members


def of_all(operators: str, value: Any) -> dict[str, Any]:
    """The same of several operators, by their whole names."""
    return dict.fromkeys([f"DML_OPERATOR_{name}" for name in operators.split()], value)


def alike(tensors: str, tables: dict[str, tuple[int, int, str]]) -> dict[str, list[tuple[str, int, int, str]]]:
    """Tables whose rows are the same for all tensors."""
    return {level: [(tensor, *row) for tensor in tensors.split()] for level, row in tables.items()}


# Not here: the table of level 4_0 of ACTIVATION_RELU_GRAD, which is that of 3_0, and those of 6_2 of the
# linear (de)quantization, which make ZeroPointTensor optional and are otherwise those of 6_0.
SUPPORT |= {
    **of_all(
        "ACTIVATION_CELU",
        alike("InputTensor OutputTensor", {"3_0": (1, 8, FLOATS)}),
    ),
    **of_all(
        """
        ACTIVATION_ELU ACTIVATION_HARD_SIGMOID ACTIVATION_IDENTITY ACTIVATION_LEAKY_RELU ACTIVATION_LINEAR
        ACTIVATION_LOG_SOFTMAX ACTIVATION_PARAMETRIC_SOFTPLUS ACTIVATION_SCALED_ELU ACTIVATION_SCALED_TANH
        ACTIVATION_SIGMOID ACTIVATION_SOFTMAX ACTIVATION_SOFTPLUS ACTIVATION_SOFTSIGN ACTIVATION_TANH
        ACTIVATION_THRESHOLDED_RELU
        """,
        alike("InputTensor OutputTensor", {"1_0": (4, 4, FLOATS), "2_0": (4, 5, FLOATS), "3_0": (1, 8, FLOATS)}),
    ),
    **of_all(
        "ACTIVATION_GELU ACTIVATION_LOG_SOFTMAX1 ACTIVATION_SOFTMAX1",
        alike("InputTensor OutputTensor", {"5_1": (1, 8, FLOATS)}),
    ),
    **of_all(
        "ACTIVATION_HARD_SWISH ACTIVATION_SWISH",
        alike("InputTensor OutputTensor", {"6_2": (1, 8, FLOATS)}),
    ),
    **of_all(
        "ACTIVATION_PARAMETERIZED_RELU",
        alike(
            "InputTensor SlopeTensor OutputTensor",
            {
                "1_0": (4, 4, FLOATS),
                "2_0": (4, 5, FLOATS),
                "3_0": (1, 8, FLOATS),
                "5_1": (1, 8, FLOATS + " INT32 INT16 INT8"),
            },
        ),
    ),
    **of_all(
        "ACTIVATION_RELU",
        alike(
            "InputTensor OutputTensor",
            {
                "1_0": (4, 4, FLOATS),
                "2_0": (4, 5, FLOATS),
                "3_0": (1, 8, FLOATS),
                "5_1": (1, 8, FLOATS + " INT32 INT16 INT8"),
            },
        ),
    ),
    **of_all(
        "ACTIVATION_RELU_GRAD",
        alike(
            "InputTensor InputGradientTensor OutputGradientTensor",
            {"3_0": (1, 8, FLOATS), "5_1": (1, 8, FLOATS + " INT32 INT16 INT8")},
        ),
    ),
    **of_all(
        "ACTIVATION_SHRINK",
        alike("InputTensor OutputTensor", {"2_0": (4, 5, FLOATS), "3_0": (1, 8, FLOATS), "5_1": (1, 8, UP_TO_32)}),
    ),
    **of_all(
        "ELEMENT_WISE_ABS",
        alike(
            "InputTensor OutputTensor",
            {
                "1_0": (4, 4, FLOATS),
                "2_1": (4, 4, FLOATS + " INT32 INT16 INT8"),
                "3_0": (1, 8, FLOATS + " INT32 INT16 INT8"),
                "4_1": (1, 8, FLOATS + " INT32 INT16 INT8 INT64"),
            },
        ),
    ),
    **of_all(
        """
        ELEMENT_WISE_ACOS ELEMENT_WISE_ASIN ELEMENT_WISE_ATAN ELEMENT_WISE_CEIL ELEMENT_WISE_CONSTANT_POW
        ELEMENT_WISE_COS ELEMENT_WISE_EXP ELEMENT_WISE_FLOOR ELEMENT_WISE_LOG ELEMENT_WISE_RECIP ELEMENT_WISE_SIN
        ELEMENT_WISE_SQRT ELEMENT_WISE_TAN
        """,
        alike("InputTensor OutputTensor", {"1_0": (4, 4, FLOATS), "3_0": (1, 8, FLOATS)}),
    ),
    **of_all(
        """
        ELEMENT_WISE_ACOSH ELEMENT_WISE_ASINH ELEMENT_WISE_ATANH ELEMENT_WISE_COSH ELEMENT_WISE_ERF
        ELEMENT_WISE_SINH ELEMENT_WISE_TANH
        """,
        alike("InputTensor OutputTensor", {"2_0": (4, 4, FLOATS), "3_0": (1, 8, FLOATS)}),
    ),
    **of_all(
        "ELEMENT_WISE_ADD ELEMENT_WISE_MULTIPLY",
        alike(
            "ATensor BTensor OutputTensor",
            {
                "1_0": (4, 5, FLOATS),
                "2_1": (4, 5, FLOATS + " INT32 UINT32"),
                "3_0": (1, 8, FLOATS + " INT32 UINT32"),
                "4_1": (1, 8, FLOATS + " INT32 UINT32 INT64 UINT64"),
                "5_1": (1, 8, UP_TO_32 + " INT64 UINT64"),
            },
        ),
    ),
    **of_all(
        "ELEMENT_WISE_ADD1",
        alike("ATensor BTensor OutputTensor", {"2_0": (4, 5, FLOATS), "3_0": (1, 8, FLOATS)}),
    ),
    **of_all(
        "ELEMENT_WISE_ATAN_YX",
        alike("ATensor BTensor OutputTensor", {"3_1": (1, 8, FLOATS)}),
    ),
    **of_all(
        "ELEMENT_WISE_BIT_AND ELEMENT_WISE_BIT_OR ELEMENT_WISE_BIT_XOR",
        alike("ATensor BTensor OutputTensor", {"3_0": (1, 8, "UINT32 UINT16 UINT8"), "4_1": (1, 8, ALL)}),
    ),
    **of_all(
        "ELEMENT_WISE_BIT_COUNT",
        {
            "3_0": [("InputTensor", 1, 8, "UINT32 UINT16 UINT8"), ("OutputTensor", 1, 8, "UINT32 UINT8")],
            "4_1": [("InputTensor", 1, 8, ALL), ("OutputTensor", 1, 8, "UINT32 UINT8")],
        },
    ),
    **of_all(
        "ELEMENT_WISE_BIT_NOT",
        alike("InputTensor OutputTensor", {"3_0": (1, 8, "UINT32 UINT16 UINT8"), "4_1": (1, 8, ALL)}),
    ),
    **of_all(
        "ELEMENT_WISE_BIT_SHIFT_LEFT ELEMENT_WISE_BIT_SHIFT_RIGHT",
        alike(
            "ATensor BTensor OutputTensor",
            {
                "2_1": (4, 4, "UINT32 UINT16 UINT8"),
                "3_0": (1, 8, "UINT32 UINT16 UINT8"),
                "4_1": (1, 8, "UINT64 UINT32 UINT16 UINT8"),
            },
        ),
    ),
    **of_all(
        "ELEMENT_WISE_CLIP",
        alike(
            "InputTensor OutputTensor",
            {
                "1_0": (4, 4, FLOATS),
                "2_1": (4, 4, UP_TO_32),
                "3_0": (1, 8, UP_TO_32),
                "5_0": (1, 8, UP_TO_32 + " INT64 UINT64"),
            },
        ),
    ),
    **of_all(
        "ELEMENT_WISE_CLIP1",
        alike("InputTensor OutputTensor", {"5_0": (1, 8, UP_TO_32 + " INT64 UINT64")}),
    ),
    **of_all(
        "ELEMENT_WISE_CLIP_GRAD",
        alike(
            "InputTensor InputGradientTensor OutputGradientTensor",
            {"3_1": (1, 8, UP_TO_32), "5_0": (1, 8, UP_TO_32 + " INT64 UINT64")},
        ),
    ),
    **of_all(
        "ELEMENT_WISE_CLIP_GRAD1",
        alike("InputTensor InputGradientTensor OutputGradientTensor", {"5_0": (1, 8, UP_TO_32 + " INT64 UINT64")}),
    ),
    **of_all(
        "ELEMENT_WISE_DEQUANTIZE_LINEAR",
        {
            "1_0": [
                ("InputTensor", 4, 4, "UINT8"),
                ("ScaleTensor", 4, 4, "FLOAT32"),
                ("ZeroPointTensor", 4, 4, "UINT8"),
                ("OutputTensor", 4, 4, "FLOAT32"),
            ],
            "2_1": [
                ("InputTensor", 4, 4, INTEGERS_32),
                ("ScaleTensor", 4, 4, "FLOAT32"),
                ("ZeroPointTensor", 4, 4, INTEGERS_32),
                ("OutputTensor", 4, 4, "FLOAT32"),
            ],
            "3_0": [
                ("InputTensor", 1, 8, INTEGERS_32),
                ("ScaleTensor", 1, 8, "FLOAT32"),
                ("ZeroPointTensor", 1, 8, INTEGERS_32),
                ("OutputTensor", 1, 8, "FLOAT32"),
            ],
            "6_0": [
                ("InputTensor", 1, 8, INTEGERS_32),
                ("ScaleTensor", 1, 8, FLOATS),
                ("ZeroPointTensor", 1, 8, INTEGERS_32),
                ("OutputTensor", 1, 8, FLOATS),
            ],
        },
    ),
    **of_all(
        "ELEMENT_WISE_DIFFERENCE_SQUARE",
        alike("ATensor BTensor OutputTensor", {"3_1": (1, 8, FLOATS + " INT32 UINT32")}),
    ),
    **of_all(
        "ELEMENT_WISE_DIVIDE",
        alike(
            "ATensor BTensor OutputTensor",
            {
                "1_0": (4, 4, FLOATS),
                "2_1": (4, 4, FLOATS + " INT32 UINT32"),
                "3_0": (1, 8, FLOATS + " INT32 UINT32"),
                "5_1": (1, 8, UP_TO_32),
                "6_0": (1, 8, UP_TO_32 + " INT64 UINT64"),
            },
        ),
    ),
    **of_all(
        "ELEMENT_WISE_IDENTITY",
        alike(
            "InputTensor OutputTensor",
            {"1_0": (4, 5, FLOATS), "2_1": (4, 5, UP_TO_32), "3_0": (1, 8, UP_TO_32), "4_1": (1, 8, ALL)},
        ),
    ),
    **of_all(
        "ELEMENT_WISE_IF",
        {
            "2_0": [
                ("ConditionTensor", 4, 4, "UINT8"),
                ("ATensor", 4, 4, "FLOAT16"),
                ("BTensor", 4, 4, "FLOAT16"),
                ("OutputTensor", 4, 4, "FLOAT16"),
            ],
            "3_0": [
                ("ConditionTensor", 1, 8, "UINT8"),
                ("ATensor", 1, 8, UP_TO_32),
                ("BTensor", 1, 8, UP_TO_32),
                ("OutputTensor", 1, 8, UP_TO_32),
            ],
            "5_0": [
                ("ConditionTensor", 1, 8, "UINT8"),
                ("ATensor", 1, 8, ALL),
                ("BTensor", 1, 8, ALL),
                ("OutputTensor", 1, 8, ALL),
            ],
        },
    ),
    **of_all(
        "ELEMENT_WISE_IS_INFINITY",
        {
            "2_1": [("InputTensor", 4, 4, FLOATS), ("OutputTensor", 4, 4, "UINT8")],
            "3_0": [("InputTensor", 1, 8, FLOATS), ("OutputTensor", 1, 8, "UINT8")],
        },
    ),
    **of_all(
        "ELEMENT_WISE_IS_NAN",
        {
            "2_0": [("InputTensor", 4, 4, FLOATS), ("OutputTensor", 4, 4, "UINT32 UINT8")],
            "3_0": [("InputTensor", 1, 8, FLOATS), ("OutputTensor", 1, 8, "UINT32 UINT8")],
        },
    ),
    **of_all(
        "ELEMENT_WISE_LOGICAL_AND ELEMENT_WISE_LOGICAL_OR ELEMENT_WISE_LOGICAL_XOR",
        alike(
            "ATensor BTensor OutputTensor",
            {"1_0": (4, 4, "UINT32"), "2_0": (4, 4, "UINT32 UINT8"), "3_0": (1, 8, "UINT32 UINT8")},
        ),
    ),
    **of_all(
        "ELEMENT_WISE_LOGICAL_EQUALS ELEMENT_WISE_LOGICAL_GREATER_THAN ELEMENT_WISE_LOGICAL_LESS_THAN",
        {
            "1_0": [("ATensor", 4, 4, FLOATS), ("BTensor", 4, 4, FLOATS), ("OutputTensor", 4, 4, "UINT32")],
            "2_0": [("ATensor", 4, 4, FLOATS), ("BTensor", 4, 4, FLOATS), ("OutputTensor", 4, 4, "UINT32 UINT8")],
            "2_1": [("ATensor", 4, 4, UP_TO_32), ("BTensor", 4, 4, UP_TO_32), ("OutputTensor", 4, 4, "UINT32 UINT8")],
            "3_0": [("ATensor", 1, 8, UP_TO_32), ("BTensor", 1, 8, UP_TO_32), ("OutputTensor", 1, 8, "UINT32 UINT8")],
            "4_1": [
                ("ATensor", 1, 8, UP_TO_32 + " INT64 UINT64"),
                ("BTensor", 1, 8, UP_TO_32 + " INT64 UINT64"),
                ("OutputTensor", 1, 8, "UINT32 UINT8"),
            ],
        },
    ),
    **of_all(
        "ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL",
        {
            "3_0": [("ATensor", 1, 8, UP_TO_32), ("BTensor", 1, 8, UP_TO_32), ("OutputTensor", 1, 8, "UINT32 UINT8")],
            "4_1": [
                ("ATensor", 1, 8, UP_TO_32 + " INT64 UINT64"),
                ("BTensor", 1, 8, UP_TO_32 + " INT64 UINT64"),
                ("OutputTensor", 1, 8, "UINT32 UINT8"),
            ],
        },
    ),
    **of_all(
        "ELEMENT_WISE_LOGICAL_NOT",
        alike(
            "InputTensor OutputTensor",
            {"1_0": (4, 4, "UINT32"), "2_0": (4, 4, "UINT32 UINT8"), "3_0": (1, 8, "UINT32 UINT8")},
        ),
    ),
    **of_all(
        "ELEMENT_WISE_MAX ELEMENT_WISE_MIN",
        alike(
            "ATensor BTensor OutputTensor",
            {
                "1_0": (4, 4, FLOATS),
                "2_1": (4, 4, UP_TO_32),
                "3_0": (1, 8, UP_TO_32),
                "5_0": (1, 8, UP_TO_32 + " INT64 UINT64"),
            },
        ),
    ),
    **of_all(
        "ELEMENT_WISE_MEAN",
        alike(
            "ATensor BTensor OutputTensor",
            {"1_0": (4, 4, FLOATS), "2_1": (4, 4, FLOATS + " INT32 UINT32"), "3_0": (1, 8, FLOATS + " INT32 UINT32")},
        ),
    ),
    **of_all(
        "ELEMENT_WISE_MODULUS_FLOOR ELEMENT_WISE_MODULUS_TRUNCATE",
        alike(
            "ATensor BTensor OutputTensor",
            {"2_1": (4, 4, UP_TO_32), "3_0": (1, 8, UP_TO_32), "6_0": (1, 8, UP_TO_32 + " INT64 UINT64")},
        ),
    ),
    **of_all(
        "ELEMENT_WISE_NEGATE",
        alike("InputTensor OutputTensor", {"5_0": (1, 8, FLOATS + " INT32 INT16 INT8 INT64")}),
    ),
    **of_all(
        "ELEMENT_WISE_POW",
        alike("InputTensor ExponentTensor OutputTensor", {"1_0": (4, 4, FLOATS), "3_0": (1, 8, UP_TO_32)}),
    ),
    **of_all(
        "ELEMENT_WISE_QUANTIZED_LINEAR_ADD",
        {
            "4_0": [
                ("ATensor", 1, 8, "INT8 UINT8"),
                ("AScaleTensor", 1, 8, "FLOAT32"),
                ("AZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("BTensor", 1, 8, "INT8 UINT8"),
                ("BScaleTensor", 1, 8, "FLOAT32"),
                ("BZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("OutputScaleTensor", 1, 8, "FLOAT32"),
                ("OutputZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("OutputTensor", 1, 8, "INT8 UINT8"),
            ]
        },
    ),
    **of_all(
        "ELEMENT_WISE_QUANTIZE_LINEAR",
        {
            "1_0": [
                ("InputTensor", 4, 4, "FLOAT32"),
                ("ScaleTensor", 4, 4, "FLOAT32"),
                ("ZeroPointTensor", 4, 4, "UINT8"),
                ("OutputTensor", 4, 4, "UINT8"),
            ],
            "2_1": [
                ("InputTensor", 4, 4, "FLOAT32 INT32"),
                ("ScaleTensor", 4, 4, "FLOAT32"),
                ("ZeroPointTensor", 4, 4, "INT8 UINT8"),
                ("OutputTensor", 4, 4, "INT8 UINT8"),
            ],
            "3_0": [
                ("InputTensor", 1, 8, "FLOAT32 INT32"),
                ("ScaleTensor", 1, 8, "FLOAT32"),
                ("ZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("OutputTensor", 1, 8, "INT8 UINT8"),
            ],
            "6_0": [
                ("InputTensor", 1, 8, "FLOAT32 FLOAT16 INT32"),
                ("ScaleTensor", 1, 8, FLOATS),
                ("ZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("OutputTensor", 1, 8, "INT8 UINT8"),
            ],
        },
    ),
    **of_all(
        "ELEMENT_WISE_ROUND",
        alike("InputTensor OutputTensor", {"2_1": (4, 4, FLOATS), "3_0": (1, 8, FLOATS)}),
    ),
    **of_all(
        "ELEMENT_WISE_SIGN",
        alike(
            "InputTensor OutputTensor",
            {
                "2_0": (4, 4, FLOATS),
                "2_1": (4, 4, UP_TO_32),
                "3_0": (1, 8, UP_TO_32),
                "4_1": (1, 8, UP_TO_32 + " INT64 UINT64"),
            },
        ),
    ),
    **of_all(
        "ELEMENT_WISE_SUBTRACT",
        alike(
            "ATensor BTensor OutputTensor",
            {
                "1_0": (4, 4, FLOATS),
                "2_1": (4, 4, FLOATS + " INT32 UINT32"),
                "3_0": (1, 8, FLOATS + " INT32 UINT32"),
                "4_1": (1, 8, FLOATS + " INT32 UINT32 INT64 UINT64"),
                "5_1": (1, 8, UP_TO_32 + " INT64 UINT64"),
            },
        ),
    ),
    **of_all(
        "ELEMENT_WISE_THRESHOLD",
        alike("InputTensor OutputTensor", {"1_0": (4, 4, FLOATS), "2_1": (4, 4, UP_TO_32), "3_0": (1, 8, UP_TO_32)}),
    ),
}

MEMBERS |= {
    **of_all(
        """
        ELEMENT_WISE_IDENTITY ELEMENT_WISE_ABS ELEMENT_WISE_ACOS ELEMENT_WISE_ASIN ELEMENT_WISE_ATAN
        ELEMENT_WISE_CEIL ELEMENT_WISE_COS ELEMENT_WISE_EXP ELEMENT_WISE_FLOOR ELEMENT_WISE_LOG ELEMENT_WISE_RECIP
        ELEMENT_WISE_SIN ELEMENT_WISE_SQRT ELEMENT_WISE_TAN ELEMENT_WISE_ERF ELEMENT_WISE_SINH ELEMENT_WISE_COSH
        ELEMENT_WISE_TANH ELEMENT_WISE_ASINH ELEMENT_WISE_ACOSH ELEMENT_WISE_ATANH
        """,
        "InputTensor OutputTensor ScaleBias",
    ),
    **of_all(
        """
        ELEMENT_WISE_ADD ELEMENT_WISE_DIVIDE ELEMENT_WISE_LOGICAL_AND ELEMENT_WISE_LOGICAL_EQUALS
        ELEMENT_WISE_LOGICAL_GREATER_THAN ELEMENT_WISE_LOGICAL_LESS_THAN ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL
        ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL ELEMENT_WISE_LOGICAL_OR ELEMENT_WISE_LOGICAL_XOR ELEMENT_WISE_MAX
        ELEMENT_WISE_MEAN ELEMENT_WISE_MIN ELEMENT_WISE_MULTIPLY ELEMENT_WISE_DIFFERENCE_SQUARE ELEMENT_WISE_ATAN_YX
        ELEMENT_WISE_SUBTRACT ELEMENT_WISE_BIT_SHIFT_LEFT ELEMENT_WISE_BIT_SHIFT_RIGHT ELEMENT_WISE_MODULUS_TRUNCATE
        ELEMENT_WISE_MODULUS_FLOOR ELEMENT_WISE_BIT_AND ELEMENT_WISE_BIT_OR ELEMENT_WISE_BIT_XOR
        """,
        "ATensor BTensor OutputTensor",
    ),
    **of_all(
        "ELEMENT_WISE_CLIP",
        "InputTensor OutputTensor ScaleBias Min Max",
    ),
    **of_all(
        "ELEMENT_WISE_CLIP1",
        "InputTensor OutputTensor ScaleBias MinMaxDataType Min Max",
    ),
    **of_all(
        "ELEMENT_WISE_CLIP_GRAD",
        "InputTensor InputGradientTensor OutputGradientTensor Min Max",
    ),
    **of_all(
        "ELEMENT_WISE_CLIP_GRAD1",
        "InputTensor InputGradientTensor OutputGradientTensor MinMaxDataType Min Max",
    ),
    **of_all(
        """
        ELEMENT_WISE_LOGICAL_NOT ELEMENT_WISE_SIGN ELEMENT_WISE_IS_NAN ELEMENT_WISE_NEGATE ELEMENT_WISE_BIT_NOT
        ELEMENT_WISE_BIT_COUNT ACTIVATION_IDENTITY ACTIVATION_LOG_SOFTMAX ACTIVATION_RELU ACTIVATION_SIGMOID
        ACTIVATION_SOFTMAX ACTIVATION_SOFTSIGN ACTIVATION_TANH ACTIVATION_GELU
        """,
        "InputTensor OutputTensor",
    ),
    **of_all(
        "ELEMENT_WISE_POW",
        "InputTensor ExponentTensor OutputTensor ScaleBias",
    ),
    **of_all(
        "ELEMENT_WISE_CONSTANT_POW",
        "InputTensor OutputTensor ScaleBias Exponent",
    ),
    **of_all(
        "ELEMENT_WISE_THRESHOLD",
        "InputTensor OutputTensor ScaleBias Min",
    ),
    **of_all(
        "ELEMENT_WISE_QUANTIZE_LINEAR ELEMENT_WISE_DEQUANTIZE_LINEAR",
        "InputTensor ScaleTensor ZeroPointTensor OutputTensor",
    ),
    **of_all(
        "ELEMENT_WISE_IF",
        "ConditionTensor ATensor BTensor OutputTensor",
    ),
    **of_all(
        "ELEMENT_WISE_ADD1",
        "ATensor BTensor OutputTensor FusedActivation",
    ),
    **of_all(
        "ELEMENT_WISE_ROUND",
        "InputTensor OutputTensor RoundingMode",
    ),
    **of_all(
        "ELEMENT_WISE_IS_INFINITY",
        "InputTensor OutputTensor InfinityMode",
    ),
    **of_all(
        "ACTIVATION_RELU_GRAD",
        "InputTensor InputGradientTensor OutputGradientTensor",
    ),
    **of_all(
        "ELEMENT_WISE_QUANTIZED_LINEAR_ADD",
        "ATensor AScaleTensor AZeroPointTensor BTensor BScaleTensor BZeroPointTensor OutputScaleTensor"
        " OutputZeroPointTensor OutputTensor",
    ),
    **of_all(
        "ACTIVATION_ELU ACTIVATION_CELU ACTIVATION_LEAKY_RELU ACTIVATION_THRESHOLDED_RELU",
        "InputTensor OutputTensor Alpha",
    ),
    **of_all(
        """
        ACTIVATION_HARD_SIGMOID ACTIVATION_LINEAR ACTIVATION_PARAMETRIC_SOFTPLUS ACTIVATION_SCALED_TANH
        ACTIVATION_HARD_SWISH
        """,
        "InputTensor OutputTensor Alpha Beta",
    ),
    **of_all(
        "ACTIVATION_LOG_SOFTMAX1 ACTIVATION_SOFTMAX1",
        "InputTensor OutputTensor AxisCount Axes",
    ),
    **of_all(
        "ACTIVATION_PARAMETERIZED_RELU",
        "InputTensor SlopeTensor OutputTensor",
    ),
    **of_all(
        "ACTIVATION_SCALED_ELU",
        "InputTensor OutputTensor Alpha Gamma",
    ),
    **of_all(
        "ACTIVATION_SOFTPLUS",
        "InputTensor OutputTensor Steepness",
    ),
    **of_all(
        "ACTIVATION_SHRINK",
        "InputTensor OutputTensor Bias Threshold",
    ),
    **of_all(
        "ACTIVATION_SWISH",
        "InputTensor OutputTensor SigmoidInputScale",
    ),
}


def pages_minimum_level(operator: str, tensors: dict[str, tuple[int, str]]) -> str | None:
    """The first level whose table lists every tensor's dimension count and data type."""
    for level, table in SUPPORT[operator].items():
        cells = {name: (range(lowest, highest + 1), types.split()) for name, lowest, highest, types in table}
        types = {data_type for _, data_type in tensors.values()}
        if operator == "DML_OPERATOR_ELEMENT_WISE_POW" and level < "3_0" and len(types) > 1:
            continue  # says a remark on that page
        if all(rank in cells[name][0] and data_type in cells[name][1] for name, (rank, data_type) in tensors.items()):
            return level
    return None
