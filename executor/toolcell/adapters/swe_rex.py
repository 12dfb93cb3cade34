"""SWE-ReX: a session as a runtime. Its shells and commands run in cells, and see the files of the cell.

    runtime = CellRuntime(session)                                 # the supervisor has swe_rex_tools()
    await runtime.create_session(CreateBashSessionRequest())

Needs the extra `[swe-rex]`.
"""

import logging
import os
import shlex
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, NoReturn

from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    Command,
    CommandResponse,
    CreateBashSessionResponse,
    CreateSessionRequest,
    CreateSessionResponse,
    IsAliveResponse,
    Observation,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)

from toolcell.backends.threads import in_thread
from toolcell.session import Session
from toolcell_tools.definition import Tool
from toolcell_tools.errors import ExecutionError, PermissionDenied, Timeout
from toolcell_tools.for_programs.bash_shells import BashCell, ShellEvent, ShellStep
from toolcell_tools.for_programs.workspace_tools import as_program, workspace_tools
from toolcell_tools.result import ToolResult
from toolcell_tools.typed import as_tool

from .session_calls import SessionCalls
from .session_source import answered

__all__ = ["CellRuntime", "swe_rex_tools"]

NO_TIMEOUT_S = 3600.0
"""The timeout of a command without one, because each call has a deadline."""
SLACK_S = 5.0
"""The time from the timeout of a command to the deadline of its call."""


def swe_rex_tools() -> list[Tool[..., Any]]:
    """The tools that a CellRuntime needs in its supervisor."""
    return [*workspace_tools(), as_tool(BashCell())]


