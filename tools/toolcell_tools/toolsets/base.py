"""Toolset: tools by session. Toolsets of a list and of a function, and wrappers that change what another one offers."""

import inspect
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from toolcell_tools.definition import Tool
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.typed import as_tool

__all__ = [
    "AnyTool",
    "ApprovalRequired",
    "Cached",
    "Filtered",
    "FunctionToolset",
    "Prefixed",
    "Prepared",
    "Renamed",
    "StaticToolset",
    "Toolset",
    "ToolsetError",
    "WithMetadata",
    "Wrapper",
    "as_tools",
    "toolset",
]

AnyTool = Tool[..., Any]
ToolLike = AnyTool | Callable[..., Any]
T = TypeVar("T", bound=ToolLike)
Resolve = Callable[[SessionInfo], Iterable[ToolLike] | Awaitable[Iterable[ToolLike]]]

MOST_SESSIONS = 10_000  # that a toolset caches; beyond this, the least recently used entry is evicted
_MOST_VARIANTS = 10_000


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

    def filtered(self, keep: Iterable[str] | Callable[[SessionInfo, AnyTool], bool]) -> "Filtered":
        """Only the tools with these names, or for which `keep(session, tool)` is true."""
        return Filtered(self, keep)

    def prefixed(self, prefix: str) -> "Prefixed":
        """`search` as `<prefix>_search`, so that two toolsets cannot clash."""
        return Prefixed(self, prefix)

    def renamed(self, names: dict[str, str]) -> "Renamed":
        """Tools with other names: `{"new": "old"}`. A tool that is not listed keeps its name."""
        return Renamed(self, names)

    def prepared(self, prepare: Callable[[SessionInfo, AnyTool], AnyTool | None]) -> "Prepared":
        """Each tool as `prepare(session, tool)` returns it; None leaves it out."""
        return Prepared(self, prepare)

    def approval_required(self, when: Callable[[SessionInfo, AnyTool], bool] | None = None) -> "ApprovalRequired":
        """Require approval for each call, or for calls of the tools for which `when(session, tool)` is true."""
        return ApprovalRequired(self, when)

    def cached(self, seconds: float | None = None) -> "Cached":
        """Ask this toolset once for each session, or again after so many seconds."""
        return Cached(self, seconds)

    def with_metadata(self, **metadata: Any) -> "WithMetadata":
        """Tools with these entries added to their metadata."""
        return WithMetadata(self, metadata)


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


def as_tools(given: Iterable[ToolLike], toolset: str) -> tuple[AnyTool, ...]:
    """Make tools of tools and plain functions. Raises ToolsetError for any other object and for a wrong definition."""
    try:
        return tuple(as_tool(one) for one in given)
    except Exception as error:
        raise ToolsetError(f"toolset {toolset!r}: {error}", toolset) from error


# -- sources -----------------------------------------------------------------------------------------------------------


class StaticToolset(Toolset):
    """The same tools for every session, so that they can be wrapped: `StaticToolset("files", [read, write])`."""

    def __init__(self, name: str, tools: Iterable[ToolLike]) -> None:
        self._name = name
        self._tools = as_tools(tools, name)

    def __repr__(self) -> str:
        return f"<StaticToolset {self._name} · {len(self._tools)} tools>"

    @property
    def name(self) -> str:
        return self._name

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return self._tools


class FunctionToolset(Toolset):
    """The tools that `resolve(session)` returns. `resolve` may be async. Each plain function is wrapped once."""

    def __init__(self, name: str, resolve: Resolve) -> None:
        self._name = name
        self._resolve = resolve
        self._wrapped = Variants()

    def __repr__(self) -> str:
        return f"<FunctionToolset {self._name}>"

    @property
    def name(self) -> str:
        return self._name

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        found = self._resolve(session)
        if inspect.isawaitable(found):
            found = await found
        return as_tools((self._wrapped.of(one, as_tool) for one in found), self._name)


def toolset(resolve: Resolve) -> FunctionToolset:
    """Make a toolset of a function, with the function's name. Write `@toolset` above it."""
    return FunctionToolset(resolve.__name__, resolve)


# -- wrappers ----------------------------------------------------------------------------------------------------------


class Wrapper(Toolset):
    """A toolset around another. It has the other's name and closes it."""

    def __init__(self, wrapped: Toolset) -> None:
        self.wrapped = wrapped
        self._variants = Variants()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.wrapped!r}>"

    @property
    def name(self) -> str:
        return self.wrapped.name

    def attach(self, runtime: object) -> None:
        self.wrapped.attach(runtime)

    async def close(self) -> None:
        await self.wrapped.close()


