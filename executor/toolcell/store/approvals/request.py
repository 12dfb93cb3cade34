"""The request for approval of one call, its text for people, the answers, and the protocol of an approver.

A person approves only what they have seen. So each way of asking shows `ApprovalRequest.text`, which is complete. Where
there is less room, it shows `ApprovalRequest.fitted`, and takes no approval if a part of the call is missing there.
"""

import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import anyio

from toolcell.rules.patterns import matches
from toolcell_tools.capability import PermissionTier, SessionKind
from toolcell_tools.preview import Preview, argument_lines, fitted, printable, written

__all__ = ["FORM_ROWS", "ApprovalRequest", "Approved", "Approver", "Denied", "Shown", "canonical", "rows_of"]

COLUMNS: Final = 100
_LEAST_COLUMNS: Final = 8
FORM_ROWS: Final = 400
"""The most rows of `COLUMNS` that a form shows, so at most 40,000 characters."""
_NAME_CHARS: Final = 200
_REASON_CHARS: Final = 500
_MAYBE_WIDE: Final = re.compile("[\u1100-\u2025\u2027-\U0010ffff]")  # all from U+1100 on, but not the mark of a cut


def canonical(value: object) -> str:
    """JSON with sorted keys, without spaces and in ASCII: equal for equal data. Raises TypeError for other data."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class Shown(NamedTuple):
    """A request as text. `is_whole` says whether the text has all that would run. If not, it must take no approval."""

    text: str
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call that waits for approval. `digest` binds the request to these arguments and to this version of the tool.
    It takes one answer until `expires_at` (Unix seconds). `preview` describes the effect of the call, or shows its
    arguments if the tool has no preview; `preview_by` names the author of the preview. A preview by the tool may be
    false and is not complete, so show a person `text`. `reason` says why approval is needed.

    If it `asks` for a confirmation, the tool has called `ctx.confirm(hint, payload)`, the preview shows both, and no
    call waits. `given` are the confirmations of the call before this one. `approved` says that the call was approved,
    too, before it asked. `agent_id` is the agent that calls, and `ancestors` are the agents above it, from the root.
    """

    tool: str
    version: str
    fingerprint: str
    arguments: Mapping[str, Any]
    preview: Preview
    preview_by: Literal["tool", "supervisor"] = "supervisor"
    tier: PermissionTier
    reason: str
    call_id: str
    session_id: str
    agent_id: str
    session_kind: SessionKind
    expires_at: float
    asks: Literal["approval", "confirmation"] = "approval"
    hint: str = ""
    payload: Any = None
    given: tuple[Mapping[str, Any], ...] = ()
    approved: bool = False
    ancestors: tuple[str, ...] = ()
    created_at: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _parts: list[str] = field(default_factory=list[str], init=False, repr=False, compare=False)
    """The title, the preview and the call, once they were written."""
    _digests: list[str] = field(default_factory=list[str], init=False, repr=False, compare=False)
    """The digest, once it was computed."""

    @property
    def line(self) -> tuple[str, ...]:
        """The agent ids from the root of the session's tree to `agent_id`."""
        return (*self.ancestors, self.agent_id)

    @property
    def sender(self) -> str:
        """Who asks, for people: the line and the session."""
        return "/".join((*self.line, self.session_id))

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the id, tool, fingerprint, arguments, session and expiry. An approval holds for these
        only.
        """
        if not self._digests:
            bound: list[Any] = [self.id, self.tool, self.fingerprint, dict(self.arguments), self.session_id]
            bound.append(self.expires_at)
            if self.asks == "confirmation":
                bound += [self.hint, self.payload, list(self.given), self.approved]
            text = json.dumps(bound, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            self._digests.append("sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
        return self._digests[0]

    @property
    def same_call(self) -> str:
        """A digest that requests of the same call share: session, line, tool, version and arguments."""
        call = [self.session_id, self.line, self.tool, self.version, self.fingerprint, self.arguments]
        return hashlib.sha256(canonical(call).encode()).hexdigest()

    @property
    def text(self) -> str:
        """The request for a person, complete: the preview, who asks, and last all arguments, one a line as JSON.
        Unprintable characters are escapes, and long runs of blanks are counted (`toolcell_tools.preview.written`)."""
        return "\n".join(filter(None, self._written()))

    def prepared(self) -> "ApprovalRequest":
        """This request, with its text and its digest written. That takes a second for arguments of a few MiB, so it is
        done in a thread, before an approver sees the request."""
        self._written()
        _ = self.digest
        return self

    def fitted(self, rows: int, columns: int = COLUMNS) -> Shown:
        """The text in about `rows` rows of `columns`. It leaves out the preview's details first, then the middle of the
        call, and says how many characters are missing."""
        title, preview, call = self._written()
        # a longer text has more rows than `rows`, so it is cut before its rows are counted
        text, most = self.text, (rows + 2) * (max(columns, _LEAST_COLUMNS) + 1)
        is_long = _is_longer(text, rows, columns, most)
        if is_long and preview:
            text = f"{title}\n[… {len(preview):,} characters of the preview …]\n{call}"
            is_long = _is_longer(text, rows, columns, most)
        if not is_long:
            return Shown(text, True)
        last, left_out = max(1, rows // 3), max(0, len(text) - most)
        beginning = rows_of(text[:most], columns)[max(1, rows - last - 1) - 1][1]
        end = left_out + rows_of(text[left_out:], columns)[-last][0]
        return Shown(f"{text[:beginning]}\n[… {end - beginning:,} characters …]\n{text[end:]}", False)

    def for_form(self) -> Shown:
        """The text for a form, such as an elicitation. One that is not whole names the command that shows all of it."""
        shown = self.fitted(FORM_ROWS)
        if shown.is_whole:
            return shown
        cure = (
            "This request is too long to be approved here, and an answer here denies it. If the supervisor has a state "
            f"directory, `toolcell approvals show {self.id}` shows all of it there, and `toolcell approvals approve "
            f"{self.id}` approves it."
        )
        return Shown(f"{shown.text}\n{cure}", False)

    def too_long(self, by: str) -> "Denied":
        """The denial, for the model, of a request that no form could show whole to `by`."""
        return Denied(
            f"{by} could not approve the call, because the request has {len(self.text):,} characters and cannot be "
            "shown whole. Make several smaller calls."
        )

    def _written(self) -> tuple[str, str, str]:
        if not self._parts:
            self._parts[:] = (self._title(), self._preview(), self._call())
        title, preview, call = self._parts
        return title, preview, call

    def _title(self) -> str:
        return f"{self.preview.for_people().summary} ({printable(fitted(self.reason, _REASON_CHARS))})"

    def _preview(self) -> str:
        """The details of the preview, unless they repeat what `_call` shows: arguments, or the question of a
        confirmation. A mark begins each line, so that none passes as the supervisor's."""
        repeats = self.preview_by == "supervisor" and self.preview.diff is None
        if repeats or self.asks == "confirmation":
            return ""
        shown = self.preview.for_people()
        lines = [*shown.details.splitlines(), *(shown.diff or "").splitlines()]
        return "\n".join(f"| {line.expandtabs()}" for line in lines)

    def _call(self) -> str:
        *who, tool = (printable(fitted(each, _NAME_CHARS)) for each in (*self.line, self.session_id, self.tool))
        lines = [f"{'/'.join(who)} wants to call {tool} with {'these' if self.arguments else 'no'} arguments:"]
        lines += [f"    {line}" for line in argument_lines(self.arguments, " = ")]
        if self.asks == "confirmation":
            lines += [f"The tool asks: {written(self.hint)}", f"It has sent: {written(self.payload)}"]
        return "\n".join(lines)


