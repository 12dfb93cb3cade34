"""The records of a call: its intent before it is sent, and its end. No step of a call reads them."""

import logging
from collections.abc import Mapping
from time import time
from typing import Any

from toolcell.pool.run import NOTHING_USED, UNRECORDED_CURE, Outcome, Run, Used
from toolcell.rules.call import ToolCall
from toolcell.rules.redaction import REDACTED, Redaction, secrets_in, without_secrets
from toolcell.store.journal import Record
from toolcell.store.journal.arguments import arguments_for_journal
from toolcell.store.journal.durable import DurableJournal
from toolcell.store.journal.entries import SharedFacts
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import SandboxUnavailable, ToolError
from toolcell_tools.result import ToolResult

from .route import Route
from .services import Caller, Services, agent_facts

TRACEBACK_CHARS = 20_000
DISPLAY_CHARS = 1_000
MOST_ARTIFACTS = 50
REFUSED_CHARS = 1024 * 1024
"""The most characters of a refused call's arguments of which a digest is made."""
_log = logging.getLogger("toolcell.tool")
_TEXTS = frozenset({"display", "message", "traceback", "stdout", "stderr", "progress"})
_LISTS = frozenset({"notices", "artifacts"})


def intend(
    journal: DurableJournal, session_id: str, call: ToolCall, shared: SharedFacts, allowed: str
) -> SandboxUnavailable | None:
    """Write the intent of a call to the journal on disk, before the call is sent. If that fails, the call may not be
    sent, and its error is returned.

    `shared` are the facts that all calls of its route share. `allowed` names the rule or the approval that allows the
    call; it is "" if `shared` names the rule.
    """
    facts = arguments_for_journal(call.arguments)
    facts["attempt"] = call.attempt
    if call.session is not None and call.session.invocation_id:
        facts["invocation"] = call.session.invocation_id
    apart: SharedFacts | None = shared
    if allowed:
        facts, apart = {**shared.facts, **facts, "allowed": allowed}, None
    why = journal.intend(Record("intent", session_id, call.id, facts, time()), apart)
    if not why:
        return None
    message = f"The call was not run, because it could not be recorded. {why}"
    return SandboxUnavailable(message=message, mechanism="", cure=UNRECORDED_CURE)


def record(
    services: Services,
    caller: Caller,
    call: ToolCall,
    route: Route,
    result: ToolResult,
    used: Used,
    outcome: Outcome,
    run: Run | None,
    secrets: Redaction | None,
) -> None:
    """Record the end of a call that has run, in the pool or, if `run` is None, on the host. `secrets` are those of its
    session and its arguments."""
    facts, kind = facts_of(call, route.tool.version, used), "call"
    if result.error is not None:
        kind = _add_error(facts, result.error)
    if outcome.node:
        facts["node"] = outcome.node
    if outcome.ending == "error":
        _add_traceback(facts, call, outcome, secrets or secrets_of(caller, call))
    if result.notices:
        facts["notices"] = [{"kind": notice.kind, "message": notice.message} for notice in result.notices]
    if services.durable is not None:
        if run is None:
            facts["ran"] = "host"
        elif run.cell is not None and run.started_at:
            facts["ran"], facts["cell"], facts["reused"] = "cell", run.cell.pid, not run.is_first_of_cell
        if result.artifacts:
            first = result.artifacts[:MOST_ARTIFACTS]
            facts["artifacts"] = [{"kind": each.kind, "path": each.path} for each in first]
            facts["artifact_count"] = len(result.artifacts)
        if result.display:
            facts["display"] = _begun(result.display, secrets)
        if secrets is not None or result.error is not None or outcome.ending == "error":
            clean(facts, secrets)
        elif result.display:
            facts["display"] = without_secrets(facts["display"])
    ended = Record(kind, caller.id, call.id, facts, time())
    services.journal.write(ended)
    services.metrics.write(ended)


