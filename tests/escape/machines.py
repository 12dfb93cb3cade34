"""The kinds of machine that the programs are run on, and what each poorer one cannot promise."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.ordinary import AS_USER, USER
from tests.programs import run as run_program

import toolcell_sandbox
from toolcell_sandbox.profile import python_paths

from .kit import NO_CGROUP, NO_LANDLOCK, NO_NAMESPACES, ROOT, ROOTLESS

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
SILENCE_S = 300.0
"""Longer than one program takes: its call and the calls after it end after 100 s each."""
NAMESPACES = tuple(f"{name}_namespace" for name in ("mount", "pid", "net", "ipc", "uts", "cgroup", "user"))

# A kernel or a container engine that refuses some system calls, for this process and all below it. With a mask, only
# where the first argument has one of its bits.
REFUSING = """
import os, sys
from toolcell_sandbox.kernel.syscalls import NUMBERS
from toolcell_sandbox.mechanisms import capabilities, seccomp
from toolcell_sandbox.mechanisms.bpf import ALLOW, NUMBER, BpfLoad, Jump, Label, Return, assemble, low_word, refuse
names, error, mask = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])
code = [BpfLoad(NUMBER), *(Jump("==", NUMBERS[name], yes="named") for name in names), Return(ALLOW), Label("named")]
code += [BpfLoad(low_word(0)), Jump("&", mask, no="harmless")] if mask else []
code += [Return(refuse(error)), Label("harmless"), Return(ALLOW)]
capabilities.no_new_privileges()
seccomp.load(assemble(code))
os.execv(sys.argv[4], sys.argv[4:])
"""

# A machine whose control groups are not mounted, or hidden behind something else.
WITHOUT_CGROUPS = """
import os, sys
from toolcell_sandbox.kernel.syscalls import attempt, syscall
from toolcell_sandbox.mechanisms import mounts
syscall("unshare", 0x00020000, step="unshare mounts")
mounts.make_private()
if sys.argv[1] == "hidden":
    syscall("mount", "tmpfs", "/sys/fs/cgroup", "tmpfs", 0, None, step="hide the cgroups")
while sys.argv[1] == "unmounted" and attempt("umount2", "/sys/fs/cgroup", 2) == 0:
    pass
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Machine:
    """How one kind of machine is made of this one."""

    name: str
    ordinary_user: bool = False
    refuse: tuple[str, int, int] | None = None  # system calls, errno, mask of the first argument
    cgroups: str = ""  # "unmounted" or "hidden"
    allow: tuple[str, ...] = ()
    sections: tuple[str, ...] = ("fs", "net", "proc", "res", "wire", "py", "info", "priv")
    """The programs that what is different about it bears on: wire and py are the same whoever makes the cell."""
    lanes: int = 3
    processes: int = 16
    lost: tuple[tuple[str, str], ...] = ()
    """What it cannot promise: the promise, and what holds instead."""


_ALL_NAMESPACES = 0x7E020000
MACHINES = (
    Machine(ROOT),
    Machine(ROOTLESS, ordinary_user=True, sections=("fs", "net", "proc", "res", "info", "priv")),
    Machine(
        NO_NAMESPACES,
        ordinary_user=True,
        refuse=("unshare,clone", 1, _ALL_NAMESPACES),
        allow=NAMESPACES,
        sections=("fs", "net", "proc", "res", "info", "priv"),
        lanes=1,
        lost=(
            (
                "write outside",
                "content, names and directories hold; mode, times and attributes of what is the user's do not",
            ),
            ("read outside", "content and listings hold; that a path exists, and its size, can be seen"),
            ("private scratch", "there is none: /tmp is closed, not the cell's own"),
            ("host name", "it is the host's, and so are the names of network interfaces"),
            ("process limit", "RLIMIT_NPROC counts all processes of the user; the watch counts the call's"),
        ),
    ),
    Machine(
        NO_LANDLOCK,
        ordinary_user=os.geteuid() != 0,
        refuse=("landlock_create_ruleset", 38, 0),
        allow=("landlock",),
        sections=("fs", "net", "proc", "info", "priv"),
        lost=(
            ("signals", "a call can send its own init signals, which the kernel drops"),
            ("second layer", "of files"),
        ),
    ),
    Machine(
        NO_CGROUP,
        cgroups="unmounted",
        sections=("proc", "res", "info"),
        lost=(("first layer of memory and processes", "rlimits and the watch"),),
    ),
)


def possible_here() -> list[Machine]:
    """The machines that this user can make: root all of them, another user those that need no privilege."""
    if os.geteuid() == 0:
        return list(MACHINES)
    return [machine for machine in MACHINES if machine.name in (ROOTLESS, NO_NAMESPACES, NO_LANDLOCK)]


def command_on(machine: Machine, command: Sequence[str], reachable: Sequence[str] = ()) -> list[str]:
    """The command line that runs `command` on such a machine. `reachable` are paths that its user must reach."""
    line = list(command)
    python = [sys.executable, "-I"]
    if machine.refuse is not None:
        names, error, mask = machine.refuse
        line = [*python, "-c", REFUSING, names, str(error), str(mask), *line]
    if machine.ordinary_user and os.geteuid() == 0:
        sources = str(Path(toolcell_sandbox.__file__).parent.parent.parent)
        line = [*python, str(AS_USER), str(USER), *python_paths(), sources, str(REPOSITORY), *reachable, "--", *line]
    if machine.cgroups:
        line = [*python, "-c", WITHOUT_CGROUPS, machine.cgroups, *line]
    return line


@cache
def programs() -> dict[str, ModuleType]:
    """Every program by its name, as a module, for its metadata."""
    files = sorted((HERE / "programs").glob("*/*.py"), key=lambda path: path.stem)
    return {path.stem: _load(path) for path in files}


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Ran:
    """What came of the programs on one machine: a record for each, and one of the end."""

    records: dict[str, dict[str, Any]]
    end: dict[str, Any]
    unfinished: list[str]
    stderr: str


def run(machine: Machine, stage: Path, names: Sequence[str]) -> Ran:
    """Run these programs through one supervisor on such a machine."""
    if machine.ordinary_user and os.geteuid() == 0:
        os.chown(stage, USER, USER)
    order = stage / "order.json"
    marker = f"esc{os.getpid()}{machine.name[:4].strip()}"[:15]
    wanted = {
        "variant": machine.name,
        "programs": list(names),
        "stage": str(stage),
        "allow": machine.allow,
        "marker": marker,
        "lanes": machine.lanes,
        "processes": machine.processes,
    }
    order.write_text(json.dumps(wanted))
    order.chmod(0o644)
    command = command_on(machine, [sys.executable, "-I", str(HERE / "batch.py"), str(order)])
    try:
        done = run_program(command, timeout=SILENCE_S, cwd="/")
        answers, complaints = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:  # what it did not come to is unfinished, which fails those programs
        answers, complaints = str(late.output), str(late.stderr)
    ran = Ran({}, {}, [], complaints)
    started: list[str] = []
    for text in answers.splitlines():
        line = json.loads(text)
        if "starts" in line:
            started.append(line["starts"])
        elif "name" in line:
            ran.records[line["name"]] = line
        else:
            ran.end = line
    ran.unfinished = [name for name in started if name not in ran.records]
    return ran
