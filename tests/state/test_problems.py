"""What is said of a state directory that cannot be used."""

import errno
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from toolcell.store.cures import unusable_state
from toolcell.store.journal.entries import BrokenChain


def test_a_damaged_journal_is_said_with_its_own_cure(tmp_path: Path) -> None:
    damage = BrokenChain("is not complete", 3, 40, "Restore a copy of journal.log.")
    said = unusable_state(tmp_path, "state.sqlite", damage)
    assert said.startswith(f"The state directory {str(tmp_path)!r} cannot be used: the journal is damaged. ")
    assert said.endswith("Restore a copy of journal.log. See `toolcell audit verify`.")


def test_an_error_of_the_system_names_its_file_and_its_cure(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/state/key")
    said = unusable_state(tmp_path, "state.sqlite", full)
    assert said.endswith("cannot be used: No space left on device (/state/key). Free space there.")
    assert unusable_state(tmp_path, "x", OSError("odd")).endswith("cannot be used: odd. Look at the disk.")


def test_a_damaged_database_is_named_with_what_is_lost_without_it(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_bytes(b"no database at all" * 100)
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as database, pytest.raises(sqlite3.Error) as found:
        database.execute("SELECT * FROM sqlite_master")
    said = unusable_state(tmp_path, "state.sqlite", found.value)
    assert "cannot be used: state.sqlite: file is not a database. Restore a copy of state.sqlite, or move it" in said


def test_a_database_that_is_only_locked_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path, timeout=0)) as other:
        one.execute("PRAGMA journal_mode = WAL")  # as ours
        one.execute("CREATE TABLE calls (at REAL, result BLOB)")
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError) as found:
            other.execute("BEGIN EXCLUSIVE")
        said = unusable_state(tmp_path, "state.sqlite", found.value)
    assert said.endswith(
        "cannot be used: state.sqlite: database is locked. Another program holds its lock: end that program."
    )
