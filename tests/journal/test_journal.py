"""The journal in memory: the last records, and fewer where tools log much."""

from toolcell import RecentJournal
from toolcell.store.journal import Record
from toolcell.wire.budget import memory_of


def log(number: int, size: int) -> Record:
    return Record("log", "s", str(number), {"message": f"{number:0{size}}"})


def test_the_last_records_are_kept_oldest_first() -> None:
    journal = RecentJournal(3)
    for number in range(5):
        journal.write(Record("call", "s", str(number)))
    assert [record.call_id for record in journal] == ["2", "3", "4"]


def test_what_tools_log_takes_no_more_memory_than_its_bound() -> None:
    journal = RecentJournal(1000, log_bytes=50_000)
    for number in range(200):
        journal.write(log(number, 1_000))
        journal.write(Record("call", "s", str(number)))
        assert sum(memory_of(record.data) for record in journal if record.kind == "log") <= 50_000
    assert 60 < len(journal) < 100
    assert [record.call_id for record in journal][-4:] == ["198", "198", "199", "199"]


def test_a_log_that_is_larger_than_the_bound_is_the_only_one() -> None:
    journal = RecentJournal(1000, log_bytes=50_000)
    journal.write(log(1, 10))
    journal.write(log(2, 100_000))
    assert [record.call_id for record in journal] == ["2"]
    journal.write(log(3, 10))
    assert [record.call_id for record in journal] == ["3"]


def test_logs_that_have_left_by_their_number_are_not_counted() -> None:
    journal = RecentJournal(10, log_bytes=50_000)
    for number in range(30):
        journal.write(log(number, 1_000))
        journal.write(log(number, 1_000))
    assert len(journal) == 10
    for number in range(10):
        journal.write(Record("call", "s", str(number)))
    journal.write(log(99, 45_000))
    assert len(journal) == 10
