"""The page of accuracy: the largest errors that the tests and a longer search found.

`pytest tests/operators/test_accuracy.py --accuracy-table FILE` writes it.
"""

from pathlib import Path

import pytest

PAGE = """\
# Accuracy

Operators that do not round agree bit for bit with DirectML's pages. Elementwise operators that round are accurate to 4
units in the last place (ULP) in FLOAT32, against a float64 reference, and to 1 in FLOAT16 and bfloat16. The exceptions
compute what JAX's own function computes, and are at most 1 ULP further off. The tests tried NaN, infinities, both ends
of the range, and all finite attributes. Floating-point arithmetic may replace a subnormal operand or result by a zero
of the same sign, as in Direct3D; predicates, selections, copies and bitwise operators keep subnormals. DirectML's pages
list float64 for none of the operators that round; in float64, dmljax is as accurate as XLA's functions.

Exceptions and their reasons:

| operator | exception | reason |
| --- | --- | --- |
| ELEMENT_WISE_MODULUS_FLOOR | may be 0 where `b` is below 1e-30 | the remainder may be subnormal before `b` is added |
| ELEMENT_WISE_ADD1 | rounds twice | it rounds the sum, then the result of the fused activation |
| operators with a ScaleBias | round up to three times | they round the product, the sum and the result |
| ELEMENT_WISE_POW, integer with float exponent | truncates | it computes an integer in floating point |

Derivatives with respect to inputs and attributes, in forward and reverse mode, have at least 4 correct digits for
arguments and attributes between 1e-3 and 1e3, or are off by less than 1e-5 of the result divided by the argument: the
slope of tanh is `1 - tanh(x)**2`, which is 0 from 9 on. Derivatives below 1e-30 may be 0. Gradients with respect to the
input are finite wherever the operator and its true gradient are, even at infinity. The derivative of `0 ** 0` with
respect to the exponent is 0, as in JAX and PyTorch.

## On a GPU and a TPU

All errors on this page were measured on a CPU. We have run dmljax on one H100 and on
no TPU. The platforms use these functions:

| computation | CPU | GPU | TPU |
| --- | --- | --- | --- |
| sine, cosine, tangent and their inverses, remainders | dmljax's | XLA's | XLA's |
| hyperbolic sine and cosine | dmljax's, from XLA's exponential | XLA's | dmljax's, from XLA's exponential |
| all other elementwise functions | XLA's | XLA's | XLA's |
| sums | dmljax's order, or XLA's | XLA's order | XLA's order |
| comparisons and selections by value | by the bits | as the platform compares | as the platform compares |

## Elementwise operators

The table lists the largest errors found, in ULP. No search tries all operands of FLOAT32, so larger errors may exist.
For each library and operator, the search begins with 400,000 operands. With one input, it tries 256 numbers in each of
65,536 intervals, then all numbers in the 256 intervals with the largest errors, 34 million in all; with two inputs, it
varies the worst pairs, 17 million in all. All three libraries have the same attributes. Subnormals, infinities and NaNs
do not count here. An error of 1e+06 or more is a normal number that became 0, as in GELU below -13 and swish below -87.
An infinite error is an intermediate result that overflows where the exact result does not.

In FLOAT16 and bfloat16, the tests try all operands with attributes of their own; with two inputs, they pair each value
of one input with one value of the other. Large errors in bfloat16 have the same two reasons. The tests also search for
the worst operands and attributes in FLOAT32, and hold them to the same bounds. ELEMENT_WISE_POW and ELEMENT_WISE_ADD1
have tests of their own.

{elementwise}

## Sums

The operators' pages bound the error of sums relative to the sum of the magnitudes. Softmax also rounds each element's
distance from the largest of its row before the exponential. The table lists the largest errors in one float32 workload
of each operator, in ULP of the largest result.

{sums}
"""
COLUMNS = {
    "units": {
        "dmljax": "dmljax",
        "JAX": "JAX",
        "PyTorch": "PyTorch",
        "dmljax, FLOAT16": "float16",
        "dmljax, bfloat16": "bfloat16",
    },
    "sums": {"dmljax": "dmljax", "JAX": "JAX", "PyTorch": "PyTorch", "ONNX Runtime": "ONNX-Runtime"},
}
seen: dict[str, dict[str, dict[str, str]]] = {key: {} for key in COLUMNS}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for key, value in report.user_properties:
        if key in seen and report.when == "call":
            operator, column, units = str(value).split()
            seen[key].setdefault(operator, {})[column] = units


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.getoption("--accuracy-table")
    if file is not None and not hasattr(session.config, "workerinput"):  # a worker of xdist sees only a part
        write(file)


def write(file: Path) -> None:
    file.write_text(PAGE.format(elementwise=error_table("units"), sums=error_table("sums")))


def error_table(key: str) -> str:
    columns = COLUMNS[key]
    rows = [["operator", *columns], ["---", *["--:"] * len(columns)]]
    for name, found in sorted(seen[key].items()):
        rows.append([name, *(found.get(column, "") for column in columns.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
