"""Find the place of a hunk in a file, and explain where it differs if there is none."""

from collections.abc import Callable, Iterator
from itertools import islice

from toolcell_tools.base.nearest import nearest

from .patch import Hunk

__all__ = ["Misplaced", "applied"]

_MOST_PLACES = 10_000


class Misplaced(Exception):
    """A hunk has no place in the file. The message says where the file differs."""


def applied(text: str, hunks: list[Hunk], path: str) -> str:
    """The text after the hunks. Raises Misplaced for the first hunk that has no place, or several."""
    ends = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    has_newline = lines[-1] == ""
    if has_newline:
        lines.pop()
    at = 0
    for number, hunk in enumerate(hunks, 1):
        place = _place(lines, hunk, at, f"hunk {number} of {path!r}")
        lines[place : place + len(hunk.old)] = hunk.new
        at = place + len(hunk.new)
        if hunk.ends_without_newline and at == len(lines):
            has_newline = False
        elif at == len(lines):
            has_newline = has_newline or bool(hunk.new)
    return ends.join([*lines, ""] if has_newline and lines else lines)


def _place(lines: list[str], hunk: Hunk, at: int, name: str) -> int:
    start = at
    if hunk.anchor:
        anchored = _anchor(lines, hunk.anchor, at)
        if anchored is None and not hunk.near:  # the words behind a unified diff's numbers are only a hint
            raise Misplaced(f"{name}: no line after line {at} is {hunk.anchor!r}")
        start = at if anchored is None else anchored
    if not hunk.old:
        return min(max(hunk.near, start), len(lines)) if hunk.near or hunk.anchor else len(lines)
    if start < hunk.near and lines[hunk.near - 1 : hunk.near - 1 + len(hunk.old)] == hunk.old and not hunk.at_end:
        return hunk.near - 1
    for key in (str, str.rstrip, str.strip):
        least = max(start, len(lines) - len(hunk.old)) if hunk.at_end else start
        places = list(islice(_places(lines, hunk.old, key, least), _MOST_PLACES))
        if len(places) > 1 and hunk.near:
            return min(places, key=lambda place: abs(place + 1 - hunk.near))
        if len(places) > 1 and not hunk.anchor:
            found = ", ".join(str(place + 1) for place in places[:10])
            raise Misplaced(f"{name} fits at lines {found}; add lines around it, or '@@' with a line before it.")
        if places:
            return places[0]
    raise Misplaced(f"{name} does not fit. {explained(lines, hunk.old)}")


def _anchor(lines: list[str], anchor: str, at: int) -> int | None:
    """The line after the anchor."""
    return next((number + 1 for number in range(at, len(lines)) if lines[number].strip() == anchor), None)


def _places(lines: list[str], wanted: list[str], key: Callable[[str], str], start: int) -> Iterator[int]:
    """Where the wanted lines are, from the line `start` on, compared by `key`. To find one takes linear time."""
    text = "\n".join(["", *map(key, lines[start:]), ""])
    piece = "\n".join(["", *map(key, wanted), ""])
    place, counted, at = start, 0, text.find(piece)
    while at >= 0:
        place += text.count("\n", counted, at)
        counted = at
        yield place
        at = text.find(piece, at + 1)


def explained(lines: list[str], wanted: list[str]) -> str:
    """Where the lines are that are most like the wanted ones, and how they differ."""
    near = nearest(lines, wanted)
    if near is None:
        return "Nothing in the file is like it. Read the file again."
    if not near.differing:
        return f"Lines {near.first} and on are the same but for blanks. Read the file again."
    return f"{near.mismatch('the patch')} Read the file again."
