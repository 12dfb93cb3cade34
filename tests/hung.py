"""A file system that answers nothing: FUSE without a server that reads its requests. Only root can mount it."""

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_DETACH = 2


@contextmanager
def hung_mount(place: Path) -> Generator[None]:
    """Mount it at a new directory. At the end, every request that waits fails."""
    place.mkdir(parents=True)
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
        mounted = _libc.mount(b"hung", bytes(place), b"fuse", 0, options)
        assert mounted == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        os.close(fd)
        _libc.umount2(bytes(place), _DETACH)
