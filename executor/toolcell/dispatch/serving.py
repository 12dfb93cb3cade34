"""A session's call in the pool: handle its reports and serve its requests while it runs."""

import logging
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from socket import socket
from typing import Any, Literal

import anyio

from toolcell.backends.egress import Egress
from toolcell.backends.http import Requester, Trail
from toolcell.pool.reactor import Task
from toolcell.pool.run import Capture, CellSpec, Outcome, Run
from toolcell.rules.call import ToolCall
from toolcell.rules.redaction import Redaction, without_secrets
from toolcell.sessions import broker
from toolcell.sessions.broker import MEMORY_ON_NODES, WEB_ON_NODES
from toolcell.sessions.changes import CallChanges
from toolcell.sessions.protection import Watch
from toolcell.sessions.supervisor_lifetime import WITHIN
from toolcell.store.journal import Record
from toolcell.wire.budget import REQUEST_COST, Account, Charge, memory_of
from toolcell.wire.frames import Field, TooLarge, Unpackable
from toolcell.wire.messages import Log, Output, Progress, Request, SpanEnd, SpanStart
from toolcell_sandbox.network import ProxyNetwork
from toolcell_tools.capability import Capability
from toolcell_tools.handles import OPERATIONS, may_act
from toolcell_tools.interrupts import Guard, cause_of
from toolcell_tools.preview import ends_of, shortened

from .call_context import CallContext
from .call_record import argument_secrets, clean, facts_of
from .callbacks import Streams, tell_log, tell_progress
from .protected_names import audit
from .route import Route

_log = logging.getLogger("toolcell.tool")
_LASTING = frozenset({Capability.WRITE, Capability.EXEC})
"""The kernel lets a call with these change files without a request to the supervisor."""
MOST_RECORDS = 1_000
"""The most records of one kind that one call may have in the journal: log entries, and refused operations."""
MOST_WHY_CHARS = 500
"""The most characters of a failure in its record."""


async def in_pool(context: CallContext, run: "SessionRun") -> Outcome:
    """Run a call that needs no services, and return its outcome. If the waiting task is cancelled, so is the call."""
    try:
        return await context.services.pool.submit(run)
    except BaseException:
        run.abandon()
        raise


