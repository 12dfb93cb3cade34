"""A call on a node. It forwards the messages of its process to the driver, and uses the node's proxy.

`run_inspected` runs a call whose changed files or protected names the driver wants to know: it inspects the workspace
before the call and after it.
"""

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from socket import socket
from typing import Any, Protocol

import anyio

from toolcell.backends.egress import Egress
from toolcell.backends.egress.gateway import Write
from toolcell.backends.threads import NO_THREAD_RETRY_S, NoThread
from toolcell.dispatch.call_errors import unseen
from toolcell.dispatch.changed_files import listed_of
from toolcell.dispatch.protected_names import audit
from toolcell.dispatch.run_in_cell import has_kept_writers
from toolcell.dispatch.services import Services
from toolcell.dispatch.serving import bound_to
from toolcell.pool.run import NOTHING_USED, Capture, CellSpec, Outcome
from toolcell.rules.call import ToolCall
from toolcell.sessions.changes import CallChanges, ListedChanges, RemoteRoot, TrackedRoot
from toolcell.sessions.protection import Guarded, Watch
from toolcell.store.journal import Record
from toolcell.wire.budget import REQUEST_COST, Account, Charge, memory_of
from toolcell.wire.frames import Field
from toolcell.wire.messages import Log, Output, Progress, Request, SpanEnd, SpanStart, to_fields
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.network import ProxyNetwork
from toolcell_sandbox.trees.changes import MAX_CHANGES_CHARS

from .messages import CallEnded, CallNoted, CallSaid, NodeMessage, SendCall
from .node_operations import CallOperations, PlacedOperations, ReportingRun
from .sent.copied_paths import AT_HOME, CopiedPaths

__all__ = ["NodeRun", "audit_to_wire", "changes_to_wire", "not_started", "run_inspected"]

_log = logging.getLogger("toolcell.cluster")
MOST_UNKNOWN_CHARS = 2_000


class RunOwner(Protocol):
    """The driver's seat on the node, as its calls see it."""

    @property
    def services(self) -> Services: ...
    @property
    def is_durable(self) -> bool: ...
    @property
    def is_over(self) -> bool: ...
    def egress(self, policy: ProxyNetwork, write: Write, account: Account) -> Egress:
        """The proxy of one call."""
        ...

    def say(self, message: NodeMessage, charge: Charge | None = None, size: int = 0) -> None:
        """Send a message of about `size` bytes to the driver. The charge is released when the driver has it."""
        ...

    def write(self, record: Record, charge: Charge | None = None) -> None: ...
    def account(self, kind: str) -> Account:
        """A new account of the node's budget for "requests" or "replies"."""
        ...

    def on_ended(self, run: "NodeRun", *, later: bool) -> None: ...
    def has_moved(self, run: "NodeRun") -> bool: ...
    def tell(self, run: "NodeRun") -> None:
        """Send the outcome of an inspected call to the driver."""
        ...


@dataclass(frozen=True, slots=True)
class _Context:
    """The part of the session that `pool.run.context_of` reads."""

    config: Mapping[str, Any]
    values: Mapping[str, Any]
    invocation_id: str


