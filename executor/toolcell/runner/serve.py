"""The call process: waits for its call, runs the tool, answers, and is gone. Whatever the tool does, it does it
here.
"""

import asyncio
import ctypes
import errno
import gc
import io
import os
import random
import signal
import sys
import traceback
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, NoReturn, cast

import pydantic

from toolcell.wire.frames import Field, TooLarge, Unpackable, WireLimits
from toolcell.wire.messages import Call, Error, Result
from toolcell_sandbox.mechanisms.landlock import scope_call
from toolcell_sandbox.mechanisms.rlimits import limit_cpu, raise_oom_score
from toolcell_tools import function
from toolcell_tools.capability import Capability
from toolcell_tools.encode import encode_json, encode_return
from toolcell_tools.failures import MissingCapability, ToolFailure, Unencodable

from . import context, warm
from .link import Link
from .loading import AnyTool, Loaded, LoadError

MESSAGE_CHARS = 4_000
TRACEBACK_CHARS = 20_000
FRAME_OVERHEAD_BYTES = 64 * 1024
_SPENT = {
    errno.EMFILE: "files",
    errno.ENFILE: "files",
    errno.EFBIG: "file_size",
}
_fflush = ctypes.CDLL(None).fflush  # flushes every open C stream when given NULL (fflush(3))


def preload() -> None:
    """In the zygote: import and touch what every call needs, and have tools imported later not derive schemas."""
    function.deriving = False
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would raise KeyboardInterrupt in an init that polls
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what a call printed before it crashed is there to be read
    for name in ("encodings.idna", "toolcell_tools.base", "toolcell_tools.result", "pydantic", "cloudpickle"):
        import_module(name)  # what a first use would import in each process anew


def serve(loaded: Loaded, cpu_s: float, result_bytes: int, *, kept: bool) -> NoReturn:
    """Become the call process: one more Landlock layer, limits of its own, fresh randomness; then wait for the call."""
    scope_call()
    limit_cpu(cpu_s)
    raise_oom_score()
    gc.enable()
    reseed()
    limits = WireLimits(result_bytes + FRAME_OVERHEAD_BYTES, string_bytes=result_bytes + FRAME_OVERHEAD_BYTES)
    link = Link(limits)
    warm.warm_up(loaded, link, limits)
    me = os.getpid()
    while True:
        call = link.wait_for_call()
        answer = run(loaded.get(call.tool), call, link)
        if os.getpid() != me:
            os._exit(0)  # the tool forked, and this is a child that returned from the tool too
        flush()
        deliver(answer, link)
        if not kept:
            link.wait_for_end()


def reseed() -> None:
    """Give this process randomness of its own: forks of one zygote would all draw the same."""
    random.seed()
    uuid = sys.modules.get("uuid")
    if uuid is not None:
        uuid.__dict__.update(_last_timestamp=None, _node=None)
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.__dict__.update(_name_sequence=None)
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        ssl.RAND_add(os.urandom(32), 32.0)  # OpenSSL 3 notices a fork by itself; this does not rest on it
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def run(tool: AnyTool | LoadError | None, call: Call, link: Link) -> Result | Error:
    """Call the tool; whatever comes of it is an answer. Only the end of the process is not."""
    if tool is None:
        return Error(call.seq, "import", f"the cell has no tool named {call.tool!r}", {})
    if isinstance(tool, LoadError):
        return Error(call.seq, "import", tool.message, {"traceback": tool.traceback})
    try:
        ctx = context.build(call, link)
        try:
            arguments = tool.bind(call.arguments, ctx)
        except pydantic.ValidationError as error:
            return _arguments(call.seq, error)
        value = tool.fn(**arguments)
        if tool.is_async:
            value = asyncio.run(cast("Coroutine[Any, Any, object]", value))
        payload = encode_return(value, ctx.writer.artifacts if ctx.writer is not None else ())
        payload["values"] = encode_json(ctx.values)
        return Result(call.seq, payload)
    except SystemExit as leaving:
        _leave(leaving)
    except BaseException as error:
        return _failure(call.seq, error)


def deliver(answer: Result | Error, link: Link) -> None:
    """Send the answer; one that cannot cross, or is too large, is an error that says so."""
    try:
        link.send(answer)
    except Unpackable as error:
        reason = "result" if isinstance(error, TooLarge) else "unencodable"
        link.send(Error(answer.seq, reason, str(error)[:MESSAGE_CHARS], {}))
    except MemoryError:
        link.send(Error(answer.seq, "result", "there is not enough memory to encode the result", {}))


def flush() -> None:
    """Push out what Python and C still hold of the two streams, so that it belongs to this call."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the tool may have closed or replaced it; then there is nothing of ours in it
            continue
    _fflush(None)


def _leave(leaving: SystemExit) -> NoReturn:
    """sys.exit() in a tool ends the process, as it says, with the code that it says."""
    code = leaving.code
    if code is None:
        code = 0
    elif not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    flush()
    os._exit(code & 0xFF)


def _arguments(seq: int, error: pydantic.ValidationError) -> Error:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return Error(seq, "arguments", f"{field}: {first['msg']}"[:MESSAGE_CHARS], {"field": field})


def _failure(seq: int, error: BaseException) -> Error:
    """Which answer an exception is. Its traceback is for the log; the model never sees it."""
    data: dict[str, Field] = {"traceback": _traceback(error)}
    if isinstance(error, ToolFailure):
        try:
            data["data"] = encode_json(error.data)
        except Unencodable as refusal:
            data["data"] = f"(the data of the failure could not be sent: {refusal})"
        return Error(seq, "failure", _text(error.message), data)
    if isinstance(error, MissingCapability):
        capability: Capability = error.capability
        return Error(seq, "permission", _text(str(error)), data | {"capability": str(capability.value)})
    message = _text(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    if isinstance(error, Unencodable):
        return Error(seq, "unencodable", _text(str(error)), data)
    return Error(seq, spent_resource(error) or "exception", message, data)


def spent_resource(error: BaseException) -> str:
    """The limited resource whose end an exception tells of, or ""."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, RuntimeError) and str(error).startswith("can't start new thread"):
        return "processes"
    if not isinstance(error, OSError) or error.errno is None:
        return ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "scratch" if _scratch_is_full() else ""
    if error.errno == errno.ENOMEM:
        return "memory"
    if error.errno == errno.EAGAIN:
        return "processes" if _cannot_fork() else ""
    return _SPENT.get(error.errno, "")


def _scratch_is_full() -> bool:
    """ENOSPC is about the private scratch only if that is full; the workspace's own disk may be instead."""
    state = os.statvfs("/tmp")
    return state.f_bavail * state.f_frsize < 64 * 1024 or state.f_favail < 4


def _cannot_fork() -> bool:
    """EAGAIN is about processes only if a fork fails with it too: sockets and pipes say EAGAIN for reasons of their
    own.
    """
    try:
        child = os.fork()
    except BlockingIOError:
        return True
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return False


def _traceback(error: BaseException) -> str:
    try:
        return _text("".join(traceback.format_exception(error))[-TRACEBACK_CHARS:], TRACEBACK_CHARS)
    except Exception as broken:  # a __str__ or __repr__ of the tool's own may raise
        return f"(the traceback of a {type(error).__name__} could not be formatted: {type(broken).__name__})"


def _text(value: object, limit: int = MESSAGE_CHARS) -> str:
    try:
        text = str(value)
    except Exception as broken:
        text = f"(a message that could not be formatted: {type(broken).__name__})"
    return text.encode("utf-8", "replace").decode()[:limit]
