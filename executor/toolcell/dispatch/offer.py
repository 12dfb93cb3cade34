"""An offer: a tool as a session has it, independent of any call."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolcell.rules.policy import is_offered
from toolcell.sessions.closure import Use
from toolcell.sessions.grants import grants_for
from toolcell.sessions.toolbox import out_of_reach
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool

from .catalog import Checks
from .services import Caller, Services


@dataclass(frozen=True, slots=True, eq=False)
class CallableTool:
    """A tool, its compiled schemas, and what its calls lack in this session. If they lack anything, none of them
    runs."""

    tool: Tool[..., Any]
    declaration: ToolDeclaration
    checks: Checks
    lacks: frozenset[Capability]
    use: Use
    """The objects that are sent to a cell by value with the tool. If they change, the offer is made again."""


def lacking(caller: Caller, tool: Tool[..., Any]) -> frozenset[Capability]:
    """The needs of the tool that the session does not hold, or that reach nothing in it."""
    return grants_for(caller.grants, tool.needs, tool.uses).missing | out_of_reach(tool, caller.profile)


def offered(services: Services, caller: Caller) -> Iterator[str]:
    """The names of the tools that the session may use, as far as its toolsets have been asked."""
    for name, tool in caller.toolbox.known.items():
        if not lacking(caller, tool) and is_offered(services.policy, tool.declaration, caller.data.info):
            yield name
