"""Read a patch in either of its formats: that of `*** Begin Patch`, or a unified diff. It names files, each with hunks
of lines that are kept, removed and added.

Of a `git diff`, the header of each file says what `git apply` does with it: names (C-quoted or not, one leading
component stripped), new, deleted, renamed and copied files, modes. A hunk has as many lines as its header says, so a
removed line "-- x" is no header. A model counts badly: where the count is wrong, a hunk ends at the first line that
cannot belong to it, and its place is looked for.

Source: git's apply.c (parse_git_diff_header, parse_fragment), and git-diff(1), "Generating patch text with -p".
"""

import re
from collections import Counter
from typing import NamedTuple

from toolcell_tools.failures import ToolFailure

__all__ = ["FilePatch", "Hunk", "parsed"]

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
_END_OF_FILE = "*** End of File"
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_KEYS = (
    "--- ", "+++ ", "old mode ", "new mode ", "new file mode ", "deleted file mode ", "copy from ", "copy to ",
    "rename from ", "rename to ", "similarity index ", "dissimilarity index ", "index ",
)  # fmt: skip
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPED = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}
_NAME_CHARS = 4_100  # a path and its prefix: PATH_MAX, limits.h
_SIGNS = (" ", "-", "+")


class Hunk(NamedTuple):
    """Lines that are replaced. A line is a sign (" " kept, "-" removed, "+" added) and its text with its end, which is
    "" for a last line without newline."""

    lines: list[tuple[str, str]]
    anchors: tuple[str, ...] = ()
    """Lines before the hunk, each after the one before it."""
    old_start: int = -1
    new_start: int = 0
    """The line numbers that a unified diff gives; -1 and 0 without them."""
    counted: bool = False
    """Whether the hunk has as many lines as its header says."""
    at_end: bool = False
    """Whether the old lines are the last ones of the file."""

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "-"]


class FilePatch(NamedTuple):
    """A file that the patch adds (`old` is ""), changes, moves, copies or removes (`new` is "")."""

    old: str
    new: str
    hunks: list[Hunk]
    git: bool = False
    """Whether it comes from `git diff`. It is then applied exactly as `git apply` does it."""
    copy: bool = False
    executable: bool | None = None
    """Sets or clears the execute bits; None leaves them."""


