"""pydantic-ai: a session as the workspace in which an agent's capabilities run commands and keep files.

    await agent.run("…", workspace=SessionWorkspace(session))

The supervisor has `workspace_tools()`. Needs the extra `[pydantic-ai]`.
"""

import os
from collections.abc import Mapping
from typing import Any, NoReturn

import anyio
from pydantic_ai.workspaces import (
    CommandResult,
    SupportsCommands,
    WorkspaceBackend,
    WorkspaceCommand,
    WorkspaceError,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from toolcell.errors import UsageError
from toolcell.session import Session
from toolcell_tools.errors import PermissionDenied, Timeout
from toolcell_tools.for_programs.workspace_tools import OUTPUT_BYTES, as_program, workspace_tools
from toolcell_tools.result import ToolResult

from .session_calls import ApprovalNeeded, SessionCalls

__all__ = ["SessionWorkspace", "workspace_tools"]

WATCH_S = 0.5
"""How often a running command's workspace is looked for."""


class SessionWorkspace(WorkspaceBackend, SupportsCommands):
    """A workspace backend whose commands, and through them its file operations, run in cells of a session.

    Where it differs from other backends: a detached process ends with its command, /tmp is empty at the start of each
    command, a command without `timeout` has the time of the session's profile, and a timeout leaves no partial output.
    A command that needs approval is a WorkspaceError, unless the supervisor has an approver.
    """

    def __init__(self, session: Session) -> None:
        self._calls = SessionCalls(session)
        self._root = os.path.realpath(session.workspace)
        self._identity = _identity(self._root)

    @property
    def ref(self) -> WorkspaceRef:
        """The session's id, of the provider "toolcell"."""
        return WorkspaceRef(provider="toolcell", id=self._calls.session.id)

    async def working_dir(self) -> str:
        """The workspace of the session. Raises WorkspaceUnavailableError if it is gone."""
        self._check_there()
        return self._root

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a program, or with `shell` a text for bash (/bin/sh where there is no bash), in the workspace."""
        if isinstance(command, str) != shell:
            raise TypeError("Pass a text with shell=True, or a sequence of arguments without it.")
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError("timeout must be a positive number of seconds, or None")
        argv = [command] if isinstance(command, str) else as_program(command)
        self._check_there()
        arguments: dict[str, Any] = {"command": argv, "env": dict(env or {})}
        done = await self._done(arguments, timeout)
        if done["truncated"]:
            raise WorkspaceOutputLimitError(
                f"The command has written more than {OUTPUT_BYTES:,} bytes to a stream. Send its output to a file.",
                limit=OUTPUT_BYTES,
                stdout=done["stdout"],
                stderr=done["stderr"],
            )
        exit_code = done["exit_code"]
        return CommandResult(
            exit_code=128 - exit_code if exit_code < 0 else exit_code, stdout=done["stdout"], stderr=done["stderr"]
        )

    async def _done(self, arguments: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """The output of `workspace_run`. The call ends when the workspace does."""
        result: ToolResult | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cancel_if_gone, tasks.cancel_scope)
                result = await self._calls.call("workspace_run", arguments, timeout=timeout)
                tasks.cancel_scope.cancel()
        except* ApprovalNeeded as needed:
            raise WorkspaceError(f"{needed.exceptions[0]} Give the supervisor an approver.") from None
        except* UsageError as error:
            raise WorkspaceUnavailableError(str(error.exceptions[0])) from None
        self._check_there()
        assert result is not None
        if result.is_error:
            _fail(result)
        output: dict[str, Any] = result.output
        return output

    async def _cancel_if_gone(self, scope: anyio.CancelScope) -> None:
        while _identity(self._root) == self._identity:
            await anyio.sleep(WATCH_S)
        scope.cancel()

    def _check_there(self) -> None:
        if self._calls.session.closed or self._identity is None or _identity(self._root) != self._identity:
            raise WorkspaceUnavailableError("The session is closed, or the directory of its workspace is gone.")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _fail(result: ToolResult) -> NoReturn:
    match result.error:
        case Timeout():
            raise WorkspaceTimeoutError(result.for_model())
        case PermissionDenied() as denied:
            raise PermissionError(denied.message)
        case _:
            raise WorkspaceError(result.for_model())
