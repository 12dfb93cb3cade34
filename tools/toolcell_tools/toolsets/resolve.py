"""Collect a session's tools: the static ones, then each toolset's, in order. Decide who gets a name that two claim."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn, Protocol

from toolcell_tools.definition import Tool
from toolcell_tools.failures import ToolDefinitionError
from toolcell_tools.interrupts import Guard, described
from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, ToolsetError

__all__ = ["Combined", "Offer", "close_all", "names_of", "offers_of", "resolve"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> str: ...


class Offer(NamedTuple):
    """A tool, and its origin in words."""

    tool: AnyTool
    origin: str


def _raise(_stranger: str, message: str) -> NoReturn:
    raise ToolsetError(message)


async def resolve(
    static: Iterable[_Named],
    toolsets: Iterable[Toolset],
    session: SessionInfo,
    refuse: Callable[[str, str], None] = _raise,
) -> dict[str, AnyTool]:
    """Every tool by its name. Raises ToolsetError, which names the failed toolset or the origins of two equal names.

    If one of two tools with one name is from an untrusted source (`Tool.stranger`), that source loses all its tools,
    whatever the order, and `refuse(stranger, message)` gets the reason. No other source loses tools. `static` may also
    hold values other than Tools: their names are taken.
    """
    known = list(static)
    offers = [Offer(tool, tool.origin) for tool in known if isinstance(tool, Tool)]
    offers += await offers_of(toolsets, session)
    origins = names_of(offers, {each.name: each.origin for each in known if not isinstance(each, Tool)})
    refused: set[str] = set()
    strangers: dict[str, list[Offer]] = {}
    for offer in offers:
        if offer.tool.stranger:
            strangers.setdefault(offer.tool.stranger, []).append(offer)
    for stranger, theirs in strangers.items():
        claimed = dict(origins)
        for tool, origin in theirs:
            if tool.name in claimed:
                refuse(
                    stranger, f"All tools of {stranger} are refused. {_clash(tool.name, claimed[tool.name], origin)}"
                )
                refused.add(stranger)
                break
            claimed[tool.name] = origin
        else:
            origins = claimed
    return {tool.name: tool for tool, _origin in offers if tool.stranger not in refused}


async def offers_of(toolsets: Iterable[Toolset], session: SessionInfo) -> list[Offer]:
    """The tools that each toolset offers, in order. The toolsets are asked at the same time: some start a server."""
    listed = list(toolsets)
    if len(listed) < 2:
        found = [await _asked(each, session) for each in listed]
    else:
        found = await _asked_together(listed, session)
    return [
        Offer(tool, f"{tool.origin} of toolset {each.name!r}")
        for each, tools in zip(listed, found, strict=True)
        for tool in tools
    ]


async def _asked_together(toolsets: list[Toolset], session: SessionInfo) -> list[list[AnyTool]]:
    """The tools of each toolset. Raises the ToolsetError of the first toolset that fails, when all have ended."""
    import anyio  # here, because cells import this module

    found: dict[int, list[AnyTool] | ToolsetError] = {}

    async def ask(number: int, toolset: Toolset) -> None:
        try:
            found[number] = await _asked(toolset, session)
        except ToolsetError as error:
            found[number] = error

    async with anyio.create_task_group() as group:
        for number, each in enumerate(toolsets):
            group.start_soon(ask, number, each)
    tools: list[list[AnyTool]] = []
    for number in range(len(toolsets)):
        one = found[number]
        if isinstance(one, ToolsetError):
            raise one
        tools.append(one)
    return tools


def names_of(offers: Iterable[Offer], taken: dict[str, str]) -> dict[str, str]:
    """The origin of each name that is taken or that a trusted tool claims. Raises ToolsetError for a name clash."""
    origins = dict(taken)
    for tool, origin in offers:
        if tool.stranger:
            continue
        if tool.name in origins:
            raise ToolsetError(_clash(tool.name, origins[tool.name], origin))
        origins[tool.name] = origin
    return origins


def _clash(name: str, first: str, second: str) -> str:
    return (
        f"Two tools are named {name!r}: {first} and {second}. Rename one, or wrap its toolset: toolset.prefixed('…')."
    )


async def _asked(toolset: Toolset, session: SessionInfo) -> list[AnyTool]:
    try:
        async with Guard():
            tools = list(await toolset.tools(session))
    except (ToolsetError, ToolDefinitionError) as error:
        said = str(error)
        raise ToolsetError(
            said if said.startswith("toolset ") else f"toolset {toolset.name!r}: {said}", toolset.name
        ) from error
    except Exception as error:
        raise ToolsetError(f"toolset {toolset.name!r}: {described(error)}", toolset.name) from error
    for tool in tools:
        if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - a toolset is the user's code
            what = f"toolset {toolset.name!r} gave {tool!r}, which is not a Tool. Return as_tools([…], name)."
            raise ToolsetError(what, toolset.name)
    return tools


async def close_all(toolsets: Iterable[Toolset]) -> None:
    """Close all toolsets, the last first, then raise their failures together."""
    failures: list[Exception] = []
    for each in reversed(tuple(toolsets)):
        try:
            async with Guard():
                await each.close()
        except Exception as error:
            error.add_note(f"while closing toolset {each.name!r}")
            failures.append(error)
    if failures:
        raise ExceptionGroup("toolsets could not be closed", failures)


class Combined(Toolset):
    """Several toolsets as one: the tools of each, in order. Two tools with one name are an error that names both
    origins. Tools from untrusted sources are an exception: `resolve` decides about their names."""

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
