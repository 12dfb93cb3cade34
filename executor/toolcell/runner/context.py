"""Building the ToolContext of a call: a handle for each capability that was granted, None for the rest."""

import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from toolcell.wire.frames import Field
from toolcell.wire.messages import Call, Log, Progress
from toolcell_tools.capability import Capability, SessionKind
from toolcell_tools.context import ToolContext
from toolcell_tools.encode import encode_json
from toolcell_tools.shell import Shell
from toolcell_tools.workspace import DeniedWorkspace, Protects, WorkspaceReader, WorkspaceWriter

from . import handles
from .link import Link

LOG_CHARS = 16_000
# As the call carries them: plain strings, whose hash costs nothing.
_READ, _WRITE, _EXEC = Capability.READ.value, Capability.WRITE.value, Capability.EXEC.value
_CHANNEL, _WEB, _HTTP = Capability.CHANNEL.value, Capability.WEB.value, Capability.HTTP.value
_MEMORY_READ, _MEMORY_WRITE = Capability.MEMORY_READ.value, Capability.MEMORY_WRITE.value


class LinkReporter:
    """The context's reporting, over the pipe."""

    def __init__(self, link: Link, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def progress(self, message: str, fraction: float | None) -> None:
        self._link.tell(Progress(self._link.seq, _text(message), fraction))

    def log(self, message: str, level: str, fields: Mapping[str, Any]) -> None:
        plain = cast("dict[str, Field]", encode_json(dict(fields)))
        self._link.tell(Log(self._link.seq, _text(level), _text(message), plain))

    def remaining(self) -> float:
        return self._deadline - time.monotonic()

    def cancelled(self) -> bool:
        self._link.poll()
        return self._link.cancelled


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode()[:LOG_CHARS]


@lru_cache(maxsize=4)
def _path(text: str) -> Path:
    return Path(text)


def build(call: Call, link: Link, protects: Protects) -> ToolContext:
    """The context of `call`. What is granted comes in the call; what the kernel lets through was settled at
    lockdown. `protects` is the policy of protected names, for the write handle to refuse with a sentence.
    """
    given = cast("dict[str, Any]", call.context)
    grants = frozenset(given["grants"])
    root = _path(given["workspace_root"])
    deadline = time.monotonic() + given["remaining_s"]
    return ToolContext(
        call_id=call.call_id,
        session_id=given["session_id"],
        agent_id=given["agent_id"],
        session_kind=SessionKind(given["session_kind"]),
        workspace_root=root,
        workspace=(WorkspaceReader if _READ in grants else DeniedWorkspace)(root),
        reporter=LinkReporter(link, deadline),
        deadline=deadline,
        config=given["config"],
        values=given["values"],
        attempt=given["attempt"],
        writer=WorkspaceWriter(root, protects) if _WRITE in grants else None,
        shell=Shell(root) if _EXEC in grants else None,
        channel=handles.Channel(link) if _CHANNEL in grants else None,
        memory=handles.MemoryReader(link) if _MEMORY_READ in grants else None,
        memory_writer=handles.MemoryWriter(link) if _MEMORY_WRITE in grants else None,
        web=handles.Web(link) if _WEB in grants else None,
        http=handles.Http(link) if _HTTP in grants else None,
    )
