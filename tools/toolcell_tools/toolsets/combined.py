"""Several toolsets as one."""

from collections.abc import Iterable, Sequence

from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset
from .resolve import close_all, names_of, offers_of

__all__ = ["Combined"]


class Combined(Toolset):
    """The tools of each toolset, in order. Two tools with one name are an error that names both origins. Tools from
    untrusted sources are an exception: `resolve` decides about their names."""

    def __init__(self, name: str, toolsets: Iterable[Toolset]) -> None:
        self._name = name
        self.toolsets = tuple(toolsets)

    def __repr__(self) -> str:
        return f"<Combined {self._name} of {len(self.toolsets)} toolsets>"

    @property
    def name(self) -> str:
        return self._name

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        offers = await offers_of(self.toolsets, session)
        names_of(offers, {})
        return [tool for tool, _origin in offers]

    def attach(self, runtime: object) -> None:
        for each in self.toolsets:
            each.attach(runtime)

    async def close(self) -> None:
        await close_all(self.toolsets)
