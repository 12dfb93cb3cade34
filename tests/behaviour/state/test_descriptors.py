"""What a call does to descriptors whose open files the next call's process shares, and how many descriptors there may
be.
"""

import fcntl
import os
import resource
import time
from pathlib import Path

import pytest
from tests.misbehaving import call_number, frame_of

from toolcell import Profile, ProxyNetwork, Supervisor, ToolContext, tool
from toolcell.pool.capacity import default_max_cells, default_max_connections

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
    """Return the state of every inherited descriptor."""
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


@tool
def leave_half_a_frame(ctx: ToolContext) -> None:
    """Answer, and leave the beginning of a large frame after the answer, in separate packets (O_DIRECT, pipe(2))."""
    ctx.progress("now")
    os.write(5, frame_of(16, call_number(), {"output": "mine"}))
    fcntl.fcntl(5, fcntl.F_SETFL, fcntl.fcntl(5, fcntl.F_GETFL) | os.O_DIRECT)
    for packet in ((500_000).to_bytes(4, "big") + b"\x93", *[b""] * 13):
        os.write(5, packet.ljust(4096, b"\1"))
    time.sleep(1000)


@pytest.mark.anyio
async def test_what_a_call_has_left_widens_no_pipe_of_the_next_one(workspace: Path) -> None:
    async with Supervisor([leave_half_a_frame, look]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        before = (await session.call("look")).unwrap()
        for _ in range(3):
            # Both sleep on the loop: all of it has been written, and then
            left = await session.call("leave_half_a_frame", on_progress=lambda *_: time.sleep(0.3))
            assert left.unwrap() == "mine"
            time.sleep(0.2)  # the cell has swept before the supervisor comes to what is left
            assert (await session.call("look")).unwrap() == before


@pytest.mark.parametrize("soft", [256, 1024, 4096])
def test_by_default_cells_and_connections_leave_each_other_descriptors(soft: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        cells, connections = default_max_cells(), default_max_connections()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert cells >= min(32 * (os.cpu_count() or 1), (soft - 128) // 15)
    assert connections >= 16 and 15 * cells + 2 * connections < soft - 64


def inheritable() -> dict[int, str]:
    """The descriptors that a program would inherit if this process executed it."""
    found: dict[int, str] = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.get_inheritable(fd):
                found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the list's own
    return found


@pytest.mark.anyio
async def test_no_descriptor_of_a_cell_is_handed_on_to_a_program_of_the_host(workspace: Path) -> None:
    before = inheritable()
    async with Supervisor([look]) as supervisor:
        profile = Profile.for_kind("main").replace(network=ProxyNetwork(allow=["good.example.org"]))
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        assert (await session.call("look")).error is None
        assert inheritable() == before
