"""Read a patch: the format of `*** Begin Patch`, or a unified diff.

Both become the same values: files, each with hunks of lines that are kept, removed and added. Line numbers of a unified
diff are not relied on, because models count badly; the lines are looked for.
"""

import re
from typing import NamedTuple

from toolcell_tools.failures import ToolFailure

__all__ = ["FileChange", "Hunk", "parsed"]

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
_END_OF_FILE = "*** End of File"
_HEADER = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@(.*)")
_HEAD = re.compile(r"(?:diff --git |index [0-9a-f]+\.\.|new file mode |deleted file mode |similarity index |rename )")


class Hunk(NamedTuple):
    """Lines that are replaced: `old` are those that must be there, `new` those that take their place. `anchor` is a
    line before them, "" if none is named; `near` is the line number that the patch gives, 0 if it gives none."""

    old: list[str]
    new: list[str]
    anchor: str = ""
    near: int = 0
    at_end: bool = False
    """Whether the old lines are the last ones of the file."""
    ends_without_newline: bool = False
    """Whether the new lines are the last ones, without a newline."""


class FileChange(NamedTuple):
    """A file that the patch adds (`old` is ""), changes, moves or removes (`new` is "")."""

    old: str
    new: str
    hunks: list[Hunk]


def parsed(patch: str) -> list[FileChange]:
    """The changes of a patch. Raises ToolFailure with the number of the line that cannot be read."""
    lines = patch.replace("\r\n", "\n").split("\n")
    if any(line.strip() == _BEGIN for line in lines):
        changes = _Marked(lines).files()
    elif any(line.startswith("--- ") for line in lines):
        changes = _Unified(lines).files()
    else:
        raise ToolFailure(f"this is no patch: it begins neither with {_BEGIN!r} nor with '--- a/path' and '+++ b/path'")
    if not changes:
        raise ToolFailure("the patch changes no file")
    paths = [change.old or change.new for change in changes]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ToolFailure(f"the patch has {twice!r} twice; put all its hunks below one header")
    return changes