def facts_of(call: ToolCall, version: str, used: Used = NOTHING_USED) -> dict[str, Any]:
    """The facts in the record of a call that ends without an error."""
    facts: dict[str, Any] = {
        "tool": call.tool,
        "version": version,
        "attempt": call.attempt,
        "error": None,
        **used,
    }
    if call.session is not None and (call.session.invocation_id or call.session.user_id):
        facts |= {"user": call.session.user_id, "invocation": call.session.invocation_id}
    return facts


def secrets_for_record(services: Services, caller: Caller, call: ToolCall) -> Redaction | None:
    """As `argument_secrets`, but None without a journal on disk."""
    return None if services.durable is None else argument_secrets(caller, call)


def secrets_of(caller: Caller, call: ToolCall) -> Redaction | None:
    """The secrets of a call's session and of its arguments. What the tool logs, prints or raises may show them."""
    found = argument_secrets(caller, call)
    return caller.secrets.redaction if found is None else found


def argument_secrets(caller: Caller, call: ToolCall) -> Redaction | None:
    """The secrets in a call's arguments, together with those of its session; None if the arguments have none. This
    reads all arguments."""
    if not isinstance(call.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a model may send anything
        return None
    found = secrets_in(call.arguments)
    return Redaction(found, REDACTED, caller.secrets.redaction) if found else None


def record_without_run(
    services: Services,
    caller: Caller,
    call: ToolCall,
    version: str,
    error: ToolError | None,
    more: Mapping[str, object],
    display: str = "",
) -> None:
    """Record a call that has not run, or whose outcome is unknown. With a state directory, the texts are without
    secrets."""
    facts, kind = {**facts_of(call, version), **more}, "call"
    if error is not None:
        kind = _add_error(facts, error)
    if services.durable is not None:
        secrets = secrets_of(caller, call)
        if display:
            facts["display"] = _begun(display, secrets)
        clean(facts, secrets)
    ended = Record.now(kind, caller.id, call.id, facts)
    services.journal.write(ended)
    services.metrics.write(ended)


def _add_error(facts: dict[str, Any], error: ToolError) -> str:
    """Add the facts of an error. Returns the kind of the record."""
    facts["error"], facts["message"], facts["outcome"] = error.kind, error.message, error.outcome
    return "denied" if error.kind == "permission_denied" else "call"


def _add_traceback(facts: dict[str, Any], call: ToolCall, outcome: Outcome, secrets: Redaction | None) -> None:
    trace = outcome.payload.get("traceback")
    if isinstance(trace, str):
        trace = trace if secrets is None else secrets.text(trace)
        trace = facts["traceback"] = trace[-TRACEBACK_CHARS:]
        _log.info("call %s of %s failed:\n%s", call.id, call.tool, trace)


def refusal_facts(caller: Caller, call: ToolCall, declaration: ToolDeclaration | None) -> dict[str, Any]:
    """The facts of a call that was refused before its intent: by whom it was asked, and with which arguments."""
    facts: dict[str, Any] = {
        "intended": False,
        "tier": "" if declaration is None else str(declaration.tier),
        **agent_facts(caller.line),
        "session_kind": str(caller.kind),
    }
    if isinstance(call.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a model may send anything
        facts |= arguments_for_journal(call.arguments, most_chars=REFUSED_CHARS)
    return facts


def clean(facts: dict[str, Any], secrets: Redaction | None) -> None:
    """Take secrets out of all that the tool has said, printed or raised."""
    for name in facts.keys() & _TEXTS:
        facts[name] = without_secrets(facts[name], secrets)
    if secrets is not None:
        for name in facts.keys() & _LISTS:
            facts[name] = secrets.value(facts[name])


def _begun(display: str, secrets: Redaction | None) -> str:
    """The beginning of a display. Secrets are removed before it is cut, so that no part of one is left."""
    if secrets is None:
        return display[:DISPLAY_CHARS]
    return secrets.text(display[: DISPLAY_CHARS + secrets.reach])[:DISPLAY_CHARS]
