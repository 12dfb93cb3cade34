"""The demo's own tools: one useful tool and many hostile ones. Cells import this module by its path."""

import ctypes
import errno
import os
import socket
import time
from pathlib import Path
from typing import Literal

from toolcell import Capability, ToolContext, tool
from toolcell.runner.control import FRAMES_IN, FRAMES_OUT
from toolcell.wire.frames import FrameDecoder, WireLimits, encode
from toolcell.wire.messages import Reply, Request, from_fields, to_fields

MIB = 1024 * 1024


# -- a useful tool --------------------------------------------------------------------------------------------------


@tool(needs={Capability.READ})
def count_words(ctx: ToolContext, path: str) -> dict[str, int]:
    """Count the lines and words of a text file.

    Args:
        path: The file, relative to the workspace.
    """
    text = ctx.workspace.read_text(path)
    return {"lines": len(text.splitlines()), "words": len(text.split())}


# -- tools that fail --------------------------------------------------------------------------------------------------


@tool(limits={"memory_bytes": 64 * MIB, "processes": 8, "output_bytes": 64 * 1024})
def fails(how: Literal["raise", "segfault", "exit", "eat memory", "fork", "flood"]) -> None:
    """Fail.

    Args:
        how: In what way.
    """
    first, hoard = os.getpid(), list[bytes]()
    if how == "raise":
        raise ValueError("the price is not a number: 'n/a'")
    if how == "segfault":
        ctypes.string_at(0)
    if how == "exit":
        os._exit(7)
    while how == "eat memory":
        hoard.append(b"x" * MIB)
    while how == "flood":
        print("all work and no play " * 50)
    while True:  # fork in every process, until no fork succeeds
        try:
            os.fork()
        except BlockingIOError:
            if os.getpid() == first:
                raise
            time.sleep(60)  # the children keep running


@tool(timeout=0.3)
def loops() -> None:
    """Never return."""
    while True:
        pass


# -- tools that try to break out ------------------------------------------------------------------------------------


@tool(needs={Capability.READ}, uses={Capability.NET})
def tries(what: Literal["connect", "execute", "read", "signal", "write"], target: str) -> str:
    """Do something past the context: to a port, a program, a path or a process.

    Args:
        what: What to do.
        target: What to do it to.
    """
    try:
        if what == "connect":
            socket.create_connection(("127.0.0.1", int(target)), timeout=1.0).close()
        elif what == "execute":
            os.execve(target, [target], {})
        elif what == "read":
            os.close(os.open(target, os.O_RDONLY))
        elif what == "signal":
            os.kill(int(target), 0)
        else:
            Path(target).write_text("gone")
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


@tool
def lingers(name: str) -> str:
    """Leave a process named `name` (in /proc) behind, in a session of its own."""
    ready, done = os.pipe()
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(15, name.encode()[:15], 0, 0, 0)  # PR_SET_NAME
        os.write(done, b"1")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    return "started"


@tool
def writes_garbage() -> None:
    """Write to the pipe that carries this call's result."""
    os.write(FRAMES_OUT, b"HTTP/1.1 200 OK\r\n\r\nall is well, trust me")


@tool
def forges_a_request(ctx: ToolContext, text: str) -> str:
    """Ask the supervisor for a channel that was not granted, with a forged frame."""
    seq: int = ctx._reporter._link.seq  # type: ignore[attr-defined] # pyright: ignore
    frame = encode(to_fields(Request(seq, 1, "channel.send", {"text": text})), WireLimits())
    os.write(FRAMES_OUT, b"".join(frame))
    (answer,) = FrameDecoder(WireLimits()).feed(os.read(FRAMES_IN, 65_536))
    reply = from_fields(answer) if isinstance(answer, list) else answer
    if isinstance(reply, Reply) and isinstance(reply.value, dict):
        return f"refused: {reply.value['kind']!s}"
    return str(reply)


TOOLS = (count_words, fails, loops, tries, lingers, writes_garbage, forges_a_request)
