"""The broker: serves the handle operations of calls, from a table that only the supervisor has.

A call's table has a row for each operation that its grants allow, and no other row. The look-up is the whole check: a
request without a row is refused and recorded, whatever the frame says and whoever wrote it.
"""

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from toolcell.backends.body import FREE_BYTES
from toolcell.backends.errors import BackendError, OutsideRules, Refused
from toolcell.backends.http import Requester
from toolcell.backends.http.feed import FEED_BYTES
from toolcell.backends.protocols import MemoryStore, WebClient
from toolcell.backends.records import namespace_of
from toolcell.rules.redaction import Redaction
from toolcell.store.journal.arguments import arguments_for_journal
from toolcell.wire.frames import REPLY_BYTES, Field
from toolcell_tools.capability import Capability
from toolcell_tools.handles import MemoryRecord

from .speaking import ChannelAccess, TooOften

TEXT_BYTES = 256 * 1024
MAX_HITS = 100
MAX_OPTIONS = 32
UPLOAD_BYTES = 4 * 1024 * 1024  # with its name, less than a request may have
MAX_FETCH_BYTES = 8 * 1024 * 1024
_NUMBERS = 2**31  # of watched requests
_MEDIA_TYPE = re.compile(r"[\w.+!#$&^-]+/[\w.+!#$&^-]+(?:; ?[\w-]+=[\w.+-]+)*", re.ASCII)  # RFC 6838, section 4.2


@dataclass(frozen=True, slots=True)
class Principal:
    """For whom the operations of one call run: the id of the session and the line of its agent, its backends, and the
    HTTP requester with its rules.
    """

    id: str
    line: tuple[str, ...]
    channel: ChannelAccess
    memory: MemoryStore
    web: WebClient
    http: Requester
    grow: Callable[[int], Coroutine[Any, Any, None]] | None = None
    """Waits for room for an answer of so many bytes, if the answer turns out to be large."""

    @property
    def sender(self) -> str:
        """The sender of its messages."""
        return "/".join((*self.line, self.id))

    @property
    def namespace(self) -> str:
        """The namespace of its memory."""
        return namespace_of(self.line)


Arguments = Mapping[str, Field]
Operation = Callable[[Principal, Arguments], Awaitable[Field]]


