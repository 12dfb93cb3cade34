"""The errors of calls: of the calls that do not run, and for each outcome of the calls that run.

Pure: facts in, value out. A model reads the messages, so they name no paths of the host.
"""

import signal
from collections.abc import Mapping, Set
from typing import Any, cast

from toolcell.backends.threads import NO_THREAD_RETRY_S, NoThread
from toolcell.errors import UsageError
from toolcell.pool.processes import MOST_LOCKS, MOST_LOCKS_OF_MANY
from toolcell.pool.run import SOON_S, Outcome
from toolcell.pool.zygote import EXHAUSTED, cure_of
from toolcell.sessions.session_result import SessionState
from toolcell.sessions.toolbox import WHY
from toolcell.sessions.tree import SessionLife
from toolcell_sandbox.errors import SandboxError
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
from toolcell_tools.failures import ToolDefinitionError
from toolcell_tools.outside_cells import ProviderTool
from toolcell_tools.preview import printable
from toolcell_tools.result import ToolResult
from toolcell_tools.session_info import SessionInfo

UNROUTABLE = (UsageError, ToolDefinitionError)
_PUT_BACK = "Put the directory back, or open a session on another one."
MISPLACED = SandboxUnavailable(
    message=f"The workspace is not a directory: another kind of file has taken its place. {_PUT_BACK}",
    mechanism="",
    cure=_PUT_BACK,
)
_NOTHING: dict[str, Any] = {"output": None, "display": "", "artifacts": [], "content": [], "values": {}, "signals": ()}
MESSAGE_CHARS = 4_000
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


def withheld(result: ToolResult, error: ToolError) -> ToolResult:
    """The result with this error in place of all that the tool has returned."""
    return result.model_copy(update={**_NOTHING, "error": error})


def closed(tool: str, life: SessionLife) -> Cancelled:
    """The error of a call whose session was closed, or suspended, before the call ran."""
    if life.state is SessionState.SUSPENDED:
        why = "its session was suspended. Call again after session.resume()."
    else:
        why = "its session has expired." if life.state is SessionState.EXPIRED else "its session was closed."
    return Cancelled(message=f"The call of {printable(tool)!r} was cancelled: {why}")


def no_thread(error: NoThread) -> Overloaded:
    """The error of a call for which no thread could be started."""
    return Overloaded(message=str(error), retry_after_s=NO_THREAD_RETRY_S)


def unseen(error: SandboxError | OSError) -> SandboxUnavailable:
    """The outcome if the workspace could not be inspected before the call."""
    again_s = SOON_S if error.errno in EXHAUSTED else None
    if isinstance(error, SandboxError):
        message, mechanism, cure = str(error), error.mechanism, error.cure
    else:
        mechanism, cure = "", cure_of(error) or "Make the workspace accessible, or lift the names."
        message = f"The workspace cannot be looked at for protected names: {error.strerror}. {cure}"
    return SandboxUnavailable(
        message=message, mechanism=mechanism, cure=cure, retryable=again_s is not None, retry_after_s=again_s
    )


def unusable(error: Exception) -> SandboxUnavailable:
    """The error of a call whose tool no cell can load."""
    what, _, cure = str(error).partition(". ")
    return SandboxUnavailable(message=str(error), mechanism="", cure=cure or what)


def of_provider(tool: ProviderTool) -> PermissionDenied:
    """The denial of a tool that its provider runs."""
    message = (
        f"The tool {tool.name!r} is run by its provider ({tool.provider}), not here. Pass its definition to that "
        "provider's API."
    )
    return PermissionDenied(message=message, tier=tool.tier, reason="a provider-defined tool")


def lacking_grants(declaration: ToolDeclaration, session: SessionInfo, lacks: Set[Capability]) -> PermissionDenied:
    kind, missing = session.session_kind, tuple(sorted(lacks - session.grants))
    if not missing:
        return _reaching_nothing(declaration, lacks)
    handles = ", ".join(capability.value for capability in missing)
    return PermissionDenied(
        message=(
            f"The tool {declaration.name!r} needs {handles}, which this {kind.value} session does not hold. "
            "Do without it, or hand the task to the parent session."
        ),
        tier=declaration.tier,
        reason=f"a {kind.value} session holds no {handles} handle",
        missing=missing,
    )


def _reaching_nothing(declaration: ToolDeclaration, lacks: Set[Capability]) -> PermissionDenied:
    missing = tuple(sorted(lacks))
    why, cure = (" and ".join(words) for words in zip(*(WHY[capability] for capability in missing), strict=True))
    message = (
        f"The tool {declaration.name!r} cannot work in this session: {why}. Do without it. "
        f"Whoever runs the agent can {cure}."
    )
    reason = f"{', '.join(missing)} reaches nothing in this session"
    return PermissionDenied(message=message, tier=declaration.tier, reason=reason, missing=missing)


def forbidden(declaration: ToolDeclaration, reason: str) -> PermissionDenied:
    """The denial of a call for this reason."""
    message = f"The tool {declaration.name!r} may not be used here: {reason}. Do without it."
    return PermissionDenied(message=message, tier=declaration.tier, reason=reason)


def usage_limit_reached(declaration: ToolDeclaration, reached: str) -> PermissionDenied:
    message = (
        f"The tool {declaration.name!r} may not be called any more: the usage limit {reached} of this session, or of "
        "one above it, is reached. Finish without more calls, or ask for a higher limit."
    )
    return PermissionDenied(message=message, tier=declaration.tier, reason=f"usage limit: {reached}")


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
