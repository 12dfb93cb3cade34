from typing import Any as _Any

from fastmcp import Client as _Client
from mcp_types import TextContent as _Text


async def model(client: _Client[_Any]) -> str:
    """Call `pay` once, then say how it went."""
    result = await client.call_tool("pay", {"amount": 50}, raise_on_error=False)
    return "\n".join(one.text for one in result.content if isinstance(one, _Text))
