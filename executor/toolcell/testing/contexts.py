"""A ToolContext for unit tests: like that of a call, but without a process and a sandbox.

Files and commands are real, below a directory. Channel, memory, web and HTTP go through the supervisor's broker to
backends that record their calls. A handle that a session of this kind lacks is None.
"""

import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio

from toolcell.backends.http import Requester, Trail
from toolcell.backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from toolcell.errors import UsageError
from toolcell.rules.channel import ChannelPolicy
from toolcell.runner.handles import brokered
from toolcell.runner.link import Link, refusal_of
from toolcell.sessions import broker
from toolcell.sessions.channel_access import ChannelAccess
from toolcell.sessions.grants import grants_for
from toolcell.wire.frames import Field
from toolcell_tools.capability import KIND_GRANTS, Capability, SessionKind
from toolcell_tools.confirmation import Confirmation
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import Tool
from toolcell_tools.shell import Shell
from toolcell_tools.signals import Signal
from toolcell_tools.workspace import DeniedWorkspace, WorkspaceReader, WorkspaceWriter

from .backends import DictHttp, DictWeb, ListChannel, ListMemory

__all__ = ["RecordedContext", "Recorder", "context"]

_SESSION, _AGENT = "session-1", "agent"


class Recorder:
    """The reports of a tool, in order: `progressed` holds (message, fraction), `logged` (message, level, fields),
    `spanned` (name, attributes), `signals` the signals, `asked` (hint, payload). `confirms` is the answer to
    `ctx.confirm`: a bool or a Confirmation, True unless it is set."""

    def __init__(self, deadline: float) -> None:
        self.progressed: list[tuple[str, float | None]] = []
        self.logged: list[tuple[str, str, dict[str, Any]]] = []
        self.spanned: list[tuple[str, dict[str, Any]]] = []
        self.signals: list[Signal] = []
        self.asked: list[tuple[str, Any]] = []
        self.confirms: bool | Confirmation = True
        self._deadline = deadline
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the call: `ctx.cancelled` is True from now on."""
        self._cancelled = True

    def progress(self, message: str, fraction: float | None) -> None:
        self.progressed.append((message, fraction))

    def log(self, message: str, level: str, fields: Mapping[str, Any]) -> None:
        self.logged.append((message, level, dict(fields)))

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]:
        self.spanned.append((name, dict(attributes)))
        return nullcontext()

    def signal(self, signal: Signal) -> None:
        self.signals.append(signal)

    def confirm(self, hint: str, payload: object) -> Confirmation:
        self.asked.append((hint, payload))
        return self.confirms if isinstance(self.confirms, Confirmation) else Confirmation(self.confirms)

    def remaining(self) -> float:
        return self._deadline - time.monotonic()

    def cancelled(self) -> bool:
        return self._cancelled


class RecordedContext(ToolContext):
    """A ToolContext with its `recorder`. Made by `context`."""

    __slots__ = ("recorder",)

    def __init__(self, recorder: Recorder, **parts: Any) -> None:
        super().__init__(reporter=recorder, **parts)
        self.recorder = recorder


def context(
    kind: SessionKind | str = SessionKind.MAIN,
    *,
    tool: Tool[..., Any] | None = None,
    workspace: str | Path | None = None,
    grants: Iterable[Capability | str] | None = None,
    channel: Channel | None = None,
    memory: MemoryStore | None = None,
    web: WebClient | None = None,
    http: HttpClient | None = None,
    http_rules: Iterable[str] = (),
    config: dict[str, Any] | None = None,
    values: dict[str, Any] | None = None,
    user_id: str = "",
    invocation_id: str = "",
    summary: str = "",
    deadline_s: float = 30.0,
    attempt: int = 1,
) -> RecordedContext:
    """Make the context of a call in a session of this kind. Works in sync and async tests, without any process.

    `tool` narrows the handles to what that tool needs and uses, as a real call does. Without it, the context has every
    handle that the kind can hold. `grants` are the session's grants, by default all of its kind. The default workspace
    is an empty directory, which is removed with the context. The default backends are a ListChannel, a ListMemory, an
    empty DictWeb and an empty DictHttp. Pass your own to inspect them afterwards. `http_rules` are the rules of a
    profile's `http`. `summary` is the context that a parent gave to the session. `deadline_s` is in seconds from now.
    Raises UsageError for a grant that the kind cannot hold, and for a need of `tool` that the session does not.
    """
    kind = SessionKind(kind)
    given, http_rules = _grants(kind, grants, tool), tuple(http_rules)
    recorder = Recorder(time.monotonic() + deadline_s)
    if workspace is None:
        workspace = tempfile.mkdtemp(prefix="toolcell-test-")
        weakref.finalize(recorder, shutil.rmtree, workspace, ignore_errors=True)
    root = Path(workspace).resolve(strict=True)
    access = ChannelAccess(channel or ListChannel(), ChannelPolicy())
    memory, web, client = memory or ListMemory(), web or DictWeb(), http or DictHttp()

    def principal() -> broker.Principal:
        """The principal for one request, on the running event loop."""
        requester = Requester(http_rules, client, Trail(_unrecorded))
        return broker.Principal(_SESSION, (_AGENT,), access, memory, web, requester)

    link = cast("Link", _InProcess(principal, broker.table_for(given)))
    return RecordedContext(
        recorder,
        call_id="call-1",
        session_id=_SESSION,
        agent_id=_AGENT,
        session_kind=kind,
        workspace_root=root,
        workspace=(WorkspaceReader if Capability.READ in given else DeniedWorkspace)(root),
        deadline=time.monotonic() + deadline_s,
        config=config,
        values=values,
        user_id=user_id,
        invocation_id=invocation_id,
        context=summary,
        attempt=attempt,
        writer=WorkspaceWriter(root) if Capability.WRITE in given else None,
        shell=Shell(root) if Capability.EXEC in given else None,
        **brokered(link, given),
    )


def _grants(
    kind: SessionKind, grants: Iterable[Capability | str] | None, tool: Tool[..., Any] | None
) -> frozenset[Capability]:
    held = KIND_GRANTS[kind] if grants is None else frozenset(map(Capability, grants))
    if not held <= KIND_GRANTS[kind]:
        surplus = ", ".join(sorted(held - KIND_GRANTS[kind]))
        raise UsageError(f"A {kind.value} session never holds {surplus}. Leave it out, or take another kind.")
    if tool is None:
        return held
    narrowed = grants_for(held, tool.needs, tool.uses)
    if narrowed.missing:
        missing = ", ".join(sorted(narrowed.missing))
        raise UsageError(
            f"The tool {tool.name!r} needs {missing}, which this {kind.value} session does not hold: a real call "
            "would be PermissionDenied. Take another kind or grant it."
        )
    return narrowed.given


def _unrecorded(record: dict[str, Any]) -> None:
    """Drop the record, because there is no journal."""


class _InProcess:
    """Replaces the link of a cell. Requests go directly to the broker, which makes the same checks."""

    def __init__(self, principal: Callable[[], broker.Principal], table: broker.Table) -> None:
        self._principal = principal
        self._table = table

    def request(self, operation: str, arguments: dict[str, Field]) -> Field:
        """Make a request in another thread, because this thread may run a test's event loop."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(anyio.run, partial(self.arequest, operation, arguments)).result()

    async def arequest(self, operation: str, arguments: dict[str, Field]) -> Field:
        try:
            return await broker.serve(self._table, self._principal(), operation, arguments)
        except broker.Refusal as refusal:
            raise refusal_of(operation, refusal.kind, str(refusal), refusal.data) from None
