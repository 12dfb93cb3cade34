"""`toolcell tools`: the tools that a session in this directory has, those of MCP servers included."""

import json
import logging
from dataclasses import dataclass

import anyio
import click

from toolcell.errors import ConfigError, UsageError
from toolcell.rules.toml.load import load_config
from toolcell.store.journal import RecentJournal
from toolcell.supervisor import Supervisor, runtime_of
from toolcell_sandbox.errors import SandboxError
from toolcell_tools.base import base_tools
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.preview import printable


@dataclass(frozen=True, slots=True)
class _Listed:
    """The tools of a session by their source, "" for the base tools, and what went wrong with sources."""

    tools: dict[str, list[ToolDeclaration]]
    incidents: list[str]
    silent: list[str]
    """The servers that are not offered to such a session."""


def run(*, kind: str, file: str | None, as_json: bool) -> int:
    """Print the tools. Return the exit status."""
    logging.getLogger("toolcell").addHandler(logging.NullHandler())  # incidents are printed with the list
    try:
        found = anyio.run(_listed, kind, file)
    except (ConfigError, UsageError, SandboxError) as error:
        click.echo(str(error), err=True)
        return 2
    click.echo(json.dumps(_as_json(found), indent=2) if as_json else "\n".join(_lines(found)))
    return 1 if found.incidents else 0


async def _listed(kind: str, file: str | None) -> _Listed:
    journal = RecentJournal()
    config = load_config(".", file=file)
    async with Supervisor(base_tools(), config=config, journal=journal) as supervisor:
        session = await supervisor.open_session(kind, workspace=".")
        declared = await session.tools()
        known = runtime_of(supervisor).session(session.id).caller.toolbox.known
    tools: dict[str, list[ToolDeclaration]] = {}
    for each in declared:
        tools.setdefault(known[each.name].stranger, []).append(each)
    incidents = [str(each.data["what"]) for each in journal.of(kind="incident")]
    silent = [
        f"{source}: it offers nothing here. It may need more than the profile of a {kind} session gives."
        for source in (f"MCP server {name!r}" for name in config.servers)
        if source not in tools and not any(source in each for each in incidents)
    ]
    return _Listed(tools, incidents, silent)


def _lines(found: _Listed) -> list[str]:
    lines: list[str] = []
    for source, tools in found.tools.items():
        lines += [*([""] if lines else []), source or "Tools of toolcell"]
        lines += [f"  {each.name}  {each.tier.value}  {_first_line(each.description)}" for each in tools]
    said = [*found.incidents, *found.silent]
    return [*lines, *([""] if said else []), *said]


def _first_line(text: str) -> str:
    return printable(text.strip().partition("\n")[0][:100])


def _as_json(found: _Listed) -> dict[str, object]:
    tools = [
        {"name": each.name, "tier": each.tier.value, "source": source, "fingerprint": each.fingerprint}
        for source, listed in found.tools.items()
        for each in listed
    ]
    return {"tools": tools, "incidents": found.incidents}
