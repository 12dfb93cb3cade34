"""The steps from each version of a state directory to the next one. A step may be killed and begun again."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

Step = Callable[[Path, Callable[[], bytes]], None]
"""Takes the directory and a function that gives its key."""


def _begin(path: Path, key: Callable[[], bytes]) -> None:
    """From nothing to version 1: the files are made at their first use."""


def _sign_states(path: Path, key: Callable[[], bytes]) -> None:
    """From version 1 to 2: the states of approvals ("used", "withdrawn", "revoked") are signed, too. Rows that were
    edited stay invalid. The index of the journal is made again from the log, as it has a version of its own."""
    from toolcell.approvals.table import sign_states

    if (path / "approvals.sqlite").exists():
        with closing(sqlite3.connect(path / "approvals.sqlite", isolation_level=None)) as database:
            sign_states(database, key())


STEPS: tuple[Step, ...] = (_begin, _sign_states)
