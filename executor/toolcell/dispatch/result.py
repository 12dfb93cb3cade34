"""Make the caller's `ToolResult` from the outcome of a call. Pure: facts in, value out."""

import reprlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pydantic

from toolcell.pool.processes import MOST_LOCKS, MOST_LOCKS_OF_MANY
from toolcell.pool.run import EMPTY, Captured, Outcome, Used
from toolcell.rules.call import ToolCall
from toolcell.wire.frames import encoded_bytes
from toolcell.wire.messages import VALUES_BYTES, display_of
from toolcell_sandbox.explain import amount
from toolcell_sandbox.limits import Limits
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import (
    Cancelled,
    Crashed,
    CutShort,
    ExecutionError,
    LastProgress,
    LimitedResource,
    LimitExceeded,
    NodeLost,
    Overloaded,
    PermissionDenied,
    ProtocolViolation,
    SandboxUnavailable,
    Timeout,
    ToolError,
    ValidationError,
)
from toolcell_tools.preview import printable, shortened, transcript
from toolcell_tools.result import CapturedOutput, Notice, SandboxSummary, ToolResult, Usage, constructor
from toolcell_tools.returned import MAX_ITEMS
from toolcell_tools.signals import read_signals

from .failure import returned_failure
from .route import Route

MESSAGE_CHARS = 4_000
MEMBER_CHARS = 64
_LIMIT_OF: Mapping[str, str] = {
    "memory": "memory_bytes",
    "locks": "memory_bytes",
    "cpu": "cpu_s",
    "processes": "processes",
    "files": "open_files",
    "file_size": "file_bytes",
    "scratch": "scratch_bytes",
    "scratch_inodes": "scratch_inodes",
    "output": "output_bytes",
    "result": "result_bytes",
}
_REPR = reprlib.Repr()  # for arguments, which may be large
_REPR.maxstring = _REPR.maxother = 160
_usage: Callable[[Any], Usage] = constructor(Usage)
_result: Callable[[dict[str, Any]], ToolResult] = constructor(ToolResult)


def in_userns(summary: SandboxSummary) -> SandboxSummary:
    """The summary for a cell in a user namespace, because its workspace's file system has no id-mapped mounts."""
    return summary.model_copy(update={"on": tuple(name for name in summary.on if name != "idmapped_mounts")})


def result_of(route: Route, call: ToolCall, outcome: Outcome, used: Used) -> tuple[ToolResult, str]:
    """The result of a call with this outcome, and what is wrong with a malformed answer, or "". Whoever calls this ends
    the cell that sent a malformed answer.
    """
    error: ToolError | None = None
    malformed = ""
    fields: dict[str, Any] = {
        **route.blank,
        "call_id": call.id,
        "arguments": {**call.arguments},
        "artifacts": [],
        "content": [],
        "values": {},
        "usage": _usage({**used, "attempts": call.attempt}),
    }
    if outcome.stdout is not EMPTY:
        fields["stdout"] = _captured(outcome.stdout)
    if outcome.stderr is not EMPTY:
        fields["stderr"] = _captured(outcome.stderr)
    if outcome.ending == "result":
        try:
            _add_payload(fields, outcome.payload, route.declaration)
        except (pydantic.ValidationError, TypeError, KeyError, ValueError) as wrong:
            malformed = f"The result frame is not a result: {_first_line(wrong)}"
            error = ProtocolViolation(message=malformed)
    elif outcome.ending == "error" and outcome.reason == "confirm":
        malformed = "it asks for a confirmation, and its declaration does not say that it confirms"
        error = error_of(replace(outcome, ending="violation", message=malformed), route.declaration, route.limits, 0.0)
    elif outcome.ending == "error" and outcome.reason == "failure" and route.declaration.failure_mode == "return":
        message = outcome.message[:MESSAGE_CHARS]
        failure = returned_failure(message, outcome.payload.get("data"), route.declaration)
        if isinstance(failure, ExecutionError):
            error = failure
        else:
            fields["output"], fields["display"] = failure, message
    else:
        error = error_of(outcome, route.declaration, route.limits, used["wall_s"] + used["queue_s"])
    if error is not None:
        fields["error"] = error
        fields["display"] = _display_of_error(
            route.tool.name, fields["arguments"], fields["stdout"], fields["stderr"], error
        )
    return _result(fields), malformed


def _display_of_error(
    tool: str, arguments: Mapping[str, Any], stdout: CapturedOutput, stderr: CapturedOutput, error: ToolError
) -> str:
    """The display of an error for people: the call, its output and the error."""
    given = ", ".join(f"{name}={_REPR.repr(value)}" for name, value in arguments.items())
    heading = printable(shortened(f"{tool}({given})"))
    return transcript(heading, stdout.text, stderr.text, printable(error.message, keep="\n\t"))


