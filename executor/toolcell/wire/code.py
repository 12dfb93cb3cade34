"""Identify the code that a process runs. The zygote is started with -I, so it may find another installation.

PYTHONPATH, the user's site-packages and changes of sys.path affect the supervisor but not the zygote.
"""

import os
import sys

import toolcell_sandbox
import toolcell_tools

from .messages import VERSION


def running_code() -> dict[str, str]:
    """The code of this process, by name: its Python, the protocol's version, and the path of each package."""
    places = {each.__name__: os.path.realpath(each.__path__[0]) for each in (toolcell_sandbox, toolcell_tools)}
    own = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))
    return {"Python": sys.version, "protocol": str(VERSION), "toolcell": own, **places}