class CellRuntime(AbstractRuntime):
    """SWE-ReX's runtime on a session. `close` closes the session only with `closes_session=True`.

    Differences from SWE-ReX's own runtime: a shell has pipes and no terminal, so programs that need a terminal do not
    run. A command in a shell reads an empty standard input. Background processes of `execute` end with its command. A
    command without a timeout has one hour. Paths are paths in the cell. If a command needs approval, the supervisor
    needs an approver. An infrastructure error raises InfrastructureFailure.
    """

    def __init__(self, session: Session, *, closes_session: bool = False, logger: logging.Logger | None = None) -> None:
        self.logger = logger or logging.getLogger("toolcell.adapters.swe_rex")
        self._calls = SessionCalls(session)
        self._session = session
        self._closes_session = closes_session
        self._shells: set[str] = set()

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Whether a cell of the session answers."""
        if self._session.closed:
            return IsAliveResponse(is_alive=False, message=f"The session {self._session.id} is closed.")
        result = await self._calls.direct("workspace_run", {"command": ["/bin/true"]}, timeout=timeout)
        return IsAliveResponse(is_alive=not result.is_error, message=result.for_model() if result.is_error else "")

    async def create_session(self, request: CreateSessionRequest) -> CreateSessionResponse:
        """Open a shell, and source the files. Raises SessionExistsError."""
        if request.session in self._shells:
            raise SessionExistsError(f"session {request.session} already exists")
        sources = "\n".join(f"source {shlex.quote(path)}" for path in request.startup_source)
        # the first step also makes the cell, which SWE-ReX's timeouts do not include
        event = await self._step(ShellStep(action="open", shell=request.session, command=sources, timeout_s=60.0))
        self._shells.add(request.session)
        return CreateBashSessionResponse(output=event.output)

    async def run_in_session(self, action: Action) -> Observation:
        """Run a command in a shell, talk to the program that runs there, or interrupt it.

        Raises SessionDoesNotExistError, BashIncorrectSyntaxError, CommandTimeoutError (the command still runs, and can
        be interrupted), NonZeroExitCodeError, and NoExitCodeError if the shell itself has ended.
        """
        if action.session not in self._shells:
            raise SessionDoesNotExistError(f"session {action.session!r} does not exist")
        if isinstance(action, BashInterruptAction):
            event = await self._step(
                ShellStep(
                    action="interrupt",
                    shell=action.session,
                    expect=action.expect,
                    timeout_s=2 * action.timeout * max(1, action.n_retry),
                )
            )
            return self._observed(event, f"interrupting {action.session!r}", action.timeout)
        is_interactive = action.is_interactive_command or action.is_interactive_quit
        timeout_s = NO_TIMEOUT_S if action.timeout is None else action.timeout
        event = await self._step(
            ShellStep(
                action="send" if is_interactive else "run",
                shell=action.session,
                command=action.command,
                expect=action.expect,
                timeout_s=timeout_s,
            )
        )
        seen = self._observed(event, repr(action.command), timeout_s)
        return seen if is_interactive else _checked(seen, action)

    async def close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        """Close a shell. Raises SessionDoesNotExistError."""
        if request.session not in self._shells:
            raise SessionDoesNotExistError(f"session {request.session!r} does not exist")
        self._shells.discard(request.session)
        await self._step(ShellStep(action="close", shell=request.session))
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        """Run a program. Raises CommandTimeoutError and NonZeroExitCodeError."""
        done = (await self._called("workspace_run", _run_arguments(command), command.timeout or NO_TIMEOUT_S)).output
        response = CommandResponse(stdout=done["stdout"], stderr=done["stderr"], exit_code=done["exit_code"])
        if command.check and response.exit_code != 0:
            said = f"Command {command.command!r} failed with exit code {response.exit_code}: {response.stderr!r}"
            raise NonZeroExitCodeError(f"{command.error_msg}: {said}" if command.error_msg else said)
        return response

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        """Read a file as text. Raises OSError."""
        data = b64decode((await self._called("workspace_get", {"path": request.path})).output)
        return ReadFileResponse(content=data.decode(request.encoding or "utf-8", request.errors or "strict"))

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        """Write a file, and make its directory. Raises OSError."""
        await self._put(request.path, request.content.encode())
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        """Copy a file or a directory of this machine to a path in the cell. Raises OSError."""
        source, target = Path(request.source_path), Path(request.target_path)
        for path in await in_thread(lambda: _files(source)):
            data = await in_thread(path.read_bytes)
            await self._put(str(target / path.relative_to(source) if path != source else target), data)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """Close all shells."""
        for shell in list(self._shells):
            self._shells.discard(shell)
            if not self._session.closed:
                await self._step(ShellStep(action="close", shell=shell))
        if self._closes_session:
            await self._calls.loop.run(lambda _: self._session.close(grace_s=0))
        return CloseResponse()

    async def _put(self, path: str, data: bytes) -> None:
        await self._called("workspace_put", {"path": path, "data": b64encode(data).decode("ascii")})

    async def _step(self, step: ShellStep) -> ShellEvent:
        result = await self._called(BashCell.name, step.model_dump(), step.timeout_s + SLACK_S)
        event = ShellEvent.model_validate(result.output)
        if event.event == "unknown_shell":
            self._shells.discard(step.shell)
            raise SessionDoesNotExistError(f"session {step.shell!r} has ended with the process that held it")
        return event

    async def _called(self, name: str, arguments: dict[str, Any], timeout: float | None = None) -> ToolResult:
        result = answered(await self._calls.direct(name, arguments, timeout=timeout))
        if result.is_error:
            _fail(result)
        return result

    def _observed(self, event: ShellEvent, what: str, timeout_s: float) -> BashObservation:
        match event.event:
            case "syntax_error":
                raise BashIncorrectSyntaxError(event.output, extra_info={"bash_stderr": event.output})
            case "timeout":
                raise CommandTimeoutError(f"timeout after {timeout_s} seconds while running command {what}")
            case "exited":
                raise NoExitCodeError(f"the shell has ended (exit code {event.exit_code}): {event.output!r}")
            case _:
                code = 0 if event.event == "expected" else event.exit_code
                return BashObservation(output=event.output, exit_code=code, expect_string=event.expected)


def _checked(seen: BashObservation, action: BashAction) -> BashObservation:
    if action.check == "ignore":
        return seen.model_copy(update={"exit_code": None})
    if action.check == "raise" and seen.exit_code != 0:
        said = (
            f"Command {action.command!r} failed with exit code {seen.exit_code}. Here is the output:\n{seen.output!r}"
        )
        raise NonZeroExitCodeError(f"{action.error_msg}: {said}" if action.error_msg else said)
    return seen


def _run_arguments(command: Command) -> dict[str, Any]:
    """The arguments of `workspace_run`. The environment of a command replaces the cell's."""
    given = command.command
    texts = [given] if isinstance(given, str) else list(given)
    if not command.shell:
        texts = as_program(texts)
    elif len(texts) > 1:  # a command and its positional parameters, as for subprocess
        texts = ["/bin/sh", "-c", *texts]
    arguments: dict[str, Any] = {"command": texts, "merged": command.merge_output_streams}
    if command.env is not None:
        arguments |= {"env": command.env, "only_env": True}
    return arguments if command.cwd is None else {**arguments, "cwd": command.cwd}


def _files(source: Path) -> list[Path]:
    """The files below a directory, without links to directories; or the file itself. Raises OSError."""
    if not source.is_dir():
        return [source]
    return [Path(root, name) for root, _, names in os.walk(source) for name in names]


def _fail(result: ToolResult) -> NoReturn:
    match result.error:
        case Timeout():
            raise CommandTimeoutError(result.for_model())
        case PermissionDenied() as denied:
            raise PermissionError(denied.message)
        case ExecutionError(data={"errno": "ENOENT"}):
            raise FileNotFoundError(result.error.message)
        case ExecutionError(data={"errno": _}):
            raise OSError(result.error.message)
        case _:
            raise RuntimeError(result.for_model())
