"""The rules of .gitignore files (gitignore(5)): which entries a walk leaves out.

The last rule that matches an entry decides; a rule that begins with `!` takes it in again. Rules of a deeper directory
are looked at first.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["NOTHING", "Ignored"]

MAX_BYTES = 262_144
"""A longer .gitignore is read to here."""
MAX_LINE = 4_096
"""The most characters of a rule, PATH_MAX. A longer one matches nothing."""
_GLOB = re.compile(r"\*+|\?|\[[!^]?+\]?+(?:\[:\w*:\]|\\.|[^\]\\])*+\]|\\.|[^*?\[\\]+|.", re.DOTALL)
_NO_SETS = re.compile(r"\*+|\?|\[|\\.|[^*?\[\\]+|.", re.DOTALL)
_OPEN = frozenset({"[", "\\"})
"""The tokens that begin a set or an escape without an end."""
_RANGE = re.compile(r"(\\.|[^\\])(?:-(\\.|[^\\]))?", re.DOTALL)  # or one character


class _Group(NamedTuple):
    """Successive rules of one sign. `names` matches an entry's name, `paths` its path below the rules' directory. A
    directory ends in a slash in both."""

    takes_in: bool
    names: re.Pattern[str] | None
    paths: re.Pattern[str] | None


class Ignored(NamedTuple):
    """The rules of a directory's .gitignore, and those of the directories above it."""

    groups: tuple[_Group, ...]
    start: int
    """How many characters of an entry's path are the directory of these rules."""
    above: "Ignored | None"

    def below(self, text: str, directory: str) -> "Ignored":
        """These rules with those of the .gitignore `text` in `directory`, a path that is empty or ends in a slash."""
        groups = _groups(text.split("\n"))
        return Ignored(groups, len(directory), self) if groups else self

    def has(self, path: str, name: str) -> bool:
        """Whether the entry is left out. `path` is relative to the walk's root, and `name` is its last part; those of a
        directory end in a slash."""
        rules: Ignored | None = self
        while rules is not None:
            decided = rules.decides(path, name)
            if decided is not None:
                return decided
            rules = rules.above
        return False

    def decides(self, path: str, name: str) -> bool | None:
        """Whether these rules, without those above, leave the entry out; None if none of them matches."""
        for takes_in, names, paths in self.groups:
            if (names is not None and names.fullmatch(name)) or (
                paths is not None and paths.fullmatch(path, self.start)
            ):
                return not takes_in
        return None


NOTHING = Ignored((), 0, None)
"""No rules."""


def _groups(lines: Sequence[str]) -> tuple[_Group, ...]:
    """The rules of the lines, the last one first."""
    groups: list[tuple[bool, list[str], list[str]]] = []
    for line in lines:
        rule = _rule(line)
        if rule is None:
            continue
        takes_in, is_path, pattern = rule
        if not groups or groups[-1][0] != takes_in:
            groups.append((takes_in, [], []))
        _, names, paths = groups[-1]
        (paths if is_path else names).append(pattern)
    return tuple(_Group(takes_in, _any(names), _any(paths)) for takes_in, names, paths in reversed(groups))


def _any(patterns: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(patterns), re.DOTALL) if patterns else None


def _rule(line: str) -> tuple[bool, bool, str] | None:
    """Whether the rule takes entries in, whether it is about paths, and its regular expression. None if the line has no
    rule, or one that matches nothing."""
    if len(line) > MAX_LINE:
        return None
    text = _without_end(line.rstrip("\r"))
    takes_in = text.startswith("!")
    text = text[takes_in:]
    if not text or text.startswith("#"):
        return None
    is_directory = text.endswith("/")
    text = text.removesuffix("/")
    if text.endswith("/"):  # git removes one, and no path ends with another
        return None
    is_path = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    if ("[" in text or "\\" in text) and not _OPEN.isdisjoint(_tokens(text)):
        return None
    try:
        pattern = pattern_of(text) + ("/" if is_directory else "/?")
        re.compile(pattern)
    except re.error:
        return None
    return takes_in, is_path, pattern


def _without_end(line: str) -> str:
    """The line without spaces at its end (git keeps tabs), up to one after a backslash."""
    text = line.rstrip(" ")
    return line[: len(text) + 1] if text.endswith("\\") else text


def pattern_of(glob: str) -> str:
    """A glob as a regular expression for paths: `*` and `?` match within a name, `**` over any number of names. Raises
    re.error for a set of characters that cannot be."""
    first, *others = re.split(r"(?<![^/])\*\*(?![^/])", glob)
    if not others:
        return _within(glob)
    if glob == "**":
        return ".*"
    # the names between two ** are looked for once: the first place leaves the most to the rest
    middle = "".join(f"(?>(?:.*?/)??{_within(part[1:-1])}/)" for part in others[:-1] if part != "/")
    return _within(first) + middle + (f"(?:.*/)?{_within(others[-1][1:])}" if others[-1] else ".+")


def _within(glob: str) -> str:
    """A star takes as few characters as possible up to what follows it, and gives none back: matching takes linear time
    for each star, whatever the pattern. Only the last star takes as many as it can."""
    pieces = [""]
    for token in _tokens(glob):
        if token[0] == "*":
            begins = (not pieces[-1] and len(pieces) == 1) or pieces[-1].endswith("/")
            pieces[-1] += r"(?!/|\Z)" if begins else ""  # a name is not empty
            pieces.append("")
        elif token == "?":
            pieces[-1] += "[^/]"
        elif token[0] == "[" and len(token) > 2:
            inside = token[1:-1]
            sign = "^/" if inside[0] in "!^" else ""
            pieces[-1] += f"[{sign}{_set(inside[1:] if sign else inside)}]"
        elif token[0] == "\\" and len(token) == 2:
            pieces[-1] += re.escape(token[1])
        else:
            pieces[-1] += re.escape(token)
    first, *others = pieces
    if not others:
        return first
    return first + "".join(f"(?>[^/]*?{piece})" for piece in others[:-1] if piece) + "[^/]*" + others[-1]


def _tokens(glob: str) -> list[str]:
    """Split a glob in linear time. A bracket that begins no set is a token of its own. So is each bracket after
    it: the search for an end is not repeated."""
    tokens: list[str] = []
    for found in _GLOB.finditer(glob):
        if found[0] == "[":
            return tokens + _NO_SETS.findall(glob, found.start())
        tokens.append(found[0])
    return tokens


def _set(characters: str) -> str:
    """The characters and ranges between the brackets, as a regular expression has them. Raises re.error for an unknown
    class of characters."""
    try:
        named = re.sub(r"\[:(\w*):\]", lambda found: _CLASSES[found[1]], characters)
    except KeyError as error:
        raise re.error(f"there is no class of characters {error}") from None
    return _RANGE.sub(_range, named)


def _range(found: re.Match[str]) -> str:
    ends = [end[-1] for end in found.groups() if end]
    return "-".join(map(re.escape, ends if ends == sorted(ends) else ends[:1]))  # as git: of z-a, only z


_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \t",
    "cntrl": "\0-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
