"""Lines that match, compared with a search of each line by itself."""

import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_tools.coding.line_search import Searcher, needed_text
from toolcell_tools.failures import ToolFailure

PATTERNS = [
    "needle", "n..dle", "^a", "b$", "^$", r"\bfoo\b", "a*", "[^b]c", r"\s", r"a\s+b", "x|y", "(ab)+", r"\x41", "é+",
    "[éü]", "ß$", "a{2}", "^", "$", r"\.", "a?b+", ".", r"\W\w", "(?s)a.b", "a\nb", r"\Aa", r"b\Z", "a(?!b)", "(?<!a)b",
    r"a\s*+$", "(?>a|ab)c", "(?-m:^a)", "(?a)caf\\w+", "(?i)NEEDLE", "(?m)^b", r"\B", r"(a)\1", r"\d+", r"caf\w+",
    "na.ve", "caf.$", r"\S{3}$", "[^a-z ]", r"^\W", "[а-я]+", r"\u00e9", "\ufffd", "日.語", r"[\s\S]b", r"(?<=\s)a",
    "k", "ſ", "(?x)a b",
]  # fmt: skip
WORDS = [
    "needle",
    "foo",
    "café",
    "naïve",
    "ß",
    "é",
    "ПРИВЕТ",
    "привет",
    "日本語",
    "١٢",
    "ſK",
    "a",
    "b",
    "ab",
    "aa",
    "x",
    "A",
    ".",
]
ENDS = ["\n", "\r\n", " ", "\t", "\r", "\u00a0", "\x1c", "\u2028", "\ufeff", ""]


def by_line(pattern: str, flags: int, data: bytes) -> list[tuple[int, str]]:
    """The lines of the decoded text in which Python's `re` finds the pattern."""
    text = data.decode(errors="replace")
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        lines.pop()
    plain, found = [line.removesuffix("\r") for line in lines], re.compile(pattern, flags).search
    return [(number, line) for number, line in enumerate(plain, 1) if found(line)]


@settings(max_examples=1000, deadline=None)
@given(
    pattern=st.sampled_from(PATTERNS) | st.lists(st.sampled_from([*PATTERNS, *WORDS]), max_size=3).map("".join),
    ignore_case=st.booleans(),
    pieces=st.lists(st.sampled_from([*WORDS, *ENDS]) | st.text(max_size=2), max_size=12),
    bytes_after=st.sampled_from([b"", b"\xe9", b"caf\xe9\n\xff", b"\xe2\x82\nb"]),
)
def test_the_lines_are_those_in_which_re_finds_the_expression(
    pattern: str, ignore_case: bool, pieces: list[str], bytes_after: bytes
) -> None:
    data = "".join(pieces).encode(errors="replace") + bytes_after
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = by_line(pattern, re.IGNORECASE * ignore_case, data)
        except re.error:
            with pytest.raises(ToolFailure, match="is not a regular expression"):
                Searcher.of(pattern, ignore_case=ignore_case)
            return
    searcher = Searcher.of(pattern, ignore_case=ignore_case)
    assert [(line.number, line.text()) for line in searcher.lines(data)] == expected
    assert not expected or searcher.may_find(data)


@pytest.mark.parametrize("pattern", [r"\s+b", "a[^c]*", "(?s)a.*", "b$", r"\Ab"])
def test_a_long_file_is_searched_in_time_that_grows_with_its_size(pattern: str) -> None:
    data = b"a\n" * 400_000 + b" b\n" + b"\n" * 200_000
    expected = by_line(pattern, 0, data)
    assert [(line.number, line.text()) for line in Searcher.of(pattern).lines(data)] == expected


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
