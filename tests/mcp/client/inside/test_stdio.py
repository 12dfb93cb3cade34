"""A server that is a child process: what it sends unasked, and its end."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers import PATIENCE_S

from toolcell.mcp.client.inside.stdio import READ_BYTES, StdioTransport

ENDS = {
    "at the end of its input": 'sleep 1000 & echo $! > "$0"; exec cat',
    "on SIGTERM": 'sleep 1000 & echo $! > "$0"; exec sleep 1000',
    "on SIGKILL": 'sleep 1000 & echo $! > "$0"; trap "" TERM; sleep 1000; sleep 1000',
}


def is_running(pid: int) -> bool:
    """Whether the process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def soon(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_all_that_has_arrived_unasked_is_read_also_if_it_takes_several_reads(tmp_path: Path) -> None:
    note, count = tmp_path / "written", READ_BYTES
    program = f'read line; yes x | head -n {count}; touch "$0"; exec cat'
    transport = StdioTransport(["sh", "-c", program, str(note)], 60)
    try:
        fcntl.fcntl(transport._stdout, fcntl.F_SETPIPE_SZ, 4 * READ_BYTES)  # pyright: ignore[reportPrivateUsage]
        transport.post({"method": "begin"})
        transport.flush()
        soon(note.exists)
        assert list(transport.drain()) == [None] * count
    finally:
        transport.close()


@pytest.mark.parametrize("ends", ENDS)
def test_the_close_ends_a_server_and_what_it_has_started_and_closes_the_pipes(ends: str, tmp_path: Path) -> None:
    note = tmp_path / "child"
    before = set(os.listdir("/proc/self/fd"))
    transport = StdioTransport(["sh", "-c", ENDS[ends], str(note)], 60)
    soon(lambda: note.exists() and note.read_text().endswith("\n"))
    child = int(note.read_text())
    assert is_running(child)
    transport.close()
    soon(lambda: not is_running(child))
    assert set(os.listdir("/proc/self/fd")) == before
