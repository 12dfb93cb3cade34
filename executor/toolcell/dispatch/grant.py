"""The grants of a call: the session's ∩ the tool's needs and uses, computed when the call's arguments are final.

`grants_for` is the only function that computes grants. This module calls it for each kind of call.
"""

import logging
from typing import Any

from toolcell.rules.call import ToolCall
from toolcell.sessions.grants import grants_for
from toolcell.sessions.toolbox import out_of_reach
from toolcell_tools.capability import Capability
from toolcell_tools.definition import Tool
from toolcell_tools.errors import PermissionDenied
from toolcell_tools.interrupts import pass_on

from .permit import forbidden
from .services import Caller

_log = logging.getLogger("toolcell.rules.policy")


def mutates(call: ToolCall, tool: Tool[..., Any]) -> bool | PermissionDenied:
    """Whether the call may change anything, by the tool's own rule. If the rule raises, the call is denied."""
    try:
        return tool.mutates_for(call.arguments)
    except BaseException as error:
        pass_on(error)
        _log.exception("mutates of %s failed on call %s", call.tool, call.id)
        return forbidden(tool.declaration, "its `mutates` rule failed")


def granted(caller: Caller, tool: Tool[..., Any], *, changes: bool) -> frozenset[Capability]:
    """The capabilities of a call of the tool, without those that reach nothing. `changes`: it may change something."""
    given = grants_for(caller.grants, tool.needs, tool.uses, mutates=changes).given
    useless = out_of_reach(tool, caller.profile)
    return given - useless if useless else given
