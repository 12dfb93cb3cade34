"""What a patch says, in either of its formats: files, each with hunks of lines that are kept, removed and added."""

from typing import NamedTuple

from toolcell_tools.failures import ToolFailure

__all__ = ["FilePatch", "Hunk", "PatchLines"]


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


class PatchLines:
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
