"""The format of a durable journal's log: entries, each with a digest over its body and all entries before it.

An entry is the length of its body (4 bytes, big-endian), a SHA-256 digest (32 bytes) and the body. The digest is over
the digest of the entry before and the body, so no entry can be changed, removed or swapped without a change of every
later digest. Who keeps a `Head` elsewhere can also tell that the last entries are missing. The body is a msgpack array:
the entry's number from 1, the kind, the session's id, the call's id, the data, and the time in Unix seconds.
"""

import hashlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, Self, cast

import msgpack

from toolcell.store.journal.journal import Record

PREFIX = struct.Struct(">I32s")
_prefix, _new_digest = PREFIX.pack, hashlib.sha256().copy  # OpenSSL copies a state in half the time of a new one
_time = struct.Struct(">cd").pack
MAX_BODY_BYTES = 16 * 1024 * 1024
START = bytes(32)
"""The digest before the first entry."""
PAGE_BYTES = 4096
MOST_CUT_BYTES = 256 * 1024 * 1024
"""The most zeros at the end of a log that a power failure is held to have left."""
RESTORE = (
    "Restore a copy of journal.log, or move the state directory away and keep it as evidence. `toolcell audit export` "
    "prints the entries before the damage."
)


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


class Readable(Protocol):
    """A file, or the segments of a log as one (`segments.LogFile`)."""

    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def read(self, size: int, /) -> bytes: ...


class JournalEntry(NamedTuple):
    """One entry that was read: the head of the chain with it, its record, and the offset of its end in bytes."""

    head: Head
    record: Record
    end: int


class BrokenChain(Exception):
    """The chain is broken: `number` is the first entry that is wrong, at `offset` bytes. `cure` says what to do."""

    def __init__(self, what: str, number: int, offset: int, cure: str = RESTORE) -> None:
        self.number, self.offset, self.cure = number, offset, cure
        super().__init__(f"Entry {number:,} at byte {offset:,} {what}.")


class SharedFacts(NamedTuple):
    """Facts that the records of many calls share: the first keys of their data, packed once."""

    facts: Mapping[str, Any]
    packed: bytes
    """The keys and values, without the header of the map."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Pack the facts: a few, all of them JSON data without lone surrogates. Otherwise `packed` is empty, and each
        record is packed as a whole."""
        try:
            packed = new_packer().pack(facts)
        except Exception:
            return cls(facts, b"")
        return cls(facts, packed[1:] if packed[0] & 0xF0 == _MAP else b"")


def new_packer() -> msgpack.Packer:
    """What `entry_of` packs with. One thread at a time may use it."""
    return msgpack.Packer(default=repr)  # with `unicode_errors` it would take twice the time


def entry_of(
    last: int, before: bytes, record: Record, packer: msgpack.Packer, shared: SharedFacts | None = None
) -> tuple[bytes, bytes]:
    """The digest and the bytes of the entry after the one with the number `last` and the digest `before`. The data of
    the record follows the `shared` facts, and has none of their names. The data of a record of more than
    `MAX_BODY_BYTES` is left out. Raises ValueError if the rest is still too large."""
    try:
        body = packer.pack((last + 1, *record)) if shared is None else _body_after(shared, last + 1, record, packer)
    except Exception:
        packer.reset()
        record = _whole(record, shared)
        body = _body_of_any(last + 1, record)
    size = len(body)
    if size > MAX_BODY_BYTES:  # it must not stand in the way of later records
        body = _body_of_any(last + 1, record._replace(data={"unreadable": f"a record of {size:,} bytes"}))
        size = len(body)
    if size > MAX_BODY_BYTES:
        raise ValueError(f"a record of {size:,} bytes; the journal takes at most {MAX_BODY_BYTES:,}")
    state = _new_digest()
    state.update(before)
    state.update(body)
    digest = state.digest()
    return digest, _prefix(size, digest) + body


