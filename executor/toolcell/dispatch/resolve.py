"""The first step: find the tool of a name."""

from difflib import get_close_matches
from typing import Any

from toolcell.backends.threads import NO_THREAD_RETRY_S, NoThread
from toolcell_tools.definition import Tool
from toolcell_tools.errors import Overloaded, PermissionDenied, UnknownTool
from toolcell_tools.toolsets import ToolsetError

from .offer import offered
from .permit import of_provider
from .services import Caller, Services


async def resolved(
    services: Services, caller: Caller, name: str
) -> Tool[..., Any] | UnknownTool | PermissionDenied | Overloaded:
    """The tool of a name that is not known yet. The toolsets are asked again."""
    try:
        tool = await caller.toolbox.find(name)
    except ToolsetError as error:
        if isinstance(error.__cause__, NoThread):
            return no_thread(error.__cause__)
        return _unknown(services, caller, name, f" {error}")
    if tool is not None:
        return tool
    elsewhere = caller.toolbox.of_provider(name)
    return _unknown(services, caller, name) if elsewhere is None else of_provider(elsewhere)


def _unknown(services: Services, caller: Caller, name: str, why: str = "") -> UnknownTool:
    known = list(offered(services, caller))
    near = tuple(get_close_matches(str(name), known, n=3, cutoff=0.4))
    hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
    return UnknownTool(message=f"There is no tool named {str(name)[:64]!r}.{hint}{why}", suggestions=near)


def no_thread(error: NoThread) -> Overloaded:
    """The error of a call for which no thread could be started."""
    return Overloaded(message=str(error), retry_after_s=NO_THREAD_RETRY_S)
