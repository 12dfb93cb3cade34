"""The ends of our channels as state machines: a call process's pipes, the control socket, the zygote's socket.

The rules, which `sequence.FOLLOWS` and a few counters enforce:

1. A cell sends only during a call. A byte before the call, or a frame of another call number, is a violation. Only a
   kept process (`lifetime="session"`) may be late: its old frames are dropped and counted.
2. The first terminal frame (`Result` or `Error`) wins. Any frame after it is a violation.
3. A request number is used once. At most `in_flight` requests wait until their replies are written. A call sends at
   most `frames` frames and `report_bytes` bytes of progress, logs and spans.
4. On the control socket, the init sends `Hello` (or `Failed`) first, then a `Ready` or an `Exited` for each call
   process. Nothing follows `Failed`.
5. A zygote first reports whether cells can be made. Each message of its socket is one frame.

A violation is an event. A machine that has returned one stays broken and returns no further event.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, Final, Self, cast

from msgpack import unpackb

from toolcell_tools.returned import DISPLAY_TEXT_CHARS

from .frames import (
    HEADER,
    REPLY_BYTES,
    Buffer,
    Field,
    FrameDecoder,
    TooLarge,
    Unpackable,
    Violation,
    WireLimits,
    decode_trusted,
    encode,
    encode_report,
    encoded_bytes,
    integer,
    packed_wide,
)
from .messages import (
    KIND_OF,
    OUTPUT_BYTES,
    REASONS,
    VERSION,
    BindSession,
    Call,
    Cancel,
    Error,
    Exited,
    Heeds,
    Hello,
    Load,
    Log,
    Message,
    Output,
    Progress,
    Ready,
    Recycle,
    Reply,
    Request,
    Result,
    SpanEnd,
    SpanStart,
    from_fields,
    to_fields,
)
from .sequence import CALLED, DONE, FOLLOWS, IDLE, OPEN, OVER, SILENT, Stage, Way, following
from .switches import is_on

WireEvent = Message | Violation
ENVELOPE_BYTES: Final = 128
"""Bytes of a Result's frame besides output, content, artifacts, values and display: length, kind, number, keys."""


class LocalProtocolError(Exception):
    """Our side tried to send a message that is not allowed now. This is a bug in toolcell: please report it."""


_FROM_CALL: Final = FOLLOWS[Way.FROM_CALL]
_TO_CALL: Final = FOLLOWS[Way.TO_CALL]
_TERMINAL: Final = (Result, Error)
_CALL_KIND: Final = KIND_OF[Call]
_STREAMS: Final = (1, 2)
_SKIPPED: Final = 2**40  # the most bytes that a command can have printed between two Outputs


_unpack = cast("Callable[..., list[Any]]", unpackb)

CALL: Final = bytes((0x96, KIND_OF[Call]))
"""The first bytes of a call's frame after its header: an array of six fields, and the kind."""
FLAT_BYTES: Final = 4096 if is_on("flat_answer") else 0
"""The longest frame that `flat_answer` reads: an answer that it leaves to the plain decoder is decoded twice."""
_RESULT_AFTER_LENGTH: Final = Struct(">I2s").pack
_RESULT: Final = bytes((0x93, KIND_OF[Result]))  # the start of a body: an array of three fields, and the kind
_PAYLOAD_AT: Final = tuple(
    7 if first < 0x80 else {0xCC: 8, 0xCD: 9, 0xCE: 11}.get(first, 0)  # uint 8, 16, 32; 0 is no place of a map
    for first in range(256)
)
"""Where the payload begins in the frame of a Result, by the first byte of its number."""
_MAP: Final = 0x80  # and the number of pairs, up to 15: a larger map begins with another byte
_MOST_PAIRS: Final = 15
_FLAT: Final = frozenset({str, int, float, bool, type(None)})
_type_of: Callable[[object], type[object]] = type  # type checkers do not know the type() of an Any


def flat_answer(data: bytes | memoryview, seq: int) -> dict[str, Any] | None:
    """The payload of the `Result` of call `seq`, if these bytes are its frame and no part of the payload is a list or a
    map; else None, and the plain decoder has to read them. The plain decoder would return the same, because such bytes
    can break only the rules that are checked here: one frame, this number, keys that are strings and differ, no bytes.
    """
    if len(data) < 7 or data[:6] != _RESULT_AFTER_LENGTH(len(data) - 4, _RESULT):
        return None
    try:
        _kind, number, payload = _unpack(data[4:])
    except Exception:  # the plain decoder says what is wrong
        return None
    if number != seq or payload.__class__ is not dict or len(payload) > _MOST_PAIRS:
        return None
    if data[_PAYLOAD_AT[data[6]]] != _MAP + len(payload):  # a key came twice
        return None
    for key, value in payload.items():
        if _type_of(key) is not str or _type_of(value) not in _FLAT:
            return None
    return payload


