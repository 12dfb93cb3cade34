"""`BashCell`: bash shells that keep their directory, variables, functions and jobs.

Supervisor([*workspace_tools(), BashCell()])
"""

import os
import re
import secrets
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from toolcell_tools.capability import Capability, PermissionTier
from toolcell_tools.context import ToolContext
from toolcell_tools.failures import ToolFailure
from toolcell_tools.options import Annotations, Lifetime
from toolcell_tools.typed import TypedTool

from .workspace_tools import FOR_PROGRAMS

__all__ = ["BashCell", "ShellEvent", "ShellStep"]

MAX_OUTPUT = 200_000
"""The most bytes of output in an event. Of a longer output, the middle is left out."""
_CHUNK = 65_536


class ShellStep(BaseModel):
    """One step in the shell named `shell`. A step also ends when the output has one of the texts in `expect`."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["open", "run", "send", "interrupt", "close"]
    shell: str = "default"
    command: str = Field(default="", description="A command, or what to send to the program that runs.")
    expect: list[str] = Field(default_factory=list[str])
    timeout_s: float = 30.0


class ShellEvent(BaseModel):
    """How a step ended. `exit_code` is None while the program still runs. `expected` is the text that was found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: Literal["done", "expected", "timeout", "exited", "syntax_error", "unknown_shell"]
    output: str = ""
    exit_code: int | None = None
    expected: str = ""


class BashCell(TypedTool[ShellStep]):
    """The shells of a session, by name. Each is a bash on pipes, without a terminal."""

    name = "bash_session"
    lifetime: Lifetime = "session"
    needs: Iterable[Capability | str] = frozenset({Capability.READ, Capability.WRITE, Capability.EXEC})
    uses: Iterable[Capability | str] = frozenset({Capability.NET})
    tier = PermissionTier.SYSTEM
    annotations = Annotations(destructive=True, open_world=True, sequential=True)
    metadata = FOR_PROGRAMS
    output_schema: object = ShellEvent
    timeout = 3600.0

    def setup(self, ctx: ToolContext) -> None:
        """Begin without a shell."""
        self._shells: dict[str, _Bash] = {}

    def call(self, ctx: ToolContext, input: ShellStep) -> ShellEvent:
        """Do one step."""
        end = time.monotonic() + min(input.timeout_s, ctx.remaining() - 0.5)
        if input.action == "open":
            if input.shell in self._shells:
                raise ToolFailure(f"The shell {input.shell!r} is open.")
            opened = self._shells[input.shell] = _Bash(ctx.workspace_root)
            return opened.run(input.command, [], end) if input.command else ShellEvent(event="done", exit_code=0)
        shell = self._shells.get(input.shell)
        if shell is None:
            return ShellEvent(event="unknown_shell")
        match input.action:
            case "close":
                self._shells.pop(input.shell).close()
                return ShellEvent(event="done")
            case "interrupt":
                return shell.interrupt(input.expect, end)
            case "send":
                return shell.send(input.command, input.expect, end)
            case _:
                return shell.run(input.command, input.expect, end)


class _Bash:
    """One shell. After each command, it prints a marker, and its output is read up to the marker."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._process = subprocess.Popen(
            ["/bin/bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )
        self._marker = ""
        """The marker of the running command, "" without one."""
        self._stale: list[str] = []
        """The markers of earlier commands that still ran when the next command was sent."""
        self._write("trap : INT\n")  # an interrupt ends the command, and not the shell

    def run(self, command: str, expect: list[str], end: float) -> ShellEvent:
        """Run a command with an empty standard input."""
        checked = subprocess.run(["/bin/bash", "-n"], input=command.encode(), capture_output=True, check=False)
        if checked.returncode != 0:  # after an open quote, the marker would be a part of the command
            return ShellEvent(event="syntax_error", output=checked.stderr.decode(errors="backslashreplace"))
        if self._marker:
            self._stale.append(self._marker)
        self._marker = secrets.token_hex(16)
        self._write(f"eval {shlex.quote(command)} </dev/null; printf '%s:%d:' {self._marker} $?\n")
        return self._read(expect, end)

    def send(self, text: str, expect: list[str], end: float) -> ShellEvent:
        """Send a line to the shell, or to the program that runs in it. Read up to one of `expect`, or up to the
        program's end."""
        if not self._marker:
            self._marker = secrets.token_hex(16)
            self._write(f"eval {shlex.quote(text)}; printf '%s:%d:' {self._marker} $?\n")
        else:
            self._write(f"{text}\n")
        return self._read(expect, end)

    def interrupt(self, expect: list[str], end: float) -> ShellEvent:
        """Interrupt the running command. Kill the processes that do not end in half the time."""
        now = time.monotonic()
        if not self._marker:
            return ShellEvent(event="done", exit_code=0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        event = self._read(expect, now + (end - now) / 2)
        if event.event != "timeout":
            return event
        for child in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        killed = self._read(expect, end)
        return killed.model_copy(update={"output": event.output + killed.output})

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            cast("IO[bytes]", pipe).close()

    def _write(self, text: str) -> None:
        with suppress(BrokenPipeError):  # the shell has ended, which the next read finds
            pipe = cast("IO[bytes]", self._process.stdin)
            pipe.write(text.encode())
            pipe.flush()

    def _read(self, expect: list[str], end: float) -> ShellEvent:
        fd = cast("IO[bytes]", self._process.stdout).fileno()
        marker, output = f"{self._marker}:".encode(), _Printed()
        while True:
            before, found, rest = output.tail.partition(marker)
            code, colon, _ = rest.partition(b":")
            if found and colon:
                self._marker, text = "", output.text(len(before))
                while self._stale:
                    text = re.sub(rf"{self._stale.pop()}:\d+:", "", text)
                return ShellEvent(event="done", output=text, exit_code=int(code))
            seen = next((one for one in expect if one.encode() in output.tail), None)
            if seen is not None and not found:
                return ShellEvent(event="expected", output=output.text(), expected=seen)
            left_s = end - time.monotonic()
            if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
                return ShellEvent(event="timeout", output=output.text())
            data = os.read(fd, _CHUNK)
            if not data:
                return ShellEvent(event="exited", output=output.text(), exit_code=self._process.wait())
            output.add(data)


class _Printed:
    """The output of a command. Of more than `MAX_OUTPUT` bytes, only the beginning and the end are kept."""

    def __init__(self) -> None:
        self.head = b""
        self.tail = b""
        self.cut = 0

    def add(self, data: bytes) -> None:
        self.tail += data
        half = MAX_OUTPUT // 2
        if len(self.tail) > (half if self.head else 2 * half):
            if not self.head:
                self.head, self.tail = self.tail[:half], self.tail[half:]
            gone = len(self.tail) - half
            self.cut += gone
            self.tail = self.tail[gone:]

    def text(self, length: int | None = None) -> str:
        tail = self.tail if length is None else self.tail[:length]
        middle = f"\n[… {self.cut:,} bytes …]\n".encode() if self.cut else b""
        return (self.head + middle + tail).decode(errors="backslashreplace")


def _children(pid: int) -> list[int]:
    """The descendants of a process, from /proc (proc_pid_task_children(5))."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            found = [int(each) for each in file.read().split()]
    except OSError:
        return []
    return [*found, *(below for each in found for below in _children(each))]
