"""A node's answers about sent workspaces, without Ray."""

import os
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from toolcell.cluster.link import pack, unpack
from toolcell.cluster.sent.manifest import TreeManifest
from toolcell.cluster.sent.seat_files import DONE, FAILED, LACKS, NO_COPY, NO_ROOM, NodeFiles, SeatFiles
from toolcell.workplaces.diff import ReceivedDiff
from toolcell.workplaces.listing import TreeEntry

pytestmark = pytest.mark.anyio
BOUNDS = [1_000_000, 1_000]


@pytest.fixture
def files(tmp_path: Path) -> NodeFiles:
    return NodeFiles(str(tmp_path / "nodes"), 10_000)


@pytest.fixture
async def seat(files: NodeFiles) -> AsyncIterator[SeatFiles]:
    ended: list[str] = []

    async def quiet(sessions: Sequence[str]) -> None:
        ended.extend(sessions)

    made = SeatFiles(files, "ada", quiet)
    made.__dict__["ended"] = ended
    yield made
    await made.end()
    files.close()


def tree(**contents: bytes) -> TreeManifest:
    entries = [TreeEntry(name, "file", 0o644, len(raw), sha256(raw).digest()) for name, raw in contents.items()]
    return TreeManifest(entries)


def opening(manifest: TreeManifest, id: str = "one") -> list[Any]:
    return ["open", id, "project", [manifest.digest], [], BOUNDS]


async def put(seat: SeatFiles, *contents: bytes) -> None:
    pieces = [[sha256(raw).digest(), 0, len(raw), raw] for raw in contents]
    assert (await seat.handle(["put"], pack(pieces)))[0] == DONE


async def opened(seat: SeatFiles, id: str = "one", **contents: bytes) -> Path:
    manifest = tree(**contents)
    await put(seat, manifest.packed(), *contents.values())
    status, path = await seat.handle(opening(manifest, id), b"")
    assert status == DONE
    return Path(path)


async def test_a_node_says_what_it_lacks_first_the_tree_then_its_contents(seat: SeatFiles) -> None:
    manifest = tree(a=b"1", b=b"2", empty=b"")
    assert await seat.handle(opening(manifest), b"") == [LACKS, [manifest.digest]]
    await put(seat, manifest.packed(), b"1")
    assert await seat.handle(opening(manifest), b"") == [LACKS, [sha256(b"2").digest()]]
    await put(seat, b"2")
    status, path = await seat.handle(opening(manifest), b"")
    assert status == DONE
    assert {name: Path(path, name).read_bytes() for name in os.listdir(path)} == {"a": b"1", "b": b"2", "empty": b""}
    assert await seat.handle(opening(manifest), b"") == [DONE, path]


async def test_two_sessions_have_two_copies_and_a_copy_ends_with_its_session(seat: SeatFiles) -> None:
    first, second = await opened(seat, "one", a=b"1"), await opened(seat, "two", a=b"1")
    (first / "a").write_bytes(b"changed")
    assert (second / "a").read_bytes() == b"1"
    await seat.handle(["drop", "one"], b"")
    assert not first.parent.exists()
    assert second.exists()


async def test_changes_are_reported_once_after_the_sessions_have_ended(seat: SeatFiles) -> None:
    path = await opened(seat, a=b"1")
    (path / "a").write_bytes(b"other")
    status, raw = await seat.handle(["changes", "one", ["s1", "s2"]], b"")
    received = ReceivedDiff.from_wire(unpack(raw), {}, {})
    assert (status, list(received.made), seat.__dict__["ended"]) == (DONE, ["a"], ["s1", "s2"])
    wanted = [[sha256(b"other").digest(), 0, 3], [sha256(b"other").digest(), 3, 2]]
    assert await seat.handle(["get", wanted], b"") == [DONE, b"oth", b"er"]
    await seat.handle(["settle", "one", ["a"]], b"")
    assert ReceivedDiff.from_wire(unpack((await seat.handle(["changes", "one", []], b""))[1]), {}, {}).made == {}


async def test_requests_for_a_missing_copy_are_refused(seat: SeatFiles) -> None:
    assert (await seat.handle(["changes", "none", []], b""))[0] == NO_COPY
    assert (await seat.handle(["add", "none"], pack([["a", b"x"]])))[0] == NO_COPY


async def test_contents_that_do_not_fit_are_refused_and_a_dropped_opening_gives_its_room_back(seat: SeatFiles) -> None:
    manifest = tree(a=b"a" * 6_000)
    await seat.handle(opening(manifest), b"")
    await put(seat, manifest.packed(), b"a" * 6_000)
    other = b"b" * 6_000
    piece = pack([[sha256(other).digest(), 0, 6_000, other]])
    await seat.handle(opening(tree(a=b"a" * 6_000, c=b"c"), "two"), b"")  # keeps nothing that is not there
    assert (await seat.handle(opening(manifest), b""))[0] == DONE
    status, _put = await seat.handle(["put"], piece)
    assert status == DONE  # the copy is made, so its contents may be evicted
    assert (await seat.handle(opening(tree(x=b"x" * 11_000), "large"), b""))[0] == LACKS
    large = tree(x=b"x" * 11_000)
    await put(seat, large.packed())
    status, why = await seat.handle(opening(large, "large"), b"")
    assert (status, "at most 10,000" in why) == (FAILED, True)


async def test_contents_of_an_opening_are_kept_until_it_is_dropped(seat: SeatFiles) -> None:
    manifest = tree(a=b"a" * 6_000, b=b"b" * 3_000)
    await put(seat, manifest.packed(), b"a" * 6_000)
    assert (await seat.handle(opening(manifest), b""))[0] == LACKS
    piece = pack([[sha256(b"c" * 6_000).digest(), 0, 6_000, b"c" * 6_000]])
    assert (await seat.handle(["put"], piece))[0] == NO_ROOM
    await seat.handle(["drop", "one"], b"")
    assert (await seat.handle(["put"], piece))[0] == DONE


async def test_a_damaged_content_and_a_tree_that_is_none_are_refused(seat: SeatFiles) -> None:
    assert (await seat.handle(["put"], pack([[b"\0" * 32, 0, 1, b"x"]])))[0] == FAILED
    evil = pack([["../evil", 0, 0o644, 0, sha256(b"").digest(), 0]])
    await put(seat, evil)
    request = ["open", "one", "project", [sha256(evil).digest()], [], BOUNDS]
    assert (await seat.handle(request, b""))[0] == FAILED


async def test_nothing_of_a_driver_that_has_left_stays_but_contents(files: NodeFiles, tmp_path: Path) -> None:
    async def quiet(_sessions: Sequence[str]) -> None: ...

    seat = SeatFiles(files, "bob", quiet)
    path = await opened(seat, a=b"1")
    await seat.end()
    assert not path.parent.exists()
    assert (await seat.handle(opening(tree(a=b"1"), "late"), b""))[0] == NO_COPY
    assert list(tmp_path.glob("nodes/0/copies/*")) == []
    assert sha256(b"1").digest() in files.opened()[1]
    files.close()
