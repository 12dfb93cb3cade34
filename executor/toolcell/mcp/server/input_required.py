"""The questions that a tool asks the client of an MCP server. Tools import this module, so cells load it.

A tool that needs an answer raises `InputRequired`, which ends the call. When the client has answered, the server makes
the call again, with the answers as an argument. So no process waits for a person, and the answers are arguments like
any others: validated, approved and recorded.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from toolcell_tools.failures import ToolFailure

__all__ = [
    "QUESTIONS",
    "Answers",
    "InputRequired",
    "Question",
    "accepted",
    "elicitation",
    "mcp_metadata",
    "roots",
    "sampling",
]

QUESTIONS: Final = "toolcell/questions"
"""The key of the questions in the data of an InputRequired."""
Question = dict[str, Any]
"""A request to the client: its `method` and `params`, as in MCP."""
Answers = dict[str, dict[str, Any]]
"""The client's answers by the names of the questions, as in MCP."""
TaskSupport = Literal["forbidden", "optional", "required"]


class InputRequired(ToolFailure):
    """Raised by a tool that needs answers from the client of an MCP server.

    `questions` are made by `elicitation`, `sampling` and `roots`. With `any_of`, the tool can do with some of the
    answers: the server asks only those that the client supports. In a program without an MCP server, the call ends as
    an ExecutionError that names the questions.
    """

    def __init__(self, questions: Mapping[str, Question], *, any_of: bool = False) -> None:
        self.questions = dict(questions)
        self.any_of = any_of
        self.asked: dict[str, Any] = {QUESTIONS: self.questions, "any_of": any_of}
        super().__init__(
            f"The call needs answers from the client: {', '.join(map(_shown, self.questions.items()))}.",
            self.asked,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.questions, self.any_of)


def _remade(questions: dict[str, Question], any_of: bool) -> InputRequired:
    return InputRequired(questions, any_of=any_of)


def _shown(named: tuple[str, Question]) -> str:
    name, question = named
    message = question.get("params", {}).get("message", question.get("method", ""))
    return f"{name} ({message})"


def elicitation(message: str, schema: Mapping[str, Any]) -> Question:
    """A question to the person at the client. `schema` describes the form: an object of texts, numbers and choices."""
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": dict(schema)}}


def sampling(prompt: str, *, max_tokens: int, system: str = "") -> Question:
    """A question to the client's model."""
    params: dict[str, Any] = {
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
        "maxTokens": max_tokens,
    }
    return {"method": "sampling/createMessage", "params": params | ({"systemPrompt": system} if system else {})}


def roots() -> Question:
    """A question for the directories that the client's user works in."""
    return {"method": "roots/list", "params": {}}


def accepted(answers: Answers | None, name: str) -> dict[str, Any] | None:
    """The content of the accepted elicitation `name`. None if it was not asked, or was declined."""
    answer = (answers or {}).get(name, {})
    return dict(answer.get("content") or {}) if answer.get("action") == "accept" else None


def mcp_metadata(
    *,
    answers: str | None = None,
    task: TaskSupport | None = None,
    ask_first: bool = False,
    poll_after_s: float | None = None,
) -> dict[str, Any]:
    """The `metadata` option of a tool, with what an MCP server should know of it.

    `answers` names the parameter that gets the `Answers`, and None before there are any; clients do not see it. `task`
    says whether a call may, or must, run as a task (default: "optional" for a tool that is `long_running`, else
    "forbidden"). With `ask_first`, the questions are asked before the call becomes a task. With `poll_after_s`, the
    server closes the event stream of a call over HTTP after so many seconds, and the client comes back for the result
    (2025-11-25 only).
    """
    given = {"answers": answers, "task": task, "ask_first": ask_first or None, "poll_after_s": poll_after_s}
    return {"mcp": {name: value for name, value in given.items() if value is not None}}
