"""The last step: one record of each call, for the journal and the metrics. No step of a call reads it."""

import logging
from typing import Any

from toolcell.call import ToolCall
from toolcell.journal import Record
from toolcell.pool.run import NOTHING_USED, Outcome, Used
from toolcell_tools.errors import ToolError

from .services import Services

TRACEBACK_CHARS = 20_000
_log = logging.getLogger("toolcell.tool")


def facts_of(call: ToolCall, version: str, used: Used) -> dict[str, Any]:
    """The facts in the record of a call without an error, which used `used`."""
    facts: dict[str, Any] = {"tool": call.tool, "version": version, "attempt": call.attempt, "error": None, **used}
    del facts["attempts"]  # only `Usage` has it
    return facts


def record(
    services: Services,
    session_id: str,
    call: ToolCall,
    version: str,
    error: ToolError | None,
    used: Used = NOTHING_USED,
    outcome: Outcome | None = None,
) -> None:
    """Record the call: the facts, the error, and the stack trace of a tool that raised."""
    kind, facts = "call", facts_of(call, version, used)
    if error is not None:
        facts["error"], facts["message"] = error.kind, error.message
        kind = "denied" if error.kind == "permission_denied" else "call"
    if outcome is not None and outcome.ending == "error":
        trace = outcome.payload.get("traceback")
        if isinstance(trace, str):
            trace = facts["traceback"] = trace[-TRACEBACK_CHARS:]
            _log.info("call %s of %s failed:\n%s", call.id, call.tool, trace)
    made = Record.now(kind, session_id, call.id, facts)
    services.journal.write(made)
    services.metrics.write(made)
