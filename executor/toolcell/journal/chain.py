"""The format of a durable journal's log: entries, each with a digest over its body and all entries before it.

An entry is the length of its body (4 bytes, big-endian), a SHA-256 digest (32 bytes) and the body. The digest is over
the digest of the entry before and the body, so no entry can be changed, removed or swapped without a change of every
later digest. Who keeps a `Head` elsewhere can also tell that the last entries are missing. The body is a msgpack array:
the entry's number from 1, the kind, the session's id, the call's id, the data, and the time in Unix seconds.
"""

import hashlib
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, Self, cast

import msgpack

from toolcell.fast.tuples import made

from .journal import Record

PREFIX = struct.Struct(">I32s")
MAX_BODY_BYTES = 16 * 1024 * 1024
START = bytes(32)
"""The digest before the first entry."""


class Head(NamedTuple):
    """The end of a chain: the number of its last entry, and that entry's digest."""

    number: int = 0
    digest: bytes = START

    def __str__(self) -> str:
        return f"{self.number}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The head that `str` wrote. Raises ValueError."""
        number, _, digest = text.partition(":")
        head = cls(int(number), bytes.fromhex(digest))
        if head.number < 0 or len(head.digest) != len(START):
            raise ValueError(f"{text!r} is not a head. Pass one that `toolcell audit verify` printed.")
        return head


class JournalEntry(NamedTuple):
    """One entry that was read: the head of the chain with it, its record, and the offset of its end in bytes."""

    head: Head
    record: Record
    end: int


class BrokenChain(Exception):
    """The chain is broken: `number` is the first entry that is wrong, at `offset` bytes."""

    def __init__(self, what: str, number: int, offset: int) -> None:
        self.number, self.offset = number, offset
        super().__init__(f"Entry {number:,} at byte {offset:,} {what}.")


def new_packer() -> msgpack.Packer:
    """What `entry_of` packs with. One thread at a time may use it."""
    return msgpack.Packer(default=repr, unicode_errors="surrogatepass")


def entry_of(head: Head, record: Record, packer: msgpack.Packer) -> tuple[Head, bytes]:
    """The next head, and the bytes of the entry. Raises ValueError for a record of more than `MAX_BODY_BYTES`."""
    number = head[0] + 1
    try:
        body = packer.pack((number, *record))
    except Exception as error:  # the data has an object of the program, whose repr fails
        packer.reset()
        body = packer.pack((number, *record._replace(data={"unreadable": type(error).__name__})))
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a record of {len(body):,} bytes; the journal takes at most {MAX_BODY_BYTES:,}")
    digest = hashlib.sha256(head[1] + body).digest()
    return made(Head, (number, digest)), PREFIX.pack(len(body), digest) + body


def entries(file: BinaryIO, head: Head = Head(), offset: int = 0) -> Iterator[JournalEntry]:  # noqa: B008 - a NamedTuple
    """Read and check the entries after `head`, which ends at `offset`. Stops before an incomplete entry at the end of
    the file, which its writer may not have finished. Raises BrokenChain."""
    file.seek(offset)
    while True:
        prefix = file.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            return
        number = head.number + 1
        size, digest = PREFIX.unpack(prefix)
        if size > MAX_BODY_BYTES:
            raise BrokenChain("has no valid length", number, offset)
        body = file.read(size)
        if len(body) < size:
            return
        if hashlib.sha256(head.digest + body).digest() != digest:
            raise BrokenChain("does not fit its digest, or the entry before it", number, offset)
        record = _record(body, number, offset)
        head, offset = Head(number, digest), offset + PREFIX.size + size
        yield JournalEntry(head, record, offset)


def _record(body: bytes, number: int, offset: int) -> Record:
    try:
        unpacked = msgpack.unpackb(body, strict_map_key=False, unicode_errors="surrogatepass")
        said, kind, session_id, call_id, data, at = cast("tuple[int, str, str, str, dict[str, Any], float]", unpacked)
    except ValueError as error:
        raise BrokenChain(f"cannot be read: {error}", number, offset) from None
    if said != number:
        raise BrokenChain(f"has the number {said}", number, offset)
    return Record(kind, session_id, call_id, data, at)
