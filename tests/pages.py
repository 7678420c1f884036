"""The tensor support tables of the operators' pages, transcribed row by row, and the members of directml.h.

The tables are written down a second time here on purpose: what `support` says is checked against what the pages say.
Where Microsoft's pages differ in age, the newest counts; the level at which a table begins is that of its heading.
"""

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


def pages_minimum_level(operator: str, tensors: dict[str, tuple[int, str]]) -> str | None:
    """The first level whose table lists every tensor's dimension count and data type."""
    for level, table in SUPPORT[operator].items():
        cells = {name: (range(lowest, highest + 1), types.split()) for name, lowest, highest, types in table}
        if all(rank in cells[name][0] and data_type in cells[name][1] for name, (rank, data_type) in tensors.items()):
            return level
    return None
