"""`python -I limits.py NAME...`: call these tools. Print a line of JSON for each: the ending and the cost of its call.

`test_limits.py` runs it unchanged, as an ordinary user, and without cgroups.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from toolcell import Capability, HostNetwork, Limits, Profile, Session, SessionKind, Supervisor, Tool, tool

sys.path.insert(0, str(Path(__file__).parents[3]))  # for `tests`
from tests import misbehaving as m

MIB = 1024 * 1024
LIMITS = Limits(
    wall_s=20.0,
    cpu_s=20.0,
    memory_bytes=128 * MIB,
    processes=24,
    open_files=64,
    file_bytes=4 * MIB,
    scratch_bytes=8 * MIB,
    scratch_inodes=1024,
    output_bytes=MIB,
    result_bytes=MIB,
)
POOL_BYTES = 192 * MIB
BRIEF_BYTES = 64 * MIB
BRIEF_S = 0.25
WORK_S = 0.12


def in_a_child(work: Callable[[], object]) -> str:
    """The outcome of work in a child: "done", the name of its errno or of its signal, or "MemoryError"."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 255)
        except MemoryError:
            os._exit(254)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        return signal.Signals(-status).name
    return {0: "done", 254: "MemoryError"}.get(status) or errno.errorcode[status]


def child_opens_files() -> str:
    """Open descriptors in a child until an open fails."""
    return in_a_child(lambda: m.open_files())


def child_writes_a_huge_file() -> str:
    """Write to one file without end, in a child that does not ignore SIGXFSZ."""

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        with open("/tmp/huge", "wb") as file:
            while True:
                file.write(bytes(MIB))

    return in_a_child(work)


def child_fills_the_scratch() -> str:
    """Fill the scratch with files, in a child."""

    def work() -> None:
        for number in range(100):
            with open(f"/tmp/{number}", "wb") as file:
                file.write(bytes(MIB))

    return in_a_child(work)


def child_uses_the_inodes() -> str:
    """Make empty files, in a child."""

    def work() -> None:
        for number in range(5_000):
            open(f"/tmp/{number}", "w").close()

    return in_a_child(work)


def child_asks_for_too_much() -> str:
    """Allocate more memory at once than one process may have, in a child."""
    return in_a_child(lambda: _take(400 * MIB))


def children_take_too_much() -> str:
    """Hold 60 MiB in each of three children for a while."""
    return _hold_in_children(3, 60 * MIB, 0.4)


def children_take_too_much_for_a_moment() -> str:
    """Take 50 MiB in each of two children. Answer as soon as both have ended, whatever their outcome.

    The first child waits exactly until the second has ended, even on a busy machine.
    """
    reader, writer = os.pipe()
    told, tell = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(writer)
        held = _take(50 * MIB)
        os.write(tell, b"1")
        os.read(reader, 1)  # until the second, and whoever else could write, has ended
        os._exit(len(held) - 50 * MIB)
    os.close(tell)
    os.read(told, 1)
    second = os.fork()
    if second == 0:
        os._exit(len(_take(50 * MIB)) - 50 * MIB)
    ends = [os.waitpid(second, 0)[1]]
    os.close(writer)
    return "".join(map(str, [*ends, os.waitpid(first, 0)[1]]))


def hold_in_children() -> str:
    """Hold 10 MiB in each of four children for a while."""
    return _hold_in_children(4, 10 * MIB, 0.4)


def _hold_in_children(count: int, size: int, seconds: float) -> str:
    for _ in range(count):
        if os.fork() == 0:
            held = _take(size)
            time.sleep(seconds)
            os._exit(len(held) - size)
    return "".join(str(os.wait()[1]) for _ in range(count))


def _take(size: int) -> bytearray:
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])
    return held


def fill_sockets_in_children() -> str:
    """Fill the buffers of 25 socket pairs in each of ten children for a while."""
    for _ in range(10):
        if os.fork() == 0:
            pairs = [_filled_pair() for _ in range(25)]
            time.sleep(2.0)
            os._exit(len(pairs) - 25)
    return "".join(str(os.wait()[1]) for _ in range(10))


def ask_for_larger_buffers() -> bool:
    """Ask for buffers of 4 MiB. Return whether four pairs take no more than with the default size."""
    return sum(size for *_ends, size in [_filled_pair(4 * MIB) for _ in range(4)]) <= 8 * 256 * 1024


