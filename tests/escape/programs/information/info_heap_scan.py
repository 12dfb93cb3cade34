"""Scan all memory of the process for secrets of the supervisor.

Source: I05; snekbox env erase
"""

import ctypes
import gc
import os

from tests.escape.kit import Scene, read, secrets_in

from toolcell_sandbox.kernel.syscalls import attempt

EXPECT = 0


def attack(scene: Scene) -> object:
    return _scan()


def _scan() -> int:
    found = 0
    for line in _maps():
        span, mode = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if mode.startswith("rw") and end - start < 64 << 20:
            found += secrets_in(ctypes.string_at(start, end - start))
    return found


def _maps() -> list[str]:
    """The mappings; where they cannot be read, as a process that is not dumpable cannot, pages around some objects."""
    attempt("prctl", 4, 1, 0, 0, 0)
    try:
        return read("/proc/self/maps").decode().splitlines()
    except OSError:
        arenas = {id(thing) >> 18 for thing in gc.get_objects()}  # obmalloc's arenas are 256 KiB, and aligned to that
        spans = [(number << 18) + step for number in arenas for step in range(0, 1 << 18, 4096)]
        take, give = os.pipe()
        there = [page for page in spans if attempt("write", give, page, 1) == 1 and os.read(take, 1)]
        return [f"{page:x}-{page + 4096:x} rw-p" for page in there]
