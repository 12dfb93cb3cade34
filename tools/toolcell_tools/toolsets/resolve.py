"""Which tools a session has: the static ones, then each toolset's, in order."""

from collections.abc import Iterable

from toolcell_tools.definition import Tool
from toolcell_tools.failures import ToolDefinitionError
from toolcell_tools.session_info import SessionInfo

from .base import AnyTool, Toolset, ToolsetError

__all__ = ["close_all", "resolve"]


async def resolve(static: Iterable[AnyTool], toolsets: Iterable[Toolset], session: SessionInfo) -> dict[str, AnyTool]:
    """Every tool by its name. ToolsetError names the toolset that failed, or the origins of two tools of one name."""
    found: dict[str, AnyTool] = {}
    origins: dict[str, str] = {}

    def add(tool: AnyTool, origin: str) -> None:
        if tool.name in found:
            raise ToolsetError(
                f"Two tools are named {tool.name!r}: {origins[tool.name]} and {origin}. Rename one, or wrap its "
                "toolset: toolset.prefixed('…')."
            )
        found[tool.name] = tool
        origins[tool.name] = origin

    for tool in static:
        add(tool, tool.origin)
    for each in toolsets:
        for tool in await _asked(each, session):
            add(tool, f"{tool.origin} of toolset {each.name!r}")
    return found


async def _asked(toolset: Toolset, session: SessionInfo) -> list[AnyTool]:
    try:
        tools = list(await toolset.tools(session))
    except (ToolsetError, ToolDefinitionError) as error:
        said = str(error)
        raise ToolsetError(
            said if said.startswith("toolset ") else f"toolset {toolset.name!r}: {said}", toolset.name
        ) from error
    except Exception as error:
        raise ToolsetError(f"toolset {toolset.name!r}: {type(error).__name__}: {error}", toolset.name) from error
    for tool in tools:
        if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - a toolset is the user's code
            what = f"toolset {toolset.name!r} gave {tool!r}, which is not a Tool. Return as_tools([…], name)."
            raise ToolsetError(what, toolset.name)
    return tools


async def close_all(toolsets: Iterable[Toolset]) -> None:
    """Close each, the last first; what goes wrong is raised together, when all are closed."""
    failures: list[Exception] = []
    for each in reversed(tuple(toolsets)):
        try:
            await each.close()
        except Exception as error:
            error.add_note(f"while closing toolset {each.name!r}")
            failures.append(error)
    if failures:
        raise ExceptionGroup("toolsets could not be closed", failures)
