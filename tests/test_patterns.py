"""Patterns of arguments: which values fit, and what an answer in doubt is. `test_policy.py` has the rules with them."""

from typing import Any

import pytest

from toolcell import UsageError
from toolcell.rules.patterns import GLOB_CHARS, MATCHED_CHARS, check_pattern, matches


def fits(glob: str, value: object) -> bool:
    answers = {matches({"a": glob}, {"a": value}, in_doubt=in_doubt) for in_doubt in (True, False)}
    assert len(answers) == 1, "there is no doubt about one value of usual length"
    return answers.pop()


@pytest.mark.parametrize(
    ("glob", "value", "wanted"),
    [
        ("500", 500.0, True),
        ("500", "500", True),
        ("500.5", 500.5, True),
        ("true", True, True),
        ("1", True, False),
        ("*", None, False),
        ('["é","b"]', ["é", "b"], False),
        ('[[]"é","b"]', ["é", "b"], True),
        ('{"a":1,"b":[]}', {"b": [], "a": 1}, True),
        ("[[]500]", [500.0], True),
        ('{"a":{"b":[[]1,2.5,true]}}', {"a": {"b": [1.0, 2.5, True]}}, True),
        ("A*", "abc", False),
        ("a*", "b\na", False),
    ],
)
def test_a_value_is_compared_as_text_or_as_compact_json(glob: str, value: object, wanted: bool) -> None:
    assert fits(glob, value) is wanted


def test_every_argument_that_is_named_must_fit_and_one_that_is_missing_fits_nothing() -> None:
    pattern = {"a": "1", "b": "2"}
    for arguments, wanted in (({"a": 1, "b": 2, "c": 3}, True), ({"a": 1, "b": 3}, False), ({"a": 1}, False)):
        for in_doubt in (True, False):
            assert matches(pattern, arguments, in_doubt=in_doubt) is wanted
    assert matches({}, {"a": 1}, in_doubt=False)


@pytest.mark.parametrize("in_doubt", [True, False])
def test_a_name_that_means_two_values_is_in_doubt_unless_both_say_the_same(in_doubt: bool) -> None:
    def both(one: str, other: str) -> bool:
        return matches({"a.b": "evil"}, {"a.b": one, "a": {"b": other}}, in_doubt=in_doubt)

    assert both("evil", "fine") is both("fine", "evil") is in_doubt
    assert both("evil", "evil") and not both("fine", "fine")


@pytest.mark.parametrize("in_doubt", [True, False])
def test_a_text_that_is_too_long_to_be_compared_is_in_doubt(in_doubt: bool) -> None:
    assert matches({"a": "x*"}, {"a": "y" * (MATCHED_CHARS + 1)}, in_doubt=in_doubt) is in_doubt
    assert not matches({"a": "x*"}, {"a": "y" * MATCHED_CHARS}, in_doubt=in_doubt)


def test_a_member_is_found_at_any_depth_and_behind_any_dot() -> None:
    assert matches({"a.b.c": "1"}, {"a": {"b": {"c": 1}}}, in_doubt=False)
    assert matches({"a.b.c": "1"}, {"a.b": {"c": 1}}, in_doubt=False)
    assert matches({"a.b.c": "1"}, {"a": {"b.c": 1}}, in_doubt=False)
    assert not matches({"a.b.c": "1"}, {"a": [{"b": 1}]}, in_doubt=True)


@pytest.mark.parametrize("glob", ["*a*a*a*a*a*a*a*b", "*" + "?" * 498 + "b", "*" + "[a-z]" * 99 + "b", "*a" * 250])
def test_the_worst_globs_end_in_little_time(glob: str) -> None:
    """A matcher that goes back to each star would not end."""
    assert not fits(glob, "a" * (MATCHED_CHARS - 1) + "c")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("src/*", "the argument pattern is not a mapping"),
        ({"path": 5}, "'path': 5 is not an argument with a glob"),
        ({"": "x"}, "is not an argument with a glob"),
        ({5: "x"}, "is not an argument with a glob"),
        ({"path": "x" * (GLOB_CHARS + 1)}, "has 501 characters, more than 500"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"^here: .*{words}"):
        check_pattern("here", pattern)
    check_pattern("here", {"path": "x" * GLOB_CHARS})
