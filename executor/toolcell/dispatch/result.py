"""From how a call ended to the `ToolResult` that the caller gets. Pure: facts in, value out."""

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import pydantic

from toolcell.call import ToolCall
from toolcell.pool.capture import EMPTY, Captured
from toolcell.pool.run import Outcome
from toolcell.wire.frames import encoded_bytes
from toolcell.wire.messages import VALUES_BYTES, display_of
from toolcell_sandbox.limits import Limits
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.encode import MAX_ITEMS
from toolcell_tools.errors import (
    Cancelled,
    Crashed,
    ExecutionError,
    LimitedResource,
    LimitExceeded,
    Overloaded,
    PermissionDenied,
    ProtocolViolation,
    SandboxUnavailable,
    Timeout,
    ToolError,
    ValidationError,
)
from toolcell_tools.result import SCHEMA_VERSION, CapturedOutput, ToolResult, Usage, constructed

from .failure import returned_failure

if TYPE_CHECKING:
    from toolcell.session import Route

MESSAGE_CHARS = 4_000
_LIMIT_OF: Mapping[str, str] = {
    "memory": "memory_bytes",
    "cpu": "cpu_s",
    "processes": "processes",
    "files": "open_files",
    "file_size": "file_bytes",
    "scratch": "scratch_bytes",
    "scratch_inodes": "scratch_inodes",
    "output": "output_bytes",
    "result": "result_bytes",
}
_NO_OUTPUT = CapturedOutput()


def result_of(outcome: Outcome, route: "Route", call: ToolCall, session_id: str) -> ToolResult:
    """The result of a call that ran."""
    declaration = route.declaration
    usage = {
        "wall_s": outcome.wall_s,
        "queue_s": outcome.queue_s,
        "cpu_s": outcome.cpu_s,
        "max_rss_bytes": outcome.max_rss_bytes,
        "memory_bytes": outcome.memory_bytes,
        "processes": outcome.tasks,
        "attempts": call.attempt,
        "sent_bytes": outcome.sent_bytes,
        "received_bytes": outcome.received_bytes,
    }
    parts: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "output": None,
        "display": "",
        "artifacts": [],
        "content": [],
        "error": None,
        "usage": constructed(Usage, usage),
        "call_id": call.id,
        "tool": route.tool.name,
        "version": route.tool.version,
        "session_id": session_id,
        "arguments": call.arguments,
        "sandbox": route.sandbox,
        "stdout": _NO_OUTPUT if outcome.stdout is EMPTY else _captured(outcome.stdout),
        "stderr": _NO_OUTPUT if outcome.stderr is EMPTY else _captured(outcome.stderr),
        "values": {},
    }
    if outcome.ending == "result":
        try:
            parts.update(_said(outcome.payload))
        except (pydantic.ValidationError, TypeError, KeyError) as error:
            problem = str(error).partition("\n")[0]
            parts["error"] = ProtocolViolation(message=f"The result frame is not a result: {problem}")
    elif outcome.ending == "error" and outcome.reason == "failure" and declaration.failure_mode == "return":
        message = outcome.message[:MESSAGE_CHARS]
        failure = returned_failure(message, outcome.payload.get("data"), declaration)
        if isinstance(failure, ExecutionError):
            parts["error"] = failure
        else:
            parts["output"], parts["display"] = failure, message
    else:
        parts["error"] = error_of(outcome, declaration, route.limits)
    return constructed(ToolResult, parts)


