"""A supervisor in a class with `start` and `stop`, which different tasks call, as those of a server or an actor do."""

import asyncio
import tempfile
from contextlib import AsyncExitStack

from toolcell import Session, SessionKind, Supervisor, base_tools


class Agent:
    def __init__(self, project: str) -> None:
        self.project = project
        self.supervisor = Supervisor(base_tools())
        self.closing = AsyncExitStack()

    async def start(self) -> None:
        await self.closing.enter_async_context(self.supervisor)  # or: await self.supervisor.start()
        self.session: Session = await self.supervisor.open_session(SessionKind.MAIN, workspace=self.project)

    async def run(self, command: str) -> str:
        return (await self.session.call("shell", {"command": command})).for_model()

    async def stop(self) -> None:
        await self.closing.aclose()  # or: await self.supervisor.aclose()


async def main() -> None:
    with tempfile.TemporaryDirectory() as project:
        agent = Agent(project)
        await asyncio.create_task(agent.start())
        try:
            commands = ["echo one > a.txt && cat a.txt", "cat missing.txt"]
            for said in await asyncio.gather(*map(agent.run, commands)):
                print(said)
        finally:
            await asyncio.create_task(agent.stop())


asyncio.run(main())
