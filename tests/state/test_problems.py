"""What is said of a state directory that cannot be used."""

import errno
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from toolcell.store.journal.chain import BrokenChain
from toolcell.store.state import StateDirectory
from toolcell.store.state.problems import unusable_state


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path)


def test_a_damaged_journal_is_said_with_its_own_cure(state: StateDirectory) -> None:
    said = unusable_state(state, BrokenChain("is not complete", 3, 40, "Restore a copy of journal.log."))
    assert said.startswith(f"The state directory {str(state.path)!r} cannot be used: the journal is damaged. ")
    assert said.endswith("Restore a copy of journal.log. See `toolcell audit verify`.")


def test_an_error_of_the_system_names_its_file_and_its_cure(state: StateDirectory) -> None:
    said = unusable_state(state, OSError(errno.ENOSPC, "No space left on device", "/state/results.sqlite"))
    assert said.endswith("cannot be used: No space left on device (/state/results.sqlite). Free space there.")
    assert unusable_state(state, OSError("odd")).endswith("cannot be used: odd. Look at the disk.")


def damage(state: StateDirectory) -> None:
    state.approvals.write_bytes(b"no database at all" * 100)


def other_tables(state: StateDirectory) -> None:
    with closing(sqlite3.connect(state.approvals)) as database:
        database.execute("CREATE TABLE theirs (x)")


@pytest.mark.parametrize("spoil", [damage, other_tables])
def test_the_database_that_is_damaged_is_named(state: StateDirectory, spoil: Callable[[StateDirectory], None]) -> None:
    with closing(sqlite3.connect(state.results)) as database:
        database.execute("CREATE TABLE calls (at REAL, result BLOB)")
    spoil(state)
    said = unusable_state(state, sqlite3.OperationalError("no such table: requests"))
    assert "cannot be used: approvals.sqlite: no such table: requests. Restore a copy of approvals.sqlite" in said


def test_a_database_that_is_only_locked_is_not_called_damaged(state: StateDirectory) -> None:
    with closing(sqlite3.connect(state.results)) as one, closing(sqlite3.connect(state.results, timeout=0)) as other:
        one.execute("PRAGMA journal_mode = WAL")  # as ours
        one.execute("CREATE TABLE calls (at REAL, result BLOB)")
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError) as found:
            other.execute("BEGIN EXCLUSIVE")
        said = unusable_state(state, found.value)
    assert said.endswith("cannot be used: database is locked. Another program holds its lock: end that program.")


def test_a_database_that_is_still_empty_is_not_called_damaged(state: StateDirectory) -> None:
    state.sessions.touch()
    assert "sessions.sqlite" not in unusable_state(state, sqlite3.OperationalError("disk I/O error"))


def test_no_database_is_made_by_looking(state: StateDirectory) -> None:
    unusable_state(state, sqlite3.OperationalError("disk I/O error"))
    assert list(state.path.iterdir()) == []
