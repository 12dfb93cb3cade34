"""Approval by the client: an elicitation, whose answer the engine takes for exactly these arguments.

The channel of the session is its approver, if the operator said so. The client is asked in one of three ways: during
the call (handshake protocol), in a result that requires input (2026-07-28), or through a task. The engine keeps the
request and the answer in all three.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from toolcell.backends.protocols import NotConfigured
from toolcell.store.approvals import ApprovalRequest, Approved, Denied
from toolcell_tools.preview import printable

from .notifications import Reports
from .questions import Questions, put_to_client

__all__ = [
    "APPROVAL",
    "ASKER",
    "ApprovingChannel",
    "Asker",
    "ClientChannel",
    "LiveAsker",
    "SuspendingAsker",
    "answered",
    "can_elicit",
    "question",
]

APPROVAL: Final = "toolcell_approval"
"""The name of the question whether a call may run."""
WORDS_CHARS: Final = 500
Context = ServerRequestContext[Any, Any]
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Run this call", "default": False},
        "reason": {"type": "string", "title": "If not: what to tell the agent", "maxLength": WORDS_CHARS},
    },
    "required": ["approve"],
}
_TOO_LONG: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"reason": _SCHEMA["properties"]["reason"]},
}


class Asker(Protocol):
    """Puts the request for approval of one call to its client."""

    async def approve(self, request: ApprovalRequest) -> Approved | Denied: ...


ASKER: Final[ContextVar[Asker | None]] = ContextVar("ASKER", default=None)
"""Who asks about the calls of this context."""


def question(request: ApprovalRequest) -> Questions:
    """The elicitation that asks for approval. Its form cannot approve a request that it does not show whole."""
    shown = request.for_form()
    message = f"May the tool {request.tool} run? {shown.text}"
    schema = _SCHEMA if shown.is_whole else _TOO_LONG
    form = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return Questions({APPROVAL: types.ElicitRequest(params=form)})


def answered(request: ApprovalRequest, answer: Mapping[str, Any]) -> Approved | Denied:
    """The answer to `question` as the engine's: approved by an accepted form that says so. A form that does not may
    have a reason, for the model."""
    form: Mapping[str, Any] = answer.get("content") or {} if answer.get("action") == "accept" else {}
    is_whole, reason = request.for_form().is_whole, form.get("reason")
    if is_whole and form.get("approve") is True:
        return Approved()
    if isinstance(reason, str) and reason.strip():
        return Denied(f"The client did not approve the call: {printable(reason.strip()[:WORDS_CHARS])}")
    return Denied("The client did not approve the call.") if is_whole else request.too_long("The client")


def can_elicit(ctx: Context) -> bool:
    """Whether the client can ask its user."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


class ClientChannel:
    """The channel of a session: messages go to its client as log messages of the calls that run.

    Raises NotConfigured if no client takes log messages, because then nobody has seen the message.
    """

    name = "mcp"

    def __init__(self) -> None:
        self.reports: set[Reports] = set()

    async def send(self, text: str, *, sender: str) -> None:
        hearing = [each for each in self.reports if each.hears("notice")]
        if not hearing:
            raise NotConfigured("Nobody saw the message: the client takes no log messages.")
        for each in hearing:
            each.log("notice", text, {"sender": sender})


class ApprovingChannel(ClientChannel):
    """A channel that also approves: it asks the client whose call it is.

    The call is known by its context, not by the request: the engine puts up an earlier request of the same call again.
    """

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        asker = ASKER.get()
        if asker is None:
            return Denied("No client has made the call, so none can be asked.")
        return await asker.approve(request)


class LiveAsker:
    """Asks a client of the handshake protocol while its call waits."""

    def __init__(self, ctx: Context, within_s: float, else_wait: bool) -> None:
        """With `else_wait`, a request that the client cannot answer waits for an answer elsewhere."""
        self._ctx = ctx
        self._within_s = within_s
        self._else_wait = else_wait

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        if not can_elicit(self._ctx):
            return await _unsupported(self._else_wait)
        try:
            said = await put_to_client(self._ctx, question(request).requests, self._within_s)
        except MCPError as error:
            return Denied(f"The client did not approve the call: {printable(error.message)[:500]}")
        return answered(request, said[APPROVAL])


class SuspendingAsker:
    """Ends the call when it needs approval: the client is asked in the result, and makes the call again.

    `known` is the id of a request that has an answer. The engine takes that answer, so nobody is asked again.
    """

    def __init__(self, suspend: Callable[[], None], known: str, can_ask: bool, else_wait: bool) -> None:
        self._suspend = suspend
        self._known = known
        self._can_ask = can_ask
        self._else_wait = else_wait
        self.request: ApprovalRequest | None = None

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        if request.id != self._known:
            if not self._can_ask:
                return await _unsupported(self._else_wait)
            self.request = request
            self._suspend()
        await anyio.sleep_forever()
        raise AssertionError("unreachable")


async def _unsupported(else_wait: bool) -> Denied:
    if else_wait:
        await anyio.sleep_forever()
    return Denied("The call needs approval, and the client supports no elicitation.")
