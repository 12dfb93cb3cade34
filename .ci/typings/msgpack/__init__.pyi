# What toolcell uses of msgpack, which ships no types.
from collections.abc import Callable
from typing import Any

from . import exceptions as exceptions

class ExtType:
    def __init__(self, code: int, data: bytes) -> None: ...

class Timestamp:
    def __init__(self, seconds: int, nanoseconds: int = ...) -> None: ...

class Packer:
    def __init__(
        self,
        *,
        default: Callable[[Any], object] | None = ...,
        use_bin_type: bool = ...,
        autoreset: bool = ...,
        strict_types: bool = ...,
        unicode_errors: str | None = ...,
    ) -> None: ...
    def pack(self, obj: object) -> bytes: ...
    def getbuffer(self) -> memoryview: ...
    def bytes(self) -> bytes: ...
    def pack_array_header(self, size: int) -> None: ...
    def pack_map_header(self, size: int) -> None: ...
    def reset(self) -> None: ...

def packb(o: object, **kwargs: object) -> bytes: ...
def unpackb(
    packed: bytes | bytearray | memoryview,
    *,
    raw: bool = ...,
    unicode_errors: str | None = ...,
    strict_map_key: bool = ...,
    list_hook: Callable[[list[Any]], object] | None = ...,
    object_pairs_hook: Callable[[list[tuple[Any, Any]]], object] | None = ...,
    ext_hook: Callable[[int, bytes], object] = ...,
    max_str_len: int = ...,
    max_bin_len: int = ...,
    max_array_len: int = ...,
    max_map_len: int = ...,
    max_ext_len: int = ...,
) -> object: ...
