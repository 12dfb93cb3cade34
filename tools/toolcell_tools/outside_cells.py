"""Tools that no cell runs. `host_tool`: one that runs in the supervisor's own process, outside any sandbox, such as an
agent as a tool. `provider_tool`: one that the model's provider runs, such as a web search; toolcell only exports it."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, Unpack, overload

from . import definition
from .capability import KIND_GRANTS, Capability, PermissionTier, SessionKind
from .context import HostContext
from .definition import Tool
from .failures import ToolDefinitionError
from .options import Kind, Placement, ToolOptions, capabilities, check_flag, check_metadata, check_name

if TYPE_CHECKING:
    from .declaration import ToolDeclaration

__all__ = ["HostTool", "ProviderTool", "host_tool", "provider_tool"]

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_NEEDS = frozenset({Capability.EXEC})
"""No Worker holds it."""
_PROMISED_BY_CELLS: Mapping[str, str] = {
    "uses": "it has no handles to be given; reach what it uses by its own means",
    "mutates": "no sandbox holds a call to it",
    "limits": "only a process of its own can be limited; timeout alone holds",
    "lifetime": "it runs in the supervisor's process, which lives on; keep state where the function can reach it",
}


class HostTool(Tool[P, R]):
    """A function in the supervisor's process. Its context is a HostContext; `needs` only says who may call it.

    No sandbox holds it, so it needs something that a Worker lacks, unless the program says that it is harmless. The
    supervisor awaits an async function and runs a plain one in a thread. Made by `host_tool`.
    """

    kind: ClassVar[Kind] = "host"
    placement: ClassVar[Placement] = "host"
    context_type: ClassVar[type] = HostContext

    def _configure(self, options: ToolOptions) -> None:
        for option, reason in _PROMISED_BY_CELLS.items():
            if option in options:
                name = options.get("name") or self._own_name()
                raise ToolDefinitionError(f"host tool {name!r} takes no {option}: {reason}.")
        super()._configure(options)

    def _needed(self, options: ToolOptions) -> frozenset[Capability]:
        harmless = options.get("harmless", False)
        check_flag(self.name, "harmless", harmless)
        needs = capabilities(self.name, "needs", options.get("needs", () if harmless else DEFAULT_NEEDS))
        more = needs - KIND_GRANTS[SessionKind.WORKER]
        if harmless and more:
            raise ToolDefinitionError(
                f"host tool {self.name!r} is harmless, so any session may call it, but its needs name "
                f"{', '.join(sorted(more))}, which no Worker holds. Leave one of the two out."
            )
        if not harmless and not more:
            held = ", ".join(sorted(KIND_GRANTS[SessionKind.WORKER]))
            raise ToolDefinitionError(
                f"host tool {self.name!r}: its needs must name more than a Worker holds ({held}), because no sandbox "
                "holds it. Leave needs out, or pass harmless=True if any session may call it."
            )
        return needs

    @property
    def _less(self) -> str:
        return "or pass harmless=True if any session may call it"

    def _default_tier(self) -> PermissionTier:
        return PermissionTier.SYSTEM  # no sandbox restricts it


@overload
def host_tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> HostTool[P, R]: ...
@overload
def host_tool(fn: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], HostTool[P, R]]: ...
def host_tool(
    fn: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> HostTool[P, R] | Callable[[Callable[P, R]], HostTool[P, R]]:
    """Make a HostTool of `fn`: `@host_tool`, `@host_tool(timeout=60)` or `host_tool(fn, …)`.

    The options are those of `tool`, except `uses`, `mutates`, `limits` and `lifetime`. The default tier is SYSTEM. No
    Worker can call it: `needs` is EXEC unless given, and must name a capability that no Worker holds. With
    `harmless=True`, it needs nothing unless `needs` is given, and a Worker may call it.
    """

    def decorate(decorated: Callable[P, R]) -> HostTool[P, R]:
        if isinstance(decorated, Tool):
            raise ToolDefinitionError(f"{decorated.name!r} is a tool already. Pass its function: host_tool(…fn, …).")
        if not callable(decorated):
            raise ToolDefinitionError(f"{decorated!r} is not a function. Write @host_tool above a def.")
        return HostTool(decorated, **options, derive=definition.deriving)

    return decorate if fn is None else decorate(fn)


@dataclass(frozen=True, slots=True, eq=False)
class ProviderTool:
    """A tool that its provider runs, as `definition` says. No cell, no grants and no limits apply to it."""

    name: str
    provider: str
    definition: Mapping[str, Any]
    tier: PermissionTier = PermissionTier.SYSTEM

    @property
    def origin(self) -> str:
        """Who defines the tool, for messages."""
        return f"the provider {self.provider}"

    @property
    def declaration(self) -> "ToolDeclaration":
        """The data that a policy and an export see: the definition, unchanged."""
        from .declaration import ToolDeclaration, fingerprint
        from .options import Annotations

        definition = deepcopy(dict(self.definition))
        return ToolDeclaration(
            name=self.name,
            description="",
            tier=self.tier,
            parameters_schema={},
            annotations=Annotations(open_world=True).resolved(self.tier, frozenset()),
            fingerprint=fingerprint([self.name, self.provider, definition]),
            kind="provider",
            placement="provider",
            provider=self.provider,
            provider_definition=definition,
        )


def provider_tool(
    name: str, *, provider: str, definition: Mapping[str, Any], tier: PermissionTier = PermissionTier.SYSTEM
) -> ProviderTool:
    """Make a tool that `provider` ("openai", "anthropic", "gemini") runs. Its requests contain `definition` unchanged.

    Raises ToolDefinitionError for an invalid tool name, and for a definition that is not JSON data.
    """
    if not provider:
        raise ToolDefinitionError(f"tool {name!r}: provider is empty. Name it, such as 'openai' or 'anthropic'.")
    return ProviderTool(
        check_name(name), provider, check_metadata(name, definition, "definition"), PermissionTier(tier)
    )
