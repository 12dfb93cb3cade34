"""Find the place of a hunk in a file, put it there, and explain where the file differs if there is none.

A hunk of a `git diff` is placed as `git apply` places it: its old lines must match byte for byte. Of several matches,
the one nearest to the hunk's line number is taken. A hunk without context before or after its changes must be at the
beginning or the end of the file.

Any other hunk was written by a model. The hunks are looked for in order: exactly, then without trailing blanks, then
without indentation. Line ends are ignored unless the hunk has "\r". The lines that a hunk keeps stay as they are in the
file. An added line takes the line end of the line that it replaces or follows, and the file's indentation.

Source: git's apply.c, find_pos and apply_one_fragment.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from toolcell_tools.base.compare import nearest
from toolcell_tools.text_file import BOM, content, end_of, lines_of

from .patch import Hunk

__all__ = ["Misplaced", "applied"]

_MOST_PLACES = 10_000
_Key = Callable[[str], str]


class Misplaced(Exception):
    """A hunk has no place in the file. The message says where the file differs."""


def applied(text: str, hunks: list[Hunk], path: str, *, git: bool = False) -> str:
    """The text after the hunks. Raises Misplaced for the first hunk that has no place, or several."""
    mark = BOM if text.startswith(BOM) and not any(BOM in line for hunk in hunks for _, line in hunk.lines) else ""
    if git:
        mark = ""
    file = _File(lines_of(text.removeprefix(mark)))
    for number, hunk in enumerate(hunks, 1):
        file.put(hunk, f"hunk {number} of {path!r}", git=git)
    return mark + "".join(file.lines)


class _File:
    """The lines of a file, and which of them are of a hunk that was applied."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._patched = [False] * len(lines)
        self._at = 0  # the line after the last hunk
        self._complete = not lines or end_of(lines[-1]) != ""

    def put(self, hunk: Hunk, name: str, *, git: bool) -> None:
        place = self._counted_place(hunk) if hunk.counted else None
        if place is not None:
            new = hunk.new
        elif git and hunk.counted:
            raise Misplaced(f"{name} does not fit. {self._mismatch(hunk)}")
        else:
            place = self._place(hunk, name)
            new = self._written(hunk, place, name)
        end = place + len(hunk.old)
        self.lines[place:end] = new
        self._patched[place:end] = [True] * len(new)
        self._at = place + len(new)

    def _counted_place(self, hunk: Hunk) -> int | None:
        """Where `git apply` puts the hunk."""
        old = hunk.old
        last = len(self.lines) - len(old)
        if hunk.old_start <= 1:
            places = [0] if last == 0 or hunk.lines[-1][0] == " " else []
        elif hunk.lines[-1][0] != " ":
            places = [last]
        else:
            near = min(max(hunk.new_start - 1, 0), len(self.lines))
            if self._is_at(near, old):
                return near
            found = _places(self.lines, old, _without_newline, 0)
            places = sorted(found, key=lambda place: (abs(place - near), place < near))
        return next((place for place in places if place >= 0 and self._is_at(place, old)), None)

    def _is_at(self, place: int, old: list[str]) -> bool:
        end = place + len(old)
        return self.lines[place:end] == old and not any(self._patched[place:end])

    def _mismatch(self, hunk: Hunk) -> str:
        if hunk.old and self._has(hunk.old):
            if hunk.lines[-1][0] != " " or hunk.old_start <= 1:
                return (
                    "Its lines are in the file, but a hunk for line 1 must be at the beginning, and one without "
                    "context after its changes at the end. Add lines around it."
                )
            return "Its lines are in the file, but with other line ends, or changed by another hunk."
        return explained(_contents(self.lines), _contents(hunk.old))

    def _has(self, old: list[str]) -> bool:
        return next(_places(self.lines, old, content, 0), None) is not None

    def _place(self, hunk: Hunk, name: str) -> int:
        start = self._at
        for anchor in hunk.anchors:
            start = self._after(anchor, start, name)
        old = hunk.old
        if not old:
            if hunk.new_start and not hunk.anchors:
                return min(max(hunk.new_start - 1, start), len(self.lines))
            return start if hunk.anchors and not hunk.at_end else len(self.lines)
        near = hunk.new_start - 1
        if near >= start and not hunk.at_end and _contents(self.lines[near : near + len(old)]) == _contents(old):
            return near
        least = max(start, len(self.lines) - len(old)) if hunk.at_end else start
        keys: list[_Key] = [content, str.rstrip, str.strip]
        for key in [_without_newline, *keys] if _has_return(hunk) else keys:
            places = list(islice(_places(self.lines, old, key, least), _MOST_PLACES))
            if len(places) > 1 and hunk.new_start:
                return min(places, key=lambda place: abs(place + 1 - hunk.new_start))
            if len(places) > 1 and not hunk.anchors:
                found = ", ".join(str(place + 1) for place in places[:10])
                raise Misplaced(f"{name} fits at lines {found}; add lines around it, or '@@' with a line before it.")
            if places:
                return places[0]
        if start and self._has(old):
            raise Misplaced(f"{name} does not fit. Its lines are in the file, but do not begin after line {start}.")
        raise Misplaced(f"{name} does not fit. {explained(_contents(self.lines), _contents(old))}")

    def _after(self, anchor: str, start: int, name: str) -> int:
        """The line after the anchor: the first line that equals it, or else the first that begins with its words."""
        later = range(start, len(self.lines))
        found = next((number for number in later if self.lines[number].strip() == anchor), None)
        if found is None:
            found = next((number for number in later if _begins_with(self.lines[number].strip(), anchor)), None)
        if found is not None:
            return found + 1
        where = f"no line after line {start}" if start else "no line"
        raise Misplaced(f"{name}: {where} is {anchor!r}. Read the file again.")

    def _written(self, hunk: Hunk, place: int, name: str) -> list[str]:
        """The new lines: those that are kept as they are in the file, and the added ones in the file's manner."""
        end = place + len(hunk.old)
        there = self.lines[place:end]
        literal = _has_return(hunk) and list(map(_without_newline, there)) == list(map(_without_newline, hunk.old))
        indented = _Indentation(hunk, there, name)
        around = [*self.lines[max(place - 1, 0) : place], *there, *self.lines[end : end + 1]]
        default = next((found for line in around if (found := end_of(line))), "\n")
        new: list[str] = []
        ends: list[str] = []  # of the lines that are removed, for those that take their place
        number = added = 0
        for sign, text in hunk.lines:
            if sign == "+":
                own = (ends[added] if added < len(ends) else "") or (end_of(new[-1]) if new else "") or default
                new.append(text if literal else indented(content(text)) + own)
                added += 1
                continue
            if sign == " ":
                new.append(there[number])
                ends, added = [], 0
            else:
                ends.append(end_of(there[number]))
            number += 1
        new[:-1] = [line if end_of(line) else line + default for line in new[:-1]]
        signs = [sign for sign, _ in hunk.lines if sign != "-"]
        if signs[-1:] == ["+"] and end == len(self.lines) and not self._is_complete(hunk):
            new[-1] = content(new[-1])
        if new and place and end_of(self.lines[place - 1]) == "":  # an addition after a line without newline
            self.lines[place - 1] += default
        return new

    def _is_complete(self, hunk: Hunk) -> bool:
        """Whether the file ends with a newline after a hunk at its end: as the hunk says, or as before."""
        if any(end_of(text) == "" for _, text in hunk.lines):
            return end_of(hunk.new[-1]) != ""
        return self._complete