def display_of(output: Field) -> Field:
    """The display of a result that has none: the output itself if it is a text, cut if it is too long for people."""
    if type(output) is str and len(output) > DISPLAY_TEXT_CHARS:
        return output[: DISPLAY_TEXT_CHARS - 1] + "…"
    return output


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Bounds for one call: frames in total (progress, logs, requests, output), requests that wait for a reply, and
    bytes of progress, logs and spans."""

    frames: int = 100_000
    in_flight: int = 256
    report_bytes: int = 4 * 1024 * 1024


class SupervisorLink:
    """The supervisor's end of one cell's pipes: calls and replies out, frames of the call process in."""

    def __init__(self, limits: WireLimits, call_limits: CallLimits | None = None, *, kept: bool = False) -> None:
        self._limits = limits
        self._call_limits = call_limits or CallLimits()
        self._reply_limits = replace(limits, frame_bytes=min(limits.frame_bytes, REPLY_BYTES))
        self.decoder = self._decoder = FrameDecoder(limits)
        self._kept = kept
        self.state = IDLE
        self.seq: int = 0
        self.stale = 0  # frames of earlier calls that a kept process sent late
        self._frames = 0
        self._report_bytes = 0
        self._pending: set[int] = set()
        self._replied: set[int] = set()  # requests whose replies are not written yet
        self._last_request = 0
        least = min(limits.frame_bytes, limits.string_bytes, limits.result_bytes, limits.elements)
        self._flat_bytes = min(FLAT_BYTES, least) if min(limits.containers, limits.depth) > 1 else 0

    def __repr__(self) -> str:
        return f"<SupervisorLink {self.state.value} · call {self.seq} · {len(self._pending)} requests pending>"

    @property
    def partial(self) -> bool:
        """Whether a frame has arrived only in part."""
        return self._decoder.partial

    @property
    def broken(self) -> Violation | None:
        return self._decoder.broken

    def call(
        self,
        call_id: str,
        tool: str,
        context: Mapping[str, Field],
        arguments: Mapping[str, Any],
        packed: bytes | None = None,
    ) -> list[Buffer]:
        """Return the buffers that carry the next `Call`. `packed` are the arguments as `frames.packed` encoded them, if
        it did. Raises LocalProtocolError if no call may be sent now.
        """
        if self.state is not IDLE:
            raise LocalProtocolError(f"Call cannot be sent while {self.state.value}.")
        seq = self.seq + 1
        # This may raise, and then the state is unchanged.
        fields = (_CALL_KIND, seq, call_id, tool, context)
        try:
            buffers = encode((*fields, None if packed else arguments), self._limits, packed or b"")
        except TooLarge:
            raise
        except Unpackable:
            buffers = encode((*fields, None), self._limits, last=packed_wide(arguments))
        self.seq = seq
        self._frames = self._report_bytes = self._last_request = 0
        self.state = CALLED
        return buffers

    def send(self, message: Reply | Cancel) -> list[Buffer]:
        """Return the buffers that carry `message`. Raises LocalProtocolError if it may not be sent now."""
        if self.state is not CALLED:
            raise LocalProtocolError(f"{type(message).__name__} cannot be sent while {self.state.value}.")
        if message.seq != self.seq:
            raise LocalProtocolError(f"Call number {self.seq} is running, not {message.seq}.")
        if isinstance(message, Reply) and message.request not in self._pending:
            raise LocalProtocolError(f"Request {message.request} is not waiting for a reply.")
        if not isinstance(message, Reply):
            return encode(to_fields(message), self._limits)
        buffers = encode(to_fields(message), self._reply_limits)
        self._pending.discard(message.request)
        self._replied.add(message.request)
        return buffers

    def written(self, request: int) -> None:
        """Note that the reply to this request is written, so that another request may wait."""
        self._replied.discard(request)

    def receive(self, data: Buffer) -> list[WireEvent]:
        """Take bytes from the cell and return their events. Nothing is returned after the first Violation."""
        decoder = self._decoder
        if len(data) <= self._flat_bytes and self.state is CALLED and decoder.is_between_frames:
            answer = flat_answer(data, self.seq)
            if answer is not None and self._frames < self._call_limits.frames:
                self.state = DONE
                return [Result(self.seq, answer)]
        events: list[WireEvent] = []
        for frame, size in zip(decoder.feed(data), decoder.sizes, strict=True):
            said = frame if isinstance(frame, Violation) else from_fields(frame)
            event = said if isinstance(said, Violation) else self._judge(said, size)
            if event is not None:
                events.append(event)
                if isinstance(event, Violation):
                    decoder.refuse(event)
                    break
        return events

    @property
    def _ended(self) -> int:
        """The number of the last finished call."""
        return self.seq - 1 if self.state is CALLED else self.seq

    def _judge(self, message: Message, size: int) -> WireEvent | None:
        following = _FROM_CALL[self.state].get(type(message))
        if following is None or message[0] != self.seq:  # the first field of every message of a call process
            return self._misplaced(message)
        self._frames += 1
        if self._frames > self._call_limits.frames:
            return Violation("too many frames", f"over {self._call_limits.frames:,} in one call")
        if isinstance(message, Result):
            if size > self._limits.result_bytes and _oversized(message, size, self._limits):
                return Violation("result too large", f"over {self._limits.result_bytes:,} bytes")
        elif isinstance(message, Request):
            if message.request <= self._last_request:
                return Violation("request number", f"{message.request} after {self._last_request}")
            if len(self._pending) + len(self._replied) >= self._call_limits.in_flight:
                return Violation("too many requests", f"over {self._call_limits.in_flight} waiting at once")
            self._last_request = message.request
            self._pending.add(message.request)
        elif isinstance(message, (Progress, Log, SpanStart, SpanEnd)):
            self._report_bytes += size
            if self._report_bytes > self._call_limits.report_bytes:
                return Violation("too many bytes", f"over {self._call_limits.report_bytes:,} of reports")
        elif isinstance(message, Output):
            bounded = 0 <= message.skipped <= _SKIPPED and len(message.data) <= OUTPUT_BYTES
            if message.stream not in _STREAMS or not bounded:
                return Violation("malformed message", "an Output is of stream 1 or 2, and bounded")
        elif isinstance(message, Error) and message.reason not in REASONS:
            return Violation("malformed message", f"Error.reason is {message.reason[:40]!r}")
        self.state = following
        return message

    def _misplaced(self, message: Message) -> Violation | None:
        """The violation of a message that is out of place; None for a late one of a kept process."""
        name = type(message).__name__
        seq = getattr(message, "seq", None)
        if self._kept and isinstance(seq, int) and 0 < seq <= self._ended:
            if not isinstance(message, (Progress, Log, Request, Output, Heeds, SpanStart, SpanEnd)):
                return Violation("second result", f"{name} of call {seq} after its end")
            self.stale += 1
            if self.stale > self._call_limits.frames:
                return Violation("too many frames", f"over {self._call_limits.frames:,} late ones")
            return None
        if type(message) not in _FROM_CALL[self.state]:
            if self.state is DONE and isinstance(message, _TERMINAL):
                return Violation("second result", f"{name} after the call's end")
            return Violation("frame out of place", f"{name} while {self.state.value}")
        return Violation("wrong call number", f"{name} of call {seq} during call {self.seq}")

    def next_call(self) -> None:
        """Reset after a call whose process is gone. The caller has dropped the rest of the pipe."""
        self.state = IDLE
        self._pending.clear()
        self._replied.clear()
        self._decoder.clear()

    def next_kept_call(self) -> None:
        """Reset after a call whose process stays for the next one. A half-read frame stays too."""
        self.state = IDLE
        if self._last_request:
            self._pending.clear()
            self._replied.clear()


def _oversized(result: Result, size: int, limits: WireLimits) -> bool:
    """Whether a Result's frame of `size` bytes exceeds the limit, which excludes the display and the envelope."""
    display = result.payload.get("display")
    beside = len(display.encode("utf-8", "replace")) if isinstance(display, str) else 0
    return size - beside > limits.result_bytes + ENVELOPE_BYTES


