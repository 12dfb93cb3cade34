"""From how a call ended to the `ToolResult` that the caller gets. Pure: facts in, value out."""

import signal
from collections.abc import Mapping
from typing import Any, cast

import pydantic

from toolcell.pool.capture import EMPTY, Captured
from toolcell.pool.run import Outcome
from toolcell.wire.frames import encoded_bytes
from toolcell.wire.messages import VALUES_BYTES
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
from toolcell_tools.result import CapturedOutput, SandboxSummary, ToolResult, Usage, constructed

from .failure import returned_failure

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


def result_of(
    outcome: Outcome,
    declaration: ToolDeclaration,
    limits: Limits,
    *,
    call_id: str,
    session_id: str,
    arguments: Mapping[str, Any],
    sandbox: SandboxSummary,
    attempts: int,
) -> ToolResult:
    """The result of a call that reached the pool."""
    usage = constructed(
        Usage,
        wall_s=outcome.wall_s,
        queue_s=outcome.queue_s,
        cpu_s=outcome.cpu_s,
        max_rss_bytes=outcome.max_rss_bytes,
        memory_bytes=outcome.memory_bytes,
        processes=outcome.tasks,
        attempts=attempts,
        sent_bytes=outcome.sent_bytes,
        received_bytes=outcome.received_bytes,
    )
    common: dict[str, Any] = {
        "usage": usage,
        "call_id": call_id,
        "tool": declaration.name,
        "version": declaration.version,
        "session_id": session_id,
        "arguments": arguments,
        "sandbox": sandbox,
        "stdout": _captured(outcome.stdout),
        "stderr": _captured(outcome.stderr),
    }
    if outcome.ending == "result":
        try:
            return _success(cast("Mapping[str, Any]", outcome.payload), common)
        except (pydantic.ValidationError, TypeError, KeyError) as error:
            problem = str(error).partition("\n")[0]
            return ToolResult.build(
                error=ProtocolViolation(message=f"The result frame is not a result: {problem}"), **common
            )
    if outcome.ending == "error" and outcome.reason == "failure" and declaration.failure_mode == "return":
        message = outcome.message[:MESSAGE_CHARS]
        failure = returned_failure(message, outcome.payload.get("data"), declaration)
        if not isinstance(failure, ExecutionError):
            return ToolResult.build(output=failure, display=message, **common)
        return ToolResult.build(error=failure, **common)
    return ToolResult.build(error=error_of(outcome, declaration, limits), **common)


def _success(payload: Mapping[str, Any], common: dict[str, Any]) -> ToolResult:
    display, values = payload["display"], payload["values"]
    if type(display) is not str or type(values) is not dict:
        raise TypeError("display is a string and values is a map")
    for name in ("artifacts", "content"):
        if type(payload[name]) is not list or len(payload[name]) > MAX_ITEMS:
            raise TypeError(f"{name} is a list of at most {MAX_ITEMS:,}")
    kept = cast("dict[str, Any]", values)
    if kept and encoded_bytes(kept) > VALUES_BYTES:
        raise TypeError(f"values has more than {VALUES_BYTES:,} bytes")
    result = ToolResult.build(
        output=payload["output"],
        display=display,
        artifacts=payload["artifacts"],
        content=payload["content"],
        values=kept,
        **common,
    )
    if any(artifact.uri is not None for artifact in result.artifacts):  # whoever reads one would read a file of ours
        raise TypeError("an artifact has a uri, which is not a cell's to set")
    return result


def _captured(captured: Captured) -> CapturedOutput:
    if captured is EMPTY:
        return _NO_OUTPUT
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
