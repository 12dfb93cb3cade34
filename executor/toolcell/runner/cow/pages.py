"""Forks of the zygote inherit the page tables of the interpreter's code."""

import ctypes
from contextlib import suppress


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
