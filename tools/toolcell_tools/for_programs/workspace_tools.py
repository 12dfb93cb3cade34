"""Tools of which sandbox backends of frameworks are made: run a command, put and get files, search. Programs call
them, and models do not see them.

    Supervisor([*workspace_tools(), …])
"""

import os
from base64 import b64decode, b64encode
from codecs import getincrementaldecoder
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from toolcell_tools.capability import Capability, PermissionTier
from toolcell_tools.coding.glob import glob
from toolcell_tools.coding.grep import grep
from toolcell_tools.coding.list import list_directory
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import Tool, tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.options import Annotations
from toolcell_tools.shell import command_line

__all__ = ["FOR_PROGRAMS", "OUTPUT_BYTES", "workspace_tools"]

OUTPUT_BYTES = 1024 * 1024
"""The most that is kept of each stream of a command: its beginning."""
SCRIPT_BYTES = 16 * 1024 * 1024
"""The most bytes of a text for the shell. Frameworks write files by such texts."""
_HEAD_BYTES = 8192
FOR_PROGRAMS = {"audience": "program"}
"""The metadata of a tool that adapters do not offer to models."""
_PARALLEL = Annotations(destructive=True, open_world=True, sequential=False)


@tool(
    needs={Capability.READ, Capability.WRITE, Capability.EXEC},
    uses={Capability.NET},
    tier=PermissionTier.SYSTEM,
    annotations=_PARALLEL,
    metadata=FOR_PROGRAMS,
)
def workspace_run(
    ctx: ToolContext,
    command: list[str],
    env: dict[str, str] | None = None,
    merged: bool = False,
    cwd: str = ".",
    only_env: bool = False,
) -> dict[str, Any]:
    """Run a program in the workspace. Output goes to files, so a child that keeps a pipe open delays nothing.

    Args:
        command: The program and its arguments, or one text for the shell.
        env: Further environment variables.
        merged: Whether stderr goes to stdout.
        cwd: Where to run it, absolute or below the workspace.
        only_env: Whether the environment has the variables in `env` and no other.
    """
    import subprocess
    import tempfile

    text = command_line(command[0], SCRIPT_BYTES) if len(command) == 1 else nullcontext(command)
    with text as line, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            done = subprocess.run(
                line,
                cwd=_place(ctx, cwd),
                env={**({} if only_env else os.environ), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT if merged else err,
                check=False,
            )
        except FileNotFoundError as missing:
            return {"exit_code": 127, "stdout": "", "stderr": f"{missing.filename}: not found", "truncated": False}
        texts: list[str] = []
        truncated = False
        for stream in (out, err):
            stream.seek(0)
            data = stream.read(OUTPUT_BYTES + 1)
            truncated = truncated or len(data) > OUTPUT_BYTES
            texts.append(data[:OUTPUT_BYTES].decode(errors="replace"))
    return {"exit_code": done.returncode, "stdout": texts[0], "stderr": texts[1], "truncated": truncated}


def as_program(argv: Sequence[str]) -> list[str]:
    """A `command` for `workspace_run` that runs as a program even without arguments."""
    return ["/usr/bin/env", *argv] if len(argv) == 1 else list(argv)


@tool(needs={Capability.WRITE}, tier=PermissionTier.WORKSPACE, annotations=_PARALLEL, metadata=FOR_PROGRAMS)
def workspace_put(ctx: ToolContext, path: str, data: str) -> None:
    """Write a file, and make its directory.

    Args:
        path: Where, absolute or below the workspace.
        data: The bytes, as base64.
    """
    place = _place(ctx, path)
    _require_lasting(ctx, place)
    with _as_failure():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b64decode(data, validate=True))


@tool(needs={Capability.READ}, tier=PermissionTier.READ_ONLY, metadata=FOR_PROGRAMS)
def workspace_get(ctx: ToolContext, path: str) -> str:
    """Read a file, as base64.

    Args:
        path: Where, absolute or below the workspace.
    """
    with _as_failure():
        return b64encode(_place(ctx, path).read_bytes()).decode("ascii")


@tool(needs={Capability.READ}, tier=PermissionTier.READ_ONLY, metadata=FOR_PROGRAMS)
def workspace_lines(ctx: ToolContext, path: str, offset: int, limit: int) -> dict[str, Any]:
    """Read lines of a text, at most 1 MiB of them. The text of a file that begins with other bytes is None.

    Args:
        path: Where, absolute or below the workspace.
        offset: How many lines to leave out.
        limit: How many lines to read.
    """
    lines: list[bytes] = []
    total, room = 0, OUTPUT_BYTES
    with _as_failure(), _place(ctx, path).open("rb") as file:
        try:
            getincrementaldecoder("utf-8")().decode(file.read(_HEAD_BYTES))
        except UnicodeDecodeError:
            return {"text": None}
        file.seek(0)
        for total, line in enumerate(file, start=1):
            if offset < total <= offset + limit and room > 0:
                lines.append(line[:room])
                room -= len(line)
    text = b"".join(lines).decode(errors="replace").replace("\r\n", "\n")
    return {"text": text, "end": offset + len(lines), "total": total}


def _place(ctx: ToolContext, path: str) -> Path:
    return Path(ctx.workspace_root) / path


def _require_lasting(ctx: ToolContext, place: Path) -> None:
    """Raise ToolFailure for a place in the cell's own /tmp: no later command would see the file. Other file systems may
    be mounted below /tmp, such as the workspace's."""
    from tempfile import gettempdir

    scratch, real = Path(gettempdir()).resolve(), place.resolve()
    if real.is_relative_to(Path(ctx.workspace_root).resolve()) or not real.is_relative_to(scratch):
        return
    there = next(one for one in (real, *real.parents) if one.exists())
    if there.stat().st_dev == scratch.stat().st_dev:
        raise ToolFailure(
            f"{place} would not last: {scratch} is emptied at the end of each call. The workspace is "
            f"{ctx.workspace_root}; use a path below it.",
            {"errno": "EPERM"},
        )


class _as_failure:
    """Turns an OSError into a ToolFailure, whose data has the name of the error, such as "ENOENT"."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            from errno import errorcode

            raise ToolFailure(error.strerror or str(error), {"errno": errorcode.get(error.errno or 0, "")}) from error


_SEARCHING: dict[str, Tool[..., Any]] = {
    "workspace_list": list_directory,
    "workspace_glob": glob,
    "workspace_grep": grep,
}


def workspace_tools() -> list[Tool[..., Any]]:
    """The tools that a sandbox backend needs in its supervisor: `workspace_run`, `workspace_put` and `workspace_get`.
    `workspace_lines`, `workspace_list`, `workspace_glob` and `workspace_grep` are for sessions that run no commands."""
    searching = [one.replace(name=name, metadata=FOR_PROGRAMS) for name, one in _SEARCHING.items()]
    return [workspace_run, workspace_put, workspace_get, workspace_lines, *searching]
