"""Run made-up calls and requests, so that the pages that the real ones write to are copied before these come.

A forked process shares each page with its parent until one of the two writes to it. Then the kernel copies the page,
which takes some thousand instructions. CPython writes wherever it counts a reference, so a first call would copy
several hundred pages. Nothing here changes what a call does.

A standby runs a made-up call, which takes all steps: decode, context, bind, run, encode. Nothing is sent. If the real
call has already come, no further call is made up. The zygote goes through a made-up request after each fork.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple, Self, cast

from toolcell.runner import perform
from toolcell.runner.context import Contexts
from toolcell.runner.control import Options, binds_of, packed, unpacked
from toolcell.runner.link import Link
from toolcell.runner.loading import Loaded, LoadError
from toolcell.wire.frames import HEADER, Field, WireLimits, encode
from toolcell.wire.messages import BindPaths, BindSession, Call, Error, PathsBound, Prepare, Result, Started, to_fields
from toolcell.wire.pipes import PIPE_BYTES
from toolcell.wire.protocol import ZYGOTE_LIMITS, ZygoteLink
from toolcell_sandbox.kernel.descriptors import receive_fds
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.view import Bind
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import Tool

_REHEARSALS = 5  # for each kind of result; by then, the interpreter has specialised its bytecode (PEP 659)
_RESULTS: tuple[object, ...] = ("text", 1, 1.5, True, None, ["text"], {"text": "text", "count": 1})


def _nothing(ctx: ToolContext, text: str = "", count: int = 0, flag: bool = False) -> object:
    return _RESULTS[count] if ctx.call_id else text


_TOOL: Tool[..., object] = Tool(_nothing, name="warm_up", derive=False)
SESSION: dict[str, Field] = {
    "session_id": "",
    "agent_id": "",
    "session_kind": "main",
    "workspace_root": "/tmp",
    "grants": ["read", "write"],
    "grace_s": 1.0,
}
_TOOL.prepare()
_TOOLS: Loaded = {"warm_up": _TOOL}


def _call(result: int) -> bytes:
    arguments: dict[str, Field] = {"text": "x" * 64, "count": result, "flag": True}
    return b"".join(encode(to_fields(Call(1, "warm", "warm_up", {"remaining_s": 1.0}, arguments)), WireLimits()))


_BIND = cast("Field", Bind("/tmp", writable=True, directory=True, inode=(0, 0), owner=None).to_wire())
_SESSION = packed(BindSession([_BIND], "/tmp", ["/tmp"], [], SESSION))[HEADER.size :]
_CALLS = [_call(result) for result in range(len(_RESULTS))]
_WARMING = (_CALLS[0], _CALLS[-1])


async def _nothing_async() -> None:
    """An empty coroutine, to warm up asyncio.run."""


_methods_of_link, _methods_of_tool = attrgetter("wait_for_call", "wait_for_end"), attrgetter("bind", "run")


class Warming(NamedTuple):
    """The objects that a call process uses besides those of every call."""

    counted: tuple[object, ...]  # objects whose reference counts change in calls of the tools
    loop: bool  # whether one of the tools is async

    @classmethod
    def of(cls, loaded: Loaded) -> Self:
        """Collect the objects, in the init, because the search takes time."""
        counted: list[object] = []
        tools = [tool for tool in loaded.values() if not isinstance(tool, LoadError)]
        for tool in tools:
            code = getattr(tool.fn, "__code__", None)
            names = getattr(tool.fn, "__globals__", None)
            counted += (tool.__dict__, tool.fn, code, getattr(code, "co_consts", None), names)
        return cls(tuple(counted), any(tool.is_async for tool in tools))


def look_up(loaded: Loaded, link: Link) -> None:
    """In the init, look up the methods that a call process uses, so that they are in the interpreter's type cache.
    Modules that were loaded after the zygote's own look-up may have evicted them."""
    _methods_of_link(link)
    for tool in loaded.values():
        if not isinstance(tool, LoadError):
            _methods_of_tool(tool)


def warm_up(warming: Warming, contexts: Contexts) -> None:
    """Run made-up calls, and restore the link's state. Stop when a real call has come."""
    counted, loop = warming
    link, ready = contexts.link, contexts.ready
    if link.is_called():
        return
    list(counted)  # a copy of the tuple changes each reference count
    if loop:
        import asyncio

        asyncio.run(_nothing_async())
    for call in _WARMING:
        if link.is_called():
            return
        link.take(call)
        answer: Result | Error = perform.run(_TOOLS, link.wait_for_call(), contexts)
        perform.flush()
        link.protocol.send(answer)
        link.start_over()
        contexts.ready = ready


def read_session(options: Options, link: Link) -> None:
    """In the init and the standby of a cell that waits for its session, read a made-up one."""
    said = unpacked(_SESSION)
    assert isinstance(said, BindSession)
    binds_of(said.binds)
    bound = options.bound(said)
    Contexts(bound.session, bound.protects, link, bound.file_bytes)


def rehearse(answer: Callable[[Call, Loaded, Contexts, int], None]) -> None:
    """In the zygote, run made-up calls until the interpreter has specialised its bytecode and filled its inline caches.

    Otherwise each call process would do so, and copy the pages that hold them.
    """
    (incoming, calls), (answers, outgoing) = os.pipe(), os.pipe()
    contexts = Contexts(SESSION, unprotected, Link(WireLimits(), incoming, outgoing))
    for call in _CALLS * _REHEARSALS:
        os.write(calls, call)
        answer(contexts.link.wait_for_call(), _TOOLS, contexts, os.getpid())
        os.read(answers, PIPE_BYTES)
        contexts.link.start_over()
    for _ in range(_REHEARSALS):
        warm_up(Warming((), loop=False), contexts)
    for fd in (incoming, calls, answers, outgoing):
        os.close(fd)


def unprotected(_path: str, _directory: bool) -> str:
    """The policy of a session that protects no name."""
    return ""


def rehearse_request(profile: CellProfile) -> None:
    """In the zygote, read and answer a request and read a profile, while nobody waits for it.

    A fork leaves all pages shared, so the next request would wait for the copies of all the pages that it needs.
    """
    asking, answering = ZygoteLink.of_supervisor(), ZygoteLink.of_zygote()
    answering.receive(asking.send(Prepare(None, [], [], [])))
    asking.receive(answering.send(Started({}, {})))
    with suppress(OSError):  # no descriptor is left: the next request says so
        _exchange(asking, answering)
    CellProfile.from_wire(profile.to_wire(short=True))


def _exchange(asking: ZygoteLink, answering: ZygoteLink) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(theirs, [asking.send(BindPaths(0, []))], [])
        data, received, _flags = receive_fds(ours, HEADER.size + ZYGOTE_LIMITS.frame_bytes, 8)
        answering.receive(data)
        for fd in received:
            os.close(fd)
        socket.send_fds(ours, [answering.send(PathsBound(0))], [])
