"""`provider_tool`: a tool that the model's provider runs, such as a web search. toolcell only exports it."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .capability import PermissionTier
from .failures import ToolDefinitionError
from .rules import check_metadata, check_name

if TYPE_CHECKING:
    from .declaration import ToolDeclaration

__all__ = ["ProviderTool", "provider_tool"]


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
        from .annotations import Annotations
        from .declaration import ToolDeclaration, fingerprint

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
