"""The questions of a tool to the client: read from a result, put to the client, and compared with the answers.

A question comes from a cell, and an answer from a client. Both are validated here, and bounded.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, TypeAdapter, ValidationError

from toolcell_tools.errors import ExecutionError
from toolcell_tools.failures import ToolDefinitionError
from toolcell_tools.result import ToolResult
from toolcell_tools.schemas.untrusted import check_foreign_schema, compiled

from .input_required import QUESTIONS, Answers

__all__ = [
    "MALFORMED",
    "BadQuestion",
    "Declined",
    "Questions",
    "RoundState",
    "Unanswerable",
    "asked",
    "put_to_client",
    "wire",
]

Context = ServerRequestContext[Any, Any]
MAX_QUESTIONS: Final = 16
RESERVED: Final = "toolcell_"
"""The names of the server's own questions begin so."""
MALFORMED: Final = "The tool asked the client a question that is not well-formed"
_REQUESTS: TypeAdapter[types.InputRequests] = TypeAdapter(types.InputRequests)


class BadQuestion(Exception):
    """A tool's questions are malformed or too large. The message says where."""


class Unanswerable(Exception):
    """The client does not support a question. `missing` are the capabilities that it lacks."""

    def __init__(self, missing: types.ClientCapabilities) -> None:
        names = ", ".join(missing.model_dump(exclude_none=True))
        super().__init__(f"The call needs a client that supports: {names}.")
        self.missing = missing


class Declined(Exception):
    """A tool asks again what the client's user has declined or cancelled. The message names the question."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The client's user declined to answer the question {name[:80]!r}, and is not asked again.")


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions to the client, by name. With `any_of`, some of the answers are enough."""

    requests: types.InputRequests
    any_of: bool = False

    def for_client(self, capabilities: types.ClientCapabilities | None, answers: Answers) -> types.InputRequests:
        """The requests that the client supports and its user has not declined in the `answers` so far. Raises
        Unanswerable if the client must support more, and Declined if the user has declined what the tool needs."""
        have = capabilities or types.ClientCapabilities()
        declined = [name for name in self.requests if answers.get(name, {}).get("action") in ("decline", "cancel")]
        if declined and not (self.any_of and len(declined) < len(self.requests)):
            raise Declined(declined[0])
        able = {
            name: each
            for name, each in self.requests.items()
            if name not in declined and getattr(have, _capability(each)) is not None
        }
        if able and (self.any_of or len(able) == len(self.requests)):
            return able
        lacking = {_capability(each): dict[str, Any]() for name, each in self.requests.items() if name not in able}
        raise Unanswerable(types.ClientCapabilities.model_validate(lacking))


def _capability(request: types.InputRequest) -> str:
    """The client's capability that answers a request."""
    return request.method.partition("/")[0]


def asked(result: ToolResult, most_bytes: int) -> Questions | None:
    """The questions that a call ended with, or None. Raises BadQuestion."""
    error = result.error
    if not isinstance(error, ExecutionError) or not isinstance(error.data, dict):
        return None
    data = cast("dict[str, Any]", error.data)
    return read_questions(data, most_bytes) if QUESTIONS in data else None


def read_questions(data: Mapping[str, Any], most_bytes: int) -> Questions:
    """The questions in the data of an InputRequired. Raises BadQuestion."""
    given: object = data[QUESTIONS]
    if not isinstance(given, dict) or not 0 < len(cast("dict[str, Any]", given)) <= MAX_QUESTIONS:
        raise BadQuestion(f"{MALFORMED}: from 1 to {MAX_QUESTIONS} questions are possible.")
    try:
        size = len(json.dumps(given))
        requests = _REQUESTS.validate_python(given, by_name=False)
    except (ValidationError, ValueError, RecursionError):
        raise BadQuestion(f"{MALFORMED}: it is no elicitation, sampling or roots request of MCP.") from None
    if size > most_bytes:
        raise BadQuestion(f"{MALFORMED}: its questions have {size:,} bytes, and {most_bytes:,} are possible.")
    taken = next((name for name in requests if name.startswith(RESERVED)), None)
    if taken is not None:
        raise BadQuestion(f"{MALFORMED}: the name {taken[:80]!r} is the server's own.")
    for name, request in requests.items():
        if isinstance(request, types.ElicitRequest):
            _check_form(name, request)
    return Questions(requests, data.get("any_of") is True)


def _check_form(name: str, request: types.ElicitRequest) -> None:
    """Raise BadQuestion unless this is a form whose schema is fit for validating answers. A page is no form: the client
    would open an address that a tool chose."""
    if not isinstance(request.params, types.ElicitRequestFormParams):
        raise BadQuestion(f"{MALFORMED}: {name!r} asks for a page, and only forms are possible.")
    try:
        check_foreign_schema(name, "the form", request.params.requested_schema)
    except ToolDefinitionError as error:
        raise BadQuestion(f"{MALFORMED}: {error}") from None


def wire(model: BaseModel) -> dict[str, Any]:
    """A model as MCP writes it."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


@dataclass(frozen=True, slots=True)
class RoundState:
    """What a call has asked and been told so far. The client sends it back, sealed."""

    answers: Answers = field(default_factory=Answers)
    asked: Mapping[str, Any] = field(default_factory=dict[str, Any])
    approval: str = ""
    """The id of the request for approval that was asked, or ""."""
    rounds: int = 0

    @classmethod
    def read(cls, text: str | None) -> "RoundState":
        """The state of a text that `text` made. The SDK has verified its seal."""
        return cls() if text is None else cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(
            {"answers": self.answers, "asked": dict(self.asked), "approval": self.approval, "rounds": self.rounds}
        )

    def told(self, responses: types.InputResponses | None) -> Answers:
        """All answers so far, with those of `responses` that were asked for and fit. Without a state, nothing was
        asked, and no response is an answer."""
        found = dict(self.answers)
        for name, response in (responses or {}).items():
            answer = wire(response)
            if not name.startswith(RESERVED) and fits(self.asked.get(name), answer):
                found[name] = answer
        return found


_ANSWERS: Final[Mapping[str, type[BaseModel]]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}


def fits(question: object, answer: Mapping[str, Any]) -> bool:
    """Whether an answer is one to the question, and an accepted form is as its schema wants it."""
    if not isinstance(question, Mapping):
        return False
    said = cast("Mapping[str, Any]", question)
    try:
        _ANSWERS[said["method"]].model_validate(dict(answer), by_name=False)
    except ValidationError:
        return False
    if answer.get("action") != "accept":
        return True
    schema = said["params"]["requestedSchema"]
    return next(compiled(dict(schema)).iter_errors(answer.get("content") or {}), None) is None


async def put_to_client(ctx: Context, requests: types.InputRequests, within_s: float) -> dict[str, dict[str, Any]]:
    """Ask a client of the handshake protocol, one question after another. Raises MCPError: the client failed, or did
    not answer."""
    found: dict[str, dict[str, Any]] = {}
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    with anyio.move_on_after(within_s) as scope:
        for name, request in requests.items():
            try:
                response = await ctx.session.send_request(request, _ANSWERS[request.method], within_s, metadata)
            except ValidationError:
                raise MCPError(types.INVALID_PARAMS, f"The client's answer to {name!r} is not well-formed.") from None
            answer = wire(response)
            if not fits(wire(request), answer):
                raise MCPError(types.INVALID_PARAMS, f"The client's answer to {name!r} does not fit the question.")
            found[name] = answer
    if scope.cancelled_caught:
        raise MCPError(types.REQUEST_TIMEOUT, f"The client did not answer within {within_s:.4g} s.")
    return found
