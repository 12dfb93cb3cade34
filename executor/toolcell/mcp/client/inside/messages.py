"""JSON-RPC 2.0 messages: how they are written, and what is accepted as one."""

import json
from typing import Any, cast

from toolcell_tools.failures import ToolFailure

Message = dict[str, Any]
METHOD_NOT_FOUND, PARSE_ERROR = -32601, -32700  # JSON-RPC 2.0, section 5.1


class Misbehaved(ToolFailure):
    """The server broke the protocol or a bound, and is ended. The next call starts it again."""


def encoded(message: Message) -> bytes:
    """The message as one line."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes | bytearray) -> Message | None:
    """The message in a line; None for anything else: wrong JSON, a batch, a number of 5,000 digits. An answer with NaN,
    which many programs write, becomes an error."""
    words: list[str] = []  # NaN, Infinity, -Infinity
    try:
        found: object = json.loads(line, parse_constant=words.append)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    message = cast("Message", found)
    if message.get("jsonrpc") != "2.0" or not _is_shaped(message):
        return None
    if not words:
        return message
    if "method" in message:
        return None
    error = {"code": PARSE_ERROR, "message": f"its answer has {words[0]}, which is no number of JSON"}
    return {"jsonrpc": "2.0", "id": message["id"], "error": error}


def _is_shaped(message: Message) -> bool:
    """Whether this is a request, a notification or an answer: ids and methods have their types."""
    id = message.get("id")
    if "id" in message and (isinstance(id, bool) or not isinstance(id, (int, str))):
        return False
    if "method" in message:
        return isinstance(message["method"], str) and isinstance(message.get("params", {}), dict)
    return "id" in message and ("result" in message) != ("error" in message)


def result_in(answer: Message, what: str) -> Message:
    """The result in an answer. Raises ToolFailure for an error, and Misbehaved for a result that is no object."""
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
