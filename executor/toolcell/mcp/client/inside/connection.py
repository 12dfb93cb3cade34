"""`serve`: the tool that a server's cell loads. Its kept process holds the connection between calls."""

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn, cast

from toolcell_tools.context import ToolContext
from toolcell_tools.dynamic import DynamicTool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.returned import Answer

from .call_result import answer_of
from .http import HttpTransport, SessionGone
from .jsonrpc import Misbehaved
from .mcp_client import Client
from .stdio import ServerEnded, StdioTransport

Request = dict[str, Any]
_BROKEN_PIPE = 141  # as shells report SIGPIPE; by that signal, the runner tells that the protocol's pipe is lost


class _Held:
    """The connection of this process, once there is one."""

    client: Client | None = None
    transport: StdioTransport | HttpTransport | None = None


def converse(ctx: ToolContext, request: Request) -> Answer:
    """List the server's tools ("do": "list"), or call one of them. `request["server"]` says how to reach the server."""
    try:
        try:
            return _done(ctx, request)
        except SessionGone:
            _forget()
            return _done(ctx, request)
    except Misbehaved:
        _forget()
        raise
    except SessionGone:
        raise ToolFailure("The server forgets its session at each request.") from None
    except ServerEnded as ended:
        _repeat_tail()
        _leave(ended.code)
    finally:
        _repeat_tail()


def _forget() -> None:
    """End the connection. The next call makes another one."""
    if _Held.transport is not None:
        _Held.transport.kill()
    _Held.client = _Held.transport = None


def _done(ctx: ToolContext, request: Request) -> Answer:
    client = _connected(ctx, request["server"])
    if request["do"] == "list":
        listing = client.listing(ctx)
        return Answer(listing, f"{len(listing)} tools")
    return answer_of(client.call(ctx, request["tool"], request["arguments"], request["fingerprint"]))


def _connected(ctx: ToolContext, server: Request) -> Client:
    transport = _Held.transport
    if transport is None:
        transport = _Held.transport = _opened(server)
    if isinstance(transport, HttpTransport):
        transport.begin(ctx)
    if _Held.client is None:
        client = Client(transport, _root(ctx), server["version"])
        try:
            client.initialize(ctx)
        except ToolFailure:
            _forget()
            raise
        _Held.client = client
    return _Held.client


def _opened(server: Request) -> StdioTransport | HttpTransport:
    if "url" in server:
        return HttpTransport(server["url"], server["headers"])
    command = cast("list[str]", server["command"])
    try:
        return StdioTransport(command, server["cpu_s"])
    except OSError as error:
        raise ToolFailure(
            f"The server cannot be started: {error.strerror}: {command[0]!r}. "
            "Whoever runs the agent can make its files readable in the server's profile."
        ) from error


def _root(ctx: ToolContext) -> str | None:
    """The workspace, if this cell sees it: it is then the present directory."""
    root = Path(ctx.workspace_root)
    return root.as_uri() if Path.cwd() == root else None


def _repeat_tail() -> None:
    """Print what the server has printed last, so that it is in the call's `stderr`."""
    if isinstance(_Held.transport, StdioTransport):
        sys.stderr.write(_Held.transport.tail().decode(errors="replace"))
        sys.stderr.flush()


def _leave(code: int) -> NoReturn:
    """End this process as the server has ended, so that the call ends as a crash of the same kind."""
    number = -code
    if number == signal.SIGPIPE:
        os._exit(_BROKEN_PIPE)
    if number > 0:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(code & 0xFF)


class _ServingTool(DynamicTool):
    """The tool, which ends the server when its session ends."""

    def close(self) -> None:
        if _Held.transport is not None:
            _Held.transport.close()


serve = _ServingTool("mcp", converse, derive=False, lifetime="session")