def _add_payload(fields: dict[str, Any], payload: Mapping[str, Any], declaration: ToolDeclaration) -> None:
    """Add a cell's payload to a result's fields. For a malformed payload, raises ValueError (pydantic's ValidationError
    is one), TypeError or KeyError, and adds nothing. A payload omits empty fields, and a display that `display_of` the
    output gives.
    """
    output = payload["output"]
    display = payload["display"] if "display" in payload else display_of(output)
    if type(display) is not str:
        raise TypeError("display is a string")
    if len(payload) > (2 if "display" in payload else 1):
        fields.update(_other_parts(payload, declaration))
    fields["output"], fields["display"] = output, display


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _other_parts(payload: Mapping[str, Any], declaration: ToolDeclaration) -> dict[str, Any]:
    artifacts, content, values = payload.get("artifacts", []), payload.get("content", []), payload.get("values", {})
    for name, sent in (("artifacts", artifacts), ("content", content)):
        if type(sent) is not list or len(cast("list[object]", sent)) > MAX_ITEMS:
            raise TypeError(f"{name} is a list of at most {MAX_ITEMS:,}")
    if type(values) is not dict:
        raise TypeError("values is a map")
    if values and encoded_bytes(cast("dict[str, Any]", values)) > VALUES_BYTES:
        raise TypeError(f"values has more than {VALUES_BYTES:,} bytes")
    member = payload.get("text_member", "")
    if type(member) is not str or len(member) > MEMBER_CHARS:
        raise TypeError(f"text_member is a text of at most {MEMBER_CHARS} characters")
    made = ToolResult.build(artifacts=artifacts, content=content)
    if any(artifact.uri is not None for artifact in made.artifacts):  # it could name a file of the supervisor's
        raise TypeError("an artifact has a uri, which is not a cell's to set")
    signals = read_signals(declaration.signals, payload["signals"]) if "signals" in payload else ()
    return {
        "artifacts": made.artifacts,
        "content": made.content,
        "text_member": member,
        "values": values,
        "signals": signals,
    }


def _captured(captured: Captured) -> CapturedOutput:
    return CapturedOutput(text=captured.text, total_bytes=captured.total_bytes, omitted_bytes=captured.omitted_bytes)


def error_of(outcome: Outcome, declaration: ToolDeclaration, limits: Limits, elapsed_s: float) -> ToolError:
    """The typed error for an outcome. The supervisor chooses the kind; a cell only names a reason."""
    error = _error_of(outcome, declaration, limits, elapsed_s)
    if outcome.progress is not None and isinstance(error, CutShort):
        _seq, message, fraction = outcome.progress
        last = LastProgress(message=printable(message), fraction=fraction)
        return error.model_copy(update={"progress": last})
    return error


def _error_of(outcome: Outcome, declaration: ToolDeclaration, limits: Limits, elapsed_s: float) -> ToolError:
    name = declaration.name
    match outcome.ending:
        case "error":
            return _reported(outcome, declaration, limits, elapsed_s)
        case "exited":
            return _exited(outcome, name)
        case "lost" if outcome.reason == "fault":
            what = f"The supervisor failed during the call of {name!r}, and ended its cell; the log has the error."
            return Crashed(message=f"{what} Later calls get a new cell.")
        case "lost":
            return Crashed(message=f"The cell of {name!r} ended during the call. Later calls get a new cell.")
        case "timeout":
            return Timeout(
                message=f"The tool {name!r} was ended after {elapsed_s:.3g} s, at its deadline.", elapsed=elapsed_s
            )
        case "limit":
            return limit_exceeded(outcome.resource, name, limits)
        case "violation":
            return ProtocolViolation(
                message=f"The process of {name!r} broke the protocol ({outcome.message}); its cell was ended."
            )
        case "unavailable":
            return SandboxUnavailable(
                message=outcome.message,
                mechanism=outcome.mechanism,
                cure=outcome.cure,
                retryable=outcome.retry_after_s is not None,
                retry_after_s=outcome.retry_after_s,
            )
        case "overloaded":
            return Overloaded(message=outcome.message, retry_after_s=outcome.retry_after_s)
        case "cancelled":
            return Cancelled(message=f"The call of {name!r} was cancelled.")
        case "node_lost":
            return NodeLost(message=outcome.message, node=outcome.resource)
        case "moved":
            what = "The workspace's directory was replaced again and again while the call waited for a process."
            return Overloaded(message=f"{what} Try again when that is over.", retry_after_s=outcome.retry_after_s)
        case "result":
            raise AssertionError("a result is no error")


def limit_exceeded(resource: str, tool: str, limits: Limits) -> LimitExceeded:
    name = _LIMIT_OF[resource]
    limit: float = getattr(limits, name)
    what = f"{resource.replace('_', ' ')}: {amount(name, limit)}"
    if resource == "locks":
        many = f"{MOST_LOCKS:,}, or {MOST_LOCKS_OF_MANY} while the machine has many"
        what, resource = f"file locks, which are memory of the kernel: {many}", "memory"
    return LimitExceeded(
        message=f"The tool {tool!r} exceeded its limit on {what}. Ask for less.",
        resource=cast("LimitedResource", "scratch" if resource == "scratch_inodes" else resource),
        limit=limit,
    )


def _reported(outcome: Outcome, declaration: ToolDeclaration, limits: Limits, elapsed_s: float) -> ToolError:
    """The error for a runner's report. The report only selects a limit; the limit's value is the supervisor's."""
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
        case "late":
            return Timeout(message=message, elapsed=elapsed_s)
        case _:
            return ExecutionError(message=message, data=outcome.payload.get("data"))


def state_lost(tool: str, how: str) -> Notice:
    """The notice for the first call in a new process of a kept tool. `how` says how the previous process ended."""
    message = (
        f"The tool {tool!r} runs in a new process: the process of earlier calls {how}. "
        "Variables and connections of earlier calls are lost; create them again."
    )
    return Notice(kind="state_lost", message=message)


def _exited(outcome: Outcome, tool: str) -> ToolError:
    if outcome.code == -signal.SIGPIPE:  # the runner ends so if the tool has closed its pipe
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
