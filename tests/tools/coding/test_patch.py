"""Reading patches of both formats."""

import time
from contextlib import suppress

import pytest

from toolcell_tools.coding.patch import FilePatch, parsed
from toolcell_tools.failures import ToolFailure

BLANK = " "
MARKED = f"""Some words before it.
*** Begin Patch
*** Add File: new.txt
+one
+
+two
*** Update File: src/a.py
*** Move to: src/b.py
@@ class A:
@@     def f(self):
-        return 1
+        return 2
{BLANK}
@@
-last
+end
*** End of File

*** Delete File: old.txt
*** End Patch
"""
UNIFIED = """diff --git a/src/a.py b/src/a.py
index 1234567..89abcde 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,3 @@ class A:
 one
-two
+2

-- dashes
+- dashes
@@ -9 +9,2 @@
 nine
+ten
\\ No newline at end of file
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+new
--- a/old.txt\t2026-01-01
+++ /dev/null
@@ -1 +0,0 @@
-old
"""


def shape(patch: FilePatch) -> tuple[str, str, list[str]]:
    """Names, and the lines of all hunks with their signs."""
    return patch.old, patch.new, [f"{sign}{text}" for hunk in patch.hunks for sign, text in hunk.lines]


def test_a_marked_patch_adds_updates_moves_and_deletes() -> None:
    added, updated, deleted = parsed(MARKED)
    assert shape(added) == ("", "new.txt", ["+one\n", "+\n", "+two\n"])
    lines = ["-        return 1\n", "+        return 2\n", " \n", "-last\n", "+end\n"]
    assert shape(updated) == ("src/a.py", "src/b.py", lines)
    assert [(hunk.anchors, hunk.at_end) for hunk in updated.hunks] == [
        (("class A:", "def f(self):"), False),
        ((), True),
    ]
    assert shape(deleted) == ("old.txt", "", [])


def test_a_unified_diff_is_read_as_patch_reads_it() -> None:
    changed, added, removed = parsed(UNIFIED)
    lines = [" one\n", "-two\n", "+2\n", " \n", "-- dashes\n", "+- dashes\n", " nine\n", "+ten"]
    assert shape(changed) == ("src/a.py", "src/a.py", lines)
    assert [(hunk.new_start, hunk.counted) for hunk in changed.hunks] == [(1, False), (9, True)]
    assert shape(added) == ("", "new.txt", ["+new\n"])
    assert shape(removed) == ("old.txt", "", ["-old\n"])


def test_removed_lines_that_begin_with_dashes_are_no_header() -> None:
    (changed,) = parsed("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n-b\n+++ b/y\n+c\n")
    assert shape(changed) == ("x", "x", ["--- a/y\n", "-b\n", "+++ b/y\n", "+c\n"])


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("", "this is no patch"),
        ("print(1)", "this is no patch"),
        ("*** Begin Patch\n*** End Patch", "changes no file"),
        ("*** Begin Patch\n*** Update File: a\n@@\n-x", "is missing"),
        ("*** Begin Patch\nhello\n*** End Patch", "line 2 of the patch"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "begins with '\\+'"),
        ("*** Begin Patch\n*** Update File: a\n@@\nxyz\n*** End Patch", "begins with ' ', '-' or '\\+'"),
        ("*** Begin Patch\n*** Update File: a\n@@\n*** End Patch", "a hunk has lines"),
        ("*** Begin Patch\n*** Delete File: a\n*** Delete File: a\n*** End Patch", "twice"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "the update of 'a' has no hunk"),
        ("diff --git a/.git/x b/.git/x\nnew file mode 100644\n", "a path that git does not have"),
        ("diff --git a/../x b/../x\nnew file mode 100644\n", "a path that git does not have"),
        ("--- a/x\nhello", "changes no file"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n a\n", "no line that begins with '-' or '\\+'"),
        ("diff --cc x\n--- a/x\n+++ b/x\n@@@ -1 -1 +1 @@@\n--a\n++b\n", "combined diff"),
        ("diff --git a/x b/x\nindex 1..2 100644\nBinary files a/x and b/x differ\n", "'x' is binary"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\nBinary files a/y and b/y differ\n", "a binary file"),
        ("diff --git a/x b/x\nnew file mode 120000\n", "'x' is a symbolic link"),
        ("diff --git a/x b/x\nindex 1..2 160000\n--- a/x\n+++ b/x\n", "'x' is a submodule"),
        ("diff --git x x\n--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n", "has no name"),
        ("diff --git a/x b/x\nindex 1..2 100644\n", "has a header, and no change"),
        ("--- a/x\n+++ b/x\nhello", "begins with '@@'"),
    ],
)
def test_what_is_no_patch_is_refused_with_its_line(patch: str, why: str) -> None:
    with pytest.raises(ToolFailure, match=why):
        parsed(patch)


@pytest.mark.parametrize(
    "patch",
    [
        "*** Begin Patch\n" + "".join(f"*** Add File: {number}\n+x\n" for number in range(30_000)) + "*** End Patch",
        "diff --git " + "a " * 200_000 + "\nnew file mode 100644\n",
    ],
    ids=["files", "name"],
)
def test_the_time_to_read_a_patch_does_not_grow_with_the_square_of_its_length(patch: str) -> None:
    started = time.process_time()
    with suppress(ToolFailure):
        parsed(patch)
    assert time.process_time() - started < 2
