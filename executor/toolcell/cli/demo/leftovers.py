"""Check that nothing is left: no processes, open files, or files outside the project."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from .stage import PROJECT, DemoStage

MADE = frozenset({"notes/fix.md"})


@dataclass(frozen=True, slots=True)
class Leftover:
    """One check. `wrong` describes the problem, or is empty."""

    what: str
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Before:
    """The state of this process before the supervisor's start."""

    descriptors: int
    children: frozenset[int]

    @classmethod
    def now(cls) -> "Before":
        return cls(_descriptors(), frozenset(child.pid for child in psutil.Process().children(recursive=True)))


def while_running(before: Before) -> Iterator[Leftover]:
    """Check that this process has no children except zygotes."""
    others = [child for child in _new_children(before, recursive=False) if not _is_zygote(child)]
    yield Leftover("the supervisor's only children are its zygotes", _listed(others))


def afterwards(before: Before, stage: DemoStage) -> Iterator[Leftover]:
    """Check that nothing is left except the files in the project."""
    yield Leftover("no process is left", _listed(_new_children(before, recursive=True)))
    more = _descriptors() - before.descriptors
    yield Leftover("no file descriptor is left open", f"{more} more than before" if more > 0 else "")
    places = dict.fromkeys(
        [Path("/tmp"), Path(tempfile.gettempdir()), Path(os.path.expanduser("~")), Path.cwd(), stage.project.parent]
    )
    strays = [str(place) for place in places if os.path.lexists(place / stage.mark)]  # empty if unreadable
    yield Leftover("no file of a tool lies outside the project", ", ".join(strays))
    files = {
        str(path.relative_to(stage.project))
        for path in stage.project.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    yield Leftover("the project has the files it should have", ", ".join(sorted(files ^ (PROJECT.keys() | MADE))))


def _new_children(before: Before, *, recursive: bool) -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=recursive) if child.pid not in before.children]


def _is_zygote(process: psutil.Process) -> bool:
    try:
        return "toolcell.runner" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _listed(processes: list[psutil.Process]) -> str:
    return ", ".join(f"{process.pid} {process.name()}" for process in processes)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
