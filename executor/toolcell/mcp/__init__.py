"""The Model Context Protocol, both ways. Importing this package loads nothing: cells import it for `InputRequired`."""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know this name; an import of typing would take milliseconds
if TYPE_CHECKING:
    from .client.toolset import McpToolset, mcp_toolset
    from .server.asking import Answers, InputRequired, accepted, elicitation, mcp_metadata, roots, sampling
    from .server.bounds import ServerBounds
    from .server.http import HttpOptions, McpApp
    from .server.server import ToolServer
    from .server.sources import Completions, Prompts, Resources
    from .server.tokens import TokenList

_HOME_OF = {
    "Answers": "server.asking",
    "Completions": "server.sources",
    "HttpOptions": "server.http",
    "InputRequired": "server.asking",
    "McpApp": "server.http",
    "McpToolset": "client.toolset",
    "Prompts": "server.sources",
    "Resources": "server.sources",
    "ServerBounds": "server.bounds",
    "TokenList": "server.tokens",
    "ToolServer": "server.server",
    "accepted": "server.asking",
    "elicitation": "server.asking",
    "mcp_metadata": "server.asking",
    "mcp_toolset": "client.toolset",
    "roots": "server.asking",
    "sampling": "server.asking",
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