def fill_connections() -> int:
    """Fill the buffers of 24 TCP connections on the host's loopback for a while. Return the bytes in them."""
    size, ends = 0, list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0), backlog=24) as listener:
        for _ in range(24):
            client = socket.socket()
            client.connect(listener.getsockname())
            ends += [client, listener.accept()[0]]
    for end in ends:
        end.setblocking(False)
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        for end in ends:
            with contextlib.suppress(BlockingIOError):
                size += end.send(bytes(256 * 1024))
    return size


def _filled_pair(asked: int = 0) -> tuple[socket.socket, socket.socket, int]:
    """Two sockets with full buffers, and the bytes in them."""
    ends, size = socket.socketpair(), 0
    for end in ends:
        end.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF) if asked else ():
            end.setsockopt(socket.SOL_SOCKET, option, asked)
        try:
            while True:
                size += end.send(bytes(32 * 1024))
        except BlockingIOError:
            pass
    return *ends, size


def spread_page_tables() -> str:
    """Read a page in each 2 MiB of a mapping that is not writable: each needs a page table, and none is data."""
    step, tables = 2 * MIB, 2 * BRIEF_BYTES // mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, tables * step, flags=flags, prot=mmap.PROT_READ) as held:
        read = sum(held[number * step] for number in range(tables))
        time.sleep(2.0)
    return f"read {read}"


def take_many_locks() -> str:
    """Hold 500 POSIX locks on each of 40 files for a while."""
    files = [os.open(f"/tmp/lock{number}", os.O_RDWR | os.O_CREAT) for number in range(40)]
    for fd in files:
        for start in range(1000, 0, -2):
            fcntl.lockf(fd, fcntl.LOCK_EX, 1, start)
    time.sleep(2.0)
    return f"{len(files)} files"


def take_many_locks_as_a_kept_process() -> str:
    """As `take_many_locks`."""
    return take_many_locks()


def child_floods_the_output() -> str:
    """Print without end, in a child."""
    return in_a_child(lambda: m.flood_the_output())


def child_burns() -> str:
    """Run an endless loop, in a child."""
    return in_a_child(lambda: m.loop_for_ever())


def pool_that_shares() -> str:
    """Read and write one shared mapping of 40 MiB in six children."""
    shared = mmap.mmap(-1, 40 * MIB)
    for _ in range(6):
        if os.fork() == 0:
            for offset in range(0, len(shared), mmap.PAGESIZE):
                shared[offset] = 1
            time.sleep(0.4)
            os._exit(0)
    return "".join(str(os.wait()[1]) for _ in range(6))


def work_in_children() -> str:
    """Use the processor for `WORK_S` in a child that is waited for, and as long in an orphan."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            _burn(WORK_S)
        else:
            os._exit(0)
        os._exit(0)  # with it, the pipe's last writer but us is gone
    os.wait()
    os.close(writer)
    os.read(reader, 1)
    return in_a_child(lambda: _burn(WORK_S))


def _burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def claim_to_have_used_nothing() -> str:
    """Use the processor for `WORK_S`, and read the process's own account."""
    _burn(WORK_S)
    return "done" if resource.getrusage(resource.RUSAGE_SELF).ru_utime > 0 else "odd"


def again_after_a_refused_fork() -> None:
    """Fork until a fork is refused, end the children, and raise the error when a fork would succeed again."""
    children: list[int] = []
    try:
        while True:
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except BlockingIOError:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        raise


def again_from_a_pipe() -> bytes:
    """Read from an empty, non-blocking pipe."""
    reader, _writer = os.pipe()
    os.set_blocking(reader, False)
    return os.read(reader, 1)


def files_of_the_machine() -> None:
    """Raise the error that an open raises on a machine with no file left."""
    raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))