class Filtered(Wrapper):
    """Keeps tools by name, or by a predicate of session and tool. A name that the toolset does not have is an error."""

    def __init__(self, wrapped: Toolset, keep: Iterable[str] | Callable[[SessionInfo, AnyTool], bool]) -> None:
        super().__init__(wrapped)
        self._predicate = keep if callable(keep) else None
        self._names = frozenset[str]() if callable(keep) else frozenset(keep)

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        found = await self.wrapped.tools(session)
        predicate = self._predicate
        if predicate is not None:
            return [tool for tool in found if predicate(session, tool)]
        _refuse_unknown(self._names, found, "keep", self.name)
        return [tool for tool in found if tool.name in self._names]


class Prefixed(Wrapper):
    """`<prefix>_<name>` for each tool."""

    def __init__(self, wrapped: Toolset, prefix: str) -> None:
        super().__init__(wrapped)
        self._prefix = prefix

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return [self._variants.of(tool, self._renamed) for tool in await self.wrapped.tools(session)]

    def _renamed(self, tool: AnyTool) -> AnyTool:
        return tool.replace(name=f"{self._prefix}_{tool.name}")


class Renamed(Wrapper):
    """Renames tools. `names` is new name → old name; a tool that is not listed keeps its name."""

    def __init__(self, wrapped: Toolset, names: Mapping[str, str]) -> None:
        super().__init__(wrapped)
        self._new = {old: new for new, old in names.items()}

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        found = await self.wrapped.tools(session)
        _refuse_unknown(self._new, found, "rename", self.name)
        return [self._variants.of(tool, self._renamed) if tool.name in self._new else tool for tool in found]

    def _renamed(self, tool: AnyTool) -> AnyTool:
        return tool.replace(name=self._new[tool.name])


def _refuse_unknown(names: Iterable[str], found: Sequence[AnyTool], purpose: str, toolset: str) -> None:
    unknown = set(names) - {tool.name for tool in found}
    if unknown:
        known = ", ".join(tool.name for tool in found) or "none"
        raise ToolsetError(f"it has no tool named {min(unknown)!r} to {purpose}. It has: {known}.", toolset)


class Prepared(Wrapper):
    """Each tool as `prepare` returns it, such as a variant from `tool.replace(…)`. None leaves the tool out."""

    def __init__(self, wrapped: Toolset, prepare: Callable[[SessionInfo, AnyTool], AnyTool | None]) -> None:
        super().__init__(wrapped)
        self._prepare = prepare

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        prepared = (self._prepare(session, tool) for tool in await self.wrapped.tools(session))
        return [tool for tool in prepared if tool is not None]


class ApprovalRequired(Wrapper):
    """Requires approval for calls of a toolset's tools: all calls, or those for which `when` returns True."""

    def __init__(self, wrapped: Toolset, when: Callable[[SessionInfo, AnyTool], bool] | None = None) -> None:
        super().__init__(wrapped)
        self._when = when

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        when = self._when
        return [
            self._variants.of(tool, self._guarded) if when is None or when(session, tool) else tool
            for tool in await self.wrapped.tools(session)
        ]

    def _guarded(self, tool: AnyTool) -> AnyTool:
        return tool.replace(requires_approval=True)


class WithMetadata(Wrapper):
    """Adds these entries to each tool's metadata, or replaces entries of the same key. Policies, hooks and user
    interfaces see them; models do not."""

    def __init__(self, wrapped: Toolset, metadata: Mapping[str, Any]) -> None:
        super().__init__(wrapped)
        self._metadata = dict(metadata)

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return [self._variants.of(tool, self._marked) for tool in await self.wrapped.tools(session)]

    def _marked(self, tool: AnyTool) -> AnyTool:
        return tool.replace(metadata={**tool.metadata, **self._metadata})


class Cached(Wrapper):
    """Caches the tools of each session, without end or for `seconds`. A failure is not cached."""

    def __init__(self, wrapped: Toolset, seconds: float | None = None) -> None:
        super().__init__(wrapped)
        self._seconds = seconds
        self._known: OrderedDict[str, tuple[float, Sequence[AnyTool]]] = OrderedDict()

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        known = self._known.get(session.session_id)
        now = time.monotonic()
        if known is None or (self._seconds is not None and now - known[0] >= self._seconds):
            known = (now, tuple(await self.wrapped.tools(session)))
            self._known[session.session_id] = known
            if len(self._known) > MOST_SESSIONS:
                self._known.popitem(last=False)
        self._known.move_to_end(session.session_id)
        return known[1]

    def forget(self, session_id: str | None = None) -> None:
        """Ask again the next time: for one session, or for all."""
        if session_id is None:
            self._known.clear()
        else:
            self._known.pop(session_id, None)

    async def close(self) -> None:
        self._known.clear()
        await super().close()
