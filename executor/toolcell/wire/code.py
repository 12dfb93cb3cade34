"""Which code a process runs. The zygote is started with -I, and may find another installation than its supervisor did.

PYTHONPATH, the user's site-packages and changes of sys.path count for the supervisor and not for the zygote.
"""

import os
import sys

import toolcell_sandbox
import toolcell_tools

from .messages import VERSION


def running_code() -> dict[str, str]:
    """What this process runs, by name: its Python, the protocol's version, and where each package was loaded from."""
    places = {each.__name__: os.path.realpath(each.__path__[0]) for each in (toolcell_sandbox, toolcell_tools)}
    own = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))
    return {"Python": sys.version, "protocol": str(VERSION), "toolcell": own, **places}
