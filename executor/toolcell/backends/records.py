"""What the memory stores share: the limits of records, the names under which they are kept, and the `with` block."""

import json
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Final, Self, TypeVar

from toolcell.backends.protocols import MemoryRecord, Refused

__all__ = [
    "MAX_LIMIT",
    "ClosedByWith",
    "checked_id",
    "checked_namespace",
    "checked_record",
    "full",
    "fused",
    "namespace_of",
    "room_of",
    "words_of",
]

MAX_LIMIT: Final = 100
_MAX_QUERY = 2000
_MAX_TOKENS = 64
_MAX_LABEL = 256  # of an id, a kind, a tag
_MAX_NAMESPACE = 4096  # of the line of an agent
_MAX_TAGS = 32
_MAX_TIME = 253_402_300_800.0  # the year 10000, where datetime ends


def words_of(query: str) -> list[str]:
    """The words of a query, without duplicates. They hold no quote and no NUL."""
    return list(dict.fromkeys(re.findall(r"\w+", query[:_MAX_QUERY])))[:_MAX_TOKENS]


def checked_record(record: MemoryRecord, max_text_bytes: int) -> MemoryRecord:
    """The record with an id and a time. Raises Refused if a limit is exceeded, or for text that is not Unicode."""
    size = _bytes(record.text, "text")
    if size > max_text_bytes:
        raise Refused(f"The text has {size} bytes, over the limit of {max_text_bytes}. Store a summary.")
    if not record.text.strip():
        raise Refused("The text is empty. Store something worth finding again.")
    if not 0 <= (record.created_at or 0) < _MAX_TIME:
        raise Refused("created_at is not a time. Give seconds since 1970, or none for now.")
    if len(record.tags) > _MAX_TAGS:
        raise Refused(f"There are {len(record.tags)} tags, over the limit of {_MAX_TAGS}. Use fewer.")
    for what, label in [("id", record.id), ("kind", record.kind), *(("tag", tag) for tag in record.tags)]:
        if _bytes(label, what) > _MAX_LABEL:
            raise Refused(f"The {what} is over the limit of {_MAX_LABEL} bytes. Use a shorter one.")
    return replace(record, id=record.id or uuid.uuid4().hex, created_at=record.created_at or time.time())


def namespace_of(line: Sequence[str]) -> str:
    """The namespace of an agent's memory: the agent's id, or the line as JSON where other agents are above it.

    No two lines share a namespace: a root agent's id that begins with "[" is written as JSON too.
    """
    if len(line) == 1 and not line[0].startswith("["):
        return line[0]
    return json.dumps(list(line), ensure_ascii=False, separators=(",", ":"))


def checked_namespace(name: str) -> str:
    if not 0 < _bytes(name, "namespace") <= _MAX_NAMESPACE:
        raise Refused(f"The namespace is empty or over the limit of {_MAX_NAMESPACE} bytes. Give another one.")
    return name


def checked_id(record_id: str) -> str:
    _bytes(record_id, "id")
    return record_id


def room_of(namespace: str) -> str:
    """A namespace as digits, which no stemmer changes and no query language reads."""
    return str(int.from_bytes(sha256(namespace.encode()).digest()[:16], "big"))


def full(max_records: int) -> Refused:
    """The refusal of a record for which its namespace has no room."""
    why = f"This memory is full: it has {max_records} records."
    return Refused(f"{why} Whoever runs the agent can delete some or raise max_records.")


def _bytes(text: str, what: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise Refused(f"The {what} holds half a surrogate pair, which is not Unicode text. Leave it out.") from None


class ClosedByWith(ABC):
    """Calls `close` at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Free what the store holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


K = TypeVar("K")
RANK: Final = 60  # Cormack, Clarke and Büttcher, SIGIR 2009


def fused(rankings: Iterable[Sequence[K]], limit: int) -> list[tuple[K, float]]:
    """The `limit` best keys of all rankings, each with its score: the sum of 1 / (60 + rank), ranks from 1. Keys with
    the same score keep the order in which they are met."""
    scores: dict[K, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1.0 / (RANK + rank)
    best = sorted(scores, key=scores.__getitem__, reverse=True)[:limit]
    return [(key, scores[key]) for key in best]
