"""Forks of the program: the one place that registers what a forked child drops.

A child of fork(2) has copies of its parent's objects and only the thread that forked. It shares what descriptors refer
to: sockets, locks of files, epoll instances, timers. An object that is used, closed or finalized in the child would act
on the parent's. So each registered object lets go in the child, without an effect on the parent, and is never freed
there. Locks that another thread may have held are made anew.
"""

import ctypes
import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol, SupportsIndex

from toolcell.errors import UsageError

__all__ = [
    "FORKED",
    "FileConnection",
    "OfOneProcess",
    "check_loop",
    "keep",
    "leave_loop",
    "new_rlock",
    "no_fork",
    "register",
]

_log = logging.getLogger("toolcell")
FORKED: Final = (
    "The supervisor runs in the parent of this process, and a fork cannot use it. Make another supervisor here, in the "
    "child."
)
_NO_LOOP: Final = (
    "The event loop was inherited from the parent by a fork, so no supervisor can run on it. Run a new loop in the "
    "child, or take toolcell.blocking, which has a loop of its own."
)


class Inherited(Protocol):
    """An object that a forked child must not use."""

    def let_go(self) -> None:
        """In a forked child, drop what the parent uses, without an effect on it. No other thread runs."""
        ...


class OfOneProcess:
    """An object that no other process can use, so it is not pickled."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise UsageError(
            f"A {type(self).__name__} cannot be copied or sent to another process: its cells belong to the process "
            "that started them. Make the calls here, or start a Supervisor in the other process."
        )


_objects: weakref.WeakSet[Inherited] = weakref.WeakSet()
_rlocks: list[Any] = []
_loops: list[Callable[[], bool]] = []  # of a child: whether the caller runs on an inherited event loop
no_fork: Final = threading.RLock()
"""Held while a descriptor is made that no registered object knows yet, or a module is imported late: a fork by another
thread waits."""


def register(inherited: Inherited) -> None:
    """Call `inherited.let_go()` in each child that is forked from now on."""
    _objects.add(inherited)


def keep(inherited: object) -> None:
    """Never free this object."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def new_rlock() -> threading.RLock:
    """A lock of a module, which is free in each child."""
    lock = threading.RLock()
    _rlocks.append(lock)
    return lock


def leave_loop(is_here: Callable[[], bool]) -> None:
    """In a child, note an inherited event loop. `is_here` says whether the caller runs on it."""
    _loops.append(is_here)


def check_loop(*, is_none: bool = False) -> None:
    """Raise UsageError if the caller runs on an event loop that a fork inherited. `is_none` says that asyncio knows no
    running loop, as in a coroutine that goes on in a child."""
    if any(is_none or is_here() for is_here in _loops):
        raise UsageError(_NO_LOOP)


def _in_child() -> None:
    no_fork.release()
    for inherited in list(_objects):
        keep(inherited)
        try:
            inherited.let_go()
        except Exception:  # the others must still let go
            _log.exception("%r of the parent could not be dropped in this fork", inherited)
    for lock in _rlocks:
        lock._at_fork_reinit()  # as modules of the standard library do


os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_in_child)


class FileConnection(sqlite3.Connection):
    """A connection to a file. A forked child must neither use nor close it (SQLite, "How To Corrupt An SQLite Database
    File", 2.6)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        register(self)

    def let_go(self) -> None:
        self.__class__ = _OfParent  # pyright: ignore[reportAttributeAccessIssue] - a subclass of the same layout


class _OfParent(FileConnection):
    """The parent's connection, in a child."""

    def cursor(self, *_args: Any, **_options: Any) -> Any:
        raise UsageError(FORKED)

    execute = executemany = executescript = commit = rollback = cursor

    def close(self) -> None:
        pass
