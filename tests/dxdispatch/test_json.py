"""JSON with comments, trailing commas and lines."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import GATE
from hypothesis import given, settings, strategies as st

from dmljax.dxdispatch import text
from dmljax.dxdispatch.text import MAX_DEPTH, InvalidJson, parse

TEXT = """\
// a model
{
    "Sizes": [1, 2, // batch
              3],
    "strings": ["nan", 1,
                "-INF", 2],
    /* more
     * than one line **/ "nested": [
        {"a": null}, true,
    ],
    "Sizes":
        "again",
} and what follows does not count
"""


def test_comments_and_trailing_commas_are_skipped() -> None:
    text = TEXT.replace('"Sizes":\n', '"more":\n')
    expected = {"Sizes": [1, 2, 3], "strings": ["nan", 1, "-INF", 2], "nested": [{"a": None}, True], "more": "again"}
    assert parse(text).root == expected
    assert not parse(text).repeated


def test_repeated_names_are_reported_with_their_line() -> None:
    assert parse(TEXT).repeated == [(("Sizes",), 11)]


@GATE
def test_comments_in_a_long_list_cost_little() -> None:
    numbers = "1,\n" * 300_000
    document = parse(f"[{numbers} // half of them\n {numbers} /* 7 */ 2]")
    assert len(document.root) == 600_001
    assert document.line((600_000,)) == 600_002


def test_each_element_of_a_plain_list_is_located_once(monkeypatch: pytest.MonkeyPatch) -> None:
    elements, located = text._elements, []

    def noted(*where: Any) -> Iterator[tuple[int, str]]:
        for element in elements(*where):
            located.append(element)
            yield element

    document = parse("[" + "1,\n" * 1000 + "]")
    monkeypatch.setattr(text, "_elements", noted)
    assert [document.line((index,)) for index in range(0, 900, 3)] == list(range(1, 901, 3))
    assert [document.line((index,)) for index in (7, 5, 5)] == [8, 6, 6]
    assert len(located) == 1000


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ((), 2),
        (("Sizes",), 3),
        (("Sizes", 1), 3),
        (("Sizes", 2), 4),
        (("Sizes", 3), 3),
        (("Sizes", "DataType"), 3),
        (("strings", 1), 5),
        (("strings", 2), 6),
        (("nested", 0, "a"), 9),
        (("nested", 0, "a", "b", 7), 9),
        (("nowhere", 0), 2),
    ],
)
def test_values_have_lines_or_their_parents_lines(place: Any, line: int) -> None:
    assert parse(TEXT.replace('"Sizes":\n', '"more":\n')).line(place) == line


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Half a surrogate pair is refused.
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["nan", "-Inf"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@settings(deadline=None, max_examples=300)
@given(json_values, st.sampled_from([None, 1, "\t"]))
@GATE
def test_json_from_the_standard_library_is_read_the_same(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    assert repr(parse(text).root) == repr(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ("[18446744073709551616]", [2.0**64]),
        ("-9223372036854775808", -(2**63)),
        ("[-9223372036854775809, 1]", [-(2.0**63), 1]),
        ("[" + "1" * 300 + "]", [float("1" * 300)]),
        ("[1e-400, 1E3]", [0.0, 1000.0]),
        ("[-0, -0.0]", [0, -0.0]),
    ],
)
def test_numbers_are_64_bits_wide_or_doubles(text: str, value: Any) -> None:
    assert repr(parse(text).root) == repr(value)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "expected a value; got the end of the text"),
        ('{"a": 1,\n "b" 2}', 2, 6, "expected a colon after 'b'; got '2}'"),
        ('{"a": 1,\n b: 2}', 2, 2, "expected a name in double quotes or }; got 'b: 2}'"),
        ('[{"a": 1}\n 2]', 2, 2, "expected a comma or ]; got '2]'"),
        ('{"a": 1\n "b": 2}', 2, 2, "expected a comma or }"),
        ('{"a": [1, 2', 1, 12, "expected a comma or ]"),
        ("[1,,2]", 1, 4, "expected a value; got ',2]'"),
        ("[01]", 1, 3, "expected a comma or ]; got '1]'"),
        ("[.5]", 1, 2, "expected a value"),
        ("[NaN]", 1, 2, "expected a value; got 'NaN]'"),
        ('"no end', 1, 1, "invalid string"),
        ('{"a": "two\nlines"}', 1, 11, "invalid string"),
        (r'["\ud800", {}]', 1, 2, "invalid Unicode in a string"),
        ("[1,\n 1e400]", 2, 2, "a number must fit FLOAT64; got 1e400"),
        ("[{}, 1e400]", 1, 6, "a number must fit FLOAT64; got 1e400"),
        ("[" + "1" * 5000 + "]", 1, 2, "a number must fit FLOAT64; got 111"),
        ("/* never closed", 1, 1, "expected a value"),
        ("[" * 10_000, 1, MAX_DEPTH + 2, f"nested at most {MAX_DEPTH} deep"),
        ('{"a":' * 10_000, 1, 5 * (MAX_DEPTH + 1) + 1, f"nested at most {MAX_DEPTH} deep"),
    ],
)
def test_invalid_json_is_refused_with_its_position(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(InvalidJson) as refused:
        parse(text)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "column"), [("[" + "[]," * 1000 + "]", 2999), ('{"a":{' + '"b":1,' * 1000 + "}}", 5999)], ids=["[]", "{}"]
)
def test_too_many_values_are_refused_with_the_position(text: str, column: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmljax.dxdispatch.text.MAX_VALUES", 1000)
    with pytest.raises(
        InvalidJson, match="the text must hold at most 1000 values, not counting numbers in lists"
    ) as refused:
        parse(text)
    assert (refused.value.line, refused.value.column) == (1, column)
