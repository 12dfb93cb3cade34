"""The rules of .gitignore files, compared with git's own decisions."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolcell_tools.coding.ignore import NOTHING, pattern_of
from toolcell_tools.coding.walk import walk
from toolcell_tools.workspace import WorkspaceReader

FILES = [
    "a.py", "a.pyc", "b.log", "build/x.o", "build/keep.txt", "src/a.py", "src/build/y.o", "src/gen/z.py",
    "src/deep/gen/w.py", "node_modules/m/index.js", "docs/a.md", "docs/x y.md", "foo/bar/baz", "foo/q/bar/baz",
    "#hash", "!bang", "star*name", "trailing ", "A1", "b2", "b-", "logs/debug.log", "logs/keep/debug.log", "a b", "]",
    "\\",
]  # fmt: skip
RULES = [
    "*.pyc", "build", "/build", "build/", "/build/*\n!/build/keep.txt", "*.log\n!b.log", "**/gen", "src/**/gen/",
    "foo/**/baz", "foo/**", "**", "*\n!*.py", "*\n!*/\n!*.py", "node_modules/", "docs/*.md", "docs/x\\ y.md",
    "\\#hash", "\\!bang", "star\\*name", "trailing\\ ", "trailing ", "[ab]*.py", "[!a]*.py",
    "[[:upper:]][[:digit:]]", "[a-b]2", "?.py", "# comment\n\n*.md", "/src/*\n!/src/a.py",
    "logs/**\n!logs/**/\n!logs/keep/debug.log", "a.py/", "b[-]", "[", "a[", "*.p[yz]c", "/", "!", "*/", "//a.py",
    "\\", "b\\", "[\\]]", "[[:upper:]", "b[[:punct:]]", "a[[:blank:]]b", "b[[:nope:]2]", "b[z-a2]", "[z-a]*", "[!z-a]2",
]  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "--quiet", root], check=True)
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def by_git(root: Path) -> set[str]:
    """The files that git does not ignore, though none is tracked."""
    listed = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return {name for name in listed.split("\0") if name and not name.endswith(".gitignore")}


def by_us(root: Path) -> set[str]:
    walked = walk(WorkspaceReader(root), ".")
    return {f"{each.path}{name}" for each in walked for name in each.files if name != ".gitignore"}


def test_the_rules_mean_what_they_mean_to_git(repository: Path) -> None:
    for rules in RULES:
        (repository / ".gitignore").write_text(rules + "\n")
        assert by_us(repository) == by_git(repository), rules


def test_rules_of_a_deeper_directory_come_first(repository: Path) -> None:
    (repository / ".gitignore").write_text("*.py\n")
    (repository / "src/.gitignore").write_text("!a.py\n/gen\nbuild/\n")
    try:
        assert by_us(repository) == by_git(repository)
        assert "src/a.py" in by_us(repository) and "a.py" not in by_us(repository)
        below = {f"{each.path}{name}" for each in walk(WorkspaceReader(repository), "src") for name in each.files}
        assert below - {"src/.gitignore"} == {name for name in by_git(repository) if name.startswith("src/")}
    finally:
        (repository / "src/.gitignore").unlink()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(alphabet="ab*?/![]\\ -^.#py", max_size=10), max_size=4))
@example(["?//"])
@example(["[?--]"])
@example([r"[\a]*"])
@example(["[!]"])
@example(["[^]", "[!]]", "[^]a]", "[]", "[]]"])
def test_any_rules_leave_out_what_git_leaves_out(repository: Path, rules: list[str]) -> None:
    (repository / ".gitignore").write_text("\n".join(rules) + "\n")
    assert by_us(repository) == by_git(repository), rules


def test_a_glob_is_a_regular_expression_of_whole_paths() -> None:
    matched = re.compile(pattern_of("src/**/*.py"))
    assert all(matched.fullmatch(path) for path in ("src/a.py", "src/b/c/.py"))
    assert not any(matched.fullmatch(path) for path in ("a.py", "src", "src/a.pyc", "asrc/a.py"))
    assert NOTHING.below("# only a comment\n", "") is NOTHING


@pytest.mark.parametrize(
    ("glob", "path"),
    [("*a" * 30 + "*b", "a" * 250), ("**/a/**/a/**/a/**/a/**/a/**/b", "a/" * 500 + "a"), ("**/**/**/b", "a/" * 500)],
)
def test_a_glob_of_many_stars_is_matched_in_little_time(glob: str, path: str) -> None:
    """A matcher that goes back to each star would not end."""
    assert not re.compile(pattern_of(glob)).fullmatch(path)


@pytest.mark.parametrize(
    "line",
    [
        "[a" * 1_000_000,
        "[[:a" * 1_000_000,
        "a" + " " * 2_000_000 + "b",
        "*a" * 1_000_000,
        "[]" * 1_000_000 + "[",
        "\\" * 1_999_999,
    ],
    ids=lambda line: line[:4],
)
def test_a_long_broken_rule_takes_no_time(line: str) -> None:
    """In quadratic time, this would take an hour."""
    rules = NOTHING.below(f"{line}\n*.log\n", "")
    assert rules.has("a.log", "a.log") and not rules.has("a.py", "a.py")


def test_a_rule_with_an_open_bracket_matches_nothing_as_in_git() -> None:
    rules = NOTHING.below("[\na[\n[a][b\n", "")
    assert not any(rules.has(name, name) for name in ("[", "a[", "a[b"))
    assert pattern_of("[" * 100_000) and pattern_of("[[:a:]" * 20_000) and pattern_of("[\\]" * 30_000)
    assert re.fullmatch(pattern_of("a[1].t[t"), "a1.t[t")


def test_a_tab_at_the_end_belongs_to_the_pattern_and_a_space_does_not() -> None:
    rules = NOTHING.below("tab\t\nspace \n", "")
    assert not rules.has("tab", "tab") and rules.has("tab\t", "tab\t") and rules.has("space", "space")
