"""Lines that match, compared with a search of each line by itself."""

import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_tools.coding.search import Searcher, needed_text
from toolcell_tools.failures import ToolFailure

PATTERNS = [
    "needle", "n..dle", "^a", "b$", "^$", r"\bfoo\b", "a*", "[^b]c", r"\s", r"a\s+b", "x|y", "(ab)+", r"\x41", "é+",
    "[éü]", "ß$", "a{2}", "^", "$", r"\.", "a?b+", ".", r"\W\w", "(?s)a.b", "a\nb",
]  # fmt: skip


def by_line(pattern: str, text: str) -> list[tuple[int, str]]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    found = re.compile(pattern, re.MULTILINE | re.ASCII * pattern.isascii())
    return [(number, line) for number, line in enumerate(lines, 1) if found.search(line.removesuffix("\r"))]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PATTERNS), st.text(alphabet="abcnedl xyA.\n\réüß\0foo", max_size=60))
def test_the_lines_are_those_that_match_by_themselves(pattern: str, text: str) -> None:
    data, searcher = text.encode(), Searcher.of(pattern)
    found = [(line.number, data[line.start : line.end].decode()) for line in searcher.lines(data)]
    expected = by_line(pattern, text)
    if pattern.isascii() and any(not line.isascii() for _number, line in [*found, *expected]):
        return  # an ASCII pattern is matched with bytes: a dot is one byte of a letter
    assert found == expected
    assert not found or searcher.may_find(data)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=r"ab\.*+?^$|()[]{}x41w", max_size=8), st.text(alphabet="abx41wA.\n", max_size=30))
def test_each_match_contains_the_needed_text(pattern: str, text: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = re.compile(pattern, re.MULTILINE).search(text)
    except re.error:
        return
    assert found is None or needed_text(pattern) in found[0]


def test_the_needed_text_is_the_longest_one() -> None:
    assert needed_text(r"def \w+_handler\b") == "_handler"
    assert needed_text("ab*cde") == "cde"
    assert needed_text("a|b") == needed_text(r"\x41bc") == ""


def test_an_end_is_found_before_either_kind_of_line_end() -> None:
    data = b"one\r\ntwo\r\n\r\ntwo three\r"
    assert [line.number for line in Searcher.of("(two|three)$").lines(data)] == [2, 4]
    assert [line.number for line in Searcher.of("^$").lines(data)] == [3]


def test_the_lines_around_a_line_end_with_the_file() -> None:
    (line,) = Searcher.of("three", context=2).lines(b"one\ntwo\r\nthree\nfour")
    assert (line.number, line.text()) == (3, "three")
    assert line.around() == {"before": ["one", "two"], "after": ["four"]}
    (first,) = Searcher.of("one", context=1).lines(b"one\n")
    assert first.around() == {"before": [], "after": []}


def test_a_long_line_is_cut() -> None:
    (line,) = Searcher.of("x").lines(b"x" * 600)
    assert line.text() == "x" * 500 + " [… 100 more characters …]"


def test_a_wrong_expression_is_refused_with_its_place() -> None:
    with pytest.raises(ToolFailure, match=r"is not a regular expression: .* at character 1. Set literal"):
        Searcher.of("(a")
    assert [line.number for line in Searcher.of("(a", literal=True).lines(b"b\n(a\n")] == [2]
    assert [line.number for line in Searcher.of("ÉA", ignore_case=True, literal=True).lines("b\néa\n".encode())] == [2]