class NodeRun(ReportingRun):
    """A driver's call in the node's pool."""

    watch: Watch | None = None
    listed: ListedChanges | None = None
    dropped = False
    _egress: Egress | None = None
    _replies: Account | None = None
    _acted = False
    _held: list[Charge] | None = None
    """The charges of the reports that were sent while the driver had no room for them. None while it has room."""

    def __init__(
        self,
        owner: RunOwner,
        asked: SendCall,
        spec: CellSpec,
        exclusive: str,
        placed: PlacedOperations | None,
        paths: CopiedPaths = AT_HOME,
    ) -> None:
        """`placed` are the operations that the node serves."""
        context = asked.context
        session: Any = _Context(context.get("config", {}), context.get("values", {}), context.get("invocation_id", ""))
        call = ToolCall(asked.call_id, asked.tool, {}, asked.attempt, session)
        super().__init__(call, spec, asked.wall_s, exclusive, asked.arguments)
        self.number = asked.number
        self.spec_number = asked.spec
        self.preview = bool(context.get("preview", False))
        self.confirm = context.get("confirm")
        self.trace = context.get("trace")
        most, self.texts = context.get("changes", (0, False))
        self.most_changes: int = most
        """How many changed files are listed; 0 if none are looked for."""
        self.changes: CallChanges | None = None
        self._owner = owner
        self._placed = placed
        self._operations: CallOperations | None = None  # made at the first of them
        self._paths = paths
        self._requests: dict[int, Charge] = {}

    def has_moved(self) -> bool:
        return self._owner.has_moved(self)

    # -- from its process ---------------------------------------------------------------------------------------------

    def _said(self, message: Progress | Log | Output | Request | SpanStart | SpanEnd, bytes: int) -> None:
        made = self._charged(bytes)
        if self._held is not None:
            self._held.append(made)
        charge = made if self._held is None else None
        self._owner.say(CallSaid(self.number, list(to_fields(message))), charge, bytes)  # type: ignore[arg-type]

    def pace(self, *, held: bool) -> None:
        """With `held`, keep the charges of later reports after the driver has received them. Else release them all."""
        charges, self._held = self._held or [], [] if held and self.outcome is None else None
        for charge in charges:
            charge.release()

    def _charged(self, bytes: int) -> Charge:
        """Charge bytes that the driver has not received. While the account is full, the process is not read."""
        if self.pending is None:
            self.pending = self._owner.account("requests")
        return self.pending.charge(bytes)

    def on_progress(self, progress: Progress) -> None:
        self._said(progress, REQUEST_COST + memory_of(progress.message))

    def on_log(self, log: Log) -> None:
        self._said(log, REQUEST_COST + memory_of(log.message) + memory_of(log.fields))

    def on_output(self, output: Output, before: Capture) -> None:
        self._said(output, REQUEST_COST + len(output.data))

    def on_span(self, span: SpanStart | SpanEnd) -> None:
        self._said(span, REQUEST_COST)

    def on_request(self, request: Request) -> None:
        charge = self._charged(REQUEST_COST + memory_of(request.arguments))
        if self._placed is not None and self._placed.has(request.operation):
            if self._operations is None:
                self._operations = CallOperations(
                    self, self._placed, self._account(), is_durable=self._owner.is_durable
                )
            self._operations.start(self._owner.services.reactor, request, charge)
            return
        self._requests[request.request] = charge
        message = CallSaid(self.number, list(to_fields(request)))  # type: ignore[arg-type]
        self._owner.say(message, size=charge.bytes)

    def on_incident(self, what: str) -> None:
        self._owner.say(CallNoted(self.number, what[:4_000]))

    # -- to its process -----------------------------------------------------------------------------------------------

    def answer(self, request: int, ok: bool, value: Field) -> None:
        """Pass on the driver's answer to a handle request. Raises Unpackable if the cell's frame cannot hold it."""
        charge = self._requests.pop(request, None)
        if charge is not None:
            charge.release()
        if self.cell is None or self.outcome is not None:
            return
        self.cell.calls.reply(self, request, ok, value, self._account().charge(memory_of(value)))

    def _account(self) -> Account:
        self._replies = self._replies or self._owner.account("replies")
        return self._replies

    def note_acted(self) -> None:
        """Tell the driver, once, that the call may have had a lasting effect."""
        if not self._acted:
            self._acted = True
            self._owner.say(CallNoted(self.number, "acted"))

    def on_connection(self, connection: socket) -> bool:
        self.note_acted()
        if self._egress is None:
            policy = self.spec.profile.reach
            assert isinstance(policy, ProxyNetwork)  # no other cell has a socket for its proxy
            self._egress = self._owner.egress(policy, partial(self.record, "egress"), self._account())
        return self._egress.take(connection)

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """Write a record for the driver's journal."""
        record = Record(kind, self.spec.key.session_id, self.call_id, {"tool": self.tool, **data})
        charge = self._charged(REQUEST_COST + memory_of(data)) if self.outcome is None else None
        self._owner.write(record, charge)

    # -- its end ------------------------------------------------------------------------------------------------------

    def on_ended(self) -> bool:
        for charge in self._requests.values():
            charge.release()
        self._requests.clear()
        self.pace(held=False)
        if self._egress is not None:
            self._egress.close()
        under_way = [] if self._operations is None else self._operations.close()
        for task in under_way:
            self._owner.services.in_background(task.ended)
        return self._egress is not None or bool(under_way)

    def end(self, outcome: Outcome, now: float, *, later: bool = False) -> bool:
        is_first = super().end(outcome, now, later=later)
        if is_first:
            self._owner.on_ended(self, later=later)
        return is_first

    def empty(self) -> None:
        """Drop the arguments and the outcome: the driver has them, and ended calls are remembered for a while."""
        self.packed = self.watch = self.listed = self.changes = None
        self.waiter = self.last_progress = None
        if self.outcome is not None:
            self.outcome = Outcome(self.outcome.ending)

    def ended(self) -> CallEnded:
        """The message with its outcome."""
        outcome = self.outcome
        assert outcome is not None
        facts: dict[str, Any] = {
            name: value
            for name in ("reason", "message", "code", "resource", "mechanism", "cure", "retry_after_s")
            if (value := getattr(outcome, name))
        }
        if outcome.progress is not None:
            facts["progress"] = list(outcome.progress)
        out, err = outcome.stdout, outcome.stderr
        return CallEnded(
            number=self.number,
            ending=outcome.ending,
            payload=dict(outcome.payload),
            facts=facts,
            stdout=[out.text, out.total_bytes, out.omitted_bytes] if out.total_bytes else [],
            stderr=[err.text, err.total_bytes, err.omitted_bytes] if err.total_bytes else [],
            used=dict(self.used),
            started=self.started_at > 0,
            is_first=self.is_first_of_cell,
            state_lost=self.state_lost,
            cell=0 if self.cell is None else self.cell.pid,
            in_userns=self.cell is not None and self.cell.in_userns,
            audit=None if self.watch is None else audit_to_wire(self.watch, self._paths),
            changes=None if self.listed is None else changes_to_wire(self.listed),
        )