class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at: int = 0

    @property
    def line(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def refused(self, why: str) -> ToolFailure:
        shown = (self.line or "the end of the patch")[:80]
        return ToolFailure(f"line {self.at + 1} of the patch, {shown!r}: {why}", {"line": self.at + 1})


class _Marked(_Lines):
    """A patch between `*** Begin Patch` and `*** End Patch`."""

    def files(self) -> list[FileChange]:
        while (self.line or "").strip() != _BEGIN:
            self.at += 1
        self.at += 1
        changes: list[FileChange] = []
        while self.line is not None and self.line.strip() != _END:
            if self.line.strip():
                changes.append(self._file(self.line))
            else:
                self.at += 1
        if self.line is None:
            raise self.refused(f"{_END!r} is missing")
        return changes

    def _file(self, header: str) -> FileChange:
        if header.startswith(_ADD):
            self.at += 1
            return FileChange("", header.removeprefix(_ADD).strip(), [Hunk([], self._added())])
        if header.startswith(_DELETE):
            self.at += 1
            return FileChange(header.removeprefix(_DELETE).strip(), "", [])
        if not header.startswith(_UPDATE):
            raise self.refused(f"a file begins with {_ADD!r}, {_UPDATE!r} or {_DELETE!r}")
        old = new = header.removeprefix(_UPDATE).strip()
        self.at += 1
        if (self.line or "").startswith(_MOVE):
            new = (self.line or "").removeprefix(_MOVE).strip()
            self.at += 1
        return FileChange(old, new, self._hunks())

    def _added(self) -> list[str]:
        added: list[str] = []
        while self.line is not None and not self.line.startswith("*** "):
            if not self.line.startswith("+"):
                if not self.line.strip():  # a blank line between two files
                    self.at += 1
                    continue
                raise self.refused("each line of a new file begins with '+'")
            added.append(self.line[1:])
            self.at += 1
        return added

    def _hunks(self) -> list[Hunk]:
        hunks: list[Hunk] = []
        while self.line is not None and (not self.line.startswith("*** ") or self.line.strip() == _END_OF_FILE):
            anchor = ""
            while (self.line or "").startswith("@@"):
                anchor = (self.line or "")[2:].strip()
                self.at += 1
            old, new = self._body()
            at_end = (self.line or "").strip() == _END_OF_FILE
            self.at += at_end
            if not old and not new:
                if hunks and not anchor:  # blank lines before the next file
                    continue
                raise self.refused("a hunk has lines that begin with ' ', '-' or '+'")
            hunks.append(Hunk(old, new, anchor, at_end=at_end))
        return hunks

    def _body(self) -> tuple[list[str], list[str]]:
        old: list[str] = []
        new: list[str] = []
        while self.line is not None and not self.line.startswith(("@@", "*** ")):
            sign, text = self.line[:1], self.line[1:]
            if sign not in {"", " ", "-", "+"}:
                raise self.refused("a line of a hunk begins with ' ', '-' or '+'")
            if not sign and self._is_last_blank():
                self.at += 1
                continue
            if sign != "+":
                old.append(text)
            if sign != "-":
                new.append(text)
            self.at += 1
        return old, new

    def _is_last_blank(self) -> bool:
        """Whether only blank lines follow in this hunk: they lie between two hunks or files."""
        following = next((line for line in self.lines[self.at + 1 :] if line), _END)
        return following.startswith(("@@", "*** "))


class _Unified(_Lines):
    """A unified diff, as `diff -u` and `git diff` write it."""

    def files(self) -> list[FileChange]:
        changes: list[FileChange] = []
        while self.line is not None:
            if self.line.startswith("--- "):
                changes.append(self._file())
            elif changes and self.line.strip() and not _HEAD.match(self.line):
                raise self.refused("a file begins with '--- ' and '+++ '")
            else:
                self.at += 1
        return changes

    def _file(self) -> FileChange:
        old = _path(self.line or "", "a/")
        self.at += 1
        if not (self.line or "").startswith("+++ "):
            raise self.refused("'+++ ' comes after '--- '")
        new = _path(self.line or "", "b/")
        self.at += 1
        hunks: list[Hunk] = []
        while (self.line or "").startswith("@@"):
            header = _HEADER.match(self.line or "")
            self.at += 1
            hunks.append(self._hunk(int(header[1]) if header else 0, header[2].strip() if header else ""))
        if not hunks and old and new:
            raise self.refused("a hunk begins with '@@'")
        return FileChange(old, new, hunks)

    def _hunk(self, near: int, anchor: str) -> Hunk:
        old: list[str] = []
        new: list[str] = []
        last, without_newline = "", False
        while self.line is not None and not self.line.startswith(("@@", "--- ", "diff --git ")):
            sign, text = self.line[:1], self.line[1:]
            if sign == "\\":  # \ No newline at end of file
                without_newline = without_newline or last != "-"
            elif sign in {" ", "-", "+"}:
                if sign != "+":
                    old.append(text)
                if sign != "-":
                    new.append(text)
                last = sign
            elif sign == "" and self._has_more():  # a blank line whose space was lost
                old.append("")
                new.append("")
            elif sign:
                raise self.refused("a line of a hunk begins with ' ', '-' or '+'")
            self.at += 1
        return Hunk(old, new, anchor, near, ends_without_newline=without_newline)

    def _has_more(self) -> bool:
        """Whether lines of the same hunk follow."""
        following = next((line for line in self.lines[self.at + 1 :] if line), "")
        return following[:1] in {" ", "-", "+"} and not following.startswith("--- ")


def _path(line: str, prefix: str) -> str:
    """The path in a header of a unified diff; "" for /dev/null."""
    path = line[4:].split("\t")[0].strip()
    return "" if path == "/dev/null" else path.removeprefix(prefix)
