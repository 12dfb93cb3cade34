"""The test kit, for tools and for the runtime alike.

    from toolcell.testing import context, run_tool

`context` makes a ToolContext for a unit test, without any process; `run_tool` runs one tool in a real cell. Besides:
backends that record their calls, and a check for leftovers.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know this name
if TYPE_CHECKING:
    from .backends import DictHttp, DictWeb, ListChannel, ListMemory
    from .contexts import RecordedContext, Recorder, context
    from .residue import Residue
    from .running import run_tool, run_tool_blocking

_HOMES = {
    "DictHttp": "backends",
    "DictWeb": "backends",
    "ListChannel": "backends",
    "ListMemory": "backends",
    "RecordedContext": "contexts",
    "Recorder": "contexts",
    "context": "contexts",
    "Residue": "residue",
    "run_tool": "running",
    "run_tool_blocking": "running",
}

__all__ = [
    "DictHttp",
    "DictWeb",
    "ListChannel",
    "ListMemory",
    "RecordedContext",
    "Recorder",
    "Residue",
    "context",
    "run_tool",
    "run_tool_blocking",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
