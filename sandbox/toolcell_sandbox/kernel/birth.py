"""The birth time of a file (statx(2)). It distinguishes a file from a later one with the same inode number."""

import ctypes
import struct

from .syscalls import AT_FDCWD, attempt

_AT_SYMLINK_NOFOLLOW, _STATX_BTIME = 0x100, 0x800
_BYTES, _MASK_AT, _BIRTH_AT = 256, 0, 80  # of struct statx (linux/stat.h)


def born_ns(path: str) -> int:
    """In nanoseconds since 1970, without following a link; 0 if the path is missing or the file system has none."""
    found = ctypes.create_string_buffer(_BYTES)
    if attempt("statx", AT_FDCWD, path, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found) < 0:
        return 0
    (mask,) = struct.unpack_from("=I", found, _MASK_AT)
    if not mask & _STATX_BTIME:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", found, _BIRTH_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
