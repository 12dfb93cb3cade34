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
    """The tools of a session could not be told: a toolset failed, or two tools have one name. The message names both
    culprits; the cause is chained. `toolset` is the name of the one that failed, "" for a clash."""

    def __init__(self, message: str, toolset: str = "") -> None:
        super().__init__(message)
        self.toolset = toolset


class Toolset(ABC):
    """Tools that depend on the session, or on the moment: of an MCP server, of a user's rights, after a login.

    A subclass has a `name`, for errors and logs, and `tools`. That is asked before each request to a model and must be
    quick: keep what is slow, or wrap it as `.cached()`. Return the same Tool objects while nothing has changed, for
    declarations and validators are kept by them. `close` is called once, when the supervisor is left.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Who is to blame in an error."""

    @abstractmethod
    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        """The tools for this session, now."""

    def attach(self, runtime: object) -> None:  # noqa: B027 - most toolsets need nothing of it
        """Called once with the supervisor, when it is started, before `tools`."""

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
        """Other names: `{"new": "old"}`. A tool that is not named keeps its own."""
        from .renamed import Renamed

        return Renamed(self, names)

    def prepared(self, prepare: "Callable[[SessionInfo, AnyTool], AnyTool | None]") -> "Prepared":
        """Each tool as `prepare(session, tool)` returns it; None leaves it out."""
        from .prepared import Prepared

        return Prepared(self, prepare)

    def approval_required(self, when: "Callable[[SessionInfo, AnyTool], bool] | None" = None) -> "ApprovalRequired":
        """Have each call approved, or each call of the tools for which `when(session, tool)` is true."""
        from .approval import ApprovalRequired

        return ApprovalRequired(self, when)

    def cached(self, seconds: float | None = None) -> "Cached":
        """Asked once for each session, or once in so many seconds."""
        from .cached import Cached

        return Cached(self, seconds)

    def with_metadata(self, **metadata: Any) -> "WithMetadata":
        """Each tool's metadata with these entries added."""
        from .metadata import WithMetadata

        return WithMetadata(self, metadata)


class Wrapper(Toolset):
    """A toolset around another: it has the same name and is closed with it."""

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
    """Variants of tools, one for each original: a new object at every request would be declared and compiled anew."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ToolLike, AnyTool]] = {}

    def of(self, tool: T, make: Callable[[T], AnyTool]) -> AnyTool:
        """The variant of this very tool, or the tool of this very function, made at the first time. Those of what is
        gone are dropped one day.
        """
        known = self._made.get(id(tool))
        if known is None or known[0] is not tool:
            if len(self._made) >= _MOST_VARIANTS:
                self._made.clear()
            known = self._made[id(tool)] = (tool, make(tool))
        return known[1]


_MOST_VARIANTS = 10_000


def as_tools(given: Iterable[ToolLike], toolset: str) -> tuple[AnyTool, ...]:
    """Tools from tools and plain functions; ToolsetError for an object that is neither or cannot be declared."""
    try:
        return tuple(as_tool(one) for one in given)
    except Exception as error:
        raise ToolsetError(f"toolset {toolset!r}: {error}", toolset) from error
