"""Kernel memory by pipes, epolls, timers, inotify and socket pairs: each ends at the limit of descriptors.

Source: R29
"""

import os
import select
import socket
from collections.abc import Callable

from tests.escape.kit import Scene, each, tried

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = "EMFILE"


def attack(scene: Scene) -> object:
    makers: dict[str, Callable[[], object]] = {
        "pipe": os.pipe,
        "epoll": lambda: select.epoll(),
        "eventfd": lambda: os.eventfd(0),
        "pair": lambda: [end.detach() for end in socket.socketpair()],
        "inotify": lambda: attempt("inotify_init1", 0) >= 0 or os.dup(0),
        "timerfd": lambda: attempt("timerfd_create", 1, 0) >= 0 or os.dup(0),
    }

    def exhaust(name: str) -> str:
        held: list[object] = []
        found = tried(lambda: held.extend(makers[name]() for _ in range(200)))
        os.closerange(6, 64)
        return found

    return each(exhaust, [name for name in makers if name != "epoll"])
