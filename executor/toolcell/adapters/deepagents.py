"""deepagents: a session as the sandbox in which a deep agent runs commands and keeps files.

    agent = create_deep_agent(model, backend=SessionSandbox(session), checkpointer=InMemorySaver())

The supervisor has `workspace_tools()`. A session's other tools come from `toolcell.adapters.langchain`. Needs the extra
`[deepagents]`.
"""

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any, ParamSpec, TypeVar

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileData,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from toolcell.session import Session
from toolcell_tools.capability import Capability
from toolcell_tools.errors import ExecutionError, PermissionDenied, Timeout, ValidationError
from toolcell_tools.for_programs.workspace_tools import workspace_tools
from toolcell_tools.result import ToolResult

from .langchain import with_interrupts
from .session_calls import SessionCalls

__all__ = ["SessionSandbox", "workspace_tools"]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", LsResult, ReadResult, WriteResult, EditResult, DeleteResult, GrepResult, GlobResult)
_ERRORS = {
    "ENOENT": "file_not_found",
    "EACCES": "permission_denied",
    "EROFS": "permission_denied",
    "EISDIR": "is_directory",
    "ENOTDIR": "invalid_path",
    "ENAMETOOLONG": "invalid_path",
}
_TIMED_OUT = 124  # as timeout(1) exits
MOST_MATCHES = 1_000
"""The most lines that a search shows, as `grep` of the coding tools."""


class SessionSandbox(BaseSandbox):
    """The backend of a deep agent whose commands and file operations run in cells of a session.

    - Files and commands have one file system, in which the workspace is at `session.workspace`. A file tool writes
      nothing elsewhere: its error names the workspace. Name it in the system prompt, and for deepagents' own files:
      `CompositeBackend(default=box, routes={}, artifacts_root=f"{session.workspace}/.deepagents")`.
    - A command that needs approval interrupts the graph, as a tool of `to_langchain_tools` does.
    - What the session may not do is an error for the model: a Worker may list, read and search
      files, and neither write nor run commands.
    - /tmp is empty at the start of each command.
    - The agent's `ainvoke` and `astream` work on any event loop, `invoke` in any thread but that of the session's loop.
    """

    def __init__(self, session: Session) -> None:
        self._calls = SessionCalls(session)
        self._root = str(session.workspace)
        runs = {Capability.WRITE, Capability.EXEC} <= session.grants
        self._reading = None if runs else _Reading(self._call, self._root)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._calls.session.id

    # -- the primitives ------------------------------------------------------------------------------------------------

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command in the workspace, for at most `timeout` seconds or the time of the session's profile."""
        result = await self._call("workspace_run", {"command": [command], "merged": True}, timeout)
        if result.is_error:
            exit_code = _TIMED_OUT if isinstance(result.error, Timeout) else 1
            return ExecuteResponse(output=result.for_model(), exit_code=exit_code)
        done = result.output
        return ExecuteResponse(output=done["stdout"], exit_code=done["exit_code"], truncated=done["truncated"])

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, one call each."""
        answers: list[FileUploadResponse] = []
        for path, content in files:
            error: Any = "invalid_path"  # for a relative path, as the protocol says
            if path.startswith("/"):
                data = {"path": path, "data": b64encode(content).decode("ascii")}
                error = _told(await self._call("workspace_put", data))
            answers.append(FileUploadResponse(path=path, error=self._where(path, error)))
        return answers

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files, one call each."""
        answers: list[FileDownloadResponse] = []
        for path in paths:
            if not path.startswith("/"):
                answers.append(FileDownloadResponse(path=path, error="invalid_path"))
                continue
            result = await self._call("workspace_get", {"path": path})
            content = None if result.is_error else b64decode(result.output)
            answers.append(FileDownloadResponse(path=path, content=content, error=_told(result)))
        return answers

    async def _call(self, name: str, arguments: dict[str, Any], timeout: int | None = None) -> ToolResult:
        return await with_interrupts(self._calls, name, arguments, timeout=timeout or None)

    # -- the same without await ----------------------------------------------------------------------------------------

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """As `aexecute`."""
        return self._wait(self.aexecute, command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """As `aupload_files`."""
        return self._wait(self.aupload_files, files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """As `adownload_files`."""
        return self._wait(self.adownload_files, paths)

    def _wait(self, call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._calls.loop.wait(lambda _: call(*args, **kwargs), instead="Use ainvoke or astream of the agent.")

    # -- the file tools ------------------------------------------------------------------------------------------------

    def ls(self, path: str) -> LsResult:
        return self._wait(self.als, path)

    async def als(self, path: str) -> LsResult:
        return self._placed(path, await (super().als(path) if self._reading is None else self._reading.ls(path)))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return self._wait(self.aread, file_path, offset, limit)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        if self._reading is not None:
            return self._placed(file_path, await self._reading.read(file_path, offset, limit))
        return self._placed(file_path, await super().aread(file_path, offset, limit))

    def write(self, file_path: str, content: str) -> WriteResult:
        return self._wait(self.awrite, file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """One call, which makes the directory too."""
        (answer,) = await self.aupload_files([(file_path, content.encode())])
        if answer.error is None:
            return WriteResult(path=file_path)
        return WriteResult(error=f"Failed to write file '{file_path}': {answer.error}")

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        return self._wait(self.aedit, file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """One command, however long the strings are: files that BaseSandbox puts into /tmp would not last."""
        if not old_string:
            return await super().aedit(file_path, old_string, new_string, replace_all)  # says that it is empty
        return self._placed(file_path, await self._aedit_inline(file_path, old_string, new_string, replace_all))

    def delete(self, file_path: str) -> DeleteResult:
        return self._placed(file_path, super().delete(file_path))

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        return self._wait(self.agrep, pattern, path, glob, max_count=max_count)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        place = path or self._root
        if self._reading is not None:
            return self._placed(place, await self._reading.grep(pattern, place, glob, max_count))
        return self._placed(place, await super().agrep(pattern, place, glob, max_count=max_count))

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        return self._wait(self.aglob, pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        place = path or self._root
        if self._reading is not None:
            return self._placed(place, await self._reading.glob(pattern, place))
        return self._placed(place, await super().aglob(pattern, place))

    def _placed(self, path: str, result: R) -> R:
        return replace(result, error=self._where(path, result.error))

    def _where(self, path: str, error: Any) -> Any:
        """The error. For an absolute path outside of the workspace, it names the workspace."""
        given = PurePosixPath(normpath(path))
        if not error or not given.is_absolute() or given.is_relative_to(self._root) or self._root in error:
            return error
        return f"{error.rstrip('.')}. The workspace is {self._root}; use a path below it."


def _told(result: ToolResult) -> Any:
    """The error in the backend's words, or None."""
    error = result.error
    match error:
        case None:
            return None
        case ExecutionError(data={"errno": str(name)}) if name in _ERRORS:
            return _ERRORS[name]
        case PermissionDenied():
            return "permission_denied"
        case ValidationError():
            return "invalid_path"
        case _:
            return error.message


class _Reading:
    """The file tools of a session that may read and run no command, such as a Worker's.

    Lists, reads and searches files by `workspace_list`, `workspace_lines`, `workspace_get`, `workspace_glob` and
    `workspace_grep`. They need nothing but READ; BaseSandbox runs commands instead, which need EXEC and WRITE.

    `call` makes a call of the session; `root` is its workspace. All paths are absolute.
    """

    def __init__(self, call: Callable[[str, dict[str, Any]], Awaitable[ToolResult]], root: str) -> None:
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
