"""Metadata for every tool of a toolset: for policies, hooks and user interfaces; no model sees it."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, Variants, Wrapper

__all__ = ["WithMetadata"]


class WithMetadata(Wrapper):
    """Each tool's own metadata, with these entries added to or in the place of its own."""

    def __init__(self, wrapped: Toolset, metadata: Mapping[str, Any]) -> None:
        super().__init__(wrapped)
        self._metadata = dict(metadata)
        self._variants = Variants()

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return [self._variants.of(tool, self._marked) for tool in await self.wrapped.tools(session)]

    def _marked(self, tool: AnyTool) -> AnyTool:
        return tool.replace(metadata={**tool.metadata, **self._metadata})
