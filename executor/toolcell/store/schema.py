"""The tables of a state directory's database, `state.sqlite`.

All their columns are signed, and so is `until`, which each row has besides (`database.Table`). What the indexes find is
checked when the row is read.
"""

from typing import Final

from toolcell.store.database import Schema, Table

__all__ = ["CALLS", "REQUESTS", "SESSIONS", "STANDING", "STATE", "TASKS"]

CALLS: Final = Table(
    "calls",
    {
        "kind": "TEXT NOT NULL",  # "key": a call with an idempotency key; "task": a task
        "session": "TEXT NOT NULL",
        "id": "TEXT NOT NULL",
        "asked": "TEXT NOT NULL",  # a digest of its tool and arguments, "" if it is not known any more
        "call": "TEXT NOT NULL",
        "mark": "INTEGER NOT NULL",  # the number of its claim in the log
        "result": "TEXT",  # JSON, null until it ends
    },
    ("kind", "session", "id"),
)
"""Calls with an idempotency key, and tasks, with their results. No index but that of its key, because each call with a
key adds a row."""

REQUESTS: Final = Table(
    "requests",
    {
        "id": "TEXT NOT NULL",
        "tool": "TEXT NOT NULL",
        "session": "TEXT NOT NULL",
        "call": "TEXT NOT NULL",
        "asks": "TEXT NOT NULL",
        "same_call": "TEXT NOT NULL",  # a digest that requests of one call share
        "bytes": "INTEGER NOT NULL",  # what the request costs
        "created_at": "REAL NOT NULL",
        "expires_at": "REAL NOT NULL",
        "used_at": "REAL",
        "withdrawn_at": "REAL",
        "answer": "TEXT",
        "request": "TEXT NOT NULL",  # last: it may have megabytes
    },
    ("id",),
    {
        "requests_until": "(until)",
        "requests_tool": "(tool, created_at, bytes)",
        "requests_open": (
            "(session, same_call, asks, created_at, id, tool, bytes, expires_at, used_at, withdrawn_at) "
            "WHERE used_at IS NULL AND withdrawn_at IS NULL"
        ),
    },
)
"""Requests for approval and confirmation, with their answers."""

STANDING: Final = Table(
    "standing",
    {
        "id": "TEXT NOT NULL",
        "tool": "TEXT NOT NULL",
        "expires_at": "REAL NOT NULL",
        "revoked_at": "REAL",
        "approval": "TEXT NOT NULL",
    },
    ("id",),
)
"""Approvals of later calls."""

SESSIONS: Final = Table(
    "sessions",
    {
        "id": "TEXT NOT NULL",
        "parent": "TEXT NOT NULL",
        "mark": "INTEGER NOT NULL",  # the number of the log's last entry when it was suspended
        "data": "TEXT NOT NULL",
    },
    ("id",),
)
"""Suspended sessions."""

TASKS: Final = Table(
    "tasks",
    {
        "id": "TEXT NOT NULL",
        "owner": "TEXT NOT NULL",
        "session": "TEXT NOT NULL",
        "created": "TEXT NOT NULL",
        "updated": "TEXT NOT NULL",
        "ttl": "INTEGER NOT NULL",
        "status": "TEXT NOT NULL",
        "outcome": "TEXT",
    },
    ("id",),
    {"tasks_owner": "(owner)"},
)
"""Tasks of the clients of the MCP server. They expire at the age `until`."""

STATE: Final = Schema((CALLS, REQUESTS, STANDING, SESSIONS, TASKS))