def result_fits(payload: dict[str, Field], result_bytes: int) -> bool:
    """Whether a cell with this limit, in bytes, could send this payload as a result."""
    limits = WireLimits.for_results(result_bytes)
    size = encoded_bytes(payload)
    return size <= result_bytes or (size <= limits.frame_bytes and not _oversized(Result(0, payload), size, limits))


_HEADER_BYTES: Final = HEADER.size


class CellLink:
    """The call process's end: calls and replies in, results and requests out."""

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self._decoder = FrameDecoder(limits, decode_trusted)
        self._partial = False
        self.state = IDLE
        self.seq: int = 0

    def __repr__(self) -> str:
        return f"<CellLink {self.state.value} · call {self.seq}>"

    def send(
        self, message: Result | Error | Progress | Log | Request | Output | Heeds | SpanStart | SpanEnd
    ) -> list[Buffer]:
        """Return the buffers that carry `message`. Raises Unpackable if msgpack cannot carry it or it is too large."""
        following = _FROM_CALL[self.state].get(type(message))
        if following is None:
            raise LocalProtocolError(f"{type(message).__name__} cannot be sent while {self.state.value}.")
        if following is CALLED:
            return encode_report((KIND_OF[type(message)], *message), self._limits)
        buffers = encode((KIND_OF[type(message)], *message), self._limits)
        size = sum(map(len, buffers))
        if size > self._limits.result_bytes and isinstance(message, Result) and _oversized(message, size, self._limits):
            raise TooLarge(f"the result has more than {self._limits.result_bytes:,} bytes")
        self.state = following
        return buffers

    def called(self, data: Buffer) -> Call | None:
        """The call, if these bytes are its whole frame, as usual; otherwise None, and `receive` takes the bytes.

        This is one function on purpose: each extra Python call writes to pages that a forked process must then copy.
        """
        length = len(data) - _HEADER_BYTES
        if data[_HEADER_BYTES : _HEADER_BYTES + 2] != CALL or data[:_HEADER_BYTES] != length.to_bytes(
            _HEADER_BYTES, "big"
        ):
            return None
        if self._partial or self.state is CALLED:
            return None
        try:
            call = Call(*_unpack(data[_HEADER_BYTES:], ext_hook=integer)[1:])
        except (ValueError, TypeError):  # `receive` returns the violation
            return None
        self.seq = call[0]
        self.state = CALLED
        return call

    def receive(self, data: Buffer) -> list[WireEvent]:
        """Take bytes from the supervisor and return their events. Nothing is returned after the first Violation."""
        events: list[WireEvent] = []
        frames = self._decoder.feed(data)
        self._partial = self._decoder.partial
        for frame in frames:
            event: WireEvent = from_fields(frame) if isinstance(frame, list) else frame
            following = _TO_CALL[self.state].get(type(event)) if not isinstance(event, Violation) else None
            if following is None:
                if not isinstance(event, Violation):
                    event = Violation("frame out of place", f"{type(event).__name__} while {self.state.value}")
                self._decoder.refuse(event)
                return [*events, event]
            self.state = following
            if isinstance(event, Call):
                self.seq = event.seq
            elif following is DONE:
                continue  # it crossed our answer: nobody waits for it, and it is not for the next call
            events.append(event)
        return events


