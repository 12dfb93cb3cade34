"""The records of a call: its intent before it is sent, and its end. No step of a call reads them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from toolcell.call import ToolCall
from toolcell.journal import Record
from toolcell.journal.durable import DurableJournal
from toolcell.journal.redact import REDACTED, arguments_for_journal, is_secret, secrets_in, without_secrets
from toolcell.pool.run import FREE_SPACE, NOTHING_USED, Outcome, Used
from toolcell_tools.artifact import Artifact
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import SandboxUnavailable, ToolError
from toolcell_tools.result import Notice

from .services import Caller, Services

TRACEBACK_CHARS = 20_000
DISPLAY_CHARS = 1_000
MOST_ARTIFACTS = 50
_log = logging.getLogger("toolcell.tool")


def facts_of(call: ToolCall, version: str, used: Used) -> dict[str, Any]:
    """The facts in the record of a call that ended without an error. `used` is what the call has used."""
    facts: dict[str, Any] = {"tool": call.tool, "version": version, "attempt": call.attempt, "error": None, **used}
    del facts["attempts"]  # only `Usage` has it
    if call.session is not None and (call.session.invocation_id or call.session.user_id):
        facts |= {"user": call.session.user_id, "invocation": call.session.invocation_id}
    return facts


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
    message = f"The call was not run, because it could not be recorded. {why}"
    return SandboxUnavailable(message=message, mechanism="", cure=FREE_SPACE)


def record(
    services: Services,
    session_id: str,
    call: ToolCall,
    version: str,
    error: ToolError | None,
    used: Used = NOTHING_USED,
    outcome: Outcome | None = None,
    display: str = "",
    notices: Sequence[Notice] = (),
    more: Mapping[str, object] | None = None,
    artifacts: Sequence[Artifact] = (),
    by: str = "",
) -> None:
    """Record the call: the facts, the error, and the stack trace of a tool that raised. With a state directory, `more`
    are further facts, and the texts are without secrets. `by` names the hook that gave the result in place of the
    call."""
    kind, facts = "call", facts_of(call, version, used)
    if by:
        facts["by"] = f"hook {by}"
    if error is not None:
        facts["error"], facts["message"], facts["outcome"] = error.kind, error.message, error.outcome
        kind = "denied" if error.kind == "permission_denied" else "call"
    if outcome is not None and outcome.node:
        facts["node"] = outcome.node
    if outcome is not None and outcome.ending == "error":
        trace = outcome.payload.get("traceback")
        if isinstance(trace, str):
            trace = facts["traceback"] = trace[-TRACEBACK_CHARS:]
            _log.info("call %s of %s failed:\n%s", call.id, call.tool, trace)
    if notices:
        facts["notices"] = [{"kind": notice.kind, "message": notice.message} for notice in notices]
    if services.durable is not None:
        if more:
            facts |= more
        if display:
            facts["display"] = display[:DISPLAY_CHARS]
        if artifacts:
            facts["artifacts"] = [{"kind": each.kind, "path": each.path} for each in artifacts[:MOST_ARTIFACTS]]
            facts["artifact_count"] = len(artifacts)
        hide_secrets(facts, call)
    made = Record.now(kind, session_id, call.id, facts)
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


def hide_secrets(facts: dict[str, Any], call: ToolCall) -> None:
    """Take secrets out of what the tool has printed or raised: those of its arguments, and those with a known form."""
    shown = facts.keys() & _TEXTS
    if not shown:
        return
    hidden: list[str] = []
    if isinstance(call.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a model may send anything
        for name, value in call.arguments.items():
            if isinstance(value, (dict, list)) or (isinstance(value, str) and is_secret(name)):
                hidden += secrets_in({name: value})
    for name in shown:
        text: str = facts[name]
        for secret in hidden:
            text = text.replace(secret, REDACTED)
        facts[name] = without_secrets(text)


_TEXTS = frozenset({"display", "message", "traceback", "stdout", "stderr", "progress"})
