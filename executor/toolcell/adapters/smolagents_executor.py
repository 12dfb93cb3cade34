"""smolagents: the code of a CodeAgent in a cell.

    supervisor = Supervisor([*base_tools(), PythonCell()])
    agent = CodeAgent(tools=to_smolagents_tools(session), model=model, executor=CellPythonExecutor(session))

Needs the extra `[smolagents]`.
"""

import json
import re
from collections.abc import Callable
from typing import Any, cast

from smolagents import FinalAnswerTool, Tool
from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor
from smolagents.serialization import SafeSerializer
from smolagents.utils import AgentError

from toolcell.adapters.result_forms import text_of
from toolcell.blocking import Session
from toolcell.errors import UsageError
from toolcell_tools.for_programs.python_code import PythonCell, PythonEvent, PythonStep

from .smolagents import SmolagentsTool

__all__ = ["CellCodeError", "CellPythonExecutor", "PythonCell"]

_NUMERIC = re.compile(r"bool|u?int\d{1,2}|float\d{1,3}|complex\d{1,3}")  # as numpy names them


class CellPythonExecutor(PythonExecutor):
    """Runs the code of a CodeAgent in a cell: `CodeAgent(…, executor=CellPythonExecutor(session))`.

    The supervisor has a `PythonCell()` among its tools. Variables last as long as the session. The code calls the
    agent's tools by name: they run where they always do, those of a session in cells of their own. A tool that is not
    of a session would run in your program, with arguments that the code chooses; it is refused, unless
    `host_tools=True`. So is the agent's own `final_answer`, if it has one: give it to the supervisor by
    `from_smolagents`, and it runs in a cell. A final answer keeps its type if it is JSON data, a picture of Pillow, an
    array, a date, a set or the like; the code is told of any other. Whatever is installed can be imported, so pass
    `additional_authorized_imports=["*"]` to the agent, which only tells the model. One piece of code makes at most
    `max_calls` calls.
    """

    def __init__(
        self, session: Session, *, name: str = PythonCell.name, host_tools: bool = False, max_calls: int = 1_000
    ) -> None:
        self._session = session
        self._name = name
        self._host_tools = host_tools
        self._max_calls = max_calls
        self._tools: dict[str, Callable[..., Any]] = {}
        self._finals: list[Any] = []  # values of the agent's own `final_answer`, which are not sent to the code
        self.state: dict[str, Any] = {}
        """What the agent reads after an error: `_print_outputs`, the printed output."""

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Take the tools that code may call. Raises UsageError for one that would run in this process."""
        given = {name: one for name, one in tools.items() if type(one) is not FinalAnswerTool}
        for name, one in given.items():
            if not self._host_tools and not isinstance(one, SmolagentsTool):
                raise UsageError(
                    f"The tool {name!r} is not of a session, and would run in this process. Give the supervisor "
                    "from_smolagents(tool), and the agent to_smolagents_tools(session); or pass host_tools=True."
                )
        self._tools = cast("dict[str, Callable[..., Any]]", given)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Set variables of the code. Raises UsageError if one is no JSON data."""
        try:
            json.dumps(variables)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"The agent's variables go to a cell as JSON, and {error}. Write a file instead."
            ) from None
        if variables:
            self._step(PythonStep(action="set", value=variables))

    def __call__(self, code_action: str) -> CodeOutput:
        """Run code. Raises CellCodeError with an explanation for the model."""
        self._finals.clear()
        event = self._step(PythonStep(action="run", code=code_action, tools=list(self._tools), value=None))
        for _ in range(self._max_calls):
            if event.event != "tool":
                break
            event = self._step(self._answered(event))
        self.state["_print_outputs"] = event.logs
        if event.event == "tool":
            raise CellCodeError(f"The code made more than {self._max_calls:,} calls of tools, and was stopped.")
        if event.event == "error":
            raise CellCodeError(event.error)
        output, is_final = _unpacked(event.packed) if event.packed else event.output, event.event == "final"
        output = self._finals[-1] if is_final and self._finals else output
        return CodeOutput(output=output, logs=event.logs, is_final_answer=is_final)

    def _answered(self, event: PythonEvent) -> PythonStep:
        """Call the tool that the code asks for. What goes wrong is an exception in the code."""
        called = self._tools.get(event.tool)
        if called is None:
            return PythonStep(action="fail", value=f"There is no tool named {event.tool!r}.")
        try:
            args, kwargs = _unpacked(event.packed) if event.packed else (event.args, event.kwargs)
            value = called(*args, **kwargs)
        except Exception as error:
            return PythonStep(action="fail", value=str(error) or type(error).__name__)
        if event.tool == "final_answer":
            self._finals.append(value)
            return PythonStep(action="answer", value=None)
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            said = f"{event.tool} returned a {type(value).__name__}, which cannot go to the code as JSON: {error}"
            return PythonStep(action="fail", value=said)
        return PythonStep(action="answer", value=value)

    def _step(self, step: PythonStep) -> PythonEvent:
        result = self._session.call(self._name, step.model_dump())
        if result.is_error:
            self.state["_print_outputs"] = ""
            raise CellCodeError(text_of(result))
        return PythonEvent.model_validate(result.output)


class CellCodeError(AgentError, InterpreterError):
    """The code failed, or exceeded a bound. The text is for the model."""

    def __init__(self, message: str) -> None:
        ValueError.__init__(self, message)  # AgentError's own wants a logger; the agent logs it
        self.message = message


def _unpacked(text: str) -> Any:
    """The value that a cell has packed. It holds data only: a picture is decoded when it is used. Raises CellCodeError
    for text that is malformed, as hostile code may write it."""
    try:
        json.loads(text.removeprefix(SafeSerializer.SAFE_PREFIX), object_hook=_checked)
        return SafeSerializer.loads(text)
    except Exception as error:
        raise CellCodeError(f"The cell's value cannot be read: {error}") from None


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    """The object. Raises ValueError for an array of texts or structures, one entry of which may claim gigabytes."""
    if found.get("__type__") == "ndarray" and not _NUMERIC.fullmatch(str(found.get("dtype"))):
        raise ValueError(f"an array of {str(found.get('dtype'))[:50]} has entries that are no numbers")
    return found
