"""Errors as data: `ToolError`, a union tagged by `kind`, and the exception that `ToolResult.unwrap` raises."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .capability import Capability, PermissionTier
from .failures import MissingCapability, ProtectedName, RequestDenied, ToolDefinitionError, ToolFailure, Unencodable

__all__ = [
    "Cancelled",
    "Crashed",
    "CutShort",
    "ErrorBase",
    "ExecutionError",
    "LastProgress",
    "LimitExceeded",
    "LimitedResource",
    "MissingCapability",
    "Overloaded",
    "PermissionDenied",
    "ProtectedName",
    "ProtocolViolation",
    "RequestDenied",
    "SandboxUnavailable",
    "Timeout",
    "ToolDefinitionError",
    "ToolError",
    "ToolFailed",
    "ToolFailure",
    "Unencodable",
    "UnknownTool",
    "ValidationError",
    "parse_error",
]

LimitedResource = Literal["memory", "cpu", "processes", "files", "file_size", "scratch", "output", "result"]


class ErrorBase(BaseModel, frozen=True):
    """What every error has: its kind, a message fit for a model, and whether calling again can help."""

    model_config = ConfigDict(extra="forbid")

    message: str
    retryable: bool = False

    if TYPE_CHECKING:
        kind: str  # each error has one of its own, by which the union is told apart


class LastProgress(BaseModel):
    """The last that a call said of how far it was; `fraction` is from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: str
    fraction: float | None = None


class CutShort(ErrorBase, frozen=True):
    """What the errors of calls have that were ended before they were done: how far they were, where the tool said so.

    What such a call had printed is in `ToolResult.stdout` and `stderr`, and `for_model()` shows it.
    """

    progress: LastProgress | None = None


class ValidationError(ErrorBase, frozen=True):
    """The arguments do not fit the parameters schema; `field` is the path of the first that does not."""

    kind: Literal["validation"] = "validation"
    retryable: bool = True
    field: str | None = None
    parameters_schema: dict[str, Any] | None = None


class ExecutionError(ErrorBase, frozen=True):
    """The tool ran and failed; `data` is the JSON data of its ToolFailure."""

    kind: Literal["execution"] = "execution"
    data: Any = None


class PermissionDenied(ErrorBase, frozen=True):
    """The call was not allowed: by tier, a missing capability, a protected name, a rule for requests, a hook or by
    whoever approves.
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
    """No tool of that name is offered in this session; `suggestions` are at most three that are near."""

    kind: Literal["unknown_tool"] = "unknown_tool"
    suggestions: tuple[str, ...] = Field(default=(), max_length=3)


class Crashed(CutShort, frozen=True):
    """The call's process ended without an answer: by signal number `signal`, or by itself with `exit_code`."""

    kind: Literal["crashed"] = "crashed"
    signal: int | None = None
    exit_code: int | None = None


class LimitExceeded(CutShort, frozen=True):
    """The call exceeded one of its limits; `limit` is in the resource's own unit (bytes, seconds or a count)."""

    kind: Literal["limit_exceeded"] = "limit_exceeded"
    resource: LimitedResource
    limit: int | float | None = None


class Cancelled(CutShort, frozen=True):
    """The caller took the call back before it was done."""

    kind: Literal["cancelled"] = "cancelled"


class ProtocolViolation(CutShort, frozen=True):
    """The cell sent something that the protocol does not allow; the cell was ended."""

    kind: Literal["protocol_violation"] = "protocol_violation"


class Overloaded(ErrorBase, frozen=True):
    """There was no room for the call; it never ran. `retry_after_s`: when to retry, in seconds."""

    kind: Literal["overloaded"] = "overloaded"
    retryable: bool = True
    retry_after_s: float | None = None


class SandboxUnavailable(ErrorBase, frozen=True):
    """No sandbox could be made; the call never ran. This machine lacks `mechanism`, or something that `cure` names.
    Where it is `retryable`, `retry_after_s` says in how many seconds.
    """

    kind: Literal["sandbox_unavailable"] = "sandbox_unavailable"
    mechanism: str
    cure: str
    retry_after_s: float | None = None


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
    | SandboxUnavailable,
    Field(discriminator="kind"),
]
"""Any error a call can end with. For `isinstance`, use one of its members or their base, `ErrorBase`."""

_ERRORS: TypeAdapter[ToolError] = TypeAdapter(ToolError)


def parse_error(data: object) -> ToolError:
    """The error that `data`, a dict as `model_dump` makes it, stands for; raises pydantic's ValidationError."""
    return _ERRORS.validate_python(data)


class ToolFailed(Exception):
    """Raised by `ToolResult.unwrap` for a result that is an error; `error` is that ToolError."""

    def __init__(self, error: ToolError) -> None:
        super().__init__(f"{error.kind}: {error.message}")
        self.error = error

    def __reduce__(self) -> tuple[type["ToolFailed"], tuple[ToolError]]:
        return type(self), (self.error,)
