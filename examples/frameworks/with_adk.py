"""An ADK agent whose tools run in cells, and whose runner asks for confirmation before it pays more than 10."""

import asyncio
import tempfile
from collections.abc import Callable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

from toolcell import Supervisor, base_tools, tool
from toolcell.adapters.adk import AdkToolset


@tool(requires_approval=lambda arguments: arguments["amount"] > 10, preview=lambda amount: f"Spend {amount}")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def main(model: BaseLlm | str, ask: Callable[[str], str] = input) -> None:
    with tempfile.TemporaryDirectory() as project:
        async with Supervisor([*base_tools(), pay]) as supervisor:
            session = await supervisor.open_session("main", workspace=project)
            agent = LlmAgent(name="helper", model=model, tools=[AdkToolset(session)])
            async with InMemoryRunner(agent, app_name="shop") as runner:
                chat = await runner.session_service.create_session(app_name="shop", user_id="ann")
                parts = [types.Part.from_text(text="Pay 50 for the coffee.")]
                while parts:
                    message, parts = types.Content(role="user", parts=parts), []
                    async for event in runner.run_async(user_id="ann", session_id=chat.id, new_message=message):
                        parts += [answer(call, ask) for call in event.get_function_calls() if is_question(call)]
                        for part in (event.content and event.content.parts) or []:
                            print(part.text or "", end="")


def is_question(call: types.FunctionCall) -> bool:
    return call.name == "adk_request_confirmation"


def answer(call: types.FunctionCall, ask: Callable[[str], str]) -> types.Part:
    confirmation: dict[str, Any] = (call.args or {})["toolConfirmation"]
    said = {"confirmed": ask(f"{confirmation['hint']}? ") == "yes"}
    return types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=said))


if __name__ == "__main__":
    asyncio.run(main("gemini-3.5-flash"))
