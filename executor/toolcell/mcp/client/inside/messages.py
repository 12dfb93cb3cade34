"""JSON-RPC 2.0 messages: how they are written, and what is accepted as one."""

import json
from typing import Any, cast

from toolcell_tools.failures import ToolFailure

Message = dict[str, Any]
METHOD_NOT_FOUND = -32601  # JSON-RPC 2.0, section 5.1
_ID_DIGITS = 20  # more than any id of this client has


class Misbehaved(ToolFailure):
    """The server broke the protocol or a bound, and is ended. The next call starts it again."""


def encoded(message: Message) -> bytes:
    """The message as one line."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes | bytearray) -> Message | None:
    """The message in a line; None for anything else: wrong JSON, a batch, a number of 5,000 digits.

    A malformed answer is a message with its id and a "problem" in place of the result, so that the request which waits
    for it fails at once. Without an id that is a number, or any other part of an answer, it may be a line of a log.
    """
    words: list[str] = []  # NaN, Infinity, -Infinity
    try:
        found: object = json.loads(line, parse_constant=words.append)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    message = cast("Message", found)
    if "method" in message:
        return message if message.get("jsonrpc") == "2.0" and not words and _is_shaped(message) else None
    id, problem = _id_of(message.get("id")), _problem_of(message, words)
    if id is None or not message.keys() & {"jsonrpc", "result", "error"}:
        return None
    return {"id": id, "problem": problem} if problem else message


def _is_shaped(message: Message) -> bool:
    """Whether this is a request or a notification: its id, method and parameters have their types."""
    id = message.get("id", 0)
    has_id = isinstance(id, (int, str)) and not isinstance(id, bool)
    return has_id and isinstance(message["method"], str) and isinstance(message.get("params", {}), dict)


def _id_of(given: object) -> int | None:
    """The number that an id stands for: this client's are whole numbers. Some servers turn them into other types."""
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        return None
    text = str(given).removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) <= _ID_DIGITS else None


def _problem_of(answer: Message, words: list[str]) -> str:
    """Why this is no answer of JSON-RPC, or ""."""
    if answer.get("jsonrpc") != "2.0":
        return 'it lacks "jsonrpc": "2.0"'
    if not isinstance(answer.get("id"), int):
        return f"its id is {json.dumps(answer.get('id'))}, and the request's is a whole number"
    if ("result" in answer) == ("error" in answer):
        return "it has both a result and an error" if "result" in answer else "it has neither a result nor an error"
    return f"it has {words[0]}, which is no number of JSON" if words else ""


def result_in(answer: Message, what: str) -> Message:
    """The result in an answer. Raises ToolFailure for an error or a malformed answer, and Misbehaved for a result that
    is no object."""
    if "result" not in answer and "error" not in answer:
        raise ToolFailure(f"The server's answer to {what} is malformed: {answer['problem']}.")
    if "error" in answer:
        said = answer["error"]
        error = cast("Message", said) if isinstance(said, dict) else {"message": said}
        message, code = str(error.get("message"))[:2_000], error.get("code")
        code_said = f" (code {code})" if isinstance(code, int) else ""
        raise ToolFailure(f"The server refuses {what}: {message}{code_said}", error.get("data"))
    result = answer["result"]
    if not isinstance(result, dict):
        raise Misbehaved(f"The server's answer to {what} is no object. The server was ended.")
    return cast("Message", result)
