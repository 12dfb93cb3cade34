"""Where hunks go, and what is said of a hunk without a place. Real diffs are the measure."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_tools.base.compare import nearest
from toolcell_tools.coding.apply_hunks import Misplaced, applied
from toolcell_tools.coding.patch import Hunk, parsed

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  d", "e"]), max_size=25)
MIXED = "1\r\n2\n3\r\n"
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


def hunk(*lines: str, anchors: tuple[str, ...] = (), near: int = 0, at_end: bool = False) -> Hunk:
    """A hunk of lines with their signs, of which "" stands for an empty line that is kept."""
    return Hunk([(line[:1] or " ", f"{line[1:]}\n") for line in lines], anchors, new_start=near, at_end=at_end)


def test_anchors_tell_places_apart_and_each_comes_after_the_one_before() -> None:
    changes = "-    return 1", "+    return 2"
    with pytest.raises(
        Misplaced, match=r"hunk 1 of 'x' fits at lines 2, 6; add lines around it, or '@@' with a line before it\.$"
    ):
        applied(TEXT, [hunk(*changes)], "x")
    second = "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    assert applied(TEXT, [hunk(*changes, anchors=("def g():",))], "x") == second
    assert applied(TEXT, [hunk(*changes, anchors=("def f():", "return 1"))], "x") == second
    assert applied(TEXT, [hunk(*changes, anchors=("def g",))], "x") == second
    for missing in (("def h():",), ("def h():", "def g():"), ("def g():", "def f():"), ("de",)):
        with pytest.raises(Misplaced, match=r"no line (after line \d )?is '.*'\. Read the file again\.$"):
            applied(TEXT, [hunk(*changes, anchors=missing)], "x")


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        # The lines that are kept stay as they are in the file.
        ("a  \nb\nc\n", (" a", "-b", "+B", " c"), "a  \nB\nc\n"),
        ("a\n\tb\n", (" a", "-    b", "+    B"), "a\n\tB\n"),
        ("a\n    b\n    c\n", (" a", "   b", "-    c", "+    d", "+        e"), "a\n    b\n    d\n        e\n"),
        # An added line is indented as the file is.
        ("\tif x:\n", ("-if x:", "+if y:", "+    z"), "\tif y:\n\t    z\n"),
        ("  a:\n    b\n", ("-a:", "-  b", "+a:", "+  c", "+    d"), "  a:\n    c\n      d\n"),
        ("a\n\tb\n\t\tc\n", (" a", "     b", "-        c", "+        d", "+            e"), "a\n\tb\n\t\td\n\t\t\te\n"),
        ("a\n", ("-    a", "+    b", "+    c"), "b\nc\n"),
        # Each line has its own end.
        (MIXED, ("-1", "+one", "+two"), "one\r\ntwo\r\n2\n3\r\n"),
        (MIXED, ("-2", "+two"), "1\r\ntwo\n3\r\n"),
        (MIXED, (" 2", "+two", " 3"), "1\r\n2\ntwo\n3\r\n"),
        ("a\r\nb\r\n", ("-a", "+c", "+d"), "c\r\nd\r\nb\r\n"),
        ("a\r\nb\r\n", ("-a\r", "+a"), "a\nb\r\n"),
        ("a\nb\n", ("-a", "+a\r"), "a\r\nb\n"),
        # A file without a newline at its end stays so.
        ("a\nb", ("-a", "+A", " b"), "A\nb"),
        ("a\nb", ("-b", "+B", "+C"), "a\nB\nC"),
        ("a\nb", (" a", "-b"), "a\n"),
        ("a\r\nb", (" b", "+c"), "a\r\nb\r\nc"),
        ("", ("+a",), "a\n"),
        # A byte order mark that the patch does not have stays.
        ("\ufeffa\nb\n", ("-a", "+A"), "\ufeffA\nb\n"),
        ("\ufeffa\nb\n", ("-\ufeffa", "+A"), "A\nb\n"),
    ],
)  # fmt: skip
def test_a_hunk_changes_the_lines_that_it_names_and_no_other_byte(before: str, lines: list[str], after: str) -> None:
    assert applied(before, [hunk(*lines)], "x") == after


@given(st.data())
def test_the_lines_that_a_hunk_does_not_name_keep_every_byte(data: st.DataObject) -> None:
    """Of a file of any line ends, from a hunk whose kept lines have other blanks than the file."""
    count = data.draw(st.integers(1, 12))
    margins = st.tuples(st.sampled_from(["", "    ", "\t"]), st.sampled_from(["", "  "]))
    blanks = data.draw(st.lists(margins, min_size=count, max_size=count))
    ends = data.draw(st.lists(st.sampled_from(["\n", "\r\n"]), min_size=count, max_size=count))
    ends[-1] = data.draw(st.sampled_from(["", "\n", "\r\n"]))
    lines = [
        f"{left}{number}{right}{end}" for number, ((left, right), end) in enumerate(zip(blanks, ends, strict=True))
    ]
    mark = data.draw(st.sampled_from(["", "\ufeff"]))
    adds = data.draw(st.booleans())  # the indentation of an added line is another matter
    named: list[str] = []
    expected: list[tuple[str, bool]] = []  # a line, and whether its end counts
    for line in lines:
        fate = data.draw(st.sampled_from(["keep", "keep", "remove", *(["replace", "add"] if adds else [])]))
        exact = line.rstrip("\r\n")
        if fate in {"keep", "add"}:
            named.append(f" {data.draw(st.sampled_from([exact, exact.rstrip(), exact if adds else exact.strip()]))}")
            expected.append((line, True))
        else:
            named.append(f"-{exact}")
        if fate in {"replace", "add"}:
            named.append("+new")
            expected.append(("new", False))
    after = applied(mark + "".join(lines), [hunk(*named)], "x")
    assert after.startswith(mark)
    found = after.removeprefix(mark).splitlines(keepends=True)
    assert [line.rstrip("\r\n") for line in found] == [line.rstrip("\r\n") for line, _ in expected]
    for at, (line, kept) in enumerate(expected[:-1]):
        assert found[at] == line if kept and line.endswith("\n") else found[at].endswith("\n")
    if expected and expected[-1][1]:
        assert found[-1] == expected[-1][0]


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        ("  a\n    b\n", ("-a", "-b", "+a", "+b")),  # one indentation in the patch, two in the file
        ("    a\n", ("-  a", "+    b")),  # two blanks more, or twice as many
    ],
)
def test_a_hunk_whose_added_lines_cannot_be_indented_is_refused(before: str, lines: list[str]) -> None:
    with pytest.raises(Misplaced, match="it is unclear how to indent the added line"):
        applied(before, [hunk(*lines)], "x")


def test_hunks_come_in_the_order_of_the_file() -> None:
    with pytest.raises(Misplaced, match=r"hunk 2 of .x. does not fit\. Its lines .* do not begin after line 2"):
        applied("a\nb\nc\n", [hunk("-b", "+B"), hunk("-a", "+A")], "x")
    assert applied("a\nb\na\n", [hunk("-b", "+c"), hunk("-a", "+d")], "x") == "a\nc\nd\n"


def test_a_mismatch_names_the_nearest_text_and_how_it_differs() -> None:
    with pytest.raises(Misplaced) as caught:
        applied(TEXT, [hunk("-def g():", "-    return 3", "+pass")], "x")
    assert str(caught.value) == (
        "hunk 1 of 'x' does not fit. The nearest text begins at line 5. There, line 6 is '    return 1', and the patch "
        "has '    return 3'. Read the file again."
    )
    with pytest.raises(Misplaced, match=r"has '    return 3'\. 1 more line differs\. Read"):
        applied(TEXT, [hunk("-def g():", "-    return 3", "-    pass")], "x")
    with pytest.raises(Misplaced, match="Nothing in the file is like it"):
        applied(TEXT, [hunk("-import numpy as np")], "x")


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
        applied("\n".join(REPEATED), [hunk(*(f"-{line}" for line in wanted), "+x")], "x")


def test_many_hunks_of_a_unified_diff_find_their_lines_in_time() -> None:
    hunks = [hunk(" line 0", "-line 1", "+LINE", near=7 * number + 1) for number in range(5_000)]
    changed = applied("\n".join(REPEATED), hunks, "x").split("\n")
    assert changed.count("LINE") == 5_000 and changed[: 7 * 5_000][1::7] == ["LINE"] * 5_000


def test_of_several_places_the_nearest_to_the_number_is_taken_and_the_end_of_the_file_is_the_end() -> None:
    lines = "\n".join(["a", "b"] * 5)
    changed = applied(lines, [hunk("-a", "+A", near=6)], "x").split("\n")
    assert changed.index("A") in (4, 6)
    assert applied(lines, [hunk("-b", "+B", at_end=True)], "x").split() == [*["a", "b"] * 4, "a", "B"]
    with pytest.raises(Misplaced):
        applied(lines, [hunk("-a", "+A", at_end=True)], "x")
