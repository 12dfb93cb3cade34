"""`python -I linked.py WORKSPACE LINK`: what calls see of the interpreter's link and of LINK, below the scratch.

It prints a line of JSON with the findings of each call, in order. `test_scratch_links.py` runs it.
"""

import json
import os
import sys

import anyio

from toolcell import Capability, Profile, Supervisor, tool
from toolcell.supervisor import runtime_of


@tool(needs={Capability.READ})
def look(links: list[str], hostile: bool) -> list[list[str]]:
    """Return the targets of the links, their content, and files of earlier calls. Then replace the links by
    directories.
    """
    found = [[os.readlink(link), ",".join(sorted(os.listdir(link)))] for link in links]
    found.append(sorted({"left"}.intersection(os.listdir("/tmp"))))
    for link in links if hostile else ():
        os.unlink(link)
        os.mkdir(link)
        open(f"{link}/planted", "w").close()
    open("/tmp/left", "w").close()
    return found


async def main(workspace: str, link: str) -> None:
    """Make four calls in one cell. The second call is hostile."""
    profile = Profile.for_kind("main")
    profile = profile.replace(system=(*profile.system, link))
    async with Supervisor([look]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        answers: list[object] = []
        used: set[int] = set()
        for hostile in (False, True, False, False):
            result = await session.call("look", {"links": [link, sys.prefix], "hostile": hostile})
            answers.append(result.output if result.error is None else str(result.error))
            used.update(runtime_of(supervisor).pool.cells)
        print(json.dumps({"answers": answers, "prefix": sys.prefix, "cells": len(used)}))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
