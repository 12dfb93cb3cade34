"""The result of `tools/call` as the result of a tool: blocks of content, and the structured content as the output."""

import json
import re
from base64 import b64decode
from typing import Any, cast

from toolcell_tools.failures import ToolFailure
from toolcell_tools.returned import Answer

from .jsonrpc import MAX_BLOCKS, Message

DISPLAY_CHARS = 2_000
ERROR_CHARS = 4_000
_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")
_URI_CHARS = 8_192
Block = dict[str, Any]


def answer_of(result: Message) -> Answer:
    """The tool's answer. Raises ToolFailure for a failed call (`isError`), for a result that is malformed, and for one
    that is not the call's last, such as a question (`input_required`)."""
    kind: object = result.get("resultType", "complete")
    if kind != "complete":
        raise ToolFailure(f"The server's answer is of the type {str(kind)[:40]!r}, which this client does not support.")
    content = result.get("content", [])
    if not isinstance(content, list):
        raise _malformed("content", "no list")
    listed = cast("list[object]", content)
    if len(listed) > MAX_BLOCKS:
        raise _malformed("content", f"{len(listed):,} blocks long, and may have {MAX_BLOCKS:,}")
    blocks = [_block(each, f"content[{number}]") for number, each in enumerate(listed)]
    given: object = result.get("structuredContent")
    if given is not None and not isinstance(given, dict):
        raise _malformed("structuredContent", "no object")
    structured = cast("Message | None", given)
    texts = [str(block["text"]) for block in blocks if block["type"] == "text"]
    said = "\n".join(texts)
    if result.get("isError") is True:
        raise ToolFailure(said[:ERROR_CHARS] or "The tool failed, and its server does not say why.", structured)
    if structured is not None:
        blocks = [block for block in blocks if not _repeats(block, structured)]
    return Answer(structured, said[:DISPLAY_CHARS] or _named(blocks), content=blocks)


def _named(blocks: list[Block]) -> str:
    """The kinds of the blocks, for an answer without text."""
    return ", ".join(str(block.get("mime_type") or block["type"]) for block in blocks)[:DISPLAY_CHARS]


def _repeats(block: Block, structured: Message) -> bool:
    """Whether a text only repeats the structured content, or its only value, as servers do for older clients."""
    if block["type"] != "text":
        return False
    if len(structured) == 1 and block["text"] in structured.values():
        return True
    if not str(block["text"]).lstrip().startswith("{"):
        return False
    try:
        return bool(json.loads(block["text"]) == structured)
    except (ValueError, RecursionError):
        return False


def _block(given: object, where: str) -> Block:
    if not isinstance(given, dict):
        raise _malformed(where, "no object")
    block = cast("Message", given)
    match block.get("type"):
        case "text":
            return {"type": "text", "text": _text(block, "text", where)}
        case "image" | "audio" as kind:
            return _media(kind, block.get("data"), block.get("mimeType"), where)
        case "resource_link":
            return _resource(block, where)
        case "resource":
            resource = block.get("resource")
            if not isinstance(resource, dict):
                raise _malformed(f"{where}.resource", "no object")
            return _embedded(cast("Message", resource), f"{where}.resource")
        case _:
            raise _malformed(f"{where}.type", "no known kind of content")


def _embedded(resource: Message, where: str) -> Block:
    mime = resource.get("mimeType")
    if "blob" in resource and isinstance(mime, str) and mime.partition("/")[0] in ("image", "audio"):
        return _media(mime.partition("/")[0], resource["blob"], mime, where)
    block = _resource(resource, where)
    if "text" in resource:
        block["text"] = _text(resource, "text", where)
    return block


def _resource(resource: Message, where: str) -> Block:
    uri = _text(resource, "uri", where)
    if len(uri) > _URI_CHARS or not _URI.fullmatch(uri):
        raise _malformed(f"{where}.uri", "no URI")
    mime = resource.get("mimeType")
    known = mime if isinstance(mime, str) and _MIME.fullmatch(mime) else None
    return {"type": "resource", "uri": uri, "mime_type": known, "text": None}


def _media(kind: str, data: object, mime: object, where: str) -> Block:
    if not isinstance(mime, str) or not _MIME.fullmatch(mime) or mime.partition("/")[0].lower() != kind:
        raise _malformed(f"{where}.mimeType", f"no type of {kind}")
    try:
        b64decode(data if isinstance(data, str) else b"?", validate=True)
    except ValueError:
        raise _malformed(f"{where}.data", "not base64") from None
    return {"type": kind, "data": data, "mime_type": mime}


def _text(block: Message, key: str, where: str) -> str:
    text = block.get(key)
    if not isinstance(text, str):
        raise _malformed(f"{where}.{key}", "no text")
    return text


def _malformed(where: str, what: str) -> ToolFailure:
    return ToolFailure(f"The server's answer is malformed: {where} is {what}.")
