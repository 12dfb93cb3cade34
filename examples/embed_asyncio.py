"""The README's example as a program: a Main session that may write, and its Worker that may not."""

import asyncio
import tempfile

from toolcell import Capability, SessionKind, Supervisor, ToolContext, base_tools, tool


@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, path: str, text: str) -> str:
    """Save text to a file in the workspace.

    Args:
        path: Where, below the workspace.
        text: What to write.
    """
    ctx.require.writer.write_text(path, text)
    return f"saved {len(text)} characters"


async def main() -> None:
    with tempfile.TemporaryDirectory() as project:
        async with Supervisor(tools=[*base_tools(), save]) as supervisor:
            session = await supervisor.open_session(SessionKind.MAIN, workspace=project)
            helper = await session.open_child(SessionKind.WORKER)

            saved = await session.call("save", {"path": "a.txt", "text": "hello"})
            print(saved.display, [artifact.path for artifact in saved.artifacts])

            refused = await helper.call("save", {"path": "a.txt", "text": "hello"})
            print(refused.error)  # PermissionDenied: no write handle

            read = await helper.call("read", {"path": "a.txt"})
            print(read.for_model())


asyncio.run(main())
