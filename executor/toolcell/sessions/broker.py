"""The broker: serves the handle operations of calls, from a table that only the supervisor has.

A call's table has a row for each operation that its grants allow, and no other row. The look-up is the whole check: a
request without a row is refused and recorded, whatever the frame says and whoever wrote it. `OPERATIONS` has all rows,
with the types of the arguments, which are checked here before a backend gets them.
"""

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final, NoReturn, cast

from toolcell.backends.body import FREE_BYTES
from toolcell.backends.http import Requester
from toolcell.backends.http.event_stream import FEED_BYTES
from toolcell.backends.protocols import (
    BackendError,
    FetchedPage,
    MemoryStore,
    NotConfigured,
    OutsideRules,
    Refused,
    WebClient,
)
from toolcell.backends.records import namespace_of
from toolcell.rules.redaction import Redaction
from toolcell.store.journal.arguments import arguments_for_journal
from toolcell.wire.frames import REPLY_BYTES, Field
from toolcell_tools.capability import Capability
from toolcell_tools.handles import MAX_FETCH_BYTES, MAX_HITS, OPERATIONS, MemoryRecord, may_act

from .channel_access import ChannelAccess, TooOften

TEXT_BYTES = 256 * 1024
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
CarriedOut = Callable[..., Awaitable[object]]
"""Carries out an operation, with the principal and the checked arguments."""
Table = Mapping[str, CarriedOut]
"""The operations of one call."""


