"""Work on a tree in a thread, given up if the tree's file system hangs."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolcell_sandbox.errors import SandboxError

__all__ = ["ANSWER_S", "HungFileSystem", "WorkInThread"]

ANSWER_S: Final = 60.0
"""How many seconds a look or an audit may take. Each ends itself long before, unless its file system does not
answer."""


class HungFileSystem(SandboxError):
    """A file system has not answered a look or an audit in time."""

    def __init__(self) -> None:
        super().__init__(
            "The workspace cannot be checked for protected names: a file system in it does not answer",
            step="look",
            mechanism="protected_names",
            cure="The session is over. Whoever runs the agent: restart the server of the file system or unmount it "
            "(umount -l), and open another session.",
        )


class WorkInThread:
    """Work that a thread may still do after nobody waits for it. `done` has its result when it is over."""

    def __init__(self, work: Callable[[], object], done: Sequence[Any]) -> None:
        self.done = done
        self.is_over = False
        self._work = work
        self._lock = threading.Lock()
        self._has_begun = self._is_given_up = False

    def __call__(self) -> None:
        with self._lock:
            if self._is_given_up:
                return
            self._has_begun = True
        try:
            self._work()
        finally:
            self.is_over = True

    def give_up(self) -> bool:
        """Never begin. Returns whether the work has begun, and so goes on."""
        with self._lock:
            self._is_given_up = True
            return self._has_begun
