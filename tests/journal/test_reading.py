"""Reading a journal that another process may write: the index and the log as one, and what is not as it was."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolcell import UsageError
from toolcell.store.journal.entries import BrokenChain
from toolcell.store.journal.reading import JournalReader

from .records import end, opened


def test_records_that_the_index_does_not_have_come_from_the_log(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    for name in ("a", "b", "c"):
        journal.write(end(name))
    journal.close(0)
    reader = JournalReader(tmp_path / "log", tmp_path / "no index")
    found = reader.records("kind = ?", ("call",), wanted=lambda record: record.kind == "call", last=10)
    assert [record.call_id for _number, record in found] == ["a", "b", "c"]
    last = reader.records("kind = ?", ("call",), wanted=lambda record: record.kind == "call", last=2)
    assert [record.call_id for _number, record in last] == ["b", "c"]


def test_verify_notices_a_shorter_log_by_a_head_that_was_kept(tmp_path: Path) -> None:
    journal, _found = opened(tmp_path)
    journal.write(end("a"))
    first = JournalReader(tmp_path / "log", tmp_path / "index").verify()
    journal.write(end("b"))
    journal.close(0)
    reader = JournalReader(tmp_path / "log", tmp_path / "index")
    known = reader.verify(first)
    last = list(reader.entries())[-2]
    os.truncate(tmp_path / "log", last.end)
    with pytest.raises(BrokenChain, match="the log ends before the head"):
        reader.verify(known)
    with pytest.raises(BrokenChain, match="index has it, and the log has not"):
        reader.verify()
    for name in ("index", "index-wal", "index-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    assert reader.verify(first).number == last.head.number
    with pytest.raises(BrokenChain, match="the log ends before"):
        reader.verify(known)


def test_verify_compares_the_index_with_the_log(tmp_path: Path) -> None:
    """`audit list` and `audit show` read the index."""
    journal, _found = opened(tmp_path)
    journal.write(end("a"))
    journal.close(0)
    again, _found = opened(tmp_path)
    again.close(0)
    reader = JournalReader(tmp_path / "log", tmp_path / "index")
    reader.verify()
    with closing(sqlite3.connect(tmp_path / "index", isolation_level=None)) as database:
        database.execute("UPDATE records SET data = replace(data, 'echo', 'other') WHERE call = 'a'")
    with pytest.raises(BrokenChain, match="has another row in index") as found:
        reader.verify()
    assert "Remove index while no supervisor runs" in found.value.cure


def test_a_directory_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no journal at .*log'\. Pass the directory"):
        JournalReader(tmp_path / "log", tmp_path / "index")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[JournalReader]:
    """Of a journal whose index lacks its last records."""
    journal, _found = opened(tmp_path)
    for name in ("a", "b"):
        journal.write(end(name))
    journal.close(0)
    again, _found = opened(tmp_path)  # the index takes everything
    again.write(end("c"))
    again._log.close()
    yield JournalReader(tmp_path / "log", tmp_path / "index")
    again.give_up()


@pytest.mark.parametrize(("last", "calls"), [(1, ["c"]), (2, ["b", "c"]), (9, ["a", "b", "c"])])
def test_the_last_records_are_those_of_the_index_and_then_those_of_the_log(
    reader: JournalReader, last: int, calls: list[str]
) -> None:
    found = reader.records("kind = ?", ("call",), wanted=lambda record: record.kind == "call", last=last)
    assert [record.call_id for _number, record in found] == calls
    numbers = [number for number, _record in found]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("damage", [b"no database", b""], ids=["damaged", "empty"])
def test_a_damaged_index_hides_no_record(reader: JournalReader, tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "index-wal").unlink(missing_ok=True)
    (tmp_path / "index").write_bytes(damage)
    found = reader.records("kind = 'call'", wanted=lambda record: record.kind == "call", last=9)
    assert [record.call_id for _number, record in found] == ["a", "b", "c"]


def test_a_follower_gets_what_is_written_from_now_on_and_notices_another_log(
    reader: JournalReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _found = opened(tmp_path)
    happenings: Iterator[Callable[[], None]] = iter(
        [lambda: journal.write(end("d")), lambda: os.truncate(tmp_path / "log", 40)]
    )
    between = SimpleNamespace(sleep=lambda _seconds: next(happenings)())  # two looks
    monkeypatch.setattr("toolcell.store.journal.reading.time", between)
    followed = reader.follow(lambda record: record.kind == "call")
    assert next(followed)[1].call_id == "d"
    with pytest.raises(BrokenChain, match="the log was replaced or cut"):
        next(followed)
    journal.give_up()