class Refusal(Exception):
    """The refusal that the tool gets instead of a result: its kind, its message, and data if there is any."""

    def __init__(self, kind: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.data = dict(data or {})

    def to_wire(self) -> dict[str, Field]:
        return {"kind": self.kind, "message": str(self), "data": self.data}


_SMALL = 4 * 1024  # an answer without content
_RECORD = 64 * 1024  # a record of memory, as `SQLiteMemory` bounds them
_SEARCH = 2 * 1024 * 1024  # the most that a search engine may answer
Room = int | Callable[[Arguments], int]
"""The bytes to reserve for an answer, an estimate; by the arguments, where it depends on them."""
_CARRIED_OUT: dict[str, CarriedOut] = {}
_ROOMS: dict[str, Room] = {}


def _carries_out(operation: str, room: Room = _SMALL) -> Callable[[CarriedOut], CarriedOut]:
    def note(function: CarriedOut) -> CarriedOut:
        _CARRIED_OUT[operation], _ROOMS[operation] = function, room
        return function

    return note


def _room_for_records(arguments: Arguments) -> int:
    return min(_SMALL + _asked(arguments, "limit", MAX_HITS) * _RECORD, REPLY_BYTES)


def _room_for_page(arguments: Arguments) -> int:
    return _SMALL + _asked(arguments, "max_bytes", MAX_FETCH_BYTES)


def _room_for_response(arguments: Arguments) -> int:
    """The answer may grow beyond this."""
    return FREE_BYTES if arguments.get("watch") is None else FREE_BYTES + 2 * FEED_BYTES


def _asked(arguments: Arguments, name: str, most: int) -> int:
    value = arguments.get(name)
    return min(max(value, 0), most) if isinstance(value, int) else 0


async def _on_channel(operation: str, principal: Principal, **arguments: object) -> None:
    """Carry out an operation of a channel that has no function of its own below."""
    await principal.channel.perform(operation, *arguments.values(), sender=principal.sender)


for _name in OPERATIONS:
    if _name.startswith("channel."):
        _CARRIED_OUT[_name] = partial(_on_channel, _name.removeprefix("channel."))


@_carries_out("channel.send")
async def _channel_send(principal: Principal, text: str) -> object:
    return _record(await principal.channel.send(text, sender=principal.sender))


@_carries_out("channel.send_to")
async def _channel_send_to(principal: Principal, text: str, to: str) -> object:
    return _record(await principal.channel.send(text, sender=principal.sender, to=to))


@_carries_out("channel.status")
async def _channel_status(principal: Principal) -> object:
    return _record(principal.channel.status)


@_carries_out("channel.ask", TEXT_BYTES)
async def _channel_ask(principal: Principal, question: str, options: tuple[str, ...]) -> object:
    return (await principal.channel.ask(question, options, sender=principal.sender))[: TEXT_BYTES // 4]


@_carries_out("channel.edit")
async def _channel_edit(principal: Principal, message_id: str, text: str) -> None:
    await principal.channel.edit(message_id, text, sender=principal.sender)


@_carries_out("channel.upload")
async def _channel_upload(principal: Principal, name: str, data: bytes, media_type: str) -> object:
    return _record(await principal.channel.upload(name, data, media_type, sender=principal.sender))


@_carries_out("channel.read", _room_for_records)
async def _channel_read(principal: Principal, limit: int) -> object:
    return _records(await principal.channel.read(limit))


@_carries_out("memory.search", _room_for_records)
async def _memory_search(principal: Principal, query: str, limit: int) -> object:
    return _records(await principal.memory.search(query, limit=limit, namespace=principal.namespace))


@_carries_out("memory.store")
async def _memory_store(principal: Principal, text: str, kind: str, tags: tuple[str, ...]) -> object:
    record = MemoryRecord(id="", text=text, kind=kind, tags=tags)
    return await principal.memory.store(record, namespace=principal.namespace)


@_carries_out("web.search", _SEARCH)
async def _web_search(principal: Principal, query: str, limit: int) -> object:
    return _records(await principal.web.search(query, limit=limit))


@_carries_out("web.fetch", _room_for_page)
async def _web_fetch(principal: Principal, url: str, max_bytes: int) -> object:
    return _record(await principal.web.fetch(url, max_bytes=max_bytes))


@_carries_out("http.request", _room_for_response)
async def _http_request(
    principal: Principal, method: str, url: str, headers: dict[str, str], body: bytes, watch: int | None
) -> object:
    try:
        if watch is None:
            return _record(await principal.http.request(method, url, headers, body, grow=principal.grow))
        return _record(await principal.http.watched(watch, method, url, headers, body, grow=principal.grow))
    except Refused as error:  # by the profile's rules; neither a failure of the tool nor a missing capability
        raise Refusal("request_denied", str(error)) from error


@_carries_out("http.events", FEED_BYTES)
async def _http_events(principal: Principal, watch: int) -> object:
    return await principal.http.events(watch)


@_carries_out("http.leave")
async def _http_leave(principal: Principal, watch: int) -> None:
    principal.http.leave(watch)


def facts_of(operation: str, arguments: Arguments, secrets: Redaction | None = None) -> dict[str, Any]:
    """An operation as the journal keeps it: its name, whether it may have an effect, and its arguments, with a digest
    for each run of bytes. `secrets` are those of its call."""
    kept = {
        name: f"{len(value):,} bytes, sha256:{sha256(value).hexdigest()}" if isinstance(value, bytes) else value
        for name, value in arguments.items()
    }
    return {"operation": operation, "effect": may_act(operation, arguments), **arguments_for_journal(kept, secrets)}


def answer_bytes(operation: str, arguments: Arguments) -> int:
    """The bytes to reserve for the answer to this request."""
    room = _ROOMS.get(operation, _SMALL)
    return room if isinstance(room, int) else room(arguments)


def table_for(given: frozenset[Capability]) -> Table:
    """The operations of a call with these grants."""
    return {name: _CARRIED_OUT[name] for name, row in OPERATIONS.items() if row.capability in given}


async def serve(table: Table, principal: Principal, operation: str, arguments: Arguments) -> Field:
    """Carry out one request. Raises Refusal. Any other exception of a backend propagates."""
    row = table.get(operation)
    if row is None:
        # The message is the same for forbidden and unknown operations, so a refusal reveals nothing.
        raise Refusal("permission_denied", f"The operation {operation[:64]!r} was not granted to this call.")
    try:
        checked = {
            name: _CHECKS[kind.check](name, arguments.get(name, kind.absent), kind.most)
            for name, kind in OPERATIONS[operation].arguments.items()
        }
        return cast("Field", await row(principal, **checked))
    except OutsideRules as error:
        raise Refusal("request_denied", str(error)) from error
    except TooOften as error:
        raise Refusal("execution", str(error), {"retry_after_s": round(error.retry_after_s, 3)}) from error
    except BackendError as error:
        raise Refusal("execution", str(error)) from error


def _text(name: str, value: Field, _most: int) -> str:
    if not isinstance(value, str):
        raise Refusal("execution", f"{name} must be a string.")
    if len(value) > TEXT_BYTES or (not value.isascii() and len(value.encode()) > TEXT_BYTES):
        raise Refusal("execution", f"{name} is too long; at most {TEXT_BYTES:,} bytes can be sent at once.")
    return value


def _label(name: str, value: Field, _most: int) -> str:
    """A short text that is not empty."""
    if not isinstance(value, str) or not 1 <= len(value) <= 256:
        raise Refusal("execution", f"{name} must be a string of 1 to 256 characters.")
    return value


def _message_id(name: str, value: Field, most: int) -> str:
    if value == "":
        raise Refusal("execution", "This channel gave the message no id, so nothing can be done to it.")
    return _label(name, value, most)


def _file_name(name: str, value: Field, most: int) -> str:
    """The name of one file, which no channel can take for a path or for a second line."""
    file = _label(name, value, most)
    if file in (".", "..") or not file.isprintable() or "/" in file or "\\" in file:
        raise Refusal("execution", "name must be the name of a file, without a directory and without line breaks.")
    return file


def _media_type(name: str, value: Field, most: int) -> str:
    media_type = _label(name, value, most)
    if _MEDIA_TYPE.fullmatch(media_type) is None:
        raise Refusal("execution", "media_type must be a media type, such as 'text/plain'.")
    return media_type


def _bytes(name: str, value: Field, most: int) -> bytes:
    if not isinstance(value, bytes) or len(value) > most:
        raise Refusal("execution", f"{name} must be bytes, at most {most:,}.")
    return value


def _texts(name: str, value: Field, most: int) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > most or not all(isinstance(t, str) and len(t) <= 256 for t in value):
        raise Refusal("execution", f"{name} must be at most {most} short strings.")
    return tuple(str(text) for text in value)


def _count(name: str, value: Field, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise Refusal("execution", f"{name} must be a whole number from 1 to {most:,}.")
    return value


def _count_or_none(name: str, value: Field, most: int) -> int | None:
    return None if value is None else _count(name, value, most)


def _headers(name: str, value: Field, _most: int) -> dict[str, str]:
    said = {key: text for key, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}
    if not isinstance(value, dict) or len(said) != len(value):
        raise Refusal("execution", f"{name} must be a mapping of names to strings.")
    return said


def _body(name: str, value: Field, _most: int) -> bytes:
    if not isinstance(value, bytes):
        raise Refusal("execution", f"{name} must be bytes.")
    return value


_CHECKS: Mapping[str, Callable[[str, Field, int], object]] = {
    "text": _text,
    "label": _label,
    "message id": _message_id,
    "file name": _file_name,
    "media type": _media_type,
    "bytes": _bytes,
    "texts": _texts,
    "count": _count,
    "count or none": _count_or_none,
    "headers": _headers,
    "body": _body,
}
"""The checks of `Argument.check`. Each gets the argument's name, its value and its bound."""


def _record(answer: Any) -> Field:
    """A record as the wire has it: a mapping, with lists for tuples. A backend that answers anything else has failed,
    and not the tool."""
    record: dict[str, Any] = answer.to_dict()
    return {key: list(value) if isinstance(value, tuple) else value for key, value in record.items()}  # pyright: ignore[reportUnknownArgumentType]


def _records(answer: Iterable[Any]) -> Field:
    return [_record(each) for each in answer]


class OnNodes:
    """Stands in the driver's process for a session's memory or web client that the nodes of a cluster have."""

    def __init__(self, what: str) -> None:
        self._what = what

    async def search(self, query: str, *, limit: int, namespace: str = "") -> list[Any]:
        self._refuse()

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        self._refuse()

    async def fetch(self, url: str, *, max_bytes: int) -> FetchedPage:
        self._refuse()

    async def fetch_within(self, url: str, *, max_bytes: int, check: Callable[[str], None]) -> FetchedPage:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotConfigured(
            f"The {self._what} is on the nodes of the cluster, where tools use it. Open the session with "
            f"{self._what}=… to have it in this process."
        )


MEMORY_ON_NODES: Final = OnNodes("memory")
WEB_ON_NODES: Final = OnNodes("web")
