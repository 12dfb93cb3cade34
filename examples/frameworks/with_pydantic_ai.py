"""A pydantic-ai agent whose tools run in cells, and which asks on the terminal before it pays more than 10."""

import asyncio
import tempfile
from collections.abc import Callable

from pydantic_ai import Agent, DeferredToolRequests, ToolDenied
from pydantic_ai.models import Model

from toolcell import Supervisor, base_tools, tool
from toolcell.adapters.pydantic_ai import toolcell_toolset


@tool(requires_approval=lambda arguments: arguments["amount"] > 10, preview=lambda amount: f"Spend {amount}")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def main(model: Model | str, ask: Callable[[str], str] = input) -> None:
    with tempfile.TemporaryDirectory() as project:
        async with Supervisor([*base_tools(), pay]) as supervisor:
            session = await supervisor.open_session("main", workspace=project)
            agent = Agent(model, toolsets=[toolcell_toolset(session)], output_type=[str, DeferredToolRequests])
            run = await agent.run("Pay 50 for the coffee.")
            while isinstance(run.output, DeferredToolRequests):
                requests = run.output
                answers = requests.build_results(
                    approvals={
                        call.tool_call_id: ask(f"{requests.metadata[call.tool_call_id]['text']}? ") == "yes"
                        or ToolDenied("Not today.")
                        for call in requests.approvals
                    }
                )
                run = await agent.run(message_history=run.all_messages(), deferred_tool_results=answers)
            print(run.output)


if __name__ == "__main__":
    asyncio.run(main("openai:gpt-5.2"))
