"""The nine base tools (ADR-0004): files, shell, message, memory, web. One file each; each uses only handles."""

from typing import Any

from toolcell_tools.definition import Tool

__all__ = ["base_tools"]


def base_tools() -> tuple[Tool[..., Any], ...]:
    """read, write, edit, shell, message, memory_search, memory_store, web_search and web_fetch."""
    from .edit import edit
    from .memory_search import memory_search
    from .memory_store import memory_store
    from .message import message
    from .read import read
    from .shell import shell
    from .web_fetch import web_fetch
    from .web_search import web_search
    from .write import write

    return (read, write, edit, shell, message, memory_search, memory_store, web_search, web_fetch)
