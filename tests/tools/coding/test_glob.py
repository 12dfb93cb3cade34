"""The files that globs find, compared with pathlib's."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcell import coding_tools
from toolcell.testing import context
from toolcell_tools.coding.glob import compiled_glob
from toolcell_tools.coding.walk import walk
from toolcell_tools.failures import ToolFailure
from toolcell_tools.workspace import WorkspaceReader

FILES = [
    "a.py",
    "b.py",
    "é.py",
    "src/a.py",
    "src/.x",
    "src/sub/a.py",
    "src/sub/b.txt",
    "src/sub/src/c d.py",
    "x/[a].py",
]
NAMES = [
    "src",
    "sub",
    "x",
    "*",
    "a*",
    "?.py",
    "*.py",
    "[ab].py",
    "[!a]*",
    "[[]a].py",
    "**",
    "**",
    ".",
    "",
    "é.*",
    "* *",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace").resolve()
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("text\n")
    return root


def found(root: Path, pattern: str, path: str = ".") -> set[str]:
    workspace = WorkspaceReader(root)
    matches = compiled_glob(pattern, workspace, path).fullmatch
    every = (f"{directory.path}{name}" for directory in walk(workspace, path) for name in directory.files)
    return set(filter(matches, every))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from(["", "./", ".//", "ROOT/", "ROOT//", "ROOT/./"]),
    parts=st.lists(st.sampled_from(NAMES), max_size=3),
    last=st.sampled_from([name for name in NAMES if name not in ("**", ".", "")]),
    path=st.sampled_from([".", "src", "./src/", "src//sub", "ROOT/src", "x"]),
)
def test_a_glob_finds_the_files_that_pathlib_finds(
    root: Path, start: str, parts: list[str], last: str, path: str
) -> None:
    pattern = (start + "/".join([*parts, last])).replace("ROOT", str(root))
    path = path.replace("ROOT", str(root))
    if not start.startswith("ROOT") and pattern.startswith("/"):
        with pytest.raises(ToolFailure, match="is outside the workspace; use a pattern relative to the workspace"):
            found(root, pattern, path)
        return
    if start.startswith("ROOT"):
        expected = [
            each for each in root.glob(pattern[len(str(root)) :].lstrip("/")) if each.is_relative_to(root / path)
        ]
    else:
        expected = [*((root / path).glob(pattern) if "/" in pattern else (root / path).rglob(pattern))]
    assert found(root, pattern, path) == {str(each.relative_to(root)) for each in expected if each.is_file()}


@pytest.mark.parametrize("depth", [1, 2, 10])
@pytest.mark.parametrize("path", [".", "./src", "src//sub/", "ROOT", "ROOT/src/./sub", "src/../x"])
def test_list_shows_the_entries_that_pathlib_finds(root: Path, path: str, depth: int) -> None:
    (shows,) = (tool for tool in coding_tools() if tool.name == "list")
    start = root / path.replace("ROOT", str(root))
    answer = shows(context("main", workspace=root), path=str(start) if "ROOT" in path else path, depth=depth)
    start = start.resolve()
    expected = [each for each in start.rglob("*") if len(each.relative_to(start).parts) <= depth]
    kinds = {str(each.relative_to(root)): "directory" if each.is_dir() else "file" for each in expected}
    assert {entry["path"]: entry["kind"] for entry in answer.output["entries"]} == kinds


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("/etc/*.conf", "is outside the workspace; use a pattern relative to the workspace"),
        ("{a.py,/etc/passwd}", "'/etc/passwd' is outside the workspace"),
        ("ROOT-2/*", "is outside the workspace"),
        ("src/../*.py", "has '..'; name the directory by `path`"),
        ("src/", "is for directories; use one for files, such as 'src/**'"),
        ("./", "is for directories; use one for files, such as '**'"),
        ("ROOT", "is for directories"),
    ],
)
@pytest.mark.parametrize("name", ["glob", "grep"])
def test_a_glob_that_can_find_no_file_is_refused_with_the_reason(
    root: Path, name: str, pattern: str, says: str
) -> None:
    (searches,) = (tool for tool in coding_tools() if tool.name == name)
    asked = {"pattern": pattern.replace("ROOT", str(root))}
    if name == "grep":
        asked = {"pattern": "x", "include": asked["pattern"]}
    with pytest.raises(ToolFailure) as failed:
        searches(context("main", workspace=root), **asked)
    assert says in failed.value.message
