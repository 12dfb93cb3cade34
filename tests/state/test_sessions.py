"""The store of suspended sessions: signed rows, and what goes with a session."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from toolcell import UsageError
from toolcell.store.state.sessions import KeptSession, SessionStore

KEY = b"k" * 32


def stored(path: Path, *sessions: KeptSession) -> None:
    with closing(SessionStore(path, KEY)) as store:
        for session in sessions:
            store.keep(session)


def test_a_session_is_found_as_it_was_kept_and_the_last_row_counts(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    stored(path, KeptSession("a", "", {"n": 1}), KeptSession("b", "a", {"n": None}), KeptSession("a", "", {"n": 2}))
    with closing(SessionStore(path, KEY)) as store:
        assert store.find("a") == KeptSession("a", "", {"n": 2}) and store.find("b") == KeptSession(
            "b", "a", {"n": None}
        )
        assert store.find("c") is None and set(store.ids()) == {"a", "b"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_dropped_session_takes_those_below_it_along(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    tree = [("a", ""), ("b", "a"), ("c", "b"), ("d", ""), ("e", "d")]
    stored(path, *(KeptSession(id, parent, {}) for id, parent in tree))
    with closing(SessionStore(path, KEY)) as store:
        store.drop("a")
        assert store.ids() == ["d", "e"]
        store.forget("d")
        assert store.ids() == ["e"]


def test_a_session_whose_row_cannot_be_removed_is_gone_and_is_removed_later(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    stored(path, KeptSession("a", "", {}), KeptSession("b", "", {}))
    with closing(SessionStore(path, KEY)) as store:
        database = store._database  # pyright: ignore[reportPrivateUsage]
        database.execute("PRAGMA query_only = 1")
        cure = "sessions.sqlite cannot be used: attempt to write a readonly database. Its file system is read-only"
        for change in (store.drop, store.forget):
            with pytest.raises(UsageError, match=cure):
                change("a")
        with pytest.raises(UsageError, match=cure):
            store.keep(KeptSession("a", "", {}))
        assert store.find("a") is None and store.ids() == ["b"]
        database.execute("PRAGMA query_only = 0")
        store.drop("c")
    with closing(SessionStore(path, KEY)) as store:
        assert store.ids() == ["b"]


def test_a_dropped_session_costs_later_closes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    with closing(SessionStore(path, KEY)) as store:
        statements = list[str]()
        store._database.set_trace_callback(statements.append)  # pyright: ignore[reportPrivateUsage]
        for id in ("a", "b", "c"):
            store.drop(id)
    assert len([each for each in statements if "DELETE" in each]) == 3


@pytest.mark.parametrize("change", ["data = '{}'", "parent = 'x'", "id = 'z'"])
def test_an_edited_row_does_not_fit_its_signature(tmp_path: Path, change: str) -> None:
    path = tmp_path / "sessions.sqlite"
    stored(path, KeptSession("a", "p", {"n": 1}))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"UPDATE sessions SET {change}")
    with closing(SessionStore(path, KEY)) as store, pytest.raises(UsageError, match="signature"):
        store.find("z" if "id" in change else "a")


def test_a_session_that_was_suspended_thirty_days_ago_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    stored(path, KeptSession("a", "", {}), KeptSession("b", "", {}))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE sessions SET at = at - 30 * 86400 + iif(id = 'a', -3600, 3600)")
    with closing(SessionStore(path, KEY)) as store:
        assert store.ids() == ["b"]
