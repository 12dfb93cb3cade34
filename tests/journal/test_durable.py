"""The durable journal: what it finds after a kill, and what happens if its files are damaged, lost or full."""

import errno
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.helpers import PATIENCE_S

from toolcell.store.journal import RecentJournal, Record
from toolcell.store.journal.durable import DurableJournal, interrupted
from toolcell.store.journal.entries import PREFIX, BrokenChain
from toolcell.store.journal.reading import Index, JournalReader

from .records import end, intent, kinds, opened


def test_calls_without_an_end_are_found_with_what_is_known_of_them() -> None:
    refused = Record("denied", "main-1", "b", {"operation": "memory.store"})  # of an operation, so it ends no call
    records = [intent("a"), intent("b"), refused, intent("c"), Record("queued", "main-1", "c"), end("a")]
    assert [(record.call_id, sent) for record, sent in interrupted(records)] == [
        ("b", "outcome unknown"),
        ("c", "not started"),
    ]
    sent = [*records, Record("sent", "main-1", "c")]
    assert [(record.call_id, sent) for record, sent in interrupted(sent)] == [
        ("b", "outcome unknown"),
        ("c", "outcome unknown"),
    ]


@pytest.mark.parametrize(
    ("facts", "operations", "outcome"),
    [
        ({"grants": ["read"], "placement": "cell"}, [], "finished"),
        ({"grants": ["read", "memory.write"], "placement": "cell"}, [False], "finished"),
        ({"grants": ["read", "memory.write"], "placement": "cell"}, [False, True], "outcome unknown"),
        ({"grants": ["write"], "placement": "cell"}, [], "outcome unknown"),
        ({"grants": ["net"], "placement": "cell"}, [], "outcome unknown"),
        ({"grants": [], "placement": "host"}, [], "outcome unknown"),
        ({"grants": []}, [], "outcome unknown"),
    ],
)
def test_a_call_that_can_have_done_nothing_that_lasts_is_told_apart(
    facts: dict[str, object], operations: list[bool], outcome: str
) -> None:
    asked = Record("intent", "main-1", "a", {"tool": "echo", "version": "1.0.0", "attempt": 1, **facts})
    used = [Record("operation", "main-1", "a", {"operation": "memory", "effect": effect}) for effect in operations]
    assert interrupted([asked, *used]) == [(asked, outcome)]