CONTROL_LIMITS: Final = WireLimits(frame_bytes=256 * 1024 * 1024, string_bytes=64 * 1024 * 1024)
"""The limits of the control socket. One `Load` carries every tool of a cell, some of them by value."""


class ControlLink:
    """The supervisor's end of the control socket: `Load` and `BindSession` out, the init's reports in. `recycle`
    makes the `Recycle` of each call.
    """

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self._decoder = FrameDecoder(limits)
        self._said = self._heard = SILENT

    def send(self, message: Load | BindSession) -> list[Buffer]:
        """Return the buffers that carry `message`. Raises Unpackable, or LocalProtocolError if it is out of place."""
        said = allowed(Way.TO_INIT, self._said, message)
        buffers = encode(to_fields(message), self._limits)
        self._said = said
        return buffers

    def receive(self, data: Buffer) -> list[WireEvent]:
        """Take bytes from the init and return its messages. Nothing is returned after the first Violation."""
        events: list[WireEvent] = []
        for frame in self._decoder.feed(data):
            said = frame if isinstance(frame, Violation) else from_fields(frame)
            event = said if isinstance(said, Violation) else self._judge(said)
            events.append(event)
            if isinstance(event, Violation):
                self._decoder.refuse(event)
                break
        return events

    def _judge(self, message: Message) -> WireEvent:
        if isinstance(message, Hello) and message.version != VERSION:
            return Violation("protocol version", f"the cell speaks {message.version}, the supervisor {VERSION}")
        heard = following(Way.FROM_INIT, self._heard, message)
        if heard is None:
            where = {SILENT: "before Hello", OPEN: "on the control socket", OVER: "after Failed"}[self._heard]
            return Violation("frame out of place", f"{type(message).__name__} {where}")
        self._heard = heard
        return message


# The control messages of each call are packed and read by hand. That takes a tenth of the time, and a forked init
# writes to 40 pages fewer, which it would copy again after each fork. The general codec reads these frames, and the
# other way.

