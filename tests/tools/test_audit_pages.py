"""The comparison of Microsoft's pages with descriptors, over small pages that agree and that differ."""

import re
from pathlib import Path

import audit_pages
import pytest

TENSOR = r"Type: **const [DML_TENSOR_DESC](/tensor)\***"
GEMM = rf"""
## Members
### `ATensor`
{TENSOR}

The left matrices.
### `BTensor`
{TENSOR}
### `CTensor`
Type: \_Maybenull\_ **const [DML_TENSOR_DESC](/tensor)\***
### `OutputTensor`
{TENSOR}
### `TransA`
Type: [**DML_MATRIX_TRANSFORM**](/transform)
### `TransB`
Type: [**DML_MATRIX_TRANSFORM**](/transform)
### `Alpha`
Type: **[FLOAT](/types)**
### `Beta`
Type: **[FLOAT](/types)**
### `FusedActivation`
Type: \_Maybenull\_ **const [DML_OPERATOR_DESC](/operator)\***

## Availability
This operator was introduced in `DML_FEATURE_LEVEL_1_0`.

## Tensor constraints
* *ATensor*, *BTensor*, *CTensor*, and *OutputTensor* must have the same *DataType* and *DimensionCount*.

## Tensor support
### DML_FEATURE_LEVEL_4_0 and above
| Tensor | Kind | Dimensions | Supported dimension counts | Supported data types |
| ------ | ---- | ---------- | -------------------------- | -------------------- |
| ATensor | Input | {{ M, K }} | 2 to 4 | FLOAT32, FLOAT16 |
| BTensor | Input | {{ K, N }} | 2 to 4 | FLOAT32, FLOAT16 |
| CTensor | Optional input | {{ M, N }} | 2 to 4 | FLOAT32, FLOAT16 |
| OutputTensor | Output | {{ M, N }} | 2 to 4 | FLOAT32, FLOAT16 |

### DML_FEATURE_LEVEL_1_0 and above
| Tensor | Kind | Supported dimension counts | Supported data types |
| ------ | ---- | -------------------------- | -------------------- |
| ATensor | Input | 4 | FLOAT32, FLOAT16 |
| BTensor | Input | 4 | FLOAT32, FLOAT16 |
| CTensor | Optional input | 4 | FLOAT32, FLOAT16 |
| OutputTensor | Output | 4 | FLOAT32, FLOAT16 |

## See also
"""
REDUCE = rf"""
## Members
### `Function`
Type: [DML_REDUCE_FUNCTION](/function)
### `InputTensor`
{TENSOR}
### `OutputTensor`
{TENSOR}
### `AxisCount`
Type: [**UINT**](/types)
### `Axes`
Type: \_Field\_size\_(AxisCount) **const [UINT](/types)***

## Availability
This operator was introduced in **DML_FEATURE_LEVEL_1_0**.

## Tensor support according to function
### AVERAGE and L2
#### DML_FEATURE_LEVEL_3_0 and above
| Tensor | Kind | Supported dimension counts | Supported data types |
| ------ | ---- | -------------------------- | -------------------- |
| InputTensor | Input | 1 to 8 | FLOAT32, FLOAT16 |
| OutputTensor | Output | 1 to 8 | FLOAT32, FLOAT16 |
#### DML_FEATURE_LEVEL_1_0 and above
| Tensor | Kind | Supported dimension counts | Supported data types |
| ------ | ---- | -------------------------- | -------------------- |
| InputTensor | Input | 4 | FLOAT32, FLOAT16 |
| OutputTensor | Output | 4 | FLOAT32, FLOAT16 |
"""
HISTORY = """
# Feature levels

## DML_FEATURE_LEVEL_4_0
Added the following operator types.
* **DML_OPERATOR_IDENTITY9**
* **DML_OPERATOR_FILL_VALUE_CONSTANT**

Any number of dimensions, up to four, in:
* **DML_OPERATOR_GEMM**

*Alpha* may be 0 in:
* **DML_OPERATOR_REDUCE**
"""


