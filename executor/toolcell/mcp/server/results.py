"""The result of a call, as the client gets it."""

import json
from typing import Any, Final

from mcp_types import INTERNAL_ERROR, ErrorData

from toolcell_tools.errors import Cancelled, Crashed, Overloaded, ProtocolViolation, SandboxUnavailable
from toolcell_tools.result import ToolResult

from .artifacts import Artifacts
from .catalog import Offered, ToolList
from .questions import wire

__all__ = ["failed", "infrastructure_error", "written"]

_INFRASTRUCTURE: Final = (Crashed, ProtocolViolation, SandboxUnavailable, Overloaded, Cancelled)
"""The errors that are no answer of a tool."""


def written(
    catalog: ToolList, artifacts: Artifacts, offered: Offered, arguments: dict[str, Any], result: ToolResult
) -> dict[str, Any]:
    """The result of `tools/call`: text, media, structured content, links to artifacts."""
    rendered = catalog.rendered(offered, arguments, result)
    rendered["content"].extend(map(wire, artifacts.links(result)))
    rendered["resultType"] = "complete"  # left out again for clients of the handshake protocol
    rendered["_meta"] = {"toolcell/call_id": result.call_id}
    return rendered


def failed(message: str) -> dict[str, Any]:
    """The result of a call that ended before it could run, for the model to read."""
    content = [{"type": "text", "text": json.dumps({"error": {"message": message}})}]
    return {"content": content, "isError": True, "resultType": "complete"}


def infrastructure_error(result: ToolResult) -> ErrorData | None:
    """The protocol error of a task that failed outside of its tool, or None."""
    error = result.error
    if not isinstance(error, _INFRASTRUCTURE):
        return None
    data = {"kind": error.kind, "retryable": error.retryable}
    return ErrorData(code=INTERNAL_ERROR, message=error.message, data=data)
