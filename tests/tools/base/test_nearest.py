"""The text that is nearest to what was not found, and diffs: right, and in a bounded time for texts that repeat."""

import pytest

from toolcell_tools.base.compare import Replacement, diff_of_replacements, nearest


def test_lines_that_are_everywhere_do_not_hide_the_place() -> None:
    lines = ["}"] * 300 + ["alpha = 1", "}", "beta = 2", "}"] + ["}"] * 300
    near = nearest(lines, ["}", "alpha = 1", "}", "beta = 3", "}"])
    assert near is not None and near.first == 300 and near.differing == [(303, "beta = 2", "beta = 3")]


def test_only_lines_that_differ_are_said_to_differ_in_a_long_file() -> None:
    lines = [f"line {number}" for number in range(6_000)]
    near = nearest(lines, [*lines[4_000:5_999], "other"])
    assert near is not None and near.first == 4_001 and near.differing == [(6_000, "line 5999", "other")]


def test_the_most_similar_line_is_found_among_many() -> None:
    lines = [f"value_{number} = compute({number})" for number in range(3_000)]
    near = nearest(lines, ["value_1234 = compute(1234 )"])
    assert near is not None and near.first == 1235


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["a"] * 500_000, ["a"] * 200_000 + ["b"]),
        (
            [f"line {number % 7}" for number in range(300_000)],
            [f"line {number % 7}" for number in range(20_000)] + ["z"],
        ),
        (["ab" * 4_000] * 300, ["ba" * 100_000]),
        (["ab" * number for number in range(100, 5_000)], ["ba" * 5_000]),
    ],
    ids=["one line", "seven lines", "wide lines", "wide different lines"],
)
def test_the_time_is_bounded_for_texts_that_repeat(lines: list[str], wanted: list[str]) -> None:
    """To compare each line with each would take hours."""
    nearest(lines, wanted)


def test_a_diff_of_very_many_replacements_counts_the_lines() -> None:
    text = "a\n" * 300_000
    diff = diff_of_replacements("x", text, [Replacement(at, at + 1, "b\nc") for at in range(0, len(text), 2)])
    assert diff == "--- a/x\n+++ b/x\n[… 300,000 lines become 600,000; too many to compare …]"