def test_an_interrupted_call_is_recorded_once(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    journal.intend(intent("a"))
    journal._log.close()  # as a kill leaves it: without the index, and without the end
    again, found = opened(tmp_path)
    assert found == {"a": "outcome unknown"}
    again.close(0)
    third, found = opened(tmp_path)
    assert found == {}
    third.close(0)
    journal.give_up()


def test_a_start_that_was_killed_before_it_settled_the_keys_forgets_no_end(tmp_path: Path) -> None:
    """Otherwise the key of the call would be free again, and the call would be made twice."""
    journal, _found = opened(tmp_path)
    journal.intend(intent("a"))
    journal.give_up()
    for _start in range(3):
        again = DurableJournal(tmp_path / "log", tmp_path / "index", RecentJournal())
        again.open()
        with closing(again.past()) as past:
            end = again.end_of(past, "main-1", "a", 0)
            assert end is not None and end["outcome"] == "outcome unknown"
            assert again.end_of(past, "main-1", "never sent", 0) is None
        again.begin(0)
        again.give_up()


@pytest.mark.parametrize("first", ["1", "2"])
def test_no_approval_is_given_back_where_two_calls_had_one_id(tmp_path: Path, first: str) -> None:
    """Nothing tells which of them began with which answer."""
    journal, _found = opened(tmp_path)
    for request in ("1", "2"):
        journal.write(Record("approval", "main-1", "a", {"event": "asked", "request": request, "answer": ""}))
    for request in (first, "1" if first == "2" else "2"):
        answered = {"event": "answered", "request": request, "answer": "approved", "used": True}
        journal.write(Record("approval", "main-1", "a", answered))
        if request == first:
            journal.intend(intent("a"))
    journal.give_up()
    again, _found = opened(tmp_path)
    assert not again.given_back and not again.waited
    again.give_up()


def test_an_id_that_several_calls_had_has_the_end_with_the_most_effect(tmp_path: Path) -> None:
    """Otherwise a later call that was refused would free the key of one that ran."""
    journal, _found = opened(tmp_path)
    journal.write(end("a"))
    journal.write(Record("denied", "main-1", "a", {"tool": "echo", "error": "denied", "outcome": "not started"}))
    journal.intend(intent("b"))
    journal.write(Record("approval", "main-1", "b", {"event": "asked", "request": "r", "answer": ""}))
    journal.close(0)
    again = DurableJournal(tmp_path / "log", tmp_path / "index", RecentJournal())
    again.open()
    with closing(again.past()) as past:
        done, cut = (again.end_of(past, "main-1", call, 0) for call in ("a", "b"))
    assert done is not None and done["error"] is None
    assert cut is not None and cut["outcome"] == "outcome unknown"
    again.give_up()


def test_the_index_is_made_again_if_it_is_lost(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    journal.write(end("a"))
    journal.close(0)
    for name in ("index", "index-wal", "index-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    again, _found = opened(tmp_path)
    again.close(0)
    reader = JournalReader(tmp_path / "log", tmp_path / "index")
    found = reader.records("kind = ?", ("call",), wanted=lambda record: record.kind == "call", last=10)
    assert [record.call_id for _number, record in found] == ["a"]


def test_what_a_power_failure_has_cut_off_is_set_aside(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    journal.write(end("a"))
    journal.close(0)
    before = kinds(tmp_path)
    with open(tmp_path / "log", "ab") as file:
        file.write(b"\0\0\1\0half")
    again, _found = opened(tmp_path)
    again.close(0)
    assert kinds(tmp_path) == [*before, "supervisor", "supervisor"]
    (aside,) = tmp_path.glob("log.cut-*")
    assert aside.read_bytes() == b"\0\0\1\0half" and aside.stat().st_mode & 0o777 == 0o600


def test_a_log_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    journal.write(end("a"))
    journal.close(0)
    os.truncate(tmp_path / "log", 40)
    with pytest.raises(BrokenChain, match="the log ends at byte 40, and index goes on"):
        opened(tmp_path)


def test_another_log_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        journal, _found = opened(tmp_path / name)
        journal.write(end(name))
        journal.close(0)
    with open(tmp_path / "one" / "log", "ab") as file:  # so that it is not shorter
        file.write((tmp_path / "other" / "log").read_bytes())
    with pytest.raises(BrokenChain):
        opened(tmp_path / "one")


def test_a_full_disk_refuses_intents_and_leaves_the_chain_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.store.journal.log.SYNC_S", 100.0)  # /dev/full cannot be synchronised
    journal, _found = opened(tmp_path)
    fd, journal._log._fd = journal._log._fd, os.open("/dev/full", os.O_WRONLY)
    assert "cannot be written: No space left on device. Free space there." in journal.intend(intent("a"))
    journal.write(end("b"))
    assert "No space left" in journal.failure
    os.close(journal._log._fd)
    journal._log._fd = fd
    assert journal.intend(intent("c")) == ""
    journal.close(0)
    assert kinds(tmp_path) == ["supervisor", "intent", "call", "supervisor"], "the end of b is written later"
    JournalReader(tmp_path / "log", tmp_path / "index").verify()


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (errno.EIO, "Input/output error. Look at the disk."),
        (errno.EROFS, "mount it so that it can be written."),
        (errno.EDQUOT, "The user's quota is used up: free space there."),
        (errno.EFBIG, "The limit on the size of files is reached"),
    ],
)
def test_each_error_of_the_disk_has_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, cure: str
) -> None:
    def fails(fd: int, data: bytes) -> int:
        os.write(fd, data[:10])  # as on a file system that tells of an error after a part
        raise OSError(error, os.strerror(error))

    journal, _found = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("toolcell.store.journal.log.write", fails)
        why = journal.intend(intent("a"))
    assert cure in why and "Free space there" not in why
    assert journal.intend(intent("b")) == "", "nothing is left of the first"
    journal.close(0)
    assert kinds(tmp_path) == ["supervisor", "intent", "supervisor"]


def test_a_call_was_sent_even_if_the_record_of_its_waiting_was_written_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.store.journal.log.SYNC_S", 100.0)  # /dev/full cannot be synchronised
    journal, _found = opened(tmp_path)
    journal.intend(intent("a"))
    fd, journal._log._fd = journal._log._fd, os.open("/dev/full", os.O_WRONLY)
    journal.write(Record("queued", "main-1", "a"))
    os.close(journal._log._fd)
    journal._log._fd = fd
    assert journal.announce(Record("sent", "main-1", "a"))
    journal.close(0)
    records = [entry.record for entry in JournalReader(tmp_path / "log", tmp_path / "index").entries()]
    assert [record.kind for record in records] == ["supervisor", "intent", "sent", "queued", "supervisor"]
    assert [outcome for _intent, outcome in interrupted(records)] == ["outcome unknown"]


def test_no_call_begins_before_the_use_of_its_approval_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for the short record, and none for the long one."""
    room = 1_000

    def bounded(fd: int, data: bytes) -> int:
        if len(data) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(fd, data)

    journal, _found = opened(tmp_path)
    monkeypatch.setattr("toolcell.store.journal.log.write", bounded)
    journal.write(Record("approval", "main-1", "a", {"request": "r", "used": True, "reason": "x" * 2_000}))
    assert "No space left" in journal.intend(intent("a"))
    room = 10_000
    assert journal.intend(intent("a")) == ""
    monkeypatch.undo()
    journal.close(0)
    assert kinds(tmp_path) == ["supervisor", "approval", "intent", "supervisor"]


def test_zeros_that_a_power_failure_has_left_are_set_aside(tmp_path: Path) -> None:
    """Some file systems make a file longer before its data is on the disk. What is missing then reads as zeros."""
    journal, _found = opened(tmp_path)
    journal.write(end("a"))
    journal.close(0)
    before = kinds(tmp_path)
    size = (tmp_path / "log").stat().st_size
    for rest in (bytes(5_000), PREFIX.pack(9_000, bytes(range(32))) + bytes(range(256)) * 2 + bytes(12_000)):
        with open(tmp_path / "log", "r+b") as file:
            file.truncate(size)
            file.seek(size)
            file.write(rest)
        for name in ("index", "index-wal", "index-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        again, _found = opened(tmp_path)
        again.close(0)
        assert kinds(tmp_path) == [*before, "supervisor", "supervisor"]
        assert b"".join(path.read_bytes() for path in tmp_path.glob("log.cut-*")) == rest
        for path in tmp_path.glob("log.cut-*"):
            path.unlink()


def test_a_log_that_somebody_has_made_huge_is_damage_and_is_not_read_to_its_end(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    journal.close(0)
    os.truncate(tmp_path / "log", 50 * 2**30)
    with pytest.raises(BrokenChain, match="does not fit its digest"):
        JournalReader(tmp_path / "log", tmp_path / "index").verify()
    with pytest.raises(BrokenChain, match="does not fit its digest"):
        opened(tmp_path)


def test_zeros_in_the_middle_are_damage(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    for number in range(200):
        journal.write(end(f"call-{number}"))
    journal.close(0)
    with open(tmp_path / "log", "r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))
    with pytest.raises(BrokenChain):
        JournalReader(tmp_path / "log", tmp_path / "index").verify()


def index_of(place: Path) -> Index:
    """The index, once the thread that fills it has made it."""
    while True:
        try:
            return Index(place / "index", to_write=False)
        except sqlite3.Error:
            time.sleep(0.05)


def test_the_index_has_no_record_that_a_power_failure_could_take_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.store.journal.log.SYNC_S", 100.0)
    journal, _found = opened(tmp_path)
    synced = (tmp_path / "log").stat().st_size  # the record of the start is not synchronised
    journal.write(end("a"))
    time.sleep(1.0)  # four times as long as the index needs
    with closing(index_of(tmp_path)) as index:
        assert index.size < synced and index.head.number == 0
    os.truncate(tmp_path / "log", 0)  # as a power failure may leave it
    again, _found = opened(tmp_path)
    again.close(0)
    JournalReader(tmp_path / "log", tmp_path / "index").verify()
    journal.close(0)


def test_a_log_that_was_replaced_by_that_of_another_supervisor_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        journal, _found = opened(tmp_path / name)
        for number in range(9):
            journal.write(end(f"{name}-{number}"))
        journal.close(0)
        again, _found = opened(tmp_path / name)  # the index takes everything
        again.close(0)
    (tmp_path / "one" / "log").write_bytes((tmp_path / "other" / "log").read_bytes() * 2)
    with pytest.raises(BrokenChain, match="this is another log") as found:
        opened(tmp_path / "one")
    assert "remove index: it is made again" in found.value.cure
    (tmp_path / "one" / "log").unlink()
    with pytest.raises(BrokenChain, match="log was removed, and index was not"):
        opened(tmp_path / "one")


def test_calls_of_one_id_at_the_same_time_are_counted() -> None:
    records = [intent("a"), intent("a"), end("a")]
    assert [(record.call_id, sent) for record, sent in interrupted(records)] == [("a", "outcome unknown")]
    refused = Record("call", "main-1", "a", {"tool": "echo", "error": "validation", "intended": False})
    assert len(interrupted([intent("a"), refused])) == 1, "a refused call of the same id ends no other"
    asked = Record("approval", "main-1", "a", {"event": "asked", "tool": "echo", "version": "1.0.0"})
    assert interrupted([asked, refused]) == []
    assert [record.kind for record, _sent in interrupted([asked, intent("a")])] == ["intent"]


def test_the_calls_that_were_killed_are_found_among_many_that_were_not(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    for number in range(500):
        journal.intend(intent(f"call-{number}"))
        if number not in (7, 250):
            journal.write(end(f"call-{number}"))
    journal.intend(intent("call-8"))  # the same id again
    journal.give_up()
    again, found = opened(tmp_path)
    assert set(found) == {"call-7", "call-250", "call-8"}
    again.close(0)


def test_an_index_that_cannot_be_filled_for_a_while_is_filled_later(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    index_of(tmp_path).close()
    written = 0
    with closing(sqlite3.connect(tmp_path / "index", isolation_level=None, timeout=PATIENCE_S)) as database:
        while not (failure := journal.failure):
            database.execute("PRAGMA user_version = 1")  # whatever another program does
            database.execute("DROP TABLE IF EXISTS records")
            journal.write(end(f"call-{written}"))
            written += 1
            time.sleep(0.2)
    assert "index" in failure
    while journal.failure:
        time.sleep(0.05)
    journal.close(0)
    reader = JournalReader(tmp_path / "log", tmp_path / "index")
    assert reader.verify().number == 2 + written
