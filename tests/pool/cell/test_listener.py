"""The socket where a cell connects to its proxy."""

import os
import resource
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tests.pool.fakes import FakeRun, spec

from toolcell.pool.cell.channels import ProxyListener


class Taking(FakeRun):
    """A call that takes every connection, and notes what the first byte on it is."""

    def __init__(self, id: str) -> None:
        super().__init__(id, spec())
        self.taken: list[bytes] = []

    def on_connection(self, connection: object) -> bool:
        with cast("socket.socket", connection) as taken:
            self.taken.append(taken.recv(1))
        return True


class Loop:
    """The event loop, driven by hand: the channels and the deadlines of one listener."""

    def __init__(self) -> None:
        self.ready: Callable[[], None] | None = None
        self.later: list[Callable[[], None]] = []

    def watch(self, _fd: int, handler: Callable[[], None]) -> None:
        self.ready = handler

    def unwatch(self, _fd: int) -> None:
        self.ready = None

    def is_watched(self, _fd: int) -> bool:
        return self.ready is not None

    def at(self, _when: float, action: Callable[[], None]) -> None:
        self.later.append(action)

    def turn(self) -> None:
        later, self.later = self.later, []
        for action in later:
            action()
        if self.ready is not None:
            self.ready()


@contextmanager
def no_more_descriptors() -> Generator[None]:
    free = os.dup(0)
    os.close(free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def connected(path: str, says: bytes) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.send(says)
    return client


def test_a_call_never_gets_the_connection_of_an_earlier_one_where_descriptors_have_run_out(tmp_path: Path) -> None:
    path, loop = str(tmp_path / "socket"), Loop()
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(path)
        served.listen()
        listener = ProxyListener(served.detach(), cast("Any", loop), cast("Any", loop), kept=False)
    first, second = Taking("first"), Taking("second")
    listener.begin(first)
    with connected(path, b"1"):
        loop.turn()
    assert first.taken == [b"1"]
    listener.end()
    with connected(path, b"x"), connected(path, b"x"):  # the first one's, too late
        with no_more_descriptors():
            listener.begin(second)
            loop.turn()
        assert second.taken == [] and loop.ready is None
        loop.turn()
        with connected(path, b"2"):
            with no_more_descriptors():
                loop.turn()
            loop.turn()
    assert second.taken == [b"2"]
    listener.close()