def _said(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a result that a cell has said; pydantic's ValidationError, TypeError or KeyError for what is none.

    What is empty is left out of a payload, and so is the display of a text.
    """
    output = payload["output"]
    display = payload["display"] if "display" in payload else display_of(output)
    if type(display) is not str:
        raise TypeError("display is a string")
    said: dict[str, Any] = {"output": output, "display": display}
    if len(payload) > (2 if "display" in payload else 1):
        said.update(_said_beside(payload))
    return said


def _said_beside(payload: Mapping[str, Any]) -> dict[str, Any]:
    artifacts, content, values = payload.get("artifacts", []), payload.get("content", []), payload.get("values", {})
    for name, sent in (("artifacts", artifacts), ("content", content)):
        if type(sent) is not list or len(cast("list[object]", sent)) > MAX_ITEMS:
            raise TypeError(f"{name} is a list of at most {MAX_ITEMS:,}")
    if type(values) is not dict:
        raise TypeError("values is a map")
    if values and encoded_bytes(cast("dict[str, Any]", values)) > VALUES_BYTES:
        raise TypeError(f"values has more than {VALUES_BYTES:,} bytes")
    made = ToolResult.build(artifacts=artifacts, content=content)
    if any(artifact.uri is not None for artifact in made.artifacts):  # whoever reads one would read a file of ours
        raise TypeError("an artifact has a uri, which is not a cell's to set")
    return {"artifacts": made.artifacts, "content": made.content, "values": values}


def _captured(captured: Captured) -> CapturedOutput:
    return CapturedOutput(text=captured.text, total_bytes=captured.total_bytes, omitted_bytes=captured.omitted_bytes)


def error_of(outcome: Outcome, declaration: ToolDeclaration, limits: Limits) -> ToolError:
    """The typed error that an outcome is. The kinds are ours to choose; a cell only ever names a reason."""
    name = declaration.name
    match outcome.ending:
        case "error":
            return _reported(outcome, declaration, limits)
        case "exited":
            return _exited(outcome, name)
        case "lost":
            return Crashed(message=f"The cell of {name!r} ended under the call. The session goes on in a new one.")
        case "timeout":
            return Timeout(
                message=f"The tool {name!r} was ended after {outcome.wall_s + outcome.queue_s:.3g} s, at its deadline.",
                elapsed=outcome.wall_s + outcome.queue_s,
            )
        case "limit":
            return limit_exceeded(outcome.resource, name, limits)
        case "violation":
            return ProtocolViolation(
                message=f"The process of {name!r} broke the protocol ({outcome.message}); its cell was ended."
            )
        case "unavailable":
            return SandboxUnavailable(message=outcome.message, mechanism=outcome.mechanism, cure=outcome.cure)
        case "overloaded":
            return Overloaded(message=outcome.message)
        case "cancelled":
            return Cancelled(message=f"The call of {name!r} was cancelled.")
        case "result":
            raise AssertionError("a result is no error")


def limit_exceeded(resource: str, tool: str, limits: Limits) -> LimitExceeded:
    limit: float = getattr(limits, _LIMIT_OF[resource])
    return LimitExceeded(
        message=f"The tool {tool!r} exceeded its limit on {resource.replace('_', ' ')}: {limit:,}. Ask for less.",
        resource=cast("LimitedResource", "scratch" if resource == "scratch_inodes" else resource),
        limit=limit,
    )


def _reported(outcome: Outcome, declaration: ToolDeclaration, limits: Limits) -> ToolError:
    """What the runner reported. Facts that it claims about limits only choose which of our limits is named."""
    message = outcome.message[:MESSAGE_CHARS]
    match outcome.reason:
        case "arguments":
            field = outcome.payload.get("field")
            return ValidationError(
                message=message,
                field=field if isinstance(field, str) else None,
                parameters_schema=dict(declaration.parameters_schema),
            )
        case "permission":
            claimed = outcome.payload.get("capability")
            missing = tuple(one for one in Capability if one.value == claimed)
            return PermissionDenied(message=message, tier=declaration.tier, reason=message, missing=missing)
        case "memory" | "files" | "file_size" | "scratch" | "scratch_inodes" | "processes" | "result":
            return limit_exceeded(outcome.reason, declaration.name, limits)
        case _:
            return ExecutionError(message=message, data=outcome.payload.get("data"))


def _exited(outcome: Outcome, tool: str) -> ToolError:
    if outcome.code == -signal.SIGPIPE:  # how the runner ends when the tool has closed its pipe
        return ProtocolViolation(message=f"The process of {tool!r} lost its protocol pipe; it must have closed it.")
    if outcome.code < 0:
        number = -outcome.code
        try:
            word = signal.Signals(number).name
        except ValueError:
            word = f"signal {number}"
        return Crashed(message=f"The process of {tool!r} was ended by {word}.", signal=number)
    return Crashed(
        message=f"The process of {tool!r} exited with code {outcome.code} and gave no result.", exit_code=outcome.code
    )
