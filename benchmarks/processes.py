"""What processes there are below another one, and how much memory each has, by the kernel's account (proc(5))."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolcell import Supervisor
from toolcell.supervisor import runtime_of

WAIT = "import sys; sys.stdin.read()"
IDLE = f"import os; print(os.getpid(), flush=True); {WAIT}"
"""A program for `python`."""


def descendants(pid: int) -> list[int]:
    """All processes below this one, each before its children. One that ends meanwhile has none."""
    found: list[int] = []
    for child in _children(pid):
        found += [child, *descendants(child)]
    return found


def _children(pid: int) -> list[int]:
    try:
        lists = [Path(f"/proc/{pid}/task/{task}/children").read_text() for task in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for each in lists for child in each.split()]


def of_the_call(init: int) -> list[int]:
    """The process of the call that runs in a cell, and all below it. A later child of the init is the next call's."""
    children = Path(f"/proc/{init}/task/{init}/children").read_text().split()
    return [int(children[0]), *descendants(int(children[0]))] if children else []


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a process: USS is what it shares with no other; PSS adds its part of what it shares."""

    uss: int
    pss: int


def memory_of(pid: int) -> Memory:
    """Now. Raises OSError where the process may not be looked into: cells show nothing to an ordinary user."""
    amounts: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        amounts[name] = int(rest.split()[0]) * 1024
    return Memory(amounts["Private_Clean"] + amounts["Private_Dirty"], amounts["Pss"])


def cells_of(supervisor: Supervisor) -> list[tuple[int, list[int]]]:
    """Each cell: the pid of its init, and of the call processes below it."""
    return [(cell.pid, descendants(cell.pid)) for cell in runtime_of(supervisor).pool.cells.values()]


def of_the_pool() -> list[int]:
    """The zygotes below this process, their cells, and the call processes of those."""
    return [pid for pid in descendants(os.getpid()) if b"toolcell.runner" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextmanager
def python(program: str, *options: str) -> Iterator[int]:
    """A Python that runs this program, which prints the pid that matters and then waits for its input to end."""
    command = [sys.executable, *options, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