def audit(folder: Path, **pages: str) -> list[str]:
    """The lines for some operators' pages, except the last, which lists the operators that have none."""
    for name, text in pages.items():
        (folder / f"ns-directml-dml_{name}_operator_desc.md").write_text(text)
    *lines, missing = audit_pages.audit([str(folder)])
    assert missing.startswith("no page of ACTIVATION_CELU, ACTIVATION_ELU, ")
    assert not {name.upper() for name in pages} & set(re.findall(r"\w+", missing))
    return lines


def test_pages_that_agree_make_no_line(tmp_path: Path) -> None:
    assert audit(tmp_path, gemm=GEMM, reduce=REDUCE) == []


def test_members_may_be_marked_up_as_fields_or_without_a_heading(tmp_path: Path) -> None:
    for heading in (r"### -field \1", r"`\1`"):
        text = re.sub(r"### `(\w+)`", heading, GEMM.replace("## Members", "## -struct-fields"))
        assert audit(tmp_path, gemm=text) == []
        assert audit(tmp_path, gemm=text.replace("FLOAT](", "UINT](")) != []


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (
            "{ M, K } | 2 to 4",
            "{ M, K } | 2 to 5",
            [" 4_0 ATensor: the page allows, and dmljax refuses, DimensionCount 5"],
        ),
        (
            "{ M, K } | 2 to 4",
            "{ M, K } | 3",
            [" 4_0 ATensor: the page forbids, and dmljax accepts, DimensionCount 2, 4"],
        ),
        ("{ M, K } | 2 to 4", "{ M, K } | any", [" 4_0 ATensor: cannot read its DimensionCount"]),
        (
            "BTensor | Input | 4 | FLOAT32, FLOAT16",
            "BTensor | Input | 4 | FLOAT32, INT8",
            [
                " 1_0 BTensor: the page allows, and dmljax refuses, DataType INT8",
                " 1_0 BTensor: the page forbids, and dmljax accepts, DataType FLOAT16",
            ],
        ),
        (
            "BTensor | Input | 4 | FLOAT32, FLOAT16",
            "BTensor | Input | 4 | FLOAT32 or FLOAT16",
            [" 1_0 BTensor: cannot read its DataType"],
        ),
        (
            "CTensor | Optional input | 4",
            "CTensor | Input | 4",
            [" 1_0 CTensor: the page has an input, dmljax an optional input"],
        ),
        (
            "BTensor | Input | 4",
            "BTensor | Optional input | 4",
            [" 1_0 BTensor: the page has an optional input, dmljax an input"],
        ),
        (
            "OutputTensor | Output | 4",
            "OutputTensor | Input | 4",
            [" 1_0 OutputTensor: the page has an input, dmljax an output"],
        ),
        (
            "| BTensor | Input | 4 |",
            "| BTensors | Input | 4 |",
            [
                " 1_0 BTensor: the page has an unknown tensor, dmljax an input",
                " 1_0 BTensors: the page has an input, dmljax an unknown tensor",
                " 1_0 BTensor: the page forbids, and dmljax accepts, DataType FLOAT16, FLOAT32",
                " 1_0 BTensor: the page forbids, and dmljax accepts, DimensionCount 4",
            ],
        ),
        (
            "The left matrices.",
            "It doesn't support **DML_TENSOR_FLAG_OWNED_BY_DML**.",
            [" ATensor: the page forbids, and dmljax accepts, OWNED_BY_DML"],
        ),
        (
            "*ATensor*, *BTensor*, ",
            "*BTensor*, ",
            [": dmljax requires the same DataType of ATensor, BTensor, CTensor, OutputTensor, the page does not"],
        ),
        (
            "must have the same *DataType* and",
            "and *BiasTensor* must have the same",
            [
                ": the page requires the same DimensionCount of ATensor, BTensor, BiasTensor, CTensor, OutputTensor, "
                "dmljax does not"
            ],
        ),
        (
            "introduced in `DML_FEATURE_LEVEL_1_0`",
            "introduced in `DML_FEATURE_LEVEL_2_0`",
            [": the page introduces it at 2_0, its first table is of 1_0"],
        ),
        (
            "`Beta`",
            "`Gamma`",
            [
                ": the page has the members ATensor, BTensor, CTensor, OutputTensor, TransA, TransB, Alpha, Gamma, "
                "FusedActivation, dmljax ATensor, BTensor, CTensor, OutputTensor, TransA, TransB, Alpha, Beta, "
                "FusedActivation"
            ],
        ),
        (
            "[**DML_MATRIX_TRANSFORM**](/transform)\n### `Alpha`",
            "a transform\n### `Alpha`",
            [" TransB: cannot read the type a transform"],
        ),
        (
            r"Type: \_Maybenull\_ **const [DML_OP",
            "Type: **const [DML_OP",
            [" FusedActivation: the page declares const DML_OPERATOR_DESC* and forbids, and dmljax accepts, None"],
        ),
    ],
)
@pytest.mark.gate(but=5)
def test_a_page_that_differs_makes_a_line(tmp_path: Path, old: str, new: str, lines: list[str]) -> None:
    assert GEMM.count(old) == 1
    assert audit(tmp_path, gemm=GEMM.replace(old, new)) == [f"GEMM{line}" for line in lines]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("AVERAGE and L2", "L2", None),
        (
            "Output | 1 to 8",
            "Output | 1 to 7",
            " 3_0 OutputTensor: the page of AVERAGE and L2 forbids, and dmljax accepts, DimensionCount 8",
        ),
        (
            "AVERAGE and L2",
            "L2 and MIN",
            " 2_1 InputTensor: the page of L2 and MIN forbids, and dmljax accepts, DataType ",
        ),
        (
            "**const [UINT]",
            "**const [INT]",
            " Axes: the page declares _Field_size_(AxisCount) const INT* and allows, and dmljax refuses, [-1, ",
        ),
        (
            "**const [UINT]",
            "**const [FLOAT]",
            " Axes: the page declares _Field_size_(AxisCount) const FLOAT*, dmljax has [",
        ),
    ],
)
def test_functions_and_arrays_are_compared(tmp_path: Path, old: str, new: str, line: str | None) -> None:
    assert REDUCE.count(old) == 1
    lines = audit(tmp_path, reduce=REDUCE.replace(old, new))
    assert any(one.startswith(f"REDUCE{line}") for one in lines) if line else not lines