def _body_after(shared: SharedFacts, number: int, record: Record, packer: msgpack.Packer) -> bytes:
    """The body of a record whose data follows the shared facts: byte for byte that of a record with all of them."""
    kind, session_id, call_id, data, at = record
    own = packer.pack(data)
    count = len(shared.facts) + len(data)
    if not shared.packed or own[0] & 0xF0 != _MAP or count > _MOST_BYTE:
        return packer.pack((number, *_whole(record, shared)))
    head = packer.pack((number, kind, session_id, call_id))
    header = b"\xde\x00%c" % count if count > _MOST_SHORT else b"%c" % (_MAP + count)  # map 16, or fixmap
    return b"".join((b"\x96", head[1:], header, shared.packed, own[1:], _time(b"\xcb", at)))


_MAP: Final = 0x80
_MOST_SHORT, _MOST_BYTE = 15, 255


def _whole(record: Record, shared: SharedFacts | None) -> Record:
    return record if shared is None else record._replace(data={**shared.facts, **record.data})


def _body_of_any(number: int, record: Record) -> bytes:
    """The body of a record that has a text with a lone surrogate, or an object of the program whose repr fails."""
    packer = msgpack.Packer(default=repr, unicode_errors="surrogatepass")
    try:
        return packer.pack((number, *record))
    except Exception as error:
        packer.reset()
        return packer.pack((number, *record._replace(data={"unreadable": type(error).__name__})))


def entries(file: Readable, head: Head = Head(), offset: int = 0) -> Iterator[JournalEntry]:  # noqa: B008 - a NamedTuple
    """Read and check the entries after `head`, which ends at `offset`. Stops before an incomplete entry at the end of
    the file, which its writer may not have finished, or of which a power failure has left zeros. Raises
    BrokenChain."""
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
            if _is_cut_off(file, offset, prefix + body):
                return
            raise BrokenChain("does not fit its digest, or the entry before it", number, offset)
        record = _record(body, number, offset)
        head, offset = Head(number, digest), offset + PREFIX.size + size
        yield JournalEntry(head, record, offset)


def is_at(file: Readable, head: Head, start: int, end: int) -> bool:
    """Whether the entry between these offsets says that it is the last one of the chain with this head."""
    if head.number == 0:
        return end == 0
    file.seek(start)
    prefix = file.read(PREFIX.size)
    return len(prefix) == PREFIX.size and PREFIX.unpack(prefix) == (end - start - PREFIX.size, head.digest)


def _is_cut_off(file: Readable, offset: int, entry: bytes) -> bool:
    """Whether the file has only zeros from a page within this entry on: the pages that a power failure kept from the
    disk, while the size of the file had reached it. `file` is read to its end."""
    written = offset + len(entry.rstrip(b"\0"))
    size = offset + len(entry)
    if file.seek(0, 2) - size > MOST_CUT_BYTES:
        return False
    file.seek(size)
    while block := file.read(65_536):
        if block.strip(b"\0"):
            return False
        size += len(block)
    return written == offset or -(-written // PAGE_BYTES) * PAGE_BYTES < size


def _record(body: bytes, number: int, offset: int) -> Record:
    try:
        unpacked: Any = msgpack.unpackb(body, strict_map_key=False, unicode_errors="surrogatepass")
    except (ValueError, RecursionError) as error:
        raise BrokenChain(f"cannot be read: {error}", number, offset) from None
    try:
        said, kind, session_id, call_id, data, at = unpacked
    except (TypeError, ValueError):
        raise BrokenChain("has another form than a record", number, offset) from None
    texts = all(isinstance(each, str) for each in (kind, session_id, call_id))
    if not texts or not isinstance(data, dict) or not isinstance(at, (int, float)):
        raise BrokenChain("has another form than a record", number, offset)
    if said != number:
        raise BrokenChain(f"has the number {said}", number, offset)
    return Record(kind, session_id, call_id, cast("dict[str, Any]", data), at)
