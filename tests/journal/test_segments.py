"""A log that is cut into segments: the chain goes on, readers see one log, and the oldest are removed."""

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import PATIENCE_S

from toolcell.store.journal import RecentJournal, Record
from toolcell.store.journal.durable import DurableJournal
from toolcell.store.journal.entries import BrokenChain, Head, entry_of, new_packer
from toolcell.store.journal.log import SEGMENTS, JournalFull, JournalLog
from toolcell.store.journal.reading import JournalReader
from toolcell.store.journal.segments import KIND, LogFile, closed_segments

SIZE = 1_000
MOST = SIZE * SEGMENTS


def record(number: int) -> Record:
    return Record("call", "s", f"c{number}", {"number": number, "text": "x" * 50})


def rotate(log: JournalLog) -> None:
    log._rotate()  # pyright: ignore[reportPrivateUsage] - the thread does it once a second


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JournalLog]:
    monkeypatch.setattr("toolcell.store.journal.log.SYNC_S", 100.0)  # only the test rotates, and not the log's thread
    made = JournalLog(tmp_path / "log", (), MOST)
    assert list(made.open()) == []
    yield made
    made.close()


def numbers(place: Path) -> list[int]:
    found = JournalReader(place / "log", place / "index").entries()
    return [each.record.data["number"] for each in found if each.record.kind != KIND]


def filled(log: JournalLog, segments: int = 3, each: int = 5) -> Head:
    for segment in range(segments):
        for number in range(each):
            log.append(record(segment * each + number))
        if segment < segments - 1:
            rotate(log)
    return log.head


def test_readers_see_one_log_and_the_chain_goes_on(log: JournalLog, tmp_path: Path) -> None:
    head = filled(log)
    assert len(closed_segments(tmp_path / "log")) == 2
    assert numbers(tmp_path) == list(range(15))
    reader = JournalReader(tmp_path / "log", tmp_path / "index")
    assert reader.verify() == head == reader.verify(Head()) and head.number == 17
    with LogFile(tmp_path / "log") as file:
        assert file.seek(0, 2) == log.size
        file.seek(0)
        whole = file.read(log.size + 1)
    assert whole == b"".join(path.read_bytes() for path in [*sorted(tmp_path.glob("log.*")), tmp_path / "log"])


def test_a_writer_goes_on_after_any_segment(log: JournalLog, tmp_path: Path) -> None:
    head, size = filled(log), log.size
    log.close()
    again = JournalLog(tmp_path / "log", (), MOST)
    assert len(list(again.open())) == 17 and (again.head, again.size) == (head, size)
    again.append(record(15))
    again.close()
    assert numbers(tmp_path) == list(range(16))


@pytest.mark.parametrize("left", [b"", b"\0\0\0\x20half"])
@pytest.mark.parametrize("missing", [True, False])
def test_a_kill_between_two_segments_loses_nothing(log: JournalLog, tmp_path: Path, missing: bool, left: bytes) -> None:
    head = filled(log, segments=2)
    log.close()
    size = (tmp_path / "log").stat().st_size
    (tmp_path / "log").rename(tmp_path / f"log.{log.size - size:020d}")
    if not missing:
        (tmp_path / "log").write_bytes(left)
    again = JournalLog(tmp_path / "log", (), MOST)
    assert list(again.open())[-1].head == head
    again.append(record(10))
    again.close()
    assert numbers(tmp_path) == list(range(11))
    JournalReader(tmp_path / "log", tmp_path / "index").verify(head)


@pytest.mark.parametrize(
    "damage",
    [
        "oldest removed",
        "all closed removed",
        "middle removed",
        "cut",
        "renamed",
        "swapped",
        "changed",
        "of another log",
    ],
)
def test_what_was_done_to_a_segment_is_damage(log: JournalLog, tmp_path: Path, damage: str) -> None:
    filled(log, segments=4)
    log.close()
    first, second, third = (each.path for each in closed_segments(tmp_path / "log"))
    match damage:
        case "oldest removed":
            first.unlink()
        case "all closed removed":
            for each in (first, second, third):
                each.unlink()
        case "middle removed":
            second.unlink()
        case "cut":
            second.write_bytes(second.read_bytes()[:-10])
        case "renamed":
            first.rename(first.with_name("log.00000000000000000007"))
        case "swapped":
            one, other = second.read_bytes(), third.read_bytes()
            second.write_bytes(other)
            third.write_bytes(one)
        case "changed":
            second.write_bytes(second.read_bytes().replace(b"xxx", b"xyx", 1))
        case _:
            other_log = JournalLog(tmp_path / "other", (), MOST)
            list(other_log.open())
            filled(other_log, segments=4)
            other_log.close()
            shutil.copy(closed_segments(tmp_path / "other")[1].path, second)
    with pytest.raises(BrokenChain):
        JournalReader(tmp_path / "log", tmp_path / "index").verify()


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -5, 2**64 - 1, "9" * 500, None, [1], True])
def test_a_first_entry_that_says_nonsense_is_none_of_a_segment(tmp_path: Path, value: object) -> None:
    for name in ("number", "offset", "removable"):
        said = {"number": 0, "digest": "00" * 32, "offset": 0, "removable": 0, name: value}
        _digest, entry = entry_of(0, Head().digest, Record(KIND, "", data=said), new_packer())
        (tmp_path / "log").write_bytes(entry)
        assert JournalReader(tmp_path / "log", tmp_path / "index").verify().number == 1
        with LogFile(tmp_path / "log") as file:
            assert (file.head, file.begin, file.removable) == (Head(), 0, 0)