def test_arrays_of_tensors_and_flags_are_compared(tmp_path: Path) -> None:
    introduced = "## Availability\nThis operator was introduced in `DML_FEATURE_LEVEL_1_0`.\n## Tensor support\n"
    heads = introduced + "| Tensor | Kind | Supported dimension counts | Supported data types |\n"
    rnn, join = (f"{heads}| {name} | Input | 4 | FLOAT32 |" for name in ("InputTensor", "InputTensors"))
    lines = audit(tmp_path, rnn=rnn, join=join)
    assert "RNN InputTensor: the page allows, and dmljax refuses, OWNED_BY_DML" in lines
    assert "JOIN 1_0 InputTensors: the page has an input, dmljax an array of inputs" in lines


def test_the_history_is_compared_with_the_operators_that_have_pages(tmp_path: Path) -> None:
    history = tmp_path / "dml-feature-level-history.md"
    history.write_text(HISTORY)
    assert audit(tmp_path, gemm=GEMM) == ["IDENTITY9: dmljax has no such operator"]
    history.write_text(HISTORY.replace("_4_0", "_4_1").replace("IDENTITY9", "GEMM"))
    assert audit(tmp_path, gemm=GEMM) == [
        "GEMM: the history introduces it at 4_1, dmljax at 1_0",
        "GEMM: the history extends it at 4_1, where nothing begins in dmljax",
    ]


def test_deliberate_differences_make_no_line_until_they_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_pages, "DELIBERATE", {"GEMM Alpha": "a reason", "TILE": "has no page here"})
    assert audit(tmp_path, gemm=GEMM.replace("`Alpha`\nType: **[FLOAT]", "`Alpha`\nType: **[BOOL]")) == []
    assert audit(tmp_path, gemm=GEMM) == ["GEMM Alpha: stands in DELIBERATE, but agrees"]


def test_operators_that_cannot_be_compared_make_a_line(tmp_path: Path) -> None:
    (tmp_path / "dml-feature-level-history.md").write_text(HISTORY.replace("IDENTITY9", "TILE"))
    assert audit(tmp_path, identity9="## Tensor support", tile="## Tensor support") == [
        "IDENTITY9: dmljax has no such operator",
        "TILE: no descriptor has the data types and dimension counts of its newest table",
    ]