class SessionRun(Run):
    """A session's call in the pool. It handles the call's reports and serves its requests."""

    _principal: broker.Principal | None = None
    """Made at the call's first request, together with `_trail`."""
    _trail: Trail | None = None
    streams: Streams | None = None
    """Made if there is a listener for the output, or the output is long."""
    audited_elsewhere: Watch | None = None
    """The findings of the audit after the call, if a node of a cluster has made it."""
    _operations: dict[int, tuple[anyio.CancelScope, Task]] | None = None
    """The handle operations under way."""
    _replies: Account | None = None
    """Made at its first request or connection."""
    _egress: Egress | None = None
    """Made at the call's first connection to its proxy."""
    _given_up = False
    _redaction: Redaction | Literal[False] | None = False
    """The secrets of its arguments; False until `argument_secrets` has looked for them."""
    _recorded_counts: Counter[str] | None = None
    acted = False
    """Whether an operation or a connection of the call may have had an effect."""

    def __init__(
        self,
        context: CallContext,
        route: Route,
        call: ToolCall,
        wall_s: float,
        packed: bytes | None = None,
        watch: Watch | None = None,
        changes: CallChanges | None = None,
        *,
        has_result: bool = False,
        before: Run | None = None,
    ) -> None:
        """`packed` are the arguments, if they are already encoded. `has_result`: the outcome becomes a result, so long
        output is saved to files. `before` is the run of the same call that ended because the workspace had moved: its
        time goes on.
        """
        Run.__init__(self, call, route.spec, wall_s, route.exclusive, packed)
        if before is not None:
            self.queued_at, self.deadline_at = before.queued_at, before.deadline_at
        if route.translate is not None:
            self.sent, self.packed = route.translate(call), None
        if watch is not None:
            self.spec = bound_to(watch, route.spec)
            watch.run = self
        if changes is not None:
            changes.run = self
        if watch is not None or changes is not None:
            self.gone = anyio.Event()
        self.changes = changes
        self._context = context
        self._services = context.services
        self._route = route
        self._has_result = has_result
        if context.trace is not None and context.trace.carrier:
            self.trace = dict(context.trace.carrier)

    @property
    def has_effect(self) -> bool:
        """Whether what the call did may last: it could write or run programs, or it has used the network, a channel or
        the memory."""
        return self.acted or not _LASTING.isdisjoint(self._route.grants)

    @property
    def placed(self) -> tuple[str, ...]:
        """The handles that the node of the call serves: "memory", "web", or none."""
        caller = self._context.caller
        memory = ("memory",) if caller.memory is MEMORY_ON_NODES else ()
        return (*memory, "web") if caller.web() is WEB_ON_NODES else memory

    @property
    def pages(self) -> tuple[str, ...]:
        """The rules for the pages that its session may fetch."""
        return tuple(self._context.caller.profile.web)

    def has_moved(self) -> bool:
        return self._context.routes.has_moved(self._route)

    async def audited(self, watch: Watch | None) -> None:
        """Wait until the audit of protected names after the call is complete and recorded, and its changes are seen."""
        if watch is not None:
            assert self._route.guarded is not None  # every watched call has one
            await audit(self._services, self, self._route.guarded, watch, self._see_changes)
        elif self.gone is not None:
            await self.gone.wait()
            with anyio.CancelScope(shield=True):
                try:
                    await self._see_changes()
                finally:
                    self._services.pool.release(self)

    async def _see_changes(self) -> None:
        if self.changes is not None and self._route.tracked is not None:
            await self._route.tracked.leave(self.changes)

    def abandon(self, watch: Watch | None = None) -> None:
        """End and audit the call of a caller that has gone, so that nothing keeps running."""
        self._services.pool.cancel(self)
        self.leave()
        if self.gone is not None:
            self._services.in_background(self.audited, watch)

    def leave(self) -> None:
        """Note that the caller has gone, before or after the call's end. A call that has ended is recorded."""
        self._given_up = self._has_result
        if self.outcome is not None:
            self._record_given_up()

    def on_span(self, span: SpanStart | SpanEnd) -> None:
        trace = self._context.trace
        if trace is None:
            return
        if isinstance(span, SpanEnd):
            trace.span_ended(span.span, span.at_ns, span.error)
        else:
            trace.span_began(span.span, span.parent, span.name, span.at_ns, self.without_secrets(span.attributes))

    def on_progress(self, progress: Progress) -> None:
        redaction = self._context.caller.secrets.redaction
        if redaction is not None:
            progress = progress._replace(message=redaction.text(progress.message))
        if self._context.trace is not None:
            self._context.trace.progressed(progress.message, progress.fraction)
        charged = partial(self._charged, REQUEST_COST + memory_of(progress.message))
        tell_progress(self._context, progress.message, progress.fraction, charged)

    def on_log(self, log: Log) -> None:
        if self._may_record("log"):
            tell_log(self._context, self.tool, log.level, log.message, log.fields, self._secrets())

    def on_output(self, output: Output, before: Capture) -> None:
        if self.streams is None:
            is_long = before.total + output.skipped + len(output.data) > before.keep_bytes
            if not self._has_result or (self._context.on_output is None and not is_long):
                return
            most, context = self.limits.file_bytes, self._context
            self.streams = Streams(self._services, context.caller, self.call_id, most, self._charged, context.on_output)
        self.streams.take(output, before)

    def on_request(self, request: Request) -> None:
        if self._operations is None:
            self._operations = {}
        charge = self._charged(REQUEST_COST + memory_of(request.arguments))
        scope = anyio.CancelScope()
        task = self._services.reactor.task(self._serve(request, scope, charge))
        self._operations[request.request] = scope, task

    def _charged(self, bytes: int) -> Charge:
        """Charge bytes of the call that are buffered. If they exceed the budget, reading from the call pauses."""
        if self.pending is None:
            self.pending = self._services.pool.budgets.requests.account()
        return self.pending.charge(bytes)

    async def _serve(self, request: Request, scope: anyio.CancelScope, charge: Charge) -> None:
        held: Charge | None = None
        WITHIN.set(True)
        try:
            if self.outcome is None:
                with scope:
                    held = await room_for(self._answers(), broker.answer_bytes(request.operation, request.arguments))
                    reply(self, request, *await self._answer(request, held), held)
                    held = None  # the cell owns it now
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # SystemExit, for example: it ends the supervisor, as in any task
            self._services.in_background(_raised, error)
        finally:
            if held is not None:
                held.release()
            charge.release()

    def _answers(self) -> Account:
        if self._replies is None:
            self._replies = self._services.pool.budgets.replies.account()
        return self._replies

    async def _grow(self, held: Charge, bytes: int) -> None:
        """Wait for room, and add `bytes` to the charge of a reply. A charge of `bytes` or more is left as it is."""
        if held.bytes < bytes:
            more = await room_for(self._answers(), bytes)
            if not held.is_released:  # otherwise nobody waits for the answer any more
                held.change(held.bytes + bytes)
            more.release()

    async def _answer(self, request: Request, held: Charge) -> tuple[bool, Field]:
        assert self._operations is not None
        try:
            principal = self._principal or self._new_principal()
            principal = replace(principal, grow=partial(self._grow, held))
            acts = request.operation in self._route.table and may_act(request.operation, request.arguments)
            self.acted = self.acted or acts
            table, operation, arguments = self._route.table, request.operation, request.arguments
            with self._recorded(request, acts=acts):
                async with Guard():
                    return True, await broker.serve(table, principal, operation, arguments)
        except broker.Refusal as refusal:
            if refusal.kind == "permission_denied" and self._may_record("denied"):
                self._record("denied", {"operation": request.operation[:64], "by": "broker"})
            return False, refusal.to_wire()
        except Exception:
            _log.exception("the backend of %s failed", request.operation)
            failure = broker.Refusal("execution", f"The supervisor could not carry out {request.operation!r}.")
            return False, failure.to_wire()
        finally:
            self._operations.pop(request.request, None)

    @contextmanager
    def _recorded(self, request: Request, *, acts: bool) -> Generator[None]:
        """With a state directory, record a granted operation: with an effect before it begins, so that a kill does not
        lose it, and any other when it has ended. A failure is recorded too."""
        is_recorded = request.operation in self._route.table and not OPERATIONS[request.operation].of_request
        if self._services.durable is None or not is_recorded:
            yield
            return
        facts = broker.facts_of(request.operation, request.arguments, self._secrets())
        if acts:
            self._intend(facts)
        try:
            yield
        except BaseException as error:
            why = str(error) if isinstance(error, broker.Refusal) else type(cause_of(error)).__name__
            self._record("operation", {**facts, "error": without_secrets(why, self._secrets())[:MOST_WHY_CHARS]})
            raise
        if not acts:
            self._record("operation", facts)

    def _intend(self, facts: dict[str, Any]) -> None:
        """Record an operation that will have an effect. Raises Refusal if that is impossible."""
        assert self._services.durable is not None
        record = Record("operation", self._context.caller.id, self.call_id, {"tool": self.tool, **facts})
        if why := self._services.durable.intend(record):
            _log.error("an operation of call %s is refused: %s", self.call_id, why)
            raise broker.Refusal("execution", f"{facts['operation']} was not carried out: it could not be recorded.")
        self._services.durable.beside.write(record)

    def _may_record(self, kind: str) -> bool:
        """Whether another record of this kind may be made of what the cell does. A cell must not fill the disk."""
        if self._services.durable is None:
            return True
        counts = self._recorded_counts = self._recorded_counts or Counter()
        counts[kind] += 1
        if counts[kind] == MOST_RECORDS + 1:
            what = f"more than {MOST_RECORDS:,} records of kind {kind!r}: the others are left out"
            self._record("incident", {"what": what})
        return counts[kind] <= MOST_RECORDS

    def _new_principal(self) -> broker.Principal:
        caller = self._context.caller
        self._trail = Trail(partial(self._record, "http"))
        rules = self._route.requests if Capability.HTTP in self._route.grants else ()
        requester = Requester(rules, self._route.http, self._trail, self._context.trace)
        self._principal = broker.Principal(
            caller.id, caller.line, caller.access, caller.memory, caller.readable_web(), requester
        )
        return self._principal

    def note_connection(self) -> None:
        """Note that the call's node has served a connection of the call."""
        self.acted = True

    def on_connection(self, connection: socket) -> bool:
        self.acted = True
        if self._egress is None:
            policy = self._route.spec.profile.reach
            assert isinstance(policy, ProxyNetwork)  # no other cell has a socket for its proxy
            self._egress = self._services.gateway.egress(policy, partial(self._record, "egress"), self._answers())
        return self._egress.take(connection)

    def argument_secrets(self) -> Redaction | None:
        """As `call_record.argument_secrets`, found once."""
        if self._redaction is False:
            self._redaction = argument_secrets(self._context.caller, self.call)
        return self._redaction

    def _secrets(self) -> Redaction | None:
        """The secrets of its session and its arguments."""
        found = self.argument_secrets()
        return self._context.caller.secrets.redaction if found is None else found

    def without_secrets(self, data: dict[str, Any]) -> dict[str, Any]:
        """The facts of a record of the call, without secrets."""
        return data if (secrets := self._secrets()) is None else secrets.value(data)

    def _record(self, kind: str, data: dict[str, Any]) -> None:
        data = self.without_secrets(data)
        self._services.journal.write(Record(kind, self._context.caller.id, self.call_id, {"tool": self.tool, **data}))

    def on_ended(self) -> bool:
        if self._given_up:
            self._services.reactor.soon(self._record_given_up)  # not now: the outcome is set after this
        if self._operations is None and self._egress is None:
            return False
        under_way = list(self._operations.values()) if self._operations else []
        for scope, task in under_way:  # the call does not wait for them; the supervisor's end does
            scope.cancel()
            self._services.in_background(task.ended)
        if self._egress is not None:
            self._egress.close()
        if self._trail is not None:
            self._trail.close()
        return bool(under_way) or self._egress is not None or self._trail is not None

    def _record_given_up(self) -> None:
        """Record the output and the reports of a call that has ended and whose caller has gone."""
        outcome = self.outcome
        if not self._given_up or outcome is None:
            return
        self._given_up = False
        if self.streams is not None:
            self._services.in_background(self.streams.given_up)
        facts = {**facts_of(self.call, self._route.tool.version, self.used), "error": "cancelled"}
        for name, captured in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
            if captured.text:
                facts[name] = ends_of(captured.text)
        if outcome.progress is not None:
            facts["progress"] = shortened(outcome.progress.message)
        if self._services.durable is not None:
            clean(facts, self._secrets())
        self._services.journal.write(Record("call", self._context.caller.id, self.call_id, facts))

    def on_queued(self) -> None:
        if self._has_result and self._services.durable is not None:
            self._record("queued", {})

    def on_taken(self) -> bool:
        durable = self._services.durable
        if durable is None or not self._has_result:
            return True
        return durable.announce(Record("sent", self._context.caller.id, self.call_id, {"tool": self.tool}))

    def on_incident(self, what: str) -> None:
        _log.warning("call %s of %s: %s", self.call_id, self.tool, what)
        self._record("incident", {"what": what})


