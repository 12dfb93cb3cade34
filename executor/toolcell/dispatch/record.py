"""The records of a call: its intent before it is sent, and its end. No step of a call reads them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from toolcell.call import ToolCall
from toolcell.journal import Record
from toolcell.journal.durable import DurableJournal
from toolcell.journal.redact import REDACTED, arguments_for_journal, without_secrets
from toolcell.pool.run import Outcome, Used
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import SandboxUnavailable, ToolError
from toolcell_tools.result import ToolResult

from .draft import Draft, facts_of, secret_texts
from .services import Caller, Services

TRACEBACK_CHARS = 20_000
DISPLAY_CHARS = 1_000
MOST_ARTIFACTS = 50
_log = logging.getLogger("toolcell.tool")


def intend(
    journal: DurableJournal, session_id: str, call: ToolCall, asked: Mapping[str, object], allowed: str
) -> SandboxUnavailable | None:
    """Write the intent of a call to the journal on disk, before the call is sent. `asked` are the facts that all calls
    of its route share. `allowed` names the rule or approval that allows the call; "" if `asked` names it. If the intent
    cannot be written, the call may not be sent, and its error is returned."""
    facts = {**asked, "attempt": call.attempt, **arguments_for_journal(call.arguments)}
    if call.session is not None and call.session.invocation_id:
        facts["invocation"] = call.session.invocation_id
    if allowed:
        facts["allowed"] = allowed
    why = journal.intend(Record.now("intent", session_id, call.id, facts))
    if not why:
        return None
    cure = "Free space on the disk of the state directory."
    return SandboxUnavailable(
        message=f"The call was not run, because it could not be recorded. {why}", mechanism="", cure=cure
    )


def record(
    services: Services,
    session_id: str,
    call: ToolCall,
    draft: Draft,
    result: ToolResult,
    used: Used,
    outcome: Outcome,
    where: Mapping[str, object],
) -> None:
    """Record the end of a call that has run: the facts, the error, and the stack trace of a tool that raised. `where`
    are facts for a journal on disk."""
    facts = {**draft.facts, **used}
    if result.error is not None:
        _add_error(facts, result.error)
    if outcome.ending == "error":
        _add_traceback(facts, call, outcome)
    if result.notices:
        facts["notices"] = [{"kind": notice.kind, "message": notice.message} for notice in result.notices]
    if services.durable is not None:
        facts |= where
        if result.display:
            facts["display"] = result.display[:DISPLAY_CHARS]
        if result.artifacts:
            shown = result.artifacts[:MOST_ARTIFACTS]
            facts["artifacts"] = [{"kind": each.kind, "path": each.path} for each in shown]
            facts["artifact_count"] = len(result.artifacts)
        hide_secrets(facts, draft.secrets)
    _write(services, session_id, call.id, facts, result.error)


def record_without_run(
    services: Services,
    session_id: str,
    call: ToolCall,
    version: str,
    error: ToolError | None,
    more: Mapping[str, object],
    display: str = "",
) -> None:
    """Record a call that has not run, or whose outcome is unknown. With a state directory, the texts are without
    secrets."""
    facts = {**facts_of(call, version), **more}
    if error is not None:
        _add_error(facts, error)
    if services.durable is not None:
        if display:
            facts["display"] = display[:DISPLAY_CHARS]
        hide_secrets(facts, secret_texts(call))
    _write(services, session_id, call.id, facts, error)


def _add_error(facts: dict[str, Any], error: ToolError) -> None:
    facts["error"], facts["message"], facts["outcome"] = error.kind, error.message, error.outcome


def _add_traceback(facts: dict[str, Any], call: ToolCall, outcome: Outcome) -> None:
    trace = outcome.payload.get("traceback")
    if isinstance(trace, str):
        trace = facts["traceback"] = trace[-TRACEBACK_CHARS:]
        _log.info("call %s of %s failed:\n%s", call.id, call.tool, trace)


def _write(services: Services, session_id: str, call_id: str, facts: dict[str, Any], error: ToolError | None) -> None:
    is_denied = error is not None and error.kind == "permission_denied"
    made = Record.now("denied" if is_denied else "call", session_id, call_id, facts)
    services.journal.write(made)
    services.metrics.write(made)


def refusal_facts(caller: Caller, call: ToolCall, declaration: ToolDeclaration | None) -> dict[str, Any]:
    """The facts of a call that was refused before its intent: by whom it was asked, and with which arguments."""
    facts: dict[str, Any] = {
        "intended": False,
        "tier": "" if declaration is None else str(declaration.tier),
        "agent": caller.agent_id,
        "session_kind": str(caller.kind),
    }
    if isinstance(call.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a model may send anything
        facts |= arguments_for_journal(call.arguments)
    return facts


def hide_secrets(facts: dict[str, Any], secrets: Sequence[str]) -> None:
    """Take these texts, and secrets with a known form, out of what the tool has printed or raised."""
    for name in facts.keys() & _TEXTS:
        text: str = facts[name]
        for secret in secrets:
            text = text.replace(secret, REDACTED)
        facts[name] = without_secrets(text)


_TEXTS = frozenset({"display", "message", "traceback", "stdout", "stderr", "progress"})
