"""deepagents: the file tools of an agent that may read and run no command, such as a Worker's."""

from collections.abc import Awaitable, Callable
from typing import Any

from deepagents.backends.protocol import FileData, FileInfo, GlobResult, GrepMatch, GrepResult, LsResult, ReadResult

from toolcell_tools.result import ToolResult

__all__ = ["Reading"]

MOST_MATCHES = 1_000
"""The most lines that a search shows, as `grep` of the coding tools."""
Call = Callable[[str, dict[str, Any]], Awaitable[ToolResult]]


class Reading:
    """Lists, reads and searches files by `workspace_list`, `workspace_lines`, `workspace_get`, `workspace_glob` and
    `workspace_grep`. They need nothing but READ; BaseSandbox runs commands instead, which need EXEC and WRITE.

    `call` makes a call of the session; `root` is its workspace. All paths are absolute.
    """

    def __init__(self, call: Call, root: str) -> None:
        self._call = call
        self._root = root

    async def ls(self, path: str) -> LsResult:
        """List the entries of a directory. Links count as files."""
        result = await self._call("workspace_list", {"path": path, "ignored": True})
        if result.is_error:
            return LsResult(error=f"Path '{path}': {_words(result)}")
        entries = result.output["entries"]
        return LsResult(entries=[FileInfo(path=self._at(one), is_dir=one["kind"] == "directory") for one in entries])

    async def read(self, path: str, offset: int, limit: int) -> ReadResult:
        """Read `limit` lines of a text from line `offset` on, or all bytes of any other file."""
        offset, limit = max(offset, 0), max(limit, 0)
        result = await self._call("workspace_lines", {"path": path, "offset": offset, "limit": limit})
        if not result.is_error and result.output["text"] is None:
            result = await self._call("workspace_get", {"path": path})
        if result.is_error:
            return ReadResult(error=f"File '{path}': {_words(result)}")
        if isinstance(result.output, str):
            return ReadResult(file_data=FileData(content=result.output, encoding="base64"))
        text, end, total = result.output["text"], result.output["end"], result.output["total"]
        read = FileData(content=text, encoding="utf-8")
        if total == 0 or limit == 0:
            return ReadResult(file_data=read, no_lines_requested=total > 0)
        if offset >= total:
            return ReadResult(error=f"File '{path}': Line offset {offset} exceeds file length ({total} lines)")
        following = end if end < total else None
        return ReadResult(file_data=read, total_lines=total, start_line=offset + 1, end_line=end, next_offset=following)

    async def glob(self, pattern: str, path: str) -> GlobResult:
        """Find files by a pattern of their paths below `path`."""
        result = await self._call("workspace_glob", {"pattern": pattern, "path": path, "ignored": True})
        if result.is_error:
            return GlobResult(error=f"Path '{path}': {_words(result)}")
        found = [FileInfo(path=f"{self._root}/{one}", is_dir=False) for one in result.output["paths"]]
        return GlobResult(matches=found, truncated="more" in result.output)

    async def grep(self, pattern: str, path: str, glob: str | None, max_count: int | None) -> GrepResult:
        """Find the lines that have the text `pattern`, in files whose paths match `glob`."""
        most = min(max_count or MOST_MATCHES, MOST_MATCHES)
        asked = {"pattern": pattern, "path": path, "include": glob, "literal": True, "limit": most, "ignored": True}
        result = await self._call("workspace_grep", asked)
        if result.is_error:
            return GrepResult(error=f"Path '{path}': {_words(result)}")
        matches = result.output["matches"]
        found = [GrepMatch(path=self._at(one), line=one["line"], text=one["text"]) for one in matches]
        return GrepResult(matches=found, truncated="more" in result.output)

    def _at(self, entry: dict[str, Any]) -> str:
        return f"{self._root}/{entry['path']}"


def _words(result: ToolResult) -> str:
    assert result.error is not None
    return result.error.message