def test_the_oldest_segments_are_removed_at_the_bound_and_heads_of_them_are_refused(
    log: JournalLog, tmp_path: Path
) -> None:
    heads: list[Head] = []
    for number in range(200):
        log.append(record(number))
        heads.append(log.head)
        if number % 8 == 7:
            rotate(log)
    assert log.remove_oldest(0) == 0, "nothing that the index lacks"
    begin = log.remove_oldest(log.size)
    assert begin > 0 and log.size - begin <= MOST
    kept = numbers(tmp_path)
    assert kept == list(range(kept[0], 200)) and kept[0] > 100
    reader = JournalReader(tmp_path / "log", tmp_path / "index")
    assert reader.verify() == reader.verify(heads[190]) == reader.verify(reader.first()[0]) == log.head
    with pytest.raises(BrokenChain, match="not there any more") as error:
        reader.verify(heads[5])
    assert "journal_bytes" in error.value.cure
    log.close()
    again = JournalLog(tmp_path / "log", (), MOST)
    assert len(list(again.open())) > 40 and again.head == log.head
    again.close()


def test_a_follower_reads_on_in_the_next_segment(log: JournalLog, tmp_path: Path) -> None:
    filled(log, segments=1)
    following = JournalReader(tmp_path / "log", tmp_path / "index").follow(lambda record: record.kind == "call")
    found: list[int] = []
    import threading

    def read() -> None:
        for _number, each in following:
            found.append(each.data["number"])
            if each.data["number"] == 11:
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    while not found:  # it reads the log first
        log.append(record(-1))
        time.sleep(0.01)
    for number in range(5, 12):
        log.append(record(number))
        rotate(log)
    thread.join(PATIENCE_S)
    assert [number for number in found if number >= 0] == list(range(5, 12))


def test_a_disk_that_has_no_room_for_another_segment_keeps_the_one_that_is_open(
    log: JournalLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(log, segments=1)
    monkeypatch.setattr("toolcell.store.journal.log.write", lambda _fd, _data: 3)
    rotate(log)
    monkeypatch.undo()
    log.append(record(5))
    assert numbers(tmp_path) == list(range(6)) and not closed_segments(tmp_path / "log")
    assert not log.broken


def test_a_record_that_is_taken_back_leaves_no_hole_in_a_segment(
    log: JournalLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(fd: int, data: bytes) -> int:
        os.write(fd, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    filled(log, segments=2)
    with monkeypatch.context() as patched:
        patched.setattr("toolcell.store.journal.log.write", fails)
        with pytest.raises(JournalFull):
            log.append(record(10))
    log.append(record(10))
    assert numbers(tmp_path) == list(range(11))
    assert JournalReader(tmp_path / "log", tmp_path / "index").verify() == log.head


def test_a_directory_that_takes_no_other_name_keeps_the_segment_that_is_open(
    log: JournalLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_names: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    filled(log, segments=1)
    with monkeypatch.context() as patched:
        patched.setattr("os.rename", no_room)
        rotate(log)
    log.append(record(5))
    assert numbers(tmp_path) == list(range(6)) and not log.broken


def test_the_index_is_filled_from_all_segments_and_forgets_the_removed_ones(tmp_path: Path) -> None:
    def journal() -> DurableJournal:
        return DurableJournal(tmp_path / "log", tmp_path / "index", RecentJournal(), most_bytes=MOST)

    def rows() -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(tmp_path / "index")) as database:
            return database.execute("SELECT number, kind, call FROM records ORDER BY number").fetchall()

    first = journal()
    first.open()
    first.begin(0)
    first.write(Record("approval", "s", "paid", {"request": "r", "used": True}))
    first.intend(Record("intent", "s", "killed", {"tool": "t", "placement": "cell", "grants": []}))
    first.intend(Record("intent", "s", "acted", {"tool": "t", "placement": "cell", "grants": []}))
    for effect in (False, True):
        first.announce(Record("operation", "s", "acted", {"operation": "memory.store", "effect": effect}))
    own = first._log  # pyright: ignore[reportPrivateUsage]
    for number in range(200):
        first.write(record(number))
        if number % 8 == 7:
            rotate(own)
    deadline = time.monotonic() + PATIENCE_S
    while own.size - closed_segments(tmp_path / "log")[0].begin > MOST and time.monotonic() < deadline:
        first.write(record(200))
        time.sleep(0.3)
    first.give_up()  # as if it was killed
    kept = rows()
    assert [row[1:] for row in kept[:5]] == [
        ("supervisor", ""),
        ("approval", "paid"),
        *[("intent", "killed"), ("intent", "acted"), ("operation", "acted")],
    ]
    assert kept[5][0] > 100
    again = journal()
    again.open()
    again.begin(0)
    with closing(again.past()) as past:
        assert past.approvals().used == {"r"} and not again.has_gap
    again.close(0)
    found = [each.record for each in JournalReader(tmp_path / "log", tmp_path / "index").entries()]
    ends = [(each.call_id, each.data["outcome"]) for each in found if each.data.get("error") == "interrupted"]
    assert sorted(ends) == [("acted", "outcome unknown"), ("killed", "finished")], "an effect is not forgotten"
    JournalReader(tmp_path / "log", tmp_path / "index").verify()
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"index{end}").unlink(missing_ok=True)
    last = journal()
    last.open()
    last.begin(0)
    assert last.has_gap, "the approvals of removed segments are lost"
    (tmp_path / "index").write_bytes(b"damaged" * 1000)
    last.write(record(201))
    until = time.monotonic() + PATIENCE_S
    while "removed segments" not in last.failure and time.monotonic() < until:
        time.sleep(0.1)
    assert "start the supervisor again" in last.failure
    last.close(0)
    last = journal()
    last.open()
    last.begin(0)
    assert last.has_gap
    last.close(0)
    JournalReader(tmp_path / "log", tmp_path / "index").verify()
    assert rows()[0][0] > 100
