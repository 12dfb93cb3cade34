"""The tools of a session as an MCP server lists them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp_types import Tool

from toolcell.session import Session
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.exports import Export, ModelCall
from toolcell_tools.exports import mcp as export_tools
from toolcell_tools.options import answers_parameter
from toolcell_tools.result import ToolResult

__all__ = ["Offered", "ToolList"]

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool, with its entry of `tools/list`, and what `mcp_metadata` says of it."""

    declaration: ToolDeclaration
    entry: Tool
    answers: str = ""
    """The parameter that gets the client's answers, "" if there is none."""
    task: str = "forbidden"
    ask_first: bool = False
    poll_after_s: float | None = None

    @property
    def name(self) -> str:
        return self.declaration.name


class ToolList:
    """The tools that a session may use now. `refresh` asks the session, and says whether the list has changed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, Offered] = {}
        self._version: tuple[str, ...] | None = None
        self._export: Export | None = None

    @property
    def entries(self) -> list[Tool]:
        """The entries of the last refresh, in order."""
        return [offered.entry for offered in self._known.values()]

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool's arguments, or None for an unknown tool."""
        offered = self._known.get(name)
        return None if offered is None else offered.entry.input_schema

    async def refresh(self) -> bool:
        """Ask the session for its tools. Returns whether they are others than before. Raises ToolsetError."""
        declared = [each for each in await self._session.tools() if each.needs <= self._session.grants]
        version = tuple(each.fingerprint for each in declared)
        if version == self._version:
            return False
        export = export_tools(declared)
        by_name = {each.name: each for each in declared}
        known: dict[str, Offered] = {}
        for entry in export.tools:
            declaration = by_name[export.names.original(entry["name"])]
            known[entry["name"]] = _offered(declaration, entry)
        is_first, self._version = self._version is None, version
        self._known, self._export = known, export
        return not is_first

    async def find(self, name: str) -> Offered | None:
        """The tool that is listed under this name. Asks the session if it is not known. Raises ToolsetError."""
        if name not in self._known:
            await self.refresh()
        return self._known.get(name)

    def rendered(self, offered: Offered, arguments: dict[str, Any], result: ToolResult) -> dict[str, Any]:
        """The result of a call as MCP writes it, without links to artifacts."""
        assert self._export is not None
        call = ModelCall(offered.name, arguments, result.call_id, offered.entry.name, False)
        return self._export.result_for(call, result)


def _offered(declaration: ToolDeclaration, entry: dict[str, Any]) -> Offered:
    given: object = declaration.metadata.get("mcp")
    said = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else _NOTHING
    task = said.get("task", "optional" if declaration.long_running else "forbidden")
    poll = said.get("poll_after_s")
    poll_after_s = float(poll) if isinstance(poll, (int, float)) else None
    tool = Tool.model_validate(entry, by_name=False)
    return Offered(
        declaration,
        tool,
        answers_parameter(declaration.metadata),
        str(task),
        bool(said.get("ask_first", False)),
        poll_after_s,
    )