_BY_HAND: Final = is_on("hand_packed")
# A frame's length, an array (0x90 + fields), the kind, then each field after the byte of its type: uint 32 (0xce), int
# 32 (0xd2), uint 64 (0xcf), float 64 (0xcb). false and true are one byte (0xc2, 0xc3).
_NUMBER_AND_BOOL: Final = Struct(">I3sIB").pack
_EXITED_FIELDS: Final = Struct(">I3sIcicdcQ").pack
_RECYCLE: Final = bytes((0x93, KIND_OF[Recycle], 0xCE))
_READY: Final = bytes((0x93, KIND_OF[Ready], 0xCE))
_EXITED: Final = bytes((0x95, KIND_OF[Exited], 0xCE))


def recycle(process: int, account: bool) -> bytes:
    """The frame of a `Recycle`, which ends the call of a process or asks for the next process."""
    if not _BY_HAND:
        return _plain(Recycle(process, account))
    return _NUMBER_AND_BOOL(8, _RECYCLE, process, 0xC2 + account)


def ready(process: int, waiting: bool) -> bytes:
    """The frame of a `Ready`."""
    if not _BY_HAND:
        return _plain(Ready(process, waiting))
    return _NUMBER_AND_BOOL(8, _READY, process, 0xC2 + waiting)


def exited(process: int, code: int, cpu_s: float, max_rss_bytes: int) -> bytes:
    """The frame of an `Exited`."""
    if not _BY_HAND:
        return _plain(Exited(process, code, cpu_s, max_rss_bytes))
    return _EXITED_FIELDS(30, _EXITED, process, b"\xd2", code, b"\xcb", cpu_s, b"\xcf", max_rss_bytes)


def recycled(frames: bytes) -> list[tuple[int, bool]]:
    """The fields of each `Recycle` frame. A frame is its length (below 256), an array of 3, the kind, the number (one
    byte, or a type byte and up to four more), and the flag."""
    if not _BY_HAND:
        read = [from_fields(frame) for frame in FrameDecoder(CONTROL_LIMITS).feed(frames) if isinstance(frame, list)]
        return [(one[0], one[1]) for one in read if isinstance(one, Recycle)]
    found: list[tuple[int, bool]] = []
    while frames:
        last = 3 + frames[3]
        found.append((frames[6] if last == 7 else int.from_bytes(frames[7:last], "big"), frames[last] == 0xC3))
        frames = frames[last + 1 :]
    return found


def _plain(message: Message) -> bytes:
    return b"".join(encode(to_fields(message), CONTROL_LIMITS))


ZYGOTE_LIMITS: Final = WireLimits(frame_bytes=256 * 1024)
"""The limits of the zygote's socket. Each frame is one SEQPACKET message (unix(7)), and profiles have a few KiB."""


class ZygoteLink:
    """Either end of the zygote's socket. The two sides trust each other. Each message is complete, and its descriptors
    come with it."""

    def __init__(self, sends: Way, receives: Way) -> None:
        self._sends = sends
        self._receives = receives
        self._said = self._heard = SILENT

    @classmethod
    def of_supervisor(cls) -> Self:
        return cls(Way.TO_ZYGOTE, Way.FROM_ZYGOTE)

    @classmethod
    def of_zygote(cls) -> Self:
        return cls(Way.FROM_ZYGOTE, Way.TO_ZYGOTE)

    def send(self, message: Message) -> bytes:
        """Return the frame that carries `message`. Raises Unpackable, or LocalProtocolError if it is out of place."""
        said = allowed(self._sends, self._said, message)
        frame = b"".join(encode(to_fields(message), ZYGOTE_LIMITS))
        self._said = said
        return frame

    def receive(self, frame: bytes) -> WireEvent:
        """The message of a frame, or a Violation."""
        (length,) = HEADER.unpack_from(frame) if len(frame) > HEADER.size else (0,)
        if len(frame) != HEADER.size + length:
            return Violation("frame length", f"{length:,}, of a message of {len(frame):,} bytes")
        fields = decode_trusted(frame[HEADER.size :], ZYGOTE_LIMITS)
        message = fields if isinstance(fields, Violation) else from_fields(fields)
        if isinstance(message, Violation):
            return message
        heard = following(self._receives, self._heard, message)
        if heard is None:
            return Violation("frame out of place", f"{type(message).__name__} while {self._heard.value}")
        self._heard = heard
        return message


def allowed(way: Way, stage: Stage, message: Message) -> Stage:
    """The stage after a message that we send. Raises LocalProtocolError if it may not be sent now."""
    after = following(way, stage, message)
    if after is None:
        raise LocalProtocolError(f"{type(message).__name__} cannot be sent while {stage.value}.")
    return after
