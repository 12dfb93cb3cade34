"""The Model Context Protocol, both ways. Importing this package loads nothing: cells import it for `InputRequired`."""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know this name; an import of typing would take milliseconds
if TYPE_CHECKING:
    from .client.toolset import McpToolset, mcp_toolset
    from .server.access import TokenList
    from .server.bounds import ServerBounds
    from .server.http import HttpOptions, McpApp
    from .server.input_required import Answers, InputRequired, accepted, elicitation, mcp_metadata, roots, sampling
    from .server.offers import Completions, Prompts, Resources
    from .server.server import ToolServer

_HOME_OF = {
    "Answers": "server.input_required",
    "Completions": "server.offers",
    "HttpOptions": "server.http",
    "InputRequired": "server.input_required",
    "McpApp": "server.http",
    "McpToolset": "client.toolset",
    "Prompts": "server.offers",
    "Resources": "server.offers",
    "ServerBounds": "server.bounds",
    "TokenList": "server.access",
    "ToolServer": "server.server",
    "accepted": "server.input_required",
    "elicitation": "server.input_required",
    "mcp_metadata": "server.input_required",
    "mcp_toolset": "client.toolset",
    "roots": "server.input_required",
    "sampling": "server.input_required",
}

__all__ = [
    "Answers",
    "Completions",
    "HttpOptions",
    "InputRequired",
    "McpApp",
    "McpToolset",
    "Prompts",
    "Resources",
    "ServerBounds",
    "TokenList",
    "ToolServer",
    "accepted",
    "elicitation",
    "mcp_metadata",
    "mcp_toolset",
    "roots",
    "sampling",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'toolcell.mcp' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"toolcell.mcp.{_HOME_OF[name]}"), name)
    return value
