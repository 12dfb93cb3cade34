"""A smolagents CodeAgent whose code and tools run in cells. The supervisor asks before a call pays more than 10."""

import tempfile
from collections.abc import Callable
from typing import Any

from smolagents import CodeAgent, InferenceClientModel, Model

from toolcell import ApprovalRequest, Approved, Denied, base_tools, tool
from toolcell.adapters.smolagents import to_smolagents_tools
from toolcell.adapters.smolagents_executor import CellPythonExecutor, PythonCell
from toolcell.blocking import Supervisor


@tool(requires_approval=lambda arguments: arguments["amount"] > 10, preview=lambda amount: f"Spend {amount}")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


class Terminal:
    """Asks whoever sits before the terminal."""

    def __init__(self, ask: Callable[[str], str]) -> None:
        self.ask = ask

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        return Approved() if self.ask(f"{request.text}? ") == "yes" else Denied("Not today.")


def main(model: Model, ask: Callable[[str], str] = input) -> None:
    tools: list[Any] = [*base_tools(), pay, PythonCell()]
    with tempfile.TemporaryDirectory() as project, Supervisor(tools, approver=Terminal(ask)) as supervisor:
        session = supervisor.open_session("main", workspace=project)
        executor = CellPythonExecutor(session)
        agent = CodeAgent(tools=to_smolagents_tools(session), model=model, executor=executor, verbosity_level=0)
        print(agent.run("Pay 50 for the coffee."))


if __name__ == "__main__":
    main(InferenceClientModel())
