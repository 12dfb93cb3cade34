"""Read a patch: the format of `*** Begin Patch`, or a unified diff (`unified.py`)."""

from collections import Counter

from toolcell_tools.failures import ToolFailure

from .hunks import FilePatch, Hunk, PatchLines
from .unified import Unified

__all__ = ["parsed"]

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
_END_OF_FILE = "*** End of File"


def parsed(patch: str) -> list[FilePatch]:
    """The changes of a patch. Raises ToolFailure with the number of the line that cannot be read.

    If all lines end in "\\r\\n", a program has converted the patch, so its line ends do not tell those of the files.
    """
    lines = patch.removesuffix("\n").split("\n")
    rewritten = all(line.endswith("\r") for line in lines[:-1]) and len(lines) > 1
    if rewritten:
        lines = [line.removesuffix("\r") for line in lines]
    for at, line in enumerate(lines):
        if line.strip() == _BEGIN and not line.startswith((" " + _BEGIN, "+", "-")):
            changes = _Marked(lines).files()
            break
        if line.startswith("diff --git ") or (line.startswith("--- ") and lines[at + 1 : at + 2]):
            changes = Unified(lines, rewritten=rewritten).files()
            break
    else:
        raise ToolFailure(
            f"this is no patch: it begins neither with {_BEGIN!r} nor with 'diff --git', nor with '--- a/path' and "
            "'+++ b/path'"
        )
    if not changes:
        raise ToolFailure("the patch changes no file")
    paths = [change.new or change.old for change in changes]
    twice = next((path for path, times in Counter(paths).items() if times > 1), None)
    if twice is not None:
        raise ToolFailure(f"the patch has {twice!r} twice; put all its hunks below one header")
    return changes


class _Marked(PatchLines):
    """A patch between `*** Begin Patch` and `*** End Patch`."""

    def files(self) -> list[FilePatch]:
        while self.text.strip() != _BEGIN:
            self.at += 1
        self.at += 1
        changes: list[FilePatch] = []
        while self.line is not None and self.line.strip() != _END:
            if self.line.strip():
                changes.append(self._file(self.line))
            else:
                self.at += 1
        if self.line is None:
            raise self.refused(f"{_END!r} is missing")
        return changes

    def _file(self, header: str) -> FilePatch:
        if header.startswith(_ADD):
            self.at += 1
            return FilePatch("", header.removeprefix(_ADD).strip(), [Hunk(self._added())])
        if header.startswith(_DELETE):
            self.at += 1
            return FilePatch(header.removeprefix(_DELETE).strip(), "", [])
        if not header.startswith(_UPDATE):
            raise self.refused(f"a file begins with {_ADD!r}, {_UPDATE!r} or {_DELETE!r}")
        old = new = header.removeprefix(_UPDATE).strip()
        self.at += 1
        if self.text.startswith(_MOVE):
            new = self.text.removeprefix(_MOVE).strip()
            self.at += 1
        hunks = self._hunks()
        if not hunks and new == old:
            raise self.refused(f"the update of {old!r} has no hunk")
        return FilePatch(old, new, hunks)

    def _added(self) -> list[tuple[str, str]]:
        added: list[tuple[str, str]] = []
        while self.line is not None and not self.line.startswith("*** "):
            if not self.line.startswith("+"):
                if not self.line.strip():  # a blank line between two files
                    self.at += 1
                    continue
                raise self.refused("each line of a new file begins with '+'")
            added.append(("+", f"{self.line[1:]}\n"))
            self.at += 1
        return added

    def _hunks(self) -> list[Hunk]:
        hunks: list[Hunk] = []
        while self.line is not None and (not self.line.startswith("*** ") or self.line.strip() == _END_OF_FILE):
            anchors: list[str] = []
            while self.text.startswith("@@"):
                anchors.append(self.text[2:].strip())
                self.at += 1
            anchors = [anchor for anchor in anchors if anchor]
            lines = self._body()
            at_end = self.text.strip() == _END_OF_FILE
            self.at += at_end
            if not lines:
                if hunks and not anchors:  # blank lines before the next file
                    continue
                raise self.refused("a hunk has lines that begin with ' ', '-' or '+'")
            hunks.append(Hunk(lines, tuple(anchors), at_end=at_end))
        return hunks

    def _body(self) -> list[tuple[str, str]]:
        lines: list[tuple[str, str]] = []
        while self.line is not None and not self.line.startswith(("@@", "*** ")):
            sign, text = self.line[:1], self.line[1:]
            if sign not in {"", " ", "-", "+"}:
                raise self.refused("a line of a hunk begins with ' ', '-' or '+'")
            if sign or not self._is_last_blank():
                lines.append((sign or " ", f"{text}\n"))
            self.at += 1
        return lines

    def _is_last_blank(self) -> bool:
        """Whether only blank lines follow in this hunk: they lie between two hunks or files."""
        following = next((line for line in self.lines[self.at + 1 :] if line), _END)
        return following.startswith(("@@", "*** "))
