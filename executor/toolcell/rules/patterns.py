"""Patterns of a call's arguments: a shell glob for each argument that a pattern names."""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final, cast

from toolcell.errors import UsageError

__all__ = ["GLOB_CHARS", "MATCHED_CHARS", "check_pattern", "matches"]

MATCHED_CHARS: Final = 100_000
"""The longest text that is compared with a glob."""
GLOB_CHARS: Final = 500
"""The longest glob. The worst one takes 60 ms for the longest text; time grows with the product of their lengths."""


def matches(pattern: Mapping[str, str], arguments: Mapping[str, Any], *, in_doubt: bool) -> bool:
    """Whether each argument that the pattern names matches its glob, with case. `a.b` names the member b of the
    argument a, or an argument with the name "a.b".

    A string is compared as it is, any other value as compact JSON, a whole number without a fraction. A missing
    argument and null match nothing. Doubt is a text of more than `MATCHED_CHARS`, or a name for several values of which
    some match. `in_doubt` is the answer: True where a match refuses, False where it allows.
    """
    return all(_fits(glob, _values(arguments, name), in_doubt) for name, glob in pattern.items())


def check_pattern(what: str, pattern: object) -> None:
    """Raise UsageError unless this is a mapping of names to globs of at most `GLOB_CHARS`."""
    if not isinstance(pattern, Mapping):
        raise UsageError(f"{what}: the argument pattern is not a mapping: {pattern!r}. Write {{'path': 'src/*'}}.")
    for name, glob in cast("Mapping[object, object]", pattern).items():
        if not isinstance(name, str) or not name or not isinstance(glob, str):
            raise UsageError(f"{what}: {name!r}: {glob!r} is not an argument with a glob. Write {{'path': 'src/*'}}.")
        if len(glob) > GLOB_CHARS:
            raise UsageError(
                f"{what}: the glob of {name!r} has {len(glob):,} characters, more than {GLOB_CHARS}. Shorten it."
            )


def _values(arguments: Mapping[str, Any], name: str) -> Iterator[object]:
    """Each value that the name may mean. A model can add a key such as "a.b" beside the member b of a."""
    if name in arguments:
        yield cast("object", arguments[name])
    dot = name.find(".")
    while dot >= 0:
        inner: object = arguments.get(name[:dot])
        if isinstance(inner, Mapping):
            yield from _values(cast("Mapping[str, Any]", inner), name[dot + 1 :])
        dot = name.find(".", dot + 1)


def _fits(glob: str, values: Iterator[object], in_doubt: bool) -> bool:
    found = [_matches(glob, value, in_doubt) for value in values]
    return any(found) if in_doubt else bool(found) and all(found)


def _matches(glob: str, value: object, in_doubt: bool) -> bool:
    if value is None:
        return False
    text = value if isinstance(value, str) else _json(value)
    return in_doubt if len(text) > MATCHED_CHARS else _compiled(glob).match(text) is not None


@lru_cache(maxsize=4096)  # fnmatch.fnmatchcase keeps 256, and a compilation takes up to 1 ms
def _compiled(glob: str) -> re.Pattern[str]:
    """The glob as fnmatch translates it: atomic groups keep the time within the product of the lengths."""
    return re.compile(translate(glob))


def _json(value: object) -> str:
    """Compact JSON."""
    return json.dumps(_whole(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _whole(value: object) -> object:
    """The value with 500 in place of 500.0 at any depth, because a schema of integers takes both."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: _whole(each) for key, each in cast("Mapping[str, object]", value).items()}
    return [_whole(each) for each in cast("list[object]", value)] if isinstance(value, list) else value
