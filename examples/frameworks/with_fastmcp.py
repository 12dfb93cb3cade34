"""A FastMCP server whose tools run in cells. It asks the client's user before a call pays more than 10."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.client.elicitation import ElicitResult

from toolcell import Supervisor, base_tools, tool
from toolcell.adapters.fastmcp import SessionProvider


@tool(requires_approval=lambda arguments: arguments["amount"] > 10, preview=lambda amount: f"Spend {amount}")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def main(model: Callable[[Client[Any]], Awaitable[str]], ask: Callable[[str], str] = input) -> None:
    async def elicited(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult[dict[str, bool]]:
        return ElicitResult(action="accept", content={"approve": ask(f"{message}? ") == "yes"})

    with tempfile.TemporaryDirectory() as project:
        async with Supervisor([*base_tools(), pay]) as supervisor:
            session = await supervisor.open_session("main", workspace=project)
            server = FastMCP("shop", providers=[SessionProvider(session, elicit_approvals=True)])
            async with Client(server, elicitation_handler=elicited) as client:  # or: await server.run_async()
                print(await model(client))


async def call_pay(client: Client[Any]) -> str:
    """Stands for a model at the client."""
    return str(await client.call_tool("pay", {"amount": 50}))


if __name__ == "__main__":
    asyncio.run(main(call_pay))
