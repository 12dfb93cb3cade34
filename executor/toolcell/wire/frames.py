"""Length-prefixed msgpack frames: a 4-byte big-endian length, then one msgpack array of fewer than 16 fields.

Nothing in a frame is trusted. The length is checked before the body is buffered, the number of elements before msgpack
decodes, the size of each string and container during decoding, and the depth before the value is returned. A failed
check is a `Violation`, which is a value: decoding never raises into the caller.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self, cast

import msgpack

HEADER = struct.Struct(">I")
_HEADER_BYTES = HEADER.size
_FIRST = 0x90  # msgpack fixarray, the first byte of every message
_AROUND_BYTES = 320 * 1024  # a display (64,000 characters) and the envelope; requests, which hold 256 KiB of text
REQUEST_BYTES = 4 * 1024 * 1024 + 64 * 1024
"""The most bytes in the frame of a request, of progress or of a log: the body of an HTTP request may have 4 MiB, and
the rest is for its URL and headers."""
REPLY_BYTES = 8 * 1024 * 1024 + _AROUND_BYTES
"""The most bytes in a reply's frame, which holds an HTTP answer, a page or the records of a search."""
_LARGE = 1024 * 1024  # above this, header and body are two buffers (writev(2)), to avoid a copy

REQUEST = 20  # a kind of message that may hold bytes: the body that a tool sends to the web
OUTPUT = 21  # the other such kind: what a command of the call has printed
_WITH_BYTES = frozenset((REQUEST, OUTPUT))
_REPORTS = frozenset((*range(18, 32), *range(0xCC, 0xD4)))
"""The second byte of a body, which is the kind, in messages of a call process before its result, such as a request.
Also the first bytes of longer encodings of integers, because a cell may write any kind with one."""
_NO_BYTES = -2  # msgpack's max_bin_len: 0 would accept b"", and -1 means no limit

_IN_PIECES = 64 * 1024  # a longer frame arrives in several reads

Buffer = bytes | memoryview
Field = None | bool | int | float | str | bytes | list["Field"] | dict[str, "Field"]


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds for one frame: bytes, nesting, containers, elements in all containers, bytes of one string.

    The frame's own array is the first level. A value that a tool returns or receives may have 64 levels, 50,000
    containers and 1,000,000 elements (`toolcell_tools.encode`). The bounds are higher, because a message has content
    and values besides the output. Decoding a container takes 1 µs, in which nothing else is served.
    """

    frame_bytes: int = 17 * 1024 * 1024
    depth: int = 72  # monty uses 48, msgpack's own stack ends near 1,000
    containers: int = 250_000
    elements: int = 1_010_000
    string_bytes: int = 17 * 1024 * 1024
    result_bytes: int = 17 * 1024 * 1024  # a Result without its display
    # For frames before the result. Many requests and logs can wait at a time, and a decoded small element takes many
    # times its encoded bytes.
    request_bytes: int = REQUEST_BYTES
    request_containers: int = 1_000
    request_elements: int = 10_000

    @classmethod
    def for_results(cls, result_bytes: int) -> Self:
        """The limits of a cell whose results may have so many bytes, plus the bytes of the message around a result."""
        frame_bytes = result_bytes + _AROUND_BYTES
        return cls(
            frame_bytes=frame_bytes,
            string_bytes=frame_bytes,
            result_bytes=result_bytes,
            request_bytes=min(frame_bytes, REQUEST_BYTES),
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """How the peer broke the protocol. The cell that did so is ended and never used again."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Unpackable(ValueError):
    """The message holds a value that msgpack cannot carry."""


class TooLarge(Unpackable):
    """The message is larger than a frame may be."""


# For reuse: a new packer allocates 256 KiB (msgpack _packer.pyx). A kept one is as large as the largest frame it held.
_packers: list[msgpack.Packer] = []
_strict_packers: list[msgpack.Packer] = []
_KEPT_BYTES = 1024 * 1024  # the kept packer holds no larger frame, which is packed again