def lock_a_page() -> None:
    """Call mlock(2), like a tool that checks its errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.mmap(-1, mmap.PAGESIZE)
    if libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page))), mmap.PAGESIZE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


_turns = 0


def _turn() -> int:
    global _turns
    _turns += 1
    return _turns


def burn_in_turns() -> int:
    """Use 60 % of the processor time of a call. Return the number of this call in the process."""
    _burn(0.6 * KEPT_S)
    return _turn()


def burn_in_turns_and_die() -> int:
    """Use 70 % of the processor time of a call. In the second call, die by a SIGKILL that no limit sent."""
    _burn(0.7 * KEPT_S)
    if _turn() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def burn_in_the_second_turn() -> None:
    """Run an endless loop, in the second call."""
    if _turn() == 2:
        m.loop_for_ever()


KEPT: list[Callable[[], object]] = [
    burn_in_turns,
    burn_in_turns_and_die,
    burn_in_the_second_turn,
    take_many_locks_as_a_kept_process,
]
KEPT_S = 0.2
OWN = [
    again_after_a_refused_fork,
    again_from_a_pipe,
    files_of_the_machine,
    lock_a_page,
    child_opens_files,
    child_writes_a_huge_file,
    child_fills_the_scratch,
    child_uses_the_inodes,
    child_asks_for_too_much,
    children_take_too_much,
    children_take_too_much_for_a_moment,
    child_floods_the_output,
    fill_sockets_in_children,
    ask_for_larger_buffers,
    fill_connections,
    spread_page_tables,
    take_many_locks,
    child_burns,
    pool_that_shares,
    work_in_children,
    hold_in_children,
    claim_to_have_used_nothing,
]
HOSTILE = [
    m.eat_memory,
    m.eat_memory_in_children,
    m.eat_shared_memory,
    m.burn_in_short_children,
    m.fork_bomb,
    m.thread_bomb,
    m.open_files,
    m.write_a_huge_file,
    m.write_a_huge_file_with_the_default_signal,
    m.fill_the_scratch,
    m.fill_the_inodes,
    m.flood_the_output,
    m.return_50_mib,
    m.sleep_for_ever,
    m.segfault,
]
OTHERWISE: dict[str, dict[str, float]] = {
    "children_take_too_much_for_a_moment": {"memory_bytes": BRIEF_BYTES},
    "fill_sockets_in_children": {"memory_bytes": BRIEF_BYTES},
    "spread_page_tables": {"memory_bytes": BRIEF_BYTES},
    "fill_connections": {"memory_bytes": BRIEF_BYTES},
    "pool_that_shares": {"memory_bytes": POOL_BYTES},
    "burn_in_short_children": {"cpu_s": BRIEF_S},
    "child_burns": {"cpu_s": BRIEF_S},
}


NEEDS = {
    "spread_page_tables": {Capability.EXEC},  # without it, the address space is limited
    "fill_connections": {Capability.NET},
}


async def call(session: Session, name: str) -> dict[str, Any]:
    if name == "pool_that_shares":  # while others on this machine hold as much as it may take
        with mmap.mmap(-1, POOL_BYTES) as others:
            for offset in range(0, len(others), mmap.PAGESIZE):
                others[offset] = 1
            return await called(session, name)
    return await called(session, name)


async def called(session: Session, name: str) -> dict[str, Any]:
    """Call a tool. Return the ending of the call."""
    result = await session.call(name, timeout=0.3 if name == "sleep_for_ever" else 10.0)
    error = result.error.model_dump() if result.error is not None else {}
    return {
        "name": name,
        "ends": [error.get("kind", ""), error.get("resource", ""), error.get("limit", 0)],
        "message": error.get("message", ""),
        "output": result.output,
        "usage": result.usage.model_dump(),
    }


async def main(names: list[str]) -> None:
    """Make the calls one by one, with one supervisor."""
    widest = LIMITS.replace(memory_bytes=POOL_BYTES)  # a tool's own limits only narrow
    profile = Profile.for_kind("main").replace(limits=widest, network=HostNetwork())
    tools: list[Tool[..., Any]] = [
        tool(
            fn,
            limits={"memory_bytes": LIMITS.memory_bytes} | OTHERWISE.get(fn.__name__, {}),
            needs=NEEDS.get(fn.__name__, ()),
        )
        for fn in [*OWN, *HOSTILE]
    ]
    tools += [tool(fn, limits={"cpu_s": KEPT_S}, lifetime="session") for fn in KEPT]
    with tempfile.TemporaryDirectory() as workspace:
        async with Supervisor(tools=tools, profiles={SessionKind.MAIN: profile}) as supervisor:
            session = await supervisor.open_session("main", workspace=workspace)
            for name in names:
                print(json.dumps(await call(session, name)), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