class Refusal(Exception):
    """The refusal that the tool gets instead of a result: its kind, its message, and data if there is any."""

    def __init__(self, kind: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.data = dict(data or {})

    def to_wire(self) -> dict[str, Field]:
        return {"kind": self.kind, "message": str(self), "data": self.data}


async def _channel_send(principal: Principal, arguments: Arguments) -> Field:
    return _plain((await principal.channel.send(_text(arguments, "text"), sender=principal.sender)).to_dict())


async def _channel_send_to(principal: Principal, arguments: Arguments) -> Field:
    text, to = _text(arguments, "text"), _label(arguments, "to")
    return _plain((await principal.channel.send(text, sender=principal.sender, to=to)).to_dict())


async def _channel_status(principal: Principal, arguments: Arguments) -> Field:
    return _plain(principal.channel.status.to_dict())


async def _channel_ask(principal: Principal, arguments: Arguments) -> Field:
    question, options = _text(arguments, "question"), _texts(arguments, "options", MAX_OPTIONS)
    return (await principal.channel.ask(question, options, sender=principal.sender))[: TEXT_BYTES // 4]


async def _channel_react(principal: Principal, arguments: Arguments) -> Field:
    message_id, emoji = _message_id(arguments), _label(arguments, "emoji")
    await principal.channel.react(message_id, emoji, sender=principal.sender)
    return None


async def _channel_edit(principal: Principal, arguments: Arguments) -> Field:
    message_id, text = _message_id(arguments), _text(arguments, "text")
    await principal.channel.edit(message_id, text, sender=principal.sender)
    return None


async def _channel_pin(principal: Principal, arguments: Arguments) -> Field:
    await principal.channel.pin(_message_id(arguments), sender=principal.sender)
    return None


async def _channel_upload(principal: Principal, arguments: Arguments) -> Field:
    name, media_type, data = _file_name(arguments), _media_type(arguments), arguments.get("data")
    if not isinstance(data, bytes) or len(data) > UPLOAD_BYTES:
        raise Refusal("execution", f"data must be bytes, at most {UPLOAD_BYTES:,}.")
    return _plain((await principal.channel.upload(name, data, media_type, sender=principal.sender)).to_dict())


async def _channel_read(principal: Principal, arguments: Arguments) -> Field:
    found = await principal.channel.read(_count(arguments, "limit", MAX_HITS))
    return [_plain(message.to_dict()) for message in found]


async def _memory_search(principal: Principal, arguments: Arguments) -> Field:
    query, limit = _text(arguments, "query"), _count(arguments, "limit", MAX_HITS)
    found = await principal.memory.search(query, limit=limit, namespace=principal.namespace)
    return [_plain(record.to_dict()) for record in found]


async def _memory_store(principal: Principal, arguments: Arguments) -> Field:
    text, kind, tags = _text(arguments, "text"), _text(arguments, "kind"), _texts(arguments, "tags", 64)
    record = MemoryRecord(id="", text=text, kind=kind, tags=tags)
    return await principal.memory.store(record, namespace=principal.namespace)


async def _web_search(principal: Principal, arguments: Arguments) -> Field:
    query, limit = _text(arguments, "query"), _count(arguments, "limit", MAX_HITS)
    return [_plain(hit.to_dict()) for hit in await principal.web.search(query, limit=limit)]


async def _web_fetch(principal: Principal, arguments: Arguments) -> Field:
    url, max_bytes = _text(arguments, "url"), _count(arguments, "max_bytes", MAX_FETCH_BYTES)
    return _plain((await principal.web.fetch(url, max_bytes=max_bytes)).to_dict())


async def _http_request(principal: Principal, arguments: Arguments) -> Field:
    headers, body = arguments.get("headers", {}), arguments.get("body", b"")
    if not isinstance(headers, dict):
        raise Refusal("execution", "headers must be a mapping of names to strings.")
    said = {name: value for name, value in headers.items() if isinstance(value, str)}
    if len(said) != len(headers):
        raise Refusal("execution", "headers must be a mapping of names to strings.")
    if not isinstance(body, bytes):
        raise Refusal("execution", "body must be bytes.")
    try:
        method, url = _text(arguments, "method"), _text(arguments, "url")
        if arguments.get("watch") is None:
            answer = await principal.http.request(method, url, said, body, grow=principal.grow)
        else:
            number = _count(arguments, "watch", _NUMBERS)
            answer = await principal.http.watched(number, method, url, said, body, grow=principal.grow)
    except Refused as error:  # by the profile's rules; neither a failure of the tool nor a missing capability
        raise Refusal("request_denied", str(error)) from error
    return _plain(answer.to_dict())


async def _http_events(principal: Principal, arguments: Arguments) -> Field:
    return await principal.http.events(_count(arguments, "watch", _NUMBERS))


async def _http_leave(principal: Principal, arguments: Arguments) -> Field:
    principal.http.leave(_count(arguments, "watch", _NUMBERS))
    return None


OPERATIONS: Mapping[str, tuple[Capability, Operation]] = {
    "channel.send": (Capability.CHANNEL, _channel_send),
    "channel.send_to": (Capability.CHANNEL, _channel_send_to),
    "channel.status": (Capability.CHANNEL, _channel_status),
    "channel.ask": (Capability.CHANNEL, _channel_ask),
    "channel.react": (Capability.CHANNEL, _channel_react),
    "channel.edit": (Capability.CHANNEL, _channel_edit),
    "channel.pin": (Capability.CHANNEL, _channel_pin),
    "channel.upload": (Capability.CHANNEL, _channel_upload),
    "channel.read": (Capability.CHANNEL, _channel_read),
    "memory.search": (Capability.MEMORY_READ, _memory_search),
    "memory.store": (Capability.MEMORY_WRITE, _memory_store),
    "web.search": (Capability.WEB, _web_search),
    "web.fetch": (Capability.WEB, _web_fetch),
    "http.request": (Capability.HTTP, _http_request),
    "http.events": (Capability.HTTP, _http_events),
    "http.leave": (Capability.HTTP, _http_leave),
}
"""All operations, each with the capability that puts it into a call's table."""

OF_A_REQUEST = frozenset({"http.events", "http.leave"})
"""Operations on a running `http.request`. The record of the request covers them."""
_READING = OF_A_REQUEST | {"channel.status", "channel.read", "memory.search", "web.search", "web.fetch"}
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1


def acts(operation: str, arguments: Arguments) -> bool:
    """Whether the operation may have an effect that lasts."""
    if operation == "http.request":
        return str(arguments.get("method", "")).upper() not in _SAFE_METHODS
    return operation not in _READING


def for_journal(arguments: Arguments, secrets: Redaction | None = None) -> dict[str, Any]:
    """The arguments of an operation as the journal keeps them, with a digest for each run of bytes. `secrets` are those
    of its call."""
    return arguments_for_journal(
        {
            name: f"{len(value):,} bytes, sha256:{sha256(value).hexdigest()}" if isinstance(value, bytes) else value
            for name, value in arguments.items()
        },
        secrets,
    )


_SMALL = 4 * 1024  # an answer without content
_RECORD = 64 * 1024  # a record of memory, as `SQLiteMemory` bounds them
_SEARCH = 2 * 1024 * 1024  # the most that a search engine may answer


def answer_bytes(operation: str, arguments: Arguments) -> int:
    """The bytes to reserve for the answer to this request, an estimate. An answer of `ctx.http` may grow beyond it."""
    if operation in ("memory.search", "channel.read"):
        return min(_SMALL + _asked(arguments, "limit", MAX_HITS) * _RECORD, REPLY_BYTES)
    if operation == "web.fetch":
        return _SMALL + _asked(arguments, "max_bytes", MAX_FETCH_BYTES)
    if operation == "web.search":
        return _SEARCH
    if operation == "channel.ask":
        return TEXT_BYTES
    if operation == "http.events":
        return FEED_BYTES
    if operation != "http.request":
        return _SMALL
    return FREE_BYTES if arguments.get("watch") is None else FREE_BYTES + 2 * FEED_BYTES


def _asked(arguments: Arguments, name: str, most: int) -> int:
    value = arguments.get(name)
    return min(max(value, 0), most) if isinstance(value, int) else 0


Table = Mapping[str, Operation]


def table_for(given: frozenset[Capability]) -> Table:
    """The operations of a call with these grants."""
    return {name: operation for name, (capability, operation) in OPERATIONS.items() if capability in given}


async def serve(table: Table, principal: Principal, operation: str, arguments: Arguments) -> Field:
    """Carry out one request. Raises Refusal. Any other exception of a backend propagates."""
    row = table.get(operation)
    if row is None:
        # The message is the same for forbidden and unknown operations, so a refusal reveals nothing.
        raise Refusal("permission_denied", f"The operation {operation[:64]!r} was not granted to this call.")
    try:
        return await row(principal, arguments)
    except OutsideRules as error:
        raise Refusal("request_denied", str(error)) from error
    except TooOften as error:
        raise Refusal("execution", str(error), {"retry_after_s": round(error.retry_after_s, 3)}) from error
    except BackendError as error:
        raise Refusal("execution", str(error)) from error


def _text(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise Refusal("execution", f"{name} must be a string.")
    if len(value) > TEXT_BYTES or (not value.isascii() and len(value.encode()) > TEXT_BYTES):
        raise Refusal("execution", f"{name} is too long; at most {TEXT_BYTES:,} bytes can be sent at once.")
    return value


def _label(arguments: Arguments, name: str) -> str:
    """A short text that is not empty."""
    value = arguments.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= 256:
        raise Refusal("execution", f"{name} must be a string of 1 to 256 characters.")
    return value


def _message_id(arguments: Arguments) -> str:
    if arguments.get("message_id") == "":
        raise Refusal("execution", "This channel gave the message no id, so nothing can be done to it.")
    return _label(arguments, "message_id")


def _file_name(arguments: Arguments) -> str:
    """The name of one file, which no channel can take for a path or for a second line."""
    name = _label(arguments, "name")
    if name in (".", "..") or not name.isprintable() or "/" in name or "\\" in name:
        raise Refusal("execution", "name must be the name of a file, without a directory and without line breaks.")
    return name


def _media_type(arguments: Arguments) -> str:
    media_type = _label(arguments, "media_type")
    if _MEDIA_TYPE.fullmatch(media_type) is None:
        raise Refusal("execution", "media_type must be a media type, such as 'text/plain'.")
    return media_type


def _texts(arguments: Arguments, name: str, most: int) -> tuple[str, ...]:
    value = arguments.get(name)
    if not isinstance(value, list) or len(value) > most or not all(isinstance(t, str) and len(t) <= 256 for t in value):
        raise Refusal("execution", f"{name} must be at most {most} short strings.")
    return tuple(str(text) for text in value)


def _count(arguments: Arguments, name: str, most: int) -> int:
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise Refusal("execution", f"{name} must be a whole number from 1 to {most:,}.")
    return value


def _plain(record: dict[str, Any]) -> dict[str, Field]:
    """The record with tuples as lists, as the wire has them."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in record.items()}  # pyright: ignore[reportUnknownArgumentType]
