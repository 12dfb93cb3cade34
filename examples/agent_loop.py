"""An agent loop without a framework: a model's calls run in cells, side by side, and a person approves what needs it.

`model` plays a script here. In your program it sends `tools` and `messages` to a provider, and returns the items of the
answer: `client.responses.create(model=…, input=messages, tools=tools).output`, each as a dict.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from typing import Any

from toolcell import ApprovalRequest, Approved, Denied, Session, Supervisor, TierPolicy, base_tools, exports

SCRIPT: Iterator[list[tuple[str, dict[str, Any]]]] = iter(
    [
        [("write", {"path": "a.py", "content": "print(6 * 7)"}), ("write", {"path": "b.py", "content": "exit(3)"})],
        [("shell", {"command": "python3 a.py"}), ("shell", {"command": "python3 b.py"}), ("read", {"path": "no.py"})],
    ]
)


def model(tools: list[dict[str, Any]], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls of the next turn, or at the script's end, what the last calls gave."""
    calls = list(enumerate(next(SCRIPT, [])))
    if not calls:
        return [{"type": "message", "content": "\n".join(str(one["output"])[:120] for one in messages[-3:])}]
    return [
        {"type": "function_call", "call_id": f"{len(messages)}-{number}", "name": name, "arguments": json.dumps(given)}
        for number, (name, given) in calls
    ]


class Person:
    """Approves. Yours asks somebody."""

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        print("approved:", request.text)
        return Approved()


async def answer(session: Session, question: str, most_turns: int = 10) -> str:
    """Let the model call tools until it answers in words."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for _ in range(most_turns):
        export = exports.openai_responses(await session.tools())  # anew each turn: toolsets may offer other tools now
        said = model(export.tools, messages)
        if not (calls := [item for item in said if item["type"] == "function_call"]):
            return str(said[-1]["content"])
        messages += [*said, *(await session.call_many(calls, export=export)).messages()]
    return "I could not finish in time."


async def main() -> None:
    with tempfile.TemporaryDirectory() as project:
        async with Supervisor(base_tools(), policy=TierPolicy(system="ask"), approver=Person()) as supervisor:
            print(await answer(await supervisor.open_session("main", workspace=project), "What do a.py and b.py do?"))


asyncio.run(main())
