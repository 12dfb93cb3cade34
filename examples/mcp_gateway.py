"""An MCP server that gates another toolset: it leaves tools out, asks for approval of some, and denies by a rule.

`python mcp_gateway.py` shows it with a client in the same process; `python mcp_gateway.py --stdio` serves a client.
"""

import sys
import tempfile

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.context import ClientRequestContext

from toolcell import PolicyRule, StaticToolset, Supervisor, TierPolicy, base_tools
from toolcell.mcp import ToolServer

upstream = StaticToolset("upstream", base_tools())  # any toolset: of a database, of a user, of another server
gated = upstream.filtered(["read", "write", "shell"]).approval_required(lambda _session, tool: tool.name == "shell")
policy = TierPolicy(rules=[PolicyRule("deny", tool="write", arguments={"path": "*.lock"}, name="lock files stay")])


async def person(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """The person at the client, who reads the question and approves."""
    print(params.message.splitlines()[0])
    return types.ElicitResult(action="accept", content={"approve": True})


async def main() -> None:
    with tempfile.TemporaryDirectory() as project:
        async with (
            Supervisor(toolsets=[gated], policy=policy) as supervisor,
            ToolServer(supervisor, workspace=project, approve_by_elicitation=True) as server,
        ):
            if "--stdio" in sys.argv:
                return await server.serve_stdio()
            async with Client((await server.principal()).server, elicitation_callback=person) as client:
                print([each.name for each in (await client.list_tools()).tools])
                await client.call_tool("write", {"path": "a.txt", "content": "hello"})
                shown = await client.call_tool("shell", {"command": "cat a.txt"})
                print(shown.content)
                denied = await client.call_tool("write", {"path": "poetry.lock", "content": ""})
                print(denied.is_error, denied.content)


anyio.run(main)
