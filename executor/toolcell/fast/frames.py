"""Messages that are encoded and decoded by hand, for speed. The plain codec reads these frames, and this one reads the
plain codec's.

- `recycle`, `recycled`, `ready`, `exited` are used at least once for each call. They take a tenth of the time, and a
  forked init writes to 40 pages fewer, which it would copy again after each fork.
- `CALL` tells a call process that the bytes it read are the one frame of a call, so that it needs no decoder.
- `flat_answer` reads the usual answer, whose parts are short texts and numbers, in one step of msgpack, without a hook
  for each container.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, cast

import msgpack

from .switches import is_on

# A frame's length, an array (0x90 + fields), the kind (`messages.SHAPES`), then each field after the byte of its type:
# uint 32 (0xce), int 32 (0xd2), uint 64 (0xcf), float 64 (0xcb). false and true are one byte (0xc2, 0xc3).
_NUMBER_AND_BOOL: Final = Struct(">I3sIB")
_EXITED: Final = Struct(">I3sIcicdcQ")

CALL: Final = b"\x96\x01"
"""The first bytes of a call's frame after its header: an array of six fields, and the kind."""


def recycle(process: int, account: bool) -> bytes:
    """The frame of a `Recycle`, which ends the call of a process or asks for the next process."""
    return _NUMBER_AND_BOOL.pack(8, b"\x93\x31\xce", process, 0xC2 + account)


def ready(process: int, waiting: bool) -> bytes:
    """The frame of a `Ready`."""
    return _NUMBER_AND_BOOL.pack(8, b"\x93\x22\xce", process, 0xC2 + waiting)


def exited(process: int, code: int, cpu_s: float, max_rss_bytes: int) -> bytes:
    """The frame of an `Exited`."""
    return _EXITED.pack(30, b"\x95\x23\xce", process, b"\xd2", code, b"\xcb", cpu_s, b"\xcf", max_rss_bytes)


def recycled(frames: bytes) -> list[tuple[int, bool]]:
    """The fields of each `Recycle` frame. A frame is its length (below 256), an array of 3, the kind, the number (one
    byte, or a type byte and up to four more), and the flag."""
    found: list[tuple[int, bool]] = []
    while frames:
        last = 3 + frames[3]
        found.append((frames[6] if last == 7 else int.from_bytes(frames[7:last], "big"), frames[last] == 0xC3))
        frames = frames[last + 1 :]
    return found


FLAT_BYTES: Final = 4096 if is_on("flat_answer") else 0
"""The longest frame that `flat_answer` reads: an answer that it leaves to the plain decoder is decoded twice."""
_RESULT_AFTER_LENGTH: Final = Struct(">I2s").pack
_RESULT: Final = b"\x93\x10"  # the start of a Result's body: an array of three fields, and the kind
_PAYLOAD_AT: Final = tuple(
    7 if first < 0x80 else {0xCC: 8, 0xCD: 9, 0xCE: 11}.get(first, 0)  # uint 8, 16, 32; 0 is no place of a map
    for first in range(256)
)
"""Where the payload begins in the frame of a Result, by the first byte of its number."""
_MAP: Final = 0x80  # and the number of pairs, up to 15: a larger map begins with another byte
_MOST_PAIRS: Final = 15
_FLAT: Final = frozenset({str, int, float, bool, type(None)})
_type_of: Callable[[object], type[object]] = type  # type checkers do not know the type() of an Any
_unpack = cast("Callable[[bytes | memoryview], list[Any]]", msgpack.unpackb)


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
