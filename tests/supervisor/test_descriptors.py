"""What a call does to the descriptors that the next call's process inherits as the same open files."""

import fcntl
import os
from pathlib import Path

import pytest

from toolcell import Supervisor, tool

SHARED = (0, 1, 2, 4, 5)


@tool
def spoil() -> int:
    """Make every inherited descriptor non-blocking and asynchronous, and every pipe small."""
    for fd in SHARED:
        os.set_blocking(fd, False)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_APPEND)
        if fd:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 4096)
    return os.getpid()


@tool
def look() -> list[list[int]]:
    """The state of every inherited descriptor."""
    return [
        [
            fcntl.fcntl(fd, fcntl.F_GETFL),
            fcntl.fcntl(fd, fcntl.F_GETOWN),
            fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) if fd else 0,
        ]
        for fd in SHARED
    ]


@pytest.mark.anyio
async def test_no_state_of_a_descriptor_reaches_the_next_call(workspace: Path) -> None:
    async with Supervisor([spoil, look]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        before = (await session.call("look")).unwrap()
        for _ in range(3):
            assert (await session.call("spoil")).error is None
            assert (await session.call("look")).unwrap() == before
