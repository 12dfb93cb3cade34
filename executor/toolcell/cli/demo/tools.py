"""The demo's own tools: one useful tool and many hostile ones. Cells import this module by its path."""

import ctypes
import errno
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from toolcell import Capability, ToolContext, tool

MIB = 1024 * 1024
LOOP_S = 0.3
MEMORY_BYTES = 64 * MIB
PROCESSES = 8
OUTPUT_BYTES = 64 * 1024
PROTOCOL_PIPE = 5  # toolcell.runner.fds.FRAMES_OUT


def _attempt(what: Callable[[], object]) -> str:
    """The name of the errno, or "done"."""
    try:
        what()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


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


@tool
def raises() -> None:
    """Raise an exception."""
    raise ValueError("the price is not a number: 'n/a'")


@tool
def segfaults() -> str:
    """Read address 0."""
    return str(ctypes.string_at(0))


@tool
def exits(code: int) -> None:
    """End the process without an answer."""
    os._exit(code)


@tool(timeout=LOOP_S)
def loops() -> None:
    """Never return."""
    while True:
        pass


@tool(limits={"memory_bytes": MEMORY_BYTES})
def eats_memory() -> None:
    """Allocate memory until an allocation fails."""
    hoard: list[bytes] = []
    while True:
        hoard.append(b"x" * MIB)


@tool(limits={"processes": PROCESSES})
def forks() -> None:
    """Fork in every process, until no fork succeeds."""
    first = os.getpid()
    while True:
        try:
            os.fork()
        except BlockingIOError:
            if os.getpid() == first:
                raise
            time.sleep(60)  # the children keep running


@tool(limits={"output_bytes": OUTPUT_BYTES})
def floods() -> None:
    """Print without end."""
    while True:
        print("all work and no play " * 50)


# -- tools that try to break out ------------------------------------------------------------------------------------


@tool
def looks_around(paths: list[str]) -> dict[str, list[str] | str]:
    """List directories of the host and open files."""

    def look(path: str) -> list[str] | str:
        try:
            if os.path.isdir(path):
                return sorted(os.listdir(path))
            os.close(os.open(path, os.O_RDONLY))
            return "readable"
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error))

    return {path: look(path) for path in paths}


@tool(uses={Capability.NET})
def calls_out(host: str, port: int) -> str:
    """Connect to a listener."""

    def connect() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            connection.connect((host, port))

    return _attempt(connect)


@tool
def signals(pid: int) -> str:
    """Signal a process of the host."""
    return _attempt(lambda: os.kill(pid, 0))


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
def litters(name: str) -> str:
    """Leave a file in /tmp."""
    return _attempt(lambda: Path("/tmp", name).write_text("mine"))


@tool
def writes_garbage() -> None:
    """Write to the pipe that carries this call's result."""
    os.write(PROTOCOL_PIPE, b"HTTP/1.1 200 OK\r\n\r\nall is well, trust me")


@tool
def forges_a_request(ctx: ToolContext, text: str) -> str:
    """Ask the supervisor for a channel that was not granted, with a forged frame."""
    from toolcell.runner.fds import FRAMES_IN, FRAMES_OUT
    from toolcell.wire.frames import FrameDecoder, WireLimits, encode
    from toolcell.wire.messages import Reply, Request, from_fields, to_fields

    seq: int = ctx._reporter._link.seq  # type: ignore[attr-defined] # pyright: ignore
    frame = encode(to_fields(Request(seq, 1, "channel.send", {"text": text})), WireLimits())
    os.write(FRAMES_OUT, b"".join(frame))
    (answer,) = FrameDecoder(WireLimits()).feed(os.read(FRAMES_IN, 65_536))
    reply = from_fields(answer) if isinstance(answer, list) else answer
    if isinstance(reply, Reply) and isinstance(reply.value, dict):
        return f"refused: {reply.value['kind']!s}"
    return str(reply)


@tool(needs={Capability.READ})
def overwrites(path: str, text: str) -> str:
    """Write to a file past the context, which has no writer."""
    return _attempt(lambda: Path(path).write_text(text))


@tool(needs={Capability.READ})
def executes(program: str) -> str:
    """Replace this process by another program."""
    return _attempt(lambda: os.execve(program, [program], {}))


TOOLS = (
    count_words,
    raises,
    segfaults,
    exits,
    loops,
    eats_memory,
    forks,
    floods,
    looks_around,
    calls_out,
    signals,
    lingers,
    litters,
    writes_garbage,
    forges_a_request,
    overwrites,
    executes,
)
