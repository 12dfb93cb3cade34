"""What makes forks of the zygote cheaper, each page that they ask for or copy being some thousand instructions."""

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_POOL_BYTES, _POOL_HEADER_BYTES = 16 * 1024, 48  # of CPython's allocator: blocks of one size (Objects/obmalloc.c)
_BLOCKS: list[tuple[int, Callable[[], object]]] = [
    (16, object),
    (32, lambda: float(len(_taken))),
    *((size, partial(bytes, size - sys.getsizeof(b""))) for size in range(48, 513, 16)),
]
"""What makes a block of each size. They stay: where a block is given back, the next one is taken from there."""
_MOST_BYTES = 256 * 1024  # to be taken up of each size; it ends long before where the allocator is that one
_taken: list[object] = []


def hand_on_code() -> None:
    """Have forks hand on where the code of the interpreter and of the C library is mapped, which is forty page faults.

    fork(2) copies the page tables of a mapping only where that has a page that is the process's own (`vma_needs_copy`,
    mm/memory.c), and code has none. So a page of it is made one, by writing to it what is there. Memory that may not be
    written to is written through /proc/self/mem. Where the kernel was told to refuse that (proc_mem.force_override,
    Linux 6.12), forked processes have the faults.
    """
    interpreter, library = ctypes.pythonapi.Py_GetVersion, ctypes.CDLL(None).getpid
    with suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:
        for function in (interpreter, library):
            address = ctypes.cast(function, ctypes.c_void_p).value or 0
            memory.seek(address)
            byte = memory.read(1)
            memory.seek(address)
            memory.write(byte)


def fill_pools() -> None:
    """Fill the allocator's free slots before forking, so that children allocate in fresh pages and copy fewer.

    A free slot in a used pool costs a child two copied pages, the pool's header and the slot; a new pool costs one.
    """
    for size, block in _BLOCKS:
        for _ in range(_MOST_BYTES // size):
            _taken.append(block())
            if id(_taken[-1]) % _POOL_BYTES == _POOL_HEADER_BYTES:
                break
