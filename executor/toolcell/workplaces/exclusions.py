"""The files of a workspace that are not sent: patterns as in gitignore(5)."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from toolcell.errors import UsageError
from toolcell_tools.coding.ignore import NOTHING

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


class Exclusions:
    """Rules in ascending precedence: the last rule that matches decides. `groups` are `(directory, lines)`."""

    def __init__(self, groups: Iterable[tuple[str, Iterable[str]]]) -> None:
        self.groups = tuple((base, tuple(lines)) for base, lines in groups)
        above = [(f"{base}/" if base else "", lines) for base, lines in self.groups]
        self._rules = [(base, NOTHING.below("\n".join(lines), base)) for base, lines in reversed(above)]

    def __repr__(self) -> str:
        return f"<Exclusions {sum(len(lines) for _, lines in self.groups)} patterns>"

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
        end = "/" if is_directory else ""
        whole, name = path + end, path.rpartition("/")[2] + end
        for base, rules in self._rules:
            if path.startswith(base) and (decided := rules.decides(whole, name)) is not None:
                return decided
        return False

    def covers(self, path: str, is_directory: bool) -> bool:
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
