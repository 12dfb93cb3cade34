"""Read the contents that a node lacks from the workspace, in pieces for messages."""

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from toolcell.cluster.link import pack
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.walker import Root

from .seat_files import PIECE_BYTES

__all__ = ["ContentPlace", "StaleSource", "packs_of"]


class StaleSource(Exception):
    """A file has changed since the workspace was read."""


class ContentPlace(NamedTuple):
    """Where a content is: in memory, or in a file below a directory."""

    digest: bytes
    raw: bytes = b""
    root: str = ""
    path: str = ""


def packs_of(places: Iterable[ContentPlace]) -> Iterator[tuple[bytes, int, int]]:
    """Encode contents into messages of about `PIECE_BYTES` at most. Yields each message with the number of contents
    that it completes and its bytes of contents. Raises StaleSource if a file has changed since it was read. Blocks."""
    pieces: list[list[object]] = []
    size = ended = 0
    for place in places:
        for at, total, data in _pieces(place):
            if pieces and size + len(data) > PIECE_BYTES:
                yield pack(pieces), ended, size
                pieces, size, ended = [], 0, 0
            pieces.append([place.digest, at, total, data])
            size += len(data)
            ended += at + len(data) == total
    if pieces:
        yield pack(pieces), ended, size


def _pieces(place: ContentPlace) -> Iterator[tuple[int, int, bytes]]:
    """The pieces of a content: their offset, the size of the whole, and their bytes."""
    if not place.root:
        for at in range(0, len(place.raw), PIECE_BYTES):
            yield at, len(place.raw), place.raw[at : at + PIECE_BYTES]
        return
    try:
        fd = _opened(place)
    except OSError as error:
        raise StaleSource(place.path) from error
    try:
        total, at, digest = os.fstat(fd).st_size, 0, sha256()
        while at < total:
            data = os.read(fd, min(PIECE_BYTES, total - at))
            digest.update(data)
            if not data or (at + len(data) == total and digest.digest() != place.digest):
                raise StaleSource(place.path)
            yield at, total, data
            at += len(data)
        if not total:
            raise StaleSource(place.path)  # an empty content is not sent
    except BlockingIOError as error:  # another process has a lease on it
        raise StaleSource(place.path) from error
    finally:
        os.close(fd)


def _opened(place: ContentPlace) -> int:
    with Root(place.root) as root:
        held = root.open(place.path, walker.ENTRY)
        try:
            walker.content(held, 0)  # refuses what is no regular file
            return walker.readable(held)
        finally:
            os.close(held)
