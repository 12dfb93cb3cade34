"""The parameters of the public objects: `Options` of a Supervisor, `RootOptions` and `ChildOptions` of its sessions."""

from dataclasses import dataclass, field
from pathlib import Path

from toolcell.rules.options import PlainOptions

TYPE_CHECKING = False  # type checkers know this name; an import of typing would take milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from toolcell.backends.outbound import Resolver
    from toolcell.backends.protocols import Channel, HttpClient, MemoryStore, WebClient
    from toolcell.pool.interface import Cluster
    from toolcell.rules.limits import UsageLimits
    from toolcell.rules.policy import Policy
    from toolcell.rules.profile import Profile
    from toolcell.rules.toml import Config
    from toolcell.store.approvals import AnyApprover
    from toolcell.store.journal import Journal
    from toolcell.telemetry.tracing import Telemetry
    from toolcell_tools.capability import SessionKind
    from toolcell_tools.definition import Tool
    from toolcell_tools.outside_cells import ProviderTool
    from toolcell_tools.toolsets import Toolset
    from toolcell_tools.typed import TypedTool


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectOptions:
    """The options of a supervisor that are objects of the program.

    - `tools` are Tools, TypedTools, ProviderTools or plain functions; `toolsets` offer more tools to each session.
    - `profiles` replaces the preset of a session kind.
    - `hooks` run before and after each call, in order.
    - `policy` decides which calls may run and which need approval (default: `TierPolicy()`). `approver` answers;
      without one, the nearest session at or above the call's that owns a channel does.
    - `journal` takes a record of every call.
    - `config`, from `load_config`, gives the values of omitted options.
    - `http` makes the requests of `ctx.http` that the profile's rules allow, with credentials of its own: by default a
      `BrokeredHttp` with those of `config`.
    - `channel`, `memory` and `web` are for sessions that are opened without one: by default those of `config`, then the
      log, a `SQLiteMemory` (in the state directory if there is one) and a `PublicWeb`.
    - `resolve(host, port)` looks names up for `ProxyNetwork`. It may block, and returns addresses (default: the
      system's resolver).
    - `cluster` runs the calls on other machines: `RayCluster()` of `toolcell.cluster`, from the extra `[ray]`.
      Host tools, hooks, the policy, approvals, channels, the memory and the web stay here.
    - `telemetry` traces each call: `OpenTelemetry()` of `toolcell.telemetry.otel`, from the extra `[otel]`.
    """

    tools: "Iterable[Tool[..., Any] | TypedTool[Any] | ProviderTool | Callable[..., Any]]" = field(
        default=(), kw_only=False
    )
    toolsets: "Iterable[Toolset]" = ()
    profiles: "Mapping[SessionKind, Profile] | None" = None
    hooks: "Iterable[object]" = ()
    policy: "Policy | None" = None
    approver: "AnyApprover | None" = None
    journal: "Journal | None" = None
    config: "Config | None" = None
    http: "HttpClient | None" = None
    channel: "Channel | None" = None
    memory: "MemoryStore | None" = None
    web: "WebClient | None" = None
    resolve: "Resolver | None" = None
    telemetry: "Telemetry | None" = None
    cluster: "Cluster | None" = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Options(PlainOptions, ObjectOptions):
    """The parameters of `Supervisor`."""


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """What all sessions are opened with. `kind` is positional."""

    kind: "SessionKind | str" = field(kw_only=False)
    workspace: str | Path | None = None
    agent_id: str | None = None
    session_id: str | None = None
    channel: "Channel | None" = None
    memory: "MemoryStore | None" = None
    web: "WebClient | None" = None
    http: "HttpClient | None" = None
    config: "Mapping[str, Any] | None" = None
    profile: "Profile | None" = None
    usage_limits: "UsageLimits | None" = None
    user_id: str | None = None
    invocation_id: str | None = None
    ttl_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class RootOptions(SessionOptions):
    """The parameters of `Supervisor.open_session`."""

    workspace: str | Path = field()
    agent_id: str = "agent"
    user_id: str = ""
    invocation_id: str = ""


@dataclass(frozen=True, kw_only=True)
class ChildOptions(SessionOptions):
    """The parameters of `Session.open_child`. None stands for the value of the session above."""

    context: str = ""
