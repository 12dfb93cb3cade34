"""A long text goes out of the memory that it is in: msgpack would copy it into a buffer of its own first."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgpack

LONG: Final = 1024 * 1024
FEW: Final = 64  # arguments, or the parts of a result: among more than that, none is looked for
STR32: Final = b"\xdb"  # and 4 bytes of length come before a text of over 64 KiB
STR32_BYTES: Final = 5
_type_of: Callable[[object], type[object]] = type  # what type() says of an Any is unknown to type checkers
_utf8_of = ctypes.pythonapi.PyUnicode_AsUTF8AndSize  # of an ASCII text, its own characters (docs: c-api/unicode)
_utf8_of.argtypes = (ctypes.py_object, ctypes.c_void_p)
_utf8_of.restype = ctypes.c_void_p


_Characters = ctypes.c_char * (1 << 32)  # one type for texts of any length: ctypes keeps each for ever


def around(fields: Sequence[Any], text: str) -> tuple[bytes, bytes]:
    """What msgpack makes of the fields, before that text and after it."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(len(fields))
    before = b""
    for field in fields:
        if before or _type_of(field) is not dict or not any(value is text for value in field.values()):
            packer.pack(field)
            continue
        packer.pack_map_header(len(field))
        for key, value in field.items():
            packer.pack(key)
            if value is text and not before:
                before = packer.bytes() + STR32 + len(text).to_bytes(4, "big")
                packer.reset()
            else:
                packer.pack(value)
    return before, packer.bytes()


def characters(text: str) -> memoryview:
    """The characters of an ASCII text, where they are. It lives as long as somebody looks at them."""
    memory: Any = _Characters.from_address(_utf8_of(text, None))
    memory.text = text
    return memoryview(memory).cast("B")[: len(text)].toreadonly()
