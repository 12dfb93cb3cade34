"""`RolloutRecord`: the attempts of a rollout that have begun and ended, kept on disk across a kill.

The row of an attempt is written before its first try begins, and its trajectory before the program sees it.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from toolcell.errors import UsageError
from toolcell.store.database import connect, transaction
from toolcell.wire import forks

from .trajectory import AttemptKey, RolloutTask, Trajectory, digest_of

__all__ = ["KeptAttempt", "RolloutRecord"]

FILE: Final = "rollout.sqlite"
VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tasks (id TEXT PRIMARY KEY, digest TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS attempts (
    task TEXT NOT NULL, number INTEGER NOT NULL, tries INTEGER NOT NULL, withdrawn INTEGER NOT NULL DEFAULT 0,
    running INTEGER NOT NULL, began REAL NOT NULL, ended REAL, trajectory TEXT, PRIMARY KEY (task, number)
) STRICT;
"""


class KeptAttempt(NamedTuple):
    """An attempt that has begun. `tries` counts all tries, and `withdrawn` the tries that a program gave up when it
    left the rollout. `running`: the last try has not ended. `began` is the start of the last try, in Unix seconds.
    `has_ended`: the record has the trajectory."""

    tries: int
    withdrawn: int
    running: bool
    began: float
    has_ended: bool

    @property
    def lost(self) -> int:
        """The number of tries that ended by an infrastructure error, or died with their program."""
        return self.tries - self.withdrawn


class RolloutRecord:
    """The record in a directory, readable for its user only. One rollout at a time writes there. Call the methods from
    one thread at a time. They block on the disk, and may raise sqlite3.Error."""

    def __init__(self, directory: Path) -> None:
        """Open or create the record. Raises UsageError if another rollout writes there, and OSError."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / FILE
        self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._database = self._opened()
        except BlockingIOError:
            os.close(self._lock)
            raise UsageError(
                f"Another rollout writes to the record {str(directory)!r}. Wait for its end, or use another directory."
            ) from None
        except BaseException:
            os.close(self._lock)
            raise
        forks.register(self)

    def _opened(self) -> sqlite3.Connection:
        database = connect(self.path)  # synchronous: a trajectory has cost minutes of a model
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise UsageError(
                    f"The record {str(self.path)!r} has version {version}, of a later toolcell. Update toolcell, or "
                    "use another record."
                )
            database.executescript(_SCHEMA)
            database.execute(f"PRAGMA user_version = {VERSION}")
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        """Close the file, and unlock the directory for another rollout."""
        self._database.close()
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a fork that has just begun may still hold the descriptor
        self.let_go()

    def let_go(self) -> None:
        """Unlock the directory: a fork of the program that outlives it must not keep others out."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def admit(self, tasks: Iterable[RolloutTask]) -> None:
        """Keep the digests of the tasks. Raises UsageError if the data of a task differs from the record."""
        known = dict(self._database.execute("SELECT id, digest FROM tasks").fetchall())
        new = [(task.id, digest_of(task)) for task in tasks]
        for id, digest in new:
            if known.get(id, digest) != digest:
                raise UsageError(
                    f"The task {id!r} has other data than in the record {str(self.path.parent)!r}. Give it another id, "
                    "or use another record."
                )
        with transaction(self._database):
            self._database.executemany("INSERT OR IGNORE INTO tasks VALUES (?, ?)", new)

    def attempts(self) -> dict[AttemptKey, KeptAttempt]:
        """The attempts that have begun."""
        rows = self._database.execute(
            "SELECT task, number, tries, withdrawn, running, began, trajectory IS NOT NULL FROM attempts"
        )
        return {
            AttemptKey(task, number): KeptAttempt(tries, withdrawn, bool(running), began, bool(has_ended))
            for task, number, tries, withdrawn, running, began, has_ended in rows
        }

    def begin(self, key: AttemptKey, tries: int) -> None:
        """Record that try number `tries` begins, from 1."""
        self._database.execute(
            "INSERT INTO attempts (task, number, tries, running, began) VALUES (?, ?, ?, 1, ?)"
            " ON CONFLICT DO UPDATE SET tries = excluded.tries, running = 1, began = excluded.began",
            (*key, tries, time.time()),
        )

    def withdraw(self, key: AttemptKey) -> None:
        """Record that the program gives up the running try. It does not count as a retry."""
        self._database.execute(
            "UPDATE attempts SET running = 0, withdrawn = withdrawn + 1 WHERE task = ? AND number = ? AND running = 1",
            key,
        )

    def end(self, trajectory: Trajectory) -> None:
        """Keep the trajectory of an attempt that has begun."""
        key = (trajectory.task_id, trajectory.number)
        values = (time.time(), trajectory.tries, trajectory.model_dump_json(), *key)
        done = self._database.execute(
            "UPDATE attempts SET running = 0, ended = ?, tries = ?, trajectory = ?"
            " WHERE task = ? AND number = ? AND trajectory IS NULL",
            values,
        )
        assert done.rowcount == 1, f"the attempt {key} has ended before, or has not begun"

    def trajectory(self, key: AttemptKey) -> Trajectory:
        """The trajectory of an attempt that has ended. Raises UsageError if it cannot be read."""
        query = "SELECT trajectory FROM attempts WHERE task = ? AND number = ?"
        (text,) = self._database.execute(query, key).fetchone()
        try:
            return Trajectory.model_validate_json(text)
        except ValidationError as error:
            raise UsageError(
                f"The trajectory of attempt {key.number} of the task {key.task_id!r} in the record {str(self.path)!r} "
                f"cannot be read. Use another record. {error}"
            ) from None
