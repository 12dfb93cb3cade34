"""`PythonCell`: Python with state in a cell, whose code can call tools outside of the cell.

A call of the tool runs code until it ends or calls an outer tool. In the latter case the call ends with a `tool` event,
while the code waits in a thread of the kept process. The next call brings the outer tool's answer. The outer tool runs
where it always does, with its own grants.

A final answer and the arguments of an outer tool keep their types: data that is no JSON, such as a picture of Pillow or
an array, is packed by smolagents' SafeSerializer. smolagents is imported for nothing else.
"""

import ast
import io
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from math import isfinite
from queue import Queue
from threading import Lock, Thread
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import ToolFailure, Unencodable
from toolcell_tools.options import Annotations, Lifetime
from toolcell_tools.typed import TypedTool

__all__ = ["INTERPRETER", "PythonCell", "PythonEvent", "PythonStep"]

INTERPRETER = "toolcell_interpreter"
"""The key in a declaration's metadata of a tool that is an interpreter for a framework, not for models."""
MAX_LOGS = 100_000
"""The characters of printed output that an event holds: the first and the last half."""
_FILE = "<code>"


class PythonStep(BaseModel):
    """What to do next: run code, set variables, or go on with the answer of a tool."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["run", "set", "answer", "fail"]
    code: str = ""
    tools: list[str] = Field(default_factory=list[str], description="Names by which the code can call outer tools.")
    value: Any = Field(None, description="The variables, the tool's answer, or why it failed.")


class PythonEvent(BaseModel):
    """How far the code has come. `output` is the value of its last line, as JSON, or as text if it is no JSON data.

    `packed` is the final answer, or the list of `args` and `kwargs`, in the format of smolagents' SafeSerializer, if it
    is no JSON data. Nothing in it is pickled.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: Literal["done", "final", "error", "tool"]
    output: Any = None
    packed: str = ""
    logs: str = ""
    error: str = ""
    tool: str = ""
    args: list[Any] = Field(default_factory=list[Any])
    kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])


class _Final(BaseException):
    """The code has called `final_answer`."""


class _Abandoned(BaseException):
    """Nobody will answer: other code is to run."""


class PythonCell(TypedTool[PythonStep]):
    """Run Python code. Variables last as long as the session."""

    name = "run_python"
    lifetime: Lifetime = "session"
    uses: Iterable[Capability | str] = frozenset({Capability.READ, Capability.WRITE})
    annotations = Annotations(sequential=True)
    metadata: Mapping[str, Any] = {INTERPRETER: True}
    output_schema: object = PythonEvent

    def __init__(self, *, uses: Iterable[Capability | str] | None = None, name: str | None = None) -> None:
        self.uses = PythonCell.uses if uses is None else uses
        self.name = PythonCell.name if name is None else name

    def setup(self, ctx: ToolContext) -> None:
        """Begin with no variables."""
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._run: _CodeRun | None = None

    def call(self, ctx: ToolContext, input: PythonStep) -> PythonEvent:
        """Go on to the next event."""
        if input.action == "set":
            self._names.update(input.value or {})
            return PythonEvent(event="done")
        if input.action == "run":
            if self._run is not None:
                self._run.abandon()
            self._run = _CodeRun(input.code, self._names, input.tools)
            return self._run.next_event()
        if self._run is None or not self._run.waits:
            raise ToolFailure("No code waits for the answer of a tool: its process has ended. Run the code again.")
        self._run.answer(input.value, is_failure=input.action == "fail")
        return self._run.next_event()


