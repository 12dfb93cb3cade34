"""A LangChain agent whose tools run in cells, and whose graph pauses before it pays more than 10."""

import asyncio
import tempfile
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from toolcell import Supervisor, base_tools, tool
from toolcell.adapters.langchain import to_langchain_tools


@tool(requires_approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def main(model: BaseChatModel | str, ask: Callable[[str], str] = input) -> None:
    thread: Any = {"configurable": {"thread_id": "1"}}
    with tempfile.TemporaryDirectory() as project:
        async with Supervisor([*base_tools(), pay]) as supervisor:
            session = await supervisor.open_session("main", workspace=project)
            agent: Any = create_agent(model, await to_langchain_tools(session), checkpointer=InMemorySaver())
            state = await agent.ainvoke({"messages": [("user", "Pay 50 for the coffee.")]}, thread)
            while pauses := state.get("__interrupt__"):
                answers = {
                    pause.id: {"type": "approve"}
                    if ask(f"{pause.value['action_requests'][0]['description']}? ") == "yes"
                    else {"type": "reject", "message": "Not today."}
                    for pause in pauses
                }
                state = await agent.ainvoke(Command(resume=answers), thread)
            print(state["messages"][-1].content)


if __name__ == "__main__":
    asyncio.run(main("openai:gpt-5.2"))
