"""A session's values and tally, which its calls fill, and its result, which its parent gets."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any, Final, Optional, TypeVar

from pydantic import BaseModel, ConfigDict

from toolcell.rules.limits import SessionUsage
from toolcell.wire.frames import encoded_bytes
from toolcell.wire.messages import VALUES_BYTES
from toolcell.workplaces.workspace_return import WorkspaceReturn
from toolcell_tools.artifact import Artifact
from toolcell_tools.errors import Cancelled, ErrorBase, ToolError, ValidationError
from toolcell_tools.session_info import SessionInfo

__all__ = ["CallReport", "SessionData", "SessionResult", "SessionState", "SessionTally"]


class SessionState(StrEnum):
    """The state of a session (ADR-0002). The last three are final."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        return self not in (SessionState.ACTIVE, SessionState.SUSPENDED)


class _FromSession(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    agent_id: str


class CallReport(_FromSession):
    """A call that failed for good: its error is not retryable, or its retries are used up. `at` is in Unix seconds."""

    call_id: str
    tool: str
    error: ToolError
    at: float


class SessionResult(_FromSession):
    """What a session that has ended leaves to its parent.

    `outcome` is a final state, and `summary` the text that the program gave to `Session.close`. `artifacts` are the
    last 1,000 paths that its calls and those of the sessions below it made or changed, without data and diffs.
    `usage` counts all these calls. `errors` are its own calls that failed for good, the last 100.
    `returned` is what came back from a workspace that was sent to a node of a cluster, None if none was.
    """

    outcome: SessionState
    summary: str = ""
    artifacts: tuple[Artifact, ...] = ()
    usage: SessionUsage = SessionUsage()
    errors: tuple[CallReport, ...] = ()
    returned: WorkspaceReturn | None = None


T = TypeVar("T")
MAX_REPORTS: Final = 100
"""The most failed calls, reports of children and results of children that are kept; the oldest is dropped first."""
MAX_ARTIFACTS: Final = 1_000
DATA_BYTES: Final = 16 * 1024
"""The most bytes of an error's data, or of its schema, in a report. Larger ones are left out: the call's own result has
them, and reports are kept for as long as the session."""


class SessionTally:
    """What the calls of one session have used, made and failed at, and what its children have left to it. A step of the
    pipeline adds to them directly, because each call does."""

    __slots__ = (
        "_above",
        "_agent_id",
        "_artifacts",
        "_id",
        "bytes",
        "calls",
        "cpu_s",
        "errors",
        "questions",
        "reports",
        "results",
        "wall_s",
    )

    def __init__(self, session_id: str, agent_id: str, above: Optional["SessionTally"] = None) -> None:
        """`above` is the tally of the parent, which gets the reports of failed calls."""
        self._id = session_id
        self._agent_id = agent_id
        self._above = above
        self.calls = self.bytes = 0
        self.cpu_s = self.wall_s = 0.0
        self._artifacts: dict[str, Artifact] = {}
        self.questions: set[str] = set()
        """The ids of the requests for approval or confirmation that its calls have made, until an answer is used."""
        self.errors: list[CallReport] = []
        """The session's own calls that failed for good."""
        self.reports: list[CallReport] = []
        """The calls of children that failed for good."""
        self.results: list[SessionResult] = []
        """The results of children that have ended."""

    @property
    def usage(self) -> SessionUsage:
        """The usage of its calls, and of the calls of children that have ended."""
        return SessionUsage(calls=self.calls, cpu_s=self.cpu_s, wall_s=self.wall_s, bytes=self.bytes)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(self._artifacts.values())

    def made(self, artifacts: Iterable[Artifact]) -> None:
        """Keep the artifacts of a call, the latest of each path, without their data and diffs."""
        kept = self._artifacts
        for each in artifacts:
            kept.pop(each.path, None)
            kept[each.path] = each if each.data is each.diff is None else replace(each, data=None, diff=None)
        while len(kept) > MAX_ARTIFACTS:
            del kept[next(iter(kept))]

    def failed(self, call_id: str, tool: str, error: ErrorBase, *, for_good: bool = False) -> None:
        """Report a failed call to the parent, if it failed for good. A call that was cancelled did not fail. Without a
        parent, the session itself has the report of a malformed call."""
        if isinstance(error, Cancelled) or (error.retryable and not for_good):
            return
        said: Any = _without_large_data(error)  # one of the classes of ToolError
        report = CallReport(
            session_id=self._id, agent_id=self._agent_id, call_id=call_id, tool=tool, error=said, at=time.time()
        )
        _append(self.errors, report)
        above = self if self._above is None and isinstance(error, ValidationError) else self._above
        if above is not None:
            _append(above.reports, report)

    def result(self, outcome: SessionState, summary: str, returned: WorkspaceReturn | None = None) -> SessionResult:
        """The result of the session, which has ended. It is added to the parent's tally."""
        result = SessionResult(
            session_id=self._id,
            agent_id=self._agent_id,
            outcome=outcome,
            summary=summary,
            artifacts=self.artifacts,
            usage=self.usage,
            errors=tuple(self.errors),
            returned=returned,
        )
        if self._above is not None:
            self._above._take(result)
        return result

    def to_data(self) -> dict[str, Any]:
        """The tally as JSON data, for a suspended session."""
        return {
            "usage": asdict(self.usage),
            "artifacts": [asdict(each) for each in self.artifacts],
            **{name: [each.model_dump(mode="json") for each in getattr(self, name)] for name in _MODELS},
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Continue from the data of `to_data`."""
        usage = SessionUsage(**data["usage"])
        self.calls, self.cpu_s, self.wall_s, self.bytes = usage.calls, usage.cpu_s, usage.wall_s, usage.bytes
        self.made(Artifact(**each) for each in data["artifacts"])
        for name, model in _MODELS.items():
            setattr(self, name, [model.model_validate(each) for each in data[name]])

    def _take(self, result: SessionResult) -> None:
        _append(self.results, result)
        self.made(result.artifacts)
        usage = result.usage
        self.calls += usage.calls
        self.cpu_s += usage.cpu_s
        self.wall_s += usage.wall_s
        self.bytes += usage.bytes


_MODELS: Final[Mapping[str, type[BaseModel]]] = {
    "errors": CallReport,
    "reports": CallReport,
    "results": SessionResult,
}


def _without_large_data(error: ErrorBase) -> ErrorBase:
    found: dict[str, Any] = {name: getattr(error, name, None) for name in ("data", "parameters_schema")}
    large = dict.fromkeys(name for name, value in found.items() if value and encoded_bytes(value) > DATA_BYTES)
    return error.model_copy(update=large) if large else error


def _append(kept: list[T], one: T) -> None:
    kept.append(one)
    if len(kept) > MAX_REPORTS:
        del kept[0]


class SessionData:
    """A session's config and values. `info` is the present SessionInfo for toolsets, hooks and policies."""

    __slots__ = ("info",)

    def __init__(self, info: SessionInfo) -> None:
        self.info = info

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Replace the config, from the next call on."""
        self.info = replace(self.info, config=config)

    def set_values(self, values: dict[str, Any]) -> None:
        """Replace the values, from the next call on."""
        self.info = replace(self.info, values=values)

    def set_invocation(self, invocation_id: str) -> None:
        """Replace the id of the turn, from the next call on."""
        self.info = replace(self.info, invocation_id=invocation_id)

    def remember(self, values: Mapping[str, Any]) -> bool:
        """Merge what a call has left in `ctx.values`. Returns False, and changes nothing, if that is too large."""
        own = self.info.values
        if encoded_bytes({**own, **values}) > VALUES_BYTES:
            return False
        own.update(values)
        return True
