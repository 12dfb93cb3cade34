"""Count the elements that a frame's body declares, from its headers only: no value is built.

msgpack calls its hooks only when a container is complete. So nested containers of a million elements each could fill
the memory before a hook could refuse them. The count bounds the cost of decoding in advance.
"""

from typing import Final

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