def _is_longer(text: str, rows: int, columns: int, most: int) -> bool:
    return len(text) > most or len(rows_of(text, columns)) > rows


def rows_of(text: str, columns: int) -> list[tuple[int, int]]:
    """Where the rows of a text begin and end on a screen that breaks lines after `columns`. Characters from U+1100 on
    may take two columns; "…" takes one."""
    rows: list[tuple[int, int]] = []
    begin = 0
    for line in text.split("\n"):
        width = max(_LEAST_COLUMNS, columns if _MAYBE_WIDE.search(line) is None else columns // 2)
        end = begin + len(line)
        while end - begin > width:
            blank = text.rfind(" ", begin + width // 2, begin + width)  # words are kept whole if they are short
            rows.append((begin, begin := blank + 1 if blank > 0 else begin + width))
        rows.append((begin, end))
        begin = end + 1
    return rows


@dataclass(frozen=True, slots=True)
class Approved:
    """The call may run. With `arguments`, it runs with these arguments instead, after they are validated. `payload` is
    JSON data for a tool that asked for a confirmation."""

    arguments: Mapping[str, Any] | None = None
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The call may not run. The model reads `message`, which should say what it may do instead."""

    message: str = ""


@runtime_checkable
class Approver(Protocol):
    """Decides on requests. Called on the event loop. It may wait for a person until the request expires."""

    async def approve(self, request: ApprovalRequest) -> Approved | Denied: ...


class PlainApprover(Protocol):
    """An Approver without an event loop: its `approve` runs in a thread."""

    def approve(self, request: ApprovalRequest) -> Approved | Denied: ...


AnyApprover = Approver | PlainApprover


class ApprovalQueue:
    """An approver for programs with their own page or prompt. Each request waits here until `decide` is called.

    Iterating yields the pending requests, the oldest first. Each request takes one answer; a late or second answer
    raises KeyError. Use the queue on the event loop's thread.
    """

    def __init__(self) -> None:
        self._pending: dict[str, tuple[ApprovalRequest, anyio.Event]] = {}
        self._answers: dict[str, Approved | Denied] = {}

    def __iter__(self) -> Iterator[ApprovalRequest]:
        return iter([request for request, _ in self._pending.values()])

    def __len__(self) -> int:
        return len(self._pending)

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        """Wait for the answer. The pipeline ends the wait when the request expires."""
        answered = anyio.Event()
        self._pending[request.id] = (request, answered)
        try:
            await answered.wait()
            return self._answers.pop(request.id)
        finally:
            self._pending.pop(request.id, None)
            self._answers.pop(request.id, None)

    def decide(self, request_id: str, answer: Approved | Denied) -> None:
        """Answer the request with this id. Raises KeyError if it is not pending."""
        _request, answered = self._pending.pop(request_id)
        self._answers[request_id] = answer
        answered.set()


ApprovalState = Literal["pending", "approved", "denied", "used", "withdrawn", "expired", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalEntry:
    """One request and what became of it.

    `state` is "pending", "approved" or "denied" (answered, and no call has had the answer yet), "used" (a call has had
    it), "withdrawn", "expired", or "invalid" (the row does not fit its signature). `request` is None if the row is
    invalid. `arguments` replaces the request's if the answer has other ones. `payload` is that of the answer to a
    confirmation. `message` is for the model. `answered_by` names who answered, in words of their own.
    """

    id: str
    state: ApprovalState
    request: ApprovalRequest | None
    approved: bool = False
    arguments: Mapping[str, Any] | None = None
    payload: Any = None
    message: str = ""
    answered_by: str = ""
    answered_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingApproval:
    """An approval of later calls of one tool, in this version, by one agent, until `expires_at` (Unix seconds).

    The agent is `agent_id` below `ancestors`: an approval for a helper of one agent holds for no other agent's helper.
    With `session_id`, it holds in that session for all arguments. Without, it holds in every session of the agent for
    arguments that match `pattern`: a shell glob for each argument that it names, such as `{"path": "src/*"}`.
    """

    id: str
    tool: str
    fingerprint: str
    agent_id: str
    session_id: str
    pattern: Mapping[str, str]
    expires_at: float
    approved_by: str = ""
    ancestors: tuple[str, ...] = ()

    @property
    def line(self) -> tuple[str, ...]:
        """The agent ids from the root of the session's tree to `agent_id`."""
        return (*self.ancestors, self.agent_id)

    def covers(self, request: ApprovalRequest) -> bool:
        """Whether the call of the request is approved, if the time is not over."""
        return (
            (self.tool, self.fingerprint, self.line) == (request.tool, request.fingerprint, request.line)
            and self.session_id in ("", request.session_id)
            and matches(self.pattern, request.arguments, in_doubt=False)
        )


def to_data(request: ApprovalRequest) -> dict[str, Any]:
    """The request as JSON data."""
    return {
        **{name: getattr(request, name) for name in _TEXTS},
        "arguments": dict(request.arguments),
        "preview": request.preview.to_dict(),
        "tier": str(request.tier),
        "session_kind": str(request.session_kind),
        "given": list(request.given),
        "ancestors": list(request.ancestors),
    }


def from_data(data: Mapping[str, Any]) -> ApprovalRequest:
    """The request of what `to_data` made. Data of an earlier version names no ancestors: it is of a root's agent."""
    return ApprovalRequest(
        **{name: data[name] for name in _TEXTS if name in data},  # an earlier version had fewer
        arguments=data["arguments"],
        preview=Preview.from_dict(data["preview"]),
        tier=PermissionTier(data["tier"]),
        session_kind=SessionKind(data["session_kind"]),
        given=tuple(data.get("given", ())),
        ancestors=tuple(data.get("ancestors", ())),
    )


_TEXTS = (
    "tool", "version", "fingerprint", "preview_by", "reason", "call_id", "session_id", "agent_id", "expires_at",
    "created_at", "id", "asks", "hint", "payload", "approved",
)  # fmt: skip
"""The fields that are JSON data as they are."""
