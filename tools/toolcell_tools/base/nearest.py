"""Find the lines of a text that are most like other lines, to say why those were not found."""

from difflib import SequenceMatcher
from typing import NamedTuple

__all__ = ["Nearest", "nearest"]

_COMPARED_LINES = 5_000
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
    compared = lines[:_COMPARED_LINES]
    asked = [line.strip() for line in wanted]
    places: dict[str, list[int]] = {}
    for number, line in enumerate(compared):
        places.setdefault(line.strip(), []).append(number)
    votes: dict[int, int] = {}
    for offset, line in enumerate(asked[:_COMPARED_LINES]):
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
