"""An agent of the OpenAI Agents SDK whose tools run in cells, and which asks on the terminal before it pays."""

import asyncio
import tempfile
from collections.abc import Callable

from agents import Agent, Model, RunConfig, Runner

from toolcell import Supervisor, base_tools, tool
from toolcell.adapters.openai_agents import toolcell_function_tools


@tool(requires_approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def main(model: Model | str, ask: Callable[[str], str] = input) -> None:
    settings = RunConfig(tracing_disabled=True)
    with tempfile.TemporaryDirectory() as project:
        async with Supervisor([*base_tools(), pay]) as supervisor:
            session = await supervisor.open_session("main", workspace=project)
            agent = Agent("buyer", model=model, tools=list(await toolcell_function_tools(session)))
            run = await Runner.run(agent, "Pay 50 for the coffee.", run_config=settings)
            while run.interruptions:
                state = run.to_state()
                for item in run.interruptions:
                    if ask(f"{item.name} {item.arguments}? ") == "yes":
                        state.approve(item)
                    else:
                        state.reject(item, rejection_message="Not today.")
                run = await Runner.run(agent, state, run_config=settings)
            print(run.final_output)


if __name__ == "__main__":
    asyncio.run(main("gpt-5.2"))
