"""Find the lines of a file's text that match a regular expression, as Python's `re` finds them in each decoded line.

Two steps save time, and neither changes what is found. Bytes without a text that every match contains are not decoded.
And a whole text is searched at once for the next line to look at, unless the expression might miss a line so.
"""

import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from toolcell_tools.failures import ToolFailure

__all__ = ["Line", "Searcher"]

LINE_CHARS = 500
_SPECIAL = re.compile(r"[.^$*+?{}\[\]()|\\]")
_BY_LINE = re.compile(r"\(\?(?!:)|\[\^|\\[AZSWD]|[*+?}]\+")
"""In an expression: what looks beyond a line's end, takes more than the line and gives nothing back, or mostly matches
line ends, so that each search may go to the end of the text."""
_PART = 262_144
"""Characters that are split into lines at a time."""


class Line(NamedTuple):
    """A line that matches: its number, and where it lies in the file's text."""

    file: str
    number: int
    start: int
    end: int
    context: int

    def text(self) -> str:
        """The line's text, cut after 500 characters."""
        return _shown(self.file[self.start : self.end])

    def around(self) -> dict[str, object]:
        """The lines `before` and `after` it, if any were asked for."""
        if not self.context:
            return {}
        before: list[str] = []
        at = self.start
        while at > 0 and len(before) < self.context:
            above = self.file.rfind("\n", 0, at - 1) + 1
            before.insert(0, _shown(self.file[above : at - 1]))
            at = above
        after: list[str] = []
        at = self.end + 1
        while at < len(self.file) and len(after) < self.context:
            end = _end_of_line(self.file, at)
            after.append(_shown(self.file[at:end]))
            at = end + 1
        return {"before": before, "after": after}


class Searcher:
    """A compiled expression, and a text that every match contains."""

    def __init__(self, source: str, needed: str, *, ignore_case: bool, context: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FutureWarning of a set that contains a bracket
            flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
            self._search = self._search_ascii = re.compile(source, flags).search
            self._at_once = _BY_LINE.search(source) is None
            if self._at_once and source.isascii() and "\\s" not in source:  # \x1c is a space in Unicode alone
                self._search_ascii = re.compile(source, flags | re.ASCII).search  # takes half the time for \w
        self._ignores_case = ignore_case
        if "\ufffd" in needed or (ignore_case and not needed.isascii()):  # U+017F is a lower-case S
            needed = ""
        self._needed = (needed.lower() if ignore_case else needed).encode(errors="surrogatepass")
        self._context = context

    @classmethod
    def of(cls, pattern: str, *, ignore_case: bool = False, literal: bool = False, context: int = 0) -> "Searcher":
        """Compile the pattern. Raises ToolFailure if it is not a regular expression."""
        if pattern.startswith("(?i)") and not literal:
            pattern, ignore_case = pattern[4:], True
        needed = pattern if literal else needed_text(pattern)
        try:
            return cls(re.escape(pattern) if literal else pattern, needed, ignore_case=ignore_case, context=context)
        except (re.error, OverflowError, RecursionError) as error:
            place = f" at character {error.pos + 1}" if isinstance(error, re.error) and error.pos is not None else ""
            said = error.msg if isinstance(error, re.error) else error
            raise ToolFailure(
                f"{pattern!r} is not a regular expression: {said}{place}. Set literal to search for text."
            ) from error

    def may_find(self, data: bytes) -> bool:
        """Whether the text that every match contains is there."""
        if self._ignores_case:
            return not self._needed or not data.isascii() or self._needed in data.lower()
        return self._needed in data

    def lines(self, data: bytes) -> Iterator[Line]:
        """The lines that match. A byte that is not UTF-8 is U+FFFD, and a byte order mark is no part of a line."""
        text = data.decode(errors="replace").removeprefix("\ufeff")
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        number, counted = 1, 0
        for begin, end in self._from_match_to_match(text) if self._at_once else self._line_by_line(text, 0):
            number += text.count("\n", counted, begin)
            counted = begin
            yield Line(text, number, begin, end, self._context)

    def _from_match_to_match(self, text: str) -> Iterator[tuple[int, int]]:
        """Where each line that matches begins and ends."""
        search = self._search_ascii if text.isascii() else self._search
        at = 0
        while at < len(text):
            found = search(text, at)
            if found is None:
                return
            begin = text.rfind("\n", 0, found.start()) + 1
            end = _end_of_line(text, begin)
            if found.end() > end:  # the next searches may extend as far, or farther
                yield from self._line_by_line(text, begin)
                return
            if begin < len(text) and search(text[begin:end]):
                yield begin, end
            at = end + 1

    def _line_by_line(self, text: str, at: int) -> Iterator[tuple[int, int]]:
        """As `_from_match_to_match`, for the line that begins at `at` and those after it."""
        while at < len(text):
            stop = len(text) - text.endswith("\n")
            if stop - at > _PART:
                stop = text.rfind("\n", at, at + _PART)
                stop = stop if stop >= 0 else _end_of_line(text, at + _PART)
            for line in text[at:stop].split("\n"):
                if self._search(line):
                    yield at, at + len(line)
                at += len(line) + 1


def needed_text(pattern: str) -> str:
    """The longest text that each match of the expression contains; "" if a quick look does not tell."""
    if "|" in pattern or "(?" in pattern or "(" in pattern or "[" in pattern or "{" in pattern:
        return ""
    longest, run, at = "", "", 0
    while at < len(pattern):
        character = pattern[at]
        following = pattern[at + 1 : at + 2]
        if character == "\\" and following.isalnum() and following not in "wWdDsSbBAZ":
            return ""  # such as \\x41
        if character == "\\" or _SPECIAL.match(character):
            longest, run = max(longest, run, key=len), ""
            at += 2 if character == "\\" else 1
            continue
        if following in {"*", "?"}:  # the character may be absent
            longest, run = max(longest, run, key=len), ""
        else:
            run += character
        at += 1
    return max(longest, run, key=len)


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _shown(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} [… {len(line) - LINE_CHARS:,} more characters …]"
