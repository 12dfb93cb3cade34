"""The arguments of a call in its records: a bounded copy without secrets, and a digest if the copy lacks something."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final, cast

from toolcell.rules.redaction import LEAST_CHARS, MOST_CHARS, NAME_CHARS, BoundedCopy, Redaction, is_secret, is_suspect
from toolcell.store.journal.journal import Record
from toolcell.wire.budget import is_beyond

MOST_PLAIN: Final = 16
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
    redaction = BoundedCopy(known=known)
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
    said = BoundedCopy()
    kept: dict[str, Any] = {"message": said.text(str(record.data.get("message", ""))), "fields": {}}
    fields: object = record.data.get("fields")
    if isinstance(fields, dict):
        kept["fields"] = said.of(cast("dict[str, Any]", fields))
    return record._replace(data={**record.data, **kept})
