"""Noting from outside when the supervisor and its cells do what. Nothing of it is in the product."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from toolcell import Tool, tool
from toolcell.dispatch import conclude
from toolcell.dispatch.validate import Validator
from toolcell.pool.cell import Cell
from toolcell.pool.cell.calls import Calls
from toolcell.pool.cell.channels import Channels, Outbox
from toolcell.pool.pool import Pool
from toolcell.pool.run import Run
from toolcell.pool.zygote import ZygoteProcess

Stamp = tuple[str, float]

WRAPPED: Sequence[tuple[Any, str, str, str]] = (
    (Validator, "check", "to validate", "validated"),
    (Pool, "submit", "submitted", ""),
    (Outbox, "write", "to write", ""),
    (Channels, "look", "woken", ""),
    (Calls, "on_answer", "received", ""),
    (Cell, "__init__", "to make a cell", "described"),
    (ZygoteProcess, "make", "to ask", "asked"),
    (ZygoteProcess, "bind", "to finish", ""),
    (Cell, "on_bound", "in place", ""),
    (Run, "end", "measured", ""),
    (conclude, "result_of", "resumed", ""),
    (conclude, "record", "rendered", ""),
)


@tool
def stamps(give: bool) -> list[tuple[str, float]]:
    """Note that a tool is called; give what this process and those it was forked from have noted.

    Args:
        give: Or give nothing, as a tool does whose result is short.
    """
    noted: list[tuple[str, float]] = sys.modules["__main__"].STAMPS
    noted.append(("tool", time.perf_counter()))
    given = noted[:] if give else []
    noted.append(("tool done", time.perf_counter()))
    return given


kept_stamps: Tool[..., list[tuple[str, float]]] = tool(stamps.fn, name="kept_stamps", lifetime="session")


class Notes:
    """What the supervisor's process has noted since `clear`."""

    def __init__(self) -> None:
        self.taken: list[Stamp] = []

    def note(self, name: str) -> None:
        self.taken.append((name, time.perf_counter()))

    def wrapped(self, function: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
        def noted(*args: Any, **options: Any) -> Any:
            self.note(before)
            result = function(*args, **options)
            if after:
                self.note(after)
            return result

        return noted


@contextmanager
def noting() -> Iterator[Notes]:
    """While this is entered, supervisors that are made note what they do, and start zygotes that do."""
    notes = Notes()
    with ExitStack() as stack:
        for owner, name, before, after in WRAPPED:
            stack.enter_context(patch.object(owner, name, notes.wrapped(getattr(owner, name), before, after)))
        stack.enter_context(patch("toolcell.pool.zygote.subprocess.Popen", _popen))
        yield notes


_Popen = subprocess.Popen


def _popen(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start our own zygote in place of the usual one."""
    assert command[2:4] == ["-m", "toolcell.runner"], command
    script = str(Path(__file__).with_name("stamped_zygote.py"))
    return _Popen([*command[:2], script, command[4]], **options)


def first_of(stamps_: Sequence[Stamp], name: str, since: float) -> float:
    """When this happened first, at this time or later."""
    for each, when in stamps_:
        if each == name and when >= since:
            return when
    raise LookupError(f"{name!r} was not noted after {since}: {stamps_}")
