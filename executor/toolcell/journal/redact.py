"""The arguments of a call as the journal keeps them: without secrets, and not longer than a cap."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

MOST_CHARS: Final = 2_000
"""The most characters that are kept of all texts of one call's arguments."""
REDACTED: Final = "[redacted]"
_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token|api_?-?key|access_?-?key|private_?-?key|authorization|cookie|credential",
    re.IGNORECASE,
)
"""The names of arguments whose values are not kept, at any depth."""


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=repr).encode


def digest_of(arguments: Mapping[str, Any]) -> str:
    """`sha256:<hex>` over the arguments as JSON with sorted keys and without spaces."""
    return "sha256:" + hashlib.sha256(_canonical(arguments).encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(4096)
def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


class ArgumentRedaction:
    """Makes a copy of a call's arguments. `is_complete` says whether the copy has everything."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self.is_complete = True
        self._room = most_chars

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The copy. Values of names such as "password" are replaced, and long texts are cut."""
        return {name: self._kept(name, value) for name, value in arguments.items()}

    def _kept(self, name: str, value: object) -> object:
        if name and _is_secret(name):
            self.is_complete = False
            return REDACTED
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**64 else str(value)  # as much as msgpack takes
        if isinstance(value, str):
            room, self._room = self._room, max(0, self._room - len(value))
            if len(value) <= room:
                return value
            self.is_complete = False
            return f"{value[:room]}… ({len(value):,} characters)"
        if self._room <= 0 or not isinstance(value, (dict, list)):  # JSON data has no other types
            self.is_complete = False
            return "…"
        self._room -= 8
        if isinstance(value, dict):
            named = cast("dict[str, object]", value)
            return {key: self._kept(key, each) for key, each in named.items()}
        return [self._kept("", each) for each in cast("list[object]", value)]


def arguments_for_journal(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an intent for these arguments: a copy, and a digest if the copy is not complete. Otherwise, who
    needs the digest can make it of the copy.
    """
    redaction = ArgumentRedaction()
    kept = redaction.of(arguments)
    return {"arguments": kept} if redaction.is_complete else {"arguments": kept, "digest": digest_of(arguments)}
