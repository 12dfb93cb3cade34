"""Where hunks go, and what is said of a hunk without a place. Real diffs are the measure."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_tools.base.nearest import nearest
from toolcell_tools.coding.patch import Hunk, parsed
from toolcell_tools.coding.place import Misplaced, applied

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  d", "e"]), max_size=25)
TEXT = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"


@settings(max_examples=60, deadline=None)
@given(LINES, LINES, st.booleans(), st.booleans())
def test_a_diff_turns_the_old_text_into_the_new_one(
    tmp_path_factory: pytest.TempPathFactory, old: list[str], new: list[str], old_ends: bool, new_ends: bool
) -> None:
    before = "\n".join(old) + "\n" * (old_ends and bool(old))
    after = "\n".join(new) + "\n" * (new_ends and bool(new))
    directory = tmp_path_factory.mktemp("diff")
    (directory / "a").write_text(before)
    (directory / "b").write_text(after)
    diff = diff_of(directory)
    if diff:
        (change,) = parsed(diff)
        assert applied(before, change.hunks, "a") == after


def diff_of(directory: Path) -> str:
    return subprocess.run(["diff", "-u", "a", "b"], cwd=directory, capture_output=True, text=True, check=False).stdout


def test_an_anchor_tells_two_places_apart() -> None:
    with pytest.raises(
        Misplaced, match=r"hunk 1 of 'x' fits at lines 2, 6; add lines around it, or '@@' with a line before it\.$"
    ):
        applied(TEXT, [Hunk(["    return 1"], ["    return 2"])], "x")
    changed = applied(TEXT, [Hunk(["    return 1"], ["    return 2"], "def g():")], "x")
    assert changed == "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    with pytest.raises(Misplaced, match=r"no line after line 0 is 'def h\(\):'"):
        applied(TEXT, [Hunk(["    return 1"], [], "def h():")], "x")


def test_blanks_at_the_margins_do_not_matter_where_nothing_else_fits() -> None:
    assert applied("a  \nb\n", [Hunk(["a", "b"], ["c"])], "x") == "c\n"
    assert applied("\tif x:\n", [Hunk(["if x:"], ["if y:"])], "x") == "if y:\n"


def test_windows_line_ends_stay() -> None:
    assert applied("a\r\nb\r\n", [Hunk(["a"], ["c", "d"])], "x") == "c\r\nd\r\nb\r\n"


def test_hunks_come_in_the_order_of_the_file() -> None:
    assert applied("a\nb\na\n", [Hunk(["b"], ["c"]), Hunk(["a"], ["d"])], "x") == "a\nc\nd\n"


def test_a_mismatch_names_the_nearest_text_and_how_it_differs() -> None:
    with pytest.raises(Misplaced) as caught:
        applied(TEXT, [Hunk(["def g():", "    return 3"], ["pass"])], "x")
    assert str(caught.value) == (
        "hunk 1 of 'x' does not fit. The nearest text begins at line 5. There, line 6 is '    return 1', and the patch "
        "has '    return 3'. Read the file again."
    )
    with pytest.raises(Misplaced, match=r"has '    return 3'\. 1 more line differs\. Read"):
        applied(TEXT, [Hunk(["def g():", "    return 3", "    pass"], [])], "x")
    with pytest.raises(Misplaced, match="Nothing in the file is like it"):
        applied(TEXT, [Hunk(["import numpy as np"], [])], "x")


def test_the_nearest_lines_may_be_like_none_of_the_wanted_ones_exactly() -> None:
    near = nearest(["one", "def compute_total(items):", "two"], ["def compute_totals(items, tax):"])
    assert near is not None
    assert near.first == 2
    assert near.differing == [(2, "def compute_total(items):", "def compute_totals(items, tax):")]
    assert nearest([], ["a"]) is None
    assert nearest(["a"], [""]) is None


REPEATED = [f"line {number % 7}" for number in range(300_000)]


@pytest.mark.parametrize("wanted", [[*REPEATED[:20_000], "z"], ["z", *REPEATED], ["line 0"] * 100_000])
def test_a_hunk_that_does_not_fit_a_text_that_repeats_is_refused_in_time(wanted: list[str]) -> None:
    """To compare each line with each would take hours."""
    with pytest.raises(Misplaced, match="does not fit"):
        applied("\n".join(REPEATED), [Hunk(wanted, ["x"])], "x")


def test_many_hunks_of_a_unified_diff_find_their_lines_in_time() -> None:
    hunks = [Hunk(["line 0", "line 1"], ["line 0", "LINE"], near=7 * number + 1) for number in range(5_000)]
    changed = applied("\n".join(REPEATED), hunks, "x").split("\n")
    assert changed.count("LINE") == 5_000 and changed[: 7 * 5_000][1::7] == ["LINE"] * 5_000


def test_of_several_places_the_nearest_to_the_number_is_taken_and_the_end_of_the_file_is_the_end() -> None:
    lines = "\n".join(["a", "b"] * 5)
    changed = applied(lines, [Hunk(["a"], ["A"], near=6)], "x").split("\n")
    assert changed.index("A") in (4, 6)
    assert applied(lines, [Hunk(["b"], ["B"], at_end=True)], "x").split() == [*["a", "b"] * 4, "a", "B"]
    with pytest.raises(Misplaced):
        applied(lines, [Hunk(["a"], ["A"], at_end=True)], "x")
