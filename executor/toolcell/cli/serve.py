"""`toolcell serve`: tools for MCP clients."""

import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, cast

import anyio
import click

from toolcell.errors import ToolcellError, UsageError
from toolcell.rules.toml.config import Config
from toolcell.rules.toml.load import load_config
from toolcell.sessions.modules import module_toolset
from toolcell.supervisor import Supervisor
from toolcell_sandbox.errors import SandboxError
from toolcell_tools.base import base_tools
from toolcell_tools.capability import SessionKind
from toolcell_tools.toolsets import Toolset

__all__ = ["ServeOptions", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of the command."""

    tools: tuple[str, ...]
    base: bool
    over_http: bool
    host: str
    port: int
    tokens: str | None
    tokens_env: str | None
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    kind: str
    profile: str | None
    workspace: str
    state: str | None
    config: str | None
    approve_by_elicitation: bool
    prompts: str | None
    resources: str | None
    completions: str | None
    name: str


def run(options: ServeOptions) -> int:
    """Serve until the client has gone, or a signal. Returns the exit status: 0, or 2 for wrong use."""
    try:
        import mcp.server.lowlevel  # noqa: F401  # pyright: ignore[reportUnusedImport] - only to see whether it is there
    except ImportError:
        click.echo("The MCP SDK is not installed: pip install 'toolcell[mcp]'.", err=True)
        return 2
    from toolcell.mcp.server.stdio import claimed_stdio

    try:
        with nullcontext() if options.over_http else claimed_stdio() as own:
            anyio.run(_serve, options, own)
    except BaseExceptionGroup as group:
        errors = _leaves(group)
        other = next((each for each in errors if not isinstance(each, _SHOWN)), None)
        if other is not None:
            raise
        return _told(errors)
    except _SHOWN as error:
        return _told([error])
    return 0


_SHOWN = (ToolcellError, SandboxError, ValueError, OSError, KeyboardInterrupt)
"""What ends the server and needs no traceback."""


def _told(errors: list[BaseException]) -> int:
    shown = [error for error in errors if not isinstance(error, KeyboardInterrupt)]
    for error in shown:
        click.echo(str(error), err=True)
    return 2 if shown else 0


def _leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a group, and in the groups in it."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return [leaf for each in inner for leaf in _leaves(each)] or [error]


async def _serve(options: ServeOptions, own: tuple[int, int] | None) -> None:
    from toolcell.mcp.server.http import HttpOptions
    from toolcell.mcp.server.server import ToolServer

    tokens = _tokens(options)
    config = load_config(".", file=options.config)
    tools, toolsets = _tools(options, config)
    profile = None if options.profile is None else config.profiles[SessionKind(options.profile)]
    async with (
        Supervisor(tools, toolsets=toolsets, config=config, state=options.state) as supervisor,
        ToolServer(
            supervisor,
            workspace=options.workspace,
            kind=options.kind,
            profile=profile,
            approve_by_elicitation=options.approve_by_elicitation,
            prompts=_source(options.prompts),
            resources=_source(options.resources),
            completions=_source(options.completions),
            name=options.name,
        ) as server,
    ):
        if not options.over_http:
            return await server.serve_stdio(own)
        where = HttpOptions(host=options.host, port=options.port, hosts=options.hosts, origins=options.origins)
        async with anyio.create_task_group() as tasks:
            url = await tasks.start(partial(server.serve_http, tokens=tokens, options=where))
            click.echo(f"Listening on {url}", err=True)


def _source(path: str | None) -> Any:
    return None if path is None else _imported(path)


def _tools(options: ServeOptions, config: Config) -> tuple[list[Any], list[Toolset]]:
    tools: list[Any] = list(base_tools()) if options.base else []
    toolsets: list[Toolset] = []
    for path in options.tools:
        more, sets = _tools_at(path)
        tools += more
        toolsets += sets
    if not tools and not toolsets and not config.servers:
        raise UsageError("There is nothing to serve. Name tools, such as my_tools:TOOLS, or pass --base-tools.")
    return tools, toolsets


def _tokens(options: ServeOptions) -> Any:
    from toolcell.mcp.server.access import TokenList

    if options.tokens is not None:
        return TokenList.read(options.tokens)
    if options.tokens_env is None:
        return None
    text = os.environ.pop(options.tokens_env, None)  # so that no child has it
    if text is None:
        raise UsageError(f"The environment variable {options.tokens_env!r} with the tokens is not set.")
    return TokenList.parse(text, f"${options.tokens_env}")


def _imported(path: str) -> object:
    """The object at `module:name`. The module is imported into this process; the current directory is searched first.
    Raises UsageError."""
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"There is no {path!r}: {error}. Write module:object, such as my_tools:TOOLS.") from None
    return found


def _tools_at(path: str) -> tuple[list[Any], list[Toolset]]:
    """The tools and the toolsets at `module:object`, or those of a whole module, which is imported in cells only.

    The object is a tool, a function, a toolset, or a list of them. Raises UsageError.
    """
    if ":" not in path:
        return [], [module_toolset(path, path=os.getcwd() if _is_here(path) else None)]
    found = _imported(path)
    parts = list(cast("Iterable[object]", found)) if isinstance(found, (list, tuple, set, frozenset)) else [found]
    return [each for each in parts if not isinstance(each, Toolset)], [
        each for each in parts if isinstance(each, Toolset)
    ]


def _is_here(module: str) -> bool:
    place = os.path.join(os.getcwd(), *module.split("."))
    return os.path.exists(f"{place}.py") or os.path.isdir(place)
