"""The Toolset protocol, and the base of its wrappers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from toolcell_tools.definition import Tool
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.typed import as_tool

if TYPE_CHECKING:
    from .approval import ApprovalRequired
    from .cached import Cached
    from .filtered import Filtered
    from .metadata import WithMetadata
    from .prefixed import Prefixed
    from .prepared import Prepared
    from .renamed import Renamed

__all__ = ["AnyTool", "Toolset", "ToolsetError", "Wrapper", "as_tools"]

AnyTool = Tool[..., Any]
ToolLike = AnyTool | Callable[..., Any]
T = TypeVar("T", bound=ToolLike)


class ToolsetError(Exception):
    """The tools of a session could not be resolved: a toolset failed, or two tools have one name. The message names the
    toolset or both tools. The cause is chained. `toolset` is the name of the failed toolset, "" for a name clash."""

    def __init__(self, message: str, toolset: str = "") -> None:
        super().__init__(message)
        self.toolset = toolset


class Toolset(ABC):
    """Tools that depend on the session or change over time: an MCP server's, by a user's rights, after a login.

    A subclass has a `name`, for errors and logs, and `tools`. `tools` is called before each request to a model and must
    be quick: cache slow answers, or wrap the toolset with `.cached()`. Return the same Tool objects while nothing has
    changed, because declarations and validators are cached per object. `close` is called once, when the supervisor
    ends.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The toolset's name in errors and logs."""

    @abstractmethod
    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        """The tools for this session, now."""

    def attach(self, runtime: object) -> None:  # noqa: B027 - most toolsets do not need it
        """Called once with the supervisor when it starts, before `tools`."""

    async def close(self) -> None:  # noqa: B027 - most toolsets hold nothing
        """Release the toolset's resources. Called once, in a task of the supervisor, when the supervisor ends."""

    def filtered(self, keep: "Iterable[str] | Callable[[SessionInfo, AnyTool], bool]") -> "Filtered":
        """Only the tools with these names, or for which `keep(session, tool)` is true."""
        from .filtered import Filtered

        return Filtered(self, keep)

    def prefixed(self, prefix: str) -> "Prefixed":
        """`search` as `<prefix>_search`, so that two toolsets cannot clash."""
        from .prefixed import Prefixed

        return Prefixed(self, prefix)

    def renamed(self, names: "dict[str, str]") -> "Renamed":
        """Tools with other names: `{"new": "old"}`. A tool that is not listed keeps its name."""
        from .renamed import Renamed

        return Renamed(self, names)

    def prepared(self, prepare: "Callable[[SessionInfo, AnyTool], AnyTool | None]") -> "Prepared":
        """Each tool as `prepare(session, tool)` returns it; None leaves it out."""
        from .prepared import Prepared

        return Prepared(self, prepare)

    def approval_required(self, when: "Callable[[SessionInfo, AnyTool], bool] | None" = None) -> "ApprovalRequired":
        """Require approval for each call, or for calls of the tools for which `when(session, tool)` is true."""
        from .approval import ApprovalRequired

        return ApprovalRequired(self, when)

    def cached(self, seconds: float | None = None) -> "Cached":
        """Ask this toolset once for each session, or again after so many seconds."""
        from .cached import Cached

        return Cached(self, seconds)

    def with_metadata(self, **metadata: Any) -> "WithMetadata":
        """Tools with these entries added to their metadata."""
        from .metadata import WithMetadata

        return WithMetadata(self, metadata)


class Wrapper(Toolset):
    """A toolset around another. It has the other's name and closes it."""

    def __init__(self, wrapped: Toolset) -> None:
        self.wrapped = wrapped

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.wrapped!r}>"

    @property
    def name(self) -> str:
        return self.wrapped.name

    def attach(self, runtime: object) -> None:
        self.wrapped.attach(runtime)

    async def close(self) -> None:
        await self.wrapped.close()


class Variants:
    """Cached variants of tools, one for each original: a new object at every request would be compiled each time."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ToolLike, AnyTool]] = {}

    def of(self, tool: T, make: Callable[[T], AnyTool]) -> AnyTool:
        """The variant of this tool object, or the tool of this function object, made at the first call. Entries of
        originals that no longer exist are dropped later.
        """
        known = self._made.get(id(tool))
        if known is None or known[0] is not tool:
            if len(self._made) >= _MOST_VARIANTS:
                self._made.clear()
            known = self._made[id(tool)] = (tool, make(tool))
        return known[1]


_MOST_VARIANTS = 10_000


def as_tools(given: Iterable[ToolLike], toolset: str) -> tuple[AnyTool, ...]:
    """Make tools of tools and plain functions. Raises ToolsetError for any other object and for a wrong definition."""
    try:
        return tuple(as_tool(one) for one in given)
    except Exception as error:
        raise ToolsetError(f"toolset {toolset!r}: {error}", toolset) from error
