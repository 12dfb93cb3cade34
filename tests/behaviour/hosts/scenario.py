"""A supervisor on another kind of machine, as a program: `python -I scenario.py WORKSPACE [ALLOW…]`.

It prints one JSON object. The tools are in this file, which is `__main__`, so they are shipped by value.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

import anyio

from toolcell import (
    Capability,
    Limits,
    Profile,
    SandboxUnavailableError,
    SessionKind,
    Supervisor,
    ToolContext,
    base_tools,
    tool,
)


@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, path: str, text: str) -> str:
    """Save text."""
    assert ctx.writer is not None
    ctx.writer.write_text(path, text)
    return f"saved {len(text)} characters"


@tool(needs={Capability.READ})
def tries() -> dict[str, object]:
    """Try actions that must fail. Return their errnos."""
    found: dict[str, object] = {"uid": os.getuid(), "pid": os.getpid(), "root": sorted(os.listdir("/"))}
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: os.open("stolen.txt", os.O_WRONLY | os.O_CREAT),
        "shadow": lambda: os.open("/etc/shadow", os.O_RDONLY),
        "socket": lambda: socket.socket(),
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "kill": lambda: os.kill(SUPERVISOR, signal.SIGKILL),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError as error:
            found[name] = error.errno
        else:
            found[name] = "worked"
    return found


SUPERVISOR = os.getpid()


@tool
def crash() -> int:
    """Segfault."""
    return len(ctypes.string_at(0))


@tool
def hang() -> None:
    """Never return."""
    time.sleep(1000)


@tool
def eat() -> int:
    """Take memory in many processes."""
    for _ in range(12):
        if os.fork() == 0:
            held = bytearray(40 * 1024 * 1024)
            time.sleep(len(held))
    time.sleep(1000)
    return 0


@tool
def bomb() -> None:
    """Fork without end, and ignore errors."""
    while True:
        try:
            os.fork()
        except OSError:
            pass


async def main() -> dict[str, object]:
    limits = Limits(memory_bytes=128 * 1024 * 1024, processes=24)
    profiles = {kind: Profile.for_kind(kind.value).replace(limits=limits) for kind in SessionKind}
    tools = [*base_tools(), save, tries, crash, hang, eat, bomb]
    async with Supervisor(tools, profiles=profiles, allow_missing=sys.argv[2:]) as supervisor:
        session = await supervisor.open_session("main", workspace=sys.argv[1])
        helper = await session.open_child("worker")
        saved = await session.call("save", {"path": "a.txt", "text": "hello"})
        denied = await helper.call("save", {"path": "a.txt", "text": "hello"})
        read = await helper.call("read", {"path": "a.txt"})
        tried = await helper.call("tries")
        shell = await session.call("shell", {"command": "echo hi > b.txt; cat a.txt b.txt"})
        errors = {}
        for name in ("crash", "hang", "eat", "bomb"):
            result = await session.call(name, timeout=None if name != "hang" else 0.3)
            errors[name] = [result.error.kind, getattr(result.error, "resource", "")] if result.error else "no error"
        after = await session.call("read", {"path": "b.txt"})
        return {
            "identity": supervisor.status().identity,
            "on": sorted(supervisor.status().on),
            "missing": sorted(mechanism.name for mechanism in supervisor.status().missing),
            "saved": saved.display,
            "saved_error": saved.error.message if saved.error else "",
            "denied": denied.error.kind if denied.error else "",
            "read": read.output,
            "tried": tried.output if tried.error is None else tried.error.message,
            "shell": shell.output if shell.error is None else shell.error.message,
            "errors": errors,
            "after": after.output if after.error is None else after.error.message,
            "sandbox": after.sandbox.model_dump(),
        }


if __name__ == "__main__":
    try:
        print(json.dumps(anyio.run(main)))
    except SandboxUnavailableError as error:
        print(json.dumps({"unavailable": str(error), "mechanism": error.mechanism, "cure": error.cure}))
