"""When a file was made (statx(2)). With its inode number it tells a file from another that has got the number since."""

import ctypes
import struct

from .syscalls import AT_FDCWD, attempt

_AT_SYMLINK_NOFOLLOW, _STATX_BTIME = 0x100, 0x800
_BYTES, _MASK_AT, _BIRTH_AT = 256, 0, 80  # of struct statx (linux/stat.h)


def born_ns(path: str) -> int:
    """Nanoseconds since 1970, of a link itself; 0 where nothing is there or the file system does not know."""
    found = ctypes.create_string_buffer(_BYTES)
    if attempt("statx", AT_FDCWD, path, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found) < 0:
        return 0
    (mask,) = struct.unpack_from("=I", found, _MASK_AT)
    if not mask & _STATX_BTIME:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", found, _BIRTH_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
