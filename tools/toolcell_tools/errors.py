"""Errors as data: `ToolError`, a union tagged by `kind`, and the exception that `ToolResult.unwrap` raises."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .capability import Capability, PermissionTier

__all__ = [
    "CallOutcome",
    "Cancelled",
    "Crashed",
    "CutShort",
    "ErrorBase",
    "ExecutionError",
    "LastProgress",
    "LimitExceeded",
    "LimitedResource",
    "NodeLost",
    "Overloaded",
    "PermissionDenied",
    "ProtocolViolation",
    "SandboxUnavailable",
    "Timeout",
    "ToolError",
    "ToolFailed",
    "UnknownTool",
    "ValidationError",
    "parse_error",
]

CallOutcome = Literal["not started", "finished", "outcome unknown"]
LimitedResource = Literal["memory", "cpu", "processes", "files", "file_size", "scratch", "output", "result"]


class ErrorBase(BaseModel, frozen=True):
    """The fields of every error: its kind, a message fit for a model, and whether another call can succeed.

    `delivered`: the call was given to a process, or its host tool was called. `effect`: what it did may last. It could
    write files or run programs, or it has used a channel, the memory or the network, or it is a host tool that is not
    read-only.
    """

    model_config = ConfigDict(extra="forbid")

    message: str
    retryable: bool = False
    delivered: bool = False
    effect: bool = False

    if TYPE_CHECKING:
        kind: str  # the union's tag; each error has its own

    @property
    def outcome(self) -> CallOutcome:
        """What became of the call: "not started" (to repeat it does nothing twice), "finished" (the tool answered, or
        did nothing that lasts) or "outcome unknown" (it was ended early, and may have done a part or all of its work).
        """
        return "finished" if self.delivered else "not started"


class LastProgress(BaseModel):
    """The last progress that a call reported. `fraction` is from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: str
    fraction: float | None = None


class CutShort(ErrorBase, frozen=True):
    """A base for errors of calls that were ended early: the last progress, if the tool reported any.

    The output that such a call had printed is in `ToolResult.stdout` and `stderr`, and `for_model()` shows it.
    """

    progress: LastProgress | None = None

    @property
    def outcome(self) -> CallOutcome:
        return "outcome unknown" if self.delivered and self.effect else super().outcome


class ValidationError(ErrorBase, frozen=True):
    """The arguments do not fit the parameters schema. `field` is the path of the first one that does not fit."""

    kind: Literal["validation"] = "validation"
    retryable: bool = True
    field: str | None = None
    parameters_schema: dict[str, Any] | None = None


class ExecutionError(ErrorBase, frozen=True):
    """The tool ran and failed; `data` is the JSON data of its ToolFailure."""

    kind: Literal["execution"] = "execution"
    data: Any = None


class PermissionDenied(ErrorBase, frozen=True):
    """The call was refused: by its tier, a missing capability, a protected name, a rule for requests, a hook or the
    approver.
    """

    kind: Literal["permission_denied"] = "permission_denied"
    tier: PermissionTier | None = None
    reason: str = ""
    missing: tuple[Capability, ...] = ()


class Timeout(CutShort, frozen=True):
    """The call was ended at its deadline, after `elapsed` seconds."""

    kind: Literal["timeout"] = "timeout"
    retryable: bool = True
    elapsed: float


class UnknownTool(ErrorBase, frozen=True):
    """No tool of that name is offered in this session. `suggestions` are up to three similar names."""

    kind: Literal["unknown_tool"] = "unknown_tool"
    suggestions: tuple[str, ...] = Field(default=(), max_length=3)


class Crashed(CutShort, frozen=True):
    """The call's process ended without an answer: killed by signal number `signal`, or exited with `exit_code`."""

    kind: Literal["crashed"] = "crashed"
    signal: int | None = None
    exit_code: int | None = None


class LimitExceeded(CutShort, frozen=True):
    """The call exceeded one of its limits. `limit` is in the resource's unit: bytes, seconds or a count."""

    kind: Literal["limit_exceeded"] = "limit_exceeded"
    resource: LimitedResource
    limit: int | float | None = None


class Cancelled(CutShort, frozen=True):
    """The caller cancelled the call before it was done."""

    kind: Literal["cancelled"] = "cancelled"


class ProtocolViolation(CutShort, frozen=True):
    """The cell sent something that the protocol does not allow, and was killed."""

    kind: Literal["protocol_violation"] = "protocol_violation"


class Overloaded(ErrorBase, frozen=True):
    """There was no room for the call, so it never ran. `retry_after_s` is the time to wait for a retry, in seconds."""

    model_config = ConfigDict(extra="ignore")  # records of older state directories have a field `circuit_open`

    kind: Literal["overloaded"] = "overloaded"
    retryable: bool = True
    retry_after_s: float | None = None


class SandboxUnavailable(ErrorBase, frozen=True):
    """No sandbox could be made, so the call never ran. This machine lacks `mechanism`, or something that `cure` names.
    If it is `retryable`, `retry_after_s` is the time to wait before a retry, in seconds.
    """

    kind: Literal["sandbox_unavailable"] = "sandbox_unavailable"
    mechanism: str
    cure: str
    retry_after_s: float | None = None


class NodeLost(CutShort, frozen=True):
    """The cluster's node of the call was lost: its machine, its supervisor or the network to it. `node` is its id, or
    "" if there was no node. The tool did not fail.
    """

    kind: Literal["node_lost"] = "node_lost"
    retryable: bool = True
    node: str = ""


ToolError = Annotated[
    ValidationError
    | ExecutionError
    | PermissionDenied
    | Timeout
    | UnknownTool
    | Crashed
    | LimitExceeded
    | Cancelled
    | ProtocolViolation
    | Overloaded
    | SandboxUnavailable
    | NodeLost,
    Field(discriminator="kind"),
]
"""Any error that a call can end with. For `isinstance`, use one of the members or their base, `ErrorBase`."""

_ERRORS: TypeAdapter[ToolError] = TypeAdapter(ToolError)


def parse_error(data: object) -> ToolError:
    """The ToolError of `data`, a dict as `model_dump` makes it. Raises pydantic's ValidationError."""
    return _ERRORS.validate_python(data)


class ToolFailed(Exception):
    """Raised by `ToolResult.unwrap` for a result that is an error; `error` is that ToolError."""

    def __init__(self, error: ToolError) -> None:
        super().__init__(f"{error.kind}: {error.message}")
        self.error = error

    def __reduce__(self) -> tuple[type["ToolFailed"], tuple[ToolError]]:
        return type(self), (self.error,)
