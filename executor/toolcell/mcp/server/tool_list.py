"""The tools of a session as an MCP server lists them, and the results of their calls as it writes them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp_types import INTERNAL_ERROR, ErrorData, ResourceLink, Tool

from toolcell.session import Session
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import Cancelled, Crashed, Overloaded, ProtocolViolation, SandboxUnavailable
from toolcell_tools.exports import Export, ModelCall
from toolcell_tools.exports import mcp as export_tools
from toolcell_tools.options import answers_parameter
from toolcell_tools.result import ToolResult

from .questions import wire

__all__ = ["ListedTool", "ToolList", "failed", "infrastructure_error"]

_INFRASTRUCTURE: Final = (Crashed, ProtocolViolation, SandboxUnavailable, Overloaded, Cancelled)
"""The errors that are no answer of a tool."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool, with its entry of `tools/list`, and what `mcp_metadata` says of it."""

    declaration: ToolDeclaration
    entry: Tool
    answers: str
    """The parameter that gets the client's answers, "" if there is none."""
    task: str
    ask_first: bool
    poll_after_s: float | None

    @property
    def name(self) -> str:
        return self.declaration.name


class ToolList:
    """The tools that a session may use now. `refresh` asks the session, and says whether the list has changed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, ListedTool] = {}
        self._version: tuple[str, ...] | None = None
        self._export: Export | None = None

    @property
    def entries(self) -> list[Tool]:
        """The entries of the last refresh, in order."""
        return [tool.entry for tool in self._known.values()]

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool's arguments, or None for an unknown tool."""
        tool = self._known.get(name)
        return None if tool is None else tool.entry.input_schema

    async def refresh(self) -> bool:
        """Ask the session for its tools. Returns whether they are others than before. Raises ToolsetError."""
        declared = [each for each in await self._session.tools() if each.needs <= self._session.grants]
        version = tuple(each.fingerprint for each in declared)
        if version == self._version:
            return False
        export = export_tools(declared)
        by_name = {each.name: each for each in declared}
        known: dict[str, ListedTool] = {}
        for entry in export.tools:
            declaration = by_name[export.names.original(entry["name"])]
            known[entry["name"]] = _listed(declaration, entry)
        is_first, self._version = self._version is None, version
        self._known, self._export = known, export
        return not is_first

    async def find(self, name: str) -> ListedTool | None:
        """The tool that is listed under this name. Asks the session if it is not known. Raises ToolsetError."""
        if name not in self._known:
            await self.refresh()
        return self._known.get(name)

    def written(
        self, tool: ListedTool, arguments: dict[str, Any], result: ToolResult, links: Iterable[ResourceLink]
    ) -> dict[str, Any]:
        """The result of `tools/call`: text, media, structured content, links to artifacts."""
        assert self._export is not None
        call = ModelCall(tool.name, arguments, result.call_id, tool.entry.name, False)
        written = self._export.result_for(call, result)
        written["content"].extend(map(wire, links))
        written["resultType"] = "complete"  # left out again for clients of the handshake protocol
        written["_meta"] = {"toolcell/call_id": result.call_id}
        return written


def _listed(declaration: ToolDeclaration, entry: dict[str, Any]) -> ListedTool:
    given: object = declaration.metadata.get("mcp")
    said = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {})
    poll = said.get("poll_after_s")
    return ListedTool(
        declaration,
        Tool.model_validate(entry, by_name=False),
        answers_parameter(declaration.metadata),
        str(said.get("task", "optional" if declaration.long_running else "forbidden")),
        bool(said.get("ask_first", False)),
        float(poll) if isinstance(poll, (int, float)) else None,
    )


def failed(message: str) -> dict[str, Any]:
    """The result of a call that ended before it could run, for the model to read."""
    content = [{"type": "text", "text": json.dumps({"error": {"message": message}})}]
    return {"content": content, "isError": True, "resultType": "complete"}


def infrastructure_error(result: ToolResult) -> ErrorData | None:
    """The protocol error of a task that failed outside of its tool, or None."""
    error = result.error
    if not isinstance(error, _INFRASTRUCTURE):
        return None
    data = {"kind": error.kind, "retryable": error.retryable}
    return ErrorData(code=INTERNAL_ERROR, message=error.message, data=data)
