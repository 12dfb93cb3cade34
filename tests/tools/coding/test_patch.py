"""Reading patches of both formats."""

import pytest

from toolcell_tools.coding.patch import FileChange, Hunk, parsed
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


def test_a_marked_patch_adds_updates_moves_and_deletes() -> None:
    assert parsed(MARKED) == [
        FileChange("", "new.txt", [Hunk([], ["one", "", "two"])]),
        FileChange(
            "src/a.py",
            "src/b.py",
            [
                Hunk(["        return 1", ""], ["        return 2", ""], "def f(self):"),
                Hunk(["last"], ["end"], at_end=True),
            ],
        ),
        FileChange("old.txt", "", []),
    ]


def test_a_unified_diff_is_read_as_patch_reads_it() -> None:
    changed, added, removed = parsed(UNIFIED)
    assert (changed.old, changed.new) == ("src/a.py", "src/a.py")
    assert changed.hunks == [
        Hunk(["one", "two", "", "- dashes"], ["one", "2", "", "- dashes"], "class A:", 1),
        Hunk(["nine"], ["nine", "ten"], "", 9, ends_without_newline=True),
    ]
    assert (added.old, added.new, added.hunks[0].old, added.hunks[0].new) == ("", "new.txt", [], ["new"])
    assert (removed.old, removed.new) == ("old.txt", "")


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
        ("--- a/x\nhello", r"'\+\+\+ ' comes after"),
        ("--- a/x\n+++ b/x\nhello", "begins with '@@'"),
    ],
)
def test_what_is_no_patch_is_refused_with_its_line(patch: str, why: str) -> None:
    with pytest.raises(ToolFailure, match=why):
        parsed(patch)
