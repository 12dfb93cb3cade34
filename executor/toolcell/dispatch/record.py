"""The records of a call: its intent before it is sent, and its end. No step of a call reads them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from toolcell.call import ToolCall
from toolcell.journal import Record
from toolcell.journal.redact import arguments_for_journal
from toolcell.pool.run import NOTHING_USED, Outcome, Used
from toolcell_tools.errors import SandboxUnavailable, ToolError
from toolcell_tools.result import Notice

from .services import Services

TRACEBACK_CHARS = 20_000
DISPLAY_CHARS = 1_000
_log = logging.getLogger("toolcell.tool")


def facts_of(call: ToolCall, version: str, used: Used) -> dict[str, Any]:
    """The facts in the record of a call without an error, which used `used`."""
    facts: dict[str, Any] = {"tool": call.tool, "version": version, "attempt": call.attempt, "error": None, **used}
    del facts["attempts"]  # only `Usage` has it
    if call.session is not None and (call.session.invocation_id or call.session.user_id):
        facts |= {"user": call.session.user_id, "invocation": call.session.invocation_id}
    return facts


def intend(
    services: Services, session_id: str, call: ToolCall, asked: Mapping[str, object]
) -> SandboxUnavailable | None:
    """With a state directory, write the intent of a call, which will be sent next. `asked` are the facts
    that all calls of its route share. Returns the error of a call that may not be sent, because its intent could not be
    written."""
    if services.durable is None:
        return None
    facts = {**asked, "attempt": call.attempt, **arguments_for_journal(call.arguments)}
    if call.session is not None and call.session.invocation_id:
        facts["invocation"] = call.session.invocation_id
    why = services.durable.intend(Record.now("intent", session_id, call.id, facts))
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
    version: str,
    error: ToolError | None,
    used: Used = NOTHING_USED,
    outcome: Outcome | None = None,
    display: str = "",
    notices: Sequence[Notice] = (),
    by: str = "",
) -> None:
    """Record the call: the facts, the error, and the stack trace of a tool that raised. `by` names the hook that gave
    the result in place of the call."""
    kind, facts = "call", facts_of(call, version, used)
    if by:
        facts["by"] = f"hook {by}"
    if error is not None:
        facts["error"], facts["message"], facts["outcome"] = error.kind, error.message, error.outcome
        kind = "denied" if error.kind == "permission_denied" else "call"
    if outcome is not None and outcome.ending == "error":
        trace = outcome.payload.get("traceback")
        if isinstance(trace, str):
            trace = facts["traceback"] = trace[-TRACEBACK_CHARS:]
            _log.info("call %s of %s failed:\n%s", call.id, call.tool, trace)
    if display and services.durable is not None:
        facts["display"] = display[:DISPLAY_CHARS]
    if notices:
        facts["notices"] = [{"kind": notice.kind, "message": notice.message} for notice in notices]
    made = Record.now(kind, session_id, call.id, facts)
    services.journal.write(made)
    services.metrics.write(made)
