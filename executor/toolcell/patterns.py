"""Patterns of a call's arguments: a shell glob for each argument that a pattern names."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from toolcell.errors import UsageError

__all__ = ["MATCHED_CHARS", "check_pattern", "matches"]

MATCHED_CHARS: Final = 100_000
"""The longest text that is compared with a glob."""


def matches(pattern: Mapping[str, str], arguments: Mapping[str, Any], *, too_long: bool) -> bool:
    """Whether each argument that the pattern names matches its glob, with case. `a.b` names the member b of the
    argument a.

    A string is compared as it is, any other value as compact JSON. A missing argument and null match nothing.
    `too_long` is the answer for a text of more than `MATCHED_CHARS`: True where a match refuses, False where it allows.
    """
    return all(_matches(glob, _value(arguments, name), too_long) for name, glob in pattern.items())


def check_pattern(what: str, pattern: object) -> None:
    """Raise UsageError unless this is a mapping of names to globs."""
    if not isinstance(pattern, Mapping):
        raise UsageError(f"{what}: the argument pattern is not a mapping: {pattern!r}. Write {{'path': 'src/*'}}.")
    for name, glob in cast("Mapping[object, object]", pattern).items():
        if not isinstance(name, str) or not name or not isinstance(glob, str):
            raise UsageError(f"{what}: {name!r}: {glob!r} is not an argument with a glob. Write {{'path': 'src/*'}}.")


def _value(arguments: Mapping[str, Any], name: str) -> object:
    """The argument, or the member that a dotted name leads to. None if there is none."""
    if name in arguments:
        return cast("object", arguments[name])
    first, dot, rest = name.partition(".")
    inner: object = arguments.get(first)
    return _value(cast("Mapping[str, Any]", inner), rest) if dot and isinstance(inner, Mapping) else None


def _matches(glob: str, value: object, too_long: bool) -> bool:
    if value is None:
        return False
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    return too_long if len(text) > MATCHED_CHARS else fnmatchcase(text, glob)