class _CodeRun:
    """Code that runs in a thread of its own."""

    def __init__(self, code: str, names: dict[str, Any], tools: Iterable[str]) -> None:
        self.waits = False
        self._printed = io.StringIO()
        self._events: Queue[PythonEvent] = Queue()
        self._answers: Queue[tuple[Any, bool] | None] = Queue()
        self._one_call = Lock()  # threads of the code call tools one after the other
        names.update({name: self._stub(name) for name in tools})
        names["final_answer"] = _final(self._stub("final_answer") if "final_answer" in tools else _same)
        self._thread = Thread(target=self._work, args=(code, names), daemon=True)
        self._thread.start()

    def next_event(self) -> PythonEvent:
        return self._events.get()

    def answer(self, value: Any, *, is_failure: bool) -> None:
        self.waits = False
        self._answers.put((value, is_failure))

    def abandon(self) -> None:
        self._answers.put(None)
        self._thread.join(1)

    def _work(self, code: str, names: dict[str, Any]) -> None:
        try:
            with redirect_stdout(self._printed):
                event = PythonEvent(event="done", output=_shown(_executed(code, names)))
        except _Final as final:
            event = _final_event(final.args[0])
        except BaseException as error:  # the code may raise anything, SystemExit too
            event = PythonEvent(event="error", error=_explained(error, code))
        self._events.put(event.model_copy(update={"logs": self._logs()}))

    def _logs(self) -> str:
        printed, half = self._printed.getvalue(), MAX_LOGS // 2
        if len(printed) <= MAX_LOGS:
            return printed
        return f"{printed[:half]}\n[… {len(printed) - MAX_LOGS:,} characters …]\n{printed[-half:]}"

    def _stub(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._one_call:
                event = _tool_event(name, args, kwargs)
                self.waits = True
                self._events.put(event)
                answered = self._answers.get()
            if answered is None:
                raise _Abandoned
            value, is_failure = answered
            if is_failure:
                raise RuntimeError(value)
            return value

        call.__name__ = name
        return call


def _same(answer: Any = None) -> Any:
    return answer


def _final(answering: Callable[..., Any]) -> Callable[..., Any]:
    """The `final_answer` of the code: it ends the code with the value of `answering`, whose errors reach the code."""

    def final_answer(*args: Any, **kwargs: Any) -> None:
        raise _Final(answering(*args, **kwargs))

    return final_answer


def _final_event(answer: Any) -> PythonEvent:
    try:
        if _is_json(answer):
            return PythonEvent(event="final", output=encode_json(answer))
        return PythonEvent(event="final", packed=_packed(answer))
    except Exception as error:
        said = f"final_answer got a {type(answer).__name__}, which cannot leave the cell: {error}"
        return PythonEvent(event="error", error=f"{said}. Pass text, numbers, lists, a picture or an array.")


def _tool_event(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PythonEvent:
    try:
        return PythonEvent(event="tool", tool=name, args=encode_json(args), kwargs=encode_json(kwargs))
    except Unencodable as unsent:
        try:
            return PythonEvent(event="tool", tool=name, packed=_packed([list(args), kwargs]))
        except Exception:
            raise unsent from None


def _is_json(value: object) -> bool:
    """Whether the value has only types that JSON keeps, and not their subclasses."""
    kind, given = type(value), cast("Any", value)
    if kind is int:
        return bool(-(2**63) <= given < 2**63)
    if kind is float:
        return isfinite(given)
    if kind is list:
        return all(map(_is_json, given))
    if kind is dict:
        return all(type(key) is str for key in given) and all(map(_is_json, given.values()))
    return value is None or kind in (str, bool)


def _packed(value: Any) -> str:
    packed: str = import_module("smolagents.serialization").SafeSerializer.dumps(value)
    return packed


def _executed(code: str, names: dict[str, Any]) -> Any:
    """Run the code. Returns the value of its last line, if that is an expression or assigns a name."""
    body = ast.parse(code, _FILE).body
    last = body[-1] if body else None
    exec(compile(ast.Module([one for one in body if one is not last], []), _FILE, "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), _FILE, "eval"), names)
    if last is not None:
        exec(compile(ast.Module([last], []), _FILE, "exec"), names)
    if isinstance(last, ast.Assign) and isinstance(last.targets[-1], ast.Name):
        return names[last.targets[-1].id]
    return None


def _shown(value: Any) -> Any:
    try:
        return encode_json(value)
    except Unencodable:
        return repr(value)


def _explained(error: BaseException, code: str) -> str:
    """The error, and the line of the code that raised it."""
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
    number = lines[0] if lines else None
    if number is None or number > len(code.splitlines()):
        return said
    return f"Code execution failed at line {number}, {code.splitlines()[number - 1].strip()!r}: {said}"
