"""Find the lines of a file's bytes that match a regular expression, without decoding what does not match."""

import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from toolcell_tools.failures import ToolFailure

__all__ = ["Line", "Searcher"]

LINE_CHARS = 500
_SPECIAL = re.compile(r"[.^$*+?{}\[\]()|\\]")


class Line(NamedTuple):
    """A line that matches: its number, and where it lies in the file's bytes."""

    data: bytes
    number: int
    start: int
    end: int
    context: int

    def text(self) -> str:
        """The line's text, cut after 500 characters."""
        return _shown(self.data[self.start : self.end])

    def around(self) -> dict[str, object]:
        """The lines `before` and `after` it, if any were asked for."""
        if not self.context:
            return {}
        before: list[str] = []
        at = self.start
        while at > 0 and len(before) < self.context:
            above = self.data.rfind(b"\n", 0, at - 1) + 1
            before.insert(0, _shown(self.data[above : at - 1]))
            at = above
        after: list[str] = []
        at = self.end + 1
        while at < len(self.data) and len(after) < self.context:
            end = _end_of_line(self.data, at)
            after.append(_shown(self.data[at:end]))
            at = end + 1
        return {"before": before, "after": after}


class Searcher:
    """A compiled expression, and a text that every match contains."""

    def __init__(
        self, in_bytes: re.Pattern[bytes] | None, in_text: re.Pattern[str] | None, needed: bytes, context: int
    ) -> None:
        self._bytes = in_bytes
        self._text = in_text
        self._needed = needed
        self._has_ends = in_bytes is not None and b"$" in in_bytes.pattern
        self._context = context

    @classmethod
    def of(cls, pattern: str, *, ignore_case: bool = False, literal: bool = False, context: int = 0) -> "Searcher":
        """Compile the pattern. Letters beyond ASCII make it search decoded text, which is slower. Raises ToolFailure if
        it is not a regular expression."""
        flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
        needed = b"" if ignore_case else (pattern if literal else needed_text(pattern)).encode(errors="replace")
        source = re.escape(pattern) if literal else pattern
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # FutureWarning of a set that contains a bracket
                if pattern.isascii():
                    return cls(re.compile(source.encode(), flags), None, needed, context)
                return cls(None, re.compile(source, flags), needed, context)
        except re.error as error:
            place = f" at character {error.pos + 1}" if error.pos is not None else ""
            raise ToolFailure(
                f"{pattern!r} is not a regular expression: {error.msg}{place}. Set literal to search for text."
            ) from error

    def may_find(self, data: bytes) -> bool:
        """Whether the text that every match contains is there."""
        return not self._needed or self._needed in data

    def lines(self, data: bytes) -> Iterator[Line]:
        """The lines that match, each once. No match extends over the end of a line."""
        number, counted, at = 1, 0, 0
        line_by_line = self._has_ends and b"\r" in data  # `$` matches before \n only, and a line may end in \r\n
        while at <= len(data):
            start = (at if at < len(data) else -1) if line_by_line else self._next(data, at)
            if start < 0:
                return
            begin = data.rfind(b"\n", 0, start) + 1
            end = _end_of_line(data, start)
            at = end + 1
            if begin >= len(data):  # after the last line's end
                return
            if self._is_in(data[begin:end].removesuffix(b"\r")):
                number += data.count(b"\n", counted, begin)
                counted = begin
                yield Line(data, number, begin, end, self._context)

    def _next(self, data: bytes, at: int) -> int:
        """Where the next line that may match has a byte; -1 if there is none."""
        if self._bytes is not None:
            found = self._bytes.search(data, at)
            return -1 if found is None else found.start()
        return data.find(self._needed, at) if self._needed else at if at < len(data) else -1

    def _is_in(self, line: bytes) -> bool:
        if self._bytes is not None:
            return self._bytes.search(line) is not None
        assert self._text is not None
        return self._text.search(line.decode(errors="replace")) is not None


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


def _end_of_line(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _shown(line: bytes) -> str:
    text = line.removesuffix(b"\r").decode(errors="replace")
    return text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]} [… {len(text) - LINE_CHARS:,} more characters …]"
