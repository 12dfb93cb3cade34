"""`apply_patch` against `git apply`, over repositories, changes and ways to write a diff that hypothesis makes."""

import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from toolcell.testing import context
from toolcell_tools import ToolFailure
from toolcell_tools.coding.apply_patch import apply_patch

Tree = dict[str, tuple[int, bytes]]
"""For each path its mode as git sees it, and its content."""

NAMES = ["a", "b.py", "d/a", "d/e/f", "d/e", "e/f g", "two  blanks", " é\t", 'q"uote', "back\\slash", "end ",
         "new\nline", "a b/a b", "日本"]  # fmt: skip
LINE = st.sampled_from(
    ["", "a", "b", "b", "c", "}", "  d", "\td", " ", "- x", "-- x", "-- a/a", "++ b/a", "+ y", "@@ -1 +1 @@", "@ z",
     "\\ No newline at end of file", "é", "\r", "a\rb", "diff --git a/a b/a", "*** Begin Patch", "*** End Patch"]
)  # fmt: skip
LINES = st.lists(st.tuples(LINE, st.sampled_from(["\n", "\n", "\n", "\r\n"])).map("".join), max_size=30)
TEXT = st.tuples(LINES, st.sampled_from(["", "", "", "z", "a"])).map(
    lambda parts: ("".join(parts[0]) + parts[1]).encode()
)
ODD = st.sampled_from([b"", b"", b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\r\n", b"\0", b"\xe9\n"])
CONTENT = st.one_of(*[TEXT] * 9, ODD)
FILE = st.tuples(st.sampled_from([*[0o100644] * 20, *[0o100755] * 8, 0o120000, 0o160000]), CONTENT)
OPTIONS = st.lists(
    st.sampled_from(["-M", "-C", "--find-copies-harder", "-B", "-U0", "-U1", "-U8", "--no-renames", "--binary",
                     "--full-index", "--patience", "-W", "--stat", "--raw", "-p", "-D"]),
    max_size=3, unique=True,
)  # fmt: skip


def disjoint(tree: Tree) -> bool:
    """No file where another one needs a directory."""
    return not any(other.startswith(f"{name}/") for name in tree for other in tree)


TREE = st.dictionaries(st.sampled_from(NAMES), FILE, max_size=6).filter(disjoint)


@st.composite
def changed(draw: st.DrawFn, before: Tree) -> Tree:
    after: Tree = {}
    for name, (mode, data) in before.items():
        fate = draw(st.sampled_from(["keep", "edit", "edit", "edit", "delete", "move", "copy", "mode", "new"]))
        if fate in {"edit", "move", "copy"} and draw(st.booleans()):
            lines = data.split(b"\n")
            at = draw(st.integers(0, len(lines)))
            new = [line.encode() for line in draw(st.lists(LINE, max_size=2))]
            lines[at : at + draw(st.integers(0, 2))] = new
            data = b"\n".join(lines)
        if fate == "mode":
            mode = 0o100644 if mode == 0o100755 else 0o100755
        if fate == "new":
            mode, data = draw(FILE)
        if fate in {"move", "copy"}:
            after[draw(st.sampled_from(NAMES))] = mode, data
        if fate not in {"delete", "move"}:
            after[name] = mode, data
    after.update(draw(st.dictionaries(st.sampled_from(NAMES), FILE, max_size=2)))
    assume(disjoint(after))
    return after


def written(tree: Tree, root: Path) -> None:
    for name, (mode, data) in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode == 0o120000:
            path.symlink_to("nowhere")  # whatever git has for its target
        elif mode == 0o160000:
            path.mkdir()
        else:
            path.write_bytes(data)
            path.chmod(mode & 0o777)


def tree_of(root: Path) -> Tree:
    found: Tree = {}
    for directory, below, names in os.walk(root):
        for name in [*names, *below]:
            path = Path(directory, name)
            mode = path.lstat().st_mode
            inside = str(path.relative_to(root))
            if stat.S_ISLNK(mode):
                found[inside] = 0o120000, os.readlink(path).encode()
            elif stat.S_ISREG(mode):
                found[inside] = (0o100755 if mode & 0o100 else 0o100644), path.read_bytes()
            else:
                found[f"{inside}/"] = 0, b""
    return found


def git(*arguments: str, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
                   "GIT_CEILING_DIRECTORIES": str(cwd.parent), "GIT_ATTR_NOSYSTEM": "1"}  # fmt: skip
    return subprocess.run(["git", *arguments], cwd=cwd, input=stdin, capture_output=True, env=environment, check=False)


def diff_between(before: Tree, after: Tree, options: list[str], repository: Path) -> bytes:
    stream: list[bytes] = []
    for branch, tree in ((b"before", before), (b"after", after)):
        stream.append(b"commit refs/heads/%s\ncommitter a <a> 0 +0000\ndata 0\ndeleteall\n" % branch)
        for name, (mode, data) in tree.items():
            path = b"".join(b"\\%03o" % byte for byte in name.encode())
            if mode == 0o160000:
                stream.append(b'M 160000 %040d "%s"\n' % (len(data) + 1, path))
            else:
                stream.append(b'M %o inline "%s"\ndata %d\n%s\n' % (mode, path, len(data), data))
    git("fast-import", "--quiet", "--force", cwd=repository, stdin=b"".join(stream))
    quote = f"core.quotePath={len(after) % 2}"
    return git("-c", quote, "diff", "-p", *options, "before", "after", cwd=repository).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    git("init", "--quiet", cwd=directory)
    return directory


@settings(max_examples=150)
@given(st.data())
def test_a_git_diff_gives_the_tree_that_git_apply_gives_or_changes_nothing(
    repository: Path, data: st.DataObject
) -> None:
    before = data.draw(TREE)
    after = data.draw(changed(before))
    options = data.draw(OPTIONS)
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        raw = diff_between(before, after, options, repository)
        assume(raw)
        try:
            diff = raw.decode()
        except UnicodeDecodeError:
            assume(False)
            return
        there = dict(before)
        for name in data.draw(st.lists(st.sampled_from([*before, "a"]), max_size=1)):  # the tree has moved on
            content = data.draw(st.sampled_from([b"top\n", b"", None, b"\n\n\n"]))
            mode, old = there.pop(name, (0o100644, b""))
            if content is not None:
                there[name] = mode, content + old
        assume(disjoint(there))
        theirs, ours = scratch / "theirs", scratch / "ours"
        for root in (theirs, ours):
            root.mkdir()
            written(there, root)
        applied = git("apply", cwd=theirs, stdin=raw)
        untouched = tree_of(ours)
        try:
            apply_patch(context("main", workspace=ours), patch=diff)
        except ToolFailure as failure:
            assert tree_of(ours) == untouched
            assert "No file was changed." in failure.message
            if applied.returncode == 0:
                limits = ("is binary", "a binary file", "symbolic link", "not UTF-8", "submodule")
                assert any(limit in failure.message for limit in limits), failure.message
        else:
            assert applied.returncode == 0, applied.stderr.decode()
            assert tree_of(ours) == tree_of(theirs)
