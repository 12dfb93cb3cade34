"""A LlamaIndex agent whose tools run in cells, and which asks in its event stream before it pays more than 10."""

import asyncio
import tempfile
from collections.abc import Callable

from llama_index.core import Settings
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import LLM
from llama_index.core.workflow import HumanResponseEvent, InputRequiredEvent

from toolcell import Supervisor, base_tools, tool
from toolcell.adapters.llama_index import to_llama_index_tools


@tool(requires_approval=lambda arguments: arguments["amount"] > 10, preview=lambda amount: f"Spend {amount}")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def main(model: LLM, ask: Callable[[str], str] = input) -> None:
    with tempfile.TemporaryDirectory() as project:
        async with Supervisor([*base_tools(), pay]) as supervisor:
            session = await supervisor.open_session("main", workspace=project)
            agent = FunctionAgent(tools=await to_llama_index_tools(session), llm=model)
            run = agent.run(user_msg="Pay 50 for the coffee.")
            async for event in run.stream_events():
                if isinstance(event, InputRequiredEvent):
                    answer = {"response": ask(event.prefix), "request_id": event.request_id}
                    run.ctx.send_event(HumanResponseEvent(**answer))
            print(await run)


if __name__ == "__main__":
    asyncio.run(main(Settings.llm))  # with llama-index-llms-openai, OpenAI's
