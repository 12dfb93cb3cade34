"""The arguments of a call as the journal keeps them: without secrets, and not longer than a cap."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from toolcell.rules.redaction import LEAST_CHARS, REDACTED, Redaction, is_secret, is_suspect, without_secrets
from toolcell.store.journal.journal import Record
from toolcell.wire.budget import is_beyond

MOST_CHARS: Final = 2_000
"""The most characters that are kept of all texts of one call's arguments."""
MOST_VALUES: Final = 200
"""The most values that are kept of one call's arguments, at all depths together."""
NAME_CHARS: Final = 64
MOST_PLAIN: Final = 16
_DEEPEST: Final = 64  # deeper arguments are refused
NO_DIGEST: Final = "none: these arguments are no JSON data"
TOO_LARGE: Final = "none: these arguments are too large"
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=repr).encode


def digest_of(arguments: Mapping[str, Any], most_chars: float = math.inf) -> str:
    """`sha256:<hex>` over the arguments as JSON with sorted keys and without spaces, or `NO_DIGEST`. `TOO_LARGE` for
    arguments that no call can have, or with more than `most_chars` characters."""
    if is_beyond(arguments, most_chars):
        return TOO_LARGE
    try:
        text = _canonical(arguments)
    except Exception:  # names that are no texts, too deep, inside itself, or the `repr` of an object of the program
        return NO_DIGEST
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def secrets_in(arguments: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """The texts of arguments whose names are secret, at any depth with which a call can run. A tool may print them."""
    if depth > _DEEPEST:
        return
    for name, value in arguments.items():
        if isinstance(value, str):
            if len(value) >= 4 and (len(str(name)) > MOST_CHARS or is_secret(str(name))):
                yield value
        elif isinstance(value, dict):
            yield from secrets_in(cast("dict[str, object]", value), depth + 1)
        elif isinstance(value, list):
            for each in cast("list[object]", value):
                yield from secrets_in({name: each}, depth + 1)


class ArgumentRedaction:
    """Makes a copy of a call's arguments. `is_complete` says whether the copy has everything."""

    def __init__(self, most_chars: int = MOST_CHARS, known: Redaction | None = None) -> None:
        """`known` are secrets that texts may repeat."""
        self.is_complete = True
        self._known = known
        self._room = most_chars
        self._values = MOST_VALUES

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The copy. Values of names such as "password" and secrets in texts are replaced, and what is long is cut."""
        kept: dict[str, Any] = {}
        for name, value in arguments.items():
            if self._values <= 0:
                self.is_complete = False
                kept["…"] = f"({len(arguments) - len(kept):,} more)"
                break
            self._values -= 1
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - not validated yet
                self.is_complete = False
                kept[f"(a name that is no text){len(kept)}"] = self._kept("", value)
            elif len(name) > NAME_CHARS:
                self.is_complete = False
                is_read = len(name) <= MOST_CHARS  # the value of a longer name may be secret, and is not kept
                kept[f"{name[:NAME_CHARS]}…{len(kept)}"] = self._kept(name, value) if is_read else REDACTED
            else:
                kept[name] = self._kept(name, value)
        return kept

    def _kept(self, name: str, value: object) -> object:
        if name and is_secret(name):
            self.is_complete = False
            return REDACTED
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            if -(2**63) <= value < 2**64:  # as much as msgpack takes
                return value
            self.is_complete = False
            return self.text(hex(value)) if value.bit_length() > 10_000 else self.text(str(value))  # `str` has a bound
        if not isinstance(value, (dict, list)):  # JSON data has no other types
            self.is_complete = False
            return "…"
        if isinstance(value, dict):
            return self.of(cast("dict[str, object]", value))
        return self._list(cast("list[object]", value))

    def text(self, value: str) -> str:
        """A text without secrets, cut where the room ends."""
        room, self._room = self._room, max(0, self._room - len(value))
        if len(value) <= room:
            kept = without_secrets(value, self._known)
            if kept is not value:
                self.is_complete = self.is_complete and kept == value
            return kept
        self.is_complete = False
        begun = value[: room + (0 if self._known is None else self._known.reach)]  # no part of a secret is kept
        return f"{without_secrets(begun, self._known)[:room]}… ({len(value):,} characters)"

    def _list(self, values: list[object]) -> list[object]:
        kept: list[object] = []
        for value in values:
            if self._values <= 0:
                self.is_complete = False
                kept.append(f"… ({len(values) - len(kept):,} more)")
                break
            self._values -= 1
            kept.append(self._kept("", value))
        return kept


def arguments_for_journal(
    arguments: Mapping[str, Any], known: Redaction | None = None, *, most_chars: float = math.inf
) -> dict[str, Any]:
    """The fields of a record for these arguments: a copy, and a digest if the copy is not complete. Otherwise
    `with_digest` makes it of the copy when the record is read. `known` are secrets that texts may repeat. `most_chars`
    is for `digest_of`.
    """
    try:
        if known is None and _is_plain(arguments):
            return {"arguments": arguments}
    except TypeError:  # a name that is no text
        pass
    redaction = ArgumentRedaction(known=known)
    kept = redaction.of(arguments)
    return (
        {"arguments": kept}
        if redaction.is_complete
        else {"arguments": kept, "digest": digest_of(arguments, most_chars)}
    )


def _is_plain(arguments: Mapping[str, Any]) -> bool:
    """Whether the copy would be the same as the arguments: few short texts and numbers without secrets, as in most
    calls."""
    if len(arguments) > MOST_PLAIN:
        return False
    room = MOST_CHARS
    for name, value in arguments.items():
        if len(name) > NAME_CHARS or is_secret(name):
            return False
        if isinstance(value, str):
            room -= len(value)
            if room < 0 or (len(value) >= LEAST_CHARS and is_suspect(value)):
                return False
        elif isinstance(value, int):
            if not -(2**63) <= value < 2**64:
                return False
        elif not isinstance(value, float) and value is not None:
            return False
    return True


def with_digest(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data of a record, with the digest of its arguments if it has arguments."""
    arguments: object = data.get("arguments")
    if not isinstance(arguments, dict) or "digest" in data:
        return data
    return {**data, "digest": digest_of(cast("dict[str, Any]", arguments))}


def bounded_log(record: Record) -> Record:
    """A tool's log entry without secrets, its texts cut as those of arguments are."""
    said = ArgumentRedaction()
    kept: dict[str, Any] = {"message": said.text(str(record.data.get("message", ""))), "fields": {}}
    fields: object = record.data.get("fields")
    if isinstance(fields, dict):
        kept["fields"] = said.of(cast("dict[str, Any]", fields))
    return record._replace(data={**record.data, **kept})
