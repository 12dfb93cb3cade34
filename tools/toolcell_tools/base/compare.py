"""Compare texts by lines: the unified diff of a change, without comparing whole files where its places are known; and
the lines of a text that are most like other lines, to say why those were not found."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from difflib import SequenceMatcher, unified_diff
from itertools import islice
from typing import NamedTuple

from toolcell_tools.text_file import lines_of, without_surrogates

__all__ = [
    "Nearest",
    "Replacement",
    "bounded",
    "diff_of_replacements",
    "diff_of_texts",
    "line_number",
    "nearest",
]

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


_SEARCHED_LINES = 5_000
_COMMON = 100  # a line in more places, such as "}", says little of where the wanted lines are
_COMPARED_CHARS = 200
_COMPARED_FULLY = 100  # lines; to compare two that repeat themselves takes 5 ms
_LEAST_LIKE = 0.5
_SHOWN_CHARS = 200


class Nearest(NamedTuple):
    """The lines of a file that are most like the wanted ones: the number of the first, and the lines that differ."""

    first: int
    differing: list[tuple[int, str, str]]
    """The number of a line, the line, and the wanted line."""

    def mismatch(self, whose: str) -> str:
        """The first line that differs, in words. `whose` names what has the wanted lines, such as "the patch"."""
        number, there, asked = self.differing[0]
        others = len(self.differing) - 1
        more = f" {others:,} more {'line differs' if others == 1 else 'lines differ'}." if others else ""
        return (
            f"The nearest text begins at line {self.first}. There, line {number} is {there[:_SHOWN_CHARS]!r}, and "
            f"{whose} has {asked[:_SHOWN_CHARS]!r}.{more}"
        )


def nearest(lines: list[str], wanted: list[str]) -> Nearest | None:
    """The run of lines that is most like the wanted one; None if less than half of it is alike. Of a long file, only
    the first 5,000 lines are compared."""
    compared = lines[:_SEARCHED_LINES]
    asked = [line.strip() for line in wanted]
    places: dict[str, list[int]] = {}
    for number, line in enumerate(compared):
        places.setdefault(line.strip(), []).append(number)
    votes: dict[int, int] = {}
    for offset, line in enumerate(asked[:_SEARCHED_LINES]):
        at = places.get(line, ())
        for number in at if line and len(at) <= _COMMON else ():
            votes[number - offset] = votes.get(number - offset, 0) + 1
    best = max(votes, key=lambda first: (votes[first], -first)) if votes else _most_like(compared, asked)
    if best is None:
        return None
    first = max(best, 0)
    pairs = [(number, lines[number] if number < len(lines) else "", wanted[number - best])
             for number in range(first, best + len(wanted))]  # fmt: skip
    return Nearest(first + 1, [(number + 1, there, asked) for number, there, asked in pairs if there != asked])


def _most_like(lines: list[str], asked: list[str]) -> int | None:
    """Where the first wanted line that is not blank is most like a line of the file."""
    offset, line = next(((offset, line) for offset, line in enumerate(asked) if line), (0, ""))
    if not line:
        return None
    matcher = SequenceMatcher(None, "", line[:_COMPARED_CHARS], autojunk=False)
    likely: dict[str, tuple[float, int]] = {}
    for number, there in enumerate(lines):
        start = there.strip()[:_COMPARED_CHARS]
        if start not in likely:
            matcher.set_seq1(start)
            likely[start] = matcher.quick_ratio(), -number  # no less than the ratio
    best, most = None, _LEAST_LIKE
    for start, (bound, number) in sorted(likely.items(), key=lambda one: one[1], reverse=True)[:_COMPARED_FULLY]:
        if bound <= most:
            break
        matcher.set_seq1(start)
        if (ratio := matcher.ratio()) > most:
            best, most = -number - offset, ratio
    return best
