"""toolcell on a host, as a program: `python scene.py WORKSPACE [ALLOW…]`. It prints one JSON object.

It runs the doctor, then a supervisor and its calls. The tools are in this file, so they are shipped by value.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout

import anyio

from toolcell import (
    Capability,
    Limits,
    Profile,
    SandboxUnavailableError,
    Session,
    Supervisor,
    ToolContext,
    base_tools,
    tool,
)
from toolcell.cli import doctor

PROCESSES = 12


@tool(needs={Capability.WRITE})
def save(ctx: ToolContext, path: str, text: str) -> str:
    """Save text."""
    assert ctx.writer is not None
    ctx.writer.write_text(path, text)
    return f"saved {len(text)} characters"


@tool
def crowd() -> int:
    """Fork until a fork is refused. Return how many succeeded."""
    for made in range(10 * PROCESSES):
        try:
            if os.fork() == 0:
                os.read(0, 1)
                os._exit(0)
        except BlockingIOError:
            return made
    return 10 * PROCESSES


TOOLS = [*base_tools(), save, crowd]


def asked_doctor() -> dict[str, object]:
    """The exit status of `toolcell doctor`, and the missing mechanisms with their cures."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as said:
        status = doctor.run(as_json=True)
    rows = json.loads(out.getvalue())["mechanisms"] if out.getvalue() else []
    missing = {row["name"]: row["cure"] for row in rows if row["state"] == "missing"}
    substituted = [row["name"] for row in rows if row["state"] == "substituted"]
    cures = {row["name"]: row["cure"] for row in rows if row["state"] != "on"}
    return {
        "status": status, "said": said.getvalue(), "missing": missing, "substituted": substituted, "cures": cures
    }  # fmt: skip


async def use(session: Session) -> dict[str, object]:
    """Call a tool that writes, a base tool that reads, and the shell. Return each answer or error."""
    found: dict[str, object] = {}
    for name, arguments in (
        ("save", {"path": "a.txt", "text": "hello"}),
        ("read", {"path": "a.txt"}),
        ("shell", {"command": "echo hi > b.txt && /bin/cat a.txt b.txt"}),
    ):
        result = await session.call(name, arguments)
        answer = result.output if result.error is None else result.error.model_dump()
        found[name] = answer.get("stdout") or answer if isinstance(answer, dict) else answer
    return found


async def calls(workspace: str, allow: list[str]) -> dict[str, object]:
    profile = Profile.for_kind("main").replace(limits=Limits(processes=PROCESSES))
    async with Supervisor(TOOLS, allow_missing=allow) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        found = await use(session)
        crowded = await session.call("crowd")
        error = crowded.error.model_dump() if crowded.error is not None else {}
        found["crowd"] = error.get("resource") or error or crowded.output
        return {"identity": supervisor.status().identity, **found}


def main(workspace: str, allow: list[str]) -> dict[str, object]:
    told = asked_doctor()
    found: dict[str, object]
    try:
        found = anyio.run(calls, workspace, allow)
    except SandboxUnavailableError as error:
        found = {"unavailable": str(error), "mechanism": error.mechanism, "cure": error.cure}
    return {"doctor": told, **found}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
