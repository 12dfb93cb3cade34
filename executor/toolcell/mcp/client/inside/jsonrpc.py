"""JSON-RPC 2.0 with a server that is not trusted: the bounds, the messages, and the fingerprints of tools.

A server that exceeds a bound is ended. The supervisor and the cell compute the same fingerprint of a description.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, cast

from toolcell_tools.failures import ToolFailure

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""One message. It equals the default of `Limits.result_bytes`."""
MAX_MESSAGES: Final = 10_000
"""Messages during one request, its answer included."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all messages during one request."""
MAX_NOISE: Final = 100
"""Lines during one request that are no message, such as a greeting or an answer to another request."""
MAX_QUESTIONS: Final = 100
"""Requests of the server during one request."""
MAX_REPORTS: Final = 200
"""Progress reports, and lines of log, that one request passes on; further ones are dropped."""
MAX_PAGES: Final = 100
"""Pages of one list of tools."""
MAX_CURSOR_CHARS: Final = 10_000
"""The cursor of a page, which the next request repeats."""
MAX_TOOLS: Final = 500
MAX_FINDINGS: Final = 10
"""Findings about a list of tools as a whole."""
MAX_LISTING_BYTES: Final = 4 * 1024 * 1024
"""One list of tools as JSON; the largest among 18 published servers has 150 KB."""
MAX_BLOCKS: Final = 1_000
"""Blocks of content in one answer."""
TAIL_BYTES: Final = 8 * 1024
"""Kept of what the server wrote last to its standard error."""
LIVES: Final = 20
"""The CPU time of a server's whole life, in limits of one call (`Limits.cpu_s`)."""
PARTS = ("name", "description", "inputSchema", "outputSchema")
"""The parts of a description that a fingerprint covers: what a model reads, and what arguments and results are."""
PROBLEM = "problem"
"""Beside the name of a tool, instead of a description that cannot be sent: the reason."""
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


def fingerprint_of(described: Mapping[str, Any]) -> str:
    """A digest of the description. Other parts than `PARTS` do not count."""
    covered = {part: described[part] for part in PARTS if described.get(part) is not None}
    canonical = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
