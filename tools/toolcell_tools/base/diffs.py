"""Make a unified diff of replacements at known places, without comparing whole files."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from typing import NamedTuple

from toolcell_tools.text_file import lines_of, without_surrogates

__all__ = ["Replacement", "bounded", "diff_of_replacements", "diff_of_texts", "line_number"]

_CONTEXT = 3  # lines, as diff -u
_HUNKS = 20
_DIFF_CHARS = 20_000
_COMPARED_LINES = 20_000  # for texts that share little, the time grows with the square of the lines
_HEADER = re.compile(r"@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@\n")


def line_number(text: str, place: int) -> int:
    """The line of the character at `place`, from 1."""
    return text.count("\n", 0, place) + 1


class Replacement(NamedTuple):
    """`new` takes the place of the characters from `start` to `end`."""

    start: int
    end: int
    new: str


def diff_of_replacements(path: str, text: str, replacements: list[Replacement]) -> str:
    """The unified diff of the replacements in `text`, which do not overlap and are in its order. It is cut after 20
    hunks or 20,000 characters."""
    starts = [0]
    for line in lines_of(text):
        starts.append(starts[-1] + len(line))
    out = [f"--- a/{path}", f"+++ b/{path}"]
    shift = 0
    groups = _groups(replacements, starts)
    for first, last, inside in groups[:_HUNKS]:
        begin, end = starts[first], starts[last]
        before = text[begin:end]
        after = _replaced(text, begin, end, inside)
        lines = len(lines_of(after))
        if last - first + lines > _COMPARED_LINES:
            out.append(f"[… {last - first:,} lines become {lines:,}; too many to compare …]")
        else:
            out.extend(_hunks(before, after, first, first + shift))
        shift += lines - (last - first)
    if len(groups) > _HUNKS:
        out.append(f"[… {len(groups) - _HUNKS:,} more hunks left out …]")
    return bounded(without_surrogates("\n".join(out)))


def diff_of_texts(
    path: str, before: str, after: str, *, most_lines: int = _COMPARED_LINES, most_chars: int = _DIFF_CHARS
) -> str:
    """The unified diff from `before` to `after`, with a note in place of what exceeds the bounds. Lines that both begin
    and end with are not compared."""
    old, new = lines_of(without_surrogates(before)), lines_of(without_surrogates(after))
    first, last = _common(old, new)
    head = [f"--- a/{path}", f"+++ b/{path}"]
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if len(old) + len(new) > most_lines:
        return "\n".join([*head, f"[… {len(old):,} lines become {len(new):,}; too many to compare …]"])
    return bounded("\n".join([*head, *_hunks("".join(old), "".join(new), first, first)]), most_chars)


def _common(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines both begin and end with, without the context that a diff shows."""
    most = min(len(old), len(new))
    first = next((at for at in range(most) if old[at] != new[at]), most)
    last = next((at for at in range(most - first) if old[-1 - at] != new[-1 - at]), most - first)
    return max(0, first - _CONTEXT), max(0, last - _CONTEXT)


def bounded(diff: str, most: int = _DIFF_CHARS) -> str:
    """The diff, cut after `most` characters."""
    return diff if len(diff) <= most else f"{diff[:most]}\n[… {len(diff) - most:,} more characters left out …]"


def _groups(replacements: list[Replacement], starts: list[int]) -> list[tuple[int, int, list[Replacement]]]:
    """Runs of lines `[first, last)` that do not touch, context lines included, and the replacements in each."""
    groups: list[tuple[int, int, list[Replacement]]] = []
    total = len(starts) - 1
    for replacement in replacements:
        first = max(0, bisect_right(starts, replacement.start) - 1 - _CONTEXT)
        last = min(total, bisect_right(starts, replacement.end - 1) + _CONTEXT)
        if groups and first <= groups[-1][1]:
            begin, _, inside = groups[-1]
            inside.append(replacement)
            groups[-1] = (begin, last, inside)
        else:
            groups.append((first, last, [replacement]))
    return groups


def _replaced(text: str, begin: int, end: int, replacements: list[Replacement]) -> str:
    parts: list[str] = []
    at = begin
    for replacement in replacements:
        parts += [text[at : replacement.start], replacement.new]
        at = replacement.end
    return "".join([*parts, text[at:end]])


def _hunks(before: str, after: str, old_shift: int, new_shift: int) -> Iterator[str]:
    """The hunks between two runs of whole lines, which begin after `old_shift` and `new_shift` lines of their files."""
    for line in islice(unified_diff(lines_of(before), lines_of(after), n=_CONTEXT), 2, None):
        found = _HEADER.fullmatch(line)
        if found is not None:
            yield f"@@ -{int(found[1]) + old_shift}{found[2]} +{int(found[3]) + new_shift}{found[4]} @@"
        else:
            yield line[:-1] if line.endswith("\n") else f"{line}\n\\ No newline at end of file"
