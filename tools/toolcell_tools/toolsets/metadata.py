"""Metadata for every tool of a toolset. Policies, hooks and user interfaces see it; models do not."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, Variants, Wrapper

__all__ = ["WithMetadata"]


class WithMetadata(Wrapper):
    """Adds these entries to each tool's metadata, or replaces entries of the same key."""

    def __init__(self, wrapped: Toolset, metadata: Mapping[str, Any]) -> None:
        super().__init__(wrapped)
        self._metadata = dict(metadata)
        self._variants = Variants()

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return [self._variants.of(tool, self._marked) for tool in await self.wrapped.tools(session)]

    def _marked(self, tool: AnyTool) -> AnyTool:
        return tool.replace(metadata={**tool.metadata, **self._metadata})
