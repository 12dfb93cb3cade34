"""The store of suspended sessions: signed rows, and what goes with a session."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from toolcell import UsageError
from toolcell.store.database import Database
from toolcell.store.schema import SESSIONS, STATE
from toolcell.store.sessions import KeptSession, SessionStore

KEY = b"k" * 32


@contextmanager
def opened(path: Path) -> Generator[tuple[SessionStore, Database]]:
    with closing(Database(path, KEY, STATE)) as database:
        database.prune(*STATE.tables)
        yield SessionStore(database), database


def stored(path: Path, *sessions: KeptSession) -> None:
    with opened(path) as (store, _database):
        for session in sessions:
            store.keep(session, 0)


def test_a_session_is_found_as_it_was_kept_and_the_last_row_counts(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    stored(path, KeptSession("a", "", {"n": 1}), KeptSession("b", "a", {"n": None}), KeptSession("a", "", {"n": 2}))
    with opened(path) as (store, _database):
        assert store.find("a") == KeptSession("a", "", {"n": 2}) and store.find("b") == KeptSession(
            "b", "a", {"n": None}
        )
        assert store.find("c") is None and set(store.ids()) == {"a", "b"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_dropped_session_takes_those_below_it_along(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    tree = [("a", ""), ("b", "a"), ("c", "b"), ("d", ""), ("e", "d")]
    stored(path, *(KeptSession(id, parent, {}) for id, parent in tree))
    with opened(path) as (store, _database):
        store.drop("a")
        assert store.ids() == ["d", "e"]
        store.forget("d")
        assert store.ids() == ["e"]


def test_a_session_whose_row_cannot_be_removed_is_gone_and_is_removed_later(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    stored(path, KeptSession("a", "", {}), KeptSession("b", "", {}))
    with opened(path) as (store, database):
        connection = database._connection  # pyright: ignore[reportPrivateUsage]
        connection.execute("PRAGMA query_only = 1")
        cure = "state.sqlite cannot be used: attempt to write a readonly database. Its file system is read-only"
        for change in (store.drop, store.forget):
            with pytest.raises(UsageError, match=cure):
                change("a")
        with pytest.raises(UsageError, match=cure):
            store.keep(KeptSession("a", "", {}), 0)
        assert store.find("a") is None and store.ids() == ["b"]
        connection.execute("PRAGMA query_only = 0")
        store.drop("c")
    with opened(path) as (store, database):
        assert store.ids() == ["b"]


def test_a_dropped_session_costs_later_closes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    with opened(path) as (store, database):
        statements = list[str]()
        database._connection.set_trace_callback(statements.append)  # pyright: ignore[reportPrivateUsage]
        for id in ("a", "b", "c"):
            store.drop(id)
    assert len([each for each in statements if "DELETE" in each]) == 3


@pytest.mark.parametrize("change", ["data = '{}'", "parent = 'x'", "id = 'z'"])
def test_an_edited_row_does_not_fit_its_signature(tmp_path: Path, change: str) -> None:
    path = tmp_path / "state.sqlite"
    stored(path, KeptSession("a", "p", {"n": 1}))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"UPDATE sessions SET {change}")
    with opened(path) as (store, database), pytest.raises(UsageError, match="signature"):
        store.find("z" if "id" in change else "a")


def test_a_session_that_was_suspended_thirty_days_ago_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    stored(path, KeptSession("a", "", {}), KeptSession("b", "", {}))
    with opened(path) as (store, database):
        for row, hour in zip(database.rows(SESSIONS), (-3600, 3600), strict=True):
            database.change(SESSIONS, row.values, row.until - 30 * 86400 + hour, mark=0)
    with opened(path) as (store, database):
        assert store.ids() == ["b"]


def test_a_row_whose_time_was_edited_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    stored(path, KeptSession("a", "", {}))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE sessions SET until = -1.0")
    with opened(path) as (store, database), pytest.raises(UsageError, match="signature"):
        store.find("a")
