"""From `Supervisor(…)` to its first result, in a fresh process: `python -I first_call.py DIRECTORY`. Prints seconds."""

import sys
import time

import anyio

from toolcell import Supervisor, tool


@tool
def echo(text: str) -> str:
    """Give the text back.

    Args:
        text: What to give back.
    """
    return text


async def main(directory: str) -> float:
    start = time.perf_counter()
    async with Supervisor(tools=[echo]) as supervisor:
        session = await supervisor.open_session("main", workspace=directory)
        result = await session.call("echo", {"text": "first"})
        taken = time.perf_counter() - start
        assert result.unwrap() == "first", result
        return taken


if __name__ == "__main__":
    print(anyio.run(main, sys.argv[1]))