def packed(value: object) -> bytes | None:
    """`value`, encoded as part of a frame. None if it has a value whose type is not exactly None, bool, int, float,
    str, bytes, list or dict, or if it nests hundreds of levels. Keys may have any of these types.
    """
    try:
        packer = _strict_packers.pop()
    except IndexError:
        packer = msgpack.Packer(strict_types=True)
    try:
        data = packer.pack(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if not _strict_packers and len(data) <= _KEPT_BYTES:
        _strict_packers.append(packer)
    return data


_WIDE: Final = 1  # msgpack's type of an extension: an integer of more than 64 bits, two's complement, big-endian


def packed_wide(value: object) -> bytes:
    """`value`, encoded as part of a frame, with integers of any size. Only a supervisor sends such a value, in the
    arguments of a call: no frame of a cell may have an extension. Raises Unpackable."""
    try:
        return msgpack.Packer(default=extended).pack(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Unpackable(f"the message cannot be encoded: {error}") from error


def extended(value: object) -> msgpack.ExtType:
    """msgpack's `default`: an integer of more than 64 bits as an extension. Raises TypeError for other values."""
    if type(value) is not int:
        raise TypeError(f"a {type(value).__name__} cannot be encoded")
    return msgpack.ExtType(_WIDE, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def integer(code: int, data: bytes) -> object:
    """msgpack's `ext_hook`: the integer of an extension that a supervisor sent."""
    return int.from_bytes(data, "big", signed=True) if code == _WIDE else msgpack.ExtType(code, data)


def encode(fields: Sequence[object], limits: WireLimits, last: bytes = b"") -> list[Buffer]:
    """Return the buffers of one frame, to be written in order.

    `last` is a value that is already `packed`; it replaces a last field that is None. Raises Unpackable.
    """
    try:
        packer = _packers.pop()
    except IndexError:  # no packer yet, or another thread uses it
        packer = msgpack.Packer()
    try:
        body = packer.pack(fields)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Unpackable(f"the message cannot be encoded: {error}") from error
    if not _packers:
        _packers.append(packer)
    if last:
        body = body[:-1] + last
    size = len(body)
    if size > limits.frame_bytes:
        raise TooLarge(_TOO_LONG.format(size, limits.frame_bytes))
    if size > limits.elements and more_elements_than(limits.elements, body):  # the receiver would refuse it
        raise TooLarge(_TOO_MANY.format(limits.elements))
    header = size.to_bytes(_HEADER_BYTES, "big")
    return [header, body] if size > _LARGE else [header + body]


def encode_report(fields: Sequence[object], limits: WireLimits) -> list[Buffer]:
    """As `encode`, for a request, progress, a log or output, whose limits are lower."""
    buffers = encode(fields, limits)
    size = sum(map(len, buffers)) - _HEADER_BYTES
    if size > limits.request_bytes:
        raise TooLarge(f"it has {size:,} bytes; at most {limits.request_bytes:,} can be sent at once")
    if size > limits.request_containers:  # otherwise there are not even so many elements
        body = buffers[1] if len(buffers) > 1 else memoryview(buffers[0])[_HEADER_BYTES:]
        if more_elements_than(limits.request_containers, body):
            refused = decode(body, limits)
            if isinstance(refused, Violation):
                raise TooLarge(f"it has {refused}")
    return buffers


def encoded_bytes(value: object) -> int:
    """The number of bytes of a frame that holds only this value."""
    return _HEADER_BYTES + len(msgpack.Packer(default=extended).pack((value,)))


_TOO_LONG = "the message has {:,} bytes; a frame holds at most {:,}"
_TOO_MANY = "the message has too many elements; a frame holds at most {:,}"


class _Broken(Exception):
    """Raised by the decoding hooks to stop msgpack at once."""


_STR = frozenset({str})


class _Census:
    """Counts containers while msgpack decodes. Refuses too many containers, ext types, duplicate keys and keys that are
    not strings.
    """

    __slots__ = ("containers", "most")

    def __init__(self, most: int) -> None:
        self.containers = 0
        self.most = most

    def array(self, items: list[Field]) -> list[Field]:
        self.containers += 1
        if self.containers > self.most:
            raise self._too_many()
        return items

    def mapping(self, pairs: list[tuple[str, Field]]) -> dict[str, Field]:
        self.containers += 1
        if self.containers > self.most:
            raise self._too_many()
        result = dict(pairs)
        if len(result) != len(pairs):
            raise _Broken("duplicate key", "a map names one key twice")
        if not _STR.issuperset(map(type, result)):  # strict_map_key also accepts bytes
            raise _Broken("map key", "a map has a key that is not a string")
        return result

    def _too_many(self) -> _Broken:
        return _Broken("too many containers", f"over {self.most:,} arrays and maps in one frame")


def _extension(code: int, data: bytes) -> object:
    raise _Broken("extension type", f"code {code}; only plain msgpack types may cross")


def _deeper_than(value: list[Field], limit: int) -> bool:
    """Whether containers nest deeper than `limit`. Walks level by level, without recursion."""
    level: list[list[Field] | dict[str, Field]] = [value]
    for _ in range(limit):
        deeper: list[list[Field] | dict[str, Field]] = []
        for container in level:
            children = container.values() if isinstance(container, dict) else container
            deeper.extend(child for child in children if isinstance(child, (list, dict)))
        if not deeper:
            return False
        level = deeper
    return True


# msgpack calls its hooks only when a container is complete. So nested containers of a million elements each could fill
# the memory before a hook could refuse them. Their headers are counted first, which bounds the cost of decoding.

_LENGTH_BYTES: Final = {
    **dict.fromkeys((0xC4, 0xD9), 1),  # bin8, str8
    **dict.fromkeys((0xC5, 0xDA, 0xDC, 0xDE), 2),  # bin16, str16, array16, map16
    **dict.fromkeys((0xC6, 0xDB, 0xDD, 0xDF), 4),  # bin32, str32, array32, map32
}
_PAST_ANY_END: Final = 1 << 40  # ext types and 0xc1: msgpack stops there, so what follows costs nothing


def _bytes_of(tag: int) -> int:
    """The bytes of an element whose first byte gives its size, that byte included; 0 if a length follows."""
    if tag in _LENGTH_BYTES:
        return 0
    if 0xA0 <= tag <= 0xBF:  # fixstr
        return 1 + (tag & 0x1F)
    if tag in (0xC1, 0xC7, 0xC8, 0xC9) or 0xD4 <= tag <= 0xD8:
        return _PAST_ANY_END
    return {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}.get(tag, 1)


_BYTES: Final = tuple(_bytes_of(tag) for tag in range(256))


def more_elements_than(limit: int, body: bytes | memoryview) -> bool:
    """Whether the containers of `body` declare more than `limit` elements in all: array items and map pairs."""
    end = len(body)
    if end <= limit:  # an element has at least one byte
        return False
    count, due, at = 0, 1, 0  # `due`: values that the headers so far have announced
    while due and at < end:
        tag = body[at]
        due -= 1
        size = _BYTES[tag]
        if size:
            at += size
            if 0x80 <= tag <= 0x9F:  # fixmap, fixarray
                size = tag & 0x0F
                count += size
                due += size if tag & 0x10 else 2 * size
        else:
            start = at + 1
            at = start + _LENGTH_BYTES[tag]
            size = int.from_bytes(body[start:at], "big")
            if tag >= 0xDC:  # array16 to map32
                count += size
                due += size if tag <= 0xDD else 2 * size
            else:
                at += size
        if count > limit:
            return True
    return False


_unpack = cast("Callable[..., list[Field]]", msgpack.unpackb)  # the result is checked: it may be any type


def decode(body: Buffer, limits: WireLimits) -> list[Field] | Violation:
    """Decode one frame's body into the list of its fields, or a Violation."""
    kind = body[1] if len(body) > 1 else 0
    elements, containers = limits.elements, limits.containers
    if kind in _REPORTS:
        elements, containers = limits.request_elements, limits.request_containers
        if len(body) > limits.request_bytes:
            return _too_large(len(body), limits)
    if len(body) > elements and more_elements_than(elements, body):  # an element has at least one byte
        return Violation("too many elements", f"over {elements:,} in one frame")
    census = _Census(containers)
    may_hold_bytes = kind in _WITH_BYTES
    try:  # msgpack itself refuses text that is not UTF-8, numbers as keys, and more elements than bytes
        fields = _unpack(
            body,
            list_hook=census.array,
            object_pairs_hook=census.mapping,
            ext_hook=_extension,
            max_str_len=limits.string_bytes,
            max_bin_len=limits.string_bytes if may_hold_bytes else _NO_BYTES,
            max_ext_len=0,
        )
    except _Broken as broken:
        return Violation(*broken.args)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        if not may_hold_bytes and "max_bin_len" in str(error):
            return Violation("bytes", "only a request may hold them; JSON has none")
        return Violation("undecodable frame", str(error)[:200] or type(error).__name__)
    if fields.__class__ is not list:
        return _not_an_array()
    # A frame of at most `depth` containers cannot nest deeper, so most frames need no walk.
    if census.containers > limits.depth and _deeper_than(fields, limits.depth):
        return Violation("nested too deep", f"over {limits.depth} levels")
    return fields


def decode_trusted(body: Buffer, limits: WireLimits) -> list[Field] | Violation:
    """As `decode`, for a body that the supervisor wrote and has checked."""
    try:
        fields = _unpack(body, ext_hook=integer)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        return Violation("undecodable frame", str(error)[:200] or type(error).__name__)
    return fields if fields.__class__ is list else _not_an_array()


def _too_large(length: int, limits: WireLimits) -> Violation:
    return Violation("request too large", f"{length:,} bytes; a request or report has at most {limits.request_bytes:,}")


def _not_an_array() -> Violation:
    return Violation("undecodable frame", "the body is not an array")


Decode = Callable[[Buffer, WireLimits], list[Field] | Violation]


class FrameDecoder:
    """Splits a byte stream into frames. After the first violation it stays broken and reads nothing."""

    __slots__ = ("_buffer", "_decode", "_limits", "begun", "broken", "of_report", "sizes")

    def __init__(self, limits: WireLimits, decode: Decode = decode) -> None:
        self._limits = limits
        self._decode = decode
        self._buffer = bytearray()
        self.begun = 0  # the length of a large frame that is arriving, 0 if there is none
        self.of_report = False  # whether that frame is a request, progress, a log or output
        self.broken: Violation | None = None
        self.sizes: list[int] = []  # the bytes of each frame that the last `feed` returned

    def __repr__(self) -> str:
        return f"<FrameDecoder {len(self._buffer):,} bytes waiting{f' · {self.broken}' if self.broken else ''}>"

    @property
    def partial(self) -> bool:
        """Whether a frame has arrived only in part."""
        return bool(self._buffer)

    @property
    def is_between_frames(self) -> bool:
        """Whether the next byte starts a frame."""
        return not self._buffer and self.broken is None

    def refuse(self, violation: Violation) -> None:
        """Stay broken from now on. The frame could be decoded, and its message is not allowed."""
        self.broken = violation

    def clear(self) -> None:
        """Forget partial data: the next byte starts a frame. A broken decoder stays broken."""
        self._buffer.clear()
        self.begun = 0

    def feed(self, data: Buffer) -> list[list[Field] | Violation]:
        """Take the next bytes of the stream. Returns the frames that are complete now, in order."""
        self.sizes = []
        if self.broken is not None:
            return []
        length = len(data) - _HEADER_BYTES
        if (
            not self._buffer
            and 0 < length <= self._limits.frame_bytes
            and HEADER.unpack_from(data)[0] == length  # the usual case: one read holds one frame
            and data[_HEADER_BYTES] & 0xF0 == _FIRST
        ):
            self.sizes = [_HEADER_BYTES + length]
            frame = self._decode(data[_HEADER_BYTES:], self._limits)
            if type(frame) is Violation:
                self.broken = frame
            return [frame]
        frames: list[list[Field] | Violation] = []
        buffer = self._buffer
        buffer += data
        start = self.begun = 0
        while len(buffer) - start >= _HEADER_BYTES:
            (length,) = HEADER.unpack_from(buffer, start)
            first = buffer[start + _HEADER_BYTES] if len(buffer) > start + _HEADER_BYTES else _FIRST
            kind = buffer[start + _HEADER_BYTES + 1] if len(buffer) > start + _HEADER_BYTES + 1 else 0
            problem = self._refuse(length, first, kind)
            if problem is not None:
                self.broken = problem
                self.sizes.append(_HEADER_BYTES)
                frames.append(problem)
                break
            end = start + _HEADER_BYTES + length
            if len(buffer) < end:
                if length > _IN_PIECES and kind:
                    self.begun, self.of_report = length, kind in _REPORTS
                break
            with memoryview(buffer) as view, view[start + _HEADER_BYTES : end] as body:
                frames.append(self._decoded(body, length))
            start = end
            if self.broken is not None:
                break
        if self.broken is not None:
            buffer.clear()
        elif start:
            del buffer[:start]
        return frames

    def _decoded(self, body: Buffer, length: int) -> list[Field] | Violation:
        self.sizes.append(_HEADER_BYTES + length)
        frame = self._decode(body, self._limits)
        if type(frame) is Violation:
            self.broken = frame
        return frame

    def _refuse(self, length: int, first: int, kind: int) -> Violation | None:
        if not 0 < length <= self._limits.frame_bytes:
            return Violation("frame length", f"{length:,}; a frame has 1 to {self._limits.frame_bytes:,} bytes")
        if first & 0xF0 != _FIRST:
            return Violation("undecodable frame", f"the body starts with 0x{first:02x}, not with an array")
        if length > self._limits.request_bytes and kind in _REPORTS:
            return _too_large(length, self._limits)
        return None
