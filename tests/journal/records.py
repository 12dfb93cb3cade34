"""Journals of a few records in a directory, for tests of what is read of them."""

from pathlib import Path

from toolcell.store.journal import RecentJournal, Record
from toolcell.store.journal.durable import DurableJournal
from toolcell.store.journal.reading import JournalReader

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\r\n2026-01-01 all is well\u202ebackwards\x9b1m"
"""A text with what a terminal takes as commands."""


def opened(place: Path) -> tuple[DurableJournal, dict[str, object]]:
    """The journal, and the outcomes of the calls of session "main-1" that were interrupted."""
    journal = DurableJournal(place / "log", place / "index", RecentJournal())
    journal.open()
    journal.begin(0)
    assert all(session == "main-1" for session, _call in journal.interrupted)
    return journal, {call: end["outcome"] for (_session, call), end in journal.interrupted.items()}


def intent(call: str) -> Record:
    facts = {"tool": "echo", "version": "1.0.0", "attempt": 1, "arguments": {}}
    return Record("intent", "main-1", call, facts)


def end(call: str) -> Record:
    return Record("call", "main-1", call, {"tool": "echo", "error": None})


def kinds(place: Path) -> list[str]:
    return [each.record.kind for each in JournalReader(place / "log", place / "index").entries()]
