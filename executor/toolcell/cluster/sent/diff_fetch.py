"""Check a node's diff, and fetch the contents of its files. A cell has chosen the names in the diff."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from toolcell.backends.threads import Threads
from toolcell.cluster.link import unpack

from .blobs import BlobStore, WrongBlob
from .listing import LeftEntry
from .manifest import SentEntry, is_sound
from .seat_files import DONE, PIECE_BYTES

__all__ = ["DiffReceipt", "fetched"]


class _AskedPeer(Protocol):
    async def ask(self, request: Sequence[object], payload: bytes = b"") -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class DiffReceipt:
    """The checked answer of a node."""

    made: Mapping[str, SentEntry]
    gone: tuple[str, ...]
    left_out: tuple[LeftEntry, ...]
    left_count: int
    unknown: str

    @classmethod
    def unpacked(cls, raw: bytes) -> "DiffReceipt":
        """The inverse of `CopyChanges.packed`. Raises OSError for an answer that no tree can give."""
        try:
            made, gone, left_out, left_count, unknown = unpack(raw)
            entries = [SentEntry.from_wire(each) for each in made]
        except (ValueError, TypeError) as error:
            raise OSError(f"the node's answer is no diff: {error}") from error
        paths = tuple(path for path in gone if is_sound(path))
        return cls(
            {each.path: each for each in entries},
            paths,
            tuple((str(path), str(why)) for path, why in left_out),
            int(left_count),
            str(unknown),
        )


async def fetched(peer: _AskedPeer, received: DiffReceipt, contents: BlobStore, work: Threads) -> None:
    """Fetch the contents of all files of a diff, each once, and verify them. Raises OSError."""
    wanted: list[list[Any]] = []
    sizes: dict[bytes, int] = {}
    room = PIECE_BYTES
    for entry in received.made.values():
        if entry.kind != "file" or not entry.size or entry.content in sizes:
            continue
        sizes[entry.content] = entry.size
        for at in range(0, entry.size, PIECE_BYTES):
            length = min(PIECE_BYTES, entry.size - at)
            if length > room:
                await _fetch(peer, wanted, sizes, contents, work)
                wanted, room = [], PIECE_BYTES
            wanted.append([entry.content, at, length])
            room -= length
    if wanted:
        await _fetch(peer, wanted, sizes, contents, work)


async def _fetch(
    peer: _AskedPeer, wanted: Sequence[list[Any]], sizes: Mapping[bytes, int], contents: BlobStore, work: Threads
) -> None:
    answer = await peer.ask(["get", wanted])
    if answer[0] != DONE:
        raise OSError(str(answer[1]))
    await work.run(partial(_keep, contents, wanted, sizes, answer[1:]))


def _keep(
    contents: BlobStore, wanted: Sequence[list[Any]], sizes: Mapping[bytes, int], pieces: Sequence[bytes]
) -> None:
    try:
        for (digest, at, _length), data in zip(wanted, pieces, strict=True):
            contents.put("", digest, at, sizes[digest], data)
    except (WrongBlob, ValueError) as error:
        raise OSError(f"the node sent another content: {error}") from error
