"""The options of a tool, the same for every way to make one."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .capability import Capability, PermissionTier

if TYPE_CHECKING:
    from .annotations import Annotations
    from .signals import SignalKind

__all__ = [
    "Approval",
    "DynamicHostOptions",
    "DynamicOptions",
    "ExceptionsShown",
    "FailureMode",
    "Kind",
    "Lifetime",
    "Mutates",
    "Placement",
    "ToolOptions",
    "Variation",
]

Lifetime = Literal["call", "session"]
FailureMode = Literal["error", "return"]
ExceptionsShown = Literal["text", "type"]
"""What a model reads of an exception that a tool raised: its type and its text, or its type only."""
Placement = Literal["cell", "host", "provider"]
Kind = Literal["function", "typed", "dynamic", "host", "provider"]
Approval = bool | Callable[[Mapping[str, Any]], bool]
"""Whether a person is asked before a call runs: always, never, or decided by a function of the arguments. The function
runs in the supervisor's process, never in a cell."""


Mutates = Callable[[Mapping[str, Any]], bool]
"""Whether a call with these arguments may change anything. The function runs in the supervisor's process."""


class _Words(TypedDict, total=False):
    name: str | None
    description: str | None
    parameters_schema: Mapping[str, Any] | None


class _Anywhere(TypedDict, total=False):
    version: str
    tier: PermissionTier | None
    annotations: "Annotations | None"
    timeout: float | None
    requires_approval: Approval
    return_direct: bool
    metadata: Mapping[str, Any]
    instructions: str
    exceptions: ExceptionsShown


class _Bounds(_Anywhere, total=False):
    limits: Mapping[str, float] | None


class _Behaviour(TypedDict, total=False):
    needs: Iterable[Capability | str]
    failure: object
    failure_mode: FailureMode
    preview: Callable[..., object] | None
    long_running: bool
    signals: "Iterable[SignalKind]"
    confirms: bool


class DynamicHostOptions(_Anywhere, _Behaviour, total=False):
    """The options of dynamic tools that also apply outside a cell. See ToolOptions."""

    harmless: bool


class DynamicOptions(_Bounds, _Behaviour, total=False):
    """The options of every tool, except those that a dynamic tool gives by other parameters. See ToolOptions."""

    uses: Iterable[Capability | str]
    mutates: Mutates | None
    lifetime: Lifetime


class Variation(_Words, _Bounds, total=False):
    """The options that `Tool.replace` may change: presentation and bounds, never function or rights.

    A `parameters_schema` replaces the derived one, in the declaration and in validation. It names only parameters of
    the function. Each parameter that the function requires is required in it, or has a default there.
    """


class ToolOptions(_Words, DynamicOptions, total=False):
    """All options. An option that is left out comes from the function, or has its least permissive value.

    `output_schema` and `failure` are JSON Schemas or types, for results and for the data of failures; a type also
    serialises the results. `failure_mode="return"` turns a ToolFailure into a result that is marked as failed.
    `preview` takes parameters of the tool, by name, and its context, and says what a call would do, without doing it.
    If `mutates` returns False for a call, the call is granted no capability of `uses` that changes anything. A
    `long_running` tool returns a `Pending`. `return_direct` ends the agent's turn with the result. `instructions` is a
    text for the system prompt of a model that is offered the tool. `signals` are those that the tool may give to the
    loop. A tool that `confirms` may call `ctx.confirm`. With `exceptions="type"`, a model reads only the type of an
    exception that the tool raised; the profile may ask for that too. `harmless` is for host tools: see `host_tool`.
    """

    output_schema: object
    harmless: bool
