"""Serve the memory and web operations of a call on its node, by the rules of `dispatch.serving`.

A backend's credentials, which only the node knows, are removed from each answer before a cell gets it.
"""

import logging
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import anyio

from toolcell.backends.threads import NoThread, in_thread
from toolcell.dispatch.serving import MOST_RECORDS, MOST_WHY_CHARS, reply, room_for
from toolcell.pool.reactor import Reactor, Task
from toolcell.pool.run import Run
from toolcell.rules.credentials import credentials_of
from toolcell.rules.pages import ALL
from toolcell.rules.redaction import Redaction, without_secrets
from toolcell.sessions import broker
from toolcell.sessions.web_access import RuledWeb
from toolcell.wire.budget import Account, Charge, memory_of
from toolcell.wire.frames import Field
from toolcell.wire.messages import Request
from toolcell_tools.capability import Capability
from toolcell_tools.handles import may_act
from toolcell_tools.interrupts import Guard, cause_of

from .node_backends import PlacedBackends

__all__ = ["CallOperations", "PlacedOperations", "ReportingRun", "placed_operations"]

_log = logging.getLogger("toolcell.cluster")
INLINE_BYTES: Final = 16 * 1024
"""The largest answer that is redacted on the event loop."""


@dataclass(frozen=True, slots=True)
class PlacedOperations:
    """The operations that the node serves for a session's calls with the same grants."""

    handles: frozenset[str]
    table: broker.Table
    principal: broker.Principal
    clients: tuple[object, ...]

    def has(self, operation: str) -> bool:
        """Whether the node serves the operation. Then it does not cross to the driver, even if it is not granted."""
        return operation.partition(".")[0] in self.handles


def placed_operations(
    backends: PlacedBackends, handles: Iterable[str], grants: Iterable[str], pages: Iterable[str], session: Any
) -> PlacedOperations | None:
    """The operations of a spec; None if the node serves no handle. `pages` are the session's rules for pages. `session`
    has the ids of the session, the agent and the agents above it."""
    placed = frozenset(handles)
    if not placed:
        return None
    given = broker.table_for(frozenset(map(Capability, grants)))
    web, rules = backends.web, tuple(pages)
    principal = broker.Principal(
        id=session["session_id"],
        line=(*session["ancestors"], session["agent_id"]),
        channel=cast("Any", None),  # no operation in the table reads it, nor the requester
        memory=cast("Any", backends.memory),
        web=cast("Any", web if web is None or rules == ALL else RuledWeb(web, rules, None)),
        http=cast("Any", None),
    )
    table = {name: operation for name, operation in given.items() if name.partition(".")[0] in placed}
    return PlacedOperations(placed, table, principal, (backends.memory, web))


class ReportingRun(Run):
    """The call on its node."""

    @abstractmethod
    def note_acted(self) -> None:
        """Tell the driver that the call may have had a lasting effect."""

    @abstractmethod
    def record(self, kind: str, data: dict[str, Any]) -> None:
        """Write a record for the driver's journal."""


class CallOperations:
    """Serves the operations of one call, until the call ends."""

    def __init__(self, run: ReportingRun, placed: PlacedOperations, replies: Account, *, is_durable: bool) -> None:
        self._run = run
        self._placed = placed
        self._replies = replies
        self._is_durable = is_durable
        self._denied = 0
        self._under_way: dict[int, tuple[anyio.CancelScope, Task]] = {}

    def start(self, reactor: Reactor, request: Request, charge: Charge) -> None:
        """Serve a request in a task of its own, and then release the charge of the request."""
        scope = anyio.CancelScope()
        self._under_way[request.request] = scope, reactor.task(self._serve(request, scope, charge))

    def close(self) -> list[Task]:
        """End the operations that are under way. Returns their tasks, which have not ended yet."""
        for scope, _task in self._under_way.values():
            scope.cancel()
        return [task for _scope, task in self._under_way.values()]

    async def _serve(self, request: Request, scope: anyio.CancelScope, charge: Charge) -> None:
        held: Charge | None = None
        try:
            with scope:
                held = await room_for(self._replies, broker.answer_bytes(request.operation, request.arguments))
                ok, value = await self._answer(request)
                reply(self._run, request, ok, value, held)
                held = None  # the cell owns it now
        finally:
            self._under_way.pop(request.request, None)
            if held is not None:
                held.release()
            charge.release()

    async def _answer(self, request: Request) -> tuple[bool, Field]:
        """Carry out an operation. It is recorded before it begins if it has an effect, otherwise after it has ended."""
        table, operation = self._placed.table, request.operation
        acts = operation in table and may_act(operation, request.arguments)
        if acts:
            self._run.note_acted()
            self._record(request)
        try:
            async with Guard():
                answer = await broker.serve(table, self._placed.principal, operation, request.arguments)
            value = await self._clean(answer)
        except Exception as error:
            refusal = self._refusal_of(error, request)
            return False, await self._clean(cast("Field", refusal.to_wire()))
        if not acts:
            self._record(request)
        return True, value

    def _refusal_of(self, error: Exception, request: Request) -> broker.Refusal:
        """Record an exception, and return the refusal that the tool gets."""
        operation = request.operation
        if operation in self._placed.table:
            why = str(error) if isinstance(error, broker.Refusal) else type(cause_of(error)).__name__
            self._record(request, error=without_secrets(why[:MOST_WHY_CHARS]))
        if isinstance(error, broker.Refusal):
            if error.kind == "permission_denied":
                self._record_denied(operation)
            return error
        _log.error("the backend of %s failed", operation, exc_info=error)
        return broker.Refusal("execution", f"The node could not carry out {operation!r}.")

    def _record(self, request: Request, **more: str) -> None:
        if self._is_durable:
            self._run.record("operation", {**broker.facts_of(request.operation, request.arguments), **more})

    def _record_denied(self, operation: str) -> None:
        """Record a forged request. At most `MOST_RECORDS` are recorded, so that a cell cannot fill the disk."""
        self._denied += 1
        if self._denied <= MOST_RECORDS:
            self._run.record("denied", {"operation": operation[:64], "by": "broker"})
        elif self._denied == MOST_RECORDS + 1:
            what = f"more than {MOST_RECORDS:,} records of kind 'denied': the others are left out"
            self._run.record("incident", {"what": what})

    async def _clean(self, value: Field) -> Field:
        """The value without the credentials of the backends."""
        secrets = _secrets_of(self._placed.clients)
        if not secrets:
            return value
        redact = partial(Redaction(secrets).value, value)
        if memory_of(value) > INLINE_BYTES:
            try:
                return await in_thread(redact)
            except NoThread:
                pass
        return redact()


def _secrets_of(clients: Iterable[object]) -> list[str]:
    found: list[str] = []
    for credential in (each for client in clients for each in credentials_of(client)):
        try:
            found += credential.parts(credential.read())
        except ValueError:
            continue  # the credential is missing now, and the request that needs it fails
    return found