async def _raised(error: BaseException) -> None:
    raise error


def bound_to(watch: Watch, spec: CellSpec) -> CellSpec:
    """The spec of a cell in which mounts protect the names that exist now.

    For a kept process the key stays the same, so its cell is not replaced when the protected names change.
    """
    digest = "" if spec.key.kept_tool else watch.digest
    return replace(spec, key=replace(spec.key, protected=digest), protected=watch.bound)


async def room_for(account: Account, bytes: int) -> Charge:
    """Wait for room for an answer of so many bytes. The caller releases the charge."""
    granted = anyio.Event()
    ask = account.ask(bytes, granted.set)
    if ask.charge is None:
        try:
            await granted.wait()
        except BaseException:
            ask.end()
            raise
    assert ask.charge is not None
    return ask.charge


def reply(run: Run, request: Request, ok: bool, value: Field, held: Charge) -> None:
    """Send the answer to the cell, which then owns the charge. An answer that no frame can hold becomes a refusal."""
    if run.cell is None:
        held.release()
        return
    try:
        run.cell.calls.reply(run, request.request, ok, value, held)
    except Unpackable as error:
        why = "is too large for this call" if isinstance(error, TooLarge) else "cannot be sent"
        refusal = broker.Refusal("execution", f"The answer {why}: {error}. Ask for less.")
        run.cell.calls.reply(run, request.request, False, refusal.to_wire(), held)