def not_started(number: int, outcome: Outcome) -> CallEnded:
    """The message for a call that has no run, because the node could not make one."""
    facts: dict[str, Field] = {"message": outcome.message}
    used = dict(NOTHING_USED)
    return CallEnded(number, outcome.ending, {}, facts, [], [], used, False, False, "", 0, False, None, None)


def changes_to_wire(changes: ListedChanges) -> list[Any]:
    """The changed files, in the form of `CallEnded`. The total length of their paths is bounded."""
    listed: list[list[Any]] = []
    left = MAX_CHANGES_CHARS
    for each in changes.artifacts:
        left -= len(each.path)
        if left < 0:
            break
        listed.append([each.path, each.kind, each.size, each.digest, each.diff])
    return [listed, changes.found, changes.unknown[:MOST_UNKNOWN_CHARS]]


def audit_to_wire(watch: Watch, paths: CopiedPaths = AT_HOME) -> dict[str, Any]:
    """The findings of an audit, for msgpack. The paths are bytes, translated into the driver's paths."""
    there = paths.of_driver
    return {
        "findings": [
            [
                os.fsencode(there(each.path)),
                each.name,
                each.what,
                os.fsencode(there(each.place)),
                each.why,
                each.changed_ns,
                [os.fsencode(path) for path in each.dropped],
            ]
            for each in watch.findings
        ],
        "unknown": watch.unknown,
        "looked_for": watch.looked_for,
        "stuck": watch.stuck,
        "sole": watch.sole,
        "bound": [replace(each, path=there(each.path)).to_wire() for each in watch.bound],
    }


async def run_inspected(
    owner: RunOwner, run: NodeRun, guarded: Guarded | None, tracked: TrackedRoot | RemoteRoot | None
) -> None:
    """Run a call between inspections of its workspace. An inspection that fails ends only this call."""
    try:
        await _run(owner, run, guarded, tracked)
    except Exception as error:
        _log.exception("the inspection of the workspace around call %s has failed", run.call_id)
        owner.services.pool.cancel(run)
        why = f"The inspection of the workspace failed ({type(error).__name__}). The node's log has the details."
        run.outcome = Outcome("unavailable" if run.started_at == 0 else "lost", message=why)
        owner.tell(run)


async def _run(
    owner: RunOwner, run: NodeRun, guarded: Guarded | None, tracked: TrackedRoot | RemoteRoot | None
) -> None:
    """Inspect the workspace, run the call, then audit the workspace, as `dispatch.run_in_cell` does."""
    services, watch = owner.services, None
    if tracked is not None:
        run.changes = tracked.call(run.most_changes)
        run.changes.run = run
    if guarded is not None:
        try:
            watch = await _guard(services, run, guarded)
        except (SandboxError, OSError, NoThread) as error:
            run.gone = None
            run.end(_unguarded(error), time.monotonic())
            return
    elif tracked is not None and run.changes is not None:
        await tracked.enter(run.changes)
    run.gone = anyio.Event()
    if run.dropped or owner.is_over:
        run.end(Outcome("cancelled"), time.monotonic())
    elif owner.has_moved(run):
        run.end(Outcome("moved"), time.monotonic())
    else:
        services.pool.submit(run)
    see = partial(_see, run, tracked)
    if guarded is not None and watch is not None:
        await audit(services, run, guarded, watch, see)
    else:
        await run.gone.wait()
        with anyio.CancelScope(shield=True):
            try:
                await see()
            finally:
                services.pool.release(run)
    run.watch = watch
    if run.changes is not None and run.changes.tells:
        run.listed = await listed_of(run.changes)
    owner.tell(run)


async def _guard(services: Services, run: NodeRun, guarded: Guarded) -> Watch:
    """Inspect the protected names before the call."""
    spec = run.spec
    keeps = bool(spec.key.kept_tool)
    kept = keeps or has_kept_writers(services, spec.profile.writable)
    watch = await guarded.enter(spec.key.session_id, kept=kept, keeps=keeps, changed=run.changes)
    run.spec, watch.run = bound_to(watch, spec), run
    return watch


async def _see(run: NodeRun, tracked: TrackedRoot | RemoteRoot | None) -> None:
    """Inspect the workspace after the call's last process has ended."""
    if tracked is not None and run.changes is not None:
        await tracked.leave(run.changes)


def _unguarded(error: SandboxError | OSError | NoThread) -> Outcome:
    """The outcome of a call before which the workspace could not be inspected."""
    if isinstance(error, NoThread):
        return Outcome("unavailable", message=str(error), retry_after_s=NO_THREAD_RETRY_S)
    why = unseen(error)
    return Outcome(
        "unavailable", message=why.message, mechanism=why.mechanism, cure=why.cure, retry_after_s=why.retry_after_s
    )
