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

_HOMES = {
    "client.toolset": "McpToolset mcp_toolset",
    "server.access": "TokenList",
    "server.bounds": "ServerBounds",
    "server.http": "HttpOptions McpApp",
    "server.input_required": "Answers InputRequired accepted elicitation mcp_metadata roots sampling",
    "server.offers": "Completions Prompts Resources",
    "server.server": "ToolServer",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

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
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return value
