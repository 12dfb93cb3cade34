"""Counts of POSIX locks, with locks that this test's own child holds."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from toolcell.pool import processes

_HOLD = """
import fcntl, struct, sys, tempfile
held = []
for _ in range(int(sys.argv[1]) // 100):
    held.append(tempfile.TemporaryFile(dir=sys.argv[2]))
    for place in range(100, 0, -1):  # the kernel finds the place of each at once
        fcntl.fcntl(held[-1], fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * place, 1, 0))
print(len(held), flush=True)
sys.stdin.read()
"""


@contextmanager
def _holder(locks: int, tmp_path: Path) -> Generator[int]:
    arguments = [sys.executable, "-I", "-c", _HOLD, str(locks), str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        yield child.pid
        child.stdin.close()  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_locks", processes.Locks(Counter(), True, 0.0))


def test_a_call_may_hold_so_many_locks(tmp_path: Path) -> None:
    with _holder(processes.MOST_LOCKS - 96, tmp_path) as pid:
        assert not processes.holds_too_many_locks(lambda: [pid, os.getpid()])
    time.sleep(0.3)  # the reading is used so long
    with _holder(processes.MOST_LOCKS + 104, tmp_path) as pid:
        assert processes.holds_too_many_locks(lambda: [pid, os.getpid()])
        assert not processes.holds_too_many_locks(lambda: [os.getpid()])


def test_locks_of_many_calls_hide_no_other(tmp_path: Path) -> None:
    """If the list is longer than what is read of it, nobody can tell whose the rest is, so a call may have fewer."""
    with _holder(4000, tmp_path) as one, _holder(4000, tmp_path) as two, _holder(4000, tmp_path) as three:
        assert any(processes.holds_too_many_locks([pid].copy) for pid in (one, two, three))
        assert not processes.holds_too_many_locks(lambda: [os.getpid()])


def test_a_long_list_takes_a_small_part_of_the_event_loop(tmp_path: Path) -> None:
    with _holder(20_000, tmp_path):
        began, spent, looks = time.monotonic(), time.thread_time(), 0
        while time.monotonic() - began < 1.0:
            processes.holds_too_many_locks(list)
            looks += 1
            time.sleep(0.01)
        assert looks > 5
        assert time.thread_time() - spent < 0.25
