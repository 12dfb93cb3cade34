"""The contents that a node keeps: verified, bounded, evicted by use."""

import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from toolcell.cluster.sent.blobs import BlobRoom, BlobStore, WrongBlob


def put(store: BlobStore, raw: bytes) -> bytes:
    digest = sha256(raw).digest()
    assert store.put("ada", digest, 0, len(raw), raw)
    return digest


def blob(store: BlobStore, digest: bytes, size: int) -> bytes:
    return store.read(digest, 0, size)


def test_a_content_comes_in_pieces_and_goes_out_whole(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "store"), 1_000)
    digest = sha256(b"hello world").digest()
    assert not store.put("ada", digest, 0, 11, b"hello ")
    assert digest not in store
    assert store.put("ada", digest, 6, 11, b"world")
    assert store.read(digest, 6, 100) == b"world"
    with (tmp_path / "out").open("wb") as out:
        store.copy(digest, out.fileno())
    assert (tmp_path / "out").read_bytes() == b"hello world"


def test_its_directory_and_files_are_of_this_user_alone(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "store"), 1_000)
    put(store, b"x")
    for above, directories, files in os.walk(tmp_path / "store"):
        for name in directories:
            assert stat.S_IMODE(os.stat(f"{above}/{name}").st_mode) == 0o700
        for name in files:
            assert stat.S_IMODE(os.stat(f"{above}/{name}").st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "pieces", [[(0, b"other text!")], [(0, b"hello "), (5, b"xworld")], [(6, b"world")], [(0, b"x" * 12)]]
)
def test_a_content_that_does_not_have_its_digest_is_refused(tmp_path: Path, pieces: list[tuple[int, bytes]]) -> None:
    store = BlobStore(str(tmp_path / "store"), 1_000)
    digest = sha256(b"hello world").digest()
    with pytest.raises(WrongBlob):
        for at, data in pieces:
            store.put("ada", digest, at, 11, data)
    assert digest not in store
    assert not os.listdir(tmp_path / "store" / "incoming")


def test_the_least_recently_used_content_is_evicted(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "store"), 30)
    first, second, third = (put(store, bytes([number]) * 10) for number in range(3))
    blob(store, first, 10)  # used again
    fourth = put(store, b"4" * 10)
    assert second not in store
    assert all(each in store for each in (first, third, fourth))
    assert store.bytes == 30


def test_a_content_in_use_is_not_evicted(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "store"), 20)
    first, second = put(store, b"1" * 10), put(store, b"2" * 10)
    store.pin([first, second])
    with pytest.raises(BlobRoom, match="at most 20 bytes, of which 20 are in use"):
        put(store, b"3" * 10)
    store.unpin([second])
    put(store, b"3" * 10)
    assert first in store
    assert second not in store


def test_a_later_process_has_the_contents_and_notices_a_damaged_one(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "store"), 1_000)
    good, bad = put(store, b"good"), put(store, b"bad!")
    store.close()
    (path,) = (tmp_path / "store" / bad.hex()[:2]).iterdir()
    path.write_bytes(b"BAD!")
    (tmp_path / "store" / bad.hex()[:2] / "stranger").write_bytes(b"x")
    later = BlobStore(str(tmp_path / "store"), 1_000)
    assert later.bytes == 8
    assert blob(later, good, 4) == b"good"
    with pytest.raises(KeyError):
        blob(later, bad, 4)
    assert bad not in later


def test_a_later_process_with_less_room_evicts_the_longest_unused(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "store"), 1_000)
    old, new = put(store, b"old!"), put(store, b"new!")
    os.utime(tmp_path / "store" / old.hex()[:2] / old.hex()[2:], (1, 1))
    later = BlobStore(str(tmp_path / "store"), 4)
    assert new in later
    assert old not in later


def test_the_pieces_of_a_driver_that_has_left_are_dropped(tmp_path: Path) -> None:
    store = BlobStore(str(tmp_path / "store"), 1_000)
    store.put("ada", sha256(b"hello world").digest(), 0, 11, b"hello ")
    store.forget("ada")
    assert not os.listdir(tmp_path / "store" / "incoming")
