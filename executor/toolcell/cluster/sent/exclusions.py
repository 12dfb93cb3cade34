"""The files of a workspace that are not sent: patterns as in gitignore(5)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any, Final

from toolcell.errors import UsageError

__all__ = ["ALWAYS", "DEFAULT_EXCLUDED", "Exclusions", "ignored_by"]

DEFAULT_EXCLUDED: Final = (
    "__pycache__/",
    "*.py[co]",
    ".venv/",
    "venv/",
    "node_modules/",
    ".tox/",
    ".nox/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".DS_Store",
)
"""Files that programs make again, and files that fit one machine only."""
ALWAYS: Final = ("/.toolcell/", ".toolcell-*.part")
"""The outputs that the supervisor keeps in a workspace, and temporary files of interrupted writes."""
MOST_CHARS, MOST_LINES = 500, 2_000
"""The longest pattern, and the most patterns of one file. Other patterns of a `.gitignore` are ignored."""


@dataclass(frozen=True)
class _ExcludeRule:
    base: tuple[str, ...]
    parts: tuple[str, ...]
    directories_only: bool
    includes: bool

    @cached_property
    def _components(self) -> tuple[re.Pattern[str] | None, ...]:
        return tuple(None if part == "**" else _compiled(part) for part in self.parts)

    def matches(self, path: Sequence[str], *, is_directory: bool) -> bool:
        if self.directories_only and not is_directory:
            return False
        depth = len(self.base)
        if depth and (len(path) <= depth or tuple(path[:depth]) != self.base):
            return False
        components = self._components
        if len(components) == 2 and components[0] is None and components[1] is not None:  # a name at any depth
            return components[1].match(path[-1]) is not None
        return _match(components, path[depth:])


def _match(pattern: Sequence[re.Pattern[str] | None], path: Sequence[str]) -> bool:
    """Whether all components match. `None` matches any number of components. Time: the product of the lengths."""
    reached = {0}
    for at, component in enumerate(pattern):
        if component is not None:
            reached = {each + 1 for each in reached if each < len(path) and component.match(path[each])}
        elif at + 1 == len(pattern):
            return min(reached) < len(path)  # what is below, not the directory itself
        else:
            reached = set(range(min(reached), len(path) + 1))
        if not reached:
            return False
    return len(path) in reached


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    """A component as fnmatch translates it, in which a backslash escapes the next character."""
    escaped = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], glob)
    return re.compile(translate(escaped), re.DOTALL)


def _rule(line: str, base: tuple[str, ...]) -> _ExcludeRule | None:
    """The rule of a line; None for a comment or an empty line."""
    line = line.rstrip("\n\r")
    if not line.endswith("\\ "):
        line = line.rstrip(" ")
    if not line or line.startswith("#"):
        return None
    includes = line.startswith("!")
    line = line.removeprefix("!")
    directories_only = line.endswith("/")
    anchored = "/" in line[:-1]
    parts = tuple(part for part in line.split("/") if part)
    if not parts:
        return None
    return _ExcludeRule(base, parts if anchored else ("**", *parts), directories_only, includes)


class Exclusions:
    """Rules in ascending precedence: the last rule that matches decides. `groups` are `(directory, lines)`."""

    def __init__(self, groups: Iterable[tuple[str, Iterable[str]]]) -> None:
        self.groups = tuple((base, tuple(lines)) for base, lines in groups)
        self._rules: list[_ExcludeRule] = []
        for base, lines in self.groups:
            above = tuple(base.split("/")) if base else ()
            self._rules += [rule for line in lines if (rule := _rule(line, above)) is not None]

    def __repr__(self) -> str:
        return f"<Exclusions {len(self._rules)} rules>"

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Exclusions":
        """The rules of a program, and those of `ALWAYS`, which it cannot overrule. Raises UsageError for a pattern that
        is too long."""
        given = tuple(lines)
        for line in given:
            if len(line) > MOST_CHARS:
                raise UsageError(f"A pattern of exclude has more than {MOST_CHARS} characters: {line[:80]!r}…")
        return cls([("", given), ("", ALWAYS)])

    def after(self, groups: Iterable[tuple[str, Iterable[str]]]) -> "Exclusions":
        """These rules after those of `groups`, which they overrule."""
        return Exclusions([*groups, *self.groups])

    def excludes(self, path: str, *, is_directory: bool) -> bool:
        """Whether the entry itself is excluded, without regard to the directories above it."""
        parts = path.split("/")
        for rule in reversed(self._rules):
            if rule.matches(parts, is_directory=is_directory):
                return not rule.includes
        return False

    def covers(self, path: str, *, is_directory: bool) -> bool:
        """Whether the entry, or a directory above it, is excluded."""
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(self.excludes(each, is_directory=True) for each in above) or self.excludes(
            path, is_directory=is_directory
        )

    def to_wire(self) -> list[Any]:
        """As msgpack carries it."""
        return [[base, list(lines)] for base, lines in self.groups]

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> "Exclusions":
        """The inverse of `to_wire`."""
        return cls((base, lines) for base, lines in wire)


def ignored_by(text: str) -> tuple[str, ...]:
    """The lines of a `.gitignore`, without those that are too long."""
    return tuple(line for line in text.split("\n")[:MOST_LINES] if len(line) <= MOST_CHARS)
