"""A server of the official Python SDK over streamable HTTP: `python sdk_server.py json|events`. Prints its port."""

import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def steps(ctx: Context) -> str:
    """Report two steps."""
    await ctx.report_progress(1, 2)
    await ctx.report_progress(2, 2)
    return "done"


def fail() -> str:
    """Fail."""
    raise ValueError("no such row")


if __name__ == "__main__":
    server = MCPServer("sdk")
    for function in (add, steps, fail):
        server.add_tool(function)
    app = server.streamable_http_app(json_response=sys.argv[1] == "json")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
