"""Pages of a list. A cursor is the place at which the next page begins."""

from collections.abc import Sequence
from typing import TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from toolcell_tools.schemas.keywords import is_index

__all__ = ["page"]

T = TypeVar("T")


def page(entries: Sequence[T], params: types.PaginatedRequestParams | None, size: int) -> tuple[list[T], str | None]:
    """The entries of the page that the request asks for, and the cursor of the next one. Raises MCPError."""
    cursor = None if params is None else params.cursor
    start = 0 if cursor is None else _place(cursor)
    if start > len(entries):
        raise MCPError(types.INVALID_PARAMS, "The cursor is beyond the end of the list.")
    end = start + size
    return list(entries[start:end]), str(end) if end < len(entries) else None


def _place(cursor: str) -> int:
    if not is_index(cursor):
        raise MCPError(types.INVALID_PARAMS, "The cursor is none that this server made.")
    return int(cursor)
