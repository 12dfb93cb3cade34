"""Patterns of files that are not sent."""

import pytest

from toolcell import UsageError
from toolcell.workplaces.exclusions import DEFAULT_EXCLUDED, Exclusions, ignored_by


@pytest.mark.parametrize(
    ("pattern", "path", "is_directory", "excluded"),
    [
        ("*.log", "a.log", False, True),
        ("*.log", "deep/er/a.log", False, True),
        ("*.log", "a.log.txt", False, False),
        ("/build", "build", True, True),
        ("/build", "src/build", True, False),
        ("build/", "src/build", True, True),
        ("build/", "build", False, False),
        ("docs/*.txt", "docs/a.txt", False, True),
        ("docs/*.txt", "docs/deep/a.txt", False, False),
        ("**/cache", "a/b/cache", True, True),
        ("a/**/z", "a/z", False, True),
        ("a/**/z", "a/b/c/z", False, True),
        ("data/**", "data/x", False, True),
        ("data/**", "data", True, False),
        ("file[0-9]", "file7", False, True),
        ("file[!0-9]", "file7", False, False),
        ("\\#odd", "#odd", False, True),
        ("a\\*b", "a*b", False, True),
        ("a\\*b", "axb", False, False),
        ("# comment", "# comment", False, False),
    ],
)
def test_a_pattern_is_read_as_git_does(pattern: str, path: str, is_directory: bool, excluded: bool) -> None:
    assert Exclusions([("", [pattern])]).excludes(path, is_directory=is_directory) is excluded


def test_the_last_rule_counts_and_a_nearer_file_overrules_a_farther_one() -> None:
    rules = Exclusions([("", ["*.log", "!keep.log"]), ("sub", ["!*.log"])])
    assert rules.excludes("a.log", is_directory=False)
    assert not rules.excludes("keep.log", is_directory=False)
    assert not rules.excludes("sub/a.log", is_directory=False)


def test_what_is_below_an_excluded_directory_is_covered() -> None:
    rules = Exclusions.of(DEFAULT_EXCLUDED)
    assert rules.covers("web/node_modules/x/index.js", is_directory=False)
    assert not rules.covers("web/modules/x/index.js", is_directory=False)


def test_a_program_can_include_a_default_but_not_the_outputs_of_the_supervisor() -> None:
    rules = Exclusions.of([*DEFAULT_EXCLUDED, "!node_modules/", "!/.toolcell/"])
    assert not rules.excludes("node_modules", is_directory=True)
    assert rules.excludes(".toolcell", is_directory=True)


def test_rules_cross_as_msgpack_values() -> None:
    rules = Exclusions([("", ["*.log"]), ("sub", ["x"])])
    assert Exclusions.from_wire(rules.to_wire()).groups == rules.groups


def test_a_pattern_that_is_too_long_is_refused_and_left_out_of_a_gitignore() -> None:
    with pytest.raises(UsageError, match="500"):
        Exclusions.of(["x" * 501])
    assert ignored_by("a\n" + "y" * 501 + "\nb") == ("a", "b")


def test_a_hostile_pattern_takes_no_time() -> None:
    """A matcher that goes back to each star would not end."""
    rules = Exclusions([("", ["*a" * 100 + "b", "**/" * 100 + "x"])])
    assert not rules.excludes("/".join(["a" * 200] * 100), is_directory=False)
