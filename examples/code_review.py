"""A code reviewer: one Worker for each question reads the project, side by side, and the reviewer writes a report.

A Worker holds no write handle, so nothing that its model reads in the code can make it change a file. `model` plays
scripts here. In your program it sends the question, the tools and the results so far to a provider.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from toolcell import Session, SessionKind, Supervisor, ToolResult, base_tools, coding_tools

Calls = list[tuple[str, dict[str, Any]]]
PROJECT = {
    "shop/pay.py": "def pay(text):\n    return eval(text)\n",
    "shop/cart.py": "def total(prices):\n    return sum(prices)  # TODO: taxes\n",
}
SCRIPTS: dict[str, Sequence[Calls]] = {
    "Is untrusted text run as code?": [
        [("glob", {"pattern": "**/*.py"}), ("grep", {"pattern": r"\b(eval|exec)\("})],
        [("read", {"path": "shop/pay.py"}), ("write", {"path": "shop/pay.py", "content": "fixed it myself"})],
    ],
    "What is left to do?": [[("list", {"path": "shop"}), ("grep", {"pattern": "TODO"})]],
}


def model(question: str, turn: int) -> Calls:
    """The calls of the next turn; none when the model would answer."""
    return SCRIPTS[question][turn] if turn < len(SCRIPTS[question]) else []


async def research(reviewer: Session, question: str, findings: dict[str, list[ToolResult]]) -> None:
    """Let a Worker of its own answer one question."""
    worker = await reviewer.open_child(SessionKind.WORKER)
    print(question, "for a Worker with", *sorted(tool.name for tool in await worker.tools()))
    turn = 0
    while calls := model(question, turn):
        findings[question] += await worker.call_many(calls)
        turn += 1
    await worker.close()


def report(findings: dict[str, list[ToolResult]]) -> str:
    parts = [[f"## {question}", *(one.for_model() for one in found)] for question, found in findings.items()]
    return "\n\n".join(text for part in parts for text in part)


async def main() -> None:
    with tempfile.TemporaryDirectory() as project:
        for name, content in PROJECT.items():
            path = Path(project, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        async with Supervisor([*base_tools(), *coding_tools()]) as supervisor:
            reviewer = await supervisor.open_session(SessionKind.MAIN, workspace=project)
            findings: dict[str, list[ToolResult]] = {question: [] for question in SCRIPTS}
            async with anyio.create_task_group() as researchers:
                for question in SCRIPTS:
                    researchers.start_soon(research, reviewer, question, findings)
            await reviewer.call("write", {"path": "REVIEW.md", "content": report(findings)})
        print(Path(project, "REVIEW.md").read_text())
        assert Path(project, "shop/pay.py").read_text() == PROJECT["shop/pay.py"]


anyio.run(main)
