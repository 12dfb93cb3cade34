"""`SessionCalls`: a session as the adapters of agent frameworks use it."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import anyio

from toolcell.backends.threads import in_thread
from toolcell.dispatch.call_context import CallContext, OnProgress
from toolcell.dispatch.pipeline import ask_ahead
from toolcell.errors import UsageError
from toolcell.session import Session, core_of
from toolcell.store.approvals import ApprovalRequest, Approvals, Approved, Denied
from toolcell.store.approvals.request import to_data
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.result import ToolResult

from .session_loop import SessionLoop

__all__ = ["ApprovalNeeded", "SessionCalls", "question_data"]


class ApprovalNeeded(Exception):
    """The call needs approval, has not run, and its request is pending. Put `request` to the framework's person, then
    make the call again with the answer."""

    def __init__(self, request: ApprovalRequest) -> None:
        super().__init__(
            f"The call of {request.tool!r} needs approval and has not run: {request.preview.summary} "
            f"({request.reason}). An earlier approval of it has expired, was used, or was for other arguments. "
            "Make the call again to ask anew."
        )
        self.request = request


def question_data(request: ApprovalRequest) -> dict[str, Any]:
    """The request as JSON data, for a framework's own request: "id", "tool", "arguments", "preview" ("summary" and
    more), "tier", "reason", "expires_at" (Unix seconds), "text", which a person should see, and the rest of
    `ApprovalRequest`."""
    return {**to_data(request), "text": request.text}


_Asked = dict[tuple[str, str], tuple[Mapping[str, Any], ApprovalRequest]]
_ASKED: WeakKeyDictionary[Session, _Asked] = WeakKeyDictionary()
"""What each session's models have asked for and nobody has answered, by call id and tool: the arguments, before any
hook, and the request. It belongs to the session, because a program may make its agent anew for the answer."""


class SessionCalls:
    """A session's declarations and calls, with approval by the framework's person. Its methods work on any event loop.

    The framework is asked only if nobody else can be: a `Supervisor(approver=…)` and channels that can approve come
    first, inside the call. Then `question` always returns None.

    The order for a call that needs approval:

        request = await calls.question(name, arguments, call_id=id)     # pending in `Supervisor.approvals`
        ...                                                             # the framework asks its person
        result = await calls.call(name, arguments, call_id=id, answer=Approved())

    An answer is for one request that was pending before the call: for this session, tool, version and these arguments,
    used once, until the request expires (`approval_timeout_s`). Anything else raises ApprovalNeeded with a new request.
    Requests outlive the supervisor if it has a state directory and the session has the same id again. The program, or
    `toolcell approvals`, may answer the same request; the first answer counts.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.loop = SessionLoop(core_of(session))
        self._asked = _ASKED.setdefault(session, {})

    async def declarations(self) -> list[ToolDeclaration]:
        """The tools for a model, that the session may use now: not those that a provider runs, nor those of backends
        (`workspace`). Raises ToolsetError."""
        return [
            one
            for one in await self.loop.run(lambda _: self.session.tools())
            if one.kind != "provider" and one.metadata.get("audience") != "program"
        ]

    async def declaration(self, name: str) -> ToolDeclaration:
        """The declaration of one tool. Raises UsageError if the session may not use a tool of this name."""
        found = {one.name: one for one in await self.declarations()}
        if name not in found:
            near = get_close_matches(name, found, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"The session {self.session.id} has no tool named {name!r} that it may use.{hint}")
        return found[name]

    async def question(self, name: str, arguments: Mapping[str, Any], *, call_id: str) -> ApprovalRequest | None:
        """The request to put to a person before this call, with the supervisor's preview. None if the call needs no
        approval, has it already, or would be refused with an error for the model. Nothing runs but the preview."""

        async def ask(_: OnProgress | None) -> ApprovalRequest | None:
            core = core_of(self.session)
            core.check_open()
            context = CallContext(core.services, core.caller, core.routes, call_id, session=self.session)
            request = await ask_ahead(context, name, arguments)
            if request is not None:
                self._remember(call_id, arguments, request)
            return request

        return await self.loop.run(ask)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str | None = None,
        answer: Approved | Denied | None = None,
        by_form: bool = False,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> ToolResult:
        """Make the call. `answer` is the person's, for the request that `question` or ApprovalNeeded has had under this
        call id. If the person has edited the arguments, pass `Approved(arguments=edited)`, or the edited arguments in
        place of the call's. With `by_form`, the person has read `ApprovalRequest.for_form`, so a request that does not
        fit into a form is denied.

        Raises ApprovalNeeded if the call needs approval, and `answer` is None or does not fit. A denial is a result
        with PermissionDenied. Raises UsageError for a closed session.
        """
        return await self.loop.run(
            lambda told: self._call(name, arguments, call_id, answer, by_form, told, timeout), on_progress
        )

    async def direct(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str | None = None,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> ToolResult:
        """Make the call as `Session.call` does, without the framework's person."""
        return await self.loop.run(
            lambda told: self.session.call(name, arguments, call_id=call_id, on_progress=told, timeout=timeout),
            on_progress,
        )

    async def _call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        call_id: str | None,
        answer: Approved | Denied | None,
        by_form: bool,
        on_progress: OnProgress | None,
        timeout: float | None,
    ) -> ToolResult:
        store = core_of(self.session).services.approvals()
        known: frozenset[str] = frozenset()
        if answer is not None:
            known = frozenset(entry.id for entry in await in_thread(store.pending))
            asked, request = self._asked.pop((call_id or "", name), (arguments, None))
            if request is not None:  # otherwise it was asked before a restart
                known &= {request.id}
            if request is not None and request.id in known and asked != arguments and isinstance(answer, Approved):
                arguments, answer = asked, Approved(arguments if answer.arguments is None else answer.arguments)
        scope = anyio.CancelScope()
        desk = FrameworkApprover(answer, known, store, scope, by_form=by_form)
        with scope:
            return await self.session.call(
                name, arguments, call_id=call_id, timeout=timeout, on_progress=on_progress, approver=desk
            )
        assert desk.unanswered is not None  # nothing else cancels the scope
        self._remember(call_id or "", arguments, desk.unanswered)
        raise ApprovalNeeded(desk.unanswered)

    def _remember(self, call_id: str, arguments: Mapping[str, Any], request: ApprovalRequest) -> None:
        """Remember what the model had asked for, until the answer comes or the request expires."""
        now = request.created_at
        for key in [key for key, (_, one) in self._asked.items() if one.expires_at < now]:
            del self._asked[key]
        self._asked[call_id, request.tool] = arguments, request


class FrameworkApprover:
    """The approver of one call: it has at most one answer, and applies an approval to requests of `known` only, which
    were pending before the call. A request without an answer ends the call's wait, and stays pending."""

    def __init__(
        self,
        answer: Approved | Denied | None,
        known: frozenset[str],
        store: Approvals,
        scope: anyio.CancelScope,
        *,
        by_form: bool,
    ) -> None:
        self._answer = answer
        self._known = known
        self._store = store
        self._scope = scope
        self._by_form = by_form
        self.unanswered: ApprovalRequest | None = None

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        """The framework's answer. Without one, the call is cancelled."""
        answer, self._answer = self._answer, None
        if isinstance(answer, Approved) and self._by_form and not request.for_form().is_whole:
            answer = request.too_long("The client's user")
        if isinstance(answer, Denied) or (answer is not None and request.id in self._known):
            return answer
        entry = await in_thread(partial(self._store.get, request.id))
        if entry.state == "pending":  # otherwise the call takes the answer that the store has
            self.unanswered = request
            self._scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError("the scope is cancelled")