class _PatchLines:
    """The lines of a patch without their "\\n", and the one that is read next."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at: int = 0

    @property
    def line(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    @property
    def text(self) -> str:
        """The line, or "" at the end of the patch."""
        return self.line or ""

    def refused(self, why: str) -> ToolFailure:
        shown = (self.line or "the end of the patch")[:80]
        return ToolFailure(f"line {self.at + 1} of the patch, {shown!r}: {why}", {"line": self.at + 1})


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
            changes = _Unified(lines, rewritten=rewritten).files()
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


class _Marked(_PatchLines):
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


class _Unified(_PatchLines):
    """A unified diff, as `diff -u` and `git diff` write it. `rewritten` says that its line ends were all replaced."""

    def __init__(self, lines: list[str], *, rewritten: bool = False) -> None:
        super().__init__(lines)
        self._git = not rewritten

    def files(self) -> list[FilePatch]:
        files: list[FilePatch] = []
        between = False  # in a commit message or the like, which may have lines of any kind
        while self.line is not None:
            if self.line.startswith("diff --git "):
                files.append(self._git_file())
                between = False
            elif self._is_name(self.at):
                files.append(self._plain_file())
                between = False
            elif self.line.startswith(("diff --cc ", "diff --combined ", "@@@ ")):
                raise self.refused("this is a combined diff of a merge; make a diff against one parent")
            elif not between and self.line.startswith("Binary files ") and self.line.endswith(" differ"):
                raise self.refused("this is a change of a binary file; patches change text only")
            elif files and not between and self._is_hunk_line():
                raise self.refused("a file begins with 'diff --git', or with '--- ' and '+++ '")
            else:
                between = between or self.line.strip() != ""
                self.at += 1
        return files

    def _is_hunk_line(self) -> bool:
        """Whether the line can only be of a hunk. A mail ends with "-- " and git's version; "---" is in its head."""
        if not self.text.startswith((*_SIGNS, "@@")) or self.text == "---" or self._is_name(self.at):
            return False
        following = "".join(self.lines[self.at + 1 : self.at + 2])
        return self.text.rstrip() != "--" or following.startswith((*_SIGNS, "@@"))

    def _is_name(self, at: int) -> bool:
        return self.lines[at].startswith("--- ") and "".join(self.lines[at + 1 : at + 2]).startswith("+++ ")

    def _plain_file(self) -> FilePatch:
        old, new = self._plain_name("a/"), self._plain_name("b/")
        hunks = self._hunks()
        if not hunks:
            raise self.refused("a hunk begins with '@@'")
        return FilePatch(old, new, hunks)

    def _plain_name(self, prefix: str) -> str:
        """The path in a header; "" for /dev/null."""
        text = self.text[4:]
        path = self._unquoted(text)[0] if text.startswith('"') else text.split("\t")[0].strip()
        self.at += 1
        return "" if path == "/dev/null" else path.removeprefix(prefix)

    def _git_file(self) -> FilePatch:
        both = self._same_name(self.text.removeprefix("diff --git ").removesuffix("\r"))
        self.at += 1
        said: dict[str, str] = {}
        while key := next((key for key in _KEYS if self.text.startswith(key)), ""):
            said[key] = self.text.removeprefix(key).removesuffix("\r")
            self.at += 1
        old = self._moved(said, "rename from ", "copy from ") or self._stripped(said.get("--- ")) or both
        new = self._moved(said, "rename to ", "copy to ") or self._stripped(said.get("+++ ")) or both
        self._refuse_what_is_no_text(said, new or old)
        if "new file mode " in said:
            old = ""
        if "deleted file mode " in said:
            new = ""
        hunks = self._hunks()
        if not (hunks or {"new file mode ", "deleted file mode ", "rename to ", "copy to ", "new mode "} & said.keys()):
            raise self.refused(f"{new!r} has a header, and no change")
        for name, header, absent in ((old, "--- ", "new file mode "), (new, "+++ ", "deleted file mode ")):
            if not name and (absent not in said or not (old or new)):
                raise self.refused(f"the file before it has no name: {header!r} is missing, or 'a/' and 'b/' in it")
            if any(part in {"", ".", ".."} or part.lower() == ".git" for part in name.split("/") if name):
                raise self.refused(f"{name!r} is a path that git does not have")
            if name and self._stripped(said.get(header)) not in {"", name}:
                raise self.refused(f"the file before it has two names, {name!r} and the one after {header!r}")
        mode = said.get("new mode ") or said.get("new file mode ")
        executable = None if mode is None else bool(int(mode, 8) & 0o100)
        return FilePatch(old, new, hunks, self._git, "copy to " in said, executable)

    def _refuse_what_is_no_text(self, said: dict[str, str], name: str) -> None:
        modes = [said[key] for key in said if key.endswith("mode ")] + said.get("index ", "").split(" ")[1:]
        for mode in modes:
            if mode.startswith("120"):
                raise self.refused(f"{name!r} is a symbolic link; patches change regular files only")
            if mode.startswith("160"):
                raise self.refused(f"{name!r} is a submodule; patches change regular files only")
            if not re.fullmatch(r"100[0-7]{3}", mode):
                raise self.refused(f"{name!r} has the mode {mode!r}, which is not that of a regular file")
        if self.text.startswith(("GIT binary patch", "Binary files ")):
            raise self.refused(f"{name!r} is binary; patches change text only")

    def _moved(self, said: dict[str, str], *keys: str) -> str:
        text = next((said[key] for key in keys if key in said), "")
        return self._unquoted(text)[0] if text.startswith('"') else text

    def _stripped(self, text: str | None) -> str:
        """The path of a "--- " or "+++ " line without its first component; "" for none and for /dev/null."""
        if text is None:
            return ""
        name = self._unquoted(text)[0] if text.startswith('"') else text.split("\t")[0]
        return "" if name == "/dev/null" else name.partition("/")[2]

    def _same_name(self, names: str) -> str:
        """The path that both names after "diff --git" have; "" if they differ."""
        if names.startswith('"') or names.endswith('"'):
            if names.startswith('"'):
                first, rest = self._unquoted(names)
            else:
                first, _, rest = names.partition(' "')
                rest = f' "{rest}'
            second = self._unquoted(rest[1:])[0] if rest.startswith(' "') else rest[1:]
            pairs = iter([(first, second)])
        elif len(names) > 2 * _NAME_CHARS:
            return ""
        else:
            pairs = ((names[:at], names[at + 1 :]) for at, sign in enumerate(names) if sign == " ")
        same = (one.partition("/")[2] for one, other in pairs if one.partition("/")[2] == other.partition("/")[2])
        return next(same, "")

    def _unquoted(self, text: str) -> tuple[str, str]:
        """The path that a C-quoted name at the start of `text` means, and the rest of `text`."""
        found = _QUOTED.match(text)
        if found is None:
            raise self.refused("a quoted name does not end")
        raw = _ESCAPE.sub(lambda one: _byte(one[1]), found[1].encode())
        try:
            return raw.decode(), text[found.end() :]
        except UnicodeDecodeError:
            raise self.refused("a name is not UTF-8; such files cannot be patched") from None

    def _hunks(self) -> list[Hunk]:
        hunks: list[Hunk] = []
        while self.text.startswith("@@") and not self.text.startswith("@@@"):
            header = _HUNK.match(self.text)
            self.at += 1
            if header is None:
                hunks.append(Hunk(self._uncounted()))
                continue
            old_start, new_start = int(header[1]), int(header[3])
            start = self.at
            lines = self._counted(int(header[2] or 1), int(header[4] or 1))
            if lines is None:
                self.at = start
                hunks.append(Hunk(self._uncounted(), (), old_start, new_start))
            else:
                hunks.append(Hunk(lines, (), old_start, new_start, counted=True))
            if not any(sign in "-+" for sign, _ in hunks[-1].lines):
                raise self.refused("the hunk before it has no line that begins with '-' or '+'")
        return hunks

    def _counted(self, old: int, new: int) -> list[tuple[str, str]] | None:
        """As many lines as the header says; None if there are others."""
        lines: list[tuple[str, str]] = []
        while old > 0 or new > 0 or self.text.startswith("\\ "):
            sign = " " if self.line == "" else self.text[:1]  # newer GNU diff, an empty context line
            if sign == "\\" and lines:  # \ No newline at end of file
                lines[-1] = lines[-1][0], lines[-1][1].removesuffix("\n")
            elif sign in _SIGNS:
                old -= sign != "+"
                new -= sign != "-"
                lines.append((sign, f"{self.text[1:]}\n"))
            else:
                return None
            self.at += 1
        more = self._is_hunk_line() and not self.text.startswith("@@")
        return None if old or new or more else lines

    def _uncounted(self) -> list[tuple[str, str]]:
        lines: list[tuple[str, str]] = []
        while self.line is not None and not self.line.startswith(("@@", "diff --git ")) and not self._is_name(self.at):
            sign, text = self.line[:1], self.line[1:]
            if sign == "\\" and lines:
                lines[-1] = lines[-1][0], lines[-1][1].removesuffix("\n")
            elif sign in _SIGNS:
                lines.append((sign, f"{text}\n"))
            elif not sign and self._has_more():  # a blank line whose space was lost
                lines.append((" ", "\n"))
            elif sign:
                raise self.refused("a line of a hunk begins with ' ', '-' or '+'")
            self.at += 1
        return lines

    def _has_more(self) -> bool:
        """Whether lines of the same hunk follow."""
        following = next((at for at in range(self.at + 1, len(self.lines)) if self.lines[at]), None)
        return following is not None and self.lines[following].startswith(_SIGNS) and not self._is_name(following)


def _byte(escape: bytes) -> bytes:
    if len(escape) == 3:
        return bytes([int(escape, 8) & 0xFF])
    return bytes([_ESCAPED[escape]]) if escape in _ESCAPED else escape
