"""A deep agent that keeps its files and runs its commands in a session: it can neither leave the workspace nor reach a
network."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel

from toolcell import Supervisor
from toolcell.adapters.deepagents import SessionSandbox, workspace_tools


async def main(model: BaseChatModel | str, ask: Callable[[str], str] = input) -> None:
    with tempfile.TemporaryDirectory() as project:
        async with Supervisor(workspace_tools()) as supervisor:
            session = await supervisor.open_session("main", workspace=project)
            where = f"The project is in {session.workspace}."
            agent: Any = create_deep_agent(model, system_prompt=where, backend=SessionSandbox(session))
            state = await agent.ainvoke({"messages": [("user", "Write hello.py, run it, and say what it prints.")]})
            print(state["messages"][-1].content)
            print(sorted(path.name for path in Path(project).iterdir()))


if __name__ == "__main__":
    asyncio.run(main("openai:gpt-5.2"))
