"""The database of a state directory: damage to one table, kills while it is healed, clocks that jump, hostile files."""

import os
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests import programs
from tests.helpers import DIES_AT_A_STEP

from toolcell.store.database import DAY_S, Database, Table, heal, install
from toolcell.store.schema import CALLS, REQUESTS, SESSIONS, STANDING, STATE, TASKS

KEY = b"k" * 32
TABLES = {table.name: table for table in STATE.tables}
VALUES = {"TEXT": "text", "TEXT NOT NULL": "text", "INTEGER NOT NULL": 1, "REAL": 1.5, "REAL NOT NULL": 1.5}


def filled(path: Path, rows: int = 400) -> None:
    with closing(Database(path, KEY, STATE)) as database, database.transaction():
        for table in STATE.tables:
            for number in range(rows):
                values = {name: VALUES[kind] for name, kind in table.columns.items()}
                last = list(table.columns)[-1]
                database.put(table, {**values, "id": f"{number:05d}", last: "x" * 200}, DAY_S)


def overwrite(path: Path, table: Table, at: int) -> None:
    """Overwrite the root page of a table, or a page in its middle."""
    with closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table.name,)).fetchone()
    data = bytearray(path.read_bytes())
    if at:  # a child of the root, an interior page of a table: cells hold the numbers of the children
        page = (root - 1) * size
        assert data[page] == 5, "an interior page"
        cells = int.from_bytes(data[page + 3 : page + 5], "big")
        offset = page + 12 + 2 * (cells // 2)
        cell = page + int.from_bytes(data[offset : offset + 2], "big")
        root = int.from_bytes(data[cell : cell + 4], "big")
    data[(root - 1) * size : root * size] = b"\xa5" * size
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("at", [0, 1])
def test_damage_to_one_table_costs_no_other(tmp_path: Path, name: str, at: int) -> None:
    path = tmp_path / "state.sqlite"
    filled(path)
    overwrite(path, TABLES[name], at)
    with closing(Database(path, KEY, STATE)) as database, pytest.raises(sqlite3.DatabaseError):
        database.check()
    assert heal(path, KEY, STATE) == [name]
    with closing(Database(path, KEY, STATE)) as database:
        database.check()
        for table in STATE.tables:
            rows = database.rows(table)
            assert all(row.is_valid for row in rows)
            if table.name != name:
                assert len(rows) == 400
            elif at:
                assert 300 < len(rows) < 400, "what could be read of it is there"
    assert path.with_name("state.sqlite.damaged").exists()


@pytest.mark.parametrize("name", TABLES)
def test_a_flipped_bit_makes_one_row_invalid(tmp_path: Path, name: str) -> None:
    path = tmp_path / "state.sqlite"
    filled(path, rows=3)
    table = TABLES[name]
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    at = data.index(b"x" * 200, (root - 1) * size, root * size)
    for byte in (b"\xff", b"y"):
        data[at + 100 : at + 101] = byte
        path.write_bytes(bytes(data))
        with closing(Database(path, KEY, STATE)) as database:
            database.check()
            assert sorted(row.is_valid for row in database.rows(table)) == [False, True, True]


def test_a_database_that_was_cut_keeps_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    filled(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 3 // 4)
    lost = heal(path, KEY, STATE)
    assert lost and set(lost) < set(TABLES)
    with closing(Database(path, KEY, STATE)) as database:
        database.check()


KILLED = f"""
from pathlib import Path
from toolcell.store.database import heal
from toolcell.store.schema import STATE
{DIES_AT_A_STEP}
heal(Path(sys.argv[1]), b"k" * 32, STATE)
"""


@pytest.mark.usefixtures("warm")
def test_a_kill_while_a_database_is_healed_loses_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    filled(made / "state.sqlite", rows=100)
    overwrite(made / "state.sqlite", SESSIONS, 0)
    for steps in range(100):
        path = tmp_path / f"killed-{steps}" / "state.sqlite"
        shutil.copytree(made, path.parent)
        done = programs.run([sys.executable, "-I", "-c", KILLED, str(path), str(steps)])
        assert done.returncode in (0, 9), done.stderr
        install(path)  # as the next start does
        with closing(Database(path, KEY, STATE)) as database:
            try:
                database.check()
                is_healed = True
            except sqlite3.DatabaseError:
                is_healed = False
        if not is_healed:
            heal(path, KEY, STATE)
        with closing(Database(path, KEY, STATE)) as database:
            assert [len(database.rows(table)) for table in (CALLS, REQUESTS, STANDING, TASKS)] == [100] * 4
        if done.returncode == 0:
            break
    assert steps > 5


def test_who_waits_for_the_disk_keeps_nobody_from_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop waits for the lock of a thread that keeps an approval."""
    path, seen, real = tmp_path / "state.sqlite", list[str](), os.fdatasync
    with closing(Database(path, KEY, STATE)) as thread, closing(Database(path, KEY, STATE, wait_s=0.0)) as loop:

        def slow(fd: int) -> None:
            seen.append(os.readlink(f"/proc/self/fd/{fd}"))
            loop.note(1, len(seen))
            real(fd)

        monkeypatch.setattr(os, "fdatasync", slow)
        values = {name: VALUES[kind] for name, kind in REQUESTS.columns.items()}
        with thread.transaction():
            thread.put(REQUESTS, values, DAY_S)
        assert seen == [f"{path}-wal"], "and it is on the disk at the end of the transaction"


@pytest.mark.parametrize("what", ["an index", "the time of a row"])
def test_a_damaged_row_is_still_found_after_it_is_healed(tmp_path: Path, what: str) -> None:
    """Otherwise its call would run again."""
    path = tmp_path / "state.sqlite"
    filled(path)
    data = bytearray(path.read_bytes())
    if what == "an index":  # whose entry has no text after the key
        entry = next(each for each in re.finditer(b"texttext00200", data) if not data.startswith(b"text", each.end()))
        data[entry.end() - 1] ^= 1
    else:
        row = data.index(b"x" * 200, data.index(b"texttext00200"))
        data[row + 150 : row + 230] = bytes(80)
    path.write_bytes(data)
    with closing(Database(path, KEY, STATE)) as database:
        if what == "an index":
            with pytest.raises(sqlite3.DatabaseError):
                database.check()
    heal(path, KEY, STATE)
    with closing(Database(path, KEY, STATE)) as database:
        database.prune(*STATE.tables)
        for table in STATE.tables:
            assert len(database.rows(table)) == 400, table.name


@pytest.mark.parametrize("jump_s", [-10 * 365 * DAY_S, -31 * DAY_S, 31 * DAY_S, 10 * 365 * DAY_S])
def test_a_clock_that_jumps_between_two_starts_deletes_nothing(
    tmp_path: Path, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "state.sqlite", time.time
    with closing(Database(path, KEY, STATE)) as database, database.transaction():
        for table in STATE.tables:
            values = {name: VALUES[kind] for name, kind in table.columns.items()}
            database.put(table, values, database.age() + 30 * DAY_S)
    for jump in (jump_s, 0.0, jump_s, jump_s, 0.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        with closing(Database(path, KEY, STATE)) as database:
            database.note(database.opens + 1, 0)
            database.prune(*STATE.tables)
            assert database.now() >= real() - 5, "and the time never goes back"
            for table in STATE.tables:
                assert len(database.rows(table)) == 1


def test_a_row_is_removed_when_the_database_is_as_old_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "state.sqlite", time.time
    filled(path, rows=1)  # for a day
    for days in (0.6, 1.2):
        monkeypatch.setattr(time, "time", lambda days=days: real() + days * DAY_S)
        with closing(Database(path, KEY, STATE)) as database:
            database.note(1, 0)
            database.prune(*STATE.tables)
            assert len(database.rows(CALLS)) == (1 if days < 1 else 0)


def test_who_edits_a_row_or_moves_it_makes_it_invalid(tmp_path: Path) -> None:
    edits: dict[str, Callable[[sqlite3.Connection], object]] = {
        "moved": lambda database: database.execute("UPDATE sessions SET id = 'other' WHERE id = '00000'"),
        "null": lambda database: database.execute("UPDATE calls SET result = NULL WHERE id = '00000'"),
        "none": lambda database: database.execute("UPDATE calls SET result = 'None' WHERE id = '00001'"),
        "signature": lambda database: database.execute("UPDATE tasks SET signature = x'00' WHERE id = '00000'"),
    }
    path = tmp_path / "state.sqlite"
    filled(path, rows=3)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for edit in edits.values():
            edit(database)
    with closing(Database(path, KEY, STATE)) as opened:
        found = {table.name: sum(not row.is_valid for row in opened.rows(table)) for table in STATE.tables}
    assert found == {"calls": 2, "requests": 0, "standing": 0, "sessions": 1, "tasks": 1}


def test_a_null_is_signed_unlike_any_text(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "state.sqlite", KEY, STATE)) as database:
        signer = database.signer
        texts = ["", "None", "\udcff", "\udcff" * 8, "n"]
        assert len({signer.of("k", text) for text in texts} | {signer.of("k", None)}) == len(texts) + 1


def test_the_file_is_readable_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    filled(path, rows=1)
    overwrite(path, SESSIONS, 0)
    heal(path, KEY, STATE)
    for each in tmp_path.iterdir():
        assert os.stat(each).st_mode & 0o077 == 0, each
