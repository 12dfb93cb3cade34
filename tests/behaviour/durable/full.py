"""A durable supervisor whose files cannot grow for a moment, at each part of a record: `python full.py DIRECTORY`.

Prints a line of JSON: by call id, the kind of its error or None; the lines that the calls have written; and the records
after another start, each with its call id, kind, error and outcome.
"""

import json
import logging
import resource
import sys
from pathlib import Path

import anyio

from toolcell import Supervisor, ToolContext, tool
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.reading import JournalReader

STEPS = range(0, 1400, 47)


@tool(needs={"write"})
def append(ctx: ToolContext, line: str) -> int:
    """Append a line."""
    with open("lines.txt", "a") as file:
        file.write(f"{line}\n")
    return 1


def bound_files(size: int) -> None:
    """Bound the files of this process, and not of its cells: a write beyond fails, or writes less (setrlimit(2))."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def main(top: Path) -> None:
    directory = StateDirectory(top / "state")
    found: dict[str, str | None] = {}
    async with Supervisor([append], state=directory.path) as supervisor:
        session = await supervisor.open_session("main", workspace=top / "workspace", session_id="s")
        await session.call("append", {"line": "first"}, call_id="first")
        for step in STEPS:
            bound_files(directory.log.stat().st_size + step)
            error = (await session.call("append", {"line": f"c{step}"}, call_id=f"c{step}")).error
            found[f"c{step}"] = None if error is None else error.kind
            bound_files(resource.RLIM_INFINITY)
    JournalReader(directory.log, directory.index).verify()
    async with Supervisor([append], state=directory.path):
        pass
    JournalReader(directory.log, directory.index).verify()
    records = [each.record for each in JournalReader(directory.log, directory.index).entries()]
    kept = [(each.call_id, each.kind, each.data.get("error"), each.data.get("outcome")) for each in records]
    print(json.dumps([found, (top / "workspace" / "lines.txt").read_text().split(), kept]))


if __name__ == "__main__":
    logging.disable()
    anyio.run(main, Path(sys.argv[1]))
