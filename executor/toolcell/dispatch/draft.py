"""Draft the result and the record of a call: the fields that are known before it ends.

The draft is made when the call is sent, while the cell works on it, so the caller does not wait for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from toolcell.call import ToolCall
from toolcell.fast.tuples import made
from toolcell.journal.redact import is_secret, secrets_in
from toolcell.pool.run import NOTHING_USED
from toolcell_tools.result import ToolResult

from .route import Route
from .services import Services

_BLANK: Mapping[str, Any] = vars(ToolResult())


@final
class CallDraft(NamedTuple):
    """The fields of a call's result and record that are known before it ends."""

    fields: Mapping[str, Any]
    """All fields of its result, as if it had no output and had used nothing."""
    facts: Mapping[str, Any]
    """The facts in its record, as if it had no error and had used nothing."""
    secrets: Sequence[str]
    """The secret texts of its arguments, which the record's texts must not show. Empty without a state directory."""


def drafted(services: Services, route: Route, call: ToolCall) -> CallDraft:
    """Make the draft of a call that has been sent on this route."""
    tool = route.tool
    fields: dict[str, Any] = {
        **_BLANK,
        "call_id": call.id,
        "tool": tool.name,
        "version": tool.version,
        "session_id": route.spec.key.session_id,
        "arguments": {**call.arguments},
        "sandbox": route.sandbox,
        "artifacts": [],
        "content": [],
        "values": {},
    }
    secrets = () if services.durable is None else secret_texts(call)
    return made(CallDraft, (fields, facts_of(call, tool.version), secrets))


def facts_of(call: ToolCall, version: str) -> dict[str, Any]:
    """The facts in the record of a call that ends without an error and has used nothing."""
    facts: dict[str, Any] = {
        "tool": call.tool,
        "version": version,
        "attempt": call.attempt,
        "error": None,
        **NOTHING_USED,
    }
    if call.session is not None and (call.session.invocation_id or call.session.user_id):
        facts |= {"user": call.session.user_id, "invocation": call.session.invocation_id}
    return facts


def secret_texts(call: ToolCall) -> list[str]:
    """The texts of arguments whose names are secret. What the tool prints or raises may show them."""
    found: list[str] = []
    if isinstance(call.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - a model may send anything
        for name, value in call.arguments.items():
            if isinstance(value, (dict, list)) or (isinstance(value, str) and is_secret(name)):
                found += secrets_in({name: value})
    return found