class _Indentation:
    """Indents added lines as the file does, where the patch indents the lines that it names differently."""

    def __init__(self, hunk: Hunk, there: list[str], name: str) -> None:
        self._name = name
        signs = [sign for sign, _ in hunk.lines if sign != "+"]
        named = zip(signs, hunk.old, there, strict=True)
        pairs = [(sign, _indent(text), _indent(line)) for sign, text, line in named if text.strip()]
        removed = [(asked, found) for sign, asked, found in pairs if sign == "-"]
        evidence = removed if all(asked == found for asked, found in removed) else []
        self._pairs = list(dict.fromkeys(evidence or [(asked, found) for _, asked, found in pairs]))
        self._same = all(asked == found for asked, found in self._pairs)

    def __call__(self, text: str) -> str:
        if self._same or not text.strip():
            return text
        indent = _indent(text)
        known = {found for asked, found in self._pairs if asked == indent}
        likely = known or {found for found in (self._shifted(indent), self._scaled(indent)) if found is not None}
        if len(likely) == 1:
            return likely.pop() + text[len(indent) :]
        raise Misplaced(
            f"{self._name} fits only without its indentation, and it is unclear how to indent the added line "
            f"{text.strip()[:60]!r}. Write the lines as the file has them."
        )

    def _shifted(self, indent: str) -> str | None:
        """As all lines are shifted to the right, or to the left."""
        asked, found = self._pairs[0]
        if found.endswith(asked):
            more = found[: len(found) - len(asked)]
            return more + indent if all(there == more + said for said, there in self._pairs) else None
        less = asked[: len(asked) - len(found)]
        fits = all(said == less + there for said, there in self._pairs) and indent.startswith(less)
        return indent[len(less) :] if fits else None

    def _scaled(self, indent: str) -> str | None:
        """As all lines are indented by another unit, such as a tab for each four spaces."""
        asked, found = max(self._pairs, key=lambda pair: len(pair[0]))
        signs, blanks = set(asked + indent), set(found)
        if not asked or len(signs) != 1 or len(blanks) != 1 or len(indent) * len(found) % len(asked):
            return None
        blank = found[0]
        if any(there != blank * (len(said) * len(found) // len(asked)) for said, there in self._pairs):
            return None
        return blank * (len(indent) * len(found) // len(asked))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _has_return(hunk: Hunk) -> bool:
    return any("\r\n" in text for _, text in hunk.lines)


def _without_newline(line: str) -> str:
    return line.removesuffix("\n")


def _contents(lines: list[str]) -> list[str]:
    return [content(line) for line in lines]


def _begins_with(line: str, words: str) -> bool:
    """Whether the line begins with these whole words."""
    return line.startswith(words) and not (words + line[len(words) :][:1])[-2:].replace("_", "a").isalnum()


def _places(lines: list[str], wanted: list[str], key: _Key, start: int) -> Iterator[int]:
    """Where the wanted lines are, from the line `start` on, compared by `key`. To find one takes linear time."""
    text = "\n".join(["", *map(key, lines[start:]), ""])  # no key leaves a newline
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
