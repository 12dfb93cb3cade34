"""Forks of the zygote inherit the page tables of the interpreter's code."""

import ctypes
from contextlib import suppress


def hand_on_code() -> None:
    """Let forks inherit the page tables of the interpreter's and the C library's code. It saves each fork some 40 page
    faults.

    fork(2) copies the page tables of a mapping only if the mapping has a private page (`vma_needs_copy`, mm/memory.c).
    Code has none. So one byte of it is written back through /proc/self/mem, which makes its page private. If the kernel
    refuses that (proc_mem.force_override, Linux 6.12), nothing is saved.
    """
    interpreter, library = ctypes.pythonapi.Py_GetVersion, ctypes.CDLL(None).getpid
    with suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:
        for function in (interpreter, library):
            address = ctypes.cast(function, ctypes.c_void_p).value or 0
            memory.seek(address)
            byte = memory.read(1)
            memory.seek(address)
            memory.write(byte)
