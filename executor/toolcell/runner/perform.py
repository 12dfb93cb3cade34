"""Run the tool of one call. Every result and every exception becomes an answer, except the end of the process."""

import ctypes
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from toolcell.wire.frames import Field, encoded_bytes
from toolcell.wire.messages import VALUES_BYTES, Call, Error, Result
from toolcell.wire.protocol import display_of
from toolcell_tools.context import ToolContext
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import Unencodable
from toolcell_tools.raised import invalid, member_of, raised
from toolcell_tools.returned import encode_return

from .context import Contexts, set_environment
from .loading import AnyTool, Loaded, LoadError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from toolcell_tools.confirmation import ConfirmationAsked
    from toolcell_tools.signals import Signal

_SPENT = {
    errno.EMFILE: "files",
    errno.EFBIG: "file_size",
}
_libc = ctypes.CDLL(None)
_IONBF = 2  # stdio.h


def run(tools: Loaded, call: Call, contexts: Contexts) -> Result | Error:
    """Call the tool. Every result and every exception becomes an answer, except the end of the process."""
    seq, call_id, name, given, arguments = call
    tool = tools.get(name)
    if tool is None:
        return Error(seq, "import", f"the cell has no tool named {name!r}", {})
    if type(tool) is LoadError:
        return Error(seq, "import", tool.message, {"traceback": tool.traceback})
    try:
        if "trace" in given:
            set_environment(cast("Mapping[str, str]", given["trace"]))
        ctx = contexts.of(call_id, given, tool) if tool.takes_context or "preview" in given else None
        if "preview" in given:
            return _previewed(tool, call, ctx)
        try:
            bound = tool.bind(arguments, ctx)
        except ValueError as error:
            pydantic = sys.modules.get("pydantic_core")  # if it is not imported, it has made no argument
            if pydantic is None or not isinstance(error, pydantic.ValidationError):
                raise
            return Error(seq, *invalid(cast("ValidationError", error)))
        value = tool.run(bound, ctx)
        if ctx is None:
            if type(value) is str and value.isascii() and "values" not in given:  # as below, for the usual result
                return Result(seq, {"output": value})
            values = given.get("values")  # sent back unchanged, but checked: bytes, for example, are no JSON data
            return Result(seq, _payload(encode_return(value), encode_json(values) if values else None, tool))
        if contexts.reporter.has_asked:
            from toolcell_tools.confirmation import went_on

            raise went_on(name)
        recorded = ctx.writer.artifacts if ctx.writer is not None else ()
        payload, kept = encode_return(value, recorded), _values(ctx.values) if ctx.values else None
        return Result(seq, _payload(payload, kept, tool, contexts.reporter.signals))
    except BaseException as error:
        confirmation = sys.modules.get("toolcell_tools.confirmation")  # if it is not imported, nothing has asked
        asked = cast("ConfirmationAsked | None", confirmation.asked_in(error)) if confirmation is not None else None
        if asked is not None:
            return Error(seq, "confirm", asked.hint, {"payload": asked.payload})
        return _failure(seq, error)


def _previewed(tool: AnyTool, call: Call, ctx: ToolContext | None) -> Result:
    """The tool's preview of a call. Values that it leaves in the context are not sent back."""
    return Result(call.seq, _payload(encode_return(tool.preview(ctx, call.arguments).to_dict()), None, tool))


def _payload(
    encoded: dict[str, Any], values: Field, tool: AnyTool, signals: "Sequence[Signal]" = ()
) -> dict[str, Field]:
    """The payload of a result, without empty fields and without a display that repeats the output. `signals` are those
    that the tool has given through its context."""
    output, display = encoded["output"], encoded["display"]
    sent: dict[str, Field] = {"output": output}
    if display is not output and (type(output) is not str or display != display_of(output)):
        sent["display"] = display
    if encoded["artifacts"]:
        sent["artifacts"] = encoded["artifacts"]
    if encoded["content"]:
        sent["content"] = encoded["content"]
    if "text_member" in encoded:
        sent["text_member"] = encoded["text_member"]
    if values:
        sent["values"] = values
    if signals or "signals" in encoded:
        from toolcell_tools.signals import checked_signals

        sent["signals"] = cast(
            "Field", checked_signals(tool.name, tool.signals, [*encoded.get("signals", ()), *signals])
        )
    return sent


def _values(values: dict[str, Any]) -> dict[str, Field]:
    """The values that the tool leaves in `ctx.values`. They go back to the session, so their size is bounded."""
    plain = cast("dict[str, Field]", encode_json(values))
    if encoded_bytes(plain) > VALUES_BYTES:
        raise Unencodable(f"ctx.values is larger than {VALUES_BYTES:,} bytes; keep large data in a file")
    return plain


def flush() -> None:
    """Flush Python's buffers of stdout and stderr, so that the output counts for this call. C's are unbuffered."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the tool may have closed or replaced the stream
            continue


def unbuffer_c() -> None:
    """Make C's stdout unbuffered, like its stderr. So output of the tool's libraries survives a crash, and no call has
    to flush it.
    """
    if _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, "stdout"), None, _IONBF, 0):
        raise OSError("the C library's stdout could not be made unbuffered (setvbuf(3))")


def _leave(leaving: SystemExit) -> NoReturn:
    """End the process with the code that a tool has passed to sys.exit()."""
    code = leaving.code
    if code is None:
        code = 0
    elif not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    flush()
    os._exit(code & 0xFF)


def _failure(seq: int, error: BaseException) -> Error:
    """The answer for an exception, and the end of the process for an exit."""
    error = member_of(error)
    if isinstance(error, SystemExit):
        _leave(error)
    if isinstance(error, MemoryError):
        error.__traceback__ = None  # it refers to the objects that filled the memory
        return Error(seq, "memory", "MemoryError", {})
    return Error(seq, *raised(error, spent_resource))


def spent_resource(error: BaseException) -> str:
    """Name the resource that this exception shows exhausted; "again" if only the supervisor can tell; "" if none."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, RuntimeError) and str(error).startswith("can't start new thread"):
        return "processes"
    if not isinstance(error, OSError) or error.errno is None:
        return ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _used_up_of_scratch()
    if error.errno == errno.ENOMEM:
        return "memory"
    if error.errno == errno.EAGAIN:
        return "processes" if _cannot_fork() else "again"
    return _SPENT.get(error.errno, "")


def _used_up_of_scratch() -> str:
    """The limit of the private scratch that ENOSPC shows exceeded, or "" if the scratch has room: then another file
    system, such as the workspace's, is full."""
    state = os.statvfs("/tmp")
    if state.f_favail < 4:
        return "scratch_inodes"
    return "scratch" if state.f_bavail * state.f_frsize < 64 * 1024 else ""


def _cannot_fork() -> bool:
    """Whether EAGAIN is about processes: a fork must fail with it too. Sockets and pipes have other reasons for EAGAIN.

    A successful fork proves nothing, because another process may have ended meanwhile. Then the kernel's counter
    decides.
    """
    try:
        child = os.fork()
    except BlockingIOError:
        return True
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return False
