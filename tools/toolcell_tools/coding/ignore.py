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
_GLOB = re.compile(r"\*+|\?|\[!?\]?(?:\[:\w+:\]|[^\]])*\]|\\.|[^*?\[\\]+|.", re.DOTALL)


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
        groups = _groups(text.splitlines())
        return Ignored(groups, len(directory), self) if groups else self

    def has(self, path: str, name: str) -> bool:
        """Whether the entry is left out. `path` is relative to the walk's root, and `name` is its last part; those of a
        directory end in a slash."""
        rules: Ignored | None = self
        while rules is not None:
            for takes_in, names, paths in rules.groups:
                if (names is not None and names.fullmatch(name)) or (
                    paths is not None and paths.fullmatch(path, rules.start)
                ):
                    return not takes_in
            rules = rules.above
        return False


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
    text = re.sub(r"(?<!\\)[ \t]+$", "", line.rstrip("\r"))
    takes_in = text.startswith("!")
    text = text[takes_in:]
    if not text or text.startswith("#"):
        return None
    is_directory = text.endswith("/")
    text = text.rstrip("/") if is_directory else text
    is_path = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    try:
        pattern = pattern_of(text) + ("/" if is_directory else "/?")
        re.compile(pattern)
    except re.error:
        return None
    return takes_in, is_path, pattern


def pattern_of(glob: str) -> str:
    """A glob as a regular expression for paths: `*` and `?` match within a name, `**` over any number of names. Raises
    re.error for a set of characters that cannot be."""
    out: list[str] = []
    for part in re.split(r"(?<![^/])(\*\*)(?![^/])", glob):
        if part == "**":
            out.append("**")
        elif part:
            out.append(_within(part))
    text = "".join(out)
    if text == "**":
        return ".*"
    text = re.sub(r"/\*\*/", "/(?:.*/)?", text)
    text = re.sub(r"\A\*\*/", "(?:.*/)?", text)
    return re.sub(r"/\*\*\Z", "/.+", text)


def _within(glob: str) -> str:
    out: list[str] = []
    for token in _GLOB.findall(glob):
        if token[0] == "*":
            begins = not out or out[-1].endswith("/")
            out.append(r"(?!/|\Z)[^/]*" if begins else "[^/]*")  # a name is not empty
        elif token == "?":
            out.append("[^/]")
        elif token[0] == "[" and len(token) > 2:
            inside = token[1:-1]
            sign = "^/" if inside[0] in "!^" else ""
            out.append(f"[{sign}{_set(inside[1:] if sign else inside)}]")
        elif token[0] == "\\" and len(token) == 2:
            out.append(re.escape(token[1]))
        else:
            out.append(re.escape(token))
    return "".join(out)


def _set(characters: str) -> str:
    """The characters between the brackets, with what only a regular expression reads escaped."""
    named = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], ""), characters)
    return re.sub(r"([\[\]&~|^])", r"\\\1", named)


_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
